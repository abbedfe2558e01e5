"""Parameters that no float stores, such as 1/3, are rounded to the side on which the promise stays true."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from deniable import curves
from deniable.curves.decimal_arithmetic import real
from deniable.curves.exact_amounts import exact_amount
from deniable.curves.textbook.conversions import _finite_bound
from deniable.errors import InvalidParameter

PARTS = [
    Fraction(n, d) for n, d in ((1, 3), (2, 3), (1, 10), (7, 10), (1, 7), (3, 7), (9, 11), (10**20 + 1, 3 * 10**20))
]


def test_the_nearest_float_lies_on_either_side() -> None:
    """What the rounding is for: these cases must tell."""
    assert {Fraction(float(x)) > x for x in PARTS} == {True, False}


@pytest.mark.parametrize("x", PARTS, ids=str)
def test_what_something_costs_is_never_rounded_down(x: Fraction) -> None:
    assert Fraction(curves.pure(epsilon=x).epsilon(delta=0.0)) >= x
    assert Fraction(curves.exponential(epsilon=x).epsilon(delta=0.0)) >= x
    assert Fraction(curves.randomized_response(epsilon=x).epsilon(delta=0.0)) >= x
    assert Fraction(curves.approximate(epsilon=0, delta=x).delta(epsilon=0.0)) >= x
    assert Fraction(curves.gaussian(mu=x).gdp()) >= x
    assert Fraction(curves.zcdp(rho=x).zcdp()) >= x
    for sampled in (curves.pure(epsilon=50).sampled(rate=x), curves.approximate(epsilon=0, delta=1).sampled(rate=x)):
        assert Fraction(sampled.factors[0][0].rate) >= x  # type: ignore[attr-defined]


@pytest.mark.parametrize("x", PARTS, ids=str)
def test_noise_is_never_taken_for_wider_than_it_is(x: Fraction) -> None:
    assert Fraction(curves.gaussian(sigma=x).gdp()) >= 1 / x
    assert Fraction(curves.laplace(scale=x).epsilon(delta=0.0)) >= 1 / x
    assert Fraction(curves.discrete_laplace(scale=x).epsilon(delta=0.0)) >= 1 / x
    assert Fraction(curves.discrete_gaussian(sigma=x).factors[0][0].sigma) <= x  # type: ignore[attr-defined]
    low, high = x, x + Fraction(1, 3)
    atom = curves.poisson(low=low, high=high).factors[0][0]
    assert Fraction(atom.low) <= low  # type: ignore[attr-defined]
    assert Fraction(atom.high) >= high  # type: ignore[attr-defined]


@pytest.mark.parametrize("x", PARTS, ids=str)
def test_a_target_is_never_exceeded(x: Fraction) -> None:
    scale = curves.calibrate(lambda b: curves.laplace(scale=b), epsilon=x)
    assert Fraction(curves.laplace(scale=scale).epsilon(delta=0.0)) <= x
    sigma = curves.calibrate(lambda s: curves.gaussian(sigma=s), mu=x)
    assert Fraction(curves.gaussian(sigma=sigma).gdp()) <= x
    with_rho = curves.calibrate(lambda s: curves.gaussian(sigma=s), rho=x)
    assert Fraction(curves.gaussian(sigma=with_rho).zcdp()) <= x


LONG = [np.longdouble(1) + np.longdouble(2) ** -60, np.longdouble(1) / 3, np.longdouble(2) / 3, np.longdouble(7) / 10]


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="longdouble is a float here")
@pytest.mark.parametrize("x", LONG, ids=str)
def test_digits_beyond_those_of_a_float_are_on_the_safe_side(x: np.longdouble) -> None:
    exact = Fraction(*x.as_integer_ratio())
    assert Fraction(float(x)) != exact, "no float stores it"
    assert Fraction(curves.pure(epsilon=x).epsilon(delta=0.0)) >= exact
    assert Fraction(curves.gaussian(mu=x).gdp()) >= exact
    assert Fraction(curves.zcdp(rho=x).zcdp()) >= exact
    assert Fraction(curves.gaussian(sigma=x).gdp()) >= 1 / exact
    assert Fraction(curves.discrete_gaussian(sigma=x).factors[0][0].sigma) <= exact  # type: ignore[attr-defined]
    assert exact_amount("epsilon", x) == real("epsilon", x) == exact
    assert Fraction(_finite_bound("renyi", lambda order: x, 2.0)) >= exact


def test_a_longdouble_beyond_all_floats_is_refused() -> None:
    for x in (np.longdouble("inf"), np.longdouble("nan"), np.longdouble(2) ** 2000):
        for reads in (lambda x: curves.pure(epsilon=x), lambda x: exact_amount("epsilon", x), lambda x: real("x", x)):
            with pytest.raises(InvalidParameter):
                reads(x)
