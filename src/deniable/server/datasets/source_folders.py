"""Source files: only files in the folders that the operator configured."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from deniable.errors import NOTHING, InvalidParameter
from deniable.server.operations.settings import Settings

_SUFFIXES: Final = frozenset({".csv", ".tsv", ".parquet", ".pq"})
_SPECIAL: Final = frozenset("*?[]{}\0\n\r")
"""Characters that are refused in paths: engines read some of them as wildcards."""


def folders_of(owner: str, settings: Settings, owners: Collection[str]) -> tuple[Path, ...]:
    """The folders from which an owner may register files. `owners` are all owners, also closed ones.

    The first person to register data owns it for good. So each folder belongs to one owner: the one that the operator
    named, or the only one there is. A closed account still counts as an owner; otherwise an admin could close the only
    owner and let another one take the files. Raises InvalidParameter if this owner has no folder.
    """
    if settings.owners is not None:
        found = (*settings.owners.get(owner, ()), *settings.owners.get("*", ()))
        if not found:
            rule, remedy = "must be in a data folder of yours", "ask the server's operator to name one in [owners]"
            raise InvalidParameter("sources", NOTHING, rule, remedy)
        return found
    if set(owners) - {owner}:
        rule = "must belong to one owner: the server has several owners, and its settings name no folder for each"
        raise InvalidParameter("sources", NOTHING, rule, "ask the server's operator to set [owners] instead of data")
    return settings.data


def allowed(source: str, folders: Sequence[Path]) -> Path:
    """The resolved path of a source file, if it lies in one of the folders after all links are followed.

    Raises InvalidParameter, with the same words for every cause, so that nobody learns which files exist elsewhere.
    """
    wrong = InvalidParameter(
        "sources",
        NOTHING,
        "must be a CSV or Parquet file in one of your data folders on the server",
        "copy the file there, not a link to it, or ask the server's operator to do so",
    )
    if not source or "://" in source or set(source) & _SPECIAL:
        raise wrong
    for folder in folders:
        try:
            base = folder.resolve(strict=True)
            file = (base / source).resolve(strict=True)
            inside = file.is_relative_to(base) and file.is_file()
        except (OSError, RuntimeError, ValueError):
            continue
        if inside and file.suffix.lower() in _SUFFIXES and not set(str(file)) & _SPECIAL:
            return file
    raise wrong
