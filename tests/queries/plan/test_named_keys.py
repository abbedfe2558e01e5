"""Public values of keys: all that rows can have, by plain evaluation, and as few as the question says."""

from __future__ import annotations

import random
from functools import partial

import pytest

from deniable.errors import QuestionRefused
from deniable.queries.plan.named_keys import public_values
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.relations.relation_nodes import FilterRows, Source
from deniable.queries.sql.sql_reader import parse
from deniable.tables.expressions import Call, Column, call, lit
from deniable.tables.kinds import Kind
from deniable.tables.schema import Table
from deniable.units import Unit
from tests.queries.engines.evaluate import calculation, registered, rows_of
from tests.queries.plans import VISITS, Chooser

TABLE = Table("visits", VISITS, Unit.person("who", rows=1))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("SELECT YEAR(visited) AS k, COUNT(*) FROM visits WHERE visited >= DATE '2023-03-01' AND visited < DATE '2025-01-01' GROUP BY k", (2023, 2024)),
        ("SELECT YEAR(visited) AS k, COUNT(*) FROM visits WHERE visited BETWEEN DATE '2023-12-31' AND DATE '2024-01-01' GROUP BY k", (2023, 2024)),
        ("SELECT diagnosis AS k, COUNT(*) FROM visits WHERE (diagnosis = 'flu' AND age > 3) OR (diagnosis IN ('cold', 'x') AND age < 2) GROUP BY k", ("cold", "flu", "x")),
        ("SELECT diagnosis AS k, COUNT(*) FROM visits WHERE diagnosis = 'flu' OR age > 3 GROUP BY k", None),
        ("SELECT UPPER(diagnosis) AS k, COUNT(*) FROM visits WHERE UPPER(diagnosis) IN ('FLU', 'X') GROUP BY k", ("FLU", "X")),
        ("SELECT UPPER(diagnosis) AS k, COUNT(*) FROM visits WHERE LOWER(diagnosis) IN ('flu', 'x') GROUP BY k", None),
        ("SELECT k, COUNT(*) FROM (SELECT FLOOR(age / 10) AS k, age FROM visits) WHERE age BETWEEN 20 AND 39 GROUP BY k", (2, 3)),
        ("SELECT k, COUNT(*) FROM (SELECT FLOOR(age / 10) AS k FROM visits) WHERE k <> 3 AND k + 1 < 6 GROUP BY k", (0, 1, 2, 4)),
        ("SELECT FLOOR(age / 10) AS k, COUNT(*) FROM visits WHERE FLOOR(age / 10) > 10 OR FLOOR(age / 10) IS NULL GROUP BY k", (11, 12, None)),
        ("SELECT FLOOR(age / 60) AS k, COUNT(*) FROM visits WHERE FLOOR(age / 60) <> cost GROUP BY k", (0, 1, 2, None)),
        ("SELECT age AS k, COUNT(*) FROM visits WHERE age < 2 OR age = 7 GROUP BY k", (0, 1, 7)),
        ("SELECT city AS k, COUNT(*) FROM visits JOIN wards USING (ward) WHERE (city = 'Lyon' AND age > 1) OR (city = 'Lyon' AND age < 1) GROUP BY k", ("Lyon",)),
    ],
)  # fmt: skip
def test_values_that_a_question_names_are_public(text: str, values: object) -> None:
    [key] = parse(text, EXAMPLE).keys
    assert key.values == values


def test_no_row_has_a_value_that_is_not_listed() -> None:
    """Random keys over random filters and projections, beside the values that rows with few cells really take."""
    chance = random.Random(7)
    rows = [Chooser(chance.choice).row(VISITS, f"p{k}") for k in range(150)]
    stored = {"visits": registered(TABLE, rows, b"s" * 16)}
    listed = narrowed = 0
    for _ in range(200):
        chooser = Chooser(chance.choice, (1, 2, 3), ("filtered", "projected", "compared"))
        chooser.compared = partial(compared, chooser)  # type: ignore[attr-defined]
        try:
            relation = chooser.relation(_World, chance.choice([1, 2, 3]))  # type: ignore[arg-type]
            key = chooser.key(relation)
            values = public_values(key, relation)
        except QuestionRefused:
            continue
        if values is None:
            continue
        value = calculation(key, relation)
        found = {value(row.values) for row in rows_of(relation, stored)}
        listed += 1
        narrowed += len(values) <= len(found) + 1
        assert found <= set(values), (key, relation)
    assert listed > 60
    assert narrowed > 20


class _World:
    visits = stays = TABLE


def compared(chooser: Chooser, world: object, child: Source, depth: int) -> FilterRows:
    """Conditions of the kinds that narrow a column: comparisons with constants, and alternatives of them."""
    kind = chooser.pick([Kind.INTEGER, Kind.DATE, Kind.TEXT])
    names = [name for name, domain in child.columns.items() if domain.kind is kind]
    if not names:
        return FilterRows(child, call("is_null", lit(None)))

    def one() -> Call:
        operator = chooser.pick(["eq", "lt", "le", "gt", "ge"])
        sides = [Column(chooser.pick(names)), chooser.constant(kind)]
        return call(operator, *(sides if chooser.pick([False, True]) else sides[::-1]))

    made = one() if chooser.pick([True, True, False]) else call("or", one(), call("and", one(), one()))
    return FilterRows(child, made)


def test_other_numbers_are_not_filled_in_where_they_decide_the_keys_behind_a_name() -> None:
    """A cached plan of age < 30 must not give its decades to age < 50."""
    from deniable.queries.plan.noise_planner import plan
    from deniable.queries.sql.question_templates import Shapes

    shapes = Shapes()
    text = "SELECT d, COUNT(*) FROM (SELECT FLOOR(age / 10) AS d, age FROM visits) WHERE age < {} GROUP BY d"
    for number in (33, 45, 57):
        shapes.learn(text.format(number), plan(parse(text.format(number), EXAMPLE)))
    assert shapes.plan(text.format(71)) is None
    assert parse(text.format(71), EXAMPLE).keys[0].values == (*range(8),)
