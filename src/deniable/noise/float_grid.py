"""From floats to integers and back: a power-of-two grid, and a sum of floats that does not depend on their order.

Both are total functions: they accept every float, because an error would reveal something about the data. NaN counts as
0, an infinity as the largest number of its sign, -0 as 0.
"""

from __future__ import annotations

import math
import numbers
import sys
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, final

import numpy as np
import numpy.typing as npt

from deniable import arguments
from deniable.arguments import POSITIVE, NumberRange
from deniable.errors import NOTHING, InvalidParameter
from deniable.noise import noise_arguments
from deniable.noise.inversion_table import CHUNK, Integers

Floats = npt.NDArray[np.float64]

FARTHEST = 2**62
"""Rounded values lie in [-2⁶², 2⁶²], and noise in an array strictly inside: their sum always fits into 64 bits."""

LEAST_EXPONENT, LARGEST_EXPONENT = -1074, 961
"""The spacing of the smallest floats, and the largest spacing at which 2⁶² steps are a finite float."""

_EXPONENTS = NumberRange(
    f"must lie in [{LEAST_EXPONENT}, {LARGEST_EXPONENT}]", least=LEAST_EXPONENT, most=LARGEST_EXPONENT
)

FINENESS = 32
"""One scale of noise is 2³¹ to 2³² steps: rounding moves an answer by less than 2⁻³¹ scales, and 2³⁰ scales fit."""

LARGEST_FLOAT = Fraction(sys.float_info.max)

SUMMED = 2**20
"""Floats that are summed at a time."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The multiples of 2^exponent, from -2⁶² to 2⁶² steps.

    A real-valued answer is rounded to the grid first. Each coordinate moves by at most half a step, so the distance of
    two answers grows by at most one step per coordinate: a sensitivity Δ becomes Δ + d spacing in L1 and Δ + √d spacing
    in L2 for d coordinates. Noise is then added as whole steps, and the sum is converted to a float last.

    >>> from deniable import noise
    >>> grid = noise.Grid(exponent=-2)
    >>> grid.round([0.3, 0.375, -1e300, float("nan")])
    array([                   1,                    2, -4611686018427387904,
                              0])
    >>> grid.values(grid.round(0.3))
    0.25
    """

    exponent: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "exponent", arguments.whole("exponent", self.exponent, _EXPONENTS))

    @classmethod
    def for_noise(cls, scale: noise_arguments.Rational) -> Grid:
        """The grid on which noise of this scale spans 2³¹ to 2³² steps.

        >>> from deniable import noise
        >>> noise.Grid.for_noise(1.0)
        Grid(exponent=-31)
        """
        exact = arguments.rational("scale", scale, POSITIVE)
        log = exact.numerator.bit_length() - exact.denominator.bit_length()
        floor_log = log if exact >= Fraction(2) ** log else log - 1
        return cls(exponent=min(max(floor_log + 1 - FINENESS, LEAST_EXPONENT), LARGEST_EXPONENT))

    @property
    def spacing(self) -> Fraction:
        """2^exponent, the distance between neighbours on the grid."""
        return Fraction(2) ** self.exponent

    def round(self, values: Any) -> Any:
        """The nearest step of each value, ties to even: an int for a number, an int64 array for anything else.

        Total: NaN and None become 0; ±inf and everything beyond ±2⁶² steps becomes ±2⁶²; -0 becomes 0. Raises
        InvalidParameter if some entry is not a number.
        """
        if isinstance(values, float):
            return self._one_float(values)
        array = _numbers("values", values)
        if array.ndim == 0:
            return self._one(array.item())
        if array.dtype.kind == "O" or array.dtype.itemsize > 8 or not _are_floats(array):
            exact = [self._one(value) for value in array.ravel().tolist()]
            return np.array(exact, dtype=np.int64).reshape(array.shape)
        rounded = np.empty(array.shape, dtype=np.int64)
        self._round_into(rounded.reshape(-1), array.ravel())
        return rounded

    def _round_into(self, out: Integers, values: npt.NDArray[Any]) -> None:
        # A power of two changes only the exponent, and a result below the normal floats rounds to 0 in any case. Two
        # factors, because 2^1074 alone is not a float.
        halves = [math.ldexp(1.0, part) for part in (-self.exponent // 2, -self.exponent - (-self.exponent // 2))]
        room = np.empty(min(CHUNK, values.size), dtype=np.float64)
        with np.errstate(all="ignore"):
            for start in range(0, values.size, CHUNK):
                part = values[start : start + CHUNK]
                steps = np.multiply(part, halves[0], out=room[: part.size])
                steps *= halves[1]
                np.rint(steps, out=steps)
                np.clip(steps, -FARTHEST, FARTHEST, out=steps)
                steps[np.isnan(steps)] = 0
                out[start : start + CHUNK] = steps

    def _one_float(self, value: float) -> int:
        try:
            steps = round(math.ldexp(value, -self.exponent))
        except OverflowError:
            return FARTHEST if value > 0 else -FARTHEST
        except ValueError:  # NaN
            return 0
        return max(-FARTHEST, min(FARTHEST, steps))

    def _one(self, value: Any) -> int:
        number = _finite(value, FARTHEST * self.spacing)
        return max(-FARTHEST, min(FARTHEST, round(number / self.spacing)))

    def values(self, steps: Any) -> Any:
        """Steps as floats, rounded once: a float for an integer, an array for an array of integers."""
        try:
            array = np.asarray(steps)
        except ValueError:  # rows of different lengths
            array = np.empty(0, dtype=np.str_)
        if array.dtype.kind not in "iu" or np.ma.is_masked(steps):
            raise InvalidParameter("steps", NOTHING, "must be whole numbers of 64 bits")
        floats = array * math.ldexp(1.0, self.exponent)
        return float(floats) if floats.ndim == 0 else floats


def _numbers(name: str, values: Any) -> npt.NDArray[Any]:
    """The values as an array of floats or integers, or of Python numbers if neither can store them. Errors contain no
    value.
    """
    if isinstance(values, np.ma.MaskedArray):
        values = np.where(np.ma.getmaskarray(values), np.array(None), values.data)
    try:
        array = noise_arguments.array(values)
    except ValueError:  # rows of different lengths
        array = np.empty(0, dtype=np.str_)
    wrong = array.dtype.kind not in "iufO" or (array.dtype.kind == "O" and not all(map(_is_number, array.ravel())))
    if wrong:
        raise InvalidParameter(name, NOTHING, "must be a number or an array of numbers")
    return array


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | np.bool_ | np.complexfloating | np.timedelta64):
        return False
    return value is None or isinstance(value, numbers.Real | Decimal | np.number) or type(value).__name__ == "NAType"


def _are_floats(array: npt.NDArray[Any]) -> bool:
    """Whether a float can store every number here exactly."""
    return array.dtype.kind == "f" or not array.size or max(-int(array.min()), int(array.max())) <= 2**53


def _finite(value: Any, largest: Fraction) -> Fraction:
    """The exact value of a number: 0 if it is missing, ±largest for an infinity."""
    if isinstance(value, numbers.Rational):
        return Fraction(int(value)) if isinstance(value, numbers.Integral) else Fraction(value)
    if not isinstance(value, float | Decimal | np.floating) or value != value:
        return Fraction(0)
    if math.isinf(value):
        return largest if value > 0 else -largest
    return Fraction(*value.as_integer_ratio())


def exact_sum(values: Any) -> Fraction:
    """The exact sum: independent of the order of the values, without rounding.

    A sum of floats in floating point depends on the order of the rows, and one row can move it by more than its own
    size, so that noise calibrated to the textbook sensitivity is too small (Casacuberta et al. 2022). The exact sum has
    the textbook sensitivity. Total: NaN and None count as 0, ±inf as the largest float of its sign. A table raises
    InvalidParameter, because one of its rows would count once for each column.

    >>> from deniable import noise
    >>> noise.exact_sum([1e16, 1.0, -1e16])
    Fraction(1, 1)
    """
    array = _numbers("values", values)
    if array.ndim > 1:
        raise InvalidParameter("values", NOTHING, "must be one column, not a table", "one column: df['age']")
    if array.dtype.kind in "iu":
        return Fraction(_whole_sum(array))
    if array.dtype.kind == "f" and array.dtype.itemsize <= 8:
        return _float_sum(array.astype(np.float64, copy=False).ravel())
    each = array.ravel().tolist()
    floats = np.array([value for value in each if type(value) is float], dtype=np.float64)
    wholes = sum(value for value in each if type(value) is int)
    others = (_finite(value, LARGEST_FLOAT) for value in each if type(value) not in (float, int))
    return sum(others, start=_float_sum(floats) + wholes)


def _whole_sum(array: npt.NDArray[Any]) -> int:
    # Halves of 32 bits: 2³¹ of them fit into 64 bits.
    flat = array.ravel().astype(np.uint64 if array.dtype.kind == "u" else np.int64, copy=False)
    parts = (flat[start : start + 2**30] for start in range(0, flat.size, 2**30))
    return sum((int((part >> 32).sum()) << 32) + int((part & 0xFFFFFFFF).sum()) for part in parts)


def _float_sum(flat: Floats) -> Fraction:
    """The exact sum of floats: mantissas are added separately for each exponent, in two halves of at most 27 bits. A
    float stores the sum of 2²⁶ such halves exactly.
    """
    total = 0
    for start in range(0, flat.size, SUMMED):
        part = np.nan_to_num(flat[start : start + SUMMED], nan=0.0)
        mantissas, exponents = np.frexp(part)
        whole = np.ldexp(mantissas, 53).astype(np.int64)
        places = exponents - LEAST_EXPONENT
        high, low = (np.bincount(places, weights=half) for half in (whole >> 26, whole & (2**26 - 1)))
        for place in np.flatnonzero((high != 0) | (low != 0)).tolist():
            total += ((int(high[place]) << 26) + int(low[place])) << place
    return Fraction(total) * Fraction(2) ** (LEAST_EXPONENT - 53)
