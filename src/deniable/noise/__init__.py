"""Where chance comes from: cryptographic bits, exact samplers on the integers, and a grid that carries floats to them.

No floating-point number decides a probability here. A scale is the rational number that it stores; the law is exact
everywhere, tails included.
"""

from deniable.noise.entropy import Entropy, ReplayEntropy, current
from deniable.noise.float_grid import Grid, exact_sum
from deniable.noise.samplers import (
    bernoulli,
    bernoulli_exp,
    binomial,
    choice,
    discrete_gaussian,
    discrete_laplace,
    geometric,
    permutation,
    poisson,
    rounded_gaussian,
    uniform,
)
from deniable.noise.weighted_wheel import Wheel

__all__ = [
    "Entropy",
    "Grid",
    "ReplayEntropy",
    "Wheel",
    "bernoulli",
    "bernoulli_exp",
    "binomial",
    "choice",
    "current",
    "discrete_gaussian",
    "discrete_laplace",
    "exact_sum",
    "geometric",
    "permutation",
    "poisson",
    "rounded_gaussian",
    "uniform",
]
