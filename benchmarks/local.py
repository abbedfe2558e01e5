"""Us and pure-ldp on the same people, in one run: reports a second, and how far estimates are from the truth.

    python benchmarks/local.py [--people N] [--repeats R] [--json OUT] [--page PAGE] [--strict]

Both libraries randomize the same skewed answers at the same ε and estimate the same shares. Times are CPU seconds of
this process, imports and the making of clients and servers excluded. pure-ldp takes one person at a time and is given
fewer people; its times are for one person, and its errors in units of the exact variance at its own number of people.
Ours are those of one call for everybody, exact and from cryptographic bits; pure-ldp draws floats from Python's and
numpy's generators for simulations.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer
from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer
from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer
from report import Verdict, show_summary
from rich.console import Console
from rich.table import Table

from deniable import local

EPSILON, CATEGORIES = 1.0, 100
SPEED_UP, THEORY = 100.0, 0.03
"""What must be reached: so many times pure-ldp's speed, and mean squared errors so near to the exact theory."""


BEGIN, END = "<!-- figures: made by benchmarks/local.py --page -->", "<!-- end of figures -->"


@dataclass
class Figures:
    """One library on one protocol."""

    people: int
    randomize_us: float
    estimate_us: float
    error: float
    """Mean squared error of the shares, divided by their exact variance."""
    estimates: int
    """How many single estimates that mean is taken over."""


@dataclass
class Work:
    """A protocol that we have, and how pure-ldp calls it (if it does)."""

    name: str
    protocol: Callable[[], Any]
    peer: Callable[[], tuple[Any, Any]] | None
    peer_people: int


def pure(client: Callable[..., Any], server: Callable[..., Any], **options: Any) -> Callable[[], tuple[Any, Any]]:
    return lambda: (client(EPSILON, CATEGORIES, **options), server(EPSILON, CATEGORIES, **options))


WORKS = [
    Work(
        "k-ary randomized response",
        lambda: local.KaryRandomizedResponse(categories=CATEGORIES, epsilon=EPSILON),
        pure(DEClient, DEServer),
        100_000,
    ),
    Work(
        "symmetric unary encoding",
        lambda: local.SymmetricUnary(categories=CATEGORIES, epsilon=EPSILON),
        pure(UEClient, UEServer, use_oue=False),
        20_000,
    ),
    Work(
        "optimized unary encoding",
        lambda: local.OptimizedUnary(categories=CATEGORIES, epsilon=EPSILON),
        pure(UEClient, UEServer, use_oue=True),
        20_000,
    ),
    Work(
        "optimized local hashing",
        lambda: local.LocalHashing(categories=CATEGORIES, epsilon=EPSILON),
        pure(LHClient, LHServer, use_olh=True),
        20_000,
    ),
    Work("subset selection", lambda: local.SubsetSelection(categories=CATEGORIES, epsilon=EPSILON), None, 0),
]


def people(count: int) -> np.ndarray:
    """Skewed answers, the same for every protocol and library."""
    weights = 1 / np.arange(1, CATEGORIES + 1)
    return np.random.default_rng(2026).choice(CATEGORIES, p=weights / weights.sum(), size=count)


def ours(work: Work, answers: np.ndarray, repeats: int) -> Figures:
    protocol = work.protocol()
    protocol.estimate(protocol.randomize(answers[:100]))  # imports
    randomize, estimate = [], []
    for _ in range(5):
        began = time.process_time()
        reports = protocol.randomize(answers)
        middle = time.process_time()
        protocol.estimate(reports)
        randomize.append(middle - began)
        estimate.append(time.process_time() - middle)
    some = answers[: len(answers) // 10]
    values = (protocol.estimate(protocol.randomize(some)).value for _ in range(repeats))
    error = distance(protocol, some, values)
    per_person = 1e6 / len(answers)
    return Figures(len(answers), min(randomize) * per_person, min(estimate) * per_person, error, repeats * CATEGORIES)


def theirs(work: Work, answers: np.ndarray) -> Figures:
    assert work.peer is not None
    client, server = work.peer()
    asked = (answers + 1).tolist()  # it counts from 1
    began = time.process_time()
    reports = [client.privatise(answer) for answer in asked]
    middle = time.process_time()
    server.aggregate_all(reports)
    counts = server.estimate_all(range(1, CATEGORIES + 1), suppress_warnings=True)
    ended = time.process_time()
    values = [np.asarray(counts) / len(asked)]
    per_person = 1e6 / len(asked)
    error = distance(work.protocol(), answers, values)
    return Figures(len(asked), (middle - began) * per_person, (ended - middle) * per_person, error, CATEGORIES)


def distance(protocol: Any, answers: np.ndarray, values: Any) -> float:
    """Mean squared error of several estimates, each share in units of its exact variance."""
    truth = np.bincount(answers, minlength=CATEGORIES) / len(answers)
    variance = protocol.variance(share=truth, people=len(answers))
    return float(np.mean([(value - truth) ** 2 / variance for value in values]))


HEADS = ("protocol", "library", "people", "randomize", "reports/s", "estimate", "MSE / theory", "× faster", "in all")


def rows(results: dict[str, dict[str, Figures]]) -> list[tuple[str, ...]]:
    """What both tables show; the last two columns are times pure-ldp's speed, of reports and from answers to shares."""
    found = []
    for name, figures in results.items():
        peer = figures.get("pure-ldp")
        for library, one in figures.items():
            ours = peer if library == "deniable" else None
            found.append(
                (
                    name if library == "deniable" else "",
                    library,
                    f"{one.people:,}",
                    f"{one.randomize_us:,.3g} µs",
                    f"{1e6 / one.randomize_us:,.3g}",
                    f"{one.estimate_us:,.3g} µs",
                    f"{one.error:.3f} ± {np.sqrt(2 / one.estimates):.3f}",
                    f"{ours.randomize_us / one.randomize_us:,.0f}" if ours else "",
                    f"{total(ours) / total(one):,.0f}" if ours else "",
                )
            )
    return found


def total(one: Figures) -> float:
    return one.randomize_us + one.estimate_us


def show(console: Console, results: dict[str, dict[str, Figures]]) -> None:
    table = Table(title=f"ε = {EPSILON:g}, {CATEGORIES} categories", title_justify="left")
    for heading in HEADS:
        table.add_column(heading, justify="left" if heading in ("protocol", "library") else "right")
    for row in rows(results):
        table.add_row(*row, style="bold" if row[1] == "deniable" else "")
    console.print(table)


def write(path: Path, results: dict[str, dict[str, Figures]], lines: list[Verdict], what: str) -> None:
    """Put the figures between the marks of a page, so that the words around them stay."""
    said = [HEADS, ("---",) * len(HEADS), *rows(results)]
    reached = [("what must be reached", "", "figure"), ("---",) * 3]
    reached += [(line.said, "pass" if line.met else "FAIL", line.figure) for line in lines]
    tables = ("\n".join(f"| {' | '.join(row)} |" for row in some) for some in (said, reached))
    text = f"{what}. ε = {EPSILON:g}, {CATEGORIES} categories, times of one person.\n\n" + "\n\n".join(tables)
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def verdicts(results: dict[str, dict[str, Figures]]) -> list[Verdict]:
    compared = {name: figures for name, figures in results.items() if "pure-ldp" in figures}
    quicker = {name: f["pure-ldp"].randomize_us / f["deniable"].randomize_us for name, f in compared.items()}
    both = {name: total(f["pure-ldp"]) / total(f["deniable"]) for name, f in compared.items()}
    slowest, worst = min(quicker, key=quicker.__getitem__), min(both, key=both.__getitem__)
    off = {name: abs(figures["deniable"].error - 1) for name, figures in results.items()}
    furthest = max(off, key=off.__getitem__)
    return [
        Verdict(
            f"{SPEED_UP:.0f} × pure-ldp's reports a second",
            quicker[slowest] >= SPEED_UP,
            f"least: {quicker[slowest]:,.0f} × ({slowest})",
        ),
        Verdict(
            f"{SPEED_UP:.0f} × pure-ldp from answers to estimates",
            both[worst] >= SPEED_UP,
            f"least: {both[worst]:,.0f} × ({worst})",
        ),
        Verdict(
            "mean squared error within 3 % of the exact theory",
            off[furthest] <= THEORY,
            f"furthest: {100 * off[furthest]:.1f} % ({furthest})",
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--people", type=int, default=10**6, help="people in our one call")
    parser.add_argument("--repeats", type=int, default=400, help="surveys of a tenth of them, for the errors")
    parser.add_argument("--json", type=Path, metavar="OUT", help="save every figure")
    parser.add_argument("--page", type=Path, metavar="PAGE", help="write the figures into this Markdown page")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a line that must be reached is not")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    console = Console(width=None if sys.stdout.isatty() else 150)
    what = {library: version(library) for library in ("deniable", "pure-ldp", "numpy")}
    versions = ", ".join(f"{name} {number}" for name, number in what.items())
    console.print(versions)
    answers, results = people(options.people), {}
    for work in WORKS:
        with console.status(work.name):
            results[work.name] = {"deniable": ours(work, answers, options.repeats)}
            if work.peer is not None:
                results[work.name]["pure-ldp"] = theirs(work, answers[: work.peer_people])
    show(console, results)
    lines = verdicts(results)
    show_summary(console, lines)
    if options.json:
        saved = {name: {library: asdict(one) for library, one in f.items()} for name, f in results.items()}
        said = [{"line": v.said, "met": v.met, "figure": v.figure} for v in lines]
        record = {"versions": what, "results": saved, "verdicts": said}
        options.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if options.page:
        write(options.page, results, lines, versions)
    if options.strict and not all(line.met for line in lines):
        sys.exit(1)


if __name__ == "__main__":
    main()
