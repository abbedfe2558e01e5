"""Denoising: better estimates from a released vector and the known noise. Post-processing, so it costs no privacy.

    shrink        James & Stein (1961): towards 0, or towards the mean; never worse than the release on average
    projected     onto what the truth must be: not negative, or shares that add up to a total
    whole         the same for counts: integers, not negative, that add up to a total

Their error bounds assume independent Gaussian noise of one σ on every number; they may be applied to any release.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from deniable.curves import curve_arguments
from deniable.errors import NOTHING, InvalidParameter
from deniable.mechanisms.input_values import Floats, Ints
from deniable.numbers import onto_simplex

__all__ = ["projected", "shrink", "shrunk_error", "whole"]


def shrink(answers: Any, *, sigma: float, towards: Literal["zero", "mean"] = "zero") -> Floats:
    """The positive-part James–Stein estimate, c + (1 - (d - 2)σ²/‖y - c‖²)₊ (y - c), from d noisy numbers y.

    With c = 0 its mean square error is below dσ² whatever the truth is, for d >= 3; if c is the mean of the answers,
    the formula has d - 3 in place of d - 2, and needs d >= 4. With fewer numbers they are returned unchanged.

    >>> shrink([3.0, 4.0, 0.0, 0.0], sigma=1.0)
    array([2.76, 3.68, 0.  , 0.  ])
    """
    values, spread = _vector(answers), curve_arguments.positive("sigma", sigma)
    if towards not in ("zero", "mean"):
        raise InvalidParameter("towards", towards, "must be zero or mean")
    centre = float(values.mean()) if towards == "mean" else 0.0
    free = len(values) - (3 if towards == "mean" else 2)
    away = values - centre
    length = float(away @ away)
    if free <= 0 or length == 0:
        return values
    return np.asarray(centre + max(0.0, 1 - free * spread**2 / length) * away)


def shrunk_error(*, length: float, sigma: float, dimension: int) -> float:
    """E‖x̂ - θ‖² of plain James–Stein shrinking towards 0 (an upper bound for `shrink`), for a truth of this length.

    dσ² - (d - 2)²σ² E[1/χ²_d(λ)] with λ = ‖θ‖²/σ², a Poisson mixture of 1/(d - 2 + 2K), K ~ Poisson(λ/2).

    >>> shrunk_error(length=0.0, sigma=1.0, dimension=10)
    2.0
    """
    from deniable.mechanisms import laws

    spread, d = curve_arguments.positive("sigma", sigma), curve_arguments.integer("dimension", dimension, 3)
    rate = curve_arguments.not_negative("length", length) ** 2 / (2 * spread**2)
    if rate == 0:
        return 2 * spread**2
    law = laws.poisson(rate)
    inverse = float(law.masses @ (1 / (d - 2 + 2 * law.places)))
    return spread**2 * (d - (d - 2) ** 2 * inverse)


def projected(answers: Any, *, total: float | None = None) -> Floats:
    """The nearest vector whose numbers are at least 0 and, with `total`, add up to it.

    The truth is such a vector, so the projection is never farther from it: ‖projected - θ‖ <= ‖answers - θ‖.

    >>> projected([3.0, -1.0, 1.0], total=4.0)
    array([3., 0., 1.])
    """
    values = _vector(answers)
    if total is None:
        return np.maximum(values, 0.0)
    return np.asarray(onto_simplex(values, curve_arguments.not_negative("total", total)))


def whole(answers: Any, *, total: int) -> Ints:
    """The nearest vector of integers that are at least 0 and add up to `total`, which must be public.

    It turns noisy counts into a table that could have been counted, as a census does for the parts of each place, from
    the top down. Nearest in L2: round `projected` down, then raise the entries with the largest remainders by one, as
    many as are missing. (Raising an entry by one costs 1 - 2 × its remainder, which is least for the largest
    remainders, and larger for an entry that was projected to 0.) Of equal remainders the first is raised.

    >>> whole([3.4, -1.0, 1.4, 0.5], total=6)
    array([4, 0, 1, 1])
    """
    values, most = _vector(answers), curve_arguments.integer("total", total, 0)
    nearest = np.asarray(onto_simplex(values, most))
    found = np.floor(nearest + 1e-9).astype(np.int64)  # 2.9999999999 is 3
    missing = most - int(found.sum())
    if missing > 0:
        found[np.argsort(-(nearest - found), kind="stable")[:missing]] += 1
    elif missing < 0:
        found[np.argsort(nearest - found, kind="stable")[:-missing]] -= 1
    return found


def _vector(answers: Any) -> Floats:
    values = curve_arguments.numbers_array("answers", answers)
    if not len(values):
        raise InvalidParameter("answers", NOTHING, "must contain at least one number")
    return values
