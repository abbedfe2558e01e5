"""The SQL generator: a `Collect` (a relation, keys, statistics) in, one or more SELECTs in an engine's dialect out.

**Input.** A tree of relation nodes (filter, join, union …) over registered tables, and the statistics to compute by
group. Registration ranked each person's rows by a secret hash, so every registered table has a column `person` and a
column `rank` besides its own. Every relation keeps these two; no expression of an analyst can refer to them.

**Walk.** `relation` descends the tree and returns a `RowsSelect`: what to select from, SQL for each column, conditions.
A node that only filters or renames adds to that record; a node that computes or groups wraps the SELECT below it in a
subquery. Conditions travel downwards (`asked`) as long as they read columns of one child alone, so that engines drop
rows early; this pushdown is ours because the engines' own optimizers are switched off where they look at the data.
`_Generator.question` then writes one grouped SELECT (`main`) for counts and sums, and one SELECT for each histogram
(`Cells`).

**Why it is safe.** No text of an analyst reaches the engine: columns get generated names (`c4_age`), and every operator
comes from the closed table of `expression_sql`. Every piece of SQL is total: it has a value for every row and raises
for none. The text depends on the plan, the schema and the unit alone, never on rows. `_bound` keeps a person's first
rows and groups by rank, so one person's rows never decide which rows of another are kept; this is the stability that
`relation_nodes` promises. `_addend` turns each value into an integer on the grid of the statistic: integer sums do not
depend on the order of rows, so every engine returns the same bits and the sensitivity is exact.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import compress, count
from operator import not_
from typing import Final, final

from sqlglot import exp

from deniable.errors import InvalidOperation, InvalidParameter
from deniable.queries.engines.cell_index import cell_index
from deniable.queries.engines.engine import PERSON, RANK
from deniable.queries.engines.expression_sql import ExpressionWriter, Piece
from deniable.queries.engines.person_sql import ReadyWindow, exact_sql
from deniable.queries.engines.row_positions import GROUP, PEOPLE, PLACE, Stored, Wish, needs_order, stored_name
from deniable.queries.engines.sql_spelling import (
    LEFT,
    RIGHT,
    SQL,
    JoinSide,
    Spelling,
    again,
    both,
    case,
    cast,
    column,
    function,
    inside,
    name,
    number,
    of,
    window,
)
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
from deniable.queries.relations.person_windows import PersonWindows
from deniable.queries.relations.relation_nodes import (
    Bound,
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
from deniable.tables.expressions import Call, Column, Expression, columns_used, conjuncts, renamed
from deniable.tables.kinds import LARGEST, SMALLEST, Domain, Kind
from deniable.tables.schema import Table

Asked = tuple[Expression, ...]
"""Conditions on the rows of a relation; all of them must be true."""

_WIDEST: Final = 2**62
"""The largest addend of one row: it fits into 64 bits, and sums of any number of rows fit into 128."""


@final
@dataclass(frozen=True, slots=True)
class RowsSelect:
    """An unfinished SELECT: columns FROM origin WHERE conditions."""

    origin: SQL
    columns: Mapping[str, Piece]
    conditions: tuple[SQL, ...] = ()
    everyone: bool = False
    """Whether each person has exactly one row of rank 1."""
    ranked: bool = False
    """Whether no two rows of a person have the same rank."""
    table: str | None = None
    """The registered table, if these are all of its rows or each person's first few; None after any other node."""
    people: SQL | None = None
    """The number of people, if these are all rows of a table without ranks."""
    placed: bool = False
    """Whether `origin` is a copy with positions (`row_positions`) by the key of the question."""


@final
@dataclass(frozen=True, slots=True)
class Written:
    """The SELECTs of a question.

    `main` returns the keys and one column for each statistic other than `Cells`; None if every statistic is `Cells`.
    Each SELECT of `cells` returns the keys, the index of a cell, and the number of rows in it.
    """

    main: str | None
    cells: tuple[str, ...]
    wishes: tuple[Wish, ...] = ()
    """The copies with positions (`row_positions`) that would have made it cheaper."""

    @property
    def text(self) -> str:
        """All SELECTs, separated by semicolons."""
        return ";\n".join(part for part in (self.main, *self.cells) if part is not None)


def write(question: Collect, tables: Mapping[str, Stored], spelling: Spelling) -> Written:
    """The SQL of a question over registered tables. Raises `InvalidOperation` if one is not registered."""
    return _Generator(tables, spelling).question(question)


@final
class _Generator:
    def __init__(self, tables: Mapping[str, Stored], spelling: Spelling) -> None:
        self.tables = tables
        self.spelling = spelling
        self.names = count()
        self.wishes: dict[Wish, None] = {}
        self.ordered = False

    # --- questions --------------------------------------------------------------------------------------------------

    def question(self, question: Collect) -> Written:
        self.ordered = needs_order(question.relation, self.tables)
        plain = [each for each in question.statistics if not isinstance(each, Cells)]
        main = None
        if plain or not question.statistics:
            main = self._text(self._grouped(question, plain))
        cells = [self._text(self._cells(question, each)) for each in question.statistics if isinstance(each, Cells)]
        return Written(main, tuple(cells), tuple(self.wishes))

    def _text(self, select: SQL) -> str:
        return select.sql(dialect=self.spelling.dialect, copy=False, normalize_functions=False)

    def _start(self, question: Collect) -> tuple[RowsSelect, ExpressionWriter, list[Piece]]:
        rows = self.relation(question.relation)
        people = any(isinstance(each, CountPersons) and each.expression is None for each in question.statistics)
        if people and question.relation.rows > 1 and len(question.keys) == 1:
            copy = self._placed(rows, question.keys[0][1], at_once=False)
            rows = rows if copy is None else replace(rows, origin=copy, placed=True)
        writer = self._writer(rows)
        keys = [writer.named(writer.write(key)) for _, key in question.keys]
        return rows, writer, keys

    def _finish(
        self,
        question: Collect,
        rows: RowsSelect,
        writer: ExpressionWriter,
        keys: list[Piece],
        outputs: Sequence[SQL],
        by: list[SQL],
    ) -> SQL:
        rows = self._stacked(rows, writer)
        known = self._known(question, keys)
        select = self._select([*(again(key.sql) for key in keys), *outputs], rows.origin, (*rows.conditions, *known))
        grouping = [*(again(key.sql) for key in keys), *by]
        if grouping:
            select.set("group", exp.Group(expressions=grouping))
        return select

    def _grouped(self, question: Collect, statistics: Sequence[Statistic]) -> SQL:
        rows, writer, keys = self._start(question)
        outputs = [self._statistic(each, question, rows, writer) for each in statistics]
        return self._finish(question, rows, writer, keys, outputs or [function("COUNT", exp.Star())], [])

    def _cells(self, question: Collect, statistic: Cells) -> SQL:
        rows, writer, keys = self._start(question)
        value = writer.named(writer.write(statistic.expression))
        index = writer.named(Piece(cell_index(self.spelling, statistic, value), Domain(Kind.INTEGER), 99, value.layer))
        present = exp.Not(this=exp.Is(this=value.sql.copy(), expression=exp.Null()))
        outputs = [index.sql, function("COUNT", exp.Star())]
        select = self._finish(question, rows, writer, keys, outputs, [index.sql.copy()])
        assert isinstance(select, exp.Select)
        return select.where(present, copy=False)

    def _known(self, question: Collect, keys: list[Piece]) -> Iterable[SQL]:
        """Conditions that keep only the requested groups. A key whose domain has no other values needs no condition."""
        if question.known is None:
            return
        columns = question.relation.columns
        for position, ((_, expression), key) in enumerate(zip(question.keys, keys, strict=True)):
            wanted = {group[position] for group in question.known}
            can_be = domain(expression, columns).keys
            if can_be is not None and set(can_be) <= wanted:
                continue
            named = [self.spelling.literal(value, key.kind) for value in wanted if value is not None]
            tests: list[SQL] = [exp.In(this=key.sql.copy(), expressions=named)] if named else []
            if None in wanted:
                tests.append(exp.Is(this=key.sql.copy(), expression=exp.Null()))
            yield exp.Paren(this=exp.or_(*tests)) if tests else exp.false()

    def _placed(self, rows: RowsSelect, key: Expression, *, at_once: bool) -> exp.Table | None:
        """The copy of a whole table with positions by a column. If it does not exist, note a wish and return None."""
        if rows.table is None or not isinstance(key, Column):
            return None
        by, placed = rows.columns[key.name].sql.name, self.tables[rows.table].placed
        found = placed.get(by) or (None if at_once else placed.get(by + PEOPLE))
        if found is None:
            self.wishes[Wish(rows.table, by if at_once else by + PEOPLE, at_once)] = None
        return None if found is None else found.copy()

    # --- statistics -------------------------------------------------------------------------------------------------

    def _statistic(self, statistic: Statistic, question: Collect, rows: RowsSelect, writer: ExpressionWriter) -> SQL:
        match statistic:
            case Count(expression=None):
                return function("COUNT", exp.Star())
            case Count(expression=expression) if expression is not None:
                return function("COUNT", writer.write(expression).sql)
            case CountPersons(expression=expression):
                return self._people(expression, question, rows, writer)
            case CountDistinct(expression=expression):
                return _distinct(writer.write(expression).sql)
            case ExactSum():
                value = writer.named(writer.write(statistic.expression))
                return self.spelling.total(self._addend(statistic, value))
        raise AssertionError(statistic)

    def _people(
        self, expression: Expression | None, question: Collect, rows: RowsSelect, writer: ExpressionWriter
    ) -> SQL:
        if question.relation.rows == 1:  # each person has one row, so counting rows counts people
            return function("COUNT", exp.Star() if expression is None else writer.write(expression).sql)
        if expression is None:
            if rows.people is not None and not question.keys:
                return rows.people.copy()
            if rows.everyone and not question.keys:
                first = both(exp.EQ, column(RANK), number(1))
                return function("COUNT", case((first, number(1))))
            if rows.placed:  # the first row of each person and key
                return function("COUNT", case((both(exp.EQ, column(PLACE), number(1)), number(1))))
            return _distinct(column(PERSON))
        present = exp.Not(this=exp.Is(this=exp.Paren(this=writer.write(expression).sql), expression=exp.Null()))
        return _distinct(case((present, column(PERSON))))

    def _addend(self, statistic: ExactSum, value: Piece) -> SQL:
        """floor(clamp(x)/2^exponent + 1/2), clamped to the grid. NULL stays NULL, because no branch is true for it."""
        low, high = statistic.grid
        if not -_WIDEST <= low <= high <= _WIDEST:
            raise InvalidParameter(
                "exponent",
                statistic.exponent,
                "the bounds must be within 2^62 steps of the grid",
                "take a coarser grid",
            )
        if value.kind is Kind.INTEGER:
            return self._addend_of_integer(statistic, value)
        x = value.sql
        below, above = float(statistic.low), float(statistic.high)
        scaled = both(exp.Mul, x, self.spelling.real(2.0**-statistic.exponent))
        inner = cast(function("FLOOR", both(exp.Add, scaled, self.spelling.real(0.5))), "BIGINT")
        if _floored(below, statistic.exponent) < low or _floored(above, statistic.exponent) > high:
            # The bounds were rounded to floats, so a value at a bound may land one step outside the grid.
            inner = case(
                (both(exp.LT, inner, number(low)), number(low)),
                (both(exp.GT, inner.copy(), number(high)), number(high)),
                otherwise=inner.copy(),
            )
        return self._clamped(
            x, (self.spelling.real(below), self.spelling.real(above)),
            inner, (statistic.addend(below), statistic.addend(above)),
        )  # fmt: skip

    def _clamped(self, x: SQL, bounds: tuple[SQL, SQL], inner: SQL, ends: tuple[int, int]) -> SQL:
        """`inner` where x is within the bounds, else an end of the grid. Most rows take the first branch."""
        below, above = bounds
        within = exp.Between(this=x.copy(), low=below, high=above)
        return case(
            (exp.Paren(this=within), inner),
            (both(exp.LT, x.copy(), below.copy()), number(ends[0])),
            (both(exp.GT, x.copy(), above.copy()), number(ends[1])),
        )

    def _addend_of_integer(self, statistic: ExactSum, value: Piece) -> SQL:
        low, high = statistic.grid
        x, step = value.sql, Fraction(2) ** statistic.exponent
        # The range of integers that are not clamped.
        below, above = math.ceil(low * step), math.floor(high * step)
        if below > LARGEST or above < SMALLEST:
            present = exp.Not(this=exp.Is(this=x, expression=exp.Null()))
            return case((present, number(low if below > LARGEST else high)))
        below, above = max(below, SMALLEST), min(above, LARGEST)
        if statistic.exponent == 0:
            inner = x
        elif statistic.exponent < 0:
            inner = both(exp.Mul, x, self.spelling.literal(2**-statistic.exponent, Kind.INTEGER))
        else:
            width = 2**statistic.exponent
            # The non-negative remainder: x minus it is a multiple of the width, so the division is exact.
            over = both(exp.Mod, both(exp.Add, both(exp.Mod, x, number(width)), number(width)), number(width))
            whole = both(exp.IntDiv, both(exp.Sub, x.copy(), over), number(width))
            up = case((both(exp.GTE, over.copy(), number(width // 2)), number(1)), otherwise=number(0))
            inner = both(exp.Add, whole, up)
        bounds = (self.spelling.literal(below, Kind.INTEGER), self.spelling.literal(above, Kind.INTEGER))
        return self._clamped(x, bounds, cast(inner, "BIGINT"), (low, high))

    # --- relations --------------------------------------------------------------------------------------------------

    def relation(self, relation: RelationNode, asked: Asked = ()) -> RowsSelect:
        """The rows of a relation that meet all conditions. Each condition is applied as far down as possible."""
        match relation:
            case Source():
                return self._where(self._source(relation), asked)
            case FilterRows():
                return self.relation(relation.child, (*conjuncts(relation.condition), *asked))
            case Project():
                return self._project(relation, asked)
            case JoinPublic():
                return self._join_public(relation, asked)
            case JoinPrivate():
                return self._join_private(relation, asked)
            case PerPerson():
                return self._per_person(relation, asked)
            case PersonWindows():
                return self._where(self._windows(relation), asked)
            case Union():
                return self._union(relation, asked)
            case Bound():
                return self._where(self._bound(relation), asked)
        raise AssertionError(relation)

    def _where(self, rows: RowsSelect, asked: Asked) -> RowsSelect:
        if not asked:
            return rows
        writer = self._writer(rows)
        texts = {each for each, piece in rows.columns.items() if piece.kind is Kind.TEXT}
        # Engines evaluate conditions in this order, each on the rows that passed the one before. Text is slowest.
        ordered = sorted(asked, key=lambda each: (not texts.isdisjoint(columns_used(each)), each.parts))
        condition = writer.write(ordered[0] if len(ordered) == 1 else Call("and", tuple(ordered)))
        rows = self._stacked(rows, writer)
        return replace(rows, conditions=(*rows.conditions, condition.sql), everyone=False, table=None, people=None)

    def _stored(self, table: Table) -> Stored:
        found = self.tables.get(table.name)
        if found is None:
            raise InvalidOperation(f"the table {table.name!r} is not registered with this engine; register it first")
        return found

    def _columns(self, stored: Stored, columns: Iterable[tuple[str, Domain]]) -> dict[str, Piece]:
        return {each: Piece(column(stored.columns[each]), found) for each, found in columns}

    def _source(self, relation: Source) -> RowsSelect:
        stored = self._stored(relation.table)
        columns = self._columns(stored, relation.columns.items())
        conditions: tuple[SQL, ...] = ()
        assert stored.rows is not None
        if relation.rows < stored.rows:
            conditions = (both(exp.LTE, column(RANK), number(relation.rows)),)
        if stored.empty:
            conditions = (*conditions, exp.false())
        title = relation.table.name
        if stored.order is not None and not self.ordered:
            return RowsSelect(stored.location.copy(), columns, conditions, table=title, people=stored.people)
        if stored.order is not None and RANK not in stored.placed:
            self.wishes[Wish(title, RANK, at_once=True)] = None
        return RowsSelect(stored.with_ranks, columns, conditions, True, True, title)

    def _public(self, table: Table) -> RowsSelect:
        stored = self._stored(table)
        return RowsSelect(stored.location.copy(), self._columns(stored, table.columns))

    def _project(self, relation: Project, asked: Asked) -> RowsSelect:
        plain = {new: each for new, each in relation.expressions if isinstance(each, Column)}
        early, late = split(asked, plain)
        below = self.relation(relation.child, tuple(renamed(each, plain) for each in early))
        if len(plain) == len(relation.expressions):
            return replace(below, columns={new: below.columns[each.name] for new, each in plain.items()})
        writer = self._writer(below)
        pieces = {new: writer.write(each) for new, each in relation.expressions}
        below = self._stacked(below, writer)
        outputs, columns = self._named(pieces, relation.columns)
        select = self._select([column(PERSON), column(RANK), *outputs], below.origin, below.conditions)
        made = replace(below, origin=inside(select), columns=columns, conditions=(), table=None)
        return self._where(made, late)

    def _join_public(self, relation: JoinPublic, asked: Asked) -> RowsSelect:
        of_left, asked = split(asked, relation.child.columns)
        of_right, asked = split(asked, dict(relation.table.columns) if relation.how is How.INNER else ())
        left, right = self.relation(relation.child, of_left), self._where(self._public(relation.table), of_right)
        ours, theirs = _keys(relation, left, right)
        sides = self._side(left, ours, relation.rows, (PERSON, RANK)), self._side(right, theirs, 1, ())
        return self._where(self._joined(relation, left, right, self.spelling.joined(*sides, relation.how)), asked)

    def _join_private(self, relation: JoinPrivate, asked: Asked) -> RowsSelect:
        of_left, asked = split(asked, relation.left.columns)
        of_right, asked = split(asked, relation.right.columns if relation.how is How.INNER else ())
        left, right = self.relation(relation.left, of_left), self.relation(relation.right, of_right)
        ours, theirs = _keys(relation, left, right)
        sides = (
            self._side(left, [PERSON, *ours], relation.left.rows, (PERSON, RANK)),
            self._side(right, [PERSON, *theirs], relation.right.rows, (PERSON, RANK)),
        )
        return self._where(self._joined(relation, left, right, self.spelling.joined(*sides, relation.how)), asked)

    def _side(self, rows: RowsSelect, keys: list[str], most: int, unseen: tuple[str, ...]) -> JoinSide:
        kinds = dict.fromkeys(unseen, Kind.INTEGER) | {each.sql.name: each.kind for each in rows.columns.values()}
        return JoinSide(self._select([column(each) for each in kinds], rows.origin, rows.conditions), kinds, keys, most)

    def _joined(self, relation: RelationNode, left: RowsSelect, right: RowsSelect, joined: exp.Select) -> RowsSelect:
        pieces = {each: replace(piece, sql=of(LEFT, piece.sql.name)) for each, piece in left.columns.items()}
        pieces |= {each: replace(piece, sql=of(RIGHT, piece.sql.name)) for each, piece in right.columns.items()}
        outputs, columns = self._named(pieces, relation.columns)
        joined.set("expressions", [of(LEFT, PERSON), of(LEFT, RANK), *outputs])
        return RowsSelect(inside(joined), columns)

    def _per_person(self, relation: PerPerson, asked: Asked) -> RowsSelect:
        plain = {new: each for new, each in relation.keys if isinstance(each, Column)}
        early, late = split(asked, plain)
        below = self.relation(relation.child, tuple(renamed(each, plain) for each in early))
        writer = self._writer(below)
        keys = {each: writer.named(writer.write(key)) for each, key in relation.keys}
        totals = {
            each: exact_sql(exact, writer, relation.child.rows, relation.columns[each])
            for each, exact in relation.aggregates
        }
        below = self._stacked(below, writer)
        outputs, columns = self._named(keys | totals, relation.columns)
        rank = exp.Alias(this=function("MIN", column(RANK)), alias=name(RANK))
        select = self._select([column(PERSON), rank, *outputs], below.origin, below.conditions)
        grouping = [column(PERSON), *(key.sql.copy() for key in keys.values())]
        select.set("group", exp.Group(expressions=grouping))
        return self._where(RowsSelect(inside(select), columns), late)

    def _windows(self, relation: PersonWindows) -> RowsSelect:
        """Each row with its windows. No condition moves below: it would change the rows that a window reads."""
        below = self.relation(relation.child)
        writer = self._writer(below)
        made = {each: ReadyWindow.of(window, writer) for each, window in relation.windows}
        below = self._stacked(below, writer)
        content = [each.sql for each in below.columns.values()]
        ties = [column(RANK), *(() if below.ranked else content)]
        pieces = {
            each: Piece(ready.sql(writer, ties, relation.child.rows), relation.columns[each])
            for each, ready in made.items()
        }
        outputs, columns = self._named(pieces, relation.columns)
        kept = [each.copy() for each in content]
        select = self._select([column(PERSON), column(RANK), *kept, *outputs], below.origin, below.conditions)
        return RowsSelect(inside(select), {**below.columns, **columns}, (), below.everyone, below.ranked)

    def _union(self, relation: Union, asked: Asked) -> RowsSelect:
        selects: list[SQL] = []
        # A condition moves into the parts only if each part has the kind of the union: in a part of another kind, whose
        # values are promoted above it, the same condition could mean something else.
        alike = [
            each
            for each, found in relation.columns.items()
            if all(part.columns[each].kind is found.kind for part in relation.parts)
        ]
        early, late = split(asked, alike)
        aliases = {each: self._alias(each) for each in relation.columns}
        for part in relation.parts:
            rows = self.relation(part, early)
            writer = self._writer(rows)
            outputs: list[SQL] = [
                exp.Alias(this=writer.promoted(rows.columns[each], found.kind).sql.copy(), alias=name(aliases[each]))
                for each, found in relation.columns.items()
            ]
            selects.append(self._select([column(PERSON), column(RANK), *outputs], rows.origin, rows.conditions))
        together = selects[0]
        for select in selects[1:]:
            together = exp.Union(this=together, expression=select, distinct=False)
        columns = {each: Piece(column(aliases[each]), found) for each, found in relation.columns.items()}
        return self._where(RowsSelect(inside(together), columns), late)

    def _bound(self, relation: Bound) -> RowsSelect:
        """Keep each person's first groups, ordered by their first rows, and the first rows of each of these groups.

        Rows are ordered by rank, then by their content. So which rows are kept depends on this person's rows alone:
        rows that still tie are equal.
        """
        below = self.relation(relation.child)
        placed = self._placed(below, relation.keys[0], at_once=True) if len(relation.keys) == 1 else None
        if placed is not None:
            few = (
                both(exp.LTE, column(PLACE), number(relation.rows_per_group)),
                both(exp.LTE, column(GROUP), number(relation.groups)),
            )
            # `below` may hold each person's first few rows only; by rank, their positions are the same as among all.
            return RowsSelect(placed, below.columns, (*below.conditions, *few), ranked=True)
        writer = self._writer(below)
        keys = [writer.named(writer.write(key)).sql for key in relation.keys]
        below = self._stacked(below, writer)
        content = [each.sql for each in below.columns.values()]
        ordered = [column(RANK), *(() if below.ranked else content)]
        in_group = [column(PERSON), *keys]
        # Both use one window: in the order of ranks, the running minimum is the rank of the group's first row.
        place = window(function("ROW_NUMBER"), in_group, ordered, "place")
        first = window(function("MIN", column(RANK)), in_group, ordered, "first")
        rows = inside(self._select([exp.Star(), place, first], below.origin, below.conditions))
        conditions: tuple[SQL, ...] = (both(exp.LTE, column("place"), number(relation.rows_per_group)),)
        if relation.groups < relation.child.rows:
            rows = inside(self._select([exp.Star()], rows, conditions))
            tied = [] if below.ranked else keys
            group = window(function("DENSE_RANK"), [column(PERSON)], [column("first"), *tied], "place_of_group")
            rows = inside(self._select([exp.Star(), group], rows, ()))
            conditions = (both(exp.LTE, column("place_of_group"), number(relation.groups)),)
        content_columns = [column(PERSON), column(RANK), *(each.copy() for each in content)]
        select = self._select(content_columns, rows, conditions)
        return RowsSelect(inside(select), below.columns, ranked=below.ranked)

    # --- parts of a SELECT ------------------------------------------------------------------------------------------

    def _writer(self, rows: RowsSelect) -> ExpressionWriter:
        return ExpressionWriter(self.spelling, rows.columns, self.names)

    def _stacked(self, rows: RowsSelect, writer: ExpressionWriter) -> RowsSelect:
        """The rows with the named pieces of the writer as further columns, one subquery for each layer."""
        for layer in writer.layers:
            outputs = [exp.Alias(this=sql, alias=name(alias)) for alias, sql in layer]
            select = self._select([exp.Star(), *outputs], rows.origin, rows.conditions)
            rows = replace(rows, origin=inside(select), conditions=())
        return rows

    def _alias(self, column_name: str) -> str:
        return stored_name(next(self.names), column_name)

    def _named(self, pieces: Mapping[str, Piece], columns: Mapping[str, Domain]) -> tuple[list[SQL], dict[str, Piece]]:
        aliases = {each: self._alias(each) for each in pieces}
        outputs: list[SQL] = []
        for each, piece in pieces.items():
            kind = columns[each].kind
            typed = cast(piece.sql, self.spelling.types[kind]) if isinstance(piece.sql, exp.Null) else piece.sql
            outputs.append(exp.Alias(this=typed, alias=name(aliases[each])))
        return outputs, {each: Piece(column(aliases[each]), columns[each]) for each in pieces}

    def _select(self, outputs: Sequence[SQL], origin: SQL, conditions: Sequence[SQL]) -> exp.Select:
        select = exp.Select(expressions=list(outputs), from_=exp.From(this=origin))
        if conditions:
            select.set("where", exp.Where(this=exp.and_(*conditions, copy=False)))
        return select


def _keys(relation: JoinPublic | JoinPrivate, left: RowsSelect, right: RowsSelect) -> tuple[list[str], list[str]]:
    """The stored names of the columns that must be equal."""
    return [left.columns[a].sql.name for a, _ in relation.on], [right.columns[b].sql.name for _, b in relation.on]


def split(asked: Asked, columns: Collection[str]) -> tuple[Asked, Asked]:
    """(the conditions that read no other columns than these, the other conditions)."""
    inner = [set(columns_used(each)) <= set(columns) for each in asked]
    return tuple(compress(asked, inner)), tuple(compress(asked, map(not_, inner)))


def _distinct(value: SQL) -> SQL:
    return exp.Count(this=exp.Distinct(expressions=[value]))


def _floored(value: float, exponent: int) -> int:
    return math.floor(value / 2.0**exponent + 0.5)
