"""Pages for synthetic tables: buy, publish (as the owner), and download rows."""

from __future__ import annotations

import json
import math
import secrets
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.responses import Response

from deniable.errors import NOTHING, DeniableError, InvalidParameter
from deniable.queries.plan.answer_notes import short
from deniable.queries.synthetic.synthesis_request import DEFAULT_METHOD
from deniable.server.catalogue.catalogue import Person
from deniable.server.console.analyst_pages import account
from deniable.server.console.console_guard import Guard, Visit, as_problem, problem_values
from deniable.server.curator import Curator
from deniable.server.datasets.synthetic_downloads import MOST_ROWS, checked_rows
from deniable.server.noted_questions import NotedSynthesis
from deniable.server.problems import Problem
from deniable.server.request_bodies import SynthesisBody
from deniable.server.requests.request_desk import body_hash
from deniable.server.routes.synthetic_routes import MEDIA, RowsForm, sent

_AMOUNT: Final = "0.5"
_MOST: Final = 64


def add(routes: APIRouter, guard: Guard) -> None:
    """Add the page, its forms, and the download."""
    guard.get(routes, "/console/data/{name}/synthetic", "see synthetic data", _page)
    guard.post(routes, "/console/data/{name}/synthetic", "ask", _buy)
    guard.post(routes, "/console/data/{name}/synthetic/price", "price", _price)
    guard.get(routes, "/console/data/{name}/synthetic/{charge}/rows", "see synthetic data", _rows)
    guard.post(routes, "/console/data/{name}/synthetic/{charge}/publish", "publish synthetic data", _publish)
    guard.post(routes, "/console/data/{name}/synthetic/{charge}/withdraw", "publish synthetic data", _withdraw)


async def _page(visit: Visit) -> Response:
    return await _shown(visit)


async def _shown(
    visit: Visit, problem: dict[str, Any] | None = None, status: int = 200, priced: dict[str, Any] | None = None
) -> Response:
    found = await visit.desk.run(_about, visit.curator, visit.person, visit.dataset, visit.before)
    typed = {
        "amount": visit.text("amount", _AMOUNT),
        "target": visit.text("target"),
        "method": visit.text("method", DEFAULT_METHOD),
        "chosen": visit.form.getlist("column"),
    }
    asked = visit.request.query_params
    ready = {"entry": _number(asked.get("made", "")), "question": asked.get("question", "")[:64]}
    return visit.page(
        "synthetic.html",
        status=status,
        dataset=visit.dataset,
        problem=problem,
        priced=priced,
        key=secrets.token_hex(16),
        ready=ready if ready["entry"] else None,
        replayed="replayed" in asked,
        most=MOST_ROWS,
        **typed,
        **found,
    )


def _about(curator: Curator, person: Person, dataset: str, before: int | None = None) -> dict[str, Any]:
    offered, left_out = [], []
    for name, table in curator.open(person, dataset).tables.items():
        if table.unit is None:
            continue
        for column, domain in table.columns:
            if column == table.unit.column:
                continue
            if domain.keys is None and domain.bounds is None:
                left_out.append(column)
            else:
                offered.append((json.dumps([name, column]), column, name))
    page = curator.synthetics.listed(person, dataset, before)
    return {
        "account": account(curator, person, dataset),
        "offered": offered,
        "several": len({table for _, _, table in offered}) > 1,
        "left_out": left_out,
        "made": [{**each, "words": _words(each)} for each in page["synthetic"]],
        "older": page["before"],
    }


def _words(listed: dict[str, Any]) -> str:
    parameters = {name: listed.get(name) for name in ("table", "columns", "target", "method", "workload")}
    return NotedSynthesis(parameters).words().removeprefix("synthetic table of ")


def _asked(visit: Visit) -> SynthesisBody:
    """The request of the form. Raises InvalidParameter if its columns are not among those that the page offers."""
    chosen = visit.form.getlist("column")
    offered = {value: (table, column) for value, column, table in _offered(visit)}
    if not chosen or len(chosen) > _MOST or any(each not in offered for each in chosen):
        raise InvalidParameter("columns", NOTHING, f"must be 1 to {_MOST} of the offered ones", "tick the columns")
    found = [offered[str(each)] for each in chosen]
    if len({table for table, _ in found}) > 1:
        raise InvalidParameter("columns", NOTHING, "must all belong to one table")
    try:
        epsilon = float(visit.text("amount"))
    except ValueError:
        epsilon = math.nan
    if not 0 < epsilon < 1e300:
        raise InvalidParameter("ε", NOTHING, "must be a positive number, such as 0.5")
    target = visit.text("target")
    columns = [column for _, column in found]
    method: Any = visit.text("method", DEFAULT_METHOD)
    return SynthesisBody(table=found[0][0], columns=columns, target=target or None, method=method, epsilon=epsilon)


def _offered(visit: Visit) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = _about(visit.curator, visit.person, visit.dataset)["offered"]
    return found


async def _price(visit: Visit) -> Response:
    """The price of the form's request, on the same page. Free: no data is read."""
    try:
        body = await visit.desk.run(_asked, visit)
    except (DeniableError, ValidationError) as error:
        return await _shown(visit, problem_values(as_problem(error)), 422)
    reply = await visit.desk.shown(
        visit.request,
        lambda: visit.curator.synthetics.price(visit.person, visit.dataset, body.arguments, body.cost()),
    )
    if reply.status != 200:
        return await _shown(visit, reply.record, reply.status)
    record = dict(reply.record)
    low, high = (short(each(record["deviations"].values())) for each in (min, max))
    record["noise"] = low if low == high else f"{low} to {high}"
    record["chosen_noise"] = short(record["chosen"]["deviation"]) if "chosen" in record else ""
    return await _shown(visit, priced=record)


async def _buy(visit: Visit) -> Response:
    """Buy through the desk, like the API: once for each key, charged before data is read, on the time grid."""
    try:
        body = await visit.desk.run(_asked, visit)
    except (DeniableError, ValidationError) as error:
        return await _shown(visit, problem_values(as_problem(error)), 422)
    key = f"console-{visit.text('key')[:100]}" if visit.text("key") else None
    reply = await visit.desk.shown_once(
        visit.request, visit.person, visit.dataset, key, body_hash(f"synthetic of {visit.dataset}", body),
        lambda key: visit.curator.synthetics.buy(visit.person, visit.dataset, body.arguments, body.cost(), key),
    )  # fmt: skip
    if reply.status != 200:
        return await _shown(visit, reply.record, reply.status)
    papers = reply.record["provenance"]
    place = {"made": papers["entry"], "question": papers["question"]} | ({"replayed": 1} if papers["replayed"] else {})
    return visit.go(f"{visit.request.url.path}?{urlencode(place)}")


async def _rows(visit: Visit) -> Response:
    parameters = visit.request.query_params
    form, many = parameters.get("form", "csv"), parameters.get("rows", "")
    if form not in set(RowsForm):
        raise InvalidParameter("form", NOTHING, "must be csv or parquet")
    if many and not (many.isascii() and many.isdigit() and len(many) < 10):
        raise InvalidParameter("rows", NOTHING, f"must be from 1 to {MOST_ROWS:,}")
    count = checked_rows(int(many) if many else None)
    work = visit.curator.synthetics.rows
    made = await visit.desk.fit(
        work, visit.person, visit.dataset, _charge(visit), count, form, parameters.get("question") or None
    )
    return sent(made, MEDIA[RowsForm(form)])


async def _publish(visit: Visit) -> Response:
    return await _published(visit, published=True)


async def _withdraw(visit: Visit) -> Response:
    return await _published(visit, published=False)


async def _published(visit: Visit, *, published: bool) -> Response:
    charge = _charge(visit)
    await visit.desk.run(
        lambda: visit.curator.synthetics.publish(visit.person, visit.dataset, charge, published=published)
    )
    return visit.go(visit.request.url.path.rsplit("/", 2)[0])


def _charge(visit: Visit) -> int:
    found = _number(str(visit.request.path_params["charge"]))
    if not found:
        raise Problem("not_found")
    return found


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
