"""What only reads a ledger needs no right to write it; what lies where nobody can look is said."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deniable.ledger import Budget, Ledger
from deniable.units import Unit
from tests.cli.shell import asked, refused

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="rights of files are another thing there")

COUNT = "SELECT COUNT(*) AS n FROM visits"
FIRST = ["--each-row", "--budget", "1", "--epsilon", "0.5"]

_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 24, 1, 2


def _without_the_rights_of_root() -> None:
    """Files and folders then mean what they say, also to root."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None)
        for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
            if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
                raise OSError("root keeps its rights here")


def as_reader(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command by somebody who may write neither the files nor their folder."""
    return subprocess.run(
        [sys.executable, "-m", "deniable", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=_without_the_rights_of_root,
    )


@pytest.fixture
def locked() -> Iterator[Path]:
    """A table and its account in a folder that may be read, and not written to."""
    folder = Path(tempfile.mkdtemp())
    try:
        path = folder / "visits.csv"
        path.write_text("ward\n" + "A\n" * 100, encoding="utf-8")
        asked("ask", str(path), COUNT, *FIRST)
        (folder / "visits.csv.ledger").chmod(0o444)
        folder.chmod(0o555)
        yield path
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


@pytest.mark.slow
def test_commands_that_only_read_asked_for_a_folder_to_write_to(locked: Path) -> None:
    """`verify`, `price` and `report` said "cannot be opened for writing; make the file and its folder writable"."""
    account, before = f"{locked}.ledger", Path(f"{locked}.ledger").read_bytes()
    found = as_reader("verify", account)
    assert (found.returncode, "The history is whole" in found.stdout) == (0, True), found.stderr
    found = as_reader("price", str(locked), COUNT, "--epsilon", "0.25")
    assert (found.returncode, found.stderr) == (0, "")
    found = as_reader("report", str(locked))
    assert (found.returncode, found.stderr) == (0, "")
    found = as_reader("ask", str(locked), COUNT + " WHERE ward = 'A'", "--epsilon", "0.25")
    assert (found.returncode, "cannot be opened for writing" in found.stderr) == (1, True)
    assert sorted(each.name for each in locked.parent.iterdir()) == ["visits.csv", "visits.csv.ledger"]
    assert Path(account).read_bytes() == before


@pytest.mark.slow
def test_a_log_that_cannot_be_read_is_not_passed_over(locked: Path) -> None:
    """Without its index SQLite cannot read a log where it may not write; the file alone would be an older history."""
    with Ledger.open(f"{locked}.ledger") as ledger:
        cost = ledger.budget.cost(epsilon="0.1")
        ledger.reserve(cost, question="1" * 64, description="newer")
        log = Path(f"{locked}.ledger-wal").read_bytes()
    assert log
    Path(f"{locked}.ledger-wal").write_bytes(log)
    Path(f"{locked}.ledger-wal").chmod(0o444)
    for command in (["verify", f"{locked}.ledger"], ["price", str(locked), COUNT, "--epsilon", "0.1"]):
        found = as_reader(*command)
        assert found.returncode == 1
        assert "are in visits.csv.ledger-wal" in found.stderr
        assert "copy visits.csv.ledger and visits.csv.ledger-wal to a folder that you may write to" in found.stderr


def test_an_export_into_a_folder_that_is_missing_blamed_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("ward\nA\n", encoding="utf-8")
    asked("ask", str(path), COUNT, *FIRST)
    code, said = refused("verify", f"{path}.ledger", "--export", str(tmp_path / "no" / "dir" / "x.jsonl"))
    assert code == 2
    assert "is in a folder that does not exist" in said
    assert "the ledger" not in said
    asked("verify", f"{path}.ledger", "--export", str(tmp_path / "x.jsonl"))


def test_a_ledger_in_a_folder_that_is_missing_said_to_make_it_writable(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("ward\nA\n", encoding="utf-8")
    code, said = refused("ask", str(path), COUNT, *FIRST, "--ledger", str(tmp_path / "no" / "dir" / "x"))
    assert (code, "its folder does not exist; make the folder" in said) == (1, True), said
    code, said = refused("ask", str(path), COUNT, *FIRST, "--ledger", str(path / "x"))
    assert (code, "its folder is a file; make the folder" in said) == (1, True), said


def test_a_renamed_ledger_whose_log_stayed_behind_was_called_whole(tmp_path: Path) -> None:
    """`moved` saw the log under the old name; `verify` said that a history of no entries was whole."""
    old, new = tmp_path / "old.ledger", tmp_path / "new.ledger"
    budget = Budget.pure(epsilon=1)
    with Ledger.open(old, budget=budget, unit=Unit.row(), dataset="visits") as ledger:
        ledger.reserve(budget.cost(epsilon="0.5"), question="1" * 64, description="newest")
        kept = (tmp_path / "old.ledger").read_bytes(), (tmp_path / "old.ledger-wal").read_bytes()
    number = old.stat().st_ino
    old.write_bytes(kept[0])
    assert old.stat().st_ino == number
    (tmp_path / "old.ledger-wal").write_bytes(kept[1])
    old.rename(new)
    code, said = refused("verify", str(new))
    assert (code, "old.ledger-wal" in said, "move that file too: to new.ledger-wal" in said) == (1, True, True), said
    (tmp_path / "old.ledger-wal").rename(tmp_path / "new.ledger-wal")
    assert "1" in asked("verify", str(new))
    with Ledger.inspect(new) as ledger:
        assert len(list(ledger.entries())) == 1


def test_a_copy_beside_a_ledger_at_home_can_be_looked_at(tmp_path: Path) -> None:
    old = tmp_path / "old.ledger"
    with Ledger.open(old, budget=Budget.pure(epsilon=1), unit=Unit.row(), dataset="visits") as ledger:
        ledger.reserve(ledger.budget.cost(epsilon="0.5"), question="1" * 64, description="newest")
        shutil.copy(old, tmp_path / "copy.ledger")
        shutil.copy(tmp_path / "old.ledger-wal", tmp_path / "copy.ledger-wal")
        with Ledger.inspect(tmp_path / "copy.ledger") as copy:
            assert len(list(copy.entries())) == 1
