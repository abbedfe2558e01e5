"""Routes for standing questions: declared and answered by owners, read by everybody who may see the dataset."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request

from deniable.server.catalogue.catalogue import Person
from deniable.server.request_bodies import NewStanding, RevealedDay
from deniable.server.requests.request_desk import Desk, body_hash
from deniable.server.routes.dataset_routes import Dataset
from deniable.server.routes.question_routes import Key
from deniable.server.routes.route_rights import may

Set = Annotated[str, Path(min_length=1, max_length=100, description="The name of the set of standing questions.")]
Confidence = Annotated[float, Query(ge=0.5, lt=1, description="The confidence level of the intervals.")]
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")


def router(desk: Desk) -> APIRouter:
    """/datasets/NAME/standing."""
    routes, standing = APIRouter(prefix="/v1", tags=["standing questions"]), desk.curator.standing

    @routes.get("/datasets/{name}/standing")
    async def listed(name: Dataset, person: Person = may("see standing questions")) -> Any:
        """The standing questions of a dataset, and the days that were answered."""
        return await desk.run(standing.listed, person, name)

    @routes.post("/datasets/{name}/standing")
    async def declare(
        request: Request,
        name: Dataset,
        body: NewStanding,
        person: Person = may("declare standing questions"),
        idempotency_key: Key = None,
    ) -> Any:
        """Declare questions that are paid once, and answered for each day: values of the column `by`.

        With `totals`, so many answers are running totals: each is about all rows up to its day.
        """
        return await desk.once(
            request, person, name, idempotency_key, body_hash(f"standing of {name}", body),
            lambda key: standing.declare(person, name, body.name, body.questions, body.by, body.cost()),
            whole=True,  # there are no numbers in it
        )  # fmt: skip

    @routes.get("/datasets/{name}/standing/{set}")
    async def described(
        name: Dataset,
        set: Set,
        person: Person = may("see standing questions"),
        prices: Annotated[bool, Query(description="Whether to say how exact the answers are.")] = False,
    ) -> Any:
        """One set: its questions, the days that were answered, and with `prices` how exact the answers are."""
        return await desk.run(partial(standing.described, prices=prices), person, name, set)

    @routes.post("/datasets/{name}/standing/{set}/days")
    async def reveal(
        request: Request,
        name: Dataset,
        set: Set,
        body: RevealedDay,
        person: Person = may("declare standing questions"),
        confidence: Confidence = 0.95,
    ) -> Any:
        """Answer the questions of a set for one day. Free: all days were paid for. A second time: the same answers.

        Answer a day when its rows are complete: its answers are final.
        """
        return await desk.answered(request, lambda: standing.reveal(person, name, set, body.day, confidence))

    @routes.get("/datasets/{name}/standing/{set}/days/{day}")
    async def read(
        request: Request,
        name: Dataset,
        set: Set,
        day: Annotated[str, Path(min_length=1, max_length=30, description="A date, or a whole number.")],
        person: Person = may("see standing questions"),
        confidence: Confidence = 0.95,
    ) -> Any:
        """The answers of a day, as a list, one for each question. Free."""
        return await desk.answered(request, lambda: standing.read(person, name, set, read_day(day), confidence))

    return routes


def read_day(text: str) -> str | int:
    """The day in the path of a request: a whole number, or a date as text."""
    return int(text) if _INTEGER.fullmatch(text) else text
