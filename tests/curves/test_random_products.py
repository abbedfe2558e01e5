"""A short version of the long run of curves, and a control that it can fail."""

from __future__ import annotations

import numpy as np
import pytest

from deniable.curves import Curve
from tests.curves import long_run


@pytest.mark.slow
def test_random_products_keep_their_order() -> None:
    generator = np.random.default_rng(2022)
    assert [wrong for _ in range(12) if (wrong := long_run.broken(generator))] == []


def test_bounds_that_are_too_small_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The upper end of ε made 2 % too small: some product contradicts itself."""
    exact = Curve.epsilon
    monkeypatch.setattr(Curve, "epsilon", lambda self, *, delta: exact(self, delta=delta) * 0.98)
    assert long_run.broken(np.random.default_rng(1)) is not None
