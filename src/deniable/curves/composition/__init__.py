"""Composition: the only room that multiplies laws.

    lattice              a law as masses on an even grid: one grid law above it, one below it
    compose              the product of many grid laws by FFT, with bounds on all numerical errors
    tilt_plan            the tilt of an FFT for a wanted ε or δ; `window_reach` bounds the mass outside its window
    contour_panel        δ(ε) by a contour integral, for sums of many small losses; `contour_moments` are its
                         integrands, and `contour_decay` bounds what lies beyond its last frequency
    moment_sums          the integrands of many laws, added up and kept for the product with one more law
    convolution_tree     the product of many different laws, by a tree of convolutions that keeps partial products
    far_losses           a power of a law with rare large losses: a loss that decides alone is counted exactly
    jump_split           a product of rare samples, by the number of its large losses
    likely_loss          a lower bound on ε from the likely losses, where no lattice gives one
    delta_panel          the bound on δ(ε) at every ε that one FFT gives; `rounded_panel` is a
                         lower one, from `convolution_tree`
    profile_search       searches on bounds that are proved at every ε
    law_product          δ(ε) and ε(δ) of a product of laws, by the tightest route; `factor_merging` merges factors
    exponential_moments  certified upper bounds on E exp(tL), the basis of Rényi divergences

A curve's factors arrive as pairs of laws (`curves.laws`). `law_product.Product` uses a closed form if the product has
one and a lattice otherwise; `curves.meaning` asks it for numbers. Every number is a bound, and its docstring says on
which side of the true value it lies. To learn how the numerics work, read `compose` first.
"""
