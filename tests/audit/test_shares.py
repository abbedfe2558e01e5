"""Who has which part of the error rate, and which answers judge: spied upon, as no sample would show it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from deniable import audit, curves
from deniable.audit import event_search, measurement, mechanism_runs
from deniable.audit.event_search import Sample, Tally


class Laplace:
    """Without floating-point leaks: multiples of 2⁻²⁰."""

    def many(self, value: float, count: int) -> Any:
        return value + np.rint(np.random.default_rng().laplace(0, 1, count) * 2**20) / 2**20


class Spies:
    """What reaches the statements of a finding."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.misses: dict[str, list[float]] = {"epsilon": [], "claim": [], "band": [], "coins": []}
        self.drawn: list[Sample] = []
        self.searched: list[tuple[Sample, Sample]] = []
        self.judged: list[Sample] = []
        epsilon, p_value, of_band, coins = Tally.epsilon, Tally.p_value, event_search.band, measurement._coins
        draw, search, verdict = mechanism_runs.draw, measurement._Question.search, measurement._Question.verdict

        def told(kind: str, miss: float) -> float:
            self.misses[kind].append(miss)
            return miss

        def drawn(*args: Any, **rest: Any) -> Sample:
            self.drawn.append(draw(*args, **rest))
            return self.drawn[-1]

        def searched(asked: Any, teach: Sample, choose: Sample, judges: int) -> Any:
            self.searched.append((teach, choose))
            return search(asked, teach, choose, judges)

        def judged(asked: Any, chosen: Any, judges: Sample, trials: int) -> Any:
            self.judged.append(judges)
            return verdict(asked, chosen, judges, trials)

        monkeypatch.setattr(
            Tally, "epsilon", lambda self, *, delta, miss: epsilon(self, delta=delta, miss=told("epsilon", miss))
        )
        monkeypatch.setattr(
            Tally,
            "p_value",
            lambda self, *, epsilon, delta, miss: p_value(self, epsilon=epsilon, delta=delta, miss=told("claim", miss)),
        )
        monkeypatch.setattr(
            event_search, "band", lambda rulers, sample, miss: of_band(rulers, sample, told("band", miss))
        )
        monkeypatch.setattr(measurement, "_coins", lambda available, miss: coins(available, told("coins", miss)))
        monkeypatch.setattr(mechanism_runs, "draw", drawn)
        monkeypatch.setattr(measurement._Question, "search", searched)
        monkeypatch.setattr(measurement._Question, "verdict", judged)


def test_each_statement_has_its_part_of_the_error_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """ε 0.7, the claim 0.2, the band 0.1; and of `compare` what its coins leave of these."""
    spies = Spies(monkeypatch)
    claim = curves.pure(epsilon=3.0)
    audit.measure(Laplace(), neighbours=(0.0, 1.0), claim=claim, trials=300, confidence=0.9)
    assert spies.misses == {
        "epsilon": [pytest.approx(0.07)],
        "claim": [pytest.approx(0.02)],
        "band": [pytest.approx(0.01)],
        "coins": [],
    }
    rng = np.random.default_rng()
    sides = [np.rint(rng.laplace(size=300) * 2**20) + x * 2**20 for x in (0, 1)]
    audit.compare(*sides, claim=claim, confidence=0.9)
    assert spies.misses == {
        "epsilon": [pytest.approx(0.07), pytest.approx(0.0693)],
        "claim": [pytest.approx(0.02), pytest.approx(0.0198)],
        "band": [pytest.approx(0.01), pytest.approx(0.0099)],
        "coins": [pytest.approx(0.001)],
    }
    assert sum(made[-1] for made in spies.misses.values()) == pytest.approx(0.1)


def test_rounds_are_judged_by_answers_that_chose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event of each round comes from the rounds before, and meets answers that nobody has seen."""
    spies = Spies(monkeypatch)
    audit.until_decided(Laplace(), neighbours=(0.0, 1.0), most=9000, confidence=0.99, delta=0.01)
    assert len(spies.drawn) == len(spies.judged) == len(spies.searched) == 3
    # The first has no round before it: a part of its own answers chooses, and the rest judges.
    assert sum(map(len, (*spies.searched[0], spies.judged[0]))) == len(spies.drawn[0])
    for number in (1, 2):
        assert spies.judged[number] is spies.drawn[number]
        seen = np.concatenate([part.answers.raw for part in spies.searched[number]])
        assert np.array_equal(seen, np.concatenate([one.answers.raw for one in spies.drawn[:number]]))


def test_the_coins_of_compare_are_thrown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judged are the answers that the coins say. They are fair and independent: heads differ from throw to throw (all
    alike: below 10⁻⁵⁰), and half of all neighbouring coins are equal, within seven deviations (1e-11).
    """
    thrown = [measurement._coins(1000, 1e-3) for _ in range(40)]
    assert all(max(int(coins.sum()), int((~coins).sum())) <= 1000 for coins in thrown)
    assert len({int(coins.sum()) for coins in thrown}) > 1
    equal = np.concatenate([coins[1:] == coins[:-1] for coins in thrown])
    assert abs(equal.mean() - 0.5) < 7 * 0.5 / math.sqrt(len(equal))
    heads = np.concatenate(thrown)
    assert abs(heads.mean() - 0.5) < 7 * 0.5 / math.sqrt(len(heads))

    monkeypatch.setattr(measurement, "_coins", lambda available, miss: thrown[0])
    samples: list[Sample] = []
    judge = measurement._Question.judge
    monkeypatch.setattr(
        measurement._Question, "judge", lambda self, sample: (samples.append(sample), judge(self, sample))[1]
    )
    audit.compare(np.zeros(1000), np.ones(1000), confidence=0.9)
    assert np.array_equal(samples[0].is_first, thrown[0])
    assert np.array_equal(samples[0].answers.raw, (~thrown[0]).astype(float))
