"""Inverse sensitivity: an answer is likely if few people's data would have to change to make it the true one.

For a statistic f with finitely many answers, D(x, y) = min{k : some x′ with d(x, x′) = k has f(x′) = y}. It moves by at
most 1 between neighbours, so it is a utility of sensitivity 1 for any f at all. The resulting mechanism is at least as
accurate as every unbiased mechanism at ε/4 (Asi & Duchi 2020), and at ε/2 if there are only two answers.

The list of answers must be public, and each must be the true one for some data. An answer that no data have raises
InvalidParameter (its distance is infinite), because leaving it out must be decided before looking at the data.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from deniable import curves
from deniable.curves import Curve, curve_arguments
from deniable.errors import NOTHING, InvalidParameter
from deniable.mechanisms import input_values, laws, rational_parameters
from deniable.mechanisms.exact_choice import choose
from deniable.mechanisms.laws import Masses
from deniable.mechanisms.mechanism import Mechanism
from deniable.mechanisms.selection import Exponential, Number, exponential_gap
from deniable.noise.entropy import checked_entropy
from deniable.units import Unit

if TYPE_CHECKING:
    from deniable.noise import Entropy

__all__ = ["BinaryInverseSensitivity", "BinaryMedian", "InverseSensitivity", "ModeDistance", "QuantileDistance"]


# -- distances -------------------------------------------------------------------------------------------------------


class Distance(ABC):
    """A distance computed for all answers at once. Neighbours: one row replaced."""

    __slots__ = ()

    @abstractmethod
    def to_each(self, data: Any, answers: Sequence[Any]) -> list[int]:
        """How many rows have to be replaced to make each answer the true one."""

    def __call__(self, data: Any, answer: Any) -> int:
        return self.to_each(data, (answer,))[0]


@final
@dataclass(frozen=True, slots=True)
class QuantileDistance(Distance):
    """Rows to replace until y is the q-quantile: the r-th smallest of n rows, r = max(1, ⌈qn⌉).

    y is the r-th smallest iff at most r-1 rows are below it and at most n-r above. Each replacement reduces one excess,
    and the two are never both positive: D = max(0, below - (r-1), above - (n-r)).
    """

    q: Fraction

    def to_each(self, data: Any, answers: Sequence[Any]) -> list[int]:
        rows = input_values.column(data)
        if not len(rows):
            raise input_values.refused("must be a list of numbers, one for each row, and at least one")
        # Every row counts as a number: NaN as the smallest.
        rows = np.sort(np.where(np.isnan(rows), -math.inf, rows))
        points = np.array([float(answer) for answer in answers])
        below = np.searchsorted(rows, points, side="left")
        above = len(rows) - np.searchsorted(rows, points, side="right")
        r = max(1, rational_parameters.ceil(self.q * len(rows)))
        found: list[int] = np.maximum(0, np.maximum(below - (r - 1), above - (len(rows) - r))).tolist()
        return found


@final
@dataclass(frozen=True, slots=True)
class ModeDistance(Distance):
    """Rows to replace until y is the most frequent of `answers`; of equally frequent answers the first in the list
    counts.

    With k rows turned into y it has count(y) + k; then every other answer must have at most that many (one less if it
    comes first), so k is the smallest number that pays for all of them: Σ max(0, count(a) - allowed(a)) <= k.
    """

    answers: tuple[Any, ...]

    def to_each(self, data: Any, answers: Sequence[Any]) -> list[int]:
        place = {answer: i for i, answer in enumerate(self.answers)}
        counts = np.zeros(len(place), dtype=np.int64)
        rows = input_values.keys(data)
        if not rows:
            raise input_values.refused("must be a list of answers, one for each row, and at least one")
        for row in rows:
            # A row that is not one of the answers votes for nobody: one row must not be able to raise an error.
            try:
                counts[place[row]] += 1
            except Exception:  # missing; or of any class, whose hash or == may raise anything
                continue
        return [self._one(counts, place[answer], len(rows)) for answer in answers]

    def _one(self, counts: np.ndarray[Any, np.dtype[np.int64]], target: int, rows: int) -> int:
        others = np.delete(counts + (np.arange(len(counts)) < target), target)
        low, high = -1, rows  # `high` is enough: then all rows are `target`
        while high - low > 1:
            k = (low + high) // 2
            paid = int(np.maximum(others - (counts[target] + k), 0).sum()) <= k
            low, high = (low, k) if paid else (k, high)
        return high


@final
@dataclass(frozen=True, slots=True)
class _BinaryMedianDistance(Distance):
    """Rows to replace until the majority of zeros and ones is y; an even split is a majority of zeros. Everything
    except 1 (or True) counts as zero.
    """

    def to_each(self, data: Any, answers: Sequence[Any]) -> list[int]:
        rows = input_values.column(data) == 1
        if not len(rows):
            raise input_values.refused("must be a list of zeros and ones, one for each row, and at least one")
        half, ones = len(rows) // 2, int(rows.sum())
        return [max(0, half + 1 - ones) if answer else max(0, ones - half) for answer in answers]


# -- mechanisms ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, init=False, repr=False)
class _Inverse(Mechanism):
    """Base of the inverse sensitivity mechanisms."""

    answers: tuple[Any, ...]
    distance: Callable[[Any, Any], int]
    level: Fraction
    halves: ClassVar[int]
    """Weights are e^(-ε D/halves)."""

    def __init__(self, *, answers: Sequence[Any], distance: Callable[[Any, Any], int], epsilon: Number) -> None:
        if isinstance(answers, str | bytes) or not hasattr(answers, "__len__") or len(answers) < 2:
            raise InvalidParameter("answers", NOTHING, "must be a list of at least two answers")
        listed = tuple(np.asarray(answers).tolist() if isinstance(answers, np.ndarray) else answers)
        if _repeats(listed):
            raise InvalidParameter("answers", NOTHING, "must be different from each other")
        if not callable(distance):
            raise InvalidParameter("distance", distance, "must be a function of the data and an answer")
        self._settle(answers=listed, distance=distance, level=rational_parameters.epsilon(epsilon))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(<{len(self.answers)} answers>, epsilon={rational_parameters.short(self.level)!r})"
        )

    @property
    def unit(self) -> Unit | None:
        """One row replaced for the built-in statistics; None for your own distance, whose unit is not known here."""
        return Unit.replaced_row() if isinstance(self.distance, Distance) else None

    @property
    def epsilon(self) -> float:
        """ε, rounded up."""
        return rational_parameters.up(self.level)

    def distances(self, data: Any) -> tuple[int, ...]:
        """D(x, y) for each answer y. It is not a release: never show it for private data."""
        if isinstance(self.distance, Distance):
            return tuple(self.distance.to_each(data, self.answers))
        found = [self.distance(data, answer) for answer in self.answers]
        if not all(isinstance(d, numbers.Integral) and not isinstance(d, bool) and d >= 0 for d in found):
            rule = "must be a whole number of people, at least 0, for every answer"
            raise InvalidParameter("distance", NOTHING, rule, "leave out answers that no data can have")
        return tuple(int(d) for d in found)

    def release(self, value: Any, *, entropy: Entropy | None = None) -> Any:
        """One of the answers. `value` is the data, as the distance function takes it."""
        source = checked_entropy(entropy)
        utilities = [Fraction(-d) for d in self.distances(value)]
        return self.answers[choose(utilities, self.halves / self.level, source)]

    def probabilities(self, data: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The law of `release` on these data, for planning. It is not a release: never show it for private data."""
        found = np.array(self.distances(data), dtype=float)
        weights = np.exp(-float(self.level) / self.halves * (found - found.min()))
        return np.asarray(weights / weights.sum())

    def law(self, value: Any) -> Masses:
        """Masses on the answers for these data."""
        return laws.masses(self.answers, self.probabilities(value))

    def error(self, *, confidence: float) -> float:
        """With probability at least `confidence`, the answer is true for data in which at most this many people differ
        (beyond the smallest possible number, if none of the answers is the true one).
        """
        miss = 1 - curve_arguments.inner_probability("confidence", confidence)
        return exponential_gap(rational_parameters.up(self.halves / self.level), len(self.answers) - 1, miss)

    def efficiency(self) -> float:
        """1/4, or 1/2 for two answers: the mechanism is right at least as often, on all data, as every unbiased
        mechanism at this share of ε (`limits.optimal_share`).
        """
        return 1 / (2 * self.halves)


def _repeats(answers: tuple[Any, ...]) -> bool:
    try:
        return len(set(answers)) < len(answers)
    except TypeError:  # lists, arrays: compared one by one
        return any(bool(np.all(one == other)) for i, one in enumerate(answers) for other in answers[:i])


@final
class InverseSensitivity(_Inverse):
    """The inverse sensitivity mechanism: answer y with probability exactly ∝ e^(-ε D(x, y)/2).

    For all neighbours D, D′: distances move by at most 1, so this is an exponential mechanism with Δ = 1, ε-bounded
    range (Asi & Duchi 2020, Dong, Durfee & Rogers 2020). `distance(data, answer)` returns how many people's data would
    have to change to make the answer true; the guarantee is about the neighbours that it counts with.

    Built in: `median`, `quantile` and `mode`, for neighbours that differ by one row replaced.

    >>> from deniable import mechanisms
    >>> typical = mechanisms.InverseSensitivity.median(answers=range(18, 100), epsilon=1)
    >>> typical.release([34, 51, 18, 77, 25, 41, 39]) in range(18, 100)
    True
    >>> mechanisms.InverseSensitivity.mode(answers=["a", "b", "o"], epsilon=1).distances(["a", "a", "o", "a"])
    (0, 2, 2)
    """

    __slots__ = ()
    halves = 2

    @property
    def curve(self) -> Curve:
        return curves.exponential(epsilon=self.epsilon)

    @classmethod
    def median(cls, *, answers: Sequence[Number], epsilon: Number) -> InverseSensitivity:
        """The median (the lower one of an even number of rows), as one of `answers`. A row between two answers keeps
        its value; NaN and rows that are not numbers count as smaller than everything. Neighbours: one row replaced.
        """
        return cls.quantile(q=Fraction(1, 2), answers=answers, epsilon=epsilon)

    @classmethod
    def quantile(cls, *, q: Number, answers: Sequence[Number], epsilon: Number) -> InverseSensitivity:
        """The q-quantile, the ⌈qn⌉-th smallest of n rows, as one of `answers`; 0 <= q <= 1. Rows count as in `median`.
        Neighbours: one row replaced.
        """
        share = rational_parameters.finite("q", q)
        if not 0 <= share <= 1:
            raise InvalidParameter("q", q, "must lie in [0, 1]")
        points = [
            rational_parameters.finite("answers", v)
            for v in (answers.tolist() if isinstance(answers, np.ndarray) else answers)
        ]
        if any(Fraction(float(point)) != point for point in points):
            raise InvalidParameter("answers", NOTHING, "must be floats or whole numbers that floats can hold")
        return cls(answers=answers, distance=QuantileDistance(share), epsilon=epsilon)

    @classmethod
    def mode(cls, *, answers: Sequence[Hashable], epsilon: Number) -> InverseSensitivity:
        """The most frequent of `answers`; a row that is not one of them votes for nobody. Neighbours: one row replaced.

        Of equally frequent answers the first in the list is the mode, also of data in which nobody votes. So the order
        of `answers` decides ties, and must not come from the data; a later answer needs one row more than a tie.

        >>> from deniable import mechanisms
        >>> mechanisms.InverseSensitivity.mode(answers=["a", "b"], epsilon=1).distances(["a", "b"])
        (0, 1)
        >>> mechanisms.InverseSensitivity.mode(answers=["b", "a"], epsilon=1).distances(["a", "b"])
        (0, 1)
        """
        listed = tuple(answers)
        try:
            hash(listed)
        except Exception:  # an answer may be of any class, and its hash may raise anything
            raise InvalidParameter("answers", NOTHING, "must be hashable, for example strings or numbers") from None
        return cls(answers=listed, distance=ModeDistance(listed), epsilon=epsilon)


@final
class BinaryInverseSensitivity(_Inverse):
    """The inverse sensitivity mechanism for two answers: y with probability ∝ e^(-ε D(x, y)), without the factor 1/2.

    For all neighbours D, D′: exactly ε-DP. One of the two distances is 0 and the other, d, at least 1. Either the true
    answer stays and d moves by at most 1, so each probability changes by at most e^ε. Or it changes; then d = 1 on both
    sides, and the two probabilities swap: 1/(1+e^-ε) becomes 1/(1+e^ε), a factor e^ε, which is attained. Twice as good
    as the general mechanism.

    >>> from deniable.mechanisms.inverse_sensitivity import BinaryInverseSensitivity
    >>> majority = BinaryInverseSensitivity.median(epsilon=0.5)
    >>> majority.distances([1] * 8 + [0] * 3)
    (3, 0)
    >>> majority.probabilities([1] * 8 + [0] * 3).round(6)
    array([0.182426, 0.817574])
    """

    __slots__ = ()
    halves = 1

    def __init__(self, *, answers: Sequence[Any], distance: Callable[[Any, Any], int], epsilon: Number) -> None:
        _Inverse.__init__(self, answers=answers, distance=distance, epsilon=epsilon)
        if len(self.answers) != 2:
            raise InvalidParameter("answers", NOTHING, "must be exactly two", "InverseSensitivity takes any number")

    @property
    def curve(self) -> Curve:
        return curves.pure(epsilon=self.epsilon)

    def distances(self, data: Any) -> tuple[int, ...]:
        """(D(x, y₀), D(x, y₁)): 0 for the true answer, and positive for the other one."""
        found = _Inverse.distances(self, data)
        if sorted(d > 0 for d in found) != [False, True]:
            raise InvalidParameter("distance", NOTHING, "must be 0 for the true answer and positive for the other")
        return found

    @classmethod
    def median(cls, *, epsilon: Number) -> BinaryInverseSensitivity:
        """The median of zeros and ones, i.e. the majority; an even split has median 0. Neighbours: one row replaced."""
        return cls(answers=(0, 1), distance=_BinaryMedianDistance(), epsilon=epsilon)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class BinaryMedian(Mechanism):
    """The median of zeros and ones by the exponential mechanism: 1 with probability p(s) = 1/(1 + e^(-(2s - n)ε/2)), if
    s of n rows are ones.

    For all neighbours D, D′ by one row replaced: s moves by at most 1, so the log-odds (2s - n)ε/2 move by at most ε.
    Right with probability 95 % or more if |s - n/2| >= 3/ε. `BinaryInverseSensitivity.median` is right more often, and
    `limits.binary_median_ceiling` bounds how often any symmetric ε-DP mechanism can be.

    >>> from deniable import mechanisms
    >>> majority = mechanisms.BinaryMedian(epsilon=0.5)
    >>> round(majority.probability(ones=8, rows=11), 10)
    0.7772998612
    >>> majority.release([1] * 180 + [0] * 20)
    1

    Source: the exponential mechanism (McSherry & Talwar 2007) with the utility ±(s - n/2).
    """

    selector: Exponential

    def __init__(self, *, epsilon: Number) -> None:
        self._settle(selector=Exponential(sensitivity=1, epsilon=epsilon, candidates=2))

    def __repr__(self) -> str:
        return f"BinaryMedian(epsilon={self.selector.epsilon!r})"

    @property
    def unit(self) -> Unit:
        """One row replaced."""
        return Unit.replaced_row()

    @property
    def curve(self) -> Curve:
        return self.selector.curve

    def release(self, value: Any, *, entropy: Entropy | None = None) -> int:
        """0 or 1, from a list of zeros and ones; everything except 1 counts as zero."""
        return int(self.selector.release(self._scores(value), entropy=checked_entropy(entropy)))

    def probabilities(self, data: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The law of `release` on these data, for planning. It is not a release: never show it for private data."""
        return np.asarray(self.selector.probabilities(self._scores(data)))

    def probability(self, *, ones: int, rows: int) -> float:
        """p(s): the probability that the answer is 1 if this many of the rows are ones."""
        n, s = curve_arguments.integer("rows", rows, 1), curve_arguments.integer("ones", ones, 0)
        if s > n:
            raise InvalidParameter("ones", ones, f"must be at most the {n} rows")
        return float(self.selector.probabilities([n - s, s])[1])

    def error(self, *, confidence: float) -> float:
        """A bound on how many rows the answer falls short of half of all, with this probability: half the gap of
        scores.
        """
        return self.selector.error(confidence=confidence) / 2

    def law(self, value: Any) -> Masses:
        """Masses on 0 and 1 for these data."""
        return laws.masses((0, 1), self.probabilities(value))

    @staticmethod
    def _scores(data: Any) -> list[int]:
        rows = input_values.column(data) == 1
        if not len(rows):
            raise input_values.refused("must be a list of zeros and ones, one for each row, and at least one")
        ones = int(rows.sum())
        return [len(rows) - ones, ones]
