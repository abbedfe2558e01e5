"""Forests: trees that do not see the rows, exact leaf sums, and the sensitivity of every kind of release."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from deniable.errors import InvalidParameter
from deniable.learn.sklearn import RandomForestClassifier
from deniable.learn.sklearn.integer_rows import STEPS
from deniable.learn.sklearn.noisy_newton import UNIT
from deniable.learn.sklearn.random_forest import CELLS, VALUE, LeafValues, Trees
from tests.learn.sklearn.cases import MANY, SMALL, TWO, Recorder, data_of, replayed, squared, table

NO_NOISE = 1e12
EVEN = np.tile(np.linspace(-STEPS, STEPS, CELLS + 1), (4, 3, 1))


def drawn(depth: int, quantiles: Any = EVEN, seed: int = 0) -> Trees:
    return Trees.drawn(np.random.RandomState(seed), depth=depth, quantiles=quantiles)


def leaf(trees: Trees, tree: int, row: Any) -> int:
    """The leaf of a row, by walking down."""
    node = 0
    while node < trees.leaves - 1:
        node = 2 * node + 1 + int(row[trees.features[tree, node]] > trees.thresholds[tree, node])
    return node - (trees.leaves - 1)


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_places_are_found_by_walking_down_each_tree(depth: int) -> None:
    trees = drawn(depth)
    rows = np.rint(np.random.default_rng(1).uniform(-STEPS, STEPS, (50, 3)))
    rows[0], rows[1] = -STEPS, STEPS
    places = trees.places(rows)
    assert places.tolist() == [[leaf(trees, tree, row) for row in rows] for tree in range(4)]
    assert places.max() < trees.leaves == 2**depth


def test_a_threshold_lies_within_the_cell_of_its_node() -> None:
    """So every leaf of a tree with few nodes per feature can have a row: brute force over a fine grid of one feature."""
    trees = drawn(3, quantiles=EVEN[:, :1])
    rows = np.arange(-STEPS, STEPS + 1, dtype=np.float64)[:, None]
    for places in trees.places(rows):
        assert np.all(np.diff(places) >= 0)  # with one feature, leaves are intervals from left to right
        assert set(places.tolist()) == set(range(8))


def test_thresholds_follow_the_quantiles() -> None:
    """All of the law between 0 and STEPS/2: so are all thresholds of the trees that use it."""
    law = np.linspace(0, STEPS // 2, CELLS + 1) * np.ones((200, 3, 1))
    cuts = drawn(4, quantiles=law).thresholds
    assert cuts.min() >= 0
    assert cuts.max() <= STEPS // 2
    # The roots are uniform there: their mean is STEPS/4 with a standard deviation of STEPS/98.
    assert abs(cuts[:, 0].mean() - STEPS / 4) < STEPS / 14


def test_leaf_sums_and_scores_are_exact() -> None:
    rng = np.random.default_rng(2)
    places = rng.integers(0, 4, (3, 40))
    held = LeafValues(places, leaves=4, intercept=np.array([0.25]), kept=1)
    residuals = rng.integers(-UNIT, UNIT + 1, (40, 1)).astype(np.float64)
    sums = held.sums(residuals, largest=UNIT)
    for tree, place in itertools.product(range(3), range(4)):
        assert sums[tree, place, 0] == sum(
            int(r) for r, p in zip(residuals[:, 0], places[tree], strict=True) if p == place
        )
    held.move(rng.normal(size=(3, 4, 1)), left=0)
    values = held.values[:, :, 0].astype(int).tolist()
    for row, score in enumerate(held.scores()[:, 0].tolist()):
        assert score == VALUE // 4 + sum(values[tree][places[tree, row]] for tree in range(3))
    assert held.mean == pytest.approx(held.values / VALUE)


@pytest.mark.parametrize("said", [TWO, MANY], ids=["two", "many"])
def test_with_a_histogram_too_no_row_moves_a_release_further_than_was_paid_for(said: Any) -> None:
    """At this μ twelve rows are many for the noise, so the histogram is bought: counts, histogram, two steps. The new row
    moves the histogram by all that was paid for, and in the first step, if its label is the rarer one, nearly so.
    """
    mu = 1e5
    X, y = table(12, 2, seed=1)
    model = RandomForestClassifier(**said, **SMALL, steps=2, max_depth=2)
    nearly = 0.0
    for row, label in itertools.product([(-1.0, 1.0), (np.nan, np.inf), ("weird", None)], (0, 1, 2)):
        purse, data = Recorder(mu), data_of(model, X, y)
        model._learn(purse, *data)
        assert len(purse.log) == 4
        mine = replayed(model, purse.log, data)
        theirs = replayed(model, purse.log, data_of(model, [list(row), *X.tolist()], [label, *y.tolist()]))
        apart = [squared(a, b) / release.square for a, b, release in zip(mine, theirs, purse.log, strict=True)]
        assert max(apart) <= 1
        if label in said["classes"]:
            assert apart[1] == 1
        nearly = max(nearly, apart[2])
    assert nearly > 0.99


def test_trees_are_public_and_the_same_for_every_table() -> None:
    model = RandomForestClassifier(**TWO, n_estimators=7, max_depth=2, random_state=3, mu=0.1)
    one = model.fit(*table(40, 2, seed=1)).trees_
    other = model.fit(*table(3, 2, seed=2)).trees_
    assert np.array_equal(one.features, other.features)
    assert np.array_equal(one.thresholds, other.thresholds)


@pytest.mark.slow
def test_without_noise_an_interaction_is_learned_that_no_additive_model_sees() -> None:
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (700, 2))
    y = X[:, 0] * X[:, 1] > 0
    model = RandomForestClassifier(
        classes=[False, True], bounds=(-1, 1), mu=NO_NOISE, n_estimators=100, random_state=0
    ).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(np.ones(700))
    many = np.digitize(X[:, 0], [-0.3, 0.3])
    model = RandomForestClassifier(
        classes=[0, 1, 2], bounds=(-1, 1), mu=NO_NOISE, n_estimators=100, random_state=0
    ).fit(X, many)
    assert model.score(X, many) > 0.9
    assert model.decision_function(X).shape == (700, 3)


def test_what_cannot_be_grown_is_said() -> None:
    X, y = table(5, 2, seed=1)
    for wrong in ({"n_estimators": 0}, {"max_depth": 0}, {"max_depth": 17}, {"n_estimators": 2**20}, {"steps": 10**6}):
        with pytest.raises(InvalidParameter):
            RandomForestClassifier(**TWO, mu=1.0, **wrong).fit(X, y)
