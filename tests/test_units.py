"""Units, sensitivities and guarantees: facts from the books, the order of norms, and rounding to the safe side."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import pickle
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable import Guarantee, Sensitivity, Unit, curves
from deniable.errors import DeniableError, InvalidParameter
from deniable.mechanisms import DiscreteGaussian, DiscreteLaplace
from deniable.numbers import square, whole
from deniable.units import Relation
from tests.wording import worded

UNITS = [
    Unit.row(),
    Unit.replaced_row(),
    Unit.person("patient_id", rows=1),
    Unit.person("patient_id", rows=20),
    Unit.replaced_person("patient_id", rows=3),
]

bounds = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
rows = st.integers(1, 2**53)


# --- Unit ---


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_a_unit_reads_back_from_its_repr(unit: Unit) -> None:
    assert eval(repr(unit), {"Unit": Unit}) == unit


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_a_unit_is_a_value(unit: Unit) -> None:
    assert pickle.loads(pickle.dumps(unit)) == copy.deepcopy(unit) == unit
    assert len({unit, copy.deepcopy(unit)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        unit.rows = 2


def test_the_two_relations_are_different_units() -> None:
    assert len(set(UNITS)) == len(UNITS)


def test_a_person_with_one_row_is_not_a_row() -> None:
    assert Unit.person("patient_id", rows=1) != Unit.row()


@pytest.mark.parametrize(("unit", "changes"), list(zip(UNITS, [1, 2, 1, 20, 6], strict=True)))
def test_fact_a_replacement_is_a_removal_and_an_addition(unit: Unit, changes: int) -> None:
    assert unit.row_changes == changes


def test_a_unit_describes_itself_in_words() -> None:
    assert [unit.describe() for unit in UNITS] == [
        "one row added or removed",
        "one row replaced by another",
        "one person ('patient_id', at most 1 row) added or removed",
        "one person ('patient_id', at most 20 rows) added or removed",
        "one person ('patient_id', at most 3 rows) replaced by another",
    ]


@pytest.mark.parametrize("bad", [0, -1, 1.0, True, "20", None, math.nan, 2**53 + 1, pytest.param(10**5000, id="huge")])
def test_rows_must_be_a_whole_positive_number(bad: object) -> None:
    with pytest.raises(InvalidParameter, match="rows"):
        Unit.person("patient_id", rows=bad)


@pytest.mark.parametrize("bad", ["", None, 3])
def test_a_person_needs_a_column(bad: object) -> None:
    with pytest.raises(InvalidParameter):
        Unit.person(bad, rows=20)


def test_a_row_is_one_row_and_a_relation_is_a_relation() -> None:
    with pytest.raises(InvalidParameter, match="rows"):
        Unit(Relation.ADD_REMOVE, rows=2)
    with pytest.raises(InvalidParameter, match="relation"):
        Unit("add/remove", rows=1)


# --- Sensitivity ---


def test_fact_counts_and_histograms_under_both_relations() -> None:
    assert Sensitivity.count(Unit.row()).l1 == 1
    assert Sensitivity.count(Unit.replaced_row()).l1 == 1
    added, replaced = Sensitivity.histogram(Unit.row()), Sensitivity.histogram(Unit.replaced_row())
    assert (added.l1, added.l2) == (1, 1)
    assert replaced.l1 == 2
    assert replaced.l2 == pytest.approx(1.4142135623731, abs=1e-13)


def test_fact_a_thousand_outputs_of_sensitivity_one() -> None:
    each = Sensitivity.of_each(1, outputs=1000)
    assert each.l1 == 1000
    assert each.l2 == pytest.approx(31.6227766016838, abs=1e-13)


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.rows <= 3], ids=repr)
def test_histogram_sensitivity_is_the_largest_change_found_by_trying_all(unit: Unit) -> None:
    """Not the number of bins times one. Tries every way to put at most k rows into three bins."""
    bins = [np.array(c) for c in itertools.product(range(unit.rows + 1), repeat=3) if sum(c) <= unit.rows]
    empty = [np.zeros(3)]
    changes = [a - b for a in bins for b in (empty if unit.relation is Relation.ADD_REMOVE else bins)]
    found = [max(np.linalg.norm(change, order) for change in changes) for order in (1, 2, np.inf)]
    claimed = Sensitivity.histogram(unit)
    assert found == pytest.approx([claimed.l1, claimed.l2, claimed.linf])
    assert max(abs(change[0]) for change in changes) == Sensitivity.count(unit).l1


@given(bound=bounds, unit=st.sampled_from(UNITS))
def test_over_a_unit_every_norm_grows_by_the_row_changes_and_never_rounds_down(bound: float, unit: Unit) -> None:
    exact = Fraction(bound) * unit.row_changes
    if exact > Fraction(2) ** 1023:
        return
    grown = Sensitivity(l1=bound).over(unit)
    assert grown.l2 is None
    assert grown.linf is None
    assert grown.l1 is not None
    assert grown.l1 >= exact > Fraction(math.nextafter(grown.l1, 0))


@given(bound=st.floats(min_value=0, max_value=1e290, exclude_min=True), outputs=st.integers(1, 10**9))
def test_of_each_never_rounds_down_and_keeps_the_order_of_norms(bound: float, outputs: int) -> None:
    each = Sensitivity.of_each(bound, outputs=outputs)
    assert each.l1 is not None
    assert each.l2 is not None
    assert each.linf == bound <= each.l2 <= each.l1
    assert Fraction(each.l1) >= Fraction(bound) * outputs
    assert Fraction(each.l2) ** 2 >= Fraction(bound) ** 2 * outputs


@given(rows=rows)
def test_histogram_never_rounds_down(rows: int) -> None:
    replaced = Sensitivity.histogram(Unit.replaced_person("id", rows=rows))
    assert replaced.l2 is not None
    assert Fraction(replaced.l2) ** 2 >= 2 * rows**2
    assert replaced.l2 == pytest.approx(math.sqrt(2) * rows, rel=1e-15)
    assert replaced.l1 == 2 * rows


@given(st.lists(st.one_of(st.none(), bounds), min_size=3, max_size=3))
def test_only_bounds_in_the_order_of_norms_are_taken(values: list[float | None]) -> None:
    l1, l2, linf = values
    known = [value for value in (linf, l2, l1) if value is not None]
    if known and known == sorted(known):
        taken = Sensitivity(l1=l1, l2=l2, linf=linf)
        assert (taken.l1, taken.l2, taken.linf) == (l1, l2, linf)
        assert eval(repr(taken), {"Sensitivity": Sensitivity}) == taken
    else:
        with pytest.raises(InvalidParameter):
            Sensitivity(l1=l1, l2=l2, linf=linf)


@pytest.mark.parametrize(
    "bad", [0, -1, -0.0, math.nan, math.inf, True, "1", 1j, [1.0], pytest.param(10**400, id="huge"), Decimal("sNaN")]
)
@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_a_sensitivity_is_positive_and_finite(norm: str, bad: object) -> None:
    with pytest.raises(InvalidParameter, match=norm):
        Sensitivity(**{norm: bad})


def test_swapped_norms_are_refused_with_a_hint() -> None:
    with pytest.raises(InvalidParameter, match="swapped"):
        Sensitivity(l1=1, l2=2)


def test_an_exact_number_is_rounded_up() -> None:
    third = Sensitivity(l1=Fraction(1, 10)).l1
    assert third is not None
    assert Fraction(third) >= Fraction(1, 10)
    assert Sensitivity(l1=Decimal("0.3")).l1 >= Fraction(3, 10)
    assert isinstance(Sensitivity(l1=np.float32(0.5)).l1, float)
    assert Sensitivity(l1=np.int64(3)).l1 == 3.0


@pytest.mark.parametrize("short", [np.float32, np.float16])
def test_a_short_float_keeps_its_roundings_in_a_sensitivity(short: type[Any]) -> None:
    """Of ten rows that move by float32(0.7) each, whole numbers move by 7; it was 6."""
    for rows in (2, 3, 5, 7, 10, 20):
        person = Unit.person("p", rows=rows)
        for k in range(1, 200):
            each = short(k) / short(rows)
            of_row = Sensitivity(l1=each, l2=each)
            for said in (of_row.over(person), pickle.loads(pickle.dumps(of_row)).over(person)):
                assert whole(said.l1) >= k, (k, rows)
                assert square(said.l2) >= k * k, (k, rows)
            assert whole(Sensitivity.of_each(each, outputs=rows).l1) >= k, (k, rows)
            assert square(Sensitivity.of_each(short(k) / short(rows), outputs=rows * rows).l2) >= k * k, (k, rows)


@pytest.mark.parametrize(("term", "count", "total"), [(0.001, 8000, 8), (7 / 200, 200, 7)])
def test_a_sum_of_short_floats_is_the_same_alone_and_in_a_sensitivity(term: float, count: int, total: int) -> None:
    added = np.float32(0)
    for _ in range(count):
        added += np.float32(term)
    assert added < total
    again = Sensitivity(l1=Sensitivity(l1=added).l1)
    for said in (added, Sensitivity(l1=added).l1, again.l1, again.over(Unit.row()).l1):
        assert whole(said) == total
        assert float(said) == added, "what it stores is not changed"


def test_noise_for_whole_numbers_covers_a_short_float() -> None:
    moved = Sensitivity(l1=np.float32(0.7), l2=np.float32(0.7)).over(Unit.person("p", rows=10))
    assert float(np.float32(0.7)) * 10 < 7
    assert DiscreteLaplace(sensitivity=moved, epsilon=1).scale >= 7
    assert Fraction(DiscreteGaussian(sensitivity=moved, rho=0.5).sigma) ** 2 >= 49


@pytest.mark.parametrize("outputs", [0, -1, 1.5, True, pytest.param(10**400, id="huge")])
def test_outputs_must_be_a_whole_positive_number_that_fits(outputs: int) -> None:
    with pytest.raises(InvalidParameter):
        Sensitivity.of_each(1, outputs=outputs)


def test_a_sensitivity_that_outgrows_the_floats_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="float"):
        Sensitivity(l1=1e308).over(Unit.person("id", rows=20))


# --- Guarantee ---


def test_a_guarantee_says_its_promise_in_one_sentence() -> None:
    promise = Guarantee(curves.gaussian(sigma=2), Unit.row())
    # Φ(1/4) = 0.59870…, rounded up.
    assert promise.describe() == (
        "Between tables that differ by one row added or removed, whoever sees the output and starts from even odds "
        "guesses right at most 59.9 % of the time."
    )


def test_a_guarantee_names_all_its_assumptions() -> None:
    told = Guarantee(curves.laplace(scale=1), Unit.row(), assumptions=("a holds", "b holds", "c holds")).describe()
    assert told.endswith(" of the time, provided that a holds, b holds and c holds.")


def test_a_guarantee_that_promises_nothing_says_so() -> None:
    assert "at most 100 %" in Guarantee(curves.gaussian(mu=100), Unit.row()).describe()


def test_a_guarantee_is_a_value() -> None:
    one = Guarantee(curves.laplace(scale=2), Unit.row(), assumptions=("x",))
    two = Guarantee(curves.laplace(scale=2), Unit.row(), assumptions=("x",))
    assert one == two
    assert len({one, two}) == 1
    assert one != Guarantee(curves.laplace(scale=2), Unit.replaced_row(), assumptions=("x",))
    assert repr(one) == f"Guarantee({curves.laplace(scale=2)!r}, Unit.row(), assumptions=('x',))"
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize(
    ("curve", "unit", "assumptions"),
    [
        (1.0, Unit.row(), ()),
        (curves.identity, Unit.row(), ()),
        (curves.identity(), "row", ()),
        (curves.identity(), Unit.row(), "one string"),
        (curves.identity(), Unit.row(), ("",)),
        (curves.identity(), Unit.row(), (3,)),
        (curves.identity(), Unit.row(), ["a list"]),
        (curves.identity(), Unit.row(), 3),
    ],
)
def test_a_guarantee_refuses_what_it_cannot_mean(curve: object, unit: object, assumptions: object) -> None:
    with pytest.raises(DeniableError):
        Guarantee(curve, unit, assumptions=assumptions)


def test_a_column_named_by_numpy_is_shown_as_text() -> None:
    assert repr(Unit.person(np.str_("id"), rows=3)) == "Unit.person('id', rows=3)"


@pytest.mark.parametrize("made", [Sensitivity.count, Sensitivity.histogram, Sensitivity(l1=1).over])
def test_a_sensitivity_takes_a_unit_and_nothing_else(made: Callable[[Any], Sensitivity]) -> None:
    """Two of them ended in an AttributeError about a text."""
    with worded(InvalidParameter, parameter="unit"):
        made("patient_id")
