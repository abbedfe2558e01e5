"""Gaussian DP: the smallest μ whose Gaussian trade-off function lies below the trade-off function of a curve."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from deniable.curves.atoms.atom import Atom
from deniable.curves.composition.law_product import Product
from deniable.curves.laws.closed_form import GaussianLaw
from deniable.curves.meaning.curve_readings import product_of
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats, quietly

if TYPE_CHECKING:
    from deniable.curves.curve import Curve

CELLS = 2000


def pure_mu(epsilon: float) -> float:
    """The smallest μ for which every ε-DP mechanism is μ-GDP: -2 Φ⁻¹(1/(1+e^ε)), rounded up."""
    from scipy import special

    if epsilon < 1:
        # The same μ from the total variation tanh(ε/2) = erf(μ/√8), accurate for small ε.
        return math.sqrt(8) * float(special.erfinv(math.tanh(epsilon / 2))) * (1 + 256 * UNIT_ROUNDOFF)
    log_share = -epsilon - math.log1p(math.exp(-epsilon))
    return -2 * float(special.ndtri_exp(log_share)) * (1 + 256 * UNIT_ROUNDOFF)


@quietly
def smallest_mu(curve: Curve, allowance: float) -> float:
    """An upper bound on the smallest μ with δ(ε) <= δ_μ(ε) + allowance for every real ε (equivalently β >= G_μ -
    allowance).

    inf if no μ holds, or if none can be proved: an unbounded loss that is not Gaussian has no largest ε at which a
    search could end.
    """
    closed = _sum_of_squares(curve)
    forward, backward = product_of(curve)
    directions = [forward] if backward is forward else [forward, backward]
    if not all(math.isfinite(p.epsilon_above(allowance)) for p in directions):
        return closed
    if allowance == 0 and len(curve.factors) == 1 and curve.factors[0][1] == 1:
        return closed
    grids = [_wanted(p, allowance) for p in directions]
    return _bisect(grids, closed)


def _wanted(product: Product, allowance: float) -> tuple[Floats, Floats]:
    """Points ε >= 0, and the values that δ_μ must reach there. Negative ε are the positive ε of the other direction.

    At the last point δ(ε) <= allowance was evaluated: from there on δ_μ is not constrained.
    """
    end = product.highest if allowance == 0 else product.epsilon_above(allowance)
    points = end * np.linspace(0.0, 1.0, CELLS) ** 2
    wanted = np.maximum(product.delta(points, "upper", allowance * 1e-3) - allowance, 0.0)
    if allowance > 0:
        wanted[-1] = 0.0
    return points, wanted


def _sum_of_squares(curve: Curve) -> float:
    """μ of a product from the μ of its factors: μ² adds (Dong, Roth, Su 2022, Corollary 3.3)."""
    if len(curve.factors) == 1 and curve.factors[0][1] == 1:
        return _atom_mu(curve.factors[0][0])
    total = math.fsum(count * _atom_mu(atom) ** 2 for atom, count in curve.factors)
    return math.sqrt(total) * (1 + 4 * UNIT_ROUNDOFF)


@lru_cache(maxsize=1024)
def _atom_mu(atom: Atom) -> float:
    """The smallest μ known for one atom: its closed form, or a search if its loss is bounded."""
    closed = atom.gdp_bound()
    if closed is not None:
        return closed
    from deniable.curves.curve import Curve

    forward, backward = product_of(Curve.of(atom))
    directions = [forward] if backward is forward else [forward, backward]
    if any(p.infinity("upper") > 0 or not math.isfinite(p.highest) for p in directions):
        return math.inf
    # A bounded loss is ε-DP, hence pure_mu(ε)-GDP; the search starts from there.
    start = pure_mu(max(p.highest for p in directions))
    return _bisect([_wanted(p, 0.0) for p in directions], start)


def _bisect(grids: list[tuple[Floats, Floats]], start: float) -> float:
    """The smallest μ <= start whose Gaussian profile lies above all chords of the given profiles."""
    high = start
    if start == 0:
        return 0.0
    if not math.isfinite(start):
        high = 1e-3
        while not _covers(high, grids) and high < 1e6:
            high *= 2
    if not _covers(high, grids):
        return start
    low = 0.0
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if _covers(middle, grids) else (middle, high)
    return high


def _covers(mu: float, grids: list[tuple[Floats, Floats]]) -> bool:
    """Whether δ_μ lies above the chords: in each cell one supporting line of δ_μ must lie above both
    ends of the chord.
    """
    law = GaussianLaw(mu)
    for points, wanted in grids:
        middle = 0.5 * (points[:-1] + points[1:])
        first, second, error = law.tails(middle)
        low, scaled = first * (1 - error), second * (1 + error)
        if np.any(low - scaled * np.exp(points[:-1] - middle) < wanted[:-1]):
            return False
        if np.any(low - scaled * np.exp(points[1:] - middle) < wanted[1:]):
            return False
    return True
