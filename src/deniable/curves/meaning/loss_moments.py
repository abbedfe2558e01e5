"""Moments of the privacy loss: kl, κ₂, κ₃ of a trade-off function (Dong, Roth, Su 2022), of atoms and of whole curves.

For f = T(P, Q): -∫ log|f'| = E L, ∫ log²|f'| = E L², ∫ |log|f'||³ = E |L|³, where L = log dP/dQ under P. A whole curve
takes the larger of its two directions. Each use of a factor that may flip has one of two directions, whatever the other
answers are; the curve takes the largest moment over all combinations. Beyond 64 combinations it takes an upper bound on
all of them (`covering`). The moments describe a curve and feed its central limit theorem; they are accurate to about
1e-10, but they are not privacy guarantees.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable.curves.atoms.atom import Atom, pair_of
from deniable.curves.composition import lattice
from deniable.curves.laws.derived_laws import MixedLaw
from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.laws.law import Law, LawPair, Sided
from deniable.curves.meaning import curve_readings
from deniable.curves.meaning.covering_moments import covering_moments, negative_cubes
from deniable.curves.outward_rounding import Floats, quietly

if TYPE_CHECKING:
    from deniable.curves.curve import Curve

PIECES = 480
"""Cells of Gauss' rule over the whole range of a loss; at least two between jumps."""
MOST_JUMPS = 2000
REACH = 1e-40
"""Mass in the far tail of a law that the integrals ignore."""
MOST_TURNS = 200
"""Most weights tried for factors that may flip; beyond, each moment is bounded separately."""
MOST_WAYS = 64
"""Most combinations of directions that are composed one by one for E |L|³."""
MOST_CELLS = 4096


class LossMoments(NamedTuple):
    """E L, E L², E |L|³ of one atom, and with C = L - E L: E |C|³, E C³, E C⁴."""

    kl: float
    kappa2: float
    kappa3: float
    central3: float
    skewed: float
    central4: float


@lru_cache(maxsize=4096)
def moments(atom: Atom, is_forward: bool) -> tuple[LossMoments, ...]:
    """The moments of one atom in one direction, for each pair of laws that it may have."""
    pairs = atom.possible_pairs() or (pair_of(atom),)
    sides = [(p.forward, p.backward) if is_forward else (p.backward, p.forward) for p in pairs]
    return tuple(_moments(ahead.upper, back.upper.infinity, -back.upper.highest) for ahead, back in sides)


@lru_cache(maxsize=4096)
def covering(atom: Atom, is_forward: bool) -> tuple[LossMoments, ...]:
    """As `moments`; if the pairs of the atom cannot be listed, upper bounds on the moments of all of them."""
    if atom.possible_pairs():
        return moments(atom, is_forward)
    pair = pair_of(atom)
    ahead, back = (curve_readings.product_of_sides([(side, 1)]) for side in (pair.forward, pair.backward))
    second, third = covering_moments(ahead, back) if is_forward else covering_moments(back, ahead)
    return tuple(one._replace(kappa2=second, kappa3=third) for one in moments(atom, is_forward))


@lru_cache(maxsize=4096)
def _moments(law: Law, missing: float, least: float) -> LossMoments:
    """The moments of a law. `missing` is the Q-mass of answers that P never gives; `least` is a lower bound on every
    loss, minus the largest loss of the other direction.
    """
    if law.infinity > 1e-50:
        return LossMoments(*[math.inf] * 6)  # some answer reveals everything
    kl = _mean_of(law, missing, least)
    return LossMoments(
        kl,
        expectation(law, lambda x: x * x, lambda x: 2 * x, least),
        expectation(law, lambda x: np.abs(x) ** 3, lambda x: 3 * x * np.abs(x), least),
        expectation(law, lambda x: np.abs(x - kl) ** 3, lambda x: 3 * (x - kl) * np.abs(x - kl), least, kl),
        expectation(law, lambda x: (x - kl) ** 3, lambda x: 3 * (x - kl) ** 2, least),
        expectation(law, lambda x: (x - kl) ** 4, lambda x: 4 * (x - kl) ** 3, least),
    )


def _mean_of(law: Law, missing: float, least: float) -> float:
    """E L as Q-mass `missing` + E (L - 1 + e^-L): no term is negative, so nothing cancels for nearly equal laws.

    Far negative losses, which are rare under P and frequent under Q, are integrated directly.
    """
    if isinstance(law, MixedLaw):
        return missing + math.fsum(w * _mean_of(one, 0.0, least) for w, one in zip(law.weights, law.parts, strict=True))
    if isinstance(law, FiniteLaw):
        kept = law.masses > 0
        losses, masses = law.losses[kept], law.masses[kept]
        near = masses * (losses + np.expm1(-losses))
        far = masses * (losses - 1) + np.exp(np.log(masses) - losses)
        return math.fsum(np.where(np.abs(losses) < 1, near, far)) + missing
    if max(lattice.reach(law, REACH)[0], least) < -1:
        return expectation(law, lambda x: x, np.ones_like, least)
    return missing + expectation(law, lambda x: x + np.expm1(-x), lambda x: -np.expm1(-x), least)


def expectation(
    law: Law,
    function: Callable[[Floats], Floats],
    slope: Callable[[Floats], Floats],
    least: float,
    kink: float = 0.0,
) -> float:
    """E_P function(L), by parts: function(0) + ∫_0^∞ slope(l) P(L > l) dl - ∫_{-∞}^0 slope(l) P(L <= l) dl.

    The integral begins at `least`, because no loss is smaller. Further down it would sum the rounding errors of P(L <=
    l), which exceed the moments of nearly equal laws.
    """
    if isinstance(law, FiniteLaw):
        return math.fsum(law.masses * function(law.losses))
    if isinstance(law, MixedLaw):
        each = (expectation(one, function, slope, least, kink) for one in law.parts)
        return math.fsum(w * value for w, value in zip(law.weights, each, strict=True))
    low, high = lattice.reach(law, REACH)
    low = min(max(low, least), 0.0)
    jumps = law.jumps if len(law.jumps) <= MOST_JUMPS else law.atoms
    cuts = np.array(sorted({low, min(max(kink, low), high), 0.0, high, *(a for a in jumps if low < a < high)}))
    pieces = max(2, PIECES // len(cuts))
    between = cuts[:-1, None] + np.diff(cuts)[:, None] * np.arange(pieces) / pieces
    edges = np.append(between.ravel(), cuts[-1])
    nodes, weights = np.polynomial.legendre.leggauss(24)
    half = 0.5 * np.diff(edges)[:, None]
    at = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * nodes).ravel()
    first = law.tails(at).first
    share = np.where(at >= 0, first, first - 1)
    return float(function(np.array([0.0]))[0]) + float(np.sum((half * weights).ravel() * slope(at) * share))


def _flips(curve: Curve, atom: Atom) -> bool:
    """Whether a factor's direction may differ from the direction of the others."""
    alone = sum(count for _, count in curve.factors) <= 1
    return not alone and not atom.tied and not pair_of(atom).is_symmetric


Reader = Callable[[Atom, bool], tuple[LossMoments, ...]]


def _ways(curve: Curve, atom: Atom, is_forward: bool, read: Reader) -> tuple[LossMoments, ...]:
    """The moments of a factor in one direction, or in both if it may flip."""
    return read(atom, is_forward) + (read(atom, not is_forward) if _flips(curve, atom) else ())


def corners(
    curve: Curve,
    is_forward: bool,
    read: Reader,
    one: Callable[[LossMoments], float],
    two: Callable[[LossMoments], float],
    least_square: bool = False,
) -> Iterator[list[tuple[LossMoments, int]]]:
    """The moments of every factor in one direction, for enough combinations of directions to find a maximum.

    The goal is the maximum of a convex function of the sums Σ one and Σ two, increasing in both. It is attained where
    every factor maximises one + w two for some weight w >= 0. A factor changes its choice only at certain weights, so
    one weight between each two of them is enough. If there are too many, every factor enters with its largest E L and
    its largest E L² (or its smallest, for `least_square`), which bounds all combinations.
    """
    options, turns = [], [0.0]
    for atom, _ in curve.factors:
        ways = _ways(curve, atom, is_forward, read)
        if all(math.isfinite(m.kappa2) for m in ways):
            for a, b in itertools.combinations(ways, 2):
                gain, loss = one(a) - one(b), two(b) - two(a)
                turns += [gain / loss] if loss and gain / loss > 0 else []
        options.append(ways)
    turns = sorted(set(turns))
    if len(turns) > MOST_TURNS:
        extreme = min if least_square else max
        bounds = [
            ways[0]._replace(kl=max(m.kl for m in ways), kappa2=extreme(m.kappa2 for m in ways)) for ways in options
        ]
        yield [(bound, count) for bound, (_, count) in zip(bounds, curve.factors, strict=True)]
        return
    for weight in [*(0.5 * (a + b) for a, b in itertools.pairwise(turns)), 2 * turns[-1] + 1]:

        def leaks(m: LossMoments, weight: float = weight) -> float:
            return one(m) + weight * two(m) if math.isfinite(m.kappa2) else math.inf

        yield [(max(ways, key=leaks), count) for ways, (_, count) in zip(options, curve.factors, strict=True)]


@quietly
def kl_of(curve: Curve, is_forward: bool) -> float:
    """E L of one direction; adds over factors. In a product, a factor that may flip enters with its larger KL."""
    if alternatives := _alternatives(curve):
        return max(kl_of(one, is_forward == as_it_is) for one, as_it_is in alternatives)
    return math.fsum(n * max(one.kl for one in _ways(curve, atom, is_forward, moments)) for atom, n in curve.factors)


def _alternatives(curve: Curve) -> tuple[tuple[Curve, bool], ...]:
    """The alternatives of a curve that is one atom (`Atom.alternatives`); empty otherwise."""
    return curve.factors[0][0].alternatives() if [count for _, count in curve.factors] == [1] else ()


def kl(curve: Curve) -> float:
    """E L of the worse direction."""
    return max(kl_of(curve, True), kl_of(curve, False))


@quietly
def kappa2(curve: Curve) -> float:
    """E L² of the worse direction."""
    return max(_kappa2(curve, True), _kappa2(curve, False))


def _variance(m: LossMoments) -> float:
    return m.kappa2 - m.kl * m.kl


def _kappa2(curve: Curve, is_forward: bool) -> float:
    """E L² = variance (adds over factors) + (E L)²."""
    if alternatives := _alternatives(curve):
        return max(_kappa2(one, is_forward == as_it_is) for one, as_it_is in alternatives)
    found = []
    for known in corners(curve, is_forward, covering, _variance, lambda m: m.kl):
        mean = math.fsum(n * one.kl for one, n in known)
        if not math.isfinite(mean * mean) or not all(math.isfinite(one.kappa2) for one, _ in known):
            return math.inf
        found.append(math.fsum(n * _variance(one) for one, n in known) + mean * mean)
    return max(found)


def _or_inf(value: float) -> float:
    """The value; inf if it overflowed to NaN."""
    return math.inf if math.isnan(value) else value


@quietly
def kappa3(curve: Curve) -> float:
    """E |L|³ of the worse direction."""
    return max(_kappa3(curve, True), _kappa3(curve, False))


def _kappa3(curve: Curve, is_forward: bool) -> float:
    """E |L|³: exact for one use of one atom, otherwise from the composed loss distribution."""
    if alternatives := _alternatives(curve):
        return max(_kappa3(one, is_forward == as_it_is) for one, as_it_is in alternatives)
    if sum(count for _, count in curve.factors) <= 1:
        return max((_or_inf(m.kappa3) for atom, _ in curve.factors for m in covering(atom, is_forward)), default=0.0)
    if not math.isfinite(_kappa2(curve, is_forward)):
        return math.inf
    if not all(atom.possible_pairs() for atom, _ in curve.factors):
        forward, backward = curve_readings.product_of(curve)
        return _or_inf(covering_moments(*((forward, backward) if is_forward else (backward, forward)))[1])
    if not (combinations := list(_combinations(curve, is_forward))):
        return _or_inf(_cubes_bound(curve, is_forward))
    return max(_cubes(ahead, back) for ahead, back in combinations)


def _cubes(ahead: list[tuple[Sided, int]], back: list[tuple[Sided, int]]) -> float:
    """E |L|³ of a product of laws: E L³, a polynomial of cumulants, plus twice the part of the negative losses."""
    product = curve_readings.product_of_sides(ahead)
    if not product.needs_panels and isinstance(law := product.single(product.upper), FiniteLaw):
        other = curve_readings.product_of_sides(back)
        return _or_inf(_moments(law, other.infinity("upper"), -other.highest).kappa3)
    each = [
        (_cumulants(_moments(one.upper, other.upper.infinity, -other.upper.highest)), n)
        for (one, n), (other, _) in zip(ahead, back, strict=True)
    ]
    mean, variance, third = (math.fsum(n * known[i] for known, n in each) for i in range(3))
    cube = third + 3 * variance * mean + mean**3
    return max(_or_inf(cube + 2 * negative_cubes(curve_readings.product_of_sides(back))), abs(cube))


def _combinations(curve: Curve, is_forward: bool) -> Iterator[tuple[list[tuple[Sided, int]], ...]]:
    """For every combination of directions of the factors that may flip: the laws of both directions with their numbers
    of uses. Empty if there are too many combinations.
    """
    known = [(_orders(curve, atom, is_forward), count) for atom, count in curve.factors]
    if math.prod(math.comb(count + len(pairs) - 1, count) for pairs, count in known) > MOST_WAYS:
        return
    splits = [[list(zip(pairs, split, strict=True)) for split in _splits(count, len(pairs))] for pairs, count in known]
    for chosen in itertools.product(*splits):
        used = [(pair, uses) for split in chosen for pair, uses in split if uses]
        yield [(pair.forward, n) for pair, n in used], [(pair.backward, n) for pair, n in used]


def _splits(count: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write `count` as an ordered sum of `parts` numbers >= 0."""
    if parts == 1:
        yield (count,)
        return
    for first in range(count + 1):
        yield from ((first, *rest) for rest in _splits(count - first, parts - 1))


def _orders(curve: Curve, atom: Atom, is_forward: bool) -> list[LawPair]:
    """The pairs of laws that one use of a factor may have in this direction, and also the exchanged pairs if the factor
    may flip.
    """
    pairs = atom.possible_pairs()
    turned = [LawPair(pair.backward, pair.forward) for pair in pairs]
    ahead, back = (pairs, turned) if is_forward else (turned, pairs)
    return [*ahead, *(back if _flips(curve, atom) else ())]


def _cubes_bound(curve: Curve, is_forward: bool) -> float:
    """An upper bound on E |L|³ over all combinations of directions: √(E L² E L⁴), by Cauchy-Schwarz.

    Both moments are polynomials of the sums of the factors' cumulants. The number of flipped uses of each factor is
    enumerated, or divided into cells if there are too many combinations; in a cell the larger end of every sum is
    taken. For many small losses the bound is at most √3 / √(8/π) = 1.086 times too large.
    """
    fixed, turning = np.zeros(4), []
    for atom, count in curve.factors:
        known = np.array([_cumulants(m) for m in _ways(curve, atom, is_forward, moments)])
        if len(known) == 1:
            fixed += count * known[0]
        else:
            turning.append((known, count))
    each = max(int(MOST_CELLS ** (1 / max(len(turning), 1))), 1)
    low = high = fixed[None, :]
    for known, count in turning:
        if len(known) == 2:
            edges = np.unique(np.linspace(0, count, min(each, count) + 1).round())
            sums = (count - edges)[:, None] * known[0] + edges[:, None] * known[1]
            # Every number of flips has its own cell if there are enough cells.
            lefts, rights = (sums, sums) if count < each else (sums[:-1], sums[1:])
            ends = np.minimum(lefts, rights), np.maximum(lefts, rights)
        else:
            ends = tuple(count * f(known, axis=0)[None, :] for f in (np.min, np.max))
        low, high = ((a[:, None, :] + b[None, :, :]).reshape(-1, 4) for a, b in ((low, ends[0]), (high, ends[1])))
    mean, variance, third, fourth = high.T
    third = np.where(np.all(low == high, axis=1), third, np.maximum(third, 0.0))
    square = variance + mean**2
    power = fourth + 4 * third * mean + 3 * variance**2 + 6 * variance * mean**2 + mean**4
    return float(np.max(np.sqrt(square * power)))


def _cumulants(m: LossMoments) -> tuple[float, float, float, float]:
    variance = _variance(m)
    return m.kl, variance, m.skewed, m.central4 - 3 * variance * variance
