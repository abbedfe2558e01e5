"""People, their tokens, and what was granted to them."""

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
        """Who you are here."""
        return {"name": person.name, "role": person.role}

    @routes.get("/me/since")
    async def since(person: Person = may("see oneself")) -> Any:
        """Invitations and tokens in your name beside the one you use, since you last used it on an earlier day."""
        return {"entries": await desk.run(reception.since, person)}

    @routes.get("/people")
    async def listed(person: Person = may("manage people")) -> Any:
        """Everybody."""
        return {"people": await desk.run(reception.people)}

    @routes.post("/people", status_code=201)
    async def add(body: NewPerson, person: Person = may("manage people")) -> Any:
        """Somebody new, without a way in: for who comes by OpenID Connect, or is invited later."""
        return await desk.run(reception.add_person, person, body.name, body.role)

    @routes.delete("/people/{name}", status_code=204)
    async def close(name: Who, person: Person = may("manage people")) -> Response:
        """Nobody comes in under this name any more; what was spent under it stays spent."""
        await desk.run(reception.close_person, person, name)
        return Response(status_code=204)

    @routes.post("/invitations", status_code=201)
    async def invite(body: NewInvitation, person: Person = may("manage people")) -> Any:
        """An invitation, shown here once. Who was here before loses their tokens with it, and the log says so."""
        return await desk.run(reception.invite, person, body.person, body.role, body.days)

    @routes.get("/people/{name}/tokens")
    async def tokens(name: Who, person: Person = may("manage people")) -> Any:
        """The tokens of somebody: when they were made and when they end, never what they are."""
        return {"tokens": await desk.run(reception.tokens, name)}

    @routes.post("/tokens", status_code=201)
    async def renew(body: NewToken, person: Person = may("see oneself")) -> Any:
        """A further token for yourself. It is shown here once, and nowhere again."""
        return await desk.run(lambda: reception.issue(person.name, body.days, by=person.name))

    @routes.delete("/tokens/{id}", status_code=204)
    async def revoke(id: Who, person: Person = may("manage people")) -> Response:
        """This token opens nothing any more."""
        await desk.run(reception.revoke, person, id)
        return Response(status_code=204)

    @routes.get("/log")
    async def log(person: Person = may("see log"), before: Annotated[int | None, Query(ge=0, lt=2**31)] = None) -> Any:
        """Who was added, invited, let in and shut out, by whom: the newest, or those before an entry."""
        return await desk.run(reception.log, before)

    @routes.get("/log/status")
    async def log_status(person: Person = may("see log")) -> Any:
        """Recompute every hash of the log; its newest hash is signed, to be kept elsewhere."""
        return await desk.run(reception.log_status)

    @routes.get("/analysts")
    async def analysts(person: Person = may("see analysts")) -> Any:
        """The names to which an owner may grant something."""
        return {"analysts": await desk.run(reception.analysts)}

    return routes


def open_router(desk: Desk, keeper: Keeper) -> APIRouter:
    """/redeem: for who has an invitation and no token yet."""
    routes = APIRouter(tags=["people"])

    @routes.post("/redeem", status_code=201)
    async def redeem(request: Request, body: Redemption) -> Any:
        """Exchange an invitation for a token, once. The token is shown here once, and nowhere again."""
        with keeper.stranger(request.scope):
            return await desk.run(desk.curator.reception.redeem, body.invitation)

    return routes
