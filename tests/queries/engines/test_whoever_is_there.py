"""What DuckDB does for a question is the same whoever is in the table, but for the rows of that person.

DuckDB counts for each operator how many rows leave it. A scan that gives fewer rows than its table has was stopped, or
left rows out by what the data says; an operator that gives many rows more because of one person did the work of others.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from deniable.ledger import Budget
from deniable.queries.engines import sql_generation
from deniable.queries.engines.duckdb import _BY_TEXT, _SPELLING, DuckDBEngine
from deniable.queries.session_opening import session
from deniable.tables.kinds import SMALLEST
from deniable.units import Unit

PEOPLE = 5_000
CODES = 4_000
HARD = "(UPPER(LEFT(b.note, 9)) = 'Q0' OR UPPER(LEFT(b.note, 9)) = 'Q1')"
EASY = HARD.replace("=", "<>")
ONE = "a.flag = 77"

QUESTIONS = {
    "a condition that nobody fulfils": f"FROM visits AS a JOIN visits AS b ON a.pid = b.pid WHERE {ONE} AND {HARD}",
    "a condition that all fulfil": f"FROM visits AS a JOIN visits AS b ON a.pid = b.pid WHERE {ONE} AND {EASY}",
    "the other way round": f"FROM visits AS b JOIN visits AS a ON a.pid = b.pid WHERE {ONE} AND {HARD}",
    "a left join": f"FROM (SELECT pid FROM visits AS a WHERE {ONE}) AS a LEFT JOIN (SELECT pid FROM visits AS b WHERE {HARD}) AS b ON a.pid = b.pid",
    "a left join that the condition makes an inner one": f"FROM (SELECT pid FROM visits AS a WHERE {ONE}) AS a LEFT JOIN visits AS b ON a.pid = b.pid WHERE {HARD}",
    "a left join of all with the one": f"FROM (SELECT pid FROM visits AS b WHERE {HARD}) AS b LEFT JOIN (SELECT pid FROM visits AS a WHERE {ONE}) AS a ON a.pid = b.pid",
    "three tables": f"FROM visits AS a JOIN visits AS b ON a.pid = b.pid JOIN visits AS c ON a.pid = c.pid WHERE {ONE} AND c.flag < 60 AND {HARD}",
    "three tables, the one last": f"FROM visits AS c JOIN visits AS b ON c.pid = b.pid JOIN visits AS a ON a.pid = c.pid WHERE {ONE} AND c.flag < 60 AND {HARD}",
    "gathered per person first": f"FROM (SELECT pid, MAX(flag) AS flag FROM visits GROUP BY pid) AS a JOIN visits AS b ON a.pid = b.pid WHERE {ONE} AND {HARD}",
    "gathered per person first, by a left join": f"FROM (SELECT pid, MAX(flag) AS flag FROM visits GROUP BY pid) AS a LEFT JOIN (SELECT pid FROM visits AS b WHERE {HARD}) AS b ON a.pid = b.pid WHERE {ONE}",
    "a left join with what is gathered": f"FROM (SELECT pid FROM visits AS b WHERE {HARD}) AS b LEFT JOIN (SELECT pid, MAX(flag) AS flag FROM visits GROUP BY pid HAVING MAX(flag) = 77) AS a ON a.pid = b.pid",
    "a union": f"FROM (SELECT pid, flag FROM visits WHERE flag = 77 UNION ALL SELECT pid, flag FROM visits WHERE flag = 78) AS a JOIN visits AS b ON a.pid = b.pid WHERE {HARD}",
    "a column to meet on that is computed": f"FROM visits AS a JOIN (SELECT pid, LENGTH(UPPER(note)) AS flag FROM visits) AS b ON a.pid = b.pid AND a.flag = b.flag WHERE {ONE}",
    "a public table": "FROM visits AS a JOIN codes AS b ON a.code = b.code WHERE a.flag = 77 AND UPPER(b.text) LIKE '%B_X%C_Y%'",
    "a public table of which nothing is left": "FROM visits AS a JOIN codes AS b ON a.code = b.code WHERE UPPER(a.note) = 'ONE' AND b.text = 'none'",
    "a public table on the left of another join": f"FROM visits AS a JOIN codes AS c ON a.code = c.code JOIN visits AS b ON a.pid = b.pid WHERE {ONE} AND c.text <> 'x' AND {HARD}",
    "a public table that may be missing": "FROM (SELECT pid, code FROM visits WHERE flag = 77) AS a LEFT JOIN codes AS b ON a.code = b.code WHERE UPPER(b.text) LIKE '%B_X%'",
    "no join, least and greatest values": "FROM visits AS a WHERE a.flag = 77 AND UPPER(a.note) = 'X'",
    "no join, a text": "FROM visits AS a WHERE UPPER(a.note) = 'ONE' OR a.note = 'one'",
}  # fmt: skip


def rows(present: bool) -> Any:
    one = [(PEOPLE // 2 * 10 + 5, 77, "one", 7)] if present else []
    people = sorted([*((10 * i, i % 50, f"note {i}", i % CODES) for i in range(PEOPLE)), *one])
    return pa.table(dict(zip(("pid", "flag", "note", "code"), zip(*people, strict=True), strict=True)))


def operators(node: dict[str, Any]) -> list[tuple[str, str, int]]:
    """Each operator of an executed plan, from the top: its name, its table, and how many rows left it."""
    own = [(node["type"], node["extra_info"].get("Table", ""), node["intermediate_rows"])]
    return [*own, *(each for child in node.get("children", ()) for each in operators(child))]


def executed(engine: DuckDBEngine, collect: Any) -> list[tuple[str, str, int]]:
    written = sql_generation.write(collect, engine._tables, _SPELLING)
    found = []
    for text in (written.main, *written.cells):
        if text is not None:
            [[_, plan]] = engine._ask(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}")
            found += [each for root in json.loads(plan)["operator"] for each in operators(root)]
    return found


@pytest.fixture(scope="module")
def asked() -> Any:
    """The operators of each question, without and with the one person."""
    found: dict[str, list[Any]] = {name: [] for name in QUESTIONS}
    codes = pa.table({"code": range(CODES), "text": [f"text {i}" for i in range(CODES)]})
    for present in (False, True):
        engine = DuckDBEngine()
        about = {"unit": Unit.person("pid", rows=2), "budget": Budget(epsilon=5, delta=1e-6)}
        with session({"visits": rows(present)}, public={"codes": codes}, engine=engine, **about) as opened:
            engine.lock()
            for name, text in QUESTIONS.items():
                found[name].append(executed(engine, opened._planned(f"SELECT COUNT(*) AS n {text}").collect))
    return found


@pytest.mark.parametrize("name", QUESTIONS)
def test_one_person_decides_about_the_work_on_everybodys_rows(name: str, asked: Any) -> None:
    without, present = asked[name]
    assert [each[:2] for each in without] == [each[:2] for each in present], "the same operators"
    for (kind, table, before), (_, _, after) in zip(without, present, strict=True):
        assert 0 <= after - before <= 1, (kind, before, after)
        if kind == "TABLE_SCAN":
            assert before == (CODES if table.endswith("t1") else PEOPLE), "every scan gives all rows of its table"


def test_the_rows_of_a_question_are_counted() -> None:
    """The test above sees something: DuckDB with its own optimizers does leave out others' rows."""
    engine = DuckDBEngine()
    about = {"unit": Unit.person("pid", rows=1), "budget": Budget(epsilon=5, delta=1e-6)}
    with session({"visits": rows(False)}, engine=engine, **about) as opened:
        collect = opened._planned(f"SELECT COUNT(*) AS n {QUESTIONS['no join, least and greatest values']}").collect
        assert sum(rows for kind, _, rows in executed(engine, collect) if kind == "TABLE_SCAN") == 0


def test_only_optimizers_that_look_at_the_text_are_on() -> None:
    engine = DuckDBEngine()
    every = {each for (each,) in engine._run("SELECT name FROM duckdb_optimizers()")}
    assert every >= _BY_TEXT, "these are names that DuckDB knows"
    engine.lock()
    [[off]] = engine._run("SELECT current_setting('disabled_optimizers')")
    assert {each.strip() for each in off.split(",")} == every - _BY_TEXT
    engine.close()


@pytest.mark.parametrize("how", ["JOIN", "LEFT JOIN"])
def test_the_row_of_nobody_is_nobodys_partner(how: str) -> None:
    """Somebody has the very number, and the very keys, on which the row that is in every hash table is joined."""
    people = [SMALLEST, SMALLEST, -1, 0, 1]
    visits = pa.table({"pid": people, "key": ["nobody", "x", "nobody", None, "nobody"], "n": range(5)})
    other = pa.table({"pid": [SMALLEST, 1, 2], "key": ["nobody", "x", "nobody"]})
    codes = pa.table({"key": ["x"], "text": ["y"]})
    unit = {"visits": Unit.person("pid", rows=2), "other": Unit.person("pid", rows=1)}
    about = {"unit": unit, "budget": Budget(epsilon=5, delta=1e-6)}
    every = how == "LEFT JOIN"
    engine = DuckDBEngine()
    with session({"visits": visits, "other": other}, public={"codes": codes}, engine=engine, **about) as opened:
        for text, right, met, alone in (
            (f"visits AS a {how} other AS b ON a.pid = b.pid", "b.key", 3, 2),
            (f"other AS b {how} visits AS a ON a.pid = b.pid", "a.n", 3, 1),
            (f"visits AS a {how} other AS b ON a.pid = b.pid AND a.key = b.key", "b.key", 1, 4),
            (f"visits AS a {how} codes AS b ON a.key = b.key", "b.key", 1, 4),
        ):
            for counted, true in (("*", met + alone * every), (right, met)):
                collect = opened._planned(f"SELECT COUNT({counted}) AS n FROM {text}").collect
                [numbers] = engine.collect(collect).values()
                assert [int(each) for each in numbers] == [true], (text, counted)


def test_conditions_on_numbers_come_before_those_on_texts() -> None:
    """DuckDB asks in the order that is written; a costly condition was asked of all rows, a cheap one of what was left."""
    engine = DuckDBEngine()
    about = {"unit": Unit.person("pid", rows=1), "budget": Budget(epsilon=5, delta=1e-6)}
    with session({"visits": rows(False)}, engine=engine, **about) as opened:
        text = "SELECT COUNT(*) AS n FROM visits WHERE UPPER(note) = 'X' AND flag = 77"
        written = engine.sql(opened._planned(text).collect)
    assert written.index("77") < written.index("'X'")
