"""Microsoft's means: a number that is collected repeatedly, one bit each time, from memoised bits.

Three parts (Ding, Kulkarni & Yekhanin 2017):

- **1-bit mean.** P(1 | x) = 1/(E + 1) + (x - low)/(high - low)·(E - 1)/(E + 1), E = e^ε: Duchi's bit (`DuchiMean`).
- **Memoization with α-point rounding.** Numbers change a little from day to day, and a fresh bit each day would cost ε
  each day. So each person draws, once and for all, a secret offset α within a step of a coarse grid, and one bit for
  each grid point. A number x between the points k and k + 1 is rounded up if its part above k, plus α, reaches a step;
  averaged over α, the rounded number is x. The person then always reports the bit of that point.
- **Output perturbation.** The bit is flipped with probability γ = `flip` before it is reported, afresh each time.

What is certified. The memory is drawn before any number is known, so its law does not depend on the numbers.

- *A number that stays the same*, any number of reports: all reports come from one bit, whose law is Duchi's. So they
  reveal no more than randomized response at ε: `longitudinal`.
- *Any numbers*, T reports: given the memory, a report is a bit that is kept with probability 1 - γ. So T reports reveal
  no more than T randomized responses at log((1 - γ)/γ), and less to anyone who does not know the memory: `changing`.
  Without a flip this bound does not hold: a report that differs from the previous one proves that the number changed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from numpy.typing import NDArray

from deniable import arguments, curves, noise
from deniable.arguments import PROBABILITY, NumberRange, at_least
from deniable.curves import Curve
from deniable.errors import NOTHING, InvalidParameter
from deniable.local import report_checks
from deniable.local.exact_odds import ROUNDING, Odds, Rational, exact
from deniable.local.local_protocol import Parameter
from deniable.local.numeric_means import FINENESS, MeanProtocol, Spread, on_grid
from deniable.local.report_checks import Floats, Ints
from deniable.noise.entropy import checked_entropy

if TYPE_CHECKING:
    from deniable.noise import Entropy

MOST_POINTS: Final = 4096
_POINTS: Final = NumberRange(f"must lie between 1 and {MOST_POINTS:,}", least=1, most=MOST_POINTS)
_FLIP: Final = NumberRange(
    "must be at least 0 and below 1/2: at 1/2 a report is pure noise", least=0, below=Fraction(1, 2)
)

Bits = NDArray[np.bool_]


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MeanMemory:
    """The random draws that each person keeps. Secret: each row belongs to its person and must never be collected."""

    starts: Ints
    """α of each person, in fine steps."""
    bits: Bits
    """One bit of each person for each point of the grid."""

    def __len__(self) -> int:
        return len(self.starts)

    def __repr__(self) -> str:
        return f"MeanMemory(people={len(self)})"


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class MemoisedMean(MeanProtocol):
    """The mean of a number that is collected repeatedly: one memoised bit for each of `points` + 1 points between the
    bounds, flipped with probability `flip` in [0, 1/2) when it is reported.

    For all numbers of one person: `curve` is one report, `longitudinal` any number of reports of a number that stays
    the same, `changing(reports=)` that many reports of any numbers. ±(E+1)/((E-1)(1-2γ)) is unbiased.

    >>> protocol = MemoisedMean(low=0, high=24, points=12, epsilon=1.0, flip=0.2)
    >>> memory = protocol.memorize(people=3)  # once, before there is any number; each person keeps their own
    >>> monday, tuesday = protocol.report(memory, [3.5, 0.2, 8.0]), protocol.report(memory, [3.4, 0.0, 9.5])
    >>> round(protocol.curve.epsilon(delta=0), 4), round(protocol.longitudinal.epsilon(delta=0), 4)
    (0.5694, 1.0)
    >>> round(protocol.changing(reports=7).epsilon(delta=0), 4)
    9.7041

    Source: Ding, Kulkarni & Yekhanin (2017), sections 2, 3 and 4.
    """

    low: Fraction
    high: Fraction
    odds: Odds
    points: int
    flip: Fraction

    def __init__(self, *, low: Rational, high: Rational, epsilon: Rational, points: int, flip: Rational) -> None:
        self._prepare(low, high, epsilon)
        count, chance = arguments.whole("points", points, _POINTS), arguments.rational("flip", flip, PROBABILITY, _FLIP)
        if chance:
            Odds((1 - chance) / chance, Fraction(0)).within("flip", flip)
        object.__setattr__(self, "points", count)
        object.__setattr__(self, "flip", chance)

    # -- guarantees ----------------------------------------------------------------------------------------------------

    @property
    def curve(self) -> Curve:
        """One report: the odds of its bit are ((1-γ)E + γ) : ((1-γ) + γE)."""
        if not self.flip:
            return self.longitudinal
        flip, excess = float(self.flip), float(self.odds.excess)
        epsilon = math.log1p((1 - 2 * flip) * excess / (1 + flip * excess)) * (1 + 2 * ROUNDING)
        return curves.randomized_response(epsilon=min(epsilon, self.odds.epsilon))

    @property
    def longitudinal(self) -> Curve:
        """The curve of any number of reports, if the person's number stays the same."""
        return curves.randomized_response(epsilon=self.odds.epsilon)

    def changing(self, *, reports: int) -> Curve:
        """The curve of this many reports, whatever the numbers are and however they change.

        One report costs `curve`. With several reports, each may cost as much as a bit that is flipped with probability
        `flip`. Raises InvalidParameter if `flip` is 0.
        """
        times = arguments.whole("reports", reports, at_least(1))
        if not self.flip:
            rule = "must be above 0: a bit that changes proves that the number changed"
            raise InvalidParameter(
                "flip", self.flip, rule, "give flip=, or use longitudinal for numbers that stay the same"
            )
        if times == 1:
            return self.curve
        epsilon = Odds((1 - self.flip) / self.flip, Fraction(0)).epsilon
        return curves.randomized_response(epsilon=epsilon) ** times

    # -- the people's side ---------------------------------------------------------------------------------------------

    def memorize(self, *, people: int, entropy: Entropy | None = None) -> MeanMemory:
        """The memory of each person: drawn once, independently of their numbers."""
        return self._memory(report_checks.people(people), checked_entropy(entropy))

    def report(self, memory: MeanMemory, answers: Any, *, entropy: Entropy | None = None) -> Ints:
        """One report of each person about their current number."""
        listed, _ = report_checks.numbers("answers", answers)
        if not isinstance(memory, MeanMemory) or memory.bits.shape != (len(listed), self.points + 1):
            raise InvalidParameter(
                "memory", NOTHING, "must be made by memorize of this protocol, a row for each answer"
            )
        return self._reported(memory, on_grid(listed, self.low, self.high, self.steps), checked_entropy(entropy))

    def respond(self, steps: Ints, entropy: Entropy | None) -> Ints:
        """One report each from a memory that is discarded: for people who are asked once."""
        return self._reported(self._memory(len(steps), entropy), steps, entropy)

    def _memory(self, people: int, entropy: Entropy | None) -> MeanMemory:
        starts = noise.uniform(below=self._step, size=people, entropy=entropy)
        size = people * (self.points + 1)
        places = np.tile(np.arange(self.points + 1), people)
        truth = noise.uniform(below=self.points, size=size, entropy=entropy) < places
        bits = truth == self.odds.heads(size, entropy)
        return MeanMemory(np.asarray(starts, dtype=np.int64), np.asarray(bits).reshape(people, self.points + 1))

    def _reported(self, memory: MeanMemory, steps: Ints, entropy: Entropy | None) -> Ints:
        # α < step, so a number on a grid point stays there, even on the last one.
        places = (steps + memory.starts) // self._step
        bits = memory.bits[np.arange(len(steps)), places]
        if self.flip:
            bits = bits ^ noise.bernoulli(p=self.flip, size=len(steps), entropy=entropy)
        return np.asarray(bits).astype(np.int64)

    def probabilities(self, answer: Any) -> dict[Any, float]:
        """P(0) and P(1) of the first report of a person with this answer."""
        kept, share = float(self.odds.number / (self.odds.number + 1)), self.place(answer) / self.steps
        bit = kept * share + (1 - kept) * (1 - share)
        one = bit + float(self.flip) * (1 - 2 * bit)
        return {0: 1 - one, 1: one}

    # -- the collector's side ------------------------------------------------------------------------------------------

    @property
    def outcomes(self) -> int:
        return 2

    @property
    def _step(self) -> int:
        """Fine steps between two points."""
        return FINENESS // self.points

    @property
    def steps(self) -> int:
        return self._step * self.points

    @property
    def spread(self) -> Spread:
        return Spread(-1.0, self._reach() ** 2)

    def unbiased(self, reports: Ints) -> Floats:
        return np.asarray((2 * reports - 1) * self._reach())

    def _reach(self) -> float:
        return float((self.odds.number + 1) / self.odds.excess / (1 - 2 * self.flip))

    def parameters(self) -> dict[str, Parameter]:
        return {**MeanProtocol.parameters(self), "points": self.points, "flip": exact(self.flip)}
