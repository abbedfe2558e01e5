"""Contents of other libraries' frames, arrays and tensors, without importing these libraries.

If an answer is such an object, its library is imported already, so it is recognised by the name of its module.
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
"""Methods by which libraries return the items of a column."""


def opened(value: Any) -> Parts | None:
    """The parts of a frame, tensor, row or buffer with their paths; None for other objects."""
    for kind in type(value).__mro__:
        found = OPENERS.get(kind.__module__.partition(".")[0])
        if found is not None and (parts := found(value)) is not None:
            return parts
    if isinstance(value, io.StringIO | io.BytesIO):
        return [(("content",), value.getvalue())]
    if hasattr(type(value), "__array__") or hasattr(type(value), "__array_interface__"):
        return [((), _array(value))]
    if not isinstance(value, Mapping) and callable(getattr(value, "keys", None)) and hasattr(value, "__getitem__"):
        if type(value).__module__ != "sqlite3":  # others may iterate over names, where a sqlite3 row has values
            return [((), {key: value[key] for key in list(value.keys())})]
        return [((), dict(zip(value.keys(), value, strict=True)))]
    return None


def _array(value: Any) -> Any:
    found = np.asarray(value)
    if found.dtype == object and found.ndim == 0:
        raise TypeError
    return found


def is_result(value: Any) -> bool:
    """Whether a value can be read only once: an iterator, a cursor, an unevaluated relation."""
    return isinstance(value, Iterator) or callable(getattr(value, "fetchall", None))


def rows(batch: Any) -> Any:
    """The rows of a frame or tensor of answers, as an array or list; other objects unchanged."""
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
    """The items of a column: an array if all are numbers and none is missing, otherwise a list."""
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
        types: Parts = [((".types", i), _pandas_type(kind)) for i, kind in enumerate(value.dtypes)]
        names: Parts = [((".names",), [*map(str, value.index.names), *map(str, value.columns.names)])]
        return [*named, ((".index",), _column(value.index)), *about, *types, *names]
    if _is(value, "pandas", "Series"):
        named = [((".name",), value.name), ((".attrs",), value.attrs), ((".type",), _pandas_type(value.dtype))]
        names = [((".names",), list(map(str, value.index.names)))]
        return [((), _column(value)), ((".index",), _column(value.index)), *named, *names]
    if _is(value, "pandas", "Index"):
        return [((), _column(value)), ((".names",), list(map(str, value.names))), ((".type",), str(value.dtype))]
    return None


def _pandas_type(kind: Any) -> list[Any]:
    """The name of a type, and its categories, including those that no cell has."""
    categories = getattr(kind, "categories", None)
    return [str(kind), getattr(kind, "ordered", None), None if categories is None else list(categories)]


def _polars(value: Any) -> Parts | None:
    if _is(value, "polars", "LazyFrame"):
        value = value.collect()
    if _is(value, "polars", "DataFrame"):
        named: Parts = [((f"[{column.name!r}]",), _whole(column)) for column in value.get_columns()]
        return [*named, ((".columns",), list(value.columns)), ((".types",), list(map(repr, value.dtypes)))]
    if _is(value, "polars", "Series"):
        return [((), _whole(value)), ((".name",), value.name), ((".type",), repr(value.dtype))]
    return None


def _whole(column: Any) -> Any:
    return column.to_list() if column.null_count() else _column(column)


def _pyarrow(value: Any) -> Parts | None:
    names = getattr(value, "column_names", None)
    if names is not None:
        named: Parts = [((f"[{name!r}]",), value.column(i).to_pylist()) for i, name in enumerate(names)]
        types = [(str(one.type), one.nullable, dict(one.metadata or {})) for one in value.schema]
        about: Parts = [((".types",), types), ((".metadata",), dict(value.schema.metadata or {}))]
        return [*named, ((".columns",), list(names)), *about]
    for name in ("to_pylist", "as_py"):
        if callable(getattr(value, name, None)):
            return [((), getattr(value, name)()), ((".type",), str(getattr(value, "type", "")))]
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
    except (TypeError, RuntimeError):  # a number format that numpy lacks
        return plain.double().numpy()


def _scipy(value: Any) -> Parts | None:
    if not callable(getattr(value, "toarray", None)):
        return None
    # Whether a zero is stored explicitly may leak, so the number of stored entries is read.
    return [((), value.toarray()), ((".format",), value.format), ((".nnz",), value.nnz)]


def _ctypes(value: Any) -> Parts | None:
    """The bytes of a ctypes object, and the fields of a structure."""
    fields: Parts = [((f".{name}",), getattr(value, name)) for name, *_ in getattr(type(value), "_fields_", ())]
    items: Parts = [(("items",), list(value))] if hasattr(value, "_length_") else []
    return [(("bytes",), bytes(memoryview(value).cast("B"))), *fields, *items]


def _xml(value: Any) -> Parts | None:
    """An XML element with all its children."""
    if not _is(value, "xml.etree.ElementTree", "Element"):
        return None
    library = sys.modules["xml.etree.ElementTree"]
    named: Parts = [((f".{name}",), getattr(value, name)) for name in ("tag", "text", "tail", "attrib")]
    return [((), library.tostring(value, encoding="unicode")), *named, ((".below",), list(value))]


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
    "_ctypes": _ctypes,
    "ctypes": _ctypes,
    "xml": _xml,
}
