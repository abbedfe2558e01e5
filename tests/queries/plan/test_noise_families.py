"""The two families of noise: chosen by the currency, and true to the noise that they plan."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from deniable import Budget, Unit
from deniable.ledger.currency import Shape
from deniable.mechanisms import DiscreteLaplace
from deniable.queries.plan.noise_families import FAMILIES, GaussianFamily, LaplaceFamily, NoiseFamily, family_of
from deniable.queries.plan.pricing import count_cost

BUDGETS = {"mu2": Budget.gaussian(mu=2), "epsilon": Budget.pure(epsilon=2), "rho": Budget.zcdp(rho=2)}


def test_the_currency_chooses_the_family() -> None:
    assert {name: type(family_of(budget)) for name, budget in BUDGETS.items()} == {
        "mu2": GaussianFamily,
        "epsilon": LaplaceFamily,
        "rho": GaussianFamily,
    }
    assert set(FAMILIES) == set(Shape)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda each: each.name)
def test_units_buy_a_precision_and_are_bought_back(family: NoiseFamily) -> None:
    draw = random.Random(family.name)
    for _ in range(500):
        units = int(10 ** draw.uniform(0, 36))
        precision = family.precision(units)
        assert family.units_at(precision) == units
        assert family.units_at(precision - Fraction(1, 3)) == units - 1
        assert family.precision(2 * units) == precision * (4 if family.draws_quantiles else 2)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 3.0])
def test_the_mean_distance_of_laplace_noise_is_that_of_its_probabilities(epsilon: float) -> None:
    r = math.exp(-float(Fraction(epsilon)))
    chance = [(1 - r) / (1 + r) * r**x for x in range(20_000)]
    mean = 2 * math.fsum(x * p for x, p in enumerate(chance))
    variance = 2 * math.fsum(x * x * p for x, p in enumerate(chance))
    assert LaplaceFamily().mean_distance(math.sqrt(variance)) == pytest.approx(mean, rel=1e-9)
    assert GaussianFamily().mean_distance(1.0) == pytest.approx(math.sqrt(2 / math.pi))


@pytest.mark.parametrize("within", [0.5, 3, 40.9])
def test_a_count_that_was_paid_for_by_its_error_has_that_error(within: float) -> None:
    """2r^(k+1)/(1 + r) = 5 % for k = ⌊within⌋."""
    budget = Budget.pure(epsilon=1000)
    cost = count_cost(budget, Unit.row(), within, 0.95)
    noise = DiscreteLaplace(sensitivity=1, epsilon=budget.level_down(cost))
    r = math.exp(-1 / float(noise.width))
    assert 2 * r ** (math.floor(within) + 1) / (1 + r) == pytest.approx(0.05, rel=1e-6)
