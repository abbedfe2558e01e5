"""The tail of the privacy loss, P(L > ε): how often the loss exceeds ε. Certified from both sides.

With x = e^ε the profile δ(x) = sup_S P(S) - x Q(S) is convex, and its slope is -Q(L > ε). So

    P(L > ε) = δ(x) + x Q(L > ε),

and secants of certified bounds on δ bound the slope from both sides. If a single law is known exactly, its own tail is
used.

Unlike δ, the tail is not monotone in Blackwell's order: a pair that leaks more may have a smaller tail. Sometimes the
laws of a curve only dominate the laws of the mechanism: for a guarantee such as ε-DP, for the worst of several curves,
and for factors that may flip (an analyst may choose from use to use which of the two neighbours comes first, see
`curve_readings`). Then the upper bound is one that holds for every dominated mechanism: δ(ε')/(1 - e^(ε'-ε)) for the
best ε' < ε.
"""

from __future__ import annotations

import numpy as np

from deniable.curves.atoms.composite_atoms import is_exact
from deniable.curves.composition.law_product import Product
from deniable.curves.curve import Curve
from deniable.curves.meaning.curve_readings import direction_delta, product_of
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats, ordered, quietly

WIDTHS = np.logspace(-7, -0.3, 40)
"""Relative widths of secants. Narrow ones magnify the width of the bounds on δ, wide ones miss the curvature; each is
valid, and the best one is taken.
"""


SHARES = 1 - np.logspace(-7, -1e-3, 120)
"""Values of e^(ε'-ε) for the bound on dominated mechanisms."""


@quietly
def bounds(curve: Curve, epsilon: Floats) -> tuple[Floats, Floats]:
    """Certified bounds on P(L > ε), the worse of both directions."""
    low, high = direction_bounds(curve, True, epsilon)
    if not curve.is_symmetric:
        low2, high2 = direction_bounds(curve, False, epsilon)
        low, high = np.maximum(low, low2), np.maximum(high, high2)
    return low, high


def direction_bounds(curve: Curve, is_forward: bool, epsilon: Floats) -> tuple[Floats, Floats]:
    """Certified bounds on P(L > ε) in one direction."""
    factors = curve.factors
    if len(factors) == 1 and factors[0][1] == 1 and (alternatives := factors[0][0].alternatives()):
        each = [direction_bounds(one, is_forward == as_it_is, epsilon) for one, as_it_is in alternatives]
        return np.max([low for low, _ in each], axis=0), np.max([high for _, high in each], axis=0)
    forward, backward = product_of(curve)
    ahead, back = (forward, backward) if is_forward else (backward, forward)
    low, high = _pair_bounds(ahead, back, epsilon)
    return (low, high) if is_exact(curve) else (low, np.maximum(low, _dominated(ahead, back, epsilon)))


def _dominated(ahead: Product, back: Product, epsilon: Floats) -> Floats:
    """An upper bound on P(L > ε) for every mechanism whose profile is at most this one."""
    kinks = np.concatenate((ahead.kinks, -back.kinks))
    high = np.ones_like(epsilon)
    for i, e in enumerate(epsilon):
        at = np.concatenate((e + np.log(SHARES), kinks[kinks < e]))
        most = direction_delta(ahead, back, at, "upper") / -np.expm1(at - e) * (1 + 1e-14)
        high[i] = min(float(np.min(most)), 1.0)
    return high


def _pair_bounds(ahead: Product, back: Product, epsilon: Floats) -> tuple[Floats, Floats]:
    """Certified bounds on P(L > ε) of the pair of laws of the product."""
    if not ahead.needs_panels:
        law = ahead.single(ahead.upper)
        if law == ahead.single(ahead.lower):
            # A loss that carries mass has a rounding error, so it may be uncertain whether it exceeds ε.
            move = 8 * UNIT_ROUNDOFF * (1 + np.abs(epsilon))
            (above, _, error), (below, _, error2) = law.tails(epsilon + move), law.tails(epsilon - move)
            return ordered(np.maximum(above * (1 - error), 0.0), np.minimum(below * (1 + error2), 1.0))
    low, high = np.zeros_like(epsilon), np.ones_like(epsilon)
    for i, e in enumerate(epsilon):
        left, right = e + np.log1p(-WIDTHS), e + np.log1p(WIDTHS)
        at = np.array([e])
        here_low, here_high = (float(direction_delta(ahead, back, at, side)[0]) for side in ("lower", "upper"))
        before, after = (direction_delta(ahead, back, points, "upper") for points in (left, right))
        rounding = 8 * UNIT_ROUNDOFF / WIDTHS
        most = (before - (1 - WIDTHS) * here_low) / WIDTHS + rounding * before
        least = ((1 + WIDTHS) * here_low - after) / WIDTHS - rounding * here_high
        low[i], high[i] = max(float(np.max(least)), here_low), min(float(np.min(most)), 1.0)
    return ordered(low, high)
