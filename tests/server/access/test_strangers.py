"""Requests without a token: they are counted by address before anything is done for them, and what they get is ready."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from deniable.server.access.rate_limits import Buckets
from deniable.server.operations.readiness import _Look
from deniable.server.roles import Role
from tests.server.world import World, made

OPEN = [
    ("GET", "/openapi.json"),
    ("GET", "/health"),
    ("PUT", "/health"),
    ("GET", "/ready"),
    ("GET", "/v1/me"),
    ("POST", "/v1/questions"),
    ("GET", "/metrics"),
    ("GET", "/nowhere"),
    ("GET", "/"),
    ("GET", "/console/"),
    ("GET", "/console/sign-in"),
    ("POST", "/console/sign-in"),
    ("GET", "/console/static/console.css"),
    ("POST", "/redeem"),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    there = made(tmp_path_factory.mktemp("strangers"), proxies=["127.0.0.1"])
    with there.client:
        yield there


@pytest.fixture
def few(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Five requests of each address; and what came through the door."""
    came: list[str] = []
    inner = world.client.app._inner._inner

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        came.append(scope["path"])
        await inner(scope, receive, send)

    monkeypatch.setattr(world.client.app, "_inner", noted)
    monkeypatch.setattr(world.client.app._keeper, "_visits", Buckets(rate=1e-6, burst=5))
    return came


@pytest.mark.parametrize(("method", "path"), OPEN)
def test_strangers_are_counted_before_anything_is_done(method: str, path: str, world: World, few: list[str]) -> None:
    """100 connections with 20 such requests each kept everybody waiting for 16 s."""
    for address in ("203.0.113.1", "203.0.113.2"):  # each by what the proxy says
        few.clear()
        found = [
            world.call(None, method, path, headers={"X-Forwarded-For": address, "Accept": "text/html"})
            for _ in range(8)
        ]
        assert [each.status_code == 429 for each in found] == [False] * 5 + [True] * 3
        assert len(few) <= 5
        assert found[-1].headers["connection"] == "close"  # whatever else is on this connection is not read
        assert int(found[-1].headers["retry-after"]) > 0
        assert found[-1].json()["code"] == "rate_limited"
        assert found[-1].headers["cache-control"] == "no-store"


def test_wrong_tokens_are_counted_like_none(world: World, few: list[str]) -> None:
    def wrong(i: int) -> Any:
        said = {"Authorization": f"Bearer dn_{i:016x}_{'a' * 43}", "X-Forwarded-For": "203.0.113.3"}
        return world.client.request("GET", "/v1/me", headers=said)

    found = [wrong(i) for i in range(8)]
    assert [each.status_code for each in found] == [401] * 5 + [429] * 3
    assert found[-1].headers["connection"] == "close"


def test_strangers_keep_nobody_out_who_was_let_in(world: World, few: list[str]) -> None:
    here = {"X-Forwarded-For": "203.0.113.4"}
    world.newcomer("sara", Role.ANALYST)
    for _ in range(20):  # right tokens do not count
        assert world.call("sara", "GET", "/v1/me", headers=here).status_code == 200
    for _ in range(8):
        last = world.call(None, "GET", "/health", headers=here)
    assert last.status_code == 429
    world.curator.gate.forget()  # as after a second
    assert world.call("sara", "GET", "/v1/me", headers=here).status_code == 200
    cookie = {**here, "Cookie": f"deniable={world.tokens['sara']}"}
    for path in ("/console/", "/console/static/console.css"):  # they have a count of their own
        assert world.client.request("GET", path, headers=cookie).status_code == 200


def test_who_is_signed_in_is_counted_too(world: World, few: list[str]) -> None:
    """A cookie opens no page that is open to everybody, and must not make it free either."""
    world.newcomer("tina", Role.ANALYST)
    assert world.call("tina", "GET", "/v1/me").status_code == 200
    said = {"Cookie": f"deniable={world.tokens['tina']}", "X-Forwarded-For": "203.0.113.5"}
    found = [world.client.request("GET", "/console/static/console.css", headers=said).status_code for _ in range(7)]
    assert found == [200] * 5 + [429] * 2
    assert world.call(None, "GET", "/health", headers={"X-Forwarded-For": "203.0.113.5"}).status_code == 200


def test_a_flood_is_not_a_line_of_the_log_each(world: World, few: list[str], caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(50):
        world.call(None, "GET", "/health", headers={"X-Forwarded-For": "203.0.113.6"})
    said = [each.getMessage() for each in caplog.records if "203.0.113.6" in each.getMessage()]
    assert '"limit": "strangers"' in said[0]
    assert len(said) < 40


def test_what_strangers_get_is_ready(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The description of the API was written out, and searched for methods, for each request: 2 to 3 ms."""
    first = world.call(None, "GET", "/openapi.json")
    style = world.call(None, "GET", "/console/static/console.css")

    def again(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was made before")

    assert world.call(None, "PATCH", "/ready").headers["allow"] == "GET"
    monkeypatch.setattr(FastAPI, "openapi", again)
    monkeypatch.setattr(Path, "read_bytes", again)
    assert world.call(None, "GET", "/openapi.json").content == first.content
    assert first.json()["info"]["title"] == "deniable"
    assert world.call(None, "GET", "/console/static/console.css").content == style.content
    wrong = world.call(None, "PUT", "/health")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET")
    assert "GET" in world.call(None, "PATCH", "/console/sign-in").headers["allow"]


@pytest.mark.parametrize("path", ["/redeem", "/console/invitation", "/console/sign-in"])
def test_strangers_send_little(path: str, world: World) -> None:
    """888 kB of fields were read, .19 s, before the address was counted."""
    large = {"invitation": "x", **{f"f{i}": "" for i in range(1000)}}
    assert world.call(None, "POST", path, large).status_code == 413


def test_ready_tells_what_is_so_now(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It told what the request before had found: a monitor that asks once a minute heard of an outage a minute late."""
    monkeypatch.setattr("deniable.server.operations.readiness._FRESH", -1.0)
    assert world.call(None, "GET", "/ready").status_code == 200
    with monkeypatch.context() as full:
        full.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000})())
        answer = world.call(None, "GET", "/ready")
        assert (answer.status_code, answer.json()["failed"]) == (503, ["disk"])
    assert world.call(None, "GET", "/ready").status_code == 200


def test_ready_does_not_wait_for_a_check_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deniable.server.operations.readiness._PATIENCE", 0.05)
    go_on = threading.Event()
    look = _Look("hangs", {"disk": lambda: go_on.wait(60)})

    async def asked() -> list[str]:
        try:
            return await look.ended()
        finally:
            go_on.set()
            look.close()

    assert asyncio.run(asked()) == ["disk"]
