"""The fit of a mixture: its slopes are right, it finds what is there, and it stops where noise begins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deniable.errors import InvalidParameter
from deniable.synth import Marginal, Mixture, fit, marginals, shares
from deniable.synth import mixture as fitting
from deniable.synth.marginals import total
from deniable.synth.mixture import MOST_WORK, _Problem

SIZES = (3, 2, 4, 5)


def distribution(generator: np.random.Generator, sizes: tuple[int, ...] = SIZES) -> Any:
    """Any distribution of all columns: Dirichlet, so nothing is independent."""
    return generator.dirichlet(np.full(int(np.prod(sizes)), 0.3)).reshape(sizes)


def summed(whole: Any, columns: tuple[int, ...]) -> Any:
    return whole.sum(axis=tuple(axis for axis in range(whole.ndim) if axis not in columns))


def measured(
    whole: Any, rows: float, deviation: float, generator: np.random.Generator, target: int | None
) -> list[Any]:
    found = []
    for columns in marginals(whole.shape, target=target):
        counts = summed(whole, columns) * rows
        found.append(
            Marginal(columns, counts + generator.normal(0, deviation, counts.shape), max(deviation, 1e-3) ** 2)
        )
    return found


@pytest.mark.parametrize("target", [None, 0, 1, 3])
def test_the_slopes_are_those_of_the_loss(target: int | None) -> None:
    """Against central differences, for marginals of one, two and three columns."""
    seed = int(np.random.default_rng().integers(2**32))
    print("seed", seed)
    generator = np.random.default_rng(seed)
    problem = _Problem(SIZES, measured(distribution(generator), 1000.0, 5.0, generator, target))
    inside, shares = generator.random((4, sum(SIZES))), generator.random(4)
    _, by_inside, by_share = problem._loss(inside, shares)
    for array, slopes in ((inside, by_inside), (shares, by_share)):
        for at in np.ndindex(array.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = array.copy()
                moved[at] += step
                ends.append(problem._loss(*((moved, shares) if array is inside else (inside, moved)))[0])
            assert slopes[at] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-2 * np.abs(slopes).max())


def test_the_loss_is_the_sum_of_squares_over_the_variance() -> None:
    generator = np.random.default_rng(3)
    found = measured(distribution(generator), 1000.0, 5.0, generator, 1)
    problem = _Problem(SIZES, found)
    columns = [generator.dirichlet(np.ones(size), 6) for size in SIZES]
    mixture = Mixture(generator.dirichlet(np.ones(6)), tuple(columns))
    rows = total(found)
    squares = sum(((mixture.marginal(*each.columns) * rows - each.counts) ** 2).sum() / each.variance for each in found)
    loss, _, _ = problem._loss(np.concatenate(columns, axis=1), mixture.weights)
    assert loss == pytest.approx(squares / 2, rel=1e-9)


@pytest.mark.parametrize("target", [None, 1])
def test_what_is_measured_exactly_is_found(target: int | None) -> None:
    """200,000 rows and a standard deviation of 20: every measured marginal within 1 % in total variation."""
    generator = np.random.default_rng(7)
    whole = distribution(generator)
    found = fit(SIZES, measured(whole, 200_000.0, 20.0, generator, target), generator=generator)
    assert found.weights.sum() == pytest.approx(1)
    for columns in marginals(SIZES, target=target):
        assert np.abs(found.marginal(*columns) - summed(whole, columns)).sum() / 2 < 0.01


def test_the_fit_is_nearer_than_the_noisy_counts() -> None:
    """Columns that go together a little, and much noise: noisy counts are off by a fifth, the fit by less than half of that."""
    generator = np.random.default_rng(11)
    sizes = (20, 20, 20)
    kinds = [generator.dirichlet(np.full(20, 0.5), 3) for _ in sizes]
    whole = sum(np.einsum("i,j,k->ijk", *(kind[i] for kind in kinds)) for i in range(3)) / 3
    found = measured(whole, 10_000.0, 12.0, generator, None)
    mixture = fit(sizes, found, generator=generator)
    pairs = [each for each in found if len(each.columns) == 2]
    noisy = np.mean([np.abs(each.counts / 10_000 - summed(whole, each.columns)).sum() / 2 for each in pairs])
    fitted = np.mean(
        [np.abs(mixture.marginal(*each.columns) - summed(whole, each.columns)).sum() / 2 for each in pairs]
    )
    assert noisy > 0.15
    assert fitted < noisy / 2


@pytest.mark.parametrize("deviation", [10.0, 40.0])
def test_a_fit_ends_where_it_is_nearest_to_the_truth(deviation: float) -> None:
    """A third of its steps, and four times as many, are farther from it: more follows noise. The end was a level of the
    distance to the noisy counts that suited one table: by chance there is more noise in one run and less in another.
    """
    generator, sizes = np.random.default_rng(13), (12, 12, 12)
    kinds = [generator.dirichlet(np.full(12, 0.5), 3) for _ in sizes]
    whole = sum(np.einsum("i,j,k->ijk", *(kind[i] for kind in kinds)) for i in range(3)) / 3
    found = measured(whole, 20_000.0, deviation, generator, None)
    problem = _Problem(sizes, found)

    def error(mixture: Mixture) -> float:
        pairs = [each.columns for each in found if len(each.columns) == 2]
        return float(np.mean([np.abs(mixture.marginal(*pair) - summed(whole, pair)).sum() / 2 for pair in pairs]))

    ended = problem.watched(60, np.random.default_rng(1), MOST_WORK)
    assert not ended.cut_short
    sooner, later = (problem.walked(60, np.random.default_rng(1), round(ended.steps * part)) for part in (1 / 3, 4))
    assert error(ended) < min(error(sooner), error(later))


def test_the_noise_of_the_slopes_is_that_of_the_counts() -> None:
    """Slopes are linear in the counts: each moved by its standard deviation moves a slope, and the squares add up."""
    generator = np.random.default_rng(17)
    found = measured(distribution(generator), 1000.0, 5.0, generator, 1)
    inside, shares = generator.random((4, sum(SIZES))), generator.random(4)
    rows, squares = total(found), [np.zeros_like(inside), np.zeros_like(shares)]
    slopes = _Problem(SIZES, found)._loss(inside, shares)[1:]
    for place, each in enumerate(found):
        for cell in np.ndindex(each.counts.shape):
            counts = each.counts.copy()
            counts[cell] += each.variance**0.5
            moved = [*found[:place], Marginal(each.columns, counts, each.variance), *found[place + 1 :]]
            problem = _Problem(SIZES, moved, rows=rows)
            for sum_of, slope, before in zip(squares, problem._loss(inside, shares)[1:], slopes, strict=True):
                sum_of += (slope - before) ** 2
    by_logit, by_weight = _Problem(SIZES, found)._noise(inside, shares)
    assert by_logit == pytest.approx(squares[0] * inside**2, rel=1e-6)
    assert by_weight == pytest.approx(squares[1] * shares**2, rel=1e-6)


def test_the_degrees_of_freedom_are_what_a_fit_makes_of_each_count() -> None:
    """Two columns of two values, many steps: the fit follows each of the four counts, but for their sum, which is 1."""
    found = [Marginal((0, 1), np.array([[400.0, 100.0], [200.0, 300.0]]), 1.0)]
    problem, generator = _Problem((2, 2), found), np.random.default_rng(3)
    start = problem._start(5, generator)
    paths = [fitting._Path(problem, *(each.copy() for each in start), moved=moved) for moved in (False, True)]
    for _ in range(1500):
        for path in paths:
            path.step()
    freedom, away, loss = problem._compared(paths[0].now(), paths[1].now(), paths[0].now())
    signs = problem.slices[0].signs[:2, 2:].astype(float)
    assert freedom == pytest.approx(4 - signs.sum() ** 2 / 4, abs=0.02)  # 3 in the mean over all signs
    assert away == 0
    assert loss == pytest.approx(0, abs=1e-3)


def test_marginals_of_a_mixture_are_sums_over_components() -> None:
    generator = np.random.default_rng(5)
    mixture = Mixture(
        generator.dirichlet(np.ones(7)), tuple(generator.dirichlet(np.ones(size), 7) for size in (3, 4, 2))
    )
    whole = np.einsum("k,ka,kb,kc->abc", mixture.weights, *mixture.columns)
    assert mixture.marginal(0, 2) == pytest.approx(whole.sum(axis=1))
    assert mixture.marginal(2, 1) == pytest.approx(whole.sum(axis=0).T)
    both = Mixture.beside([mixture, mixture])
    assert both.marginal(0, 1, 2) == pytest.approx(whole)


def test_shares_add_up_and_larger_marginals_get_more() -> None:
    sizes = (2, 16, 100)
    told = marginals(sizes)
    found = dict(zip(told, shares(sizes, told), strict=True))
    assert sum(found.values()) == 1
    assert found[1, 2] > found[0, 2] > found[0, 1] > found[(0,)]
    assert sum(shares(sizes, [(0,), (1,)])) == 1
    assert sum(shares(sizes, [(0, 1), (1, 2)])) == 1


def test_the_number_of_rows_is_merged_by_inverse_variance() -> None:
    exact = Marginal((0,), np.array([60.0, 40.0]), variance=1.0)
    rough = Marginal((1,), np.array([200.0, 0.0, 0.0]), variance=1e6)
    assert total([exact, rough]) == pytest.approx(100, abs=1e-3)
    assert total([Marginal((0,), np.array([-50.0, 1.0]), variance=1.0)]) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        [Marginal((0, 1, 2, 3), np.zeros(SIZES), 1.0)],
        [Marginal((1, 0), np.zeros((2, 3)), 1.0)],
        [Marginal((0,), np.zeros(4), 1.0)],
        [Marginal((0,), np.zeros(3), 0.0)],
    ],
)
def test_what_cannot_be_fitted_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidParameter):
        fit(SIZES, wrong)


@pytest.mark.parametrize(("columns", "size", "target"), [(6, 4, None), (10, 30, None), (20, 60, None), (8, 6, 0)])
def test_a_fit_takes_no_more_than_its_work(
    columns: int, size: int, target: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hardly any noise, and more to follow than any number of components can: the fit that never ends by itself."""
    monkeypatch.setattr(fitting, "MOST_WORK", MOST_WORK / 40)
    generator, taken = np.random.default_rng(3), [0.0]
    loss = _Problem._loss

    def counted(problem: Any, probabilities: Any, shares: Any, moved: float = 0.0) -> Any:
        taken[0] += problem.work(len(shares))
        return loss(problem, probabilities, shares, moved)

    monkeypatch.setattr(_Problem, "_loss", counted)
    sizes = [size] * columns
    found = [
        Marginal(each, 1e6 * generator.dirichlet(np.ones(size ** len(each))).reshape([size] * len(each)), 1.0)
        for each in marginals(sizes, target=target)
    ]
    mixture = fit(sizes, found, generator=generator)
    assert taken[0] <= MOST_WORK / 40 * 1.3  # what all of them are compared with at the end comes on top
    assert len(mixture.weights) % mixture.fits == 0
    assert mixture.misfit > 2
    assert mixture.cut_short or columns < 20


def test_tables_that_hang_together_share_a_matrix_and_no_others_do() -> None:
    """All slices were as wide as all columns: 21 tables of three columns of 31 values took 41 gigabytes."""
    apart = [(3 * i, 3 * i + 1, 3 * i + 2) for i in range(21)]
    assert fitting.room([31] * 63, apart) == 21 * 31 * 62**2
    generator = np.random.default_rng(5)
    whole = distribution(generator, (2, 3, 2, 3, 2, 3))
    found = [Marginal(each, summed(whole, each) * 1e5, 1.0) for each in [(0, 1, 2), (3, 4, 5), (0, 3, 5), (1,)]]
    mixture = fit(whole.shape, found, generator=generator)
    for each in found:
        assert np.abs(mixture.marginal(*each.columns) - summed(whole, each.columns)).sum() < 0.02
