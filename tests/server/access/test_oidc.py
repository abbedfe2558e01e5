"""Tokens of an OpenID Connect issuer: only what a named key signed, for us, now, about somebody we know."""

from __future__ import annotations

import base64
import datetime as dt
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from deniable.errors import InvalidParameter, UnreadableRecord
from deniable.server.access import oidc
from deniable.server.access.rate_limits import Buckets
from deniable.server.catalogue import access_log
from deniable.server.catalogue.access_log import BEARER
from deniable.server.catalogue.people import issued_to
from deniable.server.operations.settings import Settings
from deniable.server.roles import Role
from tests.server.browsing import Browser
from tests.server.world import World, made
from tests.wording import worded

ISSUER, AUDIENCE = "https://login.example.org", "deniable"
KEYS: dict[str, tuple[str, Any]] = {
    "rsa": ("RS256", rsa.generate_private_key(65537, 2048)),
    "ec": ("ES256", ec.generate_private_key(ec.SECP256R1())),
    "ed": ("EdDSA", ed25519.Ed25519PrivateKey.generate()),
}
WEAK, OTHER = rsa.generate_private_key(65537, 1024), rsa.generate_private_key(65537, 2048)


def public(kid: str, algorithm: str, key: Any, **more: Any) -> dict[str, Any]:
    written = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**written, "kid": kid, **more}


def key_set() -> dict[str, Any]:
    listed = [public(kid, *pair) for kid, pair in KEYS.items()]
    listed.append(public("weak", "RS256", WEAK))
    listed.append(public("sealing", "RS256", OTHER, use="enc"))
    return {"keys": listed}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("oidc")
    (folder / "keys.json").write_text(json.dumps(key_set()))
    about = {"issuer": ISSUER, "audience": AUDIENCE, "keys": str(folder / "keys.json")}
    there = made(folder, oidc=about)
    with there.client:
        yield there


def token(kid: str = "rsa", *, key: Any = None, alg: str | None = None, headers: Any = None, **changed: Any) -> str:
    now = time.time()
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ana", "iat": now, "nbf": now, "exp": now + 300} | changed
    said = {name: each for name, each in said.items() if each is not None}
    algorithm, own = KEYS.get(kid, KEYS["rsa"])
    return jwt.encode(said, key or own, alg or algorithm, headers={"kid": kid, **(headers or {})})


def part(record: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(record).encode()).rstrip(b"=").decode()


def who(world: World, text: str) -> Any:
    return world.client.request("GET", "/v1/me", headers={"Authorization": f"Bearer {text}"})


@pytest.mark.parametrize("kid", sorted(KEYS))
def test_a_token_says_who_comes_and_the_catalogue_what_they_may(world: World, kid: str) -> None:
    assert who(world, token(kid)).json() == {"name": "ana", "role": "analyst"}
    assert who(world, token(kid, sub="ada", role="admin", roles=["owner"])).json()["role"] == "auditor"


def unsigned(algorithm: str) -> str:
    _, body, _ = token().split(".")
    return f"{part({'alg': algorithm, 'typ': 'JWT', 'kid': 'rsa'})}.{body}."


def by_public_key() -> str:
    """HS256 with the public key as its secret: what a checker that believes `alg` takes for signed."""
    import hashlib
    import hmac

    pem = KEYS["rsa"][1].public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )  # fmt: skip
    body = f"{part({'alg': 'HS256', 'typ': 'JWT', 'kid': 'rsa'})}.{token().split('.')[1]}"
    mac = hmac.new(pem, body.encode(), hashlib.sha256).digest()
    return f"{body}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def flipped() -> str:
    head, _, signature = token().split(".")
    return f"{head}.{token(sub='olga').split('.')[1]}.{signature}"


BAD: dict[str, Callable[[], str]] = {
    "alg none": lambda: unsigned("none"),
    "alg None": lambda: unsigned("None"),
    "HS256 with the public key": by_public_key,
    "another algorithm of the same key": lambda: token(alg="RS512"),
    "another key under a known name": lambda: token(key=OTHER),
    "unknown kid": lambda: token("nobody"),
    "a short key": lambda: token("weak", key=WEAK),
    "a key for something else": lambda: token("sealing", key=OTHER),
    "a key in the token": lambda: token("mine", key=OTHER, headers={"jwk": public("mine", "RS256", OTHER)}),
    "a key elsewhere": lambda: token("mine", key=OTHER, headers={"jku": "https://evil.example.org/keys"}),
    "crit": lambda: token(headers={"crit": ["b64"], "b64": True}),
    "wrong audience": lambda: token(aud="somebody else"),
    "no audience": lambda: token(aud=None),
    "wrong issuer": lambda: token(iss="https://evil.example.org"),
    "no issuer": lambda: token(iss=None),
    "expired": lambda: token(exp=time.time() - 60),
    "without an end": lambda: token(exp=None),
    "not yet": lambda: token(nbf=time.time() + 600),
    "nobody here": lambda: token(sub="mallory"),
    "no subject": lambda: token(sub=None),
    "another body": flipped,
    "no kid": lambda: jwt.encode({"sub": "ana"}, KEYS["rsa"][1], "RS256"),
    "long": lambda: token(more="x" * 9000),
    "not JSON": lambda: "a.b.c",
    "dots": lambda: "..",
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")  # whoever signs is told as well
@pytest.mark.parametrize("name", BAD)
def test_everything_else_is_refused_in_the_same_words(world: World, name: str) -> None:
    world.curator.gate.forget()
    world.client.app._keeper._strangers._levels.clear()  # twenty wrong ones, and an address has to wait
    answer = who(world, BAD[name]())
    assert answer.status_code == 401
    assert answer.content == who(world, "dn_0000000000000000_" + "x" * 43).content


def test_somebody_who_was_closed_is_out_whatever_their_token_says(world: World) -> None:
    world.newcomer("eve", "analyst")  # type: ignore[arg-type]
    text = token(sub="eve")
    assert who(world, text).status_code == 200
    world.curator.catalogue.close_person("eve")
    world.curator.gate.forget()
    assert who(world, text).status_code == 401


def test_keys_at_an_address_are_fetched_when_needed_and_not_for_every_stranger(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    def fetch(url: str) -> bytes:
        fetched.append(url)
        return json.dumps(key_set()).encode()

    monkeypatch.setattr(oidc, "fetched", fetch)
    about = {"issuer": ISSUER, "audience": AUDIENCE, "keys": "https://login.example.org/keys"}
    issuer = oidc.configured(world.curator.catalogue, about)
    for _ in range(5):
        assert issuer.check(token("nobody")) is None
    assert issuer.check(token("ed")).name == "ana"  # type: ignore[union-attr]
    assert fetched == ["https://login.example.org/keys"]


def test_a_key_that_the_issuer_withdrew_was_trusted_until_the_server_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys were fetched for unknown key ids only. Now they are fetched again after ten minutes; while the address does
    not answer, the last ones count for an hour.
    """
    now, fetched, sets = [1000.0], [0], [key_set()]

    def fetch(url: str) -> bytes:
        fetched[0] += 1
        if not sets:
            raise ValueError
        return json.dumps(sets[0]).encode()

    monkeypatch.setattr(oidc, "fetched", fetch)
    monkeypatch.setattr(oidc.time, "monotonic", lambda: now[0])
    about = {"issuer": ISSUER, "audience": AUDIENCE, "keys": "https://login.example.org/keys"}
    issuer = oidc.configured(world.curator.catalogue, about)

    def knows(kid: str) -> bool:
        return issuer.check(token(kid)) is not None

    assert knows("ed")
    sets[0] = {"keys": [each for each in key_set()["keys"] if each["kid"] != "ed"]}
    now[0] += 599
    assert (knows("ed"), fetched[0]) == (True, 1)
    now[0] += 2
    assert (knows("ed"), fetched[0]) == (False, 2)

    sets[0] = key_set()
    now[0] += 61
    assert (knows("ed"), fetched[0]) == (True, 3)
    sets.clear()
    for _ in range(3):
        now[0] += 1190
        assert knows("ed")
    assert fetched[0] == 6
    now[0] += 31
    assert not knows("ed")
    sets.append(key_set())
    now[0] += 61
    assert knows("ed")


def test_an_email_counts_when_the_issuer_has_verified_it(world: World, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(json.dumps(key_set()))
    about = {"issuer": ISSUER, "audience": AUDIENCE, "keys": str(tmp_path / "keys.json"), "claim": "email"}
    issuer = oidc.configured(world.curator.catalogue, about)
    assert issuer.check(token(email="ana", email_verified=True)).name == "ana"  # type: ignore[union-attr]
    assert issuer.check(token(email="ana")) is None
    assert issuer.check(token(email="ana", email_verified="true")) is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"issuer": ""}, "oidc.issuer"),
        ({"keys": "http://login.example.org/keys"}, "https"),
        ({"keys": "nothing.json"}, "must be an existing file"),
        ({"claim": "role"}, "oidc.claim"),
        ({"algorithms": "none"}, "is not a known entry"),
    ],
)
def test_settings_that_mean_nothing_are_refused(world: World, changed: dict[str, str], said: str) -> None:
    about = {"issuer": ISSUER, "audience": AUDIENCE, "keys": str(world.folder / "keys.json")} | changed
    with pytest.raises(InvalidParameter, match=said):
        oidc.configured(world.curator.catalogue, about)


def test_a_file_of_settings_names_the_keys_beside_it(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text(
        f'state = "s"\ndata = ["data"]\n[oidc]\nissuer = "{ISSUER}"\naudience = "{AUDIENCE}"\nkeys = "keys.json"\n'
    )
    read = Settings.read(tmp_path / "server.toml")
    assert read.oidc is not None
    assert read.oidc["keys"] == str(tmp_path / "keys.json")


def test_a_set_that_is_none_is_said(tmp_path: Path, world: World) -> None:
    (tmp_path / "keys.json").write_text("[]")
    about = {"issuer": ISSUER, "audience": AUDIENCE, "keys": str(tmp_path / "keys.json")}
    with worded(UnreadableRecord):
        oidc.configured(world.curator.catalogue, about)


# -- somebody else under one's name ------------------------------------------------------------------------------------


def test_a_flood_of_tokens_with_two_dots_was_counted_nowhere(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """68,000 lines of the log in 16 s. Whoever the issuer has signed for is not kept out by others at their address."""
    monkeypatch.setattr(world.client.app._keeper, "_visits", Buckets(rate=1e-6, burst=5))
    found = [who(world, f"a{number}.b.c") for number in range(60)]
    assert [each.status_code for each in found] == [401] * 5 + [429] * 55
    assert found[-1].headers["connection"] == "close"
    refused = [each for each in caplog.records if "token_refused" in each.getMessage()]
    assert (len(refused), len([each for each in caplog.records if '"limit"' in each.getMessage()]) < 40) == (5, True)
    assert who(world, token()).status_code == 200


def since(world: World, text: str) -> list[tuple[str, str]]:
    answer = world.client.request("GET", "/v1/me/since", headers={"Authorization": f"Bearer {text}"})
    return [(each["event"], each["by"]) for each in answer.json()["entries"]]


def test_an_admin_does_not_become_somebody_who_comes_by_an_issuer(world: World) -> None:
    """They would come in as before, and not notice it; also after they were closed, and came back."""
    assert world.call("adam", "POST", "/v1/people", {"name": "orla", "role": "owner"}).status_code == 201
    assert who(world, token(sub="orla")).status_code == 200
    for _ in range(2):
        refused = world.call("adam", "POST", "/v1/invitations", {"person": "orla", "role": "owner"})
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert "signs in by OpenID Connect and needs no invitation" in refused.json()["detail"]
        world.call("adam", "DELETE", "/v1/people/orla")
    assert world.call("adam", "POST", "/v1/people", {"name": "orla", "role": "owner"}).status_code == 201
    assert (who(world, token(sub="orla")).status_code, since(world, token(sub="orla"))) == (200, [])
    mine = world.client.request(
        "POST", "/v1/tokens", json={}, headers={"Authorization": f"Bearer {token(sub='orla')}"}
    ).json()
    assert who(world, mine["token"]).json()["name"] == "orla"  # for programs of their own
    assert since(world, token(sub="orla")) == [("issued", "orla")]
    assert since(world, mine["token"]) == []


def test_who_was_impersonated_before_they_first_came_is_told_when_they_come(world: World) -> None:
    invited = world.call("adam", "POST", "/v1/invitations", {"person": "omar", "role": "owner"}).json()
    stolen = world.client.request("POST", "/redeem", json={"invitation": invited["invitation"]}).json()["token"]
    assert since(world, stolen) == []
    assert since(world, token(sub="omar")) == [("redeemed", BEARER), ("invited", "adam")]
    browser = Browser(world)
    browser.get("/console/sign-in")
    assert browser.post("/console/sign-in", token=token(sub="omar")).status_code == 303
    page = browser.get("/console/").text
    assert "New ways in under your name" in page
    assert "you were invited by adam" in page
    assert "an invitation of yours was exchanged for the token" in page


def test_what_was_done_in_a_name_is_told_until_the_day_after_it_was_seen(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = 1

    class Clock(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Clock:
            return cls(2026, 1, day, 12, tzinfo=tz)

    monkeypatch.setattr("deniable.server.catalogue.access_log.datetime", Clock)
    kept = world.curator.catalogue
    kept.add_person("ollie", Role.OWNER)
    told = []
    for day in range(1, 6):
        if day == 2:
            kept.add_token("aa", "ollie", "x", 9e9, by="adam")
        if day != 4:  # nothing is seen on a day on which nobody comes
            kept.signed_in("ollie", issued_to("ollie"))
            kept.signed_in("ollie", issued_to("ollie"))  # by another process
            with kept.reading() as connection:
                told.append([each.event for each in access_log.since(connection, "ollie", issued_to("ollie"))])
        if day == 3:
            kept.add_token("ab", "ollie", "x", 9e9, by="adam")
    assert told == [[], ["issued"], [], ["issued"]]


def test_a_misspelt_entry_was_told_as_one_that_is_missing(world: World) -> None:
    settings = {"issuer": "https://x", "audiance": "deniable", "keys": "keys.json"}
    with worded(InvalidParameter, parameter="oidc"):
        oidc.configured(world.curator.catalogue, settings)
