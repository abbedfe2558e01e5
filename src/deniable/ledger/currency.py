"""The three currencies that a budget can be counted in, each as one object.

=================  =====================  ========================  ==================================================
object             what adds              noise that it pays for    what everything released keeps
=================  =====================  ========================  ==================================================
`GAUSSIAN`         μ²                     Gaussian                  μ-GDP (Dong, Roth & Su 2022)
`PURE`             ε                      Laplace                   ε-DP
`ZCDP`             ρ                      Gaussian                  ρ-zCDP (Bun & Steinke 2016)
=================  =====================  ========================  ==================================================

A currency knows its name in records, its filter, the shape of its noise, and how an amount converts: from units to the
parameter of a mechanism and back. `budget.accounting` is the currency of a budget. Code that depends on the currency
calls a method here, and never compares names.

**Units and levels.** An amount is a whole number of units of 10^-30. Its *level* is the same amount in the parameter
that people write: μ for the Gaussian currency (a square root, because μ² adds), ε and ρ themselves for the others. A
level for choosing noise is rounded down; a level that a promise states is rounded up.

**Gaussian noise.** N(0, 1) against N(μ, 1) costs μ² in one currency and ρ = μ²/2 in the other (Bun & Steinke 2016,
Proposition 1.6). Its pure ε is infinite, so the pure currency refuses with InvalidOperation.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, Literal, final

from deniable.curves.decimal_arithmetic import down as float_down
from deniable.curves.filters import (
    UNIT,
    Amount,
    Filter,
    GaussianFilter,
    PureFilter,
    ZCDPFilter,
    exact_amount,
)
from deniable.errors import InvalidOperation
from deniable.ledger.epsilon_mu_conversion import mu_down, mu_up
from deniable.numbers import float_root_down

if TYPE_CHECKING:
    from deniable.curves import Curve

CurrencyName = Literal["mu2", "epsilon", "rho"]


class Shape(Enum):
    """The distribution of the noise in a number."""

    NORMAL = "normal"
    LAPLACE = "laplace"


class Currency(ABC):
    """What a budget is counted in. Amounts are whole units of 10^-30."""

    __slots__ = ()

    name: ClassVar[CurrencyName]
    """What adds, as records and `budget.currency` spell it."""

    parameter: ClassVar[str]
    """The keyword by which people write an amount of this currency: "mu", "epsilon" or "rho"."""

    constructor: ClassVar[str]
    """The class method of `Budget` that makes a budget of this currency."""

    shape: ClassVar[Shape]
    """The distribution of the noise that this currency pays for."""

    charges_sampling_with_delta: ClassVar[bool] = False
    """Whether subsampled Gaussian noise has a useful price only up to a δ. (Its ε and ρ are read off the curve.)"""

    @abstractmethod
    def filter(self, units: int, delta_units: int) -> Filter:
        """The filter with this limit, and nothing spent."""

    conversions: ClassVar[Mapping[str, Callable[[Fraction], Fraction]]]
    """From an amount of a parameter ("mu", "epsilon" or "rho") to its exact cost, for each that converts."""

    def cost_units(self, name: str, amount: Amount) -> int | None:
        """The units that an amount of `name` ("mu", "epsilon" or "rho") costs, rounded up.

        None if such an amount does not convert into this currency.
        """
        cost = self.conversions.get(name)
        return None if cost is None else math.ceil(cost(exact_amount(name, amount)) / UNIT)

    def level_down(self, units: int) -> Fraction:
        """The largest level that these units pay for: exact, or a root rounded down to sixty decimal places."""
        return units * UNIT

    def level_up(self, units: int) -> Fraction:
        """The smallest level that a release of this cost is sure to keep: exact, or a root rounded up."""
        return units * UNIT

    @abstractmethod
    def curve(self, level: float) -> Curve:
        """The promise of this level."""

    def epsilon_units(self, units: int) -> int | None:
        """The pure ε of these units, in units; None where they promise no pure ε."""
        return None

    @abstractmethod
    def choice_epsilon(self, units: int) -> Fraction:
        """About the largest ε of an exponential mechanism that these units pay for: its price, rounded up, may be
        higher by the rounding. Such a mechanism has ε-bounded range (Dong, Durfee & Rogers 2020).
        """

    # -- Gaussian noise ------------------------------------------------------------------------------------------------

    def mu2_units(self, units: int) -> int:
        """The μ² of the Gaussian noise that these units pay for, in units."""
        raise _no_gaussian_noise()

    def mu2_of_level(self, level: Fraction) -> Fraction:
        """The μ² of the Gaussian noise at this level."""
        raise _no_gaussian_noise()

    def units_of_mu2(self, square: Fraction) -> Fraction:
        """The exact cost, in units, of Gaussian noise of this μ². The caller rounds it to the side that is safe."""
        raise _no_gaussian_noise()

    def gaussian_mu(self, units: int) -> float:
        """The μ of the Gaussian noise that these units pay for, rounded down."""
        raise _no_gaussian_noise()


def _no_gaussian_noise() -> InvalidOperation:
    return InvalidOperation("this adds Gaussian noise, which has no pure ε; open the session with a δ in its budget")


@final
@dataclass(frozen=True, slots=True)
class GaussianCurrency(Currency):
    """μ² of Gaussian differential privacy: squares add.

    >>> GAUSSIAN.level_down(25 * 10**28), GAUSSIAN.cost_units("rho", "0.125")
    (Fraction(1, 2), 250000000000000000000000000000)
    """

    name = "mu2"
    parameter = "mu"
    constructor = "gaussian"
    shape = Shape.NORMAL
    charges_sampling_with_delta = True
    conversions = MappingProxyType({"mu": lambda mu: mu**2, "rho": lambda rho: 2 * rho})

    def filter(self, units: int, delta_units: int) -> Filter:
        # An upper end of the root is squared and rounded down to whole units. This is exactly the limit below 2^200
        # units, and a budget of the largest μ, 1000, has fewer than 2^120.
        return GaussianFilter(mu=mu_up(units), delta=delta_units * UNIT)

    def level_down(self, units: int) -> Fraction:
        return mu_down(units)

    def level_up(self, units: int) -> Fraction:
        return mu_up(units)

    def curve(self, level: float) -> Curve:
        from deniable import curves

        return curves.gaussian(mu=level)

    def mu2_units(self, units: int) -> int:
        return units

    def mu2_of_level(self, level: Fraction) -> Fraction:
        return level**2

    def units_of_mu2(self, square: Fraction) -> Fraction:
        return square / UNIT

    def choice_epsilon(self, units: int) -> Fraction:
        # An ε-bounded range is √(π/8) ε-GDP in the limit of small ε, and less for every other ε.
        return Fraction(float_down(mu_down(units))) / Fraction(math.sqrt(math.pi / 8))

    def gaussian_mu(self, units: int) -> float:
        return float_down(mu_down(units))


@final
@dataclass(frozen=True, slots=True)
class PureCurrency(Currency):
    """ε of pure differential privacy."""

    name = "epsilon"
    parameter = "epsilon"
    constructor = "pure"
    shape = Shape.LAPLACE
    conversions = MappingProxyType({"epsilon": lambda epsilon: epsilon})

    def filter(self, units: int, delta_units: int) -> Filter:
        return PureFilter(epsilon=units * UNIT, delta=delta_units * UNIT)

    def curve(self, level: float) -> Curve:
        from deniable import curves

        return curves.pure(epsilon=level)

    def epsilon_units(self, units: int) -> int | None:
        return units

    def choice_epsilon(self, units: int) -> Fraction:
        return units * UNIT


@final
@dataclass(frozen=True, slots=True)
class ZCDPCurrency(Currency):
    """ρ of zero-concentrated differential privacy.

    >>> ZCDP.mu2_units(10), ZCDP.units_of_mu2(2 * UNIT), ZCDP.cost_units("epsilon", 1) is None
    (20, Fraction(1, 1), True)
    """

    name = "rho"
    parameter = "rho"
    constructor = "zcdp"
    shape = Shape.NORMAL
    conversions = MappingProxyType({"rho": lambda rho: rho, "mu": lambda mu: mu**2 / 2})

    def filter(self, units: int, delta_units: int) -> Filter:
        return ZCDPFilter(rho=units * UNIT, delta=delta_units * UNIT)

    def curve(self, level: float) -> Curve:
        from deniable import curves

        return curves.zcdp(rho=level)

    def mu2_units(self, units: int) -> int:
        return 2 * units

    def mu2_of_level(self, level: Fraction) -> Fraction:
        return 2 * level

    def units_of_mu2(self, square: Fraction) -> Fraction:
        return square / (2 * UNIT)

    def choice_epsilon(self, units: int) -> Fraction:
        # An ε-bounded range is ε²/8-zCDP (Cesar & Rogers 2021).
        return Fraction(float_root_down(8 * units * UNIT))

    def gaussian_mu(self, units: int) -> float:
        return float_root_down(2 * units * UNIT)


GAUSSIAN: Final = GaussianCurrency()
PURE: Final = PureCurrency()
ZCDP: Final = ZCDPCurrency()

CURRENCIES: Final[Mapping[str, Currency]] = MappingProxyType({each.name: each for each in (GAUSSIAN, PURE, ZCDP)})
"""All currencies, by their names in records."""
