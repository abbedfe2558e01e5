"""The items of one course (notes.md), in its order."""

from __future__ import annotations

import math

import numpy as np

import deniable as dn
from deniable import curves
from deniable.curves import textbook
from deniable.mechanisms import cautionary
from tests.lectures import independent, truths
from tests.lectures.item import Item

L6, L5 = math.log(1e6), math.log(1e5)
RESPONSE = curves.randomized_response(epsilon=1)
HUNDRED = curves.gaussian(sigma=4) ** 100
"""100 releases with σ = 4: together μ = 2.5."""


def nearest_pure_pair(p: list[float], q: list[float], epsilon: float) -> float:
    """The least t for which an ε-indistinguishable pair lies within total variation t of p and of q, by linear
    programming: variables p′, q′, |p - p′|, |q - q′|, t.
    """
    from scipy.optimize import linprog

    n, factor = len(p), math.exp(epsilon)
    one, none = np.eye(n), np.zeros((n, n))
    column = np.zeros((n, 1))
    above = np.block(
        [
            [one, -factor * one, none, none, column],
            [-factor * one, one, none, none, column],
            [one, none, -one, none, column],
            [-one, none, -one, none, column],
            [none, one, none, -one, column],
            [none, -one, none, -one, column],
            [np.zeros((1, 2 * n)), np.full((1, n), 0.5), np.zeros((1, n)), -np.ones((1, 1))],
            [np.zeros((1, 3 * n)), np.full((1, n), 0.5), -np.ones((1, 1))],
        ]
    )
    bound = [0.0] * (2 * n) + [*p, *(-x for x in p), *q, *(-x for x in q), 0, 0]
    sums = np.zeros((2, 4 * n + 1))
    sums[0, :n] = sums[1, n : 2 * n] = 1
    cost = np.append(np.zeros(4 * n), 1.0)
    return float(linprog(cost, A_ub=above, b_ub=bound, A_eq=sums, b_eq=[1, 1]).fun)


def worst_approximate_pair(epsilon: float, delta: float) -> tuple[list[float], list[float]]:
    """The pair that every (ε, δ)-DP mechanism is a post-processing of (Kairouz, Oh & Viswanath 2015)."""
    likely = (1 - delta) / (1 + math.exp(-epsilon))
    return [delta, likely, 1 - delta - likely, 0], [0, 1 - delta - likely, likely, delta]


def laplace_scale_for_100() -> float:
    """The scale at which 100 Laplace releases are (1, 10⁻⁶)-DP, by plain FFT."""

    def delta(scale: float) -> float:
        return truths.convolved_delta(*truths.laplace_losses(120, scale), 100)(1.0)

    return truths.falling_root(delta, 1e-6, 30, 60)


def after_a_coin() -> float:
    """The answer of ε = 1 randomized response, replaced by a fair coin with probability 1/2."""
    answer = curves.Kernel.of([[math.e / (1 + math.e), 1 / (1 + math.e)], [1 / (1 + math.e), math.e / (1 + math.e)]])
    return answer.then([[0.75, 0.25], [0.25, 0.75]]).curve.epsilon(delta=0)


def after_a_coin_truth() -> float:
    p = math.e / (1 + math.e)
    return math.log((0.75 * p + 0.25 * (1 - p)) / (0.25 * p + 0.75 * (1 - p)))


PROPERTIES = (
    Item(
        "2.01",
        "Laplace noise on a mean in R^K: error √2 K^(3/2)/(nε)",
        "Laplace.rms",
        lambda: dn.Laplace(sensitivity=1000 / 10_000, epsilon=0.5, dimension=1000).rms(),
        math.sqrt(2) * 1000**1.5 / (10_000 * 0.5),
    ),
    Item(
        "2.02",
        "Gaussian noise on a mean in R^K: error of order K/(nε)",
        "Gaussian.rms",
        lambda: dn.Gaussian(sensitivity=math.sqrt(1000) / 10_000, epsilon=0.5, delta=1e-5, dimension=1000).rms(),
        lambda: truths.gaussian_sigma(0.5, 1e-5) * 1000 / 10_000,
        within=1e-8,
    ),
    Item(
        "2.03",
        "Post-processing keeps (ε, δ)",
        "curves.Curve.then, curves.Kernel.then, Gaussian.then",
        lambda: (
            dn.Gaussian(sensitivity=1.0, mu=1).then(round).curve.delta(epsilon=1),
            RESPONSE.then() == RESPONSE,
            after_a_coin(),
        ),
        lambda: (truths.gaussian_delta(1, 1), True, after_a_coin_truth()),
        within=1e-8,
    ),
    Item(
        "2.04",
        "Group privacy of (ε, δ), sharp: δ(e^(kε) - 1)/(e^ε - 1)",
        "curves.textbook.group_privacy_approximate",
        lambda: textbook.group_privacy_approximate(epsilon=1, delta=1e-6, size=3),
        lambda: (3.0, 1e-6 * math.expm1(3) / math.expm1(1)),
    ),
    Item(
        "2.04b",
        "Group privacy as it is usually stated: k e^((k-1)ε) δ",
        "curves.textbook.group_privacy_stated",
        lambda: textbook.group_privacy_stated(epsilon=1, delta=1e-6, size=3),
        lambda: (3.0, 3 * math.exp(2) * 1e-6),
    ),
    Item(
        "2.04c",
        "Group privacy of a curve",
        "curves.Curve.group",
        lambda: curves.approximate(epsilon=1, delta=1e-6).group(size=3).delta(epsilon=3),
        lambda: 1e-6 * math.expm1(3) / math.expm1(1),
        within=1e-7,
    ),
    Item(
        "2.05",
        "Basic composition adds ε and δ",
        "curves.textbook.basic_composition, curves.textbook.basic_composition_of",
        lambda: (
            textbook.basic_composition(epsilon=1, delta=1e-6, count=500),
            textbook.basic_composition_of(costs=[(0.3, 1e-6), (0.7, 2e-6)]),
        ),
        ((500, 5e-4), (1.0, 3e-6)),
    ),
    Item(
        "2.06",
        "Basic composition is optimal for pure privacy",
        "curves.pure",
        lambda: (curves.pure(epsilon=0.1) ** 7).epsilon(delta=0),
        0.7,
    ),
)

COMPOSITION = (
    Item(
        "2.07",
        "Advanced composition: kε² + ε√(2k log(1/δ))",
        "curves.textbook.advanced_composition_loose, curves.textbook.advanced_composition",
        lambda: (
            textbook.advanced_composition_loose(epsilon=0.1, count=100, delta=1e-6),
            textbook.advanced_composition(epsilon=0.1, count=100, delta=1e-6),
            (curves.pure(epsilon=0.1) ** 100).epsilon(delta=1e-6),
        ),
        lambda: (1 + math.sqrt(2 * L6), 0.5 + math.sqrt(2 * L6), truths.responses_epsilon(0.1, 100, 1e-6)),
    ),
    Item(
        "2.08",
        "Azuma's inequality: e^(-t²/2)",
        "curves.textbook.azuma_tail",
        lambda: [textbook.azuma_tail(deviation=t) for t in (0, 1, 2, math.sqrt(2 * L6))],
        (1, math.exp(-0.5), math.exp(-2), 1e-6),
    ),
    Item(
        "2.09",
        "The divergence of ε-DP is at most ε(e^ε - 1)",
        "curves.textbook.kl_bound_stated, curves.textbook.kl_bound",
        lambda: (textbook.kl_bound_stated(epsilon=1), textbook.kl_bound(epsilon=1)),
        (math.e - 1, math.tanh(0.5)),
    ),
    Item(
        "2.09b",
        "The divergence of randomized response at ε = 1",
        "curves.Curve.kl",
        RESPONSE.kl,
        math.e / (1 + math.e) - 1 / (1 + math.e),
    ),
    Item(
        "2.10",
        "The privacy loss of k releases is the sum of theirs",
        "curves.Curve.loss, curves.Curve.kl",
        lambda: ((RESPONSE**10).loss.mean, (RESPONSE**10).kl()),
        (10 * math.tanh(0.5),) * 2,
    ),
    Item(
        "2.11",
        "P(L > ε) ≤ δ is enough for (ε, δ)-DP, and more than needed",
        "curves.Curve.loss_tail, curves.Curve.delta",
        lambda: (
            curves.gaussian(sigma=3.75).loss_tail(epsilon=1),
            curves.gaussian(sigma=3.75).delta(epsilon=1),
        ),
        lambda: (truths.normal(1 / 7.5 - 3.75), truths.gaussian_delta(1, 1 / 3.75)),
    ),
    Item(
        "2.12",
        "Dwork, Rothblum and Vadhan: kε(e^ε - 1) + ε√(2k log(1/δ))",
        "curves.textbook.advanced_composition_drv",
        lambda: textbook.advanced_composition_drv(epsilon=0.1, count=100, delta=1e-6),
        lambda: 10 * math.expm1(0.1) + math.sqrt(2 * L6),
    ),
    Item(
        "2.12b",
        "Without the 2 under the root it is false: the exact δ",
        "curves.textbook.as_printed.advanced_composition_proof, curves.textbook.optimal_composition_delta",
        lambda: [
            textbook.optimal_composition_delta(
                epsilon=0.01,
                delta=0,
                count=count,
                total_epsilon=textbook.as_printed.advanced_composition_proof(
                    epsilon=0.01, count=count, delta=delta
                ).printed,
            )
            for count, delta in ((100, 1e-6), (1000, 1e-5))
        ],
        lambda: [
            truths.responses_delta(0.01, 100, math.expm1(0.01) + 0.01 * math.sqrt(100 * L6)),
            truths.responses_delta(0.01, 1000, 10 * math.expm1(0.01) + 0.01 * math.sqrt(1000 * L5)),
        ],
        within=1e-8,
    ),
    Item(
        "2.13",
        "k questions by basic composition: Laplace noise of scale k/ε",
        "Laplace, Sensitivity.of_each",
        lambda: dn.Laplace(sensitivity=dn.Sensitivity.of_each(1.0, outputs=100), epsilon=1, dimension=100).scale,
        100.0,
    ),
    Item(
        "2.14",
        "k questions by advanced composition: ε of each",
        "curves.textbook.advanced_composition_step, curves.textbook.as_printed.advanced_composition_step",
        lambda: (
            textbook.advanced_composition_step(total_epsilon=1, count=100, delta=1e-6),
            textbook.as_printed.advanced_composition_step(total_epsilon=1, count=100, delta=1e-6).printed,
        ),
        lambda: (
            (-math.sqrt(200 * L6) + math.sqrt(200 * L6 + 200)) / 100,  # 50 x² + x √(200 L) = 1
            1 / math.sqrt(200 * L6),
        ),
    ),
    Item(
        "2.14b",
        "The largest ε of each, and the least Laplace noise for 100 questions",
        "curves.textbook.optimal_composition_step, calibrate",
        lambda: (
            textbook.optimal_composition_step(delta=0, count=100, total_epsilon=1, total_delta=1e-6),
            dn.calibrate(lambda scale: curves.laplace(scale=scale) ** 100, epsilon=1, delta=1e-6),
        ),
        lambda: (
            truths.falling_root(lambda step: -truths.responses_delta(step, 100, 1), -1e-6, 0.011, 0.1),
            laplace_scale_for_100(),
        ),
        within=1e-5,
    ),
    Item(
        "2.15",
        "The variance falls by k/(2 log(1/δ)), the scale by its root",
        "curves.textbook.as_printed.advanced_composition_variance_ratio",
        lambda: textbook.as_printed.advanced_composition_variance_ratio(count=100, delta=1e-6).right,
        lambda: (100 / math.sqrt(200 * L6)) ** 2,
    ),
    Item(
        "2.16",
        "Advanced composition of (ε, δ)",
        "curves.textbook.advanced_composition_approximate",
        lambda: textbook.advanced_composition_approximate(epsilon=0.1, delta=1e-9, count=100, slack=1e-6),
        lambda: (0.5 + math.sqrt(2 * L6), 1.1e-6),
    ),
    Item(
        "2.17",
        "An (ε, δ) pair lies within δ/(1 + e^ε) of a pure one",
        "curves.textbook.pure_distance",
        lambda: (textbook.pure_distance(epsilon=1, delta=0.1), textbook.pure_distance(epsilon=1, delta=1e-5)),
        lambda: (nearest_pure_pair(*worst_approximate_pair(1, 0.1), 1), 1e-5 / (1 + math.e)),
    ),
    Item(
        "2.18",
        "k Gaussian releases: the exact variance, far below the one by advanced composition",
        "calibrate, curves.textbook.gaussian_composition",
        lambda: (
            dn.calibrate(lambda sigma: curves.gaussian(sigma=sigma) ** 100, epsilon=1, delta=1e-6) ** 2,
            textbook.gaussian_composition(mu=0.3, count=100),
        ),
        lambda: (100 * truths.gaussian_sigma(1, 1e-6) ** 2, 0.3 * 10),
        within=1e-7,
    ),
)

RENYI = (
    Item(
        "2.19",
        "Rényi privacy, and why not total variation",
        "curves.Curve.renyi, curves.Curve.advantage, curves.renyi, mechanisms.cautionary.Subsampling",
        lambda: (
            curves.gaussian(mu=1).renyi(order=3),
            curves.renyi(order=3, epsilon=0.25).renyi(order=3),
            cautionary.Subsampling(rate=0.001).curve.advantage(),
            cautionary.Subsampling(rate=0.001).curve.renyi(order=3),
        ),
        (1.5, 0.25, 0.001, math.inf),
    ),
    Item(
        "2.20",
        "Rényi divergences of independent releases add",
        "curves.Curve.renyi",
        lambda: (curves.randomized_response(p=0.75) ** 2).renyi(order=2),
        2 * math.log(0.75**2 / 0.25 + 0.25**2 / 0.75),
    ),
    Item(
        "2.21",
        "k releases of (α, γ)-RDP are (α, kγ)-RDP",
        "curves.renyi",
        lambda: (
            (curves.renyi(order=8, epsilon=0.1) ** 5).renyi(order=8),
            (curves.renyi(order=8, epsilon=0.1) * curves.renyi(order=8, epsilon=0.3)).renyi(order=8),
        ),
        (0.5, 0.4),
    ),
    Item(
        "2.22",
        "What is lost between RDP and tests: 15.12 for 13.21",
        "curves.Curve.epsilon, curves.textbook.best_renyi_to_epsilon_mironov",
        lambda: (
            HUNDRED.epsilon(delta=1e-5),
            textbook.best_renyi_to_epsilon_mironov(renyi=lambda order: order * 3.125, delta=1e-5).bound,
        ),
        lambda: (truths.gaussian_epsilon(2.5, 1e-5), 3.125 + 2 * math.sqrt(3.125 * L5)),
        within=1e-8,
    ),
    Item(
        "2.23",
        "From RDP to (ε, δ): γ + log(1/δ)/(α - 1)",
        "curves.textbook.renyi_to_epsilon_mironov",
        lambda: textbook.renyi_to_epsilon_mironov(order=3, renyi=3 * 3.125, delta=1e-5),
        lambda: 9.375 + L5 / 2,
    ),
    Item(
        "2.24",
        "The moments accountant",
        "curves.textbook.moments_accountant",
        lambda: textbook.moments_accountant(log_moment=lambda k: k * (k + 1) * 3.125, epsilon=14).bound,
        lambda: math.exp(-((14 - 3.125) ** 2) / (4 * 3.125)),
    ),
    Item(
        "2.25",
        "Stochastic gradient descent: q = 0.01, σ = 4, 10,000 steps",
        "curves.Curve.sampled, learn.DPSGD",
        lambda: (
            (curves.gaussian(sigma=4).sampled(rate=0.01) ** 10_000).epsilon(delta=1e-5),
            dn.learn.DPSGD(clip=1.0, rate=0.01, steps=10_000, noise=4.0).curve.epsilon(delta=1e-5),
        ),
        lambda: (independent.sampled_gaussian_epsilon(sigma=4, rate=0.01, steps=10_000, delta=1e-5),) * 2,
        within=1e-4,
    ),
)

ITEMS: tuple[Item, ...] = PROPERTIES + COMPOSITION + RENYI
