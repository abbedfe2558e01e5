"""Inverse sensitivity: distances against a breadth-first search over all datasets, exact laws on all neighbours."""

from __future__ import annotations

import collections
import itertools
import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from deniable import curves
from deniable.errors import InvalidParameter, NotPrivateWarning
from deniable.mechanisms import InverseSensitivity, limits
from deniable.mechanisms.inverse_sensitivity import (
    BinaryInverseSensitivity,
    BinaryMedian,
    ModeDistance,
    QuantileDistance,
)
from deniable.noise import ReplayEntropy
from tests.mechanisms import exact_laws

pytestmark = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")

Rows = tuple[int, ...]


def by_search(values: range, n: int, statistic: Callable[[Rows], int]) -> dict[Rows, dict[int, int]]:
    """D(x, y) for all datasets of n rows: the least Hamming distance to a dataset whose statistic is y."""
    datasets = list(itertools.product(values, repeat=n))
    having = collections.defaultdict(list)
    for rows in datasets:
        having[statistic(rows)].append(rows)
    return {
        rows: {
            y: min(sum(a != b for a, b in zip(rows, other, strict=True)) for other in others)
            for y, others in having.items()
        }
        for rows in datasets
    }


def order_statistic(q: Fraction) -> Callable[[Rows], int]:
    return lambda rows: sorted(rows)[max(1, math.ceil(q * len(rows))) - 1]


def mode(rows: Rows) -> int:
    counts = collections.Counter(rows)
    return min(counts, key=lambda y: (-counts[y], y))


def majority(rows: Rows) -> int:
    return int(2 * sum(rows) > len(rows))


# -- distances -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("q", [Fraction(1, 2), Fraction(0), Fraction(1), Fraction(3, 4)], ids=str)
def test_quantile_distances_are_those_of_a_search(n: int, q: Fraction) -> None:
    found = by_search(range(3), n, order_statistic(q))
    distance = QuantileDistance(q)
    for rows, expected in found.items():
        assert distance.to_each(rows, range(3)) == [expected[y] for y in range(3)]


@pytest.mark.parametrize(("n", "answers"), [(1, 3), (2, 3), (3, 3), (4, 3), (5, 3), (4, 4)])
def test_mode_distances_are_those_of_a_search(n: int, answers: int) -> None:
    found = by_search(range(answers), n, mode)
    distance = ModeDistance(tuple(range(answers)))
    for rows, expected in found.items():
        assert distance.to_each(rows, range(answers)) == [expected[y] for y in range(answers)]


@pytest.mark.parametrize("answers", list(itertools.permutations(range(3))))
def test_of_equally_frequent_answers_the_first_in_the_list_is_the_mode(answers: tuple[int, ...]) -> None:
    """Against a search over all data of four rows, for each order of the list; a row of 3 votes for nobody."""

    def first(rows: Rows) -> int:
        return min(answers, key=lambda a: (-rows.count(a), answers.index(a)))

    found = by_search(range(4), 4, first)
    mechanism = InverseSensitivity.mode(answers=answers, epsilon=1)
    for rows in ((0, 1, 2, 3), (0, 0, 1, 1), (2, 2, 1, 1), (3, 3, 3, 3), (0, 1, 1, 2)):
        assert dict(zip(answers, mechanism.distances(rows), strict=True)) == found[rows]
    assert mechanism.distances((3, 3, 3, 3))[0] == 0  # nobody votes: the first of the list


def test_the_binary_median_answers_one_with_the_probability_of_its_formula() -> None:
    for epsilon, rows in ((0.5, 11), (1.0, 7), (0.1, 101)):
        mechanism = BinaryMedian(epsilon=epsilon)
        for ones in range(rows + 1):
            data = [1] * ones + [0] * (rows - ones)
            expected = 1 / (1 + math.exp(-(2 * ones - rows) * epsilon / 2))
            assert mechanism.probability(ones=ones, rows=rows) == pytest.approx(expected, rel=1e-12)
            assert mechanism.probabilities(data)[1] == pytest.approx(expected, rel=1e-12)
            ceiling = limits.binary_median_ceiling(records=rows, ones=ones, epsilon=epsilon)
            assert max(expected, 1 - expected) <= ceiling
    # Between neighbours the odds move by e^ε, and no further.
    mechanism = BinaryMedian(epsilon=1)
    found = [mechanism.probability(ones=s, rows=9) for s in range(10)]
    losses = [abs(math.log(a / b)) for a, b in itertools.pairwise(found)]
    losses += [abs(math.log((1 - a) / (1 - b))) for a, b in itertools.pairwise(found)]
    assert 0.9 < max(losses) <= mechanism.curve.epsilon(delta=0) == 1
    for wrong in ({"ones": 4, "rows": 3}, {"ones": -1, "rows": 3}, {"ones": 0, "rows": 0}):
        with pytest.raises(InvalidParameter):
            mechanism.probability(**wrong)
    with pytest.raises(InvalidParameter):
        mechanism.release([])


@pytest.mark.parametrize("n", range(1, 8))
def test_binary_median_distances_are_those_of_a_search(n: int) -> None:
    mechanism = BinaryInverseSensitivity.median(epsilon=1)
    for rows, expected in by_search(range(2), n, majority).items():
        assert mechanism.distances(list(rows)) == (expected[0], expected[1])
        assert mechanism.distances([bool(x) for x in rows]) == mechanism.distances(np.array(rows))


# -- the promise -----------------------------------------------------------------------------------------------------


def widest(mechanism: Any, values: range, n: int) -> tuple[mpf, mpf]:
    """(largest loss, widest span of the loss) over all neighbours that replace one of n rows."""
    scale = Fraction(mechanism.halves) / mechanism.level
    laws = {
        rows: exact_laws.softmax([-d for d in mechanism.distances(list(rows))], scale)
        for rows in itertools.product(values, repeat=n)
    }
    worst = span = mpf(0)
    for rows, place, value in itertools.product(laws, range(n), values):
        other = (*rows[:place], value, *rows[place + 1 :])
        loss = exact_laws.losses(laws[rows], laws[other])
        worst, span = max(worst, *map(abs, loss)), max(span, max(loss) - min(loss))
    return worst, span


@pytest.mark.parametrize(
    "mechanism",
    [
        InverseSensitivity.median(answers=range(3), epsilon=1),
        InverseSensitivity.quantile(q=0.75, answers=[0, 1, 2], epsilon=1),
        InverseSensitivity.mode(answers=[0, 1, 2], epsilon=1),
    ],
    ids=["median", "quantile", "mode"],
)
def test_no_neighbours_lose_more_than_bounded_range(mechanism: InverseSensitivity) -> None:
    span = max(widest(mechanism, range(3), n)[1] for n in (1, 2, 3, 4))
    assert 0.9 < span <= 1 + mpf(10) ** -40
    assert mechanism.curve == curves.exponential(epsilon=1.0)


@pytest.mark.parametrize("n", [1, 4, 5])
def test_the_binary_form_loses_exactly_epsilon(n: int) -> None:
    mechanism = BinaryInverseSensitivity.median(epsilon=1)
    assert abs(widest(mechanism, range(2), n)[0] - 1) < mpf(10) ** -40
    assert mechanism.curve == curves.pure(epsilon=1.0)


def test_two_answers_with_the_general_form_lose_only_half() -> None:
    """Why the binary form exists: e^(-εD/2) over two answers never loses more than ε/2."""
    general = InverseSensitivity.median(answers=[0, 1], epsilon=1)
    assert abs(widest(general, range(2), 5)[0] - mpf("0.5")) < mpf(10) ** -40


def test_without_the_half_three_answers_lose_more_than_epsilon() -> None:
    """The improvement is for two answers only: with three the same weights lose more than ε."""
    mechanism = InverseSensitivity.mode(answers=[0, 1, 2], epsilon=2)  # weights e^(-D): "ε = 1 without the half"
    assert widest(mechanism, range(3), 4)[0] > 1.05


# -- the law ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mechanism", "data"),
    [
        pytest.param(InverseSensitivity.median(answers=range(4), epsilon=2), [0, 1, 1, 2, 3], marks=pytest.mark.slow),
        pytest.param(
            InverseSensitivity.mode(answers=["a", "b", "o"], epsilon=2), list("aaoooooob"), marks=pytest.mark.slow
        ),
        (BinaryInverseSensitivity.median(epsilon=0.5), [1] * 8 + [0] * 3),
    ],
    ids=["median", "mode", "binary"],
)
def test_samples_follow_the_exact_law(mechanism: Any, data: list[Any]) -> None:
    """False alarm 1e-9, 12,000 draws; ε wrong by a quarter must be rejected."""
    source = ReplayEntropy(4)
    counts = collections.Counter(mechanism.release(data, entropy=source) for _ in range(12_000))
    listed = [counts[answer] for answer in mechanism.answers]
    far = [-d for d in mechanism.distances(data)]
    scale = Fraction(mechanism.halves) / mechanism.level
    truth = exact_laws.softmax(far, scale)
    assert exact_laws.chi_square(listed, truth) < 1
    assert exact_laws.rejects(listed, exact_laws.softmax(far, scale * Fraction(5, 4)), truth)
    np.testing.assert_allclose(mechanism.probabilities(data), [float(p) for p in truth])


@pytest.mark.parametrize("confidence", [0.2, 0.5, 0.9, 0.999])
def test_the_answer_is_that_near_at_the_stated_rate(confidence: float) -> None:
    for mechanism, n in (
        (InverseSensitivity.median(answers=range(3), epsilon=1), 5),
        (BinaryInverseSensitivity.median(epsilon=1), 7),
    ):
        bound = mechanism.error(confidence=confidence)
        scale = Fraction(mechanism.halves) / mechanism.level
        for rows in itertools.product(range(len(mechanism.answers)), repeat=n):
            far = mechanism.distances(list(rows))
            found = exact_laws.softmax([-d for d in far], scale)
            assert mpmath.fsum(p for p, d in zip(found, far, strict=True) if d > bound) <= 1 - confidence + 1e-12


# -- facts -----------------------------------------------------------------------------------------------------------

EIGHT_OF_ELEVEN = [1] * 8 + [0] * 3


def test_fact_the_mechanism_is_unbiased() -> None:
    """On no data is another answer more likely than the true one."""
    mechanism = InverseSensitivity.mode(answers=range(3), epsilon=1)
    for rows in itertools.product(range(3), repeat=4):
        found = mechanism.probabilities(list(rows))
        assert found[mode(rows)] == found.max()


def test_fact_inverse_sensitivity_of_the_median() -> None:
    assert BinaryInverseSensitivity.median(epsilon=0.5).distances(EIGHT_OF_ELEVEN) == (3, 0)


def test_fact_lower_bound_for_unbiased_mechanisms() -> None:
    far = BinaryInverseSensitivity.median(epsilon=0.5).distances(EIGHT_OF_ELEVEN)
    assert limits.correct_ceiling(far, epsilon=0.5) == pytest.approx(0.952574126822433, rel=1e-11)


def test_fact_inverse_sensitivity_mechanism() -> None:
    mechanism = InverseSensitivity(answers=[0, 1, 2, 3], distance=lambda data, y: y, epsilon=1)
    assert mechanism.probabilities(None)[0] == pytest.approx(0.455054233923411, rel=1e-13)


def test_fact_a_quarter_is_optimal() -> None:
    mechanism = InverseSensitivity(answers=[0, 1, 2, 3], distance=lambda data, y: y, epsilon=1)
    share = limits.optimal_share(answers=4)
    assert share == mechanism.efficiency() == 0.25
    ceiling = limits.correct_ceiling([0, 1, 2, 3], epsilon=share)
    assert ceiling == pytest.approx(0.455054233923411, rel=1e-11)
    assert mechanism.probabilities(None)[0] == pytest.approx(ceiling, rel=1e-11)


def test_fact_two_answers_without_the_half() -> None:
    mechanism = BinaryInverseSensitivity.median(epsilon=0.5)
    right = mechanism.probabilities(EIGHT_OF_ELEVEN)[1]
    assert right == pytest.approx(0.817574476193644, rel=1e-13)
    share = limits.optimal_share(answers=2)
    assert share == mechanism.efficiency() == 0.5
    assert limits.correct_ceiling([3, 0], epsilon=0.5 * share) == pytest.approx(right, rel=1e-11)
    for ones in range(12):
        rows = [1] * ones + [0] * (11 - ones)
        expected = 1 / (1 + math.exp(-(ones - 5) * 0.5)) if ones > 5 else 1 / (1 + math.exp((6 - ones) * 0.5))
        assert mechanism.probabilities(rows)[1] == pytest.approx(expected, rel=1e-13)


# -- values and parameters -------------------------------------------------------------------------------------------


def test_data_may_be_series_and_arrays() -> None:
    import pandas as pd
    import polars as pl

    middle = InverseSensitivity.median(answers=np.arange(5), epsilon=1)
    assert middle.answers == (0, 1, 2, 3, 4)
    rows = [0, 4, 1, 1, 2]
    for data in (np.array(rows), pd.Series(rows), pl.Series(rows), tuple(rows), np.array(rows, dtype=np.float32)):
        assert middle.distances(data) == middle.distances(rows)
    assert middle.distances([math.nan, -math.inf, math.inf]) == middle.distances([-5, -7, 9])
    often = InverseSensitivity.mode(answers=["a", "b"], epsilon=1)
    letters = ["a", "b", "a"]
    for data in (np.array(letters), pd.Series(letters), pl.Series(letters)):
        assert often.distances(data) == often.distances(letters) == (0, 1)


@pytest.mark.parametrize(
    ("mechanism", "data"),
    [(InverseSensitivity.median(answers=range(3), epsilon=1), data) for data in (None, 3, "31337", [], {"a": 1})]
    + [(InverseSensitivity.mode(answers=["a", "b"], epsilon=1), data) for data in (None, 3, "31337", [], {"a": 1})]
    + [(BinaryInverseSensitivity.median(epsilon=1), data) for data in (None, 3, "01", [])],
    ids=repr,
)
def test_bad_data_are_refused_and_not_shown(mechanism: Any, data: Any) -> None:
    with pytest.raises(InvalidParameter) as refused:
        mechanism.release(data)
    assert "31337" not in str(refused.value)


def test_one_odd_row_is_never_an_error() -> None:
    """It counts as the smallest number, as nobody's vote, as a zero: a function of that row alone."""
    middle = InverseSensitivity.median(answers=range(3), epsilon=1)
    assert middle.distances([1, "x", [2]]) == middle.distances([1, -5, -5])
    often = InverseSensitivity.mode(answers=["a", "b"], epsilon=1)
    assert often.distances(["a", "x", ["a"]]) == (0, 1)
    assert often.distances(["x", "y"]) == (0, 1)
    bits = BinaryInverseSensitivity.median(epsilon=1)
    assert bits.distances([1, 31337, True]) == bits.distances([1, 0, 1])


@pytest.mark.parametrize("far", [math.inf, math.nan, -1, 0.5, "31337", None, True])
def test_bad_distances_are_refused_and_not_shown(far: Any) -> None:
    for kind in (InverseSensitivity, BinaryInverseSensitivity):
        mechanism = kind(answers=[0, 1], distance=lambda data, y: far if y else 0, epsilon=1)
        with pytest.raises(InvalidParameter) as refused:
            mechanism.release([])
        assert "31337" not in str(refused.value)


@pytest.mark.parametrize("far", [(0, 0), (1, 1), (2, 3)])
def test_the_binary_form_needs_exactly_one_true_answer(far: tuple[int, int]) -> None:
    mechanism = BinaryInverseSensitivity(answers=[0, 1], distance=lambda data, y: far[y], epsilon=1)
    with pytest.raises(InvalidParameter, match="true answer"):
        mechanism.release([])


@pytest.mark.parametrize(
    "make",
    [
        lambda: InverseSensitivity(answers=[1], distance=lambda d, y: 0, epsilon=1),
        lambda: InverseSensitivity(answers="ab", distance=lambda d, y: 0, epsilon=1),
        lambda: InverseSensitivity(answers=[1, 1.0], distance=lambda d, y: 0, epsilon=1),
        lambda: InverseSensitivity(answers=[[1], [1]], distance=lambda d, y: 0, epsilon=1),
        lambda: InverseSensitivity(answers=[1, 2], distance=3, epsilon=1),
        lambda: InverseSensitivity(answers=[1, 2], distance=lambda d, y: 0, epsilon=0),
        lambda: InverseSensitivity.quantile(q=2, answers=[1, 2], epsilon=1),
        lambda: InverseSensitivity.quantile(q=0.5, answers=[1, Fraction(1, 3)], epsilon=1),
        lambda: InverseSensitivity.mode(answers=[[1], [2]], epsilon=1),
        lambda: BinaryInverseSensitivity(answers=[1, 2, 3], distance=lambda d, y: 0, epsilon=1),
    ],
)
def test_bad_parameters_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidParameter):
        make()


def test_ready_ones_are_values_that_pickle() -> None:
    for mechanism in (
        InverseSensitivity.median(answers=range(4), epsilon=0.5),
        InverseSensitivity.mode(answers=["a", "b"], epsilon=0.5),
        BinaryInverseSensitivity.median(epsilon=0.5),
    ):
        again = pickle.loads(pickle.dumps(mechanism))
        assert again == mechanism
        assert hash(again) == hash(mechanism)
        assert "epsilon=0.5" in repr(mechanism)
        assert (mechanism**2).curve == mechanism.curve**2
    with pytest.warns(NotPrivateWarning):
        mechanism.release([1], entropy=ReplayEntropy(1))
