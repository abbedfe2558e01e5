"""Serves in this process, or in several that share one address; a process that dies is restarted."""

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
"""The most connections that wait to be accepted."""

_PAUSE: Final = 1.0
"""Seconds before a process is restarted, so that one that cannot start does not use up the CPU."""

_SPREADS: Final = sys.platform == "linux"
"""Whether the system distributes connections over all sockets that listen at one address (SO_REUSEPORT)."""


def _unbound(family: int) -> socket.socket:
    """A socket without an address. An IPv6 socket accepts IPv6 only: the address :: must not open a server to IPv4."""
    made = socket.socket(family)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return made


def listening(settings: Settings) -> socket.socket:
    """A socket that listens at the address of the settings. Raises OSError if the address is taken."""
    place = _unbound(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    try:
        if os.name == "posix":  # on Windows it would let two programs share the address
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind((settings.host, settings.port))
        place.listen(_QUEUE)  # before SO_REUSEPORT, so that a second server gets an error
        if settings.processes > 1 and _SPREADS:
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        place.close()
        raise
    return place


def _beside(place: socket.socket) -> socket.socket:
    """A second socket that is bound to the same address (SO_REUSEPORT) and does not listen yet."""
    made = _unbound(place.family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(place.getsockname())
    return made


def _places(place: socket.socket, processes: int) -> list[socket.socket]:
    """A socket for each process, at one address. On a shared socket, the fastest would take most connections."""
    if not _SPREADS:
        return [place] * processes
    found = [place, *(_beside(place) for _ in range(processes - 1))]
    for each in found[1:]:
        each.listen(_QUEUE)
    return found


def address(place: socket.socket) -> str:
    """The address of a socket, as a URL."""
    host, port = place.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def configured(settings: Settings, application: ASGIApp) -> uvicorn.Config:
    """The configuration of uvicorn."""
    return uvicorn.Config(
        application,
        http=protocol(settings),
        ws="none",
        proxy_headers=False,  # uvicorn would trust every client at 127.0.0.1; see `server.access.client_addresses`
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=70,
    )


def serve(curator: Curator, place: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, then finish running work."""
    security_events.to_stderr()
    make_room()
    config = configured(curator.settings, served(curator))
    # Loaded modules are never garbage; to scan them at every collection would take a tenth of the time of a question.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    with contextlib.suppress(KeyboardInterrupt):
        try:
            uvicorn.Server(config).run(sockets=[place])
        finally:
            gc.unfreeze()  # otherwise DuckDB reports its objects as leaked when the process ends


def serve_in_processes(settings: Settings, place: socket.socket) -> None:
    """Serve in `settings.processes` processes until SIGINT or SIGTERM. A process that dies is restarted."""
    record = json.dumps(asdict(settings), default=str).encode()
    places = _places(place, settings.processes)

    def start(at: int) -> subprocess.Popen[bytes]:
        descriptor = places[at].fileno()
        command = [sys.executable, "-m", "deniable.server.operations.server_processes", str(descriptor)]
        found = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(descriptor,), start_new_session=True)
        assert found.stdin is not None
        # Settings go through a pipe: everybody on the machine can read a command line, and a database URL may hold a
        # password. The pipe stays open: when it closes, the process knows that this one is gone.
        with contextlib.suppress(BrokenPipeError):
            found.stdin.write(record + b"\n")
            found.stdin.flush()
        return found

    with contextlib.ExitStack() as held, _stopping() as stopped:
        held.enter_context(serving(settings.state))  # also while processes are restarted
        if _SPREADS:
            kept = held.enter_context(_beside(place))  # keeps the address if all processes die at once
        running = [start(at) for at in range(settings.processes)]
        while not stopped:
            time.sleep(0.1)
            for at, each in enumerate(running):
                if each.poll() is not None and not stopped:
                    _let_go(each)
                    if _SPREADS:
                        # No connection may wait at the old socket; the new process listens on its own when it is ready.
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
    """A list that is empty until SIGINT or SIGTERM arrives."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)

    before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def main(descriptor: str, record: str) -> None:
    """Serve in one of several processes, on an inherited socket, with settings as JSON."""
    given: dict[str, Any] = json.loads(record)
    settings = replace(Settings(**given), processes=1)
    serve(Curator(settings), socket.socket(fileno=int(descriptor)))


def _follow() -> None:
    """Stop when the parent process is gone; otherwise a process that nobody manages would keep the address."""
    while sys.stdin.read(1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # to the main thread


if __name__ == "__main__":
    received = sys.stdin.readline()
    threading.Thread(target=_follow, daemon=True).start()
    main(sys.argv[1], received)
