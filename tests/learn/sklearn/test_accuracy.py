"""The lines that must be reached on real tables at ε = 1, δ = 1e-6, with the data and splits of the benchmark.

Each figure is a mean over ten splits, and lies more than six of its standard deviations above its line: NHANES .816 ±
.004 of a mean (line .80 is four away, so the test asks for .79), RAND .654 ± .001 (.645), diamonds .981 ± .0005 (.95).
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def benchmark() -> Any:
    path = Path(__file__).parents[3] / "benchmarks" / "estimators.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_estimators", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("data", "name", "line"),
    [
        ("nhanes", "LogisticRegression", 0.79),
        ("rand", "LogisticRegression", 0.645),
        ("rand", "AdditiveClassifier", 0.65),
        ("diamonds", "AdditiveRegressor", 0.95),
        ("diamonds", "LinearRegression", 0.9),
    ],
)
def test_the_lines_are_reached_on_real_tables(data: str, name: str, line: float) -> None:
    module = benchmark()
    found = module.judged(module.ours(name), getattr(module, data)(), 10, lambda: None)
    assert found["mean"] > line


@pytest.mark.parametrize(("epsilon", "line"), [(0.1, 0.85), (1.0, 0.96)])
def test_the_forest_learns_from_few_rows(epsilon: float, line: float) -> None:
    """Breast cancer, 40 splits: .909 ± .009 of a mean, and .983 ± .002. The lines are more than six of these away.
    (diffprivlib's forest has .867 ± .012 and .944 ± .005, by the benchmark.)
    """
    module = benchmark()
    found = module.judged(
        module.ours("RandomForestClassifier"), module.small("breast_cancer", epsilon), 10, lambda: None
    )
    assert found["mean"] > line
