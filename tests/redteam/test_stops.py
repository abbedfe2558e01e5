"""Attacks that stop the service for others: long questions, floods, wrong tokens. Order and counts, never times."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deniable.queries.engines.engine_process import Apart
from deniable.server.access.rate_limits import Buckets
from deniable.server.catalogue.catalogue import Person
from deniable.server.operations.work_turns import WHO
from deniable.server.roles import Role
from tests.redteam.cases import case
from tests.server.browsing import Browser
from tests.server.world import World, made

BOMB = (
    "WITH c0 AS (SELECT age > 60 AS x FROM visits), "
    + ", ".join(f"c{i + 1} AS (SELECT (x AND NOT x) OR (x AND x) AS x FROM c{i})" for i in range(12))
    + " SELECT COUNT(*) AS n FROM c12 WHERE x"
)
CASES = "age"
for _ in range(35):
    CASES = f"CASE {CASES} WHEN 1 THEN 2 WHEN 2 THEN 1 ELSE 3 END"
SHORT = {
    "a name written out 4^12 times": BOMB,
    "CASE within CASE": f"SELECT COUNT(*) AS n FROM visits WHERE {CASES} = 1",
    "NULLIF within NULLIF": f"SELECT COUNT(*) AS n FROM visits WHERE {'NULLIF(' * 18 + 'age' + ', 3)' * 18} = 1",
}


@case(
    "S1",
    "a question of 900 bytes that an engine expands to gigabytes, asked, priced, explained and rehearsed",
    "refused by its text, before anything is built; nothing charged",
)
@pytest.mark.parametrize("name", SHORT)
def test_a_short_question_that_grows(name: str, world: World) -> None:
    assert len(SHORT[name]) < 1700
    before = world.ledger.charged
    body = {"sql": SHORT[name], "epsilon": 1e-9}
    for path in ("", ":price", ":explain"):
        answer = world.call("ana", "POST", f"/v1/questions{path}", {"dataset": "visits", **body})
        assert (answer.status_code, answer.json()["refusal"]) == (422, "too_deep"), path
    rehearsed = world.call("ana", "POST", "/v1/datasets/visits/dummy:ask", {**body, "epsilon": 1.0})
    assert (rehearsed.status_code, rehearsed.json()["refusal"]) == (422, "too_deep")
    assert world.ledger.charged == before


@case("S2", "rehearsals that are as large as questions may be", "they run in a separate process, with limits")
def test_rehearsals_run_apart(world: World) -> None:
    """16 of them took the server's own process from 177 to 4,613 MB."""
    body = {"sql": "SELECT COUNT(*) AS n FROM visits", "epsilon": 1.0}
    assert world.call("ana", "POST", "/v1/datasets/visits/dummy:ask", body).status_code == 200
    opened = world.curator.open(Person("ana", Role.ANALYST), "visits")
    engine = opened.rehearsal()._engine
    assert isinstance(engine, Apart)
    assert engine.process not in {None, os.getpid(), opened.engine.process}
    assert engine._space is not None
    assert engine._seconds is not None


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[World, threading.Event, list[str]]]:
    """A server in which questions about stays do not end before they are told to."""
    there = made(tmp_path)
    go, began = threading.Event(), list[str]()
    there.newcomer("bob", Role.ANALYST)
    there.curator.grant(Person("olga", Role.OWNER), "visits", "bob", None, None)
    engine = there.curator.open(Person("olga", Role.OWNER), "visits").engine
    collect = engine.collect

    def slow(question: Any) -> Any:
        if "gt(stay" in repr(question.relation):
            began.append("slow")
            assert go.wait(60)
        return collect(question)

    with there.client:
        monkeypatch.setattr(engine, "collect", slow)
        yield there, go, began
        go.set()


@pytest.mark.slow
@case(
    "S3",
    "24 slow questions of one person in flight, at nearly no cost",
    "another person's question and everybody's reads are answered before any of them",
)
def test_one_person_does_not_stop_the_others(held: tuple[World, threading.Event, list[str]]) -> None:
    """24 questions at ε = 1e-9 made an auditor wait 31 s for a page."""
    there, go, began = held

    async def all_of_them() -> tuple[list[int], list[Any]]:
        def request(who: str, method: str, path: str, body: Any = None) -> Any:
            headers = {"Authorization": f"Bearer {there.tokens[who]}"}
            return asyncio.create_task(there.client._web.request(method, path, json=body, headers=headers))

        bodies = [
            {"dataset": "visits", "sql": f"SELECT COUNT(*) AS n FROM visits WHERE stay > {i}", "epsilon": 1e-3}
            for i in range(24)
        ]
        hostile = [request("ana", "POST", "/v1/questions", body) for body in bodies]
        while len(began) < there.curator.settings.each:
            await asyncio.sleep(0.01)
        asked = {"dataset": "visits", "sql": "SELECT COUNT(*) AS n FROM visits WHERE age > 3", "epsilon": 0.1}
        reads = ["/v1/ledger/visits/status", "/v1/datasets/visits", "/v1/datasets/visits/releases", "/v1/ledger/visits"]
        others = [request("bob", "POST", "/v1/questions", asked), *(request("ada", "GET", path) for path in reads)]
        _, late = await asyncio.wait(others, timeout=60)
        assert not late, [others.index(each) for each in late]
        found = [(await each).status_code for each in others]
        assert not [(await each).text for each in hostile if each.done()]
        assert len(began) == there.curator.settings.each  # and no more
        go.set()
        return found, await asyncio.gather(*hostile)

    found, hostile = there.client._do(all_of_them())
    assert found == [200] * 5
    assert [each.status_code for each in hostile] == [200] * 24
    assert len(began) == 24


@pytest.fixture
def slow_hash(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, list[str]]]:
    """Checks of tokens that nobody has met wait until they are told to go on."""
    go, checked = threading.Event(), list[str]()
    gate = world.curator.gate
    verify = gate._hasher.verify

    class Slow:
        hash = gate._hasher.hash

        def verify(self, hash: str, secret: str) -> Any:
            checked.append(secret)
            assert go.wait(60)
            return verify(hash, secret)

    monkeypatch.setattr(world.client.app._keeper, "_strangers", Buckets(rate=1e-6, burst=20))
    monkeypatch.setattr(gate, "_hasher", Slow())
    yield go, checked
    go.set()


@case(
    "S4",
    "300 wrong tokens at once",
    "20 are checked, the others are refused before a check; known people are not affected",
)
def test_a_flood_of_wrong_tokens(world: World, slow_hash: tuple[threading.Event, list[str]]) -> None:
    """All 300 were checked, and a signed-in request took 20.6 s instead of .02."""
    go, checked = slow_hash
    go.set()
    assert world.call("ana", "GET", "/v1/me").status_code == 200
    go.clear()
    checked.clear()

    async def flood() -> list[int]:
        wrong = [
            asyncio.create_task(
                world.client._web.get("/v1/me", headers={"Authorization": f"Bearer dn_{i:016x}_{'a' * 43}"})
            )
            for i in range(300)
        ]
        while sum(each.done() for each in wrong) < 280:
            await asyncio.sleep(0.01)
        for fresh in (True, False):
            if not fresh:
                world.curator.gate.forget()  # as after a second
            known = await asyncio.wait_for(
                world.client._web.get("/v1/me", headers={"Authorization": f"Bearer {world.tokens['ana']}"}), 60
            )
            assert known.status_code == 200
        assert len(checked) <= 2  # none of which has ended yet
        go.set()
        return [each.status_code for each in await asyncio.gather(*wrong)]

    statuses = world.client._do(flood())
    assert sorted(set(statuses)) == [401, 429]
    assert statuses.count(401) == len(checked) == 20


def test_a_crowd_with_one_new_token_is_one_check(world: World, slow_hash: tuple[threading.Event, list[str]]) -> None:
    """A client with 64 connections, after a restart: it is nobody's flood."""
    go, checked = slow_hash
    world.newcomer("crowd", Role.ANALYST)

    async def crowd() -> list[int]:
        headers = {"Authorization": f"Bearer {world.tokens['crowd']}"}
        asked = [asyncio.create_task(world.client._web.get("/v1/me", headers=headers)) for _ in range(64)]
        while not checked:
            await asyncio.sleep(0.01)
        go.set()
        return [each.status_code for each in await asyncio.gather(*asked)]

    assert world.client._do(crowd()) == [200] * 64
    assert len(checked) == 1


@case("S5", "requests without a token, and right tokens, from one address", "neither locks out people who have a token")
def test_what_costs_nothing_locks_nobody_out(world: World) -> None:
    """25 requests without a token locked out everybody else behind the same proxy. They are counted apart since."""
    world.client.app._keeper._strangers._levels.clear()
    assert {world.call(None, "GET", "/v1/me").status_code for _ in range(50)} == {401}
    for _ in range(25):  # each is new here, and checked
        id = world.newcomer("nick", Role.ANALYST)
        assert world.call(id, "GET", "/v1/me").status_code == 200
    world.client.app._keeper._strangers._levels.clear()


@case("S10", "long answers under a thousand idempotency keys", "little is stored for each, and the replay is the same")
def test_what_is_kept_of_a_keyed_answer_is_small(world: World) -> None:
    """Each kept its whole answer for ever, .2 MB for nothing: a replay costs nothing."""
    sql = "SELECT age, sex, ward, COUNT(*) AS n FROM visits GROUP BY age, sex, ward"
    first = world.ask(sql, key="long0", epsilon=1.0)
    assert first.status_code == 200
    assert len(first.content) > 20_000
    assert world.ask(sql, key="long0", epsilon=1.0).content == first.content
    again = world.ask(sql, key="long1", epsilon=1.0)  # another key for the same: a replay, for nothing
    assert again.json()["rows"] == first.json()["rows"]
    assert world.ask(sql, key="long1", epsilon=1.0).content == again.content
    with world.curator.catalogue._engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT length(response) FROM curator_requests WHERE key LIKE 'long%'").all()
    assert len(rows) == 2
    assert all(0 < length < 6000 for (length,) in rows)


def test_keys_are_forgotten_and_stay_one_charge(world: World) -> None:
    sql = "SELECT COUNT(*) AS n FROM visits WHERE age > 77"
    first = world.ask(sql, key="old", epsilon=0.5)
    charged = world.ledger.charged
    kept = world.curator.catalogue.requests
    kept._looked = 0.0
    kept.forget(days=-1.0)
    with world.curator.catalogue._engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM curator_requests").scalar_one() == 0
    again = world.ask(sql, key="old", epsilon=0.5)
    assert again.json()["rows"] == first.json()["rows"]
    assert world.ledger.charged == charged


@pytest.mark.parametrize("first", ["ask", "batch"])
def test_a_forgotten_key_of_another_request_is_told_as_such(first: str, world: World) -> None:
    """A batch with a key that had stood for something else was told to wait for an answer that was long there."""
    texts = [f"SELECT COUNT(*) AS n FROM visits WHERE age > {age}" for age in (61, 62, 63, 64)]

    def batch(questions: list[str]) -> Any:
        body = {"dataset": "visits", "questions": questions, "epsilon": 0.5}
        return world.call("ana", "POST", "/v1/questions:batch", body, headers={"Idempotency-Key": f"first-{first}"})

    done = world.ask(texts[0], key=f"first-{first}", epsilon=0.5) if first == "ask" else batch(texts[:2])
    assert done.status_code == 200
    charged = world.ledger.charged
    kept = world.curator.catalogue.requests
    kept._looked = 0.0
    kept.forget(days=-1.0)
    other = batch(texts[2:])
    assert (other.status_code, other.json()["code"]) == (409, "key_reused")
    kept._looked = 0.0
    kept.forget(days=-1.0)
    assert batch(texts[:2]).json().get("code", "answered") == ("answered" if first == "batch" else "key_pending")
    assert world.ledger.charged == charged


@case(
    "S11", "signing in, wrong tokens, limits, refused registrations", "one line of JSON each, without a token or data"
)
def test_security_leaves_a_line(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.client.app._keeper, "_strangers", Buckets(rate=1e-6, burst=3))
    assert world.call("adam", "GET", "/v1/me").status_code == world.call("olga", "GET", "/v1/me").status_code == 200
    with caplog.at_level(logging.INFO, "deniable.security"):
        world.newcomer("lena", Role.ANALYST)
        assert world.call("lena", "GET", "/v1/me").status_code == 200
        wrong = f"dn_{'0' * 16}_{'s' * 43}"
        for _ in range(4):
            world.client.request("GET", "/v1/me", headers={"Authorization": f"Bearer {wrong}"})
        [record] = world.curator.catalogue.tokens("lena")
        assert world.call("adam", "DELETE", f"/v1/tokens/{record.id}").status_code == 204
        body = {"name": "more", "sources": {"visits": "visits.csv"}, "schema": "version: 1\ntables: {}\n"}
        assert world.call("olga", "POST", "/v1/datasets", body).status_code == 422
    lines = [json.loads(each.getMessage()) for each in caplog.records if each.name == "deniable.security"]
    events = {each["event"] for each in lines}
    assert events >= {
        "person_issued",
        "person_signed_in",
        "token_refused",
        "limit",
        "person_revoked",
        "registration_refused",
    }
    assert "lena" in {each["person"] for each in lines if each["event"] == "person_signed_in"}
    assert "sss" not in caplog.text
    assert world.tokens["lena"][20:] not in caplog.text


@case("S12", "the database away, the disk full, an engine that cannot start", "/ready says which, and nothing else")
def test_ready_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/health said ok through all of these."""
    monkeypatch.setattr("deniable.server.operations.readiness._FRESH", -1.0)
    there = made(tmp_path)
    with there.client:

        def becomes(status: int, failed: list[str] | None) -> bool:
            """Also /ready looks beside the requests: what it says is what was found last."""
            for _ in range(2000):
                answer = there.call(None, "GET", "/ready")
                assert "secret" not in answer.text
                if (answer.status_code, answer.json().get("failed")) == (status, failed):
                    assert there.call(None, "GET", "/health").status_code == 200
                    return True
                time.sleep(0.01)
            return False

        assert becomes(200, None)
        with monkeypatch.context() as full:
            full.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000})())
            assert becomes(503, ["disk"])
        quick = there.curator.catalogue.requests._quick
        with monkeypatch.context() as away:

            def gone(*_: Any) -> Any:
                raise quick._errors("at secret.example.org")

            away.setattr(quick.engine, "raw_connection", gone)
            # A connection that is open would still serve. A look that runs at this moment has lent it and gives it back
            # when it ends, so the patch waits for its turn.
            with quick._turn:
                away.setattr(quick, "_kept", None)
            assert becomes(503, ["database"])
        assert becomes(200, None)
        engine = there.curator.open(Person("olga", Role.OWNER), "visits").engine
        (tmp_path / "visits.csv").write_text("patient_id,secret\n")
        assert engine._worker is not None
        engine._worker._process.kill()
        assert becomes(503, ["engine"])


@pytest.mark.slow
@case(
    "S13", "an engine is killed while /ready is asked repeatedly", "it is started again, and /ready does not reveal it"
)
def test_ready_does_not_tell_that_an_engine_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a run ends its process may depend on one person."""
    monkeypatch.setattr("deniable.server.operations.readiness._FRESH", -1.0)
    there = made(tmp_path)
    with there.client:
        assert there.call(None, "GET", "/ready").status_code == 200
        engine = there.curator.open(Person("olga", Role.OWNER), "visits").engine
        first = engine._worker
        assert first is not None
        first._process.kill()
        while engine._worker is first:
            assert there.call(None, "GET", "/ready").status_code == 200


LARGE = (
    "SELECT age, stay, ward, sex, FLOOR(age/4) AS b, COUNT(*) AS n FROM visits GROUP BY age, stay, ward, sex, b",
    6 * 101 * 62 * 3 * 2 * 26,
)


@case(
    "S14",
    "an answer of millions of cells, asked, priced, rehearsed and as a batch of small ones",
    "refused by the public number of cells, before it is planned; nothing charged",
)
def test_an_answer_that_fills_the_memory(world: World) -> None:
    """120 bytes took 28 s, 1.3 GB and 68 MB of JSON in the server's own process, for nothing."""
    sql, cells = LARGE
    before = world.ledger.charged
    session = world.curator.open(Person("ana", Role.ANALYST), "visits").session
    kept = len(session._plans)
    for path in ("", ":price", ":explain"):
        answer = world.ask(sql, path=path, epsilon=1e-9)
        assert (answer.status_code, answer.json()["refusal"]) == (422, "key"), path
        assert f"{cells:,} cells" in answer.json()["rule"]
    rehearsed = world.call("ana", "POST", "/v1/datasets/visits/dummy:ask", {"sql": sql, "epsilon": 1.0})
    assert (rehearsed.status_code, rehearsed.json()["refusal"]) == (422, "key")
    small = "SELECT age, stay, COUNT(*) AS n FROM visits WHERE cost > {} GROUP BY age, stay"
    body = {"dataset": "visits", "questions": [small.format(i) for i in range(6)], "epsilon": 1e-9}
    together = world.call("ana", "POST", "/v1/questions:batch", body)
    assert (together.status_code, together.json()["refusal"]) == (422, "key")
    assert f"{6 * 3 * 101 * 62:,} cells" in together.json()["rule"]
    assert world.ask(small.format(0), path=":price", epsilon=1e-9).json()["cells"] == 3 * 101 * 62
    assert len(session._plans) == kept  # a plan lists its groups: large ones are not kept
    assert world.ledger.charged == before


def test_an_older_larger_answer_stays_readable(world: World) -> None:
    session = world.curator.open(Person("ana", Role.ANALYST), "visits").session
    sql = "SELECT age, sex, COUNT(*) AS n FROM visits WHERE stay > 5 GROUP BY age, sex"
    first = world.ask(sql, key="larger", epsilon=0.5)
    assert first.status_code == 200
    session.limit_answers(cells=600)
    try:
        assert world.ask(sql, key="larger", epsilon=0.5).content == first.content
        assert world.ask(sql, epsilon=0.4).json()["rows"] == first.json()["rows"]
        assert world.call("ana", "GET", f"/v1/labels/{first.json()['release']}").status_code == 200
        charged = world.ledger.charged
        for path in ("", ":refine"):  # new noise would be a new large answer
            assert world.ask(sql, path=path, epsilon=0.9).json()["refusal"] == "key", path
        assert world.ledger.charged == charged
    finally:
        world.curator.datasets._limit(session)


@pytest.mark.slow
@case(
    "S19",
    "7 kB whose computed keys must be evaluated millions of times, asked, priced, explained, rehearsed, and a long batch",
    "refused by the public number of evaluations, of a batch together; medians and unlisted keys count as cells",
)
def test_a_short_question_that_takes_long_to_plan(world: World) -> None:
    """It took 17 s of the server's own process, for its price."""
    before = world.ledger.charged
    parts = " AND ".join(f"k <> 'a{i}'" for i in range(500))
    key = "SELECT k, COUNT(*) AS n FROM (SELECT CAST(age * 60 + stay AS VARCHAR) AS k FROM visits) AS a WHERE {} GROUP BY k"
    for path in ("", ":price", ":explain"):
        answer = world.ask(key.format(parts), path=path, epsilon=1e-9)
        assert (answer.status_code, answer.json()["refusal"]) == (422, "work"), path
    rehearsed = world.call("ana", "POST", "/v1/datasets/visits/dummy:ask", {"sql": key.format(parts), "epsilon": 1.0})
    assert (rehearsed.status_code, rehearsed.json()["refusal"]) == (422, "work")
    few = [key.format(f"k <> 'b{i}'") for i in range(20)]
    assert world.ask(few[0], path=":price", epsilon=1e-9).status_code == 200
    body = {"dataset": "visits", "questions": few, "epsilon": 1e-9}
    together = world.call("ana", "POST", "/v1/questions:batch", body).json()
    assert together.get("refusal") == "work", together
    long = {
        **body,
        "questions": [f"SELECT COUNT(*) AS n FROM visits WHERE age > {i} -- {'x' * 2000}" for i in range(30)],
    }
    refused = world.call("ana", "POST", "/v1/questions:batch", long)
    assert (refused.status_code, "50,000 bytes together" in refused.json()["detail"]) == (422, True)
    for sql, said in (
        ("SELECT age, MEDIAN(cost) AS m FROM visits GROUP BY age", "a quantile counts as all of its running totals"),
        ("SELECT town, MEDIAN(cost) AS m FROM visits GROUP BY town", "keys that are not listed count as 500 groups"),
    ):
        answer = world.ask(sql, path=":price", epsilon=1e-9)
        assert (answer.status_code, answer.json()["refusal"]) == (422, "key"), sql
        assert said in answer.json()["rule"]
    for sql in (
        "SELECT sex, MEDIAN(cost) AS m FROM visits GROUP BY sex",
        "SELECT town, MEDIAN(age) AS m FROM visits GROUP BY town",
    ):
        assert world.ask(sql, path=":price", epsilon=1.0).status_code == 200, sql
    assert world.ledger.charged == before


@case(
    "S15",
    "a dataframe of 100 steps with 40 columns each, asked, priced, explained and rehearsed",
    "refused by its length, before a step is taken; nothing charged",
)
def test_a_dataframe_of_many_columns(world: World) -> None:
    """246 kB took 37 s of the server's own process, for the price alone; SQL has at most 10,000 bytes."""

    def step(verb: str, named: dict[str, Any]) -> dict[str, Any]:
        return {"verb": verb, "values": [], "named": named}

    def frame(steps: int) -> dict[str, Any]:
        added = [
            {f"c{j}_{i}": {"call": "add", "of": [{"col": "age"}, {"constant": i}]} for i in range(40)}
            for j in range(steps)
        ]
        count = step("agg", {"n": {"function": "count", "of": None, "options": {}}})
        return {"table": "visits", "steps": [*(step("with_columns", each) for each in added), count]}

    before = world.ledger.charged
    for path in ("", ":price", ":explain"):
        body = {"dataset": "visits", "frame": frame(100), "epsilon": 1e-9}
        answer = world.call("ana", "POST", f"/v1/questions{path}", body)
        assert (answer.status_code, answer.json()["refusal"]) == (422, "too_long"), path
    rehearsed = world.call("ana", "POST", "/v1/datasets/visits/dummy:ask", {"frame": frame(100), "epsilon": 1.0})
    assert (rehearsed.status_code, rehearsed.json()["refusal"]) == (422, "too_long")
    assert world.ledger.charged == before
    body = {"dataset": "visits", "frame": frame(3), "epsilon": 1e-3}
    assert world.call("ana", "POST", "/v1/questions:price", body).status_code == 200


WIDE = "SELECT age, stay, COUNT(*) AS n FROM visits WHERE cost < {} GROUP BY age, stay"
"""18,786 cells, which are allowed."""


@pytest.mark.slow
@case(
    "S20",
    "large answers of one person at once: new, again, rehearsed, their labels, in the console",
    "they are computed one after the other; others ask and read in between",
)
@pytest.mark.parametrize("kind", ["new", "again", "rehearsed", "labels", "console"])
def test_large_answers_are_made_one_after_the_other(kind: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 of them kept another person waiting for 3 to 7 s, of labels for 2 s."""
    first = world.ask(WIDE.format(5000), epsilon=1e-3)
    assert first.status_code == 200
    large, began, go = world.curator.datasets.large, list[str](), threading.Event()
    one = large._places.one

    @contextmanager
    def noted() -> Iterator[None]:
        with one():
            began.append(WHO.get())
            assert go.wait(60)
            yield

    monkeypatch.setattr(large._places, "one", noted)
    csrf = Browser(world, "ana").csrf
    form = {
        "sql": WIDE.format(5000),
        "way": "epsilon",
        "amount": "0.001",
        "csrf": csrf,
    }

    def hostile(i: int) -> tuple[str, str, dict[str, Any]]:
        asked = {"sql": WIDE.format(5000 if kind == "again" else i), "epsilon": 1e-3}
        match kind:
            case "rehearsed":
                return "POST", "/v1/datasets/visits/dummy:ask", {"json": asked}
            case "labels":
                return "GET", f"/v1/labels/{first.json()['release']}", {}
            case "console":
                return "POST", "/console/data/visits/ask", {"data": form}
        return "POST", "/v1/questions", {"json": {"dataset": "visits", **asked}}

    async def all_of_them() -> tuple[list[int], list[int]]:
        web = world.client._web

        def request(who: str, method: str, path: str, more: dict[str, Any]) -> Any:
            headers = {"Authorization": f"Bearer {world.tokens[who]}", "Cookie": f"deniable={world.tokens[who]}"}
            return asyncio.create_task(web.request(method, path, headers=headers, **more))

        running = [request("ana", *hostile(i)) for i in range(3)]
        for _ in range(6000):
            if not began:
                await asyncio.sleep(0.01)
        assert began
        asked = {
            "dataset": "visits",
            "sql": f"SELECT COUNT(*) AS n FROM visits WHERE age > {len(kind)}",
            "epsilon": 0.1,
        }
        others = [request("olga", "POST", "/v1/questions", {"json": asked}), request("ada", "GET", "/v1/log", {})]
        found = [(await asyncio.wait_for(each, 60)).status_code for each in others]
        assert began == ["ana"]
        assert not [each for each in running if each.done()]
        go.set()
        return found, [(await each).status_code for each in running]

    found, done = world.client._do(all_of_them())
    assert (found, done) == ([200, 200], [200] * 3)
    assert len(began) >= 3
    assert set(began) == {"ana"}


@case("S21", "a batch of thousands of sums, and a question of 900 kB", "refused by their length; nothing charged")
def test_a_request_that_is_too_long(world: World) -> None:
    """20 questions of 100 sums each took 8 s of the server, and 131 s altogether."""
    before = world.ledger.charged
    sums = (
        "SELECT "
        + ", ".join(f"SUM(cost + {i}) AS total_of_all_of_{i}" for i in range(100))
        + " FROM visits WHERE age > {}"
    )
    body = {"dataset": "visits", "questions": [sums.format(i) for i in range(20)], "epsilon": 1e-9}
    answer = world.call("ana", "POST", "/v1/questions:batch", body)
    assert (answer.status_code, "bytes together" in answer.json()["detail"]) == (422, True)
    for path in ("/v1/questions", "/v1/questions:batch", "/v1/datasets/visits/dummy:ask"):
        long = {"dataset": "visits", "sql": "x" * 900_000, "epsilon": 1e-9}
        assert world.call("ana", "POST", path, long).status_code == 413
    assert world.ledger.charged == before
    body["questions"] = [f"SELECT COUNT(*) AS n FROM visits WHERE age > {i}" for i in range(100)]
    assert world.call("ana", "POST", "/v1/questions:batch", body).status_code == 200
