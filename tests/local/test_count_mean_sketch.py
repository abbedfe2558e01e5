"""Count-mean sketches: exact laws by enumeration, unbiased estimates, coins that are as they should be."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from deniable import curves, local
from deniable.errors import InvalidParameter
from deniable.local.count_mean_sketch import hadamard
from tests.local import enumeration
from tests.local.enumeration import digits, hockey_stick, largest_loss
from tests.wording import worded

MISS = 1e-9
PEOPLE = 200_000


def reach(n: int) -> float:
    """How far a share of n coins may be off, except with probability 1e-9 (Hoeffding)."""
    return math.sqrt(math.log(2 / MISS) / (2 * n))


def test_the_hadamard_matrix_is_orthogonal():
    size = 16
    entries, places = (v.ravel() for v in np.meshgrid(np.arange(size), np.arange(size), indexing="ij"))
    matrix = np.where(hadamard(entries, places), 1, -1).reshape(size, size)
    assert np.array_equal(matrix @ matrix.T, size * np.eye(size, dtype=int))


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_bits_of_a_count_mean_sketch_are_flipped_at_half_epsilon(epsilon: float):
    """Own bit set with s/(s+1), another with 1/(s+1), s = e^(ε/2): 3 % more flips would be seen."""
    sketch = local.CountMeanSketch(width=16, hashes=1, epsilon=epsilon)
    reports = sketch.randomize(["a"] * PEOPLE)
    rows = np.unpackbits(reports.rows, axis=1, count=16, bitorder="little")
    flip = 1 / (math.exp(epsilon / 2) + 1)
    own = sketch.place_of("a", number=0)
    for place in range(16):
        truth = 1 - flip if place == own else flip
        assert abs(rows[:, place].mean() - truth) <= reach(PEOPLE)
    assert 0.03 * flip > reach(PEOPLE)  # the control


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_bits_of_a_hadamard_sketch_are_flipped_at_epsilon(epsilon: float):
    sketch = local.HadamardSketch(width=8, hashes=3, epsilon=epsilon)
    reports = sketch.randomize(["a"] * PEOPLE)
    places = np.array([sketch.place_of("a", number=j) for j in range(3)])[reports[:, 0]]
    wrong = (reports[:, 2] == 1) != hadamard(reports[:, 1], places)
    assert abs(wrong.mean() - 1 / (math.exp(epsilon) + 1)) <= reach(PEOPLE)
    for column, size in ((0, 3), (1, 8)):
        counts = np.bincount(reports[:, column], minlength=size) / PEOPLE
        assert np.max(np.abs(counts - 1 / size)) <= reach(PEOPLE)


def laws_of(sketch, one: str, two: str) -> tuple[list[float], list[float]]:
    """The exact laws of a Hadamard report for two texts, by enumeration."""
    p, q = [], []
    kept = math.exp(sketch.odds.epsilon) / (1 + math.exp(sketch.odds.epsilon))
    for number in range(sketch.hashes):
        for entry in range(sketch.width):
            for bit in (True, False):
                for text, law in ((one, p), (two, q)):
                    place = np.array([sketch.place_of(text, number=number)])
                    agrees = bool(hadamard(np.array([entry]), place)[0]) == bit
                    law.append((kept if agrees else 1 - kept) / (sketch.hashes * sketch.width))
    return p, q


def test_the_curve_of_a_hadamard_sketch_is_attained_by_texts_that_never_meet():
    sketch = local.HadamardSketch(width=8, hashes=2, epsilon=1.5)
    names = [f"t{i}" for i in range(40)]
    for other in names[1:]:
        p, q = laws_of(sketch, names[0], other)
        apart = all(sketch.place_of(names[0], number=j) != sketch.place_of(other, number=j) for j in range(2))
        for epsilon in (0.0, 0.7, 1.4):
            delta = sum(max(a - math.exp(epsilon) * b, 0) for a, b in zip(p, q, strict=True))
            low, high = sketch.curve.delta_bounds(epsilon=epsilon)
            assert delta <= high + 1e-12
            assert not apart or delta >= low - 1e-12
    assert sketch.curve.epsilon(delta=0) == pytest.approx(1.5)


def test_the_curve_of_a_count_mean_sketch_is_that_of_two_coins():
    sketch = local.CountMeanSketch(width=64, hashes=8, epsilon=1.5)
    assert sketch.curve == curves.randomized_response(epsilon=0.75) ** 2
    assert sketch.curve.epsilon(delta=0) == pytest.approx(1.5)


SMALL = [
    local.CountMeanSketch(width=3, hashes=2, epsilon=1.5),
    local.CountMeanSketch(width=2, hashes=2, odds=Fraction(9, 4)),
    local.HadamardSketch(width=4, hashes=2, epsilon=1.5),
    local.HadamardSketch(width=2, hashes=3, odds=3),
]
SMALL_IDS = ["count-mean", "count-mean of rational odds", "hadamard", "hadamard of rational odds"]


def report_of(sketch, text: str):
    """One report as something that can be counted."""
    return lambda: sketch.encode(sketch.randomize(text))[0]


@pytest.mark.parametrize("sketch", SMALL, ids=SMALL_IDS)
def test_no_two_texts_are_told_apart_better_than_claimed(sketch, monkeypatch):
    """The law of what the code itself returns, over all of its coins."""
    laws = [enumeration.law(report_of(sketch, f"t{i}"), monkeypatch, bits=sketch.width) for i in range(5)]
    claimed = sketch.curve.epsilon(delta=0)
    losses = [largest_loss(p, q) for p in laws for q in laws]
    assert max(losses) <= claimed <= max(losses) * (1 + 1e-12)
    for epsilon in (0.0, 0.4, 0.9):
        worst = max(hockey_stick(p, q, epsilon) for p in laws for q in laws)
        assert worst <= sketch.curve.delta(epsilon=epsilon)


@pytest.mark.parametrize("sketch", SMALL, ids=SMALL_IDS)
def test_estimates_are_right_on_average_and_so_is_their_error(sketch, monkeypatch):
    """Two people with one text, over all reports that they can send; and what a text that nobody has is taken for."""
    own = enumeration.law(report_of(sketch, "t0"), monkeypatch, bits=sketch.width)
    reports = {text: sketch.estimate(sketch.parsed([text]), candidates=["t0", "t1"]).value for text in own}
    mean = [sum(float(digits(mass)) * reports[text][i] for text, mass in own.items()) for i in (0, 1)]
    square = sum(float(digits(mass)) * reports[text][0] ** 2 for text, mass in own.items())
    meets = np.mean([sketch.place_of("t0", number=j) == sketch.place_of("t1", number=j) for j in range(sketch.hashes)])
    assert mean[0] == pytest.approx(1, abs=1e-12)
    assert mean[1] == pytest.approx((sketch.width * meets - 1) / (sketch.width - 1), abs=1e-12)
    squares, meeting = 0.0, 1 / (sketch.hashes * (sketch.width - 1))
    for one, mass in own.items():
        for two, other in own.items():
            found = sketch.estimate(sketch.parsed([one, two]), candidates=["t0"])
            squares += float(digits(mass) * digits(other)) * (found.standard_error[0] ** 2 - meeting)
    assert squares == pytest.approx((square - 1) / 2, rel=1e-9)


def test_texts_that_meet_add_the_variance_that_is_allowed_for():
    """Over random hash functions a text of share p that meets the candidate adds p²/(hashes (width - 1)): enumerated."""
    width, hashes, shares = 3, 2, (Fraction(1, 2), Fraction(1, 3))
    found = []
    for places in itertools.product(range(width), repeat=hashes * len(shares)):
        bias = Fraction(0)
        for t, share in enumerate(shares):
            for j in range(hashes):
                met = places[t * hashes + j] == 0  # the candidate is at place 0 under every function
                bias += share * Fraction(width * met - 1, (width - 1) * hashes)
        found.append(bias)
    assert sum(found) == 0
    variance = sum(b * b for b in found) / len(found)
    assert variance == sum(s * s for s in shares) / (hashes * (width - 1)) <= Fraction(1, hashes * (width - 1))


@pytest.mark.parametrize(
    "sketch",
    [
        local.CountMeanSketch(width=128, hashes=256, epsilon=3.0),
        local.HadamardSketch(width=128, hashes=256, epsilon=3.0),
    ],
    ids=["count-mean", "hadamard"],
)
def test_shares_of_texts_are_estimated(sketch):
    """Shares .5, .3, .2, 0: each within 6.5 of its standard errors (false-alarm rate below 1e-9 each)."""
    answers = ["pear"] * 10_000 + ["plum"] * 6_000 + ["fig"] * 4_000
    estimate = sketch.estimate(sketch.randomize(answers), candidates=["pear", "plum", "fig", "kiwi"])
    truth = np.array([0.5, 0.3, 0.2, 0.0])
    assert np.all(np.abs(estimate.value - truth) <= 6.5 * estimate.standard_error)
    assert np.all(estimate.standard_error < 0.03)
    assert estimate.people == 20_000


@pytest.mark.parametrize("kind", [local.CountMeanSketch, local.HadamardSketch])
def test_reports_survive_a_file(kind):
    sketch = kind(width=32, hashes=4, epsilon=1.0)
    reports = sketch.randomize(["a", "b", "c"])
    texts = sketch.encode(reports)
    assert sketch.encode(sketch.decode(texts)) == texts
    again = kind(**sketch.parameters())
    assert again.parameters() == sketch.parameters()


@pytest.mark.parametrize("text", ["4 00", "-1 00", "0 0", "x", "", "0 00 1", "0 0 2", "9 9 9", "0 0 -1"])
@pytest.mark.parametrize("kind", [local.CountMeanSketch, local.HadamardSketch])
def test_impossible_reports_are_refused(kind, text: str):
    with pytest.raises(InvalidParameter, match="reports"):
        kind(width=32, hashes=4, epsilon=1.0).decode([text])


def test_bad_sketches_are_refused():
    with worded(InvalidParameter):
        local.HadamardSketch(width=12, hashes=4, epsilon=1.0)
    with pytest.raises(InvalidParameter, match="width"):
        local.CountMeanSketch(width=1, hashes=4, epsilon=1.0)
    sketch = local.HadamardSketch(width=8, hashes=4, epsilon=1.0)
    reports = sketch.randomize(["a"])
    with pytest.raises(InvalidParameter, match="candidates"):
        sketch.estimate(reports, candidates=["a", "a"])
