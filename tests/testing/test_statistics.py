"""The tests' own error rates, against exact sums of fractions, mpmath and enumeration; and what they can find."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from deniable.errors import InvalidDistribution, InvalidParameter
from deniable.testing import statistics
from deniable.testing.statistics import FALSE_ALARM, at_least, at_most, chi_square, clopper_pearson


def exact_at_most(hits: int, trials: int, p: Any) -> Fraction:
    p = Fraction(p)
    return sum((math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(hits + 1)), Fraction(0))


@pytest.mark.parametrize(
    ("hits", "trials", "p"),
    [(0, 1, 0.5), (3, 20, 0.25), (20, 20, 0.1), (7, 300, 0.1), (90, 100, 0.99), (5, 9, 1.0), (0, 9, 0.0)],
)
def test_binomial_tails_are_exact_sums(hits: int, trials: int, p: float) -> None:
    below = exact_at_most(hits, trials, p)
    above = 1 - exact_at_most(hits - 1, trials, p) if hits else Fraction(1)
    assert at_most(hits, trials, probability=p) == pytest.approx(float(below), rel=1e-11, abs=1e-300)
    assert at_least(hits, trials, probability=p) == pytest.approx(float(above), rel=1e-11, abs=1e-300)


def test_far_tails_are_right_in_relative_terms() -> None:
    """50 digits of mpmath, for a million trials."""
    with mpmath.workdps(50):
        wanted = mpmath.betainc(1400, 10**6 - 1400 + 1, 0, mpmath.mpf(1) / 1024, regularized=True)
    assert wanted < 1e-30
    assert at_least(1400, 10**6, probability=1 / 1024) == pytest.approx(float(wanted), rel=1e-8)


def tail(hits: int, trials: int, p: Any) -> Any:
    """P(X >= hits), term by term at 40 digits."""
    with mpmath.workdps(40):
        p = mpmath.mpf(p)
        term = mpmath.binomial(trials, hits) * p**hits * (1 - p) ** (trials - hits)
        total = term
        for k in range(hits, trials):
            term *= (trials - k) * p / ((k + 1) * (1 - p))
            total += term
        return total


@pytest.mark.parametrize("miss", [0.05, 1e-9, 2.5e-10])
@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (1, 10), (10, 10), (37, 200), (5000, 10_000)])
def test_bounds_solve_their_equations(hits: int, trials: int, miss: float) -> None:
    """At the bound, the tail is exactly the miss rate."""
    low = statistics.lower_bound(hits, trials, miss=miss)
    high = statistics.upper_bound(hits, trials, miss=miss)
    if hits:
        assert float(tail(hits, trials, low)) == pytest.approx(miss, rel=1e-6)
    if hits < trials:
        assert float(tail(trials - hits, trials, 1 - mpmath.mpf(high))) == pytest.approx(miss, rel=1e-6)
    assert (low == 0) == (hits == 0)
    assert (high == 1) == (hits == trials)


@pytest.mark.parametrize("p", [0.0, 0.01, 0.2, 0.5, 0.93, 1.0])
def test_clopper_pearson_covers_by_enumeration(p: float) -> None:
    """All 31 counts of 30 draws, with their exact probabilities."""
    inside = Fraction(0)
    for k in range(31):
        low, high = clopper_pearson(k, 30, confidence=0.9)
        if low <= p <= high:
            inside += exact_at_most(k, 30, p) - exact_at_most(k - 1, 30, p)
    assert inside >= Fraction(9, 10)


def test_bounds_take_arrays() -> None:
    low = statistics.lower_bound(np.array([0, 3, 10]), 10, miss=0.01)
    assert low.tolist() == [statistics.lower_bound(k, 10, miss=0.01) for k in (0, 3, 10)]


@pytest.mark.parametrize("law", [(0.5, 0.5), (0.1, 0.2, 0.7), (0.25, 0.25, 0.25, 0.25), (0.08, 0.46, 0.46)])
def test_the_p_value_of_chi_square_is_one_by_enumeration(law: tuple[float, ...]) -> None:
    """All counts of n draws with their exact probabilities: P(p-value <= a) <= a for every a that occurs."""
    n = 40 if len(law) < 4 else 24
    mass: dict[float, Fraction] = defaultdict(Fraction)
    for head in itertools.product(range(n + 1), repeat=len(law) - 1):
        counts = (*head, n - sum(head))
        if counts[-1] < 0:
            continue
        ways = math.factorial(n) // math.prod(math.factorial(k) for k in counts)
        chance = ways * math.prod(Fraction(p).limit_denominator(100) ** k for p, k in zip(law, counts, strict=True))
        mass[chi_square(counts, law)] += chance
    total = Fraction(0)
    for value in sorted(mass):
        total += mass[value]
        assert total <= Fraction(value) + Fraction(1, 10**12), value
    assert total == 1
    assert min(mass) < FALSE_ALARM, "the test can reject"


def laplace(scale: float, reach: int = 60) -> np.ndarray[Any, Any]:
    weights = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize(("wrong", "draws"), [(1.05, 100_000), (0.95, 100_000), (1.1, 30_000), (0.9, 30_000)])
def test_power_a_scale_wrong_by_a_few_percent_is_found(wrong: float, draws: int) -> None:
    """30 of 30 samples of the stated size are rejected at 1e-9, and none of the right law is."""
    rng = np.random.default_rng(5)
    for _ in range(30):
        assert chi_square(rng.multinomial(draws, laplace(3 * wrong)), laplace(3)) < FALSE_ALARM
        assert chi_square(rng.multinomial(draws, laplace(3)), laplace(3)) > FALSE_ALARM


def test_small_cells_are_pooled_and_impossible_ones_are_not() -> None:
    many = [1e-4] * 10_000
    assert chi_square([1] * 10_000, many) == 1.0
    assert chi_square([2] * 5000 + [0] * 5000, many) < FALSE_ALARM
    assert chi_square([50, 50, 1], [0.5, 0.5, 0.0]) == 0.0
    assert chi_square([5], [1.0]) == 1.0


@pytest.mark.parametrize(
    ("counts", "law", "error"),
    [
        ([1, 2], [0.5], InvalidParameter),
        ([], [], InvalidParameter),
        ([1, -2], [0.5, 0.5], InvalidParameter),
        ([0, 0], [0.5, 0.5], InvalidParameter),
        ([1, 2], [0.5, 0.4], InvalidDistribution),
        ([1, 2], [1.5, -0.5], InvalidDistribution),
        ([1, 2], [math.nan, 1.0], InvalidDistribution),
    ],
)
def test_chi_square_refuses_what_is_no_law(counts: list[int], law: list[float], error: type[Exception]) -> None:
    with pytest.raises(error):
        chi_square(counts, law)


def test_bad_counts_are_refused() -> None:
    for hits, trials, p in ((3, 2, 0.5), (-1, 2, 0.5), (1, 0, 0.5), (1, 2, 1.5), (1.5, 2, 0.5)):
        with pytest.raises(InvalidParameter):
            at_most(hits, trials, probability=p)  # type: ignore[arg-type]
        with pytest.raises(InvalidParameter):
            at_least(hits, trials, probability=p)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter):
        clopper_pearson(1, 2, confidence=1.0)
