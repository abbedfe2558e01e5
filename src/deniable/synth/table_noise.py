"""The noise of tables that are computed from shared draws: the contribution of each draw to a cell of every table.

A table x_S of counts by some columns S is the sum of its residuals, x_S = Σ_{A⊆S} (P_A x_A) / n_{S∖A}, repeated along
the columns of S∖A: x_A are the counts by A alone, P_A = ⊗_{i∈A} (I - 11ᵀ/n_i) subtracts all averages, and n_{S∖A} is
the product of the numbers of values of the other columns. Residuals of different A are orthogonal. So noise that
enters by residuals is known in every table: a draw at the cell m of a measured table M, loaded by ω_A into the residual
A, adds

    Σ_{A⊆S∩M} ω_A / n_{S∖A} · Π_{i∈A} ([m_i = c_i] - 1/n_i)

to the cell c of S. This contribution depends only on the set of columns in which m and c differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, final

import numpy as np

Columns = tuple[int, ...]
"""Indices of columns, ascending."""


def subsets(columns: Iterable[int]) -> Iterator[Columns]:
    """All sets of some of these columns, the empty one first.

    >>> list(subsets((0, 2)))
    [(), (0,), (2,), (0, 2)]
    """
    ordered = sorted(columns)
    for size in range(len(ordered) + 1):
        yield from combinations(ordered, size)


def size_of(sizes: Sequence[int], columns: Sequence[int]) -> int:
    """The number of cells of a table by these columns."""
    return math.prod(sizes[i] for i in columns)


@final
@dataclass(frozen=True, slots=True)
class MeasuredSource:
    """A table that was measured: independent draws of noise of one width, one for each of its cells."""

    columns: Columns
    width: float
    """The parameter of the noise, in its own steps."""
    loads: tuple[tuple[Columns, float], ...]
    """The factor of one step of noise in each residual that the table contributes to."""
    mark: str = ""
    """An identifier of these draws: sources with the same mark share their draws. Empty if no other source has them."""
    names: Columns = ()
    """The number of each column at the time when the mark was given, which identifies it across laws."""


@final
@dataclass(frozen=True, slots=True)
class TableNoise:
    """The noise of all tables by columns of these numbers of values."""

    sizes: tuple[int, ...]
    sources: tuple[MeasuredSource, ...]

    def shares(self, columns: Sequence[int]) -> list[tuple[float, float, int]]:
        """(weight, width, number of draws) of all draws in a cell of a table. All cells are alike."""
        return [(abs(weight), width, cells) for weight, _, width, cells in self.moves(columns) if weight]

    def moves(self, columns: Sequence[int]) -> list[tuple[float, float, float, int]]:
        """(contribution to a cell, contribution to the total, width, number of such draws) of one step of each draw."""
        kept, found = set(columns), []
        for source in self.sources:
            common = [i for i in source.columns if i in kept]
            outside = size_of(self.sizes, [i for i in source.columns if i not in kept])
            loads = [(a, w) for a, w in source.loads if kept.issuperset(a)]
            if not loads:  # most sources contribute to few tables
                continue
            in_all = math.fsum(w for a, w in loads if not a)
            largest = max((abs(w) for _, w in loads), default=0.0)
            for differs in subsets(common):
                cells = outside * math.prod(self.sizes[i] - 1 for i in differs)
                weight = math.fsum(w * self._factor(a, kept, differs) for a, w in loads)
                weight = weight if abs(weight) > 1e-15 * largest else 0.0
                if cells and (weight or in_all):
                    found.append((weight, in_all, source.width, cells))
        return found

    def _factor(self, residual: Columns, kept: set[int], differs: Columns) -> float:
        by = 1 / size_of(self.sizes, [i for i in kept if i not in residual])
        for i in residual:
            by *= -1 / self.sizes[i] if i in differs else 1 - 1 / self.sizes[i]
        return by

    def within(self, columns: Sequence[int]) -> TableNoise:
        """The noise restricted to a table by these columns and its sums."""
        kept = set(columns)
        sources = [
            replace(each, loads=tuple((a, w) for a, w in each.loads if kept.issuperset(a))) for each in self.sources
        ]
        return TableNoise(self.sizes, tuple(each for each in sources if each.loads))

    def without(self, columns: Sequence[int]) -> TableNoise:
        """The noise of a table from which its averages by these columns are subtracted."""
        gone = set(columns)
        sources = [
            replace(each, loads=tuple((a, w) for a, w in each.loads if not gone.issuperset(a))) for each in self.sources
        ]
        return TableNoise(self.sizes, tuple(each for each in sources if each.loads))

    def mixed(self, share: float, other: TableNoise) -> TableNoise:
        """The noise of `share` times one table plus the rest times another, measured independently."""
        longer = max(self.sizes, other.sizes, key=len)
        return TableNoise(longer, (*self._times(share), *other._times(1 - share)))

    def spread(self, residual: Columns, variance: Callable[[float], float]) -> float:
        """σ_A²: the noise of a residual has the covariance σ_A² P_A. `variance` maps a draw's width to its variance.

        Infinite if no draw contributes to the residual.
        """
        found = [
            w * w * variance(s.width) * size_of(self.sizes, [i for i in s.columns if i not in residual])
            for s in self.sources
            for a, w in s.loads
            if a == residual
        ]
        return math.fsum(found) if found else math.inf

    def weighed(self, weights: Mapping[Columns, float]) -> TableNoise:
        """The noise of residuals that are multiplied by these weights."""
        sources = [
            replace(each, loads=tuple((a, w * weights[a]) for a, w in each.loads if weights.get(a)))
            for each in self.sources
        ]
        return TableNoise(self.sizes, tuple(each for each in sources if each.loads))

    def renamed(self, names: dict[int, int], like: TableNoise) -> TableNoise:
        """The noise with columns renumbered as in another law; columns that are not in `names` get new numbers."""
        sizes = list(like.sizes)
        names = dict(names)
        for source in self.sources:
            for i in source.columns:
                if i not in names:
                    names[i] = len(sizes)
                    sizes.append(self.sizes[i])

        def renumbered(columns: Columns) -> Columns:
            return tuple(sorted(names[i] for i in columns))

        sources = []
        for s in self.sources:
            order = sorted(range(len(s.columns)), key=lambda place: names[s.columns[place]])
            first = tuple(s.names[place] for place in order) if s.mark else ()
            loads = tuple((renumbered(a), w) for a, w in s.loads)
            sources.append(replace(s, columns=renumbered(s.columns), loads=loads, names=first))
        return TableNoise(tuple(sizes), tuple(sources))

    def marked(self, mark: str) -> TableNoise:
        """The noise with a mark on its draws that no other draws have."""
        many = len(self.sources) > 1
        sources = (
            replace(each, mark=f"{mark}/{place}" if many else mark, names=each.columns)
            for place, each in enumerate(self.sources)
        )
        return TableNoise(self.sizes, tuple(sources))

    @classmethod
    def together(cls, laws: Sequence[TableNoise]) -> TableNoise:
        """The noise of a sum of numbers with these laws. Contributions of a shared draw are added up."""
        found: dict[object, MeasuredSource] = {}
        for place, source in enumerate(each for law in laws for each in law.sources):
            at = (source.mark, source.columns, source.names, source.width) if source.mark else place
            known = found.get(at)
            loads = dict(known.loads if known else ())
            for a, w in source.loads:
                loads[a] = loads.get(a, 0.0) + w
            found[at] = replace(source, loads=tuple(loads.items()))
        return cls(max((each.sizes for each in laws), key=len), tuple(found.values()))

    def _times(self, by: float) -> tuple[MeasuredSource, ...]:
        return tuple(replace(s, loads=tuple((a, w * by) for a, w in s.loads)) for s in self.sources)

    @classmethod
    def alone(cls, sizes: Sequence[int], columns: Columns, width: float, weight: float = 1.0) -> TableNoise:
        """The noise of a table that was measured separately."""
        return cls(tuple(sizes), (MeasuredSource(columns, width, tuple((a, weight) for a in subsets(columns))),))

    def to_dict(self) -> dict[str, Any]:
        """The law as a JSON-ready dict."""
        record = {
            "sizes": list(self.sizes),
            "sources": [[list(s.columns), s.width, [[list(a), w] for a, w in s.loads]] for s in self.sources],
        }
        if any(s.mark for s in self.sources):
            record["marks"] = [[s.mark, list(s.names)] for s in self.sources]
        return record

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> TableNoise:
        """The inverse of `to_dict`."""
        marks = record.get("marks") or [["", ()]] * len(record["sources"])
        sources = (
            MeasuredSource(
                tuple(columns), float(width), tuple((tuple(a), float(w)) for a, w in loads), mark, tuple(names)
            )
            for (columns, width, loads), (mark, names) in zip(record["sources"], marks, strict=True)
        )
        return cls(tuple(record["sizes"]), tuple(sources))


# -- from residuals to tables ------------------------------------------------------------------------------------------


def summed(table: Any, columns: Columns, kept: Iterable[int]) -> Any:
    """A table, summed over all columns except the `kept` ones. It has one axis for each column in `columns`.

    >>> summed(np.array([[1.0, 2.0], [3.0, 4.0]]), (0, 3), (3,))
    array([4., 6.])
    """
    few = set(kept)
    gone = tuple(axis for axis, i in enumerate(columns) if i not in few)
    return np.asarray(table.sum(axis=gone), dtype=table.dtype) if gone else table


def without_averages(table: Any) -> Any:
    """P x: the table minus its average along every axis."""
    if not table.size:
        return table
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def rebuilt(sizes: Sequence[int], columns: Columns, residuals: dict[Columns, Any]) -> Any:
    """The table by these columns, with an axis for each, from its residuals."""
    table = np.zeros([sizes[i] for i in columns])
    for residual in subsets(columns):
        if residual not in residuals:  # the residual of a column with one value is 0
            continue
        others = size_of(sizes, [i for i in columns if i not in residual])
        shape = [sizes[i] if i in residual else 1 for i in columns]
        table += residuals[residual].reshape(shape) / others
    return table
