"""End to end: neighbouring tables through SQL on DuckDB, noisy answers out, and what an attacker can prove from them.

The attacker knows both tables and looks at everything that was released, along the direction in which the exact numbers
differ. What thousands of answers certify (with probability 1 - 1e-9) is never more than the ledger charged; and where the
neighbours are the worst there can be, it is not much less either. With a sensitivity that is too small by half the same
test proves the claim wrong.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deniable import audit
from deniable.ledger import Budget
from deniable.queries.answer.joint_tables import Jointly, Made, SplitGoal
from deniable.queries.answer.release import _exact, release, release_jointly
from deniable.queries.plan.noise_planner import NoisePlan, noise, plan, plan_under
from deniable.queries.relations.exact_statistics import Moves
from deniable.queries.sql.sql_reader import parse
from deniable.units import Unit
from tests.queries.hospital import BUDGETS, UNIT, opened, visits

RUNS, MORE, TOGETHER = 6000, 24_000, 1000
MISS = 1e-9

MEASURES = {
    "count": "COUNT(*)",
    "count known": "COUNT(cost)",
    "people": "COUNT(DISTINCT patient_id)",
    "distinct": "COUNT(DISTINCT age)",
    "sum": "SUM(cost)",
    "average": "AVG(cost)",
    "variance": "VAR_POP(cost)",
    "deviation": "STDDEV(age)",
    "median": "MEDIAN(age)",
    "quantile": "QUANTILE(stay, 0.9)",
    "least": "MIN(age)",
    "most": "MAX(age)",
}
SINGLE = ("count", "count known", "people", "distinct", "sum")
"""Measured by one statistic that the victim moves as far as one can: there the charge is tight. They get more answers,
so that what is certified lies more than six standard deviations above what the test asks for."""


def tables(unit: Unit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Neighbours: a person with as many rows as are read, all of them as far out as the schema allows.

    Nobody else has more rows than are read. Which of more are read is drawn anew in every session: two sessions would
    then differ by more than this person, and the promise is about the same draw in both.
    """
    common = visits(rows=400).groupby("patient_id").head(unit.rows)
    common["age"] = common["age"] % 40
    victim = {"patient_id": 10**9, "ward": "A", "sex": "f", "stay": 60, "cost": 2000.0, "town": "Turku"}
    rows = pd.DataFrame([victim | {"age": 98 + i} for i in range(unit.rows)])
    return common, pd.concat([common, rows], ignore_index=True)


def exact(text: str, unit: Unit, budget: Budget) -> tuple[NoisePlan, Any, Any]:
    found = []
    for table in tables(unit):
        with opened(table, unit=unit, budget=budget) as s:
            made = plan(parse(text, s.tables))
            found.append(s._engine.collect(made.collect))
    return made, *found


def answers(made: NoisePlan, drawn: Any, cost: Any, counts: Any, towards: list[Any], runs: int) -> Any:
    """How far each of many releases lies in the direction of the victim."""
    found = []
    for _ in range(runs // TOGETHER):
        copies = {(*group, i): numbers for group, numbers in counts.items() for i in range(TOGETHER)}
        many = replace(made, collect=replace(made.collect, known=tuple(copies)))
        parts = release(many, drawn, cost, copies).parts
        score = np.zeros(TOGETHER)
        for part, direction in zip(parts, towards, strict=True):
            score += part.reshape(len(counts), TOGETHER, -1).transpose(1, 0, 2).reshape(TOGETHER, -1) @ direction
        found.append(score)
    return np.concatenate(found)


def directions(made: NoisePlan, drawn: Any, here: Any, there: Any) -> list[Any]:
    """Per part, how the exact numbers differ, over the variance of their noise (the best linear attack on Gaussians)."""
    found = []
    for index, part in enumerate(made.parts):

        def _of(numbers: Any, i: int = index, running: bool = part.is_running) -> Any:
            return numbers[i] if running else _exact(made, i, numbers, paired=bool(drawn.seconds))

        apart = np.array([np.subtract(_of(there[group]), _of(here[group])) for group in here], dtype=float)
        if part.is_running:
            # In terms of the strategy: totals = back · (strategy · counts + noise).
            mechanism = drawn.mechanisms[index]
            strategy, back = mechanism.matrices(part.statistic.width)
            weights = np.linalg.lstsq(back.T, (apart @ strategy.T).T, rcond=None)[0].T
            found.append(weights.reshape(-1) / float(mechanism.noise.width) ** 2)
        else:
            found.append(apart.reshape(-1) / float(drawn.mechanisms[index].width) ** 2)
    return found


def audited(
    kind: str, call: str, unit: Unit = UNIT, *, shrink: int = 1, runs: int = RUNS
) -> tuple[audit.Finding, float]:
    """What can be proved, and what was claimed: ε at δ = 0.01."""
    budget = BUDGETS[kind]
    cost = budget.cost(mu=1.5) if kind == "gaussian" else budget.cost(epsilon=1.5)
    made, here, there = exact(f"SELECT {call} AS x FROM visits", unit, budget)
    if shrink > 1:
        small = [Moves(max(1, p.moves.l1 // shrink), max(1, p.moves.l2_squared // shrink**2), 1) for p in made.parts]
        made = replace(made, parts=tuple(replace(p, moves=m) for p, m in zip(made.parts, small, strict=True)))
        paired = [replace(p, moves=Moves(p.moves.l1 // shrink, p.moves.l2_squared, 1)) for p in made.pairs]
        made = replace(made, pairs=tuple(paired))
    drawn = noise(made, budget, cost)
    towards = directions(made, drawn, here, there)
    left, right = (answers(made, drawn, cost, counts, towards, runs).tolist() for counts in (here, there))
    claim = budget.curve(cost)
    found = audit.compare(left, right, claim=claim, delta=0.01, confidence=1 - MISS)
    return found, claim.epsilon(delta=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "pure"])
@pytest.mark.parametrize("name", MEASURES)
def test_no_more_can_be_proved_than_was_charged(name: str, kind: str) -> None:
    found, claimed = audited(kind, MEASURES[name], runs=MORE if name in SINGLE or name == "average" else RUNS)
    assert not found.refuted, str(found)
    assert found.epsilon <= claimed
    if name in SINGLE or (name == "average" and kind == "pure"):
        assert found.epsilon > 0.4 * claimed, "the audit can see: a good part of what was charged is really there"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "pure"])
@pytest.mark.parametrize("name", ["count", "sum", "average", "median"])
def test_a_sensitivity_too_small_is_refuted(name: str, kind: str) -> None:
    found, _ = audited(kind, MEASURES[name], Unit.person("patient_id", rows=4), shrink=4)
    assert found.refuted


TABLES = ("ward, sex", "ward", "sex", "")
"""Of a batch that is measured together: the victim's rows are all in one cell, so the charge is tight."""


def of_a_batch(kind: str, *, quieter: int = 1, goal: SplitGoal = "sum") -> tuple[audit.Finding, float]:
    """The same of four tables that are measured together; a broken twin has noise that is narrower by a factor."""
    budget, unit = BUDGETS[kind], Unit.person("patient_id", rows=2)
    texts = [
        f"SELECT {by}, COUNT(*) AS n FROM visits GROUP BY {by}" if by else "SELECT COUNT(*) AS n FROM visits"
        for by in TABLES
    ]
    cost = budget.cost(mu=1.5) if kind == "gaussian" else budget.cost(epsilon=1.5)
    counts = []
    for table in tables(unit):
        with opened(table, unit=unit, budget=budget) as s:
            together = Jointly.of([plan_under(parse(text, s.tables), budget) for text in texts])
            made = together.made(budget, cost, [1.0] * len(texts), goal=goal)
            counts.append([s._engine.collect(collect) for _, collect in together.collects(made)])
    widths = [float(mechanism.width) for _, mechanism in made.mechanisms]  # type: ignore[attr-defined]
    apart = exact_parts(together, made, counts[1]), exact_parts(together, made, counts[0])
    towards = [(b - a) / width**2 for a, b, width in zip(apart[1], apart[0], widths, strict=True)]
    scores = []
    for one in reversed(apart):
        score = np.zeros(MORE)
        for (_, mechanism), numbers, direction in zip(made.mechanisms, one, towards, strict=True):
            drawing: Any = mechanism
            noisy = numbers + np.asarray(drawing.draw((MORE, numbers.size), None)) / quieter
            score += noisy @ direction
        scores.append(score.tolist())
    claim = budget.curve(cost)
    return audit.compare(*scores, claim=claim, delta=0.01, confidence=1 - MISS), claim.epsilon(delta=0.01)


def exact_parts(together: Jointly, made: Made, counts: Any) -> list[Any]:
    """What noise is added to: read off a release whose noise is 0."""
    seen: list[Any] = []

    class Silent:
        def draw(self, shape: Any, source: Any) -> Any:
            return Recorder(seen, shape)

    silent = replace(made, mechanisms=tuple((at, Silent()) for at, _ in made.mechanisms))
    release_jointly(together, silent, counts)
    return seen


class Recorder:
    """Zeros that remember what they were added to."""

    def __init__(self, seen: list[Any], shape: Any) -> None:
        self.seen, self.shape = seen, shape

    def reshape(self, shape: Any) -> Any:
        self.shape = shape
        return self

    __array_ufunc__ = None

    def __radd__(self, exact: Any) -> Any:
        self.seen.append(np.asarray(exact, dtype=float).ravel())
        return exact


@pytest.mark.slow
@pytest.mark.parametrize("goal", ["sum", "fair", "closest"])
@pytest.mark.parametrize("kind", ["gaussian", "pure"])
def test_no_more_can_be_proved_of_a_batch_than_was_charged(kind: str, goal: SplitGoal) -> None:
    found, claimed = of_a_batch(kind, goal=goal)
    assert not found.refuted, str(found)
    assert 0.4 * claimed < found.epsilon <= claimed


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "pure"])
def test_a_batch_with_half_of_its_noise_is_refuted(kind: str) -> None:
    found, _ = of_a_batch(kind, quieter=2)
    assert found.refuted
