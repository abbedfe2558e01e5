"""Values that peers state in their own tests: dp_accounting's PLD accountant, and Opacus' accountants.

Each value comes with the tolerance that the peer's test gives it. Where a value is an upper bound by a looser method
(Rényi divergences), the test says so.
"""

from __future__ import annotations

import math

import pytest

from deniable import calibrate, curves
from deniable.curves import Curve

GAUSSIAN = curves.gaussian


def shifts(sigma: float, moves: tuple[float, ...], shares: tuple[float, ...]) -> Curve:
    """Gaussian noise on a sum that the person moves by one of `moves`, drawn with the probabilities `shares`."""
    moved = [curves.identity() if move == 0 else GAUSSIAN(sigma=sigma, sensitivity=move) for move in moves]
    return curves.hidden_mixture(shares, moved)


DELTAS = [
    # a curve, ε, δ and its tolerance
    (GAUSSIAN(sigma=1 / 3), 1.0, 0.78760074, 1e-8),
    (GAUSSIAN(sigma=10, sensitivity=6) ** 25, 1.0, 0.78760074, 1e-8),
    (GAUSSIAN(sigma=math.sqrt(3)) ** 3, 1.0, 0.126936, 1e-6),
    (GAUSSIAN(sigma=0.5).sampled(rate=0.2) ** 3, 1.0, 0.15594, 1e-5),
    (curves.approximate(epsilon=1, delta=0.1) * curves.approximate(epsilon=2, delta=0.2), 3.0, 0.28, 1e-12),
]


@pytest.mark.parametrize(("curve", "epsilon", "delta", "tolerance"), DELTAS, ids=[str(case[0]) for case in DELTAS])
def test_deltas_of_dp_accounting(curve: Curve, epsilon: float, delta: float, tolerance: float) -> None:
    low, high = curve.delta_bounds(epsilon=epsilon)
    assert low - tolerance <= delta <= high + tolerance
    assert high - low <= 1e-4 * high


EPSILONS = [
    # a curve, δ, ε and its tolerance
    (curves.laplace(scale=1) ** 3 * curves.laplace(scale=2) ** 2, 1e-14, 4.0, 1e-6),
    (curves.discrete_laplace(scale=1) ** 3 * curves.discrete_laplace(scale=2) ** 2, 0.0, 4.0, 1e-6),
    (curves.laplace(scale=0.5).sampled(rate=0.2) ** 3, 1e-14, 2.46964, 1e-5),
    (
        shifts(1.0, (0.0, 1.0, 2.0), (0.2, 0.6, 0.2)) ** 3 * shifts(2.0, (0.0, 2.0, 3.0), (0.33, 0.34, 0.33)) ** 2,
        1e-6,
        17.193115,
        1e-6,
    ),
]


@pytest.mark.parametrize(("curve", "delta", "epsilon", "tolerance"), EPSILONS, ids=[str(case[0]) for case in EPSILONS])
def test_epsilons_of_dp_accounting(curve: Curve, delta: float, epsilon: float, tolerance: float) -> None:
    low, high = curve.epsilon_bounds(delta=delta)
    assert low - tolerance <= epsilon <= high + tolerance
    assert high - low <= 1e-4 * high


@pytest.mark.parametrize(
    ("size", "uses", "sensitivity", "tolerance"),
    [(13.6, 20, 1.0, 0.1), (6.8, 20, 0.5, 0.1), pytest.param(71.0, 500, 1.0, 0.1, marks=pytest.mark.slow)],
)
def test_laplace_noise_that_dp_accounting_finds(size: float, uses: int, sensitivity: float, tolerance: float) -> None:
    found = calibrate(lambda b: curves.laplace(scale=b, sensitivity=sensitivity) ** uses, epsilon=1, delta=1e-4)
    assert found == pytest.approx(size, abs=tolerance)


@pytest.mark.parametrize(("parameter", "sensitivity"), [(0.073, 1), (0.014, 5)])
def test_discrete_laplace_noise_that_dp_accounting_finds(parameter: float, sensitivity: int) -> None:
    """The parameter is 1 / scale, to three digits: 0.014 stands for 0.01476."""
    found = calibrate(lambda b: curves.discrete_laplace(scale=b, sensitivity=sensitivity) ** 20, epsilon=1, delta=1e-4)
    assert 1 / found == pytest.approx(parameter, abs=1e-3)


@pytest.mark.parametrize(
    ("sigma", "rate", "uses", "sensitivity"),
    [(0.67379294682, 0.01, 1, 1.0), pytest.param(3.20956502598, 0.001, 25, 6.0, marks=pytest.mark.slow)],
)
def test_sampled_noise_that_dp_accounting_finds(sigma: float, rate: float, uses: int, sensitivity: float) -> None:
    """Its search stops 2e-6 below the σ that holds in the second row."""
    found = calibrate(
        lambda s: GAUSSIAN(sigma=s, sensitivity=sensitivity).sampled(rate=rate) ** uses, epsilon=1, delta=1e-5
    )
    assert found == pytest.approx(sigma, rel=3e-6)


def test_opacus_bounds_by_renyi_divergences_hold_and_are_loose() -> None:
    """S-G(0.04, 1.5)^2250 at 1e-5: 7.32911117143 by Rényi divergences. Its Gaussian approximation, between 6.59 and
    6.6, is below the exact ε: it is no bound.
    """
    low, high = (GAUSSIAN(sigma=1.5).sampled(rate=0.04) ** 2250).epsilon_bounds(delta=1e-5)
    assert 6.6 < low <= high < 7.32911117143
    assert high == pytest.approx(6.7687804, abs=1e-6)


@pytest.mark.parametrize(("sigma", "steps"), [(1.416, 2250), (1.3562, 2000)])
def test_opacus_noise_by_renyi_divergences_suffices(sigma: float, steps: int) -> None:
    """It is 5 % more noise than is needed for ε = 8 at 1e-5."""
    found = calibrate(lambda s: GAUSSIAN(sigma=s).sampled(rate=0.04) ** steps, epsilon=8, delta=1e-5)
    assert 1.04 < sigma / found < 1.06
