"""Joins of SQL: which conditions match two sides, and the relation and scope of the rows that meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from deniable.queries.plan.fresh_names import fresh, renaming
from deniable.queries.plan.refusals import refuse
from deniable.queries.relations.relation_nodes import (
    Bound,
    How,
    JoinPrivate,
    JoinPublic,
    OnOne,
    Project,
    RelationNode,
    Source,
    Union,
)
from deniable.queries.sql.name_scope import RelationExpressions, Scope, ScopeEntry, entry_named, matching
from deniable.queries.sql.syntax_tree import conjoined, exp, unwrapped
from deniable.tables.expressions import Column, Expression, Literal, call
from deniable.tables.schema import Table


@final
@dataclass(frozen=True, slots=True)
class PublicItem:
    """A public table in FROM that must still be joined with a private one."""

    table: Table
    qualifier: str

    @property
    def entries(self) -> tuple[ScopeEntry, ...]:
        return tuple(ScopeEntry(self.qualifier, name, name) for name, _ in self.table.columns)


FromItem = Scope | PublicItem


Pair = tuple[exp.Expression, exp.Expression]


def matched(join: exp.Join, left: Scope, right: FromItem) -> tuple[list[Pair], list[exp.Expression]]:
    """The equalities of a join as (left, right), and its other conditions."""
    using = join.args.get("using")
    if using:
        return [(exp.column(each.copy()), exp.column(each.copy())) for each in using], []
    return equal_pairs(list(conjoined(join.args["on"])), left, right, side_of)


def linked(conditions: list[exp.Expression], left: Scope, right: FromItem) -> tuple[list[Pair], list[exp.Expression]]:
    """The equalities between two of several tables as (left, right), and all other conditions.

    Columns of further tables may occur. A public table is joined on its columns, so other equalities stay conditions.
    """
    pairs, rest = equal_pairs(conditions, left, right, _known_side)
    if isinstance(right, PublicItem):
        rest += [exp.EQ(this=a, expression=b) for a, b in pairs if not isinstance(b, exp.Column)]
        pairs = [(a, b) for a, b in pairs if isinstance(b, exp.Column)]
    return pairs, rest


def equal_pairs(
    conditions: list[exp.Expression],
    left: Scope,
    right: FromItem,
    side: Callable[[exp.Expression, Scope, FromItem], str],
) -> tuple[list[Pair], list[exp.Expression]]:
    """(the conditions that equate an expression of the left side with one of the right side, all other conditions)."""
    pairs: list[Pair] = []
    rest: list[exp.Expression] = []
    for part in conditions:
        if isinstance(part, exp.EQ):
            a, b = side(part.this, left, right), side(part.args["expression"], left, right)
            if (a, b) == ("left", "right"):
                pairs.append((unwrapped(part.this), unwrapped(part.args["expression"])))
                continue
            if (a, b) == ("right", "left"):
                pairs.append((unwrapped(part.args["expression"]), unwrapped(part.this)))
                continue
        rest.append(part)
    return pairs, rest


def factored(condition: exp.Expression) -> list[exp.Expression]:
    """The parts of a conjunction. A part that all branches of an OR have in common is taken out of the OR."""
    found: list[exp.Expression] = []
    for part in conjoined(condition):
        if isinstance(part, exp.Or):
            first, *others = ([*conjoined(branch)] for branch in conjoined(part, exp.Or))
            found += [each for each in first if isinstance(each, exp.EQ) and all(each in other for other in others)]
        found.append(part)
    return found


def _known_side(node: exp.Expression, left: Scope, right: FromItem) -> str:
    """As `side_of`, but "" for columns of other tables, and for the side of a query around this one."""
    sides: set[str] = set()
    for column in node.find_all(exp.Column):
        name, qualifier = str(column.name), str(column.table or "")
        ours, theirs = matching(left.entries, name, qualifier), matching(right.entries, name, qualifier)
        if bool(ours) == bool(theirs):
            return ""
        sides.add("left" if ours else "right")
    return sides.pop() if len(sides) == 1 else ""


def inner_first(node: exp.Expression, left: Scope, right: FromItem) -> str:
    """The side of a condition in a sub-query: a name is of the sub-query (right) if it has one, else of the query."""
    sides: set[str] = set()
    for column in node.find_all(exp.Column):
        name, qualifier = str(column.name), str(column.table or "")
        if matching(right.entries, name, qualifier):
            sides.add("right")
        elif matching(left.entries, name, qualifier):
            sides.add("left")
        else:
            here = (entry.name for entry in (*right.entries, *left.entries))
            refuse("column", name=f"{qualifier}.{name}" if qualifier else name, among=here)
    return sides.pop() if len(sides) == 1 else "both" if sides else "right"


_TURNED: Final = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_COMPARISONS: Final[dict[type[exp.Expression], str]] = {
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
}


@final
@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison of an expression of a sub-query (`theirs`) with an expression of the query around it (`ours`)."""

    operator: str
    theirs: Expression
    ours: Expression

    @classmethod
    def of(cls, node: exp.Expression, ours: RelationExpressions, theirs: RelationExpressions) -> Compared:
        """The comparison of a node; `QuestionRefused` if it is another condition."""
        operator = _COMPARISONS.get(type(node))
        if operator is None:
            refuse("subquery")
        sides = node.this, node.args["expression"]
        where = [inner_first(each, ours.scope, theirs.scope) for each in sides]
        if where == ["left", "right"]:
            return cls(_TURNED[operator], theirs.fitted(sides[1]), ours.fitted(sides[0]))
        if where != ["right", "left"]:
            refuse("subquery")
        return cls(operator, theirs.fitted(sides[0]), ours.fitted(sides[1]))

    def met(self, least: Expression, most: Expression) -> Expression:
        """Whether some value of the sub-query meets the comparison, given the least and the largest of its values.

        For example, a value below ours exists exactly if the least value is below ours, and a different value exists
        exactly if the least or the largest differs.
        """
        if self.operator == "ne":
            return call("or", call("ne", least, self.ours), call("ne", most, self.ours))
        return call(self.operator, least if self.operator in {"lt", "le"} else most, self.ours)


def side_of(node: exp.Expression, left: Scope, right: FromItem) -> str:
    """From which side of a join all columns of a node come: "left", "right" or "" (both, or none)."""
    sides: set[str] = set()
    for column in node.find_all(exp.Column):
        name, qualifier = str(column.name), str(column.table or "")
        ours, theirs = matching(left.entries, name, qualifier), matching(right.entries, name, qualifier)
        if ours and theirs:
            refuse("ambiguous", name=name)
        if not ours and not theirs:
            here = (entry.name for entry in (*left.entries, *right.entries))
            refuse("column", name=f"{qualifier}.{name}" if qualifier else name, among=here)
        sides.add("left" if ours else "right")
    return sides.pop() if len(sides) == 1 else ""


def columns_for(scope: Scope, nodes: list[exp.Expression], avoid: Sequence[str]) -> tuple[Scope, list[str]]:
    """(the scope with a column for each node, their names), projected if that is needed to avoid names in `avoid`."""
    rows = RelationExpressions(scope)
    existing = list(scope.relation.columns)
    names = renaming(scope.relation, avoid)
    taken = {*avoid, *names.values()}
    expressions: list[tuple[str, Expression]] = [(names[name], Column(name)) for name in existing]
    found: list[str] = []
    for node in nodes:
        expression = rows.fitted(node)
        if isinstance(expression, Column):
            found.append(names[expression.name])
            continue
        name = fresh("joined", taken)
        taken.add(name)
        expressions.append((name, expression))
        found.append(name)
    if all(old == new for old, new in names.items()) and len(expressions) == len(existing):
        return scope, found
    entries = tuple(
        e._replace(marker=names.get(e.marker, "")) if e.column is None else e._replace(column=names[e.column])
        for e in scope.entries
    )
    return Scope(Project(scope.relation, tuple(expressions)), entries, scope.nodes + 1), found


def _beside(
    left: Iterable[ScopeEntry], right: Iterable[ScopeEntry], how: How, using: set[str], marker: str = ""
) -> tuple[ScopeEntry, ...]:
    theirs = tuple(
        e._replace(
            bare=e.bare and e.name.casefold() not in using,
            certain=e.certain and how is How.INNER,
            marker=e.marker or (marker if e.column is None and e.certain else ""),
        )
        for e in right
    )
    return (*left, *theirs)


def with_public(left: Scope, right: PublicItem, pairs: list[Pair], how: How, using: set[str]) -> Scope:
    """The scope of a join with a public table. `pairs` must be equal; `using` has the names in USING (else empty).

    Raises `QuestionRefused` without pairs, or if the right side of a pair is not a column of the table.
    """
    theirs: list[str] = []
    for _, node in pairs:
        if not isinstance(node, exp.Column):
            refuse("join public")
        name = str(node.name)
        theirs.append(str(entry_named(right.entries, name, str(node.table or "")).column))
    if not pairs:
        refuse("join public")
    left, ours = columns_for(left, [node for node, _ in pairs], [name for name, _ in right.table.columns])
    joined = JoinPublic(left.relation, right.table, tuple(zip(ours, theirs, strict=True)), how)
    return Scope(joined, _beside(left.entries, right.entries, how, using), left.nodes + 1)


def with_private(left: Scope, right: Scope, pairs: list[Pair], how: How, using: set[str]) -> Scope:
    """The scope of a join of two private sides; `QuestionRefused` unless `pairs` match the people (`same_person`)."""
    ours, theirs = RelationExpressions(left), RelationExpressions(right)
    further: list[Pair] = []
    person = False
    for a, b in pairs:
        known = ours.is_person(a), theirs.is_person(b)
        if known == (True, True):
            person = True
        elif known == (False, False):
            further.append((a, b))
        else:
            refuse("person")
    if not person and not same_person(left, right, pairs):
        refuse("join person")
    for a, b in further:
        if table := ours.names_rows_of(a):
            left = Scope(enforced(left.relation, table), left.entries, left.nodes + 1)
        if table := theirs.names_rows_of(b):
            right = Scope(enforced(right.relation, table), right.entries, right.nodes + 1)
    marker = ""
    if how is How.LEFT:
        right, marker = _marked(right)
    left, a_columns = columns_for(left, [a for a, _ in further], ())
    theirs_before = list(right.relation.columns)
    right, b_columns = columns_for(right, [b for _, b in further], list(left.relation.columns))
    if marker:
        marker = list(right.relation.columns)[theirs_before.index(marker)]
    joined = JoinPrivate(left.relation, right.relation, tuple(zip(a_columns, b_columns, strict=True)), how)
    return Scope(joined, _beside(left.entries, right.entries, how, using, marker), left.nodes + right.nodes + 1)


def _marked(scope: Scope) -> tuple[Scope, str]:
    """A scope with a column that is never NULL, and its name. A LEFT JOIN makes it NULL in rows without a partner."""
    columns = scope.relation.columns
    never = next((name for name in columns if not columns.unlisted(name).nullable), "")
    if never:
        return scope, never
    name = fresh("there", columns)
    made = Project(scope.relation, (*((each, Column(each)) for each in columns), (name, Literal(1))))
    return Scope(made, scope.entries, scope.nodes + 1), name


def same_person(left: Scope, right: Scope, pairs: list[Pair]) -> bool:
    """Whether equalities between two private sides say that their people are equal.

    They do if they compare ids, or if a column is declared as unique: the items of an order belong to its customer.
    They also do if both columns are declared as owned: two items of one order belong to one customer. In any case the
    join compares the person too, so a wrong declaration cannot put the rows of two people side by side.
    """
    ours, theirs = RelationExpressions(left), RelationExpressions(right)
    named = any(ours.names_rows_of(a) or theirs.names_rows_of(b) for a, b in pairs)
    named = named or any(ours.is_owned(a) and theirs.is_owned(b) for a, b in pairs)
    return named or any(ours.is_person(a) and theirs.is_person(b) for a, b in pairs)


def enforced(relation: RelationNode, table: str) -> RelationNode:
    """A relation in which no person has two rows of a table with the same value of a unique column.

    The declaration is enforced, not trusted: further rows are dropped where the table is read, by the secret rank.
    """
    match relation:
        case Source(table=found) if found.name == table:
            made: RelationNode = relation
            for name in found.unique:
                made = Bound(made, (Column(name),), relation.rows, 1)
            return made
        case Bound(child=Source(table=found)) if found.name == table:
            return relation
        case OnOne(child=child):
            return replace(relation, child=enforced(child, table))
        case JoinPrivate(left=left, right=right):
            return replace(relation, left=enforced(left, table), right=enforced(right, table))
        case Union(parts=parts):
            return replace(relation, parts=tuple(enforced(part, table) for part in parts))
    return relation
