"""Facts about randomized response and the local model and the table of exact optima.

Each printed number is reached by the public API; where parameters are rational it is an equality of Fractions.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from deniable import curves, local
from tests.local.enumeration import mp

HALF, THREE_QUARTERS, THREE_TENTHS = Fraction(1, 2), Fraction(3, 4), Fraction(3, 10)
LN3 = 1.09861228866811
FAIR = local.TwoCoinSurvey(truth=HALF, yes=HALF)


def reports(yes: int, no: int) -> list[bool]:
    return [True] * yes + [False] * no


def test_fact_the_two_coin_survey() -> None:
    assert FAIR.support.own == THREE_QUARTERS
    assert FAIR.support.other == Fraction(1, 4)
    assert FAIR.support.own / FAIR.support.other == 3
    assert FAIR.curve.epsilon(delta=0.0) == pytest.approx(LN3, rel=1e-14)
    assert FAIR.curve == curves.randomized_response(epsilon=FAIR.curve.epsilon(delta=0.0))


def test_fact_posterior_odds() -> None:
    """Odds after a yes are three times the odds before: from 10 % to 25 %, and nobody can be surer."""
    own, other, prior = FAIR.support.own, FAIR.support.other, Fraction(1, 10)
    assert own * prior / (own * prior + other * (1 - prior)) == Fraction(1, 4)
    assert FAIR.curve.posterior(prior=0.1, delta=0.0) == pytest.approx(0.25, rel=1e-13)


def test_fact_the_estimator_of_two_coins() -> None:
    for yes in range(11):
        assert FAIR.estimate(reports(yes, 10 - yes)).value == pytest.approx(2 * yes / 10 - 0.5, abs=1e-15)
    variance = FAIR.population_variance(share=THREE_TENTHS, people=1000)
    assert variance == Fraction(96, 100_000)
    assert variance / (THREE_TENTHS * (1 - THREE_TENTHS) / 1000) == Fraction(32, 7)  # 4.571428...
    # At least four times the variance of truthful answers, with equality at one half (unbounded at 0).
    assert FAIR.population_variance(share=HALF, people=1) / Fraction(1, 4) == 4
    for percent in range(1, 100):
        share = Fraction(percent, 100)
        assert FAIR.population_variance(share=share, people=1) / (share * (1 - share)) >= 4


def test_fact_warner_1965() -> None:
    survey, n = local.WarnerSurvey(p=THREE_QUARTERS), 20
    for yes in range(n + 1):
        printed = (Fraction(3, 4) - 1) / HALF + Fraction(yes, n) / HALF
        assert survey.estimate(reports(yes, n - yes)).value == pytest.approx(float(printed), abs=1e-15)
    printed = THREE_TENTHS * (1 - THREE_TENTHS) / 1000 + THREE_QUARTERS * (1 - THREE_QUARTERS) / (1000 * HALF**2)
    assert survey.population_variance(share=THREE_TENTHS, people=1000) == printed == Fraction(96, 100_000)
    assert survey.curve.epsilon(delta=0.0) == pytest.approx(LN3, rel=1e-14)


@pytest.mark.parametrize("p", [Fraction(1, 10), Fraction(1, 3), Fraction(49, 100)])
def test_fact_holds_for_a_spinner_that_mostly_shows_the_opposite(p) -> None:
    survey, n = local.WarnerSurvey(p=p), 20
    for yes in range(n + 1):
        printed = (p - 1) / (2 * p - 1) + Fraction(yes, n) / (2 * p - 1)
        assert survey.estimate(reports(yes, n - yes)).value == pytest.approx(float(printed), rel=1e-12, abs=1e-12)
    printed = THREE_TENTHS * (1 - THREE_TENTHS) + p * (1 - p) / (2 * p - 1) ** 2
    assert survey.population_variance(share=THREE_TENTHS, people=1) == printed
    assert survey.curve.epsilon(delta=0.0) == pytest.approx(abs(math.log(p / (1 - p))), rel=1e-13)


def test_fact_nu_randomized_response() -> None:
    one = local.NuRandomizedResponse(epsilon=1)
    assert one.nu == pytest.approx(0.46211715726001, rel=1e-13)
    assert one.support.own == pytest.approx((1 - one.nu) / 2 + one.nu, rel=1e-14)
    half = local.NuRandomizedResponse(nu=HALF)
    assert half.nu == HALF
    assert half.support.other == Fraction(1, 4)
    epsilon = half.curve.epsilon(delta=0.0)
    assert epsilon == pytest.approx(math.log(1.5 / 0.5), rel=1e-14)
    assert epsilon <= 2 * 0.5 / (1 - 0.5)


def test_fact_the_nu_estimator_and_its_risk() -> None:
    protocol = local.NuRandomizedResponse(nu=HALF)
    for yes in range(11):
        corrected = Fraction(yes, 10) / HALF - (1 - HALF) / (2 * HALF)
        assert protocol.estimate(reports(yes, 10 - yes)).value == pytest.approx(float(corrected), abs=1e-15)
    assert protocol.population_variance(share=THREE_TENTHS, people=1000) == Fraction(96, 100_000)


def test_erratum_the_printed_nu_estimator_is_not_reproduced() -> None:
    """Printed with 1/(n ν²) its mean at ν = 1/2, θ = 0.3 would be 1.1; ours is 0.3. The mean count decides both."""
    protocol, n = local.NuRandomizedResponse(nu=HALF), 10
    rate = protocol.support.other + protocol.support.gap * THREE_TENTHS
    assert rate * n == 4  # so four yes of ten is the mean report
    printed = Fraction(4, 10) / HALF**2 - (1 - HALF) / (2 * HALF)
    assert printed == Fraction(11, 10)
    assert protocol.estimate(reports(4, 6)).value == pytest.approx(0.3, rel=1e-15)


def test_fact_the_empirical_accuracy_does_not_depend_on_the_answers() -> None:
    protocol = local.NuRandomizedResponse(nu=HALF)
    for yes in range(11):
        assert protocol.variance(share=Fraction(yes, 10), people=1000) == Fraction(75, 100_000)
    for nu in (Fraction(1, 10), Fraction(9, 10)):
        exact = (1 - nu**2) / (4 * 7 * nu**2)
        assert local.NuRandomizedResponse(nu=nu).variance(share=Fraction(2, 7), people=7) == exact


def test_fact_rr_p() -> None:
    protocol = local.RandomizedResponse(epsilon=1)
    assert protocol.p == pytest.approx(0.731058578630005, rel=1e-14)
    assert local.RandomizedResponse(p=THREE_QUARTERS).curve.epsilon(delta=0.0) == pytest.approx(LN3, rel=1e-14)


def test_fact_the_estimator_of_one_person() -> None:
    assert local.RandomizedResponse(epsilon=1).variance(share=0.0, people=1) == pytest.approx(
        0.920673594207792, rel=1e-13
    )
    keep = Fraction(4, 5)
    protocol = local.RandomizedResponse(p=keep)
    for answer in (0, 1):
        yes, no = protocol.estimate([True]).value, protocol.estimate([False]).value
        assert yes == pytest.approx(float(HALF + (1 - HALF) / (2 * keep - 1)), rel=1e-14)
        assert no == pytest.approx(float(HALF + (0 - HALF) / (2 * keep - 1)), rel=1e-14)
        said_yes = keep if answer else 1 - keep
        assert float(said_yes) * yes + float(1 - said_yes) * no == pytest.approx(answer, abs=1e-15)
    assert protocol.variance(share=Fraction(1), people=1) == keep * (1 - keep) / (2 * keep - 1) ** 2
    assert protocol.variance(share=Fraction(1), people=1) == Fraction(4, (4 - 1) ** 2)  # e^ε/(e^ε-1)² at e^ε = 4


def test_fact_local_privacy_does_not_depend_on_the_number_of_people() -> None:
    """The joint law of n reports, one answer replaced: the others cancel, so ε stays that of one report."""
    p = THREE_QUARTERS
    assert local.RandomizedResponse(p=p).curve.epsilon(delta=0.0) == pytest.approx(LN3, rel=1e-14)
    for n in (1, 2, 3):
        rows = [[1.0], [1.0]]
        for person in range(n):
            answers = (1, 0) if person == 0 else (1, 1)
            rows = [
                [mass * float(p if report == answer else 1 - p) for mass in row for report in (0, 1)]
                for row, answer in zip(rows, answers, strict=True)
            ]
        assert curves.from_kernel(rows).epsilon(delta=0.0) == pytest.approx(LN3, rel=1e-12)


def test_fact_linear_queries_by_randomized_response() -> None:
    protocol = local.RandomizedResponse(epsilon=1)
    assert protocol.error(people=1000, confidence=0.95) == pytest.approx(0.0929351792288242, rel=1e-12)


def test_fact_ten_queries_cost_only_a_logarithm() -> None:
    protocol = local.RandomizedResponse(epsilon=1)
    ten = protocol.error(people=1000, confidence=0.95, shares=10)
    assert ten == pytest.approx(0.118440274703595, rel=1e-12)
    assert ten > 0.0529831736654804  # Laplace with a curator, k = 10


# -- exact optima of the local model --------------------------------------------------------------------------------


def test_the_table_of_optima_at_epsilon_1_and_100_categories() -> None:
    """n Var at f = 0, as printed."""
    printed = {
        local.KaryRandomizedResponse(categories=100, epsilon=1): 34.113,
        local.SymmetricUnary(categories=100, epsilon=1): 3.918,
        local.OptimizedUnary(categories=100, epsilon=1): 3.683,
        local.LocalHashing(categories=100, epsilon=1): 3.692,
        local.SubsetSelection(categories=100, epsilon=1): 3.590,
        local.RandomizedResponse(epsilon=1): 0.921,
    }
    for protocol, value in printed.items():
        assert round(protocol.variance(share=0.0, people=1), 3) == pytest.approx(value, abs=1e-12)
    assert local.LocalHashing(categories=100, epsilon=1).buckets == 4
    assert local.SubsetSelection(categories=100, epsilon=1).size == 27


@pytest.mark.parametrize("e", [Fraction(3, 2), Fraction(3), Fraction(25, 4), Fraction(49)])
@pytest.mark.parametrize("d", [3, 10, 100])
def test_variances_are_the_closed_forms_in_fractions(e, d) -> None:
    def pure(p: Fraction, q: Fraction, f: Fraction) -> Fraction:
        return (q * (1 - q) + f * (p - q) * (1 - p - q)) / (p - q) ** 2

    w = 1 + d // 4
    formulas = {
        local.KaryRandomizedResponse(categories=d, odds=e): (e / (e + d - 1), 1 / (e + d - 1)),
        local.OptimizedUnary(categories=d, odds=e): (HALF, 1 / (e + 1)),
        local.SubsetSelection(categories=d, odds=e, size=w): (
            w * e / (w * e + d - w),
            (w * e * (w - 1) + (d - w) * w) / ((d - 1) * (w * e + d - w)),
        ),
    }
    for protocol, (p, q) in formulas.items():
        for f in (Fraction(0), Fraction(1, 7), Fraction(1)):
            assert protocol.variance(share=f, people=1) == pure(p, q, f)
            assert protocol.variance(share=f, people=1000) == pure(p, q, f) / 1000
            # A random sample adds f(1-f)/n.
            assert protocol.population_variance(share=f, people=9) == pure(p, q, f) / 9 + f * (1 - f) / 9
    assert local.KaryRandomizedResponse(categories=d, odds=e).variance(share=0, people=1) == (d - 2 + e) / (e - 1) ** 2
    assert local.OptimizedUnary(categories=d, odds=e).variance(share=0, people=1) == 4 * e / (e - 1) ** 2
    s = e * e  # the odds whose root is e
    assert local.SymmetricUnary(categories=d, odds=s).variance(share=0, people=1) == e / (e - 1) ** 2
    hashed = local.LocalHashing(categories=d, odds=e, buckets=4)
    p, q = e / (e + 3), Fraction(1, 4)
    assert hashed.variance(share=0, people=1) == pytest.approx(float(q * (1 - q) / (p - q) ** 2), rel=1e-8)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("d", [2, 3, 10, 40, 1000])
def test_the_best_size_and_the_best_number_of_buckets_are_found(epsilon, d) -> None:
    """By looking at all others (mpmath, 50 digits)."""
    e = mp.exp(mp.mpf(epsilon))

    def subset(w: int) -> Any:
        p, q = w * e / (w * e + d - w), (w * e * (w - 1) + (d - w) * w) / ((d - 1) * (w * e + d - w))
        return q * (1 - q) / (p - q) ** 2

    def hashed(g: int) -> Any:
        p, q = e / (e + g - 1), mp.mpf(1) / g
        return q * (1 - q) / (p - q) ** 2

    chosen = local.SubsetSelection(categories=d, epsilon=epsilon)
    assert chosen.variance(share=0.0, people=1) == pytest.approx(float(min(map(subset, range(1, d)))), rel=1e-12)
    chosen = local.LocalHashing(categories=d, epsilon=epsilon)
    assert chosen.variance(share=0.0, people=1) == pytest.approx(float(min(map(hashed, range(2, 400)))), rel=1e-8)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_nothing_beats_the_recommended_protocol(epsilon) -> None:
    for d in (2, 3, 5, 10, 11, 50, 400):
        best = local.recommended(categories=d, epsilon=epsilon).variance(share=0.0, people=1)
        for kind in (local.KaryRandomizedResponse, local.SymmetricUnary, local.OptimizedUnary, local.LocalHashing):
            assert best <= kind(categories=d, epsilon=epsilon).variance(share=0.0, people=1) * (1 + 1e-12)
    assert isinstance(local.recommended(categories=10**6, epsilon=epsilon), local.LocalHashing)


def test_kary_response_beats_the_optimized_unary_encoding_below_3e_plus_2_categories() -> None:
    """10.2 at ε = 1, and exactly equal at d = 3E + 2 where that is whole."""
    for d in (9, 10, 11, 12):
        kary = local.KaryRandomizedResponse(categories=d, epsilon=1).variance(share=0.0, people=1)
        unary = local.OptimizedUnary(categories=d, epsilon=1).variance(share=0.0, people=1)
        assert (kary < unary) == (d < 10.2)
    kary = local.KaryRandomizedResponse(categories=11, odds=3).variance(share=0, people=1)
    assert kary == local.OptimizedUnary(categories=11, odds=3).variance(share=0, people=1)


def test_binary_randomized_response_is_the_optimum() -> None:
    """E/(E-1)² for every share; subset selection and k-ary response with two categories are the same channel."""
    for e in (Fraction(2), Fraction(7, 3)):
        best = e / (e - 1) ** 2
        assert local.RandomizedResponse(p=e / (e + 1)).variance(share=THREE_TENTHS, people=1) == best
        assert local.KaryRandomizedResponse(categories=2, odds=e).variance(share=THREE_TENTHS, people=1) == best
        assert local.SubsetSelection(categories=2, odds=e).variance(share=THREE_TENTHS, people=1) == best


def test_unary_encoding_with_each_bit_at_epsilon_would_cost_twice_as_much() -> None:
    """The broken variant of the zoo: bits flipped at ε each are 2ε; ours flips them at ε/2."""
    broken = curves.randomized_response(epsilon=1.0) ** 2
    assert broken.epsilon(delta=0.0) == pytest.approx(2.0, rel=1e-13)
    assert local.SymmetricUnary(categories=8, epsilon=1.0).curve.epsilon(delta=0.0) == pytest.approx(1.0, rel=1e-13)


def test_reports_say_less_than_any_mechanism_of_their_epsilon_once_they_are_repeated() -> None:
    """All have pure ε = 1 alone; asked 20 times, an exact curve is worth more than the black box."""
    black_box = (curves.pure(epsilon=1.0) ** 20).epsilon(delta=1e-6)
    for protocol in (
        local.OptimizedUnary(categories=100, epsilon=1.0),
        local.LocalHashing(categories=100, epsilon=1.0),
        local.SubsetSelection(categories=100, epsilon=1.0),
        local.SymmetricUnary(categories=100, epsilon=1.0),
    ):
        assert protocol.curve.epsilon(delta=0.0) == pytest.approx(1.0, rel=1e-13)
        assert (protocol.curve**20).epsilon(delta=1e-6) < 0.9 * black_box
