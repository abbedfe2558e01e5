"""Microsoft's memoised means: laws by enumeration, what a memory costs, and what it does not hide."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from deniable import curves, local
from deniable.errors import InvalidParameter
from deniable.local import memoised_means
from deniable.local.memoised_means import MeanMemory
from tests.local import enumeration

HALF = Fraction(1, 2)


def protocol(**changed) -> local.MemoisedMean:  # type: ignore[no-untyped-def]
    return local.MemoisedMean(**{"low": 0, "high": 10, "epsilon": 1.0, "points": 5, "flip": Fraction(1, 5)} | changed)


def series_law(numbers: list[Fraction], *, points: int, odds: Fraction, flip: Fraction, starts: int) -> dict:  # type: ignore[type-arg]
    """The exact law of the reports on a series of numbers (in steps between points), over all starts and all bits.

    Written from the paper: no line of it is ours.
    """
    law: dict[tuple[int, ...], Fraction] = {}
    for start in range(starts):
        alpha = Fraction(start, starts)
        rounded = [int(x) + (1 if x - int(x) + alpha >= 1 else 0) for x in numbers]
        used = sorted(set(rounded))
        chances = [(1 + Fraction(k, points) * (odds - 1)) / (odds + 1) for k in used]
        for bits in itertools.product((0, 1), repeat=len(used)):
            weight = Fraction(1, starts)
            for bit, chance in zip(bits, chances, strict=True):
                weight *= chance if bit else 1 - chance
            shown = dict(zip(used, bits, strict=True))
            for reports in itertools.product((0, 1), repeat=len(numbers)):
                mass = weight
                for told, place in zip(reports, rounded, strict=True):
                    mass *= 1 - flip if told == shown[place] else flip
                law[reports] = law.get(reports, Fraction(0)) + mass
    return law


def worst_ratio(one: dict, two: dict) -> Fraction:  # type: ignore[type-arg]
    return max(max(one[r] / two[r], two[r] / one[r]) for r in one)


def test_alpha_rounding_keeps_the_mean_of_every_number() -> None:
    for x in (Fraction(0), Fraction(1, 4), Fraction(7, 4), Fraction(2)):
        law = series_law([x], points=2, odds=Fraction(3), flip=Fraction(1, 10), starts=4)
        plain = (1 + x / 2 * 2) / 4  # one report of Duchi's bit at odds 3
        assert law[(1,)] == Fraction(1, 10) + Fraction(8, 10) * plain


def test_reports_of_a_number_that_stays_cost_no_more_than_the_bit_remembered() -> None:
    grid = [Fraction(i, 2) for i in range(5)]
    for reports in (1, 2, 4):
        laws = [series_law([x] * reports, points=2, odds=Fraction(3), flip=Fraction(1, 10), starts=2) for x in grid]
        worst = max(worst_ratio(a, b) for a, b in itertools.combinations(laws, 2))
        assert worst <= 3
    made = protocol(epsilon=1.0)
    assert made.longitudinal == curves.randomized_response(epsilon=1.0)
    fresh = local.DuchiMean(low=0, high=10, epsilon=1.0).curve ** 365
    assert fresh.epsilon(delta=0) > 364 * made.longitudinal.epsilon(delta=0)


def test_reports_of_any_series_of_numbers_cost_what_the_flips_allow() -> None:
    flip, places = Fraction(1, 4), [Fraction(i) for i in range(3)]
    laws = [
        series_law(list(series), points=2, odds=Fraction(9), flip=flip, starts=1)
        for series in itertools.product(places, repeat=3)
    ]
    worst = max(worst_ratio(a, b) for a, b in itertools.combinations(laws, 2))
    claimed = local.MemoisedMean(low=0, high=2, epsilon=math.log(9), points=2, flip=flip).changing(reports=3)
    assert 9 < worst <= 27  # more than the memory alone would allow, and not more than is claimed
    assert claimed.epsilon(delta=0) == pytest.approx(math.log(27), rel=1e-12)
    assert math.log(worst) <= claimed.epsilon(delta=0)


def test_one_report_of_a_changing_number_costs_no_more_than_one_report() -> None:
    """The worst odds of one report, in fractions: kept twice or flipped twice, (9/10 · 3/4 + 1/10 · 1/4) : the rest."""
    daily = local.MemoisedMean(low=0, high=2, epsilon=math.log(3), points=2, flip=Fraction(1, 10))
    kept = Fraction(9, 10) * Fraction(3, 4) + Fraction(1, 10) * Fraction(1, 4)
    assert daily.changing(reports=1).epsilon(delta=0) == pytest.approx(math.log(kept / (1 - kept)), rel=1e-12)


def test_without_a_flip_a_change_is_seen_and_no_bound_is_given() -> None:
    stays = series_law([Fraction(0)] * 2, points=1, odds=Fraction(3), flip=Fraction(0), starts=1)
    moves = series_law([Fraction(0), Fraction(1)], points=1, odds=Fraction(3), flip=Fraction(0), starts=1)
    assert stays[(0, 1)] == 0 < moves[(0, 1)]
    with pytest.raises(InvalidParameter, match="flip") as refused:
        protocol(flip=0).changing(reports=2)
    assert "changed" in str(refused.value)
    assert protocol(flip=0).curve == protocol(flip=0).longitudinal


@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 1.0, 8.0, 50.0])
@pytest.mark.parametrize("flip", [0.01, 0.2, 0.49])
def test_one_report_costs_the_odds_of_its_bit(epsilon: float, flip: float) -> None:
    import mpmath

    with mpmath.workdps(60):
        big, g = mpmath.e ** mpmath.mpf(epsilon), mpmath.mpf(flip)
        truth = mpmath.log(((1 - g) * big + g) / ((1 - g) + g * big))
        told = protocol(epsilon=epsilon, flip=flip).curve.epsilon(delta=0)
        assert truth <= told <= truth * (1 + mpmath.mpf("1e-12"))


def test_reports_from_a_memory_have_the_law_and_the_variance_that_are_told() -> None:
    """40,000 people, z = 6.2 for each of six numbers: a false alarm once in 10⁸ runs and less."""
    people, made = 40_000, protocol(epsilon=2.0, flip=0.1)
    answers = np.tile([0.0, 1.3, 5.0, 9.9], people // 4)
    memory = made.memorize(people=people)
    days = [made.report(memory, answers) for _ in range(3)]
    big = math.exp(2)
    for day in days:
        for x in (0.0, 1.3, 5.0, 9.9):
            told = day[answers == x].mean()
            expected = 0.1 + 0.8 * (1 + x / 10 * (big - 1)) / (1 + big)
            assert abs(told - expected) < 6.2 * 0.5 / math.sqrt(people / 4)
        estimate = made.estimate(day)
        assert abs(estimate.value - answers.mean()) < 6.2 * estimate.standard_error
    # One memory: two days agree as often as two flips of one bit do, not as often as two fresh bits.
    agree = (days[0] == days[1]).mean()
    assert abs(agree - (0.9**2 + 0.1**2)) < 6.2 * 0.5 / math.sqrt(people)
    reach = (big + 1) / (big - 1) / 0.8
    assert made.variance(answer=5, people=1) == pytest.approx(25 * reach**2)


def test_a_memory_is_made_before_there_is_a_number_and_tells_nothing_of_itself() -> None:
    made = protocol()
    memory = made.memorize(people=2)
    assert memory.bits.shape == (2, 6)
    assert repr(memory) == "MeanMemory(people=2)"
    for wrong in (None, protocol(points=4).memorize(people=2), made.memorize(people=3)):
        with pytest.raises(InvalidParameter, match="memory"):
            made.report(wrong, [1.0, 2.0])  # type: ignore[arg-type]
    edges = MeanMemory(np.full(2, made.steps // made.points - 1), np.tile([True] * 6, (2, 1)))
    assert protocol(flip=0).report(edges, [0.0, 10.0]).tolist() == [1, 1]  # no answer falls off the grid


@pytest.mark.parametrize("changed", [{"points": 0}, {"points": 5000}, {"flip": 0.5}, {"flip": -0.1}, {"flip": 1e-30}])
def test_parameters_that_mean_nothing_are_refused(changed: dict[str, float]) -> None:
    with pytest.raises(InvalidParameter, match=next(iter(changed))):
        protocol(**changed)


def test_it_is_written_and_read_back() -> None:
    made = protocol()
    again = local.MemoisedMean(**{k: Fraction(v) if isinstance(v, str) else v for k, v in made.parameters().items()})  # type: ignore[arg-type]
    assert again == made
    assert made.decode(made.encode([0, 1, 1])).tolist() == [0, 1, 1]


def test_the_code_itself_has_the_law_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two reports from one memory, over all coins of `memorize` and `report`, for a series that stays and one that
    moves; the fine grid is made coarse so that all starts can be tried.
    """
    monkeypatch.setattr(memoised_means, "FINENESS", 4)
    chosen = local.MemoisedMean(low=0, high=4, epsilon=1.0, points=2, flip=Fraction(1, 5))
    odds = Fraction(chosen.odds.number)

    def told(first: float, second: float) -> Callable[[], tuple[int, int]]:
        def run() -> tuple[int, int]:
            monkeypatch.setattr(memoised_means, "FINENESS", 4)
            memory = chosen.memorize(people=1)
            return int(chosen.report(memory, [first])[0]), int(chosen.report(memory, [second])[0])

        return run

    for first, second in ((1.0, 1.0), (1.0, 3.0)):
        found = enumeration.law(told(first, second), monkeypatch)
        steps = [Fraction(x) / 2 for x in (first, second)]
        truth = series_law(steps, points=2, odds=odds, flip=Fraction(1, 5), starts=2)
        for reports, mass in truth.items():
            assert float(enumeration.digits(found[reports])) == pytest.approx(float(mass), rel=1e-12)
