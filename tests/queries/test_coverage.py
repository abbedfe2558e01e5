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

MEASURES = {
    "rows": "COUNT(*)",
    "known": "COUNT(stay)",
    "people": "COUNT(DISTINCT patient_id)",
    "towns": "COUNT(DISTINCT age)",
    "total": "SUM(cost)",
    "days": "SUM(stay)",
    "average": "AVG(cost)",
    "old": "AVG(age)",
    "variance": "VAR_SAMP(cost)",
    "deviation": "STDDEV(age)",
    "middle": "MEDIAN(age)",
    "tail": "QUANTILE(cost, 0.9)",
    "least": "MIN(age)",
    "most": "MAX(cost)",
}
SMOOTH = ("rows", "known", "people", "towns", "total", "days", "average", "old", "variance", "deviation")
RUNS, TOGETHER = 2000, 100
FALSE_ALARM = 1e-9 / len(MEASURES) / 2


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
def test_intervals_hold_the_answer_without_noise(kind: str) -> None:
    """6000 intervals (2000 runs, three wards) of each measure: a correct 95 % interval is blamed once in 1e9, and one
    that is a fifth too narrow is seen.
    """
    hits, narrow, errors = covered(kind)
    trials = 3 * RUNS
    assert set(hits) == set(MEASURES)
    for name, count in hits.items():
        assert statistics.at_most(count, trials, probability=0.94) > FALSE_ALARM, (name, count / trials)
        if name in SMOOTH:  # an interval of a quantile is made of whole cells, and rather too wide
            assert statistics.at_least(count, trials, probability=0.96) > FALSE_ALARM, (name, count / trials)
            assert statistics.at_most(narrow[name], trials, probability=0.94) < FALSE_ALARM, (name, narrow[name])
            # No bias that could be seen beside the noise: the mean error is within 8 standard errors of 0, or a
            # hundredth of the noise.
            found = np.array(errors[name])
            wide = float(found.std())
            assert abs(found.mean()) < 8 * wide / math.sqrt(trials) + wide / 100, name


def covered(kind: str) -> tuple[Counter[str], Counter[str], dict[str, list[float]]]:
    """How often the interval holds the answer without noise, as it is and a fifth narrower; and the errors."""
    budget = BUDGETS[kind]
    shown = ", ".join(f"{call} AS {name}" for name, call in MEASURES.items())
    with opened(budget=budget) as s:
        made = plan(parse(f"SELECT ward, {shown} FROM visits GROUP BY ward", s.tables))
        counts = s._engine.collect(made.collect)
    truth = exact(made, counts)
    # Wide against whole numbers, narrow against the groups.
    cost = budget.cost(mu=2.0) if kind == "gaussian" else budget.cost(epsilon=12)
    drawn = noise(made, budget, cost)
    hits: Counter[str] = Counter()
    narrow: Counter[str] = Counter()
    errors: dict[str, list[float]] = {name: [] for name in MEASURES}
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
                middle, half = (one.low + one.high) / 2, 0.4 * (one.high - one.low)
                hits[name] += one.low <= right <= one.high
                narrow[name] += middle - half <= right <= middle + half
                errors[name].append(one.value - right)
    return hits, narrow, errors
