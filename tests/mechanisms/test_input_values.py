"""What comes in: a number becomes what it becomes by itself, whatever stands beside it and in whatever it comes."""

from __future__ import annotations

import collections
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from deniable import Unit
from deniable.errors import InvalidParameter
from deniable.mechanisms import Laplace, Sum, input_values

TOTAL = Sum(low=0, high=100, unit=Unit.row(), epsilon=1.0).total


@pytest.mark.parametrize(
    "make",
    [
        lambda rows: pd.Series(rows, dtype="boolean"),
        lambda rows: pd.Series(rows, dtype="category"),
        lambda rows: pl.Series(rows, dtype=pl.Boolean),
        collections.deque,
        list,
        tuple,
    ],
    ids=["pandas", "categories", "polars", "deque", "list", "tuple"],
)
def test_truths_count_whether_or_not_one_is_missing(make: Any) -> None:
    assert TOTAL(make([True] * 5)) == TOTAL(make([True] * 5 + [None])) == 5


def test_texts_are_refused_whether_or_not_one_is_missing() -> None:
    for column in (pl.Series(["1"]), pl.Series(["1", None]), pd.Series(["1"], dtype="string"), np.array(["1"])):
        with pytest.raises(InvalidParameter, match="numbers"):
            TOTAL(column)


class Liar(Fraction):
    def __float__(self) -> float:
        raise RuntimeError("secret")


@pytest.mark.parametrize(
    ("row", "counts"),
    [
        (np.timedelta64(5, "D"), 0),
        (Liar(1), 0),
        (np.array(3.0), 3),
        (np.array("3"), 0),
        (np.ma.masked, 0),
        ([3], 0),
        (np.array([3]), 0),
        (2**2000, 100),
        (-(2**2000), 0),
        (np.longdouble(3), 3),
        (np.float16(3), 3),
        (np.uint64(2**63), 100),
        (True, 1),
    ],
    ids=lambda one: type(one).__name__ if not isinstance(one, int) else None,
)
def test_a_row_counts_the_same_beside_any_other(row: Any, counts: int) -> None:
    for others in ([], [7], [7.0], [7, "x"], [7, None], [7, [1]], [7, -1.0]):
        assert TOTAL([row, *others]) == counts + 7 * bool(others)


WHERE = {
    "a list": [1e17, 0.0],
    "a tuple": (1e17, 0.0),
    "a mixed list": [1e17, 0],
    "whole and real": [10**17, 0.0],
    "whole numbers": [10**17, 0],
    "an array": np.array([1e17, 0.0]),
    "a whole array": np.array([10**17, 0]),
    "an unsigned array": np.array([10**17, 0], dtype=np.uint64),
    "objects": np.array([10**17, 0.0], dtype=object),
    "fractions": [Fraction(10**17), Fraction(0)],
    "pandas": pd.Series([1e17, 0.0]),
}


@pytest.mark.parametrize("kind", WHERE)
def test_a_list_and_an_array_of_the_same_numbers_have_the_same_answer(kind: str) -> None:
    """Lists were clamped at 2⁵³ and arrays were not."""
    noisy = Laplace(sensitivity=1.0, epsilon=1.0, dimension=2)
    assert np.abs(noisy.release(WHERE[kind]) - [1e17, 0]).max() < 200  # e^-200: never by chance


def test_the_type_of_one_number_moves_no_other_apart() -> None:
    """2⁶⁰ + 1 is no float; beside a float it became 2⁶⁰, and with noise far finer than 1 that showed."""
    found = input_values.reals([2**60 + 1, 0.5])
    assert [Fraction(one) for one in found.tolist()] == [2**60 + 1, Fraction(1, 2)]
    assert input_values.wholes([2**63, -1]).tolist() == [2**62, -1]
    assert input_values.wholes([np.int64(3), 2**70]).tolist() == [3, 2**62]


@pytest.mark.parametrize(
    "value",
    [[True, 1.0], [None, 1.0], [np.nan, 1.0], [np.inf, 1], [1j, 1.0], ["1", 1.0], [np.timedelta64(1, "D"), 1.0]],
    ids=repr,
)
def test_what_is_no_number_is_refused_in_a_list(value: Any) -> None:
    with pytest.raises(InvalidParameter):
        Laplace(sensitivity=1.0, epsilon=1.0, dimension=2).release(value)
