"""Engines: where the exact sums are made. DuckDB by default, Spark when one machine is not enough.

    engine               what an engine is: it holds registered tables, counts and sums, and adds no noise
    duckdb, spark        the two engines; `engine_process` runs one in a process of its own, with caps
    duckdb_sources, registration_sql, registration_report      how a source becomes a registered table
    sql_generation, expression_sql, sql_spelling, cell_index   a plan as SQL in the dialect of an engine
    row_positions, sql_templates, scratch_folders              copies with row numbers, cached SQL, spill folders
    price_engine, public_rows                                  an engine without data, and SQL over public rows

A `Collect` of `queries.relations` comes in, integers go out. No text of an analyst, no noise, no ledger is known here.
"""

from deniable.errors import require

require("sql", "sqlglot")
