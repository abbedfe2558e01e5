"""Means and variances of features, overall or by class: a scaler, and naive Bayes.

With v = (x − low)/(high − low), a row adds three numbers for each feature: (1−v)², 2v(1−v) and v². They are not
negative and add up to 1, so their L2 norm is at most 1, and √d for d features together. Let B₀, B₁, B₂ be their sums.
Then n = B₀ + B₁ + B₂, Σv = B₁/2 + B₂ and Σv² = B₂. Each feature gives an estimate of n, and their mean has less noise.
(The mean and the square of each feature and one count would have length √(1 + 2d).)
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final, Self, final

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin

from deniable.curves import curve_arguments
from deniable.learn.sklearn.fit_budget import Ints, Purse
from deniable.learn.sklearn.integer_rows import STEPS, Box, Floats
from deniable.learn.sklearn.linear_models import left
from deniable.learn.sklearn.private_estimator import Private, PrivateClassifier, stores_arguments

HALF: Final = STEPS // 2
"""v = 1, in steps: its square, summed over 2³⁰ rows, fits into 64 bits."""


def released(
    purse: Purse, X: Floats, groups: Ints, box: Box, *, count: int, share: Fraction
) -> tuple[Floats, Floats, float]:
    """The noisy number of rows in each of `count` groups, their noisy moments (group, feature, 3), and the standard
    deviation of the noise on each moment, all in rows. Each row is in one group.
    """
    # Map −STEPS…STEPS to 0…HALF, row by row.
    up = ((box.steps(X).astype(np.int64) + STEPS) // (2 * STEPS // HALF)).astype(np.int64)
    down = HALF - up
    parts = np.stack([down * down, 2 * up * down, up * up], axis=2)
    exact = np.zeros((count, X.shape[1], 3), dtype=np.int64)
    for group in range(count):
        exact[group] = parts[groups == group].sum(axis=0)
    sums = purse.sums(share=share, square=X.shape[1] * HALF**4, size=exact.size)
    noisy = sums.release(exact) / HALF**2
    return noisy.sum(axis=2).mean(axis=1), noisy, sums.sigma / HALF**2


def mean_and_variance(moments: Floats, box: Box, *, most: float = 0.25) -> tuple[Floats, Floats]:
    """Mean and variance from noisy moments (..., feature, 3), clipped to values that are possible within the bounds."""
    rows = np.maximum(moments.sum(axis=-1), 1.0)
    mean = np.clip((moments[..., 1] / 2 + moments[..., 2]) / rows, 0.0, 1.0)
    variance = np.clip(moments[..., 2] / rows - mean**2, 0.0, most)
    width = box.high - box.low
    return box.low + mean * width, variance * width**2


def errors_of(moments: Floats, sigma: float) -> tuple[Floats, Floats]:
    """The standard deviations of the noise in each mean and variance, for bounds of width 1, to first order.

    With n = B₀ + B₁ + B₂, the mean v = (B₁/2 + B₂)/n has the derivatives (−v, ½ − v, 1 − v)/n, and the mean square
    q = B₂/n has (−q, −q, 1 − q)/n; the variance is q − v².
    """
    rows = np.maximum(moments.sum(axis=-1), 1.0)
    mean = np.clip((moments[..., 1] / 2 + moments[..., 2]) / rows, 0.0, 1.0)
    square = np.clip(moments[..., 2] / rows, 0.0, 1.0)
    by_mean = np.stack([-mean, 0.5 - mean, 1 - mean])
    by_variance = np.stack([-square, -square, 1 - square]) - 2 * mean * by_mean
    scale = sigma / rows
    return scale * np.sqrt((by_mean**2).sum(axis=0)), scale * np.sqrt((by_variance**2).sum(axis=0))


def drawn_to(value: Floats, error: Floats, *, middle: Floats, spread: Floats) -> Floats:
    """The posterior mean of a value with a normal error of standard deviation `error`, for a normal prior with mean
    `middle` and standard deviation `spread`. This is post-processing; it matters only if the noise is about as large as
    `spread`.
    """
    weight = spread**2 / (spread**2 + error**2)
    return np.asarray(middle + weight * (value - middle))


@final
class StandardScaler(OneToOneFeatureMixin, TransformerMixin, Private):
    """Subtracts the noisy mean of each feature and divides by its noisy standard deviation.

    For all neighbours D, D′ that differ by one row: the row adds a vector of length at most √d to the sums from which
    means and variances are computed. These sums, which include the number of rows, are released once with Gaussian
    noise.

    A standard deviation is at least a thousandth of the width of the bounds. Where the noise is large, means are shrunk
    towards the middle of the bounds, and variances towards the variance of a uniform distribution. `transform` does not
    clamp new rows. `mean_error_` is the standard deviation of the noise in each mean. `fit` issues a
    `NoiseHidesWarning` if it exceeds half of a feature's standard deviation, or an eighth of the width of its bounds.
    This uses only released values, so it costs no budget.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(20, 80, (5000, 1))
    >>> scaler = StandardScaler(bounds=(0, 100), epsilon=1.0, delta=1e-6).fit(X)
    >>> bool(abs(scaler.mean_[0] - 50) < 2), bool(abs(scaler.scale_[0] - 17.3) < 3)
    (True, True)
    """

    bounds: Any
    with_mean: Any
    with_std: Any
    mean_: Floats
    var_: Floats
    scale_: Floats
    mean_error_: Floats
    hidden_: Ints
    """The features whose mean is hidden by the noise."""

    @stores_arguments
    def __init__(
        self,
        *,
        bounds: Any,
        epsilon: Any = None,
        delta: Any = None,
        mu: Any = None,
        session: Any = None,
        with_mean: Any = True,
        with_std: Any = True,
    ) -> None: ...

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from rows `X`."""
        return self._pay(self._table(X, reset=True))

    def _hidden(self) -> str:
        many = len(self.hidden_)
        return f"the means of {many} of {len(self.mean_)} features (see hidden_)" if many else ""

    def _learn(self, purse: Purse, *data: Any) -> dict[str, Any]:
        [X] = data
        box = self._box(self.bounds, X, purse)
        everybody = np.zeros(len(X), dtype=np.int64)
        _, moments, sigma = released(purse, X, everybody, box, count=1, share=left(self.bounds))
        mean, variance = mean_and_variance(moments[0], box)
        width = box.high - box.low
        error, variance_error = errors_of(moments[0], sigma)
        error = error * width
        mean = drawn_to(mean, error, middle=box.middle, spread=width / 4)
        variance = drawn_to(variance, variance_error * width**2, middle=width**2 / 12, spread=width**2 / 12)
        scale = np.maximum(np.sqrt(variance), width / 1000)
        return {
            "mean_": mean,
            "var_": variance,
            "scale_": scale,
            "mean_error_": error,
            "hidden_": np.flatnonzero(error > np.minimum(scale / 2, width / 8)),
        }

    def transform(self, X: Any) -> Floats:
        """Rows as distances from the mean in standard deviations."""
        rows = self._asked(X)
        with np.errstate(all="ignore"):  # a warning is an output too, so no row may cause one
            return np.asarray((rows - self._mean) / self._scale)

    def inverse_transform(self, X: Any) -> Floats:
        """The inverse of `transform`."""
        rows = self._asked(X)
        with np.errstate(all="ignore"):
            return np.asarray(rows * self._scale + self._mean)

    @property
    def _mean(self) -> Any:
        return self.mean_ if self.with_mean else 0.0

    @property
    def _scale(self) -> Any:
        return self.scale_ if self.with_std else 1.0


@final
class GaussianNB(PrivateClassifier):
    """Naive Bayes: in each class, features are normal with their own means and variances, and independent.

    For all neighbours D, D′ that differ by one row: the row adds a vector of length at most √d to the sums of its own
    class. The sums of all classes are released once with Gaussian noise. They include class counts, so neither the
    number of rows nor the size of a class need be public.

    The count of a class is at least 1. `floor` is the smallest variance, as a fraction of the squared width of the
    bounds.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 4000)
    >>> X = rng.normal(y[:, None] * 2, 1, (4000, 2))
    >>> GaussianNB(classes=[0, 1], bounds=(-4, 6), epsilon=1.0, delta=1e-6).fit(X, y).score(X, y) > 0.85
    True
    """

    bounds: Any
    floor: Any
    theta_: Floats
    """Means, with a row for each class."""
    var_: Floats
    class_count_: Floats
    class_prior_: Floats
    box_: Box

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
        floor: Any = 1e-2,
    ) -> None: ...

    def _learn(self, purse: Purse, *data: Any) -> dict[str, Any]:
        X, y, classes = data
        least = curve_arguments.positive("floor", self.floor)
        box = self._box(self.bounds, X, purse)
        rows, moments, _ = released(purse, X, y, box, count=len(classes), share=left(self.bounds))
        mean, variance = mean_and_variance(moments, box)
        counts = np.maximum(rows, 1.0)
        return {
            "theta_": mean,
            "var_": np.maximum(variance, least * (box.high - box.low) ** 2),
            "class_count_": counts,
            "class_prior_": counts / counts.sum(),
            "classes_": classes,
            "box_": box,
        }

    def predict_joint_log_proba(self, X: Any) -> Floats:
        """The logarithm of the joint density of each row and class."""
        asked = self._asked(X)
        rows = self.box_.clamp(asked)
        found = np.tile(np.log(self.class_prior_) - 0.5 * np.log(2 * np.pi * self.var_).sum(axis=1), (len(rows), 1))
        for j in range(rows.shape[1]):
            found -= 0.5 * (rows[:, j : j + 1] - self.theta_[:, j]) ** 2 / self.var_[:, j]
        return found

    def predict(self, X: Any) -> Any:
        """The most likely label."""
        likely = self.predict_joint_log_proba(X).argmax(axis=1)
        return self.classes_[likely]

    def predict_log_proba(self, X: Any) -> Floats:
        """The logarithm of the probability of each class."""
        joint = self.predict_joint_log_proba(X)
        most = joint.max(axis=1, keepdims=True)
        return np.asarray(joint - most - np.log(np.exp(joint - most).sum(axis=1, keepdims=True)))

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class."""
        return np.exp(self.predict_log_proba(X))
