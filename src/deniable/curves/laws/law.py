"""A law: the privacy loss of one ordered pair of output distributions, given by its two tails.

For an ordered pair (P, Q) the privacy loss is L = log dP/dQ. Everything this room computes about the pair follows from
two functions of a threshold l:

    first(l)  = P(L > l)                        mass of the best test under P, infinite loss included
    second(l) = e^l Q(L > l)                    the same test under Q, scaled so that it never overflows

because the privacy profile is δ(ε) = first(ε) - second(ε) (Neyman-Pearson), and because *any* threshold t gives a valid
lower bound δ(ε) >= first(t) - e^(ε-t) second(t). A law states the relative error of its two numbers; `lattice.py` turns
it into certified masses.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from deniable.curves.outward_rounding import TINY, Floats


class Tails(NamedTuple):
    """Both tails at an array of thresholds, with a relative error that holds for each number."""

    first: Floats
    second: Floats
    error: Floats | float


class Law(ABC):
    """The loss of one ordered pair. Subclasses are final, frozen, and compare by value."""

    @property
    @abstractmethod
    def lowest(self) -> float:
        """Infimum of the loss on P's support (-inf if unbounded)."""

    @property
    @abstractmethod
    def highest(self) -> float:
        """Supremum of the finite loss (+inf if unbounded)."""

    @property
    def infinity(self) -> float:
        """P(L = +inf): the probability under P of outcomes that are impossible under Q."""
        return 0.0

    @property
    def infinity_error(self) -> float:
        """Relative error of `infinity`: 0 if it was given, a few roundings if it was computed."""
        return 0.0

    @property
    def atoms(self) -> tuple[float, ...]:
        """Losses that carry mass, if they are few: a lattice that contains them is exact there. Highest first."""
        return ()

    @property
    def jumps(self) -> tuple[float, ...]:
        """All losses at which P(L > loss) is known to jump: integrals over it are split there."""
        return self.atoms

    @property
    def scale(self) -> float:
        """A typical size of the loss, used only to place evaluation points."""
        top = self.highest if np.isfinite(self.highest) else 1.0
        bottom = self.lowest if np.isfinite(self.lowest) else -1.0
        return max(abs(top), abs(bottom), 1e-12)

    @abstractmethod
    def tails(self, loss: Floats) -> Tails:
        """P(L > loss) and e^loss Q(L > loss)."""

    def gaps(self, loss: Floats) -> tuple[Floats, Floats]:
        """P(L > loss) - e^loss Q(L > loss), and a bound on its absolute error.

        For a rare sample both tails are near 1 and their difference is near 0: a law that can compute the difference
        without cancellation overrides this.
        """
        first, second, error = self.tails(loss)
        return first - second, np.asarray(error * (first + second))

    def moment(self, order: float) -> float | None:
        """An upper bound on log E_P exp(order * L) in closed form; None if no closed form is known."""
        return None

    def loose_moment(self, order: float) -> float:
        """An upper bound on log E_P exp(order L), order >= 0, that need not be sharp: for orders at which sharper ones
        underflow.
        """
        return order * self.highest if self.infinity == 0 or order == 0 else math.inf

    def tail_moment(self, order: float, loss: float) -> float | None:
        """An upper bound on log E_P[exp(order L); L > loss], order >= 0, loss >= 0; None if unknown."""
        return -math.inf if loss >= self.highest and self.infinity == 0 else None

    def profile(self, epsilon: Floats) -> tuple[Floats, Floats]:
        """Certified bounds on δ(ε) = sup_S P(S) - e^ε Q(S)."""
        first, second, error = self.tails(epsilon)
        delta = first - second
        # Below the largest loss a tail may have underflowed; from it on only the mass at infinity is left.
        slack = np.where(epsilon < self.highest, error * (first + second) + TINY, self.infinity_error * first)
        # After an overflow to NaN only the trivial bounds are left.
        slack = np.where(np.isnan(slack) | np.isnan(delta), np.inf, slack)
        delta = np.nan_to_num(delta)
        low = np.maximum(delta - slack, np.maximum(-np.expm1(np.minimum(epsilon, 0.0)) * (1 - 1e-15), 0.0))
        return np.minimum(low, 1.0), np.clip(delta + slack, low, 1.0)


class UnboundedLaw(Law):
    """A loss without bounds in both directions."""

    @property
    def lowest(self) -> float:
        return -math.inf

    @property
    def highest(self) -> float:
        return math.inf


@dataclass(frozen=True, slots=True)
class Sided:
    """One direction of a guarantee: a law that leaks at least as much as the mechanism, and one that leaks at most as
    much.

    They are the same object if the pair is known exactly. They differ if the guarantee is only an inequality (zCDP), or
    if the exact law was cut to bounded memory.
    """

    upper: Law
    lower: Law

    @staticmethod
    def exact(law: Law) -> Sided:
        """The same law as both bounds."""
        return Sided(law, law)


@dataclass(frozen=True, slots=True)
class LawPair:
    """Both directions: forward compares (P, Q), backward compares (Q, P)."""

    forward: Sided
    backward: Sided

    @staticmethod
    def symmetric(law: Law) -> LawPair:
        """The same exact law in both directions."""
        return LawPair(Sided.exact(law), Sided.exact(law))

    @property
    def is_symmetric(self) -> bool:
        return self.forward is self.backward or self.forward == self.backward
