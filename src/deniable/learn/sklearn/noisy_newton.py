"""Linear scores fitted by noisy Newton steps, with one noisy curvature matrix for all steps.

If the second derivative of a loss is at most κ, its Hessian is at most κ UᵀU, so Newton steps with that fixed matrix
never overshoot (Böhning & Lindsay 1988). UᵀU is released first, for a fixed share of the budget; every step then
releases one noisy gradient.

*All contributions of a row are exact.* Its score is an integer (steps times rounded weights). The derivative of the
loss at that score comes from a table of integers. Derivative times row is a vector of integers. So the sensitivity of
a gradient is Q·‖u‖, where Q is the largest derivative in the table's units, without any rounding error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from deniable.learn.sklearn.fit_budget import Ints, Purse
from deniable.learn.sklearn.integer_rows import STEPS, Floats, Gram, products

UNIT: Final = 2**12
"""A derivative of 1, in the units of the tables."""
FINE: Final = 2**10
"""Table entries per unit of score."""
REACH: Final = 16
"""Scores are clipped to [−REACH, REACH]."""
CURVATURE_SHARE: Final = Fraction(1, 10)
"""The share of μ² for the curvature; the gradients share the rest."""
LARGEST_WEIGHT: Final = 2.0**10

Tables = NDArray[np.int64]


class Loss(ABC):
    """A convex loss of scores. Its derivative is an integer in UNITs, as a function of places in a table of scores."""

    curvature: float
    """The largest second derivative."""

    @abstractmethod
    def derivatives(self, places: Ints, targets: Ints) -> Ints:
        """The derivative with respect to each score, in UNITs. For each row, it depends on that row alone."""

    @abstractmethod
    def square(self, outputs: int) -> int:
        """The largest sum of squared derivatives of a row, in UNITs²."""


@lru_cache(maxsize=8)
def places(*, low: int, high: int) -> Floats:
    """The scores at places `low`, …, `high` of a table."""
    return np.arange(low, high + 1) / FINE


@final
class LogisticLoss(Loss):
    """log(1 + e^(−ys)) for one score, and the cross entropy of a softmax for several."""

    curvature = 0.25

    def derivatives(self, places: Ints, targets: Ints) -> Ints:
        if places.shape[1] == 1:
            shares: Tables = _sigmoid()[places + REACH * FINE] - UNIT * targets[:, None]
            return shares
        # Rounded down, so that the probabilities of a row add up to at most UNIT.
        weights: Tables = _exponential()[places - places.max(axis=1, keepdims=True) + 2 * REACH * FINE]
        found = UNIT * weights // weights.sum(axis=1, keepdims=True)
        found[np.arange(len(found)), targets] -= UNIT
        return np.asarray(found)

    def square(self, outputs: int) -> int:
        """The largest squared length of one row's residuals, in units of 1/UNIT². With one score, p − y lies in [−1,
        1]. With several, (1 − p_y)² + Σ p_k² over the other classes is at most 2.
        """
        return UNIT**2 if outputs == 1 else 2 * UNIT**2


@lru_cache(maxsize=1)
def _sigmoid() -> Tables:
    scores = places(low=-REACH * FINE, high=REACH * FINE)
    return np.asarray(np.rint(UNIT / (1 + np.exp(-scores))), dtype=np.int64)


@lru_cache(maxsize=1)
def _exponential() -> Tables:
    return np.asarray(np.rint(2**20 * np.exp(places(low=-2 * REACH * FINE, high=0))), dtype=np.int64)


@final
class SmoothHinge(Loss):
    """max(0, 1 − ys), smoothed between ys = ½ and ys = 3/2; one against the rest for several classes."""

    curvature = 1.0

    def derivatives(self, places: Ints, targets: Ints) -> Ints:
        outputs = places.shape[1]
        label = np.arange(outputs) if outputs > 1 else 1
        signs = np.where(targets[:, None] == label, 1, -1)
        # The derivative in ys: −1 below ½, 0 above 3/2, linear in between.
        return np.asarray(-signs * np.clip((3 * FINE // 2 - signs * places) * (UNIT // FINE), 0, UNIT))

    def square(self, outputs: int) -> int:
        """Every derivative lies in [−1, 1]."""
        return outputs * UNIT**2


@final
class Slopes(Loss):
    """A loss of score − target whose derivative rises linearly from `low` to `high` over a width `corner`: Huber's
    loss, and the smoothed pinball loss of quantiles.
    """

    def __init__(self, *, low: Fraction, high: Fraction, corner: float) -> None:
        self.low, self.high, self.corner = low, high, corner
        self.curvature = float(high - low) / corner

    def derivatives(self, places: Ints, targets: Ints) -> Ints:
        # Elementwise operations with correct rounding: each row's result depends on that row alone.
        away = (places - targets[:, None]).astype(np.float64)
        slope = float(self.high - self.low) * UNIT / (self.corner * FINE)
        middle = float(self.high + self.low) / 2 * UNIT
        return np.rint(np.clip(away * slope + middle, self._least, self._most)).astype(np.int64)

    @property
    def _least(self) -> int:
        return -int(-self.low * UNIT)

    @property
    def _most(self) -> int:
        return int(self.high * UNIT)

    def square(self, outputs: int) -> int:
        """Every derivative lies between `low` and `high`."""
        return outputs * max(self._least**2, self._most**2)


def descend(
    purse: Purse,
    U: Floats,
    targets: Ints,
    loss: Loss,
    *,
    outputs: int,
    square: int,
    steps: int,
    penalty: float,
    share: Fraction,
) -> Floats:
    """Weights of linear scores, a column for each output, from `steps` noisy Newton steps paid with `share` of μ².

    `square` is the largest squared length of a row of U. The penalty `penalty`·‖w‖²/2 applies to all weights except the
    intercept. Returns the mean of the weights over the last half of the steps.
    """
    width = U.shape[1]
    gram = Gram.release(U, purse, share=share * CURVATURE_SHARE, square=square)
    held = np.full(width, penalty)
    held[0] = 0.0
    inverse = _inverse(gram, loss.curvature * (2.0 if outputs > 1 else 1.0), held)
    rest = share * (1 - CURVATURE_SHARE)
    sums = purse.sums(share=rest, square=loss.square(outputs) * square, size=width * outputs, times=steps)
    weights, mean = np.zeros((width, outputs)), np.zeros((width, outputs))
    kept = steps - steps // 2
    for step in range(steps):
        slopes = loss.derivatives(places_of_scores(U, weights), targets).astype(np.float64)
        exact = products(U, slopes, largest=STEPS * UNIT)
        gradient = sums.release(exact) / (STEPS * UNIT) + held[:, None] * weights
        weights = np.clip(weights - inverse @ gradient, -LARGEST_WEIGHT, LARGEST_WEIGHT)
        if step >= steps - kept:
            mean += weights / kept
    return mean


def _inverse(gram: Gram, curvature: float, held: Floats) -> Floats:
    """The inverse of the noisy curvature, with eigenvalues increased by 2σ√d. That is nearly the spectral norm of the
    noise matrix (Wigner's semicircle law), so the noise cannot make the steps too large.
    """
    found, vectors = np.linalg.eigh(curvature * gram.matrix + np.diag(held))
    lifted = np.maximum(found, 0.0) + 2 * curvature * gram.sigma * np.sqrt(len(found))
    return np.asarray((vectors / lifted) @ vectors.T)


def places_of_scores(U: Floats, weights: Floats) -> Ints:
    """The place in the tables of every score u·w, from −REACH·FINE to REACH·FINE. Exact for rounded weights."""
    bits = min(16, 52 - 16 - 10 - int(np.ceil(np.log2(U.shape[1]))))
    exact = U @ np.rint(weights * 2.0**bits)  # every partial sum is an integer below 2⁵²
    scaled = np.floor(exact * (FINE / (STEPS * 2.0**bits)))
    return np.clip(scaled, -REACH * FINE, REACH * FINE).astype(np.int64)


def column_scores(X: Floats, coefficients: Any, intercept: Any) -> Floats:
    """intercept + Xw, added feature by feature, so that a row's score depends on that row alone, to the last digit."""
    found = np.full((len(X), len(intercept)), intercept, dtype=np.float64)
    for j in range(X.shape[1]):
        found += X[:, j : j + 1] * coefficients[:, j]
    return found
