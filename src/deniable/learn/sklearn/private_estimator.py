"""What all private estimators share: who pays, what is declared, and rules for every possible row.

Neighbours are tables that differ by one row added or removed, so the number of rows is private, and nothing here needs
it. An error is an output too: nothing that a row says, not even that there are none, raises one. Rows have these rules:

=====================================  =================================================================================
a feature beyond its bounds            counts as the bound
NaN, missing or no number              counts as the middle of the bounds (additive models give it a bin of its own)
a label that is not among `classes`    the row is left out, as if it were not there
a target that is NaN                   the row is left out; beyond its bounds, it counts as the bound
=====================================  =================================================================================
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from deniable.errors import NOTHING, InvalidParameter
from deniable.learn.sklearn import input_tables
from deniable.learn.sklearn.fit_budget import FitAccount, Ints, LeftBehind, Purse
from deniable.learn.sklearn.integer_rows import Bought, Box, Floats
from deniable.units import Guarantee


class Private(BaseEstimator, ABC):
    """An estimator that looks at rows through a purse only."""

    epsilon: Any
    delta: Any
    mu: Any
    session: Any
    guarantee_: Guarantee
    """What holds for everything that `fit` learnt, for all tables that differ by the guarantee's unit."""

    def _pay(self, *rows: Any, public: tuple[Any, ...] = ()) -> Self:
        """Learn from rows that were validated, and show what was learnt when it is paid for.

        With a ledger, a fit to none of the rows comes first: what is wrong with a parameter is then free of charge.
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
        return self

    def _without_session(self) -> Self:
        made = copy.copy(self)
        made.session = None
        return made

    @abstractmethod
    def _learn(self, purse: Purse, *data: Any) -> dict[str, Any]:
        """What is learnt, by attribute. The rows in `data` may go into sums of `purse`, and nowhere else."""

    def _table(self, X: Any, *, reset: bool) -> Floats:
        """X as floats. Its width, type and column names are public; what its rows say raises nothing."""
        found = input_tables.table(X)
        # Of a list scikit-learn would look at the first row.
        validate_data(self, X if hasattr(X, "shape") else found, reset=reset, skip_check_array=True)
        return found

    def _asked(self, X: Any) -> Floats:
        """Rows to be judged by what was learnt."""
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
        """The bounds of the features, declared or bought."""
        if isinstance(bounds, Bought):
            return bounds.release(X, purse)
        return Box.of(bounds, features=X.shape[1], names=getattr(self, "feature_names_in_", None))

    def __sklearn_clone__(self) -> Self:
        # A session is an account; a copy of it would be a second one.
        made: Self = BaseEstimator.__sklearn_clone__(self if self.session is None else self._without_session())
        made.session = self.session
        return made

    def __getstate__(self) -> dict[str, Any]:
        # What was learnt may travel; the account it was paid from may not, and nothing may be spent in its stead.
        state: dict[str, Any] = super().__getstate__()
        return {**state, "session": None if self.session is None else LeftBehind()}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "guarantee_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = True
        return tags


class PrivateClassifier(ClassifierMixin, Private):
    """A classifier whose labels are declared."""

    classes: Any
    classes_: Any

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows `X` with labels `y`."""
        table, target = self._target(X, y)
        classes = self._labels()
        of_one_kind(target, classes)
        places = places_of(target, classes)
        kept = places >= 0
        return self._pay(table[kept], places[kept], public=(classes,))

    def _labels(self) -> Any:
        """The labels, which must be public: which ones occur is not looked at."""
        return declared(self.classes)


class PrivateRegressor(RegressorMixin, Private):
    """A regressor whose target has public bounds."""

    target_bounds: Any

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows `X` with targets `y`."""
        table, target = self._target(X, y)
        numbers = input_tables.numbers(target)
        kept = ~np.isnan(numbers)
        target_box = Box.of(self.target_bounds, features=1, parameter="target_bounds")
        return self._pay(table[kept], numbers[kept], public=(target_box,))


def declared(classes: Any) -> Any:
    """The public labels, sorted."""
    if classes is None or isinstance(classes, str | bytes) or not isinstance(classes, Iterable):
        remedy = "which labels occur in the data is private: declare all that may, as in classes=[0, 1]"
        raise InvalidParameter("classes", classes, "must be a list of labels", remedy)
    listed = list(classes)
    kinds = "must be labels of one kind, which can be sorted"
    try:
        given = np.asarray(listed)
        found = np.unique(given)
    except (TypeError, ValueError):
        raise InvalidParameter("classes", NOTHING, kinds) from None
    if given.dtype.kind == "U" and not all(isinstance(label, str) for label in listed):
        raise InvalidParameter("classes", NOTHING, kinds, "a number beside a text would be taken for a text")
    if given.ndim != 1 or len(found) < 2 or len(found) != len(listed) or _has_nan(found):
        raise InvalidParameter("classes", NOTHING, "must be two different labels or more, none of them missing")
    return found


def _has_nan(labels: Any) -> bool:
    return labels.dtype.kind == "f" and bool(np.isnan(labels).any())


def of_one_kind(y: Any, classes: Any) -> None:
    """Refuses labels none of which can be declared, as far as types tell: they are public, and which labels occur is
    not.
    """
    texts, numbers = "US", "biuf"
    kinds = y.dtype.kind, classes.dtype.kind
    if (kinds[0] in texts and kinds[1] in numbers) or (kinds[0] in numbers and kinds[1] in texts):
        rule = "are texts where y holds numbers, or the other way round"
        raise InvalidParameter("classes", NOTHING, rule, "declare labels as they stand in y")


def places_of(y: Any, classes: Any) -> Ints:
    """Which of the classes each label is; −1 if none."""
    known = {label: place for place, label in enumerate(classes.tolist())}
    return np.array([_place(known, label) for label in np.asarray(y).tolist()], dtype=np.int64)


def _place(known: dict[Any, int], label: Any) -> int:
    try:
        return known.get(label, -1)
    except Exception:  # a label that cannot be hashed or compared is none of them
        return -1
