"""The dialect page says what the front does."""

from __future__ import annotations

import pytest

from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.relations.operator_table import OPERATORS
from deniable.queries.relations.relation_nodes import FilterRows
from deniable.queries.sql.sql_reader import parse
from deniable.tables.expressions import Call, Expression
from tests.queries.page import PAGE, QUESTIONS, page

CONDITIONS = {
    "add": "age + 1 > 0", "subtract": "age - 1 > 0", "multiply": "age * 2 > 0", "divide": "age / 2 > 0",
    "modulo": "age % 2 > 0", "negate": "-age > 0", "abs": "ABS(age) > 0", "floor": "FLOOR(cost) > 0",
    "ceil": "CEIL(cost) > 0", "round": "ROUND(cost) > 0", "sqrt": "SQRT(age) > 0", "ln": "LN(age) > 0",
    "exp": "EXP(age) > 0", "power": "POWER(age, 2) > 0", "least": "LEAST(age, 3) > 0", "greatest": "GREATEST(age, 3) > 0",
    "eq": "age = 1", "ne": "age <> 1", "lt": "age < 1", "le": "age <= 1", "gt": "age > 1", "ge": "age >= 1",
    "in": "age IN (1, 2)", "and": "age > 1 AND age < 3", "or": "age > 1 OR age < 3", "not": "NOT age > 1",
    "is_null": "age IS NULL", "case": "CASE WHEN age > 1 THEN TRUE ELSE FALSE END", "coalesce": "COALESCE(age, 1) > 0",
    "nullif": "NULLIF(age, 1) > 0", "cast_boolean": "CAST(age AS BOOLEAN)", "cast_integer": "CAST(cost AS INTEGER) > 0",
    "cast_real": "CAST(age AS DOUBLE) > 0", "cast_text": "CAST(age AS VARCHAR) = '1'",
    "cast_date": "CAST(diagnosis AS DATE) = '2024-01-01'", "cast_timestamp": "CAST(visited AS TIMESTAMP) > '2024-01-01'",
    "lower": "LOWER(ward) = 'a'", "upper": "UPPER(ward) = 'A'", "trim": "TRIM(ward) = 'A'", "length": "LENGTH(ward) = 1",
    "prefix": "LEFT(ward, 1) = 'A'", "concat": "ward || 'x' = 'Ax'", "like": "ward LIKE 'A%'", "year": "YEAR(visited) = 2024",
    "quarter": "QUARTER(visited) = 1", "month": "MONTH(visited) = 1", "day": "DAY(visited) = 1",
    "weekday": "EXTRACT(ISODOW FROM visited) = 1", "hour": "HOUR(CAST(visited AS TIMESTAMP)) = 1",
    "date_trunc": "DATE_TRUNC('month', visited) = '2024-01-01'", "days_between": "DATE_DIFF('day', visited, visited) = 0",
    "substring": "SUBSTR(ward, 2, 1) = 'A'", "split_part": "SPLIT_PART(ward, '-', 2) = 'A'", "replace": "REPLACE(ward, 'A', 'B') = 'B'",
    "position": "POSITION('A' IN ward) > 0", "minute": "MINUTE(CAST(visited AS TIMESTAMP)) = 1",
    "second": "EXTRACT(SECOND FROM CAST(visited AS TIMESTAMP)) = 1", "microseconds": "EXTRACT(EPOCH FROM visited) > 0",
    "add_months": "visited + INTERVAL 3 MONTH > DATE '2024-01-01'", "regexp_like": "REGEXP_MATCHES(diagnosis, '^J[0-9]+')",
    "regexp_extract": "REGEXP_EXTRACT(diagnosis, '^([A-Z])', 1) = 'J'", "regexp_replace": "REGEXP_REPLACE(diagnosis, '^0+', '') = 'J'",
    "add_time": "visited - INTERVAL '36 hours' > DATE '2024-01-01'",
}  # fmt: skip


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.queries.page"


@pytest.mark.parametrize("text", [text for questions in QUESTIONS.values() for text, _ in questions])
def test_every_question_of_the_page_is_accepted(text: str) -> None:
    assert parse(text, EXAMPLE).measures


@pytest.mark.parametrize("name", OPERATORS)
def test_sql_reaches_every_operator(name: str) -> None:
    relation = parse(f"SELECT COUNT(*) FROM visits WHERE {CONDITIONS[name]}", EXAMPLE).relation
    assert isinstance(relation, FilterRows)
    assert name in used(relation.condition)


def used(expression: Expression) -> set[str]:
    if not isinstance(expression, Call):
        return set()
    return {expression.operator}.union(*(used(argument) for argument in expression.arguments))
