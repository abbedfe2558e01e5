"""Routes for datasets: public facts, dummy rows, registration, bounds, grants and adjustments."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from deniable.server.api_records import RECORDS
from deniable.server.catalogue.catalogue import Person
from deniable.server.request_bodies import Adjustment, BoundsBody, DummyQuestion, Grant, NewDataset, NewVersion
from deniable.server.requests.request_desk import Desk, body_hash
from deniable.server.routes.question_routes import Key
from deniable.server.routes.route_rights import may

Dataset = Annotated[str, Path(min_length=1, max_length=100)]


def router(desk: Desk) -> APIRouter:
    """/datasets."""
    routes, curator = APIRouter(prefix="/v1", tags=["datasets"]), desk.curator

    @routes.get("/datasets")
    async def listed(person: Person = may("see datasets")) -> Any:
        """The datasets that you may see."""
        return {"datasets": await desk.run(curator.listed, person), "records": RECORDS}

    @routes.post("/datasets", status_code=201)
    async def register(body: NewDataset, person: Person = may("register")) -> Any:
        """Register a dataset from files in the server's data folders."""
        arguments = body.name, body.sources, body.schema_, body.budget, body.family, body.people, body.reason
        return await desk.register(curator.register, person, *arguments)

    @routes.get("/datasets/{name}")
    async def described(name: Dataset, person: Person = may("see datasets")) -> Any:
        """The public facts of a dataset: its schema, its budget, and what is left."""
        return await desk.run(curator.described, person, name)

    @routes.get("/datasets/{name}/versions")
    async def versions(name: Dataset, person: Person = may("see datasets")) -> Any:
        """The declared versions of a dataset, oldest first, and the one that questions are asked about."""
        return await desk.run(curator.versions.listed, person, name)

    @routes.post("/datasets/{name}/versions", status_code=201)
    async def declare(name: Dataset, body: NewVersion, person: Person = may("register")) -> Any:
        """Declare a new version: other files of the same people, with the same budget."""
        return await desk.register(curator.versions.declare, person, name, body.version, body.sources, body.schema_)

    @routes.get("/datasets/{name}/dummy")
    async def dummy(
        name: Dataset,
        person: Person = may("see dummy rows"),
        rows: Annotated[int, Query(ge=1, le=1000)] = 20,
    ) -> Any:
        """Dummy rows, made from the public schema alone."""
        return await desk.run(curator.dummy, person, name, rows)

    @routes.post("/datasets/{name}/dummy:ask")
    async def dummy_ask(
        request: Request, name: Dataset, body: DummyQuestion, person: Person = may("ask dummy rows")
    ) -> Any:
        """Try a question on dummy rows, free of charge."""
        return await desk.answered(request, lambda: curator.dummy_ask(person, name, body.question, body.cost()))

    @routes.post("/datasets/{name}/bounds:price")
    async def price_bounds(
        request: Request, name: Dataset, body: BoundsBody, person: Person = may("buy bounds")
    ) -> Any:
        """The price of bounds of a column, and how many rows a bin needs to be seen. Free: no data is read."""
        return await desk.answered(
            request, lambda: curator.price_bounds(person, name, body.column, body.table, body.cost())
        )

    @routes.post("/datasets/{name}/bounds")
    async def bounds(
        request: Request,
        name: Dataset,
        body: BoundsBody,
        person: Person = may("buy bounds"),
        idempotency_key: Key = None,
    ) -> Any:
        """Buy bounds of a column of numbers, dates or timestamps that has none. They become part of the schema."""
        return await desk.once(
            request, person, name, idempotency_key, body_hash(f"bounds of {name}", body),
            lambda key: curator.bounds(person, name, body.column, body.table, body.cover, body.cost(), key),
            whole=True,  # a column with bounds cannot be asked again
        )  # fmt: skip

    @routes.get("/datasets/{name}/grants")
    async def grants(name: Dataset, person: Person = may("see grants")) -> Any:
        """The analysts who may ask about a dataset, and their limits."""
        return {"grants": await desk.run(curator.grants, person, name)}

    @routes.post("/datasets/{name}/grants", status_code=201)
    async def grant(name: Dataset, body: Grant, person: Person = may("grant")) -> Any:
        """Let an analyst ask, up to a share of the budget. The ledger records it."""
        return await desk.run(curator.grant, person, name, body.analyst, body.limit, body.window_seconds)

    @routes.delete("/datasets/{name}/grants/{analyst}", status_code=204)
    async def revoke(name: Dataset, analyst: Dataset, person: Person = may("grant")) -> Response:
        """Revoke the right of an analyst to ask. What they spent stays spent."""
        await desk.run(curator.revoke_grant, person, name, analyst)
        return Response(status_code=204)

    @routes.get("/datasets/{name}/failures")
    async def failures(name: Dataset, person: Person = may("see failures")) -> Any:
        """Runs that failed, and were answered as if the tables were empty. For the owner alone."""
        return {"failures": await desk.run(curator.failures, person, name)}

    @routes.post("/datasets/{name}/adjustments", status_code=201)
    async def adjust(name: Dataset, body: Adjustment, person: Person = may("adjust")) -> Any:
        """Change the budget of a dataset, by a signed entry of the ledger. What was spent stays spent."""
        return await desk.run(curator.adjust, person, name, body.budget, body.reason)

    return routes
