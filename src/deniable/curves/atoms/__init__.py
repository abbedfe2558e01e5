"""Atoms: the indivisible promises that curves are products of.

    atom               the base class: its fields are the parameters, its `name` is what stored records say
    standard           Gaussian, Laplace, discrete ones, randomized response, (ε, δ), bounded range, Poisson
    renyi_bounds       zCDP and Rényi DP at one order: bounds on divergences only
    user_supplied      from_pmf, from_density, from_cdf, tradeoff: the caller's own mechanism
    derived            sampling, groups, the worst of several, mixtures, symmetrisation (and `inherited_renyi`)
    divisible, hidden_mixtures, markov_kernel, quantization     further families

A number on its way: `curves.gaussian(sigma=2)` checks its argument and makes a `GaussianAtom`; `Curve.of` wraps it; a
reading asks the atom for its `pair()` of laws. Users call the functions at the door of `deniable.curves`.
"""
