"""Noise intervals hold the answer without noise as often as they say, for every aggregate and both kinds of noise."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from deniable.queries.answers import _estimates
from deniable.queries.planner import Plan, noise, plan
from deniable.queries.release import Released, release
from deniable.queries.sql import parse
from deniable.testing import statistics
from tests.queries.hospital import BUDGETS, opened

COUNTS = {
    "rows": "COUNT(*)",
    "known": "COUNT(stay)",
    "people": "COUNT(DISTINCT patient_id)",
    "ages": "COUNT(DISTINCT age)",
    "total": "SUM(cost)",
    "days": "SUM(stay)",
}
"""Their noise shall be wide against 1, because an interval of whole numbers can only hold a little more than it should."""

RATIOS = {
    "average": "AVG(cost)",
    "old": "AVG(age)",
    "variance": "VAR_SAMP(cost)",
    "deviation": "STDDEV(age)",
}
"""Their noise shall be narrow against the groups: they are smooth functions of noisy numbers only there."""

RANKS = {"middle": "MEDIAN(age)", "tail": "QUANTILE(cost, 0.9)", "least": "MIN(age)", "most": "MAX(cost)"}
"""Their intervals are made of whole cells, and rather too wide."""

ASKED = {
    "counts": (COUNTS, {"gaussian": {"mu": 0.4}, "pure": {"epsilon": 0.8}}),
    "ratios": (RATIOS, {"gaussian": {"mu": 2}, "pure": {"epsilon": 12}}),
    "ranks": (RANKS, {"gaussian": {"mu": 2}, "pure": {"epsilon": 12}}),
}
RUNS, TOGETHER = 2000, 200
FALSE_ALARM = 1e-9 / 3 / 2 / 6


def exact(made: Plan, counts: Any) -> dict[Any, dict[str, float]]:
    """What the measures are without noise: the recipes fed with exact statistics and next to no noise at all."""
    budget = BUDGETS["gaussian"]
    silent = budget.limit
    drawn = release(made, noise(made, budget, silent), silent, counts)
    assert made.parts
    shown = Released(drawn.groups, _as_arrays(made, counts, drawn.groups), silent, silent, drawn.units)
    found = shown.drawn(made, budget)
    return {
        group: {name: each.value for name, each in _estimates(made, numbers, 0.95).items()}  # type: ignore[misc]
        for group, numbers in zip(shown.groups, found, strict=True)
    }


def _as_arrays(made: Plan, counts: Any, groups: Any) -> tuple[Any, ...]:
    parts = []
    for index, part in enumerate(made.parts):
        values = np.array([counts[group][index] for group in groups])
        parts.append(np.cumsum(values, axis=1).astype(float) if part.is_running else values)
    return tuple(parts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "pure"])
@pytest.mark.parametrize("asked", ASKED)
def test_intervals_hold_the_answer_without_noise(asked: str, kind: str) -> None:
    """6000 intervals (2000 runs, three wards) of each measure: a correct 95 % interval is blamed once in 1e9, and one
    that is three tenths too narrow is seen.
    """
    hits, narrow, errors = covered(asked, kind)
    trials = 3 * RUNS
    assert set(hits) == set(ASKED[asked][0])
    for name, count in hits.items():
        assert statistics.at_most(count, trials, probability=0.94) > FALSE_ALARM, (name, count / trials)
        if asked == "ranks":
            continue
        assert statistics.at_least(count, trials, probability=0.96) > FALSE_ALARM, (name, count / trials)
        assert statistics.at_most(narrow[name], trials, probability=0.94) < FALSE_ALARM, (name, narrow[name])
        # No bias that could be seen beside the noise: the mean error is within 8 standard errors of 0.
        found = np.array(errors[name])
        assert abs(found.mean()) < 8 * found.std() / math.sqrt(trials), name


def covered(asked: str, kind: str) -> tuple[Counter[str], Counter[str], dict[str, list[float]]]:
    """How often the interval holds the answer without noise, as it is and three tenths narrower; and the errors."""
    measures, costs = ASKED[asked]
    budget = BUDGETS[kind]
    shown = ", ".join(f"{call} AS {name}" for name, call in measures.items())
    with opened(budget=budget) as s:
        made = plan(parse(f"SELECT ward, {shown} FROM visits GROUP BY ward", s.tables))
        counts = s._engine.collect(made.collect)
    truth = exact(made, counts)
    cost = budget.cost(**costs[kind])  # type: ignore[arg-type]
    drawn = noise(made, budget, cost)
    hits: Counter[str] = Counter()
    narrow: Counter[str] = Counter()
    errors: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(RUNS // TOGETHER):
        # Many runs in one draw: every number gets noise of its own, so copies of a group are as good as runs.
        copies = {(*group, i): numbers for group, numbers in counts.items() for i in range(TOGETHER)}
        many = replace(made, collect=replace(made.collect, known=tuple(copies)))
        released = release(many, drawn, cost, copies)
        for group, numbers in zip(released.groups, released.drawn(many, budget), strict=True):
            for name, one in _estimates(made, numbers, 0.95).items():
                assert one.low is not None
                assert one.high is not None
                assert one.value is not None
                right = truth[group[:-1]][name]
                middle, half = (one.low + one.high) / 2, 0.35 * (one.high - one.low)
                hits[name] += one.low <= right <= one.high
                narrow[name] += middle - half <= right <= middle + half
                errors[name].append(one.value - right)
    return hits, narrow, errors
