"""The staircase mechanism: the smallest error of all ε-DP noise for one number.

Its law is a staircase: high on the first part of every step of length Δ, lower by e^-ε on the rest, and lower by e^-ε
again on the next step (Geng & Viswanath 2014). For large ε its error falls like e^(-ε/3), while the error of Laplace
noise falls like 1/ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable import curves, noise, numbers
from deniable.curves import Curve, curve_arguments
from deniable.errors import InvalidParameter
from deniable.mechanisms import input_values, laws, noise_quantiles, rational_parameters
from deniable.mechanisms.laws import Stairs
from deniable.mechanisms.mechanism import Mechanism
from deniable.mechanisms.noise_steps import FINENESS, as_float, rounded_steps
from deniable.noise.entropy import checked_entropy

if TYPE_CHECKING:
    from deniable.noise import Entropy

LISTED: Final = 400
"""Largest integer sensitivity for which all shifts are compared, to find the sharp curve and the best stair."""


def mean_square(high: float, epsilon: float) -> float:
    """E X² of the continuous staircase of sensitivity 1 whose high part is this share of each step.

    |X| = G + (V or high + W), with G geometric of ratio b = e^-ε, V and W uniform on the high and on the low part, the
    high part with probability high/(high + (1 - high) b).
    """
    b = math.exp(-epsilon)
    g1, g2 = b / (1 - b), b * (1 + b) / (1 - b) ** 2
    share = high / (high + (1 - high) * b)
    low = 1 - high
    upper = g2 + g1 * high + high * high / 3
    lower = g2 + g1 * (1 + high) + high * high + high * low + low * low / 3
    return share * upper + (1 - share) * lower


def _mass(i: int, step: int, high: int, epsilon: float) -> float:
    """The unnormalised P(X = i) of the discrete staircase."""
    full, rest = divmod(abs(i), step)
    return math.exp(-epsilon * (full + (rest >= high)))


def _discrete_mean_square(step: int, high: int, epsilon: float) -> float:
    b = math.exp(-epsilon)
    first = [1.0 if i < high else b for i in range(step)]
    s0, s1, s2 = (sum(w * i**power for i, w in enumerate(first)) for power in (0, 1, 2))
    # Sums over all steps: Σ_k b^k Σ_i w_i (i + k·step)^p; the mass at 0 is counted once.
    k0, k1, k2 = 1 / (1 - b), b / (1 - b) ** 2, b * (1 + b) / (1 - b) ** 3
    total = 2 * s0 * k0 - 1
    return 2 * (s2 * k0 + 2 * step * s1 * k1 + step * step * s0 * k2) / total


@lru_cache(maxsize=256)
def best_high(epsilon: float) -> float:
    """The high share of each step with the smallest mean square error (golden section; the function is convex)."""
    low, high, golden = 0.0, 0.5, (math.sqrt(5) - 1) / 2
    for _ in range(80):
        a, b = high - golden * (high - low), low + golden * (high - low)
        if mean_square(a, epsilon) < mean_square(b, epsilon):
            high = b
        else:
            low = a
    return (low + high) / 2


@lru_cache(maxsize=256)
def _best_whole(step: int, epsilon: float) -> int:
    return min(range(1, step + 1), key=lambda high: _discrete_mean_square(step, high, epsilon))


def least_rms(sensitivity: Fraction, epsilon: float, *, whole: bool) -> float:
    """The smallest root-mean-square error of ε-DP noise for one number, rounded down (Geng & Viswanath 2014, Theorems 1
    and 5).
    """
    if whole and sensitivity <= LISTED:
        step = int(sensitivity)
        return math.sqrt(_discrete_mean_square(step, _best_whole(step, epsilon), epsilon)) * (1 - 1e-9)
    return float(sensitivity) * math.sqrt(mean_square(best_high(epsilon), epsilon)) * (1 - 1e-9)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Staircase(Mechanism):
    """Staircase noise on one number of sensitivity Δ: ε-DP with the smallest possible mean square error.

    For all neighbours D, D′ and events S: P(M(D) ∈ S) <= e^ε P(M(D′) ∈ S), because the law falls by at most e^-ε within
    a distance of Δ. An int `sensitivity` gives a mechanism for integers; a float gives one for real numbers, on a fine
    grid on which Δ is enlarged by the rounding (see `additive_noise`). ε lies between 1e-6 and 200.

    `high` is the share of each step that is high; by default the one with the smallest mean square error.

    >>> from deniable import mechanisms
    >>> stairs = mechanisms.Staircase(sensitivity=1.0, epsilon=8)
    >>> laplace = mechanisms.Laplace(sensitivity=1.0, epsilon=8)
    >>> round(stairs.rms() / laplace.efficiency() / (2**0.5 / 8), 2)
    1.0
    >>> round(laplace.efficiency(), 2)
    0.33

    Source: Geng & Viswanath (2014), The optimal mechanism in differential privacy.
    """

    sensitivity: Fraction
    epsilon: float
    step: int
    """Δ in grid steps."""
    high: int
    """The number of grid steps of each stair that are high."""
    exponent: int | None

    def __init__(self, *, sensitivity: float | Fraction, epsilon: float, high: float | None = None) -> None:
        bound, pure = (
            rational_parameters.moved(sensitivity),
            rational_parameters.down(rational_parameters.epsilon(epsilon)),
        )
        if not 1e-6 <= pure <= 200:
            raise InvalidParameter("epsilon", epsilon, "must lie between 1e-6 and 200")
        share = None if high is None else Fraction(curve_arguments.inner_probability("high", high))
        if isinstance(sensitivity, int | np.integer):
            step, k = int(sensitivity), None
            if share is None and step <= LISTED:
                share = Fraction(_best_whole(step, pure), step)
        else:
            k = rational_parameters.floor_log2(bound) - FINENESS
            step = numbers.steps(bound / Fraction(2) ** k) + 1
        if share is None:
            share = Fraction(best_high(pure))
        stair = max(1, min(step, round(share * step)))
        self._settle(sensitivity=bound, epsilon=pure, step=step, high=stair, exponent=k)

    def __repr__(self) -> str:
        shown = int(self.sensitivity) if self.exponent is None else float(self.sensitivity)
        return f"Staircase(sensitivity={shown}, epsilon={self.epsilon}, high={self.high / self.step:.6g})"

    @property
    def curve(self) -> Curve:
        """Exact if all shifts can be listed: the loss is −ε, 0 or ε, and the worst shift has the most mass on ε."""
        if self.exponent is not None or self.step > LISTED:
            return curves.pure(epsilon=self.epsilon)
        return _whole_curve(self.step, self.high, self.epsilon)

    def release(self, value: Any, *, entropy: Entropy | None = None) -> Any:
        """The number with noise: an integer if `sensitivity` is an integer, else a float on a fine grid. Arrays are
        refused, because the staircase is optimal for single numbers only.
        """
        if entropy is not None:
            checked_entropy(entropy)
        if input_values.is_array(value):
            raise input_values.refused(
                "must be one number", "the staircase is best for one number; use Laplace for vectors"
            )
        if self.exponent is None:
            return input_values.whole(value) + self._draw(entropy)
        steps = rounded_steps(Fraction(input_values.real(value)), self.exponent) + self._draw(entropy)
        return as_float(steps, self.exponent)

    def _draw(self, entropy: Entropy | None) -> int:
        exponent = Fraction(self.epsilon)
        while True:
            negative = noise.bernoulli(p=Fraction(1, 2), entropy=entropy)
            inside = noise.uniform(below=self.step, entropy=entropy)
            # Accept high positions always, low ones with probability e^-ε: the two heights of a stair. The coin is
            # flipped for both, so that the time of a draw does not depend on its size.
            is_low_kept = noise.bernoulli_exp(x=exponent, entropy=entropy)
            if inside >= self.high and not is_low_kept:
                continue
            away = int(self.step * noise.geometric(scale=1 / exponent, entropy=entropy) + inside)
            if away or not negative:  # 0 must not count twice
                return -away if negative else away

    def law(self, value: Any) -> Stairs:
        """The law of the answer for this value: a density, or masses on integers, in the shape of stairs around it."""
        unit = 1.0 if self.exponent is None else math.ldexp(1.0, self.exponent)
        centre = laws.centre(value, is_whole=self.exponent is None)
        return Stairs(self.step * unit, self.high * unit, self.epsilon, self.exponent is None, centre, self.rms())

    def rms(self) -> float:
        """The root-mean-square error, rounded up."""
        if self.exponent is None and self.step <= LISTED:
            return math.sqrt(_discrete_mean_square(self.step, self.high, self.epsilon)) * (1 + 1e-9)
        unit = 1.0 if self.exponent is None else math.ldexp(1.0, self.exponent)
        # A discrete staircase moves each point of the continuous one by less than a step.
        spread = math.sqrt(mean_square(self.high / self.step, self.epsilon))
        return (self.step * spread + 2) * unit * (1 + 1e-9)

    def efficiency(self) -> float:
        """The smallest root-mean-square error of any ε-DP noise, divided by the error of this noise: 1 for the default
        `high`.
        """
        return min(1.0, least_rms(self.sensitivity, self.epsilon, whole=self.exponent is None) / self.rms())

    def error(self, *, confidence: float) -> float:
        """The smallest bound with P(|noise| > bound) <= 1 - confidence, from the exact tail."""
        b, low = math.exp(-self.epsilon), self.step - self.high
        stair = self.high + low * b
        total = 2 * stair / (1 - b) - 1
        # Half the tail beyond a point, in units of the mass at 0, less an allowance for rounding.
        left = noise_quantiles.miss(confidence) * total / 2 * (1 - noise_quantiles.SLACK)
        full = max(0, math.ceil(math.log(left * (1 - b) / stair) / -self.epsilon) - 1)
        while stair * b ** (full + 1) / (1 - b) > left:
            full += 1
        # Within that step: how much of it may lie beyond the point.
        beyond = (left - stair * b ** (full + 1) / (1 - b)) / b**full
        dropped = math.floor(beyond / b) if beyond < low * b else low + math.floor(beyond - low * b)
        steps = full * self.step + max(0, self.step - 1 - dropped)
        return (
            float(steps)
            if self.exponent is None
            else rational_parameters.up(Fraction(2) ** self.exponent * (steps + Fraction(1, 2)))
        )


@lru_cache(maxsize=256)
def _whole_curve(step: int, high: int, epsilon: float) -> Curve:
    # Beyond two steps, masses repeat with the factor e^-ε, and losses repeat unchanged.
    b = math.exp(-epsilon)
    total = 2 * math.fsum(_mass(i, step, high, epsilon) for i in range(step)) / (1 - b) - 1
    worst = 0.0
    for shift in range(1, step + 1):
        # Loss ε where the law on D is a stair above the law on D′; for i <= shift - 2·step the pattern repeats.
        up = [
            _mass(i, step, high, epsilon)
            for i in range(-3 * step, 3 * step + 1)
            if _mass(i, step, high, epsilon) > _mass(i - shift, step, high, epsilon) * (1 + 1e-9 * epsilon)
        ]
        beyond = math.fsum(
            _mass(i, step, high, epsilon)
            for i in range(-4 * step, -3 * step)
            if _mass(i, step, high, epsilon) > _mass(i - shift, step, high, epsilon) * (1 + 1e-9 * epsilon)
        )
        worst = max(worst, (math.fsum(up) + beyond / (1 - b)) / total)
    top = min(worst * (1 + 1e-12), 1 / (1 + b))
    middle = max(0.0, 1 - top * (1 + b))
    if middle < 1e-9:
        return curves.pure(epsilon=epsilon)
    return curves.from_pmf([top, middle, top * b], [top * b, middle, top])
