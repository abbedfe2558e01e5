"""A year of nightly data: 365 versions, 30 tiles and a running total, restarts, erasures, corrections and late rows.

    PYTHONPATH=src python benchmarks/simulated_year.py library
    PYTHONPATH=src python benchmarks/simulated_year.py server --days 365 --out year.json

Every night a new version of the table is declared: yesterday's visits are added, some old rows are corrected, some
arrive late, and once a week a person is erased from all of it. Then the standing questions of the day are answered. The
program knows the exact numbers, and compares: nothing may be refused, nothing may be charged after the declaration, no
person may have more rows over the year than their bound, and the noise must be the noise that was planned.

The test of the noise: z = (answer - exact number) / planned standard deviation. Over n answers the sum of z² has a
chi-square law with n degrees of freedom, and z̄·√n is standard normal, if the noise is as planned. Each of the two
tests rejects with a false-alarm rate of 5e-10 by the normal tail (6.2 standard errors); for n = 10,950 it rejects a
standard deviation that is wrong by 4.2 %.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn
from rich.table import Table

import deniable as dn
from deniable.client import register
from deniable.ledger import Cost
from deniable.queries.running_totals import totals_noise
from deniable.queries.standing_records import EncryptedDays, people_in, total_rows

ROWS, TILES = 10, 30
PEOPLE, VISITS = 1000, 45
EPSILON, DELTA, FOR_TILES = 4, 1e-6, 3
REJECTED: Final = 6.2
"""Standard errors beyond which a test rejects: two sides of the normal law have 5.6e-10."""
TILE: Final = [f"SELECT COUNT(*) AS n FROM visits WHERE x < {limit}" for limit in range(1, TILES + 1)]
TOTAL: Final = "SELECT COUNT(*) AS n FROM visits"
SCHEMA: Final[dict[str, Any]] = {
    "version": 1,
    "tables": {
        "visits": {
            "person": "patient_id",
            "rows": ROWS,
            "columns": {
                "day": {"kind": "integer", "low": 0, "high": 400, "nullable": False},
                "x": {"kind": "integer", "low": 0, "high": TILES - 1, "nullable": False},
            },
        }
    },
}


@dataclass
class Hospital:
    """The table as it is each night, and the exact numbers that standing questions are about."""

    chance: Any = field(default_factory=lambda: np.random.default_rng(2026))
    used: Counter[int] = field(default_factory=Counter)
    late: list[dict[str, int]] = field(default_factory=list)
    frame: pd.DataFrame = field(default_factory=lambda: pd.DataFrame({"patient_id": [], "day": [], "x": []}, dtype=int))
    total: int = 0
    erased: int = 0

    def night(self, day: int) -> tuple[list[int], int]:
        """Add a day; returns (the exact number of each tile, the exact running total)."""
        who = self.chance.choice(PEOPLE, VISITS, replace=False)
        rows = pd.DataFrame({"patient_id": who, "day": day, "x": self.chance.integers(0, TILES, VISITS)})
        delayed = self.chance.random(VISITS) < 0.05
        frame = pd.concat([self.frame, pd.DataFrame(self.late, columns=rows.columns), rows[~delayed]])
        self.late = rows[delayed].to_dict("records")
        corrected = (self.chance.random(len(frame)) < 0.002) & (frame["day"] < day).to_numpy()
        frame.loc[corrected, "x"] = 0
        if day % 7 == 6:
            frame = frame[frame["patient_id"] != self.chance.choice(PEOPLE)]
            self.erased += 1
        self.frame = frame.astype(int).reset_index(drop=True)
        now = self.frame[self.frame["day"] == day]
        counted = now[[self.used[each] < ROWS for each in now["patient_id"]]]
        self.used.update(counted["patient_id"].tolist())
        self.total += len(counted)
        return [int((counted["x"] < limit).sum()) for limit in range(1, TILES + 1)], self.total


@dataclass
class Run:
    """What came out of a year."""

    tiles: list[float] = field(default_factory=list)
    """z of each answer of a tile."""
    totals: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    charged: set[str] = field(default_factory=set)
    sets: tuple[str, ...] = ("tiles", "year")
    restarts: int = 0
    deviation: float = 0.0
    """The planned standard deviation of a tile: the same on every day."""
    deviations: list[float] = field(default_factory=list)
    """The planned standard deviation of the running total after each day."""


def declared(run: Run, session: Any) -> None:
    """Declare the tiles and the running total, or find them again."""
    session.standing("tiles", TILE, by="day", epsilon=FOR_TILES)
    if "year" in run.sets:
        session.standing("year", [TOTAL], by="day", share=0.5, totals=365)


def answered(run: Run, session: Any, day: int, exact: tuple[list[int], int]) -> None:
    """Answer a day, and compare it with the exact numbers."""
    for name, numbers, found in (("tiles", exact[0], run.tiles), ("year", [exact[1]], run.totals)):
        if name not in run.sets:
            continue
        try:
            standing = session.standing(name)
            answers = standing.reveal(day)
        except dn.DeniableError as error:
            run.refused.append(f"{name}, day {day}: {type(error).__name__}")
            continue
        if day == 0 and name == "tiles":
            run.deviation = answers[0].released.deviation(answers[0].plan, session.budget, 0)
        elif day == 0:
            run.deviations = totals_noise(answers[0].plan, session.budget, standing.cost, 365).deviations()
        for answer, number in zip(answers, numbers, strict=True):
            deviation = run.deviation if name == "tiles" else run.deviations[day]
            found.append((float(answer["n"][0]) - number) / deviation)
    run.charged.add(str(session.remaining))


def library(days: int, folder: Path, run: Run, step: Callable[[], None]) -> tuple[Run, Hospital]:
    """A year in the library: each night is a new session, so a restart as well."""
    hospital = Hospital()
    about = {"schema": SCHEMA, "budget": dn.Budget(epsilon=EPSILON, delta=DELTA), "ledger": folder / "year.ledger"}
    for day in range(days):
        exact = hospital.night(day)
        path = folder / f"visits-{day}.parquet"
        hospital.frame.to_parquet(path)
        with dn.session({"visits": path}, version=f"night-{day}", **about) as session:
            if day == 0:
                declared(run, session)
            answered(run, session, day, exact)
        run.restarts += 1
        path.unlink()
        step()
    with dn.ledger.Ledger.open(folder / "year.ledger") as ledger:
        checked(run, ledger)
    return run, hospital


def server(days: int, folder: Path, run: Run, step: Callable[[], None]) -> tuple[Run, Hospital]:
    """A year on a server with HTTP: an owner declares versions and answers days; restarted on two nights a week."""
    hospital, tokens = Hospital(), dict[str, str]()
    day = 0
    while day < days:
        with serving(folder, tokens) as (curator, url):
            first, run.restarts = True, run.restarts + 1
            while day < days and (first or day % 7 not in (0, 3)):
                first = False
                exact = hospital.night(day)
                path = f"visits-{day}.parquet"
                hospital.frame.to_parquet(folder / path)
                if day == 0:
                    budget = {"epsilon": float(EPSILON), "delta": DELTA}
                    register(
                        url, token=tokens["olga"], name="visits", sources={"visits": path}, schema=SCHEMA, budget=budget
                    )
                with dn.connect(url, token=tokens["olga"]) as session:
                    if day == 0:
                        declared(run, session)
                    else:
                        body = {"version": f"night-{day}", "sources": {"visits": path}}
                        session._wire.once("/v1/datasets/visits/versions", body)
                        (folder / f"visits-{day - 1}.parquet").unlink()
                    answered(run, session, day, exact)
                day += 1
                step()
            if day == days:
                from deniable.server.catalogue.catalogue import Person
                from deniable.server.roles import Role

                checked(run, curator.open(Person("olga", Role.OWNER), "visits").session.ledger)
    return run, hospital


@contextmanager
def serving(folder: Path, tokens: dict[str, str]) -> Iterator[tuple[Any, str]]:
    """A server in this process at a socket, until the end of the context; a new one on the same state is a restart."""
    import uvicorn

    from deniable.server.app import served
    from deniable.server.curator import Curator
    from deniable.server.operations.server_processes import configured
    from deniable.server.operations.settings import Settings
    from deniable.server.roles import Role

    # A short limit, because an engine that was replaced is closed after twice that time.
    chosen = {"grid": 0.001, "rate": 1e6, "burst": 1_000_000, "seconds": 15.0}
    curator = Curator(Settings(state=folder / "state", owners={"*": (folder,)}, **chosen))
    if "olga" not in tokens:
        curator.catalogue.add_person("olga", Role.OWNER)
        tokens["olga"] = curator.reception.issue("olga", None)["token"]
    config = configured(curator.settings, served(curator))
    config.port = 0
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    try:
        yield curator, f"http://127.0.0.1:{running.servers[0].sockets[0].getsockname()[1]}"
    finally:
        running.should_exit = True
        thread.join()


def checked(run: Run, ledger: Any) -> None:
    """Verify the ledger, what was charged, and the rows that each person used over the year."""
    ledger.verify()
    if not ledger.charged <= ledger.limit:
        run.refused.append("overspent")
    paid = [each.cost for each in ledger.entries() if each.state.name == "RESERVED" and each.cost != Cost(0)]
    if len(paid) != len(run.sets):
        run.refused.append(f"{len(paid)} charges instead of {len(run.sets)}")
    for name in run.sets:
        records = EncryptedDays(ledger, name, "rows used").records()
        most = total_rows([people_in(each.record) for each in records])["rows"].max()
        if most > ROWS:
            run.refused.append(f"{name}: a person has {most} rows")


def tested(z: list[float]) -> dict[str, float]:
    """The two tests of the module's text, in standard errors, and the observed deviation as a share of the planned."""
    count = len(z)
    spread = (float(np.sum(np.square(z))) - count) / math.sqrt(2 * count)
    return {
        "answers": count,
        "deviation": math.sqrt(float(np.mean(np.square(z)))),
        "spread": spread,
        "mean": float(np.mean(z)) * math.sqrt(count),
        "largest": float(np.max(np.abs(z))),
    }


def main() -> None:
    """Run a year, print the figures, and exit with 1 if something was refused or the noise is not as planned."""
    parser = argparse.ArgumentParser(description="A simulated year of nightly data.")
    parser.add_argument("where", choices=["library", "server"])
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tiles-only", action="store_true", help="without the running total, which takes longer")
    asked = parser.parse_args()
    console = Console()
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with tempfile.TemporaryDirectory() as made, Progress(*columns, console=console) as progress:
        task = progress.add_task("nights", total=asked.days)
        work = library if asked.where == "library" else server
        run = Run(sets=("tiles",) if asked.tiles_only else ("tiles", "year"))
        run, hospital = work(asked.days, Path(made), run, lambda: progress.update(task, advance=1))
    tiles = tested(run.tiles)
    # Totals of neighbouring days share their noise, so only their largest deviation is judged.
    largest = max(map(abs, run.totals), default=0.0)
    wrong = [name for name in ("spread", "mean") if abs(tiles[name]) > REJECTED] + ["totals"] * (largest > REJECTED + 1)
    used = [resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    figures = {
        "where": asked.where,
        "versions": asked.days,
        "restarts": run.restarts,
        "erasures": hospital.erased,
        "refused": run.refused,
        "charges after the declaration": len(run.charged) - 1,
        "planned deviation of a tile": run.deviation,
        "observed / planned": tiles["deviation"],
        "answers of tiles": tiles["answers"],
        "spread, in standard errors": tiles["spread"],
        "mean, in standard errors": tiles["mean"],
        "largest |z| of a tile": tiles["largest"],
        "planned deviation of the last total": run.deviations[asked.days - 1] if run.deviations else None,
        "largest |z| of a total": largest,
        "not as planned": wrong,
        "CPU seconds": sum(each.ru_utime + each.ru_stime for each in used),
    }
    shown = Table("figure", "value", title=f"A year in the {asked.where}")
    for name, value in figures.items():
        shown.add_row(name, f"{value:,.4g}" if isinstance(value, float) else str(value or "none"))
    console.print(shown)
    if asked.out is not None:
        asked.out.write_text(json.dumps(figures, indent=2), encoding="utf-8")
    raise SystemExit(1 if run.refused or wrong or len(run.charged) > 1 else 0)


if __name__ == "__main__":
    main()
