"""When an answer leaves: on a public grid, so that how long the work took is told in a few steps only.

An answer that is ready within one step leaves after one step; one that needs longer, after two, four, eight, ... of
them. So the time of an answer says only which of these classes the work fell into: with steps of 50 ms and runs of at
most a minute, one of 12. A table whose questions all fit into the first step tells nothing at all. Refusals, failures
and answers that were known before go the same way.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class AnswerGrid:
    """A grid of this many seconds a step."""

    step: float

    def due(self, took: float) -> float:
        """When work that took so long leaves, in seconds after it was asked for.

        >>> [AnswerGrid(0.05).due(took) for took in (0.0, 0.049, 0.051, 0.11, 0.4)]
        [0.05, 0.05, 0.1, 0.2, 0.4]
        """
        due = self.step
        while due < took:
            due *= 2
        return due

    async def leave(self, arrived: float) -> None:
        """Wait until the next moment of the grid of a request that arrived then (by time.monotonic)."""
        due = arrived + self.due(time.monotonic() - arrived)
        while (left := due - time.monotonic()) > 0:
            await asyncio.sleep(left)
