"""Rows as whole numbers: exact, bounded, and each by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.errors import InvalidParameter
from deniable.learn.sklearn.additive_models import cells_of, joined_cells
from deniable.learn.sklearn.integer_rows import STEPS, Bought, Box, binned, longest, products, shrunk, squares, with_one
from deniable.learn.sklearn.noisy_newton import FINE, REACH, UNIT, LogisticLoss, Slopes, SmoothHinge, places_of_scores
from deniable.learn.sklearn.private_estimator import declared, places_of
from tests.learn.sklearn.cases import MODELS, table
from tests.wording import worded

ANY = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(ANY, min_size=1, max_size=9), st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_every_float_has_a_place_between_the_bounds(numbers: list[float], low: float, width: float) -> None:
    box = Box.of((low, low + width), features=1)
    steps = box.steps(np.array(numbers)[:, None])
    assert np.all(np.abs(steps) <= STEPS)
    assert np.all(steps == np.rint(steps))
    assert np.all(steps[np.isnan(numbers)] == 0)
    assert np.all(cells_of(np.array(numbers)[:, None], box, 8)[np.isnan(numbers)] == 8)


@settings(max_examples=30)
@given(st.integers(0, 99), st.integers(1, 40), st.floats(0.1, 3))
def test_no_row_is_longer_than_was_said_and_shorter_ones_stay(seed: int, rows: int, norm: float) -> None:
    steps = with_one(Box.of((-1, 1), features=3).steps(table(rows, 3, seed)[0]))
    square = longest(norm, 4)
    short = shrunk(steps, square)
    assert squares(short).max(initial=0) <= square
    kept = squares(steps) <= square
    assert np.array_equal(short[kept], steps[kept])


def test_sums_are_exact_in_any_order_and_in_blocks() -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.integers(-STEPS, STEPS, (5000, 3)).astype(np.float64) for _ in range(2))
    truth = left.astype(object).T @ right.astype(object)
    assert np.array_equal(products(left, right, largest=STEPS**2).astype(object), truth)
    # So large that a block is a few rows.
    assert np.array_equal(products(left, right, largest=2**50).astype(object), truth)
    order = rng.permutation(5000)
    assert np.array_equal(products(left[order], right[order], largest=STEPS**2).astype(object), truth)
    places = rng.integers(0, 4, 5000)
    assert [int(left[places == k, 0].sum()) for k in range(4)] == binned(
        places, left[:, 0], bins=4, largest=2**50
    ).tolist()


def test_scores_are_exact_and_a_row_has_its_own_whatever_stands_beside_it() -> None:
    rng = np.random.default_rng(1)
    steps = with_one(rng.integers(-STEPS, STEPS, (257, 7)).astype(np.float64))
    weights = rng.normal(0, 3, (8, 2))
    together = places_of_scores(steps, weights)
    alone = np.concatenate([places_of_scores(row[None, :], weights) for row in steps])
    assert np.array_equal(together, alone)
    assert np.abs(together / FINE - np.clip(steps / STEPS @ weights, -REACH, REACH)).max() < 2 / FINE


@pytest.mark.parametrize("name", MODELS)
def test_a_prediction_depends_on_its_own_row_alone_to_the_last_digit(name: str) -> None:
    X, y = table(60, 2, seed=4)
    model = MODELS[name](mu=1.0).fit(X, y)
    for method in ("decision_function", "predict", "transform"):
        if hasattr(model, method):
            ask = getattr(model, method)
            rows = np.nan_to_num(X) if name == "scaler" else X
            assert np.array_equal(ask(rows), np.concatenate([ask(row[None, :]) for row in rows]))


@pytest.mark.parametrize(
    ("loss", "outputs"),
    [
        (LogisticLoss(), 1),
        (LogisticLoss(), 4),
        (SmoothHinge(), 1),
        (SmoothHinge(), 4),
        (Slopes(low=-1, high=1, corner=0.3), 1),
    ],
    ids=["logistic", "softmax", "hinge", "hinges", "huber"],
)
def test_derivatives_are_no_longer_than_said_and_near_the_truth(loss: Any, outputs: int) -> None:
    rng = np.random.default_rng(0)
    places = rng.integers(-REACH * FINE, REACH * FINE + 1, (20_000, outputs))
    places[0], places[1] = REACH * FINE, -REACH * FINE
    targets = rng.integers(0, max(2, outputs), 20_000)
    found = loss.derivatives(places, targets)
    assert (found.astype(object) ** 2).sum(axis=1).max() <= loss.square(outputs)
    scores = places / FINE
    if isinstance(loss, LogisticLoss) and outputs == 1:
        truth = 1 / (1 + np.exp(-scores)) - targets[:, None]
    elif isinstance(loss, LogisticLoss):
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        truth = weights / weights.sum(axis=1, keepdims=True) - np.eye(outputs)[targets]
    elif isinstance(loss, SmoothHinge):
        signs = 2 * targets[:, None] - 1 if outputs == 1 else 2 * np.eye(outputs)[targets] - 1
        truth = -signs * np.clip(1.5 - signs * scores, 0, 1)
    else:
        truth = np.clip((scores - targets[:, None] / FINE) / 0.15, -1, 1)
    assert np.abs(found / UNIT - truth).max() < 2 / UNIT


def test_bins_hold_what_they_should_and_missing_values_have_their_own() -> None:
    bins = joined_cells(np.array([500.0, 500, 0, 900, 100, 1000, 30, 77]), 950, 10.0)
    assert bins.tolist() == [0, 0, 1, 1, 1, 2, 2, 3]
    assert joined_cells(np.zeros(5), 10, 1.0).tolist() == [0, 0, 0, 0, 1]


# -- what is declared ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (None, "missing; give .low, high. from the code book"),
        ((1, 0), "low less than high"),
        ((0, 0), "low less than high"),
        ((0, np.inf), "finite"),
        ((np.nan, 1), "finite"),
        (([0, 0, 0], [1, 1, 1]), "one for each of 2 features"),
        (5, "must be a pair"),
        ("01", "must be a pair"),
        (("a", "b"), "must hold numbers"),
        ([(0, 1), (2, 3)], r"tuple\(zip\(\*pairs\)\)"),
        ([[0, 1], [2, 3]], r"tuple\(zip\(\*pairs\)\)"),
        ((0, 1e-101), "1e-100 to 1e100 apart"),
        ((-1e101, 1e101), "1e-100 to 1e100 apart"),
        ({"age": (0, 1)}, r"names columns, but X has no names.*rename\(columns=str\)"),
    ],
)
def test_bounds_are_declared_and_make_sense(bounds: Any, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        Box.of(bounds, features=2)


def test_columns_by_number_are_told_how_to_get_names() -> None:
    numbered = pd.DataFrame(np.zeros((3, 2)))
    model = MODELS["scaler"](mu=1.0).set_params(bounds={0: (0, 1), 1: (0, 1)})
    with worded(InvalidParameter, parameter="bounds"):
        model.fit(numbered)
    model.set_params(bounds={"0": (0, 1), "1": (0, 1)}).fit(numbered.rename(columns=str))


def test_an_error_about_bounds_names_the_column() -> None:
    frame = pd.DataFrame({"age": [20.0], "weight": [60.0]})
    with pytest.raises(InvalidParameter, match="'weight'"):
        MODELS["scaler"](mu=1.0).set_params(bounds={"age": (0, 100)}).fit(frame)
    with worded(InvalidParameter, parameter="bounds"):
        MODELS["scaler"](mu=1.0).set_params(bounds={"age": (0, 100), "weight": ("light", "heavy")}).fit(frame)
    with worded(InvalidParameter, parameter="bounds"):
        MODELS["scaler"](mu=1.0).set_params(bounds={"age": (100, 0), "weight": (0, 200)}).fit(frame)
    model = MODELS["scaler"](mu=1e9).set_params(bounds={"weight": (0, 200), "age": (0, 100)}).fit(frame)
    assert model.mean_ == pytest.approx([20, 60], abs=0.01)


@pytest.mark.parametrize("classes", [None, [], [1], [0, 0], "ab", [0, np.nan], [0, None], [[0], [1]], 3, [0, "a"]])
def test_labels_are_declared(classes: Any) -> None:
    with pytest.raises(InvalidParameter, match="classes"):
        declared(classes)


def test_labels_that_are_not_declared_are_left_out_without_a_word() -> None:
    assert places_of(np.array([0, 2, 1, 7]), declared([0, 1])).tolist() == [0, -1, 1, -1]
    assert places_of(np.array(["a", None, {}, "b"], dtype=object), declared(["b", "a"])).tolist() == [0, -1, -1, 1]
    assert places_of(np.array([0.0, np.nan, True], dtype=object), declared([0, 1])).tolist() == [0, -1, 1]


@pytest.mark.parametrize("share", [0, 1, -0.5, 2, float("nan")])
def test_a_share_is_a_part_of_the_whole(share: float) -> None:
    with pytest.raises(InvalidParameter, match="share"):
        MODELS["scaler"](mu=1.0).set_params(bounds=Bought(share=share)).fit([[1.0]])


@pytest.mark.parametrize("exponents", [(-301, 0), (0, 301), (3, 2), 5])
def test_powers_that_are_looked_at_are_those_of_numbers(exponents: Any) -> None:
    with pytest.raises(InvalidParameter, match="exponents"):
        MODELS["scaler"](mu=1.0).set_params(bounds=Bought(share=0.5, exponents=exponents)).fit([[1.0]])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("logistic", {"C": 0}),
        ("logistic", {"steps": 0}),
        ("logistic", {"steps": 10**9}),
        ("logistic", {"row_norm": -1}),
        ("ridge", {"alpha": -1}),
        ("squares", {"target_bounds": (1, 0)}),
        ("squares", {"target_bounds": None}),
        ("quantile", {"quantile": 1.5}),
        ("huber", {"corner": 0}),
        ("additive", {"epochs": 0}),
        ("additive", {"rate": 2}),
        ("additive", {"grid": 2**21}),
        ("bayes", {"floor": 0}),
        ("components", {"n_components": 9}),
        ("clusters", {"n_clusters": 0}),
    ],
)
def test_other_arguments_are_checked(name: str, said: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match=next(iter(said))):
        MODELS[name](mu=1.0).set_params(**said).fit([[0.0, 1.0]], [0])
