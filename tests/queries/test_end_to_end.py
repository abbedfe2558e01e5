"""The whole way: neighbouring tables, `session.sql`, what an analyst sees, and what can be proved from it.

Each answer is a new question to the ledger (another condition that all rows fulfil), so each is planned, priced, charged,
collected and released as any other. What the answers certify (with probability 1 - 1e-9) is never more than what the
ledger charged for one of them. With a sensitivity that is too small the same test proves the charge wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deniable import audit
from deniable.queries.engines.engine import Engine, Numbers, Progress
from deniable.queries.relations.exact_statistics import Collect, Group, Moves
from deniable.tables.schema import Table
from deniable.units import Unit
from tests.queries.hospital import BUDGETS, opened
from tests.queries.test_audit import MEASURES, MISS, tables

UNIT = Unit.person("patient_id", rows=4)


class Remembering(Engine):
    """An engine that is asked once: all questions here are about the same rows. For engines that take their time."""

    def __init__(self, inner: Engine) -> None:
        self.inner = inner
        self.known: dict[Group, Numbers] | None = None

    def register(
        self, name: str, source: object, table: Table, secret: bytes, progress: Progress | None = None
    ) -> Table:
        return self.inner.register(name, source, table, secret, progress)

    def collect(self, question: Collect) -> dict[Group, Numbers]:
        if self.known is None:
            self.known = self.inner.collect(question)
        return self.known

    def sql(self, question: Collect) -> str:
        return self.inner.sql(question)

    def close(self) -> None:
        self.inner.close()


COSTS: dict[str, dict[str, float]] = {"gaussian": {"mu": 1.5}, "pure": {"epsilon": 1.5}}


def audited(
    call: str, kind: str, runs: int, engines: list[Any], sources: list[Any], unit: Unit = UNIT, cost: Any = None
) -> audit.Finding:
    seen, claims = [], set()
    for source, engine in zip(sources, engines, strict=True):
        with opened(source, unit=unit, budget=BUDGETS[kind], engine=engine) as s:
            answers = [
                s.sql(f"SELECT {call} AS x FROM visits WHERE age > -{run + 1} OR age IS NULL", **(cost or COSTS[kind]))
                for run in range(runs)
            ]
            assert not any(answer.receipt.replayed for answer in answers)
            claims |= {answer.receipt.cost for answer in answers}
            # NULL is what an analyst sees where an average might be of nobody: as good as any number.
            seen.append([-1e9 if answer.value is None else float(answer.value) for answer in answers])  # type: ignore[arg-type]
            curve = s.budget.curve(answers[0].receipt.cost)
    assert len(claims) == 1, "neighbours are charged alike"
    return audit.compare(*seen, claim=curve, delta=0.01, confidence=1 - MISS)


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURES)
def test_no_more_can_be_proved_from_answers_than_was_charged(name: str) -> None:
    found = audited(MEASURES[name], "gaussian", 100, ["duckdb", "duckdb"], list(tables(UNIT)))
    assert not found.refuted, str(found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "pure"])
@pytest.mark.parametrize("name", ["count", "sum"])
def test_a_planted_bug_is_proved_from_answers(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sensitivity too small by sixteen: neighbours are then sixteen times as far apart as was charged."""
    right, unit = Collect.moves, Unit.person("patient_id", rows=16)
    cost = {"gaussian": {"mu": 0.25}, "pure": {"epsilon": 0.5}}[kind]

    def wrong(self: Collect, neighbours: Any) -> tuple[Moves, ...]:
        return tuple(Moves(m.l1 // 16, m.l2_squared // 256, m.linf // 16) for m in right(self, neighbours))

    sound = audited(MEASURES[name], kind, 150, ["duckdb", "duckdb"], list(tables(unit)), unit, cost)
    monkeypatch.setattr(Collect, "moves", wrong)
    planted = audited(MEASURES[name], kind, 150, ["duckdb", "duckdb"], list(tables(unit)), unit, cost)
    assert (sound.refuted, planted.refuted) == (False, True)


def on_spark(spark: Any, table: Any, path: Path) -> Any:
    """By way of a file: Spark does not take the dataframes of today's pandas."""
    table.to_parquet(path)
    return spark.read.parquet(str(path))


@pytest.mark.spark
@pytest.mark.parametrize("name", ["count", "sum", "median"])
def test_no_more_can_be_proved_on_spark(name: str, spark: Any, tmp_path: Path) -> None:
    from deniable.queries.engines.spark import SparkEngine

    sources = [on_spark(spark, table, tmp_path / f"{place}.parquet") for place, table in enumerate(tables(UNIT))]
    engines = [Remembering(SparkEngine(spark)) for _ in sources]
    found = audited(MEASURES[name], "gaussian", 300, engines, sources)
    assert not found.refuted, str(found)
    here, there = (engine.known for engine in engines)
    assert here is not None
    assert here != there, "the victim is seen by Spark too"


@pytest.mark.spark
def test_a_session_on_spark_takes_its_dataframes(spark: Any, tmp_path: Path) -> None:
    """Kinds come from Spark's own types, as those of any other dataframe do."""
    with opened(on_spark(spark, tables(UNIT)[0], tmp_path / "visits.parquet"), unit=UNIT, engine=spark) as s:
        answer = s.sql("SELECT ward, COUNT(*) AS n, AVG(cost) AS c FROM visits GROUP BY ward", mu=50)
        assert answer["ward"] == ("A", "B", "C")
        with opened(tables(UNIT)[0], unit=UNIT) as other:
            assert s.tables == other.tables
            assert s.explain("SELECT COUNT(*) AS n FROM visits").startswith("neighbours differ")
