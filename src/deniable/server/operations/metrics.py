"""Metrics for a monitor: counts of requests by route, method and status, without datasets, people or times."""

from __future__ import annotations

from collections import Counter
from typing import final


@final
class Metrics:
    """Counters in the text format of Prometheus."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()

    def count(self, method: str, route: str, status: int) -> None:
        """Count a request. `route` is the template of the path, never the path itself, which may hold names."""
        self._requests[method, route, status] += 1

    def text(self) -> str:
        """All counters, as text.

        >>> metrics = Metrics()
        >>> metrics.count("GET", "/health", 200)
        >>> print(metrics.text(), end="")
        # HELP deniable_requests_total Requests by route, method and status.
        # TYPE deniable_requests_total counter
        deniable_requests_total{route="/health",method="GET",status="200"} 1
        """
        lines = [
            "# HELP deniable_requests_total Requests by route, method and status.",
            "# TYPE deniable_requests_total counter",
        ]
        lines += [
            f'deniable_requests_total{{route="{route}",method="{method}",status="{status}"}} {count}'
            for (method, route, status), count in sorted(self._requests.items())
        ]
        return "\n".join(lines) + "\n"
