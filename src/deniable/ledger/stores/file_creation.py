"""Make the file of a ledger atomically, and recognise files that were lost or truncated.

A ledger is written under a temporary name and renamed when it is complete. Therefore an empty file is never a ledger in
the making: it is a ledger that has lost its contents. A new ledger in its place would be a second budget for the same
data, so it is refused. The same holds if the file is missing while SQLite's files beside it still exist.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from deniable.errors import LedgerDamaged, UnreadableRecord

__all__ = ["check_whole", "emptied", "make_file"]

_BESIDE: Final = ("-wal", "-shm", "-journal")
"""SQLite's files beside a database: write-ahead log, its index, and rollback journal."""


def check_whole(path: Path) -> None:
    """Raise LedgerDamaged if this file is empty, or is missing while SQLite's files beside it exist.

    SQLite treats a file of one byte as empty; here it is UnreadableRecord, because it is not a ledger. So is a pipe. A
    folder raises IsADirectoryError.
    """
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        left = [path.name + ending for ending in _BESIDE if path.with_name(path.name + ending).exists()]
        if left and not path.exists():  # otherwise somebody has just made it
            raise _gone(path, left) from None
        return
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISREG(found.st_mode) and found.st_size == 0:
        raise emptied(path)
    if not stat.S_ISREG(found.st_mode) or found.st_size == 1:  # SQLite would wait for a pipe
        raise UnreadableRecord(f"{str(path)!r} is not a ledger, and was not changed; name another file")


def emptied(path: Path) -> LedgerDamaged:
    """The error about an empty file."""
    return LedgerDamaged(
        None,
        f"{str(path)!r} is empty: the entries of the ledger were lost, or the file never was a ledger",
        "restore its newest copy; or, if no question was ever answered from it, delete the file to begin a new ledger",
    )


def _gone(path: Path, left: list[str]) -> LedgerDamaged:
    beside = ", ".join(left)
    return LedgerDamaged(
        None,
        f"{str(path)!r} is missing, but files beside it exist ({beside}): a new ledger would forget what was spent",
        f"restore {path.name}; or, if no question was ever answered from it, delete {beside}",
    )


def make_file(path: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Make an SQLite file with what `fill` writes. If another process has made the file meanwhile, the other process's
    file stays.

    Only the owner of the file may read it (0600), because it will contain the ledger's secret; SQLite gives the logs
    the same permissions.
    """
    half = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        os.close(os.open(half, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        place = f"file:{quote(str(half))}?mode=rw"
        with closing(sqlite3.connect(place, isolation_level=None, uri=True)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA fullfsync = ON")
            fill(connection)
        with _folder(path.parent) as flushed, contextlib.suppress(FileExistsError):
            if not path.exists():
                half.rename(path)
                flushed()
    finally:
        for ending in ("", *_BESIDE):
            half.with_name(half.name + ending).unlink(missing_ok=True)


@contextmanager
def _folder(folder: Path) -> Iterator[Callable[[], None]]:
    """Lock a folder against other ledgers that are being made there. Yields a function that flushes it to the disk.

    Systems without `fcntl` (Windows) need no lock: renaming a file to an existing name fails there.
    """
    try:
        import fcntl
    except ModuleNotFoundError:
        yield lambda: None
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield lambda: os.fsync(descriptor)
    finally:
        os.close(descriptor)
