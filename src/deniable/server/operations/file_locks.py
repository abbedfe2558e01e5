"""Locks between processes, on files. A process that is killed lets go of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusive(place: Path) -> Iterator[None]:
    """Wait until no other process holds the lock on this file, and hold it."""
    import fcntl  # POSIX only, as the server is; its modules can be imported elsewhere

    with place.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def tried_alone(place: Path) -> Iterator[bool]:
    """Hold the lock on this file; False, at once, where somebody holds it."""
    import fcntl

    with _tried(place, fcntl.LOCK_EX) as got:
        yield got


@contextlib.contextmanager
def tried_together(place: Path) -> Iterator[bool]:
    """Hold the lock on this file with all others who come this way; False, at once, where somebody holds it alone."""
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
