"""Texts that look like attacks and are answered: what they can reach is what a plain question reaches."""

from __future__ import annotations

import pytest

from deniable.errors import QuestionRefused
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.sql.sql_reader import parse
from tests.redteam.cases import case

COUNT = "SELECT COUNT(*) AS n FROM {}"


@case(
    "Q17",
    "a table by schema.name: main, or a schema with system tables",
    "the declared table, whatever the schema is called",
)
@pytest.mark.parametrize(
    "schema", ["main", "MAIN", "information_schema", "pg_catalog", "temp", "other", '"main; DROP"']
)
def test_a_schema_qualified_name_is_the_declared_table(schema: str) -> None:
    asked = parse(COUNT.format(f"{schema}.visits"), EXAMPLE)
    assert asked.hash == parse(COUNT.format("visits"), EXAMPLE).hash
    assert repr(asked.relation) == repr(
        parse(COUNT.format("visits"), EXAMPLE).relation
    )  # engines read this, and never the text
    for table in ("tables", "people", "pg_class", "duckdb_tables", "sqlite_master"):
        with pytest.raises(QuestionRefused) as refused:
            parse(COUNT.format(f"{schema}.{table}"), EXAMPLE)
        assert refused.value.code == "table"


def test_a_schema_qualified_name_is_not_what_with_defines() -> None:
    """As in SQL: main.visits is the table, also where WITH calls something else visits."""
    both = "WITH visits AS (SELECT * FROM visits WHERE age > 60) SELECT COUNT(*) AS n FROM {}"
    assert parse(both.format("main.visits"), EXAMPLE).hash == parse(COUNT.format("visits"), EXAMPLE).hash
    assert parse(both.format("visits"), EXAMPLE).hash != parse(COUNT.format("visits"), EXAMPLE).hash


@case("Q18", "GROUP BY ALL", "groups by the columns that are shown; the column of people cannot be one of them")
def test_group_by_all_is_the_list_of_what_is_shown() -> None:
    for shown in ("ward", "ward, age", "ward AS w, age + 1 AS a", "DATE_TRUNC('month', visited) AS m"):
        keys = ", ".join(each.partition(" AS ")[0] for each in shown.split(", ") if "trunc" not in shown.lower()) or "1"
        every = parse(f"SELECT {shown}, COUNT(*) AS n FROM visits GROUP BY ALL", EXAMPLE)
        assert every.hash == parse(f"SELECT {shown}, COUNT(*) AS n FROM visits GROUP BY {keys}", EXAMPLE).hash
    for person in ("patient_id", "patient_id AS p, ward", "patient_id % 2 AS p"):
        with pytest.raises(QuestionRefused):
            parse(f"SELECT {person}, COUNT(*) AS n FROM visits GROUP BY ALL", EXAMPLE)
