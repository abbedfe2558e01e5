"""Facts about added noise (24, 26, 60-63, 66, 68, 77-85, 124), reproduced through the public API."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from deniable import Sensitivity, Unit, curves, noise
from deniable.mechanisms import DiscreteLaplace, Gaussian, Laplace
from tests.mechanisms import lattice_laws as laws

pytestmark = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")


def above(value: float, printed: float, *, width: float = 1e-12) -> None:
    """A number rounded up: at least the printed one, and barely more."""
    assert printed * (1 - 1e-14) <= value <= printed * (1 + width)


def test_the_check_can_fail() -> None:
    with pytest.raises(AssertionError):
        above(Laplace(sensitivity=1.0, scale=0.98).curve.delta(epsilon=0.5), 0.221199216928595)


def test_fact_noise_is_unbiased_and_its_mean_square_is_twice_the_squared_scale() -> None:
    """100,000 draws of Lap(1): mean 0 and mean square 2 within seven standard errors (false alarm below 1e-9)."""
    sample = Laplace(sensitivity=1.0, scale=1.0, dimension=100_000).release(
        np.zeros(100_000), entropy=noise.ReplayEntropy(24)
    )
    assert abs(sample.mean()) < 7 * math.sqrt(2 / 100_000)
    assert abs((sample**2).mean() - 2) < 7 * math.sqrt(20 / 100_000)
    wrong = sample * 1.1
    assert abs((wrong**2).mean() - 2) > 7 * math.sqrt(20 / 100_000), "scale wrong by 10 % is seen"


def test_fact_the_largest_loss_of_laplace_noise() -> None:
    assert Laplace(sensitivity=0.5, scale=1).curve.epsilon(delta=0) == 0.5


def test_fact_laplace_noise_is_the_exponential_mechanism_without_the_half() -> None:
    """Density ε/2 at 0 for Δ = 1: the share of draws within 0.01 of the value, 100,000 draws, false alarm 1e-9."""
    noisy = Laplace(sensitivity=1.0, epsilon=1.0, dimension=100_000)
    sample = noisy.release(np.zeros(100_000), entropy=noise.ReplayEntropy(60))
    hits = int((np.abs(sample) < 0.01).sum())
    share = -math.expm1(-0.01)  # ∫ of (1/2)e^-|y| over (-0.01, 0.01), about 0.02 × 0.5
    assert share == pytest.approx(0.02 * 0.5, rel=0.006)
    assert laws.covered(hits, 100_000, share)
    assert laws.covered(100_000 - hits, 100_000, 1 - share)
    assert noisy.curve.epsilon(delta=0) == 1.0, "ε, not 2ε"


def test_fact_a_vector_is_dominated_by_the_whole_shift_in_one_coordinate() -> None:
    above(Laplace(sensitivity=1.0, scale=1).curve.delta(epsilon=0.5), 0.221199216928595)
    split = curves.laplace(scale=2) ** 2
    above(split.delta(epsilon=0.5), 0.12384911904467, width=1e-4)
    asked = np.linspace(-1.2, 0.99, 200)  # next to the largest loss, 1, both are 0 up to rounding
    assert np.all(split.delta(epsilon=asked) <= Laplace(sensitivity=1.0, scale=1).curve.delta(epsilon=asked) * 1.001)
    # The same on whole numbers, where lemma A is ours.
    assert DiscreteLaplace(sensitivity=1, scale=2).curve ** 2 <= DiscreteLaplace(sensitivity=2, scale=2).curve


def test_fact_the_distribution_of_laplace_noise() -> None:
    """F(1) = 0.6967 at b = 2: 100,000 draws, false alarm 1e-9, and 2 % off is rejected."""
    sample = Laplace(sensitivity=1.0, scale=2, dimension=100_000).release(
        np.zeros(100_000), entropy=noise.ReplayEntropy(62)
    )
    hits = int((sample <= 1).sum())
    truth = 1 - math.exp(-1 / 2) / 2
    assert truth == pytest.approx(0.696734670143683, rel=1e-14)
    assert laws.covered(hits, 100_000, truth)
    assert laws.covered(100_000 - hits, 100_000, 1 - truth)
    assert not laws.covered(hits, 100_000, truth * 1.02)


def test_fact_the_utility_of_laplace_noise_on_ten_numbers() -> None:
    textbook = math.log(10 / 0.05)
    assert textbook == pytest.approx(5.29831736654804, rel=1e-14)
    assert 1 - (1 - math.exp(-textbook)) ** 10 == pytest.approx(0.0488898695342281, rel=1e-12)
    # Ours is the exact quantile, which the textbook's union bound exceeds.
    ours = Laplace(sensitivity=1.0, epsilon=1.0, dimension=10).error(confidence=0.95)
    assert 1 - (1 - math.exp(-ours)) ** 10 == pytest.approx(0.05, rel=1e-6)
    assert ours < textbook


def test_fact_a_hundred_averages_cost_a_hundred_with_laplace_and_ten_with_gaussian_noise() -> None:
    moved = Sensitivity.of_each(1.0, outputs=100)
    laplace = Laplace(sensitivity=moved, epsilon=1.0, dimension=100).scale
    gaussian = Gaussian(sensitivity=moved, mu=1.0, dimension=100).sigma
    one_laplace = Laplace(sensitivity=1.0, epsilon=1.0, dimension=1).scale
    one_gaussian = Gaussian(sensitivity=1.0, mu=1.0, dimension=1).sigma
    assert laplace / one_laplace == pytest.approx(100, rel=1e-9)
    assert gaussian / one_gaussian == pytest.approx(10, rel=1e-9)


def test_fact_the_value_of_a_maximum_has_sensitivity_one() -> None:
    """max of values in [0, 1] + Lap(1/ε): mean square 2 at ε = 1, 50,000 draws within seven standard errors."""
    noisy = Laplace(sensitivity=1.0, epsilon=1.0).on(max)
    assert noisy.curve.epsilon(delta=0) == 1.0
    many = Laplace(sensitivity=1.0, epsilon=1.0, dimension=50_000)
    away = many.release(np.full(50_000, 0.7), entropy=noise.ReplayEntropy(68)) - 0.7
    assert abs((away**2).mean() - 2) < 7 * math.sqrt(20 / 50_000)
    assert isinstance(noisy.release([0.1, 0.7]), float)


def test_fact_examples_of_sensitivities() -> None:
    replaced = Sensitivity.histogram(Unit.replaced_row())
    assert Laplace(sensitivity=replaced, epsilon=1.0).sensitivity == 2
    assert float(Gaussian(sensitivity=replaced, sigma=1.0).sensitivity) == pytest.approx(1.4142135623731, rel=1e-13)


def test_fact_a_thousand_outputs_in_the_two_norms() -> None:
    moved = Sensitivity.of_each(1.0, outputs=1000)
    assert Laplace(sensitivity=moved, epsilon=1.0).sensitivity == 1000
    assert float(Gaussian(sensitivity=moved, sigma=1.0).sensitivity) == pytest.approx(31.6227766016838, rel=1e-13)


def test_fact_the_gaussian_curve() -> None:
    above(Gaussian(sensitivity=1.0, sigma=1).curve.delta(epsilon=1.0), 0.126936737506644)
    above(Gaussian(sensitivity=1.0, sigma=10).curve.delta(epsilon=1.0), 1.2308359836427e-25, width=1e-9)


def test_fact_analytic_calibration() -> None:
    for sensitivity in (1, 1.0):
        sigma = Gaussian(sensitivity=sensitivity, epsilon=1.0, delta=1e-5, dimension=1).sigma
        above(sigma, 3.73063163481594, width=2e-7)


def test_fact_the_classical_formula_needs_thirty_percent_more() -> None:
    classical = math.sqrt(2 * math.log(1.25 / 1e-5))
    assert classical == pytest.approx(4.84480526260539, rel=1e-14)
    assert classical / Gaussian(sensitivity=1, epsilon=1.0, delta=1e-5).sigma == pytest.approx(1.2986, rel=1e-3)
    # ... and beyond ε = 8.42 it is false, where ours still holds.
    false = Gaussian(sensitivity=1, sigma=classical / 10)
    assert false.curve.delta(epsilon=10.0) > 2e-5
    assert Gaussian(sensitivity=1, epsilon=10.0, delta=1e-5).curve.delta(epsilon=10.0) <= 1e-5


def test_fact_a_hundred_gaussian_releases_are_one_with_a_tenth_of_the_noise() -> None:
    many = Gaussian(sensitivity=1, sigma=4) ** 100
    above(many.curve.gdp(), 2.5)
    above(many.curve.epsilon(delta=1e-5), 13.206712240452, width=1e-9)


def test_fact_the_laplace_curve_and_its_calibration() -> None:
    above(Laplace(sensitivity=1.0, scale=1).curve.delta(epsilon=0.5), 0.221199216928595)
    noisy = Laplace(sensitivity=1.0, epsilon=1.0, delta=0.1, dimension=1)
    above(noisy.scale, 0.82595410018882, width=1e-9)
    assert noisy.curve.delta(epsilon=1.0) <= 0.1


def test_fact_a_mean_of_a_thousand_numbers() -> None:
    """x in [0, 1]^k, n people, replaced: rms of the noise vector √2·k^1.5/(nε) and k√(2 log(1.25/δ))/(nε)."""
    k, n, epsilon = 1000, 10_000, 0.5
    moved = Sensitivity.of_each(1 / n, outputs=k)
    laplace = Laplace(sensitivity=moved, epsilon=epsilon, dimension=k).scale * math.sqrt(2 * k)
    assert laplace == pytest.approx(8.94427190999916, rel=1e-6)
    classical = k * math.sqrt(2 * math.log(1.25 / 1e-5)) / (n * epsilon)
    assert classical == pytest.approx(0.968961052521078, rel=1e-12)
    gaussian = Gaussian(sensitivity=moved, epsilon=epsilon, delta=1e-5, dimension=k).sigma * math.sqrt(k)
    assert 0.6 * classical < gaussian < classical


def test_fact_the_gaussian_additive_mechanism() -> None:
    assert Gaussian(sensitivity=2.0, mu=0.5, dimension=1).sigma == pytest.approx(4.0, rel=1e-12)
    assert Gaussian(sensitivity=2, mu=0.5).sigma == 4.0


def test_fact_b44_no_event_separates_the_grid_answers_of_neighbours() -> None:
    """S = {|y| < 1/2, y·2⁵³ no integer} has probability 0.27 for float noise around 0 and 0 around 1; never here."""
    noisy = Laplace(sensitivity=1.0, scale=1.0, dimension=20_000)
    for value in (0.0, 1.0):
        sample = noisy.release(np.full(20_000, value), entropy=noise.ReplayEntropy(44))
        near = sample[np.abs(sample) < 0.5]
        assert len(near) > 1000
        assert (near * 2.0**53 == np.rint(near * 2.0**53)).all()
    naive = np.random.default_rng(0).laplace(0, 1, 20_000)
    naive = naive[np.abs(naive) < 0.5]
    assert not (naive * 2.0**53 == np.rint(naive * 2.0**53)).all(), "the same test separates float noise"


def test_decision_3_rounding_costs_nothing_where_the_discrete_gaussian_does() -> None:
    """σ = 2, ε = 1: δ = .0068296 for the Gaussian and its rounding, .0072488 for the discrete Gaussian (50 digits)."""
    found = {}
    for name, law in (("rounded", laws.rounded_gaussian(2, 40)), ("discrete", laws.discrete_gaussian(2, 40))):
        found[name] = float(laws.delta(law, laws.shifted(law, 1), 1.0))
    bound = Gaussian(sensitivity=1, sigma=2).curve.delta(epsilon=1.0)
    assert found["rounded"] <= bound == pytest.approx(0.0068296, abs=1e-7)
    assert found["discrete"] == pytest.approx(0.0072488, abs=1e-7)
    assert found["discrete"] > bound
    assert mpmath.mp.dps >= 50
