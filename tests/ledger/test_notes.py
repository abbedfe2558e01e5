"""What is written down beside the charges: statements that an owner signs, and notes of how far a chain was."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deniable.errors import InvalidParameter, LedgerDamaged, LedgerMismatch
from deniable.ledger import Cost, Ledger, State, keys, verify_export, write_checkpoint
from deniable.ledger.ledger_export import NotedHead
from tests.ledger.test_ledger_export import ABOUT, COST, OTHER, lines_of, question, rechained, write_lines
from tests.wording import worded

OWNER = keys.SigningKey.generate()


def opened(place: str | Path | None, **more: Any) -> Ledger:
    return Ledger.open(place, **ABOUT, owner=OWNER.public, **more)


# -- statements --------------------------------------------------------------------------------------------------------


def test_a_statement_is_signed_and_charges_nothing(place: str | Path | None, tmp_path: Path) -> None:
    with opened(place) as ledger:
        ledger.reserve(COST, question=question(1), description="one")
        before = ledger.charged
        said = ledger.state("these are other people", by="olga", key=OWNER)
        assert (said.state, said.description, said.statement.by) == (State.STATED, "these are other people", "olga")
        assert (ledger.charged, said.cost) == (before, Cost(0, 0))
        assert ledger.verify(OWNER.public) == said == list(ledger.entries())[-1]
        ledger.export(tmp_path / "ledger.jsonl")
        assert verify_export(tmp_path / "ledger.jsonl", key=OWNER.public).signers == (OWNER.public.hex,)
        for wrong in ({"key": OTHER}, {"words": ""}, {"by": ""}):
            with pytest.raises(InvalidParameter):
                ledger.state(**{"words": "x", "by": "olga", "key": OWNER, **wrong})


FORGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "other words": lambda entry: entry.update(description="these are the same people"),
    "another name": lambda entry: entry["more"]["statement"].update(by="oscar"),
    "no signature": lambda entry: entry["more"]["statement"].update(signature="00"),
    "another key": lambda entry: entry["more"]["statement"].update(signer=OTHER.public.hex),
    "on another entry": lambda entry: entry.update(state="MOVED"),
    "on a charge": lambda entry: entry.update(state="FAILED", closes=1),
    "without": lambda entry: entry["more"].pop("statement"),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_statement_is_seen(how: str, tmp_path: Path) -> None:
    with opened(None) as ledger:
        ledger.reserve(COST, question=question(1), description="one")
        ledger.state("these are other people", by="olga", key=OWNER)
        ledger.export(tmp_path / "ledger.jsonl")
    write_lines(
        tmp_path / "ledger.jsonl", rechained(lines_of(tmp_path / "ledger.jsonl"), lambda all: FORGED[how](all[1]))
    )
    with pytest.raises(LedgerDamaged, match="entry 2"):
        verify_export(tmp_path / "ledger.jsonl", key=OWNER.public)


# -- notes -------------------------------------------------------------------------------------------------------------


def test_who_writes_knows_how_far_the_chain_is_without_reading_it(place: str | Path | None) -> None:
    with opened(place) as ledger:
        for number in range(1, 4):
            entry = ledger.reserve(COST, question=question(number), description="one")
            assert ledger.reached == ledger.head == (ledger.serial, entry.number, entry.hash, None)
            sealed = ledger.seal(entry, b"1")
            assert ledger.reached == ledger.head == (ledger.serial, sealed.number, sealed.hash, None)
        with pytest.raises(InvalidParameter):
            ledger.seal(entry, b"2")
        assert ledger.reached == ledger.head  # nothing was kept, and what was known stays


def test_how_far_others_wrote_is_read(tmp_path: Path) -> None:
    with opened(tmp_path / "ledger") as one, opened(tmp_path / "ledger") as other:
        one.reserve(COST, question=question(1), description="one")
        other.reserve(COST, question=question(2), description="two")
        assert one.reached is not None
        assert other.reached is not None
        assert (one.reached.number, other.reached.number) == (1, 2)
        assert one.head == other.head == other.reached


def test_a_signed_head_is_a_checkpoint_that_writes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "ledger") as ledger:
        ledger.reserve(COST, question=question(1), description="one")
        noted = ledger.signed_head(OWNER)
        assert (noted.number, noted.hash, noted.spent) == (*ledger.head[1:3], ledger.charged)
        assert len(list(ledger.entries())) == 1
        with pytest.raises(InvalidParameter):
            ledger.signed_head(OTHER)
    write_checkpoint(tmp_path / "noted.json", noted)
    opened(tmp_path / "ledger", checkpoint=tmp_path / "noted.json").close()


def test_all_notes_are_compared(tmp_path: Path) -> None:
    with opened(tmp_path / "ledger") as ledger:
        heads = [ledger.head]
        for number in range(2):
            ledger.reserve(COST, question=question(number), description="one")
            heads.append(ledger.head)
    bare = NotedHead("", heads[1].number, "", None)  # only the number was written down
    opened(tmp_path / "ledger", checkpoint=[*heads, bare]).close()
    forked = heads[1]._replace(hash="0" * 64)
    newer = heads[2]._replace(number=3)
    other = heads[1]._replace(serial="other")
    for wrong, error in (
        (forked, LedgerDamaged),
        (newer, LedgerDamaged),
        (other, LedgerMismatch),
        (bare._replace(number=3), LedgerDamaged),
    ):
        with pytest.raises(error):
            opened(tmp_path / "ledger", checkpoint=[heads[2], wrong])
    with worded(LedgerDamaged, number=1):
        opened(tmp_path / "another", checkpoint=[bare])
    assert not (tmp_path / "another").exists()


def test_a_note_with_another_signature_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "ledger") as ledger:
        ledger.reserve(COST, question=question(1), description="one")
        noted = replace(ledger.signed_head(OWNER), number=0)
    with pytest.raises(ValueError, match="signature"):
        opened(tmp_path / "ledger", checkpoint=noted)


# -- a chain that goes back below a program that runs ------------------------------------------------------------------


def put_back(path: Path, note: NotedHead) -> None:
    """The file as it was at this note."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TRIGGER IF EXISTS never_delete")
        database.execute("DELETE FROM entries WHERE number > ?", (note.number,))
        database.execute("UPDATE head SET number = ?, hash = ?", (note.number, note.hash))


def test_nothing_is_written_behind_a_chain_that_lost_what_this_handle_wrote(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with opened(path) as ledger, opened(path) as other:
        ledger.reserve(COST, question=question(1), description="one")
        note = ledger.head
        lost = [ledger.reserve(COST, question=question(2), description="two"), ledger.head]
        assert ledger.holds(note)
        assert ledger.holds(lost[1])
        put_back(path, note)
        with worded(LedgerDamaged) as found:
            ledger.reserve(COST, question=question(2), description="two")
        assert found.value.number == lost[1].number
        assert ledger.head == note
        other.reserve(COST, question=question(3), description="another history, as long as the one that was lost")
        assert not other.holds(lost[1])
        for number in (4, 5):
            with pytest.raises(LedgerDamaged):
                ledger.reserve(COST, question=question(number), description="and longer")
            other.reserve(COST, question=question(number), description="and longer")
        for sign in (other.signed_head, other.checkpoint):
            entries = len(list(other.entries()))
            with pytest.raises(LedgerDamaged, match="another history"):
                sign(OWNER, after=[note, lost[1]])
            assert len(list(other.entries())) == entries
            assert sign(OWNER, after=[note]).number >= entries
        assert not other.holds(note._replace(serial="other"))


def test_handles_that_write_in_turn_follow_each_other(place: str | Path | None) -> None:
    if place is None:
        pytest.skip("a ledger in memory has one handle")
    with opened(place) as one, opened(place) as other:
        notes = [one.head]
        for number in range(6):
            (one, other)[number % 2].reserve(COST, question=question(number), description="in turn")
            notes.append(one.head)
        for each in notes:
            assert one.holds(each)
            assert other.holds(each)
        assert not one.holds(notes[3]._replace(hash=notes[4].hash))
        assert not one.holds(notes[3]._replace(number=70))
