"""The average of independent likelihood ratios, two-sided: one person takes part in one of t runs, in secret.

Let A = dR/dS be the likelihood ratio of a pair of output laws, R with a person and S without. If the person takes part
in exactly one of t runs, drawn uniformly, the t outputs together have the likelihood ratio (A_1 + ... + A_t)/t. Under S
the A_i are independent copies of A. Both directions of the pair are means of convex functions of the ratio under S:

    δ(with against without) = E (A - e^ε)₊,      δ(without against with) = E (1 - e^ε A)₊.

So A′ leaks at least as much as A in both directions if A <= A′ in the convex order. Averages of independent numbers
preserve this order. Two operations bring a ratio back to few values, one for each side:

* `upper`: mass in a cell [a, b] goes to its two ends, with the same mean. This is a mean-preserving spread, which is
  larger in the convex order. Mass above the last edge becomes R-mass of infinite loss and S-mass at A = 0: the limit of
  a spread between 0 and a value that grows without bound.
* `lower`: mass in a cell goes to its mean. This is a conditional expectation, which is smaller in the convex order.

Both have errors of second order in the width of a cell. All numbers are positive and are only added and multiplied, so
rounding is a relative error, and it is counted.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.laws.law import LawPair, Sided
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats, quietly

Bound = Literal["upper", "lower"]

FINE = 1 << 16
"""The number of cells of an average, before `thinned` reduces it."""

COARSE = 1400
"""The most values that enter the next average, whose cost is the square of this number."""

ENTRIES = 32_768
"""The most sums of pairs added up at a time."""

DEEP = 30.0
"""Tails below e^-30 get wider cells than larger tails."""

RARE = 1e-20
"""Values of smaller mass are ignored by the evenly spaced part of the cells."""

SPARE = 1e-9
"""The relative distance from the smallest and the largest sum to the outer edges, if the sums are closer than this."""

CUT = 1e-33
"""R-mass of the largest ratios, and S-mass of the smallest ones, that have no cells of their own."""


LARGEST_ERROR = 1e300
"""A mass with such an error may be anything; a larger one would overflow."""


class Ratio(NamedTuple):
    """A likelihood ratio under S: increasing values (0 among them, if it has mass) with their S-masses, the R-mass of
    infinite loss, and bounds e on the relative errors of every mass and of every value: true numbers are at most 1 + e
    times larger or smaller.
    """

    values: Floats
    masses: Floats
    infinity: float
    mass_error: float
    value_error: float


class RatioCells(NamedTuple):
    """Edges of cells, with the S-mass and the R-mass in each."""

    edges: Floats
    without: Floats
    present: Floats


@quietly
def allocated(one: Ratio, runs: int, *, side: Bound) -> Ratio:
    """The average of `runs` independent copies of a ratio, rounded to `side`. Computed by repeated doubling, along the
    binary digits of `runs`.
    """
    base = thinned(one, side)
    result, count = base, 1
    for digit in f"{runs:b}"[1:]:
        result, count = average(result, count, result, count, side=side), 2 * count
        if digit == "1":
            result, count = average(result, count, base, 1, side=side), count + 1
    return result


def pair_of_ratios(upper: Ratio, lower: Ratio, *, is_smooth: bool = False) -> LawPair:
    """The laws of both directions. Forward is S against R: without the person against with them. See `laws`."""
    above, below = laws(upper, 1.0, is_smooth=is_smooth), laws(lower, -1.0, is_smooth=is_smooth)
    return LawPair(Sided(above[0], below[0]), Sided(above[1], below[1]))


def laws(ratio: Ratio, outwards: float, *, is_smooth: bool = False) -> tuple[FiniteLaw, FiniteLaw]:
    """The finite laws of S against R and of R against S, their losses moved outwards by the error of the values.

    `is_smooth` says that neighbouring cells have similar masses. Without it, an isolated value near the edge of a cell
    leaves a mass at the other edge that is all rounding, so only sums of masses have a bounded relative error.
    """
    error = _together(ratio.mass_error, ratio.value_error)
    some = ratio.values > 0
    values, masses = ratio.values[some], ratio.masses[some]
    nothing = float(np.sum(ratio.masses[~some]))
    losses, doubt = np.log(values), outwards * (2 * ratio.value_error + 1e-15)
    away = max(0.0, 1 + outwards * 2 * error)
    without = FiniteLaw(-losses[::-1] + doubt, masses[::-1], min(nothing * away, 1.0), error, each_mass=is_smooth)
    present = FiniteLaw(losses + doubt, masses * values, min(ratio.infinity * away, 1.0), error, each_mass=is_smooth)
    return without, present


def _together(*errors: float) -> float:
    """The relative error of a product of numbers with these relative errors."""
    total = 0.0
    for error in errors:
        total = min(total + error + total * error, LARGEST_ERROR)
    return total


def average(first: Ratio, weight: int, second: Ratio, other: int, *, side: Bound) -> Ratio:
    """The ratio (weight × first + other × second)/(weight + other), of independent ratios, rounded to `side`."""
    total = weight + other
    x, y = first.values * (weight / total), second.values * (other / total)
    edges = _edges(x, first.masses, y, second.masses)
    without, present, terms = _added(x, first.masses, y, second.masses, edges, same=first is second and weight == other)
    infinity = (weight * first.infinity + other * second.infinity) / total
    # Each term is a product of a few roundings, and each addition rounds once.
    roundings = UNIT_ROUNDOFF * (terms + 16)
    mass_error = _together(first.mass_error, second.mass_error, roundings)
    # A value within the rounding of its logarithm from an edge may be counted in the next cell.
    beside = 8 * UNIT_ROUNDOFF * max(abs(math.log(edges[1])), abs(math.log(edges[-1])), 1.0)
    value_error = _together(max(first.value_error, second.value_error), 2 * roundings + beside)
    fine = placed(RatioCells(edges, without, present), infinity, mass_error, value_error, side)
    return thinned(fine, side)


def _edges(x: Floats, p: Floats, y: Floats, q: Floats) -> Floats:
    """0, then edges evenly spaced in the logarithm, from the smallest relevant sum to the largest."""
    # The lower end: below it one of the two would have to be smaller than its own negligible quantile.
    low = max(x[_first_above(p)] + y[0], x[0] + y[_first_above(q)])
    if low == 0:  # both may be 0: their sum is 0, or at least the smaller of their positive values
        some = [(each[each > 0], mass[each > 0]) for each, mass in ((x, p), (y, q))]
        low = min((each[_first_above(mass)] for each, mass in some if len(each)), default=1.0)
    low = max(low, 1e-300)
    high = max(x[-1] + y[-1], low)
    # If all sums are nearly equal, the edges must still be far more than a rounding apart.
    spare = 1e-12 if high > low * (1 + SPARE) else SPARE
    return np.concatenate(([0.0], np.geomspace(low * (1 - spare), high * (1 + spare), FINE)))


def _first_above(masses: Floats) -> int:
    return int(np.argmax(np.cumsum(masses) > CUT))


def _added(x: Floats, p: Floats, y: Floats, q: Floats, edges: Floats, *, same: bool) -> tuple[Floats, Floats, int]:
    """Masses under S and under R of the sums x_i + y_j in each cell, and the most additions for one of them."""
    cells = len(edges) - 1
    start, step = math.log(edges[1]), (math.log(edges[-1]) - math.log(edges[1])) / (cells - 1)
    found = np.zeros(cells), np.zeros(cells)
    terms = np.zeros(cells, dtype=np.int64)

    def add(left: slice, right: slice, times: float) -> None:
        values = np.add.outer(x[left], y[right]).ravel()
        masses = np.multiply.outer(p[left] * times, q[right]).ravel()
        with np.errstate(divide="ignore"):
            place = (np.log(values) - start) * (1 / step) + 1
        index = np.clip(place, 0, cells - 1).astype(np.int64)
        terms[:] += np.bincount(index, minlength=cells) + 1
        found[0][:] += _summed(index, masses, cells)
        found[1][:] += _summed(index, masses * values, cells)

    rows = max(1, ENTRIES // max(len(y), 1))
    for begin in range(0, len(x), rows):
        end = min(begin + rows, len(x))
        if not same:
            add(slice(begin, end), slice(None), 1.0)
            continue
        add(
            slice(begin, end), slice(begin, end), 1.0
        )  # x and y are the same: each pair above the diagonal counts twice
        if end < len(x):
            add(slice(begin, end), slice(end, None), 2.0)
    return *found, int(np.max(terms))


def _summed(index: NDArray[np.int64], weights: Floats, cells: int) -> Floats:
    """The sum of the weights in each cell."""
    return np.asarray(np.bincount(index, weights, cells), dtype=np.float64)


def _depth(tail: Floats) -> Floats:
    """A number that grows with the logarithm of a tail, more slowly where the tail is tiny."""
    return np.asarray(-np.log1p(-np.log(np.maximum(np.minimum(tail, 1.0), CUT)) / DEEP))


def _share(rising: Floats) -> Floats:
    return np.asarray((rising - rising[0]) / max(rising[-1] - rising[0], 1e-300))


def placed(cells: RatioCells, infinity: float, mass_error: float, value_error: float, side: Bound) -> Ratio:
    """The ratio that has the mass of each cell at its two ends (`upper`) or at its mean (`lower`)."""
    inside = cells.without > 0
    mass = cells.without[inside]
    low, high = cells.edges[:-1][inside], cells.edges[1:][inside]
    mean = np.clip(cells.present[inside] / mass, low, high)
    if side == "lower":
        return Ratio(mean, mass, infinity, mass_error, value_error)
    share = (mean - low) / (high - low)
    place = np.flatnonzero(inside)
    masses = _summed(place, mass * (1 - share), len(cells.edges))
    masses += _summed(place + 1, mass * share, len(cells.edges))
    kept = masses > 0
    return Ratio(cells.edges[kept], masses[kept], infinity, mass_error, value_error)


def thinned(fine: Ratio, side: Bound) -> Ratio:
    """The ratio reduced to about COARSE values, rounded to `side`. Cells are narrow where the mass is."""
    values, masses, infinity = fine.values, fine.masses, fine.infinity
    if side == "upper":
        # Values beyond which R has mass at most CUT: infinite loss under R, and A = 0 under S.
        tail = np.cumsum((values * masses)[::-1])[::-1]
        last = max(1, int(np.searchsorted(-tail, -CUT)))
        up = 1 + UNIT_ROUNDOFF * (len(values) + 16)
        infinity += float(tail[last]) * up if last < len(tail) else 0.0
        beyond = float(np.sum(masses[last:])) * up
        values, masses = values[:last], masses[:last].copy()
        if beyond > 0:
            if values[0] > 0:
                values, masses = np.concatenate(([0.0], values)), np.concatenate(([0.0], masses))
            masses[0] += beyond
    if len(values) <= COARSE:
        return Ratio(values, masses, infinity, fine.mass_error, fine.value_error)
    first = int(np.argmax(values > 0))
    # Three densities of cells: even in the logarithm of the tails, the cube root of the mass, even in the logarithm.
    right = np.cumsum((values * masses)[first:][::-1])[::-1]
    left = np.cumsum(masses[first:])
    far = _depth(left) - _depth(right)
    logs = np.log(values[first:])
    width = np.diff(logs, prepend=2 * logs[0] - logs[1])
    dense = np.cumsum(np.cbrt(masses[first:] * (1 + values[first:]) / np.maximum(width, 1e-300)) * width)
    even = np.cumsum(width * (masses[first:] * (1 + values[first:]) > RARE))
    rank = 0.4 * _share(far) + 0.3 * _share(dense) + 0.3 * _share(even)
    chosen = np.unique(np.searchsorted(rank, np.linspace(0.0, 1.0, COARSE)).clip(0, len(rank) - 1)) + first
    chosen = np.unique(np.concatenate(([0, first], chosen, [len(values) - 1])))
    edges = values[chosen]
    if side == "upper":
        # Every value lies in a cell between two chosen values.
        index = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    else:
        index = np.searchsorted(chosen, np.arange(len(values)), side="right") - 1
        edges = np.append(edges, values[-1])
    cells = RatioCells(
        edges,
        _summed(index, masses, len(edges) - 1),
        _summed(index, masses * values, len(edges) - 1),
    )
    more = UNIT_ROUNDOFF * (int(np.max(np.bincount(index))) + 16)
    return placed(cells, infinity, _together(fine.mass_error, more), _together(fine.value_error, 2 * more), side)
