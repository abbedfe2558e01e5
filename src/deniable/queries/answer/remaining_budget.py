"""What is left of a budget, and which runs could not be finished: what a session tells its owner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from deniable.ledger import Budget, Cost
from deniable.queries.plan.answer_notes import rest_said
from deniable.units import Unit

_SEVERAL: Final = 10
_WIDTHS: Final = tuple(a * 10**n for n in range(1, 7) for a in (1, 2, 5))
"""Round distances at which counts are told off."""


@final
@dataclass(frozen=True, slots=True)
class Failure:
    """A run that could not be finished, for the owner: the charge, as receipts number it, and one of the closed
    codes.
    """

    entry: int
    code: str


@final
@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left of a budget."""

    budget: Budget
    cost: Cost
    unit: Unit

    def counts(self, *, within: float, confidence: float = 0.95) -> int:
        """How many more counts of rows could be asked, each this near to the truth."""
        from deniable.queries.plan.pricing import count_cost

        return self.cost // count_cost(self.budget, self.unit, within, confidence)

    def yardstick(self) -> tuple[int, int]:
        """(how near, how many): counts at the nearest round distance, from ±10 on, of which ten or more can be asked.

        The one measure of "about so many more" everywhere. If there is hardly anything left, the widest that is told.
        """
        for within in _WIDTHS:
            if (found := self.counts(within=within)) >= _SEVERAL:
                return within, found
        return _WIDTHS[-1], self.counts(within=_WIDTHS[-1])

    def said(self) -> str:
        """The same in words: "about 12 more counts at ±50"."""
        within, counts = self.yardstick()
        return f"about {counts:,} more count{'' if counts == 1 else 's'} at ±{within:,}" if counts else "no more counts"

    def __str__(self) -> str:
        return f"{rest_said(self.cost, self.budget)}: {self.said()}"

    __repr__ = __str__
