"""SQL over public rows, in an isolated DuckDB in memory.

This is the only place that runs a user's SQL text unchanged. That is safe because the text can reach one table of
synthetic rows and nothing else: access to files, the network, extensions, Python variables and settings is locked.
"""

from __future__ import annotations

from typing import Any, Final

from deniable.errors import InvalidParameter, MissingExtra

try:
    import duckdb
except ImportError:
    raise MissingExtra("duckdb", "sql") from None

_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
    "temp_directory": "",
    "memory_limit": "1GB",
    "threads": 1,
}


def answered(name: str, rows: Any, question: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run one SELECT over `rows` (an Arrow table) under the table name `name`; (column names, result rows).

    Raises `InvalidParameter` if `question` is not one SELECT, or if DuckDB cannot run it.
    """
    with duckdb.connect(":memory:", config=_SETTINGS) as connection:
        connection.register("synthetic rows", rows)
        quoted = '"' + name.replace('"', '""') + '"'
        connection.execute(f'CREATE TABLE {quoted} AS SELECT * FROM "synthetic rows"')
        connection.unregister("synthetic rows")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        try:
            statements = connection.extract_statements(question)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise InvalidParameter("question", question[:200], "must be exactly one SELECT")
            found = connection.execute(statements[0])
            return [each[0] for each in found.description or ()], found.fetchall()
        except duckdb.Error as wrong:  # its message can quote public rows only
            message = str(wrong).splitlines()[0][:300]
        rule = f"cannot be answered from synthetic rows: {message}"
        raise InvalidParameter("question", question[:200], rule, f"the table is called {quoted}")
