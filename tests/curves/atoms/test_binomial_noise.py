"""Binomial noise against exact fractions, and the auditor's word."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from deniable import audit, curves
from deniable.curves import Curve
from deniable.curves.atoms import binomial_noise
from deniable.curves.laws import finite_law
from deniable.errors import InvalidParameter
from tests.wording import worded


def exact(coins: int, p: Fraction, shift: int, odds: Fraction) -> tuple[Fraction, Fraction]:
    """δ without against with, and with against without."""
    masses = [math.comb(coins, k) * p**k * (1 - p) ** (coins - k) for k in range(coins + 1)]
    nobody = [*masses, *[Fraction(0)] * shift]
    someone = [*[Fraction(0)] * shift, *masses]

    def gap(one: list[Fraction], two: list[Fraction]) -> Fraction:
        return sum((max(a - odds * b, Fraction(0)) for a, b in zip(one, two, strict=True)), Fraction(0))

    return gap(nobody, someone), gap(someone, nobody)


@pytest.mark.parametrize(
    ("coins", "p", "shift"), [(1, 0.5, 1), (12, 0.25, 1), (40, 0.5, 3), (300, 0.75, 2), (5, 0.5, 9)]
)
def test_both_directions_are_the_exact_sums(coins: int, p: float, shift: int) -> None:
    curve = curves.binomial(coins=coins, p=p, sensitivity=shift)
    for odds in (Fraction(1), Fraction(5, 4), Fraction(3), Fraction(40)):
        found = exact(coins, Fraction(p), shift, odds)
        for direction, truth in zip((curve.forward, curve.backward), found, strict=True):
            low, high = direction.delta_bounds(epsilon=math.log(odds))
            assert low <= float(truth) * (1 + 1e-9) + 1e-80
            assert high >= float(truth) * (1 - 1e-9)
            assert high - low <= 1e-7 * high + 1e-80


@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
def test_a_person_may_lower_or_raise_the_statistic(p: float) -> None:
    """A Poisson sample of people who add 1 or -1 to a sum: both orders of the two laws are possible."""
    masses = [math.comb(8, k) * Fraction(p) ** k * (1 - Fraction(p)) ** (8 - k) for k in range(9)]
    nobody, rate, odds = [Fraction(0), *masses, Fraction(0)], Fraction(1, 3), Fraction(9, 2)
    truth = Fraction(0)
    for moved in ([Fraction(0), Fraction(0), *masses], [*masses, Fraction(0), Fraction(0)]):
        someone = [rate * b + (1 - rate) * a for a, b in zip(nobody, moved, strict=True)]
        for one, two in ((nobody, someone), (someone, nobody)):
            truth = max(
                truth, sum((max(a - odds * b, Fraction(0)) for a, b in zip(one, two, strict=True)), Fraction(0))
            )
    curve = curves.binomial(coins=8, p=p)
    found = curve.sampled(rate=1 / 3).delta(epsilon=math.log(odds))
    assert float(truth) * (1 - 1e-9) <= found <= float(truth) * (1 + 1e-6)
    if p == 0.5:
        assert curve.allocated(steps=3).delta(epsilon=0.5) > 0
    else:
        with worded(InvalidParameter):
            curve.allocated(steps=3)


@pytest.mark.parametrize("coins", [10**8, binomial_noise.MOST_COINS])
def test_masses_of_many_coins_have_the_digits_that_are_claimed(coins: int) -> None:
    """A loss is a difference of two logarithms, so each of them may have half of the error."""
    for p in (0.01, 0.45, 0.9):
        spread = math.sqrt(coins * p * (1 - p))
        numbers = np.round(coins * p + spread * np.array([-20.0, -7.0, 1.0, 10.0, 20.0]))
        found = finite_law.log_binomial(coins, numbers, p)
        with mp.workdps(50):
            for number, log in zip(numbers.tolist(), found.tolist(), strict=True):
                ways = mp.loggamma(coins + 1) - mp.loggamma(number + 1) - mp.loggamma(coins - number + 1)
                truth = ways + number * mp.log(mp.mpf(p)) + (coins - number) * mp.log1p(-mp.mpf(p))
                assert abs(log - truth) <= binomial_noise.DIGITS / 2


def test_many_coins_are_nearly_gaussian_noise() -> None:
    normal = curves.gaussian(sigma=500).epsilon(delta=1e-6)
    assert curves.binomial(coins=10**6).epsilon(delta=1e-6) == pytest.approx(normal, rel=0.01)


def test_the_auditor_refutes_only_the_broken_twin() -> None:
    random = np.random.default_rng(4)

    class Heads:
        def many(self, value: int, count: int) -> np.ndarray:
            return value + random.binomial(16, 0.5, count)

        def release(self, value: int) -> int:
            return int(self.many(value, 1)[0])

    question = {"neighbours": (0, 1), "trials": 20_000, "confidence": 1 - 1e-9, "delta": 0.01}
    assert not audit.measure(Heads(), claim=curves.binomial(coins=16), **question).refuted
    assert audit.measure(Heads(), claim=curves.binomial(coins=64), **question).refuted


def test_groups_records_and_wrong_arguments() -> None:
    curve = curves.binomial(coins=100, sensitivity=2)
    assert curve.group(size=3) == curves.binomial(coins=100, sensitivity=6).symmetrized()
    assert Curve.from_dict(curve.to_dict()) == curve == curves.parse(curve.expression())
    for given in ({"coins": 0}, {"coins": 5, "p": 0.0}, {"coins": 5, "p": 1e-9}, {"coins": 10**10}):
        with pytest.raises(InvalidParameter):
            curves.binomial(**given)
