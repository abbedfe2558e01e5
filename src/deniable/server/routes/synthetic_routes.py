"""Routes for synthetic tables: bought like answers, published by owners, downloaded as counts or as rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Final, final

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from deniable.server.catalogue.catalogue import Person
from deniable.server.datasets.synthetic_downloads import MOST_ROWS, DrawnFile
from deniable.server.request_bodies import SynthesisBody
from deniable.server.requests.request_desk import Desk, body_hash
from deniable.server.routes.dataset_routes import Dataset
from deniable.server.routes.question_routes import Key
from deniable.server.routes.route_rights import may

Charge = Annotated[int, Path(ge=1, lt=2**31, description="The charge: 7 of the release visits:7.")]
Asked = Annotated[
    str | None,
    Query(
        max_length=64,
        description="The hash of the question, for a table that another person paid for and you asked again.",
    ),
]


@final
class RowsForm(StrEnum):
    """The format of downloaded rows."""

    CSV = "csv"
    PARQUET = "parquet"


MEDIA: Final = {RowsForm.CSV: "text/csv; charset=utf-8", RowsForm.PARQUET: "application/vnd.apache.parquet"}


def router(desk: Desk) -> APIRouter:
    """/datasets/NAME/synthetic."""
    routes, made = APIRouter(prefix="/v1", tags=["synthetic data"]), desk.curator.synthetics

    async def _written(work: Callable[[], dict[str, Any]]) -> Response:
        """The result as JSON, written in the worker thread: work in a coroutine would block all requests."""
        body = await desk.run(lambda: json.dumps(work(), ensure_ascii=False))
        return Response(body, media_type="application/json")

    @routes.post("/datasets/{name}/synthetic:price")
    async def price(request: Request, name: Dataset, body: SynthesisBody, person: Person = may("price")) -> Any:
        """The price of a synthetic table, the noise of its counts, and how many rows a table needs for it to be useful.
        Free: no data is read.
        """
        return await desk.answered(request, lambda: made.price(person, name, body.arguments, body.cost()))

    @routes.post("/datasets/{name}/synthetic")
    async def synthesize(
        request: Request, name: Dataset, body: SynthesisBody, person: Person = may("ask"), idempotency_key: Key = None
    ) -> Any:
        """Measure noisy counts by each column and each pair of columns, or as `method` says, in one charge before any
        data is read.

        The answer holds the counts: `rows` has, for each table of counts, the columns it is by, the variance of the
        noise, and the counts in row-major order of `values`. `dn.connect(...).synthesize(...)` fits and draws from it.
        """
        return await desk.once(
            request, person, name, idempotency_key, body_hash(f"synthetic of {name}", body),
            lambda key: made.buy(person, name, body.arguments, body.cost(), key),
        )  # fmt: skip

    @routes.get("/datasets/{name}/synthetic")
    async def listed(
        name: Dataset,
        person: Person = may("see synthetic data"),
        before: Annotated[int | None, Query(ge=0, lt=2**31)] = None,
    ) -> Any:
        """A page of the synthetic tables that you bought or that the owner published, newest first. `before` in the
        answer is the parameter for the next page; null on the last.
        """
        return await _written(lambda: made.listed(person, name, before))

    @routes.get("/datasets/{name}/synthetic/{charge}")
    async def record(
        name: Dataset, charge: Charge, person: Person = may("see synthetic data"), question: Asked = None
    ) -> Any:
        """The counts of a synthetic table, as they were when it was bought. Free."""
        return await _written(lambda: made.record(person, name, charge, question))

    @routes.get("/datasets/{name}/synthetic/{charge}/rows", response_class=Response)
    async def rows(
        name: Dataset,
        charge: Charge,
        person: Person = may("see synthetic data"),
        rows: Annotated[int | None, Query(ge=1, le=MOST_ROWS)] = None,
        form: RowsForm = RowsForm.CSV,
        question: Asked = None,
    ) -> Response:
        """Rows drawn from a synthetic table, as a file. Default: about as many as the table has. Free.

        Each request draws new rows. The header `Deniable-Notes` holds notes about them, as a list in JSON.
        """
        return sent(await desk.fit(made.rows, person, name, charge, rows, form.value, question), MEDIA[form])

    @routes.put("/datasets/{name}/synthetic/{charge}/published")
    async def publish(name: Dataset, charge: Charge, person: Person = may("publish synthetic data")) -> Any:
        """Let everybody who may see the dataset download a synthetic table that you bought, free of charge."""
        return await desk.run(lambda: made.publish(person, name, charge, published=True))

    @routes.delete("/datasets/{name}/synthetic/{charge}/published")
    async def withdraw(name: Dataset, charge: Charge, person: Person = may("publish synthetic data")) -> Any:
        """Withdraw a published table. Copies that were downloaded remain, and what was spent stays spent."""
        return await desk.run(lambda: made.publish(person, name, charge, published=False))

    return routes


def sent(drawn: DrawnFile, media: str) -> Response:
    """The response that streams a file of rows."""
    headers = {
        "Content-Disposition": f'attachment; filename="{drawn.name}"',
        "Content-Length": str(drawn.size),
        "Deniable-Notes": json.dumps(drawn.notes),
    }
    return StreamingResponse(drawn.chunks(), headers=headers, media_type=media)
