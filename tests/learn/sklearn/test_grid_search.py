"""A private grid search: what each row can do to it, what it spends, and that it finds the better candidate."""

from __future__ import annotations

import itertools
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from deniable import Budget, Unit, curves, noise
from deniable.errors import InvalidParameter, NoiseHidesWarning
from deniable.learn.sklearn import GridSearch, LogisticRegression, guarantee
from deniable.learn.sklearn import grid_search as search_module
from deniable.learn.sklearn.fit_budget import GaussianPurse
from deniable.learn.sklearn.grid_search import GAIN, gains, pure_within
from deniable.ledger import Ledger
from deniable.mechanisms import MonotoneNoisyMax
from tests.learn.sklearn.cases import MODELS, table
from tests.wording import worded

X, Y = table(60, 2, seed=5)
SCORED = [name for name in MODELS if name not in ("scaler", "components", "clusters")]


@pytest.mark.parametrize("name", SCORED)
def test_a_row_adds_between_nothing_and_one_to_every_score_and_moves_no_other(name: str) -> None:
    """So all scores move the same way, by at most 1: report noisy max needs noise of scale 1/ε only."""
    model = MODELS[name](mu=1.0).fit(X, Y)
    target = Y if name in ("multinomial", "bayes") else np.where(Y == 2, 7, Y)
    found = gains(model, X, target)
    assert found.min() >= 0
    assert found.max() <= GAIN
    assert np.array_equal(found[1:], gains(model, X[1:], target[1:]))
    assert np.array_equal(found, np.concatenate([gains(model, X[i : i + 1], target[i : i + 1]) for i in range(60)]))
    assert len(gains(model, X[:0], target[:0])) == 0


@pytest.mark.parametrize("name", ["logistic", "multinomial", "svc", "bayes", "squares"])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_no_model_however_broken_lets_a_row_add_more(name: str, number: float) -> None:
    """As a cast to whole numbers a NaN would be −2⁶³, and one row would decide every choice."""
    model = MODELS[name](mu=1.0).fit(X, Y)
    for attribute in {"coef_", "intercept_", "theta_"} & set(vars(model)):
        setattr(model, attribute, getattr(model, attribute) * number)
    found = gains(model, X, Y)
    assert found.min() >= 0
    assert found.max() <= GAIN


def test_a_row_trains_all_fits_but_those_it_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row is in folds − 1 trainings of each candidate, and judged once by the one fit that has not seen it."""
    trained: list[list[int]] = []
    judged: list[tuple[list[int], list[int]]] = []
    fit = LogisticRegression.fit

    def noted(self: Any, X: Any, y: Any) -> Any:
        trained.append([int(n) for n in X[:, 0]])
        return fit(self, X, y)

    def watched(model: Any, X: Any, y: Any) -> Any:
        judged.append((trained[-1], [int(n) for n in X[:, 0]]))
        return gains(model, X, y)

    monkeypatch.setattr(LogisticRegression, "fit", noted)
    monkeypatch.setattr(search_module, "gains", watched)
    numbered = np.column_stack([np.arange(60.0), np.zeros(60)])
    GridSearch(MODELS["logistic"](), {"C": [1, 2]}, mu=0.5, folds=4).fit(numbered, Y)
    assert len(judged) == 2 * 4
    for candidate in (judged[:4], judged[4:]):
        assert sorted(n for _, test in candidate for n in test) == list(range(60))
        for train, test in candidate:
            assert sorted(train + test) == list(range(60))


@pytest.mark.parametrize("said", [{"mu": [3.0]}, {"epsilon": [1.0]}, {"session": ["a ledger"]}])
def test_a_candidate_cannot_say_what_it_spends(said: dict[str, Any]) -> None:
    with worded(InvalidParameter, parameter="estimator"):
        GridSearch(MODELS["logistic"](), said, mu=1.0).fit(X, Y)


def test_a_label_that_is_not_declared_and_a_missing_target_add_nothing() -> None:
    assert not gains(MODELS["logistic"](mu=1.0).fit(X, Y), X, np.full(60, 9)).any()
    assert not gains(MODELS["squares"](mu=1.0).fit(X, Y), X, np.full(60, np.nan)).any()


def test_what_the_search_spends_for_one_row_is_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels of all fits, written down; a row is a training row of all fits but those whose fold it is in."""
    levels: list[float] = []
    made = GridSearch._made

    def noted(self: Any, candidate: Any, level: float) -> Any:
        levels.append(level)
        return made(self, candidate, level)

    monkeypatch.setattr(GridSearch, "_made", noted)
    search = GridSearch(LogisticRegression(classes=[0, 1], bounds=(-1, 1)), {"C": [0.1, 1, 10]}, mu=0.5, folds=4)
    purse = GaussianPurse(0.5)
    search._learn(purse, X, Y)
    *fits, last = levels
    assert len(fits) == 3 * 4
    # One fold of four does not see the row.
    trained = sum(Fraction(level) ** 2 for level in fits) * 3 / 4
    chosen = Fraction(0.25) * Fraction(0.1)
    assert trained + chosen + Fraction(last) ** 2 <= Fraction(0.25)
    assert trained + chosen + Fraction(last) ** 2 > Fraction(0.25) * (1 - Fraction(1, 10**6))
    assert purse._left >= 0


def test_folds_are_drawn_for_each_row_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """One secret draw for every row: a fold by position would move all rows behind a new one."""
    sizes, uniform = [], noise.uniform

    def counted(*, below: int, size: int) -> Any:
        sizes.append((below, size))
        return uniform(below=below, size=size)

    monkeypatch.setattr(noise, "uniform", counted)
    GridSearch(LogisticRegression(classes=[0, 1], bounds=(-1, 1)), {"C": [1]}, mu=0.5).fit(X, Y)
    assert sizes == [(3, 60)]


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 4.0])
def test_the_choice_fits_into_its_share(mu: float) -> None:
    from scipy.special import ndtr

    epsilon = pure_within(mu)
    assert epsilon == pytest.approx(np.log(ndtr(mu / 2) / ndtr(-mu / 2)), rel=1e-5)
    assert curves.pure(epsilon=epsilon).gdp() <= mu


@pytest.mark.parametrize("mu", [0.1, 1.0])
def test_the_law_of_the_choice_moves_by_no_more_than_its_share(mu: float) -> None:
    """All scores of three candidates, moved up by 0, 1/2 or 1 each: the exact probabilities of the choice. With moves in
    both directions, which a row cannot make, the same bound breaks.
    """
    epsilon = pure_within(mu)
    choose = MonotoneNoisyMax(sensitivity=GAIN, scale=GAIN / Fraction(epsilon))
    base = [GAIN * 3, GAIN * 4, GAIN * 4]
    one = choose.probabilities(base)

    def apart(moves: Any) -> float:
        other = choose.probabilities([b + GAIN * m // 2 for b, m in zip(base, moves, strict=True)])
        return float(np.abs(np.log(other / one)).max())

    assert max(apart(moves) for moves in itertools.product((0, 1, 2), repeat=3)) <= epsilon * (1 + 1e-6)
    assert apart((2, -2, -2)) > epsilon


def test_the_better_candidate_wins() -> None:
    """At μ = 50 the scores are apart by hundreds of scales of the noise."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (600, 2))
    search = GridSearch(LogisticRegression(classes=["no", "yes"], bounds=(-1, 1)), {"C": [1e-6, 100.0]}, mu=50.0).fit(
        rows, np.where(rows[:, 0] > 0, "yes", "no")
    )
    assert search.best_params_ == {"C": 100.0}
    assert search.score(rows, np.where(rows[:, 0] > 0, "yes", "no")) > 0.95
    assert search.predict(rows).shape == search.decision_function(rows).shape == (600,)
    assert search.predict_proba(rows).shape == (600, 2)
    assert search.classes_.tolist() == ["no", "yes"]
    assert not hasattr(search, "cv_results_")


def test_pipelines_frames_and_regressors_are_searched() -> None:
    frame = pd.DataFrame(np.random.default_rng(0).uniform(0, 9, (300, 2)), columns=["a", "b"])
    steps = make_pipeline(
        MODELS["scaler"]().set_params(bounds={"a": (0, 9), "b": (0, 9)}),
        MODELS["logistic"]().set_params(bounds=(-3, 3)),
    )
    search = GridSearch(steps, {"logisticregression__C": [0.1, 1.0]}, mu=2.0).fit(frame, frame["a"] > 4)
    assert guarantee(search).curve == curves.gaussian(mu=2.0)
    # Which parameters won is in the winner too, so it promises no more than the search does.
    assert guarantee(search.best_estimator_).curve.gdp() >= 2.0
    squares = GridSearch(MODELS["ridge"]().set_params(bounds=(0, 9)), {"alpha": [0.1, 10]}, mu=2.0)
    assert squares.fit(frame, frame["b"] / 9).predict(frame).shape == (300,)
    naive = GridSearch(make_pipeline(MODELS["scaler"](), MODELS["bayes"]()), {"gaussiannb__floor": [0.1, 1]}, mu=2.0)
    assert naive.fit(X, Y).best_index_ in (0, 1)


def test_a_ledger_pays_once_for_the_whole_search() -> None:
    book = Ledger.open(budget=Budget(epsilon=1, delta=1e-6), unit=Unit.row(), dataset="people")
    GridSearch(MODELS["logistic"](), {"C": [0.1, 1.0]}, session=book, epsilon=0.7).fit(X, Y)
    assert book.charged == book.budget.cost(epsilon=0.7)
    assert len(list(book.entries())) == 2


def test_no_rows_can_be_searched() -> None:
    search = GridSearch(MODELS["logistic"](), {"C": [0.1, 1.0]}, mu=1.0).fit(X[:0], Y[:0])
    assert search.predict(X).shape == (60,)


def test_what_cannot_be_searched_is_said() -> None:
    from sklearn.linear_model import LogisticRegression as Public

    with pytest.raises(InvalidParameter, match="without privacy"):
        GridSearch(Public(), {"C": [1]}, mu=1.0).fit(X, Y)
    with worded(InvalidParameter, parameter="estimator"):
        GridSearch(MODELS["logistic"](mu=1.0), {"C": [1]}, mu=1.0).fit(X, Y)
    with worded(InvalidParameter, parameter="estimator"):
        GridSearch(GridSearch(MODELS["bayes"](), {}), {"folds": [2]}, mu=1.0).fit(X, Y)
    with worded(InvalidParameter):
        GridSearch(MODELS["logistic"](), {"C": [1]}, mu=1.0, search_share=0.9, choose_share=0.1).fit(X, Y)
    with pytest.raises(InvalidParameter, match="folds"):
        GridSearch(MODELS["logistic"](), {"C": [1]}, mu=1.0, folds=1).fit(X, Y)
    with pytest.raises(InvalidParameter, match="no score"):
        GridSearch(MODELS["clusters"](), {"steps": [1, 2]}, mu=1.0).fit(X, Y)


def test_a_step_that_learns_nothing_is_an_assumption_of_the_whole_wherever_it_stands() -> None:
    curved = FunctionTransformer(np.tanh)
    flat = make_pipeline(curved, MODELS["logistic"](mu=0.4))
    deep = make_pipeline(make_pipeline(MODELS["scaler"](mu=0.1), curved, MODELS["scaler"](mu=0.1)), flat)
    search = GridSearch(make_pipeline(curved, MODELS["logistic"]()), {"logisticregression__C": [1]}, mu=0.4)
    for model in (flat, deep, search):
        promise = guarantee(model.fit(np.zeros((60, 2)), Y))
        assert sum("process each row separately" in words for words in promise.assumptions) == 1
    plain = make_pipeline("passthrough", MODELS["logistic"](mu=0.4)).fit(np.zeros((60, 2)), Y)
    assert not any("process each row separately" in words for words in guarantee(plain).assumptions)


def test_a_search_with_noisy_trials_is_warned_of_before_anything_is_spent() -> None:
    """By hand: 2 candidates in 3 folds with 0.4 of μ² have √(2·2/0.4) = 3.2 times the noise of one fit, and the last
    fit, with half of μ², 1.4 times. In 2 folds it is √(2/0.4) = 2.2 times.
    """
    book = Ledger.open(budget=Budget(epsilon=1, delta=1e-6), unit=Unit.row(), dataset="people")
    search = GridSearch(MODELS["logistic"](), {"C": [0.1, 1.0]}, session=book, epsilon=0.7)
    with pytest.warns(NoiseHidesWarning, match="trials have 3.2 times the noise .* the last fit 1.4 times"):
        search.fit(X, Y)
    assert book.charged == book.budget.cost(epsilon=0.7)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoiseHidesWarning)
        GridSearch(MODELS["logistic"](), {"C": [0.1, 1.0]}, mu=1.0, folds=2).fit(X, Y)
        GridSearch(MODELS["logistic"](), {"C": [1.0]}, mu=1.0).fit(X, Y)
        unpaid = Ledger.open(budget=Budget(epsilon=1, delta=1e-6), unit=Unit.row(), dataset="others")
        with pytest.raises(NoiseHidesWarning):
            search.set_params(session=unpaid).fit(X, Y)
    assert not list(unpaid.entries())[1:]  # the first entry opens the ledger
