"""Tables that add up: the least-squares fit to noisy tables of sums, and how noisy each fitted number is.

Tables are sums of one array over some of its axes. The array is a sum of orthogonal parts, one for each set A of axes:
what is left of its sums by A once all that coarser sums say is taken away. Every table by T ⊇ A tells the part A. The
noise on it is white, with a variance in proportion to σ_T² times the number of cells that are summed for it, so least
squares merges the tables part by part, by inverse variance; no system of equations is solved. (Xiao, He, Zhang & Kifer
2023, ResidualPlanner, arXiv 2305.08175, choose noise by the same parts.)

An exact table (variance 0) decides about its parts alone.
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
"""For each part, by how much it counts there."""

MOST_CELLS: Final = 2**21
"""Of the array behind all tables, where one must be found that is nowhere below 0."""
_ALIKE: Final = 1e-12
"""Difference at which two tables still say the same, relative to the sum of all their numbers: far less than noise."""
_TURNS: Final = 20_000
_NEAR: Final = 1e-9
_RELAXED: Final = 1.6
"""Over-relaxation of ADMM (Boyd et al. 2011, section 3.4.3)."""


@final
@dataclass(frozen=True, slots=True)
class Margin:
    """A table of sums over all axes but these, in rising order, with the variance of the noise in each cell."""

    axes: Axes
    counts: Floats
    variance: float
    by_part: Mapping[Axes, float] | None = None
    """Where its noise is not the same white noise in all cells: the variance of the noise that enters each part."""

    def variance_of(self, part: Axes, sizes: Sequence[int]) -> float:
        """Of the noise in the sums by these axes, as far as the part is concerned."""
        if self.by_part is not None and self.by_part.get(part):
            return self.by_part[part]
        return self.variance * _cells(sizes, set(self.axes) - set(part))


def spread(counts: Floats, axes: Axes, over: Axes) -> Floats:
    """The same numbers with axes of length 1 put in: what broadcasts over a table by more axes."""
    return np.asarray(counts.reshape([counts.shape[axes.index(axis)] if axis in axes else 1 for axis in over]))


def _cells(sizes: Sequence[int], axes: Iterable[int]) -> int:
    """How many cells are summed. A key without values has sums over nothing, and 0 may be divided by anything."""
    return math.prod(sizes[axis] for axis in axes) or 1


@final
@dataclass(frozen=True, slots=True)
class TableFit:
    """The part of each set of axes, merged from all tables that tell it, and by which weights."""

    sizes: tuple[int, ...]
    margins: tuple[Margin, ...]
    weights: Mapping[Axes, Mapping[int, float]]
    """For each part, how much each table counts in it."""
    parts: Mapping[Axes, Floats]

    def table(self, axes: Axes) -> Floats:
        """The fitted sums by these axes: all such tables add up to each other.

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
        """How a cell of `table(axes)` moves with each cell of a table `of`, told as (by how much, how many cells).

        `carried` says which margins hold the sums of that table, and by which factor, or by which in each part. A cell
        counts by whether it agrees with the fitted one in each axis that both have, so there are few different answers.
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
        """By how much a fitted cell moves with a cell of one margin that agrees with it in these axes."""
        total = 0.0
        for part in subsets(set(axes) & set(self.margins[which].axes)):
            load = loads.get(part, 0.0) if isinstance(loads, Mapping) else loads
            weight = load * self.weights[part].get(which, 0.0)
            if weight:
                contrast = math.prod((axis in agreeing) - 1 / (self.sizes[axis] or 1) for axis in part)
                total += weight * contrast / _cells(self.sizes, set(axes) - set(part))
        return total


def fit(sizes: Sequence[int], margins: Sequence[Margin], *, deciding: Sequence[int] = ()) -> TableFit:
    """The least-squares fit to all of them. Where a `deciding` margin tells a part, only such margins do.

    InvalidParameter where two exact margins contradict each other.
    """
    weights: dict[Axes, dict[int, float]] = {}
    parts: dict[Axes, Floats] = {}
    for part in dict.fromkeys(part for each in margins for part in subsets(each.axes)):
        telling = [i for i, each in enumerate(margins) if set(part) <= set(each.axes)]
        heard = {i: without_averages(summed(margins[i].counts, margins[i].axes, part)) for i in telling}
        exact = [i for i in telling if margins[i].variance == 0]
        first = [i for i in telling if i in deciding]
        if exact:
            _agree([heard[i] for i in exact], [margins[i] for i in exact])
            weights[part] = {exact[0]: 1.0}
        else:
            kept = _different(first or telling, heard, margins)
            precise = {i: 1 / margins[i].variance_of(part, sizes) for i in kept}
            whole = math.fsum(precise.values())
            weights[part] = {i: each / whole for i, each in precise.items()}
        parts[part] = sum((weight * heard[i] for i, weight in weights[part].items()), np.zeros(()))
    return TableFit(tuple(sizes), tuple(margins), weights, parts)


def _different(places: Sequence[int], heard: Mapping[int, Floats], margins: Sequence[Margin]) -> list[int]:
    """The margins without those that repeat another: tables that were measured together tell a part alike."""
    kept: list[int] = []
    for i in places:
        together = [j for j in kept if margins[i].by_part is not None is not margins[j].by_part]
        if not any(_alike([heard[j], heard[i]], [margins[j], margins[i]]) for j in together):
            kept.append(i)
    return kept


def agree(margins: Sequence[Margin]) -> bool:
    """Whether tables add up to each other as they are, but for roundings."""
    for part in dict.fromkeys(part for each in margins for part in subsets(each.axes)):
        telling = [each for each in margins if set(part) <= set(each.axes)]
        heard = [without_averages(summed(each.counts, each.axes, part)) for each in telling]
        if not _alike(heard, telling):
            return False
    return True


def _alike(heard: Sequence[Floats], margins: Sequence[Margin]) -> bool:
    size = 1 + max(float(np.abs(each.counts).sum()) for each in margins)
    return all(float(np.abs(each - heard[0]).max(initial=0.0)) <= _ALIKE * size for each in heard[1:])


def _agree(heard: Sequence[Floats], margins: Sequence[Margin]) -> None:
    if not _alike(heard, margins):
        rule = "contradict each other: their sums over the keys that they share differ"
        raise InvalidParameter("invariants", NOTHING, rule, "declare totals that add up to each other")


# -- nowhere below 0 ---------------------------------------------------------------------------------------------------


def nonnegative(sizes: Sequence[int], margins: Sequence[Margin]) -> Floats:
    """The array without numbers below 0 whose sums are nearest to all margins, each by its variance; exact ones hold.

    Minimises Σ_T ‖A_T x - y_T‖²/σ_T² over x >= 0 by ADMM: the quadratic is diagonal in the orthogonal parts, so that
    each step costs a few passes over the array. InvalidParameter where no such array has the exact sums.

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
    """The array with each of its orthogonal parts multiplied by a number; those without one are left out."""

    def walk(each: Floats, axis: int, part: Axes) -> Any:
        if axis == x.ndim:
            return each * gains.get(part, 0.0)
        mean = each.mean(axis=axis, keepdims=True)
        return walk(mean, axis + 1, part) + walk(each - mean, axis + 1, (*part, axis))

    return np.asarray(walk(x, 0, ()))


def _raked(x: Floats, exact: Sequence[Margin], whole: Axes) -> Floats:
    """The same, with the last digits of exact sums put right by factors: what is 0 stays 0."""
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
