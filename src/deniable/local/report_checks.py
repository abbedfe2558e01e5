"""Argument checks: answers on the people's side, reports on the collector's.

An error names the public rule that was broken. It contains no answer, and not the position of the wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from deniable import arguments
from deniable.arguments import PROBABILITY, NumberRange
from deniable.errors import NOTHING, InvalidParameter

if TYPE_CHECKING:
    pass

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Packed = NDArray[np.uint8]
"""Eight bits per byte, the first category in the lowest bit; the unused bits of the last byte are 0."""


def array(name: str, values: Any, rule: str) -> NDArray[Any]:
    """An array, list or series as an array. NumPy's own errors may quote the values, so they are replaced."""
    if np.ma.is_masked(values):  # NumPy would reveal the masked values
        raise InvalidParameter(name, NOTHING, rule)
    try:
        given = np.asarray(values)
    except (ValueError, TypeError):
        raise InvalidParameter(name, NOTHING, rule) from None
    return _plain(given) if given.dtype == np.object_ and given.ndim <= 1 else given


def _plain(given: NDArray[Any]) -> NDArray[Any]:
    """Python numbers as NumPy numbers if all are integers, or all are reals such as Fraction and Decimal; else
    unchanged.
    """
    listed = given.reshape(-1).tolist()
    if all(isinstance(one, bool | int) for one in listed) and all(abs(one) < 2**63 for one in listed):
        return np.array(listed, dtype=np.int64).reshape(given.shape)
    if all(isinstance(one, int | float | Fraction | Decimal) and not isinstance(one, bool) for one in listed):
        return np.array([_nearest(one) for one in listed], dtype=np.float64).reshape(given.shape)
    return given


def _nearest(value: float | Fraction | Decimal) -> float:
    """The nearest float; infinity beyond all floats."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except ValueError:  # a Decimal that is a signaling NaN
        return math.nan


def _checked(name: str, values: Any, below: int, rule: str) -> NDArray[Any]:
    """Read one integer from 0 to `below` - 1, or a list of them, into an array of the integer type of `values`."""
    given = array(name, values, rule)
    if given.ndim == 1 and given.size == 0:
        return np.zeros(0, dtype=np.int64)
    if given.ndim > 1 or given.dtype.kind not in "biu":
        raise InvalidParameter(name, NOTHING, rule)
    # One comparison for both ends: as unsigned numbers, negative ones are huge. In 8 bits -1 is 255: if that value is
    # allowed, the comparison needs 64 bits.
    tells = given.dtype.isnative and (given.dtype.kind != "i" or below <= 1 << (8 * given.itemsize - 1))
    if (given.view(f"u{given.itemsize}") if tells else given.astype(np.uint64)).max() >= below:
        raise InvalidParameter(name, NOTHING, rule)
    return given


def whole(name: str, values: Any, below: int, rule: str) -> tuple[Ints, bool]:
    """Read one integer from 0 to `below` - 1, or a list of them. Returns (an array of 64-bit integers, whether `values`
    was a single one).
    """
    given = _checked(name, values, below, rule)
    return np.atleast_1d(given).astype(np.int64, copy=False), given.ndim == 0


def yes_or_no(name: str, values: Any) -> tuple[NDArray[np.bool_], bool]:
    """Read one truth value, or a list of them. Returns (an array, whether `values` was a single one)."""
    listed, alone = whole(name, values, 2, "must be True or False, or 1 or 0, for each person")
    return listed.astype(np.bool_), alone


def category(name: str, value: Any, count: int) -> int:
    """A single category."""
    listed, alone = categories(name, value, count)
    if not alone:
        raise InvalidParameter(name, NOTHING, "must be one category")
    return int(listed[0])


def categories(name: str, values: Any, count: int) -> tuple[Ints, bool]:
    """Read one category, or a list of them. Returns (an array, whether `values` was a single one)."""
    return whole(name, values, count, _category_rule(count))


def reported(name: str, values: Any, count: int) -> NDArray[Any]:
    """Categories in the integer type that was given, which is often small: there are many reports."""
    return np.atleast_1d(_checked(name, values, count, _category_rule(count)))


def _category_rule(count: int) -> str:
    return f"must be whole numbers from 0 to {count - 1}, one for each person"


def numbers(name: str, values: Any) -> tuple[Floats, bool]:
    """Read one real number, or a list of them. Returns (an array, whether `values` was a single one). Infinities are
    allowed (they are clipped), NaN is not.
    """
    rule = "must be real numbers, one for each person, and none missing"
    given = array(name, values, rule)
    if given.ndim > 1 or (given.dtype.kind not in "iuf" and given.size):
        raise InvalidParameter(name, NOTHING, rule)
    listed = np.atleast_1d(given).astype(np.float64)
    if np.any(np.isnan(listed)):
        raise InvalidParameter(name, NOTHING, rule)
    return listed, given.ndim == 0


def packed(name: str, values: Any, bits: int) -> Packed:
    """Rows of bits: packed bytes as `randomize` returns them, or a truth value for each bit."""
    rule = f"must be rows of {bits} bits, as randomize returns them (or an array of True and False)"
    given = array(name, values, rule)
    if given.ndim == 1:
        given = given[np.newaxis, :]
    if given.ndim == 2 and given.dtype == np.bool_ and given.shape[1] == bits:
        return np.packbits(given, axis=1, bitorder="little")
    if given.ndim != 2 or given.dtype != np.uint8 or given.shape[1] != width(bits):
        raise InvalidParameter(name, NOTHING, rule)
    if bits % 8 and np.any(given[:, -1] >> (bits % 8)):
        raise InvalidParameter(name, NOTHING, rule)
    return given


def hexadecimal(texts: list[str], bits: int) -> Packed:
    """Rows of bits from hexadecimal texts. Raises ValueError if one of them does not have the bytes of a row."""
    rows = [list(bytes.fromhex(text)) for text in texts]
    return np.array(rows, dtype=np.uint8).reshape(len(rows), width(bits))


def width(bits: int) -> int:
    """The number of bytes for this many bits."""
    return (bits + 7) // 8


def texts(name: str, values: Any, rule: str = "must be a list of texts") -> list[str]:
    """A list of texts."""
    # Iterating over a table gives the names of its columns, over a dict its keys; a set has lost its duplicates.
    if isinstance(values, str | bytes | Mapping | Set) or hasattr(type(values), "columns"):
        raise InvalidParameter(name, NOTHING, rule, "one column: df['town']")
    try:
        listed = list(values)
    except TypeError:
        raise InvalidParameter(name, NOTHING, rule) from None
    if not all(isinstance(value, str) for value in listed):
        raise InvalidParameter(name, NOTHING, rule)
    return listed


def written(reports: Any, below: int) -> list[str]:
    """Reports that are integers, as texts."""
    rule = f"must be whole numbers from 0 to {below - 1}, as randomize returns them"
    return [str(report) for report in whole("reports", reports, below, rule)[0].tolist()]


def people(value: Any) -> int:
    """A number of people, 1 to 10^18."""
    return arguments.whole("people", value, _PEOPLE)


_PEOPLE: Final = NumberRange("must be at least 1 and at most 10**18", least=1, most=10**18)


def share(value: Any) -> Any:
    """A share in [0, 1], or an array of them. A Fraction, Decimal or int becomes an exact Fraction."""
    if isinstance(value, int | float | Fraction | Decimal | np.number):
        exact = arguments.rational("share", value, PROBABILITY)
        return exact if isinstance(value, Fraction | Decimal | int) else float(value)
    given = numbers("share", value)[0]
    if not np.all((given >= 0) & (given <= 1)):
        raise InvalidParameter("share", NOTHING, PROBABILITY.rule)
    return given


def some(people: int) -> int:
    """The number of reports; InvalidParameter if there is no report."""
    if people == 0:
        raise InvalidParameter("reports", NOTHING, "must contain at least one report")
    return people
