"""Locks on the state of a server: shared by its processes, or exclusive for a command that changes its identity.

Each serving process holds a shared lock on the folder `state`, and one in a shared database, for servers on other
machines. `deniable rotate` and `deniable moved` hold both locks exclusively. A killed process releases its locks.

A lock can be lost, for example with the connection to the database. So each process also checks whether its key is
still the one in the catalogue. A process with a replaced key must not answer: it cannot sign checkpoints, and without
them nobody would notice that an older copy of a ledger was restored.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, final

from deniable.errors import LedgerUnavailable
from deniable.server.catalogue.catalogue import Catalogue
from deniable.server.operations.file_locks import tried_alone, tried_together
from deniable.server.problems import REPLACED, Problem

_SERVING: Final = 0x64656E79_03
"""The number of the lock in Postgres; arbitrary, to differ from the locks of other programs."""

_LOG: Final = logging.getLogger("deniable.server")
_FRESH: Final = 1.0
"""Seconds for which the check of the key is cached."""


@contextmanager
def serving(state: Path, catalogue: Catalogue | None = None) -> Iterator[None]:
    """Hold the shared lock. Raises LedgerUnavailable while a command holds it exclusively."""
    with ExitStack() as held:
        if not held.enter_context(tried_together(_place(state))) or not _in_database(
            held, catalogue, "pg_try_advisory_lock_shared"
        ):
            fact = "another command is changing the key or the path of this server"
            raise LedgerUnavailable(fact, "start the server when `deniable rotate` or `deniable moved` has ended")
        yield


@contextmanager
def stopped(state: Path, catalogue: Catalogue, command: str) -> Iterator[None]:
    """Hold the exclusive lock. Raises LedgerUnavailable while a server runs."""
    with ExitStack() as held:
        if not held.enter_context(tried_alone(_place(state))) or not _in_database(
            held, catalogue, "pg_try_advisory_lock"
        ):
            fact = f"a server uses this state, and `deniable {command}` requires it to be stopped; nothing was changed"
            raise LedgerUnavailable(fact, "stop every process of the server, then run the command again")
        yield


@final
class StateWatch:
    """Checks whether this process's key is still the server's. `look` asks the catalogue. Threads may share it."""

    def __init__(self, look: Callable[[], bool]) -> None:
        self._look = look
        self._when, self._holds = time.monotonic(), True

    def holds(self) -> bool:
        """Whether the key is valid; read at most once a second. Once it was replaced, always False."""
        if self._holds and time.monotonic() - self._when > _FRESH:
            self._holds, self._when = self._look(), time.monotonic()
            if not self._holds:
                _LOG.error("%s", REPLACED)
        return self._holds

    def check(self) -> None:
        """Raise Problem `not_ready` if the key was replaced."""
        if not self.holds():
            raise Problem("not_ready", REPLACED)


def _place(state: Path) -> Path:
    return state / "serving.lock"


def _in_database(held: ExitStack, catalogue: Catalogue | None, function: str) -> bool:
    """Take an advisory lock in a shared database; whether that worked. It lasts until the connection is closed."""
    if catalogue is None or catalogue.file is not None:
        return True
    connection = held.enter_context(catalogue.reading())
    held.callback(connection.invalidate)  # otherwise the pool would keep the connection, and with it the lock
    got = bool(connection.exec_driver_sql(f"SELECT {function}({_SERVING})").scalar_one())
    connection.commit()
    return got
