"""A ledger that is verified at each visit: what was verified is not recomputed, and what was changed is still noticed."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deniable.errors import LedgerDamaged
from deniable.ledger import Budget, Entry, Ledger
from deniable.ledger.history_verification import Recount
from deniable.ledger.incremental_verification import Growing
from deniable.units import Unit


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "l.ledger", budget=Budget(epsilon=100, delta=1e-6), unit=Unit.row(), dataset="d")


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of entries whose hash was recomputed."""
    found: list[int] = []
    digest = Entry.digest

    def counted(self: Entry) -> str:
        found.append(self.number)
        return digest(self)

    monkeypatch.setattr(Entry, "digest", counted)
    return found


def spend(ledger: Ledger, times: int) -> None:
    for _ in range(times):
        entry = ledger.reserve(ledger.budget.cost(epsilon=0.01), question="a" * 64, description="n", version="v")
        ledger.fail(entry, "engine")


def test_only_what_is_new_is_recomputed(ledger: Ledger, hashed: list[int]) -> None:
    """1,223 entries took 1.5 s at each visit of a page."""
    spend(ledger, 20)
    growing = Growing(ledger)
    newest = growing.verify()
    assert newest is not None
    assert newest.number == 40
    hashed.clear()
    assert growing.verify() == newest
    assert not hashed  # the row of the newest is the one that was read before, to the last sign
    spend(ledger, 1)
    hashed.clear()
    assert growing.verify() == ledger.entry(42)
    assert set(hashed) == {41, 42}
    hashed.clear()
    assert growing.verify_whole() == ledger.entry(42)
    assert set(hashed) == set(range(1, 43))


def changed(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")  # whoever may write the file may do this
        connection.execute(statement)


def test_a_changed_newest_entry_is_named(ledger: Ledger, tmp_path: Path) -> None:
    spend(ledger, 5)
    growing = Growing(ledger)
    growing.verify()
    changed(tmp_path / "l.ledger", "UPDATE entries SET description = 'x' WHERE number = 10")
    with pytest.raises(LedgerDamaged) as damaged:
        growing.verify()
    assert damaged.value.number == 10
    with pytest.raises(LedgerDamaged):  # and it stays so
        growing.verify()


def test_an_older_entry_is_named_by_a_whole_look(ledger: Ledger, tmp_path: Path) -> None:
    spend(ledger, 5)
    growing = Growing(ledger)
    growing.verify()
    changed(tmp_path / "l.ledger", "UPDATE entries SET description = 'x' WHERE number = 3")
    with pytest.raises(LedgerDamaged) as damaged:
        growing.verify_whole()
    assert damaged.value.number == 3
    with pytest.raises(LedgerDamaged):  # the next look is whole again
        growing.verify()


def test_the_end_cut_off_is_noticed(ledger: Ledger, tmp_path: Path) -> None:
    spend(ledger, 5)
    growing = Growing(ledger)
    growing.verify()
    changed(tmp_path / "l.ledger", "DELETE FROM entries WHERE number > 8")
    with pytest.raises(LedgerDamaged):
        growing.verify()


def test_after_ten_minutes_a_look_is_whole(ledger: Ledger, hashed: list[int]) -> None:
    now = [1000.0]
    spend(ledger, 3)
    growing = Growing(ledger, clock=lambda: now[0])
    growing.verify()
    now[0] += 601
    hashed.clear()
    growing.verify()
    assert set(hashed) == set(range(1, 7))


def test_whole_looks_of_one_person_made_everybody_wait_in_line(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each label took a whole look, one after the other, and whoever wanted to see what is new waited for all of them."""
    spend(ledger, 5)
    growing = Growing(ledger)
    growing.verify()
    began, go, looks = threading.Event(), threading.Event(), []
    add = Recount.add

    def slow(recount: Recount, entry: Entry) -> None:
        if entry.number == 1:
            looks.append(entry)
            began.set()
            assert go.wait(30)
        add(recount, entry)

    monkeypatch.setattr(Recount, "add", slow)
    with ThreadPoolExecutor(25) as pool:
        first = pool.submit(growing.verify_whole)
        assert began.wait(30)
        spend(ledger, 1)
        more = [pool.submit(growing.verify_whole) for _ in range(23)]
        seen = pool.submit(growing.verify)
        try:
            assert seen.result(10) == ledger.entry(12)  # while the first look still goes on
        finally:
            go.set()
        assert first.result(30) == ledger.entry(10) or first.result(30) == ledger.entry(12)
        assert {each.result(30).number for each in more if each.result(30)} == {12}
    assert 2 <= len(looks) <= 4  # not 24


def test_a_fault_that_a_shared_look_finds_is_told_to_all(ledger: Ledger, tmp_path: Path) -> None:
    spend(ledger, 5)
    growing = Growing(ledger)
    growing.verify()
    changed(tmp_path / "l.ledger", "UPDATE entries SET description = 'x' WHERE number = 3")
    with ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(growing.verify_whole) for _ in range(8)]:
            with pytest.raises(LedgerDamaged) as damaged:
                each.result(30)
            assert damaged.value.number == 3
    with pytest.raises(LedgerDamaged):
        growing.verify()
