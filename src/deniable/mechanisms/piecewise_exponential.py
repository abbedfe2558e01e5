"""The continuous exponential mechanism for utilities that are step functions, and quantiles based on it.

On an interval with public ends the density of the answer y is ∝ e^(u(y)/scale). If u is constant on pieces, a piece is
drawn with probability exactly ∝ length × e^(u/scale): lengths are rational numbers. The answer is then a uniform point
of the piece, rounded down to a public grid. So the release is the continuous mechanism with its last digits cut off,
which is post-processing. (A Markov chain that only comes within total variation t of this law costs (1 + e^ε)t in δ:
`limits.approximate_sampling`.)
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable import curves, noise
from deniable.curves import Curve, curve_arguments
from deniable.errors import InvalidParameter
from deniable.mechanisms import input_values, laws, rational_parameters
from deniable.mechanisms.exact_choice import choose
from deniable.mechanisms.mechanism import Mechanism, check_unit
from deniable.mechanisms.selection import Number, exact_scores, exponential_gap
from deniable.noise.entropy import checked_entropy
from deniable.units import Relation, Unit

if TYPE_CHECKING:
    from deniable.mechanisms.laws import OutputLaw
    from deniable.noise import Entropy

__all__ = ["Median", "PiecewiseExponential", "Quantile"]

FINE: Final = 2**32
"""Grid steps of an interval if no spacing is given: only post-processing, so it may be fine."""

HAIR: Final = Fraction(1, 2**20)
"""A last interval shorter than this, in spacings, comes from rounding of the spacing and is dropped."""

COARSE: Final = 2**12
"""Grid steps of a quantile if no spacing is given: here every grid point is a candidate, and more of them cost
log(points).
"""

MOST_DRAWN: Final = 5000
"""Most points of a grid whose masses are listed one by one."""

MOST_STEPS: Final = 2**53
"""Most steps of an interval: beyond it neighbouring answers would be the same float."""

Bounds = tuple[Number, Number]


def _interval(bounds: Any, spacing: Any, steps: int) -> tuple[Fraction, Fraction, Fraction]:
    """(low, high, spacing), checked and exact."""
    if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) != 2:
        raise InvalidParameter("bounds", bounds, "must be a pair (low, high)")
    low, high = rational_parameters.finite("bounds", bounds[0]), rational_parameters.finite("bounds", bounds[1])
    if not low < high:
        raise InvalidParameter("bounds", bounds, "must be (low, high) with low < high")
    step = (high - low) / steps if spacing is None else rational_parameters.positive("spacing", spacing)
    if not step <= high - low <= step * MOST_STEPS:
        raise InvalidParameter("spacing", spacing, "must be at most high - low, and at least a part in 2**53 of it")
    return low, high, step


def _draw(
    edges: Sequence[Fraction],
    utilities: Sequence[Fraction],
    scale: Fraction,
    low: Fraction,
    spacing: Fraction,
    entropy: Entropy | None,
) -> int:
    """The index j of the grid cell [low + j × spacing, low + (j+1) × spacing) that contains the answer."""
    pieces = [(a, b, u) for (a, b), u in zip(pairwise(edges), utilities, strict=True) if b > a]
    drawn = choose([u for _, _, u in pieces], scale, entropy, weights=[b - a for a, b, _ in pieces])
    start, end, _ = pieces[drawn]
    # Divide the piece into equal atoms, so small that none crosses a border of the grid, and draw one of them.
    atom = Fraction(1, math.lcm(*(number.denominator for number in (start, end, low, spacing))))
    taken = noise.uniform(below=rational_parameters.floor((end - start) / atom), entropy=entropy)
    return rational_parameters.floor((start + taken * atom - low) / spacing)


def _shares(
    edges: Sequence[Fraction], utilities: Sequence[Fraction], scale: Fraction
) -> tuple[input_values.Floats, input_values.Floats]:
    """The edges of the pieces with positive length, and the probability of each: ∝ length × e^(u/scale)."""
    pieces = [(a, b, u) for (a, b), u in zip(pairwise(edges), utilities, strict=True) if b > a]
    best = max(u for _, _, u in pieces)
    found = np.array([float(b - a) * math.exp(float((u - best) / scale)) for a, b, u in pieces])
    return np.array([float(a) for a, _, _ in pieces] + [float(pieces[-1][1])]), found / found.sum()


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class PiecewiseExponential(Mechanism):
    """The exponential mechanism on an interval, for a utility that is a step function of the answer.

    For all neighbours D, D′ whose utilities differ by at most Δ at every answer: density ∝ e^(ε u(y)/2Δ), so ε-bounded
    range (Dong, Durfee & Rogers 2020). `release((edges, utilities))` takes the m + 1 ends of m pieces, from the lower
    to the upper bound, and the utility on each piece; both may depend on the data. Pieces of length 0 are skipped. The
    answer is rounded down to low + j × spacing.

    >>> from deniable import mechanisms
    >>> choose = mechanisms.PiecewiseExponential(bounds=(0, 10), sensitivity=1, epsilon=0.5)
    >>> 0 <= choose.release(([0, 2.5, 7, 10], [-3, 0, -4])) < 10
    True
    """

    low: Fraction
    high: Fraction
    spacing: Fraction
    sensitivity: Fraction
    scale: Fraction

    def __init__(self, *, bounds: Bounds, sensitivity: Number, epsilon: Number, spacing: Number | None = None) -> None:
        low, high, step = _interval(bounds, spacing, FINE)
        delta = rational_parameters.moved(sensitivity)
        scale = 2 * delta / rational_parameters.epsilon(epsilon)
        self._settle(low=low, high=high, spacing=step, sensitivity=delta, scale=scale)

    def __repr__(self) -> str:
        low, high, spacing, sensitivity, epsilon = (
            rational_parameters.short(v)
            for v in (self.low, self.high, self.spacing, self.sensitivity, 2 * self.sensitivity / self.scale)
        )
        return (
            f"PiecewiseExponential(bounds=({low!r}, {high!r}), sensitivity={sensitivity!r}, epsilon={epsilon!r}, "
            f"spacing={spacing!r})"
        )

    @property
    def curve(self) -> Curve:
        return curves.exponential(epsilon=rational_parameters.up(2 * self.sensitivity / self.scale))

    def release(self, value: Any, *, entropy: Entropy | None = None) -> float:
        """A point of the interval, on the grid. `value` is (edges, utilities)."""
        source = checked_entropy(entropy)
        edges, utilities = self._read(value)
        j = _draw(edges, utilities, self.scale, self.low, self.spacing, source)
        return float(self.low + j * self.spacing)

    def _read(self, value: Any) -> tuple[Sequence[Fraction], Sequence[Fraction]]:
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
            raise input_values.refused("must be a pair (edges, utilities)")
        edges, utilities = exact_scores(value[0], None), exact_scores(value[1], None)
        ordered = all(a <= b for a, b in pairwise(edges))
        if len(edges) != len(utilities) + 1 or not ordered or edges[0] != self.low or edges[-1] != self.high:
            raise input_values.refused(
                "edges must rise from the lower to the upper bound, one more than there are utilities"
            )
        return edges, utilities

    def law(self, value: Any) -> OutputLaw:
        """A density that is constant on pieces; on a coarse grid, masses on its points. `value` as in `release`."""
        continuous = laws.Pieces(*_shares(*self._read(value), self.scale))
        cells = rational_parameters.ceil((self.high - self.low) / self.spacing)
        if cells > MOST_DRAWN:
            return continuous
        grid = [float(self.low + j * self.spacing) for j in range(cells)]
        return laws.masses(grid, np.diff(continuous.cdf([*grid, float(self.high)])))

    def gap(self, *, confidence: float, length: Number) -> float:
        """A bound on the distance of the answer's utility from the best one, with probability at least `confidence`, if
        the pieces with the best utility have at least this total `length`. (Without such a length there is no bound.)
        """
        best = rational_parameters.positive("length", length)
        if best > self.high - self.low:
            raise InvalidParameter("length", length, "must be at most high - low")
        miss = 1 - curve_arguments.inner_probability("confidence", confidence)
        return exponential_gap(
            rational_parameters.up(self.scale), rational_parameters.up((self.high - self.low) / best - 1), miss
        )


def _steps(
    q: Fraction, points: int, taken: Sequence[int], counts: Sequence[int]
) -> tuple[list[Fraction], list[Fraction]]:
    """The number of ranks between each point and the quantile, as a step function of the point's index. `counts` rows
    are at the points `taken`, which increase.
    """
    rows, below = sum(counts), 0
    part, whole = q.numerator, q.denominator  # in integers: there may be many points

    def away(above: int) -> Fraction:
        """max(0, below - qn, above - (1-q)n): 0 at the quantile itself, also if many rows are equal."""
        return Fraction(max(0, below * whole - part * rows, above * whole - (whole - part) * rows), whole)

    edges, ranks = [0], []
    for point, count in zip(taken, counts, strict=True):
        edges += [point, point + 1]
        ranks += [away(rows - below), away(rows - below - count)]
        below += count
    return [Fraction(edge) for edge in (*edges, points)], [*ranks, away(0)]


@dataclass(frozen=True, slots=True, init=False, repr=False)
class _Rank(Mechanism):
    """A quantile by the exponential mechanism on a public grid."""

    q: Fraction
    low: Fraction
    high: Fraction
    points: int
    """The grid has this many points: low + j × spacing, and high last."""
    spacing: Fraction
    sensitivity: Fraction
    scale: Fraction
    unit: Unit

    def _fill(self, q: Fraction, bounds: Bounds, spacing: Any, epsilon: Any, unit: Any) -> None:
        low, high, step = _interval(bounds, spacing, COARSE)
        check_unit(unit)
        each = max(q, 1 - q) if unit.relation is Relation.ADD_REMOVE else Fraction(1)
        delta = unit.rows * each
        scale = 2 * delta / rational_parameters.epsilon(epsilon)
        # The remainder below `high` is a shorter last interval, unless it is only rounding (10 × the float 0.3 is not
        # exactly 3).
        points = rational_parameters.ceil((high - low) / step - HAIR) + 1
        self._settle(q=q, low=low, high=high, points=points, spacing=step, sensitivity=delta, scale=scale, unit=unit)

    @abstractmethod
    def _named(self) -> str:
        """The beginning of the repr."""

    def __repr__(self) -> str:
        low, high, step, epsilon = (
            rational_parameters.short(v) for v in (self.low, self.high, self.spacing, 2 * self.sensitivity / self.scale)
        )
        return f"{self._named()}bounds=({low!r}, {high!r}), spacing={step!r}, epsilon={epsilon!r}, unit={self.unit!r})"

    @property
    def curve(self) -> Curve:
        return curves.exponential(epsilon=rational_parameters.up(2 * self.sensitivity / self.scale))

    def release(self, value: Any, *, entropy: Entropy | None = None) -> float:
        """A point of the grid. `value` contains the rows' numbers: a list, an array or a series; it may be empty.

        Each number counts as the nearest point of the grid, numbers beyond the bounds as the bound. NaN, and rows that
        are not numbers in a list or an object column, count as the lower bound.
        """
        source = checked_entropy(entropy)
        edges, ranks = self.steps(value)
        # Point j of the grid is the cell [j, j + 1): the same mechanism, with grid steps as the unit.
        j = _draw(edges, [-rank for rank in ranks], self.scale, Fraction(0), Fraction(1), source)
        return float(self._point(j))

    def law(self, value: Any) -> laws.Masses:
        """Masses on the points of the grid."""
        if self.points > MOST_DRAWN:
            raise InvalidParameter("spacing", float(self.spacing), f"the law has more than {MOST_DRAWN:,} points")
        edges, ranks = self.steps(value)
        found = laws.Pieces(*_shares(edges, [-rank for rank in ranks], self.scale))
        points = [float(self._point(j)) for j in range(self.points)]
        return laws.masses(points, np.diff(found.cdf(np.arange(self.points + 1.0))))

    def _point(self, j: int) -> Fraction:
        return self.low + j * self.spacing if j < self.points - 1 else self.high

    def steps(self, value: Any) -> tuple[list[Fraction], list[Fraction]]:
        """The number of ranks between each point of the grid and the quantile, as a step function of the point's index
        j.
        """
        found = input_values.column(value)
        # The grid point of a row is a function of that row alone, so it needs no exact arithmetic.
        with np.errstate(invalid="ignore", over="ignore"):
            place = np.rint((found - float(self.low)) / float(self.spacing))
        place = np.clip(np.where(np.isnan(place), 0.0, place), 0, max(0, self.points - 2)).astype(np.int64)
        # The last interval may be shorter than the others: its upper half belongs to the upper bound.
        last = (self._point(self.points - 2) + self.high) / 2
        place[found > float(last)] = self.points - 1
        taken, counts = np.unique(place, return_counts=True)
        return _steps(self.q, self.points, taken.tolist(), counts.tolist())

    def error(self, *, confidence: float) -> float:
        """A bound on the number of ranks between the answer and the quantile, with probability at least
        `confidence`.
        """
        # At least one of the grid points is 0 ranks away: the exponential mechanism's exact worst case.
        miss = 1 - curve_arguments.inner_probability("confidence", confidence)
        return exponential_gap(rational_parameters.up(self.scale), self.points - 1, miss)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Quantile(_Rank):
    """The q-quantile of numbers between public bounds, on a public grid: points few ranks from the quantile are likely.

    For all neighbours D, D′ by `unit`: point y with probability exactly ∝ e^(-ε r(y)/2Δ), r(y) = max(0, below(y) - qn,
    above(y) - (1-q)n). A row added or removed moves r by at most Δ = max(q, 1-q), a row replaced by at most 1, a person
    with k rows by k times that; so ε-bounded range (Smith 2011 with ties; Dong, Durfee & Rogers 2020).

    `spacing` is the wanted resolution of the answer: 1 for ages in years. Both bounds are points of the grid; if the
    spacing does not divide the interval, the last step is shorter. `error` is in ranks (rows), not in values.

    >>> from deniable import Unit, mechanisms
    >>> upper = mechanisms.Quantile(q=0.9, bounds=(0, 120), spacing=1, epsilon=1, unit=Unit.row())
    >>> upper.release([34, 51, 18, 77, 25]) in range(121)
    True
    >>> round(upper.error(confidence=0.95), 1)
    13.9
    """

    def __init__(
        self, *, q: Number, bounds: Bounds, epsilon: Number, unit: Unit, spacing: Number | None = None
    ) -> None:
        share = rational_parameters.finite("q", q)
        if not 0 <= share <= 1:
            raise InvalidParameter("q", q, "must lie in [0, 1]")
        self._fill(share, bounds, spacing, epsilon, unit)

    def _named(self) -> str:
        return f"Quantile(q={rational_parameters.short(self.q)!r}, "


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Median(_Rank):
    """The median of numbers between public bounds, on a public grid: `Quantile` with q = 1/2.

    For all neighbours D, D′ by `unit`: point y with probability ∝ e^(-ε r(y)/2Δ), where r(y) is how many ranks y is
    away from the median, with Δ = 1/2 for a row added or removed and 1 for a row replaced. ε-bounded range.

    >>> from deniable import Unit, mechanisms
    >>> middle = mechanisms.Median(bounds=(0, 120), spacing=1, epsilon=1, unit=Unit.row())
    >>> middle.release([34, 51, 18, 77, 25]) in range(121)
    True
    """

    def __init__(self, *, bounds: Bounds, epsilon: Number, unit: Unit, spacing: Number | None = None) -> None:
        self._fill(Fraction(1, 2), bounds, spacing, epsilon, unit)

    def _named(self) -> str:
        return "Median("


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class QuantileOfCounts(Mechanism):
    """The cell of the q-quantile, from the number of rows in each of some public cells.

    For all neighbours D, D′ whose counts differ by at most s = `sensitivity` in L1: cell y with probability exactly ∝
    e^(-ε r(y)/2Δ), r(y) = max(0, below(y) - qn, above(y) - (1-q)n). A row more or less in one cell moves each of the
    three by at most max(q, 1-q), and so r; hence Δ = s·max(q, 1-q), and ε-bounded range. The number n of rows is
    private. `Quantile` is the same for rows that were not counted yet.

    >>> from deniable.mechanisms.piecewise_exponential import QuantileOfCounts
    >>> middle = QuantileOfCounts(q=0.5, cells=4, sensitivity=1, epsilon=1)
    >>> int(middle.release([5, 0, 12, 7])) in range(4)
    True
    """

    q: Fraction
    cells: int
    sensitivity: Fraction
    scale: Fraction

    def __init__(self, *, q: Number, cells: int, sensitivity: int, epsilon: Number) -> None:
        share = rational_parameters.finite("q", q)
        if not 0 <= share <= 1:
            raise InvalidParameter("q", q, "must lie in [0, 1]")
        moved = curve_arguments.integer("sensitivity", sensitivity, 1) * max(share, 1 - share)
        scale = 2 * moved / rational_parameters.epsilon(epsilon)
        self._settle(q=share, cells=curve_arguments.integer("cells", cells, 1), sensitivity=moved, scale=scale)

    def __repr__(self) -> str:
        q, epsilon = rational_parameters.short(self.q), rational_parameters.short(2 * self.sensitivity / self.scale)
        moved = rational_parameters.short(self.sensitivity)
        return f"QuantileOfCounts(q={q!r}, cells={self.cells}, rank sensitivity={moved!r}, epsilon={epsilon!r})"

    @property
    def curve(self) -> Curve:
        return curves.exponential(epsilon=rational_parameters.up(2 * self.sensitivity / self.scale))

    def release(self, value: Any, *, entropy: Entropy | None = None) -> input_values.Ints:
        """The index of a cell, from 0 on; for several rows of counts, one for each, drawn independently.

        Rows that belong to disjoint parts of the data are released together at the cost of one, if a unit moves all of
        them by at most `sensitivity` in total: ranges of log-likelihoods add up, as sensitivities do.
        """
        source = checked_entropy(entropy)
        counts = input_values.wholes(value)
        if counts.shape[-1] != self.cells:
            raise input_values.refused(f"must have {self.cells} counts in each row, as declared")
        rows = counts.reshape(-1, self.cells)
        found = [self._picked(np.maximum(row, 0), source) for row in rows]
        return np.array(found, dtype=np.int64).reshape(counts.shape[:-1])

    def _picked(self, counts: input_values.Ints, entropy: Entropy | None) -> int:
        taken = np.flatnonzero(counts)
        edges, ranks = _steps(self.q, self.cells, taken.tolist(), counts[taken].tolist())
        return _draw(edges, [-rank for rank in ranks], self.scale, Fraction(0), Fraction(1), entropy)

    def error(self, *, confidence: float) -> float:
        """A bound on the number of ranks between the drawn cell and the quantile, with probability at least
        `confidence`.
        """
        miss = 1 - curve_arguments.inner_probability("confidence", confidence)
        return exponential_gap(rational_parameters.up(self.scale), self.cells - 1, miss)
