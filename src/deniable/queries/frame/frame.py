"""Frames: questions built by method calls, with the same plans, checks and hashes as SQL.

>>> from deniable.queries.frame.frame_aggregates import count, mean
>>> from deniable.queries.plan.refusals import EXAMPLE
>>> from deniable.tables.expressions import col
>>> visits = Frame.of("visits", EXAMPLE)
>>> question = visits.filter(col("age") > 60).group_by("ward").agg(n=count(), cost=mean("cost"))
>>> question.names
('ward', 'n', 'cost')
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn, final

from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, QuestionRefused, type_of
from deniable.queries.frame.frame_aggregates import Aggregation
from deniable.queries.plan.answer_notes import listed
from deniable.queries.plan.disjointness import disjoint
from deniable.queries.plan.fresh_names import apart, fresh
from deniable.queries.plan.named_keys import public_values
from deniable.queries.plan.question import Key, Measure, Post, Question, asked
from deniable.queries.plan.refusals import MOST_NODES, choices, refuse
from deniable.queries.relations.constant_kinds import fitted
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
from deniable.queries.relations.whole_people import check_whole_people
from deniable.tables.expressions import Column, Expression, Literal, as_expression, call, columns_used, renamed
from deniable.tables.kinds import Scalar
from deniable.tables.schema import Table

MOST_COLUMNS: Final = 100_000
"""The most columns of all steps of a frame together; each step lists the columns that it keeps."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Rows of a private table after some steps. No data is read; every method returns a new frame.

    Methods raise `QuestionRefused` if a step cannot be answered privately, and `InvalidParameter` for wrong arguments.
    """

    relation: RelationNode
    names: Mapping[str, str]
    """The name of each column in the relation, by its name here."""
    tables: Mapping[str, Table]

    def __post_init__(self) -> None:
        # A frame that is joined with itself doubles each time, so thirty lines could make an endless plan.
        if nodes(self.relation) > MOST_NODES:
            refuse("nodes")
        if columns(self.relation) > MOST_COLUMNS:
            raise QuestionRefused(
                "too_deep",
                f"the steps of a frame must have at most {MOST_COLUMNS:,} columns together",
                "add columns in one step, or select(...) those that are still needed",
            )

    @classmethod
    def of(cls, name: str, tables: Mapping[str, Table]) -> Frame:
        """The rows of a private table; `QuestionRefused` for an unknown name."""
        source = Source(_table(name, tables))
        return cls(source, {column: column for column in source.columns}, tables)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.names)

    def __repr__(self) -> str:
        of, rows = ", ".join(table.name for table in self.relation.tables), self.relation.rows
        columns = {name: self.relation.columns[inner] for name, inner in self.names.items()}
        return "\n".join([f"Frame of {of}, at most {rows} row{'s' if rows > 1 else ''} of a person", *listed(columns)])

    def __getitem__(self, name: object) -> NoReturn:
        """Always raises: a frame has no cells to read, and `col` names columns."""
        raise InvalidOperation(
            'a frame has no cells to look at; write col("age") for a column, or filter(...), select(...)'
        )

    def filter(self, *conditions: Expression) -> Frame:
        """Keep the rows for which all conditions are true: `filter(col("age") > 60)`."""
        if not conditions:
            return self
        parts = [self._own(condition) for condition in conditions]
        return self._over(FilterRows(self.relation, parts[0] if len(parts) == 1 else call("and", *parts)))

    def with_columns(self, **expressions: object) -> Frame:
        """Add computed columns; a column of the same name is replaced: `with_columns(half=col("cost") / 2)`."""
        kept = [(name, inner) for name, inner in self.names.items() if name not in expressions]
        added = [(name, self._own(as_expression(each))) for name, each in expressions.items()]
        taken = {inner for _, inner in kept}
        names = {name: fresh(name, taken) for name, _ in added}
        handed = _handed_on(self.relation)
        project = Project(
            self.relation,
            (
                *(handed.get(inner) or (inner, Column(inner)) for _, inner in kept),
                *((names[name], each) for name, each in added),
            ),
        )
        return Frame(project, {**dict(kept), **names}, self.tables)

    def select(self, *columns: str, **expressions: object) -> Frame:
        """Keep these columns only, and add computed ones."""
        shown = [(name, self._own(Column(name))) for name in _plain("select", columns)]
        shown += [(name, self._own(as_expression(each))) for name, each in expressions.items()]
        if not shown:
            shown = [("row", Literal(1))]
        return Frame(Project(self.relation, tuple(shown)), {name: name for name, _ in shown}, self.tables)

    def join(self, other: Frame | str, on: str | Iterable[str | tuple[str, str]] = (), *, how: str = "inner") -> Frame:
        """Join with a public table by its name, on equal columns; or with another frame, on the person and on `on`.

        `on` is a column name, or a list of names and (name here, name there) pairs; `how` is "inner" or "left". If both
        sides have a column name, this side keeps it; a public table's column becomes NAME_TABLE, a frame's NAME_2.
        """
        if how not in {"inner", "left"}:
            raise InvalidParameter("how", how, "must be 'inner' or 'left'")
        pairs = [(each, each) if isinstance(each, str) else each for each in ([on] if isinstance(on, str) else on)]
        if isinstance(other, Frame):
            return self._with_frame(other, pairs, How(how))
        return self._with_public(_table(other, self.tables), pairs, How(how))

    def people_in(self, other: Frame) -> Frame:
        """Keep the rows of people who have at least one row in another frame."""
        return self._among(other, How.INNER)

    def people_not_in(self, other: Frame) -> Frame:
        """Keep the rows of people who have no row in another frame."""
        return self._among(other, How.LEFT)

    def union(self, *others: Frame) -> Frame:
        """All rows of all frames, which must have the same columns.

        If their filters provably exclude each other, one person's rows count once and the question costs less.
        """
        names = self.columns
        for other in others:
            if set(other.columns) != set(names):
                raise QuestionRefused("union", "all parts of a union must have the same columns", "select them first")
        parts = [
            Project(frame.relation, tuple((name, Column(frame.names[name])) for name in names))
            for frame in (self, *others)
        ]
        return Frame(Union(tuple(parts), disjoint(parts)), {name: name for name in names}, self.tables)

    def per_person(self, *keys: str, **aggregates: Aggregation) -> Frame:
        """One row for each person (and value of the keys), with aggregates of that person's rows, without noise.

        The result is private like any frame: only `agg` releases numbers, with noise.
        """
        check_whole_people(self.relation.tables)
        by = tuple((key, self._own(Column(key))) for key in _plain("per_person", keys))
        exact = tuple(
            (name, Exact(each.function, None if each.expression is None else self._own(each.expression)))
            for name, each in aggregates.items()
        )
        if not by and not exact:
            exact = (("rows", Exact("count", None)),)
        relation = PerPerson(self.relation, by, exact)
        return Frame(relation, {name: name for name in relation.columns}, self.tables)

    def group_by(self, *keys: str, **expressions: object) -> GroupedFrame:
        """Group by columns and by named expressions: `group_by("ward", decade=col("age") // 10)`."""
        by = [(key, self._own(Column(key))) for key in _plain("group_by", keys)]
        by += [(name, self._own(as_expression(each))) for name, each in expressions.items()]
        return GroupedFrame(self, tuple(Key(name, each, public_values(each, self.relation)) for name, each in by))

    def agg(self, *unnamed: object, **aggregates: Aggregation) -> Question:
        """The question for these aggregates over all rows, each with a name: `agg(n=count())`."""
        return GroupedFrame(self, ()).agg(*unnamed, **aggregates)

    def _over(self, relation: RelationNode) -> Frame:
        return Frame(relation, self.names, self.tables)

    def _own(self, expression: Expression) -> Expression:
        """An expression with the relation's own names, checked."""
        if not isinstance(expression, Expression):
            raise InvalidParameter("expression", expression, "must be an expression", 'write col("age") > 60')
        used = dict.fromkeys(columns_used(expression))
        for name in used:
            if name not in self.names:
                _no_column(name, self)
        own = renamed(expression, {name: Column(self.names[name]) for name in used})
        return fitted(own, self.relation.columns)

    def _with_frame(self, other: Frame, pairs: list[tuple[str, str]], how: How) -> Frame:
        relation, moved = apart(other.relation, self.relation.columns)
        on = tuple((self._inner(a), moved[other._inner(b)]) for a, b in pairs)
        theirs = {fresh(name, self.names): moved[inner] for name, inner in other.names.items()}
        return Frame(JoinPrivate(self.relation, relation, on, how), {**self.names, **theirs}, self.tables)

    def _with_public(self, table: Table, pairs: list[tuple[str, str]], how: How) -> Frame:
        columns = [name for name, _ in table.columns]
        relation, moved = apart(self.relation, columns)
        on = tuple((moved[self._inner(a)], b) for a, b in pairs)
        ours = {name: moved[inner] for name, inner in self.names.items()}
        theirs = {name if name not in ours else fresh(f"{name}_{table.name}", ours): name for name in columns}
        return Frame(JoinPublic(relation, table, on, how), {**ours, **theirs}, self.tables)

    def _among(self, other: Frame, how: How) -> Frame:
        name = fresh("there", self.relation.columns)
        people = PerPerson(other.relation, (), ((name, Exact("count", None)),))
        joined: RelationNode = JoinPrivate(self.relation, people, (), how)
        if how is How.LEFT:
            joined = FilterRows(joined, Column(name).is_null())
        return self._over(joined)

    def _inner(self, name: str) -> str:
        if name not in self.names:
            _no_column(name, self)
        return self.names[name]


def _handed_on(relation: RelationNode) -> dict[str, tuple[str, Expression]]:
    """The columns that a projection passes on unchanged. The next projection reuses these records, to save memory."""
    if not isinstance(relation, Project):
        return {}
    return {each[0]: each for each in relation.expressions if isinstance(each[1], Column) and each[1].name == each[0]}


@final
@dataclass(frozen=True, slots=True, eq=False)
class GroupedFrame:
    """A grouped frame, before aggregates are chosen."""

    frame: Frame
    keys: tuple[Key, ...]

    def with_keys(self, **values: Iterable[Scalar | None]) -> GroupedFrame:
        """The same groups with the values of keys listed as public: exactly these groups are in the answer."""
        unknown = set(values) - {key.name for key in self.keys}
        if unknown:
            raise InvalidParameter("keys", min(unknown), "must be a key of these groups", "name a key of group_by(...)")
        keys = tuple(
            Key(key.name, key.expression, tuple(dict.fromkeys(values[key.name])) if key.name in values else key.values)
            for key in self.keys
        )
        return GroupedFrame(self.frame, keys)

    def __repr__(self) -> str:
        return f"{self.frame!r}\ngrouped by {', '.join(key.name for key in self.keys)}"

    def agg(self, *unnamed: object, **aggregates: Aggregation) -> Question:
        """The question for these aggregates of each group, each with a name: `agg(n=count())`."""
        if unnamed:
            raise InvalidParameter("aggregates", NOTHING, "must each have a name", "write agg(n=count())")
        taken = {key.name for key in self.keys}
        measures = []
        for name, each in aggregates.items():
            if not isinstance(each, Aggregation):
                raise InvalidParameter(name, type_of(each), "must be an aggregate", 'write count(), mean("cost")')
            if name in taken:
                raise QuestionRefused("name", f"two columns of the result are called {name!r}", "name it differently")
            expression = None if each.expression is None else self.frame._own(each.expression)
            measures.append(Measure(name, each.function, expression, dict(each.options)))
        shown = (*(key.name for key in self.keys), *aggregates)
        post = Post(tuple((name, Column(name)) for name in shown))
        return asked(self.frame.relation, self.keys, measures, post, {})


def _table(name: str, tables: Mapping[str, Table]) -> Table:
    if name not in tables:
        raise QuestionRefused("table", f"there is no table {name!r}", choices(str(name), tables))
    return tables[name]


def _plain(method: str, names: tuple[object, ...]) -> tuple[str, ...]:
    """The names as they are; `InvalidParameter` if one is not text."""
    found = tuple(name for name in names if isinstance(name, str))
    if len(found) < len(names):
        raise InvalidParameter(
            "columns", NOTHING, "must be names, given one by one",
            f'write {method}("ward", "sex"); a computed column needs a name: {method}(decade=col("age") // 10)',
        )  # fmt: skip
    return found


def _no_column(name: str, frame: Frame) -> None:
    if any(table.unit is not None and table.unit.column == name for table in frame.relation.tables):
        raise QuestionRefused(
            "person", "the column that identifies people can only be counted, joined on, or grouped by with per_person",
            "write count_persons(), per_person(...) or people_in(...)",
        )  # fmt: skip
    raise QuestionRefused("column", f"there is no column {name!r} here", choices(name, frame.columns))


def nodes(relation: RelationNode) -> int:
    """The number of nodes of a plan, counting a shared part each time it is used."""
    known: dict[int, int] = {}
    pending = [relation]
    while pending:
        each = pending[-1]
        new = [child for child in each.children if id(child) not in known]
        if new:
            pending += new
        else:
            known[id(pending.pop())] = 1 + sum(known[id(child)] for child in each.children)
    return known[id(relation)]


def columns(relation: RelationNode) -> int:
    """The number of columns of all nodes of a plan, counting a shared part once."""
    seen: dict[int, RelationNode] = {}
    pending = [relation]
    while pending:
        each = pending.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            pending += each.children
    return sum(len(each.columns) for each in seen.values())
