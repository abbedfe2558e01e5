"""Selections: their laws at 60 digits on all small neighbours, samples against these laws, errors against them.

The reference laws (`exact_laws`) are integrals in closed form and enumerations of all orders; they share no code with
the library.
"""

from __future__ import annotations

import collections
import itertools
import math
import pickle
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from deniable import curves, noise
from deniable.errors import InvalidOperation, InvalidParameter, NotPrivateWarning
from deniable.mechanisms import Laplace, limits
from deniable.mechanisms.exact_choice import (
    RealNoise,
    choose,
    exceeds,
    exponential_race,
    highest,
    laplace_noise,
    laplace_race,
)
from deniable.mechanisms.selection import (
    Exponential,
    MonotoneExponential,
    MonotoneNoisyMax,
    MonotonePermuteAndFlip,
    NoisyMax,
    OneShotTopK,
    PermuteAndFlip,
    Selection,
    TopK,
)
from deniable.noise import ReplayEntropy
from tests.mechanisms import exact_laws
from tests.table import every_row
from tests.wording import worded

pytestmark = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")

GENERAL = [Exponential, PermuteAndFlip, NoisyMax]
MONOTONE = [MonotoneExponential, MonotonePermuteAndFlip, MonotoneNoisyMax]
EVERY = [*GENERAL, *MONOTONE]
every = pytest.mark.parametrize("kind", EVERY)

LAWS: dict[type[Selection], Callable[[Sequence[Any], Any], list[mpf]]] = {}
for _kinds, _law in (
    ((Exponential, MonotoneExponential), exact_laws.softmax),
    ((PermuteAndFlip, MonotonePermuteAndFlip), exact_laws.flips),
    ((NoisyMax, MonotoneNoisyMax), lambda scores, scale: exact_laws.largest(scores, scale, "laplace")),
):
    LAWS.update(dict.fromkeys(_kinds, _law))


@cache
def law(kind: type[Selection], scores: tuple[Any, ...], scale: Fraction) -> list[mpf]:
    return LAWS[kind](scores, scale)


def drawn(mechanism: Any, scores: Any, draws: int, seed: int) -> collections.Counter[Any]:
    source = ReplayEntropy(seed)
    return collections.Counter(mechanism.release(scores, entropy=source) for _ in range(draws))


# -- the promise, by enumeration -------------------------------------------------------------------------------------


@every
def test_no_pair_of_neighbours_loses_more_than_the_curve_says(kind: type[Selection]) -> None:
    """All whole-number scores 0..2 of three candidates, against all that each move by -1, 0, 1 (monotone: 0, 1)."""
    mechanism = kind(sensitivity=1, epsilon=Fraction(7, 10))
    promised = exact_laws.number(Fraction(7, 10))
    worst = spread = mpf(0)
    deltas = dict.fromkeys((0.0, 0.2, 0.5, 0.65), 0.0)
    for scores, moved in exact_laws.neighbours(2, 3, (-1, 0, 1) if kind in GENERAL else (0, 1)):
        before, after = law(kind, scores, mechanism.scale), law(kind, moved, mechanism.scale)
        loss = exact_laws.losses(before, after)
        deltas = {e: max(known, exact_laws.worst_delta(before, after, e)) for e, known in deltas.items()}
        worst = max(worst, *(abs(v) for v in loss))
        spread = max(spread, max(loss) - min(loss))
    assert worst <= promised * (1 + mpf(10) ** -40)
    assert all(found <= mechanism.curve.delta(epsilon=e) * (1 + 1e-12) for e, found in deltas.items())
    if kind in (Exponential, MonotoneExponential):
        assert abs(spread - promised) < mpf(10) ** -40, "bounded range is attained"
    elif kind in (PermuteAndFlip, MonotonePermuteAndFlip):
        assert worst > 0.93 * promised


@pytest.mark.parametrize("kind", [PermuteAndFlip, MonotonePermuteAndFlip])
def test_permute_and_flip_attains_its_epsilon_and_is_not_bounded_range(kind: type[Selection]) -> None:
    mechanism = kind(sensitivity=1, epsilon=1)
    moved = (1, 9) if kind is PermuteAndFlip else (0, 11)
    before, after = (0, 10), moved
    loss = exact_laws.losses(law(kind, before, mechanism.scale), law(kind, after, mechanism.scale))
    assert abs(max(map(abs, loss)) - 1) < mpf(10) ** -40
    assert max(loss) - min(loss) > 1
    assert mechanism.curve == curves.laplace(scale=1)


@pytest.mark.parametrize("kind", [NoisyMax, MonotoneNoisyMax])
def test_noisy_max_comes_as_near_to_its_epsilon_as_one_likes(kind: type[Selection]) -> None:
    mechanism = kind(sensitivity=1, epsilon=1)
    far = 200
    moved = (1, far - 1) if kind is NoisyMax else (1, far)
    loss = exact_laws.losses(law(kind, moved, mechanism.scale), law(kind, (0, far), mechanism.scale))
    assert 0.99 < loss[0] < 1


def test_the_curve_of_the_exponential_mechanism_holds_at_every_epsilon_and_is_attained() -> None:
    """δ(l) of two candidates, over all gaps: never above curves.exponential, and equal to it at the best gap."""
    mechanism = Exponential(sensitivity=1, epsilon=1)
    assert mechanism.curve == curves.exponential(epsilon=1.0)
    for loss in (Fraction(0), Fraction(1, 4), Fraction(3, 4)):
        claimed = mechanism.curve.delta(epsilon=float(loss))
        best = mpf(0)
        for gap in (Fraction(j, 16) for j in range(-160, 161)):
            p, q = (law(Exponential, pair, mechanism.scale) for pair in ((1, gap - 1), (0, gap)))
            best = max(best, exact_laws.delta(p, q, loss))
        assert best <= claimed
        assert best > claimed * (1 - 1e-3)


def test_three_candidates_stay_below_the_curve_of_the_exponential_mechanism() -> None:
    mechanism = Exponential(sensitivity=1, epsilon=1)
    claims = {loss: mechanism.curve.delta(epsilon=float(loss)) for loss in (Fraction(0), Fraction(1, 2))}
    for scores, moved in exact_laws.neighbours(2, 3, (-1, 0, 1)):
        p, q = law(Exponential, scores, mechanism.scale), law(Exponential, moved, mechanism.scale)
        for loss, claim in claims.items():
            assert exact_laws.delta(p, q, loss) <= claim


def test_fact_b2_noisy_max_with_the_monotone_noise_breaks_its_promise_on_general_scores() -> None:
    """Gap 8 becomes gap 6: the second candidate's chance changes by 5.911 > e. The general form promises e²."""
    monotone, general = MonotoneNoisyMax(sensitivity=1, scale=1), NoisyMax(sensitivity=1, scale=1)
    ratio = monotone.overtakes(gap=6) / monotone.overtakes(gap=8)
    assert ratio == pytest.approx(5.91124487914452, rel=1e-13)
    assert math.log(ratio) == pytest.approx(1.77685644868579, rel=1e-13)
    assert monotone.curve.epsilon(delta=0.0) == 1 < math.log(ratio) < general.curve.epsilon(delta=0.0) == 2
    by_law = law(NoisyMax, (1, 7), Fraction(1))[0] / law(NoisyMax, (0, 8), Fraction(1))[0]
    assert abs(by_law - mpf("5.91124487914452")) < mpf("1e-13")


def test_the_exponential_mechanism_without_the_half_breaks_its_promise_on_general_scores() -> None:
    """The zoo's row 10: ⟨0, 1⁹⟩ against ⟨1, 0⁹⟩ at ε = 1 loses 1.776."""
    scale = MonotoneExponential(sensitivity=1, epsilon=1).scale
    p, q = (law(MonotoneExponential, s, scale) for s in ((1, *[0] * 9), (0, *[1] * 9)))
    assert float(exact_laws.losses(p, q)[0]) == pytest.approx(1.776, abs=1e-3)


# -- the law, by samples ---------------------------------------------------------------------------------------------

SCORES = (0, 2.5, Fraction(13, 2), -1.25)
DRAWS = 12_000


@pytest.mark.parametrize(
    "kind", [pytest.param(one, marks=pytest.mark.slow) if one.__name__.startswith("Monotone") else one for one in EVERY]
)
def test_samples_follow_the_exact_law_and_not_that_of_noise_wrong_by_a_fifth(kind: type[Selection]) -> None:
    """False alarm 1e-9 (chi-square, 12,000 draws); the same draws reject scale × 1.2 and scale / 1.2."""
    mechanism = kind(sensitivity=1, scale=3)
    counts = drawn(mechanism, list(SCORES), DRAWS, seed=20)
    listed = [counts[i] for i in range(4)]
    truth = law(kind, SCORES, Fraction(3))
    assert exact_laws.chi_square(listed, truth) < 1
    for wrong in (Fraction(18, 5), Fraction(5, 2)):
        assert exact_laws.rejects(listed, law(kind, SCORES, wrong), truth)


@every
def test_probabilities_are_the_law(kind: type[Selection]) -> None:
    for scores in ((0,), (1, 1), (0, 1, 3), SCORES, (-40, 0, 35.5), (0.1, 0.2, 0.3, 0.4, 0.5)):
        mechanism = kind(sensitivity=2, epsilon=0.5)
        expected = [float(p) for p in law(kind, scores, mechanism.scale)]
        np.testing.assert_allclose(mechanism.probabilities(list(scores)), expected, rtol=1e-12, atol=1e-25)


def test_real_noise_has_independent_digits_of_the_right_odds() -> None:
    """Exponential noise cut to 16 cells of scale/128 and the rest: chi-square, false alarm 1e-9, 20,000 draws."""
    source, cells = ReplayEntropy(3), collections.Counter[int]()
    for number in exponential_race([Fraction(0)] * 20_000, Fraction(1), 20_000, source).values():
        number.refine(source)
        cells[min(int(number.low * 128), 16)] += 1
    step = mpmath.exp(-mpf(1) / 128)
    expected = [step**k * (1 - step) for k in range(16)] + [step**16]
    assert exact_laws.chi_square([cells[k] for k in range(17)], expected) < 1


def test_each_digit_has_the_odds_of_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digit j is 1 with odds e^(-2^-j/64). (Odds that stayed the same would not show in cells of scale/128.)"""
    asked: list[Fraction] = []
    monkeypatch.setattr(noise, "bernoulli", lambda **_: True)
    monkeypatch.setattr(noise, "bernoulli_exp", lambda *, x, entropy: asked.append(x) or True)
    number = RealNoise(Fraction(0), Fraction(1), 3, True)
    for _ in range(6):
        number.refine(None)
    assert asked == [Fraction(1, 128 << j) for j in range(6)]


def test_refining_halves_the_interval_and_stays_inside() -> None:
    source = ReplayEntropy(5)
    for number in laplace_race([Fraction(1, 3)] * 200, Fraction(7, 5), 200, source).values():
        for _ in range(12):
            low, high = number.low, number.high
            number.refine(source)
            assert low <= number.low < number.high <= high
            assert number.high - number.low == (high - low) / 2


@pytest.mark.slow
def test_two_equal_centres_are_told_apart_and_each_wins_half_the_time() -> None:
    source, wins = ReplayEntropy(6), 0
    for _ in range(4000):
        one, other = (laplace_noise(Fraction(5), Fraction(1, 10**9), source) for _ in range(2))
        wins += exceeds(one, other, source)
    assert exact_laws.chi_square([wins, 4000 - wins], [0.5, 0.5]) < 1
    rises = RealNoise(Fraction(0), Fraction(1), 3, True)
    falls = RealNoise(Fraction(0), Fraction(1), 3, False)
    assert exceeds(rises, falls, source)


@pytest.mark.slow
@given(
    scores=st.lists(st.fractions(-(10**30), 10**30) | st.floats(-1e12, 1e12).map(Fraction), min_size=1, max_size=6),
    scale=st.fractions(Fraction(1, 10**20), 10**20),
)
@settings(max_examples=150, deadline=None)
def test_a_choice_never_asks_for_a_coin_above_one(scores: list[Fraction], scale: Fraction) -> None:
    """The floats that a choice draws with lie above the exponents that they stand for, whatever is rounded."""
    source = ReplayEntropy(1)
    assert all(0 <= choose(scores, scale, source) < len(scores) for _ in range(4))


@pytest.mark.parametrize("size", [1, 10**30, Fraction(1, 10**300), 10**320], ids=["1", "1e30", "1e-300", "1e320"])
def test_what_floats_set_aside_had_lost(size: Any) -> None:
    """The race without any floats, on the same noise, has the same three winners."""
    for seed in range(40):
        centres = [Fraction(j * j % 11, 7) * size for j in range(40)]
        race = laplace_race(centres, Fraction(size) / 3, 3, ReplayEntropy(seed))
        everyone = laplace_race(centres, Fraction(size) / 3, 40, ReplayEntropy(seed))
        assert set(race) <= set(everyone) == set(range(40))
        assert all(race[i].low == everyone[i].low for i in race)
        third = sorted((number.low for number in everyone.values()), reverse=True)[2]
        assert all(everyone[i].high < third for i in set(everyone) - set(race))
        source, found = ReplayEntropy(seed + 100), []
        for _ in range(3):
            found.append(highest(race, source))
            del race[found[-1]]
        assert len(set(found)) == 3


@pytest.mark.slow
def test_a_choice_is_exact_where_floats_round_and_where_they_end() -> None:
    """Scales that no float holds, weights beside them, exponents beyond floats. False alarm 1e-9, 6,000 draws."""
    source = ReplayEntropy(17)
    scores, weights, scale = (
        [Fraction(1, 3), Fraction(-1, 7), Fraction(2)],
        [Fraction(5, 3), Fraction(4), Fraction(1)],
        Fraction(10, 7),
    )
    masses = [
        exact_laws.number(w) * mpmath.exp(exact_laws.number(u / scale)) for u, w in zip(scores, weights, strict=True)
    ]
    counts = collections.Counter(choose(scores, scale, source, weights=weights) for _ in range(6000))
    assert exact_laws.chi_square([counts[i] for i in range(3)], [m / mpmath.fsum(masses) for m in masses]) < 1
    for tiny in (Fraction(1, 3 * 10**320), Fraction(1, 3 * 10**400)):
        for width in (Fraction(1, 10**119), Fraction(1), Fraction(10**119)):
            assert choose([tiny, -tiny, 2 * tiny], width, source) in (0, 1, 2)
    far = [Fraction(10**400), Fraction(10**400) + 1, Fraction(0)]
    counts = collections.Counter(choose(far, Fraction(1), source) for _ in range(2000))
    assert exact_laws.chi_square([counts[i] for i in range(2)], exact_laws.softmax([0, 1], 1)) < 1


# -- several winners -------------------------------------------------------------------------------------------------


def gumbel_two(scores: Sequence[Any], scale: Any) -> dict[tuple[int, int], mpf]:
    """One-shot Gumbel noise, by its known law: the exponential mechanism, then again on what is left."""
    found = {}
    for i, j in itertools.permutations(range(len(scores)), 2):
        left = [k for k in range(len(scores)) if k != i]
        second = exact_laws.softmax([scores[k] for k in left], scale)[left.index(j)]
        found[i, j] = exact_laws.softmax(scores, scale)[i] * second
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", [MonotonePermuteAndFlip, PermuteAndFlip, NoisyMax, MonotoneNoisyMax])
def test_one_shot_costs_no_more_than_count_times_epsilon(kind: type[Any]) -> None:
    """The ordered two largest of three, on all neighbours of scores 0..1: exact losses."""
    top = OneShotTopK(kind(sensitivity=1, epsilon=1), count=2)
    noise_kind = "laplace" if kind in (NoisyMax, MonotoneNoisyMax) else "exponential"
    laws: dict[Any, dict[tuple[int, int], mpf]] = {}
    worst = mpf(0)
    for scores, moved in exact_laws.neighbours(1, 3, (-1, 0, 1) if kind in GENERAL else (0, 1)):
        for one in (scores, moved):
            if one not in laws:
                laws[one] = exact_laws.largest_two(one, top.selector.scale, noise_kind)
        for epsilon in (0.0, 0.7, 1.5):
            assert exact_laws.worst_delta(laws[scores], laws[moved], epsilon) <= top.curve.delta(epsilon=epsilon)
        worst = max(worst, *(abs(v) for v in exact_laws.losses(laws[scores], laws[moved])))
    assert worst <= 2 + mpf(10) ** -40
    if noise_kind == "exponential":
        assert worst > 2 - mpf(10) ** -40, "attained"
    assert top.curve == curves.laplace(scale=0.5)


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        pytest.param(TopK(Exponential(sensitivity=1, scale=3), count=2), gumbel_two(SCORES, 3), marks=pytest.mark.slow),
        pytest.param(
            OneShotTopK(PermuteAndFlip(sensitivity=1, scale=3), count=2),
            exact_laws.largest_two(SCORES, 3, "exponential"),
            marks=pytest.mark.slow,
        ),
        (OneShotTopK(NoisyMax(sensitivity=1, scale=3), count=2), exact_laws.largest_two(SCORES, 3, "laplace")),
    ],
    ids=["peeling", "one-shot exponential", "one-shot laplace"],
)
def test_top_two_follow_their_exact_law(top: Any, expected: dict[tuple[int, int], mpf]) -> None:
    """False alarm 1e-9, 6,000 draws; the order of the first two swapped must be rejected."""
    counts = drawn(top, list(SCORES), 6000, seed=8)
    listed = [counts[pair] for pair in expected]
    assert sum(listed) == 6000
    assert exact_laws.chi_square(listed, list(expected.values())) < 1
    assert exact_laws.rejects(listed, [expected[j, i] for i, j in expected], list(expected.values()))


def test_one_shot_of_one_is_permute_and_flip() -> None:
    """Exponential noise and permute-and-flip have one law (Ding et al. 2021), by two different formulas."""
    for scores in ((0, 1, 3), SCORES):
        by_noise = exact_laws.largest(scores, 4, "exponential")
        by_coins = exact_laws.flips(scores, 4)
        assert max(abs(a - b) for a, b in zip(by_noise, by_coins, strict=True)) < mpf(10) ** -45


def test_peeling_multiplies_the_selectors_curve() -> None:
    selector = MonotoneExponential(sensitivity=1, epsilon=0.1)
    assert TopK(selector, count=5).curve == curves.exponential(epsilon=0.1) ** 5
    assert TopK(selector, count=3).release([0, 0, 1000])[0] == 2
    assert sorted(TopK(selector, count=3).release([0, 0, 1000])) == [0, 1, 2]


# -- errors ----------------------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_errors_cover_at_the_stated_rate_on_the_worst_scores(kind: type[Selection], confidence: float) -> None:
    """One candidate is best and all others miss by a hair more than the error: the exact chance of that is at most
    1 - confidence, and for the exponential mechanism and permute-and-flip no smaller error would do.
    """
    count = 5
    mechanism = kind(sensitivity=1, epsilon=1, candidates=count)
    bound = Fraction(mechanism.error(confidence=confidence))
    for others in range(1, count):
        scores = (bound, *[Fraction(0)] * others, *[bound] * (count - 1 - others))
        found = law(kind, scores, mechanism.scale)
        missed = mpmath.fsum(p for p, u in zip(found, scores, strict=True) if u == 0)
        assert missed <= 1 - confidence + 1e-12
        if others == count - 1 and kind not in (NoisyMax, MonotoneNoisyMax):
            assert missed > (1 - confidence) * (1 - 1e-9)


@pytest.mark.parametrize("make", [lambda s: TopK(s, count=2), lambda s: OneShotTopK(s, count=2)])
def test_the_error_of_the_top_two_covers(make: Callable[[Any], Any]) -> None:
    """Exact law of the one-shot exponential noise; for peeling, the same first pick and a fresh second one."""
    selector = MonotonePermuteAndFlip(sensitivity=1, epsilon=1, candidates=4)
    top = make(selector)
    bound = Fraction(top.error(confidence=0.9))
    scores = (2 * bound, bound, Fraction(0), -bound)
    ranked = sorted(scores, reverse=True)
    if isinstance(top, OneShotTopK):
        found = exact_laws.largest_two(scores, selector.scale, "exponential")
    else:
        first = exact_laws.flips(scores, selector.scale)
        found = {}
        for i, j in itertools.permutations(range(4), 2):
            left = [k for k in range(4) if k != i]
            found[i, j] = first[i] * exact_laws.flips([scores[k] for k in left], selector.scale)[left.index(j)]
    good = [p for pair, p in found.items() if all(scores[w] >= ranked[k] - bound for k, w in enumerate(pair))]
    assert mpmath.fsum(good) >= 0.9


def test_permute_and_flip_never_has_the_larger_error() -> None:
    for count, confidence in itertools.product((2, 10, 10**6), (0.1, 0.9, 1 - 1e-9)):
        flip, exponential = (
            kind(sensitivity=1, epsilon=1, candidates=count).error(confidence=confidence)
            for kind in (PermuteAndFlip, Exponential)
        )
        assert flip <= exponential


@every
def test_error_needs_the_number_of_candidates(kind: type[Selection]) -> None:
    with pytest.raises(InvalidOperation, match="candidates="):
        kind(sensitivity=1, epsilon=1).error(confidence=0.9)
    assert kind(sensitivity=1, epsilon=1, candidates=1).error(confidence=0.99) == 0


# -- facts -----------------------------------------------------------------------------------------------------------


def test_fact_the_utility_of_the_binary_median_has_sensitivity_one() -> None:
    n = 11
    utilities = {s: [(2 * y - 1) * (s - Fraction(n, 2)) for y in (0, 1)] for s in range(n + 1)}
    assert max(abs(utilities[s][y] - utilities[s + 1][y]) for s in range(n) for y in (0, 1)) == 1


def test_fact_binary_median_by_the_exponential_mechanism() -> None:
    mechanism = Exponential(sensitivity=1, epsilon=0.5)
    assert mechanism.probabilities([-2.5, 2.5])[1] == pytest.approx(0.777299861174691, rel=1e-14)
    # |s - n/2| >= 3/ε is right with probability at least 1/(1 + e^-3)
    assert mechanism.probabilities([-6, 6])[1] == pytest.approx(0.952574126822433, rel=1e-14)


def test_fact_exponential_mechanism() -> None:
    mechanism = Exponential(sensitivity=1, epsilon=0.5)
    assert mechanism.probabilities([0, 1, 3])[2] == pytest.approx(0.48102426325337, rel=1e-13)


def test_fact_exponential_mechanism_utility() -> None:
    gap = 10.5966347330961
    textbook = limits.exponential_utility(candidates=10, sensitivity=1, epsilon=1, gap=gap)
    assert textbook == pytest.approx(0.05, rel=1e-12)
    assert 2 * math.log(10 / 0.05) == pytest.approx(gap, rel=1e-14)
    mechanism = Exponential(sensitivity=1, epsilon=1, candidates=10)
    assert mechanism.error(confidence=0.95) == pytest.approx(2 * math.log(9 * 0.95 / 0.05), rel=1e-11)
    assert mechanism.error(confidence=0.95) < gap


def test_fact_median_utility_bound() -> None:
    bound = limits.exponential_utility(candidates=2, sensitivity=1, epsilon=0.5, gap=5)
    assert bound == pytest.approx(0.57300959372038, rel=1e-11)
    missed = Exponential(sensitivity=1, epsilon=0.5).probabilities([-2.5, 2.5])[0]
    assert missed == pytest.approx(0.222700138825309, rel=1e-13)
    assert missed <= bound


def test_fact_laplace_noise_is_an_exponential_mechanism_whose_normaliser_is_constant() -> None:
    """u = -|y - f|, no factor 2: on a fine grid the weight of a cell at 0 is its width times the density 1/2."""
    step, reach = Fraction(1, 64), 40
    grid = [j * step for j in range(-reach * 64, reach * 64 + 1)]
    found = MonotoneExponential(sensitivity=1, epsilon=1).probabilities([-abs(y) for y in grid])
    assert found.max() / float(step) == pytest.approx(0.5, rel=1e-4)


def test_fact_the_noisy_value_of_the_maximum() -> None:
    """The largest of numbers in [0, 1] has sensitivity 1; with Laplace noise at ε = 1 its mean squared error is 2."""
    steps = [Fraction(j, 4) for j in range(5)]
    moved = [abs(max(rows) - max(*rows[1:], other)) for rows in itertools.product(steps, repeat=3) for other in steps]
    assert max(moved) == 1
    noisy = Laplace(sensitivity=1.0, epsilon=1)
    scale = noisy.error(confidence=1 - math.exp(-1))  # P(|noise| > x) = e^(-x/scale)
    assert 2 * scale**2 == pytest.approx(2, rel=1e-6)


def test_fact_report_noisy_max() -> None:
    assert MonotoneNoisyMax(sensitivity=1, epsilon=1).overtakes(gap=1) == pytest.approx(0.275909580878582, rel=1e-14)
    assert MonotoneNoisyMax(sensitivity=1, epsilon=1).probabilities([0, 1])[0] == pytest.approx(
        0.275909580878582, rel=1e-12
    )
    assert NoisyMax(sensitivity=1, epsilon=2).scale == MonotoneNoisyMax(sensitivity=1, epsilon=1).scale == 1


# -- values and parameters -------------------------------------------------------------------------------------------


@every
def test_scores_may_be_any_numbers(kind: type[Selection]) -> None:
    import pandas as pd
    import polars as pl

    mechanism = kind(sensitivity=Decimal("0.5"), epsilon=Fraction(1, 3), candidates=3)
    for scores in (
        [0, 1, 10**400],
        (0.0, -1e300, 5e-324),
        np.array([1, 2, 3], dtype=np.uint8),
        np.array([1, 2, 3], dtype=np.float32),
        np.array([2**63 - 1, -(2**63), 0]),
        pd.Series([1.0, 2.0, 3.0]),
        pl.Series([1, 2, 3]),
        [Fraction(1, 3), Decimal("0.1"), 2],
    ):
        assert mechanism.release(scores) in (0, 1, 2)
    assert type(mechanism.release([1, 2, 3])) is int
    assert mechanism.release([0, 10**9, 0]) == 1


NOT_SCORES: list[Any] = [
    None, 3, "123", b"123", [], {}, {"a": 1}, {1, 2, 3}, [1, 2], [1, 2, 3, 4], [[1, 2, 3]], [1, 2, None],
    [1, 2, "31337"], [1, 2, math.nan], [1, 2, math.inf], np.array([1, 2, math.nan]), [1j, 2, 3], [True, False, True],
    np.zeros((3, 3)), np.array(["a", "b", "c"]), [1, 2, Decimal("nan")], [[1], [2, 3], 4],
]  # fmt: skip


@every_row((kind, scores) for kind in EVERY for scores in NOT_SCORES)
def test_bad_scores_are_refused_and_not_shown(kind: type[Selection], scores: Any) -> None:
    with pytest.raises(InvalidParameter) as refused:
        kind(sensitivity=1, epsilon=1, candidates=3).release(scores)
    assert "31337" not in str(refused.value)
    assert refused.value.parameter == "value"
    assert "nan" not in str(refused.value).lower().replace("nan and infinities", "")


NOT_PARAMETERS: list[dict[str, Any]] = [
    {"sensitivity": 0, "epsilon": 1}, {"sensitivity": -1, "epsilon": 1}, {"sensitivity": math.nan, "epsilon": 1},
    {"sensitivity": 1, "epsilon": 0}, {"sensitivity": 1, "epsilon": -1}, {"sensitivity": 1, "epsilon": math.inf},
    {"sensitivity": 1}, {"sensitivity": 1, "epsilon": 1, "scale": 1}, {"sensitivity": 1, "scale": 0},
    {"sensitivity": True, "epsilon": 1}, {"sensitivity": "1", "epsilon": 1}, {"sensitivity": 1, "epsilon": "1"},
    {"sensitivity": 1, "epsilon": 1, "candidates": 0}, {"sensitivity": 1, "epsilon": 1, "candidates": 2.5},
    {"sensitivity": 1, "epsilon": 1e-200}, {"sensitivity": 1, "epsilon": 1e200},
]  # fmt: skip


@every_row((kind, bad) for kind in EVERY for bad in NOT_PARAMETERS)
def test_bad_parameters_are_refused(kind: type[Selection], bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        kind(**bad)


def test_bad_top_counts_are_refused() -> None:
    selector = PermuteAndFlip(sensitivity=1, epsilon=1, candidates=3)
    for kind in (TopK, OneShotTopK):
        for count in (0, 4, 1.5, True):
            with pytest.raises(InvalidParameter):
                kind(selector, count=count)
        with worded(InvalidParameter):
            kind(PermuteAndFlip(sensitivity=1, epsilon=1), count=2).release([1])
        with pytest.raises(InvalidOperation, match="candidates="):
            kind(PermuteAndFlip(sensitivity=1, epsilon=1), count=2).error(confidence=0.5)
        with pytest.raises(InvalidParameter, match="selector"):
            kind("Exponential", count=2)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="Gumbel"):
        OneShotTopK(Exponential(sensitivity=1, epsilon=1), count=2)  # type: ignore[arg-type]


@every
def test_a_selection_is_a_value(kind: type[Selection]) -> None:
    mechanism = kind(sensitivity=1, epsilon=0.5, candidates=3)
    again = pickle.loads(pickle.dumps(mechanism))
    assert again == mechanism
    assert hash(again) == hash(mechanism)
    assert repr(mechanism) == f"{kind.__name__}(sensitivity=1, epsilon=0.5, candidates=3)"
    assert mechanism == kind(sensitivity=1, scale=mechanism.scale, candidates=3)
    assert mechanism != kind(sensitivity=1, epsilon=0.5)
    with pytest.raises(AttributeError):
        mechanism.scale = Fraction(1)  # type: ignore[misc]
    assert (mechanism * mechanism).curve == (mechanism**2).curve == mechanism.curve**2
    assert len((mechanism**3).release([1, 2, 3])) == 3
    assert mechanism.epsilon == 0.5


@given(
    epsilon=st.fractions(min_value=Fraction(1, 10**6), max_value=50),
    sensitivity=st.floats(min_value=1e-6, max_value=1e6),
    kind=st.sampled_from(EVERY),
)
@settings(max_examples=60, deadline=None)
def test_the_curve_is_never_below_what_is_sampled(epsilon: Fraction, sensitivity: float, kind: type[Selection]) -> None:
    mechanism = kind(sensitivity=sensitivity, epsilon=epsilon)
    assert Fraction(mechanism.epsilon) >= kind.span * Fraction(sensitivity) / mechanism.scale == epsilon
    assert mechanism.epsilon <= float(epsilon) * (1 + 1e-15)


def test_replayed_entropy_warns_and_replays() -> None:
    mechanism = NoisyMax(sensitivity=1, epsilon=1)
    with pytest.warns(NotPrivateWarning):
        first = mechanism.release([1, 2, 3], entropy=ReplayEntropy(1))
    assert first == mechanism.release([1, 2, 3], entropy=ReplayEntropy(1))


def test_one_score_does_not_round_the_others() -> None:
    """2⁶⁰ + 100 and 2⁶⁰ are different scores, also beside a float."""
    for last in (0, 0.5, Fraction(1, 3)):
        winners = {NoisyMax(sensitivity=1, epsilon=1).release([2**60 + 100, 2**60, last]) for _ in range(50)}
        assert winners == {0}


def test_a_list_of_candidates_is_not_their_number() -> None:
    with worded(InvalidParameter, parameter="candidates"):
        Exponential(sensitivity=1, epsilon=1, candidates=["a", "b"])  # type: ignore[arg-type]
