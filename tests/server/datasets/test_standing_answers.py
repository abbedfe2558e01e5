"""Standing questions on a server: owners declare and answer, analysts read; restarts, versions, labels and roles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from deniable.ledger.label_verification import verify_label
from deniable.server.app import served as application
from deniable.server.catalogue.catalogue import Person
from deniable.server.curator import Curator
from deniable.server.operations.settings import Settings
from deniable.server.request_bodies import BudgetBody
from deniable.server.roles import Role
from tests.server.browsing import Browser, inert
from tests.server.world import PEOPLE, Client, World

SCHEMA = """\
version: 1
tables:
  visits:
    person: patient_id
    rows: 3
    columns:
      day: {kind: integer, low: 0, high: 400, nullable: false}
      ward: {kind: text, keys: [A, B], nullable: false}
"""
COUNT = "SELECT COUNT(*) AS n FROM visits"
WARDS = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
PLACE = "/v1/datasets/visits/standing"
DECLARED = {"name": "daily", "questions": [COUNT, WARDS], "by": "day", "epsilon": 400.0}


def rows(days: int) -> pd.DataFrame:
    """40 people, each with a row on every day; they have 3 rows, so later days count nobody."""
    return pd.DataFrame(
        {
            "patient_id": [f"p{i}" for i in range(40)] * days,
            "day": [day for day in range(days) for _ in range(40)],
            "ward": ["A", "B", "B", "B"] * (10 * days),
        }
    )


def opened(folder: Path, *, is_new: bool) -> World:
    curator = Curator(Settings(state=folder / "state", grid=0.001, rate=1e6, burst=1_000_000, owners={"*": (folder,)}))
    world = World(folder, curator, Client(application(curator)))
    for role, name in PEOPLE.items():
        world.newcomer(name, role)
    if is_new:
        rows(1).to_csv(folder / "day0.csv", index=False)
        owner = Person("olga", Role.OWNER)
        curator.register(owner, "visits", {"visits": "day0.csv"}, SCHEMA, BudgetBody(epsilon=1000.0))
        curator.grant(owner, "visits", "ana", None, None)
    return world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    there = opened(tmp_path, is_new=True)
    with there.client:
        yield there


def said(response: Any, status: int = 200) -> Any:
    assert response.status_code == status, response.text
    return response.json()


def test_an_owner_declares_and_answers_and_an_analyst_reads(world: World) -> None:
    made = said(world.call("olga", "POST", PLACE, DECLARED))
    assert made["days"] == []
    assert len(made["prices"]) == 2
    charged = world.ledger.charged
    assert said(world.call("olga", "POST", PLACE, DECLARED))["cost"] == made["cost"]  # the same again is free
    early = world.call("ana", "GET", f"{PLACE}/daily/days/0")
    assert early.status_code == 404
    assert "was not answered for 0 yet" in early.json()["detail"]
    assert world.call("ana", "POST", f"{PLACE}/daily/days", {"day": 0}).status_code == 403
    first = said(world.call("olga", "POST", f"{PLACE}/daily/days", {"day": 0}))
    read = said(world.call("ana", "GET", f"{PLACE}/daily/days/0"))
    assert [each["rows"] for each in read["answers"]] == [each["rows"] for each in first["answers"]]
    assert read["answers"][0]["rows"] == [[40]]  # at this ε there is no noise to speak of
    assert [each["rows"] for each in read["answers"]][1] == [["A", 10], ["B", 30]]
    assert said(world.call("ana", "GET", PLACE))["standing"][0]["days"] == [0]
    assert world.ledger.charged == charged


@pytest.mark.slow
def test_each_answer_has_a_signed_label_that_analysts_read(world: World) -> None:
    said(world.call("olga", "POST", PLACE, DECLARED))
    revealed = said(world.call("olga", "POST", f"{PLACE}/daily/days", {"day": 0}))["answers"][0]
    for who in ("olga", "ana", "ada"):
        label = said(world.call(who, "GET", f"/v1/labels/{revealed['release']}"))
        verify_label(label, answer=revealed, key=world.curator.key.public)
    assert "an id names the same person in all versions of the table" in label["assumptions"]
    assert label["loss"].startswith("epsilon 200")
    html = world.call("ana", "GET", f"/v1/labels/{revealed['release']}?form=html").text
    assert "standing daily, 0" in html
    world.newcomer("eve", Role.ANALYST)  # an analyst without a grant
    for place in (PLACE, f"{PLACE}/daily", f"{PLACE}/daily/days/0", f"/v1/labels/{revealed['release']}"):
        assert world.call("eve", "GET", place).status_code == 404, place


@pytest.mark.slow
def test_a_set_belongs_to_its_dataset_and_not_to_the_family(world: World) -> None:
    """Both datasets have one ledger, and a table of the same name and schema."""
    owner, place = Person("olga", Role.OWNER), "/v1/datasets/copy/standing"
    assert world.curator.register(owner, "copy", {"visits": "day0.csv"}, SCHEMA, None)["linked"]
    world.newcomer("eve", Role.ANALYST)
    world.curator.grant(owner, "copy", "eve", None, None)
    said(world.call("olga", "POST", PLACE, DECLARED))
    said(world.call("olga", "POST", f"{PLACE}/daily/days", {"day": 0}))
    for who in ("eve", "olga"):
        assert said(world.call(who, "GET", place))["standing"] == []
        for path in ("daily", "daily/days/0"):
            assert world.call(who, "GET", f"{place}/{path}").status_code == 404
    assert world.call("olga", "POST", f"{place}/daily/days", {"day": 1}).status_code == 404
    assert world.call("olga", "POST", place, DECLARED).status_code == 422  # the name is taken in their ledger
    assert said(world.call("ana", "GET", PLACE))["standing"][0]["days"] == [0]


@pytest.mark.slow
def test_versions_and_restarts_go_on_and_no_rows_come_back(tmp_path: Path) -> None:
    first = opened(tmp_path, is_new=True)
    with first.client:
        said(first.call("olga", "POST", PLACE, DECLARED))
        said(first.call("olga", "POST", f"{PLACE}/daily/days", {"day": 0}))
        charged = first.ledger.charged
    counted = []
    for day in range(1, 5):  # a version and a restart for each day; one wider bound on the way
        there = opened(tmp_path, is_new=False)
        with there.client:
            rows(day + 1).to_csv(tmp_path / f"day{day}.csv", index=False)
            schema = {} if day != 2 else {"schema": SCHEMA.replace("high: 400", "high: 800")}
            version = {"version": f"day{day}", "sources": {"visits": f"day{day}.csv"}, **schema}
            said(there.call("olga", "POST", "/v1/datasets/visits/versions", version), 201)
            answers = said(there.call("olga", "POST", f"{PLACE}/daily/days", {"day": day}))["answers"]
            counted.append(answers[0]["rows"][0][0])
            assert said(there.call("ana", "GET", f"{PLACE}/daily/days/0"))["answers"][0]["rows"] == [[40]]
            assert there.ledger.charged == charged
            there.ledger.verify()
    assert counted == [40, 40, 0, 0]  # 3 rows of each person, over all versions


def test_in_the_console_an_owner_declares_and_answers_and_an_analyst_reads(world: World) -> None:
    place = "/console/data/visits/standing"
    owner, analyst = Browser(world, "olga"), Browser(world, "ana")
    page = owner.get(place)
    inert(page.text)
    assert "Declare and pay" in page.text
    for wrong in ({"amount": "-1"}, {"questions": " "}, {"totals": "many"}, {"by": "ward"}, {"set": "a b"}):
        form = {"set": "daily", "by": "day", "questions": COUNT, "amount": "400", "totals": "", "key": str(wrong)}
        refused = owner.post(place, **{**form, **wrong})
        assert refused.status_code == 422, wrong
        inert(refused.text)
    assert world.ledger.charged.units == 0
    form = {"set": "daily", "by": "day", "questions": f"{COUNT}\r\n{WARDS}", "amount": "400", "totals": "", "key": "k1"}
    assert owner.post(place, **form).status_code == 303
    shown = analyst.get(place)
    inert(shown.text)
    assert "No day is answered yet" in shown.text
    assert "Declare and pay" not in shown.text
    assert analyst.post(place, **form).status_code == 403
    assert analyst.get(f"{place}?set=daily&day=0").status_code == 404
    assert owner.post(f"{place}/days", set="daily", day="tomorrow").status_code == 422
    done = owner.post(f"{place}/days", set="daily", day="0")
    assert done.status_code == 303
    read = analyst.get(done.headers["location"])
    inert(read.text)
    assert "40" in read.text
    [label] = sorted(set(re.findall(r'href="(/console/labels/[^"]+)"', read.text)))[:1]
    assert analyst.get(label).status_code == 200
