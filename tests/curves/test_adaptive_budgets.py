"""Adaptive budgets against the best adversary, found by dynamic programming, and accounts of people by enumeration."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from deniable import curves
from deniable.curves.adaptive_budgets import UNIT, EpsilonDeltaFilter, PersonalAccounts
from deniable.errors import BudgetExceeded, InvalidParameter
from deniable.numbers import up
from tests.wording import worded

SIZES = (0.2, 0.5)
MOST = 9


def best_adversary(budget: EpsilonDeltaFilter) -> float:
    """The largest δ at the budget's ε that any rule reaches: after each answer it picks the next randomized response
    that the filter admits, or stops. Exact, over all rules of at most MOST releases.
    """
    releases = [curves.randomized_response(epsilon=size) for size in SIZES]

    @cache
    def filter_after(used: tuple[int, ...]) -> EpsilonDeltaFilter | None:
        if not any(used):
            return budget
        for kind, count in enumerate(used):
            if count:
                before = filter_after(tuple(c - (k == kind) for k, c in enumerate(used)))
                if before is not None and before.admits(releases[kind]):
                    return before.charge(releases[kind])
        return None

    @cache
    def next_releases(used: tuple[int, ...]) -> list[int]:
        now = filter_after(used)
        if now is None or sum(used) >= MOST:
            return []
        return [kind for kind in range(len(SIZES)) if now.admits(releases[kind])]

    @cache
    def value(used: tuple[int, ...], net: tuple[int, ...]) -> float:
        loss = sum(size * n for size, n in zip(SIZES, net, strict=True))
        best = max(0.0, 1 - math.exp(budget.epsilon - loss))
        for kind in next_releases(used):
            size = SIZES[kind]
            after = tuple(c + (k == kind) for k, c in enumerate(used))
            truth = 1 / (1 + math.exp(-size))
            up, down = (tuple(n + sign * (k == kind) for k, n in enumerate(net)) for sign in (1, -1))
            best = max(best, truth * value(after, up) + (1 - truth) * value(after, down))
        return best

    return value((0, 0), (0, 0))


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), [(0.9, 0.02)])
def test_no_rule_exceeds_the_promise(epsilon: float, delta: float) -> None:
    orders = (2.0, 4.0, 8.0)
    reached = best_adversary(EpsilonDeltaFilter(epsilon=epsilon, delta=delta, orders=orders))
    assert reached <= delta
    # A filter that admits more breaks the same promise: the test can fail.
    looser = best_adversary(EpsilonDeltaFilter(epsilon=epsilon, delta=min(60 * delta, 0.9), orders=orders))
    assert looser > delta


def test_sums_of_costs_are_kept_for_every_order() -> None:
    budget = EpsilonDeltaFilter(epsilon=3, delta=1e-6).charge(curves.gaussian(sigma=4)).charge(curves.laplace(scale=10))
    for order, spent in zip(budget.orders, budget.spent, strict=True):
        exact = order / 32 + curves.laplace(scale=10).renyi(order=order)
        assert exact * (1 - 1e-12) <= spent <= exact * (1 + 1e-9)


def test_sums_of_costs_are_rounded_up() -> None:
    for sigma in range(7, 30):
        curve = curves.gaussian(sigma=sigma)
        budget = EpsilonDeltaFilter(epsilon=500, delta=1e-3, orders=(1.7, 3.3, 7.1))
        for count in range(1, 4):
            budget = budget.charge(curve)
            for order, spent in zip(budget.orders, budget.spent, strict=True):
                assert Fraction(spent) >= count * Fraction(curve.renyi_function(order))


def test_one_order_alone_is_the_textbook_conversion() -> None:
    """With one order, the budget is full where renyi_to_epsilon says so."""
    from deniable.curves.textbook import renyi_to_epsilon

    def fits(renyi: float) -> bool:
        return EpsilonDeltaFilter(epsilon=1.0, delta=1e-5, orders=[20.0]).admits(curves.renyi(order=20, epsilon=renyi))

    assert fits(0.55) == (renyi_to_epsilon(order=20, renyi=0.55, delta=1e-5) <= 1)
    low, high = 0.0, 2.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    assert renyi_to_epsilon(order=20, renyi=low, delta=1e-5) == pytest.approx(1.0, rel=2e-3)


def test_a_full_budget_refuses_and_stays() -> None:
    budget = EpsilonDeltaFilter(epsilon=1, delta=1e-6)
    with worded(BudgetExceeded):
        budget.charge(curves.gaussian(sigma=1))
    assert budget.admits(curves.identity())
    assert not budget.admits(curves.approximate(epsilon=0, delta=1e-9))  # no order has a finite divergence
    assert set(budget.spent) == {0.0}


@pytest.mark.parametrize("orders", [[], [1.0], [2.0, 2.0], [1e9]])
def test_wrong_orders_are_refused(orders: list[float]) -> None:
    with pytest.raises(InvalidParameter):
        EpsilonDeltaFilter(epsilon=1, delta=1e-6, orders=orders)


def test_nobody_spends_more_than_their_account() -> None:
    random = np.random.default_rng(1)
    accounts, spent = PersonalAccounts(people=50, rho=0.3), np.zeros(50)
    for _ in range(40):
        costs = random.exponential(0.05, 50)
        admitted, accounts = accounts.charge(rho=costs)
        fits = spent + costs <= 0.3
        assert np.all(admitted == fits)
        spent += np.where(admitted, costs, 0.0)
    assert np.all(spent <= 0.3)
    assert accounts.curve.zcdp() == pytest.approx(0.3)
    assert not accounts.charge(rho=np.full(50, np.inf))[0].any()


def test_people_with_small_values_take_part_longer_within_one_promise() -> None:
    """The exact Rényi divergence of sums in which a person takes part by their account stays below the limit."""
    sigma, limit = 2.0, 0.5
    for value in (0.3, 1.0, 1.7):
        accounts, total = PersonalAccounts(people=2, rho=limit), 0.0
        for _ in itertools.repeat(None, 100):
            admitted, accounts = accounts.charge(rho=np.array([value, 0.1]) ** 2 / (2 * sigma**2))
            total += value**2 if admitted[0] else 0.0
        # All releases together are one Gaussian with this shift for the person.
        assert total / (2 * sigma**2) <= limit
        assert total / (2 * sigma**2) >= limit - value**2 / (2 * sigma**2) or value == 0.3


@pytest.mark.parametrize(
    "costs", [[0.1], [0.1, -1.0], [0.1, math.nan], 0.1, ["Alice", "Bob"], "Alice", [[0.1], [0.2, 0.3]]]
)
def test_wrong_costs_are_refused_without_their_values(costs: object) -> None:
    with worded(InvalidParameter) as raised:
        PersonalAccounts(people=2, rho=1).charge(rho=costs)
    assert raised.value.__context__ is None or raised.value.__suppress_context__, "the error below may name a cost"


@pytest.mark.parametrize("limit", [1.0, 0.3, 1e-12, 20.0, 999.999999999999, 1000.0])
def test_a_limit_can_be_spent_to_the_last_unit(limit: float) -> None:
    admitted, accounts = PersonalAccounts(people=1, rho=limit).charge(rho=[limit])
    assert admitted.all()
    assert not accounts.charge(rho=[1e-300])[0].any()
    assert accounts.curve == curves.zcdp(rho=up(Fraction(str(limit))))


def test_decimals_add_up_to_the_limit_exactly() -> None:
    """As in all filters, a float is the decimal number that it prints as."""
    accounts = PersonalAccounts(people=2, rho=1.0)
    for _ in range(10):
        admitted, accounts = accounts.charge(rho=[0.1, 0.1 + 2e-12])
    assert admitted.tolist() == [True, False]
    assert not accounts.charge(rho=[1e-12, 0.1])[0].any()


def test_the_promise_of_accounts_is_not_below_their_limit() -> None:
    """A limit of 0.6 is six tenths, and the float 0.6 is less."""
    for limit in (0.6, 0.1, 0.3, 0.7, 1 / 3, 999.999999999):
        accounts = PersonalAccounts(people=1, rho=limit)
        [(atom, _)] = accounts.curve.factors
        assert Fraction(accounts.limit, UNIT) <= Fraction(atom.rho)  # type: ignore[attr-defined]  # a zCDP atom


def test_costs_between_two_units_are_rounded_up() -> None:
    """Exact fractions: what is charged is never below the cost, and little more than one unit above it."""
    random = np.random.default_rng(5)
    costs = np.concatenate((random.exponential(1.0, 500), 10.0 ** random.uniform(-15, 3, 500)))
    _, accounts = PersonalAccounts(people=1000, rho=1000).charge(rho=costs)
    taken = accounts.spent > 0
    assert np.count_nonzero(taken) > 990
    for cost, spent in zip(costs[taken], accounts.spent[taken], strict=True):
        exact = Fraction(repr(float(cost))) * UNIT
        assert exact <= int(spent) < exact + Fraction(5, 4)


@pytest.mark.parametrize("limit", [0.0, 1e-13, 1001.0])
def test_limits_out_of_range_are_refused(limit: float) -> None:
    with pytest.raises(InvalidParameter):
        PersonalAccounts(people=1, rho=limit)


@pytest.mark.parametrize("known", [20, 3])
def test_what_is_admitted_satisfies_the_theorem_with_weights_that_sum_to_1(known: int) -> None:
    """Inequality (1) at 40,000 values of the loss, also if only some orders have finite sums."""
    budget = EpsilonDeltaFilter(epsilon=1.0, delta=1e-6)
    weight, loss, admitted = 1 / len(budget.orders), np.linspace(1.0 + 1e-6, 60.0, 40_000), 0
    for rho in np.geomspace(1e-3, 1e-1, 60):
        sums = [
            order * float(rho) if k >= len(budget.orders) - known else math.inf for k, order in enumerate(budget.orders)
        ]
        object.__setattr__(budget, "spent", tuple(sums))
        if budget._holds():
            admitted += 1
            right = sum(
                weight * np.exp(np.minimum((a - 1) * (loss - r), 700.0))
                for a, r in zip(budget.orders, sums, strict=True)
            )
            assert np.all(-np.expm1(1.0 - loss) <= 1e-6 * right)
    assert 0 < admitted < 60
