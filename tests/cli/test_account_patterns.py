"""Accounts of several files that are asked together: a wildcard or a folder is no way to a second account."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.cli.shell import asked, refused

COUNT = "SELECT COUNT(*) AS n FROM "
FIRST = ["--each-row", "--budget", "1", "--epsilon", "1"]


@pytest.fixture
def many(tmp_path: Path) -> Path:
    folder = tmp_path / "many"
    folder.mkdir()
    for name in "ab":
        (folder / f"{name}.csv").write_text("ward\n" + "A\n" * 100, encoding="utf-8")
    return folder


def ledgers(folder: Path) -> set[str]:
    return {str(each.relative_to(folder)) for each in folder.rglob("*.ledger")}


def test_a_wildcard_that_meets_a_file_with_an_account_gets_no_second_one(many: Path) -> None:
    """Each of them was answered from a new ledger at the whole budget, though a.csv had spent its own."""
    asked("ask", str(many / "a.csv"), f"{COUNT} a", *FIRST)
    for pattern in ("?.csv", "*.csv", "[ab].csv", "../many/?.csv", "../*/?.csv", "../**/*.csv"):
        for more in ([], ["--ledger", str(many / "new.ledger")]):
            code, said = refused("ask", str(many / pattern), f"{COUNT} data", *FIRST, *more)
            found = re.search(r"a\.csv\s+has\s+an\s+account\s+already,\s+in\s+\S*a\.csv\.ledger", said)
            assert (code, found is not None) == (2, True), said
    for pattern in ("a*.csv", "[a].csv", "*a.csv", "../*/a.csv"):  # they mean this file alone
        code, said = refused("ask", str(many / pattern), f"{COUNT} a WHERE ward = 'A'", "--epsilon", "1")
        assert (code, "left epsilon 0" in said) == (1, True), said
    assert ledgers(many) == {"a.csv.ledger"}


def test_a_wildcard_of_one_file_opens_the_account_of_that_file(many: Path) -> None:
    asked("ask", str(many / "a*.csv"), f"{COUNT} a", *FIRST)
    assert ledgers(many) == {"a.csv.ledger"}


def test_a_file_of_several_that_have_an_account_gets_none_of_its_own(many: Path) -> None:
    asked("ask", str(many / "?.csv"), f"{COUNT} data", *FIRST)
    assert ledgers(many) == {"?.csv.ledger"}
    for name, table in (("a.csv", "a"), ("[ab].csv", "ab"), ("*.csv", "data"), ("../**/*.csv", "data")):
        code, said = refused("ask", str(many / name), f"{COUNT} {table}", *FIRST)
        assert (code, "?.csv.ledger" in said) == (2, True), said
    (many / "c.csv").write_text("ward\nA\n", encoding="utf-8")  # of this pattern too, once it is there
    code, said = refused("ask", str(many / "c.csv"), f"{COUNT} c", *FIRST)
    assert (code, "?.csv.ledger" in said) == (2, True), said
    (many / "c.csv").unlink()
    (many / "dd.csv").write_text("ward\nA\n", encoding="utf-8")
    asked("ask", str(many / "dd.csv"), f"{COUNT} dd", *FIRST)
    asked("ask", str(many / "?.csv"), f"{COUNT} data", "--epsilon", "1")  # asked before: the same answer, for nothing
    assert ledgers(many) == {"?.csv.ledger", "dd.csv.ledger"}


def test_a_pattern_over_folders_keeps_its_account_where_its_files_find_it(many: Path) -> None:
    top = many.parent
    asked("ask", str(top / "*" / "?.csv"), f"{COUNT} data", *FIRST)
    assert ledgers(top) == {"*%2F?.csv.ledger"}
    for path, table in (("many/a.csv", "a"), ("many/?.csv", "data"), ("many/*.csv", "data")):
        code, said = refused("ask", str(top / path), f"{COUNT} {table}", *FIRST)
        assert (code, "*%2F?.csv.ledger" in said) == (2, True), said


def test_a_folder_and_its_files_have_one_account(tmp_path: Path) -> None:
    """The folder `many` got a budget of its own beside that of many/a.parquet, and so did folders above."""
    for first, others in (
        ("many/deep/a.parquet", ("many", "many/deep")),
        ("many", ("many/deep/a.parquet", "many/deep")),
    ):
        top = tmp_path / str(len(others[0]))
        for name in ("deep/a.parquet", "b.parquet"):
            (top / "many" / name).parent.mkdir(parents=True, exist_ok=True)
            pyarrow.parquet.write_table(pa.table({"x": [1] * 50}), top / "many" / name)
        asked("ask", str(top / first), f"{COUNT} {Path(first).stem}", *FIRST)
        for other in others:
            code, said = refused("ask", str(top / other), f"{COUNT} {Path(other).stem}", *FIRST)
            assert (code, "has an account already, in" in said) == (2, True), said
        assert ledgers(top) == {f"{first}.ledger"}


def test_several_files_with_links_among_them_get_no_account(many: Path) -> None:
    """What a link leads to may have an account that is not seen from here, or get one that does not see this one."""
    other = many.parent / "other"
    other.mkdir()
    (other / "a.csv").symlink_to(many / "a.csv")
    (other / "c.csv").write_text("ward\nA\n", encoding="utf-8")
    code, said = refused("ask", str(other / "?.csv"), f"{COUNT} data", *FIRST)
    assert (code, "symbolic link" in said) == (2, True), said
    (other / "a.csv").unlink()
    os.link(many / "a.csv", other / "a.csv")
    code, said = refused("ask", str(other / "?.csv"), f"{COUNT} data", *FIRST)
    assert (code, "several names (hard links)" in said) == (2, True), said
    assert ledgers(many.parent) == set()
