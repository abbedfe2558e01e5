"""The account of a dataset, and what monitors need."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from deniable import __version__
from deniable.server.catalogue import Person
from deniable.server.desk import Desk
from deniable.server.metrics import Metrics
from deniable.server.routes.rights import may


def router(desk: Desk) -> APIRouter:
    """/ledger and /labels."""
    return APIRouter(prefix="/v1", tags=["records"])


def open_router(desk: Desk, metrics: Metrics) -> APIRouter:
    """/health, which is open to everybody, and /metrics."""
    routes = APIRouter(tags=["operation"])

    @routes.get("/health")
    async def health() -> Any:
        """That the server runs."""
        return {"status": "ok", "version": __version__}

    @routes.get("/metrics")
    async def counted(person: Person = may("see metrics")) -> Response:
        """Counters in the text format of Prometheus. None of them depends on data."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    return routes
