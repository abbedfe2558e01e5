"""What the server says to people: in words that name the part that is wrong and what to do."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from deniable import cli, client, transport
from deniable.errors import InvalidParameter, LedgerDamaged, QuestionRefused, ServerRefused
from deniable.server.operations.settings import Settings
from deniable.server.roles import Role
from tests.server.browsing import Browser
from tests.server.world import SCHEMA, WARDS, World
from tests.wording import worded


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"within": 0}, "within: must be more than 0"),
        ({"within": {"n": 0}}, "within.n: must be more than 0"),
        ({"within": "near"}, "within: must be a number or must be a list or must be an object"),
        (
            {"epsilon": 1, "sigma": 2},
            "sigma: is not known here; known fields are epsilon, mu, rho, share, within, delta",
        ),
        ({"epsilon": "1"}, "epsilon: must be a number"),
        ({"sql": None}, "give exactly one of sql and frame"),
    ],
)
def test_a_rule_is_said_once_where_it_is_broken(world: World, body: dict[str, Any], said: str) -> None:
    answer = world.call("ana", "POST", "/v1/questions:price", {"dataset": "visits", "sql": WARDS} | body)
    assert answer.status_code == 422
    assert said in answer.json()["detail"]
    assert not {"constrained-float", "body."} & set(answer.json()["detail"].split(" "))
    assert "constrained" not in answer.text


def test_the_fields_of_a_part_are_said(world: World) -> None:
    body = {"analyst": "ana", "limit": {"eps": 1}, "epsilon": 1}
    said = world.call("olga", "POST", "/v1/datasets/visits/grants", body).json()["detail"]
    assert "limit.eps: is not known here; known fields are epsilon, mu, rho, delta, keys_delta" in said
    assert "epsilon: is not known here; known fields are analyst, limit, window_seconds" in said
    answer = world.call("olga", "POST", "/v1/datasets", {"name": "x", "source": "visits.csv"})
    assert "source: is not known here; known fields are name, sources, schema, budget" in answer.json()["detail"]


def test_a_release_without_a_dataset_says_how_releases_are_called(world: World) -> None:
    said = world.call("ana", "GET", "/v1/labels/nonsense").json()
    assert said["code"] == "not_found"
    assert said["detail"] == "this release does not exist, or you may not see it; a release has a name like visits:7"


def test_a_name_that_is_taken_says_to_choose_another(world: World) -> None:
    body = {"name": "visits", "sources": {"visits": "visits.csv"}, "schema": SCHEMA}
    answer = world.call("olga", "POST", "/v1/datasets", body)
    assert (answer.status_code, answer.json()["detail"]) == (
        409,
        "the dataset 'visits' exists already; choose another name",
    )


@pytest.mark.parametrize("name", ["Visits", "vis1ts", "V1SITS"])
def test_a_name_that_looks_like_another_dataset_is_refused(world: World, name: str) -> None:
    """`Visits` stood beside `visits`, and a receipt of one was easily read as one of the other."""
    body = {"name": name, "sources": {"visits": "visits.csv"}, "schema": SCHEMA}
    answer = world.call("olga", "POST", "/v1/datasets", body)
    assert (answer.status_code, answer.json()["detail"]) == (
        409,
        f"{name!r} looks like the dataset 'visits', which exists already; choose another name",
    )


def test_a_body_that_does_not_say_it_is_json_hears_which_header_to_send(world: World) -> None:
    """`curl -d` alone sends a form; it heard that a body, which was one, must be an object."""
    headers = {"Authorization": f"Bearer {world.tokens['ana']}", "Content-Type": "application/x-www-form-urlencoded"}
    text = json.dumps({"dataset": "visits", "sql": WARDS, "epsilon": 0.1})
    answer = world.client.request("POST", "/v1/questions:price", content=text, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["detail"] == "body: must be an object in JSON, sent with Content-Type: application/json"


def test_a_token_that_opens_nothing_hears_what_may_be_wrong_with_it(world: World) -> None:
    """Who had sent one heard `send Authorization: Bearer ...`."""
    said = "send Authorization: Bearer TOKEN; a token that was sent may be mistyped, expired or revoked: ask an admin"
    for headers in ({}, {"Authorization": "Bearer dn_no"}):
        answer = world.client.request("GET", "/v1/me", headers=headers)
        assert (answer.status_code, answer.json()["detail"]) == (401, said)


def test_a_method_that_an_address_does_not_take_hears_which_it_takes(world: World) -> None:
    answer = world.call("ana", "GET", "/v1/questions")
    assert (answer.status_code, answer.json()["detail"]) == (405, "GET is not allowed at this address; it accepts POST")


def test_an_address_that_there_is_not_hears_where_they_are_listed(world: World) -> None:
    answer = world.call("ana", "GET", "/v1/nothing")
    said = "this address does not exist; /openapi.json lists all addresses"
    assert (answer.status_code, answer.json().get("detail")) == (404, said)


def test_a_grant_that_is_not_there_is_named(world: World) -> None:
    answer = world.call("olga", "DELETE", "/v1/datasets/visits/grants/nobody")
    assert (answer.status_code, answer.json().get("detail")) == (
        404,
        "'nobody' has no grant for 'visits', so none was revoked",
    )


def test_a_state_that_is_a_file_is_named(tmp_path: Path) -> None:
    """It said `File exists`, as if that were wrong."""
    (tmp_path / "state").write_text("")
    (tmp_path / "tables").mkdir()
    (tmp_path / "c.toml").write_text('state = "state"\ndata = ["tables"]\n')
    with worded(InvalidParameter, parameter="state"):
        Settings.read(tmp_path / "c.toml")


def test_whoever_has_no_dataset_hears_whom_to_ask(served: tuple[World, str]) -> None:
    world, url = served
    world.newcomer("nina", Role.ANALYST)
    with worded(InvalidParameter, parameter="dataset"):
        client.connect(url, token=world.tokens["nina"])
    with worded(InvalidParameter, parameter="dataset"):
        client.connect(url, token=world.tokens["ana"], dataset="nothing")
    with worded(ServerRefused, code="unauthorized"):
        client.connect(url, token="dn_no")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--people", "others"], "--reason: must say why they are other people"),
        (["--people", "same", "--reason", "x"], "--reason: is given with --people others only"),
    ],
)
def test_who_says_that_people_are_others_says_why(tmp_path: Path, options: list[str], said: str) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n")
    asked = ["add", str(tmp_path / "t.csv"), "--each-row", "--budget", "1", "--token", "dn_x", *options]
    done = CliRunner().invoke(cli.build(), asked)
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


def test_the_line_of_a_damaged_ledger_names_its_dataset(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said no more than the number of an entry."""

    def damaged(*_: object, **__: object) -> None:
        raise LedgerDamaged(3, "was changed", "restore it")

    family = world.curator.catalogue.dataset("visits").family  # type: ignore[union-attr]
    about = {"event": "ledger_damaged", "dataset": "visits", "family": family, "entry": 3}
    with caplog.at_level(logging.WARNING, "deniable.security"):
        with monkeypatch.context() as patch:
            patch.setattr(type(world.ledger), "accounts", damaged)
            answer: httpx.Response = world.call("ada", "GET", "/v1/ledger/visits/accounts")
            assert (answer.status_code, answer.json()["code"]) == (503, "ledger_damaged")
        with monkeypatch.context() as patch:
            patch.setattr(type(world.ledger), "reserve_or_replay", damaged)
            world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 97", epsilon=0.1)
        with monkeypatch.context() as patch:
            patch.setattr("deniable.server.access.sign_in.access_log.verified", damaged)  # of no dataset
            world.call("ada", "GET", "/v1/log/status")
    lines = [json.loads(each.getMessage()) for each in caplog.records if "ledger_damaged" in each.getMessage()]
    assert lines == [about, about, {"event": "ledger_damaged", "entry": 3}]


def test_a_refusal_says_where_in_the_text_and_what_would_be_answered(world: World) -> None:
    """The place and the repaired question come from the text and the public schema alone; they were left out."""
    text = "SELECT ward, COUNT(*) AS n FROM visits WHERE aeg > 3 GROUP BY ward"
    told = world.call("ana", "POST", "/v1/questions:price", {"dataset": "visits", "sql": text, "epsilon": 1.0}).json()
    start, end = told["place"]
    assert text[start:end] == "aeg"
    assert told["instead"] == text.replace("aeg", "age")
    again = world.call(
        "ana", "POST", "/v1/questions:price", {"dataset": "visits", "sql": told["instead"], "epsilon": 1.0}
    )
    assert again.status_code == 200
    error = transport._error(told, 422, {})
    assert isinstance(error, QuestionRefused)
    assert (error.place, error.instead, error.code) == ((start, end), told["instead"], told["refusal"])
    for odd in (None, [], [3], [4, 2], ["a", "b"], {"start": 1}, "12", [1, 2, 3]):
        assert transport._error({**told, "place": odd}, 422, {}).place is None  # type: ignore[attr-defined]
    page = Browser(world, "ana").post("/console/data/visits/ask", sql=text, way="epsilon", amount="1")
    assert "aeg" in page.text
    assert "WHERE age &gt; 3" in page.text
