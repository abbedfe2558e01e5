"""Synthetic data and consistent tables: a distribution fitted to noisy marginals, and fits of tables that add up.

    marginals             which marginals are measured for a synthetic table, and their shares of the cost
    mixture, raking       a distribution fitted to noisy counts; corrections for single columns
    structural_zeros      forbidden combinations of values, removed from the distribution
    row_drawing           rows drawn from the distribution
    fit_error             the expected error of fitted tables and of rows
    residual_noise, pure_splits, table_noise      the best noise for several tables, and its law in every table
    least_squares_fit, controlled_rounding        tables fitted to each other and rounded so that they add up

`Session.synthesize` measures the marginals and passes the noisy counts through structural_zeros (cells that must be 0)
-> mixture -> raking -> row_drawing. Nothing here reads data or spends budget: marginals, residual_noise and pure_splits
plan a measurement from public facts before it is made, and the rest is post-processing of noisy counts.

Randomness here is numpy's. It only starts fits and draws rows from public distributions, so it need not be secret. The
noise that protects people is drawn before, by `deniable.noise`.
"""

from __future__ import annotations

from deniable.synth.fit_error import Doubt
from deniable.synth.marginals import Marginal, marginals, shares
from deniable.synth.mixture import Mixture, fit, room
from deniable.synth.raking import raked
from deniable.synth.row_drawing import draw
from deniable.synth.structural_zeros import Forbidden

__all__ = ["Doubt", "Forbidden", "Marginal", "Mixture", "draw", "fit", "marginals", "raked", "room", "shares"]
