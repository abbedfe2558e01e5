"""Finite mechanisms as kernels, against exact enumeration in rational numbers."""

from __future__ import annotations

import itertools
import math
import secrets
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable import curves
from deniable.curves import Kernel
from deniable.errors import InvalidOperation, InvalidParameter
from tests.wording import worded

Row = list[Fraction]


def profile(p: Row, q: Row, x: Fraction) -> Fraction:
    """sup_S P(S) - x Q(S)."""
    return sum((max(a - x * b, Fraction(0)) for a, b in zip(p, q, strict=True)), Fraction(0))


def worst_profile(rows: list[Row], pairs: list[tuple[int, int]], x: Fraction) -> Fraction:
    ordered = pairs + [(j, i) for i, j in pairs]
    return max((profile(rows[i], rows[j], x) for i, j in ordered), default=max(1 - x, Fraction(0)))


def inside(bounds: tuple[float, float], exact: Fraction, width: float = 1e-12) -> None:
    """The bracket contains the exact number (up to one rounding of e^ε) and is narrow."""
    low, high = bounds
    assert low <= float(exact) + 1e-15
    assert high >= float(exact) - 1e-15
    assert high - low <= width


def matrix(rows: list[Row]) -> list[list[float]]:
    return [[float(v) for v in row] for row in rows]


@st.composite
def kernels(draw: st.DrawFn, answers: int | None = None) -> tuple[list[Row], list[tuple[int, int]]]:
    """Rows with denominators 64 (exact in floating point) and some neighbours."""
    count = draw(st.integers(2, 4))
    width = answers or draw(st.integers(2, 5))
    rows = []
    for _ in range(count):
        cuts = sorted(draw(st.lists(st.integers(0, 64), min_size=width - 1, max_size=width - 1)))
        rows.append([Fraction(b - a, 64) for a, b in zip([0, *cuts], [*cuts, 64], strict=True)])
    every = [(i, j) for i in range(count) for j in range(i + 1, count)]
    return rows, draw(st.lists(st.sampled_from(every), min_size=1, unique=True))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(kernels(), st.floats(-4, 4))
def test_the_curve_of_a_kernel_is_its_worst_pair(
    kernel: tuple[list[Row], list[tuple[int, int]]], epsilon: float
) -> None:
    rows, pairs = kernel
    curve = curves.from_kernel(matrix(rows), neighbours=pairs)
    inside(curve.delta_bounds(epsilon=epsilon), worst_profile(rows, pairs, Fraction(math.exp(epsilon))))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(kernels())
def test_pure_epsilon_of_a_kernel(kernel: tuple[list[Row], list[tuple[int, int]]]) -> None:
    rows, pairs = kernel
    ratios = []
    for i, j in pairs + [(j, i) for i, j in pairs]:
        for a, b in zip(rows[i], rows[j], strict=True):
            if a > 0:
                ratios.append(math.inf if b == 0 else float(a / b))
    exact = max(math.log(max(ratios)) if max(ratios) < math.inf else math.inf, 0.0)
    low, high = curves.from_kernel(matrix(rows), neighbours=pairs).epsilon_bounds(delta=0.0)
    assert low <= exact + 1e-12
    assert high >= exact - 1e-15
    if math.isfinite(exact):
        assert high <= exact + 1e-12
    else:
        assert high == math.inf


def polygon(rows: list[Row], pairs: list[tuple[int, int]]) -> list[tuple[Fraction, Fraction]]:
    """(likelihood ratio, Q-mass) of the worst profile: a convex polygon in x, exactly."""
    ordered = pairs + [(j, i) for i, j in pairs]
    kinks = {a / b for i, j in ordered for a, b in zip(rows[i], rows[j], strict=True) if b > 0} | {Fraction(0)}
    x = sorted(kinks)
    # Crossings of two profiles inside a cell, where both are straight lines.
    extra = set()
    for left, right in itertools.pairwise(x):
        values = {(profile(rows[i], rows[j], left), profile(rows[i], rows[j], right)) for i, j in ordered}
        for a0, a1 in values:
            for b0, b1 in values:
                if (a0 - b0) * (a1 - b1) < 0:
                    extra.add(left + (right - left) * (a0 - b0) / ((a0 - b0) - (a1 - b1)))
    x = sorted(kinks | extra)
    value = [worst_profile(rows, pairs, v) for v in x]
    slopes = [(b - a) / (w - v) for v, w, a, b in zip(x, x[1:], value, value[1:], strict=False)]
    before, after = [Fraction(-1), *slopes], [*slopes, Fraction(0)]
    return [(v, b - a) for v, a, b in zip(x, before, after, strict=True) if b > a]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(kernels(answers=3), st.floats(-2, 3))
def test_composition_of_kernel_curves_by_enumeration(
    kernel: tuple[list[Row], list[tuple[int, int]]], epsilon: float
) -> None:
    """Two uses: all pairs of kinks of the worst polygon, and the mass at infinity."""
    rows, pairs = kernel
    law = polygon(rows, pairs)
    infinity = 1 - sum(x * mass for x, mass in law)
    x = Fraction(math.exp(epsilon))
    exact = sum((m * n * max(a * b - x, Fraction(0)) for a, m in law for b, n in law), Fraction(0))
    exact += 1 - (1 - infinity) ** 2
    inside((curves.from_kernel(matrix(rows), neighbours=pairs) ** 2).delta_bounds(epsilon=epsilon), exact, 1e-9)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(kernels(answers=3), kernels(answers=2), st.floats(-2, 2))
def test_post_processing_by_a_kernel(
    first: tuple[list[Row], list[tuple[int, int]]], second: tuple[list[Row], list[tuple[int, int]]], epsilon: float
) -> None:
    rows, pairs = first
    after = (second[0] * 3)[:3]
    joined = [[sum((a * b[y] for a, b in zip(row, after, strict=True)), Fraction(0)) for y in range(2)] for row in rows]
    kernel = Kernel.of(matrix(rows), pairs).then(matrix(after))
    x = Fraction(math.exp(epsilon))
    inside(kernel.curve.delta_bounds(epsilon=epsilon), worst_profile(joined, pairs, x))
    assert kernel.curve.delta_bounds(epsilon=epsilon)[0] <= Kernel.of(matrix(rows), pairs).curve.delta(epsilon=epsilon)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(kernels(answers=2), st.data(), st.floats(-2, 2))
def test_products_and_mixtures_of_kernels(
    first: tuple[list[Row], list[tuple[int, int]]], data: st.DataObject, epsilon: float
) -> None:
    rows, pairs = first
    other = [data.draw(st.sampled_from(rows)) for _ in rows]
    a, b = Kernel.of(matrix(rows), pairs), Kernel.of(matrix(other), pairs)
    x = Fraction(math.exp(epsilon))
    product = [[u * v for u in p for v in q] for p, q in zip(rows, other, strict=True)]
    inside((a * b).curve.delta_bounds(epsilon=epsilon), worst_profile(product, pairs, x))
    mixed = [[(u + 3 * v) / 4 for u, v in zip(p, q, strict=True)] for p, q in zip(rows, other, strict=True)]
    inside(Kernel.mixture([0.25, 0.75], [a, b]).curve.delta_bounds(epsilon=epsilon), worst_profile(mixed, pairs, x))
    # The kernel of both answers is never worse than the product of the two curves, which allows adaptive choices.
    assert (a * b).curve.delta_bounds(epsilon=epsilon)[0] <= (a.curve * b.curve).delta(epsilon=epsilon) + 1e-12


def test_all_rows_are_neighbours_unless_said_otherwise() -> None:
    rows = [[0.5, 0.5], [0.25, 0.75], [0.125, 0.875]]
    assert curves.from_kernel(rows).epsilon(delta=0.0) == pytest.approx(math.log(4), rel=1e-12)
    near = curves.from_kernel(rows, neighbours=[(0, 1), (2, 1), (1, 2), (1, 1)])
    assert near.epsilon(delta=0.0) == pytest.approx(math.log(2), rel=1e-12)
    assert curves.from_kernel(rows, neighbours=[(1, 0), (1, 2)]) == near
    assert curves.from_kernel(rows, neighbours=[]) == curves.identity()
    assert curves.from_kernel(rows, neighbours=[(1, 1)]) == curves.identity()


def test_a_kernel_may_be_an_array_or_fractions() -> None:
    expected = curves.from_kernel([[0.75, 0.25], [0.25, 0.75]])
    assert curves.from_kernel(np.array([[0.75, 0.25], [0.25, 0.75]])) == expected
    assert curves.from_kernel([[Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)]]) == expected
    kernel = Kernel.of([[0.75, 0.25], [0.25, 0.75]])
    assert kernel == Kernel.of(np.array([[0.75, 0.25], [0.25, 0.75]]))
    assert hash(kernel) == hash(Kernel.of([[0.75, 0.25], [0.25, 0.75]]))
    assert kernel.matrix.shape == (2, 2)


def test_a_direction_that_is_lost_is_found_again() -> None:
    """Only dataset 0 can give answer 0, only dataset 1 answer 2: both directions have an infinite loss, of different mass."""
    curve = curves.from_kernel([[0.25, 0.75, 0.0], [0.0, 0.875, 0.125]])
    inside(curve.delta_bounds(epsilon=20.0), Fraction(1, 4))
    assert curve.epsilon(delta=0.24) == math.inf
    assert curve.epsilon(delta=0.26) < 1


def test_the_enumeration_would_notice_a_wrong_kernel() -> None:
    """Negative control: one probability moved by 2 %."""
    rows = [[Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)]]
    wrong = curves.from_kernel([[0.765, 0.235], [0.25, 0.75]])
    with pytest.raises(AssertionError):
        inside(wrong.delta_bounds(epsilon=0.5), worst_profile(rows, [(0, 1)], Fraction(math.exp(0.5))))


# -- actions and Blackwell's theorem ---------------------------------------------------------------------------------


def test_a_kernel_acts_on_measures_and_on_functions():
    kernel = Kernel.of([[0.75, 0.25, 0.0], [0.25, 0.25, 0.5]])
    assert kernel([0.4, 0.6]) == pytest.approx([0.45, 0.25, 0.3])
    assert kernel.mean([0.0, 1.0, 2.0]) == pytest.approx([0.25, 1.25])
    # <μM, f> = <μ, Mf>.
    assert kernel([0.4, 0.6]) @ np.array([3.0, -1.0, 2.0]) == pytest.approx(
        np.array([0.4, 0.6]) @ kernel.mean([3.0, -1.0, 2.0])
    )
    with pytest.raises(InvalidParameter, match="2 datasets"):
        kernel([1.0])
    with pytest.raises(InvalidParameter, match="3 answers"):
        kernel.mean([1.0])


def test_a_convolution_shifts_one_law():
    kernel = Kernel.convolution([0.25, 0.5, 0.25], [0, 1])
    assert kernel.matrix == pytest.approx(np.array([[0.25, 0.5, 0.25, 0], [0, 0.25, 0.5, 0.25]]))


def test_blackwells_garbling_of_random_kernels():
    """Post-process a random kernel: a garbling is found, whichever it is, and it gives the same answers."""
    seed = secrets.randbits(64)
    rng = np.random.default_rng(seed)
    for _ in range(30):
        datasets, answers, after = (int(n) for n in rng.integers(2, 6, size=3))
        kernel = Kernel.of(rng.dirichlet(np.ones(answers), size=datasets))
        processed = kernel.then(rng.dirichlet(np.ones(after), size=answers))
        found = kernel.garbling(processed)
        assert np.max(np.abs(kernel.then(found).matrix - processed.matrix)) <= 1e-9, f"seed {seed}"
        assert processed.curve <= kernel.curve, f"seed {seed}"


def test_blackwells_theorem_for_two_datasets():
    """R exists exactly if the trade-off function of the first lies below: on random pairs, both ways (brute force)."""
    seed = secrets.randbits(64)
    rng = np.random.default_rng(seed)
    seen = set()
    for _ in range(60):
        first, second = (rng.dirichlet(np.ones(3), size=2) for _ in range(2))
        if rng.uniform() < 0.5:
            second = 0.55 * second.mean(axis=0) + 0.45 * second  # nearer to each other, so often less revealing
        ratios = np.concatenate([m[0] / m[1] for m in (first, second)])
        gaps = [
            float(np.sum(np.maximum(first[0] - x * first[1], 0)) - np.sum(np.maximum(second[0] - x * second[1], 0)))
            for x in ratios
        ]
        if -1e-6 < min(gaps) < -1e-12:
            continue  # too near to tell apart
        below = min(gaps) >= -1e-12
        seen.add(below)
        if below:
            Kernel.of(first).garbling(Kernel.of(second))
        else:
            with pytest.raises(InvalidOperation, match="differs by"):
                Kernel.of(first).garbling(Kernel.of(second))
    assert seen == {True, False}, f"seed {seed}"


@pytest.mark.parametrize("more", [1e-2, 1e-4, 1e-6])
def test_nothing_makes_an_answer_a_little_more_telling(more: float) -> None:
    """Two coins, of ε = 1 and of a little more: from the second to the first there is a post-processing, and back the
    nearest one is to do nothing.
    """
    one, two = (Kernel.of([[p, 1 - p], [1 - p, p]]) for p in (1 / (1 + math.exp(-e)) for e in (1.0, 1.0 + more)))
    kept = two.garbling(one).matrix[0, 0]
    p, better = one.matrix[0, 0], two.matrix[0, 0]
    assert kept == pytest.approx((p + better - 1) / (2 * better - 1), abs=1e-8)
    with worded(InvalidOperation) as refused:
        one.garbling(two)
    assert f" {better - p:.3g} " in str(refused.value)


def _random_rows(rng: np.random.Generator, datasets: int) -> list[list[float]]:
    return [row.tolist() for row in rng.dirichlet(np.ones(4), size=datasets)]


def _divergence(p: list[float], q: list[float], order: float) -> float:
    return math.log(math.fsum(a**order * b ** (1 - order) for a, b in zip(p, q, strict=True))) / (order - 1)


def _miss(p: list[float], q: list[float], alpha: float) -> float:
    """T(p, q)(α) by sorting the answers."""
    left, hits = alpha, 0.0
    for a, b in sorted(zip(p, q, strict=True), key=lambda pair: -pair[1] / pair[0]):
        share = min(1.0, left / a)
        left, hits = left - share * a, hits + share * b
    return 1 - hits


@pytest.mark.parametrize("_", range(6))
def test_one_pair_of_datasets_keeps_its_two_directions(_: int) -> None:
    """The curve of one pair was the hull of both directions: its Rényi divergences were up to 20 % too large, and so was
    the certified lower bound of them.
    """
    seed = secrets.randbits(32)
    p, q = _random_rows(np.random.default_rng(seed), 2)
    curve = Kernel.of([p, q]).curve
    for order in (0.5, 2.0, 7.0):
        truth = max(_divergence(p, q, order), _divergence(q, p, order))
        low, high = (
            max(bounds)
            for bounds in zip(*(d.renyi_bounds(order=order) for d in (curve.forward, curve.backward)), strict=True)
        )
        assert low <= truth * (1 + 1e-12), seed
        assert high == pytest.approx(truth, rel=1e-5), seed
    for alpha in (0.05, 0.3, 0.6):
        assert curve.beta(alpha=alpha) == pytest.approx(min(_miss(p, q, alpha), _miss(q, p, alpha)), abs=1e-9), seed
        assert curve.forward.beta_bounds(alpha=alpha)[0] == pytest.approx(_miss(p, q, alpha), abs=1e-9), seed
    assert curve.forward.kl() == pytest.approx(math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True))), seed
    # A direction that may flip: products take the worse one of each factor, as those of from_pmf do.
    expected = (curves.from_pmf(p, q) ** 3).delta(epsilon=0.5)
    assert (curve**3).delta(epsilon=0.5) == pytest.approx(expected, rel=1e-12), seed


@pytest.mark.parametrize("_", range(6))
def test_renyi_of_several_pairs_is_the_largest_of_them(_: int) -> None:
    seed = secrets.randbits(32)
    rows = _random_rows(np.random.default_rng(seed), 3)
    curve = Kernel.of(rows, neighbours=[(0, 1), (1, 2)]).curve
    for order in (0.5, 0.9, 1.5, 4.0):
        truth = max(_divergence(rows[i], rows[j], order) for i, j in ((0, 1), (1, 0), (1, 2), (2, 1)))
        low, high = curve.forward.renyi_bounds(order=order)
        assert low <= truth * (1 + 1e-12), seed
        assert high == pytest.approx(truth, rel=1e-5), seed
        assert (curve**5).renyi(order=order) == pytest.approx(5 * truth, rel=1e-5), seed


@pytest.mark.parametrize("order", [0.5, 0.9, 1.5, 4.0])
def test_a_divergence_of_the_worst_of_several_is_the_largest_of_theirs(order: float) -> None:
    """Below order 1 it was that of the worst profile: up to a third too large, and larger than at orders above 1."""
    seed = secrets.randbits(32)
    p, q, r, s = _random_rows(np.random.default_rng(seed), 4)
    one, other = curves.from_pmf(p, q), curves.from_pmf(r, s)
    ways = {
        one.symmetrized(): [(p, q), (q, p)],
        curves.worst_of(one, other): [(p, q), (q, p), (r, s), (s, r)],
        curves.worst_of(one, other).symmetrized(): [(p, q), (q, p), (r, s), (s, r)],
    }
    for curve, pairs in ways.items():
        truth = max(_divergence(a, b, order) for a, b in pairs)
        low = max(direction.renyi_bounds(order=order)[0] for direction in (curve.forward, curve.backward))
        assert low <= truth * (1 + 1e-12), seed
        assert curve.renyi(order=order) == pytest.approx(truth, rel=1e-5), seed
        assert curve.renyi(order=order) >= truth * (1 - 1e-12), seed
    forward = curves.worst_of(one, other).forward.renyi_bounds(order=order)
    assert forward[1] == pytest.approx(max(_divergence(p, q, order), _divergence(r, s, order)), rel=1e-5), seed
