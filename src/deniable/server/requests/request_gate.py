"""The door: every request passes it once. It counts, limits, asks for a token, and lets no unexpected word out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, final

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deniable.server.access.client_addresses import Addresses
from deniable.server.access.rate_limits import Buckets
from deniable.server.catalogue.catalogue import Person
from deniable.server.curator import Curator
from deniable.server.operations.metrics import Metrics
from deniable.server.operations.security_events import logged
from deniable.server.operations.work_turns import WHO
from deniable.server.problems import MEDIA_TYPE, Problem, written_down

Page = Callable[[Scope, Problem], Response | None]
"""A problem as a page, where a page was asked for."""

Cookie = Callable[[Scope], str | None]
"""The token that a browser sends, if it does."""

_STRANGE: Final = frozenset({"/redeem", "/console/invitation", "/console/sign-in"})
"""To where people without a token send something."""

_NO_TOKEN: Final = (
    "send Authorization: Bearer TOKEN; one that was sent may be mistyped, out of date or revoked: ask an admin"
)
"""The same with a token and without: nobody learns which ones there are."""

_LITTLE: Final = 8192
"""Bytes that they may send: a token of an issuer has some thousand."""

_ASKED: Final = 256 << 10
"""Bytes of a request with questions, which are read while everybody waits: much more than any question may have."""

_THREADS: Final = 2
_MOST_CHECKED: Final = 32
"""Tokens that nobody has met, being checked or waiting for it, of all addresses together."""

_SAFE: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


@final
class Keeper:
    """Tells who comes, by their token, and how often they may: the same for the API and the console.

    A token of ours that nobody has met costs time and memory to check (argon2), so it is counted against its address
    before it is checked, and checked by few threads. Whoever was let in before, and whoever an issuer has signed for,
    has threads of their own: no flood of wrong tokens is in front of them, and none of their requests count against an
    address; what only looks like theirs does, once it was looked at. Requests without a token, and those to what is
    open to everybody, are counted apart and before anything is done for them; on a connection that brings too many
    nothing more is read.
    """

    def __init__(self, curator: Curator) -> None:
        self._gate, settings = curator.gate, curator.settings
        self._addresses = Addresses(settings.proxies)
        self._buckets = Buckets(rate=settings.rate, burst=settings.burst)
        self._visits = Buckets(rate=settings.rate, burst=settings.burst)
        """Requests without a token, by address; to what is open to everybody also by a token that was met."""
        self._lines = Buckets(rate=1.0, burst=1)
        """Lines of the log about one who is turned away: a flood of requests is not one of lines."""
        self._strangers = Buckets(rate=0.5, burst=20)
        """Tokens that nobody has met, by address."""
        self._guests = Buckets(rate=0.5, burst=20)
        """Invitations, by address: wrong ones keep nobody out who comes with a token."""
        self._known = ThreadPoolExecutor(_THREADS, thread_name_prefix="known")
        self._unknown = ThreadPoolExecutor(_THREADS, thread_name_prefix="unknown")
        self._unmet: dict[str, Future[Person | None]] = {}
        """Looks at tokens that nobody has met, which have not ended."""

    def close(self) -> None:
        """Let go of the threads."""
        self._known.shutdown(wait=False)
        self._unknown.shutdown(wait=False)

    def visit(self, token: str | None, scope: Scope) -> None:
        """Count a request to what is open to everybody."""
        met = None if token is None else self._gate.met(token)
        self._count(self._addresses.of(scope) if met is None else f"token {met}")

    def _count(self, name: str) -> None:
        if seconds := self._visits.take(name):
            raise self._turned_away("strangers", seconds, {"Connection": "close"}, address=name)

    def _turned_away(self, limit: str, seconds: int, headers: Mapping[str, str] | None = None, **who: str) -> Problem:
        if not self._lines.take(f"{limit} {who}"):
            logged("limit", limit=limit, **who)
        return Problem("rate_limited", headers={"Retry-After": str(seconds), **(headers or {})})

    async def who(self, token: str | None, scope: Scope) -> Person:
        """Whose token it is; None is no token at all."""
        text = None if token is None else token.strip()
        if text is None:
            self._count(self._addresses.of(scope))
        person = None if text is None else self._gate.known(text)
        if person is None and text is not None:
            person = await self._checked(text, scope)
        if person is None:
            raise Problem("unauthorized", _NO_TOKEN, headers={"WWW-Authenticate": "Bearer"})
        if seconds := self._buckets.take(person.name):
            raise self._turned_away("requests", seconds, person=person.name)
        WHO.set(person.name)
        return person

    async def _checked(self, text: str, scope: Scope) -> Person | None:
        address = self._addresses.of(scope)
        if self._gate.is_cheap(text):
            person = await asyncio.get_running_loop().run_in_executor(self._known, self._gate.check, text)
            if person is None:  # afterwards, so that whoever is signed for passes, whatever others at their address do
                self._count(address)
        else:
            self._count(address)
            # A crowd with one token, as after a restart, is one look: it takes one drop, and the time of one.
            looking = self._unmet.get(text)
            if looking is None:
                if (seconds := self._strangers.take(address)) or len(self._unmet) >= _MOST_CHECKED:
                    raise self._turned_away("tokens", seconds or 1, address=address)
                looking = self._unmet[text] = self._unknown.submit(self._met, text, address)
                looking.add_done_callback(lambda _: self._unmet.pop(text, None))
            person = await asyncio.shield(asyncio.wrap_future(looking))
            if person is not None:
                self._visits.give_back(address)
        if person is None:
            logged("token_refused", address=address)
        return person

    def _met(self, text: str, address: str) -> Person | None:
        """Check a token that was counted against an address, and undo that if it is somebody's."""
        person = self._gate.check(text)
        if person is not None:
            self._strangers.give_back(address)
        return person

    @contextmanager
    def stranger(self, scope: Scope) -> Iterator[None]:
        """Somebody comes with an invitation: as often as an address may be wrong. One that opens nothing is noted."""
        address = self._addresses.of(scope)
        if seconds := self._guests.take(address):
            raise self._turned_away("invitations", seconds, address=address)
        try:
            yield
        except Problem as problem:
            if problem.code == "unauthorized":
                logged("token_refused", address=address)
            raise


@final
class RequestGate:
    """An ASGI application around another."""

    def __init__(
        self, inner: ASGIApp, curator: Curator, metrics: Metrics, keeper: Keeper, *, page: Page, cookie: Cookie
    ) -> None:
        self._inner, self._curator, self._metrics, self._keeper = inner, curator, metrics, keeper
        self._page, self._cookie = page, cookie

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
            else:
                self._keeper.visit(self._cookie(scope), scope)
            await self._inner(scope, self._limited(scope, receive), counted)
        except Problem as problem:
            if not started:
                await self._refuse(problem, scope, receive, counted)
        except ClientDisconnect:
            pass  # nobody is there to be told
        except Exception as error:
            written_down(error)
            if not started:
                await self._refuse(Problem("unexpected"), scope, receive, counted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.count(scope["method"] if scope["method"] in _METHODS else "other", route, status)

    async def _refuse(self, problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a problem, whatever stands behind the door; to whoever is sent away for good, nothing is drawn."""
        page = None if "Connection" in problem.headers else self._page(scope, problem)
        said = page or Response(problem.body(), problem.status, problem.headers, MEDIA_TYPE)
        await said(scope, receive, send)

    async def _who(self, scope: Scope) -> Person:
        headers = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = headers[0].decode("latin-1").partition(" ") if len(headers) == 1 else ("", "", "")
        return await self._keeper.who(token if scheme.lower() == "bearer" else None, scope)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        path, most, seen = scope["path"], self._curator.settings.body, 0
        if path in _STRANGE:
            most = _LITTLE
        elif path.startswith("/v1/questions") or path.endswith(("/dummy:ask", "/synthetic")):
            most = min(most, _ASKED)
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
