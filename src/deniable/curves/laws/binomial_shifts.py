"""The loss of a group in a Poisson sample of Gaussian noise: random numbers of shifts, in opposite directions.

P has `joined` people who are not in Q, and Q has `left` people who are not in P. Each takes part with probability q, so
numbers J and I of them take part, both binomial, and the pair is

    P = Σ_j P(J = j) N(jμ, 1)   against   Q = Σ_i P(I = i) N(-iμ, 1).

`atoms.grouped_samples` proves that this pair dominates. Its likelihood ratio increases with the output y, so every best
test is a half-line in y.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from deniable.curves.laws.closed_form import GaussianLaw, upper_normal
from deniable.curves.laws.finite_law import log_binomial
from deniable.curves.laws.law import Law, Tails
from deniable.curves.outward_rounding import Floats, quietly

EXACTNESS = 1e-13
"""The relative error of the weights, of the normal tails near 0, and of their sums; it grows with the square of y."""

CLOSE = 30.0
"""Up to this exponent, the logarithm of a density ratio is computed as log(1 + x) with a small x."""


@lru_cache(maxsize=256)
def log_weights(people: int, rate: float) -> Floats:
    """The logarithms of the binomial probabilities of 0, ..., `people`."""
    if not people:
        return np.zeros(1)
    return log_binomial(people, np.arange(people + 1.0), rate)


@dataclass(frozen=True, slots=True)
class BinomialShiftsLaw(Law):
    """The loss of P against Q, under P."""

    mu: float
    rate: float
    joined: int
    left: int

    @property
    def lowest(self) -> float:
        return -math.inf if self.left else self.joined * math.log1p(-self.rate) * (1 + 1e-15)

    @property
    def highest(self) -> float:
        return math.inf if self.joined else -self.left * math.log1p(-self.rate) * (1 + 1e-15)

    @property
    def scale(self) -> float:
        return max((self.joined + self.left) * self.rate * min(self.mu, 1.0), 1e-300)

    def _log_density(self, y: Floats, people: int, sign: float) -> tuple[Floats, Floats]:
        """log of Σ weight N(sign jμ, 1) / N(0, 1) at y, and its slope."""
        shifts = sign * self.mu * np.arange(people + 1.0)
        weights, grown = log_weights(people, self.rate), np.multiply.outer(y, shifts) - shifts**2 / 2
        terms = weights + grown
        top = np.max(terms, axis=-1)
        parts = np.exp(terms - top[..., None])
        total = np.sum(parts, axis=-1)
        # The weights add up to 1, so the sum is 1 + Σ_{j>0} weight (e^grown - 1), with all digits if the rate is tiny.
        more = np.sum(np.exp(weights[1:]) * np.expm1(np.minimum(grown[..., 1:], CLOSE)), axis=-1)
        value = np.where(np.max(grown, axis=-1) <= CLOSE, np.log1p(more), top + np.log(total))
        return value, np.asarray(parts @ shifts / total)

    def _threshold(self, loss: Floats) -> Floats:
        """The output with this loss, to the last bits: any half-line is a real test. By Newton's method, and bisection
        where a step would leave the bracket.
        """
        reach = 60.0 + self.mu * (self.joined + self.left)
        found = np.where(loss < self.lowest, -reach, np.where(loss >= self.highest, reach, 0.0))
        open_ = np.flatnonzero((loss >= self.lowest) & (loss < self.highest))
        wanted = loss[open_]
        low, high, y = np.full_like(wanted, -reach), np.full_like(wanted, reach), np.zeros_like(wanted)
        for _ in range(64):
            (one, rises), (two, falls) = self._log_density(y, self.joined, 1.0), self._log_density(y, self.left, -1.0)
            away = one - two - wanted
            high, low = np.where(away > 0, y, high), np.where(away > 0, low, y)
            step = y - away / (rises - falls)
            nearer = np.where((step > low) & (step < high), step, 0.5 * (low + high))
            moved = np.abs(nearer - y)
            found[open_] = nearer
            again = (moved > 1e-14 * (1 + np.abs(nearer))) & (high - low > 1e-13)
            if not np.any(again):
                break
            open_, wanted, low, high, y = open_[again], wanted[again], low[again], high[again], nearer[again]
        return found

    def _masses(self, y: Floats, people: int, sign: float) -> Floats:
        """The probabilities of an output above y, one column for each number of people who take part, with weights."""
        shifts = sign * self.mu * np.arange(people + 1.0)
        return np.asarray(upper_normal(y[:, None] - shifts) * np.exp(log_weights(people, self.rate)))

    def _log_second(self, y: Floats) -> Floats:
        """log Q(output above y)."""
        from scipy import special

        logs = special.log_ndtr(-(y[:, None] + self.mu * np.arange(self.left + 1.0)))
        logs = logs + log_weights(self.left, self.rate)
        top = np.max(logs, axis=1)
        return np.asarray(top + np.log(np.sum(np.exp(logs - top[:, None]), axis=1)))

    @quietly
    def tails(self, loss: Floats) -> Tails:
        flat = np.ravel(loss)
        y = self._threshold(flat)
        first = np.sum(self._masses(y, self.joined, 1.0), axis=1)
        second = np.minimum(np.exp(np.minimum(flat + self._log_second(y), 0.0)), first)
        everything, nothing = flat < self.lowest, flat >= self.highest
        first = np.where(everything, 1.0, np.where(nothing, 0.0, first))
        second = np.where(everything, np.exp(np.minimum(flat, 0.0)), np.where(nothing, 0.0, second))
        return Tails(first.reshape(loss.shape), second.reshape(loss.shape), EXACTNESS * (1 + y * y).reshape(loss.shape))

    @quietly
    def gaps(self, loss: Floats) -> tuple[Floats, Floats]:
        # Every term is of the size of the rate, so little is lost to cancellation.
        first, second, error = self.tails(loss)
        inside = (loss >= self.lowest) & (loss < min(self.highest, 300.0))
        at = loss[inside]
        y = self._threshold(at)
        mine, others = self._masses(y, self.joined, 1.0)[:, 1:], self._masses(y, self.left, -1.0)[:, 1:]
        nobody = upper_normal(y)
        some = [-math.expm1(people * math.log1p(-self.rate)) for people in (self.joined, self.left)]
        grown = np.exp(at)
        parts = np.stack(
            (
                np.sum(mine, axis=1),
                -some[0] * nobody,
                -grown * np.sum(others, axis=1),
                grown * some[1] * nobody,
                -np.expm1(at) * nobody,
            )
        )
        gap, doubt = first - second, np.asarray(error * (first + second))
        gap[inside] = np.sum(parts, axis=0)
        doubt[inside] = EXACTNESS * (1 + y * y) * np.sum(np.abs(parts), axis=0)
        return gap, doubt

    @property
    def _whole(self) -> GaussianLaw:
        """The loss if all people take part: a hidden mixture is at most as revealing as its worst pair."""
        return GaussianLaw(self.mu * (self.joined + self.left))

    def loose_moment(self, order: float) -> float:
        found = self._whole.moment(order)
        return math.inf if found is None else found

    def tail_moment(self, order: float, loss: float) -> float | None:
        if loss >= self.highest:
            return -math.inf
        # With m = joined μ and n = left μ: for y >= m the density of P is at most that of N(m, 1), and the loss at most
        # that of N(m, 1) against N(-n, 1), which is (m + n)²/2 at y = m.
        s = self._whole.mu
        if loss < 0.5 * s * s:
            return 0.5 * s * s * (order + 1) * (order + 2) + 1.0
        return self._whole.tail_moment(order, loss)
