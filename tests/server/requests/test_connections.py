"""Connections that send half a request, or come in hundreds; and whose address counts."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from deniable.errors import InvalidParameter, UnreadableRecord
from deniable.server.access.client_addresses import Addresses, name_of
from deniable.server.operations.server_processes import configured
from deniable.server.operations.settings import Settings
from tests.server.world import World, made
from tests.wording import worded

HALF = b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: "


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, int]]:
    """A server with little patience, at a port."""
    there = made(tmp_path_factory.mktemp("hasty"), patience=1.0, connections=6)
    with running(there) as (_, port):
        yield there, port


def opened(port: int, *said: bytes) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", port), timeout=30)
    for each in said:
        found.sendall(each)
    return found


def ended(connection: socket.socket) -> bool:
    """Whether the server closes it, without an answer."""
    try:
        return connection.recv(1000) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "said",
    [
        b"",
        HALF,
        HALF + b"x" * 100_000,
        b"POST /v1/questions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nContent-Type: application/json\r\n\r\n{",
        b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" + HALF,
    ],
    ids=["nothing", "half a header", "endless header", "half a body", "half a second request"],
)
def test_half_a_request_does_not_hold_a_connection(said: bytes, hasty: tuple[World, int]) -> None:
    """Today's servers wait for ever: 1,100 of these shut newcomers out."""
    with opened(hasty[1], said) as connection:
        connection.settimeout(30)
        seen = b""
        try:
            while more := connection.recv(10_000):
                seen += more
        except ConnectionResetError:
            pass
    assert seen == b"" or seen.startswith((b"HTTP/1.1 200", b"HTTP/1.1 401"))


def test_bytes_one_by_one_do_not_prolong_it(hasty: tuple[World, int]) -> None:
    with opened(hasty[1], HALF) as connection, pytest.raises(ConnectionError):  # noqa: PT012
        for _ in range(300):
            connection.sendall(b"x")
            time.sleep(0.1)
        raise AssertionError("it took a header of half a minute")


def test_one_address_has_so_many_connections(hasty: tuple[World, int]) -> None:
    _, port = hasty
    held = [opened(port) for _ in range(6)]
    with opened(port) as one_more:
        assert ended(one_more)
    try:
        other = socket.create_connection(("127.0.0.1", port), timeout=30, source_address=("127.0.0.2", 0))
    except OSError:
        pytest.skip("this machine has one local address")
    with other:
        other.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert other.recv(1000).startswith(b"HTTP/1.1 200")
    for each in held:
        each.close()


def test_whoever_is_answered_is_left_alone(hasty: tuple[World, int]) -> None:
    """A keep-alive connection with pauses shorter than the keep-alive time, over the time of a header altogether."""
    world, port = hasty
    headers = {"Authorization": f"Bearer {world.tokens['ana']}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, headers=headers) as web:
        for _ in range(4):
            assert web.get("/v1/me").status_code == 200
            time.sleep(0.4)


# -- answers that nobody reads, and requests behind one another ---------------------------------------------------------

DESCRIBE = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"


@contextmanager
def running(there: World, application: Any = None) -> Iterator[tuple[uvicorn.Server, int]]:
    """A server at a port, which is told to stop at the end, and does."""
    config = configured(there.curator.settings, application or there.client.app)
    config.port = 0
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield server, server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "it does not stop"


def deaf(port: int, *said: bytes, room: int = 4096) -> socket.socket:
    """A connection with little room for what comes."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    found.settimeout(30)
    found.connect(("127.0.0.1", port))
    for each in said:
        found.sendall(each)
    return found


@pytest.mark.slow
def test_who_does_not_read_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """19 of 20 were still held after 50 s, with a patience of 15."""
    there = made(tmp_path, patience=1.0)
    with running(there) as (server, port):
        held = [deaf(port, DESCRIBE * 60) for _ in range(5)]
        until(lambda: len(server.server_state.connections) == 5)
        until(lambda: not server.server_state.connections)
        for each in held:
            each.close()
    assert not [each for each in caplog.records if each.levelname == "ERROR"]  # nothing of ours went wrong
    assert caplog.text.count('"of": "answer"') == 5


@pytest.mark.slow
def test_the_server_stops_whoever_does_not_read(tmp_path: Path) -> None:
    """15 s after SIGTERM it had not: what was sent to them never went out."""
    there = made(tmp_path, patience=1.0)
    with running(there) as (server, port):
        held = [deaf(port, DESCRIBE * 60) for _ in range(5)]
        until(lambda: len(server.server_state.connections) == 5)
    for each in held:
        each.close()


@pytest.mark.slow
def test_who_reads_slowly_gets_everything(tmp_path: Path) -> None:
    there = made(tmp_path, patience=1.0)
    with running(there) as (_, port), deaf(port, DESCRIBE * 40, room=65_536) as slow:
        seen, began = b"", time.monotonic()
        while seen.count(b'"openapi":') < 40:
            more = slow.recv(32_768)
            assert more, "it was closed"
            seen += more
            if time.monotonic() - began < 4:
                time.sleep(0.05)


def until(true: Callable[[], bool]) -> None:
    for _ in range(3000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("never")


def test_requests_behind_another_leave_turns_to_others(tmp_path: Path) -> None:
    began, other = list[str](), threading.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise AssertionError  # it has no lifespan
        began.append(scope["path"])
        while scope["path"] == "/mine" and not other.is_set():
            await asyncio.sleep(0.01)
        if scope["path"] == "/other":
            other.set()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    there = made(tmp_path)
    with running(there, application) as (_, port), opened(port, b"GET /mine HTTP/1.1\r\nHost: x\r\n\r\n" * 20) as mine:
        until(lambda: began == ["/mine"])
        with opened(port, b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n") as another:
            assert another.recv(1000).startswith(b"HTTP/1.1 204")
        assert began[:2] == ["/mine", "/other"]
        seen = b""
        while seen.count(b"HTTP/1.1 204") < 20:
            seen += mine.recv(10_000)


def test_a_thousand_requests_behind_another_are_not_kept(hasty: tuple[World, int]) -> None:
    """They were all read at once, and thousands more with every answer."""
    with opened(hasty[1]) as connection:
        try:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 2000)
            seen = b""
            while more := connection.recv(10_000):
                seen += more
        except ConnectionError:
            pass
    assert seen.count(b"HTTP/1.1 200") < 2000


# -- addresses ---------------------------------------------------------------------------------------------------------


def scope(client: str, *forwarded: str) -> dict[str, Any]:
    return {"client": (client, 1), "headers": [(b"x-forwarded-for", each.encode()) for each in forwarded]}


@pytest.mark.parametrize(
    ("proxies", "client", "forwarded", "address"),
    [
        ((), "203.0.113.9", ["198.51.100.1"], "203.0.113.9"),
        ((), "127.0.0.1", ["198.51.100.1"], "127.0.0.1"),
        (("10.0.0.0/8",), "203.0.113.9", ["198.51.100.1"], "203.0.113.9"),
        (("10.0.0.0/8",), "10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        (("10.0.0.0/8",), "10.0.0.1", ["6.6.6.6, 198.51.100.1"], "198.51.100.1"),
        (("10.0.0.0/8",), "10.0.0.1", ["6.6.6.6", "198.51.100.1, 10.0.0.2"], "198.51.100.1"),
        (("10.0.0.0/8",), "10.0.0.1", ["6.6.6.6, nonsense, 10.0.0.2"], "10.0.0.2"),
        (("10.0.0.0/8",), "10.0.0.1", [], "10.0.0.1"),
        (("10.0.0.0/8",), "10.0.0.1", [""], "10.0.0.1"),
        (("10.0.0.0/8",), "::ffff:10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        (("fd00::1",), "fd00::1", ["2001:db8::5"], "2001:db8::/64"),
        (("10.0.0.0/8",), "10.0.0.1", ["6.6.6.6, 203.0.113.9:4431"], "203.0.113.9"),
        (("10.0.0.0/8",), "10.0.0.1", ["203.0.113.9:4431, 10.0.0.2:80"], "203.0.113.9"),
        (("10.0.0.0/8",), "10.0.0.1", ["[2001:db8::1]:443"], "2001:db8::/64"),
        (("10.0.0.0/8",), "10.0.0.1", ["[2001:db8::1]"], "2001:db8::/64"),
        (("10.0.0.0/8",), "10.0.0.1", ["203.0.113.9:4431:1"], "10.0.0.1"),
        (("10.0.0.0/8",), "10.0.0.1", ["[203.0.113.9"], "10.0.0.1"),
    ],
)
def test_only_named_proxies_are_believed(proxies: Any, client: str, forwarded: list[str], address: str) -> None:
    assert Addresses(proxies).of(scope(client, *forwarded)) == address


def test_proxies_are_addresses(tmp_path: Path) -> None:
    assert Settings(state="s", data=["d"], proxies=["10.0.0.7"]).proxies == ("10.0.0.7/32",)
    with worded(InvalidParameter):
        Settings(state="s", data=["d"], proxies=["everybody"])
    file = tmp_path / "server.toml"
    file.write_text('state = "s"\ndata = ["d"]\nproxies = "10.0.0.7"\n')
    with worded(UnreadableRecord):
        Settings.read(file)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),  # the same machine on a socket of both kinds
        ("somewhere", "somewhere"),  # each that is no address is counted under its own name, not all of them under one
        ("", ""),
        ("2001:db8::1%eth0", "2001:db8::/64"),
    ],
)
def test_counts_are_kept_under_one_name_for_each_client(host: str, name: str) -> None:
    assert name_of(host) == name


# -- descriptors -------------------------------------------------------------------------------------------------------


def test_half_requests_from_many_addresses_took_all_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """256 from each of four addresses shut everybody out, with the 1,024 descriptors that a shell gives a process."""
    monkeypatch.setattr("deniable.server.requests.connections._MOST", 20)
    held: list[socket.socket] = []
    with running(made(tmp_path, connections=8)) as (_, port), opened(port) as first:
        try:
            for number in range(2, 7):
                for _ in range(8):
                    held.append(socket.create_connection(("127.0.0.1", port), 30, (f"127.0.0.{number}", 0)))
                    held[-1].sendall(HALF)
        except OSError:
            pytest.skip("this machine has one local address")
        for _ in range(3):
            with opened(port, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as newcomer:
                assert newcomer.recv(1000).startswith(b"HTTP/1.1 200")
        first.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")  # the only one of its address gave way to nobody
        assert first.recv(1000).startswith(b"HTTP/1.1 200")
        assert sum(ended(each) for each in held[:8]) >= 4
        for each in held:
            each.close()
    lines = [each for each in caplog.messages if '"connections"' in each]
    assert 0 < len(lines) <= 5 * 6  # not one for each connection


def test_a_server_takes_more_descriptors_than_a_shell_gives(tmp_path: Path) -> None:
    told = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {1}))\n"
        "from deniable.server.requests.connections import make_room, room\n"
        "before = room(); make_room(); print(before, room(), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    for soft, hard, said in ((1024, 4000, "768 3000 4000 4000"), (400, 400, "300 300 400 400")):
        done = subprocess.run(
            [sys.executable, "-c", told.format(soft, hard)], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == said
