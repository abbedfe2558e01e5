"""Registered tables, and copies of them in which every row knows its place by a column.

Which of a person's groups come first, and which of their rows, is decided by the stored rank. For all rows of a table
that is the same in every question. So it can be worked out once for a column, and then a bound on groups and rows by
that column is a filter, and the people of each key are the rows in the first place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, final

from sqlglot import exp

from deniable.queries.engines.engine import PERSON, RANK
from deniable.queries.engines.sql_spelling import cast, column, function, inside, name, window

PLACE: Final = "stored_place"
"""The place of a row among those of its person with the same value, by rank."""
GROUP: Final = "stored_place_of_group"
"""The place of that value among the person's values, by the rank of its first row."""


@final
@dataclass(frozen=True, slots=True)
class Stored:
    """Where an engine keeps a registered table: its name there, and the names of its columns."""

    location: exp.Table
    columns: Mapping[str, str]
    rows: int | None
    """The most rows of a person that were kept; None for a public table."""
    placed: Mapping[str, exp.Table] = field(default_factory=dict)
    """The copies with places, each by the stored name of its column."""
    empty: bool = False
    """Whether it is read as if it had no rows."""

    def nameless(self) -> Stored:
        """The same without its catalogue and without copies: what of its place may be shown."""
        return replace(self, location=exp.Table(this=self.location.this.copy()), placed={})

    def emptied(self) -> Stored:
        """The same as if nobody were in it; a public table as it is."""
        return self if self.rows is None else replace(self, placed={}, empty=True)


@final
@dataclass(frozen=True, slots=True)
class Wish:
    """A copy with places by a column, which would have made a question cheaper.

    `at_once`: to make it costs no more than the question without it. Others pay when they are asked again.
    """

    table: str
    column: str
    at_once: bool


def with_places(stored: Stored, by: str) -> exp.Select:
    """The rows of a registered table with their places by one of its columns."""
    in_group, rank = [column(PERSON), column(by)], [column(RANK)]
    # One window for both: the smallest rank so far, in the order of ranks, is the first row's.
    place = window(function("ROW_NUMBER"), in_group, rank, PLACE)
    first = window(function("MIN", column(RANK)), in_group, rank, "first")
    below = exp.Select(expressions=[exp.Star(), place, first], from_=exp.From(this=stored.location.copy()))
    group = window(function("DENSE_RANK"), [column(PERSON)], [column("first")], GROUP)
    kept = [column(each) for each in (PERSON, RANK, *stored.columns.values(), PLACE)]
    whole = exp.Select(expressions=[*kept, group], from_=exp.From(this=inside(below)))
    small = [exp.Alias(this=cast(column(each), "INT"), alias=name(each)) for each in (PLACE, GROUP)]
    return exp.Select(expressions=[*(each.copy() for each in kept[:-1]), *small], from_=exp.From(this=inside(whole)))
