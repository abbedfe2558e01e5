"""Intervals of a noisy count that was shown because it reached a threshold.

Keys that are not public are shown if their noisy count X = n + Z of people reaches τ. Among the keys that are shown, X
has the law of n + Z given n + Z >= τ: near the threshold it lies above n almost surely, and the interval for Z alone
hardly ever holds n. So the interval is made from the law that X has once it is shown (a truncated law, inverted):

    {n >= 1 : P(n + Z >= x | n + Z >= τ) > α/2 and P(n + Z <= x | n + Z >= τ) > α/2}

Z is log-concave, so both probabilities are monotone in n, and the set is an interval. It holds n with probability at
least 1 - α given that the key is shown, for every n. A key without people is never shown, so n is at least 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple, final

from deniable.ledger.currency import Shape
from deniable.mechanisms import noise_quantiles
from deniable.queries.intervals.noise_intervals import Share, merged_reach

_CLEAR: Final = 100
"""Where the threshold cuts off less than this part of what an interval may miss, it does not matter."""
_TINY: Final = 1e-9
"""What an interval may miss at least, for `merged_reach` to tell."""


@final
class ThresholdGate(NamedTuple):
    """One draw of whole noise of this width (see `Share`), and the threshold that the noisy count had to reach."""

    shape: Shape
    width: float
    threshold: int

    def log_shown(self, count: float) -> float:
        """ln P(n + Z >= τ), for n = `count`."""
        return _log_tail(self.shape, self.width, self.threshold - count)

    def log_above(self, value: float, count: float) -> float:
        """ln P(n + Z >= value | n + Z >= τ), for n = `count` and a value of at least τ."""
        return _log_tail(self.shape, self.width, value - count) - self.log_shown(count)

    def low(self, value: int, missed: float) -> int:
        """The smallest n that is shown as this value or more with a probability above `missed`."""
        wanted = math.log(missed)
        return _first(1, max(1, value), lambda n: self.log_above(value, n) > wanted)

    def high(self, value: int, missed: float) -> int:
        """The largest n that is shown as this value or less with a probability above `missed`; or the value itself."""

        def beyond(n: int) -> bool:
            return -math.expm1(self.log_above(value + 1, n)) <= missed

        step = 1
        while not beyond(value + step):
            step *= 2
        return max(value, _first(value, value + step, beyond) - 1)

    def critical(self, count: int, missed: float) -> int:
        """The smallest value that n = `count` is shown as, or as more, with at most this probability."""
        wanted, step = math.log(missed), 1
        while self.log_above(self.threshold + step, count) > wanted:
            step *= 2
        last = self.threshold + step
        return _first(self.threshold, last, lambda value: self.log_above(value, count) <= wanted)


@final
class ThresholdPassed(NamedTuple):
    """How a count came to be shown: every draw behind it reached its threshold."""

    gates: tuple[ThresholdGate, ...]
    """None, if it is not known which draws are behind it."""
    shares: tuple[Share, ...] = ()
    """Of a count that was merged from several draws: what each of them adds, in the order of the gates."""

    def bounds(self, value: float, half: float, confidence: float) -> tuple[float, float]:
        """The interval of a count that is shown as `value`; `half` is the reach of its noise, the threshold apart.

        A count just at the threshold can speak against every n: then the interval ends at the count itself.
        """
        missed = noise_quantiles.miss(confidence)
        if len(self.gates) == 1:
            [gate], whole = self.gates, round(value)
            return gate.low(whole, missed / 2), gate.high(whole, missed / 2)
        # A threshold only raises what is shown, so the upper end that noise alone would have is on the safe side.
        high = value + half
        if not self.gates:
            return min(1, value), high
        if not self.matters(value - merged_reach(self.gates[0].shape, self.shares, 1 - missed / _CLEAR), confidence):
            return value - half, high
        return min(self._merged_low(value, missed), value), high

    def matters(self, low: float, confidence: float) -> bool:
        """Whether a threshold changes the interval of a count that is hardly below `low`."""
        if not self.gates:
            return True
        return math.fsum(gate.log_shown(low) for gate in self.gates) < -noise_quantiles.miss(confidence) / _CLEAR

    def _merged_low(self, value: float, missed: float) -> int:
        """The smallest n that is not refuted by either of two bounds on P(Σ wᵢXᵢ >= value | all are shown).

        It is at most Σ P(Xᵢ >= cᵢ | Xᵢ is shown) where Σ wᵢcᵢ <= value, each of which may be α/2k; and at most
        P(Σ wᵢZᵢ >= value - n) / P(all are shown). The first is the better one far below the thresholds.
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
    """The first of low, low + 1, …, high from which on it holds; `high` is known to hold."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _log_tail(shape: Shape, width: float, at: float) -> float:
    """ln P(Z >= at), for `at` a whole number, of whole noise; between whole numbers, what lies on the way.

    Discrete Laplace: P(Z >= d) = r^d/(1 + r) for d >= 1. Rounded Gaussian: P(N >= (d - 1/2)/σ).
    """
    if shape is Shape.LAPLACE:
        r = math.exp(-1 / width)
        if at >= 0.5:
            return -at / width - math.log1p(r)
        return math.log1p(-math.exp((at - 1) / width) / (1 + r))
    z = (at - 0.5) / width / math.sqrt(2)
    if z < 20:
        return math.log(math.erfc(z) / 2)
    square = z * z  # erfc(z) = e^(-z²)/(z√π) · (1 - 1/2z² + 3/4z⁴ - …); what follows is below 1e-7 of it
    return -square - math.log(2 * z * math.sqrt(math.pi)) + math.log1p(-0.5 / square + 0.75 / square**2)
