"""What is written down beside the charges: statements that an owner signs, and notes of how far a chain was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deniable.errors import InvalidParameter, LedgerDamaged, LedgerMismatch
from deniable.ledger import Cost, Ledger, State, keys, verify_export, write_checkpoint
from deniable.ledger.export import Note
from tests.ledger.test_evidence import ABOUT, COST, OTHER, lines_of, question, rechained, write_lines

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
    bare = Note("", heads[1].number, "", None)  # only the number was written down
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
    with pytest.raises(InvalidParameter, match="there is no ledger"):
        opened(tmp_path / "another", checkpoint=[bare])
    assert not (tmp_path / "another").exists()


def test_a_note_with_another_signature_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "ledger") as ledger:
        ledger.reserve(COST, question=question(1), description="one")
        noted = replace(ledger.signed_head(OWNER), number=0)
    with pytest.raises(ValueError, match="signature"):
        opened(tmp_path / "ledger", checkpoint=noted)
