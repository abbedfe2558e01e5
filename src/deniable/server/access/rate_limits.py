"""Rate limits: a token bucket for each name, independent of the buckets of other names."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, final

_MOST: Final = 100_000


@final
class Buckets:
    """Each name may take `burst` tokens at once, and `rate` per second in the long run. `clock` returns seconds.

    >>> now = [0.0]
    >>> buckets = Buckets(rate=1, burst=2, clock=lambda: now[0])
    >>> [buckets.take("ana"), buckets.take("ana"), buckets.take("ana"), buckets.take("bob")]
    [0, 0, 1, 0]
    """

    def __init__(self, *, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> int:
        """Take one token and return 0. If the bucket is empty, return the whole seconds until it has a token again."""
        level = self._level(name)
        if level < 1:
            return max(1, math.ceil((1 - level) / self._rate))
        self._keep(name, level - 1)
        return 0

    def give_back(self, name: str) -> None:
        """Undo one `take`."""
        self._keep(name, min(float(self._burst), self._level(name) + 1))

    def _level(self, name: str) -> float:
        level, when = self._levels.get(name, (float(self._burst), 0.0))
        return min(float(self._burst), level + (self._clock() - when) * self._rate)

    def _keep(self, name: str, level: float) -> None:
        self._levels[name] = (level, self._clock())
        self._levels.move_to_end(name)
        if len(self._levels) > _MOST:
            self._levels.popitem(last=False)
