"""Noise intervals of quotients, where the denominator is noisy too (Fieller's theorem).

For the true value t of N/D, N - t·D is zero without noise. N - t·D is nearly linear in the noisy numbers, so its noise
has a known law for every t. The interval consists of each t for which N - t·D is within the reach of its noise. It is
not symmetric around N/D, because the true denominator may be much smaller than a small noisy one. If the denominator
may be 0 given its noise, every large t is possible and there is no interval (None); coverage counts this case as
covered. Second-order terms (products of noise, `curved`) widen the interval.
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
"""The most iterations of the fixed point; it takes two for Gaussian noise, and about five for Laplace noise."""


@final
class Quotient(NamedTuple):
    """A numerator and a denominator."""

    above: float
    below: float = 1.0


Parts = Callable[[Mapping[str, Any]], Quotient | None]


def quotient(expression: Expression, domains: Mapping[str, Domain]) -> Parts:
    """A function from a row to the value of `expression` as one quotient; None where that is not a number.

    Sums, differences, products and quotients of quotients are quotients. Any other expression (a root, a CASE) is its
    value over 1.
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
    """One draw, and the signed change of numerator and denominator if it changes by one step."""

    step: Quotient
    share: Share

    def at(self, t: float) -> Share:
        """The share of the draw in N - t·D."""
        return self.share._replace(weight=abs(self.step.above - t * self.step.below) * self.share.weight)


_SLACK: Final = 1e-9
"""A relative allowance for rounding in a half-width: the value without noise often lies exactly at an end."""


def is_linear(expression: Expression) -> bool:
    """Whether an expression is linear in its columns, so that a draw changes it equally in all rows."""
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
    """`merged_reach` with weights rounded to 12 digits, so that rows with nearly equal shares use its cache."""
    return merged_reach(shape, tuple(each._replace(weight=float(f"{each.weight:.11e}")) for each in shares), confidence)


def is_smooth(expression: Expression) -> bool:
    """Whether an expression is linear or a quotient of two linear ones; Fieller's theorem is exact for these."""
    if isinstance(expression, Call) and expression.operator == "divide":
        return all(map(is_linear, expression.arguments))
    return is_linear(expression)


_SECOND: Final = 2.0
"""The factor on the standard deviation of second-order terms. The slopes of a product are evaluated at noisy numbers,
and are too small where noise made these small. With a factor of 0, 95 % intervals of a product of two noisy numbers
cover 90.2 % in the worst case (both true numbers are 1.5 standard deviations); with 1, 93.2 %; with 2, 94.8 %.
"""
_SLIGHT: Final = 1 / 50
"""Second-order terms below this fraction of the first-order ones are ignored: they widen an interval by < 1/1000."""


def bend(a: Quotient, b: Quotient, c: Quotient, d: Quotient, weight: float) -> Quotient:
    """weight·(a - b + c - d) in numerator and denominator: the mixed second difference.

    a, b, c, d are the values at the corners of the rectangle of two steps, in turn.
    """
    return Quotient(weight * (a.above - b.above + c.above - d.above), weight * (a.below - b.below + c.below - d.below))


def curved(middle: Quotient, moves: Sequence[Move], bends: Sequence[Quotient], shape: Shape) -> list[Move]:
    """Two artificial draws that represent the second-order terms; empty if these are negligible.

    `bends` has, for each pair of draws, the mixed second difference of numerator and denominator for steps of one
    standard deviation. The variance of the second-order terms in N - t·D is a quadratic in t, and so is the variance of
    two suitable draws.
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
    """The interval of a quotient under these draws; None if the denominator is or may be 0.

    `far` computes the reach of several draws if the denominator is exact.
    """
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
    """The smallest (sign -1) or largest (sign 1) t at which |N - t·D| equals the reach of its noise.

    The reach is z standard deviations. For a given z, the ends are the roots of a quadratic. z depends on the law of
    the noise at the end itself, but changes little with t, so a fixed-point iteration finds it.
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
