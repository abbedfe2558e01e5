"""The shapes of noise that is added in whole steps: Laplace, rounded Gaussian and discrete Gaussian.

Descriptions for `laws`: accurate to about 1e-12, but not bounds on anything private. A new shape is a subclass of
`NoiseShape`; a mechanism of `noise_steps` names it as its `NOISE`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Final, final

import numpy as np

from deniable.mechanisms.input_values import Floats

WIDE: Final = 1000.0
"""Noise at least this many steps wide is treated as the continuous law it approximates: masses agree to one part in
10⁷.
"""


class NoiseShape(ABC):
    """The shape of noise in steps around 0; `width` is its scale or σ, in steps."""

    reach_in_widths: ClassVar[float] = 4.0
    """A plot ends this many widths from the centre."""
    ratio_is_constant_beyond: ClassVar[bool] = False
    """Whether the likelihood ratio of noise around two values is constant beyond both."""

    @abstractmethod
    def mass(self, steps: Floats, width: float) -> Floats:
        """The probability of each number of steps."""

    @abstractmethod
    def below(self, steps: Floats, width: float) -> Floats:
        """The probability of at most so many steps, for whole numbers of steps."""

    @abstractmethod
    def variance(self, width: float, square: float) -> float:
        """The variance; `square` is the square of a step."""

    def _summed_variance(self, width: float, square: float) -> float:
        steps = np.arange(1.0, math.ceil(40 * width) + 2)
        return square * 2 * float(np.sum(steps**2 * self.mass(steps, width)))


@final
class LaplaceShape(NoiseShape):
    """Discrete Laplace noise, by closed forms."""

    reach_in_widths = 7.0
    ratio_is_constant_beyond = True

    def mass(self, steps: Floats, width: float) -> Floats:
        return np.asarray(math.tanh(0.5 / width) * np.exp(-np.abs(steps) / width))

    def below(self, steps: Floats, width: float) -> Floats:
        r = math.exp(-1 / width)
        below = np.exp(np.minimum(steps, 0.0) / width) / (1 + r)
        above = 1 - np.exp(-(np.maximum(steps, 0.0) + 1) / width) / (1 + r)
        return np.where(steps < 0, below, above)

    def variance(self, width: float, square: float) -> float:
        return square / (2 * math.sinh(0.5 / width) ** 2)


@final
class RoundedGaussianShape(NoiseShape):
    """Gaussian noise that is rounded to whole steps."""

    def mass(self, steps: Floats, width: float) -> Floats:
        if width > WIDE:
            return np.asarray(np.exp(-0.5 * (steps / width) ** 2) / (width * math.sqrt(2 * math.pi)))
        far = -np.abs(steps)  # in the lower tail nothing cancels
        return np.asarray(_normal((far + 0.5) / width) - _normal((far - 0.5) / width))

    def below(self, steps: Floats, width: float) -> Floats:
        return _normal((steps + 0.5) / width)

    def variance(self, width: float, square: float) -> float:
        return square * (width**2 + 1 / 12) if width > WIDE else self._summed_variance(width, square)


@final
class DiscreteGaussianShape(NoiseShape):
    """Whole steps with probabilities proportional to exp(-steps²/2width²)."""

    def mass(self, steps: Floats, width: float) -> Floats:
        return np.asarray(np.exp(-0.5 * (steps / width) ** 2) / _theta(width))

    def below(self, steps: Floats, width: float) -> Floats:
        if width > WIDE:
            return _normal((steps + 0.5) / width)
        reach = math.ceil(40 * width) + 1
        sums = np.cumsum(self.mass(np.arange(-reach, reach + 1.0), width))
        places = np.clip(steps + reach, -1, 2 * reach).astype(int)
        return np.where(places < 0, 0.0, np.minimum(sums[np.maximum(places, 0)], 1.0))

    def variance(self, width: float, square: float) -> float:
        return square * width**2 if width > WIDE else self._summed_variance(width, square)


LAPLACE: Final = LaplaceShape()
ROUNDED_GAUSSIAN: Final = RoundedGaussianShape()
DISCRETE_GAUSSIAN: Final = DiscreteGaussianShape()


def _normal(x: Floats) -> Floats:
    from scipy.special import ndtr

    return np.asarray(ndtr(x))


def _theta(sigma: float) -> float:
    """Σ e^(-z²/2σ²) over the integers."""
    if sigma > WIDE:
        return sigma * math.sqrt(2 * math.pi)
    steps = np.arange(1.0, math.ceil(40 * sigma) + 2)
    return 1 + 2 * float(np.sum(np.exp(-0.5 * (steps / sigma) ** 2)))
