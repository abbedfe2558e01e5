"""Upper bounds on E L² and E |L|³ that hold for every pair of laws whose profiles are at most two given ones.

A product symmetrises a factor that may flip. The symmetrised laws dominate every combination of directions, but their
moments of the loss can be smaller. With r = dP/dQ the moments are E_Q g(r), g(x) = x |log x|^k, and

    E_Q g(r) - g(1) = ∫_0^∞ g''(e^u) e^u δ(u) du + ∫_0^∞ g''(e^-u) e^-2u δ'(u) du,

where δ is the profile of (P, Q) and δ' the profile of (Q, P). Where g is convex, a larger profile gives a larger
integral. g is not convex left of e^-1 (k = 2) or e^-2 (k = 3), so it is replaced there by its tangent, the least convex
majorant with the same values to the right; the second integral stops at that point.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from deniable.curves.composition.law_product import Product
from deniable.curves.meaning.attacker import SearchedProfile, end_of
from deniable.curves.outward_rounding import Floats, Side, quietly

POINTS = 1500
FARTHEST = 60.0
"""Beyond this, the weight of negative losses is below 1e-21."""
SMALLEST = 1e-25
"""The integrals stop where the profile falls below this."""


@quietly
def covering_moments(ahead: Product, back: Product) -> tuple[float, float]:
    """Upper bounds on (E L², E |L|³) of every dominated pair; at most the squared and cubed largest loss."""
    if max(ahead.infinity("upper"), back.infinity("upper")) > 1e-50:
        return math.inf, math.inf
    points = SearchedProfile(ahead, back, SMALLEST).grid(POINTS)
    right, left = points[points >= 0], -points[points <= 0][::-1]
    most = max(ahead.highest, back.highest)
    second = _integral(ahead, right, lambda u: 2 + 2 * u) + _integral(back, left, lambda u: (2 - 2 * u) * np.exp(-u), 1)
    third = _integral(ahead, right, lambda u: 3 * u * (2 + u)) + _integral(
        back, left, lambda u: 3 * u * (2 - u) * np.exp(-u), 2
    )
    return min(second, most**2), min(third, most**3)


@quietly
def negative_cubes(back: Product) -> float:
    """E_P |L|³ where L < 0, from the profile of (Q, P): the second integral for k = 3, rounded up."""
    end = min(end_of(back, SMALLEST), FARTHEST)
    points = np.concatenate((end * np.linspace(0.0, 1.0, 2 * POINTS) ** 2, back.kinks, [2.0]))
    points = np.unique(points[(points >= 0) & (points <= end)])

    def weight(u: Floats) -> Floats:
        return 3 * u * (2 - u) * np.exp(-u)

    far = points[points >= 2]
    return _integral(back, points, weight, 2) + (_integral(back, far, weight, side="lower") if len(far) else 0.0)


def _integral(
    product: Product,
    points: Floats,
    weight: Callable[[Floats], Floats],
    end: float = math.inf,
    side: Side = "upper",
) -> float:
    """∫ weight(u) δ(u) du from the first point to `end`, by chords: δ is convex in e^u, so a chord lies above it."""
    points = np.unique(np.append(points[points < end], min(end, float(points[-1]))))
    if len(points) < 2:
        return 0.0
    value = product.delta(points, side)
    nodes, weights = np.polynomial.legendre.leggauss(8)
    width = np.diff(points)
    inside = points[:-1] + width * 0.5 * (1 + nodes[:, None])
    share = np.expm1(inside - points[:-1]) / np.expm1(width)
    chord = value[:-1] + share * np.diff(value)
    return float(np.sum(0.5 * width * np.sum(weights[:, None] * chord * weight(inside), axis=0))) * (1 + 1e-12)
