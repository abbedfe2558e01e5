"""A filter takes a curve that fits exactly, and never one that does not; what is grouped or repeated rounds up."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from deniable import curves
from deniable.curves import Curve
from deniable.curves.atoms import Gaussian, Laplace
from deniable.curves.bounded import RenyiAtOrder, ZeroConcentrated
from deniable.curves.filters import Filter, GaussianFilter, PureFilter, RenyiFilter, RenyiOdometer, ZCDPFilter
from deniable.curves.rounding import sum_up
from deniable.errors import BudgetExceeded

ONE = curves.gaussian(sigma=1)
EXACT = {
    "rho of one": (lambda: ZCDPFilter(rho=0.5, delta=0), ONE),
    "rho of many": (lambda: ZCDPFilter(rho="4.5", delta=0), ONE**9),
    "rho of integers": (lambda: ZCDPFilter(rho=0.5, delta=0), curves.discrete_gaussian(sigma=10) ** 100),
    "rho as told": (lambda: ZCDPFilter(rho=0.5, delta=0), curves.zcdp(rho=0.25) ** 2),
    "rho of choices": (lambda: ZCDPFilter(rho=0.5, delta=0), curves.exponential(epsilon=2)),
    "mu of one": (lambda: GaussianFilter(mu=1, delta=0), ONE),
    "mu of many": (lambda: GaussianFilter(mu=3, delta=0), ONE**9),
    "mu of rounded": (lambda: GaussianFilter(mu=1, delta=0), curves.rounded_gaussian(sigma=3) ** 9),
    "renyi": (lambda: RenyiFilter(order=8, epsilon=4, delta=0), ONE),
    "renyi as told": (lambda: RenyiFilter(order=4, epsilon=1, delta=0), curves.renyi(order=8, epsilon=0.25) ** 4),
    "epsilon of one": (lambda: PureFilter(epsilon=1), curves.laplace(scale=1)),
    "epsilon of many": (lambda: PureFilter(epsilon=1), curves.pure(epsilon=0.125) ** 8),
    "epsilon of integers": (lambda: PureFilter(epsilon=1), curves.discrete_laplace(scale=10) ** 10),
    "epsilon of two kinds": (lambda: PureFilter(epsilon=1), curves.laplace(scale=2) * curves.exponential(epsilon=0.5)),
}


@pytest.mark.parametrize("case", EXACT)
def test_a_filter_refused_what_fits_exactly(case: str) -> None:
    """ρ = 1/2 of gaussian(sigma=1) was read as 0.5 (1 + 4u), and did not fit into 0.5."""
    make, curve = EXACT[case]
    full = make().charge(curve)
    assert full.remaining == 0
    for more in (curves.gaussian(mu=1e-12), curves.pure(epsilon=1e-20), curves.zcdp(rho=1e-20)):
        with pytest.raises(BudgetExceeded):
            full.charge(more)


@pytest.mark.parametrize("case", EXACT)
def test_one_unit_less_is_refused(case: str) -> None:
    make, curve = EXACT[case]
    budget = make()
    units, _ = budget.price(curve)
    assert units == budget.limit_units
    object.__setattr__(budget, "limit_units", units - 1)
    with pytest.raises(BudgetExceeded):
        budget.charge(curve)


PRICES: dict[str, tuple[Callable[[], Filter], Callable[[Fraction], Fraction]]] = {
    "rho": (lambda: ZCDPFilter(rho=1e9, delta=0), lambda mu: mu**2 / 2),
    "mu": (lambda: GaussianFilter(mu=1e9, delta=0), lambda mu: mu**2),
    "renyi": (lambda: RenyiFilter(order=3, epsilon=1e9, delta=0), lambda mu: 3 * mu**2 / 2),
}


@pytest.mark.parametrize("currency", PRICES)
def test_a_price_is_never_below_the_exact_cost(currency: str) -> None:
    print("seed 7")
    rng = np.random.default_rng(7)
    make, cost = PRICES[currency]
    budget, total = make(), Fraction(0)
    for _ in range(50):
        mu, count = float(np.exp(rng.normal() * 3)), int(rng.integers(1, 1000))
        budget = budget.charge(curves.gaussian(mu=mu) ** count)
        total += count * cost(Fraction(mu))
    assert total <= Fraction(budget.spent) <= total + Fraction(50, 10**30)


def test_sums_over_factors_round_up() -> None:
    """Sums of floats rounded to nearest: one tenth, three times, was 0.30000000000000004 or 0.3 as it came."""
    print("seed 8")
    rng = np.random.default_rng(8)
    for size in (1, 2, 5, 16, 17, 40):
        for _ in range(50):
            parts = [(float(np.exp(rng.normal() * 5)), int(rng.integers(1, 10**6))) for _ in range(size)]
            exact = sum((count * Fraction(number) for number, count in parts), Fraction(0))
            assert exact <= Fraction(sum_up(parts)) <= exact * (1 + Fraction(1, 2**48))
    curve = curves.zcdp(rho=0.1) * curves.zcdp(rho=0.7) ** 3
    assert Fraction(curve.zcdp()) >= Fraction(0.1) + 3 * Fraction(0.7)
    assert Fraction(curve.renyi(order=1.1)) >= Fraction(1.1) * (Fraction(0.1) + 3 * Fraction(0.7))


GROWN: dict[str, tuple[Callable[[float, int], Curve], Callable[[Curve], float], int]] = {
    "gaussian": (lambda v, k: Curve.of(Gaussian(v)).group(size=k), lambda c: c.factors[0][0].mu, 1),  # type: ignore[attr-defined]
    "laplace": (lambda v, k: Curve.of(Laplace(v)).group(size=k), lambda c: c.factors[0][0].shift, 1),  # type: ignore[attr-defined]
    "zcdp": (lambda v, k: Curve.of(ZeroConcentrated(v)).group(size=k), lambda c: c.factors[0][0].rho, 2),  # type: ignore[attr-defined]
    "zcdp repeated": (lambda v, k: Curve.of(ZeroConcentrated(v).repeated(k)), lambda c: c.zcdp(), 1),  # type: ignore[arg-type]
    "renyi repeated": (lambda v, k: Curve.of(RenyiAtOrder(2, v).repeated(k)), lambda c: c.renyi(order=2), 1),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("kind", GROWN)
def test_what_grows_with_a_group_rounds_up(kind: str) -> None:
    """`mu * size` rounded to nearest: 0.1 for three people was below three times the float 0.1, by half an ulp."""
    print("seed 9")
    rng = np.random.default_rng(9)
    make, read, power = GROWN[kind]
    for value, size in [(0.1, 3), *((float(np.exp(rng.normal())), int(rng.integers(2, 1000))) for _ in range(100))]:
        exact = Fraction(value) * size**power
        found = read(make(value, size))
        assert Fraction(math.nextafter(found, 0)) < exact <= Fraction(found)


def test_the_largest_loss_of_integer_noise_rounds_up() -> None:
    print("seed 10")
    rng = np.random.default_rng(10)
    for _ in range(100):
        scale, sensitivity = float(np.exp(rng.normal())), int(rng.integers(1, 50))
        found = curves.discrete_laplace(scale=scale, sensitivity=sensitivity).epsilon(delta=0.0)
        assert Fraction(found) >= sensitivity / Fraction(scale)


@pytest.mark.parametrize("order", [1.5, 2.0, 8.0, 64.0])
@pytest.mark.parametrize(
    "curve",
    [
        curves.exponential(epsilon=4),
        curves.exponential(epsilon=1) ** 3,
        ONE,
        curves.discrete_gaussian(sigma=3),
        curves.laplace(scale=2),
    ],
    ids=repr,
)
def test_a_filter_charges_no_more_than_the_curve_says(curve: Curve, order: float) -> None:
    """The divergence of the exponential mechanism was charged as rho x order: 16 where 3.6158 is true."""
    spent = float(RenyiOdometer(order=order, delta=1e-6).charge(curve).spent)
    assert spent <= curve.renyi(order=order) * (1 + 1e-12)


def test_the_worst_of_several_has_a_rho() -> None:
    """The curve of a vector of whole numbers is the worst of several: a zCDP filter called its rho infinite."""
    from deniable import DiscreteGaussian

    curve = DiscreteGaussian(sensitivity=2, sigma=2.0, dimension=4).curve
    assert curve.zcdp() == 0.5
    ZCDPFilter(rho=0.5, delta=0).charge(curve)
