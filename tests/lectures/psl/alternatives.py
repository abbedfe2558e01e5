"""Rényi differential privacy and Gaussian differential privacy."""

from __future__ import annotations

import math

import mpmath
import numpy as np
from scipy import stats

import deniable as dn
from deniable import curves, plots
from deniable.curves import textbook
from tests.lectures.independent import follows, normal_pdf
from tests.lectures.item import Item

ORDERS = (1.5, 2.0, 3.0, 8.0)


def renyi(p: list[float], q: list[float], order: float) -> float:
    return math.log(sum(b * (a / b) ** order for a, b in zip(p, q, strict=True))) / (order - 1)


P, Q = [0.6, 0.3, 0.1], [0.3, 0.3, 0.4]
YES, NO = [0.75, 0.25], [0.25, 0.75]


def _worse(p: list[float], q: list[float], order: float) -> float:
    return max(renyi(p, q, order), renyi(q, p, order))


def _marginal() -> tuple[float, bool]:
    merged = curves.from_pmf([0.6, 0.4], [0.3, 0.7])
    return merged.renyi(order=2), merged.renyi(order=2) <= curves.from_pmf(P, Q).renyi(order=2)


def _mixed() -> tuple[float, bool]:
    """0.3 (P, Q) + 0.7 (P′, Q′) on the same three answers."""
    p2, q2 = [0.2, 0.5, 0.3], [0.3, 0.5, 0.2]
    p, q = ([0.3 * a + 0.7 * b for a, b in zip(x, y, strict=True)] for x, y in ((P, p2), (Q, q2)))
    found = curves.from_pmf(p, q).forward.renyi_bounds(order=2)[1]
    each = [curves.from_pmf(*pair).forward.renyi_bounds(order=2)[1] for pair in ((P, Q), (p2, q2))]
    return found, found <= max(each)


def _mixed_by_hand() -> tuple[float, bool]:
    p = [0.3 * a + 0.7 * b for a, b in zip(P, [0.2, 0.5, 0.3], strict=True)]
    q = [0.3 * a + 0.7 * b for a, b in zip(Q, [0.3, 0.5, 0.2], strict=True)]
    return renyi(p, q, 2), True


def _best_order() -> float:
    """min over a > 1 of a μ²/2 + log(1/δ)/(a - 1), μ = 2.5: μ²/2 + μ √(2 log(1/δ))."""
    return 2.5**2 / 2 + 2.5 * math.sqrt(2 * math.log(1e5))


def _test_picture() -> tuple[bool, bool, float]:
    figure = plots.laws(dn.Gaussian(sensitivity=1.0, sigma=1.0), 0.0, 1.0, false_alarms=0.05)
    left, right = figure.panels
    level = next(mark for mark in right.marks if type(mark).__name__ == "Level")
    return (
        follows(left.lines["on 0.0"], lambda y: normal_pdf(y, 0, 1), within=1e-6),
        follows(left.lines["on 1.0"], lambda y: normal_pdf(y, 1, 1), within=1e-6),
        level.at,
    )


ITEMS: tuple[Item, ...] = (
    Item(
        id="0.105",
        title="Rényi divergence of order 2",
        api="curves.Curve.renyi",
        ours=lambda: curves.from_pmf(YES, NO).renyi(order=2),
        truth=lambda: renyi(YES, NO, 2),
    ),
    Item(
        id="0.105b",
        title="Order 1: the Kullback-Leibler divergence",
        api="curves.Curve.kl",
        ours=lambda: curves.from_pmf(YES, NO).kl(),
        truth=0.75 * math.log(3) + 0.25 * math.log(1 / 3),
    ),
    Item(
        id="0.105c",
        title="Order ∞: the largest log-ratio",
        api="curves.Curve.renyi",
        ours=lambda: curves.from_pmf(YES, NO).renyi(order=math.inf),
        truth=math.log(3),
    ),
    Item(
        id="0.105d",
        title="Both directions apart",
        api="curves.Curve.forward, curves.Curve.backward",
        ours=lambda: [
            curves.from_pmf(P, Q).forward.renyi_bounds(order=2)[1],
            curves.from_pmf(P, Q).backward.renyi_bounds(order=2)[1],
            curves.from_pmf(P, Q).renyi(order=2),
        ],
        truth=lambda: [renyi(P, Q, 2), renyi(Q, P, 2), _worse(P, Q, 2)],
    ),
    Item(
        id="0.106",
        title="Positivity",
        api="curves.identity",
        ours=lambda: [curves.identity().renyi(order=2), curves.from_pmf(P, Q).renyi(order=1.01) > 0],
        truth=[0.0, True],
    ),
    Item(
        id="0.107",
        title="Data-processing inequality",
        api="curves.from_pmf, curves.Curve.renyi",
        ours=_marginal,
        truth=lambda: (_worse([0.6, 0.4], [0.3, 0.7], 2), True),
    ),
    Item(
        id="0.108",
        title="Quasi-convexity",
        api="curves.from_pmf, curves.Curve.forward",
        ours=_mixed,
        truth=_mixed_by_hand,
    ),
    Item(
        id="0.109",
        title="Monotone in the order",
        api="curves.Curve.renyi",
        ours=lambda: (
            [curves.from_pmf(P, Q).renyi(order=a) for a in ORDERS],
            bool(np.all(np.diff([curves.from_pmf(P, Q).renyi(order=a) for a in ORDERS]) >= 0)),
        ),
        truth=lambda: ([_worse(P, Q, a) for a in ORDERS], True),
    ),
    Item(
        id="0.110",
        title="Gaussians: αΔ²/(2σ²)",
        api="curves.gaussian, curves.textbook.gaussian_renyi",
        ours=lambda: [curves.gaussian(sigma=4.0).renyi(order=2), textbook.gaussian_renyi(order=2, mu=0.25)],
        truth=[2 / (2 * 16)] * 2,
    ),
    Item(
        id="0.111",
        title="Probability preservation (Mironov 2017, Proposition 10)",
        api="curves.textbook.probability_preservation",
        ours=lambda: textbook.probability_preservation(order=2, renyi=1, chance=float(stats.norm.sf(1))),
        truth=lambda: math.sqrt(math.e * stats.norm.sf(1)),
    ),
    Item(
        id="0.112",
        title="(α, ε)-RDP as a promise",
        api="curves.renyi",
        ours=lambda: curves.renyi(order=8, epsilon=0.1).renyi(order=8),
        truth=0.1,
    ),
    Item(
        id="0.114",
        title="Composition of RDP",
        api="curves.renyi",
        ours=lambda: [
            (curves.renyi(order=8, epsilon=0.1) * curves.renyi(order=8, epsilon=0.2)).renyi(order=8),
            (curves.from_pmf(YES, NO) ** 2).renyi(order=2),
        ],
        truth=lambda: [0.3, renyi([a * b for a in YES for b in YES], [a * b for a in NO for b in NO], 2)],
    ),
    Item(
        id="0.116",
        title="From RDP to (ε, δ) (Mironov 2017, Proposition 3)",
        api="curves.textbook.renyi_to_epsilon_mironov, curves.textbook.best_renyi_to_epsilon_mironov",
        ours=lambda: [
            textbook.renyi_to_epsilon_mironov(order=3, renyi=1, delta=1e-5),
            textbook.best_renyi_to_epsilon_mironov(renyi=lambda a: a * 2.5**2 / 2, delta=1e-5).bound,
        ],
        truth=lambda: [1 + math.log(1e5) / 2, _best_order()],
    ),
    Item(
        id="0.117",
        title="The trade-off function",
        api="curves.Curve.beta",
        ours=lambda: curves.gaussian(mu=1.0).beta(alpha=0.05),
        truth=lambda: float(mpmath.ncdf(mpmath.mpf(stats.norm.isf(0.05)) - 1)),
    ),
    Item(
        id="0.118",
        title="Neyman–Pearson: Φ(Φ⁻¹(1 - α) - μ)",
        api="curves.Curve.beta",
        ours=lambda: curves.gaussian(mu=1.0).beta(alpha=np.array([0.01, 0.3, 0.9])),
        truth=lambda: [float(stats.norm.cdf(stats.norm.isf(a) - 1)) for a in (0.01, 0.3, 0.9)],
    ),
    Item(
        id="F.10",
        title="Figure: the best test of two normal laws",
        api="plots.laws",
        ours=_test_picture,
        truth=lambda: (True, True, 0.5 - float(stats.norm.isf(0.05))),
        within=0.02,
    ),
    Item(
        id="0.119",
        title="μ-Gaussian differential privacy",
        api="curves.Curve.gdp",
        ours=lambda: [curves.gaussian(mu=0.5).gdp(), curves.pure(epsilon=1.0).gdp()],
        truth=lambda: [0.5, float(-2 * stats.norm.ppf(1 / (1 + math.e)))],
    ),
    Item(
        id="0.120",
        title="The Gaussian mechanism with σ = Δ/μ",
        api="Gaussian.sigma",
        ours=lambda: float(dn.Gaussian(sensitivity=2.0, mu=0.5).sigma),
        truth=4.0,
    ),
    Item(
        id="0.121",
        title="Amplification by subsampling (reading list)",
        api="curves.Curve.sampled, curves.textbook.subsampling_amplification",
        ours=lambda: [
            textbook.subsampling_amplification(epsilon=1, delta=0, rate=0.01).epsilon,
            curves.pure(epsilon=1.0).sampled(rate=0.01).epsilon(delta=0),
        ],
        truth=[math.log1p(0.01 * (math.e - 1))] * 2,
    ),
)
