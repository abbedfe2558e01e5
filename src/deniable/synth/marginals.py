"""The marginals that are measured for a synthetic table, and the share of the cost of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, final

from deniable.errors import InvalidParameter, PublicTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FOR_SINGLE_COLUMNS: Final = Fraction(1, 10)
"""The share of the cost for counts by one column. These are also sums of larger marginals, but measured by themselves
they are precise enough to distinguish a rare value from noise."""
_FINER: Final = 0.25
"""A marginal of m cells gets a share in proportion to m^(1/4). Equal shares leave large marginals too noisy; a share in
proportion to m^(2/3), which is the best for noisy counts as they are, is too much where a fit smooths them. Measured on
the Adult data at ε = 0.1, 1 and 10: 1/4 is the best of 0, 1/4, 1/2 and 2/3 at all three."""
MOST_WAYS: Final = 3


@final
@dataclass(frozen=True, slots=True, eq=False)
class Marginal:
    """Noisy counts by some columns, all of them with noise of one variance."""

    columns: tuple[int, ...]
    """The indices of its columns, ascending."""
    counts: NDArray[np.float64]
    """One axis for each column."""
    variance: float
    zeros: NDArray[np.bool_] | None = None
    """Cells that are certainly 0 by public facts; in a fit they weigh more than noisy cells."""


def marginals(sizes: Sequence[int], *, target: int | None = None) -> list[tuple[int, ...]]:
    """The marginals to measure: each column and each pair; with a target, each pair together with the target.

    The target is the column that a model will predict from the others, which needs its dependence on pairs of them.

    >>> marginals([2, 3, 4])
    [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
    >>> marginals([2, 3, 4], target=0)
    [(0,), (1,), (2,), (0, 1, 2)]
    """
    columns = range(len(sizes))
    single: list[tuple[int, ...]] = [(column,) for column in columns]
    others = [column for column in columns if column != target]
    if target is None or len(others) < 2:
        return single + list(combinations(columns, 2))
    return single + [tuple(sorted((*pair, target))) for pair in combinations(others, 2)]


def shares(sizes: Sequence[int], measured: Sequence[tuple[int, ...]]) -> list[Fraction]:
    """The share of the cost of each marginal; they add up to 1.

    >>> [str(share) for share in shares([2, 2], [(0,), (1,), (0, 1)])]
    ['1/20', '1/20', '9/10']
    """
    single = [columns for columns in measured if len(columns) == 1]
    several = [columns for columns in measured if len(columns) > 1]
    # Rounded to thousandths, so that the hash of a request is the same on every machine.
    weights = {
        columns: Fraction(round(1000 * math.prod(sizes[column] for column in columns) ** _FINER), 1000)
        for columns in several
    }
    alone = FOR_SINGLE_COLUMNS if several else Fraction(1)
    return [
        alone / len(single)
        if len(columns) == 1
        else (1 - alone if single else 1) * weights[columns] / sum(weights.values())
        for columns in measured
    ]


def checked(sizes: Sequence[int], measured: Sequence[Marginal]) -> None:
    """Raise `InvalidParameter` if the marginals do not fit these columns."""
    if not measured:
        raise InvalidParameter("marginals", "none", "at least one is needed")
    for each in measured:
        if not 1 <= len(each.columns) <= MOST_WAYS or list(each.columns) != sorted(set(each.columns)):
            rule = f"must have 1 to {MOST_WAYS} columns, each once and in rising order"
            raise InvalidParameter("columns", each.columns, rule)
        if each.counts.shape != tuple(sizes[column] for column in each.columns):
            raise InvalidParameter(
                "counts", PublicTuple(each.counts.shape), "must have one axis for each column, of its size"
            )
        if not (math.isfinite(each.variance) and each.variance > 0):
            raise InvalidParameter("variance", each.variance, "must be finite and above 0")


def total_deviation(measured: Sequence[Marginal]) -> float:
    """The standard deviation of the noise in `total`."""
    return 1 / math.sqrt(math.fsum(_precision(measured)))


def _precision(measured: Sequence[Marginal]) -> list[float]:
    """The inverse variance of the sum of each marginal."""
    return [1 / (each.variance * each.counts.size) for each in measured]


def total(measured: Sequence[Marginal]) -> float:
    """The estimated number of rows: the sums of all marginals, merged by inverse variance."""
    precision = _precision(measured)
    sums: list[Any] = [each.counts.sum() for each in measured]
    return max(1.0, math.fsum(p * float(s) for p, s in zip(precision, sums, strict=True)) / math.fsum(precision))
