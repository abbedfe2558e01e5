"""Every mechanism of `mechanisms` and `local`, at a pair of neighbours that is hard to protect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from deniable import Unit, curves, local, mechanisms
from deniable.curves import Curve
from deniable.local.categorical_responses import PRIME


@dataclass(frozen=True)
class Case:
    """A mechanism, its claim, and whether the claim is attained on this pair by events that can be met."""

    name: str
    mechanism: Any
    neighbours: tuple[Any, Any]
    tight: bool
    delta: float = 0.0
    likelihood_ratio: Callable[[Any], float] | None = None
    claim: Curve | None = None
    quick: bool = True
    """Whether a million answers take seconds, not hours."""
    effort: int = 1
    """How many times more trials the long run gives it: its telling events are rare."""


def hashed(a: int, b: int, buckets: int) -> Callable[[Any], float]:
    """Local hashing hides the answer in a hash that is public: only who works it out can tell two answers apart."""

    def ratio(report: Any) -> float:
        slope, start, said = (int(v) for v in report)
        places = [(slope * value + start) % PRIME * buckets // PRIME for value in (a, b)]
        return float(places[0] == said) - float(places[1] == said)

    return ratio


class Bits:
    """Packed bits, unpacked: as they come, eight bits are one number."""

    def __init__(self, protocol: Any) -> None:
        self.protocol, self.curve = protocol, protocol.curve

    def many(self, value: Any, count: int) -> Any:
        return self.protocol.unpacked(self.protocol.randomize([value] * count)).astype(np.int64)


class Rows:
    """A table of one row, many times: each row as one number."""

    def __init__(self, table: Any) -> None:
        self.table, self.curve = table, table.curve

    def many(self, value: Any, count: int) -> Any:
        reports = self.table.randomize({"smokes": [value[0]] * count, "drink": [value[1]] * count})
        words = np.array([["tea", "milk", "water"].index(word) for word in reports["drink"]])
        return np.array(reports["smokes"]) * 3 + words


def cohort_ratio(protocol: Any, a: str, b: str) -> Callable[[Any], float]:
    """Reports of cohorts: which bits one answer sets in the cohort and the other does not, a public matter."""
    ratios: dict[tuple[int, ...], float] = {}

    def ratio(report: Any) -> float:
        cohort, *packed = (int(v) for v in report)
        if (cohort, *packed) not in ratios:
            bits = np.unpackbits(np.array(packed, dtype=np.uint8), bitorder="little")
            first, second = (set(protocol.filter_of(text, cohort=cohort).tolist()) for text in (a, b))
            ratios[cohort, *packed] = sum(float(bits[i]) for i in first) - sum(float(bits[i]) for i in second)
        return ratios[cohort, *packed]

    return ratio


def sketch_ratio(protocol: Any, a: str, b: str) -> Callable[[Any], float]:
    """Reports of a count-mean sketch: the bits at the places of both texts."""

    def ratio(report: Any) -> float:
        number, *packed = (int(v) for v in report)
        bits = np.unpackbits(np.array(packed, dtype=np.uint8), bitorder="little")
        one, two = (protocol.place_of(text, number=number) for text in (a, b))
        return float(bits[one]) - float(bits[two])

    return ratio


def entry_ratio(protocol: Any, a: str, b: str) -> Callable[[Any], float]:
    """Reports of a Hadamard sketch: whether the bit agrees with the row of one text and not of the other."""

    def ratio(report: Any) -> float:
        number, entry, bit = (int(v) for v in np.ravel(report))
        agrees = [bin(entry & protocol.place_of(text, number=number)).count("1") % 2 == 1 - bit for text in (a, b)]
        return float(agrees[0]) - float(agrees[1])

    return ratio


def window(low: int, high: int) -> Callable[[Any], float]:
    """The piecewise mechanism: which of two windows a cell lies in."""
    return lambda cell: float(cell < low) - float(cell >= high)


def piecewise_ratio(protocol: Any) -> Callable[[Any], float]:
    cells, edge = protocol.outcomes, protocol.outcomes - protocol.steps
    return window(edge, cells - edge)


STAR = mechanisms.graphs.Graph(nodes="abcd", edges=[("d", "a"), ("d", "b"), ("d", "c")])
ALONE = mechanisms.graphs.Graph(nodes="abc", edges=[])
"""The same without its middle."""


def cases() -> list[Case]:
    m = mechanisms
    piecewise = local.PiecewiseMean(low=-1, high=1, epsilon=1.0)
    hashing = local.LocalHashing(categories=10, epsilon=1.0)
    add, replaced = Unit.row(), Unit.replaced_row()
    ab = ["a", "b"]
    half, quarter = (m.DiscreteLaplace(sensitivity=1, epsilon=e) for e in (0.5, 0.25))
    bounds = m.Bounds(unit=add, epsilon=1, exponents=(0, 3))
    shown = int(bounds.noise.error(confidence=bounds.confidence))
    counted = local.CountMeanSketch(width=8, hashes=1, epsilon=1.0)
    sketch = local.HadamardSketch(width=8, hashes=1, epsilon=1.0)
    bloom = local.BloomRappor(bits=8, hashes=1, cohorts=4, f=0.5, p=0.25, q=0.75)
    drinks = local.KaryRandomizedResponse(categories=3, epsilon=0.5), ["tea", "milk", "water"]
    table = local.TableResponse({"smokes": local.RandomizedResponse(epsilon=0.5), "drink": drinks})
    found = [
        Case("Laplace, whole", m.Laplace(sensitivity=1, epsilon=1), (0, 1), True),
        Case("Laplace, real", m.Laplace(sensitivity=1.0, epsilon=1), (0.0, 1.0), True),
        Case("Laplace, vector", m.Laplace(sensitivity=2, epsilon=1, dimension=2), ([0, 0], [2, 0]), True, quick=False),
        Case("DiscreteLaplace", m.DiscreteLaplace(sensitivity=2, epsilon=1), (0, 2), True),
        Case("Gaussian, whole", m.Gaussian(sensitivity=1, sigma=1), (0, 1), False, delta=0.1),
        Case("Gaussian, real", m.Gaussian(sensitivity=1.0, sigma=1), (0.0, 1.0), True, delta=0.1),
        Case("DiscreteGaussian", m.DiscreteGaussian(sensitivity=1, sigma=1), (0, 1), True, delta=0.1),
        Case("Staircase, whole", m.Staircase(sensitivity=3, epsilon=1), (0, 3), True, quick=False),
        Case("Staircase, real", m.Staircase(sensitivity=1.0, epsilon=1), (0.0, 1.0), True, quick=False),
        Case(
            "Exponential", m.Exponential(sensitivity=1, epsilon=1), ([0] + [1] * 5, [1] + [0] * 5), False, quick=False
        ),
        Case(
            "MonotoneExponential",
            m.MonotoneExponential(sensitivity=1, epsilon=1),
            ([0] * 6, [1] + [0] * 5),
            False,
            quick=False,
        ),
        Case("PermuteAndFlip", m.PermuteAndFlip(sensitivity=1, epsilon=1), ([0, 2], [1, 1]), True, quick=False),
        Case(
            "MonotonePermuteAndFlip",
            m.MonotonePermuteAndFlip(sensitivity=1, epsilon=1),
            ([0, 1], [1, 1]),
            True,
            quick=False,
        ),
        Case("NoisyMax", m.NoisyMax(sensitivity=1, epsilon=1), ([0, 5], [1, 4]), False, quick=False),
        Case("MonotoneNoisyMax", m.MonotoneNoisyMax(sensitivity=1, epsilon=1), ([0, 3], [1, 3]), False, quick=False),
        Case(
            "TopK",
            m.TopK(m.Exponential(sensitivity=1, epsilon=0.5), count=2),
            ([0, 0, 1, 1], [1, 1, 0, 0]),
            False,
            quick=False,
        ),
        Case(
            "OneShotTopK",
            m.OneShotTopK(m.PermuteAndFlip(sensitivity=1, epsilon=0.5), count=2),
            ([0, 0, 4], [1, 1, 3]),
            False,
            quick=False,
        ),
        Case(
            "AboveThreshold",
            m.AboveThreshold(threshold=0, sensitivity=1, epsilon=1),
            ([0] * 4, [1, 1, 1, -1]),
            False,
            quick=False,
        ),
        Case(
            "MonotoneAboveThreshold",
            m.MonotoneAboveThreshold(threshold=0, sensitivity=1, epsilon=1),
            ([0] * 4, [1] * 4),
            False,
            quick=False,
        ),
        Case(
            "SparseVector",
            m.SparseVector(threshold=0, sensitivity=1, epsilon=1, positives=2),
            ([0] * 6, [1, 1, 1, -1, -1, -1]),
            False,
            quick=False,
        ),
        Case(
            "MonotoneSparseVector",
            m.MonotoneSparseVector(threshold=0, sensitivity=1, epsilon=1, positives=2),
            ([0] * 6, [1] * 6),
            False,
            quick=False,
        ),
        Case(
            "Histogram, a row added",
            m.Histogram(categories=ab, unit=add, epsilon=1),
            (["a"], ["a", "b"]),
            True,
            quick=False,
        ),
        Case(
            "Histogram, a row replaced",
            m.Histogram(categories=ab, unit=replaced, epsilon=1),
            (["a"], ["b"]),
            True,
            quick=False,
        ),
        Case(
            "UnknownKeys",
            m.UnknownKeys(unit=add, epsilon=1, delta=0.05),
            (["a"] * 3, ["a"] * 4),
            False,
            delta=0.05,
            quick=False,
        ),
        Case(
            "PoissonMechanism",
            m.PoissonMechanism.linear(low=2, high=5),
            (0, 1),
            True,
            delta=0.1,
            quick=False,
            effort=4,
        ),
        Case(
            "InverseSensitivity",
            m.InverseSensitivity.median(answers=[0, 1, 2, 3], epsilon=1),
            ([0, 1, 2], [0, 2, 2]),
            False,
            quick=False,
        ),
        Case(
            "BinaryInverseSensitivity",
            m.BinaryInverseSensitivity.median(epsilon=1),
            ([0, 0, 1], [0, 1, 1]),
            False,
            quick=False,
        ),
        Case("BinaryMedian", m.BinaryMedian(epsilon=1), ([0, 0, 1], [0, 1, 1]), False, quick=False),
        Case(
            "Median",
            m.Median(bounds=(0.0, 10.0), epsilon=1, unit=replaced),
            ([5.0, 10.0], [5.0, 0.0]),
            False,
            quick=False,
        ),
        Case(
            "Quantile",
            m.Quantile(q=0.75, bounds=(0, 4), spacing=1, epsilon=1, unit=replaced),
            ([0], [4]),
            False,
            quick=False,
        ),
        Case(
            "PiecewiseExponential",
            m.PiecewiseExponential(bounds=(0, 10), sensitivity=1, epsilon=1),
            (([0, 1, 10], [0, 1]), ([0, 1, 10], [1, 0])),
            False,
            quick=False,
        ),
        Case("Bounds", bounds, ([1.5] * (shown - 1), [1.5] * shown), False, quick=False),
        Case("Sum", m.Sum(low=0, high=10, unit=add, epsilon=1), ([3, 4], [3, 4, 10]), True, quick=False),
        Case(
            "Mean", m.Mean(low=0, high=1, unit=replaced, rows=3, epsilon=1), ([0, 0, 1], [0, 1, 1]), True, quick=False
        ),
        Case(
            "Variance",
            m.Variance(low=0, high=1, unit=replaced, rows=3, epsilon=1),
            ([0, 0, 0], [0, 0, 1]),
            False,
            quick=False,
        ),
        Case(
            "LinearQueries",
            m.LinearQueries.laplace(weights=[[1, 1], [1, 0]], epsilon=1),
            ([0, 0], [1, 0]),
            True,
            quick=False,
        ),
        Case(
            "TreeCounter",
            m.TreeCounter(horizon=4, sensitivity=1, epsilon=1),
            ([0, 0, 0, 0], [1, 0, 0, 0]),
            False,
            quick=False,
        ),
        Case(
            "FactorisedCounter",
            m.FactorisedCounter(horizon=4, sensitivity=1, mu=1),
            ([0, 0, 0, 0], [1, 0, 0, 0]),
            False,
            delta=0.1,
            quick=False,
        ),
        Case(
            "EdgeCount",
            m.graphs.EdgeCount(unit=m.graphs.GraphUnit.node(), degree=2, epsilon=1),
            (STAR, ALONE),
            True,
            quick=False,
        ),
        Case(
            "DegreeSequence",
            m.graphs.DegreeSequence(nodes="ab", unit=m.graphs.GraphUnit.edge(), epsilon=1),
            (m.graphs.Graph(nodes="ab", edges=[("a", "b")]), m.graphs.Graph(nodes="ab", edges=[])),
            True,
            quick=False,
        ),
        Case(
            "DegreeHistogram",
            m.graphs.DegreeHistogram(degree=1, unit=m.graphs.GraphUnit.edge(), epsilon=1),
            (m.graphs.Graph(nodes="ab", edges=[("a", "b")]), m.graphs.Graph(nodes="ab", edges=[])),
            True,
            quick=False,
        ),
        Case("m * n", m.DiscreteLaplace(sensitivity=1, epsilon=0.5) ** 2, (0, 1), True),
        Case(
            "Adaptive",
            half.followed_by(lambda answers: half if answers[0] <= 0 else quarter, curve=curves.pure(epsilon=0.5)),
            (0, 1),
            True,
            quick=False,
            effort=2,
        ),
        Case(
            "Parallel",
            m.Parallel.by_value([m.DiscreteLaplace(sensitivity=1, epsilon=1)] * 2, unit=add),
            ((0, 0), (1, 0)),
            True,
            quick=False,
        ),
        Case("RandomizedResponse", local.RandomizedResponse(epsilon=1.0), (True, False), True),
        Case("NuRandomizedResponse", local.NuRandomizedResponse(nu=0.5), (True, False), True),
        Case("TwoCoinSurvey", local.TwoCoinSurvey(truth=0.5, yes=0.5), (True, False), True),
        Case("WarnerSurvey", local.WarnerSurvey(p=0.25), (True, False), True),
        Case("KaryRandomizedResponse", local.KaryRandomizedResponse(categories=5, epsilon=1.0), (0, 1), True),
        Case("OptimizedUnary", Bits(local.OptimizedUnary(categories=4, epsilon=1.0)), (0, 1), True),
        Case("SymmetricUnary", Bits(local.SymmetricUnary(categories=4, epsilon=1.0)), (0, 1), True),
        Case("SubsetSelection", Bits(local.SubsetSelection(categories=6, epsilon=1.0)), (0, 1), True),
        Case("LocalHashing", hashing, (0, 1), True, likelihood_ratio=hashed(0, 1, hashing.buckets)),
        Case("Rappor", Bits(local.Rappor(categories=4, f=0.5, p=0.25, q=0.75)), (0, 1), True),
        Case("BloomRappor", bloom, ("pear", "fig"), True, likelihood_ratio=cohort_ratio(bloom, "pear", "fig")),
        Case("CountMeanSketch", counted, ("pear", "fig"), True, likelihood_ratio=sketch_ratio(counted, "pear", "fig")),
        Case("HadamardSketch", sketch, ("pear", "fig"), True, likelihood_ratio=entry_ratio(sketch, "pear", "fig")),
        Case("DuchiMean", local.DuchiMean(low=0, high=1, epsilon=1.0), (0.0, 1.0), True),
        Case("MemoisedMean", local.MemoisedMean(low=0, high=1, epsilon=2.0, points=4, flip=0.1), (0.0, 1.0), True),
        Case("TableResponse", Rows(table), ((True, "tea"), (False, "milk")), True),
        Case("PiecewiseMean", piecewise, (-1.0, 1.0), True, likelihood_ratio=piecewise_ratio(piecewise)),
        Case("HybridMean", local.HybridMean(low=-1, high=1, epsilon=1.0), (-1.0, 1.0), True),
    ]
    return found
