"""Synthetic data beside private-pgm's MST and AIM, smartnoise-synth and dpmm, on ten columns of the Adult data.

    python benchmarks/synth.py [--data ../shared/data] [--private-pgm CHECKOUT] [--epsilon 0.1 1 10] [--only NAME ...]
                               [--without NAME ...] [--results FILE] [--seconds 7200]

Nine of ten rows are given to every library; the whole domain of each column is public, and δ is 1e-9. The comparison
uses as many synthetic rows as real ones: the mean total variation error of all tables of one, two and three columns,
and the AUROC, on the rows that nobody was given, of a gradient-boosted classifier of income that learnt from synthetic
rows. CPU seconds are those of the process from data to rows, memory is its peak. Each library has an environment of its
own (.venv-bench-synth-...); one that cannot be installed or does not run is named. private-pgm's mechanisms are not on
PyPI: clone its repository and give the folder. Figures are written to --results one by one, and figures that are in the
file already are not measured again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import venv
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
DELTA = 1e-9
TARGET = "income>50K"
COLUMNS = ["age", "workclass", "education-num", "marital-status", "occupation", "relationship", "race", "sex",
           "hours-per-week", TARGET]  # fmt: skip
NEEDS = {
    "private-pgm": [
        "jax==0.6.2",
        "jaxlib==0.6.2",
        "pandas==2.3.*",
        "attrs",
        "chex",
        "optax",
        "networkx",
        "scipy",
        "matplotlib",
    ],
    "smartnoise": ["smartnoise-synth==1.0.8"],
    "dpmm": ["dpmm==0.1.9"],
}
"""What each library is installed by. Newer releases of JAX and pandas break private-pgm's AIM."""
MAKERS = [
    "deniable",
    "deniable, target",
    "deniable MST",
    "deniable adaptive",
    "private-pgm MST",
    "dpmm MST",
    "smartnoise MST",
    "private-pgm AIM 1 MB",
    "private-pgm AIM",
]
"""What is run if nothing else is said; synth_worker.py knows the AIM of smartnoise and dpmm as well. AIM's default
model of 80 MB can take many hours at epsilon 10, as its authors say, so a model of 1 MB is run beside it."""


@dataclass(frozen=True)
class Figure:
    """What one library reached at one ε; `failed` says why there is nothing."""

    maker: str
    epsilon: float
    one: float = 0.0
    two: float = 0.0
    three: float = 0.0
    auroc: float = 0.0
    cpu: float = 0.0
    megabytes: float = 0.0
    failed: str = ""


def variation(real: Any, other: Any, domain: dict[str, int], ways: int) -> float:
    """The mean total variation distance of all tables by so many columns."""
    found = []
    for names in itertools.combinations(domain, ways):
        shape = [domain[name] for name in names]
        counts = []
        for rows in (real, other):
            places = np.ravel_multi_index([rows[name].to_numpy() for name in names], shape)
            counts.append(np.bincount(places, minlength=int(np.prod(shape))) / len(rows))
        found.append(np.abs(counts[0] - counts[1]).sum() / 2)
    return float(np.mean(found))


def auroc(rows: Any, held_out: Any) -> float:
    """How well income is told from the other columns on real rows, by what was learnt from these."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    if rows[TARGET].nunique() < 2:
        return 0.5
    features = [name for name in COLUMNS if name != TARGET]
    learnt = HistGradientBoostingClassifier(random_state=0).fit(rows[features], rows[TARGET])
    return float(roc_auc_score(held_out[TARGET], learnt.predict_proba(held_out[features])[:, 1]))


def python_of(maker: str, checkout: Path | None) -> tuple[str, dict[str, str]]:
    """The interpreter of a library's own environment, which is made if it is not there, and what to add to the path."""
    library = maker.split(" ")[0].rstrip(",")
    if library == "deniable":
        return sys.executable, {"PYTHONPATH": str(ROOT / "src")}
    if library == "private-pgm" and checkout is None:
        raise RuntimeError("not on PyPI: give a clone of its repository by --private-pgm")
    place = ROOT / f".venv-bench-synth-{library}"
    python = place / "bin" / "python"
    if not (place / ".ready").exists():
        venv.create(place, with_pip=True, clear=True)
        done = subprocess.run([python, "-m", "pip", "install", "-q", *NEEDS[library]], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"cannot be installed: {done.stderr.strip().splitlines()[-1][:200]}")
        (place / ".ready").touch()
    paths = [] if library != "private-pgm" or checkout is None else [checkout / "src", checkout / "mechanisms"]
    return str(python), {"PYTHONPATH": os.pathsep.join(str(each.resolve()) for each in paths)}


def spent_by_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(
    maker: str, epsilon: float, folder: Path, checkout: Path | None, seconds: float
) -> tuple[Any, dict[str, float]]:
    """The rows of one library, and what they took."""
    python, more = python_of(maker, checkout)
    out = folder / "rows.csv"
    command = [python, str(HERE / "synth_worker.py"), maker, str(folder), str(epsilon), str(DELTA), str(out)]
    before = spent_by_children()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **more}, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not finished in {spent_by_children() - before:,.0f} CPU s ({seconds:g} s)") from None
    if done.returncode:
        raise RuntimeError(f"does not run: {(done.stderr.strip().splitlines() or ['?'])[-1][:200]}")
    return pd.read_csv(out), json.loads(done.stdout.strip().splitlines()[-1])


def measured(maker: str, epsilon: float, folder: Path, held_out: Any, checkout: Path | None, seconds: float) -> Figure:
    """One line of the table."""
    domain = json.loads((folder / "domain.json").read_text())
    try:
        rows, took = run(maker, epsilon, folder, checkout, seconds)
    except RuntimeError as error:
        return Figure(maker, epsilon, failed=str(error))
    real = pd.read_csv(folder / "train.csv")
    ways = [variation(real, rows, domain, ways) for ways in (1, 2, 3)]
    return Figure(maker, epsilon, *ways, auroc(rows, held_out), took["cpu"], took["megabytes"])


def printed(figures: list[Figure], real: float) -> None:
    """The table, with ratios to ours: more than 1 is worse than ours."""
    names = f"{'1-way':>6} {'2-way':>6} {'3-way':>6} {'AUROC':>6} {'CPU s':>7} {'MB':>6}"
    print(f"{'ε':>5}  {'':18} {names}  2-way and CPU, × ours")
    for epsilon in sorted({each.epsilon for each in figures}):
        here = [each for each in figures if each.epsilon == epsilon]
        ours = next((each for each in here if each.maker == "deniable" and not each.failed), None)
        for each in here:
            if each.failed:
                print(f"{epsilon:>5g}  {each.maker:18} {each.failed}")
                continue
            ratios = "" if ours is None else f"{each.two / ours.two:6.2f} {each.cpu / ours.cpu:9.1f}"
            print(
                f"{epsilon:>5g}  {each.maker:18} {each.one:6.3f} {each.two:6.3f} {each.three:6.3f} {each.auroc:6.3f} "
                f"{each.cpu:7.1f} {each.megabytes:6.0f}  {ratios}"
            )
    print(f"AUROC of what learnt from the real rows: {real:.3f}")


def main() -> None:
    """Everything that was asked for, in one run."""
    given = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    given.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the folder of adult.csv")
    given.add_argument("--private-pgm", type=Path, help="a clone of github.com/ryan112358/private-pgm")
    given.add_argument("--epsilon", type=float, nargs="*", default=[0.1, 1.0, 10.0])
    given.add_argument("--only", nargs="*", default=MAKERS, help="which of the libraries")
    given.add_argument("--without", nargs="*", default=[], help="which of them not")
    given.add_argument("--results", type=Path, help="a JSON file that figures are kept in")
    given.add_argument("--seconds", type=float, default=7200.0, help="the most that one fit may take, on the clock")
    asked = given.parse_args()
    people = pd.read_csv(asked.data / "adult.csv")[COLUMNS].sample(frac=1, random_state=0)
    domain = json.loads((asked.data / "adult-domain.json").read_text())
    cut = len(people) * 9 // 10
    train, held_out = people[:cut], people[cut:]
    kept = asked.results is not None and asked.results.exists()
    figures = [Figure(**each) for each in json.loads(asked.results.read_text())] if kept else []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train.to_csv(folder / "train.csv", index=False)
        (folder / "domain.json").write_text(json.dumps({each: domain[each] for each in COLUMNS}))
        for maker, epsilon in itertools.product(asked.only, asked.epsilon):
            known = any((each.maker, each.epsilon) == (maker, epsilon) and not each.failed for each in figures)
            if maker in asked.without or known:
                continue
            print(f"{maker} at ε = {epsilon:g} …", file=sys.stderr, flush=True)
            figures = [each for each in figures if (each.maker, each.epsilon) != (maker, epsilon)]
            figures.append(measured(maker, epsilon, folder, held_out, asked.private_pgm, asked.seconds))
            if asked.results is not None:
                asked.results.write_text(json.dumps([asdict(each) for each in figures], indent=1))
    printed(figures, auroc(train, held_out))


if __name__ == "__main__":
    main()
