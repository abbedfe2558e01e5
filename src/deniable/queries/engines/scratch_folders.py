"""Temporary folders for data that does not fit into memory, and the removal of folders that a killed process left.

A folder belongs to the processes that hold a lock on the file in it. The operating system releases the lock when the
last of them ends, however it ends. So a folder with a free lock is abandoned, and `sweep` removes it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

try:
    import fcntl
except ImportError:  # Windows: folders are created and removed, but abandoned ones stay
    fcntl = None  # type: ignore[assignment]  # a module elsewhere

PREFIX: Final = "deniable-"
_LOCK: Final = "in-use.lock"


@final
class Folder:
    """A new, locked folder below `parent` (None: the system's temporary folder) that only this user can read.

    `descriptor` is the open file of the lock: a process that inherits it holds the folder too.
    """

    def __init__(self, prefix: str, parent: str | os.PathLike[str] | None = None) -> None:
        assert prefix.startswith(PREFIX)
        while True:
            self.path = tempfile.mkdtemp(prefix=prefix, dir=parent)
            self.descriptor = os.open(os.path.join(self.path, _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
            # Another process may have swept the folder before we locked it. Then it is gone, and we create another.
            if _locked(self.descriptor) and os.path.exists(os.path.join(self.path, _LOCK)):
                return
            os.close(self.descriptor)

    def remove(self) -> None:
        """Delete the folder with its content, and release the lock."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self.descriptor)


@contextlib.contextmanager
def scratch(parent: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder below `parent` that exists while the block runs; after a crash, `sweep` removes it."""
    made = Folder(f"{PREFIX}scratch-", parent)
    try:
        yield Path(made.path)
    finally:
        made.remove()


def sweep(parent: str | os.PathLike[str] | None = None) -> int:
    """Remove this user's abandoned folders below `parent`, and return their number.

    Folders of other users, and folders without a lock file, are not touched. Returns 0 on Windows.
    """
    if fcntl is None:
        return 0
    removed = 0
    for lock in Path(tempfile.gettempdir() if parent is None else parent).glob(f"{PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError):
            if lock.parent.is_symlink() or lock.parent.stat().st_uid != os.getuid():
                continue
            descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
            try:
                if _locked(descriptor):
                    shutil.rmtree(lock.parent, ignore_errors=True)
                    removed += 1
            finally:
                os.close(descriptor)
    return removed


def _locked(descriptor: int) -> bool:
    """Try to take the lock; False if another process holds it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
