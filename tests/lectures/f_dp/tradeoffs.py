"""Trade-off functions, tests, Blackwell's order, Gaussian privacy and composition."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
from scipy import stats

from deniable import curves, plots
from deniable.curves import Kernel
from deniable.errors import InvalidOperation, InvalidTradeoff
from tests.lectures import truths
from tests.lectures.item import Item

ROWS = [[0.6, 0.3, 0.1], [0.45, 0.35, 0.2], [0.3, 0.3, 0.4]]
POISSON = curves.poisson(low=2, high=5)
P2, P5 = truths.poisson_masses(2), truths.poisson_masses(5)


def refused(function: Callable[[Any], Any]) -> bool:
    try:
        curves.tradeoff(function)
    except InvalidTradeoff:
        return True
    return False


def contains(bounds: tuple[float, float], truth: float, *, width: float) -> bool:
    low, high = bounds
    return low - 1e-12 <= truth <= high + 1e-12 and high - low <= width


def of_epsilon_delta(alpha: float, epsilon: float, delta: float) -> float:
    return max(0.0, 1 - delta - math.exp(epsilon) * alpha, math.exp(-epsilon) * (1 - delta - alpha))


def worst_test(rows: list[list[float]], pairs: list[tuple[int, int]], alpha: float) -> float:
    """The largest trade-off function below those of all neighbours in both orders: the hull of their vertices."""
    vertices = [
        vertex for i, j in pairs for a, b in ((i, j), (j, i)) for vertex in truths.tests_between(rows[a], rows[b])
    ]
    return float(np.interp(alpha, *zip(*truths.lower_hull(vertices), strict=True)))


def garbled() -> tuple[bool, list[float], bool]:
    """R for randomized response made noisier; and that there is none the other way round."""
    sharp, blunt = Kernel.of([[0.75, 0.25], [0.25, 0.75]]), Kernel.of([[0.625, 0.375], [0.375, 0.625]])
    found = sharp.garbling(blunt)
    made = sharp.matrix @ found.matrix
    try:
        blunt.garbling(sharp)
        back = True
    except InvalidOperation:
        back = False
    return bool(np.allclose(made, blunt.matrix, atol=1e-9)), found.matrix.ravel().tolist(), back


@truths.at_forty_digits
def normal_moment(power: int) -> Any:
    """E|L|^power for L ~ N(1/2, 1)."""
    return mpmath.quad(lambda x: abs(x) ** power * mpmath.npdf(x, 0.5, 1), [-mpmath.inf, -8, 0, 0.5, 8, mpmath.inf])


@truths.at_forty_digits
def laplace_moment(power: int, absolute: bool = True) -> Any:
    """E|L|^power (or E L^power) for Laplace noise with t = 1: atoms at ±1 and a density e^((x - 1)/2)/4 between."""

    def of(x: Any) -> Any:
        return (abs(x) if absolute else x) ** power

    inner = mpmath.quad(lambda x: of(x) * mpmath.exp((x - 1) / 2) / 4, [-1, 0, 1])
    return inner + of(mpmath.mpf(1)) / 2 + of(mpmath.mpf(-1)) * mpmath.exp(-1) / 2


def drawn_order() -> tuple[bool, bool, float]:
    """Every vertex of G_1 and G_2 lies on or just below the formula, and G_2 below G_1, which is below the diagonal."""
    named = {"Id": curves.identity(), "G_1": curves.gaussian(mu=1), "G_2": curves.gaussian(mu=2)}
    lines = plots.tradeoff(named).panels[0].lines
    near = True
    for mu in (1, 2):
        line = lines[f"G_{mu}"]
        for alpha, beta in list(zip(line.x, line.y, strict=True))[1:-1:7]:
            truth = float(truths.gaussian_beta(mu, alpha))
            near = near and truth - 1e-4 <= beta <= truth + 1e-12
    grid = np.linspace(0, 1, 101)
    first, second = (np.interp(grid, lines[name].x, lines[name].y) for name in ("G_1", "G_2"))
    ordered = bool(np.all(second <= first + 1e-12) and np.all(first <= 1 - grid + 1e-12))
    return near, ordered, max(abs(x + y - 1) for x, y in zip(lines["Id"].x, lines["Id"].y, strict=True))


TRADEOFFS = (
    Item(
        "3.11",
        "Trade-off functions: convex, continuous, not increasing, at most 1 - x",
        "curves.tradeoff",
        lambda: contains(
            curves.tradeoff(lambda a: (1 - np.sqrt(a)) ** 2).beta_bounds(alpha=0.25), (1 - 0.5) ** 2, width=1e-6
        ),
        True,
    ),
    Item(
        "3.11b",
        "A function that is not convex is refused",
        "curves.tradeoff",
        lambda: refused(lambda a: 1 - a**2),
        True,
    ),
    Item("3.11c", "One that increases is refused", "curves.tradeoff", lambda: refused(lambda a: 0.5 * a), True),
    Item("3.11d", "One above 1 - x is refused", "curves.tradeoff", lambda: refused(lambda a: 1 - a / 2), True),
    Item(
        "3.12",
        "f-DP of a mechanism: the largest trade-off function below those of all its neighbours",
        "curves.from_kernel, curves.Curve.beta",
        lambda: [
            curves.from_kernel(ROWS, neighbours=pairs).beta(alpha=a)
            for pairs in ([(0, 1), (1, 2)], [(0, 1), (1, 2), (0, 2)])
            for a in (0.05, 0.1, 0.3, 0.5)
        ],
        lambda: [
            worst_test(ROWS, pairs, a)
            for pairs in ([(0, 1), (1, 2)], [(0, 1), (1, 2), (0, 2)])
            for a in (0.05, 0.1, 0.3, 0.5)
        ],
    ),
    Item(
        "3.13",
        "f_{ε,δ} at 0.05: (ε, δ)-DP as a trade-off function",
        "curves.approximate",
        lambda: curves.approximate(epsilon=1, delta=1e-5).beta(alpha=0.05),
        of_epsilon_delta(0.05, 1, 1e-5),
    ),
    Item(
        "3.13b",
        "f_{ε,δ} on the other side of its corner, at 0.5",
        "curves.approximate",
        lambda: curves.approximate(epsilon=1, delta=1e-5).beta(alpha=0.5),
        of_epsilon_delta(0.5, 1, 1e-5),
    ),
    Item(
        "3.13c",
        "Back from f to δ(ε), by duality",
        "curves.tradeoff, curves.Curve.delta_bounds",
        lambda: contains(
            curves.tradeoff(lambda a: stats.norm.cdf(stats.norm.ppf(1 - np.asarray(a)) - 1)).delta_bounds(epsilon=1),
            float(truths.gaussian_delta(1, 1)),
            width=2e-6,
        ),
        True,
    ),
    Item(
        "3.14",
        "Neyman and Pearson: the best test of Poisson(2) against Poisson(5) uses a coin",
        "curves.poisson, curves.Curve.forward, curves.Curve.backward",
        lambda: [
            curves.poisson(low=2, high=5).forward.beta_bounds(alpha=0.05)[0],
            curves.poisson(low=2, high=5).forward.beta_bounds(alpha=0.3)[0],
            curves.poisson(low=2, high=5).backward.beta_bounds(alpha=0.05)[0],
        ],
        lambda: [
            truths.finite_beta(P2, P5, 0.05),
            truths.finite_beta(P2, P5, 0.3),
            truths.finite_beta(P5, P2, 0.05),
        ],
    ),
    Item(
        "3.14b",
        "The same as a promise: the worse of both directions",
        "curves.Curve.beta",
        lambda: [POISSON.beta(alpha=a) for a in (0.05, 0.3)],
        lambda: [min(truths.finite_beta(P2, P5, a), truths.finite_beta(P5, P2, a)) for a in (0.05, 0.3)],
    ),
    Item(
        "3.15",
        "Blackwell's order, with 1 - α on top",
        "curves.Curve.dominates, curves.identity",
        lambda: (
            curves.gaussian(mu=1) <= curves.gaussian(mu=2),
            curves.gaussian(mu=2) <= curves.gaussian(mu=1),
            curves.identity() <= curves.gaussian(mu=0.1),
            curves.identity().beta(alpha=0.3),
            # The two cross: neither is a post-processing of the other.
            curves.gaussian(mu=1) <= curves.pure(epsilon=1),
            curves.pure(epsilon=1) <= curves.gaussian(mu=1),
        ),
        (True, False, True, 0.7, False, False),
    ),
    Item("F.12", "Figure: Blackwell's order", "plots.tradeoff", drawn_order, (True, True, 0.0)),
    Item(
        "3.16",
        "Blackwell's theorem: the kernel R that makes the noisier pair",
        "curves.Kernel.garbling",
        garbled,
        (True, [0.75, 0.25, 0.25, 0.75], False),
    ),
)

GAUSSIAN = (
    Item(
        "3.17",
        "G_θ(α) = Φ(Φ⁻¹(1 - α) - θ)",
        "curves.gaussian",
        lambda: [curves.gaussian(mu=1).beta(alpha=a) for a in (0.01, 0.3, 0.9)],
        lambda: [truths.gaussian_beta(1, a) for a in (0.01, 0.3, 0.9)],
    ),
    Item(
        "3.18",
        "Gaussian comparison: every 1-DP mechanism is 1.232-GDP",
        "curves.Curve.gdp",
        curves.pure(epsilon=1).gdp,
        lambda: 2 * truths.deviate(mpmath.e / (1 + mpmath.e)),
    ),
    Item(
        "3.19",
        "θ-Gaussian differential privacy",
        "curves.Curve.gdp",
        lambda: (curves.gaussian(mu=0.7).gdp(), curves.gaussian(sigma=4).gdp()),
        (0.7, 0.25),
    ),
    Item(
        "3.20",
        "The composition theorem: G_0.3 ⊗ G_0.4 = G_0.5",
        "curves.Curve",
        lambda: (curves.gaussian(mu=0.3) * curves.gaussian(mu=0.4)).beta(alpha=0.05),
        lambda: truths.gaussian_beta(0.5, 0.05),
    ),
    Item(
        "3.21",
        "⊗ is commutative and associative, and 1 - α is neutral",
        "curves.Curve, curves.identity",
        lambda: (
            all(
                a * b == b * a and (a * b) * c == a * (b * c)
                for a, b, c in itertools.permutations(
                    (curves.gaussian(mu=1), curves.laplace(scale=2), curves.pure(epsilon=0.5))
                )
            ),
            curves.gaussian(mu=1) * curves.identity() == curves.gaussian(mu=1),
            (curves.randomized_response(p=0.75) * curves.randomized_response(p=0.6)).delta(epsilon=0.5),
        ),
        lambda: (
            True,
            True,
            truths.finite_delta(
                [a * b for a in (0.75, 0.25) for b in (0.6, 0.4)],
                [a * b for a in (0.25, 0.75) for b in (0.4, 0.6)],
                0.5,
            ),
        ),
    ),
    Item(
        "3.22",
        "kl, κ₂ and κ₃ of G_1",
        "curves.Curve.kl, curves.Curve.kappa2, curves.Curve.kappa3",
        lambda: [curves.gaussian(mu=1).kl(), curves.gaussian(mu=1).kappa2(), curves.gaussian(mu=1).kappa3()],
        lambda: [0.5, 1.25, normal_moment(3)],
    ),
    Item(
        "3.22b",
        "kl, κ₂ and κ₃ of Laplace noise",
        "curves.Curve.kl, curves.Curve.kappa2, curves.Curve.kappa3",
        lambda: [
            curves.laplace(scale=1).kl(),
            curves.laplace(scale=1).kappa2(),
            curves.laplace(scale=1).kappa3(),
        ],
        lambda: [laplace_moment(1, absolute=False), laplace_moment(2), laplace_moment(3)],
    ),
    Item(
        "3.23",
        "The central limit theorem: 1000 releases of ε = 0.1 are near G_3.16",
        "curves.Curve.clt",
        lambda: (curves.pure(epsilon=0.1) ** 1000).clt().mu,
        lambda: 2 * (1000 * 0.1 * math.tanh(0.05)) / math.sqrt(1000 * 0.1**2),
    ),
    Item(
        "3.23b",
        "δ(4) by the limit, and exactly",
        "curves.GaussianApproximation.approximate_delta, curves.Curve.delta",
        lambda: (
            (curves.pure(epsilon=0.1) ** 1000).clt().approximate_delta(epsilon=4),
            (curves.pure(epsilon=0.1) ** 1000).delta(epsilon=4),
        ),
        lambda: (
            truths.gaussian_delta(4, 20 * math.tanh(0.05) * math.sqrt(10)),
            truths.responses_delta(0.1, 1000, 4),
        ),
        within=1e-8,
    ),
)
