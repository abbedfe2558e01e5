"""What a kept table stores besides its rows: the counts of its registration, and the types of its source."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, final

from sqlglot import exp

from deniable.csv_structure import Extent
from deniable.queries.engines.expression_sql import Piece
from deniable.queries.engines.registration_report import Registration, counted
from deniable.queries.engines.registration_sql import Reading, person_kind
from deniable.queries.engines.sql_spelling import column, name
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table

if TYPE_CHECKING:
    from deniable.queries.engines.duckdb_sources import FoundSource

Run = Callable[[str], list[tuple[Any, ...]]]

_FEW: Final = 1_000_000
"""Fewer deleted rows than this cost less than a new registration would."""


@final
@dataclass(frozen=True, slots=True)
class TableCount:
    """Exact numbers of a registration. NOT PRIVATE: kept encrypted, and shown to the owner alone."""

    whose: str | None
    reasons: tuple[str, ...]
    tally: tuple[tuple[int, int, int], ...]
    """For each reason to drop rows (-1: kept): its index, the number of rows, the sum of their hashes."""
    kept: int
    people: int | None
    extents: tuple[Extent, ...]
    types: tuple[tuple[str, str], ...] | None
    """The columns that were read, and their types in all files of the source; None if files differ."""

    @staticmethod
    def of(
        read: Reading, tally: Sequence[Sequence[Any]], kept: int, people: int | None, found: FoundSource
    ) -> TableCount:
        """The numbers of one registration, from its `tally` (see `registration_report.counted`)."""
        told = tuple((int(reason), int(rows), int(total)) for reason, rows, total in tally)
        return TableCount(read.whose, read.reasons, told, kept, people, found.extents or (), found.types)

    def plus(self, more: TableCount) -> TableCount:
        """The numbers of all files: those of the earlier files (this record) plus those of the new files (`more`).

        The numbers of kept rows and of people are copied from `more`, where they already count all files.
        """
        sums: dict[int, tuple[int, int]] = {}
        for reason, rows, total in (*self.tally, *more.tally):
            before = sums.get(reason, (0, 0))
            sums[reason] = (before[0] + rows, before[1] + total)
        tally = tuple((reason, *each) for reason, each in sums.items())
        return replace(more, tally=tally, extents=(*self.extents, *more.extents))

    def report(self, title: str, secret: bytes) -> Registration:
        """The owner's report."""
        return counted(
            title, self.whose, self.reasons, self.tally, self.kept, self.people, secret, self.extents
        )  # fmt: skip


def kept_location(catalog: str, what: str) -> exp.Table:
    """A table of a kept file: "rows", "counts" (rows of each person, a line for each append), "people" (ids and
    numbers), or "about".
    """
    return exp.Table(this=name(what), db=name("main"), catalog=name(catalog))


def is_worn(run: Run, catalog: str) -> bool:
    """Whether appends left so many deleted rows in a kept table that it should be written anew."""
    [[rows, places]] = run(f"SELECT count(*), COALESCE(max(rowid), 0) FROM {catalog}.main.rows")
    return bool(places - rows > max(rows // 4, _FEW))


def write_about(run: Run, catalog: str, about: TableCount) -> None:
    """Write the numbers of a kept table into its file."""
    told = {each: getattr(about, each) for each in TableCount.__slots__}
    text = exp.Literal.string(json.dumps(told)).sql(dialect="duckdb")
    run(f"CREATE OR REPLACE TABLE {catalog}.main.about AS SELECT {text} AS told")
    run(f"CHECKPOINT {catalog}")


def read_about(run: Run, catalog: str) -> TableCount:
    """The numbers of a kept table."""
    [[text]] = run(f"SELECT told FROM {catalog}.main.about")
    told = json.loads(text)
    told["tally"] = tuple(tuple(each) for each in told["tally"])
    told["extents"] = tuple(Extent(*each) for each in told["extents"])
    told["reasons"] = tuple(told["reasons"])
    told["types"] = None if told["types"] is None else tuple(tuple(each) for each in told["types"])
    return TableCount(**told)


def declared_pieces(table: Table) -> dict[str, Piece | None]:
    """Columns as if the source had the declared kinds: what is stored does not depend on the kinds of the source."""
    found: dict[str, Piece | None] = {each: Piece(column(each), Domain(domain.kind)) for each, domain in table.columns}
    person = person_kind(table)
    if person is not None and table.unit is not None and table.unit.column is not None:
        found.setdefault(table.unit.column, Piece(column(table.unit.column), Domain(person)))
    return found
