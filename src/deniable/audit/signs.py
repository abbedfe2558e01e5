"""What is stored in a number and does not show in its size: the sign of a zero, the bits of a NaN.

0.0 and -0.0 are equal and all NaN look alike, but whoever has the answer can read which it is: a mechanism may leak an
exact bit so, beside honest noise. Each column that has such a number gets another one beside it, which says what is
stored and is NaN for all other answers; so what is read of an answer does not depend on the answers beside it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from deniable.audit.table import Dense, Floats, Ints, Path, Sparse, Table, extended

SIGN: Final = "sign"
BITS: Final = "bits"
_PLAIN: Final = int(np.float64(np.nan).view(np.int64))
"""The NaN that stands for "none", and is Python's own."""
_STORED: Final = 2**52 - 1
"""The bits of a NaN that are its own; with the sign they are a whole number that a float has exactly."""


def with_signs(table: Table) -> Table:
    """The table, and columns for negative zeros and unusual NaN where there are any."""
    if isinstance(table, Dense):
        values = np.ascontiguousarray(table.cells)
        rows, columns = np.nonzero(_odd(values))
        found = values[rows, columns]
    else:
        assert isinstance(table, Sparse)
        places = np.flatnonzero(_odd(table.values))
        rows, found = table.rows_of[places], table.values[places]
        columns = np.searchsorted(table.starts, places, side="right") - 1
    if not len(found):
        return table
    is_nan = np.isnan(found)
    said = np.where(is_nan, _stored(found), 1.0)
    at: dict[Path, int] = {}
    named: Ints = np.array(
        [
            at.setdefault((*table.paths[column], BITS if nan else SIGN), len(at))
            for column, nan in zip(columns.tolist(), is_nan.tolist(), strict=True)
        ],
        dtype=np.int64,
    )
    return extended(table, tuple(at), rows, named, said)


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
