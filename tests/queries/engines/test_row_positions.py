"""Copies in which rows know their places: the same integers as without them, and made only when they pay."""

from __future__ import annotations

import random
from typing import Any

import pytest

from deniable.errors import EngineFailed
from deniable.queries.engines import duckdb as duckdb_engine
from deniable.queries.engines.duckdb import DuckDBEngine
from deniable.queries.relations.exact_statistics import Collect, Count, CountPersons
from deniable.queries.relations.relation_nodes import Bound, FilterRows, Project, RelationNode, Source
from deniable.tables.expressions import col
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table
from deniable.units import Unit
from tests.queries.engines import evaluate
from tests.queries.engines.kitchen import SECRET, Kitchen

pa = pytest.importorskip("pyarrow")

TABLE = Table.of("t", Unit.person("who", rows=6), key=Domain.text(), n=Domain.integer(0, 9))
NUMBERS = random.Random(11)
ROWS: list[dict[str, Any]] = [
    {"who": f"p{int(12 * NUMBERS.random() ** 2)}", "key": NUMBERS.choice(["a", "b", "c", "", None]), "n": i % 10}
    for i in range(150)
]
STATISTICS = (Count(), CountPersons(), CountPersons(col("n")))


def source() -> Any:
    return pa.table({name: pa.array([row[name] for row in ROWS]) for name in ("who", "key", "n")})


def by(relation: RelationNode, name: str, known: tuple[tuple[str], ...] | None = None) -> Collect:
    return Collect(relation, ((name, col(name)),), known, STATISTICS)


def questions(table: Table) -> list[Collect]:
    whole = Source(table)
    few = Source(Table.of("t", Unit.person("who", rows=4), key=Domain.text(), n=Domain.integer(0, 9)))
    renamed = Project(whole, (("other", col("key")), ("n", col("n"))))
    return [
        by(whole, "key"),
        by(whole, "key", (("a",), ("c",), ("z",))),
        by(few, "key"),
        by(renamed, "other"),
        by(FilterRows(whole, col("n") > 4), "key"),
        by(Bound(whole, (col("key"),), 2, 1), "key"),
        by(Bound(few, (col("key"),), 2, 2), "n"),
        by(Bound(renamed, (col("other"),), 1, 3), "other"),
        by(Bound(FilterRows(whole, col("n") > 4), (col("key"),), 2, 1), "key"),
        by(Bound(Bound(whole, (col("key"),), 3, 2), (col("n"),), 2, 1), "n"),
        by(Bound(whole, (col("key"), col("n")), 2, 1), "key"),
    ]


def test_every_question_has_the_same_answer_each_time_it_is_asked(kitchen: Kitchen) -> None:
    engine = kitchen.engine()
    table = engine.register("t", kitchen.source(source()), TABLE, SECRET)
    stored = {"t": evaluate.registered(TABLE, ROWS, SECRET)}
    for _ in range(3 if isinstance(engine, DuckDBEngine) else 1):  # others have no copies, and Spark takes its time
        for asked in questions(table):
            assert engine.collect(asked) == evaluate.collected(asked, stored)


def test_a_copy_is_made_for_a_bound_at_once_and_for_people_when_they_are_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with DuckDBEngine(threads=1) as engine:
        table = engine.register("t", source(), TABLE, SECRET)
        people, bound = by(Source(table), "key"), by(Bound(Source(table), (col("n"),), 2, 1), "n")
        engine.lock()
        run, sent = duckdb_engine._guarded, []

        def noted(connection: Any, sql: str, otherwise: str) -> list[tuple[Any, ...]]:
            sent.append(sql)
            return run(connection, sql, otherwise)

        monkeypatch.setattr(duckdb_engine, "_guarded", noted)
        engine.collect(people)
        assert not any(sql.startswith("CREATE") for sql in sent)
        for asked in (people, bound):
            sent.clear()
            engine.collect(asked)
            assert [sql.startswith("CREATE") for sql in sent] == [True, False]
        for asked in (people, bound):
            sent.clear()
            engine.collect(asked)
            [sql] = sent
            assert "OVER" not in sql
            assert "stored_place" in sql


@pytest.mark.parametrize("room", [True, False])
def test_what_is_shown_to_be_run_tells_nothing_of_earlier_questions_or_of_room(
    monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    """Whoever may ask for a plan would see what others asked, and how large the table is."""
    with DuckDBEngine(threads=1) as engine:
        table = engine.register("t", source(), TABLE, SECRET)
        run = duckdb_engine._guarded

        def full(connection: Any, sql: str, otherwise: str) -> list[tuple[Any, ...]]:
            if sql.startswith("CREATE") and not room:
                raise EngineFailed("space")
            return run(connection, sql, otherwise)

        monkeypatch.setattr(duckdb_engine, "_guarded", full)
        asked = questions(table)
        first = [engine.sql(each) for each in asked]
        assert any("CREATE TABLE" in text for text in first)
        for _ in range(3):
            for each in asked:
                engine.collect(each)
            assert [engine.sql(each) for each in asked] == first


def test_without_room_for_a_copy_questions_are_answered_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with DuckDBEngine(threads=1) as engine:
        table = engine.register("t", source(), TABLE, SECRET)
        asked = by(Bound(Source(table), (col("key"),), 2, 1), "key")
        run, tried = duckdb_engine._guarded, []

        def full(connection: Any, sql: str, otherwise: str) -> list[tuple[Any, ...]]:
            if sql.startswith("CREATE"):
                tried.append(sql)
                raise EngineFailed("space")
            return run(connection, sql, otherwise)

        monkeypatch.setattr(duckdb_engine, "_guarded", full)
        expected = evaluate.collected(asked, {"t": evaluate.registered(TABLE, ROWS, SECRET)})
        assert [engine.collect(asked) for _ in range(3)] == [expected] * 3
        assert len(tried) == 1
