"""How many rows of a source were read, dropped and kept at registration: exact numbers, for its owner alone.

Registration drops rows without an id, rows with an unreadable or unlisted value in a column declared without NULLs, and
a person's rows beyond the declared maximum. The rules are public; how many rows each rule drops is not, because it
depends on the data. So the owner can read this report, and no answer, error, log or repr contains its numbers.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, final

from deniable.csv_structure import Extent
from deniable.errors import EngineFailed, InvalidParameter

_CHECK: Final = (
    "check that their fields contain line ends; two stray quotes join the lines between them into one record"
)


@final
@dataclass(frozen=True, slots=True, repr=False)
class Registration:
    """The rows of one source, counted exactly. NOT PRIVATE: for the owner alone, never for analysts."""

    table: str
    read: int
    """Rows of the source."""
    left_out: Mapping[str, int]
    """Dropped rows by the first required column without a value: the id, or a column declared without NULLs. Columns
    for which no row was dropped are not in it.
    """
    cut: int
    """Rows dropped because their person has more than the declared maximum."""
    kept: int
    """Rows that questions can reach."""
    people: int | None
    """The number of people with kept rows; None in a public table."""
    whose: str | None
    """The column with the person's id; None if there is no such column."""
    version: str
    """The ledger's name for this version of the data: a keyed hash of the rows that does not depend on their order."""
    spanning: int = 0
    """Records of a CSV file that have more than one line, because a quoted field contains line ends."""
    widest: int = 1
    """The most lines of one record."""

    def describe(self) -> str:
        """The report as text, one line for each number that is not 0."""
        lines = [f"{self.table}: exact numbers, for the owner alone", f"  {self.read:>14,} {_rows(self.read)} read"]
        for name, count in self.left_out.items():
            if name == self.whose:
                lines.append(f"  {count:>14,} left out: no id in {name!r}, or one that cannot be read")
            else:
                wrong = f"no value in {name!r}, or one that is not in its list or cannot be read"
                lines.append(f"  {count:>14,} left out: {wrong}")
        if self.cut:
            lines.append(f"  {self.cut:>14,} cut: their people have more rows than the declared maximum")
        if self.spanning:
            many = "record has" if self.spanning == 1 else "records have"
            lines.append(f"  {self.spanning:>14,} {many} several lines, the longest {self.widest:,}: {_CHECK}")
        whose = "" if self.people is None else f", of {self.people:,} {'person' if self.people == 1 else 'people'}"
        return "\n".join([*lines, f"  {self.kept:>14,} {_rows(self.kept)} kept{whose}"])

    def to_dict(self) -> dict[str, Any]:
        """The numbers as a JSON-ready dict."""
        lost = dict(self.left_out)
        record = {"read": self.read, "left_out": lost, "cut": self.cut, "kept": self.kept, "people": self.people}
        if self.spanning:
            record["several_lines"] = {"records": self.spanning, "longest": self.widest}
        return record

    def __repr__(self) -> str:
        return f"<Registration of {self.table!r}: exact numbers, for the owner alone; see describe()>"


@final
class Registrations(dict[str, Registration]):
    """The report of each source by the name of its table; an unknown name raises `InvalidParameter`."""

    def __missing__(self, name: object) -> Registration:
        raise InvalidParameter("table", name, "is not a table of this session", f"name one of {', '.join(self)}")


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
    """The report of a registration.

    `tally` has one row for each reason to drop rows (-1: kept): its index in `reasons`, the number of rows, and the sum
    of their hashes. `extents` describe the CSV files that were read. Raises `EngineFailed` if the source changed
    between the count and the copy.

    The sum of hashes does not depend on the order of rows; another table has the same sum and number of rows with a
    probability of about 2^-64. It covers all rows that were read, before bounds and keys are applied, so declaring
    other bounds or keys does not change the version. Without the secret, nobody can test a guess about the data against
    a version.
    """
    rows = {int(reason): int(count) for reason, count, _ in tally}
    passing = rows.get(-1, 0)
    if kept > passing:  # somebody wrote to the source while it was read
        raise EngineFailed("source", "the source changed while it was read; register it again")
    read, sums = sum(rows.values()), sum(int(total) for _, _, total in tally)
    version = hmac.new(secret, f"version of the data: {read} {sums}".encode(), sha256).hexdigest()[:32]
    lost = {name: rows[at] for at, name in enumerate(reasons) if rows.get(at)}
    spanning, widest = sum(each.spanning for each in extents), max((each.widest for each in extents), default=1)
    return Registration(table, read, lost, passing - kept, kept, people, whose, version, spanning, widest)
