"""Curves of the caller's own mechanism: masses, densities, distribution functions, or a trade-off function.

The input is checked: masses must be distributions, and a trade-off function must be valid. Otherwise the error names
the reason and the place. By default either neighbour may come first in every use, which is always safe; `tied=True`
says that P always belongs to the neighbour without the person.

Densities and distribution functions are known only where they are evaluated, so `FromCells` keeps a range for
everything: the masses of each cell with their possible error (`doubt_*`), the range of the loss within a cell (`lowest`
to `highest`), and the mass that was not found (`missing_*`, infinite loss; `rest`, loss at most `largest`). The upper
law takes the worst case of all of these, the lower law the best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from deniable import arguments
from deniable.curves import curve_arguments
from deniable.curves.atoms.atom import Atom, show
from deniable.curves.curve import Curve
from deniable.curves.laws import finite_law, laws_from_bounds
from deniable.curves.laws.law import Law, LawPair, Sided
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats
from deniable.errors import InvalidDistribution, InvalidParameter, InvalidTradeoff

SUM_TOLERANCE = 1e-9


_INSIDE = 1 - 1e-9
"""Relative position of the ends of a cell, slightly inside it: the value of a density exactly at a break is
meaningless.
"""


# -- masses ----------------------------------------------------------------------------------------------------------


def _masses(name: str, values: Any) -> Floats:
    array = curve_arguments.numbers_array(name, values)
    if np.any(array < 0):
        place = int(np.argmax(array < 0))
        raise InvalidDistribution(name, "...", f"entry {place} is negative", "masses must be at least 0")
    if abs(math.fsum(array) - 1) > SUM_TOLERANCE:
        # Without the sum: a column of the data that was passed by mistake has one, too.
        raise InvalidDistribution(name, "...", "the masses must sum to 1", "divide each by their sum")
    return array


@final
@dataclass(frozen=True, slots=True)
class FromPmf(Atom):
    """Two lists of masses on the same outcomes."""

    name: ClassVar[str] = "from_pmf"
    p: tuple[float, ...]
    q: tuple[float, ...]
    is_tied: bool

    def __post_init__(self) -> None:
        p, q = _masses("p", self.p), _masses("q", self.q)
        if len(p) != len(q):
            rule = f"must have as many masses as p, {len(p)}"
            raise InvalidDistribution("q", f"{len(q)} masses", rule, "list both on the same outcomes")
        object.__setattr__(self, "p", tuple(p.tolist()))
        object.__setattr__(self, "q", tuple(q.tolist()))
        arguments.boolean("tied", self.is_tied)

    @property
    def tied(self) -> bool:
        return self.is_tied

    def pair(self) -> LawPair:
        p, q = np.array(self.p), np.array(self.q)
        # Sums may be off by rounding (or by up to 1e-9, which is taken for rounding): both are normalised.
        return finite_law.from_masses(p / math.fsum(p), q / math.fsum(q), 4 * UNIT_ROUNDOFF)

    def expression(self) -> str:
        if len(self.p) > 8:
            return f"from_pmf(<{len(self.p)} outcomes>)"
        p, q = (", ".join(show(v) for v in side) for side in (self.p, self.q))
        return f"from_pmf([{p}], [{q}]{', tied=True' if self.is_tied else ''})"


def from_pmf(p: Sequence[float], q: Sequence[float], *, tied: bool = False) -> Curve:
    """A mechanism with finitely many answers: its masses on two neighbouring datasets, on the same list of answers.

    Each list must sum to 1 (up to 1e-9). Raises InvalidDistribution otherwise.

    >>> from deniable import curves
    >>> round(curves.from_pmf([0.75, 0.25], [0.25, 0.75]).epsilon(delta=0.0), 9)
    1.098612289
    """
    first, second = tuple(curve_arguments.numbers_array("p", p)), tuple(curve_arguments.numbers_array("q", q))
    return Curve.of(FromPmf(first, second, arguments.boolean("tied", tied)))


# -- densities and distribution functions ----------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class FromCells(Atom):
    """A continuous mechanism cut into cells: masses of both laws, and the range of the loss within each cell."""

    name: ClassVar[str] = "from_cells"
    p: tuple[float, ...]
    q: tuple[float, ...]
    lowest: tuple[float, ...]
    highest: tuple[float, ...]
    missing_p: float
    missing_q: float
    error: float
    is_tied: bool
    rest: float = 0.0
    """Mass of either law that was not found, if its loss is known to be at most `largest` in size."""
    largest: float = 0.0
    doubt_p: tuple[float, ...] = ()
    doubt_q: tuple[float, ...] = ()
    """How far the masses of each cell may be off; empty if they are exact."""

    def __post_init__(self) -> None:
        curve_arguments.not_negative("largest", self.largest)
        for name in ("doubt_p", "doubt_q"):
            doubts = curve_arguments.numbers_array(name, getattr(self, name) or (0.0,))
            if len(doubts) not in (1, len(self.p)) or np.any(doubts < 0):
                raise InvalidDistribution(name, "...", "must be one number of at least 0 for each cell, or empty")
        sizes = {len(self.p), len(self.q), len(self.lowest), len(self.highest)}
        if len(sizes) != 1:
            raise InvalidDistribution("p", sizes, "all lists must be of one length")
        for name in ("missing_p", "missing_q", "error", "rest"):
            curve_arguments.probability(name, getattr(self, name))
        for name in ("p", "q"):
            masses = curve_arguments.numbers_array(name, getattr(self, name))
            total = math.fsum(masses) + getattr(self, f"missing_{name}") + self.rest
            if np.any(masses < 0) or not 1 - 1e-6 < total < 1 + 1e-2:
                raise InvalidDistribution(name, "...", "must be at least 0 and, with the missing mass, sum to 1")
        if np.any(
            curve_arguments.numbers_array("lowest", self.lowest)
            > curve_arguments.numbers_array("highest", self.highest)
        ):
            raise InvalidDistribution("lowest", "...", "must not exceed highest")
        arguments.boolean("tied", self.is_tied)

    @property
    def tied(self) -> bool:
        return self.is_tied

    def pair(self) -> LawPair:
        p, q = np.array(self.p), np.array(self.q)
        low, high = np.array(self.lowest), np.array(self.highest)
        doubt_p, doubt_q = (np.array(each or (0.0,)) for each in (self.doubt_p, self.doubt_q))
        rest = (self.rest, self.largest)
        return LawPair(
            Sided(
                _cells_above(p, _lowered(q, doubt_q), low, high, self.missing_p, self.error, rest),
                _cells_below(_lowered(p, doubt_p), q + doubt_q, self.error),
            ),
            Sided(
                _cells_above(q, _lowered(p, doubt_p), -high, -low, self.missing_q, self.error, rest),
                _cells_below(_lowered(q, doubt_q), p + doubt_p, self.error),
            ),
        )

    def expression(self) -> str:
        return f"from_cells(<{len(self.p)} cells>)"


def _lowered(masses: Floats, doubts: Floats) -> Floats:
    return np.asarray(np.maximum(masses - doubts, 0.0))


def _cells_above(
    p: Floats, q: Floats, low: Floats, high: Floats, missing: float, error: float, rest: tuple[float, float]
) -> Law:
    """An upper law: the mass of each cell is split between the ends of its loss range so that both masses are kept.

    `q` is the smallest Q-mass that a cell may have; the P-mass that `p` may lack is part of `missing`. Mass that was
    not found has the largest possible loss.
    """
    both = (p > 0) & (q > 0)
    infinity = float(np.sum(p[~both]))
    p, q, low, high = p[both], q[both], low[both], high[both]
    merged = np.log(p) - np.log(q)
    if rest[1] > 0:
        merged = np.clip(merged, -rest[1], rest[1])
    low, high = np.minimum(low, merged), np.maximum(high, merged)
    width = np.maximum(high - low, 1e-300)
    up = np.clip(-np.expm1(-(merged - low)) / -np.expm1(-width), 0.0, 1.0)
    # a_up(1 - e^-width) = p - q e^low = p(1 - e^-(merged-low)).
    losses, masses = np.concatenate((low, high)), np.concatenate((p * (1 - up), p * up))
    if rest[0] > 0:
        losses, masses = np.append(losses, rest[1]), np.append(masses, rest[0])
    return finite_law.merged(losses, masses, min(infinity + missing, 1.0), error, side="upper")


def _cells_below(p: Floats, q: Floats, error: float) -> Law:
    """A law below the true one. Each cell has one loss; mass that the quadrature did not find is left out.

    With the smallest P-mass and the largest Q-mass of each cell, every term (p - e^ε q)+ is at most the true one, and
    so is each product of such terms.
    """
    both = (p > 0) & (q > 0)
    infinity = float(np.sum(p[~both]))
    return finite_law.merged(np.log(p[both]) - np.log(q[both]), p[both], infinity, error, side="lower")


def _call(name: str, function: Callable[[Floats], Any], at: Floats) -> Floats:
    if not callable(function):
        raise InvalidParameter(name, function, "must be a function of an array")
    try:
        values = np.asarray(function(at), dtype=float)
    except (TypeError, ValueError):
        raise InvalidDistribution(name, "...", "must map an array of numbers to an array of numbers") from None
    if values.shape != at.shape:
        raise InvalidDistribution(name, values.shape, f"must return an array of shape {at.shape}")
    bad = ~np.isfinite(values)
    if np.any(bad):
        raise InvalidDistribution(name, "...", f"is not finite at {at.ravel()[int(np.argmax(bad.ravel()))]:.6g}")
    return values


def from_density(
    p: Callable[[Floats], Any],
    q: Callable[[Floats], Any],
    *,
    support: tuple[float, float],
    breaks: Sequence[float] = (),
    cells: int = 4000,
    largest_loss: float | None = None,
    tied: bool = False,
) -> Curve:
    """A mechanism with real answers: its densities on two neighbouring datasets, as functions of an array.

    `support` is the interval of the answers (infinite ends allowed); `breaks` are the points where a density jumps or
    has a kink; `cells` is the number of cells (at least 10). The densities are integrated cell by cell with two Gauss
    rules. Where the two disagree, the density is assumed to have an unnamed jump or kink, and both bounds allow for the
    effect of a jump as large as its variation in the cell. Mass that is not found counts as infinite loss. Assumption:
    within a cell the privacy loss stays within its values at 10 points and the ends, widened by their spacing.

    `largest_loss` states that |log p/q| is at most this everywhere, which evaluation at points cannot prove. It is
    checked at every point. Mass that is not found then counts as that loss, so that the curve is pure DP.

    Raises InvalidDistribution if a density is negative, not finite, or does not integrate to 1 (up to 1e-6).

    >>> from deniable import curves
    >>> import numpy as np
    >>> laplace = [lambda y, at=at: np.exp(-np.abs(y - at)) / 2 for at in (0, 1)]
    >>> line = (-math.inf, math.inf)
    >>> round(curves.from_density(*laplace, support=line, breaks=[0, 1], largest_loss=1).epsilon(delta=0), 9)
    1.0
    """
    if not isinstance(support, Sequence) or isinstance(support, str) or len(support) != 2:
        raise InvalidParameter("support", support, "must be a pair (low, high)")
    low, high = curve_arguments.number("support", support[0]), curve_arguments.number("support", support[1])
    if not low < high:
        raise InvalidParameter("support", support, "must be (low, high) with low < high")
    count = curve_arguments.integer("cells", cells, 10)
    if isinstance(breaks, str) or not isinstance(breaks, Iterable):
        raise InvalidParameter("breaks", breaks, "must be a list of numbers")
    inner = sorted(b for b in (curve_arguments.finite("breaks", b) for b in breaks) if low < b < high)
    edges = _cell_edges(low, high, inner, count)
    one, two = (_integrated(name, density, edges) for name, density in (("p", p), ("q", q)))
    masses, misses = [one.masses, two.masses], [one.missing, two.missing]
    loss, lowest, highest = _loss_ranges(one.values, two.values)
    rest, most = 0.0, 0.0
    if largest_loss is not None:
        most = curve_arguments.not_negative("largest_loss", largest_loss)
        # Densities that nearly underflow have lost digits: their ratio is meaningless.
        exact = np.all((one.values > 1e-290) & (two.values > 1e-290), axis=1)
        rest = _check_bounded(most, loss, masses, misses, exact)
        seen = exact & (masses[0] > 0) & (masses[1] > 0)
        masses, misses = [np.where(seen, mass, 0.0) for mass in masses], [0.0, 0.0]
        lowest, highest = np.clip(lowest, -most, most), np.clip(highest, -most, most)
    return Curve.of(
        FromCells(
            p=tuple(masses[0].tolist()),
            q=tuple(masses[1].tolist()),
            lowest=tuple(lowest.tolist()),
            highest=tuple(highest.tolist()),
            missing_p=misses[0],
            missing_q=misses[1],
            error=1e-13,
            is_tied=arguments.boolean("tied", tied),
            rest=rest,
            largest=most,
            doubt_p=tuple(one.doubts.tolist()),
            doubt_q=tuple(two.doubts.tolist()),
        )
    )


class _Integrated(NamedTuple):
    """A density on cells: its values at the ends and points of each, its masses, their errors, and the missing mass."""

    values: Floats
    masses: Floats
    doubts: Floats
    missing: float


def _integrated(name: str, density: Callable[[Floats], Any], edges: Floats) -> _Integrated:
    """Integrate a density over each cell by Gauss' rules of 10 and of 7 points. Raises InvalidDistribution."""
    fine, fine_weights = np.polynomial.legendre.leggauss(10)
    rough, rough_weights = np.polynomial.legendre.leggauss(7)
    middle, half = 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges)
    nodes, rough_nodes = (middle[:, None] + half[:, None] * r[None, :] for r in (fine, rough))
    at = _call(name, density, nodes)
    if np.any(at < 0):
        raise InvalidDistribution(name, "...", f"is negative at {nodes[at < 0][0]:.6g}", "a density is at least 0")
    mass = half * (at @ fine_weights)
    rough_at = _call(name, density, rough_nodes)
    total = math.fsum(mass)
    if abs(total - 1) > 1e-6:
        rule = f"integrates to {total:.9g} over the support, not to 1"
        raise InvalidDistribution(name, "...", rule, "check the support and name its breaks")
    order = np.argsort(np.concatenate((fine, rough)))
    doubt = _quadrature_doubt(np.hstack((at, rough_at))[:, order], half, mass, half * (rough_at @ rough_weights))
    at_ends = _call(name, density, middle[:, None] + half[:, None] * np.array([[-_INSIDE, _INSIDE]]))
    doubt = doubt + _doubt_at_the_ends(at, at_ends, fine, half, mass)
    values = np.hstack((at_ends[:, :1], at, at_ends[:, 1:]))
    missing = max(1 - total, 0.0) + float(np.sum(doubt)) + 1e-13
    return _Integrated(values, np.where(mass < 1e-300, 0.0, mass), doubt, missing)


def _loss_ranges(p: Floats, q: Floats) -> tuple[Floats, Floats, Floats]:
    """The loss at all points of each cell (NaN where a density is 0), and its range in the cell, widened."""
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.log(p) - np.log(q)
    loss = np.where(np.isfinite(loss), loss, np.nan)
    moves = np.abs(np.diff(loss, axis=1))
    span = np.nan_to_num(np.nanmax(moves, axis=1, initial=0.0, where=~np.isnan(moves)))
    lowest = np.nanmin(np.where(np.isnan(loss), np.inf, loss), axis=1) - span
    highest = np.nanmax(np.where(np.isnan(loss), -np.inf, loss), axis=1) + span
    # Cells that one of the two laws never reaches have no loss.
    known = np.isfinite(lowest) & np.isfinite(highest)
    return loss, np.where(known, lowest, 0.0), np.where(known, highest, 0.0)


def _quadrature_doubt(values: Floats, half: Floats, mass: Floats, check_mass: Floats) -> Floats:
    """How far the mass of each cell may be off, from the density's values at all points of the cell, in order.

    Where both rules agree to rounding, the density is smooth and the mass is right. Where they do not, it has a kink or
    a jump, and both rules may be off in the same direction. A function of total variation V is a mixture of jumps, on
    each of which the 10-point Gauss rule is off by at most 0.149 half. The points miss variation between them, so V is
    doubled.
    """
    apart = np.abs(mass - check_mass)
    varies = np.sum(np.abs(np.diff(values, axis=1)), axis=1)
    return np.asarray(np.where(apart > 1e-12 * mass, apart + 2 * 0.149 * half * varies, apart))


def _doubt_at_the_ends(at: Floats, ends: Floats, points: Floats, half: Floats, mass: Floats) -> Floats:
    """The effect on a cell's mass of a jump between an end of the cell and the point next to it, which no rule sees.

    A smooth density continues to the end like the polynomial through the points. The distance from that, times the
    width of the piece, bounds what a jump there may have moved. At a pole this exceeds the mass itself, so the charge
    is capped by the mass of the surrounding cells.
    """
    gaps = points[:, None] - points[None, :]
    np.fill_diagonal(gaps, 1.0)
    scale = np.prod(gaps, axis=1)
    go_on = np.array([[np.prod(np.delete(end - points, i)) / scale[i] for i in range(len(points))] for end in (-1, 1)])
    jumps = np.abs(ends - at @ go_on.T).sum(axis=1)
    around = mass + np.concatenate(([0.0], mass[:-1])) + np.concatenate((mass[1:], [0.0]))
    return np.asarray(np.minimum((1 - points[-1]) * half * jumps, around))


def _check_bounded(
    most: float, loss: Floats, masses: list[Floats], misses: list[float], exact: NDArray[np.bool_]
) -> float:
    """The mass that was not found, of the law that misses more, where the loss is known to stay within ±most.

    Raises InvalidDistribution if the loss exceeds `most` at some point.
    """
    found = float(np.max(np.abs(loss[exact]), initial=0.0))
    if found > most * (1 + 1e-9) + 1e-12:
        raise InvalidDistribution("largest_loss", most, f"the loss reaches {found:.9g}", "give the largest loss")
    seen = exact & (masses[0] > 0) & (masses[1] > 0)
    return min(max(miss + float(np.sum(mass[~seen])) for miss, mass in zip(misses, masses, strict=True)), 1.0)


def _cell_edges(low: float, high: float, breaks: list[float], count: int) -> Floats:
    """Cell edges: even on a finite support, sinh-spaced towards infinite ends, breaks included."""
    if math.isfinite(low) and math.isfinite(high):
        edges = np.linspace(low, high, count + 1)
    else:
        centre = (
            breaks[len(breaks) // 2]
            if breaks
            else (low if math.isfinite(low) else high if math.isfinite(high) else 0.0)
        )
        left = math.asinh(min(max((low - centre), -1e5), 1e5)) if low < centre else 0.0
        right = math.asinh(min((high - centre), 1e5)) if high > centre else 0.0
        edges = centre + np.sinh(np.linspace(left, right, count + 1))
    return np.unique(np.concatenate((edges, breaks)))


def from_cdf(
    p: Callable[[Floats], Any], q: Callable[[Floats], Any], *, points: Sequence[float], tied: bool = False
) -> Curve:
    """A mechanism with real answers, from its two distribution functions at increasing `points` (at least four).

    Mass outside the points counts as infinite loss, so they must reach far. Assumption: within a cell the privacy loss
    stays between the mean losses of the neighbouring cells, as it does if the likelihood ratio is monotone across three
    cells.
    """
    at = curve_arguments.numbers_array("points", points)
    if len(at) < 4 or np.any(np.diff(at) <= 0):
        raise InvalidParameter("points", "...", "must be at least four increasing numbers")
    masses, missing = [], []
    for name, function in (("p", p), ("q", q)):
        values = _call(name, function, at)
        if np.any(np.diff(values) < 0):
            raise InvalidDistribution(
                name, "...", f"decreases after {at[int(np.argmax(np.diff(values) < 0))]:.6g}", "a cdf never decreases"
            )
        if values[0] < 0 or values[-1] > 1 + 1e-12:
            raise InvalidDistribution(name, f"[{values[0]:.6g}, {values[-1]:.6g}]", "must stay within [0, 1]")
        masses.append(np.diff(values))
        missing.append(float(np.clip(values[0] + 1 - values[-1], 0.0, 1.0)))
    # Cells in which one law has no mass at this precision are dropped: their mass counts as missing.
    kept = (masses[0] > 1e-290) & (masses[1] > 1e-290)
    if np.count_nonzero(kept) < 3:
        raise InvalidDistribution(
            "points", "...", "the two laws share fewer than three cells", "choose points where both have mass"
        )
    missing = [min(m + float(np.sum(cell[~kept])), 1.0) for m, cell in zip(missing, masses, strict=True)]
    masses = [cell[kept] for cell in masses]
    loss = np.log(masses[0]) - np.log(masses[1])
    # The outermost cells have only one neighbour: extend them by the same step again.
    padded = np.concatenate(([2 * loss[0] - loss[1]], loss, [2 * loss[-1] - loss[-2]]))
    around = np.stack((padded[:-2], padded[1:-1], padded[2:]))
    # A mass is a difference of two numbers with a rounding error of up to one unit of 1; that much mass may be
    # anywhere.
    doubt = 4 * UNIT_ROUNDOFF * len(loss)
    return Curve.of(
        FromCells(
            p=tuple(masses[0].tolist()),
            q=tuple(masses[1].tolist()),
            lowest=tuple(np.min(around, axis=0).tolist()),
            highest=tuple(np.max(around, axis=0).tolist()),
            missing_p=min(missing[0] + doubt, 1.0),
            missing_q=min(missing[1] + doubt, 1.0),
            error=1e-13,
            is_tied=arguments.boolean("tied", tied),
        )
    )


# -- trade-off functions ---------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class FromTradeoff(Atom):
    """A trade-off function known at levels: it is convex, so chords lie above it and extended chords below."""

    name: ClassVar[str] = "tradeoff"
    levels: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_tradeoff(np.array(self.levels), np.array(self.values))

    @property
    def tied(self) -> bool:
        return False

    def pair(self) -> LawPair:
        level, value = np.array(self.levels), np.array(self.values)
        # For the power 1 - f, chords lie below (each is a real test) and extended chords above.
        chords = laws_from_bounds.law_of_polygon(
            level, np.maximum(1 - value - 64 * UNIT_ROUNDOFF, 0.0), 1e-13, side="lower"
        )
        outer = laws_from_bounds.law_of_polygon(*_outer_polygon(level, 1 - value), 1e-13, side="upper")
        searching_q = Sided(outer, chords)
        back_chords = laws_from_bounds.law_of_polygon(value[::-1], 1 - level[::-1], 1e-13, side="lower")
        outer_level, outer_power = _outer_polygon(level, 1 - value)
        back_outer = laws_from_bounds.law_of_polygon(1 - outer_power[::-1], 1 - outer_level[::-1], 1e-13, side="upper")
        return LawPair(Sided(back_outer, back_chords), searching_q)

    def expression(self) -> str:
        return f"tradeoff(<{len(self.levels)} levels>)"


def _outer_polygon(level: Floats, power: Floats) -> tuple[Floats, Floats]:
    """A concave polygon above a concave function known at points: its vertices are where extended neighbouring chords
    meet.
    """
    gap = np.diff(level)
    slope = np.diff(power) / gap
    # The first cell has no chord before it: the power may jump at level 0, so its vertex is there.
    before, after = np.concatenate(([0.0], slope[:-1])), np.append(slope[1:], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        meet = (power[1:] - after * gap - power[:-1]) / (before - after)
    # Any vertex in the cell is valid with the larger of the two lines; their intersection is best.
    meet = np.clip(np.where(np.isnan(meet), 0.5 * gap, meet), 0.0, gap)
    meet[0] = 0.0
    height = np.maximum(power[:-1] + before * meet, power[1:] - after * (gap - meet))
    # A float has a rounding error of up to one unit of 1: a trade-off function cannot resolve δ below 1e-15.
    height = np.minimum(height + 4 * UNIT_ROUNDOFF, 1.0)
    new_level = np.concatenate((level[:-1] + meet, [1.0]))
    return new_level, np.maximum.accumulate(np.append(height, 1.0))


def _check_tradeoff(level: Floats, value: Floats) -> None:
    """Raise InvalidTradeoff, with the place, unless these are values of a trade-off function."""

    def refuse(place: float, reason: str) -> None:
        raise InvalidTradeoff(
            "f", f"at alpha={place:.6g}", reason, "a trade-off function is convex, non-increasing and at most 1 - alpha"
        )

    if (
        len(level) < 2
        or len(level) != len(value)
        or not np.all(np.isfinite(level))
        or level[0] != 0
        or level[-1] != 1
        or np.any(np.diff(level) <= 0)
    ):
        raise InvalidTradeoff("levels", "...", "must increase from 0 to 1, one for each value")
    for bad, reason in (
        (~np.isfinite(value), "it is not finite"),
        (value < -1e-15, "it is negative"),
        (value > 1 - level + 1e-12, "it is larger than 1 - alpha"),
    ):
        if np.any(bad):
            refuse(float(level[int(np.argmax(bad))]), reason)
    rises = np.diff(value) > 1e-13
    if np.any(rises):
        refuse(float(level[1:][int(np.argmax(rises))]), "it increases")
    # Convexity: each value lies below the chord of its neighbours, up to rounding.
    share = (level[1:-1] - level[:-2]) / (level[2:] - level[:-2])
    chord = value[:-2] + share * (value[2:] - value[:-2])
    bent = value[1:-1] > chord + 1e-12
    if np.any(bent):
        refuse(float(level[1:-1][int(np.argmax(bent))]), "it is not convex")


def tradeoff(f: Callable[[Floats], Any]) -> Curve:
    """A mechanism with the trade-off function f: [0,1] -> [0,1] (an array in, an array out): β(α) >= f(α).

    f must be convex, non-increasing and at most 1 - α; this is checked on a grid that is dense near both ends
    (InvalidTradeoff otherwise). Because f is evaluated in floating point, δ below 1e-15 is not resolved.

    >>> from deniable import curves
    >>> curve = curves.tradeoff(lambda a: (1 - a) ** 2)
    >>> bool(abs(curve.beta(alpha=0.5) - 0.25) < 1e-6)
    True
    """
    tiny = np.logspace(-16, -2, 500)
    level = np.unique(np.concatenate(([0.0], tiny, np.linspace(0.01, 0.99, 2401), 1 - tiny, [1.0])))
    return Curve.of(FromTradeoff(tuple(level.tolist()), tuple(_tradeoff_values(f, level).tolist())))


def _tradeoff_values(f: Callable[[Floats], Any], level: Floats) -> Floats:
    if not callable(f):
        raise InvalidTradeoff("f", f, "must be a function of an array of levels in [0, 1]")
    try:
        values = np.asarray(f(level), dtype=float)
    except (TypeError, ValueError):
        try:
            values = np.array([float(f(np.array(a))) for a in level])
        except (TypeError, ValueError):
            raise InvalidTradeoff("f", "...", "must map numbers in [0, 1] to numbers in [0, 1]") from None
    if values.shape != level.shape:
        raise InvalidTradeoff("f", values.shape, f"must return an array of shape {level.shape}")
    _check_tradeoff(level, values)
    return np.asarray(np.maximum(np.minimum(values, 1 - level), 0.0))
