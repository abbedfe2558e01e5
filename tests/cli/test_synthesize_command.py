"""`deniable synthesize`: rows in a file, from the account of `deniable ask`, and nothing paid for what cannot be done."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deniable.ledger import Ledger, State
from tests.cli.shell import asked, refused

pd = pytest.importorskip("pandas")
pytest.importorskip("duckdb")

SCHEMA = """\
version: 1
tables:
  people:
    neighbours: add/remove
    columns:
      sex: {kind: text, keys: [f, m], nullable: false}
      smokes: {kind: boolean, nullable: false}
      age: {kind: integer, low: 18, high: 90}
      name: {kind: text}
"""
NEW = ["--budget", "1", "--delta", "1e-9"]


@pytest.fixture
def people(tmp_path: Path) -> Path:
    generator = np.random.default_rng(1)
    sex = generator.choice(["f", "m"], 3000)
    smokes = generator.random(3000) < np.where(sex == "f", 0.1, 0.6)
    pd.DataFrame({"sex": sex, "smokes": smokes, "age": generator.integers(18, 91, 3000), "name": "x"}).to_csv(
        tmp_path / "people.csv", index=False
    )
    (tmp_path / "people.yaml").write_text(SCHEMA, encoding="utf-8")
    return tmp_path / "people.csv"


def command(people: Path, out: str, *more: str, columns: str = "sex,smokes", epsilon: str = "0.5") -> list[str]:
    about = ["--schema", str(people.with_suffix(".yaml")), "--out", str(people.parent / out)]
    return ["synthesize", str(people), *about, "--columns", columns, "--epsilon", epsilon, *more]


def entries(people: Path) -> list[Any]:
    path = people.with_name("people.csv.ledger")
    if not path.exists():
        return []
    with Ledger.inspect(path) as ledger:
        return [each.state for each in ledger.entries()]


def test_rows_go_into_a_file_and_the_cost_is_said_before_and_after(people: Path) -> None:
    said = asked(*command(people, "s.csv", *NEW, "--rows", "1000"))
    lines = [line.split()[0] for line in said.splitlines() if not line.startswith("note ")]  # a fit can have some
    assert lines[:2] == ["cost", "counted"]
    assert lines[-5:] == ["paid", "left", "promise", "assumes", "saved"]
    assert "1,000 synthetic rows of sex, smokes" in said
    with (people.parent / "s.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 1000
    assert {row["sex"] for row in rows} == {"f", "m"}
    assert {row["smokes"] for row in rows} == {"true", "false"}
    smoking = {sex: np.mean([row["smokes"] == "true" for row in rows if row["sex"] == sex]) for sex in "fm"}
    assert smoking["m"] - smoking["f"] > 0.3
    assert entries(people) == [State.RESERVED, State.SEALED]


def test_a_cost_too_small_for_the_table_could_not_be_refused_in_the_shell(people: Path) -> None:
    """It paid, and wrote a million rows of noise. Python has `rows=` for this."""
    for more in (["--table-rows", "3000", *NEW], ["--table-rows", "0", *NEW]):
        code, said = refused(*command(people, "s.csv", *more, epsilon="0.000001"))
        assert code == 2
        assert ("is too small for 3,000 rows" in said) or ("--table-rows=0" in said)
    assert entries(people) == []
    assert not (people.parent / "s.csv").exists()
    assert "3,000 synthetic rows" in asked(*command(people, "s.csv", "--table-rows", "3000", *NEW))
    before = entries(people)
    refused(*command(people, "t.csv", "--table-rows", "3000", epsilon="0.000001", columns="sex,age"))
    assert entries(people) == before


def test_a_second_call_is_a_replay_from_the_account_of_ask(people: Path) -> None:
    asked(*command(people, "s.parquet", *NEW, "--rows", "500", columns="sex,smokes,age"))
    assert len(pd.read_parquet(people.parent / "s.parquet")) == 500
    told = json.loads(asked(*command(people, "more.csv", "--json", "--rows", "2000", columns="age,smokes,sex")))
    assert told["replayed"] is True
    assert told["entry"] == 1
    assert told["columns"] == ["age", "smokes", "sex"]
    assert entries(people) == [State.RESERVED, State.SEALED]
    about = ["--schema", str(people.with_suffix(".yaml"))]
    code, said = refused("ask", str(people), "SELECT COUNT(*) AS n FROM people", "--epsilon", "0.9", *about)
    assert (code, "left epsilon" in said) == (1, True), said


def test_without_rows_there_are_about_as_many_as_the_table_has(people: Path) -> None:
    told = json.loads(asked(*command(people, "s.csv", *NEW, "--json")))
    assert abs(told["rows"] - 3000) < 300
    assert told["rows"] == len((people.parent / "s.csv").read_text(encoding="utf-8").splitlines()) - 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--columns", "name"], "neither keys nor bounds"),
        (["--columns", "nothing"], "nothing"),
        (["--bins", "age"], "must give a number for each column"),
        (["--bins", "smokes=5"], "bins"),
        (["--target", "age"], "target"),
        (["--rows", "0"], "--rows"),
        (["--mu", "1"], "exactly one"),
        (["--out", "rows.xlsx"], "must end with .csv or .parquet"),
        (["--out", "no/such/folder/rows.csv"], "folder that does not exist"),
        (["--epsilon", "-1"], "epsilon"),
        (["--unit", "sex"], "--unit-rows"),
    ],
)
def test_what_is_wrong_is_said_before_there_is_an_account(people: Path, more: list[str], said: str) -> None:
    code, told = refused(*command(people, "s.csv", *NEW), *more)
    assert code == 2, told
    assert said in told
    assert entries(people) == []
    assert sorted(each.name for each in people.parent.iterdir()) == ["people.csv", "people.yaml"]


def test_a_file_that_is_there_is_written_over_only_if_that_is_said(people: Path) -> None:
    kept = people.parent / "s.csv"
    kept.write_text("mine", encoding="utf-8")
    code, said = refused(*command(people, "s.csv", *NEW))
    assert (code, "--overwrite" in said) == (2, True)
    assert kept.read_text(encoding="utf-8") == "mine"
    assert entries(people) == []
    asked(*command(people, "s.csv", *NEW, "--overwrite", "--rows", "10"))
    assert kept.read_text(encoding="utf-8").startswith("sex,smokes")


def test_what_does_not_fit_into_the_budget_is_not_charged(people: Path) -> None:
    """Nor is its price printed, as if it had been paid: a refusal is one message."""
    asked(*command(people, "s.csv", *NEW, "--rows", "10"))
    before = entries(people)
    code, said = refused(*command(people, "t.csv", columns="sex,age", epsilon="0.99"))
    assert (code, "left epsilon" in said) == (1, True), said
    assert entries(people) == before
    assert not (people.parent / "t.csv").exists()


def test_large_files_are_written_in_parts(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deniable.queries.synthetic.synthetic_records._AT_ONCE", 300)
    for name in ("s.csv", "s.parquet"):
        asked(*command(people, name, *(NEW if name == "s.csv" else ()), "--rows", "1000", columns="sex,age"))
    assert len(pd.read_csv(people.parent / "s.csv")) == len(pd.read_parquet(people.parent / "s.parquet")) == 1000


def test_a_workload_and_keys_that_are_found(people: Path) -> None:
    more = ["--workload", "sex,smokes", "--unlisted", "name", "--rows", "50"]
    said = asked(*command(people, "s.csv", *NEW, *more, columns="sex,smokes,name", epsilon="0.9"))
    assert "keys     of name: shown from about" in said
    assert "4 tables" in said
    rows = pd.read_csv(people.parent / "s.csv")
    assert "x" in set(rows.name.dropna())


@pytest.mark.parametrize("method", ["mst", "adaptive"])
def test_tables_are_chosen_by_the_data(people: Path, method: str) -> None:
    more = ["--method", method, "--rows", "50"]
    said = asked(*command(people, "s.csv", *NEW, *more, columns="sex,smokes,age", epsilon="0.9"))
    told = "2 of 3 tables" if method == "mst" else "one of 3 tables, up to 8 times"
    assert f"chosen {told}, by the exponential mechanism" in " ".join(said.split())
    assert len(pd.read_csv(people.parent / "s.csv")) == 50


def test_a_price_is_said_and_nothing_is_charged_or_written(people: Path) -> None:
    """The price was printed, and charged in the same breath, however useless: there was no way to see it first."""
    words = ["synthesize", str(people), "--schema", str(people.with_suffix(".yaml")), "--columns", "sex,age"]
    said = asked(*words, "--epsilon", "0.001", *NEW, "--price")
    assert [line.split()[0] for line in said.splitlines()] == ["cost", "counted", "noise", "of", "left"]
    assert sorted(each.name for each in people.parent.iterdir()) == ["people.csv", "people.yaml"]
    asked(*command(people, "s.csv", *NEW))
    before = entries(people)
    told = json.loads(asked(*words, "--epsilon", "0.001", "--price", "--json"))
    assert told["least_rows"] > 3000
    code, why = refused(*words, "--epsilon", "0.001", "--price", "--table-rows", "3000")
    assert code == 2
    assert "is too small for 3,000 rows" in why
    assert entries(people) == before
    assert "--price alone" in refused(*words, "--epsilon", "0.1")[1]
    assert "--price alone" in refused(*command(people, "t.csv", "--price"))[1]


@pytest.mark.parametrize("link", [None, "symbolic", "hard"])
def test_the_table_itself_is_never_overwritten(people: Path, link: str | None) -> None:
    """`--out people.csv --overwrite` replaced the real table by synthetic rows."""
    before, out = people.read_bytes(), "people.csv"
    if link is not None:
        asked(*command(people, "s.csv", *NEW, "--rows", "10"))  # a file with two names gets no new account
        out = "other.csv"
        (people.parent / out).symlink_to(people) if link == "symbolic" else (people.parent / out).hardlink_to(people)
    spent = entries(people)
    code, said = refused(*command(people, out, *NEW, "--overwrite"))
    assert code == 2
    assert "is the table that is read: its rows would be lost; name a file in another place" in " ".join(said.split())
    assert people.read_bytes() == before
    assert entries(people) == spent


@pytest.mark.parametrize("source", ["folder/*.csv", "folder/**/*.csv"])
def test_rows_are_not_written_among_the_files_that_are_asked(people: Path, source: str) -> None:
    """The next question would have read the made-up people as real ones."""
    folder = people.parent / "folder"
    (folder / "below").mkdir(parents=True)
    for name in ("a.csv", "b.csv"):
        (folder / name).write_bytes(people.read_bytes())
    about = ["--out", str(folder / "s.csv"), "--columns", "sex", "--epsilon", "0.5", *NEW]
    code, said = refused(
        "synthesize", str(people.parent / source), "--schema", str(people.with_suffix(".yaml")), *about
    )
    assert (code, "would be read as one of them" in " ".join(said.split())) == (2, True)
    assert not (folder / "s.csv").exists()


def test_a_column_without_keys_is_told_in_the_words_of_the_shell(people: Path) -> None:
    """The remedies were calls of Python: bounds("name"), unlisted=["name"]."""
    code, said = refused(*command(people, "s.csv", *NEW, columns="sex,name"))
    note = "--schema names a file that declares keys, and --unlisted name finds keys"
    assert (code, note in " ".join(said.split())) == (2, True)
    people.with_suffix(".yaml").write_text(SCHEMA.replace(", low: 18, high: 90", ""), encoding="utf-8")
    code, said = refused(*command(people, "s.csv", *NEW, columns="sex,age"))
    assert (code, "buys bounds, and --unlisted age finds keys" in " ".join(said.split())) == (2, True)
