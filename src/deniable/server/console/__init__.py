"""The console: the curator in a browser, for owners, analysts, auditors and admins.

    console_guard       sign-in, cookies, form secrets, and the security policy of pages
    analyst_pages, owner_pages, auditor_pages, admin_pages      the pages of each role
    synthetic_pages, standing_pages      synthetic tables, standing questions
    page_templates, page_drawings, budget_words      filters of templates, SVG pictures, a budget in words
    templates, static   the HTML of the pages; the style sheet (with dark colours) and the script

The server renders pages from templates that escape everything. They work without scripts; a small script shows prices
while a person types. Nothing is loaded from other sites. The console calls the same curator and desk as the API, with
the same roles; it computes no prices, noise or charges itself.
"""

from __future__ import annotations

from fastapi import APIRouter

from deniable.server.console import (
    admin_pages,
    analyst_pages,
    auditor_pages,
    owner_pages,
    standing_pages,
    synthetic_pages,
)
from deniable.server.console.console_guard import Guard

__all__ = ["Guard", "router"]


def router(guard: Guard) -> APIRouter:
    """All pages."""
    routes = APIRouter()
    guard.add(routes)
    for each in (analyst_pages, owner_pages, synthetic_pages, standing_pages, auditor_pages, admin_pages):
        each.add(routes, guard)
    guard.add_last(routes)
    return routes
