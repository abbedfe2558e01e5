"""Several tables at once: how exact they are, beside an equal split and the finest table alone; and the CPU time.

    python benchmarks/tables.py [--runs 20] [--people 200000]

200,000 people by region (20), age (10) and sex (2); six tables: all three, region × age, and each alone, and the total.
Each way spends the same: ε = 0.6 under a pure budget, μ = 1 under a Gaussian one, ρ = 1/2 under a zCDP one. Errors are
means of |noisy - exact| over all cells of a table and over the runs. Last, the time of the plan for all tables of up to
three of ten columns with ten values each (176 tables, 130,051 cells).
"""

from __future__ import annotations

import argparse
import time
import warnings
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

import deniable as dn
from deniable.queries.session import Session
from deniable.synth.residual_noise import Workload, best, variance_sum

KEYS = (("region", "age", "sex"), ("region", "age"), ("region",), ("age",), ("sex",), ())
SCHEMA = {
    "region": dn.Domain.text(*(f"r{i:02}" for i in range(20)), nullable=False),
    "age": dn.Domain.integer(0, 9, nullable=False),
    "sex": dn.Domain.text("f", "m", nullable=False),
}
WAYS = {
    "pure": (dn.Budget.pure(epsilon=1000), {"epsilon": 0.6}, {"epsilon": 0.1}),
    "gaussian": (dn.Budget.gaussian(mu=100), {"mu": 1}, {"mu": 6**-0.5}),
    "zcdp": (dn.Budget.zcdp(rho=1000), {"rho": 0.5}, {"rho": 0.5 / 6}),
}


def people(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "region": [f"r{i:02}" for i in rng.integers(0, 20, rows)],
            "age": rng.integers(0, 10, rows),
            "sex": rng.choice(["f", "m"], rows),
        }
    )


def text(keys: tuple[str, ...], run: int) -> str:
    """A question that was not asked before: the condition is true of everybody."""
    by = ", ".join(keys)
    where = f"FROM people WHERE age > -{run + 1}"
    return f"SELECT {by}, COUNT(*) AS n {where} GROUP BY {by}" if by else f"SELECT COUNT(*) AS n {where}"


def off(answer: Any, keys: tuple[str, ...], exact: pd.DataFrame) -> float:
    truth = exact.groupby(list(keys)).size() if keys else len(exact)
    errors = [
        abs(row["n"] - (truth.loc[tuple(row[key] for key in keys)] if keys else truth)) for row in answer
    ]  # fmt: skip
    return float(np.mean(errors))


def ours(s: Session, run: int, whole: dict[str, float], part: dict[str, float]) -> list[Any]:
    return s.batch([text(keys, run) for keys in KEYS], **whole)


def fair(s: Session, run: int, whole: dict[str, float], part: dict[str, float]) -> list[Any]:
    return s.batch([text(keys, run) for keys in KEYS], weights="fair", **whole)


def equal(s: Session, run: int, whole: dict[str, float], part: dict[str, float]) -> list[Any]:
    return [s.sql(text(keys, run), **part) for keys in KEYS[::-1]][::-1]


def finest(s: Session, run: int, whole: dict[str, float], part: dict[str, float]) -> list[Any]:
    answer = s.sql(text(KEYS[0], run), **whole)
    return [answer.rollup(*keys) for keys in KEYS]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--runs", type=int, default=20)
    asked.add_argument("--people", type=int, default=200_000)
    given = asked.parse_args()
    table = people(given.people)
    names = [" × ".join(keys) or "total" for keys in KEYS]
    print(f"{'budget':<9} {'way':<16}" + "".join(f"{name:>21}" for name in names) + f"{'CPU s':>8}")
    for kind, (budget, whole, part) in WAYS.items():
        ways = (("together", ours), ("fair", fair), ("equal shares", equal), ("finest, added up", finest))
        for label, way in ways:
            with dn.session({"people": table}, unit=dn.Unit.row(), budget=budget, schema=SCHEMA) as s:
                found, spent = [], 0.0
                for run in range(given.runs):
                    began = time.process_time()
                    answers = way(s, run, whole, part)
                    spent += time.process_time() - began
                    found.append([off(each, keys, table) for each, keys in zip(answers, KEYS, strict=True)])
            means = np.mean(found, axis=0)
            print(f"{kind:<9} {label:<16}" + "".join(f"{m:>21.2f}" for m in means) + f"{spent / given.runs:>8.3f}")
    every = tuple(tables for ways in range(4) for tables in combinations(range(10), ways))
    began = time.process_time()
    workload = Workload((10,) * 10, every, (1.0,) * len(every))
    whole_variance = variance_sum(workload, best(workload))
    print(
        f"plan of {len(every)} tables: {time.process_time() - began:.3f} CPU s, sum of variances {whole_variance:,.1f}"
    )


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
