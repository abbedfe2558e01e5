"""Noise intervals: confidence intervals for the number that an answer would have without noise.

An answer is a smooth function of a few noisy numbers. Near them it is nearly linear, so its noise is a weighted sum of
their noise. If that is Gaussian, the sum is normal; for Laplace noise the law of the weighted sum has a closed form.

The *reach* of noise at a confidence is the half-width x with P(|noise| <= x) = confidence. `draw_laws.reach` computes
it for continuous noise, `merged_reach` for noise on integers: with few steps per standard deviation, the discrete law
has gaps that the continuous one does not show.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, NamedTuple, final

import numpy as np

from deniable.ledger.currency import Shape
from deniable.mechanisms import noise_quantiles
from deniable.queries.intervals.draw_laws import FAR, MOST, law_of, reach


@final
@dataclass(frozen=True, slots=True)
class NoisyEstimate:
    """One number of an answer with its noise interval; None where there is no value (an average of no rows).

    MIN and MAX of dates are dates, and have no interval.
    """

    value: Any
    low: float | int | None = None
    high: float | int | None = None


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
        return self.weight * law_of(shape).deviation(self.width) * math.sqrt(self.cells)

    def pieces(self, shape: Shape) -> list[float]:
        """Standard deviations of continuous noise that is at least as wide; many cells are combined into a few."""
        few = min(self.cells, MOST)
        own = self.deviation(shape) / math.sqrt(self.cells)
        one = max(own, law_of(shape).continuous_deviation(self.width) * self.weight)
        return [one * math.sqrt(self.cells / few)] * few

    @classmethod
    def between(cls, shape: Shape, length: float) -> Share:
        """A share for continuous noise of this standard deviation, represented on very small steps."""
        return cls(length / _ENDLESS, law_of(shape).width_of(_ENDLESS))


_ENDLESS: Final = 2.0**30
"""Steps per standard deviation that represent continuous noise."""
_FINE: Final = 256
"""Steps of the convolution grid per standard deviation, for each share."""
_COARSE: Final = 30
"""With this many steps per standard deviation the continuous law is accurate, except for half a step: an interval that
ends just before an integer misses that integer's probability.
"""
_FILLED: Final = 10
"""Like `_COARSE`, for more than `MOST` draws with steps of different sizes: each fills gaps that others leave."""


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
        missed = noise_quantiles.miss(confidence)
        return shares[0].weight * law_of(shape).quantile(Fraction(shares[0].width), missed)
    lengths = [share.deviation(shape) for share in shares]
    spread = math.hypot(*lengths)
    if spread == 0:  # at a very high cost the noise is 0
        return 0.0
    steps = {share.weight for share in shares}
    is_fine = max(steps) * _COARSE < spread
    if is_fine or (len(steps) > MOST and max(steps) * _FILLED < spread):
        between = reach(shape, [length for share in shares for length in share.pieces(shape)], confidence)
        return between + (max(steps) / 2 if is_fine else _gap(shape, shares, spread))
    if len(shares) > MOST:
        return smooth_reach(shape, shares, confidence)
    small = math.fsum(length for length in lengths if length < spread / 1000)
    shares = tuple(share for share, length in zip(shares, lengths, strict=True) if length >= spread / 1000)
    step = spread / (_FINE * len(shares))
    size = 1 << math.ceil(math.log2(2 * FAR * _FINE * len(shares)))
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
        heights *= np.minimum(law_of(shape).folded_wave(share.width, turned), 1.0) ** share.cells
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
    return law_of(shape).wave((share.weight * share.width * frequencies) ** 2) ** share.cells


def _summed(shape: Shape, share: Share) -> tuple[Any, Any]:
    """(the integers that a draw, summed over its cells, can be; the probability of each)."""
    at, law = law_of(shape).masses(share.width)
    law /= law.sum()
    if share.cells > 1:
        spread = math.sqrt(float(law @ (at * at)))
        half = max(int(at[-1]), math.ceil(FAR * spread * math.sqrt(share.cells)))
        size = 1 << math.ceil(math.log2(2 * half + 2))
        wave = np.fft.rfft(np.bincount(at % size, law, minlength=size)) ** share.cells
        law = np.maximum(np.fft.fftshift(np.fft.irfft(wave, size)), 0.0)
        at = np.arange(-(size // 2), size // 2)
    return at, law
