"""Exact values for the benchmark, to far more digits than it needs, by contour integrals in 40-digit arithmetic.

The other libraries use lattices, FFTs and truncated losses. Ours also takes a contour integral where it can, but shares
no code with this file. With L the sum of independent privacy losses and M(s) = E_P e^(sL),

    δ(ε) = E_P (1 - e^(ε-L))₊ = 1/(2πi) ∫_{c-i∞}^{c+i∞} M(s) e^(-sε) / (s(s+1)) ds        for every c > 0,

because ∫₀^∞ e^(-sx) (1 - e^(-x)) dx = 1/(s(s+1)). M is a product of one-mechanism moments:

    Gaussian             e^(μ² s(s+1)/2)
    Laplace, t = 1/scale (e^(st) + e^(-(s+1)t))/2 + e^(-t/2) sinh((s+1/2)t) / (2s+1)
    randomized response  (e^((s+1)ε) + e^(-sε)) / (e^ε + 1)
    sampled Gaussian     ∫ φ_σ(x) (1-q + q e^((2x-1)/2σ²))^(s+1) dx, and with exponent -s for the other direction

The trapezoidal rule converges geometrically on both integrals (their integrands are analytic in a strip), and the
arithmetic has 40 digits. Each value is computed on two contours with two different steps; the digits printed are
those on which they agree. What neither sees: where the loss has atoms, M comes back further along the contour, by at
most the mass of the atoms to the power of their number. That is below 1e-22 for the works of Laplace mechanisms of
one or two scales.

Works with a `contour` of their own (rare samples, many different laws) take the same integral in double precision; they
are known to 9 digits or more.

Randomized response alone has an M that does not decay along the contour: it is summed exactly (binomials).

    python benchmarks/truth.py [substring]        half an hour for all; prints each value, and says if works.py differs
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpmath import binomial, exp, log, mp, mpc, mpf, pi, sinh, sqrt
from works import MANY, WORKS, Contour, Mechanism, Part, Work

DIGITS = 40
NEGLIGIBLE = mpf(10) ** -34
"""Relative size of what is left out: by the rules' steps and by cutting the contour."""


class _SampledMoment:
    """log M(s) of a sampled Gaussian in one direction; the nodes in x are shared by all s."""

    def __init__(self, mechanism: Mechanism, forward: bool, largest: float, fine: float) -> None:
        sigma, rate = mpf(mechanism.size), mpf(mechanism.rate)
        # Singularities lie at distance πσ² from the real axis: the rule's error is about e^(-2π²σ²/h) × e^(π |Im s|).
        # The integrand is a Gaussian bump no wider than σ whose centre lies between 0 and s + 1.
        step = min(2 * pi**2 * sigma**2 / 200, sigma / 4) / mpf(fine)
        low, high = -sigma * 15, (mpf(largest) + 2 if forward else mpf(0)) + sigma * 15
        count = int((high - low) / step) + 1
        xs = [low + step * k for k in range(count)]
        self.losses = [log(1 - rate + rate * exp((2 * x - 1) / (2 * sigma**2))) for x in xs]
        self.weights = [step * exp(-(x**2) / (2 * sigma**2)) / (sigma * sqrt(2 * pi)) for x in xs]
        self.forward = forward

    def __call__(self, s: mpc) -> mpc:
        power = s + 1 if self.forward else -s
        return log(sum(w * exp(power * loss) for w, loss in zip(self.weights, self.losses, strict=True)))


def log_moment(mechanism: Mechanism, forward: bool, largest: float, fine: float) -> Callable[[mpc], mpc]:
    """s -> log E_P e^(sL) for one mechanism."""
    size = mpf(mechanism.size)
    if mechanism.kind == "gaussian":
        return lambda s: s * (s + 1) / (2 * size**2)
    if mechanism.kind == "laplace":
        t = 1 / size
        return lambda s: log(
            (exp(s * t) + exp(-(s + 1) * t)) / 2 + exp(-t / 2) * sinh((s + mpf(1) / 2) * t) / (2 * s + 1)
        )
    if mechanism.kind == "randomized_response":
        return lambda s: log((exp((s + 1) * size) + exp(-s * size)) / (exp(size) + 1))
    return _SampledMoment(mechanism, forward, largest, fine)


def epsilon(parts: Sequence[Part], delta: float, forward: bool, shift: float, fine: float) -> mpf:
    """ε with δ(ε) = delta in one direction. `shift` moves the contour, `fine` divides the steps; neither may matter."""
    target = mpf(str(delta))
    moments = _moments(parts, forward, 2.0, 1.0)
    c = _saddle(moments, target)
    for _ in range(2):  # the nodes in x must reach as far as the contour
        moments = _moments(parts, forward, float(c) * 1.2, fine)
        c = _saddle(moments, target)
    c *= shift
    total = lambda s: sum(n * m(s) for m, n in moments)  # noqa: E731
    at_c, nearby = total(c).real, c * mpf("1e-6")
    mean = (total(c + nearby).real - total(c - nearby).real) / (2 * nearby)
    spread = sqrt(abs((total(c + nearby).real - 2 * at_c + total(c - nearby).real) / nearby**2))
    # The rule repeats the tilted law of L with period 2π/h: far enough for the pole at 0, e^(-2πc/h), and its tails.
    step = min(2 * pi * c / 80, 2 * pi / (40 * spread)) / mpf(fine)
    nodes: list[tuple[mpc, mpc]] = []
    quiet, k = 0, 0
    while quiet < 40 and k < 20_000:
        s = mpc(c, step * k)
        value = exp(total(s) - at_c) / (s * (s + 1)) * (mpf(1) / 2 if k == 0 else 1)
        nodes.append((s, value))
        quiet = quiet + 1 if abs(value) < NEGLIGIBLE * abs(nodes[0][1]) else 0
        k += 1
    at = mean
    for _ in range(60):
        terms = [value * exp(-(s - c) * at) for s, value in nodes]
        scale = exp(at_c - c * at) * step / pi
        here = scale * sum(term.real for term in terms)
        slope = scale * sum((-s * term).real for (s, _), term in zip(nodes, terms, strict=True))
        # Newton on log δ, which is nearly linear in ε.
        move = log(here / target) * here / slope if here > 0 else mpf(1)
        at -= move
        if abs(move) < mpf(10) ** -28 * (1 + abs(at)):
            return at
    raise ArithmeticError("no convergence: move the contour")


def _moments(
    parts: Sequence[Part], forward: bool, largest: float, fine: float
) -> list[tuple[Callable[[mpc], mpc], int]]:
    square = mpf(0)
    found = []
    for part in parts:
        if part.mechanism.kind == "gaussian":  # all Gaussians are one, or ten thousand of them would take hours
            square += part.count / mpf(part.mechanism.size) ** 2
        else:
            found.append((log_moment(part.mechanism, forward, largest, fine), part.count))
    if square:
        found.append((lambda s: square * s * (s + 1) / 2, 1))
    return found


def _saddle(moments: list[tuple[Callable[[mpc], mpc], int]], delta: mpf) -> mpf:
    """A good place for the contour: the minimum over c of (K(c) - log δ - log(c+1)) / c, to 1 %."""
    with mp.workdps(16):

        def bound(t: float) -> mpf:
            c = exp(mpf(t))
            return (sum(n * m(c) for m, n in moments) - log(delta) + c * log(c) - (1 + c) * log(1 + c)) / c

        low, high = -5.0, 5.0
        while high - low > 0.01:
            a, b = low + (high - low) * 0.382, low + (high - low) * 0.618
            low, high = (low, b) if bound(a).real < bound(b).real else (a, high)
        return exp(mpf(low + high) / 2)


def binomial_epsilon(epsilon_each: float, count: int, delta: float) -> mpf:
    """Randomized response, n times: δ(ε) = Σ_j C(n,j) (e^((n-j)ε₁) - e^ε e^(jε₁))₊ / (1 + e^ε₁)^n, solved for ε."""
    each, target = mpf(epsilon_each), mpf(str(delta))
    weights = [binomial(count, j) * exp((count - j) * each - count * log(1 + exp(each))) for j in range(count + 1)]
    losses = [(count - 2 * j) * each for j in range(count + 1)]
    head = second = mpf(0)
    for loss, weight, following in zip(losses, weights, losses[1:], strict=False):
        head, second = head + weight, second + weight * exp(-loss)
        # On [following, loss) the profile is head - e^ε second.
        if head - exp(following) * second > target:
            return log((head - target) / second)
    return mpf(0)


def exact(work: Work, shift: float, fine: float) -> mpf:
    """The exact answer to a work's question."""
    parts = work.whole()
    if work.ask == "sigma":
        return _smallest_sigma(work, shift, fine)
    if all(p.mechanism.kind == "randomized_response" for p in parts) and len(parts) == 1:
        return binomial_epsilon(parts[0].mechanism.size, parts[0].count, work.delta)
    directions = (True, False) if any(p.mechanism.kind == "sampled_gaussian" for p in parts) else (True,)
    return max(epsilon(parts, work.delta, forward, shift, fine) for forward in directions)


def _smallest_sigma(work: Work, shift: float, fine: float) -> mpf:
    """Secant method on log ε against log σ: ε falls strictly with σ."""
    (part,) = work.parts

    def gap(log_sigma: mpf) -> mpf:
        mechanism = Mechanism(part.mechanism.kind, exp(log_sigma), part.mechanism.rate)  # type: ignore[arg-type]
        parts = (Part(mechanism, part.count),)
        return log(
            max(epsilon(parts, work.delta, forward, shift, fine) for forward in (True, False)) / mpf(work.target)
        )

    a, b = log(mpf(4)), log(mpf("4.3"))
    fa, fb = gap(a), gap(b)
    while abs(b - a) > mpf(10) ** -14:
        a, b, fa = b, b - fb * (b - a) / (fb - fa), fb
        fb = gap(b)
    return exp(b)


def double_epsilon(parts: Sequence[Part], delta: float, forward: bool, contour: Contour) -> float:
    """ε with δ(ε) = delta in one direction, by the same integral in double precision: for works whose contours are too
    long, or whose laws are too many, for 40 digits.
    """
    s = contour.at + 1j * np.arange(0, contour.top, contour.step)
    logs = sum((p.count * _double_moment(p.mechanism, s, forward) for p in parts), np.zeros_like(s))
    if abs(np.exp(logs[-1] - logs[0])) > 1e-12:
        raise ArithmeticError("the integrand has not decayed: lengthen the contour")
    values = np.exp(logs - logs[0]) / (s * (s + 1))
    values[0] /= 2
    at = float((logs[0].real - np.log(delta)) / contour.at)
    for _ in range(80):
        terms = values * np.exp(-(s - contour.at) * at)
        scale = float(np.exp(logs[0].real - contour.at * at)) * contour.step / np.pi
        here, slope = scale * float(terms.real.sum()), scale * float((-s * terms).real.sum())
        move = float(np.clip(np.log(here / delta) * here / slope, -0.5 * at, 0.5 * at)) if here > 0 else 0.1 * at
        at -= move
        if abs(move) < 1e-14 * at:
            break
    return at


def _double_moment(mechanism: Mechanism, s: Any, forward: bool) -> Any:
    """log E e^(sL) of one mechanism at all points of a contour."""
    size, rate = mechanism.size, mechanism.rate
    if mechanism.kind == "gaussian":
        return s * (s + 1) / (2 * size**2)
    if mechanism.kind == "laplace":
        return s / size + np.log(((s + 1) + s * np.exp(-(2 * s + 1) / size)) / (2 * s + 1))
    if mechanism.kind == "randomized_response":
        return np.log((np.exp((s + 1) * size) + np.exp(-s * size)) / (np.exp(size) + 1))
    x = np.linspace(-14 * size, 3 + 14 * size + float(s[0].real), 4000)
    loss = np.log1p(rate * np.expm1((2 * x - 1) / (2 * size**2)))
    weight = np.exp(-(x**2) / (2 * size**2)) / (size * np.sqrt(2 * np.pi)) * (x[1] - x[0])
    powers = np.array_split(s + 1 if forward else -s, max(len(s) // 400, 1))
    return np.concatenate([np.log1p(np.expm1(np.multiply.outer(power, loss)) @ weight) for power in powers])


def in_double(work: Work, contour: Contour) -> float:
    """The answer to a work's question in double precision."""
    directions = (True, False) if work.group == MANY and contour.both else (True,)
    return max(double_epsilon(work.whole(), work.delta, forward, contour) for forward in directions)


def main() -> None:
    mp.dps = DIGITS
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    for work in WORKS:
        if wanted not in work.name:
            continue
        began = time.process_time()
        if work.contour is not None:
            value = in_double(work, work.contour)
            differs = abs(value / work.truth - 1) > 1e-9
            print(f"{work.name:58s} {value:20.12g}  in double precision", end="")
            print(f"{f'  BUT THE BENCHMARK SAYS {work.truth}' if differs else ''}", flush=True)
            continue
        once, again = exact(work, 1.0, 1.0), exact(work, 0.9, 1.3)
        agreed = -int(mp.log10(abs(once - again) / abs(once) + mpf(10) ** -30))
        differs = abs(float(once) / work.truth - 1) > 1e-11 if work.truth else True
        print(
            f"{work.name:58s} {mp.nstr(once, 16):>20s}  agreed to {agreed} digits"
            f"{f'  BUT THE BENCHMARK SAYS {work.truth}' if differs else ''}  ({time.process_time() - began:.0f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
