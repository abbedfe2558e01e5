"""Exact binomial tail bounds, and the guessing game that turns counts into certified ε.

**The guessing game.** In each trial, a fair coin chooses one of two neighbours, the mechanism runs on it, and a rule
that is fixed in advance sees the answer and guesses the neighbour, or passes. If the mechanism is ε-DP, the posterior
odds of either neighbour are at most e^ε for every answer. So, given all answers and all passes, the number of right
guesses among t is stochastically at most Binomial(t, e^ε/(1 + e^ε)). This needs no nuisance parameter, no asymptotics
and no identically distributed trials: a mechanism may depend on its earlier answers, but not on the earlier inputs
(otherwise it leaks the earlier inputs too). It uses events in both directions at once, and is therefore tighter than
one bound on P(S) combined with one bound on Q(S).

**With δ.** Let right and wrong guesses have probabilities r and w in one trial. (ε, δ)-DP in both directions implies
r <= e^ε w + δ (add the two inequalities for "guess first" and "guess second", and halve; for a rule that guesses only
one neighbour, the term is δ/2). So a right guess is either *free*, with probability at most δ, or its odds against a
wrong guess are at most e^ε. At most d of N trials are free, except with probability P(Binomial(N, δ) > d). For any
number of wrong guesses, fewer right guesses are weaker evidence, so a proof for (right - d, wrong) is valid. (This part
needs independent trials.)
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from deniable.curves import curve_arguments
from deniable.errors import InvalidParameter

FREE_SHARE: Final = 0.25
"""The share of the error rate for the bound on free guesses, if δ > 0."""

SLACK: Final = 1e-10
"""Relative reduction of ε: far more than the rounding error of the incomplete beta function."""


def at_most(hits: int, trials: int, *, probability: float) -> float:
    """P(X <= hits) for X binomial: exact, up to the rounding of the incomplete beta function.

    >>> at_most(1, 3, probability=0.5)
    0.5
    """
    from scipy.special import betainc

    k, n = _draws(hits, trials)
    p = curve_arguments.probability("probability", probability)
    return 1.0 if k == n else float(betainc(n - k, k + 1, 1 - p))


def at_least(hits: int, trials: int, *, probability: float) -> float:
    """P(X >= hits) for X binomial: exact, up to the rounding of the incomplete beta function.

    >>> at_least(3, 3, probability=0.5)
    0.125
    """
    from scipy.special import betainc

    k, n = _draws(hits, trials)
    p = curve_arguments.probability("probability", probability)
    return 1.0 if k == 0 else float(betainc(k, n - k + 1, p))


def lower_bound(hits: Any, trials: int, *, miss: float) -> Any:
    """A lower confidence bound on the probability of a hit, wrong with probability at most `miss` (Clopper & Pearson
    1934): the largest p with P(X >= hits) <= miss. Works elementwise on arrays of hits.
    """
    from scipy.special import betaincinv

    k = np.asarray(hits, dtype=float)
    found = np.where(k > 0, betaincinv(np.maximum(k, 1), trials - np.maximum(k, 1) + 1, miss), 0.0)
    return float(found) if found.ndim == 0 else found


def upper_bound(hits: Any, trials: int, *, miss: float) -> Any:
    """An upper confidence bound on the probability of a hit, wrong with probability at most `miss` (Clopper & Pearson
    1934): the smallest p with P(X <= hits) <= miss. Works elementwise on arrays of hits.
    """
    found = 1 - np.asarray(lower_bound(trials - np.asarray(hits, dtype=float), trials, miss=miss))
    return float(found) if found.ndim == 0 else found


def clopper_pearson(hits: int, trials: int, *, confidence: float) -> tuple[float, float]:
    """A confidence interval of the probability of a hit, with coverage at least `confidence` at every sample size.

    >>> low, high = clopper_pearson(0, 10, confidence=0.95)
    >>> low, round(high, 4)
    (0.0, 0.3085)
    """
    k, n = _draws(hits, trials)
    miss = (1 - curve_arguments.inner_probability("confidence", confidence)) / 2
    return float(lower_bound(k, n, miss=miss)), float(upper_bound(k, n, miss=miss))


def _draws(hits: int, trials: int) -> tuple[int, int]:
    n = curve_arguments.integer("trials", trials, 1)
    k = curve_arguments.integer("hits", hits, 0)
    if k > n:
        raise InvalidParameter("hits", k, f"must be at most trials={n}")
    return k, n


# -- the guessing game -----------------------------------------------------------------------------------------------


def free_guesses(trials: int, delta: float, miss: float) -> int:
    """The smallest d with P(Binomial(trials, delta) > d) <= miss.

    >>> free_guesses(1000, 0.0, 0.01), free_guesses(1000, 1e-6, 0.01), free_guesses(1000, 0.01, 0.01)
    (0, 0, 18)
    """
    low, high = -1, 0
    while high < trials and at_least(high + 1, trials, probability=delta) > miss:
        low, high = high, min(trials, 2 * high + 8)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at_least(middle + 1, trials, probability=delta) > miss else (low, middle)
    return high


def guessing_epsilon(right: int, wrong: int, trials: int, *, miss: float, delta: float = 0.0) -> float:
    """A certified lower bound on ε at this δ, wrong with probability at most `miss`; 0 if nothing is proved.

    With δ = 0 it is log(p/(1-p)) for the Clopper-Pearson lower bound p on the probability of a right guess.

    >>> round(guessing_epsilon(7311, 2689, 20_000, miss=0.05), 3)
    0.963
    >>> guessing_epsilon(5000, 5000, 20_000, miss=0.05)
    0.0
    """
    from scipy.special import betainccinv

    share = miss
    if delta > 0:
        free = free_guesses(trials, delta, miss * FREE_SHARE)
        right, share = right - free, miss * (1 - FREE_SHARE)
    if right < 1:
        return 0.0
    # An upper bound on the probability of a wrong guess, computed directly: 1 - p would cancel for nearly sure guesses.
    wrong_rate = float(betainccinv(wrong + 1, right, share))
    if not 0 < wrong_rate < 0.5:
        return 0.0
    return max(0.0, (math.log1p(-wrong_rate) - math.log(wrong_rate)) * (1 - SLACK) - SLACK)


def guessing_p_value(right: int, wrong: int, trials: int, *, epsilon: float, delta: float, miss: float) -> float:
    """The p-value of the hypothesis that the mechanism is (ε, δ)-DP; at most `miss` refutes it. It includes the error
    of the bound on free guesses, a quarter of `miss`.

    >>> guessing_p_value(900, 100, 2000, epsilon=2.0, delta=0.0, miss=0.05) < 0.05
    True
    """
    spent = 0.0
    if delta > 0:
        spent = miss * FREE_SHARE
        right -= free_guesses(trials, min(1.0, delta), spent)
    if right < 1:
        return 1.0
    chance = 1 / (1 + math.exp(-epsilon))
    return min(1.0, at_least(right, right + wrong, probability=chance) * (1 + SLACK) + spent)
