"""One server for each file of tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from html import unescape

import httpx
import pytest
import uvicorn

from deniable.server.operations.server_processes import configured
from tests.server.browsing import HOSTILE, QUOTES, Browser, inert
from tests.server.world import World, made


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long runs that could not be finished would have waited: nobody does here."""
    found: list[float] = []
    monkeypatch.setattr("deniable.queries.answer.timed_runs.sleep", found.append)
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    there = made(tmp_path_factory.mktemp("server"))
    with there.client:
        yield there


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, str]]:
    """The same at a real socket, and its address."""
    there = made(tmp_path_factory.mktemp("served"))
    config = configured(there.curator.settings, there.client.app)
    config.port = 0
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield there, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A file whose columns and categories are attacks, registered through the form."""
    folder = tmp_path_factory.mktemp("hostile")
    there = made(folder)
    name = f"{QUOTES[:4]}rows.csv"
    header = ['"' + each.replace('"', '""') + '"' for each in ("who", HOSTILE, QUOTES)]
    cell = '"' + HOSTILE.replace('"', '""') + '"'
    rows = [f"h{i},{cell},{i % 7}" for i in range(300)]
    (folder / name).write_text("\n".join([",".join(header), *rows]))
    with there.client:
        browser = Browser(there, "olga")
        listed = browser.get("/console/add")
        inert(listed.text)
        assert name in unescape(listed.text)
        shown = browser.get(f"/console/add?file={httpx.QueryParams({'f': name})}".replace("f=", "", 1))
        inert(shown.text)
        fields = {
            "file": name,
            "name": "hostile",
            "table": "t",
            "person": "who",
            "rows": "1",
            "step": "7",
            "delta": "1e-6",
        }
        fields |= {
            "kind.0": "text",
            "kind.1": "text",
            "keys.1": HOSTILE,
            "kind.2": "integer",
            "low.2": "0",
            "high.2": "9",
        }
        done = browser.post("/console/add", **fields)
        assert done.status_code == 303, done.text
        known = there.call("olga", "GET", "/v1/datasets/hostile").json()["tables"]["t"]
        assert known["columns"][HOSTILE] == {"kind": "text", "keys": [HOSTILE], "nullable": False}
        assert known["columns"][QUOTES] == {"kind": "integer", "low": 0, "high": 9, "nullable": False}
        assert (known["person"], known["rows"], "who" in known["columns"]) == ("who", 1, False)
        browser.get("/console/data/hostile/share")
        assert browser.post("/console/data/hostile/share", analyst="ana", limit="0.9", window="").status_code == 303
        yield there
