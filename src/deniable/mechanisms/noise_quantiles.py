"""Quantiles of noise: the basis of every `error(confidence=)`, rounded up.

Each function returns the smallest k with P(|Z| > k) <= allowed, or the next larger one where rounding could hide it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

from deniable.curves import curve_arguments
from deniable.errors import InvalidParameter

SLACK = 1e-12
"""Relative error allowed for a quantile computed in floats; Wichura's and libm's functions stay below 1e-14."""

SUMMED = 2000
"""Largest σ at which the tail of a discrete Gaussian is summed term by term."""


def miss(confidence: float, count: int = 1) -> float:
    """The largest probability with which each of `count` independent errors may be exceeded, 1 - confidence^(1/count),
    rounded down.
    """
    wanted = curve_arguments.inner_probability("confidence", confidence)
    log = math.log(wanted) if wanted < 0.5 else math.log1p(wanted - 1)
    allowed = -math.expm1(log / count) * (1 - SLACK)
    if allowed < 1e-300:
        raise InvalidParameter("confidence", confidence, f"is too near to 1 for {count:,} numbers at once")
    return allowed


def _whole(reach: float) -> int:
    """The smallest whole number that is certainly at least `reach`."""
    return max(0, math.ceil(reach + SLACK * abs(reach)))


def discrete_laplace(scale: Fraction, allowed: float) -> int:
    """P(|Z| > k) = 2 r^(k+1)/(1 + r) with r = e^(-1/scale)."""
    if scale < Fraction(1, 700):
        return 0  # P(|Z| > 0) < 2e^-700, which is below every probability that `miss` returns
    b = float(scale)
    return _whole(b * (math.log(2 / allowed) - math.log1p(math.exp(-1 / b))) - 1)


def sum_of_discrete_laplace(scale: float, count: float, allowed: float) -> float:
    """A bound that the absolute sum of `count` independent draws exceeds with probability at most `allowed` (Chernoff).

    P(|S| > x) <= 2 e^(-θx) M(θ)^count with M(θ) = (1-r)²/((1-r e^θ)(1-r e^-θ)), for any θ; the best of 199 is taken.
    """
    r = math.exp(-1 / scale)

    def reach(share: float) -> float:
        theta = share / scale
        grown = math.exp((share - 1) / scale)  # r e^θ
        log_m = 2 * math.log1p(-r) - math.log1p(-grown) - math.log1p(-r * math.exp(-theta))
        return (math.log(2 / allowed) + count * log_m) / theta

    return min(reach(step / 200) for step in range(1, 200)) * (1 + SLACK)


def normal(allowed: float) -> float:
    """The smallest z with P(|N(0, 1)| > z) <= allowed, rounded up."""
    # Wichura's AS 241, accurate to 1e-15; importing scipy's version takes a fifth of a second.
    return max(0.0, -NormalDist().inv_cdf(allowed / 2)) * (1 + SLACK)


def rounded_gaussian(sigma: Fraction, allowed: float) -> int:
    """P(|round(N(0, σ²))| > k) = P(|N| > (k + 1/2)/σ)."""
    return _whole(float(sigma) * normal(allowed) - 0.5)


def discrete_gaussian(sigma: Fraction, allowed: float) -> int:
    """The masses are summed; for large σ the bound P(Z >= m) <= P(N(0, σ²) >= m - 1) is used (Canonne, Kamath & Steinke
    2020, section 3).
    """
    s = float(sigma)
    if s > SUMMED:
        return _whole(s * normal(allowed))
    last = math.ceil(40 * s) + 1
    masses = [math.exp(-0.5 * (k / s) ** 2) for k in range(last + 1)]
    # The mass beyond 40σ is below e^-800 of the total.
    total = masses[0] + 2 * math.fsum(masses[1:])
    tail, k = 0.0, last
    while k > 0 and 2 * (tail + masses[k]) * (1 + SLACK) <= allowed * total:
        tail += masses[k]
        k -= 1
    return k
