"""Questions to a table of people: us, plain DuckDB and other libraries on the same rows, in one run.

    python benchmarks/queries.py [--rows 1000000 10000000] [--only [NAME ...]] [--json OUT] [--strict]

A table is generated: a tenth as many people as rows, with skewed activity; 1000 keys; a real between 0 and 1000. Every
library counts or sums it with at most ten rows of each person, so that a whole person is protected. Each runs in a
fresh process (and each other library in an environment of its own, .venv-bench-queries-NAME, built if need be). Times
are CPU seconds of the process and its children, imports apart; ours once registered, with the registration by itself.
A library that cannot be installed or does not finish in the time allowed is shown with the reason. Our sources are
compiled first, as an installation does for every library: else each import would compile them where Python is told not
to write its caches.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import venv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROWS_OF_A_PERSON, KEYS, EPSILON, DELTA = 10, 1000, 1.0, 1e-6
SMALL, SMALL_QUESTIONS = 10_000, 100
LIMIT_S = 600
HERE = Path(__file__).resolve().parent
SOURCES = HERE.parent / "src" / "deniable"
PEERS = {
    "OpenDP 0.16 + Polars": ("opendp", ["opendp[polars]==0.16.0", "pandas", "pyarrow"]),
    "SmartNoise 1.0.10": ("smartnoise", ["smartnoise-sql==1.0.10", "pyarrow"]),
    "PipelineDP 0.3.1": ("pipelinedp", ["pipeline-dp==0.3.1", "pyarrow", "pandas"]),
    "Tumult 0.21": ("tumult", ["tmlt.analytics==0.21.0"]),
}
WORKS = ("person-level count", "sum by 1000 known keys", "unknown keys", "median", "100 small questions")
REACH = {"ratio": 2.0, "peer": 10.0, "small": 1.0, "memory": 1024.0, "connect": 1.0}
"""Times plain DuckDB at most; times faster than every peer at least; CPU s for 100 small questions; MB; CPU s."""


# -- one contender in its own process --------------------------------------------------------------------------------


def family() -> list[Path]:
    """This process and all below it (Spark's work is done by a JVM and its workers), as folders of /proc."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # gone meanwhile
            continue
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return [Path("/proc") / str(pid) for pid in found]


def cpu() -> float:
    """CPU seconds of the family so far, of members that are gone as well."""
    ticks = 0
    for folder in family():
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(each) for each in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK") if len(family()) > 1 else time.process_time()


def peak() -> float:
    """The largest memory of each member, together, in MB."""
    total = 0
    for folder in family():
        try:
            lines = (folder / "status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return total / 1024


def timed(work: Callable[[], Any]) -> float:
    start = cpu()
    work()
    return cpu() - start


Report = Callable[[str, float | list[float]], None]


def fetch(connection: Any, text: str) -> Any:
    return connection.execute(text).fetchall()


def plain(path: str, small: str, report: Report) -> None:
    import duckdb

    with tempfile.TemporaryDirectory() as folder:
        connection = duckdb.connect(str(Path(folder) / "plain.duckdb"), config={"memory_limit": "640MB"})
        report("load", timed(lambda: connection.execute(f"CREATE TABLE visits AS FROM '{path}'")))
        connection.execute(f"CREATE TABLE small AS FROM '{small}'")
        by_key = "SELECT key, sum(cost) FROM visits GROUP BY key"
        for name, text in (
            (WORKS[0], "SELECT count(*) FROM visits"),
            (WORKS[1], by_key),
            (WORKS[2], "SELECT key, count(*) FROM visits GROUP BY key"),
            (WORKS[3], "SELECT median(cost) FROM visits"),
        ):
            report(name, min(timed(partial(fetch, connection, text)) for _ in range(3)))
        texts = [f"SELECT key, count(*) FROM small WHERE age > {i} GROUP BY key" for i in range(SMALL_QUESTIONS)]
        report(WORKS[4], timed(lambda: [fetch(connection, text) for text in texts]))


def ours(path: str, small: str, report: Report) -> None:
    start = cpu()
    import deniable as dn

    budget = dn.Budget.gaussian(mu=1000, delta=1e-3)
    unit = dn.Unit.person("person", rows=ROWS_OF_A_PERSON)
    keys = dn.Domain.text(*(f"key {i}" for i in range(KEYS)), nullable=False)
    real, age = dn.Domain.real(0, 1000, nullable=False), dn.Domain.integer(0, 120, nullable=False)
    schema = {"key": keys, "cost": real, "age": age}
    with dn.session({"small": small}, unit=unit, budget=budget, schema=schema) as s:
        report("import and connect", cpu() - start)
        few = "CASE WHEN age < 40 THEN 'young' WHEN age < 70 THEN 'middle' ELSE 'old' END"
        texts = [
            f"SELECT {few} AS a, COUNT(*) AS n FROM small WHERE age > {i} GROUP BY a" for i in range(SMALL_QUESTIONS)
        ]
        report(WORKS[4], timed(lambda: [s.sql(text, mu=0.1) for text in texts]))
    start = cpu()
    both = {"known": path, "unknown": path}
    open_keys = {"known": schema, "unknown": schema | {"key": dn.Domain.text(nullable=False)}}
    with dn.session(both, unit=unit, budget=budget, schema=open_keys) as s:
        report("load", (cpu() - start) / 2)
        for name, text in (
            (WORKS[0], "SELECT COUNT(*) AS n FROM known"),
            (WORKS[1], "SELECT key, SUM(cost) AS c FROM known GROUP BY key"),
            (WORKS[2], "SELECT key, COUNT(*) AS n FROM unknown GROUP BY key"),
            (WORKS[3], "SELECT MEDIAN(cost) AS m FROM known"),
        ):
            # A question that was asked is answered from the ledger; asked for more, it is asked anew.
            every = [timed(partial(s.sql, text, mu=mu)) for mu in (0.1, 0.2, 0.3, 0.4)]
            report(name, min(every))
            report(f"{name}, each time", every)


def opendp(path: str, small: str, report: Report) -> None:
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")

    def context(data: Any, questions: int, keys: Any = None) -> Any:
        margins = [dp.polars.Margin(max_length=2**31 - 1, max_groups=10**6)]
        if keys is not None:
            margins.append(dp.polars.Margin(by=["key"], max_length=2**31 - 1, max_groups=10**6, invariant="keys"))
        return dp.Context.compositor(
            data=data,
            privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("person")),
            privacy_loss=dp.loss_of(epsilon=EPSILON * questions, delta=DELTA),
            split_evenly_over=questions,
            margins=margins,
        )

    def bounded(asked: Any) -> Any:
        return asked.query().truncate_per_group(ROWS_OF_A_PERSON)

    scan = pl.scan_parquet(path)
    names = pl.LazyFrame({"key": [f"key {i}" for i in range(KEYS)]})
    cost = pl.col("cost")
    report(WORKS[0], timed(lambda: bounded(context(scan, 1)).select(dp.len()).release().collect()))
    summed = cost.dp.sum((0.0, 1000.0))
    known = bounded(context(scan, 1)).group_by("key").agg(summed).with_keys(names)
    report(WORKS[1], timed(lambda: known.release().collect()))
    report(WORKS[2], timed(lambda: bounded(context(scan, 1)).group_by("key").agg(dp.len()).release().collect()))
    edges = [float(i) for i in range(0, 1001, 10)]
    report(WORKS[3], timed(lambda: bounded(context(scan, 1)).select(cost.dp.median(edges)).release().collect()))
    few = pl.read_parquet(small).lazy()

    def hundred() -> None:
        for i in range(SMALL_QUESTIONS):
            bounded(context(few, 1)).filter(pl.col("age") > i).select(dp.len()).release().collect()

    report(WORKS[4], timed(hundred))


def smartnoise(path: str, small: str, report: Report) -> None:
    import pandas as pd
    import snsql

    columns = {
        "person": {"type": "int", "private_id": True},
        "key": {"type": "string"},
        "age": {"type": "int", "lower": 0, "upper": 120},
        "cost": {"type": "float", "lower": 0.0, "upper": 1000.0},
        "max_ids": ROWS_OF_A_PERSON,
        "row_privacy": False,
        "censor_dims": True,
        "clamp_counts": False,
    }
    meta = {"": {"t": {"visits": columns}}}

    def reader(file: str) -> Any:
        privacy = snsql.Privacy(epsilon=EPSILON, delta=DELTA)
        return snsql.from_df(pd.read_parquet(file), privacy=privacy, metadata=meta)

    many = reader(path)
    report(WORKS[0], timed(lambda: many.execute("SELECT COUNT(*) AS n FROM t.visits")))
    report(WORKS[1], timed(lambda: many.execute("SELECT key, SUM(cost) AS c FROM t.visits GROUP BY key")))
    report(WORKS[2], timed(lambda: many.execute("SELECT key, COUNT(*) AS n FROM t.visits GROUP BY key")))
    few = reader(small)
    texts = [f"SELECT COUNT(*) AS n FROM t.visits WHERE age > {i}" for i in range(SMALL_QUESTIONS)]
    report(WORKS[4], timed(lambda: [few.execute(text) for text in texts]))


def pipelinedp(path: str, small: str, report: Report) -> None:
    import pandas as pd
    import pipeline_dp as pdp

    def rows(file: str) -> list[tuple[Any, ...]]:
        return list(pd.read_parquet(file)[["person", "key", "cost"]].itertuples(index=False, name=None))

    def run(data: Any, metric: Any, key: Callable[[Any], Any], keys: Any) -> Any:
        accountant = pdp.NaiveBudgetAccountant(total_epsilon=EPSILON, total_delta=DELTA)
        engine = pdp.DPEngine(accountant, pdp.LocalBackend())
        extract = pdp.DataExtractors(
            privacy_id_extractor=lambda row: row[0], partition_extractor=key, value_extractor=lambda row: row[2]
        )
        parameters = pdp.AggregateParams(
            metrics=[metric], noise_kind=pdp.NoiseKind.GAUSSIAN, max_partitions_contributed=ROWS_OF_A_PERSON,
            max_contributions_per_partition=1, min_value=0, max_value=1000,
        )  # fmt: skip
        found = engine.aggregate(data, parameters, extract, public_partitions=keys)
        accountant.compute_budgets()
        return list(found)

    data = rows(path)
    names = [f"key {i}" for i in range(KEYS)]
    report(WORKS[0], timed(lambda: run(data, pdp.Metrics.COUNT, lambda row: 0, [0])))
    report(WORKS[1], timed(lambda: run(data, pdp.Metrics.SUM, lambda row: row[1], names)))
    report(WORKS[2], timed(lambda: run(data, pdp.Metrics.COUNT, lambda row: row[1], None)))
    report(WORKS[3], timed(lambda: run(data, pdp.Metrics.PERCENTILE(50), lambda row: 0, [0])))
    few = rows(small)
    report(WORKS[4], timed(lambda: [run(few, pdp.Metrics.COUNT, lambda row: 0, [0]) for _ in range(SMALL_QUESTIONS)]))


def tumult(path: str, small: str, report: Report) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # its workers must find tmlt too
    from pyspark.sql import SparkSession
    from tmlt.analytics import AddRowsWithID, ApproxDPBudget, KeySet, MaxRowsPerID, QueryBuilder, Session

    spark = SparkSession.builder.master("local[2]").config("spark.driver.memory", "6g").getOrCreate()

    def session(file: str) -> Any:
        budget = ApproxDPBudget(1e6, 0.5)
        return Session.from_dataframe(budget, "t", spark.read.parquet(file), protected_change=AddRowsWithID("person"))

    each = ApproxDPBudget(EPSILON, DELTA)
    keys = KeySet.from_dict({"key": [f"key {i}" for i in range(KEYS)]})
    s = session(path)
    bounded = QueryBuilder("t").enforce(MaxRowsPerID(ROWS_OF_A_PERSON))
    report(WORKS[0], timed(lambda: s.evaluate(bounded.count(), each).collect()))
    report(WORKS[1], timed(lambda: s.evaluate(bounded.groupby(keys).sum("cost", 0, 1000), each).collect()))
    found = bounded.get_groups(["key"])
    report(WORKS[2], timed(lambda: s.evaluate(found, each).collect()))
    report(WORKS[3], timed(lambda: s.evaluate(bounded.median("cost", 0, 1000), each).collect()))
    few = session(small)
    asked = [bounded.filter(f"age > {i}").count() for i in range(SMALL_QUESTIONS)]
    report(WORKS[4], timed(lambda: [few.evaluate(each_one, each).collect() for each_one in asked]))
    spark.stop()


CONTENDERS: dict[str, Callable[[str, str, Report], None]] = {
    "plain": plain,
    "deniable": ours,
    "opendp": opendp,
    "smartnoise": smartnoise,
    "pipelinedp": pipelinedp,
    "tumult": tumult,
}


def one(name: str, path: str, small: str, out: str) -> None:
    found: dict[str, Any] = {}

    def report(work: str, seconds: float | list[float]) -> None:
        found[work] = seconds
        found["memory"] = peak()
        Path(out).write_text(json.dumps(found))

    try:
        CONTENDERS[name](path, small, report)
    except Exception as error:
        found["stopped"] = f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"
        traceback.print_exc()
    Path(out).write_text(json.dumps(found))


# -- all of them -----------------------------------------------------------------------------------------------------


def generate(path: Path, rows: int) -> None:
    """Visits whose people are skewed: the most active have hundreds of rows."""
    import duckdb

    duckdb.sql("SELECT setseed(0.5)")
    duckdb.sql(
        f"""COPY (SELECT CAST(floor({max(1, rows // 10)} * pow(random(), 1.5)) AS BIGINT) AS person,
                         'key ' || CAST(floor({KEYS} * random()) AS INTEGER) AS key,
                         CAST(18 + floor(random() * 80) AS INTEGER) AS age,
                         random() * 1000 AS cost
                  FROM range({rows})) TO '{path}' (FORMAT parquet)"""
    )


def environment(name: str, packages: list[str]) -> str | None:
    """The interpreter of a peer's environment, built if it is not there; None if that cannot be done."""
    root = Path(os.environ.get("DENIABLE_PEERS", HERE.parent)) / f".venv-bench-queries-{name}"
    python = root / "bin" / "python"
    if (root / "failed").exists():
        return None
    if not python.exists():
        print(f"building {root.name} ...", file=sys.stderr)
        venv.create(root, with_pip=True)
        done = subprocess.run([python, "-m", "pip", "install", "-qq", *packages], check=False)
        if done.returncode:
            (root / "failed").touch()
            return None
    return str(python)


def run(name: str, python: str, path: Path, small: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = [python, __file__, "--one", name, str(path), str(small), str(out)]
        stopped = ""
        try:
            done = subprocess.run(command, timeout=LIMIT_S, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            stopped = f"died with {done.returncode}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            stopped = f"not done in {LIMIT_S} s"
        found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"stopped": "killed"}
        return found | ({"stopped": stopped} if stopped else {})


def measure(rows: int, only: list[str] | None, folder: Path) -> dict[str, dict[str, Any]]:
    path, small = folder / "visits.parquet", folder / "small.parquet"
    generate(path, rows)
    generate(small, SMALL)
    results = {}
    for title, name in (("plain DuckDB, no privacy", "plain"), ("deniable", "deniable")):
        results[title] = run(name, sys.executable, path, small)
    for title, (name, packages) in PEERS.items():
        if only is not None and name not in only:
            continue
        python = environment(name, packages)
        results[title] = {"stopped": "cannot be installed here"} if python is None else run(name, python, path, small)
    return results


def show(rows: int, results: dict[str, dict[str, Any]]) -> list[str]:
    """The table, and what was not reached."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"{rows:,} rows, {rows // 10:,} people, {KEYS} keys: CPU s (× plain DuckDB)", title_justify="left"
    )
    table.add_column("")
    for name in ("import and connect", "load", *WORKS, "peak MB"):
        table.add_column(name, justify="right")
    table.add_column("remark", overflow="fold")
    base, mine = results["plain DuckDB, no privacy"], results["deniable"]
    for title, found in results.items():
        cells = []
        for name in ("import and connect", "load", *WORKS):
            seconds = found.get(name)
            times = f" ({seconds / base[name]:.1f} ×)" if seconds and name in WORKS and base.get(name) else ""
            cells.append("–" if seconds is None else f"{seconds:.2f}{times}")
        table.add_row(title, *cells, f"{found.get('memory', 0):,.0f}", found.get("stopped", ""))
    Console(width=200).print(table)
    missed = []
    if "stopped" in mine:
        return [f"deniable stopped: {mine['stopped']}"]
    if rows >= 10_000_000:
        grouped = WORKS[1]
        if mine[grouped] > REACH["ratio"] * base[grouped]:
            missed.append(f"{grouped}: {mine[grouped] / base[grouped]:.1f} × plain, not {REACH['ratio']:g} ×")
        if mine["memory"] > REACH["memory"]:
            missed.append(f"peak memory {mine['memory']:,.0f} MB")
    if mine[WORKS[4]] > REACH["small"]:
        missed.append(f"{WORKS[4]}: {mine[WORKS[4]]:.2f} CPU s, not {REACH['small']:g}")
    if mine["import and connect"] > REACH["connect"]:
        missed.append(f"import and connect: {mine['import and connect']:.2f} CPU s, not {REACH['connect']:g}")
    for title, found in results.items():
        for name in WORKS:
            if title in PEERS and name in found and found[name] < REACH["peer"] * mine[name]:
                missed.append(f"{name}: only {found[name] / mine[name]:.1f} × faster than {title}")
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", type=int, default=[1_000_000, 10_000_000])
    parser.add_argument(
        "--only", nargs="*", help="these peers; alone: none", choices=[name for name, _ in PEERS.values()]
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--strict", action="store_true", help="exit with 1 if something is not reached")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one(*given.one)
        return
    compileall.compile_dir(SOURCES, quiet=2)
    everything, missed = {}, []
    for rows in given.rows:
        with tempfile.TemporaryDirectory() as folder:
            everything[str(rows)] = measure(rows, given.only, Path(folder))
        missed += [f"{rows:,} rows: {line}" for line in show(rows, everything[str(rows)])]
    if given.json:
        given.json.write_text(json.dumps(everything, indent=2))
    print("\n".join(["not reached:", *missed]) if missed else "everything that must be reached is reached")
    sys.exit(1 if missed and given.strict else 0)


if __name__ == "__main__":
    main()
