"""Whether data is new: the same people under another name go on spending from the same budget.

A file is known by what it is (a hash of its bytes), by where it is, and by marks that survive small changes. For the
128 people whose keyed hashes come first, each column that tells people apart gives one mark per (person, value). A
table of fewer people reaches further up in the order of hashes, so marks are compared as far as the common ones reach:
where half of a column's marks up to there are known, the data belongs to that family. So a changed row, a renamed
column, a subset of the people or of the columns are all recognised; unrelated people with the same numbers are not.
Columns of few values make no such marks. Then people are known by all of their cells together, one mark for each of the
128, where so many of those are common that chance cannot explain it: however other data is distributed, a person of
the same number has the same cells there with a chance of at most the share of the commonest cells here.
Where every row is its own person, the marks are those of 128 whole rows, if rows come about once each; else, and where
a column is more or less, it is how often they come (`row_profiles`). Whatever a schema says whose rows they are, a
file with a column of known ids is also compared as one of those people, and whole rows without ids are compared between
tables whose rows are people and tables whose people have several.

Cells and ids are compared in one form, however they were written: see `forms`.
Marks are keyed hashes and stay in the catalogue; what an owner is told is that the data was linked.

The same ids with other cells may be the same people a year later, or others who are numbered alike. Nobody but the
owner can say; a `Sketch` of the ids tells when to ask.
"""

from __future__ import annotations

import hmac
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
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
"""A column with fewer different values would look alike in unrelated data."""

_ENOUGH: Final = 0.5
_FEWEST: Final = 6
"""Marks in common that may not be chance: of a column of 16 values, one in 16 of unrelated marks is common."""

_CHANCE: Final = 1e-6
"""That unrelated people with the same numbers are taken for the same ones, by all of their cells."""

_CHANCE_IN_COLUMN: Final = 1e-4
"""The same by one column; a table has a few."""

_OFTEN: Final = 1 / 16
"""Up to here it is taken for chance that rows come twice."""

_COMMON: Final = 0.125
"""The share of people from which a cell (empty, 0, unknown) says little about anybody."""

_RANK: Final = 8
"""The digits of a mark that say where in the order its person, or its row, comes."""


_IDS: Final = 16_384
"""Of a table's ids, those whose keyed hashes come first are kept."""

_FIRST: Final = 20_000
"""Rows that are looked at to see which columns may have ids."""

_CELLS: Final = 4_000_000
"""Cells that are looked at for that, and are in memory meanwhile: of a wide file fewer rows."""

_ID_COLUMNS: Final = 16
"""Columns by whose ids a file is compared, since each takes another look at the file: those with most known ids."""

_BATCH: Final = 1 << 20
"""Cells of Parquet that are in memory."""

_DIGITS: Final = 16
_NUMBER_BEFORE: Final = re.compile(r"([+-]?)(?=\.?[0-9])([0-9]*)\.?([0-9]*)(?:e([+-]?[0-9]{1,3}))?")

_OF_ROWS: Final = "rows that are people"
_OF_PEOPLE: Final = "rows of people"

FORM: Final = 6
"""Which form cells and ids have in marks and sketches, see `forms`; those of datasets from before are made anew."""

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
    return Sketch.of(_ranks({cells[0] for cells in _rows(path, [table.unit.column])}, key))


def _ranks(written: set[str], key: bytes) -> Iterator[str]:
    """The keyed hash of each id, in its one form."""
    secret = blake2b(b"ids of people", key=key, digest_size=32).digest()
    for each in {plain_id(text) for text in written} - {""}:
        yield blake2b(each.encode("utf-8", "surrogatepass"), key=secret, digest_size=_DIGITS // 2).hexdigest()


def id_columns(path: Path, known: Iterable[Sketch], key: bytes) -> list[str]:
    """The columns of a file, declared or not, whose first values are ids of people who are known."""
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
    """The columns of a file."""
    if path.suffix.lower() in {".csv", ".tsv"}:
        return list(dict.fromkeys(header(str(path))))
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        return list(dict.fromkeys(file.schema_arrow.names))


def _id_before(text: str) -> str:
    """The form that ids had while cells were taken as they are written."""
    if not text.isascii():
        normal = unicodedata.normalize("NFKC", text)
        text = "".join(each for each in normal if unicodedata.category(each) != "Cf")
    plain = text.strip().removeprefix("'").strip().casefold()
    number = _NUMBER_BEFORE.fullmatch(plain)
    return plain if number is None else decimal(*number.groups(default="0"))


@final
@dataclass(frozen=True, slots=True)
class MarkedColumn:
    """The marks of a column, and the chance that unrelated people of the same numbers have one of them in common."""

    marks: frozenset[str]
    chance: float = 0.0
    others: frozenset[str] = frozenset()
    """Of the same people with cells of others here. How many of these are known tells how often chance is right: those
    who are known may have many cells each."""

    def related(self, known: set[str]) -> bool:
        """Whether so many are known that these are the same people."""
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
    """What a table is known by: `sure` marks prove kinship alone, `columns` where enough of one of them is known."""

    content: str
    sure: frozenset[str]
    columns: tuple[MarkedColumn, ...]
    people: frozenset[str] = frozenset()
    """Of each person with all of their cells."""
    alike: float = 1.0
    """The share of the people who have the commonest cells."""
    rows: frozenset[str] = frozenset()
    """Of whole rows without their ids: for tables that say otherwise whose rows these are, which may have no ids."""
    across: MarkedColumn = MarkedColumn(frozenset())
    """The same as such a table remembers them."""
    profile: Profile = NOTHING
    """Of its rows by the columns that others may share, see `row_profiles`."""
    older: tuple[Marks, ...] = ()
    """In the forms that ids and cells had before, where they differ: families from before are known by such marks."""

    @property
    def all(self) -> set[str]:
        """Everything to remember."""
        return set(self.sure).union(self.people, self.rows, *(each.marks for each in self.columns))

    @property
    def sought(self) -> set[str]:
        """Everything that may be known."""
        others = (each.others for each in self.columns)
        return self.all.union(self.across.marks, *others, *(each.sought for each in self.older))

    def related(self, known: set[str]) -> bool:
        """Whether these marks say that the data is known."""
        return any(each.related(known) for each in self.older) or (
            bool(self.sure & known)
            or self.across.related(known)
            or any(column.related(known) for column in self.columns)
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
    """The chance of at least so many hits in so many tries, by logarithms: coefficients grow beyond every float.

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
    """The marks of a file that is read as this table; `by_ids` alone where the rest is known."""
    if path.suffix.lower() in {".csv", ".tsv"} and not by_ids:
        rows_of(str(path), len(header(str(path))))  # what is no table has no people to know it by
    content = "" if by_ids else digest(path)
    sure = set() if by_ids else sure_marks(key, content, str(path))
    if table.unit is None:
        return Marks(content, frozenset(), ())  # nobody is protected in it
    person = table.unit.column
    wanted = [name for name, _ in table.columns if name != person]
    rows, chance, often, profile = _NOTHING if by_ids else _without_ids(path, wanted, key, has_ids=person is not None)
    own, others = (_OF_ROWS, _OF_PEOPLE) if person is None else (_OF_PEOPLE, _OF_ROWS)
    across = MarkedColumn(_said(others, rows, key), chance)
    made = Marks(content, frozenset(sure), (), rows=_said(own, rows, key), across=across, profile=profile)
    if person is None:
        chances = [often, 0.0, 0.0]  # families from before have no profile to be known by instead
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
    """The whole rows of a file whose keyed hashes come first; about the chance that unrelated rows have one of them:
    that of the commonest cells of all columns together, for each row that there is; the chance that other draws of the
    same distribution have one of them, by how often one half of the rows has what the other has; and the profile.
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
        said = "\0".join(sorted(cells)).encode("utf-8", "surrogatepass")
        hashed = blake2b(said, key=secret, digest_size=16).digest()
        profiling.add(cells, hashed)
        mark = hashed.hex()
        found[mark] = found.get(mark, 0) | (1 + many % 2)
        if len(found) > 64 * _PEOPLE:
            found = {each: found[each] for each in nsmallest(_PEOPLE, found)}
    shares = (max(each.values(), default=1) / max(1, each.total()) for each in common)
    first = nsmallest(_PEOPLE, found)
    halves = [sum(bool(found[each] & half) for each in first) for half in (1, 2)]
    # Twice as many rows have a given one at most twice as often.
    often = min(1.0, 2 * sum(found[each] == 3 for each in first) / max(1, min(halves)))
    return frozenset(first), min(1.0, many * prod(shares)), float(often > _OFTEN), profiling.profile()


def _said(whose: str, rows: frozenset[str], key: bytes) -> frozenset[str]:
    """The marks of whole rows of a table that says whose they are, in the same order."""
    return frozenset(each[:_RANK] + _keyed(key, whose, each)[_RANK:] for each in rows)


def _of_rows(path: Path, names: list[str], key: bytes) -> list[frozenset[str]]:
    """The marks of rows that are people: in the form of today, the one before, and with cells as they are written."""
    forms: list[tuple[Callable[[str], str], set[str]]] = [(plain, set()), (plain_then, set()), (str, set())]
    for cells in _rows(path, names):
        before, mark = None, ""
        for form, found in forms:
            said = sorted(map(form, cells))
            if said != before:  # mostly all forms are the same, and hashing them is most of the work
                before, mark = said, _keyed(key, "row", *said)
            found.add(mark)
            if len(found) > 64 * _PEOPLE:
                found.intersection_update(nsmallest(_PEOPLE, found))
    return [frozenset(nsmallest(_PEOPLE, found)) for _, found in forms]


_Found = tuple[tuple[MarkedColumn, ...], frozenset[str], float]


def _of_people(path: Path, names: list[str], key: bytes) -> list[_Found]:
    """The marks of people in the form of today, and in those there were before; the first of the names has ids."""
    written = {cells[0] for cells in _rows(path, names[:1])}
    forms: list[tuple[dict[str, str], Callable[[str], str]]] = [
        ({each: plain_id(each) for each in written}, plain),
        ({each: plain_id_then(each) for each in written}, plain_then),
        ({each: _id_before(each) for each in written}, str),
        ({each: each for each in written}, str),
    ]
    chosen: list[dict[str, str]] = []
    for ids, _ in forms:  # mostly they are the same ids, and hashing them is most of the work
        known = next((few for (other, _), few in zip(forms, chosen, strict=False) if other == ids), {})
        chosen.append(known or _first(set(ids.values()), key))
    wanted = {each for each in written if any(ids[each] in few for (ids, _), few in zip(forms, chosen, strict=True))}
    rows = [cells for cells in _rows(path, names) if cells[0] in wanted]
    return [
        _marked([(ids[cells[0]], *map(form, cells[1:])) for cells in rows if ids[cells[0]] in few], few, key)
        for (ids, form), few in zip(forms, chosen, strict=True)
    ]


def _first(people: set[str], key: bytes) -> dict[str, str]:
    """The people whose keyed hashes come first, with these."""
    ranks = {each: _keyed(key, "person", each) for each in people}
    return {each: ranks[each] for each in nsmallest(_PEOPLE, ranks, key=lambda each: ranks[each])}


def _marked(kept: list[tuple[str, ...]], people: Mapping[str, str], key: bytes) -> _Found:
    """The marks of columns, those of people, and the share of the commonest cells; the first of the cells is an id."""
    columns: list[MarkedColumn] = []
    for at in range(1, len(kept[0]) if kept else 0):
        if len({cells[at] for cells in kept}) >= min(_DISTINCT, max(2, len(kept) // 2)):
            columns += _of_column({(cells[0], cells[at]) for cells in kept}, people, key)
    cells_of: dict[str, list[tuple[str, ...]]] = {}
    for cells in kept:
        # Sorted, so that neither the order of the columns nor that of the rows matters.
        cells_of.setdefault(cells[0], []).append(tuple(sorted(cells[1:])))
    whole = {each: "\0".join(cell for row in sorted(rows) for cell in row) for each, rows in cells_of.items()}
    marks = frozenset(people[each][:_RANK] + _keyed(key, "whole", each, said) for each, said in whole.items())
    alike = max(Counter(whole.values()).values(), default=1) / max(1, len(whole))
    if len(whole) < _DISTINCT:  # too few to tell how common all of their cells are together: as if independent
        alike = min(alike, prod(max(Counter(each).values()) / len(each) for each in list(zip(*kept, strict=True))[1:]))
    return tuple(columns), marks, alike


def _of_column(pairs: set[tuple[str, str]], people: Mapping[str, str], key: bytes) -> list[MarkedColumn]:
    """The marks of a column with a person and a cell each: all of them, and those of cells that few people have.

    Unrelated people of the same numbers have a cell in common at most as often as the commonest one here is common,
    however theirs are distributed, if they have one each. Where most cells are empty that is often: then the others
    count alone, of which many may have changed. For people who have several, see `MarkedColumn.others`.
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
    """Which data this is, and as whose it is read: the contents of each table, who its people are, and its columns."""
    parts = []
    for name, found in sorted(marks.items()):
        unit, columns = tables[name].unit, sorted(column for column, _ in tables[name].columns)
        parts.append([name, found.content, unit is not None, None if unit is None else unit.column, columns])
    return _keyed(key, "version", json.dumps(parts))


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
    """The values of a column of Parquet; a short float is the number that whoever wrote it meant, not its double. A
    half float has too few digits for that: the same values as short floats would be others.
    """
    try:
        found: list[object] = column.to_pylist()
    except (OverflowError, ValueError):  # a date that Python has none for
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
    """As a CSV file would have it, so that the same data in another format is still the same."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
