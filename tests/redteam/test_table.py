"""The table of cases: no case of the list is missing, every test that is named exists, and the page says the same."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.redteam.__main__ import Results, on_page, written
from tests.redteam.cases import GROUPS, ROOT, Case, every
from tests.redteam.elsewhere import ELSEWHERE

ASKED_FOR = {
    *(f"B{number}" for number in range(1, 21)),
    "E1-E12",
    *(f"E{number}" for number in range(13, 21)),
    *(f"Q{number}" for number in range(1, 13)),
    *(f"T{number}" for number in range(1, 9)),
    *(f"N{number}" for number in range(1, 12)),
    *(f"A{number}" for number in range(1, 11)),
}
"""The cases that were written down before there was a test for any."""


def test_no_case_is_missing_and_none_is_twice() -> None:
    codes = [each.code for each in every()]
    assert len(codes) == len(set(codes))
    assert set(codes) >= ASKED_FOR
    assert {code[0] for code in codes} == set(GROUPS)


def test_every_case_has_words_and_a_test() -> None:
    for each in every():
        assert each.tests, each.code
        assert 5 < len(each.tried) < 200, each.code
        assert 5 < len(each.holds) < 150, each.code


def test_tests_that_stand_elsewhere_exist() -> None:
    """Their files are read, not imported: without Spark or torch a file of tests ends at its first import."""
    names: dict[str, set[str]] = {}
    for each in ELSEWHERE:
        for test in each.tests:
            path, _, name = test.partition("::")
            assert (ROOT / path).exists(), test
            if path not in names:
                written = ast.parse((ROOT / path).read_text()).body
                names[path] = {item.name for item in written if isinstance(item, ast.FunctionDef)}
            assert name in names[path], test


def test_the_page_has_these_cases() -> None:
    """python -m tests.redteam --page writes them."""
    rows = on_page()
    assert {code: row[1:3] for code, row in rows.items()} == {each.code: [each.tried, each.holds] for each in every()}
    assert {row[3] for row in rows.values()} == {"held"}


def test_a_broken_case_shows(tmp_path: Path) -> None:
    """The runner reads of four tests, one of which failed and one was left out: the table must say so."""
    cases = [
        Case("B1", "tried", "must be", ("a/b.py::x",)),
        Case("B2", "tried", "must | be", ("a/b.py::y",)),
        Case("Q1", "tried", "must be", ("a/b.py::z",)),
    ]
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="a.b" name="x[1]"><properties/></testcase><testcase classname="a.b" name="x[2]"/>'
        '<testcase classname="a.b" name="y"><failure/></testcase><testcase classname="a.c" name="x"><error/></testcase>'
        '<testcase classname="a.b" name="z"><skipped/></testcase></testsuite></testsuites>'
    )
    results = Results(cases)
    results.read(report)
    assert [(results.result(each), results.many(each)) for each in cases] == [
        ("held", 2),
        ("BROKEN", 1),
        ("not tried", 0),
    ]
    assert "| B2 | tried | must \\| be | BROKEN | 1 |" in written(cases, results, {})
    kept = {"Q1": ["Q1", "tried", "must be", "held", "7"], "B2": ["B2", "tried", "must | be", "held", "9"]}
    assert "| Q1 | tried | must be | held | 7 |" in written(cases, results, kept)
    assert "| B2 | tried | must \\| be | BROKEN | 1 |" in written(cases, results, kept)


@pytest.mark.slow
def test_the_page_has_as_many_tests_as_there_are() -> None:
    """By collecting them; where a file cannot be read because an extra is missing, its cases are left out."""
    cases = every()
    results, files = Results(cases), sorted({test.partition("::")[0] for case in cases for test in case.tests})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", "", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    listed = [line for line in done.stdout.splitlines() if "::" in line and not line.startswith("ERROR")]
    for line in listed:
        results.add(line, "passed")
    there, rows = {line.partition("::")[0] for line in listed}, on_page()
    whole = [each for each in cases if {test.partition("::")[0] for test in each.tests} <= there]
    assert len(whole) > 100, done.stdout[-2000:]
    wrong = {each.code: (rows[each.code][4], results.many(each)) for each in whole}
    assert {code: both for code, both in wrong.items() if int(both[0]) != both[1]} == {}
