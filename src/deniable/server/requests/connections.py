"""Connections: limits on their number, and on the time that a client may take to send and to read.

Three attacks cost a client almost nothing, and each would hold a connection for ever.

- *A request that never ends.* Headers have `patience` seconds, counted from when we wait for them; so has the body.
  Further bytes do not extend this time.
- *An answer that nobody reads.* It holds the connection and the memory of the answer. A client that takes fewer than
  `_LEAST` bytes of a waiting answer within `patience` seconds is disconnected.
- *Many connections.* One address may have `settings.connections` of them. File descriptors are scarce (1,024 are
  usual), and a process that has run out of them can neither accept a connection nor open a file. So above `room()`
  connections, each new one closes another: of the address with the most connections that owe us bytes, the oldest.

Pipelined requests (sent on one connection without waiting for the answers) are answered one after the other, and other
connections have their turns in between. While such a request waits, nothing more is read from its connection.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, deque
from typing import Any, ClassVar, Final, final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from deniable.server.access.client_addresses import NOWHERE, Addresses, name_of
from deniable.server.access.rate_limits import Buckets
from deniable.server.operations.security_events import logged
from deniable.server.operations.settings import Settings

try:
    import resource
except ImportError:  # Windows, where this module can be imported and no server runs
    resource = None  # type: ignore[assignment]  # a module elsewhere

_LONGEST: Final = 64 << 10
"""The most bytes of the headers of one request."""

_LEAST: Final = 16 << 10
"""The fewest bytes of a waiting answer that a client reads in `patience` seconds, unless fewer are left."""

_ROOM: Final = 128 << 10
"""The size of a socket's send buffer, in bytes.

By default the operating system buffers megabytes, and we cannot see how many of them the client has read: a client that
reads slowly would look like one that does not read at all.
"""

_BEHIND: Final = 100
"""The most pipelined requests of one connection that may wait."""

_MOST: Final = 4096
"""The most connections of one process."""

_DESCRIPTORS: Final = 8192
"""The number of files and connections that a process asks the operating system for."""

_LINES: Final = 5
"""Log lines for one address and event before the rate limit of one a second: a flood must not fill the log."""

_PIECE: Final = 4096
"""Bytes that are parsed before the waiting requests are counted: a larger piece could hold thousands of requests."""


def room() -> int:
    """The most connections of this process: a quarter of its file descriptors stays free for files."""
    if resource is None:
        return _MOST
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if limit == resource.RLIM_INFINITY else min(_MOST, limit - limit // 4)


def make_room() -> None:
    """Raise the process's limit on file descriptors to `_DESCRIPTORS`, as far as the system permits."""
    if resource is not None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def protocol(settings: Settings) -> type[asyncio.Protocol]:
    """The class of connections for uvicorn: `Connection`, with the limits of one server and counts that they share."""
    found: type[asyncio.Protocol] = type("Connection", (Connection,), {"shared": OpenConnections(settings)})
    return found


@final
class OpenConnections:
    """The connections of one process, counted by address. An address is "" behind a proxy, which is not limited."""

    def __init__(self, settings: Settings) -> None:
        self.patience = settings.patience
        """Seconds that a client has to send headers, to send a body, or to read a part of an answer."""
        self._each, self._most = settings.connections, room()
        self._addresses = Addresses(settings.proxies)
        self._counts = Counter[str]()
        self._held: set[Connection] = set()
        self._owing: dict[str, dict[Connection, None]] = {}
        """Connections from which we wait for bytes, by address, oldest first."""
        self._lines = Buckets(rate=1.0, burst=_LINES)

    def address_of(self, client: tuple[str, int] | None) -> str:
        """The name under which a client is counted; "" for one of our proxies."""
        host = client[0] if client else NOWHERE
        return "" if self._addresses.is_proxy(host) else name_of(host)

    def count(self, address: str) -> bool:
        """Count one more connection of this address; False if that is more than it may have."""
        if not address:
            return True
        self._counts[address] += 1
        return self._counts[address] <= self._each

    def hold(self, connection: Connection) -> None:
        """Count a connection among those of the process."""
        self._held.add(connection)

    def one_too_many(self) -> Connection | None:
        """The connection to close if the process has more than it may have, else None."""
        if len(self._held) <= self._most or not self._owing:
            return None
        theirs = max(self._owing.values(), key=lambda each: len(each))
        return next(iter(theirs))

    def drop(self, connection: Connection, address: str) -> None:
        """Stop counting a connection that is gone."""
        self._held.discard(connection)
        if address:
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]

    def owe(self, connection: Connection, address: str, *, due: bool) -> None:
        """Note whether we now wait for bytes from this connection."""
        theirs = self._owing.setdefault(address, {})
        theirs.pop(connection, None)
        if due:
            theirs[connection] = None
        elif not theirs:
            del self._owing[address]

    def log(self, event: str, facts: dict[str, str]) -> None:
        """Write a security event, within the rate limit of equal lines."""
        if not self._lines.take(f"{event} {facts}"):
            logged(event, **facts)


class Connection(HttpToolsProtocol):
    """One connection. `cycle` is the newest request whose headers are complete, None before the first."""

    shared: ClassVar[OpenConnections]

    _timer: asyncio.TimerHandle | None = None
    _reader: asyncio.TimerHandle | None = None
    _phase: tuple[str, int] | None = None
    """What the running timer waits for (see `_now`), and of which request."""
    _came = 0
    """Bytes that came since the headers of the last request were complete."""
    _drained = False
    """Whether the send buffer has emptied since `_read` last looked."""
    _address = ""

    def connection_made(self, transport: Any) -> None:
        self._open = deque[Any]()
        super().connection_made(transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
        self._address = self.shared.address_of(self.client)
        if not self.shared.count(self._address):
            self._close("limit", limit="connections")
            return
        self.shared.hold(self)
        self._watch()
        self._read(0, self.loop.time())
        if (other := self.shared.one_too_many()) is not None:
            other._close("limit", limit="connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self.shared.drop(self, self._address)
        for each in self._open:  # all of them, also pipelined ones: no answer may be written to a closed connection
            each.disconnected = True
            each.message_event.set()
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
            self._close("unfinished", of="headers")
            return
        self._watch()

    def _now(self) -> str:
        """What we wait for from the client: "body", "headers", or "" while we prepare an answer."""
        if self.cycle is not None and self.cycle.more_body:
            return "body"
        return "headers" if self.cycle is None or self.cycle.response_complete else ""

    def _watch(self) -> None:
        """Start the timer of a new phase. The timer of a phase runs on until the phase ends, so a client cannot extend
        it by sending more bytes.
        """
        phase = (self._now(), id(self.cycle))
        if phase != self._phase:
            self._stop()
            self._phase = phase
            self.shared.owe(self, self._address, due=bool(phase[0]))
            if phase[0]:
                self._timer = self.loop.call_later(self.shared.patience, self._over, phase)

    def _over(self, phase: tuple[str, int]) -> None:
        if phase == (self._now(), id(self.cycle)):
            self._close("unfinished", of=phase[0])

    def on_headers_complete(self) -> None:
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self._open.append(self.cycle)

    def on_response_complete(self) -> None:
        self._open.popleft()
        super().on_response_complete()
        if self.pipeline:  # uvicorn would resume reading here, and the queue would grow with every answer
            self.flow.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._drained = True

    def _read(self, waits: int, since: float) -> None:
        """Disconnect a client that stops reading its answer. At `since`, `waits` bytes were in the send buffer."""
        left, now = self.transport.get_write_buffer_size(), self.loop.time()
        if not left or not waits or left <= waits - _LEAST or self._drained:
            waits, since, self._drained = left, now, False
        elif now - since >= self.shared.patience:
            self._close("unfinished", of="answer")
            return
        self._reader = self.loop.call_later(self.shared.patience / 4, self._read, waits, since)

    def _close(self, event: str, **facts: str) -> None:
        self.shared.log(event, {"address": self._address, **facts})
        self._end()
        self.transport.abort()

    def _end(self) -> None:
        self._stop()
        self.shared.owe(self, self._address, due=False)
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
