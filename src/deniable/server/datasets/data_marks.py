"""Recognises people who are known, so that the same people under another name spend from the same budget.

*What is compared.* A file is recognised by the hash of its bytes, by its path, and by marks, which survive small
changes. A mark is a keyed hash, and stays in the catalogue; the owner learns only that the data was linked.

- *Marks of columns.* Take the 128 people whose ids have the smallest keyed hashes. Each column with enough distinct
  values gives one mark for each pair (person, value). If at least half of a column's marks are known to a family, and
  chance cannot explain that, the data belongs to the family. So a changed row, a renamed column, a subset of the people
  and a subset of the columns are recognised. Unrelated people with the same ids are not: their values differ.
- *Marks of people.* Columns with few values give no marks of their own. Then all cells of a person together give one
  mark for each of the 128. Unrelated people with the same ids have the same cells with probability at most the share of
  the most common cells here, however their data is distributed; so a binomial tail bounds the effect of chance.
- *Marks of rows.* If every row is a person of its own, or the ids are gone, whole rows give the marks, if rows occur
  about once each. If they repeat, or a column is added or removed, `row_profiles` compares how often values occur.

A table with fewer people reaches further in the order of hashes. So two sets of marks are compared only up to the last
mark that they share.

The schema may declare the wrong column as ids, or none. So a file with any column of known ids is also compared by that
column; and whole rows without ids are compared between tables of rows and tables of people.

*What the owner decides.* The same ids with other cells may be the same people a year later, or other people with the
same numbers. A `Sketch` of the ids estimates how many are known; if they are many, the owner must say which it is.

Cells and ids are hashed in a canonical form, so that their spelling does not matter: see `cell_forms`.
"""

from __future__ import annotations

import hmac
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256
from heapq import nlargest, nsmallest
from itertools import islice
from math import exp, fsum, lgamma, log, log1p, prod
from pathlib import Path
from typing import Any, Final, cast, final

from deniable.csv_structure import records_of, rows_of, separator
from deniable.server.datasets.cell_forms import decimal, plain, plain_id, plain_id_then, plain_then
from deniable.server.datasets.row_profiles import NOTHING, Profile, Profiling
from deniable.tables.schema import Table
from deniable.tables.source_files import header

_PEOPLE: Final = 128
_DISTINCT: Final = 16
"""The fewest distinct values of a column with marks: with fewer, unrelated data would look alike."""

_ENOUGH: Final = 0.5
_FEWEST: Final = 6
"""The fewest common marks that count as evidence. Of 16 equally frequent values, one mark in 16 is shared by chance."""

_CHANCE: Final = 1e-6
"""The probability that unrelated people with the same ids are taken for the same people, by all of their cells."""

_CHANCE_IN_COLUMN: Final = 1e-4
"""The same by one column. A table has several."""

_OFTEN: Final = 1 / 16
"""The largest share of repeated rows for which rows count as distinct."""

_COMMON: Final = 0.125
"""A cell (empty, 0, unknown) that more than this share of the people have identifies nobody."""

_RANK: Final = 8
"""The first digits of a mark, which give the place of its person or row in the order of hashes."""


_IDS: Final = 16_384
"""The size of a sketch: the ids with the smallest keyed hashes."""

_SAMPLE: Final = 1024
"""The size of the sample of one version: the share of its ids in another table has a standard error below 0.016."""

_NEAR: Final = 7 / 8
"""The share of common ids from which two versions keep one sample."""

_FIRST: Final = 20_000
"""Rows that are read to find columns with ids."""

_CELLS: Final = 4_000_000
"""The most cells in memory for that; of a wide file fewer rows are read."""

_ID_COLUMNS: Final = 16
"""The most columns by whose ids a file is compared, those with most known ids: each takes a pass over the file."""

_BATCH: Final = 1 << 20
"""The most cells of a Parquet file in memory."""

_DIGITS: Final = 16
_NUMBER_BEFORE: Final = re.compile(r"([+-]?)(?=\.?[0-9])([0-9]*)\.?([0-9]*)(?:e([+-]?[0-9]{1,3}))?")

_OF_ROWS: Final = "rows that are people"
_OF_PEOPLE: Final = "rows of people"

FORM: Final = 6
"""The version of the canonical form (`cell_forms`). Marks and sketches of older versions are computed again."""

KNOWN: Final = 0.4
"""The share of known ids from which the owner is asked. Below a half, to allow for sampling error of a sketch."""


@final
@dataclass(frozen=True, slots=True)
class Sketch:
    """A bottom-k sketch of the ids of a table: `kept` are the smallest keyed hashes; `every` are all, for a new table.

    Let A and B be sets of random ranks. The k smallest of B are a uniform sample of B (bottom-k: Broder 1997), and the
    ranks of A up to the k-th of B are a uniform sample of A. So the share of B's sample that is in A estimates
    |A ∩ B| / |B|, and the share of A's sample that is in B's estimates |A ∩ B| / |A|, both without bias.
    """

    kept: tuple[str, ...]
    every: frozenset[str] = frozenset()
    versions: tuple[tuple[str, ...], ...] = ()
    """Of a table with several versions, whose ids are in `kept` together: the `_SAMPLE` smallest hashes of versions.

    Each version has its own, or has nearly the ids of one that has. Without them, a version with many other people
    would hide that another table has all people of the first one.
    """

    @classmethod
    def of(cls, ranks: Iterable[str]) -> Sketch:
        """The sketch of these keyed hashes."""
        every = frozenset(ranks)
        return cls(tuple(nsmallest(_IDS, every)), every)

    @classmethod
    def read(cls, text: str) -> Sketch:
        """The sketch from its text."""
        kept, *versions = (
            tuple(part[at : at + _DIGITS] for at in range(0, len(part), _DIGITS)) for part in text.split(",")
        )
        return cls(kept, versions=tuple(versions))

    @property
    def text(self) -> str:
        """The sketch as text, to be stored."""
        return ",".join("".join(each) for each in (self.kept, *self.versions))

    def share_known(self, old: Sketch) -> float:
        """An estimate of |A ∩ B| / min(|A|, |B|), for the ids A of this table and B of the old one; if that has several
        versions, the largest of these and of all |A ∩ B| / |B| for the ids B of a version.
        """
        if not self.every or not old.kept:
            return 0.0
        theirs = set(old.kept)
        reach = old.kept[-1] if len(old.kept) == _IDS else "g"  # above all hexadecimal digits: the sketch is complete
        mine = {each for each in self.every if each <= reach}
        shares = [len(theirs & self.every) / len(theirs), len(mine & theirs) / len(mine) if mine else 0.0]
        return max(*shares, *(len(self.every.intersection(each)) / len(each) for each in old.versions))

    def share_stored(self, other: Sketch) -> float:
        """As `share_known`, if both sketches were stored: compared are the ranks that both have in full."""
        pairs = [(self.kept, _IDS, other.kept, _IDS)]
        pairs += [(self.kept, _IDS, each, _SAMPLE) for each in other.versions]
        pairs += [(other.kept, _IDS, each, _SAMPLE) for each in self.versions]
        counts = [_common(*each) for each in pairs]
        return max(both / min(one, two) if one and two else 0.0 for one, two, both in counts)

    def with_earlier(self, earlier: Sketch) -> Sketch:
        """The sketch of the ids of all versions of a table together: this one, and the earlier ones."""
        if not earlier.kept or not self.kept:
            return earlier if earlier.kept else self
        mine, before = self.kept[:_SAMPLE], earlier.versions or (earlier.kept[:_SAMPLE],)
        found = (_common(mine, _SAMPLE, each, _SAMPLE) for each in before)
        is_near = any(both >= _NEAR * max(one, two) for one, two, both in found)
        kept = tuple(nsmallest(_IDS, {*self.kept, *earlier.kept}))
        return Sketch(kept, versions=before if is_near else (*before, mine))

    def share_among(self, olds: Iterable[Sketch]) -> float:
        """An estimate of the share of this table's ids that the old tables have together."""
        olds = list(olds)
        reach = min((each.kept[-1] for each in olds if len(each.kept) == _IDS), default="g")
        mine = {each for each in self.every if each <= reach}
        return len(mine & {rank for each in olds for rank in each.kept}) / len(mine) if mine else 0.0


def _common(one: Sequence[str], full: int, two: Sequence[str], full_two: int) -> tuple[int, int, int]:
    """Of the ranks that both samples have in full: how many each has, and how many both have. `full` is the size of a
    sample that may lack larger ranks.
    """
    reach = min((each[-1] for each, size in ((one, full), (two, full_two)) if len(each) == size), default="g")
    mine, theirs = ({rank for rank in each if rank <= reach} for each in (one, two))
    return len(mine), len(theirs), len(mine & theirs)


def sketch_of(path: Path, table: Table, key: bytes) -> Sketch:
    """The sketch of the ids of a file; empty if the table declares no column of ids."""
    if table.unit is None or table.unit.column is None:
        return Sketch(())
    return Sketch.of(_ranks({cells[0] for cells in _rows(path, [table.unit.column])}, key))


def _ranks(written: set[str], key: bytes) -> Iterator[str]:
    """The keyed hash of each id, in canonical form."""
    secret = blake2b(b"ids of people", key=key, digest_size=32).digest()
    for each in {plain_id(text) for text in written} - {""}:
        yield blake2b(each.encode("utf-8", "surrogatepass"), key=secret, digest_size=_DIGITS // 2).hexdigest()


def id_columns(path: Path, known: Iterable[Sketch], key: bytes) -> list[str]:
    """The columns of a file, declared or not, whose first values are mostly known ids."""
    names = _names(path)
    written: list[set[str]] = [set() for _ in names]
    for cells in islice(_rows(path, names), min(_FIRST, max(_PEOPLE, _CELLS // max(1, len(names))))):
        for values, cell in zip(written, cells, strict=True):
            values.add(cell)
    sketches = [Sketch.of(_ranks(values, key)) for values in written]
    olds = list(known)
    found = [
        (max((each.share_known(old) for old in olds), default=0.0), len(each.every), name)
        for name, each in zip(names, sketches, strict=True)
        if len(each.every) >= _DISTINCT
    ]
    return [name for share, _, name in nlargest(_ID_COLUMNS, found) if share >= KNOWN]


def _names(path: Path) -> list[str]:
    """The names of the columns of a file."""
    if path.suffix.lower() in {".csv", ".tsv"}:
        return list(dict.fromkeys(header(str(path))))
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        return list(dict.fromkeys(file.schema_arrow.names))


def _id_before(text: str) -> str:
    """The canonical form of ids in an old version, which hashed cells as they are written."""
    if not text.isascii():
        normal = unicodedata.normalize("NFKC", text)
        text = "".join(each for each in normal if unicodedata.category(each) != "Cf")
    plain = text.strip().removeprefix("'").strip().casefold()
    number = _NUMBER_BEFORE.fullmatch(plain)
    return plain if number is None else decimal(*number.groups(default="0"))


@final
@dataclass(frozen=True, slots=True)
class MarkedColumn:
    """The marks of a column. `chance` is the probability that unrelated people with the same ids share a mark."""

    marks: frozenset[str]
    chance: float = 0.0
    others: frozenset[str] = frozenset()
    """Control marks: each person with the cells of another person here. The share of these that is known estimates how
    often a match is due to chance, also if known people have many cells each."""

    def related(self, known: set[str]) -> bool:
        """Whether so many of these marks are known that the people must be the same."""
        common, reached = _reached(self.marks, known)
        if not _overlap(self.marks, known):
            return False
        reach = max(mark[:_RANK] for mark in self.marks & known)
        others = [mark for mark in self.others if mark[:_RANK] <= reach]
        wrong = sum(mark in known for mark in others) / max(1, len(others))
        return _tail(common, reached, max(self.chance, wrong)) <= _CHANCE_IN_COLUMN


@final
@dataclass(frozen=True, slots=True)
class Marks:
    """All marks of a table. If another dataset has one of the marks in `sure`, the data is linked to it. Marks of a
    column in `columns` link the data only if enough of them are known.
    """

    content: str
    sure: frozenset[str]
    columns: tuple[MarkedColumn, ...]
    people: frozenset[str] = frozenset()
    """One mark for each person, of all of their cells."""
    alike: float = 1.0
    """The share of people who have the most common combination of cells."""
    rows: frozenset[str] = frozenset()
    """Marks of whole rows without ids, for comparison with tables that declare the unit otherwise."""
    across: MarkedColumn = MarkedColumn(frozenset())
    """The same rows, with the marks that a table with the other kind of unit stores."""
    profile: Profile = NOTHING
    """How often values occur, see `row_profiles`."""
    older: tuple[Marks, ...] = ()
    """The marks in older canonical forms, where they differ: older families have stored such marks."""

    @property
    def all(self) -> set[str]:
        """All marks to store."""
        return set(self.sure).union(self.people, self.rows, *(each.marks for each in self.columns))

    @property
    def sought(self) -> set[str]:
        """All marks to look up."""
        others = (each.others for each in self.columns)
        return self.all.union(self.across.marks, *others, *(each.sought for each in self.older))

    def related(self, known: set[str]) -> bool:
        """Whether these marks, given the `known` ones of a family, link the data to the family."""
        return any(each.related(known) for each in self.older) or (
            bool(self.sure & known)
            or self.across.related(known)
            or any(column.related(known) for column in self.columns)
            or (_overlap(self.people, known) and _tail(*_reached(self.people, known), self.alike) <= _CHANCE)
        )


def _reached(column: frozenset[str], known: set[str]) -> tuple[int, int]:
    """The number of common marks, and the number of marks up to the last common one in the order of hashes."""
    common = column & known
    reach = max((mark[:_RANK] for mark in common), default="")
    return len(common), sum(mark[:_RANK] <= reach for mark in column)


def _overlap(column: frozenset[str], known: set[str]) -> bool:
    common, reached = _reached(column, known)
    return common >= max(_FEWEST, _ENOUGH * reached)


def _tail(least: int, tries: int, chance: float) -> float:
    """The binomial tail P(at least `least` hits in `tries`), by logarithms, because the coefficients overflow.

    >>> round(_tail(2, 2, 0.5), 12), round(_tail(1, 2, 0.5), 12), _tail(1, 2, 0.0), _tail(3000, 5000, 1.0)
    (0.25, 0.75, 0.0, 1.0)
    """
    if least <= 0 or chance >= 1:
        return 1.0
    if chance <= 0:
        return 0.0
    yes, no, whole = log(chance), log1p(-chance), lgamma(tries + 1)
    ways = ((hits, whole - lgamma(hits + 1) - lgamma(tries - hits + 1)) for hits in range(least, tries + 1))
    return fsum(exp(many + hits * yes + (tries - hits) * no) for hits, many in ways)


def marks_of(path: Path, table: Table, key: bytes, *, by_ids: bool = False) -> Marks:
    """The marks of a file with the schema `table`; with `by_ids`, only the marks that depend on the column of ids."""
    if path.suffix.lower() in {".csv", ".tsv"} and not by_ids:
        rows_of(str(path), len(header(str(path))))  # raises if the file is not a table
    content = "" if by_ids else digest(path)
    sure = set() if by_ids else sure_marks(key, content, str(path))
    if table.unit is None:
        return Marks(content, frozenset(), ())  # a public table
    person = table.unit.column
    wanted = [name for name, _ in table.columns if name != person]
    rows, chance, often, profile = _NOTHING if by_ids else _without_ids(path, wanted, key, has_ids=person is not None)
    own, others = (_OF_ROWS, _OF_PEOPLE) if person is None else (_OF_PEOPLE, _OF_ROWS)
    across = MarkedColumn(_row_marks(others, rows, key), chance)
    made = Marks(content, frozenset(sure), (), rows=_row_marks(own, rows, key), across=across, profile=profile)
    if person is None:
        chances = [often, 0.0, 0.0]  # older families have no profile, so they are compared by marks alone
        found = [
            replace(made, columns=(MarkedColumn(each, chance),))
            for each, chance in zip(_of_rows(path, wanted, key), chances, strict=True)
        ]
    else:
        found = [
            replace(made, columns=columns, people=people, alike=alike)
            for columns, people, alike in _of_people(path, [person, *wanted], key)
        ]
    return replace(found[0], older=tuple(each for each in found[1:] if each.all != found[0].all))


_NOTHING: Final = (frozenset[str](), 1.0, 1.0, NOTHING)


def _without_ids(
    path: Path, names: list[str], key: bytes, *, has_ids: bool
) -> tuple[frozenset[str], float, float, Profile]:
    """Four facts about the rows of a file without their ids:

    - the keyed hashes of whole rows, the smallest 128;
    - the approximate probability that unrelated rows contain one of them: the product of the shares of the most common
      cell of each column, times the number of rows;
    - 1.0 if rows repeat, so that another draw from the same distribution may contain them, else 0.0; estimated by how
      many rows of one half of the file are in the other half;
    - the profile.
    """
    secret = blake2b(b"rows without ids", key=key, digest_size=32).digest()
    common: list[Counter[str]] = [Counter() for _ in names]
    many, found, profiling = 0, dict[str, int](), Profiling(key, has_ids=has_ids)
    for row in _rows(path, names):
        cells = [plain(each) for each in row]
        if many < _FIRST:
            for counter, cell in zip(common, cells, strict=True):
                counter[cell] += 1
        many += 1
        text = "\0".join(sorted(cells)).encode("utf-8", "surrogatepass")
        hashed = blake2b(text, key=secret, digest_size=16).digest()
        profiling.add(cells, hashed)
        mark = hashed.hex()
        found[mark] = found.get(mark, 0) | (1 + many % 2)
        if len(found) > 64 * _PEOPLE:
            found = {each: found[each] for each in nsmallest(_PEOPLE, found)}
    shares = (max(each.values(), default=1) / max(1, each.total()) for each in common)
    first = nsmallest(_PEOPLE, found)
    halves = [sum(bool(found[each] & half) for each in first) for half in (1, 2)]
    # The factor 2: the whole file contains a given row at most twice as often as half of it.
    often = min(1.0, 2 * sum(found[each] == 3 for each in first) / max(1, min(halves)))
    return frozenset(first), min(1.0, many * prod(shares)), float(often > _OFTEN), profiling.profile()


def _row_marks(whose: str, rows: frozenset[str], key: bytes) -> frozenset[str]:
    """The marks of whole rows, for a table with this kind of unit; in the same order of hashes."""
    return frozenset(each[:_RANK] + _keyed(key, whose, each)[_RANK:] for each in rows)


def _of_rows(path: Path, names: list[str], key: bytes) -> list[frozenset[str]]:
    """The marks of rows that are people: in today's canonical form, the one before, and with cells as written."""
    forms: list[tuple[Callable[[str], str], set[str]]] = [(plain, set()), (plain_then, set()), (str, set())]
    for cells in _rows(path, names):
        before, mark = None, ""
        for form, found in forms:
            text = sorted(map(form, cells))
            if text != before:  # usually all forms are equal, and hashing takes most of the time
                before, mark = text, _keyed(key, "row", *text)
            found.add(mark)
            if len(found) > 64 * _PEOPLE:
                found.intersection_update(nsmallest(_PEOPLE, found))
    return [frozenset(nsmallest(_PEOPLE, found)) for _, found in forms]


_Found = tuple[tuple[MarkedColumn, ...], frozenset[str], float]


def _of_people(path: Path, names: list[str], key: bytes) -> list[_Found]:
    """The marks of people, in today's canonical form and in the older ones. The first name is the column of ids."""
    written = {cells[0] for cells in _rows(path, names[:1])}
    forms: list[tuple[dict[str, str], Callable[[str], str]]] = [
        ({each: plain_id(each) for each in written}, plain),
        ({each: plain_id_then(each) for each in written}, plain_then),
        ({each: _id_before(each) for each in written}, str),
        ({each: each for each in written}, str),
    ]
    chosen: list[dict[str, str]] = []
    for ids, _ in forms:  # usually all forms are equal, and hashing takes most of the time
        known = next((few for (other, _), few in zip(forms, chosen, strict=False) if other == ids), {})
        chosen.append(known or _first(set(ids.values()), key))
    wanted = {each for each in written if any(ids[each] in few for (ids, _), few in zip(forms, chosen, strict=True))}
    rows = [cells for cells in _rows(path, names) if cells[0] in wanted]
    return [
        _marked([(ids[cells[0]], *map(form, cells[1:])) for cells in rows if ids[cells[0]] in few], few, key)
        for (ids, form), few in zip(forms, chosen, strict=True)
    ]


def _first(people: set[str], key: bytes) -> dict[str, str]:
    """The 128 people with the smallest keyed hashes, and these hashes."""
    ranks = {each: _keyed(key, "person", each) for each in people}
    return {each: ranks[each] for each in nsmallest(_PEOPLE, ranks, key=lambda each: ranks[each])}


def _marked(kept: list[tuple[str, ...]], people: Mapping[str, str], key: bytes) -> _Found:
    """The marks of columns, the marks of people, and the share of the most common cells. The first cell is an id."""
    columns: list[MarkedColumn] = []
    for at in range(1, len(kept[0]) if kept else 0):
        if len({cells[at] for cells in kept}) >= min(_DISTINCT, max(2, len(kept) // 2)):
            columns += _of_column({(cells[0], cells[at]) for cells in kept}, people, key)
    cells_of: dict[str, list[tuple[str, ...]]] = {}
    for cells in kept:
        # Sorted, so that the order of columns and rows does not matter.
        cells_of.setdefault(cells[0], []).append(tuple(sorted(cells[1:])))
    whole = {each: "\0".join(cell for row in sorted(rows) for cell in row) for each, rows in cells_of.items()}
    marks = frozenset(people[each][:_RANK] + _keyed(key, "whole", each, text) for each, text in whole.items())
    alike = max(Counter(whole.values()).values(), default=1) / max(1, len(whole))
    if len(whole) < _DISTINCT:  # too few to estimate the share directly: as if columns were independent
        alike = min(alike, prod(max(Counter(each).values()) / len(each) for each in list(zip(*kept, strict=True))[1:]))
    return tuple(columns), marks, alike


def _of_column(pairs: set[tuple[str, str]], people: Mapping[str, str], key: bytes) -> list[MarkedColumn]:
    """The marks of a column, from its pairs (person, cell): of all cells, and of rare cells alone.

    If unrelated people with the same ids have one cell each, they share a cell with probability at most the share of
    the most common cell here, however theirs are distributed. If most cells are empty, that share is large; the rare
    cells alone are then the better evidence. If people have several cells, `MarkedColumn.others` bounds chance.
    """
    cells_of: dict[str, set[str]] = {}
    for each, cell in pairs:
        cells_of.setdefault(each, set()).add(cell)
    many, order = len(cells_of), sorted(cells_of)
    beside = dict(zip(order, [*order[1:], *order[:1]], strict=True))
    shares = {cell: count / many for cell, count in Counter(cell for _, cell in pairs).items()}
    rare = {(each, cell) for each, cell in pairs if shares[cell] <= _COMMON}
    found = []
    for those in (pairs, rare) if rare != pairs else (pairs,):
        marks = frozenset(people[each][:_RANK] + _keyed(key, "cell", each, cell) for each, cell in those)
        most = max(Counter(cell for _, cell in those).values(), default=0)
        among = len({each for each, _ in those})
        swapped = {(each, cell) for each in order for cell in cells_of[beside[each]] if (beside[each], cell) in those}
        others = frozenset(people[each][:_RANK] + _keyed(key, "cell", each, cell) for each, cell in swapped - pairs)
        found.append(MarkedColumn(marks, most / max(1, among), others))
    return found


def version_of(marks: Mapping[str, Marks], tables: Mapping[str, Table], key: bytes) -> str:
    """A keyed hash of the data and of how it is read: the contents of each table, its unit, and its columns."""
    parts = []
    for name, found in sorted(marks.items()):
        unit, columns = tables[name].unit, sorted(column for column, _ in tables[name].columns)
        parts.append([name, found.content, unit is not None, None if unit is None else unit.column, columns])
        if unit is not None and unit.period is not None:
            parts[-1].append([unit.period, unit.time])
    return _keyed(key, "version", json.dumps(parts))


def sure_marks(key: bytes, content: str, path: str) -> set[str]:
    """The marks of a file's content and of its path. One of them is enough to link the data."""
    return {_keyed(key, each, text) for each, text in (("content", content), ("path", path))}


def _keyed(key: bytes, *parts: str) -> str:
    return hmac.new(key, "\0".join(parts).encode("utf-8", "surrogatepass"), blake2b).hexdigest()[:32]


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    found = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def _rows(path: Path, columns: list[str]) -> Iterator[tuple[str, ...]]:
    """The rows of a file, with cells as text. A column that is missing is empty."""
    if path.suffix.lower() in {".csv", ".tsv"}:
        records = records_of(str(path), separator(str(path)), path.stat().st_size)
        places = {name: at for at, name in enumerate(next(records, []))}
        wanted = [places.get(name, -1) for name in columns]
        for row in records:
            yield tuple(row[at].strip() if 0 <= at < len(row) else "" for at in wanted)
        return
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        there = [name for name in columns if name in file.schema_arrow.names]
        for batch in file.iter_batches(max(_PEOPLE, _BATCH // max(1, len(there))), columns=there):
            found = {name: _values(batch.column(name)) for name in there}
            for at in range(batch.num_rows):
                yield tuple(_text(found[name][at]) if name in found else "" for name in columns)


def _values(column: Any) -> list[object]:
    """The values of a Parquet column. A 32-bit float becomes the shortest decimal that rounds to it, such as 0.1.

    Not so a 16-bit float, which has too few digits: the same values in 32 bits would become other decimals.
    """
    try:
        found: list[object] = column.to_pylist()
    except (OverflowError, ValueError):  # a date outside of Python's range
        return [_value(each) for each in column]
    match str(column.type):
        case "float":
            values = column.to_numpy(zero_copy_only=False)
            return [None if each is None else float(str(short)) for each, short in zip(found, values, strict=True)]
        case "halffloat":
            return [None if each is None else float(cast("float", each)) for each in found]
    return found


def _value(scalar: Any) -> object:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return str(scalar.value)


def _text(value: object) -> str:
    """A value as a CSV file would have it, so that the format of a file does not matter."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
