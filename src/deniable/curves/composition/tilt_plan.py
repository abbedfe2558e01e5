"""Sketches of laws, and what they plan: the tilt for a wanted ε or δ, and Chernoff bounds without any FFT.

A sketch is a coarse grid law that dominates a law. Its exponential moments give K(θ) = log E e^(θL), whose slope is the
mean of the tilted law. `LatticePlan` adds up the cumulants of all factors of a product.

The exponential moments of a rarely sampled Gaussian explode because of losses that practically never happen: one loss
of 1 that has probability 1e-40 decides E e^(100 L). So a sketch cuts off the largest losses, up to a given probability;
a plan for δ chooses it so that all uses together lose a negligible part of δ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from deniable.curves.composition import lattice
from deniable.curves.composition.lattice import GridLaw
from deniable.curves.laws.closed_form import LaplaceLaw
from deniable.curves.laws.conditioned_laws import BelowCut
from deniable.curves.laws.law import Law
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats

SKETCH_POINTS = 800
SKETCH_TAIL = 1e-70
"""Size of a sketch, and the P-mass that it cuts off an unbounded law."""

MANY_LAWS = 64
QUICK_POINTS = 120
"""A plan for at least MANY_LAWS different laws uses sketches of QUICK_POINTS points: enough to choose a tilt."""


class Factor(NamedTuple):
    """A law and how many times it runs."""

    law: Law
    uses: int


class Cumulant(NamedTuple):
    """K(θ) = log E e^(θL), K'(θ) and K''(θ), summed over all factors. K' is the mean and K'' the variance of the tilted
    law.
    """

    value: float
    slope: float
    curvature: float


@lru_cache(maxsize=4096)
def sketch(law: Law, tail: float = SKETCH_TAIL, points: int = SKETCH_POINTS) -> GridLaw:
    """A coarse dominating grid law: for planning, for Chernoff bounds and for Rényi divergences. It cuts P-mass of at
    most `tail` off an unbounded law.
    """
    return lattice.above(law, lattice.spread_points(law, tail, points))


FLOOR = 1e-305
"""Added to every mass before tilting: a mass that underflows to 0 would make the cumulant too small."""


def tilted(grid: GridLaw, theta: float) -> tuple[Floats, float]:
    """Masses times e^(θ loss), normalised to sum to 1, and the logarithm of their sum before normalisation."""
    exponent = theta * grid.losses
    top = float(max(exponent[0], exponent[-1]))
    weights = (grid.masses + FLOOR) * np.exp(exponent - top)
    total = float(np.sum(weights))
    weights /= total
    return weights, top + math.log(total)


def cumulant(grid: GridLaw, theta: float) -> Cumulant:
    """Cumulant of the finite part of a grid law."""
    weights, log_total = tilted(grid, theta)
    # Sums of products, not np.dot: a threaded BLAS costs more than it saves at this size.
    mean = float(np.sum(weights * grid.losses))
    return Cumulant(log_total, mean, float(np.sum(weights * (grid.losses - mean) ** 2)))


@lru_cache(maxsize=16384)
def _sketch_cumulant(law: Law, theta: float, tail: float) -> Cumulant:
    return cumulant(sketch(law, tail), theta)


def added(parts: Sequence[tuple[Cumulant, int]]) -> Cumulant:
    """Cumulants of independent laws add."""
    return Cumulant(
        math.fsum(count * one.value for one, count in parts),
        math.fsum(count * one.slope for one, count in parts),
        math.fsum(count * one.curvature for one, count in parts),
    )


def sketched(factors: Sequence[Factor], theta: float, tail: float = SKETCH_TAIL) -> Cumulant:
    """The approximate cumulant of a product: the sum of the cumulants of its dominating sketches."""
    return added([(_sketch_cumulant(f.law, theta, cut_of(f.law, tail)), f.uses) for f in factors])


def cut_of(law: Law, tail: float) -> float:
    """The P-mass that a sketch cuts off: `tail` for an unbounded law. A bounded law has one sketch for all tails."""
    return SKETCH_TAIL if math.isfinite(law.highest) else max(tail, SKETCH_TAIL)


def log_best_gap(theta: float) -> float:
    """log max_l e^(-θl)(1 - e^(-l)) = θ log θ - (1+θ) log(1+θ): the constant of the sharp Chernoff bound on δ."""
    # The two terms nearly cancel for a large θ: this form adds numbers of one sign.
    return -(theta * math.log1p(1 / theta) if theta > 1e-300 else 0.0) - math.log1p(theta)


class Target(NamedTuple):
    """Where a panel is to be sharp: the tilt θ, the approximate ε, log δ there, and a proved upper
    bound on ε (or inf).
    """

    theta: float
    epsilon: float
    log_delta: float
    bound: float = math.inf


TILTS = np.exp(np.linspace(-10.0, 14.0, 120)[0] + 24.0 / 119.0 * np.arange(165.0))
BEST_GAPS = np.array([log_best_gap(float(t)) for t in TILTS])


class PlanTable(NamedTuple):
    """An upper bound on a cumulant at all TILTS, the slope there, the mean loss, the highest loss, and the P-mass that
    the sketches of unbounded laws cut off. A product adds these up over its factors.
    """

    values: Floats
    slopes: Floats
    mean: float
    highest: float
    lost: float

    def plus(self, other: PlanTable, uses: int = 1) -> PlanTable:
        """The table of this product and `uses` uses of another one."""
        return PlanTable(
            self.values + uses * other.values,
            self.slopes + uses * other.slopes,
            self.mean + uses * other.mean,
            self.highest + uses * other.highest,
            self.lost + uses * other.lost,
        )


NO_TABLE = PlanTable(np.zeros_like(TILTS), np.zeros_like(TILTS), 0.0, 0.0, 0.0)


@lru_cache(maxsize=65536)
def plan_table(law: Law, tail: float = SKETCH_TAIL, points: int = SKETCH_POINTS) -> PlanTable:
    """The table of one use of a law."""
    grid = sketch(law, tail, points)
    values, slopes = [], []
    for tilts in np.array_split(TILTS, 2):
        exponent = tilts[:, None] * grid.losses[None, :]
        top = exponent[:, -1]
        weights = (grid.masses + FLOOR)[None, :] * np.exp(exponent - top[:, None])
        total = np.sum(weights, axis=1)
        # Rounding of the sum and of the exponents, upwards: it is multiplied by the number of uses. It covers that of
        # θε in `delta_bound` too.
        largest = float(np.max(np.abs(grid.losses)))
        values.append(top + np.log(total) + UNIT_ROUNDOFF * (64 + 8 * tilts * largest))
        slopes.append(np.sum(weights * grid.losses[None, :], axis=1) / total)
    mean, lost = float(np.sum(grid.masses * grid.losses)), max(grid.infinity - law.infinity, 0.0)
    return PlanTable(np.concatenate(values), np.concatenate(slopes), mean, law.highest, lost)


def laplace_table(shifts: Floats) -> PlanTable:
    """The table of the product of Laplace laws, from the closed form of their moments."""
    values, slopes = np.zeros_like(TILTS), np.zeros_like(TILTS)
    double = 2 * TILTS + 1
    for t in np.array_split(shifts[:, None], -(-len(shifts) // 512)):
        end = np.exp(-double * t)
        moment = ((TILTS + 1) + TILTS * end) / double
        bound = TILTS * t + np.log(moment) + UNIT_ROUNDOFF * (64 + 8 * TILTS * t)
        values += np.sum(bound, axis=0) * (1 + len(t) * UNIT_ROUNDOFF)
        slopes += np.sum(t + (end - 1 - 2 * t * TILTS * double * end) / (double * double * moment), axis=0)
    return PlanTable(values, slopes, float(np.sum(shifts + np.expm1(-shifts))), float(np.sum(shifts)), 0.0)


def _table_of(factors: Sequence[Factor], tail: float, points: int) -> PlanTable:
    """The table of a product. If there are many laws, all Laplace laws among them are added up together."""
    found, together = NO_TABLE, points < SKETCH_POINTS
    for law, uses in factors:
        if not (together and isinstance(law, LaplaceLaw)):
            found = found.plus(plan_table(law, cut_of(law, tail), points), uses)
    if together:
        by_uses: dict[int, list[float]] = {}
        for law, uses in factors:
            if isinstance(law, LaplaceLaw):
                by_uses.setdefault(uses, []).append(law.shift)
        for uses, shifts in by_uses.items():
            found = found.plus(laplace_table(np.array(shifts)), uses)
    return found


class LatticePlan:
    """Cumulants of a product at all TILTS: they choose the tilt, and give Chernoff (Rényi) bounds without any FFT.

    The plan of a long product may begin with the plan of a part of it, `before`; `factors` are then the other factors.
    """

    __slots__ = ("_table", "cumulants", "highest", "lost", "mean", "room", "slopes")
    _table: PlanTable
    room: float

    def __init__(self, factors: Sequence[Factor], tail: float = SKETCH_TAIL, before: LatticePlan | None = None) -> None:
        points = SKETCH_POINTS if before is None and len(factors) < MANY_LAWS else QUICK_POINTS
        table = _table_of(factors, tail, points)
        self._table = table if before is None else before._table.plus(table)
        self.cumulants, self.slopes, self.mean, self.highest, lost = self._table
        # P-mass that the sketches of unbounded laws cut off.
        self.lost = lost * (1 + 1e-12)
        # A bounded law is not cut: a rare atom at its end can make a strong tilt explode.
        unbounded = all(not math.isfinite(f.law.highest) or isinstance(f.law, BelowCut) for f in factors)
        unbounded = unbounded and (before is None or before.room == 1.0)
        self.room = 1.0 if unbounded else 3.0

    def at_delta(self, delta: float) -> Target:
        """The tilt of the sharp Chernoff bound for `delta`, and the ε of that bound: a valid upper bound by itself."""
        log_delta = math.log(delta)
        bounds = (self.cumulants - log_delta + BEST_GAPS) / TILTS
        epsilon = max(float(np.min(bounds)) * (1 + 1e-13), 0.0)
        # The bound is proved only for δ less the mass that the sketches cut off.
        left = delta - self.lost
        proved = float(np.min((self.cumulants - math.log(left) + BEST_GAPS) / TILTS)) if left > 0 else math.inf
        return Target(self._gentle(epsilon), epsilon, log_delta, max(proved * (1 + 1e-13), 0.0))

    def delta_bound(self, epsilon: Floats) -> Floats:
        """The sharp Chernoff bound on δ(ε), without the mass at infinity."""
        logs = self.cumulants[None, :] - TILTS[None, :] * epsilon[:, None] + BEST_GAPS[None, :]
        least = np.min(np.where(np.isnan(logs), np.inf, logs), axis=1)
        return np.asarray(np.exp(np.minimum(least, 0.0)) * (1 + 1e-12) + self.lost)

    def at_epsilon(self, epsilon: float) -> Target:
        """The tilt whose mean loss is `epsilon` (0 if the untilted mean is already beyond it)."""
        if self.mean >= epsilon:
            # Here δ(ε) is of order 1 and changes over a standard deviation of the loss: that resolution is enough.
            spread = math.sqrt(max(float(self.slopes[0]) - self.mean, 0.0) / float(TILTS[0]))
            return Target(0.0, max(epsilon, spread), 0.0)
        log_delta = float(np.min(self.cumulants - TILTS * epsilon + BEST_GAPS))
        return Target(self._gentle(epsilon), epsilon, min(log_delta, 0.0))

    def spread(self, theta: float) -> float:
        """An estimate of the standard deviation of the loss, tilted by θ: the slope of K' there."""
        at = min(max(int(np.searchsorted(TILTS, theta)), 1), len(TILTS) - 1)
        rise = float(self.slopes[at] - self.slopes[at - 1]) / float(TILTS[at] - TILTS[at - 1])
        return math.sqrt(max(rise, 1e-36))

    def _gentle(self, epsilon: float) -> float:
        """The smallest tilt whose scale e^(K - θε) is within a factor e^room of the least: sharp enough, never extreme.

        ε is capped at the largest loss: beyond it the scale falls without limit, and the tilt would grow without limit.
        """
        scales = self.cumulants - TILTS * min(epsilon, self.highest)
        return float(TILTS[int(np.argmax(scales <= np.min(scales) + self.room))])


def aligned_step(factors: Sequence[Factor], step: float, least: float = 0.0) -> float:
    """The step <= `step` whose lattice fits the heavy atoms of the factors best.

    It is at least 0.7 `step` if many cells lie between two atoms, may be smaller if few do, and is never below `least`.
    """
    found: dict[float, int] = {}
    for law, count in factors:
        atoms = law.atoms
        for above, below in pairwise(atoms):
            gap = float(f"{above - below:.11g}")
            if gap > max(step / 8, least):
                found[gap] = found.get(gap, 0) + count
    if not found:
        return step
    spacings = sorted(found.items(), key=lambda item: -item[1])
    gap = spacings[0][0]
    cells = max(math.ceil(gap / step), 1)
    if len(spacings) == 1:
        return gap / cells
    most = math.ceil(cells / 0.7) + 200
    most = max(min(most, math.floor(gap / least)), cells) if least > 0 else most
    candidates = gap / np.unique(np.round(np.linspace(cells, most, min(most - cells + 1, 20_000))))
    misfit = np.zeros_like(candidates)
    for other, count in spacings[1:]:
        ratio = other / candidates
        misfit += count * np.abs(ratio - np.round(ratio)) * candidates
    return float(candidates[int(np.argmin(misfit + 1e-12 / candidates))])
