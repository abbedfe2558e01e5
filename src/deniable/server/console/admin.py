"""People and tokens, for admins: they see neither data, nor questions, nor answers."""

from __future__ import annotations

import datetime as dt
from typing import Any

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.responses import Response

from deniable.errors import DeniableError
from deniable.server.bodies import NewPerson, NewToken
from deniable.server.console.guard import Guard, Visit, as_problem, told
from deniable.server.curator import Curator
from deniable.server.problems import Problem
from deniable.server.roles import Role


def add(routes: APIRouter, guard: Guard) -> None:
    """The page of an admin."""
    guard.get(routes, "/console/people", "manage people", _people)
    guard.post(routes, "/console/people", "manage people", _add)
    guard.post(routes, "/console/tokens", "manage people", _issue)
    guard.post(routes, "/console/tokens/revoke", "manage people", _revoke)


async def _people(visit: Visit) -> Response:
    return await _shown(visit)


async def _shown(
    visit: Visit, *, problem: dict[str, Any] | None = None, issued: dict[str, Any] | None = None
) -> Response:
    people = await visit.desk.run(_listed, visit.curator)
    status = 200 if problem is None else 422
    values = {"people": people, "roles": list(Role), "problem": problem, "issued": issued}
    return visit.page("people.html", status=status, **values)


def _listed(curator: Curator) -> list[dict[str, Any]]:
    found = []
    for person in curator.reception.people():
        tokens = curator.reception.tokens(person["name"]) if person["active"] else []
        for each in tokens:
            each["until"] = dt.datetime.fromtimestamp(each["expires"], dt.UTC).date().isoformat()
        found.append({**person, "tokens": [each for each in tokens if not each["revoked"]]})
    return found


async def _add(visit: Visit) -> Response:
    try:
        body = NewPerson.model_validate({"name": visit.text("name").strip(), "role": visit.text("role")})
        await visit.desk.run(visit.curator.reception.add_person, body.name, body.role)
        return await _token(visit, body.name)
    except (Problem, DeniableError, ValidationError) as error:
        return await _shown(visit, problem=told(as_problem(error)))


async def _issue(visit: Visit) -> Response:
    try:
        return await _token(visit, visit.text("person"))
    except (Problem, DeniableError, ValidationError) as error:
        return await _shown(visit, problem=told(as_problem(error)))


async def _token(visit: Visit, name: str) -> Response:
    body = NewToken.model_validate({"person": name})
    return await _shown(visit, issued=await visit.desk.run(visit.curator.reception.issue, body.person, None))


async def _revoke(visit: Visit) -> Response:
    await visit.desk.run(visit.curator.reception.revoke, visit.text("id"))
    return visit.go("/console/people")
