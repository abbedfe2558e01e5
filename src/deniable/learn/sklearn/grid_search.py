"""Private choice of parameters by cross-validation, and the guarantee of a pipeline."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any, Self, final

import numpy as np
from sklearn.base import MetaEstimatorMixin, clone, is_classifier
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from deniable import curves, noise
from deniable.curves import curve_arguments
from deniable.errors import InvalidOperation, InvalidParameter, NoiseHidesWarning, type_of
from deniable.learn.sklearn import input_tables
from deniable.learn.sklearn.fit_budget import Ints, Purse
from deniable.learn.sklearn.integer_rows import Floats, part
from deniable.learn.sklearn.noisy_newton import FINE, REACH, UNIT, LogisticLoss
from deniable.learn.sklearn.private_estimator import Private, places_of, stores_arguments
from deniable.mechanisms import MonotoneNoisyMax
from deniable.numbers import float_root_down
from deniable.units import Guarantee

GAIN = UNIT**2
"""The largest contribution of a row to the score of a candidate."""
NOISY_TRIAL = 3.0
"""A search issues a warning if its trials have more than this many times the noise of one fit. On three tables of the
benchmark, at ε = 1, such searches lost 0 to .07 of AUROC to the defaults.
"""
STATELESS = "the steps of the pipeline that learn nothing process each row separately"


def parts_of(model: Any) -> Iterator[Private]:
    """The private steps of a model: the steps of a pipeline, or the model itself. Raises for a step that learns without
    privacy.
    """
    if isinstance(model, Private):
        yield model
    elif isinstance(model, Pipeline):
        for step in _steps_of(model):
            if isinstance(step, Pipeline) or _learns(step):
                yield from parts_of(step)
    else:
        rule = "learns from rows without privacy, so the whole model has no guarantee"
        remedy = "use the estimators of deniable.learn.sklearn, its GridSearch, and FunctionTransformer for fixed steps"
        raise InvalidParameter("estimator", type_of(model), rule, remedy)


def _steps_of(pipeline: Pipeline) -> list[Any]:
    """The steps of a pipeline, without "passthrough" and None."""
    return [step for _, step in pipeline.steps if step is not None and not isinstance(step, str)]


def _learns(step: Any) -> bool:
    return isinstance(step, Private) or bool(get_tags(step).requires_fit)


def _assumed(model: Any) -> tuple[str, ...]:
    """The assumptions of a guarantee about foreign steps of a pipeline, at any depth."""
    if not isinstance(model, Pipeline):
        return ()
    foreign = (_assumed(step) if isinstance(step, Pipeline) else not _learns(step) for step in _steps_of(model))
    return (STATELESS,) if any(foreign) else ()


def guarantee(model: Any) -> Guarantee:
    """The guarantee of a fitted model; for a pipeline, its curve is the product of the curves of its steps.

    For all neighbours D, D′: each step transforms rows one by one and uses released values only. So neighbours stay
    neighbours, and the next step is one more mechanism on them. Raises if the model is not fitted, has a step that
    learns without privacy, or has steps with different units.

    >>> from sklearn.pipeline import make_pipeline
    >>> from deniable.learn.sklearn import GaussianNB, StandardScaler, guarantee
    >>> model = make_pipeline(StandardScaler(bounds=(0, 9), mu=0.3), GaussianNB(classes=[0, 1], bounds=(-3, 3), mu=0.4))
    >>> round(guarantee(model.fit([[1.0], [8.0]] * 99, [0, 1] * 99)).curve.gdp(), 6)
    0.5
    """
    parts = list(parts_of(model))
    for each in parts:
        check_is_fitted(each)
    if len({each.guarantee_.unit for each in parts}) != 1:
        raise InvalidOperation(
            "the steps of this pipeline have no guarantee, or guarantees for different units; make all for one unit"
        )
    words = dict.fromkeys(word for each in parts for word in each.guarantee_.assumptions)
    whole = curves.product(each.guarantee_.curve for each in parts)
    return Guarantee(whole, parts[0].guarantee_.unit, assumptions=(*words, *_assumed(model)))


@final
class GridSearch(MetaEstimatorMixin, Private):
    """Cross-validation over a public grid of parameters; report noisy max chooses the winner, which is fitted again.

    For all neighbours D, D′ that differ by one row: with m candidates and k folds, the row is in the training rows of
    m(k−1) fits, whose μ² add up to `search_share` of the total. It adds between 0 and 1 to the score of every
    candidate, always in the same direction, so the noisy maximum with Laplace noise of scale 1/ε is ε-DP; ε is the
    largest that fits into `choose_share` as Gaussian DP. The rest of the budget fits the winner to all rows.

    The fold of each row is drawn independently and kept secret: folds by position would change for every row after a
    new one. A row's score is 1 − (1 − p)², where p is the predicted probability of its label; for a classifier without
    probabilities, 1 if the label is right; for a regressor, 1 − (error/width of the target's bounds)². Only the winner
    is released: scores are computed without noise and stay secret.

    Trials and choice take budget from the last fit, so a search is worth its cost only if the default parameters are
    far from good. `fit` issues a `NoiseHidesWarning` before anything is spent if the trials have more than 3 times the
    noise of one fit without a search: if m(k−1) is more than 9 times `search_share`.

    Give the estimator, or the pipeline of private estimators, without epsilon=, mu= or session=: the search pays.

    >>> import numpy as np
    >>> from deniable.learn.sklearn import GridSearch, LogisticRegression
    >>> X = np.random.default_rng(0).uniform(0, 10, (2000, 2))
    >>> search = GridSearch(
    ...     LogisticRegression(classes=[0, 1], bounds=(0, 10)), {"C": [1e-4, 1.0]}, epsilon=2.0, delta=1e-6
    ... )
    >>> search.fit(X, X[:, 0] > 5).best_params_
    {'C': 1.0}
    >>> search.guarantee_.curve.delta(epsilon=2.0) <= 1e-6
    True
    """

    estimator: Any
    param_grid: Any
    folds: Any
    search_share: Any
    choose_share: Any
    best_index_: int
    best_params_: dict[str, Any]
    best_estimator_: Any

    @stores_arguments
    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        epsilon: Any = None,
        delta: Any = None,
        mu: Any = None,
        session: Any = None,
        folds: Any = 3,
        search_share: Any = 0.4,
        choose_share: Any = 0.1,
    ) -> None: ...

    def fit(self, X: Any, y: Any) -> Self:
        """Choose parameters, and fit the winner to rows `X` with labels or targets `y`."""
        self._require(y)
        rows, target = input_tables.rows_of(X), input_tables.one_column(y)
        input_tables.as_long(rows, target)
        self._warn_of_costly_trials()
        self._pay(rows, target)
        promise, more = self.guarantee_, _assumed(self.best_estimator_)
        self.guarantee_ = Guarantee(promise.curve, promise.unit, assumptions=promise.assumptions + more)
        for each in parts_of(self.best_estimator_):
            each.guarantee_ = self.guarantee_  # the winner also reveals which parameters won
        if hasattr(self.best_estimator_, "n_features_in_"):
            self.n_features_in_ = self.best_estimator_.n_features_in_
        return self

    def _learn(self, purse: Purse, *data: Any) -> dict[str, Any]:
        X, y = data
        candidates, folds, search, choose = self._plan()
        level = Fraction(purse.level(share=search)) ** 2
        each = float_root_down(level / (len(candidates) * (folds - 1)))
        fold = np.asarray(noise.uniform(below=folds, size=_num_samples(X)))
        scores = [self._score(candidate, X, y, fold, folds, each) for candidate in candidates]
        epsilon = pure_within(purse.level(share=choose))
        best = MonotoneNoisyMax(sensitivity=GAIN, scale=GAIN / Fraction(epsilon)).release(scores)
        winner = self._made(candidates[best], purse.level(share=1 - search - choose)).fit(X, y)
        return {
            "best_index_": best,
            "best_params_": candidates[best],
            "best_estimator_": winner,
            **({"classes_": winner.classes_} if is_classifier(winner) else {}),
        }

    def _plan(self) -> tuple[list[dict[str, Any]], int, Fraction, Fraction]:
        """The candidates, the number of folds, and the shares of μ² for the trials and for the choice."""
        candidates = list(ParameterGrid(self.param_grid))
        folds = curve_arguments.integer("folds", self.folds, 2)
        search, choose = part("search_share", self.search_share), part("choose_share", self.choose_share)
        if search + choose >= 1:
            raise InvalidParameter("search_share", self.search_share, "must leave a share for the last fit")
        return candidates, folds, search, choose

    def _warn_of_costly_trials(self) -> None:
        """Warn if the trials are so noisy that the search is likely to lose more than it finds. Public parameters only:
        nothing has been spent yet.
        """
        candidates, folds, search, choose = self._plan()
        trial = math.sqrt(len(candidates) * (folds - 1) / search)
        if len(candidates) > 1 and trial > NOISY_TRIAL:
            last = math.sqrt(1 / (1 - search - choose))
            what = f"the trials have {trial:.1f} times the noise of a fit without search, the last fit {last:.1f} times"
            remedy = (
                "fit the defaults with the whole budget, choose on public data, or try fewer candidates in fewer folds"
            )
            warnings.warn(f"GridSearch: {what}; {remedy}", NoiseHidesWarning, stacklevel=3)

    def _made(self, candidate: dict[str, Any], level: float) -> Any:
        """A candidate whose steps together spend μ = `level`."""
        made = clone(self.estimator).set_params(**candidate)
        steps = list(parts_of(made))
        for step in steps:
            if isinstance(step, GridSearch):
                raise InvalidParameter("estimator", type_of(step), "is itself a GridSearch", "put both grids into one")
            if not (step.epsilon is step.delta is step.mu is step.session is None):
                rule = "has its own budget, but the search sets it"
                raise InvalidParameter("estimator", type_of(step), rule, "leave out epsilon=, delta=, mu= and session=")
            step.set_params(mu=float_root_down(Fraction(level) ** 2 / len(steps)))
        return made

    def _score(self, candidate: dict[str, Any], X: Any, y: Any, fold: Ints, folds: int, level: float) -> int:
        total = 0
        for each in range(folds):
            train, test = np.flatnonzero(fold != each), np.flatnonzero(fold == each)
            model = self._made(candidate, level).fit(_safe_indexing(X, train), _safe_indexing(y, train))
            total += int(gains(model, _safe_indexing(X, test), _safe_indexing(y, test)).sum())
        return total

    @available_if(lambda self: hasattr(self.estimator, "predict"))
    def predict(self, X: Any) -> Any:
        """The winner's predictions."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_proba(self, X: Any) -> Any:
        """The winner's probability of each class."""
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X)

    @available_if(lambda self: hasattr(self.estimator, "decision_function"))
    def decision_function(self, X: Any) -> Any:
        """The winner's scores."""
        check_is_fitted(self)
        return self.best_estimator_.decision_function(X)

    def score(self, X: Any, y: Any) -> float:
        """The winner's score on these rows. Not private: computed without noise."""
        check_is_fitted(self)
        return float(self.best_estimator_.score(X, y))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type, tags.classifier_tags = inner.estimator_type, inner.classifier_tags
        tags.regressor_tags, tags.target_tags = inner.regressor_tags, inner.target_tags
        return tags


@lru_cache(maxsize=64)
def pure_within(mu: float) -> float:
    """The largest ε whose pure ε-DP is μ-GDP: ε = log(Φ(μ/2)/Φ(−μ/2)), rounded down."""
    return float(curves.calibrate(lambda e: curves.pure(epsilon=e), mu=mu))


def gains(model: Any, X: Any, y: Any) -> Ints:
    """What each row adds to the score of a model: an integer from 0 to GAIN that depends on that row alone. Infinite or
    NaN predictions stay in that range.
    """
    with np.errstate(all="ignore"):  # a warning is an output too, so no row may cause one
        return np.clip(_gains(model, X, y), 0, GAIN)


def _gains(model: Any, X: Any, y: Any) -> Ints:
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if not _num_samples(X):
        return np.zeros(0, dtype=np.int64)
    if not is_classifier(last):
        if not hasattr(last, "target_box_"):
            raise InvalidParameter("estimator", type_of(last), "has no score that a search could use")
        box, target = last.target_box_, input_tables.numbers(np.asarray(y))
        missed = np.abs(model.predict(X) - box.clamp(target[:, None])[:, 0]) / (box.high - box.low)
        known = np.clip(np.nan_to_num(missed, nan=1.0), 0.0, 1.0)
        found = np.floor(GAIN * (1 - known**2)).astype(np.int64)
        return np.where(np.isnan(target), 0, found)
    places = places_of(y, last.classes_)
    known = places >= 0
    if hasattr(last, "predict_proba"):
        wrong = LogisticLoss().derivatives(_tables(_scores(model, X)), np.maximum(places, 0))
        row = np.arange(len(places))
        missed = np.abs(wrong[:, 0] if wrong.shape[1] == 1 else wrong[row, np.maximum(places, 0)])
        return np.where(known, GAIN - missed**2, 0)
    right = places_of(model.predict(X), last.classes_) == places
    return np.where(known & right, GAIN, 0)


def _scores(model: Any, X: Any) -> Floats:
    found = model.decision_function(X) if hasattr(model, "decision_function") else _log_density(model, X)
    return found[:, None] if found.ndim == 1 else found - found.max(axis=1, keepdims=True)


def _log_density(model: Any, X: Any) -> Floats:
    if not isinstance(model, Pipeline):
        return np.asarray(model.predict_joint_log_proba(X))
    return np.asarray(model.steps[-1][1].predict_joint_log_proba(model[:-1].transform(X)))


def _tables(scores: Floats) -> Ints:
    return np.clip(np.floor(np.nan_to_num(scores) * FINE), -REACH * FINE, REACH * FINE).astype(np.int64)
