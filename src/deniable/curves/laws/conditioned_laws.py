"""A law given that its loss is small, and given that it is large.

Whether the loss of an outcome exceeds a cut c is known to everyone who sees the outcome. So a law is a mixture of two:
with probability F = P(L > c) the loss has the law `AboveCut`, otherwise the law `BelowCut`. Conditioning divides both
measures by the probability of the event, P by F and Q by G = Q(L > c), and so moves every loss by a constant:

    L > c:    L + log(G / F)                L <= c:    L + log((1 - G) / (1 - F))

`composition.jump_split` composes a law by the number of uses whose loss exceeds the cut.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from deniable.curves.laws.law import Law, Tails
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats, quietly


class CutMasses(NamedTuple):
    """The masses beyond a cut c: F = P(L > c), e^c Q(L > c), their difference with its error, and the relative error of
    the masses.
    """

    above: float
    second: float
    gap: float
    gap_error: float
    error: float


@lru_cache(maxsize=256)
def masses_beyond(law: Law, cut: float) -> CutMasses:
    """Both masses of the losses above `cut`."""
    first, second, error = (float(np.asarray(each).ravel()[0]) for each in law.tails(np.array([cut])))
    gap, doubt = (float(each[0]) for each in law.gaps(np.array([cut])))
    return CutMasses(first, second, gap, doubt, error)


def shift_above(law: Law, cut: float) -> float:
    """log(G / F): the amount that conditioning on losses above the cut adds to each loss."""
    beyond = masses_beyond(law, cut)
    return math.log(beyond.second / beyond.above) - cut


def shift_below(law: Law, cut: float) -> float:
    """log((1 - G) / (1 - F)): the amount that conditioning on losses up to the cut adds to each loss."""
    beyond = masses_beyond(law, cut)
    # F - G = (F - e^c G) + (e^c - 1) G: both parts are positive for c >= 0.
    more = beyond.gap + beyond.second * -math.expm1(-cut)
    return math.log1p(more / (1 - beyond.above))


@dataclass(frozen=True, slots=True)
class BelowCut(Law):
    """The law given that its loss is at most `cut` (0 <= cut, no infinite loss)."""

    base: Law
    cut: float

    @property
    def lowest(self) -> float:
        return self.base.lowest + shift_below(self.base, self.cut)

    @property
    def highest(self) -> float:
        return (self.cut + shift_below(self.base, self.cut)) * (1 + 8 * UNIT_ROUNDOFF)

    @property
    def jumps(self) -> tuple[float, ...]:
        shift = shift_below(self.base, self.cut)
        return tuple(each + shift for each in self.base.jumps if each <= self.cut)

    @property
    def scale(self) -> float:
        return min(self.base.scale, self.cut)

    @quietly
    def tails(self, loss: Floats) -> Tails:
        beyond, inner = masses_beyond(self.base, self.cut), loss - shift_below(self.base, self.cut)
        first, second, error = self.base.tails(np.minimum(inner, self.cut))
        outside = beyond.second * np.exp(np.minimum(inner - self.cut, 0.0))
        inside, kept = inner < self.cut, 1 - beyond.above
        left, right = np.maximum(first - beyond.above, 0.0) / kept, np.maximum(second - outside, 0.0) / kept
        # Cancellation near the cut: the errors of both numbers, relative to their difference.
        inner_error = np.asarray(error)
        lost = np.maximum(
            (inner_error * first + beyond.error * beyond.above) / np.maximum(first - beyond.above, 1e-300),
            (inner_error * second + (beyond.error + 8 * UNIT_ROUNDOFF) * outside)
            / np.maximum(second - outside, 1e-300),
        )
        left, right = np.where(inside, left, 0.0), np.where(inside, np.minimum(right, left), 0.0)
        return Tails(left, right, np.where(inside, np.minimum(lost, 1.0), 0.0) + 16 * UNIT_ROUNDOFF)

    @quietly
    def gaps(self, loss: Floats) -> tuple[Floats, Floats]:
        beyond, inner = masses_beyond(self.base, self.cut), loss - shift_below(self.base, self.cut)
        gap, error = self.base.gaps(np.minimum(inner, self.cut))
        outside = beyond.gap - beyond.second * np.expm1(np.minimum(inner - self.cut, 0.0))
        inside, kept = inner < self.cut, 1 - beyond.above
        doubt = error + beyond.gap_error + (beyond.error + 16 * UNIT_ROUNDOFF) * (np.abs(gap) + outside)
        return np.where(inside, (gap - outside) / kept, 0.0), np.where(inside, doubt / kept, 0.0)


@dataclass(frozen=True, slots=True)
class AboveCut(Law):
    """The law given that its loss exceeds `cut`."""

    base: Law
    cut: float

    @property
    def lowest(self) -> float:
        return self.cut + shift_above(self.base, self.cut)

    @property
    def highest(self) -> float:
        return (self.base.highest + shift_above(self.base, self.cut)) * (1 + 8 * UNIT_ROUNDOFF)

    @property
    def scale(self) -> float:
        return max(self.cut, self.base.scale)

    @quietly
    def tails(self, loss: Floats) -> Tails:
        beyond, inner = masses_beyond(self.base, self.cut), loss - shift_above(self.base, self.cut)
        first, second, error = self.base.tails(np.maximum(inner, self.cut))
        inside = inner > self.cut
        left = np.where(inside, np.minimum(first / beyond.above, 1.0), 1.0)
        right = np.where(inside, second / beyond.above, np.exp(np.minimum(loss, 700.0)))
        moved = 8 * UNIT_ROUNDOFF * (1 + np.abs(loss))
        return Tails(left, np.minimum(right, left), error + beyond.error + moved)
