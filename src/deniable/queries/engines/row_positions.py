"""Registered tables, and copies of them with precomputed ranks and row positions.

Few questions need the order of a person's rows: bounds on groups, windows within a person whose own order leaves ties,
and questions that read fewer rows of each person than are kept. DuckDB registers a table without that order, because
hashing and sorting all rows takes longer than the rest of registration. A question that needs it computes it, and then
a copy of the table with ranks is made for the next one.

A bound keeps each person's first k groups and first m rows of each group, in the order of the stored rank. For a whole
table and one grouping column this order is the same in every question, so it is computed once: a copy of the table
stores, for each row, its position within (person, value) and the position of that value among the person's values.
With such a copy a bound is a filter, and the number of people of a key is the number of its rows at position 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, final

from sqlglot import exp

from deniable.queries.engines.engine import PERSON, RANK
from deniable.queries.engines.sql_spelling import cast, column, function, inside, name, window
from deniable.queries.relations.person_windows import PersonWindows
from deniable.queries.relations.relation_nodes import Bound, RelationNode, Source

PLACE: Final = "stored_place"
"""The position, by rank, of a row among the rows of its person with the same value; from 1."""
PEOPLE: Final = " people"
"""The suffix in the name of a copy that marks one row, no matter which, of each person and value, to count people."""
GROUP: Final = "stored_place_of_group"
"""The position of that value among the person's values, by the rank of its first row; from 1."""


@final
@dataclass(frozen=True, slots=True)
class Stored:
    """Where an engine stores a registered table: its name there, and the stored name of each declared column."""

    location: exp.Table
    columns: Mapping[str, str]
    rows: int | None
    """The maximum number of rows kept for a person; None for a public table."""
    placed: Mapping[str, exp.Table] = field(default_factory=dict)
    """The copies with positions, by the stored name of the column; the copy with ranks alone is under "rank"."""
    order: exp.Select | None = None
    """SELECT of all rows with their ranks; None if `location` has them. It contains the secret: never show it."""
    people: exp.Expression | None = None
    """The number of people with rows, as an aggregate of the table; None if `location` has ranks."""
    empty: bool = False
    """Whether queries must treat it as empty."""

    def nameless(self) -> Stored:
        """This record without catalogue, copies and secret: what an analyst may see, as if the table had ranks."""
        return replace(self, location=exp.Table(this=self.location.this.copy()), placed={}, order=None, people=None)

    def emptied(self) -> Stored:
        """This record, to be read as an empty table; a public table stays as it is."""
        return self if self.rows is None else replace(self, placed={}, empty=True, order=None, people=None)

    @property
    def with_ranks(self) -> exp.Expression:
        """The rows with their ranks, to select from."""
        if self.order is None:
            return self.location.copy()
        copy = self.placed.get(RANK)
        return inside(self.order.copy()) if copy is None else copy.copy()


@final
@dataclass(frozen=True, slots=True)
class Wish:
    """A copy with positions by a column that would have made a question cheaper.

    `at_once`: creating it costs no more than the question without it. Other copies pay off from the second such
    question on.
    """

    table: str
    column: str
    at_once: bool


def stored_name(position: int, column_name: str) -> str:
    """A column name that is safe in SQL and still readable, from a number and the first letters of the declared name.

    >>> stored_name(4, "Age at visit")
    'c4_age_at_visit'
    """
    slug = re.sub(r"[^a-z0-9]+", "_", column_name.lower()).strip("_")[:24]
    return f"c{position}_{slug}" if slug else f"c{position}"


def needs_order(relation: RelationNode, tables: Mapping[str, Stored]) -> bool:
    """Whether a question about this relation depends on the order of a person's rows."""
    if isinstance(relation, Bound):
        return True
    if isinstance(relation, PersonWindows) and any(window.is_tied_by_rank for _, window in relation.windows):
        return True
    if isinstance(relation, Source):
        stored = tables.get(relation.table.name)
        return stored is not None and stored.rows is not None and relation.rows < stored.rows
    return any(needs_order(each, tables) for each in relation.children)


def copied(stored: Stored, which: str) -> exp.Select:
    """SELECT of a copy of a registered table: with ranks, with positions by a column, or to count people by it."""
    if which == RANK and stored.order is not None:
        return stored.order.copy()
    if not which.endswith(PEOPLE):
        return with_places(stored, which)
    place = window(function("ROW_NUMBER"), [column(PERSON), column(which.removesuffix(PEOPLE))], [], PLACE)
    rows = [column(each) for each in (PERSON, RANK, *stored.columns.values())]
    whole = exp.Select(expressions=[*rows, place], from_=exp.From(this=stored.location.copy()))
    small = exp.Alias(this=cast(column(PLACE), "INT"), alias=name(PLACE))
    return exp.Select(expressions=[*(each.copy() for each in rows), small], from_=exp.From(this=inside(whole)))


def with_places(stored: Stored, by: str) -> exp.Select:
    """SELECT of the rows of a registered table with their positions by one of its columns."""
    in_group, rank = [column(PERSON), column(by)], [column(RANK)]
    # Both use one window: in the order of ranks, the running minimum is the rank of the group's first row.
    place = window(function("ROW_NUMBER"), in_group, rank, PLACE)
    first = window(function("MIN", column(RANK)), in_group, rank, "first")
    below = exp.Select(expressions=[exp.Star(), place, first], from_=exp.From(this=stored.with_ranks))
    group = window(function("DENSE_RANK"), [column(PERSON)], [column("first")], GROUP)
    kept = [column(each) for each in (PERSON, RANK, *stored.columns.values(), PLACE)]
    whole = exp.Select(expressions=[*kept, group], from_=exp.From(this=inside(below)))
    small = [exp.Alias(this=cast(column(each), "INT"), alias=name(each)) for each in (PLACE, GROUP)]
    return exp.Select(expressions=[*(each.copy() for each in kept[:-1]), *small], from_=exp.From(this=inside(whole)))
