"""The curve: the privacy guarantee of a mechanism, as one immutable object.

A curve is a symbolic product of atoms. Multiplying two curves only joins their factors; numbers are computed when a
method asks for them. The path of one number, say `curve.epsilon(delta=1e-6)`:

    Curve.epsilon                   checks the argument                                     (this file)
    curve_readings.epsilon_bounds   both directions; the worse one counts                   meaning/curve_readings.py
    Product.epsilon_bounds          closed form if there is one, else panels                composition/law_product.py
    compose.compose                 tilt, FFT, bounds on all numerical errors               composition/compose.py
    lattice.above / below           from a law to masses on a lattice                       composition/lattice.py
    Law.tails                       the mechanism itself: P(L > l) and e^l Q(L > l)         laws/
"""

from __future__ import annotations

import math
import numbers
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, final, overload

import numpy as np

from deniable.curves import curve_arguments
from deniable.curves.atoms.atom import Atom
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats, all_above
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter
from deniable.numbers import down

if TYPE_CHECKING:
    from deniable.curves.meaning.central_limit import GaussianApproximation
    from deniable.curves.meaning.loss_distribution import LossDistribution
    from deniable.curves.meaning.one_direction import Direction

MOST_ORDER = 1e9
MOST_USES = 10**15
"""Largest exponent: larger counts are not exact in floating point."""


@final
class Curve:
    """A certified privacy guarantee: immutable and hashable. `*` composes two mechanisms, `**` repeats one.

    Use the functions of `curves` to create one. Numbers are bounds, rounded to the safe side: upper bounds for ε, δ, μ,
    ρ and divergences, lower bounds for error rates of attackers. Where the two directions (P, Q) and (Q, P) differ, the
    worse one counts. Methods that end in `_bounds` return certified (low, high) around the exact number. (`kl`,
    `kappa2`, `kappa3`, `clt` and `loss` describe the privacy loss; they are accurate to about 1e-10, but are not
    guarantees.)

    Arguments may be numbers or arrays; an array returns an array of the same shape. An argument outside its range
    raises InvalidParameter, and a number that cannot be computed in bounded memory and time raises NotCertifiable.
    """

    __slots__ = ("__weakref__", "_counts", "_hash", "_origin")
    __array_ufunc__ = None  # NumPy numbers leave `number * curve` to this class, which raises InvalidOperation
    _counts: dict[Atom, int]
    _hash: int
    _origin: tuple[weakref.ref[Curve], Curve] | None

    def __init__(self, counts: dict[Atom, int]) -> None:
        total = 0
        for factor in counts.items():
            total ^= hash(factor)
        self._fill(counts, total, None)

    def _fill(self, counts: dict[Atom, int], total: int, origin: tuple[weakref.ref[Curve], Curve] | None) -> None:
        object.__setattr__(self, "_counts", counts)
        # The exclusive or of the factors' hashes: order does not matter, and one more factor is one more step.
        object.__setattr__(self, "_hash", total)
        object.__setattr__(self, "_origin", origin)

    @staticmethod
    def of(atom: Atom) -> Curve:
        """The curve of one run of this atom, an indivisible mechanism."""
        return Curve({atom: 1})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Curve is immutable; multiply curves to make new ones")

    def __reduce__(self) -> tuple[Callable[[dict[str, Any]], Curve], tuple[dict[str, Any]]]:
        return Curve.from_dict, (self.to_dict(),)

    @property
    def origin(self) -> tuple[Curve, Curve] | None:
        """The two curves this one was multiplied from, if the first still exists: its products are extended."""
        parent = self._origin[0]() if self._origin is not None else None
        return (parent, self._origin[1]) if parent is not None and self._origin is not None else None

    @property
    def factors(self) -> tuple[tuple[Atom, int], ...]:
        """The atoms and how often each is used."""
        return tuple(self._counts.items())

    @property
    def counts(self) -> Mapping[Atom, int]:
        """How often each atom is used: a view, which copies nothing."""
        return MappingProxyType(self._counts)

    def __eq__(self, other: object) -> bool:
        return self._counts == other._counts if isinstance(other, Curve) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._hash)

    # -- algebra -----------------------------------------------------------------------------------------------------

    def __mul__(self, other: object) -> Curve:
        """Both mechanisms run on the same data (the second may look at the first's answer): adaptive composition."""
        if isinstance(other, numbers.Number):
            raise InvalidOperation(
                f"a curve cannot be multiplied by a number; to run it {other} times write curve ** {other}"
            )
        if not isinstance(other, Curve):
            raise InvalidOperation(f"a curve can be multiplied by a curve, not by {type(other).__name__}")
        counts, total = dict(self._counts), self._hash
        for atom, count in other._counts.items():
            before = counts.get(atom, 0)
            counts[atom] = before + count
            total ^= hash((atom, before + count)) ^ (hash((atom, before)) if before else 0)
            if counts[atom] > MOST_USES:
                raise InvalidParameter("uses", counts[atom], f"must be at most {MOST_USES:,}")
        result = object.__new__(Curve)
        result._fill(counts, total, (weakref.ref(self), other))
        return result

    __rmul__ = __mul__

    def __add__(self, other: object) -> Curve:
        raise InvalidOperation(
            "curves can only be multiplied; two releases together are curve * curve, many are curve ** count"
        )

    __radd__ = __sub__ = __truediv__ = __add__

    def __pow__(self, uses: int) -> Curve:
        """The mechanism runs `uses` times, 0 to 10^15."""
        uses = curve_arguments.integer("power", uses, 0)
        if uses == 0:
            return Curve({})
        counts = {atom: count * uses for atom, count in self._counts.items()}
        if max(counts.values(), default=0) > MOST_USES:
            raise InvalidParameter("power", uses, f"a mechanism may be used at most {MOST_USES:,} times")
        return Curve(counts)

    def then(self, *processing: object) -> Curve:
        """Post-processing, any function of the answer that does not use the data again: the curve is unchanged."""
        return self

    def sampled(self, *, rate: float, replaced: Curve | None = None) -> Curve:
        """The mechanism runs on a Poisson sample: every person takes part independently with probability `rate` in [0,
        1].

        For neighbours that differ by adding or removing one person (Zhu, Dong, Wang 2022, Theorem 11), or by blanking
        one. With `replaced`, the mechanism's curve if one person is replaced, the result is for that kind of
        neighbours; see `atoms.replaced_samples`.

        >>> from deniable import curves
        >>> round((curves.gaussian(sigma=1).sampled(rate=0.01) ** 100).epsilon(delta=1e-6), 2)
        0.95
        """
        from deniable.curves.atoms import composite_atoms, replaced_samples

        if replaced is None:
            return composite_atoms.sampled(self, rate=rate)
        return replaced_samples.sampled_replaced(self, replaced, rate=rate)

    def sampled_without_replacement(
        self, *, size: int, population: int, neighbours: Literal["replaced", "added"] = "replaced"
    ) -> Curve:
        """The mechanism runs on a uniform sample of `size` of the `population`, for neighbours that replace one person,
        or that add or remove one ("added"; the population then counts the one who is added).

        The curve itself must hold for neighbours that replace one person (Balle, Barthe, Gaboardi 2018, Theorem 9; see
        `atoms.replaced_samples`).
        """
        from deniable.curves.atoms import replaced_samples

        return replaced_samples.fixed_size(self, size=size, population=population, neighbours=neighbours)

    def sampled_with_replacement(
        self, *, size: int, population: int, neighbours: Literal["replaced", "added"] = "replaced"
    ) -> Curve:
        """The mechanism runs on `size` independent draws of one of the `population`, so that a person may be in it
        several times. Neighbours and curve as in `sampled_without_replacement`.
        """
        from deniable.curves.atoms import replaced_samples

        return replaced_samples.with_replacement(self, size=size, population=population, neighbours=neighbours)

    def allocated(self, *, steps: int) -> Curve:
        """Every person takes part in exactly one of `steps` steps of the mechanism, drawn uniformly and kept secret.

        For neighbours that differ by adding or removing one person (random allocation, or balls in bins; see
        `atoms.random_allocation` for the theorem). The result covers all steps together. Raises InvalidParameter unless
        the curve is one mechanism with known output laws.

        >>> from deniable import curves
        >>> round(curves.gaussian(sigma=1).allocated(steps=100).epsilon(delta=1e-6), 2)
        0.86
        """
        from deniable.curves.atoms import random_allocation

        return random_allocation.allocated(self, steps=steps)

    def shuffled(self, *, people: int, distance: float | None = None) -> Curve:
        """All reports of `people` people after shuffling, if this is the curve of one report in the local model.

        For neighbours that replace one person's answer, if all others follow the protocol. The curve must be of pure
        DP. `distance` is the total variation distance between reports of two answers, if it is the same for all pairs
        of answers; it makes the curve tighter. Give it to nine digits: a bound on the distance, from above or from
        below, is not safe. See `atoms.shuffled_reports` for the theorem.

        >>> from deniable import curves
        >>> one = curves.randomized_response(epsilon=2, categories=4)
        >>> round(one.shuffled(people=10_000).epsilon(delta=1e-6), 3)
        0.126
        """
        from deniable.curves.atoms import shuffled_reports

        return shuffled_reports.shuffled(self, people=people, distance=distance)

    def group(self, *, size: int) -> Curve:
        """The promise to `size` people together: 1 - (1 - β)∘...∘(1 - β), sharp (Dong, Roth, Su 2022, Theorem 2.14).

        `size` is a whole number of at least 1.

        >>> from deniable import curves
        >>> round(curves.gaussian(sigma=1).group(size=2).gdp(), 9)
        2.0
        """
        from deniable.curves.atoms import composite_atoms

        return composite_atoms.group(self, size=size)

    def symmetrized(self) -> Curve:
        """The guarantee whichever neighbour comes first: at every ε the worse of the two directions."""
        from deniable.curves.atoms import composite_atoms

        return composite_atoms.symmetrized(self)

    def reversed(self) -> Curve:
        """The guarantee with the neighbours' roles swapped. It differs only in products with factors whose direction is
        tied.
        """
        from deniable.curves.atoms import composite_atoms

        return composite_atoms.swapped(self)

    # -- δ and ε -----------------------------------------------------------------------------------------------------

    @overload
    def delta(self, *, epsilon: float) -> float: ...
    @overload
    def delta(self, *, epsilon: Floats | list[float]) -> Floats: ...
    def delta(self, *, epsilon: Any) -> Any:
        """δ(ε), rounded up: for all neighbours and events S, P(S) <= e^ε Q(S) + δ. Any real ε, also negative or
        infinite; an array of ε gives an array of δ.
        """
        return self.delta_bounds(epsilon=epsilon)[1]

    def delta_bounds(self, *, epsilon: Any) -> tuple[Any, Any]:
        """(low, high) with low <= δ(ε) <= high for the exact δ; `delta` is high. The gap is what rounding costs."""
        from deniable.curves.meaning import curve_readings

        given = curve_arguments.reading("epsilon", epsilon)
        return given.falling(lambda floats: curve_readings.delta_bounds(self, floats))

    @overload
    def epsilon(self, *, delta: float) -> float: ...
    @overload
    def epsilon(self, *, delta: Floats | list[float]) -> Floats: ...
    def epsilon(self, *, delta: Any) -> Any:
        """The smallest ε >= 0 with δ(ε) <= delta, rounded up; inf if no ε holds. delta=0 gives the ε of pure DP.

        `delta` lies in [0, 1]; an array of δ gives an array of ε.

        >>> from deniable import curves
        >>> round(curves.gaussian(sigma=1).epsilon(delta=1e-5), 4)
        4.3772
        """
        return self.epsilon_bounds(delta=delta)[1]

    def epsilon_bounds(self, *, delta: Any) -> tuple[Any, Any]:
        """(low, high) with low <= ε(δ) <= high for the exact ε; `epsilon` is high. The gap is what rounding costs."""
        from deniable.curves.meaning import curve_readings

        given = curve_arguments.reading_in_unit("delta", delta)
        return given.falling(lambda floats: _each(lambda d: curve_readings.epsilon_bounds(self, d), floats))

    @property
    def is_symmetric(self) -> bool:
        """Whether both directions have the same privacy profile, so that the order of P and Q does not matter."""
        from deniable.curves.meaning import curve_readings

        forward, backward = curve_readings.product_of(self)
        return forward is backward

    @property
    def forward(self) -> Direction:
        """The ordered pair (P, Q) alone: T(P, Q), D(P‖Q), the loss under P. P is the output without the person."""
        from deniable.curves.meaning.one_direction import Direction

        return Direction(self, True)

    @property
    def backward(self) -> Direction:
        """The other direction alone: the ordered pair (Q, P)."""
        from deniable.curves.meaning.one_direction import Direction

        return Direction(self, False)

    # -- what an attacker can do -------------------------------------------------------------------------------------

    def beta(self, *, alpha: Any) -> Any:
        """The smallest miss rate of any attacker with a false-alarm rate of at most alpha in [0, 1], rounded down.

        Where the directions differ this is the smaller of T(P, Q) and T(Q, P), which need not be convex;
        `symmetrized().beta` is its convex hull, a trade-off function.
        """
        return self.beta_bounds(alpha=alpha)[0]

    def beta_bounds(self, *, alpha: Any) -> tuple[Any, Any]:
        """(low, high) with low <= β(α) <= high for the exact trade-off function. `beta` is low."""
        from deniable.curves.meaning import attacker

        given = curve_arguments.reading_in_unit("alpha", alpha)
        return given.falling(lambda floats: attacker.beta_bounds(self, floats))

    def tpr(self, *, fpr: Any) -> Any:
        """The largest true-positive rate at a false-positive rate, rounded up: 1 - beta."""
        given = curve_arguments.reading_in_unit("fpr", fpr)
        return given.shaped(np.minimum(1.0, all_above(1 - self.beta(alpha=given.high))))

    def equal_error_rate(self) -> float:
        """The error rate of the attacker whose false alarms and misses are equally frequent, rounded down."""
        from deniable.curves.meaning import attacker

        return attacker.equal_error_rate(self)

    def advantage(self) -> float:
        """The largest TPR - FPR of any attacker, rounded up: the total variation distance, δ(0)."""
        return float(self.delta(epsilon=0.0))

    @overload
    def guess(self, *, prior: float) -> float: ...
    @overload
    def guess(self, *, prior: Floats | list[float]) -> Floats: ...
    def guess(self, *, prior: Any) -> Any:
        """The largest probability of guessing right whether the person is in the data, given the prior probability that
        they are; rounded up.

        (1 - π) + π δ(log((1-π)/π)) for the prior π in [0, 1], whichever neighbour contains the person.
        """
        given = curve_arguments.reading_in_unit("prior", prior)
        # Of all rules of guessing the best counts, and each is linear in π: the sum is convex, and largest at an end.
        found = self._guess(given.low)
        return given.shaped(found if given.low is given.high else np.maximum(found, self._guess(given.high)))

    def _guess(self, share: Floats) -> Floats:
        """`guess` at these priors."""
        with np.errstate(divide="ignore"):
            odds = np.log1p(-share) - np.log(share)  # ±inf for a prior of 0 or 1: the guess is certain there
        # Each logarithm of the odds is off by at most two roundings, which changes the sum by at most 1 - π times that.
        doubt = 1e-15 + 4 * UNIT_ROUNDOFF * np.where(np.isfinite(odds), np.abs(odds), 0.0)
        right = ((1 - share) + share * self.delta(epsilon=odds)) * (1 + doubt)
        return np.where((share == 0) | (share == 1), 1.0, np.minimum(right, 1.0))

    @overload
    def posterior(self, *, prior: float, delta: float = 0.0) -> float: ...
    @overload
    def posterior(self, *, prior: Floats | list[float], delta: float = 0.0) -> Floats: ...
    def posterior(self, *, prior: Any, delta: float = 0.0) -> Any:
        """The largest belief an attacker with this prior can reach, except with probability `delta`; rounded up.

        Bayes: posterior odds = prior odds × e^L, so with ε such that P(L > ε) <= delta the belief is at most π e^ε / (π
        e^ε + 1 - π). P(L > ε) is bounded by δ(ε')/(1 - e^(ε'-ε)) for every ε' < ε. With delta = 0 the bound holds
        always: it is 1 for an unbounded loss such as the Gaussian's.
        """
        given = curve_arguments.reading_in_unit("prior", prior)
        share, allowed = given.high, curve_arguments.probability("delta", delta, down)
        from deniable.curves.meaning import attacker

        loss = self.epsilon(delta=0.0) if allowed == 0 else attacker.loss_quantile(self, allowed)
        if not math.isfinite(loss):
            return given.shaped(np.where(share == 0, 0.0, 1.0))
        other = (1 - share) * math.exp(-loss)
        # A prior of 0 stays 0. Dividing only where the prior is positive also avoids 0/0 where e^-ε underflows.
        belief = np.divide(share, share + other, out=np.zeros_like(share), where=share > 0) * (1 + 1e-14)
        belief = np.where(share > 0, all_above(belief), 0.0)
        return given.shaped(np.minimum(np.where(share == 1, 1.0, belief), 1.0))

    def loss_tail(self, *, epsilon: Any) -> Any:
        """P(L > ε): how often the privacy loss exceeds ε, rounded up. It is at least δ(ε).

        If the curve is the curve of one pair of laws (a Gaussian, a pmf, their products), this is its probability. If
        many mechanisms keep the guarantee (`pure`, `worst_of`, factors that may flip), it is the largest probability of
        any of them.
        """
        return self.loss_tail_bounds(epsilon=epsilon)[1]

    def loss_tail_bounds(self, *, epsilon: Any) -> tuple[Any, Any]:
        """(low, high) around the exact P(L > ε) of the worse direction. `loss_tail` is high."""
        from deniable.curves.meaning import loss_tail as tails

        given = curve_arguments.reading("epsilon", epsilon)
        return given.falling(lambda floats: tails.bounds(self, floats))

    # -- other languages ---------------------------------------------------------------------------------------------

    def renyi(self, *, order: Any) -> Any:
        """The Rényi divergence of this order, of the worse direction, rounded up; inf if it is unbounded.

        `order` is above 0 and may be inf; an array of orders gives an array.
        """
        from deniable.curves.meaning import divergences

        given = divergences.orders(order)
        return given.shaped([self.renyi_function(float(a)) for a in given.high.ravel()])

    def renyi_function(self, order: float) -> float:
        """`renyi` at one order above 0, without checks of the argument: for functions that call it many times."""
        from deniable.curves.meaning import curve_readings

        return curve_readings.renyi(self, order)

    def zcdp(self) -> float:
        """The smallest ρ for which ρ-zCDP can be proved (renyi(order) <= ρ × order for all orders), rounded up; inf if
        no ρ holds.
        """
        from deniable.curves.meaning import curve_readings

        return curve_readings.zcdp(self)

    @overload
    def gdp(self, *, delta: float = 0.0) -> float: ...
    @overload
    def gdp(self, *, delta: Floats | list[float]) -> Floats: ...
    def gdp(self, *, delta: Any = 0.0) -> Any:
        """The smallest μ for which the mechanism is μ-GDP (β >= G_μ everywhere), rounded up; inf if no μ holds.

        With `delta` > 0: the smallest μ with β >= G_μ - delta, approximate GDP, which ignores events of probability
        delta.
        """
        from deniable.curves.meaning import gaussian_dp

        given = curve_arguments.reading_in_unit("delta", delta)
        return given.shaped([gaussian_dp.smallest_mu(self, float(d)) for d in given.low.ravel()])

    def hellinger(self) -> float:
        """The squared Hellinger distance 1 - E_Q √(dP/dQ), the same in both directions, rounded up."""
        from deniable.curves.meaning import divergences

        return divergences.hellinger(self)

    def chi_squared(self) -> float:
        """χ²(P‖Q) = E_Q (dP/dQ)² - 1, the worse direction, rounded up; inf if unbounded."""
        from deniable.curves.meaning import divergences

        return divergences.chi_squared(self)

    def kl(self) -> float:
        """The mean privacy loss of the worse direction, max(KL(P‖Q), KL(Q‖P)) with KL(P‖Q) = E_P L; for a trade-off
        function f, -∫ log|f'|.
        """
        from deniable.curves.meaning import loss_moments

        return loss_moments.kl(self)

    def kappa2(self) -> float:
        """The mean square of the privacy loss, E_P L² = ∫ log²|f'|, the worse direction.

        For a product with factors that may flip: the largest over all combinations of their directions.
        """
        from deniable.curves.meaning import loss_moments

        return loss_moments.kappa2(self)

    def kappa3(self) -> float:
        """The mean absolute cube of the privacy loss, E_P |L|³ = ∫ |log|f'||³, the worse direction.

        For a product with factors that may flip: the largest over all combinations of their directions. Beyond 64
        combinations it is an upper bound, at most 9 % too large for many small losses.
        """
        from deniable.curves.meaning import loss_moments

        return loss_moments.kappa3(self)

    def clt(self) -> GaussianApproximation:
        """The central-limit approximation. It is NOT a guarantee, so it has a type of its own and is not a Curve."""
        from deniable.curves.meaning import central_limit

        return central_limit.clt(self)

    @property
    def loss(self) -> LossDistribution:
        """The distribution of the privacy loss L = log dP/dQ under P, for plots and tables.

        Where the directions differ it is the loss of `symmetrized()`, a pair that is worse than both, so its mean is
        above `kl()`. `forward.loss` and `backward.loss` are the two directions.
        """
        from deniable.curves.meaning import loss_distribution

        return loss_distribution.distribution(self)

    # -- order -------------------------------------------------------------------------------------------------------

    def dominates(self, other: Curve, *, tolerance: float = 1e-3) -> bool:
        """Whether this curve leaks at least as much as the other at every ε: Blackwell's order.

        True is certified up to a relative `tolerance` in δ, the width of a composed curve's bounds: δ_other(ε) <= (1 +
        tolerance) δ_self(ε) + 1e-7 tolerance for every real ε. False means that this could not be proved.
        """
        from deniable.curves.meaning import blackwell_order

        if not isinstance(other, Curve):
            raise InvalidOperation(f"a curve can be compared with a curve, not with {type(other).__name__}")
        return blackwell_order.dominates(self, other, curve_arguments.not_negative("tolerance", tolerance, down))

    def __le__(self, other: Curve) -> bool:
        """`a <= b`: a leaks no more than b, as `b.dominates(a)` says."""
        if not isinstance(other, Curve):
            raise InvalidOperation(f"a curve can be compared with a curve, not with {type(other).__name__}")
        return other.dominates(self)

    def __ge__(self, other: Curve) -> bool:
        return self.dominates(other)

    # -- records and display -------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """A JSON-compatible record that `from_dict` reads back, in this version and in later ones."""
        from deniable.curves import curve_records

        return curve_records.to_dict(self)

    @staticmethod
    def from_dict(record: dict[str, Any]) -> Curve:
        """The curve of a record written by `to_dict`. Raises UnreadableRecord for anything else."""
        from deniable.curves import curve_records

        return curve_records.from_dict(record)

    def expression(self) -> str:
        """The curve as a user would write it. `curves.parse` and `deniable curve "<expression>"` read it back, except
        for curves of long tables (for example `from_density`), whose expression only names them.
        """
        parts = [a.expression() + (f"**{c}" if c != 1 else "") for a, c in self._counts.items()]
        return " * ".join(parts) if parts else "identity()"

    def __repr__(self) -> str:
        text = self.expression()
        if len(self._counts) > 12:
            first = " * ".join(Curve({a: c}).expression() for a, c in list(self._counts.items())[:6])
            text = f"{first} * ... ({len(self._counts)} different mechanisms)"
        return f"<Curve {text}>"

    def _repr_html_(self) -> str:
        from deniable.curves import curve_display

        return curve_display.html(self)

    def __rich__(self) -> Any:
        from deniable.curves import curve_display

        return curve_display.rich_panel(self)


def identity() -> Curve:
    """The curve of a mechanism that ignores its data, the neutral element of `*`."""
    return Curve({})


def product(curves: Iterable[Curve]) -> Curve:
    """The product of many curves; faster than multiplying them one by one."""
    counts: dict[Atom, int] = {}
    if isinstance(curves, Curve) or not isinstance(curves, Iterable):
        raise InvalidParameter("curves", curves, "must be several curves, in a list or another iterable")
    for curve in curves:
        if not isinstance(curve, Curve):
            raise InvalidParameter("curves", NOTHING, "must be curves only")
        for atom, count in curve.factors:
            counts[atom] = counts.get(atom, 0) + count
            if counts[atom] > MOST_USES:
                raise InvalidParameter("uses", counts[atom], f"must be at most {MOST_USES:,}")
    return Curve(counts)


def _each(bounds: Callable[[float], tuple[float, float]], floats: Floats) -> tuple[Floats, Floats]:
    """The bounds at each of these floats: all lower ones, and all upper ones."""
    low, high = np.array([bounds(float(x)) for x in floats]).reshape(-1, 2).T
    return low, high
