"""Pages of an auditor: the lifetime curve, who spent what and when, every entry, and the check of the chain."""

from __future__ import annotations

import itertools
from typing import Any, Final

from fastapi import APIRouter
from starlette.responses import Response

from deniable import plots
from deniable.errors import LedgerDamaged
from deniable.ledger import EVERYBODY, State
from deniable.plots.figure_spec import Axis, Figure, Line, Panel
from deniable.server.catalogue.catalogue import Person
from deniable.server.console import page_drawings
from deniable.server.console.analyst_pages import account
from deniable.server.console.budget_words import share
from deniable.server.console.console_guard import Guard, Visit
from deniable.server.console.owner_pages import accounts
from deniable.server.console.page_templates import greek, span
from deniable.server.curator import Curator

_SHOWN: Final = 100
"""Entries per page."""

_DRAWN: Final = 500
"""The approximate number of points of a drawn line."""


def add(routes: APIRouter, guard: Guard) -> None:
    """Add the pages of an auditor; owners see some of them as well."""
    guard.get(routes, "/console/data/{name}/ledger", "see ledger", _ledger)
    guard.get(routes, "/console/data/{name}/ledger.jsonl", "see ledger", _export)
    guard.get(routes, "/console/data/{name}/owner.pub", "see ledger", _key)
    guard.get(routes, "/console/overlaps", "see overlaps", _overlaps)


async def _ledger(visit: Visit) -> Response:
    found = await visit.desk.run(_book, visit.curator, visit.person, visit.dataset, visit.before)
    return visit.page("ledger.html", dataset=visit.dataset, **found)


def _book(curator: Curator, person: Person, dataset: str, before: int | None) -> dict[str, Any]:
    """The values of the page. If any entry is damaged, also one that was verified before, the page shows only that."""
    try:
        return _whole_book(curator, person, dataset, before)
    except LedgerDamaged as error:  # nothing else in the ledger can be trusted then
        return {"broken": {"entry": error.number, "fault": error.fault}}


def _whole_book(curator: Curator, person: Person, dataset: str, before: int | None) -> dict[str, Any]:
    ledger = curator.open(person, dataset).session.ledger
    chain = curator.verified(person, dataset)
    entries = list(ledger.entries())
    charged = {each.number: each.charge for each in entries if each.state is State.RESERVED}
    older = [each for each in reversed(entries) if before is None or each.number < before]
    numbers = {charged.get(each.closes or each.number, -1) for each in older[:_SHOWN]}
    known = curator.catalogue.releases(dataset, entries=sorted(numbers), most=_SHOWN)
    releases = {each.entry: f"{dataset}:{each.entry}" for each in known}
    shown = [
        {
            "number": each.number,
            "time": each.time,
            "state": each.state.value,
            "payer": each.payer or getattr(each.terms or each.rotation or each.statement, "by", ""),
            "cost": each.charged.describe(ledger.budget) if each.charged.units else "",
            "description": _description(each, ledger.budget),
            "hash": each.hash,
            "release": releases.get(charged.get(each.closes or each.number, -1)),
        }
        for each in itertools.islice(older, _SHOWN)
    ]
    limits = accounts(ledger)
    return {
        "chain": chain,
        "broken": None,
        "account": account(curator, person, dataset),
        "limits": [each for each in limits if each["name"] != EVERYBODY],
        "curve": page_drawings.drawn(_curve(ledger)),
        "growth": page_drawings.drawn(_growth(ledger, entries))
        if any(each.charged.units for each in entries)
        else None,
        "entries": shown,
        "older": shown[-1]["number"] if len(older) > _SHOWN else None,
    }


def _description(entry: Any, budget: Any) -> str:
    """The description of an entry: for a limit also whose and how much, for a new key which one."""
    if entry.rotation is not None:
        return f"the owner's key is now {entry.rotation.successor} ({entry.description})"
    if entry.terms is None:
        return str(entry.description)
    whose = "the dataset" if entry.terms.account == EVERYBODY else entry.terms.account
    window = "" if entry.terms.window is None else f" each {span(entry.terms.window)}"
    limit = greek(entry.terms.limit.describe(budget)) if entry.terms.limit.units else "nothing"
    return f"{whose} may spend {limit}{window} ({entry.description})"


def _curve(ledger: Any) -> Figure:
    """The trade-off curves of everything released so far, and of the whole limit."""
    return plots.tradeoff({"released so far": ledger.spent, "limit": ledger.budget.curve(ledger.limit)})


def _growth(ledger: Any, entries: list[Any]) -> Figure:
    """The spent share of the budget, entry by entry: in total, and for each payer."""
    totals: dict[str, int] = {"all": 0}
    lines: dict[str, list[tuple[float, float]]] = {"all": [(0.0, 0.0)]}
    whole = ledger.limit.units or 1
    for each in entries:
        if not each.charged.units:
            continue
        for name in ("all", f"by {each.payer}" if each.payer else "by nobody named"):
            before = 100 * totals.get(name, 0) / whole
            totals[name] = totals.get(name, 0) + each.charged.units
            points = lines.setdefault(name, [(0.0, 0.0)])
            points += [(float(each.number), before), (float(each.number), 100 * totals[name] / whole)]
    for name, points in lines.items():  # a long history is thinned out; its end is kept
        lines[name] = [*points[:: max(1, len(points) // _DRAWN)], points[-1]]
    end = float(entries[-1].number)
    payers = sorted((name for name in lines if name != "all"), key=lambda name: -totals[name])
    shown = ["all", *payers[:5]] if len(payers) > 1 else payers  # with one payer, both lines would be equal
    marks = [
        Line(name, (*(x for x, _ in lines[name]), end), (*(y for _, y in lines[name]), lines[name][-1][1]), colour)
        for colour, name in enumerate(shown)
    ]
    top = max(1.0, 100 * share(ledger.charged, ledger.limit)) * 1.08
    panel = Panel(Axis("entry of the ledger", 0, end), Axis("% of the budget", 0, top), tuple(marks))
    note = "Each step is a charge. The axis is in the measure in which costs add up exactly."
    return Figure("Spending, entry by entry", (panel,), note)


async def _overlaps(visit: Visit) -> Response:
    return visit.page("overlaps.html", overlaps=await visit.desk.run(visit.curator.overlaps))


async def _export(visit: Visit) -> Response:
    body = await visit.desk.run(visit.curator.export, visit.person, visit.dataset)
    kept = {"Content-Disposition": 'attachment; filename="ledger.jsonl"'}
    return Response(body, headers=kept, media_type="application/x-ndjson")


async def _key(visit: Visit) -> Response:
    """The first key of the ledger, for `deniable verify`: each key vouches for the next."""
    body = await visit.desk.run(_first_key, visit.curator, visit.person, visit.dataset)
    kept = {"Content-Disposition": 'attachment; filename="owner.pub"'}
    return Response(body, headers=kept, media_type="application/x-pem-file")


def _first_key(curator: Curator, person: Person, dataset: str) -> bytes:
    return curator.open(person, dataset).session.ledger.keys[0].pem()
