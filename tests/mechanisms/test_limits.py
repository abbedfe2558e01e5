"""Lower bounds: numbers at 50 digits, and no mechanism of a small family that beats them."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf
from scipy import optimize

from deniable.errors import InvalidParameter
from deniable.mechanisms import Exponential, limits
from deniable.mechanisms.inverse_sensitivity import BinaryInverseSensitivity
from tests.mechanisms import exact_laws

# -- finitely many answers -------------------------------------------------------------------------------------------


def test_fact_binary_median_ceiling() -> None:
    ceiling = limits.binary_median_ceiling(records=11, ones=8, epsilon=0.5)
    assert ceiling == pytest.approx(0.924141819978756, rel=1e-11)
    assert ceiling >= mpf(1) / (1 + mpmath.exp(-mpf(5) / 2)), "rounded up"


def test_fact_is_the_best_any_symmetric_mechanism_can_do() -> None:
    """A linear programme over all symmetric mechanisms p(s), ε-DP and right as often as possible: the ceiling at s."""
    n, factor = 5, math.exp(0.5)
    for ones in (3, 4, 5):
        rows, limits_ = [], []
        for s, t in itertools.permutations(range(n + 1), 2):
            if abs(s - t) == 1:
                for sign, constant in ((1, 0.0), (-1, factor - 1)):  # P(1): p_s <= e^ε p_t; P(0) = 1 - p likewise
                    row = np.zeros(n + 1)
                    row[s], row[t] = sign, -sign * factor
                    rows.append(row)
                    limits_.append(constant)
        same = [np.eye(n + 1)[s] + np.eye(n + 1)[n - s] for s in range(n + 1)]
        best = optimize.linprog(
            -np.eye(n + 1)[ones], A_ub=rows, b_ub=limits_, A_eq=same, b_eq=np.ones(n + 1), bounds=(0, 1)
        )
        assert -best.fun <= limits.binary_median_ceiling(records=n, ones=ones, epsilon=0.5) + 1e-9
    mechanism = BinaryInverseSensitivity.median(epsilon=0.5)
    for ones in range(6, 12):
        right = mechanism.probabilities([1] * ones + [0] * (11 - ones))[1]
        assert right <= limits.binary_median_ceiling(records=11, ones=ones, epsilon=0.5)


def test_fact_statistical_threshold_of_the_median() -> None:
    assert limits.statistical_margin(records=1, confidence=0.95) == pytest.approx(1.35810151574062, rel=1e-13)
    assert limits.free_epsilon(records=1, confidence=0.95) ** 2 == pytest.approx(4.8795305522727, rel=1e-13)
    assert limits.free_epsilon(records=10_000, confidence=0.95) == pytest.approx(math.sqrt(4.8795305522727 / 1e4))
    # At this ε the exponential mechanism is right 95 % of the time at the margin.
    epsilon = limits.free_epsilon(records=400, confidence=0.95)
    margin = limits.statistical_margin(records=400, confidence=0.95)
    assert Exponential(sensitivity=1, epsilon=epsilon).probabilities([-margin, margin])[1] >= 0.952574126822433 - 1e-12


@given(far=st.lists(st.integers(0, 30), min_size=1, max_size=8), epsilon=st.fractions(Fraction(1, 100), Fraction(5)))
@settings(max_examples=80, deadline=None)
def test_ceilings_are_rounded_up(far: list[int], epsilon: Fraction) -> None:
    distances = [0, *far]
    exact = 1 / mpmath.fsum(mpmath.exp(-2 * d * exact_laws.number(epsilon)) for d in distances)
    found = limits.correct_ceiling(distances, epsilon=epsilon)
    assert exact * (1 + mpf("2e-12")) >= found
    assert found >= exact or found == 1.0


def test_no_unbiased_mechanism_beats_the_ceiling() -> None:
    """All unbiased ε-DP mechanisms for the sum of two bits (answers 0, 1, 2): a linear programme in their laws."""
    epsilon = 0.7
    datasets = list(itertools.product((0, 1), repeat=2))
    answers = range(3)
    place = {(x, y): i for i, (x, y) in enumerate(itertools.product(datasets, answers))}
    size = len(place)
    rows: list[Any] = []
    for x, other in itertools.permutations(datasets, 2):
        if sum(a != b for a, b in zip(x, other, strict=True)) == 1:
            for y in answers:
                row = np.zeros(size)
                row[place[x, y]], row[place[other, y]] = 1, -math.exp(epsilon)
                rows.append(row)
    for x in datasets:
        for y in answers:
            if y != sum(x):
                row = np.zeros(size)
                row[place[x, y]], row[place[x, sum(x)]] = 1, -1
                rows.append(row)
    sums = np.array([[float(x == z) for z, _ in place] for x in datasets])
    for x in datasets:
        goal = np.zeros(size)
        goal[place[x, sum(x)]] = -1
        best = optimize.linprog(goal, A_ub=rows, b_ub=np.zeros(len(rows)), A_eq=sums, b_eq=np.ones(4), bounds=(0, 1))
        far = [abs(sum(x) - y) for y in answers]
        assert -best.fun <= limits.correct_ceiling(far, epsilon=epsilon) + 1e-9


# -- numbers ---------------------------------------------------------------------------------------------------------


def test_fact_local_sensitivity_at_distance_k() -> None:
    assert limits.mean_modulus([0.0] * 100, bounds=(0, 1), changes=3) == pytest.approx(0.03, rel=1e-15)
    # In the middle of the range k people move the mean half as far.
    assert limits.mean_modulus([0.5] * 100, bounds=(0, 1), changes=3) == pytest.approx(0.015, rel=1e-15)
    assert limits.mean_modulus([0.2, 0.9], bounds=(0, 1), changes=0) == 0


def test_the_modulus_of_the_mean_is_that_of_a_search() -> None:
    values, points = (0.0, 0.3, 1.0), (0.0, 1.0)
    for data in itertools.product(values, repeat=3):
        for k in range(4):
            moved = max(
                abs(sum(other) - sum(data)) / 3
                for places in itertools.combinations(range(3), k)
                for new in itertools.product(points, repeat=k)
                for other in [[dict(zip(places, new, strict=True)).get(i, data[i]) for i in range(3)]]
            )
            assert limits.mean_modulus(data, bounds=(0, 1), changes=k) == pytest.approx(moved, abs=1e-15)


def test_fact_lower_bound_for_unbiased_numbers() -> None:
    assert limits.squared_error_floor(float, epsilon=0.5, changes=50) == pytest.approx(0.119202922022118, rel=1e-11)
    assert limits.linear_error_floor(sensitivity=1, epsilon=0.5) == pytest.approx(0.119202922022118, rel=1e-11)
    tiny = 1e-6
    constant = 1 / (limits.linear_error_floor(sensitivity=1, epsilon=tiny) * tiny**2)
    assert constant == pytest.approx(33.1379520516411, rel=1e-9)


def test_fact_the_constants_of_the_source_and_of_b7() -> None:
    """At least Δ²/(68 ε²) for ε <= 1/2; the best k gives 34.8312 everywhere, worst at ε = 0.4495."""
    constants = {
        e: 1 / (limits.linear_error_floor(sensitivity=2, epsilon=e) * e**2 / 4) for e in np.linspace(0.001, 0.5, 3000)
    }
    assert max(constants.values()) <= 34.8312006972774 * (1 + 1e-9) < 68
    assert max(constants.values()) > 34.82
    assert max(constants, key=constants.__getitem__) == pytest.approx(0.4495, abs=2e-3)


@given(epsilon=st.floats(0.003, 3), people=st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_the_linear_floor_is_the_general_one(epsilon: float, people: int) -> None:
    general = limits.squared_error_floor(lambda k: 3.0 * k, epsilon=epsilon, changes=people)
    assert limits.linear_error_floor(sensitivity=3, epsilon=epsilon, changes=people) == pytest.approx(
        general, rel=1e-11
    )


def test_laplace_noise_respects_the_floor() -> None:
    """Unbiased, ε-DP, mean squared error 2/ε² (discrete: 2r/(1-r)², less): never below the floor."""
    for epsilon in (0.01, 0.1, 0.5, 1.0, 3.0):
        r = math.exp(-epsilon)
        assert 2 * r / (1 - r) ** 2 >= limits.linear_error_floor(sensitivity=1, epsilon=epsilon)


# -- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: limits.correct_ceiling([], epsilon=1),
        lambda: limits.correct_ceiling([1, 2], epsilon=1),
        lambda: limits.correct_ceiling([0, -1], epsilon=1),
        lambda: limits.correct_ceiling([0, 1.5], epsilon=1),  # type: ignore[list-item]
        lambda: limits.correct_ceiling([0, 1], epsilon=0),
        lambda: limits.binary_median_ceiling(records=3, ones=4, epsilon=1),
        lambda: limits.binary_median_ceiling(records=0, ones=0, epsilon=1),
        lambda: limits.optimal_share(answers=1),
        lambda: limits.exponential_utility(candidates=0, sensitivity=1, epsilon=1, gap=1),
        lambda: limits.exponential_utility(candidates=2, sensitivity=1, epsilon=1, gap=-1),
        lambda: limits.approximate_sampling(epsilon=-1, distance=0.1),
        lambda: limits.squared_error_floor(lambda k: -1.0, epsilon=1, changes=3),
        lambda: limits.squared_error_floor(float, epsilon=1, changes=0),
        lambda: limits.linear_error_floor(sensitivity=0, epsilon=1),
        lambda: limits.mean_modulus([], bounds=(0, 1), changes=0),
        lambda: limits.mean_modulus([31337.0], bounds=(0, 1), changes=0),
        lambda: limits.mean_modulus([math.nan], bounds=(0, 1), changes=0),
        lambda: limits.mean_modulus([0.5], bounds=(0, 1), changes=2),
        lambda: limits.statistical_margin(records=0, confidence=0.9),
        lambda: limits.statistical_margin(records=1, confidence=1),
    ],
)
def test_bad_parameters_are_refused_and_data_not_shown(attempt: Any) -> None:
    with pytest.raises(InvalidParameter) as refused:
        attempt()
    assert "31337" not in str(refused.value)


def test_extremes() -> None:
    assert limits.approximate_sampling(epsilon=1000, distance=1e-9) == 1
    assert limits.approximate_sampling(epsilon=1000, distance=0) == 0
    assert limits.linear_error_floor(sensitivity=1, epsilon=1000) == 0
    assert limits.exponential_utility(candidates=5, sensitivity=1, epsilon=1, gap=0) == 1
    assert limits.binary_median_ceiling(records=10**9, ones=0, epsilon=5) == 1
