"""Continuous mechanisms: Laplace noise and its uses, thresholds, lower bounds."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

import deniable as dn
from deniable import audit, curves, mechanisms, plots
from deniable.mechanisms import limits, small
from tests.lectures.independent import follows, laplace_pdf, likely
from tests.lectures.item import Item

ROW, REPLACED = dn.Unit.row(), dn.Unit.replaced_row()
SURE = 1 - 1e-9


def _pieces() -> tuple[bool, float]:
    """Pieces of 2.5, 4.5 and 3 with utilities -3, 0, -4: how often the answer lies in the middle one."""
    mechanism = mechanisms.PiecewiseExponential(bounds=(0, 10), sensitivity=1, epsilon=Fraction(1, 2))
    answers = [mechanism.release(([0, 2.5, 7, 10], [-3, 0, -4])) for _ in range(400)]
    weights = [2.5 * math.exp(-3 / 4), 4.5, 3 * math.exp(-1)]
    inside = sum(2.5 <= answer < 7 for answer in answers)
    return likely(inside, 400, weights[1] / sum(weights)), mechanism.curve.epsilon(delta=0)


def _private_mean() -> tuple[bool, float]:
    data = np.linspace(0, 1, 1000)
    mechanism = mechanisms.Mean(low=0, high=1, unit=REPLACED, rows=1000, epsilon=0.5)
    near = mechanism.error(confidence=SURE)
    return abs(mechanism.release(data) - 0.5) <= near, near


def _of_squares() -> tuple[bool, float]:
    data = np.linspace(0, 1, 1000)
    mechanism = mechanisms.Mean(low=0, high=1, unit=REPLACED, rows=1000, epsilon=0.5)
    squares = mechanism.on(lambda x: np.asarray(x) ** 2)
    truth = sum((i / 999) ** 2 for i in range(1000)) / 1000
    return abs(squares.release(data) - truth) <= mechanism.error(confidence=SURE), squares.curve.epsilon(delta=0)


def _clipped() -> tuple[float, float]:
    total = mechanisms.Sum(low=0, high=1, unit=REPLACED, epsilon=1.0).total([0.0, 10.0])
    bounds = mechanisms.Bounds(unit=ROW, epsilon=0.2)
    return float(total) / 2, bounds.curve.epsilon(delta=0)


def _histogram() -> tuple[float, float, float]:
    private = dn.Histogram(edges=[i / 10 for i in range(11)], unit=REPLACED, epsilon=1.0)
    shares = private.shares().release(np.linspace(0, 1, 50))
    return float(private.noise.scale), private.curve.epsilon(delta=0), float(np.sum(shares))


def _noisy_argmax() -> list[float]:
    """P(each of three wins) by quadrature over the winner's noise."""
    scores = [0, 1, 3]

    def cdf(z: Any) -> Any:
        return mpmath.exp(z) / 2 if z < 0 else 1 - mpmath.exp(-z) / 2

    found = []
    for i, own in enumerate(scores):
        others = [other for j, other in enumerate(scores) if j != i]
        kinks = sorted({-mpmath.mpf(40), mpmath.mpf(0), mpmath.mpf(40), *(mpmath.mpf(other - own) for other in others)})
        win = mpmath.quad(
            lambda z, own=own, others=others: (
                mpmath.exp(-abs(z)) / 2 * mpmath.fprod(cdf(own + z - other) for other in others)
            ),
            kinks,
        )
        found.append(float(win))
    return found


def _fires() -> bool:
    """f = t + 8 at ε = 1: P(Lap(4) - Lap(2) > -8)."""
    mechanism = dn.AboveThreshold(threshold=10, sensitivity=1, epsilon=1)
    count = sum(mechanism.release([18]) is not None for _ in range(1500))
    return likely(count, 1500, _chance_to_fire())


def _chance_to_fire() -> float:
    """The tail of the sum of Laplace(4) and Laplace(2), in partial fractions."""
    a, b = 4.0, 2.0
    tail = (a**2 * math.exp(-8 / a) - b**2 * math.exp(-8 / b)) / (2 * (a**2 - b**2))
    return 1 - tail


def _above_threshold(x: tuple[float, ...]) -> int | None:
    """The slide's program, ε = 1, t = 0."""
    chance = _CHANCE
    level = chance.laplace(scale=2.0)
    for i, value in enumerate(x):
        if value + chance.laplace(scale=4.0) > level:
            return i
    return None


_CHANCE = np.random.default_rng(2024)


def _argmax(x: tuple[float, ...]) -> int:
    return int(np.argmax(np.asarray(x) + _CHANCE.laplace(scale=1.0, size=len(x))))


def _printed_histogram(x: tuple[float, ...]) -> tuple[bool, bool]:
    """Counts in two bins with Laplace(1/ε), ε = 1; only the signs against the middle are looked at."""
    low = sum(value < 0.5 for value in x)
    counts = np.array([low, len(x) - low]) + _CHANCE.laplace(scale=1.0, size=2)
    return bool(counts[0] > 0.5), bool(counts[1] > 0.5)


def _threshold_holds() -> bool:
    found = audit.measure(
        _above_threshold,
        neighbours=((0.0, 0.0), (1.0, -1.0)),
        claim=curves.pure(epsilon=1.0),
        trials=4000,
        confidence=SURE,
    )
    return found.refuted


def _argmax_fails() -> tuple[bool, bool]:
    found = audit.measure(
        _argmax, neighbours=((0.0, 5.0), (1.0, 4.0)), claim=curves.pure(epsilon=1.0), trials=40_000, confidence=SURE
    )
    return found.refuted, found.epsilon <= _argmax_loss(5, 3)


def _argmax_loss(gap: float, less: float) -> float:
    """The log-ratio of P(runner-up wins) at two gaps, (1 + d/2) e^-d / 2 each."""
    wrong = [(1 + d / 2) * math.exp(-d) / 2 for d in (gap, less)]
    return math.log(wrong[1] / wrong[0])


def _histogram_fails() -> tuple[bool, bool]:
    found = audit.measure(
        _printed_histogram, neighbours=((0.2,), (0.8,)), claim=curves.pure(epsilon=1.0), trials=20_000, confidence=SURE
    )
    return found.refuted, found.epsilon <= 2.0


def _floor(epsilon: float, most: int) -> float:
    return max(k**2 / (4 * (1 + math.exp(2 * k * epsilon))) for k in range(1, most + 1))


def _laplace_density() -> bool:
    line = next(iter(plots.density(dn.Laplace(sensitivity=1.0, epsilon=1.0)).panels[0].lines.values()))
    return follows(line, lambda y: laplace_pdf(y, 0, 1), within=1e-6)


ITEMS: tuple[Item, ...] = (
    Item(
        id="0.65",
        title="The continuous exponential mechanism",
        api="mechanisms.PiecewiseExponential",
        ours=_pieces,
        truth=(True, 0.5),
    ),
    Item(
        id="0.66",
        title="Approximate sampling costs (1 + e^ε)t",
        api="mechanisms.limits.approximate_sampling",
        ours=lambda: limits.approximate_sampling(epsilon=1, distance=1e-6),
        truth=(1 + math.e) * 1e-6,
    ),
    Item(
        id="0.67",
        title="Laplace noise is an exponential mechanism without the 2",
        api="Laplace.scale, Laplace.law",
        ours=lambda: [
            float(dn.Laplace(sensitivity=2.0, epsilon=0.5).scale),
            float(dn.Laplace(sensitivity=1.0, epsilon=1.0).law(0.0).pdf(0.0)),
        ],
        truth=[4.0, 0.5],
    ),
    Item(
        id="F.05",
        title="Figure: the Laplace density",
        api="plots.density",
        ours=_laplace_density,
        truth=True,
    ),
    Item(
        id="0.68",
        title="Laplace noise on vectors, by L1 sensitivity",
        api="Laplace, Sensitivity",
        ours=lambda: [
            float(dn.Laplace(sensitivity=dn.Sensitivity(l1=3.0), epsilon=1.0, dimension=3).scale),
            len(dn.Laplace(sensitivity=3.0, epsilon=1.0, dimension=3).release([0.0, 0.0, 0.0])),
        ],
        truth=[3.0, 3],
    ),
    Item(
        id="0.68b",
        title="It is ε-private",
        api="Laplace.curve",
        ours=lambda: dn.Laplace(sensitivity=3.0, epsilon=1.0, dimension=3).curve.epsilon(delta=0),
        truth=1.0,
    ),
    Item(
        id="0.70",
        title="The mean",
        api="mechanisms.Mean",
        ours=_private_mean,
        truth=(True, math.log(1 / 1e-9) / (1000 * 0.5)),
        within=1e-6,
    ),
    Item(
        id="0.71",
        title="Its squared error 2Δ²/(n²ε²)",
        api="mechanisms.Mean, Laplace.variance",
        ours=lambda: mechanisms.Mean(low=0, high=1, unit=REPLACED, rows=1000, epsilon=0.1).noise.variance() / 1000**2,
        truth=2 / (1000**2 * 0.1**2),
    ),
    Item(
        id="0.72",
        title="Statistical accuracy, and the ε at which privacy is free",
        api="mechanisms.limits.mean_squared_error, mechanisms.limits.free_epsilon_of_mean",
        ours=lambda: [
            limits.mean_squared_error(records=1000, width=1, epsilon=0.1),
            limits.free_epsilon_of_mean(records=1000),
        ],
        truth=[1 / (4 * 1000) * (1 + 8 / (1000 * 0.1**2)), math.sqrt(8 / 1000)],
    ),
    Item(
        id="0.73",
        title="Truncation, and bounds that are bought",
        api="mechanisms.Sum.total, mechanisms.Bounds",
        ours=_clipped,
        truth=((0.0 + 1.0) / 2, 0.2),
    ),
    Item(
        id="0.74",
        title="Averages of any function",
        api="mechanisms.Mean.on",
        ours=_of_squares,
        truth=(True, 0.5),
        within=1e-7,
    ),
    Item(
        id="0.75",
        title="k averages: k times the noise",
        api="Sensitivity.of_each",
        ours=lambda: dn.Sensitivity.of_each(1 / 1000, outputs=10).l1,
        truth=10 / 1000,
    ),
    Item(
        id="0.76",
        title="The private histogram",
        api="Histogram.shares",
        ours=_histogram,
        truth=(2.0, 1.0, 1.0),
    ),
    Item(
        id="0.77",
        title="A noisy maximum",
        api="Laplace, mechanisms.small.sensitivity",
        ours=lambda: [
            small.sensitivity(max, domain=[0.0, 0.5, 1.0], rows=3, unit=REPLACED).l1,
            dn.Laplace(sensitivity=1.0, epsilon=1.0).on(max).curve.epsilon(delta=0),
        ],
        truth=[1.0, 1.0],
    ),
    Item(
        id="0.78",
        title="Report noisy max",
        api="mechanisms.MonotoneNoisyMax.probabilities",
        ours=lambda: mechanisms.MonotoneNoisyMax(sensitivity=1, epsilon=1).probabilities([0, 1, 3]),
        truth=_noisy_argmax,
    ),
    Item(
        id="0.78b",
        title="How often the runner-up wins",
        api="mechanisms.MonotoneNoisyMax.overtakes",
        ours=lambda: mechanisms.MonotoneNoisyMax(sensitivity=1, epsilon=1).overtakes(gap=1.0),
        truth=(1 + 1 / 2) * math.exp(-1) / 2,
    ),
    Item(
        id="E.07",
        title="Program: noisy argmax on any scores, refuted",
        api="audit.measure",
        ours=_argmax_fails,
        truth=(True, True),
        slow=True,
    ),
    Item(
        id="E.08",
        title="Program: histogram with scale 1/ε for replaced rows, refuted",
        api="audit.measure",
        ours=_histogram_fails,
        truth=(True, True),
        slow=True,
    ),
    Item(
        id="0.79",
        title="Above threshold",
        api="AboveThreshold.release",
        ours=lambda: dn.AboveThreshold(threshold=1000, sensitivity=1, epsilon=1).release([0, 0, 2000, 0]),
        truth=2,
    ),
    Item(
        id="0.79b",
        title="Its noise: 2/ε and 4/ε",
        api="AboveThreshold.threshold_scale, AboveThreshold.answer_scale",
        ours=lambda: [
            dn.AboveThreshold(threshold=10, sensitivity=1, epsilon=1).threshold_scale,
            dn.AboveThreshold(threshold=10, sensitivity=1, epsilon=1).answer_scale,
        ],
        truth=[2.0, 4.0],
    ),
    Item(
        id="0.80",
        title="Above threshold is ε-private",
        api="AboveThreshold.curve",
        ours=lambda: dn.AboveThreshold(threshold=10, sensitivity=1, epsilon=1).curve.epsilon(delta=0),
        truth=1.0,
    ),
    Item(
        id="0.80b",
        title="How often it fires",
        api="AboveThreshold.release",
        ours=_fires,
        truth=True,
    ),
    Item(
        id="E.06",
        title="Program: above threshold as printed, not refuted",
        api="audit.measure",
        ours=_threshold_holds,
        truth=False,
    ),
    Item(
        id="0.81",
        title="Local sensitivity at distance k",
        api="mechanisms.limits.mean_modulus",
        ours=lambda: [limits.mean_modulus([x] * 100, bounds=(0, 1), changes=3) for x in (0.0, 0.5)],
        truth=[3 / 100, 3 / 200],
    ),
    Item(
        id="0.82",
        title="A floor under the squared error",
        api="mechanisms.limits.linear_error_floor",
        ours=lambda: limits.linear_error_floor(sensitivity=1, epsilon=0.5),
        truth=lambda: _floor(0.5, 100),
    ),
    Item(
        id="0.83",
        title="The constant 68",
        api="mechanisms.limits.linear_error_floor",
        ours=lambda: (
            limits.linear_error_floor(sensitivity=1, epsilon=0.3),
            limits.linear_error_floor(sensitivity=1, epsilon=0.3) >= 1 / (68 * 0.3**2),
        ),
        truth=lambda: (_floor(0.3, 100), True),
    ),
    Item(
        id="0.84",
        title="The floor for a mean of extreme data",
        api="mechanisms.limits.squared_error_floor",
        ours=lambda: limits.squared_error_floor(lambda k: k / 100, epsilon=0.5, changes=100),
        truth=lambda: _floor(0.5, 100) / 100**2,
    ),
)
