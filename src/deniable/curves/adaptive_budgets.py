"""Two more budgets for adaptive spending: (ε, δ) from many Rényi orders at once, and a budget for each person.

**(ε, δ) from many orders.** For each order α let r_α be the sum of the Rényi divergences of the releases so far, and L
their privacy loss. M_α = exp((α - 1)(L - r_α)) is a non-negative supermartingale, however the releases were chosen
(Feldman & Zrnic 2021), and so is a mixture Σ w_α M_α with weights fixed in advance; its mean at any stopping time is at
most 1. A release is admitted if afterwards, with the new sums,

    (1 - e^(ε - L))₊ <= δ Σ_α w_α exp((α - 1)(L - r_α))   for every real L.                                     (1)

**Theorem.** Everything released up to any stopping time is (ε, δ)-DP, for every rule that picks the releases. *Proof.*
δ(ε) of the stopped transcript is E (1 - e^(ε - L))₊ under P. The last release was admitted, so (1) holds for the sums
at that time, and the mean is at most δ Σ w_α E M_α <= δ. Both directions of a pair are bounded by the divergences. ∎
The best order need not be known in advance: the weights, which sum to 1, are the price of considering all orders. A
sufficient condition is that one order α has r_α <= ε + log(δ w_α/c_α)/(α - 1), c_α = (1 - 1/α)^(α - 1)/α: this is the
union bound over orders, and (1) admits at least as much.

**A budget for each person** (Feldman & Zrnic 2021, "Individual privacy accounting via a Rényi filter", Theorem 4.5). A
release often costs one person less than it costs the worst case: Gaussian noise σ on a sum costs a person with the
value x only ρ = x²/2σ². Each person has an account of ρ. Before each release, its cost for each person, given the
answers so far, is charged; people whose account would be exceeded are left out of that release. Then the whole is
ρ-zCDP for one person added or removed, where ρ is the limit: for the pair that differs in this person, releases without
this person have the same law on both sides, and the costs of releases with this person add up to at most ρ on every
path, so the supermartingale of every order α applies. Who is left out depends on the data and must stay secret, and
nobody's cost may depend on other people's data except through answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from deniable.curves import curve_arguments
from deniable.curves.curve import Curve
from deniable.curves.outward_rounding import Floats, Side, all_above, all_below, quietly
from deniable.errors import NOTHING, BudgetExceeded, InvalidParameter
from deniable.numbers import above, down, rational, up

__all__ = ["ORDERS", "EpsilonDeltaFilter", "PersonalAccounts"]

ORDERS = (
    1.25,
    1.5,
    1.75,
    2.0,
    2.5,
    3.0,
    4.0,
    5.0,
    6.0,
    8.0,
    10.0,
    12.0,
    16.0,
    20.0,
    24.0,
    32.0,
    48.0,
    64.0,
    128.0,
    256.0,
)
"""The Rényi orders of a filter, unless the caller gives others."""

MARGIN = 1e-9
"""The logarithms of the two sides of (1) must differ by at least this, which is far above their rounding errors."""

CELLS = 20_000
UNIT = 10**12
"""Accounts of people are whole multiples of 1e-12. Up to LARGEST, these are exact in floating point."""

LARGEST = 1000.0


@final
@dataclass(frozen=True, slots=True, init=False)
class EpsilonDeltaFilter:
    """A budget of (ε, δ), spent by releases with any curve whose Rényi divergences are finite at some orders.

    Promise: for all neighbours everything released is (ε, δ)-DP, at any stopping time, whatever rule picked the
    releases. See the module for the proof. Immutable: `charge` returns the next filter.

    >>> from deniable import curves
    >>> budget = EpsilonDeltaFilter(epsilon=2, delta=1e-6)
    >>> for _ in range(20):
    ...     budget = budget.charge(curves.gaussian(sigma=20))
    >>> budget.admits(curves.gaussian(sigma=20)), budget.admits(curves.gaussian(sigma=1))
    (True, False)
    """

    epsilon: float
    delta: float
    orders: tuple[float, ...]
    spent: tuple[float, ...]
    """The sum of the divergences at each order, rounded up."""

    def __init__(self, *, epsilon: float, delta: float, orders: Sequence[float] = ORDERS) -> None:
        try:
            kept = tuple(float(curve_arguments.positive("orders", each)) for each in orders)
        except InvalidParameter:  # its words would show an entry
            kept = ()
        if not kept or min(kept) <= 1 or max(kept) > 1e6 or len(set(kept)) != len(kept):
            raise InvalidParameter("orders", NOTHING, "must be one or more different numbers above 1, up to 1e6")
        object.__setattr__(self, "epsilon", curve_arguments.not_negative("epsilon", epsilon, down))
        object.__setattr__(self, "delta", curve_arguments.inner_probability("delta", delta, down))
        object.__setattr__(self, "orders", kept)
        object.__setattr__(self, "spent", (0.0,) * len(kept))

    def _after(self, curve: Curve) -> EpsilonDeltaFilter:
        if not isinstance(curve, Curve):
            raise InvalidParameter("curve", curve, "must be a curve", "for example curves.gaussian(sigma=...)")
        costs = (curve.renyi_function(order) for order in self.orders)
        sums = tuple(above(old + cost) if cost > 0 else old for old, cost in zip(self.spent, costs, strict=True))
        charged = object.__new__(EpsilonDeltaFilter)
        for name, value in (("epsilon", self.epsilon), ("delta", self.delta), ("orders", self.orders), ("spent", sums)):
            object.__setattr__(charged, name, value)
        return charged

    def admits(self, curve: Curve) -> bool:
        """Whether `charge` would accept a release with this curve."""
        return self._after(curve)._holds()

    def charge(self, curve: Curve) -> EpsilonDeltaFilter:
        """The filter after a release with this curve. Raises BudgetExceeded if it does not fit; then this one is
        unchanged.
        """
        charged = self._after(curve)
        if not charged._holds():
            left = f"a part of epsilon={self.epsilon:g}, delta={self.delta:g}"
            raise BudgetExceeded("a release that costs more", left, "nothing was spent; use more noise")
        return charged

    @quietly
    def _holds(self) -> bool:
        """Whether (1) holds: cell by cell, the left side at the cell's upper end, the right side at its lower end."""
        finite = [(a, r) for a, r in zip(self.orders, self.spent, strict=True) if math.isfinite(r)]
        if not finite:
            return False
        order, spent = (np.array(each) for each in zip(*finite, strict=True))
        weight = -math.log(len(self.orders))
        # Beyond `far` one order alone is enough, because its term grows while the left side is below 1.
        alone = spent + (-math.log(self.delta) - weight + 2 * MARGIN) / (order - 1)
        far = max(float(np.min(alone)), self.epsilon) + 1e-9
        ends = self.epsilon + (far - self.epsilon) * np.linspace(0.0, 1.0, CELLS + 1) ** 2
        powers = (order[:, None] - 1) * (ends[None, :-1] - spent[:, None]) + weight
        top = np.max(powers, axis=0)
        right = math.log(self.delta) + top + np.log(np.sum(np.exp(powers - top), axis=0))
        left = np.log(-np.expm1(self.epsilon - ends[1:]))
        return bool(np.all(left + MARGIN <= right))

    def __repr__(self) -> str:
        return f"EpsilonDeltaFilter(epsilon={self.epsilon:g}, delta={self.delta:g}, {len(self.orders)} orders)"


def _units(amounts: Floats, side: Side) -> NDArray[np.int64]:
    """Amounts in whole units, rounded to this side. As in all filters, a float is the decimal number that it
    prints as, so decimals of at most 12 places are exact: ten times 0.1 is 1.
    """
    products = amounts * UNIT
    nearest = np.rint(products)
    # Both numbers are exact, so the quotient is the float that the decimal number prints as.
    is_exact = nearest / UNIT == amounts
    # The next float covers the rounding of the product.
    rounded = np.ceil(all_above(products)) if side == "upper" else np.floor(all_below(products))
    return np.where(is_exact, nearest, rounded).astype(np.int64)


@final
@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class PersonalAccounts:
    """An account of ρ for each person: every release charges each person what it costs that person.

    Promise: everything released is ρ-zCDP for one person added or removed, with ρ the limit, at any stopping time, if
    each release uses only the data of the people whom `charge` admitted to it. See the module for the proof. The
    admitted people and the accounts depend on the data, so both are secret.

    >>> import numpy as np
    >>> accounts = PersonalAccounts(people=3, rho=0.6)
    >>> values, sigma = np.array([0.1, 0.5, 1.0]), 1.0
    >>> taken = []
    >>> for _ in range(3):
    ...     admitted, accounts = accounts.charge(rho=values**2 / (2 * sigma**2))
    ...     taken.append(admitted.tolist())
    >>> taken
    [[True, True, True], [True, True, False], [True, True, False]]
    """

    limit: int
    spent: NDArray[np.int64]
    """What each person has spent, in units of 1e-12. Secret."""

    def __init__(self, *, people: int, rho: float) -> None:
        limit = curve_arguments.positive("rho", rho, down)
        if not 1 / UNIT <= limit <= LARGEST:
            raise InvalidParameter("rho", rho, f"must lie between {1 / UNIT:g} and {LARGEST:g}")
        count = curve_arguments.integer("people", people, 1)
        is_float = limit == rho  # any other number is taken exactly
        units = int(_units(np.array([limit]), "lower")[0]) if is_float else math.floor(rational(rho) * UNIT)
        object.__setattr__(self, "limit", units)
        object.__setattr__(self, "spent", np.zeros(count, dtype=np.int64))

    def charge(self, *, rho: Any) -> tuple[NDArray[np.bool_], PersonalAccounts]:
        """Returns a mask of the people who may take part in a release, and the accounts after it.

        `rho` has the cost of the release for each person, at least 0; inf is allowed. A person who may not take part is
        not charged. Raises InvalidParameter unless there is one cost for each person.
        """
        rule = f"must be {len(self.spent)} numbers of at least 0, one for each person"
        try:
            given = curve_arguments.reading("rho", rho)
        except InvalidParameter:  # it may name a cost, and costs are secret
            raise InvalidParameter("rho", NOTHING, rule) from None
        if given.high.shape != self.spent.shape or np.any(given.low < 0):
            raise InvalidParameter("rho", NOTHING, rule)
        affordable = given.high <= LARGEST
        units = _units(np.where(affordable, given.high, 0.0), "upper")
        exact = np.asarray(rho, dtype=object)
        for person in np.flatnonzero(affordable & (given.low < given.high)):
            units[person] = math.ceil(rational(exact[person]) * UNIT)
        admitted = affordable & (units <= self.limit - self.spent)
        after = object.__new__(PersonalAccounts)
        object.__setattr__(after, "limit", self.limit)
        object.__setattr__(after, "spent", self.spent + np.where(admitted, units, 0))
        return admitted, after

    @property
    def curve(self) -> Curve:
        """The promise for one person added or removed: ρ-zCDP, where ρ is the limit, rounded up."""
        from deniable.curves.atoms.renyi_bounds import zcdp

        return zcdp(rho=up(Fraction(self.limit, UNIT)))

    def __repr__(self) -> str:
        return f"PersonalAccounts(people={len(self.spent)}, rho={self.limit / UNIT:g})"
