"""The checker of `make bench-sql`: answers that are wrong by one are found, and rows in another order are not blamed."""

from __future__ import annotations

import datetime as dt
import importlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")
ROOT = Path(__file__).parents[2]
BEST = "SELECT ward, COUNT(*) AS n FROM v GROUP BY ward ORDER BY n DESC LIMIT 2"
RANKED = "SELECT ward, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS r FROM v GROUP BY ward"
TOLD = [("A", 90_000, 1), ("B", 7, 2)]
WRONG = {
    "a count by one": [("A", 90_001, 1), ("B", 7, 2)],
    "a rank by one": [("A", 90_000, 1), ("B", 7, 3)],
    "a group twice": [*TOLD, ("B", 7, 2)],
    "a group less": TOLD[:1],
    "rows in a group without any": [*TOLD, ("C", 5, 3)],
}


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "sql"))
    return importlib.import_module("ask")


@pytest.mark.parametrize("rows", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_found(rows: list[tuple[Any, ...]], ask: Any) -> None:
    """Of these, the first, the third and the last passed: windows and large counts were compared roughly."""
    assert ask.difference(RANKED, rows, TOLD, [False, True, True], [[0.0, None]] * len(rows), cut=False)


def test_another_order_and_an_empty_group_are_right(ask: Any) -> None:
    rows = [("C", 0, 3), *reversed(TOLD)]
    assert ask.difference(RANKED, rows, TOLD, [False, True, True], [[0.0, None]] * 3, cut=False) == ""
    over = [False, True]  # a rank of an empty group with an interval of its own
    assert ask.difference(RANKED, rows, TOLD, [False, True, True], [[0.0, 0.0]] * 3, cut=False, windows=over) == ""
    assert ask.difference(RANKED, rows, TOLD, [False, True, True], [[0.0, 0.0]] * 3, cut=False)


def test_only_columns_that_read_an_extreme_are_compared_roughly(ask: Any) -> None:
    """A count beside MAX(…) within a person was compared to 2 %."""
    text = "SELECT SUM(m) AS n FROM (SELECT who, MAX(x) AS m FROM v GROUP BY who) AS t"
    assert ask.difference(text, [(90_001,)], [(90_000,)], [True], [[0.0]], cut=False)
    assert ask.difference(text, [(90_001,)], [(90_000,)], [True], [[0.0]], (), [True], cut=False) == ""
    assert ask.difference(text, [(90_001, 5)], [(90_000, 5)], [True, True], [[0.0, 0.0]], (), [False, True], cut=False)
    best = ask.Written("q", "best", "SELECT ward, MAX(x) AS n FROM v GROUP BY ward ORDER BY n LIMIT 1", "duckdb", "")
    assert ask.out_of_order(best, [("A", 101)], [("A", 100)], [False, True])
    assert ask.out_of_order(best, [("A", 101)], [("A", 100)], [False, True], [True]) == ""


def test_a_page_by_a_key_is_cut_from_all_rows(ask: Any) -> None:
    question = ask.Written(
        "q", "page", "SELECT day, COUNT(*) AS n FROM v GROUP BY day ORDER BY day LIMIT 2 OFFSET 1", "duckdb", ""
    )
    whole = [(1, 9), (2, 8), (3, 7), (4, 6)]
    assert ask.ordered_by(question) == 0
    assert ask.another_page(question, whole[1:3], whole) == ""
    assert ask.another_page(question, whole[:2], whole)
    assert ask.another_page(question, whole[2:0:-1], whole)


def test_a_date_may_be_off_by_days_not_by_years(ask: Any) -> None:
    """2 % of the days since the year 1 are forty years: the first and the last date of a table could be exchanged."""
    first, last = dt.date(2013, 7, 2), dt.date(2013, 7, 31)
    text, coarse = "SELECT MIN(d) AS a, MAX(d) AS b FROM v", [True, True]
    assert ask.difference(text, [(last, first)], [(first, last)], [True, True], [[0.0, 0.0]], (), coarse, cut=False)
    near = [(first + dt.timedelta(7), last)]
    assert ask.difference(text, near, [(first, last)], [True, True], [[0.0, 0.0]], (), coarse, cut=False) == ""


def test_ties_alone_may_be_cut_in_another_way(ask: Any) -> None:
    """Under LIMIT any rows passed that were somewhere in the whole answer."""
    question = ask.Written("q", "best", BEST, "duckdb", "")
    truth = [("A", 9), ("B", 7)]
    assert ask.out_of_order(question, [("A", 9), ("D", 7)], truth, [False, True]) == ""
    assert ask.out_of_order(question, [("A", 9), ("C", 3)], truth, [False, True])
