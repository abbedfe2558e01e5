"""Dataframes into questions: the same plans, checks and hashes as SQL.

    frame               Frame: select, filter, join, group; each verb makes a new relation
    frame_aggregates    count(), mean("cost"), quantile("cost", 0.9): what a frame asks of its groups
    recorded_steps      the same verbs as plain values, so that a client can send them and a server repeat them

`session.table("visits")` gives a `Frame`; its last verb gives a `Question` as the SQL reader does, and from there on
nobody can tell the two apart.
"""
