"""The rows of one day of a table, for standing questions: of each person at most as many as earlier days left unused.

A person is counted by a pseudonym, a keyed hash of their id, so that their count survives a new version of the data, a
restart, and the erasure of their rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from sqlglot import exp

from deniable.queries.engines.registration_sql import HASH, Reading, reading
from deniable.queries.engines.sql_spelling import DuckDB
from deniable.queries.standing_days import PEOPLE, PERSON_BYTES, Days

if TYPE_CHECKING:
    from deniable.queries.engines.duckdb_sources import FoundSource
    from deniable.tables.schema import Table

_SPELLING: Final = DuckDB()
_LIMITS: Final = "limits"


def claimed(connection: Any, found: FoundSource, table: Table, day: Days, secret: bytes, used: Any) -> Any:
    """How many rows of each person this day may use: all rows of the day, but at most `unit.rows` minus `used`.

    `used` and the result are arrays of `PEOPLE`. A person's number depends on this person's rows alone.
    """
    assert table.unit is not None
    rows, _ = _rows(found, table, day, secret)
    _limit(connection, used)
    select = (
        f'SELECT "who", LEAST(n, {table.unit.rows} - COALESCE("most", 0)) AS "rows" FROM '
        f'(SELECT "who", COUNT(*) AS n FROM ({rows}) AS t GROUP BY "who") AS t LEFT JOIN {_LIMITS} USING ("who") '
        f'WHERE {table.unit.rows} - COALESCE("most", 0) > 0'
    )
    counted = connection.execute(select).fetchall()
    connection.execute(f"DROP TABLE {_LIMITS}")
    return np.array([(bytes.fromhex(who), rows) for who, rows in counted], dtype=PEOPLE)


def rows_of_day(connection: Any, found: FoundSource, table: Table, day: Days, secret: bytes, limits: Any) -> Any:
    """The rows of a day as an Arrow table with the columns of `table`: each person's first rows, within `limits`."""
    assert table.unit is not None
    rows, read = _rows(found, table, day, secret)
    _limit(connection, limits)
    order = ", ".join(f'"{each}"' for each in (HASH, *read.tie_break))
    names = {stored: name for name, stored in read.columns.items()}
    shown = [f'"person" AS {_quoted(table.unit.column or "")}']
    for stored, name in names.items():
        text = f'CAST("{stored}" AS VARCHAR)' if stored in read.packed else f'"{stored}"'
        shown.append(f"{text} AS {_quoted(name)}")
    select = (
        f'SELECT {", ".join(shown)} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY "who" ORDER BY {order}) AS place '
        f'FROM ({rows}) AS t) AS t JOIN {_LIMITS} USING ("who") WHERE place <= "most"'
    )
    made = connection.sql(select).to_arrow_table()
    connection.execute(f"DROP TABLE {_LIMITS}")
    return made


def _rows(found: FoundSource, table: Table, day: Days, secret: bytes) -> tuple[str, Reading]:
    """(SELECT of the rows of a day with the pseudonyms of their people, how the source is read)."""
    read = reading(table, found.origin, found.columns, _SPELLING, secret)
    key = exp.Literal.string(secret.hex()).sql(dialect="duckdb")
    who = f"LEFT(SHA256(CONCAT({key}, ':', CAST(\"person\" AS VARCHAR))), {2 * PERSON_BYTES})"
    select = read.select.sql(dialect="duckdb", normalize_functions=False)
    where = day.condition.format(f'"{read.columns[day.column]}"')
    return f'SELECT *, {who} AS "who" FROM ({select}) AS t WHERE {where}', read


def _limit(connection: Any, people: Any) -> None:
    connection.execute(f'CREATE TEMP TABLE {_LIMITS} ("who" VARCHAR, "most" BIGINT)')
    if len(people):
        import pyarrow as pa

        columns = {"who": [each.tobytes().hex() for each in people["who"]], "most": people["rows"].astype(np.int64)}
        connection.register("given", pa.table(columns))
        connection.execute(f"INSERT INTO {_LIMITS} SELECT * FROM given")
        connection.unregister("given")


def _quoted(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql(dialect="duckdb")
