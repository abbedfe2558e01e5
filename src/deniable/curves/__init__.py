"""What is promised: privacy guarantees as curves, composed by `*` and `**`, every number certified from both sides.

No data, no randomness, no files in this room. Start with `gaussian`, `laplace` or another atom, multiply, and read a face:

>>> from deniable import curves
>>> curve = curves.gaussian(sigma=50) ** 1000
>>> round(curve.epsilon(delta=1e-6), 4)
2.9216
"""

from deniable.curves import filters, textbook
from deniable.curves.approximation import GaussianApproximation
from deniable.curves.atoms import (
    approximate,
    discrete_gaussian,
    discrete_laplace,
    exponential,
    gaussian,
    laplace,
    poisson,
    pure,
    randomized_response,
    rounded_gaussian,
)
from deniable.curves.bounded import renyi, zcdp
from deniable.curves.calibration import calibrate
from deniable.curves.curve import Curve, identity, product
from deniable.curves.derived import hidden_mixture, mixture, quantized, worst_of
from deniable.curves.divisible import fourier_delta, infinitely_divisible, merton, normal_inverse_gaussian
from deniable.curves.expression import parse
from deniable.curves.kernel import Kernel, from_kernel
from deniable.curves.loss import LossDistribution
from deniable.curves.own import from_cdf, from_density, from_pmf, tradeoff

__all__ = [
    "Curve",
    "GaussianApproximation",
    "Kernel",
    "LossDistribution",
    "approximate",
    "calibrate",
    "discrete_gaussian",
    "discrete_laplace",
    "exponential",
    "filters",
    "fourier_delta",
    "from_cdf",
    "from_density",
    "from_kernel",
    "from_pmf",
    "gaussian",
    "hidden_mixture",
    "identity",
    "infinitely_divisible",
    "laplace",
    "merton",
    "mixture",
    "normal_inverse_gaussian",
    "parse",
    "poisson",
    "product",
    "pure",
    "quantized",
    "randomized_response",
    "renyi",
    "rounded_gaussian",
    "textbook",
    "tradeoff",
    "worst_of",
    "zcdp",
]
