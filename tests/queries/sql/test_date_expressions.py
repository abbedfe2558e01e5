"""Parts, distances, intervals and formats of dates are those of DuckDB's own functions, for moments of many centuries."""

from __future__ import annotations

import datetime as dt
import random
from types import SimpleNamespace
from typing import Any

import pytest

from deniable.errors import QuestionRefused
from deniable.ledger import Budget
from deniable.queries.answer.plan_cache import _DATED, Plans
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.relations.operators import evaluate
from deniable.queries.relations.relation_nodes import FilterRows
from deniable.queries.sql.named_dialects import DIALECTS
from deniable.queries.sql.sql_reader import parse
from deniable.tables.expressions import Call, Expression
from deniable.tables.kinds import Domain
from deniable.tables.schema import Schema, Table
from deniable.units import Unit

duckdb = pytest.importorskip("duckdb")
sqlglot = pytest.importorskip("sqlglot")
from sqlglot import exp  # noqa: E402

TABLES: Schema = {
    "moments": Table.of(
        "moments", Unit.person("who", rows=1), a=Domain.timestamp(), b=Domain.timestamp(), d=Domain.date()
    ),
    **EXAMPLE,
}
FORMS = [
    *(f"EXTRACT({part} FROM a)" for part in ("WEEK", "DOW", "ISODOW", "DOY", "MINUTE", "SECOND", "EPOCH", "ISOYEAR", "DECADE", "CENTURY")),
    *(f"EXTRACT({part} FROM d)" for part in ("WEEK", "DOW", "DOY", "EPOCH")),
    *(f"DATE_DIFF('{unit}', a, b)" for unit in ("year", "quarter", "month", "day", "hour", "minute", "second", "microsecond")),
    "DATE_DIFF('hour', d, b)",
    "EXTRACT(EPOCH FROM b - a)",
    *(f"DATE_TRUNC('{unit}', a)" for unit in ("hour", "minute", "second")),
    "a + INTERVAL 1 MONTH", "a - INTERVAL '13 months'", "a + INTERVAL '1 year 2 months'", "a + INTERVAL 36 HOUR", "d + INTERVAL 1 QUARTER",
    "STRFTIME(a, '%Y-%m')", "STRFTIME(a, '%d.%m.%Y %H:%M:%S')", "STRFTIME(d, '%Y')",
    "DATE_PART('dow', a)", "DAYOFWEEK(a)", "WEEKOFYEAR(a)", "DAYOFYEAR(d)", "CONCAT(YEAR(a), '-Q', QUARTER(a))",
]  # fmt: skip


def moments(count: int) -> list[tuple[dt.datetime, dt.datetime, dt.date]]:
    chance = random.Random(21)
    low, high = dt.datetime(1600, 1, 1), dt.datetime(2400, 1, 1)
    seconds = int((high - low).total_seconds())
    found = []
    for _ in range(count):
        a = low + dt.timedelta(seconds=chance.randrange(seconds), microseconds=chance.randrange(10**6))
        near = dt.timedelta(seconds=chance.choice([1, 60, 3600, 86_400, 10**7]) * chance.uniform(-3, 3))
        found.append((a, a + near, (a - near).date()))
    ends = [dt.datetime(2024, month, day, 23, 59, 59, 999_999) for month, day in ((1, 31), (2, 29), (12, 29), (12, 31))]
    return found + [(one, two, one.date()) for one in ends for two in ends]


def read(form: str) -> Expression:
    relation = parse(f"SELECT COUNT(*) FROM moments WHERE ({form}) IS NULL", TABLES).relation
    assert isinstance(relation, FilterRows)
    assert isinstance(relation.condition, Call)
    return relation.condition.arguments[0]


@pytest.mark.parametrize("form", FORMS)
def test_a_date_function_has_the_value_of_duckdb(form: str) -> None:
    rows = moments(120)
    ours = read(form)
    columns = dict(TABLES["moments"].columns)
    with duckdb.connect() as plain:
        plain.execute("CREATE TABLE m (k INTEGER, a TIMESTAMP, b TIMESTAMP, d DATE)")
        plain.executemany("INSERT INTO m VALUES (?, ?, ?, ?)", [(k, *row) for k, row in enumerate(rows)])
        theirs = [row[0] for row in plain.execute(f"SELECT {form} FROM m ORDER BY k").fetchall()]
    for (a, b, d), expected in zip(rows, theirs, strict=True):
        found: Any = evaluate(ours, {"a": a, "b": b, "d": d}, columns)
        if isinstance(expected, dt.datetime) and not isinstance(found, dt.datetime):
            expected = expected.date() if expected.time() == dt.time() else expected
        if isinstance(expected, float) and form != "EXTRACT(SECOND FROM a)":
            assert found == pytest.approx(expected, rel=1e-12, abs=1e-5), (form, a, b, d)
        else:
            assert found == (int(expected) if isinstance(expected, float) else expected), (form, a, b, d)


@pytest.mark.parametrize(
    ("unit", "seconds", "whole"), [("HOUR", 3599, 0), ("HOUR", -7201, -2), ("DAY", 86_400, 1), ("SECOND", 59, 59)]
)
def test_a_timestamp_diff_counts_whole_units(unit: str, seconds: int, whole: int) -> None:
    a = dt.datetime(2024, 5, 17, 23, 30)
    row = {"a": a, "b": a + dt.timedelta(seconds=seconds), "d": a.date()}
    ours = read(f"TIMESTAMP_DIFF(b, a, {unit})")
    assert evaluate(ours, row, dict(TABLES["moments"].columns)) == whole


def test_a_constant_date_moved_by_an_interval_is_a_constant() -> None:
    moved = parse("SELECT COUNT(*) FROM visits WHERE visited <= DATE '1998-12-01' - INTERVAL '90' DAY", EXAMPLE)
    assert moved.hash == parse("SELECT COUNT(*) FROM visits WHERE visited <= DATE '1998-09-02'", EXAMPLE).hash


class Midnight(dt.datetime):
    """A clock on which each reading is a day after the one before."""

    days = 0

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Midnight:
        cls.days += 1
        return cls(2024, 5, 16, tzinfo=tz) + dt.timedelta(days=cls.days)


def at_midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Midnight, "days", 0)
    monkeypatch.setattr("deniable.queries.sql.dialect.dt", SimpleNamespace(datetime=Midnight, UTC=dt.UTC))


@pytest.mark.parametrize("today", ["CURRENT_DATE", "current_date()", "today()", "today/**/()", '"today"()'])
def test_today_is_one_day_in_the_whole_question_also_at_midnight(today: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each place read the clock by itself: "visited between today and today" could be two days, or none."""
    text = (
        "SELECT ward, COUNT(*) FILTER (WHERE visited = {0}) AS n FROM (SELECT * FROM visits WHERE visited >= {0}) "
        "WHERE visited BETWEEN {0} - INTERVAL 1 DAY AND {0} GROUP BY ward"
    )
    at_midnight(monkeypatch)
    found = [parse(text.format(today), EXAMPLE).hash for _ in range(2)]
    assert found == [parse(text.format(f"DATE '2024-05-{day}'"), EXAMPLE).hash for day in (17, 18)]


@pytest.mark.parametrize(
    "text",
    ["visited < CURRENT_DATE", "visited < today()", "visited < today /* a */ ()", 'visited < "today"()', "visited < Current_Date()"],
)  # fmt: skip
def test_a_question_about_today_is_another_one_tomorrow(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of `today/**/()` was kept for its text, and answered for the first day for ever."""
    asked = f"SELECT COUNT(*) AS n FROM visits WHERE {text}"
    plans = Plans(EXAMPLE, Budget.pure(epsilon=1))
    at_midnight(monkeypatch)
    found = []
    for _ in range(2):
        built = plans.question(asked)
        found.append(plans.plan(asked, built).question.hash)
    assert found[0] != found[1]
    assert asked not in plans


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_name_of_today_is_known_to_whoever_keeps_plans(dialect: str) -> None:
    """CURDATE of Spark was not."""
    parser = sqlglot.Dialect.get_or_raise(dialect).parser_class
    names = [name for name, made in parser.FUNCTIONS.items() if getattr(made, "__self__", None) is exp.CurrentDate]
    names += [str(kind.name) for kind, made in parser.NO_PAREN_FUNCTIONS.items() if made is exp.CurrentDate]
    assert names
    assert [name for name in names if not _DATED.search(name)] == []


def test_decimals_are_added_as_decimals() -> None:
    added = parse("SELECT COUNT(*) FROM visits WHERE cost BETWEEN 0.06 - 0.01 AND 0.06 + 0.01", EXAMPLE)
    assert added.hash == parse("SELECT COUNT(*) FROM visits WHERE cost BETWEEN 0.05 AND 0.07", EXAMPLE).hash


@pytest.mark.parametrize(
    "form",
    ["visited + INTERVAL 'soon'", "visited + INTERVAL 1 FORTNIGHT", "STRFTIME(visited, '%B')", "EXTRACT(ERA FROM visited)",
     "DATE_DIFF('fortnight', visited, visited)", "DATE '9999-12-31' + INTERVAL 1 DAY", "visited + INTERVAL 99999999999999 DAY"],
)  # fmt: skip
def test_what_has_no_meaning_is_refused(form: str) -> None:
    with pytest.raises(QuestionRefused):
        parse(f"SELECT COUNT(*) FROM visits WHERE ({form}) IS NULL", EXAMPLE)
