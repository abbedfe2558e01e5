"""Connections that send half a request, or come in hundreds; and whose address counts."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from deniable.errors import InvalidParameter, UnreadableRecord
from deniable.server.addresses import Addresses
from deniable.server.processes import configured
from deniable.server.settings import Settings
from tests.server.world import World, made

HALF = b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: "


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, int]]:
    """A server with little patience, at a port."""
    there = made(tmp_path_factory.mktemp("hasty"), patience=1.0, connections=6)
    config = configured(there.curator.settings, there.client.app)
    config.port = 0
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield there, server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


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
    ],
)
def test_only_named_proxies_are_believed(proxies: Any, client: str, forwarded: list[str], address: str) -> None:
    assert Addresses(proxies).of(scope(client, *forwarded)) == address


def test_proxies_are_addresses(tmp_path: Path) -> None:
    assert Settings(state="s", data=["d"], proxies=["10.0.0.7"]).proxies == ("10.0.0.7/32",)
    with pytest.raises(InvalidParameter, match="addresses or networks"):
        Settings(state="s", data=["d"], proxies=["everybody"])
    file = tmp_path / "server.toml"
    file.write_text('state = "s"\ndata = ["d"]\nproxies = "10.0.0.7"\n')
    with pytest.raises(UnreadableRecord, match="must be a list of addresses"):
        Settings.read(file)
