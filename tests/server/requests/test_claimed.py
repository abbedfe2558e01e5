"""An idempotency key stands for one request, whatever comes at the same moment, and wherever the server dies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deniable.server.app import served
from deniable.server.catalogue.catalogue import Person
from deniable.server.curator import Curator
from deniable.server.request_bodies import FreshQuestion
from deniable.server.requests.request_desk import body_hash
from deniable.server.roles import Role
from tests.postgres import (
    postgres,  # noqa: F401  # a fixture
)
from tests.server.test_same_rows import payroll, register
from tests.server.world import Client, World, made

COUNT = "SELECT COUNT(*) AS n FROM visits"
OTHER = "SELECT COUNT(*) AS n FROM people"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def worlds(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[World, World]]:
    """Two servers on one state, each with connections of its own, and two datasets with ledgers of their own."""
    more = {} if request.param == "sqlite" else {"database": request.getfixturevalue("postgres").database()}
    first = made(tmp_path, **more)
    with first.client:
        assert register(first, "payroll", payroll(1)).status_code == 201
        curator = Curator(first.curator.settings)
        second = World(tmp_path, curator, Client(served(curator)), first.tokens)
        with second.client:
            yield first, second


def charged(world: World, dataset: str) -> int:
    ledger = world.curator.open(Person("olga", Role.OWNER), dataset).session.ledger
    return sum(each.state.name == "RESERVED" for each in ledger.entries())


@pytest.mark.slow
def test_a_key_for_two_datasets_at_once_was_charged_to_both(
    worlds: tuple[World, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second request comes while the first one is about to be charged."""
    first, second = worlds
    ask, told = first.curator.ask, []

    def meanwhile(*arguments: Any) -> Any:
        body = {"dataset": "payroll", "sql": OTHER, "epsilon": 0.5}
        told.append(second.call("olga", "POST", "/v1/questions", body, headers={"Idempotency-Key": "one"}))
        return ask(*arguments)

    monkeypatch.setattr(first.curator, "ask", meanwhile)
    answer = first.ask(COUNT, who="olga", key="one", epsilon=0.5)
    assert answer.status_code == 200, answer.text
    assert (told[0].status_code, told[0].json()["code"]) == (409, "key_reused"), told[0].text
    assert (charged(first, "visits"), charged(first, "payroll")) == (1, 0)
    monkeypatch.undo()
    assert second.ask(COUNT, who="olga", key="one", epsilon=0.5).content == answer.content


@pytest.mark.slow
def test_a_refused_request_keeps_no_key_from_its_own_repetition(worlds: tuple[World, World]) -> None:
    first, second = worlds
    refused = first.ask("SELECT age FROM visits", who="olga", key="two", epsilon=0.5)
    assert refused.status_code == 422
    assert second.ask("SELECT age FROM visits", who="olga", key="two", epsilon=0.5).content == refused.content
    assert second.ask(COUNT, who="olga", key="two", epsilon=0.5).json()["code"] == "key_reused"


DIES = """
import os, signal, sys
from pathlib import Path
from deniable.server.curator import Curator
from deniable.server.requests.request_desk import Desk
from deniable.server.request_bodies import Question
from deniable.server.catalogue.catalogue import Person
from deniable.server.catalogue.kept_requests import Requests
from deniable.server.requests.request_desk import body_hash
from deniable.server.roles import Role
from deniable.server.operations.settings import Settings
folder, at, body = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
curator = Curator(Settings(state=folder / "state", owners={"*": (folder,)}, grid=0.001))
def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
if at == "before the charge":
    curator.ask = die
else:
    Requests.keep = die
olga = Person("olga", Role.OWNER)
sql = "SELECT COUNT(*) AS n FROM visits"
work = lambda key: curator.ask(olga, "visits", sql, {"epsilon": 0.5}, key)
Desk(curator)._keyed(olga, "visits", "dead", body, work, False)
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", ["before the charge", "before the answer is kept"])
def test_a_server_that_dies_with_a_key_in_hand_charges_once(at: str, tmp_path: Path) -> None:
    world = made(tmp_path)
    with world.client:
        body = FreshQuestion(dataset="visits", sql=COUNT, epsilon=0.5)
        command = [sys.executable, "-c", DIES, str(tmp_path), at, body_hash("ask", body)]
        assert subprocess.run(command, check=False).returncode == -9
        assert charged(world, "visits") == (at == "before the answer is kept")
        again = world.ask(COUNT, who="olga", key="dead", epsilon=0.5)
        assert (again.status_code, again.json()["provenance"]["replayed"]) == (200, at != "before the charge")
        assert world.ask(COUNT, who="olga", key="dead", epsilon=0.5).content == again.content
        assert charged(world, "visits") == 1
        assert world.ask(COUNT, who="olga", key="dead", epsilon=0.6).json()["code"] == "key_reused"


def test_whoever_may_not_ask_any_more_was_told_what_is_kept_under_their_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deniable.server.curator.FRESH", -1.0)
    world = made(tmp_path)
    with world.client:
        answer = world.ask(key="mine", epsilon=0.5)
        assert answer.status_code == 200
        assert world.call("olga", "DELETE", "/v1/datasets/visits/grants/ana").status_code == 204
        told = world.ask(key="mine", epsilon=0.5)
        assert (told.status_code, told.content) == (404, world.ask(epsilon=0.5).content)
        assert world.call("olga", "POST", "/v1/datasets/visits/grants", {"analyst": "ana"}).status_code == 201
        assert world.ask(key="mine", epsilon=0.5).content == answer.content
