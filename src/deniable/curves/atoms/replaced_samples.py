"""Samples for neighbours in which one person is replaced, and samples with replacement.

**Poisson samples, one person replaced.** Each person takes part with probability q. Let M₀ be the output law without
the person, M₁ the law with the person, and M₁′ the law with the replacement. The neighbours' laws are (1 - q) M₀ + q M₁
and (1 - q) M₀ + q M₁′. For y >= 1, x = 1 + q (y - 1) and β = x/y,

    H_x = q H_y(M₁ ‖ (1 - β) M₀ + β M₁′) <= q ((1 - β) δ₁(log y) + β δ₂(log y)),

where H_x is δ at e^ε = x, δ₁ is the profile of the mechanism for one person added or removed, and δ₂ its profile for
one person replaced. *Proof.* (1 - q) M₀ + q M₁ - x((1 - q) M₀ + q M₁′) = q (M₁ - y ((1 - β) M₀ + β M₁′)), because
(x - 1)(1 - q)/(q y) = 1 - β. The inequality is joint convexity. ∎ (Balle, Barthe & Gaboardi 2018, section 3, with
"advanced joint convexity".) Replacing is symmetric, so this holds in both directions. If neighbours differ by blanking
a record, this counts as one person removed: `sampled(rate=)` holds for these neighbours unchanged.

**Samples with replacement.** `size` draws from `population` people contain a person K times, K binomial. With q = P(K
>= 1) and weights w_k = P(K = k)/q, the laws are (1 - q) M₀ + q Σ w_k M_k, where M_k and M₀ differ by k replaced
records, and so do M_k and M_k′. Let the curve hold for one person replaced, and G = Σ w_k (its group of size k), as a
mixture. Then one person replaced has q δ_G(log y) by the same argument (Balle et al., Theorem 10), and one person added
or removed has the sampled pair of G at rate q, because a sample without the person has the law of the case K = 0.
Of the curve's two directions the worse one counts, at every ε: a replaced person has no order of with and without.

**Samples of fixed size, one person added or removed.** A uniform sample of `size` of the `population` people, the
person among them, contains the person with probability q = size/population. Without the person it is a uniform sample S
of the others. If the person is in the sample, the rest of the sample is S minus one member drawn uniformly. So the
person replaces one member of S, and the pair (with the person, without the person) is the sampled pair, at rate q, of a
curve for one person replaced.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Literal, final

import numpy as np

from deniable.curves import curve_arguments
from deniable.curves.atoms import composite_atoms
from deniable.curves.atoms.atom import Atom, show
from deniable.curves.atoms.mechanism_atoms import GaussianAtom, approximate
from deniable.curves.curve import Curve
from deniable.curves.decimal_arithmetic import digits
from deniable.curves.laws import finite_law, laws_from_bounds
from deniable.curves.laws.derived_laws import FixedSizeLaw, SampledAgainstWithout
from deniable.curves.laws.law import Law, LawPair, Sided
from deniable.curves.laws.opposite_shifts import OppositeShiftsLaw
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, quietly
from deniable.errors import InvalidParameter
from deniable.numbers import above, up

Neighbours = Literal["replaced", "added"]
"""How one of two neighbouring datasets becomes the other: one person replaced, or one added or removed."""

POINTS = 12_000
"""Points at which the bound of the first theorem is computed; between them it is joined by chords."""

FAR = (1e-40, 1e-30, 1e-20)
RARE = 1e-45
"""A bound on the probability of more repeats than are counted. In that case everything counts as revealed."""

MOST_REPEATS = 2000


@final
@dataclass(frozen=True, slots=True)
class ReplacedSampleAtom(Atom):
    """The curve on a Poisson sample, for one person replaced; `replaced` is the mechanism's curve for such neighbours,
    and `curve` its curve for one person added or removed.
    """

    name: ClassVar[str] = "sampled_replaced"
    curve: Curve
    replaced: Curve
    rate: float

    def __post_init__(self) -> None:
        composite_atoms.check_curve("curve", self.curve)
        composite_atoms.check_curve("replaced", self.replaced)
        object.__setattr__(self, "rate", curve_arguments.probability("rate", self.rate))

    @property
    def is_exact(self) -> bool:
        return self._opposite() is not None

    def pair(self) -> LawPair:
        if (mu := self._opposite()) is not None:
            return LawPair.symmetric(OppositeShiftsLaw(mu, self.rate))
        side = Sided(self._same() if self.curve == self.replaced else self._table(), finite_law.nothing())
        return LawPair(side, side)

    def _opposite(self) -> float | None:
        """μ if both curves belong to Gaussian noise and replacing moves the mean twice as far as removing, or None."""
        kinds = {type(atom) for curve in (self.curve, self.replaced) for atom, _ in curve.factors}
        if kinds != {GaussianAtom}:
            return None
        one, two = self.curve.gdp(), self.replaced.gdp()
        return max(one, above(two / 2)) if two >= 2 * one * (1 - 1e-12) else None

    def _same(self) -> Law:
        base = laws_from_bounds.worse_direction(composite_atoms.curve_pair(self.curve))
        return FixedSizeLaw(SampledAgainstWithout(base.forward.upper, self.rate))

    @quietly
    def _table(self) -> Law:
        far = max(
            next((e for d in FAR if math.isfinite(e := c.epsilon(delta=d))), 50.0) for c in (self.curve, self.replaced)
        )
        base = min(far, 600.0) * np.linspace(0.0, 1.0, POINTS) ** 1.5
        points = np.log1p(self.rate * np.expm1(base))
        share = np.exp(points - base)
        one, two = (np.minimum(c.delta(epsilon=base), 1.0) for c in (self.curve, self.replaced))
        # The points are rounded, so the bound of a point is used at a slightly larger point.
        ahead = self.rate * ((1 - share) * one + share * two) * (1 + 1e-13)
        # One person replaced is one removed and one added.
        twice = composite_atoms.group(composite_atoms.sampled(self.curve, rate=self.rate), size=2)
        ahead = np.minimum(ahead, twice.delta(epsilon=points))
        points = np.concatenate(([0.0], points[1:] * (1 + 1e-13) + 1e-300))
        ahead = np.minimum.accumulate(ahead)
        behind = -np.expm1(-points[1:]) + np.exp(-points[1:]) * ahead[1:]
        both = np.minimum(np.concatenate((behind[::-1], ahead)), 1.0)
        return laws_from_bounds.law_above(np.concatenate((-points[:0:-1], points)), both)

    def expression(self) -> str:
        curve = composite_atoms.bracketed(self.curve)
        return f"{curve}.sampled(rate={show(self.rate)}, replaced={self.replaced.expression()})"

    def inherited_renyi(self, order: float) -> tuple[float, float] | None:
        worst = self.replaced.renyi_function(order)  # a mixture over samples, all of them replaced or equal
        return worst, worst

    def gdp_bound(self) -> float | None:
        return self.replaced.gdp()


def sampled_replaced(curve: Curve, replaced: Curve, *, rate: float) -> Curve:
    """The curve on a Poisson sample, for one person replaced (`Curve.sampled` with `replaced`)."""
    share = curve_arguments.probability("rate", rate)
    if share == 0 or not composite_atoms.check_curve("replaced", replaced).factors:
        return Curve({})
    return replaced.symmetrized() if share == 1 else Curve.of(ReplacedSampleAtom(curve, replaced, share))


def fixed_size(curve: Curve, *, size: int, population: int, neighbours: Neighbours) -> Curve:
    """The curve on a uniform sample of fixed size (`Curve.sampled_without_replacement`)."""
    if check_neighbours(neighbours) == "replaced":
        return composite_atoms.sampled_without_replacement(curve, size=size, population=population)
    atom = composite_atoms.FixedSizeAtom(curve, size, population)
    return composite_atoms.sampled(curve.symmetrized(), rate=min(1.0, up(Fraction(atom.size, atom.population))))


def with_replacement(curve: Curve, *, size: int, population: int, neighbours: Neighbours) -> Curve:
    """The curve on draws with replacement (`Curve.sampled_with_replacement`). Raises InvalidParameter if one person may
    be drawn more than MOST_REPEATS times.
    """
    draws, people = (curve_arguments.integer(n, v, 1) for n, v in (("size", size), ("population", population)))
    check_neighbours(neighbours)
    if not composite_atoms.check_curve("curve", curve).factors:
        return curve
    curve = curve.symmetrized()  # a replaced person is in both tables, so neither direction is "with" or "without"
    if people == 1:
        return composite_atoms.group(curve, size=draws)
    most = _most_repeats(draws, 1 / people)
    rate, weights = _repeats(draws, people, most)
    groups = [composite_atoms.group(curve, size=k) for k in range(1, most + 1)]
    if most < draws:
        weights, groups = [*weights, RARE / rate], [*groups, approximate(epsilon=0, delta=1)]
    # More than all rounding errors is moved to the largest group, which leaks the most of all that are counted.
    shares = [weight * (1 - 64 * UNIT_ROUNDOFF) for weight in weights]
    shares[most - 1] += 1 - math.fsum(shares)
    inner = composite_atoms.mixture(shares, groups)
    return (
        composite_atoms.sampled(inner, rate=rate)
        if neighbours == "added"
        else sampled_replaced(inner, inner, rate=rate)
    )


def _repeats(draws: int, people: int, most: int) -> tuple[float, list[float]]:
    """The probability that a person is drawn, rounded up, and, given this, that they are drawn 1, ..., `most` times."""
    with digits(60):
        chance = (1 - 1 / Decimal(people)) ** draws
        rate = 1 - chance
        weights = []
        for k in range(1, most + 1):
            chance = chance * (draws - k + 1) / (k * (Decimal(people) - 1))
            weights.append(float(chance / rate))
    return min(1.0, above(float(rate))), weights


def _most_repeats(draws: int, chance: float) -> int:
    """A number of repeats that is exceeded with probability at most RARE: P(K >= k) <= (e n p/k)^k for k > n p."""
    mean = draws * chance
    most = max(1, math.ceil(mean))
    while most < draws and most * (1 + math.log(mean) - math.log(most)) - mean > math.log(RARE):
        most += 1
    if most > MOST_REPEATS:
        rule = f"may draw one person {most:,} times, and at most {MOST_REPEATS:,} times are computed"
        raise InvalidParameter("size", draws, rule, "draw fewer people, or draw without replacement")
    return min(most, draws)


def check_neighbours(value: object) -> Neighbours:
    """Returns the kind of neighbours. Raises InvalidParameter for another value."""
    if value not in ("replaced", "added"):
        rule = 'must be "replaced" (one person replaced) or "added" (one added or removed)'
        raise InvalidParameter("neighbours", value, rule)
    return "replaced" if value == "replaced" else "added"
