"""The two families of noise, Gaussian and Laplace, and all that questions need to know about each.

The currency of a budget decides the family: `budget.accounting.shape`. The Gaussian currencies (μ² and ρ) pay for
rounded Gaussian noise, pure ε for discrete Laplace noise. The families differ in

- the mechanism that adds noise to a statistic, or to running totals over cells;
- precision (1/variance, up to a factor): Gaussian noise has σ² = Δ²/μ², so precision is proportional to the cost;
  Laplace noise has a standard deviation of about √2 Δ/ε, so precision is proportional to the square of the cost;
- tricks that help one family only: a sum released together with its count, and a quantile by the exponential mechanism.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, final

from deniable.curves.filters import UNIT
from deniable.ledger.currency import Shape
from deniable.mechanisms import DiscreteLaplace, Gaussian, Mechanism, noise_quantiles
from deniable.mechanisms.prefix_sums import GaussianPrefixSums, LaplacePrefixSums

if TYPE_CHECKING:
    from deniable.ledger import Budget, Cost
    from deniable.ledger.currency import Currency
    from deniable.queries.relations.exact_statistics import Moves, Reach

MARGIN: Final = Fraction(2**40 - 1, 2**40)
"""Noise is made for a level smaller by this factor, so that roundings never cost more than was charged."""

_EXACT: Final = 1 - 1e-9
"""A factor that makes `equal_units` a little too small, by more than its rounding errors."""

_HALF_NORMAL: Final = math.sqrt(2 / math.pi)


class NoiseFamily(ABC):
    """One family of noise. `level` is an amount of the currency as people write it: μ, ρ or ε."""

    __slots__ = ()

    name: ClassVar[str]
    """The name of the family in a sentence, before the word "noise"."""

    statement: ClassVar[str]
    """What a methods section says about the noise."""

    measured_together: ClassVar[str]
    """What noise is added to when several tables are measured at once."""

    releases_pairs: ClassVar[bool]
    """Whether a sum and its count are released as one vector, which helps only under L1 sensitivity."""

    draws_quantiles: ClassVar[bool]
    """Whether a single quantile may be drawn by the exponential mechanism, whose cost is a pure ε."""

    @abstractmethod
    def mechanism(
        self, cells: int | None, moves: Moves, weight: Fraction, currency: Currency, level: Fraction
    ) -> Mechanism:
        """The mechanism for a statistic with sensitivity `moves`, at a share `weight` of a level. With `cells`, the
        mechanism for running totals over so many cells.
        """

    @abstractmethod
    def precision(self, units: int) -> Fraction:
        """1/variance, up to a factor, of the noise that these units buy."""

    @abstractmethod
    def units_at(self, precision: Fraction) -> int:
        """The units that buy this precision, rounded down."""

    @abstractmethod
    def equal_units(self, currency: Currency, moves: Moves, variance: float) -> int:
        """The units at which a count or sum with sensitivity `moves` has noise of this variance, rounded down."""

    @abstractmethod
    def count_cost(self, budget: Budget, rows: int, near: int, missed: float) -> Cost:
        """The cost of a count that is off by more than `near` with probability `missed`; a person has `rows` rows."""

    @abstractmethod
    def length(self, reach: Reach) -> float:
        """The most that a person's rows move a statistic of rows, in the norm that noise is proportional to."""

    @abstractmethod
    def mean_distance(self, deviation: float) -> float:
        """E|x| of noise of this standard deviation on a count."""


@final
class GaussianFamily(NoiseFamily):
    """Gaussian noise, rounded to whole numbers."""

    __slots__ = ()

    name = "Gaussian"
    statement = (
        "Normal noise, rounded to whole numbers, was added to counts, and to sums on a fine grid (the Gaussian "
        "mechanism)"
    )
    measured_together = "residual"
    releases_pairs = False
    draws_quantiles = False

    def mechanism(
        self, cells: int | None, moves: Moves, weight: Fraction, currency: Currency, level: Fraction
    ) -> Mechanism:
        mu = math.sqrt(currency.mu2_of_level(level) * weight) * float(MARGIN)
        if cells is not None:
            return GaussianPrefixSums(cells=cells, sensitivity=moves.l1, mu=mu)
        return Gaussian.whole(sensitivity=moves.sensitivity, mu=mu)

    def precision(self, units: int) -> Fraction:
        return Fraction(units)

    def units_at(self, precision: Fraction) -> int:
        return math.floor(precision)

    def equal_units(self, currency: Currency, moves: Moves, variance: float) -> int:
        square = Fraction(moves.l2_squared) / Fraction(variance) * Fraction(_EXACT)
        return math.floor(currency.units_of_mu2(square))

    def count_cost(self, budget: Budget, rows: int, near: int, missed: float) -> Cost:
        # Rounded noise is off by more than `near` where the noise before rounding exceeds near + 1/2.
        return budget.cost(mu=Fraction(rows * noise_quantiles.normal(missed) / (near + 0.5)))

    def length(self, reach: Reach) -> float:
        return math.sqrt(reach.squares)

    def mean_distance(self, deviation: float) -> float:
        return _HALF_NORMAL * deviation


@final
class LaplaceFamily(NoiseFamily):
    """Discrete Laplace noise: P(x) is proportional to r^|x|, r = e^(-ε/Δ)."""

    __slots__ = ()

    name = "discrete Laplace"
    statement = (
        "Discrete Laplace noise was added to counts, and to sums on a fine grid (the geometric mechanism); a single "
        "quantile is drawn by the exponential mechanism"
    )
    measured_together = "table"
    releases_pairs = True
    draws_quantiles = True

    def mechanism(
        self, cells: int | None, moves: Moves, weight: Fraction, currency: Currency, level: Fraction
    ) -> Mechanism:
        epsilon = level * weight
        if cells is not None:
            return LaplacePrefixSums(cells=cells, sensitivity=moves.l1, epsilon=epsilon)
        return DiscreteLaplace(sensitivity=moves.l1, epsilon=epsilon)

    def precision(self, units: int) -> Fraction:
        return Fraction(units) ** 2

    def units_at(self, precision: Fraction) -> int:
        return math.isqrt(math.floor(precision))

    def equal_units(self, currency: Currency, moves: Moves, variance: float) -> int:
        # The variance is 1/(cosh(ε/Δ) - 1).
        return math.floor(Fraction(moves.l1 * math.acosh(1 + 1 / variance) * _EXACT) / UNIT)

    def count_cost(self, budget: Budget, rows: int, near: int, missed: float) -> Cost:
        # Solves 2r^(near + 1)/(1 + r) = missed for log r.
        loss = math.log(2 / missed) / (near + 1)
        for _ in range(64):  # from above, and every step is nearer to the solution than the one before
            loss = (math.log(2 / missed) - math.log1p(math.exp(-loss))) / (near + 1)
        return budget.cost(epsilon=Fraction(rows * loss))

    def length(self, reach: Reach) -> float:
        return reach.in_all

    def mean_distance(self, deviation: float) -> float:
        variance = deviation**2  # 1/(cosh a - 1), where E|x| = 1/sinh a
        return variance / math.sqrt(2 * variance + 1)


FAMILIES: Final[Mapping[Shape, NoiseFamily]] = MappingProxyType(
    {Shape.NORMAL: GaussianFamily(), Shape.LAPLACE: LaplaceFamily()}
)


def family_of(budget: Budget) -> NoiseFamily:
    """The family of noise that a budget pays for."""
    return FAMILIES[budget.accounting.shape]
