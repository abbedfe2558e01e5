"""GROUP BY: the keys it lists, expressions over groups, and sub-queries that group each person's rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, final

from deniable.errors import QuestionRefused
from deniable.queries.plan.canonical_form import Form, expression_form
from deniable.queries.plan.fresh_names import fresh
from deniable.queries.plan.noisy_windows import NoisyWindow, Order
from deniable.queries.plan.refusals import refuse
from deniable.queries.relations.constant_kinds import fitted
from deniable.queries.relations.person_windows import PersonWindows
from deniable.queries.relations.relation_nodes import Exact, FilterRows, PerPerson, Project, RelationNode
from deniable.queries.sql.asked_aggregates import AskedAggregates
from deniable.queries.sql.function_names import sql_name
from deniable.queries.sql.gathered_aggregates import Gathered
from deniable.queries.sql.name_scope import RelationExpressions, Scope, ScopeEntry, named
from deniable.queries.sql.scalar_expressions import Meaning, scalar
from deniable.queries.sql.syntax_tree import exp, has_aggregate, is_aggregate, item, leaves, only, operands, unwrapped
from deniable.queries.sql.window_nodes import window_parts
from deniable.tables.expressions import Column, Expression, Literal, case


@final
class Items:
    """Expressions over groups: their keys, and aggregates of their rows."""

    def __init__(
        self, rows: RelationExpressions, keys: Mapping[Form, str], aggregates: AskedAggregates | Gathered
    ) -> None:
        self.rows = rows
        self.keys = keys
        self.aggregates = aggregates
        self.aliases: dict[str, Expression] = {}
        self.windows: list[NoisyWindow] | None = None
        """The windows that were read; None where a window would read across people."""

    def read(self, node: exp.Expression) -> Expression:
        """The expression of a node over the keys and aggregates of a group."""
        meanings: dict[int, Meaning] = {}
        left = [node]
        while left:
            part = left.pop()
            meaning = self._meaning(part)
            if meaning is None:
                left.extend(reversed(operands(part)))
            else:
                meanings[id(part)] = meaning
        return scalar(node, meanings)

    def _meaning(self, node: exp.Expression) -> Meaning | None:
        """The meaning of a node that is a key, a column, a window or an aggregate; None for every other node, whose
        parts are read one by one.
        """
        try:
            key = self._key(node)
            if key is not None:
                return key
            if isinstance(node, exp.Column):
                return self._column(node)
            if isinstance(node, exp.Window):
                if self.windows is None:
                    refuse("window")
                return opened(node, self, self.windows)
            return self.aggregates.made(node, self.rows) if is_aggregate(node) else None
        except QuestionRefused as refused:
            return refused

    def _key(self, node: exp.Expression) -> Expression | None:
        """The column of the key that a whole subtree equals; None if it is not a key."""
        if not self.keys or isinstance(node, exp.Literal | exp.Paren) or has_aggregate(node):
            return None
        if next(node.find_all(exp.Column), None) is None:
            return None
        try:
            name = self.keys.get(expression_form(self.rows.fitted(node)))
        except QuestionRefused:  # reading it part by part refuses it again, with a better message
            return None
        return None if name is None else Column(name)

    def _column(self, node: exp.Column) -> Expression:
        name = str(node.name)
        if not node.table and name.casefold() in self.aliases:
            return self.aliases[name.casefold()]
        if named(self.rows.scope, node).column is None:
            refuse("person key")
        refuse("group", name=name)


def opened(node: exp.Window, reader: Items | NoisyColumns, windows: list[NoisyWindow]) -> Column:
    """The column of a window over groups, which is added to `windows`."""
    parts = window_parts(node)
    made = NoisyWindow(
        f"over {len(windows) + 1}",
        parts.function,
        None if parts.argument is None else reader.read(parts.argument),
        tuple(reader.read(each) for each in parts.partition),
        tuple(Order(reader.read(each), down, first) for each, down, first in parts.order),
        parts.offset,
        parts.frame,
    )
    windows.append(made)
    return Column(made.name)


_TOTALS: Final[Mapping[type[exp.Expression], str]] = {
    exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max", exp.Count: "count", exp.Median: "median",
    exp.Stddev: "stddev", exp.StddevSamp: "stddev",
}  # fmt: skip


@final
class NoisyColumns:
    """Expressions over the noisy answers of a question."""

    def __init__(self, columns: Mapping[str, Expression], windows: list[NoisyWindow], source: str = "") -> None:
        self.columns = columns
        self.windows = windows
        self.source = source
        """The name of the sub-query with these answers; a second SELECT may read them again by this name."""
        self.partition: tuple[Expression, ...] | None = None
        """The keys of a GROUP BY over noisy rows, by which aggregates are computed; None without aggregates."""
        self.condition: Expression | None = None
        """Which noisy rows an aggregate reads; None: all."""
        self.exists: Expression | None = None
        """Which noisy rows are groups with rows; None: all."""

    def read(self, node: exp.Expression) -> Expression:
        """The expression of a node over the columns of the answer."""
        meanings = {id(leaf): self._meaning(leaf) for leaf in leaves(node)}
        meanings |= {id(each): self._again(each) for each in node.find_all(exp.Subquery)}
        return scalar(node, meanings)

    def _again(self, node: exp.Subquery) -> Meaning:
        """The aggregate of (SELECT AVG(n) FROM d) over the same noisy rows."""
        try:
            select = node.this
            only(node, "this")
            plain = isinstance(select, exp.Select) and len(select.expressions) == 1
            source = select.args.get("from_") if plain else None
            if source is None or not self.source or str(source.this.name).casefold() != self.source.casefold():
                refuse("subquery")
            only(select, "expressions", "from_")
            inner = NoisyColumns(self.columns, self.windows)
            inner.partition, inner.condition = (), self.exists
            return inner.read(item(select.expressions[0])[1])
        except QuestionRefused as refused:
            return refused

    def _total(self, node: exp.Expression) -> Expression:
        """An aggregate over noisy rows: a window over the rows with the same keys, of which one row is kept."""
        if self.partition is None:
            refuse("nested")
        while isinstance(node, exp.Paren):
            node = node.this
        function = _TOTALS.get(type(node))
        if function is None:
            refuse("noisy aggregate", what=sql_name(node))
        only(node, "this")
        star = node.this is None or isinstance(node.this, exp.Star)
        if isinstance(node.this, exp.Distinct) or (star and function != "count"):
            refuse("distinct aggregate")
        of: Expression = Literal(1) if star else self.read(node.this)
        if self.condition is not None:
            of = case((self.condition, of))
        made = NoisyWindow(f"over {len(self.windows) + 1}", function, of, self.partition, ())
        self.windows.append(made)
        return Column(made.name)

    def _meaning(self, leaf: exp.Expression) -> Meaning:
        try:
            if isinstance(leaf, exp.Window):
                return opened(leaf, self, self.windows)
            if not isinstance(leaf, exp.Column):
                return self._total(leaf)
            only(leaf, "this", "table")
            name = str(leaf.name)
            if name.casefold() not in self.columns:
                refuse("column", name=name, among=self.columns)
        except QuestionRefused as refused:
            return refused
        return self.columns[name.casefold()]


def grouped(
    select: exp.Select, items: list[tuple[str, exp.Expression]], scope: Scope
) -> Iterable[tuple[exp.Expression, str]]:
    """The keys of GROUP BY (expressions, positions, aliases), each as (expression, its name in SELECT or "")."""
    group = select.args.get("group")
    if group is None:
        return
    if any(value for name, value in group.args.items() if name not in {"expressions", "all"}):
        refuse("grouping")
    if group.args.get("all"):
        plain = [(unwrapped(node), alias) for alias, node in items if not has_aggregate(node)]
        yield from (each for each in plain if each[0].find(exp.Window) is None)
    for listed in group.expressions:
        node = unwrapped(listed)
        if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
            refuse("grouping")
        if isinstance(node, exp.Literal) and not node.is_string:
            place = str(node.this)
            if not place.isdigit() or len(place) > 4 or not 1 <= int(place) <= len(items):
                refuse("grouping")
            alias, node = items[int(place) - 1]
            node = unwrapped(node)
        elif isinstance(node, exp.Column) and not node.table and not scope.has(str(node.name)):
            aliased = [each for alias, each in items if alias.casefold() == str(node.name).casefold()]
            alias, node = str(node.name), unwrapped(aliased[0]) if aliased else node
        else:
            alias = next((alias for alias, each in items if alias and unwrapped(each) == node), "")
        if has_aggregate(node):
            refuse("misplaced")
        yield node, alias


def projected(listed: list[tuple[str, Expression | None]], scope: Scope) -> Scope:
    """The scope of a sub-query's columns, with a projection only if something is computed."""
    known = {entry.column: entry for entry in scope.entries if entry.column is not None}

    def passed(name: str, below: str | None, column: str | None) -> ScopeEntry:
        """The entry of a column; if it is passed on unchanged, with what the scope below declares about its people."""
        entry = None if below is None else known.get(below)
        return (entry or ScopeEntry("", name, column))._replace(qualifier="", name=name, column=column, bare=True)

    if all(each is None or isinstance(each, Column) for _, each in listed):
        columns = [(name, each.name if isinstance(each, Column) else None) for name, each in listed]
        entries = tuple(passed(name, each, each) for name, each in columns)
        return Scope(scope.relation, entries, scope.nodes)
    expressions: list[tuple[str, Expression]] = []
    found: list[ScopeEntry] = []
    for name, each in listed:
        if each is None:
            found.append(ScopeEntry("", name, None))
            continue
        title = fresh(name, [title for title, _ in expressions])
        expressions.append((title, each))
        found.append(passed(name, each.name if isinstance(each, Column) else None, title))
    return Scope(Project(scope.relation, tuple(expressions)), tuple(found), scope.nodes + 1)


def gathered(select: exp.Select, scope: Scope) -> Scope:
    """A sub-query that groups by the person: one row for each person and value of the other keys."""
    rows = RelationExpressions(scope)
    items = [item(node) for node in select.expressions]
    if select.args.get("distinct"):
        if select.args.get("group") or any(has_aggregate(node) for _, node in items):
            refuse("distinct")
        by: list[tuple[exp.Expression, str]] = [(unwrapped(node), alias) for alias, node in items]
    else:
        by = list(grouped(select, items, scope))
    if not any(rows.is_person(node) or rows.is_owned(node) for node, _ in by):
        refuse("nested")
    keys: dict[Form, tuple[str, Expression]] = {}
    for node, alias in by:
        if rows.is_person(node):
            continue
        expression = rows.fitted(node)
        plain = expression.name if isinstance(expression, Column) else "key"
        name = fresh(alias or plain, [title for title, _ in keys.values()])
        keys.setdefault(expression_form(expression), (name, expression))
    aggregates = Gathered([name for name, _ in keys.values()], tuple(each for _, each in keys.values()))
    reader = Items(rows, {form: name for form, (name, _) in keys.items()}, aggregates)
    listed: list[tuple[str, Expression | None]] = []
    for position, (alias, node) in enumerate(items):
        if rows.is_person(node):
            listed.append((alias or str(unwrapped(node).name), None))
            continue
        value = reader.read(node)
        listed.append((alias or (value.name if isinstance(value, Column) else f"column_{position + 1}"), value))
    reader.aliases = {name.casefold(): each for name, each in listed if each is not None}
    having = select.args.get("having")
    condition = None if having is None else reader.read(having.this)
    exact = tuple(aggregates.found.values())
    if not keys and not exact:
        exact = (("rows", Exact("count", None)),)
    below = PersonWindows(scope.relation, tuple(aggregates.windows)) if aggregates.windows else scope.relation
    relation: RelationNode = PerPerson(below, tuple(keys.values()), exact)
    if condition is not None:
        relation = FilterRows(relation, fitted(condition, relation.columns))
    return projected(listed, Scope(relation, (), scope.nodes + 2))
