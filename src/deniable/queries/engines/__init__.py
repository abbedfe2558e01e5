"""Engines: where the exact sums are made. DuckDB by default, Spark when one machine is not enough."""

from deniable.errors import require

require("sql", "sqlglot")
