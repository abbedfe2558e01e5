"""What became of a source when it was registered: exact numbers, for its owner alone.

Rows can get lost on the way from a file to an answer: without an id, with a value that no list has in a column declared
without NULLs, or beyond the most rows of a person. The rules are public; how many rows each of them took away is not,
because it depends on the data. So an owner reads it, and no answer, error, log or repr says it.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, final

from deniable.csv_structure import Extent
from deniable.errors import EngineFailed, InvalidParameter

_CHECK: Final = "check that these are texts with line ends; two stray quotes make one record of all lines between them"


@final
@dataclass(frozen=True, slots=True, repr=False)
class Registration:
    """The rows of one source, counted exactly. NOT PRIVATE: for the owner alone, never for those who ask questions."""

    table: str
    read: int
    """Rows of the source."""
    left_out: Mapping[str, int]
    """Rows that were left out, by the first column that has no value there: the id, or one declared without NULLs."""
    cut: int
    """Rows of people who have more than are read."""
    kept: int
    """Rows that questions are about."""
    people: int | None
    """Whose rows these are; None in a table that protects nobody."""
    whose: str | None
    """The column that says whose row it is; None if no column does."""
    version: str
    """What this version of the data is called in the ledger: a keyed hash of the rows, in whatever order they lie."""
    spanning: int = 0
    """Records of a CSV file that have more than one line, because a field in quotes holds line ends."""
    widest: int = 1
    """How many lines the record with the most lines has."""

    def describe(self) -> str:
        """All of it in words, for the owner to read."""
        lines = [f"{self.table}: exact numbers, for the owner alone", f"  {self.read:>14,} {_rows(self.read)} read"]
        for name, count in self.left_out.items():
            if count and name == self.whose:
                lines.append(f"  {count:>14,} left out: no id in {name!r}, or one that cannot be read")
            elif count:
                wrong = f"no value in {name!r}, or one that is not in its list or cannot be read"
                lines.append(f"  {count:>14,} left out: {wrong}")
        if self.cut:
            lines.append(f"  {self.cut:>14,} cut: their people have more rows than are read")
        if self.spanning:
            many = "record has" if self.spanning == 1 else "records have"
            lines.append(f"  {self.spanning:>14,} {many} several lines, the longest {self.widest:,}: {_CHECK}")
        whose = "" if self.people is None else f", of {self.people:,} {'person' if self.people == 1 else 'people'}"
        return "\n".join([*lines, f"  {self.kept:>14,} {_rows(self.kept)} kept{whose}"])

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        lost = {name: count for name, count in self.left_out.items() if count}
        told = {"read": self.read, "left_out": lost, "cut": self.cut, "kept": self.kept, "people": self.people}
        if self.spanning:
            told["several_lines"] = {"records": self.spanning, "longest": self.widest}
        return told

    def __repr__(self) -> str:
        return f"<Registration of {self.table!r}: exact numbers, for the owner alone; describe() tells them>"


@final
class Registrations(dict[str, Registration]):
    """What became of each source, by the name of its table."""

    def __missing__(self, name: object) -> Registration:
        raise InvalidParameter("table", name, "is no table of this session", f"name one of {', '.join(self)}")


def _rows(count: int) -> str:
    return "row was" if count == 1 else "rows were"


def counted(
    table: str,
    whose: str | None,
    reasons: Sequence[str],
    tally: Sequence[Sequence[Any]],
    kept: int,
    people: int | None,
    secret: bytes,
    extents: Sequence[Extent] = (),
) -> Registration:
    """The report of a registration. `tally` has a row for each reason why rows were left out (-1: they were not): its
    number, how many rows, and the sum of their hashes. `extents` are those of the CSV files that were read.

    That sum does not depend on the order of rows, and with the number of rows it is the same for another table with a
    chance of about 2^-64. Whoever has no secret cannot tell from a version what is in the table, not even by guessing.
    """
    rows = {int(reason): int(count) for reason, count, _ in tally}
    passing = rows.get(-1, 0)
    if kept > passing:  # somebody wrote to the source while it was read
        raise EngineFailed("source", "the source changed while it was read; register it again")
    [sums] = [int(total) for reason, _, total in tally if int(reason) == -1] or [0]
    version = hmac.new(secret, f"version of the data: {passing} {sums}".encode(), sha256).hexdigest()[:32]
    lost = {name: rows.get(at, 0) for at, name in enumerate(reasons)}
    spanning, widest = sum(each.spanning for each in extents), max((each.widest for each in extents), default=1)
    read = sum(rows.values())
    return Registration(table, read, lost, passing - kept, kept, people, whose, version, spanning, widest)
