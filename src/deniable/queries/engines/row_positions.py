"""Registered tables, and copies of them with precomputed row positions.

A bound keeps each person's first k groups and first m rows of each group, in the order of the stored rank. For a whole
table and one grouping column this order is the same in every question, so it is computed once: a copy of the table
stores, for each row, its position within (person, value) and the position of that value among the person's values.
With such a copy a bound is a filter, and the number of people of a key is the number of its rows at position 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, final

from sqlglot import exp

from deniable.queries.engines.engine import PERSON, RANK
from deniable.queries.engines.sql_spelling import cast, column, function, inside, name, window

PLACE: Final = "stored_place"
"""The position, by rank, of a row among the rows of its person with the same value; from 1."""
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
    """The copies with positions, by the stored name of the column."""
    empty: bool = False
    """Whether queries must treat it as empty."""

    def nameless(self) -> Stored:
        """This record without catalogue and copies: the part of its location that an analyst may see."""
        return replace(self, location=exp.Table(this=self.location.this.copy()), placed={})

    def emptied(self) -> Stored:
        """This record, to be read as an empty table; a public table stays as it is."""
        return self if self.rows is None else replace(self, placed={}, empty=True)


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


def with_places(stored: Stored, by: str) -> exp.Select:
    """SELECT of the rows of a registered table with their positions by one of its columns."""
    in_group, rank = [column(PERSON), column(by)], [column(RANK)]
    # Both use one window: in the order of ranks, the running minimum is the rank of the group's first row.
    place = window(function("ROW_NUMBER"), in_group, rank, PLACE)
    first = window(function("MIN", column(RANK)), in_group, rank, "first")
    below = exp.Select(expressions=[exp.Star(), place, first], from_=exp.From(this=stored.location.copy()))
    group = window(function("DENSE_RANK"), [column(PERSON)], [column("first")], GROUP)
    kept = [column(each) for each in (PERSON, RANK, *stored.columns.values(), PLACE)]
    whole = exp.Select(expressions=[*kept, group], from_=exp.From(this=inside(below)))
    small = [exp.Alias(this=cast(column(each), "INT"), alias=name(each)) for each in (PLACE, GROUP)]
    return exp.Select(expressions=[*(each.copy() for each in kept[:-1]), *small], from_=exp.From(this=inside(whole)))
