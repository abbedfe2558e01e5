"""SQL into questions: without noise, every question answers what DuckDB answers to the very same text."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from deniable.errors import QuestionRefused
from deniable.queries.frame import frame_aggregates as ask
from deniable.queries.frame.frame import Frame
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.relations.relation_nodes import Bound, PerPerson, Union
from deniable.queries.sql.sql_reader import parse
from deniable.tables.expressions import Column, col
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table
from deniable.units import Unit
from tests.queries.answers import answers
from tests.queries.engines.evaluate import Stored, registered

SECRET = b"0123456789abcdef"
DIAGNOSES = [None, "flu", "cold", "Flu ", "", "J45", "J45.1", "naïve"]


def data() -> dict[str, list[dict[str, Any]]]:
    chance = random.Random(4)
    visits = [
        {
            "patient_id": f"p{chance.randrange(40)}",
            "age": chance.choice([None, *range(0, 121, 7)]),
            "ward": chance.choice([None, "A", "B", "C"]),
            "cost": chance.choice([None, 0.0, 12.5, 99.25, 1000.0, 9999.0, 10000.0]),
            "weight": chance.choice([None, -1.0, 70.5, 80.25]),
            "visited": chance.choice([None, *(dt.date(2023, 11, 20) + dt.timedelta(days=9 * i) for i in range(20))]),
            "diagnosis": chance.choice(DIAGNOSES),
        }
        for _ in range(300)
    ]
    stays = [
        {
            "patient_id": f"p{person}",
            "days": chance.choice([None, 0, 3, 365]),
            "place": chance.choice(["flu", "cold", None]),
        }
        for person in range(20, 60)
        for _ in range(chance.randrange(4))
    ]
    wards = [
        {"ward": "A", "city": "Ghent", "beds": 10},
        {"ward": "B", "city": "Lyon", "beds": None},
        {"ward": "D", "city": "Lyon", "beds": 3},
    ]
    return {"visits": visits, "stays": stays, "wards": wards}


@pytest.fixture(scope="module")
def here() -> Iterator[tuple[duckdb.DuckDBPyConnection, Stored]]:
    connection = duckdb.connect()
    types = {"integer": "BIGINT", "real": "DOUBLE", "text": "VARCHAR", "date": "DATE"}
    stored: Stored = {}
    for name, rows in data().items():
        table = EXAMPLE[name]
        kinds = {column: types[domain.kind.value] for column, domain in table.columns}
        if table.unit is not None:
            kinds["patient_id"] = "VARCHAR"
        connection.execute(f"CREATE TABLE {name} ({', '.join(f'{column} {kind}' for column, kind in kinds.items())})")
        for row in rows:
            marks = ", ".join("?" * len(kinds))
            connection.execute(f"INSERT INTO {name} VALUES ({marks})", [row[column] for column in kinds])
        stored[name] = registered(table, rows, SECRET)
    yield connection, stored
    connection.close()


SAME = """
SELECT COUNT(*) FROM visits
SELECT COUNT(age), COUNT(DISTINCT patient_id), COUNT(DISTINCT diagnosis), COUNT(patient_id), COUNT(1) FROM visits
SELECT SUM(cost), AVG(cost), MIN(age), MAX(age), SUM(age) FROM visits
SELECT VAR_POP(cost), VAR_SAMP(cost), VARIANCE(age), STDDEV(cost), STDDEV_POP(cost), STDDEV_SAMP(age) FROM visits
SELECT MEDIAN(cost), QUANTILE_CONT(cost, 0.9), PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY age), PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY age DESC) FROM visits
SELECT FLOOR(cost / 1000) * 1000 AS bin, COUNT(*) FROM visits GROUP BY bin
SELECT diagnosis, COUNT(*) FROM visits GROUP BY diagnosis
SELECT diagnosis, COUNT(*) FROM visits WHERE diagnosis IN ('flu', 'cold') GROUP BY diagnosis
SELECT age, COUNT(*) FROM visits WHERE age BETWEEN 20 AND 49 AND ward = 'A' GROUP BY age
SELECT age, COUNT(*) FROM visits WHERE age NOT BETWEEN 20 AND 49 GROUP BY age
SELECT ward, age > 50, COUNT(*) FROM visits GROUP BY ward, age > 50
SELECT ward, COUNT(*) AS n, AVG(cost) AS c, SUM(cost) / COUNT(*) AS r FROM visits GROUP BY ward HAVING COUNT(*) > 10 AND c > 3 ORDER BY n DESC, ward LIMIT 2 OFFSET 1
SELECT CASE WHEN age < 18 THEN 'child' WHEN age < 65 THEN 'adult' END AS who, COUNT(*) FROM visits GROUP BY who
SELECT CASE ward WHEN 'A' THEN 1 ELSE 2 END AS w, COUNT(*) FROM visits GROUP BY 1
SELECT v.ward, w.city, COUNT(*) FROM visits v JOIN wards w ON v.ward = w.ward WHERE w.beds > 5 GROUP BY v.ward, w.city
SELECT city, AVG(cost) FROM wards JOIN visits USING (ward) GROUP BY city
SELECT city, COUNT(*), COUNT(DISTINCT patient_id) FROM visits LEFT JOIN wards USING (ward) GROUP BY city
SELECT COUNT(*) FROM visits LEFT JOIN wards ON UPPER(visits.ward) = wards.ward WHERE city IS NULL
SELECT COUNT(*) FROM visits JOIN wards ON visits.ward = wards.ward AND visits.age > wards.beds
SELECT ward, SUM(days), COUNT(*) FROM visits JOIN stays ON visits.patient_id = stays.patient_id GROUP BY ward
SELECT COUNT(*), COUNT(days) FROM visits LEFT JOIN stays USING (patient_id)
SELECT COUNT(*) FROM visits AS v JOIN stays AS s ON v.patient_id = s.patient_id AND v.diagnosis = s.place
SELECT COUNT(*) FROM visits AS v LEFT JOIN stays AS s ON v.patient_id = s.patient_id AND v.diagnosis = s.place
SELECT COUNT(*) FROM visits a JOIN visits b ON a.patient_id = b.patient_id AND a.ward = b.ward AND a.age < b.age
SELECT AVG(n), MAX(n) FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id)
SELECT n, COUNT(*) FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id) GROUP BY n
WITH per AS (SELECT patient_id, ward, SUM(age) AS total, COUNT(*) AS n FROM visits WHERE age > 10 GROUP BY patient_id, ward HAVING COUNT(*) > 1) SELECT ward, AVG(total / n), COUNT(*) FROM per GROUP BY ward
SELECT AVG(most - least) FROM (SELECT patient_id, MAX(cost) AS most, MIN(cost) AS least, COUNT(DISTINCT ward) AS wards FROM visits GROUP BY 1 HAVING COUNT(DISTINCT ward) >= 2)
SELECT SUM(c) FROM (SELECT patient_id, AVG(cost) AS c FROM visits GROUP BY patient_id)
SELECT COUNT(*) FROM visits WHERE patient_id IN (SELECT patient_id FROM stays WHERE days > 2)
SELECT ward, COUNT(*) FROM visits WHERE patient_id NOT IN (SELECT patient_id FROM stays) AND age > 3 GROUP BY ward
SELECT COUNT(*) FROM (SELECT DISTINCT patient_id, ward FROM visits)
SELECT COUNT(*) FROM (SELECT age FROM visits WHERE ward = 'A' UNION ALL SELECT age FROM visits WHERE ward = 'B')
SELECT part, SUM(x) FROM (SELECT 'v' AS part, age AS x FROM visits UNION ALL SELECT 's', days FROM stays) GROUP BY part
SELECT COUNT(DISTINCT patient_id) FROM (SELECT patient_id FROM visits UNION ALL SELECT patient_id FROM stays)
SELECT ward, n * 2 AS m FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) WHERE n > 60 ORDER BY m DESC LIMIT 3
WITH t AS (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) SELECT * FROM t
SELECT COUNT(*) FILTER (WHERE age > 60), SUM(CASE WHEN ward = 'A' THEN cost ELSE 0 END), COUNT_IF(age > 3), COUNT(DISTINCT CASE WHEN age > 90 THEN patient_id END) FROM visits
SELECT EXTRACT(month FROM visited), DATE_TRUNC('month', visited) d, COUNT(*) FROM visits WHERE visited >= '2024-01-01' GROUP BY 1, d
SELECT EXTRACT(ISODOW FROM visited), QUARTER(visited), YEAR(visited), COUNT(*) FROM visits GROUP BY 1, 2, 3
SELECT DATE_TRUNC('week', visited), COUNT(*) FROM visits GROUP BY 1
SELECT COUNT(*) FROM visits WHERE DATE_DIFF('day', visited, DATE '2024-03-01') < 30
SELECT ROUND(AVG(cost), 2), ROUND(SUM(age) / 7) FROM visits
SELECT LEFT(diagnosis, 3) AS p, COUNT(*) FROM visits WHERE diagnosis LIKE 'J%' OR diagnosis ILIKE '%FL_%' GROUP BY p
SELECT LENGTH(TRIM(diagnosis)), COUNT(*) FROM visits WHERE NOT (diagnosis = 'flu') GROUP BY 1
SELECT UPPER(ward) || 'x' AS k, COUNT(*) c FROM visits GROUP BY k HAVING k <> 'Ax'
SELECT ward AS w, COUNT(*) FROM visits GROUP BY w ORDER BY COUNT(*) DESC NULLS FIRST
SELECT weight IS NULL, COUNT(*) FROM visits GROUP BY 1
SELECT SUM(LEAST(age, 50)), SUM(ABS(age - 60)), SUM(age % 7), SUM(-age), AVG(SQRT(cost)), AVG(LN(cost + 1)) FROM visits WHERE age IS NOT NULL
SELECT SUM(COALESCE(age, 0)), COUNT(NULLIF(ward, 'A')), SUM(CAST(age AS DOUBLE) / 2) FROM visits
SELECT COUNT(*) FROM visits WHERE ward IN ('A', NULL) OR (age > 3) IS FALSE AND FALSE
SELECT COUNT(*) FROM visits WHERE ward NOT IN ('A', 'B')
SELECT COUNT(*) FROM visits WHERE (age > 50) IS NOT TRUE
SELECT 1 AS one, COUNT(*) FROM visits
SELECT count(*) N, Sum(Cost) FROM VISITS WHERE WARD = 'A'
SELECT STARTS_WITH(diagnosis, 'J4'), COUNT(*) FROM visits GROUP BY 1
SELECT TRUNC(cost / 100), SIGN(weight), COUNT(*) FROM visits WHERE cost < 100 GROUP BY 1, 2
SELECT x, SUM(y) FROM (SELECT age % 10 AS x, cost * 2 AS y FROM visits WHERE cost < 100) AS t GROUP BY x
SELECT SUM(age) FROM (SELECT * FROM visits) AS v JOIN (SELECT DISTINCT patient_id, place FROM stays) AS s USING (patient_id)
(SELECT COUNT(*) FROM visits)
""".strip().splitlines()  # fmt: skip


@pytest.mark.parametrize("text", SAME)
def test_a_question_answers_what_the_text_says(text: str, here: tuple[duckdb.DuckDBPyConnection, Stored]) -> None:
    connection, stored = here
    question = parse(text, EXAMPLE)
    ours = answers(question, stored)
    cursor = connection.execute(text)
    theirs = cursor.fetchall()
    assert len(question.names) == len(cursor.description)
    if not question.post.order:
        ours, theirs = sorted(ours, key=repr_of), sorted(theirs, key=repr_of)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        for a, b in zip(mine, other, strict=True):
            assert close(a, b), (mine, other)


def repr_of(row: tuple[Any, ...]) -> str:
    return repr(
        [f"{float(x):.9g}" if isinstance(x, int | float) and not isinstance(x, bool) else str(x)[:10] for x in row]
    )


def close(a: Any, b: Any) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(b, dt.datetime) and not isinstance(a, dt.datetime):
        b = b.date()
    return bool(a == b)


def test_width_bucket_has_equal_bins(here: tuple[duckdb.DuckDBPyConnection, Stored]) -> None:
    question = parse("SELECT WIDTH_BUCKET(age, 0, 100, 4) AS b, COUNT(*) FROM visits GROUP BY b", EXAMPLE)
    assert question.keys[0].values is not None
    ages = [row["age"] for row in data()["visits"]]
    wanted: dict[Any, int] = {}
    for age in ages:
        place = None if age is None else 5 if age >= 100 else age // 25 + 1
        wanted[place] = wanted.get(place, 0) + 1
    assert dict(answers(question, here[1])) == wanted


def test_bounds_by_person_and_group(here: tuple[duckdb.DuckDBPyConnection, Stored]) -> None:
    connection, stored = here
    text = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, max_groups_contributed = 2, privacy_unit_column = patient_id) "
        "ward, SUM(cost, contribution_bounds_per_group => (0, 500)) AS s, COUNT(*) AS n FROM visits GROUP BY ward"
    )
    question = parse(text, EXAMPLE)
    assert question.options == {"epsilon": 1.0, "delta": 1e-6, "max_groups_contributed": 2.0}
    assert isinstance(question.relation, Bound)
    assert question.relation.groups == 2
    assert isinstance(question.relation.child, PerPerson)
    question = parse(text.replace("max_groups_contributed = 2, ", ""), EXAMPLE)
    theirs = connection.execute(
        "SELECT ward, SUM(LEAST(GREATEST(s, 0), 500)), SUM(n) FROM "
        "(SELECT patient_id, ward, SUM(cost) AS s, COUNT(*) AS n FROM visits GROUP BY ALL) GROUP BY ward"
    ).fetchall()
    ours = answers(question, stored)
    assert sorted((str(k), round(s, 6), n) for k, s, n in ours) == sorted(
        (str(k), round(s, 6), n) for k, s, n in theirs
    )


def test_bounds_by_row() -> None:
    question = parse(
        "SELECT WITH DIFFERENTIAL_PRIVACY AVG(weight, contribution_bounds_per_row => (-1.5, 200)) FROM visits", EXAMPLE
    )
    assert repr(question.measures[0].expression) == "least(greatest(weight, -1.5), 200)"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("SELECT ward, COUNT(*) FROM visits GROUP BY ward", ("A", "B", "C", None)),
        ("SELECT ward, COUNT(*) FROM visits WHERE ward <> 'B' GROUP BY ward", ("A", "C")),
        ("SELECT ward, COUNT(*) FROM visits WHERE ward IS NOT NULL AND age > 3 GROUP BY ward", ("A", "B", "C")),
        ("SELECT age, COUNT(*) FROM visits WHERE age < 3 GROUP BY age", (0, 1, 2)),
        ("SELECT diagnosis, COUNT(*) FROM visits GROUP BY diagnosis", None),
        ("SELECT diagnosis, COUNT(*) FROM visits WHERE diagnosis = 'flu' OR age > 1 GROUP BY diagnosis", None),
        ("SELECT d, COUNT(*) FROM (SELECT diagnosis AS d FROM visits WHERE diagnosis IN ('b', 'a')) GROUP BY d", ("a", "b")),
        ("SELECT age > 60, COUNT(*) FROM visits GROUP BY 1", (False, True, None)),
        ("SELECT MONTH(visited), COUNT(*) FROM visits GROUP BY 1", (*range(1, 13), None)),
        ("SELECT YEAR(visited), COUNT(*) FROM visits GROUP BY 1", None),
        ("SELECT city, COUNT(*) FROM visits JOIN wards USING (ward) GROUP BY city", ("Ghent", "Lyon", None)),
    ],
)  # fmt: skip
def test_which_keys_are_public(text: str, values: tuple[Any, ...] | None) -> None:
    assert parse(text, EXAMPLE).keys[0].values == values


@pytest.mark.parametrize(
    ("one", "two", "disjoint"),
    [
        ("ward = 'A'", "ward = 'B'", True),
        ("ward IN ('A', 'C')", "ward IN ('B')", True),
        ("ward IN ('A', 'C')", "ward IN ('C', 'B')", False),
        ("age < 10", "age >= 10", True),
        ("age <= 10", "age >= 10", False),
        ("10 > age", "NOT age < 10 AND age IS NOT NULL AND age > 9", True),
        ("10 > age", "age * 1 >= 10", False),  # not proved, so not believed
        ("age < 10", "age BETWEEN 10 AND 20", True),
        ("age IS NULL", "age >= 10", True),
        ("age IS NULL", "ward = 'A'", False),
        ("age IS NULL", "age IS NULL AND ward = 'A'", False),
        ("age IS NULL AND cost < 1", "age IS NULL AND cost < 2", False),
        ("age < 10.5", "age > 10.5", False),  # integers compared with reals are rounded first
        ("cost < 10", "cost >= 10 AND age > 3", True),
        ("age % 2 = 0", "age % 2 = 1", True),
        ("visited < '2024-01-01'", "visited >= DATE '2024-01-01'", True),
        ("ward = 'A' AND age < 10", "ward = 'A' AND age >= 10", True),
        ("ward = 'A' OR age < 10", "ward = 'B'", False),
        ("TRUE", "ward = 'B'", False),
    ],
)  # fmt: skip
def test_disjoint_parts_are_recognised(one: str, two: str, disjoint: bool) -> None:
    text = f"SELECT COUNT(*) FROM (SELECT age FROM visits WHERE {one} UNION ALL SELECT age + 1 FROM visits WHERE {two})"
    relation = parse(text, EXAMPLE).relation
    assert isinstance(relation, Union)
    assert relation.disjoint is disjoint
    assert relation.rows == (20 if disjoint else 40)


@pytest.mark.parametrize(("other", "rows"), [("SUM(age)", 2), ("COUNT(*)", 1)])
def test_what_is_called_alike_need_not_be_alike(other: str, rows: int) -> None:
    """Both parts speak of n, but if n is two different numbers, a person can be in both."""
    first = "SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY 1 HAVING COUNT(*) < 3"
    second = f"SELECT patient_id, {other} AS n FROM visits GROUP BY 1 HAVING {other} >= 3"
    assert parse(f"SELECT SUM(n) FROM ({first} UNION ALL {second})", EXAMPLE).relation.rows == rows


def test_names_of_a_frame_need_not_be_alike_either() -> None:
    visits = Frame.of("visits", EXAMPLE)
    few, many = visits.per_person(n=ask.count()), visits.per_person(n=ask.sum("age"))
    assert few.filter(col("n") < 3).union(many.filter(col("n") >= 3)).relation.rows == 2
    assert few.filter(col("n") < 3).union(few.filter(col("n") >= 3)).relation.rows == 1
    joined = visits.join(visits)
    swapped = joined.select(age=col("age_2"), age_2=col("age"))
    assert (
        joined.select("age", "age_2").filter(col("age") < 3).union(swapped.filter(col("age") >= 3)).relation.rows == 800
    )


def test_parts_of_two_tables_are_not_disjoint() -> None:
    text = "SELECT COUNT(*) FROM (SELECT age FROM visits WHERE age < 3 UNION ALL SELECT days FROM stays WHERE days > 3)"
    assert parse(text, EXAMPLE).relation.rows == 25


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT COUNT(*) FROM visits", 20),
        ("SELECT COUNT(*) FROM visits JOIN wards USING (ward)", 20),
        ("SELECT COUNT(*) FROM visits JOIN wards ON visits.diagnosis = wards.city", 800),
        ("SELECT COUNT(*) FROM visits JOIN wards ON visits.diagnosis = wards.city AND visits.ward = wards.ward", 20),
        ("SELECT COUNT(*) FROM visits JOIN stays USING (patient_id)", 100),
        ("SELECT COUNT(*) FROM visits WHERE patient_id IN (SELECT patient_id FROM stays)", 20),
        ("SELECT COUNT(*) FROM (SELECT patient_id, COUNT(*) FROM visits GROUP BY 1)", 1),
        ("SELECT COUNT(*) FROM (SELECT patient_id, ward, COUNT(*) FROM visits GROUP BY 1, 2)", 20),
    ],
)  # fmt: skip
def test_most_rows_of_a_person(text: str, rows: int) -> None:
    assert parse(text, EXAMPLE).relation.rows == rows


def test_rows_that_are_their_own_person() -> None:
    tables = {"t": Table.of("t", Unit.row(), x=Domain.integer(0, 9))}
    assert parse("SELECT SUM(x) FROM t", tables).relation.rows == 1
    for text in (
        "SELECT COUNT(*) FROM t a JOIN t b USING (x)",
        "SELECT COUNT(DISTINCT x) FROM (SELECT DISTINCT x FROM t)",
    ):
        with pytest.raises(QuestionRefused):
            parse(text, tables)


def test_measures_that_mean_the_same_are_asked_once() -> None:
    question = parse("SELECT COUNT(*) AS n, COUNT(*) * 2 AS m, COUNT(1) FROM visits HAVING COUNT(*) > 3", EXAMPLE)
    assert [measure.name for measure in question.measures] == ["n"]
    assert question.names == ("n", "m", "n_2")


def test_names_are_kept() -> None:
    question = parse(
        "SELECT v.ward, MAX(age), AVG(cost) AS c, SUM(age) + 1 FROM visits v JOIN wards w ON v.ward = w.ward GROUP BY 1",
        EXAMPLE,
    )
    assert question.names == ("ward", "max", "c", "column_4")
    assert question.keys[0].name == "ward"
    assert question.post.columns[0][1].name == "ward"  # type: ignore[attr-defined]
    assert isinstance(question.post.columns[2][1], Column)
