"""Facts about selection, limits, means, histograms and thresholds: numbers that other files leave to arithmetic
are reached here through the public API, against closed forms at 50 digits or by counting.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mpf
from scipy import stats

from deniable import Unit, noise
from deniable.mechanisms import (
    AboveThreshold,
    BinaryInverseSensitivity,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    Histogram,
    InverseSensitivity,
    Laplace,
    LinearQueries,
    Mean,
    MonotoneAboveThreshold,
    PoissonMechanism,
    Staircase,
    Sum,
    histogram,
    limits,
    linear,
    staircase,
)
from tests.mechanisms import exact_laws
from tests.mechanisms import lattice_laws as laws

pytestmark = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")

ROW, REPLACED = Unit.row(), Unit.replaced_row()


# -- A4: discrete mechanisms -----------------------------------------------------------------------------------------


def majority(s: int, n: int = 11, *, epsilon: float = 0.5, sensitivity: float = 1) -> Any:
    """The law of the binary median by the exponential mechanism with u = (2y - 1)(s - n/2)."""
    away = s - n / 2
    return Exponential(sensitivity=sensitivity, epsilon=epsilon).probabilities([-away, away])


def test_fact_the_utility_of_the_median_has_sensitivity_one_and_no_less() -> None:
    """With Δ = 1 no neighbours s, s ± 1 differ by more than ε; with Δ = 1/2 some do. And the loss spans ε: 1 is exact."""
    spans, worst = {1.0: 0.0, 0.5: 0.0}, {1.0: 0.0, 0.5: 0.0}
    for sensitivity, s in itertools.product((1.0, 0.5), range(11)):
        loss = np.log(majority(s, sensitivity=sensitivity) / majority(s + 1, sensitivity=sensitivity))
        worst[sensitivity] = max(worst[sensitivity], np.abs(loss).max())
        spans[sensitivity] = max(spans[sensitivity], loss.max() - loss.min())
    assert worst[1.0] <= 0.5 < worst[0.5]
    assert spans[1.0] == pytest.approx(0.5, rel=1e-12)


def test_fact_the_median_mechanism_is_unbiased() -> None:
    """0.7773 >= 1/2 at n = 11, s = 8; and at every s the true majority is the likelier answer."""
    assert majority(8)[1] == pytest.approx(0.777299861174691, rel=1e-13)
    for s in range(12):
        true = int(s > 5)
        assert majority(s)[true] > 0.5
        rows = [1] * s + [0] * (11 - s)
        assert BinaryInverseSensitivity.median(epsilon=0.5).probabilities(rows)[true] > 0.5
        law = InverseSensitivity.mode(answers=(0, 1), epsilon=0.5).probabilities(rows)
        assert law[true] == law.max()


def test_facts_the_mechanisms_reach_their_share_of_the_ceiling_on_all_data() -> None:
    """ISM(ε) = ceiling(ε/4) exactly, for two answers ceiling(ε/2): at 50 digits, on every dataset of five rows."""
    epsilon = Fraction(3, 4)
    cases = ((InverseSensitivity.mode(answers=range(3), epsilon=epsilon), range(3), 4),
             (BinaryInverseSensitivity.median(epsilon=epsilon), range(2), 2))  # fmt: skip
    for mechanism, alphabet, share in cases:
        assert mechanism.efficiency() == 1 / share == limits.optimal_share(answers=len(mechanism.answers))
        for rows in itertools.combinations_with_replacement(alphabet, 5):
            far = mechanism.distances(list(rows))
            bound = limits.correct_ceiling(far, epsilon=epsilon / share)
            truth = 1 / mpmath.fsum(mpmath.exp(-2 * d * laws.number(epsilon / share)) for d in far)
            assert truth <= bound <= truth * (1 + mpf("2e-12"))
            right = mechanism.probabilities(list(rows))[far.index(0)]
            assert right == pytest.approx(float(truth), rel=1e-13)
            assert right <= limits.correct_ceiling(far, epsilon=epsilon)


# -- A5: continuous mechanisms ---------------------------------------------------------------------------------------


def test_fact_the_exact_probability_of_the_textbook_bound() -> None:
    """ln(10/0.05) is exceeded with probability 0.04889, not 0.05: asked at that confidence, `error` is the bound."""
    noisy = Laplace(sensitivity=1.0, epsilon=1.0, dimension=10)
    assert noisy.error(confidence=1 - 0.0488898695342281) == pytest.approx(5.29831736654804, rel=1e-9)
    assert noisy.error(confidence=0.95) < 5.29831736654804


def test_fact_the_mean_and_the_error_of_sampling() -> None:
    """Noise 0.0002, and with the variance of values in [0, 1], at most 1/4n, it is 0.00045; ε ~ 1/√n doubles nothing."""
    mean = Mean(low=0.0, high=1.0, unit=REPLACED, rows=1000, epsilon=0.1)
    assert isinstance(mean.noise, Laplace)
    noise_part = 2 * (mean.noise.scale / 1000) ** 2
    assert noise_part == pytest.approx(0.0002, rel=1e-9)
    assert noise_part + 1 / 4000 == pytest.approx(0.00045, rel=1e-9)
    # 5000 releases of a column at its middle: mean square within seven standard errors of 0.0002.
    entropy = noise.ReplayEntropy(64)
    away = np.array([mean.release([0.5] * 1000, entropy=entropy) - 0.5 for _ in range(2000)])
    assert abs((away**2).mean() - 0.0002) < 7 * 0.0002 * math.sqrt(5 / 2000)


def test_fact_the_standard_deviation_of_a_bin() -> None:
    """2√2 for Laplace noise on a replaced row; the lattice's own, which we use, is a little smaller."""
    moved = Laplace(sensitivity=2.0, epsilon=1.0, dimension=1)
    assert moved.scale * math.sqrt(2) == pytest.approx(2.82842712474619, rel=1e-9)
    bins = Histogram(edges=[0, 1, 2], unit=REPLACED, epsilon=1.0)
    sample = np.array([bins.release([], entropy=noise.ReplayEntropy(seed)) for seed in range(3000)]).ravel()
    r = mpmath.exp(-mpf(1) / 2)
    exact = float(mpmath.sqrt(2 * r) / (1 - r))
    assert exact == pytest.approx(2.79918, abs=1e-5)
    assert abs(sample.std() - exact) < 7 * exact * math.sqrt(5 / 4 / sample.size)


def test_fact_one_question_at_the_threshold_fires_half_the_time() -> None:
    """Through releases alone: 1000 runs, false alarm 1e-9."""
    alarm, entropy = AboveThreshold(threshold=5, sensitivity=1, epsilon=1), noise.ReplayEntropy(70)
    fired = sum(alarm.release([5], entropy=entropy) == 0 for _ in range(1000))
    assert exact_laws.chi_square([fired, 1000 - fired], [0.5, 0.5]) < 1


def test_fact_the_floor_is_a_floor_for_every_unbiased_mechanism_here() -> None:
    """Their mean squared errors (closed forms, 50 digits) against the floor, from ε = 0.01 to 4."""
    for epsilon in (0.01, 0.1, 0.5, 1.0, 2.0, 4.0):
        floor = limits.linear_error_floor(sensitivity=1, epsilon=epsilon)
        peak = max(mpf(k) ** 2 / (4 * (1 + mpmath.exp(2 * k * mpf(epsilon)))) for k in range(1, 400))
        assert peak * (1 - mpf("2e-12")) <= floor <= peak
        b = math.exp(-epsilon)
        assert floor <= 2 * b / (1 - b) ** 2  # counts
        assert floor <= staircase.least_rms(1, epsilon, whole=False) ** 2
        assert floor <= 1 / (1 + math.exp(-epsilon)) / (1 + math.exp(epsilon)) / math.tanh(epsilon / 2) ** 2  # one bit


def test_fact_is_twice_as_large_as_the_source_states() -> None:
    """The proof gives Δ²/(2(1 + e^(2kε))). A linear programme shows that even twice the floor is respected: the least
    mean square at x = 0 of an ε-DP answer in {-2..5} to a count in {0..3} that is unbiased in the sense of the source.
    """
    from scipy import optimize

    epsilon, answers, values = 0.5, np.arange(-2, 6), np.arange(4)
    place = {(x, y): i for i, (x, y) in enumerate(itertools.product(values, answers))}
    rows: list[Any] = []
    for x, other in itertools.permutations(values, 2):
        if abs(x - other) == 1:
            for y in answers:
                row = np.zeros(len(place))
                row[place[x, y]], row[place[other, y]] = 1, -math.exp(epsilon)
                rows.append(row)
        # On no data is the answer nearer, in mean square, to another value than to the true one.
        row = np.zeros(len(place))
        for y in answers:
            row[place[x, y]] = (y - x) ** 2 - (y - other) ** 2
        rows.append(row)
    sums = np.array([[float(x == z) for z, _ in place] for x in values])
    goal = np.array([float((y - x) ** 2) if x == 0 else 0.0 for x, y in place])
    best = optimize.linprog(goal, A_ub=rows, b_ub=np.zeros(len(rows)), A_eq=sums, b_eq=np.ones(4), bounds=(0, 1))
    floor = limits.squared_error_floor(float, epsilon=epsilon, changes=3)
    assert best.fun >= 2 * floor
    assert best.fun < 20 * floor, "the programme is about the same thing"


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0, 8.0])
def test_efficiency_is_the_staircase_over_laplace_in_closed_form(epsilon: float) -> None:
    """Geng & Viswanath (2016): the least variance is Δ² (2^(-2/3) b^(2/3) (1+b)^(2/3) + b)/(1-b)², b = e^-ε."""
    b = mpmath.exp(-mpf(epsilon))
    least = mpmath.sqrt((mpf(2) ** (-mpf(2) / 3) * (b * (1 + b)) ** (mpf(2) / 3) + b) / (1 - b) ** 2)
    ours = mpmath.sqrt(2) / mpf(epsilon)
    expected = float(least / ours)
    assert staircase.least_rms(1, epsilon, whole=False) == pytest.approx(float(least), rel=1e-6)
    assert Laplace(sensitivity=1.0, epsilon=epsilon, dimension=1).efficiency() == pytest.approx(expected, rel=1e-6)
    assert Laplace(sensitivity=7.5, epsilon=epsilon, dimension=1).efficiency() == pytest.approx(expected, rel=1e-6)
    assert Staircase(sensitivity=1.0, epsilon=epsilon).efficiency() == pytest.approx(1, abs=1e-6)
    total = Sum(low=-1.0, high=1.0, unit=ROW, epsilon=epsilon)
    assert total.efficiency() == Laplace(sensitivity=1.0, epsilon=epsilon, dimension=1).efficiency()
    assert DiscreteLaplace(sensitivity=1, epsilon=epsilon).efficiency() == 1.0


def test_fact_the_records_that_laplace_needs() -> None:
    """n >= k ln(k/β)/(a ε): with that many people the error is a, through the error of the mechanism's formula."""
    k, a, epsilon, beta = 10, 0.02, 1.0, 0.05
    people = math.ceil(k * math.log(k / beta) / (a * epsilon))
    assert linear.laplace_error(queries=k, people=people, epsilon=epsilon, beta=beta) <= a
    assert linear.laplace_error(queries=k, people=people - 1, epsilon=epsilon, beta=beta) > a
    ours = LinearQueries.laplace(weights=np.ones((k, people)), epsilon=epsilon).error(confidence=1 - beta)
    assert 0.98 * a < ours < a


def test_fact_a_linear_question_moves_by_one_nth() -> None:
    noisy: Any = LinearQueries.laplace(weights=np.ones((1, 250)), epsilon=1.0)
    assert noisy.noise.sensitivity / noisy.people == Fraction(1, 250)


# -- errata ----------------------------------------------------------------------------------------------------------


def test_fact_b4_the_noise_of_an_added_row_costs_twice_when_rows_are_replaced() -> None:
    """Lap(1/ε) in each bin: ε for a row added or removed, exactly 2ε for a row that moves, and that is attained."""
    for epsilon in (0.5, 1.0):
        added, moved = (Histogram(categories=["a", "b"], unit=u, scale=1 / epsilon) for u in (ROW, REPLACED))
        assert added.curve.epsilon(delta=0) == pytest.approx(epsilon, rel=1e-12)
        assert moved.curve.epsilon(delta=0) == pytest.approx(2 * epsilon, rel=1e-12)
        law = laws.discrete_laplace(1 / epsilon, 30)
        p, q = laws.together(law, law), laws.together(laws.shifted(law, 1), laws.shifted(law, -1))
        worst = max(abs(mpmath.log(p[y] / q[y])) for y in p.keys() & q.keys())
        assert abs(worst - 2 * epsilon) < mpf(10) ** -30


def test_fact_b5_how_often_every_count_of_an_empty_histogram_is_at_most_zero() -> None:
    """2^-10 = 0.000977 of the runs of the slide's code would divide by 0; counting 200,000 runs, false alarm 1e-9.
    Noise on whole numbers does so in (1/(1 + e^-½))^10 = 0.0088 of them. Our shares are then equal.
    """
    runs = 200_000
    real = Laplace(sensitivity=2.0, epsilon=1.0, dimension=10 * runs)
    found = real.release(np.zeros(10 * runs), entropy=noise.ReplayEntropy(5)).reshape(runs, 10)
    none = int((found <= 0).all(axis=1).sum())
    assert 2**-10 == 0.0009765625
    assert laws.covered(none, runs, 2**-10)
    assert laws.covered(runs - none, runs, 1 - 2**-10)
    assert not laws.covered(none, runs, 2**-10 * 1.6)
    bins = Histogram(categories=range(10), unit=REPLACED, epsilon=1.0)
    chance = float((1 / (1 + mpmath.exp(-mpf(1) / 2))) ** 10)
    assert chance == pytest.approx(0.0087, abs=2e-4)
    entropy, equal = noise.ReplayEntropy(6), 0
    for _ in range(3000):
        counts = bins.release([], entropy=entropy)
        share = histogram.shares(counts)
        assert np.isfinite(share).all()
        if (counts <= 0).all():
            equal += 1
            assert share.tolist() == [0.1] * 10
    assert laws.covered(equal, 3000, chance)
    assert laws.covered(3000 - equal, 3000, 1 - chance)


def test_fact_b15_every_run_has_a_threshold_of_its_own() -> None:
    """Two questions at the threshold, noise of one scale everywhere: "none" has probability 1/3, so two runs agree in
    5/9 of all cases. With one noisy threshold for both they would agree in 11/15: 1000 pairs, false alarm 1e-9, and that
    is rejected by the same test.
    """
    alarm, entropy = MonotoneAboveThreshold(threshold=0, sensitivity=1, epsilon=1), noise.ReplayEntropy(15)
    assert alarm.threshold_scale == alarm.answer_scale == 2
    agree, nothing = 0, 0
    for _ in range(1000):
        one, two = (alarm**2).release([0, 0], entropy=entropy)
        agree += (one is None) == (two is None)
        nothing += (one is None) + (two is None)
    # F(T) is uniform when T has the law F: P(none) = E U² = 1/3, and E[U⁴ + (1 - U²)²] = 11/15.
    third, shared = Fraction(1, 3), Fraction(1, 5) + 1 - Fraction(2, 3) + Fraction(1, 5)
    own = third**2 + (1 - third) ** 2
    assert (own, shared) == (Fraction(5, 9), Fraction(11, 15))
    assert exact_laws.chi_square([nothing, 2000 - nothing], [third, 1 - third]) < 1
    assert exact_laws.chi_square([agree, 1000 - agree], [own, 1 - own]) < 1
    assert exact_laws.rejects([agree, 1000 - agree], [shared, 1 - shared], [own, 1 - own])


def test_fact_b21_gaussian_noise_answers_far_more_questions() -> None:
    """k = 1000 questions about 10,000 people at ε = 1: Laplace 0.99; Gaussian noise with δ = 1e-6 below 0.06."""
    asked = {"queries": 1000, "people": 10_000, "epsilon": 1.0, "beta": 0.05}
    assert linear.laplace_error(**asked) == pytest.approx(0.990348755254, rel=1e-11)
    assert linear.gaussian_error(**asked, delta=1e-6) < 0.06
    assert linear.laplace_error(**asked) > 90 / math.sqrt(10_000)


# -- C.3 -------------------------------------------------------------------------------------------------------------

ALPHAS = np.logspace(-14, 0, 60)
LINEAR = PoissonMechanism.linear(low=2, high=5, sensitivity=2, top=6)
TRANSPORT = PoissonMechanism.transport(low=2, high=5, sensitivity=2, top=6)


def trade_off(p: float, q: float, alphas: Any) -> Any:
    """T(Pois p, Pois q) for p < q: its vertices are (P(N > n), Q(N <= n)), and it is linear between them (C.2)."""
    n = np.arange(-1, 250)
    return np.interp(alphas, stats.poisson.sf(n, p)[::-1], stats.poisson.cdf(n, q)[::-1])


def reversed_trade_off(p: float, q: float, alphas: Any) -> Any:
    """T(Pois q, Pois p): the same vertices with their sides changed."""
    n = np.arange(-1, 250)
    return np.interp(alphas, stats.poisson.cdf(n, q), stats.poisson.sf(n, p))


@pytest.mark.parametrize("mechanism", [LINEAR, TRANSPORT], ids=["linear", "transport"])
def test_fact_c3_no_trade_off_of_neighbours_lies_below_the_promise(mechanism: PoissonMechanism) -> None:
    """At α from 1e-14 to 1, all neighbours, both orders; and the promise is attained."""
    promised = np.asarray(mechanism.curve.beta(alpha=ALPHAS))
    nearest = 1.0
    for y, step in itertools.product(range(7), (1, 2)):
        if y + step <= 6:
            p, q = float(mechanism.rate(y)), float(mechanism.rate(y + step))
            for found in (trade_off(p, q, ALPHAS), reversed_trade_off(p, q, ALPHAS)):
                assert (found - promised).min() >= -1e-12
                nearest = min(nearest, float((found - promised)[ALPHAS < 0.1].max()))
    assert nearest < 1e-9


def test_fact_c3_half_the_step_is_below_the_promise_by_448_thousandths() -> None:
    """Negative control: the linear form for w = 1 has rates 2 and 8 at distance 2; T - f is -0.448 near α = 0.0046."""
    wrong = PoissonMechanism.linear(low=2, high=5, sensitivity=1)
    p, q = float(wrong.rate(0)), float(wrong.rate(2))
    assert (p, q) == (2, 8)
    gap = trade_off(p, q, ALPHAS) - np.asarray(LINEAR.curve.beta(alpha=ALPHAS))
    assert gap.min() == pytest.approx(-0.4487, abs=5e-3)
    alpha = 0.004600142503334922
    assert trade_off(p, q, alpha) - LINEAR.curve.beta(alpha=alpha) == pytest.approx(-0.448676, abs=1e-6)


def test_fact_c3_the_parameters_of_the_slide() -> None:
    """η₁ = log(μ₂/μ₁)/w is how fast the rates grow, η₂ = (μ₂-μ₁)/(h(6)-h(4)) where they begin, h(y) = e^(η₁ y)."""
    rates = [float(TRANSPORT.rate(y)) for y in range(7)]
    for y in range(6):
        assert math.log(rates[y + 1] / rates[y]) == pytest.approx(0.458145365937078, rel=1e-12)
    h = [rate / rates[0] for rate in rates]
    assert (5 - 2) / (h[6] - h[4]) == pytest.approx(0.32, rel=1e-12)
    assert rates[0] == pytest.approx(0.32, rel=1e-12)


def test_fact_c3_the_variance_of_the_linear_estimate() -> None:
    """w² (μ₁ + (μ₂-μ₁) y/w)/(μ₂-μ₁)²: 4000 estimates within seven standard errors; unbiased too."""
    entropy = noise.ReplayEntropy(3)
    for y in (0, 4):
        found = LINEAR.estimate(np.array([LINEAR.release(y, entropy=entropy) for _ in range(4000)]))
        exact = 4 * (2 + 3 * y / 2) / 9
        assert abs(found.mean() - y) < 7 * math.sqrt(exact / 4000)
        assert abs(found.var() - exact) < 7 * exact * math.sqrt(3 / 4000)


def test_errata_b44_ours_is_no_float_noise() -> None:
    """S = {|y| < 1/2, y 2^53 not whole}: numpy's Laplace noise falls into it in 0.272 of all draws around 0 and never
    around 1, so its loss is infinite. Ours never does, around either. 200,000 draws, false alarm 1e-9.
    """
    count = 200_000

    def inside(answers: Any) -> int:
        answers = np.asarray(answers)
        scaled = answers * 2.0**53
        return int(((np.abs(answers) < 0.5) & (scaled != np.rint(scaled))).sum())

    generator = np.random.default_rng(44)
    naive = inside(generator.laplace(0, 1, count))
    assert laws.covered(naive, count, 0.265)
    assert laws.covered(count - naive, count, 1 - 0.279)
    assert inside(generator.laplace(1, 1, count)) == 0
    for mechanism in (
        Laplace(sensitivity=1.0, scale=1, dimension=count),
        Gaussian(sensitivity=1.0, sigma=1, dimension=count),
    ):
        for value in (0.0, 1.0, 0.1, 1 / 3):
            assert inside(mechanism.release(np.full(count, value), entropy=noise.ReplayEntropy(44))) == 0
