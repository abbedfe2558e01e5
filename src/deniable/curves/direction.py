"""One direction of a curve, for those who want to see the two apart.

`curve.forward` compares (P, Q): how much likelier an event is for the first neighbour. `curve.backward` compares (Q,
P). A guarantee needs both, so every view of the curve itself takes the worse one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from deniable.curves import attacker, check, views
from deniable.curves.reading import Product
from deniable.curves.rounding import quietly

if TYPE_CHECKING:
    from deniable.curves.curve import Curve


@final
@dataclass(frozen=True, slots=True)
class Direction:
    """P against Q (or Q against P). Not a guarantee by itself: no ε, no μ, only the profile and the trade-off
    function.
    """

    curve: Curve
    is_forward: bool

    def _products(self) -> tuple[Product, Product]:
        forward, backward = views.product_of(self.curve)
        return (forward, backward) if self.is_forward else (backward, forward)

    @quietly
    def delta_bounds(self, *, epsilon: Any) -> tuple[Any, Any]:
        """Certified (low, high) around sup_S P(S) - e^ε Q(S)."""
        array, scalar = check.reading("epsilon", epsilon)
        flat = np.atleast_1d(array).ravel()
        products = self._products()
        found = [views.direction_delta(*products, flat, side).reshape(array.shape) for side in ("lower", "upper")]
        return (float(found[0]), float(found[1])) if scalar else (found[0], found[1])

    @quietly
    def beta_bounds(self, *, alpha: Any) -> tuple[Any, Any]:
        """Certified (low, high) around T(Q, P)(α): the smallest P(not S) over tests S with Q(S) <= α."""
        array, scalar = check.reading_in_unit("alpha", alpha)
        low, high = attacker.beta_of(*self._products(), np.atleast_1d(array).ravel())
        return (float(low[0]), float(high[0])) if scalar else (low.reshape(array.shape), high.reshape(array.shape))
