"""A file that was deleted and put back is another file, also where it gets the number (inode) of the deleted one."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deniable.errors import BudgetExceeded, LedgerUnavailable
from deniable.ledger import Ledger, State
from deniable.ledger.stores import ledger_places
from tests.ledger.test_one_place import ABOUT, KINDS, address, spend
from tests.wording import worded

BORN = "deniable.ledger.stores.ledger_places.born"


def birth(path: Path) -> int | None:
    return ledger_places.born(path, os.stat(path))


@pytest.fixture
def known(tmp_path: Path) -> None:
    """Only where the system says when a file was made."""
    (tmp_path / "probe").touch()
    if birth(tmp_path / "probe") is None:
        pytest.skip("this file system does not say when a file was made")


def restored(folder: Path, kind: str, number_of_try: int) -> Path | None:
    """A ledger that was copied, spent from, deleted and copied back; None if its file got another number."""
    if folder.exists():
        folder.rename(folder.with_name(f"failed {number_of_try}"))
    folder.mkdir()
    path, copy = folder / "ledger", folder / "copy"
    Ledger.open(address(path, kind), **ABOUT).close()
    shutil.copy2(path, copy)
    with Ledger.open(address(path, kind), **ABOUT) as ledger:
        spend(ledger)
    number = os.stat(path).st_ino
    path.unlink()
    shutil.copy2(copy, path)
    return path if os.stat(path).st_ino == number else None


@KINDS
@pytest.mark.usefixtures("known")
def test_a_copy_that_gets_the_number_of_the_deleted_file_gives_no_second_budget(tmp_path: Path, kind: str) -> None:
    tries = (restored(tmp_path / "tried", kind, number) for number in range(20))
    path = next((each for each in tries if each is not None), None)
    if path is None:
        pytest.skip("this file system did not use the number of a deleted file again in 20 tries")
    with worded(LedgerUnavailable):
        Ledger.open(address(path, kind), **ABOUT)
    with Ledger.open(address(path, kind), **ABOUT, moved="the disk died") as ledger:
        assert [each.state for each in ledger.entries()] == [State.MOVED]
    with Ledger.open(address(path, kind), **ABOUT) as ledger:
        spend(ledger)
        ledger.verify()


@KINDS
def test_a_file_with_the_same_number_and_another_birth_is_refused(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = address(tmp_path / "ledger", kind)
    monkeypatch.setattr(BORN, lambda *_: 10**18)
    Ledger.open(place, **ABOUT).close()
    monkeypatch.setattr(BORN, lambda *_: 10**18 + 10**6)
    with worded(LedgerUnavailable):
        Ledger.open(place, **ABOUT)
    with Ledger.inspect(place, dataset="visits") as ledger:
        assert not list(ledger.entries())  # to look at it is allowed
    monkeypatch.setattr(BORN, lambda *_: 10**18 + 200)  # told as a float of seconds
    with Ledger.open(place, **ABOUT) as ledger:
        spend(ledger)


@KINDS
def test_a_ledger_that_is_open_notices_another_birth(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(address(tmp_path / "ledger", kind), **ABOUT) as ledger:
        monkeypatch.setattr(BORN, lambda *_: 10**18)
        with worded(LedgerUnavailable):
            spend(ledger)


@KINDS
def test_where_nobody_knows_when_a_file_was_made_path_and_number_must_do(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger"
    monkeypatch.setattr(BORN, lambda *_: 10**18)
    Ledger.open(address(path, kind), **ABOUT).close()
    monkeypatch.setattr(BORN, lambda *_: None)
    with Ledger.open(address(path, kind), **ABOUT) as ledger:
        spend(ledger)
    monkeypatch.setattr(BORN, lambda *_: 10**18 + 10**6)  # what was known once is not forgotten
    with worded(LedgerUnavailable):
        Ledger.open(address(path, kind), **ABOUT)


@pytest.mark.parametrize("before", [{}, {"born": None}])
def test_a_home_without_a_birth_gets_it_when_it_is_next_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: dict[str, None]
) -> None:
    path = tmp_path / "ledger"
    Ledger.open(path, **ABOUT).close()
    home = json.dumps({"path": str(path), "file": os.stat(path).st_ino} | before)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE own SET value = ? WHERE name = 'home'", (home,))
    monkeypatch.setattr(BORN, lambda *_: 10**18)
    with Ledger.open(path, **ABOUT) as ledger:
        assert not list(ledger.entries())
    with closing(sqlite3.connect(path)) as connection:
        [[kept]] = connection.execute("SELECT value FROM own WHERE name = 'home'")
    assert json.loads(kept) == json.loads(home) | {"born": 10**18}
    monkeypatch.setattr(BORN, lambda *_: 10**18 + 10**6)
    with worded(LedgerUnavailable):
        Ledger.open(path, **ABOUT)


def vacuum(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("VACUUM")


def other_journal(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)


def backed_up(path: Path) -> None:
    """SQLite's own backup, out of the file and into it again."""
    with closing(sqlite3.connect(path)) as here, closing(sqlite3.connect(":memory:")) as there:
        here.backup(there)
        there.backup(here)


def rewritten(path: Path) -> None:
    path.write_bytes(path.read_bytes())


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("work", [vacuum, other_journal, backed_up, rewritten])
def test_what_rewrites_a_ledger_in_place_leaves_it_at_home(tmp_path: Path, work: Callable[[Path], None]) -> None:
    path = tmp_path / "ledger"
    with Ledger.open(path, **ABOUT) as ledger:
        spend(ledger)
    before = birth(path)
    work(path)
    assert birth(path) == before
    with Ledger.open(path, **ABOUT) as ledger:
        assert [each.state for each in ledger.entries()] == [State.RESERVED]
        with pytest.raises(BudgetExceeded):
            spend(ledger, 2)
        ledger.verify()


@pytest.mark.slow
@pytest.mark.usefixtures("known")
def test_a_ledger_that_was_put_back_is_opened_after_deniable_moved(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    Ledger.open(path, **ABOUT).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:  # as if the deleted file was older
        connection.execute("UPDATE own SET value = json_set(value, '$.born', 1) WHERE name = 'home'")
    with worded(LedgerUnavailable):
        Ledger.open(path, **ABOUT)
    command = [sys.executable, "-m", "deniable", "moved", str(path), "--reason", "the backup of Monday"]
    subprocess.run(command, capture_output=True, check=True)
    with Ledger.open(path, **ABOUT) as ledger:
        assert [each.description for each in ledger.entries()] == ["the backup of Monday"]


# --- when a file was made ---------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="GNU stat tells the time of birth on Linux")
def test_the_birth_is_the_one_that_stat_tells(tmp_path: Path) -> None:
    path = tmp_path / "caf\u00e9"
    path.touch()
    os.utime(path, ns=(10**18, 10**18))
    done = subprocess.run(["stat", "-c", "%.9W", str(path)], capture_output=True, text=True, check=False)
    if done.returncode or "." not in done.stdout:
        pytest.skip("this machine has no GNU stat")
    seconds, nanoseconds = done.stdout.strip().split(".")
    assert birth(path) == (int(seconds) * 10**9 + int(nanoseconds) or None)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"st_birthtime_ns": 1_700_000_000_123_456_789, "st_birthtime": 1.7e9}, 1_700_000_000_123_456_789),
        ({"st_birthtime": 1_700_000_000.5}, 1_700_000_000_500_000_000),
        ({"st_birthtime": 0.0}, None),
        ({"st_birthtime": -1.0}, None),
    ],
)
def test_where_the_system_tells_the_birth_it_is_believed(told: dict[str, Any], expected: int | None) -> None:
    found: Any = SimpleNamespace(**told)
    assert ledger_places.born(Path("nowhere"), found) == expected


def answering(code: int, mask: int) -> Callable[..., int]:
    def statx(_: int, path: bytes, flags: int, asked: int, found: ctypes.Array[ctypes.c_char]) -> int:
        ctypes.c_uint32.from_buffer(found, 0).value = mask
        ctypes.c_int64.from_buffer(found, 80).value = 1_000
        ctypes.c_uint32.from_buffer(found, 88).value = 7
        return code

    return statx


@pytest.mark.parametrize(
    ("statx", "expected"),
    [
        (None, None),
        (answering(-1, 0xFFF), None),
        (answering(0, 0x7FF), None),  # a file system that keeps no birth
        (answering(0, 0xFFF), 1_000_000_000_007),
    ],
    ids=["no call", "failed", "not told", "told"],
)
def test_a_birth_is_taken_from_statx_only_if_it_tells_one(
    statx: Callable[..., int] | None, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_places, "_STATX", statx)
    found: Any = SimpleNamespace()
    assert ledger_places.born(Path("nowhere"), found) == expected


def test_asking_for_the_birth_drops_no_lock_of_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "plain.db"
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)\n"
        "try: c.execute('BEGIN EXCLUSIVE')\nexcept sqlite3.OperationalError: print('locked')"
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.execute("BEGIN EXCLUSIVE")
        birth(path)
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout == "locked\n", done.stderr
