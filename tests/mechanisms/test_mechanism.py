"""What every mechanism shares: `*`, `**`, `then`, `on`, adaptive sequences and disjoint parts, and their laws."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

from deniable import curves, mechanisms, noise
from deniable.curves.meaning.blackwell_order import fits
from deniable.errors import InvalidOperation, InvalidParameter, NotPrivateWarning
from deniable.mechanisms import Composed, DiscreteLaplace, Gaussian, Laplace, Mechanism, Parallel, PoissonMechanism
from deniable.mechanisms.mechanism import MOST_PARTS, Adaptive
from deniable.units import Unit
from tests.mechanisms import lattice_laws as laws
from tests.wording import worded

pytestmark = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")

HALF = DiscreteLaplace(sensitivity=1, epsilon=0.5)
WIDE = Gaussian(sensitivity=1, sigma=3)
REAL = Laplace(sensitivity=1.0, epsilon=0.2)


def double(x: Any) -> Any:
    return 2 * x


# -- composition -----------------------------------------------------------------------------------------------------


def test_the_curve_of_a_product_is_the_product_of_the_curves() -> None:
    assert (HALF * WIDE).curve == HALF.curve * WIDE.curve
    assert (HALF**7).curve == HALF.curve**7
    assert ((HALF * WIDE) ** 3).curve == (HALF.curve * WIDE.curve) ** 3


def test_powers_are_repeated_products_and_order_of_brackets_does_not_matter() -> None:
    assert HALF**3 == HALF * HALF * HALF == HALF * (HALF * HALF)
    assert (HALF * WIDE) * REAL == HALF * (WIDE * REAL)
    assert (HALF * WIDE) ** 2 == HALF * WIDE * HALF * WIDE
    assert Composed(((HALF, 1),)) == HALF**1
    assert (HALF**2) ** 3 == HALF**6


def test_nothing_is_neutral() -> None:
    nothing = HALF**0
    assert nothing.release(3) == ()
    assert nothing.curve == curves.identity()
    assert nothing * HALF == HALF * nothing == HALF**1
    assert nothing.error(confidence=0.9) == 0.0


def test_the_parts_of_a_product_can_be_listed() -> None:
    assert (HALF**2 * WIDE).parts == (HALF, HALF, WIDE)
    assert len(HALF**2 * WIDE) == 3
    assert (HALF**1).error(confidence=0.9) == HALF.error(confidence=0.9)


def test_a_product_answers_in_order() -> None:
    answers = (HALF * REAL * HALF).release(4)
    assert [type(a) for a in answers] == [int, float, int]
    assert len((HALF**50).release(4)) == 50
    assert len(set((HALF**50).release(4))) > 1, "each answer has noise of its own"


def test_composed_answers_are_covered_together() -> None:
    """2000 releases of 3 answers at 80 %, false alarm 1e-9."""
    both = HALF**2 * WIDE
    reach = both.error(confidence=0.8)
    assert reach == max(HALF.error(confidence=1 - 0.2 / 3), WIDE.error(confidence=1 - 0.2 / 3))
    hits = sum(max(map(abs, both.release(0))) <= reach for _ in range(2000))
    assert laws.covered(hits, 2000, 0.8)
    with worded(InvalidParameter, parameter="confidence"):
        (HALF**100).error(confidence=math.nextafter(1.0, 0.0))


@pytest.mark.parametrize("other", [2, 2.5, "x", None, curves.pure(epsilon=1)])
def test_a_mechanism_multiplies_with_a_mechanism_only(other: Any) -> None:
    with worded(InvalidOperation):
        HALF * other


@pytest.mark.parametrize("count", [-1, 1.5, "2", True, None])
def test_powers_are_whole_numbers(count: Any) -> None:
    with pytest.raises(InvalidParameter):
        HALF**count


def test_a_release_that_would_not_fit_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="at most"):
        HALF ** (MOST_PARTS + 1)
    with pytest.raises(InvalidParameter, match="at most"):
        (HALF * WIDE) ** MOST_PARTS


# -- processing ------------------------------------------------------------------------------------------------------


def test_fact_post_processing_keeps_the_curve() -> None:
    doubled = HALF.then(double)
    assert doubled.curve == HALF.curve
    assert doubled.release(10, entropy=noise.ReplayEntropy(4)) == 2 * HALF.release(10, entropy=noise.ReplayEntropy(4))
    with worded(InvalidOperation):
        doubled.error(confidence=0.9)
    with worded(InvalidOperation):
        doubled.efficiency()
    with pytest.raises(InvalidParameter, match="function"):
        HALF.then(3)  # type: ignore[arg-type]


def test_a_statistic_is_worked_out_first() -> None:
    counted = HALF.on(len)
    assert counted.curve == HALF.curve
    assert counted.error(confidence=0.9) == HALF.error(confidence=0.9)
    assert counted.efficiency() == 1.0
    assert abs(counted.release(range(1000)) - 1000) < 200
    assert len((HALF.on(len) * HALF.on(sum)).release([1, 2])) == 2


# -- adaptive sequences ----------------------------------------------------------------------------------------------


def test_fact_adaptive_composition_adds_what_was_fixed_in_advance() -> None:
    first, second = DiscreteLaplace(sensitivity=1, epsilon=0.3), DiscreteLaplace(sensitivity=1, epsilon=0.7)
    both = first.followed_by(lambda answers: second if answers[0] > 0 else first, curve=curves.pure(epsilon=0.7))
    assert both.curve.epsilon(delta=0) == pytest.approx(1.0, rel=1e-12)
    assert len(both.release(5)) == 2


def test_a_choice_sees_all_answers_so_far() -> None:
    seen: list[Any] = []

    def choose(answers: Any) -> Mechanism:
        seen.append(answers)
        return HALF

    chain = (HALF * WIDE).followed_by(choose, curve=HALF.curve).followed_by(choose, curve=HALF.curve)
    assert len(chain.release(1)) == 4
    assert [len(answers) for answers in seen] == [2, 3]
    assert chain.curve == HALF.curve**3 * WIDE.curve


def test_a_choice_that_costs_more_is_refused_and_gives_no_answer() -> None:
    greedy = HALF.followed_by(lambda _: DiscreteLaplace(sensitivity=1, epsilon=9), curve=curves.pure(epsilon=1))
    with worded(InvalidOperation):
        greedy.release(5)
    with worded(InvalidParameter, parameter="choose"):
        HALF.followed_by(lambda _: 3, curve=HALF.curve).release(5)  # type: ignore[arg-type, return-value]
    with worded(InvalidParameter, parameter="curve"):
        Adaptive(HALF, lambda _: HALF, 0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("curve", "allowed", "expected"),
    [
        (HALF.curve, HALF.curve, True),
        (curves.identity(), HALF.curve, True),
        (HALF.curve, curves.pure(epsilon=0.5), True),
        (HALF.curve, curves.pure(epsilon=0.4999), False),
        (WIDE.curve, curves.pure(epsilon=5), False),
        (WIDE.curve, curves.approximate(epsilon=1, delta=1e-2), True),
        (WIDE.curve, curves.approximate(epsilon=1, delta=1e-6), False),
        (HALF.curve, curves.gaussian(mu=0.7), True),
        (HALF.curve, curves.gaussian(mu=0.5), False),
        (WIDE.curve, curves.zcdp(rho=0.0556), True),
        (WIDE.curve, curves.zcdp(rho=0.05), False),
        (HALF.curve, curves.worst_of(curves.pure(epsilon=0.1), curves.pure(epsilon=0.6)), True),
        (HALF.curve, curves.worst_of(curves.pure(epsilon=0.1), WIDE.curve), False),
        (HALF.curve, HALF.curve**2, False),  # true, but not known: the safe answer
        (curves.laplace(scale=3), curves.laplace(scale=2), False),
    ],
)
def test_what_fits_into_a_declared_cost(curve: curves.Curve, allowed: curves.Curve, expected: bool) -> None:
    assert fits(curve, allowed) is expected


# -- disjoint parts --------------------------------------------------------------------------------------------------

THREE, SEVEN = (DiscreteLaplace(sensitivity=1, epsilon=e) for e in (0.3, 0.7))


def test_fact_parallel_composition_takes_the_unit_into_account() -> None:
    added = Parallel.by_value([THREE, SEVEN], unit=Unit.row())
    assert added.curve.epsilon(delta=0) == pytest.approx(0.7, rel=1e-12)
    replaced = Parallel.by_value([THREE, SEVEN], unit=Unit.replaced_row())
    assert replaced.curve.epsilon(delta=0) == pytest.approx(1.0, rel=1e-12)
    by_index = Parallel.by_unit([THREE, SEVEN], unit=Unit.replaced_row())
    assert by_index.curve.epsilon(delta=0) == pytest.approx(0.7, rel=1e-12)


def test_fact_b4_moving_a_record_between_two_bins_costs_twice_as_much() -> None:
    """The loss is attained: P(both counts as before)/P(...) = e^(2ε) on the event that tells most."""
    bins = Parallel.by_value([HALF] * 10, unit=Unit.replaced_row())
    assert bins.curve == HALF.curve**2
    law = laws.discrete_laplace(2, 40)
    p = laws.together(law, law)
    q = laws.together(laws.shifted(law, -1), laws.shifted(law, 1))
    for epsilon in (0.0, 0.5, 0.9):
        truth = float(laws.delta(p, q, epsilon))
        assert truth <= bins.curve.delta(epsilon=epsilon) <= truth * (1 + 1e-6)


def test_a_person_with_many_rows_touches_many_parts() -> None:
    parts = [HALF] * 5
    assert Parallel.by_value(parts, unit=Unit.person("id", rows=3)).curve == HALF.curve**3
    assert Parallel.by_value(parts, unit=Unit.person("id", rows=20)).curve == HALF.curve**5
    assert Parallel.by_value(parts, unit=Unit.replaced_person("id", rows=2)).curve == HALF.curve**4
    assert Parallel.by_unit(parts, unit=Unit.person("id", rows=3)).curve == HALF.curve


def test_the_worst_selection_of_different_parts_counts() -> None:
    mixed = Parallel.by_value([THREE, THREE, SEVEN], unit=Unit.replaced_row()).curve
    assert mixed == curves.worst_of(THREE.curve**2, THREE.curve * SEVEN.curve)
    # Too many different selections to compare: all parts together, which is never less.
    many = [DiscreteLaplace(sensitivity=1, epsilon=e / 100) for e in range(1, 31)]
    assert Parallel.by_value(many, unit=Unit.replaced_row()).curve == curves.product(m.curve for m in many)


def test_directions_that_are_tied_come_apart_when_a_record_moves() -> None:
    """One count falls while the other rises: the product with both in the same direction would be too small."""
    tied = PoissonMechanism.linear(low=2, high=5, tied=True)
    moved = Parallel.by_value([tied, tied], unit=Unit.replaced_row()).curve
    reach = 60
    low, high = ([mass(rate, k) for k in range(reach)] for rate in (2, 5))
    p = {(i, j): a * b for i, a in enumerate(low) for j, b in enumerate(high)}
    q = {(i, j): a * b for i, a in enumerate(high) for j, b in enumerate(low)}
    for epsilon in (0.5, 1.0, 2.0):
        assert float(laws.delta(p, q, epsilon)) <= moved.delta(epsilon=epsilon)


def mass(rate: int, k: int) -> Any:
    return laws.number(rate) ** k * laws.mpmath.exp(-rate) / laws.mpmath.factorial(k)


def test_parts_get_one_value_each() -> None:
    wards = Parallel.by_value([THREE, SEVEN], unit=Unit.row())
    for value in ([10, 20], (10, 20), np.array([10, 20])):
        assert len(wards.release(value)) == 2
    for bad in ([10], [1, 2, 3], {"a": 1, "b": 2}, "ab", 5):
        with pytest.raises(InvalidParameter, match="2 values"):
            wards.release(bad)
    assert wards.error(confidence=0.9) == THREE.error(confidence=0.95)


@pytest.mark.parametrize("parts", [[], HALF, [HALF, 3], None])
def test_parts_are_mechanisms(parts: Any) -> None:
    with pytest.raises(InvalidParameter, match="parts"):
        Parallel.by_value(parts, unit=Unit.row())
    with pytest.raises(InvalidParameter, match="unit"):
        Parallel.by_value([HALF], unit="row")  # type: ignore[arg-type]


# -- the rest --------------------------------------------------------------------------------------------------------


def test_combined_mechanisms_are_values() -> None:
    for mechanism in (
        HALF * WIDE,
        HALF**3,
        HALF.then(double),
        HALF.on(len),
        Parallel.by_value([HALF], unit=Unit.row()),
        HALF.followed_by(double, curve=HALF.curve),
    ):
        twin = pickle.loads(pickle.dumps(mechanism))
        assert twin == mechanism
        assert hash(twin) == hash(mechanism)
        assert twin.curve == mechanism.curve


def test_every_part_of_a_replayed_release_is_marked() -> None:
    with pytest.warns(NotPrivateWarning):
        (HALF * WIDE).release(1, entropy=noise.ReplayEntropy(1))


def test_the_room_opens_lazily_and_names_what_it_holds() -> None:
    assert sorted(mechanisms.__all__) == mechanisms.__all__ == dir(mechanisms)
    for name in mechanisms.__all__:
        assert getattr(mechanisms, name) is not None
    with pytest.raises(AttributeError, match="Laplas"):
        mechanisms.Laplas  # noqa: B018


def test_every_mechanism_is_abstract_or_final() -> None:
    for name in mechanisms.__all__:
        kind = getattr(mechanisms, name)
        if isinstance(kind, type) and issubclass(kind, Mechanism):
            assert getattr(kind, "__final__", False) or kind.__abstractmethods__ or kind.__subclasses__(), name


def test_who_decides_the_part_depends_on_the_relation() -> None:
    """By id, the person who takes a place has another id than the one who leaves it: two parts change."""
    assert (
        Parallel.by_unit([THREE, SEVEN], unit=Unit.person("id", rows=3)).curve
        == Parallel.by_value([THREE, SEVEN], unit=Unit.row()).curve
    )
    moved = Parallel.by_unit([THREE, SEVEN], unit=Unit.replaced_person("id", rows=3))
    assert moved.touched == 2
    assert moved.curve.epsilon(delta=0.0) == pytest.approx(1.0, rel=1e-9)
    assert Parallel.by_unit([HALF] * 5, unit=Unit.replaced_person("id", rows=3)).curve == HALF.curve**2
    assert Parallel.by_unit([HALF], unit=Unit.replaced_person("id", rows=3)).curve == HALF.curve
    unit = Unit.replaced_person("id", rows=1)
    means = [mechanisms.Mean(low=0, high=1, unit=unit, rows=10, epsilon=1.0)] * 2
    with pytest.raises(InvalidParameter, match="another part"):
        Parallel.by_unit(means, unit=unit)


@pytest.mark.parametrize("entropy", [42, "seed", np.random.default_rng(1)], ids=["number", "text", "generator"])
@pytest.mark.parametrize(
    "mechanism",
    [HALF, REAL, HALF * WIDE, mechanisms.Sum(low=0, high=9, unit=Unit.row(), epsilon=1).on(lambda x: [x])],
    ids=["whole", "real", "composed", "sum"],
)
def test_an_entropy_that_is_none_is_refused(mechanism: Mechanism, entropy: Any) -> None:
    with worded(InvalidParameter, parameter="entropy"):
        mechanism.release(3, entropy=entropy)
