"""Random allocation: each person takes part in exactly one of t steps, drawn uniformly ("balls in bins").

**Theorem** (for data that differ by one person added or removed). Let each of t steps, given the answers before it, be
dominated by a pair (R, S) of laws, R with the person and S without. If the person's step is uniform on 1, ..., t,
independent of everything else and never revealed, all t answers together are dominated by the pair

    (1/t) Σ_i S^(i-1) × R × S^(t-i)   against   S^t.

*Proof.* By Blackwell's theorem, for each step and each history y there is a random map K_y that turns R into the step's
law with the person and S into its law without. Draw x from one of the two laws above and apply the maps in turn, each
with the history made so far. From the first law this gives the run with the person, whose step is i with probability
1/t; from S^t it gives the run without. So the run is post-processing of x. ∎ (Feldman & Shenfeld 2025, "Privacy
amplification by random allocation", have the theorem; Chua et al. 2024, "Balls-and-bins sampling for DP-SGD", the pair
for Gaussian noise.)

The likelihood ratio of the pair is an average of t independent likelihood ratios, whose law `laws.likelihood_average`
bounds from both sides by the convex order. (The same numerical question is treated, with grids of losses, in arXiv
2602.17284.)

`(curve ** e).allocated(steps=t)` is for batches that are drawn once and visited e times, and
`curve.allocated(steps=t) ** e` for e epochs that draw their batches afresh.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from deniable.curves import curve_arguments
from deniable.curves.atoms.atom import Atom
from deniable.curves.atoms.composite_atoms import bracketed, check_curve, curve_pair, is_exact, is_tied
from deniable.curves.composition import lattice
from deniable.curves.curve import Curve
from deniable.curves.laws import likelihood_average
from deniable.curves.laws.closed_form import GaussianLaw
from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.laws.law import Law, LawPair
from deniable.curves.laws.likelihood_average import CUT, Bound, Ratio, RatioCells
from deniable.curves.meaning.curve_readings import product_of
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats, quietly
from deniable.errors import InvalidParameter

MOST_STEPS = 10**7
POINTS = 4000
"""Edges on each side from which the cells of one step are chosen."""

LEAST_DROP = 1e-5
"""The least share of a tail that a cell must hold. It limits cancellation in the difference of two tails."""

SAME = 1e-8
"""Outcomes of the laws of both directions that are at most this far apart are the same outcome."""

FARTHEST = 650.0
"""The largest loss of one step whose exponential is far from overflow."""


@final
@dataclass(frozen=True, slots=True)
class AllocatedAtom(Atom):
    """The mechanism in `steps` steps, if each person takes part in exactly one, drawn uniformly and kept secret."""

    name: ClassVar[str] = "allocated"
    curve: Curve
    steps: int

    def __post_init__(self) -> None:
        check_curve("curve", self.curve)
        steps = curve_arguments.integer("steps", self.steps, 1)
        if steps > MOST_STEPS:
            raise InvalidParameter("steps", steps, f"must be at most {MOST_STEPS:,}")
        object.__setattr__(self, "steps", steps)
        _check_base(self.curve)
        inner, count = self.curve.factors[0]
        if isinstance(inner, AllocatedAtom) and len(self.curve.factors) == count == 1:
            # One of the steps of one of the runs: one of all steps.
            if inner.steps * steps > MOST_STEPS:
                rule = f"makes {inner.steps * steps:,} steps in all, and at most {MOST_STEPS:,} are computed"
                raise InvalidParameter("steps", steps, rule)
            object.__setattr__(self, "steps", inner.steps * steps)
            object.__setattr__(self, "curve", inner.curve)

    def pair(self) -> LawPair:
        upper, lower = (
            likelihood_average.allocated(_ratio(self.curve, side), self.steps, side=side) for side in ("upper", "lower")
        )
        is_smooth = isinstance(curve_pair(self.curve).backward.upper, GaussianLaw)
        return likelihood_average.pair_of_ratios(upper, lower, is_smooth=is_smooth)

    def expression(self) -> str:
        return f"{bracketed(self.curve)}.allocated(steps={self.steps})"

    def inherited_renyi(self, order: float) -> tuple[float, float] | None:
        # A mixture over the step of pairs that are each as distinguishable as one run (divergences are quasi-convex).
        worst = self.curve.renyi_function(order)
        return worst, worst

    def gdp_bound(self) -> float | None:
        return self.curve.gdp()  # the average of t pairs with this μ, by joint convexity

    def zcdp_bound(self) -> float | None:
        return self.curve.zcdp()


def _check_base(curve: Curve) -> None:
    """Raises InvalidParameter unless both directions of the curve come from one known pair of laws."""
    forward, _ = product_of(curve)
    if not is_tied(curve):
        rule = (
            "must say which of its two laws is the one without the person, because the average of steps depends on it"
        )
        fix = "if a person moves the answer in one direction only, give both laws: from_pmf(without, with, tied=True)"
        raise InvalidParameter("curve", curve.expression(), rule, fix)
    if forward.needs_panels or not is_exact(curve):
        rule = "must be one mechanism whose output laws are known: Gaussian noise, Laplace noise, a pmf"
        raise InvalidParameter("curve", curve.expression(), rule, "allocate each mechanism, and multiply the results")
    pair = curve_pair(curve)
    if max(pair.forward.upper.scale, pair.backward.upper.scale) > FARTHEST / 13:
        raise InvalidParameter(
            "curve", curve.expression(), "has privacy losses that are too large to average", "add more noise"
        )


@quietly
def _ratio(curve: Curve, side: Bound) -> Ratio:
    """The likelihood ratio of one step, with the person against without, under the law without."""
    pair = curve_pair(curve)
    away, present = (getattr(direction, side) for direction in (pair.forward, pair.backward))
    if isinstance(present, FiniteLaw) and isinstance(away, FiniteLaw):
        return _of_finite(away, present, side)
    return _of_tails(away, present, side)


def _of_finite(away: FiniteLaw, present: FiniteLaw, side: Bound) -> Ratio:
    """The ratio of two finite laws, each of which bounds one direction.

    Both list the same outcomes, but each moves losses outwards, by its own rounding errors: masses without the person
    follow from the masses with them only up to this distance, which counts as an error. For the upper bound the masses
    without the person may also add up to less than 1, because a law was cut. The missing mass is then put on the ratio
    A = 0. This is safe: then E (x - A)₊ is E (A - x)₊ + x - 1, so a pair that dominates in the direction of its
    masses dominates in the other direction too. The lower bound uses only the outcomes that both laws list.
    """
    moved, is_listed = _apart(away, present)
    error = float(np.max(moved[is_listed], initial=0.0))
    losses, masses, nothing = present.losses, present.masses, away.infinity
    if side == "lower":
        losses, masses = losses[is_listed], masses[is_listed]
    elif not np.all(is_listed) or len(away.losses) > len(losses):
        error = 0.0
        nothing = max(nothing, 1 - float(np.sum(masses * np.exp(-losses))) + 1e-15 * len(losses))
    values, without = np.exp(losses), masses * np.exp(-losses)
    if nothing > 0 or not len(values):
        values, without = np.concatenate(([0.0], values)), np.concatenate(([nothing], without))
    return Ratio(values, without, present.infinity, present.relative_error + error + 1e-14, error + 1e-13)


def _apart(away: FiniteLaw, present: FiniteLaw) -> tuple[Floats, NDArray[np.bool_]]:
    """For each outcome of `present`, how far the two laws are apart in its loss and its masses (relative), and whether
    `away` lists it: one outcome that is at most SAME apart, and is not claimed by another one.
    """
    if not len(away.losses):
        return np.zeros(len(present.losses)), np.zeros(len(present.losses), dtype=bool)
    mirrored, others = -away.losses[::-1], away.masses[::-1]
    right = np.searchsorted(mirrored, present.losses).clip(1, max(len(mirrored) - 1, 1))
    left = right - 1
    right = np.minimum(right, len(mirrored) - 1)
    is_left = np.abs(mirrored[left] - present.losses) <= np.abs(mirrored[right] - present.losses)
    place = np.where(is_left, left, right)
    moved = np.abs(mirrored[place] - present.losses)
    moved += np.abs(np.log(present.masses) - np.log(others[place]) - present.losses)
    return moved, (moved <= SAME) & (np.bincount(place, minlength=len(mirrored))[place] == 1)


def _of_tails(away: Law, present: Law, side: Bound) -> Ratio:
    """The ratio on cells between losses: cells above 0 from the tails of the law with the person, cells below 0 from
    the tails of the law without.
    """
    right, left = _edges(present), _edges(away)
    here, there = present.tails(right), away.tails(left)
    with_right, without_right = here.first, here.second * np.exp(-right)
    without_left, with_left = there.first, there.second * np.exp(-left)
    # From the smallest loss to the largest; losses of exactly 0 have a cell of no width.
    edges = np.concatenate((np.exp(-left[::-1]), np.exp(right)))
    rest = [
        max(0.0, 1 - float(a[0]) - float(b[0])) for a, b in ((with_left, with_right), (without_left, without_right))
    ]
    rest = [each if each > 1e-12 else 0.0 for each in rest]
    in_with = np.concatenate((-np.diff(with_left)[::-1], rest[:1], -np.diff(with_right)))
    in_without = np.concatenate((-np.diff(without_left)[::-1], rest[1:], -np.diff(without_right)))
    error = max(float(np.max(np.asarray(each.error))) for each in (here, there))
    mass_error = error * 4 / LEAST_DROP + 1e-11
    if isinstance(present, GaussianLaw) and isinstance(away, GaussianLaw):
        # t steps multiply t masses: for many steps, differences of tails are not exact enough.
        mu, halves = present.mu, (-present.mu / 2, present.mu / 2)
        (with_r, one), (without_r, two) = (normal_masses(right / mu + half) for half in halves)
        (without_l, three), (with_l, four) = (normal_masses(left / mu + half) for half in halves)
        in_with = np.concatenate((with_l[::-1], [0.0], with_r))
        in_without = np.concatenate((without_l[::-1], [0.0], without_r))
        mass_error = max(one, two, three, four)
    centre = int(len(left) - 1)
    edges[centre], edges[centre + 1] = 1 - 1e-13, 1 + 1e-13
    beyond = float(with_right[-1]) - present.infinity, float(without_right[-1])
    low = float(with_left[-1]), float(without_left[-1])
    cells = RatioCells(
        np.concatenate(([0.0], edges)), np.concatenate((low[1:], in_without)), np.concatenate((low[:1], in_with))
    )
    if side == "lower":
        ratio = likelihood_average.placed(cells, present.infinity, mass_error, 1e-12, side)
        return ratio
    ratio = likelihood_average.placed(cells, present.infinity + max(beyond[0], 0.0), mass_error, 1e-12, side)
    values, masses = ratio.values, ratio.masses
    if values[0] > 0:
        values, masses = np.concatenate(([0.0], values)), np.concatenate(([0.0], masses))
    masses[0] += beyond[1]
    return ratio._replace(values=values, masses=masses)


def normal_masses(z: Floats) -> tuple[Floats, float]:
    """The standard normal masses between neighbouring points, and a bound on their relative errors.

    Gauss's rule with four nodes on a cell of length h misses at most 5.63e-10 h⁹ max |φ⁗⁗|. The eighth derivative is
    He₈ φ, |He₈(z)| = |E(z + iZ)⁸| <= (|z| + 1.8)⁸, and within a cell φ changes by a factor e^(h|z|) at most.
    """
    nodes, weights = np.polynomial.legendre.leggauss(4)
    length, middle = np.diff(z) / 2, (z[1:] + z[:-1]) / 2
    at = middle[:, None] + length[:, None] * nodes
    masses = np.exp(-at * at / 2) @ weights * (length / math.sqrt(2 * math.pi))
    longest, farthest = 2 * float(np.max(length)), float(np.max(np.abs(z)))
    missed = 5.63e-10 * (longest * (farthest + 1.8)) ** 8 * math.exp(longest * farthest)
    # A length is a difference of points, and a rounding of a point moves the exponent.
    rounding = UNIT_ROUNDOFF * (8 * farthest**2 + 32 + 4 * farthest / (2 * float(np.min(length))))
    return masses, missed + rounding


def _edges(law: Law) -> Floats:
    """Losses from 0 to where the tail of the law is CUT; the tail falls by at least a share LEAST_DROP at each."""
    _, high = lattice.reach(law, CUT)
    points = np.linspace(0.0, min(high, FARTHEST), POINTS)
    first, second, _ = law.tails(points)
    other = second * np.exp(-points)
    kept = [0]
    for place in range(1, POINTS - 1):
        last = kept[-1]
        if first[place] <= (1 - LEAST_DROP) * first[last] and other[place] <= (1 - LEAST_DROP) * other[last]:
            kept.append(place)
    while len(kept) > 1 and not (
        first[-1] <= (1 - LEAST_DROP) * first[kept[-1]] and other[-1] <= (1 - LEAST_DROP) * other[kept[-1]]
    ):
        kept.pop()
    return np.asarray(points[[*kept, POINTS - 1]])


def allocated(curve: Curve, *, steps: int) -> Curve:
    """The curve of all steps if each person takes part in one of them (`Curve.allocated`)."""
    atom = AllocatedAtom(curve, steps) if curve.factors else None
    return curve if atom is None or atom.steps == 1 else Curve.of(atom)
