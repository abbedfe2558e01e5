"""Bounds on the Rényi divergences of a mechanism from the divergences of the mechanisms inside it.

The laws of discrete and of combined mechanisms are cut where less than about 1e-90 of their mass is left, and the cut
mass counts as infinite loss. So no moment of such a law is finite, and it gives no δ below the cut. The mechanisms
themselves may still have finite divergences in closed form. Mechanisms built from them inherit a bound:

    sampling    E_P (1 - q + q Q/P)^a = Σ_k C(a, k) (1-q)^(a-k) q^k E_P (Q/P)^k             (Zhu & Wang 2019, Theorem 6)
    mixtures    E_P (P/Q)^(a-1) is the mean over the parts, if the drawn part is revealed
    groups      the weak triangle inequality of Rényi divergences                      (Mironov 2017, Proposition 11)

All bounds are rounded up; inf means that no bound is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from deniable.curves.laws.derived_laws import mixed_loss
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats

Divergence = Callable[[float], float]
"""An upper bound on the Rényi divergence of an order above 1, in both directions."""

LARGEST_ORDER = 2**18
"""Largest order of a binomial sum: above every order that the search for the best order tries."""

ORDERS = np.unique(np.concatenate((np.arange(1.0, 33.0), np.round(2.0 ** np.arange(5.0, 18.01, 0.25)))))
"""Orders at which the divergence of the inner mechanism is evaluated; between them chords bound its moments."""


def cumulants(divergence: Divergence) -> Floats:
    """(k-1) D_k at all ORDERS: the logarithm of E_P (Q/P)^k, convex in k."""
    values = np.zeros_like(ORDERS)
    for i, order in enumerate(ORDERS.tolist()):
        values[i] = (order - 1) * divergence(order) if order > 1 else 0.0
        if not math.isfinite(values[i]):
            values[i:] = math.inf  # divergences increase with the order
            break
    return values


def sampled(known: Floats, rate: float, order: float) -> float:
    """An upper bound on D_order of (1-q)P + qQ against P, from the `cumulants` of Q against P.

    Integer orders by the binomial sum, others by a chord between two integers: the log of a moment is convex in the
    order.
    """
    low, high = math.floor(order), math.ceil(order)
    if high > LARGEST_ORDER:
        return math.inf
    ends = [_binomial(known, rate, a) if a > 1 else 0.0 for a in (low, high)]
    if not math.isfinite(ends[1]):
        return math.inf
    return float((ends[0] + (order - low) * (ends[1] - ends[0])) / (order - 1)) * (1 + 8 * UNIT_ROUNDOFF)


def _binomial(known: Floats, rate: float, a: int) -> float:
    """An upper bound on log E_P (1 - q + q Q/P)^a."""
    from scipy import special

    finite = np.isfinite(known)
    if a > float(ORDERS[finite][-1]):
        return math.inf
    k = np.arange(a + 1.0)
    inner = np.interp(k, ORDERS[finite], known[finite])  # chords; 0 at orders 0 and 1
    choose = special.gammaln(a + 1) - special.gammaln(k + 1) - special.gammaln(a - k + 1)
    terms = choose + (a - k) * math.log1p(-rate) + k * math.log(rate) + inner
    top = float(np.max(terms))
    total = top + math.log(float(np.sum(np.exp(terms - top))))
    # Three log-factorials and a sum of that many terms, each correct to a few roundings.
    return total + 1e-12 * (1 + abs(top)) + 16 * UNIT_ROUNDOFF * (float(special.gammaln(a + 1)) + a)


def against_sampled(divergence: Divergence, rate: float, order: float) -> float:
    """An upper bound on D_order of P against (1-q)P + qQ: P is at most 1/(1-q) times as likely, and
    x^(1-a) is convex.
    """
    most = -math.log1p(-rate) if rate < 1 else math.inf
    exponent = (order - 1) * divergence(order)
    if exponent > 700:
        return most * (1 + 4 * UNIT_ROUNDOFF)
    convex = mixed_loss(exponent, rate) / (order - 1)
    return min(most, convex) * (1 + 16 * UNIT_ROUNDOFF)


def mixed(divergences: Sequence[Divergence], weights: Sequence[float], order: float) -> float:
    """D_order of a mixture whose drawn part is revealed: log Σ w e^((a-1) D) / (a-1)."""
    exponents = [(order - 1) * d(order) for d in divergences]
    top = max(exponents)
    if not math.isfinite(top):
        return math.inf
    total = math.fsum(w * math.exp(e - top) for w, e in zip(weights, exponents, strict=True))
    return (top + math.log(total) + 1e-14 * (1 + abs(top))) / (order - 1)


def chained(divergence: Divergence, size: int, order: float) -> float:
    """An upper bound on the Rényi divergence of order `order` between the ends of a chain of `size` steps. The weak
    triangle inequality with p = q = 2 halves the chain and doubles the order, until one step is left.
    """
    if size == 1:
        return divergence(order)
    if order > LARGEST_ORDER:
        return math.inf
    far, near = chained(divergence, (size + 1) // 2, 2 * order), chained(divergence, size // 2, 2 * order - 1)
    return ((order - 0.5) / (order - 1) * far + near) * (1 + 8 * UNIT_ROUNDOFF)
