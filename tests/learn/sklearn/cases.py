"""Small estimators of every kind, and the harness that replays a fit on a neighbour.

An estimator sees its rows through `Purse.sums` only. `Recorder` lets a fit run with real noise and writes down what was
released; `Replayer` runs the same fit on other rows, hands it the answers of the first, and writes down the exact sums
that it would have released. What two neighbours' sums differ by, given the same past, is the sensitivity itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from deniable.learn.sklearn import (
    PCA,
    AdditiveClassifier,
    AdditiveRegressor,
    GaussianNB,
    HuberRegressor,
    KMeans,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    QuantileRegressor,
    RandomForestClassifier,
    Ridge,
    StandardScaler,
)
from deniable.learn.sklearn.fit_budget import GaussianPurse, Ints, PaidSums, Purse
from deniable.learn.sklearn.private_estimator import Private

TWO: dict[str, Any] = {"classes": [0, 1], "bounds": (-1, 1)}
MANY: dict[str, Any] = {"classes": [0, 1, 2], "bounds": (-1, 1)}
TARGET: dict[str, Any] = {"bounds": (-1, 1), "target_bounds": (-1, 1)}
SMALL: dict[str, Any] = {"n_estimators": 5, "random_state": 0}

MODELS: dict[str, Callable[..., Any]] = {
    "logistic": lambda **said: LogisticRegression(**TWO, steps=3, **said),
    "multinomial": lambda **said: LogisticRegression(**MANY, steps=3, **said),
    "shortened": lambda **said: LogisticRegression(**TWO, steps=3, row_norm=1.2, **said),
    "svc": lambda **said: LinearSVC(**TWO, steps=3, **said),
    "many svc": lambda **said: LinearSVC(**MANY, steps=3, **said),
    "bayes": lambda **said: GaussianNB(**MANY, **said),
    "additive": lambda **said: AdditiveClassifier(**TWO, epochs=2, grid=8, **said),
    "additive of many": lambda **said: AdditiveClassifier(**MANY, epochs=2, grid=8, **said),
    "forest": lambda **said: RandomForestClassifier(**TWO, **SMALL, steps=2, max_depth=2, **said),
    "forest of many": lambda **said: RandomForestClassifier(**MANY, **SMALL, steps=2, **said),
    "squares": lambda **said: LinearRegression(**TARGET, **said),
    "ridge": lambda **said: Ridge(**TARGET, **said),
    "shortened squares": lambda **said: LinearRegression(**TARGET, row_norm=1.2, **said),
    "huber": lambda **said: HuberRegressor(**TARGET, steps=3, **said),
    "quantile": lambda **said: QuantileRegressor(**TARGET, quantile=0.8, steps=3, **said),
    "additive regressor": lambda **said: AdditiveRegressor(**TARGET, epochs=3, grid=8, **said),
    "scaler": lambda **said: StandardScaler(bounds=(-1, 1), **said),
    "components": lambda **said: PCA(bounds=(-1, 1), **said),
    "clusters": lambda **said: KMeans(n_clusters=2, bounds=(-1, 1), steps=2, random_state=0, **said),
}


def fitted(model: Private, X: Any, y: Any) -> Any:
    """`fit`, whether or not it looks at y."""
    return model.fit(X, y)


def data_of(model: Private, X: Any, y: Any) -> tuple[Any, ...]:
    """What `fit` itself hands to `_learn`."""
    handed: list[Any] = []

    def keep(*rows: Any, public: tuple[Any, ...] = ()) -> Private:
        handed.extend((*rows, *public))
        return model

    model._pay = keep
    try:
        fitted(model, X, y)
    finally:
        del model._pay
    return tuple(handed)


@dataclass
class Release:
    """One release: what was asked for, and what came out."""

    square: int
    sigma: float
    answer: Ints


@dataclass
class Recorder(Purse):
    """A purse with real noise that writes down every release."""

    mu: float
    width: float = 1.0
    """The noise is this many times as wide as it should be: for planted bugs."""
    log: list[Release] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.inner = GaussianPurse(self.mu)

    def sums(self, *, share: Fraction, square: int, size: int, times: int = 1) -> PaidSums:
        inner = self.inner.sums(share=share, square=square, size=size, times=times)
        if self.width != 1:
            narrower = max(1, int(square * self.width**2))
            inner = GaussianPurse(self.mu).sums(share=share, square=narrower, size=size, times=times)
        return _Recorded(inner, square, self.log)

    def level(self, *, share: Fraction) -> float:
        return self.inner.level(share=share)


class _Recorded(PaidSums):
    def __init__(self, inner: PaidSums, square: int, log: list[Release]) -> None:
        self.inner, self.square, self.log, self.sigma = inner, square, log, inner.sigma

    def release(self, totals: Ints) -> Ints:
        answer = self.inner.release(totals)
        self.log.append(Release(self.square, self.sigma, answer))
        return answer


@dataclass
class Replayer(Purse):
    """A purse that gives the answers of another run, and writes down the exact sums of this one."""

    log: list[Release]
    totals: list[Ints] = field(default_factory=list)

    def sums(self, *, share: Fraction, square: int, size: int, times: int = 1) -> PaidSums:
        return _Replayed(self, square)

    def level(self, *, share: Fraction) -> float:
        raise AssertionError("only sums can be replayed")


class _Replayed(PaidSums):
    def __init__(self, purse: Replayer, square: int) -> None:
        self.purse = purse
        self.expected = square
        self.sigma = purse.log[len(purse.totals)].sigma

    def release(self, totals: Ints) -> Ints:
        release = self.purse.log[len(self.purse.totals)]
        # What is asked for depends on the answers so far only, never on the rows.
        assert release.square == self.expected
        assert release.answer.shape == totals.shape
        self.purse.totals.append(totals.copy())
        return release.answer


def replayed(model: Private, log: list[Release], data: tuple[Any, ...]) -> list[Ints]:
    """The exact sums of a fit to this data, given the answers of another."""
    purse = Replayer(log)
    model._learn(purse, *data)
    assert len(purse.totals) == len(log)
    return purse.totals


def squared(one: Ints, other: Ints) -> int:
    """The squared distance of two vectors of whole numbers, exactly."""
    return sum(int(d) ** 2 for d in (one.astype(object) - other.astype(object)).ravel())


def table(rows: int, features: int, seed: int) -> tuple[Any, Any]:
    """Rows that are partly beyond the bounds, missing or infinite, and targets that suit every estimator here."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.5, 1.5, (rows, features))
    X[rng.random(X.shape) < 0.1] = np.nan
    X[rng.random(X.shape) < 0.05] = np.inf
    return X, rng.integers(0, 3, rows)


class _PublicLabels:
    """The labels of y are taken for public, as scikit-learn's checks have it; for these tests only."""

    def fit(self, X: Any, y: Any) -> Any:
        self._found = np.unique(np.asarray(np.asarray(y).tolist()))
        return super().fit(X, y)

    def _labels(self) -> Any:
        more = ["none"] if self._found.dtype.kind in "UO" else [9]
        return self._found if len(self._found) > 1 else np.append(self._found, more)


class LabelledLogistic(_PublicLabels, LogisticRegression):
    __init__ = LogisticRegression.__init__


class LabelledSVC(_PublicLabels, LinearSVC):
    __init__ = LinearSVC.__init__


class LabelledBayes(_PublicLabels, GaussianNB):
    __init__ = GaussianNB.__init__


class LabelledAdditive(_PublicLabels, AdditiveClassifier):
    __init__ = AdditiveClassifier.__init__


class LabelledForest(_PublicLabels, RandomForestClassifier):
    __init__ = RandomForestClassifier.__init__
