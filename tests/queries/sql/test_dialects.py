"""A text whose first line names a dialect is read in it; what the dialect counts differently is refused."""

from __future__ import annotations

import pytest

from deniable.errors import QuestionRefused
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.sql.sql_reader import parse

SAME = [
    ("bigquery", "SELECT ward, SAFE_DIVIDE(COUNTIF(age > 60), COUNT(*)) AS r FROM `visits` GROUP BY ward",
     "SELECT ward, COUNT_IF(age > 60) / COUNT(*) AS r FROM visits GROUP BY ward"),
    ("bigquery", "SELECT DATE_TRUNC(visited, MONTH) AS m, COUNT(*) AS n FROM visits GROUP BY m",
     "SELECT DATE_TRUNC('month', visited) AS m, COUNT(*) AS n FROM visits GROUP BY m"),
    ("bigquery", "SELECT COUNT(*) FROM visits WHERE visited > DATE_SUB(DATE '2024-12-31', INTERVAL 30 DAY)",
     "SELECT COUNT(*) FROM visits WHERE visited > DATE '2024-12-01'"),
    ("snowflake", "SELECT IFF(age > 60, 'old', 'young') AS k, COUNT(*) AS n FROM visits GROUP BY 1",
     "SELECT CASE WHEN age > 60 THEN 'old' ELSE 'young' END AS k, COUNT(*) AS n FROM visits GROUP BY 1"),
    ("postgres", "SELECT TO_CHAR(visited, 'YYYY-MM') AS m, COUNT(*) AS n FROM visits GROUP BY m",
     "SELECT STRFTIME(visited, '%Y-%m') AS m, COUNT(*) AS n FROM visits GROUP BY m"),
    ("spark", "SELECT AVG(DATEDIFF(DATE '2024-12-31', visited)) AS d FROM `visits`",
     "SELECT AVG(DATE_DIFF('day', DATE(visited), DATE(DATE '2024-12-31'))) AS d FROM visits"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "theirs", "ours"), SAME)
def test_a_text_in_another_dialect_is_the_same_question(dialect: str, theirs: str, ours: str) -> None:
    read = parse(f"-- dialect: {dialect}\n{theirs}", EXAMPLE)
    assert (read.hash, read.names) == (parse(ours, EXAMPLE).hash, parse(ours, EXAMPLE).names)


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("bigquery", "SELECT EXTRACT(WEEK FROM visited) AS d, COUNT(*) FROM visits GROUP BY 1"),
        ("bigquery", "SELECT EXTRACT(WEEK(TUESDAY) FROM visited) AS d, COUNT(*) FROM visits GROUP BY 1"),
        ("bigquery", "SELECT DATE_TRUNC(visited, WEEK(NODAY)) AS d, COUNT(*) FROM visits GROUP BY 1"),
        ("oracle", "SELECT COUNT(*) FROM visits"),
    ],
)
def test_what_would_mean_something_else_is_refused(dialect: str, text: str) -> None:
    with pytest.raises(QuestionRefused):
        parse(f"-- dialect: {dialect}\n{text}", EXAMPLE)
