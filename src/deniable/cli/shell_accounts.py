"""Which account a question from the shell spends from: one for each file, whatever name it is asked by.

The account of a file is kept beside it, in FILE.ledger. Several files that are asked together have one account too: of
a folder beside it, in FOLDER.ledger; of a pattern, which means files by wildcards, in the deepest folder that it names
in full, under what is left of it (%2F for /). A file spends from one of these accounts and from no other.
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


def meant(source: Path) -> Path:
    """What is asked, as it is called where it lies: a file, a folder, or a pattern of several files.

    Symbolic links are followed. A pattern of one file is that file.
    """
    if not source.name:  # "", "." and "/"
        raise InvalidParameter("source", str(source), "is no file", "name a CSV or Parquet file")
    if source.is_dir() or not glob.has_magic(str(source)) or source.is_file():
        return _resolved(source)
    files = files_of(str(source))
    if len(files) == 1:
        return _resolved(Path(files[0]))
    folder, rest = split_pattern(str(source))
    return _resolved(Path(folder)) / rest


def must_be_there(source: Path) -> None:
    """Refuse a source that means no file: else it is a table without an account, a unit or a schema, one by one."""
    found = meant(source)
    if is_database(found):
        if not found.exists():
            raise InvalidParameter("source", str(source), "there is no such file")
    else:
        files_of(str(source))


def apart_from_the_table(out: Path, source: Path) -> None:
    """Refuse to write to a file that is asked, or that would be read with those that are asked from then on."""
    table, place = meant(source), _resolved(out)
    if table.is_file():
        if place == table or (place.exists() and place.samefile(table)):
            raise InvalidParameter("--out", str(out), "is the table that is read: its rows would be lost", _ANOTHER)
    elif place.is_relative_to(table) or fnmatch.fnmatch(str(place), str(table).replace("**/", "*")):
        rule = f"lies among the files of {_called(table)}, and would be read as one of them"
        raise InvalidParameter("--out", str(out), rule, _ANOTHER)


def account_of(given: Mapping[str, Any], table: str | None) -> Path:
    """The file of the ledger. `table`: of a database, the name of what is asked."""
    source = meant(given["source"])
    beside, said = _beside(source), given["ledger"]
    if said is None:
        check_length(beside)
    if said is None and beside.exists() and source.is_file():
        return beside
    account = beside if said is None else Path(said)
    _check_only_account(source, account, table)
    return account


def is_database(source: Path) -> bool:
    """Whether this is a DuckDB file, by its ending."""
    return source.name.lower().endswith(DATABASES)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        pass
    raise InvalidParameter("source", path.name, "is a symbolic link that leads back to itself", "name the file itself")


def _check_only_account(source: Path, account: Path, table: str | None) -> None:
    """Refuse a second account of a file, by whatever name it is asked: the first may have spent the budget already.

    Seen are the accounts beside the names that it has in its folder, and those of folders and patterns that it lies in.
    Where its other names (hard links) are elsewhere, there may be an account that nobody sees from here, so a new one
    is refused as well.
    """
    from deniable.ledger import Ledger

    files = _files(source)
    first: dict[str, tuple[Path, Path]] = {}  # by the serial number: the account, and what it is about
    for ledger_of, about in _accounts(files):
        with Ledger.inspect(ledger_of) as ledger:
            if table is None or table in ledger.names:  # tables of a database may have accounts of their own
                first.setdefault(ledger.serial, (ledger_of, about))
    if account.exists():
        with Ledger.inspect(account) as ledger:  # the one that was named may be the same, in another place
            if not first or set(first) == {ledger.serial}:
                return
            if source.is_file() and ledger.serial in first:
                return
            first.pop(ledger.serial, None)
    if first:
        raise _has_one(source, *next(iter(first.values())))
    several = next((each for each in files if each.stat().st_nlink > 1), None)
    if several is not None:
        rule = "has several names (hard links), and one account for all; none is beside this one"
        remedy = (
            "ask it by the name that has an account; if none has, remove its other names first "
            f"(find / -samefile {_called(several)} lists them)"
        )
        raise InvalidParameter("source", several.name, rule, remedy)


def _has_one(source: Path, account: Path, about: Path) -> InvalidParameter:
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
    """A path as it can be typed where the caller stands; the folder they stand in, and what is elsewhere, in full."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) and path != here else str(path)


def _files(source: Path) -> list[Path]:
    """The files that are asked, as they are called where they lie; refused if one of several is a symbolic link."""
    if source.is_file():
        return [source]
    if is_database(source) or not (source.is_dir() or glob.has_magic(str(source))):
        return []  # a price needs no file
    files = [Path(each) for each in files_of(str(source))]
    for each in files:
        if each != _resolved(each):
            rule = f"means several files, and {each.name} is a symbolic link or is reached by one"
            raise InvalidParameter("source", source.name, rule, "name the files or their folder where they lie")
    return files


def _accounts(files: Iterable[Path]) -> Iterator[tuple[Path, Path]]:
    """The accounts of some files: their own, and those of folders and patterns; each with what it is about."""
    asked = set(files)
    for each in (name for file in files for name in _names(file)):
        if os.path.exists(_beside(each)):  # not Path.exists, which raises where a name is too long
            yield _beside(each), each
    for folder in sorted({above for file in asked for above in file.parents}):
        together = [folder] if folder.name and os.path.isfile(_beside(folder)) else []
        for about in (*together, *_patterns(folder)):
            with contextlib.suppress(InvalidParameter):  # it means no files, or none that can be read
                if not asked.isdisjoint(map(Path, files_of(str(about)))):
                    yield _beside(about), about


def _patterns(folder: Path) -> list[Path]:
    """The patterns that have an account in this folder."""
    try:
        names = [each.removesuffix(_ENDING) for each in os.listdir(folder) if each.endswith(_ENDING)]
    except OSError:  # accounts in a folder that cannot be listed are not seen
        return []
    return [folder / _unquoted(each) for each in sorted(names) if glob.has_magic(each) and not (folder / each).exists()]


def _names(file: Path) -> list[Path]:
    """The names that a file has in its folder, its own first."""
    found = file.stat()
    if found.st_nlink == 1:
        return [file]
    others = (each for each in sorted(file.parent.iterdir()) if each != file and each.is_file())
    return [file, *(each for each in others if not each.is_symlink() and os.path.samestat(each.stat(), found))]


def _beside(source: Path) -> Path:
    """Where the account of a file, a folder or a pattern is kept."""
    if source.exists() or not glob.has_magic(str(source)):
        return source.with_name(source.name + _ENDING)
    folder, rest = split_pattern(str(source))
    return Path(folder) / (rest.replace("%", "%25").replace("/", "%2F") + _ENDING)


def _unquoted(name: str) -> str:
    return name.replace("%2F", "/").replace("%25", "%")
