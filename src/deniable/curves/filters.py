"""Filters: budgets that hold even if the next cost is chosen after seeing the answers.

Multiplying curves is right if all curves were fixed in advance. If an analyst looks at an answer and then decides what
to ask *and how much to spend on it*, the number of factors and the factors themselves are random, and a budget needs a
theorem of its own. A filter is such a theorem with a running total: it admits a cost or refuses it, and its promise
holds for everything released up to any stopping time, whatever rule chose the costs.

======================  =====================  ======================================================================
filter                  what adds              theorem
======================  =====================  ======================================================================
`PureFilter`            ε                      Rogers, Roth, Ullman & Vadhan (2016)
`ZCDPFilter`            ρ                      Feldman & Zrnic (2021); Whitehouse, Ramdas, Rogers & Wu (2023)
`RenyiFilter`           D_α at one fixed α     Feldman & Zrnic (2021)
`GaussianFilter`        μ²                     Smith & Thakurta (2022)
======================  =====================  ======================================================================

**General curves have no filter here, on purpose.** Multiplying general trade-off curves as they come and stopping when
the product crosses a border curve is INVALID (arXiv 2602.06756). The border compares products of curves that were
fixed. An adaptive analyst picks, after each answer, the next curve that is worse at the ε that still matters. With
losses ℓ(y) of the first release and candidates δ₁, δ₂ for the second, the analyst reaches Σ_y P(y) max(δ₁(ε - ℓ(y)),
δ₂(ε - ℓ(y))), which exceeds both products as soon as δ₁ and δ₂ cross. The four currencies above avoid this, because
what is left to spend is one number: at equal cost no candidate is worse than another.

**The δ column.** Beside its currency every filter has a δ that adds. Each release may fail with probability δ_i (for
example, show a rare key) and otherwise costs what was charged: its laws are (1 - δ_i)P' + δ_i P''. Along any path the
good parts carry weight Π(1 - δ_i) >= 1 - Σδ_i >= 1 - δ, so the whole is (1 - δ) × (what the filter promises) + δ ×
anything. The promise holds *up to δ*, and as (ε, δ' + δ)-DP wherever the currency alone gives (ε, δ')-DP.

**Exact arithmetic.** Amounts are whole multiples of `UNIT` = 10^-30 (the smallest δ of this library is 1e-30; 38
decimal digits then reach 10^8). A cost is rounded UP to a unit, a limit DOWN; sums are sums of integers. A str, int,
Fraction or Decimal is taken exactly. A float is taken as the decimal it prints as, because that is what was typed: 0.1
is a tenth, and ten of them fill a budget of 1. Its binary value may be larger by a relative 2^-53; write `Fraction(x)`
to use that. The cost of a curve is not typed, so its parameters are taken as the binary numbers they are, and a
quotient of two of them (sensitivity/σ) as the exact quotient. Where the cost has a formula (ρ = μ²/2 of a Gaussian), it
is added without rounding: `gaussian(sigma=10)` fills a ρ of 0.005. Otherwise the cost is an upper bound.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Self, final

from deniable import arguments
from deniable.arguments import COUNT
from deniable.curves.decimal_arithmetic import Number, dec, digits, log_inverse, renyi_order, up
from deniable.curves.exact_amounts import (
    DECIMALS,
    UNIT,
    Amount,
    amount_of,
    delta_units_of_cost,
    delta_units_of_limit,
    exact_amount,
    exact_delta,
    units_of_cost,
    units_of_limit,
)
from deniable.curves.filter_measures import EPSILON, MEASURES, MU, RHO, Priced, PrivacyMeasure, RenyiMeasure
from deniable.errors import BudgetExceeded, InvalidParameter, OutsideTheorem
from deniable.numbers import down, root_down

__all__ = [
    "UNIT",
    "Amount",
    "Claim",
    "Filter",
    "GaussianFilter",
    "Priced",
    "PureFilter",
    "PureOdometer",
    "RenyiFilter",
    "RenyiOdometer",
    "ZCDPFilter",
    "amount_of",
    "exact_amount",
    "units_of_cost",
    "units_of_limit",
]

# --- what is promised -------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Claim:
    """What holds, for all neighbours, about everything released up to any stopping time.

    `measure` ("epsilon", "rho", "renyi" at `order`, or "mu") is at most `value`, up to `delta` (see the module). Both
    numbers are exact, except a μ without an exact square root, which is rounded up.
    """

    measure: str
    value: Decimal
    delta: Decimal
    order: float | None = None

    def epsilon(self, *, delta: Amount) -> float:
        """The promise as (ε, δ)-DP: ε at this δ, rounded up.

        The filter's own δ column is subtracted from δ first; the rest converts the currency. Raises OutsideTheorem if
        too little δ is left. Sources: `gdp_to_epsilon`, `zcdp_to_epsilon_optimised` and `renyi_to_epsilon` of the
        textbook; the proof in the module's docstring for the δ column.

        >>> GaussianFilter(mu=1, delta=0).guarantee.epsilon(delta=1e-6)
        4.886554...
        """
        left = exact_delta(delta) - Fraction(self.delta)
        measure = MEASURES[self.measure] if self.order is None else RenyiMeasure(self.order)
        if left < 0 or (left == 0 and not measure.is_pure):
            needs = f"delta {'>=' if measure.is_pure else '>'} {self.delta}"
            raise OutsideTheorem(f"a budget in {self.measure}", needs, f"delta={delta}", "ask at a larger delta")
        return measure.epsilon(Fraction(self.value), left)

    def __str__(self) -> str:
        at = "" if self.order is None else f" at order {self.order:g}"
        return f"{self.measure} <= {self.value}{at}, up to delta = {self.delta}, at any stopping time"


def _order_down(order: Number) -> float:
    """The order, rounded down: a cost at this order is at most the given cost. Refuses one that floats store as 1."""
    rounded = down(renyi_order(order))
    if rounded <= 1:
        raise InvalidParameter("order", order, "must be above 1 by at least 2.3e-16", "floats store it as 1")
    return rounded


# --- filters ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Filter(ABC):
    """A running total against a limit, both in whole units. Immutable: `charge` returns the next filter.

    Each subclass says what adds up, and why the sum is a guarantee.
    """

    limit_units: int
    delta_limit_units: int
    spent_units: int
    delta_spent_units: int

    adds: ClassVar[str]
    """The currency: "epsilon", "rho", "renyi" or "mu²"."""

    parameter: ClassVar[str]
    """The argument of `charge` that gives a cost as a number."""

    theorem: ClassVar[str]
    """Why the sum is a guarantee at any stopping time."""

    def _open(self, limit: int, delta: Amount) -> None:
        object.__setattr__(self, "limit_units", limit)
        object.__setattr__(self, "delta_limit_units", delta_units_of_limit(delta))
        object.__setattr__(self, "spent_units", 0)
        object.__setattr__(self, "delta_spent_units", 0)

    @property
    def spent(self) -> Decimal:
        """The exact amount spent so far, in the currency `adds`."""
        return amount_of(self.spent_units)

    @property
    def remaining(self) -> Decimal:
        """The exact amount left, in the currency `adds`."""
        return amount_of(self.limit_units - self.spent_units)

    @property
    def spent_delta(self) -> Decimal:
        """The exact amount spent so far of the δ column."""
        return amount_of(self.delta_spent_units)

    @property
    def remaining_delta(self) -> Decimal:
        """The exact amount left of the δ column."""
        return amount_of(self.delta_limit_units - self.delta_spent_units)

    @property
    @abstractmethod
    def measure(self) -> PrivacyMeasure:
        """The quantity that this filter adds up: how the cost of a curve is computed, and what a sum of costs
        guarantees.
        """

    @property
    @abstractmethod
    def guarantee(self) -> Claim:
        """What holds at any stopping time, however the costs were chosen.

        The promise is the limit, not the amount spent: the amount spent depends on the answers, and only the limit was
        fixed in advance. For a running number see the odometers.
        """

    def price(self, curve: Priced, /, *, delta: Amount = 0) -> tuple[int, int]:
        """The cost of one release of this curve, in units of the currency and of δ, rounded up; whether it fits or not.

        Raises InvalidParameter if the cost is infinite.
        """
        units, delta_units = self._price(curve, None, delta)
        if units < 0:
            remedy = "use another kind of budget; give a small probability of failure as delta=, not in the curve"
            raise InvalidParameter("curve", curve, f"must have a finite {self.adds}", remedy)
        return units, delta_units

    def charge_units(self, units: int, delta_units: int = 0) -> Self:
        """The filter after a cost given in units (see `price`). Raises BudgetExceeded if it does not fit."""
        for name, count in (("units", units), ("delta_units", delta_units)):
            arguments.python_int(name, count, COUNT)
        return self._after(units, delta_units)

    def admits_units(self, units: int, delta_units: int = 0) -> bool:
        """Whether `charge_units` would accept this cost, given in units (see `price`)."""
        return not self._lacks(units, delta_units)

    def _price(self, curve: Priced | None, amount: Amount | None, delta: Amount, /) -> tuple[int, int]:
        """The cost, in units, of the curve or of the amount, whichever is given; -1 if it is infinite."""
        exact = None if amount is None else exact_amount(self.parameter, amount)
        return self.measure.cost(curve, exact, self.parameter), delta_units_of_cost(delta)

    def _lacks(self, units: int, delta: int) -> list[str]:
        """What is too expensive, in words; empty if the cost fits."""
        lacks = []
        if units < 0 or self.spent_units + units > self.limit_units:
            lacks.append(f"{self.adds} to at most {self.remaining}")
        if self.delta_spent_units + delta > self.delta_limit_units:
            lacks.append(f"delta to at most {self.remaining_delta}")
        return lacks

    def _after(self, units: int, delta: int) -> Self:
        """The next filter, or BudgetExceeded. This one does not change."""
        lacks = self._lacks(units, delta)
        if not lacks:
            charged = copy.copy(self)
            object.__setattr__(charged, "spent_units", self.spent_units + units)
            object.__setattr__(charged, "delta_spent_units", self.delta_spent_units + delta)
            return charged
        left = f"{self.adds}={self.remaining}, delta={self.remaining_delta}"
        if units < 0:
            remedy = f"nothing was spent; the {self.adds} of this release is infinite, so use another kind of budget"
            raise BudgetExceeded(f"an infinite {self.adds}", left, remedy)
        asked = f"{self.adds}={amount_of(units)}" + (f", delta={amount_of(delta)}" if delta else "")
        raise BudgetExceeded(asked, left, "nothing was spent; lower " + " and ".join(lacks))

    def __repr__(self) -> str:
        name, limit, delta_limit = type(self).__name__, amount_of(self.limit_units), amount_of(self.delta_limit_units)
        return f"{name}({self.adds} {self.spent} of {limit}, delta {self.spent_delta} of {delta_limit})"


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class PureFilter(Filter):
    """A budget of ε, spent by releases that are ε_i-DP (or (ε_i, δ_i)-DP), each chosen after the answers before it.

    Promise: for all neighbours everything released is (ε, δ)-DP while Σε_i <= ε and Σδ_i <= δ. Every path of answers
    has loss at most Σε_i, so this holds for any rule that picks the costs. Source: `theorem`.

    >>> budget = PureFilter(epsilon=1).charge(epsilon=0.4).charge(epsilon=0.4)
    >>> budget.spent, budget.remaining
    (Decimal('0.8'), Decimal('0.2'))
    >>> budget.charge(epsilon=0.4)
    Traceback (most recent call last):
    deniable.errors.BudgetExceeded: asked epsilon=0.4, left epsilon=0.2, delta=0; nothing was spent; lower epsilon to...
    >>> print(budget.guarantee)
    epsilon <= 1, up to delta = 0, at any stopping time
    """

    adds: ClassVar[str] = "epsilon"
    parameter: ClassVar[str] = "epsilon"
    theorem: ClassVar[str] = (
        "Rogers, Roth, Ullman & Vadhan, Privacy Odometers and Filters: Pay-as-you-Go Composition (2016): "
        "basic composition, Σε and Σδ, is a valid filter"
    )

    def __init__(self, *, epsilon: Amount, delta: Amount = 0) -> None:
        self._open(units_of_limit("epsilon", epsilon), delta)

    def admits(self, curve: Priced | None = None, /, *, epsilon: Amount | None = None, delta: Amount = 0) -> bool:
        """Whether `charge` would accept this cost."""
        return not self._lacks(*self._price(curve, epsilon, delta))

    def charge(self, curve: Priced | None = None, /, *, epsilon: Amount | None = None, delta: Amount = 0) -> Self:
        """The filter after a release with this ε, or with this curve's ε(δ = 0). Raises BudgetExceeded if it does not
        fit.
        """
        return self._after(*self._price(curve, epsilon, delta))

    @property
    def measure(self) -> PrivacyMeasure:
        return EPSILON

    @property
    def guarantee(self) -> Claim:
        """(ε, δ)-DP at any stopping time."""
        return Claim("epsilon", amount_of(self.limit_units), amount_of(self.delta_limit_units))


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class ZCDPFilter(Filter):
    """A budget of ρ, spent by ρ_i-zCDP releases (up to δ_i), each chosen after the answers before it.

    Promise: for all neighbours everything released is δ-approximately ρ-zCDP while Σρ_i <= ρ and Σδ_i <= δ. For each
    order α, exp((α-1)(L_t - αΣρ_i)) is a supermartingale, so its mean at any stopping time is at most 1.
    Source: `theorem`.

    >>> budget = ZCDPFilter(rho=0.5, delta=0).charge(rho="0.125")
    >>> budget.remaining, budget.guarantee.epsilon(delta=1e-6)
    (Decimal('0.375'), 5.221534...)
    """

    adds: ClassVar[str] = "rho"
    parameter: ClassVar[str] = "rho"
    theorem: ClassVar[str] = (
        "Feldman & Zrnic, Individual Privacy Accounting via a Rényi Filter (2021, arXiv 2008.11193), at every order; "
        "Whitehouse, Ramdas, Rogers & Wu, Fully-Adaptive Composition in Differential Privacy (2023), with Σδ"
    )

    def __init__(self, *, rho: Amount, delta: Amount) -> None:
        self._open(units_of_limit("rho", rho), delta)

    def admits(self, curve: Priced | None = None, /, *, rho: Amount | None = None, delta: Amount = 0) -> bool:
        """Whether `charge` would accept this cost."""
        return not self._lacks(*self._price(curve, rho, delta))

    def charge(self, curve: Priced | None = None, /, *, rho: Amount | None = None, delta: Amount = 0) -> Self:
        """The filter after a release with this ρ, or with this curve's zcdp(). Raises BudgetExceeded if it does not
        fit.
        """
        return self._after(*self._price(curve, rho, delta))

    @property
    def measure(self) -> PrivacyMeasure:
        return RHO

    @property
    def guarantee(self) -> Claim:
        """δ-approximate ρ-zCDP at any stopping time."""
        return Claim("rho", amount_of(self.limit_units), amount_of(self.delta_limit_units))


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class RenyiFilter(Filter):
    """A budget of Rényi divergence at ONE order, fixed in advance; each release is charged its divergence at that
    order.

    Promise: for all neighbours everything released has D_α <= epsilon, up to δ, while the sums stay within the limits.
    The proof of `ZCDPFilter` applies at this α; α must not be chosen afterwards. Source: `theorem`.

    >>> RenyiFilter(order=8, epsilon=2, delta=0).charge(epsilon=0.5).remaining
    Decimal('1.5')
    """

    order: float

    adds: ClassVar[str] = "renyi"
    parameter: ClassVar[str] = "epsilon"
    theorem: ClassVar[str] = (
        "Feldman & Zrnic, Individual Privacy Accounting via a Rényi Filter (2021, arXiv 2008.11193): "
        "at a fixed order the sum of adaptively chosen Rényi parameters is a valid filter"
    )

    def __init__(self, *, order: Number, epsilon: Amount, delta: Amount) -> None:
        object.__setattr__(self, "order", _order_down(order))
        self._open(units_of_limit("epsilon", epsilon), delta)

    def admits(self, curve: Priced | None = None, /, *, epsilon: Amount | None = None, delta: Amount = 0) -> bool:
        """Whether `charge` would accept this cost."""
        return not self._lacks(*self._price(curve, epsilon, delta))

    def charge(self, curve: Priced | None = None, /, *, epsilon: Amount | None = None, delta: Amount = 0) -> Self:
        """The filter after a release with this divergence at `order`, or with the divergence of this curve. Raises
        BudgetExceeded if it does not fit.
        """
        return self._after(*self._price(curve, epsilon, delta))

    @property
    def measure(self) -> PrivacyMeasure:
        return RenyiMeasure(self.order)

    @property
    def guarantee(self) -> Claim:
        """(α, epsilon)-RDP, up to δ, at any stopping time."""
        return Claim("renyi", amount_of(self.limit_units), amount_of(self.delta_limit_units), self.order)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class GaussianFilter(Filter):
    """A budget of μ, of which μ² is spent by μ_i-GDP releases, each chosen after the answers before it.

    Promise: for all neighbours everything released is μ-GDP, up to δ, while Σμ_i² <= μ² and Σδ_i <= δ. A μ_i-GDP
    release is post-processing of watching a Brownian motion, with drift 0 or 1, for a time μ_i²; an analyst who picks
    the times adaptively and stops by μ² sees at most the whole path up to μ². Source: `theorem`.

    >>> budget = GaussianFilter(mu=1, delta=0).charge(mu=0.6)
    >>> budget.spent, budget.remaining_mu, budget.charge(mu=0.8).remaining
    (Decimal('0.36'), Decimal('0.8'), Decimal('0'))
    """

    adds: ClassVar[str] = "mu²"
    parameter: ClassVar[str] = "mu"
    theorem: ClassVar[str] = (
        "Smith & Thakurta, Fully Adaptive Composition for Gaussian Differential Privacy (2022, arXiv 2210.17520): "
        "the sum of adaptively chosen μ² is a valid filter"
    )

    def __init__(self, *, mu: Amount, delta: Amount) -> None:
        self._open(math.floor(exact_amount("mu", mu) ** 2 / UNIT), delta)

    def admits(self, curve: Priced | None = None, /, *, mu: Amount | None = None, delta: Amount = 0) -> bool:
        """Whether `charge` would accept this cost."""
        return not self._lacks(*self._price(curve, mu, delta))

    def charge(self, curve: Priced | None = None, /, *, mu: Amount | None = None, delta: Amount = 0) -> Self:
        """The filter after a release with this μ, or with this curve's gdp(). Raises BudgetExceeded if
        it does not fit.
        """
        return self._after(*self._price(curve, mu, delta))

    @property
    def measure(self) -> PrivacyMeasure:
        return MU

    @property
    def remaining_mu(self) -> Decimal:
        """The largest μ that one more release may have: √remaining, rounded down to a whole `UNIT`."""
        left = (self.limit_units - self.spent_units) * UNIT
        return amount_of(int(root_down(left, places=DECIMALS) / UNIT))

    @property
    def guarantee(self) -> Claim:
        """μ-GDP, up to δ, at any stopping time; μ = √limit, rounded up to a whole `UNIT`."""
        square = self.limit_units * UNIT
        root = root_down(square, places=DECIMALS)
        units = int(root / UNIT) + (root**2 < square)
        return Claim("mu", amount_of(units), amount_of(self.delta_limit_units))


# --- odometers --------------------------------------------------------------------------------------------------------


def _finite(units: int) -> int:
    if units < 0:
        raise InvalidParameter("curve", math.inf, "must have a finite cost: an odometer cannot add an infinite one")
    return units


@final
@dataclass(frozen=True, slots=True)
class PureOdometer:
    """A running ε without a limit: after every release, everything so far has loss at most `epsilon`, with certainty.

    Promise: for all neighbours and at every time t at once, P(L_t > Σ_{i<=t} ε_i) = 0, because each ε_i-DP release adds
    at most ε_i to the loss on every path. Pure costs only: failures δ_i need a limit, and so a filter. Source: Rogers,
    Roth, Ullman & Vadhan (2016).

    >>> PureOdometer().charge(epsilon=0.25).charge(epsilon=0.5).epsilon
    0.75
    """

    spent_units: int = 0

    def charge(self, curve: Priced | None = None, /, *, epsilon: Amount | None = None) -> PureOdometer:
        """The odometer after a release of this ε, or of this curve's ε(δ = 0). Raises InvalidParameter if the cost is
        infinite.
        """
        amount = None if epsilon is None else exact_amount("epsilon", epsilon)
        return PureOdometer(self.spent_units + _finite(EPSILON.cost(curve, amount, "epsilon")))

    @property
    def spent(self) -> Decimal:
        """Σε_i so far, exactly."""
        return amount_of(self.spent_units)

    @property
    def epsilon(self) -> float:
        """The bound on the loss so far, on every path, rounded up."""
        return up(self.spent_units * UNIT)


@final
@dataclass(frozen=True, slots=True, init=False)
class RenyiOdometer:
    """A running ε without a limit, from Rényi costs at ONE order, true at all times at once except with probability δ.

    Promise: for all neighbours, P(there is a t with L_t >= ε_t) <= δ, where ε_t = Σ_{i<=t} r_i + log(1/δ)/(α - 1), L_t
    is the privacy loss of everything released up to t, and r_i >= D_α of the i-th release given the answers before it.

    Proof. Let M_t = exp((α-1)(L_t - Σ_{i<=t} r_i)), M_0 = 1. The cost r_t is chosen from the past, and given the past
    the t-th loss ℓ has E e^((α-1)ℓ) = e^((α-1)D_α) <= e^((α-1)r_t). Hence E[M_t | past] <= M_{t-1}: M is a non-negative
    supermartingale, and Ville's inequality gives P(sup_t M_t >= 1/δ) <= δ. Now L_t >= ε_t is M_t >= 1/δ. ∎

    A filter fixes the limit first and promises DP of the whole stopped transcript. An odometer has no limit: it bounds
    the loss so far, at any time, also at a time chosen after looking at the answers; ε_t is then random like the
    answers. Order and δ are fixed before the first release. Source: the supermartingale of Feldman & Zrnic (2021);
    Whitehouse, Ramdas, Rogers & Wu (2023) mix such bounds over orders.

    >>> odometer = RenyiOdometer(order=10, delta=1e-6).charge(rho=0.01).charge(epsilon=0.2)
    >>> odometer.spent, odometer.epsilon
    (Decimal('0.3'), 1.8350567...)
    """

    order: float
    delta_units: int
    spent_units: int

    def __init__(self, *, order: Number, delta: Amount) -> None:
        chance = delta_units_of_limit(delta)
        if chance == 0:
            raise OutsideTheorem("the Rényi odometer", "delta >= 1e-30", f"delta={delta}", "use PureOdometer")
        object.__setattr__(self, "order", _order_down(order))
        object.__setattr__(self, "delta_units", chance)
        object.__setattr__(self, "spent_units", 0)

    def charge(
        self, curve: Priced | None = None, /, *, epsilon: Amount | None = None, rho: Amount | None = None
    ) -> RenyiOdometer:
        """The odometer after a release with this divergence at `order`, or of this curve, or of this ρ (D_α <= αρ)."""
        if rho is not None and epsilon is not None:
            raise InvalidParameter("rho", rho, "give exactly one cost", "write charge(epsilon=...) or charge(rho=...)")
        amount = None if epsilon is None else exact_amount("epsilon", epsilon)
        if rho is not None:
            amount = Fraction(self.order) * exact_amount("rho", rho)
        charged = copy.copy(self)
        units = _finite(RenyiMeasure(self.order).cost(curve, amount, "epsilon"))
        object.__setattr__(charged, "spent_units", self.spent_units + units)
        return charged

    @property
    def delta(self) -> Decimal:
        """The probability that some ε_t is too small, exactly."""
        return amount_of(self.delta_units)

    @property
    def spent(self) -> Decimal:
        """Σr_i so far, exactly."""
        return amount_of(self.spent_units)

    @property
    def epsilon(self) -> float:
        """ε_t, the bound on the loss so far, rounded up."""
        with digits():
            margin = log_inverse(self.delta_units * UNIT) / dec(Fraction(self.order) - 1)
            return up(dec(self.spent_units * UNIT) + margin)
