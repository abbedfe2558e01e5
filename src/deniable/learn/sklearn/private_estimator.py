"""The base classes of private estimators: payment, declared labels and bounds, and a rule for every possible row.

Neighbours are tables that differ by one row added or removed. So the number of rows is private, and no estimator needs
it. An error is an output too, so no content of a row, and not even an empty table, may raise one. The rules for rows:

=====================================  =================================================================================
a feature beyond its bounds            counts as the bound
NaN, missing or not a number           counts as the middle of the bounds (additive models have a separate bin for it)
a label that is not among `classes`    the row is left out
a target that is NaN                   the row is left out; beyond its bounds, it counts as the bound
=====================================  =================================================================================
"""

from __future__ import annotations

import copy
import functools
import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Final, Self, TypeVar, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from deniable.errors import NOTHING, InvalidParameter, NoiseHidesWarning
from deniable.learn.sklearn import input_tables
from deniable.learn.sklearn.fit_budget import FitAccount, Ints, LeftBehind, Purse
from deniable.learn.sklearn.integer_rows import Bought, Box, Floats
from deniable.units import Guarantee

LOUDER: Final = "spend more (epsilon=), declare narrower bounds, or use more rows and fewer columns"
"""What helps against noise."""

Init = TypeVar("Init", bound=Callable[..., None])


def stores_arguments(init: Init) -> Init:
    """Decorates an `__init__` without a body: each argument is stored under its own name, as scikit-learn requires.

    The signature stays written out in each estimator, because scikit-learn reads parameters from it, and so do help and
    completion. They are checked by `fit`, not here.
    """
    signature = inspect.signature(init)

    @functools.wraps(init)
    def stored(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)  # raises Python's own TypeError for wrong arguments
        given = signature.bind(self, *args, **kwargs)
        given.apply_defaults()
        _, *parameters = given.arguments.items()
        for name, value in parameters:
            setattr(self, name, value)

    return cast(Init, stored)


class Private(BaseEstimator, ABC):
    """An estimator that uses rows only through a `Purse`."""

    epsilon: Any
    delta: Any
    mu: Any
    session: Any
    guarantee_: Guarantee
    """The guarantee of everything that `fit` learned, for all tables that differ by one of its units."""

    def _pay(self, *rows: Any, public: tuple[Any, ...] = ()) -> Self:
        """Learn from validated rows, and set the learned attributes after the payment is complete.

        With a ledger, a fit to an empty table comes first, so that errors in parameters are free of charge.
        """
        account = FitAccount.of(epsilon=self.epsilon, delta=self.delta, mu=self.mu, session=self.session)
        nobody = [each[:0] for each in rows]
        learnt = account.pay(
            f"fit of {self._without_session()!r}"[:1000],
            lambda purse: self._learn(purse, *rows, *public),
            rehearse=lambda purse: self._learn(purse, *nobody, *public),
        )
        for name, value in learnt.items():
            setattr(self, name, value)
        self.guarantee_ = account.guarantee
        if hidden := self._hidden():
            what = f"{type(self).__name__}: the noise hides {hidden}"
            warnings.warn(f"{what}; {LOUDER}", NoiseHidesWarning, stacklevel=3)  # at the line that called fit
        return self

    def _hidden(self) -> str:
        """What the noise of this fit hides, in words; "" if nothing. It must follow from released values only."""
        return ""

    def _without_session(self) -> Self:
        made = copy.copy(self)
        made.session = None
        return made

    @abstractmethod
    def _learn(self, purse: Purse, *data: Any) -> dict[str, Any]:
        """The learned attributes by name. The rows in `data` may be used only as `Purse` allows."""

    def _table(self, X: Any, *, reset: bool) -> Floats:
        """X as floats. Its width, type and column names are public; its cells cannot raise an error."""
        found = input_tables.table(X)
        # For a list, scikit-learn would inspect the first row.
        validate_data(self, X if hasattr(X, "shape") else found, reset=reset, skip_check_array=True)
        return found

    def _asked(self, X: Any) -> Floats:
        """Rows for prediction or transformation, as floats. Raises if the estimator is not fitted."""
        check_is_fitted(self)
        return self._table(X, reset=False)

    def _require(self, y: Any) -> None:
        if y is None:
            rule = f"is missing. This {type(self).__name__} estimator requires y to be passed, but the target y is None"
            raise InvalidParameter("y", NOTHING, rule)

    def _target(self, X: Any, y: Any) -> tuple[Floats, Any]:
        self._require(y)
        table, target = self._table(X, reset=True), input_tables.one_column(y)
        input_tables.as_long(table, target)
        return table, target

    def _box(self, bounds: Any, X: Floats, purse: Purse) -> Box:
        """The bounds of the features, declared or found privately."""
        if isinstance(bounds, Bought):
            return bounds.release(X, purse)
        return Box.of(bounds, features=X.shape[1], names=getattr(self, "feature_names_in_", None))

    def __sklearn_clone__(self) -> Self:
        # A session is an account: a copy of it would be a second account.
        made: Self = BaseEstimator.__sklearn_clone__(self if self.session is None else self._without_session())
        made.session = self.session
        return made

    def __getstate__(self) -> dict[str, Any]:
        # Learned attributes may be pickled; the session, an account, may not, and must not be silently dropped.
        state: dict[str, Any] = super().__getstate__()
        return {**state, "session": None if self.session is None else LeftBehind()}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "guarantee_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True  # a text in a column of objects counts as missing, and raises no error
        return tags


class PrivateClassifier(ClassifierMixin, Private):
    """A classifier with declared labels."""

    classes: Any
    classes_: Any

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows `X` with labels `y`. Raises `InvalidParameter` for wrong parameters, never for a row."""
        table, target = self._target(X, y)
        classes = self._labels()
        of_one_kind(target, classes)
        places = places_of(target, classes)
        kept = places >= 0
        return self._pay(table[kept], places[kept], public=(classes,))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # by scikit-learn's measure: on 300 rows, noise may hide the signal
        return tags

    def _labels(self) -> Any:
        """The declared labels. Which of them occur in the data is private and not used."""
        return declared(self.classes)


class ScoreClassifier(PrivateClassifier):
    """A classifier that predicts the label with the highest score."""

    @abstractmethod
    def _scores(self, X: Any) -> Floats:
        """A row of scores for each row: a single one for two classes, one for each class otherwise."""

    def decision_function(self, X: Any) -> Floats:
        """The score of each row: one number for two classes, one for each class otherwise."""
        found = self._scores(X)
        return found[:, 0] if len(self.classes_) == 2 else found

    def predict(self, X: Any) -> Any:
        """The label with the highest score."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]


class ProbabilityClassifier(ScoreClassifier):
    """A classifier whose scores give probabilities: one log-odds for two classes, else the logits of a softmax."""

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            from scipy.special import expit

            return np.column_stack([expit(-scores), expit(scores)])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))


class PrivateRegressor(RegressorMixin, Private):
    """A regressor with public bounds for its target."""

    target_bounds: Any

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows `X` with targets `y`. Raises `InvalidParameter` for wrong parameters, never for a row."""
        table, target = self._target(X, y)
        numbers = input_tables.numbers(target)
        kept = ~np.isnan(numbers)
        target_box = Box.of(self.target_bounds, features=1, parameter="target_bounds")
        return self._pay(table[kept], numbers[kept], public=(target_box,))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # by scikit-learn's measure: on 200 rows, noise may hide the signal
        return tags


def declared(classes: Any) -> Any:
    """The public labels, sorted. Raises unless there are at least two different labels of one type."""
    if classes is None or isinstance(classes, str | bytes) or not isinstance(classes, Iterable):
        remedy = "which labels occur in the data is private: declare all that may occur, as in classes=[0, 1]"
        raise InvalidParameter("classes", classes, "must be a list of labels", remedy)
    listed = list(classes)
    kinds = "must be labels of one kind, which can be sorted"
    try:
        given = np.asarray(listed)
        found = np.unique(given)
    except (TypeError, ValueError):
        raise InvalidParameter("classes", NOTHING, kinds) from None
    if given.dtype.kind == "U" and not all(isinstance(label, str) for label in listed):
        raise InvalidParameter("classes", NOTHING, kinds, "give only numbers or only texts")
    if given.ndim != 1 or len(found) < 2 or len(found) != len(listed) or _has_nan(found):
        raise InvalidParameter("classes", NOTHING, "must be at least two different labels, none of them missing")
    return found


def _has_nan(labels: Any) -> bool:
    return labels.dtype.kind == "f" and bool(np.isnan(labels).any())


def of_one_kind(y: Any, classes: Any) -> None:
    """Raise if y has texts and the classes are numbers, or the reverse. Types are public; the labels that occur are
    not."""
    texts, numbers = "US", "biuf"
    kinds = y.dtype.kind, classes.dtype.kind
    if (kinds[0] in texts and kinds[1] in numbers) or (kinds[0] in numbers and kinds[1] in texts):
        rule = "must be texts if y has texts, and numbers if y has numbers"
        raise InvalidParameter("classes", NOTHING, rule, "declare labels as they are in y")


def places_of(y: Any, classes: Any) -> Ints:
    """The index of each label among the classes; −1 for an undeclared label."""
    known = {label: place for place, label in enumerate(classes.tolist())}
    return np.array([_place(known, label) for label in np.asarray(y).tolist()], dtype=np.int64)


def _place(known: dict[Any, int], label: Any) -> int:
    try:
        return known.get(label, -1)
    except Exception:  # a label that cannot be hashed or compared is undeclared
        return -1
