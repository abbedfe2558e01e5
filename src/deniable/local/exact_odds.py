"""The odds of a truthful report: e^ε, stored exactly, and the coins that use it.

A float ε is the rational number that it stores, so e^ε is irrational and no float can store it. `Odds` keeps the exact
factors ratio × e^log and passes them to the wheels of `noise`. Floats appear only in estimates and in curves, never
where a coin is drawn.
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

from deniable import arguments, noise
from deniable.curves.curve_arguments import exactly_one
from deniable.curves.meaning.weakness_advice import warn_if_weak
from deniable.errors import InvalidParameter
from deniable.noise import Wheel
from deniable.numbers import root_up, up

if TYPE_CHECKING:
    from deniable.noise import Entropy

Number = float | Fraction
"""A probability in an estimate: a Fraction if the odds are rational, otherwise a float."""

Rational = int | float | Fraction | Decimal
"""Types of a parameter. Each value is a rational number; a float is the number that it stores."""

LEAST_EPSILON: Final = 1e-6
LARGEST_EPSILON: Final = 50.0
"""Below the least ε an estimate needs 10¹² people; above the largest, a false report is so rare (e⁻⁵⁰) that nobody is
protected.
"""

FARTHEST: Final = Fraction(2**80)
"""Far above e⁵⁰, and within the range of floats."""

ROUNDING: Final = 8 * 2.0**-53
"""Relative error allowed for one logarithm, one quotient and their sum, where a number must not come out too small."""

MOST_ON_A_WHEEL: Final = 1024
"""Up to this many categories a wheel contains all distances; beyond, a coin and a uniform draw give the same law."""

Weights = list[tuple[Fraction, Fraction]]
"""Pairs (factor, exponent), each the weight factor × e^exponent."""


@final
@dataclass(frozen=True, slots=True)
class Odds:
    """The exact number ratio × e^log: how much likelier a true report is than a false one.

    >>> Odds.of(epsilon=1.0).epsilon, Odds.of(odds=3).number
    (1.0, Fraction(3, 1))
    """

    ratio: Fraction
    log: Fraction

    @classmethod
    def of(cls, *, epsilon: Rational | None = None, odds: Rational | None = None) -> Odds:
        """The odds for this ε, or for e^ε = `odds`, a rational number. InvalidParameter unless 1e-6 <= ε <= 50."""
        if exactly_one(epsilon=epsilon, odds=odds) == "epsilon":
            return cls(Fraction(1), arguments.rational("epsilon", epsilon)).chosen("epsilon", epsilon)
        return cls(arguments.rational("odds", odds), Fraction(0)).chosen("odds", odds)

    def within(self, name: str, asked: object) -> Odds:
        """These odds, if ε lies in [1e-6, 50]. Raises InvalidParameter otherwise; `name` and `asked` describe the
        argument.
        """
        possible = 1 / FARTHEST < self.ratio < FARTHEST
        if not possible or not LEAST_EPSILON <= self.log + Fraction(log(self.ratio)) <= LARGEST_EPSILON:
            between = f"between {LEAST_EPSILON:g} and {LARGEST_EPSILON:g}"
            if name == "epsilon":
                raise InvalidParameter(
                    name,
                    asked,
                    f"must lie {between}",
                    "a larger epsilon protects nobody, a smaller one allows no estimate",
                )
            raise InvalidParameter(name, asked, f"must make the truth likelier, with ε {between}")
        return self

    def chosen(self, name: str, asked: object) -> Odds:
        """As `within`, for odds that a user chose as the whole protection: also warns if they protect little."""
        warn_if_weak(epsilon=self.within(name, asked).epsilon)
        return self

    @property
    def number(self) -> Number:
        """The odds as a number, for estimates."""
        return self.ratio if self.log == 0 else float(self.ratio) * math.exp(float(self.log))

    @property
    def excess(self) -> Number:
        """The odds minus 1, without cancellation."""
        if self.log == 0:
            return self.ratio - 1
        return float(self.ratio) * math.expm1(float(self.log)) + float(self.ratio - 1)

    @property
    def epsilon(self) -> float:
        """|log odds|, rounded up: never below the true cost of a report."""
        if self.ratio == 1:
            return up(abs(self.log))
        return abs(log(self.ratio) + float(self.log)) * (1 + ROUNDING)

    def root(self) -> Odds:
        """The odds for ε/2. Raises InvalidParameter for rational odds that are not a square."""
        root = root_up(self.ratio)
        if root * root != self.ratio:
            raise InvalidParameter("odds", self.ratio, "must be the square of a rational number here", "give epsilon")
        return Odds(root, self.log / 2)

    def heads(self, size: int, entropy: Entropy | None, *, yes: int = 1, no: int = 1) -> NDArray[np.bool_]:
        """Coins that are True with probability yes × odds / (yes × odds + no)."""
        return _coin(self, yes, no).spin(size=size, entropy=entropy).view(np.bool_)

    def rare_bits(self, shape: tuple[int, ...], entropy: Entropy | None) -> NDArray[np.uint8]:
        """Bytes in which each bit is independently 1 with probability 1 / (1 + odds). One draw from a wheel of all 256
        bytes gives eight bits.
        """
        return _bytes(self).spin(size=shape, entropy=entropy).astype(np.uint8, copy=False)

    def away(self, categories: int, size: int, entropy: Entropy | None) -> NDArray[np.unsignedinteger[Any]]:
        """The cyclic distance of each report from the answer: 0 with weight odds, each other distance with weight 1."""
        if categories <= MOST_ON_A_WHEEL:
            return _distances(self, categories).spin(size=size, entropy=entropy)
        lies = noise.uniform(below=categories - 1, size=size, entropy=entropy).astype(np.uint32)
        lies += np.uint32(1)
        lies[self.heads(size, entropy, no=categories - 1)] = 0
        return lies

    def written(self) -> dict[str, float | str]:
        """The keyword argument that constructs these odds again."""
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


# The odds are public, so their wheels may be cached: about half a megabyte each.


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
    """log ratio, with a relative error below half of ROUNDING, also near 1."""
    return math.log1p(float(ratio - 1)) if Fraction(1, 2) < ratio < 2 else math.log(float(ratio))


def exact(value: Fraction) -> float | str:
    """A rational number for JSON: a float if it is exact, otherwise "numerator/denominator"."""
    near = float(value)
    return near if Fraction(near) == value else f"{value.numerator}/{value.denominator}"
