"""Datasets: what is public about them, their dummy rows, and how they are registered."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from deniable.server.bodies import DummyQuestion, NewDataset
from deniable.server.catalogue import Person
from deniable.server.desk import Desk
from deniable.server.routes.rights import may

Dataset = Annotated[str, Path(min_length=1, max_length=100)]


def router(desk: Desk) -> APIRouter:
    """/datasets."""
    routes, curator = APIRouter(prefix="/v1", tags=["datasets"]), desk.curator

    @routes.get("/datasets")
    async def listed(person: Person = may("see datasets")) -> Any:
        """The datasets that you may see."""
        return {"datasets": await desk.run(curator.listed, person)}

    @routes.post("/datasets", status_code=201)
    async def register(body: NewDataset, person: Person = may("register")) -> Any:
        """Register a dataset from files in the server's data folders."""
        return await desk.run(curator.register, person, body.name, body.sources, body.schema_, body.budget)

    @routes.get("/datasets/{name}")
    async def described(name: Dataset, person: Person = may("see datasets")) -> Any:
        """All that is public about a dataset: its schema, its budget, what is left."""
        return await desk.run(curator.described, person, name)

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
        """Try a question on dummy rows, for nothing."""
        return await desk.answered(request, lambda: curator.dummy_ask(person, name, body.sql, body.cost()))

    return routes
