"""Rows drawn from a mixture: as many as asked, at most one from each expectation, and right on average."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deniable.synth import Forbidden, Mixture, draw, row_drawing
from deniable.synth.row_drawing import _shared_out, independent


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


@pytest.mark.parametrize("drawing", [draw, independent])
def test_rows_of_the_last_component_were_cut_off_where_others_are_forbidden(drawing: Any) -> None:
    """Ten rows of two components alike, half of each forbidden: 600 times, five of each on average. A mean is off by
    more than 6.5 standard errors in fewer than one of 10⁹ runs.
    """
    sure, even = np.array([[1.0, 0.0], [0.0, 1.0]]), np.full((2, 2), 0.5)
    mixture, rule = Mixture(np.array([0.5, 0.5]), (sure, even)), Forbidden.of([2, 2], [{1: [0]}])
    generator = np.random.default_rng()
    found = [drawing(mixture, 10, generator, rule)[:, 0].sum() for _ in range(600)]
    assert abs(np.mean(found) - 5) < 6.5 * np.sqrt(10 / 4) / np.sqrt(600)


def test_a_table_of_all_rows_that_were_tried_was_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row in 10,000 is allowed: two million are tried for 200, some at a time."""
    rare = np.array([[1 - 1e-4, 1e-4]])
    kept, tried = row_drawing._drawn, []

    def drawn(mixture: Mixture, count: int, generator: np.random.Generator) -> Any:
        tried.append(count)
        return kept(mixture, count, generator)

    monkeypatch.setattr(row_drawing, "_drawn", drawn)
    found = draw(Mixture(np.ones(1), (rare,)), 200, forbidden=Forbidden.of([2], [{0: [0]}]))
    assert (found == 1).all()
    assert len(found) == 200
    assert max(tried) <= 10**6 < sum(tried)


def correlated(components: int, generator: np.random.Generator) -> Mixture:
    """Four columns of 2 to 6 values that depend on each other through the components."""
    sizes = (2, 3, 4, 6)
    return Mixture(
        generator.dirichlet(np.ones(components)),
        tuple(generator.dirichlet(np.full(size, 0.5), components) for size in sizes),
    )


def off_by(rows: Any, mixture: Mixture) -> float:
    """The mean total variation between the six tables of two columns and the mixture's."""
    found = []
    for one in range(4):
        for other in range(one + 1, 4):
            table = np.zeros((mixture.sizes[one], mixture.sizes[other]))
            np.add.at(table, (rows[:, one], rows[:, other]), 1 / len(rows))
            found.append(np.abs(table - mixture.marginal(one, other)).sum() / 2)
    return float(np.mean(found))


def test_exchanges_bring_pairs_of_columns_closer_and_leave_single_columns() -> None:
    """Twenty mixtures: without exchanges the mean distance is about twice as large. If exchanges did nothing, the sum
    over twenty mixtures would fall by three tenths in far fewer than one of 10⁹ runs.
    """
    generator = np.random.default_rng()
    before, after = 0.0, 0.0
    for _ in range(20):
        mixture = correlated(5, generator)
        state = generator.bit_generator.state
        plain = draw(mixture, 2000, generator, sweeps=0)
        generator.bit_generator.state = state  # the same rows, before exchanges
        better = draw(mixture, 2000, generator)
        for column in range(4):
            assert (np.bincount(plain[:, column]) == np.bincount(better[:, column])).all()
        before, after = before + off_by(plain, mixture), after + off_by(better, mixture)
    assert after < 0.7 * before


def test_exchanged_rows_are_right_on_average() -> None:
    """The mean count of every cell of all four columns, over 800 draws of 40 rows. A mean is off by more than seven
    standard errors in fewer than one of 10⁹ runs, for 144 cells together. Two percent more are allowed, because
    exchanges are judged by two columns only.
    """
    generator = np.random.default_rng()
    mixture = correlated(3, generator)
    cells = np.zeros((800, 144))
    for run in range(800):
        rows = draw(mixture, 40, generator, sweeps=2)
        cells[run] = np.bincount(np.ravel_multi_index(tuple(rows.T), mixture.sizes), minlength=144)
    expected = 40 * mixture.marginal(0, 1, 2, 3).ravel()
    assert (np.abs(cells.mean(axis=0) - expected) < 7 * np.sqrt((expected + 1e-9) / 800) + 0.02 * expected + 1e-3).all()


def test_exchanges_break_no_rule() -> None:
    generator = np.random.default_rng()
    rules = Forbidden.of([2, 3, 4, 6], [{0: [0], 3: [1, 2]}, {1: [2], 2: [0, 3]}, {0: [1], 1: [0], 2: [1]}])
    for _ in range(10):
        mixture = correlated(4, generator)
        if rules.share(mixture) > 0.01:
            assert rules.allowed(draw(mixture, 500, generator, rules)).all()


def test_many_rows_get_fewer_exchanges() -> None:
    assert [row_drawing.sweeps_for(rows, 10) for rows in (0, 1, 48_842, 300_000, 1_000_000, 1_000_001)] == [
        8, 8, 8, 3, 1, 0,
    ]  # fmt: skip
    assert row_drawing.sweeps_for(100, 1) == 0
