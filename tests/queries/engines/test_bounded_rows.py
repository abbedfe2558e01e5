"""Which rows are kept: by their content and the secret alone, whoever else is there and wherever the rows stand."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from deniable.queries.engines.duckdb import DuckDBEngine
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table
from deniable.units import Unit
from tests.queries.engines import evaluate
from tests.queries.engines.kitchen import SECRET

pa = pytest.importorskip("pyarrow")

LONG = "k" * 1200
"""A key that is longer than other texts may be."""

Rows = list[dict[str, Any]]


def table(ids: str, most: int) -> Table:
    return Table.of(
        "t",
        Unit.person("who", rows=most),
        who=Domain.integer() if ids == "numbers" else Domain.text(),
        key=Domain.text("a", "b", LONG),  # "c" becomes NULL
        n=Domain.integer(2, 5),  # most values are moved to a bound
        x=Domain.real(),
    )


def drawn(ids: str, rows: int, seed: int) -> Rows:
    """A few people, some far above any bound, whose rows stand among those of others."""
    numbers = random.Random(seed)
    found: Rows = []
    for _ in range(rows):
        who = int(6 * numbers.random() ** 2)
        found.append(
            {
                "who": who if ids == "numbers" else f"p{who}",
                "key": numbers.choice(["a", "b", "c", LONG, None]),
                "n": numbers.choice([0, 1, 3, 7, None]),
                "x": numbers.choice([0.5, -1.25, 2.0**60, None]),
            }
        )
    return found


def kept(rows: Rows, about: Table, secret: bytes = SECRET) -> dict[Any, Counter[tuple[Any, ...]]]:
    """The stored rows of each person, by their id, each with its rank as the questions that need it compute it."""
    kinds = {"who": pa.int64() if isinstance(rows[0]["who"], int) else pa.string()}
    kinds |= {"key": pa.string(), "n": pa.int64(), "x": pa.float64()}
    source = pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})
    with DuckDBEngine(threads=1) as engine:
        engine.register("t", source, about, secret)
        stored = engine._tables["t"]
        select = f"SELECT * FROM {stored.with_ranks.sql(dialect='duckdb', normalize_functions=False)}"
        found = engine._run(select)
        names = dict(engine._run(f'SELECT "number", "id" FROM {engine._numbers}')) if engine._numbers else None
    told: dict[Any, Counter[tuple[Any, ...]]] = {}
    for person, *rest in found:
        told.setdefault(person if names is None else names[person], Counter())[tuple(rest)] += 1
    return told


@pytest.mark.parametrize("most", [1, 2, 3, 40])
@pytest.mark.parametrize("ids", ["numbers", "texts"])
def test_the_rows_and_ranks_are_those_of_ranking_everybody(ids: str, most: int) -> None:
    rows = drawn(ids, 60, seed=most)
    expected: dict[Any, Counter[tuple[Any, ...]]] = {}
    for row in evaluate.registered(table(ids, most), rows, SECRET):
        values = tuple(row.values[name] for name in ("key", "n", "x"))
        expected.setdefault(row.person, Counter())[(row.rank, *values)] += 1
    if most == 1:  # then every row has rank 1 in the table itself, which has one more column, the hash
        found = {who: {each[:4] for each in mine} for who, mine in kept(rows, table(ids, most)).items()}
        assert found == {who: set(mine) for who, mine in expected.items()}
    else:
        assert kept(rows, table(ids, most)) == expected


@pytest.mark.parametrize("ids", ["numbers", "texts"])
def test_without_any_one_person_everybody_else_keeps_the_same_rows(ids: str) -> None:
    """Brute force: every person is left out once, and the rows that are left are shuffled."""
    rows, about = drawn(ids, 60, seed=5), table(ids, 3)
    whole = kept(rows, about)
    assert any(sum(mine.values()) < sum(row["who"] == who for row in rows) for who, mine in whole.items())
    for gone in whole:
        others = [row for row in rows if row["who"] != gone]
        random.Random(1).shuffle(others)
        assert kept(others, about) == {who: mine for who, mine in whole.items() if who != gone}


def test_another_secret_keeps_other_rows() -> None:
    rows, about = drawn("numbers", 60, seed=5), table("numbers", 3)
    assert kept(rows, about) != kept(rows, about, b"another secret of sixteen bytes")


@pytest.mark.parametrize("ids", ["numbers", "texts"])
@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_nobody_keeps_more_rows_than_the_bound_and_nobody_fewer_than_they_have(ids: str, most: int) -> None:
    """People with exactly 1, 2 ... 6 rows: one below the bound, at it, and one above it."""
    rows = [
        {"who": who if ids == "numbers" else f"p{who}", "key": "a", "n": each, "x": 0.5}
        for who in range(1, 7)
        for each in range(who)
    ]
    found = {who: sum(mine.values()) for who, mine in kept(rows, table(ids, most)).items()}
    assert found == {who if ids == "numbers" else f"p{who}": min(who, most) for who in range(1, 7)}
