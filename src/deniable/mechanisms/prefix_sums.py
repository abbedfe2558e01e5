"""All running totals of a row of counts at once: the number of rows below each cell border.

Quantiles, medians and extremes follow from these totals by post-processing, with confidence intervals, as many as
wanted. Independent noise on each total would cost several times as much. So noise is added to a *strategy*, a few
linear combinations C·x of the counts x, and the totals A·x are reconstructed from those: A·C⁺·(C·x + z). C is an
integer matrix, so C·x is exact and so is its sensitivity.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable.curves import Curve, curve_arguments
from deniable.errors import InvalidParameter
from deniable.mechanisms import input_values, noise_quantiles, rational_parameters
from deniable.mechanisms.additive_noise import DiscreteLaplace, Gaussian
from deniable.mechanisms.continual_counting import COEFFICIENT, coefficients
from deniable.mechanisms.mechanism import Mechanism

if TYPE_CHECKING:
    from deniable.mechanisms.noise_steps import Additive
    from deniable.noise import Entropy

MOST_CELLS: Final = 2**12
FINE: Final = 2**12
"""The root's coefficients are multiples of 2⁻¹² here: their products with a total below 2⁴¹ are exact in a float."""
LARGEST_TOTAL: Final = 2**41
BRANCHES: Final = 8
"""Children of a node of the tree. Close to optimal for 100 to 4096 cells."""


@final
@dataclass(frozen=True, slots=True)
class Differences:
    """The spread of the noise on some running differences, and between neighbouring ones."""

    deviations: input_values.Floats
    """The standard deviation of each."""
    steps: input_values.Floats
    """The standard deviation of each minus the one before it: one entry fewer."""
    kurtosis: input_values.Floats
    """The excess kurtosis of each: 0 for normal noise, 3 for a single Laplace draw."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class _PrefixSums(Mechanism):
    """Totals of x₁ … x_t for every t, where a unit moves the x by at most `sensitivity` in total (in L1)."""

    cells: int
    noise: Additive

    def _fill(self, cells: int, noisy: Additive) -> None:
        self._settle(cells=cells, noise=noisy)

    @staticmethod
    @abstractmethod
    def matrices(cells: int) -> tuple[input_values.Floats, input_values.Floats]:
        """(the strategy C, the matrix A·C⁺ that turns its noisy answers into totals)."""

    @property
    def curve(self) -> Curve:
        return self.noise.curve

    @property
    def spreads(self) -> input_values.Floats:
        """The standard deviation of the noise on each total."""
        return self.deviations_from_share(0.0)

    def deviations_from_share(self, q: float) -> input_values.Floats:
        """The standard deviation of the noise on total_t - q × the last total, for each t."""
        return self.differences(q).deviations[1:]

    def differences(self, q: float) -> Differences:
        """The law of the noise on total_t - q × the last total, for every t from 0 (an empty total) on."""
        lengths, steps, kurtosis = _rows(type(self), self.cells, q)
        spread = deviation_of(self.noise)
        # Rounded Gaussians are close to normal; a Laplace draw has an excess kurtosis of 3.
        heavy = kurtosis if isinstance(self.noise, DiscreteLaplace) else np.zeros_like(kurtosis)
        return Differences(spread * lengths, spread * steps, heavy)

    def release(self, value: Any, *, entropy: Entropy | None = None) -> input_values.Floats:
        """Noisy totals of integers, one for each cell; for several rows, each with its own noise.

        Rows that belong to disjoint parts of the data are released together at the cost of one, if a unit moves all of
        them by at most `sensitivity` in total.
        """
        counts = input_values.wholes(value)
        if counts.shape[-1] != self.cells:
            raise input_values.refused(f"must have {self.cells} counts in each row, as declared")
        strategy, back = self.matrices(self.cells)
        # Integers below 2^53, so this product is exact whatever the order of its sums; larger counts are clamped.
        # Clamping entry by entry never moves two counts further apart, so the sensitivity holds.
        cut = np.clip(counts, -(LARGEST_TOTAL // self.cells), LARGEST_TOTAL // self.cells)
        asked = (cut.astype(np.float64) @ strategy.T).astype(np.int64)
        noisy = asked + self.noise.draw(asked.shape, entropy)
        return np.asarray(noisy.astype(np.float64) @ back.T)

    def error(self, *, confidence: float) -> float:
        """A bound on the error of every total of one row at once, with probability at least `confidence`."""
        allowed = noise_quantiles.miss(confidence) / self.cells
        back = np.abs(self.matrices(self.cells)[1])
        if isinstance(self.noise, DiscreteLaplace):
            # log M(θw) <= (w/v)² log M(θv) for |w| <= v, because log M(t)/t² increases with t: the sum is bounded like
            # (Σw²)/v² draws, times v.
            most = float(back.max())
            draws = float((back**2).sum(axis=1).max()) / most**2
            return most * noise_quantiles.sum_of_discrete_laplace(float(self.noise.width), draws, allowed) * (1 + 1e-9)
        gaussian = (
            float(self.noise.width) * float(np.sqrt((back**2).sum(axis=1)).max()) * noise_quantiles.normal(allowed)
        )
        return (gaussian + float(back.sum(axis=1).max()) / 2) * (1 + 1e-9)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(cells={self.cells}, {self.curve!r})"


@final
class GaussianPrefixSums(_PrefixSums):
    """Running totals by the square root of the prefix-sum matrix, with Gaussian noise (see `FactorisedCounter`).

    For all neighbours D, D′ whose counts differ by at most `sensitivity` in L1: the strategy R·x moves by at most
    Δ‖f‖₂, so the totals are μ-GDP. The standard deviation is at most about (1 + log(cells)/π)·Δ/μ. At most 4,096 cells.

    >>> from deniable.mechanisms.prefix_sums import GaussianPrefixSums
    >>> totals = GaussianPrefixSums(cells=100, sensitivity=1, mu=1.0)
    >>> totals.release([5] * 100).shape
    (100,)
    >>> round(float(totals.spreads[-1]), 2)
    2.53

    Source: Henzinger, Upadhyay & Upadhyay (2023).
    """

    __slots__ = ()

    def __init__(self, *, cells: int, sensitivity: int, mu: float) -> None:
        count, step = _cells(cells), curve_arguments.integer("sensitivity", sensitivity, 1)
        square = int((_root(count).astype(object) ** 2).sum())
        moved = rational_parameters.root_up(Fraction(square * step * step))
        self._fill(count, Gaussian.whole(sensitivity=moved, mu=mu))

    @staticmethod
    def matrices(cells: int) -> tuple[input_values.Floats, input_values.Floats]:
        return _root_matrices(cells)


@final
class LaplacePrefixSums(_PrefixSums):
    """Running totals from a tree of counts with eight branches, with discrete Laplace noise: pure ε.

    For all neighbours D, D′ whose counts differ by at most `sensitivity` in L1: each count is in one node of each of L
    levels, so the tree moves by at most L·Δ in L1, and noise of scale LΔ/ε makes it ε-DP. Totals are the least-squares
    fit to the tree. At most 4,096 cells.

    >>> from deniable.mechanisms.prefix_sums import LaplacePrefixSums
    >>> LaplacePrefixSums(cells=100, sensitivity=1, epsilon=1.0).release([5] * 100).shape
    (100,)

    Source: Hay, Rastogi, Miklau & Suciu (2010).
    """

    __slots__ = ()

    def __init__(self, *, cells: int, sensitivity: int, epsilon: float | Fraction) -> None:
        count, step = _cells(cells), curve_arguments.integer("sensitivity", sensitivity, 1)
        levels = int(_tree(count).sum(axis=0).max())
        self._fill(count, DiscreteLaplace(sensitivity=levels * step, epsilon=epsilon))

    @staticmethod
    def matrices(cells: int) -> tuple[input_values.Floats, input_values.Floats]:
        return _tree_matrices(cells)


@lru_cache(maxsize=64)
def _rows(
    kind: type[_PrefixSums], cells: int, q: float
) -> tuple[input_values.Floats, input_values.Floats, input_values.Floats]:
    """For the rows of A·C⁺ (preceded by a row of zeros), each minus q times the last: lengths, lengths of differences,
    kurtosis.

    Noise Σ wᵢLᵢ of independent draws has Σw⁴/(Σw²)² times the excess kurtosis of one. Cached, because many releases
    share these.
    """
    back = kind.matrices(cells)[1]
    rows = np.concatenate((np.zeros((1, back.shape[1])), back)) - q * back[-1]
    squares = (rows**2).sum(axis=1)
    kurtosis = 3 * (rows**4).sum(axis=1) / np.maximum(squares, 1e-100) ** 2
    steps = np.sqrt((np.diff(rows, axis=0) ** 2).sum(axis=1))
    return _frozen(np.sqrt(squares)), _frozen(steps), _frozen(kurtosis)


def _cells(cells: Any) -> int:
    count = curve_arguments.integer("cells", cells, 1)
    if count > MOST_CELLS:
        raise InvalidParameter("cells", cells, f"must be at most {MOST_CELLS:,}")
    return count


def deviation_of(noisy: Additive) -> float:
    """The standard deviation of discrete Laplace or rounded Gaussian noise, in steps."""
    width = float(noisy.width)
    if isinstance(noisy, DiscreteLaplace):
        r = math.exp(-1 / width)
        return math.sqrt(2 * r) / (1 - r)
    return math.hypot(width, math.sqrt(1 / 12))  # N(0, σ²) plus the rounding


def _root(count: int) -> input_values.Ints:
    """f_k in units of 2⁻¹², rounded."""
    return (coefficients(count) + COEFFICIENT // FINE // 2) // (COEFFICIENT // FINE)


@lru_cache(maxsize=4)
def _root_matrices(count: int) -> tuple[input_values.Floats, input_values.Floats]:
    root = _root(count).astype(np.float64)
    # Constant along diagonals, like its inverse and the prefix sums: one column determines the matrix.
    inverse = np.zeros(count)
    inverse[0] = 1 / root[0]
    for k in range(1, count):
        inverse[k] = -float(root[1 : k + 1] @ inverse[k - 1 :: -1]) / root[0]
    return _frozen(_toeplitz(root)), _frozen(_toeplitz(np.cumsum(inverse)))


def _toeplitz(column: input_values.Floats) -> input_values.Floats:
    lag = np.subtract.outer(np.arange(column.size), np.arange(column.size))
    return np.where(lag >= 0, column[np.maximum(lag, 0)], 0.0)


@lru_cache(maxsize=8)
def _tree(count: int) -> input_values.Floats:
    """Nodes by cells: 1 if the cell is below the node. The total of all cells is a node too."""
    rows, width = [], 1
    while True:
        nodes = math.ceil(count / width)
        rows.append((np.arange(count)[None, :] // width == np.arange(nodes)[:, None]).astype(np.float64))
        if nodes == 1:
            return _frozen(np.concatenate(rows))
        width *= BRANCHES


@lru_cache(maxsize=4)
def _tree_matrices(count: int) -> tuple[input_values.Floats, input_values.Floats]:
    strategy = _tree(count)
    fitted = np.linalg.solve(strategy.T @ strategy, strategy.T)
    return strategy, _frozen(np.cumsum(fitted, axis=0))


def _frozen(matrix: input_values.Floats) -> input_values.Floats:
    matrix.setflags(write=False)
    return matrix
