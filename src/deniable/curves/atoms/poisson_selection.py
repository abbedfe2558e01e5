"""The best of a Poisson number of runs: private tuning in which the number of runs may be 0.

As in `repeated_selection`, but K ~ Poisson(m) (Papernot & Steinke 2022), so K = 0 with probability e^-m: then nothing
is released.

**Theorem.** Let M have the profile δ(ε) (the worse direction). For all ε₀, ε >= 0 the selected output has

    δ_A(ε) <= m E δ(ε + ε₀ - m δ(ε₀) - W),   W exponential with mean e^ε₀ - 1,

and D_a(A‖A′) <= log(m e^((a - 1)(D_a + m δ(ε₀))) + e^-m)/(a - 1) for e^ε₀ = 1 + 1/(a - 1), a > 1.

*Proof.* In the notation of `repeated_selection`, the best output has the density m p e^(-ma), and m q e^(-mb) for D′;
that nothing runs has the same probability e^-m for both. Since b <= e^ε₀ a + δ(ε₀), with t = ma and
c = e^(ε - m δ(ε₀)),

    m (p e^(-ma) - e^ε q e^(-mb))₊ <= m q (r e^-t - c e^(-t e^ε₀))₊,   r = p/q.

The largest value over t >= 0 is φ(r) = r - c for r >= S = c e^ε₀, and (1 - e^-ε₀) r (r/S)^κ below, κ = 1/(e^ε₀ - 1).
φ is convex with φ(0) = φ′(0) = 0 and φ″(s) = κ s^(κ - 1)/S^κ up to S, 0 beyond. So its mean under q is
∫ φ″(s) δ(log s) ds = κ ∫₀^S (s/S)^κ δ(log s) ds/s, which is E δ(log S - W). For the divergence put the same bound into
∫ p^a q^(1 - a) m e^(-a m a′ + (a - 1) m b), where a′ is the probability called a above: with this ε₀ the terms in a′
cancel. ∎ The bound on the divergence is due to Papernot & Steinke (2022) for a Poisson number; here δ(ε₀) is certified.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from deniable.curves import curve_arguments
from deniable.curves.atoms.atom import Atom, show
from deniable.curves.atoms.composite_atoms import check_curve
from deniable.curves.atoms.repeated_selection import FAR, POINTS, ROUNDING, profile_above
from deniable.curves.curve import Curve
from deniable.curves.laws import laws_from_bounds
from deniable.curves.laws.law import LawPair, Sided
from deniable.curves.outward_rounding import Floats
from deniable.errors import InvalidParameter

LARGEST_MEAN = 1e6
TABLE = 6000
"""Points at which the profile of one run is computed; between them the larger value counts."""

CELLS = np.concatenate(([0.0], np.geomspace(1e-3, 60.0, 240)))
"""Ends of cells of an exponential variable of mean 1. In each cell the larger value counts; e^-60 lies beyond."""

STARTS = np.concatenate(([0.0], np.geomspace(1e-4, 4.0, 60)))
"""The ε₀ that are tried."""


@final
@dataclass(frozen=True, slots=True)
class PoissonSelectedAtom(Atom):
    """The best of K runs of a mechanism with this curve; K is Poisson with this mean."""

    name: ClassVar[str] = "best_of_poisson_repeats"
    curve: Curve
    mean: float

    def __post_init__(self) -> None:
        check_curve("curve", self.curve)
        mean = curve_arguments.positive("mean", self.mean)
        if mean > LARGEST_MEAN:
            raise InvalidParameter("mean", mean, f"must be at most {LARGEST_MEAN:,.0f}")
        object.__setattr__(self, "mean", mean)

    @property
    def renyi_only(self) -> bool:
        return True

    def pair(self) -> LawPair:
        far = next((e for d in FAR if math.isfinite(e := self.curve.epsilon(delta=d))), 50.0)
        distance = self.curve.delta(epsilon=0.0)
        last = far + min(self.mean * distance, 30.0) + 2
        points = last * np.linspace(0.0, 1.0, POINTS) ** 1.5
        both = np.concatenate((-points[:0:-1], points))
        low, high = self.curve.delta_bounds(epsilon=both)
        # Scores may be constant. Then the output is the output of one run, or nothing if K = 0.
        none, some = math.exp(-self.mean), -math.expm1(-self.mean)
        least = (some * low + none * np.maximum(-np.expm1(both), 0.0)) * (1 - ROUNDING)
        below = laws_from_bounds.law_below(both, least, high, 0.0)
        side = Sided(profile_above(points, self._above(points, last)), below)
        return LawPair(side, side)

    def _above(self, points: Floats, last: float) -> Floats:
        """The smallest of the theorem's bounds over all ε₀ that are tried, rounded up."""
        grid = np.linspace(-30.0, last + float(STARTS[-1]), TABLE)
        table = np.minimum(self.curve.delta(epsilon=grid), 1.0)
        chance = -np.diff(np.exp(-CELLS))
        best = np.ones_like(points)
        for start in STARTS.tolist():
            shift = start - self.mean * self.curve.delta(epsilon=start) * (1 + ROUNDING)
            at = points[:, None] + shift - math.expm1(start) * CELLS[None, 1:]
            # The profile decreases: the grid point to the left has a larger value.
            place = np.floor((at - grid[0]) / (grid[1] - grid[0]) - 1e-6).astype(int)
            delta = np.where(place < 0, 1.0, table[np.clip(place, 0, TABLE - 1)])
            found = self.mean * (delta @ chance + math.exp(-float(CELLS[-1])))
            best = np.minimum(best, found * (1 + ROUNDING))
        return best

    def renyi_bound(self, order: float) -> float | None:
        if order == math.inf:
            distance = self.curve.delta(epsilon=0.0)
            return (self.curve.renyi_function(order) + self.mean * distance) * (1 + ROUNDING)
        above = order if order > 1 else 2.0  # divergences increase with the order
        left = self.mean * self.curve.delta(epsilon=math.log1p(1 / (above - 1)) * (1 - ROUNDING))
        one = (above - 1) * (self.curve.renyi_function(above) + left) + math.log(self.mean)
        return float(np.logaddexp(one, -self.mean)) / (above - 1) * (1 + ROUNDING) + ROUNDING

    def expression(self) -> str:
        return f"best_of_poisson_repeats({self.curve.expression()}, mean={show(self.mean)})"


def best_of_poisson_repeats(curve: Curve, *, mean: float) -> Curve:
    """The best output of K runs of a mechanism, K secret and Poisson with this mean; nothing if K = 0.

    See the module for the theorem (Papernot & Steinke 2022).

    >>> from deniable import curves
    >>> one = curves.gaussian(sigma=2)
    >>> curves.best_of_poisson_repeats(one, mean=10).epsilon(delta=1e-6) < 2 * one.epsilon(delta=1e-6)
    True
    """
    if not check_curve("curve", curve).factors:
        return curve
    return Curve.of(PoissonSelectedAtom(curve, mean))
