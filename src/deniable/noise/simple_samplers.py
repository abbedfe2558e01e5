"""Samplers without a table: coins, uniform integers, sums, and constants."""

from __future__ import annotations

from typing import final

import numpy as np

from deniable.noise.entropy import Entropy
from deniable.noise.inversion_table import (
    CELL_BITS,
    CHUNK,
    NONE,
    PRECISION,
    REACH,
    WORD,
    Chunked,
    Flags,
    Integers,
    Places,
    Scratch,
    settle,
)
from deniable.noise.sampled_laws import SampledLaw


@final
class Coin:
    """True if u >= F(0), for a law on {0, 1}: one comparison of 16 bits, and more bits only if they are equal."""

    __slots__ = ("_high", "_law", "_low")

    def __init__(self, law: SampledLaw) -> None:
        found = law.cumulative(PRECISION, REACH)
        self._law = law
        self._low, self._high = (bounds[0] >> (PRECISION - WORD) for bounds in (found.lows, found.highs))

    def one(self, entropy: Entropy) -> bool:
        """One toss."""
        return self._decided(entropy.word(), entropy)

    def _decided(self, word: int, entropy: Entropy) -> bool:
        if self._low <= word <= self._high:
            return settle(self._law, word, WORD, entropy) == 1
        return word > self._high

    def fill(self, out: Flags, entropy: Entropy) -> None:
        """Fill `out` with independent tosses."""
        scratch = Scratch(min(out.size, CHUNK))
        drop = WORD - CELL_BITS
        for start in range(0, out.size, CHUNK):
            part = out[start : start + CHUNK]
            cells = scratch.new_cells(part.size, entropy)
            np.greater(cells, self._high >> drop, out=part)
            near = np.greater_equal(cells, self._low >> drop, out=scratch.flags[: part.size])
            for place in np.flatnonzero(near & ~part).tolist():
                word = int(cells[place]) << drop | entropy.bits(drop)
                part[place] = self._decided(word, entropy)


@final
class Constant(Chunked):
    """Always the same value."""

    __slots__ = ("_value",)

    def __init__(self, value: int) -> None:
        super().__init__()
        self._value = value

    def fill_chunk(self, part: Integers, entropy: Entropy, scratch: Scratch) -> Places:
        part[:] = self._value
        return NONE


@final
class SumOfDraws(Chunked):
    """The sum of independent draws: `count` from each sampler."""

    __slots__ = ("_parts",)

    AHEAD = 1  # a sum of many parts: making draws ahead would be slow

    def __init__(self, *parts: tuple[Chunked, int]) -> None:
        super().__init__()
        self._parts = parts

    def fill_chunk(self, part: Integers, entropy: Entropy, scratch: Scratch) -> Places:
        part[:] = 0
        drawn = np.empty_like(part)
        for sampler, count in self._parts:
            for _ in range(count):
                sampler.fill_chunk(drawn, entropy, scratch)  # the parts are tables, which reject nothing
                part += drawn
        return NONE


@final
class Uniform(Chunked):
    """0, 1, ..., below - 1 with equal probability.

    Up to 2³² by Lemire's multiplication (2019): with 32 random bits x, floor(x below/2³²) is uniform if every x with x
    below mod 2³² < 2³² mod below is drawn again. Above 2³², by as many bits as `below` has, drawn again until they are
    less.
    """

    __slots__ = ("_below", "_bits", "_excess")

    AHEAD = 1  # used for one call only

    def __init__(self, below: int) -> None:
        super().__init__()
        self._below = below
        self._bits = (below - 1).bit_length()
        self._excess = 2**32 % below

    def one(self, entropy: Entropy) -> int:
        while True:
            drawn = entropy.bits(self._bits)
            if drawn < self._below:
                return drawn

    def fill_chunk(self, part: Integers, entropy: Entropy, scratch: Scratch) -> Places:
        if self._bits <= 32:
            words = scratch.words[: -(-part.size // 2)]
            entropy.fill(words)
            products = np.multiply(words.view(np.uint32)[: part.size], self._below, dtype=np.uint64)
            np.right_shift(products, np.uint64(32), out=part.view(np.uint64))
            products &= np.uint64(2**32 - 1)
            return np.flatnonzero(products < np.uint64(self._excess))
        drawn = part.view(np.uint64)
        entropy.fill(drawn)
        drawn >>= np.uint64(WORD - self._bits)
        return np.flatnonzero(drawn >= np.uint64(self._below))
