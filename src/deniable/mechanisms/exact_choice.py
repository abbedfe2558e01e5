"""Exact choices: which of several noisy numbers is the largest, and which of several weights e^u is drawn.

The noise is exactly real-valued. It is only ever compared (who won, above or below), so a real number never has to be
computed in full: while two numbers agree, each gets one more binary digit. Equal numbers would never be decided, and
have probability 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Final, final

import numpy as np
from numpy.typing import NDArray

from deniable import noise
from deniable.mechanisms import rational_parameters
from deniable.noise.inversion_table import WORD
from deniable.noise.weighted_choice import is_below

if TYPE_CHECKING:
    from deniable.noise import Entropy

FIRST_STEPS: Final = 64
"""The first digits are an integer number of steps of scale/64: they decide most comparisons."""

HALF: Final = Fraction(1, 2)

FLOAT_REACH: Final = 2.0**40
"""Exponents up to this size are first compared as floats."""


@final
class RealNoise:
    """centre + X or centre - X for an exponential X of this scale, known so far to lie in [low, low + width].

    X/scale = (k + 0.d₁d₂d₃...)/64 in binary, where k is geometric and the digits are independent: the density of an
    exponential has the same shape on every interval, so digit j is 1 with odds e^(-2^-j/64) whatever came before. So
    each digit can be drawn when it is needed, and the noise has exactly its real-valued law.
    """

    __slots__ = ("_odds", "_rises", "low", "width")

    def __init__(self, centre: Fraction, scale: Fraction, steps: int, rises: bool) -> None:
        self.width = scale / FIRST_STEPS
        self.low = centre + steps * self.width if rises else centre - (steps + 1) * self.width
        self._rises = rises
        self._odds = Fraction(1, FIRST_STEPS)

    @property
    def high(self) -> Fraction:
        """The upper end of the interval that contains the number."""
        return self.low + self.width

    def refine(self, entropy: Entropy | None) -> None:
        """Draw one more binary digit, which halves the width."""
        self._odds /= 2
        self.width /= 2
        if _digit(self._odds, entropy) == self._rises:
            self.low += self.width


def _digit(odds: Fraction, entropy: Entropy | None) -> bool:
    """A binary digit with P(1)/P(0) = e^(-odds): fair coins are drawn until one is accepted. A 0 is always accepted,
    and a 1 with probability e^(-odds).
    """
    while noise.bernoulli(p=HALF, entropy=entropy):
        if noise.bernoulli_exp(x=odds, entropy=entropy):
            return True
    return False


def laplace_noise(centre: Fraction, scale: Fraction, entropy: Entropy | None) -> RealNoise:
    """A number plus Laplace noise: exponential noise, up or down by a fair coin."""
    rises = bool(noise.bernoulli(p=HALF, entropy=entropy))
    return RealNoise(centre, scale, int(noise.geometric(scale=FIRST_STEPS, entropy=entropy)), rises)


Race = dict[int, RealNoise]
"""Noisy numbers by their index."""


def exponential_race(centres: Sequence[Fraction], scale: Fraction, winners: int, entropy: Entropy | None) -> Race:
    """Independent exponential noise on each number; those that may be among the `winners` largest."""
    steps = noise.geometric(scale=FIRST_STEPS, size=len(centres), entropy=entropy)
    return _leaders(centres, scale, steps, np.ones(len(centres), dtype=bool), winners)


def laplace_race(centres: Sequence[Fraction], scale: Fraction, winners: int, entropy: Entropy | None) -> Race:
    """Independent Laplace noise on each number; those that may be among the `winners` largest."""
    steps = noise.geometric(scale=FIRST_STEPS, size=len(centres), entropy=entropy)
    rises = noise.bernoulli(p=HALF, size=len(centres), entropy=entropy)
    return _leaders(centres, scale, steps, rises, winners)


def _leaders(
    centres: Sequence[Fraction], scale: Fraction, steps: NDArray[np.int64], rises: NDArray[np.bool_], winners: int
) -> Race:
    # Floats only discard numbers that lose by far more than the error of floats: by 2^-40 of the largest number, while
    # the few rounding errors of each number are at most 2^-50 of it. The rest is compared exactly.
    keep = np.ones(len(centres), dtype=bool)
    try:
        rough = np.array([float(centre) for centre in centres])
        width = float(scale) / FIRST_STEPS
    except OverflowError:
        pass
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            low = rough + np.where(rises, steps, -(steps + 1)) * width
            slack = 2.0**-40 * float(np.max(np.abs(low)) + np.max(np.abs(rough)) + width)
            border = np.partition(low, len(low) - winners)[len(low) - winners]
            if np.isfinite(slack):
                keep = low + (width + 2 * slack) >= border
    return {i: RealNoise(centres[i], scale, int(steps[i]), bool(rises[i])) for i in np.flatnonzero(keep).tolist()}


def highest(race: Race, entropy: Entropy | None) -> int:
    """The index of the largest number; draws as many digits as needed."""
    leaders = race
    while True:
        lead = max(number.low for number in leaders.values())
        leaders = {key: number for key, number in leaders.items() if number.high > lead}
        if len(leaders) == 1:
            return next(iter(leaders))
        for number in leaders.values():
            number.refine(entropy)


def exceeds(one: RealNoise, other: RealNoise, entropy: Entropy | None) -> bool:
    """Whether one number is larger than another; draws as many digits as needed."""
    while True:
        if one.low >= other.high:
            return True
        if one.high <= other.low:
            return False
        (one if one.width >= other.width else other).refine(entropy)


# -- the exponential mechanism ---------------------------------------------------------------------------------------


def choose(
    scores: Sequence[Fraction],
    scale: Fraction,
    entropy: Entropy | None,
    weights: Sequence[Fraction] | None = None,
) -> int:
    """Index i with probability exactly ∝ weights_i e^(scores_i/scale).

    Draws with floats v_i that are certainly at least u_i = scores_i/scale, and accepts with probability e^(u_i - v_i).
    This gives the exact law. Only the score of the drawn index is evaluated as a rational number, which is fast.
    """
    shares = None if weights is None else [rational_parameters.short(weight) for weight in weights]
    try:
        rough = np.array([float(score) for score in scores]) / float(scale)
    except OverflowError:
        rough = np.array([np.inf])
    if np.max(np.abs(rough)) > FLOAT_REACH:
        logs = [score / scale for score in scores]
        return int(noise.choice(log_weights=logs, weights=shares, entropy=entropy))
    # Allows for three roundings, each of 2^-53 of the number (or, for a tiny number, of 2^-1074 before it is divided by
    # the scale), and for those of this line.
    above = rough + (np.abs(rough) * 2.0**-48 + 2.0**-1000 / min(1.0, float(scale)))
    while True:
        drawn = int(noise.choice(log_weights=above, weights=shares, entropy=entropy))
        surplus = Fraction(float(above[drawn])) - scores[drawn] / scale
        if is_kept(surplus, entropy):
            return drawn


def is_kept(x: Fraction, entropy: Entropy | None) -> bool:
    """True with probability e^-x, for an x computed from data: `noise.bernoulli_exp` caches its coin, this leaves no
    trace of x.
    """
    source = noise.current() if entropy is None else entropy
    return is_below(source.word(), WORD, Fraction(1), x, source)
