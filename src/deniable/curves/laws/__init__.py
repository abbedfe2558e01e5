"""Laws: the distribution of the privacy loss of one ordered pair of output distributions, given by its two tails.

    law                the interface: two tails, the mass at infinity, and the pair of both directions
    closed_form        Gaussian, Laplace and bounded-range losses, whose tails have a formula
    finite_law         a loss with finitely many values: exact for discrete mechanisms, a certified bound for others
    derived_laws       laws built from laws: Poisson sampling, sampling without replacement, mixtures, shifts
    conditioned_laws   a law given that its loss is small, and given that it is large
    laws_from_bounds   finite laws from bounds on a profile or from a trade-off polygon
    likelihood_average the average of many likelihood ratios (random allocation)
    binomial_shifts    sampled Gaussian noise for a group of people
    opposite_shifts    sampled Gaussian noise if one person is replaced
    neighbour_chain    the power function of a law applied many times (groups)

An atom (`curves.atoms`) gives a pair of laws; `curves.composition` multiplies the laws of all factors of a curve. This
room does not depend on atoms or curves.
"""
