"""Intervals of windows and of aggregates over noisy rows cover as often as they say, and not much more often."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd
import pytest

import deniable as dn
from deniable.queries.answer.answer import _shown
from deniable.queries.answer.release import release
from deniable.queries.plan.noise_planner import noise, plan_under
from deniable.queries.sql.sql_reader import parse

duckdb = pytest.importorskip("duckdb")

DAYS = 8
FRAME = pd.DataFrame(
    {"p": range(3000), "d": [(k * k // 8) % DAYS for k in range(3000)], "x": [k % 11 for k in range(3000)]}
)
INNER = "(SELECT d, COUNT(*) AS n, SUM(x) AS x FROM t GROUP BY d)"
ROWS = {
    "running": "SUM(n) OVER (ORDER BY d)",
    "step": "n - LAG(n) OVER (ORDER BY d)",
    "moving": "AVG(n) OVER (ORDER BY d ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
    "share": "100.0 * n / SUM(n) OVER ()",
    "ratio": "x / SUM(n) OVER ()",
    "change": "n / SUM(n) OVER () - LAG(n) OVER (ORDER BY d) / SUM(n) OVER ()",
}
WHOLE = {"average": "AVG(n)", "total": "SUM(x)", "each": "SUM(x) / SUM(n)", "rounded": "ROUND(AVG(n), 1)"}
TEXTS = {
    "windows": f"SELECT d, {', '.join(f'{made} AS {name}' for name, made in ROWS.items())} FROM {INNER} ORDER BY d",
    "aggregates": f"SELECT {', '.join(f'{made} AS {name}' for name, made in WHOLE.items())} FROM {INNER}",
    "extremes": f"SELECT MAX(n) AS high, MIN(n) AS low FROM {INNER}",
}
BUDGETS = {
    "normal": (dn.Budget.gaussian(mu=1, delta=1e-6), {"mu": 0.2}),
    "laplace": (dn.Budget.pure(epsilon=1), {"epsilon": 0.5}),
}


def covered(text: str, budget: dn.Budget, cost: dict[str, float], runs: int) -> dict[str, tuple[float, float, int]]:
    """By column: how often the interval holds the number of plain DuckDB, how often half of it does, and of how many."""
    schema = {"d": dn.Domain.integer(keys=range(DAYS), nullable=False), "x": dn.Domain.integer(0, 10, nullable=False)}
    with dn.session({"t": FRAME}, unit=dn.Unit.person("p", rows=1), schema={"t": schema}, budget=budget) as s:
        made = plan_under(parse(text, s.tables), s.budget)
        counts, paid = s._engine.collect(made.collect), s.budget.cost(**cost)
    with duckdb.connect() as plain:
        plain.register("t", FRAME)
        truth = plain.execute(text).fetchall()
    names, drawn = made.question.names, noise(made, budget, paid)
    hits: Counter[str] = Counter()
    halves: Counter[str] = Counter()
    trials: Counter[str] = Counter()
    for _ in range(runs):
        cells, intervals, _ = _shown(made, release(made, drawn, paid, counts), budget, 0.95)
        for row, around, right in zip(cells, intervals, truth, strict=True):
            for name, cell, ends, true in zip(names, row, around, right, strict=True):
                if ends is None or true is None:
                    continue
                low, high = float(ends[0]), float(ends[1])
                assert low <= float(cell) <= high  # type: ignore[arg-type]
                middle, half = (low + high) / 2, (high - low) / 4
                trials[name] += 1
                hits[name] += low <= float(true) <= high
                halves[name] += middle - half <= float(true) <= middle + half
    return {name: (hits[name] / trials[name], halves[name] / trials[name], trials[name]) for name in trials}


RUNS = {("aggregates", "normal"): (1500, 0.916), ("windows", "normal"): (400, 0.90)}
"""Runs, and the least coverage: six standard deviations below 95 %, so that chance fails fewer than one run in 1e9."""


@pytest.mark.slow
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", TEXTS)
def test_intervals_cover_as_often_as_they_say(kind: str, budget: str) -> None:
    runs, least = RUNS.get((kind, budget), (60, 0.78))
    found = covered(TEXTS[kind], *BUDGETS[budget], runs=runs)
    asked: dict[str, Any] = {"windows": ROWS, "aggregates": WHOLE, "extremes": {"high": 0, "low": 0}}[kind]
    assert set(found) >= set(asked)
    for name in asked:
        share, half, _ = found[name]
        assert share > least, (name, found[name])
        if kind != "extremes":  # a union of intervals covers more
            assert half < 0.93, (name, found[name])


def test_what_a_window_reads_is_accounted_for_once() -> None:
    """n - n is 0 without noise, and SUM(n) - SUM(n) too: the coefficients of one number add up."""
    text = f"SELECT SUM(n) - SUM(n) AS nothing, SUM(n) AS n FROM {INNER}"
    schema = {"d": dn.Domain.integer(keys=range(DAYS), nullable=False), "x": dn.Domain.integer(0, 10, nullable=False)}
    budget, cost = BUDGETS["normal"]
    with dn.session({"t": FRAME}, unit=dn.Unit.person("p", rows=1), schema={"t": schema}, budget=budget) as s:
        answer = s.sql(text, **cost)
    [(low, high)] = answer.interval("nothing")  # type: ignore[misc]
    assert answer["nothing"] == (0,)
    assert abs(low) < 1e-6
    assert abs(high) < 1e-6
    [(low, high)] = answer.interval("n")  # type: ignore[misc]
    assert high - low > 10


def test_an_order_by_noise_has_no_interval() -> None:
    text = f"SELECT d, SUM(n) OVER (ORDER BY n DESC) AS s FROM {INNER}"
    schema = {"d": dn.Domain.integer(keys=range(DAYS), nullable=False), "x": dn.Domain.integer(0, 10, nullable=False)}
    budget, cost = BUDGETS["normal"]
    with dn.session({"t": FRAME}, unit=dn.Unit.person("p", rows=1), schema={"t": schema}, budget=budget) as s:
        assert set(s.sql(text, **cost).interval("s")) == {None}
