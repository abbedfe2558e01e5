"""A text in another dialect has the values that the other database computes itself, row by row, or is refused."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import deniable as dn
from deniable.errors import InvalidParameter, QuestionRefused
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.relations.operators import evaluate
from deniable.queries.sql.named_dialects import InDialect, in_dialect
from deniable.queries.sql.sql_reader import parse
from deniable.tables.kinds import Domain
from deniable.tables.schema import Schema, Table
from deniable.units import Unit
from tests.postgres import Postgres, postgres  # noqa: F401  # a fixture
from tests.wording import worded

duckdb = pytest.importorskip("duckdb")

TABLES: Schema = {
    "rows": Table.of(
        "rows", Unit.person("who", rows=1), a=Domain.integer(-20, 20), b=Domain.integer(1, 5), c=Domain.text(),
        d=Domain.date(), t=Domain.timestamp(),
    ),
}  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {"a": -7, "b": 2, "c": "x-1-y", "d": dt.date(2024, 2, 29), "t": dt.datetime(2024, 2, 29, 23, 59, 59)},
    {"a": 7, "b": 2, "c": "X-2", "d": dt.date(2023, 12, 31), "t": dt.datetime(2024, 1, 1, 0, 0, 1)},
    {"a": 0, "b": 5, "c": "xx", "d": dt.date(2024, 1, 31), "t": dt.datetime(2023, 3, 26, 1, 30)},
    {"a": 12, "b": 3, "c": "", "d": dt.date(2021, 1, 3), "t": dt.datetime(2022, 10, 30, 0, 30)},
    {"a": None, "b": 4, "c": None, "d": None, "t": None},
]
SPARK = [
    "DATE_FORMAT(d, 'yyyy-MM')", "DATE_FORMAT(t, 'HH:mm')", "DATE_FORMAT(d, 'yyyy')", "WEEKDAY(d)", "TRUNC(d, 'MM')",
    "DAYOFWEEK(d)", "EXTRACT(DAYOFWEEK FROM d)", "EXTRACT(DOW FROM t)", "DATE_TRUNC('WEEK', t)",
    "TRUNC(d, 'YEAR')", "TRUNC(d, 'QUARTER')", "TRUNC(d, 'WEEK')", "DATE_SUB(d, 30)", "DATE_ADD(d, 3)",
    "ADD_MONTHS(d, -3)", "LAST_DAY(d)", "a DIV b", "LN(b)", "LOG(b)", "LOG10(b)", "INSTR(c, '-')",
    "SUBSTRING_INDEX(c, '-', 1)", "DATEDIFF(DATE '2024-03-01', d)", "TIMESTAMPDIFF(HOUR, t, TIMESTAMP '2024-01-02 00:00:00')",
    "DATEDIFF(HOUR, t, TIMESTAMP '2024-01-02 00:00:00')", "REGEXP_EXTRACT(c, '^(x+)(-)')", "c RLIKE '^x'", "NVL2(a, 1, 0)", "a <=> 7",
    "DATE_TRUNC('MM', t)", "WEEKOFYEAR(d)", "EXTRACT(HOUR FROM t)", "DECODE(c, 'xx', 'two', 'X-2', 'three', 'other')", "IF(a > 3, 1, 0)",
]  # fmt: skip
POSTGRES = [
    "TO_CHAR(d, 'YYYY-MM')", "TO_CHAR(t, 'HH24:MI:SS')", "TO_CHAR(d, 'YYYY')", "DATE '2024-03-01' - d", "d - 30", "d + 30", "30 + d",
    "LOG(b)", "LOG(10, b)", "DIV(a, b)", "DATE_PART('dow', d)", "EXTRACT(ISODOW FROM d)", "EXTRACT(WEEK FROM d)", "DATE_TRUNC('month', t)",
    "EXTRACT(EPOCH FROM t)", "c ~ '^x'", "c !~ '^x'", "SPLIT_PART(c, '-', 2)", "SUBSTRING(c FROM 1 FOR 2)", "POSITION('-' IN c)",
    "a IS NOT DISTINCT FROM 7", "a IS DISTINCT FROM NULL", "LEFT(c, 1)", "CAST(a / 3.0 AS NUMERIC(10, 1))", "d >= DATE '2024-03-01' - 60",
]  # fmt: skip
DUCKDB = [
    "d - DATE '2023-01-01'", "DATE '2023-01-01' - d", "d - 30", "30 + d", "LAST_DAY(d)", "LAST_DAY(t)", "a IS NOT DISTINCT FROM 7",
    *(f"EXTRACT({part} FROM {date})" for part in ("MILLENNIUM", "CENTURY", "DECADE", "YEARWEEK", "ISOYEAR") for date in "dt"),
    "EXTRACT(MILLISECOND FROM t)", "EXTRACT(MICROSECOND FROM t)",
    *(f"DATE_DIFF('{unit}', {ends})" for unit in ("week", "decade", "century", "millennium", "millisecond")
      for ends in ("d, DATE '2024-05-05'", "DATE '1969-12-31', d", "t, TIMESTAMP '2000-01-01 00:00:01'")),
    "CAST(a / 3 AS DECIMAL(10, 1))", "CAST(a / 3 AS DECIMAL(9))", "d > DATE '2024-03-01' - 60", "a IS DISTINCT FROM NULL",
]  # fmt: skip


def ours(form: str, dialect: str) -> list[Any]:
    question = parse(in_dialect(f"SELECT COUNT(*) FROM rows WHERE ({form}) IS NULL", dialect), TABLES)
    [value] = question.relation.condition.arguments  # type: ignore[attr-defined]  # the relation is a filter
    return [evaluate(value, row, question.relation.columns) for row in ROWS]


def same(form: str, dialect: str, theirs: list[Any]) -> None:
    for mine, other in zip(ours(form, dialect), theirs, strict=True):
        if isinstance(other, dt.datetime) and other.time() == dt.time() and not isinstance(mine, dt.datetime):
            other = other.date()
        if isinstance(mine, float) and other is not None:
            assert mine == pytest.approx(float(other)), form
        else:
            assert mine == other, form


def in_duckdb(form: str) -> list[Any]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE rows (a BIGINT, b BIGINT, c VARCHAR, d DATE, t TIMESTAMP)")
        connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", [list(row.values()) for row in ROWS])
        return [value for (value,) in connection.execute(f"SELECT {form} FROM rows").fetchall()]


@pytest.mark.parametrize("form", DUCKDB)
def test_the_values_are_those_of_duckdb(form: str) -> None:
    same(form, "duckdb", in_duckdb(form))


@pytest.mark.spark
def test_the_values_are_those_of_spark(spark: Any) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        frame = spark.createDataFrame(
            [tuple(row.values()) for row in ROWS], "a BIGINT, b BIGINT, c STRING, d DATE, t TIMESTAMP_NTZ"
        )
        frame.createOrReplaceTempView("meant")
        listed = ", ".join(f"{form} AS v{k}" for k, form in enumerate(SPARK))
        found = spark.sql(f"SELECT {listed} FROM meant").collect()
        for k, form in enumerate(SPARK):
            same(form, "spark", [row[k] for row in found])
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.postgres
def test_the_values_are_those_of_postgres(postgres: Postgres) -> None:  # noqa: F811
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres.database()) as connection:
        connection.execute("CREATE TABLE rows (a BIGINT, b BIGINT, c TEXT, d DATE, t TIMESTAMP)")
        for row in ROWS:
            connection.execute("INSERT INTO rows VALUES (%s, %s, %s, %s, %s)", list(row.values()))
        for form in POSTGRES:
            found = connection.execute(f"SELECT {form} FROM rows").fetchall()
            same(form, "postgres", [value for (value,) in found])


SAME = [
    ("bigquery", "SELECT APPROX_QUANTILES(cost, 100)[OFFSET(90)] AS q FROM visits", "SELECT QUANTILE(cost, 0.9) AS q FROM visits"),
    ("bigquery", "SELECT APPROX_QUANTILES(cost, 4)[ORDINAL(2)] AS q FROM visits", "SELECT QUANTILE(cost, 0.25) AS q FROM visits"),
    ("bigquery", "SELECT SPLIT(diagnosis, '-')[OFFSET(0)] AS k, COUNT(*) FROM visits GROUP BY k",
     "SELECT SPLIT_PART(diagnosis, '-', 1) AS k, COUNT(*) FROM visits GROUP BY k"),
    ("bigquery", "SELECT FORMAT_DATE('%Y-%m', visited) AS k, COUNT(*) FROM visits GROUP BY k",
     "SELECT STRFTIME(DATE(visited), '%Y-%m') AS k, COUNT(*) FROM visits GROUP BY k"),
    ("bigquery", "SELECT EXTRACT(DATE FROM visited) AS k, COUNT(*) FROM visits GROUP BY k",
     "SELECT CAST(visited AS DATE) AS k, COUNT(*) FROM visits GROUP BY k"),
    ("bigquery", r"SELECT COUNT(*) FROM visits WHERE REGEXP_CONTAINS(diagnosis, r'^x\d')",
     r"SELECT COUNT(*) FROM visits WHERE REGEXP_MATCHES(diagnosis, '^x\d')"),
    ("bigquery", "SELECT COUNT(*) FROM visits WHERE DATETIME_DIFF(DATETIME '2024-12-31', visited, DAY) > 3",
     "SELECT COUNT(*) FROM visits WHERE DATE_DIFF('day', visited, TIMESTAMP '2024-12-31') > 3"),
    ("bigquery", "SELECT EXTRACT(HOUR FROM CAST(visited AS DATETIME) AT TIME ZONE 'Asia/Tokyo') AS k, COUNT(*) FROM visits GROUP BY k",
     "SELECT HOUR(CAST(visited AS TIMESTAMP) AT TIME ZONE 'UTC' AT TIME ZONE 'Asia/Tokyo') AS k, COUNT(*) FROM visits GROUP BY k"),
    ("snowflake", "SELECT TO_CHAR(visited, 'YYYY-MM') AS k, COUNT_IF(age > 3) FROM visits GROUP BY k",
     "SELECT STRFTIME(visited, '%Y-%m') AS k, COUNT_IF(age > 3) FROM visits GROUP BY k"),
    ("snowflake", "SELECT COUNT(*) FROM visits WHERE REGEXP_LIKE(diagnosis, 'x[0-9]+')",
     "SELECT COUNT(*) FROM visits WHERE REGEXP_MATCHES(diagnosis, '^(x[0-9]+)$')"),
    ("snowflake", "SELECT COUNT(*) FROM visits WHERE CHARINDEX('-', diagnosis) = 2 AND DECODE(ward, 'A', 1, 'B', 2) = 1",
     "SELECT COUNT(*) FROM visits WHERE STRPOS(diagnosis, '-') = 2 AND CASE WHEN ward = 'A' THEN 1 WHEN ward = 'B' THEN 2 END = 1"),
    ("snowflake", "SELECT SUM(cost::NUMBER) FROM visits", "SELECT SUM(ROUND(CAST(cost AS DOUBLE))) FROM visits"),
    ("duckdb", "SELECT IFF(age > 60, 1, 0) AS k, COUNT(*) FROM visits GROUP BY k", "SELECT IF(age > 60, 1, 0) AS k, COUNT(*) FROM visits GROUP BY k"),
    ("duckdb", "SELECT TO_CHAR(visited, 'YYYY-MM') AS k, COUNT(*) FROM visits GROUP BY k",
     "SELECT STRFTIME(visited, '%Y-%m') AS k, COUNT(*) FROM visits GROUP BY k"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "theirs", "mine"), SAME)
def test_what_cannot_be_run_here_is_the_same_question_as_in_duckdb(dialect: str, theirs: str, mine: str) -> None:
    assert parse(in_dialect(theirs, dialect), EXAMPLE).hash == parse(mine, EXAMPLE).hash


WEEK = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")


@pytest.mark.parametrize("column", ["d", "t"])
@pytest.mark.parametrize(
    ("unit", "first"), [("WEEK", 6), ("ISOWEEK", 0), *((f"WEEK({day})", k) for k, day in enumerate(WEEK))]
)
def test_weeks_of_bigquery_begin_on_the_day_that_is_named(unit: str, first: int, column: str) -> None:
    """Sunday if none is; compared with the calendar of Python."""
    found = ours(f"{'DATE' if column == 'd' else 'TIMESTAMP'}_TRUNC({column}, {unit})", "bigquery")
    for start, row in zip(found, ROWS, strict=True):
        if row[column] is None:
            assert start is None
            continue
        day = row["d"] if column == "d" else row["t"].date()
        begins = day - dt.timedelta((day.weekday() - first) % 7)
        assert start == (begins if column == "d" else dt.datetime.combine(begins, dt.time()))


@pytest.mark.parametrize(
    ("dialect", "form", "first"),
    [("bigquery", "DATE_DIFF(DATE '2024-05-05', d, WEEK)", 6), ("bigquery", "DATE_DIFF(DATE '2024-05-05', d, ISOWEEK)", 0),
     ("bigquery", "DATETIME_DIFF(DATETIME '2024-05-05 12:00:00', t, WEEK(TUESDAY))", 1), ("snowflake", "DATEDIFF(week, d, DATE '2024-05-05')", 0)],
)  # fmt: skip
def test_weeks_between_dates_are_counted_by_their_starts(dialect: str, form: str, first: int) -> None:
    """DuckDB counts seven days as a week there; compared with the calendar of Python."""
    for found, row in zip(ours(form, dialect), ROWS, strict=True):
        day = row["t"] if "t," in form else row["d"]
        if day is None:
            assert found is None
            continue
        ends = (dt.date(day.year, day.month, day.day), dt.date(2024, 5, 5))
        early, late = (each - dt.timedelta((each.weekday() - first) % 7) for each in ends)
        assert found == (late - early).days // 7


def test_days_of_a_week_of_bigquery_begin_with_1_for_sunday() -> None:
    assert ours("EXTRACT(DAYOFWEEK FROM d)", "bigquery") == [5, 1, 4, 1, None]


REFUSED = [
    ("postgres", "SELECT TO_CHAR(visited, 'YYYYQ') AS k, COUNT(*) FROM visits GROUP BY k"),  # Q was kept as a letter
    ("spark", "SELECT DATE_FORMAT(visited, 'EEEE') AS k, COUNT(*) FROM visits GROUP BY k"),
    ("duckdb", "SELECT TO_CHAR(visited, 'Mon YYYY') AS k, COUNT(*) FROM visits GROUP BY k"),
    ("bigquery", r"SELECT COUNT(*) FROM visits WHERE diagnosis LIKE r'a\%'"),
    ("bigquery", "SELECT APPROX_QUANTILES(cost, 4)[OFFSET(5)] FROM visits"),
    ("bigquery", "SELECT SPLIT(diagnosis, '-')[OFFSET(1)] AS k, COUNT(*) FROM visits GROUP BY k"),
    ("snowflake", "SELECT COUNT(*) FROM visits WHERE ADD_MONTHS(visited, 1) > DATE '2024-01-01'"),
    ("snowflake", "SELECT COUNT(*) FROM visits WHERE DECODE(ward, NULL, 1, 'A', 2) = 1"),
    ("duckdb", "SELECT COUNT(*) FROM visits WHERE visited - age > DATE '2024-01-01'"),
    ("bigquery", "SELECT APPROX_QUANTILES(cost, 4) AS q FROM visits"),
]


@pytest.mark.parametrize(("dialect", "text"), REFUSED)
def test_what_has_no_equal_is_refused(dialect: str, text: str) -> None:
    with pytest.raises(QuestionRefused):
        parse(in_dialect(text, dialect), EXAMPLE)


def test_a_refusal_speaks_of_the_callers_text_in_its_dialect() -> None:
    text = "SELECT ward, COUNT(*) AS n FROM `visits` WHERE EXTRACT(WEEK FROM visited) = 1 AND age > 3 GROUP BY ward"
    with pytest.raises(QuestionRefused) as caught:
        parse(in_dialect(text, "bigquery"), EXAMPLE)
    start, end = caught.value.place or (0, 0)
    assert text[start:end].startswith("visited) = 1")
    assert parse(in_dialect(caught.value.instead, "bigquery"), EXAMPLE).names == ("ward", "n")
    assert "`ward`" in caught.value.instead or "dialect" not in caught.value.instead
    with pytest.raises(QuestionRefused) as named:
        parse(f"-- dialect: bigquery\n{text}", EXAMPLE)
    assert named.value.instead == f"-- dialect: bigquery\n{caught.value.instead}"


def test_the_dialect_is_an_argument_of_every_way_to_ask() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"who": ["a", "b", "c"], "age": [1, 2, 3]})
    text = "SELECT COUNTIF(age > 1) AS n FROM `people`"
    about = {"unit": Unit.person("who", rows=1), "schema": {"age": Domain.integer(0, 9)}}
    with dn.session({"people": frame}, budget=dn.Budget.pure(epsilon=10), **about) as s:
        first = s.sql(text, epsilon=1, dialect="bigquery")
        assert s.ask(text, epsilon=1, dialect="bigquery").receipt.replayed
        assert s.sql("SELECT COUNT_IF(age > 1) AS n FROM people", epsilon=1, dialect="duckdb").rows == first.rows
        assert (
            s.price(text, epsilon=1, dialect="bigquery").errors()
            == s.price("SELECT COUNT(*) AS n FROM people", epsilon=1).errors()
        )
        [again] = s.batch([text], epsilon=1, dialect="bigquery")
        assert again.rows == first.rows
        assert (
            s.price([text], epsilon=1, dialect="bigquery").cost
            == s.price_batch([text], epsilon=1, dialect="bigquery").cost
        )
        with worded(InvalidParameter, parameter="dialect"):
            s.sql(text, epsilon=1, dialect="oracle")
        with worded(InvalidParameter, parameter="dialect"):
            s.ask(s.table("people").agg(n=dn.count()), epsilon=1, dialect="spark")
        with worded(InvalidParameter, parameter="dialect"):
            s.sql(f"-- dialect: spark\n{text}", epsilon=1, dialect="bigquery")


def test_a_named_dialect_is_written_once() -> None:
    line = "-- dialect: spark\nSELECT 1"
    assert in_dialect("SELECT 1", "spark") == line
    assert in_dialect(line, "spark") == line
    assert in_dialect("SELECT 1", None) == in_dialect("SELECT 1", "duckdb") == "SELECT 1"
    made = in_dialect("SELECT 1", "spark")
    assert isinstance(made, InDialect)
    assert (made.own, made.added) == ("SELECT 1", len("-- dialect: spark\n"))
