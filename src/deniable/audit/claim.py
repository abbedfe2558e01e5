"""A claimed curve, evaluated once: δ at many ε, and the trade-off function that these values imply."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from deniable.audit.answer_columns import Floats
from deniable.curves import Curve, curve_arguments
from deniable.errors import InvalidParameter

READ: Final = 160
"""The number of ε at which a claim is evaluated."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Promise:
    """δ(ε) <= `deltas` at `epsilons`, in both directions. A curve implies it, so refuting it refutes the curve."""

    epsilons: Floats
    deltas: Floats

    @classmethod
    def of(cls, curve: Curve, *, most: float, read: int = READ) -> Promise:
        """Evaluate a curve at `read` values from ε = 0 to `most`, and at its pure ε if that is below `most`."""
        chosen = np.linspace(0.0, most, read).tolist()
        pure = float(curve.epsilon(delta=0.0))
        if pure < most:
            chosen.append(pure)
        epsilons = np.array(sorted(chosen))
        return cls(epsilons, np.asarray(curve.delta(epsilon=epsilons)))

    @classmethod
    def nothing(cls) -> Promise:
        """The promise that both neighbours have the same output distribution."""
        return cls(np.zeros(1), np.zeros(1))

    def beta(self, alpha: Any) -> Floats:
        """The smallest miss rate at a false-alarm rate α: the largest 1 - δ - e^ε α or e^-ε (1 - δ - α) over all ε."""
        a = np.asarray(alpha, dtype=float)[..., None]
        odds, left = np.exp(self.epsilons), 1 - self.deltas
        found = np.maximum(left - odds * a, (left - a) / odds).max(axis=-1)
        return np.asarray(np.maximum(0.0, found * (1 - 1e-12) - 1e-15))


def some_delta(delta: Any) -> float:
    """A δ at which an ε can be measured. Raises unless it is below 1: every mechanism is (0, 1)-DP."""
    found = curve_arguments.probability("delta", delta)
    if found >= 1:
        raise InvalidParameter("delta", delta, "must be below 1: every mechanism is (0, 1)-DP")
    return found


def widest(curve: Curve, *, delta: float, limit: float) -> float:
    """The ε of the curve at `delta`, or `limit` if that is smaller."""
    found = float(curve.epsilon(delta=delta))
    return min(limit, found) if math.isfinite(found) else limit
