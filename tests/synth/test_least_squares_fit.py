"""Tables fitted to each other: beside least squares by matrices, and non-negative least squares by scipy's solver."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from deniable.errors import InvalidParameter
from deniable.synth.least_squares_fit import Margin, agree, fit, nonnegative
from deniable.synth.table_noise import subsets, summed
from tests.wording import worded

SIZES = (3, 2, 4)
WHOLE = (0, 1, 2)
FAMILIES: list[list[tuple[tuple[int, ...], float]]] = [
    [((0, 1, 2), 4.0)],
    [((0, 1, 2), 4.0), ((0, 1), 1.0), ((2,), 0.5), ((), 3.0)],
    [((0, 1, 2), 1.0), ((0, 1), 1.0), ((1, 2), 2.0), ((0, 2), 0.1), ((0,), 9.0), ((1,), 0.01), ((2,), 1.0), ((), 1.0)],
    [((0, 1), 1.0), ((0, 1), 2.0), ((1, 2), 3.0)],
    [((0,), 1.0), ((1,), 1.0), ((2,), 5.0)],
]


def noisy(family: list[tuple[tuple[int, ...], float]], seed: int, mean: float = 2.0) -> list[Margin]:
    rng = np.random.default_rng(seed)
    truth = rng.poisson(mean, SIZES).astype(float)
    found = []
    for axes, variance in family:
        sums = summed(truth, WHOLE, axes)
        found.append(Margin(axes, np.asarray(sums + rng.normal(0, math.sqrt(variance), sums.shape)), variance))
    return found


def matrix(axes: tuple[int, ...]) -> Any:
    """The sums over all axes but these, as a matrix."""
    cells = np.eye(math.prod(SIZES)).reshape(-1, *SIZES)
    return np.stack([summed(cell, WHOLE, axes).ravel() for cell in cells], axis=1)


def system(margins: list[Margin]) -> tuple[Any, Any]:
    rows = [matrix(each.axes) / math.sqrt(each.variance) for each in margins]
    return np.vstack(rows), np.concatenate([each.counts.ravel() / math.sqrt(each.variance) for each in margins])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_fit_is_generalised_least_squares(family: list[tuple[tuple[int, ...], float]]) -> None:
    margins = noisy(family, 1)
    found = fit(SIZES, margins)
    a, b = system(margins)
    solution = np.linalg.lstsq(a, b, rcond=None)[0].reshape(SIZES)
    for axes, _ in family:
        assert found.table(axes) == pytest.approx(summed(solution, WHOLE, axes), abs=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_noise_of_a_fitted_number_is_that_of_least_squares(family: list[tuple[tuple[int, ...], float]]) -> None:
    """Σ moves² · variance over all cells of all tables, beside the covariance (AᵀA)⁺ of the estimate by matrices."""
    margins = noisy(family, 2)
    found = fit(SIZES, margins)
    a, _ = system(margins)
    covariance = np.linalg.pinv(a.T @ a)
    for axes, _ in family:
        moved = sum(
            moves**2 * cells * each.variance
            for i, each in enumerate(margins)
            for moves, cells in found.effects(axes, [(i, 1.0)], each.axes)
        )
        sums = matrix(axes)
        assert moved == pytest.approx((sums @ covariance @ sums.T)[0, 0], rel=1e-9)
        by_total = [sum(cells for _, cells in found.effects(axes, [(i, 1.0)], m.axes)) for i, m in enumerate(margins)]
        assert by_total == [m.counts.size for m in margins], "every cell is counted once"


def test_a_table_whose_parts_have_noise_of_their_own_is_merged_part_by_part() -> None:
    """As tables that were measured together have it: beside generalised least squares with the whole covariance."""
    rng = np.random.default_rng(5)
    truth = rng.poisson(20, SIZES).astype(float)
    axes, variances = (0, 1), {(): 3.0, (0,): 0.5, (1,): 7.0, (0, 1): 2.0}
    counts = summed(truth, WHOLE, axes)
    covariance = np.zeros((6, 6))
    for part, variance in variances.items():
        centred = np.eye(1)
        for axis in axes:
            n = SIZES[axis]
            centred = np.kron(centred, np.eye(n) - 1 / n if axis in part else np.full((n, n), 1 / n) / n)
        covariance += variance * centred
    noisy_counts = counts + rng.multivariate_normal(np.zeros(6), covariance).reshape(3, 2)
    other = Margin((1,), summed(truth, WHOLE, (1,)) + rng.normal(0, 2, 2), 4.0)
    table = Margin(axes, noisy_counts, 1.0, variances)
    found = fit(SIZES, [table, other])
    design = np.vstack([np.eye(6), matrix((1,))[:, ::4] @ np.eye(6)])
    weight = np.zeros((8, 8))
    weight[:6, :6], weight[6:, 6:] = np.linalg.inv(covariance), np.eye(2) / 4
    normal = design.T @ weight @ design
    best = np.linalg.solve(normal, design.T @ weight @ np.concatenate((noisy_counts.ravel(), other.counts)))
    assert found.table(axes).ravel() == pytest.approx(best, abs=1e-9)
    moved = sum(
        moves**2 * cells * variance
        for part, variance in variances.items()
        for moves, cells in found.effects(axes, [(0, {part: 1.0})], part)
    ) + sum(moves**2 * cells * 4.0 for moves, cells in found.effects(axes, [(1, 1.0)], (1,)))
    assert moved == pytest.approx(np.linalg.inv(normal)[0, 0], rel=1e-9)
    twice = fit(SIZES, [table, Margin((0,), summed(noisy_counts, axes, (0,)), 1.0, variances), other])
    assert twice.table(axes) == pytest.approx(found.table(axes)), "what is told twice counts once"


def test_tables_of_a_fit_add_up_to_each_other() -> None:
    found = fit(SIZES, noisy(FAMILIES[2], 3))
    fine = found.table(WHOLE)
    for axes in subsets(WHOLE):
        assert found.table(axes) == pytest.approx(summed(fine, WHOLE, axes), abs=1e-9)


def test_what_adds_up_already_stays_what_it_is() -> None:
    truth = np.arange(24.0).reshape(SIZES)
    margins = [Margin(axes, summed(truth, WHOLE, axes), 1.0 + len(axes)) for axes in subsets(WHOLE)]
    assert agree(margins)
    assert fit(SIZES, margins).table(WHOLE) == pytest.approx(truth, abs=1e-9)
    assert not agree([*margins, Margin((), np.array(1.0), 1.0)])


def test_exact_tables_hold_and_deciding_ones_as_well() -> None:
    fine, total = noisy(FAMILIES[0], 4)[0], np.array([40.0, 30.0, 20.0])
    for margins, deciding in [([fine, Margin((0,), total, 0.0)], ()), ([fine, Margin((0,), total, 5.0)], (1,))]:
        found = fit(SIZES, margins, deciding=deciding)
        assert found.table((0,)) == pytest.approx(total)
        missing = total - summed(fine.counts, WHOLE, (0,))
        assert found.table(WHOLE) == pytest.approx(fine.counts + missing[:, None, None] / 8)


def test_exact_tables_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="contradict"):
        fit((2, 2), [Margin((0,), np.array([1.0, 2.0]), 0.0), Margin((1,), np.array([1.0, 3.0]), 0.0)])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("family", FAMILIES)
def test_a_fit_nowhere_below_0_is_that_of_another_solver(
    family: list[tuple[tuple[int, ...], float]], seed: int
) -> None:
    margins = noisy(family, seed, mean=0.7)
    found = nonnegative(SIZES, margins)
    assert found.min() >= 0
    a, b = system(margins)
    best = lsq_linear(a, b, bounds=(0, np.inf), method="bvls", tol=1e-14)
    ours, theirs = a @ found.ravel() - b, a @ best.x - b
    assert ours @ ours <= theirs @ theirs * (1 + 1e-7) + 1e-7
    for axes, _ in family:  # the array need not be unique, its sums are
        assert summed(found, WHOLE, axes) == pytest.approx(summed(best.x.reshape(SIZES), WHOLE, axes), abs=2e-4)


def test_a_fit_nowhere_below_0_keeps_exact_sums() -> None:
    fine = noisy(FAMILIES[0], 6, mean=0.5)[0]
    assert fine.counts.min() < 0
    total = np.array([7.0, 0.0, 5.0])
    found = nonnegative(SIZES, [fine, Margin((0,), total, 0.0)])
    assert found.min() >= 0
    assert summed(found, WHOLE, (0,)) == pytest.approx(total, abs=1e-9)
    rows = fine.counts.reshape(3, -1)
    from deniable.numbers import onto_simplex

    for i, most in enumerate(total):  # within one exact total it is the projection onto a simplex
        assert found.reshape(3, -1)[i] == pytest.approx(onto_simplex(rows[i], most), abs=1e-6)


def test_sums_below_0_and_sums_that_no_table_has_are_refused() -> None:
    fine = Margin((0, 1), np.ones((2, 2)), 1.0)
    with pytest.raises(InvalidParameter, match="below 0"):
        nonnegative((2, 2), [fine, Margin((0,), np.array([-1.0, 3.0]), 0.0)])
    # x01 + x10 pairs: by three exact tables of pairs that add up, and yet no array that is nowhere below 0 has them.
    unequal = np.array([[0.0, 1.0], [1.0, 0.0]])
    odd = [Margin(axes, unequal, 0.0) for axes in itertools.combinations(range(3), 2)]
    assert agree(odd)
    with worded(InvalidParameter):
        nonnegative((2, 2, 2), [Margin((0, 1, 2), np.ones((2, 2, 2)), 1.0), *odd])


def test_too_many_combinations_are_refused_before_anything_is_worked_out() -> None:
    with pytest.raises(InvalidParameter, match="combinations"):
        nonnegative((2000, 2000), [Margin((0,), np.ones(2000), 1.0)])


@pytest.mark.parametrize("sizes", [(), (1,), (1, 1), (0,)])
def test_one_cell_or_no_cell(sizes: tuple[int, ...]) -> None:
    whole = tuple(range(len(sizes)))
    margin = Margin(whole, np.full(sizes, -2.0), 1.0)
    assert fit(sizes, [margin]).table(whole) == pytest.approx(margin.counts)
    assert nonnegative(sizes, [margin]).tolist() == np.zeros(sizes).tolist()
