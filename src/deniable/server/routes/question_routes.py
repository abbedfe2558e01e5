"""Routes for questions: prices, plans, answers and batches."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request

from deniable.server.api_records import priced_batch
from deniable.server.catalogue.catalogue import Person
from deniable.server.request_bodies import Batch, Explained, FreshQuestion, Question
from deniable.server.requests.request_desk import Desk, body_hash
from deniable.server.routes.route_rights import may

Key = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="A request that is repeated with the same key is charged once.",
    ),
]


def router(desk: Desk) -> APIRouter:
    """/questions and its variants."""
    routes, curator = APIRouter(prefix="/v1", tags=["questions"]), desk.curator

    @routes.post("/questions:price")
    async def price(request: Request, body: Question, person: Person = may("price")) -> Any:
        """The price of a question, and how exact its answer would be. Free: no data is read."""
        return await desk.answered(request, lambda: curator.price(person, body.dataset, body.question, body.cost()))

    @routes.post("/questions:explain")
    async def explain(request: Request, body: Explained, person: Person = may("price")) -> Any:
        """The plan of a question: stabilities, sensitivities, noise, and the SQL sent. Free: no data is read."""
        return await desk.answered(request, lambda: curator.explain(person, body.dataset, body.question, body.price()))

    @routes.post("/questions")
    async def ask(
        request: Request, body: FreshQuestion, person: Person = may("ask"), idempotency_key: Key = None
    ) -> Any:
        """Answer a question. It is charged before any data is read, and stays charged if the run fails."""
        return await desk.once(
            request, person, body.dataset, idempotency_key, body_hash("ask", body),
            lambda key: curator.ask(person, body.dataset, body.question, {**body.cost(), "fresh": body.fresh}, key),
        )  # fmt: skip

    @routes.post("/questions:refine")
    async def refine(request: Request, body: Question, person: Person = may("ask"), idempotency_key: Key = None) -> Any:
        """Spend more on an answered question: both answers are merged by inverse variance."""
        return await desk.once(
            request, person, body.dataset, idempotency_key, body_hash("refine", body),
            lambda key: curator.refine(person, body.dataset, body.question, body.cost(), key),
        )  # fmt: skip

    @routes.post("/questions:batch")
    async def batch(request: Request, body: Batch, person: Person = may("ask"), idempotency_key: Key = None) -> Any:
        """Answer several questions that share one cost: all are charged, or none."""
        return await desk.once(
            request, person, body.dataset, idempotency_key, body_hash("batch", body),
            lambda key: curator.batch(person, body.dataset, body.texts, body.cost(), key),
        )  # fmt: skip

    @routes.post("/questions:price_batch")
    async def price_batch(request: Request, body: Batch, person: Person = may("price")) -> Any:
        """The price of a batch, how exact each table would be, and how the cost is split. Free: no data is read."""
        return await desk.answered(
            request,
            lambda: priced_batch(
                curator.open(person, body.dataset).session, body.dataset, body.texts, payer=person.name, **body.cost()
            ),
        )

    return routes
