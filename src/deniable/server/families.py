"""Whether data is new: the same people under another name go on spending from the same budget.

A file is known by what it is (a hash of its bytes), by where it is, and by marks that survive small changes. For the
128 people whose keyed hashes come first, each column that tells people apart gives one mark per (person, value). A
table of fewer people reaches further up in the order of hashes, so marks are compared as far as the common ones reach:
where half of a column's marks up to there are known, the data belongs to that family. So a changed row, a renamed
column, a subset of the people or of the columns are all recognised; unrelated people with the same numbers are not.
Columns of few values make no such marks. Then people are known by all of their cells together, one mark for each of the
128, where so many of those are common that chance cannot explain it: however other data is distributed, a person of
the same number has the same cells there with a chance of at most the share of the commonest cells here.
Where every row is its own person, the marks are those of 128 whole rows.

Marks are keyed hashes and stay in the catalogue; what an owner is told is that the data was linked.

The same ids with other cells may be the same people a year later, or others who are numbered alike. Nobody but the
owner can say; a `Sketch` of the ids tells when to ask.
"""

from __future__ import annotations

import csv
import hmac
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256
from heapq import nsmallest
from math import comb
from pathlib import Path
from typing import Final, final

from deniable.tables.files import header
from deniable.tables.schema import Table
from deniable.tables.wellformed import rows_of

_PEOPLE: Final = 128
_DISTINCT: Final = 16
"""A column with fewer different values would look alike in unrelated data."""

_ENOUGH: Final = 0.5
_FEWEST: Final = 6
"""Marks in common that may not be chance: of a column of 16 values, one in 16 of unrelated marks is common."""

_CHANCE: Final = 1e-6
"""That unrelated people with the same numbers are taken for the same ones, by all of their cells."""

_RANK: Final = 8
"""The digits of a mark that say where in the order its person, or its row, comes."""


_IDS: Final = 16_384
"""Of a table's ids, those whose keyed hashes come first are kept."""

_DIGITS: Final = 16
_NUMBER: Final = re.compile(r"([+-]?)(?=\.?[0-9])([0-9]*)\.?([0-9]*)(?:e([+-]?[0-9]{1,3}))?")
"""1, 01, 1.0, +1 and 1e0 are one id: what wrote a file often decides how its numbers look."""

KNOWN: Final = 0.4
"""The share of common ids from which an owner is asked: below a half, so that chance in a sketch hides no half."""


@final
@dataclass(frozen=True, slots=True)
class Sketch:
    """Which ids a table has: the keyed hashes that come first, and while the table is at hand all of them.

    For sets A, B of random ranks, those of B up to its k-th are a uniform sample of B, and of A ∪ B as far as they
    reach (Broder 1997, bottom-k). So the share of B's sample that is in A, and of A's ranks up to there that are in the
    sample, estimate |A ∩ B| / |B| and |A ∩ B| / |A| without bias.
    """

    kept: tuple[str, ...]
    every: frozenset[str] = frozenset()

    @classmethod
    def of(cls, ranks: Iterable[str]) -> Sketch:
        """Of these ranks, each id's own."""
        every = frozenset(ranks)
        return cls(tuple(nsmallest(_IDS, every)), every)

    @classmethod
    def read(cls, text: str) -> Sketch:
        """As it was written."""
        return cls(tuple(text[at : at + _DIGITS] for at in range(0, len(text), _DIGITS)))

    @property
    def text(self) -> str:
        """To be kept."""
        return "".join(self.kept)

    def share_known(self, old: Sketch) -> float:
        """Of this table's ids and of the old one's, the larger share that the other has, about."""
        if not self.every or not old.kept:
            return 0.0
        theirs = set(old.kept)
        reach = old.kept[-1] if len(old.kept) == _IDS else "g"  # beyond every digit: all of them are there
        mine = {each for each in self.every if each <= reach}
        return max(len(theirs & self.every) / len(theirs), len(mine & theirs) / len(mine) if mine else 0.0)

    def share_among(self, olds: Iterable[Sketch]) -> float:
        """Of this table's ids, the share that the old ones have together, about."""
        olds = list(olds)
        reach = min((each.kept[-1] for each in olds if len(each.kept) == _IDS), default="g")
        mine = {each for each in self.every if each <= reach}
        return len(mine & {rank for each in olds for rank in each.kept}) / len(mine) if mine else 0.0


def sketch_of(path: Path, table: Table, key: bytes) -> Sketch:
    """The ids of a file that is read as this table; none where every row is its own person, or nobody is protected."""
    if table.unit is None or table.unit.column is None:
        return Sketch(())
    ids = {plain_id(cells[0]) for cells in _rows(path, [table.unit.column])} - {""}
    secret = blake2b(b"ids of people", key=key, digest_size=32).digest()
    return Sketch.of(
        blake2b(each.encode("utf-8", "surrogatepass"), key=secret, digest_size=_DIGITS // 2).hexdigest() for each in ids
    )


def plain_id(text: str) -> str:
    """The one form of an id, however it was written: marks and sketches know people by it.

    >>> {plain_id(each) for each in ("1", "01", " 1.0", "+1", "1e0", "'1", "1\\u200b", "\\uff11")}
    {'1'}
    >>> plain_id("Ab-01"), plain_id("0.50"), plain_id("-0")
    ('ab-01', '0.5', '0')
    """
    if not text.isascii():
        normal = unicodedata.normalize("NFKC", text)
        text = "".join(each for each in normal if unicodedata.category(each) != "Cf")  # zero-width, and other formats
    plain = text.strip().removeprefix("'").strip().casefold()  # spreadsheets mark text so
    number = _NUMBER.fullmatch(plain)
    return plain if number is None else _decimal(*number.groups(default="0"))


def _decimal(sign: str, whole: str, part: str, power: str) -> str:
    """A number by its digits, exactly: without an exponent, and without zeros that say nothing."""
    digits = (whole + part).lstrip("0")
    point = len(digits) - len(part) + int(power)
    digits = digits.rstrip("0")
    if not digits:
        return "0"
    if point <= 0:
        shown = f"0.{'0' * -point}{digits}"
    else:
        whole, part = digits[:point].ljust(point, "0"), digits[point:]
        shown = f"{whole}.{part}" if part else whole
    return f"-{shown}" if sign == "-" else shown


@final
@dataclass(frozen=True, slots=True)
class Marks:
    """What a table is known by: `sure` marks prove kinship alone, `columns` where enough of one of them is known."""

    content: str
    sure: frozenset[str]
    columns: tuple[frozenset[str], ...]
    people: frozenset[str] = frozenset()
    """Of each person with all of their cells."""
    alike: float = 1.0
    """The share of the people who have the commonest cells."""
    older: Marks | None = None
    """With ids as they are written, where that is another form: families from before are known by such marks."""

    @property
    def all(self) -> set[str]:
        """Everything to remember."""
        return set(self.sure).union(self.people, *self.columns)

    @property
    def sought(self) -> set[str]:
        """Everything that may be known."""
        return self.all if self.older is None else self.all | self.older.all

    def related(self, known: set[str]) -> bool:
        """Whether these marks say that the data is known."""
        return (self.older is not None and self.older.related(known)) or (
            bool(self.sure & known)
            or any(_overlap(column, known) for column in self.columns)
            or (_overlap(self.people, known) and _tail(*_reached(self.people, known), self.alike) <= _CHANCE)
        )


def _reached(column: frozenset[str], known: set[str]) -> tuple[int, int]:
    """How many marks are common, and of how many as far as those reach."""
    common = column & known
    reach = max((mark[:_RANK] for mark in common), default="")
    return len(common), sum(mark[:_RANK] <= reach for mark in column)


def _overlap(column: frozenset[str], known: set[str]) -> bool:
    common, reached = _reached(column, known)
    return common >= max(_FEWEST, _ENOUGH * reached)


def _tail(least: int, tries: int, chance: float) -> float:
    """The chance of at least so many hits in so many tries.

    >>> _tail(2, 2, 0.5), _tail(1, 2, 0.5)
    (0.25, 0.75)
    """
    return sum(comb(tries, hits) * chance**hits * (1 - chance) ** (tries - hits) for hits in range(least, tries + 1))


def marks_of(path: Path, table: Table, key: bytes) -> Marks:
    """The marks of a file that is read as this table."""
    if path.suffix.lower() in {".csv", ".tsv"}:
        rows_of(str(path), len(header(str(path))))  # what is no table has no people to know it by
        csv.field_size_limit(max(csv.field_size_limit(), path.stat().st_size))  # a field may be as long as it likes
    content = digest(path)
    sure = sure_marks(key, content, str(path))
    if table.unit is None:
        return Marks(content, frozenset(), ())  # nobody is protected in it
    person = table.unit.column
    wanted = [name for name, _ in table.columns if name != person]
    if person is None:
        rows = {_keyed(key, "row", *sorted(cells)) for cells in _rows(path, wanted)}
        return Marks(content, frozenset(sure), (frozenset(nsmallest(_PEOPLE, rows)),))
    found = Marks(content, frozenset(sure), *_of_people(path, [person, *wanted], key, plain_id))
    if all(plain_id(cells[0]) == cells[0] for cells in _rows(path, [person])):
        return found
    return replace(found, older=Marks(content, frozenset(sure), *_of_people(path, [person, *wanted], key, str)))


_Found = tuple[tuple[frozenset[str], ...], frozenset[str], float]


def _of_people(path: Path, names: list[str], key: bytes, form: Callable[[str], str]) -> _Found:
    """The marks of columns, those of people, and the share of the commonest cells; the first of the names has ids."""
    people = {each: _keyed(key, "person", each) for each in {form(cells[0]) for cells in _rows(path, names[:1])}}
    chosen = set(nsmallest(_PEOPLE, people, key=lambda each: people[each]))
    rows = ((form(cells[0]), *cells[1:]) for cells in _rows(path, names))
    kept = [cells for cells in rows if cells[0] in chosen]
    columns = []
    for at in range(1, len(names)):
        if len({cells[at] for cells in kept}) >= min(_DISTINCT, max(2, len(kept) // 2)):
            columns.append(
                frozenset(people[cells[0]][:_RANK] + _keyed(key, "cell", cells[0], cells[at]) for cells in kept)
            )
    cells_of: dict[str, list[tuple[str, ...]]] = {}
    for cells in kept:
        # Sorted, so that neither the order of the columns nor that of the rows matters.
        cells_of.setdefault(cells[0], []).append(tuple(sorted(cells[1:])))
    whole = {each: "\0".join(cell for row in sorted(rows) for cell in row) for each, rows in cells_of.items()}
    if len(whole) < _DISTINCT:
        return tuple(columns), frozenset(), 1.0
    marks = frozenset(people[each][:_RANK] + _keyed(key, "whole", each, said) for each, said in whole.items())
    [(_, most)] = Counter(whole.values()).most_common(1)
    return tuple(columns), marks, most / len(whole)


def sure_marks(key: bytes, content: str, path: str) -> set[str]:
    """What proves that a file is known: what is in it, and where it is."""
    return {_keyed(key, each, said) for each, said in (("content", content), ("path", path))}


def _keyed(key: bytes, *parts: str) -> str:
    return hmac.new(key, "\0".join(parts).encode("utf-8", "surrogatepass"), blake2b).hexdigest()[:32]


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    found = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def _rows(path: Path, columns: list[str]) -> Iterator[tuple[str, ...]]:
    """Cells as text; a column that is not there is empty."""
    if path.suffix.lower() in {".csv", ".tsv"}:
        with path.open(encoding="utf-8-sig", newline="", errors="replace") as file:
            reader = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
            places = {name: at for at, name in enumerate(next(reader, []))}
            wanted = [places.get(name, -1) for name in columns]
            for row in reader:
                yield tuple(row[at].strip() if 0 <= at < len(row) else "" for at in wanted)
        return
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        there = [name for name in columns if name in file.schema_arrow.names]
        for batch in file.iter_batches(columns=there):
            found = {name: batch.column(name).to_pylist() for name in there}
            for at in range(batch.num_rows):
                yield tuple(_text(found[name][at]) if name in found else "" for name in columns)


def _text(value: object) -> str:
    """As a CSV file would have it, so that the same data in another format is still the same."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
