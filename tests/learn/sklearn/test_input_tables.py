"""Tables and targets of every kind: no row speaks for another, and no error speaks of a row."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.exceptions import DataConversionWarning

from deniable.errors import InvalidParameter
from deniable.learn.sklearn import GridSearch, LinearRegression, LogisticRegression, StandardScaler, input_tables
from tests.learn.sklearn.cases import MODELS, TARGET, TWO
from tests.wording import worded

SURE = 1e9
"""A μ so large that there is next to no noise."""
SECRET = 4217.125


class Hostile:
    """A label that raises whenever it is looked at."""

    def __hash__(self) -> int:
        raise RuntimeError(SECRET)

    def __float__(self) -> float:
        raise RuntimeError(SECRET)


ODD: list[Any] = [
    "weird",
    None,
    b"x",
    {"a": 1},
    [1, 2],
    object(),
    1j,
    float("nan"),
    10**400,
    pd.NA,
    Hostile(),
    np.array([1, 2]),
]


@pytest.fixture
def people() -> tuple[list[list[float]], list[int]]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 2))
    return X.tolist(), (X[:, 0] > 0).astype(int).tolist()


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_a_label_of_any_kind_moves_no_other_row(odd: Any, people: Any) -> None:
    """numpy would make texts of all labels of a list for one that is a text, and then none would be declared."""
    X, y = people
    model = LogisticRegression(**TWO, mu=SURE)
    alone = model.fit(X, y).coef_
    assert model.fit([*X, [0.0, 0.0]], [*y, odd]).coef_ == pytest.approx(alone, rel=1e-3)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_a_target_or_cell_of_any_kind_moves_no_other_row_and_raises_nothing(odd: Any, people: Any) -> None:
    X, y = people
    model = LinearRegression(**TARGET, mu=SURE)
    near = model.fit(X, y).coef_
    assert model.fit([*X, [0.0, 0.0]], [*y, odd]).coef_ == pytest.approx(near, abs=0.05)
    assert model.fit([*X, [0.0, odd]], [*y, 0.5]).coef_ == pytest.approx(near, abs=0.05)
    cells = np.array([*X, [0.0, 0.0]], dtype=object)
    cells[-1, 1] = odd
    assert model.fit(cells, [*y, 0.5]).coef_ == pytest.approx(near, abs=0.05)


def test_frames_lists_and_arrays_are_the_same_table() -> None:
    columns = {"a": [1, 2, 3], "b": [0.5, None, 2.5], "c": [True, False, True]}
    truth = np.array([[1, 0.5, 1], [2, np.nan, 0], [3, 2.5, 1]])
    rows = list(zip(*columns.values(), strict=True))
    nullable = pd.DataFrame({"a": pd.array([1, 2, 3], dtype="Int64"), "b": columns["b"], "c": columns["c"]})
    for given in (pd.DataFrame(columns), pl.DataFrame(columns), nullable, rows, np.array(rows, dtype=object)):
        found = input_tables.table(given)
        assert found.dtype == np.float64
        assert np.array_equal(found, truth, equal_nan=True)
    doubled = pd.DataFrame(np.eye(2), columns=["a", "a"])
    assert np.array_equal(input_tables.table(doubled), np.eye(2))
    assert input_tables.table(pd.DataFrame(columns)[:0]).shape == (0, 3)


SHAPES: list[tuple[str, Any, Any, str]] = [
    ("one dimension", np.full(7, SECRET), np.zeros(7), "Reshape your data"),
    ("three dimensions", np.full((7, 1, 1), SECRET), np.zeros(7), "two dimensions"),
    ("ragged", [[SECRET, 1.0], [2.0]], [0, 1], "two dimensions"),
    ("no columns", np.zeros((7, 0)), np.zeros(7), "at least one column"),
    ("complex", np.full((7, 2), SECRET + 1j), np.zeros(7), "Complex data not supported"),
    ("texts", np.full((7, 2), str(SECRET)), np.zeros(7), "must hold numbers"),
    ("dates", np.full((7, 2), "2020-01-01", dtype="datetime64[D]"), np.zeros(7), "must hold numbers"),
    ("sparse", sparse.csr_array(np.full((7, 2), SECRET)), np.zeros(7), "sparse"),
    ("masked", np.ma.masked_array(np.full((7, 2), SECRET), mask=True), np.zeros(7), "must not be masked"),
    ("scalar", SECRET, np.zeros(7), "two dimensions"),
    ("frame", pd.DataFrame({"a": [1.0], "surname": [str(SECRET)]}), [0], "column 'surname' must hold numbers"),
    ("dated", pd.DataFrame({"a": [1.0], "born": pd.to_datetime(["2020-01-01"])}), [0], "column 'born' must hold"),
    ("polars", pl.DataFrame({"a": [1.0], "surname": [str(SECRET)]}), [0], "column 'surname' must hold numbers"),
    ("lengths", np.zeros((7, 2)), np.full(4217, SECRET), "one entry for each row"),
    ("two targets", np.zeros((4217, 2)), np.full((4217, 2), SECRET), "must be one column"),
    ("no target", np.zeros((7, 2)), None, "y"),
]


@pytest.mark.parametrize("name", ["logistic", "squares", "search"])
@pytest.mark.parametrize(("X", "y", "words"), [case[1:] for case in SHAPES], ids=[case[0] for case in SHAPES])
def test_an_error_says_what_is_public_and_neither_shows_nor_counts_rows(name: str, X: Any, y: Any, words: str) -> None:
    model = GridSearch(MODELS["logistic"](), {"C": [1]}, mu=1.0) if name == "search" else MODELS[name](mu=1.0)
    with pytest.raises(ValueError, match=words) as error:
        model.fit(X, y)
    assert "4217" not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__ or error.value.__context__ is None


def test_a_target_of_texts_is_refused_by_its_type_and_a_column_vector_by_a_warning() -> None:
    with worded(InvalidParameter):
        MODELS["squares"](mu=1.0).fit(np.zeros((3, 2)), np.array(["a", "b", "c"]))
    with pytest.warns(DataConversionWarning, match="column-vector"):
        MODELS["squares"](mu=1.0).fit(np.zeros((3, 2)), np.zeros((3, 1)))


@pytest.mark.parametrize(("classes", "y"), [([0, 1], ["no", "yes"]), (["no", "yes"], [0, 1]), (["0", "1"], [0.0, 1.0])])
def test_labels_of_another_type_than_all_that_are_declared_are_refused(classes: Any, y: Any) -> None:
    with worded(InvalidParameter, parameter="classes"):
        LogisticRegression(classes=classes, bounds=(0, 1), mu=1.0).fit([[0.0], [1.0]], np.array(y))


def test_numbers_of_any_size_raise_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wide = np.array([["1e4000"], ["1"]], dtype=object).astype(np.longdouble)
        scaler = StandardScaler(bounds=(0, 1), mu=1e3).fit(wide)  # little noise, which is not warned of
        scaler.transform(np.array([[np.inf], [1e308], [np.nan]]))
