"""Markov kernels: what a mechanism is before it is private."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from deniable import curves
from deniable.curves import Kernel
from tests.lectures import truths
from tests.lectures.item import Item

COIN = Kernel.of([[0.75, 0.25], [0.25, 0.75]])
"""Randomized response that tells the truth with probability 3/4."""
THREE = [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]


def walk(p: float, sites: int) -> Kernel:
    """The simple random walk on a circle of sites."""
    steps = np.zeros((sites, sites))
    for site in range(sites):
        steps[site, (site + 1) % sites] += p
        steps[site, (site - 1) % sites] += 1 - p
    return Kernel.of(steps, ())


def three_steps() -> list[float]:
    one = walk(0.3, 9)
    after = one.then(one).then(one)([1, 0, 0, 0, 0, 0, 0, 0, 0])
    return [float(after[site]) for site in (1, 3, -1, -3)]


def shifted_noise() -> tuple[list[list[float]], float, bool]:
    kernel = Kernel.convolution([0.5, 0.25, 0.125, 0.125], shifts=[0, 1])
    normal = [lambda y, at=at: np.exp(-((y - at) ** 2) / 2) / math.sqrt(2 * math.pi) for at in (0, 1)]
    low, high = curves.from_density(*normal, support=(-math.inf, math.inf)).delta_bounds(epsilon=1)
    contained = low <= float(truths.gaussian_delta(1, 1)) <= high < low + 1e-4
    return kernel.matrix.tolist(), kernel.curve.delta(epsilon=0), contained


KERNELS = (
    Item(
        "3.01",
        "A Markov kernel: one law of answers for each dataset",
        "curves.Kernel, curves.from_kernel",
        lambda: (COIN.matrix.tolist(), curves.from_kernel(COIN.matrix).epsilon(delta=0)),
        ([[0.75, 0.25], [0.25, 0.75]], math.log(3)),
    ),
    Item(
        "3.02",
        "A kernel takes measures to measures, and functions to functions",
        "curves.Kernel, curves.Kernel.mean",
        lambda: (
            COIN([0.9, 0.1]).tolist(),
            COIN.mean([0, 1]).tolist(),
            float(COIN([0.9, 0.1]) @ [3, 8]) == float(np.dot([0.9, 0.1], COIN.mean([3, 8]))),
        ),
        lambda: (
            [float(Fraction(9, 10) * Fraction(3, 4) + Fraction(1, 10) * Fraction(1, 4)), 0.3],
            [0.25, 0.75],
            True,
        ),
    ),
    Item(
        "3.03",
        "The simple random walk with p = 0.3, after three steps",
        "curves.Kernel.then",
        three_steps,
        (3 * 0.3**2 * 0.7, 0.3**3, 3 * 0.3 * 0.7**2, 0.7**3),
    ),
    Item(
        "3.04",
        "The normal kernel θ ↦ N(θ, 1)",
        "curves.gaussian",
        lambda: curves.gaussian(mu=1).beta(alpha=0.05),
        lambda: truths.gaussian_beta(1, 0.05),
    ),
    Item(
        "3.05",
        "The convolution kernel θ ↦ δ_θ * μ",
        "curves.Kernel.convolution, curves.from_density",
        shifted_noise,
        (
            [[0.5, 0.25, 0.125, 0.125, 0], [0, 0.5, 0.25, 0.125, 0.125]],
            0.5,  # (|.5| + |.25 - .5| + |.125 - .25| + 0 + |-.125|)/2
            True,
        ),
    ),
    Item(
        "3.06",
        "A function is a kernel of zeros and ones: no privacy",
        "curves.Kernel",
        lambda: (
            Kernel.of([[1, 0], [0, 1]]).curve.epsilon(delta=0.5),
            Kernel.of([[1, 0], [0, 1]]).curve.delta(epsilon=9),
            Kernel.of([[1, 0], [1, 0]]).curve.delta(epsilon=0),
        ),
        (math.inf, 1.0, 0.0),
    ),
    Item(
        "3.07",
        "Convex combinations of kernels",
        "curves.Kernel.mixture",
        lambda: (
            Kernel.mixture(
                [0.5, 0.5], [Kernel.of([[1, 0], [0, 1]]), Kernel.of([[0.5, 0.5], [0.5, 0.5]])]
            ).matrix.tolist(),
            Kernel.mixture(
                [0.5, 0.5], [Kernel.of([[1, 0], [0, 1]]), Kernel.of([[0.5, 0.5], [0.5, 0.5]])]
            ).curve.epsilon(delta=0),
        ),
        ([[0.75, 0.25], [0.25, 0.75]], math.log(3)),
    ),
    Item(
        "3.08",
        "Composition: randomized response of a randomized response",
        "curves.Kernel.then",
        lambda: COIN.then(COIN).curve.epsilon(delta=0),
        math.log(float(Fraction(10, 16) / Fraction(6, 16))),
    ),
    Item(
        "3.09",
        "Product: both answers are released",
        "curves.Kernel",
        lambda: (COIN * COIN).curve.epsilon(delta=0),
        2 * math.log(3),
    ),
    Item(
        "3.10",
        "Which datasets are neighbours: a symmetric relation",
        "curves.Kernel.of",
        lambda: (
            Kernel.of([*THREE, [0.125, 0.5, 0.375]], neighbours=[(0, 1), (1, 2)]).curve.epsilon(delta=0),
            Kernel.of([*THREE, [0.125, 0.5, 0.375]]).curve.epsilon(delta=0),
        ),
        (math.log(2), math.log(4)),
    ),
)
