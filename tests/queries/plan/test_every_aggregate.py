"""A new aggregate is known everywhere: in SQL and its page, in frames, in the reference without noise, and in prices.

Nothing said so: one that was added to the plan alone passed all tests, and its price could not be printed.
"""

from __future__ import annotations

import inspect
import math
from itertools import chain

import pytest

import deniable as dn
from deniable.queries.frame import frame_aggregates
from deniable.queries.plan.question import FUNCTIONS, Measure
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.sql.sql_reader import parse
from deniable.tables.expressions import col
from tests.queries.answers import measured
from tests.queries.engines.evaluate import Row
from tests.queries.hospital import visits
from tests.queries.page import QUESTIONS

OPTIONS = {"quantile": {"q": 0.5}, "var": {"ddof": 1}, "stddev": {"ddof": 1}}
SCHEMA = {"age": dn.Domain.integer(1, 100)}

# Somebody has two rows, two people have the same age, and one age is not known: no two functions may be confused.
AGES = [("p", 30), ("p", 36), ("q", 30), ("r", 44), ("s", None)]
BY_HAND = {
    "count": 4,  # of ages that are known
    "count_persons": 4,  # of people with a row
    "count_distinct": 3,
    "sum": 140,
    "avg": 35,
    "var": 44,  # (25 + 1 + 25 + 81) / 3
    "stddev": math.sqrt(44),
    "quantile": 33,  # the middle of 30 and 36
    "min": 30,
    "max": 44,
}


def test_the_page_of_the_dialect_has_a_question_for_every_aggregate() -> None:
    texts = [text for text, _ in chain.from_iterable(QUESTIONS.values())]
    assert set(FUNCTIONS) == {each.function for text in texts for each in parse(text, EXAMPLE).measures}


def test_a_frame_has_a_verb_for_every_aggregate() -> None:
    named = vars(frame_aggregates).items()
    verbs = [verb for name, verb in named if inspect.isfunction(verb) and name in dn.queries.__all__]
    arguments = {"value": "age", "q": 0.5}
    made = [verb(**{n: v for n, v in arguments.items() if n in inspect.signature(verb).parameters}) for verb in verbs]
    assert {each.function for each in made} == set(FUNCTIONS)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_aggregate_has_a_reference_and_a_price_in_words(function: str) -> None:
    unit, budget = dn.Unit.person("patient_id", rows=3), dn.Budget(epsilon=1, delta=1e-6)
    with dn.session(visits(), unit=unit, budget=budget, schema=SCHEMA) as s:
        made = frame_aggregates.Aggregation(
            function, None if function == "count_persons" else col("age"), OPTIONS.get(function, {})
        )
        question = s.table("data").agg(x=made)
        assert any(line.startswith("error    x: ") for line in s.price(question, epsilon=0.1).lines())
    measure = Measure("x", function, made.expression, made.options)
    found = measured(measure, question, [Row(person, 0, {"age": age}) for person, age in AGES])
    assert found == pytest.approx(BY_HAND[function], rel=1e-12)
