"""The Poisson mechanism: the answer is a Poisson count whose rate depends on the value.

Neighbours are then at most as distinguishable as Poisson counts of two rates μ₁ < μ₂: `curves.poisson(low=μ₁,
high=μ₂)`.

**Which rates are allowed.** Let neighbours differ by at most w, and λ(y) be the rate for the value y. If for all y < y′
<= y + w both λ(y′) − λ(y) <= μ₂ − μ₁ and λ(y′)/λ(y) <= μ₂/μ₁, the guarantee holds. *Proof.* For rates a <= b let p = (b
− a)/(μ₂ − μ₁) <= 1 and c = a − pμ₁, which is at least 0 by the second condition. Keep each count of a Poisson number
with probability p and add an independent Poisson(c): this turns the rates (μ₁, μ₂) into (a, b). So the pair (a, b) is
post-processing of the pair (μ₁, μ₂). ∎ (The conditions are also necessary: docs/course/f-dp.md.)

Two families of rates exhaust both conditions. The transport form grows by a factor, λ ∝ (μ₂/μ₁)^(y/w): it is accurate
near the top of its range and imprecise for small values. The linear form grows by a step, λ = μ₁ + (μ₂ − μ₁)y/w: it
needs no top and its estimate is unbiased.

Rates are rational numbers, and both conditions are checked in rational arithmetic.

**How a count is drawn.** Drawing at the rate of a value would build a table for that rate: the time this takes, and
which tables are cached, would reveal something about the value. So every draw is at a public rate, and the value only
decides which draws count. A rate is divided into its whole part, in pieces 1, 2⁶, 2¹², 2¹⁸ and 2²³, and a rest below 1.
As many pieces of each size are drawn as the largest rate may need, and those that make up the whole part are added; of
one more Poisson(1) number each count is kept with probability rest. Sums of independent Poisson counts are Poisson
counts, and so are thinned ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable import arguments, curves, noise
from deniable.curves import Curve, curve_arguments
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.mechanisms import input_values, laws, noise_quantiles, rational_parameters
from deniable.mechanisms.laws import Masses
from deniable.mechanisms.mechanism import Mechanism
from deniable.noise.entropy import checked_entropy

if TYPE_CHECKING:
    from deniable.noise import Entropy

MOST_RATES: Final = 10**6
MOST_RATE: Final = 2**35
"""Largest rate. Values beyond it are clamped; clamping never moves two values apart."""
DIGITS: Final = 60
"""Rates of the transport form are rounded up to multiples of 2⁻⁶⁰ of the lowest promised rate."""
EVERYWHERE: Final = 1000
"""Largest `top` for which the error of the linear form is evaluated at every value."""
PIECES: Final = (1, 2**6, 2**12, 2**18, 2**23)
"""Public rates that counts consist of: five tables are enough, and 220 draws up to a rate of 2²³."""


@final
@dataclass(frozen=True, slots=True, repr=False)
class PoissonMechanism(Mechanism):
    """A Poisson count with a rate for each value 0, 1, 2, …: created by `PoissonMechanism.linear` or `.transport`.

    For all neighbours D, D′ whose values differ by at most `sensitivity`: at most as distinguishable as Poisson counts
    of the rates `low` and `high`, in either order. With `tied=True` (only if adding a unit never lowers the value) the
    higher rate always belongs to the same neighbour, and products of such curves are smaller.

    `release` returns the count itself; `estimate` converts it to a value, at no cost.

    >>> from deniable import mechanisms
    >>> noisy = mechanisms.PoissonMechanism.linear(low=2, high=5, sensitivity=2)
    >>> [float(noisy.rate(y)) for y in range(4)]
    [2.0, 3.5, 5.0, 6.5]
    >>> noisy.estimate(5)
    2.0

    Source: Pandey, Maleki & Kulkarni, slides on f-DP and infinitely divisible privacy.
    """

    low: Fraction
    high: Fraction
    sensitivity: int
    tied: bool
    top: int | None
    """Values are clamped to 0..top."""
    rates: tuple[Fraction, ...]
    """The rate of each value from 0 to top; empty for the linear form."""
    drawn: tuple[tuple[int, int], ...] = field(init=False, compare=False)
    """The public rates that every count consists of, largest first, and the number of draws of each."""
    denominator: int = field(init=False, compare=False)
    """A common denominator of all rates, so that the size of a coin does not reveal its rate."""

    def __post_init__(self) -> None:
        _check_rates(self.rates, self.low, self.high, self.sensitivity)
        ends = self.rates or (self.low, (self.high - self.low) / self.sensitivity)
        object.__setattr__(self, "drawn", _pieces(rational_parameters.floor(self.rate(self._most))))
        object.__setattr__(self, "denominator", math.lcm(*(end.denominator for end in ends)))

    @classmethod
    def linear(
        cls, *, low: float, high: float, sensitivity: int = 1, top: int | None = None, tied: bool = False
    ) -> PoissonMechanism:
        """λ(y) = low + (high − low)·y/sensitivity: unbiased, and without a largest value unless `top` gives one.

        The difference over a step of `sensitivity` is high − low, and the ratio is at most high/low, because no rate is
        below `low`.
        """
        bottom, upper, step, last = _parameters(low, high, sensitivity, top, tied)
        return cls(bottom, upper, step, tied, last, ())

    @classmethod
    def transport(
        cls, *, low: float, high: float, top: int, sensitivity: int = 1, tied: bool = False
    ) -> PoissonMechanism:
        """λ(y) = high·(low/high)^((top − y)/sensitivity), the optimal-transport form, rounded up and checked.

        >>> from deniable import mechanisms
        >>> slide = mechanisms.PoissonMechanism.transport(low=2, high=5, sensitivity=2, top=6)
        >>> [round(float(rate), 6) for rate in slide.rates]
        [0.32, 0.505964, 0.8, 1.264911, 2.0, 3.162278, 5.0]
        """
        bottom, upper, step, last = _parameters(low, high, sensitivity, top, tied)
        if last is None or last > MOST_RATES:
            raise InvalidParameter("top", top, f"must be a whole number, at most {MOST_RATES:,}")
        return cls(bottom, upper, step, tied, last, _transport_rates(bottom, upper, step, last))

    def __repr__(self) -> str:
        form = "transport" if self.rates else "linear"
        top = "" if self.top is None else f", top={self.top}"
        ends = f"low={float(self.low):g}, high={float(self.high):g}"
        return f"PoissonMechanism.{form}({ends}, sensitivity={self.sensitivity}{top}{', tied=True' * self.tied})"

    @property
    def curve(self) -> Curve:
        return curves.poisson(low=float(self.low), high=float(self.high), tied=self.tied)

    def rate(self, value: int) -> Fraction:
        """The rate for a value: pass public values only."""
        place = max(0, min(self._most, value))
        return (
            self.rates[place] if self.rates else self.low + (self.high - self.low) * Fraction(place, self.sensitivity)
        )

    @property
    def _most(self) -> int:
        """The largest value with a rate of its own: `top`, or the value at which the rate reaches MOST_RATE."""
        end = rational_parameters.floor((MOST_RATE - self.low) * self.sensitivity / (self.high - self.low))
        return self.top if self.rates and self.top is not None else min(end, self.top or end)

    def release(self, value: Any, *, entropy: Entropy | None = None) -> int:
        """A Poisson count with the rate of the value, an integer (clamped to 0..top)."""
        if entropy is not None:
            checked_entropy(entropy)
        if input_values.is_array(value):
            raise input_values.refused(
                "must be one whole number", "for disjoint counts use Parallel, one mechanism for each count"
            )
        whole, rest = divmod(self.rate(input_values.whole(value)), 1)
        total = 0
        for rate, count in self.drawn:
            taken, whole = divmod(whole, rate)
            total += int(np.dot(noise.poisson(rate=rate, size=count, entropy=entropy), np.arange(count) < taken))
        heads = int(rest * self.denominator)
        tosses = noise.poisson(rate=1, entropy=entropy)
        return total + sum(noise.uniform(below=self.denominator, entropy=entropy) < heads for _ in range(tosses))

    def law(self, value: Any) -> Masses:
        """Masses on counts for this value."""
        return laws.poisson(float(self.rate(input_values.whole(value))))

    def estimate(self, count: Any) -> Any:
        """An estimate of the value from a count. Linear: unbiased, (count − low)·w/(high − low). Transport: the value
        whose rate is nearest to the count in the logarithm, within 0..top.
        """
        counts = np.asarray(count, dtype=np.float64)
        if self.rates and self.top is not None:
            growth = math.log(self.high / self.low) / self.sensitivity
            found = self.top + (np.log(np.maximum(counts, 1e-300)) - math.log(self.high)) / growth
            found = np.clip(found, 0.0, self.top)
        else:
            found = (counts - float(self.low)) * self.sensitivity / float(self.high - self.low)
        return float(found) if found.ndim == 0 else found

    def error(self, *, confidence: float, value: int | None = None) -> float:
        """A bound on the distance of the estimate from the value, with probability at least `confidence`: the worst
        over 0..top, or at one `value`. From the exact tails of the Poisson law, with half of the allowed probability on
        each side.
        """
        allowed = noise_quantiles.miss(confidence) / 2
        if value is not None:
            places = [max(0, curve_arguments.integer("value", value, 0))]
        elif self.top is None:
            raise InvalidOperation("the error grows with the value; give value=, or make the mechanism with top=")
        elif not self.rates and self.top > EVERYWHERE:
            return self._widest(self.top, allowed) * (1 + noise_quantiles.SLACK)
        else:
            # At every value: counts are integers, so the error is not monotone in the rate.
            places = list(range(self.top + 1))
        worst = 0.0
        for place in places:
            low, high = _poisson_range(float(self.rate(place)), allowed)
            truth = place if self.top is None else min(place, self.top)
            worst = max(worst, truth - self.estimate(low), self.estimate(high) - truth)
        return worst * (1 + noise_quantiles.SLACK)

    def _widest(self, top: int, allowed: float) -> float:
        """The error of the linear form over all values up to `top`: the worst over all real rates up to the largest
        one.
        """
        most = self._most
        counts = _widest_range(float(self.rate(most)), allowed)
        return counts * self.sensitivity / float(self.high - self.low) + max(0, top - most)


def _parameters(
    low: Any, high: Any, sensitivity: Any, top: Any, tied: Any
) -> tuple[Fraction, Fraction, int, int | None]:
    # The curve takes floats, so the promised rates are floats too: the nearest ones.
    bottom, upper = Fraction(curve_arguments.positive("low", low)), Fraction(curve_arguments.positive("high", high))
    if not bottom < upper <= MOST_RATE:
        raise InvalidParameter("high", high, f"must be larger than low, and at most {MOST_RATE:,}")
    arguments.boolean("tied", tied)
    last = None if top is None else curve_arguments.integer("top", top, 1)
    return bottom, upper, curve_arguments.integer("sensitivity", sensitivity, 1), last


def _transport_rates(low: Fraction, high: Fraction, step: int, top: int) -> tuple[Fraction, ...]:
    """From the top down: each rate is the rate one step above it divided by high/low, rounded up."""
    grain = Fraction(2) ** (rational_parameters.floor_log2(low) - DIGITS)

    def rounded_up(rate: Fraction) -> Fraction:
        return rational_parameters.ceil(rate / grain) * grain

    falling: list[Fraction] = []
    for below in range(top + 1):
        if below < step:
            share = math.exp(-below / step * math.log(high / low)) if below else 1.0
            found = min(rounded_up(high * Fraction(share)), high) if below else high
            falling.append(found if not falling else min(found, falling[-1]))
        else:
            falling.append(rounded_up(falling[below - step] * low / high))
    return tuple(reversed(falling))


def _pieces(largest: int) -> tuple[tuple[int, int], ...]:
    """The number of draws of each public rate that make up any integer rate up to the largest one."""
    found: list[tuple[int, int]] = []
    for rate in reversed([piece for piece in PIECES if piece <= largest]):
        found.append((rate, found[-1][0] // rate - 1 if found else largest // rate))
    return tuple(found)


def _check_rates(rates: tuple[Fraction, ...], low: Fraction, high: Fraction, step: int) -> None:
    """Check both conditions for all pairs: non-decreasing rates are furthest apart at a distance of exactly `step`."""
    for i, rate in enumerate(rates):
        if i and rate < rates[i - 1]:
            raise InvalidParameter("rates", float(rate), "must not decrease")
        far = rates[min(i + step, len(rates) - 1)]
        if far - rate > high - low or far * low > high * rate:
            raise InvalidParameter("rates", float(rate), f"neighbours of value {i} would be too easy to distinguish")


def _poisson_range(rate: float, allowed: float) -> tuple[int, int]:
    """Counts low <= high with P(N < low) <= allowed and P(N > high) <= allowed, from scipy's Poisson tails."""
    from scipy.special import gammainc, pdtr

    sure = allowed * (1 - 1e-9)
    spread = math.sqrt(rate) + 1

    def above(n: int) -> float:
        return float(gammainc(n + 1, rate))  # P(N > n)

    def below(n: int) -> float:
        return float(pdtr(n - 1, rate)) if n > 0 else 0.0

    high = math.ceil(rate)
    while above(high) > sure:
        high += math.ceil(spread)
    while high > 0 and above(high - 1) <= sure:
        high -= 1
    low = math.floor(rate)
    while below(low) > sure:
        low = max(0, low - math.ceil(spread))
    while below(low + 1) <= sure:
        low += 1
    return low, high


def _widest_range(rate: float, allowed: float) -> float:
    """The largest distance of the ends of `_poisson_range` from their rate, over all rates up to this one.

    The lower end n stays while P(N <= n) > allowed and is furthest from its rate at the end of that stretch; the upper
    end n at the beginning of its own, where P(N >= n) = allowed. Both distances grow with n: they are quantiles of
    gamma laws minus their shape. Only near the median the lower one may fall, by no more than log 2 - 2/3 < 0.03 in all
    (Chen & Rubin 1986).
    """
    from scipy.special import gammainccinv, gammaincinv

    low, high = _poisson_range(rate, allowed)
    sure = allowed * (1 - 2e-9)
    below = float(gammainccinv(low + 1, sure)) - low
    above = high - float(gammaincinv(high, sure)) if high else 0.0
    return max(below, above) + 0.03
