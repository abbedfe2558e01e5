"""Numbers of a curve: δ(ε), ε(δ), Rényi divergences and zCDP, from the laws of its factors.

A curve is a product of atoms, and an atom is a pair of neighbouring output distributions (P, Q), P without the person.
A guarantee must hold in both directions: P against Q ("forward") and Q against P ("backward"). This module turns a
curve into two products of laws, one for each direction, and returns the worse of the two numbers. The numerics of one
product are in `composition/law_product.py`.

Directions of several factors. In a product of Poisson-sampled mechanisms the person is absent in every P: the forward
direction of one factor goes with the forward direction of all others. Such an atom is *tied*. Other asymmetric atoms
may flip: an analyst can choose, after the earlier answers, in which order to meet the pair. Beside other factors such
an atom enters with the worse of its two directions at every ε (`symmetrized_pair_of`).

Caching. Building a product is expensive, so `product_of` caches products by curve. Each call returns fresh copies
without panels, because an answer must not depend on what was asked before. A curve with many different factors is built
by extending the curve that it was multiplied from, if that one is cached (`factor_merging.LongFactors`).
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable.curves.atoms.atom import Atom, pair_of, symmetrized_pair_of
from deniable.curves.composition.convolution_tree import LEAST
from deniable.curves.composition.exponential_moments import log_moment
from deniable.curves.composition.factor_merging import LongFactors, SimplifiedFactors, simplify
from deniable.curves.composition.law_product import Product
from deniable.curves.composition.profile_search import renyi_epsilon
from deniable.curves.composition.tilt_plan import SKETCH_TAIL, Factor
from deniable.curves.laws.law import Sided
from deniable.curves.outward_rounding import Floats, Side, quietly, sum_up

if TYPE_CHECKING:
    from deniable.curves.curve import Curve


class _Read(NamedTuple):
    """The products of laws in both directions, and whether some factor's direction may flip."""

    forward: Product
    backward: Product
    may_flip: bool


_READ: OrderedDict[Curve, _Read] = OrderedDict()
_LOCK = threading.Lock()
MOST_READ = 64
MOST_ADDED = 24
"""The most different factors by which the products of another curve are extended."""


@quietly
def product_of(curve: Curve) -> tuple[Product, Product]:
    """The products of laws in the forward and the backward direction: the same object twice if every factor is
    symmetric.
    """
    read = _remembered(curve)
    if read is None:
        read = _extended(curve) or _built(curve)
        with _LOCK:
            _READ[curve] = read
            while len(_READ) > MOST_READ:
                _READ.popitem(last=False)
    # Fresh copies, without cached panels: an answer must not depend on what was asked before.
    forward = read.forward.fresh()
    return forward, (forward if read.backward is read.forward else read.backward.fresh())


def _remembered(curve: Curve) -> _Read | None:
    with _LOCK:
        if curve in _READ:
            _READ.move_to_end(curve)
            return _READ[curve]
    return None


def _built(curve: Curve) -> _Read:
    """The products of a curve, from its factors.

    Direction rule: all tied factors have the same direction. A factor that is not tied may have either direction.
    Beside other factors, its direction may even be chosen after their answers were seen, so it enters with the worse of
    its two directions.
    """
    factors = [((one, 1) if (one := a.repeated(n)) is not None else (a, n)) for a, n in curve.factors]
    flips = any(not atom.tied and not pair_of(atom).is_symmetric for atom, _ in factors)
    mixed = flips and sum(count for _, count in factors) > 1
    pairs = [(symmetrized_pair_of(a) if mixed and not a.tied else pair_of(a), n) for a, n in factors]
    renyi = curve.renyi_function if any(atom.renyi_only for atom, _ in factors) else None
    forward = _product([(p.forward, n) for p, n in pairs], None, renyi)
    if all(pair.is_symmetric for pair, _ in pairs):
        return _Read(forward, forward, False)
    return _Read(forward, _product([(p.backward, n) for p, n in pairs], None, renyi), flips)


def _extended(curve: Curve) -> _Read | None:
    """The products of a curve of many factors, by extending the cached products of the curve it was multiplied from, so
    that one more mechanism is cheap. None if these products are not cached, or if only Rényi divergences are known of a
    factor.
    """
    origin = curve.origin
    if origin is None or len(origin[1].counts) > MOST_ADDED or len(origin[0].counts) < LEAST:
        return None
    read = _remembered(origin[0])
    if read is None or read.forward.renyi is not None or any(atom.renyi_only for atom in origin[1].counts):
        return None
    if any(atom in origin[0].counts and atom.repeated(2) is not None for atom in origin[1].counts):
        return None  # the old uses and the new ones are one atom together
    factors = [((one, 1) if (one := a.repeated(n)) is not None else (a, n)) for a, n in origin[1].factors]
    flips = read.may_flip or any(not atom.tied and not pair_of(atom).is_symmetric for atom, _ in factors)
    pairs = [(pair_of(a) if a.tied else symmetrized_pair_of(a), n) for a, n in factors]
    forward = _product([(p.forward, n) for p, n in pairs], read.forward, None)
    if read.forward is read.backward and all(p.is_symmetric for p, _ in pairs):
        return _Read(forward, forward, flips)
    return _Read(forward, _product([(p.backward, n) for p, n in pairs], read.backward, None), flips)


def _product(sided: list[tuple[Sided, int]], before: Product | None, renyi: Callable[[float], float] | None) -> Product:
    """The product of these laws, multiplied with `before` if it is given."""
    upper, lower = (None, None) if before is None else (before.upper, before.lower)
    assert upper is None or isinstance(upper, SimplifiedFactors)
    assert lower is None or isinstance(lower, SimplifiedFactors)
    above = simplify([Factor(s.upper, n) for s, n in sided], "upper", upper)
    exact = lower is upper and all(s.lower is s.upper for s, _ in sided)
    if exact and not above.ingredients.finites and above.ingredients.gaussians <= 1:
        return Product(above, above, renyi)  # merging rounded nothing, so one object serves both sides
    below = simplify([Factor(s.lower, n) for s, n in sided], "lower", lower)
    if isinstance(above, LongFactors) and isinstance(below, LongFactors) and below.head.factors == above.head.factors:
        below.head = above.head
    return Product(above, above if below == above else below, renyi)


def product_of_sides(sided: list[tuple[Sided, int]]) -> Product:
    """The product of these laws, each run as many times as given."""
    return _product(sided, None, None)


def direction_delta(ahead: Product, back: Product, epsilon: Floats, side: Side, blur: float = 0.0) -> Floats:
    """A bound on δ(ε) of one direction for any real ε; a negative ε is converted to the other direction."""
    result = np.empty_like(epsilon)
    positive = epsilon >= 0
    if np.any(positive):
        result[positive] = ahead.delta(epsilon[positive], side, blur)
    if not np.all(positive):
        e = epsilon[~positive]
        # E_x(P||Q) = 1 - x + x E_{1/x}(Q||P).
        reflected = -np.expm1(e) + np.exp(e) * back.delta(-e, side, blur)
        result[~positive] = reflected * (1 + 4e-16) if side == "upper" else reflected * (1 - 4e-16)
    return np.clip(result, 0.0, 1.0) + 0.0  # no -0.0


def _alternatives(curve: Curve) -> tuple[Curve, ...]:
    """The curves whose worst is this curve, if it is a single factor of this kind; both directions of each of them
    count. Empty for other curves.
    """
    if len(curve.counts) == 1:
        ((atom, uses),) = curve.factors
        if uses == 1 and (parts := atom.alternatives()):
            return tuple(dict.fromkeys(part for part, _ in parts))
    from deniable.curves.atoms import grouped_samples

    return grouped_samples.worst_division(curve)


@quietly
def delta_bounds(curve: Curve, epsilon: Floats) -> tuple[Floats, Floats]:
    """Certified bounds on δ(ε), the worse of both directions."""
    if parts := _alternatives(curve):
        found = [delta_bounds(part, epsilon) for part in parts]
        return np.max([low for low, _ in found], axis=0), np.max([high for _, high in found], axis=0)
    products = product_of(curve)
    return _delta_bound(*products, epsilon, "lower"), _delta_bound(*products, epsilon, "upper")


def _delta_bound(forward: Product, backward: Product, epsilon: Floats, side: Side) -> Floats:
    flat = epsilon.ravel()
    result = np.empty_like(flat)
    finite = np.isfinite(flat)
    result[flat == -math.inf] = 1.0
    result[flat == math.inf] = max(forward.infinity(side), backward.infinity(side))
    inner = flat[finite]
    if len(inner):
        values = direction_delta(forward, backward, inner, side)
        if backward is not forward:
            values = np.maximum(values, direction_delta(backward, forward, inner, side))
        result[finite] = values
    return result.reshape(epsilon.shape)


@quietly
def epsilon_bounds(curve: Curve, delta: float) -> tuple[float, float]:
    """Certified (low, high) around inf{ε >= 0 : δ(ε) <= delta}, the worse of both directions."""
    if delta >= 1:
        return 0.0, 0.0
    if parts := _alternatives(curve):
        found = [epsilon_bounds(part, delta) for part in parts]
        return max(low for low, _ in found), max(high for _, high in found)
    forward, backward = product_of(curve)
    low = high = 0.0
    rest = []
    # The backward direction of a sampled mechanism is usually the worse one.
    for product in [forward] if backward is forward else [backward, forward]:
        largest = product.highest if product.infinity("upper") == 0 else math.inf
        if low > 0 and min(largest, product.contour_bound(delta, backward.tilt)) <= low:
            continue
        if low > 0 and product.contour_bound(delta) <= low:
            continue
        bracket = product.contour_bracket(delta)
        if bracket is None:
            rest.append(product)
        else:
            low, high = max(low, bracket[0]), max(high, bracket[1])
    if len(rest) == 2 and 0 < delta < 1:
        # The sharp Chernoff bound often shows that one direction cannot be the worse one.
        rest.sort(key=lambda p: -_chernoff(p, delta))
    for product in rest:
        if low > 0 and (_quick_bound(product, delta) <= high or product.epsilon_above(delta) <= low):
            continue
        one = product.epsilon_bounds(delta)
        low, high = max(low, one[0]), max(high, one[1])
    unresolved = math.isinf(high) or (delta < SKETCH_TAIL and high > 2 * low)
    if unresolved and math.isfinite(low) and delta > 0:
        # δ is below what tail masses in floating point resolve: exponential moments still give a bound.
        high = min(high, max(renyi_epsilon(curve.renyi_function, delta), low))
    return low, high


def _quick_bound(product: Product, delta: float) -> float:
    """An upper bound on ε(δ) of one direction without any FFT."""
    largest = product.highest if product.infinity("upper") == 0 else math.inf
    return min(largest, _chernoff(product, delta))


def _chernoff(product: Product, delta: float) -> float:
    """The Chernoff bound on ε(δ) of one direction; inf where it does not apply."""
    left = delta - product.infinity("upper")
    return product.aim(left).bound if left > 0 and product.needs_panels else math.inf


# -- Rényi -----------------------------------------------------------------------------------------------------------


@quietly
def renyi(curve: Curve, order: float) -> float:
    """An upper bound on the Rényi divergence of this order, the worse of both directions."""
    if order < 1:
        from deniable.curves.meaning import divergences

        return max(divergences.renyi_bounds(curve, order, is_forward)[1] for is_forward in (True, False))
    forward, backward = [], []
    for atom, count in curve.factors:
        one, two = _atom_renyi(atom, order)
        if not atom.tied:
            one = two = max(one, two)
        forward.append((one, count))
        backward.append((two, count))
    return max(sum_up(forward), sum_up(backward), 0.0)


@lru_cache(maxsize=65536)
def _atom_renyi(atom: Atom, order: float) -> tuple[float, float]:
    """Upper bounds on the Rényi divergence of one atom in the forward and the backward direction."""
    closed = atom.renyi_bound(order)
    if closed is not None:
        return closed, closed
    pair = pair_of(atom)
    values = []
    for side in (pair.forward, pair.backward):
        law = side.upper
        top = law.highest if law.infinity == 0 else math.inf
        # Next to order 1 the moment is a difference of nearly equal numbers; divergences increase with the order.
        near = max(order, 1 + 1e-5)
        value = top if order == math.inf else log_moment(law, near - 1) / (near - 1)
        # If the loss is at most ε in both directions: D <= ε, and D <= order ε²/2 (Bun & Steinke 2016, Proposition
        # 3.3).
        both = max(pair.forward.upper.highest, pair.backward.upper.highest)
        bounded = pair.forward.upper.infinity == pair.backward.upper.infinity == 0
        cap = 0.5 * order * both * both * (1 + 1e-15) if bounded and math.isfinite(both) else math.inf
        values.append(max(min(value, top, cap), 0.0))
    if math.isinf(max(values)) and 1 < order < math.inf:
        values = [min(v, i) for v, i in zip(values, atom.inherited_renyi(order) or values, strict=True)]
    return values[0], values[1]


@quietly
def zcdp(curve: Curve) -> float:
    """An upper bound on the smallest ρ with D_order <= ρ × order for every order >= 1: the sum over the factors."""
    return sum_up([(_atom_zcdp(atom), count) for atom, count in curve.factors])


@lru_cache(maxsize=1024)
def _atom_zcdp(atom: Atom) -> float:
    closed = atom.zcdp_bound()
    if closed is not None:
        return closed
    top = max(_atom_renyi(atom, math.inf))
    if not math.isfinite(top):
        return math.inf
    # D increases with the order and stays below `top`, so D(order)/order <= D(b)/a for orders in [a, b]. Refine the
    # worst such cell.
    cells = [(a, b, max(_atom_renyi(atom, b)) / a) for a, b in ((2.0**i, 2.0 ** (i + 1)) for i in range(12))]
    cells.append((4096.0, math.inf, top / 4096.0))
    for _ in range(300):
        a, b, bound = max(cells, key=lambda cell: cell[2])
        if b == math.inf or b <= a * (1 + 1e-5):
            break
        cells.remove((a, b, bound))
        middle = math.sqrt(a * b)
        cells += [(a, middle, max(_atom_renyi(atom, middle)) / a), (middle, b, max(_atom_renyi(atom, b)) / middle)]
    return max(cell[2] for cell in cells)
