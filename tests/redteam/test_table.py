"""The table of cases: no case of the list is missing, every test that is named exists, and the page says the same."""

from __future__ import annotations

import importlib

from tests.redteam.__main__ import Watch, on_page, written
from tests.redteam.cases import GROUPS, ROOT, Case, every
from tests.redteam.elsewhere import ELSEWHERE

ASKED_FOR = {
    *(f"B{number}" for number in range(1, 21)),
    "E1-E12",
    *(f"E{number}" for number in range(13, 21)),
    *(f"Q{number}" for number in range(1, 13)),
    *(f"T{number}" for number in range(1, 9)),
    *(f"N{number}" for number in range(1, 10)),
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
    for each in ELSEWHERE:
        for test in each.tests:
            path, _, name = test.partition("::")
            assert (ROOT / path).exists(), test
            assert hasattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), name), test


def test_the_page_has_these_cases() -> None:
    """python -m tests.redteam --page writes them."""
    assert on_page() == {each.code: (each.tried, each.holds) for each in every()}


def test_the_watch_counts_and_a_broken_case_shows() -> None:
    """The runner is told of three tests, one of which failed: the table must say so."""

    class Report:
        def __init__(self, nodeid: str, outcome: str) -> None:
            self.nodeid, self.outcome, self.when = nodeid, outcome, "call"

    cases = [
        Case("B1", "tried", "must be", ("a.py::x",)),
        Case("B2", "tried", "must | be", ("a.py::y",)),
        Case("Q1", "t", "h", ("a.py::z",)),
    ]
    watch = Watch(cases)
    for nodeid, outcome in (
        ("a.py::x[1]", "passed"),
        ("a.py::x[2]", "passed"),
        ("a.py::y", "failed"),
        ("b.py::x", "failed"),
    ):
        watch.pytest_runtest_logreport(Report(nodeid, outcome))  # type: ignore[arg-type]
    assert [watch.result(each) for each in cases] == ["held", "BROKEN", "not tried"]
    assert "| B2 | tried | must \\| be | BROKEN | 1 |" in written(cases, watch)
