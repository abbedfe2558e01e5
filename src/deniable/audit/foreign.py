"""Other libraries' frames, arrays and tensors, opened without importing any of these libraries.

Whoever answers with one has imported its library already; here it is known by the name of its module.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

LOCK: Final[type] = type(threading.Lock())
Parts = list[tuple[tuple[str | int, ...], Any]]
LISTED: Final = ("tolist", "to_pylist", "to_list")
"""How libraries give the items of a column."""


def opened(value: Any) -> Parts | None:
    """The parts of a frame, tensor, row or buffer, each with the path that it has in there; None if it is none."""
    for kind in type(value).__mro__:
        found = OPENERS.get(kind.__module__.partition(".")[0])
        if found is not None and (parts := found(value)) is not None:
            return parts
    if isinstance(value, io.StringIO | io.BytesIO):
        return [(("content",), value.getvalue())]
    if hasattr(type(value), "__array__") or hasattr(type(value), "__array_interface__"):
        return [((), _array(value))]
    if not isinstance(value, Mapping) and callable(getattr(value, "keys", None)) and hasattr(value, "__getitem__"):
        return [((), dict(zip(value.keys(), value, strict=True)))]  # a row of sqlite3
    return None


def _array(value: Any) -> Any:
    found = np.asarray(value)
    if found.dtype == object and found.ndim == 0:
        raise TypeError
    return found


def is_result(value: Any) -> bool:
    """Whether a value is read once, and as it is then: an iterator, a cursor, a relation that has not been asked."""
    return isinstance(value, Iterator) or callable(getattr(value, "fetchall", None))


def rows(batch: Any) -> Any:
    """Answers in a frame or tensor, one in each row, as an array or list; everything else as it is."""
    library = type(batch).__module__.partition(".")[0]
    if library == "torch" and _is(batch, "torch", "Tensor"):
        return _tensor(batch)
    if library == "pandas" and _is(batch, "pandas", "DataFrame"):
        return batch.to_dict("records")
    if library == "polars" and _is(batch, "polars", "DataFrame"):
        return batch.rows(named=True)
    if library in ("pandas", "polars", "pyarrow"):
        for name in ("to_pylist", "to_list"):
            if callable(getattr(batch, name, None)):
                return getattr(batch, name)()
    if not isinstance(batch, np.ndarray) and hasattr(type(batch), "__array__"):
        return np.asarray(batch)
    return batch


def _is(value: Any, library: str, name: str) -> bool:
    kind = getattr(sys.modules.get(library), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def _column(column: Any) -> Any:
    """The items of a column: an array where they are numbers and none is missing, otherwise a list."""
    numbers = np.asarray(column)
    if numbers.dtype.kind in "biufcmM":
        return numbers
    for name in LISTED:
        if callable(getattr(column, name, None)):
            return getattr(column, name)()
    return list(column)


def _pandas(value: Any) -> Parts | None:
    if _is(value, "pandas", "DataFrame"):
        named: Parts = [((f"[{name!r}]",), _column(value.iloc[:, i])) for i, name in enumerate(value.columns)]
        about: Parts = [((".columns",), [str(name) for name in value.columns]), ((".attrs",), value.attrs)]
        return [*named, ((".index",), _column(value.index)), *about]
    if _is(value, "pandas", "Series"):
        named = [((".name",), value.name), ((".attrs",), value.attrs)]
        return [((), _column(value)), ((".index",), _column(value.index)), *named]
    return [((), _column(value))] if _is(value, "pandas", "Index") else None


def _polars(value: Any) -> Parts | None:
    if _is(value, "polars", "LazyFrame"):
        value = value.collect()
    if _is(value, "polars", "DataFrame"):
        named: Parts = [((f"[{column.name!r}]",), _whole(column)) for column in value.get_columns()]
        return [*named, ((".columns",), list(value.columns))]
    return [((), _whole(value)), ((".name",), value.name)] if _is(value, "polars", "Series") else None


def _whole(column: Any) -> Any:
    return column.to_list() if column.null_count() else _column(column)


def _pyarrow(value: Any) -> Parts | None:
    names = getattr(value, "column_names", None)
    if names is not None:
        named: Parts = [((f"[{name!r}]",), value.column(i).to_pylist()) for i, name in enumerate(names)]
        return [*named, ((".columns",), list(names))]
    for name in ("to_pylist", "as_py"):
        if callable(getattr(value, name, None)):
            return [((), getattr(value, name)())]
    return None


def _torch(value: Any) -> Parts | None:
    if _is(value, "torch", "Tensor"):
        gradient: Parts = [((".grad",), value.grad)] if value.is_leaf and value.grad is not None else []
        return [((), _tensor(value)), ((".dtype",), str(value.dtype)), *gradient]
    state = getattr(value, "state_dict", None)
    return [(("state",), dict(state()))] if callable(state) else None


def _tensor(value: Any) -> Any:
    plain = value.detach()
    plain = plain.to_dense() if plain.layout is not sys.modules["torch"].strided else plain
    plain = plain.cpu().resolve_conj().resolve_neg()
    try:
        return plain.numpy()
    except (TypeError, RuntimeError):  # a number format that numpy has not
        return plain.double().numpy()


def _scipy(value: Any) -> Parts | None:
    return [((), value.toarray())] if callable(getattr(value, "toarray", None)) else None


def _asked(value: Any) -> Parts | None:
    return [(("rows",), value.fetchall())] if callable(getattr(value, "fetchall", None)) else None


OPENERS: Final[dict[str, Callable[[Any], Parts | None]]] = {
    "pandas": _pandas,
    "polars": _polars,
    "pyarrow": _pyarrow,
    "torch": _torch,
    "scipy": _scipy,
    "duckdb": _asked,
    "_duckdb": _asked,
    "sqlite3": _asked,
}
