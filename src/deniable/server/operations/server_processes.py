"""Serving: in this process, or in several that share one address. One that dies is replaced."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from deniable.server.app import served
from deniable.server.curator import Curator
from deniable.server.operations import security_events
from deniable.server.operations.settings import Settings
from deniable.server.operations.state_holding import serving
from deniable.server.requests.connections import make_room, protocol

if TYPE_CHECKING:
    from types import FrameType

    from starlette.types import ASGIApp

_QUEUE: Final = 1024
"""Connections that may wait to be taken."""

_PAUSE: Final = 1.0
"""Seconds before a process that died is started again, so that one that cannot start does not take the machine."""

_SPREADS: Final = sys.platform == "linux"
"""Whether connections to one address are spread over the sockets that listen there; elsewhere one gets them all."""


def _unbound(family: int) -> socket.socket:
    """A socket without an address. Of IPv6 it takes nothing else: who listens at :: has not asked for IPv4."""
    made = socket.socket(family)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return made


def listening(settings: Settings) -> socket.socket:
    """The socket that people come to."""
    place = _unbound(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    try:
        if os.name == "posix":  # elsewhere it means that two may have one address
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind((settings.host, settings.port))
        place.listen(_QUEUE)  # not to be shared yet: a second server must hear that it is taken
        if settings.processes > 1 and _SPREADS:
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        place.close()
        raise
    return place


def _beside(place: socket.socket) -> socket.socket:
    """One more at the same address, which does not listen yet."""
    made = _unbound(place.family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(place.getsockname())
    return made


def _places(place: socket.socket, processes: int) -> list[socket.socket]:
    """A socket for each process, at one address: at a shared one, whoever is quicker takes most of the connections."""
    if not _SPREADS:
        return [place] * processes
    found = [place, *(_beside(place) for _ in range(processes - 1))]
    for each in found[1:]:
        each.listen(_QUEUE)
    return found


def address(place: socket.socket) -> str:
    """Where that is, as a URL."""
    host, port = place.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def configured(settings: Settings, application: ASGIApp) -> uvicorn.Config:
    """How an application is served."""
    return uvicorn.Config(
        application,
        http=protocol(settings),
        ws="none",
        proxy_headers=False,  # it would believe whoever is at 127.0.0.1; see `server.access.client_addresses`
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=70,
    )


def serve(curator: Curator, place: socket.socket) -> None:
    """Serve until somebody says stop; what still runs is finished first."""
    security_events.to_stderr()
    make_room()
    config = configured(curator.settings, served(curator))
    # What is loaded by now stays; looking through it again and again for garbage is a tenth of the time of a question.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    with contextlib.suppress(KeyboardInterrupt):
        try:
            uvicorn.Server(config).run(sockets=[place])
        finally:
            gc.unfreeze()  # else DuckDB finds its own objects alive when the process ends, and lists them all


def serve_in_processes(settings: Settings, place: socket.socket) -> None:
    """The same, in as many processes as the settings say."""
    record = json.dumps(asdict(settings), default=str).encode()
    places = _places(place, settings.processes)

    def start(at: int) -> subprocess.Popen[bytes]:
        descriptor = places[at].fileno()
        command = [sys.executable, "-m", "deniable.server.operations.server_processes", str(descriptor)]
        found = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(descriptor,), start_new_session=True)
        assert found.stdin is not None
        # Not on the command line: everybody on the machine can see that, and a database's address may hold a password.
        # The pipe stays open: a process that finds it closed knows that this one is gone, however it went.
        with contextlib.suppress(BrokenPipeError):
            found.stdin.write(record + b"\n")
            found.stdin.flush()
        return found

    with contextlib.ExitStack() as held, _stopping() as stopped:
        held.enter_context(serving(settings.state))  # also while one of them, or all, are started again
        if _SPREADS:
            kept = held.enter_context(_beside(place))  # the address stays ours, if all die at once
        running = [start(at) for at in range(settings.processes)]
        while not stopped:
            time.sleep(0.1)
            for at, each in enumerate(running):
                if each.poll() is not None and not stopped:
                    _let_go(each)
                    if _SPREADS:
                        # Nobody may wait at the socket of the dead; the next one listens at its own when it is ready.
                        places[at].close()
                        places[at] = _beside(kept)
                    time.sleep(_PAUSE)
                    running[at] = start(at)
        for each in running:
            each.terminate()
        for each, its in zip(running, places, strict=True):
            each.wait()
            _let_go(each)
            its.close()


def _let_go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it may have died before it read
        process.stdin.close()


@contextlib.contextmanager
def _stopping() -> Iterator[list[int]]:
    """A list that is empty until the process is told to stop."""
    told: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        told.append(number)

    before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def main(descriptor: str, record: str) -> None:
    """One of several processes."""
    given: dict[str, Any] = json.loads(record)
    settings = replace(Settings(**given), processes=1)
    serve(Curator(settings), socket.socket(fileno=int(descriptor)))


def _follow() -> None:
    """Stop when the process that started this one is gone: else the address stays taken, and nobody sees to it."""
    while sys.stdin.read(1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # to the main thread


if __name__ == "__main__":
    told = sys.stdin.readline()
    threading.Thread(target=_follow, daemon=True).start()
    main(sys.argv[1], told)
