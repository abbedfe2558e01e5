"""How the file of a ledger comes about: whole, or not at all.

It is made under another name and gets its own when all is in it. So a file that is empty is none that was begun here:
it has lost what it held, and a new ledger in its place would be a second budget. So would one beside the log of a
ledger whose file is gone.
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
"""What SQLite keeps beside a file: the log, its index, and what undoes a change that was broken off."""


def check_whole(path: Path) -> None:
    """LedgerDamaged if this file is empty, or is not there while files beside it say that it was.

    SQLite takes a file of one byte for an empty one as well: that is UnreadableRecord, for no ledger begins so. What is
    no file at all, a pipe or a folder, is refused too.
    """
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        left = [path.name + ending for ending in _BESIDE if path.with_name(path.name + ending).exists()]
        if left and not path.exists():  # else somebody has just made it
            raise _gone(path, left) from None
        return
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISREG(found.st_mode) and found.st_size == 0:
        raise emptied(path)
    if not stat.S_ISREG(found.st_mode) or found.st_size == 1:  # SQLite would wait for a pipe
        raise UnreadableRecord(f"{str(path)!r} is not a ledger; it was not touched. Name another file")


def emptied(path: Path) -> LedgerDamaged:
    """What is said of a file that has nothing in it."""
    return LedgerDamaged(
        None,
        f"{str(path)!r} is empty: a ledger never is, so it has lost what was spent, or it never was one",
        "put back its newest copy; only if nothing was ever answered from it, delete it and a new one is made",
    )


def _gone(path: Path, left: list[str]) -> LedgerDamaged:
    beside = f"{', '.join(left)} of it {'is' if len(left) == 1 else 'are'} still there"
    return LedgerDamaged(
        None,
        f"{str(path)!r} is not there, and {beside}: a new ledger would forget what was spent",
        f"put {path.name} back beside that; only if nothing was ever answered from it, delete that as well",
    )


def make_file(path: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Make a file of SQLite with what `fill` writes; if somebody was faster, theirs stays.

    Only its owner may read it, it will hold the secret that chooses rows; logs get the permissions of their file.
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
    """Nobody else of us gives a file its name in this folder meanwhile; what is yielded flushes the folder to the disk.

    Where there is no `fcntl`, giving a file the name of another one fails by itself.
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
