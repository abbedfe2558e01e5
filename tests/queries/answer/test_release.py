"""Where exact numbers meet noise: keys that nobody made public, what is stored, and how answers merge."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import deniable as dn
from deniable.errors import UnreadableRecord
from deniable.ledger import Budget, Cost
from deniable.queries.answer.release import LARGEST, Draw, Released, at_precision, precise, release
from deniable.queries.plan.noise_planner import NoisePlan, noise, plan
from deniable.queries.sql.sql_reader import parse
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table
from deniable.testing import statistics
from tests.queries.hospital import BUDGETS, SCHEMA, UNIT

TABLES = {"visits": Table("visits", (*SCHEMA.items(), ("day", Domain.date()), ("at", Domain.timestamp())), UNIT)}
TOWNS = "SELECT town, COUNT(*) AS n FROM visits GROUP BY town"


def planned(text: str) -> NoisePlan:
    return plan(parse(text, TABLES))


@pytest.mark.parametrize("kind", BUDGETS)
def test_a_key_of_one_person_is_shown_no_more_often_than_delta(kind: str) -> None:
    """A person alone in three towns, against δ = 0.05: 20,000 releases. A threshold that showed it half as often again
    would be blamed; so would one that never shows it.
    """
    made, budget, delta = planned(TOWNS), BUDGETS[kind], 0.05
    cost = Cost(10**30, int(delta * 10**30))
    drawn = noise(made, budget, cost)
    trials = 20_000
    # Runs side by side: copies of the same three towns under other names. All noise is independent.
    alone = {(f"{town}{run:05}",): tuple(1 for _ in made.parts) for run in range(trials) for town in "abc"}
    shown = {group[0][1:] for group in release(made, drawn, cost, alone).groups}  # type: ignore[index]
    assert statistics.at_least(len(shown), trials, probability=delta) > 1e-9
    assert statistics.at_least(len(shown), trials, probability=delta / 20) < 1e-9, "and delta is used, not wasted"


def test_keys_come_in_an_order_of_their_own() -> None:
    made = planned(TOWNS)
    cost = Cost(10**33, 10**28)
    drawn = noise(made, BUDGETS["gaussian"], cost)
    many = {(town,): (10_000,) * len(made.parts) for town in ("Turku", None, "Bilbao", "Ghent")}
    there = release(made, drawn, cost, many).groups
    again = release(made, drawn, cost, dict(reversed(many.items()))).groups
    assert there == again
    assert set(there) == set(many)


def test_public_keys_are_all_shown_and_no_others() -> None:
    made = planned("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward")
    cost = Cost(10**30)
    zeros = dict.fromkeys(made.collect.known or (), (0,))
    assert release(made, noise(made, BUDGETS["pure"], cost), cost, zeros).groups == (("A",), ("B",), ("C",))


@pytest.mark.parametrize("value", [2**63, -(2**70), 2**200])
def test_numbers_that_no_table_reaches_are_cut(value: int) -> None:
    made = planned("SELECT SUM(age) AS s FROM visits")
    cost = Cost(10**30)
    found = release(made, noise(made, BUDGETS["gaussian"], cost), cost, {(): (value,)})
    assert abs(int(found.parts[0][0])) < LARGEST + 2**40


@pytest.mark.parametrize("kind", BUDGETS)
def test_what_is_stored_is_read_back(kind: str) -> None:
    made = planned("SELECT day, at, town, COUNT(*) AS n, MEDIAN(age) AS m FROM visits GROUP BY day, at, town")
    group = (dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 30, 1, 5), 'Ünal "x"\n')
    nothing = (None, None, None)
    cost = Cost(10**33, 10**28)
    counts: dict[Any, Any] = {
        each: tuple((90_000,) * part.statistic.width if part.is_running else 90_000 for part in made.parts)
        for each in (group, nothing)
    }
    drawn = release(made, noise(made, BUDGETS[kind], cost), cost, counts)
    back = Released.from_bytes(drawn.to_bytes(), made)
    assert set(back.groups) == {group, nothing}
    assert (back.groups, back.cost, back.precision, back.units) == (
        drawn.groups,
        drawn.cost,
        drawn.precision,
        drawn.units,
    )
    for one, other in zip(back.parts, drawn.parts, strict=True):
        assert np.array_equal(one, other)
        assert one.dtype == other.dtype
    merged = drawn.merged(back, BUDGETS[kind])
    again = Released.from_bytes(merged.to_bytes(), made)
    assert all(np.array_equal(a, b) for a, b in zip(again.parts, merged.parts, strict=True))


def test_a_record_of_version_1_is_read_and_written_to_the_last_byte() -> None:
    """A ledger that was written earlier has such records, and its chain of hashes covers their bytes."""
    record = (
        b'{"version":1,"groups":[["A"],["B"]],"parts":[["<i8","BwAAAAAAAAAJAAAAAAAAAA=="]],"cost":["1000","10"],'
        b'"precision":["1000","10"],"units":["1000"],"threshold":null}'
    )
    found = Released.from_bytes(record, planned("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"))
    assert found.groups == (("A",), ("B",))
    assert [part.tolist() for part in found.parts] == [[7, 9]]
    assert (found.cost, found.units) == (Cost(1000, 10), (1000, 1000))
    assert found.to_bytes() == record


def test_what_another_version_stored_is_not_guessed_at() -> None:
    made = planned("SELECT COUNT(*) AS n FROM visits")
    cost = Cost(10**30)
    drawn = release(made, noise(made, BUDGETS["gaussian"], cost), cost, {(): (5,)})
    text = drawn.to_bytes()
    with pytest.raises(UnreadableRecord):
        Released.from_bytes(text.replace(b'"version":1', b'"version":2'), made)
    with pytest.raises(UnreadableRecord):
        Released.from_bytes(text, planned("SELECT COUNT(*) AS n, SUM(age) AS s FROM visits"))


def test_answers_merge_by_inverse_variance_group_by_group() -> None:
    budget = BUDGETS["gaussian"]
    first = Released((("a",), ("b",)), (np.array([10, 20]),), Cost(4), Cost(4), (4, 4))
    second = Released((("b",), ("c",)), (np.array([60, 70]),), Cost(12), Cost(12), (12, 12))
    both = first.merged(second, budget)
    assert both.groups == (("a",), ("b",), ("c",))
    assert both.parts[0].tolist() == [10, 0.25 * 20 + 0.75 * 60, 70]
    assert both.units == (4, 16, 12)
    assert (both.cost, both.precision) == (Cost(16), Cost(16))


@pytest.mark.parametrize(("kind", "units"), [("gaussian", 5 + 7), ("zcdp", 5 + 7), ("pure", 8)])
def test_precisions_add_as_the_currency_says(kind: str, units: int) -> None:
    """μ² and ρ are precisions; of ε the square is: √(25 + 49) = 8.6, rounded down."""
    budget = BUDGETS[kind]
    assert at_precision(precise(5, budget) + precise(7, budget), budget) == units
    assert dn.Budget.pure(epsilon=1).currency == "epsilon"


@pytest.mark.parametrize("kind", BUDGETS)
def test_the_deviation_of_a_merged_answer_is_that_of_its_draws(kind: str) -> None:
    """Two draws at costs 1 and 4, merged 200,000 times, against the deviation that is told.

    The variance of n numbers has the relative deviation √((κ - 1)/n), with κ = 6 for the noise of Laplace and 3 for that
    of Gauss; so 7 of those are passed with a chance below 1e-9. Blamed would be one that takes the merged answer for one
    at the nominal precision: discrete noise of ε = 1 and ε = 4 is not as exact as 2/ε² says.
    """
    budget, made, n = BUDGETS[kind], planned("SELECT COUNT(*) AS n FROM visits"), 200_000
    first, second = Cost(10**30 * 3), Cost(4 * 10**30 * 3)
    one, two = (Released(((),), (np.zeros(1),), each, each, (each.units,)) for each in (first, second))
    both = Released.from_bytes(one.merged(two, budget).to_bytes(), made)
    assert both.all_draws == (Draw(first), Draw(second))
    assert both.merged(one, budget).all_draws == (Draw(first), Draw(second), Draw(first))
    mine, its = precise(first.units, budget), precise(second.units, budget)
    share = float(mine / (mine + its))
    drawing: list[Any] = [noise(made, budget, each).mechanisms[0] for each in (first, second)]
    found = share * drawing[0].draw((n,), None) + (1 - share) * drawing[1].draw((n,), None)
    told = both.deviation(made, budget, 0) ** 2
    allowed = 7 * np.sqrt((5 if kind == "pure" else 2) / n)
    assert abs(float(np.mean(found**2)) / told - 1) < allowed
    alone = one.deviation(made, budget, 0) ** 2
    assert abs(float(np.mean(found**2)) / alone - 1) > 2 * allowed, "the draws are told apart"
    if kind == "pure":
        nominal = Released(((),), (np.zeros(1),), both.precision, both.precision, both.units)
        assert abs(float(np.mean(found**2)) / nominal.deviation(made, budget, 0) ** 2 - 1) > 2 * allowed


def test_a_finer_answer_that_helps_is_a_draw_of_several_cells() -> None:
    """Two wards of two sexes at equal cost: the sum of two cells has twice the variance, so (1·1 + 1/4·2) / 1.5²."""
    budget, made = BUDGETS["gaussian"], planned("SELECT COUNT(*) AS n FROM visits")
    cost = Cost(10**26)
    alone = Released(((),), (np.zeros(1),), cost, cost, (cost.units,))
    helped = replace(alone, draws=(Draw(cost), Draw(cost, 2)))
    expected = alone.deviation(made, budget, 0) * np.sqrt((1 + 0.25 * 2) / 1.5**2)
    assert helped.deviation(made, budget, 0) == pytest.approx(expected, rel=1e-12)


# -- intervals of merged answers ---------------------------------------------------------------------------------------


def shared(made: NoisePlan, budget: Budget, costs: Sequence[Cost]) -> tuple[Released, list[tuple[float, Any]]]:
    """Zeros that were merged from draws at these costs; and each draw's weight and mechanism."""
    first, *others = (Released(((),), (np.zeros(1),), each, each, (each.units,)) for each in costs)
    for each in others:
        first = first.merged(each, budget)
    weights = [precise(each.units, budget) for each in costs]
    drawing = [noise(made, budget, each).mechanisms[0] for each in costs]
    return first, [(float(w / sum(weights)), each) for w, each in zip(weights, drawing, strict=True)]


def law(mechanism: Any) -> tuple[Any, Any]:
    """Whole numbers of noise and their probabilities, from the definitions."""
    width, far = float(mechanism.width), math.ceil(45 * float(mechanism.width)) + 1
    at = np.arange(-far, far + 1)
    if mechanism.__class__.__name__ == "DiscreteLaplace":
        r = math.exp(-1 / width)
        return at, (1 - r) / (1 + r) * r ** np.abs(at)
    ends = np.array([math.erfc(-(k - 0.5) / width / math.sqrt(2)) for k in range(-far, far + 2)]) / 2
    return at, np.diff(ends)


@pytest.mark.parametrize("kind", BUDGETS)
@pytest.mark.parametrize("paid", [(0.3, 0.3), (1, 1), (1, 0.5), (2, 1.3), (3, 3), (9, 9), (9, 1)])
def test_intervals_of_merged_counts_hold_what_they_say(kind: str, paid: tuple[float, float]) -> None:
    """Exactly, by all pairs of two draws: no less than is said, and a step of noise less would be too little."""
    budget, made = BUDGETS[kind], planned("SELECT COUNT(*) AS n FROM visits")
    both, [(a, one), (b, two)] = shared(made, budget, [Cost(int(each * 10**30)) for each in paid])
    (k, p), (m, q) = law(one), law(two)
    off, chance = np.abs(np.add.outer(a * k, b * m)), np.multiply.outer(p, q)
    for confidence in (0.5, 0.8, 0.9, 0.95, 0.99):
        [[drawn]] = both.drawn(made, budget)
        found = made.recipes[0].estimate([drawn], confidence)
        assert found.high is not None
        assert float(chance[off <= found.high].sum()) >= confidence
        spread = both.deviation(made, budget, 0)
        assert float(chance[off < found.high - 0.01 * spread].sum()) < confidence


@pytest.mark.parametrize("kind", BUDGETS)
def test_intervals_of_what_was_refined_many_times_are_told_quickly(kind: str) -> None:
    """100 equal draws, and 40 that are all different: nearly normal, by the central limit."""
    budget, made = BUDGETS[kind], planned("SELECT COUNT(*) AS n FROM visits")
    for costs in ([Cost(10**30)] * 100, [Cost(10**30 + 10**28 * i) for i in range(40)]):
        both, _ = shared(made, budget, costs)
        [[drawn]] = both.drawn(made, budget)
        high = made.recipes[0].estimate([drawn], 0.95).high
        assert high is not None
        assert high == pytest.approx(1.96 * both.deviation(made, budget, 0), rel=0.02)
        assert len(drawn.draws) <= 4


@pytest.mark.parametrize("kind", BUDGETS)
@pytest.mark.parametrize("paid", [0.3, 1, 3, 9, 11, 13.4, 15, 20])
def test_intervals_of_counts_hold_what_they_say(kind: str, paid: float) -> None:
    """Exactly: no less than is said. Discrete Laplace noise is taken for no other law, so one step less is too little."""
    budget, made, cost = BUDGETS[kind], planned("SELECT COUNT(*) AS n FROM visits"), Cost(int(paid * 10**30))
    alone = Released(((),), (np.zeros(1, dtype=np.int64),), cost, cost, (cost.units,))
    at, chance = law(noise(made, budget, cost).mechanisms[0])
    [[drawn]] = alone.drawn(made, budget)
    for confidence in (0.5, 0.9, 0.95, 0.99, 0.999):
        high = made.recipes[0].estimate([drawn], confidence).high
        assert isinstance(high, int)
        assert float(chance[np.abs(at) <= high].sum()) >= confidence - 1e-9
        if kind == "pure":
            assert float(chance[np.abs(at) < high].sum()) < confidence


def test_the_old_way_would_be_too_narrow() -> None:
    """Power of the test above: one draw at the nominal precision, under a pure budget, by Laplace's law."""
    budget, made = BUDGETS["pure"], planned("SELECT COUNT(*) AS n FROM visits")
    both, [(a, one), (b, two)] = shared(made, budget, [Cost(9 * 10**30)] * 2)
    nominal = replace(both, draws=())
    (k, p), (m, q) = law(one), law(two)
    [[drawn]] = nominal.drawn(made, budget)
    high = made.recipes[0].estimate([drawn], 0.95).high
    assert high is not None
    assert float(np.multiply.outer(p, q)[np.abs(np.add.outer(a * k, b * m)) <= high].sum()) < 0.93


@pytest.mark.parametrize("kind", BUDGETS)
def test_a_key_that_one_draw_showed_has_that_draws_interval(kind: str) -> None:
    """And where it is not known which draws a number rests on, the interval is no narrower than any mixture's."""
    budget, made = BUDGETS[kind], planned(TOWNS)
    few, more = Cost(3 * 10**30, 10**27), Cost(6 * 10**30, 10**27)
    first = Released((("a",), ("b",)), (np.full(2, 9.0),) * len(made.parts), few, few, (few.units,) * 2, 1)
    second = Released((("b",), ("c",)), (np.full(2, 9.0),) * len(made.parts), more, more, (more.units,) * 2, 1)
    both = first.merged(second, budget)
    found = [each[0].deviations for each in both.drawn(made, budget)]
    own = [noise(made, budget, each).spread(0) for each in (few, more)]
    assert found[0] == pytest.approx(own[0], rel=1e-12)
    assert found[2] == pytest.approx(own[1], rel=1e-12)
    assert found[1] == pytest.approx(both.deviation(made, budget, 0), rel=1e-9)
    [mixed] = {each[0].deviations for each in replace(both, units=(both.precision.units // 2,) * 3).drawn(made, budget)}
    weight = float(precise(both.precision.units, budget) / precise(both.precision.units // 2, budget))
    assert mixed >= both.deviation(made, budget, 0) * math.sqrt(weight) * (1 - 1e-9)


def test_merged_running_totals_are_as_wide_as_their_draws() -> None:
    budget, made = BUDGETS["pure"], planned("SELECT MEDIAN(age) AS m FROM visits")
    cost = Cost(30 * 10**30)
    one = Released(((),), (np.zeros((1, made.parts[0].statistic.width)),), cost, cost, (cost.units,))
    [[alone]], [[both]] = one.drawn(made, budget), one.merged(one, budget).drawn(made, budget)
    assert np.allclose(both.blend(0.5).deviations * math.sqrt(2), alone.blend(0.5).deviations, rtol=1e-9)
    assert np.allclose(both.blend(0.5).kurtosis * 2, alone.blend(0.5).kurtosis, rtol=1e-9)
