"""The same server with everything in Postgres."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deniable.ledger.entries import State
from tests.postgres import (
    postgres,  # noqa: F401  # a fixture
    server,
)
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


def test_a_database_that_is_away_is_said_in_a_word_and_comes_back(tmp_path: Path) -> None:
    with server() as own:
        there = made(tmp_path, database=own.database())
        with there.client:
            sql = "SELECT COUNT(*) AS n FROM visits WHERE age > 40"
            assert there.ask(WARDS, epsilon=0.5).status_code == 200
            own.stop("immediate")
            try:
                asked = [there.ask(sql, epsilon=0.5), there.ask(sql, key="away", epsilon=0.5)]
                asked += [there.ask(sql, path=":price", epsilon=0.5), there.call("olga", "GET", "/v1/datasets")]
                found = {(each.status_code, each.json()["code"]) for each in asked}
                config = tmp_path / "server.toml"
                (tmp_path / "data").mkdir()
                config.write_text(f'state = "state"\ndata = ["data"]\ndatabase = "{there.curator.settings.database}"\n')
                command = [sys.executable, "-m", "deniable", "serve", "--port", "0", "--config", str(config)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
            finally:
                own.start()
            assert found == {(503, "ledger_unavailable")}
            assert done.returncode == 1
            assert done.stderr.count("\n") == 1, done.stderr
            assert "cannot be opened; check that the database runs" in done.stderr
            assert there.ask(sql, key="away", epsilon=0.5).status_code == 200
