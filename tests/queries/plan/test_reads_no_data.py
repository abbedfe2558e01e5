"""Reading a question touches neither data nor an engine: whatever it refuses, it refuses to everyone alike."""

from __future__ import annotations

import inspect
import subprocess
import sys

from deniable.queries.frame.frame import Frame
from deniable.queries.sql.sql_reader import parse
from deniable.tables.schema import Table


def test_the_fronts_load_no_engine_and_no_dataframes() -> None:
    loaded = "import sys, deniable.queries.sql.sql_reader, deniable.queries.frame.frame; print(*sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout.split()
    assert "sqlglot" in modules
    for heavy in ("duckdb", "pyspark", "pandas", "polars", "pyarrow", "scipy"):
        assert heavy not in modules


def test_the_fronts_are_given_text_and_schema_alone() -> None:
    """A `Table` holds names, kinds, public bounds, keys and which columns are unique or owned; there is no way from it to a row."""
    assert list(inspect.signature(parse).parameters) == ["text", "tables"]
    assert list(inspect.signature(Frame.of).parameters) == ["name", "tables"]
    assert Table.__slots__ == ("name", "columns", "unit", "most_partners", "unique", "owned")
