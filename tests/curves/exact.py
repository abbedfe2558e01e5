"""References that share no code with the library: tails at 50 digits, and exact composition with whole numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import mpmath
import numpy as np
from mpmath import mp, mpf
from scipy import special

from deniable.curves.atoms.divisible import MertonLaw, NigLaw
from deniable.curves.laws.closed_form import BoundedRangeLaw, GaussianLaw, LaplaceLaw
from deniable.curves.laws.derived_laws import (
    CentreAgainstShifted,
    FixedSizeLaw,
    IdentityLaw,
    MixedLaw,
    SampledAgainstWithout,
    ShiftedAgainstCentre,
    WithoutAgainstSampled,
    WorstLaw,
)
from deniable.curves.laws.law import Law

DIGITS = 50


def number(value: float | Fraction | mpf) -> mpf:
    """A float or fraction as it is, at the working precision."""
    return mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else mpf(value)


# -- tails at 50 digits ----------------------------------------------------------------------------------------------


def upper_normal(x: mpf) -> mpf:
    """1 - Φ(x)."""
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2


def tails(law: Law, loss: mpf) -> tuple[mpf, mpf]:
    """P(L > loss) and Q(L > loss), from the definition of the pair."""
    reader = _READERS[type(law)]
    return reader(law, number(loss))


def delta(law: Law, epsilon: float | mpf) -> mpf:
    """The profile at ε, from the tails."""
    p, q = tails(law, number(epsilon))
    return p - mpmath.exp(number(epsilon)) * q


def _gaussian(law: GaussianLaw, loss: mpf) -> tuple[mpf, mpf]:
    mu = mpf(law.mu)
    return upper_normal(loss / mu - mu / 2), upper_normal(loss / mu + mu / 2)


def _laplace(law: LaplaceLaw, loss: mpf) -> tuple[mpf, mpf]:
    t = mpf(law.shift)
    if loss < -t:
        return mpf(1), mpf(1)
    if loss >= t:
        return mpf(0), mpf(0)
    return 1 - mpmath.exp((loss - t) / 2) / 2, mpmath.exp(-(loss + t) / 2) / 2


def _bounded_range(law: BoundedRangeLaw, loss: mpf) -> tuple[mpf, mpf]:
    # From the profile (1 - e^((l-ε)/2))² / (1 - e^-ε): Q(L > l) is minus its slope in x = e^l.
    e = mpf(law.epsilon)
    if loss < -e:
        return mpf(1), mpf(1)
    if loss >= e:
        return mpf(0), mpf(0)
    root = mpmath.exp((loss - e) / 2)
    q = (1 - root) * root * mpmath.exp(-loss) / (1 - mpmath.exp(-e))
    return (1 - root) ** 2 / (1 - mpmath.exp(-e)) + mpmath.exp(loss) * q, q


def _identity(_: IdentityLaw, loss: mpf) -> tuple[mpf, mpf]:
    return (mpf(1), mpf(1)) if loss < 0 else (mpf(0), mpf(0))


def _sampled_against_without(law: SampledAgainstWithout, loss: mpf) -> tuple[mpf, mpf]:
    rate = mpf(law.rate)
    ratio = (mpmath.exp(loss) - 1 + rate) / rate
    if ratio <= 0:
        p, q = (mpf(1), mpf(1)) if ratio < 0 else tails(law.base, mpf("-1e30"))
    else:
        p, q = tails(law.base, mpmath.log(ratio))
    return (1 - rate) * q + rate * p, q


def _without_against_sampled(law: WithoutAgainstSampled, loss: mpf) -> tuple[mpf, mpf]:
    rate = mpf(law.rate)
    ratio = (mpmath.exp(-loss) - 1 + rate) / rate
    if ratio <= 0:
        return mpf(0), mpf(0)
    p, q = tails(law.base, -mpmath.log(ratio))
    return p, (1 - rate) * p + rate * q


def _fixed_size(law: FixedSizeLaw, loss: mpf) -> tuple[mpf, mpf]:
    if loss >= 0:
        return tails(law.sampled, loss)
    # Symmetric pair: P(L > l) = 1 - Q(L >= -l), Q(L > l) = 1 - P(L >= -l); the tails are read just left of -l.
    p, q = tails(law.sampled, -loss)
    return 1 - q, 1 - p


def _worst(law: WorstLaw, loss: mpf) -> tuple[mpf, mpf]:
    return max((tails(part, loss) for part in law.parts), key=lambda t: t[0] - mpmath.exp(loss) * t[1])


def _mixed(law: MixedLaw, loss: mpf) -> tuple[mpf, mpf]:
    read = [tails(part, loss) for part in law.parts]
    return tuple(mpmath.fsum(mpf(w) * t[i] for w, t in zip(law.weights, read, strict=True)) for i in (0, 1))


def _shift_threshold(law: ShiftedAgainstCentre, loss: mpf) -> mpf:
    pairs = [(mpf(w), mpf(m)) for w, m in zip(law.weights, law.shifts, strict=True)]
    low, high = -(mpf(10) ** 4), mpf(10) ** 4
    for _ in range(230):
        middle = (low + high) / 2
        ratio = mpmath.fsum(w * mpmath.exp(m * middle - m * m / 2) for w, m in pairs)
        low, high = (low, middle) if mpmath.log(ratio) > loss else (middle, high)
    return (low + high) / 2


def _shifted_against_centre(law: ShiftedAgainstCentre, loss: mpf) -> tuple[mpf, mpf]:
    idle = mpmath.fsum(mpf(w) for w, m in zip(law.weights, law.shifts, strict=True) if m == 0)
    if idle > 0 and loss < mpmath.log(idle):
        return mpf(1), mpf(1)
    y = _shift_threshold(law, loss)
    pairs = zip(law.weights, law.shifts, strict=True)
    return mpmath.fsum(mpf(w) * upper_normal(y - mpf(m)) for w, m in pairs), upper_normal(y)


def _centre_against_shifted(law: CentreAgainstShifted, loss: mpf) -> tuple[mpf, mpf]:
    shifted = law.shifted
    idle = mpmath.fsum(mpf(w) for w, m in zip(shifted.weights, shifted.shifts, strict=True) if m == 0)
    if idle > 0 and loss >= -mpmath.log(idle):
        return mpf(0), mpf(0)
    y = _shift_threshold(shifted, -loss)
    pairs = zip(shifted.weights, shifted.shifts, strict=True)
    return upper_normal(-y), mpmath.fsum(mpf(w) * upper_normal(mpf(m) - y) for w, m in pairs)


def _merton(law: MertonLaw, loss: mpf) -> tuple[mpf, mpf]:
    variance, rate, mean, spread = (mpf(v) for v in (law.variance, law.rate, law.mean, law.spread))
    growth = mpmath.exp(mean + spread**2 / 2)
    drift = -variance / 2 - rate * (growth - 1)
    read = []
    for lam, jump, start in ((rate, mean, drift), (rate * growth, mean + spread**2, drift + variance)):
        total = mpf(0)
        mode = int(lam)
        for numbers in (range(mode, -1, -1), range(mode + 1, mode + 10**6)):
            for n in numbers:
                weight = mpmath.exp(n * mpmath.log(lam) - lam - mpmath.loggamma(n + 1))
                if weight < mpf(10) ** -140:
                    break
                centre, deviation = start + n * jump, mpmath.sqrt(variance + n * spread**2)
                total += weight * upper_normal((loss - law.sign * centre) / deviation)
        read.append(total)
    under_p, under_q = read
    return (under_q, under_p) if law.sign > 0 else (under_p, under_q)


def nig_tails(law: NigLaw, loss: float) -> tuple[float, float]:
    """P(L > loss) and Q(L > loss) of the normal inverse Gaussian pair, by the Bessel density of X.

    Composite Gauss rules in t with x = drift + size sinh t: another integral than the library's, in floating point,
    good to 1e-13.
    """
    alpha, beta, size = law.alpha, law.beta, law.size
    drift = size * (math.sqrt(alpha**2 - (beta + 1) ** 2) - math.sqrt(alpha**2 - beta**2))
    nodes, weights = np.polynomial.legendre.leggauss(24)
    start = math.asinh((law.sign * loss - drift) / size)
    result = []
    for slant in (beta, beta + 1):
        gamma = math.sqrt(alpha**2 - slant**2)

        def integral(left: float, right: float, slant: float = slant, gamma: float = gamma) -> float:
            edges = np.linspace(left, right, 401)
            half = 0.5 * np.diff(edges)
            t = (0.5 * (edges[1:] + edges[:-1])[:, None] + half[:, None] * nodes).ravel()
            r = size * np.cosh(t)
            exponent = size * (gamma - alpha * np.cosh(t) + slant * np.sinh(t))
            values = alpha * size / math.pi * special.kve(1, alpha * r) * np.exp(exponent)
            return float(np.sum(values * (half[:, None] * weights).ravel()))

        # The integrand falls off like exp(-size (alpha - |slant|) e^|t| / 2).
        end = math.log(2 * (1500 / (size * (alpha - abs(slant))) + 4)) + 2 + abs(start)
        result.append(integral(start, end) if law.sign > 0 else integral(-end, start))
    under_p, under_q = result
    return (under_q, under_p) if law.sign > 0 else (under_p, under_q)


_READERS = {
    GaussianLaw: _gaussian,
    LaplaceLaw: _laplace,
    BoundedRangeLaw: _bounded_range,
    IdentityLaw: _identity,
    SampledAgainstWithout: _sampled_against_without,
    WithoutAgainstSampled: _without_against_sampled,
    FixedSizeLaw: _fixed_size,
    WorstLaw: _worst,
    MixedLaw: _mixed,
    ShiftedAgainstCentre: _shifted_against_centre,
    CentreAgainstShifted: _centre_against_shifted,
    MertonLaw: _merton,
}


def gauss_delta(epsilon: float | mpf, mu: float | mpf) -> mpf:
    """δ of N(0,1) against N(μ,1)."""
    e, m = number(epsilon), number(mu)
    return upper_normal(e / m - m / 2) - mpmath.exp(e) * upper_normal(e / m + m / 2)


def binomial_delta(epsilon: float, one: float, uses: int) -> mpf:
    """δ of randomized response with this ε, run `uses` times (Kairouz, Oh, Viswanath 2015), summed at 50 digits."""
    e, x = mpf(one), mpmath.exp(number(epsilon))
    odds = mpmath.exp(-e)
    truth, lie = 1 / (1 + odds), odds / (1 + odds)
    total, p, q = mpf(0), truth**uses, lie**uses
    for lies in range(uses + 1):
        if p <= x * q:
            break
        total += p - x * q
        step = mpf(uses - lies) / (lies + 1)
        p, q = p * step * odds, q * step / odds
    return total


def poisson_delta(low: float, high: float, epsilon: float, *, forward: bool = True) -> mpf:
    """E_x of Poisson(high) against Poisson(low), or the other way round, in closed form."""
    a, b, e = mpf(low), mpf(high), number(epsilon)
    x = mpmath.exp(e)
    if forward:
        n = int(mpmath.floor((e + b - a) / mpmath.log(b / a))) + 1
        return _poisson_tail(b, n) - x * _poisson_tail(a, n)
    n = int(mpmath.ceil((b - a - e) / mpmath.log(b / a))) - 1
    return _poisson_head(a, n) - x * _poisson_head(b, n)


def _poisson_tail(rate: mpf, n: int) -> mpf:
    if n <= 0:
        return mpf(1)
    if n <= rate:
        return 1 - _poisson_head(rate, n - 1)
    term = mpmath.exp(n * mpmath.log(rate) - rate - mpmath.loggamma(n + 1))
    total = mpf(0)
    while term > total * mpf(10) ** (-DIGITS - 5):
        total, n = total + term, n + 1
        term = term * rate / n
    return total


def _poisson_head(rate: mpf, n: int) -> mpf:
    if n < 0:
        return mpf(0)
    if n >= rate:
        return 1 - _poisson_tail(rate, n + 1)
    term = mpmath.exp(n * mpmath.log(rate) - rate - mpmath.loggamma(n + 1))
    total = mpf(0)
    while n >= 0 and term > total * mpf(10) ** (-DIGITS - 5):
        total, term, n = total + term, term * n / rate, n - 1
    return total


# -- exact finite pairs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Two mass functions with whole-number weights: an outcome (a, b) has P-mass a/p_unit and Q-mass b/q_unit.

    The values of `weights` count how many outcomes have these weights.
    """

    weights: dict[tuple[int, int], int]
    p_unit: int
    q_unit: int

    @staticmethod
    def of(p: Sequence[Fraction], q: Sequence[Fraction]) -> Pair:
        p_unit, q_unit = (math.lcm(*(v.denominator for v in side)) for side in (p, q))
        counts: dict[tuple[int, int], int] = {}
        for a, b in zip(p, q, strict=True):
            key = int(a * p_unit), int(b * q_unit)
            counts[key] = counts.get(key, 0) + 1
        return Pair(counts, p_unit, q_unit)

    def reversed(self) -> Pair:
        return Pair({(b, a): n for (a, b), n in self.weights.items()}, self.q_unit, self.p_unit)

    def __mul__(self, other: Pair) -> Pair:
        counts: dict[tuple[int, int], int] = {}
        for ((a, b), m), ((c, d), n) in itertools.product(self.weights.items(), other.weights.items()):
            key = a * c, b * d
            counts[key] = counts.get(key, 0) + m * n
        return Pair(counts, self.p_unit * other.p_unit, self.q_unit * other.q_unit)

    def __pow__(self, uses: int) -> Pair:
        result = Pair({(1, 1): 1}, 1, 1)
        for _ in range(uses):
            result = result * self
        return result

    def delta(self, x: Fraction) -> Fraction:
        """sup over events of P - x Q, exactly."""
        p, q = x.denominator * self.q_unit, x.numerator * self.p_unit
        total = sum(n * gain for (a, b), n in self.weights.items() if (gain := a * p - b * q) > 0)
        return Fraction(total, self.p_unit * self.q_unit * x.denominator)

    def ratios(self) -> list[Fraction]:
        """Likelihood ratios that are neither 0 nor infinite."""
        return sorted({Fraction(a * self.q_unit, b * self.p_unit) for a, b in self.weights if a and b})

    @property
    def is_symmetric(self) -> bool:
        points = {*self.ratios(), *self.reversed().ratios(), Fraction(0)}
        points |= {max(points) + 1}
        return all(self.delta(x) == self.reversed().delta(x) for x in points)

    def symmetrized(self) -> Pair:
        """The pair of the larger of both profiles: a maximum of polygons, with kinks at ratios and at crossings."""
        back = self.reversed()
        kinks = sorted({*self.ratios(), *back.ratios(), Fraction(0)})
        kinks.append(kinks[-1] + 1)
        gaps = [self.delta(x) - back.delta(x) for x in kinks]
        for (x, a), (y, b) in list(itertools.pairwise(zip(kinks, gaps, strict=True))):
            if a * b < 0:
                kinks.append(x + (y - x) * a / (a - b))
        kinks.sort()
        values = [max(self.delta(x), back.delta(x)) for x in kinks]
        slopes = [(b - a) / (y - x) for (x, a), (y, b) in itertools.pairwise(zip(kinks, values, strict=True))]
        # Q-mass at a kink is the change of slope there, P-mass is x times that; the rest is ratio 0 and infinity.
        p, q = [], []
        for x, before, after in zip(kinks[1:], slopes, [*slopes[1:], Fraction(0)], strict=True):
            q.append(after - before)
            p.append(x * (after - before))
        p += [values[-1], Fraction(0)]
        q += [Fraction(0), 1 - sum(q)]
        assert sum(p) == 1
        return Pair.of(p, q)


def enclosed(epsilon: float, bits: int = 200) -> tuple[Fraction, Fraction]:
    """Rational numbers just below and just above e^ε."""
    with mp.workprec(bits + 64 + int(2 * abs(epsilon))):
        floor = int(mpmath.floor(mpmath.exp(mpf(epsilon)) * mpf(2) ** bits))
    return Fraction(floor, 2**bits), Fraction(floor + 1, 2**bits)


# -- a grid law, read at 50 digits -----------------------------------------------------------------------------------


class GridProfile:
    """The profile of masses on grid points (as the floats they are), at 50 digits."""

    def __init__(self, losses: Sequence[float], masses: Sequence[float], infinity: float) -> None:
        self.losses = np.asarray(losses)
        self.infinity = mpf(float(infinity))
        self.heads, self.seconds = [mpf(0)], [mpf(0)]
        for loss, mass in zip(reversed(self.losses), reversed(np.asarray(masses)), strict=True):
            self.heads.append(self.heads[-1] + mpf(float(mass)))
            self.seconds.append(self.seconds[-1] + mpf(float(mass)) * mpmath.exp(-mpf(float(loss))))

    def __call__(self, epsilon: float) -> mpf:
        above = len(self.losses) - int(np.searchsorted(self.losses, epsilon, side="right"))
        return self.heads[above] - mpmath.exp(mpf(float(epsilon))) * self.seconds[above] + self.infinity


# -- a slow lattice reference ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Smooth:
    """A law by its P-survival function on [low, high], run `uses` times, for `slow_delta`."""

    survival: Callable[[np.ndarray], np.ndarray]
    low: float
    high: float
    uses: int


def slow_delta(laws: Sequence[Smooth], epsilon: float, step: float) -> float:
    """δ(ε) of a product by a plain tilted FFT at two steps and Richardson extrapolation: about eight digits, no bounds.

    Each cell's mass is put on its middle, so the error is even in the step. Atoms must lie on multiples of the step.
    """
    coarse, fine = (_plain_delta(laws, epsilon, h) for h in (step, step / 2))
    return (4 * fine - coarse) / 3


def _plain_delta(laws: Sequence[Smooth], epsilon: float, step: float) -> float:
    grids = []
    for law in laws:
        index = np.arange(math.floor(law.low / step) - 1, math.ceil(law.high / step) + 2)
        tails = law.survival((np.append(index, index[-1] + 1) - 0.5) * step)
        masses = np.maximum(tails[:-1] - tails[1:], 0.0)
        masses[0] += 1 - tails[0]
        grids.append((index, masses, law.uses))

    def tilted(theta: float) -> tuple[float, float, float, list[np.ndarray]]:
        value = mean = spread = 0.0
        weights = []
        for index, masses, uses in grids:
            with np.errstate(divide="ignore"):
                exponent = np.log(masses) + theta * step * index
            top = float(np.max(exponent))
            w = np.exp(exponent - top)
            total = float(np.sum(w))
            w /= total
            m = float(np.sum(w * index * step))
            value += uses * (top + math.log(total))
            mean += uses * m
            spread += uses * float(np.sum(w * (index * step - m) ** 2))
            weights.append(w)
        return value, mean, spread, weights

    low, high = 0.0, 1e4
    for _ in range(80):
        theta = 0.5 * (low + high)
        low, high = (theta, high) if tilted(theta)[1] < epsilon else (low, theta)
    value, mean, spread, weights = tilted(low)
    length = 2 ** math.ceil(math.log2(60 * math.sqrt(spread) / step + 200))
    spectrum = np.ones(length // 2 + 1, dtype=complex)
    start = 0
    for (index, _, uses), w in zip(grids, weights, strict=True):
        padded = np.zeros(-(-len(w) // length) * length)
        padded[: len(w)] = w
        spectrum = spectrum * np.fft.rfft(padded.reshape(-1, length).sum(axis=0)) ** uses
        start += uses * int(index[0])
    first = round(mean / step) - length // 2
    y = np.roll(np.fft.irfft(spectrum, length), -((first - start) % length))
    loss = (first + np.arange(length)) * step
    above = loss > epsilon
    terms = np.maximum(y[above], 0.0) * np.exp(value - low * loss[above]) * -np.expm1(epsilon - loss[above])
    return float(math.fsum(terms))


def epsilon_of(delta_at: Callable[[float], float], delta: float, low: float, high: float) -> float:
    """The ε at which a falling δ(ε) reaches a value: by bisection in log δ, to twelve digits."""
    from scipy import optimize

    found = optimize.brentq(lambda e: math.log(delta_at(e)) - math.log(delta), low, high, xtol=1e-12, rtol=1e-13)
    return float(found)
