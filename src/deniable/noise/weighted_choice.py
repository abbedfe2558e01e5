"""Choice among weights w_i e^(u_i): draw by integer upper bounds, then accept with the exact probability.

The upper bounds W_i are 64-bit integers, computed for all items at once. Item i is drawn with probability exactly
W_i/ΣW, and accepted with probability 2^S w_i e^(u_i - top)/W_i, which is at least 1 - 2^-17 for every item of some
weight. Only the drawn item is evaluated in larger integers, so a choice among a million items costs little more than
adding up their bounds.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeGuard, final

import numpy as np
import numpy.typing as npt

from deniable import arguments
from deniable.errors import NOTHING, InvalidParameter
from deniable.noise import noise_arguments
from deniable.noise.entropy import Entropy
from deniable.noise.integer_enclosures import Bounds, exp_minus
from deniable.noise.inversion_table import WORD, Integers, Sampler
from deniable.noise.simple_samplers import Uniform

FRACTION = 20
"""Exponents are rounded up to steps of 2^-20: a bound is at most a few millionths too large."""

HEIGHT = 40
"""Bounds are counted in steps of 2^-40 of the largest."""

VECTOR_REACH = 2**40
"""Exponents up to this size are processed as arrays; larger ones as Python integers."""

SURE = (1 << WORD) - (1 << (WORD - 16))
HEAVY = 1 << 24
"""An item whose bound is at least this is accepted with probability above 1 - 2^-17, so certainly if u < 1 - 2^-16."""

DEEPEST = 30
"""e^-30 is below one step."""

LOWEST = 2**60
"""Most steps below the top that are stored: items further below are treated as if they were there."""

Numbers = npt.NDArray[Any] | list[Fraction]


@lru_cache(maxsize=1)
def _tables() -> tuple[Integers, Integers, Integers, Bounds]:
    """Upper bounds of e^-a in steps of 2^-40, of e^(-b/2^10) and e^(-c/2^20) in steps of 2^-31, and of ln 2."""
    whole = [exp_minus(Fraction(a), HEIGHT)[1] for a in range(DEEPEST)]
    coarse = [exp_minus(Fraction(b, 2**10), 31)[1] for b in range(2**10)]
    fine = [exp_minus(Fraction(c, 2**20), 31)[1] for c in range(2**10)]
    # ln 2 = Σ 1/(n 2^n); the remainder after 64 terms is less than 2^-64.
    ln2 = sum((Fraction(1, n << n) for n in range(1, 65)), start=Fraction(0))
    low = int(ln2 * 2 ** (2 * FRACTION))
    wholes, coarses, fines = (np.array(each, dtype=np.int64) for each in (whole, coarse, fine))
    return wholes, coarses, fines, (low, low + 2)


def _at_most(gaps: Integers) -> Integers:
    """Upper bounds of e^(-gap/2^20), in steps of 2^-40."""
    whole, coarse, fine, _ = _tables()
    part: Integers = coarse[(gaps >> 10) & 1023]
    part *= fine[gaps & 1023]
    part >>= HEIGHT
    part += 1  # now in steps of 2^-22
    part *= whole[np.minimum(gaps >> FRACTION, DEEPEST - 1)]
    part >>= 22
    part += 1
    return part


def is_below(u: int, bits: int, factor: Fraction, z: Fraction, entropy: Entropy) -> bool:
    """Whether u < factor e^-z, for the uniform u that begins with these bits; factor > 0, z of either sign."""
    extra = abs(factor.numerator.bit_length() - factor.denominator.bit_length()) + 2
    while True:
        precision = bits + WORD + extra
        if z >= 0:
            low, high = exp_minus(z, precision)
        else:
            # e^|z| < 2^(3|z|/2): with this many more bits, the divisor stays large.
            precision += 3 * int(-z) + 3
            below, above = exp_minus(-z, precision)
            low, high = (1 << (2 * precision)) // above, (1 << (2 * precision)) // below + 1
        # Both sides times the denominator and 2^(bits + precision).
        left, step = u * factor.denominator << precision, factor.denominator << precision
        if left + step <= low * factor.numerator << bits:
            return True
        if left >= high * factor.numerator << bits:
            return False
        u = u << WORD | entropy.word()
        bits += WORD


def _numbers(name: str, values: Any) -> Numbers:
    """Finite numbers, as an array if one can store them. They may be computed from data, so errors do
    not contain them.
    """
    if not noise_arguments.is_sequence(values):
        raise InvalidParameter(name, NOTHING, "must be a sequence of numbers")
    listed = values if hasattr(values, "__len__") else list(values)
    try:
        array = noise_arguments.array(listed)
    except (TypeError, ValueError):  # rows of different lengths
        array = np.empty(0, dtype=object)
    if np.ma.is_masked(values):
        raise InvalidParameter(name, NOTHING, "must not have masked entries")
    if array.ndim != 1 or array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        return noise_arguments.rationals(name, listed)
    if not array.size:
        raise InvalidParameter(name, NOTHING, "must not be empty")
    if not np.all(np.isfinite(array)):
        raise InvalidParameter(name, NOTHING, "each entry must be finite")
    return array.astype(np.float64, copy=False) if array.dtype.kind == "f" else array


def _are_within(values: Numbers, reach: int) -> TypeGuard[npt.NDArray[Any]]:
    return isinstance(values, np.ndarray) and bool(-reach <= values.min() and values.max() <= reach)


def _as_arrays(log_weights: npt.NDArray[Any], weights: npt.NDArray[Any]) -> tuple[Integers, Integers]:
    """Integers s_i and m_i <= 2^20 with w_i e^(u_i) <= (m_i/2^20) e^(s_i/2^20), less than three steps of s_i apart.

    No float is rounded here: a power of two changes only the exponent, and floor and ceiling are exact.
    """
    if log_weights.dtype.kind == "f":
        sizes = np.floor(np.ldexp(log_weights, FRACTION)).astype(np.int64) + 1
    else:
        sizes = log_weights.astype(np.int64) << FRACTION
    mantissas, exponents = np.frexp(weights.astype(np.float64))
    _, _, _, (low, high) = _tables()
    powers = exponents.astype(np.int64)
    sizes += (np.maximum(powers * low, powers * high) >> FRACTION) + 1
    return sizes, np.ceil(np.ldexp(mantissas, FRACTION)).astype(np.int64)


def _one_by_one(log_weights: Numbers, weights: Numbers) -> tuple[Integers, Integers, int]:
    """As `_as_arrays`, for numbers of any size; the s_i are relative to the third value returned."""
    _, _, _, (low, high) = _tables()
    sizes, mantissas = [], []
    for i in range(len(log_weights)):
        u, w = _exact(log_weights, i), _exact(weights, i)
        power = w.numerator.bit_length() - w.denominator.bit_length() + 1  # w < 2^power
        sizes.append((u.numerator << FRACTION) // u.denominator + (max(power * low, power * high) >> FRACTION) + 2)
        mantissas.append(math.ceil(w * Fraction(2) ** (FRACTION - power)))
    base = max(size for size, mantissa in zip(sizes, mantissas, strict=True) if mantissa)
    near = [min(max(size - base, -LOWEST), 0) for size in sizes]
    return np.array(near, dtype=np.int64), np.array(mantissas, dtype=np.int64), base


def _exact(values: Numbers, i: int) -> Fraction:
    return arguments.rational("", values[i])


@final
class Chooser(Sampler):
    """The index i with probability ∝ w_i e^(u_i)."""

    __slots__ = ("_bounds", "_log_weights", "_sums", "_top", "_unit", "_weights")

    AHEAD = 1  # made for one call

    def __init__(self, log_weights: Any, weights: Any) -> None:
        super().__init__()
        self._log_weights = _numbers("log_weights", log_weights)
        count = len(self._log_weights)
        self._weights: Numbers = np.ones(count) if weights is None else _numbers("weights", weights)
        if len(self._weights) != count:
            raise InvalidParameter("weights", NOTHING, "must have as many entries as log_weights")
        if np.min(self._weights) < 0 or np.max(self._weights) == 0:  # type: ignore[arg-type]  # NumPy's types lack arrays of Fraction
            raise InvalidParameter("weights", NOTHING, "must not be negative, and not all zero")
        base = 0
        if _are_within(self._log_weights, VECTOR_REACH) and _are_within(self._weights, 2**53):
            sizes, mantissas = _as_arrays(self._log_weights, self._weights)
        else:
            sizes, mantissas, base = _one_by_one(self._log_weights, self._weights)
        top = int(sizes[mantissas > 0].max())
        bounds = _at_most(np.maximum(top - sizes, 0))  # items above the top have weight 0
        bounds *= mantissas
        drop = FRACTION + max(0, count.bit_length() + HEIGHT + 2 - WORD)  # so that the sum fits into 63 bits
        bounds >>= drop
        bounds += mantissas > 0
        self._bounds = bounds
        self._sums = np.cumsum(bounds)
        self._top = Fraction(top + base, 1 << FRACTION)
        self._unit = Fraction(1 << (HEIGHT + FRACTION - drop))

    def one(self, entropy: Entropy) -> int:
        uniform = Uniform(int(self._sums[-1]))
        while True:
            i = int(np.searchsorted(self._sums, uniform.one(entropy), side="right"))
            word = entropy.word()
            if (word < SURE and self._bounds[i] >= HEAVY) or self._is_kept(i, word, entropy):
                return i

    def fill(self, out: Integers, entropy: Entropy) -> None:
        Uniform(int(self._sums[-1])).fill(out, entropy)
        out[:] = np.searchsorted(self._sums, out, side="right")
        words = entropy.words(out.size)
        rejected = [
            place
            for place in np.flatnonzero((self._bounds[out] < HEAVY) | (words >= SURE)).tolist()
            if not self._is_kept(int(out[place]), int(words[place]), entropy)
        ]
        self.redraw(out, np.array(rejected, dtype=np.intp), entropy)

    def _is_kept(self, i: int, word: int, entropy: Entropy) -> bool:
        factor = _exact(self._weights, i) * self._unit / int(self._bounds[i])
        return is_below(word, WORD, factor, self._top - _exact(self._log_weights, i), entropy)
