"""Statistical tests whose error rates are theorems at every sample size, not limits for large ones.

A test that runs in every build may be wrong once in a billion (`FALSE_ALARM`). That far out the textbook chi-square
approximation is off by a factor of 250 for a cell of ten expected draws, so nothing here relies on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from deniable.audit.binomial import at_least, at_most, clopper_pearson, lower_bound, upper_bound
from deniable.errors import NOTHING, InvalidDistribution, InvalidParameter

__all__ = ["at_least", "at_most", "chi_square", "clopper_pearson", "lower_bound", "upper_bound"]

FALSE_ALARM: Final = 1e-9
"""How often a test may blame a correct mechanism."""

CELLS: Final = 16
"""Neighbouring cells are pooled until each has this share of the draws, 1/16: more cells see finer differences, fewer
see broad ones (a wrong scale) with fewer draws."""

UNSURE: Final = 1e-9
"""How far probabilities may be from adding up to one: they are floats."""


def chi_square(counts: Sequence[int], probabilities: Sequence[float]) -> float:
    """A p-value for counts under a law: under it, P(p-value <= a) <= a for all a, at every sample size.

    The statistic is the likelihood-ratio chi-square 2g, g = Σ o log(o/e), after neighbouring cells were pooled until
    each expects a sixteenth of the draws (the pooling looks at the law only). For d + 1 cells and g > d,
    p = e^(−g) (e g/d)^d: a theorem (Agrawal 2020, Finite-sample concentration of the multinomial in relative entropy),
    and about what a chi-square law with twice as many degrees of freedom would give.

    Power, at a p-value of 1e-9: noise of a scale wrong by 5 % is found with 100 000 draws, by 10 % with 30 000.

    >>> chi_square([490, 510], [0.5, 0.5])
    1.0
    >>> chi_square([300, 700], [0.5, 0.5]) < 1e-30
    True
    """
    law = np.asarray(probabilities, dtype=float)
    seen = np.asarray(counts, dtype=float)
    if law.ndim != 1 or law.shape != seen.shape or not len(law):
        raise InvalidParameter("counts", NOTHING, "must be one count for each probability")
    if not np.all(law >= 0) or abs(math.fsum(law) - 1) > UNSURE:
        raise InvalidDistribution("probabilities", NOTHING, "must be at least 0 and add up to 1")
    if not np.all(seen >= 0) or not seen.sum():
        raise InvalidParameter("counts", NOTHING, "must be at least 0, and not all 0")
    if np.any(seen[law == 0] > 0):
        return 0.0  # the law says never
    observed, share = _pooled(seen, law)
    return _entropy_tail(observed, share)


def _pooled(seen: np.ndarray[Any, Any], law: np.ndarray[Any, Any]) -> tuple[list[float], list[float]]:
    """Cells of at least 1/CELLS of the mass each, but for the last."""
    observed, share = [0.0], [0.0]
    for o, p in zip(seen.tolist(), law.tolist(), strict=True):
        if share[-1] >= 1 / CELLS:
            observed.append(0.0)
            share.append(0.0)
        observed[-1] += o
        share[-1] += p
    return observed, share


def _entropy_tail(observed: list[float], share: list[float]) -> float:
    n = sum(observed)
    terms = [(o * math.log(o / (n * p)) if o else 0.0) for o, p in zip(observed, share, strict=True) if p > 0]
    g, d = math.fsum(terms), len(terms) - 1
    if d == 0 or g <= d:
        return 1.0
    return math.exp(-g + d * (1 + math.log(g / d)))
