"""Skellam noise: the difference of two Poisson numbers, and the μ of Gaussian DP that it has.

N = A - B with independent A, B ~ Poisson(v/2) has variance v and P(N = n) = e^-v I_n(v), I_n being a modified Bessel
function. Sums of independent Skellam numbers are Skellam, exactly. So many people can each add a share of the noise to
a sum, and nobody needs to know all of it (Agarwal, Kairouz & Liu 2021, "The Skellam Mechanism for Differentially
Private Federated Learning", who bound its Rényi divergences).

**Theorem.** Let μ₁ be the smallest μ for which N and N + 1 are μ-GDP. If every coordinate of an integer vector gets
independent Skellam noise of variance v, and neighbours move the vector by s, the release is μ₁‖s‖₂-GDP. *Proof.* A move
by k is a chain of k moves by one, hence k μ₁-GDP (Dong, Roth & Su 2022, Theorem 2.14), and the squares of coordinates
add (Corollary 3.3). ∎ For large v, μ₁ = (1 + 1/(6v) + ...)/√v: hardly more than for Gaussian noise of that variance.

**Computing μ₁.** The masses are log-concave, so the best tests reject large n. The trade-off function of N and N + 1 is
the polygon through (P(N >= n), P(N + 1 < n)). A convex function that is below its vertices is below the polygon. So
with z_n = Φ̄⁻¹(P(N >= n)),

    μ₁ = sup over n >= 0 of z_{n+1} - z_n;     the sup over n < 0 is the same, by symmetry.

At n = 0 this is 2 Φ⁻¹((1 + P(N = 0))/2), the largest value in every case that was computed. This is not assumed: the
result is the largest of these bounds, which together cover every n:

- up to n₀, every z_n is computed;
- beyond it, z_n - z_{n-1} <= M(z_{n-1}) log(P(N >= n - 1)/P(N >= n)), where M is the decreasing ratio of Mills. With
  θ = asinh(n/v) and x = e^-θ, Amos (1974) has I_n/I_{n-1} >= e^-asinh((n + 1/2)/v), hence P(N >= n)/P(N = n - 1)
  is at least Σ_j e^(-jθ - j²/2v) >= x/(1 - x) (1 - q) with q = (1 + x)/(2v (1 - x)²). So the logarithm is at most
  θ + (1 + x)/(2v (1 - x)(1 - q)). And P(N >= n) <= e^-R(n) with R(n) = n asinh(n/v) - √(n² + v²) + v (Chernoff)
  bounds z_{n-1} from below. This is evaluated on blocks of n, each factor at the worse end;
- beyond n₁ >= 4v, P(N >= n - 1)/P(N >= n) <= 1 + I_{n-1}/I_n <= 2 + 2n/v. From one block [n, 2n] to the next, this
  logarithm grows by a factor below √2, while R at least doubles (it is convex, R(0) = 0), and so z grows by at least
  √2: log Φ̄(z) >= -log 2 - √(2/π) z - z²/2, because the slope of log Φ̄ is at most √(2/π) + z in size. So the first
  block has the largest bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, final

import numpy as np

from deniable.curves import curve_arguments
from deniable.curves.atoms.atom import Atom
from deniable.curves.curve import Curve
from deniable.curves.laws import finite_law
from deniable.curves.laws.law import LawPair
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats
from deniable.errors import InvalidParameter
from deniable.numbers import above, down

LARGEST_VARIANCE = 2**24
"""The largest variance: computing its z_n takes about a second."""

BESSEL = 1e-14
"""Times 10 + √variance: a relative error that covers the computed masses (tested against mpmath)."""

MARGIN = 1e-8
"""Relative error that covers the rounding of differences of z_n."""

BLOCKS = 300_000

NEGLIGIBLE_EXPONENT = 210.0
"""e^-210 is below half of `finite_law.NEGLIGIBLE`."""


def _log_rate(n: Floats, variance: float) -> Floats:
    """R(n) of the module: P(N >= n) <= e^-R(n)."""
    return np.asarray(n * np.arcsinh(n / variance) - n * n / (np.hypot(n, variance) + variance))


def _log_masses(variance: float, last: int) -> Floats:
    """log P(N = n) for n = 0, ..., last: by Bessel functions while they do not underflow, then by their ratios.

    r_n = I_n/I_{n-1} = 1/(2n/v + r_{n+1}), computed backwards from far beyond the last one; each step reduces the error
    by the factor r_n r_{n+1}.
    """
    from scipy import special

    near = min(last, math.floor(30 * math.sqrt(variance)) + 10)
    logs = np.log(special.ive(np.arange(near + 1, dtype=float), variance))
    logs = logs[np.isfinite(logs)]
    ratios = []
    twice, ratio = 2 / variance, 0.0
    for n in range(last + 100 + math.ceil(4 * math.sqrt(variance)), len(logs) - 1, -1):
        ratio = 1 / (twice * n + ratio)
        if n <= last:
            ratios.append(ratio)
    return np.concatenate((logs, logs[-1] + np.cumsum(np.log(ratios[::-1]))))


@lru_cache(maxsize=256)
def unit_mu(variance: float) -> float:
    """μ₁ of the module, rounded up.

    >>> round(unit_mu(100.0) * 10, 4)
    1.0017
    """
    from scipy import special

    last = math.ceil(4 * variance) + 50
    first = min(last, math.ceil(3.5 * variance**0.75) + 100)
    beyond = math.ceil(60 / math.asinh(first / variance)) + 60  # the tail beyond has e^-60 of the last mass
    tails = np.logaddexp.accumulate(_log_masses(variance, first + beyond)[::-1])[::-1][: first + 1]
    bounds = [float(np.max(np.diff(-special.ndtri_exp(tails))))]
    bounds.append(2 * float(special.ndtri((1 + special.ive(0, variance)) / 2)))
    if first < last:
        ends = np.geomspace(first, last + 1, BLOCKS)
        low, high = ends[:-1], ends[1:]
        x = np.exp(-np.arcsinh(low / variance))
        q = (1 + x) / (2 * variance * (1 - x) ** 2)
        logs = np.arcsinh(high / variance) + (1 + x) / (2 * variance * (1 - x) * (1 - q))
        z = -special.ndtri_exp(-_log_rate(low - 1, variance))
        bounds.append(float(np.max(logs * math.sqrt(math.pi / 2) * special.erfcx(z / math.sqrt(2)))))
    far = float(_log_rate(np.array([last - 1.0]), variance)[0])
    least = math.sqrt(2 / math.pi + 2 * (far - math.log(2))) - math.sqrt(2 / math.pi)
    bounds.append(math.log(2 + 4 * last / variance) / least)
    return max(bounds) * (1 + MARGIN)


@final
@dataclass(frozen=True, slots=True)
class SkellamAtom(Atom):
    """Integer noise A - B with A, B ~ Poisson(variance/2), against the same noise shifted by `sensitivity`."""

    name: ClassVar[str] = "skellam"
    usual: ClassVar[Mapping[str, object]] = {"sensitivity": 1}
    variance: float
    sensitivity: int

    def __post_init__(self) -> None:
        variance = curve_arguments.positive("variance", self.variance, down)
        if not 1e-3 <= variance <= LARGEST_VARIANCE:
            rule = f"must lie between 0.001 and {LARGEST_VARIANCE:,}"
            remedy = "use a coarser grid: rounding adds a variance of at most 1/4 for each summand"
            raise InvalidParameter("variance", variance, rule, remedy)
        object.__setattr__(self, "variance", variance)
        object.__setattr__(self, "sensitivity", curve_arguments.integer("sensitivity", self.sensitivity, 1))

    def pair(self) -> LawPair:
        shift, variance = self.sensitivity, self.variance
        reach = 1
        while float(_log_rate(np.array([float(reach)]), variance)[0]) < NEGLIGIBLE_EXPONENT:
            reach = math.ceil(1.1 * reach)
        if 2 * reach + shift > finite_law.LARGEST_SUPPORT:
            raise InvalidParameter(
                "sensitivity", shift, "gives more outputs than can be enumerated", "use a coarser grid"
            )
        logs = _log_masses(variance, reach + shift)
        outputs = np.arange(-reach, reach + shift + 1)
        near = logs[np.abs(outputs)]
        losses = near - logs[np.abs(outputs - shift)]
        error = 2 * BESSEL * (10 + math.sqrt(variance)) + UNIT_ROUNDOFF * (
            64 + 8 * float(-near.min()) + 4 * float(np.abs(losses).max())
        )
        side = finite_law.truncated(losses, np.exp(near), cut=finite_law.NEGLIGIBLE, relative_error=error)
        return LawPair(side, side)

    def gdp_bound(self) -> float | None:
        return above(self.sensitivity * unit_mu(self.variance))

    def zcdp_bound(self) -> float | None:
        # μ-GDP is dominated by a Gaussian pair, whose divergences are order × μ²/2.
        mu = self.sensitivity * unit_mu(self.variance)
        return mu * mu / 2 * (1 + 4 * UNIT_ROUNDOFF)

    def renyi_bound(self, order: float) -> float | None:
        mu = self.sensitivity * unit_mu(self.variance)
        return math.inf if order == math.inf else order * mu * mu / 2 * (1 + 8 * UNIT_ROUNDOFF)

    def grouped(self, size: int) -> Curve | None:
        return Curve.of(SkellamAtom(self.variance, self.sensitivity * size))


def skellam(*, variance: float, sensitivity: int = 1) -> Curve:
    """Integer noise A - B with A, B ~ Poisson(variance/2), on an integer statistic that moves by `sensitivity`.

    variance from 0.001 to 2²⁴. Several coordinates multiply; their product is at most gaussian(mu=μ₁‖s‖), see the
    module.

    >>> from deniable import curves
    >>> curves.skellam(variance=100, sensitivity=10).gdp() < 1.002
    True
    """
    return Curve.of(SkellamAtom(variance, sensitivity))
