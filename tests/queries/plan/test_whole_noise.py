"""Intervals of expressions over whole noisy numbers: by the law of whole noise, not by the one between whole numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable.ledger.currency import Shape
from deniable.queries.answer.answer import Answer
from deniable.queries.answer.receipt import Receipt
from deniable.queries.answer.release import Released, release
from deniable.queries.intervals.noise_intervals import Share, _smooth, _summed, smooth_reach
from deniable.queries.intervals.ratio_intervals import Move, Quotient, interval
from deniable.queries.plan.noise_planner import noise, plan
from deniable.queries.session import Session
from deniable.queries.sql.sql_reader import parse
from deniable.testing import statistics

BUDGETS = {"mu": dn.Budget.gaussian(mu=1000), "epsilon": dn.Budget.pure(epsilon=1000)}
COSTS = [0.1, 0.31, 0.4965, 1.05, 1.5, 2.5, 3.0, 5.0]
ROWS = 100
FRAME = pd.DataFrame({"b": [0, 1] * (ROWS // 2), "x": [0.0, 1.0] * (ROWS // 2)})
SCHEMA = {"b": dn.Domain.integer(0, 1), "x": dn.Domain.real(0, 1)}


@pytest.fixture(scope="module")
def tables() -> Iterator[dict[str, Session]]:
    with ExitStack() as stack:
        yield {
            kind: stack.enter_context(dn.session({"w": FRAME}, unit=dn.Unit.row(), budget=budget, schema=SCHEMA))
            for kind, budget in BUDGETS.items()
        }


class Asked:
    """One question about 100 rows of which 50 have b = 1, with its noise, answered as often as is wanted."""

    def __init__(self, s: Session, select: str, kind: str, amount: float) -> None:
        self.budget, self.guarantee = BUDGETS[kind], s.guarantee
        self.plan = plan(parse(f"SELECT {select} AS a FROM w", s.tables))
        self.counts: Any = s._engine.collect(self.plan.collect)
        self.cost = self.budget.cost(**{kind: amount})
        self.noise = noise(self.plan, self.budget, self.cost)
        self.widths = [float(each.width) for each in self.noise.mechanisms]  # type: ignore[attr-defined]
        self.receipt = Receipt(1, "", self.cost, self.cost, self.budget, False, "")

    def release(self) -> Released:
        return release(self.plan, self.noise, self.cost, self.counts)

    def answer(self, released: Released | None = None) -> Answer:
        found = self.release() if released is None else released
        return Answer(self.plan, found, self.budget, self.guarantee, self.receipt, 0.95)

    def half(self, released: Released | None = None) -> float:
        """How far the interval reaches down from the value."""
        answer = self.answer(released)
        [(low, high)] = answer.interval("a")  # type: ignore[misc]
        assert isinstance(answer.value, int | float)
        assert high - answer.value == pytest.approx(answer.value - low, rel=1e-6)
        return float(answer.value - low)


def law(kind: str, width: float) -> tuple[Any, Any]:
    """Whole numbers, and how likely each is as noise: straight from the definitions."""
    most = math.ceil((9 if kind == "mu" else 30) * width) + 2
    at = np.arange(-most, most + 1)
    if kind == "mu":
        ends = [0.5 * math.erfc(-(k - 0.5) / width / math.sqrt(2)) for k in range(-most, most + 2)]
        return at, np.diff(ends)
    return at, np.tanh(1 / (2 * width)) * np.exp(-np.abs(at) / width)


def held(kind: str, weights: list[float], widths: list[float], half: float) -> float:
    """The probability that a weighted sum of whole noises is at most `half` in size, by summing all of them."""
    sums, chances = np.zeros(1), np.ones(1)
    for weight, width in zip(weights, widths, strict=True):
        at, one = law(kind, width)
        sums, chances = np.add.outer(sums, weight * at).ravel(), np.outer(chances, one).ravel()
    return float(chances[np.abs(sums) <= half + 1e-12].sum())


@pytest.mark.parametrize("kind", BUDGETS)
@pytest.mark.parametrize(
    ("select", "weights"),
    [
        ("COUNT(*) * 2 + 1", [2.0]),
        ("COUNT(*) / 10", [0.1]),
        ("7 - 0.3 * SUM(b)", [0.3]),
        ("COUNT(*) - SUM(b)", [1.0, 1.0]),
        ("COUNT(*) * 3 + SUM(b)", [3.0, 1.0]),
        ("COUNT(*) FILTER (WHERE b = 1) - COUNT(*) FILTER (WHERE b = 0)", [1.0, 1.0]),
    ],
)
def test_intervals_of_expressions_over_counts_held_81_percent(
    tables: dict[str, Session], select: str, weights: list[float], kind: str
) -> None:
    """COUNT(*)*2+1 at mu = 2.5 held 79 % of the time. The law is summed: nothing is left to chance."""
    for amount in COSTS:
        asked = Asked(tables[kind], select, kind, amount)
        half = asked.half()
        widths = asked.widths if len(asked.widths) == len(weights) else asked.widths * len(weights)
        assert held(kind, weights, widths, half) >= 0.95, (amount, half, widths)
        # No wider than it must be: without its last step it holds less than it says.
        shorter = half - min(weights) if len(weights) == 1 else 0.99 * half - max(weights)
        assert held(kind, weights, widths, shorter) < 0.95 + 1e-9, (amount, half, widths)


@pytest.mark.parametrize("kind", BUDGETS)
def test_refined_expressions_hold_what_they_say(tables: dict[str, Session], kind: str) -> None:
    """Two answers in one: noise of both, weighted by what each cost."""
    for first, second in [(0.5, 0.5), (1.0, 0.6), (2.0, 2.0), (3.0, 4.0)]:
        one, two = (Asked(tables[kind], "COUNT(*) * 2 + 1", kind, amount) for amount in (first, second))
        merged = one.release().merged(two.release(), one.budget)
        squares = [first**2, second**2]
        weights = [2 * square / sum(squares) for square in squares]
        chance = held(kind, weights, [*one.widths, *two.widths], one.half(merged) + 1e-6)
        assert 0.95 <= chance < 1, (first, second, chance)


@pytest.mark.parametrize("kind", BUDGETS)
@pytest.mark.parametrize("truth", [(50, 100), (100, 100), (0, 100), (60, 20)])
def test_quotients_of_two_counts_hold_what_they_say(truth: tuple[int, int], kind: str) -> None:
    """Every pair of noises in turn, with its probability; where the denominator may be 0, no interval says nothing."""
    shape = Shape.NORMAL if kind == "mu" else Shape.LAPLACE
    for width in (0.2, 0.4, 0.7, 1.0):
        at, chances = law(kind, width)
        likely = [(int(k), float(p)) for k, p in zip(at, chances, strict=True) if p > 1e-4]
        moves = [Move(Quotient(1, 0), Share(1.0, width)), Move(Quotient(0, 1), Share(1.0, width))]
        missed = 0.0
        for i, p in likely:
            for j, q in likely:
                found = interval(Quotient(truth[0] + i, truth[1] + j), moves, shape, 0.95)
                missed += 0.0 if found is None or found[0] <= truth[0] / truth[1] <= found[1] else p * q
        beyond = 1 - sum(p for _, p in likely) ** 2
        assert missed + beyond <= 0.05, (width, missed)
        assert missed + beyond > 0 or width < 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("select", "right"),
    [
        ("COUNT(*) FILTER (WHERE b = 1) / COUNT(*)", 0.5),
        ("SUM(b) / COUNT(*)", 0.5),
        ("100 * COUNT(*) / SUM(b) - 1", 199.0),
        ("COUNT(*) * SUM(b)", 5000.0),
        ("AVG(b) * 2", 1.0),
        ("COUNT(*) * 2 + AVG(x) * 0", 200.0),
        ("COUNT(*) + SUM(x)", 150.0),
    ],
)
@pytest.mark.parametrize(("kind", "amount"), [("mu", 2.5), ("mu", 1.05), ("epsilon", 3.0), ("epsilon", 5.0)])
def test_answers_hold_what_they_say(
    tables: dict[str, Session], select: str, right: float, kind: str, amount: float
) -> None:
    """400 answers each. Of intervals that hold 95 %, one of all these tests is blamed once in 1e9; those that hold 79 %
    are seen.
    """
    asked = Asked(tables[kind], select, kind, amount)
    intervals = [asked.answer().interval("a")[0] for _ in range(400)]
    hits = sum(each is None or each[0] <= right <= each[1] for each in intervals)
    assert statistics.at_most(hits, 400, probability=0.95) > 1e-9 / 28, hits
    assert statistics.at_most(round(0.79 * 400), 400, probability=0.95) < 1e-9 / 28


@pytest.mark.parametrize("kind", BUDGETS)
def test_a_smooth_reach_is_never_too_short(kind: str) -> None:
    """Steps of all ratios, gaps that are filled and gaps that are not: by summing the laws."""
    shape = Shape.NORMAL if kind == "mu" else Shape.LAPLACE
    for width in np.geomspace(0.15, 8, 9):
        for weight, other in [
            (1.0, 1.4),
            (0.5, 1.0),
            (0.33, 0.7),
            (0.99, 1.0),
            (0.0625, 20 / width),
            (0.5, 2.1 / width),
        ]:
            shares = (Share(1.0, width), Share(weight, width * other))
            for confidence in (0.5, 0.9, 0.95, 0.99):
                far = smooth_reach(shape, shares, confidence)
                chance = held(kind, [1.0, weight], [width, width * other], far)
                assert chance >= confidence, (shares, confidence, chance)


@pytest.mark.parametrize("shape", Shape)
@pytest.mark.parametrize("cells", [1, 2, 5])
def test_noise_with_small_steps_has_the_law_of_whole_noise(shape: Shape, cells: int) -> None:
    """The characteristic function between whole numbers is Σ P(k)·cos(k·w·t) of the whole ones, but for the steps:
    these are 1/60 of the noise, and move it by less than 1e-3.
    """
    share = Share(weight=0.25, width=60.0, cells=cells)
    at, law = _summed(shape, share)
    frequencies = np.linspace(0, 0.15, 12)
    whole = [float(law @ np.cos(at * share.weight * each)) for each in frequencies]
    assert _smooth(shape, share, frequencies) == pytest.approx(whole, abs=1e-3)
    assert _smooth(shape, share, frequencies)[-1] < 0.6**cells, "far enough for the powers to differ"
