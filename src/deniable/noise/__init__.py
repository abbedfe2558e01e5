"""Randomness: cryptographic bits, exact samplers on the integers, and a grid that maps floats to integers.

No probability here depends on floating-point arithmetic. A scale is taken as the rational number that it stores, and
the sampled law is exact everywhere, tails included.

    entropy              random bits: AES-256 in counter mode, keyed by the operating system
    samplers             the public functions: one for each law
    simple_samplers      coins, uniform integers, sums
    noise_arguments      checks of sizes and sequences
    sampled_laws         cumulative probabilities of each law, enclosed between integers, to any precision
    integer_enclosures   e^-x and normal integrals, enclosed between integers
    inversion_table      most draws by one look-up with 16 random bits; wide_noise for large scales
    weighted_choice      one item by weights computed from data; weighted_wheel by public weights
    float_grid           real values to integers and back, and an exact sum of floats
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
