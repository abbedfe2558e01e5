"""A wheel of fortune: one of a few items by public weights, built once and used millions of times.

The wheel has 2^16 equal cells. Item i owns as many whole cells as its probability p_i fills: c_i <= 2^16 p_i. They lie
in order, and the R remaining cells lie at the end. A draw is 16 random bits and one look-up. Only if it hits one of the
last R cells (at most n for n items) is a second law needed: item i with probability (2^16 p_i - c_i)/R. Together this
gives exactly p_i.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any, Final, final, overload

import numpy as np
import numpy.typing as npt

from deniable.errors import NOTHING, InvalidParameter
from deniable.noise import noise_arguments
from deniable.noise.entropy import Entropy, given_or_current
from deniable.noise.integer_enclosures import GUARD, exp_minus, ratio
from deniable.noise.inversion_table import CELL_BITS, CELLS, CHUNK, PRECISION, REACH, InversionTable, Scratch
from deniable.noise.noise_arguments import Rational
from deniable.noise.sampled_laws import Cumulative, SampledLaw

MOST_ITEMS: Final = 2**12
"""With this many items, at most one draw in 16 needs the second law."""

Drawn = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
"""Items are numbered in the smallest integer type that fits."""


@final
@dataclass(frozen=True, slots=True)
class Weighted(SampledLaw):
    """P(i) ∝ factors_i e^-gaps_i for i = 0, 1, ..., where some item has gap 0 and factor 1, and no gap is negative."""

    factors: tuple[Fraction, ...]
    gaps: tuple[Fraction, ...]

    @classmethod
    def of(cls, factors: list[Fraction], exponents: list[Fraction]) -> Weighted:
        """From weights factor × e^exponent."""
        top = max(exponents)
        base = max(factor for factor, exponent in zip(factors, exponents, strict=True) if exponent == top)
        return cls(tuple(f / base for f in factors), tuple(top - e for e in exponents))

    def cumulative(self, bits: int, reach: int) -> Cumulative:
        # A factor of 2^e multiplies the error by 2^e.
        inner = bits + GUARD + math.ceil(max(self.factors)).bit_length() + len(self.factors).bit_length()
        known = {gap: exp_minus(gap, inner) for gap in set(self.gaps)}
        pairs = [(known[gap], factor) for gap, factor in zip(self.gaps, self.factors, strict=True)]
        lows = [*accumulate(low * f.numerator // f.denominator for (low, _), f in pairs)]
        highs = [*accumulate(-(-high * f.numerator // f.denominator) for (_, high), f in pairs)]
        shares = [ratio(part, (lows[-1], highs[-1]), bits) for part in zip(lows[:-1], highs[:-1], strict=True)]
        return Cumulative(0, [low for low, _ in shares], [high for _, high in shares], False, False)


@final
@dataclass(frozen=True, slots=True)
class Leftover(SampledLaw):
    """The rest of a law after each item got its whole cells: P(i) = (2^16 p_i - cells_i)/R."""

    law: SampledLaw
    sums: tuple[int, ...]
    """cells_0, cells_0 + cells_1, ..., for all items but the last."""
    left: int
    """R > 0."""

    def cumulative(self, bits: int, reach: int) -> Cumulative:
        """(2^16 F(k) - sums_k)/R. F(k) increases with k, so its lower and upper bounds may be made increasing too."""
        found, one = self.law.cumulative(bits + CELL_BITS, bits + CELL_BITS), 1 << bits
        lows = [(low - (cells << bits)) // self.left for low, cells in zip(found.lows, self.sums, strict=True)]
        highs = [-(((cells << bits) - high) // self.left) for high, cells in zip(found.highs, self.sums, strict=True)]
        # A threshold of 1 does not fit into a word: the last word represents it, and more bits decide there.
        rising = accumulate((min(max(low, 0), one - 1) for low in lows), max)
        falling = [*accumulate((min(max(high, 0), one) for high in reversed(highs)), min)]
        return Cumulative(0, [*rising], falling[::-1], False, False)


def whole_cells(law: SampledLaw) -> list[int]:
    """How many whole cells each item owns: never more than 2^16 p_i, and as many as the enclosures prove."""
    found = law.cumulative(PRECISION, REACH)
    starts, ends = [0, *found.highs], [*found.lows, 1 << PRECISION]
    return [max(0, (end - start) >> (PRECISION - CELL_BITS)) for start, end in zip(starts, ends, strict=True)]


@final
class Wheel:
    """The index i with probability exactly ∝ w_i e^(u_i), where u are the log_weights and w the positive weights
    (default 1).

    For public weights only: the time to build it depends on them, and they stay in memory. At most 4,096 items.

    >>> from deniable import noise
    >>> coin = noise.Wheel(log_weights=[0, 1])  # 1 is e times as likely as 0
    >>> coin.spin() in (0, 1)
    True
    >>> coin.spin(size=1000).dtype
    dtype('uint8')
    """

    __slots__ = ("_guide", "_last", "_leftover")

    def __init__(self, *, log_weights: Iterable[Rational], weights: Iterable[Rational] | None = None) -> None:
        exponents = _several("log_weights", log_weights)
        factors = [Fraction(1)] * len(exponents) if weights is None else _several("weights", weights)
        if len(factors) != len(exponents):
            raise InvalidParameter("weights", NOTHING, "must have as many entries as log_weights")
        if min(factors) <= 0:
            raise InvalidParameter("weights", NOTHING, "each entry must be positive")
        law = Weighted.of(factors, exponents)
        cells = whole_cells(law)
        sums = [*accumulate(cells)]
        self._last = sums[-1] - 1
        """The last cell that is owned."""
        guide = np.zeros(CELLS, dtype=np.uint8 if len(cells) <= 2**8 else np.uint16)
        guide[: sums[-1]] = np.repeat(np.arange(len(cells)), cells)
        self._guide = guide
        left = CELLS - sums[-1]
        self._leftover = InversionTable(Leftover(law, tuple(sums[:-1]), left)) if left else None

    @overload
    def spin(self, *, size: None = None, entropy: Entropy | None = None) -> int: ...
    @overload
    def spin(self, *, size: int | tuple[int, ...], entropy: Entropy | None = None) -> Drawn: ...
    def spin(self, *, size: int | tuple[int, ...] | None = None, entropy: Entropy | None = None) -> int | Drawn:
        """Independent draws: an int, or for a `size` an array of the smallest integer type that fits."""
        source = given_or_current(entropy)
        out = np.empty(() if size is None else noise_arguments.shape(size), dtype=self._guide.dtype)
        self._fill(out.reshape(-1), source)
        return int(out) if size is None else out

    def _fill(self, out: Drawn, entropy: Entropy) -> None:
        scratch, left_open = Scratch(min(out.size, CHUNK)), []
        for at in range(0, out.size, CHUNK):
            part = out[at : at + CHUNK]
            cells = scratch.new_cells(part.size, entropy)
            np.take(self._guide, cells, out=part, mode="clip")
            left_open.append(np.flatnonzero(np.greater(cells, self._last, out=scratch.flags[: part.size])) + at)
        if self._leftover is not None and left_open:
            places = np.concatenate(left_open)
            drawn = np.empty(places.size, dtype=np.int64)
            self._leftover.fill(drawn, entropy)
            out[places] = drawn


def _several(name: str, values: Any) -> list[Fraction]:
    if not noise_arguments.is_sequence(values):
        raise InvalidParameter(name, NOTHING, "must be a sequence of numbers")
    result = noise_arguments.rationals(name, values)
    if len(result) > MOST_ITEMS:
        raise InvalidParameter(name, NOTHING, f"must be at most {MOST_ITEMS:,}", "take noise.choice")
    return result
