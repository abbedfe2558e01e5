"""Copies in which rows know their places: the same integers as without them, and made only when they pay."""

from __future__ import annotations

import random
import threading
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
        if isinstance(engine, DuckDBEngine):
            engine.settle()


def test_copies_are_made_after_the_questions_that_asked_for_them_and_never_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with DuckDBEngine(threads=1) as engine:
        table = engine.register("t", source(), TABLE, SECRET)
        people, bound = by(Source(table), "key"), by(Bound(Source(table), (col("n"),), 2, 1), "n")
        engine.lock()
        run, sent = duckdb_engine._guarded, []

        def noted(connection: Any, sql: str, otherwise: str) -> list[tuple[Any, ...]]:
            sent.append((threading.current_thread() is threading.main_thread(), sql))
            return run(connection, sql, otherwise)

        def made_by(asked: Collect) -> list[str]:
            sent.clear()
            engine.collect(asked)
            engine.settle()
            assert [sql for inside, sql in sent if inside and sql.startswith("CREATE")] == []
            return [sql.split(" AS ")[0].rpartition(".")[2] for inside, sql in sent if not inside]

        monkeypatch.setattr(duckdb_engine, "_guarded", noted)
        assert made_by(people) == []  # a copy pays off from the second question on
        assert made_by(people) == ['"t0_by_c0_key people"']
        assert sorted(made_by(bound)) == ['"t0_by_c1_n"', '"t0_by_rank"']  # as dear as the question itself
        for asked in (people, bound):
            assert made_by(asked) == []
            [(_, sql)] = sent
            assert "OVER" not in sql
            assert "stored_place" in sql


def test_an_engine_is_closed_while_it_makes_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread is left that works on, and no copy is begun after the first one was stopped."""
    engine = DuckDBEngine(threads=1)
    table = engine.register("t", source(), TABLE, SECRET)
    run, begun = duckdb_engine._guarded, []

    def slow(connection: Any, sql: str, otherwise: str) -> list[tuple[Any, ...]]:
        if sql.startswith("CREATE"):
            begun.append(sql)
            return run(connection, "SELECT count(*) FROM range(1000000000000)", otherwise)
        return run(connection, sql, otherwise)

    monkeypatch.setattr(duckdb_engine, "_guarded", slow)
    engine.collect(by(Bound(Source(table), (col("n"),), 2, 1), "n"))
    engine.close()
    assert len(begun) <= 1
    assert engine._copies._thread is None


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
        assert not any("MD5" in text.upper() for text in first)
        for _ in range(3):
            for each in asked:
                engine.collect(each)
            engine.settle()
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
        for _ in range(3):
            assert engine.collect(asked) == expected
            engine.settle()
        assert len(tried) == 2  # the copy with ranks and the one with positions, each once
