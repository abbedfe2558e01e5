"""Validation at the border: one function for each kind of argument. Inside the room, types are trusted."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from deniable.curves.outward_rounding import Floats
from deniable.errors import NOTHING, InvalidParameter
from deniable.numbers import meant, rational, up

LARGEST = 1e150
"""Parameters beyond this would overflow when squared; no mechanism needs them."""

LONGEST_RATIO = 700
"""Characters of a ratio: enough for the quotient of any two numbers within `LARGEST`."""

Rounding = Callable[[Fraction], float]


def number(name: str, value: Any, rounded: Rounding = up) -> float:
    """A real number (no bool, no string, no NaN).

    A number that no float stores is rounded up, for most numbers here are what something costs; widths of
    noise, and levels that must not be exceeded, are asked for with `rounded=down`.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real | np.floating | np.integer):
        raise InvalidParameter(name, value, "must be a real number")
    try:
        # numpy's longdouble is no float either: it has more digits.
        longer = isinstance(value, numbers.Rational) or (not isinstance(value, float) and math.isfinite(value))
        result = rounded(rational(value)) if longer else float(value)
    except OverflowError:
        raise InvalidParameter(name, value, f"must be at most {LARGEST:g} in size") from None
    if math.isnan(result):
        raise InvalidParameter(name, value, "must not be NaN")
    return result


def finite(name: str, value: Any, rounded: Rounding = up) -> float:
    result = number(name, value, rounded)
    if not math.isfinite(result) or abs(result) > LARGEST:
        raise InvalidParameter(name, value, f"must be finite and at most {LARGEST:g} in size")
    return result


def positive(name: str, value: Any, rounded: Rounding = up) -> float:
    """A positive number whose square neither overflows nor vanishes."""
    result = finite(name, value, rounded)
    if result < 1 / LARGEST:
        raise InvalidParameter(name, value, f"must be positive, and at least {1 / LARGEST:g}")
    return result


def shift(name: str, noise: Any, sensitivity: Any) -> Fraction:
    """sensitivity/noise, exactly. A sensitivity a few roundings below √k means √k: see `deniable.numbers`."""
    positive(name, noise)
    positive("sensitivity", sensitivity)
    return meant(sensitivity) / rational(noise)


def ratio(name: str, rounded: float, given: Any) -> str:
    """The exact number behind one that was rounded up, as "p/q" in lowest terms; "" where the float is that number.

    It is what `written` wrote, or a record that nobody else should write: so whatever differs is refused.
    """
    if given == "":
        return ""
    try:
        exact = Fraction(given) if isinstance(given, str) and len(given) <= LONGEST_RATIO else None
    except (ValueError, ZeroDivisionError):
        exact = None
    if exact is None or exact <= 0 or up(exact) != rounded or written(exact) != given:
        raise InvalidParameter("ratio", given, f"must be a ratio of whole numbers that {name} is, rounded up")
    return str(given)


def written(exact: Fraction) -> str:
    """A number as the text that `ratio` reads; "" where a float says as much, or where the text would be too long.

    Without a text the float counts, which is never less: `up` made it.
    """
    text = "" if Fraction(up(exact)) == exact else str(exact)
    return text if len(text) <= LONGEST_RATIO else ""


def not_negative(name: str, value: Any, rounded: Rounding = up) -> float:
    result = finite(name, value, rounded)
    if result < 0:
        raise InvalidParameter(name, value, "must be at least 0")
    return result


def probability(name: str, value: Any, rounded: Rounding = up) -> float:
    """A number in [0, 1]."""
    result = number(name, value, rounded)
    if not 0 <= result <= 1:
        raise InvalidParameter(name, value, "must lie in [0, 1]")
    return result


def inner_probability(name: str, value: Any) -> float:
    """A number in (0, 1)."""
    result = number(name, value)
    if not 0 < result < 1:
        raise InvalidParameter(name, value, "must lie strictly between 0 and 1")
    return result


def integer(name: str, value: Any, least: int) -> int:
    """A whole number (an int, or a numpy integer), at least `least`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        whole = isinstance(value, float) and value.is_integer()
        raise InvalidParameter(name, value, "must be a whole number", f"write {int(value)}" if whole else "")
    result = int(value)
    if result < least:
        raise InvalidParameter(name, result, f"must be at least {least}")
    return result


def exactly_one(**given: Any) -> str:
    """The name of the one argument that was given."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        if not names:
            raise InvalidParameter(" or ".join(given), NOTHING, "none was given; give exactly one of them")
        rule = f"{'both' if len(names) == 2 else 'several'} were given; give exactly one of {', '.join(given)}"
        raise InvalidParameter(" and ".join(names), NOTHING, rule)
    return names[0]


def normalized(masses: Floats) -> Floats:
    """Masses whose sum is off by up to 1e-9, which is taken for rounding, made to sum to 1."""
    total = math.fsum(masses)
    return masses / total if abs(total - 1) > 1e-15 * len(masses) else masses


def numbers_array(name: str, values: Any) -> Floats:
    """A one-dimensional, non-empty float array without NaN, from numbers (Fractions too)."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidParameter(name, values, "must be a sequence of numbers")
    try:
        listed = list(values)
        if any(isinstance(v, str | bytes) for v in listed):
            raise TypeError
        array = np.array([float(v) for v in listed], dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameter(name, "...", "must be a sequence of numbers") from None
    if array.size == 0:
        raise InvalidParameter(name, "[]", "must not be empty")
    if not np.all(np.isfinite(array)):
        raise InvalidParameter(name, "...", f"entry {int(np.argmin(np.isfinite(array)))} is not finite")
    return array


def reading(name: str, value: Any) -> tuple[Floats, bool]:
    """An argument of a view: (array, was it a scalar). Infinities are allowed, NaN is not."""
    try:
        kind = np.asarray(value).dtype.kind
    except ValueError:
        kind = "O"
    real = kind in "iuf" or (kind == "O" and not isinstance(value, str | bytes) and value is not None)
    if not real or (kind == "O" and isinstance(value, Iterable) and any(isinstance(v, str | bytes) for v in value)):
        raise InvalidParameter(name, value, "must be a number or an array of numbers")
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameter(name, value, "must be a number or an array of numbers") from None
    if np.any(np.isnan(array)):
        raise InvalidParameter(name, value, "must not be NaN")
    return array, array.ndim == 0


def reading_in_unit(name: str, value: Any) -> tuple[Floats, bool]:
    array, scalar = reading(name, value)
    if np.any((array < 0) | (array > 1)):
        raise InvalidParameter(name, value, "must lie in [0, 1]")
    return array, scalar
