"""The named mechanisms: Gaussian, Laplace, their discrete forms, randomized response, the exponential mechanism,
Poisson.

Each class is the guarantee of one mechanism; users call the function of the same name in lower case. The sensitivity is
1 unless given: noise σ on a statistic of sensitivity Δ is `gaussian(sigma=σ, sensitivity=Δ)`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, final

import numpy as np

from deniable import arguments
from deniable.curves import curve_arguments
from deniable.curves.atoms.atom import Atom, show
from deniable.curves.curve import Curve
from deniable.curves.decimal_arithmetic import up
from deniable.curves.laws import finite_law
from deniable.curves.laws.closed_form import BoundedRangeLaw, GaussianLaw, LaplaceLaw, upper_normal
from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.laws.law import LawPair
from deniable.curves.meaning.gaussian_dp import pure_mu
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats, quotient_up
from deniable.errors import InvalidParameter, NotCertifiable
from deniable.numbers import down


def _inverse(exact: Fraction) -> str:
    """1/x as a user would type it, if a float stores it exactly; "" otherwise."""
    inverse = float(1 / exact)
    return show(inverse) if Fraction(inverse) * exact == 1 else ""


@final
@dataclass(frozen=True, slots=True)
class GaussianAtom(Atom):
    """N(0, 1) against N(μ, 1). `mu` is rounded up; `ratio` is the exact μ if a float cannot store it (see
    `curve_arguments.ratio`).

    Curves use `mu`. Exact costs use the exact value: gaussian(sigma=10) costs ρ = 1/200, while the float 0.1 lies above
    1/10 and would cost more than a budget of 0.005.
    """

    name: ClassVar[str] = "gaussian"
    mu: float
    ratio: str = ""

    @staticmethod
    def of(mu: Fraction) -> GaussianAtom:
        return GaussianAtom(up(mu), curve_arguments.written(mu))

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", curve_arguments.positive("mu", self.mu))
        object.__setattr__(self, "ratio", curve_arguments.ratio("mu", self.mu, self.ratio))

    def exact(self) -> Fraction:
        return Fraction(self.ratio or self.mu)

    def pair(self) -> LawPair:
        return LawPair.symmetric(GaussianLaw(self.mu))

    def expression(self) -> str:
        # Displayed as sigma if that is as short: the user most likely wrote it so.
        sigma = _inverse(self.exact())
        return f"gaussian(sigma={sigma})" if 0 < len(sigma) <= len(show(self.mu)) else f"gaussian(mu={show(self.mu)})"

    def exact_square(self) -> Fraction | None:
        return self.exact() ** 2

    def exact_rho(self) -> Fraction | None:
        return self.exact() ** 2 / 2

    def gdp_bound(self) -> float | None:
        return self.mu

    def covers(self, curve: Curve) -> bool:
        return bool(curve.gdp() <= self.mu)

    def grouped(self, size: int) -> Curve | None:
        return Curve.of(GaussianAtom.of(self.exact() * size))


def gaussian(*, sigma: float | None = None, mu: float | None = None, sensitivity: float = 1.0) -> Curve:
    """The Gaussian mechanism: N(0, σ²) noise on a statistic of L2 sensitivity `sensitivity`; μ = sensitivity/σ.

    Give `sigma` or `mu`, both positive. For all neighbours the two output laws are at most as distinguishable as N(0,1)
    and N(μ,1), so δ(ε) = Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ)  (Balle & Wang 2018, Theorem 8).

    >>> from deniable import curves
    >>> round(curves.gaussian(sigma=1).delta(epsilon=1.0), 12)
    0.126936737507
    """
    if curve_arguments.exactly_one(sigma=sigma, mu=mu) == "mu":
        return Curve.of(GaussianAtom(curve_arguments.positive("mu", mu)))
    return Curve.of(GaussianAtom.of(curve_arguments.shift("sigma", sigma, sensitivity)))


@final
@dataclass(frozen=True, slots=True)
class LaplaceAtom(Atom):
    """Two Laplace laws of scale 1 at the distance `shift`, rounded up; `ratio` is the exact distance, as in
    `GaussianAtom`.
    """

    name: ClassVar[str] = "laplace"
    shift: float
    ratio: str = ""

    @staticmethod
    def of(shift: Fraction) -> LaplaceAtom:
        return LaplaceAtom(up(shift), curve_arguments.written(shift))

    def __post_init__(self) -> None:
        object.__setattr__(self, "shift", curve_arguments.positive("shift", self.shift))
        object.__setattr__(self, "ratio", curve_arguments.ratio("shift", self.shift, self.ratio))

    def exact(self) -> Fraction:
        return Fraction(self.ratio or self.shift)

    def pair(self) -> LawPair:
        return LawPair.symmetric(LaplaceLaw(self.shift))

    def expression(self) -> str:
        scale = _inverse(self.exact())
        return f"laplace(scale={scale})" if scale else f"laplace(scale=1, sensitivity={show(self.shift)})"

    def renyi_bound(self, order: float) -> float | None:
        if order == 1:
            mean = self.shift + math.expm1(-self.shift) + 4 * UNIT_ROUNDOFF * self.shift
            return min(mean, up(Fraction(self.shift) ** 2 / 2))
        return None

    def grouped(self, size: int) -> Curve | None:
        # Laplace noise is log-concave: moving the statistic by `size` is the worst chain of `size` moves by one.
        return Curve.of(LaplaceAtom.of(self.exact() * size))

    def exact_epsilon(self) -> Fraction | None:
        return self.exact()


def laplace(*, scale: float, sensitivity: float = 1.0) -> Curve:
    """The Laplace mechanism: noise of density e^(-|z|/scale)/(2 scale) on a statistic of L1 sensitivity `sensitivity`.

    With t = sensitivity/scale: pure ε = t, and δ(ε) = 1 - e^((ε-t)/2) for |ε| <= t (Balle, Barthe, Gaboardi 2018,
    Theorem 3). A vector release of the same L1 sensitivity is dominated by the scalar one (theory page, lemma 6).

    >>> from deniable import curves
    >>> round(curves.laplace(scale=1).delta(epsilon=0.5), 12)
    0.221199216929
    """
    return Curve.of(LaplaceAtom.of(curve_arguments.shift("scale", scale, sensitivity)))


@final
@dataclass(frozen=True, slots=True)
class DiscreteLaplaceAtom(Atom):
    """Integer noise with P(z) ∝ e^(-|z|/scale), against the same noise shifted by `sensitivity`."""

    name: ClassVar[str] = "discrete_laplace"
    usual: ClassVar[Mapping[str, object]] = {"sensitivity": 1}
    scale: float
    sensitivity: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", curve_arguments.positive("scale", self.scale, down))
        object.__setattr__(self, "sensitivity", curve_arguments.integer("sensitivity", self.sensitivity, 1))

    def pair(self) -> LawPair:
        # P(y) ∝ r^|y| with r = e^(-1/scale), Q(y) = P(y - Δ). Loss (|y-Δ| - |y|)/scale takes the values Δ - 2j, j =
        # 0..Δ.
        if self.sensitivity > finite_law.LARGEST_SUPPORT:
            raise NotCertifiable(
                f"discrete_laplace with sensitivity {self.sensitivity} has more losses than can be enumerated; use "
                "laplace(scale=, sensitivity=)"
            )
        t, shift = quotient_up(1.0, self.scale), self.sensitivity
        inner = np.arange(1, shift, dtype=float)
        normal = -math.expm1(-t) / (1 + math.exp(-t))
        low_end = 1 / (1 + math.exp(-t))
        high_end = math.exp(-shift * t) / (1 + math.exp(-t))
        masses = np.concatenate(([low_end], normal * np.exp(-inner * t), [high_end]))
        losses = t * (shift - 2 * np.arange(0, shift + 1, dtype=float))
        # The largest loss is the ε of pure DP: rounded up.
        losses[0] = up(Fraction(shift) / Fraction(self.scale))
        law = FiniteLaw(losses[::-1].copy(), masses[::-1].copy(), relative_error=16 * UNIT_ROUNDOFF * (1 + t * shift))
        return LawPair.symmetric(law)

    def exact_epsilon(self) -> Fraction | None:
        return self.sensitivity / Fraction(self.scale)

    def grouped(self, size: int) -> Curve | None:
        return Curve.of(DiscreteLaplaceAtom(self.scale, self.sensitivity * size))


def discrete_laplace(*, scale: float, sensitivity: int = 1) -> Curve:
    """Integer noise with P(z) ∝ e^(-|z|/scale) on an integer statistic: pure ε = sensitivity/scale.

    `scale` > 0; `sensitivity` is an integer of at least 1. For sensitivity 1 the loss is ±1/scale, exactly as for
    randomized response.
    """
    return Curve.of(DiscreteLaplaceAtom(scale, sensitivity))


@final
@dataclass(frozen=True, slots=True)
class DiscreteGaussianAtom(Atom):
    """Integer noise with P(z) ∝ e^(-z²/2σ²), against the same noise shifted by `sensitivity`."""

    name: ClassVar[str] = "discrete_gaussian"
    usual: ClassVar[Mapping[str, object]] = {"sensitivity": 1}
    sigma: float
    sensitivity: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", curve_arguments.positive("sigma", self.sigma, down))
        object.__setattr__(self, "sensitivity", curve_arguments.integer("sensitivity", self.sensitivity, 1))

    def pair(self) -> LawPair:
        s, shift = self.sigma, self.sensitivity
        outputs = _integers(s, shift, "discrete_gaussian")
        log_mass = -0.5 * (outputs / s) ** 2
        masses = np.exp(log_mass)
        # The exact normaliser is an infinite sum; the missing tail is less than NEGLIGIBLE of it.
        masses /= math.fsum(masses)
        losses = ((outputs - shift) ** 2 - outputs**2) / (2 * s * s)
        error = UNIT_ROUNDOFF * (64 + 8 * float(-log_mass.min()) + 4 * float(np.abs(losses).max()))
        side = finite_law.truncated(losses, masses, cut=finite_law.NEGLIGIBLE, relative_error=error)
        return LawPair(side, side)

    def exact_rho(self) -> Fraction | None:
        # Canonne, Kamath, Steinke 2020, Proposition 5: Rényi divergences are never above the continuous Gaussian's.
        return (self.sensitivity / Fraction(self.sigma)) ** 2 / 2

    def gdp_bound(self) -> float | None:
        return math.inf

    def grouped(self, size: int) -> Curve | None:
        return Curve.of(DiscreteGaussianAtom(self.sigma, self.sensitivity * size))


def discrete_gaussian(*, sigma: float, sensitivity: int = 1) -> Curve:
    """Integer noise with P(z) ∝ e^(-z²/2σ²) on an integer statistic (Canonne, Kamath, Steinke 2020).

    `sigma` > 0; `sensitivity` is an integer of at least 1. Reading the curve raises NotCertifiable if the noise is so
    wide that it has too many outputs to list; the error names a curve that is a valid bound.
    """
    return Curve.of(DiscreteGaussianAtom(sigma, sensitivity))


def _integers(sigma: float, shift: int, name: str) -> Floats:
    """Integers around 0 and the shift, out to where both laws together miss less than NEGLIGIBLE of their mass."""
    reach = math.ceil(21.0 * sigma) + 2
    if 2 * reach + shift > finite_law.LARGEST_SUPPORT:
        instead = (
            "gaussian(sigma=, sensitivity=), a valid bound"
            if name == "rounded_gaussian"
            else "zcdp(rho=sensitivity**2 / (2 * sigma**2)), a valid bound"
        )
        raise NotCertifiable(
            f"{name} with sigma={sigma:g}, sensitivity={shift} has more than {finite_law.LARGEST_SUPPORT:,} relevant "
            f"outputs; use {instead}"
        )
    return np.arange(-reach, reach + shift + 1, dtype=float)


@final
@dataclass(frozen=True, slots=True)
class RoundedGaussianAtom(Atom):
    """Integer noise round(N(0, σ²)), against the same noise shifted by `sensitivity`."""

    name: ClassVar[str] = "rounded_gaussian"
    usual: ClassVar[Mapping[str, object]] = {"sensitivity": 1}
    sigma: float
    sensitivity: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", curve_arguments.positive("sigma", self.sigma, down))
        object.__setattr__(self, "sensitivity", curve_arguments.integer("sensitivity", self.sensitivity, 1))

    def pair(self) -> LawPair:
        s, shift = self.sigma, self.sensitivity
        outputs = _integers(s, shift, "rounded_gaussian")
        near = _rounded_mass(outputs, s)
        far = _rounded_mass(outputs - shift, s)
        keep = (near > 1e-150) & (far > 1e-150)
        p, q = near[keep], far[keep]
        # Differences of two tails lose up to sigma roundings. Outputs that underflow on the far side count as
        # infinite loss.
        error = UNIT_ROUNDOFF * (4096 + 64 * s)
        cut = finite_law.NEGLIGIBLE + float(np.sum(near[~keep])) * (1 + 1e-12)
        side = finite_law.truncated(np.log(p) - np.log(q), p, cut=cut, relative_error=error)
        return LawPair(side, side)

    def exact_square(self) -> Fraction | None:
        return (self.sensitivity / Fraction(self.sigma)) ** 2

    def exact_rho(self) -> Fraction | None:
        return (self.sensitivity / Fraction(self.sigma)) ** 2 / 2

    def gdp_bound(self) -> float | None:
        return up(self.sensitivity / Fraction(self.sigma))

    def grouped(self, size: int) -> Curve | None:
        return Curve.of(RoundedGaussianAtom(self.sigma, self.sensitivity * size))


def rounded_gaussian(*, sigma: float, sensitivity: int = 1) -> Curve:
    """Integer noise round(N(0, σ²)) on an integer statistic: post-processing of the Gaussian mechanism, so never worse.

    >>> from deniable import curves
    >>> round(curves.rounded_gaussian(sigma=2).delta(epsilon=1.0), 6)
    0.00683
    """
    return Curve.of(RoundedGaussianAtom(sigma, sensitivity))


def _rounded_mass(z: Floats, sigma: float) -> Floats:
    """P(round(N(0, σ²)) = z), from the tail on z's own side."""
    away = np.abs(z)
    return np.asarray(
        np.where(
            away == 0,
            1 - 2 * upper_normal(np.full_like(z, 0.5 / sigma)),
            upper_normal((away - 0.5) / sigma) - upper_normal((away + 0.5) / sigma),
        )
    )


@final
@dataclass(frozen=True, slots=True)
class RandomizedResponseAtom(Atom):
    """The true one of `categories` answers with weight e^ε, each other with weight 1; against another true answer."""

    name: ClassVar[str] = "randomized_response"
    usual: ClassVar[Mapping[str, object]] = {"categories": 2}
    epsilon: float
    categories: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", curve_arguments.not_negative("epsilon", self.epsilon))
        object.__setattr__(self, "categories", curve_arguments.integer("categories", self.categories, 2))

    def pair(self) -> LawPair:
        # Truth with weight e^ε, each other answer with weight 1.
        e, others = self.epsilon, self.categories - 1
        total = 1 + others * math.exp(-e)
        true, lie = 1 / total, math.exp(-e) / total
        masses = [lie, lie * (self.categories - 2), true]
        losses = [-e, 0.0, e]
        if self.categories == 2 or e == 0:
            masses, losses = ([lie, true], [-e, e]) if e > 0 else ([1.0], [0.0])
        law = FiniteLaw(np.array(losses), np.array(masses), relative_error=8 * UNIT_ROUNDOFF * (1 + e))
        return LawPair.symmetric(law)

    def exact_epsilon(self) -> Fraction | None:
        return Fraction(self.epsilon)

    def gdp_bound(self) -> float | None:
        return pure_mu(self.epsilon) if self.categories == 2 else None


def randomized_response(*, p: float | None = None, epsilon: float | None = None, categories: int = 2) -> Curve:
    """k-ary randomized response: the truth with probability p, otherwise one of the other answers at random.

    Give p (at least 1/categories, below 1) or ε >= 0; e^ε = p (categories - 1) / (1 - p) for `categories` >= 2 answers.

    >>> from deniable import curves
    >>> round(curves.randomized_response(p=0.75).epsilon(delta=0.0), 12)
    1.098612288668
    """
    categories = curve_arguments.integer("categories", categories, 2)
    if curve_arguments.exactly_one(p=p, epsilon=epsilon) == "epsilon":
        return Curve.of(RandomizedResponseAtom(curve_arguments.not_negative("epsilon", epsilon), categories))
    share = curve_arguments.inner_probability("p", p)
    if share * categories < 1 - 1e-15:
        raise InvalidParameter("p", p, f"must be at least 1/categories = {1 / categories:g}", "relabel the answers")
    odds = math.log(share) - math.log1p(-share) + math.log(categories - 1)
    return Curve.of(RandomizedResponseAtom(max(odds + 2 * UNIT_ROUNDOFF * (1 + abs(odds)), 0.0), categories))


@final
@dataclass(frozen=True, slots=True)
class ApproximateAtom(Atom):
    """(ε, δ)-DP as a black box. δ = 0 is pure DP."""

    name: ClassVar[str] = "approximate"
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", curve_arguments.not_negative("epsilon", self.epsilon))
        object.__setattr__(self, "delta", curve_arguments.probability("delta", self.delta))

    @property
    def is_exact(self) -> bool:
        return False

    def pair(self) -> LawPair:
        # Kairouz, Oh, Viswanath 2015: with probability δ everything is revealed, otherwise randomized response.
        e, d = self.epsilon, self.delta
        if d == 1:
            losses, masses = np.zeros(0), np.zeros(0)
        elif e == 0:
            losses, masses = np.array([0.0]), np.array([1 - d])
        else:
            losses = np.array([-e, e])
            masses = (1 - d) * np.array([math.exp(-e), 1.0]) / (1 + math.exp(-e))
        return LawPair.symmetric(FiniteLaw(losses, masses, d, 8 * UNIT_ROUNDOFF * (1 + e)))

    def expression(self) -> str:
        if self.delta == 0:
            return f"pure(epsilon={show(self.epsilon)})"
        return f"approximate(epsilon={show(self.epsilon)}, delta={show(self.delta)})"

    def exact_epsilon(self) -> Fraction | None:
        return Fraction(self.epsilon) if self.delta == 0 else None

    def gdp_bound(self) -> float | None:
        return pure_mu(self.epsilon) if self.delta == 0 else math.inf

    def covers(self, curve: Curve) -> bool:
        # It dominates every curve with δ(ε) <= δ (Kairouz, Oh & Viswanath 2015).
        if self.delta == 0:
            return bool(curve.epsilon(delta=0.0) <= self.epsilon)
        return bool(curve.delta(epsilon=self.epsilon) <= self.delta)


def pure(*, epsilon: float) -> Curve:
    """Any ε-DP mechanism, if nothing else is known of it; ε >= 0. It composes like randomized response, the worst."""
    return Curve.of(ApproximateAtom(epsilon, 0.0))


def approximate(*, epsilon: float, delta: float) -> Curve:
    """Any (ε, δ)-DP mechanism, if nothing else is known of it; ε >= 0 and 0 <= δ <= 1 (Kairouz, Oh, Viswanath 2015,
    Theorem 3.3).
    """
    return Curve.of(ApproximateAtom(epsilon, delta))


@final
@dataclass(frozen=True, slots=True)
class BoundedRangeAtom(Atom):
    """Any mechanism whose loss stays within an interval of length ε, such as the exponential mechanism."""

    name: ClassVar[str] = "exponential"
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", curve_arguments.positive("epsilon", self.epsilon))

    @property
    def is_exact(self) -> bool:
        return False

    def pair(self) -> LawPair:
        return LawPair.symmetric(BoundedRangeLaw(self.epsilon))

    def exact_epsilon(self) -> Fraction | None:
        return Fraction(self.epsilon)

    def exact_rho(self) -> Fraction | None:
        # Cesar & Rogers 2021, Lemma 3.4: ε-bounded range implies ε²/8-zCDP.
        return Fraction(self.epsilon) ** 2 / 8

    def exact_renyi(self, order: float) -> Fraction | None:
        return None  # the divergences themselves are smaller than ρ × order


def exponential(*, epsilon: float) -> Curve:
    """The exponential mechanism with e^(ε u/2Δ): ε-bounded range, strictly better than ε-DP when composed.

    δ(l) = (1 - e^((l-ε)/2))² / (1 - e^-ε) for |l| <= ε (Dong, Durfee, Rogers 2020). Holds for any bounded-range
    mechanism, such as report noisy max with Gumbel noise. Permute-and-flip is NOT one.
    """
    return Curve.of(BoundedRangeAtom(epsilon))


@final
@dataclass(frozen=True, slots=True)
class PoissonAtom(Atom):
    """Poisson counts of rate `low`, against Poisson counts of rate `high`."""

    name: ClassVar[str] = "poisson"
    low: float
    high: float
    is_tied: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", curve_arguments.positive("low", self.low, down))
        object.__setattr__(self, "high", curve_arguments.positive("high", self.high))
        arguments.boolean("is_tied", self.is_tied)
        if self.high < self.low:
            raise InvalidParameter("high", self.high, f"must be at least low = {self.low:g}")

    @property
    def tied(self) -> bool:
        return self.is_tied

    def pair(self) -> LawPair:
        a, b = self.low, self.high
        first = max(0.0, math.floor(a - 21 * math.sqrt(a) - 25))
        last = math.ceil(b + 21 * math.sqrt(b) + 250)
        # (Beyond 1e15, neighbouring counts are not distinct floats.)
        if last - first > finite_law.LARGEST_SUPPORT or b > 1e15:
            raise NotCertifiable(
                f"poisson(low={a:g}, high={b:g}) has more than {finite_law.LARGEST_SUPPORT:,} relevant counts; use "
                "lower rates"
            )
        counts = np.arange(first, last + 1)
        p, q = _poisson_mass(counts, a), _poisson_mass(counts, b)
        loss = (b - a) - counts * math.log1p((b - a) / a)
        error = 1e-13 + UNIT_ROUNDOFF * 16 * (b - a + float(np.abs(loss).max()))
        forward = finite_law.truncated(loss, p, cut=0.0 if first == 0 else finite_law.NEGLIGIBLE, relative_error=error)
        backward = finite_law.truncated(-loss, q, cut=finite_law.NEGLIGIBLE, relative_error=error)
        return LawPair(forward, backward)

    def expression(self) -> str:
        return f"poisson(low={show(self.low)}, high={show(self.high)}{', tied=True' if self.is_tied else ''})"

    def renyi_bound(self, order: float) -> float | None:
        a, b = self.low, self.high
        if a == b:
            return 0.0
        if order == 1:
            return b * math.log(b / a) - (b - a) + 8 * UNIT_ROUNDOFF * b
        if order * math.log(b / a) > 690:
            return math.inf
        ahead = (a * (b / a) ** order - order * b - (1 - order) * a) / (order - 1)
        back = (b * (a / b) ** order - order * a - (1 - order) * b) / (order - 1)
        # Three large terms cancel: allow for the rounding of each.
        size = (a * (b / a) ** order + order * b + abs(1 - order) * a + b) / (order - 1)
        return float(max(ahead, back) + 16 * UNIT_ROUNDOFF * (1 + order) * size)

    def gdp_bound(self) -> float | None:
        return math.inf if self.high > self.low else 0.0


def _poisson_mass(counts: Floats, rate: float) -> Floats:
    """Poisson masses by Stirling remainder and deviance (Loader 2000), accurate to 1e-13."""
    inner = np.maximum(counts, 1.0)
    log_mass = -finite_law.stirling_rest(inner) - finite_law.deviance(inner, rate) - 0.5 * np.log(2 * math.pi * inner)
    return np.asarray(np.exp(np.where(counts == 0, -rate, log_mass)))


def poisson(*, low: float, high: float, tied: bool = False) -> Curve:
    """Poisson privacy: neighbours are at most as distinguishable as Poisson counts of rates `low` and `high`.

    (Pandey, Maleki & Kulkarni 2025.) 0 < low <= high; P has the lower rate. `tied=True` says that P always belongs to
    the neighbour without the person (counts under add/remove). Otherwise the direction may flip from use to use, and
    products symmetrise this factor first.
    """
    return Curve.of(PoissonAtom(low, high, arguments.boolean("tied", tied)))


__all__ = [
    "approximate",
    "discrete_gaussian",
    "discrete_laplace",
    "exponential",
    "gaussian",
    "laplace",
    "poisson",
    "pure",
    "randomized_response",
    "rounded_gaussian",
]
