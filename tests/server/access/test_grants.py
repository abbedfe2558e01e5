"""Grants are what the ledger says, releases are filtered before they are paged, and names that look alike are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deniable.errors import InvalidParameter
from deniable.server.catalogue.catalogue import ReleaseRecord
from deniable.server.catalogue.catalogue_tables import WitnessedHead
from deniable.server.catalogue.people import checked_name, look
from deniable.server.problems import Problem
from deniable.server.roles import Role
from tests.server.browsing import Browser
from tests.server.world import SCHEMA, World, made
from tests.wording import worded


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two names of one family: `visits` and `again`."""
    folder = tmp_path_factory.mktemp("family")
    there = made(folder)
    (folder / "copy.csv").write_bytes((folder / "visits.csv").read_bytes())
    with there.client:
        body = {"name": "again", "sources": {"visits": "copy.csv"}, "schema": SCHEMA}
        assert there.call("olga", "POST", "/v1/datasets", body).json()["linked"] is True
        yield there


def listed(world: World, dataset: str, analyst: str) -> list[tuple[str, int | None]]:
    found = world.call("olga", "GET", f"/v1/datasets/{dataset}/grants").json()["grants"]
    return [(each["limit"], each["window_seconds"]) for each in found if each["analyst"] == analyst]


def granted(world: World, dataset: str, analyst: str, epsilon: float, window: int | None = None) -> None:
    body = {"analyst": analyst, "limit": {"epsilon": epsilon}, "window_seconds": window}
    assert world.call("olga", "POST", f"/v1/datasets/{dataset}/grants", body).status_code == 201


def test_grants_on_two_names_of_one_family_are_one_and_the_list_says_what_holds(family: World) -> None:
    bea = family.newcomer("bea", Role.ANALYST)
    granted(family, "visits", bea, 5.0)
    granted(family, "again", bea, 1.0)  # one ledger: this is the limit of both now
    told = listed(family, "visits", bea)
    assert told == listed(family, "again", bea)
    assert len(told) == 1
    assert told[0][0].startswith("epsilon 1 at")
    account = [each for each in family.ledger.accounts() if each.name == bea]
    assert told == [(account[0].limit.describe(family.ledger.budget), None)]


def test_a_grant_of_more_than_there_is_is_refused(family: World) -> None:
    """It was 201: an analyst was told a share that nobody could ever spend."""
    flo = family.newcomer("flo", Role.ANALYST)
    for window in (None, 3600):
        body = {"analyst": flo, "limit": {"epsilon": 101.0}, "window_seconds": window}
        refused = family.call("olga", "POST", "/v1/datasets/visits/grants", body)
        assert (refused.status_code, refused.json()["parameter"]) == (422, "limit")
        assert "must be at most the limit of the dataset: epsilon 100 at" in refused.json()["detail"]
    assert listed(family, "visits", flo) == []
    granted(family, "visits", flo, 100.0)
    assert listed(family, "visits", flo)[0][0] == family.ledger.limit.describe(family.ledger.budget)


def test_revoking_ends_every_grant_of_the_family_and_every_window(family: World) -> None:
    cal = family.newcomer("cal", Role.ANALYST)
    granted(family, "visits", cal, 2.0)
    granted(family, "again", cal, 1.0, 3600)
    granted(family, "again", cal, 0.5, 86_400)
    assert [window for _, window in listed(family, "visits", cal)] == [None, 3600, 86_400]
    assert family.call("olga", "DELETE", f"/v1/datasets/visits/grants/{cal}").status_code == 204
    for dataset in ("visits", "again"):
        assert listed(family, dataset, cal) == []
        assert family.call(cal, "GET", f"/v1/datasets/{dataset}").status_code == 404
    assert {each.limit.units for each in family.ledger.accounts() if each.name == cal} == {0}


def test_revoking_writes_about_that_analyst_alone_and_about_the_windows_that_they_have(family: World) -> None:
    """One entry for each limit of theirs: not of the windows of others, and none twice."""
    dan, eve = family.newcomer("dan", Role.ANALYST), family.newcomer("eve", Role.ANALYST)
    granted(family, "visits", dan, 1.0)
    granted(family, "visits", eve, 1.0)
    granted(family, "visits", eve, 0.5, 7200)
    before = family.ledger.head.number
    assert family.call("olga", "DELETE", f"/v1/datasets/visits/grants/{dan}").status_code == 204
    written = [each.terms for each in family.ledger.entries() if each.number > before]
    assert [(each.account, each.window) for each in written] == [(dan, None)]
    assert [window for _, window in listed(family, "visits", eve)] == [None, 7200]


def test_a_window_that_was_revoked_does_not_limit_a_later_grant(family: World) -> None:
    dan = family.newcomer("dan", Role.ANALYST)
    granted(family, "visits", dan, 0.01, 86_400)
    family.call("olga", "DELETE", f"/v1/datasets/visits/grants/{dan}")
    granted(family, "visits", dan, 3.0)
    assert [window for _, window in listed(family, "visits", dan)] == [None]
    answer = family.ask(who=dan, epsilon=1.0)
    assert answer.status_code == 200, answer.text


def test_grants_on_the_page_are_those_of_the_ledger(family: World) -> None:
    eva = family.newcomer("eva", Role.ANALYST)
    granted(family, "visits", eva, 7.0)
    granted(family, "again", eva, 6.0)
    page = Browser(family, "olga").get("/console/data/visits/share").text
    assert "of ε 6 at" in page
    assert "of ε 7 at" not in page


# -- releases ----------------------------------------------------------------------------------------------------------


def test_an_analysts_own_releases_do_not_vanish_behind_those_of_others(world: World) -> None:
    mine = world.ask(epsilon=0.01).json()["release"]
    number = int(mine.rpartition(":")[2])
    busy = [ReleaseRecord("visits", number + 1000 + n, "busy", "SELECT 1", 0.95, 1.0 + n) for n in range(150)]
    world.curator.catalogue.add_releases(busy, WitnessedHead("none", "", 0, ""))
    told = world.call("ana", "GET", "/v1/datasets/visits/releases").json()
    assert [each["release"] for each in told["releases"]] == [mine]
    assert told["before"] is None
    assert f">{mine}<" in Browser(world, "ana").get("/console/data/visits/releases").text


def test_every_release_is_on_some_page_and_on_one_only(world: World) -> None:
    seen: list[str] = []
    before: int | None = None
    pages = 0
    while pages == 0 or before is not None:
        place = "/v1/datasets/visits/releases" + ("" if before is None else f"?before={before}")
        told = world.call("ada", "GET", place).json()
        seen += [each["release"] for each in told["releases"]]
        before, pages = told["before"], pages + 1
    numbers = [int(each.rpartition(":")[2]) for each in seen]
    assert pages == 2
    assert numbers == sorted(set(numbers), reverse=True)
    assert len(numbers) == 151
    browser = Browser(world, "ada")
    first = browser.get("/console/data/visits/releases").text
    assert f"?before={numbers[99]}" in first
    assert f">{seen[-1]}<" not in first
    assert f">{seen[-1]}<" in browser.get(f"/console/data/visits/releases?before={numbers[99]}").text
    assert world.call("ada", "GET", "/v1/datasets/visits/releases?before=x").status_code == 422


@pytest.mark.slow
def test_bounds_that_were_bought_stay_on_the_owners_page(tmp_path: Path) -> None:
    there = made(tmp_path)
    with there.client:
        schema = (
            "version: 1\ntables:\n  visits:\n    person: patient_id\n    rows: 3\n    columns: {cost: {kind: real}}\n"
        )
        body = {"name": "free", "sources": {"visits": "visits.csv"}, "schema": schema, "family": "visits"}
        assert there.call("olga", "POST", "/v1/datasets", body).status_code == 201
        wanted = {"column": "cost", "table": "visits", "epsilon": 1.0}
        bought = there.call("olga", "POST", "/v1/datasets/free/bounds", wanted).json()["answer"]["release"]
        number = int(bought.rpartition(":")[2])
        more = [ReleaseRecord("free", number + 1 + n, "ana", "SELECT 1", 0.95, 1.0) for n in range(150)]
        there.curator.catalogue.add_releases(more, WitnessedHead("none", "", 0, ""))
        assert "visits.cost</code>" in Browser(there, "olga").get("/console/data/free/share").text


# -- names that look alike ---------------------------------------------------------------------------------------------

LOOKING_LIKE_ANA = (
    "ana ", " ana", "Ana", "ANA", "an\u0430", "\uff41na", "an\u200ba", "ana\u00a0", "ana\n", "an\u00e1", "a na\u200d",
    "\u202eana", "\u0430\u043d\u0430",
)  # fmt: skip


@pytest.mark.parametrize("name", LOOKING_LIKE_ANA)
def test_a_name_that_looks_like_somebodys_is_refused(name: str, world: World) -> None:
    body = {"name": name, "role": "analyst"}
    assert world.call("adam", "POST", "/v1/people", body).status_code in {409, 422}
    with pytest.raises((Problem, InvalidParameter)):  # also from the command line, which has no border in front of it
        world.curator.catalogue.add_person(name, Role.ANALYST)
    assert len([each for each in world.curator.reception.people() if look(each["name"]) == look("ana")]) == 1


@pytest.mark.parametrize(("one", "other"), [("bob", "b0b"), ("Ivan", "lvan"), ("al", "a1"), ("olga", "OIga")])
def test_names_of_which_one_can_be_read_as_the_other(one: str, other: str) -> None:
    assert look(one) == look(other)


@pytest.mark.parametrize("name", ["bob", "bob smith", "b.o-b_2@example.org", "Zoe", "7"])
def test_names_that_are_taken(name: str) -> None:
    assert checked_name(name) == name


def test_a_name_says_what_is_wrong_with_it() -> None:
    with worded(InvalidParameter, parameter="name"):
        checked_name("bob ")
    with worded(InvalidParameter, parameter="name"):
        checked_name("b\u043eb")
    with pytest.raises(InvalidParameter, match="two spaces"):
        checked_name("bob  smith")
