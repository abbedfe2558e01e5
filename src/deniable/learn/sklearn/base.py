"""What all private estimators share: who pays, what is declared, and rules for every possible row.

Neighbours are tables that differ by one row added or removed, so the number of rows is private, and nothing here needs
it. An error is an output too: nothing that a row says, not even that there are none, raises one. Rows have these rules:

=====================================  =================================================================================
a feature beyond its bounds            counts as the bound
NaN or missing                         counts as the middle of the bounds (additive models give it a bin of its own)
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
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from deniable.errors import NOTHING, InvalidParameter
from deniable.learn.sklearn.purse import Account, Ints, Purse
from deniable.learn.sklearn.rows import Bought, Box, Floats
from deniable.mechanisms import values
from deniable.units import Guarantee


class Private(BaseEstimator, ABC):
    """An estimator that looks at rows through a purse only."""

    epsilon: Any
    delta: Any
    mu: Any
    session: Any
    guarantee_: Guarantee
    """What holds for everything that `fit` learnt, for all tables that differ by the guarantee's unit."""

    def _pay(self, *data: Any) -> Self:
        """Learn from data that was validated, and show what was learnt when it is paid for."""
        account = Account.of(epsilon=self.epsilon, delta=self.delta, mu=self.mu, session=self.session)
        words = f"fit of {copy.copy(self)!r}"[:1000]  # a copy has no session to be described
        learnt = account.pay(words, lambda purse: self._learn(purse, *data))
        for name, value in learnt.items():
            setattr(self, name, value)
        self.guarantee_ = account.guarantee
        return self

    @abstractmethod
    def _learn(self, purse: Purse, *data: Any) -> dict[str, Any]:
        """What is learnt, by attribute. The rows in `data` may go into sums of `purse`, and nowhere else."""

    def _table(self, X: Any, *, reset: bool) -> Floats:
        """X as floats. Its width, type and column names are public; what its rows say raises nothing."""
        try:
            found = validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=0)
        except ValueError as error:
            if "could not convert" not in str(error):
                raise
            # numpy quotes the text that it could not read.
            raise InvalidParameter("X", NOTHING, "must hold numbers only", "encode other columns first") from None
        return np.asarray(found)

    def _asked(self, X: Any) -> Floats:
        """Rows to be judged by what was learnt."""
        check_is_fitted(self)
        return self._table(X, reset=False)

    def _target(self, X: Any, y: Any) -> tuple[Floats, Any]:
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None")
        table = self._table(X, reset=True)
        target = column_or_1d(y, warn=True)
        check_consistent_length(table, target)
        return table, target

    def _box(self, bounds: Any, X: Floats, purse: Purse) -> Box:
        """The bounds of the features, declared or bought."""
        if isinstance(bounds, Bought):
            return bounds.release(X, purse)
        return Box.of(bounds, features=X.shape[1], names=getattr(self, "feature_names_in_", None))

    def __sklearn_clone__(self) -> Self:
        # A session is an account; a copy of it would be a second one.
        made: Self = super().__sklearn_clone__() if self.session is None else copy.copy(self).__sklearn_clone__()
        made.session = self.session
        return made

    def __getstate__(self) -> dict[str, Any]:
        # What was learnt may travel; the account it was paid from may not.
        return {**super().__getstate__(), "session": None}

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
        places = places_of(target, classes)
        kept = places >= 0
        self._pay(table[kept], places[kept], classes)
        return self

    def _labels(self) -> Any:
        """The labels, which must be public: which ones occur is not looked at."""
        return declared(self.classes)


class PrivateRegressor(RegressorMixin, Private):
    """A regressor whose target has public bounds."""

    target_bounds: Any

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows `X` with targets `y`."""
        table, target = self._target(X, y)
        numbers = values.column(target)
        kept = ~np.isnan(numbers)
        target_box = Box.of(self.target_bounds, features=1, parameter="target_bounds")
        self._pay(table[kept], numbers[kept], target_box)
        return self


def declared(classes: Any) -> Any:
    """The public labels, sorted."""
    if classes is None or isinstance(classes, str | bytes) or not isinstance(classes, Iterable):
        remedy = "which labels occur in the data is private: declare all that may, as in classes=[0, 1]"
        raise InvalidParameter("classes", classes, "must be a list of labels", remedy)
    listed = list(classes)
    try:
        given = np.asarray(listed)
        found = np.unique(given)
    except (TypeError, ValueError):
        raise InvalidParameter("classes", NOTHING, "must be labels of one kind, which can be sorted") from None
    if given.ndim != 1 or len(found) < 2 or len(found) != len(listed) or _has_nan(found):
        raise InvalidParameter("classes", NOTHING, "must be two different labels or more, none of them missing")
    return found


def _has_nan(labels: Any) -> bool:
    return labels.dtype.kind == "f" and bool(np.isnan(labels).any())


def places_of(y: Any, classes: Any) -> Ints:
    """Which of the classes each label is; −1 if none."""
    known = {label: place for place, label in enumerate(classes.tolist())}
    return np.array([_place(known, label) for label in np.asarray(y).tolist()], dtype=np.int64)


def _place(known: dict[Any, int], label: Any) -> int:
    try:
        return known.get(label, -1)
    except TypeError:  # a label that cannot be hashed is none of them
        return -1
