"""Small questions that once had a wrong answer, or none. Each states the truth in a line."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp, mpf

from deniable import curves
from deniable.curves.atoms.divisible import MertonLaw
from deniable.curves.laws.derived_laws import CentreAgainstShifted, ShiftedAgainstCentre
from tests.curves import exact


@pytest.fixture(autouse=True)
def _digits() -> object:
    with mp.workdps(exact.DIGITS):
        yield


# -- wrong side ------------------------------------------------------------------------------------------------------


def test_a_far_epsilon_in_the_same_question_does_not_spoil_a_near_one() -> None:
    """δ(1) is about 1.5e-7 whatever else is asked."""
    near = (curves.gaussian(sigma=1).sampled(rate=0.01) ** 12).delta_bounds(epsilon=1.0)
    both = (curves.gaussian(sigma=1).sampled(rate=0.01 + 1e-15) ** 12).delta(epsilon=np.array([1.0, 50.0, 120.0]))
    assert both[0] >= near[0] * (1 - 1e-9)


def test_sampled_laplace_keeps_its_largest_loss() -> None:
    """Ten uses, t = 4, q = .1: ε(1e-6) = 11.59; an atom that is rounded off the grid makes it 7.5."""
    low, high = (curves.laplace(scale=0.25).sampled(rate=0.1) ** 10).epsilon_bounds(delta=1e-6)
    assert low <= 11.592
    assert high >= 11.589
    assert high <= 11.6


def test_the_sampled_laplace_without_the_person_first_is_not_thrown_to_infinity() -> None:
    """t = 2, q = .01, ten uses: δ(.05) of (without, with) is about .005, not .999."""
    low, high = (curves.laplace(scale=0.5).sampled(rate=0.01) ** 10).forward.delta_bounds(epsilon=0.05)
    assert high - low <= 2e-3 * high


def test_deltas_smaller_than_the_sketch_can_see() -> None:
    """Beside a Gaussian of μ = 1 nothing can have a smaller ε than the Gaussian, 1e-75 or not."""
    high = (curves.gaussian(mu=1) * curves.laplace(scale=1000)).epsilon(delta=1e-75)
    assert exact.gauss_delta(min(high, 1e3), 1.0) <= mpf(1e-75)


def test_hidden_shifts_whose_tails_underflow() -> None:
    backward = curves.hidden_mixture([0.5, 0.5], [curves.gaussian(mu=1), curves.gaussian(mu=50)]).backward
    low, high = backward.delta_bounds(epsilon=749.0)
    assert low <= exact.delta(ShiftedAgainstCentre((0.5, 0.5), (1.0, 50.0)), 749.0) <= high
    forward = curves.hidden_mixture([0.5, 0.5], [curves.gaussian(mu=45), curves.gaussian(mu=50)]).forward
    low, high = forward.delta_bounds(epsilon=1000.0)
    assert low <= exact.delta(CentreAgainstShifted(ShiftedAgainstCentre((0.5, 0.5), (45.0, 50.0))), 1000.0) <= high


def test_merton_whose_second_tail_underflows() -> None:
    low, high = curves.merton(variance=2500.0, rate=0.1, mean=0.1, spread=0.1).backward.delta_bounds(epsilon=1250.0)
    assert low <= exact.delta(MertonLaw(2500.0, 0.1, 0.1, 0.1, 1), 1250.0) <= high


@pytest.mark.parametrize(("alpha", "size"), [(3.0, 1e4), (100.0, 100.0), (1000.0, 1000.0), (1e4, 1e-3)])
def test_normal_inverse_gaussian_tails_add_up(alpha: float, size: float) -> None:
    """P(L > -∞) is 1, and for a large size the mechanism is as good as Gaussian with μ² = size/γ."""
    law = curves.normal_inverse_gaussian(alpha=alpha, beta=-0.5, size=size)
    low, high = law.delta_bounds(epsilon=-200.0)
    assert low <= high
    assert high == pytest.approx(1.0, abs=1e-11)
    mu = math.sqrt(size / math.sqrt(alpha**2 - 0.25))
    low, high = law.delta_bounds(epsilon=0.5 * mu * mu)
    if size * alpha > 1e3:
        assert (low + high) / 2 == pytest.approx(float(exact.gauss_delta(0.5 * mu * mu, mu)), abs=0.02)


def test_delta_just_above_the_mass_at_infinity() -> None:
    """What is left of δ = 1e-5 (1 + 1e-13) is 1e-18, and ε(1e-18) of the rest is 4.1431."""
    promise = curves.approximate(epsilon=1, delta=1e-5) * curves.laplace(scale=3) * curves.gaussian(sigma=3)
    assert promise.epsilon(delta=1e-5 * (1 + 1e-13)) >= 4.1


def test_lower_bounds_of_very_wide_products() -> None:
    """Losses spread over thousands: a lower bound from a neighbouring panel must not exceed δ."""
    curve = curves.gaussian(mu=160) * curves.laplace(scale=1e9) * curves.gaussian(mu=120)
    epsilon = 20000 + 200 * np.array([0.0, 5.0, 8.0])
    low, high = curve.delta_bounds(epsilon=epsilon)
    for e, a, b in zip(epsilon.tolist(), low, high, strict=True):
        truth = exact.gauss_delta(e, 200.0)
        assert a <= truth * (1 + mpf("1e-6")), e
        assert truth <= b, e


def test_divergences_of_quiet_mechanisms() -> None:
    """A tiny Rényi divergence times many uses: D₂ of laplace(1e8) is 1e-16, not 1e-17."""
    assert (curves.laplace(scale=1e8) ** 10**15).renyi(order=2) >= 0.0999
    assert (curves.poisson(low=1e6, high=1e6 + 1) ** 10**6).renyi(order=2) >= 1.0 - 1e-12


def test_bins_of_the_loss_are_one_mechanism_in_both_directions() -> None:
    """Outcomes that P never has stay apart, the rest of L <= .5 is one bin of loss -.5: δ(-2.5) = 1 - e^-2.5 (1 - Q(2))."""
    p = [21 / 4096, 1189 / 4096, 0.0, 2241 / 4096, 645 / 4096]
    q = [690 / 2048, 437 / 2048, 327 / 2048, 277 / 2048, 317 / 2048]
    curve = curves.quantized(curves.from_pmf(p, q, tied=True), edges=[0.5, 1.6])
    low, high = curve.forward.delta_bounds(epsilon=-2.5)
    truth = 1 - math.exp(-2.5) * (1 - q[2])
    assert low <= truth <= high
    assert high - low <= 1e-9


# -- no answer, or a useless one -------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_outcomes_that_are_never_shared(tied: bool) -> None:
    """P and Q on different outcomes: δ = 1 for any ε, alone, repeated, and in company."""
    apart = curves.from_pmf([1.0, 0.0], [0.0, 1.0], tied=tied)
    for curve in (apart, apart**2, apart * curves.laplace(scale=1), apart**3 * curves.gaussian(mu=1)):
        low, high = curve.delta_bounds(epsilon=3.0)
        assert low == pytest.approx(1.0, abs=1e-12)
        assert high == 1.0


def test_responses_that_hardly_ever_lie() -> None:
    low, high = (curves.randomized_response(epsilon=40) ** 10).epsilon_bounds(delta=1e-5)
    assert low <= 400 <= high + 1e-4


def test_sampling_a_product_of_very_revealing_mechanisms() -> None:
    curve = (curves.laplace(scale=0.01) ** 20 * curves.gaussian(sigma=0.05)).sampled(rate=0.5)
    low, high = curve.delta_bounds(epsilon=1.0)
    assert 0.49 <= high <= 0.5 + 1e-9
    assert low <= high


@pytest.mark.parametrize("make", [curves.worst_of, lambda a, b: curves.mixture([0.5, 0.5], [a, b])])
def test_sampled_gaussians_beside_gaussians_raise_no_warnings(make: object) -> None:
    curve = make(curves.gaussian(sigma=1), curves.gaussian(sigma=0.3).sampled(rate=0.1))  # type: ignore[operator]
    low, high = (curve**10).epsilon_bounds(delta=1e-5)
    assert 0 < low <= high < 1e3


def test_lower_bounds_of_one_very_revealing_mechanism() -> None:
    """μ = 20 in company: nearly all losses are far above 0, and the lower bound stays within the wanted width."""
    low, high = (curves.gaussian(mu=20) * curves.laplace(scale=1e9)).epsilon_bounds(delta=1e-5)
    assert (high - low) / high <= 1e-4


def test_lower_bounds_of_a_sampled_mechanism_with_few_answers() -> None:
    """P = (0, 1), Q = (1/4, 3/4), q = 1/2, twice: the forward δ(.1) is .15385."""
    curve = curves.from_pmf([0.0, 1.0], [0.25, 0.75], tied=True).sampled(rate=0.5) ** 2
    low, high = curve.forward.delta_bounds(epsilon=0.1)
    assert low <= 0.15385351585 <= high
    assert high - low <= 1e-2 * high


def test_miss_rates_of_a_mechanism_with_infinite_loss() -> None:
    """P = (31/64, 33/64), Q = (0, 1): β(1/2) is 1/33 forward and 33/128 backward, and the upper bounds say so too."""
    curve = curves.from_pmf([31 / 64, 33 / 64], [0.0, 1.0], tied=True)
    for direction, truth in ((curve.forward, 1 / 33), (curve.backward, 33 / 128)):
        low, high = direction.beta_bounds(alpha=0.5)
        assert low <= truth <= high
        assert high - low <= 1e-3


def test_zero_is_not_negative() -> None:
    curve = curves.laplace(scale=1).sampled(rate=0.01) ** 5
    assert math.copysign(1.0, curve.delta(epsilon=2.0)) == 1.0
