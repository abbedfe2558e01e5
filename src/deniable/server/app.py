"""The ASGI application: all routes and pages, behind the gate that every request passes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from deniable import __version__
from deniable.errors import DeniableError
from deniable.server import console, error_words
from deniable.server.curator import Curator
from deniable.server.operations.metrics import Metrics
from deniable.server.operations.readiness import Readiness
from deniable.server.operations.settings import Settings
from deniable.server.problems import CODES, MEDIA_TYPE, Problem, problem_of
from deniable.server.requests.request_desk import Desk
from deniable.server.requests.request_gate import Keeper, RequestGate
from deniable.server.requests.route_shortcut import Lane
from deniable.server.routes import (
    account_routes,
    dataset_routes,
    people_routes,
    question_routes,
    standing_routes,
    synthetic_routes,
)

_STATUSES: Final = {404: "not_found", 405: "method", 413: "too_large", 415: "media_type"}


def app(settings: Settings) -> ASGIApp:
    """The server as an ASGI application, for uvicorn or a test."""
    return served(Curator(settings))


def served(curator: Curator) -> ASGIApp:
    """The ASGI application of an existing curator. It closes the curator when it shuts down."""
    desk, metrics, keeper, readiness = Desk(curator), Metrics(), Keeper(curator), Readiness(curator)
    guard = console.Guard(curator, desk, keeper)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        warming = asyncio.get_running_loop().run_in_executor(None, curator.datasets.warm)
        yield
        await warming
        desk.close()
        keeper.close()
        readiness.close()
        curator.close()

    inside = FastAPI(
        title="deniable",
        version=__version__,
        summary="Questions to tables, under a budget that cannot be overspent.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # FastAPI would serialise it for every request; see `_describe`
        responses=_problems(),
    )
    inside.state.curator, inside.state.desk, inside.state.keeper = curator, desk, keeper
    questions = question_routes.router(desk)
    inside.include_router(questions)
    for each in (dataset_routes, people_routes, account_routes, synthetic_routes, standing_routes):
        inside.include_router(each.router(desk))
    inside.include_router(people_routes.open_router(desk, keeper))
    inside.include_router(account_routes.open_router(metrics, readiness))
    inside.state.guard = guard
    inside.include_router(console.router(guard))
    _describe(inside)
    inside.add_exception_handler(Problem, _problem)
    inside.add_exception_handler(RequestValidationError, _invalid)
    inside.add_exception_handler(HTTPException, _http)
    inside.add_exception_handler(DeniableError, _problem)
    inside.add_exception_handler(Exception, _problem)  # the gate logs it, without its message
    return RequestGate(Lane(inside, questions), curator, metrics, keeper, page=guard.shown, cookie=guard.token)


def _describe(inside: FastAPI) -> None:
    """Add /openapi.json, the description of the API, which is serialised once."""

    @cache
    def written() -> bytes:
        return json.dumps(inside.openapi(), ensure_ascii=False, separators=(",", ":")).encode()

    async def described(_: Request) -> Response:
        return Response(written(), media_type="application/json")

    @cache
    def patterns() -> list[tuple[re.Pattern[str], set[str]]]:
        return [
            (re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))), {method.upper() for method in methods})
            for path, methods in inside.openapi()["paths"].items()
        ]

    inside.add_route("/openapi.json", described, include_in_schema=False)
    inside.state.patterns = patterns


def _problems() -> dict[int | str, dict[str, Any]]:
    """For the description of the API: every status of a problem, with its titles."""
    content = {MEDIA_TYPE: {"schema": {"type": "object"}}}
    return {
        status: {
            "description": "; ".join(title for each, title in CODES.values() if each == status),
            "content": content,
        }
        for status in sorted({status for status, _ in CODES.values()})
    }


async def _problem(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    page = request.app.state.guard.shown(request.scope, problem)
    return page or Response(problem.body(), problem.status, problem.headers, MEDIA_TYPE)


async def _invalid(request: Request, error: Exception) -> Response:
    """A request that does not validate: names the parts and the rules, and never repeats what was sent."""
    assert isinstance(error, RequestValidationError)
    wrong = error.errors()
    if any(each["type"] == "json_invalid" for each in wrong):
        return await _problem(request, Problem("unreadable", "the body must be JSON"))
    model = _model(request)
    found = error_words.wrongs(wrong[:20], model)
    if [each["where"] for each in found] == ["body"] and "json" not in request.headers.get("Content-Type", "").lower():
        found[0]["rule"] += " in JSON, sent with Content-Type: application/json"
    facts: dict[str, Any] = {"errors": found}
    if len(found) == 1:
        facts |= {"parameter": error_words.field(found[0]["where"], model), "rule": found[0]["rule"]}
    detail = "; ".join(f"{each['where'].removeprefix('body.')}: {each['rule']}" for each in found)
    return await _problem(request, Problem("invalid", detail, facts))


def _model(request: Request) -> Any:
    """The class of the body that the route of a request takes; None if the route takes no body."""
    field = getattr(request.scope.get("route"), "body_field", None)
    return None if field is None else field.field_info.annotation


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = _methods(request) or headers.get("Allow", "")
        detail = f"{request.method} is not allowed at this address; it accepts {headers['Allow']}"
    else:
        detail = "this address does not exist; /openapi.json lists all addresses" if error.status_code == 404 else ""
    return await _problem(request, Problem(_STATUSES.get(error.status_code, "unreadable"), detail, headers=headers))


def _methods(request: Request) -> str:
    """All methods of a path. FastAPI's own list has only those of the first route that matches."""
    path = request.url.path
    found = {each for pattern, methods in request.app.state.patterns() if pattern.fullmatch(path) for each in methods}
    return ", ".join(sorted(found))
