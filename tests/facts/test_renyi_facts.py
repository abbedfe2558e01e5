"""Rényi divergences and the moments accountant by the public API."""

from __future__ import annotations

import math

import mpmath as mp
import pytest

from deniable import curves
from deniable.curves import textbook

RHO = 3.125  # zCDP of μ = 2.5


def above(value: float, printed: float, *, width: float = 1e-12, digits: float = 1e-14) -> None:
    """A number rounded up: at least the printed one, and barely more."""
    assert printed * (1 - digits) <= value <= printed * (1 + width + digits)


def test_the_check_can_fail() -> None:
    """Negative control: 2 % less noise is rejected by the same check."""
    with pytest.raises(AssertionError):
        above(curves.laplace(scale=0.98).renyi(order=2), 0.619123629998593)


def test_fact_renyi_divergence_of_two_coins() -> None:
    coins = curves.from_pmf([0.75, 0.25], [0.25, 0.75])
    above(coins.renyi(order=2.0), 0.847297860387204)
    # Order 1 is the KL divergence, order inf the largest loss; both are limits of the orders between.
    kl = 0.5 * math.log(3)
    assert kl <= coins.renyi(order=1.0) <= kl * (1 + 1e-4)
    above(coins.renyi(order=math.inf), math.log(3))
    orders = [1.001, 1.5, 2.0, 5.0, 50.0, 1e4]
    values = [coins.renyi(order=a) for a in orders]
    assert values == sorted(values)
    for order, value in zip(orders, values, strict=True):
        exact = (
            math.log(0.75**order * 0.25 ** (1 - order) + 0.25**order * 0.75 ** (1 - order)) / (order - 1)
            if order < 100
            else None
        )
        if exact is not None:
            above(value, exact, width=1e-11, digits=1e-12)


def test_fact_divergences_add() -> None:
    coins = curves.from_pmf([0.75, 0.25], [0.25, 0.75])
    above((coins**2).renyi(order=2.0), 1.69459572077441)
    above((coins * curves.gaussian(mu=1)).renyi(order=2.0), 1.847297860387204)


def test_fact_processing_never_increases_a_divergence() -> None:
    kernel = curves.Kernel.of([[0.7, 0.2, 0.1], [0.2, 0.3, 0.5]])
    merged = kernel.then([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    for order in (1.5, 2.0, 10.0, math.inf):
        assert merged.curve.renyi(order=order) <= kernel.curve.renyi(order=order)


def test_fact_gaussian_renyi() -> None:
    above(curves.gaussian(sigma=4).renyi(order=2.0), 0.0625)


def test_fact_laplace_renyi() -> None:
    above(curves.laplace(scale=1).renyi(order=2.0), 0.619123629998593)


def test_fact_randomized_response_renyi() -> None:
    above(curves.randomized_response(epsilon=1).renyi(order=2.0), 0.735325664055519)


def test_fact_probability_preservation() -> None:
    """N(1,1) against N(0,1), S = {y > 1}: P(S) = 1/2, and the bound from order 2 holds."""
    chance = 0.15865525393145705
    power = curves.gaussian(mu=1).tpr(fpr=chance)
    above(power, 0.5)
    bound = textbook.probability_preservation(order=2, renyi=curves.gaussian(mu=1).renyi(order=2.0), chance=chance)
    above(bound, 0.656711271223081)
    assert power <= bound


def gaussian_renyi(order: float) -> float:
    return float(curves.gaussian(mu=2.5).renyi(order=order))


def test_fact_renyi_to_dp() -> None:
    found = textbook.best_renyi_to_epsilon_mironov(renyi=gaussian_renyi, delta=1e-5)
    above(found.bound, 15.1213147804702)
    assert found.order == pytest.approx(2.91941036487523, rel=1e-6)


def test_fact_improved_conversion() -> None:
    """Printed at the rounded order 2.831; the best order is 2.83062 and gives 14.1305474555107."""
    above(textbook.renyi_to_epsilon(order=2.831, renyi=2.831 * RHO, delta=1e-5), 14.130547706772, digits=1e-12)
    best = textbook.best_renyi_to_epsilon(renyi=gaussian_renyi, delta=1e-5).bound
    above(best, 14.1305474555107, digits=1e-12)
    # The zCDP curve uses the same conversion from above, and a Gaussian that keeps the promise from below.
    low, high = curves.zcdp(rho=RHO).epsilon_bounds(delta=1e-5)
    above(high, 14.1305474555107, width=1e-9)
    assert low == pytest.approx(13.206712240452, rel=1e-11)


def test_fact_zcdp_to_dp() -> None:
    above(textbook.zcdp_to_epsilon(rho=RHO, delta=1e-5), 15.1213147804702)
    above(curves.gaussian(mu=2.5).zcdp(), RHO)
    assert curves.zcdp(rho=RHO).epsilon(delta=1e-5) < 15.1213147804702
    assert curves.pure(epsilon=1).zcdp() <= 0.5  # ε-DP is ε²/2-zCDP; the sharp constant is smaller


def test_fact_what_the_detour_through_renyi_costs() -> None:
    gap = textbook.zcdp_to_epsilon(rho=RHO, delta=1e-5) - curves.gaussian(mu=2.5).epsilon(delta=1e-5)
    assert gap == pytest.approx(1.91460254001821, rel=1e-12)


def test_fact_moments_accountant() -> None:
    found = textbook.moments_accountant(log_moment=lambda m: m * gaussian_renyi(m + 1), epsilon=14)
    above(found.bound, 7.78092686155376e-5, width=1e-9, digits=1e-11)
    assert found.order == pytest.approx(1.74, rel=1e-6)
    assert curves.gaussian(mu=2.5).delta(epsilon=14.0) < found.bound


# -- never below the exact value, however small the loss and however close the order to 1 ------------------------------

ORDERS = [1.0, 1 + 1e-9, 1.001, 2.0, 30.0, 1e6]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("loss", [2.0**-40, 2.0**-20, 0.125, 1.0, 64.0])
def test_renyi_is_rounded_up(order: float, loss: float) -> None:
    """Laplace and randomized response against mpmath with 300 digits (Mironov 2017, Proposition 6 and section VI)."""
    with mp.workdps(300):
        a, t = mp.mpf(order), mp.mpf(loss)
        p = 1 / (1 + mp.exp(-t))
        if order == 1:
            laplace, response = t - 1 + mp.exp(-t), t * mp.tanh(t / 2)
        else:
            moment = a / (2 * a - 1) * mp.exp((a - 1) * t) + (a - 1) / (2 * a - 1) * mp.exp(-a * t)
            laplace = mp.log(moment) / (a - 1)
            response = mp.log(p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)) / (a - 1)
        assert mp.mpf(curves.laplace(scale=1 / loss).renyi(order=order)) >= laplace
        assert mp.mpf(curves.pure(epsilon=loss).renyi(order=order)) >= response * (1 - mp.mpf(10) ** -16)


@pytest.mark.parametrize("order", ORDERS[:-1])
@pytest.mark.parametrize(
    ("low", "high"), [(2.0, 5.0), (1048576.0, 1048577.0), (1.0, 1 + 2.0**-30), (2.0**-30, 2.0**-29)]
)
def test_renyi_of_poisson_is_rounded_up(order: float, low: float, high: float) -> None:
    with mp.workdps(200):
        a, b, order_ = mp.mpf(low), mp.mpf(high), mp.mpf(order)
        if order == 1:
            exact = b * mp.log(b / a) - (b - a)
        else:
            ahead = b**order_ * a ** (1 - order_) - order_ * b - (1 - order_) * a
            back = a**order_ * b ** (1 - order_) - order_ * a - (1 - order_) * b
            exact = max(ahead, back) / (order_ - 1)
        assert mp.mpf(curves.poisson(low=low, high=high).renyi(order=order)) >= exact
