"""The receipt of an answer: what was paid, about which version of the data, and what is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from deniable.queries.plan.answer_notes import cost_in_words, rest_in_words

if TYPE_CHECKING:
    from deniable.ledger import Budget, Cost

STANDING: Final = "standing "
"""The version of an answer to a standing question begins with this; the name of its set and the day follow."""


@final
@dataclass(frozen=True, slots=True)
class Receipt:
    """The cost of an answer, its entry in the ledger, and the rest of the budget. A replay costs nothing."""

    entry: int
    """The number of the charge in the ledger (`Ledger.charge`); it does not reveal which other runs had ended then."""
    question: str
    cost: Cost
    rest: Cost
    budget: Budget
    replayed: bool
    time: str
    """When it was charged, by the ledger's clock. A replay returns the answer of that time."""
    version: str | None = None
    """The version of the data: as its owner declared it, otherwise the ledger's own name for it; None if unknown. From
    a server: the declared version, otherwise the name of the dataset."""
    dummy: bool = False
    """Whether this was a rehearsal on a server's dummy rows, which is free."""
    declared: bool = False
    """Whether the owner declared the version."""
    ledger: str = ""
    """The random number that distinguishes the ledger from all others (`Ledger.serial`); "" for a rehearsal."""

    @property
    def paid(self) -> str:
        """The cost as text; "nothing …" for a replay, a rehearsal or a sum of a finer answer."""
        if self.dummy:
            return "nothing"
        if self.replayed:
            return f"nothing (asked before; the answer is of {self.time[:10]})"
        if self.version is not None and self.version.startswith(STANDING):
            return "nothing (all days were paid for when it was declared)"
        if not self.cost.units and not self.cost.delta_units:
            return "nothing (added up from a finer answer)"
        return cost_in_words(self.cost, self.budget)

    @property
    def left(self) -> str:
        """The rest of the budget after the charge, as text."""
        return "as much as before" if self.dummy else rest_in_words(self.rest, self.budget)

    def __str__(self) -> str:
        if self.dummy:
            return "free: computed from dummy rows, not from data"
        about = f"; version {self.version}" if self.declared else ""
        return f"charge {self.entry}: paid {self.paid}; left {self.left}{about}"
