"""What only Spark has: a LIKE that goes back, planning that nothing interrupts, a logger that repeats data."""

from __future__ import annotations

import logging
import re
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from deniable import Budget, Domain, Unit, session
from deniable.errors import EngineFailed
from deniable.queries.engines.spark_spelling import Spark
from deniable.queries.engines.sql_spelling import column
from deniable.queries.relations.operator_meanings import like

spark_engine = pytest.importorskip("deniable.queries.engines.spark", exc_type=ImportError)


class Planner:
    """A session of Spark that plans for as long as it is left to."""

    def __init__(self) -> None:
        self.planned, self.interrupted = threading.Event(), threading.Event()
        self.tags: list[tuple[int, str]] = []
        self.conf: Any = self

    def set(self, setting: str, value: str) -> None:
        pass

    def get(self, setting: str, otherwise: str) -> str:
        return otherwise

    def createDataFrame(self) -> None:  # noqa: N802  # what tells a session
        pass

    def addTag(self, tag: str) -> None:  # noqa: N802
        self.tags.append((threading.get_ident(), tag))

    def interruptTag(self, tag: str) -> None:  # noqa: N802
        assert tag in {each for _, each in self.tags}
        self.interrupted.set()  # it cancels jobs, and there is none yet

    def sql(self, text: str) -> Any:
        assert self.planned.wait(60)
        return self

    def collect(self) -> list[Any]:
        return [(text,) for text in ("a-secret@example.org",)]


def test_planning_is_part_of_the_time_of_a_question() -> None:
    there = Planner()
    engine = spark_engine.SparkEngine(there, seconds=0.2)
    ran: list[Any] = []
    with pytest.raises(EngineFailed) as failed:
        engine._in_time(
            lambda late: [ran.append(engine._rows(sql, late)) for sql in ("SELECT 1", "SELECT 2")], 0.2, 0.1
        )
    assert failed.value.code == "time"
    assert not there.planned.is_set(), "nobody waited for it"
    assert there.interrupted.wait(60), "what it would run is interrupted"
    assert there.tags[0][0] != threading.get_ident(), "a tag holds for the thread that sets it"
    entered = threading.Event()

    def next_one() -> None:
        with engine.turn():
            entered.set()

    waits = threading.Thread(target=next_one)
    waits.start()
    assert not entered.wait(0.3), "the next question does not share the engine with what is left of this one"
    there.planned.set()
    waits.join(60)
    assert entered.is_set()
    for each in threading.enumerate():
        if each.name.endswith(("(work)", "(_interrupt)")):
            each.join(60)
    assert ran == [[("a-secret@example.org",)]], "no further statement is begun"


def operators(plan: Any) -> list[tuple[str, int | None]]:
    """The operators of an executed plan, from the top, and how many rows each scan gave to what is above it."""
    kind = plan.getClass().getSimpleName()
    if kind == "InMemoryTableScanExec":
        return [(kind, int(plan.metrics().apply("numOutputRows").value()))]
    if kind == "AdaptiveSparkPlanExec":
        return operators(plan.executedPlan())
    if kind.endswith("StageExec"):
        return operators(plan.plan())
    below = [operators(plan.children().apply(at)) for at in range(plan.children().size())]
    return [(kind, None), *(each for child in below for each in child)]


@pytest.mark.slow
@pytest.mark.spark
def test_a_plan_does_not_become_shorter_where_nobody_fulfils_a_condition(spark: Any) -> None:
    """Adaptive execution left out a join, and all that was to be done for it, where one side turned out empty; and a
    scan, where the least and greatest values of a batch excluded all of it.
    """
    joined = """
        SELECT SUM(b.cost) AS n FROM (SELECT who, SUM(cost) AS cost FROM visits GROUP BY who) AS b
        JOIN (SELECT who, MAX(age) AS m FROM visits GROUP BY who) AS a ON a.who = b.who WHERE a.m = 117"""
    alone = "SELECT COUNT(*) AS n FROM visits WHERE age = 117"
    found, partitions = [], "spark.sql.shuffle.partitions"
    before = {each: spark.conf.get(each) for each in (partitions, *spark_engine._BY_DATA)}
    spark.conf.set(partitions, "4")  # with one there is nothing to exchange, and so nothing to adapt to
    rows = [(str(who), who % 90, 1.0) for who in range(200)]
    for extra in ([], [("victim", 117, 1.0)]):
        engine = spark_engine.SparkEngine(spark)
        visits = spark.createDataFrame([*rows, *extra], "who string, age bigint, cost double")
        schema = {"age": Domain.integer(0, 120), "cost": Domain.real(0, 10)}
        about = {"unit": Unit.person("who", rows=2), "budget": Budget(epsilon=5, delta=1e-6), "schema": schema}
        with session({"visits": visits}, **about, engine=engine) as asked:
            for text in (joined, alone):
                sql = engine.sql(asked._planned(text).collect)
                frame = spark.sql(sql)
                frame.collect()
                found.append(operators(frame._jdf.queryExecution().executedPlan()))
    for each, value in before.items():
        spark.conf.set(each, value)
    kinds = [[kind for kind, _ in each] for each in found]
    assert kinds[:2] == kinds[2:]
    assert any("Join" in kind for kind in kinds[0])
    assert [sum(rows or 0 for _, rows in each) for each in found] == [400, 200, 402, 201], "each scan reads all"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("how", ["JOIN", "LEFT JOIN"])
def test_a_join_does_not_stop_where_one_side_has_no_more_rows(spark: Any, how: str) -> None:
    """Where nobody fulfilled the condition on one side, Spark left the other side unread: in all partitions, and in all
    but one as soon as one person did.
    """
    few = "(SELECT who, age FROM visits WHERE age = 117) AS a"
    text = f"SELECT COUNT(*) AS n FROM {few} {how} (SELECT who, cost FROM visits WHERE cost < 2) AS b ON a.who = b.who"
    settings = {"spark.sql.shuffle.partitions": "4", "spark.sql.autoBroadcastJoinThreshold": "-1"}
    before = {each: spark.conf.get(each, None) for each in (*settings, *spark_engine._BY_DATA, spark_engine._EXCLUDED)}
    for each, value in settings.items():
        spark.conf.set(each, value)
    rows, found = [(str(who), who % 90, 1.0) for who in range(200)], []
    for extra in ([], [("victim", 117, 1.0)]):
        engine = spark_engine.SparkEngine(spark)
        visits = spark.createDataFrame([*rows, *extra], "who string, age bigint, cost double")
        schema = {"age": Domain.integer(0, 120), "cost": Domain.real(0, 10)}
        about = {"unit": Unit.person("who", rows=2), "budget": Budget(epsilon=5, delta=1e-6), "schema": schema}
        with session({"visits": visits}, **about, engine=engine) as asked:
            frame = spark.sql(engine.sql(asked._planned(text).collect))
            [[answer]] = frame.collect()
            assert answer == len(extra)
            found.append(operators(frame._jdf.queryExecution().executedPlan()))
    for each, value in before.items():
        spark.conf.unset(each) if value is None else spark.conf.set(each, value)
    kinds = [[kind for kind, _ in each] for each in found]
    assert kinds[0] == kinds[1]
    assert "SortMergeJoinExec" in kinds[0]
    scans = [[rows for _, rows in each if rows is not None] for each in found]
    assert scans == [[200, 200], [201, 201]], "both sides are read to the end"


def test_empty_tables_that_take_too_long_are_answered_by_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large plan was answered after 64.6 s under a limit of 30: the empty tables had a limit of their own."""
    monkeypatch.setattr(spark_engine, "_EMPTY", 0.2)
    monkeypatch.setattr(spark_engine, "_GRACE", 0.1)
    there = Planner()
    engine = spark_engine.SparkEngine(there, seconds=0.3)
    plan = SimpleNamespace(main="SELECT 1", cells=())
    monkeypatch.setattr(spark_engine.sql_generation, "write", lambda *_: plan)
    monkeypatch.setattr(spark_engine, "complete", lambda question, found: ("complete", found))
    began = time.monotonic()
    with pytest.raises(EngineFailed):
        engine.collect(None)
    assert engine.nothing(None) == ("complete", {})
    took = time.monotonic() - began
    there.planned.set()
    with engine.turn():
        pass
    assert engine.patience is not None
    assert took < engine.patience + 5, "a bound that holds, and a busy machine"
    assert engine.patience == pytest.approx(0.6)


def test_a_question_in_time_is_answered() -> None:
    there = Planner()
    there.planned.set()
    engine = spark_engine.SparkEngine(there, seconds=60)
    assert engine._in_time(lambda late: engine._rows("SELECT 1", late), 60, 5) == [("a-secret@example.org",)]
    assert engine.patience == 60 + spark_engine._GRACE + spark_engine._EMPTY


def test_the_logger_is_silent_as_long_as_any_question_runs() -> None:
    logger = logging.getLogger("SQLQueryContextLogger")
    spoken, inside, leave = logger.disabled, threading.Event(), threading.Event()

    def slow() -> None:
        inside.set()
        leave.wait(60)

    other = threading.Thread(target=lambda: spark_engine._guarded(slow, "engine"))
    other.start()
    assert inside.wait(60)
    spark_engine._guarded(lambda: None, "engine")  # ends before the other, and must not switch it on again
    assert logger.disabled
    leave.set()
    other.join()
    assert logger.disabled == spoken


@pytest.mark.parametrize("pattern", ["%a%b%", "%_a%_%b", "a%.%(%", "%%_%%", "%é_%👩%"])
def test_a_pattern_of_several_pieces_is_written_so_that_it_never_goes_back(pattern: str) -> None:
    """Python has the same (?>…) as Java, so its meaning can be seen without Spark."""
    written = Spark().like(column("x"), pattern)
    [digits] = re.findall("UNHEX\\('([0-9A-F]+)'\\)", written.sql("spark"))
    regex = re.compile(bytes.fromhex(digits).decode().replace(r"\z", r"\Z"))
    for text in ("", "a", "ab", "xaxb", "a.(", "a(.", "aa\nbb", "é👩", "éx👩", "xé👩y👩", "baab"):
        assert (regex.search(text) is not None) == like(text, pattern), (pattern, text)


@pytest.mark.slow
@pytest.mark.spark
def test_like_with_many_wildcards_ends(spark: Any) -> None:
    """Spark's own took more than 100 seconds for three wildcards and a thousand characters; a seventh would take years."""
    rows = spark.createDataFrame([(number, "a" * 1000) for number in range(20)], ["id", "note"])
    engine = spark_engine.SparkEngine(spark, seconds=300)
    with session({"t": rows}, unit=Unit.person("id", rows=1), budget=Budget.gaussian(mu=1000), schema={"note": Domain.text()}, engine=engine) as s:  # fmt: skip
        found = s.sql(
            "SELECT COUNT_IF(note LIKE '%a%a%_a%a%a%a%a%c') AS none, COUNT_IF(note LIKE '%a%_a%a%') AS all_of FROM t",
            mu=900,
        )
        assert found.rows[0] == (0, 20)
        assert s.failures == ()
