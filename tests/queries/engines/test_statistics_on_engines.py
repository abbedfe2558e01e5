"""Sums on a grid, cells and groups at their edges, on every engine."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from deniable.errors import InvalidParameter
from deniable.queries.engines.cell_index import even, exactly_divided
from deniable.queries.engines.engine import Engine
from deniable.queries.relations.exact_statistics import (
    Cells,
    Collect,
    Count,
    CountDistinct,
    CountPersons,
    ExactSum,
    Statistic,
)
from deniable.queries.relations.relation_nodes import Bound, FilterRows, How, JoinPublic, Source
from deniable.tables.expressions import col
from deniable.tables.kinds import Domain, Kind
from deniable.tables.schema import Table
from deniable.units import Unit
from tests.queries.engines import evaluate
from tests.queries.engines.kitchen import SECRET, Kitchen

pa = pytest.importorskip("pyarrow")

TABLE = Table.of("t", Unit.row(), x=Domain.real(), n=Domain.integer())
HALVES = [Fraction(0), Fraction(1, 3), Fraction(5, 2), Fraction(100)]


def opened(
    kitchen: Kitchen, reals: list[float | None], integers: list[int | None]
) -> tuple[Engine, Table, evaluate.Stored]:
    size = max(len(reals), len(integers))
    rows = [
        {"x": reals[i] if i < len(reals) else None, "n": integers[i] if i < len(integers) else None}
        for i in range(size)
    ]
    source = pa.table(
        {"x": pa.array([r["x"] for r in rows], pa.float64()), "n": pa.array([r["n"] for r in rows], pa.int64())}
    )
    engine = kitchen.engine()
    table = engine.register("t", kitchen.source(source), TABLE, SECRET)
    return engine, table, {"t": evaluate.registered(TABLE, rows, SECRET)}


def same(engine: Engine, table: Table, stored: evaluate.Stored, statistics: tuple[Statistic, ...]) -> None:
    question = Collect(Source(table), (), None, statistics)
    assert engine.collect(question) == evaluate.collected(question, stored)


@pytest.mark.parametrize("known", [None, ((1,), (7,), (None,))], ids=["unlisted", "listed"])
def test_nothing_is_what_empty_tables_answer(kitchen: Kitchen, known: Any) -> None:
    engine, table, stored = opened(kitchen, [0.5, 1.5, None], [1, 1, 7])
    statistics = (
        Count(),
        CountDistinct(col("x")),
        ExactSum(col("x"), Fraction(0), Fraction(2), -3),
        Cells(col("x"), tuple(HALVES)),
    )
    for keys in ((), (("n", col("n")),)):
        asked = Collect(FilterRows(Source(table), col("n") > 0), keys, known if keys else None, statistics)
        empty = {"t": evaluate.registered(TABLE, [], SECRET)}
        assert engine.nothing(asked) == evaluate.collected(asked, empty)
        assert engine.collect(asked) == evaluate.collected(asked, stored) != evaluate.collected(asked, empty)


def test_sums_are_rounded_to_the_grid_row_by_row_and_clamped(kitchen: Kitchen) -> None:
    reals = [
        0.5,
        -0.5,
        0.49999999999999994,
        1.5,
        -1.5,
        0.1,
        -0.1,
        1e300,
        -1e300,
        None,
        2.0**52 + 1,
        1e-300,
        3.3333333333333335,
    ]
    integers = [0, 1, -1, 3, -3, 2**53 + 1, 2**63 - 1, -(2**63), None, 5, -5, 7, 6]
    engine, table, stored = opened(kitchen, reals, integers)
    bounds = [
        (-2, 2),
        (Fraction(1, 3), Fraction(10, 3)),
        (0, 2**50),
        (-(2**62), 2**62),
        (-3, -1),
        (2**64, 2**65),
        (Fraction(1, 2), Fraction(1, 2)),
    ]
    statistics = [
        ExactSum(col(name), Fraction(low), Fraction(high), exponent)
        for name in ("x", "n")
        for low, high in bounds
        for exponent in (-10, -1, 0, 1, 3, 20)
        if max(abs(low), abs(high)) / Fraction(2) ** exponent <= 2**62
    ]
    same(engine, table, stored, tuple(statistics))


def test_a_grid_too_fine_for_its_bounds_is_refused(kitchen: Kitchen) -> None:
    engine, table, _ = opened(kitchen, [1.0], [1])
    with pytest.raises(InvalidParameter, match="2\\^62"):
        engine.collect(Collect(Source(table), (), None, (ExactSum(col("x"), Fraction(0), Fraction(2**40), -23),)))


def cells_between(low: Fraction, high: Fraction, number: int) -> tuple[Fraction, ...]:
    return tuple(low + (high - low) * step / number for step in range(number + 1))


PARTITIONS: dict[str, tuple[Fraction, ...]] = {
    "few": tuple(HALVES),
    "uneven": tuple(Fraction(k * k, 3) for k in range(40)),
    "even, found by division": cells_between(Fraction(0), Fraction(100), 100),
    "even, put right by the edges": cells_between(Fraction(1, 10), Fraction(83), 37),
    "even and negative": cells_between(Fraction(-7), Fraction(0), 49),
    "too narrow for division": tuple(Fraction(2**50 + k) for k in range(30)),
}


@pytest.mark.parametrize("partition", PARTITIONS)
def test_values_at_every_edge_fall_into_the_right_cell(kitchen: Kitchen, partition: str) -> None:
    edges = PARTITIONS[partition]
    near = [float(edge) for edge in edges]
    reals: list[float | None] = [None, -1e308, 1e308, 0.0]
    reals += [each for x in near for each in (math.nextafter(x, -math.inf), x, math.nextafter(x, math.inf))]
    integers: list[int | None] = [None, -(2**63), 2**63 - 1]
    integers += [each for edge in edges for each in (math.floor(edge) - 1, math.floor(edge), math.ceil(edge))]
    engine, table, stored = opened(kitchen, reals, integers)
    same(engine, table, stored, (Cells(col("x"), edges), Count(col("x")), Cells(col("n"), edges)))


MANY: dict[str, tuple[Fraction, ...]] = {
    "single integers": tuple(Fraction(k) for k in range(-3000, 2001)),
    "powers of two": tuple(Fraction(k, 1024) for k in range(-3000, 2001)),
    "integers together": tuple(Fraction(4 * k) for k in range(-3000, 2001)),
}


@pytest.mark.slow
@pytest.mark.parametrize("partition", MANY)
def test_values_at_edges_that_are_computed_fall_into_the_right_cell(kitchen: Kitchen, partition: str) -> None:
    """More cells than a query lists: around 0, at both ends and in between."""
    edges = MANY[partition]
    near = [*edges[:3], *edges[2998:3003], *edges[::499], *edges[-3:], Fraction(0), Fraction(1, 3)]
    reals: list[float | None] = [None, -1e308, 1e308, 5e-324, -5e-324, -0.0]
    reals += [each for x in map(float, near) for each in (math.nextafter(x, -math.inf), x, math.nextafter(x, math.inf))]
    integers: list[int | None] = [None, -(2**63), 2**63 - 1]
    integers += [each for edge in near for each in (math.floor(edge) - 1, math.floor(edge), math.ceil(edge))]
    engine, table, stored = opened(kitchen, reals, integers)
    asked: tuple[Statistic, ...] = (Cells(col("x"), edges),)
    if edges[1].denominator == 1:
        asked += (Cells(col("n"), edges),)
    same(engine, table, stored, asked)


def test_both_ways_of_division_are_tried() -> None:
    exact, corrected = PARTITIONS["even, found by division"], PARTITIONS["even, put right by the edges"]
    assert even(exact)
    assert exactly_divided(exact, Kind.REAL)
    assert even(corrected)
    assert not exactly_divided(corrected, Kind.REAL)
    assert not even(PARTITIONS["too narrow for division"])


GROUPS = Table.of("g", Unit.person("who", rows=4), key=Domain.text(), v=Domain.integer(0, 9), flag=Domain.boolean())
ROWS = [
    {"who": who, "key": key, "v": v, "flag": flag}
    for who, key, v, flag in [
        ("a", "x", 1, True), ("a", "x", 2, False), ("a", "y", 3, None), ("a", None, 4, True), ("a", "z", 5, True),
        ("b", "x", 1, False), ("b", "it's", 2, False), ("c", "", 9, None), (None, "x", 9, True), ("d", "x", None, True),
    ]
]  # fmt: skip


@pytest.fixture
def groups(kitchen: Kitchen) -> tuple[Engine, Table, evaluate.Stored]:
    engine = kitchen.engine()
    kinds: dict[str, Any] = {"who": pa.string(), "key": pa.string(), "v": pa.int64(), "flag": pa.bool_()}
    source = pa.table({name: pa.array([row[name] for row in ROWS], kind) for name, kind in kinds.items()})
    table = engine.register("g", kitchen.source(source), GROUPS, SECRET)
    return engine, table, {"g": evaluate.registered(GROUPS, ROWS, SECRET)}


def test_known_groups_come_in_their_order_present_or_not(groups: tuple[Engine, Table, evaluate.Stored]) -> None:
    engine, table, stored = groups
    statistics = (
        Count(),
        CountPersons(col("v")),
        CountDistinct(col("v")),
        Cells(col("v"), (Fraction(0), Fraction(3), Fraction(9))),
    )
    known = (("absent",), ("x",), (None,), ("it's",), ("X",))
    question = Collect(Source(table), (("k", col("key")),), known, statistics)
    found = engine.collect(question)
    assert list(found) == list(known)
    assert found == evaluate.collected(question, stored)
    assert found[("absent",)] == (0, 0, 0, (0, 0))
    pairs = tuple((key, flag) for flag in (True, None, False) for key in ("x", "", None))
    question = Collect(Source(table), (("k", col("key")), ("f", col("flag"))), pairs, statistics)
    assert engine.collect(question) == evaluate.collected(question, stored)
    nothing = FilterRows(Source(table), col("v") > 100)
    assert engine.collect(Collect(nothing, (), None, statistics)) == {(): (0, 0, 0, (0, 0))}
    assert engine.collect(Collect(nothing, (("k", col("key")),), None, statistics)) == {}


def test_people_are_counted_by_any_of_their_rows_that_is_left(groups: tuple[Engine, Table, evaluate.Stored]) -> None:
    """Without a condition, rows of rank 1 are counted instead; with one, the first row may be gone and others not."""
    engine, table, stored = groups
    for condition in [col("v") > 0, *(col("v") == v for v in range(10)), col("flag").is_null(), col("key") == "x"]:
        for relation in (Source(table), FilterRows(Source(table), condition)):
            question = Collect(relation, (), None, (CountPersons(), Count(), CountPersons(col("flag"))))
            assert engine.collect(question) == evaluate.collected(question, stored)


def test_unknown_groups_come_in_an_order_of_their_own(groups: tuple[Engine, Table, evaluate.Stored]) -> None:
    engine, table, stored = groups
    question = Collect(Source(table), (("k", col("key")),), None, (Count(),))
    found = engine.collect(question)
    assert list(found) == sorted(found, key=lambda group: (group[0] is not None, group[0] or ""))
    assert found == evaluate.collected(question, stored)


@pytest.mark.parametrize(("most_groups", "most_rows"), [(1, 1), (2, 1), (1, 2), (3, 9), (9, 1), (9, 9)])
def test_a_person_is_bound_to_so_many_groups_and_rows(
    groups: tuple[Engine, Table, evaluate.Stored], most_groups: int, most_rows: int
) -> None:
    engine, table, stored = groups
    relation = Bound(Source(table), (col("key"),), most_groups, most_rows)
    question = Collect(relation, (("k", col("key")),), None, (Count(), CountPersons()))
    assert engine.collect(question) == evaluate.collected(question, stored)


def test_groups_that_begin_with_the_same_row_are_told_apart(kitchen: Kitchen) -> None:
    """After a join, one row stands in two groups: one of them is kept, not both."""
    engine = kitchen.engine()
    rows = [{"who": "a", "v": 1}, {"who": "b", "v": 1}, {"who": "b", "v": 2}]
    private = Table.of("p", Unit.person("who", rows=4), v=Domain.integer())
    public = Table.of("q", None, w=Domain.integer(), name=Domain.text())
    codes = [{"w": 1, "name": "one"}, {"w": 1, "name": "uno"}, {"w": 2, "name": "two"}]
    people = pa.table({"who": [row["who"] for row in rows], "v": [row["v"] for row in rows]})
    names = pa.table({"w": [code["w"] for code in codes], "name": [code["name"] for code in codes]})
    private = engine.register("p", kitchen.source(people), private, SECRET)
    public = engine.register("q", kitchen.source(names), public, SECRET)
    stored = {"p": evaluate.registered(private, rows, SECRET), "q": evaluate.registered(public, codes, SECRET)}
    joined = JoinPublic(Source(private), public, (("v", "w"),), How.INNER)
    for most_groups, most_rows in ((1, 1), (1, 2), (2, 1)):
        relation = Bound(joined, (col("name"),), most_groups, most_rows)
        question = Collect(relation, (("k", col("name")),), None, (Count(), CountPersons()))
        found = engine.collect(question)
        assert found == evaluate.collected(question, stored)
        assert sum(people for _, people in found.values()) <= 2 * most_groups


def test_what_is_shown_is_what_is_sent(groups: tuple[Engine, Table, evaluate.Stored]) -> None:
    engine, table, _ = groups
    question = Collect(
        Source(table), (("k", col("key")),), None, (Count(), Cells(col("v"), (Fraction(0), Fraction(3), Fraction(9))))
    )
    shown = engine.sql(question)
    assert shown.count("SELECT") >= 2
    assert SECRET.hex() not in shown
