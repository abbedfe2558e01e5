"""Runs the few statements of every question directly on the database driver.

SQLAlchemy's own work for such a statement would take several times as long as the statement.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final, final

from sqlalchemy import Engine
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import PoolProxiedConnection

from deniable.server.problems import Problem

AWAY: Final = (OperationalError, InternalError, InterfaceError, PoolTimeout)
"""Exceptions of a database that is full, failing or unreachable."""


@final
class Quick:
    """Runs statements on connections of SQLAlchemy's pool. Threads may share it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        driver = engine.dialect.loaded_dbapi
        self._errors, self._away = driver.Error, (driver.OperationalError, driver.InternalError, driver.InterfaceError)
        self._name = ":{}" if driver.paramstyle == "qmark" else "%({})s"
        self._written: dict[str, str] = {}
        # SQLite has one writer at a time, and a second one polls. A lock wakes it at once, so one connection is enough.
        # It stays checked out: returning it to the pool would take as long as a statement.
        self._keeps = engine.dialect.name == "sqlite"
        self._turn = threading.Lock() if self._keeps else nullcontext()
        self._kept: PoolProxiedConnection | None = None

    @contextmanager
    def cursor(self) -> Iterator[Callable[[str, dict[str, Any]], Any]]:
        """One transaction. Yields a function that runs a statement with named values. Raises Problem if it fails."""
        with self._turn:
            yield from self._transaction()

    def close(self) -> None:
        """Close every connection."""
        with self._turn:
            if self._kept is not None:
                self._kept.close()
                self._kept = None
            self.engine.dispose()

    def _transaction(self) -> Iterator[Callable[[str, dict[str, Any]], Any]]:
        lent, self._kept = self._kept, None
        try:
            if lent is None:
                lent = self.engine.raw_connection()
            cursor = lent.cursor()

            def run(statement: str, values: dict[str, Any]) -> Any:
                written = self._written.get(statement)
                if written is None:
                    marks = {name: self._name.format(name) for name in values}
                    written = self._written[statement] = statement.format(**marks)
                cursor.execute(written, values)
                return cursor

            yield run
            lent.commit()
            if self._keeps:
                lent, self._kept = None, lent
        except (*AWAY, self._errors) as error:
            if lent is not None:
                lent.invalidate()  # its state is unknown, so it must not be used again
            if isinstance(error, (*AWAY, *self._away)):
                raise unreachable() from None
            raise
        finally:
            if lent is not None:
                lent.close()


def unreachable() -> Problem:
    """The problem for all of `AWAY`, without the driver's message."""
    return Problem("ledger_unavailable", "the catalogue cannot be read or written now; try again later")
