"""How long the window of an FFT must be: bounds on the tilted mass beyond a distance from the tilted mean.

There are two bounds, and the shorter window is used. A Chernoff bound on the lattice laws suits losses with light
tails. Sampling at a small rate gives losses with a heavy tail. For these a union bound covers the event that a single
use exceeds a large loss, and a Chernoff bound covers the rest. Sketches (coarse grid laws, see `tilt_plan`) only
suggest exponents and losses; the bounds are evaluated on the lattice laws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from deniable.curves.composition import lattice
from deniable.curves.composition.lattice import GridLaw
from deniable.curves.composition.tilt_plan import SKETCH_TAIL, Cumulant, Factor, cut_of, sketch, sketched, tilted
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats

GENTLE = (0.2, 0.05, 0.0125, 0.003)
"""Chernoff exponents, in units of 1 / (standard deviation of the tilted law). They are tried in this order while they
narrow the window.
"""

FEW = 8
"""For at most this many factors, `likely_window` also tries the bound for heavy tails."""

JUMP_EXPONENTS = np.exp(np.linspace(-3.0, 6.0, 28))
"""Chernoff exponents for sums without large jumps, in units of 1 / (largest loss without a jump)."""


class WindowEnd(NamedTuple):
    """How far a window extends from the tilted mean to one side, and the tilted mass that may lie beyond it."""

    reach: float
    mass: float

    def within(self, support: float) -> WindowEnd:
        """The shorter of this reach and the distance to the end of the support, which has no mass beyond it."""
        return WindowEnd(support, 0.0) if support < self.reach else self


def sketch_cut(tail: float) -> float:
    """The tail of the sketches that plan a window for lattice laws with this tail."""
    return max(tail, SKETCH_TAIL)


def tail_reach(
    factors: Sequence[Factor],
    on_lattice: Callable[[float], Cumulant],
    theta: float,
    total: Cumulant,
    sign: float,
    outside: float,
    cut: float,
) -> WindowEnd:
    """Distance from the tilted mean beyond which the tilted mass is at most `outside`, by Chernoff on the lattice laws.

    The sketches suggest the exponent; the bound itself is evaluated on the lattice laws.
    """
    _, best = _likely_reach(factors, theta, total.curvature, sign, outside, cut)
    # Allow for the rounding errors of the exponent.
    value = on_lattice(theta + best).value
    doubt = 8 * UNIT_ROUNDOFF * (abs(value) + abs(total.value) + abs(best * total.slope))
    return WindowEnd(_chernoff_reach(value, total, best, outside), outside * 1.001 * math.exp(min(doubt, 700.0)))


def _chernoff_reach(value: float, at: Cumulant, exponent: float, outside: float) -> float:
    """Distance from the mean beyond which mass at most `outside` lies, by the cumulant `value` at one exponent."""
    return (value - at.value - exponent * at.slope - math.log(outside)) / abs(exponent)


def _likely_reach(
    factors: Sequence[Factor], theta: float, curvature: float, sign: float, outside: float, cut: float
) -> tuple[float, float]:
    """An estimate, from the sketches, of how far the window must reach on one side, and the exponent
    that attains it.
    """
    at = sketched(factors, theta, cut)
    # Rounded to a grid, so that similar questions use the same exponents and hit the cache.
    spread = 2.0 ** (round(4 * math.log2(math.sqrt(curvature) + 1e-300)) / 4)

    def reach(z: float) -> tuple[float, float]:
        s = sign * z / spread
        return _chernoff_reach(sketched(factors, theta + s, cut).value, at, s, outside), s

    best = min(map(reach, (0.8, 2.4, 4.8)))
    # A rare loss of many standard deviations (for example of a rare sample) makes large exponential moments explode:
    # try smaller exponents.
    for z in GENTLE:
        if abs(best[1]) * spread > 5 * z:
            break
        best = min(best, reach(z))
    return best


def _jump_exponents(
    sketches: Sequence[tuple[GridLaw, int]], theta: float, outside: float
) -> tuple[float, float, float]:
    """From the sketches: a loss `most` that any single use exceeds with tilted probability at most `outside` / 2, an
    exponent for the Chernoff bound on the uses below it, and the reach from the mean that this gives.
    """
    laws = [(grid.losses, *tilted(grid, theta), uses) for grid, uses in sketches]
    mean = math.fsum(uses * float(np.sum(weights * losses)) for losses, weights, _, uses in laws)
    losses = np.unique(np.concatenate([each[0] for each in laws]))
    jumps = np.zeros_like(losses)
    for points, weights, _, uses in laws:
        above = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
        jumps += uses * above[np.searchsorted(points, losses, "right")]
    most = float(losses[int(np.argmax(jumps <= outside / 2))])
    best = (math.inf, 0.0)
    for exponent in JUMP_EXPONENTS / max(most, 1e-300):
        value = math.fsum(
            uses * _log_moment_below(points, weights, most, exponent) for points, weights, _, uses in laws
        )
        best = min(best, ((value - math.log(outside / 2)) / exponent - mean, float(exponent)))
    return most, best[1], best[0]


def _log_moment_below(points: Floats, weights: Floats, most: float, exponent: float) -> float:
    """log Σ weights e^(exponent × loss) over the losses up to `most`."""
    end = int(np.searchsorted(points, most, "right"))
    return math.log(float(np.sum(weights[:end] * np.exp(exponent * (points[:end] - most)))) + 1e-300) + exponent * most


def reach_without_jumps(
    factors: Sequence[Factor],
    grids: Sequence[tuple[GridLaw, int]],
    theta: float,
    mean: float,
    outside: float,
    cut: float,
) -> WindowEnd:
    """The reach to the right by two events: one use exceeds a large loss (a union bound), or all are below it and their
    sum is too large (a Chernoff bound). Losses with heavy tails have no useful Chernoff bound of their own.
    """
    most, exponent, _ = _jump_exponents([(sketch(f.law, cut_of(f.law, cut)), f.uses) for f in factors], theta, outside)
    if exponent <= 0:
        return WindowEnd(math.inf, math.inf)
    jumps, value = 0.0, 0.0
    for grid, uses in grids:
        weights, _ = tilted(grid, theta)
        jumps += uses * float(np.sum(weights[int(np.searchsorted(grid.losses, most, "right")) :]))
        value += uses * _log_moment_below(grid.losses, weights, most, exponent)
    if jumps > outside:  # the sketch missed a point mass
        return WindowEnd(math.inf, math.inf)
    doubt = 1e-12 * (1 + abs(value) + abs(exponent * mean)) + 64 * UNIT_ROUNDOFF * sum(uses for _, uses in grids)
    reach = (value + doubt - math.log(outside / 2)) / exponent - mean
    return WindowEnd(reach, (jumps + outside / 2) * 1.001)


def likely_window(factors: Sequence[Factor], theta: float, outside: float, cut: float) -> float:
    """An estimate of the width, in units of loss, of the window that `compose` needs."""
    at = sketched(factors, theta, cut)
    lowest, highest = (
        math.fsum(f.uses * each[i] for f, each in ((f, lattice.reach(f.law, cut)) for f in factors)) for i in (0, 1)
    )
    down = min(_likely_reach(factors, theta, at.curvature, -1.0, outside, cut)[0], at.slope - lowest)
    up = min(_likely_reach(factors, theta, at.curvature, 1.0, outside, cut)[0], highest - at.slope)
    if len(factors) <= FEW:
        up = min(up, _jump_exponents([(sketch(f.law, cut_of(f.law, cut)), f.uses) for f in factors], theta, outside)[2])
    return up + down
