"""A ledger whose file was cut, emptied or deleted is not made anew while anything tells that it was there."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deniable.errors import DeniableError, LedgerDamaged, LedgerMismatch, LedgerUnavailable, UnreadableRecord
from deniable.ledger import Budget, Ledger, keys, write_checkpoint
from deniable.ledger.stores import file_creation
from deniable.units import Unit
from tests.ledger.test_one_place import ABOUT, KINDS, MOST, address, elsewhere, spend
from tests.wording import worded

ASK = [sys.executable, "-m", "deniable", "ask"]


def spent(place: Any) -> None:
    with Ledger.open(place, **ABOUT) as ledger:
        spend(ledger)


@KINDS
@pytest.mark.parametrize("inspected", [False, True])
def test_a_ledger_that_was_emptied_is_no_new_one(tmp_path: Path, kind: str, inspected: bool) -> None:
    """It opened as a new ledger, with all of its budget."""
    path = tmp_path / "ledger"
    spent(address(path, kind))
    os.truncate(path, 0)
    with worded(LedgerDamaged):
        Ledger.inspect(address(path, kind)) if inspected else Ledger.open(address(path, kind), **ABOUT)
    assert path.stat().st_size == 0
    assert list(tmp_path.iterdir()) == [path]


@KINDS
def test_an_empty_file_that_is_deleted_as_was_said_gives_way_to_a_new_ledger(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "ledger"
    path.touch()
    with pytest.raises(LedgerDamaged, match="is empty"):
        Ledger.open(address(path, kind), **ABOUT)
    path.unlink()
    spent(address(path, kind))


@KINDS
def test_a_ledger_of_one_byte_is_no_new_one(tmp_path: Path, kind: str) -> None:
    """SQLite takes a file of one byte for an empty one; in a database of ledgers that was a new budget."""
    path = tmp_path / "ledger"
    spent(address(path, kind))
    os.truncate(path, 1)
    with worded(UnreadableRecord):
        Ledger.open(address(path, kind), **ABOUT)


@KINDS
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path(os.devnull)):
        with worded(UnreadableRecord):
            Ledger.open(address(path, kind), **ABOUT)
    with pytest.raises(LedgerUnavailable, match="directory"):
        Ledger.open(address(tmp_path, kind), **ABOUT)


@KINDS
def test_a_ledger_that_was_cut_anywhere_spends_nothing(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "ledger"
    spent(address(path, kind))
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 4096), *range(1, len(whole), 7919), len(whole) - 1]:
        path.write_bytes(whole[:length])
        # BudgetExceeded where the last page alone lost its end, which was not in use.
        with pytest.raises(DeniableError), Ledger.open(address(path, kind), **ABOUT) as ledger:
            spend(ledger, 2)


@KINDS
def test_a_ledger_that_is_emptied_while_it_is_open_gives_nothing_back(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "ledger"
    with elsewhere(address(path, kind)):
        os.truncate(path, 0)
        with pytest.raises(LedgerDamaged, match="is empty"):
            Ledger.open(address(path, kind), **ABOUT)


@KINDS
def test_a_deleted_ledger_is_missed_by_its_log(tmp_path: Path, kind: str) -> None:
    """A new ledger took its place, and SQLite deleted the log that had what was spent."""
    path = tmp_path / "ledger"
    with elsewhere(address(path, kind)):
        kept = path.read_bytes()
        path.unlink()
        with worded(LedgerDamaged):
            Ledger.open(address(path, kind), **ABOUT)
    with pytest.raises(LedgerDamaged, match="restore ledger"):
        Ledger.inspect(address(path, kind))
    assert not path.exists()
    assert kept


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
def test_each_file_beside_a_ledger_tells_that_it_was_there(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"ledger{ending}").write_bytes(b"x")
    with pytest.raises(LedgerDamaged, match=f"exist .ledger{ending}."):
        Ledger.open(tmp_path / "ledger", **ABOUT)
    assert [each.name for each in tmp_path.iterdir()] == [f"ledger{ending}"]


@KINDS
def test_a_checkpoint_knows_a_ledger_that_is_gone(tmp_path: Path, kind: str) -> None:
    """It was refused for want of a budget, which was given."""
    path, key = tmp_path / "ledger", keys.new(tmp_path / "owner.key")
    with Ledger.open(address(path, kind), **ABOUT) as ledger:
        spend(ledger)
        write_checkpoint(tmp_path / "checkpoint.json", ledger.checkpoint(key))
    path.unlink()
    with worded(LedgerDamaged, number=1):
        Ledger.open(address(path, kind), **ABOUT, checkpoint=tmp_path / "checkpoint.json")
    assert not path.exists()


def test_an_empty_checkpoint_opens_nothing(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.json").touch()
    for path in (tmp_path / "ledger", tmp_path / "new"):
        with worded(UnreadableRecord):
            Ledger.open(path, **ABOUT, checkpoint=tmp_path / "checkpoint.json")
        assert not path.exists()


@KINDS
def test_a_pickled_handle_makes_no_ledger_in_the_place_of_its_own(tmp_path: Path, kind: str) -> None:
    """It carried the budget along, so that a deleted or replaced ledger was a fresh one where it was unpickled."""
    path = tmp_path / "ledger"
    with Ledger.open(address(path, kind), **ABOUT) as ledger:
        spend(ledger)
        carried = pickle.dumps(ledger)
    del ledger
    path.unlink()
    with pytest.raises(LedgerDamaged, match="is missing"):
        pickle.loads(carried)
    assert not path.exists()
    Ledger.open(address(path, kind), **ABOUT).close()
    with pytest.raises(LedgerMismatch, match="serial number"):
        pickle.loads(carried)


def test_the_account_of_a_file_that_was_emptied_is_no_new_one(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text("who,age\n" + "".join(f"p{each},{each % 90}\n" for each in range(50)))
    about = ["--epsilon", "0.9", "--budget", "1", "--unit", "who", "--rows", "1"]

    def asked() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*ASK, "visits.csv", "SELECT COUNT(*) FROM visits", *about],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert asked().returncode == 0
    os.truncate(tmp_path / "visits.csv.ledger", 0)
    done = asked()
    assert done.returncode == 1
    assert "is empty" in done.stderr
    assert "restore its newest copy" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "visits.csv.ledger").stat().st_size == 0


# --- how a file comes about -------------------------------------------------------------------------------------------


@KINDS
def test_a_crash_while_a_ledger_is_made_leaves_no_empty_file(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file was there from the first moment, and empty until the end: so an empty file had to be a ledger to be."""
    path, seen = tmp_path / "ledger", []
    rename = Path.rename

    def watched(half: Path, to: Path) -> Path:
        seen.append((path.exists(), half.stat().st_size > 0, oct(half.stat().st_mode & 0o777)))
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", watched)
    with pytest.raises(KeyboardInterrupt):
        Ledger.open(address(path, kind), **ABOUT)
    assert seen == [(False, True, "0o600")]
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(Path, "rename", rename)
    spent(address(path, kind))


@KINDS
def test_many_who_make_one_ledger_at_once_share_one_budget(tmp_path: Path, kind: str) -> None:
    place = address(tmp_path / "ledger", kind)

    def one(number: int) -> bool:
        with Ledger.open(place, **ABOUT) as ledger:
            try:
                spend(ledger, number)
            except DeniableError:
                return False
            return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(one, range(8))) == 1
    assert [each.name for each in tmp_path.iterdir() if each.suffix == ".part"] == []


def test_where_folders_cannot_be_locked_the_second_file_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Windows there is no `fcntl`, and no file takes the name of another."""
    path = tmp_path / "ledger"
    monkeypatch.setitem(sys.modules, "fcntl", None)

    def first(half: Path, to: Path) -> Path:
        to.write_bytes(b"theirs")
        raise FileExistsError

    monkeypatch.setattr(Path, "rename", first)
    file_creation.make_file(path, lambda connection: connection.execute("PRAGMA journal_mode = WAL").close())
    assert path.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_ledger_needs_no_more_than_its_folder(tmp_path: Path) -> None:
    budget = Budget.pure(epsilon=1)
    with Ledger.open(tmp_path / "new.ledger", budget=budget, unit=Unit.row(), dataset="visits") as ledger:
        ledger.reserve(MOST, question=f"{1:064x}", description="much")
        assert {each.name for each in tmp_path.iterdir()} == {"new.ledger", "new.ledger-wal", "new.ledger-shm"}
