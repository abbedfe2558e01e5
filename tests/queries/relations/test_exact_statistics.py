"""Sensitivities against enumeration: the worst way to share out a person's rows among groups, found by trying all."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest

from deniable.errors import QuestionRefused
from deniable.queries.relations.exact_statistics import (
    Cells,
    Collect,
    Count,
    CountDistinct,
    CountPersons,
    ExactSum,
    Moves,
    Reach,
)
from deniable.queries.relations.relation_nodes import Bound, FilterRows, PerPerson, Source
from deniable.tables.expressions import col
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table
from deniable.units import Relation as Neighbours
from deniable.units import Unit

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE
X = col("x")


def table(unit: Unit) -> Table:
    return Table.of("t", unit, x=Domain.integer(-4, 9), g=Domain.text("a", "b", "c"))


@pytest.mark.parametrize("reach", [Reach(r, g, e) for r in (1, 2, 4) for g in (None, 1, 2, 3) for e in (None, 1, 2, 3)])
@pytest.mark.parametrize("ends", [(0, 1), (0, 3), (-2, 0), (-1, 2), (-3, 1), (2, 3)])
@pytest.mark.parametrize("neighbours", [ADD, REPLACE])
def test_moves_are_the_worst_of_all_ways(reach: Reach, ends: tuple[int, int], neighbours: Neighbours) -> None:
    """Three groups, all ways to fill them: the claim is never below the truth, and L1 and L∞ are the truth."""
    claim = ExactSum(X, Fraction(ends[0]), Fraction(ends[1]), 0).moves(reach, neighbours)
    groups, each = min(reach.groups or 3, 3), min(reach.each or reach.rows, reach.rows)
    reachable = {
        total
        for counts in product(range(each + 1), repeat=3)
        if sum(counts) <= reach.rows and sum(n > 0 for n in counts) <= groups
        for total in product(*({n * ends[0], n * ends[1], 0} for n in counts))
    }
    pairs = product(reachable, [(0, 0, 0)] if neighbours is ADD else reachable)
    moved = [[abs(a - b) for a, b in zip(v, u, strict=True)] for v, u in pairs]
    true = Moves(max(map(sum, moved)), max(sum(d * d for d in each) for each in moved), max(map(max, moved)))
    assert claim.l1 >= true.l1
    assert claim.l2_squared >= true.l2_squared
    assert claim.linf == true.linf
    if neighbours is ADD and reach.in_all <= 3 * each:  # three groups are enough to reach the worst
        assert claim == true


@pytest.mark.parametrize("square", [1, 2, 3, 4, 10**6, 2**60 + 1, 10**40, 2**2000])
def test_roots_are_rounded_up(square: int) -> None:
    root = Moves(math.isqrt(square) + 1, square, 1).sensitivity.l2
    assert root is not None
    assert Fraction(root) ** 2 >= square
    assert Fraction(math.nextafter(math.nextafter(root, 0), 0)) ** 2 < square


@pytest.mark.parametrize("high", [(0.1 + 0.7) * 10, math.sqrt(3), 0.1 + 0.2, 1 / 49 * 49, 7.5, math.nextafter(7.5, 0)])
@pytest.mark.parametrize("exponent", [0, 1, -3, -40])
def test_no_bound_is_rounded_below_what_a_row_adds(high: float, exponent: int) -> None:
    """Bounds become whole steps of the grid: what rows add is clamped to the same steps that the sensitivity counts."""
    total = ExactSum(X, Fraction(-0.1), Fraction(high), exponent)
    moved = total.moves(Reach(1, 1, None), ADD)
    values = [high, math.nextafter(high, 9), math.ceil(high), 1e300, -0.1, -7, float("inf")]
    added = [total.addend(value) for value in values]
    assert max(map(abs, added)) <= moved.linf == moved.l1
    assert max(added) == moved.linf or moved.linf == 1, "the bound is reached"


def test_reach_of_questions() -> None:
    source = Source(table(Unit.person("p", rows=6)))
    key = (("g", col("g")),)
    assert Collect(source, (), None, (Count(),)).reach == Reach(6, 1, None)
    assert Collect(source, key, None, (Count(),)).reach == Reach(6, None, None)
    assert Collect(source, key, (("a",), ("b",)), (Count(),)).reach == Reach(6, 2, None)
    bound = FilterRows(Bound(source, (col("g"),), 2, 2), X > 0)
    assert Collect(bound, key, None, (Count(),)).reach == Reach(4, 2, 2)
    assert Collect(bound, (("x", X),), None, (Count(),)).reach == Reach(4, None, None)  # other keys
    twice = Bound(source, (col("g"), col("g")), 2, 2)
    assert Collect(twice, (("g", col("g")), ("x", X)), None, (Count(),)).reach == Reach(4, None, None)  # not (g, x)
    assert Collect(twice, key, None, (Count(),)).reach == Reach(4, 2, 2)
    gathered = PerPerson(source, key, ())
    assert Collect(gathered, key, None, (Count(),)).reach == Reach(6, None, 1)
    assert Collect(gathered, (), None, (Count(),)).reach == Reach(6, 1, None)


def test_coordinates_bound_what_moves() -> None:
    """A count without keys moves by one when a row is replaced, not by two."""
    question = Collect(
        Source(table(Unit.replaced_row())), (), None, (Count(), ExactSum(X, Fraction(-4), Fraction(9), 0))
    )
    assert question.moves(REPLACE) == (Moves(1, 1, 1), Moves(13, 169, 13))


def test_every_statistic_by_group() -> None:
    source = Source(table(Unit.person("p", rows=3)))
    edges = (Fraction(0), Fraction(1), Fraction(2))
    statistics = (
        Count(),
        Count(X),
        CountPersons(),
        CountDistinct(X),
        ExactSum(X, Fraction(-1), Fraction(2), -1),
        Cells(X, edges),
    )
    found = Collect(source, (("g", col("g")),), None, statistics).moves(ADD)
    assert found == (Moves(3, 9, 3), Moves(3, 9, 3), Moves(3, 3, 1), Moves(3, 9, 3), Moves(12, 144, 12), Moves(3, 9, 3))


@pytest.mark.parametrize(
    ("value", "added"), [(0.2, 0), (0.25, 1), (-0.25, 0), (-0.26, -1), (9.9, 4), (-9.9, -2), (1, 2), (10**18, 4)]
)
def test_addends_lie_on_the_grid(value: float, added: int) -> None:
    assert ExactSum(X, Fraction(-1), Fraction(2), -1).addend(value) == added


def test_the_grid_bounds_whatever_rounding_does() -> None:
    """0.49999999999999994 + 0.5 is 1 in floating point: the sum is clamped to what was promised all the same."""
    high = Fraction(0.49999999999999994)
    assert ExactSum(X, Fraction(0), high, 0).grid == (0, 0)
    assert ExactSum(X, Fraction(0), high, 0).addend(0.49999999999999994) == 0


def test_what_cannot_be_asked_is_refused() -> None:
    source = Source(table(Unit.row()))
    with pytest.raises(QuestionRefused):
        Collect(source, (), None, (CountPersons(),))
    with pytest.raises(QuestionRefused):
        Collect(source, (), None, (ExactSum(col("g"), Fraction(0), Fraction(1), 0),))
    with pytest.raises(QuestionRefused):
        Collect(source, (), None, (Cells(X, (Fraction(1), Fraction(1))),))
    with pytest.raises(QuestionRefused):
        Collect(source, (("k", X / 2),), None, (Count(),))
    with pytest.raises(QuestionRefused):
        Source(Table.of("p", None, x=Domain.integer()))
