"""Proposals: a first schema from column types alone, with placeholders for facts that only the owner knows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from deniable.errors import NOTHING, InvalidParameter, MissingExtra
from deniable.tables.kinds import BOUNDED, Kind
from deniable.tables.schema import FILL_IN, NAME_IT, NAMELESS, Schema, read_schema, refuse_twins, written
from deniable.tables.source_files import CSV, PARQUET, files_of, folder_columns, header, unknown_file
from deniable.units import Unit

# The first pattern that matches the start of a type name gives the kind; other types are text. Decimals are reals.
_TYPES: Final = (
    (re.compile(r"bool|bit$"), Kind.BOOLEAN),
    (re.compile(r"(u?(tiny|small|big|huge)?int(eger)?\d*|long|short|byte)\b"), Kind.INTEGER),
    (re.compile(r"float|double|real|decimal|numeric|halffloat"), Kind.REAL),
    (re.compile(r"date(32|64)?(\[day\]|\[ms\])?$"), Kind.DATE),
    (re.compile(r"timestamp|datetime"), Kind.TIMESTAMP),
)
_NAMED: Final = 3
_NO_KIND: Final = re.compile(r"(category\[)?(interval|period|sparse|complex|float(96|128)\b)")

_KINDS: Final = (
    "# A CSV file has no types, so every column is text until you change its kind. "
    f"A kind is one of: {', '.join(kind.value for kind in Kind)};\n"
    "# low and high are for numbers, dates and timestamps, keys for integers, texts and dates."
)


@final
@dataclass(frozen=True, slots=True)
class Proposal:
    """An incomplete schema: `missing` lists the entries to fill in, `text()` is the file to edit.

    Bounds, public keys and the person are the owner's choices, not facts of the data, so they are left open.
    `Session.bounds` can buy bounds that nobody knows. The owner may delete an entry: a number without bounds can be
    counted but not summed, and groups by a column without keys are published above a threshold.
    """

    tables: Mapping[str, Mapping[str, Any]]
    untyped: bool = False
    """Whether the source has no types (a CSV file), so that the owner must choose every kind."""

    @property
    def missing(self) -> tuple[str, ...]:
        """The entries to fill in, as paths like "visits.age.low"."""
        found = []
        for name, table in self.tables.items():
            found += [f"{name}.{key}" for key, value in table.items() if value == FILL_IN]
            for column, facts in table["columns"].items():
                found += [f"{name}.{column}.{key}" for key, value in facts.items() if value == FILL_IN]
        return tuple(found)

    def text(self, form: str = "yaml") -> str:
        """The schema as a file to edit: "yaml", "toml" or "json"."""
        found = written(self.tables, form)
        return f"{_KINDS}\n{found}" if self.untyped and form in {"yaml", "toml"} else found

    def schema(self, *, unit: Unit) -> Schema:
        """The schema without the open entries, with `unit` for all tables."""
        kept = {}
        for name, table in self.tables.items():
            columns = {
                column: {key: value for key, value in facts.items() if value != FILL_IN}
                for column, facts in table["columns"].items()
            }
            kept[name] = {"columns": columns}
        return read_schema({"tables": kept}, unit=unit)


def propose_schema(source: object, *, name: str = "data") -> Proposal:
    """Propose a schema from the column types of a source, without reading a value.

    `source`: a pandas, polars or Arrow table, a Parquet file, a CSV file (only its header is read, and all columns are
    text until the owner changes that), or a mapping from column names to type names. Columns whose type has no kind,
    such as periods and complex numbers, are left out. Raises `InvalidParameter` if no column is left.

    >>> print(propose_schema({"age": "BIGINT", "ward": "VARCHAR"}, name="visits").text())
    version: 1
    tables:
      visits:
        person: "FILL IN"
        rows: "FILL IN"
        columns:
          age: {kind: integer, low: "FILL IN", high: "FILL IN"}
          ward: {kind: text, keys: "FILL IN"}
    """
    found = types_of(source, once=True)
    types = {column: type_name for column, type_name in found.items() if has_kind(type_name)}
    if "" in types:
        raise InvalidParameter("columns", "", NAMELESS, NAME_IT)
    refuse_twins(types)
    columns = {column: _facts(kind_of_type(type_name)) for column, type_name in types.items()}
    if not columns:
        shown = os.fspath(source) if isinstance(source, str | Path) else name
        unread = ", ".join(f"{column} is {type_name}" for column, type_name in list(found.items())[:_NAMED])
        rule = f"has no column of a type that can be read ({unread})" if found else "has no columns"
        remedy = "store them as numbers, text, dates or timestamps" if found else ""
        raise InvalidParameter("source", shown, rule, remedy)
    untyped = isinstance(source, str | Path) and os.fspath(source).lower().endswith(CSV)
    return Proposal({name: {"person": FILL_IN, "rows": FILL_IN, "columns": columns}}, untyped)


def kind_of_type(type_name: str) -> Kind:
    """The kind of a type, by the name that engines or dataframes give it; text if it is unknown.

    >>> [kind_of_type(each).value for each in ("Int64", "DECIMAL(10,2)", "datetime64[ns]", "object", "date32[day]")]
    ['integer', 'real', 'timestamp', 'text', 'date']
    """
    lowered = type_name.strip().lower()
    return next((kind for pattern, kind in _TYPES if pattern.match(lowered)), Kind.TEXT)


def has_kind(type_name: str) -> bool:
    """Whether a type has a kind, by its name; periods, intervals and complex numbers have none."""
    return _NO_KIND.match(type_name.strip().lower()) is None


def type_of_pandas(dtype: Any) -> str:
    """The name of a pandas type; for categories, with the type of the categories."""
    categories = getattr(dtype, "categories", None)
    return str(dtype) if categories is None else f"category[{categories.dtype}]"


def types_of(source: object, *, once: bool = False) -> dict[str, str]:
    """Column names and type names of a source, without reading a value.

    With `once`, two columns of the same name raise `InvalidParameter`; otherwise the last one is returned, because a
    session refuses such columns only if they are declared.
    """
    if isinstance(source, str | Path):
        return _types_of_file(Path(source), once)
    if isinstance(source, Mapping):
        return {str(column): str(type_name) for column, type_name in source.items()}
    described = getattr(source, "collect_schema", None)  # polars; reading `schema` of a LazyFrame would warn
    schema = described() if callable(described) else getattr(source, "schema", None)
    if isinstance(schema, Mapping):  # polars
        return {str(column): str(type_name) for column, type_name in schema.items()}
    if schema is not None and hasattr(schema, "names") and hasattr(schema, "types"):  # Arrow
        return _types_of_arrow(schema, once)
    types = getattr(source, "dtypes", None)
    if types is not None and hasattr(types, "items"):  # pandas
        return _by_name(((column, type_of_pandas(kind)) for column, kind in types.items()), once)
    if isinstance(types, list):  # Spark: pairs of names and types
        return _by_name(types, once)
    rule = f"must be a path (CSV, Parquet), or a pandas, polars or Arrow table, not {type(source).__name__}"
    raise InvalidParameter("source", NOTHING, rule, 'name several tables in a mapping: {"visits": visits}')


def _types_of_file(source: Path, once: bool) -> dict[str, str]:
    path = os.fspath(source)
    if path.lower().endswith(CSV):
        return _by_name(((name, "varchar") for name in header(files_of(path)[0])), once)
    if path.lower().endswith(PARQUET) or source.is_dir():
        files = files_of(path)
        found: dict[str, str] = {}
        seen: set[str] = set()
        for each in files:  # a column may be in later files only
            for column, kind in _types_of_parquet(each, once).items():
                if column.lower() not in seen or column in found:
                    found.setdefault(column, kind)
                    seen.add(column.lower())
        return {**found, **dict.fromkeys(folder_columns(path, files), "varchar")}
    raise unknown_file(path)


def _types_of_parquet(path: str, once: bool) -> dict[str, str]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise MissingExtra("pyarrow", "sql") from None
    try:
        return _types_of_arrow(parquet.read_schema(path), once)
    except ArrowException:  # its message could quote a part of the file
        pass
    raise InvalidParameter("source", path, "is not a Parquet file, or is damaged", "write the file again")


def _types_of_arrow(schema: Any, once: bool) -> dict[str, str]:
    return _by_name(zip(schema.names, schema.types, strict=True), once)


def _by_name(columns: Iterable[tuple[object, object]], once: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for column, kind in columns:
        name = str(column)
        if once and name in found:
            raise InvalidParameter(
                "columns", name, "the source has more than one column of this name", "rename one of them"
            )
        found[name] = str(kind)
    return found


def _facts(kind: Kind) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": kind.value}
    if kind in BOUNDED:
        facts |= {"low": FILL_IN, "high": FILL_IN}
    elif kind is Kind.TEXT:
        facts["keys"] = FILL_IN
    return facts
