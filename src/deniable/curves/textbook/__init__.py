"""The textbook: bounds as the books print them, each with the range in which it is proved, for teaching and comparison.

Functions of numbers, keyword-only. They need no curve, NumPy or SciPy, and every number they return is a guarantee:

- outside the range of its theorem a formula raises `OutsideTheorem`, which names the condition;
- an argument that makes no sense (NaN, δ > 1, half a release) raises `InvalidParameter`;
- every result is rounded to the safe side by at most the last bit: ε, δ, ρ, divergences, noise levels and success
  probabilities of an attacker upwards, per-step budgets and unbeatable error rates downwards.

    conversions           from noise to a guarantee and back, and between ways of stating a guarantee
    composition_theorems  the joint cost of many releases
    attacker_bounds       what a guarantee allows an attacker
    printed_errata        formulas that lecture notes print wrongly, beside the right number

For accounting use `Curve`. It is tighter than all of these except the exact ones (`optimal_composition_*`, `gdp_to_*`,
`laplace_delta`), which it equals.

>>> advanced_composition(epsilon=1, count=500, delta=1e-5)
357.2983013144674
>>> optimal_composition_epsilon(epsilon=1, delta=0, count=500, total_delta=1e-5)
311.7676046397108
"""

from deniable.curves.decimal_arithmetic import AtOrder, EpsilonDelta
from deniable.curves.textbook import printed_errata as as_printed
from deniable.curves.textbook.attacker_bounds import (
    azuma_tail,
    catastrophe_delta,
    equal_error_rate_bound,
    gaussian_equal_error_rate,
    hoeffding_tail,
    kl_bound,
    kl_bound_stated,
    nu_response_bound,
    nu_response_epsilon,
    posterior_bound,
    posterior_shift,
    posterior_shift_stated,
    pure_distance,
    risk_bound,
)
from deniable.curves.textbook.composition_theorems import (
    advanced_composition,
    advanced_composition_approximate,
    advanced_composition_doubled,
    advanced_composition_drv,
    advanced_composition_loose,
    advanced_composition_mironov,
    advanced_composition_sharp,
    advanced_composition_step,
    basic_composition,
    basic_composition_of,
    crossover,
    group_privacy,
    group_privacy_approximate,
    group_privacy_stated,
    optimal_composition_delta,
    optimal_composition_epsilon,
    optimal_composition_step,
    parallel_composition,
    parallel_composition_replaced,
    subsampling_amplification,
)
from deniable.curves.textbook.conversions import (
    best_renyi_to_epsilon,
    best_renyi_to_epsilon_mironov,
    classical_gaussian_sigma,
    gaussian_composition,
    gaussian_renyi,
    gaussian_sigma,
    gdp_to_delta,
    gdp_to_epsilon,
    laplace_delta,
    laplace_renyi,
    laplace_scale,
    moments_accountant,
    probability_preservation,
    pure_to_zcdp,
    pure_to_zcdp_sharp,
    randomized_response_renyi,
    renyi_to_delta,
    renyi_to_epsilon,
    renyi_to_epsilon_mironov,
    zcdp_to_delta,
    zcdp_to_epsilon,
    zcdp_to_epsilon_optimised,
)

__all__ = [
    "AtOrder",
    "EpsilonDelta",
    "advanced_composition",
    "advanced_composition_approximate",
    "advanced_composition_doubled",
    "advanced_composition_drv",
    "advanced_composition_loose",
    "advanced_composition_mironov",
    "advanced_composition_sharp",
    "advanced_composition_step",
    "as_printed",
    "azuma_tail",
    "basic_composition",
    "basic_composition_of",
    "best_renyi_to_epsilon",
    "best_renyi_to_epsilon_mironov",
    "catastrophe_delta",
    "classical_gaussian_sigma",
    "crossover",
    "equal_error_rate_bound",
    "gaussian_composition",
    "gaussian_equal_error_rate",
    "gaussian_renyi",
    "gaussian_sigma",
    "gdp_to_delta",
    "gdp_to_epsilon",
    "group_privacy",
    "group_privacy_approximate",
    "group_privacy_stated",
    "hoeffding_tail",
    "kl_bound",
    "kl_bound_stated",
    "laplace_delta",
    "laplace_renyi",
    "laplace_scale",
    "moments_accountant",
    "nu_response_bound",
    "nu_response_epsilon",
    "optimal_composition_delta",
    "optimal_composition_epsilon",
    "optimal_composition_step",
    "parallel_composition",
    "parallel_composition_replaced",
    "posterior_bound",
    "posterior_shift",
    "posterior_shift_stated",
    "probability_preservation",
    "pure_distance",
    "pure_to_zcdp",
    "pure_to_zcdp_sharp",
    "randomized_response_renyi",
    "renyi_to_delta",
    "renyi_to_epsilon",
    "renyi_to_epsilon_mironov",
    "risk_bound",
    "subsampling_amplification",
    "zcdp_to_delta",
    "zcdp_to_epsilon",
    "zcdp_to_epsilon_optimised",
]
