"""Tables of other systems as streams of Arrow: Delta Lake, Iceberg, Postgres, and MySQL (`mysql_tables`).

The systems' own readers decide which rows are current. A reader is imported only if one of its objects is given.
DuckDB's extensions for these systems are not used: DuckDB would load them from the network, and this engine loads no
extension.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

from deniable.errors import NOTHING, EngineFailed, InvalidParameter, MissingExtra
from deniable.queries.engines.engine import DatabaseTable
from deniable.queries.engines.mysql_tables import ADDRESSES, mysql_stream, mysql_types

_BATCH: Final = 50_000
"""The number of rows that are fetched from a database at a time."""

_POSTGRES: Final = ("postgresql://", "postgres://")

_CASTS: Final = {
    "int2": ("{}::bigint", "int64"),
    "int4": ("{}::bigint", "int64"),
    "int8": ("{}", "int64"),
    "float4": ("{}::float8", "float64"),
    "float8": ("{}", "float64"),
    "numeric": (
        # A cast of a value that a real cannot hold is an error; one row must not stop a registration.
        "CASE WHEN abs({0}) > 1.7e308 THEN NULL WHEN abs({0}) < 1e-300 THEN 0 ELSE {0} END::float8",
        "float64",
    ),
    "bool": ("{}", "bool"),
    "text": ("{}", "string"),
    "varchar": ("{}::text", "string"),
    "bpchar": ("{}::text", "string"),
    "name": ("{}::text", "string"),
    "uuid": ("{}::text", "string"),
    "date": ("CASE WHEN {0} BETWEEN '0001-01-01' AND '9999-12-31' THEN {0} END", "date"),
    "timestamp": ("CASE WHEN {0} >= '0001-01-01' AND {0} < '10000-01-01' THEN {0} END", "timestamp"),
    "timestamptz": (
        "CASE WHEN {0} AT TIME ZONE 'UTC' >= '0001-01-01' AND {0} AT TIME ZONE 'UTC' < '10000-01-01' "
        "THEN {0} AT TIME ZONE 'UTC' END",
        "timestamp",
    ),
}
"""How Postgres writes a column of each type, and the type in Arrow. Columns of other types are left out."""


def as_arrow(source: object) -> object:
    """A table of another system as an Arrow dataset or a stream; any other source is returned unchanged."""
    home, kind = type(source).__module__.partition(".")[0], type(source).__name__
    if home == "deltalake" and kind == "DeltaTable":
        return _delta(source)
    if home == "pyiceberg" and hasattr(source, "scan"):
        return source.scan().to_arrow_batch_reader()
    if isinstance(source, DatabaseTable) and _is_mysql(source):
        return mysql_stream(source)
    if isinstance(source, DatabaseTable) and is_on_server(source):
        return _postgres(source)
    return source


def _delta(source: Any) -> object:
    """The current rows of a table of Delta Lake."""
    from deltalake.exceptions import DeltaProtocolError

    try:
        return source.to_pyarrow_dataset()
    except DeltaProtocolError:  # of deletion vectors, for example: without them, deleted rows would be read
        pass
    rule = "is a Delta table with features that the installed deltalake cannot read"
    raise InvalidParameter("source", NOTHING, rule, "read it with Spark, or write its current rows to Parquet")


def is_on_server(source: DatabaseTable) -> bool:
    """Whether a table is in a database on a server (Postgres or MySQL), by its address."""
    return os.fspath(source.path).startswith(_POSTGRES) or _is_mysql(source)


def _is_mysql(source: DatabaseTable) -> bool:
    return os.fspath(source.path).startswith(ADDRESSES)


def types_on_server(source: DatabaseTable) -> dict[str, str]:
    """The readable columns of a table on a server and their types in Arrow. Reads no value of a row."""
    if _is_mysql(source):
        return mysql_types(source)
    with _connected(source) as connection:
        return {name: str(kind) for name, _, kind in _columns(connection, source)}


def _postgres(source: DatabaseTable) -> Any:
    """The rows of a table in Postgres, as of one moment, as a stream of Arrow."""
    import pyarrow as pa

    with _connected(source) as connection:
        columns = _columns(connection, source)
    schema = pa.schema([(name, _arrow_type(kind)) for name, _, kind in columns])
    return pa.RecordBatchReader.from_batches(schema, _batches(source, columns, schema))


def _batches(source: DatabaseTable, columns: list[tuple[str, str, str]], schema: Any) -> Iterator[Any]:
    import pyarrow as pa
    from psycopg import Error, IsolationLevel, sql

    shown = sql.SQL(", ").join(sql.SQL(written).format(sql.Identifier(name)) for name, written, _ in columns)
    try:
        with _connected(source) as connection:
            connection.isolation_level, connection.read_only = IsolationLevel.REPEATABLE_READ, True
            with connection.cursor(name="deniable", binary=True) as cursor:
                cursor.execute(sql.SQL("SELECT {} FROM {}").format(shown, _called(source)))
                while rows := cursor.fetchmany(_BATCH):
                    values = zip(*rows, strict=True)
                    arrays = [pa.array(each, kind) for each, kind in zip(values, schema.types, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            return
    except Error:  # its message could quote a value
        pass
    raise EngineFailed("source")


def _connected(source: DatabaseTable) -> Any:
    try:
        import psycopg
    except ImportError:
        raise MissingExtra("psycopg", "postgres") from None
    try:
        return psycopg.connect(os.fspath(source.path), client_encoding="utf8")
    except psycopg.Error:  # its message has the address, and with it the password
        pass
    rule = "cannot be reached, or refuses the user"
    raise InvalidParameter("source", source.table, f"the database {rule}", "try the address with psql")


def _columns(connection: Any, source: DatabaseTable) -> list[tuple[str, str, str]]:
    """(name, SQL that reads it, type in Arrow) of each readable column; `InvalidParameter` if the table is missing."""
    [encoding] = connection.execute("SHOW server_encoding").fetchone()
    if encoding != "UTF8":
        rule = f"is in a database with the encoding {encoding}"
        raise InvalidParameter(
            "table", source.table, rule, "texts must be UTF-8: recode the database, or export to Parquet"
        )
    found = connection.execute(
        "SELECT a.attname, t.typname, t.typtype FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
        "WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        (_called(source).as_string(connection),),
    ).fetchall()
    if not found:
        rule = "the database has no such table, or the user may not read it"
        raise InvalidParameter("table", source.table, rule, "write schema.table if it is not in the search path")
    columns = []
    for name, kind, what in found:
        written, arrow = ("{}::text", "string") if what == "e" else _CASTS.get(kind, (None, ""))
        if written is not None:
            columns.append((str(name), written, arrow))
    return columns


def _called(source: DatabaseTable) -> Any:
    from psycopg import sql

    return sql.Identifier(*source.table.split(".", 1))


def _arrow_type(kind: str) -> Any:
    import pyarrow as pa

    return {"date": pa.date32(), "timestamp": pa.timestamp("us"), "bool": pa.bool_()}.get(kind) or getattr(pa, kind)()
