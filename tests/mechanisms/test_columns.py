"""One column is one column: what is none is refused, what is odd counts by its own row, and one unit goes through."""

from __future__ import annotations

import collections
import datetime
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from deniable import Unit, mechanisms
from deniable.errors import BudgetExceeded, InvalidOperation, InvalidParameter
from deniable.mechanisms import (
    Histogram,
    Median,
    Parallel,
    Quantile,
    Sum,
    UnknownKeys,
    continual_counting,
    input_values,
)
from deniable.mechanisms.inverse_sensitivity import BinaryInverseSensitivity
from tests.table import every_row
from tests.wording import worded

U, REPLACED = Unit.row(), Unit.replaced_row()

PANDAS = pd.DataFrame({"a": [50] * 10, "b": [60] * 10})
TABLES = {
    "pandas": PANDAS,
    "pandas, one column": PANDAS[["a"]],
    "polars": pl.DataFrame({"a": [50] * 10, "b": [60] * 10}),
    "polars, one column": pl.DataFrame({"a": [50] * 10}),
    "array": np.full((10, 2), 50),
    "array, one column": np.full((10, 1), 50),
    "array of one number": np.array(50),
    "no row": np.empty((0, 2)),
}

TAKERS: dict[str, Callable[[Any], Any]] = {
    "Sum": Sum(low=0, high=100, unit=U, epsilon=1).total,
    "Sum of floats": Sum(low=0.0, high=1.0, unit=U, epsilon=1).release,
    "Mean": mechanisms.Mean(low=0, high=100, unit=U, epsilon=1).release,
    "Variance": mechanisms.Variance(low=0, high=100, unit=U, epsilon=1).release,
    "Bounds": mechanisms.Bounds(unit=U, epsilon=1).count,
    "Median": Median(bounds=(0, 100), epsilon=1, unit=U).release,
    "Quantile": Quantile(q=0.9, bounds=(0, 100), epsilon=1, unit=U).steps,
    "Histogram of numbers": Histogram(edges=[0, 100], unit=U, epsilon=1).count,
    "Histogram of keys": Histogram(categories=["a", "b"], unit=U, epsilon=1).count,
    "Histogram of counts": Histogram(categories=range(20), unit=U, epsilon=1).release_counts,
    "UnknownKeys": UnknownKeys(unit=U, epsilon=1, delta=1e-6).release,
    "UnknownKeys of counts": UnknownKeys(unit=U, epsilon=1, delta=1e-6).release_counts,
    "TreeCounter": mechanisms.TreeCounter(horizon=20, sensitivity=1, epsilon=1).release,
    "FactorisedCounter": mechanisms.FactorisedCounter(horizon=20, sensitivity=1, mu=1).release,
    "Exponential": mechanisms.Exponential(sensitivity=1, epsilon=1).release,
    "TopK": mechanisms.TopK(mechanisms.NoisyMax(sensitivity=1, epsilon=1), count=1).release,
    "AboveThreshold": mechanisms.AboveThreshold(threshold=0, sensitivity=1, epsilon=1).release,
    "SparseVector": mechanisms.SparseVector(threshold=0, sensitivity=1, epsilon=1, positives=2).release,
    "median by inverse sensitivity": mechanisms.InverseSensitivity.median(answers=[0, 1], epsilon=1).release,
    "mode by inverse sensitivity": mechanisms.InverseSensitivity.mode(answers=["a", "b"], epsilon=1).release,
    "binary median": BinaryInverseSensitivity.median(epsilon=1).release,
    "LinearQueries": mechanisms.LinearQueries.laplace(weights=np.ones((1, 10)), epsilon=1).release,
    "LinearQueries of a table": mechanisms.LinearQueries.laplace(weights=np.ones((1, 20)), epsilon=1).release,
}


@every_row((taker, table) for taker in TAKERS for table in TABLES)
def test_a_table_is_not_taken_for_a_column(taker: str, table: str) -> None:
    """Summed as a whole, one row of a table would count once for each of its columns."""
    with pytest.raises(InvalidParameter) as refused:
        TAKERS[taker](TABLES[table])
    assert "50" not in str(refused.value)
    if table.startswith(("pandas", "polars")) and taker not in ("UnknownKeys of counts", "Exponential", "TopK"):
        assert "df['age']" in str(refused.value)


@pytest.mark.parametrize("column", [PANDAS["a"], pl.Series([50] * 10), np.full(10, 50), [50] * 10, (50,) * 10])
def test_a_column_of_any_kind_is_one(column: Any) -> None:
    assert TAKERS["Sum"](column) == 500
    assert TAKERS["Histogram of numbers"](column).tolist() == [10]


def test_a_row_that_is_a_list_is_no_number_wherever_it_stands() -> None:
    total = Sum(low=0, high=100, unit=U, epsilon=1).total
    assert total([[1, 2], [3, 4]]) == total([[1, 2], 3]) - 3 == 0


def test_a_series_may_have_any_labels() -> None:
    assert TAKERS["Sum"](pd.Series([1, 2], index=["columns", "ndim"])) == 3


# -- types -----------------------------------------------------------------------------------------------------------

NO_NUMBERS = {
    "pandas str": pd.Series(["1", "2"], dtype="str"),
    "pandas string": pd.Series(["1", None], dtype="string"),
    "pandas categories of strings": pd.Series(["a", "b"], dtype="category"),
    "pandas dates": pd.Series(pd.to_datetime(["2024-01-01"])),
    "pandas dates with a zone": pd.Series(pd.to_datetime(["2024-01-01"], utc=True)),
    "pandas periods": pd.Series(pd.period_range("2024", periods=2, freq="D")),
    "numpy strings": np.array(["1", "2"]),
    "numpy complex numbers": np.array([1j]),
    "numpy dates": np.array(["2024-01-01"], dtype="datetime64[D]"),
    "polars strings": pl.Series(["1", "2"]),
    "polars dates": pl.Series([datetime.date(2024, 1, 1)]),
    "polars categories": pl.Series(["a", "b"], dtype=pl.Categorical),
    "polars enum": pl.Series(["a", "b"], dtype=pl.Enum(["a", "b"])),
}


@pytest.mark.parametrize("kind", [kind for kind in NO_NUMBERS if kind != "pandas str" or pd.__version__ >= "3"])
def test_a_column_whose_type_holds_no_numbers_is_refused(kind: str) -> None:
    for taker in ("Sum", "Mean", "Median", "Histogram of numbers", "Bounds", "median by inverse sensitivity"):
        with worded(InvalidParameter, parameter="value"):
            TAKERS[taker](NO_NUMBERS[kind])


@pytest.mark.parametrize(
    "column",
    [
        [7, "nine", 1j, None, datetime.date(2024, 1, 1)],
        pd.Series([7, "nine", 1j, None, datetime.date(2024, 1, 1)], dtype=object),
        np.array([7, "nine", 1j, None, datetime.date(2024, 1, 1)], dtype=object),
        pd.Series([7, None], dtype="Int64"),
        pd.Series([7, 7], dtype="category").iloc[:1],
        pd.Series([True] * 7 + [None], dtype="boolean"),
        pl.Series([True] * 7 + [None]),
        pl.Series([7, None]),
        pl.Series("d", ["7.0"]).cast(pl.Decimal(10, 2)),
        [["a", "b"], 7],
    ],
    ids=lambda column: type(column).__name__ + "-" + str(getattr(column, "dtype", "")),
)
def test_a_row_that_is_no_number_counts_as_the_point_nearest_to_zero_and_moves_no_other(column: Any) -> None:
    assert Sum(low=0, high=100, unit=U, epsilon=1).total(column) == 7


def test_a_column_of_nothing_but_missing_values_is_a_column() -> None:
    for column in (pl.Series([None, None]), pd.Series([None, None]), [None, None], []):
        assert Sum(low=0, high=100, unit=U, epsilon=1).total(column) == 0


# -- counts by key ---------------------------------------------------------------------------------------------------


def test_counts_by_key_are_no_column() -> None:
    words = pd.Series(["a"] * 3 + ["b"], name="word")
    known = Histogram(categories=["a", "b"], unit=U, epsilon=1)
    unknown = UnknownKeys(unit=U, epsilon=1, delta=1e-6)
    for counts in (words.value_counts(), collections.Counter(words), {"a": 3}):
        for mechanism in (known, unknown):
            with pytest.raises(InvalidParameter, match="release_counts"):
                mechanism.release(counts)
    # A column that happens to be named so is one.
    assert Histogram(categories=[3], unit=U, epsilon=1).count(pd.Series([3, 3], name="count")).tolist() == [2]


def test_counts_by_key_are_taken_by_key_whatever_their_order() -> None:
    words = pd.Series(["b"] * 5000 + ["a"] * 1000 + ["other"] * 9000)
    known = Histogram(categories=["a", "b", "c"], unit=U, epsilon=1)
    for counts in (
        words.value_counts(),
        words.groupby(words).size(),
        dict(collections.Counter(words)),
        [1000, 5000, 0],
    ):
        noisy = known.release_counts(counts)
        assert np.abs(noisy - [1000, 5000, 0]).max() < 100  # e^-100: never by chance
    shown = UnknownKeys(unit=U, epsilon=1, delta=1e-6).release_counts(words.value_counts())
    assert list(shown) == ["other", "b", "a"]


def test_counts_by_key_have_no_order_of_bins() -> None:
    ages = pd.Series([3, 3, 30])
    with worded(InvalidParameter, parameter="value"):
        Histogram(edges=[0, 18, 65], unit=U, epsilon=1).release_counts(pd.cut(ages, [0, 18, 65]).value_counts())


# -- bins ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("categories", [{"a", "b"}, frozenset("ab"), {"a": 1}, {"a": 1}.keys(), PANDAS, 7, None, "ab"])
def test_categories_have_an_order(categories: Any) -> None:
    with pytest.raises(InvalidParameter):
        Histogram(categories=categories, unit=U, epsilon=1)


def test_a_set_of_categories_is_told_what_to_do() -> None:
    with pytest.raises(InvalidParameter, match="sorted"):
        Histogram(categories={"a", "b"}, unit=U, epsilon=1)


def test_labels_name_the_counts() -> None:
    assert Histogram(categories=pd.Index(["a", "b"]), unit=U, epsilon=1).labels == ("a", "b")
    ages = Histogram(edges=[0, 18, 65.5, 120], unit=U, epsilon=1)
    assert ages.labels == ("[0, 18)", "[18, 65.5)", "[65.5, 120]")
    assert ages.shares().labels == ages.labels
    assert repr(ages.shares()) == repr(ages) + ".shares()"


def test_an_infinite_edge_is_told_what_to_do() -> None:
    with pytest.raises(InvalidParameter, match="open bin"):
        Histogram(edges=[0, 18, math.inf], unit=U, epsilon=1)


@pytest.mark.parametrize(("high", "spacing", "points"), [(100, 0.1, 1001), (3, 0.3, 11), (10, 3, 5), (1, 0.7, 3)])
def test_both_bounds_are_points_of_the_grid(high: float, spacing: float, points: int) -> None:
    """The top was dropped wherever it was no multiple of the spacing, which the float 0.1 hardly ever divides."""
    middle = Median(bounds=(0, high), spacing=spacing, epsilon=1, unit=U)
    assert middle.points == points
    assert middle.high == high
    assert f"bounds=(0, {high})" in repr(middle)
    edges, ranks = middle.steps([high] * 10)
    assert edges[-3:] == [points - 1, points, points]
    assert ranks[-2] == 0  # the top itself is the median
    assert Median(bounds=(0, high), spacing=spacing, epsilon=10**6, unit=U).release([high] * 10) == high


def test_rows_in_the_short_last_step_count_as_the_nearer_end() -> None:
    middle = Median(bounds=(0, 10), spacing=3, epsilon=10**6, unit=U)  # 0, 3, 6, 9, 10
    for row, point in ((9.4, 9), (9.6, 10), (8, 9), (7, 6), (11, 10), (math.inf, 10), (-math.inf, 0), (math.nan, 0)):
        assert middle.release([row] * 5) == point


# -- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2**27 + 1, 2**40, -(2**40), 2**61, -(2**61)])
def test_large_numbers_are_counted_as_they_are(number: int) -> None:
    """Steps used to be clamped at 2²⁷, silently."""
    root = mechanisms.FactorisedCounter(horizon=4, sensitivity=1, mu=1)
    total = root.release([number, 1, number, 0])[-1]
    # Rounded coefficients: up to 2⁻³¹√T of the total, as `error` says. Noise: e^-100.
    assert abs(total - (2 * number + 1)) <= abs(2 * number) * 2.0**-30 + 100


def test_the_combinations_of_a_stream_are_exact_at_any_size() -> None:
    """Between neighbours that differ by one in one step, R·x moves by exactly one column of R."""
    f = continual_counting.coefficients(3).tolist()
    for number in (0, 2**31 - 1, -(2**31), 2**61 - 1, -(2**61)):
        high, low = divmod(number, 2**31)
        column = np.array(f, dtype=np.int64)
        parts = [input_values.whole_sum(column * np.int64(part)) for part in (high, low)]
        assert (parts[0] << 31) + parts[1] == sum(f) * number


def test_no_more_questions_than_declared() -> None:
    alarm = mechanisms.AboveThreshold(threshold=10**6, sensitivity=1, epsilon=1, questions=3)
    assert alarm.release([0, 0, 0]) is None
    with worded(InvalidParameter):
        alarm.release([0] * 4)
    with pytest.raises(BudgetExceeded, match="questions="):
        alarm.release(0 for _ in range(4))
    run = alarm.start()
    assert not any(run.ask(0) for _ in range(3))
    with pytest.raises(BudgetExceeded, match="declared"):
        run.ask(0)


# -- units -----------------------------------------------------------------------------------------------------------

ADDED = Histogram(categories=["a", "b"], unit=U, epsilon=1)
OTHER = Histogram(categories=["a", "b"], unit=REPLACED, epsilon=1)


@pytest.mark.parametrize(
    "compose",
    [
        lambda: ADDED * OTHER,
        lambda: ADDED**2 * OTHER,
        lambda: ADDED.shares() * OTHER,
        lambda: ADDED.then(len) * OTHER.on(list),
        lambda: ADDED * mechanisms.InverseSensitivity.mode(answers=["a", "b"], epsilon=1),
        lambda: ADDED * Sum(low=0, high=1, unit=Unit.person("id", rows=2), epsilon=1),
        lambda: Parallel.by_value([ADDED], unit=U) * OTHER,
        lambda: Parallel.by_value([ADDED, OTHER], unit=U),
        lambda: ADDED.followed_by(lambda _: OTHER, curve=OTHER.curve).release(["a"]),
        lambda: ADDED.followed_by(lambda _: ADDED, curve=ADDED.curve) * OTHER,
    ],
)
def test_promises_about_different_units_do_not_compose(compose: Callable[[], Any]) -> None:
    with worded(InvalidOperation):
        compose()


def test_parts_are_made_for_the_unit_of_the_whole() -> None:
    for make in (Parallel.by_value, Parallel.by_unit):
        with worded(InvalidParameter, parameter="unit"):
            make([ADDED, ADDED], unit=REPLACED)
        assert make([ADDED, ADDED], unit=U).unit == U
        assert make([OTHER, mechanisms.Laplace(sensitivity=2, epsilon=1)], unit=REPLACED).unit == REPLACED


def test_a_replaced_row_may_leave_a_part_and_then_more_than_its_range_is_gone() -> None:
    """Between 100 and 101 a replaced row moves a sum by 1; a row that leaves for another part moves it by 101."""
    narrow = Sum(low=100, high=101, unit=REPLACED, epsilon=1)
    fixed = mechanisms.Mean(low=0, high=1, unit=REPLACED, rows=3, epsilon=1)
    for part in (narrow, fixed):
        with worded(InvalidParameter):
            Parallel.by_value([part, part], unit=REPLACED)
        assert Parallel.by_unit([part, part], unit=REPLACED).touched == 1
    around = Sum(low=0, high=101, unit=REPLACED, epsilon=1)
    assert Parallel.by_value([around, around], unit=REPLACED).touched == 2


def test_one_unit_goes_through() -> None:
    assert (ADDED * mechanisms.Laplace(sensitivity=1, epsilon=1)).unit == U
    assert (ADDED**3).then(len).on(list).unit == U
    assert (mechanisms.Laplace(sensitivity=1, epsilon=1) ** 2).unit is None


# -- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "None is not a number"),
        (True, "a bool is not a number"),
        (np.True_, "a bool is not a number"),
        ("a", "convert it first"),
        (datetime.date(2024, 1, 1), "convert it first"),
        (1j, "convert it first"),
        (0.5, "with floats"),
        (Fraction(1, 2), "with floats"),
    ],
    ids=repr,
)
def test_what_is_no_whole_number_is_told_its_own_remedy(value: Any, words: str) -> None:
    for ask in (mechanisms.Laplace(sensitivity=1, epsilon=1).release, TREE.start().add):
        with pytest.raises(InvalidParameter, match=words) as refused:
            ask(value)
        assert ("with floats" in str(refused.value)) == (words == "with floats")


TREE = mechanisms.TreeCounter(horizon=4, sensitivity=1, epsilon=1)


@pytest.mark.parametrize("value", [None, True, "a"])
def test_what_is_no_real_number_is_told_what_to_do(value: Any) -> None:
    with worded(InvalidParameter, parameter="value"):
        mechanisms.Laplace(sensitivity=1.0, epsilon=1).release(value)


def test_scores_are_asked_for_in_plain_words() -> None:
    with worded(InvalidParameter, parameter="value"):
        mechanisms.Exponential(sensitivity=1, epsilon=1, candidates=6).release([1, 2])
