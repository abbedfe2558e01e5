"""Intervals of quotients of noisy numbers: noise in the denominator counts."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable.ledger.currency import Shape
from deniable.queries.answer.answer import Answer, _Interval
from deniable.queries.answer.receipt import Receipt
from deniable.queries.answer.release import release
from deniable.queries.intervals.draw_laws import reach
from deniable.queries.intervals.noise_intervals import Share
from deniable.queries.intervals.ratio_intervals import Move, Quotient, interval
from deniable.queries.plan.noise_planner import noise, plan
from deniable.queries.plan.recipes import DrawnValue
from deniable.queries.sql.sql_reader import parse
from deniable.testing import statistics

ONE = Share.between(Shape.NORMAL, 1.0)
"""Noise between whole numbers, of standard deviation 1."""


@pytest.mark.parametrize("shape", Shape)
def test_an_interval_holds_each_quotient_that_noise_allows(shape: Shape) -> None:
    """Against the definition: t is inside if and only if |N - t·D| is within the reach of its own noise."""
    seed = random.randrange(2**32)
    print("seed", seed)
    rng, told = random.Random(seed), 0
    for _ in range(30):
        middle = Quotient(rng.uniform(-5, 5), rng.choice([-1, 1]) * rng.uniform(0.5, 5))
        moves = [Quotient(rng.gauss(0, 0.4), rng.gauss(0, 0.4)) for _ in range(3)]
        found = interval(middle, [Move(each, Share.between(shape, 1.0)) for each in moves], shape, 0.95)
        alone = reach(shape, [abs(each.below) for each in moves], 0.95)
        if found is None:
            assert abs(middle.below) <= 1.1 * alone  # the law of the noise at the end is not quite that of D
            continue
        told += 1
        low, high = found
        assert low < middle.above / middle.below < high
        for t in (low, high):
            far = reach(shape, [abs(each.above - t * each.below) for each in moves], 0.95)
            assert abs(middle.above - t * middle.below) == pytest.approx(far, rel=1e-6)
        for t in np.linspace(low, high, 9)[1:-1]:
            far = reach(shape, [abs(each.above - t * each.below) for each in moves], 0.95)
            assert abs(middle.above - t * middle.below) < far
    assert told > 5


def test_a_denominator_that_may_be_0_has_no_interval() -> None:
    assert interval(Quotient(1, 1.9), [Move(Quotient(0, 1), ONE)], Shape.NORMAL, 0.95) is None
    assert interval(Quotient(1, 0), [Move(Quotient(1, 0), ONE)], Shape.NORMAL, 0.95) is None
    assert interval(Quotient(1, 2.1), [Move(Quotient(0, 1), ONE)], Shape.NORMAL, 0.95) is not None


def test_an_exact_denominator_only_divides() -> None:
    low, high = interval(Quotient(6, -2), [Move(Quotient(1, 0), ONE)], Shape.NORMAL, 0.95) or (0.0, 0.0)
    assert (low, high) == pytest.approx((-3 - 1.959964 / 2, -3 + 1.959964 / 2), abs=1e-6)


@pytest.mark.slow
def test_intervals_of_a_line_hold_where_the_noise_is_a_third_of_the_variance() -> None:
    """400 people, one row each, x far from the middle of its bounds, at mu = 1: of 95 % intervals of the slope 90.8 %
    held, and all others lay below the truth. 2000 answers: intervals that hold 95 % are blamed once in 1e9.
    """
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 30, 400)
    y = np.clip(2 * x + rng.normal(0, 10, 400), 0, 100)
    slope, intercept = np.polyfit(x, y, 1)
    r = float(np.corrcoef(x, y)[0, 1])
    asked = {
        "REGR_SLOPE(y, x)": slope, "100 * REGR_SLOPE(y, x) + 1": 100 * slope + 1,
        "REGR_INTERCEPT(y, x)": intercept, "REGR_R2(y, x)": r * r,
    }  # fmt: skip
    budget = dn.Budget.gaussian(mu=10)
    schema = {"x": dn.Domain.real(0, 100), "y": dn.Domain.real(0, 100)}
    with dn.session({"w": pd.DataFrame({"x": x, "y": y})}, unit=dn.Unit.row(), budget=budget, schema=schema) as s:
        for text, right in asked.items():
            made = plan(parse(f"SELECT {text} AS a FROM w", s.tables))
            counts: Any = s._engine.collect(made.collect)
            cost = budget.cost(mu=1)
            drawn, receipt = noise(made, budget, cost), Receipt(1, "", cost, cost, budget, False, "")
            told, trials = [], 2000 if text.startswith("REGR_S") else 200
            for _ in range(trials):
                answer = Answer(made, release(made, drawn, cost, counts), budget, s.guarantee, receipt, 0.95)
                [found] = answer.interval("a")
                told += [] if found is None else [found]
            held = sum(low <= right <= high for low, high in told)
            assert len(told) > trials / 2
            assert all(math.isfinite(low) and low <= high < math.inf for low, high in told)
            assert statistics.at_most(held, len(told), probability=0.95) > 1e-9 / 4, (text, held, len(told))


def _held(shape: Shape, a: float, b: float, draws: int) -> int:
    """How many 95 % intervals of AVG(x)·AVG(y) hold the product a·b of two numbers with noise of deviation 1 each."""
    domains = {name: dn.Domain.real(-1, 1, nullable=False) for name in "xy"}
    frame = pd.DataFrame({"x": [0.5], "y": [0.5]})
    budget = dn.Budget.gaussian(mu=1) if shape is Shape.NORMAL else dn.Budget.pure(epsilon=1)
    with dn.session({"t": frame}, unit=dn.Unit.row(), budget=budget, schema=domains) as s:
        made = plan(parse("SELECT SUM(x) * SUM(y) AS p FROM t", s.tables))
    reader = _Interval(made, made.question.post.columns[0][1], made.question.domains, 0.95)
    step = 2.0 ** made.parts[0].statistic.exponent  # type: ignore[attr-defined]
    rng = np.random.default_rng()
    noisy = rng.normal(size=(draws, 2)) if shape is Shape.NORMAL else rng.laplace(scale=math.sqrt(0.5), size=(draws, 2))
    held = 0
    for x, y in (noisy + np.array([a, b])).tolist():
        drawn = [DrawnValue(round(each / step), 1 / step, shape) for each in (x, y)]
        found = reader.around({"sum": x, "sum_2": y}, {}, drawn)
        assert found is not None
        held += found[0] <= a * b <= found[1]
    return held


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "near"), [(Shape.NORMAL, 1.5), (Shape.LAPLACE, 2.0)])
def test_intervals_of_a_product_held_90_percent_where_both_numbers_are_near_their_noise(
    shape: Shape, near: float
) -> None:
    """Slopes alone: 90.3 % and 92.9 %. Intervals that hold 94.8 % are blamed once in 1e9."""
    held = _held(shape, near, near, 12_000)
    assert statistics.at_most(held, 12_000, probability=0.948) > 1e-9 / 2, held / 12_000
