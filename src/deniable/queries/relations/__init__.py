"""Relations: what a question reads, as a tree whose nodes each know their stability.

    relation_nodes      Source, FilterRows, Project, joins, PerPerson, Union, Bound: the nodes and their stability rule
    operators           the closed table of operators; `operator_meanings` is their reference in plain Python,
                        `operator_bounds` what they do to public bounds (interval arithmetic on fractions)
    constant_kinds, kind_remedies      constants read as the kind beside them, and what to write instead
    exact_statistics    what an engine computes before noise, with its sensitivity
    work_bound, question_length, evaluation_limit      limits that hold before any data is read

SQL and dataframes are turned into these nodes; `queries.plan` chooses noise for them; `queries.engines` runs them. What
the owner declares (schemas, kinds, expressions over columns) is below, in `deniable.tables`.
"""
