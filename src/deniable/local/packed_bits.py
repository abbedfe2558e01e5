"""Rows of packed bits, one row per person: flip or set one bit in each row, and count the rows that have each bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from deniable.local.report_checks import Ints, Packed

BYTES_AT_A_TIME: Final = 2**17
"""Bytes of reports that are processed at a time: they and the 64-bit draws for them fit into a processor's cache."""

_ONES: Final = np.array([byte.bit_count() for byte in range(256)], dtype=np.uint8)

LINE: Final = 2**10
MOST_IN_A_BYTE: Final = 255
"""Rows are counted side by side in lines of LINE bytes, and at most 255 lines are added up, so that no
byte overflows.
"""


def pieces(people: int, width: int, at_a_time: int = BYTES_AT_A_TIME) -> Iterator[slice]:
    """The people in slices, so that working memory stays small."""
    step = max(1, at_a_time // width)
    for start in range(0, people, step):
        yield slice(start, min(start + step, people))


def trim(rows: Packed, bits: int) -> None:
    """Clear the unused bits of the last byte, in place."""
    if bits % 8:
        rows[:, -1] &= np.uint8((1 << bits % 8) - 1)


def place(spots: Ints) -> tuple[Ints, Packed]:
    """For each bit, its byte number and its mask in that byte."""
    return spots >> 3, np.left_shift(np.uint8(1), (spots & 7).astype(np.uint8))


def flip(rows: Packed, spots: Ints) -> None:
    """Flip one bit in each row, in place."""
    flat, places, masks = _find(rows, spots)
    flat[places] ^= masks


def put(rows: Packed, spots: Ints, values: np.typing.NDArray[np.bool_]) -> None:
    """Set one bit in each row to a value, in place."""
    flat, places, masks = _find(rows, spots)
    flat[places] = (flat[places] & ~masks) | (masks & -values.view(np.uint8))


def _find(rows: Packed, spots: Ints) -> tuple[Packed, Ints, Packed]:
    """All bytes as one line, the indices of the bytes that contain the bits, and the masks."""
    byte, mask = place(spots)
    byte += np.arange(0, rows.size, rows.shape[1])
    return rows.reshape(-1), byte, mask


def ones(rows: Packed) -> Ints:
    """The number of bits set in each row."""
    found = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        found += _ONES.take(column, mode="clip")
    return found


def totals(rows: Packed, bits: int) -> Ints:
    """The number of rows in which each bit is set."""
    people, width = rows.shape
    found = np.zeros(8 * width, dtype=np.int64)
    abreast = max(1, LINE // width)
    deep = min(MOST_IN_A_BYTE, max(1, BYTES_AT_A_TIME // (abreast * width)))
    full = people - people % abreast
    for start in range(0, full, abreast * deep):
        lines = rows[start : min(start + abreast * deep, full)].reshape(-1, abreast * width)
        counted = np.add.reduce(np.unpackbits(lines, axis=1, bitorder="little"), axis=0, dtype=np.uint8)
        found += counted.reshape(abreast, -1).sum(axis=0, dtype=np.int64)
    found += np.unpackbits(rows[full:], axis=1, bitorder="little").sum(axis=0, dtype=np.int64)
    return found[:bits]
