"""Answers as files: nothing in a cell is taken for markup or a formula, and every format says the same numbers."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import deniable as dn
from deniable.errors import InvalidParameter
from deniable.queries.answer.answer import Answer
from deniable.queries.answer.answer_display import Shown
from deniable.queries.answer.answer_files import Sheet, _guarded, latex
from tests.wording import worded

HOSTILE = (
    "=HYPERLINK(\"http://x\")", "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "＝1+1", "<script>alert(1)</script>",
    "a & b", "50 % of $x_1^2 {#~}", "\\input{/etc/passwd}", "comma, \"quote\"\nline", "-5", "ε ≤ 10⁻⁶", "",
    "[1cm] x", "* y", "naïve Ω",
)  # fmt: skip


@pytest.fixture(scope="module")
def answer() -> Iterator[Answer]:
    frame = pd.DataFrame({"who": list(HOSTILE) * 50, "x": [1.0, 2.5] * 25 * len(HOSTILE)})
    schema = {"who": dn.Domain.text(*HOSTILE, nullable=False), "x": dn.Domain.real(0, 3, nullable=False)}
    budget = dn.Budget.gaussian(mu=1000)
    with dn.session({"t": frame}, unit=dn.Unit.row(), budget=budget, schema=schema) as s:
        yield s.sql('SELECT who, COUNT(*) AS n, AVG(x) AS "<m>" FROM t GROUP BY who', mu=3)


def test_csv_is_read_back_as_it_was(answer: Answer, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    text = answer.to_csv(path)
    assert path.read_bytes().decode() == text
    frame = pd.read_csv(path, keep_default_na=False)
    expected = answer.to_pandas(intervals=True)
    assert list(frame) == list(expected)
    for name in expected:
        assert frame[name].tolist() == expected[name].tolist(), name
    about = json.loads((tmp_path / "t.csv-metadata.json").read_text())
    assert about["url"] == "t.csv"
    assert [each["name"] for each in about["tableSchema"]["columns"]] == list(expected)
    assert about["tableSchema"]["columns"][2]["dc:description"] == "lower end of the 95 % noise interval of n"
    assert about["notes"]


def test_a_spreadsheet_gets_no_formula(answer: Answer, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    answer.to_excel_csv(path, title="=1+1")
    raw = path.read_bytes()
    assert raw.startswith(b"\xef\xbb\xbf")
    rows = list(csv.reader(io.StringIO(raw.decode("utf-8-sig"), newline="")))
    for row in rows:
        for cell in row:
            if re.match(r"\s*[=+@\t\r＝＋－＠|%]", cell) or cell.startswith("-"):
                assert re.fullmatch(r"-\d+(\.\d+)?", cell), cell
    assert ["'=1+1"] in rows, "the title is below the table"
    assert any("noise interval" in row[0] for row in rows if row)
    assert answer.to_excel_csv(separator=";").splitlines()[0] == "\ufeffwho;n;n_low;n_high;<m>;<m>_low;<m>_high"
    with pytest.raises(InvalidParameter, match="semicolon"):
        answer.to_excel_csv(separator="x")


def test_numbers_are_not_guarded_and_texts_like_numbers_neither() -> None:
    assert [_guarded(each) for each in (-5, -2.5, None, True, "-5", "+3.5", "-1e9")] == [
        "-5", "-2.5", "", "true", "-5", "+3.5", "-1e9",
    ]  # fmt: skip
    assert [_guarded(each) for each in ("-a", " =1", "\u00a0=1", "--5")] == ["'-a", "' =1", "'\u00a0=1", "'--5"]


def test_parquet_has_notes_in_its_metadata(answer: Answer, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    answer.to_parquet(tmp_path / "t.parquet")
    table = parquet.read_table(tmp_path / "t.parquet")
    assert table.column_names == ["who", "n", "n_low", "n_high", "<m>", "<m>_low", "<m>_high"]
    assert table.column("n").to_pylist() == list(answer["n"])
    about = json.loads(table.schema.metadata[b"deniable"])
    assert about["confidence"] == 0.95
    assert about["title"] == "n, <m> by who"


class Read(HTMLParser):
    """Tags and texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_html_is_escaped_and_needs_nothing_from_elsewhere(answer: Answer, tmp_path: Path) -> None:
    page = answer.to_html(tmp_path / "t.html", title="<b>Title</b> & more")
    read = Read()
    read.feed(page)
    assert not {"script", "b", "m", "link", "img", "iframe"} & set(read.tags)
    assert "<script>alert(1)</script>" in read.texts
    assert "<b>Title</b> & more" in read.texts
    assert read.tags.count("caption") == 1
    assert 'scope="row"' in page
    assert "http://" not in page.replace(HOSTILE[0].replace('"', "&quot;"), "")
    assert "95 % noise interval" in read.texts
    assert read.tags.count("tr") == len(answer) + 1


def balanced(text: str) -> bool:
    """Whether braces match and every special character is escaped or in math."""
    plain = re.sub(r"\\[\\&%$#_{}]|\\[a-zA-Z]+(\{\})?|\$[^$]*\$", "", text)
    return plain.count("{") == plain.count("}") and not re.search(r"[#$^~_\\]", plain)


def test_latex_is_escaped(answer: Answer, tmp_path: Path) -> None:
    text = answer.to_latex(tmp_path / "t.tex", title="50 % & more_", label="a b_{c}")
    assert (tmp_path / "t.tex").read_text() == text
    body = text[text.index(r"\hline") : text.index(r"\end{tabular}")]
    lines = [line for line in body.splitlines() if line.endswith(r" \\")]
    assert len(lines) == len(answer) + 1
    for line in lines:
        assert len(re.findall(r"(?<!\\)&", line)) == 4
        assert balanced(line.removesuffix(r" \\")), line
    assert r"\caption{50 \% \& more\_}" in text
    assert r"\label{a-b--c-}" in text
    assert r"\textbackslash{}input\{/etc/passwd\}" in text
    assert r"$\varepsilon$ $\leq$ 10$^{-6}$" in text


@pytest.mark.parametrize("text", HOSTILE)
def test_every_text_is_safe_in_latex(text: str) -> None:
    assert balanced(latex(text))


def test_a_row_that_begins_with_a_bracket_was_read_as_the_end_of_the_row_before(answer: Answer) -> None:
    r"""`\\` takes a star and a length in brackets, also from the next line."""
    text = answer.to_latex()
    assert not re.search(r"\\\\\s*[\[*]", text)
    assert "\n{[}1cm] x & " in text
    assert "\n{*} y & " in text


def test_letters_that_pdflatex_does_not_know_are_named() -> None:
    """In a comment: without a package it stops at them."""
    frame = pd.DataFrame({"who": ["漢", "ł", "ę", "Ω"]})
    schema = {"who": dn.Domain.text("漢", "ł", "ę", "Ω", nullable=False)}
    with dn.session({"t": frame}, unit=dn.Unit.row(), budget=dn.Budget.gaussian(mu=9), schema=schema) as s:
        text = s.sql("SELECT who, COUNT(*) AS n FROM t GROUP BY who", mu=1).to_latex()
        plain = s.sql("SELECT COUNT(*) AS n FROM t", mu=1).to_latex()
    assert text.startswith("% pdfLaTeX needs a package for U+0119, U+6F22;")
    assert plain.startswith(r"\begin{table}")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_pdflatex_takes_it(answer: Answer, tmp_path: Path) -> None:
    table = answer.to_latex(title="50 % [x] & more_").replace("＝", "=")  # which it does not know
    both = f"{table}\n{answer.statement().latex().replace('＝', '=')}"
    (tmp_path / "t.tex").write_text(f"\\documentclass{{article}}\n\\begin{{document}}\n{both}\\end{{document}}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]


def test_an_empty_table_is_a_table(answer: Answer, tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.0]})
    with dn.session({"t": frame}, unit=dn.Unit.row(), budget=dn.Budget.gaussian(mu=9)) as s:
        none = s.sql("SELECT COUNT(*) AS n FROM t LIMIT 0", mu=1)
    assert none.to_csv() == "n,n_low,n_high\r\n"
    assert "<tbody></tbody>" in none.to_html()
    assert r"\end{tabular}" in none.to_latex()
    none.to_parquet(tmp_path / "none.parquet")


def test_a_title_must_be_text(answer: Answer) -> None:
    with pytest.raises(InvalidParameter, match="text"):
        answer.to_html(title=5)  # type: ignore[arg-type]


def test_the_name_of_a_column_was_written_with_a_capital() -> None:
    """ "N: where no number is told" stood below a table whose column is n; other notes begin like sentences."""
    sheet = Sheet("t", _Noted(["n", "m"], [[1, 2]], [[None, None]], 0.95, measured=frozenset(), counts=frozenset()))
    assert sheet.notes == ("n: far off.", "m, n: none.", "Note that it is so.")


class _Noted(Shown):
    notes = ("n: far off", "m, n: none", "note that it is so")

    def _papers(self) -> str:
        return ""

    def _entry(self) -> int:
        return 1


def test_one_row_was_called_rows() -> None:
    one = _Noted(["n"], [[1]], [[None]], 0.95, measured=frozenset(), counts=frozenset())
    assert repr(one) == "<_Noted: 1 row of n; entry 1>"


def test_a_folder_that_is_not_there_was_an_error_of_python(answer: Answer, tmp_path: Path) -> None:
    place = tmp_path / "nowhere" / "t.csv"
    for write in (answer.to_csv, answer.to_parquet, answer.to_latex, answer.to_html):
        with worded(InvalidParameter):
            write(place)
