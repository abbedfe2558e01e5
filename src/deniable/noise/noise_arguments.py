"""Argument checks at the border of this room: one function for each kind. Inside the room, types are trusted.

Each function returns the checked value, exact where it is a number, and raises InvalidParameter otherwise.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from deniable.errors import NOTHING, InvalidParameter
from deniable.numbers import rational as exact_value

Shape = tuple[int, ...]
Rational = int | float | Fraction | Decimal
"""Types of a parameter. Each value *is* a rational number; a float is the number that it stores."""


def blamed(value: Any) -> Any:
    """The value, if an error may contain it; NOTHING for a table or column, which may be data passed by mistake."""
    return NOTHING if hasattr(value, "__len__") and not isinstance(value, str | bytes) else value


def whole(name: str, value: Any) -> int:
    """A whole number (an int, or a numpy integer)."""
    if isinstance(value, bool | np.bool_ | np.timedelta64) or not isinstance(value, numbers.Integral):
        raise InvalidParameter(name, blamed(value), "must be a whole number")
    return int(value)


def count(name: str, value: Any) -> int:
    """A whole number, at least 0."""
    result = whole(name, value)
    if result < 0:
        raise InvalidParameter(name, result, "must be at least 0")
    return result


def rational(name: str, value: Any) -> Fraction:
    """The exact value of a finite number."""
    if isinstance(value, Fraction):
        return value
    is_none = isinstance(value, bool | np.bool_ | np.timedelta64)
    if is_none or not isinstance(value, numbers.Real | Decimal | np.floating | np.integer):
        raise InvalidParameter(name, blamed(value), "must be a real number")
    try:
        return exact_value(value)
    except (OverflowError, ValueError):
        raise InvalidParameter(name, value, "must be finite") from None


def positive(name: str, value: Any) -> Fraction:
    result = rational(name, value)
    if result <= 0:
        raise InvalidParameter(name, value, "must be positive")
    return result


def not_negative(name: str, value: Any) -> Fraction:
    result = rational(name, value)
    if result < 0:
        raise InvalidParameter(name, value, "must be at least 0")
    return result


def probability(name: str, value: Any) -> Fraction:
    result = rational(name, value)
    if not 0 <= result <= 1:
        raise InvalidParameter(name, value, "must lie in [0, 1]")
    return result


def shape(value: Any) -> Shape:
    """`size` as numpy understands it: a count, or a tuple of counts."""
    dimensions = value if isinstance(value, tuple | list) else (value,)
    return tuple(count("size", dimension) for dimension in dimensions)


def is_sequence(values: Any) -> bool:
    """Whether these are several values in an order. An array without dimensions is a single number."""
    return (
        isinstance(values, Iterable)
        and not isinstance(values, str | bytes | dict | set | frozenset)
        and getattr(values, "ndim", 1) > 0
    )


def array(values: Any) -> npt.NDArray[Any]:
    """Values as an array. A list of mixed numbers stays an array of objects: NumPy would convert all of them to floats,
    and round large integers, as soon as one is a float.
    """
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        return np.asarray(values)
    each = np.array(values, dtype=object)
    kinds = set(map(type, each.ravel().tolist()))
    if all(issubclass(kind, float | np.float32 | np.float16) for kind in kinds):
        return each.astype(np.float64)
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        found = np.asarray(values)
        return found if found.dtype.kind in "iu" else each
    return each


def rationals(name: str, values: Iterable[Any]) -> list[Fraction]:
    """Finite numbers, at least one. They may be computed from data, so errors do not contain them."""
    result = []
    for value in values:
        try:
            result.append(rational(name, value))
        except InvalidParameter as error:
            raise InvalidParameter(name, NOTHING, f"each entry {error.rule}") from None
    if not result:
        raise InvalidParameter(name, NOTHING, "must not be empty")
    return result
