"""From an error to the number of people, and when privacy is free beside chance."""

from __future__ import annotations

import math
import secrets
from fractions import Fraction

import numpy as np
import pytest

from deniable.errors import InvalidParameter
from deniable.mechanisms import limits, linear


def test_sample_sizes_are_the_smallest_that_do():
    """Random questions: with n people the error is small enough, with n - 1 it is not."""
    seed = secrets.randbits(64)
    rng = np.random.default_rng(seed)
    for _ in range(50):
        asked = {
            "queries": int(rng.integers(1, 10_000)),
            "epsilon": float(rng.uniform(0.01, 5)),
            "beta": float(rng.uniform(0.001, 0.5)),
        }
        error, delta = float(10 ** rng.uniform(-4, -0.5)), 1e-6
        found = linear.sample_size(**asked, error=error, delta=delta)
        for name, people in found.items():
            extra = {"delta": delta} if name == "gaussian" else {}
            error_of = getattr(linear, f"{name}_error")
            assert error_of(**asked, people=people, **extra) <= error, f"seed {seed}: {name}"
            assert people == 1 or error_of(**asked, people=people - 1, **extra) > error, f"seed {seed}: {name}"


def test_sample_sizes_in_closed_form():
    """k = 100, α = β = .05, ε = 1: k log(k/β)/(εα), and coth²(ε/2) log(2k/β)/(2α²)."""
    found = linear.sample_size(queries=100, error=0.05, epsilon=1.0, beta=0.05)
    assert found["laplace"] == math.ceil(100 * math.log(2000) / 0.05) == 15_202
    assert found["randomized_response"] == math.ceil(math.log(4000) / (2 * 0.05**2 * math.tanh(0.5) ** 2)) == 7_768


def test_an_error_of_nearly_nothing_is_refused():
    with pytest.raises(InvalidParameter, match="people"):
        linear.sample_size(queries=1, error=1e-14, epsilon=1.0, beta=0.05)


def test_the_regimes_of_accuracy_and_number_of_queries():
    """n = 10,000, ε = 1, error 1/√n = .01: Laplace noise answers some √n questions and not "k much below n".

    With k = 1,000 << n its error is .99; Gaussian noise, and randomised bits at error 1/√n·√log k, still answer.
    """
    n, beta = 10_000, 0.05
    assert linear.laplace_error(queries=1000, people=n, epsilon=1, beta=beta) == pytest.approx(0.990348755254)
    assert linear.laplace_error(queries=14, people=n, epsilon=1, beta=beta) < 0.01
    assert linear.laplace_error(queries=15, people=n, epsilon=1, beta=beta) < 0.01
    assert linear.laplace_error(queries=20, people=n, epsilon=1, beta=beta) > 0.01
    assert linear.gaussian_error(queries=200, people=n, epsilon=1, delta=1e-6, beta=beta) < 0.03
    assert linear.randomized_response_error(queries=2**20, people=n, epsilon=1, beta=beta) < 0.07


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0])
def test_the_error_of_a_private_mean_is_sampling_plus_noise(epsilon: float):
    """Worst case: zeros and ones, half each. Var of the mean 1/(4n), variance of Laplace(1/(nε)) 2/(nε)²."""
    n = 10_000
    exact = Fraction(1, 4 * n) + 2 / (n * Fraction(epsilon)) ** 2
    bound = limits.mean_squared_error(records=n, width=1, epsilon=epsilon)
    assert Fraction(bound) >= exact
    assert bound == pytest.approx(float(exact), rel=1e-15)
    assert limits.mean_squared_error(records=n, width=7, epsilon=epsilon) == pytest.approx(49 * bound)


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_from_which_epsilon_on_a_mean_is_free(share: float):
    n = 10_000
    free = limits.free_epsilon_of_mean(records=n, share=share)
    assert free == pytest.approx(math.sqrt(8 / (n * share)))
    sampling = 1 / (4 * n)
    assert limits.mean_squared_error(records=n, width=1, epsilon=free) <= sampling * (1 + share) * (1 + 1e-12)
    assert limits.mean_squared_error(records=n, width=1, epsilon=free * 0.99) > sampling * (1 + share)
