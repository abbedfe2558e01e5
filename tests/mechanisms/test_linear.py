"""Linear questions: sensitivities of tables of weights, the three ways, their errors, and which wins when."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from deniable import curves, noise
from deniable.errors import InvalidParameter
from deniable.mechanisms import LinearQueries, linear
from deniable.mechanisms.additive_noise import gaussian_mu
from deniable.mechanisms.linear import NoisyAnswers, NoisyBits
from tests.mechanisms import lattice_laws as laws

pytestmark = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")

GENERATOR = np.random.default_rng(3)
BITS = GENERATOR.integers(0, 2, 300)
WEIGHTS = GENERATOR.random((4, 300))


def test_fact_hoeffding() -> None:
    """P(|mean - μ| >= t) <= 2 exp(-2nt²): the bound behind randomised bits, at ε = ∞ and n = 100, t = 0.1."""
    assert 2 * math.exp(-2 * 100 * 0.01) == pytest.approx(0.270670566473225, rel=1e-12)
    beta = 0.270670566473225
    assert linear.randomized_response_error(queries=1, people=100, epsilon=100.0, beta=beta) == pytest.approx(0.1)


def test_fact_linear_queries_by_laplace() -> None:
    found = linear.laplace_error(queries=10, people=1000, epsilon=1.0, beta=0.05)
    assert found == pytest.approx(0.0529831736654804, rel=1e-13)
    # The mechanism's own error is the exact quantile, 1 - (1 - e^-t)^k, and so a little smaller.
    ours = LinearQueries.laplace(weights=np.ones((10, 1000)), epsilon=1.0).error(confidence=0.95)
    assert 0.99 * found < ours < found


def test_fact_linear_queries_by_randomized_response() -> None:
    found = linear.randomized_response_error(queries=1, people=1000, epsilon=1.0, beta=0.05)
    assert found == pytest.approx(0.0929351792288242, rel=1e-12)
    ours = LinearQueries.randomized_response(weights=np.ones((1, 1000)), epsilon=1.0).error(confidence=0.95)
    assert ours == pytest.approx(found, rel=1e-9)


def test_fact_which_wins() -> None:
    """Ten questions: Laplace. Many: randomised bits. In between and with a δ: Gaussian noise."""
    asked = {"people": 1000, "epsilon": 1.0, "beta": 0.05}
    assert linear.randomized_response_error(queries=10, **asked) == pytest.approx(0.118440274703595, rel=1e-12)
    assert linear.laplace_error(queries=10, **asked) == pytest.approx(0.0529831736654804, rel=1e-13)
    assert linear.laplace_error(queries=30, **asked) > linear.randomized_response_error(queries=30, **asked)
    assert linear.gaussian_error(queries=30, delta=1e-6, **asked) < linear.randomized_response_error(
        queries=30, **asked
    )
    many = linear.gaussian_error(queries=3000, delta=1e-6, **asked)
    assert many > linear.randomized_response_error(queries=3000, **asked)


def test_fact_b21_laplace_needs_far_fewer_questions_than_people() -> None:
    found = linear.laplace_error(queries=1000, people=10_000, epsilon=1.0, beta=0.05)
    assert found == pytest.approx(0.990348755254, rel=1e-10)


def test_the_best_way_depends_on_the_questions_and_never_on_the_data() -> None:
    few, some = np.ones((1, 400)), np.ones((40, 400))
    many = np.ones((4000, 400))
    assert isinstance(linear.best(weights=few, epsilon=1.0, confidence=0.95), NoisyAnswers)
    assert isinstance(linear.best(weights=many, epsilon=1.0, confidence=0.95), NoisyBits)
    middle = linear.best(weights=some, epsilon=1.0, delta=1e-5, confidence=0.95)
    assert isinstance(middle, NoisyAnswers)
    assert middle.curve.delta(epsilon=1.0) <= 1e-5
    assert middle.curve.epsilon(delta=0) == math.inf
    found = linear.errors(weights=some, epsilon=1.0, delta=1e-5, confidence=0.95)
    assert min(found, key=lambda name: found[name]) == "gaussian"


def test_the_sensitivity_is_that_of_the_heaviest_person() -> None:
    weights = [[1, 0.5, 0.0], [1, 0.25, 0.25]]
    laplace = LinearQueries.laplace(weights=weights, epsilon=1.0)
    gaussian = LinearQueries.gaussian(weights=weights, mu=1.0)
    assert isinstance(laplace, NoisyAnswers)
    assert isinstance(gaussian, NoisyAnswers)
    assert 2 <= laplace.noise.sensitivity <= 2 * (1 + Fraction(1, 10**14))
    assert 2 <= gaussian.noise.sensitivity**2 <= 2 * (1 + Fraction(1, 10**13))
    for weights in (WEIGHTS, WEIGHTS.astype(np.float32)):
        exact = max(sum(Fraction(float(w)) for w in column) for column in weights.T)
        square = max(sum(Fraction(float(w)) ** 2 for w in column) for column in weights.T)
        one = LinearQueries.laplace(weights=weights, epsilon=1.0)
        two = LinearQueries.gaussian(weights=weights, mu=1.0)
        assert isinstance(one, NoisyAnswers)
        assert isinstance(two, NoisyAnswers)
        assert exact <= one.noise.sensitivity <= exact * (1 + Fraction(1, 10**13))
        assert square <= two.noise.sensitivity**2 <= square * (1 + Fraction(1, 10**13))
    counts = LinearQueries.laplace(weights=np.ones((7, 20)), epsilon=1.0)
    assert isinstance(counts, NoisyAnswers)
    assert counts.noise.sensitivity == 7


@pytest.mark.parametrize(
    "mechanism",
    [
        LinearQueries.laplace(weights=WEIGHTS, epsilon=2.0),
        pytest.param(LinearQueries.gaussian(weights=WEIGHTS, mu=1.0), marks=pytest.mark.slow),
        pytest.param(LinearQueries.randomized_response(weights=WEIGHTS, epsilon=2.0), marks=pytest.mark.slow),
    ],
)
def test_answers_are_covered_and_unbiased(mechanism: LinearQueries) -> None:
    """1500 releases of 4 answers at 80 %, false alarm 1e-9; their mean is the truth within seven standard errors."""
    truth = WEIGHTS @ BITS / 300
    entropy = noise.ReplayEntropy(2)
    found = np.array([mechanism.release(BITS, entropy=entropy) for _ in range(1500)])
    reach = mechanism.error(confidence=0.8)
    assert laws.covered(int((np.abs(found - truth).max(axis=1) <= reach).sum()), 1500, 0.8)
    spread = found.std(axis=0) / math.sqrt(1500)
    assert (np.abs(found.mean(axis=0) - truth) < 7 * spread).all()


def test_randomised_bits_are_randomized_response() -> None:
    """One person, one question: 40,000 reports; P(kept) = e/(1 + e), against 1e-9, and 4 % off is rejected."""
    only = np.zeros((1, 40_000))
    only[0, 0] = 1
    survey = LinearQueries.randomized_response(weights=only, epsilon=1.0)
    assert survey.curve == curves.randomized_response(epsilon=1.0)
    assert isinstance(survey, NoisyBits)
    kept = noise.choice(log_weights=[0, Fraction(1)], size=40_000, entropy=noise.ReplayEntropy(1))
    hits = int(np.sum(np.asarray(kept) == 1))
    p = math.e / (1 + math.e)
    assert laws.covered(hits, 40_000, p)
    assert laws.covered(40_000 - hits, 40_000, 1 - p)
    assert not laws.covered(hits, 40_000, p * 1.04)
    shown = survey.release(np.ones(40_000, dtype=int))[0] * 40_000
    assert shown == pytest.approx(0.5 + 0.5 / math.tanh(0.5)) or shown == pytest.approx(0.5 - 0.5 / math.tanh(0.5))


@pytest.mark.parametrize(
    "weights", [[], [[]], [1, 2], [[1.5]], [[-0.1]], [[math.nan]], [[0, 0]], "ab", None, [[1], [1, 0]], [["x"]]]
)
def test_weights_are_a_table_of_shares(weights: Any) -> None:
    with pytest.raises(InvalidParameter, match="weights"):
        LinearQueries.laplace(weights=weights, epsilon=1.0)


def test_what_is_not_one_is_zero_and_no_entry_is_an_error() -> None:
    exact = LinearQueries.laplace(weights=[[1, 1, 1]], epsilon=1000.0)
    for value in ([0, 1, 2], [0.5, 0, 1], [1, 0, None], [math.nan, 1, 0], [1, "x", 0]):
        assert exact.release(np.array(value, dtype=object)) == pytest.approx([1 / 3], abs=0.02)


@pytest.mark.parametrize("value", [[1, 0], 1, [[1, 0, 1]], "101"])
def test_values_are_bits(value: Any) -> None:
    for make in (LinearQueries.laplace, LinearQueries.randomized_response):
        with pytest.raises(InvalidParameter):
            make(weights=[[1, 1, 1]], epsilon=1.0).release(value)


def test_bits_come_in_many_kinds() -> None:
    asked = LinearQueries.laplace(weights=[[1, 1, 1]], epsilon=1000.0)
    for value in ([1, 0, 1], [True, False, True], np.array([1.0, 0.0, 1.0]), np.array([True, False, True])):
        if isinstance(value, list) and isinstance(value[0], bool):
            value = np.array(value)
        assert asked.release(value) == pytest.approx([2 / 3], abs=0.02)


@pytest.mark.parametrize(
    "bad", [{"queries": 0}, {"people": 0}, {"epsilon": 0}, {"beta": 0}, {"beta": 1}, {"queries": 1.5}]
)
def test_bad_sizes_are_refused(bad: dict[str, Any]) -> None:
    asked = {"queries": 1, "people": 10, "epsilon": 1.0, "beta": 0.05, **bad}
    with pytest.raises(InvalidParameter):
        linear.laplace_error(**asked)
    with pytest.raises(InvalidParameter):
        linear.randomized_response_error(**asked)
    with pytest.raises(InvalidParameter):
        linear.gaussian_error(delta=1e-6, **asked)


def test_linear_queries_are_values() -> None:
    for mechanism in (
        LinearQueries.laplace(weights=[[1, 0]], epsilon=1.0),
        LinearQueries.randomized_response(weights=[[1, 0]], epsilon=1.0),
    ):
        twin = pickle.loads(pickle.dumps(mechanism))
        assert twin == mechanism
        assert hash(twin) == hash(mechanism)
        assert (mechanism.queries, mechanism.people) == (1, 2)
        assert (mechanism**2).curve == mechanism.curve**2
    assert repr(mechanism) == "NoisyBits(1 questions, 2 people, <Curve randomized_response(epsilon=1)>)"


@pytest.mark.parametrize("bits", [2, 300, 1022, 1023, 1030, 10_000])
def test_two_to_the_n_questions_have_an_error(bits: int) -> None:
    """k = 2ⁿ ended in a raw OverflowError. By mpmath at 50 digits; what no float holds is inf."""
    k, n = 2**bits, 10_000
    with mpmath.workdps(50):
        wide = mpmath.log(2 * mpmath.mpf(k) / mpmath.mpf(0.05))
        bits_error = mpmath.sqrt(wide / (2 * n)) / mpmath.tanh(mpmath.mpf(0.5))
        laplace = mpmath.mpf(k) / n * mpmath.log(mpmath.mpf(k) / mpmath.mpf(0.05))
        z = mpmath.mpf(linear._normal(math.log(0.05) - math.log(k)))
        tail = mpmath.erfc(z / mpmath.sqrt(2))
        gaussian = mpmath.sqrt(mpmath.mpf(k)) / (n * mpmath.mpf(gaussian_mu(1.0, 1e-6))) * z
        assert 0.999 < tail * k / mpmath.mpf(0.05) <= 1
    asked = {"queries": k, "people": n, "epsilon": 1.0, "beta": 0.05}
    assert linear.randomized_response_error(**asked) == pytest.approx(float(bits_error), rel=1e-12)
    assert linear.laplace_error(**asked) == pytest.approx(float(laplace), rel=1e-12)
    assert linear.gaussian_error(**asked, delta=1e-6) == pytest.approx(float(gaussian), rel=1e-12)


def test_as_many_people_as_questions_need_no_float() -> None:
    asked = {"queries": 2**2000, "people": 2**1999, "epsilon": 1.0, "beta": 0.05}
    assert linear.laplace_error(**asked) == pytest.approx(2 * (2000 * math.log(2) - math.log(0.05)), rel=1e-12)
    assert linear.randomized_response_error(**asked) < 1e-290


def test_the_table_of_the_course_has_its_value_for_randomised_bits() -> None:
    found = linear.randomized_response_error(queries=2**10_000, people=10_000, epsilon=1.0, beta=0.05)
    assert round(found, 3) == 1.274


@pytest.mark.parametrize("weights", [[["1"]], [["1", 0]], np.array([["1"]], dtype=object), np.array([[1j]])])
def test_text_is_no_weight(weights: Any) -> None:
    with pytest.raises(InvalidParameter, match="weights"):
        LinearQueries.laplace(weights=weights, epsilon=1.0)
