"""What `randomize` really does, enumerated: the law of the code is the law that its curve and its estimator speak about."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from deniable import local
from deniable.local import categorical_responses, exact_odds, numeric_means, report_checks
from deniable.local import packed_bits as packing
from deniable.local.local_protocol import BitsProtocol, Protocol, SharesProtocol
from tests.local.enumeration import digits, hockey_stick, largest_loss, law, mp, total

HALF = Fraction(1, 2)

BINARY = [
    local.TwoCoinSurvey(truth=HALF, yes=HALF),
    local.TwoCoinSurvey(truth=Fraction(1, 3), yes=Fraction(1, 5)),
    local.TwoCoinSurvey(truth=Fraction(2, 3), yes=Fraction(4, 5)),
    local.WarnerSurvey(p=Fraction(3, 4)),
    local.WarnerSurvey(p=Fraction(1, 10)),
    local.NuRandomizedResponse(nu=HALF),
    local.NuRandomizedResponse(epsilon=1.0),
    local.RandomizedResponse(p=Fraction(3, 4)),
    local.RandomizedResponse(epsilon=0.3),
]
CATEGORICAL = [
    local.KaryRandomizedResponse(categories=5, odds=3),
    local.KaryRandomizedResponse(categories=3, epsilon=2.0),
    local.SymmetricUnary(categories=4, odds=9),
    local.SymmetricUnary(categories=3, epsilon=1.0),
    local.OptimizedUnary(categories=4, odds=3),
    local.OptimizedUnary(categories=3, epsilon=1.0),
    local.Rappor(categories=2, f=HALF, p=Fraction(1, 4), q=Fraction(3, 4)),
    local.Rappor(categories=2, f=Fraction(1, 3), p=0, q=1),
]
EPSILONS = (0.0, 0.25, 0.5, 0.9, 1.5)
DIGITS = mp.mpf(10) ** -45
"""Granted to sums at 50 digits."""


def key(protocol: Protocol, report: object) -> object:
    """A report as something that can be counted: bits as a tuple of the categories they speak for."""
    if isinstance(protocol, BitsProtocol):
        row = protocol.unpacked(np.atleast_2d(np.asarray(report, dtype=np.uint8)))[0]
        return tuple(np.flatnonzero(row).tolist())
    return report


def laws(protocol: SharesProtocol, answers: range, monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    bits = protocol.categories if isinstance(protocol, BitsProtocol) else 8
    return [law(lambda a=a: key(protocol, protocol.randomize(a)), monkeypatch, bits=bits) for a in answers]


def speaks(protocol: SharesProtocol, report: object, answer: int) -> bool:
    """Whether a report speaks for an answer, from the definition."""
    if isinstance(protocol, BitsProtocol):
        return answer in report
    if isinstance(protocol, local.WarnerSurvey) and protocol.p < HALF:
        return report != bool(answer)
    return report == answer


@pytest.mark.slow
@pytest.mark.parametrize("protocol", BINARY + CATEGORICAL, ids=repr)
def test_the_enumerated_law_supports_answers_as_often_as_the_estimator_believes(protocol, monkeypatch) -> None:
    """Exact (Fractions) for rational odds, 1e-14 otherwise. Linearity then makes every estimate unbiased."""
    count = getattr(protocol, "categories", 2)
    answers = range(1, 2) if count == 2 and not hasattr(protocol, "categories") else range(count)
    for own, found in zip(range(count), laws(protocol, range(count), monkeypatch), strict=True):
        assert total(list(found.values())) == pytest.approx(1, abs=1e-45)
        for answer in answers:
            often = total([mass for report, mass in found.items() if speaks(protocol, report, answer)])
            expected = protocol.support.own if own == answer else protocol.support.other
            if isinstance(often, Fraction):
                assert often == expected
            else:
                assert float(often) == pytest.approx(expected, rel=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", BINARY + CATEGORICAL, ids=repr)
def test_the_curve_is_that_of_the_enumerated_law(protocol, monkeypatch) -> None:
    """δ(ε) of the worst pair of answers lies in the certified bracket, and the bracket is narrow: nothing is given away."""
    count = getattr(protocol, "categories", 2)
    found = laws(protocol, range(count), monkeypatch)
    pairs = list(itertools.permutations(found, 2))
    for epsilon in EPSILONS:
        truth = max(hockey_stick(p, q, epsilon) for p, q in pairs)
        low, high = protocol.curve.delta_bounds(epsilon=epsilon)
        assert low - DIGITS <= truth <= high + DIGITS
        assert high - low < 1e-11
    worst = max(largest_loss(p, q) for p, q in pairs)
    low, high = protocol.curve.epsilon_bounds(delta=0.0)
    assert low * (1 - 1e-14) <= worst <= high
    assert high == pytest.approx(float(worst), rel=1e-13)


@pytest.mark.parametrize("wrong", [Fraction(74, 100), Fraction(76, 100)])
def test_the_checks_can_fail(wrong, monkeypatch) -> None:
    """Power: a law that is off by one percent fits neither the estimator nor the curve of RR(3/4)."""
    right = local.RandomizedResponse(p=Fraction(3, 4))
    found = laws(local.RandomizedResponse(p=wrong), range(2), monkeypatch)
    assert found[1][True] != right.support.own
    low, high = right.curve.delta_bounds(epsilon=0.5)
    assert not low <= hockey_stick(found[1], found[0], 0.5) <= high


@pytest.mark.parametrize("protocol", [p for p in BINARY if isinstance(p.support.gap, Fraction)], ids=repr)
@pytest.mark.parametrize("answers", [(True,), (False, True), (True, True, False)])
def test_estimates_of_a_few_people_are_unbiased_with_the_stated_variance(protocol, answers, monkeypatch) -> None:
    """Every outcome of every coin of up to three people, weighted by exact Fractions."""
    found = law(lambda: tuple(protocol.randomize(list(answers)).tolist()), monkeypatch)
    share, n = Fraction(sum(answers), len(answers)), len(answers)
    values = {reports: Fraction(protocol.estimate(list(reports)).value).limit_denominator(10**6) for reports in found}
    mean = sum(found[reports] * value for reports, value in values.items())
    assert mean == share
    assert sum(found[r] * (v - mean) ** 2 for r, v in values.items()) == protocol.variance(share=share, people=n)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [p for p in CATEGORICAL if isinstance(p.support.gap, Fraction)], ids=repr)
def test_estimated_shares_of_one_person_are_unbiased_with_the_stated_variance(protocol, monkeypatch) -> None:
    for own, found in enumerate(laws(protocol, range(protocol.categories), monkeypatch)):
        for answer in range(protocol.categories):
            values = {}
            for report in found:
                hot = np.zeros((1, protocol.categories), dtype=bool)
                hot[0, list(report) if isinstance(protocol, BitsProtocol) else [report]] = True
                reports = hot if isinstance(protocol, BitsProtocol) else [report]
                values[report] = Fraction(protocol.estimate(reports).value[answer]).limit_denominator(10**6)
            share = Fraction(int(own == answer))
            assert sum(found[r] * v for r, v in values.items()) == share
            spread = sum(found[r] * (v - share) ** 2 for r, v in values.items())
            assert spread == protocol.variance(share=share, people=1)


# -- local hashing: all hash functions of a small prime --------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("prime", "buckets"), [(7, 2), (7, 3), (11, 4)])
def test_local_hashing_enumerated_over_all_hashes_of_a_small_prime(prime, buckets, monkeypatch) -> None:
    monkeypatch.setattr(categorical_responses, "PRIME", prime)
    protocol = local.LocalHashing(categories=3, odds=3, buckets=buckets)
    support, curve = protocol.support, protocol.curve
    found = []
    for own in range(3):
        monkeypatch.setattr(categorical_responses, "PRIME", prime)
        run = law(lambda own=own: tuple(protocol.randomize(own).tolist()), monkeypatch)
        found.append(run)
    monkeypatch.setattr(categorical_responses, "PRIME", prime)
    for own in range(3):
        assert sum(found[own].values()) == 1
        for answer in range(3):
            often = Fraction(0)
            for (a, b, said), mass in found[own].items():
                often += mass * ((a * answer + b) % prime * buckets // prime == said)
                assert protocol.count([[a, b, said]])[0][answer] == (
                    (a * answer + b) % prime * buckets // prime == said
                )
            assert often == (support.own if own == answer else support.other)
    for epsilon in EPSILONS:
        truth = max(hockey_stick(p, q, epsilon) for p, q in itertools.permutations(found, 2))
        low, high = curve.delta_bounds(epsilon=epsilon)
        assert low - DIGITS <= truth <= high + DIGITS
        assert high - low < 1e-11


def test_two_categories_meet_as_often_as_the_estimator_believes() -> None:
    """Bucket sizes of the real prime, counted by their first members."""
    for buckets in (2, 3, 4, 7, 100, 65536):
        first = [-(-bucket * categorical_responses.PRIME // buckets) for bucket in range(buckets + 1)]
        sizes = np.diff(np.array(first, dtype=object))
        assert sum(sizes) == categorical_responses.PRIME
        assert sum(
            Fraction(int(size), categorical_responses.PRIME) ** 2 for size in sizes
        ) == categorical_responses._meeting(buckets)
        assert categorical_responses._meeting(buckets) == pytest.approx(1 / buckets, rel=1e-8)


# -- subset selection: every move of the repair step, then its law by recursion ---------------------------------------


@pytest.mark.parametrize("wanted", [0, 1, 2, 3])
@pytest.mark.parametrize("often", [Fraction(2, 5), Fraction(1, 16)])
def test_a_set_begins_with_independent_bits_beside_the_own(wanted, often, monkeypatch) -> None:
    d, own, rough = 4, 2, exact_odds.Odds((1 - often) / often, Fraction(0))

    def begun() -> tuple[int, int]:
        rows, missing = categorical_responses._begun(np.array([own]), np.array([wanted]), d, rough, None)
        return int(rows[0, 0]), int(missing[0])

    found = law(begun, monkeypatch, bits=d)
    assert len(found) == 2 ** (d - 1)
    for (row, missing), mass in found.items():
        others = row.bit_count() - 1
        assert row >> own & 1
        assert missing == wanted - others
        assert mass == often**others * (1 - often) ** (d - 1 - others)


@pytest.mark.parametrize("d", [3, 8, 9, 12])
def test_a_set_is_filled_with_what_was_not_in_it_each_alike(d, monkeypatch) -> None:
    """Every spot is tried on every row: one that is free is taken and counted, one that is taken changes nothing."""
    hot = np.array([[v % 3 == 0 for v in range(d)], [v == 1 for v in range(d)]])
    for spots in itertools.product(range(d), repeat=2):
        rows, tries = np.packbits(hot, axis=1, bitorder="little"), []

        class Spots:
            def uniform(self, *, below, size, entropy, spots=spots, tries=tries):
                assert below == d
                tries.append(size)
                # The first try, and after it one that is free in both rows.
                return np.array(spots) if len(tries) == 1 else np.full(size, 2)

        monkeypatch.setattr(categorical_responses, "noise", Spots())
        categorical_responses._fill(rows, np.array([1, 1]), d, None)
        after = report_checks.packed("rows", hot, d)
        for row, spot in enumerate(spots):
            taken = 2 if hot[row, spot] else spot
            after[row, taken // 8] |= 1 << taken % 8
        assert (rows == after).all()
        missed = sum(hot[row, spot] for row, spot in enumerate(spots))
        assert tries == [2, missed][: 1 + (missed > 0)]


@pytest.mark.parametrize(("d", "w"), [(2, 1), (3, 1), (3, 2), (4, 1), (4, 2), (4, 3), (5, 2), (5, 3), (5, 4)])
def test_subset_selection_enumerated(d, w, monkeypatch) -> None:
    """All of `randomize`, with the two loops that may go round for ever replaced by the laws that were tested above:
    bits that are thrown again while there are too many, and places that are filled by free categories alike.
    """
    protocol = local.SubsetSelection(categories=d, odds=3, size=w)

    def begun(own, wanted, categories, rough, entropy):
        often = 1 / (1 + rough.ratio)
        rows = [row for row in range(2**d) if row >> own[0] & 1 and row.bit_count() - 1 <= wanted[0]]
        row = rows[
            categorical_responses.noise.draw(
                [often ** row.bit_count() * (1 - often) ** (d - row.bit_count()) for row in rows]
            )
        ]
        return np.array([[row]], dtype=np.uint8), wanted - row.bit_count() + 1

    def fill(rows, missing, categories, entropy):
        for _ in range(int(missing[0])):
            free = [v for v in range(d) if not rows[0, 0] >> v & 1]
            rows[0, 0] |= 1 << free[categorical_responses.noise.draw([Fraction(1)] * len(free))]

    found = []
    for own in range(d):
        monkeypatch.setattr(categorical_responses, "_begun", begun)
        monkeypatch.setattr(categorical_responses, "_fill", fill)
        result = law(lambda own=own: key(protocol, protocol.randomize(own)), monkeypatch, bits=d)
        found.append(result)
        weights = 3 * math.comb(d - 1, w - 1) + math.comb(d - 1, w)
        assert len(result) == math.comb(d, w)
        for some in itertools.combinations(range(d), w):
            assert result[some] == Fraction(3 if own in some else 1, weights)
        for answer in range(d):
            often = sum(mass for some, mass in result.items() if answer in some)
            assert often == (protocol.support.own if answer == own else protocol.support.other)
    for epsilon in EPSILONS:
        truth = max(hockey_stick(p, q, epsilon) for p, q in itertools.permutations(found, 2))
        low, high = protocol.curve.delta_bounds(epsilon=epsilon)
        assert low - DIGITS <= truth <= high + DIGITS
        assert high - low < 1e-11


# -- numbers on a coarse grid ---------------------------------------------------------------------------------------


@pytest.fixture
def coarse(monkeypatch):
    """A grid small enough to enumerate. Set again after each enumeration, which restores what it replaced."""

    def set_again() -> None:
        monkeypatch.setattr(numeric_means, "WINDOW", 2)
        monkeypatch.setattr(numeric_means, "FINENESS", 8)

    set_again()
    return set_again


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "epsilon"),
    [
        *itertools.product([local.DuchiMean, local.PiecewiseMean], [0.3, 1.0, 3.0]),
        *itertools.product([local.HybridMean], [0.3, 0.7, 1.0]),
    ],
)
def test_means_enumerated_on_a_coarse_grid(kind, epsilon, coarse, monkeypatch) -> None:
    protocol = kind(low=-1, high=1, epsilon=epsilon)
    steps, outcomes = protocol.steps, protocol.outcomes
    curve, spread, values = protocol.curve, protocol.spread, protocol.unbiased(np.arange(outcomes))
    found = []
    for step in {0, 1, steps // 2, steps}:
        coarse()
        answer = 2 * step / steps - 1
        masses = law(lambda answer=answer: protocol.randomize(answer), monkeypatch)
        coarse()
        found.append(masses)
        assert total(list(masses.values())) == pytest.approx(1, abs=1e-45)
        mean = mp.fsum(digits(mass) * values[report] for report, mass in masses.items())
        assert float(mean) == pytest.approx(answer, abs=1e-12)
        square = mp.fsum(digits(mass) * values[report] ** 2 for report, mass in masses.items())
        assert float(square - mean**2) == pytest.approx(spread.slope * answer**2 + spread.level, rel=1e-12)
        assert protocol.variance(answer=answer, people=1) == pytest.approx(float(square - mean**2), rel=1e-12)
    for one in range(2 * math.ceil(10 * epsilon)):
        truth = max(hockey_stick(p, q, one / 10) for p, q in itertools.permutations(found, 2))
        low, high = curve.delta_bounds(epsilon=one / 10)
        assert low - DIGITS <= truth <= high + DIGITS
        assert high - low < 1e-11
    worst = max(largest_loss(p, q) for p, q in itertools.permutations(found, 2))
    assert worst <= curve.epsilon(delta=0.0) <= epsilon
    assert curve.epsilon(delta=0.0) == pytest.approx(float(worst), rel=1e-12)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-4, 0.01, 0.5, 1.0, 4.0, 20.0, 50.0])
def test_the_fine_grid_costs_next_to_nothing(epsilon) -> None:
    """Against the continuous piecewise mechanism: variance x²/(s-1) + (s+3)/(3(s-1)²) and ε itself."""
    protocol, s = local.PiecewiseMean(low=-1, high=1, epsilon=epsilon), mp.exp(mp.mpf(epsilon) / 2)
    window = protocol.outcomes - protocol.steps
    assert mp.mpf(protocol.steps) / window < s  # so that e^ε is certainly not exceeded
    assert epsilon * (1 - 1e-4) <= protocol.curve.epsilon(delta=0.0) <= epsilon
    for answer in (0.0, 0.5, 1.0):
        exact = answer**2 / (s - 1) + (s + 3) / (3 * (s - 1) ** 2)
        assert protocol.variance(answer=answer, people=1) == pytest.approx(float(exact), rel=1e-4)


def test_packed_bits_are_counted_set_and_flipped_in_place() -> None:
    rng = np.random.default_rng(1)
    for bits in (1, 2, 7, 8, 9, 16, 100):
        hot = rng.random((40, bits)) < 0.3
        rows = np.packbits(hot, axis=1, bitorder="little")
        assert packing.totals(rows, bits).tolist() == hot.sum(axis=0).tolist()
        assert packing.ones(rows).tolist() == hot.sum(axis=1).tolist()
        spots, values = rng.integers(0, bits, 40), rng.random(40) < 0.5
        packing.flip(rows, spots)
        hot[np.arange(40), spots] ^= True
        assert (report_checks.packed("rows", hot, bits) == rows).all()
        packing.put(rows, spots, values)
        hot[np.arange(40), spots] = values
        assert (report_checks.packed("rows", hot, bits) == rows).all()
        rows[:] = 255
        packing.trim(rows, bits)
        assert packing.totals(rows, bits).tolist() == [40] * bits


# -- the weights that wheels are made from -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "which",
    [
        exact_odds.Odds.of(odds=Fraction(7, 2)),
        exact_odds.Odds(Fraction(1, 3), Fraction(0)),
        exact_odds.Odds(Fraction(5), Fraction(-1, 3)),
    ],
    ids=repr,
)
def test_weights_are_those_of_the_odds(which) -> None:
    e = digits(which.ratio) * mp.exp(digits(which.log))
    for weights, truths in (
        (exact_odds.coin_weights(which, 1, 1), [1, e]),
        (exact_odds.coin_weights(which, 27, 73), [73, 27 * e]),
        (exact_odds.byte_weights(which), [e ** -byte.bit_count() for byte in range(256)]),
        (exact_odds.distance_weights(which, 300), [e] + [1] * 299),
    ):
        assert len(weights) == len(truths)
        for (factor, exponent), truth in zip(weights, truths, strict=True):
            assert abs(digits(factor) * mp.exp(digits(exponent)) - truth) <= abs(truth) * DIGITS


def test_many_categories_are_lied_about_without_a_wheel_of_all(monkeypatch) -> None:
    """Beyond a wheel's size a coin and a uniform draw have the same law."""
    protocol = local.KaryRandomizedResponse(categories=5, odds=3)
    found = law(lambda: protocol.randomize(2), monkeypatch)

    class Spread:
        def uniform(self, *, below, size, entropy):
            return np.arange(size) % below

    monkeypatch.setattr(exact_odds, "MOST_ON_A_WHEEL", 4)
    monkeypatch.setattr(exact_odds, "noise", Spread())
    monkeypatch.setattr(exact_odds.Odds, "heads", lambda self, size, entropy, no: np.arange(size) < 3)
    assert protocol.odds.away(5, 7, None).tolist() == [0, 0, 0, 4, 1, 2, 3]
    monkeypatch.undo()
    lie, truth = (factor for factor, _ in exact_odds.coin_weights(protocol.odds, 1, 4))
    assert found[2] == truth / (truth + lie) == Fraction(3, 7)


@pytest.mark.parametrize("categories", [2, 100, 128, 129, 256, 257, 1024, 1025, 2**15, 2**15 + 1, 2**20])
def test_reports_of_any_number_of_categories_wrap_around_at_the_end(categories) -> None:
    """The largest odds: one report in e^50 is a lie, so all are the answer, and none has left its type."""
    protocol = local.KaryRandomizedResponse(categories=categories, epsilon=50)
    answers = np.array([0, categories // 2, categories - 1] * 100)
    assert (protocol.randomize(answers) == answers).all()
    lies = local.KaryRandomizedResponse(categories=categories, epsilon=0.001).randomize(answers)
    assert lies.max() < categories
    assert (lies != answers).any()
    assert protocol.count(lies)[0].sum() == len(answers)


@pytest.mark.parametrize("kind", [local.PiecewiseMean, local.HybridMean])
@pytest.mark.parametrize("epsilon", [45.8, 47.3, 48.9, 50.0])
def test_the_largest_answer_lies_on_the_grid(kind: type[numeric_means.MeanProtocol], epsilon: float) -> None:
    """The float of the number of steps may lie above it; a window there held cells that no other answer can report."""
    protocol = kind(low=0, high=1, epsilon=epsilon)
    places = numeric_means.on_grid(
        np.array([0.0, 1.0, 2.0, math.inf, -1.0]), protocol.low, protocol.high, protocol.steps
    )
    assert places[0] == places[4] == 0
    assert places[1] == places[2] == places[3]
    assert protocol.steps - 8 <= places[1] <= protocol.steps  # a float has 53 bits, and there are less than 2⁵⁷ steps


def test_bounds_that_are_nearer_than_floats_keep_answers_on_the_grid() -> None:
    low, high = (
        Fraction(1) + Fraction(1, 2**53) - Fraction(1, 10**30),
        Fraction(1) + Fraction(1, 2**53) + Fraction(1, 10**30),
    )
    places = numeric_means.on_grid(np.array([0.0, 1.0, 2.0]), low, high, 2**56 - 3)
    assert 0 <= places.min() <= places.max() <= 2**56 - 3
