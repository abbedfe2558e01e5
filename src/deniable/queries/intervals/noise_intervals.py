"""Noise intervals: confidence intervals for the number that an answer would have without noise.

An answer is a smooth function of a few noisy numbers. Near them it is nearly linear, so its noise is a weighted sum of
their noise. If that is Gaussian, the sum is normal; for Laplace noise the law of the weighted sum has a closed form.

The *reach* of noise at a confidence is the half-width x with P(|noise| <= x) = confidence. `reach` computes it for
continuous noise, `merged_reach` for noise on integers: with few steps per standard deviation, the discrete law has gaps
that the continuous one does not show.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, NamedTuple, final

import numpy as np

from deniable.ledger.currency import Shape
from deniable.mechanisms import noise_quantiles


@final
@dataclass(frozen=True, slots=True)
class NoisyEstimate:
    """One number of an answer with its noise interval; None where there is no value (an average of no rows).

    MIN and MAX of dates are dates, and have no interval.
    """

    value: Any
    low: float | int | None = None
    high: float | int | None = None


def reach(shape: Shape, deviations: Sequence[float], confidence: float) -> float:
    """x such that a sum of independent noises with these standard deviations is within ±x with this probability."""
    spread = math.sqrt(math.fsum(d * d for d in deviations))
    if spread == 0:
        return 0.0
    if shape is Shape.NORMAL:
        return spread * _normal(confidence)
    scales = fewest([d / spread / math.sqrt(2) for d in deviations if d > spread * 1e-6], _MOST)
    return spread * _laplace(tuple(round(scale, 9) for scale in scales), confidence)


def fewest(deviations: Sequence[float], most: int) -> list[float]:
    """At most `most` deviations with the same root of squares: the smallest ones are combined. Ascending.

    For Laplace noise, combining draws makes intervals at 90 % and above wider, never narrower.
    """
    found = sorted(deviations)
    while len(found) > most:
        insort(found, math.hypot(found.pop(0), found.pop(0)))
    return found


@lru_cache(maxsize=64)
def _normal(confidence: float) -> float:
    return noise_quantiles.normal(noise_quantiles.miss(confidence))


_MOST: Final = 16
"""The most Laplace draws that a sum distinguishes; sums of more are nearly normal."""


@lru_cache(maxsize=4096)
def _laplace(scales: tuple[float, ...], confidence: float) -> float:
    """The reach x of a sum of Laplace noises of these scales, smallest first: P(|S| > x) = 1 - confidence.

    P(|S| > x) = Σ A_i e^(-x/b_i) with A_i = Π_{j≠i} b_i²/(b_i² - b_j²), by partial fractions of Π 1/(1 + b²t²). Equal
    scales are moved apart a little, upwards. The terms are then huge and of both signs, and about 3 digits cancel for
    each scale; hence the extra precision. A log-concave law has a log-concave tail, so Newton's method on its logarithm
    approaches the solution from above.
    """
    missed = noise_quantiles.miss(confidence)
    if len(scales) == 1:
        return -scales[0] * math.log(missed)
    # With two or three scales only a few of a float's sixteen digits cancel.
    number, exp, log = (float, math.exp, math.log) if len(scales) <= 3 else (Decimal, Decimal.exp, Decimal.ln)
    with localcontext() as context:
        context.prec = 24 + 4 * len(scales)
        return float(_newton(number, exp, log, scales, missed))


def _newton(number: Any, exp: Any, log: Any, scales: Sequence[float], missed: float) -> Any:
    """x with Σ A_i e^(-x/b_i) = `missed`, computed with the given type of numbers."""
    apart = 1 + number("0.005") / len(scales)
    moved: list[Any] = []
    for scale in map(number, scales):
        moved.append(max(scale, moved[-1] * apart) if moved else scale)
    squares = [b * b for b in moved]
    terms = [
        (math.prod((one / (one - other) for other in squares if other != one), start=number(1)), b)
        for one, b in zip(squares, moved, strict=True)
    ]
    x = number(2)
    for _ in range(100):
        parts = [(a * exp(-x / b), b) for a, b in terms]
        tail = sum(part for part, _ in parts)
        step = log(tail / number(missed)) * tail / sum(part / b for part, b in parts)
        x += step
        if abs(step) < 1e-9:
            break
    return x


# -- merged whole numbers ----------------------------------------------------------------------------------------------


@final
class Share(NamedTuple):
    """The contribution of one draw to a merged number: `weight` times a sum of `cells` independent integers of noise.

    `width` is σ of the rounded normal law, or the scale of discrete Laplace noise.
    """

    weight: float
    width: float
    cells: int = 1

    def deviation(self, shape: Shape) -> float:
        """The standard deviation of the contribution."""
        r = math.exp(-1 / self.width)
        one = math.sqrt(2 * r) / (1 - r) if shape is Shape.LAPLACE else math.hypot(self.width, math.sqrt(1 / 12))
        return self.weight * one * math.sqrt(self.cells)

    def pieces(self, shape: Shape) -> list[float]:
        """Standard deviations of continuous noise that is at least as wide; many cells are combined into a few."""
        few = min(self.cells, _MOST)
        own = self.deviation(shape) / math.sqrt(self.cells)
        one = max(own, math.sqrt(2) * self.width * self.weight) if shape is Shape.LAPLACE else own
        return [one * math.sqrt(self.cells / few)] * few

    @classmethod
    def between(cls, shape: Shape, length: float) -> Share:
        """A share for continuous noise of this standard deviation, represented on very small steps."""
        return cls(length / _ENDLESS, _ENDLESS / math.sqrt(2) if shape is Shape.LAPLACE else _ENDLESS)


_ENDLESS: Final = 2.0**30
"""Steps per standard deviation that represent continuous noise."""
_FINE: Final = 256
"""Steps of the convolution grid per standard deviation, for each share."""
_FAR: Final = 40
"""Standard deviations beyond which the tail is below the precision of a float."""
_COARSE: Final = 30
"""With this many steps per standard deviation the continuous law is accurate, except for half a step: an interval that
ends just before an integer misses that integer's probability.
"""
_FILLED: Final = 10
"""Like `_COARSE`, for more than `_MOST` draws with steps of different sizes: each fills gaps that others leave."""


@lru_cache(maxsize=512)
def merged_reach(shape: Shape, shares: tuple[Share, ...], confidence: float) -> float:
    """x such that a weighted sum of draws on integers is within ±x with at least this probability, by their exact law.

    The law of a few steps has gaps; an interval from the continuous law that ends in a gap can cover far less than it
    states. So the discrete laws are put on a fine grid and convolved by FFT. The grid moves each law by at most half a
    step, which is added to the result.
    """
    alike: Counter[tuple[float, float]] = Counter()
    for weight, width, cells in shares:
        alike[weight, width] += cells
    shares = tuple(Share(*law, cells) for law, cells in alike.items() if law[0])
    if not shares:
        return 0.0
    if len(shares) == shares[0].cells == 1:
        quantile = noise_quantiles.discrete_laplace if shape is Shape.LAPLACE else noise_quantiles.rounded_gaussian
        return shares[0].weight * quantile(Fraction(shares[0].width), noise_quantiles.miss(confidence))
    lengths = [share.deviation(shape) for share in shares]
    spread = math.hypot(*lengths)
    if spread == 0:  # at a very high cost the noise is 0
        return 0.0
    steps = {share.weight for share in shares}
    is_fine = max(steps) * _COARSE < spread
    if is_fine or (len(steps) > _MOST and max(steps) * _FILLED < spread):
        between = reach(shape, [length for share in shares for length in share.pieces(shape)], confidence)
        return between + (max(steps) / 2 if is_fine else _gap(shape, shares, spread))
    if len(shares) > _MOST:
        return smooth_reach(shape, shares, confidence)
    small = math.fsum(length for length in lengths if length < spread / 1000)
    shares = tuple(share for share, length in zip(shares, lengths, strict=True) if length >= spread / 1000)
    step = spread / (_FINE * len(shares))
    size = 1 << math.ceil(math.log2(2 * _FAR * _FINE * len(shares)))
    waves = np.ones(size // 2 + 1, dtype=np.complex128)
    for share in shares:
        if share.width > _COARSE:
            waves *= _smooth(shape, share, np.arange(waves.size) * (2 * math.pi / (size * step)))
            continue
        at, law = _summed(shape, share)
        places = np.rint(np.clip(share.weight * at / step, -size, size)).astype(np.int64)
        kept = np.abs(places) < size // 2
        waves *= np.fft.rfft(np.bincount(places[kept] % size, law[kept], minlength=size))
    found = np.fft.irfft(waves, size)
    inside = np.cumsum(np.concatenate((found[:1], found[1 : size // 2] + found[: size // 2 : -1])))
    first = int(np.searchsorted(inside, 1 - noise_quantiles.miss(confidence) - 1e-12))
    unseen = max((share.weight for share in shares if share.width > _COARSE), default=0.0) / 2
    return (min(first, inside.size - 1) + len(shares) / 2) * step + 10 * small + unseen


def _gap(shape: Shape, shares: tuple[Share, ...], spread: float) -> float:
    """Half the width of the gaps in the law of a sum of many steps of different sizes.

    If the characteristic function of the sum has absolute value A at t, its law has a ripple of wavelength 2π/t and
    relative height A, so the end of an interval may be off by A·π/t. That is half a step if all steps are equal (A = 1
    at t = 2π/step), and nearly 0 if no t is close to a multiple of 2π/step for all steps. For t beyond the examined
    range, A = 1 is assumed.
    """
    largest = max(share.weight for share in shares)
    at = np.arange(math.pi / largest, 16 * math.pi / largest, 0.1 / spread)
    heights = np.ones_like(at)
    for share in shares:
        turned = np.abs((share.weight * at + math.pi) % (2 * math.pi) - math.pi)
        if shape is Shape.LAPLACE:
            r = math.exp(-1 / share.width)
            one = (1 - r) ** 2 / (1 - 2 * r * np.cos(turned) + r * r)
        else:
            turns = turned[:, None] + 2 * math.pi * np.arange(-2, 3)
            one = np.exp(-((share.width * turns) ** 2) / 2).sum(axis=1)
        heights *= np.minimum(one, 1.0) ** share.cells
    return max(1.01 * float(np.max(heights * math.pi / at)), largest / 16)


def smooth_reach(shape: Shape, shares: tuple[Share, ...], confidence: float) -> float:
    """Like `merged_reach`, but continuous in the weights: an upper bound without a convolution.

    Noise on integers is continuous noise moved by at most half a step (Laplace noise: not further outwards than that).
    So half of each step is added to the reach of the continuous law. Nothing is added for a step if other noise, in
    steps of at most half its size, is as wide as the step, because it fills the gaps. Among noise that is at least as
    wide as its own steps, only the largest step is added.
    """
    lengths = {share: share.pieces(shape) for share in shares}

    def is_filled(share: Share) -> bool:
        finer = [math.hypot(*lengths[each]) for each in shares if each.weight <= share.weight / 2 and each.width >= 1]
        return math.hypot(*finer) >= share.weight

    gaps = [share for share in shares if not is_filled(share)]
    narrow = math.fsum(share.weight * share.cells for share in gaps if share.width < 1)
    wide = max((share.weight for share in gaps if share.width >= 1), default=0.0)
    everything = [length for share in shares for length in lengths[share]]
    return reach(shape, everything, confidence) + (narrow + wide) / 2


def _smooth(shape: Shape, share: Share, frequencies: Any) -> Any:
    """The characteristic function of a draw whose steps are much smaller than its noise."""
    squares = (share.weight * share.width * frequencies) ** 2
    one = np.exp(-squares / 2) if shape is Shape.NORMAL else 1 / (1 + squares)
    return one**share.cells


def _summed(shape: Shape, share: Share) -> tuple[Any, Any]:
    """(the integers that a draw, summed over its cells, can be; the probability of each)."""
    if shape is Shape.LAPLACE:
        most = math.ceil(_FAR * share.width) + 1
        at = np.arange(-most, most + 1)
        law = np.exp(-np.abs(at) / share.width)
    else:
        most = math.ceil(10 * share.width) + 1
        at = np.arange(-most, most + 1)
        ends = [math.erf((each - 0.5) / share.width / math.sqrt(2)) for each in range(-most, most + 2)]
        law = np.diff(ends) / 2
    law /= law.sum()
    if share.cells > 1:
        spread = math.sqrt(float(law @ (at * at)))
        half = max(most, math.ceil(_FAR * spread * math.sqrt(share.cells)))
        size = 1 << math.ceil(math.log2(2 * half + 2))
        wave = np.fft.rfft(np.bincount(at % size, law, minlength=size)) ** share.cells
        law = np.maximum(np.fft.fftshift(np.fft.irfft(wave, size)), 0.0)
        at = np.arange(-(size // 2), size // 2)
    return at, law
