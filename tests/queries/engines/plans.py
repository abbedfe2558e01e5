"""Random tables and random plans over them, for searching where an engine and the plain meaning part."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from deniable.errors import QuestionRefused
from deniable.queries.relations.exact_statistics import (
    Cells,
    Collect,
    Count,
    CountDistinct,
    CountPersons,
    ExactSum,
    Statistic,
)
from deniable.queries.relations.operators import domain
from deniable.queries.relations.relation_nodes import (
    Bound,
    Exact,
    FilterRows,
    How,
    JoinPrivate,
    JoinPublic,
    PerPerson,
    Project,
    RelationNode,
    Source,
    Union,
)
from deniable.tables.expressions import Expression, call, case, col, lit
from deniable.tables.kinds import Domain, Kind
from deniable.tables.schema import Table
from deniable.units import Unit

PEOPLE = ["a", "A", " a", "", "é", None]
VISITS = Table.of(
    "visits",
    Unit.person("who", rows=3),
    age=Domain.integer(-3, 9),
    cost=Domain.real(-4, 4),
    ward=Domain.text("n", "s"),
    note=Domain.text(),
    day=Domain.date(),
    stay=Domain.boolean(nullable=False),
)
LABS = Table.of("labs", Unit.person("who", rows=2), level=Domain.integer(), place=Domain.text(), score=Domain.real())
WARDS = Table.of("wards", None, name=Domain.text(), size=Domain.integer(0, 100))

VALUES: dict[str, Any] = {
    "who": st.sampled_from(PEOPLE),
    "age": st.sampled_from([None, -5, -3, 0, 1, 1, 9, 20]),
    "cost": st.sampled_from([None, -9.0, -0.5, 0.0, 0.1, 0.1, 0.25, 3.999, 7.5]),
    "ward": st.sampled_from([None, "n", "s", "S", "x"]),
    "note": st.sampled_from([None, "", "n", "12", "Äb", "2024-02-29", "é"]),
    "day": st.sampled_from([None, dt.date(1, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)]),
    "stay": st.sampled_from([None, True, False, False]),
    "level": st.sampled_from([None, -(2**63), 0, 1, 2, 2**53 + 1, 2**63 - 1]),
    "place": st.sampled_from([None, "n", "s", ""]),
    "score": st.sampled_from([None, 0.0, 0.1, 1e-300, 1e300, -1e308, 2.5]),
    "name": st.sampled_from([None, "n", "s", "s", "", "12"]),
    "size": st.sampled_from([None, 0, 5, 500]),
}


def rows_for(table: Table, most: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    names = [name for name, _ in table.columns]
    if table.unit is not None and table.unit.column is not None:
        names.insert(0, table.unit.column)
    return st.lists(st.fixed_dictionaries({name: VALUES[name] for name in names}), max_size=most)


@st.composite
def expression(draw: Any, columns: Mapping[str, Domain], kind: Kind, depth: int = 2) -> Expression:
    """An expression of a kind, or at least one that can be asked for in its place."""
    fitting = [col(name) for name, each in columns.items() if each.kind is kind]
    leaves: list[Expression] = [*fitting, *fitting, *CONSTANTS[kind]]
    if depth == 0:
        return draw(st.sampled_from(leaves))
    below = lambda other: draw(expression(columns, other, depth - 1))  # noqa: E731
    makers: list[Callable[[], Expression]] = [lambda: draw(st.sampled_from(leaves)), *_makers(draw, kind, below)]
    return draw(st.sampled_from(makers))()


CONSTANTS: dict[Kind, list[Expression]] = {
    Kind.BOOLEAN: [lit(True), lit(None)],
    Kind.INTEGER: [lit(0), lit(2), lit(-7)],
    Kind.REAL: [lit(0.5), lit(-1.0), lit(0.0)],
    Kind.TEXT: [lit("n"), lit(""), lit("it's")],
    Kind.DATE: [lit(dt.date(2024, 2, 29))],
    Kind.TIMESTAMP: [lit(dt.datetime(2024, 2, 29, 12))],
}


def _makers(draw: Any, kind: Kind, below: Callable[[Kind], Expression]) -> list[Callable[[], Expression]]:
    number = lambda: below(draw(st.sampled_from([Kind.INTEGER, Kind.REAL])))  # noqa: E731
    any_kind = lambda: draw(st.sampled_from([Kind.INTEGER, Kind.REAL, Kind.TEXT, Kind.DATE, Kind.BOOLEAN]))  # noqa: E731

    def pair(operators: list[str]) -> Expression:
        same = any_kind()
        return call(draw(st.sampled_from(operators)), below(same), below(same))

    either = [
        lambda: call("coalesce", below(kind), below(kind)),
        lambda: case((below(Kind.BOOLEAN), below(kind)), otherwise=below(kind)),
        lambda: call("nullif", below(kind), below(kind)),
    ]
    arithmetic = ["add", "subtract", "multiply", "modulo"]
    match kind:
        case Kind.BOOLEAN:
            return [
                lambda: pair(["eq", "ne", "lt", "le", "gt", "ge"]),
                lambda: call(draw(st.sampled_from(["and", "or"])), below(kind), below(kind)),
                lambda: ~below(kind),
                lambda: call("is_null", below(any_kind())),
                lambda: call("like", below(Kind.TEXT), draw(st.sampled_from(["n%", "_", "%b"]))),
                lambda: call("in", below(Kind.INTEGER), 0, 1, None),
            ]
        case Kind.INTEGER:
            return [
                lambda: call(draw(st.sampled_from(arithmetic)), below(kind), below(kind)),
                lambda: call(draw(st.sampled_from(["least", "greatest"])), below(kind), below(kind)),
                lambda: call(draw(st.sampled_from(["floor", "ceil", "round", "cast_integer"])), number()),
                lambda: call("length", below(Kind.TEXT)),
                lambda: call("cast_integer", below(Kind.TEXT)),
                lambda: call(draw(st.sampled_from(["year", "weekday"])), below(Kind.DATE)),
                *either,
            ]
        case Kind.REAL:
            return [
                lambda: call(draw(st.sampled_from([*arithmetic, "divide"])), below(kind), number()),
                lambda: call("divide", number(), number()),
                lambda: call(draw(st.sampled_from(["sqrt", "negate", "abs", "cast_real"])), number()),
                lambda: call(draw(st.sampled_from(["least", "greatest"])), below(kind), number(), number()),
                *either,
            ]
        case Kind.TEXT:
            return [
                lambda: call(draw(st.sampled_from(["lower", "upper", "trim"])), below(kind)),
                lambda: call("concat", below(kind), below(kind)),
                lambda: call("prefix", below(kind), 1),
                lambda: call("cast_text", below(Kind.INTEGER)),
                *either,
            ]
        case Kind.DATE:
            return [
                lambda: call("date_trunc", draw(st.sampled_from(["week", "month"])), below(kind)),
                lambda: call("cast_date", below(Kind.TEXT)),
                *either,
            ]
    return either


@st.composite
def relation(draw: Any, tables: Mapping[str, Table], depth: int) -> RelationNode:
    """A random plan over the tables, at most so deep."""
    if depth == 0:
        return Source(tables[draw(st.sampled_from(["visits", "visits", "labs"]))])
    below = draw(relation(tables, depth - 1))
    columns = below.columns
    match draw(st.sampled_from(["filter", "project", "public", "private", "person", "union", "bound"])):
        case "filter":
            return FilterRows(below, draw(expression(columns, Kind.BOOLEAN)))
        case "project":
            return draw(project(below))
        case "public":
            texts = [name for name, each in columns.items() if each.kind is Kind.TEXT]
            if not texts or {"name", "size"} & set(columns):
                return below
            on = ((draw(st.sampled_from(texts)), "name"),)
            return JoinPublic(below, tables["wards"], on, draw(st.sampled_from(How)))
        case "private":
            other = draw(relation(tables, depth - 1))
            right = Project(other, tuple((f"{name} r", col(name)) for name in other.columns))
            shared = [
                (name, f"{each} r")
                for name, a in columns.items()
                for each, b in other.columns.items()
                if a.kind is b.kind and a.kind is not Kind.BOOLEAN
            ]
            on = tuple(draw(st.lists(st.sampled_from(shared), max_size=1))) if shared else ()
            if set(right.columns) & set(columns):
                return below
            return JoinPrivate(below, right, on, draw(st.sampled_from(How)))
        case "person":
            return draw(per_person(below))
        case "union":
            return Union((FilterRows(below, draw(expression(columns, Kind.BOOLEAN, 1))), below), False)
    keys = tuple(draw(expression(columns, Kind.INTEGER, 1)) for _ in range(draw(st.integers(0, 2))))
    return Bound(below, keys, draw(st.integers(1, 2)), draw(st.integers(1, 2)))


@st.composite
def project(draw: Any, below: RelationNode) -> RelationNode:
    kinds = [Kind.INTEGER, Kind.REAL, Kind.TEXT, Kind.DATE, Kind.BOOLEAN]
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3))
    new = [(f'Odd "{i}" näme', draw(expression(below.columns, kind))) for i, kind in enumerate(chosen)]
    return Project(below, (*new, *((name, col(name)) for name in below.columns if not name.startswith("Odd"))))


@st.composite
def per_person(draw: Any, below: RelationNode) -> RelationNode:
    columns = below.columns
    keys = [("key", draw(expression(columns, draw(st.sampled_from([Kind.TEXT, Kind.BOOLEAN])), 1)))]
    aggregates: list[tuple[str, Exact]] = [("rows", Exact("count", None))]
    for i, function in enumerate(
        draw(st.lists(st.sampled_from(["count", "count_distinct", "sum", "avg", "min", "max"]), max_size=3))
    ):
        kind = draw(st.sampled_from([Kind.INTEGER, Kind.REAL]))
        bounded = call("least", call("greatest", draw(expression(columns, kind, 1)), lit(-3)), lit(3))
        aggregates.append((f"a{i}", Exact(function, bounded)))
    return PerPerson(below, tuple(keys) if draw(st.booleans()) else (), tuple(aggregates))


@st.composite
def question(draw: Any, tables: Mapping[str, Table], depth: int = 3) -> Collect | None:
    """A random question, or None where a rule of the plan refuses what was drawn."""
    try:
        below = draw(relation(tables, draw(st.integers(0, depth))))
        columns = below.columns
        kinds = draw(st.lists(st.sampled_from([Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN, Kind.DATE]), max_size=2))
        keys = tuple((f"k{i}", draw(expression(columns, kind, 1))) for i, kind in enumerate(kinds))
        keys = tuple((name, key) for name, key in keys if domain(key, columns).kind is not Kind.REAL)
        known = None
        if keys and draw(st.booleans()):
            values = {Kind.TEXT: ["n", "s", "", None], Kind.INTEGER: [0, 1, 2, None], Kind.BOOLEAN: [True, False, None]}
            options = [values.get(domain(key, columns).kind, [None, dt.date(2024, 2, 29)]) for _, key in keys]
            groups = st.tuples(*(st.sampled_from(each) for each in options))
            known = tuple(draw(st.lists(groups, min_size=1, max_size=4, unique=True)))
        statistics: tuple[Statistic, ...] = (Count(), CountPersons(), *draw(st.lists(statistic(columns), max_size=3)))
        return Collect(below, keys, known, statistics)
    except QuestionRefused:
        return None


@st.composite
def statistic(draw: Any, columns: Mapping[str, Domain]) -> Statistic:
    number = draw(expression(columns, draw(st.sampled_from([Kind.INTEGER, Kind.REAL]))))
    kind = draw(st.sampled_from([Kind.TEXT, Kind.INTEGER, Kind.DATE, Kind.REAL]))
    low = draw(st.sampled_from([Fraction(-3), Fraction(0), Fraction(1, 3)]))
    return draw(
        st.sampled_from(
            [
                Count(number),
                CountPersons(number),
                CountDistinct(draw(expression(columns, kind))),
                ExactSum(number, low, Fraction(5), draw(st.sampled_from([-20, -1, 0, 1, 2]))),
                Cells(number, (Fraction(-1), Fraction(0), Fraction(1, 3), Fraction(2), Fraction(9))),
            ]
        )
    )
