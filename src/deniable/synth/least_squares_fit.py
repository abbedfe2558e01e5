"""Consistent tables: the least-squares fit of noisy tables to each other, and the noise of each fitted number.

Tables are sums of one array over some of its axes. The array is a sum of orthogonal parts, one for each set A of axes:
the sums by A, minus everything that coarser sums determine. Every table by T ⊇ A contains the part A. Its noise there
is white, with a variance proportional to σ_T² times the number of summed cells. So least squares merges the tables part
by part, by inverse variance, without solving a system of equations. (Xiao, He, Zhang & Kifer 2023, ResidualPlanner,
arXiv 2305.08175, choose noise by the same parts.)

An exact table (variance 0) determines its parts alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from deniable.errors import NOTHING, InvalidParameter
from deniable.synth.table_noise import subsets, summed, without_averages

Axes = tuple[int, ...]
Floats = NDArray[np.float64]
Loads = Mapping[Axes, float]
"""A factor for each part."""

MOST_CELLS: Final = 2**21
"""The most cells of the array for which a non-negative fit is computed."""
_ALIKE: Final = 1e-12
"""The relative difference up to which two tables agree; far below any noise."""
_TURNS: Final = 20_000
_NEAR: Final = 1e-9
_RELAXED: Final = 1.6
"""Over-relaxation of ADMM (Boyd et al. 2011, section 3.4.3)."""


@final
@dataclass(frozen=True, slots=True)
class Margin:
    """A table by these axes (ascending), summed over all others, with the variance of the noise in each cell."""

    axes: Axes
    counts: Floats
    variance: float
    by_part: Mapping[Axes, float] | None = None
    """The variance of the noise in each part, for a table that was measured jointly with others; None for one that was
    measured alone, whose noise is white."""

    def variance_of(self, part: Axes, sizes: Sequence[int]) -> float:
        """The variance of the noise in the sums by `part`, for merging that part."""
        if self.by_part is not None and self.by_part.get(part):
            return self.by_part[part]
        return self.variance * _cells(sizes, set(self.axes) - set(part))


def spread(counts: Floats, axes: Axes, over: Axes) -> Floats:
    """The numbers with axes of length 1 inserted, to broadcast over a table by more axes."""
    return np.asarray(counts.reshape([counts.shape[axes.index(axis)] if axis in axes else 1 for axis in over]))


def _cells(sizes: Sequence[int], axes: Iterable[int]) -> int:
    """The number of cells that are summed; at least 1, so that empty sums can be divided by it."""
    return math.prod(sizes[axis] for axis in axes) or 1


@final
@dataclass(frozen=True, slots=True)
class TableFit:
    """The fitted part for each set of axes, and the weights of the tables in it."""

    sizes: tuple[int, ...]
    margins: tuple[Margin, ...]
    weights: Mapping[Axes, Mapping[int, float]]
    """The weight of each table in each part."""
    parts: Mapping[Axes, Floats]

    def table(self, axes: Axes) -> Floats:
        """The fitted table by these axes; all fitted tables add up to each other.

        >>> fine = Margin((0, 1), np.array([[1.0, 2.0], [3.0, 4.0]]), 1.0)
        >>> fitted = fit((2, 2), [fine, Margin((0,), np.array([5.0, 5.0]), 0.0)])
        >>> fitted.table((0, 1)), fitted.table((1,))
        (array([[2., 3.],
               [2., 3.]]), array([4., 6.]))
        """
        found = np.zeros([self.sizes[axis] for axis in axes])
        for part in subsets(axes):
            over = _cells(self.sizes, set(axes) - set(part))
            found += spread(self.parts[part], part, axes) / over
        return found

    def effects(self, axes: Axes, carried: Sequence[tuple[int, float | Loads]], of: Axes) -> list[tuple[float, int]]:
        """The derivatives of a cell of `table(axes)` by the cells of a table `of`, as (derivative, number of cells).

        `carried` has the margins that contain the sums of that table, each with a factor, or a factor for each part. A
        derivative depends only on the common axes in which both cells agree, so there are few different ones.
        """
        shared = [axis for axis in of if axis in axes]
        beyond = _cells(self.sizes, set(of) - set(axes))
        found = []
        for agreeing in subsets(shared):
            moves = math.fsum(self._moves(axes, which, loads, set(agreeing)) for which, loads in carried)
            cells = beyond * math.prod(self.sizes[axis] - 1 for axis in shared if axis not in agreeing)
            if cells:
                found.append((moves, cells))
        return found

    def _moves(self, axes: Axes, which: int, loads: float | Loads, agreeing: set[int]) -> float:
        """The derivative of a fitted cell by a cell of one margin that agrees with it in these axes."""
        total = 0.0
        for part in subsets(set(axes) & set(self.margins[which].axes)):
            load = loads.get(part, 0.0) if isinstance(loads, Mapping) else loads
            weight = load * self.weights[part].get(which, 0.0)
            if weight:
                contrast = math.prod((axis in agreeing) - 1 / (self.sizes[axis] or 1) for axis in part)
                total += weight * contrast / _cells(self.sizes, set(axes) - set(part))
        return total


def fit(sizes: Sequence[int], margins: Sequence[Margin], *, deciding: Sequence[int] = ()) -> TableFit:
    """The least-squares fit to all margins. If `deciding` margins contain a part, only they determine it.

    Raises `InvalidParameter` if two exact margins contradict each other.
    """
    weights: dict[Axes, dict[int, float]] = {}
    parts: dict[Axes, Floats] = {}
    for part in dict.fromkeys(part for each in margins for part in subsets(each.axes)):
        containing = [i for i, each in enumerate(margins) if set(part) <= set(each.axes)]
        estimates = {i: without_averages(summed(margins[i].counts, margins[i].axes, part)) for i in containing}
        exact = [i for i in containing if margins[i].variance == 0]
        first = [i for i in containing if i in deciding]
        if exact:
            _agree([estimates[i] for i in exact], [margins[i] for i in exact])
            weights[part] = {exact[0]: 1.0}
        else:
            kept = _different(first or containing, estimates, margins)
            precise = {i: 1 / margins[i].variance_of(part, sizes) for i in kept}
            whole = math.fsum(precise.values())
            weights[part] = {i: each / whole for i, each in precise.items()}
        parts[part] = sum((weight * estimates[i] for i, weight in weights[part].items()), np.zeros(()))
    return TableFit(tuple(sizes), tuple(margins), weights, parts)


def _different(places: Sequence[int], estimates: Mapping[int, Floats], margins: Sequence[Margin]) -> list[int]:
    """The margins without repetitions: tables that were measured jointly agree on a part."""
    kept: list[int] = []
    for i in places:
        together = [j for j in kept if margins[i].by_part is not None is not margins[j].by_part]
        if not any(_alike([estimates[j], estimates[i]], [margins[j], margins[i]]) for j in together):
            kept.append(i)
    return kept


def agree(margins: Sequence[Margin]) -> bool:
    """Whether tables add up to each other already, up to rounding."""
    for part in dict.fromkeys(part for each in margins for part in subsets(each.axes)):
        containing = [each for each in margins if set(part) <= set(each.axes)]
        estimates = [without_averages(summed(each.counts, each.axes, part)) for each in containing]
        if not _alike(estimates, containing):
            return False
    return True


def _alike(estimates: Sequence[Floats], margins: Sequence[Margin]) -> bool:
    size = 1 + max(float(np.abs(each.counts).sum()) for each in margins)
    return all(float(np.abs(each - estimates[0]).max(initial=0.0)) <= _ALIKE * size for each in estimates[1:])


def _agree(estimates: Sequence[Floats], margins: Sequence[Margin]) -> None:
    if not _alike(estimates, margins):
        rule = "contradict each other: their sums over the keys that they share differ"
        raise InvalidParameter("invariants", NOTHING, rule, "declare totals that add up to each other")


# -- nowhere below 0 ---------------------------------------------------------------------------------------------------


def nonnegative(sizes: Sequence[int], margins: Sequence[Margin]) -> Floats:
    """The non-negative array whose sums are closest to all margins, weighted by variance; exact margins hold exactly.

    Minimises Σ_T ‖A_T x - y_T‖²/σ_T² over x >= 0 by ADMM: the quadratic is diagonal in the orthogonal parts, so each
    step costs a few passes over the array. Raises `InvalidParameter` if no such array has the exact sums.

    >>> nonnegative((3,), [Margin((0,), np.array([3.0, -1.0, 1.0]), 1.0), Margin((), np.array(4.0), 0.0)]).round(6)
    array([3., 0., 1.])
    """
    shape = tuple(sizes)
    if math.prod(shape) > MOST_CELLS:
        rule = f"together their keys have more than {MOST_CELLS:,} combinations, and each would be worked out"
        raise InvalidParameter("tables", math.prod(shape), rule, "take tables with fewer keys together")
    exact = [each for each in margins if each.variance == 0]
    for each in exact:
        if float(each.counts.min(initial=0.0)) < 0:
            rule = "has a number below 0, and no numbers that are all at least 0 add up to it"
            raise InvalidParameter(
                "totals", NOTHING, rule, "let the totals move as well: make the whole set nonnegative"
            )
    if not math.prod(shape):
        return np.zeros(shape)
    whole = tuple(range(len(shape)))
    held = fit(sizes, exact)
    fixed = sum(
        (spread(part, axes, whole) / _cells(sizes, set(whole) - set(axes)) for axes, part in held.parts.items()),
        np.zeros(shape),
    )
    noisy = [each for each in margins if each.variance > 0]
    unit = min((each.variance for each in noisy), default=1.0)
    pull = sum((spread(each.counts, each.axes, whole) * (unit / each.variance) for each in noisy), np.zeros(shape))
    curved = {
        part: math.fsum(
            _cells(sizes, set(whole) - set(each.axes)) * unit / each.variance
            for each in noisy
            if set(part) <= set(each.axes)
        )
        for part in subsets(whole)
        if part not in held.parts
    }
    return _raked(_admm(pull, curved, fixed), exact, whole)


def _admm(pull: Floats, curved: Mapping[Axes, float], fixed: Floats) -> Floats:
    """min ½x'Qx - pull·x over x >= 0 with the parts of `fixed`; Q is the number `curved[part]` on each other part."""
    step = math.exp(sum(math.log(each) for each in curved.values() if each) / max(1, sum(map(bool, curved.values()))))
    z: Any = np.zeros(pull.shape)
    dual: Any = np.zeros(pull.shape)
    gap = worst = math.inf
    for turn in range(_TURNS):
        gains = {part: 1 / (each + step) for part, each in curved.items()}
        x = _scaled(pull + step * (z - dual), gains) + fixed
        mixed = _RELAXED * x + (1 - _RELAXED) * z
        before, z = z, np.maximum(mixed + dual, 0.0)
        dual = dual + mixed - z
        size = 1 + float(np.abs(z).max())
        gap, worst = float(np.abs(x - z).max()) / size, step * float(np.abs(z - before).max()) / size
        if max(gap, worst / max(step, 1.0)) < _NEAR:
            return np.asarray(z)
        if turn % 20 == 19:  # residual balancing; the scaled dual changes with the step
            factor = 2.0 if gap > 10 * worst / step else 0.5 if worst / step > 10 * gap else 1.0
            step, dual = step * factor, dual / factor
    if gap > 1e-5:
        rule = "no table of numbers that are all at least 0 has these totals"
        raise InvalidParameter("totals", NOTHING, rule, "declare totals that add up, or let them move")
    return np.asarray(z)


def _scaled(x: Floats, gains: Mapping[Axes, float]) -> Floats:
    """The array with each orthogonal part multiplied by its gain; parts without a gain are dropped."""

    def walk(each: Floats, axis: int, part: Axes) -> Any:
        if axis == x.ndim:
            return each * gains.get(part, 0.0)
        mean = each.mean(axis=axis, keepdims=True)
        return walk(mean, axis + 1, part) + walk(each - mean, axis + 1, (*part, axis))

    return np.asarray(walk(x, 0, ()))


def _raked(x: Floats, exact: Sequence[Margin], whole: Axes) -> Floats:
    """The array with exact sums corrected in their last digits by factors, so that zeros stay zero."""
    for _ in range(100):
        worst = 0.0
        for each in exact:
            sums = summed(x, whole, each.axes)
            factors = np.divide(each.counts, sums, out=np.ones_like(sums), where=sums > 0)
            worst = max(worst, float(np.abs(factors - 1).max(initial=0.0)))
            x = x * spread(factors, each.axes, whole)
        if worst < 1e-13:
            break
    return x
