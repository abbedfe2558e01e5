"""What Laplace and Gaussian noise promise: the two lemmas in rational arithmetic, and the curves that follow.

The references (`lattice_laws`) are sums at 50 digits.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable import curves
from deniable.errors import InvalidParameter
from deniable.mechanisms import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from deniable.mechanisms.noise_steps import FINENESS
from deniable.units import Sensitivity, Unit
from tests.mechanisms import lattice_laws as laws
from tests.mechanisms.cases import REAL
from tests.wording import worded

# -- the two lemmas --------------------------------------------------------------------------------------------------


def pair(r: Fraction, shift: int) -> dict[int, tuple[Fraction, Fraction]]:
    """P and Q of discrete Laplace noise with ratio r at 0 and at `shift`, by outcome; both tails are lumped exactly."""
    base = (1 - r) / (1 + r)
    table = {y: (base * r ** abs(y), base * r ** abs(y - shift)) for y in range(1, shift)}
    tail = 1 / (1 + r)  # P(Z <= 0)
    table[0] = (tail, tail * r**shift)
    table[shift] = (tail * r**shift, tail)
    return table


def profile(tables: list[dict[int, tuple[Fraction, Fraction]]], x: Fraction) -> Fraction:
    """δ at e^ε = x of independent pairs, exactly."""
    joint = {(): (Fraction(1), Fraction(1))}
    for table in tables:
        joint = {(*k, y): (p * a, q * b) for k, (p, q) in joint.items() for y, (a, b) in table.items()}
    return sum((max(Fraction(0), p - x * q) for p, q in joint.values()), Fraction(0))


@pytest.mark.parametrize("r", [Fraction(1, 10), Fraction(1, 2), Fraction(9, 10), Fraction(99, 100)])
def test_lemma_a_a_vector_is_never_easier_to_tell_apart_than_one_shift(r: Fraction) -> None:
    for shifts in [(1, 1), (1, 2), (2, 2), (1, 4), (3, 2), (1, 1, 1), (2, 1, 3)]:
        whole = sum(shifts)
        for j in range(-2 * whole - 2, 2 * whole + 3):
            x = r**-j
            for point in (x, x * Fraction(11, 10)):
                split = profile([pair(r, m) for m in shifts], point)
                assert split <= profile([pair(r, whole)], point)


def test_lemma_a_can_fail() -> None:
    """Negative control: one shift less does not dominate."""
    r = Fraction(1, 2)
    assert profile([pair(r, 1), pair(r, 1)], Fraction(3, 2)) > profile([pair(r, 1)], Fraction(3, 2))


@pytest.mark.slow
@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(5, 2), Fraction(40)])
@pytest.mark.parametrize("shift", [1, 2, 7])
def test_lemma_b_the_lattice_is_below_the_line_of_a_slightly_larger_shift(scale: Fraction, shift: int) -> None:
    r = mpmath.exp(-1 / laws.number(scale))
    sharp = shift / laws.number(scale) + 2 * mpmath.log(mpmath.cosh(1 / (2 * laws.number(scale))))
    assert sharp <= shift / laws.number(scale) + 1 / (4 * laws.number(scale) ** 2)
    reached = False
    for i in range(-400, 401):
        epsilon = sharp * i / 400
        x = mpmath.exp(epsilon)
        tail = 1 / (1 + r)
        p = [tail, *((1 - r) / (1 + r) * r**y for y in range(1, shift)), tail * r**shift]
        lattice = mpmath.fsum(max(0, a - x * b) for a, b in zip(p, reversed(p), strict=True))
        line = 1 - mpmath.exp((epsilon - sharp) / 2)
        assert lattice <= line + mpmath.mpf(10) ** -40
        reached |= line - lattice < line * mpmath.mpf("1e-3")
    assert reached, "the bound is sharp"


# -- curves ----------------------------------------------------------------------------------------------------------


def test_whole_numbers_have_the_curve_of_the_lattice() -> None:
    assert Laplace(sensitivity=1, epsilon=0.5).curve == curves.discrete_laplace(scale=2)
    assert Laplace(sensitivity=3, scale=6).curve == curves.discrete_laplace(scale=6, sensitivity=3)
    assert DiscreteLaplace(sensitivity=3, scale=6).curve == Laplace(sensitivity=3, scale=6).curve
    assert DiscreteLaplace(sensitivity=2.0, scale=6).curve == curves.discrete_laplace(scale=6, sensitivity=2)
    assert Gaussian(sensitivity=1, sigma=2).curve == curves.gaussian(sigma=2)


def test_real_numbers_have_the_curve_of_the_textbook() -> None:
    assert Laplace(sensitivity=1.0, epsilon=0.5).curve == curves.laplace(scale=2)
    assert Laplace(sensitivity=0.5, scale=2).curve == curves.laplace(scale=4)
    assert Gaussian(sensitivity=0.5, sigma=2).curve == curves.gaussian(sigma=4)
    assert Gaussian(sensitivity=0.5, mu=0.3).curve == curves.gaussian(mu=0.3)


@pytest.mark.parametrize("mechanism", [m for m in REAL if isinstance(m, Laplace)])
def test_the_steps_keep_the_promise_with_all_roundings_in_rational_arithmetic(mechanism: Laplace) -> None:
    step, width = mechanism.spacing, Fraction(mechanism.width)
    count = mechanism.dimension or 1
    moved = math.floor(mechanism.sensitivity / step) + count
    spent = moved / width + 1 / (4 * width * width)
    promised = Fraction(mechanism.curve.epsilon(delta=0))
    assert spent <= promised
    # ... and the noise is hardly more than the promise needs.
    assert spent * Fraction(1 + 10**-6) > promised
    assert 2**FINENESS <= width < 2 ** (FINENESS + 2)


@pytest.mark.parametrize("mechanism", [m for m in REAL if isinstance(m, Gaussian)])
def test_the_gaussian_steps_keep_the_promise_with_all_roundings(mechanism: Gaussian) -> None:
    count = mechanism.dimension or 1
    moved = mechanism.sensitivity / mechanism.spacing
    promised = Fraction(mechanism.curve.gdp())
    # (Δ/s + √d)/σ <= μ, squared away from the root.
    room = promised * Fraction(mechanism.width) - moved
    assert room > 0
    assert room * room >= count
    assert moved * Fraction(1 + 10**-6) > promised * Fraction(mechanism.width) - math.isqrt(count) - 1


def test_rounding_moves_two_reals_apart_by_one_step_at_most_and_that_happens() -> None:
    def steps(x: float) -> int:
        return round(x)

    gaps = {steps(0.5) - steps(1.5): 1.0, steps(0.49999) - steps(0.50001): 0.00002}
    for gap, distance in gaps.items():
        assert abs(gap) <= math.floor(distance) + 1
    assert steps(1.5) - steps(0.5) == 2, "half to even: a distance of 1 may become 2"


@given(st.floats(-1e6, 1e6), st.floats(0, 10), st.integers(-3, 3))
@settings(max_examples=300, deadline=None)
def test_rounded_reals_differ_by_no_more_than_counted(x: float, distance: float, exponent: int) -> None:
    y = x + distance
    step = Fraction(2) ** exponent
    apart = abs(round(Fraction(y) / step) - round(Fraction(x) / step))
    assert apart <= math.floor((Fraction(y) - Fraction(x)) / step) + 1


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1 / 3, 0.7, 1.0, 2.5, 1e-3, 40.0])
@pytest.mark.parametrize("sensitivity", [1, 2, 3, 7, 1.0, 0.1])
def test_asking_for_an_epsilon_gives_no_more_than_it(epsilon: float, sensitivity: float) -> None:
    found = Laplace(sensitivity=sensitivity, epsilon=epsilon).curve.epsilon(delta=0)
    assert epsilon * (1 - 1e-12) < found <= epsilon


def test_an_epsilon_that_is_no_float_is_rounded_down() -> None:
    third = Fraction(1, 3)
    assert Laplace(sensitivity=1.0, epsilon=third).curve.epsilon(delta=0) <= third
    assert Laplace(sensitivity=1, epsilon=third).curve.epsilon(delta=0) <= third
    assert Laplace(sensitivity=1, epsilon=Decimal("0.25")).curve == curves.discrete_laplace(scale=4)


@pytest.mark.parametrize(
    "make",
    [
        lambda **k: Laplace(sensitivity=1.0, **k),
        lambda **k: Laplace(sensitivity=2, **k),
        lambda **k: Gaussian(sensitivity=1.0, **k),
        lambda **k: Gaussian(sensitivity=2, **k),
        lambda **k: DiscreteGaussian(sensitivity=1, **k),
    ],
)
def test_epsilon_and_delta_are_met_from_the_safe_side(make: Any) -> None:
    for epsilon, delta in [(0.5, 1e-3), (1.0, 1e-6)]:
        curve = make(epsilon=epsilon, delta=delta).curve
        assert curve.delta(epsilon=epsilon) <= delta
        assert curve.delta(epsilon=epsilon * (1 - 1e-5)) > delta * (1 - 1e-5)


def test_mu_is_met_from_the_safe_side() -> None:
    assert Laplace(sensitivity=1.0, mu=0.5).curve.gdp() <= 0.5
    assert Laplace(sensitivity=2, mu=0.5).curve.gdp() <= 0.5
    assert Gaussian(sensitivity=1.0, mu=0.5).curve.gdp() == 0.5
    assert DiscreteGaussian(sensitivity=2, rho=0.125).curve.zcdp() == 0.125


def test_large_whole_sensitivities_use_the_line() -> None:
    many = Laplace(sensitivity=10**6, epsilon=0.5)
    assert many.curve == curves.laplace(scale=2)
    width = Fraction(many.width)
    assert 10**6 / width + 1 / (4 * width * width) <= Fraction(1, 2)


def test_a_discrete_gaussian_vector_has_the_worst_of_its_shifts() -> None:
    noisy = DiscreteGaussian(sensitivity=2, sigma=3, dimension=9)
    one, two = curves.discrete_gaussian(sigma=3), curves.discrete_gaussian(sigma=3, sensitivity=2)
    assert noisy.curve == curves.worst_of(two, one**4)
    assert DiscreteGaussian(sensitivity=2, sigma=3, dimension=1).curve == two
    assert DiscreteGaussian(sensitivity=2, sigma=3).curve == two
    assert DiscreteGaussian(sensitivity=math.sqrt(2) * 1.0000001, sigma=3, dimension=2).curve == one**2
    assert DiscreteGaussian(sensitivity=100, sigma=200, dimension=2).curve == curves.zcdp(rho=1 / 8)
    # Every shift with ‖v‖² <= 4, from sums at 50 digits.
    law = laws.discrete_gaussian(3, 25)
    for shift in [(2,), (1, 1), (1,)]:
        p = laws.together(*(law for _ in shift))
        q = laws.together(*(laws.shifted(law, v) for v in shift))
        for epsilon in (0.0, 0.5, 1.5):
            assert float(laws.delta(p, q, epsilon)) <= noisy.curve.delta(epsilon=epsilon) * (1 + 1e-9)


def test_a_sensitivity_object_gives_the_norm_that_is_needed() -> None:
    moved = Sensitivity.histogram(Unit.replaced_row())
    assert Laplace(sensitivity=moved, epsilon=1).sensitivity == 2
    assert Gaussian(sensitivity=moved, sigma=1).sensitivity == Fraction(math.sqrt(2))
    assert Gaussian(sensitivity=Sensitivity(l1=3.0), sigma=1).sensitivity == 3
    with worded(InvalidParameter):
        Laplace(sensitivity=Sensitivity(l2=1.0), epsilon=1)
    with worded(InvalidParameter):
        Gaussian(sensitivity=Sensitivity(linf=1.0), sigma=1)
