"""Random pairs of laws, and every view of their curves in both directions against 40 digits.

    python -m tests.curves.directions --pairs 10000 --seed 1

The masses are whole multiples of 2^-48, so floating point holds them exactly and the truth is computed from the very
same numbers. Certified views (δ, ε, β, tails, Rényi divergences, χ² …) must hold without any slack but the rounding
of the comparison itself; the moments and the limit theorem are compared to 1e-7.
"""

from __future__ import annotations

import argparse
import itertools
import math
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
from mpmath import mp, mpf
from scipy import special

from deniable import curves

UNIT = 2**48
KINDS = ("single", "single", "single", "tied product", "product", "power", "sampled", "flipping sample", "mixture",
         "flipping mixture", "group", "reversed", "worst")  # fmt: skip
ORDERS = (1.0, 1.25, 2.0, 7.0, 40.0, math.inf)
ORDERS_BELOW_1 = (0.1, 0.5, 0.9)
ROUNDING = mpf(10) ** -30
NEAR = 1e-7

Masses = tuple[Fraction, ...]


@dataclass(frozen=True)
class Ordered:
    """An ordered pair (P, Q) on finitely many outcomes, read by the definitions at 40 digits."""

    p: Masses
    q: Masses

    @property
    def back(self) -> Ordered:
        return Ordered(self.q, self.p)

    def times(self, other: Ordered) -> Ordered:
        p, q = (tuple(a * b for a in one for b in two) for one, two in ((self.p, other.p), (self.q, other.q)))
        return Ordered(p, q)

    def sampled(self, rate: Fraction) -> Ordered:
        return Ordered(self.p, tuple((1 - rate) * a + rate * b for a, b in zip(self.p, self.q, strict=True)))

    @cached_property
    def numbers(self) -> list[tuple[mpf, mpf]]:
        return [(_mp(a), _mp(b)) for a, b in zip(self.p, self.q, strict=True)]

    def delta(self, epsilon: float) -> mpf:
        x = mp.exp(mpf(epsilon)) if math.isfinite(epsilon) else None
        if x is None:
            return mpf(1) if epsilon < 0 else mp.fsum(a for a, b in self.numbers if b == 0)
        return mp.fsum(max(a - x * b, mpf(0)) for a, b in self.numbers)

    @cached_property
    def vertices(self) -> list[tuple[Fraction, Fraction]]:
        """(α, β) of T(P, Q), exactly: alarms in the order of Q/P, the largest first."""
        known = [(a, b) for a, b in zip(self.p, self.q, strict=True) if a]
        known.sort(key=lambda ab: ab[1] / ab[0], reverse=True)
        alpha, beta = Fraction(0), sum((b for _, b in known), Fraction(0))
        found = [(alpha, beta)]
        for a, b in known:
            alpha, beta = alpha + a, beta - b
            found.append((alpha, beta))
        return found

    def beta(self, alpha: float) -> mpf:
        at = Fraction(alpha)
        for (a, b), (c, d) in itertools.pairwise(self.vertices):
            if a <= at <= c:
                return _mp(b + (at - a) / (c - a) * (d - b))
        raise AssertionError(alpha)

    def equal_error(self) -> mpf:
        for (a, b), (c, d) in itertools.pairwise(self.vertices):
            if a <= b and c >= d:
                return _mp(a + (b - a) / ((b - a) + (c - d)) * (c - a))
        return mpf(0)  # no answer is possible under both laws

    def gdp(self) -> float:
        """The largest μ at a vertex: the epigraph of G_μ is convex, so the vertices decide."""
        most = 0.0
        for a, b in self.vertices:
            if (a, b) in ((0, 1), (1, 0)):
                continue
            if a == 0 or b == 0:
                return math.inf
            most = max(most, -_normal_quantile(a) - _normal_quantile(b))
        return most

    def renyi(self, order: float) -> mpf:
        known = [(a, b) for a, b in self.numbers if a > 0]
        if order >= 1 and any(b == 0 for _, b in known):
            return mp.inf
        if order == 1:
            return mp.fsum(a * mp.log(a / b) for a, b in known)
        if math.isinf(order):
            return max(mp.log(a / b) for a, b in known)
        total = mp.fsum(a * mp.exp((mpf(order) - 1) * mp.log(a / b)) for a, b in known if b > 0)
        return mp.log(total) / (mpf(order) - 1) if total > 0 else mp.inf

    def power(self, exponent: int) -> mpf:
        known = [(a, b) for a, b in self.numbers if a > 0]
        if any(b == 0 for _, b in known):
            return mp.inf
        return mp.fsum(a * abs(mp.log(a / b)) ** exponent for a, b in known)

    def tail(self, epsilon: float) -> mpf:
        x = mp.exp(mpf(epsilon))
        return mp.fsum(a for a, b in self.numbers if a > x * b)

    def quantile(self, allowed: float) -> mpf:
        """The smallest ε >= 0 with P(L > ε) <= allowed."""
        known = sorted(((mp.log(a / b) if b else mp.inf, a) for a, b in self.numbers if a), reverse=True)
        mass = mpf(0)
        for loss, a in known:
            mass += a
            if mass > allowed:
                return max(loss, mpf(0))
        return mpf(0)

    def guess(self, prior: float) -> mpf:
        share = mpf(prior)
        return mp.fsum(max((1 - share) * a, share * b) for a, b in self.numbers)


def limit(factors: Sequence[Ordered]) -> mpf:
    """2 Σ kl / √(Σ κ₂) over the factors of a product."""
    square = mp.fsum(f.power(2) for f in factors)
    return 2 * mp.fsum(f.renyi(1.0) for f in factors) / mp.sqrt(square) if square else mpf(0)


def _normal_quantile(value: Fraction) -> float:
    return float(special.ndtri(float(value)) if value < Fraction(1, 2) else -special.ndtri(float(1 - value)))


def _mp(value: Fraction) -> mpf:
    return mpf(value.numerator) / value.denominator


@dataclass
class Case:
    """A curve and what it is. `exact`: `forward` is the first way; otherwise only the safe side is known."""

    kind: str
    curve: curves.Curve
    ways: list[Ordered]
    exact: bool
    factors: tuple[Ordered, ...] = ()
    """Of a product, in the order of the first way."""
    listed: bool = True
    """Whether the moments are those of the worst way, not only an upper bound."""


# -- what is drawn ---------------------------------------------------------------------------------------------------


def random_masses(rng: np.random.Generator, size: int, shape: float) -> Masses:
    """Whole multiples of 2^-48 that sum to 1, none 0."""
    raw = np.maximum((rng.dirichlet(np.full(size, shape)) * UNIT).astype(np.int64), 1)
    raw[int(np.argmax(raw))] += UNIT - int(raw.sum())
    return tuple(Fraction(int(n), UNIT) for n in raw)


def random_pair(rng: np.random.Generator, most: int = 6) -> Ordered:
    """2 to 6 outcomes: plain, with zeros in P or Q or both, ties, nearly equal laws, extreme ratios."""
    size = int(rng.integers(2, most + 1))
    shape = float(rng.choice([0.1, 0.3, 1.0, 5.0]))
    p, q = random_masses(rng, size, shape), random_masses(rng, size, shape)
    kind = int(rng.integers(0, 9))
    if kind in (0, 2):
        p = _without(p, 0)
    if kind in (1, 2):
        q = _without(q, size - 1)
    if kind == 3:  # two outcomes that tell the same, and one that tells nothing
        half = tuple(x / 2 for x in p)
        p, q = half + half, tuple(x / 2 for x in q) * 2
    if kind == 4:  # nearly equal
        move = Fraction(int(rng.integers(1, 2**20)), UNIT)
        big = max(range(size), key=lambda i: p[i])
        q = tuple(x - move if i == big else x + (move if i == (big + 1) % size else 0) for i, x in enumerate(p))
        q = q if min(q) >= 0 else p[::-1]
    if kind == 5:  # extreme ratios
        tiny = Fraction(1, UNIT)
        p, q = (tiny, 1 - tiny), (1 - tiny, tiny)
        if rng.random() < 0.5:
            p, q = (tiny, Fraction(1, 2) - tiny, Fraction(1, 2)), (Fraction(1, 2), tiny, Fraction(1, 2) - tiny)
    if kind == 6:  # mirrored
        q = p[::-1]
    if kind == 7 and size > 2:  # a shared mass: one loss is 0 exactly
        whole = p[0] + p[1]
        q = (*p[2:], *_split(rng, whole))
        p = (*p[2:], p[0], p[1])
    return Ordered(p, q)


def _without(masses: Masses, index: int) -> Masses:
    moved = list(masses)
    moved[index - 1] += moved[index]
    moved[index] = Fraction(0)
    return tuple(moved)


def _split(rng: np.random.Generator, whole: Fraction) -> Masses:
    part = whole * Fraction(int(rng.integers(0, 65)), 64)
    return part, whole - part


def atom(pair: Ordered, tied: bool = False) -> curves.Curve:
    return curves.from_pmf([float(x) for x in pair.p], [float(x) for x in pair.q], tied=tied)


def flips(*pairs: Ordered) -> Iterator[Ordered]:
    for turned in itertools.product((False, True), repeat=len(pairs)):
        result = Ordered((Fraction(1),), (Fraction(1),))
        for pair, turn in zip(pairs, turned, strict=True):
            result = result.times(pair.back if turn else pair)
        yield result


def union(weights: Sequence[Fraction], pairs: Sequence[Ordered]) -> Ordered:
    p = tuple(w * x for w, pair in zip(weights, pairs, strict=True) for x in pair.p)
    q = tuple(w * x for w, pair in zip(weights, pairs, strict=True) for x in pair.q)
    return Ordered(p, q)


def random_case(rng: np.random.Generator) -> Case:
    kind = str(rng.choice(KINDS))
    one, two = random_pair(rng), random_pair(rng, 4)
    if kind == "single":
        tied = bool(rng.random() < 0.3)
        return Case(kind, atom(one, tied), [one], True)
    if kind == "tied product":
        return Case(kind, atom(one, True) * atom(two, True), [one.times(two)], True, (one, two))
    if kind == "product":
        return Case(kind, atom(one) * atom(two), list(flips(one, two)), False)
    if kind == "power":
        small = random_pair(rng, 3)
        count = int(rng.integers(2, 4))
        return Case(kind, atom(small) ** count, list(flips(*[small] * count)), False)
    if kind in ("sampled", "flipping sample"):
        rate = Fraction(int(rng.integers(1, 64)), 64)
        if kind == "sampled":
            return Case(kind, atom(one, True).sampled(rate=float(rate)), [one.sampled(rate)], True)
        both = [one.sampled(rate), one.back.sampled(rate)]
        return Case(kind, atom(one).sampled(rate=float(rate)), [*both, *(way.back for way in both)], False)
    if kind in ("mixture", "flipping mixture"):
        share = Fraction(int(rng.integers(1, 64)), 64)
        weights = (share, 1 - share)
        parts = [float(w) for w in weights]
        if kind == "mixture":
            curve = curves.mixture(parts, [atom(one, True), atom(two, True)])
            return Case(kind, curve, [union(weights, (one, two))], True)
        ways = [union(weights, (a, b)) for a in (one, one.back) for b in (two, two.back)]
        return Case(kind, curves.mixture(parts, [atom(one), atom(two)]), ways, False)
    if kind == "group":
        # A chain P, Q, R of neighbours: a group of two is at least as bad as (P, R) if both steps are covered.
        middle = random_masses(rng, len(one.p), 1.0)
        steps = Ordered(one.p, middle), Ordered(middle, one.q)
        curve = curves.worst_of(*(atom(step) for step in steps)).group(size=2)
        return Case(kind, curve, [one, one.back], False, listed=False)
    if kind == "reversed":
        return Case(kind, atom(one, True).reversed(), [one.back], True)
    return Case(kind, curves.worst_of(atom(one), atom(two)), [one, one.back, two, two.back], False)


# -- what is compared ------------------------------------------------------------------------------------------------


@dataclass
class Report:
    """Comparisons by view, and those that failed."""

    seed: int
    pairs: int = 0
    compared: dict[str, int] = field(default_factory=dict)
    wrong: list[tuple[str, str]] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(self.compared.values())

    def check(self, case: Case, view: str, holds: Callable[[], bool], told: Callable[[], object]) -> None:
        self.compared[view] = self.compared.get(view, 0) + 1
        if not holds():
            shown = [([str(x) for x in way.p], [str(x) for x in way.q]) for way in case.ways[:2]]
            self.wrong.append((f"{case.kind}: {view}", f"{told()} {case.curve.expression()} {shown}"))


def at_most(a: float | mpf, b: float | mpf) -> bool:
    """a <= b up to the rounding of 40 digits."""
    a, b = mpf(a), mpf(b)
    return bool(a <= b + ROUNDING * (1 + abs(b)) if mp.isfinite(b) else b > 0 or a == b)


def near(a: float, b: mpf, room: float, floor: float) -> bool:
    """Equal to a relative `room` and an absolute `floor`."""
    if mp.isinf(b) or math.isinf(a):
        return bool(mp.isinf(b) and math.isinf(a))
    return bool(abs(mpf(a) - b) <= room * abs(b) + floor)


def compare(case: Case, rng: np.random.Generator, report: Report) -> None:
    """Every view of one curve."""
    ways = case.ways if not case.exact else [case.ways[0], case.ways[0].back]
    losses = [float(mp.log(a / b)) for a, b in ways[0].numbers if a and b]
    epsilon = float(rng.choice([rng.normal(0, 1), rng.uniform(-6, 6), 0.0, rng.choice(losses or [0.0]), 30.0]))
    alpha = float(rng.choice([rng.uniform(), rng.uniform() ** 8, 0.0, 1.0, 0.5]))
    delta = float(rng.choice([rng.uniform(), rng.uniform() ** 8, 0.0, 1e-9]))
    order = float(rng.choice(ORDERS_BELOW_1 if rng.random() < 0.15 else ORDERS))
    curve = case.curve

    def often(share: float) -> bool:
        """Slow views are compared for some of the curves."""
        return bool(rng.random() < share)

    def bounds(view: str, found: tuple[float, float], truth: mpf, width: float = math.inf) -> None:
        low, high = found
        report.check(
            case,
            view,
            lambda: (
                at_most(low, truth)
                and at_most(truth, high)
                and (not mp.isfinite(truth) or high - low <= width * (1 + abs(float(truth))))
            ),
            lambda: (found, mp.nstr(truth, 20), epsilon, alpha, delta, order),
        )

    def upper(view: str, found: float, truth: mpf) -> None:
        report.check(
            case, view, lambda: at_most(truth, found), lambda: (found, mp.nstr(truth, 20), epsilon, alpha, delta, order)
        )

    def number(view: str, found: float, truth: mpf, room: float = NEAR, floor: float = 1e-13) -> None:
        report.check(case, view, lambda: near(found, truth, room, floor), lambda: (found, mp.nstr(truth, 20)))

    if case.exact:
        for name, direction, way in (("f", curve.forward, ways[0]), ("b", curve.backward, ways[1])):
            _compare_direction(name, direction, way, epsilon, alpha, order, rng.random(), bounds, number)
            if often(0.3):
                _compare_polygon(case, direction, way, report)
    worst_delta, worst_tail = max(w.delta(epsilon) for w in ways), max(w.tail(epsilon) for w in ways)
    if case.exact:
        bounds("delta_bounds", curve.delta_bounds(epsilon=epsilon), worst_delta, 1e-9)
        if often(0.5):
            bounds("beta_bounds", curve.beta_bounds(alpha=alpha), min(w.beta(alpha) for w in ways), 1e-4)
            bounds("epsilon_bounds", curve.epsilon_bounds(delta=delta), max(_epsilon(w, delta) for w in ways), 1e-4)
        bounds("loss_tail_bounds", curve.loss_tail_bounds(epsilon=epsilon), worst_tail)
        number("clt", *_limits(case), 1e-6, 1e-5)
    upper("delta", curve.delta(epsilon=epsilon), worst_delta)
    upper("advantage", curve.advantage(), max(w.delta(0.0) for w in ways))
    if often(0.5):
        upper("epsilon", curve.epsilon(delta=delta), max(_epsilon(w, delta) for w in ways))
    if often(0.2):
        upper("tpr", curve.tpr(fpr=alpha), 1 - min(w.beta(alpha) for w in ways))
    upper("loss_tail", curve.loss_tail(epsilon=epsilon), worst_tail)
    if often(0.5):
        lowest, beta = min(w.beta(alpha) for w in ways), curve.beta(alpha=alpha)
        report.check(case, "beta", lambda: at_most(beta, lowest), lambda: (beta, mp.nstr(lowest, 20), alpha))
    if often(0.5):
        least, rate = min(w.equal_error() for w in ways), curve.equal_error_rate()
        report.check(
            case,
            "equal_error_rate",
            lambda: at_most(rate, least) and (not case.exact or rate >= least - 1e-5),
            lambda: (rate, mp.nstr(least, 20)),
        )
    prior = float(rng.choice([rng.uniform(), 1e-6, 0.5]))
    upper("guess", curve.guess(prior=prior), max(w.guess(prior) for w in ways))
    for allowed in (0.0, 0.03) if often(0.3) else (0.0,):
        loss = max(w.quantile(allowed) for w in ways)
        truth = mpf(prior) / (prior + (1 - mpf(prior)) * mp.exp(-loss)) if mp.isfinite(loss) else mpf(1)
        upper("posterior", curve.posterior(prior=prior, delta=allowed), truth)
    largest = max(w.renyi(order) for w in ways)
    upper("renyi", curve.renyi(order=order), largest)
    if 1 <= order < math.inf and often(0.05):
        upper("zcdp", curve.zcdp(), largest / order)
    if often(0.3):
        gdp, mus = curve.gdp(), [w.gdp() for w in ways]
        report.check(case, "gdp", lambda: gdp >= max(mus) * (1 - 1e-9) - 1e-9, lambda: (gdp, mus))
    if often(0.1):
        upper("hellinger", curve.hellinger(), max(1 - mp.exp(-w.renyi(0.5) / 2) for w in ways))
    upper("chi_squared", curve.chi_squared(), max(mp.expm1(w.renyi(2.0)) for w in ways))
    means, squares, cubes = ([f(w) for w in ways] for f in (lambda w: w.renyi(1.0), lambda w: w.power(2), _cube))
    if case.listed:
        number("kl", curve.kl(), max(means))
        number("kappa2", curve.kappa2(), max(squares))
        number("kappa3", curve.kappa3(), max(cubes))
    mean, least_mean = curve.loss.mean, max(means) * (1 - mpf(NEAR)) - mpf(10) ** -13
    report.check(case, "loss", lambda: at_most(least_mean, mean), lambda: (mean, means))


def _cube(way: Ordered) -> mpf:
    return way.power(3)


def _limits(case: Case) -> tuple[float, mpf]:
    factors = case.factors or case.ways[:1]
    ways = factors, [f.back for f in factors]
    if any(mp.isinf(f.power(2)) for way in ways for f in way):
        return 0.0, mpf(0)  # no limit theorem: `clt` refuses, as it says
    return case.curve.clt().mu, max(limit(way) for way in ways)


def _epsilon(way: Ordered, delta: float) -> mpf:
    """The smallest ε >= 0 with δ(ε) <= delta: δ is linear in e^ε between losses."""
    if delta >= 1 or way.delta(0.0) <= delta:
        return mpf(0)
    known = sorted(((a / b, a, b) for a, b in way.numbers if b > 0 and a > b), reverse=True)
    first = mp.fsum(a for a, b in way.numbers if b == 0)
    second = mpf(0)
    if first > delta:
        return mp.inf
    for ratio, a, b in known:
        # Right of this ratio δ(x) = first - x second.
        if first - ratio * second > delta:
            break
        first, second = first + a, second + b
    return mp.log((first - mpf(delta)) / second) if second else mp.inf


def _compare_direction(name, direction, way, epsilon, alpha, order, drawn, bounds, number) -> None:  # type: ignore[no-untyped-def]
    bounds(f"{name}.delta_bounds", direction.delta_bounds(epsilon=epsilon), way.delta(epsilon), 1e-9)
    if drawn < 0.5:
        bounds(f"{name}.beta_bounds", direction.beta_bounds(alpha=alpha), way.beta(alpha), 1e-4)
    bounds(f"{name}.loss_tail_bounds", direction.loss_tail_bounds(epsilon=epsilon), way.tail(epsilon))
    bounds(f"{name}.renyi_bounds", direction.renyi_bounds(order=order), way.renyi(order))
    number(f"{name}.kl", direction.kl(), way.renyi(1.0))
    number(f"{name}.loss.mean", direction.loss.mean, way.renyi(1.0), 1e-3, 1e-9)


def _compare_polygon(case: Case, direction, way: Ordered, report: Report) -> None:  # type: ignore[no-untyped-def]
    alpha, beta = direction.polygon()
    for i in (len(alpha) // 3, len(alpha) // 2):
        a, b = float(alpha[i]), float(beta[i])
        truth = way.beta(a)
        report.check(case, "polygon", lambda b=b, t=truth: at_most(b, t), lambda b=b, t=truth: (b, mp.nstr(t, 20)))


def run(pairs: int, seed: int, told: Callable[[str], object] = lambda _: None) -> Report:
    """Draw and compare; every case has a generator of its own, so that it can be repeated alone."""
    report = Report(seed)
    with mp.workdps(40):
        for index in range(pairs):
            rng = np.random.default_rng([seed, index])
            case = random_case(rng)
            before = len(report.wrong)
            try:
                compare(case, rng, report)
            except Exception as problem:
                report.wrong.append((f"{case.kind}: raised", f"{type(problem).__name__} {problem} {case.curve!r}"))
            report.pairs += 1
            for view, text in report.wrong[before:]:
                told(f"[{seed}, {index}] {view}: {text}")
            if report.pairs % 100 == 0:
                told(f"seed {seed}: {report.pairs:,} pairs, {report.count:,} comparisons, {len(report.wrong)} wrong")
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=None)
    chosen = parser.parse_args(arguments)
    report = run(chosen.pairs, secrets.randbits(32) if chosen.seed is None else chosen.seed, print)
    print(
        f"seed {report.seed}: {report.pairs:,} pairs, {report.count:,} comparisons, {len(report.wrong)} disagreements"
    )
    print("  ".join(f"{view} {count:,}" for view, count in sorted(report.compared.items())))
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
