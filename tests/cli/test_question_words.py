"""What `deniable ask` says where it cannot answer: the true reason, and names that can be typed where one stands."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.cli.shell import asked, refused

FIRST = ["--each-row", "--budget", "1", "--epsilon", "1"]
COUNT = "SELECT COUNT(*) AS n FROM a"


@pytest.fixture
def above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "above" / "p").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "above")
    parquet.write_table(pa.table({"ward": ["A"] * 9}), "p/a.parquet")
    return tmp_path / "above"


def plain(said: str) -> str:
    return " ".join(said.split())


def test_another_account_is_named_as_it_is_called_from_here(above, monkeypatch) -> None:
    """From the folder above it was ".", which is another folder to whoever reads that."""
    asked("ask", "p", COUNT.replace("FROM a", "FROM p"), *FIRST)
    code, said = refused("ask", "p/a.parquet", COUNT, *FIRST)
    assert code == 2
    assert "p has an account already, in p.ledger; ask p without --ledger" in plain(said)
    for folder, source in ((above / "p", "a.parquet"), (above.parent, "above/p/a.parquet")):
        monkeypatch.chdir(folder)
        code, said = refused("ask", source, COUNT, *FIRST)
        words = plain(said)
        name = words.partition("; ask ")[2].removesuffix(" without --ledger")
        assert Path(name).resolve() == above / "p"
        assert name != "."
        kept = words.partition("already, in ")[2].partition(";")[0]
        assert Path(kept).resolve() == above / "p.ledger"


def test_a_folder_behind_a_pattern_has_a_name(above) -> None:
    code, said = refused("ask", "p/**", COUNT, *FIRST)
    assert code == 2
    assert "p is a folder" in plain(said)


def test_a_folder_of_csv_files_is_there_and_says_how_to_name_them(above) -> None:
    (above / "c").mkdir()
    (above / "e").mkdir()
    (above / "c" / "a.csv").write_text("ward\nA\n", encoding="utf-8")
    code, said = refused("ask", "c", COUNT, *FIRST)
    assert code == 2
    assert "a folder without Parquet files; name its CSV files by a pattern: c/*.csv" in plain(said)
    assert "a folder without Parquet files" in plain(refused("ask", "e", COUNT, *FIRST)[1])


@pytest.mark.parametrize("command", [["ask"], ["price"]])
def test_a_missing_file_was_an_account_that_is_not_there_yet(above, command) -> None:
    code, said = refused(*command, "visits.csv", COUNT, "--each-row", "--epsilon", "1")
    assert code == 2
    assert "there is no such file" in said
    assert "there is no such file" in refused("report", "visits.csv", "--each-row")[1]
    assert (
        "there is no such file"
        in refused("bounds", "visits.csv", "x", "--kind", "real", "--each-row", "--epsilon", "1")[1]
    )
    assert os.listdir(above) == ["p"]


@pytest.mark.parametrize("length", [241, 244, 251])
def test_a_name_too_long_for_an_account_beside_it_leaves_nothing_behind(above, length) -> None:
    name = "a" * (length - 4) + ".csv"
    (above / name).write_text("ward\nA\n", encoding="utf-8")
    code, said = refused("ask", name, f"SELECT COUNT(*) AS n FROM {'a' * (length - 4)}", *FIRST)
    assert code == 2
    assert "too long: the files beside a ledger" in said
    assert "--ledger" in said
    assert sorted(os.listdir(above)) == [name, "p"]
    asked("ask", name, f"SELECT COUNT(*) AS n FROM {'a' * (length - 4)}", *FIRST, "--ledger", "short.ledger")


@pytest.mark.skipif(os.name == "nt", reason="shells of Windows cannot close it")
def test_without_a_standard_output_nothing_is_charged(above) -> None:
    command = f'exec "{sys.executable}" -m deniable ask p/a.parquet "{COUNT}" {" ".join(FIRST)} >&-'
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "deniable: the standard output is closed, so the answer would be lost; nothing was done. "
        "Redirect it to /dev/null if you do not need it\n"
    )
    assert os.listdir(above) == ["p"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["verify", "p"], "Is a directory: p; name a file, not a folder"),
        (["verify", "nowhere"], "No such file or directory: nowhere; check the path"),
        (
            ["curve", "pure(epsilon=1)", "--delta", "0", "--plot", "no/x.png"],
            "No such file or directory: no/x.png; check",
        ),
    ],
)
def test_what_the_system_refuses_comes_with_what_to_do(above, arguments, said) -> None:
    code, words = refused(*arguments)
    assert code == 1
    assert said in plain(words)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_names_no_empty_file() -> None:
    """It ended with a colon and nothing behind it."""
    command = f'"{sys.executable}" -m deniable curve "pure(epsilon=1)" --delta 0 > /dev/full'
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "deniable: No space left on device; free some space on the disk, then run it again\n"


def test_the_usage_line_leaves_hidden_arguments_out() -> None:
    """It ended with []..."""
    usage = next(line for line in asked("attack", "--help").splitlines() if "Usage:" in line)
    assert usage.split()[-3:] == ["attack", "[OPTIONS]", "[name]"]


def test_a_table_that_the_schema_calls_otherwise_says_how_to_join_the_two(above) -> None:
    (above / "v.yaml").write_text("tables:\n  visits:\n    neighbours: replace\n    columns: {ward: {kind: text}}\n")
    code, said = refused("ask", "p/a.parquet", COUNT, "--schema", "v.yaml", "--budget", "1", "--epsilon", "1")
    assert code == 2
    assert "is not in the schema; the schema declares visits; if one of these is this table, name it a there" in plain(
        said
    )


@pytest.mark.skipif(os.name != "posix", reason="terminals of POSIX")
def test_at_a_terminal_a_proposed_schema_says_what_to_do_with_it(above) -> None:
    """Every column of a CSV file was text, an age too, without a word."""
    (above / "v.csv").write_text("ward,age\nA,3\n", encoding="utf-8")
    mine, theirs = os.openpty()
    command = [sys.executable, "-m", "deniable", "schema", "v.csv"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, text=True, check=True)
    assert select.select([mine], [], [], 5)[0]
    said = plain(os.read(mine, 1000).decode())
    os.close(mine)
    os.close(theirs)
    assert done.stdout.startswith("# A CSV file has no types")  # whoever reads the file sees it, too
    assert "Replace" not in done.stdout
    assert said.startswith("Replace each FILL IN, or take it out, and correct the kinds: all columns of a CSV file")


def test_a_header_that_cannot_be_asked_gets_no_schema(tmp_path: Path) -> None:
    """Of two columns with one name one was left out without a word, and a nameless one got a line of its own."""
    (tmp_path / "a.csv").write_text("id,ward,ward\n1,A,B\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text(",ward\n1,A\n", encoding="utf-8")
    code, said = refused("schema", str(tmp_path / "a.csv"))
    assert (code, "columns='ward': the source has more than one column of this name" in plain(said)) == (2, True)
    code, said = refused("schema", str(tmp_path / "b.csv"))
    assert (code, "every column must have a name; name it, or leave it out" in plain(said)) == (2, True)


def test_a_spent_budget_is_said_to_be_used_up(above) -> None:
    """It was "lower the cost" where nothing was left."""
    asked("ask", "p/a.parquet", COUNT, *FIRST)
    for cost in (["--epsilon", "1e-9"], ["--share", "0.5"]):
        code, said = refused("ask", "p/a.parquet", "SELECT COUNT(*) AS n FROM a WHERE ward = 'B'", *cost)
        assert code == 1
        assert "the limit is used up, but answers to earlier questions can still be read" in plain(said)


def test_a_distance_that_is_too_large_is_not_called_negative(above) -> None:
    code, said = refused("price", "p/a.parquet", COUNT, "--each-row", "--budget", "1", "--within", "1e300")
    assert (code, "must be a positive number below 1e300" in plain(said)) == (2, True)


def test_a_comparison_of_two_kinds_is_named_by_its_sign(above) -> None:
    """It was "gt takes two of one kind, not text, integer"."""
    code, said = refused("price", "p/a.parquet", COUNT + " WHERE ward > 3", *FIRST)
    assert (code, "> takes two values of one kind, not text and integer; write CAST(ward" in plain(said)) == (2, True)


def test_an_account_says_whom_it_protects(above) -> None:
    """It was "protects others"."""
    asked("ask", "p/a.parquet", COUNT, *FIRST)
    code, said = refused("ask", "p/a.parquet", COUNT, "--epsilon", "1", "--unit", "ward", "--rows", "2")
    assert (code, "was opened to protect each row (--each-row)" in plain(said)) == (2, True)


SCHEMA = """\
version: 1
tables:
  a:
    neighbours: add/remove
    columns:
      ward: {kind: text, keys: [A, B]}
"""


def test_a_schema_that_was_forgotten_costs_nothing(above) -> None:
    """The second question grouped by keys that nobody listed: an empty answer, and it was charged."""
    Path("a.yaml").write_text(SCHEMA, encoding="utf-8")
    by_ward = "SELECT ward, COUNT(*) AS n FROM a GROUP BY ward"
    new = ["--budget", "1", "--delta", "1e-6", "--epsilon", "0.1"]
    asked("ask", "p/a.parquet", by_ward, "--schema", "a.yaml", *new)
    for question in (by_ward, by_ward + " ORDER BY n"):
        code, said = refused("ask", "p/a.parquet", question, "--epsilon", "0.1")
        assert code == 2
        assert "--schema: the question before was asked with a schema" in plain(said)
        assert "name the schema again; nothing was charged" in plain(said)
    assert "paid nothing" in plain(asked("ask", "p/a.parquet", by_ward, "--schema", "a.yaml", "--epsilon", "0.1"))
    asked("ask", "p/a.parquet", "SELECT COUNT(*) AS n FROM a", "--epsilon", "0.1")  # needs no keys


def test_keys_that_nobody_listed_can_be_asked_again_and_again(above) -> None:
    by_ward = "SELECT ward, COUNT(*) AS n FROM a GROUP BY ward"
    asked("ask", "p/a.parquet", by_ward, "--each-row", "--budget", "1", "--delta", "1e-6", "--epsilon", "0.1")
    asked("ask", "p/a.parquet", by_ward + " ORDER BY n", "--epsilon", "0.2")


def test_help_calls_numbers_numbers() -> None:
    """`--epsilon <str>`: it is kept as text for its digits, which is no matter of whoever reads the help."""
    for command in ("ask", "price", "bounds", "synthesize", "add", "attack", "audit", "survey", "curve"):
        said = asked(command, "--help")
        amounts = [line for line in said.splitlines() if any(f"--{name} " in line for name in ("epsilon", "delta"))]
        assert amounts or command == "survey", command
        assert all("<str>" not in line and "list[" not in line for line in amounts), amounts
        assert "INTEGER" not in said
        assert "<bool>" not in said


def test_a_file_that_is_no_ledger_is_told_so(tmp_path: Path) -> None:
    """It was "this is no heading of a ledger"."""
    (tmp_path / "a.txt").write_text("hello\n", encoding="utf-8")
    code, said = refused("verify", str(tmp_path / "a.txt"))
    assert (code, "does not begin with the heading of a ledger; name the ledger's own file" in plain(said)) == (2, True)


def test_a_survey_of_numbers_says_that_they_are_moved_into_their_bounds(tmp_path: Path) -> None:
    """Ages of 0 to 89 in a survey of 0 to 50 gave a mean of 34 for 44, without a word."""
    (tmp_path / "a.csv").write_text("age\n" + "80\n" * 50, encoding="utf-8")
    about = ["--question", "age", "--epsilon", "1", "--low", "0", "--high", "50"]
    said = asked("survey", str(tmp_path / "a.csv"), *about, "--out", str(tmp_path / "r.csv"))
    assert "An answer below 0 counts as 0, and one above 50 as 50." in said


@pytest.mark.parametrize(
    ("given", "named", "told"),
    [
        (["--budget", "-1"], "--budget='-1'", "must be at least 1e-30"),
        (["--budget", "1", "--delta", "-1"], "--delta='-1'", "must lie in [0, 1]"),
        (["--budget", "1", "--delta", "2"], "--delta='2'", "must lie in [0, 1]"),
        (["--budget", "1", "--delta", "0"], "--delta='0'", "without any δ leave --delta out"),
    ],
)
def test_a_budget_that_cannot_be_is_named_as_it_was_typed(above, given, named, told) -> None:
    """A negative --budget was called epsilon, as if --epsilon beside it were wrong; a δ of -1 had to be "below 1e300"."""
    code, said = refused("ask", "p/a.parquet", COUNT, "--each-row", "--epsilon", "0.1", *given)
    assert code == 2
    assert named in plain(said)
    assert told in plain(said)


def test_columns_that_differ_by_case_alone_are_refused_where_a_schema_is_proposed(above) -> None:
    """A schema was proposed that no question could use; what then refused it listed all columns and no way out."""
    (above / "a.csv").write_text("id,ward,Ward\n1,A,B\n", encoding="utf-8")
    for command in (["schema", "a.csv"], ["ask", "a.csv", COUNT, *FIRST]):
        code, said = refused(*command)
        assert code == 2
        assert "'Ward': another column has the same name up to case; rename one" in plain(said)
        assert "id" not in plain(said).partition("deniable: ")[2].split()


def test_whom_an_account_protects_had_to_be_said_again_beside_a_schema(above) -> None:
    """A schema may leave it open; the account knows. Where a schema says another, that is refused as before."""
    Path("a.yaml").write_text(SCHEMA.replace("    neighbours: add/remove\n", ""), encoding="utf-8")
    code, said = refused("ask", "p/a.parquet", COUNT, "--schema", "a.yaml", "--budget", "1", "--epsilon", "0.1")
    assert (code, "does not say who is protected" in plain(said), "--each-row" in plain(said)) == (2, True, True)
    asked("ask", "p/a.parquet", COUNT, "--schema", "a.yaml", "--each-row", "--budget", "1", "--epsilon", "0.1")
    asked("ask", "p/a.parquet", COUNT, "--schema", "a.yaml", "--epsilon", "0.1")
    asked("price", "p/a.parquet", COUNT, "--schema", "a.yaml", "--epsilon", "0.1")
    Path("b.yaml").write_text(SCHEMA.replace("add/remove", "replace"), encoding="utf-8")
    code, said = refused("ask", "p/a.parquet", COUNT, "--schema", "b.yaml", "--epsilon", "0.1")
    assert (code, "say it once" in plain(said)) == (2, False)
