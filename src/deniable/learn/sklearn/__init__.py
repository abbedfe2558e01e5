"""Private estimators for scikit-learn: what they learn is differentially private, and they say how much.

>>> from deniable.learn.sklearn import LogisticRegression
>>> model = LogisticRegression(classes=[0, 1], bounds=(0, 100), epsilon=1.0, delta=1e-6)
>>> model.fit([[20.0], [70.0]] * 500, [0, 1] * 500).guarantee_.unit
Unit.row()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.doors import lazy_door
from deniable.errors import require

if TYPE_CHECKING:
    from deniable.learn.sklearn.additive import AdditiveClassifier, AdditiveRegressor
    from deniable.learn.sklearn.linear import (
        HuberRegressor,
        LinearRegression,
        LinearSVC,
        LogisticRegression,
        QuantileRegressor,
        Ridge,
    )
    from deniable.learn.sklearn.moments import GaussianNB, StandardScaler
    from deniable.learn.sklearn.rows import Bought
    from deniable.learn.sklearn.search import GridSearch, guarantee
    from deniable.learn.sklearn.unsupervised import PCA, KMeans

_HOMES = {
    "AdditiveClassifier": "additive",
    "AdditiveRegressor": "additive",
    "Bought": "rows",
    "GaussianNB": "moments",
    "GridSearch": "search",
    "HuberRegressor": "linear",
    "KMeans": "unsupervised",
    "LinearRegression": "linear",
    "LinearSVC": "linear",
    "LogisticRegression": "linear",
    "PCA": "unsupervised",
    "QuantileRegressor": "linear",
    "Ridge": "linear",
    "StandardScaler": "moments",
    "guarantee": "search",
}

__all__ = [
    "PCA",
    "AdditiveClassifier",
    "AdditiveRegressor",
    "Bought",
    "GaussianNB",
    "GridSearch",
    "HuberRegressor",
    "KMeans",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "QuantileRegressor",
    "Ridge",
    "StandardScaler",
    "guarantee",
]

require("sklearn", "sklearn")

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_door(__name__, _HOMES)
