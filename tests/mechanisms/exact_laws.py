"""References that share no code with the library: laws of noisy comparisons at 60 digits, and a chi-square test.

Laplace and exponential densities and distribution functions are, between the centres, sums of c e^(rx) with rational r.
So are their products, and their integrals are closed forms: no quadrature, no truncation.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from mpmath import mp, mpf
from scipy import stats

mp.dps = 60

FALSE_ALARM = 1e-9


def number(value: Any) -> mpf:
    exact = Fraction(value)
    return mpf(exact.numerator) / exact.denominator


# -- sums of exponentials --------------------------------------------------------------------------------------------

Sum = dict[Fraction, mpf]
"""x -> Σ c e^(rx), as {r: c}."""

ONE: Sum = {Fraction(0): mpf(1)}


def times(one: Sum, other: Sum) -> Sum:
    result: Sum = {}
    for (r, c), (s, d) in itertools.product(one.items(), other.items()):
        result[r + s] = result.get(r + s, mpf(0)) + c * d
    return result


def minus(one: Sum, other: Sum) -> Sum:
    return {r: one.get(r, mpf(0)) - other.get(r, mpf(0)) for r in {*one, *other}}


def product(factors: Iterable[Sum]) -> Sum:
    result = ONE
    for factor in factors:
        result = times(result, factor)
    return result


def integral(terms: Sum, low: Fraction | None, high: Fraction | None) -> mpf:
    """From low to high; None is an infinite end."""
    total = mpf(0)
    for r, c in terms.items():
        if c == 0:
            continue
        if r == 0:
            if low is None or high is None:
                raise AssertionError("the integrand does not vanish at infinity")
            total += c * number(high - low)
            continue
        for end, sign in ((high, 1), (low, -1)):
            if end is None:
                assert (r < 0) == (sign > 0), "the integrand grows at infinity"
            else:
                total += sign * c / number(r) * mpmath.exp(number(r * end))
    return total


class Noisy:
    """A number plus Laplace noise, or plus exponential noise: its density and distribution function on an interval."""

    def __init__(self, centre: Any, scale: Any, kind: str) -> None:
        self.centre, self.scale, self.kind = Fraction(centre), Fraction(scale), kind

    def parts(self, is_above: bool) -> tuple[Sum, Sum]:
        """(density, distribution function), right or left of the centre."""
        r, b = 1 / self.scale, number(self.scale)
        up, down = mpmath.exp(number(r * self.centre)), mpmath.exp(-number(r * self.centre))
        if self.kind == "laplace":
            if is_above:
                return {-r: up / (2 * b)}, {Fraction(0): mpf(1), -r: -up / 2}
            return {r: down / (2 * b)}, {r: down / 2}
        if is_above:
            return {-r: up / b}, {Fraction(0): mpf(1), -r: -up}
        return {}, {}


def expectation(numbers: Sequence[Noisy], integrand: Callable[[list[tuple[Sum, Sum]]], Sum]) -> mpf:
    """∫ integrand(densities and distribution functions of all numbers at x) dx."""
    cuts: list[Fraction | None] = [None, *sorted({n.centre for n in numbers}), None]
    total = mpf(0)
    for low, high in itertools.pairwise(cuts):
        parts = [n.parts(low is not None and n.centre <= low) for n in numbers]
        total += integral(integrand(parts), low, high)
    return total


# -- laws ------------------------------------------------------------------------------------------------------------


def softmax(scores: Sequence[Any], scale: Any) -> list[mpf]:
    weights = [mpmath.exp(number(Fraction(u) / Fraction(scale))) for u in scores]
    return [w / mpmath.fsum(weights) for w in weights]


def largest(scores: Sequence[Any], scale: Any, kind: str) -> list[mpf]:
    """The law of the index of the largest score plus noise."""
    numbers = [Noisy(u, scale, kind) for u in scores]

    def wins(i: int) -> Callable[[list[tuple[Sum, Sum]]], Sum]:
        return lambda parts: product(f if j == i else c for j, (f, c) in enumerate(parts))

    return [expectation(numbers, wins(i)) for i in range(len(numbers))]


def largest_two(scores: Sequence[Any], scale: Any, kind: str) -> dict[tuple[int, int], mpf]:
    """The law of the indices of the two largest scores plus noise, in order."""
    numbers = [Noisy(u, scale, kind) for u in scores]

    def wins(i: int, j: int) -> Callable[[list[tuple[Sum, Sum]]], Sum]:
        def integrand(parts: list[tuple[Sum, Sum]]) -> Sum:
            return product(f if k == j else minus(ONE, c) if k == i else c for k, (f, c) in enumerate(parts))

        return integrand

    return {(i, j): expectation(numbers, wins(i, j)) for i, j in itertools.permutations(range(len(numbers)), 2)}


def flips(scores: Sequence[Any], scale: Any) -> list[mpf]:
    """Permute and flip, from its definition: all orders, one by one."""
    top = max(Fraction(u) for u in scores)
    heads = [mpmath.exp(number((Fraction(u) - top) / Fraction(scale))) for u in scores]
    law = [mpf(0)] * len(scores)
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        left = mpf(1) / len(orders)
        for i in order:
            law[i] += left * heads[i]
            left *= 1 - heads[i]
    return law


def threshold(
    asked: Sequence[Any], *, at: Any, threshold_scale: Any, answer_scale: Any, positives: int
) -> dict[tuple[bool, ...], mpf]:
    """The law of the answers of a threshold mechanism to a fixed list of questions (shorter if it was spent)."""
    numbers = [Noisy(at, threshold_scale, "laplace"), *(Noisy(v, answer_scale, "laplace") for v in asked)]
    law = {}
    for answers in _answers(len(asked), positives):

        def integrand(parts: list[tuple[Sum, Sum]], answers: tuple[bool, ...] = answers) -> Sum:
            asked_parts = parts[1 : 1 + len(answers)]
            factors = [minus(ONE, c) if a else c for a, (_, c) in zip(answers, asked_parts, strict=True)]
            return product([parts[0][0], *factors])

        law[answers] = expectation(numbers, integrand)
    return law


def _answers(count: int, positives: int) -> list[tuple[bool, ...]]:
    """Every possible list of answers: it ends with the last positive."""
    found = []
    for answers in itertools.product((False, True), repeat=count):
        ends = [i for i in range(count) if sum(answers[: i + 1]) == positives]
        found.append(answers[: ends[0] + 1] if ends else answers)
    return list(dict.fromkeys(found))


# -- losses ----------------------------------------------------------------------------------------------------------


def losses(p: Any, q: Any) -> list[mpf]:
    """log p/q for every outcome."""
    if isinstance(p, Mapping):
        p, q = list(p.values()), [q[key] for key in p]
    return [mpmath.log(a / b) for a, b in zip(p, q, strict=True)]


def delta(p: Sequence[mpf], q: Sequence[mpf], epsilon: Any) -> mpf:
    """Σ (p - e^ε q)₊."""
    factor = mpmath.exp(number(epsilon))
    return mpmath.fsum(max(a - factor * b, mpf(0)) for a, b in zip(p, q, strict=True))


def worst_delta(p: Any, q: Any, epsilon: Any) -> float:
    """δ(ε) of two laws, lists or dicts of masses, in the worse direction; rounded to the nearest float."""
    if isinstance(p, Mapping):
        p, q = list(p.values()), [q[key] for key in p]
    return float(max(delta(p, q, epsilon), delta(q, p, epsilon)))


def neighbours(centre: int, count: int, moves: Sequence[int]) -> Iterable[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All pairs of whole-number score vectors with scores 0 to `centre` whose entries differ by one of `moves`."""
    for scores in itertools.product(range(centre + 1), repeat=count):
        for move in itertools.product(moves, repeat=count):
            yield scores, tuple(u + m for u, m in zip(scores, move, strict=True))


# -- statistics ------------------------------------------------------------------------------------------------------


def chi_square(counts: Sequence[int], law: Sequence[Any]) -> float:
    """Pearson's statistic divided by its critical value at a false alarm of 1e-9: above 1 the law is rejected.

    Outcomes expected fewer than 20 times are pooled, so that the chi-square approximation holds in the far tail too.
    """
    total = sum(counts)
    expected = np.array([float(p) * total for p in law])
    observed = np.array(counts, dtype=float)
    assert abs(expected.sum() / total - 1) < 1e-9
    rare = expected < 20
    if rare.any():
        expected = np.append(expected[~rare], expected[rare].sum())
        observed = np.append(observed[~rare], observed[rare].sum())
        if expected[-1] < 20:  # too few even together: join them to the largest
            place = int(np.argmax(expected[:-1]))
            expected[place] += expected[-1]
            observed[place] += observed[-1]
            expected, observed = expected[:-1], observed[:-1]
    statistic = float(np.sum((observed - expected) ** 2 / expected))
    return statistic / float(stats.chi2.isf(FALSE_ALARM, len(expected) - 1))


def rejects(counts: Sequence[int], wrong: Sequence[Any], truth: Sequence[Any]) -> bool:
    """Whether the chi-square test rejects a wrong law, having checked that it must: had the counts come from the truth
    many times over, all but one in a billion of them would be rejected (six standard deviations).
    """
    p, q = (np.array([float(v) for v in law]) for law in (truth, wrong))
    centre = np.sqrt(sum(counts) * np.sum((p - q) ** 2 / q))
    assert centre > np.sqrt(stats.chi2.isf(FALSE_ALARM, len(q) - 1)) + 6, "too few draws for this power"
    return chi_square(counts, wrong) > 1
