"""Estimators: the statistics that each measure needs, and its estimate with a noise interval from their noisy values.

Only the statistics touch data. Estimates are post-processing: they cost nothing and cannot leak.

    measure                    statistics
    COUNT, COUNT(DISTINCT …)   the count
    SUM(x)                     the sum on a grid
    AVG(x)                     the sum S of x - m, and the count n; m is the middle of x's bounds, which makes S small
    VAR, STDDEV                the sum of (x - m)², the sum of x - m, and the count
    quantiles, MIN, MAX        running totals over cells between x's bounds; see `single_quantile` for a single quantile

Under a pure budget, S and n are released as H·n + S and H·n - S, for |x - m| <= H. A row changes this vector by 2H in
L1, so both numbers get the noise that each would get alone, and averages are √2 times as precise
(`noise_planner.SumAndCount`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import numpy as np

from deniable.ledger.currency import Shape
from deniable.queries.intervals.draw_laws import law_of, reach
from deniable.queries.intervals.noise_intervals import NoisyEstimate, Share, merged_reach
from deniable.queries.relations.exact_statistics import Cells, Count, CountDistinct, CountPersons, ExactSum, Statistic
from deniable.queries.relations.operators import typed
from deniable.tables.expressions import lit
from deniable.tables.kinds import Kind

if TYPE_CHECKING:
    from deniable.mechanisms.prefix_sums import Differences
    from deniable.queries.intervals.threshold_intervals import ThresholdPassed
    from deniable.queries.plan.question import Measure
    from deniable.queries.relations.relation_nodes import RelationNode
    from deniable.tables.expressions import Expression

MOST_CELLS: Final = 1024
"""Cells between the bounds of a quantile. An integer column with fewer values has one cell for each value."""

SUM_BITS: Final = 24
"""log2 of the grid steps between 0 and the largest addend of a sum: rounding a row to them is far below any noise."""

_TRIED: Final = 5
"""The number of points that `possible` tries in an interval."""


@final
@dataclass(frozen=True, slots=True)
class DrawnValue:
    """The noisy value of a statistic in one group, with a description of its noise."""

    values: Any
    """A number, or an array of running totals."""
    deviations: Any
    """The standard deviation of the noise, or an array of them."""
    shape: Shape
    blend: Any = None
    """For running totals: q -> the law of total_t - q·(last total), for every t (`Differences`)."""
    draws: tuple[float, ...] = (1.0,)
    """The deviation of each independent draw that was merged, relative to `deviations`; their squares add up to 1."""
    shares: tuple[Share, ...] = ()
    """The draws of integer noise that the value contains, if all of them are known; otherwise empty."""
    otherwise: tuple[Share, ...] = ()
    """A second possible account of the draws, if it is not known which one is true; otherwise empty."""
    chosen: ThresholdPassed | None = None
    """The thresholds passed, if this is the count that decides which keys are published; otherwise None."""
    half: int = 0
    """H, if the value is H·n + S or H·n - S; otherwise 0."""

    def noises(self, slope: float = 1.0) -> list[float]:
        """The standard deviation of each draw in a quantity that changes by `slope` when the value changes by one."""
        return [abs(slope) * float(self.deviations) * draw for draw in self.draws]


@final
@dataclass(frozen=True, slots=True)
class NoisyMoments:
    """A sum S and a number n of rows, from two noisy numbers: themselves, or H·n + S and H·n - S."""

    total: DrawnValue
    count: DrawnValue

    @property
    def s(self) -> float:
        """S in steps of its grid."""
        return (self.total.values - self.count.values) / 2 if self.total.half else float(self.total.values)

    @property
    def n(self) -> float:
        """The number of rows."""
        if self.total.half:
            return float(self.total.values + self.count.values) / (2 * self.total.half)
        return float(self.count.values)

    def noises(self, by_s: float, by_n: float) -> list[float]:
        """The standard deviation of each draw in a quantity with derivatives `by_s` in S and `by_n` in n."""
        if self.total.half:
            each = by_n / (2 * self.total.half)
            return [*self.total.noises(each + by_s / 2), *self.count.noises(each - by_s / 2)]
        return [*self.total.noises(by_s), *self.count.noises(by_n)]

    def is_clear(self, confidence: float) -> bool:
        """Whether n is far enough from 0 for the noise of a ratio to be nearly linear."""
        return self.n > 3 * reach(self.total.shape, self.noises(0, 1), confidence)

    def may_be_none(self, confidence: float) -> bool:
        """Whether n may be 0 given its noise, so that an average may not exist."""
        return self.n <= reach(self.total.shape, self.noises(0, 1), confidence)


class Recipe(ABC):
    """One measure: its statistics, and the estimate from their noisy values."""

    __slots__ = ()
    name: str
    reads_pairs: ClassVar[bool] = False
    """Whether the last two statistics (a sum S and its count n) or the only one (a count) are read by `NoisyMoments`,
    so that they may be released as H·n + S and H·n - S. Then `estimate` of a count alone gets both of these numbers."""

    @abstractmethod
    def statistics(self) -> tuple[Statistic, ...]:
        """The statistics to collect, in the order in which `estimate` takes their values."""

    def estimate(self, drawn: Sequence[DrawnValue], confidence: float) -> NoisyEstimate:
        """The measure in one group, with its noise interval at this confidence."""
        found = self._estimate(drawn, confidence)
        at = next((i for i, one in enumerate(drawn) if is_cut(one, confidence)), None)
        if at is None:
            return found
        # The count that decided to publish the key is biased by its threshold, so the estimate is not linear in its
        # noise. Half of the probability of missing goes to an interval for the true n. The estimate is computed for
        # several n in it, each taken as exact, with the other half for the remaining noise; the union is returned.
        counts, rest = possible(drawn[at], confidence)
        tried = [found, *(self._estimate([*drawn[:at], each, *drawn[at + 1 :]], rest) for each in counts)]
        lows, highs = zip(*((one.low, one.high) for one in tried if one.low is not None), strict=True)
        return NoisyEstimate(found.value, min(lows), max(highs))

    @abstractmethod
    def _estimate(self, drawn: Sequence[DrawnValue], confidence: float) -> NoisyEstimate:
        """`estimate` without regard to thresholds."""

    def middle(self, drawn: Sequence[DrawnValue], confidence: float) -> float | int | None:
        """The unrounded value of the measure. Expressions over measures use it, because their slopes are computed as
        difference quotients of it.
        """
        found: float | int | None = self.estimate(drawn, confidence).value
        return found

    def error(self, drawn: Sequence[DrawnValue], confidence: float, rows: int) -> float | None:
        """The expected half-width of the noise interval in a group of this many rows; None: it depends on the data.

        Only the noise in `drawn` is used, not the values.
        """
        return None

    @property
    def depends_on_rows(self) -> bool:
        """Whether `error` changes with the number of rows."""
        return True


@final
@dataclass(frozen=True, slots=True)
class Counted(Recipe):
    """A count of any kind."""

    reads_pairs = True
    name: str
    statistic: Statistic

    def statistics(self) -> tuple[Statistic, ...]:
        return (self.statistic,)

    def estimate(self, drawn: Sequence[DrawnValue], confidence: float) -> NoisyEstimate:
        return self._estimate(drawn, confidence)

    def _estimate(self, drawn: Sequence[DrawnValue], confidence: float) -> NoisyEstimate:
        if drawn[0].half:  # n is not an integer here; it is rounded, and so is its interval
            n, half = NoisyMoments(*drawn).n, self._between(drawn, confidence)
            value = round(n)
            return NoisyEstimate(value, min(value, math.ceil(n - half)), max(value, math.floor(n + half)))
        one = drawn[-1]
        return NoisyEstimate(one.values if isinstance(one.values, int) else float(one.values), *bounds(one, confidence))

    def middle(self, drawn: Sequence[DrawnValue], confidence: float) -> float | int | None:
        # Not rounded, because the slope of a rounded number is 0 or far too large.
        return NoisyMoments(*drawn).n if drawn[0].half else super(Counted, self).middle(drawn, confidence)

    def error(self, drawn: Sequence[DrawnValue], confidence: float, rows: int) -> float:
        if drawn[0].half:  # a rounded number is off by at most k if it was off by at most k + 1/2 before rounding
            return float(max(0, math.ceil(self._between(drawn, confidence) - 0.5)))
        return float(_whole_reach(drawn[-1], confidence))

    def _between(self, drawn: Sequence[DrawnValue], confidence: float) -> float:
        """The half-width of a count that is released together with a sum, before rounding."""
        return reach(drawn[0].shape, NoisyMoments(*drawn).noises(0, 1), confidence)

    @property
    def depends_on_rows(self) -> bool:
        return False


@final
@dataclass(frozen=True, slots=True)
class Summed(Recipe):
    """A sum, in steps of 2^exponent."""

    name: str
    statistic: ExactSum

    def statistics(self) -> tuple[Statistic, ...]:
        return (self.statistic,)

    def _estimate(self, drawn: Sequence[DrawnValue], confidence: float) -> NoisyEstimate:
        [one] = drawn
        half = _whole_reach(one, confidence)
        step = Fraction(2) ** self.statistic.exponent
        return NoisyEstimate(*(_plain(Fraction(v) * step) for v in (one.values, one.values - half, one.values + half)))

    def error(self, drawn: Sequence[DrawnValue], confidence: float, rows: int) -> float | None:
        return float(_whole_reach(drawn[0], confidence)) * 2.0**self.statistic.exponent

    @property
    def depends_on_rows(self) -> bool:
        return False


@final
@dataclass(frozen=True, slots=True)
class Averaged(Recipe):
    """m + S/n, from the sum S of x - m and the number n of rows."""

    reads_pairs = True
    name: str
    centre: Fraction
    centred: ExactSum
    count: Count

    def statistics(self) -> tuple[Statistic, ...]:
        return (self.centred, self.count)

    def _estimate(self, drawn: Sequence[DrawnValue], confidence: float) -> NoisyEstimate:
        found, step = NoisyMoments(*drawn), 2.0**self.centred.exponent
        n, s = found.n, found.s * step
        low, high = float(self.centre + self.centred.low), float(self.centre + self.centred.high)
        if not found.is_clear(confidence):
            value = None if found.may_be_none(confidence) else _clamped(float(self.centre) + s / n, low, high)
            return NoisyEstimate(value, low, high)
        mean = s / n
        half = reach(found.total.shape, found.noises(step / n, -mean / n), confidence)
        value = float(self.centre) + mean
        # An average cannot be beyond the bounds, so the interval ends there.
        return NoisyEstimate(*(_clamped(each, low, high) for each in (value, value - half, value + half)))

    def error(self, drawn: Sequence[DrawnValue], confidence: float, rows: int) -> float | None:
        mean = float(self.centred.high) / 2  # assumes an average halfway between the middle and a bound
        noises = NoisyMoments(*drawn).noises(2.0**self.centred.exponent / rows, -mean / rows)
        return reach(drawn[0].shape, noises, confidence)


@final
@dataclass(frozen=True, slots=True)
class Varied(Recipe):
    """The variance Q/n - (S/n)², from the sums Q of (x - m)² and S of x - m and the number n of rows; or its root."""

    reads_pairs = True
    name: str
    squares: ExactSum
    centred: ExactSum
    count: Count
    sample: bool
    """Whether the divisor is n - 1 (sample) and not n (population)."""
    root: bool
    """Whether to return the standard deviation."""

    def statistics(self) -> tuple[Statistic, ...]:
        return (self.squares, self.centred, self.count)

    def _estimate(self, drawn: Sequence[DrawnValue], confidence: float) -> NoisyEstimate:
        squares, found = drawn[0], NoisyMoments(*drawn[1:])
        step = 2.0**self.centred.exponent
        q = float(squares.values) * 2.0**self.squares.exponent
        s, n = found.s * step, found.n
        most = float(self.squares.high)
        if not found.is_clear(confidence) or n < 3:
            whole = self._shaped(_clamped(q / max(n, 1.0) - (s / max(n, 1.0)) ** 2, 0.0, most), 0.0, most, 1.0)
            return NoisyEstimate(None, whole.low, whole.high) if found.may_be_none(confidence) else whole
        mean = s / n
        # The square of a noisy mean is too large by the variance of its noise, on average; that bias is removed.
        noise = math.hypot(*found.noises(step / n, 0))
        value = q / n - mean * mean + noise * noise
        noises = [
            *squares.noises(2.0**self.squares.exponent / n),
            *found.noises(-2 * mean * step / n, (2 * mean * mean - q / n) / n),
            noise * noise * math.sqrt(2),  # the second-order term, which dominates if the mean is near the middle
        ]
        half = reach(squares.shape, noises, confidence)
        return self._shaped(
            _clamped(value, 0.0, most),
            _clamped(value - half, 0.0, most),
            _clamped(value + half, 0.0, most),
            n / (n - 1) if self.sample else 1.0,
        )

    def _shaped(self, value: float, low: float, high: float, factor: float) -> NoisyEstimate:
        shaped = [math.sqrt(each * factor) if self.root else each * factor for each in (value, low, high)]
        return NoisyEstimate(*shaped)

    def error(self, drawn: Sequence[DrawnValue], confidence: float, rows: int) -> float | None:
        squares, found = drawn[0], NoisyMoments(*drawn[1:])
        half = math.sqrt(float(self.squares.high))
        spread = half * half / 3  # assumes values that are uniform between the bounds
        noises = [*squares.noises(2.0**self.squares.exponent / rows), *found.noises(0, spread / rows)]
        wide = reach(squares.shape, noises, confidence)
        return wide / (2 * math.sqrt(spread)) if self.root else wide


@final
@dataclass(frozen=True, slots=True)
class Ranked(Recipe):
    """The value at a rank: a quantile, MIN or MAX.

    The running total T_t is the number of values below the end of cell t. The quantile q is where D = T - q·T_last
    crosses 0; within a cell, T is taken to be a straight line. The noise interval reaches from the first to the last
    position at which D may be 0 given its noise. The true position is excluded only if its own comparison fails, so
    the interval covers it with at least the stated probability. Coverage is close to that probability if the totals
    rise steeply relative to the noise and cells can be divided; intervals of integers, which cannot be divided, cover
    more.
    """

    name: str
    cells: Cells
    q: Fraction
    """0 is MIN and 1 is MAX."""
    whole: bool
    """Whether cells are single integers."""
    integral: bool
    """Whether the answer is an integer: MIN or MAX of an integer column."""
    high: Fraction
    """The largest possible value. If it is the only one, its cell reaches beyond it."""

    def statistics(self) -> tuple[Statistic, ...]:
        return (self.cells,)

    def _estimate(self, drawn: Sequence[DrawnValue], confidence: float) -> NoisyEstimate:
        [totals] = drawn
        sums = np.concatenate(([0.0], np.asarray(totals.values, dtype=np.float64)))
        if self.q in (0, 1):
            return self._extreme(sums, totals, confidence)
        q = float(self.q)
        apart, law = sums - q * sums[-1], totals.blend(q)
        far = _far(totals.shape, law, confidence)
        smooth = _increasing(apart)
        at = min(max(int(np.searchsorted(smooth, 0.0, side="left")), 1), sums.size - 1) - 1
        value = self._inside(smooth, at)
        # A cell is possible if, within the noise, at most a fraction q of the values lies below it and at least q below
        # its end.
        reached = np.flatnonzero(apart[1:] >= -far[1:])
        first = int(reached[0]) if reached.size else sums.size - 2
        before = np.flatnonzero(apart[:-1] <= far[:-1])
        last = int(before[-1]) if before.size else 0
        if self.whole:
            return NoisyEstimate(value, self._low(min(first, at)), self._high(max(last, at)))
        last = sums.size - 2 if apart[-1] <= far[-1] else last
        low = first + _place(apart, far, law, first, 1)
        high = last + _place(apart, far, law, last, -1)
        return NoisyEstimate(value, min(value, self._edge(low)), max(value, self._edge(high)))

    def _extreme(self, sums: Any, totals: DrawnValue, confidence: float) -> NoisyEstimate:
        """MIN; and MAX as the MIN of the totals counted from above (the number of values at or above each cell).

        MIN is in cell k if no value is below cell k and some value is below its end. If the noise can hide a single
        value, a smaller one can never be excluded: then the interval starts at the bound, and the whole probability of
        missing is used at the upper end.
        """
        law = totals.blend(float(self.q))
        seen, spread = (sums, law.deviations) if self.q == 0 else ((sums[-1] - sums)[::-1], law.deviations[::-1])
        smooth = _increasing(seen[1:])
        at = min(int(np.searchsorted(smooth, max(1.0, 2 * float(spread[1:].mean())), side="left")), seen.size - 2)
        far = _reaches(totals.shape, law, confidence)
        far = (far if self.q == 0 else far[::-1]) * spread
        hidden = float(far[1:].min()) >= 1
        if hidden:
            one_sided = _reaches(totals.shape, law, max(2 * confidence - 1, 1e-9))
            far = (one_sided if self.q == 0 else one_sided[::-1]) * spread
        reached, before = np.flatnonzero(seen[1:] >= 1 - far[1:]), np.flatnonzero(seen[:-1] <= far[:-1])
        first = 0 if hidden or not reached.size else int(reached[0])
        first, last = min(first, at), max(int(before[-1]), at)
        if self.q == 1:
            at, first, last = (seen.size - 2 - each for each in (at, last, first))
        start, end = self.cells.edges[at], min(self.cells.edges[at + 1], self.high)
        middle = self._low(at) if self.whole else float(start + end) / 2
        return NoisyEstimate(round(middle) if self.integral else middle, self._low(first), self._high(last))

    def _inside(self, smooth: Any, at: int) -> float | int:
        low, high = self.cells.edges[at], self.cells.edges[at + 1]
        if self.whole:
            return math.ceil(low)
        before = min(0.0, float(smooth[at]))
        rise = float(smooth[at + 1]) - before
        share = -before / rise if rise > 0 else 0.5
        return min(float(low) + _clamped(share, 0.0, 1.0) * float(high - low), float(self.high))

    def _edge(self, place: float) -> float:
        """The value at a position counted in cells."""
        cell = min(int(place), len(self.cells.edges) - 2)
        low, high = self.cells.edges[cell], self.cells.edges[cell + 1]
        return min(float(low) + (place - cell) * float(high - low), float(self.high))

    def _low(self, cell: int) -> float | int:
        edge = self.cells.edges[cell]
        return math.ceil(edge) if self.whole else float(edge)

    def _high(self, cell: int) -> float | int:
        return self._low(cell) if self.whole else float(min(self.cells.edges[cell + 1], self.high))


def _reaches(shape: Shape, law: Differences, confidence: float) -> Any:
    """The reach of the noise of each difference, in standard deviations.

    Interpolated between the normal law and a single Laplace draw, by the kurtosis of the noise.
    """
    normal = reach(Shape.NORMAL, (1.0,), confidence)
    return normal + (reach(shape, (1.0,), confidence) - normal) * law.kurtosis / 3


def _far(shape: Shape, law: Differences, confidence: float) -> Any:
    """The reach of the noise of each difference, in rows.

    Laplace noise is added in whole rows, and its law has gaps if it is narrow, so its reach is rounded up.
    """
    return law_of(shape).in_whole_rows(_reaches(shape, law, confidence) * law.deviations)


def rank_error(law: Differences, shape: Shape, confidence: float) -> float:
    """How many rows the noisy rank of a value may be from its true rank at this confidence, at the worst position."""
    return float(np.max(_far(shape, law, confidence)))


def _place(apart: Any, far: Any, law: Differences, cell: int, sign: int) -> float:
    """The fraction a of a cell, from 0 to 1, at which difference + sign·reach crosses 0.

    Within the cell the difference is a straight line between its values at both ends, and the variance of its noise is
    (1 - a)·v₀ + a·v₁ - a(1 - a)·w, where w is the variance of the step between them.
    """
    d0, d1 = float(apart[cell]), float(apart[cell + 1])
    v0, v1 = float(far[cell]) ** 2, float(far[cell + 1]) ** 2
    ratio = max(float(far[cell]), float(far[cell + 1])) / max(
        float(law.deviations[cell]), float(law.deviations[cell + 1]), 1e-300
    )
    step = (float(law.steps[cell]) * ratio) ** 2

    def above(a: float) -> bool:
        variance = max(0.0, (1 - a) * v0 + a * v1 - a * (1 - a) * step)
        return (1 - a) * d0 + a * d1 + sign * math.sqrt(variance) >= 0

    low, high = 0.0, 1.0
    if above(low) or not above(high):  # beyond an end: the whole cell is possible
        return 0.0 if sign > 0 else 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if above(middle) else (middle, high)
    return low if sign > 0 else high


def _increasing(totals: Any) -> Any:
    """An increasing sequence: the mean of the running maximum from the left and the running minimum from the right."""
    upper = np.maximum.accumulate(totals)
    lower = np.minimum.accumulate(totals[::-1])[::-1]
    return (upper + lower) / 2


def _whole_reach(one: DrawnValue, confidence: float) -> float | int:
    if one.shares:
        laws = (one.shares, one.otherwise) if one.otherwise else (one.shares,)
        half = max(merged_reach(one.shape, each, confidence) for each in laws)
        return round(half) if isinstance(one.values, int) else half
    return reach(one.shape, one.noises(), confidence)


def bounds(one: DrawnValue, confidence: float) -> tuple[float, float]:
    """The noise interval of a noisy number; for a count that passed a threshold, conditional on that."""
    half = _whole_reach(one, confidence)
    if one.chosen is not None:
        return one.chosen.bounds(one.values, half, confidence)
    return one.values - half, one.values + half


def is_cut(one: DrawnValue, confidence: float) -> bool:
    """Whether a count passed its threshold so narrowly that the threshold changes its interval."""
    if one.chosen is None:
        return False
    far = reach(one.shape, one.noises(), 1 - (1 - confidence) / 100)
    return one.chosen.matters(float(one.values) - far, confidence)


def possible(one: DrawnValue, confidence: float) -> tuple[list[DrawnValue], float]:
    """(exact values that a count near its threshold may have, the confidence left for the numbers it is used with)."""
    rest = (1 + confidence) / 2
    low, high = bounds(one, rest)
    ends = np.linspace(float(low), float(high), _TRIED)
    return [DrawnValue(float(each), 0.0, one.shape, draws=()) for each in ends], rest


def _clamped(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _plain(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


# -- from a measure to its recipe ------------------------------------------------------------------------------------


def recipe(measure: Measure, relation: RelationNode) -> Recipe:
    """The recipe of a measure on a relation. `question.check_measure` must have accepted the measure."""
    name, expression = measure.name, measure.expression
    # If a value is never NULL, rows with a value are all rows, so that one count serves several measures.
    known = None if expression is None else typed(expression, relation.columns).domain
    present = expression if known is not None and known.nullable else None
    match measure.function:
        case "count":
            return Counted(name, Count(present))
        case "count_persons":
            return Counted(name, CountPersons(present))
        case "count_distinct":
            assert expression is not None
            return Counted(name, CountDistinct(expression))
    assert expression is not None
    assert known is not None
    assert known.bounds is not None  # `asked` refuses others
    low, high = known.bounds
    integral = known.kind is Kind.INTEGER
    match measure.function:
        case "sum":
            return Summed(name, summed(expression, low, high, integral))
        case "avg":
            centre = (low + high) / 2
            return Averaged(name, centre, _centred(expression, low, high), Count(present))
        case "var" | "stddev":
            half = max((high - low) / 2, Fraction(1, 2**40))
            around = expression - lit(float((low + high) / 2))
            squares = summed(around * around, Fraction(0), half * half, False)
            sample, root = bool(measure.options.get("ddof", 1)), measure.function == "stddev"
            return Varied(name, squares, _centred(expression, low, high), Count(present), sample, root)
        case "quantile" | "min" | "max":
            asked = {"min": Fraction(0), "max": Fraction(1)}.get(measure.function)
            q = Fraction(measure.options["q"]) if asked is None else asked
            edges, whole = edges_between(low, high, integral)
            return Ranked(name, Cells(expression, edges), q, whole, integral and asked is not None, high)
    raise AssertionError(measure.function)


def summed(expression: Expression, low: Fraction, high: Fraction, whole: bool) -> ExactSum:
    """The sum of an expression clamped to [low, high], on a grid with 2^24 steps up to the largest addend.

    For integers (`whole`) the step is at least 1.
    """
    largest = max(abs(low), abs(high))
    exponent = 0 if largest == 0 else math.frexp(float(largest))[1] - SUM_BITS
    return ExactSum(expression, low, high, max(exponent, 0) if whole else exponent)


def _centred(expression: Expression, low: Fraction, high: Fraction) -> ExactSum:
    centre = (low + high) / 2
    return summed(expression - lit(float(centre)), low - centre, high - centre, False)


@lru_cache(maxsize=64)
def edges_between(low: Fraction, high: Fraction, whole: bool) -> tuple[tuple[Fraction, ...], bool]:
    """(the edges of the cells of running totals, whether each cell is one integer)."""
    if low == high:
        return (low, low + 1), whole
    values = int(high - low) + 1
    if whole and values <= MOST_CELLS:
        return tuple(low + i for i in range(values + 1)), True
    # low + (high - low)·i/n over one denominator, which is ten times as fast as adding fractions.
    step = (high - low) / MOST_CELLS
    under = math.lcm(low.denominator, step.denominator)
    first, more = int(low * under), int(step * under)
    return tuple(Fraction(first + more * i, under) for i in range(MOST_CELLS + 1)), False
