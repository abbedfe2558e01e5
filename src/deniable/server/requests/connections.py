"""Connections: a request comes whole within a set time, its answer is read within one, or the connection is closed; one
address has so many of them, and all together have so many.

Half a request costs whoever sends it nothing and holds a connection for as long as nobody looks at the clock. So the
time of the headers and that of the body each begin with their first chance to come, and no further byte prolongs them.
An answer that nobody reads holds a connection and the memory of the answer. Whoever takes less than `_LEAST` bytes of
what waits for them in that time is not reading.

Descriptors are few (1,024 are usual), and a process without any can take no connection and open no file. So before they
run out, one connection that has to send something makes room for the next: the oldest of the address that has the most.

Requests that come behind another on the same connection are answered one after the other, and other connections have
their turns in between. While any waits nothing more is read.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, deque
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from deniable.server.access.client_addresses import NOWHERE, Addresses, name_of
from deniable.server.access.rate_limits import Buckets
from deniable.server.operations.security_events import logged
from deniable.server.operations.settings import Settings

try:
    import resource
except ImportError:  # Windows, where this module can be imported and no server runs
    resource = None  # type: ignore[assignment]

_LONGEST: Final = 64 << 10
"""Bytes of the headers of a request."""

_LEAST: Final = 16 << 10
"""Bytes of an answer that are read in `patience` seconds by whoever is there, or all that are left of it."""

_ROOM: Final = 128 << 10
"""Bytes of an answer that the system takes before it is read. It would take megabytes, and nobody sees how many of them
are read: whoever reads slowly would look like somebody who does not.
"""

_BEHIND: Final = 100
"""Requests on one connection that wait behind another."""

_MOST: Final = 4096
"""Connections of one process."""

_DESCRIPTORS: Final = 8192
"""Files and connections that a process may have open, where the system allows so many."""

_LINES: Final = 5
"""Lines of the log about one address and one event, then one a second: a flood of connections is not one of lines."""

_PIECE: Final = 4096
"""Bytes that are looked at before it is counted what waits: more would be thousands of requests at once."""


def room() -> int:
    """How many connections this process may have: a quarter of its descriptors is left for files."""
    if resource is None:
        return _MOST
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if limit == resource.RLIM_INFINITY else min(_MOST, limit - limit // 4)


def make_room() -> None:
    """Let this process have more descriptors than a shell gives it, as far as it may."""
    if resource is not None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def protocol(settings: Settings) -> type[asyncio.Protocol]:
    """The class of connections of one server."""
    addresses, counts = Addresses(settings.proxies), Counter[str]()
    most, lines = room(), Buckets(rate=1.0, burst=_LINES)
    held: set[asyncio.Protocol] = set()
    owing: dict[str, dict[Connection, None]] = {}
    """Connections that have to send something, by address, oldest first."""

    class Connection(HttpToolsProtocol):
        """One connection. `cycle` is the newest request whose headers have come, None before the first one."""

        _timer: asyncio.TimerHandle | None = None
        _reader: asyncio.TimerHandle | None = None
        _phase: tuple[str, int] | None = None
        _came = 0
        _drained = False
        _name = ""

        def connection_made(self, transport: Any) -> None:
            self._open = deque[Any]()
            super().connection_made(transport)
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
            host = self.client[0] if self.client else NOWHERE
            self._name = "" if addresses.is_proxy(host) else name_of(host)
            if self._name:
                counts[self._name] += 1
                if counts[self._name] > settings.connections:
                    self._close("limit", limit="connections")
                    return
            held.add(self)
            self._watch()
            self._read(0, self.loop.time())
            if len(held) > most and owing:
                theirs = max(owing.values(), key=lambda each: len(each))
                next(iter(theirs))._close("limit", limit="connections")

        def connection_lost(self, exc: Exception | None) -> None:
            self._end()
            held.discard(self)
            for each in self._open:  # each of them: whoever answers one must not write to what is closed
                each.disconnected = True
                each.message_event.set()
            if self._name:
                counts[self._name] -= 1
                if not counts[self._name]:
                    del counts[self._name]
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            before = self.cycle
            for start in range(0, len(data), _PIECE):
                super().data_received(data[start : start + _PIECE])
                if self.transport.is_closing():
                    return
                if len(self.pipeline) > _BEHIND:
                    self._close("limit", limit="pipelined")
                    return
            self._came = self._came + len(data) if self.cycle is before else 0
            if self._came > _LONGEST and self._now() == "headers":
                self._close("unfinished", of="headers", address=self._name)
                return
            self._watch()

        def _now(self) -> str:
            """What this connection has to send: the rest of a body, of headers, or nothing while it is answered."""
            if self.cycle is not None and self.cycle.more_body:
                return "body"
            return "headers" if self.cycle is None or self.cycle.response_complete else ""

        def _watch(self) -> None:
            phase = (self._now(), id(self.cycle))
            if phase != self._phase:
                self._stop()
                self._phase = phase
                self._owe(due=bool(phase[0]))
                if phase[0]:
                    self._timer = self.loop.call_later(settings.patience, self._over, phase)

        def _owe(self, *, due: bool) -> None:
            """Whether it is this connection's turn to send something."""
            theirs = owing.setdefault(self._name, {})
            theirs.pop(self, None)
            if due:
                theirs[self] = None
            elif not theirs:
                del owing[self._name]

        def _over(self, phase: tuple[str, int]) -> None:
            if phase == (self._now(), id(self.cycle)):
                self._close("unfinished", of=phase[0], address=self._name)

        def on_headers_complete(self) -> None:
            before = self.cycle
            super().on_headers_complete()
            if self.cycle is not before:
                self._open.append(self.cycle)

        def on_response_complete(self) -> None:
            self._open.popleft()
            super().on_response_complete()
            if self.pipeline:  # it would read on, and what waits would grow with every answer
                self.flow.pause_reading()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._drained = True

        def _read(self, waits: int, since: float) -> None:
            """Look whether what waits to be sent has become less than it was then."""
            left, now = self.transport.get_write_buffer_size(), self.loop.time()
            if not left or not waits or left <= waits - _LEAST or self._drained:
                waits, since, self._drained = left, now, False
            elif now - since >= settings.patience:
                self._close("unfinished", of="answer", address=self._name)
                return
            self._reader = self.loop.call_later(settings.patience / 4, self._read, waits, since)

        def _close(self, event: str, **facts: str) -> None:
            facts = {"address": self._name, **facts}
            if not lines.take(f"{event} {facts}"):
                logged(event, **facts)
            self._end()
            self.transport.abort()

        def _end(self) -> None:
            self._stop()
            self._owe(due=False)
            if self._reader is not None:
                self._reader.cancel()
                self._reader = None

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    found: type[asyncio.Protocol] = Connection
    return found
