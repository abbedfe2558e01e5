"""A lower bound on ε from the losses that are likely: it needs no lattice of the product, for any number of uses.

If the total loss exceeds t with a P-probability of at least 5/8, then δ(t - log 8) >= 5/8 - 1/8. For a sum of very
many losses, t is close to the mean. The probability of a smaller loss is bounded by the affinity of P and Q,

    P(L <= t) <= e^(τt) E_P e^(-τL),    E_P e^(-τL) = ∫ p^(1-τ) q^τ <= Σ_cells P(cell)^(1-τ) Q(cell)^τ    (Hölder),

for 0 < τ < 1, where E_P e^(-τL) of a product is the product of the factors'. It should be at most 1/4.
P-mass that a lower law has lost may have any loss: all uses together may lose 1/8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from deniable.curves.composition import lattice
from deniable.curves.composition.tilt_plan import SKETCH_TAIL, Factor
from deniable.curves.laws.law import Law
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats

CELLS = 4000
ORDERS = 2.0 ** np.arange(-60.0, 0.0)
MOST_LOST = 1 / 8
LEAST_DELTA = 0.5
"""The bound says something about a smaller δ."""


def likely_epsilon(factors: Sequence[Factor]) -> float:
    """An ε with δ(ε) >= LEAST_DELTA; 0 if none is found."""
    total, lost = np.zeros_like(ORDERS), 0.0
    for law, uses in factors:
        total = total + uses * log_affinities(law)
        lost += uses * _lost(law)
    if lost > MOST_LOST:
        return 0.0
    at = np.max((math.log(0.25) - total) / ORDERS)
    return max((float(at) - math.log(1 / MOST_LOST)) * (1 - 1e-9), 0.0)


def _lost(law: Law) -> float:
    """The P-mass that a lower law lacks to a total of 1, beyond rounding."""
    least = lattice.reach(law, SKETCH_TAIL)[0]
    first, _, error = law.tails(np.array([least - 1 - abs(least)]))
    return max(1.0 - float(first[0]) * (1 + float(np.max(error))), 0.0)


def log_affinities(law: Law) -> Floats:
    """Upper bounds on log E_P e^(-τL) at all ORDERS τ, infinite losses counted as 0."""
    points = lattice.spread_points(law, SKETCH_TAIL, CELLS)
    first, second, error = law.tails(points)
    slack = np.broadcast_to(np.asarray(error), first.shape) + 64 * UNIT_ROUNDOFF
    # P(l_i < L <= l_(i+1)), from above, with the mass below the first point and that above the last.
    high = np.concatenate(([1.0], np.minimum(first * (1 + slack), 1.0)))
    under_p = np.clip(high - np.concatenate((first * (1 - slack), [0.0])), 0.0, 1.0) + 1e-300
    # The same for Q, times e^l_i: Q itself may be far below the smallest float.
    lost = np.append(second[1:] * (1 - slack[1:]) * np.exp(-np.diff(points)), 0.0)
    scaled = np.clip(second * (1 + slack) - lost, 1e-300, None)
    below = max(1.0 - float(second[0] * (1 - slack[0])) * math.exp(min(-float(points[0]), 700.0)), 1e-300)
    log_q = np.concatenate(([math.log(below)], np.minimum(np.log(scaled) - points, 0.0)))
    # Σ P^(1-τ) Q^τ = 1 + Σ P (e^(-τ log(P/Q)) - 1) - (1 - Σ P): no cancellation for small τ.
    ratio = np.log(under_p) - log_q
    excess = float(np.sum(under_p)) - 1.0
    sums = [float(np.sum(under_p * np.expm1(-tau * ratio))) for tau in ORDERS]
    spread = [float(np.sum(under_p * np.abs(np.expm1(-tau * ratio)))) for tau in ORDERS]
    doubt = 8 * UNIT_ROUNDOFF * (CELLS + 64) * np.array(spread)
    return np.asarray(np.log1p(np.array(sums) + doubt + max(excess, 0.0) + 4 * UNIT_ROUNDOFF * CELLS * ORDERS))
