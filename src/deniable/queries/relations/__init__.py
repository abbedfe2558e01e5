"""Relations: the rows that a question reads, as a tree of nodes that each know their stability.

    relation_nodes      Source, FilterRows, Project, joins, PerPerson, Union, Bound: the nodes and their stability rules
    person_windows      LAG, ROW_NUMBER and running totals over the rows of one person
    whole_people        what is refused where the unit is a person's day or week
    restricted_columns  columns that a condition restricts to a few values, so that a person has few rows
    linear_patterns     regular expressions that every engine matches in linear time
    operators           expressions, checked against the closed table: kinds, public bounds, values
    operator_table      the closed table of operators; `operator_meanings` is their reference in Python, and
                        `operator_bounds` their effect on public bounds (interval arithmetic on fractions);
                        `text_bounds`: those of texts
    constant_kinds, kind_remedies      constants converted to the kind beside them, and remedies for wrong kinds
    exact_statistics    the statistics that an engine computes before noise, with their sensitivity
    altered_records     copies of frozen records with changed fields, without repeating their checks
    work_bound, question_length, evaluation_limit      limits that are checked before any data is read

`queries.sql` and `queries.frame` build these nodes for a question, `queries.plan` chooses the statistics and their
noise, and `queries.engines` runs a node with its statistics (a `Collect`). Declarations of the owner (schemas, kinds,
expressions over columns) are below, in `deniable.tables`.
"""
