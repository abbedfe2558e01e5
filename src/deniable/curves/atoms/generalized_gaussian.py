"""Generalised Gaussian noise: density proportional to exp(-|x/b|^β). β = 1 is Laplace noise, β = 2 Gaussian noise.

For β > 1 the density is log-concave, so the privacy loss of a shift by Δ, L(x) = |(x - Δ)/b|^β - |x/b|^β, decreases
in x and every best test is a half-line: with x(l) the output of loss l,

    P(L > l) = P(X < x(l)),   Q(L > l) = P(X < x(l) - Δ).

X has the law of ±b G^(1/β), G ~ Gamma(1/β), so both are regularised incomplete gamma functions. The pair is symmetric:
x -> Δ - x exchanges the two laws. A statistic with several coordinates is a product of shifts, one for each coordinate,
if each coordinate gets its own noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from deniable.curves import curve_arguments
from deniable.curves.atoms.atom import Atom
from deniable.curves.curve import Curve
from deniable.curves.laws.law import LawPair, Tails, UnboundedLaw
from deniable.curves.outward_rounding import Floats, quietly
from deniable.errors import InvalidParameter
from deniable.numbers import above

FLATTEST, STEEPEST = 1.05, 16.0
"""The smallest and the largest β."""

SMALLEST_SHIFT, LARGEST_SHIFT = 1e-9, 1e3
"""Shifts in scales. Powers of smaller ones underflow."""

SERIES = 500.0
LOG_2 = math.log(2)
FAR = 1e4
"""Outputs farther than this many scales have a mass that underflows to 0."""


@dataclass(frozen=True, slots=True)
class GeneralizedGaussianLaw(UnboundedLaw):
    """The loss of noise with this power, shifted by `shift` scales."""

    shift: float
    power: float

    @property
    def scale(self) -> float:
        return float(max(self.shift * self.power * max(1.0, self.shift) ** (self.power - 1), 1e-12))

    def _loss_at(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """The loss at outputs x <= shift/2, its slope there, both without a sign, and the size of its rounded terms."""
        shift, power = self.shift, self.power
        out = np.maximum(-x, 0.0)
        near, far = np.abs(x - shift), np.maximum(out, shift)
        more = np.log1p(shift / far)
        # Beyond the shift the powers are nearly equal, and their difference is taken before they are rounded.
        is_far = out >= shift
        loss = np.where(is_far, far**power * np.expm1(power * more), near**power - np.abs(x) ** power)
        rest = power - 1
        slope = np.where(is_far, far**rest * np.expm1(rest * more), near**rest - np.sign(-x) * np.abs(x) ** rest)
        size = np.where(is_far, loss, near**power + np.abs(x) ** power)
        return loss, power * slope, size

    def _log_tail(self, size: Floats) -> Floats:
        """log P(X < -size^(1/power)), also where the probability underflows."""
        from scipy import special

        shape = 1 / self.power
        # An alternating series: its error is less than the first term that is left out, 9!/SERIES^9.
        z = np.maximum(size, SERIES)
        term, series = np.ones_like(z), np.zeros_like(z)
        for k in range(1, 10):
            series += term
            term = term * (shape - k) / z
        deep = (shape - 1) * np.log(z) - z + np.log(series) - special.gammaln(shape)
        return np.asarray(
            np.where(size > SERIES, deep, np.log(special.gammaincc(shape, np.minimum(size, SERIES)))) - LOG_2
        )

    @quietly
    def tails(self, loss: Floats) -> Tails:
        # x -> shift - x exchanges the two laws and the sign of the loss: only x <= shift/2 is searched.
        wanted = np.abs(loss)
        low, high = np.full_like(loss, -FAR), np.full_like(loss, self.shift / 2)
        for _ in range(110):
            middle = 0.5 * (low + high)
            is_above = self._loss_at(middle)[0] > wanted
            low, high = np.where(is_above, middle, low), np.where(is_above, high, middle)
        at = 0.5 * (low + high)
        _, slope, size = self._loss_at(at)
        near, far = np.abs(at) ** self.power, (self.shift - at) ** self.power
        log_near, log_far = self._log_tail(near), self._log_tail(far)
        below = np.where(at < 0, np.exp(log_near), -np.expm1(log_near))
        above_it = np.where(at < 0, -np.expm1(log_near), np.exp(log_near))
        first = np.where(loss >= 0, below, -np.expm1(log_far))
        second = np.where(loss >= 0, np.exp(loss + log_far), np.exp(np.minimum(loss, 0.0)) * above_it)
        # The output is as far off as the roundings of its loss allow. Density over tail is largest at x - shift, where
        # it is below β y^(1 - 1/β) (1 + 4.5/y) with y = max(1, |x - shift|^β), because Γ(a, z) >= z^a e^-z/(z + 1 - a).
        moved = 2e-15 * (2 + self.power) * size / slope + 1e-15 * (np.abs(at) + self.shift)
        more = np.maximum(far, 1.0)
        rate = self.power * more ** (1 - 1 / self.power) * (1 + 4.5 / more)
        # Roundings of x^β in the exponent of a tail come in addition. Where 1 minus a tail is taken, they hardly count.
        error = 2e-15 * (1 + self.power) * (1 + far) + 2 * rate * moved
        counts = np.where(loss >= 0, 1.0, np.where(at < 0, 2 * np.exp(log_near), 1.0))
        return Tails(first, np.minimum(second, first), 1e-12 + error * counts)


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
        if self.sensitivity < SMALLEST_SHIFT * self.scale:
            rule = f"must be at least {SMALLEST_SHIFT:g} of the scale, so that powers of it do not underflow"
            raise InvalidParameter(
                "sensitivity", self.sensitivity, rule, "give a larger sensitivity: its curve is a valid bound"
            )

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
