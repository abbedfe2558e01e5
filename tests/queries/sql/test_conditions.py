"""Conditions on bounded columns: every kind of column beside every kind of constant, from the price to the printout."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

import deniable as dn
from deniable.errors import DeniableError
from deniable.queries.plan import answer_notes, named_keys
from deniable.queries.plan.disjointness import disjoint, empty
from deniable.queries.relations.operators import evaluate
from deniable.queries.relations.relation_nodes import FilterRows, RelationNode
from deniable.queries.session import Session
from deniable.queries.sql.sql_reader import parse
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table

COLUMNS = {
    "flag": Domain.boolean(),
    "whole": Domain.integer(-5, 5000),
    "huge": Domain.integer(0, 2**62),
    "part": Domain.real(-2.5, 5000.5),
    "word": Domain.text(),
    "day": Domain.date(dt.date(2020, 1, 1), dt.date(2024, 12, 31)),
    "at": Domain.timestamp(dt.datetime(2020, 1, 1), dt.datetime(2024, 12, 31, 12)),
}
VALUES: dict[str, list[Any]] = {
    "flag": [None, False, True],
    "whole": [None, -5, 0, 1, 7, 5000],
    "huge": [None, 0, 1, 7, 2**53, 2**53 + 1],
    "part": [None, -2.5, 0.0, 0.5, 7.0, 5000.5],
    "word": [None, "", "a", "b", "2024-05-01"],
    "day": [None, dt.date(2020, 1, 1), dt.date(2024, 5, 1), dt.date(2024, 12, 31)],
    "at": [None, dt.datetime(2020, 1, 1), dt.datetime(2024, 5, 1), dt.datetime(2024, 5, 1, 12, 30, 0, 1)],
}
SCHEMA = {"seen": Table.of("seen", dn.Unit.row(), **COLUMNS)}
CONSTANTS = {
    "boolean": ("TRUE", "FALSE"),
    "integer": ("7", "9999"),
    "beyond floats": ("9007199254740993", "9007199254740993"),
    "real": ("0.5", "9999.5"),
    "exponent": ("-7e0", "9e15"),
    "decimal": ("CAST(0.5 AS DECIMAL(10, 2))", "CAST(9999.5 AS DECIMAL(10, 2))"),
    "text": ("'a'", "'b'"),
    "text of a date": ("'2024-05-01'", "'2031-01-01'"),
    "date": ("DATE '2024-05-01'", "DATE '2031-01-01'"),
    "timestamp": ("TIMESTAMP '2024-05-01 12:30:00'", "TIMESTAMP '2031-01-01 00:00:00'"),
    "null": ("NULL", "NULL"),
}
CONDITIONS = (
    "{c} = {a}", "{c} = {b}", "{c} < {a}", "{b} < {c}", "{c} >= {a}", "{c} >= {b}", "{c} BETWEEN {a} AND {b}",
    "{c} BETWEEN {b} AND {a}", "{c} IN ({a}, {b})", "{c} IN ({b})", "{c} <> {a}", "{c} >= {a} AND {c} < {a}",
)  # fmt: skip


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    rows = max(map(len, VALUES.values()))
    data = pd.DataFrame(
        {name: pd.Series(each + [None] * (rows - len(each)), dtype=object) for name, each in VALUES.items()}
    )
    data = data.astype({"flag": "boolean", "whole": "Int64", "huge": "Int64", "part": "Float64"})
    data["day"], data["at"] = pd.to_datetime(data["day"]), pd.to_datetime(data["at"])
    with dn.session({"seen": data}, unit=dn.Unit.row(), schema=COLUMNS, budget=dn.Budget.pure(epsilon=10**6)) as opened:
        yield opened


def questions(column: str, constants: str) -> list[str]:
    """Those that the dialect takes: a number beside a date is refused before it is priced."""
    first, second = CONSTANTS[constants]
    found = []
    for condition in CONDITIONS:
        text = f"SELECT COUNT(*) AS n FROM seen WHERE {condition.format(c=column, a=first, b=second)}"
        try:
            parse(text, SCHEMA)
        except DeniableError:
            continue
        found.append(text)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("column", COLUMNS)
def test_every_condition_is_priced_asked_shown_and_batched(session: Session, column: str) -> None:
    asked = []
    for constants in CONSTANTS:
        asked += questions(column, constants)
    assert asked
    quiet = Console(quiet=True)
    for text in asked:
        assert str(session.price(text, epsilon=1))
        answer = session.sql(text, epsilon=1)
        quiet.print(answer)
        assert all((str(answer), answer.to_json(), answer._repr_html_()))
    assert len(session.batch(asked, epsilon=len(asked))) == len(asked)


def passing(relation: RelationNode, column: str) -> set[Any]:
    """Which values of a column fulfil the conditions, one after the other in plain Python."""
    assert isinstance(relation, FilterRows)
    return {value for value in VALUES[column] if evaluate(relation.condition, {column: value}, COLUMNS) is True}


@pytest.mark.slow
@pytest.mark.parametrize("column", COLUMNS)
def test_what_is_proven_is_true(column: str) -> None:
    relations = [parse(text, SCHEMA).relation for constants in CONSTANTS for text in questions(column, constants)]
    assert any(map(empty, relations))
    for each in relations:
        assert not (empty(each) and passing(each, column))
    proven = [pair for pair in itertools.combinations(relations, 2) if disjoint(pair)]
    assert proven
    for one, other in proven:
        assert not passing(one, column) & passing(other, column)


@pytest.mark.parametrize(
    ("condition", "is_empty"),
    [
        ("day >= DATE '2025-01-01'", True),
        ("day > DATE '2024-12-30'", False),
        ("day > TIMESTAMP '2024-12-31 00:00:01'", True),
        ("day >= TIMESTAMP '2024-12-31 00:00:00'", False),
        ("at > DATE '2024-12-31'", False),
        ("at >= DATE '2025-01-01'", True),
        ("at > TIMESTAMP '2024-12-31 12:00:00'", True),
        ("at BETWEEN TIMESTAMP '2019-01-01 00:00:00' AND TIMESTAMP '2019-12-31 23:59:59'", True),
        ("at IN (DATE '2020-01-01', DATE '2019-01-01')", False),
        ("at IN (DATE '2018-01-01', DATE '2019-01-01')", True),
        ("huge < 0", True),
        ("part > 5000.5", True),
        ("part > 5000", False),
        ("word < 'a' AND word > 'b'", True),
    ],
)  # fmt: skip
def test_what_bounds_rule_out_is_said(session: Session, condition: str, is_empty: bool) -> None:
    price = session.price(f"SELECT COUNT(*) AS n FROM seen WHERE {condition}", epsilon=1)
    assert bool(price.to_dict()["note"]) is is_empty


def test_a_proof_that_fails_proves_nothing_and_the_answer_is_shown(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(relation: RelationNode) -> bool:
        raise TypeError("as if two kinds could not be compared")

    monkeypatch.setattr(answer_notes, "empty", broken)
    monkeypatch.setattr(answer_notes, "_EMPTY", {})
    answer = session.sql("SELECT COUNT(*) AS n FROM seen WHERE huge < 0", epsilon=1)
    assert str(answer)
    assert not any("no row can" in each for each in answer.notes)


@pytest.mark.parametrize(
    "source", ["seen", "(SELECT whole, word FROM seen WHERE {0})", "(SELECT whole AS w, word FROM seen WHERE {0})"]
)
@pytest.mark.parametrize("name", ["whole", "word"])
def test_a_long_condition_was_read_once_for_each_of_its_parts(
    monkeypatch: pytest.MonkeyPatch, source: str, name: str
) -> None:
    """Work that grows with the square of a question's length delays everybody else who asks."""
    read = 0
    below = named_keys._below

    def counted(*given: Any) -> Any:
        nonlocal read
        found = below(*given)
        read += len(found.conditions)
        return found

    monkeypatch.setattr(named_keys, "_below", counted)
    where = " AND ".join(f"{name} <> {number if name == 'whole' else repr(str(number))}" for number in range(60))
    above = where.replace("whole", "w") if "AS w" in source else where
    text = f"SELECT COUNT(*) AS n FROM {source.format(where)} AS s WHERE {above}"
    assert not empty(parse(text, SCHEMA).relation)
    assert 60 <= read <= 120


@pytest.mark.parametrize(
    ("text", "is_empty"),
    [
        ("SELECT COUNT(*) AS n FROM (SELECT word FROM seen WHERE word <> 'a') AS s WHERE word IN ('a')", True),
        ("SELECT COUNT(*) AS n FROM (SELECT word FROM seen WHERE word <> 'a') AS s WHERE word IN ('a', 'b')", False),
        # Two names of one column, and a name that means another column below.
        (
            "SELECT COUNT(*) AS n FROM (SELECT flag AS v, word FROM seen WHERE word IN ('a') AND word <> 'a') AS s "
            "WHERE v",
            True,
        ),
        (
            "SELECT COUNT(*) AS n FROM (SELECT UPPER(word) AS word FROM seen WHERE word IN ('a') AND word <> 'a') "
            "AS s WHERE word <> 'B'",
            True,
        ),
    ],
)
def test_a_column_that_is_looked_at_once_is_looked_at_whole(text: str, is_empty: bool) -> None:
    assert empty(parse(text, SCHEMA).relation) is is_empty


@pytest.mark.parametrize("column", ["whole", "part"])
def test_a_row_that_is_found_at_once_is_one_that_nothing_rules_out(
    column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quick look at the ends of bounds says of no relation that it has rows where the long one says it has none."""
    pairs = itertools.product(("<", "<=", ">", ">=", "=", "<>"), (-6, -5, -2.5, 0, 2.5, 3, 4, 5000, 5001), repeat=2)
    texts = [f"SELECT COUNT(*) AS n FROM seen WHERE {column} {a} {x} AND {column} {b} {y}" for a, x, b, y in pairs]
    relations = [parse(text, SCHEMA).relation for text in texts[::7]]
    quick = [empty(each) for each in relations]
    monkeypatch.setattr("deniable.queries.plan.disjointness._is_met", lambda *_: False)
    assert quick == [empty(each) for each in relations]
    assert {True, False} == set(quick)
