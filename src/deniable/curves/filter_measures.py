"""The four measures that filters add up, each as one object: ε, ρ, μ², and Rényi divergence at one order.

A measure knows how the cost of a curve is read (exactly where a formula exists, from above otherwise), how an amount
enters the sum (μ by its square, the others unchanged), and how an amount converts to (ε, δ)-DP. Filters, odometers and
budgets call its methods and never compare names.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, final

from deniable.curves.decimal_arithmetic import up
from deniable.curves.exact_amounts import UNIT
from deniable.curves.textbook.conversions import gdp_to_epsilon, renyi_to_epsilon, zcdp_to_epsilon_optimised
from deniable.errors import InvalidParameter

if TYPE_CHECKING:
    from deniable.curves.atoms.atom import Atom


class Priced(Protocol):
    """The numbers that a filter asks of a curve. Each is an upper bound, and `math.inf` means that no bound exists."""

    def epsilon(self, *, delta: float) -> float:
        """The smallest ε of the curve at this δ. Filters call it with δ = 0."""

    def renyi(self, *, order: float) -> float:
        """Rényi divergence of this order."""

    def gdp(self) -> float:
        """Smallest μ."""

    def zcdp(self) -> float:
        """Smallest ρ: the supremum of renyi(order)/order."""


class PrivacyMeasure(ABC):
    """A quantity that a filter adds up, such as ε, ρ or μ². An amount of it bounds the privacy loss of one release."""

    __slots__ = ()

    name: ClassVar[str]
    """The name in claims."""

    method: ClassVar[str]
    """The method of a curve that gives an upper bound."""

    power: ClassVar[int] = 1
    """The power at which amounts add up: 2 for μ, because μ² adds."""

    is_pure: ClassVar[bool] = False
    """Whether an amount alone, at δ = 0, promises (ε, 0)-DP."""

    @abstractmethod
    def bound(self, read: Any) -> float:
        """An upper bound on the amount of a curve. `read` is the bound method `method` of the curve."""

    @abstractmethod
    def exact(self, atom: Atom) -> Fraction | None:
        """The exact cost of an atom, from its parameters; None if no formula is known."""

    @abstractmethod
    def epsilon(self, amount: Fraction, delta: Fraction) -> float:
        """The ε of (ε, δ)-DP that this amount implies, rounded up. δ must be above 0 unless `is_pure`."""

    def cost(self, curve: Priced | None, amount: Fraction | None, parameter: str) -> int:
        """The cost in units, rounded up, of the curve or of the amount, whichever is given; -1 if it is infinite.

        `parameter` is the keyword of the amount, for errors. Raises InvalidParameter unless exactly one of the two is
        given, and for anything that is not a curve.
        """
        if (curve is None) == (amount is None):
            remedy = f"write charge({parameter}=...) or charge(curve)"
            raise InvalidParameter(parameter, None, "give exactly one cost", remedy)
        if amount is not None:
            return math.ceil(amount**self.power / UNIT)
        exact = self._exact_of_curve(curve)
        if exact is not None:
            return math.ceil(exact / UNIT)
        read = getattr(curve, self.method, None)
        if not callable(read):
            remedy = f"give a number by its name: charge({parameter}=...)"
            raise InvalidParameter("curve", curve, f"must be a curve with a method {self.method}()", remedy)
        bound = float(self.bound(read))
        if bound == math.inf:
            return -1
        if not bound >= 0:
            raise InvalidParameter("curve", bound, f"its {self.method}() must be at least 0")
        return math.ceil(Fraction(bound) ** self.power / UNIT)  # the bound holds for its exact binary value

    def _exact_of_curve(self, curve: object) -> Fraction | None:
        """The exact cost of a curve, the sum over its factors; None if the formula of some factor is not known.

        Floats read from a curve are rounded up. A budget that a curve fills exactly would refuse such a cost.
        """
        from deniable.curves.curve import Curve

        if not isinstance(curve, Curve):
            return None
        total = Fraction(0)
        for atom, count in curve.factors:
            one = self.exact(atom)
            if one is None:
                return None
            total += count * one
        return total


@final
@dataclass(frozen=True, slots=True)
class PureMeasure(PrivacyMeasure):
    """ε of pure DP."""

    name = "epsilon"
    method = "epsilon"
    is_pure = True

    def bound(self, read: Any) -> float:
        return float(read(delta=0.0))

    def exact(self, atom: Atom) -> Fraction | None:
        return atom.exact_epsilon()

    def epsilon(self, amount: Fraction, delta: Fraction) -> float:
        return up(amount)


@final
@dataclass(frozen=True, slots=True)
class ZCDPMeasure(PrivacyMeasure):
    """ρ of zCDP."""

    name = "rho"
    method = "zcdp"

    def bound(self, read: Any) -> float:
        return float(read())

    def exact(self, atom: Atom) -> Fraction | None:
        return atom.exact_rho()

    def epsilon(self, amount: Fraction, delta: Fraction) -> float:
        return zcdp_to_epsilon_optimised(rho=amount, delta=delta).bound


@final
@dataclass(frozen=True, slots=True)
class RenyiMeasure(PrivacyMeasure):
    """Rényi divergence at one order."""

    order: float

    name = "renyi"
    method = "renyi"

    def bound(self, read: Any) -> float:
        return float(read(order=self.order))

    def exact(self, atom: Atom) -> Fraction | None:
        return atom.exact_renyi(self.order)

    def epsilon(self, amount: Fraction, delta: Fraction) -> float:
        return renyi_to_epsilon(order=self.order, renyi=amount, delta=delta)


@final
@dataclass(frozen=True, slots=True)
class GaussianMeasure(PrivacyMeasure):
    """μ of Gaussian DP: μ² adds."""

    name = "mu"
    method = "gdp"
    power = 2

    def bound(self, read: Any) -> float:
        return float(read())

    def exact(self, atom: Atom) -> Fraction | None:
        return atom.exact_square()

    def epsilon(self, amount: Fraction, delta: Fraction) -> float:
        return gdp_to_epsilon(mu=amount, delta=delta)


EPSILON: Final = PureMeasure()
RHO: Final = ZCDPMeasure()
MU: Final = GaussianMeasure()

MEASURES: Final[Mapping[str, PrivacyMeasure]] = MappingProxyType({each.name: each for each in (EPSILON, RHO, MU)})
"""The measures without a parameter of their own, by their names in claims and in the arguments of budgets."""
