"""What owners and analysts write: NumPy's scalars, dates as text, lists of keys."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pytest

from deniable import Budget, Unit, col
from deniable.errors import InvalidParameter
from deniable.queries.plan.canonical_form import expression_form
from deniable.queries.plan.pricing import AskedCost
from deniable.tables.expressions import call, lit, same
from deniable.tables.kinds import Domain

YEAR = Domain.date(dt.date(2024, 1, 1), dt.date(2024, 12, 31))
DAY = Domain.timestamp(dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 23, 59))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (Domain.date("2024-01-01", "2024-12-31"), YEAR),
        (Domain.date(np.datetime64("2024-01-01"), np.datetime64("2024-12-31T00:00:00.000000000")), YEAR),
        (Domain.date(pd.Timestamp("2024-01-01"), pd.Timestamp("2024-12-31")), YEAR),
        (Domain.date(keys=["2024-01-01"]), Domain.date(keys=[dt.date(2024, 1, 1)])),
        (Domain.timestamp("2024-01-01T00:00", "2024-01-01 23:59"), DAY),
        (Domain.timestamp(pd.Timestamp("2024-01-01"), np.datetime64("2024-01-01T23:59:00.000000000")), DAY),
        (Domain.integer(np.int8(0), np.float32(120)), Domain.integer(0, 120)),
        (Domain.integer(keys=np.array([1, 2])), Domain.integer(keys=(1, 2))),
        (Domain.real(np.float32(0.5), np.uint16(3)), Domain.real(0.5, 3)),
        (Domain.text(["A", "B"]), Domain.text("A", "B")),
        (Domain.text(np.array(["A", "B"])), Domain.text("A", "B")),
        (Domain.text(pd.Series(["A", "B"]), nullable=False), Domain.text("A", "B", nullable=False)),
        (Domain.text({"b", "c", "a"}), Domain.text("a", "b", "c")),
        (Domain.text(key for key in "AB"), Domain.text("A", "B")),
        (Domain.text(np.str_("A")), Domain.text("A")),
    ],
)
def test_bounds_and_keys_are_taken_as_they_are_written(written: Domain, meant: Domain) -> None:
    assert written == meant
    assert repr(written) == repr(meant)
    assert [type(key) for key in written.keys or ()] == [type(key) for key in meant.keys or ()]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Domain.date("1.1.2024", "31.12.2024"), 'write "2024-01-01"'),
        (lambda: Domain.date("2024-02-30", "2024-12-31"), "must be a date"),
        (lambda: Domain.date(dt.datetime(2024, 1, 1, 12), dt.date(2024, 1, 2)), "must be a date"),
        (lambda: Domain.date(pd.Timestamp("2024-01-01 12:00"), dt.date(2024, 1, 2)), "must be a date"),
        (lambda: Domain.timestamp("2024-01-01", "2024-12-31"), "is a date without a time"),
        (lambda: Domain.timestamp("2024-01-01T00:00Z", "2024-12-31T00:00Z"), "without a time zone"),
        (lambda: Domain.text([]), "at least one value"),
        (lambda: Domain.text(["A", "A"]), "each value once"),
        (lambda: Domain.text(["A", 1]), "of kind text"),
        (lambda: Domain.text({"A", 1}), "of kind text"),
        (lambda: Domain.text(7), "must be a list of values"),
        (lambda: Domain.integer(keys="12"), "must be a list of values"),
        (lambda: Domain.integer(np.bool_(False), 3), "must be a number"),
        (lambda: Domain.integer(np.float64(0.5), 3), "whole number"),
        (lambda: Unit.person("who", rows=np.float64(2)), "whole number"),
    ],
)
def test_what_is_refused_stays_refused(wrong: object, said: str) -> None:
    with pytest.raises(InvalidParameter, match=said):
        wrong()  # type: ignore[operator]


def test_numpy_scalars_are_the_numbers_that_they_stand_for() -> None:
    assert Unit.person("who", rows=np.int64(3)) == Unit.person("who", rows=3)
    assert type(Unit.person("who", rows=np.int64(3)).rows) is int
    assert Budget(epsilon=np.float64(1), delta=np.float64(1e-6)) == Budget(epsilon=1, delta=1e-6)
    assert Budget.pure(epsilon=np.int64(3)) == Budget.pure(epsilon=3)
    large = Budget.pure(epsilon=np.int64(900_000)).cost(epsilon=np.int64(800_000))
    assert large.units == 800_000 * 10**30, "in Python's integers, which do not overflow"
    asked = AskedCost(within=np.int32(5), confidence=np.float64(0.9), epsilon=np.float32(0.5), delta=np.float64(1e-9))
    assert (asked.within, asked.epsilon) == (5, 0.5)
    assert all(type(each) in (int, float) for each in (asked.within, asked.epsilon, asked.confidence, asked.delta))


@pytest.mark.parametrize(
    "value", [np.float64(1.5), np.int64(3), np.str_("a"), np.bool_(True), pd.Timestamp("2024-01-01")]
)
def test_constants_of_numpy_are_the_same_constants(value: object) -> None:
    """Or a question would not be found again, or be written to an engine as np.float64(1.5)."""
    plain = value.to_pydatetime() if isinstance(value, pd.Timestamp) else value.item()  # type: ignore[attr-defined]
    assert same(lit(value), lit(plain))  # type: ignore[arg-type]
    asked, meant = (call("eq", col("x"), each) for each in (value, plain))
    assert repr(asked) == repr(meant)
    assert expression_form(asked) == expression_form(meant)
