"""Rows of packed bits, one row a person: one bit flipped or set in each row, and how many rows have each bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from deniable.local.border import Ints, Packed

BYTES_AT_A_TIME: Final = 2**17
"""Bytes of reports made at a time, so that they and the sampler's 64-bit draws for them stay in a processor's cache."""

_MASKS: Final = np.left_shift(1, np.arange(8)).astype(np.uint8)

_BITS: Final = np.unpackbits(np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1, bitorder="little").astype(np.int64)
_ONES: Final = _BITS.sum(axis=1).astype(np.int64)


def pieces(people: int, width: int, at_a_time: int = BYTES_AT_A_TIME) -> Iterator[slice]:
    """The people in pieces, so that working memory stays small."""
    step = max(1, at_a_time // width)
    for start in range(0, people, step):
        yield slice(start, min(start + step, people))


def trim(rows: Packed, bits: int) -> None:
    """Clear the unused bits of the last byte, in place."""
    if bits % 8:
        rows[:, -1] &= np.uint8((1 << bits % 8) - 1)


def place(spots: Ints) -> tuple[Ints, Packed]:
    """Byte number and mask of bits."""
    return spots >> 3, _MASKS[spots & 7]


def flip(rows: Packed, spots: Ints) -> None:
    """Flip one bit in each row, in place."""
    byte, mask = place(spots)
    rows[np.arange(len(rows)), byte] ^= mask


def put(rows: Packed, spots: Ints, values: np.typing.NDArray[np.bool_]) -> None:
    """Set one bit in each row to a value, in place."""
    byte, mask = place(spots)
    people = np.arange(len(rows))
    rows[people, byte] = (rows[people, byte] & ~mask) | np.where(values, mask, np.uint8(0))


def ones(rows: Packed) -> Ints:
    """How many bits of each row are 1."""
    return np.asarray(_ONES[rows].sum(axis=1), dtype=np.int64)


def totals(rows: Packed, bits: int) -> Ints:
    """How many rows have each bit: the 256 bytes of a column are counted first."""
    counted = [np.bincount(rows[:, byte], minlength=256) @ _BITS for byte in range(rows.shape[1])]
    return np.concatenate(counted)[:bits].astype(np.int64)
