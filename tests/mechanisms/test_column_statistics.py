"""Sum, mean, variance and private bounds: sensitivities searched for in rational arithmetic, laws, coverage, borders."""

from __future__ import annotations

import itertools
import math
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable import curves, noise
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.mechanisms import Bounds, Histogram, Laplace, Mean, Sum, Variance, column_statistics
from deniable.mechanisms.column_statistics import RESOLUTION, clamp
from deniable.units import Unit
from tests.mechanisms import lattice_laws as laws
from tests.mechanisms.cases import Nameless
from tests.wording import worded

pytestmark = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")

ROW, REPLACED = Unit.row(), Unit.replaced_row()


# -- sum -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "unit", "moved"),
    [
        (0, 20, ROW, 20),
        (-5, 3, ROW, 5),
        (10, 20, ROW, 20),
        (10, 20, REPLACED, 10),
        (-5, 3, REPLACED, 8),
        (0.0, 0.1, ROW, Fraction(0.1)),
        (0.0, 2.5, Unit.person("id", rows=4), 10),
        (1.0, 2.5, Unit.replaced_person("id", rows=4), 6),
    ],
)
def test_the_sensitivity_of_a_sum_is_exact(low: float, high: float, unit: Unit, moved: Fraction) -> None:
    assert Sum(low=low, high=high, unit=unit, epsilon=1.0).noise.sensitivity == moved


def test_sums_are_clamped_and_exact_whatever_the_order() -> None:
    total = Sum(low=-1e16, high=1e16, unit=ROW, epsilon=1.0)
    data = [1e16, 1.0, -1e16, 1e-3, 1e17]
    for order in itertools.permutations(data):
        assert total.total(order) == Fraction(10**16) + 1 + Fraction(1e-3)
    far = Sum(low=2**62 - 5, high=2**62, unit=REPLACED, epsilon=1.0)
    assert far.total([2**62] * 9) == 9 * 2**62
    assert far.total([2**63 - 1, -5]) - 2**63 in (-5, 0)  # rows count as floats first: see the next test
    assert Sum(low=0, high=9, unit=ROW, epsilon=1.0).total([-5, 3]) == 3
    with worded(InvalidParameter, parameter="scale"):
        Sum(low=0, high=2**62, unit=ROW, epsilon=1.0)


HUGE = 1_700_000_000_000_000_000


@pytest.mark.parametrize("kind", [list, np.array, pd.Series], ids=lambda kind: kind.__name__)
def test_one_row_does_not_change_what_the_others_count_as(kind: Any) -> None:
    """None, a float or a bool turns a column of whole numbers into another dtype: every row must stay what it was."""
    for odd in (None, 0.5, True):
        for make in (Sum, Mean):
            mechanism = make(low=1.6e18, high=1.8e18, unit=ROW, epsilon=1e3)
            one, two = (mechanism.release(kind(rows)) for rows in ([HUGE] * 1000, [*[HUGE] * 1000, odd]))
            assert abs(one - two) <= 2.1e18 if make is Sum else abs(one - two) <= 1e-2 * 1.8e18
        whole = Sum(low=HUGE - 50, high=HUGE + 50, unit=REPLACED, epsilon=1e3)
        rows = [HUGE + 9] * 1000
        assert abs(whole.total(kind([*rows, HUGE])) - whole.total(kind([*rows, odd]))) <= 100


def test_fact_clipping_keeps_the_promise_and_moves_the_mean() -> None:
    mean = Mean(low=0.0, high=1.0, unit=REPLACED, rows=2, epsilon=1e6)
    assert mean.release([0, 10]) == pytest.approx(0.5, abs=1e-4)
    assert mean.release([0, 10]) - 5 == pytest.approx(-4.5, abs=1e-4)


def test_missing_values_count_as_the_point_nearest_to_zero() -> None:
    one, two, three = Fraction(1), Fraction(2), Fraction(3)
    assert clamp([math.nan, None], -one, two).tolist() == [0.0, 0.0]
    assert clamp([math.nan], one, two).tolist() == [1.0]
    assert clamp([math.nan], -three, -two).tolist() == [-2.0]
    assert clamp([math.inf, -math.inf], -one, two).tolist() == [2.0, -1.0]
    assert clamp(pd.Series([1.5, None]), -one, two).tolist() == [1.5, 0.0]
    assert clamp(pl.Series([1.5, None]), -one, two).tolist() == [1.5, 0.0]
    assert clamp([], -one, two).tolist() == []


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=6), st.floats(allow_nan=True), st.booleans())
@settings(max_examples=200, deadline=None)
def test_one_row_moves_the_exact_sum_by_no_more_than_said(rows: list[float], more: float, is_added: bool) -> None:
    total = Sum(low=-0.3, high=0.7, unit=ROW if is_added else REPLACED, epsilon=1.0)
    other = [*rows, more] if is_added else [*rows[:-1], more] if rows else rows
    assert abs(Fraction(total.total(rows)) - Fraction(total.total(other))) <= total.noise.sensitivity


def test_the_kind_of_sum_is_that_of_the_bounds() -> None:
    assert type(Sum(low=0, high=9, unit=ROW, epsilon=1.0).release([1, 2])) is int
    assert type(Sum(low=0, high=9, unit=ROW, epsilon=1.0).release([])) is int
    assert type(Sum(low=0, high=9.0, unit=ROW, epsilon=1.0).release([1, 2])) is float
    assert type(Sum(low=0, high=9.0, unit=ROW, epsilon=1.0).release([])) is float


def test_no_single_row_is_an_error() -> None:
    """A missing value turns whole columns into floats or objects; the answer must not turn into an error."""
    whole, real = Sum(low=0, high=9, unit=ROW, epsilon=1.0), Sum(low=0, high=9.0, unit=ROW, epsilon=1.0)
    odd = [
        None,
        math.nan,
        "x",
        Nameless(),
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("Infinity"),
        10**400,
        -(10**400),
        5e-324,
        True,
        1j,
    ]
    for row in odd:
        column = np.array([1, 2, row], dtype=object)
        assert 3 <= whole.total(column) <= 12
        assert 3 <= real.total(column) <= 12
        Mean(low=0, high=9, unit=ROW, epsilon=1.0).release(column)
        Variance(low=0, high=9, unit=ROW, epsilon=1.0).release(column)
        Bounds(unit=ROW, epsilon=1.0).release(column)
        Histogram(edges=[0, 5, 9], unit=ROW, epsilon=1.0).release(column)
    assert whole.total([1, 2, None]) == whole.total([1.0, 2.0, math.nan]) == 3
    assert whole.total(pd.Series([1, 2, None])) == whole.total(pd.Series([1, 2, None], dtype="Int64")) == 3
    assert whole.total(pl.Series([1, 2, None])) == 3
    assert whole.total([1.5, 2.5, 3.4, 100.0]) == 2 + 2 + 3 + 9
    far = Sum(low=2**62 - 1, high=2**62, unit=REPLACED, epsilon=1.0)
    assert far.total([0.0]) in (2**62 - 1, 2**62)


def test_sum_noise_levels() -> None:
    assert Sum(low=0, high=9, unit=ROW, epsilon=1.0).error(confidence=0.5) == 6
    with worded(InvalidParameter):
        Sum(low=0, high=9, unit=ROW, scale=1.0, delta=1e-6)
    with worded(InvalidParameter):
        Sum(low=0, high=2**63, unit=ROW, epsilon=1.0)
    assert Sum(low=0, high=9, unit=ROW, epsilon=1.0).curve == curves.discrete_laplace(scale=9, sensitivity=9)
    assert Sum(low=0, high=9.0, unit=ROW, epsilon=1.0).curve == curves.laplace(scale=1)
    assert Sum(low=0, high=9, unit=ROW, mu=0.5).curve == curves.gaussian(mu=0.5)
    assert Sum(low=0, high=9.0, unit=ROW, sigma=18).curve == curves.gaussian(mu=0.5)
    assert Sum(low=0.0, high=1.0, unit=ROW, epsilon=1.0).efficiency() == pytest.approx(
        Laplace(sensitivity=1.0, epsilon=1.0).efficiency(), rel=1e-5
    )
    assert Sum(low=0, high=9.0, unit=ROW, epsilon=1.0, delta=1e-6).curve.delta(epsilon=1.0) <= 1e-6


# -- mean ------------------------------------------------------------------------------------------------------------


def test_fact_the_mean_with_laplace_noise() -> None:
    mean = Mean(low=0.0, high=1.0, unit=REPLACED, rows=1000, epsilon=0.1)
    scale = mean.noise.width * mean.noise.spacing / 1000
    assert 2 * float(scale) ** 2 == pytest.approx(0.0002, rel=1e-9)
    # With the statistical error of n values in [0, 1] on top: (1/4n)(1 + 8/(n ε²)).
    bound = 1 / 4000 * (1 + 8 / (1000 * 0.01))
    assert bound == pytest.approx(0.00045, rel=1e-12)


@given(st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_one_row_moves_the_two_sums_of_a_mean_along_a_segment(x: float, y: float) -> None:
    a, b = Fraction(x), 1 - Fraction(x)
    assert a + b == 1
    assert a * a + b * b <= 1
    c, d = Fraction(y), 1 - Fraction(y)
    assert abs(a - c) + abs(b - d) <= 2


def test_a_mean_protects_the_number_of_rows_when_rows_come_and_go() -> None:
    mean = Mean(low=0, high=60, unit=ROW, epsilon=1.0)
    assert mean.rows is None
    assert mean.noise.sensitivity == 60
    assert mean.noise.dimension == 2
    assert mean.curve == curves.laplace(scale=1)
    with pytest.raises(InvalidParameter, match="private when"):
        Mean(low=0, high=60, unit=ROW, rows=3, epsilon=1.0)
    with pytest.raises(InvalidParameter, match="is missing"):
        Mean(low=0, high=60, unit=REPLACED, epsilon=1.0)
    with worded(InvalidParameter, parameter="value"):
        Mean(low=0, high=60, unit=REPLACED, rows=3, epsilon=1.0).release([1, 2])


def test_an_empty_column_has_a_mean_too() -> None:
    """One answer in four, with both sums above 0, lies strictly inside: fewer than 3 of 200 have a chance of 1e-21."""
    mean = Mean(low=-1.0, high=3.0, unit=ROW, epsilon=1.0)
    answers = [mean.release([]) for _ in range(200)]
    assert all(-1 <= a <= 3 for a in answers)
    assert len(set(answers)) > 5


@pytest.mark.parametrize("level", [{"epsilon": 1.0}, pytest.param({"sigma": 30.0}, marks=pytest.mark.slow)])
@pytest.mark.parametrize("unit", [ROW, REPLACED])
def test_means_and_variances_are_covered(level: dict[str, float], unit: Unit) -> None:
    """1500 releases each of 400 rows at 80 %, false alarm 1e-9."""
    data = np.linspace(1, 17, 400) ** 1.3
    rows = None if unit is ROW else 400
    clamped = np.clip(data, 0, 30)
    entropy = noise.ReplayEntropy(4)
    for kind, truth in [(Mean, clamped.mean()), (Variance, clamped.var())]:
        mechanism = kind(low=0, high=30, unit=unit, rows=rows, **level)
        reach = mechanism.error(confidence=0.8, rows=400)
        hits = sum(abs(mechanism.release(data, entropy=entropy) - truth) <= reach for _ in range(1500))
        assert laws.covered(hits, 1500, 0.8)


@pytest.mark.slow
def test_the_two_sums_beat_sum_and_count_with_half_the_budget_each() -> None:
    """Mean square error over 3000 releases of 200 rows: the classical way has twice as much (± 20 %)."""
    data = np.full(200, 25.0)
    mean = Mean(low=0, high=60, unit=ROW, epsilon=1.0)
    entropy = noise.ReplayEntropy(10)
    ours = np.mean([(mean.release(data, entropy=entropy) - 25) ** 2 for _ in range(3000)])
    middle, count = Laplace(sensitivity=30.0, epsilon=0.5), Laplace(sensitivity=1, epsilon=0.5)
    theirs = np.mean(
        [
            (30 + middle.release(-1000.0, entropy=entropy) / count.release(200, entropy=entropy) - 25) ** 2
            for _ in range(3000)
        ]
    )
    assert 1.6 < theirs / ours < 2.4


def test_an_error_needs_a_number_of_rows_and_never_exceeds_the_range() -> None:
    mean = Mean(low=0, high=60, unit=ROW, epsilon=0.1)
    with pytest.raises(InvalidParameter, match="guess"):
        mean.error(confidence=0.9)
    assert mean.error(confidence=0.9, rows=1) == 60
    assert mean.error(confidence=0.9, rows=10**6) < 0.01
    assert Variance(low=0, high=60, unit=ROW, epsilon=0.1).error(confidence=0.9, rows=1) == 900
    assert Mean(low=0, high=60, unit=REPLACED, rows=100, epsilon=1).error(confidence=0.9) < 3
    with pytest.raises(InvalidOperation):
        mean.efficiency()


# -- variance --------------------------------------------------------------------------------------------------------


def test_one_row_moves_the_moments_by_no_more_than_said() -> None:
    """All pairs of 0, 1/60, ..., 1 in rational arithmetic: both bounds hold, and are attained."""
    worst_added = worst_l1 = worst_l2 = Fraction(0)
    grid = [Fraction(i, 60) for i in range(61)]
    for u in grid:
        row = ((1 - u) ** 2, 2 * u * (1 - u), u * u)
        worst_added = max(worst_added, sum(row))
        for v in grid:
            moved = (abs(2 * u * (1 - u) - 2 * v * (1 - v)), abs(u * u - v * v))
            worst_l1, worst_l2 = max(worst_l1, sum(moved)), max(worst_l2, moved[0] ** 2 + moved[1] ** 2)
    assert worst_added == 1
    assert worst_l1 == Fraction(4, 3)
    assert worst_l2 == Fraction(128, 125)


def test_variance_noise_has_these_sensitivities() -> None:
    assert Variance(low=0, high=9, unit=ROW, epsilon=1).noise.sensitivity == 1
    assert Variance(low=0, high=9, unit=ROW, epsilon=1).noise.dimension == 3
    replaced = Variance(low=0, high=9, unit=REPLACED, rows=10, epsilon=1)
    assert replaced.noise.sensitivity == Fraction(4, 3)
    assert replaced.noise.dimension == 2
    gaussian = Variance(low=0, high=9, unit=Unit.replaced_person("id", rows=3), rows=10, mu=1.0)
    assert gaussian.noise.sensitivity**2 >= 9 * Fraction(128, 125)
    assert gaussian.noise.sensitivity**2 <= 9 * Fraction(128, 125) * (1 + Fraction(1, 10**15))


def test_a_variance_without_noise_is_the_variance() -> None:
    data = np.random.default_rng(0).normal(50, 10, 500)
    for unit, rows in [(ROW, None), (REPLACED, 500)]:
        mechanism = Variance(low=0, high=100, unit=unit, rows=rows, epsilon=1e6)
        assert mechanism.release(data) == pytest.approx(np.clip(data, 0, 100).var(), rel=1e-3)
    assert Variance(low=0, high=2, unit=ROW, epsilon=1e6).release([]) <= 1
    assert RESOLUTION**2 * 2 < 2**63


# -- bounds found privately ------------------------------------------------------------------------------------------


def test_bins_run_away_from_zero_in_powers_of_two() -> None:
    found = Bounds(unit=ROW, epsilon=1.0, exponents=(-1, 2))
    data = [0.0, 0.4999, 0.5, 0.9, 1.0, 3.9, 4.0, 7.9, 8.0, 1e300, math.inf, -0.5, -8.0, -math.inf, math.nan, 5e-324]
    assert found.count(data).tolist() == [2, 0, 0, 1, 3, 2, 1, 1, 5]
    assert found.count([]).tolist() == [0] * 9


def test_bounds_enclose_the_data_that_is_there() -> None:
    entropy = noise.ReplayEntropy(2)
    found = Bounds(unit=ROW, epsilon=1.0)
    assert found.release([3.0] * 500, entropy=entropy) == (2.0, 4.0)
    assert found.release([-3.0] * 500 + [70.0] * 500, entropy=entropy) == (-4.0, 128.0)
    assert found.release([-3.0] * 500 + [-9] * 500, entropy=entropy) == (-16.0, -2.0)
    assert found.release([0.0] * 500, entropy=entropy) == (-(2.0**-20), 2.0**-20)
    assert found.release([3.0], entropy=entropy) is None
    assert found.release([], entropy=entropy) is None
    # One outlier among many does not widen the bounds: that is the point.
    assert found.release([3.0] * 500 + [1e9], entropy=entropy) == (2.0, 4.0)


def test_empty_bins_are_taken_for_data_as_rarely_as_said() -> None:
    """4000 empty columns at confidence 0.8; false alarm 1e-9."""
    found = Bounds(unit=ROW, epsilon=1.0, confidence=0.8, exponents=(0, 9))
    entropy = noise.ReplayEntropy(2)
    hits = sum(found.release([], entropy=entropy) is None for _ in range(4000))
    assert laws.covered(hits, 4000, 0.8)


def test_bounds_cost_what_a_histogram_costs() -> None:
    assert Bounds(unit=ROW, epsilon=0.5).curve == curves.discrete_laplace(scale=2)
    assert Bounds(unit=REPLACED, epsilon=0.5).curve == curves.discrete_laplace(scale=4) ** 2
    assert Bounds(unit=ROW, mu=0.5).curve == curves.gaussian(mu=0.5)


# -- borders ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Sum, Mean, Variance])
@pytest.mark.parametrize(
    "arguments",
    [
        {"low": 1, "high": 1},
        {"low": 2, "high": 1},
        {"low": math.nan, "high": 1},
        {"low": 0, "high": math.inf},
        {"low": "0", "high": 1},
        {"low": 0, "high": 1e308},
        {"low": 0, "high": 1, "unit": "row"},
        {"low": 0, "high": 1, "epsilon": 0},
        {"low": 0, "high": 1, "sigma": 1},
        {"low": 0, "high": 1, "epsilon": None},
    ],
)
def test_bad_parameters_are_refused(kind: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        kind(**{"unit": ROW, "epsilon": 1.0, **arguments})


@pytest.mark.parametrize("exponents", [(3, 2), (0, 5000), (0.5, 2), 5, (1, 2, 3)])
def test_bad_exponents_are_refused(exponents: Any) -> None:
    with pytest.raises(InvalidParameter):
        Bounds(unit=ROW, epsilon=1.0, exponents=exponents)


@pytest.mark.parametrize("data", ["1, 2", np.array(["1"]), 5, 5j, None, {"a": 1}, np.array(["2020"], "datetime64")])
def test_columns_that_are_no_numbers_are_refused(data: Any) -> None:
    for mechanism in (
        Sum(low=0, high=9, unit=ROW, epsilon=1.0),
        Sum(low=0, high=9.0, unit=ROW, epsilon=1.0),
        Mean(low=0, high=9, unit=ROW, epsilon=1.0),
        Variance(low=0, high=9, unit=ROW, epsilon=1.0),
        Bounds(unit=ROW, epsilon=1.0),
    ):
        with pytest.raises(InvalidParameter):
            mechanism.release(data)


def test_statistics_are_values() -> None:
    for mechanism in (
        Sum(low=0, high=9, unit=ROW, epsilon=1.0),
        Mean(low=0, high=9, unit=REPLACED, rows=5, mu=1.0),
        Variance(low=0, high=9, unit=ROW, epsilon=1.0),
        Bounds(unit=ROW, epsilon=1.0),
    ):
        twin = pickle.loads(pickle.dumps(mechanism))
        assert twin == mechanism
        assert hash(twin) == hash(mechanism)
        assert repr(twin) == repr(mechanism)
        assert (mechanism**2).curve == mechanism.curve**2
    assert repr(Sum(low=0, high=9, unit=ROW, epsilon=1.0)).startswith("Sum(low=0, high=9, Unit.row()")
    assert column_statistics.RESOLUTION == 2**30
