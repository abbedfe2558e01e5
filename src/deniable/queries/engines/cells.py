"""Cells between edges: where floating-point division finds the cell of a number, and where it must not be trusted."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

from deniable.tables.kinds import Kind


def even(edges: tuple[Fraction, ...]) -> bool:
    """Whether cells are of one width, and wide enough for division to find them."""
    width = edges[1] - edges[0]
    if max(abs(edges[0]), abs(edges[-1])) > 2**40 * width or not 2.0**-900 < width < 2.0**900:
        return False
    return all(b - a == width for a, b in pairwise(edges))


def exactly_divided(edges: tuple[Fraction, ...], kind: Kind) -> bool:
    """Whether floor((x - low)/width), in floating point, is right at each inner edge and just before it."""
    low, width = float(edges[0]), float(edges[1] - edges[0])
    for cell, edge in enumerate(edges[1:-1], start=1):
        if kind is Kind.INTEGER:
            at: float = float(math.ceil(edge))
            before: float = float(math.ceil(edge) - 1)
        else:
            at = float_up(edge)
            before = math.nextafter(at, -math.inf)
        if math.floor((at - low) / width) != cell or math.floor((before - low) / width) != cell - 1:
            return False
    return True


def float_up(exact: Fraction) -> float:
    """The smallest float that is at least `exact`: for floats x, x >= exact is the same as x >= this."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.nextafter(math.inf, 0)
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)
