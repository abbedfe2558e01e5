"""Budgets that renew: a budget for each day, week, month or year, for a stated number of periods.

A budget that is refilled without end promises nothing to a person whose data stay for many periods: after k periods the
person has the risk of k budgets. So a renewing budget has two limits, and the ledger enforces both: the budget of one
period limits the dataset in each window of time, and k budgets limit it over its lifetime. Each limit is a filter, so
it holds also if costs are chosen after seeing answers: the lifetime's filter holds over all costs, and a window's
filter holds given everything before the window. When all periods are used up, nothing more is answered. Only an
adjustment that the owner signs, and everybody can see, raises the lifetime's limit (`Ledger.adjust`).

**The clock.** Windows are [j·n, (j+1)·n) seconds since 1970. The ledger's time never decreases, also over restarts and
with several processes, because it is at least the time of the newest entry. So a clock that is set back does not reopen
a window. A clock that is set forward spends later windows early: more at once, never more than the lifetime allows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, final

from deniable import arguments
from deniable.arguments import NumberRange
from deniable.curves.exact_amounts import decimal_of
from deniable.curves.filters import amount_of
from deniable.errors import InvalidParameter, UnreadableRecord
from deniable.ledger import epsilon_mu_conversion
from deniable.ledger.budget import Budget, Cost
from deniable.units import Unit

if TYPE_CHECKING:
    from deniable.curves import Curve

__all__ = ["Renewal", "read_budget"]

PERIODS: Final = {"day": 86_400, "week": 7 * 86_400, "month": 30 * 86_400, "year": 365 * 86_400}
"""The seconds of each period; a month is 30 days."""
_COUNT: Final = NumberRange("must be a whole number of periods, from 1 to 100,000", least=1, most=100_000)


@final
@dataclass(frozen=True, slots=True)
class Renewal:
    """A budget for each of `periods` periods. Give it to `dn.session(budget=...)` in place of a `Budget`.

    >>> weekly = Renewal(Budget.pure(epsilon=0.1), per="week", periods=52)
    >>> weekly.lifetime
    Budget.pure(epsilon=5.2, delta=0)
    >>> print(weekly)
    Budget.pure(epsilon=0.1, delta=0) in each week, for 52 weeks: whoever sees all answers and starts from even odds \
    guesses right whether a person is in the data at most 52.5 % of the time after one week, and at most 99.5 % after \
    52 weeks. A person whose data stay for several weeks has the risk of several weeks, not of one.
    """

    budget: Budget
    """What may be spent in one period."""
    per: str
    """day, week, month (30 days) or year (365 days)."""
    periods: int
    """The number of periods in the lifetime of the data, from 1 to 100,000."""

    def __post_init__(self) -> None:
        if not isinstance(self.budget, Budget):
            raise InvalidParameter("budget", self.budget, "must be a Budget", "write Budget(epsilon=1, delta=1e-6)")
        if not isinstance(self.per, str) or self.per not in PERIODS:
            raise InvalidParameter("per", self.per, f"must be one of {', '.join(PERIODS)}")
        arguments.python_int("periods", self.periods, _COUNT)

    @property
    def window(self) -> int:
        """The seconds of a period."""
        return PERIODS[self.per]

    def cost(self, periods: int) -> Cost:
        """The cost of this many periods if all of their budgets are spent."""
        arguments.python_int("periods", periods, _COUNT)
        return Cost(self.budget.limit.units * periods, self.budget.limit.delta_units * periods)

    @property
    def lifetime(self) -> Budget:
        """The budget of all periods together, in the same currency. The ledger has this budget.

        For a budget of ε and δ, it has k times the δ, and the smallest ε (rounded up) that covers the μ² of all k
        periods. Raises InvalidParameter if the δ of all periods together would be 1 or more.
        """
        budget, whole = self.budget, self.cost(self.periods)
        if budget.epsilon_units is None:
            return Budget._of(budget.accounting, whole)
        noise = budget.noise_delta_units * self.periods
        if noise + whole.delta_units >= 10**30:
            rule = "is too large: the delta of all periods together would be 1 or more"
            raise InvalidParameter("periods", self.periods, rule, "choose a smaller delta, or fewer periods")
        epsilon = epsilon_mu_conversion.epsilon_up(whole.units, noise)
        made = Budget.__new__(Budget)  # without warnings: `__str__` states the risk
        made._choose(epsilon, amount_of(noise + whole.delta_units), amount_of(whole.delta_units))
        return made

    def curve(self, periods: int) -> Curve:
        """The curve of everything released in this many periods, for a person whose data are in all of them."""
        return self.budget.curve(self.cost(periods))

    def chance(self, periods: int) -> Decimal:
        """The largest probability, in percent, that an attacker with even prior odds guesses right whether a person is
        in the data after this many periods; rounded up to tenths.
        """
        return self._chance(self.cost(periods))

    def to_dict(self) -> dict[str, Any]:
        """Plain values (JSON) that `from_dict` reads back."""
        return {"budget": self.budget.to_dict(), "per": self.per, "periods": self.periods}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Renewal:
        """The renewal that `to_dict` wrote; UnreadableRecord for anything else."""
        try:
            return cls(Budget.from_dict(record["budget"]), per=record["per"], periods=record["periods"])
        except (InvalidParameter, KeyError, TypeError):
            raise UnreadableRecord("this is not a renewing budget; it has a budget, per and periods") from None

    def statement(self, period: Cost | None = None, life: Cost | None = None, unit: Unit | None = None) -> str:
        """What a person risks in one period and over their life, in words.

        `period` and `life` are the largest limits that were in force, if the owner adjusted them. `unit` is what the
        ledger protects, by default a person.
        """
        most, whole = self.budget.limit if period is None else period, self.lifetime.limit if life is None else life
        many = f"{self.periods:,} {self.per}s"
        secret = "whether a person is in the data" if unit is None else unit.secret
        whose = f"whoever sees all answers and starts from even odds guesses right {secret}"
        adjusted = "" if (most, whole) == (self.budget.limit, self.lifetime.limit) else ", with the owner's adjustments"
        return (
            f"{self.budget!r} in each {self.per}, for {many}{adjusted}: {whose} at most {self._chance(most):f} % of "
            f"the time after one {self.per}, and at most {self._chance(whole):f} % after {many}. A person whose data "
            f"stay for several {self.per}s has the risk of several {self.per}s, not of one."
        )

    def _chance(self, cost: Cost) -> Decimal:
        tenths = min(1000, math.ceil(500 * (1 + Fraction(self.budget.curve(cost).advantage()))))
        return decimal_of(tenths, -1)

    def __str__(self) -> str:
        return self.statement()

    def __repr__(self) -> str:
        return f"Renewal({self.budget!r}, per={self.per!r}, periods={self.periods})"


def read_budget(record: Mapping[str, Any]) -> Budget | Renewal:
    """The budget or renewal that `to_dict` wrote."""
    return Renewal.from_dict(record) if "per" in record else Budget.from_dict(record)
