"""Noise intervals: how far an answer is from what it would have been without noise.

An answer is a smooth function of a few noisy numbers. Near them it is linear, so its noise is a weighted sum of theirs:
normal if they are Gaussian; for Laplace noise the weighted sum's law is known in closed form.
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
@final
@dataclass(frozen=True, slots=True)
class NoisyEstimate:
    """One number of an answer with its noise interval; all None where nothing can be said (an average of no rows)."""

    value: float | int | None
    low: float | int | None = None
    high: float | int | None = None


def reach(shape: Shape, deviations: Sequence[float], confidence: float) -> float:
    """The distance that a sum of independent noises of these standard deviations keeps with this probability."""
    spread = math.sqrt(math.fsum(d * d for d in deviations))
    if spread == 0:
        return 0.0
    if shape is Shape.NORMAL:
        return spread * _normal(confidence)
    scales = fewest([d / spread / math.sqrt(2) for d in deviations if d > spread * 1e-6], _MOST)
    return spread * _laplace(tuple(round(scale, 9) for scale in scales), confidence)


def fewest(deviations: Sequence[float], most: int) -> list[float]:
    """The same, smallest first, with the smallest as one draw as wide where there are more: wider at 90 % and above."""
    found = sorted(deviations)
    while len(found) > most:
        insort(found, math.hypot(found.pop(0), found.pop(0)))
    return found


@lru_cache(maxsize=64)
def _normal(confidence: float) -> float:
    return noise_quantiles.normal(noise_quantiles.miss(confidence))


_MOST: Final = 16
"""Laplace draws that are told apart in a sum; more of them are nearly normal together."""


@lru_cache(maxsize=4096)
def _laplace(scales: tuple[float, ...], confidence: float) -> float:
    """The reach x of a sum of Laplace noises of these scales, smallest first: P(|S| > x) = 1 - confidence.

    P(|S| > x) = Σ A_i e^(-x/b_i) with A_i = Π_{j≠i} b_i²/(b_i² - b_j²), by partial fractions of Π 1/(1 + b²t²). Scales
    that are equal are moved apart a little, upwards: the terms are then huge and of both signs, and about 3 digits
    cancel for each. A log-concave law has a log-concave tail, so Newton's steps on its logarithm come down to the
    answer from above.
    """
    missed = noise_quantiles.miss(confidence)
    if len(scales) == 1:
        return -scales[0] * math.log(missed)
    # Two or three lose a few digits of a float's sixteen.
    number, exp, log = (float, math.exp, math.log) if len(scales) <= 3 else (Decimal, Decimal.exp, Decimal.ln)
    with localcontext() as context:
        context.prec = 24 + 4 * len(scales)
        return float(_newton(number, exp, log, scales, missed))


def _newton(number: Any, exp: Any, log: Any, scales: Sequence[float], missed: float) -> Any:
    """Where Σ A_i e^(-x/b_i) comes down to `missed`, in this kind of numbers."""
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
    """What one draw adds to a merged number: `weight` times a sum of `cells` whole numbers of noise of this width (σ of
    the normal law that was rounded, or the scale of discrete Laplace noise).
    """

    weight: float
    width: float
    cells: int = 1

    def deviation(self, shape: Shape) -> float:
        """Of what is added."""
        r = math.exp(-1 / self.width)
        one = math.sqrt(2 * r) / (1 - r) if shape is Shape.LAPLACE else math.hypot(self.width, math.sqrt(1 / 12))
        return self.weight * one * math.sqrt(self.cells)

    def pieces(self, shape: Shape) -> list[float]:
        """Standard deviations of noise between whole numbers that makes up as much, or more: the cells in a few."""
        few = min(self.cells, _MOST)
        own = self.deviation(shape) / math.sqrt(self.cells)
        one = max(own, math.sqrt(2) * self.width * self.weight) if shape is Shape.LAPLACE else own
        return [one * math.sqrt(self.cells / few)] * few

    @classmethod
    def between(cls, shape: Shape, length: float) -> Share:
        """Noise of this standard deviation whose law is not known to be on whole numbers: on very small steps."""
        return cls(length / _ENDLESS, _ENDLESS / math.sqrt(2) if shape is Shape.LAPLACE else _ENDLESS)


_ENDLESS: Final = 2.0**30
_FINE: Final = 256
"""Steps of the grid in one standard deviation, for each share."""
_FAR: Final = 40
"""Standard deviations after which nothing is left that a float can tell."""
_FILLED: Final = 10
"""The same where more than `_MOST` draws have steps of different sizes: what one leaves out another reaches."""
_COARSE: Final = 30
"""Where a standard deviation has this many steps, the law between whole numbers is as good; but for half a step, by
which an interval that ends just before a whole number holds less.
"""


@lru_cache(maxsize=512)
def merged_reach(shape: Shape, shares: tuple[Share, ...], confidence: float) -> float:
    """The distance that a weighted sum of draws on whole numbers keeps with this probability, by their own law.

    Few steps of noise leave gaps: an interval that ends in one by the law between whole numbers can hold far less than
    it says. So the laws themselves are put on a fine grid and convolved; each moves by half a step at most, which is
    added.
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
    if spread == 0:  # so much was paid that no noise is left
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
    """Half of the gaps that many steps of different sizes leave in their sum.

    Where its characteristic function is A at t, its law has waves of length 2π/t and of this height, and the end of an
    interval may be off by A·π/t: by half a step where all steps are equal (A = 1), and by nothing where they are so
    different that no t is near a multiple of 2π for all of them. Waves beyond the last t are taken to be of height 1.
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
    """A distance that the same sum keeps with at least this probability, and that changes little with the weights.

    Whole noise is noise between whole numbers, moved by half a step at most (of the Laplace law: no farther out than
    that). So half of each step is added to the reach of the law between them; but nothing for a step that other noise,
    in steps of half the size or less, is as wide as, because this fills the gaps. Of noise that is itself as wide as
    its steps, the largest step is enough.
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
    """The characteristic function of what a draw adds whose steps are far smaller than its noise."""
    squares = (share.weight * share.width * frequencies) ** 2
    one = np.exp(-squares / 2) if shape is Shape.NORMAL else 1 / (1 + squares)
    return one**share.cells


def _summed(shape: Shape, share: Share) -> tuple[Any, Any]:
    """The whole numbers that a draw can be, and how likely each is."""
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
