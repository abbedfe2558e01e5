"""The length of a question with every name written out: counted on the plan, and refused above a public limit."""

from __future__ import annotations

import random
import re

import pytest

from deniable.errors import QuestionRefused
from deniable.queries.frame.frame import Frame
from deniable.queries.frame.frame_aggregates import count
from deniable.queries.plan.noise_planner import plan
from deniable.queries.plan.refusals import EXAMPLE, MOST_BYTES
from deniable.queries.relations.exact_statistics import Collect, Count
from deniable.queries.relations.question_length import MOST_WRITTEN, length
from deniable.queries.relations.relation_nodes import FilterRows, Project, RelationNode, Source
from deniable.queries.sql.sql_reader import parse
from deniable.tables.expressions import MOST_PARTS, Call, Column, Expression, call, case, col, lit
from tests.queries.page import QUESTIONS
from tests.wording import worded


def chain(levels: int, step: str, first: str = "age > 60", last: str = "SELECT COUNT(*) FROM c{} WHERE x") -> str:
    """Sub-queries upon one another, each of which says a step of the x of the one below."""
    parts = [f"c0 AS (SELECT patient_id, {first} AS x FROM visits)"]
    parts += [f"c{i + 1} AS (SELECT patient_id, {step} AS x FROM c{i})" for i in range(levels)]
    return f"WITH {', '.join(parts)} {last.format(levels)}"


def nested(levels: int, step: str, first: str = "age") -> str:
    """A condition in which each step stands around the one before."""
    for _ in range(levels):
        first = step.replace("@", first)
    return f"SELECT COUNT(*) FROM visits WHERE {first} > 1"


BOMBS = {
    "a column that each of twelve sub-queries says four times": chain(12, "(x AND NOT x) OR (x AND x)"),
    "the same in a union, at the key": chain(10, "NOT x OR x", last="SELECT COUNT(*) FROM (SELECT x FROM c{0} UNION ALL SELECT x FROM c{0}) WHERE x"),
    "the same as a key": chain(14, "CASE WHEN x THEN NOT x ELSE x END", last="SELECT x, COUNT(*) FROM c{} GROUP BY x"),
    "the same in a sum": chain(14, "CASE WHEN x > 1 THEN x ELSE x END", "age", "SELECT SUM(x) FROM c{}"),
    "the same per person": chain(14, "NOT x OR x", last="SELECT COUNT(*) FROM (SELECT patient_id, COUNT(x) AS n FROM c{} GROUP BY patient_id) WHERE n > 1"),
    "the same through joins": chain(14, "NOT x OR x", last="SELECT COUNT(*) FROM c{0} AS a JOIN (SELECT DISTINCT patient_id FROM stays) AS b USING (patient_id) WHERE a.x"),
    "NULLIF, which engines write with its argument twice": nested(16, "NULLIF(@, 5)"),
    "LEAST, which engines write as a tournament": nested(12, "LEAST(@, age, cost)"),
    "GREATEST of many": nested(6, "GREATEST(@, age, cost, age, cost)"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_short_question_that_is_long_when_written_out_is_refused_from_its_plan(name: str) -> None:
    """Each of these made an engine plan for minutes, in gigabytes; the first is an analyst's attack of 900 bytes."""
    text = BOMBS[name]
    assert len(text) < 1200
    question = parse(text, EXAMPLE)
    with worded(QuestionRefused, code="too_deep") as refused:
        plan(question)
    assert refused.value.code == "too_deep"


@pytest.mark.parametrize(
    "text",
    [
        nested(35, "CASE @ WHEN 1 THEN 2 WHEN 2 THEN 1 ELSE 3 END"),
        nested(38, "CAST(@ BETWEEN 0 AND 1 AS BIGINT)"),
        nested(38, "SIGN(@)"),
        nested(38, "TRUNC(@)"),
        nested(38, "WIDTH_BUCKET(@, 0, 10, 5)"),
    ],
)
def test_an_expression_that_holds_its_argument_twice_is_refused_while_it_is_built(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking through it took as many steps as it has parts, 2 to the power of 38: so nobody may look through it."""
    made: list[int] = []
    check = Call.__post_init__

    def counted(self: Call) -> None:
        check(self)
        made.append(self.parts)

    monkeypatch.setattr(Call, "__post_init__", counted)
    with worded(QuestionRefused):
        parse(text, EXAMPLE)
    assert len(made) < 500
    assert max(made) <= MOST_PARTS


def test_a_dataframe_that_doubles_a_column_is_refused_as_well() -> None:
    frame = Frame.of("visits", EXAMPLE).with_columns(x=col("age") > 60)
    for _ in range(14):
        frame = frame.with_columns(x=~col("x") | col("x"))
    question = frame.filter(col("x")).agg(n=count())
    with worded(QuestionRefused, code="too_deep"):
        plan(question)


def test_parts_and_depth_are_those_of_the_tree() -> None:
    inner = col("a") + 1
    assert (inner.parts, inner.depth) == (3, 1)
    both = case((inner > 2, inner), otherwise=None)
    assert (both.parts, both.depth) == (1 + 5 + 3 + 1, 3)
    assert (col("a").parts, lit(1).parts, col("a").depth) == (1, 1, 0)


def test_the_length_is_that_of_the_question_written_out() -> None:
    """Against a count of every node, one by one, of the same expressions with each name replaced."""
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    source = Source(EXAMPLE["visits"])
    for _ in range(200):
        relation: RelationNode = source
        relation = Project(relation, (("b0", col("age") > 1), ("b1", col("cost") > 1)))
        # What stands for a column is a tree of nested tuples, counted by walking through all of it.
        trees: dict[str, object] = {"b0": ("gt", "age", 1), "b1": ("gt", "cost", 1)}
        conditions: list[object] = []
        for _ in range(rng.randrange(1, 4)):
            if rng.random() < 0.3:
                condition = _drawn(rng, 2)
                conditions.append(_replaced(condition, trees))
                relation = FilterRows(relation, condition)
            else:
                drawn = {name: _drawn(rng, rng.randrange(3)) for name in trees}
                trees = {name: _replaced(each, trees) for name, each in drawn.items()}
                relation = Project(relation, tuple(drawn.items()))
        last = _drawn(rng, 2)
        truth = sum(_nodes(each) for each in [*conditions, _replaced(last, trees), trees["b0"]])
        try:
            asked = Collect(FilterRows(relation, last), (), ((),), (Count(col("b0")),))
        except QuestionRefused:  # one draw in tens of thousands is too long
            assert truth > MOST_WRITTEN / 10
            continue
        assert length(asked) == truth
        assert length(asked, exactly=False) >= length(asked)


def _drawn(rng: random.Random, depth: int) -> Expression:
    if depth == 0:
        return col(rng.choice(["b0", "b1"]))
    operator = rng.choice(["and", "or", "not", "nullif", "case"])
    many = {"not": 1, "nullif": 2, "case": 3}.get(operator, rng.randrange(2, 4))
    return call(operator, *(_drawn(rng, depth - 1) for _ in range(many)))


def _replaced(expression: Expression, trees: dict[str, object]) -> object:
    if isinstance(expression, Column):
        return trees[expression.name]
    assert isinstance(expression, Call)
    arguments = [_replaced(each, trees) for each in expression.arguments]
    if expression.operator == "nullif":  # CASE WHEN a = b THEN NULL ELSE a END
        arguments.append(arguments[0])
    return (expression.operator, *arguments)


def _nodes(tree: object) -> int:
    return 1 + sum(_nodes(each) for each in tree[1:]) if isinstance(tree, tuple) and tree[0] != "gt" else _leaf(tree)


def _leaf(tree: object) -> int:
    return 3 if isinstance(tree, tuple) else 1


def test_values_that_are_never_null_do_not_make_a_tournament() -> None:
    """Clipping what was clipped is common, and engines have a function for it where no value can be NULL."""
    source = Source(EXAMPLE["visits"])
    maybe, sure = col("age"), call("coalesce", col("age"), 0)
    for _ in range(5):
        maybe, sure = (call("least", call("greatest", each, 0), 100) for each in (maybe, sure))
    assert length(Collect(source, (), ((),), (Count(sure),))) == 3 + 5 * 4
    with worded(QuestionRefused, code="too_deep"):
        Collect(source, (), ((),), (Count(maybe),))


def test_ordinary_questions_are_far_below_the_limit() -> None:
    for text in [text for questions in QUESTIONS.values() for text, _ in questions]:
        times = 10 if "AT TIME ZONE" in text else 20  # a zone brings each change of its clock since 1970
        assert times * length(plan(parse(text, EXAMPLE)).collect) < MOST_WRITTEN, text


def test_what_a_text_says_itself_is_never_too_long() -> None:
    """A list of constants as long as a text may be, used several times."""
    listed = ", ".join(str(i) for i in range(900))
    text = f"SELECT ward, COUNT(*), COUNT_IF(x) FROM (SELECT ward, age IN ({listed}) AS x FROM visits) WHERE x OR NOT x GROUP BY ward"
    assert len(text) < MOST_BYTES
    assert length(plan(parse(text, EXAMPLE)).collect) < MOST_WRITTEN


def test_a_proof_that_would_be_too_long_is_left_out_and_the_question_stands() -> None:
    """Whether parts are disjoint is proved with names written out: beyond the limit of an expression nothing is."""
    x = " OR ".join(f"age = {i}" for i in range(100))
    y = " AND ".join(["x"] * 9)
    parts = " UNION ALL ".join(f"SELECT y FROM b WHERE y = {value}" for value in ("TRUE", "FALSE"))
    text = f"WITH a AS (SELECT {x} AS x FROM visits), b AS (SELECT {y} AS y FROM a) SELECT COUNT(*) FROM ({parts})"
    assert 2 * EXAMPLE["visits"].unit.rows == plan(parse(text, EXAMPLE)).collect.relation.rows  # type: ignore[union-attr]


def test_the_refusal_says_what_was_asked_and_what_is_allowed() -> None:
    with pytest.raises(QuestionRefused) as refused:
        plan(parse(BOMBS["a column that each of twelve sub-queries says four times"], EXAMPLE))
    said = str(refused.value)
    assert re.search(r"has 72,\d{3},\d{3} parts, and at most 10,000 are allowed", said), said
    assert "use each name of a sub-query less often" in said
