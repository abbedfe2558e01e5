"""The account of a dataset, and what monitors need."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Final, final

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import PlainTextResponse

from deniable import __version__
from deniable.server.catalogue.catalogue import Person
from deniable.server.operations.metrics import Metrics
from deniable.server.operations.readiness import Readiness
from deniable.server.privacy_labels import as_html, as_svg
from deniable.server.problems import Problem
from deniable.server.requests.request_desk import Desk
from deniable.server.routes.route_rights import may

Name = Annotated[str, Path(min_length=1, max_length=200)]
_STILL: Final = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""A page that loads nothing, runs nothing and sends nothing."""


@final
class Form(StrEnum):
    """How a label is written."""

    JSON = "json"
    HTML = "html"
    SVG = "svg"


_WRITTEN: Final[dict[Form, tuple[Callable[[dict[str, Any]], str], str]]] = {
    Form.JSON: (partial(json.dumps, ensure_ascii=False), "application/json"),
    Form.HTML: (as_html, "text/html"),
    Form.SVG: (as_svg, "image/svg+xml"),
}
"""What writes a label in each form, and what that is."""


def router(desk: Desk) -> APIRouter:
    """/ledger, /releases and /labels."""
    routes, curator = APIRouter(prefix="/v1", tags=["records"]), desk.curator

    @routes.get("/ledger/{dataset}", response_class=Response)
    async def export(dataset: Name, person: Person = may("see ledger")) -> Response:
        """The whole history as JSONL, without answers, with a signed checkpoint at its end; see `deniable verify`."""
        return Response(await desk.run(curator.export, person, dataset), media_type="application/x-ndjson")

    @routes.get("/ledger/{dataset}/accounts")
    async def accounts(dataset: Name, person: Person = may("see ledger")) -> Any:
        """Every limit: how much of it was spent, is left, and was ever spent."""
        return {"accounts": await desk.run(curator.accounts, person, dataset)}

    @routes.get("/ledger/{dataset}/status")
    async def status(dataset: Name, person: Person = may("see ledger"), whole: bool = False) -> Any:
        """Recompute every hash, sum, limit and signature; a problem names the first entry that is wrong.

        Of what was recomputed within the last ten minutes, only the newest entry is looked at again, unless `whole`.
        """
        return await desk.run(partial(curator.verified, whole=whole), person, dataset)

    @routes.get("/overlaps")
    async def overlaps(person: Person = may("see overlaps")) -> Any:
        """Datasets of two owners that have most of their ids in common: two budgets for perhaps the same people."""
        return {"overlaps": await desk.run(curator.overlaps)}

    @routes.get("/datasets/{dataset}/releases")
    async def releases(
        dataset: Name,
        person: Person = may("see labels"),
        before: Annotated[int | None, Query(ge=0, lt=2**31)] = None,
    ) -> Any:
        """The newest releases, or those before an entry: who asked what, without the answers. Analysts see their own.

        `before` in the answer is where the next page begins; null on the last.
        """
        return await desk.run(curator.releases, person, dataset, before)

    @routes.get("/labels/{release}", response_class=Response)
    async def label(release: Name, person: Person = may("see labels"), form: Form = Form.JSON) -> Response:
        """The signed privacy label of a release."""
        written, media = _WRITTEN[form]
        # In the thread that reads it: whatever is done here, everybody waits for.
        body = await desk.run(lambda: written(curator.label(person, release)))
        still = {} if form is Form.JSON else {"Content-Security-Policy": _STILL}
        return Response(body, media_type=media, headers=still)

    @routes.get("/key", response_class=Response)
    async def key(person: Person = may("see oneself")) -> Response:
        """The public key that checks labels, adjustments and checkpoints, as PEM."""
        return Response(curator.key.public.pem(), media_type="application/x-pem-file")

    return routes


def open_router(metrics: Metrics, readiness: Readiness) -> APIRouter:
    """/health and /ready, which are open to everybody, and /metrics."""
    routes = APIRouter(tags=["operation"])

    @routes.get("/health")
    async def health() -> Any:
        """That the server runs."""
        return {"status": "ok", "version": __version__}

    @routes.get("/ready")
    async def ready() -> Any:
        """That the server can answer questions: database, disk, engines and key are there. 503 if one is not."""
        failed = await readiness.failed()
        if failed:
            raise Problem("not_ready", f"failed: {', '.join(failed)}", {"failed": failed})
        return {"status": "ready"}

    @routes.get("/metrics", response_class=PlainTextResponse)
    async def counted(person: Person = may("see metrics")) -> Response:
        """Counters in the text format of Prometheus. None of them depends on data."""
        return PlainTextResponse(metrics.text())

    return routes
