"""The dataframe front: questions built by method calls, with the same plans, checks and hashes as SQL.

    frame               Frame: select, filter, join, group; each method returns a new frame over a new relation
    frame_aggregates    count(), mean("cost"), quantile("cost", 0.9): the aggregates of groups
    recorded_steps      frames that record their method calls as JSON, so that a server can repeat a client's

`session.table("visits")` returns a `Frame`, and `agg(...)` turns it into a `Question`, the same record that the SQL
reader builds; from there on both take the same way through `queries.plan`.
"""
