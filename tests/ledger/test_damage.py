"""A changed history is named at its first bad entry; a file that is no ledger of ours is left alone."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from deniable.errors import (
    BudgetExceeded,
    DeniableError,
    LedgerDamaged,
    LedgerUnavailable,
    UnreadableRecord,
)
from deniable.ledger import Budget, Cost, Ledger
from deniable.ledger.stores import entry_rows, sqlite_store
from deniable.units import Unit
from tests.wording import worded

PURE = Budget.pure(epsilon=1)
TENTH = PURE.cost(epsilon=0.1)
ABOUT = {"budget": PURE, "unit": Unit.row(), "dataset": "visits"}


def question(number: int) -> str:
    return f"{number:064x}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of seven entries: 1 reserved, 2 sealed, 3 reserved, 4 reserved, 5 failed (3), 6 sealed (4), 7 reserved."""
    with Ledger.open(tmp_path / "ledger", **ABOUT) as ledger:
        ledger.seal(ledger.reserve(TENTH, question=question(1), description="one"), b"11")
        second, third = ledger.reserve_all([(TENTH, question(2), "two"), (TENTH, question(3), "three")])
        ledger.fail(second, "timed-out")
        ledger.seal(third, b"33")
        ledger.reserve(TENTH, question=question(4), description="four", key="k")
    return tmp_path / "ledger"


@pytest.fixture
def tamper(path: Path) -> Iterator[Callable[[str], None]]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("DROP TRIGGER never_edit")
    connection.execute("DROP TRIGGER never_delete")
    yield lambda statement: connection.executescript(statement) and None
    connection.close()


def first_bad(path: Path) -> int | None:
    with Ledger.open(path, **ABOUT) as ledger, pytest.raises(LedgerDamaged) as found:
        ledger.verify()
    return found.value.number


def test_an_honest_ledger_verifies(path: Path) -> None:
    with Ledger.open(path, **ABOUT) as ledger:
        newest = ledger.verify()
        assert (newest.number, newest.spent) == (7, Cost(4 * TENTH.units))


def test_the_chain_is_what_the_documentation_says(path: Path) -> None:
    """Recomputed here from the text of docs/ledger.md alone."""
    connection = sqlite3.connect(path)
    [[heading]] = connection.execute("SELECT text FROM heading")
    link = sha256(heading.encode()).hexdigest()
    names = (
        "number time state question description key units delta_units spent_units spent_delta_units closes answer code"
    )
    for *fields, previous, found, more in connection.execute(
        f"SELECT {', '.join(names.split())}, previous, hash, more FROM entries ORDER BY number"
    ):
        fields[11] = None if fields[11] is None else sha256(fields[11]).hexdigest()
        text = json.dumps([1, *fields, link, json.loads(more)], separators=(",", ":"))
        assert (previous, found) == (link, sha256(text.encode()).hexdigest())
        link = found
    assert link == connection.execute("SELECT hash FROM head").fetchone()[0]
    connection.close()


COLUMNS = {
    "time": "'2020-01-01T00:00:00Z'",
    "state": "'RESERVED'",
    "question": f"'{question(9)}'",
    "units": "'1'",
    "delta_units": "'5'",
    "description": "'other'",
    "key": "'other'",
    "closes": "NULL",
    "answer": "x'3434'",
    "code": "'other'",
    "spent_units": "'1'",
    "spent_delta_units": "'5'",
    "previous": f"'{question(5)}'",
    "hash": f"'{question(6)}'",
}


@pytest.mark.parametrize("column", COLUMNS)
def test_flip(path: Path, tamper: Callable[[str], None], column: str) -> None:
    tamper(f"UPDATE entries SET {column} = {COLUMNS[column]} WHERE number = 6")
    assert first_bad(path) == 6


@pytest.mark.parametrize("number", range(1, 8))
def test_flip_anywhere_and_delete_anywhere(
    path: Path, tamper: Callable[[str], None], number: int, tmp_path: Path
) -> None:
    shutil.copy(path, tmp_path / "copy")
    tamper(f"UPDATE entries SET description = 'other' WHERE number = {number}")
    assert first_bad(path) == number
    shutil.copy(tmp_path / "copy", path)
    tamper(f"DELETE FROM entries WHERE number = {number}")
    assert first_bad(path) == number


def test_delete_and_close_the_gap(path: Path, tamper: Callable[[str], None]) -> None:
    tamper("DELETE FROM entries WHERE number = 3; UPDATE entries SET number = number - 1 WHERE number > 3")
    tamper("UPDATE head SET number = 6")
    assert first_bad(path) == 3


def test_reorder(path: Path, tamper: Callable[[str], None]) -> None:
    tamper(
        "UPDATE entries SET number = 99 WHERE number = 4; UPDATE entries SET number = 4 WHERE number = 5;"
        "UPDATE entries SET number = 5 WHERE number = 99"
    )
    assert first_bad(path) == 4


@pytest.mark.parametrize("left", [0, 1, 5, 6])
def test_truncate(path: Path, tamper: Callable[[str], None], left: int) -> None:
    tamper(f"DELETE FROM entries WHERE number > {left}")
    assert first_bad(path) == left + 1


def test_truncate_and_hide_it_badly(path: Path, tamper: Callable[[str], None]) -> None:
    tamper("DELETE FROM entries WHERE number > 5; UPDATE head SET number = 5")
    assert first_bad(path) == 5


def test_put_in(path: Path, tamper: Callable[[str], None]) -> None:
    columns = "time, state, question, units, delta_units, description, spent_units, spent_delta_units, previous, hash"
    tamper(f"INSERT INTO entries (number, {columns}) SELECT 8, {columns} FROM entries WHERE number = 7")
    assert first_bad(path) == 8


def test_another_heading(path: Path, tamper: Callable[[str], None]) -> None:
    tamper("""UPDATE heading SET text = replace(text, '"visits"', '"visitz"')""")
    with Ledger.open(path) as ledger:
        with pytest.raises(LedgerDamaged, match="the heading") as found:
            ledger.verify()
        assert found.value.number == 0
        with pytest.raises(LedgerDamaged):
            ledger.reserve(TENTH, question=question(1), description="x")


def test_a_raised_budget_buys_nothing(path: Path, tamper: Callable[[str], None]) -> None:
    tamper(f"UPDATE heading SET text = replace(text, '{PURE.limit.units}', '{9 * PURE.limit.units}')")
    with Ledger.open(path) as ledger:
        assert ledger.budget == Budget.pure(epsilon=9)
        with pytest.raises(LedgerDamaged):
            ledger.reserve(TENTH, question=question(1), description="x")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET spent_units = '0' WHERE number = 7",
        "DELETE FROM entries WHERE number = 7",
        "DELETE FROM entries",
        "UPDATE head SET number = 0",
        "UPDATE head SET number = 5",
        "UPDATE head SET hash = 'x'",
        "UPDATE head SET number = 'x'",
        "DELETE FROM head",
        "UPDATE entries SET units = '-1' WHERE number = 7",
        "UPDATE entries SET units = 1.5 WHERE number = 7",
        "UPDATE entries SET question = x'00' WHERE number = 7",
        "UPDATE entries SET state = 'PAID' WHERE number = 7",
        "UPDATE entries SET answer = 'text' WHERE number = 7",
    ],
)
def test_damage_at_the_end_is_seen_before_anything_is_spent(
    path: Path, tamper: Callable[[str], None], statement: str
) -> None:
    tamper(statement)
    with Ledger.open(path, **ABOUT) as ledger:
        with pytest.raises(LedgerDamaged):
            ledger.reserve(TENTH, question=question(1), description="x")
        with pytest.raises(LedgerDamaged):
            ledger.verify()


def forged(path: Path, change: str) -> None:
    """Change entry 7 and give it the hash it then has, as somebody would who knows the format."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("DROP TRIGGER never_edit")
    connection.execute("DROP INDEX closed_once")  # it would refuse to close an entry twice
    connection.execute(f"UPDATE entries SET {change} WHERE number = 7")
    [row] = connection.execute(f"SELECT {', '.join(entry_rows.COLUMNS)} FROM entries WHERE number = 7")
    made = entry_rows._entry_of(row).digest()
    connection.execute("UPDATE entries SET hash = ? WHERE number = 7", (made,))
    connection.execute("UPDATE head SET hash = ?", (made,))
    connection.close()


@pytest.mark.parametrize(
    "change",
    [
        "spent_units = '0'",
        f"units = '{10**31}', spent_units = '{10**31 + 3 * 10**29}'",
        "state = 'SEALED', closes = 3, answer = x'00', spent_units = '300000000000000000000000000000'",
        f"previous = '{question(1)}'",
    ],
    ids=["wrong sum", "over the limit", "closes what is closed", "hangs in the air"],
)
def test_a_forged_entry_must_still_make_sense(path: Path, change: str) -> None:
    forged(path, change)
    assert first_bad(path) == 7


def test_the_store_itself_refuses_edits(path: Path) -> None:
    connection = sqlite3.connect(path)
    for statement in ("UPDATE entries SET units = '0'", "DELETE FROM entries"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement)
    connection.close()


# --- files ------------------------------------------------------------------------------------------------------------


def other_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE patients (name TEXT)")
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("patient,ward\n1,A\n"),
        lambda path: path.write_bytes(b"\0" * 4096),
        lambda path: path.write_bytes(b"SQLite format 3\0"),
        lambda path: path.write_bytes(b"x"),
        other_database,
    ],
    ids=["csv", "zeros", "half a header", "one byte", "another database"],
)
def test_a_file_that_is_no_ledger_is_not_touched(tmp_path: Path, make: Callable[[Path], object]) -> None:
    path = tmp_path / "file"
    make(path)
    before = path.read_bytes()
    for about in (ABOUT, {}):
        with worded(UnreadableRecord):
            Ledger.open(path, **about)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_and_a_place_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="directory"):
        Ledger.open(tmp_path, **ABOUT)
    with worded(LedgerUnavailable):
        Ledger.open(tmp_path / "no" / "where", **ABOUT)


def test_a_newer_format(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 4")
    connection.close()
    with worded(UnreadableRecord):
        Ledger.open(path, **ABOUT)


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("UPDATE heading SET text = '{}'", UnreadableRecord),
        ("UPDATE heading SET text = 'x'", UnreadableRecord),
        ("UPDATE heading SET text = replace(text, '\"version\":1', '\"version\":9')", UnreadableRecord),
        ("UPDATE heading SET text = x'00'", LedgerDamaged),
        ("DELETE FROM heading", LedgerDamaged),
        ("DROP TABLE heading", LedgerUnavailable),
    ],
    ids=["empty", "no json", "newer budget", "bytes", "gone", "no table"],
)
def test_a_heading_that_cannot_be_read(
    path: Path, tamper: Callable[[str], None], statement: str, error: type[DeniableError]
) -> None:
    tamper(statement)
    with pytest.raises(error):
        Ledger.open(path, **ABOUT)


def test_torn_pages_give_only_our_errors(path: Path) -> None:
    whole = path.read_bytes()
    for start in range(100, len(whole), 997):
        path.write_bytes(whole[:start] + b"\xa5" * 64 + whole[start + 64 :])
        try:
            with Ledger.open(path, **ABOUT) as ledger:
                ledger.verify()
                ledger.reserve(Cost(1), question=question(1), description="x")
        except DeniableError:
            pass
        for name in ("ledger-wal", "ledger-shm"):
            path.with_name(name).unlink(missing_ok=True)


def test_a_cut_file_gives_only_our_errors(path: Path) -> None:
    whole = path.read_bytes()
    for length in range(100, len(whole), 4000):
        path.write_bytes(whole[:length])
        with pytest.raises(DeniableError), Ledger.open(path, **ABOUT) as ledger:
            ledger.verify()


def test_a_ledger_that_was_replaced_is_not_written(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path / "yesterday")
    with Ledger.open(path, **ABOUT) as ledger:
        ledger.reserve(TENTH, question=question(1), description="x")
        (tmp_path / "yesterday").rename(path)
        with worded(LedgerUnavailable):
            ledger.reserve(TENTH, question=question(1), description="x")
        path.unlink()
        with worded(LedgerUnavailable):
            _ = ledger.charged


def test_a_busy_ledger_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "_PATIENCE", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    with Ledger.open(path, **ABOUT) as ledger:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailable, match="is busy"):
            ledger.reserve(TENTH, question=question(1), description="x")
        assert ledger.charged == Cost(4 * TENTH.units)  # reading goes on
        other.execute("ROLLBACK")
        for _ in range(6):
            ledger.reserve(TENTH, question=question(1), description="x")
        with pytest.raises(BudgetExceeded):
            ledger.reserve(TENTH, question=question(1), description="x")
    other.close()
