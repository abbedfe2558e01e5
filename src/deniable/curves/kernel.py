"""Finite mechanisms as Markov kernels: row-stochastic matrices with a neighbour relation on their rows.

Row i holds the probabilities of the answers on dataset i. Kernels compose (`then`: post-processing by another
kernel), multiply (`*`: both answers are released) and mix (`Kernel.mixture`), as in source 003; `.curve` is the exact
curve of the worst pair of neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from deniable.curves import check
from deniable.curves.curve import Curve
from deniable.curves.laws import finite, tabulated
from deniable.curves.laws.base import Law, Pair, Sided
from deniable.curves.promise import Atom
from deniable.curves.rounding import UNIT_ROUNDOFF, Floats
from deniable.errors import InvalidDistribution, InvalidOperation, InvalidParameter

Rows = tuple[tuple[float, ...], ...]
Pairs = tuple[tuple[int, int], ...]


def _rows(matrix: Any) -> Rows:
    try:
        listed = [list(row) for row in matrix]
    except TypeError:
        raise InvalidDistribution("matrix", matrix, "must be a list of rows of probabilities") from None
    if not listed or len({len(row) for row in listed}) != 1:
        raise InvalidDistribution("matrix", "...", "must have at least one row, all of one length")
    rows = []
    for i, row in enumerate(listed):
        array = check.numbers_array("matrix", row)
        if np.any(array < 0):
            raise InvalidDistribution("matrix", "...", f"row {i}, column {int(np.argmax(array < 0))} is negative")
        if abs(float(np.sum(array)) - 1) > 1e-9:
            raise InvalidDistribution("matrix", "...", f"row {i} sums to {np.sum(array):.12g}, not to 1")
        rows.append(tuple(check.normalized(array).tolist()))
    return tuple(rows)


def _pairs(neighbours: Iterable[tuple[int, int]] | None, count: int) -> Pairs:
    """Unordered pairs of different rows; None means that all rows are neighbours of each other."""
    if neighbours is None:
        return tuple((i, j) for i in range(count) for j in range(i + 1, count))
    found = set()
    if not isinstance(neighbours, Iterable):
        raise InvalidParameter("neighbours", neighbours, "must be pairs of row numbers")
    for pair in neighbours:
        try:
            i, j = (check.integer("neighbours", v, 0) for v in pair)
        except (TypeError, ValueError) as error:
            if isinstance(error, InvalidParameter):
                raise
            raise InvalidParameter("neighbours", pair, "must be pairs of row numbers") from None
        if max(i, j) >= count:
            raise InvalidParameter("neighbours", pair, f"there are only {count} rows")
        if i != j:
            found.add((min(i, j), max(i, j)))
    return tuple(sorted(found))


@final
@dataclass(frozen=True, slots=True)
class Kernel:
    """A finite mechanism. `rows[i][y]` is the probability of answer y on dataset i; `pairs` are the neighbouring
    datasets.
    """

    rows: Rows
    pairs: Pairs

    @staticmethod
    def of(matrix: Sequence[Sequence[float]] | Floats, neighbours: Iterable[tuple[int, int]] | None = None) -> Kernel:
        rows = _rows(matrix)
        return Kernel(rows, _pairs(neighbours, len(rows)))

    @property
    def matrix(self) -> Floats:
        return np.array(self.rows)

    def then(self, other: Kernel | Sequence[Sequence[float]] | Floats) -> Kernel:
        """Post-processing: the answer of this kernel is the dataset of the next."""
        after = other if isinstance(other, Kernel) else Kernel.of(other, ())
        if len(self.rows[0]) != len(after.rows):
            raise InvalidOperation(f"this kernel has {len(self.rows[0])} answers, the next expects {len(after.rows)}")
        return Kernel.of(self.matrix @ after.matrix, self.pairs)

    def __mul__(self, other: Kernel) -> Kernel:
        """Both mechanisms run independently on the same dataset and both answers are released."""
        if not isinstance(other, Kernel):
            return NotImplemented
        if len(self.rows) != len(other.rows) or self.pairs != other.pairs:
            raise InvalidOperation("kernels multiply when they have the same datasets and the same neighbours")
        product = np.einsum("iy,iz->iyz", self.matrix, other.matrix).reshape(len(self.rows), -1)
        return Kernel.of(product, self.pairs)

    @staticmethod
    def mixture(weights: Sequence[float], kernels: Sequence[Kernel]) -> Kernel:
        """One kernel is drawn with the given weights and the attacker does not see which: a convex combination."""
        shares = check.numbers_array("weights", weights)
        if not all(isinstance(k, Kernel) for k in kernels):
            raise InvalidParameter("kernels", "...", "must be kernels only")
        if len(shares) != len(kernels) or np.any(shares < 0) or abs(float(np.sum(shares)) - 1) > 1e-9:
            raise InvalidParameter("weights", "...", "must be one for each kernel, at least 0, and sum to 1")
        if len({(len(k.rows), len(k.rows[0]), k.pairs) for k in kernels}) != 1:
            raise InvalidOperation("kernels mix when they have the same datasets, answers and neighbours")
        mixed = sum((w * k.matrix for w, k in zip(shares, kernels, strict=True)), np.zeros_like(kernels[0].matrix))
        return Kernel.of(mixed, kernels[0].pairs)

    @property
    def curve(self) -> Curve:
        """The exact curve of the worst pair of neighbours."""
        return Curve.of(FromKernel(self.rows, self.pairs)) if self.pairs else Curve({})


@final
@dataclass(frozen=True, slots=True)
class FromKernel(Atom):
    name: ClassVar[str] = "from_kernel"
    rows: Rows
    pairs: Pairs

    def __post_init__(self) -> None:
        rows = _rows(self.rows)
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "pairs", _pairs(self.pairs, len(rows)))

    def pair(self) -> Pair:
        matrix = np.array(self.rows)
        upper: list[Law] = []
        lower: list[Law] = []
        for i, j in self.pairs:
            pair = finite.from_masses(matrix[i], matrix[j], 4 * UNIT_ROUNDOFF)
            for side in (pair.forward, pair.backward):
                upper.append(side.upper)
                lower.append(side.lower)
        both = Sided(tabulated.worst(upper, side="upper"), tabulated.worst(lower, side="lower"))
        return Pair(both, both)

    def expression(self) -> str:
        return (
            f"from_kernel(<{len(self.rows)} datasets, {len(self.rows[0])} answers, {len(self.pairs)} neighbour pairs>)"
        )


def from_kernel(
    matrix: Sequence[Sequence[float]] | Floats, *, neighbours: Iterable[tuple[int, int]] | None = None
) -> Curve:
    """The exact curve of a finite mechanism: row i of the matrix holds the answer probabilities on dataset i.

    `neighbours` lists pairs of rows (both orders are meant); without it all rows are neighbours of each other.

    >>> from deniable import curves
    >>> round(curves.from_kernel([[0.75, 0.25], [0.25, 0.75]]).epsilon(delta=0.0), 9)
    1.098612289
    """
    return Kernel.of(matrix, neighbours).curve
