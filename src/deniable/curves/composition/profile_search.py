"""Searches on bounds that are proved at every ε.

Each search returns a point at which the bound was evaluated, so it needs no error analysis of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from deniable.curves.composition.tilt_plan import log_best_gap
from deniable.curves.outward_rounding import Floats

PRECISION = 1e-12
"""Relative precision at which the search for an ε stops."""


def smallest(profile: Callable[[Floats], Floats], delta: float, highest: float) -> float:
    """The smallest ε >= 0 that the search tried with profile(ε) <= delta, for a non-increasing upper bound `profile`;
    inf if the search passes 1e300. The profile was evaluated at the returned ε.
    """
    if float(profile(np.array([0.0]))[0]) <= delta:
        return 0.0
    low, high = 0.0, highest if math.isfinite(highest) else 1.0
    while not math.isfinite(highest) and float(profile(np.array([high]))[0]) > delta and high < 1e300:
        low, high = high, high * 4
    for _ in range(9):
        grid = np.linspace(low, high, 130)
        small = profile(grid) <= delta
        first = int(np.argmax(small)) if np.any(small) else len(grid) - 1
        low, high = float(grid[max(first - 1, 0)]), float(grid[first])
        if high - low <= PRECISION * high:
            break
    return high if high < 1e300 else math.inf


def largest(profile: Callable[[Floats], Floats], delta: float, low: float, high: float) -> float:
    """The largest ε in [low, high] that the search tried with profile(ε) > delta, for a lower bound `profile`; 0 if it
    tried none. The bound was evaluated at the returned ε.
    """
    best = 0.0
    for _ in range(9):
        grid = np.linspace(low, high, 130)
        passing = np.flatnonzero(profile(grid) > delta)
        if not len(passing):
            break
        last = int(passing[-1])
        best = max(best, float(grid[last]))
        low, high = float(grid[last]), float(grid[min(last + 1, len(grid) - 1)])
        if high - low <= PRECISION * high:
            break
    return best


def least_over_orders(function: Callable[[float], float]) -> float:
    """The smallest value on a grid of log-orders and by golden section around it (every order gives a valid bound)."""
    grid = np.linspace(-9.0, 12.0, 43)
    values = [function(float(t)) for t in grid]
    best = int(np.argmin(values))
    low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, 42)])
    smallest = float(values[best])
    for _ in range(40):
        a, b = low + 0.382 * (high - low), low + 0.618 * (high - low)
        fa, fb = function(a), function(b)
        smallest = min(smallest, fa, fb)
        if fa < fb:
            high = b
        else:
            low = a
    return smallest


def renyi_epsilon(divergence: Callable[[float], float], delta: float) -> float:
    """An upper bound on ε(δ) from Rényi divergences, for δ in (0, 1); inf at δ = 0, or if every
    divergence is infinite.
    """
    if delta <= 0:
        return math.inf

    def bound(log_s: float) -> float:
        s = math.exp(log_s)
        return divergence(s + 1) + (log_best_gap(s) - math.log(delta)) / s

    return max(least_over_orders(bound), 0.0) * (1 + 1e-12)
