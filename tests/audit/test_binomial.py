"""The guessing game: its error rate by enumeration and simulation, its numbers against exact sums and mpmath."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest

from deniable.audit import binomial
from deniable.audit.binomial import free_guesses, guessing_epsilon, guessing_p_value
from deniable.testing import statistics


def exact_above(count: int, trials: int, p: Fraction) -> Fraction:
    """P(X > count)."""
    return sum(
        (math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(count + 1, trials + 1)), Fraction(0)
    )


@pytest.mark.parametrize(
    ("trials", "delta", "miss"), [(50, 0.1, 0.05), (200, 0.01, 1e-3), (40, 0.5, 0.2), (30, 1.0, 0.1), (9, 0.0, 0.1)]
)
def test_free_guesses_is_the_smallest_bound(trials: int, delta: float, miss: float) -> None:
    d = free_guesses(trials, delta, miss)
    assert exact_above(d, trials, Fraction(delta)) <= Fraction(miss)
    assert d == 0 or exact_above(d - 1, trials, Fraction(delta)) > Fraction(miss)


@pytest.mark.parametrize(
    ("right", "wrong", "miss"), [(80, 20, 0.05), (1000, 300, 1e-3), (10, 0, 0.01), (5000, 4000, 1e-9)]
)
def test_the_certified_epsilon_solves_its_equation(right: int, wrong: int, miss: float) -> None:
    """At it, so many right guesses have probability `miss`: term by term at 40 digits."""
    epsilon = guessing_epsilon(right, wrong, 10_000, miss=miss)
    with mpmath.workdps(40):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        tail = mpmath.fsum(
            mpmath.binomial(right + wrong, k) * p**k * (1 - p) ** (right + wrong - k)
            for k in range(right, right + wrong + 1)
        )
    assert float(tail) <= miss
    assert float(tail) == pytest.approx(miss, rel=1e-5)
    assert guessing_p_value(right, wrong, 10_000, epsilon=epsilon, delta=0.0, miss=miss) == pytest.approx(
        miss, rel=1e-5
    )


def test_a_p_value_pays_for_its_free_guesses() -> None:
    """In fractions: of 200 trials at δ = 0.02 nine guesses are free but for 0.0125, and that is a part of the p-value."""
    free, miss = free_guesses(200, 0.02, 0.05 / 4), 0.05
    assert exact_above(free, 200, Fraction(0.02)) <= Fraction(miss) / 4 < exact_above(free - 1, 200, Fraction(0.02))
    p = Fraction(1 / (1 + math.exp(-1.0)))
    for right, wrong in ((90, 18), (80, 20), (100, 40)):
        wanted = exact_above(right - free - 1, right - free + wrong, p) + Fraction(miss) / 4
        found = guessing_p_value(right, wrong, 200, epsilon=1.0, delta=0.02, miss=miss)
        assert found == pytest.approx(float(wanted), rel=1e-9)


def test_nearly_sure_guesses_lose_no_digits() -> None:
    """All right: the chance of a wrong guess is 1 - miss^(1/n), far below a float's distance from 1 when squared."""
    n, miss = 10**12, 1e-3
    with mpmath.workdps(50):
        wrong = -mpmath.expm1(mpmath.log(mpmath.mpf(miss)) / n)
        wanted = mpmath.log((1 - wrong) / wrong)
    assert guessing_epsilon(n, 0, n, miss=miss) == pytest.approx(float(wanted), rel=1e-9)


def test_what_is_no_better_than_chance_proves_nothing() -> None:
    assert guessing_epsilon(50, 50, 200, miss=0.05) == 0
    assert guessing_epsilon(0, 0, 200, miss=0.05) == 0
    assert guessing_epsilon(60, 0, 10**6, miss=0.05, delta=0.01) == 0, "all may be free"
    assert guessing_p_value(0, 5, 10, epsilon=1.0, delta=0.0, miss=0.1) == 1


def trinomial(n: int, r: float, w: float) -> list[tuple[int, int, float]]:
    found = []
    for right, wrong in product(range(n + 1), repeat=2):
        if right + wrong <= n:
            ways = math.comb(n, right) * math.comb(n - right, wrong)
            found.append((right, wrong, ways * r**right * w**wrong * (1 - r - w) ** (n - right - wrong)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5])
@pytest.mark.parametrize("wrong_rate", [0.01, 0.1, 0.24])
def test_false_certification_by_enumeration(epsilon: float, delta: float, wrong_rate: float) -> None:
    """The worst (ε, δ) mechanism, r = e^ε w + δ, with all 861 outcomes of 40 trials: ε is exceeded at most so often."""
    n, miss = 40, 0.1
    r = math.exp(epsilon) * wrong_rate + delta
    if r + wrong_rate > 1:  # there is no such mechanism: the nearest one
        wrong_rate = (1 - delta) / (1 + math.exp(epsilon))
        r = 1 - wrong_rate
    false = refuted = 0.0
    for right, wrong, mass in trinomial(n, r, wrong_rate):
        false += mass * (guessing_epsilon(right, wrong, n, miss=miss, delta=delta) > epsilon)
        refuted += mass * (guessing_p_value(right, wrong, n, epsilon=epsilon, delta=delta, miss=miss) <= miss)
    assert false <= miss
    assert refuted <= miss


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "delta", "w"), [(1.0, 0.0, 0.2), (2.0, 0.001, 0.02), (0.1, 0.05, 0.3), (4.0, 1e-4, 0.002)]
)
def test_false_certification_over_forty_thousand_runs(epsilon: float, delta: float, w: float) -> None:
    """Of 2000 trials each, at a miss rate of 5 %; the number of false ones is tested at 1e-9."""
    rng, n, runs, miss = np.random.default_rng(7), 2000, 40_000, 0.05
    r = math.exp(epsilon) * w + delta
    counts = rng.multinomial(n, [r, w, 1 - r - w], size=runs)
    pairs, times = np.unique(counts[:, :2], axis=0, return_counts=True)
    false = sum(
        int(t)
        for (a, b), t in zip(pairs.tolist(), times.tolist(), strict=True)
        if guessing_epsilon(a, b, n, miss=miss, delta=delta) > epsilon
    )
    assert statistics.at_least(false, runs, probability=miss) > 1e-9
    # Power: the bound is not idle. Without δ it is wrong about as often as it may be.
    if delta == 0:
        assert false > 0.03 * runs


def test_moved_functions_are_the_same_in_testing() -> None:
    assert statistics.at_least is binomial.at_least
    assert statistics.lower_bound is binomial.lower_bound
