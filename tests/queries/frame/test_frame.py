"""Dataframes: the same question as the SQL beside it, by its hash."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest

from deniable.errors import InvalidOperation, InvalidParameter, QuestionRefused
from deniable.queries.frame import frame_aggregates as ask
from deniable.queries.frame.frame import MOST_COLUMNS, Frame
from deniable.queries.plan.question import Question
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.sql.sql_reader import parse
from deniable.tables.expressions import case, coalesce, col, renamed

visits = Frame.of("visits", EXAMPLE)
stays = Frame.of("stays", EXAMPLE)

PAIRS: list[tuple[Callable[[], Question], str]] = [
    (lambda: visits.agg(n=ask.count()), "SELECT COUNT(*) FROM visits"),
    (
        lambda: visits.filter(col("age") > 60).group_by("ward").agg(n=ask.count(), cost=ask.mean("cost")),
        "SELECT ward, COUNT(*), AVG(cost) FROM visits WHERE age > 60 GROUP BY ward",
    ),
    (
        lambda: visits.filter(col("age") > 60, col("ward") == "A").agg(n=ask.count_persons(), d=ask.count_distinct("diagnosis")),
        "SELECT COUNT(DISTINCT patient_id), COUNT(DISTINCT diagnosis) FROM visits WHERE ward = 'A' AND age > 60",
    ),
    (
        lambda: visits.agg(a=ask.sum("cost"), b=ask.var("cost"), c=ask.std("cost", ddof=0), d=ask.median("age"), e=ask.quantile("age", 0.9), f=ask.min("age"), g=ask.max("age"), h=ask.count("age")),
        "SELECT SUM(cost), VAR_SAMP(cost), STDDEV_POP(cost), MEDIAN(age), QUANTILE(age, 0.9), MIN(age), MAX(age), COUNT(age) FROM visits",
    ),
    (
        lambda: visits.group_by(decade=col("age") // 10 * 10).agg(n=ask.count()),
        "SELECT FLOOR(age / 10) * 10, COUNT(*) FROM visits GROUP BY 1",
    ),
    (
        lambda: visits.group_by(who=case((col("age") < 18, "child"), otherwise="adult")).agg(n=ask.count()),
        "SELECT CASE WHEN age < 18 THEN 'child' ELSE 'adult' END, COUNT(*) FROM visits GROUP BY 1",
    ),
    (
        lambda: visits.filter((col("age").between(3, 5) & ~col("ward").is_null()) | col("diagnosis").like("J%")).agg(n=ask.count()),
        "SELECT COUNT(*) FROM visits WHERE (age >= 3 AND age <= 5 AND ward IS NOT NULL) OR diagnosis LIKE 'J%'",
    ),
    (
        lambda: visits.filter(col("visited") >= "2024-01-01").group_by(month=col("visited").apply("month")).agg(n=ask.count()),
        "SELECT MONTH(visited), COUNT(*) FROM visits WHERE visited >= '2024-01-01' GROUP BY 1",
    ),
    (
        lambda: visits.join("wards", "ward").group_by("city").agg(c=ask.mean("cost")),
        "SELECT city, AVG(cost) FROM visits JOIN wards USING (ward) GROUP BY city",
    ),
    (
        lambda: visits.join("wards", [("diagnosis", "ward")], how="left").filter(col("city").is_null()).agg(n=ask.count()),
        "SELECT COUNT(*) FROM visits LEFT JOIN wards ON diagnosis = wards.ward WHERE city IS NULL",
    ),
    (
        lambda: visits.join(stays).group_by("ward").agg(d=ask.sum("days")),
        "SELECT ward, SUM(days) FROM visits JOIN stays USING (patient_id) GROUP BY ward",
    ),
    (
        lambda: visits.join(visits, ["visited"]).agg(n=ask.sum("age_2")),
        "SELECT SUM(b.age) FROM visits a JOIN visits b ON a.patient_id = b.patient_id AND a.visited = b.visited",
    ),
    (
        lambda: visits.per_person(n=ask.count()).agg(m=ask.mean("n")),
        "SELECT AVG(n) FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id)",
    ),
    (
        lambda: visits.per_person("ward", total=ask.sum("cost")).filter(col("total") > 10).group_by("ward").agg(m=ask.median("total")),
        "SELECT ward, MEDIAN(t) FROM (SELECT patient_id, ward, SUM(cost) AS t FROM visits GROUP BY 1, 2) WHERE t > 10 GROUP BY ward",
    ),
    (
        lambda: visits.people_in(stays.filter(col("days") > 3)).agg(n=ask.count()),
        "SELECT COUNT(*) FROM visits WHERE patient_id IN (SELECT patient_id FROM stays WHERE days > 3)",
    ),
    (
        lambda: visits.people_not_in(stays).agg(n=ask.count()),
        "SELECT COUNT(*) FROM visits WHERE patient_id NOT IN (SELECT patient_id FROM stays)",
    ),
    (
        lambda: visits.filter(col("age") < 10).select("age").union(visits.filter(col("age") >= 10).select("age")).agg(s=ask.sum("age")),
        "SELECT SUM(age) FROM (SELECT age FROM visits WHERE age < 10 UNION ALL SELECT age FROM visits WHERE age >= 10)",
    ),
    (
        lambda: visits.with_columns(twice=col("cost") * 2).with_columns(cost=coalesce(col("cost"), 0.0)).agg(s=ask.sum(col("twice") + col("cost"))),
        "SELECT SUM(cost * 2 + COALESCE(cost, 0.0)) FROM visits",
    ),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(PAIRS)))
def test_both_fronts_ask_the_same(place: int) -> None:
    frame, text = PAIRS[place]
    one, two = frame(), parse(text, EXAMPLE)
    assert one.hash == two.hash
    assert [key.values for key in one.keys] == [key.values for key in two.keys]
    assert one.relation.rows == two.relation.rows


def test_what_is_made_of_the_answers() -> None:
    question = visits.group_by("ward").agg(n=ask.count(), s=ask.sum("cost"))
    shown = (
        question.with_columns(mean=col("s") / col("n")).having(col("n") > 10).order_by("mean", descending=True).limit(2)
    )
    assert shown.hash == question.hash
    rows = [
        {"ward": w, "n": n, "s": s} for w, n, s in (("A", 5, 9.0), ("B", 20, 10.0), ("C", 40, 80.0), (None, 50, 5.0))
    ]
    assert shown.post.select(rows, shown.domains) == [(2, ("C", 40, 80.0, 2.0)), (1, ("B", 20, 10.0, 0.5))]


def test_keys_can_be_named() -> None:
    question = visits.group_by("diagnosis").with_keys(diagnosis=["flu", "cold"]).agg(n=ask.count())
    assert question.known == (("flu",), ("cold",))
    with pytest.raises(QuestionRefused):
        visits.group_by("diagnosis").with_keys(diagnosis=[1]).agg(n=ask.count())


@pytest.mark.parametrize(
    ("wrong", "error", "code"),
    [
        (lambda: Frame.of("nowhere", EXAMPLE), QuestionRefused, "table"),
        (lambda: Frame.of("wards", EXAMPLE), QuestionRefused, "public"),
        (lambda: visits.filter(col("height") > 1), QuestionRefused, "column"),
        (lambda: visits.filter(col("patient_id") == "p"), QuestionRefused, "person"),
        (lambda: visits.group_by("patient_id"), QuestionRefused, "person"),
        (lambda: visits.filter(col("age") + 1), QuestionRefused, "kinds"),
        (lambda: visits.agg(), QuestionRefused, "aggregate"),
        (lambda: visits.agg(s=ask.sum("weight")), QuestionRefused, "bounds"),
        (lambda: visits.agg(s=ask.sum("ward")), QuestionRefused, "kinds"),
        (lambda: visits.agg(s=ask.quantile("cost", 2)), QuestionRefused, "constant"),
        (lambda: visits.group_by("weight").agg(n=ask.count()), QuestionRefused, "key"),
        (lambda: visits.group_by("ward").agg(ward=ask.count()), QuestionRefused, "name"),
        (lambda: visits.union(stays), QuestionRefused, "union"),
        (lambda: visits.join("stays", "age"), QuestionRefused, "join"),
        (lambda: visits.join("wards"), QuestionRefused, "join"),
        (lambda: visits.join("wards", "ward", how="outer"), InvalidParameter, None),
        (lambda: visits.filter("age > 3"), InvalidParameter, None),
        (lambda: visits.agg(n=3), InvalidParameter, None),
        (lambda: visits.filter(col("age") > 3 and col("age") < 5), InvalidOperation, None),
        (lambda: visits.filter(col("age").is_in([col("ward")])), QuestionRefused, "constant"),
        (lambda: visits.filter(col("visited") > "yesterday"), QuestionRefused, "constant"),
    ],
    ids=range(21),
)  # fmt: skip
def test_what_a_frame_refuses(wrong: Callable[[], object], error: type[Exception], code: str | None) -> None:
    with pytest.raises(error) as refused:
        wrong()
    assert getattr(refused.value, "code", None) == code


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        (lambda: visits.group_by(["ward", "age"]), r'write group_by\("ward", "sex"\)'),
        (lambda: visits.group_by(col("age") // 10), r"needs a name: group_by\(decade="),
        (lambda: visits.select(["ward"]), "one by one"),
        (lambda: visits.agg(ask.count()), r"write agg\(n=count\(\)\)"),
        (lambda: visits.group_by("ward").agg(ask.count()), r"write agg\(n=count\(\)\)"),
        (lambda: visits["age"], r'write col\("age"\)'),
    ],
    ids=range(6),
)  # fmt: skip
def test_habits_of_other_dataframes_are_told_what_to_write(wrong: Callable[[], object], remedy: str) -> None:
    with pytest.raises((InvalidParameter, InvalidOperation), match=remedy):
        wrong()


def test_frames_and_questions_print_shortly() -> None:
    said = repr(visits.filter(col("age") > 60).select("weight", twice=col("cost") * 2))
    assert said.splitlines() == [
        "Frame of visits, at most 20 rows of a person",
        "  weight  real()",
        "  twice   real(0, 20000)",
    ]
    grouped = stays.group_by("place")
    assert repr(grouped).endswith("grouped by place")
    question = grouped.agg(n=ask.count())
    assert repr(question) == f"<Question: place, n of stays by place; {question.hash[:12]}>"


def grown(frame: Frame, by: str) -> Frame:
    for _ in range(40):
        match by:
            case "union":
                frame = frame.union(frame)
            case "join":
                frame = frame.per_person(n=ask.count()).join(frame.per_person(n=ask.count()))
            case _:
                frame = frame.people_in(frame)
    return frame


@pytest.mark.parametrize("by", ["union", "join", "people_in"])
def test_a_frame_that_doubles_is_refused_before_it_hurts(by: str) -> None:
    start = time.process_time()
    with pytest.raises(QuestionRefused) as refused:
        grown(visits, by)
    assert refused.value.code == "too_deep"
    assert time.process_time() - start < 20


def test_a_question_that_doubles_is_refused_before_it_hurts() -> None:
    parts = ["c0 AS (SELECT age FROM visits)"]
    parts += [f"c{i + 1} AS (SELECT age FROM c{i} UNION ALL SELECT age FROM c{i})" for i in range(40)]
    start = time.process_time()
    with pytest.raises(QuestionRefused) as refused:
        parse(f"WITH {', '.join(parts)} SELECT COUNT(*) FROM c40", EXAMPLE)
    assert refused.value.code == "too_deep"
    assert time.process_time() - start < 20


def test_a_frame_of_many_columns_is_refused() -> None:
    """Every step lists all columns again: 100 steps of 40 columns each were 200,000 of them, and took 37 s."""

    def wider(frame: Frame, step: int) -> Frame:
        return frame.with_columns(**{f"c{step}_{i}": 1 for i in range(20)})

    with pytest.raises(QuestionRefused) as refused:
        reduce(wider, range(150), Frame.of("visits", EXAMPLE))
    assert refused.value.code == "too_deep"
    assert f"{MOST_COLUMNS:,} columns" in refused.value.rule


def test_an_expression_is_renamed_by_the_columns_that_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """All columns were listed anew for each new one."""
    sizes: list[int] = []

    def seen(expression: Any, names: Any) -> Any:
        sizes.append(len(names))
        return renamed(expression, names)

    monkeypatch.setattr("deniable.queries.frame.frame.renamed", seen)
    Frame.of("visits", EXAMPLE).with_columns(**{f"c{i}": col("age") + i for i in range(30)})
    assert sizes == [1] * 30
