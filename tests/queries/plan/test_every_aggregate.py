"""A new aggregate is known everywhere: in SQL and its page, in frames, in the reference without noise, and in prices.

Nothing said so: one that was added to the plan alone passed all tests, and its price could not be printed.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from itertools import chain

import numpy as np
import pytest

import deniable as dn
from deniable.queries.frame import frame_aggregates
from deniable.queries.plan.question import FUNCTIONS, Measure
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.session import Session
from deniable.queries.sql.sql_reader import parse
from deniable.tables.expressions import col
from tests.queries.answers import measured
from tests.queries.engines.evaluate import Row
from tests.queries.hospital import visits
from tests.queries.page import QUESTIONS

pandas = pytest.importorskip("pandas")

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


PEOPLE, GROUPS = 2000, 15
COSTS = {"gaussian": {"mu": 0.2}, "pure": {"epsilon": 0.5}}
FACTOR, FACTOR_OF_RANKS = 1.5, 2.0
"""A price assumes a distribution that it does not know: an average halfway between the middle and a bound, a variance as
of uniform values. On the uniform values below this makes an eighth of the half-width. A wrong slope is off by more: by the
width of the bounds or the number of rows, and without its sum the error of an average is halved. The interval
of a quantile also follows the noise of the totals beside it: of 1000, seven were off by more than 2, and the median of 15
is so less than once in 1e9.
"""
RANKED = {name for name, each in FUNCTIONS.items() if each.is_ranked}
EXTREME = ("min", "max")
"""Their interval reaches from the bound to where the noise can hide no more rows. How many rows that are depends on the
noise of the totals there: from none to twice the stated rank error. So it has no least width.
"""


@pytest.fixture(scope="module", params=["gaussian", "pure"])
def uniform(request: pytest.FixtureRequest) -> Iterator[tuple[Session, dict[str, float]]]:
    """15 groups of 2000 people with one value each, evenly spread between the bounds 0 and 100; the cost of a question."""
    budget = {"gaussian": dn.Budget.gaussian(mu=1), "pure": dn.Budget.pure(epsilon=10)}[request.param]
    values, who = np.tile((np.arange(PEOPLE) + 0.5) * 100 / PEOPLE, GROUPS), np.arange(PEOPLE * GROUPS)
    rows = pandas.DataFrame({"who": who, "g": who // PEOPLE, "x": values})
    schema = {"g": dn.Domain.integer(0, GROUPS - 1, nullable=False), "x": dn.Domain.real(0, 100, nullable=False)}
    with dn.session({"t": rows}, unit=dn.Unit.person("who", rows=1), budget=budget, schema=schema) as s:
        yield s, COSTS[request.param]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_price_of_every_aggregate_states_the_half_width_of_its_answer(
    function: str, uniform: tuple[Session, dict[str, float]]
) -> None:
    """An aggregate with a wrong slope in `error` was priced at ± 0.05 where its answer had ± 2.6, and every test passed.
    The count beside it keeps a single quantile from being drawn as one value, which has no interval.
    """
    s, cost = uniform
    value = None if function == "count_persons" else col("x")
    made = frame_aggregates.Aggregation(function, value, OPTIONS.get(function, {}))
    question = s.table("t").group_by("g").agg(x=made, n=frame_aggregates.count())
    price, answer = s.price(question, **cost), s.ask(question, **cost)  # type: ignore[arg-type]  # mu or epsilon
    half = float(np.median([(high - low) / 2 for low, high in answer.interval("x")]))
    if function in RANKED:
        factor, stated, half = FACTOR_OF_RANKS, price.rank_errors()["x"], half * PEOPLE / 100  # in rows
    else:
        factor, stated = FACTOR, price.errors(rows=PEOPLE)["x"]
    assert stated is not None
    assert half <= factor * stated, (half, stated)
    assert function in EXTREME or half >= stated / factor, (half, stated)
