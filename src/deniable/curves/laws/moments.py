"""Exponential moments of a law, bounded from above: what Rényi divergences are made of."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from deniable.curves import lattice
from deniable.curves.laws.base import Law
from deniable.curves.rounding import Floats


@lru_cache(maxsize=65536)
def log_moment(law: Law, order: float) -> float:
    """An upper bound on log E_P exp(order L), order >= 0; inf if the moment does not exist or cannot be bounded."""
    closed = law.moment(order)
    if closed is not None:
        return closed
    if law.infinity > 0 and order > 0:
        return math.inf
    points, tail = _points(law, order)
    if points is None:
        return math.inf
    grid = lattice.above(law, points)
    exponent = order * grid.losses
    top = float(max(np.max(exponent), tail))
    total = float(np.sum(grid.masses * np.exp(exponent - top))) + math.exp(tail - top)
    return top + math.log(total) + 1e-14 * (1 + abs(top))


def _points(law: Law, order: float) -> tuple[Floats | None, float]:
    """Grid points that reach so far that what lies beyond adds nothing to the moment, and the log of what it adds."""
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
