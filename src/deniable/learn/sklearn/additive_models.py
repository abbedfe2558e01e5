"""Additive models: a sum of step functions, one for each feature, learned by boosting on noisy histograms.

1. *Bins.* Each feature's range is cut into `grid` equal cells, plus one for NaN. One noisy histogram of all features is
   released. Neighbouring cells are joined until each bin has about 1/`bins` of the rows, and clearly more than noise.
2. *Rounds.* In every epoch, for one feature after the other: the clipped residuals of the rows are summed in the
   feature's bins with noise, and the feature's step function moves towards their means.

A row is in one bin of a feature, so it changes a histogram of residuals by at most the clip. The method follows DP-EBM
(Nori, Caruana, Bu, Shen & Kulkarni 2021), with Newton steps, a clip that adapts to the residuals, and no random splits.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final, final

import numpy as np
from sklearn.utils.validation import check_is_fitted

from deniable.curves import curve_arguments
from deniable.errors import InvalidParameter
from deniable.learn.sklearn.fit_budget import Ints, Purse
from deniable.learn.sklearn.integer_rows import STEPS, Box, Floats, binned
from deniable.learn.sklearn.linear_models import left
from deniable.learn.sklearn.noisy_newton import FINE, REACH, UNIT, LogisticLoss
from deniable.learn.sklearn.private_estimator import (
    Private,
    PrivateRegressor,
    ProbabilityClassifier,
    stores_arguments,
)

HISTOGRAM_SHARE: Final = Fraction(1, 10)
"""The share of μ² for the histogram."""
SPREAD: Final = 3
"""Residuals are clipped at this multiple of their noisy mean absolute value."""
SEEN: Final = 8
"""The number of rows of a bin is at least this many standard deviations of the noise of one round."""
FINEST_CLIP: Final = STEPS // 64
"""The smallest clip. With smaller residuals there is nothing left to learn."""


class _Additive(Private):
    bounds: Any
    bins: Any
    epochs: Any
    grid: Any
    rate: Any
    box_: Box
    bins_: list[Ints]
    """For each feature, the bin of each cell. The last cell is for NaN."""
    shapes_: list[Floats]
    """For each feature, the score of each bin, with a column for each output."""
    intercept_: Floats

    def _parameters(self) -> tuple[int, int, int, float]:
        bins, grid = curve_arguments.integer("bins", self.bins, 1), curve_arguments.integer("grid", self.grid, 1)
        epochs, rate = curve_arguments.integer("epochs", self.epochs, 1), curve_arguments.positive("rate", self.rate)
        if grid > 2**20 or epochs > 10_000:
            raise InvalidParameter("grid", grid, "must be at most 2**20, and epochs at most 10,000")
        if rate > 1:
            raise InvalidParameter("rate", rate, "must be at most 1")
        return bins, grid, epochs, rate

    def _cut(self, purse: Purse, cells: Ints, share: Fraction, releases: int) -> tuple[list[Ints], list[Floats], float]:
        """For each feature, the bin of each cell and the noisy count of each bin; and the noisy number of rows.

        `releases` histograms of residuals will share the remaining budget. Bins are made large enough for their noise.

        A row adds 1 to one cell of each of d features: a vector of squared length d.
        """
        bins, grid, _, _ = self._parameters()
        features = cells.shape[1]
        exact = np.array([np.bincount(cells[:, j], minlength=grid + 1) for j in range(features)], dtype=np.int64)
        sums = purse.sums(share=share, square=features, size=exact.size)
        noisy = sums.release(exact).astype(np.float64)
        rows = max(1.0, float(noisy.sum(axis=1).mean()))
        # The σ of counts was paid with `share`; this is the σ of a later histogram of residuals, in units of the clip.
        later = sums.sigma * math.sqrt(share / (left(self.bounds) - share) * releases / features)
        joined = [joined_cells(each, max(rows / bins, SEEN * later), sums.sigma) for each in noisy]
        counts = [
            np.maximum(np.bincount(bin, weights=each, minlength=int(bin.max()) + 1), sums.sigma)
            for bin, each in zip(joined, noisy, strict=True)
        ]
        return joined, counts, rows

    def _scores(self, X: Any) -> Floats:
        """The sum of the step functions for each output. A row's score depends on that row alone, to the last digit."""
        cells = cells_of(self._asked(X), self.box_, curve_arguments.integer("grid", self.grid, 1))
        found = np.tile(self.intercept_, (len(cells), 1))
        for j, (bin, shape) in enumerate(zip(self.bins_, self.shapes_, strict=True)):
            found += shape[bin[cells[:, j]]]
        return found

    def _learnt(self, box: Box, bins: list[Ints], counts: list[Floats], shapes: list[Ints]) -> dict[str, Any]:
        """The learned attributes: step functions with mean 0 under the noisy counts, and the sum of their means as the
        intercept."""
        heights = [shape / STEPS for shape in shapes]
        means = [np.average(shape, axis=0, weights=count) for shape, count in zip(heights, counts, strict=True)]
        return {
            "box_": box,
            "bins_": bins,
            "shapes_": [shape - mean for shape, mean in zip(heights, means, strict=True)],
            "intercept_": np.sum(means, axis=0),
        }

    def shape(self, feature: int | str) -> tuple[Floats, Floats]:
        """The step function of a feature, for plots: the edges of its bins, and the score in each bin.

        `feature` is its number or, after a fit to a frame, its name. The bin of missing values, the last one of
        `shapes_`, is left out. Raises `InvalidParameter` for an unknown feature.
        """
        check_is_fitted(self)
        j = self._place(feature)
        bin = self.bins_[j][:-1]
        starts = np.flatnonzero(np.r_[True, np.diff(bin) > 0])
        low, high = float(self.box_.low[j]), float(self.box_.high[j])
        edges = low + (high - low) * np.r_[starts, len(bin)] / len(bin)
        return edges, self.shapes_[j][bin[starts]]

    def _place(self, feature: int | str) -> int:
        names = list(getattr(self, "feature_names_in_", ()))
        if isinstance(feature, str):
            if feature not in names:
                rule = "must be a column of the fitted frame" if names else "is a name, but X had no column names"
                raise InvalidParameter(
                    "feature", feature, rule, f"give the number of the feature, from 0 to {len(self.bins_) - 1}"
                )
            return names.index(feature)
        place = curve_arguments.integer("feature", feature, 0)
        if place >= len(self.bins_):
            raise InvalidParameter("feature", feature, f"must be less than the number of features, {len(self.bins_)}")
        return place


def cells_of(X: Floats, box: Box, grid: int) -> Ints:
    """The cell of each number, from 0 to grid − 1; `grid` for NaN. Computed row by row."""
    with np.errstate(all="ignore"):
        share = np.floor((np.clip(X, box.low, box.high) - box.low) / (box.high - box.low) * grid)
    return np.where(np.isnan(X), grid, np.clip(np.nan_to_num(share), 0, grid - 1)).astype(np.int64)


def joined_cells(noisy: Floats, wanted: float, sigma: float) -> Ints:
    """The bin of each cell. From left to right, a bin ends when it has `wanted` rows and clearly more than noise.

    The last cell, for missing values, is a separate bin.
    """
    counts = np.where(noisy[:-1] > 2 * sigma, noisy[:-1], 0.0)
    bin, held, bins = 0, 0.0, np.zeros(len(noisy), dtype=np.int64)
    for cell, count in enumerate(counts.tolist()):
        bins[cell] = bin
        held += count
        if held >= max(wanted, 3 * sigma):
            bin, held = bin + 1, 0.0
    last = max(0, bin - 1)
    bins = np.minimum(bins, last)  # the remaining cells join the last bin
    bins[-1] = last + 1
    return bins


@final
class AdditiveRegressor(_Additive, PrivateRegressor):
    """A sum of step functions, one for each feature, fitted to a target with public bounds.

    For all neighbours D, D′ that differ by one row: once, the row adds 1 to a cell of each of d features (a vector of
    length √d). Then, for each epoch and feature, it adds a residual of absolute value at most the clip to one bin. The
    next clip comes from a noisy sum of absolute residuals, which the row changes by at most the current clip. All
    releases have Gaussian noise and are together μ-GDP.

    `bounds` and `target_bounds` are as in `LinearRegression`. `shape` returns a learned step function for inspection.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (20_000, 2))
    >>> y = np.sin(X[:, 0]) + X[:, 1] ** 2 / 9
    >>> model = AdditiveRegressor(bounds=(-3, 3), target_bounds=(-1, 2), epsilon=1.0, delta=1e-6)
    >>> model.fit(X, y).score(X, y) > 0.95
    True
    """

    target_box_: Box

    @stores_arguments
    def __init__(
        self,
        *,
        bounds: Any,
        target_bounds: Any,
        epsilon: Any = None,
        delta: Any = None,
        mu: Any = None,
        session: Any = None,
        bins: Any = 32,
        epochs: Any = 8,
        grid: Any = 256,
        rate: Any = 0.4,
    ) -> None: ...

    def _learn(self, purse: Purse, *data: Any) -> dict[str, Any]:
        X, y, target = data
        _, grid, epochs, rate = self._parameters()
        box = self._box(self.bounds, X, purse)
        share = left(self.bounds)
        cells = cells_of(X, box, grid)
        bins, counts, rows = self._cut(purse, cells, share * HISTOGRAM_SHARE, epochs * (X.shape[1] + 1))
        features = X.shape[1]
        each = share * (1 - HISTOGRAM_SHARE) / (epochs * (features + 1))
        rest = target.steps(y[:, None])[:, 0]
        shapes = [np.zeros((len(count), 1), dtype=np.int64) for count in counts]
        clip = STEPS
        for _ in range(epochs):
            spread = purse.sums(share=each, square=clip * clip, size=1)
            size = binned(np.zeros(len(rest), dtype=np.int64), _sizes(rest, clip), bins=1, largest=clip)
            mean = float(spread.release(size)[0]) / rows
            for j in range(features):
                place = bins[j][cells[:, j]]
                sums = purse.sums(share=each, square=clip * clip, size=len(counts[j]))
                exact = binned(place, np.clip(rest, -clip, clip), bins=len(counts[j]), largest=clip)
                # The noise's σ, in units of the clip, is added to the count, to damp bins with few rows.
                move = rate * sums.release(exact) / (counts[j] + sums.sigma / clip)
                moved = np.rint(np.clip(move, -clip, clip)).astype(np.int64)
                shapes[j][:, 0] += moved
                rest = rest - moved[place]
            clip = min(clip, max(FINEST_CLIP, int(SPREAD * mean)))
        return self._learnt(box, bins, counts, shapes) | {"target_box_": target}

    def predict(self, X: Any) -> Floats:
        """The predicted target of each row, between the target's bounds."""
        scores, box = self._scores(X)[:, 0], self.target_box_
        return np.asarray(np.clip(scores * box.half[0] + box.middle[0], box.low[0], box.high[0]))


def _sizes(rest: Floats, clip: int) -> Floats:
    return np.minimum(np.abs(rest), clip)


@final
class AdditiveClassifier(_Additive, ProbabilityClassifier):
    """A sum of step functions, one for each feature, as the log-odds of a label; with more classes, a softmax of sums.

    For all neighbours D, D′ that differ by one row: once, the row adds 1 to a cell of each of d features (a vector of
    length √d). Then, for each epoch and feature, it adds p − y to one bin: at most 1 in absolute value, or √2 in length
    for more than two classes. All releases have Gaussian noise and are together μ-GDP.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (20_000, 2))
    >>> y = np.abs(X[:, 0]) > 1.5
    >>> model = AdditiveClassifier(classes=[False, True], bounds=(-3, 3), epsilon=1.0, delta=1e-6)
    >>> model.fit(X, y).score(X, y) > 0.9
    True
    """

    @stores_arguments
    def __init__(
        self,
        *,
        classes: Any,
        bounds: Any,
        epsilon: Any = None,
        delta: Any = None,
        mu: Any = None,
        session: Any = None,
        bins: Any = 32,
        epochs: Any = 8,
        grid: Any = 256,
        rate: Any = 0.4,
    ) -> None: ...

    def _learn(self, purse: Purse, *data: Any) -> dict[str, Any]:
        X, y, classes = data
        _, grid, epochs, rate = self._parameters()
        box = self._box(self.bounds, X, purse)
        share = left(self.bounds)
        cells = cells_of(X, box, grid)
        bins, counts, _ = self._cut(purse, cells, share * HISTOGRAM_SHARE, epochs * X.shape[1])
        features, outputs, loss = X.shape[1], 1 if len(classes) == 2 else len(classes), LogisticLoss()
        each = share * (1 - HISTOGRAM_SHARE) / (epochs * features)
        curvature = loss.curvature * (1 if outputs == 1 else 2)
        shapes = [np.zeros((len(count), outputs), dtype=np.int64) for count in counts]
        scores = np.zeros((len(X), outputs), dtype=np.int64)
        for _ in range(epochs):
            for j in range(features):
                place, size = bins[j][cells[:, j]], len(counts[j])
                tables = np.clip(scores // (STEPS // FINE), -REACH * FINE, REACH * FINE)
                slopes = loss.derivatives(tables, y).astype(np.float64)
                sums = purse.sums(share=each, square=loss.square(outputs), size=size * outputs)
                exact = np.stack([binned(place, slopes[:, k], bins=size, largest=UNIT) for k in range(outputs)], axis=1)
                noise = sums.sigma / UNIT
                move = rate * sums.release(exact) / UNIT / (curvature * counts[j] + noise)[:, None]
                moved = np.rint(np.clip(-move, -1.0, 1.0) * STEPS).astype(np.int64)
                shapes[j] += moved
                scores = scores + moved[place]
        return self._learnt(box, bins, counts, shapes) | {"classes_": classes}
