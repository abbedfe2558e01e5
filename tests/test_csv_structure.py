"""CSV files: whatever is read is what Python's own reader finds, or the file is refused. Never something in between."""

from __future__ import annotations

import csv
import gzip
import io
import secrets
from pathlib import Path
from random import Random
from typing import Any

import pytest

from deniable.csv_structure import extent_of, rows_of
from deniable.errors import DeniableError, InvalidParameter
from deniable.queries.engines.duckdb import DuckDBEngine
from deniable.queries.engines.engine import Engine
from deniable.queries.relations.exact_statistics import Collect, Count
from deniable.queries.relations.relation_nodes import Source
from deniable.tables.expressions import col
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table
from deniable.units import Unit


def read(path: Path, columns: list[str], made: Engine | None = None) -> list[tuple[Any, ...]]:
    """What the engine keeps of a file, sorted."""
    table = Table("t", tuple((name, Domain.text()) for name in columns), Unit.row())
    with made or DuckDBEngine(threads=1) as engine:
        table = engine.register("t", path, table, b"sixteen bytes or more")
        keys = tuple((name, col(name)) for name in columns)
        found = engine.collect(Collect(Source(table), keys, None, (Count(),)))
    return sorted((group for group, (n, *_) in found.items() for _ in range(n)), key=repr)


def python(data: bytes, columns: int) -> list[tuple[Any, ...]] | None:
    """What Python's reader finds; None if it is no table to it. Empty means NULL to us, unless quoted: both are ''."""
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))[1:]
    except (csv.Error, UnicodeDecodeError):
        return None
    rows = [row for row in rows if row]
    return [tuple(row) for row in rows] if all(len(row) == columns for row in rows) else None


def same(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> bool:
    plain = [tuple("" if cell is None else cell for cell in row) for row in found]
    return sorted(plain) == sorted(expected)


GOOD = {
    "a lone carriage return inside quotes": b'a,b\n1,"x\ry"\n2,z\n',
    "the same between CRLF": b'a,b\r\n1,"x\ry"\r\n2,z\r\n',
    "a line feed inside quotes": b'a,b\r\n1,"x\ny"\r\n2,z\r\n',
    "CRLF inside quotes": b'a,b\n1,"x\r\ny"\n2,z\n',
    "quotes doubled": b'a,b\n"""","x""y"\n2,""""""\n',
    "no line end at the end": b'a,b\n1,x\n2,"z"',
    "empty lines": b"a,b\n1,x\n\n2,z\n\n\n",
    "empty lines with CRLF": b"a,b\r\n1,x\r\n\r\n2,z\r\n\r\n",
    "two kinds of line ends": b"a,b\r\n1,x\n2,z\r\n3,w\n",
    "a mark of the byte order": b'\xef\xbb\xbf"a",b\n1,x\n',
    "delimiters inside quotes": b'a,b\n"1,2","x,"\n2,z\n',
    "nothing but names": b"a,b\n",
    "no names behind which a line ends": b"a,b",
}
BAD = {
    "a quote that is never closed": (b'a,b\n1,x\n2,"y\n3,z\n4,w\n', "line 3: a quote is opened and never closed"),
    "a quote that swallows up to the next one": (b'a,b\n1,"x\n2,y\n3,"z"\n', "line 4: more of a field follows"),
    "a quote in the middle": (b'a,b\n1,x"y\n2,z\n', "line 2: a quote stands in the middle"),
    "text behind a quote": (b'a,b\n1,"x"y\n', "line 2: more of a field"),
    "a space before a quote": (b'a,b\n1, "x"\n', "line 2: a quote stands"),
    "a field too few": (b"a,b\n1,x\n2\n3,z\n", "line 3: has another number of fields"),
    "a field too many": (b"a,b\n1,x\n2,y,\n", "line 3: has another number of fields"),
    "a field too few at the end": (b"a,b\n1,x\n2", "line 3: has another number of fields"),
    "a carriage return outside quotes": (b"a,b\n1,x\ry\n2,z\n", "line 2: a carriage return stands outside"),
    "a carriage return at the end": (b"a,b\n1,x\r", "line 2: a carriage return stands outside"),
    "carriage returns alone": (b"a,b\r1,x\r2,z\r", "line 1: a carriage return .* end lines with LF"),
    "a ragged line": (b"a,b\n1,x\n2\n", "line 3: .* give each line as many fields as the first"),
    "Latin 1": (b"a,b\n1,x\n1,\xe9\n2,z\n", "line 3: is not text in UTF-8; save the file again, as UTF-8"),
    "a character that is cut off": (b"a,b\n1,\xc3", "line 2: is not text in UTF-8"),
    "a character that is cut off by a line end": (b"a,b\n1,\xc3\n2,z\n", "line 2: is not text in UTF-8"),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_a_table_is_read_whole(name: str, tmp_path: Path) -> None:
    path, data = tmp_path / "rows.csv", GOOD[name]
    path.write_bytes(data)
    expected = python(data, 2)
    assert expected is not None
    assert rows_of(str(path), 2) == len(expected)
    assert same(read(path, ["a", "b"]), expected)


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("compressed", [False, True])
def test_what_is_no_table_is_refused_and_its_owner_told_where(name: str, tmp_path: Path, compressed: bool) -> None:
    """One quote too many swallowed the rows of fifty others, and lines with a field too few were dropped."""
    data, rule = BAD[name]
    path = tmp_path / ("rows.csv.gz" if compressed else "rows.csv")
    path.write_bytes(gzip.compress(data) if compressed else data)
    with pytest.raises(InvalidParameter, match=rule):
        read(path, ["a", "b"])


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_where_a_block_ends_makes_no_difference(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deniable.csv_structure._BLOCK", size)
    for data in GOOD.values():
        if data.startswith(b"\xef") and size < 3:
            continue
        (tmp_path / "rows.csv").write_bytes(data)
        expected = python(data, 2)
        assert expected is not None
        assert rows_of(str(tmp_path / "rows.csv"), 2) == len(expected)
    for data, rule in BAD.values():
        (tmp_path / "rows.csv").write_bytes(data)
        with pytest.raises(InvalidParameter, match=rule):
            rows_of(str(tmp_path / "rows.csv"), 2)


def test_an_empty_quoted_field_is_a_text_and_an_empty_one_is_null(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b'a,b\n1,""\n2,\n')
    assert read(tmp_path / "rows.csv", ["a", "b"]) == [("1", ""), ("2", None)]


PIECES = [
    '"',
    '""',
    ",",
    "\n",
    "\r\n",
    "\r",
    "x",
    "é",
    "\u2028",
    "\ufeff",
    " ",
    "1",
    "\x00",
    "'",
    "\\",
    "\t",
    '"x"',
    '"\r"',
]


def drawn(random: Random, columns: int) -> bytes:
    """A file: mostly tables as some program would write them, some with a byte too many or too few, some noise."""
    end = random.choice(["\n", "\r\n"])
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=end, quoting=random.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    writer.writerow([f"c{at}" for at in range(columns)])
    for _ in range(random.randrange(6)):
        writer.writerow(["".join(random.choices(PIECES, k=random.randrange(4))) for _ in range(columns)])
    data = text.getvalue()
    head = data.index(end) + len(end)
    for _ in range(random.choice([0, 0, 0, 1, 2])):
        at = random.randrange(head, len(data) + 1)
        data = data[:at] + random.choice([*PIECES, end + end]) + data[at + random.randrange(2) :]
    return (random.choice(["", "", "\ufeff"]) + data).encode()


def checked(rounds: int, tmp_path: Path) -> tuple[int, int]:
    seed = secrets.randbits(64)
    print(f"seed {seed}")
    random, path, whole = Random(seed), tmp_path / "rows.csv", 0
    for _ in range(rounds):
        columns = random.randrange(1, 4)
        data = drawn(random, columns)
        path.write_bytes(data)
        names = [f"c{at}" for at in range(columns)]
        try:
            found = read(path, names)
        except DeniableError:
            continue
        expected = python(data, columns)
        assert expected is not None, data
        assert same(found, expected), data
        whole += 1
    return whole, rounds


def test_random_files_are_read_as_python_reads_them_or_refused(tmp_path: Path) -> None:
    whole, rounds = checked(40, tmp_path)
    assert whole > rounds // 8


@pytest.mark.slow
def test_many_random_files_are_read_as_python_reads_them_or_refused(tmp_path: Path) -> None:
    whole, rounds = checked(400, tmp_path)
    assert whole > rounds // 4


@pytest.mark.parametrize("block", [1, 2, 3, 5, 7, 1 << 20])
def test_records_of_several_lines_are_counted_whatever_the_blocks_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr("deniable.csv_structure._BLOCK", block)
    path = tmp_path / "t.csv"
    path.write_bytes(b'a,b\n1,"x\ny"\n\n2,"x"\n3,"p\r\nq\nr"\n4,"last\n"')
    found = extent_of(str(path), 2)
    assert (found.rows, found.spanning, found.widest) == (4, 3, 3)
    path.write_bytes(b"a,b\n1,x\n")
    assert extent_of(str(path), 2)[2:4] == (0, 1)
