"""Whether two tables are the same rows, all of them: whatever their format, their order, and the names and order of
their columns.

A table is known by a keyed hash of its rows as a multiset: hashes of rows are added up. What a row is must not depend
on the order of columns. Cells that are sorted in each row do not, and of a table of yes and no they tell only how many
cells say yes. So where there are few different rows, columns are told apart by their contents: the colour of a column
is a hash of how often each of its cells comes in which row, with sorted cells at first and by the colours of all
columns then, until no more columns differ (Weisfeiler & Leman 1968, on columns). Rows have their cells in the order of
colours. Columns of one colour stay sorted among themselves; columns of one value play no part.

Two small tables of few values may have the same rows by chance. Where c rows of each of two independent draws of n rows
are alike for every kind of row, whatever the distribution, e = Π 1 / P(c of 2c) / √(πn), with P the binomial of 1/2, is
the e-value of `row_profiles` at equal counts, and so is that divided by k! where k columns may have found their
order. By it data is linked, or the owner is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import fsum, lgamma, log, pi
from typing import Final, final

_FEW: Final = 4096
"""Different rows that are kept to tell columns apart. Of more than so many, sorted cells tell enough."""

_ROUNDS: Final = 4
_BITS: Final = 128
_MOST: Final = (1 << _BITS) - 1


@final
@dataclass(frozen=True, slots=True)
class Whole:
    """All rows of a table."""

    digest: str
    evidence: float
    """The logarithm of an e-value against the claim that another table with this digest was drawn independently."""


@final
class Wholes:
    """Makes it of rows that come in batches, each row with a keyed hash of its sorted cells."""

    def __init__(self, key: bytes) -> None:
        self._key = blake2b(b"all rows of a table", key=key, digest_size=32).digest()
        self._many, self._sum = 0, 0
        self._rows: Counter[Sequence[str]] | None = Counter()

    def add(self, rows: Iterable[Sequence[str]], marks: Sequence[bytes]) -> None:
        """Some more rows."""
        self._many += len(marks)
        self._sum += sum(map(int.from_bytes, marks))
        if self._rows is not None:
            self._rows.update(map(tuple, rows))
            if len(self._rows) > _FEW:
                self._rows = None

    def whole(self, by_cells: Iterable[int]) -> Whole | None:
        """Of all rows, with how often each of them comes by its sorted cells; None of no rows or columns."""
        if not self._many:
            return None
        sure = _evidence(by_cells, self._many)
        if self._rows is None:
            return Whole(self._hash("many", str(self._many), f"{self._sum & _MOST:x}").hex(), sure)
        every = list(zip(*self._rows, strict=True))
        if not every:  # people alone
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
        return Whole(digest, max(sure, ordered) - log(2))  # at most their mean, which is an e-value too

    def _colours(self, columns: Sequence[Sequence[str]], counts: Sequence[int]) -> list[str]:
        """What each column is by its contents."""
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
        said = "\0".join(parts).encode("utf-8", "surrogatepass")
        return blake2b(said, key=self._key, digest_size=_BITS // 8).digest()


def _ordered(columns: Sequence[Sequence[str]], colours: Sequence[str]) -> list[str]:
    """The rows, with their cells in the order of the colours of columns, and sorted where these are alike."""
    rows = zip(*columns, strict=True)
    return ["\0".join(cell for _, cell in sorted(zip(colours, row, strict=True))) for row in rows]


def _evidence(counts: Iterable[int], many: int) -> float:
    alike = fsum(2 * each * log(2) - lgamma(2 * each + 1) + 2 * lgamma(each + 1) for each in counts)
    return alike - log(max(1.0, pi * many)) / 2
