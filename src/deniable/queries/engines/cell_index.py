"""SQL for the index of the cell (histogram bin) that holds a value.

Few edges are searched by comparisons. Many edges of equal distance are found by a division, whose result is corrected
by comparing with the edges wherever floating-point rounding could put a value into the neighbouring cell.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Final

from sqlglot import exp

from deniable.numbers import below, least_float
from deniable.queries.engines.expression_sql import Piece
from deniable.queries.engines.sql_spelling import SQL, Spelling, both, case, cast, function, number
from deniable.queries.relations.exact_statistics import Cells
from deniable.tables.kinds import LARGEST, SMALLEST, Kind

_FEW_CELLS: Final = 16
"""The most inner edges that are searched by comparisons."""

_MOST_LISTED: Final = 4096
"""The most inner edges that are written into a query; more are computed where that is exact."""


def even(edges: tuple[Fraction, ...]) -> bool:
    """Whether all cells have one width that is large enough for a division to be at most one cell off."""
    width = edges[1] - edges[0]
    if max(abs(edges[0]), abs(edges[-1])) > 2**40 * width or not 2.0**-900 < width < 2.0**900:
        return False
    return all(b - a == width for a, b in pairwise(edges))


def exactly_divided(edges: tuple[Fraction, ...], kind: Kind) -> bool:
    """Whether floor((x - low)/width) in floating point is right at each inner edge and at the number just before it."""
    low, width = float(edges[0]), float(edges[1] - edges[0])
    for cell, edge in enumerate(edges[1:-1], start=1):
        if kind is Kind.INTEGER:
            at: float = float(math.ceil(edge))
            before: float = float(math.ceil(edge) - 1)
        else:
            at = least_float(edge)
            before = below(at)
        if math.floor((at - low) / width) != cell or math.floor((before - low) / width) != cell - 1:
            return False
    return True


# -- as SQL ------------------------------------------------------------------------------------------------------------


def cell_index(spelling: Spelling, statistic: Cells, value: Piece) -> SQL:
    """SQL for the cell of a value, from 0: the number of inner edges that are at most the value."""
    inner = statistic.edges[1:-1]
    if len(inner) > _MOST_LISTED and _is_computable(statistic.edges, value.kind):
        return _computed(spelling, statistic, value)
    if value.kind is Kind.INTEGER:
        edges = [max(SMALLEST, min(math.ceil(edge), LARGEST)) for edge in inner]
        limits = [spelling.literal(edge, Kind.INTEGER) for edge in edges]
    else:
        limits = [spelling.real(least_float(edge)) for edge in inner]
    if len(inner) > _FEW_CELLS and even(statistic.edges):
        return _guessed(spelling, statistic, value, limits)

    def tree(first: int, last: int) -> SQL:
        if first == last:
            return number(first)
        middle = (first + last) // 2
        is_below = both(exp.LT, value.sql.copy(), limits[middle].copy())
        return case((is_below, tree(first, middle)), otherwise=tree(middle + 1, last))

    return tree(0, len(inner))


def _guessed(spelling: Spelling, statistic: Cells, value: Piece, limits: list[SQL]) -> SQL:
    """The cell among cells of equal width: by a division, corrected by the listed edges where rounding requires it.

    (x - low)/width has a relative error of a few 2^-53, and `even` requires that no edge is further than 2^40 widths
    from 0, so its floor is at most one off. The floor never decreases as x grows: if it is right at each edge and at
    the number just before it (`exactly_divided`), it is right everywhere and needs no correction.
    """
    edges, last = statistic.edges, len(limits)
    x = cast(value.sql.copy(), "DOUBLE") if value.kind is Kind.INTEGER else value.sql.copy()
    low, width = float(edges[0]), float(edges[1] - edges[0])
    steps = both(exp.Sub, x, spelling.real(low)) if low else x
    guess = cast(function("FLOOR", spelling.divide(steps, spelling.real(width))), "BIGINT")
    found = guess
    if not exactly_divided(edges, value.kind):
        # Between the first and the last inner edge the guess is from 0 to `last`; list elements count from 1.
        within = function("GREATEST", function("LEAST", guess, number(last - 1)), number(1))
        after = both(exp.Add, within.copy(), number(1))
        below = both(exp.LT, value.sql.copy(), spelling.element(limits, within))
        above = both(exp.GTE, value.sql.copy(), spelling.element(limits, after))
        before = both(exp.Sub, within.copy(), number(1))
        found = case((below, before), (above, after.copy()), otherwise=within.copy())
    return case(
        (both(exp.LT, value.sql.copy(), limits[0].copy()), number(0)),
        (both(exp.GTE, value.sql.copy(), limits[-1].copy()), number(last)),
        otherwise=found,
    )


def _is_computable(edges: tuple[Fraction, ...], kind: Kind) -> bool:
    """Whether all edges are multiples of one width, and engines compute these multiples without rounding."""
    width = edges[1] - edges[0]
    if not even(edges) or (edges[0] / width).denominator > 1:
        return False
    if kind is Kind.INTEGER:
        return width.denominator == 1
    return (width.numerator & (width.numerator - 1)) == (width.denominator & (width.denominator - 1)) == 0


def _computed(spelling: Spelling, statistic: Cells, value: Piece) -> SQL:
    """The cell among so many that the query computes the edges it compares with, instead of listing all.

    An edge is an integer times a width that is an integer or, for reals, a power of two: such a product is exact. As in
    `_guessed`, the floor of x/width is at most one off, and the edges correct it.
    """
    edges, x, whole = statistic.edges, value.sql, value.kind is Kind.INTEGER
    width = edges[1] - edges[0]
    first = int(edges[0] / width)

    def edge(place: SQL) -> SQL:
        if whole:
            return both(exp.Mul, place, number(int(width)))
        return both(exp.Mul, cast(place, "DOUBLE"), spelling.real(float(width)))

    def cell(place: SQL, more: int = 0) -> SQL:
        return both(exp.Sub, place, number(first - more))

    if whole and width == 1:
        found = cell(x.copy())
    else:
        real = cast(x.copy(), "DOUBLE") if whole else x.copy()
        place = cast(function("FLOOR", spelling.divide(real, spelling.real(float(width)))), "BIGINT")
        after = both(exp.Add, place.copy(), number(1))
        found = case(
            (both(exp.LT, x.copy(), edge(place.copy())), cell(place.copy(), -1)),
            (both(exp.GTE, x.copy(), edge(after)), cell(place.copy(), 1)),
            otherwise=cell(place),
        )
    ends = [
        spelling.literal(int(end), Kind.INTEGER) if whole else spelling.real(float(end))
        for end in (edges[1], edges[-2])
    ]
    return case(
        (both(exp.LT, x.copy(), ends[0]), number(0)),
        (both(exp.GTE, x.copy(), ends[1]), number(len(edges) - 2)),
        otherwise=cast(found, "BIGINT"),
    )
