"""Pages of an owner: add a file, describe its schema, choose a budget, buy bounds, and invite analysts."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import secrets
import unicodedata
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.responses import Response

from deniable.errors import NOTHING, DeniableError, InvalidParameter, UnreadableRecord, masked
from deniable.ledger.renewal import PERIODS
from deniable.server.catalogue.catalogue import Person
from deniable.server.console import page_drawings
from deniable.server.console.analyst_pages import account
from deniable.server.console.budget_words import EPSILONS, bounds_priced, odds, share
from deniable.server.console.console_guard import Guard, Visit, as_problem, problem_values
from deniable.server.curator import Curator
from deniable.server.datasets.open_datasets import tables_of
from deniable.server.datasets.source_folders import allowed
from deniable.server.noted_questions import NotedBounds, read_note
from deniable.server.problems import CODES, Problem
from deniable.server.request_bodies import Adjustment, BoundsBody, Grant, NewBudget, NewDataset, NewVersion
from deniable.server.requests.request_desk import Reply, body_hash
from deniable.tables.kinds import BOUNDED, NUMBERS, Kind
from deniable.tables.schema_proposal import propose_schema

_DELTAS: Final = {"1e-6": 1e-6, "1e-9": 1e-9, "pure": None}
_WINDOWS: Final = {"": None, "hour": 3600, "day": 86_400, "week": 604_800, "30 days": 30 * 86_400}
_TYPED: Final = (
    *("name", "table", "person", "rows", "step", "delta", "per", "periods", "known", "bounds_epsilon", "people"),
    "reason",
)
_NOT_BOUGHT: Final = "the dataset is registered, but not all bounds were bought; the ledger lists what was charged"
_MOST_PERIODS: Final = 100_000
_MOST_FILES: Final = 500
_MOST_COLUMNS: Final = 150
_MOST_BOUGHT: Final = 1000
_LEFT_OUT: Final = "leave out"
_BOUNDS_EPSILON: Final = "0.05"
"""The proposed ε for the bounds of a column."""
_ROW: Final = "each row is another person"
"""The choice for a table without a column of ids."""


def add(routes: APIRouter, guard: Guard) -> None:
    """Add the pages of an owner."""
    guard.get(routes, "/console/add", "register", _add)
    guard.post(routes, "/console/add", "register", _register)
    guard.post(routes, "/console/odds", "register", _odds)
    guard.get(routes, "/console/data/{name}/share", "grant", _share)
    guard.post(routes, "/console/data/{name}/share", "grant", _grant)
    guard.post(routes, "/console/data/{name}/revoke", "grant", _revoke)
    guard.post(routes, "/console/data/{name}/adjust", "adjust", _adjust)
    guard.post(routes, "/console/data/{name}/versions", "register", _declare_version)
    guard.post(routes, "/console/data/{name}/bounds", "buy bounds", _buy)
    guard.post(routes, "/console/data/{name}/bounds/price", "buy bounds", _bounds_price)


# -- adding a file -----------------------------------------------------------------------------------------------------


async def _add(visit: Visit) -> Response:
    file = visit.request.query_params.get("file")
    if file is None:
        return await _listed(visit, None)
    try:
        columns = await visit.desk.run(_columns, visit.curator, visit.person, file)
    except InvalidParameter as error:
        return await _listed(
            visit, problem_values(as_problem(error)) | {"code": "file", "title": f"{masked(file)} cannot be added"}
        )
    # A name that the server accepts: é becomes e, and ß, which has no base letter, is left out.
    plain = unicodedata.normalize("NFKD", Path(file).name.split(".")[0]).encode("ascii", "ignore").decode()
    stem = re.sub(r"\W+", "_", plain).strip("_") or "data"
    typed = {"name": stem, "table": stem, "person": "", "rows": "1", "step": str(EPSILONS.index(1.0)), "delta": "1e-6"}
    typed |= {"per": "", "periods": "", "known": "", "bounds_epsilon": _BOUNDS_EPSILON, "people": "", "reason": ""}
    return _filled(visit, file, columns, typed, None)


async def _listed(visit: Visit, problem: dict[str, Any] | None) -> Response:
    """The page with the files to choose from, and the problem with the chosen one."""
    try:
        files = await visit.desk.run(_files, visit.curator, visit.person)
    except InvalidParameter as error:  # the operator has not assigned a folder
        files, problem = [], problem_values(as_problem(error)) | {"code": "file", "title": "No file can be added yet"}
    return visit.page("files.html", status=200 if problem is None else 422, files=files, problem=problem)


def _filled(
    visit: Visit, file: str, columns: list[dict[str, Any]], typed: dict[str, str], problem: dict[str, Any] | None
) -> Response:
    kinds = [each.value for each in Kind]
    values = {"file": file, "columns": columns, "typed": typed, "kinds": kinds, "left_out": _LEFT_OUT, "row": _ROW}
    shown = problem or {}
    # Without a field, the mismatch means that the data has a budget already.
    known = bool(typed["known"]) or (shown.get("code") == "ledger_mismatch" and "field" not in shown)
    alike = bool(typed["people"]) or shown.get("code") == "same_people"
    return visit.page(
        "add.html",
        status=200 if problem is None else 422,
        problem=problem,
        known=known,
        alike=alike,
        odds=odds(_shown_budget(typed), _rows(typed["rows"], 1)),
        steps=len(EPSILONS) - 1,
        bounds=_priced(typed, columns),
        **values,
    )


def _priced(typed: dict[str, str], columns: list[dict[str, Any]]) -> dict[str, Any]:
    """The price of the bounds that are ticked in a form; or the problem, while the form is incomplete."""
    ticked = [each for each in columns if each["buy"]]
    if not ticked:
        return {}
    try:
        return _bounds_bought(typed, columns)
    except (DeniableError, ValidationError) as error:
        return {"problem": problem_values(as_problem(error))}


def _bounds_bought(typed: dict[str, str], columns: list[dict[str, Any]]) -> dict[str, Any]:
    """The price of the bounds in a submitted form. Raises every error before anything is registered or charged."""
    table, budget = typed["table"], _budget(typed)
    tables = tables_of(_schema(typed, columns))
    for each in columns:
        if each["buy"] and (each["low"].strip() or each["high"].strip()):
            raise InvalidParameter(
                each["name"], NOTHING, "must not have bounds if bounds are bought", "fill them in or buy them, not both"
            )
    wanted = [(table, each["name"]) for each in columns if each["buy"]]
    return bounds_priced(budget, tables, wanted, _bounds_epsilon(typed["bounds_epsilon"]))


def _bounds_epsilon(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < 1e300:
        raise InvalidParameter("ε for bounds", NOTHING, "must be a positive number, such as 0.05")
    return found


def _files(curator: Curator, person: Person) -> list[str]:
    """The files that this owner can register, without hidden folders and the state of the server."""
    found = []
    state = curator.settings.state.resolve()
    for folder in curator.folders(person):
        base = folder.resolve()
        for path in sorted(base.rglob("*")):
            inside = path.relative_to(base)
            if any(part.startswith(".") for part in inside.parts) or path.resolve().is_relative_to(state):
                continue
            try:
                allowed(str(inside), [folder])
            except InvalidParameter:
                continue
            found.append(str(inside))
            if len(found) >= _MOST_FILES:
                return found
    return found


def _columns(curator: Curator, person: Person, file: str) -> list[dict[str, Any]]:
    """The columns of a file, with kinds by their types. No value is read."""
    path = allowed(file, curator.folders(person))
    try:
        [table] = propose_schema(path).tables.values()
    except InvalidParameter as error:  # without the path on the server
        raise InvalidParameter("file", NOTHING, error.rule, error.remedy) from None
    except Exception:  # messages of readers may quote the data
        raise InvalidParameter("file", NOTHING, "cannot be read as a table", "choose a CSV or Parquet file") from None
    found = [{"name": name, "kind": facts["kind"], "low": "", "high": "", "keys": "", "nullable": True, "buy": False}
             for name, facts in table["columns"].items()]  # fmt: skip
    if len(found) > _MOST_COLUMNS:
        rule = f"must have at most {_MOST_COLUMNS} columns here"
        raise InvalidParameter("file", NOTHING, rule, "register it by the API, which takes a schema file")
    return found


async def _register(visit: Visit) -> Response:
    file = visit.text("file")
    known = await visit.desk.run(_columns, visit.curator, visit.person, file)
    columns = [{"name": each["name"], **_facts_typed(visit, i)} for i, each in enumerate(known)]
    typed = {part: visit.text(part) for part in _TYPED}
    bought: list[str] = []
    try:
        if any(each["buy"] for each in columns):
            bought = _bounds_bought(typed, columns)["columns"]
        schema = _schema(typed, columns)
        budget = _budget(typed)
        record: dict[str, Any] = {"name": typed["name"], "sources": {typed["table"]: file}, "schema": schema}
        if not typed["known"] and typed["people"] != "same":
            record |= {"budget": budget.model_dump(exclude_none=True)}
        if typed["people"]:
            record |= {"people": typed["people"]} | ({"reason": typed["reason"]} if typed["people"] == "others" else {})
        body = NewDataset.model_validate(record)
        arguments = body.name, body.sources, body.schema_, body.budget, None, body.people, body.reason
        done = await visit.desk.register(visit.curator.register, visit.person, *arguments)
    except (Problem, DeniableError, ValidationError) as error:
        return _filled(visit, file, columns, typed, problem_values(as_problem(error)))
    place = f"/console/data/{done['name']}/share?new={'known' if done['linked'] else '1'}"
    for column in bought:
        wanted = BoundsBody(column=column, table=typed["table"], epsilon=_bounds_epsilon(typed["bounds_epsilon"]))
        reply = await _paid(visit, done["name"], wanted, secrets.token_hex(16))
        if reply.status != 200:  # the dataset is registered; its page sells the other bounds
            return visit.go(f"{place}&failed={reply.record['code']}")
    return visit.go(place)


async def _paid(visit: Visit, dataset: str, body: BoundsBody, key: str) -> Reply:
    """Buy bounds through the desk, like the API: charged before data is read, on the time grid."""
    return await visit.desk.shown_once(
        visit.request, visit.person, dataset, f"console-{key[:100]}", body_hash(f"bounds of {dataset}", body),
        lambda key: visit.curator.bounds(visit.person, dataset, body.column, body.table, body.cover, body.cost(), key),
        whole=True,
    )  # fmt: skip


def _facts_typed(visit: Visit, i: int) -> dict[str, Any]:
    """The fields of the form for column `i`."""
    fields: dict[str, Any] = {part: visit.text(f"{part}.{i}") for part in ("kind", "low", "high", "keys")}
    return {**fields, "nullable": f"nullable.{i}" in visit.form, "buy": f"buy.{i}" in visit.form}


def _schema(typed: dict[str, str], columns: list[dict[str, Any]]) -> dict[str, Any]:
    """The schema of a form. Raises InvalidParameter."""
    table: dict[str, Any] = {"neighbours": "add/remove"}
    if typed["person"] not in {_ROW, *(each["name"] for each in columns)}:
        rule = "must be chosen: the column with the ids of people, or that each row is another person"
        raise InvalidParameter("person", NOTHING, rule)
    if typed["person"] != _ROW:
        table |= {"person": typed["person"], "rows": _rows(typed["rows"])}
    kept = [each for each in columns if each["kind"] != _LEFT_OUT and each["name"] != typed["person"]]
    table["columns"] = {each["name"]: _facts(each) for each in kept}
    if not typed["table"]:
        raise InvalidParameter("table", "", "must have a name")
    return {"version": 1, "tables": {typed["table"]: table}}


def _facts(column: dict[str, Any]) -> dict[str, Any]:
    where = column["name"]
    try:
        kind = Kind(column["kind"])
    except ValueError:
        raise InvalidParameter(f"{where}.kind", NOTHING, "must be one of the offered choices") from None
    facts: dict[str, Any] = {"kind": kind.value, "nullable": column["nullable"]}
    for end in ("low", "high"):
        if kind in BOUNDED and column[end].strip():
            facts[end] = _end(f"{where}.{end}", column[end].strip(), kind)
    keys = [each.strip() for each in re.split(r"[\n,]", column["keys"]) if each.strip()]
    if keys and kind in {Kind.TEXT, Kind.INTEGER, Kind.DATE}:
        facts["keys"] = [_key(f"{where}.keys", each, kind) for each in keys]
    return facts


def _end(where: str, text: str, kind: Kind) -> Any:
    """A bound for the schema: a number, a date, or a timestamp; a date alone means its first moment."""
    if kind in NUMBERS:
        return _number(where, text, kind)
    if kind is Kind.DATE:
        return _day(where, text)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is not None:
        raise InvalidParameter(where, NOTHING, "must be a timestamp in UTC, such as 2026-01-31 or 2026-01-31 12:00")
    return moment


def _day(where: str, text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise InvalidParameter(where, NOTHING, "must be a date such as 2026-01-31") from None


def _number(where: str, text: str, kind: Kind) -> float | int:
    try:
        return int(text) if kind is Kind.INTEGER else float(text)
    except ValueError:
        raise InvalidParameter(where, NOTHING, f"must be {'a whole' if kind is Kind.INTEGER else 'a'} number") from None


def _key(where: str, text: str, kind: Kind) -> Any:
    if kind is Kind.DATE:
        return _day(where, text)
    return _number(where, text, kind) if kind is Kind.INTEGER else text


def _rows(text: str, default: int | None = None) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= 10**6:
        return int(text[:9])
    if default is None:
        raise InvalidParameter("rows", NOTHING, "must be a whole number, at least 1")
    return default


def _budget(typed: dict[str, str]) -> NewBudget:
    """The budget of the form; it renews if a period is chosen."""
    step, delta, per, many = (typed[part] for part in ("step", "delta", "per", "periods"))
    if not (step.isascii() and step.isdigit() and int(step[:3]) < len(EPSILONS)) or delta not in _DELTAS:
        raise UnreadableRecord("budget: choose it with the slider")
    each = {"epsilon": EPSILONS[int(step[:3])], "delta": _DELTAS[delta]}
    if not per:
        return NewBudget.model_validate(each)
    periods = int(many[:9]) if many.isascii() and many.isdigit() else 0
    if per not in PERIODS or not 1 <= periods <= _MOST_PERIODS:
        raise InvalidParameter("periods", NOTHING, "must be a whole number from 1 to 100,000", "say how many periods")
    return NewBudget.model_validate(each | {"per": per, "periods": periods})


def _shown_budget(typed: dict[str, str]) -> NewBudget:
    """The budget of a form that may be incomplete: without a valid number of periods it is shown as not renewed."""
    try:
        return _budget(typed)
    except InvalidParameter:
        return _budget({**typed, "per": ""})


async def _odds(visit: Visit) -> Response:
    """What the budget of the slider means, as a part of the page."""
    budget = _shown_budget({part: visit.text(part) for part in ("step", "delta", "per", "periods")})
    found = await visit.desk.run(odds, budget, _rows(visit.text("rows"), 1))
    typed = {part: visit.text(part) for part in _TYPED}
    columns = (
        await visit.desk.run(_columns, visit.curator, visit.person, visit.text("file")) if "file" in visit.form else []
    )
    filled = [{"name": each["name"], **_facts_typed(visit, i)} for i, each in enumerate(columns)]
    return visit.page("odds_part.html", odds=found, bounds=await visit.desk.run(_priced, typed, filled))


# -- analysts and limits -----------------------------------------------------------------------------------------------


async def _share(visit: Visit) -> Response:
    failed = visit.request.query_params.get("failed")
    problem = None if failed not in CODES else {"code": "bounds", "title": CODES[failed][1], "detail": _NOT_BOUGHT}
    return await _shared(visit, problem)


async def _shared(
    visit: Visit, problem: dict[str, Any] | None, *, priced: dict[str, Any] | None = None, amount: str = _BOUNDS_EPSILON
) -> Response:
    found = await visit.desk.run(_shares, visit.curator, visit.person, visit.dataset)
    values = {"problem": problem, "windows": list(_WINDOWS), "new": visit.request.query_params.get("new")}
    values |= {"priced": priced, "amount": amount, "column": visit.text("column"), "key": secrets.token_hex(16)}
    return visit.page(
        "share.html", status=200 if problem is None else 422, dataset=visit.dataset, **found, **values
    )  # fmt: skip


def _shares(curator: Curator, person: Person, dataset: str) -> dict[str, Any]:
    ledger = curator.open(person, dataset).session.ledger
    granted = {(each["analyst"], each["window_seconds"]) for each in curator.grants(person, dataset)}
    return {
        "analysts": curator.reception.analysts(),
        "accounts": accounts(ledger, granted),
        "account": account(curator, person, dataset),
        "versions": curator.versions.listed(person, dataset)["versions"],
        "tables": sorted(curator.visible(person, dataset).sources),
        "files": _offered_files(curator, person),
        "bought": _bought(curator, person, dataset),
        "unbounded": [(json.dumps(each), ".".join(each)) for each in _unbounded(curator, person, dataset)],
    }


def accounts(ledger: Any, named: set[tuple[str, int | None]] | None = None) -> list[dict[str, Any]]:
    """The limits of a ledger, each with a meter. `named`: only these (name, window) pairs."""
    found = []
    for each in ledger.accounts():
        if named is not None and (each.name, each.window) not in named:
            continue
        gone = share(each.spent, each.limit)
        found.append(
            {
                "name": each.name,
                "title": each.title,
                "window": each.window,
                "limit": each.limit.describe(ledger.budget),
                "spent": each.spent.describe(ledger.budget) if each.spent.units else "nothing",
                "lifetime": each.lifetime.describe(ledger.budget) if each.lifetime.units else "nothing",
                "left": each.left.describe_rest(ledger.budget),
                "gone": gone,
                "meter": page_drawings.meter(gone, f"{100 * gone:.3g} % is spent"),
            }
        )
    return found


async def _grant(visit: Visit) -> Response:
    try:
        window = visit.text("window")
        if window not in _WINDOWS:
            raise InvalidParameter("window", NOTHING, "must be one of the offered choices")
        body = Grant.model_validate(
            {"analyst": visit.text("analyst"), "limit": _limit(visit.text("limit")), "window_seconds": _WINDOWS[window]}
        )
        grant = visit.curator.grant
        await visit.desk.run(grant, visit.person, visit.dataset, body.analyst, body.limit, body.window_seconds)
    except (Problem, DeniableError, ValidationError) as error:
        return await _shared(visit, problem_values(as_problem(error)))
    return visit.go(visit.request.url.path)


def _limit(text: str) -> dict[str, float] | None:
    if not text.strip():
        return None
    try:
        return {"epsilon": float(text)}
    except ValueError:
        raise InvalidParameter("limit", NOTHING, "must be a number, or empty for the whole budget") from None


async def _revoke(visit: Visit) -> Response:
    await visit.desk.run(visit.curator.revoke_grant, visit.person, visit.dataset, visit.text("analyst"))
    return visit.go(visit.request.url.path.removesuffix("revoke") + "share")


async def _adjust(visit: Visit) -> Response:
    try:
        limit = _limit(visit.text("limit"))
        body = Adjustment.model_validate({"budget": limit or {}, "reason": visit.text("reason").strip()})
        await visit.desk.run(visit.curator.adjust, visit.person, visit.dataset, body.budget, body.reason)
    except (Problem, DeniableError, ValidationError) as error:
        return await _shared(visit, problem_values(as_problem(error)))
    return visit.go(visit.request.url.path.removesuffix("adjust") + "share")


def _offered_files(curator: Curator, person: Person) -> list[str]:
    """The files that this owner can register; an empty list if the operator has not assigned a folder."""
    try:
        return _files(curator, person)
    except InvalidParameter:
        return []


async def _declare_version(visit: Visit) -> Response:
    """Declare a version of the data: questions are about the chosen files from now on."""
    tables = sorted(visit.curator.visible(visit.person, visit.dataset).sources)
    chosen = {table: visit.text(f"file.{i}") for i, table in enumerate(tables)}
    try:
        sources = {table: file for table, file in chosen.items() if file}
        body = NewVersion.model_validate({"version": visit.text("version").strip(), "sources": sources})
        declare = visit.curator.versions.declare
        await visit.desk.register(declare, visit.person, visit.dataset, body.version, body.sources, None)
    except (Problem, DeniableError, ValidationError) as error:
        return await _shared(visit, problem_values(as_problem(error)))
    return visit.go(visit.request.url.path.removesuffix("versions") + "share")


# -- bounds that are bought --------------------------------------------------------------------------------------------


def _unbounded(curator: Curator, person: Person, dataset: str) -> list[tuple[str, str]]:
    """The (table, column) pairs whose bounds can be bought."""
    return [
        (name, column)
        for name, table in curator.open(person, dataset).tables.items()
        for column, domain in table.columns
        if table.unit is not None
        and column != table.unit.column  # the column of ids needs no bounds
        and domain.kind in BOUNDED
        and domain.bounds is None
        and domain.keys is None
    ]


def _bought(curator: Curator, person: Person, dataset: str) -> list[dict[str, Any]]:
    """Columns whose bounds were paid for, with their present bounds, which may be missing if the attempt failed."""
    tables = curator.described(person, dataset)["tables"]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for each in curator.catalogue.releases(dataset, beginning=NotedBounds.BEGINNING, most=_MOST_BOUGHT):
        noted = read_note(each.question)
        assert isinstance(noted, NotedBounds)
        name, column = noted.table, noted.column
        facts = tables[name]["columns"][column]
        about = {"table": name, "column": column, "low": facts.get("low"), "high": facts.get("high")}
        found.setdefault((name, column), {**about, "release": f"{dataset}:{each.entry}"})  # releases come newest first
    return [*found.values()]


def _wanted(visit: Visit) -> BoundsBody:
    """The request of a form for bounds. Raises InvalidParameter if the page does not offer its column."""
    offered = {json.dumps(each): each for each in _unbounded(visit.curator, visit.person, visit.dataset)}
    if visit.text("column") not in offered:
        raise InvalidParameter("column", NOTHING, "must be one of the offered choices")
    table, column = offered[visit.text("column")]
    return BoundsBody(table=table, column=column, epsilon=_bounds_epsilon(visit.text("amount")))


async def _bounds_price(visit: Visit) -> Response:
    """The price of bounds of a column, as a part of the page."""
    priced, problem = None, None
    try:
        body = await visit.desk.run(_wanted, visit)
        reply = await visit.desk.shown(
            visit.request,
            lambda: visit.curator.price_bounds(visit.person, visit.dataset, body.column, body.table, body.cost()),
        )
        priced, problem = (reply.record, None) if reply.status == 200 else (None, reply.record)
    except (DeniableError, ValidationError) as error:
        problem = problem_values(as_problem(error))
    if visit.request.headers.get("x-part") == "price":
        return visit.page("bounds_price.html", priced=priced, problem=problem)
    return await _shared(visit, problem, priced=priced, amount=visit.text("amount"))


async def _buy(visit: Visit) -> Response:
    try:
        key = visit.text("key") or secrets.token_hex(16)
        reply = await _paid(visit, visit.dataset, await visit.desk.run(_wanted, visit), key)
    except (DeniableError, ValidationError) as error:
        return await _shared(visit, problem_values(as_problem(error)), amount=visit.text("amount"))
    if reply.status != 200:
        return await _shared(visit, reply.record, amount=visit.text("amount"))
    return visit.go(visit.request.url.path.removesuffix("bounds") + "share")
