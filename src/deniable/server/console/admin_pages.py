"""Pages of an admin: people and invitations. Admins see neither data, nor questions, nor answers, nor tokens."""

from __future__ import annotations

import datetime as dt
from typing import Any

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.responses import Response

from deniable.errors import DeniableError, LedgerDamaged
from deniable.server.console.console_guard import Guard, Visit, as_problem, problem_values
from deniable.server.curator import Curator
from deniable.server.problems import Problem
from deniable.server.request_bodies import NewInvitation
from deniable.server.roles import Role


def add(routes: APIRouter, guard: Guard) -> None:
    """Add the pages of an admin, and the access log, which owners and auditors read."""
    guard.get(routes, "/console/people", "manage people", _people)
    guard.post(routes, "/console/people", "manage people", _invite)
    guard.post(routes, "/console/tokens/revoke", "manage people", _revoke)
    guard.get(routes, "/console/log", "see log", _log)


async def _people(visit: Visit) -> Response:
    return await _shown(visit)


async def _shown(
    visit: Visit, *, problem: dict[str, Any] | None = None, issued: dict[str, Any] | None = None
) -> Response:
    people = await visit.desk.run(_listed, visit.curator)
    status = 200 if problem is None else 422
    since = await visit.desk.run(visit.curator.reception.since, visit.person)
    values = {"people": people, "roles": list(Role), "problem": problem, "issued": issued, "since": since}
    return visit.page("people.html", status=status, **values)


def _listed(curator: Curator) -> list[dict[str, Any]]:
    found = []
    for person in curator.reception.people():
        tokens = curator.reception.tokens(person["name"]) if person["active"] else []
        open_ones = curator.reception.invitations(person["name"]) if person["active"] else []
        for each in (*tokens, *open_ones):
            each["until"] = dt.datetime.fromtimestamp(each["expires"], dt.UTC).date().isoformat()
        live = [each for each in tokens if not each["revoked"]]
        found.append({**person, "tokens": live, "invitations": open_ones})
    return found


async def _invite(visit: Visit) -> Response:
    """Invite a person. A new person needs a role; a known person keeps theirs."""
    fields = {"person": visit.text("person").strip(), **({"role": visit.text("role")} if "role" in visit.form else {})}
    try:
        body = NewInvitation.model_validate(fields)
        invite = visit.curator.reception.invite
        return await _shown(visit, issued=await visit.desk.run(invite, visit.person, body.person, body.role, None))
    except (Problem, DeniableError, ValidationError) as error:
        return await _shown(visit, problem=problem_values(as_problem(error)))


async def _revoke(visit: Visit) -> Response:
    await visit.desk.run(visit.curator.reception.revoke, visit.person, visit.text("id"))
    return visit.go("/console/people")


async def _log(visit: Visit) -> Response:
    found = await visit.desk.run(visit.curator.reception.log, visit.before)
    try:
        chain, broken = await visit.desk.run(visit.curator.reception.log_status), None
    except LedgerDamaged as error:
        chain, broken = None, {"entry": error.number, "fault": error.fault}
    return visit.page("log.html", chain=chain, broken=broken, **found)
