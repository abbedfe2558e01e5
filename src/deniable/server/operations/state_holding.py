"""Who uses the state of a server: its processes, all at the same time, or one command that changes who the server is.

Each process that serves holds a lock on the folder `state`, which it shares with the others, and one in a shared
database, where servers on other machines see it. `deniable rotate` and `deniable moved` hold both alone. A process that
is killed lets go. A lock can be lost, with the connection to a database for example. So each process also looks whether
its key is still the one of the catalogue: who cannot sign checkpoints must not answer, because nobody would see that a
copy from before the answer was put back.
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
"""Names the lock in a database that others use as well."""

_LOG: Final = logging.getLogger("deniable.server")
_FRESH: Final = 1.0
"""Seconds after which it is read again whose key the catalogue knows."""


@contextmanager
def serving(state: Path, catalogue: Catalogue | None = None) -> Iterator[None]:
    """Hold the state together with whoever else serves it. LedgerUnavailable while a command changes it."""
    with ExitStack() as held:
        if not held.enter_context(tried_together(_place(state))) or not _in_database(
            held, catalogue, "pg_try_advisory_lock_shared"
        ):
            fact = "the key or the home of this server is being changed by another command"
            raise LedgerUnavailable(fact, "start it when `deniable rotate` or `deniable moved` has ended")
        yield


@contextmanager
def stopped(state: Path, catalogue: Catalogue, command: str) -> Iterator[None]:
    """Hold the state alone. LedgerUnavailable while a server runs on it."""
    with ExitStack() as held:
        if not held.enter_context(tried_alone(_place(state))) or not _in_database(
            held, catalogue, "pg_try_advisory_lock"
        ):
            fact = f"a server runs on this state, and `deniable {command}` needs it stopped; nothing was changed"
            raise LedgerUnavailable(fact, "stop every process of the server, then do it again")
        yield


@final
class StateWatch:
    """Whether the key that a process began with is still the server's, as `look` says. Threads may share it."""

    def __init__(self, look: Callable[[], bool]) -> None:
        self._look = look
        self._when, self._holds = time.monotonic(), True

    def holds(self) -> bool:
        """Read at most once a second; a key that was replaced once is never used again."""
        if self._holds and time.monotonic() - self._when > _FRESH:
            self._holds, self._when = self._look(), time.monotonic()
            if not self._holds:
                _LOG.error("%s", REPLACED)
        return self._holds

    def check(self) -> None:
        """Problem `not_ready` if it was replaced."""
        if not self.holds():
            raise Problem("not_ready", REPLACED)


def _place(state: Path) -> Path:
    return state / "serving.lock"


def _in_database(held: ExitStack, catalogue: Catalogue | None, function: str) -> bool:
    """The same in a shared database: of its session, which lasts until the connection is closed."""
    if catalogue is None or catalogue.file is not None:
        return True
    connection = held.enter_context(catalogue.reading())
    held.callback(connection.invalidate)  # else the pool would keep the session, and the lock with it
    got = bool(connection.exec_driver_sql(f"SELECT {function}({_SERVING})").scalar_one())
    connection.commit()
    return got
