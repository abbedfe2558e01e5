"""Questions of a dataframe over the wire: the same questions as here, and nothing that a frame would not do."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from deniable.errors import DeniableError, InvalidParameter, QuestionRefused
from deniable.queries.frame.frame import Frame
from deniable.queries.frame.frame_aggregates import count, count_persons, max, mean, quantile, sum
from deniable.queries.frame.recorded_steps import Recorded, question_of
from deniable.tables.expressions import case, col
from deniable.tables.schema import read_schema
from tests.server.world import SCHEMA, World
from tests.wording import worded

WARDS = """\
  wards:
    public: true
    columns: {ward: {kind: text}, floor: {kind: integer, low: 0, high: 9}, opened: {kind: date}}
"""
TABLES = dict(read_schema(SCHEMA + WARDS))
TABLES["wards"] = replace(TABLES["wards"], most_partners=((("ward",), 1),))

QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "count": lambda t: t("visits").agg(n=count()),
    "groups": lambda t: t("visits").filter(col("age") > 60, col("stay").is_null()).group_by("ward").agg(n=count()),
    "keys": lambda t: t("visits").group_by("town").with_keys(town=["x", None]).agg(n=count(), c=mean("cost")),
    "computed": lambda t: (
        t("visits")
        .with_columns(old=case((col("age") >= np.int64(65), "yes"), otherwise="no"))
        .select("old", "cost")
        .group_by("old", high=col("cost") > 100.5)
        .agg(c=sum(col("cost") * 2))
    ),
    "people": lambda t: t("visits").people_in(t("visits").filter(col("ward") == "A")).agg(p=count_persons()),
    "others": lambda t: t("visits").people_not_in(t("visits").filter(col("sex").is_in(["f"]))).agg(p=count_persons()),
    "union": lambda t: t("visits").filter(col("age") < 30).union(t("visits").filter(col("age") >= 30)).agg(n=count()),
    "person": lambda t: t("visits").per_person(most=max("cost")).agg(m=quantile("most", 0.9)),
    "join": lambda t: (
        t("visits")
        .join("wards", [("ward", "ward")], how="left")
        .filter(col("opened") > dt.date(2020, 1, 2))
        .group_by("floor")
        .agg(n=count())
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_steps_build_the_same_question_elsewhere(name: str) -> None:
    here = QUESTIONS[name](lambda table: Frame.of(table, TABLES))
    steps = QUESTIONS[name](lambda table: Recorded.of(table, TABLES))
    there = question_of(steps.text(), TABLES)
    assert here.hash == steps.question.hash == there.hash
    assert here.names == there.names


def test_a_frame_and_its_sql_are_one_question_to_the_server(world: World) -> None:
    steps = Recorded.of("visits", TABLES).group_by("ward").agg(n=count())
    sql = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
    body = {"dataset": "visits", "epsilon": 0.5, "frame": dict(steps.record)}
    price = world.call("ana", "POST", "/v1/questions:price", body)
    assert price.status_code == 200, price.text
    first = world.call("ana", "POST", "/v1/questions", body, headers={"Idempotency-Key": "f"})
    assert first.status_code == 200, first.text
    assert world.call("ana", "POST", "/v1/questions", body, headers={"Idempotency-Key": "f"}).content == first.content
    again = world.ask(sql, epsilon=0.5).json()
    assert again["provenance"]["replayed"]
    assert again["rows"] == first.json()["rows"]
    label = world.call("ana", "GET", f"/v1/labels/{first.json()['release']}")
    assert label.status_code == 200, label.text
    refined = world.call("ana", "POST", "/v1/questions:refine", body)
    assert refined.status_code == 200, refined.text
    batch = {"dataset": "visits", "epsilon": 0.1, "questions": [sql, dict(steps.record)]}
    assert world.call("ana", "POST", "/v1/questions:batch", batch).status_code == 200
    dummy = {"epsilon": 0.5, "frame": dict(steps.record)}
    assert world.call("ana", "POST", "/v1/datasets/visits/dummy:ask", dummy).status_code == 200


def step(verb: Any, *values: Any, **named: Any) -> dict[str, Any]:
    return {"verb": verb, "values": list(values), "named": named}


def deep(depth: int) -> Any:
    value: Any = {"col": "age"}
    for _ in range(depth):
        value = {"call": "not", "of": [value]}
    return value


ASKED = step("agg", n={"function": "count", "of": None, "options": {}})
BAD: dict[str, Any] = {
    "nothing": {},
    "no question": {"table": "visits", "steps": []},
    "a hidden verb": {"table": "visits", "steps": [step("__init__"), ASKED]},
    "an attribute": {"table": "visits", "steps": [step("relation"), ASKED]},
    "a private verb": {"table": "visits", "steps": [step("_over", 1), ASKED]},
    "after the end": {"table": "visits", "steps": [ASKED, ASKED]},
    "verb of groups": {"table": "visits", "steps": [step("with_keys", ward=["A"]), ASKED]},
    "self": {"table": "visits", "steps": [step("filter", self={"col": "age"}), ASKED]},
    "no expression": {"table": "visits", "steps": [step("filter", "age > 1"), ASKED]},
    "unknown column": {"table": "visits", "steps": [step("filter", {"col": "secret"}), ASKED]},
    "the person": {"table": "visits", "steps": [step("filter", {"col": "patient_id"}), ASKED]},
    "unknown table": {"table": "people", "steps": [ASKED]},
    "unknown operator": {"table": "visits", "steps": [step("filter", {"call": "read_csv", "of": []}), ASKED]},
    "unknown aggregate": {"table": "visits", "steps": [step("agg", n={"function": "list", "of": {"col": "age"}, "options": {}})]},
    "options": {"table": "visits", "steps": [step("agg", n={"function": "avg", "of": {"col": "age"}, "options": {"q": "1"}})]},
    "more": {"table": "visits", "steps": [step("filter", {"col": "age", "x": 1}), ASKED]},
    "a date": {"table": "visits", "steps": [step("filter", {"constant": {"date": "yesterday"}}), ASKED]},
    "very deep": {"table": "visits", "steps": [step("filter", deep(400)), ASKED]},
    "deep": {"table": "visits", "steps": [step("filter", deep(50)), ASKED]},
    "verbs that are lists": {"table": "visits", "steps": [step(["filter"]), ASKED]},
    "frames for values": {"table": "visits", "steps": [step("filter", {"frame": {"table": "visits", "steps": []}}), ASKED]},
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_other_steps_are_refused_before_anything_is_charged(name: str, world: World) -> None:
    with pytest.raises(DeniableError) as wrong:
        question_of(json.dumps(BAD[name]), TABLES)
    assert isinstance(wrong.value, InvalidParameter | QuestionRefused)
    before = world.ledger.charged
    body = {"dataset": "visits", "epsilon": 0.5, "frame": BAD[name]}
    assert world.call("ana", "POST", "/v1/questions", body).status_code == 422
    assert world.ledger.charged == before


def test_a_question_is_sql_or_a_frame() -> None:
    from pydantic import ValidationError

    from deniable.server.request_bodies import Question

    for more in ({}, {"sql": "SELECT 1", "frame": {}}):
        with worded(ValidationError):
            Question.model_validate({"dataset": "visits", "epsilon": 1.0, **more})


def test_what_cannot_travel_is_said_here() -> None:
    with pytest.raises(InvalidParameter):
        Recorded.of("visits", TABLES).filter(col("age") > object())
