"""The sampled laws: for each, its cumulative probabilities enclosed between integers, to any precision.

Each class computes F(k) = P(X <= k) as [low, high]/2^bits, from enclosures of e^-x and rational steps. There are no
floats and no truncation: with more bits, a law reaches further into its tails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import final

from deniable.noise.integer_enclosures import GUARD, Bounds, exp_minus, normal_integral, ratio


@final
@dataclass(frozen=True, slots=True)
class Cumulative:
    """A cumulative distribution function: F(first), F(first + 1), ... lie between `lows` and `highs`, in units of
    2^-bits. If not `open_below`, no value lies below `first`, and a uniform u < F(first) means the value `first`. If
    `open_below`, `first` lies so deep in the tail that F(first) <= 2^-reach, and u < F(first) does not decide the
    value. `open_above` says the same about the last value.
    """

    first: int
    lows: list[int]
    highs: list[int]
    open_below: bool
    open_above: bool


class SampledLaw(ABC):
    """A probability law on the integers."""

    __slots__ = ()

    @abstractmethod
    def cumulative(self, bits: int, reach: int) -> Cumulative:
        """F in units of 2^-bits, for all values except tails of probability at most 2^-reach (reach <= bits)."""


def _from_tails(below: list[Bounds], above: list[Bounds], bits: int) -> Cumulative:
    """The cumulative probabilities from P(X <= -1), P(X <= -2), ... and P(X >= 1), P(X >= 2), ..."""
    one = 1 << bits
    lows = [low for low, _ in reversed(below)] + [one - high for _, high in above]
    highs = [high for _, high in reversed(below)] + [one - low for low, _ in above]
    return Cumulative(-len(below), lows, highs, bool(below), True)


def _powers(start: Bounds, factor: Bounds, bits: int, drop: int, reach: int) -> list[Bounds]:
    """start, start × factor, start × factor², ... until at most 2^-reach; `drop` bits are cut from each."""
    low, high = start
    least = 1 << (bits - reach)
    result = []
    while True:
        result.append((low >> drop, (high >> drop) + 1))
        if result[-1][1] <= least:
            return result
        low, high = low * factor[0] >> (bits + drop), (high * factor[1] >> (bits + drop)) + 1


@final
@dataclass(frozen=True, slots=True)
class GeometricBlocks(SampledLaw):
    """floor(X/block) for X >= 0 with P(X = k) ∝ e^(-k/scale): F(j) = 1 - Q^(j+1) with Q = e^(-block/scale)."""

    scale: Fraction
    block: int

    def cumulative(self, bits: int, reach: int) -> Cumulative:
        inner = bits + GUARD
        factor = exp_minus(self.block / self.scale, inner)
        return _from_tails([], _powers(factor, factor, bits, GUARD, reach), bits)


@final
@dataclass(frozen=True, slots=True)
class LaplaceBlocks(SampledLaw):
    """floor(X/block) for X with P(X = k) ∝ e^(-|k|/scale).

    With q = e^(-1/scale) and Q = q^block: P(j >= i) = Q^i/(1+q) and P(j <= -i) = q Q^(i-1)/(1+q) for i >= 1.
    """

    scale: Fraction
    block: int

    def cumulative(self, bits: int, reach: int) -> Cumulative:
        inner = bits + GUARD
        one = 1 << inner
        step = exp_minus(1 / self.scale, inner)
        factor = exp_minus(self.block / self.scale, inner)
        whole = one + step[0], one + step[1]
        below = _powers(ratio(step, whole, inner), factor, bits, GUARD, reach)
        above = below if self.block == 1 else _powers(ratio(factor, whole, inner), factor, bits, GUARD, reach)
        return _from_tails(below, above, bits)


def _bell_tails(variance: Fraction, bits: int) -> tuple[list[int], int]:
    """Σ_(j>=k) e^(-j²/(2 variance)) for k = 0, 1, ... in steps of 2^-bits, and a bound on how much each is too small.

    With w_k = e^(-k²/(2 variance)): w_(k+1) = w_k r_k and r_(k+1) = r_k Q, where r_0 = √Q and Q = e^(-1/variance). An
    enclosure is two steps wide, so r_k is too small by at most 2 + 3k steps and w_k by at most 3k(k+1)/2.
    """
    fall = exp_minus(1 / (2 * variance), bits)[0]
    factor = exp_minus(1 / variance, bits)[0]
    weights = [1 << bits]
    while weights[-1]:
        weights.append(weights[-1] * fall >> bits)
        fall = fall * factor >> bits
    k = len(weights)
    short = 3 * k * (k + 1) // 2
    # Ratios decrease, so the weights after one of at most `short` sum to at most short r/(1 - r).
    fall += 3 * k + 2
    rest = short * fall // ((1 << bits) - fall) + 1
    return [*accumulate(reversed(weights))][::-1], k * short + rest


def _shares(tails: list[int], short: int, whole: Bounds, bits: int, reach: int) -> list[Bounds]:
    """tails/whole until at most 2^-reach, where each tail may be too small by `short`."""
    least = 1 << (bits - reach)
    result = []
    for tail in tails:
        result.append(ratio((tail, tail + short), whole, bits))
        if result[-1][1] <= least:
            break
    return result


@final
@dataclass(frozen=True, slots=True)
class DiscreteGaussianLaw(SampledLaw):
    """P(k) ∝ e^(-k²/(2 variance))."""

    variance: Fraction

    def cumulative(self, bits: int, reach: int) -> Cumulative:
        inner = bits + 2 * GUARD
        tails, short = _bell_tails(self.variance, inner)
        whole = 2 * tails[0] - (1 << inner)
        shares = _shares(tails[1:], short, (whole, whole + 2 * short), bits, reach)
        return _from_tails(shares, shares, bits)


@final
@dataclass(frozen=True, slots=True)
class GaussianBlocks(SampledLaw):
    """P(j) = P(-1 - j) ∝ e^(-j²/(2 variance)) for j = 0, 1, ...: a bell over blocks, each as high as its end nearer to
    0.
    """

    variance: Fraction

    def cumulative(self, bits: int, reach: int) -> Cumulative:
        tails, short = _bell_tails(self.variance, bits + 2 * GUARD)
        above = _shares(tails[1:], short, (2 * tails[0], 2 * (tails[0] + short)), bits, reach)
        half = 1 << (bits - 1)  # P(j <= -1), exactly
        return _from_tails([(half, half), *above], above, bits)


@final
@dataclass(frozen=True, slots=True)
class RoundedGaussianLaw(SampledLaw):
    """The law of round(N(0, sigma²)): P(X >= k) is ∫ e^(-t²/2) dt from (k - 1/2)/sigma on, divided by the whole
    integral.
    """

    sigma: Fraction

    def cumulative(self, bits: int, reach: int) -> Cumulative:
        inner = bits + GUARD
        integral = normal_integral(inner)
        whole = 2 * integral.whole[0], 2 * integral.whole[1]
        least = 1 << (bits - reach)
        shares: list[Bounds] = []
        while not shares or shares[-1][1] > least:
            k = len(shares) + 1
            shares.append(ratio(integral.above((2 * k - 1) / (2 * self.sigma)), whole, bits))
        return _from_tails(shares, shares, bits)


def _walk(weight: int, above: int, below: int, fall: int, rise: int) -> tuple[list[int], int, bool]:
    """Weights away from the largest one, each the previous times above/below; each step lowers `above` by `fall` and
    raises `below` by `rise`.

    Products are rounded down, so the i-th weight is too small by less than i. The walk ends at a weight of 0, or at the
    end of the support (above = 0). Returns the weights, a bound on the sum of all later weights, and whether there are
    any.
    """
    weights = []
    while weight and above:
        weight = weight * above // below
        weights.append(weight)
        above -= fall
        below += rise
    rest = len(weights) * above // (below - above) + 1 if above else 0
    return weights, rest, above > 0


def _around(
    mode: int, down: tuple[int, int, int, int], up: tuple[int, int, int, int], bits: int, reach: int
) -> Cumulative:
    """The law whose weights decrease from `mode` in both directions; `down` and `up` are arguments of `_walk`."""
    largest = 1 << (bits + GUARD)
    lower, rest_below, open_below = _walk(largest, *down)
    upper, rest_above, open_above = _walk(largest, *up)
    sums = [*accumulate([*reversed(lower), largest, *upper])]
    short = max(len(lower), len(upper)) * len(sums) + rest_below
    whole = sums[-1], sums[-1] + short + rest_above
    first = mode - len(lower)
    if not open_above:
        sums.pop()  # the last value ends the support: its F = 1 is not a threshold
    bounds = [ratio((s, s + short), whole, bits) for s in sums]
    # Of each open tail keep only one threshold below 2^-reach.
    start, stop = 0, len(bounds)
    if open_below:
        while start + 1 < stop and bounds[start + 1][1] <= 1 << (bits - reach):
            start += 1
    if open_above:
        while start + 1 < stop and bounds[stop - 2][0] >= (1 << bits) - (1 << (bits - reach)):
            stop -= 1
    kept = bounds[start:stop]
    return Cumulative(first + start, [low for low, _ in kept], [high for _, high in kept], open_below, open_above)


@final
@dataclass(frozen=True, slots=True)
class PoissonLaw(SampledLaw):
    """P(k) = e^-rate rate^k/k!, for rate > 0: from the mode, by the ratios rate/(k+1) upwards and k/rate downwards."""

    rate: Fraction

    def cumulative(self, bits: int, reach: int) -> Cumulative:
        rate, per = self.rate.numerator, self.rate.denominator
        mode = rate // per
        return _around(mode, (per * mode, rate, per, 0), (rate, per * (mode + 1), 0, per), bits, reach)


@final
@dataclass(frozen=True, slots=True)
class BinomialLaw(SampledLaw):
    """P(k) = C(n, k) p^k (1-p)^(n-k) for 0 < p < 1: from the mode, by the ratios (n-k) p/((k+1)(1-p))."""

    n: int
    p: Fraction

    def cumulative(self, bits: int, reach: int) -> Cumulative:
        yes = self.p.numerator
        no = self.p.denominator - yes
        mode = (self.n + 1) * yes // (yes + no)
        down = no * mode, yes * (self.n - mode + 1), no, yes
        up = yes * (self.n - mode), no * (mode + 1), yes, no
        return _around(mode, down, up, bits, reach)


@final
@dataclass(frozen=True, slots=True)
class BernoulliLaw(SampledLaw):
    """P(1) = p, P(0) = 1 - p."""

    p: Fraction

    def cumulative(self, bits: int, reach: int) -> Cumulative:
        above, below = self.p.denominator - self.p.numerator, self.p.denominator
        return Cumulative(0, [(above << bits) // below], [-((-above << bits) // below)], False, False)


@final
@dataclass(frozen=True, slots=True)
class BernoulliExpLaw(SampledLaw):
    """P(1) = e^-x, P(0) = 1 - e^-x."""

    x: Fraction

    def cumulative(self, bits: int, reach: int) -> Cumulative:
        low, high = exp_minus(self.x, bits)
        return Cumulative(0, [(1 << bits) - high], [(1 << bits) - low], False, False)
