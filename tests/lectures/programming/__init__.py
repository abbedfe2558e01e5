"""The items of one course (programming.md), in its order."""

from __future__ import annotations

import math
import warnings
from typing import Any

import mpmath
import numpy as np
from mpmath import mpf

import deniable as dn
from deniable import attacks, curves, plots
from deniable.curves import textbook
from deniable.errors import InvalidParameter, OutsideTheorem, WeakPrivacyWarning
from deniable.mechanisms import cautionary, small
from tests.lectures import truths
from tests.lectures.item import Item

LAPLACE = dn.Laplace(sensitivity=1.0, epsilon=1.0)
GAUSSIAN = dn.Gaussian(sensitivity=1.0, epsilon=1.0, delta=1e-5)
CATASTROPHE = cautionary.Catastrophe(LAPLACE, statistic=sum, delta=1e-5)


def refused(call: Any, error: type[Exception]) -> bool:
    try:
        call()
    except error:
        return True
    return False


def warned(delta: float) -> bool:
    """Whether a budget for 1,000 people says that this δ protects little."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        dn.Budget(epsilon=1, delta=delta, people=1000)
    return [type(warning.message) for warning in said] == [WeakPrivacyWarning]


def adaptive_cost() -> list[float]:
    """Three answers, the later ones chosen after the first: the cost is what was fixed in advance."""
    chosen = LAPLACE.followed_by(lambda _: dn.Laplace(sensitivity=1.0, epsilon=0.5), curve=curves.pure(epsilon=0.5))
    return [(LAPLACE**500).curve.epsilon(delta=0), chosen.curve.epsilon(delta=0)]


def one_run_of_the_attack() -> bool:
    """|mean - 10| > 0.45 has probability at most 2 e^(-λs) (1 - λ²)^-500 with s = 225, λ = 0.42: below 1e-10."""
    return abs(float(np.mean((LAPLACE**500).release(10.0))) - 10) <= 0.45


def laplace_sum_above(count: int, level: float) -> Any:
    """P(S > -level) for the sum of `count` standard Laplace variables, by inverting its characteristic function."""
    with mpmath.mp.workdps(30):
        wave = mpmath.quad(
            lambda t: mpmath.sin(t * level) / t / (1 + t * t) ** count, [0, 1, 4, 16, 64, 1024, mpmath.inf]
        )
        return mpf(1) / 2 + wave / mpmath.pi


def growth_ends(most: int) -> dict[str, tuple[float, float]]:
    figure = plots.growth(curves.laplace(scale=1), delta=1e-4, most=most, name="Laplace")
    lines = figure.panels[0].lines
    return {
        "sequential": (lines["basic, k ε"].x[-1], lines["basic, k ε"].y[-1]),
        "as printed, while it holds": (lines["2ε√(2k log 1/δ)"].x[-1], lines["2ε√(2k log 1/δ)"].y[-1]),
        "any 1-DP": (lines["best for any 1-DP"].x[-1], lines["best for any 1-DP"].y[-1]),
    }


def growth_truth(most: int) -> dict[str, tuple[float, float]]:
    ends = math.floor(8 * math.log(1e4))
    return {
        "sequential": (most, most),
        "as printed, while it holds": (ends, 2 * math.sqrt(2 * ends * math.log(1e4))),
        "any 1-DP": (most, truths.responses_epsilon(1, most, 1e-4)),
    }


def drawn_densities() -> list[float]:
    """The largest distance between a drawn point and the density, for each of the two lines."""
    lines = plots.density(LAPLACE, GAUSSIAN).panels[0].marks
    sigma = truths.gaussian_sigma(1, 1e-5)
    formulas = (
        lambda y: np.exp(-np.abs(y)) / 2,
        lambda y: np.exp(-0.5 * (y / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi)),
    )
    return [float(np.max(np.abs(np.array(m.y) - f(np.array(m.x))))) for m, f in zip(lines, formulas, strict=True)]


def drawn_samples() -> bool:
    """Both histograms follow their laws: by Massart's inequality |F_n - F| > 0.0105 has probability below 6e-10."""
    many = 100_000
    laplace = np.sort(dn.Laplace(sensitivity=1.0, scale=1.0, dimension=many).release(np.zeros(many)))
    root = math.sqrt(many)
    gaussian = np.sort(
        dn.Gaussian(sensitivity=root, epsilon=1.0, delta=1e-5, dimension=many).release(np.zeros(many)) / root
    )
    sigma = truths.gaussian_sigma(1, 1e-5)
    laws = (
        np.where(laplace < 0, np.exp(np.minimum(laplace, 0)) / 2, 1 - np.exp(-np.maximum(laplace, 0)) / 2),
        np.array([0.5 * math.erfc(-x / sigma / math.sqrt(2)) for x in gaussian]),
    )
    steps = np.arange(1, many + 1) / many
    return all(float(np.max(np.abs(steps - law))) < 0.0105 for law in laws)


def laplace_epsilon_500() -> float:
    delta = truths.convolved_delta(*truths.laplace_losses(500), 500)
    return truths.falling_root(delta, 1e-5, 200, 300)


ITEMS: tuple[Item, ...] = (
    Item(
        "4.02",
        "δ is at most 1/n²: then nobody is likely to be shown, whatever the mechanism does with its δ",
        "Budget, curves.weaknesses, mechanisms.cautionary.Subsampling.exposes_anybody",
        lambda: (
            warned(0.01),
            warned(1e-3),
            warned(1e-6),
            len(curves.weaknesses(epsilon=1, delta=0.01, people=1000)),
            [cautionary.Subsampling(rate=rate).exposes_anybody(records=1000) for rate in (1e-2, 1e-3, 1e-6)],
        ),
        (True, True, False, 1, [-math.expm1(1000 * math.log1p(-rate)) for rate in (1e-2, 1e-3, 1e-6)]),
    ),
    Item(
        "4.03",
        "σ = √(2 log(1.25/δ))/ε, as printed, at ε = 1",
        "curves.textbook.as_printed.classical_gaussian_sigma, curves.textbook.classical_gaussian_sigma",
        lambda: (
            textbook.as_printed.classical_gaussian_sigma(sensitivity=1, epsilon=1, delta=1e-5).printed,
            textbook.as_printed.classical_gaussian_sigma(sensitivity=1, epsilon=1, delta=10e-5).printed,
            refused(
                lambda: textbook.classical_gaussian_sigma(sensitivity=1, epsilon=1, delta=1e-5),
                OutsideTheorem,
            ),
        ),
        (math.sqrt(2 * math.log(1.25e5)), math.sqrt(2 * math.log(1.25e4)), True),
    ),
    Item(
        "4.04",
        "The least σ for (1, 10⁻⁵)",
        "Gaussian, curves.textbook.gaussian_sigma",
        lambda: (GAUSSIAN.sigma, textbook.gaussian_sigma(sensitivity=1, epsilon=1, delta=1e-5)),
        lambda: (truths.gaussian_sigma(1, 1e-5),) * 2,
        within=1e-8,
    ),
    Item(
        "4.05",
        "A real number, released with Gaussian noise as with Laplace noise",
        "Gaussian.release, Gaussian.law, Laplace.law",
        lambda: (
            abs(GAUSSIAN.release(42.0) - 42) < 7 * 3.731,  # false alarm 2.6e-12
            GAUSSIAN.law(42.0).mean,
            GAUSSIAN.law(42.0).variance,
            LAPLACE.law(42.0).variance,
        ),
        lambda: (True, 42.0, truths.gaussian_sigma(1, 1e-5) ** 2, 2.0),
        within=1e-8,
    ),
    Item(
        "F.14",
        "Figure: Laplace and Gaussian noise at ε = 1",
        "plots.density, Laplace.release, Gaussian.release",
        lambda: (max(drawn_densities()) < 1e-6, drawn_samples()),
        (True, True),
    ),
    Item(
        "4.06",
        "L1 and L2 sensitivity of 1000 answers of sensitivity 1: k and √k",
        "Sensitivity.of_each, Sensitivity.histogram, mechanisms.small.sensitivity",
        lambda: (
            dn.Sensitivity.of_each(1, outputs=1000).l1,
            dn.Sensitivity.of_each(1, outputs=1000).l2,
            dn.Sensitivity.histogram(dn.Unit.row()).l1,
            dn.Sensitivity.histogram(dn.Unit.replaced_row()).l2,
            small.sensitivity(lambda bits: [sum(bits)] * 4, domain=[0, 1], rows=2, unit=dn.Unit.replaced_row()).l1,
            small.sensitivity(lambda bits: [sum(bits)] * 4, domain=[0, 1], rows=2, unit=dn.Unit.replaced_row()).l2,
        ),
        (1000, math.sqrt(1000), 1, math.sqrt(2), 4, 2),
    ),
    Item(
        "4.07",
        "Laplace noise on vectors needs the L1 sensitivity",
        "Laplace, Sensitivity",
        lambda: (
            refused(
                lambda: dn.Laplace(sensitivity=dn.Sensitivity(l2=10.0), epsilon=1, dimension=100), InvalidParameter
            ),
            dn.Laplace(sensitivity=dn.Sensitivity.of_each(1.0, outputs=100), epsilon=1, dimension=100).scale,
        ),
        (True, 100.0),
    ),
    Item(
        "4.08",
        "Gaussian noise on vectors uses the L2 sensitivity",
        "Gaussian, Sensitivity.of_each",
        lambda: (
            dn.Gaussian(
                sensitivity=dn.Sensitivity.of_each(1.0, outputs=100), epsilon=1, delta=1e-5, dimension=100
            ).sigma
        ),
        lambda: 10 * truths.gaussian_sigma(1, 1e-5),
        within=1e-8,
    ),
    Item(
        "4.09",
        "The catastrophe mechanism is (ε, δ)-DP",
        "mechanisms.cautionary.Catastrophe",
        lambda: (CATASTROPHE.curve.delta(epsilon=1), CATASTROPHE.curve.delta(epsilon=100)),
        (1e-5, 1e-5),
        within=1e-6,
    ),
    Item(
        "4.09b",
        "δ(1/2) of the catastrophe mechanism",
        "curves.textbook.catastrophe_delta, mechanisms.cautionary.Catastrophe",
        lambda: (
            textbook.catastrophe_delta(failure=1e-5, loss=1, epsilon=0.5),
            CATASTROPHE.curve.delta(epsilon=0.5),
        ),
        lambda: (1e-5 + (1 - 1e-5) * -math.expm1(-0.25),) * 2,
        within=1e-6,
    ),
    Item(
        "4.10",
        "Gaussian noise fails gracefully: δ(2), δ(3) and P(L > 2) at (1, 10⁻⁵)",
        "curves.Curve.delta, curves.Curve.loss_tail, curves.Curve.epsilon",
        lambda: (
            curves.gaussian(sigma=4).delta(epsilon=2),
            curves.gaussian(sigma=4).delta(epsilon=3),
            curves.gaussian(sigma=4).loss_tail(epsilon=2),
            GAUSSIAN.curve.epsilon(delta=0),
        ),
        lambda: (
            truths.gaussian_delta(2, 0.25),
            truths.gaussian_delta(3, 0.25),
            truths.normal(0.125 - 8),
            math.inf,
        ),
    ),
    Item(
        "4.12",
        "k-fold adaptive composition",
        "Laplace.followed_by, mechanisms.Composed",
        adaptive_cost,
        (500.0, 1.5),
    ),
    Item(
        "E.05",
        "The averaging attack, run: 500 answers about 10 with Laplace noise",
        "Laplace.release, mechanisms.Composed.release",
        one_run_of_the_attack,
        True,
    ),
    Item(
        "4.13",
        "Averaging 500 answers leaves noise of deviation √(2/500)",
        "attacks.Averaging.deviation",
        lambda: attacks.Averaging(answers=500).deviation(LAPLACE),
        math.sqrt(2 / 500),
    ),
    Item(
        "4.13b",
        "How often averaging tells 0 from 1: 1, 3, 10 and 30 answers",
        "attacks.Averaging.expected",
        lambda: [attacks.Averaging(answers=k).expected(LAPLACE) for k in (1, 3, 10, 30)],
        lambda: [1 - math.exp(-0.5) / 2, *(laplace_sum_above(k, k / 2) for k in (3, 10, 30))],
    ),
    Item(
        "4.11",
        "Sequential composition: 500 times ε = 1",
        "curves.textbook.basic_composition",
        lambda: textbook.basic_composition(epsilon=1, delta=0, count=500).epsilon,
        500.0,
    ),
    Item(
        "4.14",
        "Advanced composition, 2ε√(2k log(1/δ)), as printed, and refused at k = 500",
        "curves.textbook.as_printed.advanced_composition_doubled, curves.textbook.advanced_composition_doubled",
        lambda: (
            textbook.as_printed.advanced_composition_doubled(epsilon=1, count=500, delta=1e-5).printed,
            refused(
                lambda: textbook.advanced_composition_doubled(epsilon=1, count=500, delta=1e-5),
                OutsideTheorem,
            ),
        ),
        (2 * math.sqrt(1000 * math.log(1e5)), True),
    ),
    Item(
        "4.14b",
        "What 500 releases of ε = 1 cost: any mechanism, and Laplace noise",
        "curves.textbook.optimal_composition_epsilon, curves.pure, curves.laplace",
        lambda: (
            textbook.optimal_composition_epsilon(epsilon=1, delta=0, count=500, total_delta=1e-5),
            (curves.pure(epsilon=1) ** 500).epsilon(delta=1e-5),
            (curves.laplace(scale=1) ** 500).epsilon(delta=1e-5),
        ),
        lambda: (truths.responses_epsilon(1, 500, 1e-5),) * 2 + (laplace_epsilon_500(),),
        within=1e-5,
    ),
    Item(
        "4.15",
        "Where the one-term formula begins to pay: k = 8 log(1/δ)",
        "curves.textbook.crossover",
        lambda: (textbook.crossover(delta=1e-4), textbook.crossover(delta=1e-5)),
        (8 * math.log(1e4), 8 * math.log(1e5)),
    ),
    Item(
        "F.15",
        "Figure: sequential and advanced composition up to 100 releases",
        "plots.growth",
        lambda: growth_ends(100),
        lambda: growth_truth(100),
    ),
    Item(
        "F.16",
        "Figure: the same up to 10 000 releases",
        "plots.growth",
        lambda: growth_ends(10_000),
        lambda: growth_truth(10_000),
        slow=True,
    ),
)
