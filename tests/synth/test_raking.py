"""Counts by one column have a last word, as far as noise does not explain the distance."""

from __future__ import annotations

import numpy as np
import pytest

from deniable.synth import Forbidden, Marginal, Mixture, raked

NOTHING = Forbidden.of([2, 3], [])


def mixture() -> Mixture:
    generator = np.random.default_rng(3)
    return Mixture(generator.dirichlet(np.ones(4)), tuple(generator.dirichlet(np.ones(size), 4) for size in (2, 3)))


def test_a_column_that_is_far_off_is_put_right() -> None:
    counts = np.array([950.0, 50.0])
    found = raked(mixture(), [Marginal((0,), counts, variance=4.0)], NOTHING)
    assert found.marginal(0) == pytest.approx(counts / 1000, abs=0.002)
    assert found.weights.sum() == pytest.approx(1)
    assert found.marginal(0, 1).sum() == pytest.approx(1)
    # What the other column is, given the first, stays.
    before, after = mixture().marginal(0, 1), found.marginal(0, 1)
    assert after[0] / after[0].sum() == pytest.approx(before[0] / before[0].sum())


def test_a_column_that_is_near_stays() -> None:
    near = mixture().marginal(0) * 1000 + np.array([2.0, -2.0])
    found = raked(mixture(), [Marginal((0,), near, variance=4.0)], NOTHING)
    assert found.marginal(0) == pytest.approx(mixture().marginal(0), abs=1e-12)


@pytest.mark.parametrize("counts", [[0.0, 1000.0], [-50.0, -20.0], [1e-9, 1.0]])
def test_what_cannot_be_reached_breaks_nothing(counts: list[float]) -> None:
    found = raked(mixture(), [Marginal((0,), np.array(counts), variance=1.0)], NOTHING)
    assert np.isfinite(found.weights).all()
    assert found.marginal(0, 1).sum() == pytest.approx(1)


def test_the_column_is_right_in_the_rows_that_are_left() -> None:
    """After combinations are taken out that cannot be: else the column would lose what was in them."""
    rules = Forbidden.of([2, 3], [{0: [1], 1: [0]}])
    found = raked(mixture(), [Marginal((0,), np.array([800.0, 200.0]), variance=1.0)], rules)
    assert rules.marginal(found, 0) == pytest.approx([0.8, 0.2], abs=0.005)
