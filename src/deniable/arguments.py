"""Checks of arguments: the one place that decides what a number is, and whether it is in range.

Each check takes the name of the argument, for the error, its value, and the ranges in which the value must lie, tried
in this order. It returns the value in one type, or raises InvalidParameter with the rule of the first range that is
broken.

- `rational`: a finite number of any type, as an exact Fraction; for samplers and mechanisms.
- `real`: a number of any type, also an infinite one, as a float rounded to the safe side; for curves.
- `whole`: a whole number of any type, as an int.
- `python_int`, `python_float`: Python's own types only, with one rule for a wrong type and a wrong value.
- `boolean`: True or False only; 1 and 0 are refused.

Python treats a bool as an int, and NumPy treats a duration as an integer; these checks refuse both. A list, a column or
a table that is passed by mistake may be data, so an error never contains it (`errors.InvalidParameter` sees to that).

A room names its own ranges: `curves.curve_arguments` (floats that can be squared), `curves.decimal_arithmetic` (the
textbook) and `mechanisms.rational_parameters` (noise that floats can measure).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Rational, Real
from types import UnionType
from typing import Any, Final, final

from deniable import numbers
from deniable.errors import InvalidParameter

Rounding = Callable[[Fraction], float]
Bound = int | float | Fraction | None


@final
@dataclass(frozen=True, slots=True)
class NumberRange:
    """The numbers that an argument may be, and the rule that an error quotes for all others.

    `least` and `most` are in the range, `above` and `below` are outside. None means that the range has no such end.

    >>> 0 in PROBABILITY, 0 in INNER_PROBABILITY
    (True, False)
    """

    rule: str
    least: Bound = None
    most: Bound = None
    above: Bound = None
    below: Bound = None
    remedy: str = ""

    def __contains__(self, number: float | Fraction) -> bool:
        return not (
            (self.least is not None and not number >= self.least)
            or (self.most is not None and not number <= self.most)
            or (self.above is not None and not number > self.above)
            or (self.below is not None and not number < self.below)
        )

    def check(self, name: str, asked: object, number: float | Fraction) -> None:
        """Raise InvalidParameter if the number is outside; `asked` is the argument as it was given."""
        if number not in self:
            raise InvalidParameter(name, asked, self.rule, self.remedy)


POSITIVE: Final = NumberRange("must be positive", above=0)
NOT_NEGATIVE: Final = NumberRange("must be at least 0", least=0)
PROBABILITY: Final = NumberRange("must lie in [0, 1]", least=0, most=1)
INNER_PROBABILITY: Final = NumberRange("must lie strictly between 0 and 1", above=0, below=1)
COUNT: Final = NumberRange("must be a whole number, at least 0", least=0)

BEYOND_FLOATS: Final = 2**1024 - 2**970
"""The smallest number that is too large for a float: the nearest float would be 2¹⁰²⁴."""


def at_least(least: int) -> NumberRange:
    """The range of all numbers that are at least `least`."""
    return NumberRange(f"must be at least {least}", least=least)


_PLAINER: Final = "only its nearest float is known: give a Fraction or a float"


def is_number(value: Any, kind: type | UnionType) -> bool:
    """Whether a value is a number of this kind; a bool and a duration of NumPy are not."""
    if isinstance(value, bool) or not isinstance(value, kind):
        return False
    return getattr(getattr(value, "dtype", None), "kind", "") != "m"  # numpy.timedelta64


def rational(
    name: str,
    value: Any,
    *ranges: NumberRange,
    kind: type | UnionType = Real | Decimal,
    type_rule: str = "must be a real number",
    finite_rule: str = "must be finite",
) -> Fraction:
    """The exact value of a finite number of this kind.

    >>> rational("scale", 0.5, POSITIVE)
    Fraction(1, 2)
    """
    if not is_number(value, kind):
        raise InvalidParameter(name, value, type_rule)
    try:
        exact = numbers.rational(value)
    except TypeError:
        raise InvalidParameter(name, value, type_rule, _PLAINER) from None
    except (OverflowError, ValueError):
        raise InvalidParameter(name, value, finite_rule) from None
    for each in ranges:
        each.check(name, value, exact)
    return exact


def real(name: str, value: Any, *ranges: NumberRange, rounded: Rounding = numbers.up, overflow_rule: str) -> float:
    """A number, as a float. Infinities pass unless a range excludes them; NaN does not.

    A number that a float cannot store is rounded up, because most arguments are costs. Pass `rounded=down` for widths
    of noise, and for limits that must not be exceeded. `overflow_rule` is the rule for a number beyond all floats.
    """
    if not is_number(value, Real):
        raise InvalidParameter(name, value, "must be a real number")
    try:
        # NumPy's longdouble is not a float, and has more digits and larger exponents.
        longer = isinstance(value, Rational) or (not isinstance(value, float) and abs(value) < math.inf)
        result = rounded(numbers.rational(value)) if longer else float(value)
    except TypeError:
        raise InvalidParameter(name, value, "must be a real number", _PLAINER) from None
    except OverflowError:
        raise InvalidParameter(name, value, overflow_rule) from None
    if math.isnan(result):
        raise InvalidParameter(name, value, "must not be NaN")
    for each in ranges:
        each.check(name, value, result)
    return result


def whole(name: str, value: Any, *ranges: NumberRange, type_rule: str = "must be a whole number") -> int:
    """A whole number: an int, or a NumPy integer. A float such as 3.0 is refused, with the int to write instead.

    >>> whole("bins", 3, at_least(2))
    3
    """
    if not is_number(value, Integral):
        # From 2⁵³ on every float is a whole number, and may be a rounded one: do not suggest its digits.
        close = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
        helps = close and all(int(value) in each for each in ranges)
        raise InvalidParameter(name, value, type_rule, f"write {int(value)}" if helps else "")
    result = int(value)
    for each in ranges:
        each.check(name, result, result)
    return result


def python_int(name: str, value: Any, within: NumberRange) -> int:
    """An int in a range. Any other value breaks the rule of the range, also a NumPy integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value not in within:
        raise InvalidParameter(name, value, within.rule, within.remedy)
    return value


def python_float(name: str, value: Any, within: NumberRange) -> float:
    """An int or float in a range, as a float. Any other value breaks the rule of the range."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value not in within:
        raise InvalidParameter(name, value, within.rule, within.remedy)
    try:
        return float(value)
    except OverflowError:
        raise InvalidParameter(name, value, within.rule, within.remedy) from None


def boolean(name: str, value: Any) -> bool:
    """True or False. Any other value breaks the rule, also 1 and 0."""
    if not isinstance(value, bool):
        raise InvalidParameter(name, value, "must be True or False")
    return value
