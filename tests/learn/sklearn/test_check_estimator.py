"""scikit-learn's own checks, all of them, with the exceptions that privacy asks for and the reason of each.

First as a user runs them: default arguments, ε = 5, and `expected_failed_checks`. Then without noise: μ is so large that the noise vanishes: then checks that compare two fits, or a fit with the truth, apply as they are.
The labels of the classifiers are taken from y in a subclass, because the checks come with labels of their own.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

from deniable.learn.sklearn import (
    PCA,
    AdditiveClassifier,
    AdditiveRegressor,
    GaussianNB,
    GridSearch,
    HuberRegressor,
    KMeans,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    QuantileRegressor,
    RandomForestClassifier,
    Ridge,
    StandardScaler,
    expected_failed_checks,
)
from deniable.learn.sklearn.private_estimator import PrivateClassifier, PrivateRegressor
from tests.learn.sklearn.cases import (
    LabelledAdditive,
    LabelledBayes,
    LabelledForest,
    LabelledLogistic,
    LabelledSVC,
)

NO_NOISE = 1e12
EMPTY = {
    "check_estimators_empty_data_messages": "an error for an empty table would distinguish it from its neighbours",
}
TARGETS = {"check_supervised_y_no_nan": "a target that is no number is left out; an error would tell that it is there"}
LABELS = {
    **EMPTY,
    **TARGETS,
    "check_classifiers_regression_target": "labels are declared, and others are left out without an error",
}

SAID: dict[str, Any] = {"bounds": (-20, 20), "mu": NO_NOISE}
CASES: list[tuple[Any, dict[str, str]]] = [
    (LabelledLogistic(classes=[0, 1], **SAID), LABELS),
    (LabelledSVC(classes=[0, 1], **SAID), LABELS),
    (LabelledBayes(classes=[0, 1], **SAID), LABELS),
    (LabelledAdditive(classes=[0, 1], **SAID), LABELS),
    (LabelledForest(classes=[0, 1], n_estimators=30, **SAID), LABELS),
    (LinearRegression(target_bounds=(-100, 100), **SAID), EMPTY | TARGETS),
    (Ridge(target_bounds=(-100, 100), **SAID), EMPTY | TARGETS),
    (HuberRegressor(target_bounds=(-100, 100), **SAID), EMPTY | TARGETS),
    (QuantileRegressor(target_bounds=(-100, 100), **SAID), EMPTY | TARGETS),
    (AdditiveRegressor(target_bounds=(-100, 100), **SAID), EMPTY | TARGETS),
    (StandardScaler(**SAID), EMPTY),
    (PCA(**SAID), EMPTY),
    (KMeans(n_clusters=3, steps=2, random_state=0, **SAID), EMPTY),
    (GridSearch(LabelledBayes(classes=[0, 1], bounds=(-20, 20)), {"floor": [1e-6]}, mu=NO_NOISE, folds=2), LABELS),
    (
        GridSearch(LinearRegression(bounds=(-20, 20), target_bounds=(-100, 100)), {}, mu=NO_NOISE, folds=2),
        EMPTY | TARGETS,
    ),
]


SLOW = (LabelledAdditive, LabelledForest, AdditiveRegressor, KMeans, GridSearch)


@pytest.mark.parametrize(
    ("model", "exceptions"),
    [
        pytest.param(
            *case,
            id=f"{type(case[0]).__name__}-{number}",
            marks=[pytest.mark.slow] if isinstance(case[0], SLOW) else [],
        )
        for number, case in enumerate(CASES)
    ],
)
def test_scikit_learn_finds_no_fault(model: Any, exceptions: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    # Without noise, scores must be good: scikit-learn shall look at them.
    monkeypatch.delattr(PrivateClassifier, "__sklearn_tags__")
    monkeypatch.delattr(PrivateRegressor, "__sklearn_tags__")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks warn on purpose, to see who passes warnings on
        results = check_estimator(model, expected_failed_checks=exceptions, on_fail=None, on_skip=None)
    assert len(results) > 40
    assert [f"{each['check_name']}: {each['exception']!r}" for each in results if each["status"] == "failed"] == []
    # Every exception is one: a check that passes by now must not stay excused.
    assert {each["check_name"] for each in results if each["status"] == "xfail"} == set(exceptions)


LEVEL: dict[str, Any] = {"epsilon": 5.0, "delta": 1e-6}
TWO: dict[str, Any] = {"classes": [0, 1], "bounds": (-20, 20)}
TARGET: dict[str, Any] = {"bounds": (-20, 20), "target_bounds": (-100, 100)}
USERS: list[Any] = [
    *(made(**TWO, **LEVEL) for made in (LogisticRegression, LinearSVC, GaussianNB)),
    *(made(**TARGET, **LEVEL) for made in (LinearRegression, Ridge, HuberRegressor, QuantileRegressor)),
    *(made(bounds=(-20, 20), **LEVEL) for made in (StandardScaler, PCA)),
    KMeans(n_clusters=3, bounds=(-20, 20), **LEVEL),
    AdditiveClassifier(**TWO, **LEVEL),
    AdditiveRegressor(**TARGET, **LEVEL),
    RandomForestClassifier(**TWO, **LEVEL),
    GridSearch(LogisticRegression(**TWO), {"C": [0.1, 1.0]}, **LEVEL),
]


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(
            model,
            id=type(model).__name__,
            marks=[pytest.mark.slow] if isinstance(model, (RandomForestClassifier, *SLOW)) else [],
        )
        for model in USERS
    ],
)
def test_as_a_user_runs_them_only_expected_checks_fail(model: Any) -> None:
    """Every expected failure is a check that scikit-learn makes, and has a reason; how many there are is on the page."""
    expected = expected_failed_checks(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(model, expected_failed_checks=expected, on_fail=None, on_skip=None)
    assert [f"{each['check_name']}: {each['exception']!r}" for each in results if each["status"] == "failed"] == []
    assert set(expected) <= {each["check_name"] for each in results}
    assert all(expected.values())
    assert "check_estimators_empty_data_messages" in {
        each["check_name"] for each in results if each["status"] == "xfail"
    }
    most = {"transformer": 2, "clusterer": 2, "regressor": 6, "classifier": 8}
    assert len(expected) == most[get_tags(model).estimator_type or "transformer"]
