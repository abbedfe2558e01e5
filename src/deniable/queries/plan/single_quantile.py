"""A single quantile as one cell that the exponential mechanism draws: more accurate than running totals, no interval.

One drawn value gives no information about the density of values around it, so its distance from the true quantile in
the column's units is unknown. A bound on its error in ranks is known beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final, final

from deniable.queries.intervals.noise_intervals import NoisyEstimate
from deniable.queries.plan.ranked_estimators import MOST_CELLS
from deniable.queries.plan.recipes import DrawnValue, Recipe
from deniable.queries.relations.exact_statistics import Cells, Statistic
from deniable.queries.relations.operators import typed
from deniable.tables.kinds import Kind

if TYPE_CHECKING:
    from deniable.queries.plan.question import Measure
    from deniable.queries.relations.relation_nodes import RelationNode

MOST_POINTS: Final = 2**15
"""The most cells from which a quantile is drawn. Rank errors grow with their logarithm only, but engines count each."""

_FARTHEST: Final = 2**40
"""The largest distance of a cell from 0, in cell widths: up to there engines can find a cell by division."""


@final
@dataclass(frozen=True, slots=True)
class Picked(Recipe):
    """The estimator of a quantile 0 < q < 1 that is drawn as a cell: the integer in it, or its middle."""

    name: str
    cells: Cells
    q: Fraction
    low: Fraction
    high: Fraction
    whole: bool
    """Whether cells are single integers."""

    def statistics(self) -> tuple[Statistic, ...]:
        return (self.cells,)

    def _estimate(self, drawn: Sequence[DrawnValue], confidence: float) -> NoisyEstimate:
        [one] = drawn
        start, end = self.cells.edges[one.values], self.cells.edges[one.values + 1]
        if self.whole:
            return NoisyEstimate(math.ceil(start))
        # The first and the last cell may reach beyond the bounds, where there are no values.
        return NoisyEstimate(float((max(start, self.low) + min(end, self.high)) / 2))


def picked(measure: Measure, relation: RelationNode, room: int) -> Picked | None:
    """The recipe of a quantile over at most `room` cells.

    None for MIN, MAX and other measures, and if its cells would be coarser than those of running totals.
    """
    q = Fraction(measure.options.get("q", 0))
    if measure.function != "quantile" or q in (0, 1):
        return None
    assert measure.expression is not None
    known = typed(measure.expression, relation.columns).domain
    assert known.bounds is not None  # `asked` refuses others
    low, high = known.bounds
    edges, whole = _edges(low, high, known.kind is Kind.INTEGER, min(room, MOST_POINTS))
    return Picked(measure.name, Cells(measure.expression, edges), q, low, high, whole) if edges else None


@lru_cache(maxsize=64)
def _edges(low: Fraction, high: Fraction, integers: bool, room: int) -> tuple[tuple[Fraction, ...], bool]:
    """(the edges of at most `room` cells, whether each cell is one integer).

    If there are too many integers, or for reals, edges are multiples of the smallest possible power of two, which
    engines compute exactly. No edges if running totals have finer cells, or if there is only one value.
    """
    if low == high:
        return (), False
    values = int(high - low) + 1
    if integers and values <= room:
        return tuple(low + i for i in range(values + 1)), True
    if room < MOST_CELLS:
        return (), False
    span = high - low
    exponent = span.numerator.bit_length() - span.denominator.bit_length() - room.bit_length() - 1
    while math.ceil(high / Fraction(2) ** exponent) - math.floor(low / Fraction(2) ** exponent) > room:
        exponent += 1
    if not -900 < exponent < 900:
        return (), False
    width = Fraction(2) ** exponent
    first, last = math.floor(low / width), math.ceil(high / width)
    if max(abs(first), abs(last)) > _FARTHEST or (last - first) < MOST_CELLS:
        return (), False
    return tuple(width * i for i in range(first, last + 1)), False
