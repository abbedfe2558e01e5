"""Arguments that no float stores: upper ends stay above the exact number, and lower ends below it.

A reading at the nearest float may be a reading beyond a jump of the function, so every case here is compared with the
number at the exact argument, by fractions or to 50 digits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from deniable import curves
from deniable.curves import Curve
from deniable.errors import InvalidParameter
from tests.wording import worded

SEED = random.SystemRandom().randrange(2**32)
P = (Fraction(3, 4), Fraction(1, 4))
SHIFTS = [Fraction(1, 10**30), -Fraction(1, 10**30), Fraction(1, 2**60), -Fraction(1, 2**60), Fraction(1, 10**400)]


def fair() -> Curve:
    """Randomized response with the odds 3: its numbers are rational."""
    return curves.from_pmf([0.75, 0.25], [0.25, 0.75])


def exact_delta(epsilon: Fraction) -> mpmath.mpf:
    with mpmath.workdps(50):
        x = mpmath.exp(mpmath.mpf(epsilon.numerator) / epsilon.denominator)
        return max(mpmath.mpf("0.75") - x / 4, 1 - x, mpmath.mpf(0))


def exact_beta(alpha: Fraction) -> Fraction:
    return max(1 - 3 * alpha, (1 - alpha) / 3, Fraction(0))


def exact_guess(prior: Fraction) -> Fraction:
    return sum((max((1 - prior) * q, prior * p) for p, q in zip(P, reversed(P), strict=True)), Fraction(0))


def near_floats(count: int) -> list[Fraction]:
    """Fractions in (0, 1), most of them next to a float where a function of `fair` has a corner."""
    rng = random.Random(SEED)
    corners = [Fraction(1, 4), Fraction(3, 4), Fraction(1, 2), Fraction(0.1), Fraction(0.3)]
    found = [Fraction(rng.randrange(1, 10**6), 10**6) for _ in range(count)]
    found += [rng.choice(corners) + rng.choice(SHIFTS) for _ in range(count)]
    return [x for x in found if Fraction(float(x)) != x]


def test_the_trade_off_function_and_its_kin_hold_at_fractions() -> None:
    """β, the true-positive rate, the best guess and the belief, by exact fractions."""
    curve = fair()
    for x in near_floats(40):
        told = f"seed {SEED}, {x}"
        low, high = curve.beta_bounds(alpha=x)
        assert Fraction(low) <= exact_beta(x) <= Fraction(high), told
        assert Fraction(curve.tpr(fpr=x)) >= 1 - exact_beta(x), told
        for direction in (curve.forward, curve.backward):
            low, high = direction.beta_bounds(alpha=x)
            assert Fraction(low) <= exact_beta(x) <= Fraction(high), told
        assert Fraction(curve.guess(prior=x)) >= exact_guess(x), told
        assert Fraction(curve.posterior(prior=x)) >= 3 * x / (3 * x + 1 - x), told


@pytest.mark.parametrize("k", range(1, 60, 7))
def test_delta_of_pure_dp_is_not_zero_just_below_its_epsilon(k: int) -> None:
    """The ε of the curve is the float, which may lie above k/10: then δ(k/10) is positive."""
    curve, asked = curves.pure(epsilon=float(Fraction(k, 10))), Fraction(k, 10)
    with mpmath.workdps(50):
        e, at = mpmath.mpf(float(asked)), mpmath.mpf(k) / 10
        exact = max((mpmath.exp(e) - mpmath.exp(at)) / (1 + mpmath.exp(e)), mpmath.mpf(0))
    low, high = curve.delta_bounds(epsilon=asked)
    assert low <= exact <= high == curve.delta(epsilon=asked)


def test_delta_holds_at_fractions_of_epsilon() -> None:
    rng = random.Random(SEED)
    curve = fair()
    for x in [Fraction(rng.randrange(-(10**6), 2 * 10**6), 10**6) for _ in range(60)]:
        low, high = curve.delta_bounds(epsilon=x)
        assert low <= exact_delta(x) <= high, f"seed {SEED}, {x}"
        assert high == curve.delta(epsilon=x)
        for direction in (curve.forward, curve.backward):
            low, high = direction.delta_bounds(epsilon=x)
            assert low <= exact_delta(x) <= high, f"seed {SEED}, {x}"
        if -1 <= x <= 1:  # the losses are ± log 3
            low, high = curve.loss_tail_bounds(epsilon=x)
            assert Fraction(low) <= P[0] <= Fraction(high), f"seed {SEED}, {x}"


def test_integers_beyond_two_to_the_53_are_read_exactly() -> None:
    """The exact δ is 1 - 1/e; the nearest float of this ε is the ε of the curve, where δ is 0."""
    pure = curves.pure(epsilon=2**53 + 4)
    exact = 1 - math.exp(-1)
    for asked in (2**53 + 3, np.int64(2**53 + 3), np.array([2**53 + 3]), [2**53 + 3, 0.5], Fraction(2**53 + 3)):
        assert np.ravel(pure.delta(epsilon=asked))[0] >= exact
        assert np.ravel(pure.delta_bounds(epsilon=asked)[0])[0] <= exact


def test_epsilon_and_mu_hold_just_below_a_jump_in_delta() -> None:
    curve = curves.approximate(epsilon=1.0, delta=0.25)
    under, over = Fraction(1, 4) - Fraction(1, 10**30), Fraction(1, 4) + Fraction(1, 10**30)
    assert curve.epsilon(delta=0.25) == 1.0
    assert curve.epsilon(delta=under) == math.inf
    low, high = curve.epsilon_bounds(delta=over)
    assert low <= 1 <= high < math.inf
    assert curve.gdp(delta=under) == math.inf
    assert curve.epsilon(delta=[under, 0.25]).tolist() == [math.inf, 1.0]
    assert curves.gaussian(mu=1).epsilon(delta=Fraction(1, 10**400)) == math.inf


def test_a_belief_allows_for_no_more_than_the_stated_delta() -> None:
    """A probability of failure that is rounded up allows for more than was asked."""
    curve = curves.approximate(epsilon=1.0, delta=0.25)
    assert curve.posterior(prior=0.5, delta=Fraction(1, 4) - Fraction(1, 10**30)) == 1.0
    half = Fraction(1, 2) - Fraction(1, 10**30)
    assert curve.posterior(prior=0.5, delta=half) == curve.posterior(prior=0.5, delta=math.nextafter(0.5, 0))
    assert curve.posterior(prior=0.5, delta=0.5) < 1
    assert fair().posterior(prior=Fraction(1, 10**400)) > 0


def test_renyi_divergences_hold_at_fractions_of_the_order() -> None:
    rng = random.Random(SEED)
    curve = curves.gaussian(mu=1)
    orders = [
        1 + Fraction(1, 10**20),
        1 - Fraction(1, 10**20),
        *(Fraction(rng.randrange(1, 10**6), 10**5) for _ in range(30)),
    ]
    for order in orders:
        assert Fraction(curve.renyi(order=order)) >= order / 2, f"seed {SEED}, {order}"
        for direction in (curve.forward, curve.backward):
            low, high = direction.renyi_bounds(order=order)
            assert Fraction(low) <= order / 2 <= Fraction(high), f"seed {SEED}, {order}"


READINGS: dict[str, Callable[..., Any]] = {
    "delta": lambda c, x: c.delta_bounds(epsilon=x),
    "loss tail": lambda c, x: c.loss_tail_bounds(epsilon=x),
    "epsilon": lambda c, x: c.epsilon_bounds(delta=x),
    "beta": lambda c, x: c.beta_bounds(alpha=x),
    "renyi": lambda c, x: c.forward.renyi_bounds(order=x),
}


@pytest.mark.parametrize("read", READINGS.values(), ids=READINGS)
def test_a_number_that_a_float_stores_is_one_number_in_every_type(read: Callable[..., Any]) -> None:
    """Nothing is rounded, so nothing moves: the bounds are those at the float."""
    curve = curves.gaussian(mu=1) ** 3
    for x in (0.5, 0.25, 0.1):
        told = read(curve, x)
        for same in (Fraction(x), np.float64(x), np.longdouble(x)):
            assert read(curve, same) == told
        for array in (np.array([x]), [x], [Fraction(x)], np.array([[x]])):
            assert [np.ravel(each).tolist() for each in read(curve, array)] == [[each] for each in told]


def test_a_number_beyond_a_range_by_less_than_a_rounding_is_refused() -> None:
    curve = curves.gaussian(mu=1)
    beyond: list[Callable[[], Any]] = [
        lambda: curve.epsilon(delta=1 + Fraction(1, 10**30)),
        lambda: curve.beta(alpha=-Fraction(1, 10**400)),
        lambda: curve.renyi(order=Fraction(1, 10**400)),
        lambda: curve.renyi(order=10**9 + Fraction(1, 10**30)),
        lambda: curve.delta(epsilon=10**400),
    ]
    for reads in beyond:
        with pytest.raises(InvalidParameter):
            reads()


ONE_SIDED: dict[str, tuple[bool, Callable[..., Any]]] = {
    "delta": (True, lambda c, x: c.delta_bounds(epsilon=x)),
    "delta of a direction": (True, lambda c, x: c.forward.delta_bounds(epsilon=x)),
    "beta": (True, lambda c, x: c.beta_bounds(alpha=x)),
    "beta of a direction": (True, lambda c, x: c.forward.beta_bounds(alpha=x)),
    "true positives": (False, lambda c, x: (0.0, c.tpr(fpr=x))),
    "belief": (False, lambda c, x: (0.0, c.posterior(prior=x))),
    "renyi": (False, lambda c, x: (0.0, c.renyi(order=x))),
    "renyi of a direction": (False, lambda c, x: c.forward.renyi_bounds(order=x)),
}


@pytest.mark.parametrize(("falls", "read"), ONE_SIDED.values(), ids=ONE_SIDED)
def test_each_end_is_read_at_the_float_on_its_side(falls: bool, read: Callable[..., Any]) -> None:
    """Where a function has no jump, the margin of its bounds hides which float was read: so the floats are compared."""
    told = 0
    for curve in (curves.pure(epsilon=1.5), curves.gaussian(mu=1), curves.laplace(scale=0.5)):
        for near in (0.1, 0.3, 0.7):
            below, above = near, math.nextafter(near, 1)
            at_low, at_high = (above, below) if falls else (below, above)
            between = Fraction(below) + Fraction(1, 2**70)
            assert read(curve, between) == (read(curve, at_low)[0], read(curve, at_high)[1])
            told += read(curve, below) != read(curve, above)
    assert told, "these floats must tell the sides apart"


@pytest.mark.parametrize(
    "value", [np.array(Fraction(1, 3), dtype=object), [[Fraction(1, 2), 0.25]], [Fraction(1, 3), 1]], ids=repr
)
def test_arrays_of_objects_are_read_whatever_their_shape(value: Any) -> None:
    found = curves.pure(epsilon=1.0).delta(epsilon=value)
    assert np.shape(found) == np.shape(np.asarray(value, dtype=float))


@pytest.mark.parametrize(
    "value", [[[Fraction(1, 2), "1"]], np.array([["1"]], dtype=object), [[None]], (1 for _ in "a")]
)
def test_texts_at_any_depth_are_no_numbers(value: Any) -> None:
    with worded(InvalidParameter):
        curves.pure(epsilon=1.0).delta(epsilon=value)
