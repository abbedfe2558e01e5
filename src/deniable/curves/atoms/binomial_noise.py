"""Binomial noise: a statistic plus the number of heads of n coins. Many people can each add a few coins.

The statistic is a whole number that moves by `sensitivity` = s. One neighbour's output is B, the other's B + s, B ~
Binomial(n, p). If p is not 1/2, the two directions differ. A person may raise the statistic or lower it, so the
direction may flip from one use to the next. Both laws are finite, so the pair is exact. Outputs below s are impossible
for B + s, and outputs above n for B: the loss is infinite there, and δ is at least P(B < s). (Dwork, Kenthapadi,
McSherry, Mironov & Naor 2006, "Our data, ourselves", use fair coins; Agarwal, Suresh, Yu, Kumar & McMahan 2018,
"cpSGD", bound other p.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from deniable.curves import curve_arguments
from deniable.curves.atoms.atom import Atom
from deniable.curves.curve import Curve
from deniable.curves.laws import finite_law
from deniable.curves.laws.law import LawPair, Sided
from deniable.curves.outward_rounding import Floats
from deniable.errors import InvalidParameter

MOST_COINS = 10**9
DIGITS = 4e-11
"""Relative error that covers every mass twice: a loss is a difference of two logarithms."""


@final
@dataclass(frozen=True, slots=True)
class BinomialAtom(Atom):
    """The number of heads of `coins` coins of probability `p`, against the same number plus `sensitivity`."""

    name: ClassVar[str] = "binomial"
    usual: ClassVar[Mapping[str, object]] = {"p": 0.5, "sensitivity": 1}
    coins: int
    p: float
    sensitivity: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "coins", curve_arguments.integer("coins", self.coins, 1))
        object.__setattr__(self, "p", curve_arguments.inner_probability("p", self.p))
        object.__setattr__(self, "sensitivity", curve_arguments.integer("sensitivity", self.sensitivity, 1))
        if self.coins > MOST_COINS:
            raise InvalidParameter("coins", self.coins, f"must be at most {MOST_COINS:,}")
        if not 1e-6 <= self.p <= 1 - 1e-6:
            raise InvalidParameter("p", self.p, "must lie between 1e-6 and 1 - 1e-6")

    @property
    def tied(self) -> bool:
        # A person may raise the statistic or lower it. With fair coins both cases have the same pair of laws.
        return self.p == 0.5

    def pair(self) -> LawPair:
        n, s = self.coins, self.sensitivity
        spread = math.sqrt(n * self.p * (1 - self.p))
        # Bernstein: beyond this both tails are below e^-210, less than half of NEGLIGIBLE.
        reach = 20.5 * spread + 140 + 1
        first, last = max(0, math.floor(n * self.p - reach)), min(n, math.ceil(n * self.p + reach))
        if last - first + 1 > finite_law.LARGEST_SUPPORT:
            raise InvalidParameter(
                "coins", n, "gives more outputs than can be enumerated", "use fewer coins and coarser steps"
            )
        numbers = np.arange(first, last + 1, dtype=float)
        logs = finite_law.log_binomial(n, numbers, self.p)
        # The output b has mass P(B = b) without the shift, and P(B = b - s) with it.
        ahead = self._side(numbers, logs, numbers - s)
        # Heads and tails of fair coins may be exchanged, and with them the two directions.
        return LawPair(ahead, ahead if self.p == 0.5 else self._side(numbers, logs, numbers + s))

    def _side(self, numbers: Floats, logs: Floats, other: Floats) -> Sided:
        """Bounds on the law of the loss. `logs` are the log masses of `numbers`; the other law has the masses of
        `other`.
        """
        possible = (other >= 0) & (other <= self.coins)
        losses = logs[possible] - finite_law.log_binomial(self.coins, other[possible], self.p)
        surely = float(np.sum(np.exp(logs[~possible])))
        error = DIGITS * (1 + float(np.max(np.abs(losses), initial=0.0)))
        masses = np.exp(logs[possible])
        up = finite_law.merged(
            losses + error, masses, surely * (1 + DIGITS) + finite_law.NEGLIGIBLE, DIGITS, side="upper"
        )
        low = finite_law.merged(losses - error, masses, surely * (1 - DIGITS), DIGITS, side="lower")
        return Sided(up, low)

    def grouped(self, size: int) -> Curve | None:
        return Curve.of(BinomialAtom(self.coins, self.p, self.sensitivity * size)).symmetrized()


def binomial(*, coins: int, p: float = 0.5, sensitivity: int = 1) -> Curve:
    """Noise of `coins` coins with probability `p` of heads, on an integer statistic that moves by `sensitivity`.

    Promise: for data whose statistics differ by `sensitivity`, whichever is larger. Some outputs are possible for only
    one of the two, so δ is never 0. `coins` is at most 10^9 and `p` from 1e-6 to 1 - 1e-6; raises InvalidParameter
    otherwise.

    >>> from deniable import curves
    >>> round(curves.binomial(coins=10_000).epsilon(delta=1e-6), 3)
    0.071
    """
    return Curve.of(BinomialAtom(coins, p, sensitivity))
