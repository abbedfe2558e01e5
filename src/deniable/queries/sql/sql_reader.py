"""The SQL reader: one SELECT becomes a `Question`, or is refused, by its text and the public schema alone.

A SELECT around a SELECT with aggregates, as in `SELECT n / 2 FROM (SELECT COUNT(*) AS n FROM visits)`, reads noisy
answers. It becomes part of the post-processing (`Post`) of the inner question, and costs nothing. All other sub-queries
are part of the relation that the question reads (`from_clause`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, final

from deniable.errors import QuestionRefused
from deniable.queries.plan.canonical_form import Form, expression_form
from deniable.queries.plan.fresh_names import fresh
from deniable.queries.plan.named_keys import public_values
from deniable.queries.plan.noisy_windows import NoisyWindow, Order
from deniable.queries.plan.question import BOUNDS, Key, Measure, Post, Question, asked, check_post
from deniable.queries.plan.refusals import EXAMPLE, EXAMPLE_OF, VISITS, refuse
from deniable.queries.relations.relation_nodes import Project, RelationNode, Union
from deniable.queries.relations.whole_people import check_whole_people
from deniable.queries.sql.aggregate_functions import Aggregate
from deniable.queries.sql.asked_aggregates import AskedAggregates
from deniable.queries.sql.dialect import read
from deniable.queries.sql.from_clause import Environment, Relations, check_select
from deniable.queries.sql.group_by import Items, NoisyColumns, grouped
from deniable.queries.sql.name_scope import RelationExpressions, Scope
from deniable.queries.sql.named_dialects import InDialect, first_line
from deniable.queries.sql.question_repairs import repaired
from deniable.queries.sql.scalar_expressions import Meaning, scalar
from deniable.queries.sql.scalar_parts import NoisyScalar, together
from deniable.queries.sql.syntax_tree import exp, has_aggregate, is_aggregate, item, leaves, only, unwrapped
from deniable.tables.expressions import Column, Expression, Literal, call, case, renamed, same
from deniable.tables.kinds import NUMBERS, Kind
from deniable.tables.schema import Table

Clamp = Callable[[RelationNode, Measure], Measure]
"""A function that may put bounds around what a measure of a relation aggregates."""


def parse(text: str, tables: Mapping[str, Table]) -> Question:
    """The question that a SELECT asks of these tables; `QuestionRefused` if it asks anything else.

    >>> from deniable.queries.plan.refusals import EXAMPLE
    >>> question = parse("SELECT ward, COUNT(*) AS n FROM visits WHERE age > 60 GROUP BY ward", EXAMPLE)
    >>> question.names, question.keys[0].values
    (('ward', 'n'), ('A', 'B', 'C', None))
    """
    return _parsed_or_repaired(text, tables, None)


def parse_clamped(text: str, tables: Mapping[str, Table], clamp: Clamp) -> Question:
    """As `parse`, with `clamp` applied to each aggregate over rows before its bounds are checked (`found_bounds`)."""
    return _parsed_or_repaired(text, tables, clamp)


def _parsed_or_repaired(text: str, tables: Mapping[str, Table], clamp: Clamp | None) -> Question:
    """The question of a text; a refusal tells the place, and a question that is accepted."""
    try:
        return _parsed(text, tables, clamp)
    except QuestionRefused as refused:
        added = text.added if isinstance(text, InDialect) else 0
        found = repaired(text, tables, lambda each: _is_question(each, tables))
        (start, end), instead = found.place, found.question
        place = max(0, start - added), end - added
        if added and instead:
            instead = instead.removeprefix(first_line(instead))
        example = refused.rewrite.removeprefix(EXAMPLE_OF)
        if example == refused.rewrite or _is_question(example, tables):  # a remedy for this text, or one that works
            shown = refused.rewrite
            raise QuestionRefused(refused.code, refused.rule, shown, place=place, instead=instead) from None
        # Examples use a table of their own. So the question is repaired, or the example gets the session's names.
        own = instead or _in_own_words(example, tables)
        part = text[start:end] if (end - start) < len(text) - added else ""
        at = f'at "{" ".join(part.split())}", ' if 0 < len(part) <= _SHOWN else ""
        shown = f"{at}{EXAMPLE_OF}{own}" if own else f"{EXAMPLE_OF.rstrip(': ')}, with a table visits: {example}"
        raise QuestionRefused(refused.code, refused.rule, shown, place=place, instead=instead) from None


_SHOWN: Final = 60
"""The longest part of a text that a refusal quotes."""


def question_of(tree: exp.Select, options: Mapping[str, str], tables: Mapping[str, Table]) -> Question:
    """The question of a SELECT that is parsed already; `QuestionRefused` if it breaks a rule."""
    try:
        return _Reader(Relations(tables), options).question(tree, {})
    except RecursionError:
        refuse("depth")


def _is_question(text: str, tables: Mapping[str, Table]) -> bool:
    try:
        _parsed(text, tables)
    except QuestionRefused:
        return False
    return True


def _in_own_words(example: str, tables: Mapping[str, Table]) -> str | None:
    """An example with names of the first private table instead of its own; None if it is not a valid question there."""
    ours, theirs = next((each for each in tables.values() if each.unit is not None), None), dict(VISITS.columns)
    words = list(dict.fromkeys(re.findall(r"[a-z_]+", example)))
    if ours is None or "'" in example or any(word in EXAMPLE and word != VISITS.name for word in words):
        return None
    names, left = {VISITS.name: ours.name}, dict(ours.columns)
    for word in (each for each in words if each in theirs):
        kinds = NUMBERS if theirs[word].kind in NUMBERS else {theirs[word].kind}
        fits = [name for name, domain in left.items() if domain.kind in kinds]
        if not fits and theirs[word].kind is Kind.TEXT:  # most often a key, as a boolean can be
            fits = [name for name, domain in left.items() if domain.kind is Kind.BOOLEAN]
        if not fits:
            return None
        names[word] = min(fits, key=lambda name: left[name].bounds is None and left[name].keys is None)
        del left[names[word]]
    if VISITS.unit is not None and ours.unit is not None and ours.unit.column is not None:
        names[str(VISITS.unit.column)] = ours.unit.column
    text = re.sub(r"[a-z_]+", lambda found: names.get(found[0], found[0]), example)
    return text if _is_question(text, tables) else None


def _parsed(text: str, tables: Mapping[str, Table], clamp: Clamp | None = None) -> Question:
    found = read(text)
    try:
        tree = found.tree
        while isinstance(tree, exp.Subquery):
            only(tree, "this")
            tree = tree.this
        if isinstance(tree, exp.SetOperation):
            refuse("union outside")
        if not isinstance(tree, exp.Select):
            refuse("statement")
        return _Reader(Relations(tables), found.options, clamp).question(tree, {})
    except RecursionError:  # ten thousand characters can exceed Python's recursion limit
        refuse("depth")


Columns = tuple[tuple[str, Expression], ...]


@final
@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the outermost SELECT."""

    relations: Relations
    options: Mapping[str, str]
    clamp: Clamp | None = None

    def question(self, select: exp.Select, known: Environment) -> Question:
        if select.args.get("from_") is None and next(select.find_all(exp.Subquery), None) is not None:
            return self._scalars(select, known)
        check_select(select)
        if select.args.get("distinct"):
            refuse("distinct")
        known = self.relations.named(select, known)
        inner = self._noisy(select, known)
        if inner is not None:
            return self._shown(select, self.question(*inner))
        scope = self.relations.filtered(select, known, outermost=True)
        rows = RelationExpressions(scope)
        items = [item(node) for node in select.expressions]
        keys = self._keys(select, items, rows)
        measures = AskedAggregates(scope.relation, keys)
        reader = Items(rows, {expression_form(key.expression): key.name for key in keys}, measures)
        reader.windows = []
        asks = select.args.get("group") is not None or any(has_aggregate(node) for _, node in items)
        if not asks and any(node.find(exp.Window) is not None for _, node in items):
            refuse("window")
        columns: list[tuple[str, Expression]] = []
        for alias, node in items:
            if _is_star(node):
                refuse("star")
            measures.wish = alias if is_aggregate(unwrapped(node)) else ""
            try:
                columns.append((alias, reader.read(node)))
            except QuestionRefused as refused:
                if not asks and refused.code in ("group", "person"):  # what is wrong is that rows are listed
                    refuse("star")
                raise
        measures.wish = ""
        titled = _titled(columns)
        reader.aliases = {name.casefold(): expression for name, expression in titled}
        having, qualify = select.args.get("having"), select.args.get("qualify")
        if having is not None and having.find(exp.Window) is not None:
            refuse("window")
        condition = None if having is None else reader.read(having.this)
        best = None if qualify is None else reader.read(qualify.this)
        order = self._order(select, reader, titled)
        limit, offset = _whole(select.args.get("limit")), _whole(select.args.get("offset")) or 0
        post = Post(titled, condition, order, limit, offset, tuple(reader.windows), best)
        if not measures.found:
            refuse("aggregate")
        relation, by, made = measures.measured()
        if self.clamp is not None:
            made = [self.clamp(relation, each) for each in made]
        return asked(relation, by, made, post, self._settings(scope))

    # --- groups -----------------------------------------------------------------------------------------------------

    def _keys(
        self, select: exp.Select, items: list[tuple[str, exp.Expression]], rows: RelationExpressions
    ) -> list[Key]:
        keys: list[Key] = []
        forms: set[Form] = set()
        for node, alias in grouped(select, items, rows.scope):
            if rows.is_person(node):
                refuse("person key")
            expression = rows.fitted(node)
            form = expression_form(expression)
            if form in forms or isinstance(expression, Literal):  # a constant does not group anything
                continue
            forms.add(form)
            plain = str(node.name) if isinstance(node, exp.Column) else "key"
            name = fresh(alias or plain, [key.name for key in keys])
            keys.append(Key(name, expression, public_values(expression, rows.scope.relation)))
        return keys

    def _order(self, select: exp.Select, reader: Items | NoisyColumns, columns: Columns) -> tuple[Order, ...]:
        found: list[Order] = []
        order = select.args.get("order")
        for part in () if order is None else order.expressions:
            only(part, "this", "desc")
            node = unwrapped(part.this)
            if isinstance(node, exp.Var) and str(node.this).upper() == "ALL":
                down = bool(part.args.get("desc"))
                found += [Order(each, down, bool(part.args.get("nulls_first"))) for _, each in columns]
                continue
            if isinstance(node, exp.Literal) and not node.is_string:
                place = str(node.this)
                if not place.isdigit() or len(place) > 4 or not 1 <= int(place) <= len(columns):
                    refuse("constant", what="a position in ORDER BY, from 1 to the number of columns,")
                expression = columns[int(place) - 1][1]
            else:
                expression = reader.read(node)
            found.append(Order(expression, bool(part.args.get("desc")), bool(part.args.get("nulls_first"))))
        return tuple(found)

    # --- a SELECT of scalar sub-queries -----------------------------------------------------------------------------

    def _scalars(self, select: exp.Select, known: Environment) -> Question:
        """SELECT (SELECT SUM(a) FROM x) / (SELECT SUM(b) FROM y): one question over the rows of x and of y.

        The rows of each sub-query are a part of a union, with the values that its aggregates read; a value is NULL in
        all other parts, so each aggregate reads its own part, and costs the rows of that part (`Collect.reach_of`).
        """
        only(select, "expressions", "with_")
        known = self.relations.named(select, known)
        parts: list[tuple[Scope, list[tuple[str, Aggregate]]]] = []
        measures: list[Measure] = []
        columns: list[tuple[str, Expression]] = []
        noisy: NoisyScalar | None = None
        for alias, node in (item(each) for each in select.expressions):
            meanings: dict[int, Meaning] = {id(leaf): _unknown(leaf) for leaf in leaves(node)}
            for inner in _outermost(node):
                of_noisy = self._of_noisy_rows(inner, known)
                if of_noisy is not None:
                    if noisy is not None:
                        refuse("scalar")
                    noisy = of_noisy
                    meanings[id(inner)] = noisy.value
                    continue
                scope, made, found = self._scalar(inner, known, len(measures))
                parts.append((scope, found))
                measures += [Measure(name, each.function, Column(name), each.options) for name, each in found]
                meanings[id(inner)] = made
            columns.append((alias, scalar(node, meanings)))
        names = [measure.name for measure in measures]
        read = [
            (scope.relation, {name: Literal(1) if each.expression is None else each.expression for name, each in found})
            for scope, found in parts
        ]
        if noisy is not None:
            return together(noisy, read, measures, _titled(columns))
        relations: list[RelationNode] = []
        for relation, own in read:
            relations.append(Project(relation, tuple((name, own.get(name, Literal(None))) for name in names)))
        whole = relations[0] if len(relations) == 1 else Union(tuple(relations), False)
        return asked(whole, [], measures, Post(_titled(columns)), {})

    def _of_noisy_rows(self, node: exp.Subquery, known: Environment) -> NoisyScalar | None:
        """A scalar sub-query that aggregates noisy rows to one row; None for any other sub-query."""
        select = node.this
        only(node, "this")
        if not isinstance(select, exp.Select) or not _totals(select) or select.args.get("group"):
            return None
        if any(select.args.get(each) for each in ("having", "qualify", "limit", "offset")):
            return None
        if self._noisy(select, self.relations.named(select, known)) is None:
            return None
        return NoisyScalar.of(self.question(select, known))

    def _scalar(
        self, node: exp.Subquery, known: Environment, before: int
    ) -> tuple[Scope, Expression, list[tuple[str, Aggregate]]]:
        """(the rows of a scalar sub-query, its value over its measures, its measures by name)."""
        select = node.this
        only(node, "this")
        if not isinstance(select, exp.Select) or len(select.expressions) != 1:
            refuse("scalar")
        check_select(select)
        if any(
            select.args.get(each) for each in ("group", "having", "order", "limit", "offset", "distinct", "qualify")
        ):
            refuse("scalar")
        below = self.relations.named(select, known)
        if self._noisy(select, below) is not None:
            refuse("scalar")
        scope = self.relations.filtered(select, below, outermost=True)
        measures = AskedAggregates(scope.relation, [])
        made = Items(RelationExpressions(scope), {}, measures).read(item(select.expressions[0])[1])
        if not measures.found or any(each.bounds for _, each in measures.found.values()):
            refuse("scalar")
        renamed_to = {name: f"part {before + i + 1}" for i, (name, _) in enumerate(measures.found.values())}
        found = [(renamed_to[name], each) for name, each in measures.found.values()]
        return scope, renamed(made, {old: Column(new) for old, new in renamed_to.items()}), found

    # --- a SELECT around noisy answers ------------------------------------------------------------------------------

    def _noisy(self, select: exp.Select, known: Environment) -> tuple[exp.Select, Environment] | None:
        """The inner SELECT in FROM, if it asks the question and `select` only post-processes its noisy answer; else
        None.
        """
        source = select.args.get("from_")
        if source is None or select.args.get("joins"):
            return None
        below, around = source.this, known
        if isinstance(below, exp.Table) and str(below.name).casefold() in known and not below.db:
            definition = known[str(below.name).casefold()]
            below, around = definition.tree, definition.known
        while isinstance(below, exp.Subquery):
            only(below, "this", "alias")
            below = below.this
        if not isinstance(below, exp.Select):
            return None
        group = below.args.get("group")
        if group is None and not any(has_aggregate(node) for node in below.expressions):
            return None if self._noisy(below, self.relations.named(below, around)) is None else (below, around)
        inside = self.relations.filtered(below, self.relations.named(below, around), outermost=False)
        items = [item(node) for node in below.expressions]
        keys, rows = [node for node, _ in grouped(below, items, inside)], RelationExpressions(inside)
        if any(map(rows.is_person, keys)) or (_totals(select) and any(map(rows.is_owned, keys))):
            return None
        return below, around

    def _shown(self, select: exp.Select, inner: Question) -> Question:
        post, windows = inner.post, list(inner.post.windows)
        source = str(select.args["from_"].this.name or "")
        reader = NoisyColumns({name.casefold(): expression for name, expression in post.columns}, windows, source)
        if _totals(select):
            return self._totalled(select, inner, reader)
        columns: list[tuple[str, Expression]] = []
        for alias, node in (item(node) for node in select.expressions):
            if _is_star(node):
                only(node, "this", "table")
                columns += post.columns
            else:
                columns.append((alias or (str(node.name) if isinstance(node, exp.Column) else ""), reader.read(node)))
        where = select.args.get("where")
        if (post.limit is not None or post.offset) and (where is not None or select.args.get("order")):
            refuse("limit")
        # If the answer has windows, a condition drops rows after the windows are computed; otherwise before.
        before = [] if post.having is None else [post.having]
        after = [] if post.qualify is None else [post.qualify]
        if where is not None:
            opened = len(windows)
            condition = reader.read(where.this)
            if opened - len(post.windows) > 0 and len(windows) > opened:
                refuse("window rows")  # the windows of SELECT would read rows that WHERE leaves out
            (after if windows[opened:] or post.windows else before).append(condition)
        titled = _titled(columns)
        reader = NoisyColumns({**reader.columns, **{name.casefold(): each for name, each in titled}}, windows, source)
        if (qualify := select.args.get("qualify")) is not None:
            after.append(reader.read(qualify.this))
        offset = _whole(select.args.get("offset")) or 0
        limits = [] if post.limit is None else [max(0, post.limit - offset)]
        outer = _whole(select.args.get("limit"))
        if outer is not None:
            limits.append(outer)
        order = self._order(select, reader, titled) or post.order
        if len(windows) > len(post.windows) and (post.qualify is not None or post.limit is not None or post.offset):
            refuse("window rows")
        limit = min(limits, default=None)
        shown = Post(titled, _all(before), order, limit, post.offset + offset, tuple(windows), _all(after))
        return check_post(replace(inner, post=shown))

    def _totalled(self, select: exp.Select, inner: Question, reader: NoisyColumns) -> Question:
        """Aggregates over noisy rows, by some of their keys or over all rows; one row of each group is kept.

        An aggregate reads the rows that meet WHERE, so its argument is NULL in all others; a group without such a row
        is left out. Without GROUP BY there is one row, as in SQL. In SQL a group without rows does not exist. Here
        public keys are answered whether or not they have rows, so a row with a noisy count of 0 or less is left out.
        """
        post, windows = inner.post, reader.windows
        if post.limit is not None or post.offset or any(each.find(exp.Window) for each in select.expressions):
            refuse("window rows")
        conditions = [*_existing(inner), *([] if post.qualify is None else [post.qualify])]
        reader.exists = _all(_existing(inner))
        if (where := select.args.get("where")) is not None:
            conditions.append(reader.read(where.this))
        reader.condition = _all(conditions)
        items = [item(node) for node in select.expressions]
        keys = tuple(reader.read(node) for node in _noisy_keys(select, items))
        reader.partition = keys
        columns: list[tuple[str, Expression]] = []
        for alias, node in items:
            if _is_star(node):
                refuse("star")
            made = reader.read(node)
            free = [leaf for leaf in leaves(node) if isinstance(leaf, exp.Column)]
            if free and not any(same(made, key) for key in keys):
                refuse("group", name=str(free[0].name))
            columns.append((alias or (str(node.name) if isinstance(node, exp.Column) else ""), made))
        titled = _titled(columns)
        named = {name.casefold(): each for name, each in titled}
        reader.columns = {**reader.columns, **named}
        having = select.args.get("having")
        after = [] if having is None else [reader.read(having.this)]
        first = NoisyWindow(f"over {len(windows) + 1}", "row_number", None, keys, ())
        windows.append(first)
        after.append(call("eq", Column(first.name), 1))
        if keys and reader.condition is not None:
            some = NoisyWindow(f"over {len(windows) + 1}", "count", case((reader.condition, 1)), keys, ())
            windows.append(some)
            after.append(call("gt", Column(some.name), 0))
        order = self._order(select, reader, titled)
        limit, offset = _whole(select.args.get("limit")), _whole(select.args.get("offset")) or 0
        shown = Post(titled, post.having, order, limit, offset, tuple(windows), _all(after))
        return check_post(replace(inner, post=shown))

    # --- options ----------------------------------------------------------------------------------------------------

    def _settings(self, scope: Scope) -> dict[str, float]:
        settings: dict[str, float] = {}
        for name, value in self.options.items():
            if name == "privacy_unit_column":
                check_whole_people(scope.relation.tables)
                columns = {table.unit.column for table in scope.relation.tables if table.unit is not None}
                if {value.casefold()} != {str(column).casefold() for column in columns if column is not None}:
                    refuse("privacy unit", what=", ".join(sorted(str(each) for each in columns)) or "a row")
                continue
            if name not in {"epsilon", "delta", *BOUNDS}:
                refuse("options")
            try:
                number = float(value)
            except ValueError:
                refuse("options")
            whole = name not in BOUNDS or (number == math.floor(number) and number <= 2**53)
            if not (0 < number < math.inf and whole):
                refuse("options")
            settings[name] = number
        return settings


def _all(conditions: list[Expression]) -> Expression | None:
    return call("and", *conditions) if len(conditions) > 1 else conditions[0] if conditions else None


def _existing(inner: Question) -> list[Expression]:
    """The condition that a group exists, by its noisy count; empty if keys are not public, or nothing was counted."""
    if any(key.values is None for key in inner.keys):
        return []
    counts = [each for each in inner.measures if each.function in {"count", "count_persons"}]
    plain = [each for each in counts if each.expression is None]
    return [call("gt", Column(each.name), 0) for each in (plain or counts)[:1] if inner.keys]


def _unknown(leaf: exp.Expression) -> QuestionRefused:
    """The refusal of a column or an aggregate in a SELECT without FROM."""
    try:
        refuse("scalar")
    except QuestionRefused as refused:
        return refused


def _outermost(node: exp.Expression) -> list[exp.Subquery]:
    """The sub-queries of an expression that are not within another one."""
    found = list(node.find_all(exp.Subquery))
    inside = {id(inner) for each in found for inner in each.find_all(exp.Subquery) if inner is not each}
    return [each for each in found if id(each) not in inside]  # by identity: one may be written twice


def _totals(select: exp.Select) -> bool:
    """Whether a SELECT has aggregates or groups of its own."""
    return bool(select.args.get("group")) or any(has_aggregate(node) for node in select.expressions)


def _noisy_keys(select: exp.Select, items: list[tuple[str, exp.Expression]]) -> Iterator[exp.Expression]:
    """The keys of GROUP BY over noisy rows: columns, expressions, positions and aliases."""
    group = select.args.get("group")
    if group is None:
        return
    if any(value for name, value in group.args.items() if name not in {"expressions", "all"}):
        refuse("grouping")
    if group.args.get("all"):
        yield from (node for _, node in items if not has_aggregate(node))
    for listed in group.expressions:
        node = unwrapped(listed)
        if isinstance(node, exp.Literal) and not node.is_string:
            place = str(node.this)
            if not place.isdigit() or len(place) > 4 or not 1 <= int(place) <= len(items):
                refuse("grouping")
            node = items[int(place) - 1][1]
        elif isinstance(node, exp.Column) and not node.table:
            node = next((each for alias, each in items if alias.casefold() == str(node.name).casefold()), node)
        if has_aggregate(node):
            refuse("misplaced")
        yield node


def _is_star(node: exp.Expression) -> bool:
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def _titled(columns: list[tuple[str, Expression]]) -> Columns:
    """The columns of a result with unique names."""
    taken: set[str] = set()
    for alias, _ in columns:
        if alias:
            if alias.casefold() in taken:
                refuse("name", name=alias)
            taken.add(alias.casefold())
    found: list[tuple[str, Expression]] = []
    for position, (alias, expression) in enumerate(columns):
        if not alias:
            plain = expression.name if isinstance(expression, Column) else ""
            if not plain or plain.startswith(("over ", "part ")):  # names of our own
                plain = f"column_{position + 1}"
            alias = fresh(plain, taken)
            taken.add(alias.casefold())
        found.append((alias, expression))
    return tuple(found)


def _whole(node: exp.Expression | None) -> int | None:
    """The number of LIMIT or OFFSET."""
    if node is None:
        return None
    if not isinstance(node, exp.Limit | exp.Offset | exp.Fetch):
        refuse("limit")
    if isinstance(node, exp.Fetch):
        only(node, "direction", "count", "limit_options")
        options = node.args.get("limit_options")
        if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
            refuse("limit")
    else:
        only(node, "expression")
    given = node.args.get("count" if isinstance(node, exp.Fetch) else "expression")
    count = None if given is None else unwrapped(given)
    digits = str(count.this) if isinstance(count, exp.Literal) and not count.is_string else ""
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 15):
        refuse("limit")
    return int(digits)
