"""Upper bounds on the exponential moments of a law: log E exp(tL), the basis of Rényi divergences."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from deniable.curves.composition import lattice
from deniable.curves.laws.law import Law
from deniable.curves.outward_rounding import Floats


@lru_cache(maxsize=65536)
def log_moment(law: Law, order: float) -> float:
    """An upper bound on log E_P exp(order L), order >= 0; inf if the moment does not exist or cannot be bounded."""
    closed = law.moment(order)
    if closed is not None:
        return closed
    if law.infinity > 0 and order > 0:
        return math.inf
    return min(_on_grid(law, order), law.loose_moment(order))


def _on_grid(law: Law, order: float) -> float:
    """The moment of a dominating grid law plus a bound on what lies beyond the grid; inf where masses underflow."""
    points, tail = _points(law, order)
    if points is None:
        return math.inf
    grid = lattice.above(law, points)
    with np.errstate(divide="ignore"):
        exponent = order * grid.losses + np.log(grid.masses)
    best = int(np.argmax(exponent))
    if float(grid.masses[best]) < 1e-280:
        return math.inf
    top = max(float(exponent[best]), tail)
    total = float(np.sum(np.exp(exponent - top))) + math.exp(tail - top)
    return top + math.log(total) + 1e-14 * (1 + abs(top))


def _points(law: Law, order: float) -> tuple[Floats | None, float]:
    """Grid points that reach so far that the rest adds less than e^-45 to the moment, and the log of what the rest
    adds.
    """
    low, high = lattice.reach(law, 1e-30)
    tail = law.tail_moment(order, high)
    while tail is not None and tail > -45.0:
        high *= 1.5
        tail = law.tail_moment(order, high)
        if high > 1e12:
            return None, math.inf
    if tail is None:
        return None, math.inf
    dense = lattice.spread_points(law, 1e-14, 4000)
    even = np.linspace(low, high, 16000)
    return np.unique(np.concatenate((dense[(dense >= low) & (dense <= high)], even))), tail
