"""Small models to attack, with numpy only: logistic regression and nearest neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from deniable.attacks.anonymity_measures import column_names, columns
from deniable.errors import NOTHING, InvalidParameter

Floats = NDArray[np.float64]
Bits = NDArray[np.bool_]

STEPS: Final = 100
CLOSE: Final = 1e-10
"""Training stops at this gradient norm. The weights are then within CLOSE/λ of the minimiser."""


def numbers(table: Any) -> Floats:
    """A matrix of finite numbers, from an array of two dimensions or a table of numeric columns. Raises otherwise."""
    try:
        if isinstance(table, np.ndarray) and table.dtype.names is None:
            found = np.asarray(table, dtype=np.float64)
        else:
            found = np.stack([one.astype(np.float64) for one in columns(table, column_names(table))], axis=1)
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidParameter):
            raise
        raise InvalidParameter("features", NOTHING, "must be columns of numbers") from None
    if found.ndim != 2 or not found.size or not np.isfinite(found).all():
        raise InvalidParameter("features", NOTHING, "must be rows of finite numbers, none missing")
    return found


def features_of(features: Any, labels: Any) -> tuple[Floats, Bits]:
    """Features scaled by `unit_rows`, and labels as booleans. Raises `InvalidParameter` unless labels are 0 or 1."""
    raw = numbers(features)
    given = np.asarray(labels)
    if given.shape != raw.shape[:1] or given.dtype.kind not in "biuf" or not np.all((given == 0) | (given == 1)):
        raise InvalidParameter("labels", NOTHING, "must be yes or no (1 or 0), one for each row of the features")
    return unit_rows(raw), given == 1


def unit_rows(raw: Floats) -> Floats:
    """Rows of norm at most 1: columns standardised, a constant 1 added, longer rows scaled down.

    The scale comes from the public pool of people, not from a training set.
    """
    spread = raw.std(axis=0)
    scaled = (raw - raw.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    whole = np.column_stack([np.ones(len(raw)), scaled])
    # Half of the rows are scaled down to the unit sphere, the others lie inside.
    whole /= np.median(np.linalg.norm(whole, axis=1))
    length = np.linalg.norm(whole, axis=1, keepdims=True)
    return np.asarray(whole / np.maximum(length, 1.0) * (1 - 1e-12))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticModel:
    """Logistic regression with penalty λ/2 ‖w‖² on the mean loss, trained by Newton's method."""

    penalty: float

    def sensitivity(self, people: int) -> float:
        """The L2 sensitivity of the weights to one replaced person: 2/(nλ), because the gradient of the loss is at most
        ‖x‖ <= 1 and the objective is λ-strongly convex (Chaudhuri et al. 2011, Corollary 8), plus 2·CLOSE/λ for inexact
        training.
        """
        return (2 / (people * self.penalty) + 2 * CLOSE / self.penalty) * (1 + 1e-12)

    def fit(self, x: Floats, y: Bits) -> Floats:
        """The weights, up to CLOSE in the gradient. Raises `InvalidParameter` if training does not converge."""
        sign = np.where(y, 1.0, -1.0)
        signed = x * sign[:, None]
        weights = np.zeros(x.shape[1])
        eye = self.penalty * np.eye(x.shape[1])
        for _ in range(STEPS):
            wrong = 1 / (1 + np.exp(np.clip(signed @ weights, -700, 700)))
            gradient = self.penalty * weights - signed.T @ wrong / len(x)
            if np.linalg.norm(gradient) <= CLOSE:
                return weights
            curvature = (signed * (wrong * (1 - wrong))[:, None]).T @ signed / len(x) + eye
            weights = self._down(signed, weights, gradient, np.asarray(np.linalg.solve(curvature, gradient), float))
        raise InvalidParameter("penalty", self.penalty, "is too small for training to converge", "take a larger one")

    def _down(self, signed: Floats, weights: Floats, gradient: Floats, step: Floats) -> Floats:
        """A Newton step, halved until the objective decreases."""
        size, now = 1.0, self._objective(signed, weights)
        while size > 1e-10:
            new = weights - size * step
            if self._objective(signed, new) <= now - 1e-4 * size * float(gradient @ step) + 1e-15:
                return np.asarray(new)
            size /= 2
        return np.asarray(weights - step)

    def _objective(self, signed: Floats, weights: Floats) -> float:
        return float(np.mean(np.logaddexp(0, -(signed @ weights))) + self.penalty / 2 * weights @ weights)

    def odds(self, weights: Floats, x: Floats, y: bool) -> float:
        """The log-odds that the model assigns to the true label."""
        return float((1 if y else -1) * (x @ weights))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Nearest neighbours: the share of yes among people, each with weight e^(-d²/2h²) at a distance d."""

    width: float

    def yes(self, x: Floats, y: Bits, points: Floats) -> Floats:
        """The predicted probability of yes at these points, for a model trained on (x, y)."""
        distance = np.sum((points[:, None, :] - x[None, :, :]) ** 2, axis=2)
        weight = np.exp(-(distance - distance.min(axis=1, keepdims=True)) / (2 * self.width**2))
        return np.asarray(weight @ y / weight.sum(axis=1))
