"""A panel: the bound on δ(ε) at every ε that one FFT gives, with all its numerical errors.
`compose.compose` builds it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats, Side


class SmallGaps(NamedTuple):
    """What a panel of small losses adds: δ at its points without cancellation, and smaller bounds on its errors.

    δ(ε) is a sum of masses with the weights 1 - e^(ε - loss). If no loss in the window is larger than 1e-8, say, these
    weights are at most 1e-8, and so an error of the masses counts 1e-8 times.
    """

    values: Floats
    """heads[m] - e^(point m - origin) seconds[m], as a sum of positive terms (lemma 2)."""
    noise: float
    alias: float
    right_out: float


@dataclass(frozen=True, slots=True)
class DeltaPanel:
    """A certified bound on δ(ε) for every ε, from one FFT, sharp near the centre of its window.

    At the points start + m × stride the suffix sums over the lattice give real tests: with x = e^(ε - origin),
    line_m(ε) = e^(log_scale) (heads[m] - x seconds[m]) is at most δ(ε), and equal to it at point m. The lower bound is
    the larger of the two lines around ε, less the slack. The upper bound is the chord between the two points, plus the
    slack (δ is convex in x).

    The slack comes from `noise` (error of the FFT), `alias` (mass wrapped around), `left_out` and `right_out` (mass
    beyond the ends of the window) and `relative` (relative error of every mass). `spread` is the standard deviation of
    the tilted law; `infinity` is the probability of infinite loss.
    """

    side: Side
    theta: float
    centre: float
    origin: float
    start: float
    step: float
    stride: float
    spread: float
    length: int
    log_scale: float
    heads: Floats
    seconds: Floats
    noise: float
    alias: float
    left_out: float
    right_out: float
    relative: float
    infinity: float
    gaps: SmallGaps | None = None

    @property
    def end(self) -> float:
        """The largest loss in the window."""
        return self.start + self.length * self.step

    def delta(self, epsilon: Floats) -> Floats:
        """The bound on δ(ε), infinite losses included."""
        return self.finite_delta(epsilon) + self.infinity

    def finite_delta(self, epsilon: Floats) -> Floats:
        """The bound on δ(ε) without the mass at infinity; `side` says whether it is an upper or a lower bound."""
        n = len(self.heads) - 1
        # Positions are exact up to a few roundings: evaluate a little to the safe side.
        blur = 16 * UNIT_ROUNDOFF * (np.abs(epsilon) + abs(self.start) + n * self.stride)
        at = epsilon - blur if self.side == "upper" else epsilon + blur
        cell = np.clip(np.floor((at - self.start) / self.stride), -1, n).astype(np.int64)
        weight = self._weight(at)
        raw = self._chord(at, cell) if self.side == "upper" else self._best_line(at, cell)
        heads = self.heads[np.clip(cell, 0, n)]
        rounding = (n + 64) * UNIT_ROUNDOFF * 4 * heads
        noise, alias, right_out = (np.asarray(each) for each in (self.noise, self.alias, self.right_out))
        if self.gaps is not None:
            inside = at >= self.start
            raw = np.where(inside, self._by_gaps(at, cell, self.gaps.values), raw)
            gap = self.gaps.values[np.clip(cell, 0, n)] + math.expm1(self.stride) * heads
            rounding = np.where(inside, (n + 64) * UNIT_ROUNDOFF * 4 * gap, rounding)
            noise, alias, right_out = (
                np.where(inside, small, large)
                for small, large in zip(self.gaps[1:], (noise, alias, right_out), strict=True)
            )
        if self.side == "upper":
            left = np.where(at < self.start, np.exp(np.maximum(-self.theta * (at - self.centre), -745.0)), 0.0)
            inner = np.maximum(raw, 0.0) + rounding + noise * weight + right_out + self.left_out * left
        else:
            inner = np.maximum(raw - rounding - (noise + alias) * weight, 0.0)
        result = (
            np.exp(self.log_scale + np.log(inner + 1e-300)) if self.log_scale < -500 else np.exp(self.log_scale) * inner
        )
        result = result * (1 + self.relative if self.side == "upper" else 1 - self.relative)
        # After an overflow only the trivial bounds are left.
        trivial = 1.0 if self.side == "upper" else 0.0
        return np.asarray(np.nan_to_num(result, nan=trivial, posinf=trivial))

    def _weight(self, at: Floats) -> Floats:
        """The factor by which an absolute error of the convolution enters the bound at ε."""
        # Weights e^(-θ l) are largest at the left point of the cell, at most one stride below ε.
        left_end = np.maximum(at - self.stride, self.start)
        # Terms of the slack are not capped: an overflow gives inf, and the bound becomes trivial.
        growth = max(1.0, math.expm1(self.stride)) if self.stride < 700 else math.inf
        return np.exp(np.maximum(-self.theta * (left_end - self.centre), -745.0)) * growth

    def rounding(self, epsilon: Floats) -> Floats:
        """The part of the distance between the bound and δ(ε) that comes from rounding in the FFTs."""
        noise = self.noise if self.gaps is None else np.where(epsilon >= self.start, self.gaps.noise, self.noise)
        return np.asarray(np.exp(np.minimum(self.log_scale, 700.0)) * noise * self._weight(epsilon))

    def _by_gaps(self, at: Floats, cell: NDArray[np.int64], gaps: Floats) -> Floats:
        """The chord or the better line, from the values of δ at the two points around ε."""
        n = len(gaps) - 1
        found = []
        for index in (np.clip(cell, 0, n), np.clip(cell + 1, 0, n)):
            point = self.start + index * self.stride
            # e^(point - origin) seconds, from the same masses as the gaps: `seconds` may be rounded to one side.
            slope = self.heads[index] - gaps[index]
            found.append((gaps[index], gaps[index] - np.expm1(at - point) * slope, point))
        if self.side == "lower":
            return np.asarray(np.maximum(found[0][1], found[1][1]))
        share = np.clip(np.expm1(at - found[0][2]) / math.expm1(self.stride), 0.0, 1.0)
        return np.asarray(found[0][0] + share * (found[1][0] - found[0][0]))

    def _best_line(self, at: Floats, cell: NDArray[np.int64]) -> Floats:
        """The larger of the lines of the two points around ε (lattice points above the last one carry nothing)."""
        n = len(self.heads) - 1
        scale = np.exp(np.minimum(at - self.origin, 700.0))
        left, right = np.clip(cell, 0, n), np.clip(cell + 1, 0, n)
        return np.maximum(
            self.heads[left] - scale * self.seconds[left], self.heads[right] - scale * self.seconds[right]
        )

    def _chord(self, at: Floats, cell: NDArray[np.int64]) -> Floats:
        """The chord of δ, as a function of x, between the two points around ε; to the left of the window, the first
        line.
        """
        n = len(self.heads) - 1
        left, right = np.clip(cell, 0, n), np.clip(cell + 1, 0, n)
        values = []
        for index in (left, right):
            x = np.exp(np.minimum(self.start + index * self.stride - self.origin, 700.0))
            values.append(np.maximum(self.heads[index] - x * self.seconds[index], 0.0))
        share = np.expm1(at - self.start - left * self.stride) / math.expm1(min(self.stride, 700.0))
        chord = values[0] + np.clip(share, 0.0, 1.0) * (values[1] - values[0])
        scale = np.exp(np.minimum(at - self.origin, 700.0))
        return np.asarray(np.where(cell < 0, self.heads[0] - scale * self.seconds[0], chord))
