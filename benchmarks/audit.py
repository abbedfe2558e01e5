"""Us and jax-privacy on the same mechanisms, in one run: what is certified, and what it costs.

    python benchmarks/audit.py [--runs R] [--json OUT] [--strict]

Black box at 95 %: both see answers only, drawn by one sampler (rounded to 2⁻²⁰, so that no floating-point event can
help). jax-privacy is given scores and reports its Clopper-Pearson bound over all thresholds (Bonferroni), and with the
threshold chosen on half of the scores (Split; both names are its own). Ours also searches the event, certifies a
trade-off band and judges the claim at the same 95 %. Times are CPU seconds of this process, drawing included. For
one-run audits both get the same canary scores. dp_auditorium only accepts or rejects.
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

import numpy as np
from jax_privacy import auditing
from report import Verdict, show_summary
from rich.console import Console
from rich.table import Table

from deniable import audit, curves

MISS = 0.05
REACHED = {100_000: 0.980, 1_000_000: 0.993}
"""What must be reached on Laplace with true ε = 1: the median of 20 runs."""
CPU = 2.0


@dataclass
class Figures:
    """Certified ε over some runs."""

    median: float
    low: float
    high: float
    cpu: float


@dataclass
class Work:
    """A mechanism with a known truth."""

    name: str
    draw: Callable[[np.random.Generator, float, int], np.ndarray]
    claim: curves.Curve
    delta: float
    samples: int

    @property
    def truth(self) -> float:
        return float(self.claim.epsilon(delta=self.delta))

    def many(self, value: float, count: int) -> np.ndarray:
        return self.draw(np.random.default_rng(), value, count)


def laplace(rng: np.random.Generator, value: float, count: int) -> np.ndarray:
    return np.rint((value + rng.laplace(size=count)) * 2**20) / 2**20


def gaussian(rng: np.random.Generator, value: float, count: int) -> np.ndarray:
    return np.rint((value + rng.normal(size=count)) * 2**20) / 2**20


WORKS = [
    Work("Laplace, ε = 1", laplace, curves.laplace(scale=1.0), 0.0, 10_000),
    Work("Laplace, ε = 1", laplace, curves.laplace(scale=1.0), 0.0, 100_000),
    Work("Laplace, ε = 1", laplace, curves.laplace(scale=1.0), 0.0, 1_000_000),
    Work("Gaussian, μ = 1, δ = 0.1", gaussian, curves.gaussian(mu=1.0), 0.1, 100_000),
    Work("Gaussian, μ = 1, δ = 1e-5", gaussian, curves.gaussian(mu=1.0), 1e-5, 100_000),
]


def figures(once: Callable[[], float], runs: int) -> Figures:
    once()  # imports
    found, began = [], time.process_time()
    for _ in range(runs):
        found.append(once())
    cpu = (time.process_time() - began) / runs
    return Figures(float(np.median(found)), min(found), max(found), cpu)


def mine(work: Work) -> float:
    found = audit.measure(
        work, neighbours=(0.0, 1.0), claim=work.claim, trials=work.samples, confidence=1 - MISS, delta=work.delta
    )
    return found.epsilon


def theirs(work: Work, strategy: auditing.ThresholdStrategy) -> float:
    inside, outside = work.many(1.0, work.samples), work.many(0.0, work.samples)
    judge = auditing.CanaryScoreAuditor(inside, outside)
    return float(judge.epsilon_clopper_pearson(MISS, work.delta, one_sided=True, threshold_strategy=strategy))


def canaries(mu: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng()
    included = rng.random(count) < 0.5
    return included * mu + rng.normal(size=count), included


def one_run(mu: float, count: int, runs: int) -> dict[str, Figures]:
    """Bounds from one run on simulated Gaussian canaries, δ = 1e-5; those of f-DP are what a Gaussian would imply."""

    def scores() -> tuple[auditing.CanaryScoreAuditor, np.ndarray, np.ndarray]:
        marks, included = canaries(mu, count)
        return auditing.CanaryScoreAuditor(marks[included], marks[~included]), marks, included

    def ours() -> float:
        _, marks, included = scores()
        return audit.one_run(marks, included, delta=1e-5, confidence=1 - MISS).epsilon

    def sharper() -> float:
        _, marks, included = scores()
        return audit.one_run_fdp(marks, included, delta=1e-5, confidence=1 - MISS).implied

    return {
        "deniable one_run": figures(ours, runs),
        "jax-privacy one_run": figures(lambda: float(scores()[0].epsilon_one_run(MISS, 1e-5)), runs),
        "deniable one_run_fdp": figures(sharper, runs),
        "jax-privacy one_run_fdp": figures(lambda: float(scores()[0].epsilon_one_run_fdp(MISS, 1e-5)), runs),
    }


Results = dict[str, dict[str, Figures]]


def show(console: Console, truths: dict[str, float], results: Results) -> None:
    table = Table(title="certified ε at 95 %, median of the runs (least, largest)", title_justify="left")
    for heading in ("work", "library", "certified", "least", "largest", "truth", "CPU s"):
        table.add_column(heading, justify="left" if heading in ("work", "library") else "right")
    for name, found in results.items():
        for place, (library, one) in enumerate(found.items()):
            table.add_row(
                name if place == 0 else "",
                library,
                f"{one.median:.4f}",
                f"{one.low:.4f}",
                f"{one.high:.4f}",
                f"{truths[name]:.4f}" if place == 0 else "",
                f"{one.cpu:.3f}",
                style="bold" if library.startswith("deniable") else "",
            )
    console.print(table)


def verdicts(results: Results) -> list[Verdict]:
    lines = []
    for samples, least in REACHED.items():
        found = results[f"Laplace, ε = 1; {samples:,} samples"]
        ours, peer = found["deniable"], max(one.median for name, one in found.items() if name != "deniable")
        said = f"Laplace at {samples:,} samples: at least {least}"
        lines.append(Verdict(said, ours.median >= least, f"{ours.median:.4f}; jax-privacy {peer:.4f}"))
        lines.append(Verdict(f"more than jax-privacy at {samples:,}", ours.median > peer, f"{ours.median - peer:+.4f}"))
    slow = results["Laplace, ε = 1; 1,000,000 samples"]["deniable"].cpu
    lines.append(Verdict(f"a million samples in {CPU:g} CPU s", slow < CPU, f"{slow:.2f} s"))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", type=Path, metavar="OUT", help="save every figure")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a line that must be reached is not")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    console = Console(width=None if sys.stdout.isatty() else 150)
    what = {library: version(library) for library in ("deniable", "jax-privacy", "numpy", "scipy")}
    console.print(", ".join(f"{name} {number}" for name, number in what.items()))
    truths: dict[str, float] = {}
    results: Results = {}
    for work in WORKS:
        name = f"{work.name}; {work.samples:,} samples"
        truths[name] = work.truth
        with console.status(name):
            results[name] = {
                "deniable": figures(lambda w=work: mine(w), options.runs),
                "jax-privacy (Bonferroni)": figures(lambda w=work: theirs(w, auditing.Bonferroni()), options.runs),
                "jax-privacy (Split)": figures(lambda w=work: theirs(w, auditing.Split()), options.runs),
            }
    for mu in (1.0, 2.0):
        name = f"one run, 1000 Gaussian canaries, μ = {mu:g}, δ = 1e-5"
        truths[name] = float(curves.gaussian(mu=mu).epsilon(delta=1e-5))
        with console.status(name):
            results[name] = one_run(mu, 1000, options.runs)
    show(console, truths, results)
    lines = verdicts(results)
    show_summary(console, lines)
    if options.json:
        saved = {name: {library: asdict(one) for library, one in found.items()} for name, found in results.items()}
        said = [{"line": v.said, "met": v.met, "figure": v.figure} for v in lines]
        record = {"versions": what, "truths": truths, "results": saved, "verdicts": said}
        options.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if options.strict and not all(line.met for line in lines):
        sys.exit(1)


if __name__ == "__main__":
    main()
