"""Exact amounts for filters: numbers as written by a user, and the unit that all sums are counted in."""

from __future__ import annotations

import math
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from numbers import Rational, Real
from typing import Final

from deniable import arguments
from deniable.curves.decimal_arithmetic import digits
from deniable.errors import InvalidParameter
from deniable.numbers import rational

DECIMALS: Final = 30
UNIT: Final = Fraction(1, 10**DECIMALS)
"""The smallest amount of a filter. Every cost and every limit is a whole number of units."""

_LONGEST: Final = 10_000
_SMALLEST: Final = Fraction(1, 10 ** (2 * _LONGEST))

Amount = float | str | Fraction | Decimal
"""How an amount may be given (the type checker counts an int as a float)."""


def exact_amount(name: str, value: Amount, rule: str = "must be at least 0 and below 1e300") -> Fraction:
    """The exact non-negative amount that was written. Raises InvalidParameter for anything else; `rule` is the error
    text for a number out of range.

    A float is taken as the decimal number that it prints as: 0.1 is a tenth.
    """
    exact: Fraction | None = None
    if isinstance(value, str | Decimal):
        exact = _written(value)
    elif arguments.is_number(value, Real):
        longer = isinstance(value, Rational) or (math.isfinite(value) and float(value) != value)
        with suppress(TypeError):  # a number whose exact value is not known
            exact = rational(value) if longer else _written(repr(float(value)))
    if exact is None:
        raise InvalidParameter(name, value, "must be a finite number, or the text of a decimal number or a ratio")
    if not 0 <= exact < 10**300 or 0 < exact <= _SMALLEST:
        raise InvalidParameter(name, value, rule)
    return exact


def exact_delta(value: Amount) -> Fraction:
    """The exact δ that was written. Raises InvalidParameter outside of [0, 1]."""
    rule = "must lie in [0, 1]"
    exact = exact_amount("delta", value, rule)
    if exact > 1:
        raise InvalidParameter("delta", value, rule)
    return exact


def _written(value: str | Decimal) -> Fraction | None:
    """The number that a decimal or "p/q" denotes; None if it does not denote one.

    A number whose exponent is too long to write out is replaced by another that is out of range on the same side.
    """
    if isinstance(value, str) and len(value) > 1_000:
        return None
    try:
        if isinstance(value, str) and "/" in value:
            return Fraction(value)
        number = Decimal(value)
    except (InvalidOperation, ValueError, ZeroDivisionError):
        return None
    if not number.is_finite():
        return None
    if number and abs(number.adjusted()) > _LONGEST:
        return (1 if number > 0 else -1) * (_SMALLEST if number.adjusted() < 0 else 1 / _SMALLEST)
    return Fraction(number) if number else Fraction(0)


def units_of_cost(name: str, value: Amount) -> int:
    """A cost as a whole number of `UNIT`, rounded up. `name` is the parameter's name, for errors.

    >>> units_of_cost("epsilon", 0.1) == 10**29, units_of_cost("epsilon", Fraction(0.1)) == 10**29
    (True, False)
    """
    return math.ceil(exact_amount(name, value) / UNIT)


def units_of_limit(name: str, value: Amount) -> int:
    """A limit as a whole number of `UNIT`, rounded down.

    >>> units_of_limit("epsilon", "1/3") * 3 < 10**30 < units_of_cost("epsilon", "1/3") * 3
    True
    """
    return math.floor(exact_amount(name, value) / UNIT)


def delta_units_of_cost(delta: Amount) -> int:
    """The δ of a cost as a whole number of `UNIT`, rounded up. Raises InvalidParameter outside of [0, 1]."""
    return math.ceil(exact_delta(delta) / UNIT)


def delta_units_of_limit(delta: Amount) -> int:
    """The δ of a limit as a whole number of `UNIT`, rounded down. Raises InvalidParameter outside of [0, 1]."""
    return math.floor(exact_delta(delta) / UNIT)


def amount_of(units: int) -> Decimal:
    """An amount in units as an exact decimal number, without trailing zeros."""
    return decimal_of(units, -DECIMALS)


def decimal_of(whole: int, exponent: int) -> Decimal:
    """whole × 10^exponent as an exact decimal number, without trailing zeros, in any decimal context of the caller.

    >>> decimal_of(1500, -3), decimal_of(12, 2)
    (Decimal('1.5'), Decimal('1200'))
    """
    with digits(700):
        number = Decimal(whole).scaleb(exponent).normalize()
        return number.quantize(Decimal(1)) if number == number.to_integral_value() else number
