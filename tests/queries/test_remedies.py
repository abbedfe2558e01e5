"""What a refused comparison says to write instead: it is accepted, and gives the right number."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import deniable as dn
from deniable.errors import InvalidParameter, QuestionRefused
from deniable.queries.plan.pricing import as_people_write
from deniable.tables.expressions import Expression, col, lit
from tests.wording import worded

FRAME = pd.DataFrame(
    {
        "age": ["9", "51", "100", "50"] * 25,
        "n": [1, 2, 3, 4] * 25,
        "seen": ["2020-01-01", "2021-01-01", "2022-01-01", "2023-01-01"] * 25,
        "day": pd.to_datetime(["2020-01-01", "2021-01-01", "2022-01-01", "2023-01-01"] * 25),
        "flag": [True, False, True, True] * 25,
    }
)
SCHEMA = {
    "age": dn.Domain.text(), "n": dn.Domain.integer(0, 5), "seen": dn.Domain.text(),
    "day": dn.Domain.date("2020-01-01", "2024-01-01"), "flag": dn.Domain.boolean(),
}  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "remedy", "share"),
    [
        ("age > 50", "CAST(age AS BIGINT) > 50", 0.5),
        ("50 >= age", "50 >= CAST(age AS BIGINT)", 0.5),
        ("age = 50.0", "CAST(age AS DOUBLE) = 50.0", 0.25),
        ("age <> 9", "CAST(age AS BIGINT) <> 9", 0.75),
        ("age BETWEEN 50 AND 60", "CAST(age AS BIGINT) >= 50", 0.75),
        ("age IN (9, 50)", "CAST(age AS BIGINT) IN (9, 50)", 0.5),
        ("age < n", "CAST(age AS BIGINT) < n", 0),
        ("n > '3'", "n > 3", 0.25),
        ("n IN ('1', '2')", "n IN (1, 2)", 0.5),
        ("seen > DATE '2020-06-01'", "CAST(seen AS DATE) > DATE '2020-06-01'", 0.75),
        ("seen = day", "CAST(seen AS DATE) = day", 1),
        ("flag = 1", "CAST(flag AS BIGINT) = 1", 0.75),
        ("flag = 'true'", "flag = TRUE", 0.75),
    ],
)
def test_a_remedy_compared_numbers_as_text(asked: str, remedy: str, share: float) -> None:
    """`age > 50` of a text column was told to be `age > CAST(50 AS VARCHAR)`, for which '9' is more than '50'."""
    budget = dn.Budget.gaussian(mu=1000)
    with dn.session({"t": FRAME}, unit=dn.Unit.row(), budget=budget, schema=SCHEMA) as s:
        with pytest.raises(QuestionRefused) as refused:
            s.price(f"SELECT COUNT(*) AS c FROM t WHERE {asked}", mu=1)
        assert refused.value.rewrite == f"write {remedy}"
        answer = s.sql(f"SELECT COUNT(*) AS c FROM t WHERE {remedy}", mu=100)
    assert answer.value == 100 * share  # at mu = 100 noise is nothing but once in 1e500


@pytest.mark.parametrize(
    ("asked", "remedy"),
    [
        ("n = 'old'", "'old' is text: write a constant of kind integer"),
        ("day = 2020", "take a number out of the date: YEAR(day)"),
        ("age + 1 > 5", "write CAST(age AS BIGINT) + 1"),
        ("ABS(age) > 5", "write ABS(CAST(age AS DOUBLE))"),
        ("COALESCE(age, 0) = 1", "write COALESCE(CAST(age AS BIGINT), 0)"),
        ("CASE WHEN flag THEN age ELSE 0 END = 1", "write CASE WHEN … THEN CAST(age AS BIGINT) ELSE 0 END"),
        ("UPPER(age) > 5", "write CAST(… AS BIGINT) > 5"),
    ],
)
def test_a_remedy_is_in_the_columns_of_the_question(asked: str, remedy: str) -> None:
    made = dn.session({"t": FRAME}, unit=dn.Unit.row(), budget=dn.Budget.gaussian(mu=1), schema=SCHEMA)
    with made as s, pytest.raises(QuestionRefused) as refused:
        s.price(f"SELECT COUNT(*) AS c FROM t WHERE {asked}", mu=1)
    assert refused.value.rewrite == remedy


@pytest.mark.parametrize("number", ["1e400", "-1e400", "99999999999999999999", "nan"])
def test_a_text_that_no_column_can_hold_as_a_number_is_refused_in_words(number: str) -> None:
    """The remedy read it as infinity, and the refusal became an error about a constant that nobody wrote."""
    with (
        dn.session({"t": FRAME}, unit=dn.Unit.row(), budget=dn.Budget.pure(epsilon=1), schema=SCHEMA) as session,
        pytest.raises(QuestionRefused, match="kind"),
    ):
        session.price(f"SELECT COUNT(*) AS c FROM t WHERE n > '{number}'", epsilon=0.1)


def test_a_cost_that_is_given_twice_or_not_at_all() -> None:
    with dn.session(FRAME, unit=dn.Unit.row(), budget=dn.Budget.pure(epsilon=1), schema=SCHEMA) as s:
        with worded(InvalidParameter, parameter="cost"):
            s.sql("SELECT COUNT(*) FROM data")
        with worded(InvalidParameter, parameter="epsilon and share"):
            s.sql("SELECT COUNT(*) FROM data", epsilon=0.1, share=0.1)


def test_only_a_file_is_asked_for_a_line_of_names(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    FRAME.to_csv(file, index=False)
    for source in (FRAME, file):
        with worded(InvalidParameter, parameter="unit"):
            dn.session(source, unit=dn.Unit.person("who", rows=3), budget=dn.Budget.pure(epsilon=1))


@pytest.mark.parametrize(
    "asked", ["SELECT MEDIAN(age) FROM data", "SELECT AVG(age) FROM data", "SELECT SKEWNESS(n) FROM data"]
)
def test_a_refusal_names_what_was_written(asked: str) -> None:
    """MEDIAN was called quantile, and what to write instead of SKEWNESS was not shown."""
    with (
        dn.session(FRAME, unit=dn.Unit.row(), budget=dn.Budget.pure(epsilon=1), schema=SCHEMA) as s,
        worded(QuestionRefused),
    ):
        s.sql(asked, epsilon=0.1)


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        (col("cost") - lit(1000.0), "cost - 1000"),
        (col("cost") - (col("n") - 1), "cost - (n - 1)"),
        (lit(0.1) * (col("cost") + 2), "0.1 * (cost + 2)"),
        (col("cost").is_null(), "is_null(cost)"),
    ],
)
def test_expressions_are_printed_as_people_write_them(expression: Expression, shown: str) -> None:
    assert as_people_write(expression) == shown
