"""Every public mechanism and protocol of ours, by name: a case for `check_mechanism`, with its exact law where there is
one. `test_every_public_mechanism_is_here` fails when a new one is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from deniable import Unit, curves, local, mechanisms, testing
from deniable.mechanisms import cautionary
from tests.audit.cases import ALONE, STAR, entry_ratio, hashed

Pmf = Callable[[int], float]
Case = tuple[Any, tuple[Any, Any], dict[str, Any]]
"""A mechanism, two neighbours that are hard to protect, and what else `check_mechanism` is told."""

ROW = Unit.row()


# -- laws ------------------------------------------------------------------------------------------------------------


def geometric(scale: float) -> Callable[[int], Pmf]:
    r = math.exp(-1 / scale)
    return lambda value: lambda y: (1 - r) / (1 + r) * r ** abs(y - value)


def rounded(sigma: float) -> Callable[[int], Pmf]:
    def phi(x: float) -> float:
        return math.erfc(-x / sigma / math.sqrt(2)) / 2

    return lambda value: lambda y: phi(-abs(y - value) + 0.5) - phi(-abs(y - value) - 0.5)


def discrete_gaussian(sigma: float) -> Callable[[int], Pmf]:
    total = sum(math.exp(-(z**2) / (2 * sigma**2)) for z in range(-50, 51))
    return lambda value: lambda y: math.exp(-((y - value) ** 2) / (2 * sigma**2)) / total


def poisson(rate: Callable[[int], Any]) -> Callable[[int], Pmf]:
    return lambda value: (
        lambda y: math.exp(-(m := float(rate(value))) + y * math.log(m) - math.lgamma(y + 1)) if y >= 0 else 0.0
    )


def floored(sigma: float) -> Callable[[float], Pmf]:
    """The law of ⌊value + N(0, σ²)⌋."""
    return lambda value: (
        lambda y: (
            (math.erfc((y - value) / sigma / math.sqrt(2)) - math.erfc((y + 1 - value) / sigma / math.sqrt(2))) / 2
        )
    )


def by_index(selection: Any) -> Callable[[Any], Mapping[int, float]]:
    return lambda scores: dict(enumerate(selection.probabilities(scores)))


def by_answer(selection: Any) -> Callable[[Any], Mapping[Any, float]]:
    return lambda data: dict(zip(selection.answers, selection.probabilities(data), strict=True))


def peeled(selection: Any) -> Callable[[Any], Mapping[tuple[int, int], float]]:
    """The law of two winners, the first set aside: one after the other."""

    def law(scores: Any) -> Mapping[tuple[int, int], float]:
        found = {}
        for i, p in enumerate(selection.probabilities(scores)):
            left = [j for j in range(len(scores)) if j != i]
            for j, q in zip(left, selection.probabilities([scores[j] for j in left]), strict=True):
                found[(i, j)] = p * q
        return found

    return law


def memoised_law(x: float) -> Mapping[int, float]:
    """One report at ε = 2 and a flip of 1/10: a line in the answer, from one end of the odds to the other."""
    one = 0.1 + 0.8 * (1 + x * math.expm1(2)) / (1 + math.exp(2))
    return {1: one, 0: 1 - one}


def kept_bits(own: float, other: float, bits: int) -> Callable[[int], Mapping[Any, float]]:
    """The law of a row of bits packed into one byte: each is 1 with one chance if it is the person's own."""

    def law(answer: int) -> Mapping[Any, float]:
        found = {}
        for row in range(2**bits):
            chances = [own if i == answer else other for i in range(bits)]
            found[(row,)] = math.prod(c if row >> i & 1 else 1 - c for i, c in enumerate(chances))
        return found

    return law


# -- distances -------------------------------------------------------------------------------------------------------


def below_best(scores: Any, index: int) -> float:
    return float(max(scores) - scores[index])


def below_ranks(scores: Any, winners: Any) -> float:
    best = sorted(scores, reverse=True)
    return max(float(best[j] - scores[i]) for j, i in enumerate(winners))


def missed(values: Any, found: int | None) -> float:
    """How far an answer of the alarm is on the wrong side of its threshold, 3."""
    below = [v - 3 for v in (values if found is None else values[:found])]
    return float(max([*below, *([] if found is None else [3 - values[found]])]))


def missed_any(values: Any, found: Any) -> float:
    """The same for several answers; after the second positive one nothing is asked."""
    asked = values[: found[1] + 1] if len(found) == 2 else values
    return float(max(3 - v if i in found else v - 3 for i, v in enumerate(asked)))


def off_totals(numbers: Any, totals: Any) -> float:
    return float(np.abs(np.asarray(totals) - np.cumsum(numbers)).max())


def off_shares(bits: Any, answers: Any) -> float:
    return float(np.abs(answers - np.array(WEIGHTS) @ np.array(bits) / len(bits)).max())


def off_counts(histogram: Any) -> Callable[[Any, Any], float]:
    return lambda rows, answer: float(np.abs(answer - histogram.count(rows)).max())


# -- the cases -------------------------------------------------------------------------------------------------------

SCORES = ([3, 2, 2], [2, 3, 3])
RISING = ([3, 2, 2], [3, 3, 3])
"""All scores move the same way: for monotone selections."""
QUESTIONS = ([2, 2, 4], [3, 3, 3])
MORE = ([2, 2, 3], [3, 3, 4])
STEPS = ([0, 1, 1, 0], [0, 1, 2, 0])
WEIGHTS = [[1, 1, 1], [1, 0, 1]]
BITS = ([1, 0, 1], [1, 0, 0])

SOUND = mechanisms.DiscreteLaplace(sensitivity=1, scale=1)
SHARP = mechanisms.DiscreteLaplace(sensitivity=1, scale=Fraction(1, 3))
EXPONENTIAL = mechanisms.Exponential(sensitivity=1, epsilon=1, candidates=3)
FLIPPING = mechanisms.PermuteAndFlip(sensitivity=1, epsilon=1, candidates=3)
NOISY_MAX = mechanisms.NoisyMax(sensitivity=1, epsilon=1, candidates=3)
RISING_EXPONENTIAL = mechanisms.MonotoneExponential(sensitivity=1, epsilon=1, candidates=3)
RISING_FLIPPING = mechanisms.MonotonePermuteAndFlip(sensitivity=1, epsilon=1, candidates=3)
RISING_MAX = mechanisms.MonotoneNoisyMax(sensitivity=1, epsilon=1, candidates=3)
TOWNS = mechanisms.Histogram(categories=["a", "b"], unit=ROW, epsilon=1.0)
MEDIAN = mechanisms.InverseSensitivity.median(answers=range(4), epsilon=1)
MAJORITY = mechanisms.BinaryInverseSensitivity.median(epsilon=1)
POISSON = mechanisms.PoissonMechanism.linear(low=2, high=5, top=10)
KEYS = mechanisms.UnknownKeys(unit=ROW, scale=1, threshold=2)
ANSWERS = mechanisms.LinearQueries.laplace(weights=WEIGHTS, epsilon=4.0)
RANGE = mechanisms.Bounds(unit=ROW, epsilon=3, exponents=(0, 3))
SHOWN = int(RANGE.noise.error(confidence=RANGE.confidence))
"""Rows in one bin beyond which it is shown."""
HASHING = local.LocalHashing(categories=4, epsilon=4.0)


def person(protocol: Any) -> testing.OnePerson:
    return testing.OnePerson(protocol)


SKETCH = local.HadamardSketch(width=8, hashes=1, epsilon=3.0)


def read_entry(report: Any) -> float:
    """Whether a report speaks for one text and not for the other."""
    return entry_ratio(SKETCH, "pear", "fig")(report)


def read_hash(report: Any) -> float:
    """Whether a report speaks for 0 or for 1."""
    return hashed(0, 1, HASHING.buckets)(report)


def same(answers: tuple[int, ...]) -> mechanisms.Mechanism:
    """The mechanism that `Adaptive` goes on with: less noise after a large answer, and never more than ε = 1."""
    return SOUND if answers[0] > 0 else mechanisms.DiscreteLaplace(sensitivity=1, scale=2)


OURS: dict[str, Case] = {
    "Laplace": (mechanisms.Laplace(sensitivity=1, epsilon=1), (0, 1), {"law": geometric(1)}),
    "Laplace on floats": (mechanisms.Laplace(sensitivity=1.0, epsilon=1), (0.0, 1.0), {"trials": 2000}),
    "Laplace on vectors": (
        mechanisms.Laplace(sensitivity=2, epsilon=3, dimension=2),
        ([0, 0], [1, -1]),
        {"trials": 2000},
    ),
    "Gaussian": (mechanisms.Gaussian(sensitivity=1, sigma=1.5), (0, 1), {"law": rounded(1.5)}),
    "Gaussian on floats": (mechanisms.Gaussian(sensitivity=0.1, sigma=0.05), (0.2, 0.3), {"trials": 2000}),
    "Gaussian floored": (
        mechanisms.Gaussian(sensitivity=1.0, sigma=2).then(math.floor),
        (0.3, 1.3),
        {"law": floored(2)},
    ),
    "DiscreteLaplace": (mechanisms.DiscreteLaplace(sensitivity=2, scale=3), (5, 7), {"law": geometric(3)}),
    "DiscreteGaussian": (mechanisms.DiscreteGaussian(sensitivity=1, sigma=1), (0, 1), {"law": discrete_gaussian(1)}),
    "Staircase": (mechanisms.Staircase(sensitivity=1, epsilon=1), (0, 1), {"law": geometric(1), "trials": 1500}),
    "Staircase on floats": (mechanisms.Staircase(sensitivity=1.0, epsilon=1), (0.0, 1.0), {"trials": 1500}),
    "PoissonMechanism": (
        POISSON,
        (0, 1),
        {"law": poisson(POISSON.rate), "distance": lambda v, y: abs(POISSON.estimate(y) - v), "trials": 1500},
    ),
    # -- composed
    "Composed": (
        mechanisms.DiscreteLaplace(sensitivity=1, scale=1) * mechanisms.DiscreteGaussian(sensitivity=1, sigma=1),
        (0, 1),
        {"trials": 1500},
    ),
    "Adaptive": (SHARP.followed_by(same, curve=curves.pure(epsilon=1.0)), (0, 1), {"trials": 300}),
    "Parallel": (mechanisms.Parallel.by_value([SOUND, SOUND], unit=ROW), ((2, 3), (2, 4)), {"trials": 1500}),
    # -- selections
    "Exponential": (EXPONENTIAL, SCORES, {"law": by_index(EXPONENTIAL), "distance": below_best, "trials": 1000}),
    "PermuteAndFlip": (FLIPPING, SCORES, {"law": by_index(FLIPPING), "distance": below_best, "trials": 1000}),
    "NoisyMax": (NOISY_MAX, SCORES, {"law": by_index(NOISY_MAX), "distance": below_best, "trials": 1000}),
    "MonotoneExponential": (
        RISING_EXPONENTIAL,
        RISING,
        {"law": by_index(RISING_EXPONENTIAL), "distance": below_best, "trials": 1000},
    ),
    "MonotonePermuteAndFlip": (
        RISING_FLIPPING,
        RISING,
        {"law": by_index(RISING_FLIPPING), "distance": below_best, "trials": 1000},
    ),
    "MonotoneNoisyMax": (RISING_MAX, RISING, {"law": by_index(RISING_MAX), "distance": below_best, "trials": 1000}),
    "TopK": (
        mechanisms.TopK(EXPONENTIAL, count=2),
        SCORES,
        {
            "law": peeled(mechanisms.Exponential(sensitivity=1, epsilon=1)),
            "distance": below_ranks,
            "trials": 1000,
        },
    ),
    "OneShotTopK": (mechanisms.OneShotTopK(FLIPPING, count=2), SCORES, {"distance": below_ranks, "trials": 1000}),
    "InverseSensitivity": (
        MEDIAN,
        ([0, 1, 3], [1, 1, 3]),
        {
            "law": by_answer(MEDIAN),
            "distance": lambda data, y: MEDIAN.distances(data)[MEDIAN.answers.index(y)],
            "trials": 1000,
        },
    ),
    "BinaryMedian": (
        mechanisms.BinaryMedian(epsilon=2),
        ([0, 0, 1], [0, 1, 1]),
        {"law": lambda rows: {1: 1 / (1 + math.exp(3 - 2 * sum(rows))), 0: 1 / (1 + math.exp(2 * sum(rows) - 3))}},
    ),
    "BinaryInverseSensitivity": (
        MAJORITY,
        ([0, 1, 1], [0, 0, 1]),
        {
            "law": by_answer(MAJORITY),
            "distance": lambda data, y: MAJORITY.distances(data)[MAJORITY.answers.index(y)],
            "trials": 1000,
        },
    ),
    "PiecewiseExponential": (
        mechanisms.PiecewiseExponential(bounds=(0, 4), sensitivity=1, epsilon=1).then(math.floor),
        (([0, 1, 2, 4], [0, 1, 0]), ([0, 1, 2, 4], [1, 0, 1])),
        {
            # Two of the four unit intervals share the last utility: e^(u/2) for each.
            "law": lambda steps: {
                i: math.exp(steps[1][min(i, 2)] / 2) / sum(math.exp(steps[1][min(j, 2)] / 2) for j in range(4))
                for i in range(4)
            },
            "trials": 1000,
        },
    ),
    "Quantile": (
        mechanisms.Quantile(q=0.25, bounds=(0, 8), spacing=1, epsilon=6, unit=ROW),
        ([1, 4, 6], [1, 4, 6, 0]),
        {"trials": 800},
    ),
    "Median": (
        mechanisms.Median(bounds=(0, 8), spacing=1, epsilon=6, unit=ROW),
        ([1, 4, 6], [1, 4, 6, 0]),
        {"trials": 800},
    ),
    # -- thresholds
    "AboveThreshold": (
        mechanisms.AboveThreshold(threshold=3, sensitivity=1, epsilon=8, questions=3),
        QUESTIONS,
        {"distance": missed, "trials": 1000},
    ),
    "MonotoneAboveThreshold": (
        mechanisms.MonotoneAboveThreshold(threshold=3, sensitivity=1, epsilon=8, questions=3),
        MORE,
        {"distance": missed, "trials": 1000},
    ),
    "SparseVector": (
        mechanisms.SparseVector(threshold=3, sensitivity=1, epsilon=12, positives=2, questions=3),
        QUESTIONS,
        {"distance": missed_any, "trials": 1000},
    ),
    "MonotoneSparseVector": (
        mechanisms.MonotoneSparseVector(threshold=3, sensitivity=1, epsilon=12, positives=2, questions=3),
        MORE,
        {"distance": missed_any, "trials": 1000},
    ),
    # -- counts and statistics
    "Histogram": (TOWNS, (["a"] * 3, ["a"] * 3 + ["b"]), {"distance": off_counts(TOWNS), "trials": 1500}),
    # For any one key named in advance, here "a"; a key that is not shown says nothing.
    "UnknownKeys": (
        KEYS,
        (["a"] * 9, ["a"] * 9 + ["b"]),
        {"distance": lambda _, shown: abs(shown.get("a", 9) - 9), "trials": 1500},
    ),
    "TreeCounter": (
        mechanisms.TreeCounter(horizon=4, sensitivity=1, epsilon=4.0),
        STEPS,
        {"distance": off_totals, "trials": 1500},
    ),
    "FactorisedCounter": (
        mechanisms.FactorisedCounter(horizon=4, sensitivity=1, mu=3.0),
        STEPS,
        {"distance": off_totals, "trials": 1000},
    ),
    "LinearQueries": (ANSWERS, BITS, {"distance": off_shares, "trials": 1000}),
    "LinearQueries by Gaussian noise": (
        mechanisms.LinearQueries.gaussian(weights=WEIGHTS, mu=3.0),
        BITS,
        {"distance": off_shares, "trials": 1000},
    ),
    "LinearQueries by randomized response": (
        mechanisms.LinearQueries.randomized_response(weights=WEIGHTS, epsilon=3.0),
        BITS,
        {"distance": off_shares, "trials": 1000},
    ),
    "Sum": (
        mechanisms.Sum(low=0, high=2, unit=ROW, epsilon=1),
        ([1, 2, 9], [1, 2, 9, 2]),
        {
            "law": lambda rows: geometric(2)(sum(min(r, 2) for r in rows)),
            "distance": lambda v, y: abs(y - 5 - 2 * (len(v) > 3)),
            "trials": 2000,
        },
    ),
    "Mean": (mechanisms.Mean(low=0, high=2, unit=ROW, epsilon=4), ([1.0, 2.0], [1.0, 2.0, 0.0]), {"trials": 1000}),
    "Variance": (
        mechanisms.Variance(low=0, high=2, unit=ROW, epsilon=12),
        ([1.0, 2.0], [1.0, 2.0, 0.0]),
        {"trials": 1000},
    ),
    "Bounds": (RANGE, ([1.5] * SHOWN, [1.5] * (SHOWN + 1)), {"trials": 1000}),
    # -- the cautionary ones: what they do is bad, what they say about it is true
    "Catastrophe": (
        cautionary.Catastrophe(SOUND, statistic=sum, delta=0.1),
        ([1, 1], [1, 2]),
        {"trials": 1000},
    ),
    "NameAndShame": (cautionary.NameAndShame(records=4), ([1, 0, 0, 1], [1, 0, 0, 0]), {"trials": 1000}),
    "Subsampling": (cautionary.Subsampling(rate=0.25), ([1, 0, 0], [1, 0, 2]), {"trials": 1000}),
    "EdgeCount": (
        mechanisms.graphs.EdgeCount(unit=mechanisms.graphs.GraphUnit.node(), degree=2, epsilon=1),
        (STAR, ALONE),
        {"trials": 1500, "law": lambda graph: geometric(2.0)(2 if graph == STAR else 0)},
    ),
    "DegreeSequence": (
        mechanisms.graphs.DegreeSequence(nodes="abcd", unit=mechanisms.graphs.GraphUnit.node(), degree=2, epsilon=4),
        (STAR, ALONE),
        {"trials": 3000},
    ),
    "DegreeHistogram": (
        mechanisms.graphs.DegreeHistogram(degree=2, unit=mechanisms.graphs.GraphUnit.node(), epsilon=4),
        (STAR, ALONE),
        {"trials": 3000},
    ),
    # -- local protocols
    "RandomizedResponse": (
        person(local.RandomizedResponse(epsilon=1.0)),
        (False, True),
        {"law": lambda yes: {yes: 1 / (1 + math.exp(-1)), not yes: 1 / (1 + math.exp(1))}},
    ),
    "WarnerSurvey": (
        person(local.WarnerSurvey(p=Fraction(3, 4))),
        (False, True),
        {"law": lambda yes: {yes: 0.75, not yes: 0.25}, "trials": 1500},
    ),
    "TwoCoinSurvey": (
        person(local.TwoCoinSurvey(truth=Fraction(1, 2), yes=Fraction(1, 2))),
        (False, True),
        {"law": lambda yes: {yes: 0.75, not yes: 0.25}, "trials": 1500},
    ),
    "NuRandomizedResponse": (
        person(local.NuRandomizedResponse(nu=0.25)),
        (False, True),
        {"law": lambda yes: {yes: 0.625, not yes: 0.375}, "trials": 1500},
    ),
    "KaryRandomizedResponse": (
        person(local.KaryRandomizedResponse(categories=4, epsilon=1.0)),
        (0, 3),
        {"law": lambda own: {y: math.exp(y == own) / (math.e + 3) for y in range(4)}, "trials": 1500},
    ),
    "SymmetricUnary": (
        person(local.SymmetricUnary(categories=3, epsilon=1.0)),
        (0, 1),
        {"law": kept_bits(1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(0.5)), 3), "trials": 1500},
    ),
    "OptimizedUnary": (
        person(local.OptimizedUnary(categories=3, epsilon=1.0)),
        (0, 1),
        {"law": kept_bits(0.5, 1 / (1 + math.e), 3), "trials": 1500},
    ),
    "SubsetSelection": (person(local.SubsetSelection(categories=4, epsilon=1.0)), (0, 1), {"trials": 1500}),
    # Which hash it is, is public: who works it out reads the report.
    "LocalHashing": (person(HASHING).then(read_hash), (0, 1), {"trials": 1000}),
    "Rappor": (person(local.Rappor(categories=3, f=0.25, p=0.1, q=0.9)), (0, 1), {"trials": 1500}),
    "BloomRappor": (
        person(local.BloomRappor(bits=8, hashes=2, cohorts=2, f=0.25, p=0.1, q=0.9)),
        ("pear", "plum"),
        {"trials": 1000},
    ),
    "CountMeanSketch": (
        person(local.CountMeanSketch(width=8, hashes=1, epsilon=4.0)),
        ("pear", "fig"),
        {"trials": 2000},
    ),
    # Which entry of the row it is, is public: who works it out reads the report.
    "HadamardSketch": (person(SKETCH).then(read_entry), ("pear", "fig"), {"trials": 2000}),
    "DuchiMean": (person(local.DuchiMean(low=-1, high=1, epsilon=1.0)), (-1.0, 1.0), {"trials": 1500}),
    "MemoisedMean": (
        person(local.MemoisedMean(low=0, high=1, epsilon=2.0, points=4, flip=0.1)),
        (0.0, 1.0),
        {"law": memoised_law, "trials": 1500},
    ),
    "PiecewiseMean": (person(local.PiecewiseMean(low=-1, high=1, epsilon=1.0)), (-1.0, 1.0), {"trials": 1500}),
    "HybridMean": (person(local.HybridMean(low=-1, high=1, epsilon=3.0)), (-1.0, 1.0), {"trials": 600}),
}
