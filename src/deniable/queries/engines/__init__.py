"""Engines: where the exact sums are made. DuckDB by default, Spark when one machine is not enough."""
