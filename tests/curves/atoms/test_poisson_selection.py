"""The best of a Poisson number of runs: the bound beside the exact law of the selected output, and beside Gaussians."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import special

from deniable import curves
from deniable.curves import Curve, curve_records
from deniable.errors import InvalidParameter
from tests.curves.atoms.test_repeated_selection import PAIRS, selected_law, told


def poisson_law(mean, most=200):
    """P(K = k), k = 1, 2, ..."""
    return [mpmath.exp(-mean) * mpmath.mpf(mean) ** k / mpmath.factorial(k) for k in range(1, most)]


@pytest.mark.parametrize("mean", [0.3, 5.0, 20.0])
@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_no_selected_output_of_a_small_mechanism_tells_more_than_the_curve(p, q, mean):
    """Enumerated over K; that nothing ran is one more output."""
    law = poisson_law(mean)
    claimed = curves.best_of_poisson_repeats(curves.from_pmf(p, q), mean=mean)
    for order in (range(len(p)), reversed(range(len(p)))):
        places = list(order)
        ahead, back = (
            [*selected_law([mpmath.mpf(each[i]) for i in places], law), mpmath.exp(-mean)] for each in (p, q)
        )
        for epsilon in (0.0, 0.4, 0.9, 2.5):
            assert told(ahead, back, epsilon) <= claimed.delta(epsilon=epsilon) * (1 + 1e-9) + 1e-12
        if min(*p, *q) > 0:
            for a in (1.5, 2.0, 8.0):
                moment = mpmath.fsum(x**a * y ** (1 - a) for x, y in zip(ahead, back, strict=True))
                assert mpmath.log(moment) / (a - 1) <= claimed.renyi(order=a) * (1 + 1e-9)


@pytest.mark.parametrize("mean", [1.0, 10.0, 100.0])
def test_no_gaussian_that_is_chosen_by_its_value_tells_more(mean):
    """The density of the largest of K values, by quadrature. One run's own curve is exceeded: the test can fail."""
    sigma, claimed = 2.0, curves.best_of_poisson_repeats(curves.gaussian(sigma=2.0), mean=mean)
    y = np.linspace(-28, 29, 200_001)
    near, far = (
        mean * np.exp(-((y - at) ** 2) / 8 - mean * special.ndtr((at - y) / sigma)) / math.sqrt(8 * math.pi)
        for at in (0.0, 1.0)
    )
    exceeded = []
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0):
        for a, b in ((near, far), (far, near)):
            exact = float(np.sum(np.maximum(a - math.exp(epsilon) * b, 0))) * (y[1] - y[0])
            assert exact <= claimed.delta(epsilon=epsilon) * (1 + 1e-6) + 1e-12
            exceeded.append(exact > 1.01 * curves.gaussian(sigma=2.0).delta(epsilon=epsilon))
    assert any(exceeded) == (mean > 1)


def test_the_bound_is_never_looser_than_the_theorem_of_papernot_and_steinke():
    """Their bound: D_a + m δ̂ + log m/(a - 1), with δ̂ at e^ε̂ = 1 + 1/(a - 1); ours has e^-m more for K = 0."""
    base, orders = curves.gaussian(sigma=2.0), 1 + np.logspace(-1, 2.5, 60)
    for mean in (2.0, 10.0):
        theirs = [
            a / 8 + mean * base.delta(epsilon=math.log1p(1 / (a - 1))) + math.log(mean) / (a - 1)
            for a in orders.tolist()
        ]
        best = min(
            curves.textbook.renyi_to_epsilon(order=a, renyi=d, delta=1e-6)
            for a, d in zip(orders.tolist(), theirs, strict=True)
        )
        found = curves.best_of_poisson_repeats(base, mean=mean).epsilon(delta=1e-6)
        assert base.epsilon(delta=1e-6) < found < best * 1.001


def test_the_curve_is_a_curve_like_any_other():
    one = curves.best_of_poisson_repeats(curves.gaussian(sigma=2), mean=3)
    assert Curve.from_dict(curve_records.to_dict(one)) == one
    assert curves.parse(one.expression()) == one
    low, high = one.epsilon_bounds(delta=1e-6)
    # With constant scores, the output is that of one run with probability 1 - e^-3.
    alone = curves.gaussian(sigma=2).epsilon(delta=1e-6 / -math.expm1(-3))
    assert 0.98 * alone < low <= alone
    assert low < curves.gaussian(sigma=2).epsilon(delta=1e-6) < high < (one**2).epsilon(delta=1e-6)
    assert curves.best_of_poisson_repeats(curves.identity(), mean=3) == curves.identity()
    more = curves.best_of_poisson_repeats(curves.gaussian(sigma=2), mean=6)
    assert more.epsilon(delta=1e-6) > high
    for wrong in (0.0, -1.0, math.inf, 1e7):
        with pytest.raises(InvalidParameter):
            curves.best_of_poisson_repeats(curves.gaussian(sigma=2), mean=wrong)
