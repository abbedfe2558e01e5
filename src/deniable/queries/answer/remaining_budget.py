"""The rest of a budget, and failed runs, as a session reports them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from deniable.ledger import Budget, Cost
from deniable.queries.plan.answer_notes import rest_in_words
from deniable.units import Unit

_SEVERAL: Final = 10
_WIDTHS: Final = tuple(a * 10**n for n in range(1, 7) for a in (1, 2, 5))
"""The round half-widths that `Remaining.yardstick` tries."""


@final
@dataclass(frozen=True, slots=True)
class Failure:
    """A run that failed, for the owner: the number of its charge, as on receipts, and a closed error code."""

    entry: int
    code: str


@final
@dataclass(frozen=True, slots=True)
class Remaining:
    """The rest of a budget, and how many more counts it buys."""

    budget: Budget
    cost: Cost
    unit: Unit

    def counts(self, *, within: float, confidence: float = 0.95) -> int:
        """How many more counts of rows the rest buys, each with a noise interval of ±`within` at this confidence."""
        from deniable.queries.plan.pricing import count_cost

        return self.cost // count_cost(self.budget, self.unit, within, confidence)

    def yardstick(self) -> tuple[int, int]:
        """(half-width, number of counts): the smallest round half-width, from ±10, at which the rest buys ten counts.

        Every message "about N more counts" uses it. If the rest does not buy ten, the largest half-width is returned.
        """
        for within in _WIDTHS:
            if (found := self.counts(within=within)) >= _SEVERAL:
                return within, found
        return _WIDTHS[-1], self.counts(within=_WIDTHS[-1])

    def said(self) -> str:
        """The yardstick as text: "about 12 more counts at ±50"."""
        within, counts = self.yardstick()
        return f"about {counts:,} more count{'' if counts == 1 else 's'} at ±{within:,}" if counts else "no more counts"

    def __str__(self) -> str:
        return f"{rest_in_words(self.cost, self.budget)}: {self.said()}"

    __repr__ = __str__
