"""`deniable survey`: from answers to reports to an estimate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.shell import run


@pytest.mark.slow
def test_a_survey_from_answers_to_an_estimate(tmp_path: Path) -> None:
    answers, reports = tmp_path / "answers.csv", tmp_path / "reports.csv"
    answers.write_text("person,smokes\n" + "".join(f"{i},{'yes' if i % 4 == 0 else 'no'}\n" for i in range(4000)))
    done = run("survey", str(answers), "--question", "smokes", "--epsilon", "2", "--out", str(reports))
    assert done.returncode == 0
    # What is said on the answering side is public: the design and the number of people, nothing about the answers.
    assert "4,000 reports" in done.stdout
    found = run("survey", "--estimate", str(reports), "--json", "--confidence", "0.999999999")
    (only,) = json.loads(found.stdout)["estimates"]
    assert only["interval"][0] <= 0.25 <= only["interval"][1]  # fails once in 10⁹ runs
    assert only["interval"][1] - only["interval"][0] < 0.15


@pytest.mark.slow
def test_a_survey_asked_wrongly_shows_no_answer(tmp_path: Path) -> None:
    answers = tmp_path / "answers.csv"
    answers.write_text("person,smokes\n1,secret\n")
    for question in ("drinks", "smokes"):
        wrong = run("survey", str(answers), "--question", question, "--epsilon", "2", "--out", str(tmp_path / "o.csv"))
        assert "secret" not in wrong.stdout + wrong.stderr
    assert run("survey").returncode == 2
