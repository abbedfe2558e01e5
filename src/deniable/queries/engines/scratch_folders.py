"""Folders for what does not fit into memory. One that a killed process left behind is removed by the next process.

A folder belongs to whoever holds the lock on the file in it. The system lets go of the lock when the last process that
has the file open is gone, however it ended, so a folder whose lock is free belongs to nobody.
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
except ImportError:  # Windows: folders are made and removed there, and none is swept
    fcntl = None  # type: ignore[assignment]

PREFIX: Final = "deniable-"
_LOCK: Final = "in-use.lock"


@final
class Folder:
    """A new folder below `parent` (None: where temporary files go) that nobody else can read, and its lock.

    `descriptor` is the open file of the lock: a process that inherits it holds the folder too.
    """

    def __init__(self, prefix: str, parent: str | os.PathLike[str] | None = None) -> None:
        assert prefix.startswith(PREFIX)
        while True:
            self.path = tempfile.mkdtemp(prefix=prefix, dir=parent)
            self.descriptor = os.open(os.path.join(self.path, _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
            # Somebody who sweeps may have been faster than our lock: then the folder is gone, and we make another.
            if _locked(self.descriptor) and os.path.exists(os.path.join(self.path, _LOCK)):
                return
            os.close(self.descriptor)

    def remove(self) -> None:
        """Remove it with everything in it, and let go of it."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self.descriptor)


@contextlib.contextmanager
def scratch(parent: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder below `parent` for as long as the block runs; what a crash leaves of it, `sweep` removes."""
    made = Folder(f"{PREFIX}scratch-", parent)
    try:
        yield Path(made.path)
    finally:
        made.remove()


def sweep(parent: str | os.PathLike[str] | None = None) -> int:
    """Remove our folders below `parent` that no living process holds; how many there were.

    Folders of other users, and folders without a lock, are not touched.
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
    """Take the lock, if nobody has it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
