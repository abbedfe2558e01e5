"""Counts by bin: in public bins, and by keys that are not known in advance.

A row falls into one bin, so one unit moves few counts (`Sensitivity.histogram`): the noise does not grow with the
number of bins. Under `Unit.replaced_row()` a row may leave one bin and enter another: twice the ε of an added row.
"""

from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable import curves
from deniable.curves import Curve, curve_arguments
from deniable.curves.meaning.weakness_advice import warn_if_weak
from deniable.errors import NOTHING, InvalidParameter
from deniable.mechanisms import (
    distinguishing_parts,
    input_values,
    key_spelling,
    laws,
    noise_quantiles,
    rational_parameters,
)
from deniable.mechanisms.additive_noise import DiscreteLaplace, Gaussian, asks_for_laplace
from deniable.mechanisms.distinguishing_parts import AnswerPart, Told
from deniable.mechanisms.laws import Masses, OutputLaw
from deniable.mechanisms.mechanism import Mechanism, check_unit
from deniable.mechanisms.noise_steps import Additive
from deniable.noise.entropy import checked_entropy
from deniable.units import Relation, Sensitivity, Unit

if TYPE_CHECKING:
    from deniable.noise import Entropy

MOST_BINS: Final = 10**7
MOST_CELLS: Final = 2000
"""Most noisy counts of a key that are listed one by one."""
HIDDEN: Final = "hidden"


def noise_for_counts(
    unit: Unit, *, scale: Any, epsilon: Any, sigma: Any, mu: Any, delta: Any, dimension: int | None
) -> Additive:
    """Noise for disjoint counts: discrete Laplace by `scale` or `epsilon`, Gaussian by `sigma`, `mu`, or `epsilon` with
    `delta`.
    """
    check_unit(unit)
    moved = Sensitivity.histogram(unit)
    if asks_for_laplace(scale=scale, epsilon=epsilon, sigma=sigma, mu=mu, delta=delta):
        return DiscreteLaplace(sensitivity=moved, scale=scale, epsilon=epsilon, dimension=dimension)
    return Gaussian.whole(sensitivity=moved, sigma=sigma, mu=mu, epsilon=epsilon, delta=delta, dimension=dimension)


def curve_of_counts(noisy: Additive, unit: Unit) -> Curve:
    """The sharp curve. A replaced row moves two counts by one each, which leaks less than one count that moves by two
    (lemma A of `additive_noise`).
    """
    if unit.relation is Relation.REPLACE and unit.rows == 1 and isinstance(noisy, DiscreteLaplace):
        return curves.discrete_laplace(scale=rational_parameters.down(Fraction(noisy.width)), sensitivity=1) ** 2
    return noisy.curve


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Histogram(Mechanism):
    """Noisy counts in public bins, given by `edges` (numbers) or `categories`.

    For all neighbours D, D′ by `unit`: all counts together are at most as distinguishable as `curve` says. With
    `epsilon=` or `scale=` the noise is discrete Laplace of scale Δ₁/ε (Δ₁ = 1 for a row added or removed, 2 for a row
    replaced); with `sigma=`, `mu=`, or `epsilon=` and `delta=` it is a rounded Gaussian of σ = Δ₂/μ (Δ₂ = 1, √2).

    Bins must not come from the data. `edges` [a, b, c] are the bins [a, b) and [b, c]. Values outside the edges, NaN,
    and values that are not a category are not counted. Noisy counts may be negative; `shares()` clamps and normalises
    them, at no cost.

    >>> from deniable import Unit, mechanisms
    >>> ages = mechanisms.Histogram(edges=[0, 18, 65, 120], unit=Unit.row(), epsilon=1.0)
    >>> ages
    Histogram(3 bins, Unit.row(), <Curve discrete_laplace(scale=1)>)
    >>> ages.count([3, 30, 44, 70, 130, float("nan")])
    array([1, 2, 1])
    >>> len(ages.release([3, 30, 44, 70, 130]))
    3

    Source: Dwork & Roth (2014), section 3.3.
    """

    bins: tuple[Any, ...]
    """The edges, or the categories."""
    numeric: bool
    unit: Unit
    noise: Additive
    promise: Curve

    def __init__(
        self,
        *,
        edges: Sequence[float] | None = None,
        categories: Iterable[Hashable] | None = None,
        unit: Unit,
        scale: float | Fraction | None = None,
        epsilon: float | Fraction | None = None,
        sigma: float | Fraction | None = None,
        mu: float | None = None,
        delta: float | None = None,
    ) -> None:
        numeric = curve_arguments.exactly_one(edges=edges, categories=categories) == "edges"
        bins = _edges(edges) if numeric else _categories(categories)
        count = len(bins) - 1 if numeric else len(bins)
        noisy = noise_for_counts(unit, scale=scale, epsilon=epsilon, sigma=sigma, mu=mu, delta=delta, dimension=count)
        promise = curve_of_counts(noisy, unit)
        self._settle(bins=bins, numeric=numeric, unit=unit, noise=noisy, promise=promise)

    def __len__(self) -> int:
        return len(self.bins) - 1 if self.numeric else len(self.bins)

    @property
    def labels(self) -> tuple[Any, ...]:
        """A name for each count: the categories, or the bins as intervals.

        >>> from deniable import Unit, mechanisms
        >>> mechanisms.Histogram(edges=[0, 18, 65.5], unit=Unit.row(), epsilon=1.0).labels
        ('[0, 18)', '[18, 65.5]')
        """
        if not self.numeric:
            return self.bins
        words = [repr(rational_parameters.short(Fraction(edge))) for edge in self.bins]
        last = len(words) - 2
        return tuple(f"[{a}, {b}{']' if i == last else ')'}" for i, (a, b) in enumerate(pairwise(words)))

    def __repr__(self) -> str:
        return f"Histogram({len(self)} bins, {self.unit!r}, {self.promise!r})"

    @property
    def curve(self) -> Curve:
        return self.promise

    def count(self, data: Any) -> input_values.Ints:
        """The exact counts. They are private data: do not show them."""
        return _count_numbers(self.bins, data) if self.numeric else _count_categories(self.bins, data)

    def release(self, value: Any, *, entropy: Entropy | None = None) -> input_values.Ints:
        """Noisy counts of a column of rows, one for each bin."""
        return self.release_counts(self.count(value), entropy=entropy)

    def law(self, value: Any) -> OutputLaw:
        """The noise around the count, for a histogram of one bin. Raises InvalidOperation for several bins."""
        laws.needs_one_number(len(self), "Histogram")
        return self.noise.law(int(self.count(value)[0]))

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """The counts that differ."""
        return distinguishing_parts.numbers(
            self.noise, self.count(x), self.count(x2), lambda i: f"the count of {self.labels[i]}"
        )

    def release_counts(self, counts: Any, *, entropy: Entropy | None = None) -> input_values.Ints:
        """Noisy counts from exact counts that were computed elsewhere: one for each bin, in the order of the bins. With
        categories also by key: a dict, or a pandas series such as value_counts() returns; keys that are not categories
        are ignored, and categories without a key count 0.
        """
        if isinstance(counts, Mapping) or input_values.is_labelled(counts):
            if self.numeric:
                raise input_values.refused(
                    "must be a list of counts in the order of the bins", "write them in that order"
                )
            counts = _in_order(self.bins, by_key(counts))
        if input_values.is_table(counts):
            raise input_values.refused(f"must be {len(self)} counts, one for each bin", input_values.ONE_COLUMN)
        noisy: input_values.Ints = np.asarray(
            self.noise.release(np.atleast_1d(input_values.wholes(counts)), entropy=entropy)
        )
        return noisy

    def shares(self) -> Mechanism:
        """The same mechanism with its answer converted to shares: clamped at 0 and divided by the sum.

        If no count is above 0, all shares are equal. (Dividing by that sum is a common error: with 10 empty bins it
        divides by zero once in a thousand runs.) Under `Unit.row()` the number of rows is private, and is not needed.
        """
        return Shares(self)

    def error(self, *, confidence: float) -> float:
        """A bound on the error of all counts at once, with probability at least `confidence`."""
        return self.noise.error(confidence=confidence)


@final
@dataclass(frozen=True, slots=True, repr=False)
class Shares(Mechanism):
    """A histogram as shares, with the guarantee of the histogram. Created by `Histogram.shares()`."""

    histogram: Histogram

    def __repr__(self) -> str:
        return f"{self.histogram!r}.shares()"

    @property
    def curve(self) -> Curve:
        return self.histogram.curve

    @property
    def unit(self) -> Unit:
        """The histogram's unit."""
        return self.histogram.unit

    @property
    def labels(self) -> tuple[Any, ...]:
        """A name for each share."""
        return self.histogram.labels

    def release(self, value: Any, *, entropy: Entropy | None = None) -> input_values.Floats:
        """Noisy shares of a column of rows, one for each bin."""
        return shares(self.histogram.release(value, entropy=entropy))

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """The parts of the histogram whose distributions differ, as noisy counts (before they become shares)."""
        return distinguishing_parts.made_from(
            self.histogram.told_apart(x, x2), "the noisy counts, before they are made into shares"
        )


def shares(counts: Any) -> input_values.Floats:
    """Noisy counts as shares: clamped at 0 and divided by the sum; equal shares if no count is above 0.

    >>> shares([6, -1, 2])
    array([0.75, 0.  , 0.25])
    >>> shares([-3, 0])
    array([0.5, 0.5])
    """
    clamped = np.maximum(np.asarray(counts, dtype=np.float64), 0.0)
    total = clamped.sum()
    return np.asarray(clamped / total) if total > 0 else np.full(clamped.shape, 1 / clamped.size)


def _edges(edges: Any) -> tuple[float, ...]:
    listed = curve_arguments.numbers_array("edges", _finite(edges))
    if len(listed) < 2 or len(listed) > MOST_BINS or not bool(np.all(np.diff(listed) > 0)):
        raise InvalidParameter("edges", NOTHING, "must be at least two numbers, in increasing order")
    return tuple(listed.tolist())


def _finite(edges: Any) -> Any:
    """The edges. An infinite edge is a common request, so it gets an error of its own."""
    if isinstance(edges, Iterable) and not isinstance(edges, str | bytes):
        edges = list(edges)
        if any(isinstance(edge, float) and math.isinf(edge) for edge in edges):
            remedy = "for an open bin at the end, take a number beyond everything possible: [0, 18, 65, 1000]"
            raise InvalidParameter("edges", NOTHING, "must be finite", remedy)
    return edges


def _categories(categories: Any) -> tuple[Any, ...]:
    if isinstance(categories, Set):  # the order of a set of strings differs from process to process
        raise InvalidParameter("categories", NOTHING, "must have an order, and a set has none", "write sorted(...)")
    if input_values.is_table(categories) or isinstance(categories, Mapping | str | bytes | numbers.Number):
        raise InvalidParameter("categories", NOTHING, "must be a list of categories")
    if not isinstance(categories, Iterable):
        raise InvalidParameter("categories", NOTHING, "must be a list of categories")
    listed = tuple(categories)
    try:
        # Compared in canonical form: a row counts for every category equal to it, so it must be equal to only one.
        distinct = len({key_spelling.of(category)[0] for category in listed})
    except Exception:  # a category may be of any class, and its hash or == may raise anything
        raise InvalidParameter("categories", NOTHING, "must be hashable: strings, numbers, tuples") from None
    if not 1 <= len(listed) <= MOST_BINS or distinct != len(listed):
        raise InvalidParameter("categories", NOTHING, "must be one or more different categories")
    return listed


def _count_numbers(edges: tuple[float, ...], data: Any) -> input_values.Ints:
    column = input_values.column(data)
    borders = np.array(edges)
    inside = (column >= borders[0]) & (column <= borders[-1])  # False for NaN
    places = np.searchsorted(borders, column[inside], side="right") - 1
    places[places == len(borders) - 1] -= 1  # the last edge belongs to the last bin
    return np.bincount(places, minlength=len(borders) - 1).astype(np.int64)


Tally = dict[Hashable, tuple[Any, int]]
"""Counts of keys by their identity, each with the form in which it is shown."""


def tally(data: Any) -> Tally:
    """How often each key occurs in a column. Values that cannot be hashed or printed are not keys, and are ignored."""
    listed = input_values.keys(data)
    # Equal keys of these types have the same canonical form, so they may be counted first.
    if set(map(type, listed)) <= {str, bytes, int, float, bool, type(None)}:
        return _summed(Counter(listed).items())
    return _summed((key, 1) for key in listed)


def by_key(counts: Any) -> Tally:
    """Counts by key, from a dict or a labelled series, with each key in canonical form."""
    if not isinstance(counts, Mapping) and not input_values.is_labelled(counts):
        raise input_values.refused("must be counts by key: a dict, or what value_counts() of pandas makes")
    return _summed((key, input_values.whole(count)) for key, count in counts.items())


def _summed(counts: Iterable[tuple[Any, int]]) -> Tally:
    found: Tally = {}
    for key, count in counts:
        try:
            identity, shown = key_spelling.of(key)
            if identity not in found:
                str(shown)  # it must be printable
            found[identity] = (shown, found.get(identity, (shown, 0))[1] + count)
        except (
            Exception
        ):  # a key may be of any class, whose hash, == or str may raise anything; an error would be about one row
            continue
    return found


def _in_order(categories: tuple[Any, ...], found: Tally) -> list[int]:
    """The counts of these categories."""
    return [found.get(key_spelling.of(category)[0], (category, 0))[1] for category in categories]


def _count_categories(categories: tuple[Any, ...], data: Any) -> input_values.Ints:
    return np.array(_in_order(categories, tally(data)), dtype=np.int64)


# -- keys that are not known in advance ------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class UnknownKeys(Mechanism):
    """Noisy counts of keys that are not known in advance: only keys whose noisy count reaches a threshold are shown.

    For all neighbours D, D′ by `unit`: at most as distinguishable as noisy counts with public keys, times a mechanism
    that reveals everything with probability δ_τ. The noise is discrete Laplace (`scale=`, `epsilon=`) or a rounded
    Gaussian (`sigma=`, `mu=`). Give `delta=`, and the threshold is the smallest one that satisfies it, or give
    `threshold=`.

    *Proof.* Let D′ be D with a unit of at most k rows added. Keys of D: their noisy counts are the mechanism with known
    bins, and suppressing some is post-processing. Keys that only D′ has: all their rows are the unit's, c₁ + … + c_n <=
    k. Their noise is independent of the rest, so the output on D′ has two independent parts: the keys of D, and
    "nothing new" with probability 1 − δ′, something new with probability δ′ = 1 − Π P(c_i + Z < τ). On D the second
    part is always "nothing new". So the curve is the product of the curve of known bins and a curve of total variation
    δ′, which approximate(0, δ′) dominates (Kairouz, Oh & Viswanath 2015). If rows are replaced, each table may have up
    to k rows with keys of their own, and the second part has mass δ′ on different events: dominated likewise.

    *The worst split.* φ(c) = −log P(c + Z < τ) is convex and increasing for log-concave noise. For n keys the sum of
    φ(c_i) is largest at (k − n + 1, 1, …, 1), and convex in n, so largest at n = 1 or n = k: δ_τ = max(P(Z >= τ − k), 1
    − P(Z < τ − 1)^k). ∎

    Keys with the same noisy count are shown in an order that depends on the keys only. Equal keys have one canonical
    form, whichever row came first: 1 for 1.0 and True, None for everything missing, UTC for a moment in any zone.

    >>> from deniable import Unit, mechanisms
    >>> towns = mechanisms.UnknownKeys(unit=Unit.row(), epsilon=1.0, delta=1e-6)
    >>> towns.threshold
    15
    >>> "Ulm" in towns.release(["Ulm"] * 400 + ["Rottweil"])
    True

    Source: Korolova, Kenthapadi, Mishra & Ntoulas (2009); Wilson et al. (2020).
    """

    unit: Unit
    noise: Additive
    threshold: int

    def __init__(
        self,
        *,
        unit: Unit,
        scale: float | Fraction | None = None,
        epsilon: float | Fraction | None = None,
        sigma: float | Fraction | None = None,
        mu: float | None = None,
        delta: float | None = None,
        threshold: int | None = None,
    ) -> None:
        noisy = noise_for_counts(unit, scale=scale, epsilon=epsilon, sigma=sigma, mu=mu, delta=None, dimension=None)
        if curve_arguments.exactly_one(delta=delta, threshold=threshold) == "threshold":
            least = curve_arguments.integer("threshold", threshold, unit.rows + 1)
        else:
            most = rational_parameters.chance_at_most("delta", delta)
            warn_if_weak(delta=most)
            least = least_threshold(noisy, rows=unit.rows, each=unit.rows, delta=most)
        self._settle(unit=unit, noise=noisy, threshold=least)

    def __repr__(self) -> str:
        return f"UnknownKeys({self.unit!r}, threshold={self.threshold}, {self.curve!r})"

    @property
    def delta(self) -> float:
        """The probability that a key that only one unit has is shown, rounded up."""
        return _chance_shown(self.noise, self.unit.rows, self.threshold, self.unit.rows)

    @property
    def curve(self) -> Curve:
        return curve_of_counts(self.noise, self.unit) * curves.approximate(epsilon=0.0, delta=self.delta)

    def release(self, value: Any, *, entropy: Entropy | None = None) -> dict[Any, int]:
        """Noisy counts by key, of a column of keys; largest first."""
        return self._released(tally(value), entropy)

    def release_counts(self, counts: Any, *, entropy: Entropy | None = None) -> dict[Any, int]:
        """As `release`, from exact counts by key that were computed elsewhere: a dict, or what value_counts() of pandas
        returns. It must not contain keys without a row.
        """
        return self._released(by_key(counts), entropy)

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """For each key whose count differs: whether it is shown, and with which noisy count."""
        one, two = tally(x), tally(x2)
        found: list[Told] = []
        for key in {**one, **two}:
            here, there = self._laws([side[key][1] if key in side else 0 for side in (one, two)])
            name = f"key {(one if key in one else two)[key][0]}" if len({**one, **two}) > 1 else ""
            found.append(AnswerPart(here, there, name))
        return distinguishing_parts.differing(found) or [distinguishing_parts.NOTHING_TOLD]

    def _laws(self, both: list[int]) -> list[Masses]:
        """Hidden, or shown with a noisy count, for two exact counts; the last cell contains all larger ones."""
        reach = (40 if isinstance(self.noise, DiscreteLaplace) else 10) * float(self.noise.width)
        last = max(self.threshold, max(both) + math.ceil(reach))
        cells = np.unique(np.floor(np.linspace(self.threshold, last, min(last - self.threshold, MOST_CELLS) + 1)))
        answers = (HIDDEN, *(int(cell) for cell in cells))
        found = []
        for count in both:
            if count <= 0:
                found.append(Masses((HIDDEN,), np.ones(1)))
            else:
                around = self.noise.around(count)
                # P(at least a cell's first count), computed from the upper tail, so that nothing cancels.
                least = around.cdf(2.0 * count - cells)
                masses = np.concatenate(([around.cdf(self.threshold - 1)], least[:-1] - least[1:], least[-1:]))
                found.append(Masses(answers, masses))
        return found

    def _released(self, found: Tally, entropy: Entropy | None) -> dict[Any, int]:
        if entropy is not None:
            checked_entropy(entropy)
        present = [(key, count) for key, count in found.values() if count > 0]
        if not present:
            return {}
        exact_counts = input_values.wholes([count for _, count in present])
        noisy = exact_counts + self.noise.draw(exact_counts.shape, entropy)
        kept = [(int(count), key) for (key, _), count in zip(present, noisy, strict=True) if count >= self.threshold]
        # The order of the rows must not be visible: it may reveal who came first.
        kept.sort(key=lambda pair: (-pair[0], str(type(pair[1])), str(pair[1])))
        shown: dict[Any, int] = {}
        for count, key in kept:
            shown.setdefault(key, count)  # of equal objects with different reprs, the one with the larger noisy count
        return shown

    def error(self, *, confidence: float) -> float:
        """A bound on the noise of any one key that is named in advance, with probability at least `confidence`. (If the
        count of a shown key is near the threshold, its noise helped it across.)
        """
        return self.noise.error(confidence=confidence)


def _tail(noisy: Additive, reach: int) -> float:
    """P(Z >= reach) for a reach of at least 1, rounded up."""
    width = float(noisy.width)
    if isinstance(noisy, DiscreteLaplace):
        # r^reach/(1 + r), r = e^(-1/scale).
        found = math.exp(-reach / width) / (1 + math.exp(-1 / width))
    else:
        from scipy.special import ndtr

        found = float(ndtr(-(reach - 0.5) / width))
    # The exponent has an error of a few units in its last place, so the power has a relative error of that many times
    # its size.
    return min(1.0, found * (1 + 1e-12) + 1e-300)


def _chance_shown(noisy: Additive, rows: int, threshold: int, each: int) -> float:
    """The largest probability that a key of one unit alone is shown, if it has `rows` rows and at most `each` of them
    share a key.

    The worst split of the rows into keys has the largest sum of φ (see `UnknownKeys`). φ is convex, so in the worst
    split all keys except one have 1 or `each` rows. The sum is linear in the number of keys with `each` rows, so three
    splits are enough: only keys of 1 row; as many keys of `each` rows as possible, and the other rows with a key each;
    or the other rows with one key together.
    """
    full, rest = divmod(rows, each)

    def hidden(*parts: tuple[int, int]) -> float:
        return sum(count * math.log1p(-_tail(noisy, threshold - size)) for size, count in parts if count)

    splits = (hidden((1, rows)), hidden((each, full), (1, rest)), hidden((each, full), (rest, 1 if rest else 0)))
    return min(1.0, -math.expm1(min(splits)) * (1 + noise_quantiles.SLACK))


def least_threshold(noisy: Additive, *, rows: int, each: int, delta: float) -> int:
    """The smallest threshold that shows a key of one unit alone with probability at most δ, if the unit has at most
    `rows` rows, at most `each` of them with the same key. `each=1` counts people instead of rows.
    """
    if delta < 1e-290:
        raise InvalidParameter("delta", delta, "must be at least 1e-290")
    low, high = each, each + 1
    while _chance_shown(noisy, rows, high, each) > delta:
        low, high = high, each + 2 * (high - each)
    while high - low > 1:
        middle = (low + high) // 2
        if _chance_shown(noisy, rows, middle, each) > delta:
            low = middle
        else:
            high = middle
    return high
