"""Estimators of ranks: quantiles, MIN and MAX from noisy running totals over cells between the bounds of a column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable.ledger.currency import Shape
from deniable.queries.intervals.draw_laws import law_of, reach
from deniable.queries.intervals.noise_intervals import NoisyEstimate
from deniable.queries.plan.recipes import DrawnValue, Recipe, clamped

if TYPE_CHECKING:
    from deniable.mechanisms.prefix_sums import Differences
    from deniable.queries.relations.exact_statistics import Cells, Statistic

MOST_CELLS: Final = 1024
"""Cells between the bounds of a quantile. An integer column with fewer values has one cell for each value."""


@final
@dataclass(frozen=True, slots=True)
class Ranked(Recipe):
    """The value at a rank: a quantile, MIN or MAX.

    The running total T_t is the number of values below the end of cell t. The quantile q is where D = T - q·T_last
    crosses 0; within a cell, T is taken to be a straight line. The noise interval reaches from the first to the last
    position at which D may be 0 given its noise. The true position is excluded only if its own comparison fails, so
    the interval covers it with at least the stated probability. Coverage is close to that probability if the totals
    rise steeply relative to the noise and cells can be divided; intervals of integers, which cannot be divided, cover
    more.
    """

    name: str
    cells: Cells
    q: Fraction
    """0 is MIN and 1 is MAX."""
    whole: bool
    """Whether cells are single integers."""
    integral: bool
    """Whether the answer is an integer: MIN or MAX of an integer column."""
    high: Fraction
    """The largest possible value. If it is the only one, its cell reaches beyond it."""

    def statistics(self) -> tuple[Statistic, ...]:
        return (self.cells,)

    def _estimate(self, drawn: Sequence[DrawnValue], confidence: float) -> NoisyEstimate:
        [totals] = drawn
        sums = np.concatenate(([0.0], np.asarray(totals.values, dtype=np.float64)))
        if self.q in (0, 1):
            return self._extreme(sums, totals, confidence)
        q = float(self.q)
        apart, law = sums - q * sums[-1], totals.blend(q)
        far = _far(totals.shape, law, confidence)
        smooth = _increasing(apart)
        at = min(max(int(np.searchsorted(smooth, 0.0, side="left")), 1), sums.size - 1) - 1
        value = self._inside(smooth, at)
        # A cell is possible if, within the noise, at most a fraction q of the values lies below it and at least q below
        # its end.
        reached = np.flatnonzero(apart[1:] >= -far[1:])
        first = int(reached[0]) if reached.size else sums.size - 2
        before = np.flatnonzero(apart[:-1] <= far[:-1])
        last = int(before[-1]) if before.size else 0
        if self.whole:
            return NoisyEstimate(value, self._low(min(first, at)), self._high(max(last, at)))
        last = sums.size - 2 if apart[-1] <= far[-1] else last
        low = first + _place(apart, far, law, first, 1)
        high = last + _place(apart, far, law, last, -1)
        return NoisyEstimate(value, min(value, self._edge(low)), max(value, self._edge(high)))

    def _extreme(self, sums: Any, totals: DrawnValue, confidence: float) -> NoisyEstimate:
        """MIN; and MAX as the MIN of the totals counted from above (the number of values at or above each cell).

        MIN is in cell k if no value is below cell k and some value is below its end. If the noise can hide a single
        value, a smaller one can never be excluded: then the interval starts at the bound, and the whole probability of
        missing is used at the upper end.
        """
        law = totals.blend(float(self.q))
        seen, spread = (sums, law.deviations) if self.q == 0 else ((sums[-1] - sums)[::-1], law.deviations[::-1])
        smooth = _increasing(seen[1:])
        at = min(int(np.searchsorted(smooth, max(1.0, 2 * float(spread[1:].mean())), side="left")), seen.size - 2)
        far = _reaches(totals.shape, law, confidence)
        far = (far if self.q == 0 else far[::-1]) * spread
        hidden = float(far[1:].min()) >= 1
        if hidden:
            one_sided = _reaches(totals.shape, law, max(2 * confidence - 1, 1e-9))
            far = (one_sided if self.q == 0 else one_sided[::-1]) * spread
        reached, before = np.flatnonzero(seen[1:] >= 1 - far[1:]), np.flatnonzero(seen[:-1] <= far[:-1])
        first = 0 if hidden or not reached.size else int(reached[0])
        first, last = min(first, at), max(int(before[-1]), at)
        if self.q == 1:
            at, first, last = (seen.size - 2 - each for each in (at, last, first))
        start, end = self.cells.edges[at], min(self.cells.edges[at + 1], self.high)
        middle = self._low(at) if self.whole else float(start + end) / 2
        return NoisyEstimate(round(middle) if self.integral else middle, self._low(first), self._high(last))

    def _inside(self, smooth: Any, at: int) -> float | int:
        low, high = self.cells.edges[at], self.cells.edges[at + 1]
        if self.whole:
            return math.ceil(low)
        before = min(0.0, float(smooth[at]))
        rise = float(smooth[at + 1]) - before
        share = -before / rise if rise > 0 else 0.5
        return min(float(low) + clamped(share, 0.0, 1.0) * float(high - low), float(self.high))

    def _edge(self, place: float) -> float:
        """The value at a position counted in cells."""
        cell = min(int(place), len(self.cells.edges) - 2)
        low, high = self.cells.edges[cell], self.cells.edges[cell + 1]
        return min(float(low) + (place - cell) * float(high - low), float(self.high))

    def _low(self, cell: int) -> float | int:
        edge = self.cells.edges[cell]
        return math.ceil(edge) if self.whole else float(edge)

    def _high(self, cell: int) -> float | int:
        return self._low(cell) if self.whole else float(min(self.cells.edges[cell + 1], self.high))


def _reaches(shape: Shape, law: Differences, confidence: float) -> Any:
    """The reach of the noise of each difference, in standard deviations.

    Interpolated between the normal law and a single Laplace draw, by the kurtosis of the noise.
    """
    normal = reach(Shape.NORMAL, (1.0,), confidence)
    return normal + (reach(shape, (1.0,), confidence) - normal) * law.kurtosis / 3


def _far(shape: Shape, law: Differences, confidence: float) -> Any:
    """The reach of the noise of each difference, in rows.

    Laplace noise is added in whole rows, and its law has gaps if it is narrow, so its reach is rounded up.
    """
    return law_of(shape).in_whole_rows(_reaches(shape, law, confidence) * law.deviations)


def rank_error(law: Differences, shape: Shape, confidence: float) -> float:
    """How many rows the noisy rank of a value may be from its true rank at this confidence, at the worst position."""
    return float(np.max(_far(shape, law, confidence)))


def _place(apart: Any, far: Any, law: Differences, cell: int, sign: int) -> float:
    """The fraction a of a cell, from 0 to 1, at which difference + sign·reach crosses 0.

    Within the cell the difference is a straight line between its values at both ends, and the variance of its noise is
    (1 - a)·v₀ + a·v₁ - a(1 - a)·w, where w is the variance of the step between them.
    """
    d0, d1 = float(apart[cell]), float(apart[cell + 1])
    v0, v1 = float(far[cell]) ** 2, float(far[cell + 1]) ** 2
    ratio = max(float(far[cell]), float(far[cell + 1])) / max(
        float(law.deviations[cell]), float(law.deviations[cell + 1]), 1e-300
    )
    step = (float(law.steps[cell]) * ratio) ** 2

    def above(a: float) -> bool:
        variance = max(0.0, (1 - a) * v0 + a * v1 - a * (1 - a) * step)
        return (1 - a) * d0 + a * d1 + sign * math.sqrt(variance) >= 0

    low, high = 0.0, 1.0
    if above(low) or not above(high):  # beyond an end: the whole cell is possible
        return 0.0 if sign > 0 else 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if above(middle) else (middle, high)
    return low if sign > 0 else high


def _increasing(totals: Any) -> Any:
    """An increasing sequence: the mean of the running maximum from the left and the running minimum from the right."""
    upper = np.maximum.accumulate(totals)
    lower = np.minimum.accumulate(totals[::-1])[::-1]
    return (upper + lower) / 2


@lru_cache(maxsize=64)
def edges_between(low: Fraction, high: Fraction, whole: bool) -> tuple[tuple[Fraction, ...], bool]:
    """(the edges of the cells of running totals, whether each cell is one integer)."""
    if low == high:
        return (low, low + 1), whole
    values = int(high - low) + 1
    if whole and values <= MOST_CELLS:
        return tuple(low + i for i in range(values + 1)), True
    # low + (high - low)·i/n over one denominator, which is ten times as fast as adding fractions.
    step = (high - low) / MOST_CELLS
    under = math.lcm(low.denominator, step.denominator)
    first, more = int(low * under), int(step * under)
    return tuple(Fraction(first + more * i, under) for i in range(MOST_CELLS + 1)), False
