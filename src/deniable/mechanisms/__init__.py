"""One release: a statistic, a sampler and a curve. Every mechanism here is a function that carries its guarantee.

    mechanism            the base class and composition; noise_steps and additive_noise: Laplace, Gaussian, discrete
    column_statistics    sum, mean, variance and bounds of a column; histogram: counts by bin or by unknown key
    selection, threshold exponential mechanism, noisy max, sparse vector; exact_choice draws for them
    piecewise_exponential, inverse_sensitivity        quantiles, medians, modes
    continual_counting, prefix_sums, linear           streams, running totals, many linear queries
    staircase, poisson_mechanism, graphs              further mechanisms
    input_values, rational_parameters, key_spelling   values, parameters and keys, read exactly
    noise_quantiles      the quantiles behind `error(confidence=)`
    laws, noise_shapes, distinguishing_parts, limits, small, denoise, cautionary      for planning and teaching

>>> from deniable import mechanisms
>>> noisy = mechanisms.Laplace(sensitivity=1, epsilon=0.5)
>>> round(noisy.curve.epsilon(delta=0), 9)
0.5
>>> answer = noisy.release(42)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.doors import lazy_door

if TYPE_CHECKING:
    from deniable.mechanisms import cautionary, denoise, graphs, laws, limits, linear, small
    from deniable.mechanisms.additive_noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
    from deniable.mechanisms.column_statistics import Bounds, Mean, Sum, Variance
    from deniable.mechanisms.continual_counting import FactorisedCounter, TreeCounter
    from deniable.mechanisms.histogram import Histogram, UnknownKeys
    from deniable.mechanisms.inverse_sensitivity import BinaryInverseSensitivity, BinaryMedian, InverseSensitivity
    from deniable.mechanisms.linear import LinearQueries
    from deniable.mechanisms.mechanism import Adaptive, Composed, Mechanism, Parallel
    from deniable.mechanisms.piecewise_exponential import Median, PiecewiseExponential, Quantile
    from deniable.mechanisms.poisson_mechanism import PoissonMechanism
    from deniable.mechanisms.selection import (
        Exponential,
        MonotoneExponential,
        MonotoneNoisyMax,
        MonotonePermuteAndFlip,
        NoisyMax,
        OneShotTopK,
        PermuteAndFlip,
        TopK,
    )
    from deniable.mechanisms.staircase import Staircase
    from deniable.mechanisms.threshold import AboveThreshold, MonotoneAboveThreshold, MonotoneSparseVector, SparseVector

_HOMES = {
    "AboveThreshold": "threshold",
    "Adaptive": "mechanism",
    "BinaryInverseSensitivity": "inverse_sensitivity",
    "BinaryMedian": "inverse_sensitivity",
    "Bounds": "column_statistics",
    "Composed": "mechanism",
    "DiscreteGaussian": "additive_noise",
    "DiscreteLaplace": "additive_noise",
    "Exponential": "selection",
    "FactorisedCounter": "continual_counting",
    "Gaussian": "additive_noise",
    "Histogram": "histogram",
    "InverseSensitivity": "inverse_sensitivity",
    "Laplace": "additive_noise",
    "LinearQueries": "linear",
    "Mean": "column_statistics",
    "Mechanism": "mechanism",
    "Median": "piecewise_exponential",
    "MonotoneAboveThreshold": "threshold",
    "MonotoneExponential": "selection",
    "MonotoneNoisyMax": "selection",
    "MonotonePermuteAndFlip": "selection",
    "MonotoneSparseVector": "threshold",
    "NoisyMax": "selection",
    "OneShotTopK": "selection",
    "Parallel": "mechanism",
    "PermuteAndFlip": "selection",
    "PiecewiseExponential": "piecewise_exponential",
    "PoissonMechanism": "poisson_mechanism",
    "Quantile": "piecewise_exponential",
    "SparseVector": "threshold",
    "Staircase": "staircase",
    "Sum": "column_statistics",
    "TopK": "selection",
    "TreeCounter": "continual_counting",
    "UnknownKeys": "histogram",
    "Variance": "column_statistics",
    "cautionary": "cautionary",
    "denoise": "denoise",
    "graphs": "graphs",
    "laws": "laws",
    "limits": "limits",
    "linear": "linear",
    "small": "small",
}

__all__ = [
    "AboveThreshold",
    "Adaptive",
    "BinaryInverseSensitivity",
    "BinaryMedian",
    "Bounds",
    "Composed",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exponential",
    "FactorisedCounter",
    "Gaussian",
    "Histogram",
    "InverseSensitivity",
    "Laplace",
    "LinearQueries",
    "Mean",
    "Mechanism",
    "Median",
    "MonotoneAboveThreshold",
    "MonotoneExponential",
    "MonotoneNoisyMax",
    "MonotonePermuteAndFlip",
    "MonotoneSparseVector",
    "NoisyMax",
    "OneShotTopK",
    "Parallel",
    "PermuteAndFlip",
    "PiecewiseExponential",
    "PoissonMechanism",
    "Quantile",
    "SparseVector",
    "Staircase",
    "Sum",
    "TopK",
    "TreeCounter",
    "UnknownKeys",
    "Variance",
    "cautionary",
    "denoise",
    "graphs",
    "laws",
    "limits",
    "linear",
    "small",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_door(__name__, _HOMES)
