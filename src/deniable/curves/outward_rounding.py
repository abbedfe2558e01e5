"""Outward rounding: how far a floating-point result may lie from the exact one.

Every bound in this room is `computed value ± (relative error) × (magnitude)`, where the relative error is a multiple of
the unit round-off. The multiples are generous, and tests compare them with mpmath at 50 digits (ADR 0003 lists them).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from deniable.curves.decimal_arithmetic import up
from deniable.errors import NotCertifiable

Floats = NDArray[np.float64]

Side = Literal["upper", "lower"]
"""Which of two certified bounds is computed: the one from above, or the one from below."""

UNIT_ROUNDOFF = 2.0**-53
"""Largest relative error of one correctly rounded operation in binary64."""

SPECIAL = 64 * UNIT_ROUNDOFF
"""Relative error allowed for one evaluation of scipy.special's erfcx / ndtr / expm1-like functions (ADR 0003)."""

TINY = 1e-300
"""Absolute slack that covers all underflow in one evaluation."""


quietly = np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore")
"""Decorates every evaluation: overflow to inf and underflow to 0 are expected and handled, so NumPy need not warn."""


def all_above(values: Floats) -> Floats:
    """The next float above each value."""
    return np.asarray(np.nextafter(values, np.inf))


def all_below(values: Floats) -> Floats:
    """The next float below each value."""
    return np.asarray(np.nextafter(values, -np.inf))


def quotient_up(a: float, b: float) -> float:
    """a / b for positive numbers, rounded up."""
    return up(Fraction(a) / Fraction(b))


FEW = 16
"""Up to this many parts, `sum_up` computes with exact fractions."""


def sum_up(parts: Sequence[tuple[float, int]]) -> float:
    """Σ count × number, rounded up; exact before the rounding if there are at most `FEW` parts."""
    if not all(math.isfinite(number) for number, _ in parts):
        return math.inf
    if len(parts) > FEW:
        # One rounding for each product and one for the sum.
        return math.fsum(count * number for number, count in parts) * (1 + 4 * UNIT_ROUNDOFF)
    return up(sum((count * Fraction(number) for number, count in parts), Fraction(0)))


def ordered(low: Floats | float, high: Floats | float) -> tuple[Floats, Floats]:
    """A lower and an upper bound, with the lower one at most the upper one.

    Rounding may make them cross. If they cross by more, one of them is wrong: raises NotCertifiable.
    """
    below, above = np.asarray(low), np.asarray(high)
    if not np.all(below <= above * (1 + 1e-9) + 1e-290):  # also catches NaN
        raise NotCertifiable("the certified bounds contradict each other: a defect of this library, please report it")
    return np.minimum(below, above), above
