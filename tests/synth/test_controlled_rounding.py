"""Controlled rounding: beside every rounding there is, on small tables."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from deniable.synth.controlled_rounding import Control, _solved, controlled
from deniable.synth.table_noise import subsets, summed


def nearest(table: Any, base: int) -> float | None:
    """The least Σ(r - z)² over all roundings whose margins are rounded margins, by trying all; None if none is."""
    floors = np.floor(table / base)
    axes = tuple(range(table.ndim))
    best = None
    for up in itertools.product((0, 1), repeat=table.size):
        rounded = floors + np.reshape(up, table.shape)
        if any(
            np.abs(summed(rounded, axes, part) - summed(table / base, axes, part)).max() >= 1 - 1e-9
            for part in subsets(axes)
        ):
            continue
        distance = float(((rounded * base - table) ** 2).sum())
        best = distance if best is None else min(best, distance)
    return best


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("shape", "base"), [((2, 3), 1), ((3, 3), 5), ((4,), 3), ((2, 2, 2), 1), ((2, 2, 2), 10)])
def test_it_is_the_nearest_of_all_roundings(shape: tuple[int, ...], base: int, seed: int) -> None:
    table = np.random.default_rng(seed).normal(0, 4 * base, shape)
    axes = tuple(range(len(shape)))
    found = controlled([(axes, table)], base=base)
    best = nearest(table, base)
    assert (found.control is Control.EVERY_MARGIN) == (best is not None)
    if best is not None:
        assert float(((found.tables[0] - table) ** 2).sum()) == pytest.approx(best, rel=1e-4)
        for part in subsets(axes):
            before, after = summed(table, axes, part), summed(found.tables[0], axes, part)
            assert np.abs(after - before).max() < base
    assert not (found.tables[0] % base).any()


def test_several_tables_add_up_after_rounding() -> None:
    rng = np.random.default_rng(3)
    fine = rng.gamma(1.0, 7.0, (6, 4, 3))
    whole = (0, 1, 2)
    asked = [whole, (0, 1), (1, 2), (0, 2), (0,), (1,), (2,), ()]
    found = controlled([(axes, summed(fine, whole, axes)) for axes in asked], base=5)
    for axes, table in zip(asked, found.tables, strict=True):
        assert (table == summed(found.tables[0], whole, axes)).all()
        assert table.dtype == np.int64
        assert np.abs(table - summed(fine, whole, axes)).max() < 5


def test_tables_that_only_share_a_margin_agree_on_it() -> None:
    """No table has all keys: (0, 1) and (1, 2) meet in key 1."""
    fine = np.random.default_rng(5).gamma(1.0, 2.0, (5, 4, 3))
    whole = (0, 1, 2)
    one, two = controlled([(axes, summed(fine, whole, axes)) for axes in ((0, 1), (1, 2))]).tables
    assert (one.sum(axis=0) == two.sum(axis=1)).all()


def test_whole_numbers_stay_and_so_does_a_margin_that_is_whole() -> None:
    table = np.array([[1.0, 2.5, 2.5], [0.0, 0.5, 0.5]])
    [found] = controlled([((0, 1), table)]).tables
    assert found[:, 0].tolist() == [1, 0]
    assert found.sum(axis=1).tolist() == [6, 1]
    assert found.sum(axis=0).tolist() == [1, 3, 3]


def test_three_keys_may_have_no_controlled_rounding_and_that_is_told() -> None:
    """Halves at the corners of a cube with an even sum of coordinates (Causey, Cox & Ernst 1985): each side of the cube
    holds two of them, so one of the two must be 1; but two corners that share no side do not both have an even sum.
    """
    table = np.array([[[0.5 * ((i + j + k) % 2 == 0) for k in (0, 1)] for j in (0, 1)] for i in (0, 1)])
    assert nearest(table, 1) is None
    found = controlled([((0, 1, 2), table)])
    assert found.control is Control.TABLES
    assert np.abs(found.tables[0] - table).max() <= 0.5


def test_where_no_neighbours_add_up_the_next_ones_are_taken() -> None:
    """Tables that differ by more than roundings: as nobody should pass, but a rounding is found and its reach told."""
    found = controlled([((0,), np.array([1.2, 1.2, 1.2])), ((), np.array(8.9))])
    assert found.control is Control.WIDER
    assert found.tables[0].sum() == found.tables[1]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (0,), (2, 0)])
def test_one_cell_or_no_cell(shape: tuple[int, ...]) -> None:
    axes = tuple(range(len(shape)))
    [found] = controlled([(axes, np.full(shape, 2.4))], base=2).tables
    assert found.shape == shape
    assert all(each in (2, 4) for each in found.ravel().tolist())


def test_a_table_by_two_keys_is_rounded_soon() -> None:
    """A flow, however large: 20,000 cells."""
    table = np.random.default_rng(8).gamma(1.0, 3.0, (200, 100))
    found = controlled([((0, 1), table), ((0,), table.sum(axis=1)), ((1,), table.sum(axis=0))])
    assert (found.tables[0].sum(axis=1) == found.tables[1]).all()
    assert np.abs(found.tables[1] - table.sum(axis=1)).max() < 1
    assert math.isclose(float(np.abs(found.tables[0] - table).mean()), 0.25, rel_tol=0.3)


@pytest.mark.parametrize("keys", [4, 5])
def test_a_table_by_five_keys_does_not_claim_that_every_margin_is_rounded(keys: int) -> None:
    """It said so, and controlled only the table: margins were off by more than one."""
    table = np.random.default_rng(5).uniform(0, 3, (2,) * keys)
    found = controlled([(tuple(range(keys)), table)])
    off = max(
        float(np.abs(summed(found.tables[0], tuple(range(keys)), part) - summed(table, tuple(range(keys)), part)).max())
        for part in subsets(tuple(range(keys)))
    )
    assert (found.control is Control.EVERY_MARGIN) <= (off < 1)
    assert keys <= 4 or found.control is Control.TABLES


def test_the_last_resort_makes_no_count_negative_either() -> None:
    """Three margins of -1 pull at a count of 0: a count of -1 would be nearer to all of them together."""
    family: Any = {(0, 1): np.array([[0.0]]), (0,): np.array([-1.0]), (1,): np.array([-1.0]), (): np.array(-1.0)}
    found = _solved(family, frozenset(family), 1)
    assert found is not None
    assert found[0, 1].tolist() == [[0]]
