"""What draws and drawings must be, without the library: exact chances of counts, densities, an accountant for DP-SGD.

Formulas are in `truths`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-9


def likely(count: int, trials: int, chance: float) -> bool:
    """Whether a binomial count is one that fails to appear at most once in 10⁹ runs."""
    low = stats.binom.ppf(FALSE_ALARM / 2, trials, chance)
    high = stats.binom.isf(FALSE_ALARM / 2, trials, chance)
    return bool(low <= count <= high)


def laplace_pdf(y: Any, centre: float, scale: float) -> Any:
    return np.exp(-np.abs(np.asarray(y) - centre) / scale) / (2 * scale)


def normal_pdf(y: Any, centre: float, sigma: float) -> Any:
    return stats.norm.pdf(np.asarray(y), centre, sigma)


def follows(line: Any, height: Callable[[Any], Any], *, within: float) -> bool:
    """Whether every vertex of a drawn line lies on the curve, to `within` of the curve's top."""
    expected = np.asarray(height(np.asarray(line.x)))
    return bool(np.max(np.abs(np.asarray(line.y) - expected)) <= within * np.max(np.abs(expected)))


def sampled_gaussian_epsilon(*, sigma: float, rate: float, steps: int, delta: float) -> float:
    """ε(δ) of Poisson-sampled Gaussian noise, to about four digits: losses on a lattice, composed by FFT, both directions.

    Plain numpy without certificates. A loss is split between its two lattice neighbours so that its mean stays.
    """
    width, size, half = 5e-5, 2**19, 2**18
    x = np.linspace(-12 * sigma, 12 * sigma + 1, 1_000_001)
    plain = stats.norm.pdf(x, 0, sigma) * (x[1] - x[0])
    mixed = (1 - rate) * plain + rate * stats.norm.pdf(x, 1, sigma) * (x[1] - x[0])
    loss = np.log1p(rate * np.expm1((2 * x - 1) / (2 * sigma**2)))

    def at(mass: Any, losses: Any) -> Callable[[float], float]:
        place = np.clip(losses / width, -half + 1, half - 2)
        cell = np.floor(place).astype(int)
        share = place - cell
        lattice = np.bincount(cell + half, mass * (1 - share), size) + np.bincount(cell + 1 + half, mass * share, size)
        power = np.fft.irfft(np.fft.rfft(np.roll(lattice, -half)) ** steps, size)
        total = (np.arange(size) + half) % size - half
        return lambda epsilon: float(np.sum(power * np.maximum(0, -np.expm1(epsilon - total * width))))

    directions = (at(mixed, loss), at(plain, -loss))
    low, high = 0.0, 40.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if max(d(middle) for d in directions) > delta else (low, middle)
    return high
