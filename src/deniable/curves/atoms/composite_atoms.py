"""Guarantees built from other guarantees: sampling, groups, the worst of several, mixtures, symmetrisation, reversal.

Each class contains curves and is itself an atom, so it multiplies like any other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, final

import numpy as np

from deniable.curves import curve_arguments
from deniable.curves.atoms import inherited_renyi as inherited
from deniable.curves.atoms.atom import Atom, pair_of, show
from deniable.curves.atoms.mechanism_atoms import ApproximateAtom
from deniable.curves.composition import lattice
from deniable.curves.composition.law_product import Product
from deniable.curves.curve import Curve
from deniable.curves.laws import finite_law, laws_from_bounds, neighbour_chain
from deniable.curves.laws.derived_laws import (
    FixedSizeLaw,
    MixedLaw,
    SampledAgainstWithout,
    WithoutAgainstSampled,
)
from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.laws.law import Law, LawPair, Sided
from deniable.curves.meaning.attacker import SearchedProfile
from deniable.curves.meaning.curve_readings import product_of
from deniable.curves.outward_rounding import Floats, Side
from deniable.errors import NOTHING, InvalidParameter, NotCertifiable

TABLE_POINTS = 4000
SMALLEST_RATE = 1e-290
LARGEST_GROUP = 10**9
DEEPEST_NESTING = 30
MOST_MIXED = 64
"""The most combinations of directions of a mixture's parts that are listed. Beyond, moments are bounds over all of
them.
"""
CHAIN_POINTS = 200_000
CHAIN_TAIL = 1e-250
"""Mass that an upper bound may cut from one step of a chain. It counts as infinite loss, and grows along the chain like
e^loss.
"""


@lru_cache(maxsize=256)
def curve_pair(curve: Curve) -> LawPair:
    """One law per direction and side for a whole curve: the law itself if one law is left after merging, else a table
    of the certified profile.
    """
    forward, backward = product_of(curve)
    one = _sided(forward, backward)
    return LawPair(one, one) if backward is forward else LawPair(one, _sided(backward, forward))


def _sided(ahead: Product, back: Product) -> Sided:
    if not ahead.needs_panels:
        return Sided(Product.single(ahead.upper), Product.single(ahead.lower))
    profile = SearchedProfile(ahead, back, 1e-40)
    points = profile.grid(TABLE_POINTS)
    low, high = profile.delta(points, "lower"), profile.delta(points, "upper")
    return Sided(
        laws_from_bounds.law_above(points, high), laws_from_bounds.law_below(points, low, high, ahead.infinity("lower"))
    )


def is_tied(curve: Curve) -> bool:
    """Whether the curve's forward direction always means the same neighbour, or both directions are alike."""
    # With two or more uses, product_of has symmetrised every factor that may flip.
    alone = sum(count for _, count in curve.factors) == 1
    return not alone or all(atom.tied or pair_of(atom).is_symmetric for atom, _ in curve.factors)


def is_exact(curve: Curve) -> bool:
    """Whether the curve's laws are the laws of the mechanism, so that the distribution of its privacy loss is known:
    every factor is exact, and no factor was symmetrised because it may flip.
    """
    alone = sum(count for _, count in curve.factors) <= 1
    return all(a.is_exact and (alone or a.tied or pair_of(a).is_symmetric) for a, _ in curve.factors)


def _possible_pairs(curve: Curve) -> tuple[LawPair, ...]:
    """All pairs of laws that the curve may have, like `Atom.possible_pairs` for an atom.

    Empty for a product in which some factor was symmetrised.
    """
    if sum(count for _, count in curve.factors) == 1:
        return curve.factors[0][0].possible_pairs()
    known = all(len(a.possible_pairs()) == 1 and (a.tied or pair_of(a).is_symmetric) for a, _ in curve.factors)
    return (curve_pair(curve),) if known else ()


def _swapped(pair: LawPair) -> LawPair:
    return pair if pair.is_symmetric else LawPair(pair.backward, pair.forward)


def _orders(curve: Curve) -> tuple[LawPair, ...]:
    """`_possible_pairs` in every order of the neighbours that is possible."""
    pairs = _possible_pairs(curve)
    return pairs if is_tied(curve) else (*pairs, *(_swapped(pair) for pair in pairs))


def settled_pair(curve: Curve) -> LawPair:
    """The laws of a curve; if its direction may flip, the worse direction at every ε."""
    pair = curve_pair(curve)
    if pair.is_symmetric or is_tied(curve):
        return pair
    return laws_from_bounds.worse_direction(pair)


def bracketed(curve: Curve) -> str:
    """The expression of a curve, in brackets if a method call after it needs them."""
    return curve.expression() if [count for _, count in curve.factors] == [1] else f"({curve.expression()})"


def check_curve(name: str, value: object) -> Curve:
    """The curve. Raises InvalidParameter if it is not a Curve or is nested too deeply."""
    if not isinstance(value, Curve):
        raise InvalidParameter(name, value, "must be a curve", "for example curves.gaussian(sigma=...)")
    if nesting(value) >= DEEPEST_NESTING:
        raise InvalidParameter(name, "...", f"curves may be nested at most {DEEPEST_NESTING} deep")
    return value


@lru_cache(maxsize=4096)
def nesting(curve: Curve) -> int:
    """The depth of nested curves (a mixture of mixtures has depth 2)."""
    inner = [v for atom, _ in curve.factors for v in (getattr(atom, "curve", None), *getattr(atom, "curves", ()))]
    return max((1 + nesting(c) for c in inner if isinstance(c, Curve)), default=0)


def check_curves(name: str, values: Sequence[Curve]) -> tuple[Curve, ...]:
    """The curves as a tuple, each checked by `check_curve`; at least one."""
    if isinstance(values, Curve) or not isinstance(values, Sequence) or not values:
        raise InvalidParameter(name, values, "must be a non-empty sequence of curves")
    # An entry that is not a curve may be data.
    return tuple(check_curve(name, v if isinstance(v, Curve) else NOTHING) for v in values)


# -- sampling --------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class SampledAtom(Atom):
    """The curve on a Poisson sample of rate `rate`."""

    name: ClassVar[str] = "sampled"
    curve: Curve
    rate: float

    def __post_init__(self) -> None:
        check_curve("curve", self.curve)
        object.__setattr__(self, "rate", curve_arguments.probability("rate", self.rate))

    @property
    def is_exact(self) -> bool:
        return is_exact(self.curve) and is_tied(self.curve)

    def pair(self) -> LawPair:
        return self._of(settled_pair(self.curve))

    def possible_pairs(self) -> tuple[LawPair, ...]:
        return tuple(self._of(pair) for pair in _orders(self.curve))

    def _of(self, base: LawPair) -> LawPair:
        q = self.rate

        def without(law: Law) -> Law:
            return WithoutAgainstSampled(law, q)

        def sampled(law: Law) -> Law:
            return SampledAgainstWithout(law, q)

        return LawPair(
            Sided(without(base.forward.upper), without(base.forward.lower)),
            Sided(sampled(base.backward.upper), sampled(base.backward.lower)),
        )

    def expression(self) -> str:
        return f"{bracketed(self.curve)}.sampled(rate={show(self.rate)})"

    def inherited_renyi(self, order: float) -> tuple[float, float] | None:
        ahead = inherited.against_sampled(self.curve.renyi_function, self.rate, order)
        return ahead, inherited.sampled(_cumulants(self.curve), self.rate, order)

    def gdp_bound(self) -> float | None:
        # Sampling never makes the curve worse, and in the far tail the two are equally bad.
        return self.curve.gdp() if not math.isfinite(curve_pair(self.curve).forward.upper.highest) else None

    def zcdp_bound(self) -> float | None:
        return self.curve.zcdp() if not math.isfinite(curve_pair(self.curve).forward.upper.highest) else None


@lru_cache(maxsize=256)
def _cumulants(curve: Curve) -> Floats:
    return inherited.cumulants(curve.renyi_function)


def sampled(curve: Curve, *, rate: float) -> Curve:
    """The curve on a Poisson sample (`Curve.sampled`)."""
    rate = curve_arguments.probability("rate", rate)
    if 0 < rate < SMALLEST_RATE:
        raise InvalidParameter("rate", rate, f"must be 0 or at least {SMALLEST_RATE:g}")
    if rate == 0 or not curve.factors:
        return Curve({})
    return curve if rate == 1 else Curve.of(SampledAtom(curve, rate))


@final
@dataclass(frozen=True, slots=True)
class FixedSizeAtom(Atom):
    """The curve on a uniform sample of `size` out of `population`, for neighbours that replace one person."""

    name: ClassVar[str] = "sampled_without_replacement"
    curve: Curve
    size: int
    population: int

    def __post_init__(self) -> None:
        check_curve("curve", self.curve)
        object.__setattr__(self, "population", curve_arguments.integer("population", self.population, 1))
        object.__setattr__(self, "size", curve_arguments.integer("size", self.size, 1))
        if self.size > self.population:
            raise InvalidParameter("size", self.size, f"must be at most population = {self.population}")

    @property
    def is_exact(self) -> bool:
        return False

    def pair(self) -> LawPair:
        base, q = laws_from_bounds.worse_direction(curve_pair(self.curve)), self.size / self.population
        side = Sided(
            FixedSizeLaw(SampledAgainstWithout(base.forward.upper, q)),
            FixedSizeLaw(SampledAgainstWithout(base.forward.lower, q)),
        )
        return LawPair(side, side)

    def expression(self) -> str:
        inner = bracketed(self.curve)
        return f"{inner}.sampled_without_replacement(size={self.size}, population={self.population})"

    def inherited_renyi(self, order: float) -> tuple[float, float] | None:
        # A mixture of pairs of neighbours, each at most as distinguishable as the curve says (divergences are
        # quasi-convex).
        worst = self.curve.renyi_function(order)
        return worst, worst

    def gdp_bound(self) -> float | None:
        # q δ(x) <= δ(x) <= δ(1 + q(x-1)) for x >= 1: never worse than the curve itself.
        return self.curve.gdp()


def sampled_without_replacement(curve: Curve, *, size: int, population: int) -> Curve:
    """The curve on a sample of fixed size (`Curve.sampled_without_replacement`)."""
    atom = FixedSizeAtom(
        curve, curve_arguments.integer("size", size, 1), curve_arguments.integer("population", population, 1)
    )
    return curve.symmetrized() if atom.size == atom.population else Curve.of(atom)


# -- groups ----------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class GroupedAtom(Atom):
    """The curve for neighbours that differ in `size` people."""

    name: ClassVar[str] = "group"
    curve: Curve
    size: int

    def __post_init__(self) -> None:
        check_curve("curve", self.curve)
        object.__setattr__(self, "size", curve_arguments.integer("size", self.size, 1))

    @property
    def is_exact(self) -> bool:
        return False

    def divisions(self) -> tuple[Curve, ...]:
        """One curve for each division of the group into leaving and joining people, if known (`grouped_samples`)."""
        from deniable.curves.atoms.grouped_samples import divisions

        return divisions(self.curve, self.size)

    def pair(self) -> LawPair:
        if ways := self.divisions():
            worst = pair_of(SymmetrizedAtom(worst_of(*ways))).forward
            one = Sided(_finite(worst.upper, "upper", 1), _finite(worst.lower, "lower", 1))
            return LawPair(one, one)
        # From one dataset to the other some people may join and others leave: every step may go in either direction.
        one = self._sided(laws_from_bounds.worse_direction(curve_pair(self.curve)).forward)
        return LawPair(one, one)

    def _sided(self, base: Sided) -> Sided:
        return Sided(
            neighbour_chain.iterate(_finite(base.upper, "upper", self.size), self.size, side="upper"),
            neighbour_chain.iterate(_finite(base.lower, "lower", self.size), self.size, side="lower"),
        )

    def expression(self) -> str:
        return f"{bracketed(self.curve)}.group(size={self.size})"

    def inherited_renyi(self, order: float) -> tuple[float, float] | None:
        one = inherited.chained(self.curve.renyi_function, self.size, order)
        return one, one


def _finite(law: Law, side: Side, size: int) -> FiniteLaw:
    """The law itself if it is finite, else a finite law above or below it, by `side`."""
    if not isinstance(law, FiniteLaw):
        points = lattice.spread_points(law, CHAIN_TAIL, max(400, min(6000, CHAIN_POINTS // size)))
        grid = lattice.above(law, points) if side == "upper" else lattice.below(law, points)
        law = FiniteLaw(grid.losses, grid.masses, grid.infinity)
    if len(law.losses) * size > finite_law.LARGEST_SUPPORT:
        raise NotCertifiable(
            f"a group of {size} needs more than {finite_law.LARGEST_SUPPORT:,} points for this mechanism; use a "
            "smaller group, or a mechanism with a closed form"
        )
    return law


def group(curve: Curve, *, size: int) -> Curve:
    """The curve for a group (`Curve.group`). A group of a product is the product of the groups: every factor sees the
    same chain of neighbours.

    The exception is a δ beside other factors. "As private as the rest, up to δ" usually describes one mechanism, such
    as counts that hide rare keys. Along a chain its δ grows like e^ε, so the product is grouped as a whole.
    """
    size = curve_arguments.integer("size", size, 1)
    if size > LARGEST_GROUP:
        raise InvalidParameter("size", size, f"must be at most {LARGEST_GROUP:,}")
    if size == 1:
        return curve
    if len(curve.factors) > 1 and any(
        isinstance(atom, ApproximateAtom) and atom.delta > 0 for atom, _ in curve.factors
    ):
        return Curve.of(GroupedAtom(curve, size))
    result = Curve({})
    for atom, count in curve.factors:
        one = atom.grouped(size)
        result = result * (one if one is not None else Curve.of(GroupedAtom(Curve.of(atom), size))) ** count
    return result


# -- several at once -------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class WorstOfAtom(Atom):
    """The largest profile of several curves at every ε."""

    name: ClassVar[str] = "worst_of"
    curves: tuple[Curve, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "curves", check_curves("curves", self.curves))

    @property
    def tied(self) -> bool:
        return all(is_tied(c) for c in self.curves)

    @property
    def is_exact(self) -> bool:
        return False

    def pair(self) -> LawPair:
        pairs = [curve_pair(c) for c in self.curves]

        def several(sides: list[Sided]) -> Sided:
            return Sided(
                laws_from_bounds.worst([s.upper for s in sides], side="upper"),
                laws_from_bounds.worst([s.lower for s in sides], side="lower"),
            )

        ahead = several([p.forward for p in pairs])
        return LawPair(ahead, ahead if all(p.is_symmetric for p in pairs) else several([p.backward for p in pairs]))

    def possible_pairs(self) -> tuple[LawPair, ...]:
        return ()

    def expression(self) -> str:
        return f"worst_of({', '.join(c.expression() for c in self.curves)})"

    def alternatives(self) -> tuple[tuple[Curve, bool], ...]:
        return tuple((curve, True) for curve in self.curves)

    def renyi_bound(self, order: float) -> float | None:
        return max(c.renyi_function(order) for c in self.curves)

    def gdp_bound(self) -> float | None:
        return max(c.gdp() for c in self.curves)

    def zcdp_bound(self) -> float | None:
        return max(c.zcdp() for c in self.curves)

    def covers(self, curve: Curve) -> bool:
        from deniable.curves.meaning.blackwell_order import fits

        return any(fits(curve, part) for part in self.curves)


def worst_of(*curves: Curve) -> Curve:
    """Parallel composition: each person's data reach one of these mechanisms, so the largest profile at every ε holds.

    For add/remove neighbours, or blocks fixed by record index. If replacing a record moves it from one block to
    another, two mechanisms see the change: use `a * b`.
    """
    unique = tuple(dict.fromkeys(check_curves("curves", curves)))
    return unique[0] if len(unique) == 1 else Curve.of(WorstOfAtom(unique))


@final
@dataclass(frozen=True, slots=True)
class MixtureAtom(Atom):
    """One of several curves, drawn with public weights; the draw is revealed."""

    name: ClassVar[str] = "mixture"
    weights: tuple[float, ...]
    curves: tuple[Curve, ...]

    def __post_init__(self) -> None:
        weights, curves = check_weights(self.weights, self.curves)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "curves", curves)

    @property
    def _several(self) -> bool:
        """Whether more than one part has two different directions."""
        return sum(not curve_pair(c).is_symmetric for c in self.curves) > 1

    @property
    def tied(self) -> bool:
        return self._several or all(is_tied(c) for c in self.curves)

    @property
    def is_exact(self) -> bool:
        several = self._several
        return all(is_exact(c) and (is_tied(c) or not several) for c in self.curves)

    def pair(self) -> LawPair:
        return self._mixed([settled_pair(c) if self._several else curve_pair(c) for c in self.curves])

    def possible_pairs(self) -> tuple[LawPair, ...]:
        ways = [_orders(c) if self._several else _possible_pairs(c) for c in self.curves]
        if math.prod(len(pairs) for pairs in ways) > MOST_MIXED:
            return ()
        return tuple(self._mixed(chosen) for chosen in itertools.product(*ways))

    def _mixed(self, pairs: Sequence[LawPair]) -> LawPair:
        def mixed(sides: list[Sided]) -> Sided:
            return Sided(
                MixedLaw(tuple(s.upper for s in sides), self.weights),
                MixedLaw(tuple(s.lower for s in sides), self.weights),
            )

        ahead = mixed([p.forward for p in pairs])
        return LawPair(ahead, ahead if all(p.is_symmetric for p in pairs) else mixed([p.backward for p in pairs]))

    def expression(self) -> str:
        weights = ", ".join(show(w) for w in self.weights)
        return f"mixture([{weights}], [{', '.join(c.expression() for c in self.curves)}])"

    def inherited_renyi(self, order: float) -> tuple[float, float] | None:
        one = inherited.mixed([c.renyi_function for c in self.curves], self.weights, order)
        return one, one


def check_weights(weights: Sequence[float], curves: Sequence[Curve]) -> tuple[tuple[float, ...], tuple[Curve, ...]]:
    """The weights, normalised, and the curves, without parts of weight 0. Raises InvalidParameter unless the weights
    sum to 1.
    """
    array, parts = curve_arguments.numbers_array("weights", weights), check_curves("curves", curves)
    if len(array) != len(parts):
        raise InvalidParameter(
            "weights", NOTHING, f"{len(array)} weights for {len(parts)} curves", "give one weight for each curve"
        )
    if np.any(array < 0):
        raise InvalidParameter("weights", NOTHING, f"entry {int(np.argmax(array < 0))} is negative")
    if abs(float(np.sum(array)) - 1) > 1e-9:
        raise InvalidParameter("weights", NOTHING, "must sum to 1")
    array = array / np.sum(array)
    kept = [(float(w), c) for w, c in zip(array, parts, strict=True) if w > 0]
    return tuple(w for w, _ in kept), tuple(c for _, c in kept)


def mixture(weights: Sequence[float], curves: Sequence[Curve]) -> Curve:
    """One mechanism is drawn by public weights (of sum 1), and the attacker sees which: δ(ε) = Σ weight δ_i(ε)."""
    return Curve.of(MixtureAtom(*check_weights(weights, curves)))


# -- direction -------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class SymmetrizedAtom(Atom):
    """The worse direction of a curve at every ε."""

    name: ClassVar[str] = "symmetrized"
    curve: Curve

    def __post_init__(self) -> None:
        check_curve("curve", self.curve)

    @property
    def is_exact(self) -> bool:
        return False

    def pair(self) -> LawPair:
        return laws_from_bounds.worse_direction(curve_pair(self.curve))

    def possible_pairs(self) -> tuple[LawPair, ...]:
        return ()

    def expression(self) -> str:
        return f"{bracketed(self.curve)}.symmetrized()"

    def alternatives(self) -> tuple[tuple[Curve, bool], ...]:
        return (self.curve, True), (self.curve, False)

    def renyi_bound(self, order: float) -> float | None:
        return self.curve.renyi_function(order)

    def zcdp_bound(self) -> float | None:
        return self.curve.zcdp()

    def gdp_bound(self) -> float | None:
        return self.curve.gdp()


def symmetrized(curve: Curve) -> Curve:
    """The worse direction at every ε (`Curve.symmetrized`)."""
    forward, backward = product_of(curve)
    return curve if forward is backward else Curve.of(SymmetrizedAtom(curve))


@final
@dataclass(frozen=True, slots=True)
class ReversedAtom(Atom):
    """A curve with P and Q swapped."""

    name: ClassVar[str] = "reversed"
    curve: Curve

    def __post_init__(self) -> None:
        check_curve("curve", self.curve)

    @property
    def tied(self) -> bool:
        return is_tied(self.curve)

    @property
    def is_exact(self) -> bool:
        return is_exact(self.curve)

    def pair(self) -> LawPair:
        return _swapped(curve_pair(self.curve))

    def repeated(self, count: int) -> Atom | None:
        (inner, uses), *others = self.curve.factors
        one = None if others or uses > 1 else inner.repeated(count)
        return None if one is None else ReversedAtom(Curve.of(one))

    def possible_pairs(self) -> tuple[LawPair, ...]:
        return tuple(_swapped(pair) for pair in _possible_pairs(self.curve))

    def expression(self) -> str:
        return f"{bracketed(self.curve)}.reversed()"

    def alternatives(self) -> tuple[tuple[Curve, bool], ...]:
        return ((self.curve, False),)

    def renyi_bound(self, order: float) -> float | None:
        return self.curve.renyi_function(order)  # already the worse direction

    def zcdp_bound(self) -> float | None:
        return self.curve.zcdp()

    def gdp_bound(self) -> float | None:
        return self.curve.gdp()


def swapped(curve: Curve) -> Curve:
    """P and Q swapped (`Curve.reversed`): factor by factor, so that the product stays a product of known laws."""
    result = Curve({})
    for atom, count in curve.factors:
        turned = atom.curve if isinstance(atom, ReversedAtom) else Curve.of(ReversedAtom(Curve.of(atom)))
        result = result * (Curve.of(atom) if pair_of(atom).is_symmetric else turned) ** count
    return result
