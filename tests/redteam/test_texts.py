"""Long texts that are read and planned for nothing: they take turns. Order and counts, never times."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from deniable.errors import DeniableError, QuestionRefused
from deniable.queries.answer.plan_cache import Plans
from deniable.queries.sql.sql_reader import parse
from deniable.server.api_records import question_from_text
from deniable.server.catalogue.catalogue import Person
from deniable.server.operations.work_turns import SMALL
from deniable.server.roles import Role
from tests.redteam.cases import case
from tests.server.world import World


@case(
    "S24",
    "24 long questions of one person that are refused after they were read and planned, at no cost",
    "new long texts, of SQL and of dataframes, wait for the person's one turn before they are read; known ones do not",
)
def test_long_texts_take_turns_before_they_are_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six of them were read at the same time, and others waited for seconds on a busy machine."""
    opened, told = world.curator.open(Person("ana", Role.ANALYST), "visits"), list[int]()
    read = parse
    before: list[int] = []

    def reading(text: str, tables: Any) -> Any:
        before.append(sum(told))
        return read(text, tables)

    monkeypatch.setattr("deniable.queries.sql.sql_reader.parse", reading)
    plans = Plans(opened.tables, opened.session.budget)
    plans.limit(10**9, 300_000, told.append)
    refused = "SELECT " + ", ".join(f"COUNT(DISTINCT cost + {i}) AS d{i}" for i in range(60)) + " FROM visits"
    with pytest.raises(QuestionRefused, match="work"):
        plans.plan(refused, plans.question(refused))
    assert before == [sum(told[:1])]
    assert before[0] > SMALL
    told.clear()
    plain = "SELECT " + ", ".join(f"SUM(cost) AS s{i}" for i in range(90)) + " FROM visits"
    plans.plan(plain, plans.question(plain))
    assert sum(told) > SMALL
    told.clear()
    plans.question(plain)  # it was met before
    assert sum(told) < SMALL / 10

    session, seen = opened.session, list[int]()
    monkeypatch.setattr(session._plans, "_admits", seen.append)
    steps = {"from": "visits", "steps": [{"agg": {f"n{i}": {"count": []} for i in range(200)}}]}
    with contextlib.suppress(DeniableError):
        question_from_text(session, json.dumps(steps))
    assert seen
    assert seen[0] > SMALL
