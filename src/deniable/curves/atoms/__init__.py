"""Atoms: the indivisible guarantees of which curves are products.

    atom               the base class: its fields are the parameters, its `name` appears in stored records
    mechanism_atoms    Gaussian, Laplace, discrete noise, randomized response, (ε, δ), bounded range, Poisson
    renyi_bounds       zCDP and Rényi DP at one order: bounds on divergences only
    user_supplied      from_pmf, from_density, from_cdf, tradeoff: the caller's own mechanism
    composite_atoms    sampling, groups, the worst of several, mixtures, symmetrisation (and `inherited_renyi`)
    repeated_selection the best of a random number of runs; `poisson_selection` if that number may be 0
    random_allocation  one step of many, drawn at random (balls in bins)
    grouped_samples    groups of people in Poisson samples of Gaussian noise
    replaced_samples   samples if one person is replaced, and samples with replacement
    shuffled_reports   many people's randomized reports without their order
    skellam            the difference of two Poisson numbers
    binomial_noise, generalized_gaussian   numbers of heads; noise between and beyond Laplace and Gauss
    divisible, hidden_mixtures, markov_kernel, quantization     further families

The path of a number: `curves.gaussian(sigma=2)` checks its argument and creates a `GaussianAtom`; `Curve.of` wraps it;
a method of the curve asks the atom for its `pair()` of laws. Users call the functions exported by `deniable.curves`.
"""
