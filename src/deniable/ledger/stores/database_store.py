"""Ledgers in a shared database: Postgres, or SQLite by a URL. One database contains many ledgers.

The tables are `deniable_ledgers` (the heading and the head of each chain), `deniable_names` (which dataset spends from
which ledger) and `deniable_entries`. Alembic makes and upgrades them; see `migrations`.

- One writer: a writing transaction first locks the row with the head of the chain (SELECT ... FOR UPDATE; in SQLite,
  BEGIN IMMEDIATE), and moves the head only if it is still where the transaction read it. Under READ COMMITTED, reads
  after the lock see the newest entries. Under REPEATABLE READ and SERIALIZABLE, Postgres refuses the lock to a
  transaction that began before the last write; the store then repeats it from the start.
- Durability: `synchronous_commit` is switched on if it was off.

Needs the extra `postgres`.
"""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from sqlite3 import Error as SQLiteError
from typing import Any, Final, final

from deniable.errors import (
    NOTHING,
    DeniableError,
    InvalidOperation,
    InvalidParameter,
    LedgerDamaged,
    LedgerUnavailable,
    MissingExtra,
    UnreadableRecord,
)
from deniable.ledger import migrations
from deniable.ledger.entries import Entry, Heading, State
from deniable.ledger.stores.entry_rows import COLUMNS, RESTORE, as_row, genesis_of
from deniable.ledger.stores.entry_schema import ENTRY_COLUMNS, ColumnType
from deniable.ledger.stores.file_creation import check_whole, make_file
from deniable.ledger.stores.ledger_places import check_folder, check_names, identity, resolved
from deniable.ledger.stores.sqlite_store import APPLICATION, flushed, needs_all, ours
from deniable.ledger.stores.store import ChainHead, Find, Placed, Store, Transaction, Waiting

try:
    import sqlalchemy as sa
    from sqlalchemy import event
except ImportError as error:
    raise MissingExtra(error.name or "sqlalchemy", "postgres") from None

__all__ = ["DatabaseStore", "held"]


_PATIENCE: Final = 30.0
"""Seconds to wait for another writer, as for SQLite files."""

_VANISHED: Final = 60
"""Seconds after which Postgres ends the transaction of a client that does not respond, and releases its lock."""

_CONNECTIONS: Final = 8
"""The most connections of one process to one database. Writers of one ledger wait for each other in any case."""

_REVISION: Final = "0002"
_VERSION_TABLE: Final = "deniable_ledger_version"

_METADATA: Final = sa.MetaData()
LEDGERS: Final = sa.Table(
    "deniable_ledgers",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    *(sa.Column(name, sa.Text) for name in ("serial", "family", "heading", "home", "secret")),
    sa.Column("number", sa.BigInteger),
    sa.Column("hash", sa.Text),
)
NAMES: Final = sa.Table("deniable_names", _METADATA, sa.Column("name", sa.Text), sa.Column("ledger", sa.Integer))
_TYPES: Final[Mapping[ColumnType, Any]] = {
    ColumnType.INTEGER: sa.BigInteger,
    ColumnType.TEXT: sa.Text,
    ColumnType.BYTES: sa.LargeBinary,
}
ENTRIES: Final = sa.Table(
    "deniable_entries",
    _METADATA,
    sa.Column("ledger", sa.Integer),
    *(sa.Column(each.name, _TYPES[each.type]) for each in ENTRY_COLUMNS),
)

# Statements are built once, so that SQLAlchemy finds their SQL in its cache.
_E = ENTRIES.c
_HEAD = sa.select(LEDGERS.c.number, LEDGERS.c.hash).where(LEDGERS.c.id == sa.bindparam("ledger"))
_LINK_OF = sa.select(_E.previous).where(_E.ledger == sa.bindparam("ledger"), _E.number == sa.bindparam("number"))
_LOCK = sa.select(LEDGERS.c.number).where(LEDGERS.c.id == sa.bindparam("ledger")).with_for_update()


def _finding(find: Find) -> sa.TextualSelect:
    """The statement of a query. Parameters and columns have explicit types, because Postgres needs them."""
    text = sa.text(f"SELECT {', '.join(COLUMNS)} FROM {ENTRIES.name} WHERE ledger = :ledger AND {find.value}")
    known: dict[str, sa.BindParameter[Any]] = {
        "ledger": sa.bindparam("ledger", type_=sa.Integer),
        "after": sa.bindparam("after", type_=sa.BigInteger),
        "most": sa.bindparam("most", type_=sa.Integer),
        "number": sa.bindparam("number", type_=sa.BigInteger),
        "accounts": sa.bindparam("accounts", type_=sa.Text, expanding=True),
    }
    used = [known.get(name, sa.bindparam(name, type_=sa.Text)) for name in text.compile().params]
    return text.bindparams(*used).columns(*(_E[name] for name in COLUMNS))


_FINDS: Final = {find: _finding(find) for find in Find}
_MOVE = (
    sa.update(LEDGERS)
    .where(LEDGERS.c.id == sa.bindparam("ledger"))
    .where(LEDGERS.c.number == sa.bindparam("old_number"), LEDGERS.c.hash == sa.bindparam("old_hash"))
    .values(number=sa.bindparam("new_number"), hash=sa.bindparam("new_hash"))
)
_ADD = sa.insert(ENTRIES)


@final
class _DatabaseTransaction(Transaction):
    def __init__(self, connection: sa.Connection, ledger: int, genesis: str, placed: Placed) -> None:
        super().__init__(genesis, placed)
        self._connection = connection
        self._ledger = ledger

    @property
    def head(self) -> ChainHead:
        row = self._connection.execute(_HEAD, {"ledger": self._ledger}).first()
        if row is None or not isinstance(row[0], int) or row[0] < 0:
            raise LedgerDamaged(None, "the head of the chain is missing", RESTORE)
        return ChainHead(*row)

    def link_of(self, number: int) -> object:
        return self._connection.execute(_LINK_OF, {"ledger": self._ledger, "number": number}).scalar()

    def _rows(self, find: Find, values: Mapping[str, Any]) -> AbstractContextManager[Iterable[Sequence[Any]]]:
        return closing(self._connection.execute(_FINDS[find], {"ledger": self._ledger, **values}))

    def own(self, name: str) -> str | None:
        found: str | None = self._connection.execute(
            sa.select(LEDGERS.c[name]).where(LEDGERS.c.id == self._ledger)
        ).scalar()
        return found

    def keep(self, name: str, value: str) -> None:
        self._connection.execute(sa.update(LEDGERS).where(LEDGERS.c.id == self._ledger).values({name: value}))

    def part(self) -> AbstractContextManager[object]:
        return self._connection.begin_nested()

    def check_file(self) -> None:
        kept = self._connection.execute(sa.select(NAMES.c.name).where(NAMES.c.ledger == self._ledger)).scalars()
        first = self._connection.execute(sa.select(LEDGERS.c.heading).where(LEDGERS.c.id == self._ledger)).scalar()
        if set(kept) != {Heading.read(first or "").dataset, *(each.name for each in self.links())}:
            raise LedgerDamaged(None, "the table of names differs from the names in the chain", RESTORE)
        if self._connection.dialect.name == "sqlite":
            result = self._connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
            if result != "ok":
                raise LedgerDamaged(None, "is damaged", RESTORE)

    def _insert(self, entries: Sequence[Entry], head: ChainHead) -> None:
        rows = [dict(zip(COLUMNS, as_row(entry), strict=True)) for entry in entries]
        self._connection.execute(_ADD, [{"ledger": self._ledger, **row} for row in rows])
        names = [{"name": each.name, "ledger": self._ledger} for each in entries if each.state is State.LINKED]
        if names:
            self._connection.execute(sa.insert(NAMES), names)
        old = {"ledger": self._ledger, "old_number": head.number, "old_hash": head.hash}
        new = {"new_number": entries[-1].number, "new_hash": entries[-1].hash}
        moved = self._connection.execute(_MOVE, old | new)
        if moved.rowcount != 1:
            raise LedgerUnavailable("another process wrote to this ledger at the same time", "try again")


@final
class DatabaseStore(Store):
    """A ledger in a database, which may contain other ledgers."""

    def __init__(self, url: str, *, to_read: bool = False) -> None:
        self._url = url
        self._pool: _Pool | None = _pool(url)
        self._title = self._pool.title
        self._ledger = 0
        self._genesis = ""
        super().__init__(to_read=to_read)
        _STORES.add(self)

    @property
    def path(self) -> Path | None:
        return None

    @property
    def file(self) -> Path | None:
        return self._open_pool().file

    @property
    def place(self) -> str | None:
        return self._url

    @property
    def title(self) -> str:
        return self._title

    def open(self, new: Heading | None, *, dataset: str | None, family: str | None) -> Heading:
        pool = self._open_pool()
        with _our_errors(self._title):
            pool.prepare(may_create=new is not None, writes=not self._to_read)
            for _ in range(3):  # another process may make the same ledger meanwhile
                found = self._found(pool, dataset, family)
                if found is not None:
                    self._ledger, heading = found
                    self._genesis = genesis_of(heading)
                    return Heading.read(heading)
                if new is None:
                    raise needs_all("this database does not contain the ledger", to_read=self._to_read)
                self._make(pool, new)
        raise LedgerUnavailable(f"the ledger in {self._title} could not be made", "try again")

    def _found(self, pool: _Pool, dataset: str | None, family: str | None) -> tuple[int, str] | None:
        known = sa.select(LEDGERS.c.id, LEDGERS.c.heading)
        with pool.begin(writes=False) as connection:
            if dataset is not None:
                named = known.join(NAMES, NAMES.c.ledger == LEDGERS.c.id).where(NAMES.c.name == dataset)
                row = connection.execute(named).first()
                if row is None and family is not None:
                    row = connection.execute(known.where(LEDGERS.c.family == family)).first()
                return None if row is None else (row[0], row[1])
            which = known if family is None else known.where(LEDGERS.c.family == family)
            rows = connection.execute(which.limit(2)).all()
        if len(rows) > 1:
            raise InvalidParameter(
                "dataset", None, "must be given: this database has several ledgers", 'write dataset="visits"'
            )
        return (rows[0][0], rows[0][1]) if rows else None

    def _make(self, pool: _Pool, new: Heading) -> None:
        row = {"serial": new.serial, "family": new.family, "heading": new.text(), "number": 0, "hash": new.genesis()}
        try:
            with pool.begin(writes=True) as connection:
                made = connection.execute(sa.insert(LEDGERS).returning(LEDGERS.c.id), row).scalar_one()
                connection.execute(sa.insert(NAMES), {"name": new.dataset, "ledger": made})
        except sa.exc.IntegrityError:
            return  # another process has made it
        except sa.exc.OperationalError as error:
            if _state(error) not in _AGAIN:
                raise

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        with _our_errors(self._title), self._open_pool().begin(writes=False) as connection:
            yield _DatabaseTransaction(connection, self._ledger, self._genesis, self._placed)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        pool = self._open_pool()
        with _our_errors(self._title), pool.begin(writes=True) as connection:
            if connection.dialect.name != "sqlite":  # in SQLite the transaction itself is the lock
                connection.execute(_LOCK, {"ledger": self._ledger})
            yield _DatabaseTransaction(connection, self._ledger, self._genesis, self._placed)

    def flush(self) -> None:
        pool = self._open_pool()
        if pool.file is not None:
            with _our_errors(self._title), pool.engine.connect() as connection:
                driver = connection.connection.driver_connection
                assert driver is not None
                flushed(driver.execute)

    def _keep(self, waiting: Sequence[Waiting]) -> ChainHead | None:
        deadline: float | None = None
        while True:
            try:
                with self.writing() as transaction:
                    transaction.follow(self._newest_passed)
                    transaction.do(waiting)
                transaction.remember(transaction.written)
                return transaction.reached
            except _Conflict:
                deadline = deadline or time.monotonic() + _PATIENCE
                if time.monotonic() > deadline:
                    raise _busy(self._title) from None
            time.sleep(random.uniform(0.001, 0.01))  # at random, so that two writers do not collide again

    def _open_pool(self) -> _Pool:
        if self._pool is None:
            raise InvalidOperation("this ledger is closed; open it again")
        return self._pool

    def close(self) -> None:
        self._pool = None


def held(url: str) -> list[Heading]:
    """The headings of all ledgers in a database."""
    pool = _pool(url)
    with _our_errors(pool.title):
        pool.prepare(may_create=True, writes=False)
        with pool.begin(writes=False) as connection:
            found = connection.execute(sa.select(LEDGERS.c.heading).order_by(LEDGERS.c.id)).scalars().all()
    return [Heading.read(each) for each in found]


# --- connections ------------------------------------------------------------------------------------------------------


@final
class _Pool:
    """The connections of this process to one database, shared by all ledgers in it."""

    def __init__(self, url: str) -> None:
        try:
            parsed = sa.make_url(url)
            schemes = {"postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg", "sqlite": "sqlite"}
            scheme = schemes.get(parsed.drivername, parsed.drivername)
            if scheme not in schemes.values() or (scheme == "sqlite" and parsed.database in (None, "", ":memory:")):
                raise ValueError
        except (sa.exc.ArgumentError, ValueError):
            rule = "must be a URL: postgresql://user:password@host/database, or sqlite:///file"
            raise InvalidParameter("place", NOTHING, rule) from None
        parsed = parsed.set(drivername=scheme)
        self.title = repr(parsed.render_as_string(hide_password=True))
        self.file = resolved(parsed.database or "") if scheme == "sqlite" else None
        if self.file is not None:
            parsed = parsed.set(database=str(self.file))
        self._seen: tuple[int, int, int | None] | None = None
        settings: dict[str, Any] = {"pool_size": _CONNECTIONS, "max_overflow": 0, "pool_timeout": 10 * _PATIENCE}
        if self.file is None:
            settings |= {"pool_pre_ping": True, "connect_args": {"connect_timeout": 10}}
        else:
            settings |= {"connect_args": {"timeout": _PATIENCE, "check_same_thread": False}}
        try:
            self.engine = sa.create_engine(parsed, **settings)
        except ImportError as error:
            raise MissingExtra(error.name or "psycopg", "postgres") from None
        event.listen(self.engine, "connect", _set_up_postgres if self.file is None else _set_up_sqlite)
        if self.file is not None:
            event.listen(self.engine, "begin", _begin_sqlite)

    @contextmanager
    def begin(self, *, writes: bool) -> Iterator[sa.Connection]:
        """A transaction. Without `writes`, a view that does not change."""
        self._same_file(writes=writes)
        options: dict[str, Any] = {"deniable_writes": writes}
        if self.file is None and not writes:
            options["isolation_level"] = "REPEATABLE READ"
        with self.engine.connect() as connection:
            asked = connection.execution_options(**options)
            with asked.begin():
                self._same_file(writes=writes)  # the file may have been renamed while we waited for the lock
                yield asked

    def prepare(self, *, may_create: bool, writes: bool) -> None:
        """Make the tables, or upgrade them, if needed."""
        if self.file is not None:
            check_whole(self.file)
            if not self.file.exists():
                if not may_create:
                    raise needs_all("the database does not exist", to_read=not writes)
                check_folder(self.file)
                make_file(self.file, lambda connection: connection.execute("PRAGMA journal_mode = WAL").close())
            if self.file.is_file() and writes:
                check_names(self.file, os.stat(self.file))  # before SQLite opens a second log for a second name
        with self.engine.connect() as connection:
            if self.file is not None:
                found = connection.exec_driver_sql("PRAGMA application_id").scalar()
                connection.rollback()
                if found == APPLICATION:  # more tables in the file of one ledger would be a second budget
                    rule = f"{str(self.file)!r} is the ledger of one dataset, not a database of ledgers"
                    raise UnreadableRecord(f"{rule}; open it by its path, without sqlite:///")
            found = migrations.revision(connection.execution_options(deniable_writes=False), _VERSION_TABLE)
            connection.rollback()
        if found is None or found < _REVISION:
            self._upgrade()
        elif found > _REVISION:
            rule = f"the ledgers in {self.title} have revision {found}, newer than {_REVISION}"
            raise UnreadableRecord(f"{rule}; update deniable to open them")
        if self.file is not None and self._seen is None:
            self._seen = identity(self.file, os.stat(self.file))
        self._same_file(writes=writes)

    def _upgrade(self) -> None:
        options: dict[str, Any] = {"deniable_writes": True}
        if self.file is None:
            options["isolation_level"] = "READ COMMITTED"  # after the lock we must see tables that others have made
        with self.engine.connect() as connection:
            asked = connection.execution_options(**options)
            with asked.begin():
                if self.file is None:
                    asked.execute(sa.select(sa.func.pg_advisory_xact_lock(0x64656E79)))
                migrations.upgrade(asked, steps=migrations.LEDGERS, version_table=_VERSION_TABLE)

    def _same_file(self, *, writes: bool) -> None:
        """Raise LedgerUnavailable if the path is now another file: entries would be lost, and spent twice."""
        if self.file is None or self._seen is None:
            return
        try:
            stat = os.stat(self.file)
        except FileNotFoundError:
            stat = None
        if stat is None or identity(self.file, stat) != self._seen:
            raise LedgerUnavailable(f"the database {self.title} was moved or replaced", "close it and open it again")
        if writes:
            check_names(self.file, stat)

    def __del__(self) -> None:
        if hasattr(self, "engine"):
            self.engine.dispose()


def _set_up_postgres(connection: Any, _: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = {int(_PATIENCE * 1000)}")
        cursor.execute(f"SET idle_in_transaction_session_timeout = {_VANISHED * 1000}")
        # "on" is the weakest setting that survives a crash of the database; stronger settings are kept.
        cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
    connection.commit()


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # we begin transactions ourselves, see _begin_sqlite
    for pragma in (
        *("journal_mode = WAL", "synchronous = FULL", "fullfsync = ON", "checkpoint_fullfsync = ON"),
        *("trusted_schema = OFF", "foreign_keys = ON"),
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("deniable_writes", True)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


_POOLS: Final = weakref.WeakValueDictionary[str, _Pool]()
_STORES: Final = weakref.WeakSet[DatabaseStore]()
_making = threading.Lock()


def _pool(url: str) -> _Pool:
    with _making:
        found = _POOLS.get(url)
        if found is None:
            found = _POOLS[url] = _Pool(url)
        return found


def _after_fork_in_child() -> None:
    """Forget all connections in a child process, without closing them: they belong to the parent."""
    global _making
    _making = threading.Lock()
    for pool in list(_POOLS.values()):
        pool.engine.dispose(close=False)
    for store in list(_STORES):
        store.alone()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


# --- errors -----------------------------------------------------------------------------------------------------------

_AGAIN: Final = ("40001", "40P01")
"""Serialization failure and deadlock: Postgres has rolled back, and the transaction can be repeated."""


@final
class _Conflict(LedgerUnavailable):
    """The transaction was rolled back because of another writer, and must be repeated."""


@contextmanager
def _our_errors(title: str) -> Iterator[None]:
    """Translate errors of the database by their codes. Their texts are dropped: they may quote data."""
    ledger = f"the ledger in {title}"
    try:
        yield
    except sa.exc.TimeoutError:
        raise _busy(title) from None
    except sa.exc.DBAPIError as error:
        raise _ours(error, ledger) from None
    except SQLiteError as error:  # while connecting
        raise ours(getattr(error, "sqlite_errorcode", 1), ledger) from None
    except OSError as error:
        raise LedgerUnavailable(
            f"{ledger} cannot be opened ({os.strerror(error.errno or 0)})", "check the file"
        ) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "psycopg":
            raise
        # While connecting: SQLAlchemy does not wrap errors that `_set_up_postgres` raises.
        raise LedgerUnavailable(f"{ledger} cannot be reached", "try again") from None


def _state(error: sa.exc.DBAPIError) -> str:
    """The SQLSTATE of an error of Postgres: five characters; empty for other errors."""
    return getattr(error.orig, "sqlstate", None) or ""


def _busy(title: str) -> LedgerUnavailable:
    return LedgerUnavailable(
        f"the ledger in {title} is busy: other processes have used it for {_PATIENCE:g} s", "try again"
    )


def _ours(error: sa.exc.DBAPIError, ledger: str) -> DeniableError:
    if isinstance(error.orig, SQLiteError):
        return ours(getattr(error.orig, "sqlite_errorcode", 1), ledger)
    state = _state(error)
    if state in _AGAIN:
        return _Conflict(f"another process changed {ledger} at the same time", "try again")
    if state == "55P03":
        return LedgerUnavailable(f"{ledger} is busy: another process has locked it for {_PATIENCE:g} s", "try again")
    if state in ("25006", "42501"):
        return LedgerUnavailable(f"{ledger} cannot be opened for writing", "give this user the right to write")
    if state in ("53100", "53200", "58030"):
        remedy = "make room; earlier charges stay, and this request must not be answered"
        return LedgerUnavailable(f"{ledger} could not be written: the disk is full or failing", remedy)
    if state in ("XX001", "XX002"):
        return LedgerDamaged(None, "is damaged", RESTORE)
    if not state or state[:2] in ("08", "28", "3D", "53", "57"):
        remedy = "start the database or check the URL; this request may have been charged, and must not be answered"
        return LedgerUnavailable(f"{ledger} cannot be reached", remedy)
    return LedgerUnavailable(f"{ledger} cannot be used (the database's code {state})", RESTORE)
