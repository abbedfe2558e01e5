"""Routes for people, invitations, tokens, and the access log."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from deniable.server.catalogue.catalogue import Person
from deniable.server.request_bodies import NewInvitation, NewPerson, NewToken, Redemption
from deniable.server.requests.request_desk import Desk
from deniable.server.requests.request_gate import Keeper
from deniable.server.routes.route_rights import may

Who = Annotated[str, Path(min_length=1, max_length=100)]


def router(desk: Desk) -> APIRouter:
    """/people, /invitations, /tokens, /log and /me."""
    routes, reception = APIRouter(prefix="/v1", tags=["people"]), desk.curator.reception

    @routes.get("/me")
    async def me(person: Person = may("see oneself")) -> Any:
        """Your name and role."""
        return {"name": person.name, "role": person.role}

    @routes.get("/me/since")
    async def since(person: Person = may("see oneself")) -> Any:
        """Other invitations and tokens in your name, since you last used your present token on an earlier day."""
        return {"entries": await desk.run(reception.since, person)}

    @routes.get("/people")
    async def listed(person: Person = may("manage people")) -> Any:
        """All people, with their roles."""
        return {"people": await desk.run(reception.people)}

    @routes.post("/people", status_code=201)
    async def add(body: NewPerson, person: Person = may("manage people")) -> Any:
        """Add a person without a token, who signs in by OpenID Connect or is invited later."""
        return await desk.run(reception.add_person, person, body.name, body.role)

    @routes.delete("/people/{name}", status_code=204)
    async def close(name: Who, person: Person = may("manage people")) -> Response:
        """Close a person: their tokens are revoked, and what they spent stays spent."""
        await desk.run(reception.close_person, person, name)
        return Response(status_code=204)

    @routes.post("/invitations", status_code=201)
    async def invite(body: NewInvitation, person: Person = may("manage people")) -> Any:
        """Create an invitation, shown here once. It revokes all tokens of a known person; the log records it."""
        return await desk.run(reception.invite, person, body.person, body.role, body.days)

    @routes.get("/people/{name}/tokens")
    async def tokens(name: Who, person: Person = may("manage people")) -> Any:
        """The tokens of a person: ids and times, never the tokens themselves."""
        return {"tokens": await desk.run(reception.tokens, name)}

    @routes.post("/tokens", status_code=201)
    async def renew(body: NewToken, person: Person = may("see oneself")) -> Any:
        """Create a further token for yourself. It is shown here once."""
        return await desk.run(lambda: reception.issue(person.name, body.days, by=person.name))

    @routes.delete("/tokens/{id}", status_code=204)
    async def revoke(id: Who, person: Person = may("manage people")) -> Response:
        """Revoke a token."""
        await desk.run(reception.revoke, person, id)
        return Response(status_code=204)

    @routes.get("/log")
    async def log(person: Person = may("see log"), before: Annotated[int | None, Query(ge=0, lt=2**31)] = None) -> Any:
        """A page of the access log, newest first: who was added, invited, signed in or closed, and by whom."""
        return await desk.run(reception.log, before)

    @routes.get("/log/status")
    async def log_status(person: Person = may("see log")) -> Any:
        """Recompute every hash of the access log, and sign the newest one, to be kept elsewhere."""
        return await desk.run(reception.log_status)

    @routes.get("/analysts")
    async def analysts(person: Person = may("see analysts")) -> Any:
        """The names of the analysts, for grants."""
        return {"analysts": await desk.run(reception.analysts)}

    return routes


def open_router(desk: Desk, keeper: Keeper) -> APIRouter:
    """/redeem, for people with an invitation and without a token."""
    routes = APIRouter(tags=["people"])

    @routes.post("/redeem", status_code=201)
    async def redeem(request: Request, body: Redemption) -> Any:
        """Exchange an invitation for a token, once. The token is shown here once."""
        with keeper.stranger(request.scope):
            return await desk.run(desk.curator.reception.redeem, body.invitation)

    return routes
