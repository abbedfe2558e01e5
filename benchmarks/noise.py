"""Us and our peers drawing noise, in one run.

    python benchmarks/noise.py [--json OUT] [--page PAGE] [--strict]

Every library draws the same kind of noise for the same answers, turn by turn in one process; the figure is the best of
several turns in CPU time. A library that has no call for a whole vector is called in a loop, as its users would.
numpy's floats are a reference for speed and must not be used as noise: their last digits leak the answer.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from deniable import noise

LIBRARIES = {
    "deniable": "deniable",
    "numpy": "numpy",
    "OpenDP": "opendp",
    "PyDP": "python-dp",
    "diffprivlib": "diffprivlib",
}
TURNS = 7
ENOUGH = 0.15
"""CPU seconds that one turn should take; a library's vector is made shorter until it does."""

LONGEST = 1_000_000
TIMED = 20_000
BEGIN, END = "<!-- figures: made by benchmarks/noise.py --page -->", "<!-- end of figures -->"

Draw = Callable[[Any], Any]
Results = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Work:
    """`answers(n)` are given noise by each library's function; `peer` is numpy's float noise of the same shape."""

    name: str
    answers: Callable[[int], Any]
    draws: dict[str, Draw]


def integers(n: int) -> Any:
    return np.full(n, 42, dtype=np.int64)


def floats(n: int) -> Any:
    return np.full(n, 42.125)


def looped(call: Callable[[Any], Any]) -> Draw:
    return lambda answers: [call(answer) for answer in answers.tolist()]


def opendp_vector(kind: str, scale: float, element: type) -> Draw:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    distance = dp.l1_distance if kind == "laplace" else dp.l2_distance
    make = dp.m.make_laplace if kind == "laplace" else dp.m.make_gaussian
    domain = dp.vector_domain(dp.atom_domain(T=element, nan=False) if element is float else dp.atom_domain(T=element))
    measurement = make(domain, distance(T=element), scale)
    return lambda answers: measurement(answers.tolist())


def opendp_scalar(kind: str, scale: float, element: type) -> Draw:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    make = dp.m.make_laplace if kind == "laplace" else dp.m.make_gaussian
    domain = dp.atom_domain(T=element, nan=False) if element is float else dp.atom_domain(T=element)
    return make(domain, dp.absolute_distance(T=element), scale)


def pydp_mechanism(kind: str, scale: float) -> Callable[[Any], Any]:
    from pydp.algorithms.numerical_mechanisms import GaussianMechanism, LaplaceMechanism

    if kind == "laplace":
        return LaplaceMechanism(epsilon=1 / scale, sensitivity=1.0).add_noise
    # It takes ε and δ only; the sensitivity is chosen so that its noise has this width.
    unit = GaussianMechanism(1.0, 1e-5, 1.0).std
    return GaussianMechanism(1.0, 1e-5, scale / unit).add_noise


def diffprivlib_mechanism(kind: str, scale: float, element: type) -> Callable[[Any], Any]:
    from diffprivlib import mechanisms

    if kind == "laplace" and element is int:
        return mechanisms.Geometric(epsilon=1 / scale, sensitivity=1).randomise
    if kind == "laplace":
        return mechanisms.Laplace(epsilon=1 / scale, delta=0, sensitivity=1).randomise
    if element is int:
        made = mechanisms.GaussianDiscrete(epsilon=1.0, delta=1e-5, sensitivity=1)
        made._scale = scale
        return made.randomise
    made = mechanisms.GaussianAnalytic(epsilon=1.0, delta=1e-5, sensitivity=1)
    made._scale = scale
    return made.randomise


def on_a_grid(draw: Callable[..., Any], name: str, scale: float) -> Draw:
    """A float answer as we release it: rounded to a grid, noise in whole steps, back to a float."""
    grid = noise.Grid.for_noise(scale)
    steps = int(scale / grid.spacing)

    def release(answers: Any) -> Any:
        rounded = grid.round(answers)
        size = None if isinstance(rounded, int) else rounded.shape
        return grid.values(rounded + draw(**{name: steps}, size=size))

    return release


def works() -> list[Work]:
    rng = np.random.default_rng()
    found = []
    for scale in (1, 1000):
        found.append(
            Work(
                f"integers, Laplace, scale {scale}",
                integers,
                {
                    "deniable": lambda a, b=scale: a + noise.discrete_laplace(scale=b, size=a.shape),
                    "numpy": lambda a, b=scale: a + rng.laplace(scale=b, size=a.shape),
                    "OpenDP": opendp_vector("laplace", float(scale), int),
                    "PyDP": looped(pydp_mechanism("laplace", float(scale))),
                    "diffprivlib": looped(diffprivlib_mechanism("laplace", float(scale), int)),
                },
            )
        )
    for sigma in (4, 1000):
        found.append(
            Work(
                f"integers, Gaussian, sigma {sigma}",
                integers,
                {
                    "deniable": lambda a, s=sigma: a + noise.rounded_gaussian(sigma=s, size=a.shape),
                    "deniable, discrete": lambda a, s=sigma: a + noise.discrete_gaussian(sigma=s, size=a.shape),
                    "numpy": lambda a, s=sigma: a + rng.normal(scale=s, size=a.shape),
                    "OpenDP": opendp_vector("gaussian", float(sigma), int),
                    "PyDP": looped(pydp_mechanism("gaussian", float(sigma))),
                    "diffprivlib": looped(diffprivlib_mechanism("gaussian", float(sigma), int)),
                },
            )
        )
    for kind, draw, name, float_noise in (
        ("Laplace", noise.discrete_laplace, "scale", rng.laplace),
        ("Gaussian", noise.rounded_gaussian, "sigma", rng.normal),
    ):
        found.append(
            Work(
                f"floats, {kind}, scale 3",
                floats,
                {
                    "deniable": on_a_grid(draw, name, 3.0),
                    "numpy": lambda a, f=float_noise: a + f(scale=3.0, size=a.shape),
                    "OpenDP": opendp_vector(kind.lower(), 3.0, float),
                    "PyDP": looped(pydp_mechanism(kind.lower(), 3.0)),
                    "diffprivlib": looped(diffprivlib_mechanism(kind.lower(), 3.0, float)),
                },
            )
        )
    return found


def singles() -> list[Work]:
    """One answer at a time; `answers` is not used."""
    rng = np.random.default_rng()
    grid = on_a_grid(noise.discrete_laplace, "scale", 3.0)
    bell = on_a_grid(noise.rounded_gaussian, "sigma", 3.0)
    return [
        Work(
            "one integer, Laplace, scale 3",
            lambda _: 42,
            {
                "deniable": lambda a: a + noise.discrete_laplace(scale=3),
                "numpy": lambda a: a + rng.laplace(scale=3.0),
                "OpenDP": opendp_scalar("laplace", 3.0, int),
                "PyDP": pydp_mechanism("laplace", 3.0),
                "diffprivlib": diffprivlib_mechanism("laplace", 3.0, int),
            },
        ),
        Work(
            "one float, Laplace, scale 3",
            lambda _: 42.125,
            {
                "deniable": grid,
                "numpy": lambda a: a + rng.laplace(scale=3.0),
                "OpenDP": opendp_scalar("laplace", 3.0, float),
                "PyDP": pydp_mechanism("laplace", 3.0),
                "diffprivlib": diffprivlib_mechanism("laplace", 3.0, float),
            },
        ),
        Work(
            "one float, Gaussian, scale 3",
            lambda _: 42.125,
            {
                "deniable": bell,
                "numpy": lambda a: a + rng.normal(scale=3.0),
                "OpenDP": opendp_scalar("gaussian", 3.0, float),
                "PyDP": pydp_mechanism("gaussian", 3.0),
                "diffprivlib": diffprivlib_mechanism("gaussian", 3.0, float),
            },
        ),
    ]


def cpu(call: Callable[[], Any]) -> float:
    began = time.thread_time()
    call()
    return time.thread_time() - began


def measure(work: Work) -> dict[str, float]:
    """Answers given noise per CPU second, for each library."""
    lengths, answers = {}, {}
    for name, draw in work.draws.items():
        length = 200
        draw(work.answers(length))  # tables, caches
        while length < LONGEST and cpu(lambda d=draw, n=length: d(work.answers(n))) < ENOUGH:
            length = min(length * 4, LONGEST)
        lengths[name], answers[name] = length, work.answers(length)
    best = dict.fromkeys(work.draws, math.inf)
    for _ in range(TURNS):
        for name, draw in work.draws.items():
            best[name] = min(best[name], cpu(lambda d=draw, a=answers[name]: d(a)) / lengths[name])
    return {name: 1 / seconds for name, seconds in best.items()}


def ranks(values: Any) -> Any:
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[where]


def measure_single(work: Work) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """(calls per CPU second, correlation of a call's time with the size of its noise, the same by ranks).

    Times above the 99th percentile are cut to it: they are those of a machine that was busy with something else. Ranks
    see any difference that repeats itself, however few nanoseconds it is.
    """
    speeds, correlations, by_ranks = {}, {}, {}
    for name, draw in work.draws.items():
        answer = work.answers(1)
        times, sizes = np.empty(TIMED), np.empty(TIMED)
        draw(answer)
        gc.disable()
        for i in range(TIMED):
            began = time.thread_time_ns()
            drawn = draw(answer)
            times[i] = time.thread_time_ns() - began
            sizes[i] = abs(drawn - answer)
        gc.enable()
        correlations[name] = float(np.corrcoef(np.minimum(times, np.quantile(times, 0.99)), sizes)[0, 1])
        by_ranks[name] = float(np.corrcoef(ranks(times), ranks(sizes))[0, 1])
        turns = [cpu(lambda d=draw, a=answer: [d(a) for _ in range(2000)]) / 2000 for _ in range(TURNS)]
        speeds[name] = 1 / min(turns)
    return speeds, correlations, by_ranks


def entropy_speed() -> dict[str, float]:
    """Megabytes of random bits per CPU second."""
    import os

    words = np.empty(2**16, dtype=np.uint64)
    source = noise.current()
    ours = min(cpu(lambda: [source.fill(words) for _ in range(50)]) for _ in range(TURNS))
    system = min(cpu(lambda: [os.urandom(words.nbytes) for _ in range(10)]) for _ in range(TURNS))
    return {"deniable": 50 * words.nbytes / ours / 1e6, "os.urandom": 10 * words.nbytes / system / 1e6}


def verdicts(vectors: Results, calls: Results, correlations: Results, by_ranks: Results) -> list[tuple[str, bool, str]]:
    """The lines that must be reached: said, met or not, and the figure that decides."""

    def least(rows: Results, peer: str, part: str) -> tuple[float, str]:
        return min((row["deniable"] / row[peer], name) for name, row in rows.items() if part in name)

    whole, where = least(vectors, "numpy", "integers")
    table, at_table = min(
        (row["deniable"] / row["numpy"], name) for name, row in vectors.items() if name.endswith(("scale 1", "sigma 4"))
    )
    grid, on = least(vectors, "numpy", "floats")
    peer, against = least(vectors, "OpenDP", "")
    slowest, call = max((1e6 / row["deniable"], name) for name, row in calls.items())
    told, ranked = (max(abs(row["deniable"]) for row in found.values()) for found in (correlations, by_ranks))
    return [
        ("integer noise at numpy's float speed or faster, from a table", table >= 1, f"{table:.2f} × ({at_table})"),
        ("the same, wide noise included", whole >= 1, f"{whole:.2f} × ({where})"),
        ("float answers at 0.3 × numpy's speed or faster", grid >= 0.3, f"{grid:.2f} × ({on})"),
        ("100 × OpenDP, end to end", peer >= 100, f"{peer:,.0f} × ({against})"),
        ("one release in less than 20 µs", slowest < 20, f"{slowest:.1f} µs ({call})"),
        ("time of a draw and its size: correlation below 0.05", told < 0.05, f"{told:.3f} (by ranks {ranked:.3f})"),
    ]


def speed(value: float) -> str:
    return f"{value / 1e6:.1f} M" if value >= 1e6 else f"{value / 1e3:.1f} k" if value >= 1e3 else f"{value:.0f}"


def rows(
    vectors: Results, calls: Results, correlations: Results, by_ranks: Results
) -> list[tuple[str, list[str], list[list[str]]]]:
    """Three tables: title, heads, cells."""
    names = ["deniable", "deniable, discrete", *list(LIBRARIES)[1:]]

    def cell(row: dict[str, float], name: str) -> str:
        if name not in row:
            return ""
        return speed(row[name]) if name == "numpy" else f"{speed(row[name])} ({row[name] / row['numpy']:.2g} ×)"

    return [
        (
            "Vectors: noisy answers per CPU second (against numpy)",
            ["", *names],
            [[name, *(cell(row, each) for each in names)] for name, row in vectors.items()],
        ),
        (
            "One answer at a time: CPU time of a call",
            ["", *list(LIBRARIES)],
            [[name, *(f"{1e6 / row[each]:.1f} µs" for each in LIBRARIES)] for name, row in calls.items()],
        ),
        (
            "What the time of a call says about its noise: correlation with its size (by ranks)",
            ["", *list(LIBRARIES)],
            [
                [name, *(f"{row[each]:+.3f} ({by_ranks[name][each]:+.3f})" for each in LIBRARIES)]
                for name, row in correlations.items()
            ],
        ),
    ]


def markdown(
    tables: list[tuple[str, list[str], list[list[str]]]], lines: list[tuple[str, bool, str]], said: str
) -> str:
    text = [said, ""]
    for title, heads, cells in tables:
        text += [f"**{title}**", "", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
        text += [f"| {' | '.join(row)} |" for row in cells]
        text.append("")
    text += ["| what must be reached | | figure |", "|---|---|---|"]
    text += [f"| {name} | {'pass' if met else '**fail**'} | {figure} |" for name, met, figure in lines]
    return "\n".join(text)


def write(path: Path, text: str) -> None:
    """Put the figures between the marks of a page, so that the words around them stay."""
    page = path.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def versions() -> str:
    found = [f"python {platform.python_version()}"]
    for library in LIBRARIES.values():
        try:
            found.append(f"{library} {version(library)}")
        except PackageNotFoundError:
            found.append(f"{library} (not installed)")
    return ", ".join(found) + "."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="OUT", help="save every figure")
    parser.add_argument("--page", type=Path, metavar="PAGE", help="write the figures into this Markdown page")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a line that must be reached is not")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(versions())
    vectors: Results = {work.name: measure(work) for work in works()}
    calls: Results = {}
    correlations: Results = {}
    by_ranks: Results = {}
    for work in singles():
        calls[work.name], correlations[work.name], by_ranks[work.name] = measure_single(work)
    bits = entropy_speed()
    figures = vectors, calls, correlations, by_ranks
    tables, lines = rows(*figures), verdicts(*figures)
    for title, heads, cells in tables:
        shown = Table(*heads, title=title)
        for row in cells:
            shown.add_row(*row)
        console.print(shown)
    said = (
        f"Random bits: {bits['deniable']:,.0f} MB per CPU second, the operating system's own {bits['os.urandom']:,.0f}."
    )
    console.print(said)
    for name, met, figure in lines:
        console.print(f"{'pass' if met else 'FAIL'}  {name}: {figure}")
    if options.json:
        record = {"vectors": vectors, "calls": calls, "correlations": correlations, "ranks": by_ranks, "entropy": bits}
        options.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if options.page:
        write(options.page, markdown(tables, lines, f"{versions()} {said}"))
    if options.strict and not all(met for _, met, _ in lines):
        sys.exit(1)


if __name__ == "__main__":
    main()
