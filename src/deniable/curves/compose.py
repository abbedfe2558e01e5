"""Composition: the one place where laws are multiplied.

`plan` chooses a tilt θ, a lattice step h and a window for a wanted ε or δ; `compose` multiplies the lattice laws of all factors by
FFT and returns a `Panel`: certified bounds on the finite part of δ(ε) for every ε, sharp near the wanted one.

With a_i the masses of one factor on {o + ih}, K(θ) = log Σ a_i e^(θ l_i) and w_i = a_i e^(θ l_i - K), the product of factors has masses
P(J) = y_J e^(K_total - θ l_J), where y is the convolution of all w. For l_J > ε the weights e^(-θ l_J) shrink, so an absolute error
in y becomes an error relative to δ(ε) e^(...): this is what makes δ = 1e-30 readable in double precision.

The ledger of everything that can go wrong (docs/theory/certified-curves.md derives each line):

    aliasing     tilted mass outside the window, bounded by Chernoff on the lattice laws themselves
    round-off    FFT, pointwise powers and inverse FFT, bounded in the 2-norm
    sums         suffix sums of n positive numbers, n roundings
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deniable.curves import lattice
from deniable.curves.laws.base import Law
from deniable.curves.lattice import GridLaw
from deniable.curves.rounding import UNIT_ROUNDOFF, Floats

Side = Literal["upper", "lower"]
Complexes = NDArray[np.complex128]

FFT_CONSTANT = 8.0
"""Relative 2-norm error of one FFT of length N is at most FFT_CONSTANT u log2 N (ADR 0003: Higham 2002, Theorem 24.2)."""

LARGEST_WINDOW = 2**21
"""Longest FFT: keeps a reading under 300 MB."""

SKETCH_POINTS = 1200
SKETCH_TAIL = 1e-70


class Factor(NamedTuple):
    """A law and how many times it runs."""

    law: Law
    count: int


class Cumulant(NamedTuple):
    """K(θ) = log E e^(θL), its slope and its curvature, summed over all factors."""

    value: float
    slope: float
    curvature: float


@lru_cache(maxsize=4096)
def sketch(law: Law) -> GridLaw:
    """A coarse dominating grid law: for planning, for Chernoff bounds and for Rényi divergences."""
    return lattice.above(law, lattice.spread_points(law, SKETCH_TAIL, SKETCH_POINTS))


def cumulant(laws: Sequence[tuple[GridLaw, int]], theta: float) -> Cumulant:
    """Cumulant of the finite part of a product of grid laws."""
    value = slope = curvature = 0.0
    for grid, count in laws:
        exponent = theta * grid.losses
        top = float(np.max(exponent))
        weights = grid.masses * np.exp(exponent - top)
        total = float(np.sum(weights))
        if total <= 0:
            return Cumulant(-math.inf, 0.0, 0.0)
        mean = float(np.dot(weights, grid.losses)) / total
        square = float(np.dot(weights, (grid.losses - mean) ** 2)) / total
        value += count * (top + math.log(total))
        slope += count * mean
        curvature += count * square
    return Cumulant(value, slope, curvature)


def log_best_gap(theta: float) -> float:
    """log max_l e^(-θl)(1 - e^(-l)) = θ log θ - (1+θ) log(1+θ): the constant of the sharp Chernoff bound on δ."""
    return (theta * math.log(theta) if theta > 0 else 0.0) - (1 + theta) * math.log1p(theta)


class Target(NamedTuple):
    """Where a panel is to be sharp: the tilt, the loss that goes with it, and log δ there (an upper estimate)."""

    theta: float
    epsilon: float
    log_delta: float


def aim_at_epsilon(laws: Sequence[tuple[GridLaw, int]], epsilon: float) -> Target:
    """The tilt whose mean loss is `epsilon` (0 if the untilted mean is already beyond it)."""
    low, high = 0.0, 1.0
    if cumulant(laws, 0.0).slope >= epsilon:
        return Target(0.0, epsilon, 0.0)
    while cumulant(laws, high).slope < epsilon and high < 1e9:
        low, high = high, high * 4
    for _ in range(40):
        middle = 0.5 * (low + high)
        if cumulant(laws, middle).slope < epsilon:
            low = middle
        else:
            high = middle
        if high - low < 1e-3 * high:
            break
    theta = 0.5 * (low + high)
    bound = cumulant(laws, theta).value - theta * epsilon + log_best_gap(theta)
    return Target(theta, epsilon, min(bound, 0.0))


def aim_at_delta(laws: Sequence[tuple[GridLaw, int]], delta: float) -> Target:
    """The tilt of the sharp Chernoff (Rényi) bound for `delta`, and the ε of that bound: a valid upper bound by itself."""
    log_delta = math.log(delta)

    def bound(log_theta: float) -> float:
        theta = math.exp(log_theta)
        return (cumulant(laws, theta).value - log_delta + log_best_gap(theta)) / theta

    grid = np.linspace(-9.0, 16.0, 26)
    values = [bound(t) for t in grid]
    best = int(np.argmin(values))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, 25)]
    golden = (math.sqrt(5) - 1) / 2
    c, d = high - golden * (high - low), low + golden * (high - low)
    fc, fd = bound(c), bound(d)
    for _ in range(16):
        if fc < fd:
            high, d, fd = d, c, fc
            c = high - golden * (high - low)
            fc = bound(c)
        else:
            low, c, fc = c, d, fd
            d = low + golden * (high - low)
            fd = bound(d)
    at, value = (c, fc) if fc < fd else (d, fd)
    return Target(math.exp(at), value, log_delta)


@lru_cache(maxsize=64)
def lattice_law(law: Law, side: Side, step: float, tail: float) -> GridLaw:
    """A law on the lattice {offset + i step}, above or below it; the offset puts its highest atom on the lattice."""
    low, high = lattice.reach(law, tail)
    if side == "lower" and law.atoms:
        # A grid point above the highest loss would be worthless below the law: stay below it by its own rounding error.
        error = float(np.max(law.tails(np.array([law.highest - step / 2])).error)) if math.isfinite(law.highest) else 0.0
        anchor = law.atoms[0] - 8 * error - 1e-15 * (1 + abs(law.atoms[0]))
    else:
        anchor = law.atoms[0] if law.atoms else 0.0
    below = math.ceil((anchor - low) / step - 1e-9)
    beyond = max(math.ceil((high - anchor) / step - 1e-9), 0)
    points = anchor + step * np.arange(-below, beyond + 1, dtype=float)
    if len(points) < 2:
        points = np.array([anchor - step, anchor])
    return (lattice.above if side == "upper" else lattice.below)(law, points)


@dataclass(frozen=True, slots=True)
class Panel:
    """A certified bound on δ(ε) for every ε, from one FFT, sharp near the centre of its window.

    δ(ε) = e^(log_scale) (heads[j] - e^(ε - centre) seconds[j]) with j the first lattice point above ε, ± the slack.
    """

    side: Side
    theta: float
    centre: float
    start: float
    step: float
    log_scale: float
    heads: Floats
    seconds: Floats
    noise: float
    alias: float
    left_out: float
    right_out: float
    relative: float
    infinity: float

    def delta(self, epsilon: Floats) -> Floats:
        """The bound on δ(ε), infinite loss included."""
        return self.finite_delta(epsilon) + self.infinity

    def finite_delta(self, epsilon: Floats) -> Floats:
        """The bound on δ(ε) without the mass at infinity: an upper bound or a lower bound, as `side` says."""
        n = len(self.heads) - 1
        # Positions are known to a few roundings: read a hair to the safe side.
        blur = 16 * UNIT_ROUNDOFF * (np.abs(epsilon) + abs(self.start) + n * self.step)
        sign = -1.0 if self.side == "upper" else 1.0
        at = epsilon + sign * blur
        index = np.clip(np.floor((at - self.start) / self.step) + 1, 0, n).astype(np.int64)
        heads, seconds = self.heads[index], self.seconds[index]
        with np.errstate(over="ignore", invalid="ignore"):
            raw = heads - np.exp(np.minimum(at - self.centre, 700.0)) * seconds
            rounding = (n + 64) * UNIT_ROUNDOFF * 2 * heads
            # ‖weights‖₂ over lattice points above ε: a geometric series in e^(-2θh), at most n + 1 terms.
            terms = min(n + 1.0, 1.0 / max(-math.expm1(-2 * self.theta * self.step), 1e-300))
            weight = np.exp(np.clip(-self.theta * (np.maximum(at, self.start) - self.centre), -745.0, 700.0))
            noise = self.noise * math.sqrt(terms) * weight
            if self.side == "upper":
                left = np.where(at < self.start, np.exp(np.clip(-self.theta * (at - self.centre), -745.0, 700.0)), 0.0)
                inner = np.maximum(raw, 0.0) + rounding + noise + self.right_out + self.left_out * left
            else:
                inner = np.maximum(raw - rounding - noise - self.alias * weight, 0.0)
            result = np.exp(self.log_scale) * inner if self.log_scale > -600 else np.exp(self.log_scale + np.log(inner + 1e-300))
        return np.asarray(result * (1 + self.relative if self.side == "upper" else 1 - self.relative))


def compose(factors: Sequence[Factor], side: Side, theta: float, step: float, tail: float) -> Panel | None:
    """Multiply the lattice laws of all factors, tilted by θ. None if the window would be too long."""
    grids = [(lattice_law(f.law, side, step, tail), f.count) for f in factors]
    total = cumulant(grids, theta)
    if not math.isfinite(total.value):
        return None
    spread = math.sqrt(total.curvature) + step
    up = _tail_reach(grids, theta, total, spread, +1.0)
    down = _tail_reach(grids, theta, total, spread, -1.0)
    length = 2 ** max(6, math.ceil(math.log2((up.reach + down.reach) / step + 4)))
    if length > LARGEST_WINDOW:
        return None
    # The window [start, start + (length-1) step] holds the tilted mean with `down.reach` below and `up.reach` above it.
    base = math.fsum(count * float(grid.losses[0]) for grid, count in grids)
    first = math.floor((total.slope - down.reach - base) / step) - 1
    spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
    norm_terms, steps = 0.0, 0
    for grid, count in grids:
        hat, norm = _tilted_spectrum(grid, theta, length)
        spectrum *= power(hat, count)
        norm_terms += count * norm
        steps += count
    raw = np.fft.irfft(spectrum, length)
    masses = np.maximum(np.roll(raw, -(first % length)), 0.0)
    start = base + first * step
    logs = math.log2(length)
    forward = FFT_CONSTANT * UNIT_ROUNDOFF * logs
    # Relative error of every tilted mass: one exp of a number of size |θ l - K|.
    tilt = sum(
        c * UNIT_ROUNDOFF * (8 + 4 * abs(theta) * float(np.max(np.abs(g.losses[[0, -1]])))) for g, c in grids
    )
    amplify = math.exp(min(forward * math.sqrt(length) * norm_terms, 50.0))
    norm = float(np.sqrt(np.sum(masses * masses)))
    noise = amplify * (forward * norm_terms + (forward + tilt + 8 * UNIT_ROUNDOFF * steps) * norm) + 1e-38
    centre = total.slope
    offsets = start + step * np.arange(length) - centre
    heads = masses * np.exp(np.clip(-theta * offsets, -745.0, 700.0))
    seconds = masses * np.exp(np.clip(-(theta + 1) * offsets, -745.0, 700.0))
    heads = np.append(np.cumsum(heads[::-1])[::-1], 0.0)
    seconds = np.append(np.cumsum(seconds[::-1])[::-1], 0.0)
    alive = sum(c * math.log1p(-min(g.infinity, 1 - 1e-16)) for g, c in grids)
    infinity = -math.expm1(alive)
    return Panel(
        side=side,
        theta=theta,
        centre=centre,
        start=start,
        step=step,
        log_scale=total.value - theta * centre,
        heads=heads,
        seconds=seconds,
        noise=noise * (1 + tilt),
        alias=up.mass + down.mass,
        left_out=down.mass,
        right_out=up.mass * math.exp(-theta * up.reach),
        relative=tilt + 32 * UNIT_ROUNDOFF * (abs(total.value) + abs(theta * centre) + 64),
        infinity=infinity * (1 + 1e-14) if side == "upper" else infinity * (1 - 1e-14),
    )


class _Reach(NamedTuple):
    reach: float
    mass: float


def _tail_reach(grids: Sequence[tuple[GridLaw, int]], theta: float, total: Cumulant, spread: float, sign: float) -> _Reach:
    """Distance from the tilted mean beyond which the tilted mass is at most 1e-10, by Chernoff on the lattice laws."""
    goal = math.log(1e-10)
    best = math.inf
    for z in (2.5, 4.0, 6.8):
        s = sign * z / spread
        value = cumulant(grids, theta + s).value
        distance = (value - total.value - s * total.slope - goal) / abs(s)
        best = min(best, distance)
    # The exponents carry rounding errors of their own: grant them.
    return _Reach(best, 1e-10 * 1.001)


def _tilted_spectrum(grid: GridLaw, theta: float, length: int) -> tuple[Complexes, float]:
    """rfft of the tilted masses wrapped to `length`, and their 2-norm."""
    exponent = theta * grid.losses
    exponent -= np.max(exponent)
    weights = grid.masses * np.exp(exponent)
    weights /= np.sum(weights)
    norm = float(np.sqrt(np.sum(weights * weights)))
    if len(weights) > length:
        padded = np.zeros(-(-len(weights) // length) * length)
        padded[: len(weights)] = weights
        weights = padded.reshape(-1, length).sum(axis=0)
    return np.fft.rfft(weights, length), norm


def power(spectrum: Complexes, count: int) -> Complexes:
    """Pointwise power by squaring, only where the result is not negligible (below 1e-40 it counts as 0, in the ledger)."""
    if count == 1:
        return spectrum
    size = np.abs(spectrum)
    active = size > math.exp(-92.0 / count)
    result = np.zeros_like(spectrum)
    base = spectrum[active]
    out = np.ones_like(base)
    while count:
        if count & 1:
            out *= base
        count >>= 1
        if count:
            base = base * base
    result[active] = out
    return result
