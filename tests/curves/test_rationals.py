"""Parameters that no float stores, such as 1/3, are rounded to the side on which the promise stays true."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from deniable import curves
from deniable.curves.adaptive_budgets import EpsilonDeltaFilter, PersonalAccounts
from deniable.curves.curve_arguments import positive
from deniable.curves.decimal_arithmetic import real
from deniable.curves.exact_amounts import exact_amount
from deniable.curves.filters import RenyiFilter, RenyiOdometer
from deniable.curves.textbook.conversions import _finite_bound
from deniable.errors import InvalidParameter
from deniable.numbers import down, up

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
    assert Fraction(curves.skellam(variance=x).factors[0][0].variance) <= x  # type: ignore[attr-defined]
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


TINY = Fraction(1, 10**30)


@pytest.mark.parametrize("order", [1 + TINY, 2 - TINY, Fraction(7, 5), Fraction(11, 10)], ids=str)
def test_a_renyi_bound_is_never_claimed_at_a_larger_order(order: Fraction) -> None:
    """Divergences increase with the order, so the order of a guarantee is rounded down."""
    kinds = (
        lambda: curves.renyi(order=order, epsilon=1).factors[0][0],
        lambda: RenyiFilter(order=order, epsilon=1, delta=0),
        lambda: RenyiOdometer(order=order, delta=1e-6),
    )
    for kind in kinds:
        if order < 1 + 2.0**-52:
            with pytest.raises(InvalidParameter, match="floats store"):
                kind()
        else:
            assert 1 < Fraction(kind().order) <= order  # type: ignore[attr-defined]


@pytest.mark.parametrize("x", PARTS, ids=str)
def test_the_limits_of_an_adaptive_budget_are_never_rounded_up(x: Fraction) -> None:
    budget = EpsilonDeltaFilter(epsilon=x, delta=x)
    assert Fraction(budget.epsilon) <= x
    assert Fraction(budget.delta) <= x
    assert PersonalAccounts(people=1, rho=x).limit == math.floor(x * 10**12)
    assert PersonalAccounts(people=1, rho=x).charge(rho=[x])[0].any() == ((x * 10**12).denominator == 1)


def test_a_person_is_charged_at_least_the_exact_cost() -> None:
    """A cost just above the limit was read as the nearest float, which is the limit."""
    assert PersonalAccounts(people=1, rho=Fraction(6, 10) - TINY).limit == 599_999_999_999
    accounts = PersonalAccounts(people=3, rho=0.3)
    costs = [Fraction(3, 10) + Fraction(1, 10**18), Fraction(3, 10), 0.3]
    admitted, after = accounts.charge(rho=costs)
    assert admitted.tolist() == [False, True, True]
    assert after.spent.tolist() == [0, accounts.limit, accounts.limit]


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
    for x in (np.longdouble("inf"), np.longdouble("nan"), np.longdouble(2) ** 2000, np.longdouble("1e400")):
        sides = [lambda x, to=to: positive("sigma", x, to) for to in (up, down)]
        for reads in (
            *sides,
            lambda x: curves.pure(epsilon=x),
            lambda x: exact_amount("epsilon", x),
            lambda x: real("x", x),
        ):
            with pytest.raises(InvalidParameter):
                reads(x)
