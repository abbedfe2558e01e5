"""The sensitivity of every release of every estimator, recomputed by brute force over neighbours.

A fit runs with real noise; it is replayed, answer by answer, on the same rows and on rows with one more. Given the same
past, the sums of neighbours may differ by no more than was paid for, in whole numbers, and over the whole fit
Σ‖Δ‖²/σ² ≤ μ², which is what μ-GDP means for Gaussian noise. Planted bugs are found by the same functions.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.learn.sklearn import LinearRegression, LogisticRegression, StandardScaler
from deniable.learn.sklearn.integer_rows import STEPS, Gram
from tests.learn.sklearn.cases import MODELS, TARGET, TWO, Recorder, data_of, replayed, squared, table

MU = 0.5
LIMIT = MU**2 * (1 + 1e-12)
"""The sum is worked out in floats here."""


def moved(model: Any, X: Any, y: Any, row: Any, label: Any) -> tuple[float, list[float]]:
    """Σ‖Δ‖²/σ² between these rows and the same with one more; and ‖Δ‖² over what was paid for, release by release."""
    purse, data = Recorder(MU), data_of(model, X, y)
    model._learn(purse, *data)
    mine = replayed(model, purse.log, data)
    # The new row comes first, so that every other row changes its place; in a list, so that it may hold anything.
    more = [list(row), *X.tolist()], [label, *y.tolist()]
    theirs = replayed(model, purse.log, data_of(model, *more))
    apart = [squared(a, b) for a, b in zip(mine, theirs, strict=True)]
    spent = sum(each / release.sigma**2 for each, release in zip(apart, purse.log, strict=True))
    return spent, [each / release.square for each, release in zip(apart, purse.log, strict=True)]


CORNERS: list[Any] = list(itertools.product((-1.0, 1.0), repeat=2))
ODD = [(np.nan, np.nan), (np.inf, -np.inf), (0.0, 0.0), (1e300, -1e300), (np.nan, 1.0), ("weird", None), (10**400, {})]


@pytest.mark.parametrize("name", MODELS)
def test_no_row_moves_a_release_further_than_was_paid_for(name: str) -> None:
    X, y = table(12, 2, seed=1)
    for row, label in itertools.product(CORNERS + ODD, (0, 1, 2, "weird")):
        spent, shares = moved(MODELS[name](), X, y, row, label)
        assert max(shares) <= 1
        assert spent <= LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_row_that_is_searched_for_moves_a_release_further_than_was_paid_for(name: str, data: Any) -> None:
    features = data.draw(st.integers(1, 4))
    X, y = table(data.draw(st.integers(0, 30)), features, seed=data.draw(st.integers(0, 99)))
    numbers = st.floats(-2, 2) | st.sampled_from([np.nan, np.inf, -np.inf, 1.0, -1.0])
    row = data.draw(st.lists(numbers, min_size=features, max_size=features))
    spent, shares = moved(MODELS[name](), X, y, np.array(row), data.draw(st.integers(0, 2)))
    assert max(shares) <= 1
    assert spent <= LIMIT


@pytest.mark.parametrize("name", ["squares", "components", "scaler", "bayes", "clusters", "additive"])
def test_a_row_in_the_corner_moves_a_release_nearly_as_far_as_was_paid_for(name: str) -> None:
    """What is paid for is not much more than what can happen: else the noise would be wasted."""
    X, y = table(12, 2, seed=1)
    worst = max(max(moved(MODELS[name](), X, y, corner, label)[1]) for corner in CORNERS for label in (0, 1))
    assert worst > 0.99


def test_a_label_or_target_that_does_not_count_moves_nothing() -> None:
    X, y = table(12, 2, seed=1)
    assert moved(MODELS["logistic"](), X, y, (1.0, 1.0), 7)[0] == 0
    assert moved(MODELS["squares"](), X, y.astype(float), (1.0, 1.0), np.nan)[0] == 0


def test_a_fit_on_no_rows_is_a_fit() -> None:
    for name, make in MODELS.items():
        spent, shares = moved(make(), np.zeros((0, 2)), np.zeros(0), (1.0, -1.0), 1)
        assert max(shares) <= 1, name
        assert spent <= LIMIT, name


# -- planted bugs ----------------------------------------------------------------------------------------------------


class Unclamped(LinearRegression):
    """Forgets the bounds."""

    __init__ = LinearRegression.__init__

    def _learn(self, purse: Any, *data: Any) -> dict[str, Any]:
        X, y, target = data
        rows = np.concatenate([np.full((len(X), 1), STEPS), np.rint(X * STEPS), target.steps(y[:, None])], axis=1)
        Gram.release(rows, purse, share=1, square=rows.shape[1] * STEPS**2)
        return {}


class OwnBounds(StandardScaler):
    """Takes its bounds from the rows: a row moves all others."""

    __init__ = StandardScaler.__init__

    def _learn(self, purse: Any, *data: Any) -> dict[str, Any]:
        [X] = data
        return super()._learn(purse, X / np.abs(X).max(axis=0))


class HalfPaid(LogisticRegression):
    """Forgets the constant when it says how long a row is."""

    __init__ = LogisticRegression.__init__

    def _learn(self, purse: Any, *data: Any) -> dict[str, Any]:
        X = data[0]
        ones = np.concatenate([np.full((len(X), 1), STEPS), self._box(self.bounds, X, purse).steps(X)], axis=1)
        Gram.release(ones, purse, share=1, square=X.shape[1] * STEPS**2)
        return {}


@pytest.mark.parametrize(
    ("broken", "row"),
    [(Unclamped(**TARGET), (3.0, 3.0)), (OwnBounds(bounds=(-1, 1)), (9.0, 9.0)), (HalfPaid(**TWO), (1.0, 1.0))],
    ids=["unclamped", "own bounds", "half paid"],
)
def test_a_planted_bug_is_found(broken: Any, row: Any) -> None:
    rng = np.random.default_rng(2)
    spent, shares = moved(broken, rng.uniform(-1, 1, (12, 2)), rng.integers(0, 2, 12), row, 1)
    assert max(shares) > 1
    assert spent > LIMIT
