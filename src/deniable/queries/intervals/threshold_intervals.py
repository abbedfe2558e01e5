"""Confidence intervals for a noisy count that is published because it reached a threshold.

A key that is not public is published if its noisy number of people X = n + Z reaches τ. Among published keys, X follows
the law of n + Z given n + Z >= τ. For n far below τ, X is above n almost surely, and an interval from the law of Z
alone would hardly ever cover n. So the interval inverts tests of the truncated law:

    {n >= 1 : P(n + Z >= x | n + Z >= τ) > α/2 and P(n + Z <= x | n + Z >= τ) > α/2}

Z is log-concave, so both probabilities are monotone in n, and the set is an interval. For every n it covers n with
probability at least 1 - α given that the key is published. A key without people is never published, so n >= 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple, final

from deniable.ledger.currency import Shape
from deniable.mechanisms import noise_quantiles
from deniable.queries.intervals.draw_laws import law_of
from deniable.queries.intervals.noise_intervals import Share, merged_reach

_CLEAR: Final = 100
"""A threshold is ignored if it cuts off less than 1/100 of the probability that an interval may miss."""
_TINY: Final = 1e-9
"""The smallest probability of missing for which `merged_reach` is accurate."""


@final
class ThresholdGate(NamedTuple):
    """One draw of integer noise of this width (see `Share`), and the threshold that the noisy count had to reach."""

    shape: Shape
    width: float
    threshold: int

    def log_shown(self, count: float) -> float:
        """ln P(n + Z >= τ), for n = `count`."""
        return law_of(self.shape).log_tail(self.width, self.threshold - count)

    def log_above(self, value: float, count: float) -> float:
        """ln P(n + Z >= value | n + Z >= τ), for n = `count` and a value of at least τ."""
        return law_of(self.shape).log_tail(self.width, value - count) - self.log_shown(count)

    def low(self, value: int, missed: float) -> int:
        """The smallest n for which a published count is at least `value` with a probability above `missed`."""
        wanted = math.log(missed)
        return _first(1, max(1, value), lambda n: self.log_above(value, n) > wanted)

    def high(self, value: int, missed: float) -> int:
        """The largest n for which a published count is at most `value` with a probability above `missed`.

        At least `value` itself.
        """

        def beyond(n: int) -> bool:
            return -math.expm1(self.log_above(value + 1, n)) <= missed

        step = 1
        while not beyond(value + step):
            step *= 2
        return max(value, _first(value, value + step, beyond) - 1)

    def critical(self, count: int, missed: float) -> int:
        """The smallest x such that a published count of n = `count` is at least x with at most this probability."""
        wanted, step = math.log(missed), 1
        while self.log_above(self.threshold + step, count) > wanted:
            step *= 2
        last = self.threshold + step
        return _first(self.threshold, last, lambda value: self.log_above(value, count) <= wanted)


@final
class ThresholdPassed(NamedTuple):
    """The thresholds that a published count passed, one for each draw behind it."""

    gates: tuple[ThresholdGate, ...]
    """Empty if it is not known which draws are behind the count."""
    shares: tuple[Share, ...] = ()
    """The share of each draw in a count that was merged from several, in the order of the gates."""

    def bounds(self, value: float, half: float, confidence: float) -> tuple[float, float]:
        """The interval of a count published as `value`; `half` is the reach of its noise without the threshold.

        A count just at the threshold can reject every n; then the interval ends at the count itself.
        """
        missed = noise_quantiles.miss(confidence)
        if len(self.gates) == 1:
            [gate], whole = self.gates, round(value)
            return gate.low(whole, missed / 2), gate.high(whole, missed / 2)
        # A threshold only raises published counts, so the upper end from noise alone is conservative.
        high = value + half
        if not self.gates:
            return min(1, value), high
        if not self.matters(value - merged_reach(self.gates[0].shape, self.shares, 1 - missed / _CLEAR), confidence):
            return value - half, high
        return min(self._merged_low(value, missed), value), high

    def matters(self, low: float, confidence: float) -> bool:
        """Whether the thresholds change the interval of a count whose true number is almost surely at least `low`."""
        if not self.gates:
            return True
        return math.fsum(gate.log_shown(low) for gate in self.gates) < -noise_quantiles.miss(confidence) / _CLEAR

    def _merged_low(self, value: float, missed: float) -> int:
        """The smallest n that neither of two upper bounds on P(Σ wᵢXᵢ >= value | all passed) rejects.

        The probability is at most Σ P(Xᵢ >= cᵢ | Xᵢ passed) for any cᵢ with Σ wᵢcᵢ <= value; each term may be α/2k. It
        is also at most P(Σ wᵢZᵢ >= value - n) / P(all passed). The first bound is better far below the thresholds.
        """
        each, shape = missed / 2 / len(self.gates), self.gates[0].shape
        slack = 1e-9 * (1 + abs(value))

        def by_each(n: int) -> bool:
            ends = (s.weight * g.critical(n, each) for g, s in zip(self.gates, self.shares, strict=True))
            return value < math.fsum(ends) + slack

        def by_sum(n: int) -> bool:
            left = missed * math.exp(math.fsum(gate.log_shown(n) for gate in self.gates))
            return left < _TINY or value - n <= merged_reach(shape, self.shares, 1 - left) + slack

        most = max(1, math.ceil(value))
        first = _first(1, most, by_each)
        return _first(first, most, by_sum)


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The smallest integer from low to high for which `holds`, by bisection; `holds` is monotone, and true at high."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
