"""Formulas that lecture notes print wrongly, each beside the right number. For teaching only.

A result is a pair (printed, right) with the reason, not a number, so it cannot be used for noise or a budget by
mistake. The library itself uses no printed value. Users call these as `deniable.curves.textbook.as_printed`.

>>> from deniable.curves import textbook
>>> textbook.as_printed.advanced_composition_doubled(epsilon=1, count=500, delta=1e-5)
AsPrinted(printed 214.59660262893473, right 311.7676046397108: the single-term form holds only for k ε² <= 8 log(1/δ))
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import SupportsIndex, final

from deniable.curves.decimal_arithmetic import Number, non_negative, positive, probability, some_delta, whole
from deniable.curves.textbook import attacker_bounds as meaning
from deniable.curves.textbook import composition_theorems as composition
from deniable.curves.textbook import conversions as conversion

__all__ = [
    "AsPrinted",
    "advanced_composition_doubled",
    "advanced_composition_proof",
    "advanced_composition_step",
    "advanced_composition_variance_ratio",
    "classical_gaussian_sigma",
    "posterior_shift",
    "randomized_response_estimate",
]


@final
@dataclass(frozen=True, slots=True)
class AsPrinted:
    """What a text prints, what is right, and why they differ. It does not add, compare or convert like a number."""

    printed: float
    right: float
    why: str

    def __repr__(self) -> str:
        return f"AsPrinted(printed {self.printed!r}, right {self.right!r}: {self.why})"


def randomized_response_estimate(*, share: Number, nu: Number) -> AsPrinted:
    """The estimate of a true share from randomised answers, where `share` is the share of answers that say yes; each
    tells the truth with probability (1 + ν)/2.

    Printed with 1/(nν²) before the sum, which is the variance's factor; unbiased with 1/(nν).

    >>> randomized_response_estimate(share=0.4, nu=0.5).right
    0.30000000000000004
    """
    yes, n = float(probability("share", share)), float(positive("nu", nu))
    return AsPrinted(
        yes / n**2 - (1 - n) / (2 * n), yes / n - (1 - n) / (2 * n), "the sum is divided by n ν, not by n ν²"
    )


def classical_gaussian_sigma(*, sensitivity: Number, epsilon: Number, delta: Number) -> AsPrinted:
    """σ = Δ √(2 log(1.25/δ))/ε at any ε. It is proved for ε < 1 and false for large ε; the exact σ holds for every ε.

    >>> classical_gaussian_sigma(sensitivity=1, epsilon=1, delta=1e-5).printed
    4.844805262605389
    """
    s, e = float(positive("sensitivity", sensitivity)), float(positive("epsilon", epsilon))
    d = float(some_delta("σ = Δ √(2 log(1.25/δ))/ε", delta))
    right = conversion.gaussian_sigma(sensitivity=sensitivity, epsilon=epsilon, delta=delta)
    return AsPrinted(s * math.sqrt(2 * math.log(1.25 / d)) / e, right, "the formula is proved for ε < 1 only")


def posterior_shift(*, epsilon: Number) -> AsPrinted:
    """How far an ε-DP answer moves a posterior: printed as e^(-ε), which would be 1 if nothing is learnt.

    >>> posterior_shift(epsilon=0).printed, posterior_shift(epsilon=0).right
    (1.0, 0.0)
    """
    printed = math.exp(-float(non_negative("epsilon", epsilon)))
    return AsPrinted(printed, meaning.posterior_shift(epsilon=epsilon), "it is tanh(ε/2), at most e^ε - 1")


def _steps(epsilon: Number, count: SupportsIndex, delta: Number) -> tuple[float, int, float]:
    d = some_delta("advanced composition", delta)
    return float(non_negative("epsilon", epsilon)), whole("count", count), math.log(1 / float(d))


def advanced_composition_proof(*, epsilon: Number, count: SupportsIndex, delta: Number) -> AsPrinted:
    """The last line of a proof, kε(e^ε - 1) + ε √(k log(1/δ)): it lacks the 2 under the root, and is not a bound.

    >>> round(advanced_composition_proof(epsilon=0.01, count=100, delta=1e-6).printed, 12)
    0.381742385969
    """
    e, k, log = _steps(epsilon, count, delta)
    right = composition.advanced_composition_drv(epsilon=epsilon, count=count, delta=delta)
    return AsPrinted(k * e * math.expm1(e) + e * math.sqrt(k * log), right, "the root is of 2 k log(1/δ)")


def advanced_composition_doubled(*, epsilon: Number, count: SupportsIndex, delta: Number) -> AsPrinted:
    """2ε √(2k log(1/δ)) without its range; beside it the exact optimum over all ε-DP mechanisms.

    >>> round(advanced_composition_doubled(epsilon=1, count=500, delta=1e-5).printed, 4)
    214.5966
    """
    e, k, log = _steps(epsilon, count, delta)
    right = composition.optimal_composition_epsilon(epsilon=epsilon, delta=0, count=count, total_delta=delta)
    return AsPrinted(2 * e * math.sqrt(2 * k * log), right, "the single-term form holds only for k ε² <= 8 log(1/δ)")


def advanced_composition_step(*, total_epsilon: Number, count: SupportsIndex, delta: Number) -> AsPrinted:
    """The ε of each of k steps, printed as ε/√(2k log(1/δ)): the steps together then cost ε + ε²/(4 log(1/δ)).

    >>> round(advanced_composition_step(total_epsilon=1, count=100, delta=1e-6).printed, 12)
    0.019023986655
    """
    e, k, log = _steps(total_epsilon, count, delta)
    right = composition.advanced_composition_step(total_epsilon=total_epsilon, count=count, delta=delta)
    return AsPrinted(e / math.sqrt(2 * k * log), right, "the square term k ε₀²/2 is missing")


def advanced_composition_variance_ratio(*, count: SupportsIndex, delta: Number) -> AsPrinted:
    """How much smaller the variance gets by advanced composition: printed √k; right: k/(2 log(1/δ)).

    The scale gets smaller by the root of that, √(k/(2 log(1/δ))).

    >>> round(advanced_composition_variance_ratio(count=100, delta=1e-6).right, 9)
    3.619120683
    """
    _, k, log = _steps(0, count, delta)
    return AsPrinted(math.sqrt(k), k / (2 * log), "the scale gains about √k, the variance k/(2 log(1/δ))")
