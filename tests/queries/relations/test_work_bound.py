"""The work that one person's rows can cause: counted from the plan, and refused above a public limit."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from deniable.errors import QuestionRefused
from deniable.queries.frame.frame import Frame
from deniable.queries.frame.frame_aggregates import count_distinct
from deniable.queries.plan.noise_planner import plan
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.relations.operators import evaluate
from deniable.queries.relations.question_length import length
from deniable.queries.relations.work_bound import _PART, MOST_WORK, bytes_of, steps, work
from deniable.queries.sql.sql_reader import parse
from deniable.tables.expressions import Expression, call, col, lit
from deniable.tables.kinds import LONGEST, Domain
from deniable.tables.schema import Table
from deniable.units import Unit
from tests.queries.page import QUESTIONS
from tests.wording import worded

COLUMNS = {"age": Domain.integer(0, 120), "note": Domain.text(), "sex": Domain.text("f", "m"), "w": Domain.real(0, 1e6)}
PAD = "||'" + "x" * 300 + "'"


def tables(rows: int) -> dict[str, Table]:
    return {"t": Table.of("t", Unit.person("id", rows=rows), **COLUMNS)}


def joined(times: int, of: str = "SELECT id, note, w FROM t WHERE age = 117") -> str:
    """The rows of whoever is 117, joined with themselves on the person, with long texts."""
    names = "abcdef"[:times]
    more = " ".join(f"JOIN v AS {each} ON a.id = {each}.id" for each in names[1:])
    texts = "||".join(f"{each}.note" for each in names)
    return f"WITH v AS ({of}), j AS (SELECT a.id, {texts}{PAD * 4} AS m, a.w FROM v AS a {more}) SELECT "


def nested(end: str, *, of: str = "SELECT id, note AS t, age, w FROM t", wide: int = 10) -> str:
    """Texts named thrice upon one another; written out, each name stands for `wide` of the next."""
    text = f"CONCAT({', '.join(['t'] * wide)})"
    names = "".join(f", {b} AS (SELECT id, {text} AS t, age, w FROM {a})" for a, b in ("za", "ab", "bc"))
    return f"WITH z AS ({of}){names} {end}"


def either(many: int = 8, name: str = "t") -> str:
    """Conditions that read one name many times, for whoever is 117."""
    return "age = 117 AND (" + " OR ".join(f"{name} = 'q{i}'" for i in range(many)) + ")"


WRITTEN_OUT = {
    "names in a condition": (10, nested(f"SELECT COUNT(*) AS n FROM c WHERE {either()}")),
    "names in a condition, with one row for each person": (1, nested(f"SELECT COUNT(*) AS n FROM c WHERE {either()}")),
    "names in an inner condition": (10, nested(f"SELECT SUM(w) AS s FROM (SELECT * FROM c WHERE {either()}) WHERE w > 3")),
    "names in a condition on a union": (10, nested(f", u AS (SELECT t, age FROM c UNION ALL SELECT t, age FROM c) SELECT COUNT(*) AS n FROM u WHERE {either(4)}")),
    "names in a condition on a union of parts that exclude one another": (10, nested(f", u AS (SELECT t, age FROM c WHERE w > 3 UNION ALL SELECT t, age FROM c WHERE w <= 3) SELECT COUNT(*) AS n FROM u WHERE {either(4)}")),
    "names in a condition on what is gathered by them": (10, nested(f", g AS (SELECT id, t, age, MAX(w) AS w FROM c GROUP BY id, t, age) SELECT COUNT(*) AS n FROM g WHERE {either()}", wide=9)),
    "names in a condition below what is gathered": (10, nested(f", g AS (SELECT id, MAX(w) AS w FROM c WHERE {either()} GROUP BY id) SELECT SUM(w) AS s FROM g")),
    "names in a join": (30, nested(", v AS (SELECT id, note AS s FROM t WHERE age = 117) SELECT COUNT(*) AS n FROM c JOIN v ON c.id = v.id AND c.t = v.s", wide=2)),
    "names in CASE": (10, nested("SELECT SUM(CASE " + " ".join(f"WHEN t = 'q{i}' THEN {i}" for i in range(8)) + " END) AS s FROM c WHERE age = 117")),
    "names in keys that are listed": (10, nested("SELECT COUNT(*) AS n FROM c WHERE t IN ('a', 'b') AND age = 117", wide=15)),
    "names in the texts of a pattern": (10, nested("SELECT COUNT(*) AS n FROM c WHERE age = 117 AND (" + " OR ".join(f"t LIKE '%{i}%'" for i in range(8)) + ")")),
    "names in LEAST": (10, nested("SELECT COUNT(*) AS n FROM c WHERE " + either(1, "LEAST(t, 'z')"))),
    "names in NULLIF, in a cast": (10, nested("SELECT COUNT(*) AS n FROM c WHERE age = 117 AND CAST(NULLIF(NULLIF(t, 'a'), 'b') AS DATE) IS NULL")),
}  # fmt: skip
"""Engines write out what a name stands for, where a condition is brought down to the table."""

AMPLIFIERS = {
    "time by a join on the person": (10, joined(4) + ", ".join(f"COUNT(DISTINCT LOWER(m||'{i}')) AS c{i}" for i in range(60)) + " FROM j"),
    "time with one row for each person": (1, joined(3, " UNION ALL ".join(["SELECT id, note, w FROM t WHERE age = 117"] * 20)) + "COUNT(DISTINCT LOWER(m)) AS c FROM j"),
    "memory by keys that nobody listed": (10, joined(5) + "m, COUNT(*) AS n FROM j GROUP BY m"),
    "memory by distinct values": (10, joined(4) + "COUNT(DISTINCT m) AS n FROM j"),
    "memory within a person": (10, joined(4).removesuffix("SELECT ") + ", k AS (SELECT id, MAX(m) AS m FROM j GROUP BY id, w) SELECT COUNT(m) AS n FROM k"),
    "disk by a sort of each person's groups": (10, joined(4) + "WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 2) m, COUNT(*) AS n FROM j GROUP BY m"),
    "many numbers that nobody listed": (300, "WITH v AS (SELECT id, w FROM t WHERE age = 117), j AS (SELECT CAST(a.w + b.w AS BIGINT) AS g FROM v AS a JOIN v AS b ON a.id = b.id) SELECT g, COUNT(*) AS n FROM j GROUP BY g"),
    "patterns": (10, joined(4) + ", ".join(f"COUNT_IF(m LIKE '%x%_{i}%x_%') AS c{i}" for i in range(20)) + " FROM j"),
    "medians, each of which reads all again": (300, "WITH v AS (SELECT id, w FROM t WHERE age = 117), j AS (SELECT a.w FROM v AS a JOIN v AS b ON a.id = b.id) SELECT " + ", ".join(f"MEDIAN(LEAST(w, {i})) AS m{i}" for i in range(1, 40)) + " FROM j"),
    "a condition": (10, joined(4) + "COUNT(*) AS n FROM j WHERE " + " OR ".join(f"LOWER(m||'{i}') = 'y'" for i in range(10))),
    **WRITTEN_OUT,
}  # fmt: skip


@pytest.mark.parametrize("name", AMPLIFIERS)
def test_a_question_that_could_fail_because_of_one_person_is_refused_from_its_plan(name: str) -> None:
    rows, text = AMPLIFIERS[name]
    with worded(QuestionRefused, code="work") as refused:
        plan(parse(text, tables(rows)))
    assert refused.value.code == "work"


def test_python_is_counted_as_sql_is() -> None:
    whose = tables(300)
    frame = Frame.of("t", whose).filter(col("age") == 117)
    frame = frame.with_columns(note=call("concat", *[col("note")] * 16))
    longer = {f"c{i}": count_distinct(call("lower", call("concat", col("note"), str(i)))) for i in range(80)}
    asked = frame.agg(**longer)
    with pytest.raises(QuestionRefused) as refused:
        plan(asked)
    assert refused.value.code == "work"


def ordinary() -> list[str]:
    return [text for group in QUESTIONS.values() for text, _ in group]


@pytest.mark.parametrize("text", ordinary())
def test_ordinary_questions_are_far_below_the_limit(text: str) -> None:
    assert work(plan(parse(text, EXAMPLE)).collect) < MOST_WORK / 10


TPCH = {
    "q1": "SELECT flag, status, SUM(quantity) AS a, SUM(price) AS b, SUM(price * (1 - discount)) AS c, AVG(quantity) AS d, AVG(price) AS e, COUNT(*) AS n FROM lines WHERE shipped <= DATE '1998-09-02' GROUP BY flag, status",
    "q3": "SELECT priority, SUM(price * (1 - discount)) AS revenue FROM orders JOIN lines USING (customer) WHERE ordered < DATE '1995-03-15' AND shipped > DATE '1995-03-15' GROUP BY priority",
    "q12": "SELECT mode, COUNT_IF(priority = '1-URGENT' OR priority = '2-HIGH') AS high, COUNT(*) AS n FROM orders JOIN lines USING (customer) WHERE mode IN ('MAIL', 'SHIP') GROUP BY mode",
    "q13": "SELECT n, COUNT(*) AS customers FROM (SELECT customer, COUNT(*) AS n FROM orders WHERE comment NOT LIKE '%special%requests%' GROUP BY customer) GROUP BY n",
    "clerks": "SELECT clerk, COUNT(*) AS n, COUNT(DISTINCT comment) AS c FROM orders GROUP BY clerk",
}  # fmt: skip


@pytest.mark.parametrize("name", TPCH)
def test_questions_like_those_of_tpc_h_are_not_refused(name: str) -> None:
    money, day = Domain.real(0, 1e5), Domain.date()
    text = Domain.text()
    schema = {
        "orders": Table.of("orders", Unit.person("customer", rows=50), priority=Domain.text('1-URGENT', '2-HIGH', '5-LOW'), ordered=day, clerk=text, comment=text),
        "lines": Table.of("lines", Unit.person("customer", rows=300), flag=Domain.text("A", "N", "R"), status=Domain.text("O", "F"), quantity=Domain.real(0, 50), price=money, discount=Domain.real(0, 1), shipped=day, mode=Domain.text('MAIL', 'SHIP', 'AIR')),
    }  # fmt: skip
    plan(parse(TPCH[name], schema))


def test_the_work_grows_with_rows_texts_and_aggregates() -> None:
    def of(text: str, rows: int = 10) -> int:
        collect = plan(parse(text, tables(rows))).collect
        return work(collect) - _PART * length(collect, exactly=False)

    one = of("SELECT COUNT(note) AS n FROM t WHERE note > 'a'")
    assert of("SELECT COUNT(note) AS n FROM t WHERE note > 'a'", 20) == 2 * one
    assert of("SELECT COUNT(note) AS n FROM t WHERE LOWER(note) > 'a'") > 2 * one
    assert of("SELECT COUNT(LEFT(note, 5)) AS n FROM t WHERE LEFT(note, 5) > 'a'") < 2 * one
    assert of("SELECT COUNT(sex) AS n FROM t WHERE sex > 'a'") < one / 50
    assert of("SELECT COUNT(note) AS n, COUNT(note || 'x') AS m FROM t WHERE note > 'a'") > 1.5 * one
    assert (
        of("SELECT COUNT(note) AS n FROM (SELECT note FROM t UNION ALL SELECT note FROM t) WHERE note > 'a'") > 2 * one
    )
    counted = [
        of(f"SELECT {', '.join(f'COUNT(DISTINCT age + {i}) AS n{i}' for i in range(many))} FROM t") for many in (1, 2)
    ]
    assert counted[1] > 1.9 * counted[0] > 5_000_000


def test_columns_that_nobody_reads_cost_nothing() -> None:
    wide = {
        "t": Table.of(
            "t", Unit.person("id", rows=100), a=Domain.integer(0, 9), **{f"x{i}": Domain.text() for i in range(50)}
        )
    }
    joined = plan(parse("SELECT SUM(l.a) AS s FROM t AS l JOIN t AS r ON l.id = r.id", wide)).collect
    assert work(joined) < MOST_WORK / 50


def test_who_declares_many_rows_of_a_person_may_ask_about_them() -> None:
    plan(parse("SELECT COUNT(*) AS n, SUM(w) AS s, AVG(age) AS a FROM t WHERE sex = 'f'", tables(10**6)))


def some(chance: random.Random, depth: int) -> Expression:
    """A random expression of kind text."""
    if depth == 0:
        return chance.choice([col("a"), col("b"), lit("é" * chance.randrange(30)), lit(None)])
    below = [some(chance, depth - 1) for _ in range(3)]
    name = chance.choice(
        ["lower", "upper", "trim", "prefix", "concat", "coalesce", "nullif", "least", "case", "cast_text", "spelled"]
    )
    if name == "prefix":
        return call("prefix", below[0], chance.randrange(40))
    if name == "spelled":
        return call("cast_text", col("n"))
    if name == "case":
        return call("case", call("like", below[0], "%a_%"), below[1], below[2])
    return call(name, *below[: 1 if name in {"lower", "upper", "trim", "cast_text"} else 2 if name == "nullif" else 3])


def test_no_text_has_more_bytes_than_its_plan_says() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    columns = {"a": Domain.text(), "b": Domain.text("x", "ééé"), "n": Domain.integer()}
    sizes = {"a": 4 * LONGEST, "b": 6, "n": 8}
    longest = 0
    for _ in range(300):
        expression = some(chance, chance.randrange(1, 5))
        row: dict[str, Any] = {"a": chance.choice(["", "𝄞" * LONGEST, "A" * 17]), "b": "ééé", "n": -(2**63)}
        try:
            value = evaluate(expression, row, columns)
        except QuestionRefused:  # NULL of no kind, where a text is needed
            continue
        size = 0 if value is None else len(str(value).encode())
        longest = max(longest, size)
        assert size <= bytes_of(expression, sizes), expression
        assert steps(expression, sizes) >= 10
    assert longest == 4 * LONGEST, "the longest text was drawn"


def test_the_error_says_what_was_asked_and_what_is_allowed() -> None:
    with pytest.raises(QuestionRefused) as refused:
        plan(parse(AMPLIFIERS["memory by distinct values"][1], tables(10)))
    asked, most = (int(each.replace(",", "")) for each in re.findall(r"[0-9][0-9,]{6,}", refused.value.rule))
    assert asked > most == MOST_WORK
    assert "LEFT(a, 50)" in refused.value.rewrite
