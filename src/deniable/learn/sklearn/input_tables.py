"""Input conversion: tables to float64, columns cell by cell, with errors that reveal nothing about a row.

The type, the width and the names of columns are public; cells are not. Each cell is converted independently, because
numpy infers one type for a whole list: one text among the labels would turn all of them into texts. scikit-learn's own
checks are not used, because their errors print or count rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning

from deniable.errors import NOTHING, InvalidParameter
from deniable.mechanisms import input_values

Floats = NDArray[np.float64]

COLUMN_VECTOR = "A column-vector y was passed when a 1d array was expected; y.ravel() is one."


def _refused(name: str, rule: str, remedy: str = "") -> InvalidParameter:
    return InvalidParameter(name, NOTHING, rule, remedy)


def table(X: Any) -> Floats:
    """X as floats. A cell that is not a number becomes NaN. Raises for a column whose type cannot hold numbers."""
    found = rows_of(X)
    if not isinstance(found, np.ndarray):
        return np.column_stack([_numbers(f"column {name!r}", column) for name, column in _columns(found)])
    if found.dtype.kind == "O":
        return np.column_stack([input_values.column(found[:, j].tolist()) for j in range(found.shape[1])])
    if found.dtype.kind not in "biuf":
        rule = "must hold numbers" + (". Complex data not supported" if found.dtype.kind == "c" else "")
        raise _refused("X", rule, "its type holds texts, dates or complex numbers: encode them first")
    with np.errstate(all="ignore"):  # a long double may exceed the range of floats
        return np.asarray(found, dtype=np.float64)


def rows_of(X: Any) -> Any:
    """A frame unchanged, anything else as an array of two dimensions with unchanged cells."""
    if input_values.is_table(X) and any(True for _ in _columns(X)):
        return X
    found = as_given("X", X)
    if found.ndim != 2:
        remedy = "Reshape your data: X.reshape(-1, 1) is one column, X.reshape(1, -1) one row"
        raise _refused("X", f"must have two dimensions, rows and columns, but has {found.ndim}", remedy)
    if not found.shape[1]:
        raise _refused("X", "must have at least one column")
    return found


def _columns(X: Any) -> Iterator[tuple[Any, Any]]:
    """(name, column) of a frame; empty for other objects."""
    if hasattr(X, "iloc"):
        yield from ((name, X.iloc[:, j]) for j, name in enumerate(X.columns))
    elif hasattr(X, "get_columns"):
        yield from ((column.name, column) for column in X.get_columns())


def _numbers(name: str, column: Any) -> Floats:
    try:
        return input_values.column(column)
    except InvalidParameter:
        rule = f"{name} must hold numbers" if name != "y" else "must hold numbers"
        remedy = "its type holds texts, dates or complex numbers: encode them first"
        raise _refused("y" if name == "y" else "X", rule, remedy) from None


def as_given(name: str, given: Any) -> NDArray[Any]:
    """An array with the cells of a list unchanged."""
    if hasattr(given, "tocsr"):
        raise _refused(name, "must not be sparse", "call .toarray()")
    if isinstance(given, np.ma.MaskedArray):
        raise _refused(name, "must not be masked", "fill the masked entries first: .filled(np.nan)")
    try:
        return np.asarray(given, dtype=object) if isinstance(given, Sequence) else np.asarray(given)
    except Exception:  # its own message may show data
        raise _refused(name, "must be an array, a list or a frame") from None


def one_column(y: Any) -> NDArray[Any]:
    """y as one axis, with unchanged cells."""
    found = as_given("y", y)
    if found.ndim == 2 and found.shape[1] == 1:
        warnings.warn(COLUMN_VECTOR, DataConversionWarning, stacklevel=4)
        found = found.ravel()
    if found.ndim != 1:
        raise _refused("y", "must be one column, with one entry for each row of X")
    return found


def numbers(y: NDArray[Any]) -> Floats:
    """A target as floats; a cell that is not a number becomes NaN."""
    return _numbers("y", y)


def as_long(X: Any, y: Any) -> None:
    """Raise for a target of another length. The error does not reveal the number of rows."""
    if len(X) != len(y):
        raise _refused("y", "must have one entry for each row of X")
