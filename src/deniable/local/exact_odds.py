"""How much likelier the truth is than a lie: e^ε, held exactly, and the coins that are thrown with it.

A float ε is the rational number that it stores, so e^ε is irrational and no float holds it. `Odds` keeps the two exact
factors ratio × e^log and gives them to the wheels of `noise` as they are; floats appear only where an estimate or a
reading of a curve is computed, never where a coin is thrown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from numpy.typing import NDArray

from deniable import noise
from deniable.curves.curve_arguments import exactly_one
from deniable.curves.meaning.weakness_advice import warn_if_weak
from deniable.errors import InvalidParameter
from deniable.noise import Wheel, noise_arguments
from deniable.numbers import up

if TYPE_CHECKING:
    from deniable.noise import Entropy

Number = float | Fraction
"""A probability for estimates: a Fraction where the odds are rational, otherwise a float."""

Rational = int | float | Fraction | Decimal
"""How a parameter may be given. Each of these is a rational number; a float is the one it stores."""

LEAST_EPSILON: Final = 1e-6
LARGEST_EPSILON: Final = 50.0
"""Below, an estimate needs 10¹² people to say anything; above, a lie is so rare (e⁻⁵⁰) that nobody is protected."""

FARTHEST: Final = Fraction(2**80)
"""Beyond e⁵⁰ by far, and small enough for a float."""

ROUNDING: Final = 8 * 2.0**-53
"""Granted to one logarithm, one quotient and their sum, when a number must not come out too small."""

MOST_ON_A_WHEEL: Final = 1024
"""Up to so many categories there is a wheel of all distances; beyond, a coin and a uniform draw do the same."""

Weights = list[tuple[Fraction, Fraction]]
"""Pairs (factor, exponent), each the weight factor × e^exponent."""


@final
@dataclass(frozen=True, slots=True)
class Odds:
    """ratio × e^log, exactly.

    >>> Odds.of(epsilon=1.0).epsilon, Odds.of(odds=3).number
    (1.0, Fraction(3, 1))
    """

    ratio: Fraction
    log: Fraction

    @classmethod
    def of(cls, *, epsilon: Rational | None = None, odds: Rational | None = None) -> Odds:
        """From ε, or from e^ε itself where that is the rational number."""
        if exactly_one(epsilon=epsilon, odds=odds) == "epsilon":
            return cls(Fraction(1), noise_arguments.rational("epsilon", epsilon)).chosen("epsilon", epsilon)
        return cls(noise_arguments.rational("odds", odds), Fraction(0)).chosen("odds", odds)

    def within(self, name: str, asked: object) -> Odds:
        """Itself, if it is strong enough to estimate anything and weak enough to protect anybody."""
        possible = 1 / FARTHEST < self.ratio < FARTHEST
        if not possible or not LEAST_EPSILON <= self.log + Fraction(log(self.ratio)) <= LARGEST_EPSILON:
            between = f"between {LEAST_EPSILON:g} and {LARGEST_EPSILON:g}"
            if name == "epsilon":
                raise InvalidParameter(name, asked, f"must lie {between}", "more protects nobody, less says nothing")
            raise InvalidParameter(name, asked, f"must make the truth likelier, with ε {between}")
        return self

    def chosen(self, name: str, asked: object) -> Odds:
        """The same for odds that alone are what a person chose to be protected by; warns where they protect little."""
        warn_if_weak(epsilon=self.within(name, asked).epsilon)
        return self

    @property
    def number(self) -> Number:
        """The odds, for estimates."""
        return self.ratio if self.log == 0 else float(self.ratio) * math.exp(float(self.log))

    @property
    def excess(self) -> Number:
        """The odds less 1, without cancellation."""
        if self.log == 0:
            return self.ratio - 1
        return float(self.ratio) * math.expm1(float(self.log)) + float(self.ratio - 1)

    @property
    def epsilon(self) -> float:
        """|log odds|, rounded up: never below what a report really costs."""
        if self.ratio == 1:
            return up(abs(self.log))
        return abs(log(self.ratio) + float(self.log)) * (1 + ROUNDING)

    def root(self) -> Odds:
        """The odds of a half of ε. A rational number has them only if it is a square."""
        top, bottom = math.isqrt(self.ratio.numerator), math.isqrt(self.ratio.denominator)
        if Fraction(top * top, bottom * bottom) != self.ratio:
            raise InvalidParameter("odds", self.ratio, "must be the square of a rational number here", "give epsilon")
        return Odds(Fraction(top, bottom), self.log / 2)

    def heads(self, size: int, entropy: Entropy | None, *, yes: int = 1, no: int = 1) -> NDArray[np.bool_]:
        """Coins that show True with probability yes × odds / (yes × odds + no)."""
        return _coin(self, yes, no).spin(size=size, entropy=entropy).view(np.bool_)

    def rare_bits(self, shape: tuple[int, ...], entropy: Entropy | None) -> NDArray[np.uint8]:
        """Bytes in which each bit is 1 with probability 1 / (1 + odds), independently. One spin of a wheel of all 256
        bytes makes eight bits.
        """
        return _bytes(self).spin(size=shape, entropy=entropy).astype(np.uint8, copy=False)

    def away(self, categories: int, size: int, entropy: Entropy | None) -> NDArray[np.unsignedinteger[Any]]:
        """How far a report is from the answer, cyclically: 0 with weight odds, each other distance with weight 1."""
        if categories <= MOST_ON_A_WHEEL:
            return _distances(self, categories).spin(size=size, entropy=entropy)
        lies = noise.uniform(below=categories - 1, size=size, entropy=entropy).astype(np.uint32)
        lies += np.uint32(1)
        lies[self.heads(size, entropy, no=categories - 1)] = 0
        return lies

    def written(self) -> dict[str, float | str]:
        """As the keyword argument that makes it again."""
        return {"odds": exact(self.ratio)} if self.log == 0 else {"epsilon": exact(self.log)}


def coin_weights(odds: Odds, yes: int, no: int) -> Weights:
    """1 with weight yes × odds, 0 with weight no."""
    return [(Fraction(no), Fraction(0)), (odds.ratio * yes, odds.log)]


def byte_weights(odds: Odds) -> Weights:
    """The byte b with weight odds^-(ones in b)."""
    powers = [(odds.ratio**-ones, -odds.log * ones) for ones in range(9)]
    return [powers[byte.bit_count()] for byte in range(256)]


def distance_weights(odds: Odds, categories: int) -> Weights:
    """0 with weight odds, each of 1, ..., categories - 1 with weight 1."""
    return [(odds.ratio, odds.log), *([(Fraction(1), Fraction(0))] * (categories - 1))]


def _wheel(weights: Weights) -> Wheel:
    factors, exponents = zip(*weights, strict=True)
    return Wheel(weights=factors, log_weights=exponents)


# The odds are public, so wheels made for them may be kept: about half a megabyte each.


@lru_cache(maxsize=32)
def _coin(odds: Odds, yes: int, no: int) -> Wheel:
    return _wheel(coin_weights(odds, yes, no))


@lru_cache(maxsize=16)
def _bytes(odds: Odds) -> Wheel:
    return _wheel(byte_weights(odds))


@lru_cache(maxsize=16)
def _distances(odds: Odds, categories: int) -> Wheel:
    return _wheel(distance_weights(odds, categories))


def log(ratio: Fraction) -> float:
    """log ratio, within half of ROUNDING of its size also near 1."""
    return math.log1p(float(ratio - 1)) if Fraction(1, 2) < ratio < 2 else math.log(float(ratio))


def exact(value: Fraction) -> float | str:
    """A rational number that survives JSON: a float if it is one, otherwise "numerator/denominator"."""
    near = float(value)
    return near if Fraction(near) == value else f"{value.numerator}/{value.denominator}"
