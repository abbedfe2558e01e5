"""Privacy guarantees as curves: composed by `*` and `**`, every number certified from both sides.

This room has no data, no randomness and no files. Start with `gaussian`, `laplace` or another constructor, multiply,
and ask for a number:

>>> from deniable import curves
>>> curve = curves.gaussian(sigma=50) ** 1000
>>> round(curve.epsilon(delta=1e-6), 4)
2.9216

    curve                              `Curve`: a symbolic product of atoms
    atoms                              its indivisible factors
    laws                               the distribution of the privacy loss of an atom
    composition                        products of laws: the numerics
    meaning                            every number that a curve gives: ε, δ, trade-off function, divergences ...
    calibration                        the noise that just meets a target
    filters, filter_measures, exact_amounts         budgets for costs that are chosen after seeing answers
    adaptive_budgets                   two more: (ε, δ) from many orders, and an account for each person
    curve_records, curve_parser, curve_display      a curve as JSON, from text, and as a small table
    textbook, decimal_arithmetic       bounds as books print them
    curve_arguments, outward_rounding  checked arguments; floating-point errors that are rounded outward

A number passes atoms -> laws -> composition -> meaning; docs/house.md draws this path with its functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.doors import lazy_door

if TYPE_CHECKING:
    from deniable.curves import filters, textbook
    from deniable.curves.atoms.binomial_noise import binomial
    from deniable.curves.atoms.composite_atoms import mixture, worst_of
    from deniable.curves.atoms.divisible import fourier_delta, infinitely_divisible, merton, normal_inverse_gaussian
    from deniable.curves.atoms.generalized_gaussian import generalized_gaussian
    from deniable.curves.atoms.hidden_mixtures import hidden_mixture
    from deniable.curves.atoms.markov_kernel import Kernel, from_kernel
    from deniable.curves.atoms.mechanism_atoms import (
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
    from deniable.curves.atoms.poisson_selection import best_of_poisson_repeats
    from deniable.curves.atoms.quantization import quantized
    from deniable.curves.atoms.renyi_bounds import renyi, zcdp
    from deniable.curves.atoms.repeated_selection import best_of_repeats
    from deniable.curves.atoms.skellam import skellam
    from deniable.curves.atoms.user_supplied import from_cdf, from_density, from_pmf, tradeoff
    from deniable.curves.calibration import calibrate
    from deniable.curves.curve import Curve, identity, product
    from deniable.curves.curve_parser import parse
    from deniable.curves.meaning.central_limit import GaussianApproximation
    from deniable.curves.meaning.loss_distribution import LossDistribution
    from deniable.curves.meaning.weakness_advice import weaknesses

_HOMES = {
    "Curve": "curve",
    "GaussianApproximation": "meaning.central_limit",
    "Kernel": "atoms.markov_kernel",
    "LossDistribution": "meaning.loss_distribution",
    "approximate": "atoms.mechanism_atoms",
    "best_of_poisson_repeats": "atoms.poisson_selection",
    "best_of_repeats": "atoms.repeated_selection",
    "binomial": "atoms.binomial_noise",
    "calibrate": "calibration",
    "discrete_gaussian": "atoms.mechanism_atoms",
    "discrete_laplace": "atoms.mechanism_atoms",
    "exponential": "atoms.mechanism_atoms",
    "filters": "filters",
    "fourier_delta": "atoms.divisible",
    "from_cdf": "atoms.user_supplied",
    "from_density": "atoms.user_supplied",
    "from_kernel": "atoms.markov_kernel",
    "from_pmf": "atoms.user_supplied",
    "gaussian": "atoms.mechanism_atoms",
    "generalized_gaussian": "atoms.generalized_gaussian",
    "hidden_mixture": "atoms.hidden_mixtures",
    "identity": "curve",
    "infinitely_divisible": "atoms.divisible",
    "laplace": "atoms.mechanism_atoms",
    "merton": "atoms.divisible",
    "mixture": "atoms.composite_atoms",
    "normal_inverse_gaussian": "atoms.divisible",
    "parse": "curve_parser",
    "poisson": "atoms.mechanism_atoms",
    "product": "curve",
    "pure": "atoms.mechanism_atoms",
    "quantized": "atoms.quantization",
    "randomized_response": "atoms.mechanism_atoms",
    "renyi": "atoms.renyi_bounds",
    "rounded_gaussian": "atoms.mechanism_atoms",
    "skellam": "atoms.skellam",
    "textbook": "textbook",
    "tradeoff": "atoms.user_supplied",
    "weaknesses": "meaning.weakness_advice",
    "worst_of": "atoms.composite_atoms",
    "zcdp": "atoms.renyi_bounds",
}

__all__ = [
    "Curve",
    "GaussianApproximation",
    "Kernel",
    "LossDistribution",
    "approximate",
    "best_of_poisson_repeats",
    "best_of_repeats",
    "binomial",
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
    "generalized_gaussian",
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
    "skellam",
    "textbook",
    "tradeoff",
    "weaknesses",
    "worst_of",
    "zcdp",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_door(__name__, _HOMES)
