"""Connections: a request comes whole within a set time, or its connection is closed; one address has so many of them.

Half a request costs whoever sends it nothing and holds a connection for as long as nobody looks at the clock. So the
time of the headers and that of the body each begin with their first chance to come, and no further byte prolongs them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from deniable.server.addresses import NOWHERE, Addresses, name_of
from deniable.server.events import logged
from deniable.server.settings import Settings

_LONGEST: Final = 64 << 10
"""Bytes of the headers of a request."""


def protocol(settings: Settings) -> type[asyncio.Protocol]:
    """The class of connections of one server."""
    addresses, counts = Addresses(settings.proxies), Counter[str]()

    class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        """One connection. `cycle` is the newest request whose headers have come, None before the first one."""

        _timer: asyncio.TimerHandle | None = None
        _phase: tuple[str, int] | None = None
        _came = 0
        _name = ""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            host = self.client[0] if self.client else NOWHERE
            self._name = "" if addresses.is_proxy(host) else name_of(host)
            if self._name:
                counts[self._name] += 1
                if counts[self._name] > settings.connections:
                    self._close("limit", limit="connections")
                    return
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            if self._name:
                counts[self._name] -= 1
                if not counts[self._name]:
                    del counts[self._name]
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            before = self.cycle
            super().data_received(data)
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
                if phase[0]:
                    self._timer = self.loop.call_later(settings.patience, self._over, phase)

        def _over(self, phase: tuple[str, int]) -> None:
            if phase == (self._now(), id(self.cycle)):
                self._close("unfinished", of=phase[0], address=self._name)

        def _close(self, event: str, **facts: str) -> None:
            logged(event, **{"address": self._name, **facts})
            self._stop()
            self.transport.abort()

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    found: type[asyncio.Protocol] = Connection
    return found
