"""Linear models: least squares with a ridge that adapts to the noise, and noisy Newton steps for other losses."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from typing import Any, Final, final

import numpy as np

from deniable.curves import curve_arguments
from deniable.errors import InvalidParameter
from deniable.learn.sklearn.fit_budget import Ints, Purse
from deniable.learn.sklearn.integer_rows import STEPS, Bought, Box, Floats, Gram, longest, part, shrunk, with_one
from deniable.learn.sklearn.noisy_newton import FINE, LogisticLoss, Loss, Slopes, SmoothHinge, column_scores, descend
from deniable.learn.sklearn.private_estimator import (
    PrivateRegressor,
    ProbabilityClassifier,
    ScoreClassifier,
    stores_arguments,
)
from deniable.mechanisms import rational_parameters

MOST_STEPS: Final = 10_000


def left(bounds: Any) -> Fraction:
    """The share of μ² that remains after finding bounds privately; 1 for declared bounds."""
    return 1 - part("share", bounds.share) if isinstance(bounds, Bought) else Fraction(1)


def straight(weights: Floats, box: Box) -> tuple[Floats, Floats]:
    """Coefficients and intercepts for the original features, from weights (a column for each output) for features
    scaled to [−1, 1].
    """
    coefficients = (weights[1:] / box.half[:, None]).T
    return coefficients, weights[0] - coefficients @ box.middle


# -- classifiers -----------------------------------------------------------------------------------------------------


class _LinearClassifier(ScoreClassifier):
    C: Any
    bounds: Any
    steps: Any
    row_norm: Any
    coef_: Floats
    intercept_: Floats
    box_: Box
    _loss: Loss

    def _learn(self, purse: Purse, *data: Any) -> dict[str, Any]:
        X, y, classes = data
        penalty = 1 / curve_arguments.positive("C", self.C)
        steps = _steps(self.steps)
        box = self._box(self.bounds, X, purse)
        square = longest(self.row_norm, X.shape[1] + 1)
        outputs = 1 if len(classes) == 2 else len(classes)
        weights = descend(
            purse,
            shrunk(with_one(box.steps(X)), square),
            y,
            self._loss,
            outputs=outputs,
            square=square,
            steps=steps,
            penalty=penalty,
            share=left(self.bounds),
        )
        coefficients, intercept = straight(weights, box)
        return {"coef_": coefficients, "intercept_": intercept, "classes_": classes, "box_": box}

    def _scores(self, X: Any) -> Floats:
        rows = self._asked(X)  # raises NotFittedError before an attribute of the fit is read
        return column_scores(self.box_.clamp(rows), self.coef_, self.intercept_)


@final
class LogisticRegression(_LinearClassifier, ProbabilityClassifier):
    """Logistic regression by noisy Newton steps; multinomial for more than two classes.

    For all neighbours D, D′ that differ by one row: a row u (features scaled to [−1, 1], and a constant) adds u_i u_j
    to the curvature and (p − y)u to each gradient. These integer vectors have length at most ‖u‖² and ‖u‖ (√2‖u‖ for
    more classes), and with Gaussian noise all releases together are μ-GDP. The number of rows is not used directly; the
    noisy curvature contains it.

    `classes` are all labels that may occur. `bounds` are the bounds of the features: (low, high), or a dict by column.
    `C` is as in scikit-learn, for features scaled to [−1, 1]. `row_norm` scales down longer rows, in units of half the
    width of the bounds, including the constant; by default no row is scaled down.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (2000, 2))
    >>> model = LogisticRegression(classes=[0, 1], bounds=(0, 10), epsilon=1.0, delta=1e-6)
    >>> model.fit(X, X[:, 0] > 5).score(X, X[:, 0] > 5) > 0.9
    True
    >>> model.guarantee_.curve.delta(epsilon=1.0) <= 1e-6
    True

    Source: the bound on the curvature by Böhning & Lindsay (1988); the noise by Balle & Wang (2018).
    """

    _loss = LogisticLoss()

    @stores_arguments
    def __init__(
        self,
        *,
        classes: Any,
        bounds: Any,
        epsilon: Any = None,
        delta: Any = None,
        mu: Any = None,
        session: Any = None,
        C: Any = 1.0,
        steps: Any = 10,
        row_norm: Any = None,
    ) -> None: ...

    def predict_log_proba(self, X: Any) -> Floats:
        """The logarithm of the probability of each class."""
        return np.log(self.predict_proba(X))


@final
class LinearSVC(_LinearClassifier):
    """A linear support vector classifier: the hinge loss with a smoothed corner, by noisy Newton steps.

    For all neighbours D, D′ that differ by one row: as for `LogisticRegression`, with derivatives between −1 and 1 for
    each class (one against the rest), so a row changes all gradients together by at most √k ‖u‖ for k > 2 classes.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (2000, 2))
    >>> model = LinearSVC(classes=["no", "yes"], bounds=(0, 10), epsilon=1.0, delta=1e-6)
    >>> y = np.where(X[:, 0] > 5, "yes", "no")
    >>> model.fit(X, y).score(X, y) > 0.9
    True
    """

    _loss = SmoothHinge()

    @stores_arguments
    def __init__(
        self,
        *,
        classes: Any,
        bounds: Any,
        epsilon: Any = None,
        delta: Any = None,
        mu: Any = None,
        session: Any = None,
        C: Any = 1.0,
        steps: Any = 10,
        row_norm: Any = None,
    ) -> None: ...


def _steps(steps: Any) -> int:
    found = curve_arguments.integer("steps", steps, 1)
    if found > MOST_STEPS:
        raise InvalidParameter("steps", steps, f"must be at most {MOST_STEPS:,}")
    return found


# -- regressors ------------------------------------------------------------------------------------------------------


class _LinearRegressor(PrivateRegressor):
    bounds: Any
    row_norm: Any
    coef_: Floats
    intercept_: float
    box_: Box
    target_box_: Box

    def _answer(self, weights: Floats, box: Box, target: Box) -> dict[str, Any]:
        """The learned attributes, from weights for a target scaled to [−1, 1]."""
        coefficients, intercept = straight(weights[:, None], box)
        half, middle = float(target.half[0]), float(target.middle[0])
        return {
            "coef_": coefficients[0] * half,
            "intercept_": float(intercept[0]) * half + middle,
            "box_": box,
            "target_box_": target,
        }

    def predict(self, X: Any) -> Floats:
        """The predicted target of each row, between the target's bounds."""
        rows = self._asked(X)
        found = column_scores(self.box_.clamp(rows), self.coef_[None, :], np.array([self.intercept_]))
        return np.clip(found[:, 0], self.target_box_.low[0], self.target_box_.high[0])


class _SquaresRegressor(_LinearRegressor):
    def _penalty(self) -> float:
        return 0.0

    def _learn(self, purse: Purse, *data: Any) -> dict[str, Any]:
        X, y, target = data
        penalty = self._penalty()
        box = self._box(self.bounds, X, purse)
        width = X.shape[1] + 2
        square = longest(self.row_norm, width)
        rows = np.concatenate([with_one(box.steps(X)), target.steps(y[:, None])], axis=1)
        gram = Gram.release(shrunk(rows, square), purse, share=left(self.bounds), square=square)
        moments = gram.matrix[:-1, :-1] + np.diag([0.0] + [penalty] * (width - 2))
        # Wang (2018): the smallest ridge that lifts the smallest eigenvalue above the noise.
        ridge = max(0.0, gram.sigma * np.sqrt(width) - float(np.linalg.eigvalsh(moments)[0]))
        weights = np.linalg.solve(moments + ridge * np.eye(width - 1), gram.matrix[:-1, -1])
        return self._answer(weights, box, target)


@final
class LinearRegression(_SquaresRegressor):
    """Least squares from noisy second moments, with a ridge that adapts to the noise (AdaSSP).

    For all neighbours D, D′ that differ by one row: a row u = (1, features, target), each scaled to [−1, 1], adds the
    upper triangle of uuᵀ, a vector of length √((‖u‖⁴ + Σu_i⁴)/2). The sum is released once with Gaussian noise. The
    number of rows is the corner of that matrix, so it is released with the rest.

    `bounds` bound the features, and `target_bounds` the target.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (5000, 2))
    >>> model = LinearRegression(bounds=(0, 10), target_bounds=(0, 30), epsilon=1.0, delta=1e-6)
    >>> model.fit(X, 2 * X[:, 0] + X[:, 1]).coef_.round(0)
    array([2., 1.])

    Source: Wang (2018), "Revisiting differentially private linear regression", algorithm 2; in one release.
    """

    @stores_arguments
    def __init__(
        self,
        *,
        bounds: Any,
        target_bounds: Any,
        epsilon: Any = None,
        delta: Any = None,
        mu: Any = None,
        session: Any = None,
        row_norm: Any = None,
    ) -> None: ...


@final
class Ridge(_SquaresRegressor):
    """Least squares like `LinearRegression`, with the same guarantee and a penalty of at least alpha·‖w‖²/2.

    The penalty applies to features and a target scaled to [−1, 1], and not to the intercept.

    >>> Ridge(alpha=1.0, bounds=(0, 1), target_bounds=(0, 1), epsilon=1.0, delta=1e-6).alpha
    1.0
    """

    alpha: Any

    @stores_arguments
    def __init__(
        self,
        *,
        bounds: Any,
        target_bounds: Any,
        epsilon: Any = None,
        delta: Any = None,
        mu: Any = None,
        session: Any = None,
        alpha: Any = 1.0,
        row_norm: Any = None,
    ) -> None: ...

    def _penalty(self) -> float:
        return float(rational_parameters.not_negative("alpha", self.alpha))


class _SlopesRegressor(_LinearRegressor):
    steps: Any
    alpha: Any

    @abstractmethod
    def _loss(self) -> Loss: ...

    def _learn(self, purse: Purse, *data: Any) -> dict[str, Any]:
        X, y, target = data
        loss, steps = self._loss(), _steps(self.steps)
        penalty = float(rational_parameters.not_negative("alpha", self.alpha))
        box = self._box(self.bounds, X, purse)
        square = longest(self.row_norm, X.shape[1] + 1)
        # Targets scaled to [−1, 1], in the units of scores in the loss's table.
        places: Ints = np.rint(target.steps(y[:, None])[:, 0] * (FINE / STEPS)).astype(np.int64)
        weights = descend(
            purse,
            shrunk(with_one(box.steps(X)), square),
            places,
            loss,
            outputs=1,
            square=square,
            steps=steps,
            penalty=penalty,
            share=left(self.bounds),
        )
        return self._answer(weights[:, 0], box, target)


@final
class HuberRegressor(_SlopesRegressor):
    """Linear regression with Huber's loss by noisy Newton steps: errors beyond `corner` count by their sign only.

    For all neighbours D, D′ that differ by one row: as for `LogisticRegression`, with derivatives between −1 and 1, so
    a row changes a gradient by at most ‖u‖, for any error. `corner` is a fraction of half the width of the target's
    bounds; errors are divided by it.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (5000, 2))
    >>> model = HuberRegressor(bounds=(0, 10), target_bounds=(0, 30), epsilon=1.0, delta=1e-6)
    >>> model.fit(X, 2 * X[:, 0] + X[:, 1]).coef_.round(0)
    array([2., 1.])
    """

    corner: Any

    @stores_arguments
    def __init__(
        self,
        *,
        bounds: Any,
        target_bounds: Any,
        epsilon: Any = None,
        delta: Any = None,
        mu: Any = None,
        session: Any = None,
        corner: Any = 0.25,
        alpha: Any = 0.0,
        steps: Any = 10,
        row_norm: Any = None,
    ) -> None: ...

    def _loss(self) -> Loss:
        return Slopes(low=Fraction(-1), high=Fraction(1), corner=2 * curve_arguments.positive("corner", self.corner))


@final
class QuantileRegressor(_SlopesRegressor):
    """The q-quantile of the target as a linear function of the features, by noisy gradients of the pinball loss.

    For all neighbours D, D′ that differ by one row: as for `LogisticRegression`, with derivatives between −q and 1 − q,
    so a row changes a gradient by at most max(q, 1 − q)‖u‖. The corner of the loss is smoothed over a width `corner`, a
    fraction of half the width of the target's bounds. The gradient of this loss changes slowly, so it needs more steps
    than other losses; averaging the last half of the steps removes most of the noise that they add.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (5000, 1))
    >>> model = QuantileRegressor(quantile=0.5, bounds=(0, 10), target_bounds=(0, 30), epsilon=1.0, delta=1e-6)
    >>> model.fit(X, 2 * X[:, 0] + rng.exponential(1.0, 5000)).coef_.round(0)
    array([2.])
    """

    quantile: Any
    corner: Any

    @stores_arguments
    def __init__(
        self,
        *,
        bounds: Any,
        target_bounds: Any,
        epsilon: Any = None,
        delta: Any = None,
        mu: Any = None,
        session: Any = None,
        quantile: Any = 0.5,
        corner: Any = 0.1,
        alpha: Any = 0.0,
        steps: Any = 100,
        row_norm: Any = None,
    ) -> None: ...

    def _loss(self) -> Loss:
        q = Fraction(curve_arguments.inner_probability("quantile", self.quantile))
        return Slopes(low=-q, high=1 - q, corner=curve_arguments.positive("corner", self.corner))
