"""What an engine is: it holds registered tables and counts and sums over them. It never adds noise, and never sees SQL
that an analyst wrote; what it gives back is integers by group, and what it says when it fails is one of a few codes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, final

from deniable.errors import NOTHING, EngineFailed, InvalidOperation, InvalidParameter
from deniable.queries.engines.registration_report import Registration
from deniable.queries.relations.exact_statistics import Cells, Collect, Filling, Group
from deniable.tables.schema import Table
from deniable.tables.schema_proposal import types_of

T = TypeVar("T")

Progress = Callable[[float], None]
"""Told, from time to time, which share of the work is done: from 0 to 1. For the owner only, while registering."""

Numbers = tuple[int | tuple[int, ...], ...]
"""One entry for each statistic of a `Collect`: an integer, or one for each cell."""

PERSON = "person"
RANK = "rank"
"""The two columns that every registered table has besides its own: whose row it is, and its place among theirs."""


@final
@dataclass(frozen=True, slots=True)
class DatabaseTable:
    """A table or view inside a database file of DuckDB (in its schema `main`), as a source."""

    path: str | Path
    table: str


class Engine(ABC):
    """Tables, and sums over them.

    `register` bounds what each person contributes, once; the order of rows and rows that appear twice are harmless to
    it. `collect` answers with exact integers: the same ones on every engine, bit for bit. Neither fails because of what
    is in a row: between tables that differ by a person, both succeed or both fail, and for the same reason.
    """

    def types(self, source: object) -> Mapping[str, str]:
        """The columns of a source and the names of their types. No value is read."""
        if isinstance(source, DatabaseTable):
            from deniable.queries.engines.duckdb import types_of_database

            return types_of_database(source)
        if type(source).__name__ == "DuckDBPyRelation":
            # It lives in a connection of its own, which reads what it likes: no answer could vouch for it.
            remedy = "give DatabaseTable(path, table), or what relation.to_arrow_table() gives"
            raise InvalidParameter("source", NOTHING, "a relation of DuckDB cannot be read", remedy)
        return types_of(source)

    @abstractmethod
    def register(
        self, name: str, source: object, table: Table, secret: bytes, progress: Progress | None = None
    ) -> Table:
        """Read a source as `table` declares it and keep it under `name`.

        Values that cannot be read as the declared kind are NULL, numbers and dates are moved into the declared bounds,
        values outside declared keys are NULL; rows without a person, or with a NULL in a column that has none, are left
        out. Of each person at most `table.unit.rows` rows are kept: those that come first by a keyed hash of their
        content. A public table comes back with `most_partners` filled in.
        """

    def registered(self, name: str) -> Registration | None:
        """What became of the rows of a table, exactly: for its owner alone. None if this engine does not count."""
        return None

    def turn(self) -> AbstractContextManager[object]:
        """A place among the questions that run at the same time: the time of a question begins when it has one.

        `collect`, and `nothing` in its stead, are called within.
        """
        return nullcontext()

    @abstractmethod
    def collect(self, question: Collect) -> dict[Group, Numbers]:
        """The statistics of a question for each group: of `known` in that order, else in an order of the keys alone."""

    def fill(self, filling: Filling) -> dict[Group, Numbers] | None:
        """The same by the name of its shape and its numbers alone; None where `collect` must be asked."""
        return None

    def nothing(self, question: Collect) -> dict[Group, Numbers]:
        """What `collect` answers if nobody is in the private tables.

        Engines run the question on empty tables for it: what fails whoever is there fails here too. What takes them
        longer than `patience` leaves room for is answered by the plan alone, as here.
        """
        return complete(question, {})

    @final
    def instead(
        self, questions: Sequence[Collect], then: Callable[[list[dict[Group, Numbers]]], T]
    ) -> T | EngineFailed:
        """What is made of the answers of `nothing`, or why one failed: to be raised after the fixed time, because when
        the first run failed depends on the data.
        """
        try:
            return then([self.nothing(each) for each in questions])
        except EngineFailed as failed:
            return failed

    @property
    def patience(self) -> float | None:
        """The seconds after which a question is answered that could not be finished, counted from when it has its turn;
        None if its time is not limited.

        However and whenever it failed: the time at which an answer comes is then the same for all of them. So it covers
        both the run that failed and `nothing`, which stands in for it.
        """
        return None

    @abstractmethod
    def sql(self, question: Collect) -> str:
        """What `collect` sends to the engine, for people who want to check. Reads no data."""

    @abstractmethod
    def close(self) -> None:
        """Forget every table and remove what was stored."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_registration(name: str, table: Table, secret: bytes, known: Mapping[str, object]) -> None:
    """Refuse at the border what no engine can register."""
    if not isinstance(table, Table):
        raise InvalidParameter("table", table, "must be a Table", "declare its columns and its unit")
    if not isinstance(name, str) or not name:
        raise InvalidParameter("name", name, "must name the table")
    if name in known:
        raise InvalidOperation(f"a table {name!r} is registered already; give this one another name")
    if not isinstance(secret, bytes) or len(secret) < 16:
        # Not shown: whoever knows it knows which rows are kept.
        raise InvalidParameter(
            "secret", NOTHING, "must be at least 16 random bytes", "secrets.token_bytes(32) has them"
        )


def places(table: Table, source: Sequence[str]) -> dict[str, int]:
    """Where each column that is needed stands among the columns of the source, whose names are compared exactly.

    The columns of a source are public, as its schema is; the error names the column and nothing else.
    """
    wanted = [name for name, _ in table.columns]
    if table.unit is not None and table.unit.column is not None and table.unit.column not in wanted:
        wanted.append(table.unit.column)
    found: dict[str, int] = {}
    for name in wanted:
        positions = [position for position, each in enumerate(source) if each == name]
        if not positions:
            raise InvalidParameter(
                "columns", name, "the source has no such column", "names are compared exactly: case and spaces count"
            )
        if len(positions) > 1:
            raise InvalidParameter(
                "columns", name, "the source has more than one column of this name", "rename one, or leave it out"
            )
        found[name] = positions[0]
    return found


def unreadable(column: str, kind: str, found: str | None = None) -> InvalidParameter:
    """The error for a column whose type in the source has no meaning as the declared kind; `found`, if it has one."""
    if found is not None:
        rule, remedy = (
            f"is {found} in the source, and cannot be read as {kind}",
            f"declare it as {found}, or convert it",
        )
        return InvalidParameter("columns", column, rule, remedy)
    return InvalidParameter(
        "columns",
        column,
        f"its type in the source cannot be read as {kind}",
        "nested, binary, time-of-day and interval columns have no kind; leave the column out or store it as text",
    )


def group_of(values: Sequence[Any]) -> Group:
    """The keys of a group as Python has them; 0 has no sign."""
    return tuple(value + 0.0 if isinstance(value, float) else value for value in values)


def complete(question: Collect, found: Mapping[Group, Numbers]) -> dict[Group, Numbers]:
    """The groups to report: those known, with zeros where nothing was found; else all found, ordered by their keys."""
    nothing: Numbers = tuple(
        (0,) * (len(statistic.edges) - 1) if isinstance(statistic, Cells) else 0 for statistic in question.statistics
    )
    if not question.keys:
        return {(): found.get((), nothing)}
    if question.known is not None:
        return {group: found.get(group, nothing) for group in question.known}
    # Whatever order the engine came up with depends on where rows lie; this one depends on the keys alone.
    return {group: found[group] for group in sorted(found, key=_by_value)}


def _by_value(group: Group) -> tuple[tuple[bool, object], ...]:
    return tuple((value is not None, 0 if value is None else value) for value in group)


def gathered(
    question: Collect, main: list[tuple[Any, ...]] | None, cells: list[list[tuple[Any, ...]]]
) -> dict[Group, Numbers]:
    """The rows of all SELECTs of a question, by group."""
    keys = len(question.keys)
    plain: dict[Group, tuple[int, ...]] = {group_of(row[:keys]): tuple(map(int, row[keys:])) for row in main or ()}
    counted: list[dict[Group, list[int]]] = []
    widths = [each.width for each in question.statistics if isinstance(each, Cells)]
    for width, rows in zip(widths, cells, strict=True):
        histogram: dict[Group, list[int]] = {}
        for row in rows:
            histogram.setdefault(group_of(row[:keys]), [0] * width)[int(row[keys])] = int(row[keys + 1])
        counted.append(histogram)
    found: dict[Group, Numbers] = {}
    for group in dict.fromkeys((*plain, *(group for each in counted for group in each))):
        numbers, histograms = iter(plain.get(group, ())), iter(counted)
        found[group] = tuple(
            tuple(next(histograms).get(group, [0] * each.width)) if isinstance(each, Cells) else next(numbers, 0)
            for each in question.statistics
        )
    return found
