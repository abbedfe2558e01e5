"""What no mechanism can do: lower bounds on error under a guarantee, and when privacy costs nothing beside sampling
error.

Upper bounds on the probability of a right answer are rounded up, lower bounds on an error down, so that rounding never
favours a mechanism in a comparison. Sources: Asi & Duchi (2020), and Differential Privacy for Machine Learning, slides
of the Master IASD, Université PSL (2024); see docs/course/psl.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from deniable.curves import curve_arguments
from deniable.errors import InvalidParameter
from deniable.mechanisms import input_values, rational_parameters
from deniable.mechanisms.selection import Number

__all__ = [
    "approximate_sampling",
    "binary_median_ceiling",
    "correct_ceiling",
    "exponential_utility",
    "free_epsilon",
    "free_epsilon_of_mean",
    "linear_error_floor",
    "mean_modulus",
    "mean_squared_error",
    "optimal_share",
    "squared_error_floor",
    "statistical_margin",
]

SLACK = 1e-12
"""Relative error allowed for a number computed in floats; each takes fewer than a hundred roundings of 1e-16."""

PEAK = 1.1088575528785451
"""t²/(1 + e^(2t)) increases up to the t with t = 1 + e^(-2t), and decreases after it."""


# -- finitely many answers -------------------------------------------------------------------------------------------


def correct_ceiling(distances: Sequence[int], *, epsilon: Number) -> float:
    """The largest probability of the true answer that an unbiased ε-DP mechanism can have: 1/Σ_y e^(-2 D(x, y) ε).

    For data x, D(x, y) is how many people's data have to change to make y the true answer (0 for the true one).
    Unbiased means that on no data another answer is more likely than the true one. Rounded up.

    *Proof.* Let x′ at distance D have f(x′) = y. P(M(x) = y) >= e^(-Dε) P(M(x′) = y) >= e^(-Dε) P(M(x′) = f(x)) >=
    e^(-2Dε) P(M(x) = f(x)); sum over y. ∎

    >>> from deniable.mechanisms import limits
    >>> round(limits.correct_ceiling([0, 3], epsilon=0.5), 6)
    0.952574
    """
    level = float(rational_parameters.positive("epsilon", epsilon))
    found = [curve_arguments.integer("distances", d, 0) for d in distances]
    if not found or min(found) != 0:
        raise InvalidParameter("distances", distances, "must contain 0, the distance to the true answer")
    return min(1.0, (1 + SLACK) / math.fsum(math.exp(-2 * d * level) for d in found))


def binary_median_ceiling(*, records: int, ones: int, epsilon: Number) -> float:
    """The largest probability of the right majority of n zeros and ones that a symmetric ε-DP mechanism can have.

    1/(1 + e^(-|2s-n| ε)) for s ones: s zeros are |2s-n| replacements away, and there a symmetric mechanism is right as
    often. Rounded up.

    >>> from deniable.mechanisms import limits
    >>> round(limits.binary_median_ceiling(records=11, ones=8, epsilon=0.5), 6)
    0.924142
    """
    n = curve_arguments.integer("records", records, 1)
    s = curve_arguments.integer("ones", ones, 0)
    if s > n:
        raise InvalidParameter("ones", s, f"must be at most records = {n}")
    return min(
        1.0, (1 + SLACK) / (1 + math.exp(-abs(2 * s - n) * float(rational_parameters.positive("epsilon", epsilon))))
    )


def optimal_share(*, answers: int) -> Fraction:
    """Inverse sensitivity at ε is right at least as often, on all data, as every unbiased mechanism at this share of ε.

    1/4, because P(right) = 1/Σ e^(-Dε/2) is `correct_ceiling` at ε/4; and 1/2 for two answers, because then it is 1/(1
    + e^(-Dε)), the ceiling at ε/2.

    >>> from deniable.mechanisms import limits
    >>> limits.optimal_share(answers=4), limits.optimal_share(answers=2)
    (Fraction(1, 4), Fraction(1, 2))
    """
    return Fraction(1, 2) if curve_arguments.integer("answers", answers, 2) == 2 else Fraction(1, 4)


def exponential_utility(*, candidates: int, sensitivity: Number, epsilon: Number, gap: Number) -> float:
    """The textbook bound on the probability of a poor choice by the exponential mechanism: P(score <= best - gap) <=
    n e^(-gap ε/2Δ).

    Rounded up, at most 1. `Exponential.error` is the exact worst case, a little better.

    >>> from deniable.mechanisms import limits
    >>> round(limits.exponential_utility(candidates=2, sensitivity=1, epsilon=0.5, gap=5), 6)
    0.57301
    """
    n = curve_arguments.integer("candidates", candidates, 1)
    scales = (
        rational_parameters.not_negative("gap", gap)
        * rational_parameters.positive("epsilon", epsilon)
        / rational_parameters.positive("sensitivity", sensitivity)
    )
    return min(1.0, n * math.exp(-float(scales) / 2) * (1 + SLACK))


def approximate_sampling(*, epsilon: Number, distance: Number) -> float:
    """The additional δ of a sampler that is only within total variation t of an ε-DP law: (1 + e^ε) t, rounded up.

    P̃(S) <= P(S) + t <= e^ε Q(S) + t <= e^ε Q̃(S) + (1 + e^ε) t. A Markov chain that was stopped early, or
    floating-point weights, are such samplers.

    >>> from deniable.mechanisms import limits
    >>> limits.approximate_sampling(epsilon=1, distance=1e-6)
    3.71828182...e-06
    """
    t = float(rational_parameters.not_negative("distance", distance))
    level = float(rational_parameters.not_negative("epsilon", epsilon))
    return min(1.0, (1 + math.exp(level)) * t * (1 + SLACK)) if level < 700 else 1.0 * (t > 0)


# -- numbers ---------------------------------------------------------------------------------------------------------


def squared_error_floor(modulus: Callable[[int], float], *, epsilon: Number, changes: int) -> float:
    """A floor under the mean squared error at data x of any unbiased ε-DP answer: sup_k Δ(x,k)² / (4(1 + e^(2kε))).

    `modulus(k)` is Δ(x, k) = sup{|f(x) - f(x′)| : d(x, x′) <= k}; the supremum is taken over k = 1, ..., `changes` (at
    most the number of records). Unbiased means that on no data the answer is nearer, in mean square, to another value
    of f than to its own; E M(x) = f(x) implies it. Rounded down.

    *Proof.* With y = f(x), y′ = f(x′), |y - y′| = Δ and d(x, x′) = k: E_x (M-y)² >= e^(-kε) E_x′ (M-y)² >=
    e^(-kε) E_x′ (M-y′)² >= e^(-2kε) E_x (M-y′)², and (M-y)² + (M-y′)² >= Δ²/2. So (1 + e^(2kε)) E_x (M-y)² >= Δ²/2:
    twice what the source states and this returns. ∎

    >>> from deniable.mechanisms import limits
    >>> round(limits.squared_error_floor(lambda k: float(k), epsilon=0.5, changes=100), 6)
    0.119203
    """
    level = float(rational_parameters.positive("epsilon", epsilon))
    best = 0.0
    for k in range(1, curve_arguments.integer("changes", changes, 1) + 1):
        if 2 * k * level > 700:
            break
        best = max(best, curve_arguments.not_negative("modulus", modulus(k)) ** 2 / (4 * (1 + math.exp(2 * k * level))))
    return best * (1 - SLACK)


def linear_error_floor(*, sensitivity: Number, epsilon: Number, changes: int | None = None) -> float:
    """`squared_error_floor` if k people move the statistic by k Δ: a count, or a mean at extreme data.

    sup_k (kΔ)² / (4(1 + e^(2kε))). For ε <= 1/2 and enough people it is at least Δ²/(34.832 ε²), and tends to
    Δ²/(33.138 ε²) as ε → 0. At data in the middle of their range k people move a mean half as far.

    >>> from deniable.mechanisms import limits
    >>> round(limits.linear_error_floor(sensitivity=1, epsilon=0.5), 6)
    0.119203
    """
    delta = float(rational_parameters.positive("sensitivity", sensitivity))
    level = float(rational_parameters.positive("epsilon", epsilon))
    peak = math.floor(PEAK / level)  # the best integer k is next to it
    largest = curve_arguments.integer("changes", changes, 1) if changes is not None else peak + 2
    around = {min(max(k, 1), largest) for k in range(peak - 1, peak + 3)}
    return max(_two_point(k * delta, k * level) for k in around) * (1 - SLACK)


def _two_point(distance: float, loss: float) -> float:
    return distance * distance / (4 * (1 + math.exp(2 * loss))) if loss < 350 else 0.0


def mean_modulus(data: Any, *, bounds: tuple[Number, Number], changes: int) -> float:
    """Δ(x, k) of the mean: how far it can be moved by replacing k of the values by others within the bounds.

    The k smallest values raised to the upper bound, or the k largest lowered to the lower one, whichever moves the sum
    further, divided by n. It depends on the exact data, so it is not a release.

    >>> from deniable.mechanisms import limits
    >>> limits.mean_modulus([0.0] * 100, bounds=(0, 1), changes=3)
    0.03
    """
    low, high = (float(rational_parameters.finite("bounds", bound)) for bound in bounds)
    rows = input_values.reals(data)
    if rows.ndim != 1 or not len(rows) or not np.all((rows >= low) & (rows <= high)):
        raise input_values.refused("must be a list of numbers within the bounds, and at least one")
    k = curve_arguments.integer("changes", changes, 0)
    if k > len(rows):
        raise InvalidParameter("changes", k, "must be at most the number of records")
    ordered = np.sort(rows)
    raised = math.fsum((high - ordered[:k]).tolist())
    lowered = math.fsum((ordered[len(rows) - k :] - low).tolist())
    return max(raised, lowered) / len(rows)


# -- when privacy costs nothing beside sampling error ----------------------------------------------------------------


def statistical_margin(*, records: int, confidence: float) -> float:
    """How far from n/2 the number of ones among n must be to determine the majority in the population: √(n log(2/β)/2).

    Hoeffding's inequality, β = 1 - confidence.

    >>> from deniable.mechanisms import limits
    >>> round(limits.statistical_margin(records=1, confidence=0.95), 6)
    1.358102
    """
    miss = 1 - curve_arguments.inner_probability("confidence", confidence)
    return math.sqrt(curve_arguments.integer("records", records, 1) * math.log(2 / miss) / 2)


def free_epsilon(*, records: int, confidence: float) -> float:
    """The ε from which on the private median of zeros and ones is right whenever the sample determines it: 3/margin.

    If |s - n/2| >= 3/ε the exponential mechanism is right with probability at least 1/(1 + e^-3) > 0.95; nearer to n/2
    than `statistical_margin` the sample itself does not determine the majority. So ε >= 3/margin, about √(5/n) at 95 %,
    costs nothing.

    >>> from deniable.mechanisms import limits
    >>> round(limits.free_epsilon(records=10_000, confidence=0.95), 5)
    0.02209
    """
    return 3 / statistical_margin(records=records, confidence=confidence)


def mean_squared_error(*, records: int, width: Number, epsilon: Number) -> float:
    """The mean squared distance of the private mean of a sample from the mean of the population: (D²/4n)(1 + 8/(nε²)).

    n independent numbers in an interval of width D. Their own mean has a variance of at most D²/4n, and Laplace noise
    for one replaced record, of scale D/(nε), adds 2D²/(nε)². Rounded up.

    >>> from deniable.mechanisms import limits
    >>> round(limits.mean_squared_error(records=10_000, width=1, epsilon=0.1), 12)
    2.7e-05
    """
    n, wide = curve_arguments.integer("records", records, 1), rational_parameters.positive("width", width)
    level = rational_parameters.positive("epsilon", epsilon)
    return rational_parameters.up(wide * wide / (4 * n) * (1 + Fraction(8) / (n * level * level)))


def free_epsilon_of_mean(*, records: int, share: float = 1.0) -> float:
    """The ε from which on noise adds at most `share` of the sampling error to a private mean: √(8/(n·share)).

    From about 1/√n on, the cost of privacy is small beside the sampling error (see `mean_squared_error`). Rounded up.

    >>> from deniable.mechanisms import limits
    >>> round(limits.free_epsilon_of_mean(records=10_000), 6)
    0.028284
    """
    part = rational_parameters.positive("share", share)
    return rational_parameters.up(
        rational_parameters.root_up(Fraction(8) / (curve_arguments.integer("records", records, 1) * part))
    )
