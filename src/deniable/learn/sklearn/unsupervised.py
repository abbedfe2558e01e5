"""Principal components and clusters from noisy sums."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final, Self, final

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state

from deniable.curves import curve_arguments
from deniable.errors import InvalidParameter
from deniable.learn.sklearn.fit_budget import Ints, Purse
from deniable.learn.sklearn.integer_rows import STEPS, Box, Floats, Gram, longest, products, shrunk, with_one
from deniable.learn.sklearn.linear_models import left
from deniable.learn.sklearn.private_estimator import Private, stores_arguments

SEEDS: Final = 8
"""Initial centres per requested cluster, before they are merged."""
STARTS: Final = 4
ROUNDS: Final = 10
"""Restarts, and rounds each, of the k-means that merges the noisy averages of initial centres."""
HIDDEN: Final = 0.25
"""A centre with a larger error is hidden by the noise: in units of half the width of the bounds."""
SEED_SHARE: Final = Fraction(1, 4)
"""The share of μ² for the initial centres."""


@final
class PCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Private):
    """Principal components of the noisy covariance.

    For all neighbours D, D′ that differ by one row: the row u = (1, features), each scaled to [−1, 1], adds the upper
    triangle of uuᵀ, a vector of length √((‖u‖⁴ + Σu_i⁴)/2). That matrix is released once with Gaussian noise. Its
    corner is the noisy number of rows, its first column their noisy sum.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(0, 1, (5000, 1)) * [2, 1, 0] + rng.normal(0, 0.1, (5000, 3))
    >>> model = PCA(n_components=1, bounds=(-8, 8), epsilon=1.0, delta=1e-6).fit(X)
    >>> bool(abs(model.components_[0] @ [2, 1, 0]) > 2.1)
    True

    Source: Dwork, Talwar, Thakurta & Zhang (2014), "Analyze Gauss"; here the mean is part of the released matrix.
    """

    bounds: Any
    n_components: Any
    row_norm: Any
    components_: Floats
    explained_variance_: Floats
    explained_variance_ratio_: Floats
    mean_: Floats
    n_components_: int
    box_: Box

    @stores_arguments
    def __init__(
        self,
        *,
        bounds: Any,
        epsilon: Any = None,
        delta: Any = None,
        mu: Any = None,
        session: Any = None,
        n_components: Any = None,
        row_norm: Any = None,
    ) -> None: ...

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from rows `X`."""
        return self._pay(self._table(X, reset=True))

    def _learn(self, purse: Purse, *data: Any) -> dict[str, Any]:
        [X] = data
        features = X.shape[1]
        kept = features if self.n_components is None else curve_arguments.integer("n_components", self.n_components, 1)
        if kept > features:
            raise InvalidParameter("n_components", kept, f"must be at most the number of features, {features}")
        box = self._box(self.bounds, X, purse)
        square = longest(self.row_norm, features + 1)
        rows = shrunk(with_one(box.steps(X)), square)
        gram = Gram.release(rows, purse, share=left(self.bounds), square=square)
        count = max(1.0, float(gram.matrix[0, 0]))
        mean = np.clip(gram.matrix[0, 1:] / count, -1.0, 1.0)
        covariance = (gram.matrix[1:, 1:] / count - np.outer(mean, mean)) * np.outer(box.half, box.half)
        variances, vectors = np.linalg.eigh(covariance)
        order = np.argsort(variances)[::-1]
        variances, vectors = np.maximum(variances[order], 0.0), vectors[:, order].T
        # The sign of a direction is free; as in scikit-learn, its largest entry is positive.
        largest = vectors[np.arange(features), np.abs(vectors).argmax(axis=1)]
        vectors = vectors * np.where(largest < 0, -1.0, 1.0)[:, None]
        total = float(variances.sum())
        return {
            "components_": vectors[:kept],
            "explained_variance_": variances[:kept],
            "explained_variance_ratio_": variances[:kept] / total if total > 0 else np.zeros(kept),
            "mean_": box.middle + mean * box.half,
            "n_components_": kept,
            "box_": box,
        }

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def transform(self, X: Any) -> Floats:
        """Coordinates of the rows along the components."""
        rows = self._asked(X)
        centred = self.box_.clamp(rows) - self.mean_
        found = np.zeros((len(centred), len(self.components_)))
        for j in range(centred.shape[1]):
            found += centred[:, j : j + 1] * self.components_[:, j]
        return found

    def inverse_transform(self, X: Any) -> Floats:
        """Rows from their coordinates along the components."""
        return np.asarray(np.asarray(X, dtype=np.float64) @ self.components_ + self.mean_)


@final
class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Private):
    """Cluster centres by noisy averages (Lloyd's algorithm), with initial centres from noisy averages too.

    For all neighbours D, D′ that differ by one row: in each round the row adds u = (1, features) to the sums of its
    nearest centre, so all sums together change by at most ‖u‖ ≤ √(d + 1). The number of rows is not used.

    The first round has 8 times as many centres, at random between the bounds (`random_state` affects only these, not
    the noise). Their noisy averages, weighted by their noisy counts, are merged into `n_clusters`.

    `fit` issues a `NoiseHidesWarning` if the noise in the coordinates of a centre, by its noisy count, has a standard
    deviation of more than an eighth of the width of the bounds. This follows from released values, so it costs nothing.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(rng.integers(0, 2, (4000, 1)) * 6, 1, (4000, 2))
    >>> model = KMeans(n_clusters=2, bounds=(-5, 11), epsilon=1.0, delta=1e-6, random_state=0).fit(X)
    >>> bool(np.abs(np.sort(model.cluster_centers_[:, 0]) - [0, 6]).max() < 1)
    True

    Source: Blum, Dwork, McSherry & Nissim (2005), SuLQ k-means; the first centres are ours.
    """

    n_clusters: Any
    bounds: Any
    steps: Any
    random_state: Any
    cluster_centers_: Floats
    center_errors_: Floats
    """The standard deviation of the last round's noise in each coordinate of each centre, for a known count."""
    hidden_: Ints
    """The centres that are hidden by the noise."""
    box_: Box

    @stores_arguments
    def __init__(
        self,
        *,
        n_clusters: Any,
        bounds: Any,
        epsilon: Any = None,
        delta: Any = None,
        mu: Any = None,
        session: Any = None,
        steps: Any = 5,
        random_state: Any = None,
    ) -> None: ...

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from rows `X`."""
        return self._pay(self._table(X, reset=True))

    def _hidden(self) -> str:
        many = len(self.hidden_)
        return f"{many} of {len(self.cluster_centers_)} centres (see hidden_)" if many else ""

    def fit_predict(self, X: Any, y: Any = None) -> Ints:
        """Learn from rows `X`, and return the number of each row's centre. These numbers are not private."""
        return self.fit(X).predict(X)

    def _learn(self, purse: Purse, *data: Any) -> dict[str, Any]:
        [X] = data
        clusters, steps = (
            curve_arguments.integer("n_clusters", self.n_clusters, 1),
            curve_arguments.integer("steps", self.steps, 1),
        )
        box, share = self._box(self.bounds, X, purse), left(self.bounds)
        rows = with_one(box.steps(X))
        width = rows.shape[1]
        random = check_random_state(self.random_state)
        seeds = np.rint(random.uniform(-STEPS, STEPS, (SEEDS * clusters, width - 1)))
        first = purse.sums(share=share * SEED_SHARE, square=width * STEPS**2, size=len(seeds) * width)
        sums = first.release(sums_by_centre(rows, seeds)) / STEPS
        centres = _joined(sums, clusters, random)
        later = purse.sums(share=share * (1 - SEED_SHARE), square=width * STEPS**2, size=clusters * width, times=steps)
        for _ in range(steps):
            sums = later.release(sums_by_centre(rows, centres)) / STEPS
            # A centre with no more rows than noise stays where it is.
            seen = sums[:, 0] > later.sigma / STEPS
            moved = np.clip(sums[:, 1:] / np.maximum(sums[:, :1], 1.0), -1.0, 1.0) * STEPS
            centres = np.rint(np.where(seen[:, None], moved, centres))
        error = later.sigma / STEPS / np.maximum(sums[:, 0], 1.0)
        return {
            "cluster_centers_": box.middle + centres / STEPS * box.half,
            "center_errors_": error[:, None] * box.half,
            "hidden_": np.flatnonzero(error > HIDDEN),
            "box_": box,
        }

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def __sklearn_tags__(self) -> Any:
        # Not a ClusterMixin, whose contract is `labels_`: the label of every training row.
        tags = super().__sklearn_tags__()
        tags.estimator_type = "clusterer"
        tags.transformer_tags.preserves_dtype = []
        return tags

    @property
    def labels_(self) -> Any:
        """Always raises: scikit-learn stores the label of every training row here, which would not be private."""
        raise AttributeError("labels of training rows are private and are not kept; predict(X) computes them")

    def transform(self, X: Any) -> Floats:
        """The distance of each row from each centre."""
        asked = self._asked(X)
        rows = self.box_.clamp(asked)
        found = np.zeros((len(rows), len(self.cluster_centers_)))
        for j in range(rows.shape[1]):
            found += (rows[:, j : j + 1] - self.cluster_centers_[:, j]) ** 2
        return np.sqrt(found)

    def predict(self, X: Any) -> Ints:
        """The number of the nearest centre."""
        return np.asarray(self.transform(X).argmin(axis=1))


def sums_by_centre(rows: Floats, centres: Floats) -> Ints:
    """For each centre, the sum in steps of the rows nearest to it. Rows have a constant in front.

    ‖c‖² − 2u·c is an exact integer, so the nearest centre of a row depends on that row alone.
    """
    away = (centres**2).sum(axis=1) - 2 * (rows[:, 1:] @ centres.T)
    nearest = away.argmin(axis=1)
    chosen = (nearest[:, None] == np.arange(len(centres))).astype(np.float64)
    return products(chosen, rows, largest=STEPS)


def _joined(sums: Floats, clusters: int, random: Any) -> Floats:
    """Merge noisy sums into `clusters` centres, by weighted k-means of their averages. This is post-processing."""
    weights = np.maximum(sums[:, 0], 0.0)
    points = np.clip(sums[:, 1:] / np.maximum(sums[:, :1], 1.0), -1.0, 1.0) * STEPS
    best, least = points[:clusters], np.inf
    for _ in range(STARTS):
        centres = points[_far_apart(points, weights, clusters, random)]
        for _ in range(ROUNDS):
            share = weights[:, None] * (_away(points, centres).argmin(axis=1)[:, None] == np.arange(clusters))
            held = share.sum(axis=0)[:, None]
            centres = np.where(held > 0, share.T @ points / np.maximum(held, 1e-300), centres)
        cost = float((weights * _away(points, centres).min(axis=1)).sum())
        if cost < least:
            best, least = centres, cost
    return np.rint(best)


def _away(points: Floats, centres: Floats) -> Floats:
    """The squared distance of each point from each centre."""
    found = (points**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1) - 2 * (points @ centres.T)
    return np.asarray(np.maximum(found, 0.0))


def _far_apart(points: Floats, weights: Floats, count: int, random: Any) -> list[int]:
    """Indices of points drawn with probability ∝ weight × squared distance to those before (Arthur & Vassilvitskii
    2007).
    """
    chosen: list[int] = []
    away = np.ones(len(points))
    for number in range(count):
        chance = weights * away
        total = float(chance.sum())
        chance = chance / total if total > 0 else np.full(len(points), 1 / len(points))
        chosen.append(int(random.choice(len(points), p=chance)))
        latest = _away(points, points[chosen[-1:]])[:, 0]
        away = np.minimum(away, latest) if number else latest
    return chosen
