"""Pages for standing questions: the owner declares them and answers each day; everybody reads the days."""

from __future__ import annotations

import math
import secrets
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.responses import Response

from deniable.errors import NOTHING, DeniableError, InvalidParameter
from deniable.server.catalogue.catalogue import Person
from deniable.server.console.analyst_pages import account, answered
from deniable.server.console.console_guard import Guard, Visit, as_problem, problem_values
from deniable.server.curator import Curator
from deniable.server.request_bodies import NewStanding
from deniable.server.requests.request_desk import body_hash
from deniable.server.routes.standing_routes import read_day
from deniable.tables.kinds import Kind

_AMOUNT: Final = "1"
_MOST_DAYS: Final = 60
"""The most days of a set that have a link; the form reads any other day."""


def add(routes: APIRouter, guard: Guard) -> None:
    """Add the page and its forms."""
    guard.get(routes, "/console/data/{name}/standing", "see standing questions", _page)
    guard.post(routes, "/console/data/{name}/standing", "declare standing questions", _declare)
    guard.post(routes, "/console/data/{name}/standing/days", "declare standing questions", _reveal)


async def _page(visit: Visit) -> Response:
    """All sets; with ?set= and ?day= also the answers of that day."""
    parameters = visit.request.query_params
    name, day = parameters.get("set", ""), parameters.get("day", "").strip()
    if not name or not day:
        return await _shown(visit)
    standing = visit.curator.standing
    reply = await visit.desk.shown(
        visit.request, lambda: standing.read(visit.person, visit.dataset, name, read_day(day), 0.95)
    )
    if reply.status != 200:
        return await _shown(visit, reply.record, reply.status)
    tiles = await visit.desk.run(_tiles, visit.curator, visit.person, visit.dataset, reply.record)
    return await _shown(visit, read={"name": name, "day": day, "tiles": tiles})


def _tiles(curator: Curator, person: Person, dataset: str, record: dict[str, Any]) -> list[dict[str, Any]]:
    asked = curator.standing.described(person, dataset, record["name"])["questions"]
    return [answered(each) | {"asked": text} for each, text in zip(record["answers"], asked, strict=True)]


async def _shown(
    visit: Visit, problem: dict[str, Any] | None = None, status: int = 200, read: dict[str, Any] | None = None
) -> Response:
    found = await visit.desk.run(_about, visit.curator, visit.person, visit.dataset)
    typed = {each: visit.text(each) for each in ("set", "by", "questions", "totals")}
    return visit.page(
        "standing.html",
        status=status,
        dataset=visit.dataset,
        problem=problem,
        read=read,
        key=secrets.token_hex(16),
        typed=typed | {"amount": visit.text("amount", _AMOUNT)},
        most=_MOST_DAYS,
        **found,
    )


def _about(curator: Curator, person: Person, dataset: str) -> dict[str, Any]:
    opened, offered = curator.open(person, dataset), []
    for table in opened.tables.values():
        if table.unit is not None:
            offered += [
                name
                for name, domain in table.columns
                if name != table.unit.column and domain.kind in {Kind.DATE, Kind.INTEGER} and name not in offered
            ]
    sets = curator.standing.listed(person, dataset)["standing"]
    return {"account": account(curator, person, dataset), "offered": offered, "sets": sets}


async def _declare(visit: Visit) -> Response:
    """Declare through the desk, like the API: once for each key."""
    try:
        body = NewStanding.model_validate(_typed(visit))
    except (DeniableError, ValidationError) as error:
        return await _shown(visit, problem_values(as_problem(error)), 422)
    key = f"console-{visit.text('key')[:100]}" if visit.text("key") else None
    work = visit.curator.standing.declare
    reply = await visit.desk.shown_once(
        visit.request, visit.person, visit.dataset, key, body_hash(f"standing of {visit.dataset}", body),
        lambda key: work(visit.person, visit.dataset, body.name, body.questions, body.by, body.cost()),
        whole=True,
    )  # fmt: skip
    if reply.status != 200:
        return await _shown(visit, reply.record, reply.status)
    return visit.go(visit.request.url.path)


def _typed(visit: Visit) -> dict[str, Any]:
    """The declaration of the form: each question ends with a semicolon, or has a line of its own."""
    text = visit.text("questions").replace("\r\n", "\n")
    questions = [each.strip() for each in (text.split(";") if ";" in text else text.split("\n")) if each.strip()]
    if not questions:
        raise InvalidParameter("questions", NOTHING, "must not be empty", "write one on each line")
    try:
        epsilon = float(visit.text("amount"))
    except ValueError:
        epsilon = math.nan
    if not 0 < epsilon < 1e300:
        raise InvalidParameter("ε", NOTHING, "must be a positive number, such as 1")
    totals = visit.text("totals").strip()
    if totals and not (totals.isascii() and totals.isdigit() and len(totals) < 6):
        raise InvalidParameter("running totals", NOTHING, "must be a number of days, such as 365, or be left empty")
    found = {"name": visit.text("set"), "by": visit.text("by"), "questions": questions, "epsilon": epsilon}
    return found | ({"totals": int(totals)} if totals else {})


async def _reveal(visit: Visit) -> Response:
    """Answer a day, and go to its answers."""
    name, day = visit.text("set"), visit.text("day").strip()
    if not day:
        wrong = InvalidParameter("day", NOTHING, "is missing", "write a date or a number, as the column has")
        return await _shown(visit, problem_values(as_problem(wrong)), 422)
    standing = visit.curator.standing
    reply = await visit.desk.shown(
        visit.request, lambda: standing.reveal(visit.person, visit.dataset, name, read_day(day), 0.95)
    )
    if reply.status != 200:
        return await _shown(visit, reply.record, reply.status)
    return visit.go(f"{visit.request.url.path.rpartition('/')[0]}?{urlencode({'set': name, 'day': day})}")
