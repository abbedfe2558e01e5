"""Finds the account that a question from the shell spends from. A file has one account, under all of its names.

| source | account |
| --- | --- |
| a file | FILE.ledger, beside it |
| a folder, whose files are asked together | FOLDER.ledger, beside it |
| a pattern with wildcards | in the deepest folder without a wildcard, named after the rest (%2F for /) |

A second account would be a second budget for the same people. So a file that belongs to one of these accounts is
refused under all others: under another name (symbolic and hard links), in a folder, and in a pattern.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from deniable.errors import InvalidParameter
from deniable.ledger.stores.ledger_places import check_length
from deniable.tables.source_files import DATABASES, files_of, split_pattern

_ENDING = ".ledger"
_ANOTHER = "name a file in another place"


def resolved_source(source: Path) -> Path:
    """The resolved path of a file, a folder, or a pattern of several files.

    Symbolic links are followed. A pattern that matches one file becomes that file.
    """
    if not source.name:  # "", "." and "/"
        raise InvalidParameter("source", str(source), "is not a file", "name a CSV or Parquet file")
    if source.is_dir() or not glob.has_magic(str(source)) or source.is_file():
        return _resolved(source)
    files = files_of(str(source))
    if len(files) == 1:
        return _resolved(Path(files[0]))
    folder, rest = split_pattern(str(source))
    return _resolved(Path(folder)) / rest


def must_be_there(source: Path) -> None:
    """Raise InvalidParameter if the source matches no file.

    Checked first: otherwise the user would be asked for a budget, a unit and a schema before this error.
    """
    found = resolved_source(source)
    if is_database(found):
        if not found.exists():
            raise InvalidParameter("source", str(source), "there is no such file")
    else:
        files_of(str(source))


def apart_from_the_table(out: Path, source: Path) -> None:
    """Refuse an output file that is the source itself, or that the source's folder or pattern would include."""
    table, place = resolved_source(source), _resolved(out)
    if table.is_file():
        if place == table or (place.exists() and place.samefile(table)):
            raise InvalidParameter("--out", str(out), "is the table that is read: its rows would be lost", _ANOTHER)
    elif place.is_relative_to(table) or fnmatch.fnmatch(str(place), str(table).replace("**/", "*")):
        rule = f"lies among the files of {_called(table)}, and would be read as one of them"
        raise InvalidParameter("--out", str(out), rule, _ANOTHER)


def account_of(given: Mapping[str, Any], table: str | None) -> Path:
    """The path of the ledger: --ledger, or the default place. `table` is the name of the table in a database.

    Raises InvalidParameter if a file of the source has another account.
    """
    source = resolved_source(given["source"])
    beside, given_path = _beside(source), given["ledger"]
    if given_path is None:
        check_length(beside)
    if given_path is None and beside.exists() and source.is_file():
        return beside
    account = beside if given_path is None else Path(given_path)
    _check_only_account(source, account, table)
    return account


def is_database(source: Path) -> bool:
    """Whether the file name has the ending of a DuckDB file."""
    return source.name.lower().endswith(DATABASES)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        pass
    raise InvalidParameter("source", path.name, "is a symbolic link that leads back to itself", "name the file itself")


def _check_only_account(source: Path, account: Path, table: str | None) -> None:
    """Refuse a second account for a file: the first one may have spent its budget already.

    Looks beside every hard link of the file in its own folder, and at all folders and patterns that include the file.
    Hard links in other folders cannot be found, so a file that has any gets no new account.
    """
    from deniable.ledger import Ledger

    files = _files(source)
    first: dict[str, tuple[Path, Path]] = {}  # serial number of a ledger -> (its path, the source it belongs to)
    for ledger_of, about in _accounts(files):
        with Ledger.inspect(ledger_of) as ledger:
            if table is None or table in ledger.names:  # each table of a database may have its own account
                first.setdefault(ledger.serial, (ledger_of, about))
    if account.exists():
        with Ledger.inspect(account) as ledger:  # --ledger may name a copy or link of the same ledger
            if not first or set(first) == {ledger.serial}:
                return
            if source.is_file() and ledger.serial in first:
                return
            first.pop(ledger.serial, None)
    if first:
        raise _has_one(source, *next(iter(first.values())))
    several = next((each for each in files if each.stat().st_nlink > 1), None)
    if several is not None:
        rule = "has several names (hard links), which share one account; no account is beside this name"
        remedy = (
            "ask it by the name that has an account; if none has, remove its other names first "
            f"(find / -samefile {_called(several)} lists them)"
        )
        raise InvalidParameter("source", several.name, rule, remedy)


def _has_one(source: Path, account: Path, about: Path) -> InvalidParameter:
    """The error for a source with files that already have an account: the account of the source `about`."""
    name, kept = _called(about), _called(account)
    if about == source:
        whose = ""
    elif not source.is_file():
        whose = f"has files that are asked elsewhere: {name} "
    elif about.is_file():
        whose = f"has several names (hard links): {name} "
    else:
        whose = f"is one of several files that are asked together: {name} "
    return InvalidParameter(
        "source", source.name, f"{whose}has an account already, in {kept}", f"ask {name} without --ledger"
    )


def _called(path: Path) -> str:
    """A path as the user can type it: relative if it lies below the current folder, else absolute."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) and path != here else str(path)


def _files(source: Path) -> list[Path]:
    """The resolved paths of all files of a source. Raises InvalidParameter if one of several is a symbolic link."""
    if source.is_file():
        return [source]
    if is_database(source) or not (source.is_dir() or glob.has_magic(str(source))):
        return []  # a price needs no file
    files = [Path(each) for each in files_of(str(source))]
    for each in files:
        if each != _resolved(each):
            rule = f"names several files, and {each.name} is a symbolic link or lies behind one"
            raise InvalidParameter("source", source.name, rule, "name the files or their folder where they lie")
    return files


def _accounts(files: Iterable[Path]) -> Iterator[tuple[Path, Path]]:
    """All accounts that include one of these files, each with the file, folder or pattern that it belongs to."""
    asked = set(files)
    for each in (name for file in files for name in _names(file)):
        if os.path.exists(_beside(each)):  # not Path.exists, which raises where a name is too long
            yield _beside(each), each
    for folder in sorted({above for file in asked for above in file.parents}):
        together = [folder] if folder.name and os.path.isfile(_beside(folder)) else []
        for about in (*together, *_patterns(folder)):
            with contextlib.suppress(InvalidParameter):  # it matches no readable file
                if not asked.isdisjoint(map(Path, files_of(str(about)))):
                    yield _beside(about), about


def _patterns(folder: Path) -> list[Path]:
    """The patterns that have an account in this folder."""
    try:
        names = [each.removesuffix(_ENDING) for each in os.listdir(folder) if each.endswith(_ENDING)]
    except OSError:  # a folder that cannot be listed: its accounts cannot be found
        return []
    return [folder / _unquoted(each) for each in sorted(names) if glob.has_magic(each) and not (folder / each).exists()]


def _names(file: Path) -> list[Path]:
    """The hard links of a file in its folder, its own name first."""
    found = file.stat()
    if found.st_nlink == 1:
        return [file]
    others = (each for each in sorted(file.parent.iterdir()) if each != file and each.is_file())
    return [file, *(each for each in others if not each.is_symlink() and os.path.samestat(each.stat(), found))]


def _beside(source: Path) -> Path:
    """The default path of the account of a file, a folder or a pattern."""
    if source.exists() or not glob.has_magic(str(source)):
        return source.with_name(source.name + _ENDING)
    folder, rest = split_pattern(str(source))
    return Path(folder) / (rest.replace("%", "%25").replace("/", "%2F") + _ENDING)


def _unquoted(name: str) -> str:
    return name.replace("%2F", "/").replace("%25", "%")
