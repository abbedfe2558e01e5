"""Inversion by table: most draws need one look-up with 16 random bits, and the law is exact nevertheless.

A draw is a uniform real number u in [0, 1), of which only as many bits are generated as needed, and its value is the k
with F(k-1) <= u < F(k). The table contains floor(F(k) 2⁶⁴). If the first 64 bits of u differ from all of these,
comparing 64-bit words decides. Otherwise more bits of u are drawn and the law computes more bits of F, in integers,
until u lies on one side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt

from deniable.noise.entropy import Entropy
from deniable.noise.sampled_laws import SampledLaw

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]
Cells = npt.NDArray[np.uint16]

WORD = 64
PRECISION, REACH = 128, 65
"""Bits of F computed for a table, and how far it reaches: beyond, F differs from 0 or 1 by less than 2^-65."""

CELL_BITS = 16
CELLS = 1 << CELL_BITS
UNDECIDED = np.iinfo(np.int64).min
NONE: Places = np.empty(0, dtype=np.intp)

CHUNK = 1 << 15
"""Draws at a time: their working memory fits into a processor's cache."""

LIMIT = 2**62 - 1
"""Noise in an array lies in [-LIMIT, LIMIT]: added to any answer on a grid, it fits into 64 bits."""


@final
class Scratch:
    """Working memory for one chunk, reused for all chunks: allocating it anew each time is much slower."""

    __slots__ = ("cells", "flags", "room", "sure", "words")

    def __init__(self, count: int) -> None:
        self.cells = np.empty(-(-count // 4), dtype=np.uint64)
        self.words, self.room = np.empty(count, dtype=np.uint64), np.empty(count, dtype=np.uint64)
        self.sure = np.empty(count, dtype=np.uint16)
        self.flags = np.empty(count, dtype=np.bool_)

    def new_cells(self, count: int, entropy: Entropy) -> Cells:
        """`count` random numbers of 16 bits."""
        entropy.fill(self.cells[: -(-count // 4)])
        return self.cells.view(np.uint16)[:count]


class Sampler(ABC):
    """Draws from one law."""

    __slots__ = ("_ahead", "_lineage", "_used")

    AHEAD: ClassVar[int] = 256
    """Draws that are made at once when one is asked for."""

    def __init__(self) -> None:
        self._ahead: list[int] = []
        self._used: list[int] = []
        self._lineage: object = None

    def one(self, entropy: Entropy) -> int:
        """One draw.

        With the entropy of the process, draws are made ahead, so that the time of a call does not depend on its draw.
        After a fork the draws made ahead belong to the parent and are discarded.
        """
        lineage = entropy.lineage()
        if lineage is None:
            return self._several(1, entropy)[0]
        if lineage is not self._lineage:
            self._ahead = []
            self._lineage = lineage
        while True:
            try:
                return self._ahead.pop()  # atomic: no two threads get the same draw
            except IndexError:
                self._used = []
                self._ahead.extend(self._several(self.AHEAD, entropy))

    def few(self, count: int, entropy: Entropy) -> list[int]:
        """`count` calls of `one`. The numbers are freed together when the next draws are made ahead.

        Python frees an integer below -5 or above 256 and caches the others. If a caller dropped the list, the time of
        freeing it would depend on the draws.
        """
        drawn = [self.one(entropy) for _ in range(count)]
        self._used.extend(drawn)
        return drawn

    def _several(self, count: int, entropy: Entropy) -> list[int]:
        out = np.empty(count, dtype=np.int64)
        self.fill(out, entropy)
        several: list[int] = out.tolist()
        return several

    @abstractmethod
    def fill(self, out: Integers, entropy: Entropy) -> None:
        """Fill `out` with independent draws. A draw beyond ±LIMIT (probability below 2^-5900) is moved inside."""

    def redraw(self, out: Integers, places: Places, entropy: Entropy) -> None:
        """Replace rejected draws by new ones."""
        if places.size:
            drawn = np.empty(places.size, dtype=np.int64)
            self.fill(drawn, entropy)
            out[places] = drawn


class Chunked(Sampler):
    """A sampler that fills chunk after chunk."""

    __slots__ = ()

    def fill(self, out: Integers, entropy: Entropy) -> None:
        scratch = Scratch(min(out.size, CHUNK))
        rejected = [self.fill_chunk(out[at : at + CHUNK], entropy, scratch) + at for at in range(0, out.size, CHUNK)]
        self.redraw(out, np.concatenate([NONE, *rejected]), entropy)

    @abstractmethod
    def fill_chunk(self, part: Integers, entropy: Entropy, scratch: Scratch) -> Places:
        """Fill `part`, which is at most as long as the scratch; returns the places of rejected draws."""


def settle(law: SampledLaw, u: int, bits: int, entropy: Entropy) -> int:
    """The draw whose u begins with these bits, decided in integers with as many further bits as needed."""
    while True:
        found = law.cumulative(bits + WORD, bits + WORD)
        low, high = u << WORD, (u + 1) << WORD  # u lies in [low, high)
        i = bisect_right(found.highs, low)  # the number of F(k) that are at most u
        count = len(found.lows)
        if (i < count and high <= found.lows[i] and (i or not found.open_below)) or (
            i == count and not found.open_above
        ):
            return found.first + i
        u = u << WORD | entropy.word()
        bits += WORD


@final
class InversionTable(Chunked):
    """The thresholds of one law, and for each value of the first 16 bits of u the draw, if they decide it."""

    __slots__ = ("_array", "_first", "_guide", "_law", "_limit", "_thresholds", "_width")

    def __init__(self, law: SampledLaw, limit: int = LIMIT) -> None:
        super().__init__()
        self._law = law
        self._limit = limit
        precision = PRECISION
        while True:
            found = law.cumulative(precision, REACH)
            lows, highs = ([bound >> (precision - WORD) for bound in bounds] for bounds in (found.lows, found.highs))
            # An enclosure may contain a multiple of 2^-64; then the next word is undecided too.
            self._width = max((min(high, 2**WORD - 1) - low for low, high in zip(lows, highs, strict=True)), default=0)
            if self._width <= 1:
                break
            precision *= 2
        self._first = found.first
        self._thresholds = lows
        self._array: npt.NDArray[np.uint64] | None = None
        self._guide: Integers | None = None

    def fill_chunk(self, part: Integers, entropy: Entropy, scratch: Scratch) -> Places:
        cells = scratch.new_cells(part.size, entropy)
        np.take(self.guide(), cells, out=part, mode="clip")
        undecided = np.flatnonzero(np.equal(part, UNDECIDED, out=scratch.flags[: part.size]))
        if undecided.size:
            part[undecided] = self._refined(cells[undecided], entropy)
        return NONE

    def at(self, cells: Cells, entropy: Entropy) -> Integers:
        """Draws whose first 16 bits are given."""
        drawn = self.guide()[cells]
        undecided = np.flatnonzero(drawn == UNDECIDED)
        drawn[undecided] = self._refined(cells[undecided], entropy)
        return drawn

    def guide(self) -> Integers:
        """The draw of each cell (value of the first 16 bits), or UNDECIDED if a threshold lies in it."""
        if self._guide is None:
            array = self._array = np.array(self._thresholds, dtype=np.uint64)
            ends = np.minimum(array, np.uint64(2**WORD - 1 - self._width)) + np.uint64(self._width)
            cells, last_cells = ((edge >> np.uint64(WORD - CELL_BITS)).astype(np.intp) for edge in (array, ends))
            # A cell without a threshold has one value: the first value plus the number of thresholds in the cells
            # below.
            guide: Integers = np.cumsum(np.bincount(cells, minlength=CELLS)) + self._first
            guide[cells] = UNDECIDED
            guide[last_cells] = UNDECIDED
            self._guide = guide  # assigned last: another thread may be testing it
        return self._guide

    def thresholds(self) -> tuple[npt.NDArray[np.uint64], int, int]:
        """floor(F(k) 2⁶⁴) in order, the first k, and how far behind a threshold a word is still undecided."""
        self.guide()
        assert self._array is not None
        return self._array, self._first, self._width

    def settled(self, word: int, entropy: Entropy) -> int:
        """The draw whose u begins with these 64 bits, which `thresholds` leave undecided."""
        return max(-self._limit, min(self._limit, settle(self._law, word, WORD, entropy)))

    def _refined(self, cells: Cells, entropy: Entropy) -> Integers:
        """Draws whose first 16 bits lie in a cell with a threshold: 48 more bits for all, and `settle` for the few
        still open.
        """
        assert self._array is not None
        words = entropy.words(cells.size) >> np.uint64(CELL_BITS)
        words |= cells.astype(np.uint64) << np.uint64(WORD - CELL_BITS)
        index = np.searchsorted(self._array, words, side="right")
        drawn = index + self._first
        before = words - self._array[np.maximum(index - 1, 0)]
        for place in np.flatnonzero((index > 0) & (before <= self._width)).tolist():
            drawn[place] = self.settled(int(words[place]), entropy)
        return drawn
