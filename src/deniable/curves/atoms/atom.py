"""An atom: one indivisible guarantee, the building block of a curve.

An atom is a frozen dataclass: its fields are its parameters, and its `name` is stable and appears in stored records.
Its guarantee is its `pair()`: the laws of both directions. `tied` says that P always belongs to the same neighbour (the
dataset without the person), so that the directions of different factors go together. If it is False, the direction may
flip from one use to the next, and a product must symmetrise this atom first (see `product_of` in curve_readings.py).

To add a mechanism, write a dataclass with `name`, its fields, `__post_init__` for the checks, and `pair()`. The methods
that return None by default are optional closed forms; each one that is given makes some number exact or faster.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from deniable.curves.decimal_arithmetic import up
from deniable.curves.laws import laws_from_bounds
from deniable.curves.laws.law import LawPair

if TYPE_CHECKING:
    from deniable.curves.curve import Curve


def show(value: float) -> str:
    """A parameter as a user would type it; parsing it gives the same number."""
    short = str(value) if isinstance(value, int) else f"{value:.12g}"
    return short if float(short) == value else repr(value)


class Atom(ABC):
    """One indivisible guarantee. Subclasses are final frozen dataclasses."""

    __slots__ = ()
    name: ClassVar[str]

    @property
    def tied(self) -> bool:
        """Whether P always belongs to the neighbour without the person. True is safe if both directions are alike."""
        return True

    @property
    def renyi_only(self) -> bool:
        """Whether the guarantee is a bound on Rényi divergences. Products with such a factor are also bounded by their
        divergences.
        """
        return False

    @property
    def is_exact(self) -> bool:
        """Whether `pair()` is the pair of laws of the mechanism itself.

        If False, the pair only dominates the mechanism's own pair, because the atom is a guarantee such as ε-DP that
        many mechanisms have. Then the distribution of the privacy loss is unknown.
        """
        return not self.renyi_only

    @abstractmethod
    def pair(self) -> LawPair:
        """The laws of both directions. Called once for each atom (see `pair_of`)."""

    def possible_pairs(self) -> tuple[LawPair, ...]:
        """All pairs of laws that the mechanism may have, if it has one of several and it is unknown which.

        Moments of the loss are computed for each of them, because `pair()`, the worst profile of all, may have smaller
        moments. Empty if they cannot be listed: then `pair()` only dominates them.
        """
        return (pair_of(self),)

    usual: ClassVar[Mapping[str, object]] = {}
    """Values of fields that a user leaves out of an expression."""

    def expression(self) -> str:
        """The atom as a user would write it: its name and its fields, except those with their usual value."""
        fields = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]  # every atom is a dataclass
        given = {name: getattr(self, name) for name in fields}
        shown = [f"{name}={show(value)}" for name, value in given.items() if self.usual.get(name) != value]
        return f"{self.name}({', '.join(shown)})"

    def exact_epsilon(self) -> Fraction | None:
        """The exact ε of pure DP, from the parameters; None if there is no formula."""
        return None

    def exact_square(self) -> Fraction | None:
        """The exact μ² of Gaussian DP, from the parameters; None if there is no formula."""
        return None

    def exact_rho(self) -> Fraction | None:
        """The exact ρ of zCDP, from the parameters; None if there is no formula."""
        return None

    def exact_renyi(self, order: float) -> Fraction | None:
        """The exact Rényi divergence of a finite order, from the parameters: ρ × order; None if there is no formula."""
        rho = self.exact_rho()
        return None if rho is None else rho * Fraction(order)

    def alternatives(self) -> tuple[tuple[Curve, bool], ...]:
        """For an atom without a single pair of laws: (curve, True), or (curve, False) for a curve that holds in the
        reverse direction. For each pair of neighbours one of them holds, and it is unknown which. Empty for an atom
        with a single pair of laws.

        The profile of the atom is the largest of their profiles at every ε. No single pair of laws has this profile, so
        a divergence of the atom is the largest of their divergences.
        """
        return ()

    def renyi_bound(self, order: float) -> float | None:
        """An upper bound on the Rényi divergence of this order in both directions, if there is a closed form."""
        if order == math.inf:
            return None if self.exact_renyi(1.0) is None else math.inf
        exact = self.exact_renyi(order)
        return None if exact is None else up(exact)

    def inherited_renyi(self, order: float) -> tuple[float, float] | None:
        """Upper bounds on the Rényi divergence of a finite order above 1, forward and backward, from the divergences of
        the curves inside this atom; None if it contains none.

        For laws whose far tails were cut off, so that their own moments are infinite.
        """
        return None

    def gdp_bound(self) -> float | None:
        """A μ for which this atom is proved to be μ-GDP, in closed form; inf if no μ holds, None if no closed form is
        known.
        """
        return None

    def zcdp_bound(self) -> float | None:
        """A ρ for which this atom is proved to be ρ-zCDP, in closed form; inf if no ρ holds, None if no closed form is
        known.
        """
        rho = self.exact_rho()
        return None if rho is None else up(rho)

    def covers(self, curve: Curve) -> bool:
        """Whether this atom provably leaks at least as much as `curve` everywhere. False means "not known"."""
        return False

    def repeated(self, count: int) -> Atom | None:
        """One atom with the same guarantee as `count` uses of this one, if its family has one."""
        return None

    def grouped(self, size: int) -> Curve | None:
        """The curve for a group of `size`, if it has a closed form."""
        return None


@lru_cache(maxsize=65536)
def pair_of(atom: Atom) -> LawPair:
    """The laws of an atom, cached."""
    return atom.pair()


@lru_cache(maxsize=4096)
def symmetrized_pair_of(atom: Atom) -> LawPair:
    """The atom with its worse direction at every ε (max of the two profiles), in both directions."""
    return laws_from_bounds.worse_direction(pair_of(atom))
