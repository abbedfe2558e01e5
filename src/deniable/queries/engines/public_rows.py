"""SQL about rows that are public: DuckDB in memory, which reaches nothing but them.

This is the one place where a text that somebody wrote is run as it is. It may be, because all that it can reach is one
table of synthetic rows: files, the network, extensions, variables of Python and the settings themselves are locked.
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
    """The names of the columns and the rows that one SELECT has for an answer; `rows` is an Arrow table."""
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
                raise InvalidParameter("question", question[:200], "must be one SELECT")
            found = connection.execute(statements[0])
            return [each[0] for each in found.description or ()], found.fetchall()
        except duckdb.Error as wrong:  # about public rows: what it says holds no data
            said = str(wrong).splitlines()[0][:300]
        rule = f"cannot be answered from synthetic rows: {said}"
        raise InvalidParameter("question", question[:200], rule, f"the table is called {quoted}")
