"""Runs that cannot be finished: answered as if nobody were there, at one time, and told to the owner alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from deniable.errors import EngineFailed
from deniable.ledger import State
from deniable.queries.relations.exact_statistics import Collect
from tests.queries.hospital import opened, visits
from tests.queries.test_session import WARDS, Tripwire


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EngineFailed("time"), "time"),
        (EngineFailed("space"), "space"),
        (EngineFailed("engine"), "engine"),
        (KeyError("a-secret@example.org"), "engine"),
        (MemoryError("7717"), "engine"),
    ],
    ids=["time", "space", "engine", "bug", "memory"],
)
def test_a_run_that_fails_is_answered_as_if_nobody_were_there(error: Exception, code: str) -> None:
    """At mu = 300 noise has σ = 3/300 before it is rounded: 50 deviations away from being seen."""
    town = "SELECT town, COUNT(*) AS n FROM visits GROUP BY town"
    with opened(engine=Tripwire(error)) as s, opened(visits().iloc[:0]) as nobody:
        for text, cost in ((WARDS, {"mu": 300}), (town, {"mu": 300, "delta": 1e-9})):
            answer, true = s.sql(text, **cost), nobody.sql(text, **cost)
            assert answer.rows == true.rows
            assert (answer.columns, answer.notes, answer.guarantee) == (true.columns, true.notes, true.guarantee)
            assert answer.receipt.cost == true.receipt.cost
            assert (answer.receipt.entry, answer.receipt.left) == (true.receipt.entry, true.receipt.left)
            assert "secret" not in str(answer.to_dict())
            assert s.sql(text, **cost).rows == answer.rows, "kept, and told again for nothing"
        assert [each.n for each in s.sql(WARDS, mu=300).to_pandas().itertuples()] == [0, 0, 0]
        ours, others = list(s.ledger.entries()), list(nobody.ledger.entries())
        assert [each.state for each in ours] == [State.RESERVED, State.SEALED] * 2 == [each.state for each in others]
        assert s.ledger.charged == nobody.ledger.charged
        assert [(each.entry, each.code) for each in s.failures] == [(1, code), (2, code)]
        assert nobody.failures == ()


@pytest.mark.parametrize("also", [False, True], ids=["the source is gone", "no table could be asked"])
def test_what_fails_whoever_is_there_is_told_and_stays_charged(also: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Tripwire(EngineFailed("engine" if also else "source"))
    if also:
        monkeypatch.setattr(engine, "nothing", engine.collect, raising=False)
    with opened(engine=engine) as s:
        with pytest.raises(EngineFailed) as failed:
            s.sql(WARDS, mu=1)
        assert failed.value.code == ("engine" if also else "source")
        assert s.ledger.charged == s.budget.cost(mu=1)
        assert [entry.state for entry in s.ledger.entries()] == [State.RESERVED, State.FAILED]
        assert s.failures == ()


@pytest.mark.parametrize("took", [0.0, 2.5, 7.0])
def test_whenever_a_run_fails_its_answer_comes_at_one_time(took: float, monkeypatch: pytest.MonkeyPatch) -> None:
    now, waited = [100.0], []

    class Fails(Tripwire):
        patience = 6.0  # type: ignore[assignment]

        def collect(self, question: Collect) -> Any:
            now[0] += took
            raise EngineFailed("space")

    monkeypatch.setattr("deniable.queries.answer.timed_runs.monotonic", lambda: now[0])
    monkeypatch.setattr("deniable.queries.answer.timed_runs.sleep", waited.append)
    with opened(engine=Fails()) as s:
        s.sql(WARDS, mu=1)
    assert waited == [max(0.0, 6.0 - took)]


@pytest.mark.parametrize("fails", [0, 1], ids=["the first", "the second"])
def test_tables_that_are_measured_together_have_a_time_for_all_their_runs(
    fails: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run may take its whole time. With the time of one run for both, the answer told which of them had failed."""
    now, waited, runs = [100.0], [], []

    class Fails(Tripwire):
        patience = 6.0  # type: ignore[assignment]

        def collect(self, question: Collect) -> Any:
            now[0] += 5.0
            runs.append(question)
            if len(runs) == fails + 1:
                raise EngineFailed("time")
            return self.nothing(question)

    monkeypatch.setattr("deniable.queries.answer.timed_runs.monotonic", lambda: now[0])
    monkeypatch.setattr("deniable.queries.answer.timed_runs.sleep", waited.append)
    with opened(engine=Fails()) as s:
        s.batch([WARDS, WARDS.replace("ward", "sex")], mu=1)
    assert len(runs) == fails + 1
    assert waited == [12.0 - 5.0 * len(runs)]


def test_the_fixed_time_of_an_answer_begins_when_the_run_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while it waits for its turn: then the answer of a run that failed came the later the more others ran. What
    stands in for its answer is worked out before its turn is over, and nobody's turn is spent on waiting.
    """
    now, events = [100.0], []

    class Crowded(Tripwire):
        patience = 6.0  # type: ignore[assignment]

        @contextmanager
        def turn(self) -> Iterator[None]:
            now[0] += 20.0
            events.append("turn")
            yield
            events.append("turn is over")

        def collect(self, question: Collect) -> Any:
            now[0] += 2.5
            events.append("ran")
            raise EngineFailed("time")

        def nothing(self, question: Collect) -> Any:
            now[0] += 0.5
            events.append("nobody")
            return super().nothing(question)

    monkeypatch.setattr("deniable.queries.answer.timed_runs.monotonic", lambda: now[0])
    monkeypatch.setattr("deniable.queries.answer.timed_runs.sleep", events.append)
    with opened(engine=Crowded()) as s:
        s.sql(WARDS, mu=1)
    assert events == ["turn", "ran", "nobody", "turn is over", 3.0]


@pytest.mark.parametrize("took", [0.0, 2.5, 5.5])
def test_what_empty_tables_cannot_answer_either_is_told_at_one_time(
    took: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told as soon as both runs had failed, so its time said when the first had."""
    now, waited = [100.0], []

    class Fails(Tripwire):
        patience = 6.0  # type: ignore[assignment]

        def collect(self, question: Collect) -> Any:
            now[0] += took
            raise EngineFailed("space")

        def nothing(self, question: Collect) -> Any:
            raise EngineFailed("engine")

    monkeypatch.setattr("deniable.queries.answer.timed_runs.monotonic", lambda: now[0])
    monkeypatch.setattr("deniable.queries.answer.timed_runs.sleep", waited.append)
    with opened(engine=Fails()) as s, pytest.raises(EngineFailed):
        s.sql(WARDS, mu=1)
    assert waited == [6.0 - took]


def test_failures_are_told_to_whom_the_owner_says() -> None:
    heard: list[Any] = []
    with opened(engine=Tripwire(EngineFailed("time"))) as s:
        s.report_failures(heard.append)
        s.sql(WARDS, mu=1)
        assert [(each.entry, each.code) for each in heard] == [(1, "time")]
        assert s.failures == ()


def test_a_second_answer_may_fail_like_a_first() -> None:
    with opened(engine=Tripwire(EngineFailed("time"))) as s:
        refined = s.refine(s.sql(WARDS, mu=300), mu=300)
        assert [round(row[1], 3) for row in refined.rows] == [0, 0, 0]
        assert len(s.failures) == 2
        assert [entry.state for entry in s.ledger.entries()] == [State.RESERVED, State.SEALED] * 2
