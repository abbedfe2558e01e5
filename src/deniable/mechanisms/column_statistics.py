"""Sum, mean and variance of a column with public bounds, and bounds found privately.

Every value is clamped to [low, high] first, which limits how far one unit can move the answer. Clamping is total: NaN,
missing values and rows that are not numbers (a text in an object column or a list) count as the point of [low, high]
nearest to 0, infinities as the ends. Sums are exact (rational arithmetic), so their sensitivity is the textbook one for
floats too, whatever the order of the rows (Casacuberta, Shoemate, Vadhan & Wagaman 2022).

The number of rows is private if a unit is added or removed, and public if it is replaced. `Mean` and `Variance` treat
the two cases differently:

    Unit.row()             the noisy number of rows is part of the cost; no row count is used or shown
    Unit.replaced_row()    give rows=; all neighbours have that many
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable import noise
from deniable.curves import Curve, curve_arguments
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter
from deniable.mechanisms import distinguishing_parts, input_values, noise_quantiles, rational_parameters
from deniable.mechanisms.additive_noise import Gaussian, Laplace, asks_for_laplace
from deniable.mechanisms.distinguishing_parts import AnswerPart, Told
from deniable.mechanisms.histogram import curve_of_counts, noise_for_counts
from deniable.mechanisms.laws import Masses, NoiseLaw, masses
from deniable.mechanisms.mechanism import Mechanism, check_unit
from deniable.mechanisms.noise_steps import Additive, is_whole
from deniable.noise.entropy import checked_entropy
from deniable.units import Relation, Unit

if TYPE_CHECKING:
    from deniable.noise import Entropy

RESOLUTION: Final = 2**30
"""Values are rounded to this many steps between the bounds before they are squared, so that sums of
squares are exact.
"""


def _bounds(low: Any, high: Any) -> tuple[Fraction, Fraction]:
    low_end, high_end = rational_parameters.finite("low", low), rational_parameters.finite("high", high)
    if not low_end < high_end:
        raise InvalidParameter("high", high, "must be larger than low")
    if rational_parameters.up(low_end) > rational_parameters.down(high_end):
        raise InvalidParameter("high", high, "must leave a float between the bounds")
    return low_end, high_end


def _noise(
    bound: Any, size: int, scale: Any, epsilon: Any, sigma: Any, mu: Any, delta: Any, l2: Any = None
) -> Additive:
    """Laplace noise by scale or ε, Gaussian noise by sigma, μ, or ε with δ."""
    if asks_for_laplace(scale=scale, epsilon=epsilon, sigma=sigma, mu=mu, delta=delta):
        return Laplace(sensitivity=bound, scale=scale, epsilon=epsilon, dimension=size)
    moved = bound if l2 is None else l2
    return Gaussian(sensitivity=moved, sigma=sigma, mu=mu, epsilon=epsilon, delta=delta, dimension=size)


def clamp(data: Any, low: Fraction, high: Fraction) -> input_values.Floats:
    """A column between its bounds. NaN and missing values become the point nearest to 0."""
    column = input_values.column(data)
    # Bounds that are not floats are rounded inwards.
    least, most = rational_parameters.up(low), rational_parameters.down(high)
    middle = min(max(0.0, least), most)
    return np.clip(np.where(np.isnan(column), middle, column), least, most)


def clamp_whole(data: Any, low: int, high: int) -> input_values.Ints:
    """As `clamp`, for integers: other rows are rounded, each by itself. (In many programs a missing value turns a
    column of integers into floats, and this must not raise an error.)
    """
    # Converted to floats whatever the dtype: one missing value must not change the other rows.
    rounded = np.rint(clamp(data, Fraction(low), Fraction(high)))
    # Beyond 2⁵³ a bound may not be a float: clamp again, in integers.
    return np.clip(rounded, -(2.0**62), 2.0**62).astype(np.int64).clip(low, high)


def _rows(rows: Any, unit: Unit) -> int | None:
    """The public number of rows under replacement, None if it is private. Raises InvalidParameter if `rows` contradicts
    this.
    """
    check_unit(unit)
    if unit.relation is Relation.REPLACE:
        if rows is None:
            raise InvalidParameter("rows", NOTHING, "is missing", "say rows=: their number is public under replacement")
        return curve_arguments.integer("rows", rows, 1)
    if rows is not None:
        raise InvalidParameter("rows", rows, "is private when a unit is added or removed", "leave it out")
    return None


@dataclass(frozen=True, slots=True, init=False, repr=False)
class _Bounded(Mechanism):
    """Base of sum, mean and variance: bounds, a unit, and noise."""

    low: Fraction
    high: Fraction
    unit: Unit
    noise: Additive
    rows: int | None
    """The public number of rows, if it is public."""

    def _fill(self, low: Fraction, high: Fraction, unit: Unit, noisy: Additive, rows: int | None) -> None:
        self._settle(low=low, high=high, unit=unit, noise=noisy, rows=rows)

    @property
    def curve(self) -> Curve:
        return self.noise.curve

    @property
    def needs_its_rows(self) -> bool:
        """Whether the sensitivity holds only for replaced rows, and not for rows that are removed."""
        replaced = self.unit.relation is Relation.REPLACE
        return replaced and (self.rows is not None or not self.low <= 0 <= self.high)

    @property
    def width(self) -> Fraction:
        """high - low, exactly."""
        return self.high - self.low

    def __repr__(self) -> str:
        rows = "" if self.rows is None else f", rows={self.rows}"
        ends = f"low={float(self.low):g}, high={float(self.high):g}"
        return f"{type(self).__name__}({ends}{rows}, {self.unit!r}, {self.curve!r})"

    def _check_rows(self, found: int) -> None:
        if self.rows is not None and found != self.rows:
            raise input_values.refused(f"must have {self.rows} rows, as declared")

    def _rows_or_guess(self, rows: int | None) -> int:
        if self.rows is not None:
            return self.rows
        if rows is None:
            raise InvalidParameter(
                "rows", NOTHING, "is missing: the error depends on the number of rows, which is private", "say a guess"
            )
        return curve_arguments.integer("rows", rows, 1)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Sum(_Bounded):
    """The sum of a column whose values are clamped to [low, high], with noise.

    For all neighbours D, D′ by `unit` with k rows: the exact sum moves by at most k·max(|low|, |high|) if the unit is
    added or removed, and by k·(high − low) if it is replaced; `curve` follows from that. Laplace noise by `scale=` or
    `epsilon=`; Gaussian noise by `sigma=`, `mu=`, or `epsilon=` with `delta=`.

    Integer bounds give a mechanism for integers: its answers are integers, and other rows are rounded first. For
    fractions, give the bounds as floats.

    >>> from deniable import Unit, mechanisms
    >>> visits = mechanisms.Sum(low=0, high=20, unit=Unit.row(), epsilon=0.5)
    >>> visits.noise
    Laplace(sensitivity=20, scale=40.0, dimension=1)
    >>> answer = visits.release([3, 1, 250])

    Source: Dwork & Roth (2014), section 3.3.
    """

    def __init__(
        self,
        *,
        low: float,
        high: float,
        unit: Unit,
        scale: float | Fraction | None = None,
        epsilon: float | Fraction | None = None,
        sigma: float | Fraction | None = None,
        mu: float | None = None,
        delta: float | None = None,
    ) -> None:
        low_end, high_end = _bounds(low, high)
        check_unit(unit)
        added = unit.relation is Relation.ADD_REMOVE
        whole = is_whole(low) and is_whole(high)
        if whole and max(abs(low), abs(high)) > input_values.LARGEST:
            raise InvalidParameter("high", high, "whole bounds must be at most 2**62 in size")
        moved = unit.rows * (max(abs(low_end), abs(high_end)) if added else high_end - low_end)
        bound: Any = int(moved) if whole else moved
        self._fill(low_end, high_end, unit, _noise(bound, 1, scale, epsilon, sigma, mu, delta), None)

    def total(self, data: Any) -> int | Fraction:
        """The exact clamped sum. It is private data: do not show it."""
        if self.noise.exponent is None:
            return input_values.whole_sum(clamp_whole(data, int(self.low), int(self.high)))
        return noise.exact_sum(clamp(data, self.low, self.high))

    def release(self, value: Any, *, entropy: Entropy | None = None) -> Any:
        """The noisy sum of a column, which may be empty."""
        return self.noise.release(self.total(value), entropy=entropy)

    def law(self, value: Any) -> NoiseLaw:
        """The law of the answer: the sum of the clamped values plus noise."""
        total = self.total(value)
        return self.noise.law(total if self.noise.exponent is None else float(total))

    def error(self, *, confidence: float) -> float:
        """A bound on the distance from the clamped sum, with probability at least `confidence`. It does not include
        clamping.
        """
        return self.noise.error(confidence=confidence)

    def efficiency(self) -> float:
        """The efficiency of the noise: see `Laplace.efficiency`."""
        return self.noise.efficiency()


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Mean(_Bounded):
    """The mean of a column whose values are clamped to [low, high].

    *Replaced:* the number of rows n is public, the sum moves by at most k·W with W = high − low, and the answer is the
    noisy sum over n. *Added or removed:* n is private. Noise is added to two sums, A = Σ(x − low) and B = Σ(high − x).
    A row adds a point of the segment from (W, 0) to (0, W), so one unit of k rows moves (A, B) by at most k·W in L1 and
    in L2; and low + W·A/(A + B) is the mean. (Sum and count with ε/2 each need √2 times as much noise on both.)

    For all neighbours D, D′ by `unit`: at most as distinguishable as `curve` says. The answer is clamped to [low,
    high], and is the middle if the noisy number of rows is not positive. Arguments as for `Sum`, and the public number
    of `rows=` if the unit is replaced.

    >>> from deniable import Unit, mechanisms
    >>> wait = mechanisms.Mean(low=0, high=60, unit=Unit.row(), epsilon=1.0)
    >>> 0 <= wait.release([5, 12, 44]) <= 60
    True
    >>> round(wait.error(confidence=0.95, rows=10_000), 3)
    0.022

    Source: Dwork & Roth (2014), section 3.3, for each sum; the two sums are ours.
    """

    def __init__(
        self,
        *,
        low: float,
        high: float,
        unit: Unit,
        rows: int | None = None,
        scale: float | Fraction | None = None,
        epsilon: float | Fraction | None = None,
        sigma: float | Fraction | None = None,
        mu: float | None = None,
        delta: float | None = None,
    ) -> None:
        """`scale` and `sigma` are the noise levels of the sums."""
        low_end, high_end = _bounds(low, high)
        known = _rows(rows, unit)
        size = 2 if known is None else 1
        noisy = _noise(unit.rows * (high_end - low_end), size, scale, epsilon, sigma, mu, delta)
        self._fill(low_end, high_end, unit, noisy, known)

    def release(self, value: Any, *, entropy: Entropy | None = None) -> float:
        """The noisy mean of a column, within [low, high]; of no rows, pure noise. NaN and missing values count
        as the point nearest to 0. InvalidParameter if a declared number of rows is not met.
        """
        checked_entropy(entropy)
        above, below = self._sums(value)
        if self.rows is not None:
            return self._within(self.noise.noisy(above, entropy) / self.rows)
        a, b = self.noise.noisy(above, entropy), self.noise.noisy(below, entropy)
        return self._within(float(self.width) * a / (a + b) if a + b > 0 else float(self.width) / 2)

    def _sums(self, value: Any) -> tuple[Fraction, Fraction]:
        """Σ(x − low) and Σ(high − x)."""
        column = clamp(value, self.low, self.high)
        self._check_rows(column.size)
        total = noise.exact_sum(column)
        return total - column.size * self.low, column.size * self.high - total

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """The two noisy sums if the number of rows is private; else the mean, before it is clamped."""
        if self.rows is not None:
            return [AnswerPart(self.law(x), self.law(x2), before="the noisy mean, before it is clamped to its bounds")]
        one, two = (list(map(float, self._sums(column))) for column in (x, x2))
        names = ("the noisy sum of x - low", "the noisy sum of high - x")
        before = "the two noisy sums, before one is divided by both"
        return distinguishing_parts.numbers(self.noise, one, two, names.__getitem__, before)

    def law(self, value: Any) -> NoiseLaw:
        """The law of the answer before it is clamped to [low, high]. Raises InvalidOperation if the number of rows is
        private.
        """
        if self.rows is None:
            raise InvalidOperation(
                "with a private number of rows, a mean is a ratio of two noisy sums, and its law is not a noise law; "
                "look at the mean of replaced rows (Unit.replaced_row(), rows=), or at plots.tradeoff(mechanism.curve)"
            )
        column = clamp(value, self.low, self.high)
        self._check_rows(column.size)
        around = self.noise.law(float(noise.exact_sum(column)))
        return replace(around, spacing=around.spacing / self.rows, centre=around.centre / self.rows, is_whole=False)

    def _within(self, above: float) -> float:
        return min(max(float(self.low) + above, float(self.low)), float(self.high))

    def error(self, *, confidence: float, rows: int | None = None) -> float:
        """A bound on the distance from the mean of the clamped values, with probability at least `confidence`. If the
        number of rows is private, give a guess as `rows`.

        With noise a, b of at most e on both sums, |a(1−q) − bq|/(n + (a+b)/W) <= e/(n − 2e/W), where q is the share of
        A.
        """
        n, reach, width = self._rows_or_guess(rows), self.noise.error(confidence=confidence), float(self.width)
        left = n if self.rows is not None else n - 2 * reach / width
        return width if left <= 0 else min(width, reach / left * (1 + noise_quantiles.SLACK))


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Variance(_Bounded):
    """The variance Σ(x − mean)²/n of a column whose values are clamped to [low, high].

    With u = (x − low)/(high − low), every row adds the three numbers (1−u)², 2u(1−u), u². They are not negative and add
    up to 1, so *one unit of k rows added or removed* moves their sums (B₀, B₁, B₂) by at most k, in L1 and in L2. The
    sums determine everything: n = B₀ + B₁ + B₂, Σu = B₁/2 + B₂, Σu² = B₂. *Replaced:* n is public and (B₁, B₂) is
    enough. From u to v with d = v − u, s = u + v it moves by |2d(1 − s)| and d·s: at most 4/3 in L1 (from 1/3 to 1) and
    √1.024 in L2 (from 1/5 to 1), for each row.

    For all neighbours D, D′ by `unit`: at most as distinguishable as `curve` says. Values are rounded to (high −
    low)/2³⁰, so that the squares add up exactly. The answer is clamped to [0, (high − low)²/4]. Arguments as for
    `Mean`.

    >>> from deniable import Unit, mechanisms
    >>> spread = mechanisms.Variance(low=0, high=10, unit=Unit.row(), epsilon=1.0)
    >>> 0 <= spread.release([1.0, 4.5, 9.0]) <= 25
    True

    Source: the Bernstein form of the moments is ours.
    """

    def __init__(
        self,
        *,
        low: float,
        high: float,
        unit: Unit,
        rows: int | None = None,
        scale: float | Fraction | None = None,
        epsilon: float | Fraction | None = None,
        sigma: float | Fraction | None = None,
        mu: float | None = None,
        delta: float | None = None,
    ) -> None:
        """`scale` and `sigma` are the noise levels of the sums, whose unit is one row."""
        low_end, high_end = _bounds(low, high)
        known, k = _rows(rows, unit), Fraction(unit.rows)
        if known is None:
            noisy = _noise(k, 3, scale, epsilon, sigma, mu, delta)
        else:
            noisy = _noise(
                k * Fraction(4, 3),
                2,
                scale,
                epsilon,
                sigma,
                mu,
                delta,
                rational_parameters.root_up(k * k * Fraction(128, 125)),
            )
        self._fill(low_end, high_end, unit, noisy, known)

    def release(self, value: Any, *, entropy: Entropy | None = None) -> float:
        """The noisy variance of a column (divided by n), between 0 and (high - low)²/4; 0 if the noisy number of rows
        is not positive. InvalidParameter if a declared number of rows is not met.
        """
        checked_entropy(entropy)
        b1, b2, *b0 = (self.noise.noisy(number, entropy) for number in self._sums(value))
        n = float(self.rows) if self.rows is not None else b0[0] + (b1 + b2)
        if n <= 0:
            return 0.0
        first, second = min(max((b1 / 2 + b2) / n, 0.0), 1.0), b2 / n
        return min(max(second - first * first, 0.0), 0.25) * float(self.width) ** 2

    def _sums(self, value: Any) -> list[Fraction]:
        """B₁ and B₂, and B₀ if the number of rows is private."""
        steps = _steps(value, self.low, self.high)
        self._check_rows(steps.size)
        rest = RESOLUTION - steps
        found = [2 * input_values.whole_sum(steps * rest), input_values.whole_sum(steps * steps)]
        if self.rows is None:
            found.append(input_values.whole_sum(rest * rest))
        return [Fraction(number, RESOLUTION * RESOLUTION) for number in found]

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """The noisy sums that differ."""
        one, two = (list(map(float, self._sums(column))) for column in (x, x2))
        names, before = ("B₁", "B₂", "B₀"), "the noisy sums, before the variance is made of them"
        return distinguishing_parts.numbers(self.noise, one, two, lambda i: f"the noisy sum {names[i]}", before)

    def error(self, *, confidence: float, rows: int | None = None) -> float:
        """A bound on the distance from the variance of the clamped values, with probability at least `confidence`. If
        the number of rows is private, give a guess as `rows`.

        With noise of at most e on each sum, the mean of u is off by at most 1.5e/m and the mean of u² by 2e/m, m = n −
        3e (1.5e/n and e/n if n is public), and squaring doubles the former.
        """
        n, reach = self._rows_or_guess(rows), self.noise.error(confidence=confidence)
        most = float(self.width) ** 2 / 4
        left, factor = (n, 4.0) if self.rows is not None else (n - 3 * reach, 5.0)
        if left <= 0:
            return most
        rounding = 4 / RESOLUTION
        return min(most, (factor * reach / left + rounding) * float(self.width) ** 2 * (1 + noise_quantiles.SLACK))


def _steps(data: Any, low: Fraction, high: Fraction) -> input_values.Ints:
    """The position of each clamped value between the bounds, in steps from 0 to RESOLUTION.

    Each row's steps depend on that row alone, so that rounding here cannot move another row.
    """
    column = clamp(data, low, high)
    share = (column - float(low)) / float(high - low)
    return np.clip(np.rint(share * RESOLUTION), 0, RESOLUTION).astype(np.int64)


# -- bounds found privately ------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Bounds(Mechanism):
    """Bounds for a column, found privately: between powers of two whose counts exceed the noise.

    Counts the rows by sign and size (2^j <= |x| < 2^(j+1), j from the first to the last of `exponents`; smaller ones
    count as 0, larger ones as the largest) and adds noise to the counts: a histogram with public bins, with its
    guarantee for all neighbours D, D′ by `unit`. The bounds are the outer ends of the first and the last bin whose
    noisy count exceeds a threshold. In empty bins, noise alone reaches this threshold anywhere with probability at most
    1 − `confidence`. The answer is None if no count exceeds it, because there are too few rows.

    >>> from deniable import Unit, mechanisms
    >>> found = mechanisms.Bounds(unit=Unit.row(), epsilon=1.0, confidence=1 - 1e-10)
    >>> found.release([37.5] * 1000 + [120.0] * 500)
    (32.0, 128.0)

    Source: Wilson et al. (2020), section 5 (approximate bounds).
    """

    unit: Unit
    exponents: tuple[int, int]
    """The first and the last power of two."""
    confidence: float
    noise: Additive

    def __init__(
        self,
        *,
        unit: Unit,
        exponents: tuple[int, int] = (-20, 60),
        confidence: float = 0.99999,
        scale: float | Fraction | None = None,
        epsilon: float | Fraction | None = None,
        sigma: float | Fraction | None = None,
        mu: float | None = None,
        delta: float | None = None,
    ) -> None:
        if not isinstance(exponents, tuple) or len(exponents) != 2:
            raise InvalidParameter("exponents", exponents, "must be a pair (first, last)")
        first, last = (
            curve_arguments.integer("exponents", exponents[0], -1000),
            curve_arguments.integer("exponents", exponents[1], -1000),
        )
        if not first <= last <= 1000:
            raise InvalidParameter("exponents", exponents, "must be (first, last) with first <= last <= 1000")
        curve_arguments.inner_probability("confidence", confidence)
        size = 2 * (last - first + 1) + 1
        noisy = noise_for_counts(unit, scale=scale, epsilon=epsilon, sigma=sigma, mu=mu, delta=delta, dimension=size)
        self._settle(unit=unit, exponents=(first, last), confidence=float(confidence), noise=noisy)

    def __repr__(self) -> str:
        return f"Bounds(exponents={self.exponents}, {self.unit!r}, {self.curve!r})"

    @property
    def curve(self) -> Curve:
        return curve_of_counts(self.noise, self.unit)

    def count(self, data: Any) -> input_values.Ints:
        """The exact counts, from the most negative bin to the most positive. They are private data: do
        not show them.
        """
        column = input_values.column(data)
        first, last = self.exponents
        half = last - first + 1
        column = column[~np.isnan(column)]
        powers = np.frexp(np.where(np.isinf(column), 1.0, column))[1].astype(np.int64) - 1
        powers[np.isinf(column)] = last
        size = np.where((column == 0) | (powers < first), 0, np.minimum(powers, last) - first + 1)
        return np.bincount(np.where(column < 0, half - size, half + size), minlength=2 * half + 1).astype(np.int64)

    def release(self, value: Any, *, entropy: Entropy | None = None) -> tuple[float, float] | None:
        """(low, high), or None if there are too few rows."""
        noisy = self.noise.release(self.count(value), entropy=entropy)
        kept = np.flatnonzero(noisy > self.noise.error(confidence=self.confidence))
        return (self._end(int(kept[0]), -1), self._end(int(kept[-1]), 1)) if kept.size else None

    def law(self, value: Any) -> Masses:
        """Masses on pairs of bounds, and None: each bin is kept or dropped independently, and the first and the last
        kept count.
        """
        counts, least = self.count(value), math.floor(self.noise.error(confidence=self.confidence))
        # P(count + noise > least), by the symmetry of the noise, so that nothing cancels.
        kept, dropped = (
            np.array([float(self.noise.around(0).cdf(at)) for at in ends.tolist()])
            for ends in (counts - least - 1, least - counts)
        )
        before = np.concatenate(([1.0], np.cumprod(dropped)))
        after = np.concatenate(([1.0], np.cumprod(dropped[::-1])))[::-1]
        found: dict[Any, float] = {}
        for i, j in combinations_with_replacement(range(len(counts)), 2):
            both = kept[i] if i == j else kept[i] * kept[j]
            ends = (self._end(i, -1), self._end(j, 1))
            found[ends] = found.get(ends, 0.0) + float(before[i] * both * after[j + 1])
        found[None] = float(before[-1])
        return masses(list(found), list(found.values()))

    def _end(self, place: int, side: int) -> float:
        """The outer end of a bin on the given side; bins grow away from 0 in both directions."""
        half = self.exponents[1] - self.exponents[0] + 1
        away = place - half
        if away == 0:
            return side * math.ldexp(1.0, self.exponents[0])
        power = self.exponents[0] + abs(away) - 1
        outward = (away > 0) == (side > 0)
        return math.copysign(math.ldexp(1.0, power + outward), away)
