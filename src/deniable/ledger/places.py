"""Where the file of a ledger is. It has one name and one place; under any other nobody spends from it.

SQLite keeps the newest entries in a log that is called as the file is. A file with two names (a hard link, a bind mount
of the file alone) has two logs, and each knows nothing of what the other spent; a copy has forgotten what came after
it. So a ledger remembers its home: the path, with every symbolic link followed, and the number of the file there. What
is opened elsewhere is refused until its owner says that it was moved, and that is an entry of the chain.

Not seen: a file that was overwritten in its place, and a whole disk or machine that was copied or set back. For those
there are checkpoints that are kept elsewhere.
"""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Collection
from pathlib import Path, PureWindowsPath
from typing import Final

from deniable.errors import InvalidParameter, LedgerUnavailable

__all__ = ["check_names", "here", "is_network_path", "moved_from", "resolved", "same_place"]

WINDOWS: Final = os.name == "nt"


def resolved(place: str | os.PathLike[str]) -> Path:
    """The one path of a place: absolute, and with every symbolic link followed."""
    for text in (os.fspath(place), os.path.realpath(place)):  # a drive letter may stand for a share
        if WINDOWS and is_network_path(text):
            rule = "is a network path, and the locks of files there cannot be trusted"
            raise InvalidParameter(
                "place", text, rule, "name a file on a disk of this machine, or a database by its URL"
            )
    return Path(os.path.realpath(place))


def is_network_path(path: str) -> bool:
    r"""Whether a path of Windows names a share: \\server\share, //server/share, \\?\UNC\server\share."""
    drive = PureWindowsPath(path).drive
    return drive.startswith("\\\\") and (
        not drive.startswith(("\\\\?\\", "\\\\.\\")) or drive.upper().startswith("\\\\?\\UNC\\")
    )


def check_names(path: Path, found: os.stat_result) -> None:
    """LedgerUnavailable if this file has more than one name."""
    if found.st_nlink > 1:
        raise LedgerUnavailable(
            f"the ledger {str(path)!r} has {found.st_nlink} names (hard links), and under each another log",
            f"keep one: find . -samefile {path.name} lists them; nothing is spent before",
        )


def here(path: Path) -> str:
    """What a ledger remembers of its place."""
    return json.dumps({"path": str(path), "file": os.stat(path).st_ino})


def moved_from(home: str, path: Path) -> str | None:
    """Where this ledger is at home, if that is not here."""
    record, now = json.loads(home), json.loads(here(path))
    same = record["path"] == now["path"] or same_place(record["path"], now["path"], os.listdir(path.parent))
    return None if same and record["file"] == now["file"] else str(record["path"])


def same_place(home: str, now: str, listed: Collection[str]) -> bool:
    """Whether two paths are one: exactly, or because the folder that lists these names does not tell them apart."""
    if home == now:
        return True
    if _folded(home) != _folded(now):
        return False
    return not {os.path.basename(home), os.path.basename(now)} <= set(listed)


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def refused(path: Path, home: str) -> LedgerUnavailable:
    """What is said of a ledger that is not where it is at home."""
    alone = f"or, if this one alone is used from now on: deniable moved {path.name} --reason '...'"
    if same_place(home, str(path), os.listdir(path.parent)):
        return LedgerUnavailable(
            f"the ledger {str(path)!r} is another file than the one that was here: a copy was put in its place, "
            "and does not know what was spent after it was made",
            f"put back the file that was here; {alone}",
        )
    return LedgerUnavailable(
        f"the ledger {str(path)!r} is at home elsewhere ({home!r}): both together would spend the budget twice",
        f"use the one at home; {alone}",
    )


def left_behind(path: Path, home: str) -> LedgerUnavailable | None:
    """What is said if the log of a ledger that was renamed still lies under its old name."""
    log = Path(home + "-wal")
    try:
        if log.name == path.name + "-wal" and log.parent == path.parent:
            return None
        waits = not Path(home).exists() and log.stat().st_size > 0
    except OSError:
        return None
    if not waits:
        return None
    return LedgerUnavailable(
        f"the newest entries of the ledger {str(path)!r} are still in {str(log)!r}",
        f"close whoever has it open, and move that file as well: to {path.name}-wal",
    )
