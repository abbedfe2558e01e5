"""Rényi divergences of one direction, of any order above 0, certified from both sides; Hellinger and χ² as special
cases.

Orders above 1 are moments of the loss: a grid law above and one below bound them (`lattice`). Orders below 1 are
integrals of the two profiles: with H = E_Q (dP/dQ)^a,

    1 - H = a (1 - a) [ ∫_1^∞ δ(x) x^(a-2) dx + ∫_1^∞ δ'(x) x^(-a-1) dx ],     D_a = -log(H) / (1 - a),

where δ is the profile of (P, Q) and δ' the profile of (Q, P). A profile is convex in x: chords bound it from above, and
the line of any real test from below.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from deniable.curves import curve_arguments
from deniable.curves.atoms.atom import Atom, pair_of, symmetrized_pair_of
from deniable.curves.composition import lattice
from deniable.curves.composition.exponential_moments import log_moment
from deniable.curves.curve import MOST_ORDER, Curve
from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.laws.law import Law, Sided
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats, ordered, quietly
from deniable.errors import InvalidParameter

CELLS = 6000
NEAR_ONE = 1e-5
"""Next to order 1 a moment is a difference of nearly equal numbers, so a slightly larger order is used: divergences
increase with the order.
"""
NEXT_BELOW_ONE = 1 - 2.0**-40
"""Orders between this and 1 are not computed: the exponent of x in the integrals, less than -1 by 1 - a, would lose its
digits.
"""


def orders(order: Any) -> curve_arguments.BracketedArgument:
    """The orders, as floats. Raises InvalidParameter unless each is inf or in (0, 1e9]."""
    given = curve_arguments.reading("order", order)
    if np.any(~(given.low > 0) | ((given.high > MOST_ORDER) & (given.low < math.inf))):
        raise InvalidParameter("order", order, f"must be inf, or above 0 and at most {MOST_ORDER:g}")
    return given


@quietly
def renyi_bounds(curve: Curve, order: float, is_forward: bool) -> tuple[float, float]:
    """Certified (low, high) around D_order(P‖Q), or around D_order(Q‖P) if not `is_forward`: the sum over the factors.

    In a product, a factor whose direction may flip enters with the worse of its two directions, as in `product_of`.
    """
    alone = sum(count for _, count in curve.factors) <= 1
    low = high = 0.0
    for atom, count in curve.factors:
        one = _atom_bounds(atom, order, is_forward, not alone and not atom.tied)
        low, high = low + count * one[0], high + count * one[1]
    doubt = 4 * UNIT_ROUNDOFF * (len(curve.factors) + 1)
    below, above = ordered(low * (1 - doubt), high * (1 + doubt))
    return float(below), float(above)


@lru_cache(maxsize=65536)
def _atom_bounds(atom: Atom, order: float, is_forward: bool, may_flip: bool) -> tuple[float, float]:
    if alternatives := atom.alternatives():
        ways = (True, False) if may_flip else (is_forward,)
        each = [renyi_bounds(curve, order, way == as_it_is) for curve, as_it_is in alternatives for way in ways]
        return max(low for low, _ in each), max(high for _, high in each)
    pair = symmetrized_pair_of(atom) if may_flip else pair_of(atom)
    ahead, back = (pair.forward, pair.backward) if is_forward else (pair.backward, pair.forward)
    if order == math.inf:
        low, high = (
            law.highest * (1 + sign * 1e-15) if law.infinity == 0 else math.inf
            for law, sign in ((ahead.lower, -1), (ahead.upper, 1))
        )
        return low, high
    if order < 1:
        if order > NEXT_BELOW_ONE:
            most = _atom_bounds(atom, 1.0, is_forward, may_flip)[1]
            return min(_below_one(ahead, back, 1 - NEAR_ONE)[0], most), most
        return _below_one(ahead, back, order)
    highest = ahead.upper.highest if ahead.upper.infinity == 0 else math.inf
    above = max(order, 1 + NEAR_ONE) - 1
    high = min(log_moment(ahead.upper, above) / above, highest)
    closed = atom.renyi_bound(order)  # valid in both directions
    high = max(min(high, closed) if closed is not None else high, 0.0)
    if order > 1 and math.isinf(high) and (inherited := atom.inherited_renyi(order)) is not None:
        high = max(inherited) if may_flip else inherited[0 if is_forward else 1]
    if order < 1 + NEAR_ONE:
        return min(_below_one(ahead, back, 1 - NEAR_ONE)[0], high), high
    return min(_moment_below(ahead.lower, order - 1) / (order - 1), high), high


def _moment_below(law: Law, power: float) -> float:
    """A lower bound on log E_P e^(power L), power > 0: the moment of a grid law that `law` dominates."""
    if law.infinity > 0:
        return math.inf
    if isinstance(law, FiniteLaw):
        known: FiniteLaw | lattice.GridLaw = law
    else:
        points = lattice.spread_points(law, 1e-30, 4 * CELLS)
        # `lattice.below` drops the mass at its first point, and the smallest loss may carry half of the mass.
        known = lattice.below(law, np.concatenate(([points[0] - 1e-6 * (points[-1] - points[0])], points)))
    kept = known.masses > 0
    if not np.any(kept):
        return 0.0
    exponent = power * known.losses[kept] + np.log(known.masses[kept])
    top = float(np.max(exponent))
    return max(top + math.log(float(np.sum(np.exp(exponent - top)))) - 1e-13 * (1 + abs(top)), 0.0)


def _below_one(ahead: Sided, back: Sided, order: float) -> tuple[float, float]:
    """D_order for an order below 1, from the integrals of both profiles."""
    low, high = (
        order * (1 - order) * (_integral(ahead, order - 2, i) + _integral(back, -order - 1, i)) for i in (0, 1)
    )
    least, most = low * (1 - 1e-12), high * (1 + 1e-12)
    found = [-math.log1p(-v) / (1 - order) if v < 1 else math.inf for v in (least, most)]
    return found[0], found[1]


def _integral(side: Sided, power: float, which: int) -> float:
    """A lower (0) or upper (1) bound on ∫_1^∞ δ(x) x^power dx, for a power below -1."""
    law = side.upper if which else side.lower
    end = min(lattice.reach(law, 1e-40)[1], 600.0)
    even, kinks = end * np.linspace(0, 1, CELLS) ** 2, [a for a in law.atoms if 0 < a < end]
    points = np.unique(np.concatenate((even, kinks, _dense(law, end))))
    x = np.exp(points)
    if which:
        value = law.profile(points)[1]
        left, right = value[:-1], value[1:]
        rest = float(value[-1] * x[-1] ** (power + 1)) / -(power + 1)  # the profile is non-increasing
    else:
        first, second, error = law.tails(0.5 * (points[1:] + points[:-1]))
        middle = np.exp(0.5 * (points[1:] + points[:-1]))
        rise, fall = first * (1 - error), second * (1 + error) / middle
        left, right = rise - x[:-1] * fall * (1 + 1e-15), rise - x[1:] * fall * (1 + 1e-15)
        right = np.minimum(right, left)
        rest = law.infinity * (1 - 1e-15) * float(x[-1] ** (power + 1)) / -(power + 1)
    # ∫ of the line through both ends times x^power, by Gauss' rule: exact to rounding, because the cells are narrow.
    share, weight = np.polynomial.legendre.leggauss(8)
    share = 0.5 * (1 + share[:, None])
    width = np.diff(x)
    inside = (left * (1 - share) + right * share) * (x[:-1] + width * share) ** power
    cells = 0.5 * width * np.sum(weight[:, None] * inside, axis=0)
    if not which:
        cells = np.maximum(np.nan_to_num(cells), 0.0)  # a cell without a bound adds 0 to a lower bound
    return float(np.sum(cells)) + rest


def _dense(law: Law, end: float) -> Floats:
    """Points where the mass of the law is concentrated."""
    points = lattice.spread_points(law, 1e-30, CELLS)
    return np.asarray(points[(points > 0) & (points < end)])


def hellinger(curve: Curve) -> float:
    """The squared Hellinger distance (`Curve.hellinger`)."""
    half = renyi_bounds(curve, 0.5, True)[1]
    return min(-math.expm1(-0.5 * half) * (1 + 1e-15), 1.0)


def chi_squared(curve: Curve) -> float:
    """χ² of the worse direction (`Curve.chi_squared`)."""
    second = curve.renyi_function(2.0)
    return math.expm1(second) * (1 + 1e-15) if second < 700 else math.inf
