"""Us and our peers on the same curves, in one run.

    python benchmarks/curves.py [--only SUBSTRING] [--json OUT] [--saved IN] [--page PAGE] [--strict]

Every library answers every work in a process of its own (worker.py). CPU seconds are those of the first call in a fresh
process, imports excluded: nothing is cached. A short call is repeated in fresh processes and the best is shown.
"One more" is measured differently: the library holds a product that has been read before, and the median time of seven
further additions is shown. Our figures are those of asking for *both* certified bounds; Google's give one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import page
from contenders import CONTENDERS
from report import Result, Results, show_summary, show_work, verdicts
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from works import WORKS, Work

HERE = Path(__file__).resolve().parent
WALL_LIMIT = 900
"""Only against a machine that stands still: the worker itself limits CPU time."""

LIBRARIES = ("deniable", "dp-accounting", "prv-accountant", "numpy", "scipy")


def run(key: str, number: int) -> Result:
    """One library on one work, in a process of its own and on one thread."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, str(HERE / "worker.py"), key, str(number)]
    try:
        done = subprocess.run(
            command, env=os.environ | threads, capture_output=True, text=True, timeout=WALL_LIMIT, check=False
        )
        result: Result = json.loads(done.stdout)
        return result
    except subprocess.TimeoutExpired:
        return {"error": "timeout", "text": f"not in {WALL_LIMIT} s of wall time"}
    except json.JSONDecodeError:
        lines = done.stderr.strip().splitlines() or ["no output"]
        return {"error": "crash", "text": lines[-1][:200]}


def versions() -> dict[str, str]:
    """What was compared."""
    found = {"python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except ImportError:
            found[library] = "not installed"
    return found


def measure(console: Console, chosen: list[tuple[int, Work]], saved: Results) -> Results:
    """Every library on every chosen work, one process at a time; each table is printed as soon as it is complete.

    What is saved already is not measured again.
    """
    results: Results = {}
    titles = {c.key: c.title for c in CONTENDERS}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(chosen) * len(CONTENDERS))
        group = ""
        for number, work in chosen:
            if work.group != group:
                group = work.group
                console.rule(group)
            results[work.name] = dict(saved.get(work.name, {}))
            for contender in CONTENDERS:
                if contender.key not in results[work.name]:
                    progress.update(task, description=f"{work.name}: {contender.title}")
                    results[work.name][contender.key] = run(contender.key, number)
                progress.advance(task)
            show_work(console, work, results[work.name], titles)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", default="", metavar="SUBSTRING", help="run the works whose name or group contains this"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="save every figure")
    parser.add_argument("--saved", type=Path, metavar="IN", help="show figures saved by --json instead of measuring")
    parser.add_argument("--page", type=Path, metavar="PAGE", help="write the figures into this Markdown page")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a line that must be reached is not")
    options = parser.parse_args()
    chosen = [(i, w) for i, w in enumerate(WORKS) if options.only in w.name or options.only in w.group]
    if not chosen:
        parser.error(f"no work is called {options.only!r}; there are:\n  " + "\n  ".join(w.name for w in WORKS))
    console = Console(width=None if sys.stdout.isatty() else 150)
    saved = json.loads(options.saved.read_text(encoding="utf-8")) if options.saved else {}
    what: dict[str, str] = saved.get("versions") or versions()
    console.print(", ".join(f"{name} {number}" for name, number in what.items()))
    results = measure(console, chosen, saved.get("results", {}))
    works = [w for _, w in chosen]
    lines = verdicts(works, results)
    console.rule()
    show_summary(console, lines)
    if options.json:
        said = [{"line": v.said, "met": v.met, "figure": v.figure} for v in lines]
        record = {"versions": what, "truth": {w.name: w.truth for w in works}, "results": results, "verdicts": said}
        options.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if options.page:
        page.write(options.page, page.figures(works, results, lines, what))
    if options.strict and not all(v.met for v in lines):
        sys.exit(1)


if __name__ == "__main__":
    main()
