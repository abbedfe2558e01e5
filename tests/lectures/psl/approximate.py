"""(ε, δ)-privacy, the Gaussian mechanism, advanced composition."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from scipy import stats

import deniable as dn
from deniable import curves, plots
from deniable.curves import textbook
from deniable.errors import OutsideTheorem
from deniable.mechanisms import cautionary
from tests.lectures.independent import follows, likely, normal_pdf
from tests.lectures.item import Item
from tests.lectures.truths import finite_delta, gaussian_delta, gaussian_sigma

ONE = curves.gaussian(mu=1.0)
LIKELY = 0.9 / (1 + math.exp(-1))
WORST = [[0.1, LIKELY, 0.9 - LIKELY, 0.0], [0.0, 0.9 - LIKELY, LIKELY, 0.1]]
"""The worst pair of laws that is (1, 0.1)-private."""
MERGE = [[1, 0], [0.8, 0.2], [0.2, 0.8], [0, 1]]
"""A post-processing of its four answers to two."""


def merged(rows: list[list[float]]) -> list[list[float]]:
    return [[sum(a * to[i] for a, to in zip(row, MERGE, strict=True)) for i in (0, 1)] for row in rows]


def _ratio_line() -> tuple[bool, bool, bool, bool]:
    figure = plots.laws(dn.Gaussian(sensitivity=1.0, sigma=2.0), 0.0, 1.0)
    left, right = figure.panels
    ratio = right.lines["log-ratio"]
    x = np.asarray(ratio.x)
    return (
        follows(left.lines["on 0.0"], lambda y: normal_pdf(y, 0, 2), within=1e-6),
        follows(left.lines["on 1.0"], lambda y: normal_pdf(y, 1, 2), within=1e-6),
        bool(np.max(np.abs(np.asarray(ratio.y) - (0.5 - x) / 4)) < 1e-6),
        any(type(mark).__name__ == "ShadedBand" for mark in right.marks),
    )


def _profile(curve: Any, delta: Any, label: str) -> bool:
    line = plots.profile(curve).panels[0].lines[label]
    expected = np.array([delta(x) for x in line.x])
    seen = expected > 1e-5
    return bool(np.max(np.abs(np.asarray(line.y)[seen] / expected[seen] - 1)) < 1e-6) and int(seen.sum()) > 20


def _losses() -> tuple[bool, float]:
    """Bars of the loss under P against N(1/2, 1): every bar's probability, and the mean."""
    marks = plots.loss(ONE).panels[0].marks
    bars = marks[0]
    edges = np.asarray(bars.edges)
    expected = np.diff(stats.norm.cdf(edges, 0.5, 1))
    level = next(mark for mark in marks if type(mark).__name__ == "Level")
    return bool(np.max(np.abs(np.asarray(bars.heights) - expected)) < 0.02), round(level.at, 3)


def _loss_delta() -> float:
    """δ(1) from the loss distribution itself: Σ mass (1 - e^(1 - ℓ)) over losses above 1."""
    losses, masses = np.asarray(ONE.loss.losses), np.asarray(ONE.loss.masses)
    above = losses > 1
    return float(np.sum(masses[above] * -np.expm1(1 - losses[above])))


def _exposed() -> tuple[bool, float]:
    mechanism = cautionary.Subsampling(rate=Fraction(1, 20))
    shown = sum(len(mechanism.release(list(range(50)))) for _ in range(40))
    return likely(shown, 2000, 0.05), cautionary.Subsampling(rate=Fraction(1, 1000)).exposes_anybody(records=1000)


def _outside() -> str:
    try:
        textbook.advanced_composition_mironov(epsilon=1, count=100, delta=1e-5)
    except OutsideTheorem:
        return "refused"
    return "answered"


def _with_265() -> bool:
    grid = [(e, d) for e in (0.05, 0.3, 0.6, 0.9, 0.999) for d in (1e-2, 1e-4, 1e-8)]
    return all(
        curves.gaussian(sigma=math.sqrt(2 * math.log(2.65 / d)) / e).delta(epsilon=e) <= d for e, d in grid
    )  # fmt: skip


def _printed_at_ten() -> tuple[float, bool]:
    sigma = textbook.as_printed.classical_gaussian_sigma(sensitivity=1, epsilon=10, delta=1e-5).printed
    return sigma, curves.gaussian(sigma=sigma).delta(epsilon=10.0) > 1e-5


ITEMS: tuple[Item, ...] = (
    Item(
        id="0.85",
        title="The Gaussian mechanism is not ε-private for any ε",
        api="curves.Curve.epsilon",
        ours=lambda: [ONE.epsilon(delta=0), ONE.loss_tail(epsilon=9.5)],
        truth=[math.inf, float(stats.norm.sf(9.0))],
    ),
    Item(
        id="F.06",
        title="Figure: the Gaussian log-ratio is a line without bounds",
        api="plots.laws",
        ours=_ratio_line,
        truth=(True, True, True, False),
    ),
    Item(
        id="0.86",
        title="(ε, δ)-privacy: the smallest δ at ε = 1",
        api="curves.Curve.delta",
        ours=lambda: ONE.delta(epsilon=1.0),
        truth=lambda: gaussian_delta(1, 1),
    ),
    Item(
        id="0.87",
        title="The equal error rate is at least (1 - δ)/(1 + e^ε)",
        api="curves.textbook.equal_error_rate_bound, curves.approximate",
        ours=lambda: [
            textbook.equal_error_rate_bound(epsilon=1, delta=1e-5),
            curves.approximate(epsilon=1.0, delta=1e-5).equal_error_rate(),
        ],
        truth=[(1 - 1e-5) / (1 + math.e)] * 2,
    ),
    Item(
        id="0.88",
        title="Post-processing",
        api="curves.Curve.then, curves.Kernel.then",
        ours=lambda: [
            curves.approximate(epsilon=1.0, delta=1e-5).then().delta(epsilon=1.0),
            curves.Kernel.of(WORST).curve.delta(epsilon=1.0),
            curves.Kernel.of(WORST).then(MERGE).curve.delta(epsilon=1.0),
            curves.Kernel.of(WORST).then(MERGE).curve.delta(epsilon=0.5),
        ],
        truth=lambda: [
            1e-5,
            *(finite_delta(p, q, e) for (p, q), e in ((WORST, 1), (merged(WORST), 1), (merged(WORST), 0.5))),
        ],
    ),
    Item(
        id="0.89",
        title="Composition: εs and δs add up",
        api="curves.textbook.basic_composition_of",
        ours=lambda: list(textbook.basic_composition_of(costs=[(0.4, 1e-5), (0.6, 2e-5)])),
        truth=[1.0, 3e-5],
    ),
    Item(
        id="0.89b",
        title="The same for curves: never above the sums",
        api="curves.approximate",
        ours=lambda: (curves.approximate(epsilon=0.4, delta=1e-5) * curves.approximate(epsilon=0.6, delta=2e-5)).delta(
            epsilon=1.0
        ),
        truth=1 - (1 - 1e-5) * (1 - 2e-5),
    ),
    Item(
        id="0.90",
        title="The subsampling mechanism is (0, δ)-private",
        api="mechanisms.cautionary.Subsampling.curve",
        ours=lambda: cautionary.Subsampling(rate=Fraction(1, 1000)).curve.delta(epsilon=0.0),
        truth=1 / 1000,
    ),
    Item(
        id="0.91",
        title="It exposes δn people on average",
        api="mechanisms.cautionary.Subsampling.exposes_anybody",
        ours=lambda: cautionary.Subsampling(rate=Fraction(1, 1000)).exposes_anybody(records=1000),
        truth=lambda: float(1 - Fraction(999, 1000) ** 1000),
    ),
    Item(
        id="0.91b",
        title="Its answers are records",
        api="mechanisms.cautionary.Subsampling.release",
        ours=_exposed,
        truth=lambda: (True, float(1 - Fraction(999, 1000) ** 1000)),
    ),
    Item(
        id="0.92",
        title="The privacy curve δ(ε)",
        api="curves.Curve.delta",
        ours=lambda: ONE.delta(epsilon=np.array([0.0, 0.5, 1.0])),
        truth=lambda: [gaussian_delta(e, 1) for e in (0, 0.5, 1)],
    ),
    Item(
        id="0.93",
        title="δ(0) is the total variation distance",
        api="curves.Curve.advantage",
        ours=lambda: ONE.advantage(),
        truth=lambda: float(2 * mpmath.ncdf(0.5) - 1),
    ),
    Item(
        id="0.94",
        title="The privacy curve from the privacy loss",
        api="curves.Curve.loss",
        ours=_loss_delta,
        truth=lambda: gaussian_delta(1, 1),
        within=1e-3,
    ),
    Item(
        id="0.94b",
        title="P(L > ε) is more than δ",
        api="curves.Curve.loss_tail, curves.textbook.gaussian_sigma",
        ours=lambda: curves.gaussian(sigma=textbook.gaussian_sigma(sensitivity=1, epsilon=1, delta=1e-5)).loss_tail(
            epsilon=1.0
        ),
        truth=lambda: float(stats.norm.sf(gaussian_sigma(1, 1e-5) - 0.5 / gaussian_sigma(1, 1e-5))),
    ),
    Item(
        id="F.09",
        title="Figure: the privacy loss",
        api="plots.loss",
        ours=_losses,
        truth=(True, 0.5),
    ),
    Item(
        id="0.95",
        title="L2 sensitivity",
        api="Sensitivity.of_each",
        ours=lambda: dn.Sensitivity.of_each(1, outputs=4).l2,
        truth=2.0,
    ),
    Item(
        id="0.96",
        title="The Gaussian mechanism on vectors",
        api="Gaussian",
        ours=lambda: [
            len(dn.Gaussian(sensitivity=2.0, sigma=2.0, dimension=4).release([0.0] * 4)),
            dn.Gaussian(sensitivity=2.0, sigma=2.0, dimension=4).curve.delta(epsilon=1.0),
        ],
        truth=lambda: [4, gaussian_delta(1, 1)],
        within=1e-7,
    ),
    Item(
        id="0.97",
        title="Its privacy curve (Balle & Wang)",
        api="curves.gaussian",
        ours=lambda: curves.gaussian(sigma=10.0).delta(epsilon=1.0),
        truth=lambda: gaussian_delta(1, 0.1),
        within=1e-8,
    ),
    Item(
        id="F.07",
        title="Figure: the Gaussian privacy curve",
        api="plots.profile",
        ours=lambda: _profile(ONE, lambda e: float(gaussian_delta(e, 1)), "gaussian(sigma=1)"),
        truth=True,
    ),
    Item(
        id="0.98",
        title="Only Δ/σ matters",
        api="curves.gaussian",
        ours=lambda: curves.gaussian(sigma=2.0, sensitivity=2.0) == ONE,
        truth=True,
    ),
    Item(
        id="0.98b",
        title="Analytic calibration",
        api="Gaussian.sigma, curves.textbook.gaussian_sigma",
        ours=lambda: [
            textbook.gaussian_sigma(sensitivity=1, epsilon=1, delta=1e-5),
            float(dn.Gaussian(sensitivity=1.0, epsilon=1.0, delta=1e-5).sigma),
        ],
        truth=lambda: [gaussian_sigma(1, 1e-5)] * 2,
        within=1e-8,
    ),
    Item(
        id="0.99",
        title="The classical σ",
        api="curves.textbook.classical_gaussian_sigma, curves.textbook.as_printed",
        ours=lambda: (textbook.classical_gaussian_sigma(sensitivity=1, epsilon=0.5, delta=1e-5), *_printed_at_ten()),
        truth=lambda: (
            math.sqrt(2 * math.log(1.25e5)) / 0.5,
            math.sqrt(2 * math.log(1.25e5)) / 10,
            gaussian_delta(10, 10 / math.sqrt(2 * math.log(1.25e5))) > 1e-5,
        ),
    ),
    Item(
        id="0.100",
        title="Exercise: the constant 2.65 is enough",
        api="curves.gaussian",
        ours=_with_265,
        truth=True,
    ),
    Item(
        id="E.01",
        title="Exercise: which constant would be enough",
        api="curves.textbook.gaussian_sigma",
        ours=lambda: 1e-5 * math.exp(textbook.gaussian_sigma(sensitivity=1, epsilon=1, delta=1e-5) ** 2 / 2),
        truth=lambda: 1e-5 * math.exp(gaussian_sigma(1, 1e-5) ** 2 / 2),
    ),
    Item(
        id="0.101",
        title="k Gaussian mechanisms are one, √k times as loud",
        api="curves.gaussian",
        ours=lambda: (curves.gaussian(sigma=4.0) ** 100).delta(epsilon=13.0),
        truth=lambda: gaussian_delta(13, 2.5),
    ),
    Item(
        id="0.101b",
        title="σ must grow by √k, not by k",
        api="calibrate",
        ours=lambda: (
            dn.calibrate(lambda s: curves.gaussian(sigma=s) ** 100, epsilon=1.0, delta=1e-5)
            / dn.calibrate(lambda s: curves.gaussian(sigma=s), epsilon=1.0, delta=1e-5)
        ),
        truth=math.sqrt(100),
        within=1e-7,
    ),
    Item(
        id="0.102",
        title="The privacy curve of Laplace noise",
        api="curves.laplace, curves.textbook.laplace_delta",
        ours=lambda: [
            *(curves.laplace(scale=1.0).delta(epsilon=e) for e in (0.5, 1.5, -2.0)),
            *(textbook.laplace_delta(sensitivity=1, scale=1, epsilon=e) for e in (0.5, 1.5)),
        ],
        truth=[1 - math.exp(-1 / 4), 0.0, 1 - math.exp(-2.0), 1 - math.exp(-1 / 4), 0.0],
    ),
    Item(
        id="F.08",
        title="Figure: the Laplace privacy curve",
        api="plots.profile",
        ours=lambda: _profile(
            curves.laplace(scale=1.0), lambda e: max(0.0, 1 - math.exp((e - 1) / 2)), "laplace(scale=1)"
        ),
        truth=True,
    ),
    Item(
        id="0.103",
        title="The Laplace scale for (ε, δ)",
        api="curves.textbook.laplace_scale, Laplace.scale",
        ours=lambda: [
            textbook.laplace_scale(sensitivity=1, epsilon=1, delta=0.1),
            float(dn.Laplace(sensitivity=1.0, epsilon=1.0, delta=0.1).scale),
        ],
        truth=[1 / (1 + 2 * math.log(1 / 0.9))] * 2,
    ),
    Item(
        id="0.104",
        title="Advanced composition (Mironov 2017, Corollary 1)",
        api="curves.textbook.advanced_composition_mironov",
        ours=lambda: textbook.advanced_composition_mironov(epsilon=0.1, count=1000, delta=1e-5),
        truth=4 * 0.1 * math.sqrt(2 * 1000 * math.log(1e5)),
    ),
    Item(
        id="0.104c",
        title="Outside its condition it is refused",
        api="errors.OutsideTheorem",
        ours=_outside,
        truth="refused",
    ),
)
