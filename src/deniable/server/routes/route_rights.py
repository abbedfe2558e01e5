"""What a route needs: the verb of the matrix in `server.roles`."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, Request

from deniable.server.catalogue.catalogue import Person
from deniable.server.problems import Problem
from deniable.server.roles import MATRIX, refusal
from deniable.server.roles import may as allowed


def may(verb: str) -> Any:
    """The person who asks, if their role may do this."""
    assert verb in MATRIX, verb

    async def check(request: Request) -> Person:  # async: a plain function would be sent to another thread
        person: Person = request.scope["person"]
        if not allowed(person.role, verb):
            raise Problem("forbidden", refusal(person.role, verb))
        return person

    check.verb = verb  # type: ignore[attr-defined]  # for the test that looks at every route
    return Depends(check)
