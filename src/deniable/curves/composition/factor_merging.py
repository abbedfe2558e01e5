"""The factors of a product, merged where they merge exactly, and what every question about a long product needs.

A product of thousands of different laws is evaluated again and again, each time with one more factor. `LongFactors`
keeps sums over the factors that never merge (its `Head`), the plans and the partial products of earlier questions. All
of these depend on the factors alone, so an answer depends on what was asked before only by rounding.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from deniable.curves.composition import convolution_tree
from deniable.curves.composition.convolution_tree import Kinds, Rows, TreePlan
from deniable.curves.composition.delta_panel import DeltaPanel
from deniable.curves.composition.moment_sums import MomentSum
from deniable.curves.composition.rounded_panel import RoundedPanel
from deniable.curves.composition.tilt_plan import Factor, LatticePlan
from deniable.curves.laws import finite_law
from deniable.curves.laws.closed_form import GaussianLaw
from deniable.curves.laws.derived_laws import FailingLaw, IdentityLaw
from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.laws.law import Law
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Side

EXACT_SUPPORT = 4000
"""A finite power this small is worth computing exactly even when other factors need the lattice."""

TREE_PAIRS = 4000
"""Pairs of values that are worth multiplying exactly among so many factors that a tree multiplies them."""

MOST_FINITE = 64
"""More different finite laws than this are not merged: a long product keeps partial products of its tree instead."""

MOST_AGAIN = 24
"""The most laws of a long product whose uses beyond the usual number are counted apart."""

SHIFT = 2300
"""Exact sums of μ² are whole numbers of 2^-SHIFT. The smallest μ is 2^-1074."""

MOST_SUMS = 128
"""The most sums of moments, for different tilts, that a long product keeps."""

MOST_KEPT = 4
"""The most plans, and the most trees with their partial products, that a long product keeps."""


@dataclass(slots=True, eq=False)
class Head:
    """The factors of a long product that never merge."""

    factors: tuple[Factor, ...]
    uses: float
    highest: float
    lossy: tuple[Factor, ...]
    plans: dict[float, LatticePlan] = field(default_factory=dict)
    kinds: dict[TreePlan, Kinds] = field(default_factory=dict)
    blocks: dict[TreePlan, dict[tuple[int, ...], Rows]] = field(default_factory=dict)
    sums: dict[tuple[float, float], MomentSum] = field(default_factory=dict)
    begun: tuple[tuple[Factor, ...], dict[tuple[float, float], MomentSum]] | None = None
    """The factors that were added to a shorter head, and the sums of that head."""

    @staticmethod
    def of(factors: tuple[Factor, ...]) -> Head:
        """The head that consists of these factors."""
        nothing = Head((), 0.0, 0.0, ())
        return nothing.plus(factors)

    def plus(self, more: tuple[Factor, ...]) -> Head:
        """This head with more factors: plans and trees are extended."""
        found = Head(
            self.factors + more,
            self.uses + math.fsum(f.uses for f in more),
            self.highest + math.fsum(f.uses * f.law.highest for f in more),
            self.lossy + tuple(f for f in more if f.law.infinity > 0),
        )
        # Lists: another thread may drop an entry meanwhile.
        for tail, plan in list(self.plans.items())[-MOST_KEPT:]:
            found.plans[tail] = LatticePlan(more, tail, plan)
        for tree, kinds in list(self.kinds.items())[-MOST_KEPT:]:
            found.kinds[tree] = convolution_tree.kinds_of(more, tree, kinds)
            found.blocks[tree] = dict(self.blocks.get(tree, {}))
        found.begun = (more, self.sums)
        return found

    def moments(self, negligible: float, tilt: float) -> MomentSum:
        """The moments of all factors near a tilt; all uses of a factor may leave out the P-mass `negligible`."""
        asked = (negligible, tilt)
        found = self.sums.get(asked)
        if found is None:
            more, before = self.begun or ((), {})
            shorter = before.get(asked)
            if shorter is None:
                found = MomentSum(self.factors, negligible, tilt)
            else:
                found = shorter.plus(more, negligible, tilt)
            if len(self.sums) >= MOST_SUMS:
                self.sums.clear()
            self.sums[asked] = found
        return found


class Ingredients(NamedTuple):
    """The laws of a product before merging, and how often each runs. It does not depend on the order in which they were
    multiplied, except for the order of `finites` and `others`.
    """

    gaussian: GaussianLaw = GaussianLaw(0.0)
    """One of the Gaussians: it is unchanged if it is the only one and runs once."""
    gaussians: int = 0
    square: int = 0
    """The exact μ² of all Gaussians together, in units of 2^-SHIFT."""
    finites: Mapping[Law, int] = {}
    others: Mapping[Law, int] = {}
    many: bool = False
    """Whether there are so many finite laws that they are among the `others`."""
    tally: Mapping[int, int] = {}
    """How many of the `others` run so often."""

    def plus(self, factors: Sequence[Factor]) -> Ingredients:
        """These laws together with those of more factors."""
        gaussian, gaussians, square = self.gaussian, self.gaussians, self.square
        finites, others = dict(self.finites), dict(self.others)
        many = self.many or len({f.law for f in factors if isinstance(f.law, FiniteLaw)} | set(finites)) > MOST_FINITE
        if many and not self.many:
            others.update(finites)
            finites = {}
        tally = Counter(self.tally if many == self.many else others.values())
        for law, count in factors:
            if isinstance(law, GaussianLaw):
                gaussian, gaussians, square = law, gaussians + count, square + count * _exact_square(law.mu)
            elif isinstance(law, FiniteLaw) and not many:
                finites[law] = finites.get(law, 0) + count
            elif not isinstance(law, IdentityLaw):
                before = others.get(law, 0)
                others[law] = before + count
                tally[before + count] += 1
                tally[before] -= 1
        return Ingredients(
            gaussian, gaussians, square, finites, others, many, {n: laws for n, laws in tally.items() if n and laws}
        )


class SimplifiedFactors(tuple[Factor, ...]):
    """The factors of a product after merging, and what they were made of."""

    ingredients: Ingredients


class LongFactors(SimplifiedFactors):
    """The factors of a long product: first the factors of its head, then the factors that may merge with later ones.

    If few laws run more often than the `usual` number of times, the head has their usual uses, and their other uses
    come after it: then one more use of a law changes no partial product of the head. For the same reason the few laws
    that run less often come after it (`apart`).
    """

    head: Head
    usual: float
    apart: bool
    again: tuple[Law, ...]
    """The laws of which some uses come after the head."""

    @property
    def rest(self) -> tuple[Factor, ...]:
        """The factors after the head."""
        return self[len(self.head.factors) :]


def uses_of(factors: tuple[Factor, ...]) -> float:
    """How many times the laws run in all."""
    if isinstance(factors, LongFactors):
        return factors.head.uses + math.fsum(f.uses for f in factors.rest)
    return math.fsum(f.uses for f in factors)


def highest_of(factors: tuple[Factor, ...]) -> float:
    """The largest finite loss of the product, up to a rounding for each factor."""
    if isinstance(factors, LongFactors):
        return factors.head.highest + math.fsum(f.uses * f.law.highest for f in factors.rest)
    return math.fsum(f.uses * f.law.highest for f in factors)


def lossy_of(factors: tuple[Factor, ...]) -> list[Factor]:
    """The factors that have an infinite loss with positive probability."""
    if isinstance(factors, LongFactors):
        return [*factors.head.lossy, *(f for f in factors.rest if f.law.infinity > 0)]
    return [f for f in factors if f.law.infinity > 0]


def plan_of(factors: tuple[Factor, ...], tail: float) -> LatticePlan:
    """The plan of a product whose sketches cut off this P-mass."""
    if not isinstance(factors, LongFactors):
        return LatticePlan(factors, tail)
    head = factors.head
    if tail not in head.plans:
        head.plans[tail] = LatticePlan(head.factors, tail)
    return LatticePlan(factors.rest, tail, head.plans[tail]) if factors.rest else head.plans[tail]


def tree_panels(factors: LongFactors, tree: TreePlan) -> tuple[DeltaPanel, RoundedPanel] | None:
    """(upper, lower) bounds on δ(ε), computed by a tree of partial products. The partial products are cached in the
    head. None if the product does not suit a tree.
    """
    head = factors.head
    kinds = head.kinds.get(tree)  # another thread may drop it from the head at any time
    if kinds is None:
        kinds = head.kinds[tree] = convolution_tree.kinds_of(head.factors, tree, {})
        for old in list(head.kinds)[:-MOST_KEPT]:
            head.kinds.pop(old, None)
            head.blocks.pop(old, None)
    rest = convolution_tree.kinds_of(factors.rest, tree, {})
    return convolution_tree.panels(kinds, rest, lossy_of(factors), tree, head.blocks.setdefault(tree, {}))


# -- merging ---------------------------------------------------------------------------------------------------------


def simplify(factors: Sequence[Factor], side: Side, before: SimplifiedFactors | None = None) -> SimplifiedFactors:
    """Merge factors that merge exactly: Gaussians, and finite laws while they stay small. `before` are simplified
    factors that these are multiplied with; the result is the same as that of all factors together.

    The product is unchanged up to rounding, which is upwards for `side` "upper" and downwards for "lower".
    """
    known = Ingredients() if before is None else before.ingredients
    every = known.plus(factors)
    merged = _merged(every, side)
    others = every.others
    if len(others) + len(merged) < convolution_tree.LEAST:
        short = SimplifiedFactors(_with_failure((*(Factor(law, n) for law, n in others.items()), *merged)))
        short.ingredients = every
        return short
    usual, apart = _usual(every.tally)

    def in_head(law: Law, counts: Mapping[Law, int]) -> int:
        count = counts.get(law, 0)
        return int(usual) if count > usual else 0 if apart and count < usual else count

    touched = [law for law in dict.fromkeys(f.law for f in factors) if law in others]
    unchanged = all(in_head(law, known.others) in (0, in_head(law, others)) for law in touched)
    same = isinstance(before, LongFactors) and (before.usual, before.apart) == (usual, apart)
    if isinstance(before, LongFactors) and same and unchanged and every.many == known.many:
        new = (law for law in touched if in_head(law, others) and not in_head(law, known.others))
        added = tuple(Factor(law, in_head(law, others)) for law in new)
        head = before.head.plus(added) if added else before.head
        unusual = dict.fromkeys([*before.again, *touched])
    else:
        head = Head.of(tuple(Factor(law, here) for law in others if (here := in_head(law, others))))
        unusual = dict.fromkeys(law for law, n in others.items() if n != usual)
    again = {law: left for law in unusual if (left := others[law] - in_head(law, others))}
    long = LongFactors((*head.factors, *(Factor(law, left) for law, left in again.items()), *merged))
    long.ingredients, long.head, long.usual, long.apart, long.again = every, head, usual, apart, tuple(again)
    return long


def _usual(tally: Mapping[int, int]) -> tuple[float, bool]:
    """How often most laws run, the smaller of two numbers that are as common; infinity if more than MOST_AGAIN laws run
    more often. And whether at most MOST_AGAIN laws run less often. `tally` counts the laws by how often they run.
    """
    usual = min(tally, key=lambda count: (-tally[count], count), default=0)
    if sum(n for count, n in tally.items() if count > usual) > MOST_AGAIN:
        return math.inf, False
    return usual, sum(n for count, n in tally.items() if count < usual) <= MOST_AGAIN


def _merged(every: Ingredients, side: Side) -> list[Factor]:
    """The Gaussians and the finite laws, merged."""
    gaussians = _one_gaussian(every, side)
    others = len(every.others) + len(gaussians)
    # Beside other laws, which need the lattice anyway, an exact product must be small to be worth computing.
    most = EXACT_SUPPORT if others else math.inf
    # Many different laws are multiplied in a tree, which loses little on laws with few values.
    pairs = TREE_PAIRS if others and others + len(every.finites) >= convolution_tree.LEAST else math.inf
    finites = [(law, count) for law, count in every.finites.items() if isinstance(law, FiniteLaw)]
    return gaussians + _few_finite(finites, side, most, pairs)


def _exact_square(mu: float) -> int:
    """μ² in units of 2^-SHIFT."""
    numerator, denominator = mu.as_integer_ratio()
    return (numerator * numerator) << (SHIFT - 2 * (denominator.bit_length() - 1))


def _one_gaussian(every: Ingredients, side: Side) -> list[Factor]:
    """All Gaussians as one factor, because μ² adds. A single one, used once, is unchanged."""
    if every.gaussians == 1:
        return [Factor(every.gaussian, 1)]
    if not every.square:
        return []
    mu = math.isqrt(every.square) / (1 << SHIFT // 2)
    return [Factor(GaussianLaw(mu * (1 + (8 if side == "upper" else -8) * UNIT_ROUNDOFF)), 1)]


def _few_finite(finites: Sequence[tuple[FiniteLaw, int]], side: Side, most: float, pairs: float) -> list[Factor]:
    """Finite laws multiplied exactly while the product has at most `most` values, from at most `pairs` pairs of values;
    the smallest first.
    """
    powers: list[tuple[FiniteLaw, int]] = []
    for law, count in finites:
        run = finite_law.power(law, count, side=side)
        is_small = run is not None and (count == 1 or len(run.losses) <= most)
        powers.append((run, 1) if is_small and run is not None else (law, count))
    powers.sort(key=lambda power: len(power[0].losses))
    joined: list[tuple[FiniteLaw, int]] = []
    for law, count in powers:
        if joined and joined[-1][1] == count == 1 and len(joined[-1][0].losses) * len(law.losses) <= pairs:
            both = finite_law.product(joined[-1][0], law, side=side)
            if both is not None and len(both.losses) <= most:
                joined[-1] = (both, 1)
                continue
        joined.append((law, count))
    return [Factor(law, count) for law, count in joined]


def _with_failure(factors: tuple[Factor, ...]) -> tuple[Factor, ...]:
    """Two factors merged into one if the second only fails (infinite loss) or reveals nothing (loss 0): closed form."""
    if len(factors) != 2 or any(f.uses != 1 for f in factors):
        return factors
    other, last = factors[0].law, factors[1].law  # finite laws come last
    fails = isinstance(last, FiniteLaw) and last.losses.tolist() == [0.0] and 0 < last.infinity < 1
    # `fails` implies a finite law.
    if not fails or abs(float(last.masses[0]) + last.infinity - 1) > 8 * UNIT_ROUNDOFF:  # type: ignore[attr-defined]
        return factors
    return (Factor(FailingLaw(other, last.infinity), 1),)
