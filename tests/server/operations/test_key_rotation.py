"""A server's signing key is replaced in all of its ledgers, also where that was broken off half way."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deniable.cli import build
from deniable.errors import DeniableError, LedgerUnavailable, UnreadableRecord
from deniable.ledger import Ledger, keys, verify_export, verify_label
from deniable.server.app import served
from deniable.server.catalogue.catalogue import Person
from deniable.server.curator import Curator
from deniable.server.operations import key_rotation, state_holding
from deniable.server.operations.key_rotation import rotate
from deniable.server.privacy_labels import check_label, signed
from deniable.server.request_bodies import BudgetBody
from deniable.server.roles import Role
from tests.postgres import postgres  # noqa: F401  # a fixture
from tests.server.browsing import Browser
from tests.server.world import BUDGET, SCHEMA, WARDS, Client, World, made
from tests.wording import worded

pytestmark = pytest.mark.slow

OWNER = Person("olga", Role.OWNER)


def stopped(folder: Path) -> World:
    """A server with two families of data that answered, signed and was stopped."""
    world = made(folder)
    with world.client:
        lines = ["patient_id,ward,sex,age,stay,cost,town", *(f"x{i},A,f,{i % 90},1,{i}.5,T{i}" for i in range(200))]
        (folder / "other.csv").write_text("\n".join(lines))
        body = {"name": "other", "sources": {"visits": "other.csv"}, "schema": SCHEMA, "budget": BUDGET}
        done = world.call("olga", "POST", "/v1/datasets", body)
        assert (done.status_code, done.json()["linked"]) == (201, False)
        assert world.ask(WARDS, epsilon=0.5).status_code == 200
    return world


def started(world: World) -> World:
    curator = Curator(world.curator.settings)
    return World(world.folder, curator, Client(served(curator)), world.tokens)


def test_everything_goes_on_under_the_new_key(tmp_path: Path) -> None:
    before = stopped(tmp_path)
    first = before.curator.key.public
    (tmp_path / "server.toml").write_text(
        'state = "state"\ndata = ["data"]\ngrid = 0.001\nrate = 1e6\nburst = 1000000\n'
    )
    done = CliRunner().invoke(build(), ["rotate", "--config", str(tmp_path / "server.toml"), "--json"])
    assert done.exit_code == 0, done.output
    new = json.loads(done.output)
    assert new == {"key": keys.read_public(tmp_path / "state" / "server.pub").hex, "ledgers": 2}
    assert new["key"] != first.hex
    world = started(before)
    with world.client:
        assert world.curator.key.public.hex == new["key"]
        assert world.ask(WARDS, epsilon=0.4).json()["provenance"]["replayed"]
        answer = world.ask("SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex", epsilon=0.1).json()
        label = world.call("ada", "GET", f"/v1/labels/{answer['release']}").json()
        check_label(label, world.curator.key.public)
        with worded(UnreadableRecord):
            check_label(label, first)
        browser, page = Browser(world, "ana"), f"/console/labels/{answer['release']}"
        assert 'href="?form=key"' in browser.get(page).text
        assert browser.get(f"{page}?form=key").content == world.curator.key.public.pem()
        assert (
            f"the owner&#39;s key is now {new['key']}" in Browser(world, "ada").get("/console/data/visits/ledger").text
        )
        said = world.call("ada", "GET", "/v1/ledger/visits/status").json()
        assert said["keys"] == [first.hex, new["key"]]
        (tmp_path / "ledger.jsonl").write_bytes(world.call("ada", "GET", "/v1/ledger/visits").content)
        assert verify_export(tmp_path / "ledger.jsonl", key=first).keys == (first.hex, new["key"])
        ledger = tmp_path / "ledger.jsonl"
        _follow_the_keys(label, answer, first, ledger)
        stranger = keys.new(ledger.with_name("stranger.key"))
        forged = signed({name: label[name] for name in label if name not in {"key", "signature"}}, stranger)
        with worded(UnreadableRecord):
            verify_label(forged, answer, first, ledger=ledger)
        with worded(UnreadableRecord):
            verify_label(forged, answer, stranger.public, ledger=ledger)
        with worded(UnreadableRecord):
            verify_label({**label, "loss": "nothing"}, answer, first, ledger=ledger)
        with worded(UnreadableRecord):
            verify_label({**label, "ledger": {**label["ledger"], "serial": "0" * 32}}, answer, first, ledger=ledger)
        # Data that was known is still known: marks do not hang on the key that signs.
        body = {"name": "again", "sources": {"visits": "visits.csv"}, "schema": SCHEMA}
        assert world.call("olga", "POST", "/v1/datasets", body).json()["linked"] is True
    kept = keys.read_public(tmp_path / "state" / f"server.{first.hex[:16]}.pub")
    assert kept == first
    assert not list((tmp_path / "state").glob("server.next*"))


def _follow_the_keys(label: Any, answer: Any, first: keys.PublicKey, ledger: Path) -> None:
    """Whoever has the first key alone checks a label that was signed with the newest, by the ledger."""
    found = verify_label(label, answer, first, ledger=ledger)
    assert (found.numbers, found.signer, found.replaced, found.vouched) == (True, label["key"], False, True)
    assert "for which your key vouched in the ledger" in found.lines()[0]
    (ledger.parent / "label.json").write_text(json.dumps(label))
    (ledger.parent / "first.pub").write_bytes(first.pem())
    asked = ["verify-label", str(ledger.parent / "label.json"), "--key", str(ledger.parent / "first.pub")]
    assert CliRunner().invoke(build(), asked).exit_code == 3
    done = CliRunner().invoke(build(), [*asked, "--ledger", str(ledger)])
    assert (done.exit_code, label["key"] in done.output) == (0, True), done.output


def test_what_was_broken_off_is_finished_and_until_then_nothing_is_signed_wrongly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stopped(tmp_path)
    first, settings = before.curator.key.public, before.curator.settings
    real, many = Ledger.rotate, []

    def once(self: Ledger, *arguments: Any, **more: Any) -> Any:
        many.append(1)
        if len(many) == 2:
            raise KeyboardInterrupt
        return real(self, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "rotate", once)
        with pytest.raises(KeyboardInterrupt):
            rotate(settings, by="admin", reason="new")
    half = Curator(settings)  # one ledger knows the new key, the other does not
    opened = 0
    for record in half.catalogue.datasets():
        try:
            half.datasets.ledger(record)
            opened += 1
        except DeniableError:
            pass
    half.close()
    assert (half.key.public, opened) == (first, 1)
    public, ledgers = rotate(settings, by="admin", reason="new")
    assert ledgers == 2
    world = started(before)
    with world.client:
        assert world.curator.key.public == public
        for name in ("visits", "other"):
            assert world.call("ada", "GET", f"/v1/ledger/{name}/status").json()["keys"] == [first.hex, public.hex]


@pytest.mark.parametrize("command", ["rotate", "moved"])
def test_the_key_of_a_running_server_was_replaced(command: str, tmp_path: Path) -> None:
    """It went on without checkpoints, and an older copy of its state was believed: what was spent came back."""
    world = made(tmp_path)
    (tmp_path / "server.toml").write_text('state = "state"\ndata = ["data"]\n')
    asked = [command, "--config", str(tmp_path / "server.toml"), "--reason", "new"]
    with world.client:
        done = CliRunner().invoke(build(), asked)
        assert done.exit_code == 1, done.output
        assert f"a server uses this state, and `deniable {command}` requires it to be stopped" in done.stderr
        assert keys.read(tmp_path / "state" / "server.key").public == world.curator.key.public
        assert not list((tmp_path / "state").glob("server.next*"))
        assert world.ask(WARDS, epsilon=0.5).status_code == 200
        second = Curator(world.curator.settings)  # servers share the state with each other
        second.close()
        assert CliRunner().invoke(build(), asked).exit_code == 1
    assert CliRunner().invoke(build(), asked).exit_code == 0


def test_several_processes_hold_the_state_from_the_first_to_the_last(tmp_path: Path) -> None:
    """Also between the end of one of them and the start of the one that replaces it."""
    world = stopped(tmp_path)
    with (
        state_holding.serving(world.curator.settings.state),
        worded(LedgerUnavailable),
    ):
        rotate(world.curator.settings, by="admin", reason="new")
    with (
        state_holding.stopped(tmp_path / "state", world.curator.catalogue, "rotate"),
        worded(LedgerUnavailable),
    ):
        Curator(world.curator.settings)


def test_a_process_whose_key_was_replaced_went_on_without_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a lock was lost: it answers nothing more, and says why."""
    monkeypatch.setattr(state_holding, "_FRESH", -1.0)
    world = made(tmp_path)
    with world.client:
        assert world.ask(WARDS, epsilon=0.5).status_code == 200
        spent = world.ledger.charged
        with monkeypatch.context() as patch:
            patch.setattr(key_rotation, "stopped", lambda *_: nullcontext())
            rotate(world.curator.settings, by="admin", reason="new")
        for done in (
            world.ask("SELECT COUNT(*) AS n FROM visits", epsilon=0.1),
            world.call("ada", "GET", "/v1/ledger/visits"),
            world.call(
                "olga", "POST", "/v1/datasets/visits/adjustments", {"budget": {"epsilon": 200.0}, "reason": "x"}
            ),
            world.call(
                "olga", "POST", "/v1/datasets", {"name": "more", "sources": {"visits": "visits.csv"}, "schema": SCHEMA}
            ),
        ):
            assert (done.status_code, done.json()["code"]) == (503, "not_ready"), done.text
            assert "was replaced while the server ran" in done.json()["detail"]
        ready = world.client.request("GET", "/ready")
        assert (ready.status_code, ready.json()["failed"]) == (503, ["key"])
        with Ledger.inspect(next((tmp_path / "state" / "ledgers").glob("*.ledger")), dataset="visits") as ledger:
            assert ledger.charged == spent


def test_a_ledger_whose_key_was_replaced_alone_is_asked_no_more(tmp_path: Path) -> None:
    """By `deniable rotate` on its file: the catalogue knows nothing of it, but the server cannot sign."""
    world = made(tmp_path)
    with world.client:
        [file] = (tmp_path / "state" / "ledgers").glob("*.ledger")
        old, new = tmp_path / "state" / "server.key", tmp_path / "new.key"
        with Ledger.open(file, dataset="visits") as ledger:
            ledger.rotate(keys.new(new).public, by="olga", reason="new", key=keys.read(old))
        exported = world.call("ada", "GET", "/v1/ledger/visits")
        assert (exported.status_code, exported.json()["code"]) == (503, "not_ready"), exported.text
        assert world.ask("SELECT COUNT(*) AS n FROM visits", epsilon=0.1).status_code == 503


@pytest.mark.postgres
def test_a_server_on_another_machine_keeps_its_key(tmp_path: Path, postgres: Any) -> None:  # noqa: F811
    """Its folder is another one; the database is the same."""
    url = postgres.database()
    world = made(tmp_path, database=url)
    copy = replace(world.curator.settings, state=tmp_path / "copied")
    shutil.copytree(tmp_path / "state", tmp_path / "copied")
    with world.client:
        with worded(LedgerUnavailable):
            rotate(copy, by="admin", reason="new")
        assert world.ask(WARDS, epsilon=0.5).status_code == 200
    public, _ = rotate(world.curator.settings, by="admin", reason="new")
    assert public != world.curator.key.public


def test_an_auditor_finds_the_first_key_and_a_later_one_is_told_apart(tmp_path: Path) -> None:
    """The newest key alone checks nothing from before: that is a wrong key, and it sounded like a forgery."""
    before = stopped(tmp_path)
    rotate(before.curator.settings, by="root", reason="every year")
    world = started(before)
    with world.client:
        browser = Browser(world, "ada")
        assert "deniable verify ledger.jsonl --key owner.pub" in browser.get("/console/data/visits/ledger").text
        for name in ("ledger.jsonl", "owner.pub"):
            (tmp_path / name).write_bytes(browser.get(f"/console/data/visits/{name}").content)
        (tmp_path / "newest.pub").write_bytes(world.curator.key.public.pem())
        keys.new(tmp_path / "strange.key")
        assert Browser(world, "ana").get("/console/data/visits/owner.pub").status_code == 403
    found = {
        name: CliRunner().invoke(
            build(), ["verify", str(tmp_path / "ledger.jsonl"), "--key", str(tmp_path / f"{name}.pub")]
        )
        for name in ("owner", "newest", "strange")
    }
    assert {name: each.exit_code for name, each in found.items()} == {"owner": 0, "newest": 3, "strange": 3}
    remedy = f"came later in this history: check it with the first one, {before.curator.key.public.hex}"
    assert remedy in found["newest"].stderr
    assert "came later" not in found["strange"].stderr


def test_a_ledger_made_while_the_key_was_replaced_is_caught_up_with(tmp_path: Path) -> None:
    """By a server that ran on with the old key: the next rotation signs with the key that this ledger knows."""
    before = stopped(tmp_path)
    old, settings = before.curator.key, before.curator.settings
    rotate(settings, by="admin", reason="new")
    late = Curator(settings)
    late.key = late.datasets._key = late.datasets.witness._key = old
    (tmp_path / "late.csv").write_text(
        "\n".join(["patient_id,ward,sex,age,stay,cost,town", *(f"l{i},A,f,1,1,1.5,T" for i in range(50))])
    )
    late.register(OWNER, "late", {"visits": "late.csv"}, SCHEMA, BudgetBody(**BUDGET))
    late.close()
    second, ledgers = rotate(settings, by="admin", reason="again")
    assert ledgers == 3
    world = started(before)
    with world.client:
        known = world.call("ada", "GET", "/v1/ledger/late/status").json()["keys"]
        assert known == [old.public.hex, second.hex]


def test_data_is_still_known_where_the_secret_of_marks_was_never_written_down(tmp_path: Path) -> None:
    """A state from before it was kept at all: made anew from the new key, it would give all data a fresh budget."""
    before = stopped(tmp_path)
    with closing(sqlite3.connect(tmp_path / "state" / "catalogue.sqlite")) as database, database:
        database.execute("DELETE FROM curator_server")
    rotate(before.curator.settings, by="admin", reason="new")
    world = started(before)
    with world.client:
        body = {"name": "again", "sources": {"visits": "visits.csv"}, "schema": SCHEMA}
        done = world.call("olga", "POST", "/v1/datasets", body)
        assert (done.status_code, done.json()["linked"]) == (201, True)
