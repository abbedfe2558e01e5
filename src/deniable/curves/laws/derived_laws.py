"""Laws built from laws: Poisson sampling, the worst of several, mixtures, sampling without replacement, shifted
Gaussians.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable.curves.laws.closed_form import GaussianLaw, upper_normal
from deniable.curves.laws.law import Law, Tails
from deniable.curves.outward_rounding import SPECIAL, UNIT_ROUNDOFF, Floats, quietly

MOST_TERMS = 4096
"""Largest integer order whose binomial sum is computed."""

FAR = 30.0
"""A loss above which `_base_loss` uses logarithms: e^loss/q could overflow."""


@dataclass(frozen=True, slots=True)
class IdentityLaw(Law):
    """The law of a mechanism that ignores its data: the privacy loss L is always 0."""

    @property
    def lowest(self) -> float:
        return 0.0

    @property
    def highest(self) -> float:
        return 0.0

    @property
    def atoms(self) -> tuple[float, ...]:
        return (0.0,)

    def tails(self, loss: Floats) -> Tails:
        first = np.where(loss < 0, 1.0, 0.0)
        return Tails(first, np.where(loss < 0, np.exp(np.minimum(loss, 0.0)), 0.0), 4 * UNIT_ROUNDOFF)

    def moment(self, order: float) -> float | None:
        return 0.0


@dataclass(frozen=True, slots=True)
class FailingLaw(Law):
    """As private as `base`, but everything is revealed with probability `failure` = φ: δ(ε) = φ + (1 - φ) δ_base(ε).

    This is the product of `approximate(0, δ)` and one other law. The failures under P and under Q are separate events,
    so the best test includes the one under P and otherwise is the base's best test.
    """

    base: Law
    failure: float

    @property
    def lowest(self) -> float:
        return self.base.lowest

    @property
    def highest(self) -> float:
        return self.base.highest

    @property
    def infinity(self) -> float:
        return self.failure + (1 - self.failure) * self.base.infinity

    @property
    def infinity_error(self) -> float:
        return self.base.infinity_error + 4 * UNIT_ROUNDOFF if self.base.infinity else 0.0

    @property
    def atoms(self) -> tuple[float, ...]:
        return self.base.atoms

    @property
    def jumps(self) -> tuple[float, ...]:
        return self.base.jumps

    @property
    def scale(self) -> float:
        return self.base.scale

    def tails(self, loss: Floats) -> Tails:
        first, second, error = self.base.tails(loss)
        kept = 1 - self.failure
        return Tails(self.failure + kept * first, kept * second, error + 4 * UNIT_ROUNDOFF)

    def moment(self, order: float) -> float | None:
        return math.inf if order > 0 else None

    def profile(self, epsilon: Floats) -> tuple[Floats, Floats]:
        low, high = self.base.profile(epsilon)
        # If the base's δ is 0, only the failure is left, which is exact. Otherwise three roundings.
        slack = np.where(high > 0, 4 * UNIT_ROUNDOFF, 0.0)
        least, most = (self.failure + (1 - self.failure) * each for each in (low, high))
        return least * (1 - slack), np.minimum(most * (1 + slack), 1.0)


@dataclass(frozen=True, slots=True)
class SampledAgainstWithout(Law):
    """(1-q)P + qQ against P: a person who takes part with probability q, compared with one who does not.

    `base` is the law of Q (with the person) against P (without). If L is its loss then L' = log(1 - q + q e^L), and the
    best test is the base's own best test. (Zhu, Dong, Wang 2022, Theorem 11: this pair dominates if (Q, P) dominates
    the base under "remove".)
    """

    base: Law
    rate: float

    @property
    def lowest(self) -> float:
        # P may have mass where Q has none: such an answer shows that the person did not take part.
        return math.log1p(-self.rate) if self.rate < 1 else self.base.lowest

    @property
    def highest(self) -> float:
        # Rounded up: half the mass of a Laplace mechanism may lie exactly there.
        return mixed_loss(self.base.highest, self.rate) * (1 + 8 * UNIT_ROUNDOFF)

    @property
    def infinity(self) -> float:
        return self.rate * self.base.infinity

    @property
    def infinity_error(self) -> float:
        return self.base.infinity_error + 2 * UNIT_ROUNDOFF if self.base.infinity else 0.0

    @property
    def atoms(self) -> tuple[float, ...]:
        return tuple(mixed_loss(a, self.rate) for a in self.base.atoms)

    @property
    def jumps(self) -> tuple[float, ...]:
        # Also the loss of answers that show that the person did not take part.
        nobody = (math.log1p(-self.rate),) if self.rate < 1 else ()
        return (*nobody, *(mixed_loss(a, self.rate) for a in self.base.jumps))

    @property
    def scale(self) -> float:
        return max(self.rate * min(self.base.scale, 1.0), 1e-300)

    @quietly
    def tails(self, loss: Floats) -> Tails:
        q = self.rate
        # e^l = (e^l' - (1-q))/q; below log(1-q) every outcome passes.
        inside, inner = _base_loss(loss, q)
        first, second, error = self.base.tails(inner)
        # e^l' Q(L > l) = e^(l'-l) second(l).
        in_second = np.where(inside, second * np.exp(np.minimum(loss - inner, 700.0)), np.exp(np.minimum(loss, 0.0)))
        # P' = (1-q) Q + q P, with Q = e^-l' in_second.
        weight = (1 - q) * np.exp(-np.maximum(loss, -745.0))
        in_first = np.where(inside, weight * in_second + q * first, 1.0)
        # Rounding `inner` moves the test, not its two masses. The test then falls short of the best one by less than u
        # × first, because in terms of L' the threshold moves by only q/(1-q+q e^l) roundings.
        return Tails(in_first, np.minimum(in_second, in_first), error + SPECIAL)

    @quietly
    def gaps(self, loss: Floats) -> tuple[Floats, Floats]:
        # P'(S) - e^l' Q(S) = q (P(S) - e^l Q(S)), because e^l' - (1-q) = q e^l: no cancellation for a small q.
        inside, inner = _base_loss(loss, self.rate)
        gap, error = self.base.gaps(inner)
        second = self.base.tails(inner).second
        # The slope of the gap in the base loss is -second. The error of `inner` is a few roundings of `inner`; where
        # `inner` is negative, roundings of e^-inner come in addition.
        moved = 8 * UNIT_ROUNDOFF * second * (np.abs(inner) + 2 + np.exp(np.minimum(-inner, 700.0)))
        everything = -np.expm1(np.minimum(loss, 0.0))
        found = np.where(inside, self.rate * gap, everything)
        doubt = np.where(inside, self.rate * (error + moved), 0.0) + 8 * UNIT_ROUNDOFF * np.abs(found)
        return found, doubt

    def moment(self, order: float) -> float | None:
        # For whole orders E_Q (1-q+q r)^a is a binomial sum of the base's moments E_Q r^j = E_P e^((j-1)L).
        if order != round(order) or not 1 <= order <= MOST_TERMS:
            return None
        a, logs = int(order) + 1, [0.0, 0.0]
        for j in range(2, a + 1):
            inner = self.base.moment(j - 1.0)
            if inner is None:
                return None
            logs.append(inner)
        if not math.isfinite(max(logs)):
            return math.inf
        from scipy import special

        k = np.arange(a + 1.0)
        log_choose = special.gammaln(a + 1) - special.gammaln(k + 1) - special.gammaln(a - k + 1)
        log_terms = log_choose + (a - k) * math.log1p(-self.rate) + k * math.log(self.rate) + np.array(logs)
        top = float(np.max(log_terms))
        return top + math.log(float(np.sum(np.exp(log_terms - top)))) + 1e-12 * (1 + abs(top))

    def loose_moment(self, order: float) -> float:
        # log E_Q X^a is convex in a: interpolate between whole orders. Beyond them Minkowski: ‖1-q+q r‖_a <=
        # 1-q+q‖r‖_a.
        low, high = math.floor(order), math.ceil(order)
        ends = (self.moment(float(low)) if low > 0 else 0.0, self.moment(float(high)))
        between = math.inf
        if ends[0] is not None and ends[1] is not None and high > low:
            between = ends[0] + (order - low) * (ends[1] - ends[0])
        whole = self.base.moment(order)
        if whole is None or not math.isfinite(whole):
            return between
        norm = whole / (order + 1)
        mixed = norm + math.log(self.rate + (1 - self.rate) * math.exp(-norm))
        return min(between, (order + 1) * mixed * (1 + 1e-14))

    def tail_moment(self, order: float, loss: float) -> float | None:
        if loss >= self.highest and self.infinity == 0:
            return -math.inf
        # For L >= 0: E_Q[(1-q+q r)^(s+1); L > l] <= E_Q[r^(s+1); L > l], and the base threshold is at least `loss`.
        return self.base.tail_moment(order, loss)


@dataclass(frozen=True, slots=True)
class WithoutAgainstSampled(Law):
    """P against (1-q)P + qQ. `base` is the law of P (without the person) against Q (with them); its loss M gives
    M' = -log(1 - q + q e^-M) <= -log(1-q).
    """

    base: Law
    rate: float

    @property
    def lowest(self) -> float:
        return -mixed_loss(-self.base.lowest, self.rate)

    @property
    def highest(self) -> float:
        if self.base.infinity > 0:
            return -math.log1p(-self.rate) * (1 + 8 * UNIT_ROUNDOFF) if self.rate < 1 else math.inf
        return -mixed_loss(-self.base.highest, self.rate) * (1 + 8 * UNIT_ROUNDOFF)

    @property
    def infinity(self) -> float:
        return self.base.infinity if self.rate >= 1 else 0.0

    @property
    def infinity_error(self) -> float:
        return self.base.infinity_error

    @property
    def atoms(self) -> tuple[float, ...]:
        extra = (-math.log1p(-self.rate),) if self.base.infinity > 0 and self.rate < 1 else ()
        return extra + tuple(-mixed_loss(-a, self.rate) for a in self.base.atoms)

    @property
    def jumps(self) -> tuple[float, ...]:
        surely = (-math.log1p(-self.rate),) if self.base.infinity > 0 and self.rate < 1 else ()
        return (*surely, *(-mixed_loss(-a, self.rate) for a in self.base.jumps))

    @property
    def scale(self) -> float:
        return max(self.rate * min(self.base.scale, 1.0), 1e-300)

    @quietly
    def tails(self, loss: Floats) -> Tails:
        q = self.rate
        # M' > l <=> e^-M < (e^-l - (1-q))/q =: 1 + ratio. The threshold is moved down by a few roundings, so that the
        # largest loss is never missed. This is still a real test, and the error covers its distance from the best one.
        inside, away = _base_loss(-(loss - 8 * UNIT_ROUNDOFF * (1 + np.abs(loss))), q)
        inner = -away
        first, second, error = self.base.tails(inner)
        # second measure: (1-q) first + q e^-inner second, times e^loss.
        mixed = np.exp(np.minimum(loss, 700.0)) * ((1 - q) * first + q * np.exp(np.minimum(-inner, 700.0)) * second)
        inside = inside & (loss < self.highest)
        first = np.where(inside, first, self.infinity)
        mixed = np.where(inside, np.minimum(mixed, first), 0.0)
        return Tails(first, mixed, error + SPECIAL + 32 * UNIT_ROUNDOFF * (1 + np.abs(loss)))

    @quietly
    def gaps(self, loss: Floats) -> tuple[Floats, Floats]:
        if self.base.jumps or self.base.infinity > 0 or self.rate >= 1:  # a rounded threshold may miss an atom
            return Law.gaps(self, loss)
        # P(S) - e^l' ((1-q) P(S) + q Q(S)) = (1 - (1-q) e^l') (P(S) - e^l Q(S)): no cancellation for a small q.
        inside, away = _base_loss(-loss, self.rate)
        inside = inside & (loss < self.highest)
        gap, error = self.base.gaps(-away)
        second = self.base.tails(-away).second
        grown = np.exp(np.minimum(loss, 700.0))
        factor = np.maximum(self.rate * grown - np.expm1(np.minimum(loss, 700.0)), 0.0)
        # Roundings of the factor and of the threshold, at which the slope of the base's gap is -second.
        parts = self.rate * grown + np.abs(np.expm1(np.minimum(loss, 700.0)))
        doubt = factor * error + 8 * UNIT_ROUNDOFF * (parts * (gap + second) + factor * second * (np.abs(away) + 1))
        return np.where(inside, factor * gap, 0.0), np.where(inside, doubt, 0.0)


def _base_loss(mixed: Floats, rate: float) -> tuple[NDArray[np.bool_], Floats]:
    """Where the mixed loss log(1 - q + q e^l) can reach `mixed`, and the base loss l at which it does."""
    near = np.expm1(np.clip(mixed, -0.7, FAR)) / rate
    # Far below 0 the quantity e^l - 1 loses digits; e^mixed - (1 - q) does not.
    far = (np.exp(np.minimum(mixed, -0.7)) - (1 - rate)) / rate
    inside = np.where(mixed > -0.7, near > -1.0, far > 0.0)
    low = np.log(np.where(inside & (mixed <= -0.7), far, 1.0))
    middle = np.log1p(np.where(inside, np.maximum(near, -1 + 1e-300), 0.0))
    # Far above 0, e^mixed/q may overflow; its logarithm does not.
    high = mixed - math.log(rate) + np.log1p(-(1 - rate) * np.exp(-np.maximum(mixed, FAR)))
    return inside, np.where(mixed > FAR, high, np.where(mixed > -0.7, middle, low))


def mixed_loss(loss: float, rate: float) -> float:
    """log(1 - q + q e^loss)."""
    if loss == math.inf:
        return math.inf
    if loss > 700:
        return loss + math.log(rate)
    if loss == -math.inf:
        return math.log1p(-rate) if rate < 1 else -math.inf
    if rate == 1:
        return loss
    more = rate * math.expm1(loss)
    # Far below 0 the sum 1 + more cancels; the other form keeps all digits.
    return math.log1p(more) if more > -0.5 else math.log((1 - rate) + rate * math.exp(loss))


@dataclass(frozen=True, slots=True)
class FixedSizeLaw(Law):
    """A sample of fixed size under replace-one (Balle, Barthe, Gaboardi 2018, Theorem 9): δ'(log(1+q(e^ε-1))) = q
    δ(ε), ε >= 0.

    Symmetric by construction: the profile for negative ε is the reflection of the one for positive ε.
    """

    sampled: SampledAgainstWithout

    @property
    def lowest(self) -> float:
        return -self.sampled.highest

    @property
    def highest(self) -> float:
        return self.sampled.highest

    @property
    def infinity(self) -> float:
        return self.sampled.infinity

    @property
    def infinity_error(self) -> float:
        return self.sampled.infinity_error

    @property
    def atoms(self) -> tuple[float, ...]:
        return (*self.sampled.atoms[:1], 0.0)

    @property
    def jumps(self) -> tuple[float, ...]:
        above = [a for a in self.sampled.jumps if a > 0]
        return (0.0, *above, *(-a for a in above))

    @property
    def scale(self) -> float:
        return self.sampled.scale

    def tails(self, loss: Floats) -> Tails:
        away = np.abs(loss)
        first, second, error = self.sampled.tails(away)
        # For l < 0: P(L > l) = 1 - Q(L > -l) and Q(L > l) = 1 - P(L > -l) by symmetry; Q(L > m) = e^-m second(m).
        negative = loss < 0
        under_q = np.exp(-away) * second
        reflected = np.exp(np.minimum(loss, 0.0)) * (1 - first)
        return Tails(
            np.where(negative, 1 - under_q, first), np.where(negative, reflected, second), error + 4 * UNIT_ROUNDOFF
        )

    def tail_moment(self, order: float, loss: float) -> float | None:
        return self.sampled.tail_moment(order, loss)


class _Several(Law):
    """Base of laws that combine several laws."""

    __slots__ = ()
    parts: tuple[Law, ...]

    @property
    def lowest(self) -> float:
        return min(p.lowest for p in self.parts)

    @property
    def highest(self) -> float:
        return max(p.highest for p in self.parts)

    @property
    def atoms(self) -> tuple[float, ...]:
        best = max(self.parts, key=lambda p: p.highest)
        return best.atoms

    @property
    def jumps(self) -> tuple[float, ...]:
        return tuple({a for part in self.parts for a in part.jumps})

    @property
    def scale(self) -> float:
        return max(p.scale for p in self.parts)


@dataclass(frozen=True, slots=True)
class WorstLaw(_Several):
    """The largest of several profiles: its tails are the tails of the law whose profile is largest at the threshold.

    A maximum of convex profiles is the profile of a pair (Blackwell), and the maximiser's line is a subgradient there.
    """

    parts: tuple[Law, ...]

    @property
    def infinity(self) -> float:
        return max(p.infinity for p in self.parts)

    @property
    def infinity_error(self) -> float:
        return max(p.infinity_error for p in self.parts)

    def tails(self, loss: Floats) -> Tails:
        read = [p.tails(loss) for p in self.parts]
        deltas = np.stack([t.first - t.second for t in read])
        best = np.argmax(deltas, axis=0)[None]
        first = np.take_along_axis(np.stack([t.first for t in read]), best, axis=0)[0]
        second = np.take_along_axis(np.stack([t.second for t in read]), best, axis=0)[0]
        error: Floats | float = read[0].error
        for t in read[1:]:
            error = np.maximum(error, t.error)
        return Tails(first, second, error)

    def loose_moment(self, order: float) -> float:
        # Integration by parts: the tails are at most the sum of the parts' tails.
        found = _log_sum([p.moment(order) for p in self.parts])
        return math.inf if found is None else found

    def tail_moment(self, order: float, loss: float) -> float | None:
        # The tail of the worst law is one of the tails at every threshold, so it is at most their sum.
        return _log_sum([p.tail_moment(order, loss) for p in self.parts])


@dataclass(frozen=True, slots=True)
class MixedLaw(_Several):
    """One of several mechanisms, drawn with public weights; the draw is revealed, so profiles average."""

    parts: tuple[Law, ...]
    weights: tuple[float, ...]

    @property
    def infinity(self) -> float:
        return float(sum(w * p.infinity for w, p in zip(self.weights, self.parts, strict=True)))

    @property
    def infinity_error(self) -> float:
        if not self.infinity:
            return 0.0
        return max(p.infinity_error for p in self.parts) + 2 * UNIT_ROUNDOFF * len(self.parts)

    def tails(self, loss: Floats) -> Tails:
        first, second = np.zeros_like(loss), np.zeros_like(loss)
        error: Floats | float = 0.0
        for weight, part in zip(self.weights, self.parts, strict=True):
            t = part.tails(loss)
            first = first + weight * t.first
            second = second + weight * t.second
            error = np.maximum(error, t.error)
        return Tails(first, second, error + 4 * UNIT_ROUNDOFF * len(self.parts))

    def moment(self, order: float) -> float | None:
        return _log_sum([p.moment(order) for p in self.parts], self.weights)

    def tail_moment(self, order: float, loss: float) -> float | None:
        return _log_sum([p.tail_moment(order, loss) for p in self.parts], self.weights)


def _log_sum(logs: Sequence[float | None], weights: Sequence[float] | None = None) -> float | None:
    """log Σ weight e^log; None if any is unknown."""
    known = [v for v in logs if v is not None]
    if len(known) < len(logs):
        return None
    top = max(known)
    if not math.isfinite(top):
        return top
    shares = weights if weights is not None else [1.0] * len(known)
    return top + math.log(sum(w * math.exp(v - top) for w, v in zip(shares, known, strict=True)))


@dataclass(frozen=True, slots=True)
class ShiftedAgainstCentre(Law):
    """Σ w_i N(μ_i, 1) against N(0, 1), μ_i >= 0: a Gaussian whose shift is random and hidden.

    The likelihood ratio Σ w_i exp(μ_i y - μ_i²/2) increases with the output y, so every best test is a half-line in y.
    """

    weights: tuple[float, ...]
    shifts: tuple[float, ...]

    @property
    def lowest(self) -> float:
        idle = sum(w for w, m in zip(self.weights, self.shifts, strict=True) if m == 0)
        return math.log(idle) if idle > 0 else -math.inf

    @property
    def highest(self) -> float:
        return math.inf

    @property
    def scale(self) -> float:
        return max(sum(w * m for w, m in zip(self.weights, self.shifts, strict=True)), 1e-12)

    def loose_moment(self, order: float) -> float:
        # A mixture with smaller shifts is post-processing of the largest shift.
        found = GaussianLaw(max(self.shifts)).moment(order)
        return math.inf if found is None else found

    def tail_moment(self, order: float, loss: float) -> float | None:
        # Each component is at most as revealing as the largest shift m: r(y) <= exp(m y - m²/2) for y >= m, and r(y)
        # <= exp(m²/2) below, so a loss beyond m²/2 means y > loss/m + m/2.
        m = max(self.shifts)
        if loss < 0.5 * m * m:
            return 0.5 * m * m * (order + 1) * (order + 2) + 1.0
        return GaussianLaw(m).tail_moment(order, loss)

    def loss_at(self, y: Floats) -> Floats:
        """The privacy loss of the output y."""
        terms = np.stack([math.log(w) + m * y - 0.5 * m * m for w, m in zip(self.weights, self.shifts, strict=True)])
        top = np.max(terms, axis=0)
        return np.asarray(top + np.log(np.sum(np.exp(terms - top), axis=0)))

    def threshold(self, loss: Floats) -> Floats:
        """The output y at which the loss crosses `loss`, by bisection to the last bit or two."""
        low, high = np.full_like(loss, -60.0), np.full_like(loss, 60.0 + max(self.shifts))
        for _ in range(70):
            middle = 0.5 * (low + high)
            above = self.loss_at(middle) > loss
            high = np.where(above, middle, high)
            low = np.where(above, low, middle)
        return 0.5 * (low + high)

    def tails(self, loss: Floats) -> Tails:
        y = self.threshold(loss)
        first = np.zeros_like(loss)
        for w, m in zip(self.weights, self.shifts, strict=True):
            first = first + w * upper_normal(y - m)
        from scipy import special

        second = np.minimum(np.exp(np.minimum(loss + special.log_ndtr(-y), 0.0)), first)
        everything = loss < self.lowest
        return Tails(
            np.where(everything, 1.0, first),
            np.where(everything, np.exp(np.minimum(loss, 0.0)), second),
            1e-13 * (1 + y * y),
        )


@dataclass(frozen=True, slots=True)
class CentreAgainstShifted(Law):
    """N(0, 1) against Σ w_i N(μ_i, 1): the other direction of `ShiftedAgainstCentre`."""

    shifted: ShiftedAgainstCentre

    @property
    def lowest(self) -> float:
        return -math.inf

    @property
    def highest(self) -> float:
        return -self.shifted.lowest

    @property
    def scale(self) -> float:
        return self.shifted.scale

    def tails(self, loss: Floats) -> Tails:
        y = self.shifted.threshold(-loss)
        from scipy import special

        first = upper_normal(-y)
        pairs = zip(self.shifted.weights, self.shifted.shifts, strict=True)
        logs = np.stack([math.log(w) + special.log_ndtr(y - m) for w, m in pairs])
        top = np.max(logs, axis=0)
        mixture = top + np.log(np.sum(np.exp(logs - top), axis=0))
        second = np.minimum(np.exp(np.minimum(loss + mixture, 0.0)), first)
        beyond = loss >= self.highest
        return Tails(np.where(beyond, 0.0, first), np.where(beyond, 0.0, second), 1e-13 * (1 + y * y))
