"""Bring your own mechanism: masses, densities, distribution functions and trade-off functions against independent answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product as pairs_of
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import special, stats

from deniable import curves
from deniable.errors import InvalidDistribution
from tests.wording import worded

Masses = list[Fraction]


def profile(p: Masses, q: Masses, x: Fraction) -> Fraction:
    """sup_S P(S) - x Q(S), exactly."""
    return sum((max(a - x * b, Fraction(0)) for a, b in zip(p, q, strict=True)), Fraction(0))


def repeated(p: Masses, count: int) -> Masses:
    result = [Fraction(1)]
    for _ in range(count):
        result = [a * b for a, b in pairs_of(result, p)]
    return result


def inside(bounds: tuple[float, float], exact: float, *, width: float, slack: float = 1e-15) -> None:
    low, high = bounds
    assert low <= high
    assert low <= exact + slack
    assert high >= exact - slack
    assert high - low <= width


# -- masses ----------------------------------------------------------------------------------------------------------


@st.composite
def laws(draw: st.DrawFn) -> tuple[Masses, Masses]:
    """Two distributions on up to four answers with denominator 32; zeros are likely, so infinite losses are too."""
    size = draw(st.integers(2, 4))
    both = []
    for _ in range(2):
        cuts = sorted(draw(st.lists(st.integers(0, 32), min_size=size - 1, max_size=size - 1)))
        both.append([Fraction(b - a, 32) for a, b in zip([0, *cuts], [*cuts, 32], strict=True)])
    return both[0], both[1]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(laws(), st.floats(-3, 3), st.integers(1, 4))
@example(([Fraction(1), Fraction(0)], [Fraction(0), Fraction(1)]), 0.5, 3)
@example(([Fraction(1, 2), Fraction(1, 2)], [Fraction(1, 2), Fraction(1, 2)]), 0.0, 3)
@example(([Fraction(1), Fraction(0)], [Fraction(31, 32), Fraction(1, 32)]), 0.0, 4)
def test_powers_of_masses_by_exact_enumeration(pair: tuple[Masses, Masses], epsilon: float, count: int) -> None:
    p, q = pair
    curve = curves.from_pmf([float(v) for v in p], [float(v) for v in q], tied=True) ** count
    x = Fraction(math.exp(epsilon))
    many_p, many_q = repeated(p, count), repeated(q, count)
    inside(curve.forward.delta_bounds(epsilon=epsilon), float(profile(many_p, many_q, x)), width=1e-11)
    inside(curve.backward.delta_bounds(epsilon=epsilon), float(profile(many_q, many_p, x)), width=1e-11)
    worse = max(profile(many_p, many_q, x), profile(many_q, many_p, x))
    inside(curve.delta_bounds(epsilon=epsilon), float(worse), width=1e-11)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(laws(), laws(), st.floats(-3, 3))
def test_products_of_different_masses_by_exact_enumeration(
    first: tuple[Masses, Masses], second: tuple[Masses, Masses], epsilon: float
) -> None:
    x = Fraction(math.exp(epsilon))
    a, b = (curves.from_pmf([float(v) for v in p], [float(v) for v in q], tied=True) for p, q in (first, second))
    p = [u * v for u, v in pairs_of(first[0], second[0])]
    q = [u * v for u, v in pairs_of(first[1], second[1])]
    inside((a * b).forward.delta_bounds(epsilon=epsilon), float(profile(p, q, x)), width=1e-11)
    turned_p = [u * v for u, v in pairs_of(first[0], second[1])]
    turned_q = [u * v for u, v in pairs_of(first[1], second[0])]
    inside((a * b.reversed()).forward.delta_bounds(epsilon=epsilon), float(profile(turned_p, turned_q, x)), width=1e-11)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(laws(), st.floats(0, 3))
def test_a_free_direction_covers_every_flip(pair: tuple[Masses, Masses], epsilon: float) -> None:
    """Each of three uses may compare (P, Q) or (Q, P): the free curve lies above all eight."""
    p, q = pair
    curve = curves.from_pmf([float(v) for v in p], [float(v) for v in q]) ** 3
    high = curve.delta(epsilon=epsilon)
    x = Fraction(math.exp(epsilon))
    for flips in pairs_of((False, True), repeat=3):
        first = [a * b * c for a, b, c in pairs_of(*((q if f else p) for f in flips))]
        second = [a * b * c for a, b, c in pairs_of(*((p if f else q) for f in flips))]
        assert high >= float(profile(first, second, x)) - 1e-15


def test_masses_of_bernoulli_with_many_uses() -> None:
    """n uses of Bern(0.6) against Bern(0.5), by the binomial sum in mpmath."""
    n, epsilon = 300, 2.0
    with mp.workdps(40):
        a, b, x = mp.mpf("0.625"), mp.mpf("0.5"), mp.e**epsilon
        terms = [
            mp.binomial(n, k) * max(a**k * (1 - a) ** (n - k) - x * b**k * (1 - b) ** (n - k), 0) for k in range(n + 1)
        ]
        exact = float(mp.fsum(terms))
    curve = curves.from_pmf([0.375, 0.625], [0.5, 0.5], tied=True) ** n
    inside(curve.forward.delta_bounds(epsilon=epsilon), exact, width=1e-9)
    wrong = curves.from_pmf([0.377, 0.623], [0.5, 0.5], tied=True) ** n
    assert wrong.forward.delta_bounds(epsilon=epsilon)[1] < exact


def test_a_sum_that_is_off_by_rounding_is_accepted() -> None:
    p = [0.1] * 10
    q = np.array([0.1 * (1 + 0.3 * (-1) ** i) for i in range(10)])
    assert curves.from_pmf(p, q).epsilon(delta=0.0) == pytest.approx(-math.log(0.7), rel=1e-9)


@pytest.mark.parametrize("bad", [5e-10, -5e-10])
def test_a_sum_that_is_off_by_more_than_rounding_does_not_lower_the_bound(bad: float) -> None:
    """Accepted within 1e-9: then the missing (or surplus) mass must not make the promise look better than the truth."""
    curve = curves.from_pmf([0.5 + bad, 0.5], [0.5, 0.5])
    assert curve.delta(epsilon=0.0) >= abs(bad) / 2


# -- densities -------------------------------------------------------------------------------------------------------

LINE = (-math.inf, math.inf)


def normal(shift: float, sigma: float = 1.0) -> Callable[[Any], Any]:
    return lambda y: np.exp(-0.5 * ((y - shift) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))


def double(shift: float) -> Callable[[Any], Any]:
    return lambda y: 0.5 * np.exp(-np.abs(y - shift))


def logistic(shift: float) -> Callable[[Any], Any]:
    return lambda y: special.expit(y - shift) * special.expit(shift - y)


def student(shift: float) -> Callable[[Any], Any]:
    """Student's t with 5 degrees of freedom."""
    return lambda y: 8 / (3 * math.pi * math.sqrt(5)) * (1 + (y - shift) ** 2 / 5) ** -3


@pytest.mark.parametrize("epsilon", [-2.0, -0.3, 0.0, 0.5, 1.0, 2.5])
def test_a_gaussian_density(epsilon: float) -> None:
    curve = curves.from_density(normal(1.0), normal(0.0), support=LINE)
    inside(curve.delta_bounds(epsilon=epsilon), curves.gaussian(mu=1).delta(epsilon=epsilon), width=2e-4, slack=1e-13)


@pytest.mark.parametrize("epsilon", [-1.5, -0.3, 0.0, 0.5, 0.99])
def test_a_laplace_density_with_its_kinks(epsilon: float) -> None:
    curve = curves.from_density(double(1.0), double(0.0), support=LINE, breaks=[0.0, 1.0])
    inside(curve.delta_bounds(epsilon=epsilon), curves.laplace(scale=1).delta(epsilon=epsilon), width=1e-4, slack=1e-13)


def test_a_laplace_density_is_pure_up_to_what_quadrature_can_see() -> None:
    curve = curves.from_density(double(1.0), double(0.0), support=LINE, breaks=[0.0, 1.0])
    low, high = curve.epsilon_bounds(delta=1e-6)
    assert low <= 1.0
    assert 1.0 - 1e-5 <= high <= 1.002


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 0.8])
def test_a_logistic_density(epsilon: float) -> None:
    """Logistic noise: the likelihood ratio is monotone, so the best test is y > t with F(t - 1) and F(t)."""
    curve = curves.from_density(logistic(1.0), logistic(0.0), support=LINE)
    t = np.linspace(-40, 40, 400_001)
    exact = float(np.max(special.expit(-(t - 1)) - math.exp(epsilon) * special.expit(-t)))
    inside(curve.forward.delta_bounds(epsilon=epsilon), exact, width=2e-4, slack=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.6])
def test_a_heavy_tailed_density(epsilon: float) -> None:
    """Student noise: the loss rises and falls again, so the best test is an interval."""
    curve = curves.from_density(student(1.0), student(0.0), support=LINE)
    x = math.exp(epsilon)
    # p > x q where (1 + y²/5) > x^(1/3) (1 + (y-1)²/5).
    c = x ** (1 / 3)
    roots = np.roots([c - 1, -2 * c, 6 * c - 5]).real if epsilon else np.array([0.5, math.inf])
    low, high = min(roots), max(roots)
    cdf = stats.t(5).cdf
    exact = float(cdf(high - 1) - cdf(low - 1) - x * (cdf(high) - cdf(low)))
    inside(curve.delta_bounds(epsilon=epsilon), exact, width=1e-3, slack=1e-12)


def test_a_tail_that_quadrature_cannot_reach_is_refused() -> None:
    """Cauchy noise has 6e-6 of its mass beyond 1e5: refused, not ignored."""
    with pytest.raises(InvalidDistribution, match="integrates to"):
        curves.from_density(
            lambda y: 1 / (math.pi * (1 + (y - 1) ** 2)), lambda y: 1 / (math.pi * (1 + y * y)), support=LINE
        )


def test_a_tail_that_the_support_leaves_out_counts_as_infinite_loss_or_is_refused() -> None:
    """Below -4.9, N(0, 1) has 4.79e-7 of its mass: so much δ remains at every ε. A millionth is the most."""
    cut = curves.from_density(normal(0.0, 1.0), normal(0.5, 1.0), support=(-4.9, 12.0), tied=True)
    left_out = float(stats.norm.cdf(-4.9))
    assert left_out <= cut.forward.delta_bounds(epsilon=60.0)[1] <= left_out * (1 + 1e-6)
    with pytest.raises(InvalidDistribution, match="integrates to"):
        curves.from_density(normal(0.0, 1.0), normal(0.5, 1.0), support=(-4.74, 12.0), tied=True)  # 1.07e-6


def test_densities_of_different_width() -> None:
    """N(0, 1) against N(0, 2²): the loss is bounded on one side, and the directions differ."""
    curve = curves.from_density(normal(0.0, 1.0), normal(0.0, 2.0), support=LINE, tied=True)
    with mp.workdps(30):
        r = mp.sqrt(mp.mpf(8) / 3 * mp.log(2))  # equal densities at ±r
        narrow, wide = (lambda s: mp.erf(r / (s * mp.sqrt(2))))(1), (lambda s: mp.erf(r / (s * mp.sqrt(2))))(2)
        exact = float(narrow - wide)
    inside(curve.forward.delta_bounds(epsilon=0.0), exact, width=2e-4, slack=1e-13)
    inside(curve.backward.delta_bounds(epsilon=0.0), exact, width=2e-4, slack=1e-13)
    assert curve.forward.delta_bounds(epsilon=math.log(2) + 1e-2)[1] <= 1e-9
    assert curve.backward.delta_bounds(epsilon=math.log(2) + 1e-2)[0] > 0.1


def test_uniform_densities_on_a_finite_support() -> None:
    def uniform(low: float) -> Callable[[Any], Any]:
        return lambda y: np.where((y > low) & (y < low + 1), 1.0, 0.0)

    curve = curves.from_density(uniform(0.25), uniform(0.0), support=(0.0, 1.25), breaks=[0.25, 1.0])
    inside(curve.delta_bounds(epsilon=0.0), 0.25, width=1e-9, slack=1e-12)
    inside(curve.delta_bounds(epsilon=5.0), 0.25, width=1e-9, slack=1e-12)


def test_two_percent_less_noise_is_noticed() -> None:
    """Negative control for the density tests."""
    curve = curves.from_density(normal(1.0, 0.98), normal(0.0, 0.98), support=LINE)
    with pytest.raises(AssertionError):
        inside(curve.delta_bounds(epsilon=1.0), curves.gaussian(mu=1).delta(epsilon=1.0), width=2e-4)


@pytest.mark.slow
def test_composed_densities_bracket_the_closed_form() -> None:
    curve = curves.from_density(normal(0.2), normal(0.0), support=LINE, tied=True) ** 25
    exact = curves.gaussian(mu=1).delta(epsilon=1.0)
    inside(curve.delta_bounds(epsilon=1.0), exact, width=0.02 * exact)


def test_a_break_that_is_not_named_does_not_make_the_bound_too_small() -> None:
    """A density that jumps inside a cell: quadrature disagrees with itself, and the doubt goes to the safe side."""

    def step(low: float) -> Callable[[Any], Any]:
        return lambda y: np.where((y > low) & (y < low + 1), 1.0, 0.0)

    with_breaks = curves.from_density(step(0.2503), step(0.0), support=(0.0, 1.2503), breaks=[0.2503, 1.0], cells=400)
    exact = 0.2503
    assert with_breaks.delta(epsilon=0.0) >= exact - 1e-12
    try:
        without = curves.from_density(step(0.2503), step(0.0), support=(0.0, 1.2503), cells=400)
    except InvalidDistribution:
        return
    assert without.delta(epsilon=0.0) >= exact - 1e-12


# -- distribution functions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [-1.0, 0.0, 0.7, 2.0])
def test_a_gaussian_by_its_cdf(epsilon: float) -> None:
    points = np.linspace(-8.5, 9.5, 3001)
    curve = curves.from_cdf(lambda y: special.ndtr(y - 1), special.ndtr, points=points.tolist())
    inside(curve.delta_bounds(epsilon=epsilon), curves.gaussian(mu=1).delta(epsilon=epsilon), width=2e-3, slack=1e-12)


def test_what_the_points_leave_out_counts_as_infinite_loss() -> None:
    curve = curves.from_cdf(lambda y: special.ndtr(y - 1), special.ndtr, points=np.linspace(-2, 3, 501).tolist())
    outside = float(special.ndtr(-2 - 1) + special.ndtr(-(3 - 1)))
    assert curve.forward.delta_bounds(epsilon=30.0)[1] >= outside
    assert curve.delta(epsilon=1.0) >= curves.gaussian(mu=1).delta(epsilon=1.0)


# -- trade-off functions ---------------------------------------------------------------------------------------------


def gaussian_tradeoff(mu: float) -> Callable[[Any], Any]:
    return lambda a: special.ndtr(-special.ndtri(a) - mu)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [-1.0, 0.0, 0.5, 2.0])
def test_a_gaussian_by_its_tradeoff_function(mu: float, epsilon: float) -> None:
    exact = curves.gaussian(mu=mu).delta(epsilon=epsilon)
    inside(curves.tradeoff(gaussian_tradeoff(mu)).delta_bounds(epsilon=epsilon), exact, width=1e-4, slack=1e-13)


@pytest.mark.parametrize("epsilon", [-3.0, -0.5, 0.0, math.log(2), 1.0, 4.0])
def test_a_quadratic_tradeoff_function(epsilon: float) -> None:
    """f(a) = (1-a)²: δ = 1 - x + x²/4 for x <= 2 for (P, Q), 1/(4x) for x >= 1/2 for (Q, P)."""
    x = math.exp(epsilon)
    curve = curves.tradeoff(lambda a: (1 - a) ** 2)
    ahead = 1 - x + x * x / 4 if x <= 2 else 0.0
    back = 1 / (4 * x) if x >= 0.5 else 1 - x
    inside(curve.backward.delta_bounds(epsilon=epsilon), ahead, width=2e-5, slack=1e-13)
    inside(curve.forward.delta_bounds(epsilon=epsilon), back, width=2e-5, slack=1e-13)
    inside(curve.delta_bounds(epsilon=epsilon), max(ahead, back), width=2e-5, slack=1e-13)


@pytest.mark.parametrize("alpha", [0.001, 0.1, 0.33, 0.5, 0.77, 0.95])
def test_the_tradeoff_function_is_read_back(alpha: float) -> None:
    curve = curves.tradeoff(lambda a: (1 - a) ** 2)
    inside(curve.forward.beta_bounds(alpha=alpha), (1 - alpha) ** 2, width=1e-5, slack=1e-12)
    inside(curve.backward.beta_bounds(alpha=alpha), 1 - math.sqrt(alpha), width=1e-5, slack=1e-12)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (1.0, 1e-3), (0.0, 0.2), (3.0, 1e-6)])
def test_the_tradeoff_function_of_approximate_dp(epsilon: float, delta: float) -> None:
    def f(a: Any) -> Any:
        return np.maximum(0.0, np.maximum(1 - delta - math.exp(epsilon) * a, math.exp(-epsilon) * (1 - delta - a)))

    curve, exact = curves.tradeoff(f), curves.approximate(epsilon=epsilon, delta=delta)
    for at in (0.0, 0.3, 0.9 * epsilon, epsilon + 0.5):
        low, high = curve.delta_bounds(epsilon=at)
        assert low <= exact.delta(epsilon=at) + 1e-12
        assert high >= exact.delta_bounds(epsilon=at)[0] - 1e-12
        assert high - low <= 1e-3


def test_a_tradeoff_function_may_be_slightly_off_by_rounding() -> None:
    curve = curves.tradeoff(lambda a: (1 - a) * (1 - 1e-14))
    assert curve.delta(epsilon=0.0) <= 1e-9


@pytest.mark.parametrize("shape", [1.5, 2.0, 5.0])
def test_a_tradeoff_function_and_its_mirror_image(shape: float) -> None:
    """f and f^-1 describe the same experiment with the roles swapped."""
    one = curves.tradeoff(lambda a: (1 - a) ** shape)
    other = curves.tradeoff(lambda a: 1 - a ** (1 / shape))
    for epsilon in (-1.0, 0.0, 1.0):
        low, high = one.forward.delta_bounds(epsilon=epsilon)
        mirror_low, mirror_high = other.backward.delta_bounds(epsilon=epsilon)
        assert low <= mirror_high
        assert mirror_low <= high
        assert high - low <= 1e-3


def test_two_uses_of_a_tradeoff_function() -> None:
    """Symmetrised first (the direction is free), then composed: δ2(x) = ∫ r δ(x/r) dQ(r) with dQ = δ'' on a fine grid."""

    def one(v: np.ndarray) -> np.ndarray:
        """The worse profile of f(a) = (1-a)²: 1 - v + v²/4 up to 2, 1/(4v) from 1/2, never below 1 - v."""
        ahead = np.where(v <= 2, 1 - v + v * v / 4, 0.0)
        return np.maximum(ahead, np.maximum(np.where(v >= 0.5, 0.25 / np.maximum(v, 1e-300), 1 - v), 1 - v))

    x = math.exp(0.7)
    grid = np.exp(np.linspace(math.log(1e-4), math.log(1e7), 400_001))
    mass = np.diff(np.diff(one(grid)) / np.diff(grid))
    estimate = float(np.sum(mass * grid[1:-1] * one(x / grid[1:-1])))
    low, high = (curves.tradeoff(lambda a: (1 - a) ** 2) ** 2).delta_bounds(epsilon=0.7)
    assert low <= estimate + 2e-5
    assert high >= estimate - 2e-5
    assert high - low <= 5e-3


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.0])
def test_the_pure_epsilon_of_two_densities_whose_ratio_is_bounded(scale: float) -> None:
    def laplace(at: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda y: np.exp(-np.abs(y - at) / scale) / (2 * scale)

    curve = curves.from_density(
        laplace(0.0), laplace(1.0), support=LINE, breaks=[0, 1], largest_loss=1 / scale, tied=True
    )
    assert curve.epsilon(delta=0.0) == pytest.approx(1 / scale, rel=1e-9)
    exact = curves.laplace(scale=scale)
    for epsilon in (0.0, 0.5 / scale, 0.9 / scale):
        inside(curve.delta_bounds(epsilon=epsilon), exact.delta(epsilon=epsilon), width=2e-3, slack=1e-12)
    assert (curve**50).epsilon(delta=1e-6) >= (exact**50).epsilon_bounds(delta=1e-6)[0]
    assert (curve**50).epsilon(delta=1e-6) <= (exact**50).epsilon(delta=1e-6) * 1.01
    with worded(InvalidDistribution):  # an ε that is too small by a millionth
        curves.from_density(
            laplace(0.0), laplace(1.0), support=LINE, breaks=[0, 1], largest_loss=(1 - 1e-6) / scale, tied=True
        )


def test_a_largest_loss_that_is_exceeded_is_refused() -> None:
    with worded(InvalidDistribution):
        curves.from_density(normal(0.0), normal(1.0), support=LINE, largest_loss=3.0)


def test_mass_that_was_not_found_has_the_largest_loss() -> None:
    """A law with mass 1e-6 outside the support that was named: it had been split so that δ(.05) was 57 % of the truth."""
    m, a = 0.1, 1e-6

    def step(weight: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda y: np.where(y < 0, weight, 1 - weight)

    curve = curves.from_density(step(a), step(a * math.exp(-m)), support=(-0.1, 1), breaks=[0], largest_loss=m)
    truth = a * -math.expm1(0.05 - m)
    assert truth <= curve.delta(epsilon=0.05) <= 1.01 * truth
    assert curve.delta_bounds(epsilon=0.05)[0] <= truth
