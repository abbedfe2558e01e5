"""A table of answers, with a column for each path at which some answer has a number or a word.

A path is () for an answer that is one number, (4,) for the fifth item of a list, ("['n']",) for the key n. A missing
value is NaN. Answers of equal shape are rows of a matrix (`Dense`); if answers have different keys, only existing
values are stored (`Sparse`). No path is left out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Path = tuple[str | int, ...]

BLOCK: Final = 128
"""The number of columns that are processed together."""
ROOMY: Final = 8
"""The most cells of a matrix per existing number; emptier tables are stored as sparse."""
SMALL: Final = 2**20
"""A matrix with at most this many cells is always stored as dense."""


class AnswerTable(ABC):
    """Numbers by answer and path; NaN if an answer has none."""

    __slots__ = ()
    paths: tuple[Path, ...]
    places: dict[Path, int]

    @abstractmethod
    def __len__(self) -> int:
        """The number of answers."""

    @abstractmethod
    def __getitem__(self, chosen: Any) -> AnswerTable:
        """The table of some answers."""

    @abstractmethod
    def matrix(self, places: Sequence[int]) -> Floats:
        """Some columns, as a matrix with a row for each answer."""

    @abstractmethod
    def shares(self) -> Floats:
        """For each column, the number of answers that have a value."""

    def column(self, path: Path) -> Floats:
        """The column at a path; all NaN if there is no such path."""
        place = self.places.get(path)
        return np.full(len(self), np.nan) if place is None else self.matrix([place])[:, 0]

    def rows(self, paths: Sequence[Path]) -> Floats:
        """The columns at these paths."""
        known = [self.places.get(path) for path in paths]
        if all(place is not None for place in known):
            return self.matrix([place for place in known if place is not None])
        return np.column_stack([self.column(path) for path in paths]) if paths else np.empty((len(self), 0))

    def blocks(self, places: Sequence[int]) -> Iterator[tuple[Sequence[int], Floats]]:
        """These columns in blocks: (indices, matrix)."""
        for start in range(0, len(places), BLOCK):
            chosen = places[start : start + BLOCK]
            yield chosen, self.matrix(chosen)


def _index(paths: tuple[Path, ...]) -> dict[Path, int]:
    return {path: place for place, path in enumerate(paths)}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Dense(AnswerTable):
    """A matrix with a row for each answer."""

    paths: tuple[Path, ...]
    cells: Floats
    places: dict[Path, int] = field(repr=False)

    @classmethod
    def of(cls, paths: tuple[Path, ...], cells: Floats) -> Dense:
        return cls(paths, cells, _index(paths))

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, chosen: Any) -> Dense:
        return Dense(self.paths, self.cells[chosen], self.places)

    def matrix(self, places: Sequence[int]) -> Floats:
        if len(places) == self.cells.shape[1] and list(places) == list(range(len(places))):
            return self.cells
        if len(places) == 1:
            return self.cells[:, places[0] : places[0] + 1]
        return self.cells[:, np.asarray(places, dtype=np.int64)]

    def shares(self) -> Floats:
        return np.array([float(np.count_nonzero(~np.isnan(column))) for column in self.cells.T])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Sparse(AnswerTable):
    """Existing values, sorted by column: `values[i]` is in row `rows_of[i]`."""

    paths: tuple[Path, ...]
    count: int
    starts: Ints
    """The start of each column in `values`, and the end of the last."""
    rows_of: Ints
    values: Floats
    places: dict[Path, int] = field(repr=False)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, chosen: Any) -> Sparse:
        kept = np.arange(self.count)[chosen]
        place = np.full(self.count, -1)
        place[kept] = np.arange(len(kept))
        if len(np.unique(kept)) != len(kept):
            raise ValueError("each answer may be chosen only once")
        rows = place[self.rows_of]
        there = rows >= 0
        ends = np.concatenate([[0], np.cumsum(there)])
        return Sparse(self.paths, len(kept), ends[self.starts], rows[there], self.values[there], self.places)

    def matrix(self, places: Sequence[int]) -> Floats:
        found = np.full((self.count, len(places)), np.nan)
        for i, place in enumerate(places):
            there = slice(self.starts[place], self.starts[place + 1])
            found[self.rows_of[there], i] = self.values[there]
        return found

    def shares(self) -> Floats:
        return np.diff(self.starts).astype(np.float64)


Group = tuple[tuple[Path, ...], Sequence[int], Any]
"""Answers of one shape: their paths, their indices, and a row of numbers for each."""


def gathered(groups: Sequence[Group], count: int) -> AnswerTable:
    """Answers of several shapes in one table."""
    if len(groups) == 1 and len(groups[0][1]) == count:
        paths, _, rows = groups[0]
        return Dense.of(paths, np.asarray(rows, dtype=np.float64).reshape(count, len(paths)))
    places: dict[Path, int] = {}
    for paths, _, _ in groups:
        for path in paths:
            places.setdefault(path, len(places))
    total = sum(len(paths) * len(members) for paths, members, _ in groups)
    named = tuple(places)
    if count * len(named) <= max(SMALL, ROOMY * total):
        cells = np.full((count, len(named)), np.nan)
        for paths, members, rows in groups:
            at = np.array([places[path] for path in paths], dtype=np.int64)
            cells[np.ix_(np.asarray(members, dtype=np.int64), at)] = np.asarray(rows, dtype=np.float64).reshape(
                len(members), len(paths)
            )
        return Dense(named, cells, places)
    columns, rows_of, values = [], [], []
    for paths, members, rows in groups:
        at = np.array([places[path] for path in paths], dtype=np.int64)
        columns.append(np.tile(at, len(members)))
        rows_of.append(np.repeat(np.asarray(members, dtype=np.int64), len(paths)))
        values.append(np.asarray(rows, dtype=np.float64).ravel())
    return _sorted(named, places, count, np.concatenate(columns), np.concatenate(rows_of), np.concatenate(values))


def _sorted(
    paths: tuple[Path, ...], places: dict[Path, int], count: int, columns: Ints, rows: Ints, values: Floats
) -> Sparse:
    order = np.argsort(columns, kind="stable")
    starts = np.searchsorted(columns[order], np.arange(len(paths) + 1))
    return Sparse(paths, count, starts.astype(np.int64), rows[order], values[order], places)


def stacked(one: AnswerTable, other: AnswerTable) -> AnswerTable:
    """A table with the answers of both."""
    if one.paths == other.paths and isinstance(one, Dense) and isinstance(other, Dense):
        return Dense(one.paths, np.concatenate([one.cells, other.cells]), one.places)
    count = len(one) + len(other)
    if not one.paths and not other.paths:
        return Dense.of((), np.empty((count, 0)))
    paths = tuple(dict.fromkeys(one.paths + other.paths))
    places = _index(paths)
    parts = [_triples(table, places, before) for table, before in ((one, 0), (other, len(one)))]
    columns, rows, values = (np.concatenate([part[i] for part in parts]) for i in range(3))
    if count * len(paths) <= max(SMALL, ROOMY * len(values)):
        cells = np.full((count, len(paths)), np.nan)
        cells[rows, columns] = values
        return Dense(paths, cells, places)
    return _sorted(paths, places, count, columns, rows, values)


def _triples(table: AnswerTable, places: dict[Path, int], before: int) -> tuple[Ints, Ints, Floats]:
    """Column, row and value of all existing values."""
    at = np.array([places[path] for path in table.paths], dtype=np.int64)
    if isinstance(table, Sparse):
        return np.repeat(at, np.diff(table.starts)), table.rows_of + before, table.values
    assert isinstance(table, Dense)
    rows, columns = np.nonzero(~np.isnan(table.cells))
    return at[columns], rows + before, table.cells[rows, columns]


def extended(table: AnswerTable, paths: tuple[Path, ...], rows: Ints, columns: Ints, values: Floats) -> AnswerTable:
    """The table with more columns at these paths. `columns` has the index of each value among them."""
    every = table.paths + paths
    if isinstance(table, Dense):
        more = np.full((len(table), len(paths)), np.nan)
        more[rows, columns] = values
        return Dense.of(every, np.concatenate([table.cells, more], axis=1))
    assert isinstance(table, Sparse)
    before = np.repeat(np.arange(len(table.paths)), np.diff(table.starts))
    return _sorted(
        every,
        _index(every),
        len(table),
        np.concatenate([before, columns + len(table.paths)]),
        np.concatenate([table.rows_of, rows]),
        np.concatenate([table.values, values]),
    )
