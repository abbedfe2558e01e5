"""`pip install deniable` and nothing else: every name works, or says which extra brings what it needs."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import deniable
from tests import bare

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

CALLS = {
    "AboveThreshold": "dn.AboveThreshold(threshold=10, sensitivity=1, epsilon=1.0).release([1, 2, 30])",
    "Budget": "dn.Budget(epsilon=1.0, delta=1e-6)",
    "DeniableError": "dn.DeniableError('x')",
    "DiscreteGaussian": "dn.DiscreteGaussian(sensitivity=1, sigma=2).release(3)",
    "DiscreteLaplace": "dn.DiscreteLaplace(sensitivity=1, epsilon=1.0).release(3)",
    "Domain": "dn.Domain.integer(0, 9)",
    "Exponential": "dn.Exponential(sensitivity=1, epsilon=1.0).release([1.0, 2.0])",
    "Gaussian": "dn.Gaussian(sensitivity=1, sigma=2).release(3)",
    "Guarantee": "dn.Laplace(sensitivity=1, epsilon=1.0).curve.epsilon(delta=0)",
    "Histogram": "dn.Histogram(edges=[0, 5, 9], epsilon=1.0, unit=dn.Unit.row()).release([3, 4])",
    "InverseSensitivity": "dn.InverseSensitivity.median(answers=range(9), epsilon=1).release([3, 4])",
    "Laplace": "dn.Laplace(sensitivity=1, epsilon=1.0).release(3)",
    "NoisyMax": "dn.NoisyMax(sensitivity=1, epsilon=1.0).release([1.0, 2.0])",
    "PermuteAndFlip": "dn.PermuteAndFlip(sensitivity=1, epsilon=1.0).release([1.0, 2.0])",
    "PoissonMechanism": "dn.PoissonMechanism.linear(low=2, high=5, sensitivity=2).release(1)",
    "Sensitivity": "dn.Sensitivity(l1=1)",
    "SparseVector": "dn.SparseVector(threshold=10, sensitivity=1, epsilon=1.0, positives=2).release([1, 2, 30])",
    "Unit": "dn.Unit.person('id', rows=3)",
    "attacks": "[getattr(dn.attacks, name) for name in dn.attacks.__all__]",
    "audit": "dn.audit.measure(lambda x: dn.Laplace(sensitivity=1, epsilon=1.0).release(x), neighbours=(0, 1), "
    "claim=dn.curves.laplace(scale=1), trials=2000, confidence=0.9)",
    "calibrate": "dn.calibrate(lambda s: dn.curves.gaussian(sigma=s), epsilon=1.0, delta=1e-6)",
    "col": "dn.col('age') > 3",
    "connect": "dn.connect('http://127.0.0.1:1', token='abc')",
    "count": "dn.count()",
    "curves": "repr(dn.curves.gaussian(sigma=1)), dn.curves.gaussian(sigma=1)._repr_html_()",
    "errors": "dn.errors.DeniableError",
    "explain": "refused(dn.explain, 'SELECT COUNT(*) FROM t')",
    "learn": "dn.learn.DPSGD(clip=1.0, rate=0.01, steps=10).calibrate(epsilon=3, delta=1e-5)",
    "ledger": "dn.ledger.Budget.pure(epsilon=1.0)",
    "local": "[getattr(dn.local, name) for name in dn.local.__all__]",
    "mean": "dn.mean('age')",
    "mechanisms": "[getattr(dn.mechanisms, name) for name in dn.mechanisms.__all__]",
    "noise": "[getattr(dn.noise, name) for name in dn.noise.__all__]",
    "plots": "dn.plots.compare(dn.curves.gaussian(sigma=1)).save('x.png')",
    "propose_schema": "dn.propose_schema(PARQUET)",
    "queries": "dn.queries.parse('SELECT COUNT(*) FROM t')",
    "session": "dn.session(CSV, unit=dn.Unit.row(), budget=dn.Budget.pure(epsilon=1.0), schema={'age': dn.Domain.integer(0, 9)})",
    "tables": "[getattr(dn.tables, name) for name in dn.tables.__all__]",
    "testing": "[getattr(dn.testing, name) for name in dn.testing.__all__]",
    "units": "dn.units.Unit.row()",
}
"""What a newcomer would first write with each name of the front door."""

NEEDS = {
    "connect": "client",
    "plots": "plots",
    "propose_schema": "sql",
    "queries": "sql",
    "session": "sql",
}
"""The names that need an extra, and which."""

FURTHER = {
    "dn.learn.torch": "torch",
    "dn.plots.explore()": "notebook",
    "dn.learn.sklearn.Ridge": "sklearn",
    "dn.queries.DatabaseTable('x.duckdb', 't')": "sql",
    "dn.curves.gaussian(sigma=1).__rich__()": "cli",
    "__import__('deniable.server')": "server",
    "__import__('deniable.queries.engines.duckdb')": "sql",
    "__import__('deniable.queries.engines.spark')": "sql",
    "__import__('deniable.ledger.stores.database_store')": "postgres",
    "__import__('deniable.cli', fromlist=['build']).build()": "cli",
    "dn.testing.strategies.curves()": "testing",
}
"""Ways into the rooms that are behind an extra."""

RUN = """
import json, sys
from pathlib import Path
import deniable as dn
from deniable.errors import InvalidParameter, MissingExtra

def refused(function, *arguments):
    try:
        function(*arguments)
    except InvalidParameter:
        return
    raise AssertionError("was accepted")

CSV, PARQUET, found = sys.argv[1], sys.argv[2], {}
for call in json.loads(sys.argv[3]):
    try:
        eval(call)
        found[call] = "works"
    except MissingExtra as error:
        assert "pip install" in str(error) and f"deniable[{error.extra}]" in str(error), error
        found[call] = error.extra
    except BaseException as error:
        found[call] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""

MODULES = """
import importlib, pkgutil
import deniable
from deniable.errors import MissingExtra
for module in pkgutil.walk_packages(deniable.__path__, "deniable.", onerror=lambda name: None):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except MissingExtra:
            pass
        except BaseException as error:
            print(module.name, type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bare.build(tmp_path_factory.mktemp("bare") / "environment")


def outcomes(python: Path, calls: list[str], folder: Path) -> dict[str, str]:
    csv, parquet = folder / "t.csv", folder / "t.parquet"
    csv.write_text("age\n3\n4\n", encoding="utf-8")
    parquet.write_bytes(b"PAR1")
    ran = bare.run(python, RUN, str(csv), str(parquet), json.dumps(calls))
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_environment_has_no_package_of_an_extra(python: Path) -> None:
    ran = bare.run(python, "import importlib.metadata as m; print(*(d.name.lower() for d in m.distributions()))")
    have = set(ran.stdout.split())
    assert {"cryptography", "numpy", "scipy"} <= have
    assert not have & {"duckdb", "sqlglot", "pandas", "pyarrow", "rich", "typer", "httpx", "matplotlib", "scikit-learn"}


def test_every_name_of_the_front_door_works_or_names_the_extra(python: Path, tmp_path: Path) -> None:
    assert sorted(CALLS) == deniable.__all__
    found = outcomes(python, list(CALLS.values()), tmp_path)
    assert {name: found[call] for name, call in CALLS.items()} == {name: NEEDS.get(name, "works") for name in CALLS}


def test_every_way_into_a_room_behind_an_extra_names_it(python: Path, tmp_path: Path) -> None:
    assert outcomes(python, list(FURTHER), tmp_path) == FURTHER


def test_no_module_fails_with_a_bare_import_error(python: Path) -> None:
    ran = bare.run(python, MODULES)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr


def brought_by(extra: str) -> set[str]:
    """The distributions that an extra names, through other extras as well."""
    found = set()
    for need in PROJECT["optional-dependencies"][extra]:
        if inner := re.match(r"deniable\[([\w,]+)\]", need):
            found |= set().union(*(brought_by(each) for each in inner[1].split(",")))
        else:
            found.add(re.match(r"[\w.-]+", need)[0].lower().replace("_", "-"))
    return found


def promised() -> list[tuple[str, str, str]]:
    """(file, package, extra) of every message in the sources that says an extra brings a package."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
                continue
            texts = [word.value for arg in node.args for word in ast.walk(arg) if isinstance(word, ast.Constant)]
            if node.func.id == "MissingExtra" and len(texts) >= 2 and texts[-1] is not None:
                found.append((path.name, texts[0], texts[-1]))
            elif node.func.id == "require":
                found += [(path.name, module, texts[0]) for module in texts[1:]]
    return found


@pytest.mark.slow
def test_an_extra_brings_what_the_message_says() -> None:
    names = packages_distributions()
    wrong, all_of_them = [], promised()
    assert len(all_of_them) > 20
    for file, package, extra in all_of_them:
        distributions = {each.lower().replace("_", "-") for each in names.get(package, [package])} | {package.lower()}
        if not distributions & brought_by(extra):
            wrong.append((file, package, extra))
    assert wrong == []
