"""Recipes: how a measure is made of noisy statistics. The base class, and the noisy values that it reads.

`estimators` and `ranked_estimators` have the recipes themselves. A recipe gets each statistic as a `DrawnValue`: a
noisy number with a description of its noise. The count that decides whether a key is published has passed a threshold,
which biases it; `Recipe.estimate` widens intervals for that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import numpy as np

from deniable.queries.intervals.draw_laws import reach
from deniable.queries.intervals.noise_intervals import NoisyEstimate, Share, merged_reach

if TYPE_CHECKING:
    from deniable.ledger.currency import Shape
    from deniable.queries.intervals.threshold_intervals import ThresholdPassed
    from deniable.queries.relations.exact_statistics import Statistic

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
    def has_error(self) -> bool:
        """Whether `error` gives a number: then `within` can ask for one."""
        return type(self).error is not Recipe.error

    @property
    def depends_on_rows(self) -> bool:
        """Whether `error` changes with the number of rows."""
        return True


def whole_reach(one: DrawnValue, confidence: float) -> float | int:
    if one.shares:
        laws = (one.shares, one.otherwise) if one.otherwise else (one.shares,)
        half = max(merged_reach(one.shape, each, confidence) for each in laws)
        return round(half) if isinstance(one.values, int) else half
    return reach(one.shape, one.noises(), confidence)


def bounds(one: DrawnValue, confidence: float) -> tuple[float, float]:
    """The noise interval of a noisy number; for a count that passed a threshold, conditional on that."""
    half = whole_reach(one, confidence)
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


def clamped(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
