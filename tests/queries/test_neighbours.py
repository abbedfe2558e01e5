"""Every operator of the grammar on neighbouring tables: what can be seen, noise apart, is the same, and holds no value."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pandas as pd
import pytest

from deniable.errors import DeniableError
from deniable.ledger import Ledger
from deniable.queries.engines.duckdb import DuckDBEngine
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.session import Session
from deniable.tables.kinds import Kind
from deniable.tables.schema import Table
from tests.queries.hospital import GAUSSIAN
from tests.queries.sql.test_fuzz import SHAPES, Grammar, of_the_grammar

CANARIES = ("ZEBRA", "9.87654321", "987654321")
ODD: dict[Kind, tuple[Any, ...]] = {
    Kind.INTEGER: (2**53 + 7731, -(2**53), 0),
    Kind.REAL: (9.87654321e37, float("nan"), float("-inf")),
    Kind.TEXT: ("ZEBRA-7731", "", "2024-02-30"),
    Kind.DATE: (dt.date(1, 1, 1), dt.date(9999, 12, 31), None),
    Kind.TIMESTAMP: (dt.datetime(1, 1, 1), None, None),
    Kind.BOOLEAN: (True, False, None),
}
PLAIN: dict[Kind, tuple[Any, ...]] = {
    Kind.INTEGER: (1, 5, 60),
    Kind.REAL: (1.5, 20.0, 99.0),
    Kind.TEXT: ("A", "B", "C"),
    Kind.DATE: (dt.date(2024, 1, 31), dt.date(2024, 2, 29), None),
    Kind.TIMESTAMP: (dt.datetime(2024, 1, 1), None, None),
    Kind.BOOLEAN: (True, False, None),
}


def rows(table: Table, values: dict[Kind, tuple[Any, ...]], people: list[str]) -> list[dict[str, Any]]:
    whose = table.unit.column if table.unit is not None else None
    found = []
    for place, person in enumerate(people):
        row = {name: values[domain.kind][place % 3] for name, domain in table.columns if name != whose}
        found.append(row if whose is None else {**row, whose: person})
    return found


def world(odd: bool) -> Session:
    """The example tables, with or without one person of whom every cell is odd."""
    engine, tables = DuckDBEngine(threads=1), {}
    for name, table in EXAMPLE.items():
        mine = rows(table, PLAIN, [f"p{i % 7}" for i in range(30)])
        if odd and table.unit is not None:
            mine += rows(table, ODD, ["ZEBRA-7731"] * 40)
        # As objects: a type that is inferred from all rows would itself tell of one of them.
        tables[name] = engine.register(name, pd.DataFrame(mine, dtype=object).astype(str), table, bytes(32))
    unit = max((t.unit for t in tables.values() if t.unit is not None), key=lambda each: each.rows)
    return Session(engine, tables, Ledger.open(budget=GAUSSIAN, unit=unit, dataset="visits"))


@pytest.fixture(scope="module")
def worlds() -> Iterator[tuple[Session, Session]]:
    with world(False) as here, world(True) as there:
        yield here, there


def seen(s: Session, text: str) -> Any:
    try:
        answer = s.sql(text, mu=1)
    except DeniableError as error:
        return type(error), str(error), repr(error)
    known = answer.plan.people is None and answer.plan.question.post.having is None
    order = answer.plan.question.post.order
    keys = {key.name for key in answer.plan.question.keys}
    shown = [name for name, each in answer.plan.question.post.columns if getattr(each, "name", None) in keys]
    cells = [answer[name] for name in shown] if known and not order else None
    said = (answer.receipt.cost, s.explain(text), answer.plan.question.hash)
    assert not any(canary in str(answer) + answer.to_json() for canary in CANARIES)
    return answer.columns, len(answer) if known else None, cells, said


def same(worlds: tuple[Session, Session], text: str) -> bool:
    here, there = (seen(s, text) for s in worlds)
    assert here == there, text
    assert not any(canary in str(here) for canary in CANARIES), text
    return not isinstance(here[0], type)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind == "number" else kind for kind in SHAPES]
)
def test_every_operator_looks_alike_on_neighbours(worlds: tuple[Session, Session], kind: str) -> None:
    grammar = Grammar(random.Random(4))
    answered = 0
    for shape in SHAPES[kind]:
        value = grammar.filled(shape, 1)
        answered += same(worlds, f"SELECT COUNT({value}) AS n, COUNT(DISTINCT {value}) AS d FROM visits")
        answered += same(worlds, f"SELECT {value} AS k, COUNT(*) AS n FROM visits GROUP BY 1")
        if kind == "truth":
            answered += same(worlds, f"SELECT COUNT(*) AS n FROM visits WHERE {value}")
        if kind == "number":
            answered += same(worlds, f"SELECT SUM(LEAST(GREATEST({value}, 0), 9)) AS s FROM visits")
    assert answered >= len(SHAPES[kind])


@pytest.mark.slow
def test_questions_of_the_grammar_look_alike_on_neighbours(worlds: tuple[Session, Session]) -> None:
    texts = list(islice(of_the_grammar(random.Random(9)), 60))
    assert sum(same(worlds, text) for text in texts) > 10


def test_registration_looks_alike_on_neighbours(worlds: tuple[Session, Session]) -> None:
    here, there = worlds
    assert here.tables == there.tables
    assert repr(here).split(";")[0] == repr(there).split(";")[0]
    for s in worlds:
        said = [*(entry.description for entry in s.ledger.entries()), repr(s.tables), repr(s.ledger)]
        assert not any(canary in each for each in said for canary in CANARIES)
