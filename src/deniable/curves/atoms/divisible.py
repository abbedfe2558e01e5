"""Infinitely divisible privacy: the limits of many nearly perfect mechanisms (Pandey, Maleki & Kulkarni 2025).

A guarantee is infinitely divisible if the privacy loss X = log dQ/dP is, under P, Gaussian plus jumps: variance s²,
jumps of size x at rate ν(dx), and the drift that makes e^X a density. Composition adds variances and jump rates. With
finitely many jump sizes, the guarantee is a product of one Gaussian and Poisson pairs. `merton` has normal jumps,
`normal_inverse_gaussian` infinitely many small jumps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from deniable.curves import curve_arguments
from deniable.curves.atoms.atom import Atom
from deniable.curves.atoms.mechanism_atoms import GaussianAtom, PoissonAtom
from deniable.curves.curve import Curve
from deniable.curves.laws.closed_form import upper_normal
from deniable.curves.laws.law import LawPair, Sided, Tails, UnboundedLaw
from deniable.curves.outward_rounding import SPECIAL, UNIT_ROUNDOFF, Floats, quietly
from deniable.errors import InvalidParameter
from deniable.numbers import root_up, up

Complexes = NDArray[np.complex128]


def infinitely_divisible(*, variance: float, jumps: Mapping[float, float]) -> Curve:
    """A Gaussian part of variance s² >= 0 and jumps {size: rate under P}; under Q a jump of size x has rate × e^x
    (Esscher).

    Sizes are not 0 and lie in [-300, 300]; rates are positive; InvalidParameter otherwise. Directions are tied.

    >>> from deniable import curves
    >>> curve = curves.infinitely_divisible(variance=0, jumps={0.9162907318741551: 2.0})
    >>> round(curve.forward.beta_bounds(alpha=0.05)[1], 6)  # Poisson(2) against Poisson(5)
    0.453392
    """
    variance = curve_arguments.not_negative("variance", variance)
    if not isinstance(jumps, Mapping):
        raise InvalidParameter("jumps", jumps, "must be a mapping from jump size to rate")
    result = Curve.of(GaussianAtom(up(root_up(Fraction(variance))))) if variance > 0 else Curve({})
    for size, rate in jumps.items():
        x, here = curve_arguments.finite("jumps", size), curve_arguments.positive("rate", rate)
        if x == 0 or abs(x) > 300:
            raise InvalidParameter("jumps", size, "a jump size must lie within [-300, 300] and must not be 0")
        there = curve_arguments.positive("rate", here * math.exp(min(x, 300.0)))
        one = Curve.of(PoissonAtom(min(here, there), max(here, there), True))
        result = result * (one if x > 0 else one.reversed())
    return result


MOST_JUMPS = 500
"""Largest mean number of jumps: each is one term of a sum of normal tails."""

# -- normal jumps ----------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class MertonLaw(UnboundedLaw):
    """The loss ±X of the Merton pair: normal given the number of jumps, so both tails are Poisson sums
    of normal tails.
    """

    variance: float
    rate: float
    mean: float
    spread: float
    sign: int

    @property
    def scale(self) -> float:
        return math.sqrt(self.variance + self.rate * (self.mean**2 + self.spread**2))

    @property
    def drift(self) -> float:
        """The drift of X under P that makes E_P e^X = 1."""
        return -0.5 * self.variance - self.rate * math.expm1(self.mean + 0.5 * self.spread**2)

    def terms(self) -> list[tuple[Floats, Floats, Floats]]:
        """For P and for Q: weights, means and standard deviations of X given n jumps."""
        tilted = self.mean + self.spread**2
        under_q = self.rate * math.exp(self.mean + 0.5 * self.spread**2)
        most = max(self.rate, under_q)
        n = np.arange(math.ceil(most + 20 * math.sqrt(most) + 120), dtype=float)
        deviation = np.sqrt(self.variance + n * self.spread**2)
        from scipy import special

        result = []
        for rate, jump, start in ((self.rate, self.mean, self.drift), (under_q, tilted, self.drift + self.variance)):
            weights = np.exp(n * math.log(rate) - rate - special.gammaln(n + 1))
            result.append((weights, start + n * jump, deviation))
        return result

    @quietly
    def tails(self, loss: Floats) -> Tails:
        under_p, under_q = self.terms()
        ahead, other = (under_q, under_p) if self.sign > 0 else (under_p, under_q)
        first = np.exp(self._log_tail(loss, ahead))
        second = np.exp(np.minimum(loss + self._log_tail(loss, other), 0.0))
        # A rounding error of (loss - mean)/deviation is magnified by its size, at most 40 where the tail is not
        # negligible.
        largest = float(max(np.max(np.abs(under_p[1])), np.max(np.abs(under_q[1]))))
        moved = 160 * UNIT_ROUNDOFF * (np.abs(loss) + largest) / math.sqrt(self.variance)
        error = 4 * SPECIAL + UNIT_ROUNDOFF * (64 * len(under_p[0]) + 2000) + moved
        return Tails(first, np.minimum(second, first), error)

    def _log_tail(self, loss: Floats, law: tuple[Floats, Floats, Floats]) -> Floats:
        """log P(sign X > loss): the sum of normal tails, in logarithms so that e^loss times it never overflows."""
        from scipy import special

        total = np.full_like(loss, -np.inf)
        for weight, mean, deviation in zip(*law, strict=True):
            if weight > 1e-300:
                term = math.log(weight) + special.log_ndtr((self.sign * mean - loss) / deviation)
                total = np.logaddexp(total, term)
        return total

    def moment(self, order: float) -> float | None:
        # Forward: E_Q e^{sX} = E_P e^{(s+1)X}; backward: E_P e^{-sX}.
        at = order + 1 if self.sign > 0 else -order
        return float(np.real(self.cumulant(np.array([at], dtype=complex))[0])) * (1 + 1e-14) + 1e-14

    def cumulant(self, z: Complexes) -> Complexes:
        """log E_P e^{zX}."""
        jump = np.exp(z * self.mean + 0.5 * (z * self.spread) ** 2)
        return np.asarray(self.drift * z + 0.5 * self.variance * z * z + self.rate * (jump - 1))


@final
@dataclass(frozen=True, slots=True)
class Merton(Atom):
    """A Gaussian part of `variance` plus jumps at `rate` whose sizes are N(mean, spread²)."""

    name: ClassVar[str] = "merton"
    variance: float
    rate: float
    mean: float
    spread: float

    def __post_init__(self) -> None:
        for name in ("variance", "rate", "mean", "spread"):
            object.__setattr__(self, name, curve_arguments.finite(name, getattr(self, name)))
            if name in ("mean", "spread") and abs(getattr(self, name)) > 10:
                raise InvalidParameter(name, getattr(self, name), "must lie within [-10, 10]")
        curve_arguments.not_negative("spread", self.spread)
        if curve_arguments.positive("variance", self.variance) > 1e4:
            raise InvalidParameter("variance", self.variance, "must be at most 10,000")
        jumps = curve_arguments.positive("rate", self.rate) * max(1.0, math.exp(self.mean + 0.5 * self.spread**2))
        if jumps > MOST_JUMPS:
            rule = f"there would be {jumps:.3g} jumps on average, and at most {MOST_JUMPS} are summed"
            raise InvalidParameter("rate", self.rate, rule, "compose curves of a lower rate with **, or use a Gaussian")

    def law(self, sign: int) -> MertonLaw:
        return MertonLaw(self.variance, self.rate, self.mean, self.spread, sign)

    def pair(self) -> LawPair:
        return LawPair(Sided.exact(self.law(-1)), Sided.exact(self.law(1)))

    def gdp_bound(self) -> float | None:
        return math.inf


def merton(*, variance: float, rate: float, mean: float, spread: float) -> Curve:
    """A Gaussian part plus jumps at `rate` (under P) whose sizes are N(mean, spread²). Directions are tied.

    variance in (0, 10,000], mean and spread at most 10 in size, at most 500 jumps on average under either law.
    """
    return Curve.of(Merton(variance, rate, mean, spread))


# -- normal inverse Gaussian -----------------------------------------------------------------------------------------

NODES = 400


@final
@dataclass(frozen=True, slots=True)
class NigLaw(UnboundedLaw):
    """The loss ±X of the normal inverse Gaussian pair: X is normal given an inverse Gaussian variance z.

    Tails are integrals over log z of a positive analytic integrand that falls off doubly exponentially, where the
    trapezoid rule with 400 nodes is exact to 1e-13 (tested against mpmath).
    """

    alpha: float
    beta: float
    size: float
    sign: int

    @property
    def scale(self) -> float:
        gamma = math.sqrt(self.alpha**2 - self.beta**2)
        return math.sqrt(self.size * self.alpha**2 / gamma**3)

    @property
    def drift(self) -> float:
        inner, outer = self.alpha**2 - self.beta**2, self.alpha**2 - (self.beta + 1) ** 2
        return self.size * (math.sqrt(outer) - math.sqrt(inner))

    def tails(self, loss: Floats) -> Tails:
        under_p, under_q = (self._tail(loss, beta) for beta in (self.beta, self.beta + 1))
        first, second = (under_q, under_p) if self.sign > 0 else (under_p, under_q)
        with np.errstate(divide="ignore"):
            scaled = np.exp(np.minimum(loss + np.log(second), 0.0))
        return Tails(first, np.minimum(scaled, first), 1e-12)

    def _tail(self, loss: Floats, beta: float) -> Floats:
        """P(sign X > loss) where X = drift + beta z + sqrt(z) N(0,1), z inverse Gaussian(size, gamma)."""
        gamma = math.sqrt(self.alpha**2 - beta**2)
        # log-density of log z is -(size/sqrt z - gamma sqrt z)²/2 + log(size) - log(z)/2 - log(2π)/2: negligible
        # where it is < -170.
        centre = math.log(self.size / gamma)
        reach = 2.1 * math.asinh(math.sqrt(85.0 / (self.size * gamma)))
        away, step = np.linspace(-reach, reach, NODES, retstep=True)
        z = np.exp(centre + away)
        # (size/√z - gamma √z)²/2 = 2 size gamma sinh²(away/2), without the cancellation.
        weight = np.exp(-2 * self.size * gamma * np.sinh(away / 2) ** 2) * self.size / np.sqrt(2 * math.pi * z) * step
        result = np.zeros_like(loss)
        for w, variance in zip(weight, z, strict=True):
            mean = self.drift + beta * variance
            result = result + w * upper_normal((loss - self.sign * mean) / math.sqrt(variance))
        return np.minimum(result, 1.0)

    def moment(self, order: float) -> float | None:
        at = order + 1 if self.sign > 0 else -order
        if abs(self.beta + at) >= self.alpha:
            return math.inf
        return float(np.real(self.cumulant(np.array([at], dtype=complex))[0])) * (1 + 1e-13) + 1e-13

    def cumulant(self, z: Complexes) -> Complexes:
        """log E_P e^{zX}."""
        gamma = math.sqrt(self.alpha**2 - self.beta**2)
        return np.asarray(self.drift * z + self.size * (gamma - np.sqrt(self.alpha**2 - (self.beta + z) ** 2)))


@final
@dataclass(frozen=True, slots=True)
class NormalInverseGaussian(Atom):
    """A loss that is NIG(alpha, beta, size) under P."""

    name: ClassVar[str] = "normal_inverse_gaussian"
    alpha: float
    beta: float
    size: float

    def __post_init__(self) -> None:
        a, b = curve_arguments.positive("alpha", self.alpha), curve_arguments.finite("beta", self.beta)
        for name, value in (("alpha", a), ("beta", b), ("size", curve_arguments.positive("size", self.size))):
            object.__setattr__(self, name, value)
        if not -a < b < a - 1:
            raise InvalidParameter(
                "beta", b, f"must lie strictly between -alpha and alpha - 1 = {a - 1:g}", "otherwise E e^X cannot be 1"
            )
        if not 1e-3 <= self.size <= 1e4 or a > 1e4:
            raise InvalidParameter(
                "size", self.size, "must lie within [0.001, 10,000], and alpha must be at most 10,000"
            )

    def law(self, sign: int) -> NigLaw:
        return NigLaw(self.alpha, self.beta, self.size, sign)

    def pair(self) -> LawPair:
        if self.beta == -0.5:
            return LawPair.symmetric(self.law(1))
        return LawPair(Sided.exact(self.law(-1)), Sided.exact(self.law(1)))

    def gdp_bound(self) -> float | None:
        return math.inf


def normal_inverse_gaussian(*, alpha: float, beta: float, size: float) -> Curve:
    """A NIG(alpha, beta, size) loss under P, with the drift that makes e^X a density; beta = -1/2 is the symmetric
    case.

    -alpha < beta < alpha - 1; size in [0.001, 10,000], alpha at most 10,000.
    """
    return Curve.of(NormalInverseGaussian(alpha, beta, size))


# -- the Fourier route -----------------------------------------------------------------------------------------------


def fourier_delta(
    cumulant: Callable[[Complexes], Complexes], *, epsilon: float, step: float = 0.08, end: float = 40.0
) -> float:
    """δ of Q against P from the cumulant log E_P e^{zX}, by Lewis' formula: an independent check, not a certificate.

    δ(ε) = 1 - (e^{ε/2}/π) ∫_0^∞ Re[e^{-iuε} φ(u - i/2)]/(u² + 1/4) du with φ(z) = E_P e^{izX}, by the trapezoid rule.
    The error is about e^{-π/step}(1 + e^|ε|), if φ is negligible beyond `end`.
    """
    if not callable(cumulant):
        raise InvalidParameter("cumulant", cumulant, "must be a function of complex numbers")
    epsilon, step, end = (
        curve_arguments.finite("epsilon", epsilon),
        curve_arguments.positive("step", step),
        curve_arguments.positive("end", end),
    )
    u = step * np.arange(0, math.ceil(end / step) + 1)
    phi = np.exp(cumulant((1j * u + 0.5).astype(np.complex128)))
    values = np.real(np.exp(-1j * u * epsilon) * phi) / (u * u + 0.25)
    values[0] /= 2
    return 1 - math.exp(epsilon / 2) / math.pi * step * float(np.sum(values))
