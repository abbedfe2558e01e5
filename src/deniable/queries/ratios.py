"""Noise intervals of quotients, where the denominator is noisy too (Fieller's theorem).

Of N/D, the true value t makes N - t·D zero without noise. N - t·D is nearly linear in the noisy numbers, so its noise
has a known law for every t; the interval holds each t for which N - t·D may be noise alone. It is not symmetric around
N/D: a small denominator may be far smaller still. Where D itself may be noise alone, no t is too large, and there is no
interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

from deniable.queries.intervals import Shape, reach
from deniable.tables.expressions import Call, Expression
from deniable.tables.kinds import Domain
from deniable.tables.operators import typed

_ROUNDS: Final = 50
"""Steps of the fixed point; it takes two for Gaussian noise, and about five for Laplace noise."""


@final
class Quotient(NamedTuple):
    """A numerator and a denominator."""

    above: float
    below: float = 1.0


Parts = Callable[[Mapping[str, Any]], Quotient | None]


def quotient(expression: Expression, domains: Mapping[str, Domain]) -> Parts:
    """A function that gives an expression of a row as one quotient; None where it is no number.

    Sums, differences and products of quotients are quotients. What else there is (a root, a CASE) is a number over 1.
    """
    if isinstance(expression, Call) and expression.operator in _COMBINED:
        inner = [quotient(each, domains) for each in expression.arguments]
        combined = _COMBINED[expression.operator]

        def together(row: Mapping[str, Any]) -> Quotient | None:
            parts = [each(row) for each in inner]
            known = [each for each in parts if each is not None]
            return combined(*known) if len(known) == len(parts) else None

        return together
    value = typed(expression, domains).value

    def alone(row: Mapping[str, Any]) -> Quotient | None:
        found = value(row)
        return Quotient(float(found)) if isinstance(found, int | float) else None

    return alone


def _added(a: Quotient, b: Quotient) -> Quotient:
    if a.below == b.below:
        return Quotient(a.above + b.above, a.below)
    return Quotient(a.above * b.below + b.above * a.below, a.below * b.below)


def _negated(a: Quotient) -> Quotient:
    return Quotient(-a.above, a.below)


_COMBINED: Final[Mapping[str, Callable[..., Quotient]]] = {
    "add": _added,
    "subtract": lambda a, b: _added(a, _negated(b)),
    "negate": _negated,
    "multiply": lambda a, b: Quotient(a.above * b.above, a.below * b.below),
    "divide": lambda a, b: Quotient(a.above * b.below, a.below * b.above),
}


def interval(
    middle: Quotient, moves: Sequence[Quotient], shape: Shape, confidence: float
) -> tuple[float, float] | None:
    """The interval of a quotient; `moves` are how far each draw's standard deviation moves its parts, with signs."""
    above, below = middle
    if not below:
        return None
    if not any(each.below for each in moves):
        half = reach(shape, [abs(each.above / below) for each in moves], confidence)
        return above / below - half, above / below + half
    ends = [_end(middle, moves, shape, confidence, sign) for sign in (-1, 1)]
    low, high = ends
    return None if low is None or high is None else (low, high)


def _end(middle: Quotient, moves: Sequence[Quotient], shape: Shape, confidence: float, sign: int) -> float | None:
    """The smallest or the largest t at which |N - t·D| is the reach of its noise.

    The reach is z standard deviations. For a z, the ends are the roots of a quadratic; z is that of the noise's law at
    the end itself, which changes little with t.
    """
    above, below = middle
    squares = math.fsum(each.above**2 for each in moves)
    both = math.fsum(each.above * each.below for each in moves)
    under = math.fsum(each.below**2 for each in moves)
    end = above / below
    for _ in range(_ROUNDS):
        noises = [abs(each.above - end * each.below) for each in moves]
        spread = math.hypot(*noises)
        if not spread:
            return end
        z2 = (reach(shape, noises, confidence) / spread) ** 2
        a, b, c = below**2 - z2 * under, above * below - z2 * both, above**2 - z2 * squares
        if a <= 0:
            return None
        last, end = end, (b + sign * math.sqrt(max(b * b - a * c, 0.0))) / a
        if not math.isfinite(end):
            return None
        if abs(end - last) <= 1e-9 * abs(end):
            break
    return end
