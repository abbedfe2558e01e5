"""The mean of a number: Duchi's one bit, the piecewise mechanism, and the hybrid of both.

Answers are clipped to the public bounds and rounded to the nearest point of a public grid; from there on everything is
integers and every probability is exact. With x the answer mapped to [-1, 1] and E = e^ε, s = e^(ε/2), the variance of
one report around x is

=================  ==============================================  ==================================================
DuchiMean          ((E + 1)/(E - 1))² - x²                         best for small ε
PiecewiseMean      x²/(s - 1) + (s + 3) / (3(s - 1)²)              best for large ε (exact form on the grid below)
HybridMean         the same for every x                            never worse than both in the worst case
=================  ==============================================  ==================================================

(Duchi, Jordan & Wainwright 2018; Wang, Xiao, Yang, Zhao, Hui, Shin, Shin & Yu 2019.)
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable import arguments, curves, noise
from deniable.curves import Curve
from deniable.errors import NOTHING, InvalidParameter
from deniable.local import report_checks
from deniable.local.collector_estimates import Mean
from deniable.local.exact_odds import ROUNDING, Odds, Rational, exact, log
from deniable.local.local_protocol import Parameter, Protocol, Telling, diluted
from deniable.local.report_checks import Floats, Ints
from deniable.noise.entropy import checked_entropy

if TYPE_CHECKING:
    from deniable.noise import Entropy

FINENESS: Final = 2**30
"""Duchi's answers lie on 2³⁰ + 1 points between the bounds."""

WINDOW: Final = 2**20
"""Least number of cells of the piecewise window: the grid then costs less than one part in 10⁵ of accuracy."""


@final
@dataclass(frozen=True, slots=True)
class Spread:
    """Variance of one report around the answer x in [-1, 1]: slope × x² + level."""

    slope: float
    level: float


class MeanProtocol(Protocol):
    """A protocol for a number between public bounds low < high. Reports are integers below `outcomes`."""

    __slots__ = ()
    low: Fraction
    high: Fraction
    odds: Odds

    @property
    @abstractmethod
    def outcomes(self) -> int:
        """One more than the largest report."""

    @property
    def first(self) -> int:
        """The smallest possible report."""
        return 0

    @property
    @abstractmethod
    def steps(self) -> int:
        """The number of steps of the answers' grid between the bounds."""

    @property
    @abstractmethod
    def spread(self) -> Spread:
        """The variance of one report as a function of the answer."""

    @abstractmethod
    def respond(self, steps: Ints, entropy: Entropy | None) -> Ints:
        """One report for each answer, given as its step on the grid (0 is `low`)."""

    @abstractmethod
    def unbiased(self, reports: Ints) -> Floats:
        """For each report, a number whose mean is the answer, in units of [-1, 1]."""

    def randomize(self, answers: Any, *, entropy: Entropy | None = None) -> Any:
        listed, alone = report_checks.numbers("answers", answers)
        reports = self.respond(on_grid(listed, self.low, self.high, self.steps), checked_entropy(entropy))
        return int(reports[0]) if alone else reports

    def place(self, answer: Any) -> int:
        """The grid step of one answer."""
        listed, alone = report_checks.numbers("answer", answer)
        if not alone:
            raise InvalidParameter("answer", NOTHING, "must be one number")
        return int(on_grid(listed, self.low, self.high, self.steps)[0])

    def estimate(self, reports: Any) -> Mean:
        listed = self._possible(reports)
        n, values, spread = report_checks.some(len(listed)), self.unbiased(listed), self.spread
        mean, square = float(values.mean()), float(np.mean(values**2))
        # Reports have second moment (slope + 1) x² + level, from which the mean of x² is estimated. At slope -1 this is
        # impossible; then the smallest possible mean of x², the square of the mean, gives the largest variance.
        least = min(mean**2, 1.0)
        mean_square = (square - spread.level) / (spread.slope + 1) if spread.slope > -1 + 1e-9 else least
        people = (spread.slope * min(max(mean_square, least), 1.0) + spread.level) / n
        population = max(square - mean**2, 0.0) / max(n - 1, 1)
        half = float(self.high - self.low) / 2
        return Mean(
            reports=n,
            low=float(self.low),
            high=float(self.high),
            mean=float(self.low) + half * (1 + mean),
            variance=people * half**2,
            population_variance=max(population, people) * half**2,
            rounding=half / self.steps,
        )

    def _possible(self, reports: Any) -> Ints:
        rule = f"must be whole numbers from {self.first} to {self.outcomes - 1}, as randomize returns them"
        listed, _ = report_checks.whole("reports", reports, self.outcomes, rule)
        if listed.size and listed.min() < self.first:
            raise InvalidParameter("reports", NOTHING, rule)
        return listed

    def encode(self, reports: Any) -> list[str]:
        return [str(report) for report in self._possible(reports).tolist()]

    def variance(self, *, answer: Rational, people: int) -> float:
        """The variance of the estimate if all `people` people have this answer (clipped to the bounds)."""
        inside = min(max(arguments.rational("answer", answer), self.low), self.high)
        half = float(self.high - self.low) / 2
        x = float(inside - self.low) / half - 1
        return (self.spread.slope * x * x + self.spread.level) * half**2 / report_checks.people(people)

    def parameters(self) -> dict[str, Parameter]:
        return {"low": exact(self.low), "high": exact(self.high), **self.odds.written()}

    def _prepare(self, low: Rational, high: Rational, epsilon: Rational) -> None:
        ends = arguments.rational("low", low), arguments.rational("high", high)
        if max(abs(end) for end in ends) > LARGEST or 0 <= ends[1] - ends[0] < 1 / LARGEST:
            raise InvalidParameter(
                "low, high", (low, high), "must be below 1e100 in size and further apart than 1e-100"
            )
        if not ends[0] < ends[1]:
            raise InvalidParameter("high", high, f"must be above low = {float(ends[0]):g}")
        object.__setattr__(self, "low", ends[0])
        object.__setattr__(self, "high", ends[1])
        object.__setattr__(self, "odds", Odds.of(epsilon=epsilon))


LARGEST: Final = Fraction(10) ** 100


def on_grid(answers: Floats, low: Fraction, high: Fraction, steps: int) -> Ints:
    """The nearest of steps + 1 points from low to high. (If two points are equally near, float rounding may choose
    either; the choice depends only on the answer and does not affect privacy.)
    """
    share = (np.clip(answers, float(low), float(high)) - float(low)) / float(high - low)
    # Clipped again as integers: beyond 2⁵³ the float of `steps` may lie above `steps` itself.
    return np.clip(np.clip(np.rint(share * steps), 0, steps).astype(np.int64), 0, steps)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class DuchiMean(MeanProtocol):
    """One bit: the answer is rounded at random to one of the two bounds, and that bit is kept or flipped.

    For all answers of one person the bit reveals at most as much as randomized response at ε, and exactly as much for
    the two bounds. P(1 | x) = 1/2 + x(E-1)/(2(E+1)) for x in [-1, 1], so ±(E+1)/(E-1) is unbiased.

    >>> protocol = DuchiMean(low=0, high=10, epsilon=1.0)
    >>> report = protocol.randomize(3.5)
    >>> round(protocol.variance(answer=5, people=100), 4)
    1.1707
    """

    low: Fraction
    high: Fraction
    odds: Odds

    def __init__(self, *, low: Rational, high: Rational, epsilon: Rational) -> None:
        self._prepare(low, high, epsilon)

    @property
    def curve(self) -> Curve:
        return curves.randomized_response(epsilon=self.odds.epsilon)

    @property
    def outcomes(self) -> int:
        return 2

    @property
    def steps(self) -> int:
        return FINENESS

    def probabilities(self, answer: Any) -> dict[Any, float]:
        kept, share = float(self.odds.number / (self.odds.number + 1)), self.place(answer) / self.steps
        one = kept * share + (1 - kept) * (1 - share)
        return {0: 1 - one, 1: one}

    @property
    def spread(self) -> Spread:
        return Spread(-1.0, self._reach() ** 2)

    def respond(self, steps: Ints, entropy: Entropy | None) -> Ints:
        bit = noise.uniform(below=self.steps, size=len(steps), entropy=entropy) < steps
        return np.asarray(bit == self.odds.heads(len(steps), entropy)).astype(np.int64)

    def unbiased(self, reports: Ints) -> Floats:
        return np.asarray((2 * reports - 1) * self._reach())

    def _reach(self) -> float:
        return float((self.odds.number + 1) / self.odds.excess)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class PiecewiseMean(MeanProtocol):
    """A cell of a line: one of the W cells of a window around the answer with probability s/(s + 1), s = e^(ε/2),
    otherwise one of the other N - W.

    For all answers of one person a cell's likelihood differs by at most s(N - W)/W, which the grid keeps just below
    e^ε. Two answers with disjoint windows are distinguished with the probability that the report lies in one of the
    windows. The position of the window is linear in the answer, and so is the mean of the cell: 2(cell -
    middle)(s+1)/(s(N-W) - W) is unbiased. With finer cells this converges to the piecewise mechanism of Wang et al.
    (2019).

    >>> protocol = PiecewiseMean(low=-1, high=1, epsilon=4.0)
    >>> round(protocol.variance(answer=0, people=1), 4)
    0.0848
    """

    low: Fraction
    high: Fraction
    odds: Odds

    def __init__(self, *, low: Rational, high: Rational, epsilon: Rational) -> None:
        self._prepare(low, high, epsilon)

    @property
    def curve(self) -> Curve:
        cells, window = self.outcomes, self._window()
        s = float(self.odds.root().number)
        epsilon = (log(Fraction(cells - window, window)) + float(self.odds.root().log)) * (1 + ROUNDING)
        apart = (s + window / (cells - window)) / (s + 1) * (1 + ROUNDING)
        return diluted(curves.randomized_response(epsilon=min(epsilon, self.odds.epsilon)), apart)

    @property
    def outcomes(self) -> int:
        # The window has a share 1/(s + 1) of the cells, and must be fine enough to distinguish s from 1.
        root = self.odds.root()
        return 1 << math.ceil(math.log2(WINDOW * (float(root.number) + 1) * (1 + 1 / float(root.excess))))

    @property
    def steps(self) -> int:
        return self.outcomes - self._window()

    @property
    def spread(self) -> Spread:
        n, w, (slope, scale) = self.outcomes, self._window(), self._line()
        s = float(self.odds.root().number)
        inside, outside = w * w - 1, Fraction(n * (n * n - 1) - w * (w * w - 1), n - w)
        level = (s * inside + float(outside)) / (12 * (s + 1))
        return Spread(1 / slope - 1, level * scale**2)

    def respond(self, steps: Ints, entropy: Entropy | None) -> Ints:
        cells, window, people = self.outcomes, self._window(), len(steps)
        near = steps + noise.uniform(below=window, size=people, entropy=entropy)
        far = noise.uniform(below=cells - window, size=people, entropy=entropy)
        far = np.where(far >= steps, far + window, far)
        return np.asarray(np.where(self.odds.root().heads(people, entropy), near, far), dtype=np.int64)

    def unbiased(self, reports: Ints) -> Floats:
        return np.asarray((2 * reports - (self.outcomes - 1)) * (self._line()[1] / 2))

    def pieces(self, answer: Any) -> tuple[Floats, Floats]:
        """The edges of the window around an answer among all cells, as estimates of the answer, and the probabilities
        of the three pieces: for planning and teaching, as `probabilities`.
        """
        place, cells, window = self.place(answer), self.outcomes, self._window()
        share = float(self.odds.root().number / (self.odds.root().number + 1))
        far = (1 - share) / (cells - window)
        ends = self.unbiased(np.array([0, place, place + window, cells])) - self._line()[1] / 2
        masses = np.array([far * place, share, far * (cells - window - place)])
        edges = float(self.low) + float(self.high - self.low) / 2 * (1 + ends)
        kept = masses > 0  # at a bound there are no cells on one side of the window
        return np.concatenate((edges[:1], edges[1:][kept])), masses[kept]

    def told_apart(self, x: Any, x2: Any) -> Telling:
        """By which of the two answers' windows contain the cell; cells of one kind are equally likely."""
        cells, window = self.outcomes, self._window()
        both = max(0, window - abs(self.place(x) - self.place(x2)))
        near = float(self.odds.root().number / (self.odds.root().number + 1)) / window
        far = (1 - near * window) / (cells - window)
        sizes = (window - both, both, window - both, cells - 2 * window + both)
        names = ("first", "both", "second", "neither")
        one, two = (
            {name: size * (near if name in mine else far) for name, size in zip(names, sizes, strict=True)}
            for mine in (("first", "both"), ("second", "both"))
        )
        return Telling(one, two, "which of the windows of both answers a cell lies in")

    def _window(self) -> int:
        # One cell more than N/(s + 1) rounded up: far more than the float's rounding error, so that (N - W)/W < s with
        # certainty.
        return math.ceil(self.outcomes / (float(self.odds.root().number) + 1)) + 1

    def _line(self) -> tuple[float, float]:
        """How far the mean cell moves per step of the window, and the width of a cell in the unbiased scale."""
        n, w, s = self.outcomes, self._window(), float(self.odds.root().number)
        moved = (s * (n - w) - w) / ((s + 1) * (n - w))
        return moved, 2 / ((n - w) * moved)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class HybridMean(MeanProtocol):
    """Duchi's bit with probability e^(-ε/2), otherwise the piecewise mechanism; for small ε always Duchi's bit.

    For all answers of one person: the curve is the mixture of both, because a report shows which of them was used. With
    these weights the variance is the same for every answer. Below ε = 0.61 the piecewise part would only add variance,
    and is left out (Wang et al. 2019).

    >>> protocol = HybridMean(low=0, high=100, epsilon=1.0)
    >>> reports = protocol.randomize([20.0, 35.0, 50.0])
    >>> protocol.estimate(reports).people
    3
    """

    low: Fraction
    high: Fraction
    odds: Odds

    def __init__(self, *, low: Rational, high: Rational, epsilon: Rational) -> None:
        self._prepare(low, high, epsilon)

    @property
    def curve(self) -> Curve:
        if not self._mixes():
            return self._duchi().curve
        often = math.exp(-float(self.odds.log) / 2) * (1 + ROUNDING)
        return curves.mixture([often, 1 - often], [self._duchi().curve, self._piecewise().curve])

    @property
    def outcomes(self) -> int:
        """The piecewise cells, then Duchi's two bits."""
        return self._piecewise().outcomes + 2

    @property
    def first(self) -> int:
        """Without the piecewise part only Duchi's bits are reported."""
        return 0 if self._mixes() else self._piecewise().outcomes

    @property
    def steps(self) -> int:
        return self._piecewise().steps

    @property
    def spread(self) -> Spread:
        duchi, piecewise = self._duchi().spread, self._piecewise().spread
        often = math.exp(-float(self.odds.log) / 2) if self._mixes() else 1.0
        return Spread(
            often * duchi.slope + (1 - often) * piecewise.slope, often * duchi.level + (1 - often) * piecewise.level
        )

    def respond(self, steps: Ints, entropy: Entropy | None) -> Ints:
        people, cells = len(steps), self._piecewise().outcomes
        bit = noise.uniform(below=self.steps, size=people, entropy=entropy) < steps
        bits = cells + (bit == self.odds.heads(people, entropy))
        if not self._mixes():
            return np.asarray(bits, dtype=np.int64)
        duchi = noise.bernoulli_exp(x=self.odds.log / 2, size=people, entropy=entropy)
        return np.asarray(np.where(duchi, bits, self._piecewise().respond(steps, entropy)), dtype=np.int64)

    def told_apart(self, x: Any, x2: Any) -> Telling:
        """By Duchi's bit, or by which of the two windows contain the cell; cells of one kind are equally likely."""
        bits = self._duchi().told_apart(x, x2)
        if not self._mixes():
            return bits
        often = math.exp(-float(self.odds.log) / 2)
        cells = self._piecewise().told_apart(x, x2)
        one, two = (
            {**{f"bit {y}": often * p for y, p in bit.items()}, **{y: (1 - often) * p for y, p in cell.items()}}
            for bit, cell in ((bits.one, cells.one), (bits.two, cells.two))
        )
        return Telling(one, two, "a bit, or which of the windows of both answers a cell lies in")

    def unbiased(self, reports: Ints) -> Floats:
        cells = self._piecewise().outcomes
        return np.where(reports < cells, self._piecewise().unbiased(reports), self._duchi().unbiased(reports - cells))

    def _mixes(self) -> bool:
        """Whether the piecewise part lowers the variance."""
        return self._piecewise().spread.level < self._duchi().spread.level

    def _duchi(self) -> DuchiMean:
        return DuchiMean(low=self.low, high=self.high, epsilon=self.odds.log)

    def _piecewise(self) -> PiecewiseMean:
        return PiecewiseMean(low=self.low, high=self.high, epsilon=self.odds.log)
