"""Keys that are shown because their noisy count is large: what their intervals hold, given that they are shown."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from deniable.ledger import Budget, Cost
from deniable.ledger.currency import Shape
from deniable.queries.answer.answer import _Interval
from deniable.queries.answer.release import Released, release
from deniable.queries.intervals.draw_laws import law_of
from deniable.queries.plan.noise_planner import NoisePlan, noise, plan
from deniable.queries.sql.sql_reader import parse
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table
from deniable.testing import statistics
from deniable.units import Unit
from tests.queries.answer.test_release import law
from tests.queries.hospital import BUDGETS

TABLES = {"t": Table.of("t", Unit.row(), town=Domain.text(), cost=Domain.real(0, 100, nullable=False))}
COPIES = 1500
FALSE_ALARM = 1e-9 / 1000
"""There are fewer than 1000 comparisons here."""


def planned(measures: str) -> NoisePlan:
    return plan(parse(f"SELECT town, {measures} FROM t GROUP BY town", TABLES))


def costs(budget: Budget) -> Cost:
    level = {"mu2": Fraction(1, 9), "epsilon": Fraction(1, 2), "rho": Fraction(1, 9)}[budget.currency]
    return Cost(int(level * 10**30), 10**24)


def near(threshold: int, spread: float) -> list[int]:
    """True counts from 1 to several deviations above the threshold."""
    return sorted({1, 2, threshold // 2, *(round(threshold + k * spread / 2) for k in range(-4, 12))} - {0})


def shown_sometimes(threshold: int, spread: float) -> list[int]:
    return [round(threshold + k * spread) for k in (-1.3, -1, 0, 1.5)]


def cells(made: NoisePlan, count: int) -> tuple[int, ...]:
    """Exact statistics of so many rows that all cost 70, in whatever parts the plan has."""
    found = []
    for part in made.parts:
        statistic: Any = part.statistic
        found.append(statistic.addend(_value(statistic)) * count if hasattr(statistic, "grid") else count)
    return tuple(found)


def _value(statistic: Any) -> float:
    low, high = float(statistic.low), float(statistic.high)
    return low + 0.7 * (high - low)


@pytest.mark.parametrize("kind", BUDGETS)
def test_counts_of_unlisted_keys_near_the_threshold_hold_what_they_say(kind: str) -> None:
    """Exactly, by every value that is shown: the interval holds each true count with at least its confidence."""
    budget = BUDGETS[kind]
    made, cost = planned("COUNT(*) AS n"), costs(budget)
    drawn = noise(made, budget, cost)
    assert drawn.threshold is not None
    off, chance = law(drawn.mechanisms[0])
    for confidence in (0.5, 0.9, 0.95, 0.99):
        ends: dict[int, tuple[float, float]] = {}
        for true in near(drawn.threshold, drawn.spread(0)):
            shown = off >= drawn.threshold - true
            held = total = 0.0
            for value, probability in zip((off + true)[shown].tolist(), chance[shown].tolist(), strict=True):
                if probability < 1e-14 * chance[shown][0]:
                    continue
                if value not in ends:
                    ends[value] = interval(made, budget, cost, drawn.threshold, value, confidence)
                low, high = ends[value]
                assert low <= value <= high
                total += probability
                held += probability * (low <= true <= high)
            assert held / total >= confidence - 1e-9, (true, confidence, held / total)
    # Far above, it is the interval of the noise alone.
    far = drawn.threshold + round(30 * drawn.spread(0))
    low, high = interval(made, budget, cost, drawn.threshold, far, 0.95)
    assert low + high == 2 * far
    assert float(chance[np.abs(off) < high - far].sum()) < 0.95 <= float(chance[np.abs(off) <= high - far].sum())


@pytest.mark.parametrize("kind", BUDGETS)
def test_twice_a_count_near_the_threshold_holds_what_the_count_does(kind: str) -> None:
    """Exactly, by every value that is shown. Where expressions forgot the threshold, 1500 random keys of each
    size did not tell.
    """
    budget = BUDGETS[kind]
    made, cost = planned("2 * COUNT(*) AS b"), costs(budget)
    drawn = noise(made, budget, cost)
    assert drawn.threshold is not None
    off, chance = law(drawn.mechanisms[0])
    doubled = _Interval(made, dict(made.question.post.columns)["b"], made.question.domains, 0.95)
    for true in shown_sometimes(drawn.threshold, drawn.spread(0)):
        shown = (off >= drawn.threshold - true) & (chance > 1e-12)
        held = 0.0
        for value, probability in zip((off + true)[shown].tolist(), chance[shown].tolist(), strict=True):
            there = Released((("x",),), (np.array([value]),), cost, cost, (cost.units,), drawn.threshold)
            [numbers] = there.drawn(made, budget)
            ends = doubled.around({"count": value}, {}, numbers)
            assert ends is not None
            held += probability * (ends[0] - 1e-9 <= 2 * true <= ends[1] + 1e-9)
        assert held / float(chance[shown].sum()) >= 0.945, (true, held)


def test_an_average_of_a_key_that_noise_has_lifted_holds_what_it_says() -> None:
    """Far below the threshold, given that it is shown: without the threshold in its interval an average held 83 %. Of
    1000 draws, intervals that hold 94.5 % are blamed once in 1e12. (Gaussian noise leaves such an average untold.)
    """
    budget, rng = BUDGETS["pure"], np.random.default_rng()
    made, cost = planned("AVG(cost) AS a"), costs(budget)
    drawn = noise(made, budget, cost)
    assert drawn.threshold is not None
    assert made.people is not None
    true = round(drawn.threshold - 2.5 * drawn.spread(made.people))
    exact, columns = cells(made, true), []
    for place, mechanism in enumerate(drawn.mechanisms):
        if place == made.people:
            off, chance = law(mechanism)
            chance = np.where(off >= drawn.threshold - true, chance, 0.0)
            columns.append(exact[place] + rng.choice(off, size=1000, p=chance / chance.sum()))
        else:
            spread = drawn.deviation(place)
            wide = rng.laplace(0, spread / 2**0.5, 1000)
            columns.append(exact[place] + np.rint(wide).astype(np.int64))
    groups = tuple((f"{i:04}",) for i in range(1000))
    there = Released(groups, tuple(columns), cost, cost, (cost.units,) * 1000, drawn.threshold)
    held = 0
    for numbers in there.drawn(made, budget):
        found = made.recipes[0].estimate([numbers[i] for i in made.uses[0]], 0.95)
        assert found.low is not None
        assert found.high is not None
        held += found.low - 1e-9 <= 70 <= found.high + 1e-9
    assert statistics.at_most(held, 1000, probability=0.945) > FALSE_ALARM, held


def interval(
    made: NoisePlan, budget: Budget, cost: Cost, threshold: int, value: int, confidence: float
) -> tuple[float, float]:
    there = Released((("x",),), (np.array([value]),), cost, cost, (cost.units,), threshold)
    [numbers] = there.drawn(made, budget)
    found = made.recipes[0].estimate(numbers, confidence)
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "pure"])
def test_what_is_shown_of_keys_near_the_threshold_holds_what_it_says(kind: str) -> None:
    """By the session's own release, 1500 keys of each size: counts, averages, spreads and expressions of them.
    The smallest is shown about once in ten.
    """
    budget = BUDGETS[kind]
    made = planned("COUNT(*) AS n, SUM(cost) AS s, AVG(cost) AS a, STDDEV(cost) AS d, 2 * COUNT(*) AS b")
    cost = costs(budget) + costs(budget) + costs(budget)
    drawn = noise(made, budget, cost)
    assert drawn.threshold is not None
    assert made.people is not None
    columns = dict(made.question.post.columns)
    doubled = _Interval(made, columns["b"], made.question.domains, 0.95)
    for true in shown_sometimes(drawn.threshold, drawn.spread(made.people)):
        counts = {(f"{i:05}",): cells(made, true) for i in range(COPIES)}
        released = release(made, drawn, cost, counts)
        assert len(released.groups) > 60
        truths = _truth(made, budget, cost, true)
        held = dict.fromkeys([*truths, "b"], 0)
        for numbers in released.drawn(made, budget):
            found = {
                r.name: r.estimate([numbers[i] for i in u], 0.95) for r, u in zip(made.recipes, made.uses, strict=True)
            }
            for name, truth in truths.items():
                one = found[name]
                assert one.low is not None
                assert one.high is not None
                held[name] += one.low - 1e-9 <= truth <= one.high + 1e-9
            around = doubled.around({name: one.value for name, one in found.items()}, found, numbers)
            assert around is not None
            held["b"] += around[0] - 1e-9 <= 2 * true <= around[1] + 1e-9
        for name, hits in held.items():
            assert statistics.at_most(hits, len(released.groups), probability=0.945) > FALSE_ALARM, (name, true, hits)


def _truth(made: NoisePlan, budget: Budget, cost: Cost, true: int) -> dict[str, float]:
    """What the measures are of exact statistics."""
    silent = budget.limit
    exact = Released((("x",),), tuple(np.array([v]) for v in cells(made, true)), silent, silent, (silent.units,))
    [numbers] = exact.drawn(made, budget)
    found = {r.name: r.estimate([numbers[i] for i in u], 0.95) for r, u in zip(made.recipes, made.uses, strict=True)}
    return {name: float(one.value) for name, one in found.items() if one.value is not None}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "pure"])
@pytest.mark.parametrize("second", [1, 3])
def test_refined_counts_of_unlisted_keys_hold_what_they_say(kind: str, second: int) -> None:
    """Two draws merged, of keys that both show and of keys that one of them shows."""
    budget, made, cost = BUDGETS[kind], planned("COUNT(*) AS n"), costs(BUDGETS[kind])
    other = Cost(cost.units * second, cost.delta_units)
    first, then = noise(made, budget, cost), noise(made, budget, other)
    assert first.threshold is not None
    for true in shown_sometimes(first.threshold, first.spread(0)):
        counts = {(f"{i:05}",): (true,) for i in range(COPIES)}
        a, b = release(made, first, cost, counts), release(made, then, other, counts)
        both = a.merged(b, budget)
        by: dict[str, list[bool]] = {"both": [], "one": []}
        for group, [one] in zip(both.groups, both.drawn(made, budget), strict=True):
            found = made.recipes[0].estimate([one], 0.95)
            assert found.low is not None
            assert found.high is not None
            assert found.low <= found.value <= found.high  # type: ignore[operator]
            by["both" if group in a.groups and group in b.groups else "one"].append(found.low <= true <= found.high)
        for which, held in by.items():
            if len(held) >= 60:
                assert statistics.at_most(sum(held), len(held), probability=0.945) > FALSE_ALARM, (which, true)


@pytest.mark.parametrize("kind", BUDGETS)
@pytest.mark.parametrize("second", [1, 3])
def test_merged_counts_of_keys_that_two_draws_show_hold_what_they_say(kind: str, second: int) -> None:
    """Exactly, by every pair of values that are shown, however seldom they are: n below both thresholds, too."""
    budget, made, cost = BUDGETS[kind], planned("COUNT(*) AS n"), costs(BUDGETS[kind])
    draws = []
    for of in (cost, Cost(cost.units * second, cost.delta_units)):
        drawn = noise(made, budget, of)
        assert drawn.threshold is not None
        draws.append((of, drawn, *law(drawn.mechanisms[0])))
    threshold, spread = draws[0][1].threshold, draws[0][1].spread(0)
    assert threshold is not None
    for true in sorted({1, threshold // 2, *(round(threshold + k * spread) for k in (-2, -1.3, -0.7, 0, 1, 3))} - {0}):
        sides = [_shown(off + true, chance, drawn.threshold) for _, drawn, off, chance in draws]
        for confidence in (0.5, 0.95):
            held, total = _merged_held(made, budget, [each[0] for each in draws], sides, true, confidence)
            assert total > 0.99
            assert held / total >= confidence - 1e-9, (true, confidence, held / total)


def _shown(values: Any, chance: Any, threshold: int | None) -> tuple[Any, Any, int | None]:
    """The values that are shown, with their chances among these; not those of fewer than one in 10⁵."""
    there = values >= threshold
    values, chance = values[there], chance[there] / chance[there].sum()
    likely = chance > 1e-5 * chance.max()
    return values[likely], chance[likely], threshold


def _merged_held(
    made: NoisePlan, budget: Budget, costs_of: list[Cost], sides: list[Any], true: int, confidence: float
) -> tuple[float, float]:
    """How likely it is that the interval of both values merged holds the true count; and of all pairs together."""
    (left, p, low), (right, q, high) = sides
    pairs = [np.repeat(left, len(right)), np.tile(right, len(left))]
    groups = tuple((f"{i:07}",) for i in range(len(pairs[0])))
    one, other = (
        Released(groups, (values,), of, of, (of.units,) * len(groups), threshold)
        for values, of, threshold in zip(pairs, costs_of, (low, high), strict=True)
    )
    ends: dict[float, bool] = {}
    held = 0.0
    chances = np.outer(p, q).ravel()
    for [number], chance in zip(one.merged(other, budget).drawn(made, budget), chances.tolist(), strict=True):
        if number.values not in ends:
            found = made.recipes[0].estimate([number], confidence)
            assert found.low is not None
            assert found.high is not None
            ends[number.values] = found.low <= true <= found.high
        held += chance * ends[number.values]
    return held, float(chances.sum())


def test_after_three_draws_of_which_some_show_a_key_the_interval_begins_at_one() -> None:
    """1 + 1 and 2 buy the same precision under zCDP: which of the draws showed it cannot be told afterwards."""
    budget, made = BUDGETS["zcdp"], planned("COUNT(*) AS n")
    cost = costs(budget)
    twice = Cost(2 * cost.units, cost.delta_units)
    threshold = noise(made, budget, cost).threshold

    def one(of: Cost, *groups: str) -> Released:
        return Released(
            tuple((g,) for g in groups), (np.full(len(groups), 1000),), of, of, (of.units,) * len(groups), threshold
        )

    whole = one(cost, "both").merged(one(cost, "both"), budget).merged(one(twice, "both", "one"), budget)
    found = {
        group: made.recipes[0].estimate([drawn], 0.95)
        for group, [drawn] in zip(whole.groups, whole.drawn(made, budget), strict=True)
    }
    assert found[("one",)].low == 1
    assert found[("both",)].low is not None
    assert found[("both",)].low > 900


@pytest.mark.parametrize("shape", Shape)
@pytest.mark.parametrize("width", [0.7, 3.0, 40.0])
def test_the_tail_of_whole_noise(shape: Shape, width: float) -> None:
    """Against 40 digits, from the definitions, far out as well."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(40):
        r = mpmath.exp(-1 / mpmath.mpf(width))
        for at in (-500, -30, -1, 0, 1, 2, 7, 35, 200, 2000):
            if shape is Shape.LAPLACE:
                exact = r**at / (1 + r) if at >= 1 else 1 - r ** (1 - at) / (1 + r)
            else:
                exact = mpmath.erfc((mpmath.mpf(at) - 0.5) / mpmath.mpf(width) / mpmath.sqrt(2)) / 2
            assert law_of(shape).log_tail(width, at) == pytest.approx(float(mpmath.log(exact)), rel=1e-9, abs=1e-12)
    assert not math.isnan(law_of(shape).log_tail(width, 10**9))
