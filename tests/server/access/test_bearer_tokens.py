"""Tokens: shown once, hashed, expiring, revocable; and that strangers learn nothing by knocking."""

from __future__ import annotations

import time
from typing import Any

import pytest

from deniable.server.access import bearer_tokens
from deniable.server.access.rate_limits import Buckets
from deniable.server.roles import Role
from tests.server.world import World, made


def knock(world: World, token: str) -> Any:
    world.client.app._keeper._strangers._levels.clear()
    return world.client.request("GET", "/v1/me", headers={b"Authorization": token.encode("latin-1")})


def test_a_token_is_kept_as_a_hash_only(world: World) -> None:
    token = world.tokens["ana"]
    secret = token.rsplit("_", 1)[1] if "_" not in token[20:] else token[20:]
    for file in (world.folder / "state").rglob("*"):
        if file.is_file():
            assert secret.encode() not in file.read_bytes(), file.name
    [record] = world.curator.catalogue.tokens("ana")
    assert record.hash.startswith("$argon2id$")


def test_the_list_of_tokens_does_not_have_them(world: World) -> None:
    answer = world.call("adam", "GET", "/v1/people/ana/tokens")
    assert world.tokens["ana"][20:] not in answer.text
    assert "argon2" not in answer.text


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer x",
        "Bearer dn_0123456789abcdef_" + "a" * 43,
        "Basic YTpi",
        "Bearer \u00e9",
        "bearer null",
    ],
)
def test_whatever_is_wrong_with_a_token_the_answer_is_the_same(wrong: str, world: World) -> None:
    nobody = knock(world, "Bearer nothing")
    known = knock(world, f"Bearer {world.tokens['ana'][:-1]}{'A' if world.tokens['ana'][-1] != 'A' else 'B'}")
    answer = knock(world, wrong)
    assert answer.status_code == nobody.status_code == known.status_code == 401
    assert answer.content == nobody.content == known.content


def test_an_unknown_id_takes_the_same_work_as_a_wrong_secret(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, checks = world.curator.gate, []
    verify = gate._hasher.verify

    class Counting:
        def verify(self, hash: str, secret: str) -> Any:
            checks.append(hash[:30])
            return verify(hash, secret)

    monkeypatch.setattr(gate, "_hasher", Counting())
    gate.check("dn_0123456789abcdef_" + "a" * 43)
    gate.check(world.tokens["olga"][:-1] + ("A" if world.tokens["olga"][-1] != "A" else "B"))
    gate.check("nonsense")
    assert len(checks) == 3
    assert len(set(checks)) == 1  # the same parameters, so the same work


def test_a_checked_token_is_not_hashed_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = world.curator.gate
    monkeypatch.setattr(bearer_tokens, "FRESH", 600.0)  # however busy the machine
    assert gate.check(world.tokens["ana"]) is not None
    monkeypatch.setattr(gate, "_hasher", None)
    person = gate.known(world.tokens["ana"])
    assert person is not None
    assert person.name == "ana"


def test_a_known_id_opens_nothing_with_another_secret(world: World) -> None:
    """Also while the cache has the record of the token, and today's use of it is in the log."""
    token, gate = world.tokens["ana"], world.curator.gate
    wrong = token[:-1] + ("A" if token[-1] != "A" else "B")
    assert world.call("ana", "GET", "/v1/me").status_code == 200
    assert gate.known(token) is not None
    assert gate.known(wrong) is gate.met(wrong) is gate.check(wrong) is None
    assert not gate.is_cheap(wrong)
    assert knock(world, f"Bearer {wrong}").status_code == 401


def test_a_revoked_token_opens_nothing(world: World) -> None:
    made = world.call("ana", "POST", "/v1/tokens", {}).json()
    assert knock(world, f"Bearer {made['token']}").json() == {"name": "ana", "role": "analyst"}
    assert world.call("adam", "DELETE", f"/v1/tokens/{made['id']}").status_code == 204
    assert knock(world, f"Bearer {made['token']}").status_code == 401
    assert knock(world, f"Bearer {world.tokens['ana']}").status_code == 200


def test_an_expired_token_opens_nothing(world: World) -> None:
    made = world.call("ana", "POST", "/v1/tokens", {"days": 1e-6}).json()
    time.sleep(0.2)
    assert knock(world, f"Bearer {made['token']}").status_code == 401


def test_somebody_who_was_closed_comes_back_as_who_they_were(world: World) -> None:
    token = world.tokens[world.newcomer("carl", Role.ANALYST)]
    assert knock(world, f"Bearer {token}").status_code == 200
    assert world.call("adam", "DELETE", "/v1/people/carl").status_code == 204
    assert knock(world, f"Bearer {token}").status_code == 401
    other = world.call("adam", "POST", "/v1/people", {"name": "carl", "role": "owner"})
    assert (other.status_code, other.json()["code"]) == (409, "exists")
    assert world.call("adam", "POST", "/v1/people", {"name": "carl", "role": "analyst"}).status_code == 201


@pytest.mark.parametrize("name", ["", " x", "a" * 101, "<script>", "x\ny", "=cmd()", "../x", "a/b", "o\u200bo", 'a"b'])
def test_a_name_cannot_break_a_page_a_file_or_a_log(name: str, world: World) -> None:
    assert world.call("adam", "POST", "/v1/people", {"name": name, "role": "analyst"}).status_code == 422


@pytest.mark.slow
def test_strangers_may_not_knock_for_ever(world: World) -> None:
    assert world.call("ana", "GET", "/v1/me").status_code == 200
    world.client.app._keeper._strangers._levels.clear()
    statuses = [
        world.client.request("GET", "/v1/me", headers={"Authorization": "Bearer x"}).status_code for _ in range(30)
    ]
    assert statuses[:20] == [401] * 20
    assert statuses[-1] == 429
    world.curator.gate.forget()  # as after a second
    assert world.call("ana", "GET", "/v1/me").status_code == 200  # whoever was here before passes


@pytest.mark.slow
def test_a_token_has_a_rate_that_only_its_own_requests_use_up(tmp_path: Any) -> None:
    there = made(tmp_path, rate=0.01, burst=3)
    with there.client:
        statuses = [there.call("ana", "GET", "/v1/me").status_code for _ in range(5)]
        assert statuses == [200, 200, 200, 429, 429]
        refused = there.call("ana", "GET", "/v1/me")
        assert refused.json()["code"] == "rate_limited"
        assert 1 <= int(refused.headers["Retry-After"]) <= 100
        assert there.call("olga", "GET", "/v1/me").status_code == 200


def test_a_bucket_fills_at_its_rate() -> None:
    now = [0.0]
    buckets = Buckets(rate=2, burst=4, clock=lambda: now[0])
    assert [buckets.take("a") for _ in range(5)] == [0, 0, 0, 0, 1]
    now[0] = 0.5
    assert [buckets.take("a") for _ in range(2)] == [0, 1]
    now[0] = 1e6
    assert [buckets.take("a") for _ in range(5)] == [0, 0, 0, 0, 1]


def test_records_are_read_again_every_second(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = world.call("ana", "POST", "/v1/tokens", {}).json()
    assert world.curator.gate.check(made["token"]) is not None
    world.curator.catalogue.revoke_token(made["id"])  # as another process would
    monkeypatch.setattr(bearer_tokens, "FRESH", -1.0)
    assert world.curator.gate.known(made["token"]) is None
    assert world.curator.gate.check(made["token"]) is None
