"""Whether this server can answer questions now: for whoever decides where to send people.

`/health` says that the process runs. `/ready` tells what was found when somebody last looked, which happens at most
once a second, beside the requests. An engine that is gone is started again then: only one that cannot be started is
told. That one died, and how long it takes to start, may depend on who is in a table; neither can be seen here.
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
from deniable.server.events import logged

_FRESH: Final = 1.0


@final
class Readiness:
    """Looks, in a thread of its own: neither questions nor reads are in front of it."""

    def __init__(self, curator: Curator) -> None:
        self._curator = curator
        self._checks: dict[str, Callable[[], bool]] = {
            "database": self._database, "disk": self._disk, "engine": self._engine,
            "key": self._curator.watch.holds,
        }  # fmt: skip
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ready")
        self._looking: asyncio.Future[list[str]] | None = None
        self._when = 0.0
        self._found: list[str] | None = None

    def close(self) -> None:
        """Let go of the thread."""
        self._pool.shutdown(wait=False)

    async def failed(self) -> list[str]:
        """What is missing, by name; nothing if the server is ready. Waits only for the very first look."""
        if self._looking is None or (self._looking.done() and time.monotonic() - self._when > _FRESH):
            self._looking = asyncio.get_running_loop().run_in_executor(self._pool, self._look)
        return await asyncio.shield(self._looking) if self._found is None else self._found

    def _look(self) -> list[str]:
        found = [name for name, check in self._checks.items() if not _holds(check)]
        for name in sorted(set(found) - set(self._found or ())):
            logged("not_ready", check=name)
        self._found, self._when = found, time.monotonic()
        return found

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

    def _engine(self) -> bool:
        found = [each.revived() for each in self._curator.datasets.engines()]  # each of them is looked at
        return all(found)


def _holds(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except Exception:  # whatever a driver or a file system raises: what it asked for is not there
        return False
