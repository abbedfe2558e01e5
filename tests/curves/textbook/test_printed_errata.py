"""Printed formulas beside the right ones: both numbers of every pair, and that a pair is of no use as a number."""

from __future__ import annotations

import math

import pytest
from mpmath import mp

from deniable import curves
from deniable.curves import textbook as tb
from deniable.errors import InvalidParameter

PRINTED = tb.as_printed


def test_a_printed_number_is_of_no_use_as_a_number():
    pair = PRINTED.posterior_shift(epsilon=1)
    for use in (float, int, lambda v: v + 1, lambda v: v < 1, lambda v: curves.pure(epsilon=v), math.sqrt):
        with pytest.raises((TypeError, InvalidParameter)):
            use(pair)


def test_the_printed_shift_of_a_posterior_falls_where_the_right_one_rises():
    """e^-1 and tanh(1/2)."""
    pair = PRINTED.posterior_shift(epsilon=1)
    assert (pair.printed, pair.right) == pytest.approx((0.367879441171442, 0.462117157260010), rel=1e-14)


def test_the_printed_estimate_of_randomized_response_is_biased():
    """θ = .3, ν = .5: answers say yes with probability .5 · .3 + .25 = .4; the printed estimate has mean 1.1."""
    pair = PRINTED.randomized_response_estimate(share=0.4, nu=0.5)
    assert pair.printed == pytest.approx(1.1)
    assert pair.right == pytest.approx(0.3)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 10.0, 20.0])
def test_the_classical_sigma_fails_for_large_epsilon_and_wastes_noise_for_small(epsilon: float):
    pair = PRINTED.classical_gaussian_sigma(sensitivity=1, epsilon=epsilon, delta=1e-5)
    with mp.workdps(50):
        assert pair.printed == pytest.approx(float(mp.sqrt(2 * mp.log(mp.mpf("1.25") / mp.mpf("1e-5"))) / epsilon))
    at_printed = curves.gaussian(sigma=pair.printed).delta(epsilon=epsilon)
    assert (at_printed > 1e-5) == (epsilon > 8.42)
    assert curves.gaussian(sigma=pair.right).delta(epsilon=epsilon) <= 1e-5 * (1 + 1e-9)


def test_the_proofs_last_line_is_no_bound():
    pair = PRINTED.advanced_composition_proof(epsilon=0.01, count=100, delta=1e-6)
    truth = curves.randomized_response(epsilon=0.01) ** 100
    assert truth.delta_bounds(epsilon=pair.printed)[0] > 1e-6
    assert truth.delta(epsilon=pair.right) <= 1e-6


def test_the_one_term_form_outside_its_range_is_no_bound():
    pair = PRINTED.advanced_composition_doubled(epsilon=1, count=500, delta=1e-5)
    truth = curves.randomized_response(epsilon=1.0) ** 500
    assert truth.delta_bounds(epsilon=pair.printed)[0] > 0.78
    assert truth.delta(epsilon=pair.right) <= 1e-5 * (1 + 1e-9)


def test_printed_steps_overspend():
    pair = PRINTED.advanced_composition_step(total_epsilon=1, count=100, delta=1e-6)
    spent = tb.advanced_composition(epsilon=pair.printed, count=100, delta=1e-6)
    assert spent == pytest.approx(1 + 1 / (4 * math.log(1e6)))
    assert tb.advanced_composition(epsilon=pair.right, count=100, delta=1e-6) <= 1


def test_the_variance_gains_less_than_printed():
    pair = PRINTED.advanced_composition_variance_ratio(count=100, delta=1e-6)
    assert (pair.printed, pair.right) == (10.0, pytest.approx(3.6191206825271))


def test_hoeffdings_tail_is_above_the_binomial_tail():
    from scipy.special import bdtrc

    for n, p, t in ((10, 0.5, 0.2), (1000, 0.3, 0.05), (200, 0.9, 0.08)):
        bound = tb.hoeffding_tail(count=n, width=1, deviation=t)
        assert bound == pytest.approx(math.exp(-2 * n * t * t))
        assert bdtrc(math.ceil(n * (p + t) - 1e-9) - 1, n, p) <= bound
    assert tb.hoeffding_tail(count=5, width=2, deviation=1) == pytest.approx(math.exp(-2.5))
