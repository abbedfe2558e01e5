"""Bounds that an owner buys: charged first, public afterwards, in every process; over the API, the client, the forms."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deniable.client import RemoteSession
from deniable.ledger import State
from deniable.queries.bought_bounds import Bounds
from deniable.server.access.bearer_tokens import FRESH
from deniable.server.app import served
from deniable.server.catalogue.catalogue import Person
from deniable.server.curator import Curator
from deniable.server.datasets.open_datasets import Datasets
from deniable.server.operations.settings import Settings
from deniable.server.privacy_labels import check_label
from deniable.server.roles import Role
from deniable.transport import Wire
from tests.server.browsing import Browser, inert
from tests.server.world import Client, World, made

pytestmark = pytest.mark.slow

OWNER = Person("olga", Role.OWNER)
COLUMNS = {"colour": {"kind": "text", "keys": ["red", "blue"]}, "height": {"kind": "integer"}, "born": {"kind": "date"}}
SUM = "SELECT SUM(height) AS s FROM survey"
TALL = "SELECT COUNT(*) AS n FROM survey WHERE height > 160"
BOUGHT = {"column": "height", "epsilon": 20.0, "cover": 0.6}
"""400 rows between 128 and 255: with σ < 1 and 129 bins, no false alarms together come near to 160 rows."""


def rows(folder: Path) -> None:
    lines = [f"s{i},{'red' if i % 3 else 'blue'},{150 + i % 40},{1990 + i % 8}-05-0{1 + i % 9}" for i in range(400)]
    (folder / "survey.csv").write_text("\n".join(["who,colour,height,born", *lines]))


def registered(world: World) -> World:
    rows(world.folder)
    schema = {"tables": {"survey": {"person": "who", "rows": 1, "columns": COLUMNS}}}
    body = {"name": "survey", "sources": {"survey": "survey.csv"}, "schema": schema}
    done = world.call("olga", "POST", "/v1/datasets", {**body, "budget": {"epsilon": 100.0, "delta": 1e-6}})
    assert done.status_code == 201, done.text
    return world


@pytest.fixture
def survey(tmp_path: Path) -> Iterator[World]:
    world = made(tmp_path)
    with world.client:
        yield registered(world)


def ledger(world: World) -> Any:
    return world.curator.open(OWNER, "survey").session.ledger


def ask(world: World, sql: str, **cost: float) -> Any:
    return world.call("olga", "POST", "/v1/questions", {"dataset": "survey", "sql": sql, **cost})


def buy(world: World, body: dict[str, Any], *, path: str = "", key: str | None = None, who: str = "olga") -> Any:
    headers = {} if key is None else {"Idempotency-Key": key}
    return world.call(who, "POST", f"/v1/datasets/survey/bounds{path}", body, headers=headers)


def columns(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.call("olga", "GET", "/v1/datasets/survey").json()["tables"]["survey"]["columns"]
    return found


def test_bounds_are_priced_for_nothing_bought_and_then_public(survey: World) -> None:
    assert ask(survey, SUM, epsilon=1.0).json()["refusal"] == "bounds"
    tall = ask(survey, TALL, epsilon=1.0).json()
    before, written = ledger(survey).charged, len(list(ledger(survey).entries()))
    price = buy(survey, BOUGHT, path=":price")
    assert price.status_code == 200, price.text
    assert 1 < price.json()["rows_to_be_seen"] < 20
    assert (ledger(survey).charged, len(list(ledger(survey).entries()))) == (before, written)

    done = buy(survey, BOUGHT)
    assert done.status_code == 200, done.text
    record = done.json()
    assert (record["low"], record["high"], record["kind"]) == (128, 255, "integer")
    assert ledger(survey).charged == before + ledger(survey).budget.cost(epsilon=20.0)
    assert columns(survey)["height"] == {"kind": "integer", "low": 128, "high": 255}
    told = ask(survey, SUM, epsilon=20.0).json()
    assert abs(told["rows"][0][0] - sum(150 + i % 40 for i in range(400))) < 255 * 40, "σ < 255, so far beyond 40 σ"

    # What was released before is still labelled, by what was public then.
    for release in (record["answer"]["release"], tall["release"]):
        label = survey.call("olga", "GET", f"/v1/labels/{release}").json()
        check_label(label, survey.curator.key.public)
        assert "low" not in label["public"]["survey"]["columns"]["height"]
    assert ledger(survey).verify(survey.curator.key.public) is not None
    again = buy(survey, BOUGHT)
    assert (again.status_code, again.json()["rule"]) == (422, "has bounds in the schema")


def test_a_key_is_one_charge_and_another_body_a_conflict(survey: World) -> None:
    first = buy(survey, BOUGHT, key="k")
    paid = ledger(survey).charged
    assert buy(survey, BOUGHT, key="k").content == first.content
    assert buy(survey, {**BOUGHT, "epsilon": 21.0}, key="k").status_code == 409
    assert ledger(survey).charged == paid


def test_where_nothing_stands_out_nothing_is_declared_and_it_is_charged(survey: World) -> None:
    """σ is above 400: of 129 bins the largest noise would have to pass 3.7 σ twice; nothing depends on whether it does."""
    before = ledger(survey).charged
    done = buy(survey, {"column": "height", "epsilon": 0.01})
    record = done.json()
    assert (record["low"] is None) == (record["line"] == "") == ("low" not in columns(survey)["height"])
    assert ledger(survey).charged != before


def test_a_server_that_dies_before_the_bounds_are_noted_buys_them_once(
    survey: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(survey.curator.catalogue, "redeclare", lambda *_, **__: 1 / 0)
        died = buy(survey, BOUGHT, key="k")
    assert (died.status_code, died.json()["charged"]) == (500, True)
    paid = ledger(survey).charged
    assert "low" not in columns(survey)["height"]
    assert buy(survey, BOUGHT, key="k").json()["high"] == 255
    assert columns(survey)["height"]["high"] == 255
    assert ledger(survey).charged == paid


def test_another_process_knows_them_soon_and_questions_that_run_meanwhile_end_well(survey: World) -> None:
    other = Curator(survey.curator.settings)
    with Client(served(other)) as client:
        there = World(survey.folder, other, client, survey.tokens)
        assert ask(there, SUM, epsilon=1.0).json()["refusal"] == "bounds"
        old = survey.curator.open(OWNER, "survey").session
        assert buy(survey, BOUGHT).status_code == 200
        assert old is not survey.curator.open(OWNER, "survey").session
        assert len(old.ask("SELECT colour, COUNT(*) AS n FROM survey GROUP BY colour", epsilon=0.3)) == 3
        time.sleep(FRESH + 0.2)
        assert ask(there, SUM, epsilon=1.0).status_code == 200


def remote(survey: World) -> RemoteSession:
    class Web:
        """What `httpx.Client` is, on the application itself."""

        base_url, is_closed = "http://server", False

        def request(self, method: str, path: str, *, json: Any, headers: dict[str, str]) -> Any:
            return survey.call("olga", method, path, json, headers=headers)

    return RemoteSession(Wire(Web()), "survey")


def names(kind: object) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


def test_the_client_buys_as_a_local_session_does(survey: World) -> None:
    session = remote(survey)
    assert "n: ±" in str(session.price_bounds("height", epsilon=20.0))
    found = session.bounds("height", cover=0.6, epsilon=20.0)
    assert found.answer.plan.question.hash == found.receipt.question, "planned by the schema without these bounds"
    assert (found.low, found.high) == (128, 255)
    assert str(found).startswith("height: {kind: integer, low: 128, high: 255}")
    born = session.bounds("born", cover=0.6, epsilon=20.0)
    assert born.low == "1990-01-01"
    assert isinstance(found, Bounds)
    assert set(names(found)) - set(names(Bounds)) == {"read", "record"}, "what the server sent"
    assert set(names(Bounds)) <= set(names(found))
    here = Bounds(found.table, found.column, found.domain, found.answer, found.cover)
    assert (here.low, here.high, here.line) == (found.low, found.high, found.line)
    for each in (found, born):
        assert each.domain == dict(session.tables["survey"].columns)[each.column]
        assert (each.table, each.cover, each.receipt) == ("survey", 0.6, each.answer.receipt)
        assert each.line in str(each)
        assert each.again(each.answer).domain == each.domain, "read off the counts here, by the schema of then"


# -- forms -------------------------------------------------------------------------------------------------------------

FIELDS = {
    "file": "survey.csv",
    "name": "survey",
    "table": "survey",
    "person": "who",
    "rows": "1",
    "step": "17",
    "delta": "1e-6",
    "kind.0": "integer",
    "kind.1": "text",
    "kind.2": "integer",
    "kind.3": "leave out",
    "bounds_epsilon": "2",
    "buy.2": "on",
}


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = made(tmp_path_factory.mktemp("form"))
    rows(world.folder)
    with world.client:
        yield world


def test_the_form_tells_the_price_before_and_buys_after_registering(empty: World) -> None:
    browser = Browser(empty, "olga")
    page = browser.get("/console/add?file=survey.csv").text
    assert "Buy bounds of height" in page
    inert(page)
    part = browser.post("/console/odds", **FIELDS)
    assert "of the budget buys bounds of height" in part.text
    assert "ε 2 at δ" in part.text
    done = browser.post("/console/add", **FIELDS)
    assert (done.status_code, done.headers["location"]) == (303, "/console/data/survey/share?new=1")
    known = columns(empty)["height"]
    assert known["low"] <= 128, "the bin with all rows is in it, whatever else looks full"
    assert known["high"] >= 255
    states = [each.state for each in ledger(empty).entries()]
    assert states[-2:] == [State.RESERVED, State.SEALED]
    shown = browser.get("/console/data/survey/share").text
    assert "survey.height</code>" in shown
    assert ", bought" in shown
    inert(shown)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"low.2": "1", "high.2": "9"}, "fill them in or buy them, not both"),
        ({"kind.2": "text"}, "bounds are for numbers, dates and timestamps"),
        ({"bounds_epsilon": "much"}, "must be a positive number"),
        ({"bounds_epsilon": "11"}, "Not enough budget is left"),
        ({"buy.0": "on"}, "who"),
    ],
)
def test_what_cannot_be_bought_is_said_before_anything_is_registered(
    empty: World, wrong: dict[str, str], words: str
) -> None:
    browser = Browser(empty, "olga")
    browser.get("/console/add?file=survey.csv")
    done = browser.post("/console/add", **{**FIELDS, "name": "other", **wrong})
    assert done.status_code == 422
    assert words in done.text
    assert empty.curator.catalogue.dataset("other") is None


def test_what_is_missing_is_bought_from_the_page_of_the_dataset(survey: World) -> None:
    browser = Browser(survey, "olga")
    page = browser.get("/console/data/survey/share?failed=run_failed").text
    assert "not all bounds were bought" in page
    wanted = {"column": '["survey", "height"]', "amount": "20", "key": "one"}
    priced = browser.post("/console/data/survey/bounds/price", headers={"x-part": "price"}, **wanted)
    assert "ε 20 at δ" in priced.text
    assert browser.post("/console/data/survey/bounds/price", **wanted).status_code == 200
    before = ledger(survey).charged
    for wrong in ({"column": '["visits", "age"]'}, {"amount": "0"}, {"amount": "nan"}):
        assert browser.post("/console/data/survey/bounds", **{**wanted, **wrong}).status_code == 422
    assert ledger(survey).charged == before
    assert browser.post("/console/data/survey/bounds", **wanted).status_code == 303
    assert "high" in columns(survey)["height"]
    assert browser.post("/console/data/survey/bounds", **wanted).status_code == 422  # it is not offered any more
    assert ledger(survey).charged == before + ledger(survey).budget.cost(epsilon=20.0)


def test_what_was_paid_for_before_other_bounds_held_is_still_answered(tmp_path: Path) -> None:
    """An engine whose schema is an old one is closed when nobody waits in it any more, however long that takes."""
    closed = threading.Event()
    engine = SimpleNamespace(busy=True)
    old: Any = SimpleNamespace(engine=engine, close=closed.set)
    datasets = Datasets(Settings(state=tmp_path, data=(tmp_path,), seconds=0.05), None, None)  # type: ignore[arg-type]
    datasets._retire(old)
    assert not closed.wait(0.5)
    engine.busy = False
    assert closed.wait(30)
