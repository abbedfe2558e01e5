"""Parameters as exact rational numbers, and their conversion to floats, rounded down or up."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

from deniable import arguments, numbers
from deniable.arguments import INNER_PROBABILITY, NOT_NEGATIVE, POSITIVE, NumberRange
from deniable.curves.meaning.weakness_advice import warn_if_weak
from deniable.errors import InvalidParameter
from deniable.numbers import down, root_up, up
from deniable.units import Sensitivity

__all__ = [
    "at_most", "ceil", "chance_at_most", "down", "epsilon", "finite", "floor", "floor_log2", "l1", "l2", "moved",
    "not_negative", "positive", "root_up", "short", "up",
]  # fmt: skip


_MEASURABLE: Final = NumberRange(
    "must lie between 1e-120 and 1e120", least=Fraction(2) ** -400, most=Fraction(2) ** 400
)


def positive(name: str, value: Any) -> Fraction:
    """The exact value of a positive number between 1e-120 and 1e120."""
    return arguments.rational(name, value, POSITIVE, _MEASURABLE)


def epsilon(value: Any) -> Fraction:
    """The exact value of a pure ε chosen by the caller; warns if it protects little."""
    chosen = positive("epsilon", value)
    warn_if_weak(epsilon=chosen)
    return chosen


def not_negative(name: str, value: Any) -> Fraction:
    """The exact value of a number that is 0 or positive."""
    result = arguments.rational(name, value, NOT_NEGATIVE)
    return positive(name, value) if result else result


def finite(name: str, value: Any) -> Fraction:
    """The exact value of a number that is 0 or between 1e-120 and 1e120 in size."""
    result = arguments.rational(name, value)
    if result:
        positive(name, abs(result))
    return result


def at_most(name: str, value: Any) -> float:
    """A privacy level such as ε, rounded down to a float: 1/10 is not a float, and the nearest one is above it."""
    return down(not_negative(name, value))


def chance_at_most(name: str, value: Any) -> float:
    """A δ strictly between 0 and 1, rounded down to a float."""
    return down(arguments.rational(name, value, INNER_PROBABILITY))


def short(exact: Fraction) -> int | float | Fraction:
    """The same number as an int or a float if that is exact: these are faster to draw noise with."""
    if exact.denominator == 1:
        return exact.numerator
    return float(exact) if Fraction(float(exact)) == exact else exact


def ceil(exact: Fraction) -> int:
    """⌈exact⌉, faster than math.ceil."""
    return -(-exact.numerator // exact.denominator)


def floor(exact: Fraction) -> int:
    """⌊exact⌋, faster than math.floor."""
    return exact.numerator // exact.denominator


def floor_log2(exact: Fraction) -> int:
    """The largest k with 2^k <= exact."""
    k = exact.numerator.bit_length() - exact.denominator.bit_length()
    return k if Fraction(2) ** k <= exact else k - 1


def moved(sensitivity: Any) -> Fraction:
    """The exact value of a positive sensitivity; raised to k or √k if it falls short of that by rounding only."""
    positive("sensitivity", sensitivity)
    return numbers.raised_to_root(sensitivity)


def l1(sensitivity: Any) -> Any:
    """The L1 sensitivity of a number or a `Sensitivity`, unconverted."""
    if isinstance(sensitivity, Sensitivity):
        if sensitivity.l1 is None:
            raise InvalidParameter(
                "sensitivity", sensitivity, "must have l1", "Laplace noise needs it; or use Gaussian"
            )
        return sensitivity.l1
    return sensitivity


def l2(sensitivity: Any) -> Any:
    """The L2 sensitivity of a number or a `Sensitivity`, unconverted; l1 replaces an unknown l2, which
    is never larger.
    """
    if isinstance(sensitivity, Sensitivity):
        known = sensitivity.l2 if sensitivity.l2 is not None else sensitivity.l1
        if known is None:
            raise InvalidParameter("sensitivity", sensitivity, "must have l2 or l1", "linf alone is not enough")
        return known
    return sensitivity
