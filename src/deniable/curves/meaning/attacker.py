"""A curve from the attacker's side: the trade-off function β(α) and the equal error rate, from bounds on δ(ε)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from deniable.curves.composition.law_product import Product
from deniable.curves.meaning.curve_readings import direction_delta, product_of
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats, Side, ordered, quietly

if TYPE_CHECKING:
    from deniable.curves.curve import Curve


def end_of(product: Product, smallest: float) -> float:
    """An ε beyond which δ(ε) <= smallest; at most the largest loss."""
    if product.needs_panels:
        left = smallest - product.infinity("upper")
        found = product.aim(left).epsilon if left > 0 else math.inf
    else:
        found = product.epsilon_above(smallest) if smallest > product.infinity("upper") else math.inf
    if not math.isfinite(found):
        found = product.highest if math.isfinite(product.highest) else product.aim(smallest).epsilon
    return max(found, 1e-6)


class SearchedProfile:
    """Bounds on δ of one direction, for functions that search over ε. The search range ends where δ falls below
    `smallest`.
    """

    def __init__(self, ahead: Product, back: Product, smallest: float, blur: float = 0.0) -> None:
        self.ahead, self.back, self.blur = ahead, back, blur
        # e^ε must not overflow.
        self.right, self.left = (min(self._end(p, smallest), 690.0) for p in (ahead, back))

    @staticmethod
    def _end(product: Product, smallest: float) -> float:
        """The end of the search range, moved out to the next kink: the best test changes at kinks."""
        end = end_of(product, smallest)
        beyond = product.kinks[product.kinks >= end]
        return float(np.min(beyond)) if len(beyond) else end

    def grid(self, count: int) -> Floats:
        """About `count` points over the search range, dense around 0, and all kinks."""
        scale = min(1.0, self.left, self.right) / 2
        ends = -math.asinh(self.left / scale), math.asinh(self.right / scale)
        points = scale * np.sinh(np.linspace(*ends, count))
        kinks = np.concatenate((self.ahead.kinks, -self.back.kinks))
        inside = kinks[(kinks >= -self.left) & (kinks <= self.right)]
        return np.unique(np.concatenate((points, inside, [0.0, -self.left, self.right])))

    def delta(self, epsilon: Floats, side: Side) -> Floats:
        return direction_delta(self.ahead, self.back, epsilon, side, self.blur)


@quietly
def beta_bounds(curve: Curve, alpha: Floats) -> tuple[Floats, Floats]:
    """Certified bounds on the trade-off function: the attacker's smallest miss rate at false-alarm rate alpha.

    β(α) = sup_x 1 - δ(x) - xα over x = e^ε > 0, for each direction; then the smaller of the two directions. The
    function is concave in x: any x gives a lower bound, and lines through neighbouring values bound it from above
    between grid points.
    """
    forward, backward = product_of(curve)
    low, high = beta_of(forward, backward, alpha)
    if backward is not forward:
        low2, high2 = beta_of(backward, forward, alpha)
        low, high = np.minimum(low, low2), np.minimum(high, high2)
    return low, high


@quietly
def beta_of(ahead: Product, back: Product, alpha: Floats) -> tuple[Floats, Floats]:
    """`beta_bounds` for one direction."""
    # α = 0 and α = 1 are exact: without false alarms only outcomes of infinite loss are detected, and β(1) = 0.
    inner = alpha[(alpha > 0) & (alpha < 1)]
    smallest = float(np.min(np.minimum(inner, 1 - inner), initial=0.5))
    profile = SearchedProfile(ahead, back, max(smallest * 1e-4, 1e-30), smallest * 1e-4)
    coarse = profile.grid(600)
    rough_high = profile.delta(coarse, "upper")
    low, high = np.zeros_like(alpha), np.ones_like(alpha)
    for i, a in enumerate(alpha):
        if a in (0.0, 1.0):
            low[i] = max(1 - ahead.infinity("upper") - UNIT_ROUNDOFF, 0.0) if a == 0 else 0.0
            high[i] = 1 - ahead.infinity("lower") + UNIT_ROUNDOFF if a == 0 else 0.0
            continue
        value = 1 - rough_high - np.exp(coarse) * a
        points = coarse
        for width in (4, 3, 2):
            fine = np.linspace(*_around_highest(points, value, width), 80)
            points = np.unique(np.concatenate((points, fine)))
            d = profile.delta(points, "upper")
            value = 1 - d - np.exp(points) * a
        # Three rounding errors of numbers that are at most 1 where the value is positive.
        low[i] = max(float(np.max(value)) - 4 * UNIT_ROUNDOFF, 0.0)
        over = 1 - profile.delta(points, "lower") - np.exp(points) * a
        ends = (ahead.infinity("lower"), back.infinity("lower"))
        high[i] = _concave_bound(points, over, value, a, ends)
    return ordered(low, np.clip(high, 0.0, np.minimum(1 - alpha + UNIT_ROUNDOFF, 1.0)))


def _around_highest(points: Floats, value: Floats, width: int) -> tuple[float, float]:
    """The points `width` places to either side of the highest value. Kinks may lie within rounding of each other, so
    all values that rounding cannot distinguish count as highest.
    """
    high = np.flatnonzero(value >= np.max(value) - 1e-13)
    return float(points[max(high[0] - width, 0)]), float(points[min(high[-1] + width, len(points) - 1)])


@quietly
def polygon_below(ahead: Product, back: Product, count: int = 400) -> tuple[Floats, Floats]:
    """Vertices (α, β) of a polygon below the trade-off function that touches it at many points.

    Every x = e^ε gives a line 1 - δ(x) - xα below β; the polygon is the highest of `count` such lines at every α.
    (Straight lines between points of β would lie above it.)
    """
    profile = SearchedProfile(ahead, back, 1e-9)
    points = profile.grid(count)
    x, start = np.exp(points), 1 - profile.delta(points, "upper")
    # The upper envelope of the lines start - x α and the horizontal line β = 0, from flat to steep.
    lines = [(0.0, 0.0)]
    corners = [1.0]
    for slope, height in zip(x.tolist(), start.tolist(), strict=True):
        while True:
            other, level = lines[-1]
            meets = (height - level) / (slope - other) if slope > other else -1.0
            if len(lines) > 1 and meets >= corners[-1]:
                lines.pop()
                corners.pop()
                continue
            break
        if meets > 0:
            lines.append((slope, height))
            corners.append(min(meets, 1.0))
    alpha = np.array([0.0, *corners[:0:-1], 1.0])
    # Three rounding errors of numbers that are at most 1 where a line is above 0.
    beta = np.max([np.maximum(h - s * alpha - 4 * UNIT_ROUNDOFF, 0.0) for s, h in lines], axis=0)
    return alpha, np.minimum(beta, 1 - alpha)


def _concave_bound(points: Floats, over: Floats, under: Floats, alpha: float, ends: tuple[float, float]) -> float:
    """An upper bound on a concave function of x = e^ε from bounds at points: lines through neighbours, extended
    inwards.

    Lines through near neighbours magnify the width of the bounds, lines through far ones miss the curvature. Every
    choice of points is valid, and the best one is taken.
    """
    found = [math.inf]
    for apart in (1e-12, 1e-5, 1e-4, 1e-3, 1e-2):
        keep = np.concatenate(([True], np.diff(points) > apart * (1 + np.abs(points[1:]))))
        if np.count_nonzero(keep) > 2:
            found.append(_by_lines(points[keep], over[keep], under[keep], alpha, ends))
    return min(found)


def _by_lines(points: Floats, over: Floats, under: Floats, alpha: float, ends: tuple[float, float]) -> float:
    """`_concave_bound` for one choice of points."""
    x = np.exp(points)
    # A value 1 - δ - xα has a rounding error of a few units of 1 + xα. Its bounds are widened by that first, because a
    # line through near points magnifies the errors of its ends, and a long cell multiplies them again.
    slack = 8 * UNIT_ROUNDOFF * (1 + x * alpha)
    over, under = over + slack, under - slack
    gap = np.diff(x)
    shortest = gap - 4 * UNIT_ROUNDOFF * x[1:]
    left = np.full(len(x) - 1, np.inf)
    right = np.full(len(x) - 1, np.inf)
    slope = np.where(shortest > 0, (over[1:] - under[:-1]) / shortest, np.inf)
    left[1:] = slope[:-1]
    back = np.where(shortest > 0, (over[:-1] - under[1:]) / shortest, np.inf)
    right[:-1] = back[1:]
    # In cell i: value <= over[i] + left*(x - x_i) and value <= over[i+1] + right*(x_(i+1) - x); best of the worst
    # crossing.
    at_left = over[:-1] + np.maximum(left, 0.0) * gap
    at_right = over[1:] + np.maximum(right, 0.0) * gap
    with np.errstate(invalid="ignore", divide="ignore"):
        crossing = (over[1:] - over[:-1] + right * gap) / (left + right)
        inside = over[:-1] + left * crossing
        # The point where the lines meet has a rounding error of a few units of the cell; the height there has that
        # error times the flatter slope.
        inside += 8 * UNIT_ROUNDOFF * (np.abs(over[:-1]) + np.abs(over[1:]) + np.minimum(left, right) * gap)
    usable = np.isfinite(inside) & (crossing >= 0) & (crossing <= gap) & (left > 0) & (right > 0)
    cells = np.where(usable, inside, np.minimum(at_left, at_right))
    # Left of the first point δ(x) >= δ(x_0), because δ falls, and δ(x) >= 1 - x. Right of the last point a concave
    # function that has begun to fall continues to fall; if it has not, 1 - xα bounds it.
    beyond_left = min(float(over[0] + x[0] * alpha), float(x[0]) * (1 - ends[1] - alpha))
    falls = float(np.max(under[:-1])) >= float(over[-1])
    beyond_right = float(over[-1]) if falls else 1 - ends[0] - float(x[-1]) * alpha
    return float(max(np.max(cells), np.max(over), beyond_left, beyond_right, 0.0)) + 8 * UNIT_ROUNDOFF


@quietly
def equal_error_rate(curve: Curve) -> float:
    """A lower bound on γ with β(γ) = γ: sup over ε of (1 - δ(ε))/(1 + e^ε); the same in both directions."""
    forward, backward = product_of(curve)
    profile = SearchedProfile(forward, backward, 1e-12, 1e-7)
    points = profile.grid(400)
    best_value = 0.0
    for _ in range(4):
        value = (1 - profile.delta(points, "upper")) / (1 + np.exp(points))
        best_value = max(best_value, float(np.max(value)))
        points = np.linspace(*_around_highest(points, value, 1), 40)
    return best_value * (1 - 8 * UNIT_ROUNDOFF)


@quietly
def loss_quantile(curve: Curve, allowed: float) -> float:
    """An upper bound on the smallest ε with P(L > ε) <= allowed in both directions.

    P(L > ε) <= δ(ε')/(1 - e^(ε'-ε)) for every ε' < ε, hence ε = ε' - log(1 - δ(ε')/allowed) for any ε' with δ(ε') <
    allowed.
    """
    start = float(curve.epsilon(delta=allowed / 2))
    end = float(curve.epsilon(delta=allowed / 1e4))
    if not math.isfinite(start):
        return math.inf
    points = np.linspace(start, end if math.isfinite(end) else start + 1.0, 60)
    share = curve.delta(epsilon=points) / allowed
    usable = share < 1
    found = points[usable] - np.log1p(-share[usable])
    return float(np.min(found, initial=math.inf)) * (1 + 1e-14)
