"""Whatever is asked wrongly gets an error of our tree that says what is wrong; `test_extremes` asks rightly, but far out."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from deniable import curves
from deniable.curves import Kernel
from deniable.curves.adaptive_budgets import EpsilonDeltaFilter
from deniable.errors import (
    DeniableError,
    ImpossibleTarget,
    InvalidDistribution,
    InvalidOperation,
    InvalidParameter,
    InvalidTradeoff,
)
from tests.table import every_row

GAUSS = curves.gaussian(sigma=1)
LAPLACE = curves.laplace(scale=1)

NOT_NUMBERS: list[Any] = [
    math.nan,
    "1",
    b"1",
    None,
    True,
    np.bool_(True),
    [1.0],
    (1.0,),
    {},
    1j,
    object(),
    np.array([1.0, 2.0]),
]
NOT_POSITIVE: list[Any] = [0, 0.0, -0.0, -1, -1e-300, -math.inf, math.inf, 10**400, *NOT_NUMBERS]
NOT_A_SHARE: list[Any] = [-1e-9, 1 + 1e-9, 2, -1, math.inf, -math.inf, *NOT_NUMBERS]
NOT_A_COUNT: list[Any] = [0.5, 1.0, 2.0, -1, Fraction(1, 2), math.inf, *NOT_NUMBERS]


def refused(make: Callable[[], Any], *, kind: type[DeniableError] = InvalidParameter, says: str = "") -> None:
    with pytest.raises(kind) as caught:
        make()
    message = str(caught.value)
    assert len(message) < 400
    assert says in message


# -- constructors ----------------------------------------------------------------------------------------------------

POSITIVE: dict[str, Callable[[Any], Any]] = {
    "gaussian sigma": lambda v: curves.gaussian(sigma=v),
    "gaussian mu": lambda v: curves.gaussian(mu=v),
    "gaussian sensitivity": lambda v: curves.gaussian(sigma=1, sensitivity=v),
    "laplace scale": lambda v: curves.laplace(scale=v),
    "laplace sensitivity": lambda v: curves.laplace(scale=1, sensitivity=v),
    "discrete_laplace scale": lambda v: curves.discrete_laplace(scale=v),
    "discrete_gaussian sigma": lambda v: curves.discrete_gaussian(sigma=v),
    "rounded_gaussian sigma": lambda v: curves.rounded_gaussian(sigma=v),
    "skellam variance": lambda v: curves.skellam(variance=v),
    "exponential epsilon": lambda v: curves.exponential(epsilon=v),
    "poisson low": lambda v: curves.poisson(low=v, high=5),
    "poisson high": lambda v: curves.poisson(low=1, high=v),
    "zcdp rho": lambda v: curves.zcdp(rho=v),
    "renyi epsilon": lambda v: curves.renyi(order=2, epsilon=v),
    "merton variance": lambda v: curves.merton(variance=v, rate=1, mean=0, spread=1),
    "merton rate": lambda v: curves.merton(variance=1, rate=v, mean=0, spread=1),
    "nig alpha": lambda v: curves.normal_inverse_gaussian(alpha=v, beta=-0.5, size=1),
    "nig size": lambda v: curves.normal_inverse_gaussian(alpha=3, beta=-0.5, size=v),
    "quantized width": lambda v: curves.quantized(GAUSS, width=v),
    "jump rate": lambda v: curves.infinitely_divisible(variance=0, jumps={0.5: v}),
}


@every_row((name, value) for name in POSITIVE for value in NOT_POSITIVE)
def test_a_positive_parameter(name: str, value: Any) -> None:
    refused(lambda: POSITIVE[name](value))


@every_row((name,) for name in POSITIVE)
def test_the_message_names_the_parameter(name: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        POSITIVE[name](-3.5)
    assert caught.value.parameter in name or caught.value.parameter in ("high", "shift", "mu", "beta")
    assert "3.5" in str(caught.value)


SHARES: dict[str, Callable[[Any], Any]] = {
    "approximate delta": lambda v: curves.approximate(epsilon=1, delta=v),
    "sampled rate": lambda v: GAUSS.sampled(rate=v),
    "response p": lambda v: curves.randomized_response(p=v),
    "epsilon(delta)": lambda v: GAUSS.epsilon(delta=v),
    "epsilon_bounds(delta)": lambda v: GAUSS.epsilon_bounds(delta=v),
    "beta(alpha)": lambda v: GAUSS.beta(alpha=v),
    "beta_bounds(alpha)": lambda v: GAUSS.beta_bounds(alpha=v),
    "forward.beta_bounds(alpha)": lambda v: GAUSS.forward.beta_bounds(alpha=v),
    "tpr(fpr)": lambda v: GAUSS.tpr(fpr=v),
    "gdp(delta)": lambda v: GAUSS.gdp(delta=v),
    "posterior(prior)": lambda v: GAUSS.posterior(prior=v),
    "posterior(delta)": lambda v: GAUSS.posterior(prior=0.5, delta=v),
    "guess(prior)": lambda v: GAUSS.guess(prior=v),
}
READS_ARRAYS = ("epsilon", "beta", "forward", "tpr", "gdp", "posterior(prior)", "guess")


@every_row(
    (name, value)
    for name in SHARES
    for value in NOT_A_SHARE
    if not (name.startswith(READS_ARRAYS) and isinstance(value, list | tuple))  # an array of levels
)
def test_a_probability(name: str, value: Any) -> None:
    refused(lambda: SHARES[name](value))


COUNTS: dict[str, Callable[[Any], Any]] = {
    "power": lambda v: GAUSS**v,
    "group": lambda v: GAUSS.group(size=v),
    "size": lambda v: GAUSS.sampled_without_replacement(size=v, population=10),
    "population": lambda v: GAUSS.sampled_without_replacement(size=1, population=v),
    "discrete_laplace sensitivity": lambda v: curves.discrete_laplace(scale=1, sensitivity=v),
    "discrete_gaussian sensitivity": lambda v: curves.discrete_gaussian(sigma=1, sensitivity=v),
    "rounded_gaussian sensitivity": lambda v: curves.rounded_gaussian(sigma=1, sensitivity=v),
    "skellam sensitivity": lambda v: curves.skellam(variance=1, sensitivity=v),
    "categories": lambda v: curves.randomized_response(epsilon=1, categories=v),
}


@every_row((name, value) for name in COUNTS for value in NOT_A_COUNT)
def test_a_whole_number(name: str, value: Any) -> None:
    refused(lambda: COUNTS[name](value))


@every_row((name,) for name in COUNTS if name != "power")
def test_zero_is_too_few(name: str) -> None:
    refused(lambda: COUNTS[name](0), says="0")


OTHERS: dict[str, Callable[[], Any]] = {
    "gaussian without noise": lambda: curves.gaussian(),
    "gaussian with both": lambda: curves.gaussian(sigma=1, mu=1),
    "response without strength": lambda: curves.randomized_response(),
    "response with both": lambda: curves.randomized_response(p=0.75, epsilon=1),
    "response p = 0": lambda: curves.randomized_response(p=0),
    "response p = 1": lambda: curves.randomized_response(p=1),
    "response that lies": lambda: curves.randomized_response(p=0.3),
    "response below uniform": lambda: curves.randomized_response(p=0.2, categories=4),
    "negative epsilon": lambda: curves.pure(epsilon=-0.1),
    "epsilon in words": lambda: curves.pure(epsilon="1"),
    "epsilon infinite": lambda: curves.pure(epsilon=math.inf),
    "approximate NaN": lambda: curves.approximate(epsilon=math.nan, delta=0),
    "poisson upside down": lambda: curves.poisson(low=5, high=2),
    "poisson tied with 1": lambda: curves.poisson(low=2, high=5, tied=1),
    "renyi order 1": lambda: curves.renyi(order=1, epsilon=1),
    "renyi order NaN": lambda: curves.renyi(order=math.nan, epsilon=1),
    "renyi order inf": lambda: curves.renyi(order=math.inf, epsilon=1),
    "merton spread": lambda: curves.merton(variance=1, rate=1, mean=0, spread=-1),
    "merton mean": lambda: curves.merton(variance=1, rate=1, mean=math.nan, spread=1),
    "merton far": lambda: curves.merton(variance=1, rate=1, mean=100, spread=1),
    "nig beta": lambda: curves.normal_inverse_gaussian(alpha=3, beta=2, size=1),
    "nig beta below": lambda: curves.normal_inverse_gaussian(alpha=3, beta=-3, size=1),
    "divisible variance": lambda: curves.infinitely_divisible(variance=-1, jumps={}),
    "divisible jumps": lambda: curves.infinitely_divisible(variance=1, jumps=[0.5]),
    "divisible zero jump": lambda: curves.infinitely_divisible(variance=1, jumps={0.0: 1.0}),
    "divisible NaN jump": lambda: curves.infinitely_divisible(variance=1, jumps={math.nan: 1.0}),
    "divisible named jump": lambda: curves.infinitely_divisible(variance=1, jumps={"a": 1.0}),
    "sample larger than population": lambda: GAUSS.sampled_without_replacement(size=11, population=10),
    "worst of nothing": lambda: curves.worst_of(),
    "worst of numbers": lambda: curves.worst_of(1, 2),
    "worst of a list": lambda: curves.worst_of([GAUSS, LAPLACE]),
    "mixture of nothing": lambda: curves.mixture([], []),
    "mixture of one short": lambda: curves.mixture([0.5, 0.5], [GAUSS]),
    "mixture weights": lambda: curves.mixture([0.5, 0.6], [GAUSS, LAPLACE]),
    "mixture negative": lambda: curves.mixture([-0.5, 1.5], [GAUSS, LAPLACE]),
    "mixture NaN": lambda: curves.mixture([math.nan, 1.0], [GAUSS, LAPLACE]),
    "mixture of numbers": lambda: curves.mixture([0.5, 0.5], [1, 2]),
    "mixture weight alone": lambda: curves.mixture(1.0, [GAUSS]),
    "mixture curve alone": lambda: curves.mixture([1.0], GAUSS),
    "hidden weights": lambda: curves.hidden_mixture([0.5, 0.6], [GAUSS, GAUSS**2]),
    "hidden numbers": lambda: curves.hidden_mixture([1.0], [3]),
    "quantized number": lambda: curves.quantized(3, width=1),
    "quantized nothing": lambda: curves.quantized(GAUSS),
    "quantized both": lambda: curves.quantized(GAUSS, width=1, edges=[0]),
    "quantized edges fall": lambda: curves.quantized(GAUSS, edges=[1, 0]),
    "quantized edges equal": lambda: curves.quantized(GAUSS, edges=[1, 1]),
    "quantized edges NaN": lambda: curves.quantized(GAUSS, edges=[math.nan]),
    "quantized edges inf": lambda: curves.quantized(GAUSS, edges=[math.inf]),
    "quantized no edges": lambda: curves.quantized(GAUSS, edges=[]),
    "quantized an edge alone": lambda: curves.quantized(GAUSS, edges=0.5),
    "quantized edges in words": lambda: curves.quantized(GAUSS, edges=["0.5"]),
    "quantized offset": lambda: curves.quantized(GAUSS, width=1, offset=math.nan),
    "tolerance": lambda: GAUSS.dominates(LAPLACE, tolerance=-1),
    "tolerance NaN": lambda: GAUSS.dominates(LAPLACE, tolerance=math.nan),
    "order 0": lambda: GAUSS.renyi(order=0.0),
    "order NaN": lambda: GAUSS.renyi(order=math.nan),
    "order in words": lambda: GAUSS.renyi(order="2"),
    "epsilon NaN": lambda: GAUSS.delta(epsilon=math.nan),
    "an epsilon NaN among others": lambda: GAUSS.delta(epsilon=[0.0, math.nan]),
    "epsilon words": lambda: GAUSS.delta(epsilon="one"),
    "epsilon a number in words": lambda: GAUSS.delta(epsilon="1"),
    "epsilons in words": lambda: GAUSS.delta(epsilon=["1", "2"]),
    "epsilon array of words": lambda: GAUSS.delta(epsilon=np.array(["1", "2"])),
    "epsilon boolean": lambda: GAUSS.delta(epsilon=True),
    "epsilon numpy boolean": lambda: GAUSS.delta(epsilon=np.bool_(True)),
    "epsilon array of booleans": lambda: GAUSS.delta(epsilon=np.array([True, False])),
    "epsilon complex": lambda: GAUSS.delta(epsilon=1j),
    "epsilon complex array": lambda: GAUSS.delta(epsilon=np.array([1j])),
    "epsilon ragged": lambda: GAUSS.delta(epsilon=[[1.0], [1.0, 2.0]]),
    "epsilon object": lambda: GAUSS.delta(epsilon=object()),
    "epsilon huge": lambda: GAUSS.delta(epsilon=10**400),
    "forward epsilon NaN": lambda: GAUSS.forward.delta_bounds(epsilon=math.nan),
    "backward epsilon words": lambda: GAUSS.backward.delta_bounds(epsilon="one"),
    "levels beyond one": lambda: GAUSS.beta(alpha=[0.5, 1.5]),
    "too many uses": lambda: GAUSS ** (10**16),
    "too many uses in two steps": lambda: (GAUSS ** (10**9)) ** (10**9),
    "too many uses by products": lambda: (GAUSS ** (10**15)) * GAUSS,
    "too many uses by one product": lambda: curves.product([GAUSS ** (10**15), GAUSS]),
    "product of numbers": lambda: curves.product([3]),
    "product of a curve": lambda: curves.product(GAUSS),
    "fourier without a function": lambda: curves.fourier_delta(3, epsilon=1.0),
    "fourier NaN": lambda: curves.fourier_delta(lambda z: z * z, epsilon=math.nan),
    "fourier step": lambda: curves.fourier_delta(lambda z: z * z, epsilon=1.0, step=0.0),
    "parse nothing": lambda: curves.parse(""),
    "parse a number": lambda: curves.parse(3),
}


@every_row(OTHERS.items())
def test_other_bad_arguments(name: str, make: Callable[[], Any]) -> None:
    refused(make, kind=DeniableError)


FACTORS: list[Any] = [3, 3.0, True, np.int64(3), np.float64(3), np.float32(3), Fraction(3), 10**30, math.nan]


@every_row((value,) for value in FACTORS)
def test_a_curve_times_a_number_says_power(value: Any) -> None:
    refused(lambda: GAUSS * value, kind=InvalidOperation, says="**")
    refused(lambda: value * GAUSS, kind=InvalidOperation, says="**")


def test_a_curve_times_something_else_is_a_type_error() -> None:
    for other in ("a", None, [1], {}, object()):
        with pytest.raises(TypeError):
            _ = GAUSS * other
        with pytest.raises(TypeError):
            _ = other * GAUSS


def test_a_clt_does_not_compose() -> None:
    approximation = (LAPLACE**100).clt()
    for make in (lambda: approximation * approximation, lambda: approximation * GAUSS, lambda: GAUSS * approximation):
        with pytest.raises((InvalidOperation, TypeError)):
            make()


def test_errors_show_what_was_asked() -> None:
    with pytest.raises(InvalidParameter) as caught:
        curves.gaussian(sigma=-2.5)
    assert caught.value.parameter == "sigma"
    assert caught.value.asked == -2.5
    assert "positive" in str(caught.value)
    assert isinstance(caught.value, ValueError)


# -- bring your own --------------------------------------------------------------------------------------------------

PMFS: dict[str, tuple[Callable[[], Any], str]] = {
    "negative": (lambda: curves.from_pmf([1.1, -0.1], [0.5, 0.5]), "negative"),
    "negative q": (lambda: curves.from_pmf([0.5, 0.5], [-0.1, 1.1]), "q"),
    "does not sum": (lambda: curves.from_pmf([0.5, 0.4], [0.5, 0.5]), "must sum to 1"),
    "sums to two": (lambda: curves.from_pmf([1.0, 1.0], [0.5, 0.5]), "must sum to 1"),
    "lengths": (lambda: curves.from_pmf([0.5, 0.5], [1.0]), "as many masses as p, 2"),
    "empty": (lambda: curves.from_pmf([], []), "empty"),
    "NaN": (lambda: curves.from_pmf([math.nan, 1.0], [0.5, 0.5]), "finite"),
    "inf": (lambda: curves.from_pmf([math.inf, 0.0], [0.5, 0.5]), "finite"),
    "words": (lambda: curves.from_pmf("ab", "cd"), "numbers"),
    "numbers in words": (lambda: curves.from_pmf(["0.5", "0.5"], [0.5, 0.5]), "numbers"),
    "a number": (lambda: curves.from_pmf(1.0, 1.0), "numbers"),
    "none": (lambda: curves.from_pmf(None, None), "numbers"),
    "nested": (lambda: curves.from_pmf([[0.5, 0.5]], [[0.5, 0.5]]), "numbers"),
    "tied": (lambda: curves.from_pmf([0.5, 0.5], [0.5, 0.5], tied="yes"), "tied"),
    "kernel negative": (lambda: curves.from_kernel([[1.2, -0.2], [0.5, 0.5]]), "row 0, column 1"),
    "kernel sum": (lambda: curves.from_kernel([[0.5, 0.5], [0.5, 0.6]]), "row 1 must sum to 1"),
    "kernel ragged": (lambda: curves.from_kernel([[0.5, 0.5], [1.0]]), "length"),
    "kernel empty": (lambda: curves.from_kernel([]), "row"),
    "kernel empty rows": (lambda: curves.from_kernel([[], []]), "empty"),
    "kernel NaN": (lambda: curves.from_kernel([[math.nan, 1.0], [0.5, 0.5]]), "finite"),
    "kernel a number": (lambda: curves.from_kernel(3), "rows"),
    "kernel flat": (lambda: curves.from_kernel([0.5, 0.5]), "rows"),
    "kernel words": (lambda: curves.from_kernel(["ab", "cd"]), "numbers"),
    "neighbours far": (lambda: curves.from_kernel([[1.0], [1.0]], neighbours=[(0, 2)]), "2 rows"),
    "neighbours negative": (lambda: curves.from_kernel([[1.0], [1.0]], neighbours=[(0, -1)]), "at least 0"),
    "neighbours single": (lambda: curves.from_kernel([[1.0], [1.0]], neighbours=[(0,)]), "pairs"),
    "neighbours triple": (lambda: curves.from_kernel([[1.0], [1.0]], neighbours=[(0, 1, 1)]), "pairs"),
    "neighbours number": (lambda: curves.from_kernel([[1.0], [1.0]], neighbours=3), "neighbours"),
    "neighbours of a number": (lambda: curves.from_kernel([[1.0], [1.0]], neighbours=[3]), "pairs"),
    "neighbours fraction": (lambda: curves.from_kernel([[1.0], [1.0]], neighbours=[(0, 0.5)]), "whole"),
    "neighbours boolean": (lambda: curves.from_kernel([[1.0], [1.0]], neighbours=[(False, True)]), "whole"),
    "then too small": (lambda: Kernel.of([[0.5, 0.5]]).then([[1.0]]), "answers"),
    "then a number": (lambda: Kernel.of([[0.5, 0.5]]).then(3), "rows"),
    "product of others": (lambda: Kernel.of([[1.0], [1.0]]) * Kernel.of([[1.0]]), "same"),
    "product of neighbours": (lambda: Kernel.of([[1.0], [1.0]]) * Kernel.of([[1.0], [1.0]], []), "same"),
    "kernel mixture weights": (lambda: Kernel.mixture([0.5], [Kernel.of([[1.0]])] * 2), "weights"),
    "kernel mixture of none": (lambda: Kernel.mixture([], []), "weights"),
    "kernel mixture of others": (
        lambda: Kernel.mixture([0.5, 0.5], [Kernel.of([[1.0]]), Kernel.of([[1.0], [1.0]])]),
        "same",
    ),
    "kernel mixture of numbers": (lambda: Kernel.mixture([1.0], [3]), "kernel"),
}


@every_row((name, make, says) for name, (make, says) in PMFS.items())
def test_masses_that_are_none(name: str, make: Callable[[], Any], says: str) -> None:
    refused(make, kind=DeniableError, says=says)


def test_bad_masses_are_bad_distributions() -> None:
    for make in (
        lambda: curves.from_pmf([1.1, -0.1], [0.5, 0.5]),
        lambda: curves.from_kernel([[0.5, 0.6], [0.5, 0.5]]),
    ):
        refused(make, kind=InvalidDistribution)


def bell(shift: float) -> Callable[[Any], Any]:
    return lambda y: np.exp(-0.5 * (y - shift) ** 2) / math.sqrt(2 * math.pi)


LINE = (-math.inf, math.inf)
DENSITIES: dict[str, tuple[Callable[[], Any], str]] = {
    "not normalised": (lambda: curves.from_density(lambda y: 2 * bell(0)(y), bell(1), support=LINE), "integrates to 2"),
    "negative": (lambda: curves.from_density(lambda y: bell(0)(y) - 1e-3, bell(1), support=LINE), "negative"),
    "NaN": (lambda: curves.from_density(lambda y: y * math.nan, bell(1), support=LINE), "not finite"),
    "wrong support": (lambda: curves.from_density(bell(0), bell(1), support=(0, 1)), "integrates"),
    "support upside down": (lambda: curves.from_density(bell(0), bell(1), support=(1, -1)), "low < high"),
    "support empty": (lambda: curves.from_density(bell(0), bell(1), support=(1, 1)), "low < high"),
    "support NaN": (lambda: curves.from_density(bell(0), bell(1), support=(math.nan, 1)), "NaN"),
    "support a number": (lambda: curves.from_density(bell(0), bell(1), support=3), "support"),
    "support of one": (lambda: curves.from_density(bell(0), bell(1), support=(3,)), "support"),
    "support in words": (lambda: curves.from_density(bell(0), bell(1), support=("a", "b")), "support"),
    "no function": (lambda: curves.from_density(3, bell(1), support=LINE), "function"),
    "scalar function": (lambda: curves.from_density(lambda y: 0.5, bell(1), support=(0, 2)), "shape"),
    "words": (lambda: curves.from_density(lambda y: "dense", bell(1), support=LINE), "p"),
    "cells": (lambda: curves.from_density(bell(0), bell(1), support=LINE, cells=3), "cells"),
    "cells fraction": (lambda: curves.from_density(bell(0), bell(1), support=LINE, cells=100.5), "cells"),
    "breaks NaN": (lambda: curves.from_density(bell(0), bell(1), support=LINE, breaks=[math.nan]), "breaks"),
    "breaks a number": (lambda: curves.from_density(bell(0), bell(1), support=LINE, breaks=0.5), "breaks"),
    "tied": (lambda: curves.from_density(bell(0), bell(1), support=LINE, tied=1), "tied"),
    "cdf falls": (lambda: curves.from_cdf(lambda y: 1 - y, lambda y: y, points=[0, 0.3, 0.6, 1]), "decreases after 0"),
    "cdf beyond one": (lambda: curves.from_cdf(lambda y: 2 * y, lambda y: y, points=[0, 0.3, 0.6, 1]), "[0, 1]"),
    "cdf below zero": (lambda: curves.from_cdf(lambda y: y - 0.5, lambda y: y, points=[0, 0.3, 0.6, 1]), "[0, 1]"),
    "cdf few points": (lambda: curves.from_cdf(lambda y: y, lambda y: y, points=[0, 1]), "four"),
    "cdf points fall": (lambda: curves.from_cdf(lambda y: y, lambda y: y, points=[0, 0.6, 0.3, 1]), "increasing"),
    "cdf points NaN": (lambda: curves.from_cdf(lambda y: y, lambda y: y, points=[0, math.nan, 0.3, 1]), "finite"),
    "cdf no function": (lambda: curves.from_cdf(3, lambda y: y, points=[0, 0.3, 0.6, 1]), "function"),
    "cdf disjoint": (
        lambda: curves.from_cdf(lambda y: np.clip(y, 0, 1), lambda y: np.clip(y - 1, 0, 1), points=[0, 0.5, 1, 1.5, 2]),
        "share",
    ),
    "tied cdf": (lambda: curves.from_cdf(lambda y: y, lambda y: y, points=[0, 0.3, 0.6, 1], tied=None), "tied"),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_densities_that_are_none(name: str) -> None:
    make, says = DENSITIES[name]
    refused(make, says=says)


TRADEOFFS: dict[str, tuple[Any, str]] = {
    "rises": (lambda a: np.minimum(1 - a, a), "it increases"),
    "constant": (lambda a: np.full_like(a, 0.5), "1 - alpha"),
    "above the diagonal": (lambda a: 1 - a**2, "1 - alpha"),
    "not convex": (lambda a: np.where(a < 0.5, 0.5 - a / 2, np.minimum(0.25, 1 - a)), "convex"),
    "a bump": (
        lambda a: np.clip(1 - a - 0.2 * np.sin(math.pi * a) + 0.05 * np.sin(8 * math.pi * a), 0, 1 - a),
        "convex",
    ),
    "negative": (lambda a: 1 - 2 * a, "negative"),
    "NaN": (lambda a: np.where(a > 0.3, math.nan, 1 - a), "finite"),
    "inf": (lambda a: np.where(a > 0.3, math.inf, 1 - a), "finite"),
    "a scalar": (lambda a: 0.5, "shape"),
    "words": (lambda a: "x", "f"),
    "nothing": (lambda a: None, "shape"),
    "a number": (3, "function"),
    "the wrong shape": (lambda a: np.array([1.0, 0.0]), "shape"),
    "not at most one": (lambda a: 2 * (1 - a) ** 2, "1 - alpha"),
}


@pytest.mark.parametrize("name", TRADEOFFS)
def test_functions_that_are_no_tradeoffs(name: str) -> None:
    f, says = TRADEOFFS[name]
    refused(lambda: curves.tradeoff(f), kind=InvalidTradeoff, says=says)


def test_a_refused_tradeoff_says_where() -> None:
    with pytest.raises(InvalidTradeoff, match=r"alpha=0\.3"):
        curves.tradeoff(lambda a: np.where(a > 0.3, math.nan, 1 - a))


def test_a_function_of_single_numbers_is_a_tradeoff_function_too() -> None:
    curve = curves.tradeoff(lambda a: max(1 - 2 * float(a), (1 - float(a)) / 2))
    assert curve.epsilon_bounds(delta=1e-3)[0] <= math.log(2) <= curve.epsilon(delta=1e-6) * (1 + 1e-3)


def test_hidden_mixtures_need_one_outcome_space() -> None:
    refused(lambda: curves.hidden_mixture([0.5, 0.5], [GAUSS, LAPLACE]), kind=InvalidOperation, says="mixture")
    pmf = curves.from_pmf([0.5, 0.5], [0.25, 0.75])
    refused(lambda: curves.hidden_mixture([0.5, 0.5], [pmf, pmf**2]), kind=InvalidOperation, says="mixture")
    short = curves.from_pmf([1.0], [1.0])
    refused(lambda: curves.hidden_mixture([0.5, 0.5], [pmf, short]), kind=InvalidOperation, says="mixture")


def test_only_gaussians_are_quantized_by_width() -> None:
    for curve in (LAPLACE, GAUSS * LAPLACE, curves.identity()):
        refused(lambda c=curve: curves.quantized(c, width=1.0), kind=InvalidOperation, says="edges")


CALIBRATIONS: dict[str, tuple[Callable[[], Any], type[DeniableError]]] = {
    "no target": (lambda: curves.calibrate(lambda s: curves.gaussian(sigma=s)), InvalidParameter),
    "two targets": (lambda: curves.calibrate(lambda s: curves.gaussian(sigma=s), epsilon=1, mu=1), InvalidParameter),
    "delta alone": (lambda: curves.calibrate(lambda s: curves.gaussian(sigma=s), delta=1e-5), InvalidParameter),
    "no function": (lambda: curves.calibrate(3, epsilon=1, delta=1e-5), InvalidParameter),
    "no curve": (lambda: curves.calibrate(lambda s: s, epsilon=1, delta=1e-5), InvalidParameter),
    "negative epsilon": (
        lambda: curves.calibrate(lambda s: curves.gaussian(sigma=s), epsilon=-1, delta=1e-5),
        InvalidParameter,
    ),
    "NaN": (
        lambda: curves.calibrate(lambda s: curves.gaussian(sigma=s), epsilon=math.nan, delta=0.1),
        InvalidParameter,
    ),
    "delta above one": (
        lambda: curves.calibrate(lambda s: curves.gaussian(sigma=s), epsilon=1, delta=2),
        InvalidParameter,
    ),
    "a gaussian is never pure": (
        lambda: curves.calibrate(lambda s: curves.gaussian(sigma=s), epsilon=1),
        ImpossibleTarget,
    ),
    "advantage": (lambda: curves.calibrate(lambda s: curves.gaussian(sigma=s), advantage=1.5), InvalidParameter),
    "error rate": (lambda: curves.calibrate(lambda s: curves.gaussian(sigma=s), equal_error_rate=-1), InvalidParameter),
    "rho": (lambda: curves.calibrate(lambda s: curves.gaussian(sigma=s), rho=0), InvalidParameter),
    "mu": (lambda: curves.calibrate(lambda s: curves.gaussian(sigma=s), mu="1"), InvalidParameter),
    "never allowed": (lambda: curves.calibrate(lambda s: curves.gaussian(sigma=-abs(s)), mu=1), ImpossibleTarget),
    "does not depend": (lambda: curves.calibrate(lambda s: curves.gaussian(sigma=1), mu=0.5), ImpossibleTarget),
}


@pytest.mark.parametrize("name", CALIBRATIONS)
def test_calibrations_that_mean_nothing(name: str) -> None:
    make, kind = CALIBRATIONS[name]
    refused(make, kind=kind)


@pytest.mark.parametrize(
    "called",
    [
        lambda column: curves.product(column),
        lambda column: curves.mixture([0.5, 0.5], column),
        lambda column: EpsilonDeltaFilter(epsilon=1, delta=1e-6, orders=[2.0, -column[0]]),
    ],
)
def test_no_entry_of_a_list_is_shown(called: Any) -> None:
    with pytest.raises(InvalidParameter) as raised:
        called([8675309.25, 8675309.5])
    assert "8675309" not in f"{raised.value!r} {raised.value}"
