"""A person's day has one id in all tables, one budget, and is refused where whole people are clipped."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pandas as pd
import pytest

import deniable as dn
from deniable import learn
from deniable.errors import InvalidParameter, LedgerMismatch, QuestionRefused
from deniable.learn.plans import unit_changes
from deniable.queries.engines.duckdb import DuckDBEngine
from deniable.queries.plan.noise_planner import plan
from deniable.queries.sql.sql_reader import parse
from deniable.tables.kinds import Domain, Kind
from deniable.tables.schema import Table
from deniable.units import Relation, Unit
from tests.wording import worded

SECRET = b"x" * 32
DAY = Unit.person_day("who", "at", rows=3)
YEAR = Domain.date(dt.date(2026, 1, 1), dt.date(2026, 12, 31))
BOUNDED = """SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 1, max_rows_per_group = 1) key,
    COUNT(*) AS n FROM (SELECT key FROM t UNION ALL SELECT key FROM u) GROUP BY key"""


def test_a_day_has_one_id_in_tables_of_dates_and_of_timestamps() -> None:
    """The ids were '2026-11-16p…' and '2026-11-16 00:00:00p…', and a bound over both tables counted them twice."""
    dates = Table.of("t", DAY, who=Domain.text(), at=YEAR, key=Domain.text("a", "b"))
    times = Table.of("u", DAY, who=Domain.text(), at=Domain(Kind.TIMESTAMP), key=Domain.text("a", "b"))
    t = pd.DataFrame({"who": ["p"] * 3, "at": [dt.date(2026, 11, 16)] * 3, "key": ["a"] * 3})
    u = pd.DataFrame({"who": ["p"] * 3, "at": [dt.datetime(2026, 11, 16, 9)] * 3, "key": ["a"] * 3})
    with DuckDBEngine(threads=1) as engine:
        known = {"t": engine.register("t", t, dates, SECRET), "u": engine.register("u", u, times, SECRET)}
        asked = plan(parse(BOUNDED, known)).collect
        [moves] = asked.moves(Relation.ADD_REMOVE)
        assert moves.l1 == 1
        assert sum(int(numbers[0]) for numbers in engine.collect(asked).values()) == 1  # type: ignore[arg-type]


def test_ids_of_two_kinds_are_refused_for_days_as_for_people() -> None:
    """As a text, the integer 1 is not the text '01', which is the same person elsewhere."""
    for unit in (DAY, Unit.person("who", rows=3)):
        whole = Table.of("t", unit, who=Domain.integer(), at=YEAR)
        texts = Table.of("u", unit, who=Domain.text(), at=YEAR)
        with DuckDBEngine(threads=1) as engine:
            engine.register("t", pd.DataFrame({"who": [1], "at": [dt.date(2026, 1, 2)]}), whole, SECRET)
            with pytest.raises(InvalidParameter, match="another kind"):
                engine.register("u", pd.DataFrame({"who": ["01"], "at": [dt.date(2026, 1, 2)]}), texts, SECRET)


def test_a_ledger_of_days_keeps_its_column_of_time(tmp_path: Path) -> None:
    """By another column, the rows of one day would be spread over many days, each with the whole budget."""
    rows = pd.DataFrame({"who": [1] * 20, "at": [dt.date(2026, 1, 1)] * 20,
                         "made": [dt.date(2026, 1, 1) + dt.timedelta(day) for day in range(20)]})  # fmt: skip
    about = {
        "ledger": str(tmp_path / "ledger"),
        "budget": dn.Budget.pure(epsilon=1),
        "schema": {"at": YEAR, "made": YEAR},
    }
    dn.session({"t": rows}, unit=DAY, **about).close()
    dn.session({"t": rows}, unit=DAY, **about).close()
    with pytest.raises(LedgerMismatch):
        dn.session({"t": rows}, unit=Unit.person_day("who", "made", rows=3), **about)


def test_values_gathered_per_person_are_refused_for_days() -> None:
    """They would be gathered per day, without a word. `owned=` columns stand for the person in a sub-query."""
    made = Table.of("t", DAY, who=Domain.text(), at=YEAR, o=Domain.text())
    owned = Table(made.name, made.columns, made.unit, owned=("o",))
    with worded(QuestionRefused, code="person"):
        parse("SELECT COUNT(*) FROM (SELECT o, COUNT(*) AS n FROM t GROUP BY o)", {"t": owned})


def test_training_clips_people_so_it_takes_no_days() -> None:
    with pytest.raises(InvalidParameter, match="whole person"):
        learn.DPSGD(clip=1.0, rate=0.5, steps=1, noise=1.0, unit=DAY)
    people = Unit.person("who", rows=9)
    assert unit_changes(people, DAY) == 2  # the person leaves, and returns without that day
    assert unit_changes(Unit.row(), DAY) == 3
    assert unit_changes(people, people) == 1
