"""Finite mechanisms as Markov kernels: row-stochastic matrices with a neighbour relation on their rows.

Row i contains the probabilities of the answers on dataset i. Kernels compose (`then`: post-processing by another
kernel), multiply (`*`: both answers are released) and mix (`Kernel.mixture`); `.curve` is the exact curve of the worst
pair of neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from deniable.curves import curve_arguments
from deniable.curves.atoms.atom import Atom, pair_of
from deniable.curves.curve import Curve
from deniable.curves.laws import finite_law, laws_from_bounds
from deniable.curves.laws.law import Law, LawPair, Sided
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats
from deniable.errors import NOTHING, InvalidDistribution, InvalidOperation, InvalidParameter, NotCertifiable

Rows = tuple[tuple[float, ...], ...]
Pairs = tuple[tuple[int, int], ...]
LARGEST_PROGRAMME = 10**7
"""Most entries of the linear programme that searches for a post-processing."""


def _rows(matrix: Any) -> Rows:
    try:
        listed = [list(row) for row in matrix]
    except TypeError:
        raise InvalidDistribution("matrix", matrix, "must be a list of rows of probabilities") from None
    if not listed or len({len(row) for row in listed}) != 1:
        raise InvalidDistribution("matrix", "...", "must have at least one row, and all rows must have one length")
    rows = []
    for i, row in enumerate(listed):
        array = curve_arguments.numbers_array("matrix", row)
        if np.any(array < 0):
            raise InvalidDistribution("matrix", "...", f"row {i}, column {int(np.argmax(array < 0))} is negative")
        if abs(float(np.sum(array)) - 1) > 1e-9:
            raise InvalidDistribution("matrix", "...", f"row {i} must sum to 1")
        rows.append(tuple(curve_arguments.normalized(array).tolist()))
    return tuple(rows)


def _pairs(neighbours: Iterable[tuple[int, int]] | None, count: int) -> Pairs:
    """Unordered pairs of different rows; None means that every two rows are neighbours."""
    if neighbours is None:
        return tuple((i, j) for i in range(count) for j in range(i + 1, count))
    found = set()
    if not isinstance(neighbours, Iterable):
        raise InvalidParameter("neighbours", neighbours, "must be pairs of row numbers")
    for pair in neighbours:
        try:
            i, j = (curve_arguments.integer("neighbours", v, 0) for v in pair)
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
        """A kernel from a matrix of probabilities and pairs of row numbers; by default all rows are neighbours of each
        other.

        Raises InvalidDistribution unless every row is at least 0 and sums to 1 (up to 1e-9).
        """
        rows = _rows(matrix)
        return Kernel(rows, _pairs(neighbours, len(rows)))

    @property
    def matrix(self) -> Floats:
        """The kernel as an array: one row of probabilities for each input."""
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
            raise InvalidOperation("kernels can be multiplied only if they have the same datasets and neighbours")
        product = np.einsum("iy,iz->iyz", self.matrix, other.matrix).reshape(len(self.rows), -1)
        return Kernel.of(product, self.pairs)

    @staticmethod
    def mixture(weights: Sequence[float], kernels: Sequence[Kernel]) -> Kernel:
        """One kernel is drawn with the given weights and the attacker does not see which: a convex combination."""
        shares = curve_arguments.numbers_array("weights", weights)
        if not all(isinstance(k, Kernel) for k in kernels):
            raise InvalidParameter("kernels", "...", "must be kernels only")
        if len(shares) != len(kernels) or np.any(shares < 0) or abs(float(np.sum(shares)) - 1) > 1e-9:
            raise InvalidParameter("weights", "...", "must be one for each kernel, at least 0, and sum to 1")
        if len({(len(k.rows), len(k.rows[0]), k.pairs) for k in kernels}) != 1:
            raise InvalidOperation("kernels can be mixed only if they have the same datasets, answers and neighbours")
        mixed = sum((w * k.matrix for w, k in zip(shares, kernels, strict=True)), np.zeros_like(kernels[0].matrix))
        return Kernel.of(mixed, kernels[0].pairs)

    def __call__(self, measure: Sequence[float] | Floats) -> Floats:
        """The distribution of the answer if the dataset is drawn from a measure μ: μM = Σ_i μ_i rows[i]."""
        weights = curve_arguments.numbers_array("measure", measure)
        if len(weights) != len(self.rows):
            raise InvalidParameter("measure", NOTHING, f"has {len(weights)} weights for {len(self.rows)} datasets")
        return np.asarray(weights @ self.matrix)

    def mean(self, function: Sequence[float] | Floats) -> Floats:
        """The mean of a function of the answer on each dataset: (Mf)(i) = Σ_y rows[i][y] f(y)."""
        values = curve_arguments.numbers_array("function", function)
        if len(values) != len(self.rows[0]):
            raise InvalidParameter("function", NOTHING, f"has {len(values)} values for {len(self.rows[0])} answers")
        return np.asarray(self.matrix @ values)

    @staticmethod
    def convolution(noise: Sequence[float] | Floats, shifts: Sequence[int]) -> Kernel:
        """An additive mechanism, δ_θ * μ: on dataset i the answer is shifts[i] plus noise. `noise` lists the masses on
        0, 1, 2, ...; shifts are integers >= 0.
        """
        masses, moves = (
            curve_arguments.numbers_array("noise", noise),
            [curve_arguments.integer("shifts", s, 0) for s in shifts],
        )
        rows = np.zeros((len(moves), len(masses) + max(moves, default=0)))
        for row, move in zip(rows, moves, strict=True):
            row[move : move + len(masses)] = masses
        return Kernel.of(rows)

    def garbling(self, other: Kernel, *, tolerance: float = 1e-9) -> Kernel:
        """The post-processing R that turns this kernel into the other: self.then(R) is `other` (Blackwell's theorem).

        Computed by linear programming and then checked: no entry differs by more than `tolerance`. If no
        post-processing does this, raises InvalidOperation with the smallest possible difference. For two datasets R
        exists exactly if this kernel's trade-off function lies below the other's.
        """
        if not isinstance(other, Kernel) or len(other.rows) != len(self.rows):
            raise InvalidParameter("other", other, f"must be a kernel on the same {len(self.rows)} datasets")
        gap, matrix = _nearest_garbling(self.matrix, other.matrix)
        if gap > curve_arguments.not_negative("tolerance", tolerance):
            raise InvalidOperation(
                f"no post-processing of this kernel gives the other: the nearest one differs by {gap:.3g} in some entry"
            )
        return Kernel.of(matrix, ())

    @property
    def curve(self) -> Curve:
        """The exact curve of the worst pair of neighbours."""
        return Curve.of(FromKernel(self.rows, self.pairs)) if self.pairs else Curve({})


def _nearest_garbling(first: Floats, second: Floats) -> tuple[float, Floats]:
    """The stochastic R that minimises the largest entry of |first R - second|, and that entry."""
    from scipy.optimize import linprog

    inner, outer = first.shape[1], second.shape[1]
    if second.size * inner * outer > LARGEST_PROGRAMME:
        raise NotCertifiable("these kernels have too many answers for the linear programme; use smaller kernels")
    # Variables: R row by row, then the gap. |(first R - second)_iz| <= gap, rows of R sum to 1.
    moved = np.kron(first, np.eye(outer))
    gap = -np.ones((len(moved), 1))
    above = np.block([[moved, gap], [-moved, gap]])
    bound = np.concatenate((second.ravel(), -second.ravel()))
    sums = np.hstack((np.kron(np.eye(inner), np.ones((1, outer))), np.zeros((inner, 1))))
    cost = np.append(np.zeros(inner * outer), 1.0)
    found = linprog(cost, A_ub=above, b_ub=bound, A_eq=sums, b_eq=np.ones(inner), bounds=(0, None), method="highs")
    if not found.success or found.x is None:
        raise NotCertifiable("the linear programme for the post-processing was not solved; use smaller kernels")
    matrix = np.maximum(found.x[:-1].reshape(inner, outer), 0.0)
    matrix /= matrix.sum(axis=1, keepdims=True)
    return float(np.max(np.abs(first @ matrix - second))), matrix


@final
@dataclass(frozen=True, slots=True)
class FromKernel(Atom):
    """A finite mechanism: the rows of a kernel and its pairs of neighbours."""

    name: ClassVar[str] = "from_kernel"
    rows: Rows
    pairs: Pairs

    def __post_init__(self) -> None:
        rows = _rows(self.rows)
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "pairs", _pairs(self.pairs, len(rows)))

    @property
    def tied(self) -> bool:
        return False

    @property
    def is_exact(self) -> bool:
        return len(self.pairs) == 1

    def pair(self) -> LawPair:
        """The laws of a single pair of neighbours; for several pairs, the largest profile at every ε over pairs and
        directions.
        """
        matrix = np.array(self.rows)
        pairs = [finite_law.from_masses(matrix[i], matrix[j], 4 * UNIT_ROUNDOFF) for i, j in self.pairs]
        if len(pairs) == 1:
            return pairs[0]
        sides = [side for pair in pairs for side in (pair.forward, pair.backward)]
        upper: list[Law] = [side.upper for side in sides]
        lower: list[Law] = [side.lower for side in sides]
        both = Sided(laws_from_bounds.worst(upper, side="upper"), laws_from_bounds.worst(lower, side="lower"))
        return LawPair(both, both)

    def possible_pairs(self) -> tuple[LawPair, ...]:
        return (pair_of(self),) if len(self.pairs) == 1 else ()

    def alternatives(self) -> tuple[tuple[Curve, bool], ...]:
        if len(self.pairs) == 1:
            return ()
        each = [Curve.of(FromKernel((self.rows[i], self.rows[j]), ((0, 1),))) for i, j in self.pairs]
        return tuple((curve, as_it_is) for curve in each for as_it_is in (True, False))

    def renyi_bound(self, order: float) -> float | None:
        return max((c.renyi_function(order) for c, _ in self.alternatives()[::2]), default=None)

    def zcdp_bound(self) -> float | None:
        return max((c.zcdp() for c, _ in self.alternatives()[::2]), default=None)

    def expression(self) -> str:
        return (
            f"from_kernel(<{len(self.rows)} datasets, {len(self.rows[0])} answers, {len(self.pairs)} neighbour pairs>)"
        )


def from_kernel(
    matrix: Sequence[Sequence[float]] | Floats, *, neighbours: Iterable[tuple[int, int]] | None = None
) -> Curve:
    """The exact curve of a finite mechanism: row i of the matrix contains the answer probabilities on dataset i.

    `neighbours` lists pairs of rows, in either order; by default all rows are neighbours of each other.

    >>> from deniable import curves
    >>> round(curves.from_kernel([[0.75, 0.25], [0.25, 0.75]]).epsilon(delta=0.0), 9)
    1.098612289
    """
    return Kernel.of(matrix, neighbours).curve
