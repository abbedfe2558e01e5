"""The door: every request passes it once. It counts, limits, asks for a token, and lets no unexpected word out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deniable.server.catalogue import Person
from deniable.server.curator import Curator
from deniable.server.limits import Buckets
from deniable.server.metrics import Metrics
from deniable.server.problems import MEDIA_TYPE, Problem, written_down

Page = Callable[[Scope, Problem], Response | None]
"""A problem as a page, where a page was asked for."""

_SAFE: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


@final
class Keeper:
    """Tells who comes, by their token, and how often they may: the same for the API and the console."""

    def __init__(self, curator: Curator) -> None:
        self._gate = curator.gate
        self._buckets = Buckets(rate=curator.settings.rate, burst=curator.settings.burst)
        self._strangers = Buckets(rate=0.5, burst=20)
        """Wrong tokens by address: checking one costs us time."""

    async def who(self, token: str | None, scope: Scope) -> Person:
        """Whose token it is; None is no token at all."""
        person = None if token is None else self._gate.known(token)
        if person is None:
            client = scope.get("client")
            address = client[0] if client else "somewhere"
            met = token is not None and self._gate.met(token)  # strangers at the same address must not lock them out
            if not met and (seconds := self._strangers.wait(address)):
                raise Problem("rate_limited", headers={"Retry-After": str(seconds)})
            if token is not None:
                person = await asyncio.get_running_loop().run_in_executor(None, self._gate.check, token.strip())
            if person is None:
                self._strangers.take(address)
                raise Problem("unauthorized", "send Authorization: Bearer ...", headers={"WWW-Authenticate": "Bearer"})
        if seconds := self._buckets.take(person.token):
            raise Problem("rate_limited", headers={"Retry-After": str(seconds)})
        return person

    def stranger(self, scope: Scope) -> None:
        """Somebody comes with an invitation: as often as an address may be wrong."""
        client = scope.get("client")
        if seconds := self._strangers.take(client[0] if client else "somewhere"):
            raise Problem("rate_limited", headers={"Retry-After": str(seconds)})


@final
class Door:
    """An ASGI application around another."""

    def __init__(self, inner: ASGIApp, curator: Curator, metrics: Metrics, keeper: Keeper, page: Page) -> None:
        self._inner, self._curator, self._metrics, self._keeper = inner, curator, metrics, keeper
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        scope["arrived"] = time.monotonic()
        status = 500
        started = False

        async def counted(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                named = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(each for each in _SAFE if each[0] not in named)]
            await send(message)

        try:
            if scope["path"].startswith("/v1/") or scope["path"] == "/metrics":
                scope["person"] = await self._who(scope)
            await self._inner(scope, self._limited(scope, receive), counted)
        except Problem as problem:
            if not started:
                await self._refuse(problem, scope, receive, counted)
        except Exception as error:
            written_down(error)
            if not started:
                await self._refuse(Problem("unexpected"), scope, receive, counted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.count(scope["method"] if scope["method"] in _METHODS else "other", route, status)

    async def _refuse(self, problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a problem, whatever stands behind the door."""
        page = self._page(scope, problem)
        said = page or Response(problem.body(), problem.status, problem.headers, MEDIA_TYPE)
        await said(scope, receive, send)

    async def _who(self, scope: Scope) -> Person:
        headers = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = headers[0].decode("latin-1").partition(" ") if len(headers) == 1 else ("", "", "")
        return await self._keeper.who(token if scheme.lower() == "bearer" else None, scope)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        most, seen = self._curator.settings.body, 0
        for name, value in scope["headers"]:
            if name == b"content-length" and (not value.isdigit() or int(value) > most):
                raise Problem("too_large", f"at most {most:,} bytes")

        async def limited() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > most:
                raise Problem("too_large", f"at most {most:,} bytes")
            return message

        return limited


_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
