"""What is stored in a number and does not show in its size: the sign of a zero, the bits of a NaN.

0.0 and -0.0 are equal and all NaN look alike, but whoever has the answer can read which it is: a mechanism may leak an
exact bit so, beside honest noise. For each column that has such a number there is a word at its path, which says what
is stored, and none for all other answers; so what is read of an answer does not depend on the answers beside it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from deniable.audit.answer_table import AnswerTable, Dense, Floats, Path, Sparse, extended

SIGN: Final = "sign"
BITS: Final = "bits"
_PLAIN: Final = int(np.float64(np.nan).view(np.int64))
"""The NaN that stands for "none", and is Python's own."""
_STORED: Final = 2**52 - 1
"""The bits of a NaN that are its own; with the sign they are a whole number that a float has exactly."""
_NAMED: Final = 1000
"""Of more of them nobody reads names."""


def with_signs(words: AnswerTable, numbers: AnswerTable, looks: dict[int, Any]) -> AnswerTable:
    """The words, and further ones for negative zeros and unusual NaN where there are any. Adds their looks."""
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
    said = np.where(is_nan, _stored(found), 0.0)
    for code in np.unique(said)[:_NAMED].tolist():
        looks[int(code)] = f"a NaN that stores {int(code):#x}" if code else "negative"
    # A column of each kind for each column of numbers: twice its place, and one more for a NaN.
    kinds, at = np.unique(2 * columns + is_nan, return_inverse=True)
    paths = tuple((*numbers.paths[kind // 2], BITS if kind % 2 else SIGN) for kind in kinds.tolist())
    return extended(words, paths, rows, at, said)


def is_stored(path: Path) -> bool:
    """Whether this word is a part of a number."""
    return path[-1:] in ((SIGN,), (BITS,))


def _odd(values: Floats) -> Any:
    bits = values.view(np.int64)
    return (bits == np.iinfo(np.int64).min) | (np.isnan(values) & (bits != _PLAIN))


def _stored(values: Floats) -> Floats:
    bits = values.view(np.int64)
    return ((bits & _STORED) | np.where(bits < 0, _STORED + 1, 0)).astype(np.float64)


def widened(value: Any) -> Floats:
    """Floats of any length as floats of 64 bits, a NaN with all that is stored in it.

    A processor makes a signalling NaN a quiet one when it converts it, so those are put together here.
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
