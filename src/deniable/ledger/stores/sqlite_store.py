"""Ledgers in SQLite: in a file, or in memory as long as the process lives.

- Durability: a write-ahead log with full synchronisation. A transaction that has returned survives a crash of the
  process and of the machine, provided that the disk really writes what it reports as written.
- One writer: every writing transaction begins with BEGIN IMMEDIATE, and moves the head of the chain only if it is still
  where the transaction read it.
- Amounts are decimal text: they have up to 38 digits, an SQLite integer has 18, and floats would round.
- Threads: a process has two connections to a file, one for writing and one for reading, each used by one thread at a
  time.
- Forks: a connection must not be used in two processes. Both are closed before every fork, and parent and child open
  new ones when they need them.
- Network file systems are not supported, because their locks are unreliable.
- Every transaction checks that the file still has one name only, and is the same file (`ledger_places`).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import quote

from deniable.errors import (
    NOTHING,
    DeniableError,
    InvalidOperation,
    InvalidParameter,
    LedgerDamaged,
    LedgerUnavailable,
    UnreadableRecord,
)
from deniable.ledger.entries import Entry, Heading
from deniable.ledger.stores.entry_rows import COLUMNS, RESTORE, as_row, genesis_of
from deniable.ledger.stores.entry_schema import sqlite_additions, sqlite_statements
from deniable.ledger.stores.file_creation import check_whole, emptied, make_file
from deniable.ledger.stores.ledger_places import (
    can_be_written,
    check_folder,
    check_length,
    check_names,
    identity,
    only_readable,
)
from deniable.ledger.stores.store import ChainHead, Find, Placed, SeenChain, Store, Transaction

__all__ = ["APPLICATION", "SQLiteStore", "flushed", "needs_all", "ours"]

APPLICATION: Final = 0x64656E79
"""SQLite's application_id of a ledger file: "deny" in ASCII."""

_PATIENCE: Final = 30.0
"""Seconds to wait for other writers. A writer takes milliseconds, so only a hung process takes so long."""

_NO_WAITING: Final = "PRAGMA busy_timeout = 0"
"""After a connection is set up, only `_begin` waits for locks: it waits more efficiently than SQLite."""

VERSION: Final = 3
"""The version of the tables. Version 1 had no accounts; version 2 had neither home nor secret. An older file is
upgraded when it is next opened.
"""

_COLUMNS: Final = ", ".join(COLUMNS)
_OWN: Final = ("CREATE TABLE own (name TEXT PRIMARY KEY, value TEXT NOT NULL)",)
_SCHEMA: Final = (
    "CREATE TABLE heading (one INTEGER PRIMARY KEY CHECK (one = 1), text TEXT NOT NULL)",
    "CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL, hash TEXT NOT NULL)",
    *sqlite_statements(),
    *_OWN,
)
_STEPS: Final = {version: (*sqlite_additions(version), *_OWN) for version in (1, 2)}
"""By version of an older file: the statements that upgrade it."""


@final
class _SQLiteTransaction(Transaction):
    def __init__(self, connection: sqlite3.Connection, genesis: str, placed: Placed, seen: SeenChain) -> None:
        super().__init__(genesis, placed, seen)
        self._connection = connection

    @property
    def head(self) -> ChainHead:
        row = self._connection.execute("SELECT number, hash FROM head").fetchone()
        if row is None or not isinstance(row[0], int) or row[0] < 0:
            raise LedgerDamaged(None, "the head of the chain is missing", RESTORE)
        return ChainHead(*row)

    def link_of(self, number: int) -> object:
        row = self._connection.execute("SELECT previous FROM entries WHERE number = ?", (number,)).fetchone()
        return None if row is None else row[0]

    def _rows(self, find: Find, values: Mapping[str, Any]) -> AbstractContextManager[Iterable[Sequence[Any]]]:
        rule = find.value
        if find is Find.ABOUT:  # SQLite has no parameter for a list
            values = {f"account{at}": each for at, each in enumerate(values["accounts"])}
            rule = rule.replace(":accounts", f"({', '.join(f':{name}' for name in values)})")
        return closing(self._connection.execute(f"SELECT {_COLUMNS} FROM entries WHERE {rule}", values))

    def own(self, name: str) -> str | None:
        row = self._connection.execute("SELECT value FROM own WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def keep(self, name: str, value: str) -> None:
        self._connection.execute("INSERT OR REPLACE INTO own VALUES (?, ?)", (name, value))

    @contextmanager
    def part(self) -> Iterator[None]:
        self._connection.execute("SAVEPOINT part")
        try:
            yield
        except DeniableError:
            self._connection.execute("ROLLBACK TO part")
            raise
        finally:
            if self._connection.in_transaction:  # on a full disk SQLite has rolled everything back already
                self._connection.execute("RELEASE part")

    def check_file(self) -> None:
        if self._connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
            raise LedgerDamaged(None, "is damaged", RESTORE)

    def _insert(self, entries: Sequence[Entry], head: ChainHead) -> None:
        marks = ", ".join("?" * len(COLUMNS))
        self._connection.executemany(
            f"INSERT INTO entries ({_COLUMNS}) VALUES ({marks})", [as_row(entry) for entry in entries]
        )
        moved = self._connection.execute(
            "UPDATE head SET number = ?, hash = ? WHERE number = ? AND hash = ?",
            (entries[-1].number, entries[-1].hash, head.number, head.hash),
        )
        if moved.rowcount != 1:
            raise LedgerUnavailable("another process wrote to this ledger at the same time", "try again")


@final
class SQLiteStore(Store):
    """A ledger in an SQLite file, or in memory."""

    def __init__(self, path: Path | None, *, to_read: bool = False) -> None:
        super().__init__(to_read=to_read)
        self._path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        # In a file, readers need not wait until a writer has flushed the disk; memory has one connection only.
        self._reading = self._lock if path is None else threading.RLock()
        self._reader: sqlite3.Connection | None = None
        self._seen: dict[sqlite3.Connection, tuple[int, SeenChain]] = {}
        self._genesis = ""
        self._file: tuple[int, int, int | None] | None = None
        self._process = os.getpid()
        self._closed = False
        if path is not None:
            _FILES.add(self)

    @property
    def path(self) -> Path | None:
        return self._path

    @property
    def file(self) -> Path | None:
        return self._path

    @property
    def place(self) -> str | None:
        return None if self._path is None else str(self._path)

    def open(self, new: Heading | None, *, dataset: str | None, family: str | None) -> Heading:
        with self._lock, _our_errors(self._path):
            if self._path is not None:
                self._find(self._path, new)
            connection = self._connected()
            if self._path is not None and not _has_tables(connection):
                raise emptied(self._path)  # the journal beside it made SQLite roll back everything
            if self._path is None:
                if new is None:
                    raise needs_all("a ledger in memory always begins empty", to_read=self._to_read)
                _create(connection, new)
            heading = _heading_text(connection)
            self._genesis = genesis_of(heading)
            if not self._is_locked():
                _upgrade(connection)
            elif connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                raise self._too_old()
            if self._path is not None:
                if not self._is_locked():
                    _switch_to_log(connection)
                self._file = identity(self._path, os.stat(self._path))
                self._same_file()
                connection.execute(_NO_WAITING)
        return Heading.read(heading)

    def _find(self, path: Path, new: Heading | None) -> None:
        """Check that there is a complete ledger at this path, or make one."""
        check_length(path)
        check_whole(path)
        if not path.exists():
            if new is None:
                raise needs_all(f"{str(path)!r} does not exist", to_read=self._to_read)
            check_folder(path)
            make_file(path, lambda connection: _create(connection, new))
        if path.is_file() and not self._to_read:
            check_names(path, os.stat(path))  # before SQLite opens a second log for a second name
        _refuse_foreign(path)

    def _is_locked(self) -> bool:
        """Whether the file was opened for reading, and this process may not write it or its folder."""
        return self._to_read and self._path is not None and not can_be_written(self._path)

    def _too_old(self) -> LedgerUnavailable:
        fault = f"the ledger {str(self._path)!r} has an older format, and cannot be upgraded because it is read-only"
        return LedgerUnavailable(fault, "copy it to a folder that you may write to, and inspect the copy")

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        with self._transaction("BEGIN") as transaction:
            yield transaction

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        with self._transaction("BEGIN IMMEDIATE") as transaction:
            yield transaction

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Transaction]:
        reads = begin == "BEGIN" and self._path is not None
        with self._reading if reads else self._lock, _our_errors(self._path):
            if not self._closed and (self._reader if reads else self._connection) is None:
                self._same_file()  # otherwise we would connect to another file
            connection = self._connected(reads=reads)
            try:
                _begin(connection, begin)
            except sqlite3.Error:
                self._same_file()  # if the file was replaced, that is the better error
                raise
            try:
                self._same_file()  # the file may have been renamed while we waited for the lock
                # data_version changes when any other connection, of any process, has written.
                [version] = connection.execute("PRAGMA data_version").fetchone()
                before, seen = self._seen.pop(connection, (None, SeenChain()))
                if version != before:
                    seen = SeenChain()
                yield _SQLiteTransaction(connection, self._genesis, self._placed, seen)
                connection.execute("COMMIT")
                self._seen[connection] = version, seen
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def flush(self) -> None:
        with self._lock, _our_errors(self._path):
            flushed(self._connected().execute)

    def _connected(self, *, reads: bool = False) -> sqlite3.Connection:
        if self._closed:
            raise InvalidOperation("this ledger is closed; open it again")
        if self._path is None and self._process != os.getpid():
            raise InvalidOperation("only the process that made a ledger in memory can use it; open it with a file")
        found = self._reader if reads else self._connection
        if found is None:
            found = sqlite3.connect(
                self._uri(), timeout=_PATIENCE, isolation_level=None, check_same_thread=False, uri=True
            )
            for pragma in ("synchronous = FULL", "fullfsync = ON", "checkpoint_fullfsync = ON", "trusted_schema = OFF"):
                found.execute(f"PRAGMA {pragma}")  # the first one waits for a process that closes or recovers the file
            if not reads and self._file is not None:
                found.execute(_NO_WAITING)
            if reads:
                self._reader = found
            else:
                self._connection = found
        return found

    def _uri(self) -> str:
        if self._path is None:
            return ":memory:"
        mode = only_readable(self._path) if self._is_locked() else "mode=rw"
        return f"file:{quote(str(self._path))}?{mode}"

    def _same_file(self) -> None:
        """Raise LedgerUnavailable if the path is now another file: entries would be lost, and spent twice."""
        if self._path is None:
            return
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            found = None
        if found is None or self._file != identity(self._path, found):
            raise LedgerUnavailable(
                f"the ledger {str(self._path)!r} was moved or replaced", "close it and open it again"
            )
        if not self._to_read:
            check_names(self._path, found)

    def _disconnect(self) -> None:
        for each in (self._connection, self._reader):
            if each is not None:
                each.close()
        self._connection = self._reader = None
        self._seen.clear()

    def close(self) -> None:
        with self._lock, self._reading:
            self._disconnect()
            self._closed = True

    def __del__(self) -> None:
        self._disconnect()


# --- making and recognising files -------------------------------------------------------------------------------------


def _refuse_foreign(path: Path) -> None:
    """Raise UnreadableRecord for a file that is not a ledger, without changing it.

    SQLite reads the application_id in immutable mode, in which it neither locks nor makes files. Opening the file
    ourselves would be wrong: closing it again would drop all locks of this process on the file (POSIX), and another
    process could then remove the log of a ledger that is open here, with the charges in it.
    """
    if path.with_name(path.name + "-journal").exists():
        return  # left by a crash; SQLite must roll it back first
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)) as connection:
        try:
            # After a crash the file may be shorter than its header says: the rest is in the log, not read here.
            connection.execute("PRAGMA writable_schema = ON")
            [found] = connection.execute("PRAGMA application_id").fetchone()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_NOTADB:
                raise
            found = None
    if found != APPLICATION:
        raise UnreadableRecord(f"{str(path)!r} is not a ledger, and was not changed; name another file")


def _begin(connection: sqlite3.Connection, begin: str) -> None:
    """Begin a transaction; wait up to `_PATIENCE` seconds for other processes.

    SQLite's own waiting sleeps for longer and longer times, and often long after the lock is free; under load this was
    a large part of the time of a question. This loop tries more often.
    """
    deadline, pause = time.monotonic() + _PATIENCE, 0.0005
    while True:
        try:
            connection.execute(begin)
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(pause)
        pause = min(1.5 * pause, 0.02)


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _create(connection: sqlite3.Connection, new: Heading) -> None:
    """Make the tables in a new file, which nobody else knows yet. `_switch_to_log` comes later."""
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    for statement in _SCHEMA:
        connection.execute(statement)
    connection.execute("INSERT INTO heading VALUES (1, ?)", (new.text(),))
    connection.execute("INSERT INTO head VALUES (1, 0, ?)", (new.genesis(),))
    connection.execute("COMMIT")


def _heading_text(connection: sqlite3.Connection) -> str:
    [application], [version] = (
        connection.execute(f"PRAGMA {p}").fetchone() for p in ("application_id", "user_version")
    )
    if application != APPLICATION:
        raise UnreadableRecord("this SQLite file is not a ledger; name another file")
    if version > VERSION:
        raise UnreadableRecord(f"this ledger has format {version}, newer than {VERSION}; update deniable to open it")
    row = connection.execute("SELECT text FROM heading").fetchone()
    if row is None or not isinstance(row[0], str):
        raise LedgerDamaged(0, "is missing", RESTORE)
    text: str = row[0]
    return text


def _upgrade(connection: sqlite3.Connection) -> None:
    """Upgrade the tables of an older version, in one transaction. Entries are not changed."""
    if connection.execute("PRAGMA user_version").fetchone()[0] == VERSION:
        return
    connection.execute("BEGIN EXCLUSIVE")
    try:
        [found] = connection.execute("PRAGMA user_version").fetchone()
        if found != VERSION:  # no other process has upgraded it meanwhile
            for statement in _STEPS.get(found, ()):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _switch_to_log(connection: sqlite3.Connection) -> None:
    """Switch the write-ahead log on, once for each file. SQLite does not wait for locks here, so this loop does."""
    deadline = time.monotonic() + _PATIENCE
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def flushed(execute: Callable[[str], Any]) -> None:
    """Copy the log into the file. Waits for readers and for other processes that do the same."""
    deadline = time.monotonic() + _PATIENCE
    while execute("PRAGMA wal_checkpoint(FULL)").fetchone()[0] and time.monotonic() < deadline:
        time.sleep(0.005)


def needs_all(fact: str, *, to_read: bool = False) -> InvalidParameter:
    """The error about a ledger that does not exist, and cannot be made with the given arguments."""
    if to_read:
        return InvalidParameter("ledger", NOTHING, fact, "name an existing ledger")
    return InvalidParameter("budget", None, f"{fact}, and a new ledger needs a budget, a unit and a dataset")


# --- errors -----------------------------------------------------------------------------------------------------------


@contextmanager
def _our_errors(path: Path | None) -> Iterator[None]:
    """Translate errors of SQLite and of the system by their codes. Their texts are dropped: they may quote data."""
    ledger = "the ledger in memory" if path is None else f"the ledger {str(path)!r}"
    try:
        yield
    except sqlite3.Error as error:
        raise ours(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR), ledger) from None
    except OSError as error:
        raise LedgerUnavailable(
            f"{ledger} cannot be opened ({os.strerror(error.errno or 0)})", "check the file"
        ) from None


def ours(code: int, ledger: str) -> DeniableError:
    """The error for an error code of SQLite."""
    kind = code & 0xFF  # the primary code; the rest is detail
    if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LedgerUnavailable(f"{ledger} is busy: another process has locked it for {_PATIENCE:g} s", "try again")
    if kind in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        remedy = "make the file and its folder writable; until then nothing is answered"
        return LedgerUnavailable(f"{ledger} cannot be opened for writing", remedy)
    if kind in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        remedy = "make room; earlier charges stay, and this request must not be answered"
        return LedgerUnavailable(f"{ledger} could not be written: the disk is full or failing", remedy)
    if kind == sqlite3.SQLITE_NOTADB:
        return UnreadableRecord(f"{ledger} cannot be read: the file is not an SQLite file; name another file")
    if kind == sqlite3.SQLITE_CORRUPT:
        return LedgerDamaged(None, "is damaged", RESTORE)
    return LedgerUnavailable(f"{ledger} cannot be used (SQLite's code {code})", RESTORE)


# --- forks ------------------------------------------------------------------------------------------------------------

_FILES: Final = weakref.WeakSet[SQLiteStore]()
_held: list[SQLiteStore] = []


def _before_fork() -> None:
    """Close every connection: SQLite forbids using one in a child process, even to close it."""
    for store in list(_FILES):
        store._lock.acquire()
        store._reading.acquire()
        store._disconnect()
        _held.append(store)


def _after_fork_in_parent() -> None:
    while _held:
        store = _held.pop()
        store._reading.release()
        store._lock.release()


def _after_fork_in_child() -> None:
    while _held:
        store = _held.pop()
        store._lock, store._reading = threading.RLock(), threading.RLock()
        store.alone()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
