"""Noise intervals of quotients, where the denominator is noisy too (Fieller's theorem).

Of N/D, the true value t makes N - t·D zero without noise. N - t·D is nearly linear in the noisy numbers, so its noise
has a known law for every t; the interval holds each t for which N - t·D may be noise alone. It is not symmetric around
N/D: a small denominator may be far smaller still. Where D itself may be noise alone, no t is too large, and there is no
interval: the stated probability counts this as held. What is left of second order (products of noise, `curved`) widens
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

from deniable.ledger.currency import Shape
from deniable.queries.intervals.noise_intervals import Share, merged_reach, smooth_reach
from deniable.queries.relations.operators import typed
from deniable.tables.expressions import Call, Expression, columns_used
from deniable.tables.kinds import Domain

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


@final
class Move(NamedTuple):
    """How far a whole step of one draw moves a quotient's parts, with signs, and the draw."""

    step: Quotient
    share: Share

    def at(self, t: float) -> Share:
        """What the draw adds to N - t·D."""
        return self.share._replace(weight=abs(self.step.above - t * self.step.below) * self.share.weight)


_SLACK: Final = 1e-9
"""What roundings may take off a half-width, relative to it: the answer without noise often lies at an end."""


def is_linear(expression: Expression) -> bool:
    """Whether each draw moves an expression equally far in all rows."""
    if not isinstance(expression, Call):
        return True
    inner = expression.arguments
    if expression.operator in {"add", "subtract", "negate"}:
        return all(map(is_linear, inner))
    if expression.operator not in {"multiply", "divide"}:
        return False
    constant = [not any(columns_used(each)) for each in inner]
    return (constant[1] and is_linear(inner[0])) or (
        constant[0] and expression.operator == "multiply" and is_linear(inner[1])
    )


def moved_reach(shape: Shape, shares: tuple[Share, ...], confidence: float) -> float:
    """`merged_reach` of shares that differ by roundings from one row to the next: it is worked out once."""
    return merged_reach(shape, tuple(each._replace(weight=float(f"{each.weight:.11e}")) for each in shares), confidence)


def is_smooth(expression: Expression) -> bool:
    """Whether an expression is linear, or one linear expression over another: such quotients are exact by Fieller."""
    if isinstance(expression, Call) and expression.operator == "divide":
        return all(map(is_linear, expression.arguments))
    return is_linear(expression)


_SECOND: Final = 2.0
"""How often the deviation of second-order terms counts. The slopes of a product are read at noisy numbers, and are too
small where noise has made these small: at 0 times, 95 % intervals of a product of two noisy numbers hold 90.2 % at
worst (both are 1.5 standard deviations), at 1 time 93.2 %, at 2 times 94.8 %.
"""
_SLIGHT: Final = 1 / 50
"""Second-order terms below this part of the first-order ones widen an interval by less than 1/1000."""


def bend(a: Quotient, b: Quotient, c: Quotient, d: Quotient, weight: float) -> Quotient:
    """a - b + c - d, part by part: what two steps do beyond what each does alone, if these are the corners in turn."""
    return Quotient(weight * (a.above - b.above + c.above - d.above), weight * (a.below - b.below + c.below - d.below))


def curved(middle: Quotient, moves: Sequence[Move], bends: Sequence[Quotient], shape: Shape) -> list[Move]:
    """The draws that second-order terms count as: `bends` says how far each pair of draws moves a quotient's parts
    beyond what the two do alone, if both move by a standard deviation.

    Their sum of squares at N - t·D is a quadratic in t, which two draws have as well.
    """
    squares = math.fsum(each.above**2 for each in bends)
    both = math.fsum(each.above * each.below for each in bends)
    under = math.fsum(each.below**2 for each in bends)
    t = middle.above / middle.below if middle.below else 0.0
    first = math.hypot(*(each.at(t).deviation(shape) for each in moves))
    if squares - 2 * t * both + t * t * under <= (_SLIGHT * first) ** 2:
        return []
    one, share = math.sqrt(squares), Share.between(shape, _SECOND)
    beside = both / one if one else 0.0
    rest = math.sqrt(max(under - beside * beside, 0.0))
    return [Move(each, share) for each in (Quotient(one, beside), Quotient(0.0, rest)) if any(each)]


Reach = Callable[[Shape, tuple[Share, ...], float], float]


def interval(
    middle: Quotient, moves: Sequence[Move], shape: Shape, confidence: float, far: Reach = smooth_reach
) -> tuple[float, float] | None:
    """The interval of a quotient that these draws move; `far` tells how far they do, if the denominator is exact."""
    above, below = middle
    if not below:
        return None
    if not any(each.step.below for each in moves):
        shares = tuple(each.at(0.0) for each in moves)
        half = (moved_reach if len(shares) == 1 else far)(shape, shares, confidence) / abs(below)
        half += _SLACK * half + (4 * math.ulp(above / below) if half else 0)
        return above / below - half, above / below + half
    ends = [_end(middle, moves, shape, confidence, sign) for sign in (-1, 1)]
    low, high = ends
    return None if low is None or high is None else (low, high)


def _end(middle: Quotient, moves: Sequence[Move], shape: Shape, confidence: float, sign: int) -> float | None:
    """The smallest or the largest t at which |N - t·D| is the reach of its noise.

    The reach is z standard deviations. For a z, the ends are the roots of a quadratic; z is that of the noise's law at
    the end itself, which changes little with t.
    """
    above, below = middle
    lengths = [math.hypot(*each.share.pieces(shape)) for each in moves]
    squares = math.fsum((each.step.above * one) ** 2 for each, one in zip(moves, lengths, strict=True))
    both = math.fsum(each.step.above * each.step.below * one * one for each, one in zip(moves, lengths, strict=True))
    under = math.fsum((each.step.below * one) ** 2 for each, one in zip(moves, lengths, strict=True))
    end = above / below
    for _ in range(_ROUNDS):
        shares = tuple(each.at(end) for each in moves)
        spread = math.sqrt(max(squares - 2 * end * both + end * end * under, 0.0))
        if not any(share.weight for share in shares) or not spread:
            return end
        z2 = (smooth_reach(shape, shares, confidence) * (1 + _SLACK) / spread) ** 2
        a, b, c = below**2 - z2 * under, above * below - z2 * both, above**2 - z2 * squares
        if a <= 0:
            return None
        last, end = end, (b + sign * math.sqrt(max(b * b - a * c, 0.0))) / a
        if not math.isfinite(end):
            return None
        if abs(end - last) <= 1e-9 * abs(end):
            break
    return end
