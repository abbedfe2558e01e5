"""Noise added to a statistic: Laplace, Gaussian and their discrete forms, for numbers and vectors.

The type of the sensitivity, never the data, determines the kind of number:

    Laplace(sensitivity=1, ...)       an int sensitivity: for integers; answers are integers
    Laplace(sensitivity=1.0, ...)     a float sensitivity: for real numbers; answers are floats on a fine grid

(If the type of an answer followed the type of the value, an empty table would reveal itself: its sum is 0, not 0.0.)
Without `dimension=` a mechanism releases one number. With it, the mechanism releases a vector of that many numbers, and
the sensitivity is about the whole vector: L1 for Laplace, L2 for Gaussian noise.

**Real numbers.** A value x is rounded to the grid of spacing s = 2^k, integer noise is added in steps of s, and the sum
is converted to a float last. Why this has the guarantee of textbook noise:

1. Rounding moves each coordinate by at most s/2, and equal coordinates equally. So for neighbours x, y in R^d the
   rounded vectors, in steps, differ by at most ‖x − y‖₁/s + d in L1 and ‖x − y‖₂/s + √d in L2.
2. Discrete Laplace noise of scale B steps on vectors at L1 distance m is at most as distinguishable as a shift by m in
   one coordinate (lemma A). Such a shift is at most as distinguishable as Laplace noise with t = m/B + 1/(4B²) (lemma
   B).
3. Rounded Gaussian noise: round(N(0, σ²)) on an integer is post-processing of N(0, σ²) on it.
4. The conversion to a float is post-processing: it is a function of the exact sum alone.

The noise is enlarged to cover 1 and 2 (by less than one part in 10⁷ for ε > 0.2 and any vector up to a million
numbers). So the curve of the textbook mechanism is an upper bound for the actual release.

**Lemma A** (vectors). For r = e^(−1/B) and shifts m₁ + m₂ = m, the pair of products is dominated by one shift m.
*Proof.* All losses lie on the lattice (m − 2j)/B, so δ is linear in e^ε between its points and it is enough to compare
there; both curves are symmetric, so ε >= 0, that is j <= m/2, is enough. One shift has δ = 1 − r^j. Let m₁ <= m₂, so
that j <= m₂. The first loss is (m₁ − 2J)/B with masses p₀ = 1/(1+r), p_i = (1−r)rⁱ/(1+r), and r^m₁/(1+r) at the end i =
m₁; given J = i <= j the second coordinate has δ = 1 − r^(j−i). If j < m₁ the mean is 1 − r^j − j(1−r)r^j/(1+r). If j >=
m₁ it is 1 − r^j(2 + (m₁−1)(1−r))/(1+r), and 2 >= 1 + r. Both are at most 1 − r^j. More coordinates: induction. ∎

**Lemma B** (from the lattice to the line). Between lattice points the discrete δ is a chord of the continuous one, in
e^ε. With u = e^((ε−m/B)/2) the continuous δ is 1 − u, and the chord from a = r^(j+1) to b = r^j is 1 − (u² + ab)/(a +
b). So 1 − κu lies above all chords if κ <= 2√(ab)/(a + b) = 1/cosh(1/2B): the Laplace curve of t = m/B + 2 log
cosh(1/2B) <= m/B + 1/(4B²). ∎
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

from deniable import curves, noise, numbers
from deniable.curves import Curve, curve_arguments
from deniable.curves.meaning.weakness_advice import warn_if_weak
from deniable.curves.outward_rounding import quotient_up
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.mechanisms import noise_quantiles, rational_parameters
from deniable.mechanisms.noise_shapes import DISCRETE_GAUSSIAN, LAPLACE, ROUNDED_GAUSSIAN, NoiseShape
from deniable.mechanisms.noise_steps import Additive, check_growth, grid_exponent, is_whole
from deniable.numbers import above
from deniable.units import Sensitivity

if TYPE_CHECKING:
    from deniable.noise import Entropy

__all__ = ["DiscreteGaussian", "DiscreteLaplace", "Gaussian", "Laplace", "asks_for_laplace", "gaussian_mu"]

SHARP: Final = 10_000
"""Largest integer sensitivity at which the lattice's own curve is used; beyond it the loss of lemma B is negligible."""
WIDEST_LAW: Final = 10_000
"""Widest discrete Gaussian noise whose own law is computed; wider noise has the zCDP curve, which always holds."""


def asks_for_laplace(*, scale: Any, epsilon: Any, sigma: Any, mu: Any, delta: Any) -> bool:
    """Which noise the arguments specify: Laplace by `scale` or `epsilon`; Gaussian by `sigma`, `mu`, or `epsilon` with
    `delta`. Raises InvalidParameter for any other combination.
    """
    curve_arguments.exactly_one(scale=scale, epsilon=epsilon, sigma=sigma, mu=mu)
    _only_with_epsilon(delta, epsilon)
    return scale is not None or (epsilon is not None and delta is None)


def _only_with_epsilon(delta: Any, epsilon: Any) -> None:
    if delta is not None and epsilon is None:
        raise InvalidParameter("delta", delta, "goes with epsilon=")


# -- Laplace ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class _LaplaceNoise(Additive):
    """Laplace noise, in the integer and the real-valued form."""

    LEVEL: ClassVar[str] = "scale"
    NOISE: ClassVar[NoiseShape] = LAPLACE

    @property
    def scale(self) -> float:
        """The scale of the noise: P(|noise| > x) is about e^(-x/scale)."""
        return self.level

    def draw(self, size: Any, entropy: Entropy | None) -> Any:
        return noise.discrete_laplace(scale=self.width, size=size, entropy=entropy)

    def _reach(self, miss: float) -> int:
        return noise_quantiles.discrete_laplace(Fraction(self.width), miss)

    def efficiency(self) -> float:
        """The smallest root-mean-square error of any noise with the same pure ε (the staircase, Geng & Viswanath 2014),
        divided by the error of this noise: at most 1, and 1 for integers of sensitivity 1. Raises InvalidOperation for
        vectors, for which the smallest error is not known.
        """
        if self.dimension not in (None, 1):
            raise InvalidOperation("the best noise for vectors is not known")
        from deniable.mechanisms import staircase

        epsilon = self.promise.epsilon(delta=0.0)
        ours = math.sqrt(2) * self.level
        if self.exponent is None:
            if self.sensitivity == 1:
                return 1.0
            r = math.exp(-1 / float(self.width))
            ours = math.sqrt(2 * r) / (1 - r)
        return min(1.0, staircase.least_rms(self.sensitivity, epsilon, whole=self.exponent is None) / ours)

    def _whole(self, moved: Any, level: _Level, dimension: Any) -> None:
        rational_parameters.positive("sensitivity", moved)
        m = numbers.whole(moved)  # integers move by integers
        if m < 1:
            raise InvalidParameter("sensitivity", moved, "must be at least 1 for whole numbers")
        width, promise = _whole_laplace(m, *level)
        self._fill(Fraction(m), width, None, dimension, promise)

    def _real(self, moved: Any, level: _Level, dimension: Any) -> None:
        bound = rational_parameters.moved(moved)
        count = curve_arguments.integer("dimension", 1 if dimension is None else dimension, 1)
        promise, ratio = _real_laplace(bound, *level)
        k = grid_exponent(bound / ratio, "sensitivity", float(bound))
        step = Fraction(2) ** k
        check_growth(count * step / bound, dimension)
        far = numbers.steps(bound / step) + count
        # m/B + 1/(4B²) <= ratio: with B >= m/ratio + 1 the first term leaves ratio/B, and B >= 1/ratio.
        self._fill(bound, rational_parameters.ceil(far / ratio) + 1, k, dimension, promise)


_Level = tuple[Any, Any, Any, Any]
"""scale, epsilon, delta, mu, as they were given."""


def _laplace_level(bound: Fraction, scale: Any, epsilon: Any, delta: Any, mu: Any) -> _Level:
    """The one noise level that was given, checked; warns if it protects little."""
    curve_arguments.exactly_one(scale=scale, epsilon=epsilon, mu=mu)
    _only_with_epsilon(delta, epsilon)
    if delta is not None:
        delta = rational_parameters.chance_at_most("delta", delta)
    if scale is not None:
        width = rational_parameters.positive("scale", scale)
        warn_if_weak(epsilon=Fraction(bound) / width)
        return width, None, None, None
    name, given = ("epsilon", epsilon) if epsilon is not None else ("mu", mu)
    asked = rational_parameters.down(rational_parameters.positive(name, given))
    if epsilon is None:
        warn_if_weak(mu=asked)
        return None, None, None, asked
    warn_if_weak(epsilon=asked, delta=delta)
    return None, asked, delta, None


def _real_laplace(bound: Fraction, scale: Any, epsilon: Any, delta: Any, mu: Any) -> tuple[Curve, Fraction]:
    """The curve, and the exact sensitivity/scale that has it."""
    if scale is not None:
        return curves.laplace(scale=1.0, sensitivity=rational_parameters.up(bound / scale)), bound / scale
    if mu is not None:
        epsilon = _laplace_shift(mu)
    elif delta is not None:
        epsilon = _approximate_shift(epsilon, delta)
    return curves.laplace(scale=1.0, sensitivity=epsilon), Fraction(epsilon)


@lru_cache(maxsize=256)
def _approximate_shift(epsilon: float, delta: float) -> float:
    """The largest shift t with δ(ε) = 1 - e^((ε-t)/2) <= delta: t = ε - 2 log(1-δ), minus an allowance for rounding."""
    extra = -2 * math.log1p(-delta)
    for less in (1e-15, 1e-13, 1e-11, 1e-9, 1e-6, 1e-3):
        shift = epsilon + extra * (1 - less) - less * epsilon * extra
        if shift > epsilon and curves.laplace(scale=1.0, sensitivity=shift).delta(epsilon=epsilon) <= delta:
            return shift
    return epsilon


@lru_cache(maxsize=256)
def _laplace_shift(mu: float) -> float:
    """The largest shift at which Laplace noise is μ-GDP."""
    return float(curves.calibrate(lambda t: curves.laplace(scale=1.0, sensitivity=t), mu=mu))


@lru_cache(maxsize=256)
def _whole_laplace(m: int, scale: Any, epsilon: Any, delta: Any, mu: Any) -> tuple[Any, Curve]:
    """The scale of discrete Laplace noise for integers that move by m, and its curve."""
    if scale is not None:
        return rational_parameters.short(scale), _lattice_curve(scale, m)
    if mu is not None:
        width = curves.calibrate(lambda b: _lattice_curve(Fraction(b), m), mu=mu)
    elif delta is not None:
        width = curves.calibrate(lambda b: _lattice_curve(Fraction(b), m), epsilon=epsilon, delta=delta)
    elif m > SHARP:
        width = rational_parameters.ceil(m / Fraction(epsilon)) + 1
        return width, curves.laplace(scale=1.0, sensitivity=epsilon)
    else:
        width = rational_parameters.up(m / Fraction(epsilon))
        while quotient_up(1.0, width) * m > epsilon:  # a rounding or two
            width = above(width)
    return width, _lattice_curve(Fraction(width), m)


def _lattice_curve(scale: Fraction, m: int) -> Curve:
    if m <= SHARP and scale >= Fraction(1, 10**6):
        return curves.discrete_laplace(scale=rational_parameters.down(scale), sensitivity=m)
    # Lemma B; and log cosh x <= x for noise far narrower than 1.
    return curves.laplace(
        scale=1.0, sensitivity=rational_parameters.up(m / scale + min(1 / (4 * scale), Fraction(1)) / scale)
    )


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Laplace(_LaplaceNoise):
    """Laplace noise of scale b = Δ₁/ε on a statistic of L1 sensitivity Δ₁.

    For all neighbours D, D′ and events S: P(M(D) ∈ S) <= e^ε P(M(D′) ∈ S). Give the noise by `scale=`, by `epsilon=`,
    by `epsilon=` and `delta=` (b = Δ₁/(ε + 2 log(1/(1−δ)))), or by `mu=`.

    An int `sensitivity` gives a mechanism for integers (the noise is then exactly discrete Laplace); a float gives one
    for real numbers, on a fine grid. See the top of this module.

    >>> from deniable import mechanisms
    >>> noisy = mechanisms.Laplace(sensitivity=1, epsilon=0.5)
    >>> noisy
    Laplace(sensitivity=1, scale=2.0)
    >>> answer = noisy.release(42)
    >>> noisy.error(confidence=0.95)
    6.0

    Source: Dwork, McSherry, Nissim & Smith (2006); δ(ε) by Balle, Barthe & Gaboardi (2018).
    """

    def __init__(
        self,
        *,
        sensitivity: float | Fraction | Sensitivity,
        scale: float | Fraction | None = None,
        epsilon: float | Fraction | None = None,
        delta: float | None = None,
        mu: float | None = None,
        dimension: int | None = None,
    ) -> None:
        bound = rational_parameters.l1(sensitivity)
        level = _laplace_level(bound, scale, epsilon, delta, mu)
        (self._whole if is_whole(sensitivity) else self._real)(bound, level, dimension)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class DiscreteLaplace(_LaplaceNoise):
    """Integer noise with P(z) ∝ e^(−|z|/b), b = Δ₁/ε, on integers of L1 sensitivity Δ₁: the geometric mechanism.

    For all neighbours D, D′ and events S: P(M(D) ∈ S) <= e^ε P(M(D′) ∈ S). Arguments as for `Laplace`. For sensitivity
    1 its curve is that of randomized response, and no other noise on counts has less error (Ghosh, Roughgarden &
    Sundararajan 2009).

    >>> from deniable import curves, mechanisms
    >>> mechanisms.DiscreteLaplace(sensitivity=1, scale=2).curve == curves.discrete_laplace(scale=2)
    True
    """

    def __init__(
        self,
        *,
        sensitivity: float | Fraction | Sensitivity,
        scale: float | Fraction | None = None,
        epsilon: float | Fraction | None = None,
        delta: float | None = None,
        mu: float | None = None,
        dimension: int | None = None,
    ) -> None:
        bound = rational_parameters.l1(sensitivity)
        self._whole(bound, _laplace_level(bound, scale, epsilon, delta, mu), dimension)


# -- Gaussian --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest μ (to seven digits, rounded down) whose Gaussian curve is at most δ at ε: analytic calibration."""
    return float(curves.calibrate(lambda m: curves.gaussian(mu=m), epsilon=epsilon, delta=delta))


def _gaussian_mu(bound: Fraction, sigma: Any, mu: Any, epsilon: Any, delta: Any) -> tuple[Fraction, float]:
    """The exact Δ₂/σ, and the μ of the curve, at least as large."""
    curve_arguments.exactly_one(sigma=sigma, mu=mu, epsilon=epsilon)
    _only_with_epsilon(delta, epsilon)
    if sigma is not None:
        ratio = bound / rational_parameters.positive("sigma", sigma)
        warn_if_weak(mu=ratio)
        return ratio, rational_parameters.up(ratio)
    if mu is not None:
        asked = rational_parameters.down(rational_parameters.positive("mu", mu))
        warn_if_weak(mu=asked)
        return Fraction(asked), asked
    if delta is None:
        raise InvalidParameter("epsilon", epsilon, "needs delta=", "Gaussian noise has no pure ε; Laplace noise has")
    level = rational_parameters.at_most("epsilon", epsilon), rational_parameters.chance_at_most("delta", delta)
    warn_if_weak(epsilon=level[0], delta=level[1])
    found = gaussian_mu(*level)
    return Fraction(found), found


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Gaussian(Additive):
    """Gaussian noise N(0, σ²) on a statistic of L2 sensitivity Δ₂: μ-GDP with μ = Δ₂/σ.

    For all neighbours D, D′: the answers are at most as distinguishable as N(0, 1) and N(μ, 1), so δ(ε) = Φ(μ/2 − ε/μ)
    − e^ε Φ(−μ/2 − ε/μ). Give the noise by `sigma=`, `mu=`, or `epsilon=` and `delta=`.

    An int `sensitivity` gives a mechanism for integers, whose noise is exactly round(N(0, σ²)); a float gives one for
    real numbers, on a fine grid. `Gaussian.whole` is for integers with a sensitivity such as √2.

    >>> from deniable import mechanisms
    >>> noisy = mechanisms.Gaussian(sensitivity=1, epsilon=1.0, delta=1e-5)
    >>> round(noisy.sigma, 5)
    3.73063
    >>> round(noisy.curve.delta(epsilon=1.0), 11)
    1e-05
    >>> mechanisms.Gaussian(sensitivity=2.0, mu=0.5).sigma
    4.0000000...

    Source: Balle & Wang (2018), Theorem 8; Dong, Roth & Su (2022), Theorem 2.7.
    """

    LEVEL: ClassVar[str] = "sigma"
    NOISE: ClassVar[NoiseShape] = ROUNDED_GAUSSIAN

    def __init__(
        self,
        *,
        sensitivity: float | Fraction | Sensitivity,
        sigma: float | Fraction | None = None,
        mu: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        dimension: int | None = None,
    ) -> None:
        bound = rational_parameters.moved(rational_parameters.l2(sensitivity))
        ratio, promised = _gaussian_mu(bound, sigma, mu, epsilon, delta)
        if is_whole(sensitivity):
            self._fill_whole(bound, ratio, promised, dimension)
        else:
            self._fill_real(bound, ratio, promised, dimension)

    @classmethod
    def whole(
        cls,
        *,
        sensitivity: float | Fraction | Sensitivity,
        sigma: float | Fraction | None = None,
        mu: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        dimension: int | None = None,
    ) -> Gaussian:
        """A mechanism for integers, whatever the type of the sensitivity: for example counts with L2 sensitivity √2."""
        bound = rational_parameters.moved(rational_parameters.l2(sensitivity))
        ratio, promised = _gaussian_mu(bound, sigma, mu, epsilon, delta)
        self = object.__new__(cls)
        self._fill_whole(bound, ratio, promised, dimension)
        return self

    def _fill_whole(self, bound: Fraction, ratio: Fraction, promised: float, dimension: Any) -> None:
        sigma = bound / ratio
        # An int if exact, else the next float up: drawing is faster with short numbers.
        width = sigma.numerator if sigma.denominator == 1 else rational_parameters.up(sigma)
        self._fill(bound, width, None, dimension, curves.gaussian(mu=promised))

    def _fill_real(self, bound: Fraction, ratio: Fraction, promised: float, dimension: Any) -> None:
        count = curve_arguments.integer("dimension", 1 if dimension is None else dimension, 1)
        k = grid_exponent(bound / ratio, "sensitivity", float(bound))
        step = Fraction(2) ** k
        rounding = math.isqrt(count - 1) + 1
        check_growth(rounding * step / bound, dimension)
        self._fill(
            bound,
            rational_parameters.ceil((bound / step + rounding) / ratio),
            k,
            dimension,
            curves.gaussian(mu=promised),
        )

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise before it is rounded to the grid."""
        return self.level

    def draw(self, size: Any, entropy: Entropy | None) -> Any:
        return noise.rounded_gaussian(sigma=self.width, size=size, entropy=entropy)

    def _reach(self, miss: float) -> int:
        return noise_quantiles.rounded_gaussian(Fraction(self.width), miss)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class DiscreteGaussian(Additive):
    """Integer noise with P(z) ∝ e^(−z²/2σ²) on integers of L2 sensitivity Δ₂: ρ-zCDP with ρ = Δ₂²/2σ².

    For all neighbours D, D′ between which one number moves by Δ: the curve is `curves.discrete_gaussian`. A vector that
    moves by v (integers, ‖v‖² <= Δ₂²) has the product of the curves of the v_i; the curve is the worst over all such v
    if they can be listed, and zcdp(ρ) otherwise.

    Give the noise by `sigma=`, `rho=`, or `epsilon=` and `delta=`. (It is not μ-GDP for any μ: see `Gaussian`.)

    >>> from deniable import curves, mechanisms
    >>> mechanisms.DiscreteGaussian(sensitivity=1, sigma=2).curve == curves.discrete_gaussian(sigma=2)
    True

    Source: Canonne, Kamath & Steinke (2020).
    """

    LEVEL: ClassVar[str] = "sigma"
    NOISE: ClassVar[NoiseShape] = DISCRETE_GAUSSIAN

    def __init__(
        self,
        *,
        sensitivity: float | Fraction | Sensitivity,
        sigma: float | Fraction | None = None,
        rho: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        dimension: int | None = None,
    ) -> None:
        given = rational_parameters.l2(sensitivity)
        bound = rational_parameters.positive("sensitivity", given)
        square = numbers.square(given)  # the squared length of an integer vector is an integer
        if square < 1:
            raise InvalidParameter("sensitivity", sensitivity, "must be at least 1 for whole numbers")
        curve_arguments.exactly_one(sigma=sigma, rho=rho, epsilon=epsilon)
        _only_with_epsilon(delta, epsilon)
        single = dimension is None or curve_arguments.integer("dimension", dimension, 1) == 1
        if sigma is not None:
            width: Any = rational_parameters.short(rational_parameters.positive("sigma", sigma))
            warn_if_weak(mu=rational_parameters.root_up(square / Fraction(width) ** 2))
        elif rho is not None:
            asked = rational_parameters.down(rational_parameters.positive("rho", rho))
            warn_if_weak(mu=rational_parameters.root_up(2 * Fraction(asked)))
            width = rational_parameters.up(rational_parameters.root_up(square / (2 * Fraction(asked))))
        elif delta is None:
            raise InvalidParameter("epsilon", epsilon, "needs delta=", "Gaussian noise has no pure ε")
        else:
            level = rational_parameters.at_most("epsilon", epsilon), rational_parameters.chance_at_most("delta", delta)
            warn_if_weak(epsilon=level[0], delta=level[1])
            width = _discrete_sigma(square, single, *level)
        promise = curves.zcdp(rho=asked) if rho is not None else _vector_curve(square, single, Fraction(width))
        self._fill(max(bound, rational_parameters.root_up(Fraction(square))), width, None, dimension, promise)

    @property
    def sigma(self) -> float:
        """The parameter of the noise; its standard deviation is slightly less."""
        return self.level

    def draw(self, size: Any, entropy: Entropy | None) -> Any:
        return noise.discrete_gaussian(sigma=self.width, size=size, entropy=entropy)

    def _reach(self, miss: float) -> int:
        return noise_quantiles.discrete_gaussian(Fraction(self.width), miss)


@lru_cache(maxsize=256)
def _discrete_sigma(square: int, single: bool, epsilon: float, delta: float) -> float:
    return float(curves.calibrate(lambda s: _vector_curve(square, single, Fraction(s)), epsilon=epsilon, delta=delta))


@lru_cache(maxsize=256)
def _vector_curve(square: int, single: bool, sigma: Fraction) -> Curve:
    """The worst curve of discrete Gaussian noise over integer shifts v with ‖v‖² <= square.

    A larger shift is never better (the noise is log-concave), so shifts of squared length exactly `square` are enough.
    """
    narrow = rational_parameters.down(sigma)
    if single and narrow <= WIDEST_LAW:
        return curves.discrete_gaussian(sigma=narrow, sensitivity=math.isqrt(square))
    shifts = list(_sums_of_squares(square, math.isqrt(square))) if square <= 16 else []
    if not shifts or narrow > WIDEST_LAW:
        return curves.zcdp(rho=rational_parameters.up(square / (2 * sigma * sigma)))
    return curves.worst_of(
        *(curves.product(curves.discrete_gaussian(sigma=narrow, sensitivity=v) for v in shift) for shift in shifts)
    )


def _sums_of_squares(total: int, largest: int) -> Any:
    """The ways to write `total` as a sum of squares, largest first."""
    if total == 0:
        yield ()
        return
    for v in range(min(largest, math.isqrt(total)), 0, -1):
        for rest in _sums_of_squares(total - v * v, v):
            yield (v, *rest)
