"""Grids and sums of floats: exact, total, and the same in any order."""

from __future__ import annotations

import math
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable import noise
from deniable.errors import InvalidParameter
from deniable.noise import Grid, ReplayEntropy, exact_sum
from deniable.noise.float_grid import FARTHEST, LARGEST_EXPONENT, LEAST_EXPONENT
from tests.wording import worded


class Nameless:
    """Something that is nothing else, and prints the same in every process."""

    def __repr__(self) -> str:
        return "Nameless()"


F = Fraction
LARGEST = sys.float_info.max
exponents = st.integers(LEAST_EXPONENT, LARGEST_EXPONENT)


def rounded(value: float | Fraction | int, exponent: int) -> int:
    """By the rule, in rational arithmetic."""
    if value != value:
        return 0
    if value in (math.inf, -math.inf):
        return FARTHEST if value > 0 else -FARTHEST
    return max(-FARTHEST, min(FARTHEST, round(F(value) / F(2) ** exponent)))


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.lists(st.floats(width=64), min_size=1, max_size=8), exponents)
def test_rounding_is_exact_for_every_float(values: list[float], exponent: int) -> None:
    grid = Grid(exponent=exponent)
    expected = [rounded(v, exponent) for v in values]
    assert grid.round(values).tolist() == expected
    assert [grid.round(v) for v in values] == expected


@settings(max_examples=300, deadline=None)
@given(st.floats(-1e6, 1e6), st.integers(-60, 10))
def test_rounding_is_exact_near_ties(value: float, exponent: int) -> None:
    grid = Grid(exponent=exponent)
    half = grid.values(grid.round(value)) + math.ldexp(0.5, exponent)
    for tied in (half, math.nextafter(half, math.inf), math.nextafter(half, -math.inf)):
        assert grid.round(tied) == grid.round([tied])[0] == rounded(tied, exponent)


SPECIAL = [
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    2.2e-308,
    1e-310,
    math.nan,
    math.inf,
    -math.inf,
    LARGEST,
    -LARGEST,
    0.5,
    1.5,
    2.5,
    -0.5,
    -1.5,
]


@pytest.mark.parametrize(
    "exponent", [LEAST_EXPONENT, -1073, -1023, -1022, -500, -52, -1, 0, 1, 62, 500, LARGEST_EXPONENT]
)
def test_every_special_float_has_its_step(exponent: int) -> None:
    grid = Grid(exponent=exponent)
    steps = grid.round(SPECIAL)
    assert steps.dtype == np.int64
    assert steps.tolist() == [rounded(v, exponent) for v in SPECIAL]
    assert [grid.round(v) for v in SPECIAL] == steps.tolist()
    assert [grid.round(np.float64(v)) for v in SPECIAL] == steps.tolist()
    assert [type(grid.round(v)) for v in SPECIAL] == [int] * len(SPECIAL)
    assert np.all(np.isfinite(grid.values(steps)))


def test_ties_go_to_even() -> None:
    assert Grid(exponent=0).round([0.5, 1.5, 2.5, -0.5, -1.5, -2.5]).tolist() == [0, 2, 2, 0, -2, -2]


def test_minus_zero_is_zero() -> None:
    steps = Grid(exponent=0).round([-0.0, -0.2])
    assert steps.tolist() == [0, 0]
    assert math.copysign(1, Grid(exponent=0).values(steps)[0]) == 1


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-FARTHEST, FARTHEST), min_size=1, max_size=6), exponents)
def test_values_are_the_nearest_floats(steps: list[int], exponent: int) -> None:
    values = Grid(exponent=exponent).values(steps)
    for step, value in zip(steps, values.tolist(), strict=True):
        assert value == math.ldexp(float(step), exponent)
        assert Grid(exponent=exponent).values(step) == value


@settings(max_examples=200, deadline=None)
@given(st.integers(-(2**53), 2**53), exponents.filter(lambda e: e <= 900))
def test_steps_that_are_floats_come_back(step: int, exponent: int) -> None:
    grid = Grid(exponent=exponent)
    assert grid.round(grid.values(step)) == step


@pytest.mark.parametrize(
    "value",
    [
        2**53 + 1,
        -(2**60) - 3,
        2**63 - 1,
        -(2**63),
        10**30,
        F(1, 3),
        Decimal("0.1"),
        Decimal("NaN"),
        Decimal("-Infinity"),
    ],
    ids=str,
)
@pytest.mark.parametrize("exponent", [-70, -3, 0, 2, 40])
def test_numbers_that_are_no_floats_are_rounded_exactly(value: Any, exponent: int) -> None:
    expected = rounded(value, exponent)
    assert Grid(exponent=exponent).round(value) == expected
    assert Grid(exponent=exponent).round([value, value]).tolist() == [expected, expected]


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "g"])
def test_every_kind_of_array(dtype: str) -> None:
    values = np.array([0, 1, 7, 100], dtype=dtype)
    grid = Grid(exponent=1)
    assert grid.round(values).tolist() == [0, 0, 4, 50]
    assert grid.round(values.reshape(2, 2)).shape == (2, 2)
    assert grid.round(values[::2]).tolist() == [0, 4]
    assert grid.round(values[2]) == 4
    assert exact_sum(values) == 108


def test_large_unsigned_and_long_numbers() -> None:
    assert Grid(exponent=0).round(np.array([2**64 - 1], dtype=np.uint64)).tolist() == [FARTHEST]
    assert Grid(exponent=4).round(np.array([2**64 - 1], dtype=np.uint64)).tolist() == [2**60]
    longer = np.longdouble(1) + np.longdouble(2) ** -60
    assert Grid(exponent=-60).round(np.array([longer])).tolist() == [2**60 + (longer != 1)]


@pytest.mark.parametrize(
    "values",
    [
        [1.5, None],
        np.array([1.5, None], dtype=object),
        pd.Series([1.5, None]),
        pd.Series([1.5, None], dtype="Float64"),
        pd.Series([1.5, pd.NA], dtype=object),
        pl.Series([1.5, None]),
        np.ma.masked_array([1.5, 99.0], mask=[False, True]),
    ],
    ids=lambda values: type(values).__module__ + "-" + str(getattr(values, "dtype", "")),
)
def test_what_is_missing_counts_as_zero(values: Any) -> None:
    assert Grid(exponent=-1).round(values).tolist() == [3, 0]
    assert exact_sum(values) == F(3, 2)


BAD = [
    "1",
    b"1",
    ["1"],
    [1.5, "x"],
    True,
    [True],
    np.array([True]),
    np.array([True, 1.5], dtype=object),
    1j,
    [1j],
    {},
    {1.0},
    Nameless(),
    [[1.0], [1.0, 2.0]],
    np.array(["2020"], dtype="M8[D]"),
    pd.Series(["a"]),
    None,
]


@pytest.mark.parametrize("values", BAD, ids=repr)
def test_what_is_no_number_is_refused_without_being_shown(values: Any) -> None:
    for read in (Grid(exponent=0).round, exact_sum):
        if values is None:
            assert read(values) == 0  # missing
        else:
            with worded(InvalidParameter, parameter="values"):
                read(values)


@pytest.mark.parametrize("steps", [1.5, [1.5], "1", None, [True], [2**70]])
def test_steps_are_whole(steps: Any) -> None:
    with worded(InvalidParameter, parameter="steps"):
        Grid(exponent=0).values(steps)


@pytest.mark.parametrize("exponent", [LEAST_EXPONENT - 1, LARGEST_EXPONENT + 1, 1.0, "1", None, True, math.nan])
def test_an_exponent_out_of_range_is_refused(exponent: Any) -> None:
    with pytest.raises(InvalidParameter, match="exponent"):
        Grid(exponent=exponent)


@settings(max_examples=200, deadline=None)
@given(st.floats(min_value=5e-324, max_value=LARGEST) | st.fractions(min_value=F(1, 10**30), max_value=10**30))
def test_the_grid_for_a_noise_is_fine_and_wide_enough(scale: Any) -> None:
    grid = Grid.for_noise(scale)
    if LEAST_EXPONENT < grid.exponent < LARGEST_EXPONENT:
        assert 2**31 <= F(scale) / grid.spacing < 2**32
    assert grid.spacing == F(2) ** grid.exponent


@pytest.mark.parametrize("scale", [0, -1, math.nan, math.inf, "1", None, True])
def test_a_grid_for_no_noise_is_refused(scale: Any) -> None:
    with pytest.raises(InvalidParameter, match="scale"):
        Grid.for_noise(scale)


def test_an_answer_and_its_noise_never_leave_64_bits() -> None:
    """The largest step and the largest noise: their sum is still right."""
    from deniable.noise.inversion_table import LIMIT

    assert np.int64(FARTHEST) + np.int64(LIMIT) == 2**63 - 1
    assert np.int64(-FARTHEST) - np.int64(LIMIT) == -(2**63) + 1
    drawn = noise.rounded_gaussian(sigma=2.0**50, size=100_000, entropy=ReplayEntropy(1))
    total = np.full(100_000, FARTHEST) + drawn
    assert np.all((total > FARTHEST) == (drawn > 0))


# --- sums ---


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=60))
def test_a_sum_of_floats_is_exact(values: list[float]) -> None:
    assert exact_sum(values) == sum((F(v) for v in values), start=F(0))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_the_order_does_not_matter(values: list[float], chance: Any) -> None:
    shuffled = values.copy()
    chance.shuffle(shuffled)
    assert exact_sum(shuffled) == exact_sum(values)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=50))
def test_one_row_moves_a_sum_by_itself(values: list[float]) -> None:
    """What sensitivity means. In floats it fails: adding 1.0 to 1e16 moves the sum by 0 or by 2."""
    for i in range(len(values)):
        assert exact_sum(values) - exact_sum(values[:i] + values[i + 1 :]) == F(values[i])


def test_where_float_sums_go_wrong() -> None:
    """Casacuberta et al. 2022: rounding and order move a float sum by more than any row is large."""
    values = [1e16] + [1.0] * 1000 + [-1e16]
    assert sum(values) != 1000
    assert exact_sum(values) == 1000
    overflow = np.array([2**62, 2**62, 2**62, -(2**62)])
    with np.errstate(over="ignore"):
        assert np.sum(overflow[:3]) < 0  # wraps
    assert exact_sum(overflow[:3]) == 3 * 2**62
    assert exact_sum([LARGEST, LARGEST, -LARGEST]) == F(LARGEST)
    assert exact_sum([5e-324] * 3) == 3 * F(5e-324)


def test_special_floats_in_a_sum() -> None:
    assert exact_sum([math.nan, 1.0]) == 1
    assert exact_sum([math.inf, 1.0]) == F(LARGEST) + 1
    assert exact_sum([math.inf, -math.inf]) == 0
    assert exact_sum([-0.0]) == 0
    assert exact_sum([]) == 0
    for table in (np.zeros((0, 3)), np.zeros((3, 1)), [[1, 2], [3, 4]]):
        with pytest.raises(InvalidParameter, match="one column"):
            exact_sum(table)
    assert exact_sum(2.5) == F(5, 2)
    assert exact_sum([F(1, 3), Decimal("0.5"), 1]) == F(11, 6)
    assert exact_sum([Decimal("Infinity"), Decimal("NaN")]) == F(LARGEST)


def test_integers_are_summed_exactly() -> None:
    assert exact_sum(np.array([2**63 - 1] * 5)) == 5 * (2**63 - 1)
    assert exact_sum(np.array([-(2**63)] * 5)) == -5 * 2**63
    assert exact_sum(np.array([2**64 - 1] * 5, dtype=np.uint64)) == 5 * (2**64 - 1)
    assert exact_sum([10**40, 1]) == 10**40 + 1


def test_a_long_sum_is_exact() -> None:
    """Three million floats over 600 powers of two, in chunks; against Python's own exact sum of the sorted parts."""
    entropy = ReplayEntropy(2)
    words = entropy.words(3_000_000)
    values = np.ldexp(
        (words >> np.uint64(11)).astype(np.float64) - 2.0**52, (words % np.uint64(600)).astype(np.int32) - 400
    )
    whole = exact_sum(values)
    parts = sum((exact_sum(part) for part in np.array_split(values[::-1], 7)), start=F(0))
    assert whole == parts
    assert float(whole) == math.fsum(values)


@pytest.mark.parametrize("other", [0.5, F(1, 2), np.float32(0.5), np.longdouble(0.5), -1, None])
def test_one_number_of_a_list_does_not_round_the_others(other: Any) -> None:
    """2⁶⁰ + 1 is no float; numpy made one of it as soon as another number of the list was a float."""
    whole = [2**60 + 1] * 1000
    assert noise.exact_sum([*whole, other]) == noise.exact_sum(whole) + F(0 if other is None else float(other))
    grid = noise.Grid(exponent=0)
    assert grid.round([2**60 + 1, other]).tolist() == [2**60 + 1, grid.round(other)]
    assert grid.round([[2**60 + 1, other]]).tolist() == [[2**60 + 1, grid.round(other)]]


def test_whole_numbers_on_both_sides_of_64_bits_stay_whole() -> None:
    assert noise.exact_sum([2**63 + 1, -1]) == 2**63
    assert noise.exact_sum([np.uint64(2**63 + 1), np.int64(-1)]) == 2**63


@pytest.mark.parametrize("odd", [True, np.complex128(1j), np.timedelta64(1, "D"), "1"], ids=repr)
def test_what_is_no_number_is_refused_beside_numbers(odd: Any) -> None:
    for other in (1, 1.0, None):
        with pytest.raises(InvalidParameter):
            noise.exact_sum([odd, other])
