"""Synthetic tables in the console: an owner buys and publishes, an analyst downloads; hostile names stay names."""

from __future__ import annotations

import io
import json
import re
from html import unescape
from typing import Any

import pytest

from deniable.server.catalogue.catalogue import Person
from deniable.server.datasets.synthetic_downloads import DrawnFile
from tests.server.browsing import HOSTILE, QUOTES, Browser, inert
from tests.server.world import World

PLACE = "/console/data/visits/synthetic"


def column(name: str, table: str = "visits") -> str:
    return json.dumps([table, name])


def charges(world: World) -> int:
    return sum(each.state.name == "RESERVED" for each in world.ledger.entries())


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was asked to be drawn, in place of drawing it."""
    found: list[tuple[Any, ...]] = []

    def rows(self: object, person: Person, *asked: Any) -> DrawnFile:
        found.append((person.name, *asked))
        return DrawnFile(io.BytesIO(b"ward\nA\n"), 7, "visits-1-synthetic.csv", [])

    monkeypatch.setattr("deniable.server.datasets.synthetic_downloads.Synthetics.rows", rows)
    return found


def test_an_owner_publishes_and_an_analyst_downloads(world: World, drawn: list[tuple[Any, ...]]) -> None:
    owner, analyst = Browser(world, "olga"), Browser(world, "ana")
    page = owner.get(PLACE)
    inert(page.text)
    assert "left out: town" in page.text
    assert "patient_id" not in page.text
    before = charges(world)
    done = owner.post(PLACE, column=[column("ward"), column("age")], amount="0.5", target="", key="k1")  # type: ignore[arg-type]
    assert done.status_code == 303, done.text
    again = owner.post(PLACE, column=[column("ward"), column("age")], amount="0.5", target="", key="k1")  # type: ignore[arg-type]
    assert again.headers["location"] == done.headers["location"]
    assert charges(world) == before + 1
    shown = owner.get(done.headers["location"])
    assert "The noisy counts are paid for" in shown.text
    entry = int(re.search(r"made=(\d+)", done.headers["location"])[1])  # type: ignore[index]
    assert f"visits:{entry}" not in analyst.get(PLACE).text
    assert owner.post(f"{PLACE}/{entry}/publish").status_code == 303
    there = analyst.get(PLACE).text
    inert(there)
    assert f"visits:{entry}, by olga" in there
    assert "published" in there
    assert "Withdraw" not in there
    found = analyst.get(f"{PLACE}/{entry}/rows?rows=12&form=csv")
    assert found.headers["content-disposition"].startswith("attachment; ")
    assert found.content == b"ward\nA\n"
    assert drawn == [("ana", "visits", entry, 12, "csv", None)]
    assert owner.get(f"/console/labels/visits:{entry}").status_code == 200
    assert f"/console/labels/visits%3A{entry}" not in there
    assert owner.post(f"{PLACE}/{entry}/withdraw").status_code == 303
    assert f"visits:{entry}" not in analyst.get(PLACE).text


@pytest.mark.parametrize("method", ["independent", "mst", "adaptive"])
def test_the_form_says_how_tables_are_counted(world: World, method: str) -> None:
    owner = Browser(world, "olga")
    fields: Any = {"column": [column("ward"), column("age"), column("sex")], "amount": "0.1", "target": ""}
    shown = owner.post(f"{PLACE}/price", **fields, method=method)
    assert f'value="{method}" selected' in shown.text
    done = owner.post(PLACE, **fields, method=method, key=f"k-{method}")
    assert done.status_code == 303, done.text
    assert f"method {method}" in owner.get(PLACE).text
    assert ("a count that the data choose" in shown.text) == (method != "independent")
    assert owner.post(PLACE, **fields, method="no such", key="k9").status_code == 422
    both = owner.post(PLACE, **{**fields, "target": "sex"}, method=method, key=f"both-{method}")
    assert (both.status_code, "each say which tables are counted" in both.text) == (
        (303, False) if method == "adaptive" else (422, True)
    )


def test_what_somebody_else_paid_for_can_be_downloaded_after_asking(world: World, drawn: list[tuple[Any, ...]]) -> None:
    owner, analyst = Browser(world, "olga"), Browser(world, "ana")
    assert owner.post(PLACE, column=[column("ward"), column("sex")], amount="0.5").status_code == 303  # type: ignore[arg-type]
    done = analyst.post(PLACE, column=[column("ward"), column("sex")], amount="0.1")  # type: ignore[arg-type]
    assert "replayed=1" in done.headers["location"]
    shown = analyst.get(done.headers["location"]).text
    assert "it cost nothing" in shown
    hidden = re.search(r'name="question" value="(\w{64})"', shown)
    assert hidden is not None
    entry = re.search(r"made=(\d+)", done.headers["location"])[1]  # type: ignore[index]
    assert analyst.get(f"{PLACE}/{entry}/rows?form=csv&question={hidden[1]}").status_code == 200
    assert drawn[-1][-1] == hidden[1]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"column": [], "amount": "0.5"}, "the offered ones"),
        ({"column": [column("town")], "amount": "0.5"}, "the offered ones"),
        ({"column": [column("ward")], "amount": "nan"}, "positive number"),
        ({"column": [column("ward")], "amount": "0.5", "target": "age"}, "target"),
        ({"column": [column("ward"), column("sex")], "amount": "1000"}, "Not enough budget is left"),
    ],
)
def test_what_is_wrong_is_said_on_the_page_and_not_charged(world: World, fields: dict[str, Any], said: str) -> None:
    browser, before = Browser(world, "ana"), charges(world)
    done = browser.post(PLACE, **fields)
    assert done.status_code in {402, 422}
    assert said in unescape(done.text)
    assert charges(world) == before


def test_wrong_downloads_are_refused_on_a_page(world: World, drawn: list[tuple[Any, ...]]) -> None:
    browser = Browser(world, "ana")
    for wrong in ("1/rows?rows=0", "1/rows?rows=1e9", "1/rows?form=exe", "x/rows", "1/rows?rows=99999999"):
        assert browser.get(f"{PLACE}/{wrong}").status_code in {404, 422}
    assert drawn == []


def test_hostile_names_stay_names(hostile: World) -> None:
    browser = Browser(hostile, "olga")
    place = "/console/data/hostile/synthetic"
    inert(browser.get(place).text)
    chosen = [column(HOSTILE, "t"), column(QUOTES, "t")]
    done = browser.post(place, column=chosen, amount="0.5", target=HOSTILE)  # type: ignore[arg-type]
    assert done.status_code == 303, done.text
    shown = browser.get(done.headers["location"]).text
    inert(shown)
    assert HOSTILE in unescape(shown)
    assert HOSTILE not in shown
    inert(browser.get("/console/data/hostile/releases").text)


def test_the_price_stands_there_before_it_is_paid(world: World) -> None:
    """The button charged, and nothing told how much noise that would buy."""
    analyst, before = Browser(world, "ana"), charges(world)
    asked: Any = {"column": [column("ward"), column("age")], "amount": "0.25", "target": ""}
    page = analyst.post(f"{PLACE}/price", **asked)
    assert page.status_code == 200
    inert(page.text)
    assert "ε 0.25" in page.text
    assert "standard deviation of" in page.text
    assert "Nothing was charged." in page.text
    assert len(re.findall(r"value=\"[^\"]*\" checked", page.text)) == 2
    refused = analyst.post(f"{PLACE}/price", **(asked | {"column": []}))
    assert refused.status_code == 422
    assert charges(world) == before
