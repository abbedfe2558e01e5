"""The privacy loss of one ordered pair of output distributions, as a law that can be read through its two tails.

    law                what a law is: its two tails, its mass at infinity, and the pair of both directions
    closed_form        Gaussian, Laplace and bounded-range losses, whose tails have a formula
    finite_law         a loss with finitely many values: exact for discrete mechanisms, a certified stand-in for others
    derived_laws       laws made from laws: Poisson sampling, sampling without replacement, mixtures, shifts
    laws_from_bounds   finite laws from a bounded profile or from a trade-off polygon
    neighbour_chain    the power function of a law applied many times (groups)

An atom (`curves.atoms`) gives a pair of laws; `curves.composition` multiplies the laws of all factors of a curve. This
room knows no atom and no curve.
"""
