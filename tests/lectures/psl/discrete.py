"""Discrete mechanisms: the median of bits, the exponential mechanism, inverse sensitivity."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import deniable as dn
from deniable import audit, mechanisms, plots
from deniable.mechanisms import BinaryInverseSensitivity, limits, small
from tests.lectures.independent import likely
from tests.lectures.item import Item

REPLACED = dn.Unit.replaced_row()
BITS = [1] * 8 + [0] * 3
"""n = 11, s = 8."""


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def median_probability(ones: int, records: int, epsilon: float) -> float:
    """The slide's mechanism: the exponential mechanism with utilities ±(s - n/2)."""
    return mechanisms.BinaryMedian(epsilon=epsilon).probability(ones=ones, rows=records)


def majority(data: tuple[int, ...]) -> int:
    return int(2 * sum(data) > len(data))


def softmax(scores: list[float], epsilon: float) -> list[float]:
    weights = [math.exp(epsilon * score / 2) for score in scores]
    return [weight / sum(weights) for weight in weights]


def _chosen() -> bool:
    mechanism = dn.Exponential(sensitivity=1, epsilon=0.5)
    count = sum(mechanism.release([0, 1, 3]) == 2 for _ in range(500))
    return likely(count, 500, softmax([0, 1, 3], 0.5)[2])


def _largest_loss(one: list[float], two: list[float], epsilon: float) -> float:
    pairs = zip(softmax(one, epsilon), softmax(two, epsilon), strict=True)
    return max(abs(math.log(p / q)) for p, q in pairs)


def _utility_moves() -> float:
    """Over all x, x′ in {0, 1}³ at Hamming distance one, and y."""
    bits = list(itertools.product([0, 1], repeat=3))
    return max(
        abs((2 * y - 1) * (sum(x) - sum(z)))
        for x in bits
        for z in bits
        if sum(a != b for a, b in zip(x, z, strict=True)) == 1
        for y in (0, 1)
    )


def _biased() -> int:
    """On how many of all data the mode of the law is not the median."""
    return sum(int((median_probability(ones, 11, 0.5) > 0.5) != (2 * ones > 11)) for ones in range(12))


def _distances(statistic: Callable[[Any], Any], data: tuple[int, ...], answers: list[Any]) -> list[float]:
    return [small.distance_to(statistic, data, answer, domain=[0, 1], unit=REPLACED) for answer in answers]


def _distances_by_hand(statistic: Callable[[Any], Any], data: tuple[int, ...], answers: list[Any]) -> list[float]:
    found = []
    for answer in answers:
        near = [
            sum(a != b for a, b in zip(data, other, strict=True))
            for other in itertools.product([0, 1], repeat=len(data))
            if statistic(other) == answer
        ]
        found.append(float(min(near)))
    return found


def _distance_moves() -> float:
    found = small.sensitivity(lambda data: _distances(majority, data, [0, 1]), domain=[0, 1], rows=5, unit=REPLACED)
    return found.linf


def _curves_of_the_median() -> list[list[float]]:
    two = BinaryInverseSensitivity.median(epsilon=0.5)
    figure = plots.chances(mechanisms.BinaryMedian(epsilon=0.5), two, rows=11)
    return [list(line.y) for line in figure.panels[0].lines.values()]


def _curves_by_hand() -> list[list[float]]:
    ones, epsilon, k = range(12), 0.5, 5
    return [
        [logistic((2 * s - 11) * epsilon / 2) for s in ones],
        [logistic((s - k) * epsilon) if s > k else logistic((s - k - 1) * epsilon) for s in ones],
        [logistic((2 * s - 11) * epsilon) for s in ones if s > k],
    ]


def _inverse() -> list[float]:
    mechanism = dn.InverseSensitivity(answers=[0, 1, 2, 3], distance=lambda x, y: abs(x - y), epsilon=1.0)
    return [float(p) for p in mechanism.probabilities(0)]


ITEMS: tuple[Item, ...] = (
    Item(
        id="0.40",
        title="The median of bits: a ceiling at the narrowest majority",
        api="mechanisms.limits.binary_median_ceiling",
        ours=lambda: limits.binary_median_ceiling(records=11, ones=6, epsilon=0.5),
        truth=logistic(0.5),
    ),
    Item(
        id="0.41",
        title="The ceiling for any majority",
        api="mechanisms.limits.binary_median_ceiling",
        ours=lambda: limits.binary_median_ceiling(records=11, ones=8, epsilon=0.5),
        truth=logistic(5 * 0.5),
    ),
    Item(
        id="0.42",
        title="A mechanism for the median",
        api="mechanisms.BinaryMedian",
        ours=lambda: median_probability(8, 11, 0.5),
        truth=logistic(5 * 0.5 / 2),
    ),
    Item(
        id="F.04",
        title="Figure: p(s) of the private median",
        api="plots.chances, mechanisms.BinaryInverseSensitivity.median",
        ours=_curves_of_the_median,
        truth=_curves_by_hand,
    ),
    Item(
        id="0.43",
        title="Right with 95 % if the majority is 3/ε wide",
        api="mechanisms.BinaryMedian",
        ours=lambda: median_probability(9, 12, 1.0),
        truth=logistic(3.0),
    ),
    Item(
        id="0.44",
        title="The margin that statistics needs: 1.36 √n",
        api="mechanisms.limits.statistical_margin",
        ours=lambda: limits.statistical_margin(records=100, confidence=0.95),
        truth=math.sqrt(math.log(2 / 0.05) / 2) * 10,
    ),
    Item(
        id="0.45",
        title="From ε = √(5/n) on, privacy is free",
        api="mechanisms.limits.free_epsilon",
        ours=lambda: limits.free_epsilon(records=10_000, confidence=0.95),
        truth=3 / math.sqrt(math.log(2 / 0.05) / 2) / 100,
    ),
    Item(
        id="0.46",
        title="A utility and its sensitivity",
        api="mechanisms.small.sensitivity",
        ours=lambda: (
            small.sensitivity(lambda d: [1.5 - sum(d), sum(d) - 1.5], domain=[0, 1], rows=3, unit=REPLACED).linf
        ),
        truth=_utility_moves,
    ),
    Item(
        id="0.48",
        title="The exponential mechanism",
        api="Exponential.probabilities",
        ours=lambda: dn.Exponential(sensitivity=1, epsilon=0.5).probabilities([0, 1, 3]),
        truth=softmax([0, 1, 3], 0.5),
    ),
    Item(
        id="0.48b",
        title="Its answers",
        api="Exponential.release",
        ours=_chosen,
        truth=True,
    ),
    Item(
        id="0.50",
        title="Its proof: the largest loss is at most ε",
        api="audit.exact",
        ours=lambda: audit.exact(dn.Exponential(sensitivity=1, epsilon=0.5), neighbours=([0, 1, 3], [1, 0, 2])).epsilon(
            delta=0
        ),
        truth=lambda: _largest_loss([0, 1, 3], [1, 0, 2], 0.5),
    ),
    Item(
        id="0.51",
        title="The utility theorem",
        api="mechanisms.limits.exponential_utility",
        ours=lambda: limits.exponential_utility(candidates=10, sensitivity=1, epsilon=1, gap=2 * math.log(10 / 0.05)),
        truth=0.05,
    ),
    Item(
        id="0.51b",
        title="Its exact worst case",
        api="Exponential.error",
        ours=lambda: dn.Exponential(sensitivity=1, epsilon=1, candidates=10).error(confidence=0.95),
        truth=2 * math.log(9 * 0.95 / 0.05),
    ),
    Item(
        id="0.53",
        title="The theorem for the median",
        api="mechanisms.limits.exponential_utility",
        ours=lambda: limits.exponential_utility(candidates=2, sensitivity=1, epsilon=0.5, gap=2 * abs(8 - 5.5)),
        truth=2 * math.exp(-abs(8 - 5.5) * 0.5),
    ),
    Item(
        id="0.54",
        title="Unbiased: the truth is the likeliest answer",
        api="mechanisms.BinaryMedian",
        ours=_biased,
        truth=0,
    ),
    Item(
        id="0.55",
        title="Inverse sensitivity of the median",
        api="mechanisms.BinaryInverseSensitivity.distances",
        ours=lambda: list(BinaryInverseSensitivity.median(epsilon=0.5).distances(BITS)),
        truth=[abs(8 - 5.5) + 0.5, 0.0],
    ),
    Item(
        id="0.55b",
        title="Inverse sensitivity of any statistic, by search",
        api="mechanisms.small.distance_to",
        ours=lambda: _distances(sum, (0, 0, 0, 1), [0, 1, 2, 3, 4]) + _distances(majority, (1, 1, 1, 0, 1), [0, 1]),
        truth=lambda: (
            _distances_by_hand(sum, (0, 0, 0, 1), [0, 1, 2, 3, 4])
            + _distances_by_hand(majority, (1, 1, 1, 0, 1), [0, 1])
        ),
    ),
    Item(
        id="0.56",
        title="A ceiling for unbiased mechanisms",
        api="mechanisms.limits.correct_ceiling",
        ours=lambda: limits.correct_ceiling([0, 3], epsilon=0.5),
        truth=1 / (1 + math.exp(-2 * 3 * 0.5)),
    ),
    Item(
        id="0.59",
        title="The inverse sensitivity mechanism",
        api="InverseSensitivity.probabilities",
        ours=_inverse,
        truth=softmax([0, -1, -2, -3], 1.0),
    ),
    Item(
        id="0.60",
        title="Distances move by at most one",
        api="mechanisms.small.sensitivity, mechanisms.small.distance_to",
        ours=_distance_moves,
        truth=1.0,
    ),
    Item(
        id="0.61",
        title="1/4-optimality",
        api="mechanisms.limits.correct_ceiling, mechanisms.limits.optimal_share",
        ours=lambda: [limits.correct_ceiling([0, 1, 2, 3], epsilon=0.25), limits.optimal_share(answers=4)],
        truth=[softmax([0, -1, -2, -3], 1.0)[0], 0.25],
    ),
    Item(
        id="0.62",
        title="Two answers need no factor 1/2",
        api="mechanisms.BinaryInverseSensitivity.probabilities",
        ours=lambda: BinaryInverseSensitivity.median(epsilon=0.5).probabilities(BITS),
        truth=[1 - logistic((8 - 5) * 0.5), logistic((8 - 5) * 0.5)],
    ),
    Item(
        id="0.64",
        title="1/2-optimality for two answers",
        api="mechanisms.limits.optimal_share",
        ours=lambda: [
            float(limits.optimal_share(answers=2)),
            limits.correct_ceiling([0, 3], epsilon=0.25),
        ],
        truth=[0.5, logistic(3 * 0.5)],
    ),
)
