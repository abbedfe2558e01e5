"""Sampled Gaussian noise if one person is replaced: (1-q) N(0, 1) + q N(μ, 1) against (1-q) N(0, 1) + q N(-μ, 1).

**Theorem.** Let a person's contribution to a sum be a vector of length at most μ (in standard deviations of the
noise), and let each person take part with probability q. For one person replaced by another, this pair dominates.

*Proof.* Given who of the others takes part, the laws are (1-q) φ_0 + q φ_g and (1-q) φ_0 + q φ_h with Gaussian
densities of means 0, g and h, |g|, |h| <= μ. With x = e^ε >= 1, y = 1 + (x - 1)/q and β = x/y as in
`atoms.replaced_samples`,

    δ(ε) = q E (1 - y (1 - β) e^U - y β e^V)₊,   U = log φ_0/φ_g, V = log φ_h/φ_g, under φ_g.

U and V are jointly Gaussian, E e^U = E e^V = 1, with the variances |g|² and |g - h|² and the covariance |g|² - <g, h>.
These are at most μ², 4μ² and 2μ², and h = -g with |g| = μ reaches all three. By Kahane's inequality, the mean of a
convex function of a e^U + b e^V with a, b >= 0 and such U, V does not decrease if the covariances increase, and s ↦ (1
- s)₊ is convex. So h = -g is the worst, for every ε >= 0; and exchanging the two people exchanges the directions. ∎
(Kahane 1985, "Sur le chaos multiplicatif".)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from deniable.curves.laws.closed_form import GaussianLaw, upper_normal
from deniable.curves.laws.law import Tails, UnboundedLaw
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats, quietly


@dataclass(frozen=True, slots=True)
class OppositeShiftsLaw(UnboundedLaw):
    """The loss of the pair of the module; it increases with the output z, and both directions are alike."""

    mu: float
    rate: float

    @property
    def scale(self) -> float:
        return max(self.rate * min(self.mu, 1.0), 1e-300)

    @quietly
    def _threshold(self, loss: Floats) -> Floats:
        """The output z with this loss: u = e^(μz) solves qc u² - (1-q)(x-1) u - x qc = 0, c = e^(-μ²/2), x = e^loss.

        With u = v √x: v² - 2bv - 1 = 0 for b = (1-q) sinh(loss/2)/(qc), so log v = asinh(b).
        """
        steep = (1 - self.rate) / self.rate
        half = np.clip(np.abs(loss) / 2, 0.0, 600.0)
        log_b = math.log(steep) + 0.5 * self.mu**2 + np.log(np.maximum(np.sinh(half), 1e-300))
        # asinh(b) is log(2b) for a large b, which may overflow.
        found = np.where(log_b > 100, log_b + math.log(2), np.arcsinh(np.exp(np.minimum(log_b, 100.0))))
        return np.asarray(np.sign(loss) * (np.where(half > 0, found, 0.0) + np.abs(loss) / 2) / self.mu)

    @quietly
    def tails(self, loss: Floats) -> Tails:
        from scipy import special

        q, z = self.rate, self._threshold(loss)
        first = (1 - q) * upper_normal(z) + q * upper_normal(z - self.mu)
        logs = np.logaddexp(math.log1p(-q) + special.log_ndtr(-z), math.log(q) + special.log_ndtr(-z - self.mu))
        second = np.minimum(np.exp(np.minimum(loss + logs, 0.0)), first)
        return Tails(first, second, 1e-13 * (1 + z * z))

    @quietly
    def gaps(self, loss: Floats) -> tuple[Floats, Floats]:
        # (1-q)(1-x) Φ̄(z) + q (Φ̄(z-μ) - x Φ̄(z+μ)): every term is of the size of q, so little is lost for a small q.
        from scipy import special

        q, z = self.rate, self._threshold(loss)
        common = (1 - q) * np.expm1(np.minimum(loss, 700.0)) * upper_normal(z)
        mine = q * upper_normal(z - self.mu)
        other = q * np.exp(np.minimum(loss + special.log_ndtr(-z - self.mu), 700.0))
        gap = mine - other - common
        doubt = (1e-14 * (1 + z * z) + 8 * UNIT_ROUNDOFF) * (mine + other + np.abs(common))
        # For a large loss the terms overflow, but the gap is between 0 and the first tail.
        large = ~np.isfinite(gap) | (loss > 300)
        first, second, error = self.tails(loss)
        return np.where(large, first - second, gap), np.where(large, error * (first + second), doubt)

    def loose_moment(self, order: float) -> float:
        # E (P/Q)^s under P is jointly convex: it is 1 if the person is not drawn, and exp(2 s (s+1) μ²) otherwise.
        drawn = 2 * self.mu**2 * order * (order + 1) * (1 + 1e-14) + math.log(self.rate)
        return float(np.logaddexp(math.log1p(-self.rate), drawn)) + 1e-14

    def tail_moment(self, order: float, loss: float) -> float | None:
        # L <= 2μz for z >= 0, the loss of N(μ, 1) against N(-μ, 1), and N(μ, 1) is above the mixture.
        return GaussianLaw(2 * self.mu).tail_moment(order, loss)
