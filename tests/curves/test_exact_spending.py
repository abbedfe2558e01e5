"""A filter takes a curve that fits exactly, and never one that does not; what is grouped or repeated rounds up."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from deniable import curves
from deniable.curves import Curve
from deniable.curves.atoms.mechanism_atoms import GaussianAtom, LaplaceAtom
from deniable.curves.atoms.renyi_bounds import RenyiAtOrder, ZeroConcentrated
from deniable.curves.filters import UNIT, Filter, GaussianFilter, PureFilter, RenyiFilter, RenyiOdometer, ZCDPFilter
from deniable.curves.outward_rounding import sum_up
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


@pytest.mark.parametrize("sensitivity", [1, 2, 3, 0.5, 0.1, math.pi])
def test_random_sigmas_cost_the_exact_fraction(sensitivity: float) -> None:
    """The quotient of sensitivity and noise is kept, not its float: ρ = 0.005 refused gaussian(sigma=10) by 5e-19."""
    print("seed 151")
    rng = np.random.default_rng(151)
    for i in range(100):
        noise = float(rng.integers(1, 2000)) if i % 2 else round(float(np.exp(rng.normal())), int(rng.integers(1, 8)))
        noise = max(noise, 1e-3)
        mu, order = Fraction(sensitivity) / Fraction(noise), float(rng.integers(2, 64)) / 2
        normal = curves.gaussian(sigma=noise, sensitivity=sensitivity)
        laplace = curves.laplace(scale=noise, sensitivity=sensitivity)
        for budget, curve, exact in (
            (ZCDPFilter(rho=1e8, delta=0), normal, mu**2 / 2),
            (GaussianFilter(mu=1e4, delta=0), normal, mu**2),
            (RenyiFilter(order=order, epsilon=1e8, delta=0), normal, Fraction(order) * mu**2 / 2),
            (PureFilter(epsilon=1e8), laplace, mu),
        ):
            assert budget.price(curve)[0] == math.ceil(exact / UNIT), (type(budget), noise, order)
            assert budget.price(curve**7)[0] == math.ceil(7 * exact / UNIT), (type(budget), noise, order)


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
    "gaussian": (lambda v, k: Curve.of(GaussianAtom(v)).group(size=k), lambda c: c.factors[0][0].mu, 1),  # type: ignore[attr-defined]
    "laplace": (lambda v, k: Curve.of(LaplaceAtom(v)).group(size=k), lambda c: c.factors[0][0].shift, 1),  # type: ignore[attr-defined]
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


WRITTEN: dict[
    str, tuple[Callable[[float, float], Curve], Callable[[Fraction], Filter], Callable[[Fraction], Fraction]]
] = {
    "rho": (
        lambda noise, moved: curves.gaussian(sigma=noise, sensitivity=moved),
        lambda limit: ZCDPFilter(rho=limit, delta=0),
        lambda ratio: ratio**2 / 2,
    ),
    "mu": (
        lambda noise, moved: curves.gaussian(sigma=noise, sensitivity=moved),
        lambda limit: GaussianFilter(mu=1, delta=0) if limit == 1 else GaussianFilter(mu=root(limit), delta=0),
        lambda ratio: ratio**2,
    ),
    "epsilon": (
        lambda noise, moved: curves.laplace(scale=noise, sensitivity=moved),
        lambda limit: PureFilter(epsilon=limit),
        lambda ratio: ratio,
    ),
}


def root(square: Fraction) -> Fraction:
    """The root of a square of whole numbers."""
    over, under = math.isqrt(square.numerator), math.isqrt(square.denominator)
    assert Fraction(over, under) ** 2 == square
    return Fraction(over, under)


@pytest.mark.parametrize("currency", WRITTEN)
def test_a_quotient_kept_as_a_float_did_not_fit_a_budget_that_it_fills(currency: str) -> None:
    """gaussian(sigma=10) was kept as the float 0.1, which lies above 1/10: 5e-19 more than a rho of 0.005."""
    make, budget, cost = WRITTEN[currency]
    full = budget(cost(Fraction(1, 10))).charge(make(10, 1))
    assert full.remaining == 0
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print("seed", seed)
    rng = np.random.default_rng(seed)
    for _ in range(200):
        # Noise of the form 2^i 5^j and whole sensitivities: the cost is a whole number of units.
        noise = float(2 ** int(rng.integers(0, 8)) * 5 ** int(rng.integers(0, 8)))
        moved = int(rng.integers(1, 100))
        curve, limit = make(noise, moved), cost(Fraction(moved) / Fraction(noise))
        start = budget(limit)
        assert start.limit_units * UNIT == limit
        assert start.charge(curve).remaining == 0
        object.__setattr__(start, "limit_units", start.limit_units - 1)
        with pytest.raises(BudgetExceeded):
            start.charge(curve)


@pytest.mark.parametrize("currency", WRITTEN)
def test_a_price_is_the_exact_cost_to_the_unit(currency: str) -> None:
    """Any noise, any sensitivity, any count, for groups too: rounded up once, at the end."""
    make, budget, cost = WRITTEN[currency]
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print("seed", seed)
    rng = np.random.default_rng(seed)
    for _ in range(200):
        noise, moved = float(np.exp(rng.normal() * 4)), float(rng.choice([1.0, 3.0, 0.75, 1 / 3, 10.5]))
        count, size = int(rng.integers(1, 1000)), int(rng.integers(1, 5))
        curve = make(noise, moved).group(size=size) ** count
        exact = count * cost(size * Fraction(moved) / Fraction(noise)) / UNIT
        assert budget(Fraction(1)).price(curve) == (math.ceil(exact), 0)
        assert budget(Fraction(1)).price(Curve.from_dict(curve.to_dict())) == (math.ceil(exact), 0)


def test_a_third_nine_times_fills_a_whole() -> None:
    assert ZCDPFilter(rho=0.5, delta=0).charge(curves.gaussian(sigma=3) ** 9).remaining == 0
    assert PureFilter(epsilon=1).charge(curves.laplace(scale=3) ** 3).remaining == 0
    with pytest.raises(BudgetExceeded):
        PureFilter(epsilon=1).charge(curves.laplace(scale=3) ** 3 * curves.pure(epsilon=1e-20))


def test_a_typed_mu_stays_the_binary_number() -> None:
    """The float 0.1 lies above a tenth: who typed it as the parameter of a curve pays for the float."""
    typed, divided = curves.gaussian(mu=0.1), curves.gaussian(sigma=10)
    assert typed != divided
    assert ZCDPFilter(rho=1, delta=0).price(typed) > ZCDPFilter(rho=1, delta=0).price(divided)
    assert typed.expression() == "gaussian(mu=0.1)"
    assert divided.expression() == "gaussian(sigma=10)"
    assert typed.epsilon(delta=1e-6) == divided.epsilon(delta=1e-6)
    assert curves.gaussian(sigma=4) == curves.gaussian(mu=0.25)
    assert divided <= typed
