"""The best of a random number of runs: the bound beside the exact law of the selected output of small mechanisms."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from deniable import curves
from deniable.curves import Curve, curve_records
from deniable.curves.atoms.repeated_selection import mean_repeats
from deniable.errors import InvalidParameter

LAWS = [(1.0, 0.1), (1.0, 0.5), (0.0, 0.02), (0.0, 0.3), (-0.5, 0.05), (2.5, 0.2)]
PAIRS = [
    ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]),
    ([0.7, 0.2, 0.1], [0.6, 0.2, 0.2]),
    ([0.9, 0.1], [0.75, 0.25]),
    ([0.97, 0.01, 0.02], [0.98, 0.015, 0.005]),
    ([0.25, 0.25, 0.25, 0.25], [0.1, 0.4, 0.1, 0.4]),
    ([0.999, 0.001, 0.0], [0.998, 0.001, 0.001]),
]


def repeats_law(shape, gamma, most=3000):
    """P(K = k), k = 1, 2, ..., by its definition; the missing tail is below 1e-20 for these γ."""
    weights = [mpmath.mpf(1 - gamma) * shape if shape else mpmath.mpf(1 - gamma)]
    for k in range(1, most):
        weights.append(weights[-1] * (1 - mpmath.mpf(gamma)) * (k + mpmath.mpf(shape)) / (k + 1))
    total = mpmath.fsum(weights)
    return [each / total for each in weights]


def selected_law(masses, law):
    """The law of the best of K outputs, enumerated over K: outcome i is best with F(i)^k - F(i-1)^k."""
    below = [mpmath.fsum(masses[: i + 1]) for i in range(len(masses))]
    found, powers = [mpmath.mpf(0)] * len(masses), [mpmath.mpf(1)] * len(masses)
    for chance in law:
        powers = [power * each for power, each in zip(powers, below, strict=True)]
        for i in range(len(masses)):
            found[i] += chance * (powers[i] - (powers[i - 1] if i else 0))
    return found


def told(p, q, epsilon):
    ways = ((p, q), (q, p))
    return max(mpmath.fsum(max(a - mpmath.exp(epsilon) * b, 0) for a, b in zip(*way, strict=True)) for way in ways)


@pytest.mark.parametrize(("shape", "gamma"), LAWS)
def test_no_selected_output_of_a_small_mechanism_tells_more_than_the_curve(shape, gamma):
    law = repeats_law(shape, gamma, 1500)
    assert float(mpmath.fsum((k + 1) * each for k, each in enumerate(law))) == pytest.approx(
        mean_repeats(shape=shape, gamma=gamma), rel=1e-8
    )
    for p, q in PAIRS:
        for order in (range(len(p)), reversed(range(len(p)))):
            places = list(order)
            ahead, back = (selected_law([mpmath.mpf(each[i]) for i in places], law) for each in (p, q))
            claimed = curves.best_of_repeats(curves.from_pmf(p, q), shape=shape, gamma=gamma)
            for epsilon in (0.0, 0.1, 0.4, 0.9, 1.5, 2.5):
                assert told(ahead, back, epsilon) <= claimed.delta(epsilon=epsilon) * (1 + 1e-9) + 1e-12
            if min(*p, *q) > 0:
                for a in (1.5, 2.0, 8.0):
                    moment = mpmath.fsum(x**a * y ** (1 - a) for x, y in zip(ahead, back, strict=True))
                    assert mpmath.log(moment) / (a - 1) <= claimed.renyi(order=a) * (1 + 1e-9)


def test_the_price_of_selection_is_not_zero():
    """The curve of one run is false for the best of several: the check above can fail."""
    p, q = PAIRS[3]
    law = repeats_law(1.0, 0.02, 800)
    ahead, back = (selected_law([mpmath.mpf(each) for each in masses], law) for masses in (p, q))
    assert told(ahead, back, 1.0) > 3 * curves.from_pmf(p, q).delta(epsilon=1.0)


@pytest.mark.parametrize(("shape", "gamma"), [(1.0, 0.1), (0.0, 0.02), (-0.5, 0.01)])
def test_the_bound_is_never_looser_than_the_theorem_of_papernot_and_steinke(shape, gamma):
    base = curves.gaussian(sigma=2.0)
    found = curves.best_of_repeats(base, shape=shape, gamma=gamma)
    orders = 1 + np.logspace(-1, 2.5, 60)
    hat = min((1 + shape) * ((1 - 1 / a) * base.renyi(order=a) + math.log(1 / gamma) / a) for a in orders.tolist())
    for a in (1.5, 3.0, 10.0, 30.0):
        theirs = base.renyi(order=a) + hat + math.log(mean_repeats(shape=shape, gamma=gamma)) / (a - 1)
        assert found.renyi(order=a) <= theirs
    best = min(
        curves.textbook.renyi_to_epsilon(
            order=a,
            renyi=base.renyi(order=a) + hat + math.log(mean_repeats(shape=shape, gamma=gamma)) / (a - 1),
            delta=1e-6,
        )
        for a in orders.tolist()
    )
    assert base.epsilon(delta=1e-6) < found.epsilon(delta=1e-6) < 0.9 * best


@pytest.mark.parametrize("shape", [1.0, 0.0, -0.5, 3.0])
def test_pure_mechanisms_stay_pure_and_reach_the_limit_for_many_repeats(shape):
    """(2 + η) ε: Liu & Talwar 2019 (geometric, 3ε), Papernot & Steinke 2022."""
    for gamma in (0.5, 0.01, 1e-9):
        found = curves.best_of_repeats(curves.pure(epsilon=0.5), shape=shape, gamma=gamma).epsilon(delta=0)
        assert 0.5 < found <= (2 + shape) * 0.5 * (1 + 1e-9)
    assert found == pytest.approx((2 + shape) * 0.5, rel=1e-6)


def test_the_curve_is_a_curve_like_any_other():
    one = curves.best_of_repeats(curves.gaussian(sigma=2), shape=1.0, gamma=0.1)
    assert Curve.from_dict(curve_records.to_dict(one)) == one
    assert curves.parse(one.expression()) == one
    assert one.is_symmetric
    low, high = one.epsilon_bounds(delta=1e-6)
    assert low <= curves.gaussian(sigma=2).epsilon(delta=1e-6) < high
    assert low == pytest.approx(curves.gaussian(sigma=2).epsilon(delta=1e-6), rel=1e-2)
    assert high < (one**2).epsilon(delta=1e-6) < 2 * high
    assert curves.best_of_repeats(curves.identity(), shape=1.0, gamma=0.1) == curves.identity()
    for wrong in ({"shape": -1.0, "gamma": 0.1}, {"shape": 1.0, "gamma": 1.0}, {"shape": 1.0, "gamma": 0.0}):
        with pytest.raises(InvalidParameter):
            curves.best_of_repeats(curves.gaussian(sigma=2), **wrong)
