"""Adaptive clipping: a clipping norm that follows a quantile of the gradients' norms, priced together with the sums.

**One step** (Andrew, Thakkar, McMahan & Ramaswamy 2021, "Differentially Private Learning with Adaptive Clipping"). With
the current norm C, two sums are released: the sum of the clipped gradients, divided by C, and the balance, in which a
gradient counts +1 if its norm is at most C, and -1 otherwise. One record adds to the pair of sums a vector (g, ±1) with
‖g‖ <= 1. The gradients get noise of standard deviation `noise`, the balance gets `count_noise`. In units of its noise,
the vector has a length of at most √(1/noise² + 1/count_noise²) = μ. So one step is a Gaussian mechanism with this μ, on
a Poisson sample, and C of the next step is computed from the released sums: C · exp(-rate · (share - quantile)), where
share = (balance/expected batch + 1)/2.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import final

from deniable.curves import curve_arguments
from deniable.numbers import below, root_up, up

WIDEST = 1e6
"""The norm stays within this factor of the first one."""


@final
@dataclass(frozen=True, slots=True)
class AdaptiveNorm:
    """Flat clipping with a norm that begins at `norm` and follows the `quantile` of all gradients' norms.

    `count_noise` is the standard deviation of the noise on the balance: how many gradients of a step are at most as
    long as the norm, minus how many are longer. A tenth of the batch size is usual. See `adaptive_clipping`.

    >>> from deniable import learn
    >>> clip = learn.AdaptiveNorm(1.0, quantile=0.5, count_noise=25)
    >>> plan = learn.DPSGD(clip=clip, rate=0.01, steps=100, noise=1.0)
    >>> fixed = learn.DPSGD(clip=1.0, rate=0.01, steps=100, noise=1.0)
    >>> 1 < plan.curve.epsilon(delta=1e-6) / fixed.curve.epsilon(delta=1e-6) < 1.01
    True
    """

    norm: float
    _: KW_ONLY
    quantile: float
    count_noise: float
    rate: float = 0.2

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", curve_arguments.positive("clip", self.norm))
        object.__setattr__(self, "quantile", curve_arguments.inner_probability("quantile", self.quantile))
        object.__setattr__(self, "count_noise", curve_arguments.positive("count_noise", self.count_noise))
        object.__setattr__(self, "rate", curve_arguments.positive("rate", self.rate))

    def describe(self) -> str:
        """The rule in words, for `explain`."""
        where = f"gradients longer than the {self.quantile:g} quantile of their norms are scaled down to it"
        return f"{where}, which begins at {self.norm:g} (in these units) and is followed privately"

    def together(self, noise: float) -> float:
        """The noise, rounded down, that protects gradients and balance together: 1/√(1/noise² + 1/count_noise²)."""
        squared = Fraction(noise) ** -2 + Fraction(self.count_noise) ** -2
        return below(1 / up(root_up(squared)))

    def after(self, norm: float, balance: float, expected_batch: float) -> float:
        """The norm of the next step, from the noisy balance of this one."""
        share = min(max((balance / expected_batch + 1) / 2, 0.0), 1.0)
        following = norm * math.exp(-self.rate * (share - self.quantile))
        return min(max(following, self.norm / WIDEST), self.norm * WIDEST)
