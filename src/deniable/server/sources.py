"""Where data may come from: files in the folders that the operator named, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deniable.errors import NOTHING, InvalidParameter

_SUFFIXES: Final = frozenset({".csv", ".tsv", ".parquet", ".pq"})
_SPECIAL: Final = frozenset("*?[]{}\0\n\r")
"""Engines read some of these as patterns of many files."""


def allowed(source: str, folders: Sequence[Path]) -> Path:
    """The file that is meant, if it lies in one of the folders, also after every link was followed.

    Whatever is wrong, it is said in the same words: whether a file exists elsewhere is nobody's business.
    """
    wrong = InvalidParameter(
        "sources", NOTHING, "must be a CSV or Parquet file in one of the server's data folders", "name it without links"
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
