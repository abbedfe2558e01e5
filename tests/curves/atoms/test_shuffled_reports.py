"""Shuffled reports against exact enumeration of all multisets of reports, published bounds, and the auditor."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest

from deniable import audit, curves
from deniable.curves import Curve
from deniable.curves.atoms.shuffled_reports import Clones, ShuffledAtom, _law
from deniable.curves.laws.likelihood_average import Bound
from deniable.errors import InvalidParameter

Randomizer = list[list[Fraction]]
"""For each answer, the probabilities of all reports."""


def multisets(randomizer: Randomizer, answers: tuple[int, ...]) -> dict[tuple[int, ...], Fraction]:
    """The exact law of the sorted reports of people with these answers."""
    law: dict[tuple[int, ...], Fraction] = {(): Fraction(1)}
    for answer in answers:
        longer: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
        for reports, chance in law.items():
            for report, share in enumerate(randomizer[answer]):
                longer[tuple(sorted((*reports, report)))] += chance * share
        law = longer
    return law


def worst(randomizer: Randomizer, people: int, odds: Fraction) -> Fraction:
    """The largest δ at e^ε = odds over all answers of the others and all pairs of answers of one person."""
    answers, found = range(len(randomizer)), Fraction(0)
    for others in itertools.combinations_with_replacement(answers, people - 1):
        for one, two in itertools.permutations(answers, 2):
            first, second = (multisets(randomizer, (*others, mine)) for mine in (one, two))
            found = max(found, sum((max(p - odds * second[r], Fraction(0)) for r, p in first.items()), Fraction(0)))
    return found


def response(odds: int, categories: int) -> Randomizer:
    total = odds + categories - 1
    return [[Fraction(odds if i == j else 1, total) for j in range(categories)] for i in range(categories)]


def unary(odds: int, categories: int) -> Randomizer:
    """Optimized unary encoding: the own bit is fair, each other bit is 1 with probability 1/(odds + 1)."""
    lie = Fraction(1, odds + 1)

    def chance(answer: int, bits: tuple[int, ...]) -> Fraction:
        each = (Fraction(1, 2) if i == answer else (lie if bit else 1 - lie) for i, bit in enumerate(bits))
        return math.prod(each, start=Fraction(1))

    return [[chance(a, bits) for bits in itertools.product((0, 1), repeat=categories)] for a in range(categories)]


ODDS = [Fraction(1), Fraction(5, 4), Fraction(3, 2), Fraction(5, 2)]


@pytest.mark.parametrize(("categories", "people"), [(3, 2), (3, 4), (4, 3)])
def test_many_answers_lie_between_the_bounds(categories: int, people: int) -> None:
    curve = curves.randomized_response(epsilon=math.log(3), categories=categories).shuffled(people=people)
    for odds in ODDS:
        exact = float(worst(response(3, categories), people, odds))
        low, high = curve.delta_bounds(epsilon=math.log(odds))
        assert low <= exact * (1 + 1e-9) + 1e-15
        assert high >= exact * (1 - 1e-9)


@pytest.mark.parametrize("people", [2, 3, 6])
def test_two_answers_lie_between_the_bounds(people: int) -> None:
    curve = curves.randomized_response(epsilon=math.log(3)).shuffled(people=people)
    for odds in ODDS:
        exact = float(worst(response(3, 2), people, odds))
        low, high = curve.delta_bounds(epsilon=math.log(odds))
        assert low <= exact * (1 + 1e-9) + 1e-15
        assert high >= exact * (1 - 1e-9)


def test_a_distance_bounds_unary_reports() -> None:
    one = curves.mixture([0.5, 0.5], [curves.identity(), curves.randomized_response(epsilon=math.log(3))])
    curve = one.shuffled(people=3, distance=one.advantage())
    weaker = one.shuffled(people=3)
    for odds in ODDS:
        exact = float(worst(unary(3, 3), 3, odds))
        assert exact <= curve.delta(epsilon=math.log(odds)) <= weaker.delta(epsilon=math.log(odds)) * (1 + 1e-9)


@pytest.mark.parametrize("distance", [1e-6, 0.05, 0.4])
def test_a_distance_may_be_off_to_either_side(distance: float) -> None:
    """More clones hide better, so δ of the counts takes fewer than the distance gives."""
    atom = ShuffledAtom(curves.pure(epsilon=1), 50, distance)
    assert atom._clones().clone * (math.e - 1) <= distance * (1 - 0.9e-9)
    (response, _), *_ = curves.randomized_response(epsilon=1).shuffled(people=50).factors
    assert isinstance(response, ShuffledAtom)
    assert response._clones().clone < response._clone


@pytest.mark.parametrize("side", ["upper", "lower"])
@pytest.mark.parametrize("clones", [Clones(50, 0.1, 0.7, 0.3), Clones(7, 0.2, 0.5, 0.2)])
def test_all_pairs_of_counts_are_counted_once(clones: Clones, side: Bound) -> None:
    law = _law(clones, side, 0.0)
    assert float(np.sum(law.masses)) + law.infinity == pytest.approx(1, abs=1e-11)


def test_hiding_that_the_report_tells_nothing_would_be_false() -> None:
    """The pair in which the kind of the person's report stays hidden is below what three people leak."""
    from deniable.curves.atoms.shuffled_reports import Clones, _law

    hidden = _law(Clones(3, 1 / 8, 3 / 8, 1 / 8), "upper", 0.0)  # unary reports, odds 3: p = (1/4)/(3 - 1)
    exact = float(worst(unary(3, 3), 3, Fraction(5, 2)))
    assert hidden.profile(np.array([math.log(2.5)]))[1][0] < exact / 2


UNLIKE: dict[str, Randomizer] = {
    "two near, one far": [
        [Fraction(3, 6), Fraction(2, 6), Fraction(1, 6)],
        [Fraction(2, 6), Fraction(3, 6), Fraction(1, 6)],
        [Fraction(1, 6), Fraction(2, 6), Fraction(3, 6)],
    ],
    "one report tells": [[Fraction(3, 8), Fraction(5, 8)], [Fraction(1, 8), Fraction(7, 8)]],
    "a middle answer": [
        [Fraction(3, 4), Fraction(1, 4)],
        [Fraction(1, 2), Fraction(1, 2)],
        [Fraction(1, 4), Fraction(3, 4)],
    ],
}


@pytest.mark.parametrize("name", UNLIKE)
def test_any_pure_report_is_bounded(name: str) -> None:
    curve = curves.pure(epsilon=math.log(3)).shuffled(people=4)
    for odds in ODDS:
        assert float(worst(UNLIKE[name], 4, odds)) <= curve.delta(epsilon=math.log(odds)) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("epsilon", "people", "delta"), [(1.0, 10_000, 1e-6), (2.0, 10_000, 1e-8), (3.0, 100_000, 1e-6)]
)
def test_curves_are_below_the_published_formula(epsilon: float, people: int, delta: float) -> None:
    """The closed formula of Feldman, McMillan & Talwar (2021), for ε₀ <= log(n/(16 log(2/δ)))."""
    assert epsilon <= math.log(people / (16 * math.log(2 / delta)))
    odds = math.exp(epsilon)
    spread = 8 * math.sqrt(odds * math.log(4 / delta) / people) + 8 * odds / people
    published = math.log(1 + (odds - 1) / (odds + 1) * spread)
    mine = curves.pure(epsilon=epsilon).shuffled(people=people).epsilon(delta=delta)
    tighter = curves.randomized_response(epsilon=epsilon).shuffled(people=people).epsilon(delta=delta)
    assert tighter < mine < published


def test_more_people_hide_better_and_one_alone_is_the_report() -> None:
    one = curves.randomized_response(epsilon=1, categories=3)
    assert one.shuffled(people=1) == one
    found = [one.shuffled(people=n).epsilon(delta=1e-6) for n in (2, 10, 100, 1000)]
    assert all(more < fewer for fewer, more in itertools.pairwise(found))
    assert found[0] <= 1 + 1e-9


def test_the_auditor_refutes_only_the_broken_twin() -> None:
    """The count of one report among 50 people, all others with the same answer, against curves of 50 and 500 people."""
    random = np.random.default_rng(5)
    keep = math.e**2 / (1 + math.e**2)

    class Count:
        def many(self, answer: int, count: int) -> np.ndarray:
            return random.binomial(49, 1 - keep, count) + (random.random(count) < (keep if answer else 1 - keep))

        def release(self, answer: int) -> int:
            return int(self.many(answer, 1)[0])

    question = {"neighbours": (0, 1), "trials": 40_000, "confidence": 1 - 1e-9, "delta": 0.02}
    report = curves.randomized_response(epsilon=2)
    assert not audit.measure(Count(), claim=report.shuffled(people=50), **question).refuted
    assert audit.measure(Count(), claim=report.shuffled(people=500), **question).refuted


def test_records_and_expressions_read_back() -> None:
    curve = curves.pure(epsilon=1).shuffled(people=20) * curves.laplace(scale=1).shuffled(people=9, distance=0.25)
    assert Curve.from_dict(curve.to_dict()) == curve
    assert curves.parse(curve.expression()) == curve


@pytest.mark.parametrize(
    ("curve", "given", "word"),
    [
        (curves.gaussian(sigma=1), {"people": 9}, "pure DP"),
        (curves.pure(epsilon=1), {"people": 0}, "people"),
        (curves.pure(epsilon=1), {"people": 10**9}, "it is a valid bound"),
        (curves.pure(epsilon=1), {"people": 10, "distance": 0.9}, "the largest distance that the curve allows"),
        (curves.pure(epsilon=1), {"people": 10, "distance": 0.0}, "distance"),
    ],
)
def test_wrong_arguments_are_refused(curve: Curve, given: dict[str, float], word: str) -> None:
    with pytest.raises(InvalidParameter, match=word):
        curve.shuffled(**given)
