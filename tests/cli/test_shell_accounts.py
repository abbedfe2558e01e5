"""Accounts of files in the shell: one for each file, whatever name it is asked by."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import duckdb
import pytest

from deniable.ledger import Ledger, State
from tests.cli.shell import asked, refused

COUNT = "SELECT COUNT(*) AS n FROM visits"
FIRST = ["--each-row", "--budget", "1", "--epsilon", "0.9"]


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    path = tmp_path / "visits.csv"
    path.write_text("ward\n" + "A\n" * 100, encoding="utf-8")
    return path


def test_a_symbolic_link_to_a_table_spends_from_the_same_account(visits: Path, tmp_path: Path) -> None:
    asked("ask", str(visits), COUNT, *FIRST)
    (tmp_path / "other").mkdir()
    for link in (tmp_path / "link.csv", tmp_path / "other" / "visits.csv"):
        link.symlink_to(visits)
        code, said = refused("ask", str(link), f"{COUNT} WHERE ward = 'A'", *FIRST)
        assert (code, "left epsilon 0.1" in said) == (1, True), said
    (tmp_path / "folder").symlink_to(tmp_path)
    code, said = refused("ask", str(tmp_path / "folder" / "visits.csv"), f"{COUNT} WHERE ward = 'A'", *FIRST)
    assert "left epsilon 0.1" in said
    assert [each.name for each in tmp_path.rglob("*.ledger")] == ["visits.csv.ledger"]


def test_a_hard_link_to_a_table_gets_no_second_account(visits: Path, tmp_path: Path) -> None:
    asked("ask", str(visits), COUNT, *FIRST)
    (tmp_path / "other").mkdir()
    for link in (tmp_path / "link.csv", tmp_path / "other" / "visits.csv"):
        os.link(visits, link)
        code, said = refused("ask", str(link), COUNT, *FIRST)
        assert (code, "several names (hard links)" in said) == (2, True), said
    assert f"ask {tmp_path}/visits.csv without --ledger" in refused("ask", str(tmp_path / "link.csv"), COUNT, *FIRST)[1]
    assert len(list(tmp_path.rglob("*.ledger"))) == 1
    asked("ask", str(visits), COUNT, "--epsilon", "0.9")  # the account that is there goes on


def test_a_file_that_has_an_account_gets_no_second_one_by_naming_another_ledger(visits: Path, tmp_path: Path) -> None:
    """The remedy of a refused hard link once was --ledger, and that opened a fresh budget beside the one there was."""
    asked("ask", str(visits), COUNT, *FIRST)
    hard = tmp_path / "hard.csv"
    os.link(visits, hard)
    fresh = tmp_path / "fresh.ledger"
    for name in (hard, visits):
        code, said = refused("ask", str(name), f"SELECT COUNT(*) AS n FROM {name.stem}", *FIRST, "--ledger", str(fresh))
        assert (code, f"has an account already, in {tmp_path}/visits.csv.ledger" in said) == (2, True), said
    other = tmp_path / "other.csv"
    other.write_text("ward\nA\n", encoding="utf-8")
    asked("ask", str(other), "SELECT COUNT(*) AS n FROM other", *FIRST)
    code, said = refused("ask", str(visits), COUNT, "--epsilon", "0.1", "--ledger", str(tmp_path / "other.csv.ledger"))
    assert (code, f"has an account already, in {tmp_path}/visits.csv.ledger" in said) == (2, True), said
    assert not fresh.exists()
    asked("ask", str(visits), COUNT, "--epsilon", "0.9", "--ledger", str(tmp_path / "visits.csv.ledger"))


def test_a_hard_linked_table_without_an_account_is_asked_once_it_has_one_name(visits: Path, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    hard = tmp_path / "far" / "visits.csv"
    os.link(visits, hard)
    for name in (hard, visits):
        for more in ([], ["--ledger", str(tmp_path / "fresh.ledger")]):
            code, said = refused("ask", str(name), COUNT, *FIRST, *more)
            assert (code, "remove its other names" in said, "--ledger" in said) == (2, True, False), said
    assert not list(tmp_path.rglob("*.ledger"))
    hard.unlink()
    asked("ask", str(visits), COUNT, *FIRST)


def test_each_table_of_a_database_may_have_an_account_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "both.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE visits AS SELECT 1 AS a; CREATE TABLE stays AS SELECT 1 AS a")
    asked("ask", str(path), COUNT, "--table", "visits", *FIRST)
    code, said = refused("ask", str(path), "SELECT COUNT(*) AS n FROM stays", "--table", "stays", *FIRST)
    assert (code != 0, "keep another ledger" in said, "spend the budget twice" in said) == (True, False, True), said
    more = ["--ledger", str(tmp_path / "stays.ledger")]
    asked("ask", str(path), "SELECT COUNT(*) AS n FROM stays", "--table", "stays", *FIRST, *more)
    more = ["--ledger", str(tmp_path / "again.ledger")]
    code, said = refused("ask", str(path), COUNT, "--table", "visits", *FIRST, *more)
    assert (code, f"has an account already, in {tmp_path}/both.duckdb.ledger" in said) == (2, True), said


def test_a_ledger_that_was_moved_is_used_when_its_owner_says_so(visits: Path, tmp_path: Path) -> None:
    asked("ask", str(visits), COUNT, *FIRST)
    kept, copy = tmp_path / "visits.csv.ledger", tmp_path / "copy.ledger"
    shutil.copy(kept, copy)
    code, said = refused("ask", str(visits), COUNT, "--ledger", str(copy), "--epsilon", "0.1")
    assert (code, "deniable moved copy.ledger" in said) == (1, True), said
    assert json.loads(asked("verify", str(copy), "--json"))["whole"]
    assert "entry 3" in asked("moved", str(copy), "--reason", "a new disk")
    assert json.loads(asked("moved", str(copy), "--reason", "again", "--json")) == {"moved": False, "entry": None}
    asked("ask", str(visits), COUNT, "--ledger", str(copy), "--epsilon", "0.1")
    with Ledger.open(copy) as ledger:
        assert [each.state for each in ledger.entries()][-1] is State.MOVED


def test_the_owner_sees_which_rows_got_lost_and_an_answer_does_not_say(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("who,ward\na,A\na,A\na,A\nb,X\n,A\n", encoding="utf-8")
    (tmp_path / "visits.yaml").write_text(
        "version: 1\ntables:\n  visits:\n    person: who\n    rows: 2\n"
        "    columns:\n      ward: {kind: text, keys: [A, B], nullable: false}\n",
        encoding="utf-8",
    )
    schema = ["--schema", str(tmp_path / "visits.yaml")]
    found = json.loads(asked("report", str(path), *schema, "--json"))
    assert found == {"read": 5, "left_out": {"who": 1, "ward": 1}, "cut": 1, "kept": 2, "people": 1}
    assert "1 left out: no value in 'ward'" in asked("report", str(path), *schema)
    assert not list(tmp_path.glob("*.ledger"))
    answer = json.loads(asked("ask", str(path), COUNT, *schema, "--budget", "1", "--epsilon", "0.5", "--json"))
    assert "rows whose value is not in its public list are left out: ward" in answer["notes"]
    assert "registration" not in answer


def test_a_link_that_leads_back_to_itself_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    (tmp_path / "gone.csv").symlink_to("nothing")
    for name in ("loop.csv", "gone.csv"):
        path = str(tmp_path / name)
        for command in (
            ["ask", path, COUNT, *FIRST], ["bounds", path, "ward", "--kind", "real", *FIRST], ["report", path, "--each-row"],
            ["schema", path], ["price", path, COUNT, *FIRST],
        ):  # fmt: skip
            code, said = refused(*command)
            assert (code, "source=" in said) == (2, True), (command, said)


def test_versions_of_a_file_share_its_account(tmp_path: Path) -> None:
    """Also a price, which reads no data, of an account with versions."""
    (tmp_path / "visits.csv").write_text("age\n" + "30\n" * 50)
    count = (str(tmp_path / "visits.csv"), "SELECT COUNT(*) AS n FROM visits", "--each-row", "--epsilon", "0.4")
    assert "version monday" in flat(asked("ask", *count, "--budget", "1", "--version", "monday"))
    assert "asked before" in flat(asked("ask", *count))
    (tmp_path / "visits.csv").write_text("age\n" + "30\n" * 60)
    assert "declare it under a new name" in flat(refused("ask", *count)[1])
    asked("price", *count)
    second = flat(asked("ask", *count, "--version", "tuesday"))
    assert "left epsilon 0.2" in second
    assert "version tuesday" in second
    assert "left epsilon 0.2" in flat(refused("ask", *count, "--version", "wednesday")[1])


def flat(text: str) -> str:
    return " ".join(text.split())
