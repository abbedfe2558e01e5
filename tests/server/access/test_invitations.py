"""Invitations: an admin never holds somebody's token, each is redeemed once, and a log tells all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from deniable.server.catalogue.access_log import BEARER
from deniable.server.catalogue.catalogue import Catalogue
from deniable.server.roles import Role
from tests.postgres import postgres  # noqa: F401  # a fixture
from tests.server.browsing import Browser, inert
from tests.server.world import World, made


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    there = made(tmp_path_factory.mktemp("invited"))
    with there.client:
        yield there


@pytest.fixture(autouse=True)
def unknown_here(world: World) -> None:
    """All tests come from one address."""
    for each in (world.client.app._keeper._strangers, world.client.app._keeper._guests):
        each._levels.clear()


def invite(world: World, person: str, role: str | None = None, **more: Any) -> Any:
    body = {"person": person, **({} if role is None else {"role": role}), **more}
    return world.call("adam", "POST", "/v1/invitations", body)


def redeem(world: World, invitation: str) -> Any:
    return world.client.request("POST", "/redeem", json={"invitation": invitation})


def me(world: World, token: str) -> Any:
    return world.client.request("GET", "/v1/me", headers={"Authorization": f"Bearer {token}"})


def lines(world: World, person: str) -> list[tuple[str, str]]:
    """What the log says of somebody, oldest first, without their signing in."""
    told = world.call("ada", "GET", "/v1/log").json()["entries"]
    return [(each["event"], each["by"]) for each in reversed(told) if each["person"] == person]


def test_an_admin_gets_no_token_of_somebody_else(world: World) -> None:
    """By no route: what an admin is told opens nothing."""
    assert world.call("adam", "POST", "/v1/tokens", {"person": "olga"}).status_code == 422
    mine = world.call("adam", "POST", "/v1/tokens", {}).json()
    assert me(world, mine["token"]).json()["name"] == "adam"
    told = invite(world, "nora", "owner").json()
    assert "token" not in told
    assert me(world, told["invitation"]).status_code == 401
    assert me(world, told["invitation"].replace("dni_", "dn_")).status_code == 401


def test_an_invitation_is_redeemed_once(world: World) -> None:
    told = invite(world, "mia", "analyst").json()
    assert told["again"] is False
    done = redeem(world, told["invitation"])
    assert (done.status_code, done.json()["person"]) == (201, "mia")
    assert me(world, done.json()["token"]).json() == {"name": "mia", "role": "analyst"}
    again = redeem(world, told["invitation"])
    assert (again.status_code, again.json()["code"]) == (401, "unauthorized")
    assert lines(world, "mia") == [("added", "adam"), ("invited", "adam"), ("redeemed", BEARER), ("signed in", "mia")]


def test_a_crowd_with_one_invitation_gets_one_token(world: World) -> None:
    told = invite(world, "max", "analyst").json()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: redeem(world, told["invitation"]).status_code, range(8)))
    assert sorted(found) == [201, *[401] * 7]


def test_every_wrong_invitation_is_refused_in_the_same_bytes(world: World) -> None:
    spent = invite(world, "pia", "analyst").json()["invitation"]
    redeem(world, spent)
    late = invite(world, "per", "analyst", days=1e-9).json()["invitation"]
    closed = invite(world, "pat", "analyst").json()["invitation"]
    assert world.call("adam", "DELETE", "/v1/people/pat").status_code == 204
    ended = invite(world, "pam", "analyst").json()["invitation"]
    invite(world, "pam")
    other = "dni_0123456789abcdef_" + "x" * 43
    found = [redeem(world, each) for each in (spent, late, closed, ended, other, spent[:-1] + "~", "dni_", "x" * 150)]
    assert {each.status_code for each in found} == {401}
    assert len({each.content for each in found}) == 1
    assert redeem(world, "x" * 201).status_code == 422


def test_who_is_invited_again_loses_their_tokens_and_everybody_can_see_it(world: World) -> None:
    olga = world.newcomer("olaf", Role.OWNER)
    old = world.tokens[olga]
    assert me(world, old).status_code == 200
    told = invite(world, olga).json()
    assert told["again"] is True
    assert me(world, old).status_code == 401
    new = redeem(world, told["invitation"]).json()["token"]
    assert me(world, new).json()["name"] == olga
    for who in ("ada", "olga"):
        entries = world.call(who, "GET", "/v1/log").json()["entries"]
        [again] = [each for each in entries if each["event"] == "invited" and each["person"] == olga]
        assert (again["by"], again["detail"]["again"]) == ("adam", True)
        assert [each["by"] for each in entries if each["event"] == "revoked" and each["person"] == olga] == ["adam"]


def test_nobody_is_invited_into_another_role_or_without_one(world: World) -> None:
    assert invite(world, "stranger").status_code == 404
    refused = invite(world, "ana", "owner")
    assert (refused.status_code, refused.json()["code"]) == (409, "exists")
    assert me(world, world.tokens["ana"]).status_code == 200  # and nothing was revoked
    assert invite(world, "Ana", "analyst").status_code == 409  # looks like ana
    assert invite(world, "ana ", "analyst").status_code == 422


def test_who_was_closed_can_be_invited_back(world: World) -> None:
    world.newcomer("cora", Role.ANALYST)
    world.call("adam", "DELETE", "/v1/people/cora")
    told = invite(world, "cora").json()
    assert me(world, redeem(world, told["invitation"]).json()["token"]).json()["role"] == "analyst"


def test_who_comes_back_does_so_without_old_tokens_and_invitations(world: World) -> None:
    token = redeem(world, invite(world, "zoe", "analyst").json()["invitation"]).json()["token"]
    told = invite(world, "zora", "analyst").json()
    for name in ("zoe", "zora"):
        assert world.call("adam", "DELETE", f"/v1/people/{name}").status_code == 204
        assert world.call("adam", "POST", "/v1/people", {"name": name, "role": "analyst"}).status_code == 201
    assert redeem(world, told["invitation"]).status_code == 401
    assert me(world, token).status_code == 401
    assert ("revoked", "adam") in lines(world, "zoe")


def test_strangers_cannot_try_invitations_for_ever(world: World) -> None:
    found = [redeem(world, "dni_").status_code for _ in range(25)]
    assert found[:20] == [401] * 20
    assert found[-1] == 429


def test_wrong_invitations_keep_nobody_out_who_has_a_token(world: World) -> None:
    """After a restart nobody was met before; strangers at the same address tried invitations."""
    assert [redeem(world, "dni_").status_code for _ in range(25)][-1] == 429
    world.newcomer("tom", Role.ANALYST)
    assert me(world, world.tokens["tom"]).status_code == 200
    wrong = [me(world, f"dn_{i:016x}_{'a' * 43}").status_code for i in range(25)]
    assert wrong[-1] == 429  # the other way round: wrong tokens keep no invitation from being redeemed
    world.client.app._keeper._guests._levels.clear()
    told = invite(world, "tim", "analyst").json()
    assert redeem(world, told["invitation"]).status_code == 201


def test_somebody_makes_a_further_token_for_themselves(world: World) -> None:
    world.newcomer("rosa", Role.AUDITOR)
    made = world.call("rosa", "POST", "/v1/tokens", {}).json()
    assert me(world, made["token"]).json()["name"] == "rosa"
    assert me(world, world.tokens["rosa"]).status_code == 200
    assert ("issued", "rosa") in lines(world, "rosa")


# -- the log -----------------------------------------------------------------------------------------------------------


def test_the_log_has_no_secret_in_it(world: World) -> None:
    told = invite(world, "sara", "analyst").json()
    token = redeem(world, told["invitation"]).json()["token"]
    text = world.call("ada", "GET", "/v1/log").text
    for secret in (told["invitation"], token, world.tokens["ada"]):
        assert secret not in text
        assert secret.split("_", 2)[2] not in text


def test_signing_in_is_in_the_log_once_a_day(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.newcomer("ines", Role.ANALYST)
    today = 20_000
    monkeypatch.setattr("deniable.server.access.bearer_tokens._day", lambda: today)
    for _ in range(3):
        assert me(world, world.tokens["ines"]).status_code == 200
    assert lines(world, "ines").count(("signed in", "ines")) == 1
    today += 1
    assert me(world, world.tokens["ines"]).status_code == 200
    assert lines(world, "ines").count(("signed in", "ines")) == 2


def test_a_wrong_secret_is_no_signing_in(world: World) -> None:
    world.newcomer("vito", Role.ANALYST)
    assert me(world, world.tokens["vito"][:-2] + "xx").status_code == 401
    assert ("signed in", "vito") not in lines(world, "vito")


def test_the_log_is_paged_and_signed(world: World) -> None:
    status = world.call("ada", "GET", "/v1/log/status").json()
    for n in range(60):
        world.curator.catalogue.signed_in("ana", f"id{n}")
    now = world.call("ada", "GET", "/v1/log/status").json()
    assert now["entries"] >= status["entries"] + 60
    assert now["key"] == world.curator.key.public.hex
    assert world.curator.key.public.signed(
        f"deniable log of people\n{now['entries']} {now['hash']}".encode(), now["signature"]
    )
    numbers: list[int] = []
    before: int | None = None
    while not numbers or before is not None:
        told = world.call("olga", "GET", "/v1/log" + ("" if before is None else f"?before={before}")).json()
        numbers += [each["number"] for each in told["entries"]]
        before = told["before"]
    assert numbers == list(range(numbers[0], 0, -1))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE curator_log SET person = 'adam' WHERE number = 3",
        "UPDATE curator_log SET detail = '{}' WHERE number = 3",
        "UPDATE curator_log SET \"by\" = 'olga' WHERE number = 3",
        "DELETE FROM curator_log WHERE number = 3",
        "UPDATE curator_log SET number = number + 1000 WHERE number >= 3",
    ],
)
def test_a_log_that_was_changed_says_so(change: str, tmp_path: Path) -> None:
    there = made(tmp_path)
    with there.client:
        assert there.call("ada", "GET", "/v1/log/status").status_code == 200
        with there.curator.catalogue.writing() as connection:
            connection.execute(sa.text(change))
        told = there.call("ada", "GET", "/v1/log/status")
        assert (told.status_code, told.json()["code"], told.json()["entry"]) == (503, "ledger_damaged", 3)
        assert "The log was changed" in Browser(there, "ada").get("/console/log").text


def test_threads_write_one_chain(tmp_path: Path) -> None:
    kept = Catalogue(tmp_path / "catalogue.sqlite")
    _crowd(kept)
    kept.close()


@pytest.mark.postgres
def test_threads_write_one_chain_on_postgres(postgres: Any) -> None:  # noqa: F811
    kept = Catalogue(postgres.database())
    _crowd(kept)
    kept.invite("a" * 16, "ana", Role.ANALYST, "0" * 64, 1e12, by="adam")
    assert kept.redeem("a" * 16, "b" * 16, "hash", 1e12) == "ana"
    assert kept.redeem("a" * 16, "c" * 16, "hash", 1e12) is None
    kept.close()


def _crowd(kept: Catalogue) -> None:
    from deniable.server.catalogue import access_log

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: kept.signed_in("ana", str(n)), range(40)))
    with kept.reading() as connection:
        assert access_log.verified(connection)[0] == 40
        seen = {json.loads(each.detail)["token"] for each in access_log.newest(connection, None, 100)}
    assert seen == {str(n) for n in range(40)}


# -- in the console ----------------------------------------------------------------------------------------------------


def test_an_admin_invites_and_the_invited_comes_in(world: World) -> None:
    admin = Browser(world, "adam")
    page = admin.get("/console/people")
    inert(page.text)
    shown = admin.post("/console/people", person="lena", role="analyst").text
    inert(shown)
    assert "dn_" not in shown
    invitation = shown.split('id="invitation" tabindex="0">')[1].split("<")[0]
    guest = Browser(world)
    inert(guest.get("/console/invitation").text)
    welcome = guest.post("/console/invitation", invitation=f" {invitation}\n")
    assert welcome.status_code == 201
    inert(welcome.text)
    token = welcome.text.split('id="token" tabindex="0">')[1].split("<")[0]
    assert me(world, token).json()["name"] == "lena"
    assert guest.get("/console/").status_code == 200  # signed in
    late = Browser(world)
    late.get("/console/invitation")
    refused = late.post("/console/invitation", invitation=invitation)
    assert refused.status_code == 401
    assert "tell an owner or an auditor" in refused.text
    assert invitation not in refused.text


def test_an_invitation_is_redeemed_from_our_own_page_alone(world: World) -> None:
    invitation = invite(world, "lola", "analyst").json()["invitation"]
    guest = Browser(world)
    assert guest.post("/console/invitation", invitation=invitation).status_code == 403
    assert redeem(world, invitation).status_code == 201


def test_owners_and_auditors_read_the_log_and_others_do_not(world: World) -> None:
    for who, status in (("olga", 200), ("ada", 200), ("ana", 403), ("adam", 403)):
        page = Browser(world, who).get("/console/log")
        assert page.status_code == status
        assert ("every hash recomputed" in page.text) == (status == 200)
        assert ("/console/log" in Browser(world, who).get("/console/").text) == (status == 200)


def test_an_invitation_that_opens_nothing_leaves_a_line(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="deniable.security"):
        assert redeem(world, "dni_nothing").status_code == 401
    assert [json.loads(each.getMessage())["event"] for each in caplog.records] == ["token_refused"]


def test_the_last_admin_is_not_closed(world: World) -> None:
    """Nobody could invite anybody any more."""
    done = world.call("adam", "DELETE", "/v1/people/adam")
    assert (done.status_code, "adam is the last admin" in done.text) == (422, True)
    world.newcomer("second", Role.ADMIN)
    assert world.call("adam", "DELETE", "/v1/people/second").status_code == 204
    assert world.call("adam", "DELETE", "/v1/people/adam").status_code == 422
