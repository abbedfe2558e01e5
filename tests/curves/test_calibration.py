"""Calibration: the returned value meets its target, a slightly better one does not, and impossible targets say why."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath as mp
import pytest

import deniable
from deniable import arguments, curves
from deniable.curves import Curve
from deniable.errors import ImpossibleTarget, InvalidParameter
from tests.wording import worded


def analytic_sigma(epsilon: float, delta: float, uses: int = 1) -> float:
    """The Gaussian's exact σ by root finding in mpmath (Balle & Wang 2018, Theorem 8)."""
    with mp.workdps(40):

        def miss(mu: mp.mpf) -> mp.mpf:
            e = mp.mpf(epsilon)
            value = mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)
            return mp.log(value) - mp.log(mp.mpf(delta))

        mu = mp.findroot(miss, (mp.mpf("0.05") * epsilon, mp.mpf("0.5") * epsilon), solver="anderson", tol=1e-25)
        return float(mp.sqrt(uses) / mu)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-6), (8.0, 1e-9), (0.5, 1e-3)])
@pytest.mark.parametrize("uses", [1, 100])
def test_the_gaussian_against_the_analytic_answer(epsilon: float, delta: float, uses: int) -> None:
    sigma = curves.calibrate(lambda s: curves.gaussian(sigma=s) ** uses, epsilon=epsilon, delta=delta)
    exact = analytic_sigma(epsilon, delta, uses)
    assert exact * (1 - 1e-12) <= sigma <= exact * (1 + 2e-7)


def test_two_percent_less_noise_is_noticed() -> None:
    """Negative control for the test above."""
    assert not analytic_sigma(1.0, 1e-5) * (1 - 1e-12) <= 0.98 * analytic_sigma(1.0, 1e-5)


GROWS, SHRINKS = 1, -1
CASES: dict[str, tuple[Callable[[Any], Curve], dict[str, float], int]] = {
    "gaussian sigma": (lambda s: curves.gaussian(sigma=s), {"epsilon": 1.0, "delta": 1e-6}, GROWS),
    "gaussian mu": (lambda m: curves.gaussian(mu=m), {"epsilon": 1.0, "delta": 1e-6}, SHRINKS),
    "laplace scale": (lambda b: curves.laplace(scale=b), {"epsilon": 0.5}, GROWS),
    "laplace, composed": (lambda b: curves.laplace(scale=b) ** 20, {"epsilon": 2.0, "delta": 1e-6}, GROWS),
    "sampled sigma": (
        lambda s: curves.gaussian(sigma=s).sampled(rate=0.01) ** 500,
        {"epsilon": 1.0, "delta": 1e-5},
        GROWS,
    ),
    "sampling rate": (
        lambda q: curves.gaussian(sigma=1).sampled(rate=q) ** 100,
        {"epsilon": 1.0, "delta": 1e-5},
        SHRINKS,
    ),
    "pure epsilon": (lambda e: curves.pure(epsilon=e) ** 100, {"epsilon": 1.0, "delta": 1e-6}, SHRINKS),
    "to a mu": (lambda s: curves.gaussian(sigma=s) ** 10, {"mu": 0.5}, GROWS),
    "to an advantage": (lambda s: curves.gaussian(sigma=s), {"advantage": 0.1}, GROWS),
    "to an error rate": (lambda s: curves.gaussian(sigma=s), {"equal_error_rate": 0.4}, GROWS),
    "to a rho": (lambda s: curves.gaussian(sigma=s), {"rho": 0.125}, GROWS),
    "discrete laplace": (lambda b: curves.discrete_laplace(scale=b), {"epsilon": 0.7}, GROWS),
    "response": (lambda p: curves.randomized_response(p=p), {"epsilon": 1.0}, SHRINKS),
    "exponential": (lambda e: curves.exponential(epsilon=e) ** 5, {"epsilon": 1.0, "delta": 1e-6}, SHRINKS),
    "approximate mu": (
        lambda s: curves.gaussian(sigma=s) * curves.approximate(epsilon=0, delta=1e-9),
        {"mu": 1.0, "delta": 1e-6},
        GROWS,
    ),
}


def reading(curve: Curve, target: dict[str, float]) -> tuple[float, float]:
    """(what the curve costs, what it may cost); smaller is more private."""
    if "epsilon" in target:
        return curve.epsilon(delta=target.get("delta", 0.0)), target["epsilon"]
    if "mu" in target:
        return curve.gdp(delta=target.get("delta", 0.0)), target["mu"]
    if "advantage" in target:
        return curve.advantage(), target["advantage"]
    if "rho" in target:
        return curve.zcdp(), target["rho"]
    return -curve.equal_error_rate(), -target["equal_error_rate"]


@pytest.mark.parametrize("name", CASES)
def test_the_value_meets_its_target_and_a_better_one_misses(name: str) -> None:
    make, target, direction = CASES[name]
    value = curves.calibrate(make, **target)
    cost, allowed = reading(make(value), target)
    assert cost <= allowed
    step = 1e-4  # readings of composed curves are themselves certified to about 1e-4
    cost, allowed = reading(make(value * (1 - direction * step)), target)
    assert cost > allowed


EXACT: dict[str, tuple[str, float]] = {
    "laplace scale": ("ε = 1/b", 2.0),
    "to a mu": ("μ = sqrt(10)/σ", math.sqrt(10) / 0.5),
    "to a rho": ("ρ = 1/(2σ²)", 2.0),
    "discrete laplace": ("ε = 1/b", 1 / 0.7),
    "response": ("p = e^ε/(1 + e^ε)", math.e / (1 + math.e)),
    "to an advantage": ("2Φ(μ/2) - 1", 0.5 / float(mp.sqrt(2) * mp.erfinv(mp.mpf("0.1")))),
    "to an error rate": ("Φ(-μ/2)", 0.5 / float(mp.sqrt(2) * mp.erfinv(mp.mpf("0.2")))),
}


@pytest.mark.parametrize("name", EXACT)
def test_closed_forms(name: str) -> None:
    make, target, direction = CASES[name]
    value, exact = curves.calibrate(make, **target), EXACT[name][1]
    assert value == pytest.approx(exact, rel=3e-7)
    assert (value - exact) * direction >= -1e-9 * exact


# -- whole numbers ---------------------------------------------------------------------------------------------------


def test_steps_are_whole_and_the_next_one_is_too_many() -> None:
    steps = curves.calibrate(lambda k: curves.gaussian(sigma=10) ** k, epsilon=1.0, delta=1e-6)
    assert type(steps) is int
    assert (curves.gaussian(sigma=10) ** steps).epsilon(delta=1e-6) <= 1.0
    assert (curves.gaussian(sigma=10) ** (steps + 1)).epsilon(delta=1e-6) > 1.0
    # Independent: μ = sqrt(k)/10 must stay below the analytic μ.
    assert steps == math.floor((10 / analytic_sigma(1.0, 1e-6)) ** 2)


def test_steps_of_a_sampled_gaussian() -> None:
    one = curves.gaussian(sigma=1).sampled(rate=0.01)
    steps = curves.calibrate(lambda k: one**k, epsilon=2.0, delta=1e-5)
    assert type(steps) is int
    assert (one**steps).epsilon(delta=1e-5) <= 2.0
    assert (one ** (steps + max(1, steps // 500))).epsilon(delta=1e-5) > 2.0


UNDER = Fraction(1, 10**30)


@pytest.mark.parametrize(
    ("curve", "target", "under"),
    [
        (lambda k: curves.pure(epsilon=k), {"epsilon": 3}, {"epsilon": 3 - UNDER}),
        (
            lambda k: curves.approximate(epsilon=1, delta=k / 8),
            {"epsilon": 1, "delta": 0.375},
            {"delta": Fraction(3, 8) - UNDER},
        ),
        (lambda k: curves.gaussian(mu=k), {"mu": 3}, {"mu": 3 - UNDER}),
        (lambda k: curves.zcdp(rho=k), {"rho": 3}, {"rho": 3 - UNDER}),
    ],
    ids=["epsilon", "delta", "mu", "rho"],
)
def test_a_target_just_below_the_cost_of_a_value_pays_for_the_value_before_it(
    curve: Callable[[int], Curve], target: dict[str, Any], under: dict[str, Any]
) -> None:
    """A target that is rounded up pays for a value that exceeds it."""
    for wanted, value in ((target, 3), (target | under, 2)):
        assert curves.calibrate(lambda k: curve(arguments.whole("k", k)), **wanted) == value


def test_the_size_of_a_group() -> None:
    size = curves.calibrate(lambda k: curves.laplace(scale=10).group(size=k), epsilon=1.05)
    assert size == 10


# -- ends ------------------------------------------------------------------------------------------------------------


def test_a_rate_that_may_be_anything_is_one() -> None:
    assert curves.calibrate(lambda q: curves.gaussian(sigma=100).sampled(rate=q), epsilon=1.0, delta=1e-5) == 1.0


def test_very_small_and_very_large_answers() -> None:
    tiny = curves.calibrate(lambda s: curves.gaussian(sigma=s, sensitivity=1e-6), epsilon=1.0, delta=1e-5)
    assert tiny == pytest.approx(analytic_sigma(1.0, 1e-5) * 1e-6, rel=3e-7)
    huge = curves.calibrate(lambda s: curves.gaussian(sigma=s, sensitivity=1e9), epsilon=1.0, delta=1e-5)
    assert huge == pytest.approx(analytic_sigma(1.0, 1e-5) * 1e9, rel=3e-7)


@pytest.mark.parametrize(
    "target", [{"epsilon": 1e-3, "delta": 1e-9}, {"epsilon": 50.0, "delta": 1e-9}, {"epsilon": 0.0, "delta": 1e-3}]
)
def test_unusual_targets(target: dict[str, float]) -> None:
    sigma = curves.calibrate(lambda s: curves.gaussian(sigma=s), **target)
    assert curves.gaussian(sigma=sigma).epsilon(delta=target["delta"]) <= target["epsilon"]
    assert curves.gaussian(sigma=sigma * (1 - 1e-4)).epsilon(delta=target["delta"]) > target["epsilon"]


def test_the_front_door_leads_here() -> None:
    assert deniable.calibrate is curves.calibrate


IMPOSSIBLE: dict[str, tuple[Callable[[Any], Curve], dict[str, float], str]] = {
    "a gaussian is never pure": (lambda s: curves.gaussian(sigma=s), {"epsilon": 1.0}, "epsilon=1 at delta=0"),
    "a fixed part costs too much": (
        lambda s: curves.gaussian(sigma=s) * curves.gaussian(sigma=0.5),
        {"epsilon": 1.0, "delta": 1e-6},
        "raise the target",
    ),
    "a delta that cannot be met": (
        lambda s: curves.gaussian(sigma=s) * curves.approximate(epsilon=0, delta=1e-3),
        {"epsilon": 1.0, "delta": 1e-6},
        "delta=1e-06",
    ),
    "nothing depends on it": (lambda s: curves.gaussian(sigma=1), {"mu": 0.5}, "mu=0.5"),
    "poisson has no mu": (lambda b: curves.poisson(low=b, high=b + 1), {"mu": 1.0}, "mu=1"),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name == "poisson has no mu" else name for name in IMPOSSIBLE],
)
def test_impossible_targets_explain(name: str) -> None:
    make, target, says = IMPOSSIBLE[name]
    with pytest.raises(ImpossibleTarget) as caught:
        curves.calibrate(make, **target)
    assert says in str(caught.value)


def test_a_refusal_of_every_value_is_passed_on() -> None:
    def never(value: float) -> Curve:
        raise InvalidParameter("temperature", value, "is never right")

    with pytest.raises(ImpossibleTarget, match="never right"):
        curves.calibrate(never, epsilon=1.0, delta=1e-5)


def test_errors_of_the_user_pass_through() -> None:
    def broken(value: float) -> Curve:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        curves.calibrate(broken, epsilon=1.0, delta=1e-5)


def test_where_every_value_reads_zero_the_least_noise_is_the_answer():
    found = deniable.calibrate(lambda s: curves.gaussian(sigma=s).sampled(rate=1e-9), epsilon=1, delta=1e-6)
    assert found < 1e-3  # even without noise δ is the rate, below what is allowed


@pytest.mark.parametrize("make", [lambda s: 3, curves.gaussian], ids=["returns no curve", "takes no number"])
def test_a_function_that_makes_no_curve_of_a_number_is_refused(make: Callable[[Any], Any]) -> None:
    """The first error named the type that was returned as the argument; the second was a TypeError."""
    with worded(InvalidParameter, parameter="make_curve"):
        curves.calibrate(make, epsilon=1, delta=1e-6)
