"""Where data may come from: files in the folders that the operator named, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from deniable.errors import NOTHING, InvalidParameter
from deniable.server.operations.settings import Settings

_SUFFIXES: Final = frozenset({".csv", ".tsv", ".parquet", ".pq"})
_SPECIAL: Final = frozenset("*?[]{}\0\n\r")
"""Engines read some of these as patterns of many files."""


def folders_of(owner: str, settings: Settings, owners: Collection[str]) -> tuple[Path, ...]:
    """The folders that an owner may register from; `owners` are all who are or were here.

    Whoever registers data first is its owner for good. So a folder belongs to one owner: to the only one there is, or
    to whom the operator gave it. Somebody who was closed is still an owner: else an admin could close the only one and
    let another take the files.
    """
    if settings.owners is not None:
        found = (*settings.owners.get(owner, ()), *settings.owners.get("*", ()))
        if not found:
            rule, remedy = "you have no data folder here", "the operator of the server names one for you in [owners]"
            raise InvalidParameter("sources", NOTHING, rule, remedy)
        return found
    if set(owners) - {owner}:
        rule = "there are several owners, and nobody said whose files are whose"
        raise InvalidParameter("sources", NOTHING, rule, "the operator of the server writes [owners] instead of data")
    return settings.data


def allowed(source: str, folders: Sequence[Path]) -> Path:
    """The file that is meant, if it lies in one of the folders, also after every link was followed.

    Whatever is wrong, it is said in the same words: whether a file exists elsewhere is nobody's business.
    """
    wrong = InvalidParameter(
        "sources",
        NOTHING,
        "must be a CSV or Parquet file in one of your data folders on the server",
        "put it there by its own name, not as a link, or ask whoever runs the server to",
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
