"""The table of refusals: every question in it is asked."""

from __future__ import annotations

from contextlib import suppress

import pytest
from sqlglot import exp, parse_one
from sqlglot.errors import ParseError

from deniable.errors import REFUSALS, QuestionRefused
from deniable.queries.plan.refusals import EXAMPLE, RULES, VISITS
from deniable.queries.sql import aggregate_functions, asked_aggregates, function_names, scalar_expressions
from deniable.queries.sql.sql_reader import _in_own_words, parse
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table
from deniable.units import Unit
from tests.wording import worded


@pytest.mark.parametrize("name", RULES)
def test_what_breaks_a_rule_is_refused_with_it(name: str) -> None:
    with pytest.raises(QuestionRefused) as refused:
        parse(RULES[name].refused, EXAMPLE)
    assert refused.value.code == RULES[name].code
    if name in {"table", "column"}:
        assert "choose from" in refused.value.rewrite, "names that are there, instead of an example"
    elif name == "syntax":
        assert refused.value.rewrite == 'it cannot be read at "FROM", after "SELECT COUNT(*"'
    else:
        assert refused.value.rewrite == f"for example: {RULES[name].rewrite}"


MINE = {"bills": Table.of("bills", Unit.person("who", rows=2), cost=Domain.real(0, 9), paid=Domain.boolean(), size=Domain.real())}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "rewrite"),
    [
        ("SELECT AVG(csot) FROM bills", "did you mean 'cost'? choose from cost, paid, size, who"),
        ("SELECT AVG(b.csot) FROM bills b", "did you mean 'cost'? choose from cost, paid, size, who"),
        ("SELECT COUNT(*) FROM bils", "did you mean 'bills'? choose from bills"),
        ("SELECT COUNT(*) FROM visits", "choose from bills"),
        ("SELECT m + 1 FROM (SELECT COUNT(*) AS n FROM bills)", "choose from n"),
        ("SELECT COUNT(*) FROM bills a JOIN bills b ON a.whom = b.who", "did you mean 'who'? choose from cost, paid, size, who"),
        ("SELECT SUM(size) FROM bills", "SELECT SUM(LEAST(GREATEST(size, 0), 100)) FROM bills"),
        ("SELECT AVG(paid) FROM bills", "write COUNT_IF(paid), or AVG(CAST(paid AS INTEGER)) for the part that is true"),
        ("SELECT STRFTIME(day, '%A') AS m, COUNT(*) FROM bills GROUP BY m", "at \"STRFTIME(day, '%A') AS m\", for example: SELECT COUNT(*) FROM bills"),
        ("SELECT * FROM bills", "at \"*\", for example: SELECT paid, COUNT(*) AS n FROM bills GROUP BY paid"),
    ],
)  # fmt: skip
def test_a_refusal_speaks_about_the_tables_that_are_there(text: str, rewrite: str) -> None:
    with pytest.raises(QuestionRefused) as refused:
        parse(text, MINE)
    assert refused.value.rewrite == rewrite


def test_an_example_is_in_the_words_of_the_session_where_it_can_be() -> None:
    people = {"people": Table.of("people", Unit.person("who", rows=2), note=Domain.text(), sex=Domain.text("f", "m"))}
    with worded(QuestionRefused, code="star") as refused:
        parse("SELECT * FROM people", people)
    assert parse(refused.value.instead, people).measures
    with worded(QuestionRefused, code="kinds"):
        parse("SELECT AVG(note) FROM people", people)


def test_an_example_is_about_the_columns_of_a_table_that_is_called_as_that_of_the_examples() -> None:
    visits = {"visits": Table.of("visits", Unit.person("who", rows=2), sex=Domain.text("f", "m"))}
    with worded(QuestionRefused, code="star"):
        parse("SELECT * FROM visits", visits)


@pytest.mark.parametrize(
    "written",
    ["BOOL_OR(age > 3)", "BOOL_AND(age > 3)", "LIST(age)", "ARRAY_AGG(age)", "BIT_OR(age)", "STRING_AGG(ward, ',')",
     "GROUP_CONCAT(ward)", "max_by(ward, age)", "ARG_MAX(ward, age)", "regexp_split_to_array(ward, 'a')", "LIST()"],
)  # fmt: skip
def test_a_refusal_calls_a_function_as_it_was_written(written: str) -> None:
    """Not as the parser does, for which BOOL_OR is LOGICAL_OR."""
    for text in (f"SELECT {written} FROM visits", f"SELECT COUNT(*) FROM visits WHERE age > 1 AND {written} IS NULL"):
        with pytest.raises(QuestionRefused) as refused:
            parse(text, EXAMPLE)
        names = ("LOGICAL_", "BITWISE_", "ARG_M", "GROUP_CONCAT", "ARRAY_AGG", "REGEXP_LIKE")
        assert [each for each in names if each in refused.value.rule and each not in written.upper()] == []
        if text.startswith("SELECT C") or "regexp" not in written:
            assert written.partition("(")[0].upper() in refused.value.rule or "aggregate" in refused.value.rule


@pytest.mark.parametrize("name", RULES)
def test_every_example_in_own_words_is_a_question(name: str) -> None:
    own = {"people": Table("people", VISITS.columns, Unit.person("who", rows=2))}
    found = _in_own_words(RULES[name].rewrite, own)
    assert found is None or (parse(found, own).measures and "visits" not in found)


def test_a_table_that_is_called_as_a_word_of_sql_is_written_in_quotes() -> None:
    tables = {"select": Table.of("select", Unit.row(), x=Domain.real(0, 1))}
    with worded(QuestionRefused, code="table"):
        parse("SELECT COUNT(*) FROM select", tables)
    assert parse('SELECT COUNT(*) FROM "select"', tables).measures


def test_what_a_refusal_says_to_write_works() -> None:
    for aggregate in ("COUNT_IF(paid)", "AVG(CAST(paid AS INTEGER))", "SUM(LEAST(GREATEST(size, 0), 100))"):
        assert parse(f"SELECT {aggregate} FROM bills", MINE).measures
    one, two = (
        parse(f"SELECT {each} FROM bills", MINE) for each in ("APPROX_COUNT_DISTINCT(size)", "COUNT(DISTINCT size)")
    )
    assert one.hash == two.hash
    people = parse("SELECT APPROX_COUNT_DISTINCT(who) FROM bills", MINE)
    assert people.hash == parse("SELECT COUNT(DISTINCT who) FROM bills", MINE).hash


@pytest.mark.parametrize("name", RULES)
def test_the_rewrite_of_a_rule_works(name: str) -> None:
    assert parse(RULES[name].rewrite, EXAMPLE).measures


def test_every_code_is_of_the_closed_list() -> None:
    assert {rule.code for rule in RULES.values()} <= set(REFUSALS)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("SELECT COUTN(*) FROM visits", "did you mean COUNT?"),
        ("SELECT MEAN(age) FROM visits", "did you mean AVG?"),
        ("SELECT COUNT(*) FROM visits WHERE LENGHT(ward) = 1", "did you mean LENGTH?"),
        ("SELECT FOO(age) FROM visits", "for example: SELECT COUNT(*) FROM visits WHERE age % 2 = 0"),
        ("SELECT AVG(*) FROM visits", "name one in AVG(...)"),
        ("SELECT QUANTILE(age) FROM visits", "write QUANTILE(..., 0.9)"),
        ("SELECT COUNT(*) FROM visits HWERE age > 3", 'it cannot be read at "age", after "visits HWERE"'),
        ("SELECT ward COUNT(*) FROM visits", 'it cannot be read at "(", after "ward COUNT"'),
        ("SELECT COUNT(*) FROM visits WHERE age >", 'it cannot be read at ">", after "WHERE age"'),
        ("SELECT AVG(age, 3) FROM visits", 'it cannot be read at ")", after "AVG(age, 3"'),
        ("SELECT COUNT(*) FROM visits GROUP BY", "name the keys after GROUP BY, or leave GROUP BY out"),
    ],
)
def test_what_is_nearly_right_is_named(text: str, remedy: str) -> None:
    """COUTN was answered with an example about ages, AVG(*) with "rows cannot be listed", a quantile without its
    fraction with an example about wards, and a misspelt keyword with COUNT(*).
    """
    with worded(QuestionRefused) as refused:
        parse(text, EXAMPLE)
    assert refused.value.rewrite == remedy


@pytest.mark.parametrize("name", function_names.USUAL)
def test_every_function_that_is_suggested_is_supported(name: str) -> None:
    aggregates = {*aggregate_functions._PLAIN, *aggregate_functions._QUANTILES, *asked_aggregates._ASKED}
    scalars = {*scalar_expressions._UNARY, *scalar_expressions._BINARY, *scalar_expressions._SEVERAL}
    known = {exp.Count, exp.CountIf, *aggregates, *scalars, *scalar_expressions._READERS} - {exp.Anonymous}
    read = set()
    for arguments in ("a", "a, b", "'day', a, b", "YEAR FROM a"):
        with suppress(ParseError):
            read.add(type(parse_one(f"SELECT {name}({arguments})", dialect="duckdb").selects[0]))
    assert read & known
