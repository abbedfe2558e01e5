"""Brute force on small domains, against what is known of sums, means, medians and histograms."""

from __future__ import annotations

import math
import statistics
from decimal import Decimal
from fractions import Fraction
from itertools import product

import pytest

from deniable.errors import NOTHING, InvalidOperation, InvalidParameter
from deniable.mechanisms import InverseSensitivity, small
from deniable.units import Unit
from tests.wording import worded

ROW, REPLACED = Unit.row(), Unit.replaced_row()


def test_all_datasets_are_listed_once():
    found = small.datasets("abc", rows=3)
    assert len(found) == math.comb(5, 3) == len(set(found))
    assert {tuple(sorted(p)) for p in product("abc", repeat=3)} == set(found)


def test_neighbours_are_at_distance_one_and_all_of_them():
    everything = [d for size in range(5) for d in small.datasets("abc", rows=size)]
    for unit in (ROW, REPLACED):
        for data in small.datasets("abc", rows=3):
            near = set(small.neighbours(data, domain="abc", unit=unit))
            same = [d for d in everything if unit is ROW or len(d) == 3]
            assert near == {d for d in same if small.distance(data, d, unit=unit) == 1}


def test_distances_of_datasets():
    assert small.distance("aab", "abc", unit=ROW) == 2
    assert small.distance([1, 1, 2], [2], unit=ROW) == 2
    assert small.distance("aab", "bba", unit=REPLACED) == 1
    with worded(InvalidParameter):
        small.distance("aa", "a", unit=REPLACED)


@pytest.mark.parametrize(
    ("statistic", "unit", "l1", "l2"),
    [
        (len, ROW, 1, 1),
        (sum, ROW, 3, 3),
        (sum, REPLACED, 3, 3),
        (lambda d: [d.count(v) for v in (0, 1, 3)], ROW, 1, 1),
        (lambda d: [d.count(v) for v in (0, 1, 3)], REPLACED, 2, math.sqrt(2)),
        (lambda d: [sum(d), len(d)], ROW, 4, math.sqrt(10)),
    ],
    ids=["count", "sum", "sum replaced", "histogram", "histogram replaced", "sum and count"],
)
def test_sensitivities_are_what_theory_says(statistic, unit, l1, l2):
    found = small.sensitivity(statistic, domain=[0, 1, 3], rows=4, unit=unit)
    assert (found.l1, found.l2) == (pytest.approx(l1), pytest.approx(l2))
    assert small.distance(*found.pair, unit=unit) == 1
    assert found.sensitivity.l1 >= l1 - 1e-12


def test_the_mean_moves_by_the_width_over_n_and_the_median_by_the_whole_width():
    mean = small.sensitivity(statistics.fmean, domain=[0, 1, 3], rows=5, unit=REPLACED)
    assert mean.l1 == pytest.approx(3 / 5)
    median = small.sensitivity(statistics.median_low, domain=[0, 1, 3], rows=5, unit=REPLACED)
    assert median.l1 == 3
    assert small.sensitivity(statistics.median_low, domain=[0, 3], rows=5, unit=REPLACED).pair == (
        (0, 0, 0, 3, 3),
        (0, 0, 3, 3, 3),
    )


def test_the_distance_to_an_answer_is_that_of_the_inverse_sensitivity_mechanism():
    """D_f of the median over a grid, by breadth-first search and by the mechanism's own formula."""
    grid = [0, 1, 2, 3]
    mechanism = InverseSensitivity.median(answers=grid, epsilon=1.0)
    for data in small.datasets(grid, rows=5):
        found = [small.distance_to(statistics.median_low, data, y, domain=grid, unit=REPLACED) for y in grid]
        assert list(mechanism.distances(list(data))) == found


def test_answers_that_no_data_have_are_infinitely_far():
    assert small.distance_to(sum, (0, 1), 7, domain=[0, 1], unit=REPLACED) == math.inf


def test_answers_of_more_rows_than_were_looked_at_are_not_called_infinitely_far():
    """They were: 7 rows of 3, which is 4 rows away, and none of one, which is 1."""
    assert small.distance_to(len, "aab", 6, domain="ab", unit=ROW) == 3
    assert small.distance_to(len, "aab", 0, domain="ab", unit=ROW) == 3
    assert small.distance_to(max, (0, 1, 1), 0, domain=[0, 1], unit=ROW) == 2  # no rows have no maximum
    with worded(InvalidParameter, parameter="answer"):
        small.distance_to(len, "aab", 7, domain="ab", unit=ROW)


def test_the_distance_to_an_answer_is_the_distance_to_the_nearest_data_that_have_it():
    """Brute force over all data of at most twice as many rows, rows added and removed."""
    every = [data for rows in range(5) for data in small.datasets([0, 1, 2], rows=rows)]
    for start in small.datasets([0, 1, 2], rows=2):
        for answer in {sum(data) for data in every}:
            nearest = min(small.distance(start, data, unit=ROW) for data in every if sum(data) == answer)
            assert small.distance_to(sum, start, answer, domain=[0, 1, 2], unit=ROW) == nearest


def test_what_cannot_be_enumerated_is_refused():
    with pytest.raises(InvalidParameter, match="datasets"):
        small.datasets(range(100), rows=10)
    with pytest.raises(InvalidOperation, match="several rows"):
        small.distance("a", "b", unit=Unit.person("id", rows=3))
    with worded(InvalidParameter, parameter="data"):
        list(small.neighbours("az", domain="ab", unit=ROW))


@pytest.mark.parametrize("unit", [ROW, REPLACED])
@pytest.mark.parametrize(
    "statistic",
    [lambda d: 100 * (len(d) > 1 and d[0] > d[1]), lambda d: [sum(d), d[-1] if d else 0]],
    ids=["falls", "last"],
)
def test_a_statistic_that_depends_on_the_order_of_rows_is_refused(statistic, unit):
    """Only sorted tuples were tried: a statistic that moves by 100 was said to have sensitivity 0."""
    with worded(InvalidParameter, parameter="statistic"):
        small.sensitivity(statistic, domain=[0, 1], rows=2, unit=unit)
    with worded(InvalidParameter, parameter="statistic"):
        small.distance_to(lambda d: d[0] > d[1], (0, 1), True, domain=[0, 1], unit=REPLACED)


def test_all_orders_are_tried_and_each_once():
    for data in small.datasets("abc", rows=4):
        found = list(small._orders(data))
        assert found[0] == data
        assert len(found) == len(set(found))
        assert set(found) == {p for p in product("abc", repeat=4) if tuple(sorted(p)) == data}


def test_sums_of_floats_do_not_depend_on_the_order_beyond_rounding():
    assert sum((0.1, 0.2, 0.3)) != sum((0.3, 0.2, 0.1))
    assert small.sensitivity(sum, domain=[0.1, 0.2, 0.3], rows=3, unit=REPLACED).l1 == pytest.approx(0.2)


def test_too_many_orders_are_refused(monkeypatch):
    monkeypatch.setattr(small, "MOST_ORDERS", 255)
    with worded(InvalidParameter):
        small.sensitivity(sum, domain=range(4), rows=4, unit=REPLACED)
    monkeypatch.setattr(small, "MOST_ORDERS", 4**4)
    assert small.sensitivity(sum, domain=range(4), rows=4, unit=REPLACED).l1 == 3


@pytest.mark.parametrize("statistic", [statistics.fmean, max, lambda d: sum(d) / len(d), lambda d: d.index(0)])
def test_a_statistic_without_a_value_on_no_rows_names_the_remedy(statistic):
    with pytest.raises(InvalidParameter, match="fewest=1"):
        small.sensitivity(statistic, domain=[0, 1], rows=2, unit=ROW)


@pytest.mark.parametrize(
    "statistic",
    [lambda d: None, lambda d: "a", lambda d: ["1"], lambda d: d, lambda d: math.nan, lambda d: math.inf, 3],
)
def test_what_is_no_statistic_is_refused_by_name(statistic):
    with pytest.raises(InvalidParameter, match="statistic"):
        small.sensitivity(statistic, domain=[0, 1], rows=2, unit=ROW)


@pytest.mark.parametrize("unit", ["row", None])
def test_a_unit_is_a_unit(unit):
    for ask in (
        lambda: small.sensitivity(sum, domain=[0, 1], rows=2, unit=unit),
        lambda: small.distance("a", "b", unit=unit),
        lambda: small.distance_to(sum, (0, 1), 1, domain=[0, 1], unit=unit),
        lambda: list(small.neighbours("a", domain="ab", unit=unit)),
    ):
        with pytest.raises(InvalidParameter, match="unit"):
            ask()


@pytest.mark.parametrize("large", [2**60, Decimal("1e25"), Fraction(2**60)])
def test_large_whole_numbers_move_as_far_as_small_ones(large):
    """As floats they were equal, and the sensitivity was 0."""
    found = small.sensitivity(lambda rows: large + len(rows), domain=[0, 1], rows=2, unit=ROW)
    assert (found.l1, found.l2, found.linf) == (1.0, 1.0, 1.0)


def test_a_sensitivity_that_is_no_float_is_rounded_up():
    found = small.sensitivity(lambda rows: [Fraction(len(rows), 3)] * 2, domain=[0, 1], rows=1, unit=ROW)
    assert Fraction(found.l1) >= Fraction(2, 3)
    assert Fraction(found.l2) ** 2 >= Fraction(2, 9)
    assert Fraction(found.linf) >= Fraction(1, 3)


def test_too_many_orders_do_not_name_rows_that_nobody_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "rows=3" was said to somebody who had written rows=10."""
    monkeypatch.setattr(small, "MOST_ORDERS", 1_000)  # a million take twenty seconds
    with worded(InvalidParameter, parameter="rows", asked=NOTHING):
        small.sensitivity(sum, domain=range(100), rows=10, unit=Unit.row())
