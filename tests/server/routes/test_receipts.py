"""What stands in a receipt must not tell when, or after whom, a run ended: that depends on the data."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest

from deniable.server.catalogue.catalogue import Person
from deniable.server.curator import Curator
from deniable.server.roles import Role
from tests.server.world import BUDGET, World

OLGA = Person("olga", Role.OWNER)


def sql(number: int) -> str:
    return f"SELECT ward, COUNT(*) AS n FROM visits WHERE age <> {1000 + number} GROUP BY ward"


def charged(world: World, text: str) -> None:
    """Wait until a question is charged."""
    deadline = time.monotonic() + 60
    while not any(each.description == text for each in world.ledger.entries()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def slow(world: World, monkeypatch: pytest.MonkeyPatch) -> dict[str, threading.Event]:
    """What a question waits for before it is run, by a word of its text."""
    engine, waits = world.curator.open(OLGA, "visits").session._engine, dict[str, threading.Event]()
    collect = engine.collect

    def late(question: Any) -> Any:
        for word, event in waits.items():
            if word in engine.sql(question):
                assert event.wait(60)
        return collect(question)

    monkeypatch.setattr(engine, "collect", late)
    return waits


def test_a_receipt_has_the_second_of_the_charge(world: World, slow: dict[str, threading.Event]) -> None:
    slow["1001"] = threading.Event()
    with ThreadPoolExecutor(1) as one:
        asked = one.submit(world.ask, sql(1), epsilon=0.01)
        charged(world, sql(1))
        time.sleep(1.1)  # into another second
        slow["1001"].set()
        said = asked.result().json()["provenance"]
    entry = world.ledger.charge(said["entry"])
    assert entry.state == "RESERVED"
    assert said["time"] == entry.time == world.ledger.closing(entry.number).time  # when it ended, nobody wrote down
    again = world.ask(sql(1), epsilon=0.01).json()["provenance"]
    assert (again["entry"], again["time"], again["replayed"]) == (said["entry"], said["time"], True)
    [release] = [
        each
        for each in world.call("ana", "GET", "/v1/datasets/visits/releases").json()["releases"]
        if each["release"] == f"visits:{said['entry']}"
    ]
    assert release["time"] == datetime.fromisoformat(entry.time).timestamp()
    label = world.call("ana", "GET", f"/v1/labels/visits:{said['entry']}").json()
    assert (label["time"], label["ledger"]["entry"]) == (entry.time, entry.charge)


def test_numbers_and_rests_are_in_the_order_of_charges(world: World, slow: dict[str, threading.Event]) -> None:
    slow["1002"] = threading.Event()
    with ThreadPoolExecutor(1) as one:
        asked = one.submit(world.ask, sql(2), epsilon=3)
        charged(world, sql(2))
        short = world.ask(sql(3), epsilon=3).json()["provenance"]
        slow["1002"].set()
        long = asked.result().json()["provenance"]
    assert long["entry"] < short["entry"]  # although it ended later
    assert short["entry"] == long["entry"] + 1  # whether or not it had ended
    ended = [world.ledger.closing(world.ledger.charge(each["entry"]).number).number for each in (long, short)]
    assert ended[0] > ended[1]
    assert long["left"] != short["left"]  # it knows nothing of what was charged while it ran


def test_a_batch_is_charged_once_for_one_key_in_two_processes(world: World) -> None:
    other = Curator(world.curator.settings)
    try:
        before, texts = world.ledger.charged, [sql(5), sql(6)]
        ana, cost = Person("ana", Role.ANALYST), {"epsilon": 0.01, "confidence": 0.95}
        engine = world.curator.open(OLGA, "visits").session._engine
        heard: list[Any] = []
        collect = engine.collect

        def meanwhile(question: Any) -> Any:
            if not heard:
                try:
                    heard.append(other.batch(ana, "visits", texts, cost, "one key"))
                except Exception as error:
                    heard.append(error)
            return collect(question)

        engine.collect = meanwhile
        try:
            world.curator.batch(ana, "visits", texts, cost, "one key")
        finally:
            engine.collect = collect
        [said] = heard
        assert getattr(said, "parameter", said) == "key"
        once = world.ledger.budget.cost(epsilon=0.01).units
        assert 0 < world.ledger.charged.units - before.units <= once
        assert world.curator.batch(ana, "visits", texts, cost, "one key")["answers"][0]["provenance"]["replayed"]
    finally:
        other.close()


@pytest.mark.parametrize("path", ["", ":refine", ":batch"])
def test_whoever_asks_pays_whatever_the_way(path: str, world: World) -> None:
    world.ask(sql(7), who="olga", epsilon=0.01)
    paid = {each.name: each.lifetime for each in world.ledger.accounts()}
    if path == ":batch":
        body = {"dataset": "visits", "questions": [sql(8), sql(9)], "epsilon": 0.01}
        answer = world.call("ana", "POST", "/v1/questions:batch", body)
    else:
        answer = world.ask(sql(7), path=path, epsilon=0.5)
    assert answer.status_code == 200
    now = {each.name: each.lifetime for each in world.ledger.accounts()}
    assert now["ana"].units > paid["ana"].units
    assert now["olga"] == paid["olga"]


def test_an_analyst_sees_no_label_of_somebody_elses_answer(world: World) -> None:
    said = world.ask(sql(10), who="olga", epsilon=0.01).json()
    theirs = world.call("ana", "GET", f"/v1/labels/{said['release']}")
    nobody = world.call("ana", "GET", "/v1/labels/visits:999999")
    assert theirs.status_code == nobody.status_code == 404
    assert theirs.content == nobody.content
    assert world.call("olga", "GET", f"/v1/labels/{said['release']}").status_code == 200
    assert world.call("ana", "GET", f"/v1/labels/visits:{10**26}").content == nobody.content


def test_a_limit_has_the_delta_of_the_budget(world: World) -> None:
    before, body = world.ledger.guarantee.curve, {"budget": BUDGET, "reason": "the same"}
    assert world.call("olga", "POST", "/v1/datasets/visits/adjustments", body).status_code in {200, 201}
    assert world.ledger.guarantee.curve == before
    other = world.call("olga", "POST", "/v1/datasets/visits/adjustments", {**body, "budget": {**BUDGET, "delta": 1e-5}})
    assert other.status_code == 422


def test_a_lowered_limit_is_no_promise_about_what_was_spent(world: World) -> None:
    said = world.ask(sql(11), epsilon=5).json()["release"]
    before = world.call("ana", "GET", f"/v1/labels/{said}").json()["lifetime_limit"]
    path, lower = "/v1/datasets/visits/adjustments", {**BUDGET, "epsilon": 0.5}
    assert world.call("olga", "POST", path, {"budget": lower, "reason": "too much"}).status_code == 201
    assert world.call("ana", "GET", f"/v1/labels/{said}").json()["lifetime_limit"] == before
    assert world.ask(sql(12), epsilon=0.01).status_code == 402
    assert world.call("olga", "POST", path, {"budget": BUDGET, "reason": "as before"}).status_code == 201


def test_whoever_comes_back_in_a_window_may_ask(world: World) -> None:
    path = "/v1/datasets/visits/grants"
    name = world.newcomer("wanda", Role.ANALYST)
    terms = {"analyst": name, "limit": {"epsilon": 1.0}, "window_seconds": 3600}
    assert world.call("olga", "POST", path, {"analyst": name}).status_code == 201
    assert world.call("olga", "DELETE", f"{path}/{name}").status_code == 204
    assert world.call("olga", "POST", path, terms).status_code == 201
    assert world.ask(sql(13), who=name, epsilon=0.01).status_code == 200
