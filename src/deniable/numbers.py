"""Exact numbers on the safe side: the only module that rounds bounds up or down.

A float is taken as the rational number that it stores. But a sensitivity is often *computed* in floats, and then it is
slightly too small: math.sqrt(3) lies below √3, and (0.1 + 0.7) * 10 below 8. Used as a real number, such a bound is
wrong in its last digit. Rounded down to an integer (a statistic of integers moves by integers), it is wrong by a whole
unit: noise for 7 where 8 was intended. So every function that rounds a bound down first raises it by the most that
earlier roundings may have taken away.

Raising a bound is safe: a statistic that moves by at most 7.999999999 also moves by at most 8. The price is extra noise
of one unit, and only for a sensitivity just below an integer: within one part in 2³² of it, in 2²⁰ if single precision
can store the number, in 2¹² if its type is single precision.
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any, Final, final

FEW: Final = 8
"""Roundings that `meant` and `steps` allow for: a number that came from a short computation."""

MANY: Final = 2**21
"""Roundings that `whole` and `square` allow for. A sum of two million rounded terms, or a product of as many factors,
has no more.
"""

SHORT: Final = 2**12
"""As `MANY`, for NumPy's shorter floats, in which sums of millions of terms are rare."""

HIGHEST: Final = Fraction(1, 2**8)
"""The largest relative amount by which such a number is raised: half precision has only eleven bits."""

TELLS: Final = 2**32
"""Above this, every float lies within a few roundings of the square root of some integer, so `meant` cannot recognise
one.
"""


SINGLE_TELLS: Final = 2**16
"""As `TELLS`, for a number that single precision can store."""


def rational(given: Any) -> Fraction:
    """The exact value of a finite number of any type, as a Fraction. (NumPy's longdouble has more digits than a float.)

    Raises ValueError or OverflowError if it is not finite.
    """
    if isinstance(given, Rational):
        return Fraction(int(given.numerator), int(given.denominator))
    exact = given if hasattr(given, "as_integer_ratio") else float(given)
    return Fraction(*exact.as_integer_ratio())


@final
class Rounded(float):
    """A float computed from numbers of a shorter type: `roundoff` keeps the precision of that type."""

    roundoff: Fraction

    @classmethod
    def as_of(cls, value: float, given: Any) -> float:
        """`value`, which was computed from `given`: a plain float, or a `Rounded` if `given` is less precise than a
        float.

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
    """The largest relative error of one rounding in the type of `given`: 2⁻⁵³ for float64 and anything more precise,
    2⁻²⁴ and 2⁻¹¹ for NumPy's shorter floats and for a `Rounded` computed from them.
    """
    if isinstance(given, Rounded):
        return given.roundoff
    dtype = getattr(given, "dtype", None)
    short = {2: 11, 4: 24}.get(dtype.itemsize, 53) if dtype is not None and dtype.kind == "f" else 53
    return Fraction(1, 2**short)


def whole(given: Any) -> int:
    """The largest integer within a bound on an integer: ⌊x⌋, or k if x lies below k by rounding errors only.

    >>> x = (0.1 + 0.7) * 10
    >>> int(x), whole(x), whole(7.9)
    (7, 8, 7)
    """
    x = rational(given)
    return x.numerator if _is_whole(x, given) else math.floor(x * (1 + _hair(given)))


def square(given: Any) -> int:
    """The largest squared length within a bound on the length of an integer vector: ⌊x²⌋, or k if x lies below √k by
    rounding errors only.

    >>> x = math.sqrt(3)
    >>> math.floor(Fraction(x) ** 2), square(x)
    (2, 3)
    """
    x = rational(given)
    return x.numerator**2 if _is_whole(x, given) else math.floor((x * (1 + _hair(given))) ** 2)


def _hair(given: Any) -> Fraction:
    """The relative amount by which a number is raised before it is rounded down."""
    one = roundoff(given)
    if one > Fraction(1, 2**53):
        return min(SHORT * one, HIGHEST)
    return Fraction(1, 2**20) if _was_single(given) else MANY * one


def _was_single(given: Any) -> bool:
    """Whether single precision can store this number: `float(x)`, `x.item()` and a Fraction of either lose the type
    float32 but keep its rounding errors. Only sixteen such roundings are allowed for, because an exact 2192.75 passes
    this test too.
    """
    x = rational(given)
    try:
        return Fraction(*struct.unpack("f", struct.pack("f", float(x)))) == x
    except OverflowError:
        return False


def _is_whole(x: Fraction, given: Any) -> bool:
    """Whether this is an integer for certain: its type is exact, or it is small enough for its float type to resolve
    units.
    """
    return x.denominator == 1 and (isinstance(given, Rational) or x * roundoff(given) < 1)


def meant(given: Any) -> Fraction:
    """A bound on real numbers: x itself, or √k rounded up (k's exact root if k is a square) if x falls short of √k by a
    few roundings, of its own type or of single precision if that can store x, as in `float(np.sqrt(np.float32(3)))`.

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
    """The number of whole grid steps within a bound: ⌊x⌋, after x is raised by a few roundings."""
    return math.floor(exact * (1 + FEW * roundoff(None)))


def up(exact: Fraction) -> float:
    """The smallest float that is at least `exact`. Raises OverflowError if `exact` is beyond all floats."""
    nearest = float(exact)
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def down(exact: Fraction) -> float:
    """The largest float that is at most `exact`. Raises OverflowError if `exact` is beyond all floats."""
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
    """A rational number at least √exact and at most one part in 2^bits larger; exactly √exact if that is rational.

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
    """A NumPy scalar or pandas Timestamp as the Python value that it represents; any other object unchanged."""
    library, dtype = type(given).__module__.partition(".")[0], getattr(given, "dtype", None)
    if library == "numpy" and dtype is not None and getattr(given, "ndim", None) == 0:
        # Python has no type for nanoseconds: .item() would return an int, which callers would take for a number.
        return given.astype("datetime64[us]").item() if str(dtype) == "datetime64[ns]" else given.item()
    return given.to_pydatetime() if library == "pandas" and hasattr(given, "to_pydatetime") else given


def percent(share: float) -> str:
    """A share in per cent, with all its significant digits: 0.95 is "95", and 0.9999999999 is not "100".

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
    import numpy as np  # imported late: ledgers use this module without arrays

    falling = np.sort(values)[::-1]
    over = (np.cumsum(falling) - total) / np.arange(1, len(falling) + 1)
    kept = np.flatnonzero(falling > over)
    # `kept` is empty only if the total is 0 and a rounding intervenes: then every entry becomes 0.
    return np.maximum(values - over[kept[-1] if len(kept) else 0], 0.0)
