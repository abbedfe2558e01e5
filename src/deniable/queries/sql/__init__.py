"""The SQL front: a text becomes a `Question`, or is refused by a public rule. The text never reaches an engine.

    sql_reader              parse(): one SELECT as a `Question`; start reading here
    named_dialects          the dialect of a text, from its first line or an argument
    dialect                 the text as a syntax tree; dialect_meanings: what other dialects write differently
    syntax_tree             questions about nodes of the tree; every module below uses them
    scalar_expressions      scalar nodes of the tree as our own expressions, given what its names mean
    name_scope              the names that a SELECT may use over a relation
    aggregate_functions     the aggregates of SQL; asked_aggregates collects those that become noisy measures
    gathered_aggregates     exact aggregates within a person, for sub-queries
    date_expressions        dates of SQL, composed of the closed table of operators; time_zones: AT TIME ZONE
    group_by, from_clause   the parts of a SELECT; joined_tables: its joins
    scalar_parts            a SELECT of scalar sub-queries, one of them over noisy rows, as one question over a union
    key_sets                ROLLUP, CUBE and GROUPING SETS, as one SELECT for each set of keys
    share_windows           COUNT(*) / SUM(COUNT(*)) OVER (), as a count and a division of the noisy answer
    window_nodes            the parts of f(x) OVER (...); person_window_nodes: windows over the rows of a person
    function_names          the name of a function as it was written in the text
    question_repairs        the part of a text that is refused, and the question without it
    question_templates      a cache: questions that differ only in constants are read once

`queries.answer` calls `key_sets` and `share_windows` first, because one text may become several questions, or a
question with a division afterwards. Then a text passes dialect (length, nesting, syntax) -> from_clause (tables, joins,
sub-queries: a relation with a scope) -> group_by (keys) -> aggregate_functions (measures), and leaves as a
`queries.plan.question.Question`.
"""
