"""Engines compute exact counts and sums. DuckDB is the default; Spark is for tables that one machine cannot hold.

    engine               the interface: register tables, collect exact integers; an engine adds no noise
    duckdb, spark        the two engines; `engine_process` runs one in a process of its own, with caps
    duckdb_sources, registration_sql, registration_report      how a source becomes a registered table
    arrow_sources, mysql_tables                                Delta, Iceberg, Postgres and MySQL as streams of Arrow
    sql_generation, expression_sql, sql_spelling, cell_index   a plan as SQL in the dialect of an engine; spark_spelling
    bounded_rows                                               each person's first rows, with few rows hashed
    row_positions, copy_making                                 ranks and positions of rows, and copies with them
    kept_tables, kept_contents                                 registered tables that last between restarts
    sql_templates, scratch_folders, question_clock             cached SQL, spill folders, time limits
    person_sql                                                 aggregates and windows within a person
    daily_parts                                                the rows of one day, for standing questions
    semaphore                                                  a fast limit on concurrent questions
    price_engine, public_rows                                  an engine without data, and SQL over public rows

An owner's source passes duckdb_sources -> registration_sql -> a stored table, once. A question comes in as a `Collect`
of `queries.relations`, passes sql_generation -> duckdb or spark, and leaves as integers by group. An engine never sees
an analyst's text, noise, or a ledger. Start reading at `sql_generation`.
"""

from deniable.errors import require

require("sql", "sqlglot")
