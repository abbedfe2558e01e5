"""A number that somebody wrote, made exact on the safe side: the one place that rounds bounds.

A float is the rational number that it stores, and every room takes it so. But a sensitivity is often *computed* in
floats, and then stores a little less than was meant: math.sqrt(3) lies below √3, (0.1 + 0.7) * 10 below 8. Where such a
number stays what it is, the little is lost in the last digit of a promise. Where it is rounded down to the next whole
number, because a statistic of whole numbers moves by whole numbers, it becomes a whole unit: noise for 7 where 8 was
meant. So whatever rounds a bound down raises it first by what roundings may have taken away.

Raising a bound is the safe side: a statistic that moves by at most 7.999999999 also moves by at most 8. All it can cost
is noise: one unit for a sensitivity within one part in 2³² below a whole number, 2²⁰ where single precision can store
it, 2¹² where that is its type, and nothing for any other.
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any, Final, final

FEW: Final = 8
"""Roundings that a number may have behind it which is taken for what it stores: `meant` and `steps`."""

MANY: Final = 2**21
"""Roundings that a number may have behind it which is rounded down to a whole one: `whole` and `square`. A sum of two
million rounded terms, or a product of as many factors, ends within them.
"""

SHORT: Final = 2**12
"""The same of numpy's shorter floats, in which nobody adds up millions."""

HIGHEST: Final = Fraction(1, 2**8)
"""The largest share of itself by which such a number is raised: half precision keeps eleven bits only."""

TELLS: Final = 2**32
"""Beyond this, every float has the root of some whole number within a few roundings; then that says nothing."""


SINGLE_TELLS: Final = 2**16
"""The same of a number that single precision can store."""


def rational(given: Any) -> Fraction:
    """The rational number that a finite number is, whatever its type: numpy's longdouble has more digits than a float.

    ValueError or OverflowError for what is not finite.
    """
    if isinstance(given, Rational):
        return Fraction(int(given.numerator), int(given.denominator))
    exact = given if hasattr(given, "as_integer_ratio") else float(given)
    return Fraction(*exact.as_integer_ratio())


@final
class Rounded(float):
    """A float made of a number of a shorter type, or of several: it still has the roundings of that type behind it."""

    roundoff: Fraction

    @classmethod
    def as_of(cls, value: float, given: Any) -> float:
        """`value`, which was made of `given`: a plain float, unless `given` is shorter than one.

        >>> import numpy as np
        >>> ten = Rounded.as_of(float(np.float32(0.7)) * 10, np.float32(0.7))
        >>> ten < 7, whole(float(ten)), whole(ten)
        (True, 6, 7)
        """
        one = roundoff(given)
        if one <= roundoff(None):
            return value
        made = cls(value)
        made.roundoff = one
        return made


def roundoff(given: Any) -> Fraction:
    """The largest share of itself that one rounding takes from a number of this type: 2⁻⁵³ for float64 and for what is
    at least as precise, 2⁻²⁴ and 2⁻¹¹ for numpy's shorter floats and for what was made of them.
    """
    if isinstance(given, Rounded):
        return given.roundoff
    dtype = getattr(given, "dtype", None)
    short = {2: 11, 4: 24}.get(dtype.itemsize, 53) if dtype is not None and dtype.kind == "f" else 53
    return Fraction(1, 2**short)


def whole(given: Any) -> int:
    """The largest whole number that a bound on whole numbers allows: ⌊x⌋, or k where x lies a hair below k.

    >>> x = (0.1 + 0.7) * 10
    >>> int(x), whole(x), whole(7.9)
    (7, 8, 7)
    """
    x = rational(given)
    return x.numerator if _is_whole(x, given) else math.floor(x * (1 + _hair(given)))


def square(given: Any) -> int:
    """The largest squared length that a bound on the length of whole vectors allows: ⌊x²⌋, or k where x lies a hair
    below √k.

    >>> x = math.sqrt(3)
    >>> math.floor(Fraction(x) ** 2), square(x)
    (2, 3)
    """
    x = rational(given)
    return x.numerator**2 if _is_whole(x, given) else math.floor((x * (1 + _hair(given))) ** 2)


def _hair(given: Any) -> Fraction:
    one = roundoff(given)
    if one > Fraction(1, 2**53):
        return min(SHORT * one, HIGHEST)
    return Fraction(1, 2**20) if _was_single(given) else MANY * one


def _was_single(given: Any) -> bool:
    """Whether this is a number that single precision can store: `float(x)`, `x.item()` and a Fraction of either forget
    that type, not its roundings. Sixteen of them are granted then: 2192.75 is such a number as well, and means itself.
    """
    x = rational(given)
    try:
        return Fraction(*struct.unpack("f", struct.pack("f", float(x)))) == x
    except OverflowError:
        return False


def _is_whole(x: Fraction, given: Any) -> bool:
    """Whether this is a whole number for certain: of a type that is exact, or small enough for its floats to tell."""
    return x.denominator == 1 and (isinstance(given, Rational) or x * roundoff(given) < 1)


def meant(given: Any) -> Fraction:
    """A bound on real numbers: x as it is, or √k (rounded up; k itself if k is a square) where x falls short of it by a
    few roundings: of its own type, or of single precision where that can store it, as `float(np.sqrt(np.float32(3)))`.

    >>> x = math.sqrt(3)
    >>> Fraction(x) ** 2 < 3 <= meant(x) ** 2
    True
    >>> meant(0.3) == Fraction(0.3)
    True
    """
    x = rational(given)
    if x * x > TELLS or _is_whole(x, given):
        return x
    near = math.ceil(x * x)
    single = Fraction(1, 2**24) if _was_single(given) and x * x <= SINGLE_TELLS else Fraction(0)
    hair = FEW * max(roundoff(given), single)
    return root_up(Fraction(near)) if x * x < near <= (x * (1 + hair)) ** 2 else x


def steps(exact: Fraction) -> int:
    """The whole steps of a fine grid that a bound reaches: ⌊x⌋ of what a few roundings more would be."""
    return math.floor(exact * (1 + FEW * roundoff(None)))


def up(exact: Fraction) -> float:
    """The smallest float that is at least `exact`; OverflowError beyond all of them."""
    nearest = float(exact)
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def down(exact: Fraction) -> float:
    """The largest float that is at most `exact`; OverflowError beyond all of them."""
    nearest = float(exact)
    return nearest if nearest <= exact else math.nextafter(nearest, -math.inf)


def least_float(exact: Fraction | Decimal) -> float:
    """The smallest float that is at least `exact`, where inf counts as a float: for floats x, x >= exact is the same as
    x >= this.
    """
    try:
        nearest = float(exact)
    except OverflowError:
        nearest = math.inf if exact > 0 else -math.inf
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def root_up(exact: Fraction, *, bits: int = 60) -> Fraction:
    """A rational number at least √exact, and at most one part in 2^bits larger; the root itself, where it is rational.

    >>> root_up(Fraction(1, 100)), root_up(Fraction(2)) ** 2 > 2
    (Fraction(1, 10), True)
    """
    over, under = math.isqrt(exact.numerator), math.isqrt(exact.denominator)
    if (over * over, under * under) == (exact.numerator, exact.denominator):
        return Fraction(over, under)
    shift = max(0, bits + (exact.denominator.bit_length() - exact.numerator.bit_length()) // 2 + 1)
    scaled = math.ceil(exact * 4**shift)
    root = math.isqrt(scaled)
    return Fraction(root + (root * root < scaled), 2**shift)


def root_down(exact: Fraction, *, places: int = 60) -> Fraction:
    """√exact, cut to this many decimal places.

    >>> root_down(Fraction(2), places=3)
    Fraction(707, 500)
    """
    return Fraction(math.isqrt(math.floor(exact * 100**places)), 10**places)


def float_root_down(exact: Fraction) -> float:
    """A float at most √exact: the largest one, or one of the few below it."""
    root = math.sqrt(exact)
    while Fraction(root) ** 2 > exact:
        root = math.nextafter(root, 0.0)
    return root


def plain(given: Any) -> Any:
    """A NumPy scalar (or a pandas Timestamp) as the value of Python that it stands for; anything else as it is."""
    library, dtype = type(given).__module__.partition(".")[0], getattr(given, "dtype", None)
    if library == "numpy" and dtype is not None and getattr(given, "ndim", None) == 0:
        # Nanoseconds have no type in Python, and a number of them would be taken for a number.
        return given.astype("datetime64[us]").item() if str(dtype) == "datetime64[ns]" else given.item()
    return given.to_pydatetime() if library == "pandas" and hasattr(given, "to_pydatetime") else given


def percent(share: float) -> str:
    """A share in per cent, with all the digits that it prints with: 0.95 is 95, and 0.9999999999 is not 100.

    >>> percent(0.95), percent(0.9999999999999999)
    ('95', '99.99999999999999')
    """
    return f"{(Decimal(repr(float(share))) * 100).normalize():f}"


def onto_simplex(values: Any, total: float = 1.0) -> Any:
    """The nearest vector of entries at least 0 that sum to `total`: subtract one number, cut at 0 (Duchi et al. 2008).

    >>> import numpy as np
    >>> onto_simplex(np.array([0.75, 0.5, -0.25])).tolist()
    [0.625, 0.375, 0.0]
    """
    import numpy as np  # a ledger needs numbers, and no arrays

    falling = np.sort(values)[::-1]
    over = (np.cumsum(falling) - total) / np.arange(1, len(falling) + 1)
    kept = np.flatnonzero(falling > over)
    # None only for a total of 0 and a rounding: then nothing is left of any entry.
    return np.maximum(values - over[kept[-1] if len(kept) else 0], 0.0)
