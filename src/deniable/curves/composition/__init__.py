"""Composition: laws are multiplied here, and nowhere else.

    lattice              a law as masses on an even grid: one grid law above it, one below it
    compose              the product of many grid laws by FFT, with a ledger of all numerical errors
    delta_panel          what one FFT says about δ(ε) at every ε
    law_product          a product of laws, read from ε to δ and back by the tightest route there is
    exponential_moments  certified upper bounds on E exp(tL), of which Rényi divergences are made

A curve's factors arrive as pairs of laws (`curves.laws`); `law_product.Product` takes a closed form where there is one
and a lattice otherwise; `curves.meaning` asks it for numbers. Every number is a bound, and says on which side.
"""
