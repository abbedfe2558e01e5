"""Exponential moments of a law along a line Re s = c of the complex plane, with a bound on every error.

`contour_panel` needs log M(s), M(s) = E_P e^(sL), at points s = c + iω, and a bound on |M(c + iω)| / M(c) beyond the
last of them. For a Gaussian both have closed forms; for Laplace and finite laws only the moments have one. For a
sampled Gaussian, M(s) is an integral over the normal distribution of the output,

    M(s) = E e^(pw),    w = log(1 - q + q e^l),    l = μz - μ²/2,    z ~ N(0, 1),

with p = s + 1 for the law of the sample against the law without it, and p = -s for the other direction. The midpoint
rule sums e^(sL) - 1 under P, L = ±w: the count of uses, up to 10^12, multiplies the rounding errors of M, and these are
multiples of |s|. The theory page derives all error bounds ("Contour integrals").

The integral covers a finite range of z. The outcomes outside of it have so little P-mass that all uses together lose a
negligible part of δ. An upper bound on δ adds the lost mass; a lower bound leaves it out.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from deniable.curves.composition.contour_decay import Bump, Decay, Layers
from deniable.curves.laws.closed_form import GaussianLaw, LaplaceLaw
from deniable.curves.laws.derived_laws import SampledAgainstWithout, WithoutAgainstSampled
from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.laws.law import Law
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats

Complexes = NDArray[np.complex128]

MOST_VALUES = 2**19
"""The most values of e^(iω loss) in memory at a time."""

CHUNK = 64
"""How many products are added up at a time: rounding errors of a sum grow with the number of its terms."""

MOST_TOGETHER, ONE_THREAD = 2**16, 2**15
"""The most values of e^(iω loss) - 1 that are computed together (they fit into a processor's cache), and the most
products for which OpenBLAS multiplies complex matrices in one thread. More threads would mostly wait for each other.
"""

SHORT_LINE = 256
"""The most frequencies of a line whose values are cached."""

MOST_NODES = 2**16
"""The most nodes of one integral."""

STRIPS = (1.5, 0.75, 0.375, 0.19, 0.09, 0.045)
"""Arguments of e^l, at most π/2, that a strip of the complex plane may reach."""

LARGEST_EXPONENT = 500.0
"""Numbers with a larger logarithm are kept as logarithms, far from overflow."""

FEW_VALUES, MANY_USES = 4000, 10**7
"""The most values of a finite law, and the most uses of a law with atoms, for which moments are computed."""

SHARPER = 8
"""How often a cut is made sharper until the integrand vanishes beyond it."""

MOST_USES = 10**14
"""The most uses of a sampled Gaussian; for more of them, rounding errors would dominate."""

LEAST_MASS = 1e-280
"""The mass outside of an integral's range must be larger than this; a smaller one would underflow."""


class LineValues(NamedTuple):
    """log M at points of a line, and a bound on the error of each value, for one use.

    Where the error is infinite, M is near 0, and the real part of the value is an upper bound on log |M|.
    """

    values: Complexes
    errors: Floats


class LineMoment(Protocol):
    """The moments of one law, restricted to a part of its outcomes. The outcomes left out have the P-mass `lost`."""

    lost: float
    variance: float
    """About the variance of the loss, if the moments decay; else 0."""

    def evaluations(self, c: float, top: float) -> float:
        """How many values of e^(sL) one moment takes for |ω| <= `top`."""

    def line(self, c: float, frequencies: Floats) -> LineValues:
        """log M(c + iω) at frequencies ω = 0, η, 2η, ..."""

    def decay(self, c: float) -> Decay:
        """A bound on the moments at all frequencies."""


def moment_of(law: Law, uses: int, negligible: float, tilt: float) -> LineMoment | None:
    """The moments of a law that runs `uses` times, for tilts near `tilt`. All uses together may leave out the P-mass
    `negligible`. None if the law has no analytic moments, or if rounding errors would dominate.
    """
    if isinstance(law, GaussianLaw):
        return GaussianMoment(law.mu)
    if isinstance(law, LaplaceLaw):
        return LaplaceMoment(law.shift) if uses <= MANY_USES else None
    if isinstance(law, FiniteLaw):
        few = 0 < len(law.losses) <= FEW_VALUES and uses <= MANY_USES
        return FiniteMoment(law) if few else None
    if not isinstance(law, SampledAgainstWithout | WithoutAgainstSampled) or not isinstance(law.base, GaussianLaw):
        return None
    if not (0 < law.rate < 1 and law.base.mu > 0 and uses <= MOST_USES and negligible / uses > LEAST_MASS):
        return None
    # Rounded, so that similar questions share cached moments.
    more, less = 8 ** math.ceil(math.log2(uses) / 3), 10.0 ** math.floor(math.log10(negligible / uses))
    return _sampled_moment(law.base.mu, law.rate, isinstance(law, SampledAgainstWithout), more, less, tilt)


@lru_cache(maxsize=2048)
def _sampled_moment(mu: float, rate: float, forward: bool, uses: int, negligible: float, tilt: float) -> SampledMoment:
    return SampledMoment(mu, rate, forward, uses, negligible, tilt)


def _points(c: float, frequencies: Floats) -> Complexes:
    return np.asarray(c + 1j * frequencies, dtype=np.complex128)


class GaussianMoment:
    """M(s) = e^(μ² s(s+1)/2)."""

    def __init__(self, mu: float) -> None:
        self.square, self.variance, self.lost = mu * mu, mu * mu, 0.0

    def evaluations(self, c: float, top: float) -> float:
        return 1.0

    def line(self, c: float, frequencies: Floats) -> LineValues:
        s = _points(c, frequencies)
        values: Complexes = s * (s + 1) * (self.square / 2)
        return LineValues(values, 16 * UNIT_ROUNDOFF * np.abs(values))

    def decay(self, c: float) -> Decay:
        return Decay((Bump(self.square / 2 * (1 - 1e-12)),))


class LaplaceMoment:
    """M(s) = e^(st) (1 + s (e^(-(2s+1)t) - 1) / (2s + 1)). M does not decay at high frequencies, because the law has
    atoms.
    """

    lost = variance = 0.0

    def __init__(self, shift: float) -> None:
        self.shift = shift

    def evaluations(self, c: float, top: float) -> float:
        return 1.0

    def line(self, c: float, frequencies: Floats) -> LineValues:
        s = _points(c, frequencies)
        double = 2 * s + 1
        ratio = s * (np.exp(-double * self.shift) - 1) / double
        values: Complexes = s * self.shift + np.log(1 + ratio)
        errors = (1 + np.abs(double) * self.shift) * (1 + np.abs(ratio)) / np.abs(1 + ratio)
        return LineValues(values, 64 * UNIT_ROUNDOFF * errors)

    def decay(self, c: float) -> Decay:
        return Decay()


class FiniteMoment:
    """M(s) = Σ mass e^(s loss), of the finite losses of a law with few values."""

    lost = variance = 0.0

    def __init__(self, law: FiniteLaw) -> None:
        self.losses, self.masses, self.relative_error = law.losses, law.masses, law.relative_error

    def evaluations(self, c: float, top: float) -> float:
        return float(len(self.losses))

    def line(self, c: float, frequencies: Floats) -> LineValues:
        tilted = self.masses * np.exp(np.minimum(c * self.losses, LARGEST_EXPONENT))
        total: Complexes = np.exp(1j * frequencies[:, None] * self.losses) @ tilted
        largest = float(np.max(np.abs(self.losses)))
        relative = self.relative_error + UNIT_ROUNDOFF * (64 + len(tilted) + 4 * (c + frequencies) * largest)
        ratio = relative * float(np.sum(tilted)) / np.abs(total)
        if not c * largest < LARGEST_EXPONENT:
            return LineValues(np.full(len(frequencies), np.inf + 0j), np.full(len(frequencies), np.inf))
        known = ratio < 0.5
        return LineValues(
            np.where(known, np.log(total), np.log(np.abs(total) * (1 + ratio)) + 0j),
            np.where(known, -np.log1p(-np.minimum(ratio, 0.5)), np.inf),
        )

    def decay(self, c: float) -> Decay:
        return Decay()


class _Nodes(NamedTuple):
    """Nodes of the midpoint rule on one line: the numbers w, P-masses times e^(cL), the sum of e^(cL) - 1, and bounds
    on the errors of M, which are `fixed` + |s| × `growing`.
    """

    losses: Floats
    tilted: Floats
    real: float
    fixed: float
    growing: float

    def turned(self, first: int, count: int, step: float) -> tuple[Complexes, Floats]:
        """Σ tilted × (e^(iω loss) - 1) at ω = (first + j) step for j < count, and a bound on what the sums of products
        add to the rounding errors.

        With ω = x + y for a few x and a few y, e^(iω) - 1 = X Y + X + Y, X = e^(ix) - 1, Y = e^(iy) - 1: products
        of matrices, and no term larger than the result needs.
        """
        block = 1 << (count.bit_length() // 2)
        rows = -(-count // block)
        products = np.zeros((rows, block), dtype=np.complex128)
        alone: tuple[list[Complexes], list[Complexes]] = [], []
        together = max(MOST_TOGETHER // rows // CHUNK, 1) * CHUNK
        strips = list(pairwise(np.linspace(0, rows, 1 + -(-rows * block * CHUNK // ONE_THREAD)).astype(int)))
        for begin in range(0, len(self.losses), together):
            losses, tilted = self.losses[begin : begin + together], self.tilted[begin : begin + together]
            near, power = _turns(_less_one(step * losses), block)
            far, _ = _turns(power, rows)
            if first:
                _both(far, _less_one(first * step * losses), far)
            far *= tilted
            alone[0].append(np.sum(far, axis=1))
            alone[1].append(np.sum(near * tilted, axis=1))
            for start in range(0, len(losses), CHUNK):
                part = slice(start, start + CHUNK)
                for top, end in strips:
                    products[top:end] += far[top:end, part] @ near[:, part].T
        # Added last, and in pairs: the roundings of many additions would count for these two sums too.
        one, two = (np.sum(np.stack(sums, axis=-1), axis=-1) for sums in alone)
        total = products + (one[:, None] + two)
        terms = 2 * CHUNK + len(self.losses) / CHUNK + 16
        # |X|² = -2 Re X, and each X is known to a multiple of the rounding of its angle.
        turn = 512 * UNIT_ROUNDOFF * abs(step) * float(np.sum(self.tilted * np.abs(self.losses)))
        sizes = np.multiply.outer(
            np.maximum(-2 * one.real, 0.0) + turn * (first + block * np.arange(rows)),
            np.maximum(-2 * two.real, 0.0) + turn * np.arange(block),
        )
        doubt = 4 * UNIT_ROUNDOFF * terms * np.sqrt(sizes)
        return total.ravel()[:count], doubt.ravel()[:count]


def _turns(power: Complexes, count: int) -> tuple[Complexes, Complexes]:
    """e^(ikx) - 1 in row k < count, from e^(ix) - 1, and the same for the first power of 2 that is at least `count`:
    by doubling, without sines.
    """
    found, done = np.zeros((count, len(power)), dtype=np.complex128), 1
    while done < count:
        part = min(done, count - done)
        _both(found[:part], power, found[done : done + part])
        done += part
        power = _both(power, power, np.empty_like(power))
    return found, power


def _both(one: Complexes, two: Complexes, found: Complexes) -> Complexes:
    """e^(i(x + y)) - 1 from e^(ix) - 1 and e^(iy) - 1, written to `found`."""
    np.multiply(one, two + 1, out=found)
    found += two
    return found


def _less_one(angle: Floats) -> Complexes:
    """e^(i angle) - 1 without cancellation."""
    sine = np.sin(angle / 2)
    return np.asarray(2 * sine * (1j * np.cos(angle / 2) - sine))


def _kept_slope(x: Floats) -> Floats:
    """An upper bound on the slope φ/Φ of log Φ within 1e-6 of x. It vanishes where everything is kept."""
    return np.asarray(np.where(x < 1e-6, 1 + np.abs(x), np.exp(-np.square(x - 1e-6) / 2)))


UNKNOWN = _Nodes(np.zeros(1), np.zeros(1), 0.0, math.inf, 0.0)
"""The result if there would be too many nodes or an overflow: its error is infinite."""


class SampledMoment:
    """The moments of a Poisson-sampled Gaussian, on outcomes that are kept with the probability Φ((cut - z) / edge).

    The factor Φ cuts the outcomes beyond `cut` smoothly, so that the integrand stays analytic. It makes the integrand
    vanish before e^(pw) grows large at outcomes of negligible probability. `cut` suits tilts near the given `tilt`.
    """

    def __init__(self, mu: float, rate: float, forward: bool, uses: int, negligible: float, tilt: float) -> None:
        from scipy import special

        self.mu, self.rate, self.forward = mu, rate, forward
        self.variance = rate * rate * math.expm1(min(mu * mu, 50.0))
        # The error of the quadrature may be e^-digits for one use; it is multiplied by the number of uses.
        self.digits = math.log(uses) + 27.0
        far = math.sqrt(2 * math.log(2 / negligible))
        beyond = math.sqrt(2 * math.log(2 * rate / negligible)) if forward and 2 * rate > negligible else -math.inf
        deep = math.sqrt(2 * self.digits) + 1
        self.low, self.high, self.cut, self.edge = -far, max(far, mu + beyond), math.inf, math.inf
        room = self.high**2 / 2 - self.digits - 3
        if forward and self._power(tilt) * self._loss(self.high) > room:
            # Near the cut the integrand grows like e^(growth z).
            growth = self._power(tilt) * mu * self._share(self.high)
            self.edge = min(1.0, 3 / growth)
            for _ in range(SHARPER):
                wider = math.sqrt(1 + self.edge**2)
                self.cut = max(far * wider, mu + beyond * wider)
                self.high = self.cut + self.edge * (growth * self.edge + deep)
                peak = max(self._log_integrand(self._power(tilt), self.cut + growth * self.edge**2), 0.0)
                if self._log_integrand(self._power(tilt), self.high) <= peak - self.digits:
                    break
                self.edge *= 0.7  # the growth itself grows beyond the cut
        if not forward:
            # The loss is at most -log(1 - q).
            saturated = math.sqrt(2 * (self.digits + 3 - tilt * math.log1p(-rate)))
            self.low = min(self.low, -min(tilt * mu + deep, saturated))
        present = rate if forward else 0.0
        self.left_out = (1 - present) * self._outside(0.0) + present * self._outside(mu)
        self.lost = self.left_out * (1 + 1e-12) + 1e-300
        self.unsure = 1e-12 * self.left_out
        if math.isfinite(self.cut):  # beyond the ends of the range, outcomes are kept with some probability
            ends = [float(special.ndtr(mean - self.high) + special.ndtr(self.low - mean)) for mean in (0.0, mu)]
            self.unsure += (1 - present) * ends[0] + present * ends[1]
        self._lines: dict[tuple[float, float, int], LineValues] = {}
        self._decays: dict[float, Decay] = {}

    def _log_integrand(self, power: float, z: float) -> float:
        """log of the integrand, but for a constant, beyond the cut."""
        density = float(self._log_density_of_p(np.array([z]))[0])
        return power * self._loss(z) + density - ((z - self.cut) / self.edge) ** 2 / 2

    def _outside(self, mean: float) -> float:
        """The mass that a normal distribution with this mean loses."""
        from scipy import special

        if math.isinf(self.cut):
            return float(special.ndtr(mean - self.high) + special.ndtr(self.low - mean))
        cut_off = special.ndtr((mean - self.cut) / math.sqrt(1 + self.edge**2))
        return float(cut_off + special.ndtr(self.low - mean) + special.ndtr(mean - self.high))

    def _losses(self, z: Floats) -> Floats:
        """w at z."""
        exponent = self.mu * z - self.mu**2 / 2
        near = np.log1p(self.rate * np.expm1(np.minimum(exponent, LARGEST_EXPONENT)))
        return np.where(exponent > LARGEST_EXPONENT, exponent + math.log(self.rate), near)

    def _shares(self, z: Floats) -> Floats:
        """q e^l / (1 - q + q e^l) at z: the chance that the person took part."""
        exponent = self.mu * z - self.mu**2 / 2
        return np.asarray(1 / (1 + (1 - self.rate) / self.rate * np.exp(np.minimum(-exponent, 690.0))))

    def _log_density_of_p(self, z: Floats) -> Floats:
        """log of √(2π) times the density of P: N(0, 1), or (1 - q) N(0, 1) + q N(μ, 1)."""
        without = -z * z / 2
        if not self.forward:
            return without
        present = math.log(self.rate) - (z - self.mu) ** 2 / 2
        return np.asarray(np.logaddexp(math.log1p(-self.rate) + without, present))

    def _loss(self, z: float) -> float:
        return float(self._losses(np.array([z]))[0])

    def _share(self, z: float) -> float:
        return float(self._shares(np.array([z]))[0])

    def _kept(self, z: Floats) -> Floats:
        """The probability with which an outcome is kept."""
        from scipy import special

        return np.ones_like(z) if math.isinf(self.cut) else np.asarray(special.ndtr((self.cut - z) / self.edge))

    def _power(self, c: float) -> float:
        return c + 1 if self.forward else -c

    def _strip(self, c: float, top: float) -> tuple[float, float]:
        """The step of the midpoint rule for |ω| <= top, and half the width of its strip (theory page)."""
        share = self._share(self.high)
        turn = min(share / max(1 - share, 1e-300), 1.0)
        narrow = 1 + 1 / self.edge**2
        best = (0.0, 0.0)
        for angle in (*STRIPS, min(self.mu * math.sqrt(2 * self.digits / narrow), 1.5)):
            half = angle / self.mu
            growth = top * angle * turn
            if not self.forward:
                growth -= c * math.log(max(math.cos(angle / 2), 1 - share * (1 - math.cos(angle))))
            best = max(best, (2 * math.pi * half / (self.digits + half * half / 2 * narrow + growth), half))
        return best

    def evaluations(self, c: float, top: float) -> float:
        return (self.high - self.low) / self._strip(c, top)[0] + 1

    def _nodes(self, c: float, top: float) -> _Nodes:
        """The nodes for all frequencies up to `top`."""
        mu, power = self.mu, c if self.forward else -c
        (low, high), (wanted, half) = (self.low, self.high), self._strip(c, top)
        if not (high - low) / wanted < MOST_NODES:
            return UNKNOWN
        count = math.ceil((high - low) / wanted)
        step = (high - low) / count
        z: Floats = low + step * (np.arange(count, dtype=float) + 0.5)
        losses = self._losses(z)
        log_density, tilt = self._log_density_of_p(z), power * losses
        if float(np.max(tilt + log_density)) > LARGEST_EXPONENT / 2:
            return UNKNOWN
        scale = step / math.sqrt(2 * math.pi)
        kept = self._kept(z) * scale
        weights, tilted = np.exp(log_density) * kept, np.exp(tilt + log_density) * kept
        real = float(np.sum(np.where(tilt > 1, tilted - weights, weights * np.expm1(np.minimum(tilt, 1.0)))))
        # Rounding errors, as on the theory page: of l, of the loss, of the weights, of the sums.
        unit = UNIT_ROUNDOFF
        shares = self._shares(z)
        of_loss = shares * (4 * unit * (np.abs(mu * z) + mu * mu)) + 8 * unit * np.abs(np.expm1(-np.abs(losses)))
        of_loss += unit * (8 * np.where(losses < 0, np.expm1(np.minimum(-losses, 700.0)), 0.0) + 32 * np.abs(losses))
        # z²/2 and (z - μ)²/2 are rounded where they decide.
        squares = (1 - shares) * z * z + shares * (z - mu) ** 2 if self.forward else z * z
        relative = unit * (4 * (squares + np.abs(log_density)) + np.abs(tilt) + 400 + math.log2(count))
        if math.isfinite(self.cut):
            # Rounding z moves x = (cut - z) / edge by a few roundings of (|z| + cut) / edge.
            slope = _kept_slope((self.cut - z) / self.edge)
            relative += 4 * unit * slope * (np.abs(z) + self.cut) / self.edge
        growing = 1.01 * float(np.sum(np.maximum(tilted, weights) * (of_loss + relative * np.abs(losses))))
        # What the rule misses: on the sides of the strip, and at the ends of the range.
        ends = 0.0
        for at in (low, high):
            kept_there = float(self._kept(np.array([at]))[0]) * (1 + 1e-9) + 1e-300
            log_there = float(self._log_density_of_p(np.array([at]))[0])
            ends += kept_there * (math.exp(min(power * self._loss(at) + log_there, 700.0)) + math.exp(log_there))
        missed = 2.1 * math.exp(-self.digits) * (float(np.sum(tilted)) * 1.02 + 1) + 2 * half / self.digits * ends
        fixed = 1.01 * (missed + self.unsure) + 4 * unit * abs(real)
        return _Nodes(losses, tilted, real, fixed, growing)

    def line(self, c: float, frequencies: Floats) -> LineValues:
        asked = (c, float(frequencies[-1]), len(frequencies))
        found = self._lines.get(asked)
        if found is None:
            found = self._line(c, frequencies)
            if len(frequencies) <= SHORT_LINE:
                self._lines[asked] = found
        return found

    def _line(self, c: float, frequencies: Floats) -> LineValues:
        values, errors, done = np.empty(len(frequencies), dtype=complex), np.empty(len(frequencies)), 0
        while done < len(frequencies):
            # Nodes that suit this frequency also suit others up to twice as large.
            top = max(2 * float(frequencies[done]), float(frequencies[min(done + 8, len(frequencies) - 1)]))
            last = int(np.searchsorted(frequencies, top, "right"))
            nodes = self._nodes(c, float(frequencies[last - 1]))
            size = max(MOST_VALUES // len(nodes.losses), 2) ** 2
            for start in range(done, last, size):
                part = slice(start, min(start + size, last))
                values[part], errors[part] = self._at(nodes, c, frequencies, part)
            done = last
        return LineValues(values, errors)

    def _at(self, nodes: _Nodes, c: float, frequencies: Floats, part: slice) -> tuple[Complexes, Floats]:
        """log M and its error at a part of the frequencies that the nodes suit."""
        step = float(frequencies[1]) if len(frequencies) > 1 else 0.0
        turned, doubt = nodes.turned(part.start, part.stop - part.start, step if self.forward else -step)
        frequencies = frequencies[part]
        real, imaginary = nodes.real + turned.real - self.left_out, turned.imag
        size = np.hypot(1 + real, imaginary)
        error = nodes.fixed + np.hypot(c, frequencies) * nodes.growing + doubt
        logs = 0.5 * np.log1p(2 * real + (real * real + imaginary * imaginary)) + 1j * np.arctan2(imaginary, 1 + real)
        parts = np.abs(real) + np.abs(imaginary)
        ratio = error / size + 16 * UNIT_ROUNDOFF * parts * (1 + parts) / (size * size)
        # |log(1 + x)| <= -log(1 - |x|)
        known = ratio < 0.5
        return (
            np.where(known, logs, np.log(size * (1 + ratio)) + 0j),
            np.where(known, -np.log1p(-np.minimum(ratio, 0.5)), np.inf),
        )

    def decay(self, c: float) -> Decay:
        found = self._decays.get(c)
        if found is None:
            found = self._decays[c] = self._decay(c)
        return found

    def _decay(self, c: float) -> Decay:
        nodes = self._nodes(c, 0.0)
        if not math.isfinite(nodes.fixed):
            return Decay()
        total = float(np.sum(nodes.tilted)) * 1.01 + nodes.fixed
        z = np.linspace(self.low, self.high, len(nodes.losses) + 1)
        mean = float(np.sum(nodes.tilted * nodes.losses)) / float(np.sum(nodes.tilted))
        layers = []
        # Where the tilted mass lies, and where the variance of the tilted loss comes from.
        for weights in (nodes.tilted, nodes.tilted * (nodes.losses - mean) ** 2):
            share = np.cumsum(weights) / max(float(np.sum(weights)), 1e-300)
            for level in (0.003, 0.05):
                first, last = (int(np.searchsorted(share, at)) for at in (level, 1 - level))
                layers.append(self._layers(np.linspace(z[first], z[min(last + 1, len(z) - 1)], 40), c, total))
        return Decay(tuple(self._clusters(c, total)), tuple(layers), self._variation(c, total))

    def _log_density(self, edges: Floats, c: float, total: float) -> tuple[Floats, Floats]:
        """log of the tilted density of the loss at all z, without the cut, and the largest slope between two of them.

        It is the density of z divided by dw/dz = μ q e^l / (1 - q + q e^l). The slope of its logarithm is
        -z + μ((p + 1) share - 1), and the share grows with z.
        """
        power, mu = self._power(c), self.mu
        losses, shares = self._losses(edges), self._shares(edges)
        log_density = (power + 1) * losses - edges**2 / 2 - (mu * edges - mu * mu / 2)
        log_density -= math.log(self.rate * mu * total * math.sqrt(2 * math.pi))
        slopes = [-z + mu * ((power + 1) * s - 1) for z in (edges[:-1], edges[1:]) for s in (shares[:-1], shares[1:])]
        return log_density, np.max(np.abs(slopes), axis=0)

    def _variation(self, c: float, total: float) -> float:
        """The total variation of the tilted density of the loss: it has at most two maxima (theory page), or, with a
        cut, it is the sum of slopes over narrow cells.
        """
        fine = 16 if math.isinf(self.cut) else 64 / self.edge
        edges = np.linspace(self.low, self.high, 1 + min(math.ceil(fine * (self.high - self.low)), 4000))
        cell = float(edges[1] - edges[0])
        log_density, slopes = self._log_density(edges, c, total / 1.01)
        if math.isfinite(self.cut):
            with np.errstate(divide="ignore"):
                log_density = np.maximum(log_density + np.log(self._kept(edges)), -690.0)
            slopes = slopes + _kept_slope((self.cut - edges[1:]) / self.edge) / self.edge
        most = np.maximum(log_density[:-1], log_density[1:]) + slopes * cell / 2
        if math.isinf(self.cut):
            return 6 * math.exp(min(float(np.max(most)) + 1e-9, 700.0))
        inside = np.sum(np.exp(np.minimum(most, 700.0)) * slopes) * cell
        return float(inside + np.sum(np.exp(np.minimum(log_density[[0, -1]], 700.0)))) * 1.01

    def _clusters(self, c: float, total: float) -> list[Bump]:
        """Lower bounds on the tilted mass of two separate clusters of losses: of samples with the person, and of
        samples without.
        """
        edges = np.linspace(self.low, self.high, 1 + min(math.ceil(8 * (self.high - self.low)), 2000))
        cell, power = float(edges[1] - edges[0]), self._power(c)
        losses, shares = self._losses(edges), self._shares(edges)
        logs = power * losses - edges**2 / 2 - math.log(total * math.sqrt(2 * math.pi))
        # The slope of the logarithm of the density of z is -z + pμ share.
        ends = [-z + power * self.mu * s for z in (edges[:-1], edges[1:]) for s in (shares[:-1], shares[1:])]
        inside = np.minimum(logs[:-1], logs[1:]) - np.max(np.abs(ends), axis=0) * cell / 2 - 1e-9
        masses = np.exp(np.minimum(inside, 0.0)) * cell * self._kept(edges[1:]) * 0.999
        found = []
        place = 0.5 * self.mu - math.log(self.rate) / self.mu  # where q e^l = 1
        for away in (-1.0, 0.0, 1.0):
            split = int(np.searchsorted(edges, place + away))
            upper = np.cumsum(masses[split:])
            if len(upper) < 2 or split < 2:
                continue
            last = split + int(np.searchsorted(upper, 0.9 * upper[-1])) + 1
            first = split + int(np.searchsorted(upper, 0.05 * upper[-1]))
            lower = int(np.searchsorted(np.cumsum(masses[:split]), 0.9 * float(np.sum(masses[:split]))))
            near, far = abs(losses[first] - losses[lower + 1]), abs(losses[min(last, len(losses) - 1)] - losses[0])
            both = float(np.sum(masses[first:last])) * float(np.sum(masses[: lower + 1]))
            if near > 0:
                square = 2 * both * (near / math.pi) ** 2 * 0.999
                found.append(Bump(float(square), float(math.pi / far)))
        return found

    def _layers(self, edges: Floats, c: float, total: float) -> Layers:
        """Uniform parts of the tilted law between two edges: layers of a density with one peak, below the true one.

        The peak is in the middle of the interval with the largest least density × length³.
        """
        losses, cell = self._losses(edges), float(edges[1] - edges[0])
        log_density, slopes = self._log_density(edges, c, total)
        inside = np.minimum(log_density[:-1], log_density[1:]) - cell / 2 * slopes - 1e-9
        inside += np.log(self._kept(edges[1:]) + 1e-300)
        density = np.exp(np.clip(inside, -600.0, 600.0))
        before = np.tri(len(density), k=-1, dtype=bool)
        least = np.minimum.accumulate(np.where(before, 1e300, density), axis=1)
        worth = np.where(before, -1.0, least * np.abs(losses[None, 1:] - losses[:-1, None]) ** 3)
        start, end = divmod(int(np.argmax(worth)), len(density))
        peak = (start + end) // 2
        rising = np.minimum.accumulate(density[peak::-1])[::-1]
        falling = np.minimum.accumulate(density[peak:])
        levels = np.unique(np.concatenate((rising, falling)))
        first = np.searchsorted(rising, levels, "left")
        last = peak + len(falling) - np.searchsorted(falling[::-1], levels, "left")
        lengths = np.abs(losses[last] - losses[first]) * (1 - 1e-9)
        return Layers(np.diff(levels, prepend=0.0) * lengths * (1 - 1e-9), lengths)
