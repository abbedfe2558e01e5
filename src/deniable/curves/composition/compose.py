"""Composition of privacy-loss distributions by FFT, with a proof that the result is a bound.

The problem. One direction of a mechanism is a pair (P, Q) of output distributions. Its privacy loss is L = log dP/dQ, a
random variable under P. If several mechanisms run on the same data, their losses are independent and add up, and

    δ(ε) = E max(0, 1 - e^(ε - L)),    L = L_1 + ... + L_k,    plus the probability that L is infinite.

So we need the distribution of a sum of independent variables. That is a convolution, and the FFT turns convolutions
into products: transform the masses of every L_i, multiply, transform back. There are three obstacles.

1. The FFT needs masses on a grid, but losses are real numbers. `lattice.above` and `lattice.below` replace each law
   by a grid law that leaks more and by one that leaks less. Products of the first kind bound δ from above (`side`
   "upper"), products of the second kind from below ("lower").
2. The FFT has an absolute error of about 1e-16, but a δ of interest may be 1e-30. So the masses are first tilted: the
   mass a_i at the loss l_i becomes w_i = a_i e^(θ l_i - K), with K = log Σ a_i e^(θ l_i). If y is the convolution of
   all tilted laws, the product has the mass y_J e^(K_total - θ l_J) at l_J. For l_J >= ε the factor is at most
   e^(K_total - θε). This is the Chernoff bound on P(L >= ε), which for a good θ is close to δ(ε) itself. An absolute
   error in y therefore becomes an error relative to δ(ε).
3. The sum of many losses has a long range, and an FFT of N points wraps what lies outside its window back into it
   (aliasing). The window is centred at the mean of the tilted sum and is so long that at most `outside` of the tilted
   mass falls beyond each end, by a Chernoff bound on the grid laws.

The steps. `LatticePlan` evaluates K(θ) on coarse grid laws ("sketches") and chooses the tilt for a wanted ε or δ.
`law_product.Product` chooses the grid step h. `compose` builds the grid laws, the window and the spectra, multiplies,
and returns a `DeltaPanel`: a bound on δ(ε) for every ε, sharp near the wanted one.

The panel carries a bound on each numerical error (docs/theory/certified-curves.md derives them):

    aliasing     tilted mass outside the window, by a Chernoff bound on the grid laws themselves
    round-off    FFT, pointwise powers and inverse FFT, in the 2-norm
    sums         suffix sums of n positive numbers, n roundings
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deniable.curves.composition import lattice
from deniable.curves.composition.delta_panel import DeltaPanel, SmallGaps
from deniable.curves.composition.lattice import GridLaw
from deniable.curves.composition.tilt_plan import Cumulant, Factor, added, cumulant, tilted
from deniable.curves.composition.window_reach import FEW, reach_without_jumps, sketch_cut, tail_reach
from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.laws.law import Law
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats, Side

Complexes = NDArray[np.complex128]

FFT_CONSTANT = 8.0
"""Relative 2-norm error of one FFT of length N is at most FFT_CONSTANT u log2 N (ADR 0003: Higham 2002, Theorem
24.2).
"""

MOST_REMEMBERED = 2**18
"""Longest lattice law or spectrum that is cached for the next call: 2 to 4 MB each."""

LARGEST_WINDOW = 2**21
"""Longest FFT: keeps the memory of one call under 300 MB."""

OUTSIDE = 1e-7
"""Tilted mass that may fall outside the window on either side of a first panel. It enters the error bound; refined
panels allow less.
"""

LEAST_OUTSIDE = 1e-13
"""Smallest mass outside the window that is worth asking for: below it the rounding errors of the FFT dominate."""

SMALL_LOSSES = 0.5
"""Up to this length of the window, δ is read from sums without cancellation."""

MOST_ROUNDING = 0.25
"""Largest relative error of a mass that a panel may have: about 10^14 uses reach it."""

MANY = 32
SHORTER = 8
"""From MANY factors on, short laws are multiplied in batches that fit into a window SHORTER times shorter."""


@lru_cache(maxsize=16384)
def _lattice_cumulant(law: Law, side: Side, step: float, tail: float, theta: float) -> Cumulant:
    return cumulant(lattice_law(law, side, step, tail), theta)


def lattice_law(law: Law, side: Side, step: float, tail: float) -> GridLaw:
    """The law on the lattice {offset + i step}: the lattice law dominates the law for side "upper" and is dominated by
    it for "lower". Short lattice laws are cached.
    """
    low, high = lattice.reach(law, tail)
    build = _remembered_lattice_law if (high - low) / step < MOST_REMEMBERED else _lattice_law
    return build(law, side, step, tail)


def _lattice_law(law: Law, side: Side, step: float, tail: float) -> GridLaw:
    """`lattice_law` without the cache. The offset puts the heaviest atom of the law on the lattice."""
    if side == "lower" and isinstance(law, FiniteLaw) and law.is_sparse(step):
        return _floored(law, step)
    low, high = lattice.reach(law, tail)
    if side == "lower" and high - low <= step and law.infinity == 0:
        return _merged(law, low, step)
    spike = lattice.spike(law, low, step) if side == "lower" and not law.atoms else None
    points = lattice_points(law, side, step, (low, high), spike)
    found = lattice.above(law, points) if side == "upper" else lattice.below(law, points, spike)
    last = float(found.masses[-1])
    if math.isfinite(law.highest) or last > 2 * tail:
        return found
    # Mass near the end of the lattice or beyond it is moved to the last point, where tilting would magnify it. An upper
    # bound counts this mass as infinite loss, a lower bound drops it.
    found.masses[-1] = 0.0
    return found._replace(infinity=min(found.infinity + last, 1.0)) if side == "upper" else found


def lattice_points(
    law: Law, side: Side, step: float, ends: tuple[float, float], spike: lattice.Spike | None = None
) -> Floats:
    """The lattice of `lattice_law` between the `ends` of the law's reach: it holds the heaviest atom or the spike."""
    low, high = ends
    anchor = law.atoms[0] if law.atoms else (0.0 if spike is None else spike.loss)
    is_highest = abs(law.highest - anchor) <= min(1e-9 * (1 + abs(anchor)), step)
    if side == "upper" and is_highest:
        anchor = law.highest  # rounded up, unlike the atom
    if side == "lower" and is_highest:
        # In a lower bound, a grid point above the highest loss carries no mass: place the last point below it, by the
        # rounding error of that loss.
        error = float(np.max(law.tails(np.array([anchor - step / 2])).error))
        anchor -= min(8 * error + 1e-15 * (1 + abs(anchor)), step)  # any lattice is valid
    below = math.ceil((anchor - low) / step - 1e-9)
    if spike is not None:
        below = max(below, 1)  # every loss exceeds the first point: some laws have nearly all mass at their least loss
    # In an upper bound, rounding must not put the last point below the largest loss.
    beyond = max(math.ceil((high - anchor) / step + (1e-9 if side == "upper" and high > anchor else -1e-9)), 0)
    points = anchor + step * np.arange(-below, beyond + 1, dtype=float)
    return points if len(points) >= 2 else np.array([anchor - step, anchor])


def _merged(law: Law, low: float, step: float) -> GridLaw:
    """All outcomes merged into one, at the log-ratio of the two total masses: a lower bound for laws narrower than one
    step.
    """
    at = low - step
    first, second, error = (float(np.asarray(one).ravel()[0]) for one in law.tails(np.array([at])))
    total, other = min(first * (1 - error), 1.0), second * (1 + error)
    if not 0 < other < total:
        return GridLaw(np.array([-step, 0.0]), np.zeros(2), 0.0)
    loss = at + math.log(total / other) - 1e-15 * (1 + abs(at))
    return GridLaw(np.array([loss - step, loss]), np.array([0.0, total]), 0.0)


_remembered_lattice_law = lru_cache(maxsize=64)(_lattice_law)


def _floored(law: FiniteLaw, step: float) -> GridLaw:
    """Every atom moved down to the lattice: a lower bound for laws with few, separate atoms. The offset is the one that
    moves the least mass.
    """
    if not len(law.losses):
        return GridLaw(np.array([-step, 0.0]), np.zeros(2), law.infinity)
    offsets = np.concatenate(([law.losses[int(np.argmax(law.masses))]], law.losses[-1:])) - 1e-6 * step
    offsets = np.concatenate((offsets, offsets[0] - step * np.linspace(0, 1, 64, endpoint=False)))
    heavy = np.argsort(-law.masses)[:2000]
    moved = np.mod(law.losses[None, heavy] - offsets[:, None], step)
    offset = float(offsets[int(np.argmin(np.sum(moved * law.masses[None, heavy], axis=1)))])
    index = np.floor((law.losses - offset) / step - 1e-12 * np.abs(law.losses) / step).astype(np.int64)
    index -= int(index[0])
    start = offset + step * math.floor(
        (float(law.losses[0]) - offset) / step - 1e-12 * abs(float(law.losses[0])) / step
    )
    floored = np.bincount(index, weights=law.masses)
    points: Floats = start + step * np.arange(max(len(floored), 2), dtype=float)
    masses = np.zeros_like(points)
    kept = max(1 - law.relative_error, 0.0)
    masses[: len(floored)] = floored * kept
    return GridLaw(points, masses, law.infinity * kept)


def compose(
    factors: Sequence[Factor],
    side: Side,
    theta: float,
    step: float,
    tail: float,
    outside: float = OUTSIDE,
    origin: float | None = None,
) -> DeltaPanel | None:
    """The product of the lattice laws of all factors, tilted by θ, as a certified bound on δ(ε).

    `tail` is the P-mass that each law may lose above its grid, `outside` the tilted mass that may fall beyond either
    end of the window. Near `origin` (by default the centre of the window) the powers of e^-loss neither overflow nor
    underflow. Returns None if the window would exceed `LARGEST_WINDOW`, or if there are so many uses that the rounding
    error would exceed `MOST_ROUNDING`.
    """
    grids = [(lattice_law(f.law, side, step, tail), f.uses) for f in factors]
    cut = sketch_cut(tail)

    def on_lattice(at: float) -> Cumulant:
        # A lattice law too long for the cache is built once, here, and not again for every exponent.
        return added(
            [
                (cumulant(g, at) if _is_long(g) else _lattice_cumulant(f.law, side, step, tail, at), n)
                for f, (g, n) in zip(factors, grids, strict=True)
            ]
        )

    total = on_lattice(theta)
    # Relative error of every tilted mass: one exp of a number of size |θ l|.
    tilt = sum(c * UNIT_ROUNDOFF * (8 + 4 * abs(theta) * float(np.max(np.abs(g.losses[[0, -1]])))) for g, c in grids)
    relative = tilt + 32 * UNIT_ROUNDOFF * (abs(total.value) + abs(theta * total.slope) + 64)
    if not (relative <= MOST_ROUNDING and math.isfinite(total.curvature)):
        return None
    lowest, highest = (math.fsum(c * float(g.losses[end]) for g, c in grids) for end in (0, -1))
    down = tail_reach(factors, on_lattice, theta, total, -1.0, outside, cut).within(total.slope - lowest)
    up = tail_reach(factors, on_lattice, theta, total, +1.0, outside, cut).within(highest - total.slope)
    if len(factors) <= FEW:
        up = min(up, reach_without_jumps(factors, grids, theta, total.slope, outside, cut))
    cells = (up.reach + down.reach) / step + 4
    if not 0 < cells <= LARGEST_WINDOW:
        return None
    length = 2 ** max(6, math.ceil(math.log2(cells)))
    # The window [start, start + (length-1) step] holds the tilted mean with `down.reach` below and `up.reach` above it.
    base = math.fsum(count * float(grid.losses[0]) for grid, count in grids)
    first = math.floor((total.slope - down.reach - base) / step) - 1
    start = base + first * step
    forward = FFT_CONSTANT * UNIT_ROUNDOFF * math.log2(length)
    spectrum, doubt = _multiplied(_spectra(factors, grids, side, step, tail, theta, length))
    origin = total.slope if origin is None else origin
    heads, seconds, stride, norm = _suffix_sums(
        spectrum, side, length, first, step, theta, start - total.slope, start - origin
    )
    steps = math.fsum(f.uses for f in factors)
    noise = doubt / math.sqrt(length) + (3 * forward + tilt + 8 * UNIT_ROUNDOFF * steps) * norm + 1e-36
    # ‖weights‖₂ over lattice points above ε: a geometric series in e^(-2θh), at most `length` terms.
    terms = min(float(length), 1.0 / max(-math.expm1(-2 * theta * step), 1e-300))
    alive = math.fsum(c * math.log1p(-min(g.infinity, 1 - 1e-16)) for g, c in grids)
    infinity = -math.expm1(alive)
    error = noise * (1 + tilt)
    gaps = None
    if stride == step and length * step <= SMALL_LOSSES:
        # Weights of masses at x above ε, and those of a line that is read one step away.
        x = step * np.arange(length)
        weights, away = np.exp(-theta * x), math.expm1(step)
        most = float(np.max(x * weights)) * (1 + 1e-9) + away
        gaps = SmallGaps(
            values=_suffix_gaps(heads, step),
            noise=error * (math.sqrt(float(np.sum((x * weights) ** 2))) * (1 + 1e-9) + away * math.sqrt(terms)),
            alias=(up.mass + down.mass) * most,
            right_out=up.mass * math.exp(-theta * up.reach) * min(1.0, (highest - start) * (1 + 1e-9)),
        )
    return DeltaPanel(
        side=side,
        theta=theta,
        centre=total.slope,
        origin=origin,
        start=start,
        step=step,
        stride=stride,
        spread=math.sqrt(total.curvature),
        length=length,
        log_scale=total.value - theta * total.slope,
        heads=heads,
        seconds=seconds,
        noise=error * math.sqrt(terms),
        alias=up.mass + down.mass,
        left_out=down.mass,
        right_out=up.mass * math.exp(-theta * up.reach),
        relative=relative,
        infinity=infinity * (1 + 1e-14) if side == "upper" else infinity * (1 - 1e-14),
        gaps=gaps,
    )


def _suffix_gaps(heads: Floats, step: float) -> Floats:
    """δ at every lattice point as a sum of positive terms: Σ_(j >= m) T_j (1 - e^-h) e^(l_m - l_j), with T_j the mass
    above l_j (lemma 2).
    """
    away = step * np.arange(len(heads) - 1)
    parts = heads[1:] * -math.expm1(-step) * np.exp(-away)
    return np.append(np.cumsum(parts[::-1])[::-1] * np.exp(away), 0.0)


def _suffix_sums(
    spectrum: Complexes,
    side: Side,
    length: int,
    first: int,
    step: float,
    theta: float,
    offset: float,
    from_origin: float,
) -> tuple[Floats, Floats, float, float]:
    """Suffix sums of y_J e^(-θ l) and y_J e^(-(θ+1) l) at every stride-th lattice point, the stride, and ‖y‖₂.

    Frequencies from len(spectrum) on are negligible, so y is smooth and sums over blocks of lattice points suffice: a
    block sum is the inverse FFT of the spectrum times the geometric sum of one block.

    Far from the origin e^-l overflows or underflows. Where it overflows, an upper bound uses too small a Q-mass, and a
    lower bound drops the points altogether; where it underflows, a lower bound uses too large a Q-mass. All three are
    on the safe side.
    """
    alive = len(spectrum)
    wanted = max(4 * alive, length * step * max(theta, 1.0) / 0.01, 2048)
    blocks = min(length, 2 ** math.ceil(math.log2(wanted)))
    size = length // blocks
    index = np.arange(alive, dtype=np.int64)
    frequency = index * (2 * math.pi / length)
    # Multiplying by e^(iω first) moves the start of the window to index 0. The phase is reduced modulo a full turn in
    # integers, without rounding.
    turned = spectrum * np.exp(1j * (2 * math.pi / length) * ((index * (first % length)) % length))
    away = step * size * np.arange(blocks)
    points = offset + away
    norm_squares = float(np.sum(np.abs(spectrum) ** 2)) * 2 / length
    sums = []
    # Far to the right both factors may underflow to 0.
    both = -theta * points - (from_origin + away)
    exponents = [np.maximum(-theta * points, -745.0), np.maximum(both, -745.0)]
    if side == "upper":
        exponents[1] = np.minimum(exponents[1], 700.0)
    else:
        known = np.maximum(np.abs(exponents[0]), exponents[1]) <= 600.0
        exponents[1] = np.maximum(exponents[1], -600.0)  # too large a Q-mass: the safe side
        exponents = [np.where(known, exponent, -np.inf) for exponent in exponents]
    for rate, exponent in zip((theta, theta + 1), exponents, strict=True):
        block = turned
        if size > 1:
            ratio = -rate * step + 1j * frequency
            flat = np.abs(ratio) < 1e-300
            kernel = np.where(flat, size, np.expm1(size * ratio) / np.where(flat, 1.0, np.expm1(ratio)))
            block = turned * kernel
        values = np.fft.irfft(block, blocks) / size if blocks > 1 else np.real(block)
        weighted = np.maximum(values, 0.0) * np.exp(exponent)
        sums.append(np.append(np.cumsum(weighted[::-1])[::-1], 0.0))
    return sums[0], sums[1], step * size, math.sqrt(norm_squares)


def _is_long(grid: GridLaw) -> bool:
    return len(grid.losses) > MOST_REMEMBERED


def _wrapped_spectrum(grid: GridLaw, theta: float, length: int) -> Complexes:
    """The rfft of the tilted masses of a lattice law, wrapped around a window of `length` points."""
    weights, _ = tilted(grid, theta)
    if len(weights) > length:
        padded = np.zeros(-(-len(weights) // length) * length)
        padded[: len(weights)] = weights
        weights = padded.reshape(-1, length).sum(axis=0)
    return np.fft.rfft(weights, length)


@lru_cache(maxsize=16)
def _remembered_spectrum(law: Law, side: Side, step: float, tail: float, theta: float, length: int) -> Complexes:
    return _wrapped_spectrum(lattice_law(law, side, step, tail), theta, length)


class Spectrum(NamedTuple):
    """The spectrum of one law or of a batch of laws, the power to raise it to, and a bound on the error
    of each value.
    """

    values: Complexes
    uses: int
    error: float


def _spectra(
    factors: Sequence[Factor],
    grids: Sequence[tuple[GridLaw, int]],
    side: Side,
    step: float,
    tail: float,
    theta: float,
    length: int,
) -> list[Spectrum]:
    """The spectra of all factors. Many short laws are first multiplied in batches, by short FFTs."""
    error = FFT_CONSTANT * UNIT_ROUNDOFF * math.log2(length)
    found: list[Spectrum] = []
    batch: list[GridLaw] = []
    room = length // SHORTER
    for factor, (grid, _) in zip(factors, grids, strict=True):
        if len(factors) >= MANY and factor.uses == 1 and len(grid.losses) <= length // (8 * SHORTER):
            if room < len(grid.losses):
                found.append(_batched(batch, theta, length))
                batch, room = [], length // SHORTER
            batch.append(grid)
            room -= len(grid.losses)
        else:
            if _is_long(grid) or length > 2 * MOST_REMEMBERED:
                values = _wrapped_spectrum(grid, theta, length)
            else:
                values = _remembered_spectrum(factor.law, side, step, tail, theta, length)
            found.append(Spectrum(values, factor.uses, error))
    if batch:
        found.append(_batched(batch, theta, length))
    return found


def _batched(batch: Sequence[GridLaw], theta: float, length: int) -> Spectrum:
    """The spectrum of the product of several laws whose supports add up to at most `length` / SHORTER points."""
    short = length // SHORTER
    error = FFT_CONSTANT * UNIT_ROUNDOFF * math.log2(length)
    product, doubt = _multiplied([Spectrum(np.fft.rfft(tilted(g, theta)[0], short), 1, error) for g in batch])
    weights = np.maximum(np.fft.irfft(product, short), 0.0)
    norm = math.sqrt(float(np.sum(weights * weights)))
    # The error of one frequency of the long FFT is at most the 1-norm of the error, so at most √short times its 2-norm.
    rounding = doubt / math.sqrt(short) + (error + 8 * UNIT_ROUNDOFF * len(batch)) * norm
    return Spectrum(np.fft.rfft(weights, length), 1, error + 1.001 * math.sqrt(short) * rounding)


def _multiplied(spectra: Sequence[Spectrum]) -> tuple[Complexes, float]:
    """The product of powers of spectra, up to the last frequency that is not negligible, and a bound on the 2-norm of
    its error if every value of every spectrum is off by its `error`.

    |Π(a+e)^k - Πa^k| <= Σ kη/(|a|+2η) Π(|a|+2η)^k with |e| <= η, in each frequency (theory page, eq. 5).
    """
    product: Complexes | None = None
    share = logs = np.zeros(1)
    for spectrum, count, error in spectra:
        powered = power(spectrum, count)
        size = len(powered) if product is None else min(len(powered), len(product))
        if product is None:
            product, share, logs = powered, np.zeros(size), np.zeros(size)
        else:
            product = product[:size] * powered[:size]
        magnitude = np.abs(spectrum[:size]) + 2 * error
        share = share[:size] + count * error / magnitude
        logs = logs[:size] + count * np.log(magnitude)
    assert product is not None
    errors = share * np.exp(logs)
    # An rfft keeps one of each pair of conjugate frequencies, except the first and the last: hence the factor 2.
    return product, math.sqrt(2 * float(np.sum(errors * errors))) * (1 + 1e-9)


def power(spectrum: Complexes, count: int) -> Complexes:
    """Pointwise power by repeated squaring, up to the last frequency above 1e-40. Smaller values count as 0; `compose`
    adds 1e-36 to the error for them.
    """
    if count == 1:
        return spectrum
    alive = np.flatnonzero(np.abs(spectrum) > math.exp(-92.0 / count))
    base = spectrum[: int(alive[-1]) + 1] if len(alive) else spectrum[:1]
    out = np.ones_like(base)
    while count:
        if count & 1:
            out *= base
        count >>= 1
        if count:
            base = base * base
    return out
