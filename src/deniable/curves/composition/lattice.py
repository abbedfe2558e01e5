"""From a law to masses on a grid: one grid law above it, one below it.

Write x = e^ε. A profile δ(x) = sup_S P(S) - x Q(S) is convex and non-increasing in x, and a law whose losses lie on
grid points l_0 < l_1 < ... has a profile that is linear between the points x_i = e^(l_i). So

* `above`: join the values δ(x_i) by straight lines (connect-the-dots, Doroshenko et al. 2022). A chord lies above a
  convex function, hence the grid law dominates.
* `below`: in each cell take one line of a real test, P(L > t) - x Q(L > t) with t in the middle of the cell; give
  every grid point the smaller of its two neighbouring lines. Every chord then lies below a line that lies below δ.

Both are then expressed by survival masses T_i = A(L > l_i). With d_i the value at x_i and h_i = l_(i+1) - l_i,

    T_i = d_i + (d_i - d_(i+1)) / (e^(h_i) - 1),            mass at l_i = T_(i-1) - T_i,

and conversely d_i = Σ_(j>=i) T_j (1 - e^(-h_j)) e^(l_i - l_j), with positive weights. Raising every T_i therefore
raises the profile everywhere, also after composition (docs/theory/certified-curves.md, lemma 2): to allow for rounding
errors, T is moved outwards and then made monotone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from deniable.curves.laws.law import Law, Tails
from deniable.curves.outward_rounding import Floats

LEAST_SPIKE = 1e-3
"""The least P-mass of a spike that is worth a grid point."""

LEFT_OUT = 1e-14
"""P-mass of the smallest losses of one law that a lower bound drops."""


class GridLaw(NamedTuple):
    """P-masses on grid points, and P(L = +inf). Mass missing to a total of 1 counts as loss -inf."""

    losses: Floats
    masses: Floats
    infinity: float


class HasTails(Protocol):
    """The methods that `chords` needs from a law, or from a column of laws."""

    def tails(self, loss: Floats) -> Tails: ...

    def gaps(self, loss: Floats) -> tuple[Floats, Floats]: ...


def above(law: Law, points: Floats) -> GridLaw:
    """A grid law that dominates `law` at every ε. Mass beyond the last point counts as infinite loss."""
    masses, infinity, _ = chords(law, points)
    return GridLaw(points, masses, float(infinity))


def chords(law: HasTails, points: Floats) -> tuple[Floats, Floats, Floats]:
    """The masses of `above`, the mass at infinity, and how far at most rounding outwards has raised the mass above each
    cell's left end. A column of laws takes one row of points for each law.
    """
    first, _, error = law.tails(points)
    step = np.expm1(np.minimum(np.diff(points), 700.0))
    delta, magnitude = law.gaps(points)
    survival = delta[..., :-1] + (delta[..., :-1] - delta[..., 1:]) / step
    slack = np.broadcast_to(np.asarray(error), first.shape)
    doubt = magnitude[..., :-1] + (magnitude[..., :-1] + magnitude[..., 1:]) / step
    survival = survival + doubt
    # The exact survival of the chord lies between the two tail masses: this cap keeps the slack from accumulating.
    survival = np.clip(survival, 0.0, np.minimum(first[..., :-1] * (1 + slack[..., :-1]) + 1e-300, 1.0))
    infinity = np.minimum(first[..., -1:] * (1 + slack[..., -1:]), 1.0)
    survival = np.concatenate((survival, infinity), axis=-1)
    survival = np.maximum.accumulate(survival[..., ::-1], axis=-1)[..., ::-1]
    masses = np.concatenate((1.0 - survival[..., :1], survival[..., :-1] - survival[..., 1:]), axis=-1)
    return masses, infinity[..., 0], 2 * np.maximum.accumulate(doubt[..., ::-1], axis=-1)[..., ::-1]


class Spike(NamedTuple):
    """The outcomes with the smallest losses, merged into one: their common loss, and the end of the merged losses."""

    loss: float
    end: float


def spike(law: Law, low: float, step: float) -> Spike | None:
    """The spike of a law: all losses up to `end`, merged into one loss half a step below it; None if these losses carry
    little mass.

    Sampling at a small rate puts most of the mass into a range of losses much shorter than a step. Merging them is
    post-processing; if their common loss log(P/Q) is a grid point, the merged law has only a second-order error in the
    step.
    """
    end = low + step
    for _ in range(30):
        first, second, _ = (float(np.asarray(each).ravel()[0]) for each in law.tails(np.array([end])))
        under_p, under_q = 1.0 - first, 1.0 - second * math.exp(-end)
        if under_p < LEAST_SPIKE or under_q <= 0:
            return None
        loss = math.log(under_p / under_q)
        if abs(loss + step / 2 - end) <= 1e-3 * step:
            break
        end = loss + step / 2
    return Spike(loss, end)


def below(law: Law, points: Floats, merged: Spike | None = None) -> GridLaw:
    """A grid law that `law` dominates at every ε. Mass above the last point is moved down to it.

    The losses of a spike are merged if `merged.loss` is one of the points.
    """
    if merged is not None:
        return _below(law, points, np.zeros(len(points) - 1, dtype=bool), merged)
    widths = np.diff(points)
    inside = np.zeros(len(widths), dtype=bool)
    for atom in law.atoms:
        cell = int(np.searchsorted(points, atom)) - 1
        if 0 <= cell < len(widths):
            inside[cell] |= atom < points[cell + 1] - 1e-9 * widths[cell]
    plain = _below(law, points, np.zeros_like(inside))
    if not np.any(inside):
        return plain
    # Two ways to treat an atom inside a cell, both valid. Beside a density the second loses less.
    tested = _below(law, points, inside)
    return max(plain, tested, key=lambda grid: float(np.sum(grid.masses * (grid.losses - points[0]))))


def _below(law: Law, points: Floats, inside: NDArray[np.bool_], merged: Spike | None = None) -> GridLaw:
    """`below` for one choice of tests: cells marked `inside` are tested near their left end, the others
    in the middle.
    """
    widths = np.diff(points)
    infinity = law.infinity
    tests = points[:-1] + np.where(inside, 1e-9, 0.5) * widths
    apart = np.ones_like(inside)
    if merged is not None:
        # Two lines meet at the loss of the spike: one of the test that all losses pass, one of the test that all losses
        # above the spike pass.
        apart = points[:-1] > merged.loss - 0.5 * widths
        tests = np.where(apart, np.maximum(tests, merged.end), points[0])
        tests[int(np.argmax(apart))] = merged.end
    at_left, at_right, in_middle = _lines(law, points, tests)
    # The middle of a cell is a bad test in three cases. (1) An atom at a known place inside the cell: the test near the
    # left end includes it. (2) A line that is negative at its right end: it would need negative mass. (3) A cell whose
    # mass sits in its right half: it bends the chords the wrong way. In cases 2 and 3 the test is at the right end.
    at_points = law.tails(points).first
    left_half, right_half = at_points[:-1] - in_middle, in_middle - at_points[1:]
    skewed = ~inside & (right_half > 20 * left_half + 1e-9 * in_middle)
    other = np.flatnonzero(apart & (tests < points[1:]) & ((at_right < 0) | skewed))
    if len(other):
        left, right, _ = _lines(law, points, points[1:] - 1e-9 * widths, other)
        at_left[other] = np.where(right < 0, 0.0, left)
        at_right[other] = np.maximum(right, 0.0)
    value = np.empty_like(points)
    # To the left of the grid: the line of the test at its first point. Mass below that point is dropped.
    start = law.tails(points[:1])
    error = float(np.asarray(start.error).ravel()[0])
    total = max(min(float(start.first[0]) * (1 - error), 1 - 1e-15) - infinity * (1 + 1e-15), 0.0)
    gap, doubt = (float(each[0]) for each in law.gaps(points[:1]))
    value[0] = min(float(at_left[0]), gap - doubt - infinity * (1 + 1e-15))
    value[1:-1] = np.minimum(at_left[1:], at_right[:-1])
    value[-1] = 0.0
    step = np.expm1(np.minimum(widths, 700.0))
    value = _convex_below(np.minimum.accumulate(np.maximum(value, 0.0)), points, step)
    survival = value[:-1] + (value[:-1] - value[1:]) / step
    survival = survival - 4e-16 * (value[:-1] + (value[:-1] + value[1:]) / step)
    survival = np.append(np.minimum.accumulate(np.clip(survival, 0.0, 1.0)), 0.0)
    survival = np.minimum(survival, total)
    masses = np.concatenate(([total - survival[0]], survival[:-1] - survival[1:]))
    # The far left holds rounding errors only, and would lengthen the window. Dropping mass keeps the law a lower bound.
    masses[np.cumsum(masses) <= LEFT_OUT] = 0.0
    return GridLaw(points, masses, infinity * (1 - 1e-15))


def _convex_below(value: Floats, points: Floats, step: Floats) -> Floats:
    """The largest convex polygon in x = e^point below the given values.

    Where an atom lies inside a cell, the value at the cell's right end is too small for its neighbours. Lowering the
    next few values to a tangent restores convexity; what is lost is of order h^(3/2), not h.
    """
    width = np.exp(np.minimum(points[:-1] - points[-1], 0.0)) * step
    slopes = np.diff(value) / width
    worse = np.flatnonzero(slopes[:-1] > slopes[1:] + 1e-12 * np.abs(slopes[1:]))
    if not len(worse) or len(worse) > 64:
        return value
    value = value.copy()
    for start in worse.tolist():
        run, size = np.cumsum(width[start:]), 8
        while True:
            # The steepest descent from `start` decides where the tangent touches.
            size = min(size * 4, len(run))
            falls = (value[start + 1 : start + 1 + size] - value[start]) / run[:size]
            touch = int(np.argmin(falls))
            if touch < size - 1 or size == len(run):
                break
        value[start + 1 : start + touch + 1] = np.minimum(
            value[start + 1 : start + touch + 1], value[start] + falls[touch] * run[:touch]
        )
    return value


def _lines(
    law: Law, points: Floats, tests: Floats, cells: NDArray[np.intp] | slice = slice(None)
) -> tuple[Floats, Floats, Floats]:
    """For each cell, the line P(L > t) - x Q(L > t) of finite losses at both ends of the cell, rounded down; and P(L >
    t).
    """
    t, left, right = tests[cells], points[:-1][cells], points[1:][cells]
    first, second, error = law.tails(t)
    gap, doubt = law.gaps(t)
    # P(L > t) - x Q(L > t) is the gap at t plus (1 - e^(l-t)) times the second tail: no cancellation of the two tails.
    finite = gap - doubt - law.infinity * (1 + 1e-15)
    lifts = [-np.expm1(np.minimum(end - t, 700.0)) * second for end in (left, right)]
    # The true second tail is in second (1 ± error), whichever side of the test a point lies on.
    at_left, at_right = (finite + lift - np.abs(lift) * (error + 1e-15) for lift in lifts)
    return at_left, at_right, first


@lru_cache(maxsize=4096)
def reach(law: Law, tail: float) -> tuple[float, float]:
    """Losses (low, high) beyond which P has mass about 1e-14 on the left and at most `tail` on the right (finite
    losses).
    """
    low, high = law.lowest, law.highest
    if not math.isfinite(high):
        high = _distance(law, 1.0, lambda t: t.first - law.infinity <= tail)
    if not math.isfinite(low):
        low = -_distance(law, -1.0, lambda t: t.first >= 1 - LEFT_OUT)
    # `below` needs a first point at which 1 - x is at least the mass at infinity.
    room = math.log1p(-law.infinity) if law.infinity < 1 else low
    return min(low, room, 0.0), max(high, 0.0)


def _distance(law: Law, sign: float, done: Callable[[Tails], NDArray[np.bool_]]) -> float:
    """The smallest distance from 0 (to 2 %) at which `done` holds, in the direction of `sign`."""
    far = law.scale * 2.0 ** np.arange(-40.0, 60.0)
    far = far[far < 1e15] if far[0] < 1e15 else far
    with np.errstate(under="ignore", over="ignore"):
        holds = done(law.tails(sign * far))
        if not np.any(holds):
            return float(far[-1])
        outer = int(np.argmax(holds))
        near = np.linspace(far[max(outer - 1, 0)], far[outer], 50)
        holds = done(law.tails(sign * near))
    return float(near[int(np.argmax(holds))]) if np.any(holds) else float(far[outer])


def spread_points(law: Law, tail: float, count: int) -> Floats:
    """About `count` points over the reach of a law, dense where its mass is and sparse in the tails (sinh spacing)."""
    low, high = reach(law, tail)
    if high <= low:
        return np.array([low, low + 1e-9])
    centre, width = _centre(law, low, high)
    width = max(width, (high - low) * 1e-9)
    left, right = math.asinh((low - centre) / width), math.asinh((high - centre) / width)
    points = centre + width * np.sinh(np.linspace(left, right, count))
    points[0], points[-1] = low, high
    inner = [a for a in law.atoms if low < a < high]
    return np.unique(np.concatenate((points, inner)))


def _centre(law: Law, low: float, high: float) -> tuple[float, float]:
    """Median and half the distance between the 10 % and 90 % points of the loss under P, by bisection."""

    def quantile(level: float) -> float:
        a, b = low, high
        for _ in range(5):
            grid = np.linspace(a, b, 130)
            passed = law.tails(grid).first <= level
            first = int(np.argmax(passed)) if np.any(passed) else len(grid) - 1
            a, b = float(grid[max(first - 1, 0)]), float(grid[first])
        return 0.5 * (a + b)

    return quantile(0.5), 0.5 * (quantile(0.1) - quantile(0.9))
