"""δ(ε) of a power of one law, with the outcomes that hold one far loss counted exactly.

The largest losses of a rare sample reach far beyond the ε of interest. A lattice that holds them is long and therefore
coarse, and they make exponential moments explode. But if one loss exceeds ε by more than all the others together can
fall below 0, then the outcome belongs to the best event for this ε, whatever the other losses are. Let A be the set of
outcomes of n uses with at least one loss above a cut B, F = P(L > B) and G = Q(L > B) for one use. Then

    δ(ε) = P(A) - e^ε Q(A) + lack + (1-F)^n δ_B(ε + n s),    P(A) = 1 - (1-F)^n,    Q(A) = 1 - (1-G)^n,

where δ_B is the profile of n uses of `BelowCut`, s the constant that conditioning adds to its losses, and

    0 <= lack <= n e^ε G Q(the other n-1 losses add up to less than ε - B)

is what the event A loses by the outcomes whose losses add up to less than ε. B is so large that the lack is negligible.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from deniable.curves.composition import jump_split, lattice
from deniable.curves.composition.jump_split import JumpSplit
from deniable.curves.composition.lattice import GridLaw
from deniable.curves.composition.profile_search import largest, smallest
from deniable.curves.composition.tilt_plan import SKETCH_POINTS, SKETCH_TAIL, Factor, cumulant
from deniable.curves.laws.conditioned_laws import BelowCut, masses_beyond, shift_below
from deniable.curves.laws.derived_laws import SampledAgainstWithout, ShiftedAgainstCentre
from deniable.curves.laws.law import Law
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats

if TYPE_CHECKING:
    from deniable.curves.composition.law_product import Product

NEGLIGIBLE = 1e-8
"""The share of δ that the lack may have."""

REFINEMENTS = (4.0, 0.5, 0.06)
"""The parts of the planned width that panels are refined to, one after the other."""

MOST_PANELS = 5
"""The most refinements and cuts that are tried, with and without jumps."""

MUST_GAIN = 0.8
"""A refinement that leaves more than this part of a bracket is the last one."""

TILTS = 2.0 ** np.arange(-20.0, 40.0)
"""Orders at which the probability of a low sum is bounded."""

LEFT_TO_CHANCE = (SampledAgainstWithout, ShiftedAgainstCentre)
"""Laws for which P is at least a part of Q, if they have a least loss. For others Q may have outcomes that P lacks:
their loss is -inf, and no finite loss decides alone.
"""


def low_moments(law: Law) -> Floats:
    """Upper bounds on log E_Q e^(-t L) at all TILTS t, for a law with a least loss.

    The points hold the least loss, so the grid law of the chords spreads dP/dQ in the convex order under Q, and x^-t is
    convex.
    """
    points = lattice.spread_points(law, SKETCH_TAIL, SKETCH_POINTS)
    masses, infinity, excess = lattice.chords(law, points)
    grid = GridLaw(points, masses, float(infinity))
    found = []
    for tilt in TILTS:
        order = 1.0 + float(tilt)
        # Rounding outwards may have moved mass up.
        doubt = float(np.max(excess)) * math.exp(min(order * abs(float(points[0])), 700.0))
        value, mean, _ = cumulant(grid, -order)
        # Every exponent has a relative error: on average the error of |loss|, and once that of the largest exponent.
        exponents = order * (max(mean - float(points[0]), 0.0) + 2 * abs(float(points[0])))
        found.append(value + doubt + UNIT_ROUNDOFF * (256 + 8 * exponents))
    return np.array(found)


def lowest_sum(law: Law, uses: int, log_chance: float) -> float:
    """A number that the sum of `uses` losses falls below with a Q-probability of at most e^log_chance."""
    if not math.isfinite(law.lowest) or not isinstance(law, LEFT_TO_CHANCE):
        return -math.inf
    found = (log_chance - uses * low_moments(law)) / TILTS
    return min(max(float(np.max(found)), uses * law.lowest), 0.0) * (1 + 1e-9)


def cut_beyond(law: Law, uses: int, epsilon: float, delta: float) -> float | None:
    """The cut B for every ε up to the given one; None if no loss exceeds it."""
    # e^ε G is at most e^(ε-B) <= 1.
    cut = epsilon - lowest_sum(law, uses - 1, math.log(delta) + math.log(NEGLIGIBLE / uses))
    if not math.isfinite(cut) or cut >= law.highest or not masses_beyond(law, cut).above > 0:
        return None
    return cut


Make = Callable[[tuple[Factor, ...]], "Product"]


def narrowed(power: Factor, delta: float, low: float, high: float, width: float, make: Make) -> tuple[float, float]:
    """The bracket [low, high] of ε(δ) of a power of one law, narrowed by counting its large losses apart, until it is
    narrower than `width` × ε.
    """
    for with_jumps in (False, True):
        refine = REFINEMENTS[0]
        split = _split(power, delta, high, make, with_jumps)
        for _ in range(MOST_PANELS):
            if split is None:
                break
            before = (low, high)
            # Far from the bracket's middle, a panel at its upper end would tell little.
            aim = high if high < 2 * low else math.sqrt(high * max(low, high / 100))
            split.refine(aim, delta, refine)
            high = min(high, smallest(split.upper, delta, high))
            low = max(low, largest(split.lower, delta, 0.0, high * (1 + 1e-6)))
            if high - low <= width * high:
                return low, high
            if high < 0.7 * before[1] or low > 1.5 * before[0]:
                split = _split(power, delta, high, make, with_jumps)  # with a lower cut
            elif high - low > MUST_GAIN * (before[1] - before[0]) or refine == REFINEMENTS[-1]:
                break
            else:
                refine = REFINEMENTS[REFINEMENTS.index(refine) + 1]
    return low, high


def _split(power: Factor, delta: float, epsilon: float, make: Make, with_jumps: bool) -> JumpSplit | FarLosses | None:
    """The product with the losses that decide alone counted apart, for ε up to the given one; with jumps too, if asked
    for. None if this would not help.
    """
    law, uses = power
    if not 0 < epsilon < math.inf:
        return None
    far = cut_beyond(law, uses, epsilon, delta)
    rest = law if far is None else BelowCut(law, far)
    cut = jump_split.cut_for(rest, uses, epsilon, delta) if with_jumps else None
    # Large losses may be so rare that floats have none.
    if cut is not None and not masses_beyond(rest, cut).above > 0:
        cut = None
    if with_jumps and cut is None:
        return None
    if far is not None:
        return FarLosses(law, uses, far, delta, make, cut)
    return None if cut is None else JumpSplit(law, uses, cut, delta, make)


class FarLosses:
    """The product of `uses` of one law, with the losses above a cut counted apart."""

    __slots__ = ("_blur", "_cut", "_error", "_kept", "_lack", "_rest", "_shift", "_sure")

    def __init__(
        self,
        law: Law,
        uses: int,
        cut: float,
        delta: float,
        make: Make,
        jumps_from: float | None,
    ):
        beyond, shift = masses_beyond(law, cut), shift_below(law, cut)
        under_q = beyond.second * math.exp(-cut)
        self._cut = cut
        self._shift = uses * shift
        self._blur = 16 * UNIT_ROUNDOFF * (abs(self._shift) + 1e-30)
        kept = uses * math.log1p(-beyond.above)
        self._kept = math.exp(kept)
        # P(A) - Q(A) = (1-G)^n (1 - e^(-ns)), without cancellation; and e^B Q(A), where Q(A) itself may underflow.
        ever = -math.expm1(uses * math.log1p(-under_q)) * math.exp(cut) if under_q > 1e-250 else uses * beyond.second
        self._sure = math.exp(uses * math.log1p(-under_q)) * -math.expm1(-self._shift), ever
        more = beyond.gap + beyond.second * -math.expm1(-cut)
        self._error = 4 * (beyond.error + beyond.gap_error / max(more, 1e-300) + 64 * UNIT_ROUNDOFF)
        self._lack = NEGLIGIBLE * delta
        self._rest = JumpSplit(BelowCut(law, cut), uses, jumps_from, delta, make)

    def refine(self, epsilon: float, delta: float, refine: float) -> None:
        """Add panels that are sharp near ε."""
        self._rest.refine(epsilon + self._shift, delta / self._kept, refine)

    def _counted(self, epsilon: Floats) -> tuple[Floats, Floats]:
        """P(A) - e^ε Q(A), and a bound on its error."""
        gap, under_q = self._sure
        lost = -np.expm1(-epsilon) * np.exp(np.minimum(epsilon - self._cut, 700.0)) * under_q
        rounding = 8 * UNIT_ROUNDOFF * (np.abs(epsilon) + self._cut)
        return gap - lost, self._error * (gap + np.abs(lost)) + rounding * np.abs(lost)

    def upper(self, epsilon: Floats) -> Floats:
        """An upper bound on δ(ε), for ε up to the one that the cut is made for."""
        counted, error = self._counted(epsilon)
        blur = self._blur + 4 * UNIT_ROUNDOFF * np.abs(epsilon)
        rest = self._rest.upper(epsilon + self._shift - blur)
        return np.asarray(np.maximum(counted + error, 0.0) + self._lack + self._kept * (1 + self._error) * rest)

    def lower(self, epsilon: Floats) -> Floats:
        """A lower bound on δ(ε), for every ε."""
        counted, error = self._counted(epsilon)
        blur = self._blur + 4 * UNIT_ROUNDOFF * np.abs(epsilon)
        rest = self._rest.lower(epsilon + self._shift + blur)
        return np.asarray(np.maximum(counted - error, 0.0) + self._kept * (1 - self._error) * rest)
