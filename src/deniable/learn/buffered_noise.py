"""Buffered linear Toeplitz noise (BLT): correlated noise with the memory of a few buffers instead of many bands.

C is lower-triangular Toeplitz with c_0 = 1 and c_j = Σ_i ω_i λ_i^(j-1), 0 < λ_i < 1 (Dvijotham, McMahan, Pillutla,
Steinke & Thakurta 2024, "Efficient and Near-Optimal Noise Generation for Streaming Differential Privacy"). A product
with C needs one buffer for each i: s_i <- λ_i s_i + g_t. A product with C⁻¹ needs as many. Columns have no end, so the
columns of two participations overlap however far apart they are.

**The buffers.** The coefficients of the square root (1 - x)^(-1/2) are moments, c_j = (1/π) ∫ y^j (y(1 - y))^(-1/2) dy
over (0, 1). The Gauss-Chebyshev rule with d nodes y_i = cos²((2i - 1)π/(4d)) gives (1/d) Σ_i y_i^j, exact for j < 2d
and close for j up to about d². So λ_i = y_i and ω_i = y_i/d.

**The sensitivity.** Let a record take part at most k times, any two of them at least b steps apart, and change row i of
G by x_i, ‖x_i‖ <= 1. Then CG moves by a vector whose squared norm is Σ_ij <C_i, C_j><x_i, x_j>. All c_j are positive
and do not increase, so <C_i, C_j> = Σ_{l < n-j} c_{l+j-i} c_l, i <= j, is not negative, and does not increase if j
grows or if j - i grows. Hence the sum is at most Σ_ij <C_i, C_j>, and if the steps s_1 < s_2 < ... are at least b
apart, then <C_{s_a}, C_{s_c}> is at most its value for the steps (a - 1)b and (c - 1)b. The steps 0, b, 2b, ... with
equal x are the worst (as in Kalinin & Lampert 2024).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Buffers = tuple[tuple[float, float], ...]
"""(ω, λ) of each buffer."""

MARGIN = 1e-9
"""Relative error that covers the rounding of sums of positive numbers many times over."""


def chebyshev_buffers(count: int) -> Buffers:
    """The buffers of the square root by the Gauss-Chebyshev rule.

    >>> [(round(weight, 3), round(decay, 3)) for weight, decay in chebyshev_buffers(2)]
    [(0.427, 0.854), (0.073, 0.146)]
    """
    nodes = [math.cos((2 * i - 1) * math.pi / (4 * count)) ** 2 for i in range(1, count + 1)]
    return tuple((node / count, node) for node in nodes)


def buffered_column(buffers: Buffers, steps: int) -> NDArray[np.float64]:
    """c_0, ..., c_{steps-1}."""
    powers = np.arange(steps - 1, dtype=float)
    found = sum((weight * decay**powers for weight, decay in buffers), start=np.zeros(steps - 1))
    return np.concatenate(([1.0], found))


def buffered_sensitivity(buffers: Buffers, *, steps: int, separation: int, participations: int) -> float:
    """The L2 sensitivity of G -> CG (see the module), rounded up."""
    column, total = buffered_column(buffers, steps), np.zeros(steps)
    for place in range(0, steps, separation)[:participations]:
        total[place:] += column[: steps - place]
    return math.sqrt(math.fsum(total * total)) * (1 + MARGIN)


def buffered_amplitude(buffers: Buffers, steps: int) -> float:
    """The largest standard deviation of the noise C⁻¹Z in a prefix sum, for Z of variance 1."""
    held: list[float] = [0.0] * len(buffers)
    prefix = total = worst = 0.0
    for t in range(steps):
        value = (1.0 if t == 0 else 0.0) - math.fsum(w * each for (w, _), each in zip(buffers, held, strict=True))
        held = [decay * each + value for (_, decay), each in zip(buffers, held, strict=True)]
        prefix += value
        total += prefix * prefix
        worst = max(worst, total)
    return math.sqrt(worst)


def check_buffers(count: Any) -> int:
    """The number of buffers, from 1 to 64."""
    from deniable.curves import curve_arguments
    from deniable.errors import InvalidParameter

    found = curve_arguments.integer("buffers", count, 1)
    if found > 64:
        raise InvalidParameter("buffers", found, "must be at most 64: each needs the memory of two models")
    return found
