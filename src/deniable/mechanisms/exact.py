"""Parameters as the rational numbers that they are, and the two ways back to floats: down and up."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from deniable.errors import InvalidParameter
from deniable.noise import check
from deniable.units import Sensitivity


def positive(name: str, value: Any) -> Fraction:
    """The exact value of a positive number whose size a float can hold with room to spare."""
    result = check.positive(name, value)
    if not Fraction(2) ** -400 <= result <= Fraction(2) ** 400:
        raise InvalidParameter(name, value, "must lie between 1e-120 and 1e120")
    return result


def not_negative(name: str, value: Any) -> Fraction:
    """The exact value of a number that is 0 or positive."""
    result = check.not_negative(name, value)
    return positive(name, value) if result else result


def finite(name: str, value: Any) -> Fraction:
    """The exact value of any finite number of a size as above."""
    result = check.rational(name, value)
    if result:
        positive(name, abs(result))
    return result


def down(exact: Fraction) -> float:
    """The largest float that is at most `exact`."""
    nearest = float(exact)
    return nearest if nearest <= exact else math.nextafter(nearest, -math.inf)


def up(exact: Fraction) -> float:
    """The smallest float that is at least `exact`."""
    nearest = float(exact)
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def short(exact: Fraction) -> int | float | Fraction:
    """The same number as an int or a float where it is one: those are quicker to draw noise with."""
    if exact.denominator == 1:
        return exact.numerator
    return float(exact) if Fraction(float(exact)) == exact else exact


def ceil(exact: Fraction) -> int:
    return -(-exact.numerator // exact.denominator)


def floor(exact: Fraction) -> int:
    return exact.numerator // exact.denominator


def floor_log2(exact: Fraction) -> int:
    """The largest k with 2^k <= exact."""
    k = exact.numerator.bit_length() - exact.denominator.bit_length()
    return k if Fraction(2) ** k <= exact else k - 1


def root_up(exact: Fraction) -> Fraction:
    """A rational number at least √exact, and at most one part in 2⁶⁰ larger."""
    shift = max(0, 60 + (exact.denominator.bit_length() - exact.numerator.bit_length()) // 2 + 1)
    scaled = ceil(exact * 4**shift)
    root = math.isqrt(scaled)
    return Fraction(root + (root * root < scaled), 2**shift)


def l1(sensitivity: Any) -> Fraction:
    """The L1 sensitivity of a number or a `Sensitivity`."""
    if isinstance(sensitivity, Sensitivity):
        if sensitivity.l1 is None:
            raise InvalidParameter("sensitivity", sensitivity, "must say l1", "Laplace noise needs it; or use Gaussian")
        return Fraction(sensitivity.l1)
    return positive("sensitivity", sensitivity)


def l2(sensitivity: Any) -> Fraction:
    """The L2 sensitivity of a number or a `Sensitivity`; l1 stands in for an unknown l2, which is never larger."""
    if isinstance(sensitivity, Sensitivity):
        known = sensitivity.l2 if sensitivity.l2 is not None else sensitivity.l1
        if known is None:
            raise InvalidParameter("sensitivity", sensitivity, "must say l2 or l1", "linf alone is not enough")
        return Fraction(known)
    return positive("sensitivity", sensitivity)
