"""Windows, FIRST, ARG_MIN and MEDIAN over the rows of one person: the numbers of plain DuckDB, and a bound on rows."""

from __future__ import annotations

import random
from typing import Any

import pandas as pd
import pytest

import deniable as dn
from deniable.errors import QuestionRefused
from deniable.queries import parse
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.relations.exact_statistics import Collect, Count
from tests.queries.engines.evaluate import collected, registered
from tests.queries.sql.test_joins_as_written import answers, tables  # noqa: F401  # a fixture: small tables, twice

OVER = "OVER (PARTITION BY patient_id ORDER BY visited, age, cost"
SUBQUERIES = [
    f"SELECT COUNT(*) AS n FROM (SELECT age, LAG(age) {OVER}) AS b FROM visits) WHERE age > b",
    f"SELECT COUNT(*) AS n FROM (SELECT age, LEAD(age, 2) {OVER} DESC) AS b FROM visits) WHERE age > b",
    f"SELECT ward, COUNT(*) AS n FROM (SELECT ward, ROW_NUMBER() {OVER}) AS k FROM visits) WHERE k = 1 GROUP BY ward",
    f"SELECT ward, COUNT(*) AS n FROM (SELECT ward FROM visits QUALIFY ROW_NUMBER() {OVER}) <= 2) GROUP BY ward",
    "SELECT SUM(k) AS n FROM (SELECT RANK() OVER (PARTITION BY patient_id ORDER BY age) AS k FROM visits)",
    "SELECT SUM(k) AS n FROM (SELECT DENSE_RANK() OVER (PARTITION BY patient_id, ward ORDER BY age) AS k FROM visits)",
    f"SELECT SUM(s) AS n FROM (SELECT SUM(CASE WHEN age > 40 THEN 1 ELSE 0 END) {OVER}) AS s FROM visits)",
    f"SELECT SUM(s) AS n FROM (SELECT MAX(age) {OVER} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS s FROM visits)",
    f"SELECT SUM(s) AS n FROM (SELECT FIRST_VALUE(age) {OVER}) AS s FROM visits)",
    "SELECT SUM(n) AS n FROM (SELECT COUNT(*) OVER (PARTITION BY patient_id) AS n FROM visits)",
    "SELECT SUM(a) AS n FROM (SELECT patient_id, ARG_MIN(age, cost) AS a FROM visits GROUP BY patient_id)",
    "SELECT SUM(a) AS n FROM (SELECT patient_id, ward, ARG_MAX(age, cost) AS a FROM visits GROUP BY patient_id, ward)",
    "SELECT SUM(a) AS n FROM (SELECT patient_id, FIRST(age ORDER BY visited, cost, age) AS a FROM visits GROUP BY 1)",
    "SELECT SUM(a) AS n FROM (SELECT patient_id, LAST(age ORDER BY visited, cost, age) AS a FROM visits GROUP BY 1)",
    "SELECT SUM(CAST(2 * a AS BIGINT)) AS n FROM (SELECT patient_id, MEDIAN(age) AS a FROM visits GROUP BY 1)",
]


@pytest.mark.parametrize("text", SUBQUERIES)
def test_a_window_within_a_person_has_the_numbers_of_duckdb(text: str, tables: Any) -> None:  # noqa: F811
    stored, plain = tables
    rows = plain.execute(text).fetchall()
    assert sorted(answers(parse(text, EXAMPLE), stored), key=repr) == sorted(rows, key=repr)


def test_sessions_by_a_gap_are_counted() -> None:
    """A session begins where the row before is long ago; the running number of beginnings names the session."""
    question = parse(
        "WITH g AS (SELECT patient_id, CASE WHEN DATE_DIFF('day', LAG(visited) OVER w1, visited) > 30 THEN 1 ELSE 0 END AS s,"
        " visited FROM visits)"
        " SELECT AVG(n) FROM (SELECT patient_id, 1 + SUM(s) AS n FROM g GROUP BY patient_id)".replace(
            "w1", "(PARTITION BY patient_id ORDER BY visited)"
        ),
        EXAMPLE,
    )
    assert question.relation.rows == 1


@pytest.mark.parametrize(
    ("condition", "rows"),
    [("k = 1", 1), ("k <= 3", 3), ("k < 3 AND age > 3", 2), ("k IN (2, 5)", 2), ("3 >= k", 3), ("k >= 18", 3), ("k > 0", 20)],
)  # fmt: skip
def test_a_numbered_row_bounds_the_rows_of_a_person(condition: str, rows: int) -> None:
    inner = f"SELECT age, ROW_NUMBER() {OVER}) AS k FROM visits"
    assert parse(f"SELECT COUNT(*) FROM ({inner}) WHERE {condition}", EXAMPLE).relation.rows == rows


def test_a_number_within_a_ward_bounds_nothing_without_the_ward() -> None:
    inner = "SELECT ward, ROW_NUMBER() OVER (PARTITION BY patient_id, ward ORDER BY age) AS k FROM visits"
    assert parse(f"SELECT COUNT(*) FROM ({inner}) WHERE k = 1", EXAMPLE).relation.rows == 20
    assert parse(f"SELECT COUNT(*) FROM ({inner}) WHERE k = 1 AND ward = 'A'", EXAMPLE).relation.rows == 1


def test_another_number_in_a_condition_is_not_filled_into_a_cached_plan() -> None:
    """k <= 1 and k <= 15 have one shape, but not one bound on the rows of a person."""
    frame = {"who": [1] * 20 + [2], "x": [*range(20), 0]}
    with dn.session(
        {"t": pd.DataFrame(frame)}, unit=dn.Unit.person("who", rows=20), budget=dn.Budget.pure(epsilon=100)
    ) as s:
        text = "SELECT COUNT(*) FROM (SELECT ROW_NUMBER() OVER (PARTITION BY who ORDER BY x) AS k FROM t) WHERE k <= {}"
        found = [s.price(text.format(k), epsilon=1).errors() for k in (1, 2, 3, 15)]
    errors = [next(iter(each.values())) for each in found]
    assert errors[0] < errors[1] < errors[2] < errors[3] / 3


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM (SELECT LAG(age) OVER (ORDER BY visited) AS b FROM visits) WHERE b > 1",
        "SELECT COUNT(*) FROM (SELECT LAG(age) OVER (PARTITION BY ward ORDER BY visited) AS b FROM visits) WHERE b > 1",
        "SELECT LAG(age) OVER (PARTITION BY patient_id ORDER BY visited) FROM visits",
        "SELECT COUNT(*) FROM (SELECT LAST_VALUE(age) OVER (PARTITION BY patient_id ORDER BY age) AS b FROM visits)",
        "SELECT COUNT(*) FROM (SELECT age FROM visits QUALIFY age > 3)",
    ],
)
def test_windows_across_people_are_refused(text: str) -> None:
    with pytest.raises(QuestionRefused) as refused:
        parse(text, EXAMPLE)
    assert refused.value.code == "window"


def test_the_bound_of_a_numbered_row_is_reached() -> None:
    """One person with many rows: the count moves by exactly the bound, so a smaller bound would be wrong."""
    text = f"SELECT COUNT(*) FROM (SELECT ROW_NUMBER() {OVER}) AS k FROM visits) WHERE k <= 2"
    filtered = parse(text, EXAMPLE).relation
    chance = random.Random(3)
    rows = [
        {"patient_id": "p", **{n: chance.randint(0, 9) if n == "age" else None for n, _ in EXAMPLE["visits"].columns}}
        for _ in range(30)
    ]
    there = {"visits": registered(EXAMPLE["visits"], rows, b"s" * 16)}
    [(found,)] = collected(Collect(filtered, (), None, (Count(),)), there).values()
    assert found == filtered.rows == 2
