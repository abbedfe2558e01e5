"""Currencies as objects: conversions against exact fractions, and no comparison of their names anywhere."""

from __future__ import annotations

import math
import random
import re
from fractions import Fraction
from pathlib import Path

import pytest

import deniable
from deniable import Budget, curves
from deniable.curves.filters import UNIT
from deniable.errors import InvalidOperation
from deniable.ledger import Cost
from deniable.ledger.currency import CURRENCIES, GAUSSIAN, PURE, ZCDP, Currency

ALL = list(CURRENCIES.values())
BUDGETS = {"mu2": Budget.gaussian(mu=2), "epsilon": Budget.pure(epsilon=2), "rho": Budget.zcdp(rho=2)}


def amounts(name: str) -> list[int]:
    """Units from one to 10^36."""
    draw = random.Random(name)
    return [1, 10**30, *(int(10 ** draw.uniform(0, 36)) for _ in range(200))]


def test_the_names_in_records_are_those_on_disk() -> None:
    assert set(CURRENCIES) == {"mu2", "epsilon", "rho"}
    for name, budget in BUDGETS.items():
        assert budget.currency == name
        assert budget.accounting is CURRENCIES[name]
        assert eval(f"Budget.{budget.accounting.constructor}({budget.accounting.parameter}=2)") == budget
    assert Budget(epsilon=1, delta=1e-6).accounting is GAUSSIAN


@pytest.mark.parametrize("currency", ALL, ids=lambda each: each.name)
def test_a_level_never_promises_less_than_was_paid(currency: Currency) -> None:
    for units in amounts(currency.name):
        low, high = currency.level_down(units), currency.level_up(units)
        power = 2 if currency is GAUSSIAN else 1
        assert low**power <= units * UNIT <= high**power
        assert high - low <= high * Fraction(1, 10**40) + Fraction(1, 10**60)


@pytest.mark.parametrize("currency", ALL, ids=lambda each: each.name)
def test_an_amount_in_its_own_parameter_costs_its_units_rounded_up(currency: Currency) -> None:
    power = 2 if currency is GAUSSIAN else 1
    for units in amounts(currency.name):
        amount = Fraction(units, 7 * 10**15)
        assert currency.cost_units(currency.parameter, amount) == math.ceil(amount**power / UNIT)


def test_only_gaussian_noise_converts_between_currencies() -> None:
    mu = Fraction(3, 7)
    assert GAUSSIAN.cost_units("rho", mu**2 / 2) == GAUSSIAN.cost_units("mu", mu)
    assert ZCDP.cost_units("mu", mu) == ZCDP.cost_units("rho", mu**2 / 2)
    for currency, name in ((GAUSSIAN, "epsilon"), (ZCDP, "epsilon"), (PURE, "mu"), (PURE, "rho")):
        assert currency.cost_units(name, 1) is None


@pytest.mark.parametrize("currency", [GAUSSIAN, ZCDP], ids=lambda each: each.name)
def test_gaussian_noise_of_a_cost_costs_that_much(currency: Currency) -> None:
    for units in amounts(currency.name):
        square = currency.mu2_units(units) * UNIT
        assert currency.units_of_mu2(square) == units
        mu = Fraction(currency.gaussian_mu(units))
        assert mu**2 <= square <= (mu * (1 + Fraction(1, 2**50))) ** 2
        level = currency.level_down(units)
        assert currency.mu2_of_level(level) <= square
        priced = BUDGETS[currency.name].price(curves.gaussian(mu=float(mu)))
        assert priced.units <= units


def test_a_pure_epsilon_pays_for_no_gaussian_noise() -> None:
    for refused in (PURE.mu2_units, PURE.gaussian_mu):
        with pytest.raises(InvalidOperation):
            refused(10**30)
    for refused_exact in (PURE.mu2_of_level, PURE.units_of_mu2):
        with pytest.raises(InvalidOperation):
            refused_exact(Fraction(1))


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=repr)
def test_a_filter_admits_the_limit_and_not_a_unit_more(budget: Budget) -> None:
    for units in amounts(budget.currency):
        limit = Cost(units, 5)
        assert budget.fits(limit, limit)
        assert not budget.fits(Cost(units + 1, 5), limit)
        assert not budget.fits(Cost(units, 6), limit)


def test_no_code_compares_the_name_of_a_currency() -> None:
    pattern = re.compile(r"currency\b[^\n]{0,20}(==|!=|\bin\b|\bnot in\b) *[\[({]?\"|\[budget\.currency\]")
    source = Path(deniable.__file__).parent
    found = [str(file) for file in source.rglob("*.py") if pattern.search(file.read_text(encoding="utf-8"))]
    assert found == []
    assert pattern.search('if budget.currency == "epsilon":')


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
def test_a_choice_costs_nearly_the_units_that_it_was_made_for(budget: Budget) -> None:
    """The exponential mechanism of `choice_epsilon`, by its certified price: no more, and at small ε not much less."""
    for units in (10**26, 10**28, 10**29):
        epsilon = budget.accounting.choice_epsilon(units)
        paid = budget.price(curves.exponential(epsilon=epsilon)).units
        assert 0.98 * units <= paid <= units * (1 + 1e-9)
