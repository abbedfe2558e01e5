"""What the samplers must be: exact laws by mpmath, bits that are chosen by hand, and a chi-square test with its error rate.

Nothing here shares a line with the library: laws are computed from their textbook formulas at 600 bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

import mpmath
import numpy as np
import numpy.typing as npt
from mpmath import mp, mpf
from scipy.special import gammaincinv

from deniable.noise import Entropy, ReplayEntropy

BITS = 600
FALSE_ALARM = 1e-9


def real(x: float | Fraction | int) -> mpf:
    exact = Fraction(x)
    return mpf(exact.numerator) / exact.denominator


@dataclass(frozen=True)
class Exact:
    """P(k) for each k, and P(X <= k), both at 600 bits."""

    mass: Callable[[int], mpf]
    cumulative: Callable[[int], mpf]


def geometric(scale: float | Fraction) -> Exact:
    q = mpmath.exp(-1 / real(scale))
    return Exact(
        lambda k: (1 - q) * q**k if k >= 0 else mpf(0),
        lambda k: 1 - mpmath.exp(-(k + 1) / real(scale)) if k >= 0 else mpf(0),
    )


def discrete_laplace(scale: float | Fraction) -> Exact:
    q = mpmath.exp(-1 / real(scale))

    def cumulative(k: int) -> mpf:
        return q ** (-k) / (1 + q) if k < 0 else 1 - q ** (k + 1) / (1 + q)

    return Exact(lambda k: (1 - q) / (1 + q) * q ** abs(k), cumulative)


def discrete_gaussian(sigma: float | Fraction) -> Exact:
    s = real(sigma)
    # The theta function gives the normaliser without a sum of ours.
    z = mpmath.jtheta(3, 0, mpmath.exp(-1 / (2 * s**2)))
    masses: dict[int, mpf] = {}

    def mass(k: int) -> mpf:
        if k not in masses:
            masses[k] = mpmath.exp(-(mpf(k) ** 2) / (2 * s**2)) / z
        return masses[k]

    def cumulative(k: int) -> mpf:
        if k >= 0:
            return 1 - cumulative(-k - 1)
        end = -k + int(s * 30) + 60
        return mpmath.fsum(mass(i) for i in range(-end, k + 1))

    return Exact(mass, cumulative)


def rounded_gaussian(sigma: float | Fraction) -> Exact:
    s = real(sigma)

    def cumulative(k: int) -> mpf:
        return mpmath.erfc(-(k + mpf(1) / 2) / s / mpmath.sqrt(2)) / 2

    return Exact(lambda k: cumulative(k) - cumulative(k - 1), cumulative)


def poisson(rate: float | Fraction) -> Exact:
    r = real(rate)

    def mass(k: int) -> mpf:
        return mpmath.exp(-r + k * mpmath.log(r) - mpmath.loggamma(k + 1)) if k >= 0 else mpf(0)

    return Exact(mass, lambda k: mpmath.gammainc(k + 1, r, regularized=True) if k >= 0 else mpf(0))


def binomial(n: int, p: float | Fraction) -> Exact:
    yes, no = real(p), real(1 - Fraction(p))
    masses = [mpmath.binomial(n, k) * yes**k * no ** (n - k) for k in range(n + 1)]
    sums = [*itertools.accumulate(masses)]
    return Exact(
        lambda k: masses[k] if 0 <= k <= n else mpf(0),
        lambda k: mpf(0) if k < 0 else sums[min(k, n)],
    )


class Chosen(Entropy):
    """Words chosen by hand, in order, then none: asking for more is an error, so that a test knows what was used."""

    is_private = False

    def __init__(self, words: Iterable[int]) -> None:
        self.left = list(words)[::-1]

    def bytes(self, count: int) -> bytes:
        words = -(-count // 8)
        assert words <= len(self.left), "more bits were drawn than were chosen"
        return b"".join(self.left.pop().to_bytes(8, "little") for _ in range(words))[:count]


class ChosenFirst(Entropy):
    """Words chosen by hand, and random ones after them."""

    is_private = False

    def __init__(self, words: Iterable[int], seed: int = 0) -> None:
        self.left = list(words)[::-1]
        self.rest = ReplayEntropy(seed)

    def bytes(self, count: int) -> bytes:
        words = (self.left.pop() if self.left else self.rest.word() for _ in range(-(-count // 8)))
        return b"".join(word.to_bytes(8, "little") for word in words)[:count]


def chi_square_limit(cells: int) -> float:
    """What a chi-square statistic over so many cells exceeds with probability FALSE_ALARM."""
    freedom = cells - 1
    return 2 * float(gammaincinv(freedom / 2, 1 - FALSE_ALARM)) if freedom else 0.0


def chi_square(draws: npt.NDArray[np.int64], mass: Callable[[int], mpf], least: float = 200.0) -> tuple[float, float]:
    """(statistic, limit) for draws against masses; values are pooled until `least` are expected in every cell."""
    count = draws.size
    edges, expected = [], []
    k, pooled, done = int(draws.min()) - 1, mpf(0), mpf(0)
    # Everything below the smallest draw belongs to the first cell.
    last = int(draws.max()) + 1
    start = k
    while mass(start) * count > 1e-6:
        start -= 1
    for k in range(start, last + 1):
        pooled += mass(k)
        if pooled * count >= least:
            edges.append(k)
            expected.append(float(pooled * count))
            done += pooled
            pooled = mpf(0)
    edges.pop()  # the last cell takes all that follows
    expected[-1] += float((1 - done) * count)
    cells = np.bincount(np.searchsorted(np.array(edges), draws, side="left"), minlength=len(expected))
    statistic = float(np.sum((cells - np.array(expected)) ** 2 / np.array(expected)))
    return statistic, chi_square_limit(len(expected))


def chi_square_over(
    edges: list[int], draws: npt.NDArray[np.int64], cumulative: Callable[[int], mpf]
) -> tuple[float, float]:
    """The same for the cells (-∞, e_1], (e_1, e_2], ...; cells where fewer than 200 are expected join their neighbours."""
    kept, masses, before = [], [], mpf(0)
    for edge in edges:
        mass = cumulative(edge) - before
        if mass * draws.size >= 200 and (1 - cumulative(edge)) * draws.size >= 200:
            kept.append(edge)
            masses.append(float(mass))
            before = cumulative(edge)
    masses.append(float(1 - before))
    cells = np.bincount(np.searchsorted(np.array(kept), draws, side="left"), minlength=len(masses))
    expected = np.array(masses) * draws.size
    return float(np.sum((cells - expected) ** 2 / expected)), chi_square_limit(len(masses))


def at_many_bits() -> mpmath.workprec:
    return mp.workprec(BITS)
