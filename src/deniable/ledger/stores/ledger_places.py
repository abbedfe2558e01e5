"""The place of a ledger file: one path and one name. A ledger that is found elsewhere is refused.

Two copies of a ledger would spend one budget twice. So would one file with two names (a hard link, a bind mount of the
file alone): SQLite keeps the newest entries in a log that is named after the file, so each name has a log of its own.

Therefore a ledger stores its home: the path with symbolic links resolved, the inode number of the file, and the time at
which the file was made. (The inode number alone is not enough: file systems reuse the numbers of deleted files, often
for the copy that replaces the file.) A ledger that is opened elsewhere is refused until somebody declares that it was
moved; the declaration is an entry of the chain.

Not detected: a file that was overwritten in place, and a whole disk or machine that was copied or restored. Checkpoints
that are kept elsewhere detect these. On systems that do not report when a file was made, path and inode number are
compared.
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
"""The most bytes of a file name, on nearly all systems."""
_SAME_MOMENT: Final = 1_000
"""Nanoseconds. Some systems report the time in seconds, as a float with rounding errors."""


def resolved(place: str | os.PathLike[str]) -> Path:
    """The absolute path of a place, with symbolic links resolved. On Windows, InvalidParameter for network paths."""
    for text in (os.fspath(place), os.path.realpath(place)):  # a drive letter may be a network share
        if WINDOWS and is_network_path(text):
            rule = "is a network path, where file locks are unreliable"
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
    """Raise LedgerUnavailable if the folder of this path does not exist."""
    if not path.parent.is_dir():
        why = "is a file" if path.parent.exists() else "does not exist"
        fault = f"the ledger {str(path)!r} cannot be made: its folder {why}"
        raise LedgerUnavailable(fault, "make the folder, or name another place")


def check_length(path: Path) -> None:
    """Raise InvalidParameter if the name is too long for SQLite's files beside it, such as its log."""
    longest = len(os.fsencode(path.name)) + len("-journal")
    if longest > LONGEST_NAME:
        rule = f"is {longest - LONGEST_NAME} bytes too long: the files beside a ledger have its name and an ending"
        raise InvalidParameter("ledger", path.name, rule, "rename the table, or keep the ledger elsewhere (--ledger)")


def can_be_written(path: Path) -> bool:
    """Whether this process may write the file and make a log beside it."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def only_readable(path: Path) -> str:
    """The URI parameters by which SQLite opens a file that this process may not write.

    To read a log, SQLite needs its index (-shm), and must write to the folder if that is missing: LedgerUnavailable.
    A file without a log is opened as immutable.
    """
    log, index = (path.with_name(path.name + ending) for ending in ("-wal", "-shm"))
    if index.exists() and log.exists():
        return "mode=ro"
    if log.exists() and log.stat().st_size > 0:
        raise LedgerUnavailable(
            f"the newest entries of the ledger {str(path)!r} are in {log.name}, and SQLite cannot read that file in a "
            "folder that you may not write to",
            f"copy {path.name} and {log.name} to a folder that you may write to, and inspect the copy",
        )
    return "mode=ro&immutable=1"


def check_names(path: Path, found: os.stat_result) -> None:
    """Raise LedgerUnavailable if this file has several hard links."""
    if found.st_nlink > 1:
        raise LedgerUnavailable(
            f"the ledger {str(path)!r} has {found.st_nlink} names (hard links), and SQLite keeps a log for each",
            f"delete all but one: find . -samefile {path.name} lists them; until then nothing is charged",
        )


def here(path: Path) -> str:
    """The home of a ledger at this path, as JSON."""
    _, number, birth = identity(path, os.stat(path))
    return json.dumps({"path": str(path), "file": number, "born": birth})


def identity(path: Path, found: os.stat_result) -> tuple[int, int, int | None]:
    """Device, inode number and time of creation: equal for the same file only."""
    return found.st_dev, found.st_ino, born(path, found)


def moved_from(home: str, path: Path) -> str | None:
    """The path of the home, if that is not this file; else None."""
    record, now = json.loads(home), json.loads(here(path))
    same = record["path"] == now["path"] or same_place(record["path"], now["path"], os.listdir(path.parent))
    same = same and record["file"] == now["file"] and _same_birth(record.get("born"), now["born"])
    return None if same else str(record["path"])


def lacks_birth(home: str, path: Path) -> bool:
    """Whether this home lacks the time of creation, and the system now reports it."""
    return json.loads(home).get("born") is None and born(path, os.stat(path)) is not None


def _same_birth(before: int | None, now: int | None) -> bool:
    return before is None or now is None or abs(before - now) < _SAME_MOMENT


def same_place(home: str, now: str, listed: Collection[str]) -> bool:
    """Whether two paths are the same file name, also on file systems that ignore case or Unicode normalisation.

    `listed` are the names in the folder: if it lists both spellings, the file system distinguishes them.
    """
    if home == now:
        return True
    if _folded(home) != _folded(now):
        return False
    return not {os.path.basename(home), os.path.basename(now)} <= set(listed)


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def refused(path: Path, home: str) -> LedgerUnavailable:
    """The error about a ledger that is not at its home."""
    alone = f"or, if only this copy will be used from now on: deniable moved {path.name} --reason '...'"
    if same_place(home, str(path), os.listdir(path.parent)):
        return LedgerUnavailable(
            f"the ledger {str(path)!r} was replaced by another file, such as an older copy, which may lack charges",
            f"restore the original file; {alone}",
        )
    return LedgerUnavailable(
        f"the ledger {str(path)!r} belongs to the path {home!r}: two copies would spend the budget twice",
        f"use the one at that path; {alone}",
    )


def left_behind(path: Path, home: str) -> LedgerUnavailable | None:
    """The error if the log of a renamed ledger still has its old name; else None."""
    log = Path(home + "-wal")
    try:
        if log.name == path.name + "-wal" and log.parent == path.parent:
            return None
        has_entries = not Path(home).exists() and log.stat().st_size > 0
    except OSError:
        return None
    if not has_entries:
        return None
    return LedgerUnavailable(
        f"the newest entries of the ledger {str(path)!r} are still in {str(log)!r}",
        f"close every program that uses the ledger, and move that file too: to {path.name}-wal",
    )


# --- when a file was made ---------------------------------------------------------------------------------------------


def born(path: Path, found: os.stat_result) -> int | None:
    """When this file was made, in nanoseconds since 1970; None if the system does not report it."""
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
    """The time of creation by statx(2), which os.stat does not request.

    By path and not by descriptor: closing a descriptor would drop the locks that SQLite holds on the file in this
    process.
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
