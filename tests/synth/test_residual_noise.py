"""The best Gaussian noise for tables, against explicit matrices and against the published figures."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from deniable.errors import InvalidParameter
from deniable.synth import residual_noise, table_noise
from deniable.synth.residual_noise import Exchange, Workload

SIX = ((0, 1, 2), (0, 1), (0,), (1,), (2,), ())
SIZES = (20, 10, 2)


def marginal(sizes: tuple[int, ...], columns: tuple[int, ...]) -> Any:
    """The matrix that sums a table of all columns up to some of them."""
    return reduce(np.kron, [np.eye(n) if i in columns else np.ones((1, n)) for i, n in enumerate(sizes)], np.eye(1))


def averaged(sizes: tuple[int, ...], residual: tuple[int, ...]) -> Any:
    """P_A x_A as a matrix on the table of all columns."""
    off = [np.eye(n) - 1 / n if i in residual else np.ones((1, n)) for i, n in enumerate(sizes)]
    return reduce(np.kron, off, np.eye(1))


def least_squares(workload: Workload, precisions: dict[Any, float]) -> list[Any]:
    """The covariance of every table, by generalised least squares on all noisy residuals, as explicit matrices."""
    sizes = workload.sizes
    information = sum(
        precisions[a] * averaged(sizes, a).T @ averaged(sizes, a) for a in workload.residuals
    )  # the noise of a residual has the covariance σ²P, whose inverse on its own space is P/σ²
    covariance = np.linalg.pinv(information, rcond=1e-12, hermitian=True)
    return [marginal(sizes, table) @ covariance @ marginal(sizes, table).T for table in workload.tables]


def test_the_published_optimum_of_six_tables() -> None:
    each = Workload(SIZES, SIX, (1.0,) * 6)
    found = residual_noise.best(each)
    assert residual_noise.variance_sum(each, found) == pytest.approx(1173.90, abs=0.005)
    deviations = [math.sqrt(residual_noise.variance(each, table, found)) for table in SIX]
    assert deviations == pytest.approx([1.1395, 1.3354, 2.6179, 3.1098, 4.3286, 5.1587], abs=5e-5)
    alike = Workload(SIZES, SIX, tuple(1 / table_noise.size_of(SIZES, table) for table in SIX))
    found = residual_noise.best(alike)
    assert residual_noise.variance_sum(alike, found) == pytest.approx(24.348, abs=5e-4)
    deviations = [math.sqrt(residual_noise.variance(alike, table, found)) for table in SIX]
    assert deviations == pytest.approx([1.8474, 1.9574, 2.1609, 2.1161, 1.8881, 2.0956], abs=5e-5)


def workloads(count: int) -> list[Workload]:
    rng = np.random.default_rng(11)
    found = []
    for _ in range(count):
        sizes = tuple(int(n) for n in rng.integers(1, 5, rng.integers(1, 5)))
        every = [a for k in range(4) for a in combinations(range(len(sizes)), k)]
        chosen = rng.permutation(len(every))[: rng.integers(1, len(every) + 1)]
        weights = tuple(float(w) for w in rng.uniform(0.1, 3, len(chosen)))
        found.append(Workload(sizes, tuple(every[i] for i in chosen), weights))
    return found


@pytest.mark.parametrize("workload", workloads(25), ids=str)
def test_the_closed_form_is_least_squares(workload: Workload) -> None:
    found = residual_noise.best(workload)
    by_hand = least_squares(workload, found)
    for table, covariance in zip(workload.tables, by_hand, strict=True):
        assert np.diag(covariance) == pytest.approx(residual_noise.variance(workload, table, found), rel=1e-9)
    whole = sum(w * np.trace(c) for w, c in zip(workload.weights, by_hand, strict=True))
    needs = workload.needs()
    p = {a: float(residual_noise.moved_by_row(workload.sizes, a)) for a in needs}
    assert whole == pytest.approx(sum(math.sqrt(needs[a] * p[a]) for a in needs) ** 2, rel=1e-9)


@pytest.mark.parametrize("sizes", [(3, 2, 4), (2, 2, 2, 3), (5, 4)])
def test_all_tables_up_to_three_ways(sizes: tuple[int, ...]) -> None:
    every = tuple(a for k in range(4) for a in combinations(range(len(sizes)), k))
    workload = Workload(sizes, every, (1.0,) * len(every))
    found = residual_noise.best(workload)
    whole = sum(np.trace(covariance) for covariance in least_squares(workload, found))
    assert whole == pytest.approx(residual_noise.variance_sum(workload, found), rel=1e-9)


def test_no_other_shares_of_the_cost_are_better() -> None:
    rng = np.random.default_rng(5)
    for workload in workloads(10):
        [moved] = residual_noise.moves(workload.sizes, workload.residuals, Exchange.ADDED)
        best = residual_noise.best(workload)
        assert residual_noise.cost([moved], best) == pytest.approx(1)
        for _ in range(20):
            other = {a: t * math.exp(rng.normal(0, 0.3)) for a, t in best.items()}
            scale = residual_noise.cost([moved], other)
            other = {a: t / scale for a, t in other.items()}
            assert residual_noise.variance_sum(workload, other) >= residual_noise.variance_sum(workload, best) * (
                1 - 1e-9
            )


@pytest.mark.parametrize("sizes", [(3,), (2, 3), (4, 2, 3)])
def test_one_row_moves_the_whole_numbers_as_claimed(sizes: tuple[int, ...]) -> None:
    """In every cell: the square of L2 is Π n_i(n_i - 1), and n_A² p_A; and the numbers are whole."""
    columns = tuple(range(len(sizes)))
    for residual in table_noise.subsets(columns):
        n = table_noise.size_of(sizes, residual)
        claimed = math.prod(sizes[i] * (sizes[i] - 1) for i in residual)
        assert claimed == n**2 * residual_noise.moved_by_row(sizes, residual)
        for cell in product(*(range(n) for n in sizes)):
            table = np.zeros(sizes, dtype=np.int64)
            table[cell] = 1
            moved = residual_noise.whole(table_noise.summed(table, columns, residual))
            assert moved.dtype == np.int64
            assert int((moved**2).sum()) == claimed


@pytest.mark.parametrize("exchange", list(Exchange))
def test_no_person_moves_all_residuals_further_than_claimed(exchange: Exchange) -> None:
    """Every person of up to 3 rows on a small table, by brute force, at random precisions; the claim is met by one."""
    sizes, tables = (2, 3), ((0, 1), (0,), (1,), ())
    workload = Workload(sizes, tables, (1.0,) * 4)
    moved = residual_noise.moves(sizes, workload.residuals, exchange)
    rng = np.random.default_rng(2)
    cells = list(product(*(range(n) for n in sizes)))
    people = [np.zeros(sizes, dtype=np.int64)]
    for rows in (1, 2, 3):
        for chosen in combinations([*cells, *cells, *cells], rows):
            person = np.zeros(sizes, dtype=np.int64)
            for cell in chosen:
                person[cell] += 1
            people.append(person)
    unlike = {each.tobytes(): each for each in people}
    people = list(unlike.values())
    if exchange is Exchange.ADDED:
        changes = people
    elif exchange is Exchange.REPLACED:
        changes = [a - b for a in people for b in people]
    else:
        changes = [a + b for a in people for b in people]
    for _ in range(3):
        precisions = {a: float(np.exp(rng.normal(0, 1))) for a in workload.residuals}
        most = 0.0
        for change in {each.tobytes(): each for each in changes}.values():
            squares = {
                a: float((table_noise.without_averages(table_noise.summed(change, (0, 1), a).astype(float)) ** 2).sum())
                for a in precisions
            }
            most = max(most, sum(squares[a] * t for a, t in precisions.items()))
        assert most == pytest.approx(9 * float(residual_noise.cost(moved, precisions)), rel=1e-9)


def test_replaced_people_cost_no_more_than_the_finest_table_alone() -> None:
    """Which moves by √2: all residuals at the precision of equal noise in the cells."""
    workload = Workload(SIZES, SIX, (1.0,) * 6)
    moved = residual_noise.moves(SIZES, workload.residuals, Exchange.REPLACED)
    alone = {
        a: Fraction(1, table_noise.size_of(SIZES, [i for i in range(3) if i not in a])) for a in workload.residuals
    }
    assert residual_noise.cost(moved, alone) <= 2
    best = residual_noise.best(workload, Exchange.REPLACED)
    assert residual_noise.cost(moved, best) == pytest.approx(1, abs=1e-12)
    assert residual_noise.variance_sum(workload, best) <= 2 * residual_noise.variance_sum(
        workload, residual_noise.best(workload)
    )


def test_the_least_cost_of_targets_is_found() -> None:
    """Against a general solver on the same convex problem."""
    from scipy.optimize import minimize

    targets = [4.0, None, 4.0, None, None, 9.0]
    workload, found = residual_noise.least(SIZES, SIX, targets)
    moved = residual_noise.moves(SIZES, workload.residuals, Exchange.ADDED)
    for table, target in zip(SIX, targets, strict=True):
        if target is not None:
            assert residual_noise.variance(workload, table, found) <= target * (1 + 1e-9)
    names = list(found)
    solved = minimize(
        lambda x: float(residual_noise.cost(moved, dict(zip(names, np.exp(x), strict=True)))),
        np.zeros(len(names)) - 2,
        constraints=[
            {
                "type": "ineq",
                "fun": lambda x, t=table, most=target: (
                    1 - residual_noise.variance(workload, t, dict(zip(names, np.exp(x), strict=True))) / most
                ),
            }
            for table, target in zip(SIX, targets, strict=True)
            if target is not None
        ],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-10},
    )
    assert float(residual_noise.cost(moved, found)) <= solved.fun * 1.001


def test_targets_that_the_optimum_meets_cost_what_it_costs() -> None:
    workload = Workload(SIZES, SIX, (1.0,) * 6)
    best = residual_noise.best(workload)
    targets = [residual_noise.variance(workload, table, best) for table in SIX]
    _, found = residual_noise.least(SIZES, SIX, targets)
    moved = residual_noise.moves(SIZES, workload.residuals, Exchange.ADDED)
    assert float(residual_noise.cost(moved, found)) == pytest.approx(1, abs=1e-4)


def test_what_is_no_workload() -> None:
    for sizes, tables, weights in [
        ((2,), (), ()),
        ((2,), ((0,),), (0.0,)),
        ((2,), ((0,),), (math.nan,)),
        ((2,), ((1,),), (1.0,)),
        ((2, 2), ((1, 0),), (1.0,)),
        ((0,), ((0,),), (1.0,)),
    ]:
        with pytest.raises(InvalidParameter):
            Workload(sizes, tables, weights)
    with pytest.raises(InvalidParameter):
        residual_noise.least((2,), ((0,),), [None])
