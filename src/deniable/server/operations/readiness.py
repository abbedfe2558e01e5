"""Readiness: whether this server can answer questions now, for a load balancer.

`/health` only says that the process runs. `/ready` checks the database, the disk, the key and the ledgers, at most once
a second. One valid ledger is enough, because questions to its datasets can be answered.

Engines are checked in the background, and `/ready` reports the last result. The check restarts an engine that died, so
`/ready` fails only for an engine that cannot be started. Whether an engine died, and how long it takes to start, may
depend on the rows of a table; so neither is visible here.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, final

from deniable.server.curator import Curator
from deniable.server.datasets.forgotten_spending import any_ledger
from deniable.server.operations.security_events import logged

_FRESH: Final = 1.0
_PATIENCE: Final = 5.0


@final
class _Look:
    """Runs checks one after the other, in a thread of its own, so that they do not wait for questions or reads."""

    def __init__(self, name: str, checks: dict[str, Callable[[], bool]]) -> None:
        self._checks = checks
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._looking: asyncio.Future[list[str]] | None = None
        self._when = 0.0
        self._at = next(iter(checks))
        self.found: list[str] | None = None

    def close(self) -> None:
        self._pool.shutdown(wait=False)

    def begun(self) -> asyncio.Future[list[str]]:
        """The result of a run of the checks: the running one, one that ended less than a second ago, or a new one."""
        if self._looking is None or (self._looking.done() and time.monotonic() - self._when > _FRESH):
            self._looking = asyncio.get_running_loop().run_in_executor(self._pool, self._look)
        return asyncio.shield(self._looking)

    async def ended(self) -> list[str]:
        """The names of failed checks. A check that takes more than `_PATIENCE` seconds counts as failed."""
        try:
            return await asyncio.wait_for(self.begun(), _PATIENCE)
        except TimeoutError:
            return [self._at]

    def _look(self) -> list[str]:
        found = []
        for name, check in self._checks.items():
            self._at = name
            if not _holds(check):
                found.append(name)
        for missing in sorted(set(found) - set(self.found or ())):
            logged("not_ready", check=missing)
        self.found, self._when = found, time.monotonic()
        return found


@final
class Readiness:
    """Runs all checks; results are at most a second old; the results of engines may be a little older."""

    def __init__(self, curator: Curator) -> None:
        self._curator = curator
        checks = {
            "database": self._database,
            "disk": self._disk,
            "key": self._curator.watch.holds,
            "ledgers": self._ledgers,
        }
        self._rest, self._engines = _Look("ready", checks), _Look("ready-engines", {"engine": self._engine})

    def close(self) -> None:
        """Stop the threads."""
        self._rest.close()
        self._engines.close()

    async def failed(self) -> list[str]:
        """The names of failed checks, empty if the server is ready. Only the first call waits for the engines."""
        newest = self._engines.begun()
        engines = await newest if self._engines.found is None else self._engines.found
        return sorted([*await self._rest.ended(), *engines])

    def _database(self) -> bool:
        return self._curator.catalogue.requests.writable()

    def _disk(self) -> bool:
        settings = self._curator.settings
        for folder in {settings.state, settings.checkpoints or settings.state}:
            there = folder if folder.exists() else settings.state
            if shutil.disk_usage(there).free < settings.free_space:
                return False
        with tempfile.TemporaryFile(dir=settings.state) as file:
            os.write(file.fileno(), bytes(4096))
        return True

    def _ledgers(self) -> bool:
        curator = self._curator
        return any_ledger(curator.settings, curator.catalogue, curator.datasets.witness)

    def _engine(self) -> bool:
        found = [
            each.revived() for each in self._curator.datasets.engines()
        ]  # a list: all engines are checked, also after one failed
        return all(found)


def _holds(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except Exception:  # drivers and file systems raise many kinds; each means that the check failed
        return False
