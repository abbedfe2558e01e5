"""References that share no code with the library: lattice laws at 50 digits, exact profiles of finite pairs, and a
chi-square test with a stated false-alarm rate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from mpmath import mp, mpf
from scipy import stats

FALSE_ALARM = 1e-9
Law = dict[Any, mpf]

mp.dps = 50


def number(value: Any) -> mpf:
    exact = Fraction(value)
    return mpf(exact.numerator) / exact.denominator


def discrete_laplace(scale: Any, reach: int) -> Law:
    r = mpmath.exp(-1 / number(scale))
    return {z: (1 - r) / (1 + r) * r ** abs(z) for z in range(-reach, reach + 1)}


def rounded_gaussian(sigma: Any, reach: int) -> Law:
    s = number(sigma)
    return {
        z: mpmath.ncdf((z + mpf(1) / 2) / s) - mpmath.ncdf((z - mpf(1) / 2) / s)
        if z <= 0
        else mpmath.ncdf((-z + mpf(1) / 2) / s) - mpmath.ncdf((-z - mpf(1) / 2) / s)
        for z in range(-reach, reach + 1)
    }


def discrete_gaussian(sigma: Any, reach: int) -> Law:
    s = number(sigma)
    weights = {z: mpmath.exp(-(mpf(z) ** 2) / (2 * s * s)) for z in range(-reach, reach + 1)}
    total = mpmath.fsum(weights.values())
    return {z: w / total for z, w in weights.items()}


def shifted(law: Law, by: int) -> Law:
    return {z + by: p for z, p in law.items()}


def together(*laws: Law) -> Law:
    """The law of independent coordinates."""
    return {
        tuple(z for z, _ in combination): mpmath.fprod(p for _, p in combination)
        for combination in itertools.product(*(law.items() for law in laws))
    }


def delta(p: Law, q: Law, epsilon: Any) -> mpf:
    """sup over events of P(S) - e^ε Q(S); outcomes that only one of the cut laws has are left out."""
    factor = mpmath.exp(number(epsilon))
    both = p.keys() & q.keys()
    return mpmath.fsum(max(mpf(0), p[y] - factor * q[y]) for y in both)


def chi_square(sample: Sequence[Any], law: Mapping[Any, Any]) -> float:
    """The p-value of a sample under a law; cells with fewer than ten expected draws are put together."""
    n = len(sample)
    values, found = np.unique(np.asarray(sample), return_counts=True)
    seen = dict(zip(values.tolist(), found.tolist(), strict=True))
    expected = {y: float(p) * n for y, p in law.items()}
    large = [y for y, e in expected.items() if e >= 10]
    observed = [seen.get(y, 0) for y in large]
    wanted = [expected[y] for y in large]
    observed.append(n - sum(observed))
    wanted.append(max(n - math.fsum(wanted), 1e-6))
    if wanted[-1] < 10:
        observed[-2:] = [observed[-2] + observed[-1]]
        wanted[-2:] = [wanted[-2] + wanted[-1]]
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, wanted, strict=True))
    return float(stats.chi2.sf(statistic, len(wanted) - 1))


def kolmogorov(sample: Any, cdf: Callable[[Any], Any]) -> float:
    """The p-value of a sample under a continuous law."""
    return float(stats.kstest(np.asarray(sample), cdf).pvalue)


def covered(hits: int, trials: int, rate: float) -> bool:
    """Whether `hits` of `trials` are compatible with a probability of at least `rate` (false alarm 1e-9)."""
    return bool(stats.binom.cdf(hits, trials, rate) > FALSE_ALARM)
