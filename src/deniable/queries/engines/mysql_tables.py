"""Tables of MySQL and MariaDB as streams of Arrow.

The address is mysql://user:password@host:3306/database. After a question mark it may have `unix_socket`, and `ssl_ca`,
`ssl_cert` and `ssl_key` (paths): with `ssl_ca` the certificate and the name of the server are verified; without it the
connection is not encrypted.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from deniable.errors import NOTHING, EngineFailed, InvalidParameter, MissingExtra
from deniable.queries.engines.engine import DatabaseTable

ADDRESSES: Final = ("mysql://", "mariadb://")

_BATCH: Final = 50_000
"""The number of rows that are fetched at a time."""

_OPTIONS: Final = frozenset({"unix_socket", "ssl_ca", "ssl_cert", "ssl_key"})

_PREPARED: Final = (
    "SET SESSION time_zone = '+00:00', net_write_timeout = 3600",  # the reader may pause while rows are stored
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
)

_WHOLE: Final = ("{0}", "int64")
_REAL: Final = ("{0} + 0e0", "float64")  # a FLOAT alone would be written with six digits
_TEXT: Final = ("CONVERT({0} USING utf8mb4)", "string")

_READ: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "year"), _WHOLE),
    "bigint": ("CASE WHEN {0} <= 9223372036854775807 THEN {0} END", "int64"),  # it may be unsigned
    **dict.fromkeys(("float", "double", "decimal"), _REAL),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "uuid"), _TEXT),
    "date": ("{0}", "date32"),
    "datetime": ("{0}", "timestamp"),
    "timestamp": ("{0}", "timestamp"),
}
"""How a column of each type is read, and its type in Arrow. Columns of other types are left out."""


def mysql_types(source: DatabaseTable) -> dict[str, str]:
    """The readable columns of a table and their types in Arrow. Reads no value of a row."""
    with _connected(source) as connection:
        return {name: kind.removesuffix("32") for name, _, kind in _columns(connection, source)}


def mysql_stream(source: DatabaseTable) -> Any:
    """The rows of a table, as of one moment, as a stream of Arrow."""
    import pyarrow as pa

    with _connected(source) as connection:
        columns = _columns(connection, source)
    types = [pa.timestamp("us") if kind == "timestamp" else getattr(pa, kind)() for _, _, kind in columns]
    schema = pa.schema([(name, kind) for (name, _, _), kind in zip(columns, types, strict=True)])
    return pa.RecordBatchReader.from_batches(schema, _batches(source, columns, schema))


def _batches(source: DatabaseTable, columns: list[tuple[str, str, str]], schema: Any) -> Iterator[Any]:
    import pyarrow as pa
    from pymysql import Error
    from pymysql.cursors import SSCursor

    shown = ", ".join(written.format(_quoted(name)) for name, written, _ in columns)
    where = ".".join(map(_quoted, source.table.split(".", 1)))
    try:
        with _connected(source) as connection:
            with connection.cursor() as cursor:
                for statement in _PREPARED:
                    cursor.execute(statement)
            with connection.cursor(SSCursor) as cursor:
                cursor.execute(f"SELECT {shown} FROM {where}")
                while rows := cursor.fetchmany(_BATCH):
                    values = zip(*rows, strict=True)
                    arrays = [pa.array(each, kind) for each, kind in zip(values, schema.types, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            return
    except (Error, ValueError):  # a message could quote a value
        pass
    raise EngineFailed("source")


def _connected(source: DatabaseTable) -> Any:
    try:
        import pymysql
        from pymysql.constants import FIELD_TYPE
        from pymysql.converters import encoders
    except ImportError:
        raise MissingExtra("pymysql", "mysql") from None
    read: dict[Any, Callable[[str], object]] = dict.fromkeys(
        (FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG, FIELD_TYPE.YEAR),
        int,
    )
    read |= {FIELD_TYPE.DOUBLE: float, FIELD_TYPE.DATE: _day, FIELD_TYPE.NEWDATE: _day}
    read |= {FIELD_TYPE.DATETIME: _moment, FIELD_TYPE.TIMESTAMP: _moment}
    place = urlsplit(os.fspath(source.path))
    given = dict(parse_qsl(place.query))
    if unknown := sorted(set(given) - _OPTIONS):
        rule = f"has an option {unknown[0]!r} that is not known"
        raise InvalidParameter("source", NOTHING, f"the address {rule}", f"known are {', '.join(sorted(_OPTIONS))}")
    options: dict[str, Any] = dict(given)
    if "ssl_ca" in given:
        options |= {"ssl_verify_cert": True, "ssl_verify_identity": True}
    try:
        return pymysql.connect(
            host=place.hostname or "localhost",
            port=place.port or 3306,
            user=unquote(place.username or ""),
            password=unquote(place.password or ""),
            database=unquote(place.path.strip("/")) or None,
            charset="utf8mb4",
            conv={**encoders, **read},
            connect_timeout=10,
            **options,
        )
    except (pymysql.Error, OSError, ValueError):  # a message could have the address, and with it the password
        pass
    rule = "cannot be reached, or refuses the user"
    raise InvalidParameter("source", source.table, f"the database {rule}", "try the address with the client mysql")


def _columns(connection: Any, source: DatabaseTable) -> list[tuple[str, str, str]]:
    """(name, SQL that reads it, type in Arrow) of each readable column; `InvalidParameter` if the table is missing."""
    schema, _, table = source.table.rpartition(".")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name, LOWER(data_type) FROM information_schema.columns "
            "WHERE table_schema = COALESCE(NULLIF(%s, ''), DATABASE()) AND table_name = %s ORDER BY ordinal_position",
            (schema, table),
        )
        found = cursor.fetchall()
    if not found:
        rule = "the database has no such table, or the user may not read it"
        raise InvalidParameter("table", source.table, rule, "write schema.table if it is not in the address's database")
    return [(str(name), *_READ[kind]) for name, kind in found if kind in _READ]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _day(text: str) -> dt.date | None:
    """A date; None for one that is not in the calendar, which MySQL can hold (0000-00-00, 2024-02-00)."""
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        return None


def _moment(text: str) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return None
