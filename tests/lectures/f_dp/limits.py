"""Poisson and infinitely divisible privacy, their mechanisms, and what lies beyond."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import mpmath
import numpy as np
from scipy import stats

import deniable as dn
from deniable import curves, noise, plots
from deniable.errors import NotPrivateWarning
from deniable.mechanisms import graphs
from tests.lectures import truths
from tests.lectures.item import Item

POISSON = curves.poisson(low=2, high=5)
P2, P5 = truths.poisson_masses(2), truths.poisson_masses(5)
LEVELS = (0.5, 1.0, 2.0)


def bernoullis(n: int) -> curves.Curve:
    """n comparisons of a coin of 2/n with a coin of 5/n."""
    return curves.from_pmf([1 - 2 / n, 2 / n], [1 - 5 / n, 5 / n], tied=True) ** n


def binomial_test(n: int, alpha: float) -> float:
    """The number of heads is all that the coins tell."""
    counts = np.arange(min(n, 200) + 1)
    low, high = (stats.binom.pmf(counts, n, rate / n).tolist() for rate in (2, 5))
    return truths.finite_beta(low, high, alpha)


def quantised_test(mu: float, alpha: float) -> float:
    """T_G(α) for answers of which only the whole part is seen: linear between α_k = 1 - Φ(k)."""
    for k in range(-12, 13):
        right, left = 1 - stats.norm.cdf(k), 1 - stats.norm.cdf(k + 1)
        if left <= alpha <= right:
            upper, lower = stats.norm.cdf(k + 1 - mu), stats.norm.cdf(k - mu)
            return float(upper - (alpha - left) / (right - left) * (upper - lower))
    raise ValueError(alpha)


def drawn_bins() -> bool:
    """Every vertex of T_G lies on the proposition's line, and every vertex of T on G_μ; never above them."""
    named = {f"T {mu}": curves.gaussian(mu=mu) for mu in LEVELS}
    named |= {f"T_G {mu}": curves.quantized(curves.gaussian(mu=mu), width=1) for mu in LEVELS}
    lines = plots.tradeoff(named, direction="forward").panels[0].lines
    for mu in LEVELS:
        for name, truth in ((f"T {mu}", truths.gaussian_beta), (f"T_G {mu}", quantised_test)):
            line = lines[name]
            inner = [(a, b) for a, b in zip(line.x, line.y, strict=True) if 1e-6 < a < 1 - 1e-6][::5]
            for alpha, beta in inner:
                right = float(truth(mu, alpha))
                if not right - 1e-4 <= beta <= right + 1e-9:
                    return False
    return True


def symmetrised() -> tuple[float, float]:
    """Where the lesser of f and f⁻¹, and where its convex hull, meet the diagonal."""
    points = truths.tests_between(P2, P5)
    points += [(b, a) for a, b in points]
    hull = truths.lower_hull(points)
    for (x, y), (u, v) in itertools.pairwise(hull):
        if x <= y and u >= v:
            share = (y - x) / ((y - x) + (u - v))
            hulled = x + share * (u - x)
    either = truths.falling_root(
        lambda a: min(truths.finite_beta(P2, P5, a), truths.finite_beta(P5, P2, a)) - a, 0, 0, 1
    )
    return either, hulled


def transport() -> dn.PoissonMechanism:
    return dn.PoissonMechanism.transport(low=2, high=5, sensitivity=2, top=6)


def merton_cumulant(z: Any) -> Any:
    """log E_P e^(zX), with the drift for which E_P e^X = 1."""
    variance, rate, mean, spread = MERTON.values()
    drift = -variance / 2 - rate * math.expm1(mean + spread**2 / 2)
    return z * drift + z**2 * variance / 2 + rate * np.expm1(z * mean + (z * spread) ** 2 / 2)


def poisson_releases() -> bool:
    """The sum of 400 releases at the value 6 is Poisson(2000); false alarm 1e-9."""
    mechanism = transport()
    total = sum(mechanism.release(6) for _ in range(400))
    low, high = stats.poisson.ppf(5e-10, 2000), stats.poisson.isf(5e-10, 2000)
    return bool(low <= total <= high)


def revealed(weights: list[float]) -> Any:
    """δ(1) of N releases of G_0.5, N seen: the mean of δ(1) of G_{0.5√n}."""
    return mpmath.fsum(w * truths.gaussian_delta(1, 0.5 * math.sqrt(n)) for n, w in enumerate(weights) if n)


def known_key() -> float:
    """Whoever knows the key of the noise subtracts it."""
    mechanism = dn.DiscreteLaplace(sensitivity=1, epsilon=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        seen = mechanism.release(42, entropy=noise.ReplayEntropy(7))
        return float(seen - mechanism.release(0, entropy=noise.ReplayEntropy(7)))


def from_tradeoff() -> tuple[float, float, float]:
    """TV = 1 - min(α + f(α)) and KL = -∫ log|f'|, read off the vertices of f = T(Poisson(2), Poisson(5)); and the
    larger KL of both directions.
    """
    vertices = truths.tests_between(P2, P5)
    sides = [(u - x, y - v) for (x, y), (u, v) in itertools.pairwise(vertices) if u > x and y > v]
    forward = -math.fsum(across * math.log(down / across) for across, down in sides)
    backward = -math.fsum(down * math.log(across / down) for across, down in sides)
    return 1 - min(a + b for a, b in vertices), forward, max(forward, backward)


def degrees_of(edges: Any, nodes: int) -> np.ndarray:
    return np.bincount(np.array(edges, dtype=int).ravel(), minlength=nodes)


def moves_of_degrees() -> list[float]:
    """How far the degree sequence (L1) and the degree histogram (L1, squared L2) of graphs of four nodes move by one
    edge, and by one node, over all graphs.
    """
    nodes = 4
    pairs = list(itertools.combinations(range(nodes), 2))
    by_edge, by_node = 0, 0
    bins_by_edge, bins_by_node = [0, 0], [0, 0]

    def farther(most: list[int], one: Any, two: Any) -> list[int]:
        moved = np.bincount(one, minlength=nodes) - np.bincount(two, minlength=nodes)
        return [max(most[0], int(np.sum(np.abs(moved)))), max(most[1], int(np.sum(moved**2)))]

    for kept in itertools.product((False, True), repeat=len(pairs)):
        edges = [pair for pair, keep in zip(pairs, kept, strict=True) if keep]
        degrees = degrees_of(edges, nodes)
        for edge in edges:
            fewer = degrees_of([e for e in edges if e != edge], nodes)
            by_edge = max(by_edge, int(np.sum(np.abs(degrees - fewer))))
            bins_by_edge = farther(bins_by_edge, degrees, fewer)
        without = degrees_of([e for e in edges if 0 not in e], nodes)
        by_node = max(by_node, int(np.sum(np.abs(degrees - without))))
        bins_by_node = farther(bins_by_node, degrees, without[1:])
    return [by_edge, by_node, bins_by_edge[0], math.sqrt(bins_by_edge[1]), bins_by_node[0], math.sqrt(bins_by_node[1])]


def sensitivities_of_degrees() -> list[float | None]:
    edge, node = graphs.GraphUnit.edge(), graphs.GraphUnit.node()
    bins = [graphs.DegreeHistogram(degree=3, unit=unit, epsilon=1).sensitivity for unit in (edge, node)]
    return [
        graphs.DegreeSequence(nodes=range(4), unit=edge, epsilon=1).sensitivity.l1,
        graphs.DegreeSequence(nodes=range(4), unit=node, degree=3, epsilon=1).sensitivity.l1,
        *(length for each in bins for length in (each.l1, each.l2)),
    ]


WEIGHTS = truths.poisson_masses(4, 60)
MERTON = {"variance": 0.64, "rate": 1.5, "mean": 0.1, "spread": 0.6}

LIMITS = (
    Item(
        "3.24",
        "s² = 2k: a Gaussian limit has its variance twice its mean",
        "curves.infinitely_divisible",
        lambda: (
            curves.infinitely_divisible(variance=4, jumps={}).kl(),
            curves.infinitely_divisible(variance=4, jumps={}).gdp(),
            curves.infinitely_divisible(variance=4, jumps={}) == curves.gaussian(mu=2),
        ),
        (2.0, 2.0, True),
    ),
    Item(
        "3.25",
        "100 coins of 2/n against 5/n",
        "curves.from_pmf",
        lambda: bernoullis(100).beta(alpha=0.05),
        lambda: binomial_test(100, 0.05),
    ),
    Item(
        "3.25b",
        "10,000 coins, and their Poisson limit",
        "curves.from_pmf, curves.poisson",
        lambda: (bernoullis(10_000).beta(alpha=0.05), curves.poisson(low=2, high=5).beta(alpha=0.05)),
        lambda: (binomial_test(10_000, 0.05), truths.finite_beta(P2, P5, 0.05)),
    ),
    Item(
        "3.26",
        "Infinitely divisible: a Gaussian part and a Poisson part",
        "curves.infinitely_divisible",
        lambda: (
            curves.infinitely_divisible(variance=1, jumps={math.log(2.5): 2}).backward.delta_bounds(epsilon=1)[1],
            curves.infinitely_divisible(variance=1, jumps={math.log(2.5): 2}).forward.delta_bounds(epsilon=1)[1],
        ),
        lambda: tuple(
            truths.jumps_delta(1, variance=1, rate=2, mean=math.log(2.5), spread=0, is_reversed=r)
            for r in (False, True)
        ),
        within=3e-5,
    ),
    Item(
        "3.26b",
        "Normal jumps (Merton)",
        "curves.merton, curves.fourier_delta",
        lambda: (
            curves.merton(**MERTON).backward.delta_bounds(epsilon=1)[1],
            curves.merton(**MERTON).forward.delta_bounds(epsilon=1)[1],
            curves.fourier_delta(merton_cumulant, epsilon=1),
        ),
        lambda: tuple(truths.jumps_delta(1, **MERTON, is_reversed=r) for r in (False, True, False)),
    ),
    Item(
        "3.27",
        "The Gaussian member: P = N(-μ²/2, μ²)",
        "curves.infinitely_divisible, curves.gaussian",
        lambda: (
            curves.infinitely_divisible(variance=1, jumps={}).delta(epsilon=1),
            curves.gaussian(mu=1).delta(epsilon=1),
        ),
        lambda: (truths.gaussian_delta(1, 1),) * 2,
    ),
    Item(
        "3.28",
        "The Poisson member: jumps of log(λ₂/λ₁) at rate λ₁",
        "curves.infinitely_divisible, curves.poisson",
        lambda: (
            curves.infinitely_divisible(variance=0, jumps={math.log(2.5): 2}).delta(epsilon=1),
            curves.poisson(low=2, high=5).delta(epsilon=1),
        ),
        lambda: (truths.finite_delta(P5, P2, 1),) * 2,
    ),
    Item(
        "3.28b",
        "Both directions of the Poisson member",
        "curves.Curve.forward, curves.Curve.backward",
        lambda: (POISSON.backward.delta_bounds(epsilon=1)[1], POISSON.forward.delta_bounds(epsilon=1)[1]),
        lambda: (truths.finite_delta(P5, P2, 1), truths.finite_delta(P2, P5, 1)),
    ),
)

MECHANISMS = (
    Item(
        "3.30",
        "The Gaussian additive mechanism: c = w_g(1)/μ",
        "Gaussian",
        lambda: dn.Gaussian(sensitivity=2.0, mu=0.5).sigma,
        4.0,
        within=1e-8,
    ),
    Item(
        "3.31",
        "The Poisson mechanism by optimal transport: its rates",
        "PoissonMechanism.transport",
        lambda: [float(rate) for rate in transport().rates],
        [5 * 0.4 ** ((6 - y) / 2) for y in range(7)],
        within=1e-6,
    ),
    Item(
        "3.31b",
        "A release is a Poisson count",
        "PoissonMechanism.release",
        poisson_releases,
        True,
    ),
    Item(
        "3.38",
        "Degrees of graphs, by edges and by nodes",
        "mechanisms.graphs.DegreeSequence, mechanisms.graphs.DegreeHistogram, mechanisms.graphs.GraphUnit",
        sensitivities_of_degrees,
        moves_of_degrees,
    ),
    Item(
        "3.32",
        "The symmetric baseline: min(f, f⁻¹), and its convex hull",
        "curves.Curve.equal_error_rate, curves.Curve.symmetrized",
        lambda: (POISSON.equal_error_rate(), POISSON.symmetrized().equal_error_rate()),
        symmetrised,
    ),
)

BEYOND = (
    Item(
        "3.33",
        "Divergences are functionals of the trade-off function: TV and KL",
        "curves.Curve.advantage, curves.Curve.kl",
        lambda: (POISSON.advantage(), POISSON.forward.kl(), POISSON.kl()),
        from_tradeoff,
    ),
    Item(
        "3.33b",
        "χ² and Hellinger",
        "curves.Curve.chi_squared, curves.Curve.hellinger",
        lambda: (
            curves.gaussian(mu=1).chi_squared(),
            curves.gaussian(mu=1).hellinger(),
            POISSON.forward.renyi_bounds(order=0.5)[1],
        ),
        (math.e - 1, 1 - math.exp(-1 / 8), (math.sqrt(5) - math.sqrt(2)) ** 2),
        within=1e-6,
    ),
    Item(
        "3.34",
        "A random number of compositions",
        "curves.mixture",
        lambda: curves.mixture(WEIGHTS, [curves.gaussian(mu=0.5) ** n for n in range(61)]).delta(epsilon=1),
        lambda: revealed(WEIGHTS),
    ),
    *(
        Item(
            f"3.36/{mu:g}",
            f"Only the whole part of the answer is seen: T_G for μ = {mu:g}",
            "curves.quantized, curves.Curve.forward",
            lambda mu=mu: curves.quantized(curves.gaussian(mu=mu), width=1).forward.beta_bounds(alpha=0.05)[0],
            lambda mu=mu: quantised_test(mu, 0.05),
        )
        for mu in LEVELS
    ),
    Item("F.13", "Figure: T and T_G for μ = 0.5, 1, 2", "plots.tradeoff, curves.quantized", drawn_bins, True),
    Item(
        "3.39",
        "Computation: who knows the key of the noise subtracts it",
        "noise.ReplayEntropy, noise.current, DiscreteLaplace.release",
        lambda: (known_key(), noise.current().is_private),
        (42.0, True),
    ),
)
