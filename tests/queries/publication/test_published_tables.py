"""Tables that are published together."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import deniable as dn
from deniable import queries as q
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.queries.publication.published_tables import Publication
from tests.queries.hospital import opened
from tests.wording import worded

QUESTIONS = {
    "Visits by ward and sex": "SELECT sex, ward, COUNT(*) AS n FROM visits GROUP BY sex, ward",
    "Visits by ward": "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward",
    "Visits by sex": "SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex",
    "All": "SELECT COUNT(*) AS n FROM visits",
}


@pytest.fixture(scope="module")
def answers() -> Iterator[list[q.Answer]]:
    with opened(budget=dn.Budget(epsilon=2, delta=1e-6)) as s:
        yield s.batch(list(QUESTIONS.values()), epsilon=1)


@pytest.fixture
def tables(answers: list[q.Answer]) -> Publication:
    return q.publish(dict(zip(QUESTIONS, answers, strict=True)))


@pytest.fixture(scope="module")
def apart() -> Iterator[Publication]:
    """The same, each asked by itself, the coarsest first: no table can be read off another, and all are fitted."""
    with opened(budget=dn.Budget(epsilon=2, delta=1e-6)) as s:
        asked = {title: s.sql(text, epsilon=0.5) for title, text in reversed(QUESTIONS.items())}
        yield q.publish({title: asked[title] for title in QUESTIONS})  # type: ignore[misc]


def frames(tables: Publication) -> list[pd.DataFrame]:
    return [each.to_pandas() for each in tables]


def test_all_tables_add_up_and_in_whole_numbers_exactly(tables: Publication) -> None:
    for state, near in ((tables, 1e-6), (tables.nonnegative(), 1e-6), (tables.nonnegative().rounded(base=5), 0)):
        fine, ward, sex, total = frames(state)
        assert fine.groupby("ward").n.sum().tolist() == pytest.approx(ward.n.tolist(), abs=near)
        assert fine.groupby("sex").n.sum().tolist() == pytest.approx(sex.n.tolist(), abs=near)
        assert fine.n.sum() == pytest.approx(total.n[0], abs=near)
    assert (fine.n % 5 == 0).all()


def test_tables_are_found_by_title_and_place(tables: Publication) -> None:
    assert len(tables) == 4
    assert tables["Visits by sex"] is tables[2] is tables.tables[2]
    assert [each.columns for each in tables] == [("sex", "ward", "n"), ("ward", "n"), ("sex", "n"), ("n",)]
    with pytest.raises(InvalidParameter, match="one of"):
        tables["None"]


def test_what_was_done_is_told_in_order_everywhere(apart: Publication) -> None:
    done = apart.nonnegative().rounded(base=5).suppressed(below=100)
    steps = ["fitted", "moved", "rounded", "counts"]
    assert [each.split()[0] for each in done.adjustments] == steps
    for text in (str(done), repr(done), done.to_html(), done.to_latex(), " ".join(done.statement().sentences)):
        lowered = text.lower()
        places = [lowered.index(each) for each in ("fitted to each other", "no number is below 0", "multiples of 5")]
        assert places == sorted(places)
    with pytest.raises(InvalidOperation, match="last"):
        done.rounded()


def test_the_promise_is_that_of_all_tables(tables: Publication, answers: list[q.Answer]) -> None:
    """As much as was paid for all of them, and not once for each."""
    with opened(budget=dn.Budget(epsilon=2, delta=1e-6)) as s:
        paid = s.budget.cost(epsilon=1)
        assert tables.guarantee.curve.gdp() == pytest.approx(float(s.budget.level(paid)), rel=1e-9)
    assert tables.guarantee.unit == answers[0].guarantee.unit


def test_every_format_is_written(apart: Publication, tmp_path: Path) -> None:
    done = apart.nonnegative().rounded()
    names = ["visits_by_ward_and_sex", "visits_by_ward", "visits_by_sex", "all"]
    plain = done.to_csv(tmp_path / "csv")
    assert [each.name for each in plain] == [f"{name}.csv" for name in names]
    for path, answer in zip(plain, done, strict=True):
        assert pd.read_csv(path).n.tolist() == list(answer["n"])
        about = json.loads(path.with_name(f"{path.name}-metadata.json").read_text())
        assert "differentially private" in about["dc:description"]
        assert any("fitted" in note.lower() for note in about["notes"])
    assert all(each.read_bytes().startswith(b"\xef\xbb\xbf") for each in done.to_excel_csv(tmp_path / "excel"))
    parquet = pytest.importorskip("pyarrow.parquet")
    for path, answer in zip(done.to_parquet(tmp_path / "parquet"), done, strict=True):
        table = parquet.read_table(path)
        assert table.column("n").to_pylist() == list(answer["n"])
        assert str(table.schema.field("n").type) == "int64"
        assert "differentially private" in json.loads(table.schema.metadata[b"deniable"])["statement"]
    page = done.to_html(tmp_path / "all.html", title="Visits")
    assert page.count("<table>") == page.count("<caption>") == 4
    assert "<h2>Method</h2>" in page
    assert page.count("Fitted to each other") == 1, "what holds of all tables is said once"
    text = done.to_latex(tmp_path / "all.tex")
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 4
    assert r"\textbf{Protection.}" in text
    assert done._repr_html_().count("<table>") == 4


def test_titles_that_are_alike_get_files_of_their_own(answers: list[q.Answer], tmp_path: Path) -> None:
    done = q.publish({"A/B": answers[0], "a b": answers[1], "../..": answers[2]})
    paths = done.to_csv(tmp_path)
    assert [each.name for each in paths] == ["a_b.csv", "a_b_.csv", "table.csv"]
    assert {each.parent for each in paths} == {tmp_path}
    latex = q.publish({"地域": answers[1], "性別": answers[2], "total": answers[3]}).to_latex()
    labels = re.findall(r"\\label{(.*)}", latex)
    assert labels == ["tab:1.--", "tab:2.--", "tab:total"]
    assert q.publish(answers).titles == ("n by sex, ward", "n by ward", "n by sex", "n")


def test_bad_sets_are_refused(answers: list[q.Answer]) -> None:
    for wrong in ([], "SELECT", 5, {}, {"": answers[0]}, {1: answers[0]}, [answers[0], answers[0]]):
        with pytest.raises(InvalidParameter):
            q.publish(wrong)  # type: ignore[arg-type]
    with worded(InvalidParameter, parameter="tables"):
        q.publish([answers[0], "x"])  # type: ignore[list-item]
    with worded(InvalidParameter):
        q.publish([answers[0].adding_up_to(answers[1])])
    with pytest.raises(InvalidParameter, match="rounded"):
        q.publish([answers[0].rounded()])


def test_invariants_hold_in_all_tables(answers: list[q.Answer]) -> None:
    law = {"ward": {"A": 800, "B": 500, "C": 300}}
    done = q.publish(answers, invariants=law).nonnegative().rounded()
    fine, ward, _, total = frames(done)
    assert ward.n.tolist() == [800, 500, 300]
    assert fine.groupby("ward").n.sum().tolist() == [800, 500, 300]
    assert total.n[0] == 1600
    assert any("public before" in each for each in done.guarantee.assumptions)


def test_what_holds_of_all_tables_is_printed_once(tables: Publication) -> None:
    """Each table repeated it, and its own share of the cost beside, which is not what the tables cost together."""
    said = str(tables.nonnegative())
    assert said.count("± is the noise interval") == said.count("moved by least squares") == 1
    assert [said.count(title) for title in ("Visits by ward and sex\n", "All\n")] == [1, 1]
    assert said.splitlines()[-1].startswith("charges 1, 2, 3, 4: epsilon 1 at delta 9E-7")
    assert "left" not in said.splitlines()[-1]


def test_the_sections_of_a_method_stand_out_in_html(tables: Publication) -> None:
    page = tables.to_html()
    assert "<p><strong>Protection.</strong> These 4 tables" in page
    assert "e<sup>ε</sup> = " in page


def test_every_file_says_how_people_are_protected(tables: Publication, tmp_path: Path) -> None:
    """A spreadsheet was the only one that did not, and it is the one that offices send."""
    protection = tables.statement().sentences[0]
    for path in tables.to_excel_csv(tmp_path / "excel"):
        lines = path.read_text("utf-8-sig").splitlines()
        assert any(f"Protection. {protection}" in line for line in lines)
    about = [path.with_name(f"{path.name}-metadata.json") for path in tables.to_csv(tmp_path / "csv")]
    assert all(protection in path.read_text("utf-8") for path in about)
    assert protection in tables.to_html()


def test_a_suppressed_count_was_said_to_be_divided_by_zero(tables: Publication) -> None:
    """Below the table stood that "the a missing number", beside the note that small counts are not shown."""
    done = tables.rounded().suppressed(below=10**9)
    assert all(cell is None for cell in done[0]["n"])
    assert not any("a missing number" in note for table in done for note in table.notes)
    assert "counts below 1,000,000,000 are not shown (–)" in done.adjustments[-1]
    assert "counts below 1,234,567.5 are" in tables.suppressed(below=1_234_567.5).adjustments[-1], "was 1.23457e+06"
    assert "a missing number" not in done.to_latex()


def test_a_page_without_a_title_is_called_after_its_tables(tables: Publication) -> None:
    assert "<title>Visits by ward and sex; Visits by ward; Visits by sex; All</title>" in tables.to_html()
    assert "<title>Visits</title>" in tables.to_html(title="Visits")


def test_a_file_in_the_place_of_a_folder_is_named(tables: Publication, tmp_path: Path) -> None:
    taken = tmp_path / "all.csv"
    taken.write_text("mine")
    for write in (tables.to_csv, tables.to_excel_csv, tables.to_parquet):
        with worded(InvalidParameter):
            write(taken)
    assert taken.read_text() == "mine"
