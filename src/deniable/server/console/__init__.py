"""The console: the curator in a browser, for owners, analysts, auditors and admins.

Pages are made on the server from templates that escape everything, and work without script; a small script of our own
shows prices while somebody types. Nothing is loaded from elsewhere. It asks the same curator and the same desk as the
API, under the same roles: no price, noise or charge is computed here.
"""

from __future__ import annotations

from fastapi import APIRouter

from deniable.server.console import admin_pages, analyst_pages, auditor_pages, owner_pages, synthetic_pages
from deniable.server.console.console_guard import Guard

__all__ = ["Guard", "router"]


def router(guard: Guard) -> APIRouter:
    """Every page."""
    routes = APIRouter()
    guard.add(routes)
    for each in (analyst_pages, owner_pages, synthetic_pages, auditor_pages, admin_pages):
        each.add(routes, guard)
    guard.add_last(routes)
    return routes
