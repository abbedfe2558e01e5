"""Questions of one shape are planned once: filled in, a plan is the one that reading the text in full would make."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from dataclasses import replace

import pytest

from deniable.errors import QuestionRefused
from deniable.ledger import Budget
from deniable.queries.answer.plan_cache import Plans
from deniable.queries.plan.noise_planner import NoisePlan, plan_under
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.relations.question_length import parts
from deniable.queries.relations.work_bound import work
from deniable.queries.sql import question_templates
from deniable.queries.sql.question_templates import Shapes
from deniable.queries.sql.sql_reader import parse

GAUSSIAN = Budget(epsilon=1.0, delta=1e-6)
PURE = Budget.pure(epsilon=1.0)
FILLED = [
    "SELECT COUNT(*) AS n FROM visits WHERE age > {i}",
    "SELECT ward, COUNT(*) AS n FROM visits WHERE age > {i} AND cost < {r} GROUP BY ward",
    "SELECT ward, AVG(cost) AS c, SUM(age) AS a FROM visits WHERE age BETWEEN {i} AND {i} GROUP BY ward",
    "SELECT ward, MEDIAN(cost) FROM visits WHERE {i} <= age AND ward <> 'A' GROUP BY ward",
    "SELECT COUNT(*) FROM visits WHERE NOT age > {i} OR (cost >= {r} AND age != {i})",
    "SELECT COUNT(*) FROM (SELECT age, cost FROM visits WHERE age = {i}) AS below",
    "SELECT COUNT(*) FROM visits WHERE cost > {i} AND ward IN ('A', 'B')",
]  # fmt: skip
"""Every number of these is compared with a column."""
READ = [
    "SELECT age, COUNT(*) FROM visits WHERE age > {i} GROUP BY age",
    "SELECT ward, COUNT(*) AS n FROM visits WHERE age > {i} GROUP BY ward LIMIT {i}",
    "SELECT ward, COUNT(*) AS n FROM visits WHERE age > {i} GROUP BY ward HAVING COUNT(*) > {i}",
    "SELECT COUNT(*) * {i} AS n FROM visits WHERE age > {i}",
    "SELECT COUNT(*) FROM visits WHERE age + {i} > {i}",
    "SELECT COUNT(*) FROM visits WHERE age > -{i}",
    "SELECT COUNT(*) FROM visits WHERE age IN ({i}, {i})",
    "SELECT COUNT(*) FROM visits WHERE age > {i} -- {i}",
    "SELECT COUNT(*) FROM visits WHERE age > {i}e1",
    "SELECT COUNT(*) FROM visits WHERE LENGTH(ward) > {i}",
    "SELECT COUNT(*) FROM visits WHERE ward = 'A{i}' AND age > {i}",
    "SELECT COUNT(*) FROM (SELECT * FROM visits WHERE age > {i}) AS v WHERE cost < {r}",
    "SELECT AVG(LEAST(cost, {i})) FROM visits WHERE age > {i}",
    "SELECT QUANTILE(cost, 0.{i}) FROM visits WHERE age > {i}",
    "SELECT FLOOR(age / {i}) AS decade, COUNT(*) FROM visits WHERE cost > {i} GROUP BY decade",
    "SELECT COUNT(*) FROM visits",
]
"""Of these, some number is something else, or says which keys there are."""


def written(shape: str, rng: random.Random) -> str:
    text = shape
    while "{" in text:
        text = text.replace("{i}", str(rng.choice([rng.randrange(0, 130), rng.randrange(10**20)])), 1)
        text = text.replace("{r}", f"{rng.random() * 10 ** rng.randrange(5):.{rng.randrange(1, 9)}f}", 1)
    return text


def outcome(make: Callable[[], NoisePlan]) -> str:
    """The plan, every part of it, or why there is none."""
    try:
        return repr(make())
    except QuestionRefused as refused:
        return f"{refused.code}: {refused}"


@pytest.mark.parametrize("budget", [GAUSSIAN, PURE], ids=["gaussian", "pure"])
@pytest.mark.parametrize("shape", FILLED + READ)
def test_a_plan_is_the_one_that_reading_the_text_makes(shape: str, budget: Budget) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng, plans = random.Random(seed), Plans(EXAMPLE, budget)
    for _ in range(12):
        text = written(shape, rng)
        full = outcome(lambda text=text: plan_under(parse(text, EXAMPLE), budget))
        assert outcome(lambda text=text: plans.plan(text, plans.question(text))) == full, text


@pytest.mark.parametrize("shape", FILLED)
def test_no_check_depends_on_the_numbers_that_are_filled_in(shape: str) -> None:
    rng, known, filled = random.Random(secrets.randbits(32)), Shapes(), []
    for _ in range(60):
        text = written(shape, rng)
        full = plan_under(parse(text, EXAMPLE), GAUSSIAN)
        if (made := known.plan(text)) is not None:
            filled.append(made)
            assert (parts(made.collect), work(made.collect)) == (parts(full.collect), work(full.collect)), text
            replace(made.collect.relation)  # kinds, and all that the classes check
            replace(made.collect)
            assert replace(made.question).domains == made.question.domains == full.question.domains
        known.learn(text, full)
    assert filled


@pytest.mark.parametrize("shape", FILLED + READ)
def test_only_numbers_that_columns_are_compared_with_are_filled_in(shape: str) -> None:
    known, found = Shapes(), set()
    for first, second in ((11, 12.5), (21, 22.5), (31, 32.5)):
        text, numbers = shape, iter(range(first, first + 10))
        while "{i}" in text:
            text = text.replace("{i}", str(next(numbers)), 1)
        text = text.replace("{r}", str(second))
        found.add(known.plan(text) is not None)
        known.learn(text, plan_under(parse(text, EXAMPLE), GAUSSIAN))
    assert (True in found) == (shape in FILLED)


def test_a_shape_is_believed_once_it_told_a_second_text_right(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = "SELECT ward, COUNT(*) AS n FROM visits WHERE age > {} AND cost < {} GROUP BY ward"
    first, again, second, third = (shape.format(*each) for each in ((1, 2.5), (3, 2.5), (3, 4.5), (5, 6.5)))
    real = question_templates._KnownShape.filled
    for wrong in (False, True):
        known = Shapes()
        with monkeypatch.context() as patch:
            if wrong:  # as if another number of the text stood at each place
                patch.setattr(question_templates._KnownShape, "filled", lambda self, given: real(self, given[::-1]))
            for text in (first, again, second):
                assert known.plan(text) is None
                known.learn(text, plan_under(parse(text, EXAMPLE), GAUSSIAN))
            assert (known.plan(third) is None) == wrong


def test_two_equal_numbers_are_not_told_apart() -> None:
    known, shape = Shapes(), "SELECT COUNT(*) FROM visits WHERE age > {} AND cost < {}"
    for numbers in ((5, 5), (6, 7), (8, 8)):
        text = shape.format(*numbers)
        assert known.plan(text) is None
        known.learn(text, plan_under(parse(text, EXAMPLE), GAUSSIAN))
    assert known.plan(shape.format(9, 9)) is not None  # the second text told which is which, and the third was as told
    assert len(known._kept) == 1


def test_shapes_are_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question_templates, "_MOST", 10)
    known = Shapes()
    for number in range(25):
        text = f"SELECT COUNT(*) AS c{number}_ FROM visits WHERE age > 5"
        known.learn(text, plan_under(parse(text, EXAMPLE), GAUSSIAN))
    assert len(known._kept) <= 10
    assert question_templates._cut(f"SELECT COUNT(*) FROM visits WHERE age > 5{' ' * 2000}") is None
