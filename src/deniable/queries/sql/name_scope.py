"""Scopes: the names that a SELECT may use over a relation, and expressions in these names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, final

from deniable.errors import QuestionRefused
from deniable.queries.plan.refusals import MOST_NODES, refuse
from deniable.queries.relations.constant_kinds import fitted
from deniable.queries.relations.relation_nodes import RelationNode
from deniable.queries.relations.whole_people import check_whole_people
from deniable.queries.sql.scalar_expressions import Meaning, scalar
from deniable.queries.sql.syntax_tree import exp, leaves, only, unwrapped
from deniable.tables.expressions import Column, Expression
from deniable.tables.schema import Table


class ScopeEntry(NamedTuple):
    """A name in a scope: of a column of the relation, or (`column` None) of the person."""

    qualifier: str
    name: str
    column: str | None
    bare: bool = True
    """Whether the bare name refers to it; after USING, only one of the two sides has this."""
    certain: bool = True
    """False for the person's id on the right side of a LEFT JOIN: it may be NULL, so it does not identify people."""
    marker: str = ""
    """Beside an id that may be NULL: a column that is NULL exactly where the id is."""
    unique_in: str = ""
    """The table in which the column is declared as unique, so that its values name rows of one person."""
    owned: bool = False
    """Whether each of its values belongs to one person: it is declared as unique or as owned."""
    unit: Table | None = None
    """For the person: the table that says what the unit is."""


@final
@dataclass(frozen=True, slots=True)
class Scope:
    """A relation and the names of its columns in a SELECT. `nodes` is the number of its nodes, which is limited."""

    relation: RelationNode
    entries: tuple[ScopeEntry, ...]
    nodes: int

    def __post_init__(self) -> None:
        if self.nodes > MOST_NODES:
            refuse("nodes")

    def matching(self, name: str, qualifier: str) -> list[ScopeEntry]:
        """The entries that a name may refer to."""
        return matching(self.entries, name, qualifier)

    def has(self, name: str) -> bool:
        """Whether a bare name refers to an entry."""
        return bool(self.matching(name, ""))

    def called(self, qualifier: str) -> Scope:
        """The scope with all names qualified by a table alias."""
        return Scope(
            self.relation,
            tuple(e._replace(qualifier=qualifier) for e in self.entries),
            self.nodes,
        )

    def over(self, relation: RelationNode) -> Scope:
        """The same names over another relation, one node higher."""
        return Scope(relation, self.entries, self.nodes + 1)


def matching(entries: Iterable[ScopeEntry], name: str, qualifier: str) -> list[ScopeEntry]:
    """The entries that a name may refer to. Case is ignored, as in SQL."""
    wanted, of = name.casefold(), qualifier.casefold()
    return [
        entry
        for entry in entries
        if entry.name.casefold() == wanted and (entry.qualifier.casefold() == of if of else entry.bare)
    ]


def entry_named(entries: Sequence[ScopeEntry], name: str, qualifier: str) -> ScopeEntry:
    """The entry that a name refers to; `QuestionRefused` if it is unknown or ambiguous."""
    found = matching(entries, name, qualifier)
    if not found:
        refuse("column", name=f"{qualifier}.{name}" if qualifier else name, among=(each.name for each in entries))
    if len({entry.column for entry in found}) > 1:
        refuse("ambiguous", name=name)
    if found[0].column is None and found[0].unit is not None:
        check_whole_people([found[0].unit])
    return found[0]


def named(scope: Scope, node: exp.Column) -> ScopeEntry:
    """The entry that a column of the tree refers to."""
    if isinstance(node.this, exp.Star):
        refuse("star")
    only(node, "this", "table")
    name, qualifier = str(node.name), str(node.table or "")
    return entry_named(scope.entries, name, qualifier)


@final
class RelationExpressions:
    """Expressions over the rows of a relation."""

    def __init__(self, scope: Scope, windows: Mapping[int, str] = MappingProxyType({})) -> None:
        self.scope = scope
        self.windows = windows
        """The columns of windows within a person, by the `id` of their nodes."""
        self._fitted: dict[int, tuple[exp.Expression, Expression]] = {}

    def fitted(self, node: exp.Expression) -> Expression:
        """The checked expression of a node. Cached, because a key is read in GROUP BY and again in SELECT."""
        known = self._fitted.get(id(node))
        if known is None:
            known = self._fitted[id(node)] = (node, fitted(self._read(node), self.scope.relation.columns))
        return known[1]

    def _read(self, node: exp.Expression) -> Expression:
        return scalar(node, {id(leaf): self._meaning(leaf) for leaf in leaves(node)})

    def _meaning(self, leaf: exp.Expression) -> Meaning:
        try:
            if id(leaf) in self.windows:
                return Column(self.windows[id(leaf)])
            if not isinstance(leaf, exp.Column):
                refuse("window" if isinstance(leaf, exp.Window) else "misplaced")
            entry = named(self.scope, leaf)
            if entry.column is None:
                if entry.marker and isinstance(leaf.parent, exp.Is) and isinstance(leaf.parent.expression, exp.Null):
                    return Column(entry.marker)
                refuse("person")
        except QuestionRefused as refused:
            return refused
        return Column(entry.column)

    def names_rows_of(self, node: exp.Expression) -> str:
        """The table of which a column names rows, because it is declared as unique there; "" for other nodes."""
        node = unwrapped(node)
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return ""
        return named(self.scope, node).unique_in

    def is_owned(self, node: exp.Expression) -> bool:
        """Whether a node is a column of which each value belongs to one person."""
        node = unwrapped(node)
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return False
        return named(self.scope, node).owned

    def presence(self, node: exp.Expression) -> Expression | None:
        """A column that is NULL where the person's id is, for an id that may be NULL; None for other nodes."""
        node = unwrapped(node)
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return None
        entry = named(self.scope, node)
        return Column(entry.marker) if entry.column is None and not entry.certain and entry.marker else None

    def is_person(self, node: exp.Expression) -> bool:
        """Whether a node names the person."""
        node = unwrapped(node)
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return False
        entry = named(self.scope, node)
        if entry.column is None and not entry.certain:
            refuse("person")
        return entry.column is None
