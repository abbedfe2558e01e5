"""SQL into questions: text, syntax tree, names, SELECT. An analyst's text never reaches an engine.

    sql_reader              parse(): one SELECT read into a `Question`, or refused by a public rule
    dialect                 the text as a syntax tree, and scalar expressions as ours
    name_scope              the names that a SELECT may use over a relation
    from_clause, group_by, aggregate_functions, two_column_aggregates, share_windows     the parts of a SELECT
    function_names          what a function was called in the text
    question_templates      questions that differ in constants only are read once

A question passes dialect -> from_clause -> group_by -> aggregate_functions and leaves as a
`queries.plan.question.Question`.
"""
