"""The long run of questions: intervals of every aggregate on real people, and texts by the hundred thousand.

    python -m tests.queries.long_run [--runs N] [--texts N] [--plans N] [--pairs N] [--only coverage,texts,plans,pairs]

Coverage: 2000 runs by sex, both kinds of noise; a row is marked where 95 ± 1 % does not hold although it should, by a test
that blames correct intervals once in 1e9. Texts: nothing but our refusals. Plans: no false claim of sensitivity, against
a reference in Python. Pairs: none against DuckDB, and against Spark (a hundredth of them) where pyspark is installed.
Exits with 1 if something is not so.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tests.queries.answer.test_coverage import LEAST, check
from tests.queries.coverage import COSTS, REAL, Covered, covered, real
from tests.queries.engines.kitchen import DuckDBKitchen, SparkKitchen
from tests.queries.engines.neighbour_fuzz import fuzz, spark_session
from tests.queries.sql.test_fuzz import SORTS, asks
from tests.queries.test_sensitivity import search


def coverage(runs: int) -> bool:
    """The table of docs/analyst.md."""
    well = True
    print("| aggregate | coverage, Gaussian | bias | coverage, Laplace | bias | noise of the answer |")
    print("|---|---|---|---|---|---|")
    for asked, measures in REAL.items():
        found: dict[str, Covered] = {}
        for kind, cost in COSTS[asked].items():
            with tempfile.TemporaryDirectory() as folder, real(kind, Path(folder)) as s:
                found[kind] = covered(s, "people", "sex", measures, cost, runs=runs)
            try:
                check(found[kind], LEAST)
            except AssertionError as wrong:
                print(f"NOT SO, {asked}, {kind}: {wrong}")
                well = False
        for name, call in measures.items():
            cells = [f"`{call}`"]
            for each in found.values():
                cells += [f"{100 * each.share(name):.1f} %", f"{each.bias(name):+.2f} sd"]
            spreads = [f"{float(np.std(each.errors[name])):.3g}" for each in found.values()]
            print(f"| {' | '.join(cells)} | {', '.join(spreads)} |", flush=True)
    return well


def texts(count: int) -> bool:
    """As many texts, of all sorts in turn; the first that is neither answered nor refused by us ends it."""
    start, good = time.monotonic(), 0
    makers = [sort(random.Random(time.time_ns() + place)) for place, sort in enumerate(SORTS)]
    for number in range(count):
        text = next(makers[number % len(makers)])
        try:
            good += not isinstance(asks(text), Exception)
        except BaseException:
            print(f"NOT SO: {text!r}", flush=True)
            raise
        if (number + 1) % 20_000 == 0:
            print(f"{number + 1:,} texts, {good:,} of them questions, {time.monotonic() - start:.0f} s", flush=True)
    return True


def plans(count: int) -> bool:
    """As many random plans on random neighbours."""
    found = search(time.time_ns(), count)
    print(f"{count:,} plans: {found or 'no false claim'}", flush=True)
    return found is None


def pairs(count: int) -> bool:
    """As many random plans on neighbouring tables, collected by DuckDB; the worst of true movement / claim is at most 1."""
    seed = time.time_ns()
    found = fuzz(DuckDBKitchen(), seed, count)
    print(f"duckdb, seed {seed}: {found.pairs:,} pairs, worst ratio {float(found.worst):.4f} {found.wrong}", flush=True)
    return not found.wrong and (find_spec("pyspark") is None or spark_pairs(seed, max(1, count // 100)))


def spark_pairs(seed: int, count: int) -> bool:
    """The same by Spark, which needs about half a second for each."""
    kitchen = SparkKitchen(spark_session())
    try:
        found = fuzz(kitchen, seed, count)
    finally:
        kitchen.close()
    print(f"spark, seed {seed}: {found.pairs:,} pairs, worst ratio {float(found.worst):.4f} {found.wrong}", flush=True)
    return not found.wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--texts", type=int, default=120_000)
    parser.add_argument("--plans", type=int, default=100_000)
    parser.add_argument("--pairs", type=int, default=50_000)
    parser.add_argument("--only", default="coverage,texts,plans,pairs")
    chosen = parser.parse_args()
    steps = {
        "coverage": lambda: coverage(chosen.runs),
        "texts": lambda: texts(chosen.texts),
        "plans": lambda: plans(chosen.plans),
        "pairs": lambda: pairs(chosen.pairs),
    }
    well = [steps[name]() for name in chosen.only.split(",")]
    return 0 if all(well) else 1


if __name__ == "__main__":
    sys.exit(main())
