"""Intervals cover as they say, by summing exact probabilities; projections are the nearest points."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import binom, norm

from deniable import local
from deniable.errors import InvalidParameter
from deniable.local.collector_estimates import Fitted, Mean, Shares, Support
from deniable.numbers import onto_simplex

PROTOCOLS = [
    *(local.RandomizedResponse(epsilon=e) for e in (0.1, 1.0, 4.0, 8.0)),
    local.TwoCoinSurvey(truth=0.5, yes=0.9),
    local.TwoCoinSurvey(truth=0.5, yes=0.1),
    local.WarnerSurvey(p=0.3),
    *(local.KaryRandomizedResponse(categories=d, epsilon=1.0) for d in (10, 100, 1000)),
    *(local.OptimizedUnary(categories=10, epsilon=e) for e in (1.0, 4.0, 8.0)),
    local.SymmetricUnary(categories=10, epsilon=1.0),
    local.SubsetSelection(categories=100, epsilon=1.0),
    local.Rappor(categories=10, f=0.5, p=0.25, q=0.75),
]
SHARES = (0.0, 0.01, 0.05, 0.2, 0.5, 0.8, 0.97, 1.0)


def coverage(protocol: local.SharesProtocol, people: int, share: float, confidence: float) -> float:
    """P(low <= share <= high) for people of whom a fixed share have the answer: the count is a sum of two binomials."""
    have = round(share * people)
    own, other = (
        binom.pmf(np.arange(n + 1), n, float(p))
        for n, p in ((have, protocol.support.own), (people - have, protocol.support.other))
    )
    estimate = Shares(np.arange(people + 1), people, protocol.support)
    low, high = estimate.interval(confidence=confidence)
    return float(np.convolve(own, other)[(low <= have / people) & (have / people <= high)].sum())


def population_coverage(protocol: local.SharesProtocol, people: int, share: float, confidence: float) -> float:
    """The same for people drawn at random from a population: the count is binomial."""
    rate = float(protocol.support.other) + float(protocol.support.gap) * share
    estimate = Shares(np.arange(people + 1), people, protocol.support)
    low, high = estimate.population_interval(confidence=confidence)
    return float(binom.pmf(np.arange(people + 1), people, rate)[(low <= share) & (share <= high)].sum())


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("people", [20, 100, 1000])
def test_intervals_of_shares_cover_at_least_as_often_as_they_say(people, confidence) -> None:
    """No simulation: the coverage is summed exactly, for every protocol and share, rare answers and few people too."""
    for protocol, share in itertools.product(PROTOCOLS, SHARES):
        assert coverage(protocol, people, share, confidence) >= confidence - 1e-3 * (1 - confidence)
        assert population_coverage(protocol, people, share, confidence) >= confidence - 1e-12


def test_intervals_of_shares_are_not_wider_than_needed() -> None:
    """With many people the coverage is nearly the stated rate, and the width nearly that of the normal distribution."""
    for protocol in (local.RandomizedResponse(epsilon=1.0), local.OptimizedUnary(categories=10, epsilon=1.0)):
        for confidence in (0.9, 0.95, 0.99):
            assert coverage(protocol, 20_000, 0.5, confidence) <= confidence + 0.1 * (1 - confidence)
            rate = float(protocol.support.other) + 0.4 * float(protocol.support.gap)
            estimate = Shares(np.array(round(2e5 * rate)), 2 * 10**5, protocol.support)
            low, high = estimate.interval(confidence=confidence)
            normal = 2 * norm.ppf((1 + confidence) / 2) * estimate.standard_error
            assert high - low == pytest.approx(normal, rel=0.02)


def test_the_coverage_check_can_fail() -> None:
    """Power: intervals that are five percent too narrow at 95 % do not pass for 95 %."""
    confidence = 2 * norm.cdf(0.95 * norm.ppf(0.975)) - 1
    protocol = local.RandomizedResponse(epsilon=1.0)
    assert coverage(protocol, 20_000, 0.5, confidence) < 0.95 - 1e-3


def test_the_interval_of_a_population_is_wider_and_the_errors_are_those_of_the_formulas() -> None:
    protocol = local.RandomizedResponse(epsilon=3.0)
    estimate = Shares(np.array(400), 1000, protocol.support)
    inner, outer = estimate.interval(confidence=0.95), estimate.population_interval(confidence=0.95)
    assert outer[0] < inner[0] < estimate.value < inner[1] < outer[1]
    share = estimate.value
    assert estimate.standard_error == pytest.approx(math.sqrt(protocol.variance(share=share, people=1000)), rel=1e-12)
    whole = protocol.population_variance(share=share, people=1000)
    assert estimate.population_error == pytest.approx(math.sqrt(whole), rel=1e-12)
    assert whole == pytest.approx(protocol.variance(share=share, people=1000) + share * (1 - share) / 1000, rel=1e-12)


def test_an_estimate_of_many_shares_is_arrays_and_of_one_a_float() -> None:
    many = local.KaryRandomizedResponse(categories=4, epsilon=1.0).estimate([0, 1, 2, 3, 3])
    assert many.value.shape == many.standard_error.shape == many.population_error.shape == (4,)
    assert all(end.shape == (4,) for end in (*many.interval(confidence=0.9), *many.population_interval(confidence=0.9)))
    one = local.RandomizedResponse(epsilon=1.0).estimate([True, False])
    assert all(isinstance(v, float) for v in (one.value, one.standard_error, *one.interval(confidence=0.9)))
    assert one.people == 2
    assert "people=2" in repr(one)


def test_shares_of_kary_response_sum_to_one() -> None:
    reports = np.random.default_rng(0).integers(0, 7, 100)
    assert local.KaryRandomizedResponse(categories=7, epsilon=0.5).estimate(reports).value.sum() == pytest.approx(1)


@pytest.mark.parametrize("confidence", [0, 1, -1, 2, math.nan, "0.9", None])
def test_a_confidence_lies_strictly_between_0_and_1(confidence) -> None:
    estimate = local.RandomizedResponse(epsilon=1.0).estimate([True])
    with pytest.raises(InvalidParameter):
        estimate.interval(confidence=confidence)
    with pytest.raises(InvalidParameter):
        estimate.population_interval(confidence=confidence)


# -- projection ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_the_projection_is_the_nearest_point_of_the_simplex(seed) -> None:
    """Against a general-purpose optimiser."""
    values = np.random.default_rng(seed).normal(0.2, 0.5, 5)
    found = onto_simplex(values)
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()
    start = np.full(5, 0.2)
    best = minimize(
        lambda x: ((x - values) ** 2).sum(),
        start,
        bounds=[(0, 1)] * 5,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
        options={"ftol": 1e-14},
    )
    assert found == pytest.approx(best.x, abs=1e-5)


def test_projection_keeps_what_is_possible_and_cuts_what_is_not() -> None:
    assert onto_simplex(np.array([0.2, 0.3, 0.5])) == pytest.approx([0.2, 0.3, 0.5])
    support = Support(0.25, 0.5)
    assert Shares(np.array(0), 10, support).projected() == 0.0
    assert Shares(np.array(10), 10, support).projected() == 1.0
    estimate = Shares(np.array([10, 0, 0]), 10, support)
    assert estimate.projected() == pytest.approx([1, 0, 0])
    fitted = Fitted(np.array([0.4, -0.1]), np.array([0.1, 0.1]), 100)
    assert fitted.projected().tolist() == [0.4, 0.0]
    assert Fitted(np.array([0.9, 0.5]), np.array([0.1, 0.1]), 100).projected().sum() == pytest.approx(1)
    mean = Mean(10, 0.0, 1.0, 1.3, 0.01, 0.02, 0.0)
    assert mean.projected() == 1.0
    assert mean.interval(confidence=0.5)[1] == 1.0


def test_hoeffding_errors_hold_at_any_number_of_people() -> None:
    """The exact probability of a larger error, summed; and the bound is not idle (it is within a factor of 3)."""
    protocol = local.RandomizedResponse(epsilon=1.0)
    for people, share in itertools.product((1, 10, 100, 1000), (0.0, 0.5, 1.0)):
        have, reach = round(share * people), protocol.error(people=people, confidence=0.95)
        own = binom.pmf(np.arange(have + 1), have, protocol.support.own)
        other = binom.pmf(np.arange(people - have + 1), people - have, protocol.support.other)
        values = Shares(np.arange(people + 1), people, protocol.support).value
        assert np.convolve(own, other)[np.abs(values - have / people) > reach].sum() <= 0.05
    assert protocol.error(people=1000, confidence=0.95) < 3 * 1.96 * math.sqrt(
        protocol.variance(share=0.5, people=1000)
    )
    with pytest.raises(InvalidParameter):
        protocol.error(people=0, confidence=0.95)
