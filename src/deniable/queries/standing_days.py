"""Days of standing questions, and arrays of the rows that each person used. Clients import it without an engine."""

from __future__ import annotations

import datetime as dt
from typing import Final, NamedTuple, final

import numpy as np

PERSON_BYTES: Final = 16
PEOPLE: Final = np.dtype([("who", f"V{PERSON_BYTES}"), ("rows", "<u4")])
"""Pseudonyms of people, each with a number of rows."""

Day = dt.date | int


@final
class Days(NamedTuple):
    """Selects rows by day: those with `column` = `last`, or for running totals those with `after` < `column` <= `last`.

    `after` None: all rows up to `last`.
    """

    column: str
    last: Day
    is_running: bool = False
    after: Day | None = None

    @property
    def condition(self) -> str:
        """The condition on a column of the source, in SQL: `{}` stands for the column."""
        if not self.is_running:
            return f"{{0}} = {_literal(self.last)}"
        return f"{{0}} <= {_literal(self.last)}" + (
            "" if self.after is None else f" AND {{0}} > {_literal(self.after)}"
        )


def _literal(day: Day) -> str:
    return str(day) if isinstance(day, int) else f"DATE '{day.isoformat()}'"
