"""The factors of a product, merged where they merge exactly, and what every question about a long product needs.

A product of thousands of different laws is evaluated again and again, each time with one more factor. `LongFactors`
keeps sums over the factors that never merge (its `Head`), the plans and the partial products of earlier questions. All
of these depend on the factors alone, so an answer does not depend on what was asked before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from deniable.curves.composition import folding
from deniable.curves.composition.delta_panel import DeltaPanel
from deniable.curves.composition.folding import Kinds, Rows, TreePlan
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

FOLDED_PAIRS = 4000
"""Pairs of values that are worth multiplying exactly among so many factors that their product is folded."""

MERGING = (GaussianLaw, FiniteLaw, IdentityLaw)
MOST_KEPT = 4
"""The most plans, and the most trees with their partial products, that a long product keeps."""


@dataclass(slots=True, eq=False)
class Head:
    """The factors of a long product that never merge."""

    factors: tuple[Factor, ...]
    laws: set[Law]
    uses: float
    highest: float
    lossy: tuple[Factor, ...]
    plans: dict[float, LatticePlan] = field(default_factory=dict)
    kinds: dict[TreePlan, Kinds] = field(default_factory=dict)
    blocks: dict[TreePlan, dict[tuple[int, ...], Rows]] = field(default_factory=dict)

    @staticmethod
    def of(factors: tuple[Factor, ...]) -> Head:
        """The head that consists of these factors."""
        nothing = Head((), set(), 0.0, 0.0, ())
        return nothing.plus(factors)

    def plus(self, more: tuple[Factor, ...]) -> Head:
        """This head with more factors: plans and trees are extended."""
        found = Head(
            self.factors + more,
            self.laws | {f.law for f in more},
            self.uses + math.fsum(f.uses for f in more),
            self.highest + math.fsum(f.uses * f.law.highest for f in more),
            self.lossy + tuple(f for f in more if f.law.infinity > 0),
        )
        for tail in list(self.plans)[-MOST_KEPT:]:
            found.plans[tail] = LatticePlan(more, tail, self.plans[tail])
        for tree in list(self.kinds)[-MOST_KEPT:]:
            found.kinds[tree] = folding.kinds_of(more, tree, self.kinds[tree])
            found.blocks[tree] = dict(self.blocks.get(tree, {}))
        return found


class LongFactors(tuple[Factor, ...]):
    """The factors of a long product: first the factors of its head, then the factors that may merge with new ones."""

    head: Head

    @staticmethod
    def of(head: Head, rest: Sequence[Factor]) -> LongFactors:
        """The factors of a head and the rest."""
        found = LongFactors((*head.factors, *rest))
        found.head = head
        return found

    @property
    def rest(self) -> tuple[Factor, ...]:
        """The factors that may merge."""
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


def folded_panels(factors: LongFactors, tree: TreePlan) -> tuple[DeltaPanel, RoundedPanel] | None:
    """Both bounds on δ(ε) by a tree of partial products, which are kept; None if the product does not suit a tree."""
    head = factors.head
    kinds = head.kinds.get(tree)  # another thread may drop it from the head at any time
    if kinds is None:
        kinds = head.kinds[tree] = folding.kinds_of(head.factors, tree, {})
        for old in list(head.kinds)[:-MOST_KEPT]:
            head.kinds.pop(old, None)
            head.blocks.pop(old, None)
    rest = folding.kinds_of(factors.rest, tree, {})
    return folding.panels(kinds, rest, lossy_of(factors), tree, head.blocks.setdefault(tree, {}))


# -- merging ---------------------------------------------------------------------------------------------------------


def simplify(factors: Sequence[Factor], side: Side, before: tuple[Factor, ...] = ()) -> tuple[Factor, ...]:
    """Merge factors that merge exactly: Gaussians, and finite laws while they stay small. `before` are simplified
    factors that these are multiplied with.

    The product is unchanged up to rounding, which goes up for the upper `side` and down for the lower one.
    """
    if isinstance(before, LongFactors):
        apart = [f for f in factors if not isinstance(f.law, MERGING)]
        if len({f.law for f in apart}) == len(apart) and not any(f.law in before.head.laws for f in apart):
            head = before.head.plus(tuple(apart)) if apart else before.head
            merging = [*before.rest, *(f for f in factors if isinstance(f.law, MERGING))]
            return LongFactors.of(head, _merged(_counted(merging), len(head.factors), side))
    uses = _counted([*before, *factors])
    rest = tuple(Factor(law, count) for law, count in uses.items() if not isinstance(law, MERGING))
    merged = _merged(uses, len(rest), side)
    if len(rest) + len(merged) >= folding.LEAST:
        return LongFactors.of(Head.of(rest), merged)
    return _with_failure((*rest, *merged))


def _counted(factors: Sequence[Factor]) -> dict[Law, int]:
    """How many times each law runs."""
    uses: dict[Law, int] = {}
    for law, count in factors:
        uses[law] = uses.get(law, 0) + count
    return uses


def _merged(uses: dict[Law, int], others: int, side: Side) -> list[Factor]:
    """The Gaussians and the finite laws among these, merged; `others` factors stand beside them."""
    gaussians = _one_gaussian([(law, count) for law, count in uses.items() if isinstance(law, GaussianLaw)], side)
    finites = [(law, count) for law, count in uses.items() if isinstance(law, FiniteLaw)]
    others += len(gaussians)
    # Beside other laws, which need the lattice anyway, an exact product must be small to be worth computing.
    most = EXACT_SUPPORT if others else math.inf
    # Many different laws are multiplied in a tree, which loses little on laws with few values.
    pairs = FOLDED_PAIRS if others and others + len(finites) >= folding.LEAST else math.inf
    return gaussians + _few_finite(finites, side, most, pairs)


def _one_gaussian(gaussians: Sequence[tuple[GaussianLaw, int]], side: Side) -> list[Factor]:
    """All Gaussians as one factor, because μ² adds. A single one, used once, is unchanged."""
    if len(gaussians) == 1 and gaussians[0][1] == 1:
        return [Factor(*gaussians[0])]
    square = 0.0
    for law, count in gaussians:
        square += count * law.mu * law.mu
    if square <= 0:
        return []
    return [Factor(GaussianLaw(math.sqrt(square) * (1 + (8 if side == "upper" else -8) * UNIT_ROUNDOFF)), 1)]


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
