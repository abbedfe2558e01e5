"""Noise intervals: how far an answer is from what it would have been without noise.

An answer is a smooth function of a few noisy numbers. Near them it is linear, so its noise is a weighted sum of theirs:
normal if they are Gaussian; for Laplace noise the weighted sum's law is known in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import final

from deniable.mechanisms import tails


@final
class Shape(Enum):
    """The law of the noise."""

    NORMAL = "normal"
    LAPLACE = "laplace"


@final
@dataclass(frozen=True, slots=True)
class Estimate:
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
    missed = tails.miss(confidence)
    scales = _distinct([d / math.sqrt(2) for d in deviations if d > spread * 1e-6])
    if len(scales) == 1:
        return -scales[0] * math.log(missed)
    low, high = 0.0, spread * 60
    while high - low > 1e-9 * spread:
        middle = (low + high) / 2
        if _laplace_sum_tail(scales, middle) > missed:
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=64)
def _normal(confidence: float) -> float:
    return tails.normal(tails.miss(confidence))


def _distinct(scales: list[float]) -> list[float]:
    """The same, moved apart by a relative 10⁻³ where two are nearer: the law is continuous in them."""
    apart: list[float] = []
    for scale in sorted(scales):
        apart.append(max(scale, apart[-1] * 1.001) if apart else scale)
    return apart


def _laplace_sum_tail(scales: list[float], x: float) -> float:
    """P(|S| > x) = Σ A_i e^(-x/b_i) with A_i = Π_{j≠i} b_i²/(b_i² - b_j²), by partial fractions of Π 1/(1 + b²t²)."""
    return math.fsum(
        math.exp(-x / b) * math.prod(b * b / (b * b - other * other) for other in scales if other != b) for b in scales
    )
