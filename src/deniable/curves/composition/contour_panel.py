"""δ(ε) of a product by a contour integral, with a bound on every error; the count of uses does not change the cost.

With K(s) = log E_P e^(sL) of the whole product and c > 0, let f(ε) = e^(cε) δ(ε). Its Fourier transform is
e^K(s) / (s(s+1)) at s = c + iω. So by Poisson's summation formula

    step/π · Re Σ' e^(K(s) - sε) / (s(s+1)) = Σ_k e^(ckΛ) δ(ε + kΛ),    s = c + i j step,  j = 0, 1, ...,

with Λ = 2π/step and half the weight at j = 0. All terms on the right are positive: the sum is an upper bound on δ(ε),
and too large by at most the terms k ≠ 0, which are bounded by 1 (k < 0) and by a Chernoff bound (k > 0).

The method suits products whose moments decay fast along the line: sums of many small losses. Where single large losses
decide, the line would be too long, and a lattice is cheaper (`compose`, `jump_split`).

All this is about the finite losses, whose mass may be less than 1. The probability of infinite loss is added to their
δ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from deniable.curves.composition.contour_decay import Decay
from deniable.curves.composition.contour_moments import Complexes, GaussianMoment, LineValues, moment_of
from deniable.curves.composition.factor_merging import LongFactors
from deniable.curves.composition.moment_sums import MomentSum
from deniable.curves.composition.tilt_plan import Factor, log_best_gap
from deniable.curves.laws.closed_form import LaplaceLaw
from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats, ordered, quietly

LOST = 1e-8
"""The part of δ that may be lost with the outcomes outside the range of the integrals."""

PRECISE = 1e-8
"""The planned size of each of the other errors, as a part of δ."""

MOST_EVALUATIONS = 3e7
"""The most values of e^(sL) of all moments together: more would take longer than a lattice."""

LAST_RESORT = 2.5e8
"""The most values where the bracket of a lattice is too wide: a second or two."""

MOST_FACTORS = 400
"""For more distinct laws than this, a tree of partial products is cheaper (`convolution_tree`)."""

FEW = 8
"""Up to this many factors, the plan is refined; the decay is bounded by at most this many factors."""

NARROW = 1e-6
"""A bracket of ε this narrow is not improved."""

WORST_SCALE = 22.0
"""The largest logarithm of e^(K - cε) / δ, beside its value at a saddle point: beyond it rounding errors would
dominate.
"""

ROUGH = 1e-3
"""The part of δ that each error of a rough panel may have."""

CHEAP = 1e6
"""If a plan takes at most this many evaluations, no other tilt is tried."""

GENTLE = (0.65, 0.8, 0.5, 1.0)
"""Parts of the tilt that are tried. Near the largest useful tilt the moments of rare samples explode."""

BEYOND = (1.04, 1.1, 1.3, 2.5)
"""Multiples of the tilt whose moments bound the profile beyond the period."""


@dataclass(frozen=True, slots=True)
class ContourPanel:
    """Lower and upper bounds on δ(ε) for every ε > 0, sharp near the ε that the panel was planned for."""

    c: float
    step: float
    log_scale: float
    """K(c)."""
    frequencies: Floats
    values: Complexes
    """e^(K(s) - K(c)) / (s(s+1)), half of it at frequency 0."""
    doubt: float
    """A bound on the sum of the errors of all values, and of what lies beyond the last one."""
    turning: float
    """Σ ω |value|. It bounds the effect of a rounding of ε, which rotates the value at frequency ω by ω times the
    rounding.
    """
    chernoff: tuple[tuple[float, float], ...]
    """Pairs (c', K(c')), c' > c, that bound the terms k > 0."""
    lost: float

    def middle(self, epsilon: float) -> tuple[float, float]:
        """log of the sum at ε, and the slope of the logarithm; -inf where the sum is not positive."""
        s = self.c + 1j * self.frequencies
        turned = self.values * np.exp(-1j * epsilon * self.frequencies)
        total = float(np.sum(turned.real))
        if not total > 0:
            return -math.inf, 0.0
        slope = float(np.sum((-s * turned).real)) / total
        return self.log_scale - self.c * epsilon + math.log(total * self.step / math.pi), slope

    @quietly
    def delta(self, epsilon: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds on δ at each ε."""
        found = [self.bounds(float(at)) for at in epsilon]
        low, high = np.array([each[0] for each in found]), np.array([each[1] for each in found])
        # Where moments are not known, the sum of their errors is infinite or NaN.
        return np.nan_to_num(low, nan=0.0), np.nan_to_num(high, nan=1.0, posinf=1.0)

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """A lower and an upper bound on δ(ε)."""
        turned = self.values * np.exp(-1j * epsilon * self.frequencies)
        total = float(np.sum(turned.real))
        error = self.doubt + 8 * UNIT_ROUNDOFF * abs(epsilon) * self.turning
        prefactor = self.log_scale - self.c * epsilon
        rounding = 16 * UNIT_ROUNDOFF * (abs(self.log_scale) + abs(self.c * epsilon) + 8)
        scale = math.exp(min(prefactor, 700.0)) * self.step / math.pi
        high = max(total + error, 0.0) * scale * (1 + rounding) + self.lost + 1e-300
        low = max(total - error, 0.0) * scale * (1 - rounding) - self._aliases(epsilon)
        return max(low, 0.0), high

    def _aliases(self, epsilon: float) -> float:
        """A bound on Σ_(k ≠ 0) e^(ckΛ) δ(ε + kΛ)."""
        period = 2 * math.pi / self.step
        logs = [value - at * epsilon - _log_expm1((at - self.c) * period) for at, value in self.chernoff]
        both = math.exp(min(-_log_expm1(self.c * period), 700.0)) + math.exp(min(*logs, 700.0))
        return both * (1 + 1e-9)

    @quietly
    def centre(self, delta: float) -> float | None:
        """An estimate of ε(δ): where the sum is δ. None if Newton's method fails."""
        target, at = math.log(delta), max((self.log_scale - math.log(delta)) / self.c, 1e-300)
        for _ in range(60):
            value, slope = self.middle(at)
            if not slope < 0:
                return None
            move = (target - value) / slope
            at = max(at + min(max(move, -at / 2), at), 1e-300)
            if abs(move) <= 1e-13 * at:
                break
        return at

    @quietly
    def bracket(self, delta: float) -> tuple[float, float]:
        """Certified (low, high) around ε(δ) > 0; low is 0, or high is inf, if this panel proves no such bound."""
        at, low, high = self.centre(delta), 0.0, math.inf
        # Where no moments are known, the sum of their errors is infinite or NaN.
        if at is None or not math.isfinite(self.doubt):
            return low, high
        slope = self.middle(at)[1]
        # Where the upper bound on δ(ε) is at most δ, ε is an upper end of the bracket; where the lower bound is at
        # least δ, ε is a lower end.
        for is_upper in (True, False):
            below, above = (float(each) for each in ordered(*self.bounds(at)))
            away = 1.1 * max((above / delta - 1 if is_upper else 1 - below / delta) / -slope, 1e-15 * at)
            for _ in range(20):
                there = at + away if is_upper else at - away
                if is_upper and self.bounds(there)[1] <= delta:
                    high = there
                    break
                if not is_upper and (there <= 0 or self.bounds(there)[0] > delta):
                    low = max(there, 0.0)
                    break
                away *= 1.5
        return low, high


def _log_expm1(x: float) -> float:
    """log(e^x - 1) for x > 0."""
    return x + math.log(-math.expm1(-x))


def _negligible(factors: Sequence[Factor], delta: float) -> float:
    """The P-mass that all uses of one factor may leave out. Products of nearly as many factors share cached moments."""
    return LOST * delta / max(4.0, 2.0 ** math.ceil(math.log2(len(factors))))


class _Moments:
    """The moments of all factors of a product, for tilts near one tilt."""

    def __init__(self, factors: Sequence[Factor], delta: float, tilt: float) -> None:
        negligible = _negligible(factors, delta)
        if isinstance(factors, LongFactors):
            self.head, rest = factors.head.moments(negligible, tilt), factors.rest
        else:
            self.head, rest = MomentSum((), negligible, tilt), tuple(factors)
        self.rest = MomentSum(rest, negligible, tilt)
        self.moments = (*self.head.moments, *self.rest.moments)
        self.lost = (self.head.lost + self.rest.lost) * (1 + 1e-15)

    def at(self, c: float) -> tuple[float, float]:
        """K(c), and a bound on its error."""
        found = self.line(c, np.zeros(1))
        return float(found.values[0].real), float(found.errors[0])

    def line(self, c: float, frequencies: Floats) -> LineValues:
        """K(c + iω) with bounds on the errors."""
        return self.head.line_with(self.rest, c, frequencies)

    def decays(self, c: float) -> list[tuple[Decay, int]]:
        """Bounds on the moments of the Gaussian and of the factors whose losses vary most."""
        largest = sorted(
            self.moments, key=lambda each: (not isinstance(each[0], GaussianMoment), -each[1] * each[0].variance)
        )
        return [(moment.decay(c), uses) for moment, uses in largest[:FEW]]

    def evaluations(self, c: float, top: float) -> float:
        """About how many values of e^(sL) one moment of the product takes, from a few of the factors."""
        some = self.moments[:: -(-len(self.moments) // FEW)]
        return math.fsum(moment.evaluations(c, top) for moment, _ in some) * len(self.moments) / len(some)


def suits(factors: Sequence[Factor], delta: float) -> bool:
    """Whether all moments of a product are known, and some of them decay."""
    if len(factors) > MOST_FACTORS or all(isinstance(law, LaplaceLaw | FiniteLaw) for law, _ in factors):
        return False
    negligible = _negligible(factors, delta)
    return all(moment_of(law, uses, negligible, 0.0) is not None for law, uses in factors)


@quietly
def chernoff_bound(factors: tuple[Factor, ...], delta: float, tilt: float | None = None) -> float:
    """A certified upper bound on ε(δ) from the moments near a tilt alone (by default, the best tilt); inf if they give
    no bound.
    """
    if not suits(factors, delta):
        return math.inf
    best = _tilt(factors, delta) if tilt is None else None
    tilts = (tilt, 1.25 * tilt, 0.8 * tilt) if tilt is not None else () if best is None else (best,)
    found = math.inf
    for c in tilts:
        moments = _Moments(factors, delta, c)
        value, error = moments.at(c)
        left = delta - moments.lost
        if error < 1 and left > 0:
            found = min(found, (value + error - math.log(left) + log_best_gap(c)) / c)
    return found * (1 + 1e-12) if found > 0 else math.inf


@quietly
def panel_for(factors: tuple[Factor, ...], delta: float, most: float = MOST_EVALUATIONS) -> ContourPanel | None:
    """A panel that is sharp at ε(δ), from at most `most` values of e^(sL); None if the product does not suit a contour
    integral.
    """
    if not suits(factors, delta):
        return None
    c = _tilt(factors, delta)
    if c is None:
        return None
    plan = _plan(factors, c, delta, None, PRECISE, most)
    if plan is not None and plan.cost <= CHEAP:
        found = _built(plan)
        if _is_narrow(found, delta):
            return found
    if len(factors) > FEW:
        return None
    # A rough panel estimates ε; then the cheapest of several tilts is taken.
    rough = plan if plan is not None and plan.cost <= CHEAP else _cheapest(factors, c, delta, None, ROUGH, most, CHEAP)
    epsilon = None if rough is None else _built(rough).centre(delta)
    if epsilon is None:
        return None
    plan = _cheapest(factors, c, delta, epsilon, PRECISE, most)
    return None if plan is None else _built(plan)


def _is_narrow(panel: ContourPanel, delta: float) -> bool:
    low, high = panel.bracket(delta)
    return high < math.inf and high - low <= NARROW * high


def _cheapest(
    factors: Sequence[Factor],
    c: float,
    delta: float,
    epsilon: float | None,
    precise: float,
    most: float,
    enough: float = 0.0,
) -> _LinePlan | None:
    """The cheapest plan of several tilts up to c, or the first one that costs at most `enough`; None if all are too
    expensive.
    """
    best: _LinePlan | None = None
    for part in GENTLE:
        plan = _plan(factors, c * part, delta, epsilon, precise, most)
        if plan is None:
            continue
        if best is not None and plan.cost > 2 * best.cost:
            break  # the cost has one minimum over the tilts
        best = plan if best is None or plan.cost < best.cost else best
        if best.cost <= enough:
            break
    return best


@lru_cache(maxsize=64)
def _tilt(factors: tuple[Factor, ...], delta: float) -> float | None:
    """The tilt of the least Chernoff bound on ε(δ), to a few percent."""
    log_delta, small = math.log(delta), 1e-3

    def bound(log_c: float) -> float:
        at = math.exp(log_c)
        value, error = _Moments(factors, delta, at).at(at)
        found = (value - log_delta + log_best_gap(at)) / at if error < 1 else math.inf
        return found if math.isfinite(found) else math.inf

    moments = _Moments(factors, delta, small)
    value, error = moments.at(small)
    while not (error < 1 and value < 1e3) and small > 1e-12:
        small /= 30
        value, error = _Moments(factors, delta, small).at(small)
    # Beside tiny losses, the mass that is left out makes the moment at a small tilt less than 1.
    while not value > 100 * (error + moments.lost) and error < 1 and small < 1e15:
        small *= 30
        moments = _Moments(factors, delta, small)
        value, error = moments.at(small)
    if not (error < 1 and value > 0):
        return None
    # K(c) is about c(c+1)/2 times the variance of the loss.
    here = math.log(math.sqrt(-2 * log_delta * small * (small + 1) / (2 * value)))
    here = round(8 * here) / 8  # close questions then share moments
    step, best = 0.5, bound(here)
    for _ in range(40):
        if math.isfinite(best):
            break
        here -= 0.5
        best = bound(here)
    for _ in range(60):
        tries = [(bound(at), at) for at in (here - step, here + step)]
        value, at = min(tries)
        if value < best:
            here, best = at, value
        else:
            step /= 2
            if step < (0.1 if len(factors) <= FEW else 0.2):
                break
    return math.exp(here) if math.isfinite(best) else None


class _LinePlan(NamedTuple):
    """The points of a line, and what is known before the moments are evaluated there."""

    product: _Moments
    c: float
    step: float
    points: int
    at_c: float
    error: float
    chernoff: tuple[tuple[float, float], ...]
    decays: list[tuple[Decay, int]]
    cost: float


def _plan(
    factors: Sequence[Factor],
    c: float,
    delta: float,
    epsilon: float | None,
    precise: float,
    most: float = MOST_EVALUATIONS,
) -> _LinePlan | None:
    """The plan for a tilt and an ε (or the saddle-point estimate of it); None if it is too expensive or will fail."""
    product, log_delta = _Moments(factors, delta, c), math.log(delta)
    at_c, error = product.at(c)
    chernoff = []
    for more in BEYOND:
        value, doubt = product.at(c * more)
        if doubt < 0.1:
            chernoff.append((c * more, value + doubt))
    if not (error < 0.1 and len(chernoff) > 1):
        return None
    # The second difference of K at c, c + x and c + 2x.
    (one, first), (two, second) = chernoff[:2]
    curvature = ((second - first) / (two - one) - (first - at_c) / (one - c)) / ((two - c) / 2)
    if not curvature > 0:
        return None
    # log of e^(K - cε) / δ at the saddle point
    thin = math.log(c * (c + 1) * math.sqrt(2 * math.pi * curvature + 1 / c**2))
    if epsilon is None:
        # Where δ is nearly δ(0), the estimate may be below 0.
        epsilon = max((at_c - log_delta - thin) / c, 0.0)
    scale = at_c - c * epsilon - log_delta
    if not scale - thin < WORST_SCALE:
        return None
    left = (-math.log(precise) - log_delta) / c
    right = min((value - at * epsilon - log_delta - math.log(precise)) / (at - c) for at, value in chernoff)
    period = 2.0 ** (math.ceil(4 * math.log2(max(left, right))) / 4)
    step, decays = 2 * math.pi / period, product.decays(c)
    top = _end(decays, scale - math.log(precise))
    top = None if top is None else _end(decays, max(scale - math.log(precise * top), 1.0))
    if top is None:
        return None
    count = 8 * math.ceil(max(top / step, 8) / 8) + 1
    cost = count * product.evaluations(c, top) / 2
    if cost > most:
        return None
    return _LinePlan(product, c, step, count, at_c, error, tuple(chernoff), decays, cost)


def _built(plan: _LinePlan) -> ContourPanel:
    """The panel of a plan."""
    c, step = plan.c, plan.step
    frequencies: Floats = step * np.arange(plan.points, dtype=float)
    values, errors = plan.product.line(c, frequencies)
    s = c + 1j * frequencies
    known = np.isfinite(errors)
    turned = np.asarray(np.exp(np.where(known, values - plan.at_c, -745.0)) / (s * (s + 1)), dtype=np.complex128)
    turned[0] /= 2
    sizes = np.abs(turned)
    # Where log M is not known, its real part has an upper bound.
    most = np.exp(np.where(known, -745.0, values.real - plan.at_c)) / np.abs(s * (s + 1))
    each = np.where(known, sizes * np.expm1(np.minimum(errors, 700.0)), sizes + most)
    each += sizes * 16 * UNIT_ROUNDOFF * (np.abs(values) + 8)
    last = float(frequencies[-1])
    tail = math.exp(plan.error - _exponent(plan.decays, last)) * (1 / last + step / last**2) / step
    doubt = float(np.sum(each)) + tail + 4 * UNIT_ROUNDOFF * (64 + math.log2(plan.points)) * float(np.sum(sizes))
    return ContourPanel(
        c=c,
        step=step,
        log_scale=plan.at_c,
        frequencies=frequencies,
        values=turned,
        doubt=doubt * 1.001,
        turning=float(np.sum(frequencies * sizes)),
        chernoff=plan.chernoff,
        lost=plan.product.lost,
    )


def _exponent(decays: Sequence[tuple[Decay, int]], frequency: float) -> float:
    """-log of a bound on |M(c + iω)| / M(c) of the product, at this frequency and all larger ones."""
    later = {b.until for decay, _ in decays for b in decay.bumps if frequency < b.until < math.inf}
    # Every bound falls with ω as long as it holds.
    starts = [frequency, *(until * (1 + 1e-12) for until in later)]
    return min(math.fsum(uses * decay.exponent(at) for decay, uses in decays) for at in starts)


def _end(decays: Sequence[tuple[Decay, int]], needed: float) -> float | None:
    """A frequency beyond which all values are negligible; None if the bounds on the decay do not prove one."""
    low, high = -30.0, 30.0
    if _exponent(decays, math.exp(high)) < needed:
        return None
    while high - low > 0.08:
        middle = (low + high) / 2
        low, high = (low, middle) if _exponent(decays, math.exp(middle)) >= needed else (middle, high)
    return math.exp(high)
