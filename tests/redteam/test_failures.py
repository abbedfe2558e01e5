"""Attacks on the ledger by what can go wrong below it: full disks, lost sockets, clocks, restored files, crashes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from deniable.errors import LedgerDamaged, LedgerUnavailable
from deniable.ledger import Budget, Cost, Ledger
from deniable.ledger.entries import State
from deniable.server.curator import Curator
from deniable.server.operations import server_processes
from deniable.server.operations.settings import Settings
from deniable.server.roles import Role
from deniable.units import Unit
from tests.postgres import Postgres, server
from tests.redteam.cases import ROOT, case
from tests.redteam.test_budget import NEVER, OLGA
from tests.server.restoring import put_back, taken
from tests.server.world import PEOPLE, World, made
from tests.wording import worded


@contextmanager
def listening(world: World) -> Iterator[tuple[str, int]]:
    """The application of a world on a socket of this machine."""
    place = server_processes.listening(world.curator.settings)
    running = uvicorn.Server(uvicorn.Config(world.client.app, log_level="critical", ws="none"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [place]}, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    try:
        yield place.getsockname()[:2]
    finally:
        running.should_exit = True
        thread.join(60)


def request(world: World, body: dict[str, Any], key: str) -> bytes:
    content = json.dumps(body).encode()
    head = (
        "POST /v1/questions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Authorization: Bearer {world.tokens['ana']}\r\nIdempotency-Key: {key}\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


# -- between the two transactions --------------------------------------------------------------------------------------


@case(
    "B6",
    "the disk is full, read-only or fails when the answer is to be sealed",
    "503, no number leaves, the charge stays",
)
@pytest.mark.parametrize(
    "error",
    [LedgerUnavailable("no space left", "free some"), OSError(28, "No space left on device"), MemoryError()],
    ids=lambda error: type(error).__name__,
)
def test_no_bytes_leave_before_they_are_sealed(error: Exception, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, before = world.ledger, world.ledger.charged
    collected = []

    def fails(*_: object, **__: object) -> Any:
        collected.append(1)
        raise error

    for name in ("seal", "seal_all"):
        if hasattr(Ledger, name):
            monkeypatch.setattr(Ledger, name, fails)
    answer = world.ask(NEVER.format(f"unsealed {type(error).__name__}"), epsilon=0.5, key=type(error).__name__)
    monkeypatch.undo()
    assert collected, "the attack was not tried"
    assert answer.status_code in {500, 503}
    assert answer.json()["code"] in {"ledger_unavailable", "run_failed", "unexpected"}
    assert not {"rows", "intervals", "columns"} & set(answer.json())
    assert ledger.charged == before + ledger.budget.cost(epsilon=0.5)
    assert (
        world.ask(NEVER.format("afterwards " + type(error).__name__), epsilon=0.5).status_code == 200
    )  # nobody is locked out


@case("B6b", "the disk is full when the charge is to be written", "503, no data is read, nothing leaves")
def test_what_cannot_be_charged_is_not_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session = world.curator.open(OLGA, "visits").session
    before = list(world.ledger.entries())

    def full(*_: object, **__: object) -> Any:
        raise LedgerUnavailable("no space left", "free some")

    def trip(question: object) -> Any:
        raise AssertionError("data was read")

    for name in ("reserve", "reserve_all", "reserve_or_replay"):
        monkeypatch.setattr(Ledger, name, full)
    collect, session._engine.collect = session._engine.collect, trip
    try:
        answer = world.ask(NEVER.format("uncharged"), epsilon=0.5)
    finally:
        session._engine.collect = collect
    monkeypatch.undo()
    assert (answer.status_code, answer.json()["code"]) == (503, "ledger_unavailable")
    assert list(world.ledger.entries()) == before


@case(
    "B6c",
    "a Postgres server whose disk is full (no file may grow)",
    "refused; earlier grants are kept; the ledger works again afterwards",
)
@pytest.mark.postgres
@pytest.mark.slow
def test_a_full_disk_below_postgres() -> None:
    """The server is started again with a limit on the size of its files, just above that of its log."""
    budget = Budget.pure(epsilon=1000)
    cost = budget.cost(epsilon="0.01")
    with server() as postgres:
        url = postgres.database()
        with Ledger.open(url, budget=budget, unit=Unit.row(), dataset="full") as ledger:
            entry = ledger.reserve(cost, question="0" * 64, description="first")
            ledger.seal(entry, b"x")
        postgres.stop("fast")
        _limited(postgres, _largest(postgres)).start()
        granted, refused = 1, 0
        with Ledger.open(url) as ledger:
            for number in range(1, 400):
                try:
                    entry = ledger.reserve(cost, question=f"{number:064x}", description="x")
                    granted += 1
                    ledger.seal(entry, os.urandom(200_000))  # which cannot be compressed
                except LedgerUnavailable:
                    refused += 1
                    if refused > 3:
                        break
        assert refused > 3, "the disk was never full"
        postgres.stop("fast")
        postgres.start()
        with Ledger.open(url) as ledger:
            ledger.verify()
            reserved = sum(entry.state is State.RESERVED for entry in ledger.entries())
            assert reserved >= granted, "what was granted is there"
            assert ledger.charged == Cost(reserved * cost.units, 0)
            ledger.seal(ledger.reserve(cost, question="f" * 64, description="after"), b"")


def _limited(postgres: Postgres, most: int) -> Postgres:
    """The same server, none of whose files may grow beyond this."""
    import resource

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

    return replace(postgres, who={**postgres.who, "preexec_fn": limit})


def _largest(postgres: Postgres) -> int:
    """The largest file that it has: its log must still be written, so that it is tables that are full."""
    return max(each.stat().st_size for each in (postgres.folder / "data" / "pg_wal").iterdir() if each.is_file())


# -- the network -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@case(
    "B7",
    "the socket is closed in the middle of a question; the request is sent again with its key",
    "one charge, and one answer",
)
def test_a_lost_socket_is_one_charge(tmp_path: Path) -> None:
    there = made(tmp_path, port=0)
    with there.client, listening(there) as place:
        before = there.ledger.charged
        body = {"dataset": "visits", "sql": NEVER.format("socket"), "epsilon": 0.25}
        for moment in (0.0, 0.003, 0.01):
            with socket.create_connection(place) as line:
                line.sendall(request(there, body, "lost"))
                time.sleep(moment)
        answers = []
        for _ in range(2):
            with socket.create_connection(place) as line:
                line.sendall(request(there, body, "lost"))
                said = b""
                while part := line.recv(65536):
                    said += part
            answers.append(said.partition(b"\r\n\r\n")[2])
        assert answers[0] == answers[1]
        assert b'"rows"' in answers[0]
        assert there.ledger.charged == before + there.ledger.budget.cost(epsilon=0.25)


@pytest.mark.slow
@case(
    "B7b",
    "half a request, a request without its body, two lengths, a wrong length",
    "no charge, and the server continues",
)
def test_requests_that_are_torn_charge_nothing(tmp_path: Path) -> None:
    there = made(tmp_path, port=0)
    with there.client, listening(there) as place:
        before = list(there.ledger.entries())
        body = {"dataset": "visits", "sql": NEVER.format("torn"), "epsilon": 0.25}
        whole = request(there, body, "torn")
        long = whole.replace(b"Content-Length: ", b"Content-Length: 9")
        smuggled = whole.replace(b"Connection: close", b"Transfer-Encoding: chunked")
        for torn in (
            whole[: len(whole) // 2],
            whole[:-1],
            whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n",
            long,
            smuggled,
        ):
            with socket.create_connection(place) as line:
                line.sendall(torn)
                line.shutdown(socket.SHUT_WR)
                line.settimeout(5)
                assert b" 200 " not in line.recv(4096)
        assert list(there.ledger.entries()) == before
        assert there.ask(NEVER.format("torn"), epsilon=0.25).status_code == 200


# -- time, and files of yesterday --------------------------------------------------------------------------------------


@pytest.mark.slow
@case(
    "B12",
    "yesterday's copy of the whole state folder is put back and the server started",
    "refused, by the checkpoint kept elsewhere",
)
def test_a_restored_state_is_refused(tmp_path: Path) -> None:
    chosen = {"checkpoints": tmp_path / "elsewhere"}
    (tmp_path / "w").mkdir()
    there = made(tmp_path / "w", **chosen)
    state = tmp_path / "w" / "state"
    with there.client:
        there.ask(NEVER.format(1), epsilon=0.5)
        assert there.call("ada", "GET", "/v1/ledger/visits").status_code == 200
    yesterday = taken(state)
    again = Curator(Settings(state=state, data=(tmp_path / "w",), **chosen))
    ledger = again.open(OLGA, "visits").session.ledger
    entry = ledger.reserve(ledger.budget.cost(epsilon=0.5), question="1" * 64, description="today", payer="ana")
    ledger.seal(entry, b"x")
    again.close()
    put_back(state, yesterday)
    restored = Curator(Settings(state=state, data=(tmp_path / "w",), **chosen))
    with worded(LedgerDamaged, number=6):
        restored.open(OLGA, "visits")
    restored.close()


@pytest.mark.slow
@case(
    "B12d",
    "kill -9, then an older copy of a ledger, or no ledger, in place of the newest, and a restart",
    "refused by what the catalogue knows; works again with the newest ledger",
)
def test_an_older_ledger_after_a_kill_is_refused(tmp_path: Path) -> None:
    there = made(tmp_path)
    token, ledgers = there.tokens[PEOPLE[Role.ANALYST]], tmp_path / "state" / "ledgers"
    there.curator.close()
    (tmp_path / "data").mkdir()
    (tmp_path / "server.toml").write_text('state = "state"\ndata = ["data"]\ngrid = 0.001\n')
    command = [sys.executable, "-m", "deniable", "serve", "--port", "0", "--config", str(tmp_path / "server.toml")]
    copies = []
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    url = next(line for line in running.stdout if line.startswith("http")).strip()
    try:
        for number in range(3):
            copies.append(taken(ledgers))
            assert ask_at(url, token, NEVER.format(number)) == 200
    finally:
        running.kill()
        running.communicate()
    newest = taken(ledgers)

    def started(files: dict[Path, bytes]) -> Curator:
        put_back(ledgers, files)
        return Curator(Settings(state=tmp_path / "state", data=(tmp_path,)))

    for copy in copies:
        again = started(copy)
        with pytest.raises(LedgerDamaged):
            again.open(OLGA, "visits")
        again.close()
    again = started(newest)
    ledger = again.open(OLGA, "visits").session.ledger
    assert ledger.charged.units == 3 * ledger.budget.cost(epsilon=0.5).units
    again.close()
    again = started({})
    with pytest.raises(LedgerDamaged):
        again.open(OLGA, "visits")
    again.close()


def ask_at(url: str, token: str, sql: str) -> int:
    import httpx

    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=60) as web:
        return web.post("/v1/questions", json={"dataset": "visits", "sql": sql, "epsilon": 0.5}).status_code


@pytest.mark.slow
@case(
    "B10b",
    "the server's clock jumps back and forth across a window's border while an analyst asks",
    "never more than the window grants; the lifetime total is still shown",
)
def test_the_clock_gives_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = made(tmp_path)
    with there.client:
        body = {"analyst": "ana", "limit": {"epsilon": 0.5}, "window_seconds": 86_400}
        assert there.call("olga", "POST", "/v1/datasets/visits/grants", body).status_code == 201
        ledger = there.ledger
        assert there.ask(NEVER.format("a"), epsilon=0.5).status_code == 200
        real, shift = time.time, [0.0]
        monkeypatch.setattr("deniable.ledger.stores.store.clock", lambda: real() + shift[0])
        for number, moved in enumerate((-86_400.0, -1.0, -3600.0, -400 * 86_400.0)):
            shift[0] = moved
            assert there.ask(NEVER.format(f"b{number}"), epsilon=0.1).status_code == 402
        shift[0] = 86_400.0  # the control: the clock is read, and tomorrow's window is another
        assert there.ask(NEVER.format("tomorrow"), epsilon=0.5).status_code == 200
        shift[0] = 0.0
        assert there.ask(NEVER.format("and back"), epsilon=0.1).status_code == 402
        accounts = {
            (each["name"], each["window_seconds"]): each
            for each in there.call("ada", "GET", "/v1/ledger/visits/accounts").json()["accounts"]
        }
        assert accounts["ana", 86_400]["lifetime"] == accounts["ana", None]["lifetime"]
        assert ledger.verify(there.curator.key.public)


@case(
    "B5b",
    "kill -9 of a serving process in the middle of a question",
    "the process restarts; at least what was released is charged",
)
@pytest.mark.slow
def test_a_killed_server_forgets_nothing(tmp_path: Path) -> None:
    there = made(tmp_path)
    tokens = there.tokens
    there.curator.close()
    config = tmp_path / "server.toml"
    (tmp_path / "data").mkdir()
    config.write_text('state = "state"\ndata = ["data"]\ngrid = 0.001\n')
    given: list[str] = []
    for life in range(4):
        command = [sys.executable, "-m", "deniable", "serve", "--port", "0", "--config", str(config)]
        running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert running.stdout is not None
        url = next(line for line in running.stdout if line.startswith("http")).strip()
        stop = threading.Timer(0.2 * life, running.send_signal, [signal.SIGKILL])
        given += _asked_until_dead(url, tokens[PEOPLE[Role.ANALYST]], life, stop)
        stop.join()
        running.communicate()
    again = Curator(Settings(state=tmp_path / "state", data=(tmp_path,)))
    ledger = again.open(OLGA, "visits").session.ledger
    ledger.verify(again.key.public)
    entries = {entry.number: entry for entry in ledger.entries()}
    sealed = {entries[each.closes].charge for each in entries.values() if each.state is State.SEALED}
    reserved = sum(entry.state is State.RESERVED for entry in ledger.entries())
    assert given, "nothing was answered before the kills"
    assert {int(each.rpartition(":")[2]) for each in given} <= sealed
    assert ledger.charged.units == reserved * ledger.budget.cost(epsilon=0.01).units
    again.close()


def _asked_until_dead(url: str, token: str, life: int, stop: threading.Timer) -> list[str]:
    """The releases that reached a client before the server died."""
    import httpx

    found = []
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=20) as web:
        try:
            for number in range(10_000):
                body = {"dataset": "visits", "sql": NEVER.format(f"{life}/{number}"), "epsilon": 0.01}
                answer = web.post("/v1/questions", json=body)
                if answer.status_code == 200:
                    found.append(answer.json()["release"])
                    if len(found) == 3:
                        stop.start()
        except httpx.HTTPError:
            return found
    return found
