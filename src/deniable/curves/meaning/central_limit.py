"""The central limit theorem of differential privacy: an approximation with a type of its own, not a guarantee."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from deniable.curves.meaning.loss_moments import LossMoments, corners, moments
from deniable.curves.outward_rounding import quietly
from deniable.errors import InvalidOperation

if TYPE_CHECKING:
    from deniable.curves.curve import Curve


@final
@dataclass(frozen=True, slots=True)
class GaussianApproximation:
    """Many small releases are close to one Gaussian release (Dong, Roth, Su 2022, Theorems 3.4 and 3.5). NOT a
    guarantee.

    `mu` = 2k/s with k = Σ kl, s² = Σ κ₂. `error` is the Berry-Esseen distance γ = 0.56 Σ κ̄₃ / V^{3/2}, V = Σ (κ₂ -
    kl²): with `mu_centred` = 2k/√V, every α in [γ, 1-γ] has G(α+γ) - γ <= β(α) <= G(α-γ) + γ. It is None if γ >= 1/2 or
    the factors are not symmetric: then the theorem does not apply.
    """

    mu: float
    mu_centred: float
    error: float | None
    k: float
    s_squared: float

    def approximate_delta(self, *, epsilon: float) -> float:
        """δ of the limiting Gaussian at ε. The true δ may be larger or smaller."""
        from deniable.curves.atoms.mechanism_atoms import gaussian

        return float(gaussian(mu=self.mu).delta(epsilon=epsilon))

    def approximate_beta(self, *, alpha: float) -> float:
        """β of the limiting Gaussian at α. The true β may be larger or smaller."""
        from deniable.curves.atoms.mechanism_atoms import gaussian

        return float(gaussian(mu=self.mu).beta(alpha=alpha))

    def beta_bracket(self, *, alpha: float) -> tuple[float, float]:
        """The Berry-Esseen bracket around β(α): proved, but usually much wider than `Curve.beta_bounds`."""
        if self.error is None or not self.error <= alpha <= 1 - self.error:
            return 0.0, 1 - alpha
        from deniable.curves.atoms.mechanism_atoms import gaussian

        limit, gap = gaussian(mu=self.mu_centred), self.error
        low = float(limit.beta(alpha=min(alpha + gap, 1.0))) - gap
        return max(low, 0.0), min(float(limit.beta_bounds(alpha=max(alpha - gap, 0.0))[1]) + gap, 1 - alpha)

    def __mul__(self, other: object) -> None:
        raise InvalidOperation(
            "an approximation is not a guarantee and does not compose; multiply the curves and call clt() last"
        )

    __rmul__ = __mul__


@quietly
def clt(curve: Curve) -> GaussianApproximation:
    """The central-limit approximation of a product; the worse of the two directions."""
    found = [
        _clt_of(curve, known)
        for is_forward in (True, False)
        # k²/s² is convex in both sums, and decreases with s².
        for known in corners(curve, is_forward, moments, lambda m: m.kl, lambda m: -m.kappa2, least_square=True)
    ]
    return max(found, key=lambda one: one.mu)


def _clt_of(curve: Curve, known: list[tuple[LossMoments, int]]) -> GaussianApproximation:
    from deniable.curves.atoms.atom import pair_of

    k = math.fsum(n * m.kl for m, n in known)
    square = math.fsum(n * m.kappa2 for m, n in known)
    variance = math.fsum(n * (m.kappa2 - m.kl * m.kl) for m, n in known)
    if not math.isfinite(square):
        raise InvalidOperation(
            "the moments of the privacy loss are infinite or not known, because some outcome may reveal everything; "
            "the central limit theorem does not apply"
        )
    if square <= 0:  # nearly equal laws, by rounding
        return GaussianApproximation(0.0, 0.0, 0.0, 0.0, 0.0)
    # If the power of the variance over- or underflows, the error is unknown.
    power = variance * math.sqrt(max(variance, 0.0))
    gap = 0.56 * math.fsum(n * m.central3 for m, n in known) / power if 0 < power < math.inf else math.inf
    symmetric = all(pair_of(a).is_symmetric and len(a.possible_pairs()) <= 1 for a, _ in curve.factors)
    centred = 2 * k / math.sqrt(variance) if variance > 0 else math.inf
    return GaussianApproximation(
        2 * k / math.sqrt(square), centred, gap if symmetric and gap < 0.5 else None, k, square
    )
