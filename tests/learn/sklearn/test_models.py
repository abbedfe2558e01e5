"""Without noise every estimator says what scikit-learn's says, or what the truth is; and with noise, nearly."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import decomposition, linear_model, naive_bayes, preprocessing
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

from deniable.errors import InvalidParameter, NoiseHidesWarning
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
    Ridge,
    StandardScaler,
)
from tests.wording import worded

NO_NOISE = 1e12
X = np.random.default_rng(7).normal(0, 1, (3000, 3)).clip(-4, 4)
LINE = X @ [1.0, -2.0, 0.5] + 0.3
BOX = {"bounds": (-4, 4)}


def test_logistic_regression_is_scikit_learns() -> None:
    rng = np.random.default_rng(1)
    y = rng.random(3000) < 1 / (1 + np.exp(-LINE))
    model = LogisticRegression(classes=[False, True], mu=NO_NOISE, steps=200, C=1e6, **BOX).fit(X, y)
    theirs = linear_model.LogisticRegression(C=1e9).fit(X, y)
    assert model.coef_ == pytest.approx(theirs.coef_, abs=0.02)
    assert model.intercept_ == pytest.approx(theirs.intercept_, abs=0.02)
    assert model.predict_proba(X) == pytest.approx(theirs.predict_proba(X), abs=0.01)
    assert model.predict_log_proba(X) == pytest.approx(np.log(model.predict_proba(X)))


def test_multinomial_regression_is_scikit_learns() -> None:
    rng = np.random.default_rng(2)
    y = (X @ [[1, 0, -1], [0, -1, 1], [2, -2, 0]] + rng.gumbel(0, 1, (3000, 3))).argmax(axis=1)
    model = LogisticRegression(classes=[0, 1, 2], mu=NO_NOISE, steps=400, C=1e6, **BOX).fit(X, y)
    theirs = linear_model.LogisticRegression(C=1e9).fit(X, y)
    assert model.predict_proba(X) == pytest.approx(theirs.predict_proba(X), abs=0.02)


def test_squares_are_scikit_learns() -> None:
    rng = np.random.default_rng(3)
    y = LINE + rng.normal(0, 1, 3000)
    said = {"target_bounds": (-20, 20), "mu": NO_NOISE, **BOX}
    theirs = linear_model.LinearRegression().fit(X, y)
    for model in (LinearRegression(**said), Ridge(alpha=0.0, **said)):
        assert model.fit(X, y).coef_ == pytest.approx(theirs.coef_, abs=1e-2)
        assert model.intercept_ == pytest.approx(theirs.intercept_, abs=1e-2)
    # Scaled to −1…1, a penalty alpha·‖w‖²/2 is scikit-learn's with the features divided by 4.
    heavy = Ridge(alpha=100.0, **said).fit(X, y)
    assert heavy.coef_ * 4 == pytest.approx(linear_model.Ridge(alpha=100.0).fit(X / 4, y).coef_, abs=1e-2)


def test_huber_and_quantile_regression_find_the_line() -> None:
    rng = np.random.default_rng(4)
    skewed = LINE + rng.exponential(1.0, 3000)
    said = {"target_bounds": (-20, 20), "mu": NO_NOISE, "steps": 300, **BOX}
    huber = HuberRegressor(corner=5.0, **said).fit(X, LINE)
    assert huber.coef_ == pytest.approx([1, -2, 0.5], abs=0.03)
    for q in (0.2, 0.8):
        model = QuantileRegressor(quantile=q, corner=0.02, **said).fit(X, skewed)
        assert model.coef_ == pytest.approx([1, -2, 0.5], abs=0.1)
        assert np.mean(skewed < model.predict(X)) == pytest.approx(q, abs=0.03)


@pytest.mark.parametrize("q", [0.5, 0.9])
def test_quantiles_come_near_their_share_as_the_estimator_is_made(q: float) -> None:
    """At ε = 1, by default arguments. From fit to fit the share of rows below varies by 0.0004 around 0.547 and 0.913,
    and the slope by 0.003 around 2.00 and 1.98: all lines are more than 25 of these away. With 16 steps, once the
    default, the slopes were 1.85 and 1.10.
    """
    rng = np.random.default_rng(0)
    rows = rng.uniform(0, 10, (20_000, 1))
    y = 2 * rows[:, 0] + rng.exponential(1.0, 20_000)
    model = QuantileRegressor(quantile=q, bounds=(0, 10), target_bounds=(0, 30), epsilon=1.0, delta=1e-6).fit(rows, y)
    assert np.mean(y <= model.predict(rows)) == pytest.approx(q, abs=0.05 + 0.05 * (q == 0.5))
    assert model.coef_ == pytest.approx([2.0], abs=0.1)


def test_a_support_vector_classifier_separates_what_can_be_separated() -> None:
    wide = np.abs(LINE) > 0.5
    model = LinearSVC(classes=[-1, 1], mu=NO_NOISE, C=100.0, steps=100, **BOX)
    assert model.fit(X[wide], np.sign(LINE[wide])).score(X[wide], np.sign(LINE[wide])) > 0.995


def test_moments_are_scikit_learns() -> None:
    rng = np.random.default_rng(5)
    theirs = preprocessing.StandardScaler().fit(X)
    model = StandardScaler(mu=NO_NOISE, **BOX).fit(X)
    assert model.mean_ == pytest.approx(theirs.mean_, abs=1e-3)
    assert model.scale_ == pytest.approx(theirs.scale_, abs=1e-3)
    assert model.inverse_transform(model.transform(X)) == pytest.approx(X)
    assert StandardScaler(mu=NO_NOISE, with_mean=False, with_std=False, **BOX).fit(X).transform(X) == pytest.approx(X)
    y = rng.integers(0, 3, 3000)
    bayes = GaussianNB(classes=[0, 1, 2], mu=NO_NOISE, floor=1e-9, **BOX).fit(X + y[:, None] / 2, y)
    public = naive_bayes.GaussianNB().fit((X + y[:, None] / 2).clip(-4, 4), y)
    assert bayes.theta_ == pytest.approx(public.theta_, abs=1e-3)
    assert bayes.var_ == pytest.approx(public.var_, abs=1e-3)
    assert bayes.class_prior_ == pytest.approx(public.class_prior_, abs=1e-3)
    assert bayes.predict_proba(X) == pytest.approx(public.predict_proba(X), abs=1e-2)


def test_components_are_scikit_learns() -> None:
    long = X * [3, 1, 0.3]
    model = PCA(n_components=2, bounds=(-12, 12), mu=NO_NOISE).fit(long)
    theirs = decomposition.PCA(n_components=2).fit(long)
    assert np.abs((model.components_ * theirs.components_).sum(axis=1)) == pytest.approx([1, 1], abs=1e-3)
    assert model.explained_variance_ == pytest.approx(theirs.explained_variance_, rel=1e-2)
    assert model.explained_variance_ratio_ == pytest.approx(theirs.explained_variance_ratio_, rel=1e-2)
    assert np.abs(model.inverse_transform(model.transform(long)) - long).max() < 1.5
    assert model.get_feature_names_out().tolist() == ["pca0", "pca1"]


def test_clusters_are_found() -> None:
    rng = np.random.default_rng(6)
    which = rng.integers(0, 4, 4000)
    rows = rng.normal(0, 0.4, (4000, 2)) + np.array([(-3, -3), (-3, 3), (3, -3), (3, 3)])[which]
    for level in (NO_NOISE, 0.5):
        model = KMeans(n_clusters=4, bounds=(-5, 5), mu=level, random_state=1).fit(rows)
        assert adjusted_rand_score(which, model.predict(rows)) > 0.95
    assert not hasattr(model, "labels_")
    assert KMeans(n_clusters=200, bounds=(-5, 5), mu=0.5, steps=1).fit(rows).cluster_centers_.shape == (200, 2)
    assert np.array_equal(model.transform(rows).argmin(axis=1), model.predict(rows))


def test_additive_models_find_shapes_and_show_them() -> None:
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 8
    model = AdditiveRegressor(target_bounds=(-2, 4), mu=NO_NOISE, bins=64, epochs=30, **BOX).fit(X, y)
    assert model.score(X, y) > 0.98
    edges, heights = model.shape(0)
    middle = (edges[1:] + edges[:-1]) / 2
    inner = np.abs(middle) < 2
    assert np.corrcoef(np.sin(2 * middle[inner]), heights[inner, 0])[0, 1] > 0.99
    assert len(edges) == len(heights) + 1
    labels = np.digitize(X[:, 0], [-0.7, 0.7])
    many = AdditiveClassifier(classes=[0, 1, 2], mu=NO_NOISE, epochs=20, **BOX).fit(X, labels)
    assert many.score(X, labels) > 0.97
    assert many.predict_proba(X).sum(axis=1) == pytest.approx(np.ones(3000))


def test_shapes_are_found_by_number_or_name() -> None:
    frame = pd.DataFrame({"age": X[:, 0], "weight": X[:, 1]})
    said = {"classes": [0, 1], "bounds": (-3, 3), "mu": 1.0}
    with pytest.raises(NotFittedError):
        AdditiveClassifier(**said).shape(0)
    model = AdditiveClassifier(**said).fit(frame, X[:, 0] > 0)
    for mine, by_name in zip(model.shape(1), model.shape("weight"), strict=True):
        assert np.array_equal(mine, by_name)
    for wrong in (2, -1, "height", None):
        with pytest.raises(InvalidParameter, match="feature="):
            model.shape(wrong)
    with worded(InvalidParameter, parameter="feature"):
        AdditiveClassifier(**said).fit(frame.to_numpy(), X[:, 0] > 0).shape("age")


def test_missing_values_have_a_shape_of_their_own_in_additive_models() -> None:
    rng = np.random.default_rng(7)
    rows = X.copy()
    gone = rng.random(3000) < 0.3
    rows[gone, 0] = np.nan
    model = AdditiveRegressor(target_bounds=(-1, 2), mu=NO_NOISE, epochs=20, **BOX).fit(rows, gone * 1.0)
    assert model.score(rows, gone * 1.0) > 0.95


@pytest.mark.parametrize(
    "make",
    [lambda mu: StandardScaler(mu=mu, **BOX), lambda mu: KMeans(n_clusters=2, mu=mu, random_state=0, **BOX)],
    ids=["scaler", "clusters"],
)
def test_noise_that_hides_everything_is_warned_of(make: Any) -> None:
    """At μ = 0.001 the noise on a sum has a standard deviation of 1,700 rows and more, for 30 rows. At μ = 1 it is below
    5, for 3,000 rows. No rows at all are warned of as well: the noisy count says so.
    """
    for rows in (X[:30], X[:0]):
        with pytest.warns(NoiseHidesWarning, match="the noise hides"):
            model = make(0.001).fit(rows)
        assert len(model.hidden_)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoiseHidesWarning)
        assert not len(make(1.0).fit(X).hidden_)


def test_the_stated_error_of_a_mean_is_that_of_its_noise() -> None:
    """400 fits to the same rows: their standard deviation has a relative error of 1/√800 = 3.5 %, and 25 % is seven of
    these. Means are near the middle, the low and the high end of the bounds.
    """
    rows = np.column_stack([X[:, 0], np.full(3000, -3.9), np.full(3000, 3.9)])
    fits = [StandardScaler(mu=0.3, **BOX).fit(rows) for _ in range(400)]
    spread = np.std([fit.mean_ for fit in fits], axis=0)
    assert np.mean([fit.mean_error_ for fit in fits], axis=0) == pytest.approx(spread, rel=0.25)
