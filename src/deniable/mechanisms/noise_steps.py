"""Noise in whole steps: the base of Laplace and Gaussian mechanisms, and the conversion of real numbers to steps.

An integer is its own step. A real number is rounded to the grid of spacing 2^exponent, half to even; noise is added to
the steps; and the sum is converted to a float last. The top of `additive_noise` proves that this has the guarantee of
textbook noise.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from deniable.curves import Curve, curve_arguments
from deniable.errors import NOTHING, InvalidParameter
from deniable.mechanisms import distinguishing_parts, input_values, laws, noise_quantiles, rational_parameters
from deniable.mechanisms.distinguishing_parts import Told
from deniable.mechanisms.laws import NoiseLaw
from deniable.mechanisms.mechanism import Mechanism
from deniable.mechanisms.noise_shapes import NoiseShape
from deniable.noise.entropy import checked_entropy

if TYPE_CHECKING:
    from deniable.noise import Entropy

FINENESS: Final = 46
"""Noise is between 2⁴⁶ and 2⁴⁷ steps wide: fine enough that rounding costs nothing, coarse enough that steps are
floats.
"""

WIDEST: Final = 2**50
"""Widest noise, in steps, that is sure to fit into 64 bits. Checked in the constructor, before any data."""

CLAMP: Final = 2**1020
"""Steps are clamped to this, before they overflow. Clamping never moves two values apart."""

FLOATS: Final = 2**53
SMALL: Final = 2.0**100
"""Values below this are far from overflowing in steps, on any grid."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Additive(Mechanism):
    """Independent noise on every number of a statistic."""

    sensitivity: Fraction
    width: int | float | Fraction
    """The scale or sigma of the noise, in steps."""
    exponent: int | None
    """Steps are 2^exponent wide; None: integers, unchanged."""
    dimension: int | None
    """How many numbers are released at once; None: one number, not a vector."""
    promise: Curve

    LEVEL: ClassVar[str]
    """The name of the noise level: scale or sigma."""
    NOISE: ClassVar[NoiseShape]
    """The kind of noise, as `laws.NoiseLaw` names it."""

    @abstractmethod
    def draw(self, size: Any, entropy: Entropy | None) -> Any:
        """Draws of the noise alone, as integers in steps of the grid: one, or an array of the shape `size`."""

    @abstractmethod
    def _reach(self, miss: float) -> int:
        """The smallest k with P(|noise| > k steps) <= miss."""

    def _fill(self, sensitivity: Fraction, width: Any, exponent: int | None, dimension: Any, promise: Curve) -> None:
        if dimension is not None:
            dimension = curve_arguments.integer("dimension", dimension, 1)
        if width > WIDEST:
            raise InvalidParameter(
                self.LEVEL,
                float(width),
                "noise on whole numbers must be at most 2**50 wide",
                "write sensitivity or bounds as floats, or use less noise",
            )
        self._settle(sensitivity=sensitivity, width=width, exponent=exponent, dimension=dimension, promise=promise)

    @property
    def curve(self) -> Curve:
        return self.promise

    @property
    def spacing(self) -> Fraction:
        """The distance between possible answers."""
        return Fraction(1) if self.exponent is None else Fraction(2) ** self.exponent

    @property
    def level(self) -> float:
        """The scale or sigma of the noise."""
        return float(Fraction(self.width) * self.spacing)

    def __repr__(self) -> str:
        is_whole = self.exponent is None and self.sensitivity.denominator == 1
        shown = self.sensitivity.numerator if is_whole else float(self.sensitivity)
        # Only Gaussian has a separate constructor for integers with a non-integer sensitivity.
        kind = ".whole" if self.exponent is None and not is_whole and hasattr(type(self), "whole") else ""
        size = "" if self.dimension is None else f", dimension={self.dimension}"
        return f"{type(self).__name__}{kind}(sensitivity={shown!r}, {self.LEVEL}={self.level!r}{size})"

    def release(self, value: Any, *, entropy: Entropy | None = None) -> Any:
        """The value with noise: a number for a number, and with `dimension=` an array for an array, list or series.

        NaN and infinities raise InvalidParameter: no sensitivity bounds their distance from other values.
        """
        if entropy is not None:
            checked_entropy(entropy)
        # The two common cases first, for speed.
        if self.dimension is None or self.dimension == 1:
            if self.exponent is None and type(value) is int:
                return value + self.draw(None, entropy)
            if self.exponent is not None and type(value) is float and -SMALL < value < SMALL:
                steps = round(math.ldexp(value, -self.exponent)) + self.draw(None, entropy)
                return math.ldexp(steps, self.exponent)
        if input_values.is_array(value):
            return self._release_array(value, entropy)
        if self.dimension not in (None, 1):
            raise input_values.refused(f"must be an array of {self.dimension} numbers, as declared")
        if self.exponent is None:
            return input_values.whole(value) + self.draw(None, entropy)
        return self.noisy(input_values.real(value), entropy)

    def noisy(self, value: float | Fraction, entropy: Entropy | None) -> float:
        """One coordinate of a vector of real numbers, with its noise. `dimension` calls release the whole vector."""
        k = self.exponent or 0
        # A float over a power of two is exact, and round() of a float is exact, half to even, and of any size.
        small = isinstance(value, float) and abs(value) < SMALL
        steps = round(math.ldexp(value, -k)) if small else rounded_steps(Fraction(value), k)
        return as_float(steps + self.draw(None, entropy), k)

    def _release_array(self, value: Any, entropy: Entropy | None) -> Any:
        array: Any = input_values.wholes(value) if self.exponent is None else input_values.reals(value)
        if array.size == 0:
            raise input_values.refused("must not be empty")
        if self.dimension is None:
            # The sensitivity and the error of one number differ from those of a vector, so the caller must declare
            # which it is.
            raise input_values.refused("must be one number", "for a vector, say how many numbers it has: dimension=")
        if array.size != self.dimension:
            raise input_values.refused(f"must have {self.dimension} numbers, as declared")
        if self.exponent is None:
            return array + self.draw(array.shape, entropy)  # both lie within ±2⁶²: no overflow
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise input_values.refused(
                "must be finite", "NaN and infinities have no sensitivity; clamp to public bounds"
            )
        return noisy_floats(array, self.draw(array.shape, entropy), self.exponent)

    def law(self, value: Any) -> NoiseLaw:
        """The law of the answer on this value: the noise around it.

        >>> from deniable import mechanisms
        >>> round(mechanisms.Laplace(sensitivity=1.0, scale=2.0).law(0).cdf(1), 5)
        0.69673
        """
        laws.needs_one_number(self.dimension, type(self).__name__)
        return self.around(value)

    def around(self, value: Any) -> NoiseLaw:
        """The law of one number of an answer whose exact value is this."""
        centre = laws.centre(value, is_whole=self.exponent is None)
        return NoiseLaw(self.NOISE, float(self.width), float(self.spacing), self.exponent is None, centre)

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """The numbers that differ."""
        size = self.dimension or 1
        if any(np.size(each) != size for each in (x, x2)):
            raise InvalidParameter(
                "x", NOTHING, f"must have {size} numbers, as many as the mechanism declares, and so must x2"
            )
        return distinguishing_parts.numbers(self, x, x2, lambda i: f"number {i + 1}")

    def variance(self) -> float:
        """The variance of the noise on each number."""
        return NoiseLaw(self.NOISE, float(self.width), float(self.spacing), self.exponent is None).variance

    def rms(self) -> float:
        """The root mean square √E‖Z‖₂² of the noise on all numbers together; E‖Z‖₂ is at most this."""
        return math.sqrt((self.dimension or 1) * self.variance())

    def error(self, *, confidence: float) -> float:
        """A bound on the error of all numbers of an answer at once, with probability at least `confidence`: the exact
        quantile, because their noises are independent.

        For real numbers it includes the rounding to the grid. Answers of more than 2⁵³ steps are also rounded to the
        next float.
        """
        reach = self._reach(noise_quantiles.miss(confidence, self.dimension or 1))
        if self.exponent is None:
            return float(reach)
        return rational_parameters.up((reach + Fraction(1, 2)) * self.spacing)


def rounded_steps(value: Fraction, k: int) -> int:
    """value/2^k rounded to an integer, half to even."""
    above, below = (value.numerator << -k, value.denominator) if k < 0 else (value.numerator, value.denominator << k)
    whole, rest = divmod(above, below)
    return whole + (2 * rest > below or (2 * rest == below and whole % 2 == 1))


def as_float(steps: int, k: int) -> float:
    """steps × 2^k, rounded once; clamped to the largest float of its sign."""
    try:
        return math.ldexp(steps, k) if steps.bit_length() < 1000 else float(steps * Fraction(2) ** k)
    except OverflowError:
        largest = float(np.finfo(np.float64).max)
        return largest if steps > 0 else -largest


def noisy_floats(array: NDArray[Any], drawn: input_values.Ints, k: int) -> input_values.Floats:
    """The array rounded to steps of 2^k, plus this noise: for float64, or for exact numbers that floats
    cannot store.
    """
    if array.dtype.kind == "O":
        exact_steps = [max(-CLAMP, min(CLAMP, rounded_steps(Fraction(v), k))) for v in array.ravel().tolist()]
        return _sums(exact_steps, drawn, k)
    with np.errstate(over="ignore"):
        steps = array * math.ldexp(1.0, -k)
    np.rint(steps, out=steps)
    np.clip(steps, -float(CLAMP), float(CLAMP), out=steps)
    if max(int(drawn.max()), -int(drawn.min())) <= FLOATS:
        # One correctly rounded addition of two integers: a function of their exact sum.
        steps += drawn
        return np.asarray(steps * math.ldexp(1.0, k))
    return _sums(map(int, steps.ravel().tolist()), drawn, k)


def _sums(steps: Iterable[int], drawn: input_values.Ints, k: int) -> input_values.Floats:
    sums = [as_float(a + b, k) for a, b in zip(steps, drawn.ravel().tolist(), strict=True)]
    return np.array(sums).reshape(drawn.shape)


def is_whole(sensitivity: Any) -> bool:
    """Whether a sensitivity is an int, so that the mechanism is for integers."""
    return isinstance(sensitivity, int | np.integer) and not isinstance(sensitivity, bool)


def grid_exponent(width: Fraction, name: str, asked: Any) -> int:
    """The exponent of the grid for noise of this width."""
    k = rational_parameters.floor_log2(width) - FINENESS
    if not -800 <= k <= 800:
        raise InvalidParameter(name, asked, "noise of this width has no grid of floats; change the unit of measurement")
    return k


def check_growth(share: Fraction, dimension: Any) -> None:
    """Raise InvalidParameter if rounding to the grid would cost more than 1 % of the noise."""
    if share > Fraction(1, 100):
        raise InvalidParameter(
            "dimension",
            dimension,
            "rounding this many numbers would cost more than 1 % of the noise",
            "say how many numbers there are, or ask for less noise",
        )
