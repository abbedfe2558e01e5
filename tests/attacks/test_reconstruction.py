"""Reconstruction: least squares against its closed form, linear programs against the theorem of Dinur & Nissim (2003)."""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath
import numpy as np
import pytest

from deniable import attacks, local, mechanisms
from deniable.attacks.reconstruction import _below_half, nearest
from deniable.errors import InvalidParameter
from tests.attacks.games import above, agrees

ATTACK = attacks.Reconstruction(people=24, questions=72, seed=5)


def test_least_squares_with_gaussian_noise_is_its_closed_form() -> None:
    """Φ(1/(2σ√[(AᵀA)⁻¹]ᵢᵢ)), with the inverse taken another way; false alarm 1e-9."""
    from scipy.stats import norm

    sigma = 6.0
    spread = np.sqrt(np.diag(np.linalg.inv(ATTACK.asked.T @ ATTACK.asked)))
    truth = float(np.mean(norm.cdf(0.5 / (sigma * spread))))
    defence = mechanisms.Gaussian(sensitivity=1.0, sigma=sigma)
    assert ATTACK.expected(defence) == pytest.approx(truth, abs=1e-8)
    outcome = ATTACK.run(defence, trials=20_000)
    assert agrees(outcome, truth)
    assert not agrees(outcome, float(np.mean(norm.cdf(0.5 / (0.8 * sigma * spread)))))  # power
    assert truth < outcome.cap == pytest.approx(norm.cdf(math.sqrt(72) / sigma / 2), abs=1e-8)


def test_with_many_questions_least_squares_comes_to_its_cap() -> None:
    """Orthogonal questions: √[(AᵀA)⁻¹]ᵢᵢ = 1/√m, and Φ(√m/2σ) = Φ(μ/2)."""
    attack = attacks.Reconstruction(people=4, questions=4000, seed=1)
    defence = mechanisms.Gaussian(sensitivity=1.0, sigma=40.0)
    assert attack.expected(defence) == pytest.approx(attack.run(defence, trials=10).cap, abs=2e-4)


def test_least_squares_with_laplace_noise_is_the_integral() -> None:
    defence = mechanisms.Laplace(sensitivity=1.0, scale=4.0)
    assert agrees(ATTACK.run(defence, trials=20_000), ATTACK.expected(defence))


def test_the_integral_knows_sums_of_equal_scales() -> None:
    """Independent answer: the finite sum for equal scales."""
    from deniable.attacks.attack_game import laplace_sum_tail

    for count, scale in ((1, 0.02), (1, 300.0), (2, 1.0), (3, 0.1), (12, 0.3), (40, 0.05), (256, 0.9)):
        assert _below_half(np.full(count, scale)) == pytest.approx(1 - laplace_sum_tail(count, 0.5 / scale), abs=1e-12)


def partial_fractions(scales: Any) -> float:
    """P(E < 1/2) = 1 - Σᵢ e^(-1/2sᵢ)/2 Πⱼ sᵢ²/(sᵢ² - sⱼ²) for different scales, with as many digits as cancel."""
    with mpmath.workdps(50 + 12 * len(scales)):
        exact = [mpmath.mpf(float(s)) for s in scales]
        tail = mpmath.fsum(
            mpmath.exp(-1 / (2 * a)) / 2 * mpmath.fprod(a * a / (a * a - b * b) for b in exact if b != a) for a in exact
        )
        return float(1 - tail)


SCALES = {
    "one": [0.7],
    "one, far": [0.011],
    "one, wide": [1e5],
    "two, nearly alike": [0.4, 0.4 * (1 + 1e-9)],
    "one of many": [1.0, *(0.001 * (1 + i / 100) for i in range(30))],
    "one of many, narrow": [0.05, *(0.001 * (1 + i / 100) for i in range(30))],
    "two of many": [3.0, 2.0, *(0.01 * (1 + i / 1000) for i in range(60))],
    "all sizes": list(np.geomspace(1e-6, 10, 40)),
    "all sizes, narrow": list(np.geomspace(1e-3, 0.2, 40)),
    "many alike": [0.05 * (1 + i / 1000) for i in range(72)],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCALES)
def test_the_integral_is_the_truth_whatever_dominates(name: str) -> None:
    """Independent answer: partial fractions at hundreds of digits. (Off by 7e-4 for one scale of 1, once.)"""
    found = _below_half(np.array(SCALES[name]))
    assert found == pytest.approx(partial_fractions(SCALES[name]), abs=1e-12)
    assert 0.5 <= found <= 1


def test_one_question_about_one_person_is_one_laplace_variable() -> None:
    attack = attacks.Reconstruction(people=1, questions=1)
    for scale in (0.02, 0.5, 1.0, 40.0):
        defence = mechanisms.Laplace(sensitivity=1.0, scale=scale)
        assert attack.expected(defence) == pytest.approx(1 - math.exp(-1 / (2 * scale)) / 2, abs=1e-9)


def test_randomized_response_meets_the_cap_whatever_is_asked() -> None:
    outcome = ATTACK.run(local.RandomizedResponse(epsilon=1.0), trials=20_000)
    assert outcome.cap == pytest.approx(math.e / (1 + math.e), abs=1e-12)
    assert agrees(outcome, outcome.cap)


def test_without_noise_everything_comes_out_once_there_are_as_many_questions_as_people() -> None:
    assert ATTACK.run(trials=500).rate == 1.0
    few = attacks.Reconstruction(people=24, questions=8, seed=1)
    assert few.expected(None) is None
    assert few.expected(local.RandomizedResponse(epsilon=1.0)) is None
    outcome = few.run(trials=4000)
    assert above(outcome, 0.5)
    assert outcome.rate < 1.0


@pytest.mark.parametrize("bound", [1, 2])
def test_answers_with_bounded_errors_to_all_subsets_leave_few_wrong(bound: int) -> None:
    """n = 8: any consistent candidate is wrong in at most 4E places; the program's rounded point in 8E."""
    chance = np.random.default_rng(bound)
    subsets = np.array(list(itertools.product([0, 1], repeat=8)))
    for _ in range(5):
        secret = chance.integers(0, 2, size=8)
        answers = subsets @ secret + chance.integers(-bound, bound, endpoint=True, size=256)
        found = nearest(subsets, answers)
        assert np.abs(subsets @ found - answers).max() <= bound + 1e-7  # as near as the truth, or nearer
        assert np.count_nonzero((found > 0.5) != secret) <= 8 * bound
        consistent = [x for x in subsets if np.abs(subsets @ x - answers).max() <= bound]
        assert max(np.count_nonzero(x != secret) for x in consistent) <= 4 * bound


@pytest.mark.slow
def test_bounded_noise_is_no_protection_and_ours_is() -> None:
    """E = 2 is far below √32 = 5.7: nearly everything comes out. Laplace at ε = 1 for all answers meets its cap."""
    attack = attacks.LinearReconstruction(people=32, questions=128, seed=3)
    assert above(attack.run(attacks.BoundedNoise(2), trials=200), 0.7)  # never wrong in 1,600 rounds; 20 may be
    ours = attack.run(attack.defences(epsilon=1.0)["Laplace on each answer"], trials=80)
    assert not ours.beats_cap
    assert ours.cap < 0.52


def test_linear_programs_see_randomized_answers_exactly() -> None:
    attack = attacks.LinearReconstruction(people=8, questions=32, seed=3)
    defence = local.RandomizedResponse(epsilon=1.0)
    assert agrees(attack.run(defence, trials=300), attack.expected(defence))
    assert attack.expected(None) == 1.0
    assert attack.expected(mechanisms.Laplace(sensitivity=1.0, epsilon=1.0)) is None
    assert attacks.LinearReconstruction(people=8, questions=3).expected(None) is None


def test_bad_input() -> None:
    for make in (
        lambda: attacks.Reconstruction(people=0, questions=3),
        lambda: attacks.Reconstruction(people=3, questions=0),
        lambda: attacks.Reconstruction(people=10**5, questions=10**5),
        lambda: attacks.Reconstruction(people=3, questions=3, seed=-1),
        lambda: nearest([[1, 0]], [1.0, 2.0]),
    ):
        with pytest.raises(InvalidParameter):
            make()
