"""Finite laws from bounds: on a profile at points, on a trade-off polygon, on a whole product of laws.

Some operations need a law (sampling a composed mechanism, grouping, a user's trade-off function) where only bounds on
its profile are known. These functions give a finite law above it and one below it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deniable.curves.laws import neighbour_chain
from deniable.curves.laws.derived_laws import WorstLaw
from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.laws.law import Law, LawPair, Sided
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats, Side, quietly

MOST_KINKS = 200_000
"""Most kinks of an exact maximum of polygons; beyond, the maximum is evaluated lazily."""


@quietly
def law_above(points: Floats, delta: Floats) -> FiniteLaw:
    """The law whose profile joins upper bounds δ(points) by straight lines in x = e^ε, and is constant beyond the last
    point.
    """
    step = np.expm1(np.diff(points))
    survival = np.append(delta[:-1] + (delta[:-1] - delta[1:]) / step, delta[-1])
    # One rounding of each δ, amplified by 1/step.
    survival[:-1] += 4 * UNIT_ROUNDOFF * (delta[:-1] + 2 * delta[:-1] / step)
    survival = np.clip(np.maximum.accumulate(survival[::-1])[::-1], 0.0, 1.0)
    masses = np.concatenate(([1 - survival[0]], survival[:-1] - survival[1:]))
    return FiniteLaw(points, masses, float(survival[-1]))


@quietly
def vertices_below(points: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Vertices (ε, value) of a polygon below every convex profile that lies between `low` and `high` at the points.

    In each cell the profile lies above the left chord extended to the right and above the right chord extended to the
    left; the vertices are where these two lines meet. The outermost lines are 1 - x on the left and the mass at
    infinity on the right.
    """
    x = np.exp(points)
    gap = np.diff(x)
    # Every number has a rounding error, x too. The slope of a chord between two near points magnifies it, and a long
    # cell multiplies it again.
    rounding = 8 * UNIT_ROUNDOFF
    shortest = np.maximum(gap - rounding * x[1:], np.finfo(float).tiny)
    fall = (low[1:] * (1 - rounding) - high[:-1] * (1 + rounding)) / shortest  # steepest slope a chord can have
    rise = (high[1:] * (1 + rounding) - low[:-1] * (1 - rounding)) / (gap + rounding * x[1:])  # flattest slope
    left_slope = np.concatenate(([-1.0], fall[:-1]))
    left_value = low[:-1]
    right_slope = np.minimum(np.append(rise[1:], 0.0), 0.0)
    right_value = low[1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        meet = (right_value - right_slope * gap - left_value) / (left_slope - right_slope)
    # Any vertex in the cell is valid with the smaller of the two lines; their intersection is best.
    meet = np.clip(np.where(np.isnan(meet), 0.5 * gap, meet), 0.0, gap)
    value = np.minimum(left_value + left_slope * meet, right_value - right_slope * (gap - meet))
    value -= rounding * (left_value - left_slope * meet + right_value)
    return np.log(x[:-1] + meet), value


@quietly
def law_below(points: Floats, low: Floats, high: Floats, infinity: float) -> FiniteLaw:
    """A law below every convex profile that lies between `low` and `high` at the points."""
    # Points whose exponentials are the same float have no chord between them.
    apart = np.concatenate(([True], np.diff(points) > 1e-12 * (1 + np.abs(points[1:]))))
    points, low, high = points[apart], low[apart], high[apart]
    at, value = vertices_below(points, low, high)
    keep = np.concatenate(([True], np.diff(at) > 1e-12 * (1 + np.abs(at[1:]))))
    at, value = at[keep], np.minimum.accumulate(np.maximum(value[keep] - infinity, 0.0))
    value[0] = min(value[0], max(-float(np.expm1(at[0])) - infinity, 0.0))
    value = np.minimum.accumulate(value)
    value[-1] = 0.0
    return _law_under(at, value, infinity)


def worst(laws: Sequence[Law], *, side: Side) -> Law:
    """The law of the largest profile at every ε. Exact for finite laws: a maximum of polygons in x is a polygon."""
    unique = tuple(dict.fromkeys(laws))
    if len(unique) == 1:
        return unique[0]
    known = [law for law in unique if isinstance(law, FiniteLaw)]
    if len(known) < len(unique) or sum(len(law.losses) for law in known) > MOST_KINKS:
        return WorstLaw(unique)
    result = known[0]
    for law in known[1:]:
        result = _worse_of_two(result, law, side)
    return result


def worse_direction(pair: LawPair) -> LawPair:
    """The worse of the two directions at every ε, in both directions."""
    if pair.is_symmetric:
        return pair
    side = Sided(
        worst((pair.forward.upper, pair.backward.upper), side="upper"),
        worst((pair.forward.lower, pair.backward.lower), side="lower"),
    )
    return LawPair(side, side)


def _worse_of_two(a: FiniteLaw, b: FiniteLaw, side: Side) -> FiniteLaw:
    points = np.unique(np.concatenate((a.losses, b.losses)))
    if not len(points):
        return FiniteLaw(points, points, max(a.infinity, b.infinity))
    # Where the two polygons cross inside a cell, the crossing is a kink of the maximum.
    gap = np.subtract(*(law.tails(points).first - law.tails(points).second for law in (a, b)))
    turn = np.flatnonzero(gap[:-1] * gap[1:] < 0)
    x = np.exp(points[turn] - points[turn + 1])
    share = gap[turn] / (gap[turn] - gap[turn + 1])
    crossing = points[turn + 1] + np.log(x + share * (1 - x))
    points = np.unique(np.concatenate((points, crossing)))
    # Inside a cell one of the two is larger throughout: its tail mass is the survival of the maximum there.
    middle = 0.5 * (points[:-1] + points[1:])
    read = [law.tails(middle) for law in (a, b)]
    first_wins = read[0].first - read[0].second >= read[1].first - read[1].second
    survival = np.where(first_wins, read[0].first, read[1].first)
    error = max(a.relative_error, b.relative_error)
    infinity = max(a.infinity, b.infinity)
    if side == "upper":
        survival = np.append(np.minimum(survival * (1 + error), 1.0), infinity)
        survival = np.maximum.accumulate(survival[::-1])[::-1]
        total = 1.0
    else:
        total = max(1 - infinity, 0.0)
        survival = np.append(np.clip(survival * (1 - error) - infinity, 0.0, total), 0.0)
        survival = np.minimum.accumulate(survival)
    masses = np.concatenate(([total - survival[0]], survival[:-1] - survival[1:]))
    return FiniteLaw(points, masses, infinity, error)


def _law_under(points: Floats, value: Floats, infinity: float) -> FiniteLaw:
    """The law whose finite profile joins `value` at the points by straight lines, rounded down."""
    step = np.expm1(np.diff(points))
    survival = value[:-1] + (value[:-1] - value[1:]) / step
    survival -= 8 * UNIT_ROUNDOFF * (value[:-1] + 2 * value[:-1] / step)
    total = max(1 - infinity, 0.0)
    survival = np.append(np.minimum(np.minimum.accumulate(np.clip(survival, 0.0, 1.0)), total), 0.0)
    masses = np.concatenate(([total - survival[0]], survival[:-1] - survival[1:]))
    return FiniteLaw(points, masses, infinity)


@quietly
def law_of_polygon(level: Floats, power: Floats, relative_error: float, *, side: Side) -> FiniteLaw:
    """The law whose power function (P-mass of the best test against its Q-mass) joins the points, rounded outwards."""
    outwards = (8 if side == "upper" else -8) * UNIT_ROUNDOFF
    polygon = neighbour_chain.Polygon(np.log(level) - outwards, np.log(power) + outwards)
    return neighbour_chain.law_of(polygon, relative_error, side=side)
