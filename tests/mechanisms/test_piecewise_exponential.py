"""The continuous exponential mechanism on step functions, and quantiles: exact laws on all small neighbours."""

from __future__ import annotations

import collections
import itertools
import math
import pickle
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from deniable import Unit, curves
from deniable.errors import InvalidParameter, NotPrivateWarning
from deniable.mechanisms import Median, PiecewiseExponential, Quantile, limits
from deniable.noise import ReplayEntropy
from tests.mechanisms import exact_laws

pytestmark = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")


# -- step functions --------------------------------------------------------------------------------------------------


def grid_law(edges: Sequence[Any], utilities: Sequence[Any], scale: Any, low: Any, spacing: Any) -> list[mpf]:
    """The mass of each grid cell: the overlap with each piece, times e^(utility/scale)."""
    edges, low, spacing = [Fraction(e) for e in edges], Fraction(low), Fraction(spacing)
    cells = math.ceil((edges[-1] - low) / spacing)
    masses = [mpf(0)] * cells
    for (a, b), u in zip(itertools.pairwise(edges), utilities, strict=True):
        for j in range(cells):
            overlap = min(b, low + (j + 1) * spacing) - max(a, low + j * spacing)
            if overlap > 0:
                masses[j] += exact_laws.number(overlap) * mpmath.exp(exact_laws.number(Fraction(u) / Fraction(scale)))
    return [m / mpmath.fsum(masses) for m in masses]


@pytest.mark.slow
def test_a_step_function_is_sampled_exactly_across_pieces_that_cross_the_grid() -> None:
    """False alarm 1e-9, 12,000 draws; utilities wrong by a fifth must be rejected."""
    mechanism = PiecewiseExponential(bounds=(0, 2), sensitivity=1, epsilon=Fraction(3, 2), spacing=0.25)
    edges, utilities = [0, Fraction(1, 3), Fraction(1, 3), 0.9, 2], [-1.5, 7, 0.75, -2]
    source = ReplayEntropy(2)
    counts = collections.Counter(mechanism.release((edges, utilities), entropy=source) for _ in range(12_000))
    listed = [counts[j / 4] for j in range(8)]
    assert sum(listed) == 12_000
    truth = grid_law(edges, utilities, mechanism.scale, 0, 0.25)
    assert exact_laws.chi_square(listed, truth) < 1
    assert exact_laws.rejects(listed, grid_law(edges, utilities, mechanism.scale * Fraction(6, 5), 0, 0.25), truth)


def test_bounded_range_holds_for_step_functions_and_is_attained() -> None:
    mechanism = PiecewiseExponential(bounds=(0, 1), sensitivity=1, epsilon=1, spacing=Fraction(1, 4))
    before = grid_law([0, 0.5, 1], [0, 3], mechanism.scale, 0, mechanism.spacing)
    after = grid_law([0, 0.5, 1], [1, 2], mechanism.scale, 0, mechanism.spacing)
    loss = exact_laws.losses(before, after)
    assert abs(max(loss) - min(loss) - 1) < mpf(10) ** -40
    assert mechanism.curve == curves.exponential(epsilon=1.0)


def test_the_gap_of_a_step_function_covers_in_the_worst_case() -> None:
    mechanism = PiecewiseExponential(bounds=(0, 8), sensitivity=1, epsilon=1)
    gap = Fraction(mechanism.gap(confidence=0.9, length=2))
    worst = mpmath.exp(-exact_laws.number(gap / mechanism.scale)) * 6
    assert 0.1 * (1 - 1e-9) < worst / (2 + worst) <= 0.1
    assert mechanism.gap(confidence=0.9, length=8) == 0


def test_fact_a_sampler_that_is_only_near_costs_delta() -> None:
    assert limits.approximate_sampling(epsilon=1, distance=1e-6) == pytest.approx(3.71828182845905e-6, rel=1e-11)
    # The bound is needed: two laws within t of an ε-DP pair, moved apart as far as that allows.
    t, factor = mpf("1e-6"), mpmath.e
    p, q = factor / (1 + factor), 1 / (1 + factor)
    extra = (p + t) - factor * (q - t)
    assert float(extra) == pytest.approx(limits.approximate_sampling(epsilon=1, distance=1e-6), rel=1e-11)


@pytest.mark.parametrize(
    "value",
    [
        None, 3, "ab", ([0, 1],), ([0, 1], []), ([0, 1], [1, 2]), ([0, 0.5], [1]), ([0.5, 1], [1]), ([0, 2], [31337]),
        ([0, 0.7, 0.5, 1], [1, 2, 3]), ([0, math.nan, 1], [1, 2]), ([0, 1], [math.inf]), ([0, "31337", 1], [1, 2]),
    ],
    ids=repr,
)  # fmt: skip
def test_bad_step_functions_are_refused_and_not_shown(value: Any) -> None:
    with pytest.raises(InvalidParameter) as refused:
        PiecewiseExponential(bounds=(0, 1), sensitivity=1, epsilon=1).release(value)
    assert "31337" not in str(refused.value)


@pytest.mark.parametrize(
    "bad",
    [
        {"bounds": (1, 0)}, {"bounds": (0, 0)}, {"bounds": 3}, {"bounds": (0, math.inf)}, {"bounds": (0, math.nan)},
        {"bounds": "01"}, {"epsilon": 0}, {"sensitivity": -1}, {"spacing": 0}, {"spacing": 2}, {"spacing": 1e-20},
    ],
    ids=repr,
)  # fmt: skip
def test_bad_parameters_of_step_functions_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        PiecewiseExponential(**{"bounds": (0, 1), "sensitivity": 1, "epsilon": 1, **bad})


# -- quantiles -------------------------------------------------------------------------------------------------------

POINTS = 4


def quantile(q: Any, unit: Unit, epsilon: Any = 1) -> Quantile:
    return Quantile(q=q, bounds=(0, POINTS - 1), spacing=1, epsilon=epsilon, unit=unit)


def ranks(mechanism: Quantile | Median, data: Sequence[float]) -> list[Fraction]:
    """The rank distance of each point, from the definition."""
    n, q = len(data), mechanism.q
    placed = [min(max(round(x), 0), POINTS - 1) for x in data]
    return [
        max(Fraction(0), sum(x < y for x in placed) - q * n, sum(x > y for x in placed) - (1 - q) * n)
        for y in range(POINTS)
    ]


def law_of(mechanism: Quantile, data: Sequence[float]) -> list[mpf]:
    return exact_laws.softmax([-r for r in ranks(mechanism, data)], mechanism.scale)


DATASETS = [rows for n in range(4) for rows in itertools.product(range(POINTS), repeat=n)]


@pytest.mark.parametrize("q", [Fraction(1, 2), Fraction(9, 10), Fraction(1, 3), 0, 1], ids=str)
def test_the_steps_are_the_ranks_of_the_definition(q: Any) -> None:
    mechanism = quantile(q, Unit.row())
    for rows in DATASETS:
        edges, distances = mechanism.steps(list(rows))
        by_point = [
            next(d for (a, b), d in zip(itertools.pairwise(edges), distances, strict=True) if a <= y < b)
            for y in range(POINTS)
        ]
        assert by_point == ranks(mechanism, rows)
        assert edges[0] == 0
        assert edges[-1] == POINTS
        assert min(by_point) == 0, "some point is the quantile"


@pytest.mark.parametrize("q", [Fraction(1, 2), Fraction(9, 10), Fraction(1, 3), 0, 1], ids=str)
def test_quantiles_keep_their_promise_for_rows_added_and_rows_replaced(q: Any) -> None:
    """Up to three rows on four points, all neighbours: the loss never spans more than ε; attained for the median."""
    added, replaced = quantile(q, Unit.row()), quantile(q, Unit.replaced_row())
    assert added.sensitivity == max(Fraction(q), 1 - Fraction(q))
    assert replaced.sensitivity == 1
    widest = mpf(0)
    for rows in DATASETS:
        if len(rows) < 3:
            for extra in range(POINTS):
                loss = exact_laws.losses(law_of(added, rows), law_of(added, (*rows, extra)))
                widest = max(widest, max(loss) - min(loss))
        if rows:
            for other in range(POINTS):
                loss = exact_laws.losses(law_of(replaced, rows), law_of(replaced, (*rows[1:], other)))
                assert max(loss) - min(loss) <= 1 + mpf(10) ** -40
    assert widest <= 1 + mpf(10) ** -40
    if q == Fraction(1, 2):
        assert widest > 1 - mpf(10) ** -40


def test_a_person_with_several_rows_costs_in_proportion() -> None:
    one, person = Unit.row(), Unit.person("who", rows=5)
    assert quantile(0.5, person).sensitivity == 5 * quantile(0.5, one).sensitivity
    assert quantile(0.5, Unit.replaced_person("who", rows=5)).sensitivity == 5
    mechanism = quantile(0.5, Unit.replaced_person("who", rows=2))
    for rows, leaves, enters in itertools.product([(0, 3), (1, 1, 2)], [(0,), (3, 3)], [(), (0, 0), (3,)]):
        loss = exact_laws.losses(law_of(mechanism, (*rows, *leaves)), law_of(mechanism, (*rows, *enters)))
        assert max(loss) - min(loss) <= 1 + mpf(10) ** -40


@pytest.mark.slow  # ranks are step functions, whose draws are counted above
@pytest.mark.parametrize(
    "mechanism", [quantile(0.75, Unit.row(), 2), Median(bounds=(0, 3), spacing=1, epsilon=2, unit=Unit.row())], ids=str
)
def test_quantiles_follow_their_exact_law(mechanism: Any) -> None:
    """False alarm 1e-9, 12,000 draws; noise wrong by a fifth must be rejected."""
    data = [0, 1, 1, 2, 2, 3, 3, 3]
    source = ReplayEntropy(9)
    counts = collections.Counter(mechanism.release(data, entropy=source) for _ in range(12_000))
    listed = [counts[float(j)] for j in range(POINTS)]
    far = [-r for r in ranks(mechanism, data)]
    truth = exact_laws.softmax(far, mechanism.scale)
    assert exact_laws.chi_square(listed, truth) < 1
    assert exact_laws.rejects(listed, exact_laws.softmax(far, mechanism.scale * Fraction(6, 5)), truth)


def test_the_median_is_the_quantile_at_one_half() -> None:
    middle = Median(bounds=(0, 120), spacing=1, epsilon=1, unit=Unit.row())
    half = Quantile(q=0.5, bounds=(0, 120), spacing=1, epsilon=1, unit=Unit.row())
    assert middle.curve == half.curve == curves.exponential(epsilon=1.0)
    assert middle.error(confidence=0.9) == half.error(confidence=0.9)
    data = [5, 70, 33, 41, 40]
    assert middle.steps(data) == half.steps(data)
    assert repr(middle) == "Median(bounds=(0, 120), spacing=1, epsilon=1, unit=Unit.row())"
    assert repr(half) == "Quantile(q=0.5, bounds=(0, 120), spacing=1, epsilon=1, unit=Unit.row())"
    assert pickle.loads(pickle.dumps(half)) == half


def test_many_rows_give_the_median() -> None:
    data = np.concatenate((np.full(4000, 20.0), np.linspace(30, 31, 5000), np.full(4000, 90.0)))
    middle = Median(bounds=(0, 120), epsilon=1, unit=Unit.row())
    assert 30 <= middle.release(data) <= 31
    assert 0 < middle.error(confidence=1 - 1e-9) < 40


def test_ranks_of_the_answer_cover_at_the_stated_rate() -> None:
    """The exact chance that the answer is more ranks away than `error`, over small datasets and confidences."""
    for q, confidence in itertools.product((Fraction(1, 2), Fraction(9, 10)), (0.1, 0.6, 0.9, 0.99)):
        mechanism = quantile(q, Unit.row(), epsilon=3)
        bound = mechanism.error(confidence=confidence)
        for rows in ((0, 0, 3), (0,) * 9, (0, 0, 0, 0, 3), (1, 2, 2), ()):
            found, far = law_of(mechanism, rows), ranks(mechanism, rows)
            assert mpmath.fsum(p for p, r in zip(found, far, strict=True) if r > bound) <= 1 - confidence + 1e-12


def test_every_row_counts_as_some_point() -> None:
    """NaN as the lower bound, what lies outside as the nearer bound, None as NaN; no rows at all are data too."""
    import pandas as pd
    import polars as pl

    mechanism = quantile(0.5, Unit.row())
    assert mechanism.steps([math.nan, math.inf, -math.inf, 1e300, 2.4]) == mechanism.steps([0, 3, 0, 3, 2])
    assert mechanism.steps(np.array([None, 1, 10**30], dtype=object)) == mechanism.steps([0, 1, 3])
    assert mechanism.steps(pd.Series([1, 2])) == mechanism.steps(pl.Series([1.0, 2.0])) == mechanism.steps([1, 2])
    assert mechanism.steps([]) == ([0, 4], [0])
    assert mechanism.release([]) in (0.0, 1.0, 2.0, 3.0)
    assert type(mechanism.release([1])) is float


@pytest.mark.parametrize("data", [None, 3, "31337", {"a": 1}, np.array(["31337"])], ids=repr)
def test_bad_rows_are_refused_and_not_shown(data: Any) -> None:
    with pytest.raises(InvalidParameter) as refused:
        quantile(0.5, Unit.row()).release(data)
    assert "31337" not in str(refused.value)


@pytest.mark.parametrize(
    "bad",
    [
        {"q": -0.1}, {"q": 1.5}, {"q": math.nan}, {"q": "0.5"}, {"unit": "row"}, {"unit": None}, {"epsilon": 0},
        {"bounds": (0, 0)}, {"spacing": 100}, {"spacing": -1},
    ],
    ids=repr,
)  # fmt: skip
def test_bad_parameters_of_quantiles_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        Quantile(**{"q": 0.5, "bounds": (0, 10), "epsilon": 1, "unit": Unit.row(), **bad})


def test_the_grid_may_be_any_public_one() -> None:
    cents = Median(bounds=(Fraction(1, 2), 2), spacing=Fraction(1, 100), epsilon=1, unit=Unit.row())
    answer = cents.release([1.0] * 100_000)
    assert answer == 1.0
    assert cents.points == 151
    with pytest.warns(NotPrivateWarning):
        cents.release([1.0], entropy=ReplayEntropy(1))
