"""A whole survey: what is written, what can be read back, what is shown, and what never is."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from deniable import local
from deniable.errors import DeniableError, InvalidParameter, MissingExtra, UnreadableRecord
from deniable.local.surveys import Design, Survey, survey, survey_command
from tests.wording import worded

SECRET = "a-secret@example.org"
COLOURS = ["red", "green", "blue", "white", "black"]


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    """300 of 1000 smoke; a favourite colour; an age."""
    path = tmp_path / "answers.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["name", "smokes", "colour", "age"])
        for i in range(1000):
            rows.writerow([SECRET, "yes" if i % 10 < 3 else "No", COLOURS[i % 5], 20 + i % 50])
    return path


def test_the_two_sides_of_a_survey(answers, tmp_path) -> None:
    out = tmp_path / "reports.csv"
    done = local.survey(answers, question="smokes", epsilon=1.0, out=out)
    assert len(done) == 1000
    again = Survey.read(out)
    assert again.design == done.design
    assert np.array_equal(again.reports, done.reports)
    assert again.estimate().value == done.estimate().value
    low, high = again.estimate().interval(confidence=1 - 1e-9)
    assert low <= 0.3 <= high
    assert again.design.protocol.curve.epsilon(delta=0.0) == 1.0


def test_the_file_holds_the_design_and_reports_and_nothing_else(answers, tmp_path) -> None:
    out = tmp_path / "reports.csv"
    local.survey(answers, question="smokes", epsilon=1.0, out=out)
    text = out.read_text(encoding="utf-8")
    head, name, *reports = text.splitlines()
    design = json.loads(head.removeprefix("# "))
    assert design["question"] == "smokes"
    assert design["parameters"] == {"epsilon": 1.0}
    assert name == "report"
    assert len(reports) == 1000
    assert set(reports) <= {"0", "1"}
    assert SECRET not in text


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"question": "smokes"}, local.RandomizedResponse),
        ({"question": "colour", "categories": COLOURS}, local.KaryRandomizedResponse),
        ({"question": "colour", "categories": [*COLOURS, *map(str, range(30))]}, local.SubsetSelection),
        ({"question": "colour", "categories": COLOURS, "protocol": local.OptimizedUnary}, local.OptimizedUnary),
        ({"question": "colour", "categories": COLOURS, "protocol": local.SymmetricUnary}, local.SymmetricUnary),
        ({"question": "colour", "categories": COLOURS, "protocol": local.LocalHashing}, local.LocalHashing),
        ({"question": "age", "low": 18, "high": 80}, local.HybridMean),
        ({"question": "age", "low": 18, "high": 80, "protocol": local.DuchiMean}, local.DuchiMean),
        ({"question": "age", "low": 18, "high": 80, "protocol": local.PiecewiseMean}, local.PiecewiseMean),
    ],
)
def test_every_kind_of_question(answers, tmp_path, options, kind) -> None:
    out = tmp_path / "reports.csv"
    done = local.survey(answers, epsilon=2.0, out=out, **options)
    assert type(done.design.protocol) is kind
    again = Survey.read(out)
    assert again.design == done.design
    assert np.array_equal(again.reports, done.reports)
    estimate, names = again.estimate(), again.design.answers
    assert np.size(estimate.value) == len(names)
    truth = {"yes": 0.3, "mean": 44.5} | dict.fromkeys(COLOURS, 0.2)
    low, high = (np.atleast_1d(end) for end in estimate.interval(confidence=1 - 1e-11))
    assert all(low[i] <= truth.get(name, 0.0) <= high[i] for i, name in enumerate(names))


def test_an_epsilon_that_no_float_holds_survives_the_file(answers, tmp_path) -> None:
    out = tmp_path / "reports.csv"
    local.survey(answers, question="smokes", epsilon=Fraction(1, 3), out=out)
    assert Survey.read(out).design.protocol == local.RandomizedResponse(epsilon=Fraction(1, 3))


@pytest.mark.parametrize("table", [dict, "pandas", "polars"])
def test_tables_of_any_kind(table) -> None:
    columns = {"smokes": [True, False, True, True], "age": [1.5, 2, 3, 4]}
    given = columns if table is dict else pytest.importorskip(table).DataFrame(columns)
    assert len(survey(given, question="smokes", epsilon=1.0)) == 4
    assert len(survey(given, question="age", epsilon=1.0, low=0, high=10)) == 4
    with worded(InvalidParameter, parameter="question"):
        survey(given, question="drinks", epsilon=1.0)


def test_a_file_of_reports_is_never_overwritten(answers, tmp_path) -> None:
    out = tmp_path / "reports.csv"
    local.survey(answers, question="smokes", epsilon=1.0, out=out)
    before = out.read_bytes()
    with pytest.raises(InvalidParameter, match="reveal more"):
        local.survey(answers, question="smokes", epsilon=1.0, out=out)
    assert out.read_bytes() == before


# -- nothing about the answers in an error ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "options"),
    [
        (["yes", SECRET], {}),
        (["yes", ""], {}),
        (["yes", None], {}),
        (["red", SECRET], {"categories": ["red", "green"]}),
        (["1", SECRET], {"low": 0, "high": 1}),
        ([1.0, float("nan")], {"low": 0, "high": 1}),
        ([1.0, None], {"low": 0, "high": 1}),
        (["yes", 12345.678], {}),
    ],
)
def test_an_impossible_answer_is_refused_without_saying_which(column, options) -> None:
    with pytest.raises(InvalidParameter) as refused:
        survey({"q": column}, question="q", epsilon=1.0, **options)
    text = f"{refused.value} {refused.value.__dict__}"
    assert SECRET not in text
    assert "12345" not in text
    assert refused.value.parameter == "answers"
    with pytest.raises(InvalidParameter) as again:
        survey({"q": [*column, *column]}, question="q", epsilon=1.0, **options)
    assert str(again.value) == str(refused.value)  # neither where nor how many


def test_missing_answers_can_be_a_category() -> None:
    done = survey({"q": ["red", "", None]}, question="q", epsilon=1.0, categories=["red", ""])
    assert len(done) == 3


def test_a_file_that_is_no_csv_is_refused_without_quoting_it(tmp_path) -> None:
    path = tmp_path / "answers.csv"
    path.write_bytes(b"smokes\nyes\xff" + SECRET.encode() + b"\n")
    with pytest.raises(InvalidParameter) as refused:
        survey(path, question="smokes", epsilon=1.0)
    assert SECRET not in str(refused.value)
    path.write_text("a,a\n1,2\n", encoding="utf-8")
    with pytest.raises(InvalidParameter, match="several columns"):
        survey(path, question="a", epsilon=1.0)
    path.write_text("", encoding="utf-8")
    with worded(InvalidParameter, parameter="question"):
        survey(path, question="a", epsilon=1.0)
    with pytest.raises(FileNotFoundError):
        survey(tmp_path / "not there.csv", question="a", epsilon=1.0)
    path.write_text("name,smokes\nshort row\n", encoding="utf-8")
    with pytest.raises(InvalidParameter, match="answers"):
        survey(path, question="smokes", epsilon=1.0)


def test_csv_files_with_a_byte_order_mark_and_quotes_are_read(tmp_path) -> None:
    path = tmp_path / "answers.csv"
    path.write_bytes('\ufeffsmokes,"why, then"\nYES,"a\nb"\n no ,\n'.encode())
    assert len(survey(path, question="smokes", epsilon=1.0)) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"low": 0},
        {"high": 1},
        {"low": 0, "high": 1, "categories": ["a", "b"]},
        {"categories": ["a"]},
        {"categories": ["a", "a"]},
        {"categories": "ab"},
        {"categories": 3},
        {"protocol": "RandomizedResponse"},
        {"protocol": local.HybridMean},
        {"categories": ["a", "b"], "protocol": local.RandomizedResponse},
        {"epsilon": -1},
        {"epsilon": 0},
        {"epsilon": "1"},
        {"epsilon": float("nan")},
    ],
)
def test_designs_that_make_no_sense(options) -> None:
    with pytest.raises(InvalidParameter):
        survey({"q": ["a"]}, **({"question": "q", "epsilon": 1.0} | options))


# -- files that were not written by us ---------------------------------------------------------------------------------


GOOD = {
    "format": "deniable survey",
    "version": 1,
    "question": "q",
    "protocol": "RandomizedResponse",
    "parameters": {"epsilon": 1.0},
    "categories": [],
}


@pytest.mark.parametrize(
    "change",
    [
        {"format": "something else"},
        {"version": 2},
        {"protocol": "Popen"},
        {"protocol": "__class__"},
        {"parameters": None},
        {"parameters": {"epsilon": -1}},
        {"parameters": {"epsilon": "1/0"}},
        {"parameters": {"epsilon": "x"}},
        {"parameters": {"epsilon": "1e999999999"}},
        {"parameters": {"epsilon": "1" * 10**6 + "/1"}},
        {"parameters": {"epsilon": [1]}},
        {"parameters": {"size": 3}},
        {"categories": ["a", "b"]},
        {"categories": None},
    ],
)
def test_foreign_designs_are_refused_at_once(change) -> None:
    assert Design.from_dict(GOOD).to_dict() == GOOD
    with pytest.raises(UnreadableRecord):
        Design.from_dict(GOOD | change)


@pytest.mark.parametrize("record", [None, [], "x", 3])
def test_foreign_records_are_refused(record) -> None:
    with pytest.raises(UnreadableRecord):
        Design.from_dict(record)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"report\n1\n",
        b"# not json\nreport\n1\n",
        b"# \xff\n",
        b"# " + b"[" * 100_000,
        b"# " + json.dumps(GOOD).encode() + b"\n",
        b"# " + json.dumps(GOOD).encode() + b"\nanswers\n1\n",
        b"# " + json.dumps(GOOD).encode() + b"\nreport\nyes\n",
        b"# " + json.dumps(GOOD).encode() + b"\nreport\n99999999999999999999999\n",
    ],
)
def test_foreign_files_are_refused(tmp_path, content) -> None:
    path = tmp_path / "reports.csv"
    path.write_bytes(content)
    with pytest.raises((UnreadableRecord, InvalidParameter)):
        Survey.read(path)


def test_reports_that_the_protocol_cannot_have_made_are_refused(tmp_path) -> None:
    path = tmp_path / "reports.csv"
    path.write_text("# " + json.dumps(GOOD) + "\nreport\n7\n", encoding="utf-8")
    with pytest.raises(InvalidParameter, match="reports"):
        Survey.read(path).estimate()
    path.write_text("# " + json.dumps(GOOD) + "\nreport\n", encoding="utf-8")
    with worded(InvalidParameter, parameter="reports"):
        Survey.read(path).estimate()


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_randomizes_and_estimates(answers, tmp_path, capsys) -> None:
    pytest.importorskip("rich")
    out = tmp_path / "reports.csv"
    survey_command(answers, question="smokes", epsilon=1.0, out=out)
    shown = capsys.readouterr().out
    assert "smokes: 1,000 reports" in shown
    assert "RandomizedResponse(epsilon=1.0)" in shown
    assert "right at most 73.11 %" in " ".join(shown.split())
    survey_command(estimate=out)
    shown = capsys.readouterr().out
    value = Survey.read(out).estimate().value
    assert f"{100 * value:.2f} %" in shown
    assert "yes" in shown
    assert "1,000 people" in shown
    assert SECRET not in shown


def test_the_command_speaks_json(answers, tmp_path, capsys) -> None:
    out = tmp_path / "reports.csv"
    survey_command(answers, question="age", epsilon=1.0, low=0, high=100, out=out, as_json=True)
    first = json.loads(capsys.readouterr().out)
    assert (first["people"], first["protocol"]) == (1000, "HybridMean")
    survey_command(estimate=out, as_json=True, confidence=0.999999)
    second = json.loads(capsys.readouterr().out)
    (row,) = second["estimates"]
    assert row["interval"][0] <= 44.5 <= row["interval"][1]
    survey_command(answers, question="colour", epsilon=1.0, categories=COLOURS, out=tmp_path / "c.csv", as_json=True)
    capsys.readouterr()
    survey_command(estimate=tmp_path / "c.csv", as_json=True)
    assert [row["answer"] for row in json.loads(capsys.readouterr().out)["estimates"]] == COLOURS


@pytest.mark.parametrize(
    "missing",
    [
        {},
        {"answers": Path("a.csv"), "estimate": Path("b.csv")},
        {"answers": Path("a.csv")},
        {"answers": Path("a.csv"), "question": "q"},
        {"answers": Path("a.csv"), "question": "q", "epsilon": 1.0},
    ],
)
def test_the_command_says_what_is_missing(missing) -> None:
    given = dict(missing)
    path = given.pop("answers", None)
    with pytest.raises(InvalidParameter):
        survey_command(path, **given)


def test_category_names_are_shown_as_they_are_not_as_markup(tmp_path, capsys) -> None:
    pytest.importorskip("rich")
    done = survey({"q": ["[red]x[/red]"] * 5}, question="q", epsilon=1.0, categories=["[red]x[/red]", "[link"])
    done.save(tmp_path / "r.csv")
    survey_command(estimate=tmp_path / "r.csv")
    shown = capsys.readouterr().out
    assert "[red]x[/red]" in shown
    assert "[link" in shown


def test_without_rich_the_command_names_the_extra(answers, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(MissingExtra, match="cli"):
        survey_command(answers, question="smokes", epsilon=1.0, out=tmp_path / "r.csv")
    assert not (tmp_path / "r.csv").exists()


def test_importing_the_room_loads_neither_rich_nor_scipy() -> None:
    code = "import sys; from deniable import local; local.survey; bad = {'rich', 'scipy', 'pandas'} & set(sys.modules); assert not bad, bad"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONWARNINGS": "error"})


def test_the_door_offers_what_it_says() -> None:
    for name in local.__all__:
        assert getattr(local, name) is not None
    assert set(local.__all__) == set(dir(local))
    assert callable(local.survey)
    with pytest.raises(AttributeError):
        _ = local.nothing
    assert issubclass(InvalidParameter, DeniableError)


# -- a stranger's file -------------------------------------------------------------------------------------------------


def test_odd_headers_are_found_and_quoted_commas_are_one_answer(tmp_path, capsys) -> None:
    """A byte-order mark, blanks around names, a name with a comma, answers with commas and line breaks, empty ones."""
    path = tmp_path / "answers.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["Do you smoke, ever?", " drink ", "age", "age ", ""])
        rows.writerows([" YES ", ["tea", "coffee, black", ""][i % 3], 30, 99, 'well,\n"hm"'] for i in range(30))
    survey_command(path, question="Do you smoke, ever?", epsilon=1, out=tmp_path / "a")
    assert f"deniable survey --estimate {tmp_path / 'a'}" in capsys.readouterr().out
    survey_command(path, question="drink", epsilon=1, categories=["tea", "coffee, black", ""], out=tmp_path / "b")
    survey_command(estimate=tmp_path / "b")
    shown = capsys.readouterr().out
    assert "(empty)" in shown
    assert "coffee, black" in shown
    assert "95 % low" in shown
    ages = local.survey(path, question="age", epsilon=50, low=0, high=100)  # the one that is written so
    assert ages.estimate().value == pytest.approx(30, abs=1)


def test_a_column_that_is_not_there_or_twice_is_refused_without_showing_the_first_line(tmp_path) -> None:
    path = tmp_path / "answers.csv"
    path.write_text(f"{SECRET}|smokes\nx|yes\n", encoding="utf-8")
    with worded(InvalidParameter, parameter="question") as refused:
        survey(path, question="smokes", epsilon=1)
    assert SECRET not in str(refused.value)
    path.write_text("age , age\n1,2\n", encoding="utf-8")
    with worded(InvalidParameter, parameter="question"):
        survey(path, question="age", epsilon=1)


def test_a_survey_of_nobody_is_refused_before_a_file_is_written(tmp_path) -> None:
    path, out = tmp_path / "answers.csv", tmp_path / "reports.csv"
    path.write_text("smokes\n", encoding="utf-8")
    with worded(InvalidParameter, parameter="answers"):
        survey(path, question="smokes", epsilon=1, out=out)
    assert not out.exists()


def test_a_share_outside_of_what_is_possible_is_explained(tmp_path, capsys) -> None:
    design = survey({"smokes": ["yes"]}, question="smokes", epsilon=1).design
    for reports, said in (([True] * 9, True), ([True, False], False)):
        Survey(design, np.array(reports)).save(tmp_path / f"{said}")
        survey_command(estimate=tmp_path / f"{said}")
        assert ("unbiased" in capsys.readouterr().out) == said


def test_the_command_line_takes_categories_with_commas(tmp_path) -> None:
    path, out = tmp_path / "answers.csv", tmp_path / "reports.csv"
    path.write_text('drink\ntea\n"coffee, black"\n""\n', encoding="utf-8")
    categories = 'tea, "coffee, black",'
    command = [sys.executable, "-m", "deniable", "survey", str(path), "--question", "drink", "--epsilon", "1"]
    run = subprocess.run([*command, "--categories", categories, "--out", str(out)], capture_output=True, check=False)
    assert run.returncode == 0, run.stderr
    assert Survey.read(out).design.categories == ("tea", "coffee, black", "")
    for unclosed in ('tea, "coffee, black', "tea\ncoffee, black"):
        run = subprocess.run([*command, "--categories", unclosed, "--out", f"{out}2"], capture_output=True, check=False)
        assert run.returncode == 2, run.stderr
        assert b"every quote is closed" in run.stderr.replace(b"\n", b" ")


@pytest.mark.parametrize("between", [";", "\t"])
def test_semicolons_and_tabs_are_read_too(tmp_path, between) -> None:
    path = tmp_path / "answers.csv"
    rows = [f'"a{between}b"{between}{word}' for word in ("yes", "no")]
    path.write_text("\n".join([f"name{between}smokes", *rows]) + "\n", encoding="utf-8")
    assert len(survey(path, question="smokes", epsilon=1)) == 2


def test_errors_name_the_file_and_what_to_do(answers, tmp_path) -> None:
    with worded(InvalidParameter, parameter="question"):
        survey(answers, question="drinks", epsilon=1)
    with worded(UnreadableRecord):
        Survey.read(answers)
    with pytest.raises(InvalidParameter, match="--question COLUMN"):
        survey_command(answers)


def test_what_is_no_table_in_memory_is_told_what_to_do() -> None:
    table = pl.DataFrame({"smokes": ["yes", "no"]})
    with pytest.raises(InvalidParameter, match=r"collect\(\)"):
        survey(table.lazy(), question="smokes", epsilon=1)
    for column in (table["smokes"], pd.Series(["yes"]), np.array(["yes"]), ["yes"]):
        with pytest.raises(InvalidParameter, match="'smokes': column"):
            survey(column, question="smokes", epsilon=1)
    twice = pd.DataFrame([["yes", "no"]], columns=["smokes", "smokes"])
    with pytest.raises(InvalidParameter, match="several columns"):
        survey(twice, question="smokes", epsilon=1)
    assert len(survey(np.array([("yes",)], dtype=[("smokes", "U3")]), question="smokes", epsilon=1)) == 1


@pytest.mark.parametrize("categories", [pd.Index(["yes", "no"]), pd.Series(["yes", "no"]), np.array(["yes", "no"])])
def test_categories_may_be_any_list(categories) -> None:
    done = survey({"q": ["yes"]}, question="q", epsilon=1, categories=categories)
    assert done.design.categories == ("yes", "no")


@pytest.mark.parametrize(
    "categories", [{"yes", "no"}, {"yes": 1, "no": 2}, pd.DataFrame({"yes": [1], "no": [2]}), "yn"]
)
def test_categories_without_an_order_are_refused(categories) -> None:
    with pytest.raises(InvalidParameter, match="categories"):
        survey({"q": ["yes"]}, question="q", epsilon=1, categories=categories)


def test_estimates_of_a_survey_are_named_and_show_their_intervals() -> None:
    done = survey({"q": ["tea"] * 900 + ["water"] * 100}, question="q", epsilon=45, categories=["tea", "water"])
    found = done.estimate()
    assert found.named(confidence=0.95)["tea"][0] == found.value[0]
    assert found.named(confidence=0.95)["water"][1:] == tuple(float(end[1]) for end in found.interval(confidence=0.95))
    assert "tea: 0.9" in repr(found)
    assert repr(found).endswith("; people=1000, intervals at 95 %)")
    alone = local.RandomizedResponse(epsilon=20).estimate([True] * 4)
    assert repr(alone) == "Shares(1.0000 (0.7566 to 1.0000); people=4, intervals at 95 %)"
    many = local.KaryRandomizedResponse(categories=20, epsilon=20).estimate([3] * 10)
    assert "7: " in repr(many)
    assert "… 12 more" in repr(many)


@pytest.mark.parametrize(
    "answers", [pd.DataFrame({"town": ["Ulm"]}), {"Ulm": 1}, {"Ulm"}], ids=["table", "dict", "set"]
)
def test_texts_are_one_column(answers) -> None:
    strings = local.BloomRappor(bits=16, hashes=2, cohorts=2, f=0.5, p=0.5, q=0.75)
    with worded(InvalidParameter):
        strings.randomize(answers)
