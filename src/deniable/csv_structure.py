"""CSV files: a strict check that a file is a table, the number of its rows, and its records.

CSV readers disagree about malformed files, and most of them report nothing: an unclosed quote swallows all rows after
it, and a line with too few fields is dropped. So the whole file is checked against one grammar (RFC 4180) before any of
it is read: records end in LF or CRLF and have as many fields as the first; a field is plain, without quotes and line
ends, or it is in quotes, with doubled quotes inside; empty lines are skipped. The engine that reads the file afterwards
must find as many rows as were counted here (`check_rows`). All packages that read CSV files use this module, so they
agree about every file.

The scan works on arrays of bytes: the number of quotes before a byte decides whether it is inside quotes.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from deniable.errors import NOTHING, InvalidParameter

if TYPE_CHECKING:
    import numpy as np

_BLOCK: Final = 4 << 20
_QUOTE, _LF, _CR = b'"\n\r'
_OUTSIDE = "a carriage return stands outside quotes, and no line feed follows it"
_OPENED = "a quote stands in the middle of a field, or behind a space"
_CLOSED = "more of a field follows its closing quote"
_FIELDS = "has another number of fields than the first line"
_UNCLOSED = "a quote is opened and never closed"
_QUOTED = "write the file again, with fields in quotes and quotes doubled"
_REMEDIES: Final = {
    _OUTSIDE: "end lines with LF or CRLF, and put a field that has a carriage return in quotes",
    _FIELDS: "give each line as many fields as the first; a field that has the separator in it stands in quotes",
}


class Extent(NamedTuple):
    """The size of a CSV file."""

    rows: int
    """The number of records after the header."""
    longest: int
    """The number of bytes of the longest record."""
    spanning: int
    """The number of records of more than one line."""
    widest: int
    """The number of lines of the record with the most lines."""
    blank: int | None
    """The number of the first empty line, if any. It is skipped, but in a file of one column it may be meant as a row.
    """


def separator(path: str) -> str:
    """The separator of a CSV file: a tab for .tsv, else a comma. The name decides, never the content."""
    return "\t" if ".tsv" in Path(path).name.lower() else ","


def fields_of(line: str, delimiter: str, *, spaces: bool = False) -> list[str] | None:
    """The fields of one line, given without its line end; None if a quoted field does not end in it.

    With `spaces`, blanks before a field are ignored.

    >>> fields_of('a,"b, c"', ","), fields_of('a,"b', ",")
    (['a', 'b, c'], None)
    """
    try:
        fields = next(csv.reader([line + "\n"], delimiter=delimiter, skipinitialspace=spaces))
    except csv.Error:
        return None
    return None if fields and fields[-1].endswith("\n") else fields


def records_of(path: str, delimiter: str, longest: int) -> Iterator[list[str]]:
    """The records of a CSV file, header included. Call `extent_of` first: it checks the file and gives `longest`.

    For a file that was not checked, the records are whatever Python's csv module returns.
    """
    csv.field_size_limit(max(csv.field_size_limit(), longest + 1))  # no other limit on the length of a field
    with _opener(path)(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
        yield from (row for row in csv.reader(file, delimiter=delimiter) if row)


def rows_of(path: str, columns: int) -> int:
    """The number of rows of a CSV file after its header; InvalidParameter as for `extent_of`."""
    return extent_of(path, columns).rows


def extent_of(path: str, columns: int, *, delimiter: str | None = None, called: str = "source") -> Extent:
    """The size of a CSV file with `columns` fields in each record; InvalidParameter with the line number if it is not a
    table.

    Only the owner, who registers the file, sees this error; it contains no other part of the file. `called` is the name
    of the parameter in the error.
    """
    scan = _Scan(ord(delimiter or separator(path)), columns)
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    try:
        for block in _blocks(path):
            decoder.decode(block)
            scan.add(block)
        decoder.decode(b"", final=True)
        records = scan.end()
    except UnicodeDecodeError as error:  # the bytes carried over from the last block are part of one character
        line = scan.lines + 1 + error.object[: error.start].count(b"\n")
        raise _wrong(called, path, line, "is not text in UTF-8", "save the file again, as UTF-8") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InvalidParameter(called, path, "is not compressed by gzip, or is damaged", "write it again") from None
    except _Bad as bad:
        raise _wrong(called, path, bad.line, bad.rule, _REMEDIES.get(bad.rule, _QUOTED)) from None
    return Extent(max(0, records - 1), scan.longest, scan.spanning, scan.widest, scan.blank)


def check_rows(found: int, expected: int | None) -> None:
    """Raise InvalidParameter if an engine read `found` rows from a file of `expected` rows (None: unknown)."""
    if expected is not None and found != expected:
        rule = "the engine finds another number of rows in this file than it has"
        raise InvalidParameter("source", NOTHING, rule, "save it as Parquet, or with LF at the end of every line")


def _blocks(path: str) -> Iterator[bytes]:
    with _opener(path)(path, "rb") as file:
        first = file.read(_BLOCK).removeprefix(codecs.BOM_UTF8)
        yield first
        while block := file.read(_BLOCK):
            yield block


def _opener(path: str) -> Any:
    return gzip.open if path.lower().endswith(".gz") else open


def _wrong(called: str, path: str, line: int, rule: str, remedy: str) -> InvalidParameter:
    return InvalidParameter(called, os.path.basename(path), f"line {line:,}: {rule}", remedy)


class _Bad(Exception):  # never leaves this module
    def __init__(self, line: int, rule: str) -> None:
        self.line, self.rule = line, rule


class _Scan:
    """The state of a scan: the position in the grammar, and counts of everything before it."""

    def __init__(self, delimiter: int, columns: int) -> None:
        self._delimiter, self._columns = delimiter, columns
        self._inside = False
        self._before = _LF
        self._length = self._delimiters = self._folds = 0
        self._opened = 1
        """The line in which the newest quote was opened."""
        self.lines = self._records = self.longest = self.spanning = self.widest = 0
        self.blank: int | None = None

    def add(self, block: bytes) -> None:
        """Scan the next bytes."""
        import numpy as np

        if not block:
            return
        found = np.frombuffer(block, np.uint8)
        previous = np.concatenate((np.array([self._before], np.uint8), found[:-1]))
        quotes = found == _QUOTE
        inside_after = (np.cumsum(quotes, dtype=np.uint8) & 1).astype(bool) ^ self._inside
        outside = ~(inside_after ^ quotes)
        opens = quotes & outside
        ends = (found == _LF) & outside
        wrong = [
            *self._wrong_bytes(found, previous, outside, opens),
            *self._wrong_records(found, previous, outside, ends),
        ]
        if wrong:
            place, rule = min(wrong)
            raise _Bad(self._line(found, place), rule)
        if opens.any():
            self._opened = self._line(found, int(np.flatnonzero(opens)[-1]))
        self._inside, self._before = bool(inside_after[-1]), int(found[-1])
        self.lines += int(np.count_nonzero(found == _LF))

    def end(self) -> int:
        """Finish the scan. Returns the number of records, header included."""
        if self._inside:
            raise _Bad(self._opened, _UNCLOSED)
        if self._before == _CR:
            raise _Bad(self.lines + 1, _OUTSIDE)
        self.longest = max(self.longest, self._length)
        if self._length:
            if self._delimiters != self._columns - 1:
                raise _Bad(self.lines + 1, _FIELDS)
            self._records += 1
            self._fold(self._folds > 0, self._folds)
        return self._records

    def _wrong_bytes(self, found: Any, previous: Any, outside: Any, opens: Any) -> Iterator[tuple[int, str]]:
        """(position, rule) of the first byte that breaks each rule."""
        import numpy as np

        starts = (previous == self._delimiter) | (previous == _LF) | (previous == _QUOTE)
        follows = (found == self._delimiter) | (found == _LF) | (found == _CR) | (found == _QUOTE)
        for wrong, rule in (
            (opens & ~starts, _OPENED),
            (outside & (previous == _QUOTE) & ~follows, _CLOSED),
            (outside & (previous == _CR) & (found != _LF), _OUTSIDE),
        ):
            if wrong.any():
                yield int(np.flatnonzero(wrong)[0]), rule

    def _wrong_records(self, found: Any, previous: Any, outside: Any, ends: Any) -> list[tuple[int, str]]:
        """Count the records that end in this block. Returns (position, rule) of the first with a wrong number of
        fields.
        """
        import numpy as np

        at = np.flatnonzero(ends)
        total = np.cumsum((found == self._delimiter) & outside, dtype=np.int32)
        folds = np.cumsum((found == _LF) & ~outside, dtype=np.int32)
        if not len(at):
            self._length += len(found)
            self._delimiters += int(total[-1])
            self._folds += int(folds[-1])
            return []
        lengths = np.diff(at, prepend=-1) - 1
        lengths[0] += self._length
        self.longest = max(self.longest, int(lengths.max()))
        delimiters = np.diff(total[at], prepend=0)
        delimiters[0] += self._delimiters
        inner = np.diff(folds[at], prepend=0)
        inner[0] += self._folds
        self._fold(np.count_nonzero(inner), inner.max())
        self._folds = int(folds[-1] - folds[at[-1]])
        blank = (lengths == 0) | ((lengths == 1) & (previous[at] == _CR))
        wrong = ~blank & (delimiters != self._columns - 1)
        self._records += int(np.count_nonzero(~blank))
        if self.blank is None and blank.any():
            self.blank = self._line(found, int(at[np.flatnonzero(blank)[0]]))
        self._length = len(found) - 1 - int(at[-1])
        self._delimiters = int(total[-1] - total[at[-1]])
        return [(int(at[np.flatnonzero(wrong)[0]]), _FIELDS)] if wrong.any() else []

    def _fold(self, spanning: Any, most: Any) -> None:
        """Count records with line ends inside quotes, and the most line ends in one of them."""
        self.spanning += int(spanning)
        self.widest = max(self.widest, int(most) + 1)

    def _line(self, found: np.typing.NDArray[np.uint8], place: int) -> int:
        return self.lines + 1 + int((found[:place] == _LF).sum())
