"""Hidden bits of a number that its value does not show: the sign of a zero, the payload of a NaN.

0.0 and -0.0 are equal, and all NaN look alike, but a reader of the answer can distinguish them. So a mechanism may leak
an exact bit beside correct noise. An answer with such a number gets a word at its path, with the hidden bits; other
answers get none. So the encoding of an answer does not depend on other answers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from deniable.audit.answer_table import AnswerTable, Dense, Floats, Path, Sparse, extended

SIGN: Final = "sign"
BITS: Final = "bits"
_PLAIN: Final = int(np.float64(np.nan).view(np.int64))
"""The bits of Python's own NaN, which stands for a missing value."""
_STORED: Final = 2**52 - 1
"""The mask of a NaN's payload. With the sign, it is an integer that is exact as a float."""
_NAMED: Final = 1000
"""The most payloads whose texts are kept."""


def with_signs(words: AnswerTable, numbers: AnswerTable, looks: dict[int, Any]) -> AnswerTable:
    """The words, plus words for negative zeros and unusual NaN. Adds their texts to `looks`."""
    if isinstance(numbers, Dense):
        values = np.ascontiguousarray(numbers.cells)
        rows, columns = np.nonzero(_odd(values))
        found = values[rows, columns]
    else:
        assert isinstance(numbers, Sparse)
        places = np.flatnonzero(_odd(numbers.values))
        rows, found = numbers.rows_of[places], numbers.values[places]
        columns = np.searchsorted(numbers.starts, places, side="right") - 1
    if not len(found):
        return words
    is_nan = np.isnan(found)
    payloads = np.where(is_nan, _stored(found), 0.0)
    for code in np.unique(payloads)[:_NAMED].tolist():
        looks[int(code)] = f"a NaN that stores {int(code):#x}" if code else "negative"
    # Column 2i is for the signs of zeros in column i of the numbers, column 2i + 1 for its NaN.
    kinds, at = np.unique(2 * columns + is_nan, return_inverse=True)
    paths = tuple((*numbers.paths[kind // 2], BITS if kind % 2 else SIGN) for kind in kinds.tolist())
    return extended(words, paths, rows, at, payloads)


def is_stored(path: Path) -> bool:
    """Whether the word at this path has hidden bits of a number."""
    return path[-1:] in ((SIGN,), (BITS,))


def _odd(values: Floats) -> Any:
    bits = values.view(np.int64)
    return (bits == np.iinfo(np.int64).min) | (np.isnan(values) & (bits != _PLAIN))


def _stored(values: Floats) -> Floats:
    bits = values.view(np.int64)
    return ((bits & _STORED) | np.where(bits < 0, _STORED + 1, 0)).astype(np.float64)


def widened(value: Any) -> Floats:
    """Floats of any size as 64-bit floats, with the payload of each NaN preserved.

    A processor turns a signalling NaN into a quiet one in a conversion, so the bits are assembled here.
    """
    array = np.asarray(value)
    with np.errstate(invalid="ignore"):
        found: Floats = array.astype(np.float64)
    if array.dtype.kind != "f" or array.dtype.itemsize >= found.itemsize or not (is_nan := np.isnan(found)).any():
        return found
    own = np.finfo(array.dtype).nmant
    bits = array[is_nan].astype(array.dtype.newbyteorder("=")).view(f"u{array.dtype.itemsize}").astype(np.uint64)
    sign, stored = bits >> np.uint64(8 * array.dtype.itemsize - 1), bits & np.uint64(2**own - 1)
    found[is_nan] = ((sign << np.uint64(63)) | np.uint64(0x7FF << 52) | (stored << np.uint64(52 - own))).view(
        np.float64
    )
    return found
