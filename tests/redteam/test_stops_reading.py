"""Attacks that stop the service for others while a question is read, before its size is known."""

from __future__ import annotations

from typing import Any

import pytest

from deniable.queries.answer.plan_cache import Plans
from deniable.queries.plan.answer_size import cells
from deniable.server.catalogue.catalogue import Person
from deniable.server.operations.work_turns import SMALL
from deniable.server.roles import Role
from tests.redteam.cases import case
from tests.server.world import World

KEYS = (
    "SELECT k, COUNT(*) AS n FROM (SELECT CONCAT(ward, CAST(age AS VARCHAR), CAST(age % 25 AS VARCHAR)) AS k"
    " FROM visits) AS s WHERE " + " AND ".join(f"k <> 'x{i}'" for i in range(12)) + " GROUP BY k"
)


@case(
    "S22",
    "24 free prices of one person with a dozen conditions on a computed key, whose values must be evaluated to read them",
    "they wait for the person's one turn before they are evaluated; small questions do not",
)
def test_what_is_worked_out_to_read_a_question_takes_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns were taken when the answer's size was known, after all of that: others waited 3.3 s."""
    opened, happened = world.curator.open(Person("ana", Role.ANALYST), "visits"), list[tuple[str, int]]()

    def size(question: Any) -> int:
        happened.append(("read", 0))
        return cells(question)

    monkeypatch.setattr("deniable.queries.answer.plan_cache.cells", size)
    plans = Plans(opened.tables, opened.session.budget)
    plans.limit(10**9, 300_000, lambda many: happened.append(("admitted", many)))
    plans.question(KEYS)
    before = happened[: happened.index(("read", 0))]
    assert sum(many for _, many in before) > SMALL
    happened.clear()
    plans.question("SELECT ward, COUNT(*) AS n FROM visits WHERE age > 30 GROUP BY ward")
    assert sum(many for _, many in happened[: happened.index(("read", 0))]) < SMALL / 10
    assert opened.session._plans._admits == world.curator.datasets.large.add  # and that is who is told
