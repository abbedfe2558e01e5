"""Relations: the rows that a question reads, as a tree of nodes that each have a stability rule.

The stability of a node is one number, `rows`: in its relation, no person owns more than that many rows, on any data.
Every node processes each person's rows independently of everyone else's. So between neighbouring tables the relation
differs by at most that many rows (twice as many if a person is replaced). Transformations without such a bound have no
node.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, final

from deniable.errors import QuestionRefused
from deniable.numbers import plain
from deniable.queries.relations.operator_bounds import Bounds, Unfit, common, only_null
from deniable.queries.relations.operators import Columns, domain, typed
from deniable.queries.relations.restricted_columns import few_values
from deniable.queries.relations.whole_people import check_whole_people
from deniable.tables.expressions import Column
from deniable.tables.kinds import LARGEST, NUMBERS, SMALLEST, Domain, Kind, Scalar, within_keys

if TYPE_CHECKING:
    from deniable.tables.expressions import Expression
    from deniable.tables.schema import Table

MOST_ROWS: Final = 2**53
"""The most rows of a person in a plan: up to here a float counts exactly."""
MOST_JOINED: Final = 100_000
"""The most rows to which a join may expand a person's rows. More would take so long that time reveals the person."""


@dataclass(frozen=True, slots=True, eq=False)
class RelationNode(ABC):
    """Rows that belong to people. Every relation knows its columns, their domains, and its stability.

    A node is checked at construction and raises `QuestionRefused`. Relations are compared by canonical form, not by ==.
    """

    @property
    @abstractmethod
    def columns(self) -> Columns:
        """The columns that expressions above may use. The person's id is passed along but is not among them."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """The stability: the most rows that one person owns."""

    def rows_alike(self, names: frozenset[str]) -> int:
        """The most rows of one person that have the same value, not NULL, in each of these columns. At most `rows`."""
        return self.rows

    @property
    @abstractmethod
    def tables(self) -> tuple[Table, ...]:
        """The private tables below, each once."""

    @property
    @abstractmethod
    def children(self) -> tuple[RelationNode, ...]:
        """The relations directly below."""

    @property
    def people(self) -> bool:
        """Whether people have an id; otherwise every row is its own person."""
        return all(table.unit is not None and table.unit.column is not None for table in self.tables)


@dataclass(frozen=True, slots=True, eq=False)
class OnOne(RelationNode):
    """A relation computed from one other relation, `child`. By default it has the child's columns; subclasses define
    the stability.
    """

    child: RelationNode

    @property
    def columns(self) -> Columns:
        return self.child.columns

    @property
    def tables(self) -> tuple[Table, ...]:
        return self.child.tables

    @property
    def children(self) -> tuple[RelationNode, ...]:
        return (self.child,)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Source(RelationNode):
    """A registered private table, of which at most `rows` rows of each person are read (by the stored secret rank)."""

    table: Table
    _columns: Columns = field(init=False, repr=False)

    def __post_init__(self) -> None:
        unit = self.table.unit
        if unit is None:
            raise QuestionRefused(
                "public", f"{self.table.name!r} is a public table, which needs no noise", "join it with a private table"
            )
        _keep(self, {name: within_keys(domain) for name, domain in self.table.columns if name != unit.column})

    @property
    def columns(self) -> Columns:
        return self._columns

    @property
    def rows(self) -> int:
        assert self.table.unit is not None
        return self.table.unit.rows

    @property
    def tables(self) -> tuple[Table, ...]:
        return (self.table,)

    @property
    def children(self) -> tuple[RelationNode, ...]:
        return ()


@final
@dataclass(frozen=True, slots=True, eq=False)
class FilterRows(OnOne):
    """The rows for which the condition is true (neither false nor NULL).

    Rows: at most those of the child. If the condition allows only m values of a column, none of them NULL, a person has
    at most `rows_alike` rows for each value, so at most m times as many in all: `WHERE k = 1` keeps one row if k
    numbers the person's rows.
    """

    condition: Expression
    _rows: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        found = typed(self.condition, self.child.columns).domain
        if found.kind is not Kind.BOOLEAN:
            raise QuestionRefused(
                "kinds", f"a condition must be boolean, not {found.kind.value}", "write a comparison, such as a <> 0"
            )
        few = few_values(self.condition, self.child.columns)
        alike = [number * self.child.rows_alike(frozenset([name])) for name, number in few.items()]
        together = math.prod(few.values()) * self.child.rows_alike(frozenset(few))
        object.__setattr__(self, "_rows", min(self.child.rows, together, *alike))

    @property
    def rows(self) -> int:
        return self._rows

    def rows_alike(self, names: frozenset[str]) -> int:
        return min(self._rows, self.child.rows_alike(names))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Project(OnOne):
    """New columns computed from old ones, row by row. Rows: unchanged."""

    expressions: tuple[tuple[str, Expression], ...]
    _columns: Columns = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _one_name_each(name for name, _ in self.expressions)
        object.__setattr__(self, "_columns", Columns.computed(self.expressions, self.child.columns))

    @property
    def columns(self) -> Columns:
        return self._columns

    @property
    def rows(self) -> int:
        return self.child.rows

    def rows_alike(self, names: frozenset[str]) -> int:
        # A column that is passed on has the same value below. Nothing is known about a computed one.
        passed = (each.name for name, each in self.expressions if name in names and isinstance(each, Column))
        return self.child.rows_alike(frozenset(passed))


@final
class How(Enum):
    """Whether a join drops (INNER) or keeps (LEFT) rows without a partner."""

    INNER = "inner"
    LEFT = "left"


@final
@dataclass(frozen=True, slots=True, eq=False)
class JoinPublic(OnOne):
    """Each row with its partners in a public table. Rows: those of the child times the most partners of a key (public).

    `on` pairs a column of the child with one of the table. NULL has no partner. All columns of both sides are kept, so
    their names must differ; the SQL and dataframe fronts rename the child's if necessary.
    """

    table: Table
    on: tuple[tuple[str, str], ...]
    how: How
    _columns: Columns = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.table.unit is not None:
            raise QuestionRefused("join", f"{self.table.name!r} is private", "join private tables on the person")
        _one_name_each([*self.child.columns, *(name for name, _ in self.table.columns)])
        if not self.on:
            raise QuestionRefused("join", "a public table must be joined on equal columns", "write ON a.code = b.code")
        _comparable(self.on, self.child.columns, dict(self.table.columns))
        _bounded(self.rows, self.child.rows)
        beside = {name: within_keys(domain) for name, domain in self.table.columns}
        _keep(self, {**self.child.columns, **_beside(beside, self.how)})

    @property
    def columns(self) -> Columns:
        return self._columns

    @property
    def partners(self) -> int:
        """The most partners of one row: the least over known sets of join columns, because more columns match fewer."""
        joined = {right for _, right in self.on}
        known = [most for names, most in self.table.most_partners if set(names) <= joined]
        if not known:
            raise QuestionRefused(
                "join",
                f"it is not known how many rows of {self.table.name!r} share one value of {', '.join(sorted(joined))}",
                "register the public table, which counts them",
            )
        return max(1, min(known))

    @property
    def rows(self) -> int:
        return self.child.rows * self.partners

    def rows_alike(self, names: frozenset[str]) -> int:
        return self.child.rows_alike(names & frozenset(self.child.columns)) * self.partners


@final
@dataclass(frozen=True, slots=True, eq=False)
class JoinPrivate(RelationNode):
    """Two relations of the same people, joined on the person (and further columns `on`).

    Rows: each row of one side has at most as many partners as the other side has rows of that person with the same
    values in `on`. So a person owns at most left.rows × (rows of the right side alike in `on`) rows, and as many with
    the sides exchanged; the smaller number counts. A LEFT JOIN adds at most the rows of its left side. Without further
    columns this is the product; an order joined with its items costs the items alone.
    """

    left: RelationNode
    right: RelationNode
    on: tuple[tuple[str, str], ...]
    how: How
    _columns: Columns = field(init=False, repr=False)
    _rows: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not (self.left.people and self.right.people):
            raise QuestionRefused(
                "unit", "private tables must be joined on the person, but every row is its own person here",
                "open the session with Unit.person(column, rows=)",
            )  # fmt: skip
        check_whole_people(self.tables)
        _one_name_each([*self.left.columns, *self.right.columns])
        _comparable(self.on, self.left.columns, self.right.columns)
        # Rows meet by the person before the other columns are compared, so the work is that of the product.
        _bounded(self.left.rows * self.right.rows, max(self.left.rows, self.right.rows))
        object.__setattr__(self, "_rows", self._counted())  # once: a chain of joins would count it again and again
        _keep(self, {**self.left.columns, **_beside(self.right.columns, self.how)})

    @property
    def columns(self) -> Columns:
        return self._columns

    @property
    def rows(self) -> int:
        return self._rows

    def _counted(self) -> int:
        mine = self.left.rows_alike(frozenset(name for name, _ in self.on))
        theirs = self.right.rows_alike(frozenset(name for _, name in self.on))
        unmatched = self.left.rows if self.how is How.LEFT else 0
        return min(self.left.rows * theirs, self.right.rows * mine + unmatched)

    def rows_alike(self, names: frozenset[str]) -> int:
        left = names & frozenset(self.left.columns)
        # Result rows that are alike come from right rows that are alike in these columns, and also in the join columns,
        # whose values are those of the left row.
        right = names & frozenset(self.right.columns) | {theirs for mine, theirs in self.on if mine in left}
        return min(self.rows, self.left.rows_alike(left) * self.right.rows_alike(right))

    @property
    def tables(self) -> tuple[Table, ...]:
        return _each_once(self.left, self.right)

    @property
    def children(self) -> tuple[RelationNode, ...]:
        return (self.left, self.right)


@final
@dataclass(frozen=True, slots=True, eq=False)
class PerPerson(OnOne):
    """One row for each person, or for each person and value of `keys`, with exact aggregates of that person's rows.

    Rows: 1 without keys, else unchanged. An aggregate is `Exact`: visits per patient, the largest cost of a patient.
    """

    keys: tuple[tuple[str, Expression], ...]
    aggregates: tuple[tuple[str, Exact], ...]
    _columns: Columns = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.child.people:
            raise QuestionRefused(
                "unit", "every row is its own person here, so there is nothing to gather per person",
                "open the session with Unit.person(column, rows=)",
            )  # fmt: skip
        check_whole_people(self.tables)
        _one_name_each([name for name, _ in self.keys] + [name for name, _ in self.aggregates])
        below = self.child.columns
        found = {name: domain(key, below) for name, key in self.keys}
        found |= {name: exact.domain(below, self.child.rows) for name, exact in self.aggregates}
        _keep(self, found)

    @property
    def columns(self) -> Columns:
        return self._columns

    @property
    def rows(self) -> int:
        return self.child.rows if self.keys else 1

    def rows_alike(self, names: frozenset[str]) -> int:
        return 1 if all(name in names for name, _ in self.keys) else self.rows


EXACT: Final = ("count", "count_distinct", "sum", "avg", "min", "max")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Exact:
    """An aggregate within one person: count, count_distinct, sum, avg, min or max of an expression (None: of rows).

    NULLs are skipped; sum, avg, min and max of no values are NULL. Numbers need public bounds to be summed. A sum of
    reals rounds each value to a grid and adds exactly: see `exponent_of`.
    """

    function: str
    expression: Expression | None

    def domain(self, columns: Mapping[str, Domain], rows: int) -> Domain:
        """The domain of the aggregate of at most `rows` rows; `QuestionRefused` if the expression does not fit."""
        if self.function not in EXACT:
            raise QuestionRefused(
                "aggregate", f"{self.function} is not an aggregate within a person", f"choose from {', '.join(EXACT)}"
            )
        if self.function in {"count", "count_distinct"}:
            if self.expression is not None:
                typed(self.expression, columns)
            elif self.function == "count_distinct":
                raise QuestionRefused("aggregate", "COUNT(DISTINCT …) needs a column", "write COUNT(DISTINCT a)")
            low = 0 if self.expression is not None else 1
            return Domain(Kind.INTEGER, (Fraction(low), Fraction(rows)), None, False)
        if self.expression is None:
            raise QuestionRefused("aggregate", f"{self.function} needs a column", f"write {self.function.upper()}(a)")
        found = domain(self.expression, columns)
        if self.function in {"min", "max"}:
            return Domain(found.kind, found.bounds, found.keys, found.nullable)
        if found.kind not in NUMBERS or only_null(found):
            raise QuestionRefused("kinds", f"{self.function} needs numbers", "write CAST(a AS DOUBLE)")
        if found.bounds is None:
            raise QuestionRefused(
                "bounds", f"{self.function} needs a number with public bounds",
                "bound it where it is summed: LEAST(GREATEST(a, 0), 100)",
            )  # fmt: skip
        return self._numeric(found.kind, found.bounds, found.nullable, rows)

    def _numeric(self, kind: Kind, bounds: tuple[Fraction, Fraction], nullable: bool, rows: int) -> Domain:
        low, high = bounds
        whole = summed_whole(kind, bounds, rows)
        if self.function == "sum":
            low, high = min(low, low * rows), max(high, high * rows)
            if whole:
                return Domain(Kind.INTEGER, (low, high), None, nullable)
        # Rounding adds up to half a grid step for each value, and the total and the quotient are rounded to floats.
        slack = (Fraction(0) if whole else rows * Fraction(2) ** exponent_of(bounds)) + max(abs(low), abs(high)) / 2**50
        return Domain(Kind.REAL, _clipped(low - slack, high + slack), None, nullable)

    def value(self, values: Sequence[Scalar | None], kind: Kind, bounds: Bounds | None, rows: int) -> Scalar | None:
        """The reference meaning: the aggregate of one person's values, at most `rows` of them, of this kind and bounds.

        For a sum or an average of reals the values are rounded to the grid, floor(x/2^e + 1/2), and added as integers.
        """
        known: list[Any] = [value for value in values if value is not None]
        if self.function == "count":
            return len(values) if self.expression is None else len(known)
        if self.function == "count_distinct":
            return len(set(known))
        if not known:
            return None
        if self.function in {"min", "max"}:
            extreme: Scalar = min(known) if self.function == "min" else max(known)
            return extreme
        assert bounds is not None
        total: int | float = sum(known)
        if not summed_whole(kind, bounds, rows):
            step = 2.0 ** exponent_of(bounds)
            total = float(sum(math.floor(float(value) / step + 0.5) for value in known)) * step
        return total if self.function == "sum" else float(total) / len(known)


def summed_whole(kind: Kind, bounds: tuple[Fraction, Fraction], rows: int) -> bool:
    """Whether the sum of a person's values is an exact 64-bit integer; otherwise it is computed on a grid of reals."""
    return kind is Kind.INTEGER and bounds[0] * rows >= SMALLEST and bounds[1] * rows <= LARGEST


def exponent_of(bounds: tuple[Fraction, Fraction]) -> int:
    """The grid 2^exponent on which reals within `bounds` are summed within a person: 40 bits below the largest size.

    >>> exponent_of((Fraction(0), Fraction(100)))
    -33
    """
    size = max(abs(end) for end in bounds)
    return 0 if size == 0 else max(-1000, (size.numerator.bit_length() - size.denominator.bit_length()) - 39)


def _clipped(low: Fraction, high: Fraction) -> tuple[Fraction, Fraction]:
    most = Fraction(2) ** 1000
    return Fraction(float(max(low, -most))), Fraction(float(min(high, most)))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Union(RelationNode):
    """The rows of all parts. Rows: the sum.

    If the parts are provably disjoint filters of one relation, also at most the rows of that relation. The rows of the
    largest part are not enough: a filter may have fewer rows than what it filters, and every part may have others.
    """

    parts: tuple[RelationNode, ...]
    disjoint: bool
    _columns: Columns = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.parts) < 2:
            raise QuestionRefused("union", "a union must have at least two parts", "write a UNION ALL b")
        names = tuple(self.parts[0].columns)
        if any(tuple(part.columns) != names for part in self.parts):
            raise QuestionRefused(
                "union", "all parts of a union must have the same columns", "use the same names in the same order"
            )
        if len({part.people for part in self.parts}) > 1:
            raise QuestionRefused("union", "all parts of a union must belong to the same people", "ask them one by one")
        try:
            found = {name: _merged([part.columns[name] for part in self.parts]) for name in names}
        except Unfit:
            raise QuestionRefused(
                "union", "a column of a union must have one kind", "write CAST(a AS DOUBLE)"
            ) from None
        _keep(self, found)
        _bounded(self.rows)

    @property
    def columns(self) -> Columns:
        return self._columns

    @property
    def rows(self) -> int:
        together = sum(part.rows for part in self.parts)
        return min(together, max(filtered(part).rows for part in self.parts)) if self.disjoint else together

    @property
    def tables(self) -> tuple[Table, ...]:
        return _each_once(*self.parts)

    @property
    def children(self) -> tuple[RelationNode, ...]:
        return self.parts


@final
@dataclass(frozen=True, slots=True, eq=False)
class Bound(OnOne):
    """At most `groups` values of `keys` for each person and `rows_per_group` rows in each, chosen by the secret rank.

    Rows: groups × rows_per_group, or those of the child if these are fewer.
    """

    keys: tuple[Expression, ...]
    groups: int
    rows_per_group: int

    def __post_init__(self) -> None:
        for key in self.keys:
            typed(key, self.child.columns)
        for name in ("groups", "rows_per_group"):
            most = plain(getattr(self, name))
            object.__setattr__(self, name, most)
            if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST_ROWS:
                raise QuestionRefused("options", f"{name} must be a whole number, at least 1", f"write {name}=1")

    @property
    def rows(self) -> int:
        return min(self.child.rows, self.groups * self.rows_per_group)

    def rows_alike(self, names: frozenset[str]) -> int:
        found = min(self.rows, self.child.rows_alike(names))
        alike = all(isinstance(key, Column) and key.name in names for key in self.keys)
        return min(found, self.rows_per_group) if alike else found


def filtered(relation: RelationNode) -> RelationNode:
    """The relation below all filters and projections."""
    while isinstance(relation, FilterRows | Project):
        relation = relation.child
    return relation


def _keep(relation: RelationNode, columns: Mapping[str, Domain]) -> None:
    """Set the columns of a relation during construction."""
    object.__setattr__(relation, "_columns", Columns(columns))


def _merged(domains: list[Domain]) -> Domain:
    together = common(domains)
    keys = None
    if all(each.keys is not None for each in domains) and all(each.kind is together.kind for each in domains):
        keys = tuple(dict.fromkeys(key for each in domains for key in each.keys or ()))
    return Domain(together.kind, together.bounds, keys, together.nullable)


def _beside(columns: Mapping[str, Domain], how: How) -> Mapping[str, Domain]:
    """The columns of the partner, nullable in a LEFT JOIN."""
    if how is How.INNER:
        return columns
    return {name: Domain(each.kind, each.bounds, each.keys, True) for name, each in columns.items()}


def _one_name_each(names: Iterable[object]) -> None:
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name:
            raise QuestionRefused("name", "every column must have a name", "write … AS name")
        if name in seen:
            raise QuestionRefused("name", f"two columns are called {name!r}", "rename one of them: … AS other")
        seen.add(name)


def _comparable(on: tuple[tuple[str, str], ...], left: Mapping[str, Domain], right: Mapping[str, Domain]) -> None:
    for a, b in on:
        for name, columns in ((a, left), (b, right)):
            if name not in columns:
                raise QuestionRefused(
                    "column", f"there is no column {name!r} here", f"choose from {', '.join(columns) or 'none'}"
                )
        if left[a].kind is not right[b].kind:
            raise QuestionRefused(
                "kinds", f"{a!r} is {left[a].kind.value} and {b!r} is {right[b].kind.value}", "cast one in a sub-query"
            )


def _bounded(rows: int, below: int = 0) -> None:
    """Refuse a stability above the limit. For a join, also refuse one far above the stability `below` of its inputs."""
    if rows > MOST_ROWS:
        raise QuestionRefused("join", "one person could own more than 2**53 rows", "gather per person before the join")
    if below and rows > max(below, MOST_JOINED):
        raise QuestionRefused(
            "join",
            f"after this join, one person could own more than {MOST_JOINED:,} rows",
            "gather per person before the join",
        )


def _each_once(*relations: RelationNode) -> tuple[Table, ...]:
    return tuple({table.name: table for relation in relations for table in relation.tables}.values())


def tables_read(relation: RelationNode) -> dict[str, Table]:
    """Every table that a relation reads, private and public, by name."""
    found = {table.name: table for table in relation.tables}
    below = [relation]
    while below:
        each = below.pop()
        if isinstance(each, JoinPublic):
            found[each.table.name] = each.table
        below.extend(each.children)
    return found
