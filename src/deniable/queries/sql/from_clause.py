"""The rows that a SELECT reads: FROM, JOIN, WHERE, sub-queries and UNION ALL, as a relation with a scope of names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from deniable.queries.plan.disjointness import disjoint
from deniable.queries.plan.fresh_names import fresh, renaming
from deniable.queries.plan.refusals import refuse
from deniable.queries.relations.relation_nodes import (
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
from deniable.queries.sql.function_names import spoken
from deniable.queries.sql.group_by import gathered, projected
from deniable.queries.sql.name_scope import RelationExpressions, Scope, ScopeEntry, matching, meant
from deniable.queries.sql.syntax_tree import conjoined, exp, has_aggregate, item, only, unwrapped
from deniable.tables.expressions import Column, Expression, Literal, call
from deniable.tables.schema import Table


@final
@dataclass(slots=True)
class Definition:
    """A named sub-query (WITH name AS …), read when it is first used."""

    tree: exp.Expression
    known: Environment
    scope: Scope | None = None


Environment = Mapping[str, Definition]


@final
@dataclass(frozen=True, slots=True)
class _Public:
    """A public table in FROM that must still be joined with a private one."""

    table: Table
    qualifier: str

    @property
    def entries(self) -> tuple[ScopeEntry, ...]:
        return tuple(ScopeEntry(self.qualifier, name, name) for name, _ in self.table.columns)


_Item = Scope | _Public
_PARTS: Final = (
    "expressions",
    "from_",
    "joins",
    "where",
    "group",
    "having",
    "order",
    "limit",
    "offset",
    "with_",
    "distinct",
)


def check_select(select: exp.Select) -> None:
    """Raise `QuestionRefused` for clauses that questions cannot have."""
    if select.args.get("windows") or select.args.get("qualify"):
        refuse("window")
    only(select, *_PARTS)
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        refuse("distinct")
    if select.args.get("from_") is None:
        refuse("public")
    if not select.expressions:
        refuse("star")


@final
@dataclass(frozen=True, slots=True)
class Relations:
    """Reads FROM, JOIN and WHERE over the tables of a session."""

    tables: Mapping[str, Table]

    def named(self, select: exp.Select, known: Environment) -> Environment:
        """The known sub-queries together with those that WITH defines."""
        clause = select.args.get("with_")
        if clause is None:
            return known
        if clause.args.get("recursive"):
            refuse("clause", what="WITH RECURSIVE")
        for each in clause.expressions:
            alias = each.args.get("alias")
            only(each, "this", "alias")
            if alias is None or alias.args.get("columns"):
                refuse("clause", what="a list of columns after a name")
            known = {**known, str(alias.name).casefold(): Definition(each.this, known)}
        return known

    def filtered(self, select: exp.Select, known: Environment, *, outermost: bool) -> Scope:
        """FROM, JOIN and WHERE of a SELECT."""
        found = self._item(select.args["from_"].this, known)
        for join in select.args.get("joins") or ():
            found = self._joined(found, join, known)
        if isinstance(found, _Public):
            refuse("public" if outermost else "public subquery")
        where = select.args.get("where")
        return found if where is None else self._where(found, where.this, known)

    def relation(self, tree: exp.Expression, known: Environment) -> Scope:
        """A sub-query of rows, or one that groups each person's rows."""
        while isinstance(tree, exp.Subquery):
            only(tree, "this", "alias")
            tree = tree.this
        if isinstance(tree, exp.SetOperation):
            return self._union(tree, known)
        if not isinstance(tree, exp.Select):
            refuse("subquery")
        check_select(tree)
        if tree.args.get("order"):
            refuse("order")
        if tree.args.get("limit") or tree.args.get("offset"):
            refuse("limit")
        known = self.named(tree, known)
        scope = self.filtered(tree, known, outermost=False)
        having = tree.args.get("having")
        if tree.args.get("group") or tree.args.get("distinct") or having or any(map(has_aggregate, tree.expressions)):
            return gathered(tree, scope)
        return projected(self._listed(tree, scope), scope)

    def _listed(self, select: exp.Select, scope: Scope) -> list[tuple[str, Expression | None]]:
        """The columns of a sub-query by name; None stands for the person."""
        rows = RelationExpressions(scope)
        found: list[tuple[str, Expression | None]] = []
        for position, each in enumerate(select.expressions):
            alias, node = item(each)
            if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
                found += _starred(node, scope)
            elif rows.is_person(node):
                found.append((alias or str(node.name), None))
            else:
                plain = str(node.name) if isinstance(node, exp.Column) else f"column_{position + 1}"
                found.append((alias or plain, rows.fitted(node)))
        return found

    # --- FROM -------------------------------------------------------------------------------------------------------

    def _item(self, node: exp.Expression, known: Environment) -> _Item:
        if isinstance(node, exp.Subquery):
            only(node, "this", "alias")
            return self.relation(node, known).called(_alias(node))
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            this = node.this if isinstance(node, exp.Table) else node
            named = spoken(this)
            refuse("table", name=this.name if isinstance(this, exp.Anonymous) else named.lower(), among=self.tables)
        name = str(node.name)
        if node.args.get("db") or node.args.get("catalog"):
            refuse("table", name=f"{node.db}.{name}", among=self.tables)
        only(node, "this", "alias")
        qualifier = _alias(node) or name
        definition = known.get(name.casefold())
        if definition is not None:
            if definition.scope is None:
                definition.scope = self.relation(definition.tree, definition.known)
            return definition.scope.called(qualifier)
        table = next((each for key, each in self.tables.items() if key.casefold() == name.casefold()), None)
        if table is None:
            refuse("table", name=name, among=self.tables)
        if table.unit is None:
            return _Public(table, qualifier)
        source = Source(table)
        entries = [ScopeEntry(qualifier, column, column) for column in source.columns]
        if table.unit.column is not None:
            entries.append(ScopeEntry(qualifier, table.unit.column, None))
        return Scope(source, tuple(entries), 1)

    # --- JOIN -------------------------------------------------------------------------------------------------------

    def _joined(self, left: _Item, join: exp.Join, known: Environment) -> _Item:
        only(join, "this", "on", "using", "side", "kind")
        side, kind = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
        if (
            side not in {"", "LEFT"}
            or kind not in {"", "INNER", "OUTER"}
            or not (join.args.get("on") or join.args.get("using"))
        ):
            refuse("join")
        how = How.LEFT if side == "LEFT" else How.INNER
        right = self._item(join.this, known)
        if isinstance(left, _Public):
            if isinstance(right, _Public):
                refuse("join public")
            if how is How.LEFT:
                refuse("join left")
            left, right = right, left
        pairs, rest = _matched(join, left, right)
        if rest and how is How.LEFT:
            refuse("join left")
        using = {str(each.name).casefold() for each in join.args.get("using") or ()}
        if isinstance(right, _Public):
            found = _with_public(left, right, pairs, how, using)
        else:
            found = _with_private(left, right, pairs, how, using)
        if rest:
            rows = RelationExpressions(found)
            found = found.over(FilterRows(found.relation, _all([rows.fitted(each) for each in rest])))
        return found

    # --- WHERE ------------------------------------------------------------------------------------------------------

    def _where(self, scope: Scope, condition: exp.Expression, known: Environment) -> Scope:
        rest: list[exp.Expression] = []
        for part in conjoined(condition):
            inner = unwrapped(part.this) if isinstance(part, exp.Not) else part
            if isinstance(inner, exp.In) and inner.args.get("query") is not None:
                outside = isinstance(part, exp.Not) or bool(inner.args.get("negate"))
                scope = self._among(scope, inner, known, outside=outside)
            else:
                rest.append(part)
        if not rest:
            return scope
        rows = RelationExpressions(scope)
        return scope.over(FilterRows(scope.relation, _all([rows.fitted(each) for each in rest])))

    def _among(self, scope: Scope, node: exp.In, known: Environment, *, outside: bool) -> Scope:
        """The rows of people who are (not) among those of a sub-query."""
        only(node, "this", "query", "negate")
        if not RelationExpressions(scope).is_person(node.this):
            refuse("subquery")
        below = self.relation(node.args["query"], known)
        if len(below.entries) != 1 or below.entries[0].column is not None or not below.entries[0].certain:
            refuse("subquery")
        name = fresh("there", scope.relation.columns)
        people = PerPerson(below.relation, (), ((name, Exact("count", None)),))
        joined: RelationNode = JoinPrivate(scope.relation, people, (), How.LEFT if outside else How.INNER)
        if outside:
            joined = FilterRows(joined, Column(name).is_null())
        return Scope(joined, scope.entries, scope.nodes + below.nodes + 2)

    # --- UNION ------------------------------------------------------------------------------------------------------

    def _union(self, tree: exp.SetOperation, known: Environment) -> Scope:
        parts: list[exp.Expression] = []
        left: list[exp.Expression] = [tree]
        while left:
            part = left.pop()
            if isinstance(part, exp.SetOperation):
                only(part, "this", "expression", "distinct")
                if not isinstance(part, exp.Union) or part.args.get("distinct"):
                    refuse("union")
                left += [part.args["expression"], part.this]
            else:
                parts.append(part)
        scopes = [self.relation(part, known) for part in parts]
        first = scopes[0].entries
        if any([e.column is None for e in each.entries] != [e.column is None for e in first] for each in scopes):
            refuse("union columns")
        titles: list[str] = []
        for entry in first:
            titles.append(fresh(entry.name, titles))
        relations = []
        for each in scopes:
            columns = [(t, Column(e.column)) for t, e in zip(titles, each.entries, strict=True) if e.column is not None]
            relations.append(Project(each.relation, tuple(columns) or (("row", Literal(1)),)))
        whole = Union(tuple(relations), disjoint(relations))
        entries = tuple(
            ScopeEntry(
                "", e.name, None if e.column is None else title, True, all(each.entries[i].certain for each in scopes)
            )
            for i, (title, e) in enumerate(zip(titles, first, strict=True))
        )
        return Scope(whole, entries, 1 + sum(each.nodes for each in scopes))


def _alias(node: exp.Expression) -> str:
    alias = node.args.get("alias")
    if alias is None:
        return ""
    if alias.args.get("columns"):
        refuse("clause", what="a list of columns after a name")
    return str(alias.name)


def _all(conditions: list[Expression]) -> Expression:
    return conditions[0] if len(conditions) == 1 else call("and", *conditions)


def _starred(node: exp.Expression, scope: Scope) -> list[tuple[str, Expression | None]]:
    star = node if isinstance(node, exp.Star) else node.this
    only(star)
    qualifier = "" if isinstance(node, exp.Star) else str(node.args["table"].name).casefold()
    listed = [e for e in scope.entries if (e.qualifier.casefold() == qualifier if qualifier else e.bare)]
    if not listed:
        refuse("table", name=qualifier, among=(entry.qualifier for entry in scope.entries if entry.qualifier))
    return [
        (e.name, None if e.column is None else Column(e.column)) for e in listed if e.column is not None or e.certain
    ]


# --- joins ----------------------------------------------------------------------------------------------------------


_Pair = tuple[exp.Expression, exp.Expression]


def _matched(join: exp.Join, left: Scope, right: _Item) -> tuple[list[_Pair], list[exp.Expression]]:
    """The equalities of a join as (left, right), and its other conditions."""
    using = join.args.get("using")
    if using:
        return [(exp.column(each.copy()), exp.column(each.copy())) for each in using], []
    pairs: list[_Pair] = []
    rest: list[exp.Expression] = []
    for part in conjoined(join.args["on"]):
        if isinstance(part, exp.EQ):
            a, b = _side(part.this, left, right), _side(part.args["expression"], left, right)
            if (a, b) == ("left", "right"):
                pairs.append((unwrapped(part.this), unwrapped(part.args["expression"])))
                continue
            if (a, b) == ("right", "left"):
                pairs.append((unwrapped(part.args["expression"]), unwrapped(part.this)))
                continue
        rest.append(part)
    return pairs, rest


def _side(node: exp.Expression, left: Scope, right: _Item) -> str:
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


def _columns_for(scope: Scope, nodes: list[exp.Expression], avoid: Sequence[str]) -> tuple[Scope, list[str]]:
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
    entries = tuple(e if e.column is None else e._replace(column=names[e.column]) for e in scope.entries)
    return Scope(Project(scope.relation, tuple(expressions)), entries, scope.nodes + 1), found


def _beside(
    left: Iterable[ScopeEntry], right: Iterable[ScopeEntry], how: How, using: set[str]
) -> tuple[ScopeEntry, ...]:
    theirs = tuple(
        e._replace(bare=e.bare and e.name.casefold() not in using, certain=e.certain and how is How.INNER)
        for e in right
    )
    return (*left, *theirs)


def _with_public(left: Scope, right: _Public, pairs: list[_Pair], how: How, using: set[str]) -> Scope:
    theirs: list[str] = []
    for _, node in pairs:
        if not isinstance(node, exp.Column):
            refuse("join public")
        name = str(node.name)
        theirs.append(str(meant(right.entries, name, str(node.table or "")).column))
    if not pairs:
        refuse("join public")
    left, ours = _columns_for(left, [node for node, _ in pairs], [name for name, _ in right.table.columns])
    joined = JoinPublic(left.relation, right.table, tuple(zip(ours, theirs, strict=True)), how)
    return Scope(joined, _beside(left.entries, right.entries, how, using), left.nodes + 1)


def _with_private(left: Scope, right: Scope, pairs: list[_Pair], how: How, using: set[str]) -> Scope:
    ours, theirs = RelationExpressions(left), RelationExpressions(right)
    further: list[_Pair] = []
    person = False
    for a, b in pairs:
        known = ours.is_person(a), theirs.is_person(b)
        if known == (True, True):
            person = True
        elif known == (False, False):
            further.append((a, b))
        else:
            refuse("person")
    if not person:
        refuse("join person")
    left, a_columns = _columns_for(left, [a for a, _ in further], ())
    right, b_columns = _columns_for(right, [b for _, b in further], list(left.relation.columns))
    joined = JoinPrivate(left.relation, right.relation, tuple(zip(a_columns, b_columns, strict=True)), how)
    return Scope(joined, _beside(left.entries, right.entries, how, using), left.nodes + right.nodes + 1)
