"""Guarantees that are bounds on Rényi divergences: zCDP and Rényi DP at one order.

No single pair of distributions attains such a guarantee, so its upper and lower law differ. The upper law is the best
known conversion to (ε, δ) (Canonne, Kamath, Steinke 2020, Proposition 12); the lower law is a mechanism with this
guarantee (a Gaussian). A product adds the Rényi divergences themselves and converts once, and takes the smaller of both
bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, final

import numpy as np

from deniable.curves import curve_arguments
from deniable.curves.atoms.atom import Atom
from deniable.curves.composition.tilt_plan import log_best_gap
from deniable.curves.curve import Curve
from deniable.curves.decimal_arithmetic import up
from deniable.curves.laws import laws_from_bounds
from deniable.curves.laws.closed_form import GaussianLaw
from deniable.curves.laws.law import Law, LawPair, Sided
from deniable.curves.outward_rounding import Floats
from deniable.errors import NOTHING, InvalidParameter
from deniable.numbers import down


def _converted(divergence: Callable[[Floats], Floats], orders: Floats, reach: float) -> Law:
    """A law that dominates every pair whose Rényi divergences in both directions are at most the given ones."""
    s = orders - 1
    gap = np.array([log_best_gap(float(v)) for v in s])
    points = reach * np.linspace(0.0, 1.0, 1500) ** 2
    exponent = s[None, :] * (divergence(orders)[None, :] - points[:, None]) + gap[None, :]
    ahead = np.minimum(np.exp(np.minimum(np.min(exponent, axis=1), 0.0)) * (1 + 1e-12), 1.0)
    # The bound holds in both directions, so negative ε follow by reflection; δ(0) is also at most sqrt(1 - e^-KL)
    # (Bretagnolle, Huber).
    kl = float(divergence(orders[:1])[0])
    ahead = np.minimum(ahead, math.sqrt(-math.expm1(-min(kl, 700.0))) * (1 + 1e-12))
    ahead = np.minimum.accumulate(ahead)
    behind = -np.expm1(-points[1:]) + np.exp(-points[1:]) * ahead[1:]
    return laws_from_bounds.law_above(
        np.concatenate((-points[:0:-1], points)), np.minimum(np.concatenate((behind[::-1], ahead)), 1.0)
    )


@final
@dataclass(frozen=True, slots=True)
class ZeroConcentrated(Atom):
    """ρ-zCDP: Rényi divergence at most ρ × order for every order."""

    name: ClassVar[str] = "zcdp"
    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", curve_arguments.positive("rho", self.rho))

    @property
    def renyi_only(self) -> bool:
        return True

    def pair(self) -> LawPair:
        orders = 1 + np.logspace(-4, 7, 600)
        reach = self.rho + 2 * math.sqrt(self.rho * math.log(1e60))
        upper = _converted(lambda a: self.rho * a, orders, reach)
        side = Sided(upper, GaussianLaw(math.sqrt(2 * self.rho) * (1 - 1e-15)))
        return LawPair(side, side)

    def exact_rho(self) -> Fraction | None:
        return Fraction(self.rho)

    def gdp_bound(self) -> float | None:
        return math.inf

    def covers(self, curve: Curve) -> bool:
        return curve.zcdp() <= self.rho

    def repeated(self, count: int) -> Atom | None:
        return ZeroConcentrated(up(Fraction(self.rho) * count))

    def grouped(self, size: int) -> Curve | None:
        # Bun & Steinke 2016, Proposition 1.9: a group of k is k²ρ-zCDP.
        return Curve.of(ZeroConcentrated(up(Fraction(self.rho) * size * size)))


def zcdp(*, rho: float) -> Curve:
    """ρ-zero-concentrated DP, ρ > 0: Rényi divergence at most ρ × order for every order (Bun & Steinke 2016)."""
    return Curve.of(ZeroConcentrated(rho))


@final
@dataclass(frozen=True, slots=True)
class RenyiAtOrder(Atom):
    """Rényi divergence at most ε at one order, and so at every smaller one."""

    name: ClassVar[str] = "renyi"
    order: float
    epsilon: float

    def __post_init__(self) -> None:
        # Divergences increase with the order: at a larger one the bound may not hold.
        order = curve_arguments.finite("order", self.order, down)
        if order <= 1:
            remedy = "floats store this order as 1" if self.order > 1 else ""
            raise InvalidParameter("order", order if order == self.order else NOTHING, "must be larger than 1", remedy)
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "epsilon", curve_arguments.positive("epsilon", self.epsilon))

    @property
    def renyi_only(self) -> bool:
        return True

    def pair(self) -> LawPair:
        orders = 1 + (self.order - 1) * np.logspace(-4, 0, 300)
        reach = self.epsilon + math.log(1e60) / (self.order - 1)
        upper = _converted(lambda a: np.full_like(a, self.epsilon), orders, reach)
        side = Sided(upper, GaussianLaw(math.sqrt(2 * self.epsilon / self.order) * (1 - 1e-15)))
        return LawPair(side, side)

    def exact_renyi(self, order: float) -> Fraction | None:
        return Fraction(self.epsilon) if order <= self.order else None

    def renyi_bound(self, order: float) -> float | None:
        # Divergences increase with the order; above the given one there is no bound.
        return self.epsilon if order <= self.order else math.inf

    def zcdp_bound(self) -> float | None:
        return math.inf

    def repeated(self, count: int) -> Atom | None:
        return RenyiAtOrder(self.order, up(Fraction(self.epsilon) * count))

    def gdp_bound(self) -> float | None:
        return math.inf


def renyi(*, order: float, epsilon: float) -> Curve:
    """Rényi DP at one order > 1: the Rényi divergence of this order is at most ε in both directions (Mironov 2017)."""
    return Curve.of(RenyiAtOrder(order, epsilon))
