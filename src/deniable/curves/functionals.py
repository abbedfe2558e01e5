"""Moments of the privacy loss: kl, κ₂, κ₃ of a trade-off function (source 003), per atom and for whole curves.

For f = T(P, Q): -∫ log|f'| = E L, ∫ log²|f'| = E L², ∫ |log|f'||³ = E |L|³, where L is the loss of the forward
direction. They describe a curve and feed its central limit theorem; they are numbers accurate to about 1e-10, not
privacy guarantees.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable.curves import lattice
from deniable.curves.laws.base import Law
from deniable.curves.laws.finite import FiniteLaw
from deniable.curves.promise import Atom, pair_of
from deniable.curves.rounding import Floats, quietly

if TYPE_CHECKING:
    from deniable.curves.curve import Curve


class Moments(NamedTuple):
    """E L, E L², E |L|³ and E |L - E L|³ of one atom."""

    kl: float
    kappa2: float
    kappa3: float
    central3: float


@lru_cache(maxsize=4096)
def moments(atom: Atom) -> Moments:
    """The functionals of one atom (forward direction)."""
    law = pair_of(atom).forward.upper
    if law.infinity > 1e-50:
        return Moments(math.inf, math.inf, math.inf, math.inf)  # some answer reveals everything
    kl = expectation(law, lambda x: x, np.ones_like)
    return Moments(
        kl,
        expectation(law, lambda x: x * x, lambda x: 2 * x),
        expectation(law, lambda x: np.abs(x) ** 3, lambda x: 3 * x * np.abs(x)),
        expectation(law, lambda x: np.abs(x - kl) ** 3, lambda x: 3 * (x - kl) * np.abs(x - kl), kl),
    )


def expectation(
    law: Law, function: Callable[[Floats], Floats], slope: Callable[[Floats], Floats], kink: float = 0.0
) -> float:
    """E_P function(L), by parts: function(0) + ∫_0^∞ slope(l) P(L > l) dl - ∫_{-∞}^0 slope(l) P(L <= l) dl."""
    if isinstance(law, FiniteLaw):
        return float(np.sum(law.masses * function(law.losses)))
    low, high = lattice.reach(law, 1e-40)
    cuts = sorted({low, min(max(kink, low), high), 0.0, high, *(a for a in law.atoms if low < a < high)})
    total = float(function(np.array([0.0]))[0])
    nodes, weights = np.polynomial.legendre.leggauss(24)
    for left, right in pairwise(cuts):
        edges = np.linspace(left, right, 161)
        half = 0.5 * np.diff(edges)
        at = (0.5 * (edges[1:] + edges[:-1])[:, None] + half[:, None] * nodes[None, :]).ravel()
        first = law.tails(at).first
        share = first if left >= 0 else first - 1
        total += float(np.sum((half[:, None] * weights[None, :]).ravel() * slope(at) * share))
    return total


@quietly
def kl(curve: Curve) -> float:
    """E L: adds over factors."""
    return math.fsum(count * moments(atom).kl for atom, count in curve.factors)


@quietly
def kappa2(curve: Curve) -> float:
    """E L² = variance (adds over factors) + (E L)²."""
    mean = kl(curve)
    if not math.isfinite(mean * mean) or not all(math.isfinite(moments(atom).kappa2) for atom, _ in curve.factors):
        return math.inf
    return math.fsum(n * (moments(a).kappa2 - moments(a).kl * moments(a).kl) for a, n in curve.factors) + mean * mean


def _or_inf(value: float) -> float:
    """What overflowed to no number is larger than any."""
    return math.inf if math.isnan(value) else value


@quietly
def kappa3(curve: Curve) -> float:
    """E |L|³: exact for one use of one atom, otherwise from the composed loss distribution."""
    if sum(count for _, count in curve.factors) <= 1:
        return _or_inf(moments(curve.factors[0][0]).kappa3) if curve.factors else 0.0
    if not math.isfinite(kappa2(curve)):
        return math.inf
    loss = curve.loss
    return float(np.sum(loss.masses * np.abs(loss.losses) ** 3)) if loss.infinity < 1e-15 else math.inf
