"""An owner's key is replaced: the old one vouches for the new one, and nobody else can put one in its place."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deniable.cli import build
from deniable.errors import InvalidOperation, InvalidParameter, LedgerDamaged, LedgerMismatch
from deniable.ledger import EVERYBODY, Ledger, State, keys, verify_export, write_checkpoint
from deniable.ledger.entries import KEYS, Rotation
from tests.ledger.test_ledger_export import ABOUT, COST, OTHER, lines_of, question, rechained, write_lines
from tests.wording import worded

FIRST, SECOND, THIRD = (keys.SigningKey.generate() for _ in range(3))


def made(place: str | Path | None) -> Ledger:
    """1 reserved, 2 checkpoint by the first key, 3 rotated, 4 adjusted by the second, 5 rotated, 6 checkpoint by the third."""
    ledger = Ledger.open(place, **ABOUT, owner=FIRST.public)
    ledger.reserve(COST, question=question(1), description="one")
    ledger.checkpoint(FIRST)
    ledger.rotate(SECOND.public, by="olga", reason="the laptop was lost", key=FIRST)
    ledger.adjust(EVERYBODY, ABOUT["budget"].limit, by="olga", reason="as before", key=SECOND)
    ledger.rotate(THIRD.public, by="olga", reason="every year", key=SECOND)
    ledger.checkpoint(THIRD)
    return ledger


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    with made(tmp_path / "ledger") as ledger:
        ledger.export(tmp_path / "ledger.jsonl")
    return tmp_path / "ledger.jsonl"


def test_the_first_key_vouches_for_all_that_came_after(place: str | Path | None, tmp_path: Path) -> None:
    with made(place) as ledger:
        assert ledger.keys == [FIRST.public, SECOND.public, THIRD.public]
        assert ledger.owner == THIRD.public
        assert ledger.verify(FIRST.public).number == 6
        for later in (SECOND, THIRD, OTHER):  # whoever begins elsewhere is not vouched for
            with worded(LedgerDamaged, number=2):
                ledger.verify(later.public)
        ledger.export(tmp_path / "all.jsonl")
        found = verify_export(tmp_path / "all.jsonl", key=FIRST.public)
        assert found.keys == tuple(each.public.hex for each in (FIRST, SECOND, THIRD))
        # An account like any other goes on, and none can be called as keys are looked up.
        ledger.grant("anna", COST, by="olga")
        assert [each.name for each in ledger.accounts()] == [EVERYBODY, "anna"]
        with worded(InvalidParameter, parameter="account"):
            ledger.grant(KEYS, COST, by="olga")


def test_a_key_that_was_replaced_signs_nothing_and_does_not_come_back(place: str | Path | None) -> None:
    with made(place) as ledger:
        for old in (FIRST, SECOND):
            for sign in (
                lambda key: ledger.checkpoint(key),
                lambda key: ledger.adjust(EVERYBODY, COST, by="x", reason="x", key=key),
                lambda key: ledger.rotate(OTHER.public, by="x", reason="x", key=key),
            ):
                with pytest.raises(InvalidParameter, match="was replaced"):
                    sign(old)
            with worded(InvalidParameter, parameter="successor"):
                ledger.rotate(old.public, by="x", reason="x", key=THIRD)
        with worded(InvalidParameter, parameter="key"):
            ledger.rotate(OTHER.public, by="x", reason="x", key=OTHER)
        with worded(InvalidParameter, parameter="successor"):
            ledger.rotate(THIRD.public, by="x", reason="x", key=THIRD)
        for wrong in (THIRD, "key", None):
            with pytest.raises(InvalidParameter):
                ledger.rotate(wrong, by="x", reason="x", key=THIRD)
        assert len(list(ledger.entries())) == 6


def test_a_ledger_is_opened_with_the_key_that_it_has_now(tmp_path: Path) -> None:
    made(tmp_path / "ledger").close()
    Ledger.open(tmp_path / "ledger", owner=THIRD.public).close()
    for old in (FIRST, SECOND, OTHER):
        with pytest.raises(LedgerMismatch):
            Ledger.open(tmp_path / "ledger", owner=old.public)


def test_a_ledger_without_an_owner_has_no_key_to_replace() -> None:
    with Ledger.open(**ABOUT) as ledger:
        with worded(InvalidOperation):
            ledger.rotate(SECOND.public, by="x", reason="x", key=FIRST)
        assert ledger.keys == []


def test_checkpoints_are_believed_from_whoever_held_the_key_then(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger", **ABOUT, owner=FIRST.public) as ledger:
        ledger.reserve(COST, question=question(1), description="one")
        old = ledger.checkpoint(FIRST)
        ledger.rotate(SECOND.public, by="olga", reason="new", key=FIRST)
        new = ledger.checkpoint(SECOND)
    for kept in (old, new):
        Ledger.open(tmp_path / "ledger", checkpoint=kept).close()
    # The old key signs what happened after it was replaced: a note that nobody should believe.
    forged = type(new)(**{name: getattr(new, name) for name in ("serial", "number", "hash", "spent", "time")},
                       signer=FIRST.public.hex, signature=FIRST.sign(new.message()))  # fmt: skip
    write_checkpoint(tmp_path / "forged.json", forged)
    with worded(InvalidParameter, parameter="checkpoint"):
        Ledger.open(tmp_path / "ledger", checkpoint=tmp_path / "forged.json")


# -- forged ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [3, 5])
def test_a_flip_in_any_character_of_a_rotation_is_named(exported: Path, number: int) -> None:
    lines = lines_of(exported)
    line = lines[number]
    for at in range(0, len(line), 5):
        changed = line[:at] + ("1" if line[at] != "1" else "2") + line[at + 1 :]
        write_lines(exported, [*lines[:number], changed, *lines[number + 1 :]])
        with pytest.raises(LedgerDamaged) as found:
            verify_export(exported, key=FIRST.public)
        assert found.value.number == number


def _signed(entry: dict[str, Any], lines: list[str], key: keys.SigningKey, successor: keys.SigningKey) -> None:
    """A rotation in the place of this entry, as this key signs it."""
    plain = Rotation(signer=key.public.hex, successor=successor.public.hex, by="mallory", signature="")
    message = plain.message(
        serial=json.loads(lines[0])["serial"], number=entry["number"], previous=entry["previous"], reason="mine"
    )
    entry |= {
        "state": "ROTATED",
        "description": "mine",
        "more": _with_rotation(entry, {**plain.record(), "signature": key.sign(message)}),
    }


def _with_rotation(entry: dict[str, Any], rotation: dict[str, Any]) -> dict[str, Any]:
    """In the order in which it is hashed."""
    others = {name: each for name, each in entry["more"].items() if name not in ("rotation", "charges")}
    return {**others, "rotation": rotation, "charges": entry["more"]["charges"]}


FORGED: list[tuple[str, int, str, Callable[[list[dict[str, Any]], list[str]], None]]] = [
    ("a stranger vouches for themselves", 3, "another key", lambda e, t: _signed(e[2], t, OTHER, OTHER)),
    ("the new key vouches for itself", 3, "another key", lambda e, t: _signed(e[2], t, SECOND, SECOND)),
    ("a replaced key vouches again", 5, "a key that was replaced", lambda e, t: _signed(e[4], t, FIRST, OTHER)),
    ("back to a key that was replaced", 5, "not a valid replacement", lambda e, t: _signed(e[4], t, SECOND, FIRST)),
    ("another successor under the old signature", 3, "invalid signature",
     lambda e, t: e[2]["more"]["rotation"].update(successor=OTHER.public.hex)),
    ("another reason under the old signature", 3, "invalid signature", lambda e, t: e[2].update(description="because")),
    ("a signature for another place", 4, "invalid signature", lambda e, t: e[3].update(e[4] | {"number": 4})),
    ("a rotation that says nothing", 3, "not a valid replacement", lambda e, t: e[2]["more"].pop("rotation")),
    ("a rotation in an entry of another kind", 4, "not a valid replacement",
     lambda e, t: e[3].update(more=_with_rotation(e[3], e[2]["more"]["rotation"]))),
    ("a rotation hidden in a question", 1, "has a new key",
     lambda e, t: e[0].update(more=_with_rotation(e[0], e[2]["more"]["rotation"]))),
]  # fmt: skip


@pytest.mark.parametrize(("number", "fault", "forge"), [each[1:] for each in FORGED], ids=[each[0] for each in FORGED])
def test_a_forged_rotation_is_named(
    exported: Path, number: int, fault: str, forge: Callable[[list[dict[str, Any]], list[str]], None]
) -> None:
    """By somebody who knows the format and has every key but the one that is needed: all hashes are right again."""
    lines = lines_of(exported)
    assert rechained(lines, lambda entries: None) == lines
    write_lines(exported, rechained(lines, lambda entries: forge(entries, lines)))
    for key in (FIRST.public, None):
        with pytest.raises(LedgerDamaged, match=fault) as found:
            verify_export(exported, key=key)
        assert found.value.number == number


def test_a_rotation_that_is_put_into_the_file_is_not_obeyed(tmp_path: Path) -> None:
    """Below the ledger, with all hashes right: whoever may write the file has still no key that anybody vouched for."""
    with Ledger.open(tmp_path / "ledger", **ABOUT, owner=FIRST.public) as ledger:
        ledger.reserve(COST, question=question(1), description="one")
        with ledger._store.writing() as transaction:
            newest = transaction.newest()
            plain = Rotation(signer=OTHER.public.hex, successor=OTHER.public.hex, by="m", signature="")
            message = plain.message(serial=ledger.serial, number=2, previous=newest.hash, reason="mine")
            forged = Rotation(**plain.record() | {"signature": OTHER.sign(message)})
            transaction.append(state=State.ROTATED, description="mine", spent=transaction.spent(), rotation=forged)
        for use in (lambda: ledger.keys, lambda: ledger.checkpoint(OTHER), lambda: ledger.checkpoint(FIRST)):
            with pytest.raises(LedgerDamaged):
                use()
    with closing(sqlite3.connect(tmp_path / "ledger")) as database:
        assert database.execute("SELECT account FROM entries WHERE number = 2").fetchone() == (KEYS,)


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_replaces_a_key_and_verify_follows_it(tmp_path: Path) -> None:
    owner = keys.new(tmp_path / "owner.key")
    with Ledger.open(tmp_path / "l.ledger", **ABOUT, owner=owner.public) as ledger:
        ledger.reserve(COST, question=question(1), description="one")
        ledger.checkpoint(owner)
    asked = [
        "rotate",
        str(tmp_path / "l.ledger"),
        "--key",
        str(tmp_path / "owner.key"),
        "--to",
        str(tmp_path / "new.key"),
    ]
    done = CliRunner().invoke(build(), [*asked, "--reason", "every year", "--json"])
    assert done.exit_code == 0, done.output
    new = keys.read_public(tmp_path / "new.pub")
    assert json.loads(done.output) == {"key": new.hex, "ledgers": 1}
    again = CliRunner().invoke(build(), asked)
    assert again.exit_code == 2
    said = CliRunner().invoke(build(), ["verify", str(tmp_path / "l.ledger"), "--key", str(tmp_path / "owner.pub")])
    assert said.exit_code == 0, said.output
    assert "and the 1 that came after it, each vouched for" in " ".join(said.output.split())
    other = CliRunner().invoke(build(), ["verify", str(tmp_path / "l.ledger"), "--key", str(tmp_path / "new.pub")])
    assert other.exit_code == 3
    for wrong in (
        ["rotate"],
        asked[:2],
        ["rotate", str(tmp_path / "nothing"), *asked[2:]],
        [*asked, "--config", "x.toml"],
    ):
        assert CliRunner().invoke(build(), wrong).exit_code == 2


@pytest.mark.parametrize("owned", [False, True])
def test_a_refused_rotation_leaves_no_new_key_behind(tmp_path: Path, owned: bool) -> None:
    """A ledger that `deniable ask` made has no owner, and the new key was there all the same."""
    keys.new(tmp_path / "owner.key")
    named = {"owner": keys.new(tmp_path / "first.key").public} if owned else {}
    with Ledger.open(tmp_path / "l.ledger", **ABOUT, **named) as ledger:
        ledger.reserve(COST, question=question(1), description="one")
    asked = ["rotate", str(tmp_path / "l.ledger"), "--key", str(tmp_path / "owner.key"), "--to"]
    done = CliRunner().invoke(build(), [*asked, str(tmp_path / "new.key")])
    assert done.exit_code == 2
    assert owned or "without an owner" in done.stderr
    assert not list(tmp_path.glob("new.*"))
    kept = keys.new(tmp_path / "kept.key")
    assert CliRunner().invoke(build(), [*asked, str(tmp_path / "kept.key")]).exit_code == 2
    assert keys.read(tmp_path / "kept.key").public == kept.public
