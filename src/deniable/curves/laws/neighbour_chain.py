"""Chains of neighbours: the power function of a law applied many times, on the logarithms of its levels and powers.

A test of level α between neighbours has power g(α). Along a chain of `size` neighbours the power of one step is the
level of the next, so the chain's power function is g∘...∘g (Dong, Roth, Su 2022, Theorem 2.14). The losses of a chain
reach `size` times as far as the losses of one step, and levels e^-loss underflow. So a polygon is stored as (log level,
log power), starting at level 0, whose logarithm is -inf.

Every polygon lies on its side of the exact power function. In a lower bound each of its points is a real test, and so
is every chord between them, because the power function is concave. An upper bound is moved up by more than all rounding
errors of one composition.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.outward_rounding import TINY, UNIT_ROUNDOFF, Floats, Side, all_below, quietly


class Polygon(NamedTuple):
    """Points (log level, log power) of a power function, from level 0 to level 1; straight lines between them."""

    level: Floats
    power: Floats


@quietly
def iterate(law: FiniteLaw, size: int, *, side: Side) -> FiniteLaw:
    """The law of a chain of `size` neighbours: an upper or a lower bound, by `side`."""
    square, result, left = _polygon_of(law, side), None, size
    while left:
        if left & 1:
            result = square if result is None else _composed(square, result, side)
        left >>= 1
        if left:
            square = _composed(square, square, side)
    assert result is not None
    return law_of(result, law.relative_error * size + 64 * UNIT_ROUNDOFF * size, side=side)


def _polygon_of(law: FiniteLaw, side: Side) -> Polygon:
    """The power function of a finite law, moved outwards by the error of its masses."""
    first, second, _ = law.tails(all_below(law.losses))
    keep = law.masses > 0
    # second = e^loss × level.
    level = (np.log(second[keep]) - law.losses[keep])[::-1]
    power = np.log(first[keep])[::-1]
    level, power = np.append(-np.inf, level), np.append(np.log(law.infinity), power)
    error = 2 * law.relative_error + _rounding(level, power)
    if side == "upper":
        level, power = np.minimum(level - error, 0.0), power + error
        return Polygon(np.append(level, 0.0), np.append(power, max(float(power[-1]), 0.0)))
    # In a lower bound the levels may sum to more than 1: the polygon ends at level 1, where every power function is 1.
    level, power = level + error, np.minimum(power - error, 0.0)
    end = float(_read(np.zeros(1), level, power)[0]) if level[-1] >= 0 else 0.0
    inner = level < 0
    return Polygon(np.append(level[inner], 0.0), np.append(power[inner], end))


def _composed(outer: Polygon, inner: Polygon, side: Side) -> Polygon:
    """The power function of `outer` applied to the power function of `inner`."""
    # Its kinks are the kinks of the inner polygon, and the points where the inner one reaches a kink of the outer one.
    reached = outer.level[(outer.level > inner.power[0]) & (outer.level < inner.power[-1])]
    level = np.unique(np.concatenate((inner.level, _read(reached, inner.power, inner.level))))
    middle = _read(level, inner.level, inner.power)
    power = _read(middle, outer.level, outer.power)
    error = _rounding(level, middle, power)
    power = np.maximum.accumulate(power + error if side == "upper" else power - error)
    return Polygon(level, power)


def _rounding(*logs: Floats) -> float:
    """An upper bound on the relative rounding error of one composition.

    It evaluates two polygons. Each evaluation adds four logarithms l, each with an error of |l| u, and takes four
    functions of numbers of size 1. Earlier errors are not magnified, because a concave function from 0 has elasticity
    at most 1.
    """
    largest = max((float(np.max(np.abs(each[np.isfinite(each)]), initial=1.0)) for each in logs), default=1.0)
    return 16 * UNIT_ROUNDOFF * (1 + largest)


def _read(at: Floats, x: Floats, y: Floats) -> Floats:
    """The log of the piecewise linear function through (e^x, e^y) at e^at; constant beyond the last point."""
    cell = np.clip(np.searchsorted(x, at, side="right") - 1, 0, len(x) - 2)
    x0, x1, y0, y1 = x[cell], x[cell + 1], y[cell], y[cell + 1]
    # The share of the cell to the left of `at` is e^(at-x1) (1 - e^(x0-at)) / (1 - e^(x0-x1)).
    share = (at - x1) + np.log(np.expm1(np.minimum(x0 - at, 0.0)) / np.expm1(x0 - x1))
    ratio = y0 - y1
    value = y1 + np.logaddexp(ratio, np.log(-np.expm1(ratio)) + np.minimum(share, 0.0))
    return np.where(at >= x[-1], y[-1], np.where(at <= x[0], y[0], np.where(at == x0, y0, value)))


@quietly
def law_of(polygon: Polygon, relative_error: float, *, side: Side) -> FiniteLaw:
    """The law whose power function is the least concave function above the points.

    In a lower bound that function joins points that are real tests, so it stays a lower bound. Sorting the segments by
    slope instead would construct a polygon above it from rounding errors.
    """
    level, power = polygon.level, np.maximum.accumulate(polygon.power)
    # Of several points at one level, the largest power counts.
    last = np.append(level[1:] > level[:-1], True)
    level, power = level[last], power[last]
    while True:
        mass = power[1:] + np.log(-np.expm1(power[:-1] - power[1:]))
        loss = mass - (level[1:] + np.log(-np.expm1(level[:-1] - level[1:])))
        # A point below the chord of its neighbours is not a vertex of the concave function.
        inside = np.flatnonzero(~(loss[1:] <= loss[:-1])) + 1
        if not len(inside):
            break
        level, power = np.delete(level, inside), np.delete(power, inside)
    keep = np.isfinite(loss)
    masses = np.exp(mass[keep])[::-1]
    if side == "upper":
        masses = np.maximum(masses, TINY)
    losses, positive = loss[keep][::-1], masses > 0
    return FiniteLaw(losses[positive], masses[positive], min(float(np.exp(power[0])), 1.0), relative_error)
