"""Exponentials and normal integrals enclosed between two integers: [low, high]/2^bits, without floats.

Everything is fixed-point: a number x is stored as an integer near x 2^bits, and its error is counted in units of
2^-bits ("steps"). Rounding is downwards, so that the error of each operation has a known sign and size; the comments
count it.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import final

Bounds = tuple[int, int]
"""(low, high): a number lies in [low, high]/2^bits."""

GUARD = 32
"""Extra bits inside a computation, which are dropped at the end together with the accumulated errors."""


def exp_minus(x: Fraction, bits: int) -> Bounds:
    """e^-x for x >= 0, to within two steps.

    e^-x = (e^-y)^(2^s) with y = x/2^s < 2^-8, by Taylor's series and s squarings.

    >>> low, high = exp_minus(Fraction(1), 20)
    >>> low, high, 385749  # floor(2^20/e)
    (385749, 385750, 385749)
    """
    if x == 0:
        return 1 << bits, 1 << bits
    if x >= bits:  # e^-bits < 2^-bits
        return 0, 1
    squarings = max(0, x.numerator.bit_length() - x.denominator.bit_length() + 1) + 8
    # Each squaring doubles the error; 8 more bits for the error of the series, and one for the last shift.
    inner = bits + squarings + 16
    y = (x.numerator << inner) // (x.denominator << squarings)
    term = total = 1 << inner
    count = 0
    while term:
        count += 1
        term = term * y // (count << inner)
        total += -term if count % 2 else term
    # Each term is too small by less than 2 steps (its own floor, and 2^-8 of the previous term's error). The series
    # ends where terms fall below one step, and y is too small by less than one step: 2 count + 2 steps in all.
    low, high = total - 2 * count - 2, min(total + 2 * count + 2, 1 << inner)
    for _ in range(squarings):
        low, high = low * low >> inner, (high * high >> inner) + 1
    drop = inner - bits
    return low >> drop, (high >> drop) + 1


def ratio(part: Bounds, whole: Bounds, bits: int) -> Bounds:
    """part/whole for 0 <= part <= whole, both in the same units."""
    return (part[0] << bits) // whole[1], min(-((-part[1] << bits) // whole[0]), 1 << bits)


@final
class NormalIntegral:
    """∫ e^(-t²/2) dt, by Taylor's series around the anchors 0, 1/4, 1/2, ...

    With G(x) the integral from 0 to x, the coefficients d_n = G^(n)(a)/n! satisfy d_(n+1) = -a d_n/(n+1) - (n-1)
    d_(n-1)/(n(n+1)). The remainder after N terms at |h| <= 1/8 is at most 8^-(N+1)/√(N!), by Cramér's inequality
    |He_n(x)| <= 1.09 √(n!) e^(x²/4). No value of π is needed: the last anchor gives the whole integral.
    """

    __slots__ = ("_anchors", "_bits", "_error", "_inner", "_series", "whole")

    STEP = 4
    """Anchors per unit."""

    def __init__(self, bits: int) -> None:
        self._bits = bits
        inner = self._inner = bits + GUARD
        terms, product = 1, 64 * 64
        while product < 1 << (2 * inner):  # 64^(N+1) N!, the inverse square of the remainder
            terms += 1
            product *= 64 * terms
        self._series: list[list[int]] = []
        worst = 0
        last = 0
        while last * last * 5 < 7 * inner * self.STEP**2:  # e^(-a²/2) < 2^-inner, since 1.4 > 2 ln 2
            last += 1
        for i in range(last + 1):
            series, error = self._taylor(i, terms)
            self._series.append(series)
            worst = max(worst, error)
        eighth = 1 << (inner - 3)
        self._anchors = [0]
        for i in range(last):
            middle = self._anchors[i] + self._offset(i, eighth)
            self._anchors.append(middle - self._offset(i + 1, -eighth))
        self._error = (2 * last + 1) * worst
        whole = self._anchors[-1]
        drop = GUARD
        self.whole: Bounds = (whole - self._error) >> drop, ((whole + self._error + 1) >> drop) + 1

    def _taylor(self, i: int, terms: int) -> tuple[list[int], int]:
        """Coefficients at the anchor i/4, and a bound on the error of the series for any |h| <= 1/8."""
        low, high = exp_minus(Fraction(i * i, 2 * self.STEP**2), self._inner)
        series = [0, low]
        errors = [0, high - low]
        for n in range(1, terms):
            below = 4 * n * (n + 1)
            series.append(-(i * n * series[n] + 4 * (n - 1) * series[n - 1]) // below)
            errors.append((i * n * errors[n] + 4 * (n - 1) * errors[n - 1]) // below + 2)
        # Each coefficient's error counts with |h|^n <= 8^-n; Horner's floors add one step each, also times 8^-n; h
        # itself may be one step off, and |G'| <= 1; the remainder is below one step.
        total = sum((error >> (3 * n)) + 1 for n, error in enumerate(errors)) + 8
        return series, total

    def _offset(self, i: int, h: int) -> int:
        """G(a + h) - G(a) at the anchor a = i/4."""
        inner = self._inner
        result = 0
        for coefficient in reversed(self._series[i]):
            result = coefficient + (result * h >> inner)
        return result

    def above(self, x: Fraction) -> Bounds:
        """∫_x^∞ e^(-t²/2) dt for x >= 0."""
        i = (2 * self.STEP * x.numerator + x.denominator) // (2 * x.denominator)  # the nearest anchor
        if i >= len(self._series):
            return 0, 1  # beyond the last anchor a the integral is below e^(-a²/2)/a
        h = ((self.STEP * x.numerator - i * x.denominator) << self._inner) // (self.STEP * x.denominator)
        rest = self._anchors[-1] - self._anchors[i] - self._offset(i, h)
        error = 2 * self._error + 1
        return max(0, rest - error) >> GUARD, ((rest + error) >> GUARD) + 1


@lru_cache(maxsize=4)
def normal_integral(bits: int) -> NormalIntegral:
    """The integral to this many bits, cached."""
    return NormalIntegral(bits)
