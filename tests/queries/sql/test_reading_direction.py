"""SQL is read in one direction: no module calls one that the contract in pyproject puts above it, not even by callback.

The calls are counted by a profiler. Import contracts cannot see a method or function that is handed down and called
from below. Before this test there were 2, 12, 16, 14 and 36 such calls in the five questions.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.sql import scalar_expressions, sql_reader
from deniable.queries.sql.sql_reader import parse

PROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"
ROOM = str(Path(sql_reader.__file__).parent)
QUESTIONS = {
    "one count": "SELECT COUNT(*) FROM visits",
    "groups": """SELECT ward, COUNT(*) AS n, AVG(cost) AS mean FROM visits WHERE age > 60 GROUP BY ward
        ORDER BY n DESC""",
    "a join": """SELECT w.city, SUM(v.cost) / COUNT(DISTINCT v.patient_id) AS each FROM visits AS v
        JOIN wards AS w ON v.ward = w.ward WHERE v.visited >= '2024-01-01' AND NOT v.diagnosis LIKE 'J%'
        GROUP BY w.city HAVING COUNT(*) > 20""",
    "sub-queries": """WITH old AS (SELECT patient_id, cost, ward FROM visits WHERE age >= 65)
        SELECT CASE WHEN n > 2 THEN 'many' ELSE 'few' END AS kind, COUNT(*) FROM (
            SELECT patient_id, COUNT(*) AS n FROM old WHERE patient_id IN (SELECT patient_id FROM stays)
            GROUP BY patient_id HAVING MAX(cost) > 10
        ) GROUP BY 1""",
    "a correlation, post-processed": """SELECT ward, r, r * r AS square FROM (
            SELECT ward, CORR(cost, age) FILTER (WHERE age > 10) AS r,
                SUM(cost, contribution_bounds_per_row => (0, 100)) AS total
            FROM (SELECT patient_id, ward, age, cost FROM visits
                UNION ALL SELECT patient_id, ward, age, cost FROM visits WHERE cost > 5)
            GROUP BY ward
        ) WHERE total > 3 ORDER BY square DESC LIMIT 2""",
}


def heights() -> dict[str, int]:
    """The layer of each module of queries.sql in the contract of pyproject, 0 at the top."""
    contracts = tomllib.loads(PROJECT.read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    [layers] = [each["layers"] for each in contracts if each.get("containers") == ["deniable.queries.sql"]]
    return {name.strip(): -place for place, layer in enumerate(layers) for name in layer.split("|")}


def module(frame: FrameType) -> str:
    """The module of queries.sql that a frame belongs to; "" for other code."""
    path = Path(frame.f_code.co_filename)
    return path.stem if str(path.parent) == ROOM else ""


def calls(text: str) -> Counter[tuple[str, str]]:
    """How often each module calls each other one to read a question, also through code outside of queries.sql."""
    found: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        called, caller = module(frame), frame.f_back
        if event != "call" or not called:
            return
        while caller is not None and not module(caller):
            caller = caller.f_back
        if caller is not None and module(caller) != called:
            found[module(caller), called] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        parse(text, EXAMPLE)
    finally:
        sys.setprofile(before)
    return found


def upward(found: Counter[tuple[str, str]]) -> dict[tuple[str, str], int]:
    height = heights()
    return {pair: many for pair, many in found.items() if height[pair[0]] <= height[pair[1]]}


@pytest.mark.parametrize("text", QUESTIONS.values(), ids=QUESTIONS)
def test_no_module_calls_one_above_it(text: str) -> None:
    found = calls(text)
    assert len({called for _, called in found}) >= 8  # the profiler saw the question pass through the modules
    assert upward(found) == {}


def test_a_callback_from_below_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    number = scalar_expressions.number
    monkeypatch.setattr(scalar_expressions, "number", lambda digits: sql_reader._whole(None) or number(digits))
    assert upward(calls(QUESTIONS["groups"])) == {("scalar_expressions", "sql_reader"): 1}
