"""The gate that every request passes once: it counts the request, applies rate limits and checks the token.

It also catches every exception, so that the message of an unexpected one never reaches a client.
"""

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
"""Draws a problem as a page; None if the request was not for a page."""

Cookie = Callable[[Scope], str | None]
"""The token in the cookie of a request, or None."""

_STRANGE: Final = frozenset({"/redeem", "/console/invitation", "/console/sign-in"})
"""Paths to which people without a token send data."""

_NO_TOKEN: Final = (
    "send Authorization: Bearer TOKEN; a token that was sent may be mistyped, expired or revoked: ask an admin"
)
"""The same words with and without a token, so that nobody learns which tokens exist."""

_LITTLE: Final = 8192
"""The most bytes of a request to `_STRANGE`: a token of an issuer has some thousand."""

_ASKED: Final = 256 << 10
"""The most bytes of a request with questions. Parsing blocks the event loop; no question needs as many."""

_RATE_OF_UNKNOWN: Final = 0.5
_BURST_OF_UNKNOWN: Final = 20
"""Requests per second, and at once, of unknown tokens and of invitations, each by address. A person who mistypes a
token needs few; `rate` and `burst` of the settings are for everybody else.
"""
_THREADS: Final = 2
_MOST_CHECKED: Final = 32
"""The most unknown tokens, of all addresses, that are being checked or wait for it."""

_SAFE: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


@final
class Keeper:
    """Finds the person of a token, and applies rate limits: the same for the API and the console.

    - *Unknown tokens* cost time and memory to check (argon2). So each counts against its address before the check, and
      few threads check them. If the token is valid, the count is undone.
    - *Tokens that were verified before, and tokens of an issuer* are cheap to check. They have threads of their own, so
      that a flood of wrong tokens does not delay them, and count against their address only if they are not valid.
    - *Requests without a token* count against their address before any work is done. Above the limit the connection is
      closed.
    - *Requests of a known person* count against the person.
    """

    def __init__(self, curator: Curator) -> None:
        self._gate, settings = curator.gate, curator.settings
        self._addresses = Addresses(settings.proxies)
        self._buckets = Buckets(rate=settings.rate, burst=settings.burst)
        self._visits = Buckets(rate=settings.rate, burst=settings.burst)
        """Requests without a token, by address. Requests to public paths, by a verified token if they have one."""
        self._lines = Buckets(rate=1.0, burst=1)
        """Log lines about one refused client: a flood of requests must not fill the log."""
        self._strangers = Buckets(rate=_RATE_OF_UNKNOWN, burst=_BURST_OF_UNKNOWN)
        """Unknown tokens, by address."""
        self._guests = Buckets(rate=_RATE_OF_UNKNOWN, burst=_BURST_OF_UNKNOWN)
        """Invitations, by address. Counted apart, so that wrong ones do not block people with a token."""
        self._known = ThreadPoolExecutor(_THREADS, thread_name_prefix="known")
        self._unknown = ThreadPoolExecutor(_THREADS, thread_name_prefix="unknown")
        self._unmet: dict[str, Future[Person | None]] = {}
        """Running checks of unknown tokens."""

    def close(self) -> None:
        """Stop the threads."""
        self._known.shutdown(wait=False)
        self._unknown.shutdown(wait=False)

    def visit(self, token: str | None, scope: Scope) -> None:
        """Count a request to a public path. Raises Problem `rate_limited`."""
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
        """The person of a token. Raises Problem `unauthorized` or `rate_limited`."""
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
            if person is None:  # counted only now: a valid token passes, whatever other clients of this address do
                self._count(address)
        else:
            self._count(address)
            # Many requests with one token at once, as after a restart, share one check and count once.
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
        """Check a token that was counted against an address; undo the count if it is valid."""
        person = self._gate.check(text)
        if person is not None:
            self._strangers.give_back(address)
        return person

    @contextmanager
    def stranger(self, scope: Scope) -> Iterator[None]:
        """A context for redeeming an invitation: it applies the rate limit of the client's address, and logs a failed
        attempt.
        """
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
    """The gate as an ASGI application around another one."""

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
            pass  # the client is gone
        except Exception as error:
            written_down(error)
            if not started:
                await self._refuse(Problem("unexpected"), scope, receive, counted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.count(scope["method"] if scope["method"] in _METHODS else "other", route, status)

    async def _refuse(self, problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a problem, as a page or as JSON; as JSON if the connection is closed after it."""
        page = None if "Connection" in problem.headers else self._page(scope, problem)
        response = page or Response(problem.body(), problem.status, problem.headers, MEDIA_TYPE)
        await response(scope, receive, send)

    async def _who(self, scope: Scope) -> Person:
        headers = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = headers[0].decode("latin-1").partition(" ") if len(headers) == 1 else ("", "", "")
        return await self._keeper.who(token if scheme.lower() == "bearer" else None, scope)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        path, most, seen = scope["path"], self._curator.settings.body, 0
        if path in _STRANGE:
            most = _LITTLE
        elif path.startswith("/v1/questions") or path.endswith(("/dummy:ask", "/synthetic", "/standing")):
            most = min(most, _ASKED)
        for name, value in scope["headers"]:
            if name == b"content-length" and (not value.isdigit() or int(value) > most):
                raise Problem("too_large", f"the request must have at most {most:,} bytes")

        async def limited() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > most:
                raise Problem("too_large", f"the request must have at most {most:,} bytes")
            return message

        return limited


_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
