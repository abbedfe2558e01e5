"""What is listed while a question is planned: no more than is needed, and under a limit no more than so much."""

from __future__ import annotations

import random

import pytest

from deniable.errors import QuestionRefused
from deniable.queries.frame import frame_aggregates as ask
from deniable.queries.frame.frame import Frame
from deniable.queries.plan.question import Question
from deniable.queries.relations import evaluation_limit, operators
from deniable.queries.relations.operators import Columns, domain
from deniable.queries.relations.relation_nodes import Project, Source
from deniable.queries.sql.sql_reader import parse
from deniable.tables.expressions import Column, Expression, col
from deniable.tables.schema import read_schema
from tests.wording import worded

TABLES = read_schema(
    """\
version: 1
tables:
  visits:
    person: patient_id
    rows: 3
    columns:
      ward: {kind: text, keys: [A, B, C], nullable: false}
      age: {kind: integer, low: 0, high: 100, nullable: false}
      stay: {kind: integer, low: 0, high: 60}
      cost: {kind: real, low: 0, high: 2000}
"""
)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many combinations were worked out, one number for each expression."""
    found: list[int] = []
    monkeypatch.setattr(evaluation_limit, "spend", found.append)
    return found


def test_columns_that_are_only_handed_on_are_not_listed(listed: list[int]) -> None:
    """100 steps of 40 columns took 1.6 s: the values of every new column were worked out, and nobody looked at them."""
    frame = Frame.of("visits", TABLES)
    for j in range(6):
        frame = frame.with_columns(**{f"c{j}_{i}": col("age") * col("stay") + i for i in range(5)})
    made = frame.agg(n=ask.sum("c3_2"), m=ask.mean("c5_0"))
    assert isinstance(made, Question)
    assert listed == []
    assert len(frame.relation.columns["c3_2"].keys or ()) == len({a * b + 2 for a in range(101) for b in range(61)})
    assert sum(listed) > 0


def test_a_sub_query_lists_only_what_is_grouped_by(listed: list[int]) -> None:
    sums = ", ".join(f"SUM(k{i}) AS s{i}" for i in range(20))
    made = ", ".join(f"(age * 60 + stay + {i}) * 2 AS k{i}" for i in range(20))
    parse(f"SELECT ward, {sums} FROM (SELECT ward, {made} FROM visits) AS a GROUP BY ward", TABLES)
    assert sum(listed) == 0
    parse(f"SELECT k3, COUNT(*) AS n FROM (SELECT ward, {made} FROM visits) AS a GROUP BY k3", TABLES)
    assert 0 < sum(listed) < 30_000


def test_columns_have_the_domains_that_they_had_when_each_was_listed_at_once() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    source = Source(TABLES["visits"])
    eager, lazy = dict(source.columns), source.columns
    relation: Project | Source = source
    for _ in range(12):
        names = list(eager)
        numbers = [each for each in names if eager[each].kind.value in {"integer", "real"}]
        kept = chance.choice(numbers)  # one number at least is left for the next step
        rest = [each for each in names if each != kept]
        made: list[tuple[str, Expression]] = [
            (each, Column(each)) for each in (kept, *chance.sample(rest, len(rest) - 1))
        ]
        a, b = chance.choice(numbers), chance.choice(numbers)
        made.append(
            (
                f"n{len(made)}_{chance.random()}",
                chance.choice([col(a) + 1, col(a) % 7, col(a) - col(b), col(a) > col(b)]),
            )
        )
        relation = Project(relation, tuple(made))
        eager = {name: domain(each, eager) for name, each in made}
        lazy = relation.columns
        if chance.random() < 0.3:
            lazy[chance.choice(list(lazy))]  # looked at in between, or not
    assert dict(lazy) == eager
    assert dict(Columns(dict(lazy))) == eager


@pytest.mark.slow
def test_a_limit_counts_all_expressions_of_a_question_together() -> None:
    """7 kB took 17 s: each expression had a limit of its own, and conditions on the values of a key had none."""
    key = "SELECT k, COUNT(*) AS n FROM (SELECT age * 60 + stay AS k FROM visits) AS a WHERE {} GROUP BY k"
    few, many = (key.format(" AND ".join(f"k <> {i}" for i in range(each))) for each in (3, 100))
    with evaluation_limit.at_most(300_000):
        parse(few, TABLES)
    with (
        worded(QuestionRefused, code="work") as refused,
        evaluation_limit.at_most(300_000),
    ):
        parse(many, TABLES)
    assert refused.value.code == "work"
    parse(many, TABLES)  # nobody set a limit
    with (
        evaluation_limit.at_most(300_000),
        evaluation_limit.at_most(10**9),
        pytest.raises(QuestionRefused),
    ):  # the outermost holds
        parse(many, TABLES)
    assert operators.MOST_WORK < 300_000
