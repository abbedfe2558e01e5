"""The example on Flower's own simulation, where flwr and ray are installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'flwr[simulation]'")
pytest.importorskip("ray", reason="ray is not installed: pip install 'flwr[simulation]'")

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower_federation.py"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_flowers_simulation_learns_by_the_plan() -> None:
    """Noise of 2 · 3/30 in each number after the last round, and what is left of the first two: 8 deviations."""
    spec = importlib.util.spec_from_file_location("flower_federation", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    weights = example.trained()
    assert not np.array_equal(weights, np.zeros(4))
    assert np.all(np.abs(weights - example.TRUTH) < 8 * 0.2 + 0.1)
