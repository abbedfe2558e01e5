"""δ(ε) of a power of a sampled Gaussian by a contour integral: no lattice, no FFT, no truncated loss.

With K(s) = n log E_P e^(sL) and any c > 0,

    δ(ε) = 1/(2πi) ∫_{c-i∞}^{c+i∞} e^(K(s) - sε) / (s(s+1)) ds,

by the trapezoidal rule in double precision, which converges geometrically. It applies where K decays along the contour:
where the sum of the losses is smooth. `benchmarks/truth.py` does the same with 40 digits.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def delta(rate: float, sigma: float, count: int, epsilon: float, *, at: float, top: float, step: float) -> float:
    """δ(ε) with the contour Re s = `at`, cut at |Im s| = `top`. Raises if the integrand has not decayed there."""
    x = np.linspace(-14 * sigma, 1 + 14 * sigma + at + 2, 4000)
    loss = np.log1p(rate * np.expm1((2 * x - 1) / (2 * sigma**2)))
    weight = np.exp(-(x**2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi)) * (x[1] - x[0])
    s = at + 1j * np.arange(0, top, step)
    logs = np.concatenate(
        [
            count * np.log1p(np.expm1(np.multiply.outer(part + 1, loss)) @ weight)
            for part in np.array_split(s, max(len(s) // 500, 1))
        ]
    )
    if abs(np.exp(logs[-1])) > 1e-9 * abs(np.exp(logs[0])):
        raise ValueError("the integrand has not decayed")
    values = np.exp(logs - s * epsilon) / (s * (s + 1))
    return float(values.real.sum() - values.real[0] / 2) * step / math.pi
