"""Poisson samples truncated to a fixed number of records: a bound on the curve of one step that composes.

A step draws each record with probability q. If more than B are drawn, B of them are kept, uniformly at random. Then one
more record can change two: if it is kept, another one may be left out.

**The pair of one step.** Let D have n records and D′ one more, x. Draw S from D and a coin c of probability q for x. If
c is 0, both runs keep the same records T. Given c = 1, there are three cases:

- |S| < B: D′ keeps S and x. The sum of clipped gradients moves by at most one clipping norm.
- |S| >= B and x is not kept: the records that D′ keeps are a uniform B-subset of S, as T is. The sums are equal.
- |S| >= B and x is kept: D′ keeps x and a uniform (B-1)-subset of S, and T is such a subset with one more record of S,
  uniformly chosen. One record is replaced by another, so the sum moves by at most two clipping norms.

Let ω be S, T and the records that D′ keeps if c is 1. ω is independent of c. So the pair of outputs is a mixture over ω
of the pairs (N(a, σ²), (1 - q) N(a, σ²) + q N(b, σ²)) with |a - b| at most 0, 1 or 2 clipping norms: sampled Gaussians.
A mixture is at most as easy to distinguish as if ω were revealed (hockey-stick divergences are jointly convex), in both
directions. Therefore

    δ(ε) <= (1 - η) δ_σ(ε) + η δ_{σ/2}(ε),   η = P(Binomial(n, q) >= B),

where δ_σ belongs to gaussian(sigma=σ).sampled(rate=q). η grows with n, so a public bound on the number of records is
needed; D has at most `records` - 1 records. The steps compose like any others. (The usual bound adds
(1 + e^ε) P(|S| > B) to δ for each step: Chua et al. 2024, "Scalable DP-SGD: Shuffling vs. Poisson Subsampling". This
one multiplies η with δ_{σ/2} instead of 1, and is far smaller.)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from deniable.curves.laws.finite_law import log_binomial

if TYPE_CHECKING:
    from deniable.curves import Curve

MARGIN = 1e-6
"""Relative error that covers the rounding of a binomial tail many times over."""

LEAST = 1e-300
"""Smaller tails are rounded up to this number."""


def overflow_probability(*, others: int, rate: float, truncate_at: int) -> float:
    """P(Binomial(others, rate) >= truncate_at), rounded up.

    Sums the masses up to forty standard deviations above the mean, and bounds the rest by a geometric series: the ratio
    of consecutive masses decreases.

    >>> round(overflow_probability(others=3, rate=0.5, truncate_at=2), 5)
    0.5
    """
    if truncate_at > others:
        return 0.0
    if rate == 1 or truncate_at <= 0:
        return 1.0
    mean = others * rate
    reach = 40 * math.sqrt(mean * (1 - rate)) + 400
    last = min(others, math.ceil(max(mean, truncate_at) + reach))
    masses = np.exp(log_binomial(others, np.arange(truncate_at, last + 1, dtype=float), rate))
    ratio = (others - last) * rate / ((last + 1) * (1 - rate))
    rest = float(masses[-1]) * ratio / (1 - ratio)
    return min(1.0, max(LEAST, (math.fsum(masses) + rest) * (1 + MARGIN)))


def truncated_step(*, sigma: float, rate: float, records: int, truncate_at: int) -> Curve:
    """The curve of one step (see the module): noise σ in clipping norms, at most `records` records with the person."""
    from deniable import curves

    def step(noise: float) -> Curve:
        return curves.gaussian(sigma=noise).sampled(rate=rate)

    overflow = overflow_probability(others=records - 1, rate=rate, truncate_at=truncate_at)
    if overflow == 0:
        return step(sigma)
    return (
        step(sigma / 2) if overflow == 1 else curves.mixture([1 - overflow, overflow], [step(sigma), step(sigma / 2)])
    )
