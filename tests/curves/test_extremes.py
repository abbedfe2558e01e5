"""Whatever the parameters, however curves are put together: a certified answer or our error. No NaN, no hang."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from deniable import curves
from deniable.curves import Curve
from deniable.curves.meaning import curve_readings
from deniable.errors import (
    InvalidParameter,
    NotCertifiable,
)

GAUSS = curves.gaussian(sigma=1)
LAPLACE = curves.laplace(scale=1)

# -- extreme parameters ----------------------------------------------------------------------------------------------


FACES: dict[str, Callable[[Curve], list[Callable[[], tuple[float, float]]]]] = {
    "delta": lambda c: [lambda e=e: c.delta_bounds(epsilon=e) for e in (-50.0, -1.0, 0.0, 1e-9, 1.0, 50.0)],
    "delta far out": lambda c: [
        lambda e=e: c.delta_bounds(epsilon=e) for e in (-1e300, -1e4, -800.0, 710.0, 1e4, 1e300, math.inf, -math.inf)
    ],
    "epsilon": lambda c: [lambda d=d: c.epsilon_bounds(delta=d) for d in (0.0, 1e-30, 1e-6, 0.5, 1.0)],
    "epsilon far out": lambda c: [lambda d=d: c.epsilon_bounds(delta=d) for d in (5e-324, 1e-300, 1e-100)],
    "renyi": lambda c: [lambda a=a: (0.0, c.renyi(order=a)) for a in (1.0, 1.0000001, 2.0, 64.0, 1e6, math.inf)],
}


@contextmanager
def no_hang(seconds: float) -> Iterator[None]:
    """Fail instead of hanging (where the platform has alarms). Processor time: other work on the machine does not count."""
    if not hasattr(signal, "SIGPROF"):
        yield
        return

    def ring(*_: object) -> None:
        raise AssertionError(f"still computing after {seconds} s")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


HEAVY = (
    "10^12",
    "often",
    "10^6",
    "sampled pure",
    "small noise",
    "merton",
    "nig",
    "fixed size",
    "100 times",
    "laplace and",
)
"""Readings of these take seconds: one of each kind is enough, and none at δ = 1e-300."""


def look(read: Callable[[], tuple[float, float]], *, share: bool) -> None:
    """A certified answer, or an error that says there is none."""
    try:
        low, high = read()
    except (NotCertifiable, InvalidParameter) as error:
        if "contradict" in str(error):
            raise
        return
    assert not math.isnan(low)
    assert not math.isnan(high)
    assert 0 <= low <= high
    if share:
        assert high <= 1


EXTREME: dict[str, Callable[[], Curve]] = {
    "gaussian sigma 1e-6": lambda: curves.gaussian(sigma=1e-6),
    "gaussian sigma 1e9": lambda: curves.gaussian(sigma=1e9),
    "gaussian sigma 1e140": lambda: curves.gaussian(sigma=1e140),
    "gaussian sigma 1e-140": lambda: curves.gaussian(sigma=1e-140),
    "gaussian 1e9, 10^12 times": lambda: curves.gaussian(sigma=1e9) ** 10**12,
    "gaussian 1, 10^12 times": lambda: GAUSS**10**12,
    "laplace scale 1e-6": lambda: curves.laplace(scale=1e-6),
    "laplace scale 1e9": lambda: curves.laplace(scale=1e9),
    "laplace 1e6, 10^12 times": lambda: curves.laplace(scale=1e6) ** 10**12,
    "laplace 1e-3, 100 times": lambda: curves.laplace(scale=1e-3) ** 100,
    "laplace and gaussian": lambda: curves.laplace(scale=1e-2) * curves.gaussian(sigma=1e3),
    "pure 1e4": lambda: curves.pure(epsilon=1e4),
    "pure 1e4, 10^6 times": lambda: curves.pure(epsilon=1e4) ** 10**6,
    "pure 1e-6, 10^12 times": lambda: curves.pure(epsilon=1e-6) ** 10**12,
    "pure 0": lambda: curves.pure(epsilon=0),
    "pure 1e-300": lambda: curves.pure(epsilon=1e-300),
    "approximate 1e-300": lambda: curves.approximate(epsilon=1, delta=1e-300) ** 10,
    "approximate 1": lambda: curves.approximate(epsilon=1, delta=1) ** 10,
    "approximate often": lambda: curves.approximate(epsilon=0.1, delta=1e-9) ** 10**12,
    "exponential 1e4": lambda: curves.exponential(epsilon=1e4),
    "exponential 1e-6": lambda: curves.exponential(epsilon=1e-6),
    "exponential 1e-6, 10^12 times": lambda: curves.exponential(epsilon=1e-6) ** 10**12,
    "discrete_laplace 1e-6": lambda: curves.discrete_laplace(scale=1e-6),
    "discrete_laplace 1e9": lambda: curves.discrete_laplace(scale=1e9),
    "discrete_laplace far": lambda: curves.discrete_laplace(scale=10, sensitivity=10**5),
    "discrete_laplace too far": lambda: curves.discrete_laplace(scale=10, sensitivity=10**12),
    "discrete_gaussian 1e-6": lambda: curves.discrete_gaussian(sigma=1e-6),
    "discrete_gaussian 1e3": lambda: curves.discrete_gaussian(sigma=1e3) ** 10,
    "discrete_gaussian 1e9": lambda: curves.discrete_gaussian(sigma=1e9),
    "rounded_gaussian 1e-6": lambda: curves.rounded_gaussian(sigma=1e-6),
    "rounded_gaussian 1e3": lambda: curves.rounded_gaussian(sigma=1e3),
    "rounded_gaussian 1e9": lambda: curves.rounded_gaussian(sigma=1e9),
    "response with many answers": lambda: curves.randomized_response(epsilon=1, categories=10**9),
    "response 1e4": lambda: curves.randomized_response(epsilon=1e4, categories=3),
    "poisson tiny": lambda: curves.poisson(low=1e-9, high=2e-9),
    "poisson far apart": lambda: curves.poisson(low=1e-100, high=1.0),
    "poisson large": lambda: curves.poisson(low=1e6, high=1e6 + 1),
    "poisson too large": lambda: curves.poisson(low=1e14, high=2e14),
    "poisson equal": lambda: curves.poisson(low=3, high=3),
    "poisson equal, 3 times": lambda: curves.poisson(low=3, high=3) ** 3,
    "zcdp 1e-12": lambda: curves.zcdp(rho=1e-12),
    "zcdp 1e6": lambda: curves.zcdp(rho=1e6),
    "renyi 1e6": lambda: curves.renyi(order=1e6, epsilon=1e-6),
    "renyi barely": lambda: curves.renyi(order=1.0001, epsilon=1e3),
    "sampled 1e-9": lambda: GAUSS.sampled(rate=1e-9),
    "sampled 1e-9, 10^12 times": lambda: GAUSS.sampled(rate=1e-9) ** 10**12,
    "sampled almost surely": lambda: GAUSS.sampled(rate=1 - 1e-12),
    "sampled small noise": lambda: curves.gaussian(sigma=0.05).sampled(rate=1e-3) ** 10,
    "sampled pure 100": lambda: curves.pure(epsilon=100).sampled(rate=0.5) ** 3,
    "merton 1e4": lambda: curves.merton(variance=1e4, rate=1e-3, mean=0, spread=1),
    "merton jumps": lambda: curves.merton(variance=1e-6, rate=10, mean=10, spread=0),
    "merton wide": lambda: curves.merton(variance=1, rate=1, mean=0, spread=10),
    "nig heavy": lambda: curves.normal_inverse_gaussian(alpha=1.01, beta=-0.5, size=1e-3),
    "nig light": lambda: curves.normal_inverse_gaussian(alpha=1e4, beta=-0.5, size=1e4),
    "pmf tiny": lambda: curves.from_pmf([1e-300, 1.0], [1.0, 1e-300]),
    "pmf disjoint": lambda: curves.from_pmf([1.0, 0.0], [0.0, 1.0]) ** 3,
    "pmf equal": lambda: curves.from_pmf([0.3, 0.7], [0.3, 0.7]) ** 5,
    "pmf certain": lambda: curves.from_pmf([1.0], [1.0]),
    "group of many": lambda: curves.pure(epsilon=1).group(size=1000),
    "group of too many": lambda: curves.from_pmf([0.6, 0.4], [0.4, 0.6]).group(size=10**8),
    "fixed size": lambda: GAUSS.sampled_without_replacement(size=1, population=10**6) ** 1000,
    "jump of 400": lambda: curves.infinitely_divisible(variance=0, jumps={400.0: 1e-150}),
    "jump of -400": lambda: curves.infinitely_divisible(variance=0, jumps={-400.0: 1.0}),
    "mixture of extremes": lambda: curves.mixture(
        [1e-12, 1 - 1e-12], [curves.pure(epsilon=1e3), curves.gaussian(sigma=1e3)]
    ),
    "quantized finely": lambda: curves.quantized(GAUSS, width=1e-9),
    "quantized coarsely": lambda: curves.quantized(GAUSS, width=1e9),
    "quantized loss far out": lambda: curves.quantized(GAUSS, edges=[-1e4, 1e4]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXTREME)
@pytest.mark.parametrize("face", FACES)
def test_extreme_parameters(name: str, face: str) -> None:
    heavy = any(word in name for word in HEAVY)
    try:
        curve = EXTREME[name]()
    except (NotCertifiable, InvalidParameter):
        return
    reads = [] if heavy and face == "epsilon far out" else FACES[face](curve)
    with no_hang(20):
        for read in reads[-2:-1] if heavy else reads:
            look(read, share=face.startswith("delta"))


def test_a_jump_too_large_to_hold_is_not_taken_for_a_smaller_one() -> None:
    """rate e^x at x = 400 is 5e23: the neighbours are told apart by one look, whatever the rate under P."""
    try:
        curve = curves.infinitely_divisible(variance=0, jumps={400.0: 1e-150})
    except InvalidParameter:
        return
    assert curve.advantage() > 0.999


SPOILT: dict[str, tuple[Callable[[float], Curve], float]] = {
    "exponential": (lambda t: curves.exponential(epsilon=0.1 * t) ** 1000, 80.0),
    "exponential small": (lambda t: curves.exponential(epsilon=0.01 * t) ** 1000, 9.9),
    "laplace": (lambda t: curves.laplace(scale=10 * t) ** 1000, 99.0),
    "sampled": (lambda t: curves.gaussian(sigma=t).sampled(rate=0.01) ** 1000, 200.0),
    "sampled laplace": (lambda t: curves.laplace(scale=t).sampled(rate=0.01) ** 1000, 15.0),
    "discrete gaussian": (lambda t: curves.discrete_gaussian(sigma=20 * t) ** 100, 60.0),
    "mixture": (
        lambda t: curves.mixture([0.5, 0.5], [curves.laplace(scale=10 * t), curves.gaussian(sigma=20)]) ** 100,
        60.0,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SPOILT)
def test_a_reading_far_out_does_not_spoil_one_near_by(name: str) -> None:
    """What was computed for one ε is kept; read at another ε it must still be a bound."""
    make, far = SPOILT[name]
    near = far / 100
    fresh_low, fresh_high = make(1 + 1e-9).delta_bounds(epsilon=near)
    together = make(1.0).delta_bounds(epsilon=np.array([near, far]))
    curve = make(1 - 1e-9)
    curve.delta_bounds(epsilon=far)
    afterwards = curve.delta_bounds(epsilon=near)
    for low, high in ((together[0][0], together[1][0]), afterwards):
        assert low <= fresh_high * (1 + 1e-6)
        assert high >= fresh_low * (1 - 1e-6)


def test_a_power_of_ten_to_the_twelve_of_gaussians_is_a_closed_form() -> None:
    low, high = (curves.gaussian(sigma=1e6) ** 10**12).delta_bounds(epsilon=1.0)
    exact = GAUSS.delta(epsilon=1.0)
    assert low <= exact * (1 + 1e-9)
    assert high == pytest.approx(exact, rel=1e-9)


# -- random expressions ----------------------------------------------------------------------------------------------

moderate = st.floats(0.2, 8.0)
tiny_or_huge = st.sampled_from([1e-3, 0.05, 1.0, 30.0, 1e3])


@st.composite
def masses(draw: st.DrawFn) -> Curve:
    weights = st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any)
    p, q = np.array(draw(weights), dtype=float), np.array(draw(weights), dtype=float)
    return curves.from_pmf(p / p.sum(), q / q.sum(), tied=draw(st.booleans()))


leaves = st.one_of(
    st.one_of(moderate, tiny_or_huge).map(lambda s: curves.gaussian(sigma=s)),
    st.one_of(moderate, st.sampled_from([0.05, 30.0, 1e3])).map(lambda s: curves.laplace(scale=s)),
    moderate.map(lambda e: curves.exponential(epsilon=e)),
    moderate.map(lambda s: curves.discrete_laplace(scale=s, sensitivity=2)),
    moderate.map(lambda s: curves.discrete_gaussian(sigma=s)),
    st.tuples(moderate, st.sampled_from([0.0, 1e-9, 0.01, 1.0])).map(
        lambda t: curves.approximate(epsilon=t[0], delta=t[1])
    ),
    st.tuples(moderate, moderate, st.booleans()).map(lambda t: curves.poisson(low=t[0], high=t[0] + t[1], tied=t[2])),
    st.tuples(moderate, st.integers(2, 5)).map(lambda t: curves.randomized_response(epsilon=t[0], categories=t[1])),
    masses(),
    st.just(curves.identity()),
)


def grown(inner: st.SearchStrategy[Curve]) -> st.SearchStrategy[Curve]:
    return st.one_of(
        st.tuples(inner, inner).map(lambda t: t[0] * t[1]),
        st.tuples(inner, st.sampled_from([0, 1, 2, 3, 10, 100])).map(lambda t: t[0] ** t[1]),
        st.tuples(inner, st.sampled_from([0.0, 1e-6, 0.01, 0.3, 0.9, 1.0])).map(lambda t: t[0].sampled(rate=t[1])),
        st.tuples(inner, st.integers(1, 3)).map(lambda t: t[0].group(size=t[1])),
        st.tuples(inner, inner).map(lambda t: curves.mixture([0.25, 0.75], t)),
        st.tuples(inner, inner).map(lambda t: curves.worst_of(*t)),
        inner.map(lambda c: c.symmetrized()),
        inner.map(lambda c: c.reversed()),
    )


expressions = st.recursive(leaves, grown, max_leaves=3)
EPSILONS = st.one_of(st.floats(-50, 50), st.sampled_from([0.0, 800.0, -800.0, 1e5, -1e5, 1e300, math.inf, -math.inf]))
DELTAS = st.one_of(st.floats(1e-30, 1.0), st.sampled_from([0.0, 1.0, 1e-6, 1e-12, 1e-30]))


FUZZ = settings(
    max_examples=45,
    deadline=None,  # each reading is under no_hang
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # a failing example is small already; shrinking it would take minutes
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
@FUZZ
@given(expressions, st.lists(EPSILONS, min_size=2, max_size=4))
@example(curves.laplace(scale=1) ** 3, [2.9, 3.1])
@example(curves.gaussian(sigma=1).sampled(rate=0.1) ** 3, [1.0, 800.0])
@example(curves.approximate(epsilon=2, delta=1).group(size=3) * GAUSS, [0.0, 1.0])
@example(curves.from_pmf([1.0, 0.0], [0.0, 1.0]) ** 3, [0.0, 1.0])
@example(GAUSS, [1.0, 1e300])
def test_random_profiles_are_certified(curve: Curve, epsilons: list[float]) -> None:
    at = np.sort(np.array(epsilons))
    with no_hang(20):
        try:
            low, high = curve.delta_bounds(epsilon=at)
        except NotCertifiable:
            return
    assert np.all(np.isfinite(low))
    assert np.all(np.isfinite(high))
    assert np.all(low >= 0)
    assert np.all(low <= high)
    assert np.all(high <= 1)
    assert np.all(low[1:] <= high[:-1])  # δ falls
    assert np.all(high >= -np.expm1(np.minimum(at, 0.0)) - 1e-12)  # δ(ε) >= 1 - e^ε


@pytest.mark.slow
@FUZZ
@given(expressions, DELTAS)
@example(curves.laplace(scale=1) ** 3, 1e-6)
@example(curves.approximate(epsilon=1, delta=1e-5), 1e-5)
@example(curves.zcdp(rho=0.1), 0.0)
def test_random_epsilons_are_certified(curve: Curve, delta: float) -> None:
    with no_hang(20):
        try:
            low, high = curve.epsilon_bounds(delta=delta)
            assert 0 <= low <= high
            if 0 < high < 500:
                assert curve.delta_bounds(epsilon=high)[0] <= delta * (1 + 1e-9) + 1e-15
            if 1e-9 < low < 500:
                assert curve.delta(epsilon=low * (1 - 1e-9)) >= delta * (1 - 1e-9)
        except NotCertifiable:
            return


@pytest.mark.slow
@FUZZ
@given(expressions, st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 1e-9, 1 - 1e-9])))
@example(curves.from_pmf([0.6, 0.4, 0.0], [0.5, 0.4, 0.1]), 0.25)
@example(curves.gaussian(sigma=1e-3), 0.5)
@example(curves.worst_of(curves.laplace(scale=1e-3), curves.pure(epsilon=2)), 1e-6)
def test_random_attackers_are_certified(curve: Curve, alpha: float) -> None:
    with no_hang(30):
        try:
            low, high = curve.forward.beta_bounds(alpha=alpha)
            assert 0 <= low <= high <= 1 - alpha + 1e-12
            # Each direction has its own trade-off function; together they are read by the curve itself.
            both_low, both_high = curve.beta_bounds(alpha=alpha)
            assert both_low <= low + 1e-12
            assert both_high <= high + 1e-12
            assert 0 <= curve.equal_error_rate() <= 0.5
        except NotCertifiable:
            return


@pytest.mark.parametrize("examples", [12, pytest.param(45, marks=pytest.mark.slow)])
def test_random_meanings_are_numbers(examples: int) -> None:
    @settings(FUZZ, max_examples=examples)
    @given(expressions, st.sampled_from([1.0, 1.5, 2.0, 30.0, math.inf]))
    @example(curves.approximate(epsilon=1, delta=0.1), 2.0)
    @example(curves.poisson(low=3, high=3), math.inf)
    def are_numbers(curve: Curve, order: float) -> None:
        with no_hang(30):
            try:
                assert 0 <= curve.advantage() <= 1
                assert 0 <= curve.guess(prior=0.3) <= 1
                assert 0.3 <= curve.posterior(prior=0.3) <= 1
                for value in (curve.renyi(order=order), curve.zcdp(), curve.kl(), curve.kappa2()):
                    assert value >= -1e-12
                assert curve == Curve.from_dict(curve.to_dict())
            except NotCertifiable:
                return

    are_numbers()


@settings(max_examples=40, deadline=4000, derandomize=True)
@given(
    st.sampled_from(["sigma", "mu"]),
    st.one_of(st.floats(), st.integers(), st.text(), st.none(), st.booleans(), st.complex_numbers()),
)
def test_any_parameter_makes_a_curve_or_our_error(name: str, value: Any) -> None:
    try:
        curve = curves.gaussian(**{name: value})
    except InvalidParameter:
        return
    low, high = curve.delta_bounds(epsilon=1.0)
    assert 0 <= low <= high <= 1


def test_a_loss_of_a_thousand_beside_a_small_one_does_not_hang() -> None:
    curve = curves.poisson(low=0.25, high=4, tied=True) * curves.laplace(scale=1e-3)
    with no_hang(10):
        low, high = curve.forward.beta_bounds(alpha=0.3)
    assert 0 <= low <= high <= 0.7


def test_rare_samples_differ_no_more_often_than_they_are_drawn() -> None:
    """Whoever is drawn with probability 1 - (1 - q)^k at all, is seen with no more than that; and one draw alone tells
    with q (2Φ(1/2) - 1). (Every reading of such a curve is capped by this; one takes ten seconds.)
    """
    for uses in (2, 100):
        for product in curve_readings.product_of(curves.gaussian(mu=1).sampled(rate=1e-9) ** uses):
            assert 1e-9 * math.erf(0.125**0.5) < product._apart() < -math.expm1(uses * math.log1p(-1e-9))
    assert curve_readings.product_of(curves.gaussian(mu=1) ** 2 * curves.laplace(scale=1))[0]._apart() < 1
