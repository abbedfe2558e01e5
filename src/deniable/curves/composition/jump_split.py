"""δ(ε) of a power of one law, split by the number of large losses.

The loss of a rare sample is almost always tiny, and now and then it jumps. At a δ of interest the sum of many such
losses is often one jump plus a sum of tiny losses. Such sums have no useful exponential moments, so tilting cannot lift
δ above the rounding errors of an FFT. But an outcome shows which uses jumped. So with F = P(L > c) for a cut c,

    δ(ε) = Σ_k binomial(n, F)(k) · δ_k(ε + (n-k) s + k t),

where δ_k is the profile of n-k uses of `BelowCut` and k uses of `AboveCut`, and s and t are the constants that
conditioning adds to their losses. This is an identity. Given the jumps, δ_k is not small, and every term is positive,
so an error of the FFT stays small relative to δ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from deniable.curves.composition.compose import LEAST_OUTSIDE
from deniable.curves.composition.rounded_panel import Panel
from deniable.curves.composition.tilt_plan import Factor
from deniable.curves.laws.conditioned_laws import AboveCut, BelowCut, masses_beyond, shift_above, shift_below
from deniable.curves.laws.law import Law
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats

if TYPE_CHECKING:
    from deniable.curves.composition.law_product import Product

MOST_JUMPS = 16
"""The most jumps that get a term of their own."""

SHORT, LONGEST = 2**18, 2**20
"""The longest window of a term: of its first panel, and of finer ones."""

OUTSIDE, OUTSIDE_AT_MOST = 1e-6, 1e-9
"""The mass outside the window of a term, relative to the δ of the term, and at most."""

NEGLIGIBLE = 1e-7
"""The share of δ that the terms beyond the last one may have."""


def cut_for(law: Law, uses: int, epsilon: float, delta: float) -> float | None:
    """A cut below ε that few uses exceed; None if a split would not help."""
    cut = epsilon / 4
    for _ in range(24):
        expected = uses * masses_beyond(law, cut).above
        if expected < NEGLIGIBLE * delta or cut > epsilon:
            return None
        if _terms(uses, masses_beyond(law, cut).above, delta) is not None:
            return cut
        cut *= 1.2
    return None


def _terms(uses: int, chance: float, delta: float) -> int | None:
    """The largest number of jumps that needs a term; None if that is more than MOST_JUMPS."""
    for last in range(min(MOST_JUMPS, uses) + 1):
        if _more_than(uses, last, chance) <= NEGLIGIBLE * delta:
            return last
    return None


def _more_than(uses: int, jumps: int, chance: float) -> float:
    """An upper bound on the probability of more than `jumps` jumps: the expected number of sets of jumps + 1 uses."""
    if jumps >= uses:
        return 0.0
    return float(math.comb(uses, jumps + 1)) * chance ** (jumps + 1) * (1 + 1e-12)


@dataclass(slots=True)
class _Term:
    """The products with k jumps: their probability, the shift of ε, and the panels so far."""

    weight: float
    shift: float
    blur: float
    """A bound on the rounding error of the shift."""
    product: Product
    doubt: float = 1e-12
    """The relative error of the weight."""
    panels: list[Panel] = field(default_factory=list)

    def upper(self, epsilon: Floats) -> Floats:
        """An upper bound on the term at ε."""
        at = epsilon + self.shift - self.blur - 4 * UNIT_ROUNDOFF * np.abs(epsilon)
        found = self.product.crude_delta(at)
        for panel in self.panels:
            if panel.side == "upper":
                found = np.minimum(found, panel.delta(at))
        return np.asarray(found * (self.weight * (1 + self.doubt)))

    def lower(self, epsilon: Floats) -> Floats:
        """A lower bound on the term at ε."""
        at = epsilon + self.shift + self.blur + 4 * UNIT_ROUNDOFF * np.abs(epsilon)
        found = np.maximum(-np.expm1(np.minimum(at, 0.0)) * (1 - 1e-12), 0.0)
        for panel in self.panels:
            if panel.side == "lower":
                found = np.maximum(found, np.where(at < panel.end, panel.delta(at), 0.0))
        return np.asarray(np.minimum(found, 1.0) * (self.weight * max(1 - self.doubt, 0.0)))


class JumpSplit:
    """The product of `uses` of one law as a sum over the number of losses above a cut; a single term without a cut."""

    __slots__ = ("_rest", "_terms")

    def __init__(
        self, law: Law, uses: int, cut: float | None, delta: float, make: Callable[[tuple[Factor, ...]], Product]
    ):
        self._rest, self._terms = 0.0, list[_Term]()
        if cut is None:
            self._terms.append(_Term(1.0, 0.0, 0.0, make((Factor(law, uses),))))
            return
        beyond = masses_beyond(law, cut)
        last = _terms(uses, beyond.above, delta)
        assert last is not None
        chance, error = beyond.above, beyond.error
        self._rest = _more_than(uses, last, chance * (1 + error))
        below, above = shift_below(law, cut), shift_above(law, cut)
        for jumps in range(last + 1):
            weight = float(math.comb(uses, jumps)) * chance**jumps * math.exp((uses - jumps) * math.log1p(-chance))
            factors = [Factor(BelowCut(law, cut), uses - jumps), Factor(AboveCut(law, cut), jumps)]
            product = make(tuple(factor for factor in factors if factor.uses))
            shifts = ((uses - jumps) * below, jumps * above)
            blur = 16 * UNIT_ROUNDOFF * (1e-6 + abs(shifts[0]) + abs(shifts[1]))
            # Near a cut of the law itself, the mass above this one may have few digits.
            doubt = 1e-12 + 2 * error * (jumps + uses * chance / (1 - chance))
            self._terms.append(_Term(weight, sum(shifts), blur, product, doubt))

    def refine(self, epsilon: float, delta: float, refine: float) -> None:
        """Add panels that are sharp near ε to every term that matters."""
        for term in self._terms:
            at = np.array([epsilon])
            if float(term.upper(at)[0]) <= NEGLIGIBLE * delta:
                continue
            shifted = epsilon + term.shift
            target = term.product.plan.at_epsilon(shifted)
            # The lattice of a jump is long: its terms get fewer points.
            longest = (LONGEST if refine < 1 else SHORT) // (1 if len(term.product.upper) == 1 else 4)
            # Mass outside the window counts in full, and the δ of a term may be far below 1.
            outside = min(max(OUTSIDE * delta / term.weight, LEAST_OUTSIDE), OUTSIDE_AT_MOST)
            term.panels += term.product.panels_for(
                target._replace(epsilon=shifted), ("upper", "lower"), refine, outside, epsilon, longest
            )

    def upper(self, epsilon: Floats) -> Floats:
        """An upper bound on δ(ε)."""
        return np.asarray(sum((term.upper(epsilon) for term in self._terms), np.full_like(epsilon, self._rest)))

    def lower(self, epsilon: Floats) -> Floats:
        """A lower bound on δ(ε)."""
        return np.asarray(sum((term.lower(epsilon) for term in self._terms), np.zeros_like(epsilon)))
