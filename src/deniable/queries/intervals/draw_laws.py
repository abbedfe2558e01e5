"""The two laws that a draw of noise can have, as intervals need them: normal and Laplace noise, and both on integers.

`width` is the σ of normal noise before it is rounded to integers, or the scale of discrete Laplace noise, where P(x) is
proportional to e^(-|x|/width). One step is 1. `law_of` returns the law of a shape.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np

from deniable.curves.decimal_arithmetic import digits
from deniable.ledger.currency import Shape
from deniable.mechanisms import noise_quantiles

FAR: Final = 40
"""Standard deviations beyond which the tail of Laplace noise is below the precision of a float."""
MOST: Final = 16
"""The most Laplace draws that a sum distinguishes; sums of more are nearly normal."""


class DrawLaw(ABC):
    """The law of one draw."""

    __slots__ = ()

    @abstractmethod
    def reach(self, parts: Sequence[float], confidence: float) -> float:
        """x such that a sum of continuous noises is within ±x with this probability. Their standard deviations are
        `parts`, and the standard deviation of the sum is 1.
        """

    @abstractmethod
    def deviation(self, width: float) -> float:
        """The standard deviation of a draw on integers."""

    @abstractmethod
    def continuous_deviation(self, width: float) -> float:
        """The standard deviation of continuous noise of this width."""

    @abstractmethod
    def width_of(self, deviation: float) -> float:
        """The width of continuous noise of this standard deviation."""

    @abstractmethod
    def quantile(self, width: Fraction, missed: float) -> int:
        """The smallest integer k with P(|draw| > k) <= `missed`."""

    @abstractmethod
    def wave(self, turns: Any) -> Any:
        """The characteristic function of continuous noise of width 1, from the squares of the frequencies."""

    @abstractmethod
    def folded_wave(self, width: float, angles: Any) -> Any:
        """The characteristic function of a draw on integers, at angles in [0, π]."""

    @abstractmethod
    def masses(self, width: float) -> tuple[Any, Any]:
        """(integers around 0, numbers proportional to their probabilities)."""

    @abstractmethod
    def log_tail(self, width: float, at: float) -> float:
        """ln P(draw >= at) for an integer `at`; between integers, an interpolation."""

    @abstractmethod
    def in_whole_rows(self, reach: Any) -> Any:
        """The reach of noise that is added in whole rows, from the reach of continuous noise."""


@final
class NormalDraw(DrawLaw):
    """Normal noise. On integers: rounded to the nearest one."""

    __slots__ = ()

    def reach(self, parts: Sequence[float], confidence: float) -> float:
        return _normal(confidence)

    def deviation(self, width: float) -> float:
        return math.hypot(width, math.sqrt(1 / 12))

    def continuous_deviation(self, width: float) -> float:
        return width

    def width_of(self, deviation: float) -> float:
        return deviation

    def quantile(self, width: Fraction, missed: float) -> int:
        return noise_quantiles.rounded_gaussian(width, missed)

    def wave(self, turns: Any) -> Any:
        return np.exp(-turns / 2)

    def folded_wave(self, width: float, angles: Any) -> Any:
        turns = angles[:, None] + 2 * math.pi * np.arange(-2, 3)
        return np.exp(-((width * turns) ** 2) / 2).sum(axis=1)

    def masses(self, width: float) -> tuple[Any, Any]:
        most = math.ceil(10 * width) + 1
        ends = [math.erf((each - 0.5) / width / math.sqrt(2)) for each in range(-most, most + 2)]
        return np.arange(-most, most + 1), np.diff(ends) / 2

    def log_tail(self, width: float, at: float) -> float:
        # P(N >= (at - 1/2)/width)
        z = (at - 0.5) / width / math.sqrt(2)
        if z < 20:
            return math.log(math.erfc(z) / 2)
        square = z * z  # erfc(z) = e^(-z²)/(z√π) · (1 - 1/2z² + 3/4z⁴ - …); what follows is below 1e-7 of it
        return -square - math.log(2 * z * math.sqrt(math.pi)) + math.log1p(-0.5 / square + 0.75 / square**2)

    def in_whole_rows(self, reach: Any) -> Any:
        return reach


@final
class LaplaceDraw(DrawLaw):
    """Laplace noise. On integers: discrete Laplace noise, with r = e^(-1/width)."""

    __slots__ = ()

    def reach(self, parts: Sequence[float], confidence: float) -> float:
        scales = fewest([part / math.sqrt(2) for part in parts if part > 1e-6], MOST)
        return _laplace(tuple(round(scale, 9) for scale in scales), confidence)

    def deviation(self, width: float) -> float:
        r = math.exp(-1 / width)
        return math.sqrt(2 * r) / (1 - r)

    def continuous_deviation(self, width: float) -> float:
        return math.sqrt(2) * width

    def width_of(self, deviation: float) -> float:
        return deviation / math.sqrt(2)

    def quantile(self, width: Fraction, missed: float) -> int:
        return noise_quantiles.discrete_laplace(width, missed)

    def wave(self, turns: Any) -> Any:
        return 1 / (1 + turns)

    def folded_wave(self, width: float, angles: Any) -> Any:
        r = math.exp(-1 / width)
        return (1 - r) ** 2 / (1 - 2 * r * np.cos(angles) + r * r)

    def masses(self, width: float) -> tuple[Any, Any]:
        most = math.ceil(FAR * width) + 1
        at = np.arange(-most, most + 1)
        return at, np.exp(-np.abs(at) / width)

    def log_tail(self, width: float, at: float) -> float:
        # P(Z >= d) = r^d/(1 + r) for d >= 1.
        r = math.exp(-1 / width)
        if at >= 0.5:
            return -at / width - math.log1p(r)
        return math.log1p(-math.exp((at - 1) / width) / (1 + r))

    def in_whole_rows(self, reach: Any) -> Any:
        # The law has gaps if it is narrow.
        return np.ceil(reach)


_LAWS: Final[Mapping[Shape, DrawLaw]] = MappingProxyType({Shape.NORMAL: NormalDraw(), Shape.LAPLACE: LaplaceDraw()})


def law_of(shape: Shape) -> DrawLaw:
    """The law of a draw of noise of this shape."""
    return _LAWS[shape]


# -- sums of continuous noise ------------------------------------------------------------------------------------------


def reach(shape: Shape, deviations: Sequence[float], confidence: float) -> float:
    """x such that a sum of independent noises with these standard deviations is within ±x with this probability."""
    spread = math.sqrt(math.fsum(d * d for d in deviations))
    return spread * law_of(shape).reach([d / spread for d in deviations], confidence) if spread else 0.0


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
    with digits(24 + 4 * len(scales)):
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
