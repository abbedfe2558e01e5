"""Input values: numbers and arrays of all kinds, converted to the two types that mechanisms use, float64 and int64.

The dtype, shape and type of an input are assumed to be public. No error here contains a value.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deniable.errors import NOTHING, InvalidParameter
from deniable.noise import noise_arguments as exactly

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LARGEST: Final = 2**62
"""Integers are clamped to ±2⁶², so that adding noise cannot overflow. Clamping never moves two values apart."""

EXACT: Final = 2**53
"""Integers up to this are exact as floats."""

PLAIN: Final = (bool, int, float, np.bool_, np.int64, np.int32, np.float32)
"""Types of rows that may be converted together: NumPy converts any mix of them to float64 without
rounding one twice.
"""

MADE_FOR_WHOLE: Final = "for real numbers, make the mechanism with floats: sensitivity=1.0, high=100.0"
ONE_COLUMN: Final = "one column: df['age']"


def refused(rule: str, remedy: str = "") -> InvalidParameter:
    """An error about the value, without the value."""
    return InvalidParameter("value", NOTHING, rule, remedy)


def is_array(value: Any) -> bool:
    """Whether the value is a list, an array or a series, and not one number."""
    if isinstance(value, np.ndarray):
        return bool(np.ndim(value))
    return hasattr(value, "__len__") and not isinstance(value, str | bytes)


def array(value: Any, *, kinds: str = "iufO") -> NDArray[Any]:
    """A list, array or series of numbers as an array. Raises InvalidParameter for anything else."""
    if isinstance(value, str | bytes | dict | set | frozenset):
        raise refused("must be a number or an array of numbers")
    if isinstance(value, np.ma.MaskedArray):
        raise refused("must not be masked", "fill the masked entries first")
    try:
        found = exactly.array(value)
    except Exception:  # ragged lists, or a series that cannot be converted: the original message may contain data
        raise refused("must be a number or an array of numbers") from None
    if found.dtype.kind not in kinds:
        raise refused("must contain numbers", "convert a bool, string, date or complex number first")
    if found.dtype.kind == "f" and found.dtype.itemsize > 8:
        raise refused("must not have more precision than float64", "round it to float64 before taking its sensitivity")
    return found


def reals(value: Any) -> NDArray[Any]:
    """The exact numbers of a finished statistic: float64, or Python numbers if floats cannot store them all.

    NaN and infinities pass in float64 only, for the caller to refuse. The result for a number depends on that number
    alone, in a list as in an array: rounding, or a clamp for one type only, could move two values apart.
    """
    found = array(value)
    if found.dtype.kind == "O":
        exact = [real(v) for v in found.ravel().tolist()]
        return np.array(exact, dtype=object).reshape(found.shape)
    if found.dtype.kind != "f" and found.size and max(-int(found.min()), int(found.max())) > EXACT:
        return found.astype(object)
    return found.astype(np.float64, copy=False)


def column(value: Any) -> Floats:
    """Rows as an array of float64, for statistics that clamp each row: rows that are not numbers become NaN.

    The result for a row depends on that row alone, never on the dtype that other rows gave the column: integers are
    rounded to the nearest float, True and False are 1 and 0. Only a column whose declared type excludes numbers
    (strings, dates, complex numbers) raises InvalidParameter: its type is public, a single row is not.
    """
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        # Convert all rows together if NumPy and `_number` agree on each of them, which they do not for rows that are
        # lists or arrays.
        if all(issubclass(kind, PLAIN) for kind in set(map(type, value))):
            found = np.asarray(value)
            if found.dtype.kind in "biuf":
                return found.astype(np.float64)
        return np.array([_number(v) for v in value], dtype=np.float64)
    if is_table(value):
        raise refused("must be one column, not a table", ONE_COLUMN)
    if not hasattr(value, "__len__"):
        raise refused("must be a column of numbers: a list, an array or a series", ONE_COLUMN)
    dtype = getattr(value, "dtype", None)
    if dtype is not None and not _holds_numbers(dtype):
        raise refused("must be a column of numbers", "its type holds strings, dates or complex numbers: convert it")
    found = array(value, kinds="biufO")
    if found.ndim != 1:
        raise refused("must be one column of numbers: a list, an array or a series", ONE_COLUMN)
    if found.dtype.kind == "O":
        return np.array([_number(v) for v in found.tolist()], dtype=np.float64)
    return found.astype(np.float64)


def is_table(value: Any) -> bool:
    """Whether this is a table where one column was intended: if it were summed as a whole, one row would count several
    times.
    """
    return hasattr(type(value), "columns") or getattr(value, "ndim", 1) > 1


def _holds_numbers(dtype: Any) -> bool:
    """Whether a column of this declared type may contain numbers. In an object column each row decides for itself."""
    if isinstance(dtype, np.dtype):
        return dtype.kind in "biufO"
    if callable(is_numeric := getattr(dtype, "is_numeric", None)):  # polars
        return bool(is_numeric()) or str(dtype) in ("Boolean", "Null", "Object")
    if (categories := getattr(dtype, "categories", None)) is not None:  # pandas
        return _holds_numbers(categories.dtype)
    return bool(getattr(dtype, "_is_numeric", True)) or bool(getattr(dtype, "_is_boolean", False))


def keys(value: Any) -> list[Any]:
    """Rows as a list of keys, unchanged. Raises InvalidParameter for a table, and for recognisable counts by key."""
    if is_table(value):
        raise refused("must be one column, not a table", ONE_COLUMN)
    if isinstance(value, Mapping) or is_value_counts(value):
        raise refused(
            "must be a column with one row for each row of the table, not counts by key",
            "counts belong to release_counts; if it is a column named 'count' after all, give its to_numpy()",
        )
    if isinstance(value, str | bytes) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) != 1:
        raise refused("must be a column: a list, array or series of keys")
    return value.tolist() if isinstance(value, np.ndarray) else list(value)


def is_labelled(value: Any) -> bool:
    """Whether this is a pandas series with a meaningful index, not just row numbers."""
    index = getattr(value, "index", None)
    return hasattr(value, "items") and hasattr(index, "dtype") and type(index).__name__ != "RangeIndex"


def is_value_counts(value: Any) -> bool:
    """Whether this is a result of pandas' value_counts(), as far as its labels show."""
    if not is_labelled(value) or getattr(value, "name", None) != "count":
        return False
    return value.index.name is not None or not np.issubdtype(np.asarray(value.index).dtype, np.number)


def _number(row: Any) -> float:
    """One row as a float: NaN if it is not a number. It never raises, because an error would reveal something about one
    row.
    """
    value: Any = row.item() if isinstance(row, np.ndarray) and row.ndim == 0 and not np.ma.is_masked(row) else row
    try:
        return float(value) if isinstance(value, numbers.Real | Decimal | np.bool_) else math.nan
    except OverflowError:  # an int or Fraction beyond all floats
        return math.inf if value > 0 else -math.inf
    except Exception:  # a signalling NaN, or a number of a user-defined class, may raise anything
        return math.nan


def wholes(value: Any) -> Ints:
    """An array of int64, clamped to ±2⁶². Floats raise InvalidParameter by their type, even if they are integers."""
    found = array(value)
    kind = found.dtype.kind
    if kind == "f" and found.size:
        raise refused("must contain whole numbers (ints)", MADE_FOR_WHOLE)
    if kind == "O":
        listed = found.ravel().tolist()
        if not all(isinstance(v, int | np.integer) and not isinstance(v, bool | np.timedelta64) for v in listed):
            raise refused("must contain whole numbers (ints) only")
        return np.array([max(-LARGEST, min(LARGEST, int(v))) for v in listed], dtype=np.int64).reshape(found.shape)
    if found.dtype.itemsize == 8:
        found = np.clip(found, -LARGEST if kind == "i" else 0, LARGEST)
    return found.astype(np.int64)


def whole(value: Any) -> int:
    """One integer: an int, or a NumPy integer."""
    if type(value) is int:
        return value
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | np.bool_ | np.timedelta64) or not isinstance(value, numbers.Integral):
        is_real = isinstance(value, numbers.Real | Decimal | np.floating) and not isinstance(value, bool | np.bool_)
        raise refused("must be a whole number (an int)", MADE_FOR_WHOLE if is_real else _what(value))
    return int(value)


def _what(value: Any) -> str:
    """A remedy for a value that is not a number, chosen by its type alone."""
    if value is None:
        return "None is not a number: decide what a missing value counts as, and fill it in"
    if isinstance(value, bool | np.bool_):
        return "a bool is not a number here: write int(...)"
    if hasattr(value, "__len__") and not isinstance(value, str | bytes):
        return "this is several values: compute one number first"
    return "a string, date or other object is not a number: convert it first"


def real(value: Any) -> float | Fraction:
    """One finite real number. A float stays a float; integers and rational numbers become exact Fractions."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, float | np.floating):
        if isinstance(value, np.longdouble):
            raise refused("must not have more precision than float64")
        found = float(value)
        if not math.isfinite(found):
            raise refused("must be finite", "NaN and infinities have no sensitivity; clamp the data to public bounds")
        return found
    if isinstance(value, numbers.Integral) and not isinstance(value, bool | np.timedelta64):
        return Fraction(int(value))
    if isinstance(value, Fraction | Decimal):
        try:
            return Fraction(value)
        except (ValueError, OverflowError):
            raise refused("must be finite") from None
    raise refused("must be a real number", _what(value))


def whole_sum(column: Ints) -> int:
    """The exact sum: the two halves of 64-bit numbers are summed separately, so that they cannot overflow."""
    return (int((column >> 31).sum()) << 31) + int((column & (2**31 - 1)).sum())
