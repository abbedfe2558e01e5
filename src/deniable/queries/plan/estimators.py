"""Estimators: the statistics that each measure needs, and its estimate with a noise interval from their noisy values.

Only the statistics touch data. Estimates are post-processing: they cost nothing and cannot leak.

    measure                    statistics
    COUNT, COUNT(DISTINCT …)   the count
    SUM(x)                     the sum on a grid
    AVG(x)                     the sum S of x - m, and the count n; m is the middle of x's bounds, which makes S small
    VAR, STDDEV                the sum of (x - m)², the sum of x - m, and the count
    quantiles, MIN, MAX        running totals over cells between x's bounds; see `ranked_estimators`, `single_quantile`

Under a pure budget, S and n are released as H·n + S and H·n - S, for |x - m| <= H. A row changes this vector by 2H in
L1, so both numbers get the noise that each would get alone, and averages are √2 times as precise
(`noise_planner.SumAndCount`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, final

from deniable.queries.intervals.draw_laws import reach
from deniable.queries.intervals.noise_intervals import NoisyEstimate
from deniable.queries.plan.ranked_estimators import Ranked, edges_between
from deniable.queries.plan.recipes import DrawnValue, NoisyMoments, Recipe, bounds, clamped, whole_reach
from deniable.queries.relations.exact_statistics import Cells, Count, CountDistinct, CountPersons, ExactSum, Statistic
from deniable.queries.relations.operators import typed
from deniable.tables.expressions import lit
from deniable.tables.kinds import Kind

if TYPE_CHECKING:
    from deniable.queries.plan.question import Measure
    from deniable.queries.relations.relation_nodes import RelationNode
    from deniable.tables.expressions import Expression

SUM_BITS: Final = 24
"""log2 of the grid steps between 0 and the largest addend of a sum: rounding a row to them is far below any noise."""


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
        return float(whole_reach(drawn[-1], confidence))

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
        half = whole_reach(one, confidence)
        step = Fraction(2) ** self.statistic.exponent
        return NoisyEstimate(*(_plain(Fraction(v) * step) for v in (one.values, one.values - half, one.values + half)))

    def error(self, drawn: Sequence[DrawnValue], confidence: float, rows: int) -> float | None:
        return float(whole_reach(drawn[0], confidence)) * 2.0**self.statistic.exponent

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
            value = None if found.may_be_none(confidence) else clamped(float(self.centre) + s / n, low, high)
            return NoisyEstimate(value, low, high)
        mean = s / n
        half = reach(found.total.shape, found.noises(step / n, -mean / n), confidence)
        value = float(self.centre) + mean
        # An average cannot be beyond the bounds, so the interval ends there.
        return NoisyEstimate(*(clamped(each, low, high) for each in (value, value - half, value + half)))

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
            whole = self._shaped(clamped(q / max(n, 1.0) - (s / max(n, 1.0)) ** 2, 0.0, most), 0.0, most, 1.0)
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
            clamped(value, 0.0, most),
            clamped(value - half, 0.0, most),
            clamped(value + half, 0.0, most),
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
