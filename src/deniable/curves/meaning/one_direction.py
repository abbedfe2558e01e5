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

import numpy as np

from deniable.curves import curve_arguments
from deniable.curves.composition.law_product import Product
from deniable.curves.meaning import attacker, curve_readings
from deniable.curves.outward_rounding import quietly

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
        array, scalar = curve_arguments.reading("epsilon", epsilon)
        flat = np.atleast_1d(array).ravel()
        products = self._products()
        found = [
            curve_readings.direction_delta(*products, flat, side).reshape(array.shape) for side in ("lower", "upper")
        ]
        return (float(found[0]), float(found[1])) if scalar else (found[0], found[1])

    @quietly
    def beta_bounds(self, *, alpha: Any) -> tuple[Any, Any]:
        """Certified (low, high) around T(P, Q)(α): the smallest Q(not S) over tests S with P(S) <= α."""
        array, scalar = curve_arguments.reading_in_unit("alpha", alpha)
        searched, other = reversed(self._products())
        low, high = attacker.beta_of(searched, other, np.atleast_1d(array).ravel())
        return (float(low[0]), float(high[0])) if scalar else (low.reshape(array.shape), high.reshape(array.shape))

    def polygon(self) -> tuple[Any, Any]:
        """Vertices (α, β) of a polygon just below T(P, Q), for plots; no test lies below it."""
        searched, other = reversed(self._products())
        return attacker.polygon_below(searched, other)

    @quietly
    def loss_tail_bounds(self, *, epsilon: Any) -> tuple[Any, Any]:
        """Certified (low, high) around P(L > ε) for the loss L = log dP/dQ."""
        from deniable.curves.meaning import loss_tail

        array, scalar = curve_arguments.reading("epsilon", epsilon)
        low, high = loss_tail.direction_bounds(self.curve, self.is_forward, np.atleast_1d(array).ravel())
        return (float(low[0]), float(high[0])) if scalar else (low.reshape(array.shape), high.reshape(array.shape))

    def renyi_bounds(self, *, order: Any) -> tuple[Any, Any]:
        """Certified (low, high) around the Rényi divergence D(P‖Q) of an order above 0; order 1 is KL, inf the largest
        loss.
        """
        from deniable.curves.meaning import divergences

        array, scalar = divergences.orders(order)
        found = [divergences.renyi_bounds(self.curve, float(a), self.is_forward) for a in array.ravel()]
        low, high = (np.array([f[i] for f in found]).reshape(array.shape) for i in (0, 1))
        return (float(low), float(high)) if scalar else (low, high)

    def kl(self) -> float:
        """KL(P‖Q), the mean privacy loss; for the trade-off function f = T(P, Q) it is -∫ log|f'|."""
        from deniable.curves.meaning import loss_moments

        return loss_moments.kl_of(self.curve, self.is_forward)

    @property
    def loss(self) -> LossDistribution:
        """The distribution of L = log dP/dQ under P, for plots and tables."""
        from deniable.curves.meaning import loss_distribution

        return loss_distribution.of_direction(self.curve, self.is_forward)
