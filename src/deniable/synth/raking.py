"""Raking: corrections of a fitted mixture for counts by single columns.

A fit stops when the sum of squares over all cells is as small as noise explains. A column of two values is two cells
among thousands, so it can be many standard deviations off without a visible effect on the sum. So each column is
corrected as far as noise does not explain the distance: with χ² = Σ (fitted - noisy)²/variance over m cells, the fitted
count moves towards the noisy one by the fraction max(0, 1 - (m + 3·√(2m))/χ²). This is the James-Stein estimator (1961)
with a margin of three standard deviations of χ². A fit that is within the noise is not changed.

A correction multiplies p(x) by a factor for each value of one column (iterative proportional fitting, Deming & Stephan
1940). A mixture of products stays a mixture of products under this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from deniable.synth.marginals import Marginal, total
from deniable.synth.mixture import Mixture
from deniable.synth.structural_zeros import Forbidden

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROUNDS: Final = 3
_SPARE: Final = 3.0
_LEAST: Final = 1e-12


def raked(mixture: Mixture, measured: Sequence[Marginal], forbidden: Forbidden) -> Mixture:
    """The mixture with corrected counts by single columns."""
    rows = total(measured)
    single = [each for each in measured if len(each.columns) == 1]
    wanted = [(each.columns[0], _wanted(forbidden.marginal(mixture, *each.columns), each, rows)) for each in single]
    for _ in range(_ROUNDS):  # a correction of one column also moves columns that depend on it
        for column, shares in wanted:
            if shares is not None:
                now = forbidden.marginal(mixture, column)
                mixture = _scaled(mixture, column, shares / np.maximum(now, _LEAST))
    return mixture


def _wanted(fitted: NDArray[np.float64], each: Marginal, rows: float) -> NDArray[np.float64] | None:
    """The target distribution of a column; None if the fit is close enough."""
    off = each.counts / rows - fitted
    squares = float((off**2).sum()) * rows**2 / each.variance
    noise = each.counts.size + _SPARE * (2 * each.counts.size) ** 0.5
    if squares <= noise:
        return None
    shares = np.maximum(fitted + (1 - noise / squares) * off, 0.0)
    return np.asarray(shares / shares.sum()) if shares.sum() > 0 else None


def _scaled(mixture: Mixture, column: int, factors: NDArray[np.float64]) -> Mixture:
    """p(x) times a factor for each value of a column, as a mixture."""
    moved = mixture.columns[column] * factors
    sums = moved.sum(axis=1)
    weights = mixture.weights * sums
    if not (np.isfinite(sums).all() and weights.sum() > 0):
        return mixture
    # A component that loses all its weight keeps its distribution.
    kept = np.where(sums[:, None] > 0, moved / np.where(sums > 0, sums, 1.0)[:, None], mixture.columns[column])
    columns = tuple(kept if place == column else each for place, each in enumerate(mixture.columns))
    return replace(mixture, weights=weights / weights.sum(), columns=columns)
