"""A shortcut past FastAPI for the two most frequent routes: its middleware, routing and dependencies take as long as
the replay of an answer.

A valid request goes directly to the function that FastAPI would call. Every other request, with a role that may not ask
or a body that does not validate, goes to FastAPI, which reports the error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, final

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deniable.errors import DeniableError
from deniable.server.problems import problem_of
from deniable.server.roles import may

_PATHS: Final = frozenset({"/v1/questions", "/v1/questions:price"})
_KEY: Final = re.compile(rb"[\x21-\x7e]{1,200}")
"""A valid idempotency key; the route refuses others."""


@final
class Lane:
    """An ASGI application around another. `routes` are routes of the inner application."""

    def __init__(self, inner: ASGIApp, routes: APIRouter) -> None:
        self._inner = inner
        found = [each for each in routes.routes if isinstance(each, APIRoute) and each.path in _PATHS]
        self._ways = {each.path: _Way(each) for each in found}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        way = self._ways.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        read: list[Message] = []
        taken = None if way is None else await way.taken(scope, receive, read)
        if way is None or taken is None:
            await self._inner(scope, _once_more(read, receive) if read else receive, send)
            return
        scope["route"] = way.route
        try:
            response = await way.route.endpoint(Request(scope), **taken)
        except DeniableError as error:
            raise problem_of(error) from None
        await response(scope, receive, send)


@final
class _Way:
    """One route, whose function takes a person, a body, and perhaps an idempotency key."""

    def __init__(self, route: APIRoute) -> None:
        body = None if route.body_field is None else route.body_field.field_info.annotation
        assert body is not None
        [who] = route.dependant.dependencies
        self.route = route
        self._body: TypeAdapter[Any] = TypeAdapter(body)
        self._verb: str = who.call.verb  # type: ignore[union-attr]  # set by `route_rights`
        self._takes_key = bool(route.dependant.header_params)

    async def taken(self, scope: Scope, receive: Receive, read: list[Message]) -> dict[str, Any] | None:
        """The arguments of the route's function; None if the request is not valid. `read` gets all messages read."""
        person, given = scope["person"], _headers(scope["headers"])
        keys = given[b"idempotency-key"] if self._takes_key else []
        if not may(person.role, self._verb) or given[b"content-type"] != [b"application/json"] or len(keys) > 1:
            return None
        if keys and not _KEY.fullmatch(keys[0]):
            return None
        while not read or read[-1].get("more_body"):
            read.append(await receive())
            if read[-1]["type"] != "http.request":
                return None
        try:
            body = self._body.validate_python(json.loads(b"".join(each.get("body", b"") for each in read)))
        except (ValueError, RecursionError):
            return None
        key = {"idempotency_key": keys[0].decode() if keys else None} if self._takes_key else {}
        return {"body": body, "person": person, **key}


def _headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {b"idempotency-key": [], b"content-type": []}
    for name, value in headers:
        if name in found:
            found[name].append(value)
    return found


def _once_more(read: list[Message], receive: Receive) -> Receive:
    """A `receive` that first returns the messages in `read` again, and then goes on with `receive`."""
    left = iter(read)

    async def again() -> Message:
        message = next(left, None)
        return await receive() if message is None else message

    return again
