"""Random tables, neighbours and plans of the whole grammar, drawn by any source of choices (random, or hypothesis)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, count, product
from typing import Any

from deniable.queries.plan.disjointness import disjoint
from deniable.queries.plan.fresh_names import apart
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
from deniable.queries.relations.person_windows import (
    ENDS,
    NEIGHBOURS,
    NUMBERED,
    TOTALS,
    PersonWindow,
    PersonWindows,
    Sorting,
)
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
from deniable.tables.expressions import Column, Expression, Literal, call, case
from deniable.tables.kinds import Domain, Kind
from deniable.tables.schema import Table
from deniable.units import Relation as Neighbours
from deniable.units import Unit

Pick = Callable[[Sequence[Any]], Any]
Rows = list[dict[str, Any]]

VISITS = (
    ("a", Domain.integer(-2, 3)),
    ("b", Domain.text("x", "y")),
    ("c", Domain.real(-1.5, 2)),
    ("u", Domain.text()),
    ("f", Domain.boolean()),
    ("d", Domain.date()),
)
STAYS = (("e", Domain.integer(0, 3)), ("g", Domain.text()))
PLACES = (("h", Domain.text()), ("i", Domain.integer(0, 2)))
NEARLY_HALF = 0.49999999999999994
"""The largest float below a half; with a half added it is 1."""

CELLS: Mapping[Kind, tuple[Any, ...]] = {
    Kind.INTEGER: (None, -2, -1, 0, 1, 2, 3),
    Kind.TEXT: (None, "x", "y", "xy", ""),
    Kind.REAL: (None, -1.5, -0.25, 0.0, NEARLY_HALF, 0.5, 0.75, 2.0),
    Kind.BOOLEAN: (None, False, True),
    Kind.DATE: (None, dt.date(2024, 2, 29), dt.date(2024, 3, 1)),
}


SIDES = (("lt", "ge"), ("ge", "lt"))
NODES = ("filtered", "projected", "joined_public", "joined_private", "per_person", "windowed", "union", "bound")


@dataclass(frozen=True)
class World:
    """Tables, the rows that all share, and what one person adds in each of two neighbouring worlds."""

    visits: Table
    stays: Table
    places: Table
    public: Rows
    common: dict[str, Rows]
    here: dict[str, Rows]
    there: dict[str, Rows]
    neighbours: Neighbours


class Chooser:
    """Draws worlds and plans with a source of choices."""

    def __init__(self, pick: Pick, depths: Sequence[int] = (0, 1, 2, 3), nodes: Sequence[str] = NODES) -> None:
        self.pick = pick
        self.depths = depths
        self.nodes = nodes
        self.names = count()

    def name(self) -> str:
        return f"n{next(self.names)}"

    # --- worlds -----------------------------------------------------------------------------------------------------

    def world(self) -> World:
        neighbours = self.pick(list(Neighbours))
        visits = Table("visits", VISITS, Unit(neighbours, rows=self.pick([1, 2, 3]), column="who"))
        stays = Table("stays", STAYS, Unit(neighbours, rows=self.pick([1, 2]), column="who"))
        # Few values, so that many rows share one.
        public = [{"h": self.pick(["x", "y", None]), "i": self.pick([0, 1, None])} for _ in range(self.pick([0, 2, 4]))]
        common: dict[str, Rows] = {"visits": [], "stays": []}
        for person in ("p", "q")[: self.pick([0, 1, 2])]:
            self.add(common, person)
        here: dict[str, Rows] = {"visits": [], "stays": []}
        there: dict[str, Rows] = {"visits": [], "stays": []}
        self.add(here, "new")
        if neighbours is Neighbours.REPLACE:
            self.add(there, self.pick(["new", "other"]))
        places = Table("places", PLACES, None, partners(public))
        return World(visits, stays, places, public, common, here, there, neighbours)

    def add(self, rows: dict[str, Rows], person: str) -> None:
        # More rows than are kept, and the same row again, are part of the game.
        for table, columns in (("visits", VISITS), ("stays", STAYS)):
            mine = [self.row(columns, person) for _ in range(self.pick([0, 1, 2, 3, 4]))]
            if mine and self.pick([False, True]):
                mine += [dict(mine[0])] * self.pick([1, 2])
            rows[table] += mine

    def row(self, columns: tuple[tuple[str, Domain], ...], person: str | None) -> dict[str, Any]:
        values = {name: self.pick(CELLS[domain.kind]) for name, domain in columns}
        return values if person is None else {"who": person, **values}

    # --- expressions ------------------------------------------------------------------------------------------------

    def expression(self, kind: Kind, columns: Mapping[str, Domain], depth: int = 2) -> Expression:
        there = [name for name, domain in columns.items() if domain.kind is kind]
        if depth == 0 or (there and self.pick([False, False, True])):
            return Column(self.pick(there)) if there and self.pick([False, True, True]) else self.constant(kind)

        def new(of: Kind) -> Expression:
            return self.expression(of, columns, depth - 1)

        numbers = (Kind.INTEGER, Kind.REAL)
        options: list[Callable[[], Expression]] = [
            lambda: case((new(Kind.BOOLEAN), new(kind)), otherwise=new(kind)),
            lambda: call("coalesce", new(kind), new(kind)),
            lambda: call("nullif", new(kind), new(kind)),
        ]
        if kind in numbers:
            two = [self.pick(numbers), self.pick(numbers)] if kind is Kind.REAL else [kind, kind]
            options += [
                lambda: call(self.pick(["add", "subtract", "multiply", "modulo"]), new(two[0]), new(two[1]))
            ] * 3
            options += [lambda: call(self.pick(["abs", "negate"]), new(kind))]
            options += [lambda: call(self.pick(["least", "greatest"]), new(kind), new(kind))]
        if kind is Kind.REAL:
            options += [lambda: call("divide", new(self.pick(numbers)), new(self.pick(numbers)))]
            options += [lambda: call("sqrt", new(Kind.REAL)), lambda: call("cast_real", new(Kind.TEXT))]
        if kind is Kind.INTEGER:
            options += [lambda: call("length", new(Kind.TEXT)), lambda: call("month", new(Kind.DATE))]
            options += (
                [lambda: call("cast_integer", new(Kind.BOOLEAN)), lambda: call("floor", Column("c"))]
                if "c" in columns
                else []
            )
        if kind is Kind.TEXT:
            options += [
                lambda: call("regexp_extract", new(Kind.TEXT), "(x)(y)?", self.pick([0, 1, 2])),
                lambda: call("regexp_replace", new(Kind.TEXT), "^x", self.pick(["", "\\0\\0"])),
            ]
            options += [
                lambda: call(self.pick(["upper", "trim"]), new(Kind.TEXT)),
                lambda: call("prefix", new(Kind.TEXT), 1),
            ]
            options += [
                lambda: call("concat", new(Kind.TEXT), new(Kind.TEXT)),
                lambda: call("cast_text", new(Kind.INTEGER)),
            ]
        if kind is Kind.BOOLEAN:
            options += [lambda: self.comparison(new)] * 4
            options += [lambda: call(self.pick(["and", "or"]), new(Kind.BOOLEAN), new(Kind.BOOLEAN))]
            options += [lambda: call("not", new(Kind.BOOLEAN)), lambda: call("like", new(Kind.TEXT), "%x%")]
            options += [lambda: call("regexp_like", new(Kind.TEXT), self.pick(["^x", "[xy]y$", "x?"]))]
            options += [lambda: call("is_null", new(self.pick([Kind.INTEGER, Kind.TEXT])))]
        if kind is Kind.DATE:
            options += [lambda: call("date_trunc", self.pick(["month", "year"]), new(Kind.DATE))]
        found: Expression = self.pick(options)()
        return found

    def comparison(self, new: Callable[[Kind], Expression]) -> Expression:
        kind = self.pick([Kind.INTEGER, Kind.REAL, Kind.TEXT, Kind.DATE])
        if self.pick([False, False, True]):
            return call("in", new(kind), *(self.constant(kind) for _ in range(2)))
        return call(self.pick(["eq", "ne", "lt", "le", "gt", "ge"]), new(kind), new(kind))

    def constant(self, kind: Kind) -> Literal:
        return Literal(self.pick(CELLS[kind][1:] * 2 + CELLS[kind][:1]))

    # --- relations --------------------------------------------------------------------------------------------------

    def relation(self, world: World, depth: int) -> RelationNode:
        if depth == 0:
            return Source(self.pick([world.visits, world.visits, world.stays]))
        make = getattr(self, self.pick(self.nodes))
        found: RelationNode = make(world, self.relation(world, self.pick(range(depth))), depth)
        return found

    def filtered(self, world: World, child: RelationNode, depth: int) -> RelationNode:
        return FilterRows(child, self.expression(Kind.BOOLEAN, child.columns))

    def projected(self, world: World, child: RelationNode, depth: int) -> RelationNode:
        kept = [(name, Column(name)) for name in child.columns]
        return Project(child, (*kept, (self.name(), self.expression(self.pick(list(CELLS)), child.columns))))

    def joined_public(self, world: World, child: RelationNode, depth: int) -> RelationNode:
        left, _ = apart(child, [name for name, _ in PLACES])
        on = []
        for theirs, declared in PLACES[:: self.pick([1, 2, -1])]:
            ours = [name for name, each in left.columns.items() if each.kind is declared.kind]
            if ours:
                on.append((self.pick(ours), theirs))
        return JoinPublic(left, world.places, tuple(on[: self.pick([1, 2])]), self.pick(list(How))) if on else child

    def joined_private(self, world: World, child: RelationNode, depth: int) -> RelationNode:
        right, _ = apart(self.relation(world, self.pick(range(depth))), child.columns)
        on = []
        if self.pick([False, False, True]):
            both = [
                (a, b)
                for a, b in product(child.columns, right.columns)
                if child.columns[a].kind is right.columns[b].kind
            ]
            on = [self.pick(both)] if both else []
        return JoinPrivate(child, right, tuple(on), self.pick(list(How)))

    def per_person(self, world: World, child: RelationNode, depth: int) -> RelationNode:
        keys = [(self.name(), self.key(child)) for _ in range(self.pick([0, 0, 1, 2]))]
        aggregates: list[tuple[str, Exact]] = [(self.name(), Exact("count", None))]
        for _ in range(self.pick([0, 1, 1])):
            function = self.pick(["count", "count_distinct", "sum", "avg", "min", "max"])
            expression = self.expression(self.pick([Kind.INTEGER, Kind.REAL]), child.columns, 1)
            if function not in {"sum", "avg"} or usable(expression, child):
                aggregates.append((self.name(), Exact(function, expression)))
        return PerPerson(child, tuple(keys), tuple(aggregates))

    def windowed(self, world: World, child: RelationNode, depth: int) -> RelationNode:
        made = tuple((self.name(), self.window(child)) for _ in range(self.pick([1, 1, 2])))
        windows = PersonWindows(child, made)
        numbered = [name for name, each in made if each.function in ("row_number", "dense_rank", "rank")]
        if numbered and self.pick([False, True]):  # a condition on a number bounds the rows of a person
            k, n = Column(self.pick(numbered)), self.pick([1, 2])
            return FilterRows(windows, self.pick([call("eq", k, n), call("le", k, n), call("in", k, n, 3)]))
        return windows

    def window(self, child: RelationNode) -> PersonWindow:
        function = self.pick([*NUMBERED, *NEIGHBOURS, *ENDS, *TOTALS])
        numeric = function in ("sum", "avg")
        kind = self.pick([Kind.INTEGER, Kind.REAL]) if numeric else self.pick(list(CELLS))
        of: Expression | None = self.expression(kind, child.columns, self.pick([0, 1]))
        if numeric and of is not None and not usable(of, child):
            of = Literal(self.pick([1, 2]))
        if function in NUMBERED or (function == "count" and self.pick([False, True])):
            of = None
        partition = tuple(self.key(child) for _ in range(self.pick([0, 0, 1])))
        order = tuple(
            Sorting(self.key(child), self.pick([False, True]), self.pick([False, True]))
            for _ in range(self.pick([0, 1, 2]))
        )
        ends = self.pick([None, (None, 0), (-1, 0), (-1, 1), (1, 2), (0, None), (None, None), (-2, -1)])
        frame = ends if function in TOTALS or function in ENDS else None
        if function == "last_value" and frame is None:
            frame = (None, 0)
        return PersonWindow(function, of, partition, order, self.pick([0, 1, 2]), frame)

    def union(self, world: World, child: RelationNode, depth: int) -> RelationNode:
        parts: list[RelationNode] = []
        if self.pick([False, False, True]):
            least = Exact("min", self.expression(Kind.INTEGER, child.columns, 0))
            child = PerPerson(child, (), ((self.name(), Exact("count", None)), (self.name(), least)))
        kind = self.pick([Kind.INTEGER, Kind.TEXT])
        value = self.expression(kind, child.columns, self.pick([0, 1]))
        if isinstance(child, PerPerson) and self.pick([True, True, False]):
            kind, value = Kind.INTEGER, Column(child.aggregates[0][0])
        if isinstance(value, Literal):
            value = call("coalesce", value)
        alike = self.renamed(child)
        if self.pick([False, True]):  # one value decides, by its name
            one, two = self.constant(kind), [alike[0], self.pick(alike)]
            parts = [FilterRows(part, call(each, value, one)) for part, each in zip(two, self.pick(SIDES), strict=True)]
            return Union(tuple(parts), disjoint(parts))
        for _ in range(self.pick([2, 2, 3])):
            child = self.pick(alike)
            one, two = self.constant(kind), self.constant(kind)
            shape = self.pick(["lt", "ge", "eq", "between", "null", "in", "none"])
            if shape == "between":
                parts.append(FilterRows(child, value.between(one, two)))
            elif shape == "null":
                parts.append(FilterRows(child, value.is_null()))
            elif shape == "in":
                parts.append(FilterRows(child, call("in", value, one, two)))
            elif shape == "none":
                parts.append(child)
            else:
                parts.append(FilterRows(child, call(shape, value, one)))
        return Union(tuple(parts), disjoint(parts))

    def parted(self, world: World, child: RelationNode, depth: int) -> RelationNode:
        """A union of two relations, each with a column that is NULL in the other."""
        other = self.relation(world, self.pick(range(depth)))
        kinds = [self.pick([Kind.INTEGER, Kind.REAL]) for _ in range(2)]
        one, two = (self.expression(kind, each.columns, 1) for kind, each in zip(kinds, (child, other), strict=True))
        names, none = (self.name(), self.name()), Literal(None)
        parts = [
            Project(child, ((names[0], one), (names[1], none))),
            Project(other, ((names[0], none), (names[1], two))),
        ]
        return Union(tuple(parts), False)

    def renamed(self, child: RelationNode) -> list[RelationNode]:
        """The relation, and others whose columns have the same names and kinds but may be other columns."""
        names = list(child.columns)
        found: list[RelationNode] = [child]
        turned = {
            name: self.pick([n for n in names if child.columns[n].kind is child.columns[name].kind]) for name in names
        }
        found.append(Project(child, tuple((name, Column(other)) for name, other in turned.items())))
        if isinstance(child, PerPerson):
            kinds = {each: child.columns[each].kind for each, _ in child.aggregates}
            other = [(each, self.pick([e for n, e in child.aggregates if kinds[n] is kinds[each]])) for each in kinds]
            turned_round = zip(kinds, [exact for _, exact in reversed(child.aggregates)], strict=True)
            found.append(PerPerson(child.child, child.keys, tuple(other)))
            if len(set(kinds.values())) == 1:
                found += [PerPerson(child.child, child.keys, tuple(turned_round))] * 2
        return found

    def bound(self, world: World, child: RelationNode, depth: int) -> RelationNode:
        keys = tuple(self.key(child) for _ in range(self.pick([0, 1, 2])))
        return Bound(child, keys, self.pick([1, 2]), self.pick([1, 2]))

    # --- questions --------------------------------------------------------------------------------------------------

    def key(self, relation: RelationNode) -> Expression:
        kind = self.pick([Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN])
        return self.expression(kind, relation.columns, self.pick([0, 0, 1]))

    def statistic(self, relation: RelationNode) -> Statistic:
        number = self.expression(self.pick([Kind.INTEGER, Kind.REAL]), relation.columns, self.pick([0, 1]))
        low = Fraction(self.pick([-4, -2, -1, 0, 1]), 2)
        high = low + Fraction(self.pick([0, 1, 4, 8]), 2)
        if "c" in relation.columns and relation.columns["c"].kind is Kind.REAL and self.pick([False] * 9 + [True]):
            # In floating point the largest value rounds to more than the bound, here the one above 0.
            return ExactSum(Column("c"), Fraction(-1), Fraction(NEARLY_HALF), 0)
        total = ExactSum(number, low, high, self.pick([-1, 0, 1]))
        return self.pick(  # type: ignore[no-any-return]
            [
                Count(),
                Count(number),
                CountPersons(),
                CountPersons(number),
                CountDistinct(number),
                total,
                total,
                total,
                Cells(number, (Fraction(-1), Fraction(0), Fraction(1, 2), Fraction(3))),
            ]
        )

    def collect(self, world: World) -> Collect:
        relation = self.relation(world, self.pick(self.depths))
        keys = [(self.name(), self.key(relation)) for _ in range(self.pick([0, 1, 1, 2]))]
        if len(keys) == 2 and self.pick([False, False, True]):
            # A bound by one of the keys, named twice: as many keys, but fewer groups, and each may be split further.
            relation = Bound(relation, (keys[0][1],) * 2, 1, self.pick([1, 2]))
        elif keys and self.pick([False, False, True]):
            by = [self.pick(keys)[1] for _ in keys] if self.pick([False, True]) else [key for _, key in keys]
            relation = Bound(relation, tuple(by), self.pick([1, 2]), self.pick([1, 2]))
        elif isinstance(relation, PerPerson) and relation.keys and self.pick([False, True]):
            keys = [(name, Column(name)) for name, _ in relation.keys]
        known = None
        if keys and self.pick([False, True]):
            groups = list(product(*(possible(key, relation) for _, key in keys)))
            known = tuple(groups[: self.pick([1, 2, 3, 100])])
        return Collect(relation, tuple(keys), known, (self.statistic(relation), self.statistic(relation)))


def partners(public: Rows) -> tuple[tuple[tuple[str, ...], int], ...]:
    """How many rows of a public table share one value of some of its columns, at most."""
    found = []
    names = [name for name, _ in PLACES]
    for size in (1, 2):
        for chosen in combinations(names, size):
            seen: dict[tuple[Any, ...], int] = {}
            for row in public:
                if all(row[name] is not None for name in chosen):
                    value = tuple(row[name] for name in chosen)
                    seen[value] = seen.get(value, 0) + 1
            found.append((chosen, max(seen.values(), default=0)))
    return tuple(found)


def usable(expression: Expression, relation: RelationNode) -> bool:
    return domain(expression, relation.columns).bounds is not None


def possible(expression: Expression, relation: RelationNode) -> tuple[Any, ...]:
    found = domain(expression, relation.columns)
    return (*(found.keys or CELLS[found.kind][1:])[:4], None)
