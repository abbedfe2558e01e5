"""One release: a statistic, a sampler and a curve. Every mechanism here is a function that carries its promise.

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
    from deniable.mechanisms.additive import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
    from deniable.mechanisms.base import Adaptive, Composed, Mechanism, Parallel
    from deniable.mechanisms.continual import FactorisedCounter, TreeCounter
    from deniable.mechanisms.histogram import Histogram, UnknownKeys
    from deniable.mechanisms.inverse import BinaryInverseSensitivity, BinaryMedian, InverseSensitivity
    from deniable.mechanisms.linear import LinearQueries
    from deniable.mechanisms.piecewise import Median, PiecewiseExponential, Quantile
    from deniable.mechanisms.poisson import PoissonMechanism
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
    from deniable.mechanisms.statistics import Bounds, Mean, Sum, Variance
    from deniable.mechanisms.threshold import AboveThreshold, MonotoneAboveThreshold, MonotoneSparseVector, SparseVector

_HOMES = {
    "AboveThreshold": "threshold",
    "Adaptive": "base",
    "BinaryInverseSensitivity": "inverse",
    "BinaryMedian": "inverse",
    "Bounds": "statistics",
    "Composed": "base",
    "DiscreteGaussian": "additive",
    "DiscreteLaplace": "additive",
    "Exponential": "selection",
    "FactorisedCounter": "continual",
    "Gaussian": "additive",
    "Histogram": "histogram",
    "InverseSensitivity": "inverse",
    "Laplace": "additive",
    "LinearQueries": "linear",
    "Mean": "statistics",
    "Mechanism": "base",
    "Median": "piecewise",
    "MonotoneAboveThreshold": "threshold",
    "MonotoneExponential": "selection",
    "MonotoneNoisyMax": "selection",
    "MonotonePermuteAndFlip": "selection",
    "MonotoneSparseVector": "threshold",
    "NoisyMax": "selection",
    "OneShotTopK": "selection",
    "Parallel": "base",
    "PermuteAndFlip": "selection",
    "PiecewiseExponential": "piecewise",
    "PoissonMechanism": "poisson",
    "Quantile": "piecewise",
    "SparseVector": "threshold",
    "Staircase": "staircase",
    "Sum": "statistics",
    "TopK": "selection",
    "TreeCounter": "continual",
    "UnknownKeys": "histogram",
    "Variance": "statistics",
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
