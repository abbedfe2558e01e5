"""A claim, read once: δ at many ε, and the trade-off that these alone promise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from deniable.audit.answer_columns import Floats
from deniable.curves import Curve, curve_arguments
from deniable.errors import InvalidParameter

READ: Final = 160
"""ε at which a claim is read."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Promise:
    """δ <= `deltas` at `epsilons`, in both directions: a part of what a curve says. Refuting it refutes the curve."""

    epsilons: Floats
    deltas: Floats

    @classmethod
    def of(cls, curve: Curve, *, most: float, read: int = READ) -> Promise:
        """Read from ε = 0 to `most`, and at the curve's own pure ε."""
        chosen = np.linspace(0.0, most, read).tolist()
        pure = float(curve.epsilon(delta=0.0))
        if pure < most:
            chosen.append(pure)
        epsilons = np.array(sorted(chosen))
        return cls(epsilons, np.asarray(curve.delta(epsilon=epsilons)))

    @classmethod
    def nothing(cls) -> Promise:
        """That both neighbours have the same law."""
        return cls(np.zeros(1), np.zeros(1))

    def beta(self, alpha: Any) -> Floats:
        """Misses that a test with these false alarms must have: the largest 1 - δ - e^ε α or e^-ε (1 - δ - α)."""
        a = np.asarray(alpha, dtype=float)[..., None]
        odds, left = np.exp(self.epsilons), 1 - self.deltas
        found = np.maximum(left - odds * a, (left - a) / odds).max(axis=-1)
        return np.asarray(np.maximum(0.0, found * (1 - 1e-12) - 1e-15))


def some_delta(delta: Any) -> float:
    """A δ at which an ε can be measured: below 1, as everything is (0, 1)-DP."""
    found = curve_arguments.probability("delta", delta)
    if found >= 1:
        raise InvalidParameter("delta", delta, "must be below 1: every mechanism is (0, 1)-DP")
    return found


def widest(curve: Curve, *, delta: float, limit: float) -> float:
    """ε beyond which the curve has less than `delta`, at most `limit`."""
    found = float(curve.epsilon(delta=delta))
    return min(limit, found) if math.isfinite(found) else limit
