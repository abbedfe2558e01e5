"""The best of a random number of runs: private tuning by repeating a mechanism and keeping one output.

A mechanism M runs K times on the same data, independently, and only the best output is released, by an order that does
not depend on the data (a score that is part of the output). K is secret. If K were fixed, this could cost up to K times
the ε of one run; with a random K of large variance it costs little more than twice (Liu & Talwar 2019; Papernot &
Steinke 2022).

**The law of K** (Papernot & Steinke 2022): the truncated negative binomial with shape η > -1 and γ in (0, 1), that is
P(K = k) ∝ (1 - γ)^k Π_{0 < l < k} (l + η)/(l + 1), k >= 1. η = 1 is the geometric law, η = 0 the logarithmic one. Its
generating function f(x) = E x^K has f′(x) = c (1 - (1 - γ)x)^-(1 + η) and f′(1) = E K.

**Theorem.** Let M have the profile δ(ε) (the worse direction), and let ε₀ >= 0 with δ(ε₀) <= (e^ε₀ - 1) γ/(1 - γ). Then
the selected output has

    δ_A(ε + (1 + η) ε₀) <= E[K] δ(ε)   for all ε,   and   D_a(A‖A′) <= D_a + (1 + η) ε₀ + log E[K]/(a - 1) for a > 1.

*Proof.* Break ties of the order by an independent uniform number. Let M(D) have density p, and let F(y) be the
probability of an output up to y; q and G for D′. The best of K outputs is up to y with probability f(F(y)), so its
density is p f′(F), and q f′(G) for D′. Write a = 1 - F and b = 1 - G, the probabilities of one event. Then
b <= e^ε₀ a + δ(ε₀), hence γ + (1 - γ) b <= e^ε₀ (γ + (1 - γ) a) by the choice of ε₀, that is
f′(F) <= e^((1 + η) ε₀) f′(G). Therefore p f′(F) - e^(ε + (1 + η) ε₀) q f′(G) <= f′(F) (p - e^ε q), and
f′(F) <= f′(1) = E K. Integrate the positive part. The same two inequalities in ∫ (p f′(F))^a (q f′(G))^(1 - a) give the
divergence. ∎

The bound on the profile is due to Koskela, Redberg & Wang (2024, "Privacy Profiles for Private Selection"); here with
the smallest ε₀. The divergence has the form of Papernot & Steinke (2022), whose ε₀ comes from a Rényi divergence. If M
is ε-DP, the result is (2 + η) ε-DP, for instance 3ε for the geometric law (Liu & Talwar 2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, final

import numpy as np

from deniable.curves import curve_arguments
from deniable.curves.atoms.atom import Atom, show
from deniable.curves.atoms.composite_atoms import check_curve
from deniable.curves.curve import Curve
from deniable.curves.laws import laws_from_bounds
from deniable.curves.laws.law import Law, LawPair, Sided
from deniable.curves.outward_rounding import Floats
from deniable.errors import InvalidParameter
from deniable.numbers import down

ROUNDING = 1e-12
"""Relative error that covers the rounding of means and shifts."""

POINTS = 300

FAR = (1e-25, 1e-15, 1e-10)
"""The profile is computed up to the ε at the first of these δ that is finite, and is constant beyond."""


def mean_repeats(*, shape: float, gamma: float) -> float:
    """E[K], rounded up, for shape η > -1 and γ in (0, 1).

    >>> round(mean_repeats(shape=1.0, gamma=0.1), 9)
    10.0
    """
    log = -math.log(gamma)
    exact = (1 / gamma - 1) / log if shape == 0 else shape * (1 - gamma) / (gamma * -math.expm1(-shape * log))
    return exact * (1 + ROUNDING)


@lru_cache(maxsize=256)
def _threshold(curve: Curve, gamma: float) -> float:
    """The smallest ε₀ with δ(ε₀) <= (e^ε₀ - 1) γ/(1 - γ), rounded up.

    It is at most log 1/γ, where the right side is 1, and at most the ε of pure DP, where the left side is 0.
    """
    low, high = 0.0, min(-math.log(gamma) * (1 + ROUNDING), curve.epsilon(delta=0.0))
    for _ in range(5):
        points = np.linspace(low, high, 33)
        allowed = np.expm1(points) * gamma / (1 - gamma) * (1 - ROUNDING)
        enough = curve.delta(epsilon=points) <= allowed
        enough[-1] = True
        first = int(np.argmax(enough))
        low, high = float(points[max(first - 1, 0)]), float(points[first])
    return high


def profile_above(points: Floats, delta: Floats) -> Law:
    """A law above every pair that is (ε, δ)-DP in both directions at each of these points, ε >= 0.

    Being (ε₁, δ₁)-DP in both directions bounds the profile at every smaller ε, by δ₁ + (1 - δ₁)(e^ε₁ - e^ε)/(1 + e^ε₁).
    """
    ahead = np.minimum.accumulate(delta)
    gap = points[:, None] - points[None, :]
    weight = -np.expm1(np.minimum(gap, 0.0)) / (1 + np.exp(-points[None, :]))
    implied = np.where(gap <= 0, ahead[None, :] + (1 - ahead[None, :]) * weight, 1.0)
    ahead = np.minimum.accumulate(np.minimum(ahead, np.min(implied, axis=1) * (1 + ROUNDING)))
    behind = -np.expm1(-points[1:]) + np.exp(-points[1:]) * ahead[1:]
    both = np.minimum(np.concatenate((behind[::-1], ahead)), 1.0)
    return laws_from_bounds.law_above(np.concatenate((-points[:0:-1], points)), both)


@final
@dataclass(frozen=True, slots=True)
class SelectedAtom(Atom):
    """The best of K runs of a mechanism with this curve; K is truncated negative binomial."""

    name: ClassVar[str] = "best_of_repeats"
    curve: Curve
    shape: float
    gamma: float

    def __post_init__(self) -> None:
        check_curve("curve", self.curve)
        shape = curve_arguments.finite("shape", self.shape)
        if shape <= -1:
            raise InvalidParameter("shape", shape, "must be above -1")
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "gamma", curve_arguments.inner_probability("gamma", self.gamma, down))

    @property
    def renyi_only(self) -> bool:
        return True

    @property
    def _shift(self) -> float:
        return (1 + self.shape) * _threshold(self.curve, self.gamma) * (1 + ROUNDING)

    @property
    def _mean(self) -> float:
        return mean_repeats(shape=self.shape, gamma=self.gamma)

    def pair(self) -> LawPair:
        shift = self._shift
        far = next((e for d in FAR if math.isfinite(e := self.curve.epsilon(delta=d))), 50.0)
        pure = self.curve.epsilon(delta=0.0)
        far = pure if pure < 2 * far else far
        points = (shift + far) * np.linspace(0.0, 1.0, POINTS) ** 1.5
        low, high = self.curve.delta_bounds(epsilon=points - shift)
        # Scores may be constant. Then the output is the output of one run, so the curve itself is a lower bound.
        below = laws_from_bounds.law_below(points - shift, low, high, 0.0)
        side = Sided(profile_above(points, np.minimum(self._mean * high * (1 + ROUNDING), 1.0)), below)
        return LawPair(side, side)

    def renyi_bound(self, order: float) -> float | None:
        if order == math.inf:
            return (self.curve.renyi_function(order) + self._shift) * (1 + ROUNDING)
        above = order if order > 1 else 2.0  # divergences increase with the order
        found = self.curve.renyi_function(above) + self._shift + math.log(self._mean) / (above - 1)
        return found * (1 + ROUNDING)

    def expression(self) -> str:
        return f"best_of_repeats({self.curve.expression()}, shape={show(self.shape)}, gamma={show(self.gamma)})"


def best_of_repeats(curve: Curve, *, shape: float, gamma: float) -> Curve:
    """The best output of K runs of a mechanism, K secret and truncated negative binomial: private tuning.

    `shape` is η > -1 (1: geometric, 0: logarithmic) and `gamma` in (0, 1) sets the mean: 1/γ for the geometric law. See
    the module for the theorem (Papernot & Steinke 2022; Koskela, Redberg & Wang 2024).

    >>> from deniable import curves
    >>> curves.best_of_repeats(curves.pure(epsilon=1), shape=1.0, gamma=0.1).epsilon(delta=0) <= 3
    True
    """
    if not check_curve("curve", curve).factors:
        return curve
    return Curve.of(SelectedAtom(curve, shape, gamma))
