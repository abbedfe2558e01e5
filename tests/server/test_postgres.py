"""The same server with everything in Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from deniable.ledger.entries import State
from tests.postgres import postgres  # noqa: F401  # a fixture
from tests.server.world import WARDS, World, made

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, postgres: Any) -> Iterator[World]:  # noqa: F811
    there = made(tmp_path_factory.mktemp("shared"), database=postgres.database())
    with there.client:
        yield there


def test_questions_are_charged_once_and_replayed(shared: World) -> None:
    first = shared.ask(WARDS, key="one", epsilon=0.5)
    assert first.status_code == 200, first.text
    assert shared.ask(WARDS, key="one", epsilon=0.5).content == first.content
    assert shared.ask(WARDS, epsilon=0.4).json()["provenance"]["replayed"]
    assert shared.ask(WARDS, key="one", epsilon=0.6).json()["code"] == "key_reused"
    assert shared.ledger.charged == shared.ledger.budget.cost(epsilon=0.5)
    assert [each.state for each in shared.ledger.entries()][-2:] == [State.RESERVED, State.SEALED]


def test_registration_links_and_records_are_there(shared: World) -> None:
    body = {
        "name": "again",
        "sources": {"again": "visits.csv"},
        "schema": {
            "tables": {
                "again": {
                    "person": "patient_id",
                    "rows": 3,
                    "columns": {"ward": {"kind": "text", "keys": ["A", "B", "C"]}},
                }
            }
        },
    }
    answer = shared.call("olga", "POST", "/v1/datasets", body)
    assert answer.status_code == 201, answer.text
    assert answer.json()["linked"] is True
    assert shared.call("ada", "GET", "/v1/ledger/again/status").status_code == 200
    assert not list((shared.folder / "state").rglob("*.ledger"))
