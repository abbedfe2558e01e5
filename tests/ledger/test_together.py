"""Threads that write at the same time share one flush of the disk, and nothing else: each stands or falls by itself."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deniable.errors import BudgetExceeded, DeniableError, InvalidParameter, LedgerUnavailable
from deniable.ledger import Budget, Cost, Ledger, State
from deniable.ledger.stores import sqlite_store
from deniable.units import Unit

PURE = Budget.pure(epsilon=1)
TENTH = PURE.cost(epsilon=0.1)
ABOUT = {"budget": PURE, "unit": Unit.row(), "dataset": "visits"}


def question(number: int) -> str:
    return f"{number:064x}"


def together(ledger: Ledger, works: list[Callable[[], Any]]) -> list[Any]:
    """Run these in threads that all wait before the first may write; what each returned or raised."""
    found: list[Any] = [None] * len(works)

    def run(at: int) -> None:
        try:
            found[at] = works[at]()
        except DeniableError as error:
            found[at] = error

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(works))]
    store = ledger._store
    with store._turn:
        for at, thread in enumerate(threads):
            thread.start()
            while len(store._queue) <= at and thread.is_alive():
                pass
    for thread in threads:
        thread.join(60)
    return found


def asks(ledger: Ledger, count: int, cost: Cost = TENTH) -> list[Callable[[], Any]]:
    return [lambda n=n: ledger.reserve(cost, question=question(n), description="how many") for n in range(count)]


def test_those_who_wait_are_written_in_one_transaction(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger", **ABOUT) as ledger:
        statements: list[str] = []
        ledger._store._connected().set_trace_callback(statements.append)
        entries = together(ledger, asks(ledger, 8))
        assert [each for each in statements if each.startswith(("BEGIN", "COMMIT"))] == ["BEGIN IMMEDIATE", "COMMIT"]
        assert sorted(each.number for each in entries) == list(range(1, 9))
        assert ledger.verify().number == 8
        statements.clear()
        ledger.reserve(TENTH, question=question(9), description="alone")
        assert not [each for each in statements if "SAVEPOINT" in each]


def test_one_that_is_refused_takes_nothing_from_the_others(place: Any) -> None:
    with Ledger.open(place, **ABOUT) as ledger:
        found = together(ledger, asks(ledger, 14))
        assert sum(isinstance(each, BudgetExceeded) for each in found) == 4
        assert ledger.charged == PURE.limit
        assert ledger.verify().number == 10
        numbers = sorted(each.number for each in found if not isinstance(each, BudgetExceeded))
        assert numbers == list(range(1, 11))


def test_each_gets_its_own_entry_error_or_replay(place: Any) -> None:
    with Ledger.open(place, **ABOUT) as ledger:
        first = ledger.reserve(TENTH, question=question(1), description="first", key="k")
        sealed = ledger.seal(first, b"41")
        wrong, closed, replayed, fresh = together(
            ledger,
            [
                lambda: ledger.reserve(TENTH, question=question(2), description="x", key="k"),
                lambda: ledger.seal(first, b"42"),
                lambda: ledger.reserve_or_replay(TENTH, question=question(1), description="again"),
                lambda: ledger.reserve(TENTH, question=question(3), description="new"),
            ],
        )
        assert [type(wrong), type(closed)] == [InvalidParameter, InvalidParameter]
        assert (wrong.parameter, closed.parameter) == ("key", "entry")
        assert replayed == sealed
        assert (fresh.number, ledger.charged) == (3, TENTH + TENTH)
        assert ledger.verify() == fresh


def test_what_cannot_be_kept_is_granted_to_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "_PATIENCE", 0.05)
    with Ledger.open(tmp_path / "ledger", **ABOUT) as ledger:
        other = sqlite3.connect(tmp_path / "ledger", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert all(isinstance(each, LedgerUnavailable) for each in together(ledger, asks(ledger, 5)))
        other.execute("ROLLBACK")
        other.close()
        assert (ledger.charged, list(ledger.entries())) == (Cost(0), [])
        ledger.reserve(TENTH, question=question(1), description="goes on")


def test_who_waits_for_another_process_looks_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite itself would sleep for up to a tenth of a second while the turn is free."""
    pauses: list[float] = []
    with Ledger.open(tmp_path / "ledger", **ABOUT) as ledger:
        other = sqlite3.connect(tmp_path / "ledger", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 30:
                other.execute("ROLLBACK")

        monkeypatch.setattr(sqlite_store.time, "sleep", sleep)
        assert ledger.reserve(TENTH, question=question(1), description="x").number == 1
        other.close()
    assert len(pauses) == 30
    assert (pauses[0], max(pauses)) == (0.0005, 0.02)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY, sqlite3.SQLITE_BUSY_SNAPSHOT])
def test_whoever_holds_the_file_is_waited_for_but_not_for_ever(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    held, now = [code], [0.0]

    class Connection:
        def execute(self, begin: str) -> None:
            if held and now[0] < held_until:
                error = sqlite3.OperationalError()
                error.sqlite_errorcode = held[0]
                raise error

    def sleep(seconds: float) -> None:
        now[0] += seconds

    fake: Any = Connection()
    monkeypatch.setattr(sqlite_store.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sqlite_store.time, "sleep", sleep)
    held_until = 29.0
    sqlite_store._begin(fake, "BEGIN IMMEDIATE")
    assert 29.0 <= now[0] < 29.1
    now[0], held_until = 0.0, 100.0
    with pytest.raises(sqlite3.OperationalError):
        sqlite_store._begin(fake, "BEGIN IMMEDIATE")
    assert 30.0 <= now[0] < 30.1
    now[0], held[0] = 0.0, sqlite3.SQLITE_IOERR
    with pytest.raises(sqlite3.OperationalError):
        sqlite_store._begin(fake, "BEGIN IMMEDIATE")
    assert now[0] == 0.0


def test_who_comes_back_after_a_fork_waits_while_the_file_is_closed_or_recovered(tmp_path: Path) -> None:
    """The last to close a file holds all of it for a moment, and so does who recovers it."""
    with Ledger.open(tmp_path / "ledger", **ABOUT) as ledger:
        ledger._store._disconnect()  # as before a fork
        other = sqlite3.connect(tmp_path / "ledger", isolation_level=None, check_same_thread=False)
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
        third = sqlite3.connect(tmp_path / "ledger", timeout=0)
        with closing(third), pytest.raises(sqlite3.OperationalError, match="locked"):
            third.execute("SELECT * FROM head")
        done = threading.Timer(0.3, other.close)
        done.start()
        assert ledger.reserve(TENTH, question=question(1), description="x").number == 1
        done.join()
        assert ledger._store._connected().execute("PRAGMA busy_timeout").fetchone() == (0,)


def test_a_ledger_that_is_opened_twice_here_is_still_held_against_others(tmp_path: Path) -> None:
    """Whoever is the last to close a file takes its log away. A process that opens and closes the file as such loses
    its locks, so that another one takes itself for the last: what is granted then would be written nowhere.
    """
    path = tmp_path / "ledger"
    Ledger.open(path, **ABOUT).close()
    code = (
        "import sqlite3, sys; a = sqlite3.connect(sys.argv[1]); print(*a.execute('SELECT number FROM head')); a.close()"
    )

    def others_see() -> str:
        return subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True).stdout

    with Ledger.open(path, **ABOUT) as ledger, Ledger.open(path, **ABOUT):
        assert others_see() == "(0,)\n"
        ledger.reserve(TENTH, question=question(1), description="x")
        assert others_see() == "(1,)\n"


def test_a_file_that_a_crash_left_shorter_than_it_says_is_a_ledger(tmp_path: Path) -> None:
    """The first page is copied from the log first; it counts pages that only the log has by then."""
    path, copy = tmp_path / "ledger", tmp_path / "copy"
    Ledger.open(path, **ABOUT).close()
    with Ledger.open(path, **ABOUT) as ledger:
        for number in range(20):
            ledger.seal(
                ledger.reserve(PURE.cost(epsilon=0.01), question=question(number), description="x"), b"x" * 5000
            )
        for end in ("", "-wal"):
            shutil.copy(tmp_path / f"ledger{end}", tmp_path / f"copy{end}")
    page = path.read_bytes()[:4096]
    assert int.from_bytes(page[28:32]) * 4096 == path.stat().st_size > copy.stat().st_size
    with copy.open("r+b") as file:
        file.write(page)
    with Ledger.inspect(copy) as found:
        last = found.verify()
        assert last is not None
        assert last.number == 40


def test_nobody_is_told_before_others_can_see_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger"

    def asked(ledger: Ledger, number: int) -> bool:
        entry = ledger.reserve(TENTH, question=question(number), description="x")
        other = sqlite3.connect(path)
        try:
            return other.execute("SELECT hash FROM entries WHERE number = ?", (entry.number,)).fetchone() == (
                entry.hash,
            )
        finally:
            other.close()

    with Ledger.open(path, **ABOUT) as ledger:
        assert together(ledger, [lambda n=n: asked(ledger, n) for n in range(8)]) == [True] * 8


def test_who_reads_does_not_wait_for_who_writes(tmp_path: Path) -> None:
    found = []
    with Ledger.open(tmp_path / "ledger", **ABOUT) as ledger:
        ledger.reserve(TENTH, question=question(1), description="x")
        with ledger._store.writing() as transaction:
            transaction.append(
                state=State.RESERVED, question=question(2), cost=TENTH, description="y", spent=TENTH + TENTH
            )
            reader = threading.Thread(target=lambda: found.append(ledger.charged))
            reader.start()
            reader.join(60)
        assert (found, ledger.charged) == ([TENTH], TENTH + TENTH)


def test_one_that_fails_after_it_wrote_leaves_nothing_of_it(place: Any) -> None:
    with Ledger.open(place, **ABOUT) as ledger:

        def wrong() -> None:
            def work(transaction: Any) -> None:
                spent = transaction.spent()
                transaction.append(
                    state=State.RESERVED, question=question(99), cost=TENTH, description="x", spent=spent
                )
                raise InvalidParameter("work", 1, "is wrong in this test")

            ledger._store.write(work)

        found = together(ledger, [*asks(ledger, 2), wrong, *asks(ledger, 1)])
        assert sum(isinstance(each, InvalidParameter) for each in found) == 1
        assert question(99) not in {each.question for each in ledger.entries()}
        newest = ledger.verify()
        assert newest is not None
        assert newest.number == 3
