"""The interface of an engine: it holds registered tables, and counts and sums over them.

An engine adds no noise and never sees SQL that an analyst wrote. It returns integers by group; when it fails, it raises
`EngineFailed` with one of a few codes and no detail, because an engine's own message could quote data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
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
"""A callback for the share of the work done, from 0 to 1. Only registration, which the owner runs, calls it."""

Numbers = tuple[int | tuple[int, ...], ...]
"""One entry for each statistic of a `Collect`: an integer, or for `Cells` a tuple with an integer for each cell."""

PERSON = "person"
RANK = "rank"
"""The columns that registration adds to every table: the person, and the rank of the row among that person's rows."""


@final
@dataclass(frozen=True, slots=True)
class DatabaseTable:
    """A table or view of a database, as a source: the path of a DuckDB file (its schema `main`), or the address of a
    server of Postgres or MySQL, postgresql://user@host/name or mysql://user@host/name.
    """

    path: str | Path = field(repr=False)  # an address may have a password
    table: str


class Engine(ABC):
    """Registered tables, and exact counts and sums over them.

    `register` bounds each person's contribution, once; it tolerates any order of rows and duplicate rows. `collect`
    returns exact integers, the same on every engine. Neither fails because of the content of a row: on two tables that
    differ by one person, both calls succeed, or both fail with the same code.
    """

    def types(self, source: object) -> Mapping[str, str]:
        """The columns of a source and the names of their types. Reads no value.

        Raises `InvalidParameter` for a kind of source that no engine can read.
        """
        from deniable.queries.engines.arrow_sources import as_arrow, is_on_server, types_on_server

        if isinstance(source, DatabaseTable) and is_on_server(source):
            return types_on_server(source)
        if isinstance(source, DatabaseTable):
            from deniable.queries.engines.duckdb import types_of_database

            return types_of_database(source)
        if type(source).__name__ == "DuckDBPyRelation":
            # It belongs to another connection, whose settings we cannot check, and which may read other files.
            remedy = "give DatabaseTable(path, table), or what relation.to_arrow_table() gives"
            raise InvalidParameter("source", NOTHING, "a relation of DuckDB cannot be read", remedy)
        return types_of(as_arrow(source))

    @abstractmethod
    def register(
        self, name: str, source: object, table: Table, secret: bytes, progress: Progress | None = None
    ) -> Table:
        """Read a source as `table` declares it, keep it under `name`, and return the table with that name.

        A value becomes NULL if it cannot be read as the declared kind or is not among the declared keys; numbers and
        dates are clamped to the declared bounds. Rows without a person, and rows with NULL in a column declared without
        NULLs, are dropped. Of each person, the `table.unit.rows` rows with the smallest hash of their content, keyed by
        `secret` (at least 16 random bytes), are kept. For a public table, `most_partners` is filled in.

        Raises `InvalidParameter` if the source does not fit the schema, `InvalidOperation` if the name is taken or a
        question was asked already, and `EngineFailed` if the source cannot be read.
        """

    def registered(self, name: str) -> Registration | None:
        """Exact numbers of rows read, dropped and kept, for the table's owner alone; None if they were not counted."""
        return None

    def turn(self) -> AbstractContextManager[object]:
        """A context that waits for a free slot. The time limit of a question starts when it is entered.

        Call `collect`, or `nothing` instead of it, inside this context.
        """
        return nullcontext()

    @abstractmethod
    def collect(self, question: Collect) -> dict[Group, Numbers]:
        """The exact statistics of a question by group.

        Groups come in the order of `question.known`; if that is None, sorted by their keys, so that the order says
        nothing about rows. Raises `EngineFailed`.
        """

    def fill(self, filling: Filling) -> dict[Group, Numbers] | None:
        """The answer of `collect` from cached SQL and new constants; None if the SQL is not cached: call `collect`."""
        return None

    def nothing(self, question: Collect) -> dict[Group, Numbers]:
        """The answer of `collect` if the private tables were empty.

        Engines run the question on empty tables, so that a question that fails on any data fails here too. If that
        takes longer than `patience` allows, the answer comes from the plan alone, as in this default.
        """
        return complete(question, {})

    @final
    def instead(
        self, questions: Sequence[Collect], then: Callable[[list[dict[Group, Numbers]]], T]
    ) -> T | EngineFailed:
        """The result of `then` on the answers of `nothing` to these questions. If one of them fails, its `EngineFailed`
        is returned, not raised.

        The caller raises that failure after the fixed time (`patience`), because the time at which the first run failed
        depends on the data.
        """
        try:
            return then([self.nothing(each) for each in questions])
        except EngineFailed as failed:
            return failed

    @property
    def patience(self) -> float | None:
        """Seconds from the start of its turn until a failed question is answered; None if time is not limited.

        The delay is the same for every failure, so that it says nothing about the data. It leaves time for the run that
        failed and for the run of `nothing` that replaces it.
        """
        return None

    @abstractmethod
    def sql(self, question: Collect) -> str:
        """The SQL that `collect` would run, for inspection. Reads no data."""

    @abstractmethod
    def close(self) -> None:
        """Forget every table and delete its stored rows."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_registration(name: str, table: Table, secret: bytes, known: Mapping[str, object]) -> None:
    """Raise `InvalidParameter` or `InvalidOperation` for arguments that no engine can register."""
    if not isinstance(table, Table):
        raise InvalidParameter("table", table, "must be a Table", "declare its columns and its unit")
    if not isinstance(name, str) or not name:
        raise InvalidParameter("name", name, "must be the name of a table, as text")
    if name in known:
        raise InvalidOperation(f"a table {name!r} is registered already; give this one another name")
    if not isinstance(secret, bytes) or len(secret) < 16:
        # The error does not show the secret: it decides which rows are kept.
        raise InvalidParameter("secret", NOTHING, "must be at least 16 random bytes", "use secrets.token_bytes(32)")


def places(table: Table, source: Sequence[str]) -> dict[str, int]:
    """The position of each declared column, and of the person's column, among the columns of the source.

    Names are compared exactly. Raises `InvalidParameter` if one is missing or ambiguous; the error names that column,
    which is public as the schema is, and nothing else.
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
    """The error for a column that cannot be read as the declared kind; `found` is the kind of its type, if any."""
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
    """The keys of a group as Python values, with -0.0 turned into 0.0."""
    return tuple(value + 0.0 if isinstance(value, float) else value for value in values)


def complete(question: Collect, found: Mapping[Group, Numbers]) -> dict[Group, Numbers]:
    """The groups to report: the known ones, with zeros for groups without rows; otherwise all found, sorted by key."""
    nothing: Numbers = tuple(
        (0,) * (len(statistic.edges) - 1) if isinstance(statistic, Cells) else 0 for statistic in question.statistics
    )
    if not question.keys:
        return {(): found.get((), nothing)}
    if question.known is not None:
        return {group: found.get(group, nothing) for group in question.known}
    # The engine's own order depends on how rows are stored; this one depends on the keys alone.
    return {group: found[group] for group in sorted(found, key=_by_value)}


def _by_value(group: Group) -> tuple[tuple[bool, object], ...]:
    return tuple((value is not None, 0 if value is None else value) for value in group)


def gathered(
    question: Collect, main: list[tuple[Any, ...]] | None, cells: list[list[tuple[Any, ...]]]
) -> dict[Group, Numbers]:
    """Merge the result rows of all SELECTs of a question into one tuple of numbers for each group."""
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
