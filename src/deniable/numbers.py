"""Exact numbers, and their rounding to the safe side: the roundings and roots that all other modules use.

- `rational`: the exact value of a number of any type.
- `up`, `down`, `least_float`: an exact number as the nearest float on one side.
- `around`: the two floats next to a number, for an argument that is read to one side here and to the other there.
- `above`, `below`: the next float. Above the nearest float of a number is an upper bound of that number.
- `root_up`, `root_down`, `float_root_down`: square roots, rounded to one side.
- `whole`, `square`, `raised_to_root`, `steps`: sensitivities that were computed in floats.

Three modules build on these: `arguments` checks arguments, `curves.decimal_arithmetic` has the normal distribution to
sixty digits, and `curves.outward_rounding` moves whole arrays outwards by a bound on their floating-point error. Only
this module and `curves.outward_rounding` step from a float to the next one; a test searches the sources for others.

**Computed sensitivities.** The library reads a float as the rational number that it stores. But a sensitivity is often
*computed* in floats, and then stores a little less than intended: math.sqrt(3) < √3, and (0.1 + 0.7) * 10 < 8. If such
a number is used as it is, the error is in the last digit of a promise. If it is rounded down to a whole number, because
a statistic of whole numbers changes by whole numbers, the error is a whole unit: noise for 7 instead of 8. So before a
bound is rounded down, it is raised by what floating-point roundings may have taken from it.

Raising a bound is safe: a statistic that changes by at most 7.999999999 also changes by at most 8. It adds noise for
one more unit if the sensitivity lies within one part in 2³² below a whole number (2²⁰ if single precision can store it,
2¹² if that is its type). For any other sensitivity the noise is unchanged.
"""

from __future__ import annotations

import math
import struct
from decimal import Context, Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any, Final, final

FEW: Final = 8
"""The number of roundings that `raised_to_root` and `steps` allow for."""

MANY: Final = 2**21
"""The number of roundings that `whole` and `square` allow for: a sum or product of two million rounded numbers has
no more.
"""

SHORT: Final = 2**12
"""The same for numpy's shorter floats, in which nobody sums millions of numbers."""

HIGHEST: Final = Fraction(1, 2**8)
"""The most by which a number is raised, relative to itself: half precision has eleven bits only."""

LARGEST_SQUARE: Final = 2**32
"""`raised_to_root` looks for a root √k only if x² is at most this: every larger float is near some root by chance."""


LARGEST_SINGLE_SQUARE: Final = 2**16
"""The same for a number that single precision can store."""


def rational(given: Any) -> Fraction:
    """The exact value of a finite number of any type, as a Fraction. (NumPy's longdouble has more digits than a float.)

    Raises ValueError or OverflowError if it is not finite, and TypeError if its exact value is not known: a number of
    another library with more digits than a float (mpmath, sympy) does not tell it.
    """
    if type(given) is Fraction:
        return given
    if isinstance(given, Rational):
        return Fraction(int(given.numerator), int(given.denominator))
    if hasattr(given, "as_integer_ratio"):
        return Fraction(*given.as_integer_ratio())
    nearest = float(given)
    if math.isfinite(nearest) and nearest != given:
        raise TypeError("only the nearest float of this number is known")
    return Fraction(*nearest.as_integer_ratio())


@final
class Rounded(float):
    """A float that was computed from numbers of a shorter type, and has their rounding errors."""

    roundoff: Fraction

    @classmethod
    def as_of(cls, value: float, given: Any) -> float:
        """`value`, which was computed from `given`: an ordinary float, unless the type of `given` is shorter.

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
    """The unit roundoff of a number's type: 2⁻⁵³ for float64 and for more precise types, 2⁻²⁴ and 2⁻¹¹ for numpy's
    shorter floats and for `Rounded` numbers made of them.
    """
    if isinstance(given, Rounded):
        return given.roundoff
    dtype = getattr(given, "dtype", None)
    short = {2: 11, 4: 24}.get(dtype.itemsize, 53) if dtype is not None and dtype.kind == "f" else 53
    return Fraction(1, 2**short)


def whole(given: Any) -> int:
    """The largest whole number that a bound on whole numbers allows: ⌊x⌋, or k if x is below k by rounding only.

    >>> x = (0.1 + 0.7) * 10
    >>> int(x), whole(x), whole(7.9)
    (7, 8, 7)
    """
    x = rational(given)
    return x.numerator if _is_whole(x, given) else math.floor(x * (1 + _margin(given)))


def square(given: Any) -> int:
    """The largest squared length that a bound on the length of whole vectors allows: ⌊x²⌋, or k if x is below √k by
    rounding only.

    >>> x = math.sqrt(3)
    >>> math.floor(Fraction(x) ** 2), square(x)
    (2, 3)
    """
    x = rational(given)
    return x.numerator**2 if _is_whole(x, given) else math.floor((x * (1 + _margin(given))) ** 2)


def _margin(given: Any) -> Fraction:
    """The relative amount by which `whole` and `square` raise a number before they round it down."""
    one = roundoff(given)
    if one > Fraction(1, 2**53):
        return min(SHORT * one, HIGHEST)
    return Fraction(1, 2**20) if _was_single(given) else MANY * one


def _was_single(given: Any) -> bool:
    """Whether single precision can store this number.

    `float(x)` and `x.item()` of a float32 lose the type and keep its rounding errors. For such numbers `_margin` allows
    for sixteen roundings only, because exact numbers such as 2192.75 fit into single precision too.
    """
    x = rational(given)
    try:
        return Fraction(*struct.unpack("f", struct.pack("f", float(x)))) == x
    except OverflowError:
        return False


def _is_whole(x: Fraction, given: Any) -> bool:
    """Whether this is certainly a whole number: its type is exact, or its floats distinguish whole numbers."""
    return x.denominator == 1 and (isinstance(given, Rational) or x * roundoff(given) < 1)


def raised_to_root(given: Any) -> Fraction:
    """A bound on real numbers: x itself, or √k if x is below it by a few roundings.

    √k is rounded up, or exact if k is a square. One rounding has the size of x's type, or of single precision if that
    can store x, as for `float(np.sqrt(np.float32(3)))`.

    >>> x = math.sqrt(3)
    >>> Fraction(x) ** 2 < 3 <= raised_to_root(x) ** 2
    True
    >>> raised_to_root(0.3) == Fraction(0.3)
    True
    """
    x = rational(given)
    if x * x > LARGEST_SQUARE or _is_whole(x, given):
        return x
    near = math.ceil(x * x)
    single = Fraction(1, 2**24) if _was_single(given) and x * x <= LARGEST_SINGLE_SQUARE else Fraction(0)
    margin = FEW * max(roundoff(given), single)
    return root_up(Fraction(near)) if x * x < near <= (x * (1 + margin)) ** 2 else x


def steps(exact: Fraction) -> int:
    """The number of whole steps of a fine grid within a bound: ⌊x⌋, after raising x by a few roundings."""
    return math.floor(exact * (1 + FEW * roundoff(None)))


def above(x: float) -> float:
    """The next float above x."""
    return math.nextafter(x, math.inf)


def below(x: float) -> float:
    """The next float below x."""
    return math.nextafter(x, -math.inf)


def up(exact: Fraction) -> float:
    """The smallest float that is at least `exact`; OverflowError beyond the range of floats."""
    nearest = float(exact)
    return _finite(nearest if nearest >= exact else above(nearest))


def down(exact: Fraction) -> float:
    """The largest float that is at most `exact`; OverflowError beyond the range of floats."""
    nearest = float(exact)
    return _finite(nearest if nearest <= exact else below(nearest))


def _finite(rounded: float) -> float:
    if math.isinf(rounded):
        raise OverflowError("no float lies on this side of the number")
    return rounded


def least_float(exact: Fraction | Decimal) -> float:
    """The smallest float that is at least `exact`, where inf counts as a float: for floats x, x >= exact is the same as
    x >= this.
    """
    try:
        nearest = float(exact)
    except OverflowError:
        nearest = math.inf if exact > 0 else -math.inf
    return nearest if nearest >= exact else above(nearest)


def around(number: Any) -> tuple[float, float]:
    """The largest float that is at most this number, and the smallest that is at least it, where infinities count as
    floats: twice the same float if a float stores the number.

    >>> around(0.5), around(2**53 + 1)
    ((0.5, 0.5), (9007199254740992.0, 9007199254740994.0))
    """
    nearest = float(number)
    # NumPy compares its integers with floats as floats.
    exact = rational(number) if isinstance(number, Rational) else number
    if nearest == exact or math.isnan(nearest):
        return nearest, nearest
    return (below(nearest), nearest) if nearest > exact else (nearest, above(nearest))


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
    """The largest float at most √exact; OverflowError beyond the range of floats.

    >>> float_root_down(Fraction(3, 2**1076)) == math.sqrt(3) / 2**538
    True
    """
    # Cut off after more bits than a float has: no float lies between this number and √exact.
    shift = max(0, 64 - (exact.numerator.bit_length() - exact.denominator.bit_length()) // 2)
    return down(Fraction(math.isqrt(math.floor(exact * 4**shift)), 2**shift))


def plain(given: Any) -> Any:
    """A NumPy scalar or a pandas Timestamp as the equal Python value; anything else unchanged."""
    library, dtype = type(given).__module__.partition(".")[0], getattr(given, "dtype", None)
    if library == "numpy" and dtype is not None and getattr(given, "ndim", None) == 0:
        # Python has no type for nanoseconds: .item() would return an int.
        kind, _, unit = str(dtype).partition("[")
        finer = dtype.kind in "mM" and unit.endswith(("ns]", "ps]", "fs]", "as]"))
        return given.astype(f"{kind}[us]").item() if finer else given.item()
    return given.to_pydatetime() if library == "pandas" and hasattr(given, "to_pydatetime") else given


def plain_list(given: Any) -> Any:
    """A NumPy array or pandas Series of one dimension as a list of Python values; anything else unchanged."""
    of_library = type(given).__module__.partition(".")[0] in {"numpy", "pandas"}
    if not of_library or getattr(given, "ndim", None) != 1:
        return given
    return [plain(each) for each in given] if getattr(given.dtype, "kind", "") in "mM" else given.tolist()


_PLENTY: Final = Context(prec=40)
"""A decimal context with more digits than a float prints; the caller's may have fewer."""


def percent(share: float) -> str:
    """A share in per cent, with all of its printed digits: 0.95 is 95, and 0.9999999999 is not 100.

    >>> percent(0.95), percent(0.9999999999999999)
    ('95', '99.99999999999999')
    """
    return f"{_PLENTY.normalize(_PLENTY.scaleb(Decimal(repr(float(share))), 2)):f}"


def onto_simplex(values: Any, total: float = 1.0) -> Any:
    """The nearest vector of entries at least 0 that sum to `total`: subtract one number, cut at 0 (Duchi et al. 2008).

    >>> import numpy as np
    >>> onto_simplex(np.array([0.75, 0.5, -0.25])).tolist()
    [0.625, 0.375, 0.0]
    """
    import numpy as np  # ledgers use this module, and do not need numpy

    falling = np.sort(values)[::-1]
    over = (np.cumsum(falling) - total) / np.arange(1, len(falling) + 1)
    kept = np.flatnonzero(falling > over)
    # `kept` is empty only if total is 0, by rounding: then all entries become 0.
    return np.maximum(values - over[kept[-1] if len(kept) else 0], 0.0)
