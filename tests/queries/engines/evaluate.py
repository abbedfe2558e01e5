"""Registration and questions in plain Python, row by row: what every engine has to equal, bit for bit."""

from __future__ import annotations

import datetime as dt
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key
from itertools import groupby
from typing import Any

from deniable.queries.relations.exact_statistics import (
    Cells,
    Collect,
    Count,
    CountDistinct,
    CountPersons,
    ExactSum,
    Group,
)
from deniable.queries.relations.operators import typed
from deniable.queries.relations.person_windows import PersonWindow, PersonWindows
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
from deniable.tables.expressions import Expression
from deniable.tables.kinds import LONGEST, Domain, Kind, end_of
from deniable.tables.schema import Table

Value = Any
Values = dict[str, Value]


@dataclass(frozen=True)
class Row:
    person: Value
    rank: int
    values: Values


Stored = dict[str, list[Row]]


# --- registration ---------------------------------------------------------------------------------------------------


def registered(table: Table, rows: Iterable[Mapping[str, Value]], secret: bytes) -> list[Row]:
    """Rows whose values are of the declared kinds already, as they are kept."""
    unit = table.unit
    whose = None if unit is None else unit.column
    read: list[tuple[Value, Values, Values]] = []
    for position, row in enumerate(rows):
        person = position if whose is None else row[whose]
        values = {name: settled(row[name], domain) for name, domain in table.columns if name != whose}
        missing = any(values[name] is None and not domain.nullable for name, domain in table.columns if name != whose)
        if person is not None and not missing:
            read.append((person, values, row))
    if unit is None or whose is None:
        return [Row(person, 1, values) for person, values, _ in read]
    kinds = [domain.kind for name, domain in table.columns if name != whose]
    # Ranks are by the values before bounds and keys, in the order of names.
    columns = sorted(table.columns, key=lambda each: each[0])
    plain = [(name, replace(domain, bounds=None, keys=None)) for name, domain in columns if name != whose]
    kept: list[Row] = []
    for person in dict.fromkeys(person for person, _, _ in read):
        mine = [(values, {name: _cut(row[name]) for name, _ in plain}) for each, values, row in read if each == person]
        mine.sort(key=lambda each: (digest(secret, person, each[1], plain), by_reals(each[0], kinds)))
        kept += [Row(person, rank, values) for rank, (values, _) in enumerate(mine[: unit.rows], start=1)]
    return kept


def _cut(value: Value) -> Value:
    return value[:LONGEST] if isinstance(value, str) else value


def settled(value: Value, domain: Domain) -> Value:
    if value is not None and domain.bounds is not None:
        low, high = (end_of(domain.kind, end) for end in domain.bounds)
        value = min(max(value, low), high)
    return value if domain.keys is None or value in domain.keys else None


def digest(secret: bytes, person: Value, values: Values, domains: Sequence[tuple[str, Domain]]) -> int:
    content = secret.hex() + canonical(person, Domain(Kind.INTEGER if isinstance(person, int) else Kind.TEXT))
    content += "".join(canonical(values[name], domain) for name, domain in domains)
    return int.from_bytes(hashlib.md5(content.encode()).digest(), "little")


def canonical(value: Value, domain: Domain) -> str:
    kind = domain.kind
    if value is None:
        between = {Kind.TEXT: ":", Kind.REAL: "+" if domain.bounds is not None else ""}
        return f"{between.get(kind, '')};"
    if kind is Kind.TEXT:
        return f"{len(value)}:{value};"
    if kind is Kind.REAL:
        if abs(value) >= 2.0**53:
            return "-;" if value < 0 else "+;"
        whole = float(math.floor(value))
        return f"{int(whole)}+{math.floor((value - whole) * 2.0**53)};"
    if kind is Kind.TIMESTAMP:
        return f"{(value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)};"
    if kind is Kind.BOOLEAN:
        return "true;" if value else "false;"
    return f"{value};"


def by_reals(values: Values, kinds: Sequence[Kind]) -> tuple[Any, ...]:
    return tuple(in_order(value) for value, kind in zip(values.values(), kinds, strict=True) if kind is Kind.REAL)


def in_order(value: Value) -> tuple[bool, Any]:
    return value is not None, 0 if value is None else value


# --- relations ------------------------------------------------------------------------------------------------------


def rows_of(relation: RelationNode, stored: Stored) -> list[Row]:
    match relation:
        case Source():
            return [row for row in stored[relation.table.name] if row.rank <= relation.rows]
        case FilterRows():
            below = rows_of(relation.child, stored)
            condition = calculation(relation.condition, relation.child)
            return [row for row in below if condition(row.values) is True]
        case Project():
            below = rows_of(relation.child, stored)
            new = [(name, calculation(each, relation.child)) for name, each in relation.expressions]
            return [Row(row.person, row.rank, {name: value(row.values) for name, value in new}) for row in below]
        case JoinPublic():
            return joined(relation, rows_of(relation.child, stored), stored[relation.table.name], False)
        case JoinPrivate():
            return joined(relation, rows_of(relation.left, stored), rows_of(relation.right, stored), True)
        case PerPerson():
            return per_person(relation, rows_of(relation.child, stored))
        case PersonWindows():
            return windowed(relation, rows_of(relation.child, stored))
        case Union():
            return [row for part in relation.parts for row in promoted(relation, rows_of(part, stored))]
        case Bound():
            return bounded(relation, rows_of(relation.child, stored))
    raise AssertionError(relation)


def calculation(expression: Expression, relation: RelationNode) -> Callable[[Values], Value]:
    return typed(expression, relation.columns).value


def promoted(relation: Union, rows: list[Row]) -> list[Row]:
    def one(value: Value, kind: Kind) -> Value:
        if kind is Kind.REAL and value is not None:
            return float(value)
        if kind is Kind.TIMESTAMP and type(value) is dt.date:
            return dt.datetime.combine(value, dt.time())
        return value

    return [
        Row(row.person, row.rank, {name: one(value, relation.columns[name].kind) for name, value in row.values.items()})
        for row in rows
    ]


def joined(relation: JoinPublic | JoinPrivate, left: list[Row], right: list[Row], people: bool) -> list[Row]:
    nothing = dict.fromkeys(name for name in relation.columns if not left or name not in left[0].values)
    found: list[Row] = []
    for a in left:
        partners = [
            b
            for b in right
            if (not people or a.person == b.person)
            and all(a.values[x] is not None and a.values[x] == b.values[y] for x, y in relation.on)
        ]
        found += [Row(a.person, a.rank, a.values | b.values) for b in partners]
        if not partners and relation.how is How.LEFT:
            found.append(Row(a.person, a.rank, a.values | nothing))
    return found


def per_person(relation: PerPerson, rows: list[Row]) -> list[Row]:
    keys = [(name, calculation(key, relation.child)) for name, key in relation.keys]
    groups: dict[tuple[Value, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.person, *(key(row.values) for _, key in keys)), []).append(row)
    found: list[Row] = []
    columns = relation.child.columns
    for group, mine in groups.items():
        values = {name: value for (name, _), value in zip(keys, group[1:], strict=True)}
        for name, exact in relation.aggregates:
            if exact.expression is None:
                values[name] = len(mine)
                continue
            expression = typed(exact.expression, columns)
            domain = expression.domain
            column = [expression.value(row.values) for row in mine]
            values[name] = exact.value(column, domain.kind, domain.bounds, relation.child.rows)
        found.append(Row(group[0], min(row.rank for row in mine), values))
    return found


def windowed(relation: PersonWindows, rows: list[Row]) -> list[Row]:
    """Each row with its windows: for each row, the rows of its partition are looked through."""
    added: list[Values] = [{} for _ in rows]
    for name, window in relation.windows:
        for i, row in enumerate(rows):
            added[i][name] = over(window, relation.child, rows, row, i)
    return [Row(row.person, row.rank, row.values | new) for row, new in zip(rows, added, strict=True)]


def over(window: PersonWindow, child: RelationNode, rows: list[Row], row: Row, place: int) -> Value:
    keys = [calculation(each, child) for each in window.partition]

    def part(each: Row) -> tuple[Value, ...]:
        return each.person, *(key(each.values) for key in keys)

    def before(a: Row, b: Row) -> int:
        for each in window.order:
            value = calculation(each.expression, child)
            x, y = value(a.values), value(b.values)
            if x == y:
                continue
            if x is None or y is None:
                return -1 if (x is None) == each.nulls_first else 1
            return (-1 if x < y else 1) * (-1 if each.descending else 1)
        return 0

    def tied(a: Row, b: Row) -> int:
        one, two = ((each.rank, [in_order(value) for value in each.values.values()]) for each in (a, b))
        return before(a, b) or (one > two) - (one < two)

    mine = [(i, each) for i, each in enumerate(rows) if part(each) == part(row)]
    mine.sort(key=cmp_to_key(lambda a, b: tied(a[1], b[1])))
    at = next(k for k, (i, _) in enumerate(mine) if i == place)
    ordered = [each for _, each in mine]
    if window.function == "row_number":
        return at + 1
    if window.function == "rank":
        return 1 + sum(before(each, row) < 0 for each in ordered)
    if window.function == "dense_rank":
        steps = [k for k, each in enumerate(ordered) if k == 0 or before(ordered[k - 1], each)]
        return sum(k <= at for k in steps)
    value = None if window.expression is None else typed(window.expression, child.columns)
    given = [None if value is None else value.value(each.values) for each in ordered]
    if window.function in ("lag", "lead"):
        there = at - window.offset if window.function == "lag" else at + window.offset
        return given[there] if 0 <= there < len(given) else None
    if window.frame is not None:
        first, last = (None if end is None else at + end for end in window.frame)
        kept = [x for k, x in enumerate(given) if (first is None or k >= first) and (last is None or k <= last)]
    elif window.function == "first_value":
        kept = given[:1]
    else:
        kept = [x for x, each in zip(given, ordered, strict=True) if not window.order or before(each, row) <= 0]
    if window.function in ("first_value", "last_value"):
        return (kept[0] if window.function == "first_value" else kept[-1]) if kept else None
    if value is None:
        return len(kept)
    return Exact(window.function, window.expression).value(kept, value.domain.kind, value.domain.bounds, child.rows)


def bounded(relation: Bound, rows: list[Row]) -> list[Row]:
    keys = [calculation(key, relation.child) for key in relation.keys]
    kept: list[Row] = []
    for _, each in groupby(sorted(rows, key=lambda row: in_order(row.person)), key=lambda row: row.person):
        groups: dict[tuple[Value, ...], list[Row]] = {}
        for row in each:
            groups.setdefault(tuple(key(row.values) for key in keys), []).append(row)
        ordered = sorted(groups, key=lambda key: (min(row.rank for row in groups[key]), [in_order(v) for v in key]))
        for key in ordered[: relation.groups]:
            mine = sorted(groups[key], key=lambda row: (row.rank, [in_order(value) for value in row.values.values()]))
            kept += mine[: relation.rows_per_group]
    return kept


# --- questions ------------------------------------------------------------------------------------------------------


def collected(question: Collect, stored: Stored) -> dict[Group, tuple[Any, ...]]:
    rows = rows_of(question.relation, stored)
    keys = [calculation(key, question.relation) for _, key in question.keys]
    groups: dict[Group, list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(key(row.values) for key in keys), []).append(row)
    if not keys:
        groups = {(): rows}
    if question.known is not None:
        groups = {group: groups.get(group, []) for group in question.known}
    return {
        group: tuple(statistic(each, question.relation, mine) for each in question.statistics)
        for group, mine in groups.items()
    }


def statistic(each: Any, relation: RelationNode, rows: list[Row]) -> Any:
    known = [(row, None) for row in rows]
    if each.expression is not None:
        value = calculation(each.expression, relation)
        known = [(row, x) for row in rows if (x := value(row.values)) is not None]
    match each:
        case Count():
            return len(known)
        case CountPersons():
            return len({row.person for row, _ in known})
        case CountDistinct():
            return len({x for _, x in known})
        case ExactSum():
            return sum(each.addend(x) for _, x in known)
        case Cells():
            inside = Counter(sum(x >= edge for edge in each.edges[1:-1]) for _, x in known)
            return tuple(inside[cell] for cell in range(each.width))
    raise AssertionError(each)
