"""Blackwell's order on curves: which one leaks more, at every ε."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from deniable.curves.atoms.mechanism_atoms import GaussianAtom
from deniable.curves.composition.law_product import Product
from deniable.curves.laws import laws_from_bounds
from deniable.curves.meaning.attacker import SearchedProfile
from deniable.curves.meaning.curve_readings import product_of
from deniable.curves.outward_rounding import ordered, quietly
from deniable.errors import NotCertifiable

if TYPE_CHECKING:
    from deniable.curves.curve import Curve

POINTS = 5000
FLOOR = 1e-7


@quietly
def dominates(big: Curve, small: Curve, tolerance: float) -> bool:
    """Whether δ_small(ε) <= (1 + tolerance) δ_big(ε) + FLOOR × tolerance for every real ε.

    True is certified. The result is also False if the bounds of one curve cannot be certified.
    """
    try:
        return _is_shown(big, small, tolerance)
    except NotCertifiable:
        return False


def fits(curve: Curve, allowed: Curve) -> bool:
    """Whether `curve` provably leaks no more than `allowed`: both are equal, or `allowed` is a black-box guarantee that
    `curve` meets.

    pure(ε) and approximate(ε, δ) dominate everything with δ(ε) <= δ (Kairouz, Oh & Viswanath 2015), gaussian(μ)
    everything that is μ-GDP, zcdp(ρ) everything that is ρ-zCDP, and worst_of(...) everything that fits into one of its
    curves. False means "not known", which is the safe answer.
    """
    if curve == allowed or not curve.factors:
        return True
    return [count for _, count in allowed.factors] == [1] and allowed.factors[0][0].covers(curve)


def _is_shown(big: Curve, small: Curve, tolerance: float) -> bool:
    """`dominates`, raising NotCertifiable if some bound cannot be computed."""
    counts = dict(big.factors)
    if all(counts.get(atom, 0) >= count for atom, count in small.factors):
        return True  # big = small * something
    if all(isinstance(a, GaussianAtom) for curve in (big, small) for a, _ in curve.factors):
        # Where δ is above the floor, a relative change of μ² changes it at most 1e4 times as much.
        return _mu_squared(small) <= _mu_squared(big) * (1 + Fraction(min(1e-12, 1e-5 * tolerance)))
    from deniable.curves.atoms.composite_atoms import is_tied

    if not (is_tied(big) and is_tied(small)):
        big, small = big.symmetrized(), small.symmetrized()
    for index in (0, 1):
        ahead_big, back_big = _directions(big, index)
        ahead_small, back_small = _directions(small, index)
        smallest = max(FLOOR * tolerance / 4, 1e-30)
        theirs = SearchedProfile(ahead_small, back_small, smallest, smallest)
        ours = SearchedProfile(ahead_big, back_big, smallest, smallest)
        points = np.unique(np.concatenate((theirs.grid(POINTS), ours.grid(POINTS))))
        # Points that nearly coincide would only magnify rounding.
        points = points[np.concatenate(([True], np.diff(points) > 1e-8 * (points[-1] - points[0])))]
        _, high = ordered(theirs.delta(points, "lower"), theirs.delta(points, "upper"))
        low, above = ordered(ours.delta(points, "lower"), ours.delta(points, "upper"))
        if np.any(high > low * (1 + tolerance) + FLOOR * tolerance):
            return False
        # Between points: the small profile is below its chord, the big one above its extended chords.
        at, value = laws_from_bounds.vertices_below(points, low, above)
        if np.any(np.interp(np.exp(at), np.exp(points), high) > value * (1 + tolerance) + FLOOR * tolerance):
            return False
    return True


def _directions(curve: Curve, index: int) -> tuple[Product, Product]:
    forward, backward = product_of(curve)
    return (forward, backward) if index == 0 else (backward, forward)


def _mu_squared(curve: Curve) -> Fraction:
    return sum((n * a.exact() ** 2 for a, n in curve.factors if isinstance(a, GaussianAtom)), Fraction(0))
