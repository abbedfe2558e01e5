"""Bounds that leave one value, or hardly more than one: answers stay between them, and intervals hold the truth."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
import pytest

import deniable as dn
from deniable.errors import InvalidParameter, QuestionRefused
from tests.wording import worded

BUDGETS = {"pure": dn.Budget.pure(epsilon=1000), "gaussian": dn.Budget.gaussian(mu=1000)}
SELECT = "SELECT MEDIAN(x) AS m, QUANTILE(x, 0.1) AS q, MIN(x) AS a, MAX(x) AS b, AVG(x) AS v FROM t"


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize(
    ("value", "domain"),
    [
        (1.0, dn.Domain.real(1, 1)),
        (0.0, dn.Domain.real(0, 0)),
        (-2.5, dn.Domain.real(-2.5, -2.5)),
        (1e6, dn.Domain.real(1e6, 1e6)),
        (1, dn.Domain.integer(1, 1)),
    ],
)
def test_the_only_possible_value_was_told_half_above_itself(budget, value, domain) -> None:
    table = pd.DataFrame({"x": [value] * 300})
    with dn.session({"t": table}, unit=dn.Unit.row(), budget=budget, schema={"x": domain}) as s:
        for text in (SELECT, "SELECT MEDIAN(x) AS m FROM t"):
            answer: Any = s.sql(text, share=0.1)
            for name in answer.columns:
                [found], [interval] = answer[name], answer.interval(name)
                assert found == value, name
                assert interval is None or interval[0] <= value <= interval[1] <= max(value, interval[0]), name


def test_the_only_possible_day_is_told() -> None:
    day = dt.date(2024, 2, 29)
    table = pd.DataFrame({"x": pd.to_datetime([day] * 300)})
    schema = {"x": dn.Domain.date(day, day)}
    with dn.session({"t": table}, unit=dn.Unit.row(), budget=BUDGETS["pure"], schema=schema) as s:
        for year in ("MIN", "MAX"):
            answer: Any = s.sql(f"SELECT {year}(YEAR(x)) AS y FROM t", epsilon=10)
            assert list(answer["y"]) == [2024]


@pytest.mark.parametrize("ends", [(0, 1e-320), (-1e-310, 0), (0, 1e-260), (5e-324, 5e-324)])
def test_bounds_too_near_to_0_failed_after_they_were_charged(ends) -> None:
    with worded(InvalidParameter, parameter="bounds"):
        dn.Domain.real(*ends)
    assert dn.Domain.real(0, 1e-249).bounds
    assert dn.Domain.real(0, 0).bounds


@pytest.mark.parametrize("function", ["SUM", "AVG", "VARIANCE", "MEDIAN", "MIN"])
@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("LEAST(GREATEST(x, 0), 1e-320)", "nearer to 0, or to each other, than 1e-250"),
        ("x * 1e-200 * 1e-100", "nearer to 0, or to each other, than 1e-250"),
        ("huge", "the bounds of this number are beyond 1e60, which is too wide"),
        ("x * 1e100", "the bounds of this number are beyond 1e60"),
        ("free", "and this number has none"),
        ("x / (x - x)", "and this number has none"),
    ],
)
def test_a_refusal_for_bounds_gives_the_true_reason(function, number, said) -> None:
    schema = {"x": dn.Domain.real(0, 1), "huge": dn.Domain.real(0, 1e150), "free": dn.Domain.real()}
    table = pd.DataFrame({"x": [0.5], "huge": [1.0], "free": [1.0]})
    with dn.session({"t": table}, unit=dn.Unit.row(), budget=BUDGETS["pure"], schema=schema) as s:
        with pytest.raises(QuestionRefused) as refused:
            s.sql(f"SELECT {function}({number}) AS a FROM t", epsilon=1)
        assert said in str(refused.value)
        assert s.spent.epsilon(delta=0) == 0
