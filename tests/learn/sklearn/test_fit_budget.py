"""What a fit spends is what was asked, never more; and where a session pays, its ledger knows before anything is seen."""

from __future__ import annotations

import copy
import json
import pickle
from fractions import Fraction
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline

import deniable
from deniable import Budget, Unit, curves
from deniable.errors import BudgetExceeded, InvalidOperation, InvalidParameter
from deniable.learn.sklearn import AdditiveRegressor, Bought, LogisticRegression, StandardScaler, guarantee
from deniable.learn.sklearn import integer_rows as rows_module
from deniable.learn.sklearn.fit_budget import FitAccount, GaussianPurse
from deniable.ledger import Ledger
from deniable.ledger.entries import State
from deniable.mechanisms import Bounds
from deniable.numbers import float_root_down
from tests.learn.sklearn.cases import MODELS, Recorder, data_of, table
from tests.wording import worded

X, Y = table(40, 2, seed=0)


def ledger(budget: Budget, unit: Unit | None = None) -> Ledger:
    return Ledger.open(budget=budget, unit=unit or Unit.row(), dataset="people")


# -- a purse ---------------------------------------------------------------------------------------------------------


@given(st.fractions(Fraction(1, 10**9), Fraction(10**6)))
def test_a_root_is_rounded_down_and_next_to_the_truth(square: Fraction) -> None:
    root = float_root_down(square)
    assert Fraction(root) ** 2 <= square
    assert (Fraction(root) * (1 + Fraction(1, 2**50))) ** 2 > square


def test_a_purse_gives_all_it_has_and_no_more() -> None:
    purse = GaussianPurse(0.5)
    spent = Fraction(purse.level(share=Fraction(1, 3))) ** 2
    noisy = purse.sums(share=Fraction(2, 3), square=1, size=2, times=4)
    assert spent + 4 / Fraction(noisy.sigma) ** 2 <= Fraction(1, 4)
    assert spent + 4 / Fraction(noisy.sigma) ** 2 > Fraction(1, 4) * (1 - Fraction(1, 10**9))
    with worded(AssertionError):
        purse.level(share=Fraction(1, 10**6))


def test_sums_are_released_as_often_as_paid_for() -> None:
    sums = GaussianPurse(0.5).sums(share=Fraction(1), square=1, size=1, times=2)
    for _ in range(2):
        sums.release(np.zeros(1, dtype=np.int64))
    with pytest.raises(AssertionError, match="more releases"):
        sums.release(np.zeros(1, dtype=np.int64))


@pytest.mark.parametrize("mu", [0.5, 0.3, 1.7])
@pytest.mark.parametrize("name", MODELS)
def test_a_fit_spends_its_purse_and_nothing_is_left_over(name: str, mu: float) -> None:
    """In rational numbers: Σ(Δ/σ)² ≤ μ², without a tolerance."""
    model, purse = MODELS[name](), Recorder(mu)
    model._learn(purse, *data_of(model, X, Y))
    spent = sum(Fraction(release.square) / Fraction(release.sigma) ** 2 for release in purse.log)
    assert Fraction(mu) ** 2 * (1 - Fraction(1, 10**6)) < spent <= Fraction(mu) ** 2


def test_bounds_are_bought_for_their_share_and_not_beside_it() -> None:
    rows = np.random.default_rng(0).uniform(30, 100, (4000, 2))
    model = StandardScaler(bounds=Bought(share=0.25), epsilon=1.0, delta=1e-6).fit(rows)
    assert np.all(np.abs(model.mean_ - 65) < 10)
    purse = GaussianPurse(0.5)
    model._learn(purse, rows)
    assert 0 <= purse._left < Fraction(1, 10**9)


@pytest.mark.parametrize("features", [1, 3])
def test_what_bought_bounds_promise_together_is_their_share(features: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every feature has a histogram of its own, and each of them costs."""
    released: list[Bounds] = []

    class Counted:
        def __init__(self, **said: Any) -> None:
            self.inner = Bounds(**said)
            self.exponents = self.inner.exponents

        def release(self, column: Any) -> Any:
            released.append(self.inner)
            return self.inner.release(column)

    monkeypatch.setattr(rows_module, "Bounds", Counted)
    Bought(share=0.25).release(np.ones((5, features)), GaussianPurse(0.5))
    assert len(released) == features
    assert curves.product(each.curve for each in released).gdp() == pytest.approx(0.25)


# -- what is promised ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_guarantee_says_what_was_asked(name: str) -> None:
    model = MODELS[name](epsilon=1.0, delta=1e-6).fit(X, Y)
    promise = model.guarantee_
    assert promise.unit == Unit.row()
    assert 0.99e-6 < promise.curve.delta(epsilon=1.0) <= 1e-6
    assert MODELS[name](mu=0.3).fit(X, Y).guarantee_.curve == curves.gaussian(mu=0.3)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "missing"),
        ({"epsilon": 1.0}, "delta"),
        ({"delta": 1e-6}, "missing"),
        ({"epsilon": 1.0, "delta": 1e-6, "mu": 1.0}, "both given"),
        ({"mu": 1.0, "delta": 1e-6}, "is given with epsilon"),
        ({"epsilon": -1.0, "delta": 1e-6}, "epsilon"),
        ({"epsilon": 1.0, "delta": 2.0}, "delta"),
        ({"epsilon": float("nan"), "delta": 1e-6}, "epsilon"),
        ({"mu": 0.0}, "mu"),
        ({"mu": float("inf")}, "mu"),
        ({"mu": 1e-14}, "so small"),
        ({"epsilon": float("inf"), "delta": 1e-6}, "epsilon"),
        ({"epsilon": "much", "delta": 1e-6}, "epsilon"),
        ({"epsilon": 1.0, "session": 5}, "session"),
    ],
)
def test_what_may_be_spent_is_said_once_and_makes_sense(said: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        MODELS["scaler"](**said).fit(X)


# -- sessions and ledgers --------------------------------------------------------------------------------------------


def test_a_session_pays_before_anything_is_learnt() -> None:
    book = ledger(Budget(epsilon=1, delta=1e-6))
    model = MODELS["logistic"](session=book, epsilon=0.5).fit(X, Y)
    reserved, sealed = book.entries()
    assert (reserved.state, sealed.state) == (State.RESERVED, State.SEALED)
    assert reserved.cost == book.charged == book.budget.cost(epsilon=0.5)
    assert json.loads(sealed.answer or b"")["coef_"] == model.coef_.tolist()
    assert book.budget.price(model.guarantee_.curve) <= reserved.cost
    assert model.guarantee_.unit == book.unit
    assert any("ledger's dataset" in words for words in model.guarantee_.assumptions)


def test_a_budget_that_is_spent_refuses_and_learns_nothing() -> None:
    book = ledger(Budget(epsilon=1, delta=1e-6))
    MODELS["scaler"](session=book, epsilon=1.0).fit(X)
    model = MODELS["scaler"](session=book, epsilon=0.1)
    with pytest.raises(BudgetExceeded):
        model.fit(X)
    assert not hasattr(model, "mean_")


def test_a_fit_that_fails_stays_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, purse: Any, *data: Any) -> dict[str, Any]:
        if len(data[0]):
            raise MemoryError
        return {}

    book = ledger(Budget(epsilon=1, delta=1e-6))
    monkeypatch.setattr(LogisticRegression, "_learn", broken)
    with pytest.raises(MemoryError):
        LogisticRegression(classes=[0, 1], bounds=(0, 1), session=book, epsilon=0.5).fit(X, Y)
    assert [entry.state for entry in book.entries()] == [State.RESERVED, State.FAILED]
    assert book.charged == book.budget.cost(epsilon=0.5)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("logistic", {"bounds": (1, 0)}),
        ("logistic", {"C": -1}),
        ("logistic", {"mu": 1e-14, "epsilon": None}),
        ("huber", {"corner": 0}),
        ("additive", {"epochs": 0}),
        ("bayes", {"bounds": Bought(share=2)}),
        ("components", {"n_components": 9}),
        ("clusters", {"n_clusters": 0}),
    ],
)
def test_a_wrong_parameter_costs_nothing(name: str, said: dict[str, Any]) -> None:
    """It is found by a fit to no rows, before anything is reserved."""
    book = ledger(Budget(epsilon=1, delta=1e-6))
    with pytest.raises(InvalidParameter):
        MODELS[name](session=book, epsilon=0.5).set_params(**said).fit(X, Y)
    assert list(book.entries()) == []


def test_models_of_any_shape_can_be_sealed() -> None:
    book = ledger(Budget.gaussian(mu=1))
    AdditiveRegressor(bounds=(-1, 1), target_bounds=(-1, 1), session=book, mu=0.5).fit(X, Y)
    assert "shapes_" in json.loads(list(book.entries())[-1].answer or b"")


def test_an_open_session_on_a_table_pays() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [1, 0, 1]})
    with deniable.session({"t": frame}, unit=Unit.row(), budget=Budget(epsilon=1, delta=1e-6)) as session:
        StandardScaler(bounds=(0, 5), session=session, epsilon=0.4).fit(frame)
        assert session.spent.gdp() > 0


def test_a_person_with_many_rows_gets_as_much_noise_as_their_rows_ask_for() -> None:
    person = FitAccount.of(
        epsilon=None, delta=None, mu=0.6, session=ledger(Budget.gaussian(mu=1), Unit.person("id", rows=3))
    )
    replaced = FitAccount.of(
        epsilon=None, delta=None, mu=0.6, session=ledger(Budget.gaussian(mu=1), Unit.replaced_row())
    )
    assert person.row_mu == pytest.approx(0.2)
    assert 3 * Fraction(person.row_mu) <= Fraction(person.mu)
    assert replaced.row_mu == pytest.approx(0.3)
    assert person.guarantee.unit.rows == 3
    assert any("nobody owns more" in words for words in person.guarantee.assumptions)
    single = FitAccount.of(
        epsilon=None, delta=None, mu=0.6, session=ledger(Budget.gaussian(mu=1), Unit.person("id", rows=1))
    )
    assert any("nobody owns more" in words for words in single.guarantee.assumptions)


def test_a_budget_of_rho_buys_gaussian_noise_and_one_of_epsilon_does_not() -> None:
    zcdp = FitAccount.of(epsilon=None, delta=None, mu=0.6, session=ledger(Budget.zcdp(rho=1)))
    assert zcdp.mu == pytest.approx(0.6)
    with pytest.raises((InvalidOperation, InvalidParameter)):
        MODELS["scaler"](session=ledger(Budget.pure(epsilon=1)), epsilon=0.5).fit(X)


def test_a_session_says_delta_itself() -> None:
    with worded(InvalidParameter, parameter="delta"):
        MODELS["scaler"](session=ledger(Budget(epsilon=1, delta=1e-6)), epsilon=0.5, delta=1e-7).fit(X)
    with worded(InvalidParameter, parameter="epsilon"):
        MODELS["scaler"](session=ledger(Budget(epsilon=1, delta=1e-6))).fit(X)


@pytest.mark.parametrize("said", [{"epsilon": 0.1}, {"mu": 0.1}], ids=["epsilon", "mu"])
def test_copies_spend_from_the_same_ledger_and_a_pickle_spends_nothing_without_it(said: dict[str, Any]) -> None:
    book = ledger(Budget(epsilon=1, delta=1e-6))
    model = MODELS["logistic"](session=book, **said)
    assert clone(model).session is book
    for travelled in (pickle.loads(pickle.dumps(clone(model).fit(X, Y))), copy.deepcopy(clone(model).fit(X, Y))):
        assert travelled.predict(X).shape == (40,)
        spent = book.charged
        with worded(InvalidParameter):
            clone(travelled).fit(X, Y)
        assert clone(travelled).set_params(session=book).fit(X, Y).session is book
        assert book.charged == spent + book.budget.cost(**said)
    assert pickle.loads(pickle.dumps(MODELS["logistic"](mu=0.1))).fit(X, Y).session is None


@pytest.mark.slow  # starting processes takes seconds
def test_other_processes_cannot_spend_what_they_cannot_charge() -> None:
    """joblib pickles estimators for other processes."""
    book = ledger(Budget.gaussian(mu=1))
    model = MODELS["squares"](session=book, mu=0.1)
    with worded(InvalidParameter, parameter="session"):
        cross_val_score(model, np.nan_to_num(X), Y, cv=2, n_jobs=2, error_score="raise")
    assert list(book.entries()) == []


def test_threads_share_the_session() -> None:
    book = ledger(Budget.gaussian(mu=1))
    model = MODELS["squares"](session=book, mu=0.1)
    with joblib.parallel_config("threading"):
        cross_val_score(model, np.nan_to_num(X), Y, cv=2, n_jobs=2, error_score="raise")
    assert book.charged == book.budget.cost(mu=0.1) + book.budget.cost(mu=0.1)


def test_a_refused_fit_leaves_nothing_that_looks_like_a_model() -> None:
    model = MODELS["logistic"](session=ledger(Budget.gaussian(mu=1)), mu=2.0)
    with pytest.raises(BudgetExceeded):
        model.fit(X, Y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_cross_validation_by_scikit_learn_is_charged_fit_by_fit() -> None:
    book = ledger(Budget(epsilon=1, delta=1e-6))
    cross_val_predict(MODELS["squares"](session=book, epsilon=0.1), X, Y, cv=4)
    each = book.budget.cost(epsilon=0.1)
    assert book.charged == each + each + each + each


def test_a_pipeline_multiplies_the_curves_of_its_steps() -> None:
    model = make_pipeline(MODELS["scaler"](mu=0.3), MODELS["logistic"](mu=0.4)).fit(X, Y)
    assert guarantee(model).curve.gdp() == pytest.approx(0.5)
    assert guarantee(model).unit == Unit.row()


def test_a_pipeline_with_a_step_that_is_not_private_has_no_guarantee() -> None:
    from sklearn.preprocessing import MinMaxScaler

    model = make_pipeline(MinMaxScaler(), MODELS["logistic"](mu=0.4)).fit(np.nan_to_num(X, posinf=1), Y)
    with worded(InvalidParameter, parameter="estimator"):
        guarantee(model)
