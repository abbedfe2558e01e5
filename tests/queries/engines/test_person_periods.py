"""A person's day or week as the unit: one such period moves no answer by more than its rows, on every engine."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import deniable as dn
from deniable.errors import InvalidParameter, LedgerMismatch, QuestionRefused, UnreadableRecord
from deniable.ledger.entries import Heading
from deniable.queries.frame.frame_aggregates import count, count_persons
from deniable.queries.relations.exact_statistics import Collect, Count
from deniable.queries.relations.relation_nodes import Source
from deniable.tables.expressions import col
from deniable.tables.kinds import Domain, Kind
from deniable.tables.schema import Table, read_schema, write_schema
from deniable.units import Unit
from tests.queries.engines.kitchen import SECRET, Kitchen
from tests.wording import worded

pa = pytest.importorskip("pyarrow")

MONDAY = dt.date(2026, 11, 16)
Row = tuple[Any, Any, str]


def unit_of(period: str, rows: int) -> Unit:
    return {"day": Unit.person_day, "week": Unit.person_week}[period]("who", "at", rows=rows)


def table(period: str, rows: int, kind: Kind, ids: Domain) -> Table:
    when = Domain.date(MONDAY, MONDAY + dt.timedelta(3)) if kind is Kind.DATE else Domain(Kind.TIMESTAMP)
    return Table.of("t", unit_of(period, rows), who=ids, at=when, key=Domain.text("a", "b", "c"))


def drawn(seed: int, kind: Kind, *, texts: bool) -> list[Row]:
    """Few people, more days than the bounds of the column, and ids that could be confused if they were glued together."""
    chance, found = random.Random(seed), []
    for _ in range(60):
        who: Any = chance.choice(["1", "11", "p1", "1p1", " 1", None]) if texts else chance.choice([1, 11, -1, None])
        at: Any = MONDAY + dt.timedelta(chance.randrange(-2, 12))
        if kind is Kind.TIMESTAMP:
            at = dt.datetime.combine(at, dt.time(chance.choice([0, 23]), chance.choice([0, 59])))
        found.append((who, None if chance.random() < 0.05 else at, chance.choice("abc")))
    return found


def start_of(row: Row, period: str) -> tuple[Any, dt.date]:
    day = row[1].date() if isinstance(row[1], dt.datetime) else row[1]
    return row[0], day if period == "day" else day - dt.timedelta(day.weekday())


def counted(kitchen: Kitchen, rows: list[Row], made: Table, texts: bool) -> Counter[str]:
    kinds = {Kind.DATE: pa.date32(), Kind.TIMESTAMP: pa.timestamp("us")}
    columns = {
        "who": pa.array([row[0] for row in rows], pa.string() if texts else pa.int64()),
        "at": pa.array([row[1] for row in rows], kinds[made.column("at").kind]),
        "key": pa.array([row[2] for row in rows], pa.string()),
    }
    engine = kitchen.engine()
    known = engine.register("t", kitchen.source(pa.table(columns)), made, SECRET)
    found = engine.collect(Collect(Source(known), (("key", col("key")),), None, (Count(),)))
    return Counter({str(group[0]): int(numbers[0]) for group, numbers in found.items()})  # type: ignore[arg-type]


@pytest.mark.parametrize("texts", [True, False], ids=["texts", "integers"])
@pytest.mark.parametrize("kind", [Kind.DATE, Kind.TIMESTAMP], ids=["date", "timestamp"])
@pytest.mark.parametrize("period", ["day", "week"])
def test_each_period_of_a_person_keeps_its_rows_and_moves_no_others(
    kitchen: Kitchen, period: str, kind: Kind, texts: bool
) -> None:
    """Against a count in Python; then every period of every person is removed in turn (all neighbours of the table)."""
    ids, most = Domain.text() if texts else Domain.integer(), 2
    made, rows = table(period, most, kind, ids), drawn(3 if texts else 4, kind, texts=texts)
    whole = counted(kitchen, rows, made, texts)
    there = [row for row in rows if row[0] is not None and row[1] is not None]
    sizes = Counter(start_of(row, period) for row in there)
    assert sum(whole.values()) == sum(min(most, size) for size in sizes.values())
    assert max(sizes.values()) > most  # otherwise nothing was cut
    people = Counter(who for who, _ in sizes)
    assert max(people.values()) > 1  # otherwise a unit of people would do the same
    for unit in list(sizes)[:: 1 if type(kitchen).__name__ == "DuckDBKitchen" else 9]:
        rest = [row for row in rows if row not in there or start_of(row, period) != unit]
        other = counted(kitchen, rest, made, texts)
        moved = sum(abs(whole[key] - other[key]) for key in {*whole, *other})
        assert moved == min(most, sizes[unit])


# -- what is asked ---------------------------------------------------------------------------------------------------

FRAME = pd.DataFrame(
    {
        "who": [f"p{i % 7}" for i in range(200)],
        "at": [MONDAY + dt.timedelta(i % 5) for i in range(200)],
        "key": ["a", "b"] * 100,
    }
)
SCHEMA = {"at": Domain.date(MONDAY, MONDAY + dt.timedelta(30)), "key": Domain.text("a", "b")}
DAILY = Unit.person_day("who", "at", rows=3)


def opened(unit: Unit = DAILY, **more: Any) -> dn.queries.Session:
    about = {"unit": unit, "budget": dn.Budget.pure(epsilon=10), "schema": {"t": SCHEMA, "u": SCHEMA}}
    return dn.session({"t": FRAME, "u": FRAME}, **about | more)


def test_noise_is_that_of_the_rows_of_a_day_and_the_promise_says_so() -> None:
    with opened() as daily, opened(Unit.person("who", rows=3)) as whole, opened(Unit.person("who", rows=15)) as long:
        text = "SELECT key, COUNT(*) AS n FROM t GROUP BY key"
        errors = [each.price(text, epsilon=1).errors()["n"] for each in (daily, whole, long)]
        assert errors[0] == errors[1]
        assert errors[2] == pytest.approx(5 * errors[0], rel=0.02)
        answer = daily.sql(text, epsilon=1)
        assert answer.guarantee.unit == DAILY
        words = "the rows of one person on one day ('who', 'at', at most 3 rows) added or removed, not a whole person"
        assert words in answer.guarantee.describe()
        assert words in " ".join(daily.statement().text().split())


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(DISTINCT who) AS n FROM t",
        "SELECT COUNT(*) AS n FROM t WHERE who = 'p1'",
        "SELECT n, COUNT(*) AS m FROM (SELECT who, COUNT(*) AS n FROM t GROUP BY who) GROUP BY n",
        "SELECT COUNT(*) AS n FROM t JOIN u ON t.who = u.who",
        "SELECT COUNT(*) AS n FROM t JOIN u USING (who)",
        "SELECT COUNT(*) AS n FROM t WHERE who IN (SELECT who FROM u)",
        "SELECT COUNT(*) AS n FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.who = t.who)",
        "SELECT COUNT(*) AS n FROM (SELECT ROW_NUMBER() OVER (PARTITION BY who ORDER BY at) AS r FROM t) WHERE r = 1",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (privacy_unit_column = who) COUNT(*) AS n FROM t",
        "SELECT MAX(n) AS n FROM (SELECT who, at, COUNT(*) AS n FROM t GROUP BY who, at)",
    ],
)
def test_nothing_speaks_of_a_whole_person(text: str) -> None:
    with opened() as session, pytest.raises(QuestionRefused) as refused:
        session.price(text, epsilon=1)
    assert refused.value.code == "person"


def test_no_step_of_a_frame_speaks_of_a_whole_person() -> None:
    with opened() as session:
        t, u = session.table("t"), session.table("u")
        for step in (
            lambda: t.agg(n=count_persons()),
            lambda: t.per_person(n=count()),
            lambda: t.people_in(u),
            lambda: t.people_not_in(u),
        ):
            with pytest.raises(QuestionRefused) as refused:
                session.price(step(), epsilon=1)
            assert refused.value.code == "person"


def test_rows_of_two_tables_add_up() -> None:
    with opened() as session:
        one, both = (
            session.price(text, epsilon=1).errors()["n"]
            for text in (
                "SELECT COUNT(*) AS n FROM t",
                "SELECT COUNT(*) AS n FROM (SELECT key FROM t UNION ALL SELECT key FROM u)",
            )
        )
        assert both == pytest.approx(2 * one, rel=0.02)


def test_standing_questions_are_for_whole_people() -> None:
    with opened() as session, worded(InvalidParameter, parameter="table"):
        session.standing("daily", ["SELECT COUNT(*) AS n FROM t"], by="at", epsilon=1)


def test_a_ledger_of_days_is_not_one_of_people_or_weeks(tmp_path: Path) -> None:
    place = tmp_path / "ledger"
    opened(ledger=place, version="monday").close()
    with opened(ledger=place, version="tuesday") as session:
        assert session.versions == {"t": "tuesday", "u": "tuesday"}
        assert session.ledger.unit == DAILY
        session.ledger.verify()
    opened(
        Unit.person_day("who", "at", rows=7), ledger=place, version="tuesday"
    ).close()  # another bound, as for people
    for other in (Unit.person("who", rows=3), Unit.person_week("who", "at", rows=3)):
        with pytest.raises(LedgerMismatch):
            opened(other, ledger=place)
    with worded(InvalidParameter, parameter="unit"):
        opened({"t": DAILY, "u": Unit.person("who", rows=3)})  # type: ignore[arg-type]


def test_units_are_written_and_read() -> None:
    for unit in (DAILY, Unit.person_week("who", "at", rows=3), Unit.person("who", rows=2), Unit.replaced_row()):
        assert Unit.from_dict(unit.to_dict()) == unit
        assert eval(repr(unit), {"Unit": Unit}) == unit
        heading = Heading(dn.Budget.pure(epsilon=1), unit, "t", "0" * 32)
        assert Heading.read(heading.text()) == heading
    made = Table.of("t", DAILY, who=Domain.text(), **SCHEMA)
    for form in ("yaml", "toml", "json"):
        assert read_schema(write_schema({"t": made}, form=form))["t"].unit == DAILY
    assert not DAILY.is_alike(Unit.person("who", rows=3))
    assert not Unit.person_week("who", "at", rows=3).is_alike(DAILY)


@pytest.mark.parametrize(
    "wrong",
    [
        {"period": "month", "time": "at"},
        {"period": "day"},
        {"time": "at"},
        {"period": "day", "time": "who"},
        {"period": "day", "time": "at", "column": None, "rows": 1},
        {"period": "day", "time": "at", "relation": dn.units.Relation.REPLACE},
    ],
    ids=str,
)
def test_units_that_are_none(wrong: dict[str, Any]) -> None:
    given = {"relation": dn.units.Relation.ADD_REMOVE, "rows": 3, "column": "who"} | wrong
    with worded(InvalidParameter):
        Unit(given.pop("relation"), **given)


def test_the_column_of_times_is_declared() -> None:
    for column in (Domain.integer(), Domain.text()):
        with worded(InvalidParameter, parameter="time"):
            Table.of("t", DAILY, who=Domain.text(), at=column)
    text = "version: 1\ntables:\n  t:\n    person: who\n    rows: 3\n    per: day\n    columns: {at: {kind: date}}\n"
    with worded(UnreadableRecord):
        read_schema(text)
