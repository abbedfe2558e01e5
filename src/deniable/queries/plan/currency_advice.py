"""What a budget in the other currency would give for questions of one price: pure ε instead of (ε, δ), or the reverse.

One question under `Budget(epsilon=1, delta=1e-6)` has Gaussian noise with three times the standard deviation that
Laplace noise has under `Budget.pure(epsilon=1)`. k equal questions have √k times the Gaussian noise and k times the
Laplace noise of one, so the Gaussian budget is better from nine questions on.

**Why a ledger does not simply take the better noise for each question.** Suppose that Laplace releases cost ε_i and
Gaussian ones μ_j², under one promise of (ε, δ). If two limits are fixed in advance, Σε_i ≤ e and Σμ_j² ≤ m with
δ_m(ε - e) ≤ δ, the promise holds, also if both kinds are interleaved adaptively: the likelihood ratio of all releases
is at most e^e times that of the Gaussian ones, whose filter is valid with any other outputs as side information. But
each part of a split is smaller than the whole, so a split helps neither kind. One limit on the pair would help: spend
until δ_{Σμ²}(ε - Σε) reaches δ. Such a filter stops at the border of a region of pairs (Σε, Σμ²), and an analyst may
choose the next currency by earlier answers. No theorem shows that this is a valid filter, and multiplying curves up to
a border is known to fail (arXiv 2602.06756). So a budget keeps one currency, and a price reports what the other would
give.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, final

from deniable.curves.filters import amount_of
from deniable.ledger import Budget, Cost
from deniable.ledger.currency import PURE
from deniable.queries.plan.answer_notes import short_error

if TYPE_CHECKING:
    from deniable.queries.plan.pricing import Price

_DELTA: Final = "0.000001"
"""The δ of the Gaussian budget that a pure one is compared with."""
_WORTH: Final = 0.9
"""The other currency is mentioned if its errors are at most this fraction of the errors in the budget's own."""


@final
@dataclass(frozen=True, slots=True)
class OtherCurrency:
    """The errors that a budget in the other currency would give, divided among the same number of questions."""

    budget: Budget
    questions: int
    """The number of questions that are compared: as many as the whole budget pays for at this price."""
    cost: Cost
    """The cost of each question in the other currency: an equal share of that budget."""
    errors: dict[str, float]
    """The half-width of the noise interval of each measure, under the other budget."""
    here: dict[str, float]

    @property
    def is_better(self) -> bool:
        """Whether every measure has a clearly smaller error under the other budget."""
        return all(self.errors[name] <= _WORTH * here for name, here in self.here.items())

    def __str__(self) -> str:
        near = ", ".join(
            f"{name} ± {short_error(error)} (here ± {short_error(self.here[name])})"
            for name, error in self.errors.items()
        )
        many = "1 such question" if self.questions == 1 else f"{self.questions:,} such questions, each"
        epsilon, delta = self.budget.epsilon, self.budget.delta
        made = f"epsilon {epsilon} and delta {delta}" if delta else f"pure epsilon {epsilon}"
        return f"a budget of {made} would pay for {many} with {near}; the kind of a budget cannot be changed later"


def other_currency(price: Price) -> OtherCurrency | None:
    """The comparison for a price; None for quantiles, unlisted keys, budgets of μ or ρ, and prices above the budget."""
    from deniable.queries.plan.pricing import TYPICAL_ROWS, errors

    plan, budget = price.plan, price.budget
    if plan.people is not None or any(part.is_ranked for part in plan.parts) or not price.cost.units:
        return None
    there, many = _other(budget), budget.limit.units // price.cost.units
    if there is None or not many:
        return None
    cost = Cost(there.limit.units // many)
    if not cost.units:
        return None
    found = errors(plan, there, cost, price.confidence, TYPICAL_ROWS)
    here = errors(plan, budget, price.cost, price.confidence, TYPICAL_ROWS)
    named = {name: error for name, error in here.items() if error}
    if not named:
        return None
    return OtherCurrency(there, many, cost, {name: float(found[name] or 0) for name in named}, named)


@lru_cache(maxsize=64)
def _other(budget: Budget) -> Budget | None:
    """The budget of the same ε in the other currency, without warnings: nobody opens it."""
    if budget.epsilon_units is not None:
        return Budget._of(PURE, Cost(budget.epsilon_units, 0))
    epsilon = budget.accounting.epsilon_units(budget.limit.units)
    if epsilon is None:
        return None
    made = Budget.__new__(Budget)
    made._choose(amount_of(epsilon), _DELTA, None)
    return made
