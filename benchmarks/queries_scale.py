"""Counts and sums before noise at scale: rows a second and memory, beside the same questions asked of DuckDB directly.

    python benchmarks/queries_scale.py [--rows N ...] [--keys N ...] [--threads T] [--huge [ROWS]] [--json OUT]

A table of visits is generated: a tenth as many people as rows, some with very many; a key, an integer and a real. It is
written to Parquet, then read by two fresh processes. One asks plain DuckDB (loaded into a file, no privacy). The other
registers the table with at most 20 rows for each person and asks the same through our engine: every answer is person-
bounded, on an integer grid, and bit-reproducible. Times are CPU seconds, the best of four; ours also the dearest, for
some questions have a copy made in the background, counted apart, that makes the next of their kind cheap. Then the
table is registered with a folder to keep it in, opened again, and a hundredth of the rows is added. Memory is the peak
of the process. --huge adds 100 million rows, or as many as it says, asked once.
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
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

ROWS_OF_A_PERSON = 20
HUGE = 100_000_000
PLAIN = {
    "count of rows": "SELECT count(*) FROM visits",
    "count of people": "SELECT count(DISTINCT person) FROM visits",
    "sum by key": "SELECT key, sum(cost), count(*) FROM visits GROUP BY key",
    "sum by key, filtered": "SELECT key, sum(cost), count(*) FROM visits WHERE age > 60 GROUP BY key",
    "people by key": "SELECT key, count(DISTINCT person) FROM visits GROUP BY key",
    "median": "SELECT median(cost) FROM visits",
}


def generate(path: Path, rows: int, keys: int) -> None:
    """Visits whose people are skewed: the most active have thousands of rows."""
    import duckdb

    duckdb.sql("SELECT setseed(0.5)")
    duckdb.sql(
        f"""COPY (SELECT CAST(floor({rows // 10} * pow(random(), 1.5)) AS BIGINT) AS person,
                         'key ' || CAST(floor({keys} * random()) AS INTEGER) AS key,
                         CAST(18 + floor(random() * 80) AS INTEGER) AS age,
                         random() * 1000 AS cost
                  FROM range({rows})) TO '{path}' (FORMAT parquet)"""
    )


def timed(work: Callable[[], Any], repeats: int, after: Callable[[], Any] = lambda: None) -> list[float]:
    """CPU seconds of each repeat; what is done `after` each is not counted."""
    every = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        every.append(time.process_time() - start)
        after()
    return every


def fetch(connection: Any, sql: str) -> Any:
    return connection.execute(sql).fetchall()


def plain(path: Path, threads: int, repeats: int) -> dict[str, float]:
    import duckdb

    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {"threads": threads, "memory_limit": "640MB", "preserve_insertion_order": False}
        connection = duckdb.connect(os.path.join(folder, "plain.duckdb"), config=settings)
        start = time.process_time()
        connection.execute(f"CREATE TABLE visits AS FROM '{path}'")
        found = {"load": time.process_time() - start}
        for name, sql in PLAIN.items():
            try:
                found[name] = min(timed(partial(fetch, connection, sql), repeats))
            except duckdb.OutOfMemoryException:
                print(f"plain DuckDB has no room for: {name}", file=sys.stderr)
    return found


def ours(path: Path, keys: int, threads: int, repeats: int) -> dict[str, float]:
    start = time.process_time()
    from deniable.queries.engines.duckdb import DuckDBEngine
    from deniable.queries.relations.exact_statistics import Cells, Collect, Count, CountPersons, ExactSum
    from deniable.queries.relations.relation_nodes import Bound, FilterRows, Source
    from deniable.tables.expressions import col
    from deniable.tables.kinds import Domain
    from deniable.tables.schema import Table
    from deniable.units import Unit

    engine = DuckDBEngine(threads=threads)
    found = {"import and connect": time.process_time() - start}
    visits = Table.of(
        "visits",
        Unit.person("person", rows=ROWS_OF_A_PERSON),
        person=Domain.integer(),
        key=Domain.text(*(f"key {n}" for n in range(keys))),
        age=Domain.integer(0, 120),
        cost=Domain.real(0, 1000),
    )
    start = time.process_time()
    secret = os.urandom(32)
    visits = engine.register("visits", path, visits, secret)
    found["load"] = time.process_time() - start
    source, by_key = Source(visits), (("key", col("key")),)
    known = tuple((f"key {n}",) for n in range(keys))
    total = ExactSum(col("cost"), Fraction(0), Fraction(1000), -10)
    edges = tuple(Fraction(1000 * n, 512) for n in range(513))
    questions = {
        "count of rows": Collect(source, (), None, (Count(),)),
        "count of people": Collect(source, (), None, (CountPersons(),)),
        "sum by key": Collect(source, by_key, known, (total, Count())),
        "sum by key, filtered": Collect(FilterRows(source, col("age") > 60), by_key, known, (total, Count())),
        "people by key": Collect(source, by_key, None, (CountPersons(),)),
        "median": Collect(source, (), None, (Cells(col("cost"), edges),)),
        "bounded per question": Collect(Bound(source, (col("key"),), 3, 2), by_key, known, (total, Count())),
    }
    for name, question in questions.items():
        copies = time.process_time()
        every = timed(partial(engine.collect, question), max(3, repeats), engine.settle)
        found[f"{name}, copies"] = time.process_time() - copies - sum(every)
        found[name] = min(every)
        found[f"{name}, at most"] = max(every)
    left = engine.collect(questions["count of rows"])[()][0]
    assert isinstance(left, int)
    found["rows kept"] = left
    engine.close()
    with tempfile.TemporaryDirectory() as folder:
        kept, sources = os.path.join(folder, "kept"), Path(folder) / "visits"
        sources.mkdir()
        (sources / "1.parquet").symlink_to(path)
        for name in ("load, kept", "restart", "append of 1 %", "restart after it"):
            if name.startswith("append"):
                more(path, sources / "2.parquet")
            with DuckDBEngine(threads=threads, kept=kept) as again:
                start = time.process_time()
                again.register("visits", sources, replace(visits, most_partners=()), secret)
                found[name] = time.process_time() - start
    return found


def more(path: Path, to: Path) -> None:
    """A hundredth of the rows again, of other people."""
    import duckdb

    [[rows]] = duckdb.connect().execute(f"SELECT count(*) FROM '{path}'").fetchall()
    other = f"CAST((person * 7919 + 13) % {rows // 10} AS BIGINT) AS person"
    duckdb.sql(f"COPY (SELECT * REPLACE ({other}) FROM '{path}' LIMIT {rows // 100}) TO '{to}'")


def small() -> float:
    """CPU seconds for a hundred questions on ten thousand rows."""
    import pyarrow as pa

    from deniable.queries.engines.duckdb import DuckDBEngine
    from deniable.queries.relations.exact_statistics import Collect, Count, ExactSum
    from deniable.queries.relations.relation_nodes import FilterRows, Source
    from deniable.tables.expressions import col
    from deniable.tables.kinds import Domain
    from deniable.tables.schema import Table
    from deniable.units import Unit

    rows = 10_000
    source = pa.table({"person": [n % 1000 for n in range(rows)], "key": [f"{n % 10}" for n in range(rows)],
                       "age": [n % 90 for n in range(rows)], "cost": [n / 10 for n in range(rows)]})  # fmt: skip
    table = Table.of(
        "t", Unit.person("person", rows=20), person=Domain.integer(), key=Domain.text(), age=Domain.integer(0, 120),
        cost=Domain.real(0, 1000),
    )  # fmt: skip
    with DuckDBEngine() as engine:
        table = engine.register("t", source, table, os.urandom(32))
        start = time.process_time()
        for n in range(100):
            statistics = (Count(), ExactSum(col("cost"), Fraction(0), Fraction(1000), -10))
            engine.collect(Collect(FilterRows(Source(table), col("age") > n), (("key", col("key")),), None, statistics))
        return time.process_time() - start


def peak() -> float:
    """The largest memory of this process in MB. (ru_maxrss would begin with that of the process it was forked from.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def apart(*arguments: str) -> dict[str, float]:
    """Run one side in a process of its own, so that its memory is its own."""
    command = [sys.executable, __file__, "--side", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def show(rows: int, keys: int, us: dict[str, float], them: dict[str, float]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{rows:,} rows, {rows // 10:,} people, {keys:,} keys; {int(us['rows kept']):,} rows kept")
    for heading in ("", "plain CPU s", "ours CPU s", "ratio", "ours, rows/s", "ours, dearest"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name in ("load", *PLAIN, "bounded per question"):
        mine, yours = us[name], them.get(name)
        ratio = "" if not yours else f"{mine / yours:.2f}"
        if name == "bounded per question":
            ratio = f"{mine / them['sum by key']:.1f} × sum by key"
        dearest = us.get(f"{name}, at most")
        table.add_row(
            name,
            "" if yours is None else f"{yours:.3f}",
            f"{mine:.3f}",
            ratio,
            f"{rows / max(mine, 1e-9):,.0f}",
            "" if dearest is None else f"{dearest:.3f}",
        )
    for name in ("load, kept", "restart", "append of 1 %", "restart after it"):
        table.add_row(name, "", f"{us[name]:.3f}", f"{us[name] / them['load']:.2f}", "", "")
    for name in ("people by key", "bounded per question"):
        table.add_row(f"copies for {name}, in the background", "", f"{us[f'{name}, copies']:.3f}", "", "", "")
    table.add_row("peak memory, MB", f"{them['memory']:.0f}", f"{us['memory']:.0f}", "", "", "")
    table.add_row("import and connect", "", f"{us['import and connect']:.2f}", "", "", "")
    Console(width=110).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--keys", type=int, nargs="+", default=[1000])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--huge", type=int, nargs="?", const=HUGE, help="also 100 million rows: 20 GB of disk, half an hour"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--side", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        side, path = given.side[:2]
        keys, threads, repeats = map(int, given.side[2:])
        found = plain(Path(path), threads, repeats) if side == "plain" else ours(Path(path), keys, threads, repeats)
        found["memory"] = peak()
        print(json.dumps(found))
        return
    compileall.compile_dir(Path(__file__).resolve().parents[1] / "src" / "deniable", quiet=2)
    every: list[dict[str, Any]] = []
    print(f"100 small questions on 10,000 rows: {small():.2f} CPU s")
    for rows in [*given.rows, *([given.huge] if given.huge else [])]:
        for keys in given.keys:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "visits.parquet"
                generate(path, rows, keys)
                facts = (str(path), str(keys), str(given.threads), "1" if rows == given.huge else "4")
                them, us = apart("plain", *facts), apart("ours", *facts)
            show(rows, keys, us, them)
            every.append({"rows": rows, "keys": keys, "ours": us, "plain": them})
            if given.json:
                given.json.write_text(json.dumps(every, indent=2) + "\n")


if __name__ == "__main__":
    main()
