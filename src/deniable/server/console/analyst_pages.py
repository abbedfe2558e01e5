"""Pages of an analyst: the public schema, dummy rows, prices while one types, answers with intervals, and labels."""

from __future__ import annotations

import json
import math
import secrets
from typing import Any, Final

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.responses import Response

from deniable.errors import NOTHING, DeniableError, InvalidParameter
from deniable.queries.answer.answer_display import NO_VALUE, cell_text, key_text
from deniable.queries.answer.remaining_budget import Remaining
from deniable.server.api_records import described_renewal
from deniable.server.catalogue.catalogue import Person
from deniable.server.console import page_drawings
from deniable.server.console.budget_words import share
from deniable.server.console.console_guard import Guard, Visit, as_problem, problem_values
from deniable.server.console.page_templates import as_curl, as_python
from deniable.server.curator import Curator
from deniable.server.privacy_labels import as_html, as_svg, lines
from deniable.server.problems import Problem
from deniable.server.request_bodies import DummyQuestion, Question
from deniable.server.requests.request_desk import Reply, body_hash
from deniable.server.roles import Role
from deniable.tables.kinds import Kind

_STILL: Final = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
_MOST_BARS: Final = 60
_MOST_CELLS: Final = 5000
"""The most cells of an answer on a page: rendering takes time, and nobody reads more."""
_FEWEST_ROWS: Final = 20
_WAYS: Final = ("epsilon", "within")
_MISSING: Final = f"{NO_VALUE} means no value: the average of a group that may be empty, or a division by 0"


def add(routes: APIRouter, guard: Guard) -> None:
    """Add the pages of an analyst; owners see them as well."""
    guard.get(routes, "/console/", "see oneself", _home)
    guard.get(routes, "/console/data/{name}", "price", _desk)
    guard.post(routes, "/console/data/{name}/price", "price", _price)
    guard.post(routes, "/console/data/{name}/ask", "ask", _ask)
    guard.post(routes, "/console/data/{name}/refine", "ask", _refine)
    guard.post(routes, "/console/data/{name}/dummy", "ask dummy rows", _dummy)
    guard.get(routes, "/console/data/{name}/releases", "see labels", _releases)
    guard.get(routes, "/console/labels/{release}", "see labels", _label)


# -- pages -------------------------------------------------------------------------------------------------------------


async def _home(visit: Visit) -> Response:
    if visit.person.role is Role.ADMIN:
        return visit.go("/console/people")
    since = await visit.desk.run(visit.curator.reception.since, visit.person)
    cards = await visit.desk.run(_cards, visit.curator, visit.person)
    return visit.page("home.html", datasets=cards, since=since)


def _cards(curator: Curator, person: Person) -> list[dict[str, Any]]:
    found, seen = [], curator.listed(person)
    families = {each.name: each.family for each in curator.catalogue.datasets()}
    for each in seen:
        name = each["name"]
        kin = [other["name"] for other in seen if other is not each and families[other["name"]] == families[name]]
        try:
            found.append({**each, "kin": kin, "account": account(curator, person, name)})
        except (Problem, DeniableError):  # the others are still shown
            found.append({**each, "kin": kin, "account": None})
    return found


def account(curator: Curator, person: Person, dataset: str) -> dict[str, Any]:
    """What is spent and left of a dataset, from the view of a person: in ε, in questions, and as a share.

    For an analyst, `left` and the meter are about their own share; `own` is the spent part of it, else None.
    """
    ledger = curator.open(person, dataset).session.ledger
    left = ledger.remaining if person.role is Role.AUDITOR else ledger.left(person.name)
    gone, own = share(ledger.charged, ledger.limit), None
    if person.role is Role.ANALYST:
        mine = [each for each in ledger.accounts() if each.name == person.name and each.window is None]
        own = max((share(each.spent, each.limit) for each in mine), default=None)
    spent_in_words = f"{100 * gone:.3g} % of the budget" if own is None else f"{100 * own:.3g} % of your share"
    return {
        "own": own,
        "unit": ledger.unit.describe(),
        "limit": ledger.limit.describe(ledger.budget),
        "left": left.describe_rest(ledger.budget),
        "spent": ledger.charged.describe(ledger.budget) if ledger.charged.units else "nothing",
        "gone": gone,
        "more": Remaining(ledger.budget, left, ledger.unit).said(),
        "meter": page_drawings.meter(gone if own is None else own, f"{spent_in_words} is spent"),
        "weak": ledger.budget.weaknesses(),
        "renewal": described_renewal(ledger),
    }


async def _desk(visit: Visit) -> Response:
    return await _shown(visit)


async def _shown(visit: Visit, *, status: int = 200, **result: Any) -> Response:
    """The page for questions, with the result of the last one."""
    about = await visit.desk.run(_about, visit.curator, visit.person, visit.dataset)
    values = {"answer": None, "problem": None, "price": None, "way": "epsilon", "amount": "0.1", **result}
    values.setdefault("sql", _example(about["tables"]))
    return visit.page("ask.html", status=status, dataset=visit.dataset, key=secrets.token_hex(16), **about, **values)


def _about(curator: Curator, person: Person, dataset: str) -> dict[str, Any]:
    return {
        "tables": curator.described(person, dataset)["tables"],
        "dummies": curator.dummy(person, dataset, 6)["tables"],
        "account": account(curator, person, dataset),
    }


def _example(tables: dict[str, Any]) -> str:
    """A first question, which every schema allows."""
    name, table = next(iter(tables.items()))
    keyed = [column for column, facts in table["columns"].items() if facts.get("keys") and column.isidentifier()]
    if keyed and name.isidentifier():
        return f"SELECT {keyed[0]}, COUNT(*) AS n\nFROM {name}\nGROUP BY {keyed[0]}"
    quoted = name if name.isidentifier() else '"' + name.replace('"', '""') + '"'
    return f"SELECT COUNT(*) AS n\nFROM {quoted}"


# -- questions ---------------------------------------------------------------------------------------------------------


def _cost(visit: Visit) -> dict[str, float]:
    way, typed_amount = visit.text("way", "epsilon"), visit.text("amount").strip()
    if way not in _WAYS:
        raise InvalidParameter("cost", NOTHING, "must be a cost (ε) or an accuracy (±)")
    try:
        amount = float(typed_amount)
    except ValueError:
        amount = math.nan
    if not 0 < amount < 1e300:
        raise InvalidParameter("ε" if way == "epsilon" else "±", NOTHING, "must be a positive number, such as 0.1")
    return {way: amount}


def _asked(visit: Visit) -> Question:
    # Browsers send line ends as CR LF; the same question from elsewhere has LF.
    sql = visit.text("sql").replace("\r\n", "\n")
    return Question.model_validate({"dataset": visit.dataset, "sql": sql, **_cost(visit)})


def _typed(visit: Visit) -> dict[str, Any]:
    """The fields of the form, to be shown again."""
    way = visit.text("way", "epsilon")
    typed = {"sql": visit.text("sql").replace("\r\n", "\n"), "amount": visit.text("amount")}
    return {**typed, "way": way if way in _WAYS else "epsilon"}


async def _price(visit: Visit) -> Response:
    """The price of a question, as a part of the page."""
    price, problem = None, None
    try:
        body = _asked(visit)
        reply = await visit.desk.shown(
            visit.request, lambda: visit.curator.price(visit.person, body.dataset, body.question, body.cost())
        )
        price, problem = (reply.record, None) if reply.status == 200 else (None, reply.record)
    except (DeniableError, ValidationError) as error:
        problem = problem_values(as_problem(error))
    if visit.request.headers.get("x-part") == "price":
        return visit.page("price.html", price=price, problem=problem)
    return await _shown(visit, price=price, problem=problem, **_typed(visit))


async def _ask(visit: Visit) -> Response:
    return await _answered(visit, "ask")


async def _refine(visit: Visit) -> Response:
    return await _answered(visit, "refine")


async def _answered(visit: Visit, verb: str) -> Response:
    """Ask through the desk, like the API: once for each key, charged before data is read, on the time grid."""
    work = visit.curator.ask if verb == "ask" else visit.curator.refine
    try:
        body = _asked(visit)
    except (DeniableError, ValidationError) as error:
        return await _refused(visit, problem_values(as_problem(error)), 422)
    key = f"console-{visit.text('key')[:100]}" if visit.text("key") else None
    reply = await visit.desk.shown_once(
        visit.request, visit.person, body.dataset, key, body_hash(verb, body),
        lambda key: work(visit.person, body.dataset, body.question, body.cost(), key),
    )  # fmt: skip
    return await _result(visit, reply, body.question, _cost(visit), verb)


async def _dummy(visit: Visit) -> Response:
    """Ask dummy rows, free of charge."""
    try:
        asked = _asked(visit)
        body = DummyQuestion.model_validate({"sql": asked.sql, **_cost(visit)})
    except (DeniableError, ValidationError) as error:
        return await _refused(visit, problem_values(as_problem(error)), 422)
    reply = await visit.desk.shown(
        visit.request, lambda: visit.curator.dummy_ask(visit.person, visit.dataset, body.question, body.cost())
    )
    return await _result(visit, reply, body.question, _cost(visit), "dummy")


async def _result(visit: Visit, reply: Reply, sql: str, cost: dict[str, float], verb: str) -> Response:
    if reply.status != 200:
        return await _refused(visit, reply.record, reply.status)
    place = visit.request.base_url
    url = str(place.replace(scheme="https") if visit.curator.settings.https else place).rstrip("/")
    answer = await visit.desk.run(_answer_values, visit.curator, visit.person, reply) | {
        "verb": verb,
        "python": as_python(url, visit.dataset, sql, cost),
        "curl": as_curl(url, visit.dataset, sql, cost),
        "asked": sql,
    }
    return await _shown(visit, answer=answer, **_typed(visit))


def _answer_values(curator: Curator, person: Person, reply: Reply) -> dict[str, Any]:
    """The values of the template, from the record that the API would send. A large answer waits for its turn."""
    curator.datasets.large.add(len(reply.body) // 16)
    return answered(reply.record) | {"labelled": _labelled(curator, person, reply.record)}


def _labelled(curator: Curator, person: Person, record: dict[str, Any]) -> bool:
    """Whether this person may see the label: a replayed answer may belong to another person."""
    if not record["provenance"]["replayed"]:
        return True
    try:
        curator.label(person, record["release"])
    except Problem:
        return False
    return True


async def _refused(visit: Visit, problem: dict[str, Any], status: int) -> Response:
    return await _shown(visit, status=status, problem=problem, **_typed(visit))


def answered(record: dict[str, Any]) -> dict[str, Any]:
    """The values of the template `answer.html`, from the record that the API sends.

    Cells become text, and the first three measured columns become bar charts. A page shows about `_MOST_CELLS` cells;
    `total` is the number of all rows.
    """
    names: list[str] = record["columns"]
    most = max(_FEWEST_ROWS, _MOST_CELLS // max(1, len(names)))
    rows = [[_cell(*each) for each in zip(row, record["kinds"], strict=True)] for row in record["rows"][:most]]
    intervals = record["intervals"][:most]
    is_measured = [name in record["measured"] for name in names]
    measured = [place for place, noisy in enumerate(is_measured) if noisy]
    drawn = [place for place in measured if any(each[place] is not None for each in intervals)]
    too_many = len(rows) > _MOST_BARS
    charts = [] if too_many else [_chart(names, is_measured, rows, intervals, place) for place in drawn[:3]]
    texts = [
        [
            (cell_text(cell, bounds), True) if noisy else (key_text(cell), False)
            for cell, bounds, noisy in zip(row, around, is_measured, strict=True)
        ]
        for row, around in zip(rows, intervals, strict=True)
    ]
    has_missing = any(row[place] is None for row in rows for place in measured)
    return {
        "columns": list(zip(names, is_measured, strict=True)),
        "rows": texts,
        "charts": [each for each in charts if each["bars"]],
        "confidence": record["confidence"],
        "receipt": record["provenance"],
        "release": record.get("release"),
        "notes": [*([_MISSING] if has_missing else []), *record["notes"]],
        "hidden_bars": bool(drawn) and too_many,
        "total": len(record["rows"]),
    }


def _cell(cell: Any, kind: str) -> Any:
    """A cell of a record for display: JSON writes a timestamp with a T, people write a space."""
    return cell.replace("T", " ") if kind == Kind.TIMESTAMP.value and isinstance(cell, str) else cell


def _chart(
    names: list[str], is_measured: list[bool], rows: list[list[Any]], intervals: list[list[Any]], place: int
) -> dict[str, Any]:
    """The bars of the column at `place`, one for each row that has a number; the keys of the row are its label."""
    points = []
    for row, around in zip(rows, intervals, strict=True):
        if isinstance(row[place], int | float) and around[place] is not None:
            keys = [key_text(cell) for cell, noisy in zip(row, is_measured, strict=True) if not noisy]
            points.append((" · ".join(keys) or names[place], float(row[place]), *around[place]))
    return {"name": names[place], "bars": page_drawings.bars(points) if points else []}


# -- releases and labels -----------------------------------------------------------------------------------------------


async def _releases(visit: Visit) -> Response:
    found = await visit.desk.run(visit.curator.releases, visit.person, visit.dataset, visit.before)
    return visit.page("releases.html", dataset=visit.dataset, **found)


async def _label(visit: Visit) -> Response:
    release = str(visit.request.path_params["release"])
    label = await visit.desk.run(visit.curator.label, visit.person, release)
    name = release.replace(":", "-").encode("ascii", "ignore").decode()
    still = {"Content-Security-Policy": _STILL}
    match visit.request.query_params.get("form"):
        case "answer":
            kept = {"Content-Disposition": f'attachment; filename="answer-{name}.json"'}
            body = await visit.desk.run(_downloaded, visit.curator, visit.person, release)
            return Response(body, headers=kept, media_type="application/json")
        case "json":
            kept = {"Content-Disposition": f'attachment; filename="label-{name}.json"'}
            body = json.dumps(label, ensure_ascii=False, indent=2)
            return Response(body, headers=kept, media_type="application/json")
        case "key":
            kept = {"Content-Disposition": 'attachment; filename="server.pub"'}
            return Response(visit.curator.key.public.pem(), headers=kept, media_type="application/x-pem-file")
        case "html":
            return Response(await visit.desk.run(as_html, label), headers=still, media_type="text/html")
        case "svg":
            return Response(await visit.desk.run(as_svg, label), headers=still, media_type="image/svg+xml")
    found = visit.curator.catalogue.release
    record = await visit.desk.run(found, label["dataset"], label["ledger"]["entry"])
    mine = record is not None and record.person == visit.person.name
    return visit.page("label.html", dataset=label["dataset"], release=release, lines=lines(label), mine=mine)


def _downloaded(curator: Curator, person: Person, release: str) -> bytes:
    return json.dumps(curator.released(person, release), ensure_ascii=False, indent=2, allow_nan=False).encode()
