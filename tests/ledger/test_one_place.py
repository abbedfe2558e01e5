"""One ledger, one name, one place: links, mounts, copies and restored files never give a budget back."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deniable.errors import (
    BudgetExceeded,
    InvalidOperation,
    InvalidParameter,
    LedgerDamaged,
    LedgerMismatch,
    LedgerUnavailable,
    UnreadableRecord,
)
from deniable.ledger import Budget, Ledger, State, keys, verify_export
from deniable.ledger.stores.ledger_places import is_network_path, same_place
from deniable.units import Unit
from tests.wording import worded

PURE = Budget.pure(epsilon=1)
ABOUT = {"budget": PURE, "unit": Unit.row(), "dataset": "visits"}
MOST = PURE.cost(epsilon="0.95")


def spend(ledger: Ledger, number: int = 1) -> None:
    ledger.reserve(MOST, question=f"{number:064x}", description="much")


def address(path: Path, kind: str) -> Path | str:
    return path if kind == "file" else f"sqlite:///{path}"


@contextmanager
def elsewhere(place: Path | str) -> Iterator[None]:
    """Another process that has this ledger open, has spent from it, and is killed in the end: its log stays."""
    code = (
        "import sys; from tests.ledger.test_one_place import ABOUT, spend; from deniable.ledger import Ledger\n"
        "ledger = Ledger.open(sys.argv[1], **ABOUT); spend(ledger); print('spent', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "spent\n"
        yield
    finally:
        process.kill()
        process.communicate()


KINDS = pytest.mark.parametrize("kind", ["file", "database"])


@KINDS
def test_a_hard_link_made_while_a_ledger_is_open_gives_no_second_budget(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "ledger", tmp_path / "other"
    with Ledger.open(address(path, kind), **ABOUT) as ledger:
        os.link(path, other)
        with pytest.raises(LedgerUnavailable, match="hard link"):
            spend(ledger)
        with pytest.raises(LedgerUnavailable, match="hard link"):
            Ledger.open(address(other, kind), **ABOUT)
        other.unlink()
        spend(ledger)
        with pytest.raises(BudgetExceeded):
            spend(ledger, 2)


@KINDS
def test_a_hard_link_that_takes_the_place_of_a_ledger_is_refused(tmp_path: Path, kind: str) -> None:
    """Its log stays behind under the old name: what was spent there would be forgotten."""
    path, other = tmp_path / "ledger", tmp_path / "other"
    with elsewhere(address(path, kind)):
        os.link(path, other)
        path.unlink()
        with worded(LedgerUnavailable):
            Ledger.open(address(other, kind), **ABOUT)


@KINDS
def test_a_hard_link_to_a_closed_ledger_is_refused_under_both_names(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "ledger", tmp_path / "other"
    Ledger.open(address(path, kind), **ABOUT).close()
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(LedgerUnavailable, match="hard link"):
            Ledger.open(address(name, kind), **ABOUT)


@KINDS
def test_a_symbolic_link_finds_the_same_ledger(tmp_path: Path, kind: str) -> None:
    path, link, folder = tmp_path / "real" / "ledger", tmp_path / "link", tmp_path / "folder"
    path.parent.mkdir()
    link.symlink_to(path)
    folder.symlink_to(path.parent)
    with Ledger.open(address(path, kind), **ABOUT) as ledger:
        spend(ledger)
    for name in (link, folder / "ledger", tmp_path / "real" / ".." / "real" / "ledger"):
        with Ledger.open(address(name, kind), **ABOUT) as same, pytest.raises(BudgetExceeded):
            spend(same, 2)


def test_a_symbolic_link_to_nothing_makes_one_ledger(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "ledger")
    with Ledger.open(tmp_path / "link", **ABOUT) as ledger:
        spend(ledger)
        assert ledger.path == tmp_path / "ledger"
    with Ledger.open(tmp_path / "ledger", **ABOUT) as same, pytest.raises(BudgetExceeded):
        spend(same, 2)


@KINDS
def test_a_copy_is_refused_until_its_owner_says_that_it_was_moved(tmp_path: Path, kind: str) -> None:
    path, copy = tmp_path / "ledger", tmp_path / "copy"
    Ledger.open(address(path, kind), **ABOUT).close()
    shutil.copy(path, copy)
    with pytest.raises(LedgerUnavailable, match="deniable moved"):
        Ledger.open(address(copy, kind), **ABOUT)
    with Ledger.open(address(copy, kind), **ABOUT, moved="another disk") as ledger:
        [entry] = ledger.entries()
        assert (entry.state, entry.description) == (State.MOVED, "another disk")
        spend(ledger)
        ledger.verify()
        ledger.export(tmp_path / "export.jsonl")
    assert verify_export(tmp_path / "export.jsonl").entries == 2
    with Ledger.open(address(copy, kind), **ABOUT, moved="said again") as ledger:
        assert len(list(ledger.entries())) == 2  # at home nothing is moved


@KINDS
def test_an_older_copy_in_the_same_place_is_another_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "ledger"
    Ledger.open(address(path, kind), **ABOUT).close()
    shutil.copy(path, tmp_path / "yesterday")
    with Ledger.open(address(path, kind), **ABOUT) as ledger:
        spend(ledger)
    (tmp_path / "yesterday").replace(path)
    with worded(LedgerUnavailable) as refused:
        Ledger.open(address(path, kind), **ABOUT)
    assert "belongs to the path" not in str(refused.value)  # its home is this very path


def test_a_log_that_was_left_behind_is_named(tmp_path: Path) -> None:
    """Whoever renames a ledger that is open, or that a crash has left, must move its log as well."""
    path = tmp_path / "ledger"
    with elsewhere(path):
        path.rename(tmp_path / "new")
    with pytest.raises(LedgerUnavailable, match="ledger-wal"):
        Ledger.open(tmp_path / "new", **ABOUT, moved="a better name")
    (tmp_path / "new-wal").unlink(missing_ok=True)
    (tmp_path / "ledger-wal").rename(tmp_path / "new-wal")
    with Ledger.open(tmp_path / "new", **ABOUT, moved="a better name") as found, pytest.raises(BudgetExceeded):
        spend(found, 2)


def test_a_copy_can_be_looked_at_and_spends_nothing(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger", **ABOUT) as ledger:
        spend(ledger)
    shutil.copy(tmp_path / "ledger", tmp_path / "copy")
    with Ledger.inspect(tmp_path / "copy") as copy:
        assert copy.verify() is not None
        with worded(InvalidOperation):
            spend(copy, 2)


def test_an_old_ledger_settles_where_it_is_first_opened(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger.open(path, **ABOUT) as ledger:
        spend(ledger)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("DROP TABLE own")
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with Ledger.open(path, **ABOUT) as ledger:
        assert [each.state for each in ledger.entries()] == [State.RESERVED]
    shutil.copy(path, tmp_path / "copy")
    with pytest.raises(LedgerUnavailable):
        Ledger.open(tmp_path / "copy", **ABOUT)


def test_a_bind_mount_of_the_file_alone_is_another_place(tmp_path: Path) -> None:
    """Another name of the same file, without a hard link: its log would lie elsewhere."""
    path, mounted = tmp_path / "ledger", tmp_path / "belongs to the path" / "ledger"
    Ledger.open(path, **ABOUT).close()
    mounted.parent.mkdir()
    mounted.touch()
    code = (
        "import sys; from deniable.ledger import Ledger; from deniable.errors import LedgerUnavailable\n"
        "try: Ledger.open(sys.argv[1])\nexcept LedgerUnavailable as error: print(error.reason)"
    )
    script = f'mount --bind "{path}" "{mounted}" || exit 77; exec "{sys.executable}" -c "$0" "{mounted}"'
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", script, code], capture_output=True, text=True, check=False
    )
    if done.returncode in {1, 77} and not done.stdout:
        pytest.skip("this machine lets nobody mount")
    assert "belongs to the path" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("home", "here", "listed", "same"),
    [
        ("/a/ledger", "/a/ledger", ["ledger"], True),
        ("/a/Ledger", "/a/ledger", ["Ledger"], True),  # a file system that does not tell them apart
        ("/a/caf\u00e9", "/a/cafe\u0301", ["caf\u00e9"], True),
        ("/a/Ledger", "/a/ledger", ["Ledger", "ledger"], False),
        ("/a/ledger", "/b/ledger", ["ledger"], False),
        ("/a/ledger", "/a/ledger2", ["ledger", "ledger2"], False),
    ],
)
def test_names_that_differ_by_case_alone_are_one_where_the_folder_says_so(
    home: str, here: str, listed: list[str], same: bool
) -> None:
    assert same_place(home, here, listed) is same


@pytest.mark.parametrize(
    ("path", "network"),
    [
        (r"\\server\share\visits.ledger", True),
        ("//server/share/visits.ledger", True),
        (r"\\?\UNC\server\share\visits.ledger", True),
        (r"\\?\C:\data\visits.ledger", False),
        (r"C:\data\visits.ledger", False),
        ("C:/data/visits.ledger", False),
        ("visits.ledger", False),
    ],
)
def test_a_network_path_of_windows_is_known(path: str, network: bool) -> None:
    assert is_network_path(path) is network


def test_a_ledger_on_a_network_path_is_refused_where_names_mean_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deniable.ledger.stores.ledger_places.WINDOWS", True)
    with pytest.raises(InvalidParameter, match="network"):
        Ledger.open(r"\\server\share\visits.ledger", **ABOUT)


@KINDS
def test_a_ledger_to_look_at_that_is_not_there_is_not_asked_for_a_budget(tmp_path: Path, kind: str) -> None:
    with worded(InvalidParameter, parameter="ledger") as refused:
        Ledger.inspect(address(tmp_path / "nowhere", kind))
    assert "budget" not in str(refused.value)


@KINDS
def test_a_new_ledger_may_be_read_by_its_owner_only(tmp_path: Path, kind: str) -> None:
    """It had the permissions of any new file (0644), and it holds the secret that chooses rows."""
    path = tmp_path / "new.ledger"
    before = os.umask(0o022)
    try:
        with Ledger.open(address(path, kind), **ABOUT) as ledger:
            spend(ledger)
            modes = {each.name: oct(each.stat().st_mode & 0o777) for each in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert set(modes.values()) == {"0o600"}, modes
    path.chmod(0o660)  # the owner may share it
    with Ledger.open(address(path, kind), **ABOUT) as ledger:
        assert path.stat().st_mode & 0o777 == 0o660


def test_the_file_of_a_ledger_is_no_database_for_a_second_one(tmp_path: Path) -> None:
    """Opened as sqlite:///..., a ledger's file took the tables of another beside its own: 1.8 of 1 was spent."""
    path = tmp_path / "first.ledger"
    with Ledger.open(path, **ABOUT) as ledger:
        spend(ledger)
        with worded(UnreadableRecord):
            Ledger.open(address(path, "database"), **ABOUT)
    with worded(UnreadableRecord):
        Ledger.open(address(path, "database"), **ABOUT)
    with Ledger.open(path, **ABOUT) as ledger:
        ledger.verify()
        with pytest.raises(BudgetExceeded):
            spend(ledger, 2)


@KINDS
def test_a_closed_ledger_that_was_renamed_away_is_shown_by_a_checkpoint_alone(tmp_path: Path, kind: str) -> None:
    """As docs/ledger.md says: a new ledger under the old name has all of its budget, and only what is kept elsewhere
    knows of the first.
    """
    path, key = tmp_path / "ledger", keys.new(tmp_path / "owner.key")
    with Ledger.open(address(path, kind), owner=key.public, **ABOUT) as ledger:
        spend(ledger)
        kept = ledger.checkpoint(key)
    path.rename(tmp_path / "away")
    with pytest.raises(LedgerDamaged):
        Ledger.open(address(path, kind), owner=key.public, checkpoint=kept, **ABOUT)
    with Ledger.open(address(path, kind), owner=key.public, **ABOUT) as ledger:
        spend(ledger)  # not seen
    with pytest.raises(LedgerMismatch):
        Ledger.open(address(path, kind), owner=key.public, checkpoint=kept, **ABOUT)
    with pytest.raises(LedgerUnavailable):
        Ledger.open(address(tmp_path / "away", kind), owner=key.public, **ABOUT)
