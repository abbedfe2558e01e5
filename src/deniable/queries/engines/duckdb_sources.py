"""Sources for DuckDB: files, dataframes and databases, each opened as something to SELECT from.

Only the declared columns are read. No type is inferred from the data: columns of a CSV file, and pandas columns of
Python objects, are text until the schema gives them a kind. Dataframes are read in place, without a copy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, final

from sqlglot import exp

from deniable.csv_structure import Extent, extent_of, separator
from deniable.errors import NOTHING, InvalidParameter
from deniable.queries.engines.arrow_sources import as_arrow
from deniable.queries.engines.engine import DatabaseTable, places, unreadable
from deniable.queries.engines.expression_sql import Piece
from deniable.queries.engines.registration_sql import Reading, reading
from deniable.queries.engines.sql_spelling import (
    SQL,
    DuckDB,
    both,
    case,
    cast,
    column,
    function,
    inside,
    name,
    number,
    try_cast,
)
from deniable.tables.kinds import Domain, Kind
from deniable.tables.schema import Table
from deniable.tables.schema_proposal import has_kind, type_of_pandas
from deniable.tables.source_files import CSV, PARQUET, files_of, folder_columns, header, unknown_file

Run = Callable[[str], list[tuple[Any, ...]]]

_WHOLE: Final = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"})
_WIDE: Final = frozenset({"UBIGINT", "HUGEINT", "UHUGEINT", "BIGNUM"})
_MOMENTS: Final = frozenset({"TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"})
_LARGEST_REAL: Final = "1.7976931348623157e308"
_ONCE: Final = frozenset({"RecordBatchReader", "Scanner"})
"""Arrow's classes of sources that can be read only once."""
_WILDCARDS: Final = {ord(each): f"[{each}]" for each in "*?["}
_USUAL_LINE: Final = 1_900_000
"""For longer records (in bytes), DuckDB's limit of 2,000,000 must be raised."""
_USUAL_BUFFER: Final = 32 << 20
"""DuckDB's default buffer size in bytes."""


@final
@dataclass(frozen=True, slots=True)
class FileList:
    """Some of the files of a source, all CSV or all Parquet, with the path of the whole source."""

    path: str
    files: tuple[str, ...]
    extents: tuple[Extent, ...] | None = None
    """The sizes of its CSV files, in any order, if they were measured before."""


@final
@dataclass(frozen=True, slots=True)
class FoundSource:
    """An open source: the SQL to select from, its needed columns (None for a column whose type cannot be read as any
    kind), and its size in bytes.

    `size` is an estimate of the size once stored.
    """

    origin: SQL
    columns: dict[str, Piece | None]
    size: int
    once: bool = False
    """Whether it can be read only once."""
    extents: tuple[Extent, ...] | None = None
    """The sizes of its CSV files, measured by an independent reader; None for other sources."""
    types: tuple[tuple[str, str], ...] | None = None
    """The needed columns of a file and their types there; None for other sources, and if the files differ."""

    @property
    def rows(self) -> int | None:
        """The number of rows of CSV files, counted by an independent reader; None for other sources."""
        return None if self.extents is None else sum(each.rows for each in self.extents)


def is_read_once(source: object) -> bool:
    """Whether a source is a stream, which is empty after it was read."""
    return type(source).__name__ in _ONCE


@contextmanager
def opened(connection: Any, run: Run, source: object, table: Table) -> Iterator[FoundSource]:
    """Open a source for the duration of the block. Raises `InvalidParameter` if it does not fit the schema."""
    source = as_arrow(source)
    if isinstance(source, DatabaseTable):
        with _database(run, source, table) as found:
            yield found
    elif isinstance(source, FileList):
        yield _files(run, source.path, list(source.files), table, source.extents)
    elif isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        if not isinstance(path, str):
            raise InvalidParameter("source", NOTHING, "must be a path as text, not as bytes")
        yield _files(run, path, files_of(path), table)
    else:
        frame, where, size = _frame(source, table)
        connection.register("source", frame)
        try:
            types = _types(run, 'SELECT * FROM "source"')
            origin = exp.Table(this=name("source"))
            columns = {each: natural(*types[at]) for each, at in where.items()}
            yield FoundSource(origin, columns, size, is_read_once(source))
        finally:
            connection.unregister("source")


@contextmanager
def opened_to_read(connection: Any, run: Run, source: object, table: Table, secret: bytes) -> Iterator[Reading]:
    """Open a source for the duration of the block, as the SQL that reads it."""
    with opened(connection, run, source, table) as found:
        yield reading(table, found.origin, found.columns, DuckDB(), secret)


def _types(run: Run, select: str) -> list[tuple[str, str]]:
    return [(str(row[0]), str(row[1])) for row in run(f"DESCRIBE {select}")]


# --- files ----------------------------------------------------------------------------------------------------------


def _files(
    run: Run, path: str, files: list[str], table: Table, extents: tuple[Extent, ...] | None = None
) -> FoundSource:
    size = sum(os.path.getsize(each) for each in files)
    lowered = path.lower()
    if lowered.endswith(PARQUET) or os.path.isdir(path):
        return _parquet(run, files, table, size, folder_columns(path, files))
    if lowered.endswith(CSV):
        return _csv(files, table, size, extents)
    raise unknown_file(path)


def _parquet(run: Run, files: list[str], table: Table, size: int, folders: list[str]) -> FoundSource:
    """Parquet files together: columns are matched by name, and a column that a file lacks is NULL in its rows."""
    shapes = _shapes(run, files)
    first = shapes.get(files[0], next(iter(shapes.values())))
    alike = all(each == first for each in shapes.values())
    listed = _listed(files).sql(dialect="duckdb")
    # Without union_by_name, DuckDB reads all files by the types of the first, and a value of another type can fail.
    # Values in names of folders are text: otherwise all of them together would decide the type of each.
    hive = ", hive_partitioning=true, hive_types_autocast=false" if folders else ", hive_partitioning=false"
    origin = exp.Var(this=f"READ_PARQUET({listed}{hive}{'' if alike else ', union_by_name=true'})")
    types = _types(run, f"SELECT * FROM {origin.sql(dialect='duckdb')}")
    # DuckDB renames columns that differ only by case, so the names are taken from the file itself.
    names = [each for each, _ in first]
    names += [each for each, _ in types[len(names) :]]  # columns of other files, and of folders such as year=2024
    where = places(table, names)
    if not alike:
        whose = None if table.unit is None else table.unit.column
        _check_shapes(shapes, [names[at] for at in where.values()], None if whose in folders else whose)
    columns = {each: natural(*types[at]) for each, at in where.items()}
    needed = tuple(sorted((each, types[at][1]) for each, at in where.items())) if alike else None
    return FoundSource(_as_table(origin), columns, 4 * size, types=needed)


_Shape = tuple[tuple[str, str], ...]


def _shapes(run: Run, files: list[str]) -> dict[str, _Shape]:
    """The names and types of the columns of each Parquet file."""
    schema = function("PARQUET_SCHEMA", _listed(files)).sql(dialect="duckdb")
    kind = "concat_ws(' ', type, converted_type, logical_type)"
    found: dict[str, list[tuple[str, int, str]]] = {}
    for row in run(f"SELECT file_name, name, coalesce(num_children, 0), {kind} FROM {schema}"):
        found.setdefault(str(row[0]), []).append((str(row[1]), int(row[2]), str(row[3])))
    return {file: _top_level(each) for file, each in found.items()}


def _check_shapes(shapes: dict[str, _Shape], needed: list[str], whose: str | None) -> None:
    """Raise `InvalidParameter` if a file has a needed column several times, or no ids: its rows would be left out."""
    for file, shape in shapes.items():
        named = [each.lower() for each, _ in shape]
        for each in needed:
            times = named.count(each.lower())
            if times > 1 or (times == 0 and each == whose):
                has = "several columns" if times else "no column"
                rule = f"has {has} {each!r}, which other files of this source have once"
                raise InvalidParameter("source", os.path.basename(file), rule, "write the files with the same columns")


def _listed(files: list[str]) -> SQL:
    return exp.Array(expressions=[_text(_literal(each)) for each in files])


def _literal(path: str) -> str:
    """The path of one file with wildcard characters escaped for DuckDB."""
    if "\\" in path and set("*?[") & set(path):  # in a pattern, DuckDB reads a backslash as a folder separator
        rule = "has a backslash in its path and one of * ? ["
        raise InvalidParameter("source", path, rule, "rename the file or its folder")
    return path.translate(_WILDCARDS)


def _top_level(schema: list[tuple[str, int, str]]) -> _Shape:
    """The columns of a Parquet file: the children of the root, from a depth-first list of (name, children, type)."""
    columns: list[tuple[str, str]] = []

    def skip(at: int) -> int:
        children = schema[at][1]
        at += 1
        for _ in range(children):
            at = skip(at)
        return at

    at = 1
    while at < len(schema):
        start, at = at, skip(at)
        # With the types of nested parts, so that a list of numbers differs from a list of texts.
        columns.append((schema[start][0], " ".join(kind for _, _, kind in schema[start:at])))
    return tuple(columns)


def _csv(files: list[str], table: Table, size: int, extents: tuple[Extent, ...] | None) -> FoundSource:
    """CSV files: comma-separated (tab for .tsv), quoted by ", UTF-8, with column names in the first line.

    An empty field is NULL unless it is quoted. Raises `InvalidParameter` if a file is malformed.
    """
    delimiter, names = separator(files[0]), header(files[0])
    for each in files[1:]:
        if header(each) != names:
            raise InvalidParameter("source", NOTHING, "must have the same first line in all of its files")
    where = places(table, names)
    extents = extents or tuple(extent_of(each, len(names)) for each in files)
    fields = ", ".join(f"'f{at}': 'VARCHAR'" for at in range(len(names)))
    longest = max(each.longest for each in extents)
    listed = _listed(files).sql(dialect="duckdb")
    # auto_detect would infer types from the data.
    options = (
        f"auto_detect=false, header=true, columns={{{fields}}}, delim='{delimiter}', quote='\"', escape='\"', "
        "new_line='\\n', nullstr='', allow_quoted_nulls=false, strict_mode=false, ignore_errors=false, "
        "null_padding=false"
    )
    if longest > _USUAL_LINE:  # only then: with larger buffers, DuckDB reads large files in one piece
        options += f", max_line_size={longest + 2}, buffer_size={max(_USUAL_BUFFER, 2 * longest)}"
    origin = _as_table(exp.Var(this=f"READ_CSV({listed}, {options})"))
    if len(names) == 1:  # then DuckDB reads an empty line as a record with NULL; a quoted "" is text, and stays
        there = exp.Not(this=exp.Is(this=column("f0"), expression=exp.Null()))
        origin = inside(exp.select("*").from_(origin).where(there))
    columns: dict[str, Piece | None] = {each: Piece(column(f"f{at}"), Domain(Kind.TEXT)) for each, at in where.items()}
    types = tuple((each, "text") for each in names)
    return FoundSource(origin, columns, 2 * size, extents=extents, types=types)


def listed(run: Run, wanted: str | None = None) -> list[str]:
    """The tables and views of the attached database `source`; `InvalidParameter` if `wanted` is not among them."""
    rows = run(
        "SELECT table_name FROM information_schema.tables WHERE table_catalog = 'source' AND table_schema = 'main'"
    )
    tables = sorted(str(row[0]) for row in rows)
    if wanted is not None and wanted not in tables:
        shown = ", ".join(tables) or "none"
        raise InvalidParameter("table", wanted, "the database has no such table", f"it has {shown}")
    return tables


@contextmanager
def _database(run: Run, source: DatabaseTable, table: Table) -> Iterator[FoundSource]:
    path = os.fspath(source.path)
    if not os.path.exists(path):
        raise InvalidParameter("source", path, "there is no such file")
    run(f"ATTACH {_text(path).sql(dialect='duckdb')} AS source (READ_ONLY)")
    try:
        listed(run, source.table)
        origin = exp.Table(this=name(source.table), db=name("main"), catalog=name("source"))
        types = _types(run, f"SELECT * FROM {origin.sql(dialect='duckdb')}")
        where = places(table, [each for each, _ in types])
        size = 4 * os.path.getsize(path)
        yield FoundSource(origin, {each: _by_bytes(natural(*types[at])) for each, at in where.items()}, size)
    finally:
        run("DETACH source")


def _by_bytes(piece: Piece | None) -> Piece | None:
    """A column whose texts are compared byte by byte. In a database, a column may have another collation, which its
    type does not tell, and which tables that are made of it keep.
    """
    if piece is None or piece.domain.kind is not Kind.TEXT:
        return piece
    return replace(piece, sql=exp.Collate(this=piece.sql, expression=name("binary")))


# --- frames ---------------------------------------------------------------------------------------------------------


def _frame(source: object, table: Table) -> tuple[object, dict[str, int], int]:
    """(the needed columns of a dataframe, without a copy; the position of each; their size in bytes)."""
    home = type(source).__module__.partition(".")[0]
    kind = type(source).__name__
    if home == "pandas" and kind == "DataFrame":
        return _pandas(source, table)
    if home == "polars" and kind in {"DataFrame", "LazyFrame"}:
        return _polars(source, table)
    if home == "pyarrow" and hasattr(source, "schema"):
        return _arrow(source, table)
    raise InvalidParameter(
        "source",
        NOTHING,
        f"a {kind} cannot be read",
        "give a path (CSV, Parquet), a pandas, polars or Arrow table, or DatabaseTable(path, table)",
    )


def _pandas(source: Any, table: Table) -> tuple[object, dict[str, int], int]:
    import pandas as pd

    where = places(table, [each if isinstance(each, str) else repr(each) for each in source.columns])
    for each, at in where.items():
        if not has_kind(type_of_pandas(source.dtypes.iloc[at])):
            raise unreadable(each, dict(table.columns).get(each, Domain(Kind.TEXT)).kind.value)
    positions = sorted(set(where.values()))
    frame = pd.DataFrame({f"f{at}": _forward(_unicode(source.iloc[:, at])) for at in positions}, copy=False)
    frame["f"] = True  # in DuckDB, a dataframe without columns would have no rows
    return frame, _renumbered(where, positions), int(frame.memory_usage(index=False).sum())


def _unicode(column: Any) -> Any:
    """The column with NULL for invalid Unicode (half a surrogate pair); DuckDB would reject the whole column."""
    import numpy as np

    categories = getattr(column.dtype, "categories", None)
    if categories is not None:
        if not any(_is_broken(each) for each in categories):
            return column
        column = column.astype(object)
    if column.dtype != object and str(getattr(column.dtype, "storage", "")) != "python":
        return column
    lost = np.fromiter((_is_broken(each) for each in column), dtype=bool, count=len(column))
    return column.mask(lost, None) if lost.any() else column


def _is_broken(value: object) -> bool:
    if not isinstance(value, str) or value.isascii():
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False


def _forward(column: Any) -> Any:
    """The column with a positive stride: DuckDB cannot read memory backwards, as frame[::-1] requires."""
    import numpy as np

    plain = isinstance(column.dtype, np.dtype)  # for other types, `to_numpy` would copy the values
    return column.copy() if plain and column.to_numpy(copy=False).strides[0] < 0 else column


def _polars(source: Any, table: Table) -> tuple[object, dict[str, int], int]:
    import polars as pl

    names = source.collect_schema().names()
    where = places(table, names)
    positions = sorted(set(where.values()))
    frame = source.select([pl.col(names[at]).alias(f"f{at}") for at in positions])
    frame = (frame if positions else source.select(pl.lit(True).alias("f")).head(source.height)).lazy().collect()
    for each, at in where.items():
        if frame.schema[f"f{at}"] in {pl.Int128, pl.Object}:
            raise unreadable(each, table.column(each).kind.value)
    return frame, _renumbered(where, positions), int(frame.estimated_size())


def _arrow(source: Any, table: Table) -> tuple[object, dict[str, int], int]:
    import pyarrow as pa

    where = places(table, source.schema.names)
    for each, at in where.items():
        if pa.types.is_float16(source.schema.types[at]) or pa.types.is_decimal256(source.schema.types[at]):
            raise unreadable(each, dict(table.columns).get(each, Domain(Kind.TEXT)).kind.value)
    if not isinstance(source, pa.Table):  # a reader or a dataset is streamed
        return source, where, 1 << 62
    positions = sorted(set(where.values())) or [0]
    if not source.num_columns:
        return pa.table({"f": pa.nulls(source.num_rows)}), {}, 0
    chosen = source.select(positions).rename_columns([f"f{at}" for at in positions])
    return chosen, _renumbered(where, positions), int(chosen.nbytes)


def _renumbered(where: dict[str, int], positions: list[int]) -> dict[str, int]:
    return {each: positions.index(at) for each, at in where.items()}


# --- types ----------------------------------------------------------------------------------------------------------


def natural(identifier: str, written: str) -> Piece | None:
    """A column converted to the kind that matches its DuckDB type `written`; None if no kind does."""
    value = column(identifier)
    kind = written.partition("(")[0].upper()
    if written.endswith("]"):
        return None
    if kind in _WHOLE:
        return Piece(cast(value, "BIGINT"), Domain(Kind.INTEGER))
    if kind in _WIDE:
        return Piece(try_cast(value, "BIGINT"), Domain(Kind.INTEGER))
    if kind in {"FLOAT", "DOUBLE"}:
        real = cast(value, "DOUBLE")
        finite = both(exp.LTE, function("ABS", real), cast(_text(_LARGEST_REAL), "DOUBLE"))
        return Piece(case((finite, both(exp.Add, real.copy(), cast(number(0), "DOUBLE")))), Domain(Kind.REAL))
    if kind == "DECIMAL":
        whole = written.rstrip(")").endswith(",0")
        # Via text, so that the value is rounded only once.
        sql = try_cast(value, "BIGINT") if whole else cast(cast(value, "VARCHAR"), "DOUBLE")
        return Piece(sql, Domain(Kind.INTEGER if whole else Kind.REAL))
    if kind in {"VARCHAR", "ENUM", "UUID", "JSON"}:
        return Piece(value if kind == "VARCHAR" else cast(value, "VARCHAR"), Domain(Kind.TEXT))
    if kind == "BOOLEAN":
        return Piece(value, Domain(Kind.BOOLEAN))
    if kind == "DATE":
        return Piece(_in_calendar(value, "DATE", "9999-12-31"), Domain(Kind.DATE))
    if kind in _MOMENTS:
        moment = try_cast(value, "TIMESTAMP")
        return Piece(_in_calendar(moment, "TIMESTAMP", "9999-12-31 23:59:59.999999"), Domain(Kind.TIMESTAMP))
    if kind == "TIMESTAMP WITH TIME ZONE":
        finite = function("ISFINITE", value)
        moment = case((finite, function("MAKE_TIMESTAMP", function("EPOCH_US", value.copy()))))
        return Piece(_in_calendar(moment, "TIMESTAMP", "9999-12-31 23:59:59.999999"), Domain(Kind.TIMESTAMP))
    if kind == '"NULL"':
        return Piece(exp.Null(), Domain(Kind.BOOLEAN, None, (), True))
    return None


def _in_calendar(value: SQL, to: str, last: str) -> SQL:
    after = both(exp.GTE, value, cast(_text("0001-01-01"), to))
    before = both(exp.LTE, value.copy(), cast(_text(last), to))
    return case((exp.And(this=after, expression=before), value.copy()))


def _text(value: str) -> SQL:
    return exp.Literal.string(value)


def _as_table(called: SQL) -> SQL:
    return exp.Table(this=called)
