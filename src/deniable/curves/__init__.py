"""What is promised: privacy guarantees as curves, composed by `*` and `**`, every number certified from both sides.

No data, no randomness, no files in this room. Start with `gaussian`, `laplace` or another atom, multiply, and read a
face:

>>> from deniable import curves
>>> curve = curves.gaussian(sigma=50) ** 1000
>>> round(curve.epsilon(delta=1e-6), 4)
2.9216
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.doors import lazy_door

if TYPE_CHECKING:
    from deniable.curves import filters, textbook
    from deniable.curves.advice import weaknesses
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
    from deniable.curves.derived import mixture, worst_of
    from deniable.curves.divisible import fourier_delta, infinitely_divisible, merton, normal_inverse_gaussian
    from deniable.curves.expression import parse
    from deniable.curves.hidden import hidden_mixture
    from deniable.curves.kernel import Kernel, from_kernel
    from deniable.curves.loss import LossDistribution
    from deniable.curves.own import from_cdf, from_density, from_pmf, tradeoff
    from deniable.curves.quantization import quantized

_HOMES = {
    "Curve": "curve",
    "GaussianApproximation": "approximation",
    "Kernel": "kernel",
    "LossDistribution": "loss",
    "approximate": "atoms",
    "calibrate": "calibration",
    "discrete_gaussian": "atoms",
    "discrete_laplace": "atoms",
    "exponential": "atoms",
    "filters": "filters",
    "fourier_delta": "divisible",
    "from_cdf": "own",
    "from_density": "own",
    "from_kernel": "kernel",
    "from_pmf": "own",
    "gaussian": "atoms",
    "hidden_mixture": "hidden",
    "identity": "curve",
    "infinitely_divisible": "divisible",
    "laplace": "atoms",
    "merton": "divisible",
    "mixture": "derived",
    "normal_inverse_gaussian": "divisible",
    "parse": "expression",
    "poisson": "atoms",
    "product": "curve",
    "pure": "atoms",
    "quantized": "quantization",
    "randomized_response": "atoms",
    "renyi": "bounded",
    "rounded_gaussian": "atoms",
    "textbook": "textbook",
    "tradeoff": "own",
    "weaknesses": "advice",
    "worst_of": "derived",
    "zcdp": "bounded",
}

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
    "weaknesses",
    "worst_of",
    "zcdp",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_door(__name__, _HOMES)
