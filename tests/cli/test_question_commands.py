"""`deniable ask`, `price` and `schema`: a question to a file, and the account beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deniable import cli
from deniable.ledger import Ledger
from tests.cli.shell import asked, refused, run

VISITS = """\
version: 1
tables:
  visits:
    person: patient_id
    rows: 3
    columns:
      ward: {kind: text, keys: [A, B], nullable: false}
      age: {kind: integer, low: 0, high: 100}
"""


WARDS = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"


UNIT = ["--unit", "patient_id", "--rows", "5"]


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    path = tmp_path / "visits.csv"
    rows = [f"{i % 500},{'AB'[i % 2]},{i % 90}" for i in range(1000)]
    path.write_text("\n".join(["patient_id,ward,age", *rows, ""]), encoding="utf-8")
    (tmp_path / "visits.yaml").write_text(VISITS, encoding="utf-8")
    return path


def test_asking_a_file_keeps_an_account_beside_it(visits: Path) -> None:
    schema = ["--schema", str(visits.with_suffix(".yaml"))]
    first = json.loads(asked("ask", str(visits), WARDS, *schema, "--epsilon", "0.5", "--budget", "1", "--json"))
    assert [row[0] for row in first["rows"]] == ["A", "B"]
    assert abs(first["rows"][0][1] - 500) < 400
    assert (visits.parent / "visits.csv.ledger").exists()
    again = json.loads(asked("ask", str(visits), WARDS, *schema, "--epsilon", "0.2", "--json"))
    assert again["rows"] == first["rows"]
    assert again["provenance"]["replayed"]
    code, said = refused("ask", str(visits), "SELECT COUNT(*) AS n FROM visits", *schema, "--epsilon", "0.6")
    assert code == 1
    assert "left epsilon 0.5" in said
    assert "± is the noise interval" in asked("ask", str(visits), WARDS, *schema, "--epsilon", "0.5")


def test_a_price_in_the_shell_reads_and_writes_nothing(visits: Path) -> None:
    schema = ["--schema", str(visits.with_suffix(".yaml"))]
    visits.unlink()
    found = json.loads(asked("price", str(visits), WARDS, *schema, "--epsilon", "0.5", "--budget", "1", "--json"))
    assert found["fits"]
    assert found["times"] == 2
    assert "error    n: ±" in asked("price", str(visits), WARDS, *schema, "--within", "40", "--budget", "1")
    assert not (visits.parent / "visits.csv.ledger").exists()


def test_a_question_in_the_shell_may_be_in_another_dialect(visits: Path) -> None:
    about = ["--schema", str(visits.with_suffix(".yaml")), "--epsilon", "0.5", "--budget", "1", "--json"]
    asked_in = ["SELECT COUNTIF(age > 3) AS n FROM `visits`", *about, "--dialect"]
    assert json.loads(asked("price", str(visits), *asked_in, "bigquery"))["fits"]
    assert json.loads(asked("ask", str(visits), *asked_in, "bigquery"))["columns"] == ["n"]
    code, said = refused("ask", str(visits), *asked_in, "oracle")
    assert code == 2
    assert "--dialect" in said


def test_a_refusal_in_the_shell_names_the_option_that_helps(visits: Path) -> None:
    code, said = refused(
        "price", str(visits), "SELECT AVG(age) FROM visits", "--each-row", "--epsilon", "1", "--budget", "1"
    )
    assert code == 2
    assert "the owner can declare its kind in the schema" in said
    assert "name it with --schema" in said
    assert "does not keep it" not in said


def test_a_forgotten_schema_is_said_to_be_needed_each_time(visits: Path) -> None:
    """The ledger remembers the unit and the budget, so that the schema was thought to be kept as well."""
    schema = ["--schema", str(visits.with_suffix(".yaml"))]
    asked("ask", str(visits), "SELECT AVG(age) FROM visits", *schema, "--epsilon", "0.1", "--budget", "1")
    code, said = refused("ask", str(visits), "SELECT AVG(age) FROM visits", "--epsilon", "0.1")
    assert code == 2
    assert "name it with --schema, also if an earlier question did: the ledger does not keep it" in said


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (",ward,age", "name it, or leave it out; pandas writes its index"),
        ("who,ward,ward", "rename one, or leave it out"),
    ],
)
def test_a_column_that_cannot_be_named_is_left_out(tmp_path: Path, header: str, words: str) -> None:
    """With a schema that does not declare it, it is in nobody's way."""
    path, schema = tmp_path / "visits.csv", tmp_path / "visits.yaml"
    path.write_text(header + "\n" + "1,A,3\n2,B,4\n", encoding="utf-8")
    question = ["SELECT COUNT(*) AS n FROM visits", "--each-row", "--epsilon", "1", "--budget", "1"]
    code, said = refused("ask", str(path), *question)
    assert code == 2
    assert words in said
    kept = "age" if "age" in header else "who"
    schema.write_text(f"version: 1\ntables:\n  visits:\n    columns:\n      {kept}: {{kind: text}}\n", encoding="utf-8")
    assert "± is the noise interval" in asked("ask", str(path), *question, "--schema", str(schema))


def test_a_table_is_no_ledger_and_the_one_beside_it_is_named(visits: Path) -> None:
    schema = ["--schema", str(visits.with_suffix(".yaml"))]
    asked("ask", str(visits), WARDS, *schema, "--epsilon", "0.5", "--budget", "1")
    code, said = refused("verify", str(visits))
    assert code == 2
    assert re.search(r"is the table, not its ledger; write \S*visits.csv.ledger", said)
    assert "The history is whole" in asked("verify", str(visits.parent / "visits.csv.ledger"))


def test_a_schema_is_proposed_from_the_header_alone(visits: Path) -> None:
    text = asked("schema", str(visits))
    assert 'ward: {kind: text, keys: "FILL IN"}' in text
    assert "500" not in text
    (visits.parent / "open.yaml").write_text(text, encoding="utf-8")
    code, said = refused(
        "ask", str(visits), WARDS, "--schema", str(visits.parent / "open.yaml"), "--epsilon", "1", "--budget", "1"
    )
    assert code == 2
    assert "is not filled in" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epsilon", "0.1"], "no account yet"),
        (["--epsilon", "0.1", "--delta", "1e-6"], "give --budget as well"),
        (["--epsilon", "0.1", "--budget", "1", "--unit", "patient_id"], "must be given together"),
        (["--epsilon", "0.1", "--budget", "1", "--each-row", "--rows", "3"], "leave --unit and --rows out"),
        (["--epsilon", "0.1", "--budget", "1"], "must be given: it says who is protected; write --unit patient_id"),
        (["--budget", "1", "--each-row"], "give exactly one of them, to say what to spend; given: none"),
        (["--epsilon", "0.1", "--mu", "1", "--budget", "1", "--each-row"], "given: --epsilon, --mu"),
        (["--epsilon", "x", "--budget", "1", "--each-row"], "epsilon"),
    ],
)
def test_what_is_asked_wrongly_of_a_file(visits: Path, arguments: list[str], message: str) -> None:
    code, said = refused("ask", str(visits), WARDS, *arguments)
    assert code == 2
    assert message in said
    assert "Unit." not in said
    assert "None" not in said
    assert not (visits.parent / "visits.csv.ledger").exists()


@pytest.mark.slow
def test_unlisted_keys_open_an_account_with_a_delta_and_say_so(visits: Path) -> None:
    budget = ["--epsilon", "0.5", "--budget", "1.0"]
    note = "keys that no schema lists need a δ, and none was given: the budget gets --delta 1e-6"
    for command in ("price", "ask"):
        done = run(command, str(visits), WARDS, *UNIT, *budget, "--json")
        assert (done.returncode, note in done.stderr, "δ" in done.stdout) == (0, True, False), done.stderr
    again = run("ask", str(visits), WARDS, *UNIT, *budget)  # the account is there, and knows its δ
    assert (again.returncode, "asked before" in again.stdout, again.stderr) == (0, True, "")


def test_a_budget_is_pure_where_no_key_needs_a_delta(visits: Path) -> None:
    done = run("ask", str(visits), "SELECT COUNT(*) AS n FROM visits", *UNIT, "--epsilon", "0.5", "--budget", "1.0")
    assert (done.returncode, done.stderr) == (0, "")
    code, said = refused("ask", str(visits), WARDS, *UNIT, "--epsilon", "0.1")
    assert code == 2
    assert "needs a delta" in said


def test_a_row_in_another_encoding_is_refused_wherever_it_stands(visits: Path) -> None:
    """At the top of the file it was decoded along with the header: a traceback showed its byte. Elsewhere it was left
    out without a word.
    """
    header, *rows = visits.read_bytes().splitlines()
    said = []
    for odd in ([b"7,caf\xe9,9", *rows], [*rows, b"7,caf\xe9,9"], rows):
        visits.write_bytes(b"\n".join([header, *odd, b""]))
        said.append(
            asked("price", str(visits), "SELECT COUNT(*) AS n FROM visits", *UNIT, "--epsilon", "1", "--budget", "5")
        )
        more = ["SELECT COUNT(*) AS n FROM visits", *UNIT, "--epsilon", "1", "--budget", "5"]
        if odd is rows:
            asked("ask", str(visits), *more)
            break
        code, why = refused("ask", str(visits), *more)
        assert (code, "UTF-8" in why, "caf" in why) == (2, True, False)
        assert not (visits.parent / "visits.csv.ledger").exists()
    assert len(set(said)) == 1


@pytest.mark.parametrize("command", ["ask", "schema"])
def test_a_damaged_parquet_file_shows_no_traceback(command: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.parquet"
    path.write_bytes(b"PAR1 secret PAR1")
    more = [] if command == "schema" else ["SELECT COUNT(*) FROM broken", *UNIT, "--epsilon", "1", "--budget", "5"]
    code, said = refused(command, str(path), *more)
    assert code == 2
    assert "not a Parquet file" in said
    assert "secret" not in said


def test_what_was_mistyped_can_be_typed_again(visits: Path) -> None:
    """The refused call had opened the account for a person that no table has, and the right one then did not fit."""
    asks = ["--epsilon", "0.1", "--budget", "1", "--delta", "1e-6"]
    for question, wrong, message in (
        (WARDS, ["--unit", "Patient_ID", "--rows", "5", *asks], "did you mean 'patient_id'?"),
        ("SELECT COUNT(*) FROM wards", [*UNIT, *asks], "wards"),
        (WARDS, [*UNIT, *asks, "--confidence", "2"], "confidence"),
    ):
        code, said = refused("ask", str(visits), question, *wrong)
        assert code == 2
        assert message in said
        assert not (visits.parent / "visits.csv.ledger").exists()
    asked("ask", str(visits), "SELECT COUNT(*) AS n FROM visits", *UNIT, *asks)


def test_the_ledger_remembers_what_was_said_once(visits: Path) -> None:
    first = asked(
        "ask",
        str(visits),
        "SELECT COUNT(*) AS n FROM visits",
        *UNIT,
        "--epsilon",
        "1",
        "--budget",
        "5",
        "--delta",
        "1e-6",
        "--json",
    )
    again = asked("ask", str(visits), "SELECT COUNT(*) AS n FROM visits", "--epsilon", "1", "--budget", "5", "--json")
    assert json.loads(again)["rows"] == json.loads(first)["rows"]
    assert "cost" in asked("price", str(visits), "SELECT COUNT(*) AS n FROM visits", "--epsilon", "1")
    for other in (["--budget", "6"], ["--budget", "5", "--delta", "1e-7"], ["--unit", "patient_id", "--rows", "6"]):
        code, said = refused("ask", str(visits), "SELECT COUNT(*) AS n FROM visits", "--epsilon", "1", *other)
        assert code == 2
        assert f"{other[0]}" in said
        assert "the account in visits.csv.ledger" in said
        assert "Unit." not in said
        assert "Budget" not in said


def test_a_name_that_sql_would_have_to_quote_is_cleaned(visits: Path) -> None:
    path = visits.rename(visits.parent / "my visits (2).csv")
    assert "\n  my_visits_2:\n" in asked("schema", str(path))
    asked("ask", str(path), "SELECT COUNT(*) AS n FROM my_visits_2", *UNIT, "--epsilon", "1", "--budget", "5")


@pytest.mark.parametrize("source", ["", ".", "/"])
@pytest.mark.parametrize("command", ["ask", "price", "bounds"])
def test_a_source_without_a_name_is_no_file(source: str, command: str) -> None:
    done = run(command, source, "SELECT COUNT(*) FROM visits", "--each-row", "--epsilon", "0.1", "--budget", "1")
    said = f"deniable: source='{source or '.'}': is not a file; name a CSV or Parquet file\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_a_table_of_a_database_is_asked(tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "hospital.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE visits AS SELECT range % 500 AS patient_id, 'A' AS ward, [1] AS parts FROM range(1000)"
        )
    assert "patient_id: {kind: integer" in asked("schema", str(path))
    cost = [*UNIT, "--epsilon", "1", "--budget", "5", "--json"]
    found = json.loads(asked("ask", str(path), "SELECT COUNT(*) AS n FROM visits", *cost))
    assert abs(found["rows"][0][0] - 1000) < 200  # Laplace noise of scale 5: beyond 40 scales once in 10^17
    with duckdb.connect(str(path)) as connection:
        connection.execute('CREATE TABLE "my wards" AS SELECT 1 AS ward')
    code, said = refused("ask", str(path), "SELECT COUNT(*) AS n FROM visits", *cost)
    assert code == 2
    assert "must be one of the tables of hospital.duckdb: my wards, visits; say which one: --table visits" in said
    assert "my_wards:" in asked("schema", str(path), "--table", "my wards")
    assert "no such table; it has my wards, visits" in refused("schema", str(path), "--table", "x")[1]
    assert "cost" in asked("price", str(path), "SELECT COUNT(*) AS n FROM visits", "--table", "visits", *cost[:-1])
    path.write_bytes(b"secret")
    code, said = refused("schema", str(path))
    assert code == 2
    assert "cannot be opened as a DuckDB database" in said
    assert "secret" not in said


def test_a_budget_that_protects_little_is_said_once_where_it_is_chosen(visits: Path) -> None:
    question = [str(visits), "SELECT COUNT(*) AS n FROM visits", "--each-row", "--epsilon", "1"]
    first = CliRunner().invoke(cli.build(), ["ask", *question, "--budget", "20"])
    assert first.exit_code == 0, first.output
    assert first.stderr.count("the budget's epsilon 20 protects little") == 1
    again = CliRunner().invoke(cli.build(), ["ask", *question])
    assert again.exit_code == 0, again.output
    assert "protects little" not in again.stderr


def test_a_budget_that_renews_is_kept_beside_the_file(visits: Path) -> None:
    count = "SELECT COUNT(*) AS n FROM visits"
    run_here = lambda *words: " ".join(CliRunner().invoke(cli.build(), [*words]).output.split())  # noqa: E731
    weekly = ["--budget", "0.5", "--per", "week", "--periods", "4"]
    done = run_here("ask", str(visits), count, *UNIT, "--epsilon", "0.3", *weekly)
    assert "at most 88.1 % after 4 weeks" in done
    again = run_here("ask", str(visits), f"{count} WHERE ward = 'A'", "--epsilon", "0.3", *weekly)
    assert "in this window of 604,800 s" in again
    assert "another budget" in run_here("ask", str(visits), count, "--epsilon", "0.1", "--budget", "2")
    assert "another budget" in run_here("ask", str(visits), count, "--epsilon", "0.1", *weekly[:-1], "5")
    assert "give --budget as well" in run_here("ask", str(visits), count, "--epsilon", "0.1", *weekly[2:])
    assert "go together" in run_here("ask", str(visits), count, "--epsilon", "0.1", *weekly[:4])
    exported = visits.parent / "export.jsonl"
    with Ledger.open(visits.parent / "visits.csv.ledger") as ledger:
        ledger.export(exported)
    told = json.loads(run_here("verify", str(exported), "--json"))
    assert told["renewal"] == "Renewal(Budget.pure(epsilon=0.5, delta=0), per='week', periods=4)"
    assert "88.1 %" in told["risk"]
    assert "at most 88.1 % after 4 weeks" in run_here("verify", str(exported))
