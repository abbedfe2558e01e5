"""`within=` buys the error that it states: of an average in a group of a stated size, and of the rank of a quantile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import deniable as dn
from deniable.errors import InvalidParameter
from deniable.queries.session import Session
from tests.wording import worded

pandas = pytest.importorskip("pandas")
pytest.importorskip("duckdb")

ROWS = 400
RUNS = 300
SCHEMA = {"x": dn.Domain.real(0, 100, nullable=False), "day": dn.Domain.date("2024-01-01", "2024-12-31")}


def values() -> Any:
    return np.random.default_rng(21).uniform(0, 100, ROWS)


def opened(budget: dn.Budget) -> Session:
    frame = pandas.DataFrame({"who": range(ROWS), "x": values(), "day": pandas.to_datetime(["2024-03-01"] * ROWS).date})
    return dn.session({"t": frame}, unit=dn.Unit.person("who", rows=1), budget=budget, schema=SCHEMA)


@pytest.fixture(params=["gaussian", "pure"])
def s(request: pytest.FixtureRequest) -> Iterator[Session]:
    budgets = {"gaussian": dn.Budget.gaussian(mu=1000), "pure": dn.Budget.pure(epsilon=10**6)}
    with opened(budgets[request.param]) as session:
        yield session


@pytest.mark.slow
def test_an_average_has_the_stated_error_in_a_group_of_the_stated_size(s: Session) -> None:
    """300 means of the 400 rows. Their number within ± 2 is binomial with p = 95 % if the stated error is right: then
    at most 1 in 1e9 runs have fewer than 258 (86 %).
    """
    text, within = "SELECT AVG(x) AS m FROM t", {"m": (2.0, float(ROWS))}
    price = s.price(text, within=within)
    assert price.errors(rows=ROWS)["m"] == pytest.approx(2.0, rel=1e-4)
    exact = float(values().mean())
    found = [s.sql(text, within=within, fresh=True)["m"][0] for _ in range(RUNS)]
    assert sum(abs(each - exact) <= 2.0 for each in found) >= 258
    assert max(abs(each - exact) for each in found) > 1.0  # and no more was paid than that needs


def test_half_the_group_needs_a_higher_cost(s: Session) -> None:
    costs = [s.price("SELECT STDDEV(x) AS d FROM t", within={"d": (3, rows)}).cost.units for rows in (250, 500, 1000)]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[1] > costs[2]


def test_a_number_for_a_quantile_is_the_error_of_its_rank(s: Session) -> None:
    for text in ("SELECT MEDIAN(x) AS m FROM t", "SELECT MEDIAN(x) AS m, QUANTILE(x, 0.9) AS q FROM t"):
        found = s.price(text, within=20).rank_errors()
        assert max(found.values()) == pytest.approx(20, abs=1.0)
        assert max(found.values()) <= 20


def test_all_stated_errors_are_kept_together(s: Session) -> None:
    price = s.price("SELECT AVG(x) AS m, COUNT(*) AS n FROM t", within={"m": (2, 100), "n": 500})
    assert price.errors(rows=100)["m"] <= 2  # type: ignore[operator]
    assert price.errors()["n"] <= 500  # type: ignore[operator]


RATIOS = [
    "SELECT 1.0 * COUNT_IF(x >= 0) / COUNT(*) AS r FROM t",
    "SELECT SUM(100 - x * 0) / COUNT(*) / 100 AS r FROM t",
    "SELECT 2 * (COUNT_IF(x >= 0) / COUNT(*)) / 2 AS r FROM t",
    "SELECT SAFE_DIVIDE(CAST(COUNT(x) AS DOUBLE), NULLIF(COUNT_IF(x >= 0), 0)) AS r FROM t",
]
"""All have the value 1, the largest that their bounds allow."""


@pytest.mark.parametrize("text", RATIOS)
def test_a_ratio_has_the_stated_error_in_a_group_of_the_stated_size(s: Session, text: str) -> None:
    """120 ratios of the 400 rows, and their intervals. Their number within ± 0.1 is binomial with p >= 95 %: at most 1
    in 1e9 runs have fewer than 95.
    """
    within = {"r": (0.1, ROWS)}
    price = s.price(text, within=within)
    stated = price.errors(rows=ROWS)["r"]
    assert stated == pytest.approx(0.1, rel=1e-3)
    assert "error r: at most ±" in " ".join(str(price).split())
    found = [s.sql(text, within=within, fresh=True) for _ in range(120)]
    off = [abs(each["r"][0] - 1) for each in found]
    assert sum(each <= stated for each in off) >= 95
    assert max(off) > 0.05  # and no more was paid than that needs
    halves = [(high - low) / 2 for [(low, high)] in (each.interval("r") for each in found)]
    assert sum(halves) / 120 == pytest.approx(0.1, rel=0.1)


def test_a_smaller_ratio_and_a_larger_group_have_a_smaller_error(s: Session) -> None:
    text = "SELECT 1.0 * COUNT_IF(x < 10) / COUNT(*) AS r FROM t"
    price = s.price(text, within={"r": (0.05, 200)})
    assert price.errors(rows=400)["r"] < 0.03  # type: ignore[operator]
    [(low, high)] = s.sql(text, within={"r": (0.05, 200)}).interval("r")  # a tenth of 400 rows
    assert (high - low) / 2 < 0.03
    assert s.price(text, mu=1e-3).errors(rows=5)["r"] is None if "mu" in str(s.budget) else True


@pytest.mark.parametrize(
    "text",
    [
        "SELECT SUM(x) / SUM(x + 1) AS r FROM t",  # a sum may be anything
        "SELECT AVG(x) / COUNT(*) AS r FROM t",
        "SELECT (COUNT(*) - COUNT_IF(x > 3)) / COUNT(*) AS r FROM t",
        "SELECT COUNT(*) / COUNT(*) AS r FROM t",
        "SELECT SQRT(COUNT_IF(x > 3)) / COUNT(*) AS r FROM t",
    ],
)
def test_other_ratios_have_no_stated_error(s: Session, text: str) -> None:
    assert s.price(text, share=0.1).errors()["r"] is None
    with worded(InvalidParameter, parameter="within"):
        s.price(text, within={"r": (0.1, 500)})


@pytest.mark.parametrize(
    ("text", "within"),
    [
        ("SELECT COUNT_IF(x > 3) / COUNT(*) AS r FROM t", {"r": 0.1}),
        ("SELECT AVG(x) AS m FROM t", 2),
        ("SELECT AVG(x) AS m FROM t", {"m": (2, 1.5)}),
        ("SELECT AVG(x) AS m FROM t", {"m": (2, 3, 4)}),
        ("SELECT AVG(x) AS m FROM t", {"m": (2, 0)}),
        ("SELECT AVG(x) AS m FROM t", {"m": (-2, 10)}),
        ("SELECT COUNT(*) AS m FROM t", {"m": (2, 10)}),
        ("SELECT MEDIAN(x) AS m FROM t", {"m": (2, 10)}),
        ("SELECT MAX(day) AS m FROM t", {"m": (2, 10)}),
        ("SELECT AVG(x) AS m FROM t", {}),
        ("SELECT AVG(x) AS m FROM t", {"n": 2}),
    ],
)
def test_other_statements_are_refused(text: str, within: object) -> None:
    with opened(dn.Budget.gaussian(mu=10)) as s, worded(InvalidParameter, parameter="within"):
        s.price(text, within=within)  # type: ignore[arg-type]  # that is the test
