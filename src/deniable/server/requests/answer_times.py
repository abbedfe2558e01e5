"""Answers leave at times of a public grid. The time of an answer depends on the data, and would be a side channel.

An answer that is ready within one step leaves after one step; a later one after 2, 4, 8, ... steps. So the time of an
answer reveals only one of a few classes: 12 of them with steps of 50 ms and runs of at most a minute. If all questions
to a table finish within the first step, it reveals nothing. Refusals, failures and replayed answers leave at the same
times.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class AnswerGrid:
    """A grid with steps of `step` seconds."""

    step: float

    def due(self, took: float) -> float:
        """When an answer leaves, in seconds after the request, if its work took `took` seconds.

        >>> [AnswerGrid(0.05).due(took) for took in (0.0, 0.049, 0.051, 0.11, 0.4)]
        [0.05, 0.05, 0.1, 0.2, 0.4]
        """
        due = self.step
        while due < took:
            due *= 2
        return due

    async def leave(self, arrived: float) -> None:
        """Wait for the next time of the grid, for a request that arrived at `arrived` (in time.monotonic)."""
        due = arrived + self.due(time.monotonic() - arrived)
        while (left := due - time.monotonic()) > 0:
            await asyncio.sleep(left)
