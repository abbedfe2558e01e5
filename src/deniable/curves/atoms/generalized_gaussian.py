"""Generalised Gaussian noise: density proportional to exp(-|x/b|^β). β = 1 is Laplace noise, β = 2 Gaussian noise.

For β > 1 the density is log-concave, so the privacy loss of a shift by Δ, L(x) = |(x - Δ)/b|^β - |x/b|^β, decreases
in x and every best test is a half-line: with x(l) the output of loss l,

    P(L > l) = P(X < x(l)),   Q(L > l) = P(X < x(l) - Δ).

X has the law of ±b G^(1/β), G ~ Gamma(1/β), so both are regularised incomplete gamma functions. The pair is symmetric:
x -> Δ - x exchanges the two laws. A statistic with several coordinates is a product of shifts, one for each coordinate,
if each coordinate gets its own noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from deniable.curves import curve_arguments
from deniable.curves.atoms.atom import Atom
from deniable.curves.curve import Curve
from deniable.curves.laws.law import Law, LawPair, Tails
from deniable.curves.outward_rounding import Floats, quietly
from deniable.errors import InvalidParameter
from deniable.numbers import above

FLATTEST, STEEPEST = 1.05, 16.0
"""The smallest and the largest β."""

LARGEST_SHIFT = 1e3
FAR = 1e4
"""Outputs farther than this many scales have a mass that underflows to 0."""


@dataclass(frozen=True, slots=True)
class GeneralizedGaussianLaw(Law):
    """The loss of noise with this power, shifted by `shift` scales."""

    shift: float
    power: float

    @property
    def lowest(self) -> float:
        return -np.inf

    @property
    def highest(self) -> float:
        return np.inf

    @property
    def scale(self) -> float:
        return float(max(self.shift * self.power * max(1.0, self.shift) ** (self.power - 1), 1e-12))

    def _loss_at(self, x: Floats) -> Floats:
        return np.asarray(np.abs(x - self.shift) ** self.power - np.abs(x) ** self.power)

    @quietly
    def tails(self, loss: Floats) -> Tails:
        from scipy import special

        low, high = np.full_like(loss, -FAR), np.full_like(loss, FAR)
        for _ in range(110):
            middle = 0.5 * (low + high)
            is_above = self._loss_at(middle) > loss
            low, high = np.where(is_above, middle, low), np.where(is_above, high, middle)
        at = 0.5 * (low + high)

        def below(x: Floats) -> Floats:
            size = special.gammaincc(1 / self.power, np.abs(x) ** self.power) / 2
            return np.where(x < 0, size, 1 - size)

        first = below(at)
        second = np.minimum(np.exp(np.minimum(loss, 700.0)) * below(at - self.shift), first)
        # Roundings of x^β in the exponent of a tail.
        return Tails(first, second, 1e-12 + 1e-15 * self.power * (1 + np.abs(at) ** self.power + np.abs(loss)))


@final
@dataclass(frozen=True, slots=True)
class GeneralizedGaussianAtom(Atom):
    """Noise of density exp(-|x/scale|^power), shifted by `sensitivity`."""

    name: ClassVar[str] = "generalized_gaussian"
    usual: ClassVar[Mapping[str, object]] = {"sensitivity": 1.0}
    scale: float
    power: float
    sensitivity: float

    def __post_init__(self) -> None:
        for name in ("scale", "power", "sensitivity"):
            object.__setattr__(self, name, curve_arguments.positive(name, getattr(self, name)))
        if not FLATTEST <= self.power <= STEEPEST:
            rule = f"must lie between {FLATTEST:g} and {STEEPEST:g}"
            raise InvalidParameter("power", self.power, rule, "a power of 1 is Laplace noise: curves.laplace(scale=)")
        if self.sensitivity > LARGEST_SHIFT * self.scale or (self.sensitivity / self.scale) ** self.power > 500:
            raise InvalidParameter("sensitivity", self.sensitivity, "is too large for this noise", "add more noise")

    def pair(self) -> LawPair:
        return LawPair.symmetric(GeneralizedGaussianLaw(above(self.sensitivity / self.scale), self.power))

    def grouped(self, size: int) -> Curve | None:
        return Curve.of(GeneralizedGaussianAtom(self.scale, self.power, above(self.sensitivity * size)))


def generalized_gaussian(*, scale: float, power: float, sensitivity: float = 1.0) -> Curve:
    """Noise with density proportional to exp(-|x/scale|^power) on a number that moves by `sensitivity`.

    `power` from 1.05 to 16; 2 is Gaussian noise with σ = scale/√2. Raises InvalidParameter for another power, and if
    `sensitivity` is too large for a certified computation.

    >>> from deniable import curves
    >>> two = curves.generalized_gaussian(scale=2**0.5, power=2)
    >>> abs(two.delta(epsilon=1) - curves.gaussian(sigma=1).delta(epsilon=1)) < 1e-9
    True
    """
    return Curve.of(GeneralizedGaussianAtom(scale, power, sensitivity))
