"""A way to the catalogue's database past SQLAlchemy, for the few statements that are run for every question: what
SQLAlchemy does around them would take several times as long as they do.
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
"""What is raised where the database is full, failing or away."""


@final
class Quick:
    """A way to the database past SQLAlchemy, which lends its connections only."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        driver = engine.dialect.loaded_dbapi
        self._errors, self._away = driver.Error, (driver.OperationalError, driver.InternalError, driver.InterfaceError)
        self._name = ":{}" if driver.paramstyle == "qmark" else "%({})s"
        self._written: dict[str, str] = {}
        # SQLite lets one write at a time, and who meets another sleeps for a while; here who waits is woken. So one
        # connection is enough, and it is kept: to lend it and take it back takes as long as a statement does.
        self._keeps = engine.dialect.name == "sqlite"
        self._turn = threading.Lock() if self._keeps else nullcontext()
        self._kept: PoolProxiedConnection | None = None

    @contextmanager
    def cursor(self) -> Iterator[Callable[[str, dict[str, Any]], Any]]:
        """One transaction; what is yielded runs a statement in it."""
        with self._turn:
            yield from self._transaction()

    def close(self) -> None:
        """Let go of every connection."""
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
                lent.invalidate()  # whatever state it is in, nobody gets it again
            if isinstance(error, (*AWAY, *self._away)):
                raise unreachable() from None
            raise
        finally:
            if lent is not None:
                lent.close()


def unreachable() -> Problem:
    """The problem of all of these, without their words."""
    return Problem("ledger_unavailable", "the catalogue cannot be read or written")
