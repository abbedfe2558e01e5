"""Cases of several files here: mechanisms that add noise to real and to whole numbers, and something that is no number."""

from __future__ import annotations

import math
from fractions import Fraction

from deniable.mechanisms import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace

REAL = [
    Laplace(sensitivity=1.0, epsilon=0.5),
    Laplace(sensitivity=0.1, scale=3.7, dimension=1),
    Gaussian(sensitivity=2.5, sigma=1.3),
    Gaussian(sensitivity=1.0, mu=0.5, dimension=1),
]
WHOLE = [
    Laplace(sensitivity=1, epsilon=0.5),
    Laplace(sensitivity=3, scale=Fraction(7, 3)),
    DiscreteLaplace(sensitivity=2, epsilon=0.7),
    Gaussian(sensitivity=1, sigma=2),
    Gaussian.whole(sensitivity=math.sqrt(2), mu=1.0),
    DiscreteGaussian(sensitivity=1, sigma=2),
]


class Nameless:
    """Something that is nothing else, and prints the same in every process."""

    def __repr__(self) -> str:
        return "Nameless()"
