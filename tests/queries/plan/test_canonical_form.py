"""One hash for one meaning: spellings that mean the same share it, and whatever shares it means the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from deniable.errors import QuestionRefused
from deniable.queries.plan.canonical_form import collect_form, expression_form
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.relations.exact_statistics import Collect, Count, CountPersons
from deniable.queries.relations.operators import typed
from deniable.queries.relations.relation_nodes import FilterRows, JoinPrivate, PerPerson, Project, RelationNode, Union
from deniable.queries.sql.sql_reader import parse
from deniable.tables.expressions import Call, Column, Expression, Literal
from deniable.tables.kinds import Kind
from tests.queries.engines.evaluate import collected
from tests.queries.plans import CELLS, VISITS, Chooser
from tests.queries.test_sensitivity import stored

COLUMNS = dict(VISITS)

SAME = [
    ("SELECT COUNT(*) FROM visits", "select  count( * )\nfrom Visits -- all of them"),
    ("SELECT COUNT(*) AS n FROM visits", "SELECT COUNT(*) AS m FROM visits AS v"),
    ("SELECT COUNT(*) FROM visits WHERE age > 3 AND ward = 'A'", "SELECT COUNT(*) FROM visits WHERE 'A' = ward AND 3 < age"),
    ("SELECT COUNT(*) FROM visits WHERE age BETWEEN 3 AND 5", "SELECT COUNT(*) FROM visits WHERE age <= 5 AND age >= 3"),
    ("SELECT COUNT(*) FROM visits WHERE ward IN ('A', 'B')", "SELECT COUNT(*) FROM visits WHERE ward IN ('B', 'A', 'B')"),
    ("SELECT COUNT(*) FROM visits WHERE ward IN ('A')", "SELECT COUNT(*) FROM visits WHERE ward = 'A'"),
    ("SELECT COUNT(*) FROM visits WHERE NOT age > 3", "SELECT COUNT(*) FROM visits WHERE age <= 3"),
    ("SELECT COUNT(*) FROM visits WHERE NOT (age > 3 OR ward = 'A')", "SELECT COUNT(*) FROM visits WHERE ward <> 'A' AND age <= 3"),
    ("SELECT COUNT(*) FROM visits WHERE age > 3 AND age > 3", "SELECT COUNT(*) FROM visits WHERE age > 3"),
    ("SELECT SUM(age + 1) FROM visits", "SELECT SUM(1 + age) FROM visits"),
    ("SELECT COUNT(*), SUM(cost) FROM visits", "SELECT SUM(cost) AS s, COUNT(*) AS n FROM visits"),
    ("SELECT ward, COUNT(*) FROM visits GROUP BY ward", "SELECT ward AS w, COUNT(*) FROM visits GROUP BY 1 ORDER BY 2 LIMIT 3"),
    ("SELECT AVG(cost) FROM visits WHERE age > 3", "WITH t AS (SELECT cost AS c, age FROM visits) SELECT AVG(c) FROM t WHERE age > 3"),
    ("SELECT AVG(cost) FROM visits WHERE age > 3 AND ward = 'A'", "SELECT AVG(cost) FROM (SELECT cost, age FROM visits WHERE ward = 'A') WHERE age > 3"),
    ("SELECT SUM(cost * 2) FROM visits", "SELECT SUM(y) FROM (SELECT cost * 2 AS y, age FROM visits)"),
    ("SELECT COUNT(*) FROM visits JOIN wards USING (ward)", "SELECT COUNT(*) FROM wards AS w JOIN visits AS v ON w.ward = v.ward"),
    ("SELECT AVG(n) FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY 1)", "SELECT AVG(m) AS a FROM (SELECT COUNT(*) AS m, patient_id AS p FROM visits GROUP BY patient_id)"),
    ("SELECT COUNT(*) FROM visits WHERE visited >= '2024-01-01'", "SELECT COUNT(*) FROM visits WHERE visited >= DATE '2024-01-01'"),
    ("SELECT ward, COUNT(*) FROM visits WHERE ward IN ('A', 'B') GROUP BY ward", "SELECT ward, COUNT(*) FROM visits WHERE ward IN ('B', 'A') GROUP BY ward"),
    ("SELECT MEDIAN(cost) FROM visits", "SELECT QUANTILE(cost, 0.5) FROM visits"),
    ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) FROM visits", "SELECT COUNT(*) FROM visits"),
]  # fmt: skip

DIFFERENT = [
    ("SELECT COUNT(*) FROM visits", "SELECT COUNT(*) FROM stays"),
    ("SELECT COUNT(*) FROM visits", "SELECT COUNT(age) FROM visits"),
    ("SELECT COUNT(*) FROM visits WHERE age > 3", "SELECT COUNT(*) FROM visits WHERE age >= 3"),
    ("SELECT COUNT(*) FROM visits WHERE age > 3", "SELECT COUNT(*) FROM visits WHERE 3 > age"),
    ("SELECT SUM(age - 1) FROM visits", "SELECT SUM(1 - age) FROM visits"),
    ("SELECT COUNT(*) FROM visits WHERE age = 1", "SELECT COUNT(*) FROM visits WHERE age = 1.0"),
    ("SELECT QUANTILE(cost, 0.5) FROM visits", "SELECT QUANTILE(cost, 0.6) FROM visits"),
    ("SELECT VAR_POP(cost) FROM visits", "SELECT VAR_SAMP(cost) FROM visits"),
    ("SELECT COUNT(*) FROM visits JOIN wards USING (ward)", "SELECT COUNT(*) FROM visits LEFT JOIN wards USING (ward)"),
    ("SELECT COUNT(*) FROM visits a JOIN stays b USING (patient_id)", "SELECT COUNT(*) FROM stays a JOIN visits b USING (patient_id)"),
    ("SELECT SUM(a.age) FROM visits a JOIN visits b USING (patient_id)", "SELECT SUM(b.age) FROM visits a JOIN visits b USING (patient_id)"),
    ("SELECT AVG(n) FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY 1)", "SELECT AVG(n) FROM (SELECT patient_id, ward, COUNT(*) AS n FROM visits GROUP BY 1, 2)"),
    ("SELECT ward, COUNT(*) FROM visits GROUP BY ward", "SELECT COUNT(*) FROM visits"),
    ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_per_group = 2) ward, COUNT(*) FROM visits GROUP BY ward", "SELECT ward, COUNT(*) FROM visits GROUP BY ward"),
    ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_per_group = 2) ward, COUNT(*) FROM visits GROUP BY ward", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_per_group = 3) ward, COUNT(*) FROM visits GROUP BY ward"),
    ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 2) ward, COUNT(*) FROM visits GROUP BY ward", "SELECT ward, COUNT(*) FROM visits GROUP BY ward"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "two"), SAME)
def test_spellings_that_mean_the_same(one: str, two: str) -> None:
    assert parse(one, EXAMPLE).hash == parse(two, EXAMPLE).hash


@pytest.mark.parametrize(("one", "two"), DIFFERENT)
def test_questions_that_differ(one: str, two: str) -> None:
    assert parse(one, EXAMPLE).hash != parse(two, EXAMPLE).hash


def test_another_schema_is_another_question() -> None:
    from deniable.tables.kinds import Domain
    from deniable.tables.schema import Table
    from deniable.units import Unit

    hashes = {
        parse("SELECT SUM(x) FROM t", {"t": Table.of("t", unit, x=domain)}).hash
        for unit in (Unit.row(), Unit.replaced_row(), Unit.person("p", rows=2), Unit.person("p", rows=3))
        for domain in (Domain.integer(0, 9), Domain.integer(0, 10), Domain.real(0, 9))
    }
    assert len(hashes) == 12


def test_long_chains_of_names_stay_short() -> None:
    """Each name stands for two of the one before: written out, the last would have 2^60 parts."""
    chain = ", ".join(f"c{i} AS (SELECT x + x AS x FROM c{i - 1})" for i in range(1, 60))
    text = f"WITH c0 AS (SELECT cost / 1e30 AS x FROM visits), {chain} SELECT SUM(x) FROM c59"
    assert len(parse(text, EXAMPLE).hash) == 64


# --- whatever shares a form means the same --------------------------------------------------------------------------


def changed(expression: Expression, chance: random.Random) -> Expression:
    """The expression with something done to it somewhere, which may or may not keep its meaning."""
    if not isinstance(expression, Call) or chance.random() < 0.3:
        return twisted(expression, chance)
    place = chance.randrange(len(expression.arguments))
    parts = list(expression.arguments)
    parts[place] = changed(parts[place], chance)
    return Call(expression.operator, tuple(parts))


def twisted(expression: Expression, chance: random.Random) -> Expression:
    if not isinstance(expression, Call):
        return expression
    f, us = expression.operator, expression.arguments
    twists: list[Callable[[], Expression]] = [
        lambda: Call(f, us[::-1]),
        lambda: Call(f, (*us[1:], us[0])),
        lambda: Call(f, (*us, us[-1])),
        lambda: us[0],
        lambda: Call("not", (Call("not", (expression,)),)),
        lambda: Call("not", (expression,)),
        lambda: Call({"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}.get(f, f), us[::-1]),
        lambda: Call({"lt": "ge", "ge": "lt", "eq": "ne", "ne": "eq", "and": "or", "or": "and"}.get(f, f), us),
        lambda: Call("and", (expression, expression)),
        lambda: Call("coalesce", (expression,)),
        lambda: Call("not", (Call({"and": "or", "or": "and"}.get(f, f), tuple(Call("not", (u,)) for u in us)),)),
    ]
    return chance.choice(twists)()


@pytest.mark.slow
def test_expressions_of_one_form_have_one_value() -> None:
    chance = random.Random(5)
    chooser = Chooser(chance.choice)
    rows = [{name: chance.choice(CELLS[domain.kind]) for name, domain in VISITS} for _ in range(60)]
    alike = 0
    for _ in range(2000):
        one = chooser.expression(chance.choice([Kind.BOOLEAN, Kind.BOOLEAN, Kind.INTEGER, Kind.REAL]), COLUMNS, 3)
        two = changed(one, chance)
        try:
            values = [typed(each, COLUMNS).value for each in (one, two)]
        except QuestionRefused:
            continue
        if expression_form(one) == expression_form(two):
            alike += one is not two
            assert [values[0](row) for row in rows] == [values[1](row) for row in rows], (one, two)
    assert alike > 150  # the rules were used


def shaken(relation: RelationNode, chance: random.Random) -> RelationNode:
    """The relation built differently, in a way that may or may not keep its meaning."""
    match relation:
        case FilterRows(child=FilterRows(child=child, condition=a), condition=b) if chance.random() < 0.5:
            return FilterRows(FilterRows(child, b), a)
        case FilterRows(child=child, condition=a):
            return FilterRows(shaken(child, chance), changed(a, chance))
        case Project(child=child, expressions=listed):
            return Project(shaken(child, chance), listed[:: chance.choice([1, -1])])
        case PerPerson(child=child, keys=keys, aggregates=aggregates):
            return PerPerson(shaken(child, chance), keys[:: chance.choice([1, -1])], aggregates[::-1])
        case JoinPrivate(left=left, right=right, on=on, how=how):
            if chance.random() < 0.5:
                return JoinPrivate(right, left, tuple((b, a) for a, b in on), how)
            return JoinPrivate(left, right, on[::-1], how)
        case Union(parts=parts, disjoint=disjoint):
            return Union(parts[::-1], disjoint)
    return Project(relation, tuple((name, Column(name)) for name in relation.columns))


def test_plans_of_one_form_have_one_answer() -> None:
    chance = random.Random(6)
    alike = 0
    for _ in range(600):
        chooser = Chooser(chance.choice)
        world = chooser.world()
        try:
            relation = chooser.relation(world, 3)
            plans = [
                Collect(each, (), None, (Count(), *(Count(Column(name)) for name in relation.columns), CountPersons()))
                for each in (relation, shaken(relation, chance))
            ]
        except QuestionRefused:
            continue
        if collect_form(plans[0]) == collect_form(plans[1]):
            alike += 1
            here = stored(world, world.here, chance.shuffle)
            assert collected(plans[0], here) == collected(plans[1], here)
    assert alike > 100


def test_constants_of_three_kinds_differ() -> None:
    forms: set[Any] = {expression_form(Literal(value)) for value in (1, 1.0, True, "1", None, "True", "None")}
    assert len(forms) == 7
