"""Private estimators for scikit-learn. Everything that `fit` learns is differentially private; see `guarantee_`.

>>> from deniable.learn.sklearn import LogisticRegression
>>> model = LogisticRegression(classes=[0, 1], bounds=(0, 100), epsilon=1.0, delta=1e-6)
>>> model.fit([[20.0], [70.0]] * 500, [0, 1] * 500).guarantee_.unit
Unit.row()

    private_estimator   the base classes: payment, declared labels and bounds, a rule for every possible row
    fit_budget          the budget of one `fit`, and the only access to rows: noisy sums of integers
    input_tables        tables to float64; `integer_rows` carries rows to the integers that are summed
    noisy_newton        linear scores, fitted by noisy Newton steps
    linear_models, feature_moments, additive_models, random_forest, unsupervised, grid_search      the estimators
    estimator_checks    the checks of scikit-learn that privacy does not allow, with reasons
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.doors import lazy_door
from deniable.errors import require

if TYPE_CHECKING:
    from deniable.learn.sklearn.additive_models import AdditiveClassifier, AdditiveRegressor
    from deniable.learn.sklearn.estimator_checks import expected_failed_checks
    from deniable.learn.sklearn.feature_moments import GaussianNB, StandardScaler
    from deniable.learn.sklearn.grid_search import GridSearch, guarantee
    from deniable.learn.sklearn.integer_rows import Bought
    from deniable.learn.sklearn.linear_models import (
        HuberRegressor,
        LinearRegression,
        LinearSVC,
        LogisticRegression,
        QuantileRegressor,
        Ridge,
    )
    from deniable.learn.sklearn.random_forest import RandomForestClassifier
    from deniable.learn.sklearn.unsupervised import PCA, KMeans

_HOMES = {
    "AdditiveClassifier": "additive_models",
    "AdditiveRegressor": "additive_models",
    "Bought": "integer_rows",
    "GaussianNB": "feature_moments",
    "GridSearch": "grid_search",
    "HuberRegressor": "linear_models",
    "KMeans": "unsupervised",
    "LinearRegression": "linear_models",
    "LinearSVC": "linear_models",
    "LogisticRegression": "linear_models",
    "PCA": "unsupervised",
    "QuantileRegressor": "linear_models",
    "RandomForestClassifier": "random_forest",
    "Ridge": "linear_models",
    "StandardScaler": "feature_moments",
    "expected_failed_checks": "estimator_checks",
    "guarantee": "grid_search",
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
    "RandomForestClassifier",
    "Ridge",
    "StandardScaler",
    "expected_failed_checks",
    "guarantee",
]

require("sklearn", "sklearn")

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_door(__name__, _HOMES)
