"""RAPPOR: what one report, several reports, and any number of reports from one memory reveal."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from deniable import curves, local, noise
from deniable.errors import InvalidParameter
from deniable.local import rappor
from tests.local.enumeration import hockey_stick, largest_loss, law, mp
from tests.wording import worded

HALF, QUARTER, THREE_QUARTERS = Fraction(1, 2), Fraction(1, 4), Fraction(3, 4)
BASIC = local.Rappor(categories=10, f=HALF, p=HALF, q=THREE_QUARTERS)
FRUIT = ["pear", "plum", "fig"]
replayed = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")


def bloom(**changed) -> local.BloomRappor:
    return local.BloomRappor(
        **({"bits": 32, "hashes": 2, "cohorts": 8, "f": QUARTER, "p": QUARTER, "q": THREE_QUARTERS} | changed)
    )


def test_the_longitudinal_cost_is_2h_log_of_the_permanent_odds() -> None:
    """ε∞ = 2h ln((1 - f/2)/(f/2)), whatever p and q and however many reports."""
    for f in (0.1, 0.25, 0.5, 0.9):
        each = math.log((1 - f / 2) / (f / 2))
        basic = local.Rappor(categories=4, f=f, p=0.25, q=0.5)
        assert basic.longitudinal.epsilon(delta=0.0) == pytest.approx(2 * each, rel=1e-13)
        for hashes in (1, 2, 5):
            many = bloom(f=f, hashes=hashes).longitudinal
            assert many.epsilon(delta=0.0) == pytest.approx(2 * hashes * each, rel=1e-12)


def test_the_cost_of_one_report_is_h_log_of_the_reported_odds() -> None:
    """ε₁ = h log(q*(1-p*) / (p*(1-q*))) with q* = f(p+q)/2 + (1-f)q, p* = f(p+q)/2 + (1-f)p (Erlingsson et al. 2014)."""
    for f, p, q in ((0.5, 0.5, 0.75), (0.25, 0.25, 0.75), (0.75, 0.1, 0.6)):
        shown = f * (p + q) / 2 + (1 - f) * q
        made_up = f * (p + q) / 2 + (1 - f) * p
        each = math.log(shown * (1 - made_up) / (made_up * (1 - shown)))
        assert local.Rappor(categories=4, f=f, p=p, q=q).curve.epsilon(delta=0.0) == pytest.approx(each, rel=1e-12)
        assert bloom(f=f, p=p, q=q, hashes=3).curve.epsilon(delta=0.0) == pytest.approx(3 * each, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("reports", "p"), [(1, QUARTER), (2, 0)])
def test_several_reports_from_one_memory_enumerated(reports, p, monkeypatch) -> None:
    """Every coin of the permanent and of the instantaneous responses: the curve of `after` is that of the code."""
    protocol = local.Rappor(categories=2, f=HALF, p=p, q=THREE_QUARTERS)

    def run(answer: int) -> tuple[bytes, ...]:
        memory = protocol.memorize([answer])
        return tuple(protocol.report(memory).tobytes() for _ in range(reports))

    found = [law(lambda answer=answer: run(answer), monkeypatch, bits=2) for answer in (0, 1)]
    assert all(sum(masses.values()) == 1 for masses in found)
    curve = protocol.after(reports=reports)
    for epsilon in (0.0, 0.3, 0.8, 1.2):
        truth = max(hockey_stick(a, b, epsilon) for a, b in itertools.permutations(found))
        low, high = curve.delta_bounds(epsilon=epsilon)
        assert low <= truth <= high
        assert high - low < 1e-10
    worst = max(largest_loss(a, b) for a, b in itertools.permutations(found))
    assert curve.epsilon(delta=0.0) == pytest.approx(float(worst), rel=1e-12)
    assert curve.epsilon(delta=0.0) >= worst


def test_more_reports_reveal_more_but_never_more_than_the_memory() -> None:
    forever = BASIC.longitudinal
    before = 0.0
    for reports in (1, 2, 3, 5, 10, 30, 100, 500):
        curve = BASIC.after(reports=reports)
        now = curve.advantage()
        assert before < now <= forever.advantage() * (1 + 1e-9)
        assert curve.epsilon(delta=0.0) <= forever.epsilon(delta=0.0) * (1 + 1e-12)
        assert curve.epsilon(delta=1e-6) <= forever.epsilon(delta=1e-6) * (1 + 1e-9)
        before = now
    assert BASIC.after(reports=500).advantage() == pytest.approx(forever.advantage(), rel=1e-9)


def test_reports_without_a_memory_cost_as_often_as_they_are_made() -> None:
    """The broken variant of the zoo: T fresh reports are T ε₁, without bound; with the memory they stay below ε∞."""
    one = BASIC.curve.epsilon(delta=0.0)
    fresh = (BASIC.curve**20).epsilon(delta=0.0)
    assert fresh == pytest.approx(20 * one, rel=1e-9)
    assert fresh > 4 * BASIC.longitudinal.epsilon(delta=0.0) > 4 * BASIC.after(reports=20).epsilon(delta=0.0)


@pytest.mark.slow
@pytest.mark.parametrize(("p", "q"), [(0.5, 0.75), (0.49, 0.51), (0, 1)])
def test_outcomes_too_light_for_floats_stay_on_the_safe_side(p, q) -> None:
    """1500 reports: the exact largest loss, from Fractions, is not undershot, nor is the memory's overshot."""
    protocol = local.Rappor(categories=3, f=Fraction(1, 3), p=p, q=q)
    curve, coins = protocol.after(reports=1500), protocol.coins
    right, wrong = 1 - coins.f / 2, coins.f / 2
    often, rarely = coins.q**1500, coins.p**1500
    all_set = (right * often + wrong * rarely) / (wrong * often + right * rarely)
    none, made_up = (1 - coins.q) ** 1500, (1 - coins.p) ** 1500
    none_set = (wrong * none + right * made_up) / (right * none + wrong * made_up)
    exact = mp.log(mp.mpf(all_set.numerator) / all_set.denominator) + mp.log(
        mp.mpf(none_set.numerator) / none_set.denominator
    )
    assert exact <= curve.epsilon(delta=0.0) <= protocol.longitudinal.epsilon(delta=0.0) * (1 + 1e-12)
    one, other = rappor._bit_laws(coins, 1500)
    assert math.fsum(one) == pytest.approx(1, abs=1e-12)
    assert math.fsum(other) == pytest.approx(1, abs=1e-12)
    assert min(*one, *other) >= 1e-201


@replayed
def test_averaging_many_reports_finds_the_memory_and_not_the_answers() -> None:
    """300 reports show every permanent bit; but those are wrong with probability f/2, and stay so."""
    protocol, people = local.Rappor(categories=8, f=HALF, p=QUARTER, q=THREE_QUARTERS), 20_000
    entropy = noise.ReplayEntropy(21)
    memory = protocol.memorize(np.zeros(people, dtype=int), entropy=entropy)
    seen = sum(protocol.unpacked(protocol.report(memory, entropy=entropy)).astype(int) for _ in range(300))
    guessed = np.asarray(seen) > 150
    assert (guessed == protocol.unpacked(memory.rows)).mean() > 0.9999
    right = int(np.count_nonzero(guessed[:, 0]))
    assert binom.cdf(right, people, 0.75) > 1e-9
    assert binom.sf(right - 1, people, 0.75) > 1e-9
    assert binom.sf(right - 1, people, 0.72) < 1e-9


def test_a_memory_shows_nothing_of_itself_and_fits_only_its_protocol() -> None:
    memory = BASIC.memorize([1, 2, 3])
    assert repr(memory) == "Memory(people=3)"
    assert len(memory) == 3
    for wrong in (memory.rows, None, local.Rappor(categories=50, f=0.5, p=0.5, q=0.75).memorize([1])):
        with worded(InvalidParameter, parameter="memory"):
            BASIC.report(wrong)


@pytest.mark.parametrize("reports", [0, -1, 2001, 1.5, True])
def test_the_number_of_reports_is_whole_and_bounded(reports) -> None:
    with pytest.raises(InvalidParameter):
        BASIC.after(reports=reports)


@pytest.mark.parametrize(
    "coins",
    [
        {"f": 0, "p": 0.2, "q": 0.8},
        {"f": 1, "p": 0.2, "q": 0.8},
        {"f": 0.5, "p": 0.8, "q": 0.2},
        {"f": 0.5, "p": 0.5, "q": 0.5},
        {"f": 0.5, "p": -0.1, "q": 0.5},
        {"f": 0.5, "p": 0.1, "q": 1.5},
        {"f": math.nan, "p": 0.1, "q": 0.5},
        {"f": Fraction(1, 10**40), "p": 0.1, "q": 0.5},
    ],
)
def test_coins_must_make_sense(coins) -> None:
    with pytest.raises(InvalidParameter):
        local.Rappor(categories=4, **coins)


# -- Bloom filters ---------------------------------------------------------------------------------------------------


def test_filters_are_public_and_differ_between_cohorts() -> None:
    protocol = bloom()
    assert protocol.filter_of("pear", cohort=1).tolist() == bloom().filter_of("pear", cohort=1).tolist()
    assert 1 <= len(protocol.filter_of("pear", cohort=1)) <= 2
    different = {tuple(protocol.filter_of("pear", cohort=c).tolist()) for c in range(8)}
    assert len(different) > 4


@replayed
@pytest.mark.parametrize("others", [0.0, 0.3])
def test_candidates_are_estimated_also_when_people_have_other_answers(others) -> None:
    """Within 6.3 standard errors (false alarm below 1e-9 for four normal numbers)."""
    protocol, people = bloom(cohorts=32), 60_000
    rng = np.random.default_rng(8)
    texts = [f"other {i}" for i in range(200)]
    shares = np.array([0.5, 0.3, 0.2]) * (1 - others)
    answers = rng.choice([*FRUIT, *texts], p=[*shares, *([others / 200] * 200)], size=people).tolist()
    estimate = protocol.estimate(
        protocol.randomize(answers, entropy=noise.ReplayEntropy(22)), candidates=[*FRUIT, "kiwi"]
    )
    truth = np.array([answers.count(word) / people for word in [*FRUIT, "kiwi"]])
    # Other answers set bits by chance, not quite evenly in 32 cohorts of 32 bits: allow for that.
    slack = 0.02 * others
    assert (np.abs(estimate.value - truth) < 6.3 * estimate.standard_error + slack).all()
    assert (np.abs(estimate.value - 1.1 * truth)[:3] > 6.3 * estimate.standard_error[:3]).any()
    assert estimate.people == people
    assert estimate.projected().sum() <= 1 + 1e-12
    low, high = estimate.interval(confidence=1 - 1e-9)
    assert ((low - slack <= truth) & (truth <= high + slack)).all()


@replayed
def test_intervals_of_candidates_cover() -> None:
    """200 surveys of 300 people: misses of the 90 % intervals are at most Bin(200, 0.1)."""
    protocol, rounds = bloom(cohorts=2), 200
    people = ["pear"] * 150 + ["plum"] * 100 + ["fig"] * 50
    entropy = noise.ReplayEntropy(23)
    estimates = [
        protocol.estimate(protocol.randomize(people, entropy=entropy), candidates=FRUIT) for _ in range(rounds)
    ]
    truth = np.array([1 / 2, 1 / 3, 1 / 6])
    for place in range(3):
        ends = [tuple(end[place] for end in e.interval(confidence=0.9)) for e in estimates]
        missed = sum(not low <= truth[place] <= high for low, high in ends)
        assert binom.sf(missed - 1, rounds, 0.1) > 1e-9
    values = np.array([e.value for e in estimates])
    assert np.abs(values.mean(axis=0) - truth).max() < 6.3 * values.std() / math.sqrt(rounds)


def test_candidates_that_look_alike_are_refused() -> None:
    protocol = bloom(bits=2, hashes=1, cohorts=1)
    reports = protocol.randomize(["a"] * 20)
    with worded(InvalidParameter, parameter="candidates"):
        protocol.estimate(reports, candidates=["a", "b", "c"])
    for wrong in ([], ["a", "a"], "a", [1], None, 7):
        with pytest.raises(InvalidParameter, match="candidates"):
            protocol.estimate(reports, candidates=wrong)


def test_bloom_reports_survive_a_file_and_others_are_refused() -> None:
    protocol = bloom()
    reports = protocol.randomize(FRUIT)
    again = protocol.decode(protocol.encode(reports))
    assert np.array_equal(again.rows, reports.rows)
    assert np.array_equal(again.cohorts, reports.cohorts)
    assert repr(reports) == "CohortReports(people=3)"
    assert len(protocol.randomize("pear")) == 1
    for texts in (["x"], ["1"], ["99 00000000"], ["1 0000"], ["1 zz"], []):
        with pytest.raises(InvalidParameter, match="reports"):
            protocol.decode(texts)
    for wrong in (None, [], reports.rows, rappor.CohortReports(reports.rows, reports.cohorts[:1])):
        with pytest.raises(InvalidParameter, match="reports"):
            protocol.estimate(wrong, candidates=FRUIT)
    for answers in ([1, 2], None, 3):
        with worded(InvalidParameter, parameter="answers"):
            protocol.randomize(answers)


@pytest.mark.parametrize(
    "size", [{"bits": 1}, {"bits": 5000}, {"hashes": 0}, {"cohorts": 0}, {"bits": 2.5}, {"hashes": True}]
)
def test_filters_have_sensible_sizes(size) -> None:
    with pytest.raises(InvalidParameter):
        bloom(**size)


def test_the_curve_of_a_filter_is_the_product_over_its_bits() -> None:
    """Two answers with all bits different: h bits one way and h the other."""
    protocol = bloom(hashes=3)
    own, other = float(protocol.coins.support.own), float(protocol.coins.support.other)
    there, back = [own, 1 - own], [other, 1 - other]
    pair = [np.array([1.0]), np.array([1.0])]
    for _ in range(3):
        for one, two in ((there, back), (back, there)):
            pair = [np.outer(pair[0], one).ravel(), np.outer(pair[1], two).ravel()]
    brute = curves.from_pmf(pair[0], pair[1])
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        low, high = protocol.curve.delta_bounds(epsilon=epsilon)
        expected = brute.delta_bounds(epsilon=epsilon)
        assert low <= expected[1]
        assert high >= expected[0]
        assert high - low < 1e-9
