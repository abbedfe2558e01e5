"""File locks between processes. The system releases the locks of a killed process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusive(place: Path) -> Iterator[None]:
    """Wait for the exclusive lock on this file, and hold it."""
    import fcntl  # POSIX only, like the server; this module can be imported on Windows

    with place.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def tried_alone(place: Path) -> Iterator[bool]:
    """Try to hold the exclusive lock on this file; False, without waiting, if another process holds any lock."""
    import fcntl

    with _tried(place, fcntl.LOCK_EX) as got:
        yield got


@contextlib.contextmanager
def tried_together(place: Path) -> Iterator[bool]:
    """Try to hold the shared lock on this file; False, without waiting, if another process holds it exclusively."""
    import fcntl

    with _tried(place, fcntl.LOCK_SH) as got:
        yield got


@contextlib.contextmanager
def _tried(place: Path, kind: int) -> Iterator[bool]:
    import fcntl

    with place.open("a") as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
