"""Rows drawn from a mixture: as many as asked, at most one from each expectation, and right on average."""

from __future__ import annotations

import numpy as np
import pytest

from deniable.synth import Mixture, draw
from deniable.synth.rows import _shared_out


@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000])
def test_shares_are_rounded_up_or_down(count: int) -> None:
    generator = np.random.default_rng()
    for _ in range(200):
        probabilities = generator.dirichlet(np.full(9, 0.2))
        found = _shared_out(probabilities, count, generator)
        assert found.sum() == count
        assert (found >= 0).all()
        assert (np.abs(found - probabilities * count) < 1 + 1e-9).all()


def test_on_average_shares_are_the_probabilities() -> None:
    """4,000 draws of 3 rows: a mean is off by more than 6.5 standard errors in fewer than one of 10⁹ runs."""
    generator = np.random.default_rng()
    probabilities = np.array([0.05, 0.5, 0.15, 0.3])
    found = np.mean([_shared_out(probabilities, 3, generator) for _ in range(4000)], axis=0)
    assert np.abs(found - 3 * probabilities).max() < 6.5 * 0.5 / np.sqrt(4000)


def test_rows_follow_the_mixture() -> None:
    """Two columns that always agree within a component: so they do in the rows, up to rounding."""
    sure = np.array([[1.0, 0.0], [0.0, 1.0]])
    found = draw(Mixture(np.array([0.3, 0.7]), (sure, sure)), 1000)
    assert found.shape == (1000, 2)
    assert (found[:, 0] == found[:, 1]).all()
    assert found[:, 0].sum() in (699, 700, 701)
    assert len(draw(Mixture(np.array([0.3, 0.7]), (sure, sure)), 0)) == 0
