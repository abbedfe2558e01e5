"""An atom: one indivisible promise, the building block of a curve.

An atom is a frozen dataclass: its fields are its parameters, its `name` is stable and appears in stored records. What
it promises is its `pair()`: the laws of both directions. `tied` says that P always belongs to the same
neighbour (the dataset without the person), so that directions of different factors go together; if it is
False the direction may flip from one use to the next, and a product must symmetrise this atom first (see `product_of`
in curve_readings.py).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from deniable.curves.decimal_arithmetic import up
from deniable.curves.laws import laws_from_bounds
from deniable.curves.laws.law import LawPair

if TYPE_CHECKING:
    from deniable.curves.curve import Curve


class Atom(ABC):
    """One indivisible promise. Subclasses are final frozen dataclasses."""

    __slots__ = ()
    name: ClassVar[str]

    @property
    def tied(self) -> bool:
        """Whether P always belongs to the neighbour without the person. True is harmless when both directions are
        alike.
        """
        return True

    @property
    def renyi_only(self) -> bool:
        """Whether the promise is a bound on Rényi divergences, so that products are also read through those."""
        return False

    @property
    def is_exact(self) -> bool:
        """Whether `pair()` is the pair of laws of the mechanism itself. False where it only dominates: a promise such
        as ε-DP, which many mechanisms keep. Then the distribution of the loss is not known.
        """
        return not self.renyi_only

    @abstractmethod
    def pair(self) -> LawPair:
        """The laws of both directions. Called once for each atom (see `pair_of`)."""

    def possible_pairs(self) -> tuple[LawPair, ...]:
        """The pairs of laws of which one, nobody knows which, is that of the mechanism: their moments are not those of
        `pair()`, which has the worst profile of all. Empty if they cannot be listed: `pair()` then only dominates them.
        """
        return (pair_of(self),)

    @abstractmethod
    def expression(self) -> str:
        """How a user would write it."""

    def exact_epsilon(self) -> Fraction | None:
        """The ε of pure DP that the parameters say, without rounding."""
        return None

    def exact_square(self) -> Fraction | None:
        """The μ² of Gaussian DP that the parameters say, without rounding."""
        return None

    def exact_rho(self) -> Fraction | None:
        """The ρ of zCDP that the parameters say, without rounding."""
        return None

    def exact_renyi(self, order: float) -> Fraction | None:
        """The Rényi divergence of a finite order that the parameters say, without rounding: ρ × order."""
        rho = self.exact_rho()
        return None if rho is None else rho * Fraction(order)

    def alternatives(self) -> tuple[tuple[Curve, bool], ...]:
        """The curves of which one, nobody knows which, holds for a pair of neighbours, each with whether it is read as
        it is (True) or reversed; empty for a single pair of laws.

        The profile is the worst of theirs at every ε, which is that of no pair: a divergence is the largest of theirs.
        """
        return ()

    def renyi_bound(self, order: float) -> float | None:
        """An upper bound on the Rényi divergence of this order in both directions, if there is a closed form."""
        if order == math.inf:
            return None if self.exact_renyi(1.0) is None else math.inf
        exact = self.exact_renyi(order)
        return None if exact is None else up(exact)

    def inherited_renyi(self, order: float) -> tuple[float, float] | None:
        """Upper bounds on the Rényi divergence of a finite order above 1, forward and backward, from those of the
        curves this atom is made from; None if it is made from none.

        For laws that were cut far out in their tails, so that their own moments say nothing.
        """
        return None

    def gdp_bound(self) -> float | None:
        """A μ for which this atom is proved μ-GDP, if there is a closed form; inf if there is none at all."""
        return None

    def zcdp_bound(self) -> float | None:
        """A ρ for which this atom is proved ρ-zCDP, if there is a closed form; inf if there is none at all."""
        rho = self.exact_rho()
        return None if rho is None else up(rho)

    def repeated(self, count: int) -> Atom | None:
        """One atom that promises the same as `count` uses of this one, if its family has one."""
        return None

    def grouped(self, size: int) -> Curve | None:
        """The curve for a group of `size`, if it has a closed form."""
        return None


@lru_cache(maxsize=65536)
def pair_of(atom: Atom) -> LawPair:
    """The laws of an atom, computed once."""
    return atom.pair()


@lru_cache(maxsize=4096)
def symmetrized_pair_of(atom: Atom) -> LawPair:
    """The atom with its worse direction at every ε (max of the two profiles), in both directions."""
    return laws_from_bounds.worse_direction(pair_of(atom))
