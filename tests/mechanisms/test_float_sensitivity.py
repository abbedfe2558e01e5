"""A sensitivity that was computed in floats buys the noise of what was meant: drawn widths and claimed curves against
direct sums over the law of the noise.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from deniable import curves
from deniable.errors import InvalidParameter
from deniable.mechanisms import (
    AboveThreshold,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    Histogram,
    Laplace,
    PiecewiseExponential,
    Staircase,
)
from deniable.units import Sensitivity, Unit
from tests.wording import worded

BELOW_8 = (0.1 + 0.7) * 10


def delta_of_ones(count: int, sigma: float, epsilon: float) -> float:
    """δ(ε) of discrete Gaussian noise on a vector that moves by (1, ..., 1), summed directly: the loss at z is
    (count − 2 Σz)/2σ², so only the sum of the coordinates counts.
    """
    far = math.ceil(12 * sigma)
    one = np.exp(-(np.arange(-far, far + 1) ** 2) / (2 * sigma**2))
    one /= one.sum()
    law = np.ones(1)
    for _ in range(count):
        law = np.convolve(law, one)
    sums = np.arange(len(law)) - count * far
    loss = (count - 2 * sums) / (2 * sigma**2)
    return float((law * np.maximum(0.0, -np.expm1(epsilon - loss)))[loss > epsilon].sum())


def test_root_three_was_floored_to_root_two() -> None:
    """The noise for ‖v‖² = 2, of σ = 5.2754510382354995, has δ(1) = 1.74e-4 where 1e-5 was claimed, and ρ = 3/4 of
    what three coordinates cost.
    """
    assert delta_of_ones(3, 5.2754510382354995, 1.0) == pytest.approx(1.74e-4, rel=2e-3)
    assert delta_of_ones(2, 5.2754510382354995, 1.0) == pytest.approx(1e-5, rel=1e-3)
    noisy = DiscreteGaussian(sensitivity=math.sqrt(3), epsilon=1, delta=1e-5, dimension=3)
    assert delta_of_ones(3, noisy.sigma, 1.0) <= 1e-5
    assert noisy.curve.delta(epsilon=1.0) == pytest.approx(delta_of_ones(3, noisy.sigma, 1.0), rel=1e-6)
    assert noisy.sensitivity**2 >= 3


@pytest.mark.parametrize("k", [2, 3, 6, 7, 8, 14, 15])
def test_claims_for_a_root_cover_a_direct_sum(k: int) -> None:
    noisy = DiscreteGaussian(sensitivity=math.sqrt(k), sigma=4.5, dimension=k)
    for epsilon in (0.25, 1.0, 2.0):
        assert noisy.curve.delta(epsilon=epsilon) >= delta_of_ones(k, 4.5, epsilon) * (1 - 1e-9)


def test_rho_is_that_of_the_number_under_the_root() -> None:
    for k in range(1, 10_001):
        noisy = DiscreteGaussian(sensitivity=math.sqrt(k), rho=0.5, dimension=k)
        assert Fraction(noisy.width) ** 2 >= k, "ρ = k/2σ² <= 1/2"
        assert float(noisy.width) ** 2 <= k * (1 + 1e-9)


@pytest.mark.parametrize(
    "root",
    [math.sqrt(3), np.sqrt(3), np.sqrt(np.float32(3)), Decimal(3).sqrt(), Fraction(math.sqrt(3)), 3**0.5, 12**0.5 / 2],
    ids=repr,
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_any_kind_of_number_means_the_same_root(root, wrapped: bool) -> None:
    given = Sensitivity(l2=root) if wrapped else root
    exactly = DiscreteGaussian(sensitivity=Fraction(1733, 1000), sigma=3, dimension=3)
    assert DiscreteGaussian(sensitivity=given, sigma=3, dimension=3).curve == exactly.curve
    for noisy in (Gaussian(sensitivity=given, sigma=3.0), Gaussian.whole(sensitivity=given, sigma=3.0)):
        assert (3 * Fraction(noisy.curve.gdp())) ** 2 >= 3
        assert noisy.sensitivity**2 >= 3


@pytest.mark.parametrize(
    "eight",
    [8, BELOW_8, np.float64(BELOW_8), Fraction(BELOW_8), sum([0.1] * 80), 8 / 49 * 49, Decimal(8) / 7 * 7, 8.0],
    ids=repr,
)
def test_eight_was_floored_to_seven(eight) -> None:
    assert DiscreteLaplace(sensitivity=eight, epsilon=1).scale >= 8
    assert DiscreteLaplace(sensitivity=Sensitivity(l1=eight), epsilon=1).scale >= 8
    assert DiscreteLaplace(sensitivity=eight, scale=8).curve.epsilon(delta=0) >= 1
    assert DiscreteGaussian(sensitivity=eight, sigma=8).curve == DiscreteGaussian(sensitivity=8, sigma=8).curve
    assert DiscreteLaplace(sensitivity=eight, epsilon=1) == DiscreteLaplace(sensitivity=8, epsilon=1)


def test_seven_and_a_bit_is_seven_on_whole_numbers() -> None:
    for x in (7.9, 7.000000000000001, Fraction(79, 10)):
        assert DiscreteLaplace(sensitivity=x, epsilon=1) == DiscreteLaplace(sensitivity=7, epsilon=1)
    with worded(InvalidParameter):
        DiscreteLaplace(sensitivity=0.99, epsilon=1)
    assert DiscreteLaplace(sensitivity=sum([0.1] * 10), epsilon=1) == DiscreteLaplace(sensitivity=1, epsilon=1)


@pytest.mark.parametrize(
    "make",
    [
        lambda s: Laplace(sensitivity=s, scale=8.0),
        lambda s: Gaussian(sensitivity=s, sigma=8.0),
        lambda s: Exponential(sensitivity=s, scale=8),
        lambda s: AboveThreshold(threshold=0, sensitivity=s, epsilon=1),
        lambda s: PiecewiseExponential(bounds=(0, 1), sensitivity=s, epsilon=1),
        lambda s: Staircase(sensitivity=s, epsilon=1),
    ],
)
def test_a_hair_below_a_whole_number_is_that_number_on_reals_too(make) -> None:
    assert make(BELOW_8) == make(8.0)


def test_a_staircase_of_a_hair_below_eight_was_one_step_short() -> None:
    """Rounding to the grid adds a step: reals 8 apart may be 8/s + 1 steps apart, and one step beyond Δ costs 2ε."""
    for low, meant in ((BELOW_8, Fraction(8)), (0.1 + 0.7, Fraction(8, 10)), (0.1 * 3 * 10 / 10, Fraction(3, 10))):
        stairs = Staircase(sensitivity=low, epsilon=1)
        assert stairs.step >= math.floor(meant / Fraction(2) ** (stairs.exponent or 0)) + 1


def test_sensitivities_keep_their_order_and_never_shrink() -> None:
    for x in (math.sqrt(3), BELOW_8, 0.3, np.float32(0.7), np.longdouble("0.1")):
        found = Sensitivity(l1=x, l2=x, linf=x)
        assert found.l1 == found.l2 == found.linf
        assert found.l1 is not None
        assert Fraction(found.l1) >= Fraction(*x.as_integer_ratio())
    three = Sensitivity.of_each(math.sqrt(3), outputs=3)
    assert three.l2 is not None
    assert Fraction(three.l2) >= 3
    assert Sensitivity.of_each(BELOW_8, outputs=2) == Sensitivity.of_each(8, outputs=2)
    assert Sensitivity(l1=BELOW_8).over(Unit.person("id", rows=3)) == Sensitivity(l1=24)


@pytest.mark.parametrize("delta", [Fraction(1, 10**5), Fraction(1, 3)])
def test_a_level_that_is_no_float_is_not_exceeded(delta: Fraction) -> None:
    """The nearest float of a tenth, or of 1/100000, lies above it: what is claimed must not."""
    tenth = Fraction(1, 10)
    assert Fraction(float(tenth)) > tenth
    for noisy in (
        Gaussian(sensitivity=1, epsilon=tenth, delta=delta),
        DiscreteGaussian(sensitivity=1, epsilon=tenth, delta=delta),
        Laplace(sensitivity=1, epsilon=tenth, delta=delta),
    ):
        below = math.nextafter(float(tenth), 0)
        assert Fraction(noisy.curve.delta(epsilon=below)) <= delta
    bins = Histogram(edges=[0, 1, 2], unit=Unit.row(), epsilon=tenth)
    assert Fraction(bins.curve.epsilon(delta=0)) <= tenth


def test_curves_of_whole_mechanisms_hold_for_what_is_drawn() -> None:
    """For all √k up to 300: μ = √k/σ of the rounded Gaussian that is drawn is at most the μ that is claimed."""
    for k in range(1, 301):
        noisy = Gaussian.whole(sensitivity=math.sqrt(k), sigma=math.sqrt(7))
        assert (Fraction(noisy.curve.gdp()) * Fraction(noisy.width)) ** 2 >= k
        asked = Gaussian.whole(sensitivity=math.sqrt(k), mu=0.5)
        assert asked.curve == curves.gaussian(mu=0.5)
        assert (Fraction(1, 2) * Fraction(asked.width)) ** 2 >= k


@pytest.mark.parametrize("x", [math.sqrt(3), BELOW_8, np.float32(math.sqrt(6)), 1 / 3, Fraction(1, 3), 0.1 + 0.2])
@pytest.mark.parametrize("wide", [3.0, Fraction(1, 3), Fraction(7, 10), 1])
def test_curves_round_a_shift_up_from_what_was_meant(x, wide) -> None:
    """The nearest float of a third lies below it; of seven tenths, too: dividing by it must not, though."""
    k = round(float(x) ** 2)
    exact = Fraction(*x.as_integer_ratio())
    mu = Fraction(curves.gaussian(sigma=wide, sensitivity=x).gdp())
    assert mu * Fraction(wide) >= exact
    assert k == 0 or abs(float(x) ** 2 - k) > 1e-6 or (mu * Fraction(wide)) ** 2 >= k
    assert mu * Fraction(wide) <= exact * (1 + Fraction(1, 2**21))
    pure = Fraction(curves.laplace(scale=wide, sensitivity=x).epsilon(delta=0))
    assert pure * Fraction(wide) >= exact
