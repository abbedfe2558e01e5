"""The right that a route needs: a verb of the table in `server.roles`."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, Request

from deniable.server.catalogue.catalogue import Person
from deniable.server.problems import Problem
from deniable.server.roles import MATRIX, refusal
from deniable.server.roles import may as allowed


def may(verb: str) -> Any:
    """The dependency of a route that gives it the person. Raises Problem `forbidden` if their role may not do this."""
    assert verb in MATRIX, verb

    async def check(request: Request) -> Person:  # async, because FastAPI runs other functions in a thread
        person: Person = request.scope["person"]
        if not allowed(person.role, verb):
            raise Problem("forbidden", refusal(person.role, verb))
        return person

    check.verb = verb  # type: ignore[attr-defined]  # for `route_shortcut`, and the test of all routes
    return Depends(check)
