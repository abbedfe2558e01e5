"""One direction of a curve alone.

A curve compares two laws of the answer, always named in this order:

    P   the answer on the first neighbour (for neighbours that differ by a person: the one without them)
    Q   the answer on the second neighbour (the one with them)

`curve.forward` is about the ordered pair (P, Q): the trade-off function T(P, Q), the divergence D(P‖Q), the profile sup
P(S) - e^ε Q(S), the loss L = log dP/dQ under P. `curve.backward` is about (Q, P). A guarantee needs both, so every
number of the curve itself is the worse one. (A test that detects Q is described by T(P, Q) and by sup Q(S) - e^ε P(S):
the trade-off function of one direction and the profile of the other are conjugate.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from deniable.curves import curve_arguments
from deniable.curves.composition.law_product import Product
from deniable.curves.meaning import attacker, curve_readings
from deniable.curves.outward_rounding import Floats, quietly

if TYPE_CHECKING:
    from deniable.curves.curve import Curve
    from deniable.curves.meaning.loss_distribution import LossDistribution


@final
@dataclass(frozen=True, slots=True)
class Direction:
    """The ordered pair (P, Q), or (Q, P). One direction alone is not a guarantee, so it has no ε and no μ."""

    curve: Curve
    is_forward: bool

    def _products(self) -> tuple[Product, Product]:
        forward, backward = curve_readings.product_of(self.curve)
        return (forward, backward) if self.is_forward else (backward, forward)

    @quietly
    def delta_bounds(self, *, epsilon: Any) -> tuple[Any, Any]:
        """Certified (low, high) around sup_S P(S) - e^ε Q(S)."""
        products = self._products()

        def bounds(floats: Floats) -> tuple[Floats, Floats]:
            low, high = (curve_readings.direction_delta(*products, floats, side) for side in ("lower", "upper"))
            return low, high

        return curve_arguments.reading("epsilon", epsilon).falling(bounds)

    @quietly
    def beta_bounds(self, *, alpha: Any) -> tuple[Any, Any]:
        """Certified (low, high) around T(P, Q)(α): the smallest Q(not S) over tests S with P(S) <= α."""
        searched, other = reversed(self._products())
        given = curve_arguments.reading_in_unit("alpha", alpha)
        return given.falling(lambda floats: attacker.beta_of(searched, other, floats))

    def polygon(self) -> tuple[Any, Any]:
        """Vertices (α, β) of a polygon just below T(P, Q), for plots; no test lies below it."""
        searched, other = reversed(self._products())
        return attacker.polygon_below(searched, other)

    @quietly
    def loss_tail_bounds(self, *, epsilon: Any) -> tuple[Any, Any]:
        """Certified (low, high) around P(L > ε) for the loss L = log dP/dQ."""
        from deniable.curves.meaning import loss_tail

        given = curve_arguments.reading("epsilon", epsilon)
        return given.falling(lambda floats: loss_tail.direction_bounds(self.curve, self.is_forward, floats))

    def renyi_bounds(self, *, order: Any) -> tuple[Any, Any]:
        """Certified (low, high) around the Rényi divergence D(P‖Q) of an order above 0; order 1 is KL, inf the largest
        loss.
        """
        from deniable.curves.meaning import divergences

        def bounds(floats: Floats) -> tuple[list[float], list[float]]:
            found = [divergences.renyi_bounds(self.curve, float(a), self.is_forward) for a in floats]
            return [low for low, _ in found], [high for _, high in found]

        return divergences.orders(order).rising(bounds)

    def kl(self) -> float:
        """KL(P‖Q), the mean privacy loss; for the trade-off function f = T(P, Q) it is -∫ log|f'|."""
        from deniable.curves.meaning import loss_moments

        return loss_moments.kl_of(self.curve, self.is_forward)

    @property
    def loss(self) -> LossDistribution:
        """The distribution of L = log dP/dQ under P, for plots and tables."""
        from deniable.curves.meaning import loss_distribution

        return loss_distribution.of_direction(self.curve, self.is_forward)
