"""The rows that a SELECT reads: FROM, JOIN, WHERE, sub-queries and UNION ALL, as a relation with a scope of names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, final

from deniable.queries.plan.disjointness import disjoint
from deniable.queries.plan.fresh_names import fresh
from deniable.queries.plan.refusals import refuse
from deniable.queries.relations.constant_kinds import fitted
from deniable.queries.relations.relation_nodes import (
    Exact,
    FilterRows,
    How,
    JoinPrivate,
    PerPerson,
    Project,
    RelationNode,
    Source,
    Union,
)
from deniable.queries.sql.function_names import sql_name
from deniable.queries.sql.group_by import gathered, projected
from deniable.queries.sql.joined_tables import (
    Compared,
    FromItem,
    PublicItem,
    columns_for,
    equal_pairs,
    factored,
    inner_first,
    linked,
    matched,
    same_person,
    side_of,
    with_private,
    with_public,
)
from deniable.queries.sql.name_scope import RelationExpressions, Scope, ScopeEntry
from deniable.queries.sql.person_window_nodes import with_windows
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
    "qualify",
)


def check_select(select: exp.Select) -> None:
    """Raise `QuestionRefused` for clauses that questions cannot have."""
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
        found, conditions = self._from(select, known)
        if isinstance(found, PublicItem):
            refuse("public" if outermost else "public subquery")
        return self._where(found, conditions, known)

    def _from(self, select: exp.Select, known: Environment) -> tuple[FromItem, list[exp.Expression]]:
        """The tables of a SELECT, joined, and the conditions that are left."""
        joins, where = select.args.get("joins") or (), select.args.get("where")
        conditions = [] if where is None else factored(where.this)
        if any(_is_crossed(join) for join in joins):
            return self._crossed([select.args["from_"].this, *(join.this for join in joins)], joins, conditions, known)
        found = self._item(select.args["from_"].this, known)
        for join in joins:
            found = self._joined(found, join, known)
        return found, [] if where is None else list(conjoined(where.this))

    def _crossed(
        self,
        nodes: list[exp.Expression],
        joins: Iterable[exp.Join],
        conditions: list[exp.Expression],
        known: Environment,
    ) -> tuple[FromItem, list[exp.Expression]]:
        """Tables with commas between them, joined one by one where a condition says that two columns are equal.

        An inner join is the same in any order, and whether its condition stands in ON or in WHERE.
        """
        for join in joins:
            only(join, "this", "on", "kind")
            if str(join.args.get("kind") or "").upper() not in {"", "INNER", "CROSS"}:
                refuse("join")
            conditions = [*conditions, *(() if join.args.get("on") is None else conjoined(join.args["on"]))]
        items = [self._item(node, known) for node in nodes]
        first = next((each for each in items if isinstance(each, Scope)), None)
        if first is None:
            return items[0], []
        found, left = first, [each for each in items if each is not first]
        while left:
            met = next((each for each in left if self._meets(found, each, conditions)), None)
            if met is None:
                refuse("join public" if isinstance(left[0], PublicItem) else "join person")
            pairs, conditions = linked(conditions, found, met)
            if isinstance(met, PublicItem):
                found = with_public(found, met, pairs, How.INNER, set())
            else:
                found = with_private(found, met, pairs, How.INNER, set())
            left = [each for each in left if each is not met]
        return found, conditions

    def _meets(self, found: Scope, item: FromItem, conditions: list[exp.Expression]) -> bool:
        pairs, _ = linked(conditions, found, item)
        return bool(pairs) and (isinstance(item, PublicItem) or same_person(found, item, pairs))

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
            if tree.args.get("qualify"):
                refuse("qualify")
            return gathered(tree, scope)
        rows = with_windows(tree, scope)
        return projected(self._listed(tree, scope, rows), rows.scope)

    def _listed(
        self, select: exp.Select, scope: Scope, rows: RelationExpressions
    ) -> list[tuple[str, Expression | None]]:
        """The columns of a sub-query: (name, expression), with None as the expression of the column of people."""
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

    def _item(self, node: exp.Expression, known: Environment) -> FromItem:
        if isinstance(node, exp.Subquery):
            only(node, "this", "alias")
            return self.relation(node, known).called(_alias(node))
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            this = node.this if isinstance(node, exp.Table) else node
            named = sql_name(this)
            refuse("table", name=this.name if isinstance(this, exp.Anonymous) else named.lower(), among=self.tables)
        name = str(node.name)
        if node.args.get("catalog"):
            refuse("table", name=f"{node.catalog}.{node.db}.{name}", among=self.tables)
        only(node, "this", "alias", "db")
        qualifier = _alias(node) or name
        definition = None if node.args.get("db") else known.get(name.casefold())
        if definition is not None:
            if definition.scope is None:
                definition.scope = self.relation(definition.tree, definition.known)
            return definition.scope.called(qualifier)
        table = next((each for key, each in self.tables.items() if key.casefold() == name.casefold()), None)
        if table is None:
            refuse("table", name=name, among=self.tables)
        if table.unit is None:
            return PublicItem(table, qualifier)
        source = Source(table)
        entries = [
            ScopeEntry(
                qualifier, column, column, unique_in=table.name if column in table.unique else "",
                owned=column in table.unique or column in table.owned,
            )
            for column in source.columns
        ]  # fmt: skip
        if table.unit.column is not None:
            entries.append(ScopeEntry(qualifier, table.unit.column, None, unit=table))
        return Scope(source, tuple(entries), 1)

    # --- JOIN -------------------------------------------------------------------------------------------------------

    def _joined(self, left: FromItem, join: exp.Join, known: Environment) -> FromItem:
        only(join, "this", "on", "using", "side", "kind")
        side, kind = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
        if (
            side not in {"", "LEFT", "RIGHT"}
            or kind not in {"", "INNER", "OUTER"}
            or not (join.args.get("on") or join.args.get("using"))
        ):
            refuse("join")
        how = How.LEFT if side else How.INNER
        right = self._item(join.this, known)
        if side == "RIGHT":
            left, right = right, left
        if isinstance(left, PublicItem):
            if isinstance(right, PublicItem):
                refuse("join public")
            if how is How.LEFT:
                refuse("join left")
            left, right = right, left
        pairs, rest = matched(join, left, right)
        if rest and how is How.LEFT:
            right, rest = _narrowed(left, right, rest), []
        using = {str(each.name).casefold() for each in join.args.get("using") or ()}
        if isinstance(right, PublicItem):
            found = with_public(left, right, pairs, how, using)
        else:
            found = with_private(left, right, pairs, how, using)
        if rest:
            rows = RelationExpressions(found)
            found = found.over(FilterRows(found.relation, _all([rows.fitted(each) for each in rest])))
        return found

    # --- WHERE ------------------------------------------------------------------------------------------------------

    def _where(self, scope: Scope, conditions: list[exp.Expression], known: Environment) -> Scope:
        rest: list[exp.Expression] = []
        for part in conditions:
            inner = unwrapped(part.this) if isinstance(part, exp.Not) else part
            outside = isinstance(part, exp.Not)
            if isinstance(inner, exp.In) and inner.args.get("query") is not None:
                scope = self._among(scope, inner, known, outside=outside or bool(inner.args.get("negate")))
            elif isinstance(inner, exp.Exists):
                scope = self._exists(scope, inner, known, outside=outside)
            else:
                rest.append(part)
        if not rest:
            return scope
        rows = RelationExpressions(scope)
        return scope.over(FilterRows(scope.relation, _all([rows.fitted(each) for each in rest])))

    def _exists(self, scope: Scope, node: exp.Exists, known: Environment, *, outside: bool) -> Scope:
        """The rows for which a sub-query has (no) row of the same person, with the same values in further columns.

        The sub-query is aggregated to one row for each person and combination of these columns. So each outer row has
        at most one partner, and no person gets more rows. One further comparison of an inner with an outer value is
        allowed: some inner row meets it exactly if the least or the largest inner value meets it.
        """
        select = unwrapped(node.this)
        if not isinstance(select, exp.Select) or any(
            select.args.get(each) for each in ("group", "having", "with_", "qualify")
        ):
            refuse("subquery")
        check_select(select)
        below, conditions = self._from(select, known)
        if isinstance(below, PublicItem):
            refuse("subquery")
        own = [each for each in conditions if inner_first(each, scope, below) == "right"]
        outer = [each for each in conditions if inner_first(each, scope, below) != "right"]
        pairs, rest = equal_pairs(outer, scope, below, inner_first)
        if len(rest) > 1 or not same_person(scope, below, pairs):
            refuse("subquery")
        below = self._where(below, own, known)
        mine, theirs = RelationExpressions(scope), RelationExpressions(below)
        compared = [Compared.of(each, mine, theirs) for each in rest]
        further = [(a, b) for a, b in pairs if not mine.is_person(a)]
        scope, columns = columns_for(scope, [a for a, _ in further], ())
        keys: list[tuple[str, Expression]] = []
        for _, b in further:
            keys.append((fresh("same", [*scope.relation.columns, *(name for name, _ in keys)]), theirs.fitted(b)))
        taken = [*scope.relation.columns, *(name for name, _ in keys)]
        name, least, most = fresh("there", taken), fresh("least", taken), fresh("most", taken)
        exact = [(name, Exact("count", None))]
        for each in compared:
            exact += [(least, Exact("min", each.theirs)), (most, Exact("max", each.theirs))]
        people = PerPerson(below.relation, tuple(keys), tuple(exact))
        on = tuple((column, key) for column, (key, _) in zip(columns, keys, strict=True))
        joined: RelationNode = JoinPrivate(scope.relation, people, on, How.LEFT if outside else How.INNER)
        met = [call("coalesce", each.met(Column(least), Column(most)), False) for each in compared]
        if met:
            joined = FilterRows(joined, fitted(~met[0] if outside else met[0], joined.columns))
        elif outside:
            joined = FilterRows(joined, Column(name).is_null())
        return Scope(joined, scope.entries, scope.nodes + below.nodes + 2)

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


def _is_crossed(join: exp.Join) -> bool:
    sided = str(join.args.get("side") or "") or join.args.get("on") is not None or join.args.get("using")
    return not sided and str(join.args.get("kind") or "").upper() in {"", "CROSS"}


def _narrowed(left: Scope, right: FromItem, conditions: list[exp.Expression]) -> Scope:
    """The right side of a LEFT JOIN, filtered by those conditions of ON that read its columns alone.

    Conditions of ON decide which rows are partners. They never drop a row of the left side.
    """
    if isinstance(right, PublicItem) or any(side_of(each, left, right) != "right" for each in conditions):
        refuse("join left")
    rows = RelationExpressions(right)
    return right.over(FilterRows(right.relation, _all([rows.fitted(each) for each in conditions])))


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
