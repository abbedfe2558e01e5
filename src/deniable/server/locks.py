"""A lock between processes, on a file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusive(place: Path) -> Iterator[None]:
    """Wait until no other process holds the lock on this file, and hold it. A process that is killed lets go of it."""
    import fcntl  # POSIX only, as the server is; its modules can be imported elsewhere

    with place.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
