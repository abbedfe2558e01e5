"""Where the file of a ledger is. It has one name and one place; under any other nobody spends from it.

SQLite keeps the newest entries in a log that is called as the file is. A file with two names (a hard link, a bind mount
of the file alone) has two logs, and each knows nothing of what the other spent; a copy has forgotten what came after
it. So a ledger remembers its home: the path, with every symbolic link followed, the number of the file there, and when
that file was made: a file system may give the number of a deleted file to the next one, often to the copy that takes
its place. What is opened elsewhere is refused until its owner says that it was moved, and that is an entry of the
chain.

Not seen: a file that was overwritten in its place, and a whole disk or machine that was copied or set back. For those
there are checkpoints that are kept elsewhere. Where the system does not say when a file was made, its path and number
must do.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
import unicodedata
from collections.abc import Callable, Collection
from pathlib import Path, PureWindowsPath
from typing import Final

from deniable.errors import InvalidParameter, LedgerUnavailable

__all__ = [
    "born",
    "can_be_written",
    "check_folder",
    "check_names",
    "here",
    "identity",
    "is_network_path",
    "lacks_birth",
    "left_behind",
    "moved_from",
    "only_readable",
    "refused",
    "resolved",
    "same_place",
]

WINDOWS: Final = os.name == "nt"

LONGEST_NAME: Final = 255
"""Bytes of a file's name, on nearly all systems."""
_SAME_MOMENT: Final = 1_000
"""Nanoseconds. Some systems tell the time of birth as a float of seconds, whose last digits are rounding."""


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


def check_folder(path: Path) -> None:
    """LedgerUnavailable if there is no folder in which a ledger of this name could be made."""
    if not path.parent.is_dir():
        why = "is a file" if path.parent.exists() else "is not there"
        fault = f"the ledger {str(path)!r} cannot be made: its folder {why}"
        raise LedgerUnavailable(fault, "make the folder, or name another place")


def check_length(path: Path) -> None:
    """InvalidParameter if a ledger's name leaves no room for those of the files beside it, such as its log."""
    longest = len(os.fsencode(path.name)) + len("-journal")
    if longest > LONGEST_NAME:
        rule = f"is too long by {longest - LONGEST_NAME}: files beside a ledger are called as it is, and more"
        raise InvalidParameter("ledger", path.name, rule, "rename the table, or keep the ledger elsewhere (--ledger)")


def can_be_written(path: Path) -> bool:
    """Whether this process may write the file, and a log beside it."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def only_readable(path: Path) -> str:
    """How SQLite opens a file that we may not write: with its log, or promised that nobody writes where it has none.

    To read a log SQLite needs the index beside it, and makes one where it is missing; that needs the folder.
    """
    log, index = (path.with_name(path.name + ending) for ending in ("-wal", "-shm"))
    if index.exists() and log.exists():
        return "mode=ro"
    if log.exists() and log.stat().st_size > 0:
        raise LedgerUnavailable(
            f"the newest entries of the ledger {str(path)!r} are in {log.name}, which cannot be read where nobody may "
            "write",
            f"copy {path.name} and {log.name} to a folder of your own, and look at the copy",
        )
    return "mode=ro&immutable=1"


def check_names(path: Path, found: os.stat_result) -> None:
    """LedgerUnavailable if this file has more than one name."""
    if found.st_nlink > 1:
        raise LedgerUnavailable(
            f"the ledger {str(path)!r} has {found.st_nlink} names (hard links), and under each another log",
            f"keep one: find . -samefile {path.name} lists them; nothing is spent before",
        )


def here(path: Path) -> str:
    """What a ledger remembers of its place."""
    _, number, birth = identity(path, os.stat(path))
    return json.dumps({"path": str(path), "file": number, "born": birth})


def identity(path: Path, found: os.stat_result) -> tuple[int, int, int | None]:
    """Which file this is: its device, its number there, and when it was made."""
    return found.st_dev, found.st_ino, born(path, found)


def moved_from(home: str, path: Path) -> str | None:
    """Where this ledger is at home, if that is not here."""
    record, now = json.loads(home), json.loads(here(path))
    same = record["path"] == now["path"] or same_place(record["path"], now["path"], os.listdir(path.parent))
    same = same and record["file"] == now["file"] and _same_birth(record.get("born"), now["born"])
    return None if same else str(record["path"])


def lacks_birth(home: str, path: Path) -> bool:
    """Whether this home was written when nobody could say when the file was made, and now the system does."""
    return json.loads(home).get("born") is None and born(path, os.stat(path)) is not None


def _same_birth(before: int | None, now: int | None) -> bool:
    return before is None or now is None or abs(before - now) < _SAME_MOMENT


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


# --- when a file was made ---------------------------------------------------------------------------------------------


def born(path: Path, found: os.stat_result) -> int | None:
    """When this file was made, in nanoseconds since 1970; None where the system or the file system does not say."""
    if (exact := getattr(found, "st_birthtime_ns", None)) is not None:
        birth = int(exact)
    elif (seconds := getattr(found, "st_birthtime", None)) is not None:
        birth = round(seconds * 1e9)
    else:
        birth = _born_on_linux(path) or 0
    return birth if birth > 0 else None  # 0 and -1 stand for "not known" on some file systems


def _linux_statx() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    try:
        statx = ctypes.CDLL(None).statx
    except (AttributeError, OSError):  # a C library that is older than the call
        return None
    statx.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p)
    statx.restype = ctypes.c_int
    return statx


_STATX: Final = _linux_statx()
_AT_FDCWD: Final = -100
_STATX_BTIME: Final = 0x800
_STRUCT_STATX: Final = ctypes.c_char * 256
_MASK: Final = struct.Struct("=I")  # stx_mask, at 0
_BIRTH: Final = struct.Struct("=qI")  # stx_btime: seconds and nanoseconds, at 80


def _born_on_linux(path: Path) -> int | None:
    """By statx(2), which os.stat does not ask, and by the path: closing a descriptor of the file would drop the locks
    that SQLite holds on it in this process.
    """
    if _STATX is None:
        return None
    found = _STRUCT_STATX()
    if _STATX(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, found) != 0:
        return None
    [mask] = _MASK.unpack_from(found, 0)
    if not mask & _STATX_BTIME:
        return None
    seconds, nanoseconds = _BIRTH.unpack_from(found, 80)
    return int(seconds) * 10**9 + int(nanoseconds)
