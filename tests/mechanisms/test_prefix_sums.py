"""Running totals: what they are, how far the strategies move, and how wide their noise is."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from deniable import curves
from deniable.errors import InvalidParameter
from deniable.mechanisms.additive_noise import DiscreteLaplace, Gaussian
from deniable.mechanisms.prefix_sums import MOST_CELLS, GaussianPrefixSums, LaplacePrefixSums, deviation_of
from deniable.testing import statistics
from tests.wording import worded

KINDS = {
    "gaussian": lambda cells, step=1: GaussianPrefixSums(cells=cells, sensitivity=step, mu=1.0),
    "laplace": lambda cells, step=1: LaplacePrefixSums(cells=cells, sensitivity=step, epsilon=1.0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cells", [1, 2, 7, 8, 9, 64, 65, 100, 1024])
def test_without_noise_the_totals_are_the_totals(kind: str, cells: int) -> None:
    made = KINDS[kind](cells)
    strategy, back = made.matrices(cells)
    assert np.array_equal(strategy, np.round(strategy)), "the strategy is of whole numbers, so its answers are exact"
    assert np.allclose(back @ strategy, np.tril(np.ones((cells, cells))), atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cells", [1, 2, 3, 9, 12])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_the_strategy_moves_no_further_than_the_noise_is_made_for(kind: str, cells: int, step: int) -> None:
    """Every change of the counts by at most `step` altogether, by brute force: L2 for Gaussian noise, L1 for Laplace."""
    made = KINDS[kind](cells, step)
    strategy, _ = made.matrices(cells)
    most = 0.0
    for moved in changes(cells, step):
        answer = strategy @ moved
        most = max(most, float(np.abs(answer).sum()) if kind == "laplace" else math.sqrt(float(answer @ answer)))
    claimed = float(made.noise.sensitivity)
    assert most <= claimed * (1 + 1e-12)
    assert most >= claimed * (1 - 1e-9), "and it is attained, so nothing is wasted"


def changes(cells: int, step: int) -> list[np.ndarray]:
    """Integer vectors of L1 norm at most `step`: from steps on at most three cells."""
    found = []
    for places in itertools.combinations(range(cells), min(cells, step)):
        for parts in itertools.product(range(-step, step + 1), repeat=len(places)):
            if 0 < sum(map(abs, parts)) <= step:
                vector = np.zeros(cells)
                vector[list(places)] = parts
                found.append(vector)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_several_rows_share_one_sensitivity(kind: str) -> None:
    """Counts of two groups, of which a unit moves both by 2 altogether: no more than one group moved by 2."""
    made = KINDS[kind](4, 2)
    strategy, _ = made.matrices(4)
    both = np.kron(np.eye(2), strategy)
    for moved in changes(8, 2):
        answer = both @ moved
        size = float(np.abs(answer).sum()) if kind == "laplace" else math.sqrt(float(answer @ answer))
        assert size <= float(made.noise.sensitivity) * (1 + 1e-12)


def test_the_curves_are_those_that_were_asked_for() -> None:
    assert GaussianPrefixSums(cells=50, sensitivity=3, mu=0.5).curve == curves.gaussian(mu=0.5)
    found = LaplacePrefixSums(cells=50, sensitivity=3, epsilon=0.5).curve
    assert found.epsilon(delta=0) <= 0.5 * (1 + 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_on_totals_is_as_wide_as_it_says(kind: str) -> None:
    """The error of 8000 releases over the claimed deviation: its mean square is 1. The squares of Laplace noise (the
    worst) vary by 5 and have a skewness of 6.6, so their mean is off by 25 %, ten standard errors of √(5/8000), with a
    chance of e^(-10²/2 + 10³·6.6/(6√8000)) < 1e-15; and the mean over all totals by 15 %, six of them if all were one,
    and they are not. Noise a quarter too wide is seen.
    """
    made = KINDS[kind](40)
    found = made.release(np.zeros((8000, 40), dtype=np.int64))
    measured = (found**2).mean(axis=0)
    ratio = measured / made.spreads**2
    assert np.all(np.abs(ratio - 1) < 0.25)
    assert abs(ratio.mean() - 1) < 0.15
    q = 0.3
    apart = found - q * found[:, -1:]
    again = (apart**2).mean(axis=0) / made.deviations_from_share(q) ** 2
    assert np.all(np.abs(again - 1) < 0.25)
    steps = (np.diff(apart, axis=1) ** 2).mean(axis=0) / made.differences(q).steps[1:] ** 2
    assert np.all(np.abs(steps - 1) < 0.25)
    assert not np.all(np.abs(1.5 * ratio - 1) < 0.25)


def test_the_tails_of_totals_are_as_heavy_as_the_sums_of_draws_they_are() -> None:
    """A single cell is one draw; all of a normal law's sums are normal; the empty total of MIN has no noise at all."""
    for cells in (1, 40):
        laplace, normal = (KINDS[kind](cells).differences(0.0) for kind in ("laplace", "gaussian"))
        assert laplace.deviations[0] == laplace.kurtosis[0] == 0
        assert np.all(normal.kurtosis == 0)
        assert np.all(laplace.kurtosis[1:] <= 3 * (1 + 1e-12))
    assert KINDS["laplace"](1).differences(0.0).kurtosis[1] == pytest.approx(3)
    assert KINDS["laplace"](40).differences(0.3).kurtosis[20] < 1


@pytest.mark.parametrize("kind", KINDS)
def test_all_totals_are_within_the_stated_error_at_once(kind: str) -> None:
    made = KINDS[kind](30)
    trials = 2000
    wrong = int(
        (np.abs(made.release(np.zeros((trials, 30), dtype=np.int64))).max(axis=1) > made.error(confidence=0.9)).sum()
    )
    assert statistics.at_least(wrong, trials, probability=0.1) > statistics.FALSE_ALARM


def test_deviations_are_those_of_the_noise_itself() -> None:
    laplace = DiscreteLaplace(sensitivity=1, epsilon=0.3)
    masses = [(1 - r) / (1 + r) * r ** abs(k) for r in [math.exp(-0.3)] for k in range(-400, 401)]
    exact = math.sqrt(sum(k * k * mass for k, mass in zip(range(-400, 401), masses, strict=True)))
    assert math.isclose(deviation_of(laplace), exact, rel_tol=1e-9)
    gaussian = Gaussian.whole(sensitivity=1, sigma=2.0)
    normal = [
        math.erf((k + 0.5) / 2 / math.sqrt(2)) / 2 - math.erf((k - 0.5) / 2 / math.sqrt(2)) / 2 for k in range(-60, 61)
    ]
    exact = math.sqrt(sum(k * k * mass for k, mass in zip(range(-60, 61), normal, strict=True)))
    assert math.isclose(deviation_of(gaussian), exact, rel_tol=1e-3)


def test_counts_beyond_all_tables_are_cut_entry_by_entry() -> None:
    made = GaussianPrefixSums(cells=3, sensitivity=1, mu=1.0)
    huge = np.array([2**62, -(2**62), 0])
    assert np.all(np.isfinite(made.release(huge)))


@pytest.mark.parametrize("cells", [0, -1, 2.5, MOST_CELLS + 1])
def test_cells_that_cannot_be(cells: object) -> None:
    with pytest.raises(InvalidParameter):
        GaussianPrefixSums(cells=cells, sensitivity=1, mu=1.0)  # type: ignore[arg-type]


def test_a_row_of_another_length_is_refused_without_saying_what_is_in_it() -> None:
    with worded(InvalidParameter, parameter="value"):
        LaplacePrefixSums(cells=3, sensitivity=1, epsilon=1.0).release([1, 71717171])
