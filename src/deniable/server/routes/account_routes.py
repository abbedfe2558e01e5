"""Routes for ledgers, releases and labels; and for monitoring."""

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
"""The content security policy of a page that loads, runs and sends nothing."""


@final
class Form(StrEnum):
    """The format of a label."""

    JSON = "json"
    HTML = "html"
    SVG = "svg"


_WRITTEN: Final[dict[Form, tuple[Callable[[dict[str, Any]], str], str]]] = {
    Form.JSON: (partial(json.dumps, ensure_ascii=False), "application/json"),
    Form.HTML: (as_html, "text/html"),
    Form.SVG: (as_svg, "image/svg+xml"),
}
"""Form -> function that writes a label, and its media type."""


def router(desk: Desk) -> APIRouter:
    """/ledger, /releases and /labels."""
    routes, curator = APIRouter(prefix="/v1", tags=["records"]), desk.curator

    @routes.get("/ledger/{dataset}", response_class=Response)
    async def export(dataset: Name, person: Person = may("see ledger")) -> Response:
        """The ledger as JSON lines, without answers, with a signed checkpoint at its end; see `deniable verify`."""
        return Response(await desk.run(curator.export, person, dataset), media_type="application/x-ndjson")

    @routes.get("/ledger/{dataset}/accounts")
    async def accounts(dataset: Name, person: Person = may("see ledger")) -> Any:
        """Every limit: what was spent of it, what is left, and what was spent in total."""
        return {"accounts": await desk.run(curator.accounts, person, dataset)}

    @routes.get("/ledger/{dataset}/status")
    async def status(dataset: Name, person: Person = may("see ledger"), whole: bool = False) -> Any:
        """Recompute every hash, sum, limit and signature; a problem names the first bad entry.

        Of entries that were verified within the last ten minutes, only the newest is checked again, unless `whole`.
        """
        return await desk.run(partial(curator.verified, whole=whole), person, dataset)

    @routes.get("/overlaps")
    async def overlaps(person: Person = may("see overlaps")) -> Any:
        """Pairs of datasets of two owners that share most ids: the same people may have two budgets."""
        return {"overlaps": await desk.run(curator.overlaps)}

    @routes.get("/datasets/{dataset}/releases")
    async def releases(
        dataset: Name,
        person: Person = may("see labels"),
        before: Annotated[int | None, Query(ge=0, lt=2**31)] = None,
    ) -> Any:
        """A page of releases, newest first, without answers: who asked what. Analysts see their own.

        `before` in the answer is the parameter for the next page; null on the last.
        """
        return await desk.run(curator.releases, person, dataset, before)

    @routes.get("/labels/{release}", response_class=Response)
    async def label(release: Name, person: Person = may("see labels"), form: Form = Form.JSON) -> Response:
        """The signed privacy label of a release."""
        written, media = _WRITTEN[form]
        # Written in the worker thread: work in this coroutine would block all requests.
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
        """Whether the server runs."""
        return {"status": "ok", "version": __version__}

    @routes.get("/ready")
    async def ready() -> Any:
        """Whether the server can answer questions: database, disk, key, ledgers and engines. 503 if a check fails."""
        failed = await readiness.failed()
        if failed:
            raise Problem("not_ready", f"failed: {', '.join(failed)}", {"failed": failed})
        return {"status": "ready"}

    @routes.get("/metrics", response_class=PlainTextResponse)
    async def counted(person: Person = may("see metrics")) -> Response:
        """Counters in the text format of Prometheus. They do not depend on data."""
        return PlainTextResponse(metrics.text())

    return routes
