"""Checks of sizes and sequences that callers of `deniable.noise` pass; `deniable.arguments` checks single numbers.

Each function returns the checked value, exact where it is a number, and raises InvalidParameter otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from deniable import arguments
from deniable.arguments import NOT_NEGATIVE
from deniable.errors import NOTHING, InvalidParameter

Shape = tuple[int, ...]
Rational = int | float | Fraction | Decimal
"""Types of a parameter. Each value is taken as an exact rational number; a float is the number that it stores."""


def shape(value: Any) -> Shape:
    """`size` as numpy understands it: a count, or a tuple of counts."""
    dimensions = value if isinstance(value, tuple | list) else (value,)
    return tuple(arguments.whole("size", dimension, NOT_NEGATIVE) for dimension in dimensions)


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
            result.append(arguments.rational(name, value))
        except InvalidParameter as error:
            raise InvalidParameter(name, NOTHING, f"each entry {error.rule}") from None
    if not result:
        raise InvalidParameter(name, NOTHING, "must not be empty")
    return result
