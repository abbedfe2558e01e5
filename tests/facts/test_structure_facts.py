"""Definitions and structural properties by the public API: the printed number lies in a narrow certified bracket.

Not here, and why:
    24  the variance of noise is a statement about samplers; curves hold no randomness
    25  neighbour relations and sensitivities live in `deniable.units`; its consequence ε_replace <= 2 ε_add/remove is tested below
    39  advice on the size of δ: a convention, no computation
"""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest

from deniable import curves
from deniable.curves import filters, textbook
from deniable.errors import BudgetExceeded

LN3 = math.log(3)


def around(bounds: tuple[float, float], printed: float, *, width: float = 1e-11, digits: float = 1e-14) -> None:
    """The certified bracket is narrow and contains the printed number (known to `digits`, relative)."""
    low, high = bounds
    assert low <= high
    assert low <= printed * (1 + digits) + 1e-300
    assert high >= printed * (1 - digits)
    assert high - low <= width * abs(high)


def above(value: float, printed: float, *, width: float = 1e-11, digits: float = 1e-14) -> None:
    """A number rounded up: at least the printed one, and barely more."""
    assert printed * (1 - digits) <= value <= printed * (1 + width)


def below(value: float, printed: float, *, width: float = 1e-11, digits: float = 1e-14) -> None:
    """A number rounded down: at most the printed one, and barely less."""
    assert printed * (1 - width) <= value <= printed * (1 + digits)


def flip(p: float) -> curves.Kernel:
    """Randomized response that tells the truth with probability p."""
    return curves.Kernel.of([[p, 1 - p], [1 - p, p]])


def test_the_checks_can_fail() -> None:
    """Negative control: 2 % less noise, or a bracket that is too wide, is rejected by the same checks."""
    curve = curves.gaussian(sigma=0.98)
    with pytest.raises(AssertionError):
        around(curve.delta_bounds(epsilon=1.0), 0.126936737506644)
    with pytest.raises(AssertionError):
        above(curve.advantage(), 0.382924922548026)
    with pytest.raises(AssertionError):
        below(curve.equal_error_rate(), 0.308537538725987)
    with pytest.raises(AssertionError):
        around((0.12, 0.13), 0.126936737506644)


def test_fact_a_markov_kernel_acts_on_measures() -> None:
    """A simple random walk, p = 0.3, three steps: P(S_3 = 1) = 3 p² (1-p)."""
    places, p = 9, 0.3
    step = np.zeros((places, places))
    for i in range(places):
        step[i, min(i + 1, places - 1)] += p
        step[i, max(i - 1, 0)] += 1 - p
    walk = curves.Kernel.of(step, [])
    three = walk.then(walk).then(walk)
    assert three.rows[4][5] == pytest.approx(0.189, rel=1e-14)
    assert three.matrix[4] @ np.arange(-4, 5) == pytest.approx(
        3 * (2 * p - 1), rel=1e-14
    )  # as an operator on functions


def test_fact_kernels_compose_multiply_and_mix() -> None:
    twice = flip(0.75).then(flip(0.75))
    assert twice.rows[1][1] == pytest.approx(0.625, rel=1e-15)
    around(twice.curve.epsilon_bounds(delta=0.0), 0.510825623765991)
    both = flip(0.75) * flip(0.75)
    around(both.curve.epsilon_bounds(delta=0.0), 2 * LN3)
    mixed = curves.Kernel.mixture([0.5, 0.5], [flip(0.75), flip(0.5)])
    around(mixed.curve.epsilon_bounds(delta=0.0), math.log(5 / 3))
    deterministic = curves.Kernel.of([[1.0, 0.0], [1.0, 0.0]])
    assert flip(0.75).then(deterministic).curve.epsilon(delta=0.0) == 0.0


def test_fact_a_replacement_costs_at_most_two_removals() -> None:
    one = curves.laplace(scale=2)
    around(one.group(size=2).epsilon_bounds(delta=0.0), 1.0)
    around(curves.laplace(scale=2, sensitivity=2).epsilon_bounds(delta=0.0), 1.0)
    above(curves.gaussian(sigma=1, sensitivity=math.sqrt(2)).gdp(), 1.4142135623731, digits=1e-13)


def test_fact_pure_dp_is_a_bounded_loss() -> None:
    curve = curves.laplace(scale=1, sensitivity=0.5)
    around(curve.epsilon_bounds(delta=0.0), 0.5, width=1e-12)
    above(curve.renyi(order=math.inf), 0.5)


def test_fact_smallest_delta_of_a_gaussian() -> None:
    around(curves.gaussian(sigma=1, sensitivity=1).delta_bounds(epsilon=1.0), 0.126936737506644)


def test_fact_equal_error_rate_of_a_gaussian() -> None:
    below(curves.gaussian(mu=1).equal_error_rate(), 0.308537538725987)


def test_fact_equal_error_rate_of_pure_dp() -> None:
    below(curves.pure(epsilon=1).equal_error_rate(), 0.268941421369995)


def test_fact_equal_error_rate_with_delta() -> None:
    below(curves.approximate(epsilon=1, delta=1e-5).equal_error_rate(), 0.268938731955781)


def test_fact_post_processing() -> None:
    after = flip(0.75).then(flip(0.9)).curve
    around(after.epsilon_bounds(delta=0.0), 0.847297860387204)
    assert after <= flip(0.75).curve
    assert not flip(0.75).curve <= after


def test_fact_group_privacy_pure() -> None:
    low, high = curves.pure(epsilon=0.1).group(size=5).epsilon_bounds(delta=0.0)
    around((math.exp(low), math.exp(high)), 1.64872127070013)


def test_fact_group_privacy_with_the_delta_factor() -> None:
    group = curves.approximate(epsilon=1, delta=1e-6).group(size=3)
    around(group.delta_bounds(epsilon=3.0), 1.11073379273897e-5, width=5e-8)
    stated = textbook.group_privacy_stated(epsilon=1, delta=1e-6, size=3).delta
    assert stated == pytest.approx(2.2167168296792e-5, rel=1e-13)
    assert group.delta(epsilon=3.0) < stated


def test_fact_basic_composition() -> None:
    around((curves.pure(epsilon=1) ** 500).epsilon_bounds(delta=0.0), 500.0)


def test_fact_adaptive_composition() -> None:
    around((curves.pure(epsilon=0.3) * curves.pure(epsilon=0.7)).epsilon_bounds(delta=0.0), 1.0)


def test_fact_parallel_composition() -> None:
    a, b = curves.pure(epsilon=0.3), curves.pure(epsilon=0.7)
    around(curves.worst_of(a, b).epsilon_bounds(delta=0.0), 0.7)
    around((a * b).epsilon_bounds(delta=0.0), 1.0)  # one replacement across blocks touches both


def test_fact_bayesian_semantics() -> None:
    above(curves.pure(epsilon=1).advantage(), 0.46211715726001, digits=1e-13)
    assert textbook.posterior_shift_stated(epsilon=1) == pytest.approx(1.71828182845905, rel=1e-14)


@pytest.mark.parametrize("prior", [0.5, 0.01, 0.9])
def test_fact_side_information(prior: float) -> None:
    exact = prior * math.e / (prior * math.e + 1 - prior)
    above(curves.pure(epsilon=1).posterior(prior=prior), exact)
    if prior == 0.5:
        assert exact == pytest.approx(0.731058578630005, rel=1e-14)


def test_fact_publishing_each_record_with_probability_delta() -> None:
    one = curves.approximate(epsilon=0, delta=1e-3)
    above(one.advantage(), 1e-3)
    around((one**1000).delta_bounds(epsilon=0.0), 0.632304575229036)
    assert one.epsilon(delta=1e-3) == 0.0
    assert one.epsilon(delta=0.99e-3) == math.inf


def test_fact_name_and_shame() -> None:
    """Output (i, x_i) with i uniform: neighbours differ in one of n = 1000 records."""
    n = 1000
    p = [1 / n, 0.0] + [1 / n] * (n - 1)
    q = [0.0, 1 / n] + [1 / n] * (n - 1)
    curve = curves.from_pmf(p, q)
    around(curve.delta_bounds(epsilon=0.0), 1e-3)
    around(curve.delta_bounds(epsilon=20.0), 1e-3)
    assert curve.epsilon(delta=1.0001e-3) == 0.0


def test_fact_catastrophe_mechanism() -> None:
    """With probability δ everything is revealed, otherwise Laplace: a mixture whose index shows."""
    revealed = curves.approximate(epsilon=0, delta=1)
    curve = curves.mixture([1e-5, 1 - 1e-5], [revealed, curves.laplace(scale=1)])
    around(curve.delta_bounds(epsilon=0.5), 0.221207004936426)
    around(curve.delta_bounds(epsilon=1.0), 1e-5)


def test_fact_a_curator_refuses_the_third_charge() -> None:
    spent = filters.PureFilter(epsilon=1).charge(epsilon=Decimal("0.4")).charge(epsilon=Decimal("0.4"))
    assert not spent.admits(epsilon=Decimal("0.4"))
    with pytest.raises(BudgetExceeded):
        spent.charge(epsilon=Decimal("0.4"))
    assert spent.spent == Decimal("0.8")


def test_fact_privacy_curve_at_zero_is_total_variation() -> None:
    curve = curves.gaussian(mu=1)
    around(curve.delta_bounds(epsilon=0.0), 0.382924922548026)
    above(curve.advantage(), 0.382924922548026)


def loss_tail(curve: curves.Curve, at: float) -> tuple[float, float]:
    """Bounds on P(L > at), from the curve of the one bit [L > at]: δ(0) = P - Q and δ(at) = P - e^at Q."""
    bit = curves.quantized(curve, edges=[at]).forward
    (low, high), (low_at, high_at) = bit.delta_bounds(epsilon=0.0), bit.delta_bounds(epsilon=at)
    return (math.exp(at) * low - high_at) / math.expm1(at), (math.exp(at) * high - low_at) / math.expm1(at)


def test_fact_probability_of_a_large_loss() -> None:
    """The Gaussian that is exactly (1, 1e-5)-DP loses more than 1 sixteen times as often as δ says."""
    curve = curves.gaussian(sigma=3.73063163481594)
    around(curve.delta_bounds(epsilon=1.0), 1e-5, digits=1e-12)
    around(loss_tail(curve, 1.0), 0.000161198075325529, width=1e-8)
    low, _ = loss_tail(curve, 0.999)
    assert low > 0.000161198075325529
