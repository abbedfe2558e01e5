"""Arithmetic of the textbook: sixty decimal digits inside, one directed rounding at the end.

A textbook formula is evaluated exactly (`fractions.Fraction`) if it is rational, and otherwise with at least `DIGITS`
decimal digits (`decimal`, whose exp, ln and sqrt are correctly rounded). Differences are arranged, or the precision is
raised, so that at least 40 digits survive; `SLACK` assumes 30. `up` and `down` then return the next float that is
certainly on their side of the exact value. So no formula of the textbook needs an error analysis in binary floating
point, and its numbers are the same on every machine.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext
from fractions import Fraction
from functools import cache
from numbers import Real
from typing import Final, NamedTuple, SupportsIndex

from deniable import arguments
from deniable.arguments import NumberRange
from deniable.errors import OutsideTheorem
from deniable.numbers import least_float

Number = float | Fraction
"""What a caller may pass: an int, a float (taken as the binary number that it stores) or a Fraction."""

DIGITS: Final = 60
SLACK: Final = Decimal("1e-30")
SMALLEST: Final = math.ulp(0.0)
"""The smallest positive float: an upper bound on any smaller positive number."""

_TINY: Final = Decimal("1e-8")


class EpsilonDelta(NamedTuple):
    """An (ε, δ) guarantee, both numbers rounded up."""

    epsilon: float
    delta: float


class AtOrder(NamedTuple):
    """A bound, rounded up, and the order that gives it. Every order gives a valid bound; this order
    gives a good one.
    """

    bound: float
    order: float


# --- arguments: what a number may be  -------------------------------------------------------------------------------


_FINITE: Final = "must be a finite real number"
_FLOATS: Final = NumberRange(_FINITE, above=-arguments.BEYOND_FLOATS, below=arguments.BEYOND_FLOATS)
_NOT_NEGATIVE: Final = NumberRange("must not be negative", least=0)
_POSITIVE: Final = NumberRange("must be above 0", above=0)
_ABOVE_ONE: Final = NumberRange("must be above 1", above=1)
_COUNT: Final = NumberRange("must be a whole number, at least 1", least=1)
_REPRESENTABLE: Final = NumberRange("must be at most 10**300", most=10**300)


def real(name: str, value: Number, *ranges: NumberRange) -> Fraction:
    """The exact value of a finite real number. Raises InvalidParameter for anything else."""
    return arguments.rational(name, value, _FLOATS, *ranges, kind=Real, type_rule=_FINITE, finite_rule=_FINITE)


def non_negative(name: str, value: Number) -> Fraction:
    """A finite number that is at least zero."""
    return real(name, value, _NOT_NEGATIVE)


def positive(name: str, value: Number) -> Fraction:
    """A finite number above zero."""
    return real(name, value, _POSITIVE)


def probability(name: str, value: Number) -> Fraction:
    """A number in [0, 1]."""
    return real(name, value, arguments.PROBABILITY)


def whole(name: str, value: SupportsIndex) -> int:
    """A count: a whole number of at least one."""
    return arguments.whole(name, value, _COUNT, _REPRESENTABLE, type_rule=_COUNT.rule)


def renyi_order(value: Number) -> Fraction:
    """A Rényi order above one."""
    return real("order", value, _ABOVE_ONE)


def some_delta(theorem: str, value: Number, name: str = "delta", remedy: str = "") -> Fraction:
    """A δ in (0, 1]. Raises OutsideTheorem for 0, a valid probability for which this theorem says nothing."""
    exact = probability(name, value)
    if exact == 0:
        raise OutsideTheorem(theorem, f"{name} > 0", f"{name}=0", remedy)
    return exact


# --- results: directed rounding  ------------------------------------------------------------------------------------


def up(value: Decimal | Fraction) -> float:
    """The smallest float certainly at or above the exact value: a Fraction is exact, a Decimal is off by at most
    `SLACK`.
    """
    with digits():
        return least_float(value if isinstance(value, Fraction) else value + abs(value) * SLACK)


def down(value: Decimal | Fraction) -> float:
    """The largest float certainly at or below the exact value."""
    return 0.0 - up(-value if isinstance(value, Fraction) else value.copy_negate())


def up_probability(value: Decimal | Fraction) -> float:
    """`up`, for a probability: never above one."""
    return min(1.0, up(value))


def certainly_at_most(value: Decimal, limit: Fraction) -> bool:
    """Whether the exact value, which `value` approximates within `SLACK`, certainly does not exceed the limit."""
    with digits():
        return value * (1 + SLACK) <= dec(limit) * (1 - SLACK)


def _bits(value: float) -> int:
    """The rank of a non-negative float among all floats."""
    number: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return number


def _from_bits(place: int) -> float:
    number: float = struct.unpack("<d", struct.pack("<q", place))[0]
    return number


def smallest_accepted(accepts: Callable[[float], bool], *, low: float, high: float) -> float:
    """The smallest float in (low, high] that a monotone test accepts, by bisection. The caller guarantees that it
    accepts `high`.
    """
    below, above = _bits(low), _bits(high)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if accepts(_from_bits(middle)) else (middle, above)
    return _from_bits(above)


def largest_accepted(accepts: Callable[[float], bool], *, low: float, high: float) -> float:
    """The largest float in [low, high) that a monotone test accepts, by bisection. The caller guarantees that it
    accepts `low`.
    """
    below, above = _bits(low), _bits(high)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if accepts(_from_bits(middle)) else (below, middle)
    return _from_bits(below)


# --- elementary functions in decimal -------------------------------------------------------------------------------


def digits(count: int = DIGITS) -> AbstractContextManager[Context]:
    """A decimal context of `count` digits, with practically unbounded exponents; overflow gives infinity."""
    return localcontext(Context(prec=count, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation, DivisionByZero]))


def dec(value: Fraction) -> Decimal:
    """The nearest Decimal in the current context."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def log_inverse(delta: Fraction) -> Decimal:
    """log(1/δ) for 0 < δ <= 1, with full relative accuracy also next to δ = 1."""
    if delta == 1:
        return Decimal(0)
    return -log1p(dec(delta - 1)) if delta > Fraction(1, 2) else -dec(delta).ln()


def expm1(x: Decimal) -> Decimal:
    """exp(x) - 1 without cancellation. The series stops at x⁷/7!, a relative 1e-56 below |x| = 1e-8."""
    if abs(x) > _TINY:
        return x.exp() - 1
    return x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7))))))


def log1p(x: Decimal) -> Decimal:
    """log(1 + x) without cancellation; the series as in `expm1`."""
    if abs(x) > _TINY:
        return (1 + x).ln()
    return x * (1 - x * (Decimal(1) / 2 - x * (Decimal(1) / 3 - x * (Decimal(1) / 4 - x * (Decimal(1) / 5 - x / 6)))))


def tanh(x: Decimal) -> Decimal:
    """tanh(x) for x >= 0, through exp(-2x), which cannot overflow."""
    y = expm1(-2 * x)
    return -y / (2 + y)


@cache
def _root_two_pi(precision: int) -> Decimal:
    """√(2π), with π/4 = 4 arctan(1/5) - arctan(1/239) (Machin)."""
    with digits(precision + 10):

        def arctan_inverse(n: int) -> Decimal:
            term = total = Decimal(1) / n
            k = 1
            while abs(term).adjusted() > -precision - 10:
                term = -term / (n * n)
                k += 2
                total += term / k
            return total

        return (8 * (4 * arctan_inverse(5) - arctan_inverse(239))).sqrt()


def density(x: Decimal) -> Decimal:
    """φ(x), the standard normal density, in the digits of the current context."""
    return (-x * x / 2).exp() / _root_two_pi(getcontext().prec)


def _mills_series(x: Decimal, precision: int) -> Decimal:
    """(1 - Φ(x))/φ(x) for 0 <= x <= 5 by Φ(x) = 1/2 + φ(x) Σ x^(2n+1)/(2n+1)!!, whose terms are all positive."""
    with digits(precision + 20):  # at x = 5 the subtraction below costs seven digits
        term = total = x
        n = 1
        while term > total.scaleb(-precision - 15):
            n += 2
            term = term * x * x / n
            total += term
        return Decimal("0.5") / density(x) - total


def _mills_fraction(x: Decimal, precision: int) -> Decimal:
    """(1 - Φ(x))/φ(x) for x > 5 by 1/(x + 1/(x + 2/(x + ...))); successive convergents enclose the value."""

    def convergent(depth: int) -> Decimal:
        value = x
        for n in range(depth, 0, -1):
            value = x + n / value
        return 1 / value

    depth = 10 + int((precision * 2.303 / (2 * float(min(x, Decimal(10**6))))) ** 2 / 2)
    while True:
        first, second = convergent(depth), convergent(depth + 1)
        if abs(first - second) <= first.scaleb(-precision + 8):
            return second
        depth *= 2


def mills(x: Decimal, precision: int = DIGITS) -> Decimal:
    """Mills' ratio (1 - Φ(x))/φ(x) for x >= 0, to about `precision` - 8 digits."""
    return _mills_series(x, precision) if x <= 5 else _mills_fraction(x, precision)


def normal_tail(x: Decimal, precision: int = DIGITS) -> Decimal:
    """1 - Φ(x) for any x."""
    tail = density(abs(x)) * mills(abs(x), precision)
    return tail if x >= 0 else 1 - tail


def gaussian_delta(mu: Fraction, epsilon: Fraction) -> Decimal:
    """δ(ε) of N(0,1) against N(μ,1), ε >= 0: within SLACK of the exact value, or an upper bound below 1e-2000.

    With a = ε/μ - μ/2, b = ε/μ + μ/2 and e^ε φ(b) = φ(a):  δ = (1 - Φ(a)) - φ(a) (1 - Φ(b))/φ(b). The result of the
    subtraction shows how many digits it cancelled; the computation is repeated with that many more.
    """
    if mu == 0:
        return Decimal(0)
    low, high = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if low > 100:
        return Decimal("1e-2000")  # δ <= 1 - Φ(a) < exp(-5000)
    precision = DIGITS
    while True:
        with digits(precision):
            a, b = dec(low), dec(high)
            whole_tail = normal_tail(a, precision)
            delta = whole_tail - density(a) * mills(b, precision)
            lost = whole_tail.adjusted() - delta.adjusted() if delta > 0 else precision
            if precision - lost >= 48:
                return delta
        precision = DIGITS + lost
