"""Recognises an exact copy of a table, whatever its format, the order of its rows, and the names and order of its
columns.

*The hash.* A table is identified by a keyed hash of its multiset of rows: the sum of the hashes of its rows. The hash
of a row must not depend on the order of the columns. Sorting the cells of each row achieves that, but loses
information: of a row of yes and no, only the number of yes remains. So if a table has few distinct rows, its columns
are identified by their contents. The colour of a column is a hash of how often each of its cells occurs in which row.
The first colours use rows with sorted cells; each round then uses rows in the order of the last colours, until no
further columns can be distinguished (colour refinement: Weisfeiler & Leman 1968, on columns). The cells of a row are
then hashed in the order of the colours of their columns. Columns of equal colour remain sorted among themselves, and
columns with a single value are left out.

*The evidence.* Two small tables with few values may have the same rows by chance. Let each distinct row occur c times
in both of two independent draws of n rows from one distribution. Whatever the distribution, with P the binomial
distribution of parameter 1/2, e = Π 1 / P(c of 2c) / √(πn) is the e-value of `row_profiles` at equal counts. If the
order of k columns was chosen to match, e is divided by k!. Large evidence links the data to a family; small evidence
makes the server ask the owner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import fsum, lgamma, log, pi
from typing import Final, final

_FEW: Final = 4096
"""The most distinct rows for which columns are coloured. With more rows, sorted cells hold enough information."""

_ROUNDS: Final = 4
_BITS: Final = 128
_MOST: Final = (1 << _BITS) - 1


@final
@dataclass(frozen=True, slots=True)
class Whole:
    """The identity of a table by all of its rows."""

    digest: str
    evidence: float
    """The logarithm of the e-value against "another table with this digest was drawn independently"."""


@final
class Wholes:
    """Computes a `Whole` from batches of rows, each row with a keyed hash of its sorted cells."""

    def __init__(self, key: bytes) -> None:
        self._key = blake2b(b"all rows of a table", key=key, digest_size=32).digest()
        self._many, self._sum = 0, 0
        self._rows: Counter[Sequence[str]] | None = Counter()

    def add(self, rows: Iterable[Sequence[str]], marks: Sequence[bytes]) -> None:
        """Add rows."""
        self._many += len(marks)
        self._sum += sum(map(int.from_bytes, marks))
        if self._rows is not None:
            self._rows.update(map(tuple, rows))
            if len(self._rows) > _FEW:
                self._rows = None

    def whole(self, by_cells: Iterable[int]) -> Whole | None:
        """The result; None without rows or columns. `by_cells` are the counts of rows with equal sorted cells."""
        if not self._many:
            return None
        sure = _evidence(by_cells, self._many)
        if self._rows is None:
            return Whole(self._hash("many", str(self._many), f"{self._sum & _MOST:x}").hex(), sure)
        every = list(zip(*self._rows, strict=True))
        if not every:  # the table has no columns besides the ids
            return None
        columns = [cells for cells in every if len(set(cells)) > 1] or every
        counts = list(self._rows.values())
        colours = self._colours(columns, counts)
        found: Counter[str] = Counter()
        for row, count in zip(_ordered(columns, colours), counts, strict=True):
            found[row] += count
        ordered = _evidence(found.values(), self._many) - lgamma(len(columns) + 1)
        total = self._sum_of(found.items())
        digest = self._hash("few", str(self._many), *sorted(colours), f"{total:x}").hex()
        return Whole(digest, max(sure, ordered) - log(2))  # below the logarithm of their mean, which is an e-value

    def _colours(self, columns: Sequence[Sequence[str]], counts: Sequence[int]) -> list[str]:
        """The colour of each column."""
        colours, kinds = [""] * len(columns), 1
        for _ in range(_ROUNDS):
            rows = [self._hash(each).hex() for each in _ordered(columns, colours)]
            beside = [Counter[str]() for _ in columns]
            for column, found in zip(columns, beside, strict=True):
                for cell, row, count in zip(column, rows, counts, strict=True):
                    found[f"{cell}\0{row}"] += count
            colours = [f"{self._sum_of(each.items()):032x}" for each in beside]
            before, kinds = kinds, len(set(colours))
            if kinds in (before, len(columns)):
                break
        return colours

    def _sum_of(self, found: Iterable[tuple[str, int]]) -> int:
        return sum(count * int.from_bytes(self._hash(each)) for each, count in found) & _MOST

    def _hash(self, *parts: str) -> bytes:
        text = "\0".join(parts).encode("utf-8", "surrogatepass")
        return blake2b(text, key=self._key, digest_size=_BITS // 8).digest()


def _ordered(columns: Sequence[Sequence[str]], colours: Sequence[str]) -> list[str]:
    """The rows as text, with cells in the order of the colours of their columns; equal colours sort by cell."""
    rows = zip(*columns, strict=True)
    return ["\0".join(cell for _, cell in sorted(zip(colours, row, strict=True))) for row in rows]


def _evidence(counts: Iterable[int], many: int) -> float:
    alike = fsum(2 * each * log(2) - lgamma(2 * each + 1) + 2 * lgamma(each + 1) for each in counts)
    return alike - log(max(1.0, pi * many)) / 2
