"""Noise of large scale: a table for the block, a uniform place inside it, and an exact rejection.

With blocks of 2^m integers, X = 2^m j + r. The table draws j; r is uniform; and the pair is accepted with probability
e^-y, where y = y(j, r) is rational and small, because one scale spans 32 to 64 blocks. Whether u < e^-y is decided in
64-bit integers by the series of e^-y up to y³, which lies below it, and up to y⁴, which lies above it. Where that does
not decide (about once in ten million draws), more bits of u and an integer enclosure of e^-y do.

For Gaussian noise this is Karney's method (*Sampling exactly from the normal distribution*, 2016) with finer blocks.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, TypeVar, final

import numpy as np
import numpy.typing as npt

from deniable.noise.entropy import Entropy, Words
from deniable.noise.integer_enclosures import exp_minus
from deniable.noise.inversion_table import (
    CELL_BITS,
    CELLS,
    CHUNK,
    LIMIT,
    UNDECIDED,
    WORD,
    Cells,
    Flags,
    Integers,
    InversionTable,
    Places,
    Sampler,
    Scratch,
)
from deniable.noise.sampled_laws import GaussianBlocks, GeometricBlocks, LaplaceBlocks

PER_SCALE = 5
"""A scale spans 2^5 to 2^6 blocks: few rejections, and small tables."""

FINE = 24
"""Bits of the place inside a block that the 64-bit test uses."""

UNIT = 32
"""The 64-bit test counts probabilities in steps of 2^-32."""

LOWEST = 0 if sys.byteorder == "little" else 3
"""Index of the lowest 16 bits of a word in memory."""

Whole = TypeVar("Whole", int, Integers)
"""An integer, or an array of integers."""


def block_bits(scale: Fraction) -> int:
    """m such that 32 to 64 blocks of 2^m integers fit into the scale; 0 if the scale is too small for blocks."""
    return max(0, (scale.numerator // scale.denominator).bit_length() - 1 - PER_SCALE)


def is_below_exp(u: int, bits: int, y: Fraction, entropy: Entropy) -> bool:
    """Whether u < e^-y, for the uniform u that begins with these bits."""
    while True:
        low, high = exp_minus(y, bits + WORD)
        if (u + 1) << WORD <= low:
            return True
        if u << WORD >= high:
            return False
        u = u << WORD | entropy.word()
        bits += WORD


def _at_least(y: Whole) -> Whole:
    """A lower bound of e^-y in steps of 2^-32, for 0 <= y <= 1/2 in such steps.

    Floors make y²/2 smaller, and one more step is subtracted than the floor of y³/6 loses.
    """
    square = y * y
    sixth: Whole = ((square >> UNIT) + 1) * y // (6 << UNIT)
    return (1 << UNIT) - y + (square >> (UNIT + 1)) - sixth - 1


def _at_most(y: Whole) -> Whole:
    """An upper bound of e^-y, in the units of the lower bound and with one term more. About one draw in 10⁸ falls
    between the two bounds, and is decided exactly.
    """
    square = y * y
    shorter = square >> UNIT
    fourth: Whole = (shorter + 1) * (shorter + 1) // (24 << UNIT)
    sixth: Whole = shorter * y // (6 << UNIT)
    return (1 << UNIT) - y + (square >> (UNIT + 1)) - sixth + fourth + 2


def _fine(r: Whole, m: int) -> tuple[Whole, Whole]:
    """Bounds on r/2^m in steps of 2^-24, from below and above."""
    if m <= FINE:
        return r << (FINE - m), r << (FINE - m)
    low = r >> (m - FINE)
    return low, low + 1


def _below_zero(j: Whole) -> Whole:
    """-1 (all bits set) for a negative number, 0 otherwise."""
    return j >> (WORD - 1)


def _from_middle(j: Whole) -> Whole:
    """j, or -1 - j below zero."""
    return j ^ _below_zero(j)


class _Blocked(Sampler):
    """Base of the samplers of large scale. In a second random word the low bits are u, and the bits above are the
    place.

    16 bits of the block's u (the cell) and 16 bits of the rejection's u decide nearly all draws. The others are
    examined again, all together: cells with a threshold, and pairs that might be rejected.
    """

    __slots__ = ("_bases", "_blocks", "_m", "_place_bits", "_steepness", "_sure", "_u_bits")

    FARTHEST: ClassVar[int]
    """From this block on y may be too large for the 64-bit test: exact integers decide."""

    def __init__(self, blocks: InversionTable, m: int, steepness: Fraction, u_bits: int) -> None:
        super().__init__()
        self._blocks = blocks
        self._m = m
        self._steepness = steepness
        self._u_bits = min(UNIT, u_bits)
        self._place_bits = WORD - self._u_bits
        self._bases: Integers | None = None
        self._sure: npt.NDArray[np.uint16] | None = None

    @abstractmethod
    def _largest(self, j: int) -> int:
        """The largest y in block j, divided by the steepness."""

    @abstractmethod
    def _based(self, j: Integers) -> Integers:
        """The number that represents a block in `_assemble`."""

    @abstractmethod
    def _assemble(self, bases: Integers, words: Words, room: Words) -> None:
        """Compute the draws from blocks and words, in the memory of the blocks."""

    @abstractmethod
    def _exponents(self, j: Whole, place: Whole) -> tuple[Whole, Whole]:
        """Bounds on y in steps of 2^-32, for blocks that are not too far."""

    @abstractmethod
    def _is_kept(self, j: int, place: int, u: int, entropy: Entropy) -> bool:
        """The rejection in exact integers."""

    def _prepare(self) -> None:
        """For each cell its block, and a bound on 16 bits of u below which every place of the block is accepted.

        u < 1 - y <= e^-y for the largest y of the block. In a cell with a threshold nothing is accepted at this stage.
        """
        guide = self._blocks.guide()
        decided = guide != UNDECIDED
        blocks, where = np.unique(guide[decided], return_inverse=True)
        above, below = self._steepness.numerator, self._steepness.denominator
        sure = [max(0, below - above * self._largest(j)) * CELLS // below for j in blocks.tolist()]
        kept = np.zeros(CELLS, dtype=np.uint16)
        kept[decided] = np.array(sure, dtype=np.uint16)[where]
        self._bases = self._based(np.where(decided, guide, 0))
        self._sure = kept  # last: another thread may be waiting for it

    def fill(self, out: Integers, entropy: Entropy) -> None:
        if self._sure is None:
            self._prepare()
        scratch = Scratch(min(out.size, CHUNK))
        open_ = [self._fill_chunk(out, at, entropy, scratch) for at in range(0, out.size, CHUNK)]
        if open_:
            places, cells, words = (np.concatenate(each) for each in zip(*open_, strict=True))
            j = self._blocks.at(cells, entropy)
            drawn = self._based(j)
            self._assemble(drawn, words.copy(), np.empty_like(words))
            out[places] = drawn
            self.redraw(out, places[~self._are_kept(j, words, entropy)], entropy)

    def _fill_chunk(self, out: Integers, at: int, entropy: Entropy, scratch: Scratch) -> tuple[Places, Cells, Words]:
        """Draws for one chunk, and those that must be examined again: their places, cells and words."""
        assert self._sure is not None
        assert self._bases is not None
        part = out[at : at + CHUNK]
        words, room = scratch.words[: part.size], scratch.room[: part.size]
        cells = scratch.new_cells(part.size, entropy)
        entropy.fill(words)
        np.take(self._bases, cells, out=part, mode="clip")
        sure = np.take(self._sure, cells, out=scratch.sure[: part.size], mode="clip")
        u = words.view(np.uint16)[LOWEST::4]
        again = np.flatnonzero(np.greater_equal(u, sure, out=scratch.flags[: part.size]))
        left = again + at, cells[again], words[again]
        self._assemble(part, words, room)
        return left

    def _are_kept(self, j: Integers, words: Words, entropy: Entropy) -> Flags:
        # The lowest 16 bits of the word are the highest of u.
        rest = self._u_bits - CELL_BITS
        u = ((words & np.uint64(CELLS - 1)) << np.uint64(rest)).view(np.int64)
        u |= ((words >> np.uint64(CELL_BITS)) & np.uint64((1 << rest) - 1)).view(np.int64)
        place = (words >> np.uint64(self._u_bits)).view(np.int64)
        near = np.abs(j) < self.FARTHEST
        low, high = self._exponents(np.where(near, j, 0), place)
        up = UNIT - self._u_bits
        kept: Flags = near & ((u + 1) << up <= _at_least(high))
        open_ = ~kept & ~(near & (u << up >= _at_most(low)))
        for i in np.flatnonzero(open_).tolist():
            kept[i] = self._is_kept(int(j[i]), int(place[i]), int(u[i]), entropy)
        return kept


class _Exponential(_Blocked):
    """P(k) ∝ e^(-|k|/scale): y = r/scale, where r is the distance of the draw from the block's integer nearest to 0."""

    __slots__ = ("_slope",)

    FARTHEST = LIMIT

    def __init__(self, scale: Fraction, blocks: InversionTable, m: int) -> None:
        super().__init__(blocks, m, (1 << m) / scale, WORD - m)
        steep = self._steepness
        self._slope = (steep.numerator << 38) // steep.denominator  # below 2^33, as y <= 1/32

    @abstractmethod
    def _r(self, j: Whole, place: Whole) -> Whole:
        """The distance from the block's integer nearest to 0."""

    def _largest(self, j: int) -> int:
        return 1

    def _based(self, j: Integers) -> Integers:
        return j << self._m

    def _assemble(self, bases: Integers, words: Words, room: Words) -> None:
        bases += np.right_shift(words, np.uint64(WORD - self._m), out=room).view(np.int64)

    def _exponents(self, j: Whole, place: Whole) -> tuple[Whole, Whole]:
        low, high = _fine(self._r(j, place), self._m)
        return low * self._slope >> 30, (high * (self._slope + 1) >> 30) + 1

    def _is_kept(self, j: int, place: int, u: int, entropy: Entropy) -> bool:
        y = self._steepness * Fraction(self._r(j, place), 1 << self._m)
        return is_below_exp(u, self._u_bits, y, entropy)


@final
class WideGeometric(_Exponential):
    """P(k) ∝ e^(-k/scale), k = 0, 1, ..."""

    __slots__ = ()

    def __init__(self, scale: Fraction) -> None:
        m = block_bits(scale)
        super().__init__(scale, InversionTable(GeometricBlocks(scale, 1 << m), LIMIT >> m), m)

    def _r(self, j: Whole, place: Whole) -> Whole:
        return place >> (self._place_bits - self._m)


@final
class WideLaplace(_Exponential):
    """P(k) ∝ e^(-|k|/scale) on the integers. In a negative block the integer nearest to 0 is the last one."""

    __slots__ = ()

    def __init__(self, scale: Fraction) -> None:
        m = block_bits(scale)
        super().__init__(scale, InversionTable(LaplaceBlocks(scale, 1 << m), LIMIT >> m), m)

    def _r(self, j: Whole, place: Whole) -> Whole:
        return (place >> (self._place_bits - self._m)) ^ (_below_zero(j) & ((1 << self._m) - 1))


class _Bell(_Blocked):
    """P(x) ∝ e^(-x²/(2 sigma²)): y = c t (2i + t) with c = 4^m/(2 sigma²).

    i counts blocks from the middle (j, or -1 - j below zero), and t in [0, 1] is the relative position of the draw in
    its block, measured from the end nearer to 0.
    """

    __slots__ = ("_slope",)

    FARTHEST = 384  # at least 6 sigma; nearer, y < 767/2048

    def __init__(self, sigma: Fraction, m: int, u_bits: int) -> None:
        steep = Fraction(4**m) / (2 * sigma**2)  # in (2^-13, 2^-11]
        super().__init__(InversionTable(GaussianBlocks(1 / (2 * steep)), (LIMIT >> m) - 1), m, steep, u_bits)
        self._slope = (steep.numerator << 36) // steep.denominator  # at most 2^25

    def _largest(self, j: int) -> int:
        return 2 * _from_middle(j) + 1

    def _bounds(self, j: Whole, low: Whole, high: Whole) -> tuple[Whole, Whole]:
        """Bounds on y from t between low and high in steps of 2^-24: t (2i + t) is below 2^58, c at most 2^-11."""
        twice = 2 * _from_middle(j) << FINE
        less, more = low * (twice + low) >> 22, (high * (twice + high) >> 22) + 1
        return less * self._slope >> 30, (more * (self._slope + 1) >> 30) + 1

    def _y(self, j: int, t: Fraction) -> Fraction:
        return self._steepness * t * (2 * _from_middle(j) + t)


@final
class WideDiscreteGaussian(_Bell):
    """P(k) ∝ e^(-k²/(2 sigma²)) on the integers: k = 2^m j + r, and t = r/2^m, or 1 - r/2^m below zero."""

    __slots__ = ()

    def __init__(self, sigma: Fraction) -> None:
        m = block_bits(sigma)
        super().__init__(sigma, m, WORD - m)

    def _r(self, j: Whole, place: Whole) -> Whole:
        """t in steps of 2^-m."""
        below = _below_zero(j)
        return ((place >> (self._place_bits - self._m)) ^ below) - below + ((1 << self._m) & below)

    def _exponents(self, j: Whole, place: Whole) -> tuple[Whole, Whole]:
        return self._bounds(j, *_fine(self._r(j, place), self._m))

    def _based(self, j: Integers) -> Integers:
        return j << self._m

    def _assemble(self, bases: Integers, words: Words, room: Words) -> None:
        bases += np.right_shift(words, np.uint64(WORD - self._m), out=room).view(np.int64)

    def _is_kept(self, j: int, place: int, u: int, entropy: Entropy) -> bool:
        return is_below_exp(u, self._u_bits, self._y(j, Fraction(self._r(j, place), 1 << self._m)), entropy)


@final
@dataclass(frozen=True, slots=True)
class RejectionTables:
    """Tables for compiled code. With them it turns the same random bits into the same draws as
    `WideRoundedGaussian.fill`.
    """

    cells: npt.NDArray[np.uint32]
    """For each cell its block (in the high 16 bits; UNKNOWN_BLOCK if a threshold lies in it) and its sure bound."""

    thresholds: Words
    """The sorted thresholds of the blocks, then 2⁶⁴ - 1 up to a length of a power of two."""

    count: int
    """The number of thresholds."""

    first: int
    """The block of a word below all thresholds."""

    width: int
    """A word that is at most this far behind a threshold is undecided."""

    m: int
    """A block contains 2^m integers."""

    slope: int
    """The steepness of e^-y in steps of 2^-36, rounded down."""


UNKNOWN_BLOCK = -(2**15)
"""Stands for the block of a cell that contains a threshold."""

WIDEST_COMPILED = 31
"""Up to this m a second word contains 32 bits of u and 32 bits of the place."""


@final
class WideRoundedGaussian(_Bell):
    """round(X) for X = 2^m (j + s), where s is a real number in [0, 1) whose bits are drawn as needed."""

    __slots__ = ()

    def tables(self) -> RejectionTables | None:
        """The tables for compiled code; None if the noise is too wide for it."""
        if self._m > WIDEST_COMPILED:
            return None
        if self._sure is None:
            self._prepare()
        assert self._sure is not None
        guide = self._blocks.guide()
        blocks = np.where(guide == UNDECIDED, UNKNOWN_BLOCK, guide)
        cells = (blocks << CELL_BITS | self._sure).astype(np.uint32)
        thresholds, first, width = self._blocks.thresholds()
        padded = np.full(1 << thresholds.size.bit_length(), 2**WORD - 1, dtype=np.uint64)
        padded[: thresholds.size] = thresholds
        return RejectionTables(cells, padded, thresholds.size, first, width, self._m, self._slope)

    def settled(self, j: int | None, block_word: int, word: int, entropy: Entropy) -> int | None:
        """One draw in exact integers from its second word, or None if it is rejected. `j` is the block, or None if it
        must be settled too from the 64 bits of its u.
        """
        block = self._blocks.settled(block_word, entropy) if j is None else j
        u = (word & CELLS - 1) << (self._u_bits - CELL_BITS) | word >> CELL_BITS & (1 << self._u_bits - CELL_BITS) - 1
        place = word >> self._u_bits
        if not self._is_kept(block, place, u, entropy):
            return None
        return ((block << self._m + 1) + 1 + (place >> self._place_bits - self._m - 1)) >> 1

    def __init__(self, sigma: Fraction) -> None:
        m = block_bits(sigma)
        super().__init__(sigma, m, WORD - 1 - m)

    def _t(self, j: Whole, place: Whole) -> Whole:
        """t in steps of 2^-(place bits), rounded down: s, or 1 - s below zero. The first m + 1 bits
        determine the draw.
        """
        return place ^ (_below_zero(j) & ((1 << self._place_bits) - 1))

    def _exponents(self, j: Whole, place: Whole) -> tuple[Whole, Whole]:
        low = self._t(j, place) >> (self._place_bits - FINE)
        return self._bounds(j, low, low + 1)

    def _based(self, j: Integers) -> Integers:
        return (j << (self._m + 1)) + 1  # in units of 1/2, plus 1/2: rounding is then a shift

    def _assemble(self, bases: Integers, words: Words, room: Words) -> None:
        bases += np.right_shift(words, np.uint64(WORD - 1 - self._m), out=room).view(np.int64)
        bases >>= 1

    def _is_kept(self, j: int, place: int, u: int, entropy: Entropy) -> bool:
        t, t_bits, u_bits = self._t(j, place), self._place_bits, self._u_bits
        while True:
            # y increases with t, so e^-y lies between its values at the two ends of the interval that contains t.
            low = exp_minus(self._y(j, Fraction(t + 1, 1 << t_bits)), u_bits + WORD)[0]
            high = exp_minus(self._y(j, Fraction(t, 1 << t_bits)), u_bits + WORD)[1]
            if (u + 1) << WORD <= low:
                return True
            if u << WORD >= high:
                return False
            t, t_bits = t << WORD | entropy.word(), t_bits + WORD
            u, u_bits = u << WORD | entropy.word(), u_bits + WORD
