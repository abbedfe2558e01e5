"""Files as sources: the files that a path stands for, the name of their table, and the header of a CSV file.

The first line of a CSV file names the columns and is public; every other line is private. So only the first line is
read: no later line can cause an error, change the result, or appear in an error.
"""

from __future__ import annotations

import glob
import gzip
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deniable.csv_structure import fields_of, separator
from deniable.errors import InvalidParameter

CSV: Final = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt")
PARQUET: Final = (".parquet", ".pq")
DATABASES: Final = (".duckdb", ".ddb", ".db")


def table_name(path: str | os.PathLike[str]) -> str:
    """The name of a file's table: the file name up to its first dot, as an identifier.

    Runs of other characters than letters, digits and _ become one _, which is removed at the ends; a name that starts
    with a digit gets the prefix t_; an empty name becomes "data".

    >>> table_name("my visits (2024).csv.gz"), table_name("2024.parquet"), table_name("....csv")
    ('my_visits_2024', 't_2024', 'data')
    >>> table_name("1st.csv"), table_name("-dash.csv"), table_name("br[1].csv"), table_name("select.csv")
    ('t_1st', 'dash', 'br_1', 'select')
    """
    return plain_name(Path(path).name.split(".")[0])


def plain_name(name: str) -> str:
    """A name as an identifier that SQL need not quote, unless it is a keyword (see `table_name`)."""
    plain = re.sub(r"\W+", "_", name).strip("_")
    return "data" if not plain else plain if plain.isidentifier() else f"t_{plain}"


def files_of(path: str) -> list[str]:
    """The files that a path stands for: itself, the matches of its wildcards, or all Parquet files in a folder.

    In a folder, names that start with _ or . are skipped, as in Hive and Spark, where they mark unfinished files. Files
    of a table format (Delta Lake, Iceberg …) are refused, because a log decides which of them are current. Raises
    `InvalidParameter` if there is no such file.
    """
    if os.path.isfile(path):
        files = [path]
    elif os.path.isdir(path):
        files = sorted(_parquet_below(path))
    else:
        folder, rest = split_pattern(path)
        files = sorted(glob.glob(os.path.join(glob.escape(folder), rest), recursive=True))
    for each in files:
        if not os.path.isfile(each):
            what = "a folder" if os.path.isdir(each) else "a symbolic link to a missing file, or not a regular file"
            called = os.path.basename(each.rstrip(os.sep))
            raise InvalidParameter("source", path, f"{called} is {what}", "name files, or one folder")
    if not files and os.path.isdir(path):
        listed = any(each.lower().endswith(CSV) for each in os.listdir(path))
        remedy = f"name its CSV files by a pattern: {os.path.join(path, '*.csv')}" if listed else "name the files"
        raise InvalidParameter("source", path, "is a folder without Parquet files", remedy)
    if not files:
        raise InvalidParameter(
            "source", path, "there is no such file", "paths may have wildcards, as in visits/*.parquet"
        )
    _refuse_formats(path, files)
    return files


def folder_columns(path: str, files: list[str]) -> list[str]:
    """The partition columns in the names of folders below `path`, as in Hive: `year` of visits/year=2024/a.parquet.

    Empty if not all files have the same partition columns. The values are texts; the schema gives them a kind.

    >>> folder_columns("v", ["v/year=2024/month=1/a.parquet", "v/year=2024/month=2/a.parquet"])
    ['year', 'month']
    """
    above = path if os.path.isdir(path) else split_pattern(path)[0]
    found = []
    for each in files:
        folders = os.path.relpath(os.path.dirname(each), above or ".").split(os.sep)
        found.append([part.partition("=")[0] for part in folders if "=" in part[1:]])
    return found[0] if found and all(each == found[0] for each in found) else []


def split_pattern(path: str) -> tuple[str, str]:
    """(the deepest existing folder of a path, the rest with wildcards)."""
    folder, rest = os.path.split(path)
    while folder and not os.path.isdir(folder):
        folder, last = os.path.split(folder)
        rest = os.path.join(last, rest)
    return folder, rest


def _parquet_below(folder: str) -> Iterator[str]:
    for here, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [each for each in folders if not each.startswith(("_", "."))]
        for each in names:
            if each.lower().endswith(PARQUET) and not each.startswith(("_", ".")):
                yield os.path.join(here, each)


def _refuse_formats(path: str, files: list[str]) -> None:
    """Refuse files of a Delta Lake, Iceberg or similar table, which may contain erased and outdated rows."""
    looked: set[Path] = set()
    for folder in {Path(os.path.realpath(each)).parent for each in files}:
        for above in (folder, *folder.parents):
            if above in looked:
                break
            looked.add(above)
            kind = _format(above)
            if kind is not None:
                rule = f"is a table of {kind}: its log says which files are current, and the others have deleted rows"
                raise InvalidParameter("source", path, rule, _CURRENT[kind])


def _format(folder: Path) -> str | None:
    if os.path.isdir(folder / "_delta_log"):
        return "Delta Lake"
    if os.path.isdir(folder / ".hoodie") or os.path.isfile(folder / ".hoodie_partition_metadata"):
        return "Hudi"
    if os.path.isdir(folder / "_spark_metadata"):
        return "Spark streaming"
    if any(_ICEBERG.fullmatch(each) for each in _names(folder / "metadata")):
        return "Iceberg"
    if any(map(_SNAPSHOT.fullmatch, _names(folder / "snapshot"))) and _names(folder / "manifest"):
        return "Paimon"
    return None


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # the folder does not exist or cannot be read
        return []


_ICEBERG: Final = re.compile(r".*\.metadata\.json(\.gz)?|version-hint\.text|snap-.*\.avro")
_SNAPSHOT: Final = re.compile(r"snapshot-\d+|LATEST")
_CURRENT: Final = {
    "Delta Lake": 'give DeltaTable(path).to_pyarrow_table(); on Spark, spark.read.format("delta").load(path)',
    "Iceberg": "give table.scan().to_arrow() of pyiceberg, or on Spark the table by its name",
    "Hudi": 'on Spark give spark.read.format("hudi").load(path), or export the newest snapshot to Parquet',
    "Spark streaming": "on Spark give spark.read.parquet(path), which reads that log, or write the rows anew",
    "Paimon": "on Spark give the table by its name, or export the newest snapshot to Parquet",
}
"""How to read the current rows of each format."""


def header(path: str) -> list[str]:
    """The column names in the first line of a CSV file; `InvalidParameter` if that is not a header in UTF-8."""
    try:
        line = _first_line(path)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        line = None
    if line is None:
        raise InvalidParameter("source", path, "is not a gzip file, or is damaged", "write the file again")
    if not line.strip("\r\n"):
        raise InvalidParameter("source", path, "must begin with a line that names its columns", "add a header line")
    if "\ufffd" in line or "\0" in line:
        raise InvalidParameter(
            "source", path, "the first line must be text in UTF-8", "save the file again with the encoding UTF-8"
        )
    names = fields_of(line.rstrip("\r\n"), separator(path))
    if names is None:
        raise InvalidParameter("source", path, "the first line must name the columns", "close every quote in it")
    _check_separator(path, line, names)
    return names


def _first_line(path: str) -> str:
    # Data is decoded along with the first line; a wrong encoding there must not raise an error.
    reader = gzip.open if path.lower().endswith(".gz") else open
    with reader(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as lines:
        return str(lines.readline())


def _check_separator(path: str, line: str, names: list[str]) -> None:
    if len(names) > 1 or line.startswith('"'):
        return
    for mark, called in ((";", "semicolons"), ("\t", "tabs"), (",", "commas"), ("|", "bars")):
        if mark in names[0]:
            usual = "tabs" if separator(path) == "\t" else "commas"
            remedy = "call the file .tsv" if mark == "\t" else f"save the file again with {usual}"
            raise InvalidParameter(
                "source", path, f"the names in its first line are separated by {called}, not by {usual}", remedy
            )


def unknown_file(path: str) -> InvalidParameter:
    """The error for a path whose ending no readable table has."""
    if path.lower().endswith(DATABASES):
        remedy = "name one of them: deniable.queries.DatabaseTable(path, table)"
        return InvalidParameter("source", path, "a database has several tables", remedy)
    databases = f"for one table of a DuckDB file, {', '.join(DATABASES)}"
    known = f"known endings: {', '.join(CSV + PARQUET)}, and {databases}"
    return InvalidParameter("source", path, "must have the ending of a CSV, Parquet or DuckDB file", known)
