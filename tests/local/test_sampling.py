"""Reports made with real coins: counts against their exact binomial laws, and what entropy does to them.

When everybody has the same answer, the number of reports that speak for any answer is binomial with the protocol's own
probability. A test rejects when a count is as far out as 1e-9 / (number of counts looked at), so the false alarm rate of
each test is at most 1e-9, exactly; and the same test rejects probabilities that are off by five percent.
"""

from __future__ import annotations

import dataclasses
import math
import pickle
import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from deniable import local, noise
from deniable.errors import NotPrivateWarning
from deniable.local.local_protocol import BitsProtocol

PEOPLE = 500_000
FALSE_ALARM = 1e-9
CATEGORICAL = [
    local.KaryRandomizedResponse(categories=20, epsilon=1.0),
    local.KaryRandomizedResponse(categories=20, odds=Fraction(7, 2)),
    local.SymmetricUnary(categories=20, epsilon=1.0),
    local.SymmetricUnary(categories=9, odds=4),
    local.OptimizedUnary(categories=20, epsilon=1.0),
    local.OptimizedUnary(categories=8, odds=3),
    local.LocalHashing(categories=20, epsilon=1.0),
    local.LocalHashing(categories=20, odds=5, buckets=3),
    local.SubsetSelection(categories=20, epsilon=1.0),
    local.SubsetSelection(categories=9, odds=2, size=4),
    local.Rappor(categories=20, f=0.5, p=0.5, q=0.75),
    local.Rappor(categories=3, f=0.25, p=0, q=0.9),
]
BINARY = [
    local.TwoCoinSurvey(truth=0.5, yes=0.3),
    local.WarnerSurvey(p=0.3),
    local.NuRandomizedResponse(nu=0.4),
    local.NuRandomizedResponse(epsilon=0.7),
    local.RandomizedResponse(p=Fraction(2, 3)),
    local.RandomizedResponse(epsilon=1.0),
]

replayed = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")


def doubt(count: int, trials: int, p: float) -> float:
    """The exact two-sided binomial tail beyond a count."""
    return float(2 * min(binom.cdf(count, trials, p), binom.sf(count - 1, trials, p)))


def believable(counts, trials: int, chances, checks: int) -> bool:
    return all(doubt(int(c), trials, float(p)) > FALSE_ALARM / checks for c, p in zip(counts, chances, strict=True))


@replayed
@pytest.mark.parametrize("protocol", CATEGORICAL, ids=repr)
def test_reports_speak_for_answers_as_often_as_they_should(protocol) -> None:
    d, support = protocol.categories, protocol.support
    own = d // 2
    counts, people = protocol.count(protocol.randomize(np.full(PEOPLE, own), entropy=noise.ReplayEntropy(11)))
    assert people == PEOPLE
    chances = [float(support.own if v == own else support.other) for v in range(d)]
    assert believable(counts, PEOPLE, chances, d)
    for wrong in (0.95, 1.05):  # power
        assert not believable(counts, PEOPLE, [min(wrong * p, 1.0) for p in chances], d)


@replayed
@pytest.mark.parametrize("protocol", [p for p in CATEGORICAL if isinstance(p, BitsProtocol)], ids=repr)
def test_pairs_of_bits_are_as_independent_as_they_should_be(protocol) -> None:
    d, support = protocol.categories, protocol.support
    rows = protocol.unpacked(protocol.randomize(np.zeros(PEOPLE, dtype=int), entropy=noise.ReplayEntropy(12)))
    together = [int(np.count_nonzero(rows[:, 0] & rows[:, 1])), int(np.count_nonzero(rows[:, 1] & rows[:, d - 1]))]
    if isinstance(protocol, local.SubsetSelection):
        w, e = protocol.size, float(protocol.odds.number)
        total = w * e + d - w
        one = w * e * (w - 1) / (total * (d - 1))
        two = (w * e * (w - 1) * (w - 2) + (d - w) * w * (w - 1)) / (total * (d - 1) * (d - 2))
    else:
        one, two = float(support.own * support.other), float(support.other) ** 2
    assert believable(together, PEOPLE, [one, two], 2)
    assert not believable(together, PEOPLE, [1.05 * one, 1.05 * two], 2)
    if isinstance(protocol, local.SubsetSelection):
        assert (rows.sum(axis=1) == protocol.size).all()


@replayed
@pytest.mark.parametrize("protocol", BINARY, ids=repr)
def test_yes_is_reported_as_often_as_it_should_be(protocol) -> None:
    for answer in (False, True):
        reports = protocol.randomize(np.full(PEOPLE, answer), entropy=noise.ReplayEntropy(13))
        count, people = protocol.count(reports)
        chance = float(protocol.support.own if answer else protocol.support.other)
        assert people == PEOPLE
        assert believable([count], PEOPLE, [chance], 1)
        assert not believable([count], PEOPLE, [0.95 * chance], 1)


@replayed
def test_a_hash_is_drawn_uniformly_whatever_the_answer() -> None:
    protocol = local.LocalHashing(categories=100, epsilon=1.0)
    reports = protocol.randomize(np.full(PEOPLE, 77), entropy=noise.ReplayEntropy(14))
    prime = 2**31 - 1
    for column in (0, 1):
        quarters = np.bincount(reports[:, column].astype(np.int64) * 4 // prime, minlength=4)
        assert believable(quarters, PEOPLE, [0.25] * 4, 4)
        assert not believable(quarters, PEOPLE, [0.2625] * 4, 4)


@replayed
@pytest.mark.parametrize("answer", [0.0, 2.5, 10.0])
def test_means_are_reported_as_they_should_be(answer) -> None:
    epsilon = 1.5
    s, entropy = math.exp(epsilon / 2), noise.ReplayEntropy(15)
    answers = np.full(PEOPLE, answer)
    duchi = local.DuchiMean(low=0, high=10, epsilon=epsilon)
    ones = int(duchi.randomize(answers, entropy=entropy).sum())
    chance = 0.5 + (answer / 5 - 1) * math.tanh(epsilon / 2) / 2
    assert believable([ones], PEOPLE, [chance], 1)
    assert not believable([ones], PEOPLE, [0.95 * chance], 1)

    piecewise = local.PiecewiseMean(low=0, high=10, epsilon=epsilon)
    cells = piecewise.randomize(answers, entropy=entropy)
    window, start = piecewise.outcomes - piecewise.steps, round(answer / 10 * piecewise.steps)
    inside = (cells >= start) & (cells < start + window)
    halves = [np.count_nonzero(inside), np.count_nonzero(inside & (cells < start + window // 2))]
    below = np.count_nonzero(cells < start)
    chances = [s / (s + 1), s / (s + 1) * (window // 2) / window, start / piecewise.steps / (s + 1)]
    assert believable([*halves, below], PEOPLE, chances, 3)
    assert not believable(halves, PEOPLE, [0.95 * p for p in chances[:2]], 3)

    hybrid = local.HybridMean(low=0, high=10, epsilon=epsilon)
    bits = int(np.count_nonzero(hybrid.randomize(answers, entropy=entropy) >= piecewise.outcomes))
    assert believable([bits], PEOPLE, [1 / s], 1)
    assert not believable([bits], PEOPLE, [0.95 / s], 1)


@replayed
@pytest.mark.parametrize("protocol", CATEGORICAL, ids=repr)
def test_mixed_answers_are_estimated_within_hoeffding(protocol) -> None:
    answers = np.minimum(np.random.default_rng(5).geometric(0.3, PEOPLE) - 1, protocol.categories - 1)
    truth = np.bincount(answers, minlength=protocol.categories) / PEOPLE
    estimate = protocol.estimate(protocol.randomize(answers, entropy=noise.ReplayEntropy(16)))
    reach = protocol.error(people=PEOPLE, confidence=1 - FALSE_ALARM, shares=protocol.categories)
    assert np.abs(estimate.value - truth).max() <= reach
    assert np.abs(estimate.value - np.roll(truth, 1)).max() > reach
    low, high = estimate.interval(confidence=1 - FALSE_ALARM / protocol.categories)
    assert ((low <= truth) & (truth <= high)).all()
    assert estimate.projected().sum() == pytest.approx(1)


@pytest.mark.slow
@replayed
@pytest.mark.parametrize("kind", [local.DuchiMean, local.PiecewiseMean, local.HybridMean])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_means_of_mixed_answers_are_estimated_and_their_intervals_cover(kind, epsilon) -> None:
    """400 surveys of 500 people: how many of the 90 % intervals miss is Bin(400, 0.1), or fewer where they are wider."""
    protocol, rounds, people = kind(low=-20, high=60, epsilon=epsilon), 400, 500
    answers = np.tile(np.random.default_rng(6).normal(10, 9, people), rounds)
    reports = protocol.randomize(answers, entropy=noise.ReplayEntropy(17)).reshape(rounds, people)
    estimates = [protocol.estimate(some) for some in reports]
    truth = float(np.clip(answers[:people], -20, 60).mean())
    ends = [estimate.interval(confidence=0.9) for estimate in estimates]
    missed = sum(not low <= truth <= high for low, high in ends)
    assert binom.sf(missed - 1, rounds, 0.1) > FALSE_ALARM
    narrow = sum(abs(e.value - truth) > 0.6 * (high - low) / 2 for e, (low, high) in zip(estimates, ends, strict=True))
    assert binom.sf(narrow - 1, rounds, 0.1) < FALSE_ALARM  # power: intervals of 60 % of the width are caught
    all_in = protocol.estimate(reports.ravel())
    assert abs(all_in.value - truth) < 6.2 * all_in.standard_error
    assert all_in.standard_error <= all_in.population_error


def test_only_replayable_entropy_is_said_not_to_be_private() -> None:
    for protocol, answers in (
        (local.RandomizedResponse(epsilon=1.0), [True, False]),
        (local.OptimizedUnary(categories=5, epsilon=1.0), [1, 4]),
        (local.HybridMean(low=0, high=1, epsilon=1.0), [0.5]),
        (local.Rappor(categories=5, f=0.5, p=0.25, q=0.75), [1, 4]),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            protocol.randomize(answers)
        with pytest.warns(NotPrivateWarning, match="not private") as caught:
            protocol.randomize(answers, entropy=noise.ReplayEntropy(1))
        assert len(caught) == 1
        assert caught[0].filename == __file__


@replayed
@pytest.mark.parametrize("protocol", [*CATEGORICAL, *BINARY], ids=repr)
def test_replays_repeat_and_private_reports_do_not(protocol) -> None:
    answers = np.arange(3000) % 2
    first, again = (protocol.randomize(answers, entropy=noise.ReplayEntropy(3)) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(protocol.randomize(answers), protocol.randomize(answers))  # equal with chance < 2^-1000


@pytest.mark.parametrize("protocol", [*CATEGORICAL, *BINARY, local.HybridMean(low=0, high=1, epsilon=1.0)], ids=repr)
def test_protocols_are_values_that_can_be_pickled_compared_and_hashed(protocol) -> None:
    copy = pickle.loads(pickle.dumps(protocol))
    assert copy == protocol
    assert hash(copy) == hash(protocol)
    assert repr(copy) == repr(protocol)
    assert (
        type(protocol)(**{k: Fraction(v) if isinstance(v, str) else v for k, v in protocol.parameters().items()})
        == protocol
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(protocol, dataclasses.fields(protocol)[0].name, None)


@pytest.mark.parametrize("protocol", [*CATEGORICAL, *BINARY, local.HybridMean(low=0, high=1, epsilon=1.0)], ids=repr)
@pytest.mark.parametrize("people", [0, 1, 5])
def test_encoded_reports_are_decoded_to_the_same(protocol, people) -> None:
    reports = protocol.randomize([0] * people)
    decoded = protocol.decode(protocol.encode(reports))
    assert len(decoded) == people
    assert np.array_equal(np.asarray(decoded).astype(np.int64), np.asarray(reports).astype(np.int64))


def test_one_person_gets_one_report() -> None:
    assert isinstance(local.RandomizedResponse(epsilon=1.0).randomize(True), bool)
    assert isinstance(local.KaryRandomizedResponse(categories=9, epsilon=1.0).randomize(3), int)
    assert local.OptimizedUnary(categories=9, epsilon=1.0).randomize(3).shape == (2,)
    assert local.SubsetSelection(categories=9, epsilon=1.0).randomize(np.int8(3)).shape == (2,)
    assert local.LocalHashing(categories=9, epsilon=1.0).randomize(3).shape == (3,)
    assert isinstance(local.HybridMean(low=0, high=1, epsilon=1.0).randomize(0.25), int)
    for protocol in (local.OptimizedUnary(categories=9, epsilon=1.0), local.LocalHashing(categories=9, epsilon=1.0)):
        assert protocol.estimate(protocol.randomize(3)).people == 1


@pytest.mark.parametrize("kind", [list, tuple, np.array, "pandas", "polars"])
def test_answers_come_in_any_list_like_thing(kind) -> None:
    values = [1, 0, 1, 1]
    values = pytest.importorskip(kind).Series(values) if isinstance(kind, str) else kind(values)
    for protocol in (local.RandomizedResponse(epsilon=1.0), local.OptimizedUnary(categories=3, epsilon=1.0)):
        assert protocol.estimate(protocol.randomize(values)).people == 4
    mean = local.HybridMean(low=0, high=2, epsilon=1.0)
    assert mean.estimate(mean.randomize(values)).people == 4
