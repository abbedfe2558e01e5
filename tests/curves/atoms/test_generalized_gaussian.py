"""Generalised Gaussian noise against mpmath, against Gaussian noise, and the auditor's word."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from deniable import audit, curves
from deniable.curves import Curve
from deniable.curves.atoms.generalized_gaussian import GeneralizedGaussianLaw
from deniable.errors import InvalidParameter


def integral(scale: float, power: float, epsilon: float) -> mp.mpf:
    """δ of a shift by 1, by quadrature of the positive part of the difference of the densities."""
    with mp.workdps(25):
        b, beta, norm = mp.mpf(scale), mp.mpf(power), power / (2 * mp.mpf(scale) * mp.gamma(1 / mp.mpf(power)))

        def density(x: mp.mpf) -> mp.mpf:
            return norm * mp.exp(-(abs(x / b) ** beta))

        low, high = mp.mpf(-80), mp.mpf(80)
        for _ in range(90):
            middle = (low + high) / 2
            is_in = density(middle) > mp.exp(epsilon) * density(middle - 1)
            low, high = (middle, high) if is_in else (low, middle)
        ends = sorted({mp.mpf(-60), *(e for e in (mp.mpf(-10), mp.mpf(-2), mp.mpf(0)) if e < low), low})
        return mp.quad(lambda x: density(x) - mp.exp(epsilon) * density(x - 1), ends)


@pytest.mark.parametrize(("scale", "power"), [(1.0, 1.2), (2.0, 1.5), (3.0, 4.0), (2.0, 9.0)])
def test_the_profile_is_the_integral(scale: float, power: float) -> None:
    curve = curves.generalized_gaussian(scale=scale, power=power)
    for epsilon in (0.0, 0.2, 0.6):
        low, high = curve.delta_bounds(epsilon=epsilon)
        assert low <= integral(scale, power, epsilon) <= high
        assert high - low <= 1e-9


def exact_tails(shift: float, power: float, loss: float) -> tuple[mp.mpf, mp.mpf]:
    """P(L > loss) and e^loss Q(L > loss), with the output of this loss found by bisection."""
    move, beta = mp.mpf(shift), mp.mpf(power)
    low, high = mp.mpf(-1000), mp.mpf(1000)
    for _ in range(200):
        middle = (low + high) / 2
        is_above = abs(middle - move) ** beta - abs(middle) ** beta > loss
        low, high = (middle, high) if is_above else (low, middle)

    def below(x: mp.mpf) -> mp.mpf:
        size = mp.gammainc(1 / beta, abs(x) ** beta, regularized=True) / 2
        return size if x < 0 else 1 - size

    return below(low), mp.exp(loss) * below(low - move)


@pytest.mark.parametrize("power", [1.05, 1.5, 2.0, 5.0, 16.0])
@pytest.mark.parametrize("shift", [1e-9, 1e-5, 0.01, 1.0, 1.4])
def test_tails_are_as_exact_as_they_say(shift: float, power: float) -> None:
    """For small shifts the loss is a small difference of large powers."""
    law = GeneralizedGaussianLaw(shift, power)
    with mp.workdps(60):
        outputs = [mp.mpf(x) for x in (-2.5, -0.7, -1e-3, 0.2, 1.3)]
        losses = [float(abs(x - mp.mpf(shift)) ** power - abs(x) ** power) for x in outputs]
        found = law.tails(np.array(losses))
        for place, loss in enumerate(losses):
            for tail, truth in zip(
                (found.first[place], found.second[place]), exact_tails(shift, power, loss), strict=True
            ):
                if truth > 1e-290:
                    assert abs(tail / truth - 1) <= np.broadcast_to(found.error, len(losses))[place] < 1e-6


@pytest.mark.parametrize(("power", "shift", "epsilon"), [(2.0, 20.0, 690.0), (2.0, 20.0, 730.0), (16.0, 1.4, 1200.0)])
def test_the_lower_end_holds_where_one_tail_underflows(power: float, shift: float, epsilon: float) -> None:
    with mp.workdps(60):
        first, second = exact_tails(shift, power, epsilon)
        low, high = curves.generalized_gaussian(scale=1, power=power, sensitivity=shift).delta_bounds(epsilon=epsilon)
        assert low <= first - second <= high <= low * (1 + 1e-6)


def test_a_power_of_two_is_gaussian_noise() -> None:
    curve = curves.generalized_gaussian(scale=math.sqrt(2), power=2)
    for epsilon in (0.0, 1.0, 4.0):
        low, high = curve.delta_bounds(epsilon=epsilon)
        assert low * (1 - 1e-9) <= curves.gaussian(sigma=1).delta(epsilon=epsilon) <= high * (1 + 1e-9)
    many = (curves.generalized_gaussian(scale=10 * math.sqrt(2), power=2) ** 100).epsilon_bounds(delta=1e-6)
    assert many[0] <= curves.gaussian(sigma=1).epsilon(delta=1e-6) <= many[1] <= many[0] * (1 + 1e-4)


def test_the_auditor_refutes_only_the_broken_twin() -> None:
    random = np.random.default_rng(9)

    class Noise:
        def many(self, value: float, count: int) -> np.ndarray:
            size = random.gamma(1 / 4, size=count) ** (1 / 4)
            return value + np.where(random.random(count) < 0.5, size, -size)

        def release(self, value: float) -> float:
            return float(self.many(value, 1)[0])

    question = {"neighbours": (0.0, 1.0), "trials": 20_000, "confidence": 1 - 1e-9, "delta": 0.1}
    assert not audit.measure(Noise(), claim=curves.generalized_gaussian(scale=1, power=4), **question).refuted
    assert audit.measure(Noise(), claim=curves.generalized_gaussian(scale=1.3, power=4), **question).refuted


def test_groups_records_and_wrong_arguments() -> None:
    curve = curves.generalized_gaussian(scale=3, power=1.5)
    assert curve.group(size=2).delta(epsilon=1) >= curve.delta(epsilon=1)
    assert Curve.from_dict(curve.to_dict()) == curve == curves.parse(curve.expression())
    for given in (
        {"scale": 1, "power": 1.0},
        {"scale": 0, "power": 2},
        {"scale": 1, "power": 99},
        {"scale": 1e-6, "power": 2},
        {"scale": 1e10, "power": 2},
    ):
        with pytest.raises(InvalidParameter):
            curves.generalized_gaussian(**given)
