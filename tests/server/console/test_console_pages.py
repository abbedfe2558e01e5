"""Pages that say what they mean: whose budget a meter shows, what is shared, what is pending, and what cannot be undone."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from html import unescape

import pytest

from deniable.server.catalogue.catalogue import Person
from deniable.server.request_bodies import BudgetBody
from deniable.server.roles import Role
from tests.server.browsing import Browser, inert
from tests.server.datasets.test_kinship import add, year
from tests.server.world import BUDGET, SCHEMA, WARDS, World, made

OLGA = Person("olga", Role.OWNER)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    there = made(tmp_path_factory.mktemp("pages"))
    with there.client:
        yield there


def words(browser: Browser, path: str) -> str:
    """What a page says, without its tags."""
    page = browser.get(path)
    inert(page.text)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page.text)).split())


def test_an_address_that_is_no_page_keeps_whoever_is_signed_in(world: World) -> None:
    signed_in, stranger = Browser(world, "ana"), Browser(world)
    for browser, there in ((signed_in, True), (stranger, False)):
        page = browser.get("/console/nothing/here")
        assert page.status_code == 404
        assert ("Sign out" in page.text) is there


def test_the_meter_of_an_analyst_is_of_their_share(world: World) -> None:
    """It was the dataset's, beside what is left of the share."""
    world.newcomer("sue", Role.ANALYST)
    world.curator.grant(OLGA, "visits", "sue", BudgetBody(epsilon=1.0), None)
    world.curator.ask(OLGA, "visits", WARDS, {"epsilon": 30.0, "confidence": 0.95})
    assert "0 % of your share is spent" in words(Browser(world, "sue"), "/console/data/visits")
    world.ask(WARDS.replace("ward", "sex"), who="sue", epsilon=1.0)
    said = words(Browser(world, "sue"), "/console/")
    assert re.search(r"100 % of your share is spent; \d+(\.\d+)? % of the dataset's lifetime budget", said), said
    assert re.search(r"\b\d+(\.\d+)? % of the lifetime budget is spent", words(Browser(world, "olga"), "/console/"))


def test_cards_of_one_family_say_that_they_share_a_budget(world: World) -> None:
    (world.folder / "copy.csv").write_bytes((world.folder / "visits.csv").read_bytes())
    world.curator.register(OLGA, "twin", {"visits": "copy.csv"}, SCHEMA, None)
    said = words(Browser(world, "olga"), "/console/")
    assert "shared with twin" in said
    assert "shared with visits" in said
    assert "twin" not in words(Browser(world, "ana"), "/console/")  # who may not see it does not hear of it


def test_invitations_that_nobody_redeemed_are_on_the_page(world: World) -> None:
    browser = Browser(world, "adam")
    told = world.call("adam", "POST", "/v1/invitations", {"person": "pim", "role": "analyst"}).json()
    assert f"invited, not redeemed yet: {told['id']} until" in words(browser, "/console/people")
    world.client.request("POST", "/redeem", json={"invitation": told["invitation"]})
    assert "not redeemed yet" not in words(browser, "/console/people")


def test_what_cannot_be_undone_is_asked_twice(world: World) -> None:
    people, share = (
        Browser(world, "adam").get("/console/people").text,
        Browser(world, "olga").get("/console/data/visits/share").text,
    )
    assert (
        people.count('<details class="sure">')
        == people.count("/console/tokens/revoke") + people.count('aria-label="Invite ') // 2
    )
    assert "All tokens of yours end at once, this one too: you are signed out." in people
    assert "All tokens of ana end at once." in people
    assert share.count('<details class="sure">') == share.count("/revoke") > 0


def test_releases_have_the_minute_of_their_charge(world: World) -> None:
    world.ask(WARDS.replace("COUNT(*)", "AVG(age)"), epsilon=0.5)
    [newest, *_] = world.call("ana", "GET", "/v1/datasets/visits/releases").json()["releases"]
    minute = time.strftime("%Y-%m-%d %H:%M", time.gmtime(newest["time"]))
    assert f"{newest['release']} {minute} ana" in words(Browser(world, "ana"), "/console/data/visits/releases")


def test_the_column_of_the_person_is_not_offered_for_bounds(world: World) -> None:
    (world.folder / "scales.csv").write_text("\n".join(["id,kg", *(f"{90_000 + i},{40 + i % 60}" for i in range(300))]))
    schema = "version: 1\ntables:\n  s:\n    person: id\n    rows: 1\n    columns:\n"
    schema += "      id: {kind: integer}\n      kg: {kind: integer}\n"
    world.curator.register(OLGA, "scales", {"s": "scales.csv"}, schema, BudgetBody(epsilon=1.0, delta=1e-6))
    page = Browser(world, "olga").get("/console/data/scales/share").text
    assert ">s.kg<" in page
    assert ">s.id<" not in page


def test_an_auditor_sees_overlaps_and_nobody_else_does(world: World) -> None:
    auditor = Browser(world, "ada")
    assert "No overlaps were found." in words(auditor, "/console/overlaps")
    world.newcomer("otto", Role.OWNER)
    for name, seed, who in (("hers", 5, "olga"), ("his", 6, "otto")):
        year(world, name, seed=seed, people=range(8_000, 9_000))
        assert add(world, name, budget=BUDGET, who=who).status_code == 201
    said = words(auditor, "/console/overlaps")
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d his otto hers olga", said), said
    assert 'href="/console/overlaps"' in auditor.get("/console/").text
    for who in ("olga", "ana", "adam"):
        assert Browser(world, who).get("/console/overlaps").status_code == 403


def test_whether_people_are_the_same_is_asked_in_words_beside_the_choice(world: World) -> None:
    """The box at the top spoke of the API, and the choice stood far below it."""
    year(world, "first_year", seed=1)
    assert add(world, "first_year", budget=BUDGET).status_code == 201
    year(world, "second_year", seed=2)
    browser = Browser(world, "olga")
    browser.get("/console/add?file=second_year.csv")
    fields = {"file": "second_year.csv", "name": "second", "table": "second", "person": "patient", "rows": "1"}
    fields |= {"kind.0": "integer", "kind.1": "text", "kind.2": "integer", "step": "7", "delta": "1e-6"}
    page = browser.post("/console/add", **fields)
    inert(page.text)
    said = " ".join(unescape(re.sub(r"<[^>]*>", " ", page.text)).split())
    assert page.status_code == 422
    assert "Are these people whom you added before? Most of these ids are those of first_year . Say which it is" in said
    assert "people: same" not in said
    assert page.text.index("They are the same people") < page.text.index("Names, and whom it protects")
