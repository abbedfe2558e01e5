"""An engine in a process of its own: the same answers, caps that hold, and a new process for one that died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import deniable as dn
from deniable.errors import EngineFailed, InvalidOperation, InvalidParameter
from deniable.ledger.entries import State
from deniable.queries.engines.duckdb import DuckDBEngine
from deniable.queries.engines.engine import Engine
from deniable.queries.engines.engine_process import Apart
from deniable.queries.plan.noise_planner import plan
from deniable.queries.sql.sql_reader import parse
from deniable.tables.schema import Table
from tests.queries.hospital import GAUSSIAN, SCHEMA, UNIT, visits
from tests.wording import worded

QUESTIONS = (
    "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward",
    "SELECT sex, AVG(cost) AS c, MEDIAN(age) AS a FROM visits WHERE stay > 2 GROUP BY sex",
    "SELECT town, COUNT(*) AS n FROM visits GROUP BY town",
    "SELECT COUNT(DISTINCT patient_id) AS n FROM visits",
)

ANYTHING = plan(parse(QUESTIONS[0], {"visits": Table.of("visits", UNIT, **SCHEMA)})).collect
"""For engines that do not look at it."""


class Odd(Engine):
    """Does what its name says when it is asked for data."""

    def __init__(self, way: str) -> None:
        self._way = way

    def register(self, name: str, source: object, table: Any, secret: bytes, progress: Any = None) -> Any:
        return table

    def collect(self, question: Any) -> Any:
        if self._way == "sleep":
            time.sleep(600)
        if self._way == "nap":
            time.sleep(0.5)
            return {}
        if self._way == "die":
            os._exit(9)
        if self._way == "greedy":
            return bytearray(1 << 40)
        raise RuntimeError("a-secret@example.org")

    def nothing(self, question: Any) -> Any:
        return {} if question is None else super().nothing(question)

    def sql(self, question: Any) -> str:
        return ""

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("apart") / "visits.csv"
    visits().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def apart(file: Path) -> Iterator[tuple[Apart, dn.queries.Session]]:
    engine = Apart(partial(DuckDBEngine, memory="200MB"), seconds=30, space=16 << 30)
    with dn.session({"visits": file}, unit=UNIT, budget=GAUSSIAN, schema=SCHEMA, engine=engine) as session:
        yield engine, session


@pytest.mark.parametrize("sql", QUESTIONS)
def test_it_collects_what_the_engine_itself_collects(sql: str, file: Path, apart: Any) -> None:
    engine, session = apart
    made = plan(parse(sql, session.tables)).collect
    secret = engine._tables[0][3]
    with DuckDBEngine() as direct:
        direct.register("visits", file, engine._tables[0][2], secret)
        assert engine.collect(made) == direct.collect(made)
        assert engine.sql(made) == direct.sql(made)


def test_questions_run_beside_each_other(apart: Any) -> None:
    _, session = apart
    answers: list[Any] = []
    threads = [
        threading.Thread(
            target=lambda age=age: answers.append(
                session.sql(f"SELECT COUNT(*) AS n FROM visits WHERE age > {age}", mu=1)
            )
        )
        for age in range(16)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(answers) == 16


def kill(engine: Apart) -> None:
    assert engine.process is not None
    assert engine._worker is not None
    os.kill(engine.process, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while engine._worker.alive and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_killed_process_is_replaced_and_what_was_asked_next_is_answered(apart: Any) -> None:
    engine, session = apart
    before = session.sql("SELECT COUNT(*) AS n FROM visits WHERE age > 50", mu=300).value
    first = engine.process
    kill(engine)
    after = session.sql("SELECT COUNT(*) AS n FROM visits WHERE age > 50 AND age < 200", mu=300).value
    assert engine.process != first
    # The same rows under one secret. Noise has σ = 3/300 before it is rounded: 50 deviations away from being seen.
    assert before == after


@pytest.mark.slow
def test_a_file_that_changed_meanwhile_is_not_asked_by_a_new_process(tmp_path: Path) -> None:
    path = tmp_path / "visits.parquet"
    visits(20, 40).to_parquet(path)
    engine = Apart(partial(DuckDBEngine, threads=1))
    with dn.session({"visits": path}, unit=UNIT, budget=GAUSSIAN, schema=SCHEMA, engine=engine) as session:
        session.sql(QUESTIONS[0], mu=1)
        visits(20, 30).to_parquet(path)
        session.sql(QUESTIONS[1], mu=1)  # from what was read at the beginning
        kill(engine)
        with pytest.raises(EngineFailed) as failed:
            session.sql(QUESTIONS[3], mu=1)
        assert failed.value.code == "source"
        path.unlink()
        with pytest.raises(EngineFailed) as failed:
            session.sql(QUESTIONS[3], mu=2)
        assert failed.value.code == "source"


def failing(way: str, **caps: Any) -> tuple[Apart, Any, Any]:
    """A session whose engine fails in this way, and what it answered to a question that it was charged for."""
    engine = Apart(partial(Odd, way), **caps)
    session = dn.session({"visits": visits(20, 40)}, unit=UNIT, budget=GAUSSIAN, schema=SCHEMA, engine=engine)
    return engine, session, session.sql(QUESTIONS[0], mu=300)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "caps", "code"),
    [
        ("die", {}, "engine"),
        ("raise", {}, "engine"),
        ("greedy", {"space": 8 << 30}, "space"),
    ],
)
def test_a_failure_is_one_of_the_closed_codes_for_the_owner_alone(way: str, caps: dict[str, Any], code: str) -> None:
    _, session, answer = failing(way, **caps)
    with session:
        assert [each.code for each in session.failures] == [code]
        assert [row[1] for row in answer.rows] == [0, 0, 0]
        assert "secret" not in str(answer.to_dict())
        assert [each.state for each in session.ledger.entries()] == [State.RESERVED, State.SEALED]
        assert session.ledger.charged == session.budget.cost(mu=300)


def test_a_question_beside_one_that_ends_the_process_is_asked_again(file: Path) -> None:
    """It has done nothing wrong, so it is not answered as if nobody were there."""
    engine = Apart(partial(DuckDBEngine, threads=1))
    with dn.session({"visits": file}, unit=UNIT, budget=GAUSSIAN, schema=SCHEMA, engine=engine) as session:
        made = plan(parse(QUESTIONS[0], session.tables)).collect
        call, lost = type(engine._worker).call, []

        def once(self: Any, verb: str, *given: Any) -> Any:
            if verb == "collect" and not lost:
                lost.append(self)
                self.end()
                raise EngineFailed("engine")
            return call(self, verb, *given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(engine._worker), "call", once)
            assert sum(numbers[0] for numbers in engine.collect(made).values()) > 1000
        assert lost


def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deniable.queries.engines.engine_process._GRACE", 0.5)
    monkeypatch.setattr("deniable.queries.engines.engine_process._SPARE", 0.0)
    engine, session, answer = failing("sleep", seconds=0.5)
    with session:
        assert [each.code for each in session.failures] == ["time"]
        assert [row[1] for row in answer.rows] == [0, 0, 0]
        assert not engine._worker.alive


def test_the_time_of_a_question_begins_when_it_has_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten rounds of half a second, under a limit of four seconds each."""
    monkeypatch.setattr("deniable.queries.engines.engine_process._GRACE", 0.0)
    with Apart(partial(Odd, "nap"), seconds=4.0) as engine, ThreadPoolExecutor(40) as pool:
        engine.sql(None)  # type: ignore[arg-type]  # the process is there: its start takes seconds on a busy machine
        engine.sql(None)  # type: ignore[arg-type]  # the process is there before time counts
        assert list(pool.map(lambda _: in_turn(engine), range(40))) == [{}] * 40


def in_turn(engine: Apart) -> Any:
    with engine.turn():
        return engine.collect(ANYTHING)


def test_who_has_a_turn_has_a_process() -> None:
    """A process that was lost is started again before the time of the next question begins, not within it."""
    with Apart(partial(Odd, "nap"), seconds=4.0) as engine:
        engine.sql(None)  # type: ignore[arg-type]
        first = engine.process
        kill(engine)
        with engine.turn():
            assert engine._worker is not None
            assert engine._worker.alive
            assert engine.process != first


def test_a_question_waits_for_a_new_process_no_longer_than_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read large tables again takes longer than any question may: who lost the process would be told so by that."""
    monkeypatch.setattr("deniable.queries.engines.engine_process._GRACE", 0.0)
    started, go_on = threading.Event(), threading.Event()
    with Apart(partial(Odd, "die"), seconds=2.0) as engine:
        engine.sql(None)  # type: ignore[arg-type]  # the process is there before time counts
        running = engine._running

        def slowly() -> Any:
            started.set()
            go_on.wait()
            return running()

        monkeypatch.setattr(Apart, "_running", lambda self: slowly())
        with pytest.raises(EngineFailed):
            engine.collect(ANYTHING)
        assert started.is_set()
        assert not go_on.is_set()
        go_on.set()


def test_a_plan_is_shown_while_every_place_is_taken() -> None:
    with Apart(partial(Odd, "sleep")) as engine, ThreadPoolExecutor(8) as pool:
        assert not engine.busy
        asked = [pool.submit(in_turn, engine) for _ in range(8)]
        while engine._inside < 8 or len(engine._worker._waiting if engine._worker else ()) < 4:
            time.sleep(0.01)
        with ThreadPoolExecutor(1) as another:
            assert another.submit(engine.sql, None).result(30) == ""  # type: ignore[arg-type]
            # Nor does what stands in for the answer of a run that failed.
            assert another.submit(engine.nothing, None).result(30) == {}  # type: ignore[arg-type]
        assert engine.busy
        engine.close()
        assert all(isinstance(each.exception(30), EngineFailed | InvalidOperation) for each in asked)
        assert not engine.busy


def test_closing_ends_the_process_and_removes_what_it_left() -> None:
    engine = Apart(partial(DuckDBEngine))
    session = dn.session({"visits": visits(20, 40)}, unit=UNIT, budget=GAUSSIAN, schema=SCHEMA, engine=engine)
    number, process = engine.process, engine._worker._process
    folder = engine._worker._remove.peek()[2][2].path
    assert Path(folder).is_dir()
    session.close()
    assert process.poll() is not None, number
    assert not Path(folder).exists()
    with pytest.raises(InvalidOperation):
        engine.collect(ANYTHING)


def test_who_is_killed_leaves_no_data_behind(file: Path, tmp_path: Path) -> None:
    """Tables larger than memory, and what is sorted, lie in the folder of the process."""
    code = f"""
import time
import deniable as dn
from deniable.queries.engines.engine_process import Apart
from deniable.queries.engines.duckdb import DuckDBEngine
from tests.queries.hospital import GAUSSIAN, SCHEMA, UNIT
engine = Apart(DuckDBEngine)
dn.session({{"visits": {str(file)!r}}}, unit=UNIT, budget=GAUSSIAN, schema=SCHEMA, engine=engine)
print(engine.process, flush=True)
time.sleep(600)
"""
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env) as whole:
        assert whole.stdout is not None
        assert int(whole.stdout.readline())
        assert list(tmp_path.glob("deniable-apart-*/deniable-*"))
        whole.kill()
    end = time.monotonic() + 60
    while list(tmp_path.glob("deniable-*")) and time.monotonic() < end:
        time.sleep(0.05)
    assert list(tmp_path.glob("deniable-*")) == []


def test_a_table_that_cannot_be_read_as_declared_says_so() -> None:
    engine = Apart(partial(DuckDBEngine))
    with worded(InvalidParameter):
        dn.session(
            {"visits": visits(20, 40).drop(columns="ward")},
            unit=UNIT,
            budget=GAUSSIAN,
            schema={"tables": {"visits": {"person": "patient_id", "rows": 3, "columns": {"ward": {"kind": "text"}}}}},
            engine=engine,
        )
    engine.close()


@pytest.mark.parametrize("caps", [{"seconds": 0}, {"seconds": -1}, {"space": 0}])
def test_caps_are_positive(caps: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        Apart(partial(DuckDBEngine), **caps)
