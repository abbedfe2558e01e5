"""Differencing and averaging against their closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from deniable import attacks, curves, local, mechanisms
from deniable.attacks.anonymiser import span
from deniable.attacks.answer_attacks import noise_deviation
from deniable.curves import textbook
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.units import Sensitivity
from tests.attacks.games import above, agrees

LAPLACE = mechanisms.Laplace(sensitivity=1.0, scale=1.0)


def pmf(scale: float, reach: int) -> np.ndarray:
    z = np.arange(-reach, reach + 1)
    r = math.exp(-1 / scale)
    return (1 - r) / (1 + r) * r ** np.abs(z)


def test_differencing_is_the_closed_form_of_the_source() -> None:
    """P(|W| < 1/2) = 0.241836675359208 for b = 1; right with half of it more than a coin."""
    attack = attacks.Differencing(people=30)
    assert attack.expected(LAPLACE) == pytest.approx((1 + 0.241836675359208) / 2, abs=1e-8)
    outcome = attack.run(LAPLACE, trials=300_000)
    assert agrees(outcome, 0.620918337679604)
    # Power: noise of a scale wrong by 10 % would be seen (14 standard errors away, of which the test asks for 6).
    assert not agrees(outcome, attack.expected(mechanisms.Laplace(sensitivity=1.0, scale=0.9)))
    # The cap is that of one answer: 1 - e^(-1/2)/2.
    assert outcome.cap == pytest.approx(1 - math.exp(-0.5) / 2, abs=1e-9)


@pytest.mark.parametrize("scale", [0.4, 1, 3])
def test_differencing_whole_numbers_is_the_sum_over_the_lattice(scale: float) -> None:
    """Independent answer: the convolution of two laws, by brute force."""
    defence = mechanisms.DiscreteLaplace(sensitivity=1, scale=scale)
    law = np.convolve(pmf(scale, 200), pmf(scale, 200))
    truth = law[: len(law) // 2 + 1].sum()  # W <= 0 leaves a "no" right
    attack = attacks.Differencing(people=30)
    assert attack.expected(defence) == pytest.approx(truth, abs=1e-12)
    assert agrees(attack.run(defence, trials=30_000), truth)


def test_differencing_gaussian_and_randomized_response() -> None:
    from scipy.stats import norm

    attack = attacks.Differencing(people=30)
    noisy = mechanisms.Gaussian(sensitivity=1.0, sigma=1.0)
    assert attack.expected(noisy) == pytest.approx(norm.cdf(0.5 / math.sqrt(2)), abs=1e-8)
    assert agrees(attack.run(noisy, trials=30_000), norm.cdf(0.5 / math.sqrt(2)))
    flipped = attack.run(local.RandomizedResponse(epsilon=1.0), trials=30_000)
    assert agrees(flipped, math.e / (1 + math.e))
    assert flipped.cap == pytest.approx(math.e / (1 + math.e), abs=1e-12)  # the attack meets its cap
    assert attack.expected(mechanisms.Gaussian(sensitivity=1, sigma=1.0)) is None  # on a lattice: not known here


def test_averaging_has_the_standard_deviation_of_the_source() -> None:
    """√(2/k)/ε = 0.0632455532033676 at k = 500, ε = 1."""
    attack = attacks.Averaging(answers=500)
    assert attack.deviation(LAPLACE) == pytest.approx(0.0632455532033676, rel=1e-7)


@pytest.mark.parametrize("answers", [1, 2, 7, 40])
def test_averaging_laplace_is_its_closed_form(answers: int) -> None:
    attack = attacks.Averaging(answers=answers)
    defence = mechanisms.Laplace(sensitivity=1.0, scale=4.0)
    outcome = attack.run(defence, trials=20_000)
    assert agrees(outcome, attack.expected(defence))
    assert outcome.curve == defence.curve**answers
    if answers == 1:
        assert attack.expected(defence) == pytest.approx(1 - math.exp(-1 / 8) / 2, abs=1e-8)
        assert outcome.cap == pytest.approx(attack.expected(defence), abs=1e-8)  # meets it


def test_averaging_gaussian_is_the_cap() -> None:
    """The mean is sufficient for Gaussian noise: no attack on the answers does better."""
    attack = attacks.Averaging(answers=30)
    defence = mechanisms.Gaussian(sensitivity=1.0, sigma=5.0)
    outcome = attack.run(defence, trials=20_000)
    assert attack.expected(defence) == pytest.approx(outcome.cap, abs=1e-8)
    assert agrees(outcome, outcome.cap)


def test_forgetting_to_add_up_beats_the_cap_of_one_answer() -> None:
    """What the curve of one answer seems to promise is beaten; what the composition promises is not."""
    attack, defence = attacks.Averaging(answers=100), mechanisms.Laplace(sensitivity=1.0, epsilon=1.0)
    outcome = attack.run(defence, trials=2000)
    assert above(outcome, defence.curve.guess(prior=0.5))
    assert not outcome.beats_cap


def test_noise_deviation_is_that_of_the_law() -> None:
    z = np.arange(-400, 401)
    for defence, truth in (
        (mechanisms.DiscreteLaplace(sensitivity=1, scale=3), math.sqrt((pmf(3, 400) * z**2).sum())),
        (attacks.BoundedNoise(4), math.sqrt(np.mean(np.arange(-4, 5) ** 2))),
        (mechanisms.Gaussian(sensitivity=1.0, sigma=3.0), 3.0),
        (mechanisms.Gaussian(sensitivity=1, sigma=3.0), math.sqrt(9 + 1 / 12)),
        (None, 0.0),
    ):
        assert noise_deviation(defence) == pytest.approx(truth, rel=1e-7)
    with pytest.raises(InvalidOperation):
        noise_deviation(mechanisms.Staircase(sensitivity=1.0, epsilon=1.0))


def test_bad_numbers_are_refused() -> None:
    for make in (lambda: attacks.Averaging(answers=0), lambda: attacks.Differencing(people=0)):
        with pytest.raises(InvalidParameter):
            make()


def test_a_cap_is_never_above_that_of_pure_dp() -> None:
    """e^ε/(1 + e^ε) bounds every ε-DP mechanism (the trade-off of randomized response)."""
    for epsilon in (0.1, 1.0, 3.0):
        pure = curves.pure(epsilon=epsilon).guess(prior=0.5)
        assert pure == pytest.approx(math.exp(epsilon) / (1 + math.exp(epsilon)), abs=1e-12)
        for defence in attacks.Differencing(people=5).defences(epsilon=epsilon).values():
            assert attacks.Differencing(people=5).run(defence, trials=10).cap <= pure + 1e-12


@pytest.mark.parametrize(
    ("ask", "name"),
    [
        (lambda: attacks.candidates(attacks.HOSPITAL_A, secret="condition"), "releases"),
        (lambda: attacks.exposure_cap(mechanisms.Laplace(sensitivity=1, epsilon=1), bits=10), "curve"),
        (lambda: textbook.basic_composition_of(costs=[0.1, 0.2]), "costs"),
        (lambda: Sensitivity.histogram("row"), "unit"),
        (lambda: span(10)("thirty"), "span"),
    ],
)
def test_what_is_of_the_wrong_kind_is_refused_by_name(ask: Callable[[], object], name: str) -> None:
    """Each of them ended in a raw TypeError, ValueError or AttributeError."""
    with pytest.raises(InvalidParameter, match=name) as said:
        ask()
    assert "thirty" not in str(said.value)
