"""Independent answers for the items: closed forms at 40 digits and brute force, without a line of the library."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
from mpmath import mp, mpf

DIGITS = 40


def at_forty_digits(formula: Callable[..., Any]) -> Callable[..., Any]:
    """Evaluate a formula at 40 digits, whatever the precision outside is."""

    def evaluated(*args: Any, **named: Any) -> Any:
        with mp.workdps(DIGITS):
            return formula(*args, **named)

    return evaluated


def root(rising: Callable[[mpf], mpf], low: float, high: float) -> float:
    """Where a rising function is zero, by bisection at 40 digits."""
    with mp.workdps(DIGITS):
        left, right = mpf(low), mpf(high)
        for _ in range(90):
            middle = (left + right) / 2
            left, right = (middle, right) if rising(middle) < 0 else (left, middle)
        return float(right)


# -- normal laws -----------------------------------------------------------------------------------------------------


@at_forty_digits
def normal(x: Any) -> mpf:
    """Φ(x)."""
    return mpmath.erfc(-mpf(x) / mpmath.sqrt(2)) / 2


@at_forty_digits
def deviate(p: Any) -> mpf:
    """Φ⁻¹(p)."""
    return mpmath.sqrt(2) * mpmath.erfinv(2 * mpf(p) - 1)


@at_forty_digits
def gaussian_delta(epsilon: Any, mu: Any) -> mpf:
    """δ(ε) of N(0, 1) against N(μ, 1) (Balle & Wang 2018)."""
    m, e = mpf(mu), mpf(epsilon)
    return normal(m / 2 - e / m) - mpmath.exp(e) * normal(-m / 2 - e / m)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The ε at which the Gaussian of this μ has this δ."""
    return root(lambda e: mpf(delta) - gaussian_delta(e, mu), 0, 1000)


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """The least σ at sensitivity 1 for (ε, δ)."""
    return root(lambda s: mpf(delta) - gaussian_delta(epsilon, 1 / s), 1e-2, 1e4)


@at_forty_digits
def gaussian_beta(mu: Any, alpha: Any) -> mpf:
    """G_μ(α) = Φ(Φ⁻¹(1 - α) - μ)."""
    return normal(deviate(1 - mpf(alpha)) - mpf(mu))


# -- randomized response and Laplace noise, many times ------------------------------------------------------------------


def responses_delta(epsilon: float, count: int, total: float) -> float:
    """δ(total) of `count` randomized responses of ε each: the most that any ε-DP mechanisms have together."""
    from scipy import stats

    truthful = np.arange(count + 1)
    losses = (2 * truthful - count) * epsilon
    above = losses > total
    masses = stats.binom.pmf(truthful[above], count, 1 / (1 + math.exp(-epsilon)))
    return float(np.sum(masses * -np.expm1(total - losses[above])))


def responses_epsilon(epsilon: float, count: int, delta: float) -> float:
    return falling_root(lambda total: responses_delta(epsilon, count, total), delta, 0, count * epsilon)


def convolved_delta(losses: Sequence[float], masses: Sequence[float], count: int) -> Callable[[float], float]:
    """δ(ε) of `count` releases by plain FFT, from the masses of one privacy loss on a grid. Good to about 1e-12."""
    step, lowest = losses[1] - losses[0], losses[0]
    length = 1 << (count * (len(masses) - 1) + 1).bit_length()
    together = np.fft.irfft(np.fft.rfft(np.asarray(masses), length) ** count, length)
    reached = count * lowest + step * np.arange(length)

    def delta(epsilon: float) -> float:
        above = reached > epsilon
        return float(np.sum(together[above] * -np.expm1(epsilon - reached[above])))

    return delta


def laplace_losses(cells: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """The privacy loss of Laplace noise: an atom at each of ±1/scale, density e^((x - 1/scale)/2)/4 between them; in
    cells around evenly spaced points, `cells` on each side of 0.
    """
    largest = 1 / scale
    step = largest / cells
    losses = step * np.arange(-cells, cells + 1)
    at_most = 0.5 * np.exp((losses[:-1] + step / 2 - largest) / 2)
    return losses, np.diff(np.concatenate(([0.0], at_most, [1.0])))


def falling_root(falling: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Where a falling function of floats comes down to the target."""
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > target else (low, middle)
    return high


# -- finite laws, by brute force ---------------------------------------------------------------------------------------


def finite_delta(p: Sequence[Any], q: Sequence[Any], epsilon: Any) -> Any:
    """sup over events of P - e^ε Q."""
    with mp.workdps(DIGITS):
        return mpmath.fsum(max(mpf(0), mpf(a) - mpmath.exp(mpf(epsilon)) * mpf(b)) for a, b in zip(p, q, strict=True))


def finite_beta(p: Sequence[float], q: Sequence[float], alpha: float) -> float:
    """T(P, Q)(α): answers are rejected in the order of q/p, the last of them with a coin (Neyman & Pearson)."""
    order = sorted(range(len(p)), key=lambda i: -(q[i] / p[i]) if p[i] else -math.inf)
    left, hits = alpha, 0.0
    for i in order:
        share = 1.0 if p[i] <= left else left / p[i]
        left, hits = left - share * p[i], hits + share * q[i]
        if share < 1:
            break
    return 1 - hits


def lower_hull(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The lower convex hull, from left to right (Andrew's monotone chain)."""
    hull: list[tuple[float, float]] = []
    for x, y in sorted(points):
        while len(hull) > 1 and (hull[-1][0] - hull[-2][0]) * (y - hull[-2][1]) <= (hull[-1][1] - hull[-2][1]) * (
            x - hull[-2][0]
        ):
            hull.pop()
        hull.append((x, y))
    return hull


def tests_between(p: Sequence[float], q: Sequence[float]) -> list[tuple[float, float]]:
    """The vertices (α, β) of T(P, Q): answers are rejected one after the other, in the order of q/p."""
    order = sorted(range(len(p)), key=lambda i: -(q[i] / p[i]) if p[i] else -math.inf)
    alphas, hits = np.cumsum([p[i] for i in order]), np.cumsum([q[i] for i in order])
    return [(0.0, 1.0), *((float(a), float(1 - h)) for a, h in zip(alphas, hits, strict=True))]


def poisson_masses(rate: float, most: int = 80) -> list[float]:
    return [math.exp(n * math.log(rate) - rate - math.lgamma(n + 1)) for n in range(most + 1)]


@at_forty_digits
def jumps_delta(epsilon: Any, *, variance: Any, rate: Any, mean: Any, spread: Any, is_reversed: bool = False) -> mpf:
    """δ of Q against P where X = log dQ/dP is, under P, normal plus jumps N(mean, spread²) at this rate: the price of
    a call, given the number of jumps (Merton 1976). Reversed: P against Q.
    """
    v, r, m, s, e = (mpf(x) for x in (variance, rate, mean, spread, epsilon))
    if is_reversed:
        other = jumps_delta(-e, variance=v, rate=r, mean=m, spread=s)
        return 1 - mpmath.exp(e) + mpmath.exp(e) * other
    drift = -v / 2 - r * (mpmath.exp(m + s**2 / 2) - 1)

    def given(jumps: int) -> mpf:
        centre, square = drift + jumps * m, v + jumps * s**2
        if square == 0:
            return max(mpf(0), mpmath.exp(centre) - mpmath.exp(e))
        wide = mpmath.sqrt(square)
        reached = (centre - e) / wide
        return mpmath.exp(centre + square / 2) * normal(reached + wide) - mpmath.exp(e) * normal(reached)

    weights = (mpmath.exp(-r) * r**n / mpmath.factorial(n) for n in range(120))
    return mpmath.fsum(w * given(n) for n, w in enumerate(weights))
