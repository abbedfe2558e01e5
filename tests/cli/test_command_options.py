"""Options of all commands: numbers that mean nothing, and files that cannot be written, are refused before any work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deniable import cli
from deniable.ledger import Budget, Ledger, keys
from deniable.units import Unit
from tests.table import every_row

COUNT = "SELECT COUNT(*) AS n FROM visits"
OPENED = ("--each-row", "--budget", "1")
PAID = ("--epsilon", "0.1")
COMMANDS: dict[str, tuple[str, ...]] = {
    "curve": ("curve", "laplace(scale=1)"),
    "curve at a delta": ("curve", "laplace(scale=1)", "--delta", "1e-6"),
    "survey": ("survey", "{folder}/visits.csv", "--question", "smokes", "--out", "{folder}/reports.csv"),
    "survey of numbers": (
        "survey", "{folder}/visits.csv", "--question", "age", "--epsilon", "1", "--out", "{folder}/reports.csv",
    ),
    "survey paid": ("survey", "{folder}/visits.csv", "--question", "smokes", "--epsilon", "1"),
    "attack": ("attack", "differencing"),
    "audit": ("audit", "builtins:abs", "--neighbours", "0", "1", "--claim", "pure(epsilon=1)"),
    "ask": ("ask", "{folder}/visits.csv", COUNT, *OPENED),
    "ask paid": ("ask", "{folder}/visits.csv", COUNT, *OPENED, *PAID),
    "ask unpaid": ("ask", "{folder}/visits.csv", COUNT, "--each-row", *PAID),
    "price": ("price", "{folder}/visits.csv", COUNT, *OPENED),
    "price paid": ("price", "{folder}/visits.csv", COUNT, *OPENED, *PAID),
    "bounds": ("bounds", "{folder}/visits.csv", "age", "--kind", "integer", *OPENED),
    "bounds paid": ("bounds", "{folder}/visits.csv", "age", "--kind", "integer", *OPENED, *PAID),
    "synthesize": (
        "synthesize", "{folder}/visits.csv", "--schema", "{folder}/visits.yaml", *OPENED,
        "--out", "{folder}/rows.csv",
    ),
    "synthesize paid": (
        "synthesize", "{folder}/visits.csv", "--schema", "{folder}/visits.yaml", *OPENED, *PAID,
    ),
    "add": ("add", "{folder}/visits.csv", "--token", "dn_x", "--each-row"),
    "add of people": ("add", "{folder}/visits.csv", "--token", "dn_x", "--unit", "smokes"),
    "ask of people": ("ask", "{folder}/visits.csv", COUNT, "--unit", "smokes", "--budget", "1", *PAID),
    "price of people": ("price", "{folder}/visits.csv", COUNT, "--unit", "smokes", "--budget", "1", *PAID),
    "bounds of people": (
        "bounds", "{folder}/visits.csv", "age", "--kind", "integer", "--unit", "smokes", "--budget", "1", *PAID,
    ),
    "synthesize of people": (
        "synthesize", "{folder}/visits.csv", "--schema", "{folder}/visits.yaml", "--unit", "smokes", "--budget", "1", *PAID,
        "--out", "{folder}/rows.csv",
    ),
    "verify": ("verify", "{folder}/asked.ledger"),
    "rotate": ("rotate", "{folder}/asked.ledger", "--key", "{folder}/owner.key"),
    "serve": ("serve", "--demo"),
}  # fmt: skip
ODD = ("-1", "nan", "inf", "-inf")
# (command, option, values that it cannot have)
Numbers = list[tuple[str, str, tuple[str, ...]]]
OF_CURVES_AND_TRIALS: Numbers = [
    ("curve", "--epsilon", ("-1", "nan", "-inf")),
    ("curve", "--delta", ODD),
    ("survey", "--epsilon", ODD),
    ("survey of numbers", "--low", ("nan", "inf", "-inf")),
    ("survey of numbers", "--high", ("nan", "inf", "-inf")),
    ("attack", "--epsilon", ("-1", "nan", "-inf")),
    ("attack", "--delta", (*ODD, "2")),
    ("attack", "--trials", (*ODD, "0")),
    ("attack", "--confidence", (*ODD, "1.5")),
    ("audit", "--trials", (*ODD, "0")),
    ("audit", "--confidence", (*ODD, "1.5")),
    ("audit", "--delta", (*ODD, "2")),
    ("audit", "--seconds", ("-1", "nan", "-inf", "0")),
]  # fmt: skip
COSTS = ("--epsilon", "--mu", "--rho", "--share", "--within")
OF_QUESTIONS: Numbers = [
    *((command, cost, ODD) for command in ("ask", "price") for cost in COSTS),
    *((command, "--confidence", (*ODD, "1.5")) for command in ("ask paid", "price paid")),
    ("ask unpaid", "--budget", ODD),
    ("ask paid", "--delta", (*ODD, "2")),
]
OF_BOUNDS: Numbers = [
    *(("bounds", cost, ODD) for cost in COSTS),
    ("bounds paid", "--confidence", (*ODD, "1.5")),
    ("bounds paid", "--cover", (*ODD, "0", "1.5")),
]
OF_TABLES: Numbers = [
    *(("synthesize", f"--{cost}", ODD) for cost in ("epsilon", "mu", "rho", "share")),
    *(("synthesize", option, ("-1", "0", "nan", "inf")) for option in ("--rows", "--table-rows")),
    ("add", "--budget", ODD),
    ("add", "--delta", ODD),
]
OF_PEOPLE_LEDGERS_AND_SERVERS: Numbers = [
    *((f"{command} of people", "--rows", (*ODD, "0", "1.5")) for command in ("ask", "price", "bounds", "add")),
    ("synthesize of people", "--unit-rows", (*ODD, "0", "1.5")),
    ("verify", "--delta", (*ODD, "2")),
    ("serve", "--port", ("-1", "nan", "70000")),
]  # fmt: skip
FILES: list[tuple[str, str, str]] = [
    ("curve at a delta", "--plot", "x.png"),
    ("attack", "--plot", "x.png"),
    ("audit", "--plot", "x.png"),
    ("survey paid", "--out", "x.csv"),
    ("synthesize paid", "--out", "x.csv"),
    ("ask paid", "--ledger", "x.ledger"),
    ("bounds paid", "--ledger", "x.ledger"),
    ("verify", "--export", "x.jsonl"),
    ("rotate", "--to", "x.pem"),
]
SCHEMA = """tables:
  visits:
    columns:
      smokes: {kind: text, keys: ["yes", "no"]}
      age: {kind: integer, low: 0, high: 100}
"""


def with_visits(folder: Path) -> Path:
    (folder / "visits.csv").write_text("smokes,age\n" + "yes,30\nno,40\n" * 20, encoding="utf-8")
    (folder / "visits.yaml").write_text(SCHEMA, encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return with_visits(tmp_path)


def refused(folder: Path, command: str, *more: str) -> str:
    """What is said; nothing is printed, and no file is there that was not there before."""
    if "{folder}/asked.ledger" in COMMANDS[command]:
        owner = keys.new(folder / "owner.key").public
        budget, unit = Budget(epsilon=1, delta=1e-6), Unit.row()
        Ledger.open(folder / "asked.ledger", budget=budget, unit=unit, dataset="visits", owner=owner).close()
    before = sorted(folder.rglob("*"))
    result = CliRunner().invoke(cli.build(), [each.format(folder=folder) for each in COMMANDS[command]] + list(more))
    assert result.exit_code in {1, 2}, (result.exit_code, result.output)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert sorted(folder.rglob("*")) == before
    return result.stderr


def each(numbers: Numbers) -> Iterator[tuple[str, str, str]]:
    return ((command, option, value) for command, option, values in numbers for value in values)


def number_is_refused(folders: pytest.TempPathFactory, command: str, option: str, value: str) -> None:
    """`curve --epsilon -1` printed a δ. Each row has a folder of its own."""
    assert option.lstrip("-") in refused(with_visits(folders.mktemp("row")), command, option, value)


@every_row(each(OF_CURVES_AND_TRIALS))
def test_numbers_of_curves_and_trials_that_mean_nothing_are_refused(
    tmp_path_factory: pytest.TempPathFactory, command: str, option: str, value: str
) -> None:
    number_is_refused(tmp_path_factory, command, option, value)


@every_row(each(OF_QUESTIONS))
def test_numbers_of_questions_that_mean_nothing_are_refused(
    tmp_path_factory: pytest.TempPathFactory, command: str, option: str, value: str
) -> None:
    number_is_refused(tmp_path_factory, command, option, value)


@every_row(each(OF_BOUNDS))
def test_numbers_of_bounds_that_mean_nothing_are_refused(
    tmp_path_factory: pytest.TempPathFactory, command: str, option: str, value: str
) -> None:
    number_is_refused(tmp_path_factory, command, option, value)


@every_row(each(OF_TABLES))
def test_numbers_of_tables_that_mean_nothing_are_refused(
    tmp_path_factory: pytest.TempPathFactory, command: str, option: str, value: str
) -> None:
    number_is_refused(tmp_path_factory, command, option, value)


@every_row(each(OF_PEOPLE_LEDGERS_AND_SERVERS))
def test_numbers_of_people_ledgers_and_servers_that_mean_nothing_are_refused(
    tmp_path_factory: pytest.TempPathFactory, command: str, option: str, value: str
) -> None:
    number_is_refused(tmp_path_factory, command, option, value)


def test_a_survey_is_not_estimated_with_a_confidence_that_means_nothing(folder: Path) -> None:
    reports, run = folder / "reports.csv", CliRunner().invoke
    made = ["survey", str(folder / "visits.csv"), "--question", "smokes", "--epsilon", "1", "--out", str(reports)]
    assert run(cli.build(), made).exit_code == 0
    for value in (*ODD, "1.5"):
        result = run(cli.build(), ["survey", "--estimate", str(reports), "--confidence", value])
        assert (result.exit_code, result.stdout) in {(1, ""), (2, "")}
        assert "confidence" in result.stderr


@pytest.mark.parametrize(("command", "option", "name"), FILES)
def test_a_file_in_a_folder_that_is_not_there_is_refused_before_anything_is_charged(
    folder: Path, command: str, option: str, name: str
) -> None:
    said = refused(folder, command, option, str(folder / "nodir" / name))
    assert "folder" in said


def test_a_refusal_for_want_of_budget_opens_no_account(folder: Path) -> None:
    """The first `ask` at more than its --budget made the ledger, and so fixed the budget for good."""
    for command in ("ask", "bounds", "synthesize"):
        said = refused(folder, command, "--epsilon", "2")
        assert (
            "asked epsilon 2, left epsilon 1, delta 0 for unlisted keys; no account was opened; lower the cost, or give"
            in said
        )
    larger = [each.format(folder=folder) for each in COMMANDS["ask unpaid"]] + ["--budget", "3"]
    assert CliRunner().invoke(cli.build(), larger).exit_code == 0


def test_a_price_above_the_budget_is_still_told(folder: Path) -> None:
    asked = [each.format(folder=folder) for each in COMMANDS["price"]] + ["--epsilon", "2"]
    assert CliRunner().invoke(cli.build(), asked).exit_code == 0


def test_the_folder_of_synthetic_rows_is_to_be_made_first(folder: Path) -> None:
    said = refused(folder, "synthesize paid", "--out", str(folder / "nodir" / "rows.csv"))
    assert f"is in a folder that does not exist; make it first: mkdir -p {folder}/nodir" in said


@pytest.mark.parametrize("form", ["yaml", "toml"])
def test_the_schema_of_a_csv_says_in_itself_that_kinds_are_to_be_chosen(folder: Path, form: str) -> None:
    """It was said on the terminal alone, which whoever reads the file does not see."""
    done = CliRunner().invoke(cli.build(), ["schema", str(folder / "visits.csv"), "--form", form])
    assert done.exit_code == 0
    assert done.stdout.startswith(
        "# A CSV file has no types, so every column is text until you change its kind. A kind is one of"
    )


def test_an_unknown_ending_is_told_all_that_are_known(folder: Path) -> None:
    from deniable.tables.source_files import CSV, DATABASES, PARQUET

    (folder / "visits.xyz").write_text("age\n30\n", encoding="utf-8")
    for command in (["schema"], ["report", "--each-row"], ["ask", COUNT, *OPENED, *PAID]):
        done = CliRunner().invoke(cli.build(), [command[0], str(folder / "visits.xyz"), *command[1:]])
        assert done.exit_code == 2, done.output
        assert all(f" {each}" in done.stderr for each in (*CSV, *PARQUET, *DATABASES)), done.stderr


@pytest.mark.parametrize(
    ("target", "meant"),
    [
        ("deniable.mechanisms:Laplas", "deniable.mechanisms:Laplace"),
        ("deniable.mechanism:Laplace", "deniable.mechanisms:Laplace"),
        ("deniabel:Budget", "deniable:Budget"),
        ("no_such_thing_at_all:x", "check the spelling; modules of this folder are found too"),
    ],
)
def test_a_misspelt_target_is_told_the_nearest(target: str, meant: str) -> None:
    done = CliRunner().invoke(cli.build(), ["audit", target, "--neighbours", "0", "1"])
    assert done.exit_code == 2
    assert meant in done.stderr
