"""People, their tokens, and what was granted to them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from deniable.server.bodies import NewPerson, NewToken
from deniable.server.catalogue import Person
from deniable.server.desk import Desk
from deniable.server.routes.rights import may

Who = Annotated[str, Path(min_length=1, max_length=100)]


def router(desk: Desk) -> APIRouter:
    """/people, /tokens and /me."""
    routes, curator = APIRouter(prefix="/v1", tags=["people"]), desk.curator

    @routes.get("/me")
    async def me(person: Person = may("see oneself")) -> Any:
        """Who you are here."""
        return {"name": person.name, "role": person.role}

    @routes.get("/people")
    async def listed(person: Person = may("manage people")) -> Any:
        """Everybody."""
        return {"people": await desk.run(curator.reception.people)}

    @routes.post("/people", status_code=201)
    async def add(body: NewPerson, person: Person = may("manage people")) -> Any:
        """Somebody new."""
        return await desk.run(curator.reception.add_person, body.name, body.role)

    @routes.delete("/people/{name}", status_code=204)
    async def close(name: Who, person: Person = may("manage people")) -> Response:
        """Nobody comes in under this name any more; what was spent under it stays spent."""
        await desk.run(curator.reception.close_person, name)
        return Response(status_code=204)

    @routes.get("/people/{name}/tokens")
    async def tokens(name: Who, person: Person = may("manage people")) -> Any:
        """The tokens of somebody: when they were made and when they end, never what they are."""
        return {"tokens": await desk.run(curator.reception.tokens, name)}

    @routes.post("/tokens", status_code=201)
    async def issue(body: NewToken, person: Person = may("manage people")) -> Any:
        """A new token. It is shown here once, and nowhere again."""
        return await desk.run(curator.reception.issue, body.person, body.days)

    @routes.delete("/tokens/{id}", status_code=204)
    async def revoke(id: Who, person: Person = may("manage people")) -> Response:
        """This token opens nothing any more."""
        await desk.run(curator.reception.revoke, id)
        return Response(status_code=204)

    @routes.get("/analysts")
    async def analysts(person: Person = may("see analysts")) -> Any:
        """The names to which an owner may grant something."""
        return {"analysts": await desk.run(curator.reception.analysts)}

    return routes
