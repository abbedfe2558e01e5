"""Budgets: how much may be spent, in which currency, and what a release costs.

=============================  ============  ========================================================================
budget                         currency      the promise at any stopping time, however the costs were chosen
=============================  ============  ========================================================================
`Budget(epsilon=, delta=)`     μ²            (ε, δ)-DP: μ-GDP with the largest μ that allows it, up to a δ for keys
`Budget.gaussian(mu=)`         μ²            μ-GDP, up to δ
`Budget.pure(epsilon=)`        ε             (ε, δ)-DP
`Budget.zcdp(rho=)`            ρ             ρ-zCDP, up to δ
=============================  ============  ========================================================================

Why the first budget is (ε, δ)-DP. Let κ = `keys_delta` be the part of δ for releases that may fail, for example by
showing a rare key. The filter keeps Σμ_i² <= μ² and Σδ_i <= κ, so all releases together are (1 - κ) × (μ-GDP) + κ ×
(anything); see `curves.filters`. A μ-GDP mechanism is (ε, δ_μ(ε))-DP, and μ is the largest value for which
δ_μ(ε) <= δ - κ. Together: (1 - κ) δ_μ(ε) + κ <= δ. ∎

Amounts are whole numbers of `curves.filters.UNIT` = 10^-30; a limit rounds down, a cost rounds up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self, final

from deniable import arguments
from deniable.arguments import COUNT
from deniable.curves.decimal_arithmetic import down as float_down
from deniable.curves.decimal_arithmetic import up as float_up
from deniable.curves.exact_amounts import (
    DECIMALS,
    UNIT,
    Amount,
    amount_of,
    delta_units_of_cost,
    delta_units_of_limit,
    exact_amount,
    units_of_limit,
)
from deniable.curves.filter_measures import MEASURES
from deniable.curves.filters import Filter, Priced
from deniable.curves.meaning import weakness_advice
from deniable.errors import NOTHING, InvalidParameter, UnreadableRecord
from deniable.ledger import epsilon_mu_conversion
from deniable.ledger.currency import CURRENCIES, GAUSSIAN, PURE, ZCDP, Currency, CurrencyName

if TYPE_CHECKING:
    from deniable.curves import Curve

__all__ = ["Budget", "Cost"]

_VERSION: Final = 1
_MOST: Final = 10**6
"""The largest limit; a larger one would protect nobody. So an amount has at most 38 digits in whole units."""

MOST_UNITS: Final = 3 * _MOST * 10**30
"""The largest limit in whole units, with room for rounding and squares."""


@final
@dataclass(frozen=True, slots=True)
class Cost:
    """An amount in whole units of 10^-30: of a budget's currency (μ², ε or ρ), and of δ.

    Costs add exactly. `a <= b` means that a is at most b in both columns, so two costs may not be comparable. `a // b`
    is how many times b fits into a; InvalidParameter if b is zero in both columns.

    >>> tenth = Budget.pure(epsilon=1).cost(epsilon=0.1)
    >>> tenth + tenth == Budget.pure(epsilon=1).cost(epsilon=0.2), Budget.pure(epsilon=1).limit // tenth
    (True, 10)
    """

    units: int
    delta_units: int = 0

    def __post_init__(self) -> None:
        units, delta_units = self.units, self.delta_units
        if type(units) is int and type(delta_units) is int and units >= 0 and delta_units >= 0:
            return  # the fast path: costs are made often
        for name, value in (("units", units), ("delta_units", delta_units)):
            arguments.python_int(name, value, COUNT)

    def __add__(self, other: Cost) -> Cost:
        if not isinstance(other, Cost):
            return NotImplemented
        return Cost(self.units + other.units, self.delta_units + other.delta_units)

    def __le__(self, other: Cost) -> bool:
        if not isinstance(other, Cost):
            return NotImplemented
        return self.units <= other.units and self.delta_units <= other.delta_units

    def __floordiv__(self, other: Cost) -> int:
        if not isinstance(other, Cost):
            return NotImplemented
        columns = ((self.units, other.units), (self.delta_units, other.delta_units))
        times = [have // each for have, each in columns if each]
        if not times:
            raise InvalidParameter("cost", other, "must be more than zero: a cost of zero fits any number of times")
        return min(times)

    def describe(self, budget: Budget) -> str:
        """The cost in words, rounded up to four digits; as ε if the budget was given as one.

        >>> budget = Budget(epsilon=1, delta=1e-6)
        >>> budget.cost(epsilon=0.1, delta=1e-8).describe(budget)
        'epsilon 0.1 at delta 9E-7 (mu 0.02737), delta 1E-8'
        """
        return _described(self, budget)

    def describe_rest(self, budget: Budget) -> str:
        """An amount that is left, in words: rounded down to four digits, and always with its δ, also if that is 0."""
        return _described_rest(self, budget)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Budget:
    """The amount that may ever be spent on a dataset: (ε, δ)-DP in the Gaussian currency.

    Promise: for all neighbours, everything released while the costs fit is (ε, δ)-DP, at any stopping time, also if
    each cost was chosen after seeing the earlier answers. `keys_delta` (by default δ/10) is reserved for keys that are
    shown above a threshold; noise may spend μ² up to the largest μ with δ_μ(ε) <= δ - keys_delta, rounded down.
    Sources: the module's proof; Smith & Thakurta (2022) for the sum; Balle & Wang (2018), Theorem 8, for δ_μ(ε).

    >>> budget = Budget(epsilon=1.0, delta=1e-6)
    >>> budget
    Budget(epsilon=1, delta=0.000001, keys_delta=1E-7)
    >>> budget.level(budget.limit)
    0.23550...
    >>> Budget.pure(epsilon=1), Budget.gaussian(mu=0.5, delta=1e-9), Budget.zcdp(rho=0.1)
    (Budget.pure(epsilon=1, delta=0), Budget.gaussian(mu2=0.25, delta=1E-9), Budget.zcdp(rho=0.1, delta=0))
    """

    currency: CurrencyName
    """What adds, as records spell it: "mu2", "epsilon" or "rho". `accounting` is the object with its rules."""

    limit: Cost
    """The most that may be spent, in both columns: currency and δ."""

    epsilon_units: int | None
    """The given ε, in units, of a budget in μ² that promises (ε, δ)-DP; else None. See `epsilon`."""

    noise_delta_units: int
    """The δ, in units, at which an ε converts to a μ: δ - keys_delta. 0 if ε does not convert."""

    def __init__(
        self,
        *,
        epsilon: Amount,
        delta: Amount | None = None,
        keys_delta: Amount | None = None,
        people: int | None = None,
    ) -> None:
        """`epsilon` is from 1e-30 to a million, 0 < `delta` < 1, and `keys_delta` < `delta`; else InvalidParameter.

        Issues WeakPrivacyWarning for an ε or δ that protects little. The public number of `people` is used for this
        advice only.
        """
        if delta is None:  # no default: Gaussian noise has no pure ε
            remedy = f"write Budget(epsilon={epsilon}, delta=1e-6), or Budget.pure(epsilon={epsilon}) without a delta"
            raise InvalidParameter("delta", NOTHING, "must be given", remedy)
        self._choose(epsilon, delta, keys_delta)
        self._advise(people)

    def _choose(self, epsilon: Amount, delta: Amount, keys_delta: Amount | None) -> None:
        asked, whole = _limit("epsilon", epsilon), delta_units_of_limit(delta)
        keys = whole // 10 if keys_delta is None else units_of_limit("keys_delta", keys_delta)
        if not 0 < whole < 10**30:
            remedy = "for a budget without a delta write Budget.pure(epsilon=...)"
            raise InvalidParameter("delta", delta, "must lie strictly between 0 and 1, and be at least 1e-30", remedy)
        if keys >= whole:
            rule = f"must be less than delta={amount_of(whole)}: the noise needs the rest"
            raise InvalidParameter("keys_delta", keys_delta, rule)
        mu2 = epsilon_mu_conversion.largest_mu2(asked, whole - keys)
        if mu2 == 0:
            raise InvalidParameter(
                "epsilon", epsilon, f"is too small at delta={delta}: its limit rounds to zero", "raise one of them"
            )
        self._fill(GAUSSIAN.name, Cost(mu2, keys), asked, whole - keys)

    @classmethod
    def pure(cls, *, epsilon: Amount, delta: Amount = 0, people: int | None = None) -> Budget:
        """A budget of ε: everything released is (ε, δ)-DP while Σε_i <= ε.

        `delta` pays only for keys that are shown above a threshold; with 0 there are no such questions. Amounts are
        read as decimals: 0.1 is a tenth. `people` is a public number, used for warnings only.
        """
        return cls._of(PURE, Cost(_limit("epsilon", epsilon), _column(delta)))._advise(people)

    @classmethod
    def gaussian(cls, *, mu: Amount, delta: Amount = 0, people: int | None = None) -> Budget:
        """A budget of μ: everything released is μ-GDP, up to δ, while Σμ_i² <= μ². Arguments as for `pure`."""
        square = math.floor(exact_amount("mu", mu, _range("mu")) ** 2 / UNIT)
        if not 0 < square <= _MOST * 10**30:
            raise InvalidParameter("mu", mu, _range("mu"))
        return cls._of(GAUSSIAN, Cost(square, _column(delta)))._advise(people)

    @classmethod
    def zcdp(cls, *, rho: Amount, delta: Amount = 0, people: int | None = None) -> Budget:
        """A budget of ρ: everything released is ρ-zCDP, up to δ, while Σρ_i <= ρ. Arguments as for `pure`."""
        return cls._of(ZCDP, Cost(_limit("rho", rho), _column(delta)))._advise(people)

    @classmethod
    def _of(cls, currency: Currency, limit: Cost) -> Self:
        made = cls.__new__(cls)
        made._fill(currency.name, limit, None, 0)
        return made

    def _fill(self, currency: CurrencyName, limit: Cost, epsilon_units: int | None, noise_delta_units: int) -> None:
        object.__setattr__(self, "currency", currency)
        object.__setattr__(self, "limit", limit)
        object.__setattr__(self, "epsilon_units", epsilon_units)
        object.__setattr__(self, "noise_delta_units", noise_delta_units)

    @property
    def accounting(self) -> Currency:
        """The rules of the currency: its filter, its conversions and the shape of its noise."""
        return CURRENCIES[self.currency]

    def weaknesses(self, *, people: int | None = None) -> tuple[str, ...]:
        """Warnings about this budget, one sentence each, from its numbers and the public number of people.

        >>> Budget(epsilon=1, delta=1e-6).weaknesses(people=10_000)
        ()
        >>> [warning] = Budget(epsilon=1, delta=1e-3).weaknesses(people=10_000)
        >>> warning
        'delta 0.001 protects little: it is not well below 1/n = 0.0001 for n = 10,000 people, and allows showing \
each of them in full with probability 0.001, 10 of them on average; 1/n² = 1e-08 is usual'
        """
        return weakness_advice.weaknesses(people=people, **self._promise_parameters())

    def _promise_parameters(self) -> dict[str, Any]:
        """The parameters of the promise that the advice judges: ε and δ, or μ and δ of the Gaussian noise that fits."""
        if self.epsilon is not None:
            return {"epsilon": self.epsilon, "delta": self.delta}
        square = self.accounting.mu2_units(self.limit.units)
        return {"mu": epsilon_mu_conversion.mu_down(square), "delta": self.delta}

    def _advise(self, people: int | None) -> Self:
        weakness_advice.warn_if_weak(people=people, **self._promise_parameters())
        return self

    # -- what things cost ----------------------------------------------------------------------------------------------

    @property
    def filter(self) -> Filter:
        """The filter with this budget's limit, and nothing spent."""
        return _filter(self.accounting, self.limit)

    def fits(self, total: Cost, limit: Cost) -> bool:
        """Whether a filter of this currency with this limit admits this total.

        >>> Budget.pure(epsilon=1).fits(Cost(3), Cost(3)), Budget.pure(epsilon=1).fits(Cost(3, 1), Cost(3))
        (True, False)
        """
        return _filter(self.accounting, limit).admits_units(total.units, total.delta_units)

    def price(self, curve: Priced, *, delta: Amount = 0) -> Cost:
        """What a release of this curve costs: gdp()², epsilon(delta=0) or zcdp(), rounded up.

        `delta` is the probability that the release fails, which is not part of the curve. InvalidParameter for a curve
        without a finite price in this currency.

        >>> from deniable import curves
        >>> Budget.gaussian(mu=1).price(curves.gaussian(sigma=4)) == Budget.gaussian(mu=1).cost(mu="1/4")
        True
        """
        return Cost(*self.filter.price(curve, delta=delta))

    def cost(
        self,
        *,
        epsilon: Amount | None = None,
        mu: Amount | None = None,
        rho: Amount | None = None,
        delta: Amount = 0,
    ) -> Cost:
        """The cost of an amount: give exactly one of `epsilon`, `mu` and `rho`. `level` is the inverse function.

        In the budget's own currency the amount is taken exactly as written, and rounded up to whole units. Conversions:
        under a Gaussian budget, `rho` is Gaussian noise with μ² = 2ρ, and `epsilon` is the largest μ with δ_μ(epsilon)
        <= δ - keys_delta, so that the release alone is that private and the budget's own ε costs the whole budget;
        under a zCDP budget, `mu` is ρ = μ²/2 (Bun & Steinke 2016, Proposition 1.6). InvalidParameter for other pairs.

        >>> budget = Budget(epsilon=1, delta=1e-6)
        >>> budget.cost(epsilon=1, delta=1e-7) == budget.limit
        True
        >>> budget.limit // budget.cost(epsilon=0.1)  # μ², not ε, adds: more than ten
        74
        """
        given = {name: value for name, value in (("epsilon", epsilon), ("mu", mu), ("rho", rho)) if value is not None}
        if len(given) != 1:
            raise InvalidParameter("cost", ", ".join(given), "give exactly one of epsilon, mu and rho")
        [(name, amount)] = given.items()
        if type(amount) in _WRITTEN and type(delta) in _WRITTEN:
            return _known_cost(self, name, amount, delta)
        return self._cost(name, amount, delta)

    def _cost(self, name: str, amount: Amount, delta: Amount) -> Cost:
        exact = exact_amount(name, amount, _range(name))
        if exact ** MEASURES[name].power < UNIT:
            raise InvalidParameter(name, amount, _range(name))
        return Cost(self._units(name, amount), delta_units_of_cost(delta))

    def _units(self, name: str, amount: Amount) -> int:
        own = self.accounting.cost_units(name, amount)
        if own is not None:
            return own
        if name == "epsilon" and self.noise_delta_units:
            units = epsilon_mu_conversion.largest_mu2(_limit("epsilon", amount), self.noise_delta_units)
            if units == 0:
                raise InvalidParameter(
                    "epsilon", amount, "is too small at this delta: its cost rounds to zero", "give more"
                )
            return units
        remedy = f"write {self.accounting.parameter}=..., or price() for a curve"
        raise InvalidParameter(name, amount, f"does not convert to the currency of {self!r}", remedy)

    def level(self, cost: Cost) -> float:
        """The largest μ, ε or ρ that the cost pays for, rounded down: for choosing noise.

        >>> Budget.gaussian(mu=1).level(Cost(25 * 10**28))
        0.5
        """
        return float_down(self.level_down(cost))

    def level_down(self, cost: Cost) -> Fraction:
        """The level as an exact fraction; a μ without an exact root is rounded down."""
        return self.accounting.level_down(cost.units)

    def level_up(self, cost: Cost) -> Fraction:
        """The smallest μ, ε or ρ that a release of this cost is sure to keep, exactly; a root is rounded up."""
        return self.accounting.level_up(cost.units)

    def curve(self, cost: Cost) -> Curve:
        """The promise of releases of this cost, rounded up: μ-GDP, ε-DP or ρ-zCDP, up to its δ."""
        return _promised(self, cost)

    # -- records -------------------------------------------------------------------------------------------------------

    def within(self, cost: Cost, *, epsilon: float, delta: float) -> bool:
        """Whether everything released up to this cost is (ε, δ)-DP for these two numbers. True is always right.

        >>> budget = Budget(epsilon=1, delta=1e-6)
        >>> budget.within(budget.limit, epsilon=1, delta=1e-6), budget.within(budget.limit, epsilon=0.9, delta=1e-6)
        (True, False)
        """
        # Floats as the decimals that they print as: 1e-6 is a millionth, and not the float next to it.
        most, rest = Fraction(str(epsilon)), Fraction(str(delta))
        if (self.noise_delta_units + cost.delta_units) * UNIT <= rest:
            pure = self.accounting.epsilon_units(cost.units)
            if pure is not None and pure * UNIT <= most:
                return True
            if self.noise_delta_units and epsilon_mu_conversion.epsilon_up(cost.units, self.noise_delta_units) <= most:
                return True
        return float(self.curve(cost).delta(epsilon=epsilon)) <= delta

    def to_dict(self) -> dict[str, object]:
        """A record of JSON values that `from_dict` reads, in this version and in later ones."""
        record: dict[str, object] = {
            "version": _VERSION,
            "currency": self.currency,
            "limit": str(self.limit.units),
            "delta_limit": str(self.limit.delta_units),
        }
        if self.epsilon_units is not None:
            record |= {"epsilon": str(self.epsilon_units), "noise_delta": str(self.noise_delta_units)}
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, object]) -> Budget:
        """The budget of a record made by `to_dict`, whose amounts are whole units of 10^-30 as text.

        UnreadableRecord for anything else, and for records of newer versions.

        >>> Budget.from_dict(Budget(epsilon=1, delta=1e-6).to_dict()) == Budget(epsilon=1, delta=1e-6)
        True
        """
        try:
            version, currency = record["version"], CURRENCIES.get(str(record["currency"]))
            if isinstance(version, int) and version > _VERSION:
                raise UnreadableRecord(f"this budget was written by a newer version ({version}); update deniable")
            limit = Cost(int(str(record["limit"])), int(str(record["delta_limit"])))
            if version != _VERSION or currency is None or not 0 < limit.units <= MOST_UNITS:
                raise ValueError
            if "epsilon" not in record:
                return cls._of(currency, limit)
            epsilon, noise = int(str(record["epsilon"])), int(str(record["noise_delta"]))
            made = cls.__new__(cls)  # without warnings: the budget was chosen before
            made._choose(epsilon * UNIT, (noise + limit.delta_units) * UNIT, limit.delta_units * UNIT)
            if made.limit != limit:
                raise UnreadableRecord(
                    "the limit of this budget does not follow from its epsilon and delta: the record was changed"
                )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, UnreadableRecord):
                raise
            raise UnreadableRecord("this is not a record of a budget") from None
        return made

    @property
    def epsilon(self) -> Decimal | None:
        """ε of the promise; None for a budget of μ or ρ."""
        pure = self.accounting.epsilon_units(self.limit.units)
        units = self.epsilon_units if pure is None else pure
        return None if units is None else amount_of(units)

    @property
    def delta(self) -> Decimal:
        """δ of the promise: for keys and for noise together."""
        return amount_of(self.noise_delta_units + self.limit.delta_units)

    def __repr__(self) -> str:
        if self.epsilon_units is not None:
            return f"Budget(epsilon={self.epsilon}, delta={self.delta}, keys_delta={amount_of(self.limit.delta_units)})"
        return (
            f"Budget.{self.accounting.constructor}({self.currency}={amount_of(self.limit.units)}, delta={self.delta})"
        )


def _limit(name: str, value: Amount) -> int:
    """A limit in whole units, rounded down; InvalidParameter if it is 0 or above a million."""
    units = math.floor(exact_amount(name, value, _range(name)) / UNIT)
    if not 0 < units <= _MOST * 10**30:
        raise InvalidParameter(name, value, _range(name))
    return units


def _range(name: str) -> str:
    """The allowed range of an ε, μ or ρ, in words; the same for budgets and for costs."""
    power = MEASURES[name].power  # 1, or 2: squares of μ add
    return f"must be at least 1e-{DECIMALS // power} and at most {round(_MOST ** (1 / power)):,}"


def _column(delta: Amount) -> int:
    """The δ of a budget in whole units, rounded down; InvalidParameter if it is 1 or more."""
    units = delta_units_of_limit(delta)
    if units >= 10**30:
        raise InvalidParameter("delta", delta, "must be below 1: otherwise nothing is promised")
    return units


@lru_cache(maxsize=256)
def _filter(currency: Currency, limit: Cost) -> Filter:
    return currency.filter(limit.units, limit.delta_units)


# --- caches: many questions have the same cost, and leave the same rest -----------------------------------------------


_WRITTEN: Final = (float, int, str)
"""Types of amounts that are cached. A Fraction can be equal to a float and mean another amount."""


@lru_cache(maxsize=1024, typed=True)
def _known_cost(budget: Budget, name: str, amount: Amount, delta: Amount) -> Cost:
    return budget._cost(name, amount, delta)


@lru_cache(maxsize=1024)
def _described(cost: Cost, budget: Budget) -> str:
    level, name = epsilon_mu_conversion.short_up(budget.level_up(cost)), budget.accounting.parameter
    text = f"{name} {level}"
    if budget.noise_delta_units and cost.units:
        epsilon = epsilon_mu_conversion.epsilon_up(cost.units, budget.noise_delta_units)
        text = f"epsilon {epsilon} at delta {_delta_text(budget.noise_delta_units)} ({text})"
    return text + (f", delta {epsilon_mu_conversion.short_up(cost.delta_units * UNIT)}" if cost.delta_units else "")


@lru_cache(maxsize=1024)
def _described_rest(cost: Cost, budget: Budget) -> str:
    level, name = epsilon_mu_conversion.short_down(budget.level_down(cost)), budget.accounting.parameter
    text = f"{name} {level}"
    if budget.noise_delta_units and cost.units:
        epsilon = epsilon_mu_conversion.epsilon_down(cost.units, budget.noise_delta_units)
        text = f"epsilon {epsilon} at delta {_delta_text(budget.noise_delta_units)} ({text})"
    return f"{text}, delta {_delta_left_text(cost.delta_units)}"


@lru_cache(maxsize=1024)
def _delta_text(units: int) -> str:
    return str(amount_of(units))


@lru_cache(maxsize=1024)
def _delta_left_text(units: int) -> str:
    return str(epsilon_mu_conversion.short_down(units * UNIT))


@lru_cache(maxsize=1024)
def _promised(budget: Budget, cost: Cost) -> Curve:
    from deniable import curves  # numpy is not needed to keep a ledger

    result = curves.identity()
    if cost.units:
        result = budget.accounting.curve(float_up(budget.level_up(cost)))
    if cost.delta_units:
        result = result * curves.approximate(epsilon=0.0, delta=float_up(cost.delta_units * UNIT))
    return result
