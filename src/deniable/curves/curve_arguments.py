"""The ranges of this room's arguments. `deniable.arguments` checks them; inside the room, types are trusted.

Numbers are floats that can be squared: at most 1e150 in size, and at least 1e-150 where they must be positive. Each
function takes the name of the argument, for the error, and its value; it returns the checked value and raises
InvalidParameter otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, Final, NamedTuple, final

import numpy as np

from deniable import arguments
from deniable.arguments import NumberRange, Rounding
from deniable.curves.outward_rounding import Floats
from deniable.errors import NOTHING, InvalidParameter
from deniable.numbers import around, raised_to_root, rational, up

Bounds = Callable[[Floats], tuple[Any, Any]]
"""Certified (low, high) around the values of a function at these floats."""

LARGEST: Final = 1e150
"""Parameters beyond this would overflow when squared; no mechanism needs them."""

LONGEST_RATIO: Final = 700
"""Most characters of a ratio: enough for the quotient of any two numbers within `LARGEST`."""

_OVERFLOW: Final = f"must be at most {LARGEST:g} in size"
_FINITE: Final = NumberRange(f"must be finite and at most {LARGEST:g} in size", least=-LARGEST, most=LARGEST)
_POSITIVE: Final = NumberRange(f"must be positive, and at least {1 / LARGEST:g}", least=1 / LARGEST)


def number(name: str, value: Any, *ranges: NumberRange, rounded: Rounding = up) -> float:
    """A real number (not a bool, a string or NaN; infinities are allowed), rounded as `arguments.real` does."""
    return arguments.real(name, value, *ranges, rounded=rounded, overflow_rule=_OVERFLOW)


def finite(name: str, value: Any, rounded: Rounding = up) -> float:
    """A finite number of size at most `LARGEST`."""
    return number(name, value, _FINITE, rounded=rounded)


def positive(name: str, value: Any, rounded: Rounding = up) -> float:
    """A positive number whose square neither overflows nor vanishes."""
    return number(name, value, _FINITE, _POSITIVE, rounded=rounded)


def not_negative(name: str, value: Any, rounded: Rounding = up) -> float:
    """A finite number that is at least 0."""
    return number(name, value, _FINITE, arguments.NOT_NEGATIVE, rounded=rounded)


def probability(name: str, value: Any, rounded: Rounding = up) -> float:
    """A number in [0, 1]."""
    return number(name, value, arguments.PROBABILITY, rounded=rounded)


def inner_probability(name: str, value: Any, rounded: Rounding = up) -> float:
    """A number in (0, 1)."""
    return number(name, value, arguments.INNER_PROBABILITY, rounded=rounded)


def integer(name: str, value: Any, least: int) -> int:
    """A whole number (an int, or a numpy integer), at least `least`."""
    return arguments.whole(name, value, arguments.at_least(least))


def shift(name: str, noise: Any, sensitivity: Any) -> Fraction:
    """The exact sensitivity/noise. A sensitivity a few roundings below √k is taken for √k: see `deniable.numbers`."""
    positive(name, noise)
    positive("sensitivity", sensitivity)
    return raised_to_root(sensitivity) / rational(noise)


def ratio(name: str, rounded: float, given: Any) -> str:
    """The text "p/q", in lowest terms, of the exact number that `rounded` is rounded up from; "" if `rounded` is exact.

    Only `written` produces this text. A record with any other text raises InvalidParameter.
    """
    if given == "":
        return ""
    try:
        exact = Fraction(given) if isinstance(given, str) and len(given) <= LONGEST_RATIO else None
    except (ValueError, ZeroDivisionError):
        exact = None
    if exact is None or exact <= 0 or up(exact) != rounded or written(exact) != given:
        raise InvalidParameter("ratio", given, f"must be the ratio of whole numbers from which {name} was rounded up")
    return str(given)


def written(exact: Fraction) -> str:
    """The text of an exact number for `ratio`; "" if a float is exact, or if the text would be too long.

    Without a text the float is used. It is at least as large, because `up` rounded it.
    """
    text = "" if Fraction(up(exact)) == exact else str(exact)
    return text if len(text) <= LONGEST_RATIO else ""


def exactly_one(**given: Any) -> str:
    """The name of the only argument that is not None. InvalidParameter if none or several were given."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        if not names:
            raise InvalidParameter(" or ".join(given), NOTHING, "none was given; give exactly one of them")
        rule = f"{'both' if len(names) == 2 else 'several'} were given; give exactly one of {', '.join(given)}"
        raise InvalidParameter(" and ".join(names), NOTHING, rule)
    return names[0]


def normalized(masses: Floats) -> Floats:
    """Masses that sum to 1. A sum off by up to 1e-9 is attributed to rounding and divided out."""
    total = math.fsum(masses)
    return masses / total if abs(total - 1) > 1e-15 * len(masses) else masses


def numbers_array(name: str, values: Any) -> Floats:
    """A non-empty, one-dimensional, finite float array from any sequence of numbers (Fractions too)."""
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
    # An outcome of probability 0 would be one that cannot happen.
    if lost := [i for i in np.flatnonzero(array == 0).tolist() if listed[i] != 0]:
        raise InvalidParameter(name, "...", f"entry {lost[0]} is so small that floats store it as 0")
    return array


@final
class BracketedArgument(NamedTuple):
    """The argument of a method of `Curve`, as the floats on both sides of every number.

    A float that is off by one rounding may lie beyond a jump: δ(ε) just below the ε of pure DP is positive, and just
    above it is 0. So an upper bound is computed from the side where the exact number is larger, and a lower bound from
    the other. For floats both sides are the same array.
    """

    low: Floats
    high: Floats
    scalar: bool

    def falling(self, bounds: Bounds) -> tuple[Any, Any]:
        """(low, high) around a function that falls with the argument, given its bounds at floats."""
        return self._around(bounds, self.high, self.low)

    def rising(self, bounds: Bounds) -> tuple[Any, Any]:
        """(low, high) around a function that rises with the argument, given its bounds at floats."""
        return self._around(bounds, self.low, self.high)

    def _around(self, bounds: Bounds, least: Floats, most: Floats) -> tuple[Any, Any]:
        low, high = bounds(most.ravel())
        if least is not most:
            low, _ = bounds(least.ravel())
        return self.shaped(low), self.shaped(high)

    def shaped(self, values: Any) -> Any:
        """One number for each number of the argument, in its shape; a float for a scalar."""
        array = np.asarray(values).reshape(self.low.shape)
        return float(array) if self.scalar else array


def _held(array: np.ndarray[Any, Any]) -> Iterable[Any]:
    """The Python objects that an array holds; none if it holds numbers."""
    return array.ravel().tolist() if array.dtype.kind == "O" else ()


def reading(name: str, value: Any) -> BracketedArgument:
    """The argument of a method of `Curve`: a number, or an array of numbers. Infinities are allowed, NaN is not."""
    try:
        made = np.asarray(value)
        if made.dtype.kind not in "iufO" or any(each is None or isinstance(each, str | bytes) for each in _held(made)):
            raise TypeError
        array = np.asarray(made, dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameter(name, value, "must be a number or an array of numbers") from None
    if np.any(np.isnan(array)):
        raise InvalidParameter(name, value, "must not be NaN")
    # NumPy makes floats of a list that has a float and a large int: keep the numbers as they were given.
    given = np.asarray(value) if hasattr(value, "__array__") else np.asarray(value, dtype=object)
    stored = given.dtype.kind == "f" and given.dtype.itemsize <= 8
    sides = [] if stored else [around(each) for each in np.ravel(given)]
    if all(low == high for low, high in sides):
        return BracketedArgument(array, array, array.ndim == 0)
    low, high = np.array(sides).T
    return BracketedArgument(low.reshape(array.shape), high.reshape(array.shape), array.ndim == 0)


def reading_in_unit(name: str, value: Any) -> BracketedArgument:
    """As `reading`, with all values in [0, 1]."""
    given = reading(name, value)
    if np.any((given.low < 0) | (given.high > 1)):
        raise InvalidParameter(name, value, "must lie in [0, 1]")
    return given
