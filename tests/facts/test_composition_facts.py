"""Gaussian, calibration, composition by the public API: curves give the exact number, the textbook its bound.

Not here, and why:
    79  one log-likelihood ratio at one output: a curve knows its law, not single outputs; that it is unbounded is tested
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from deniable import curves
from deniable.curves import textbook
from deniable.errors import OutsideTheorem


def around(bounds: tuple[float, float], printed: float, *, width: float = 1e-11, digits: float = 1e-14) -> None:
    """The certified bracket is narrow and contains the printed number (known to `digits`, relative)."""
    low, high = bounds
    assert low <= high
    assert low <= printed * (1 + digits)
    assert high >= printed * (1 - digits)
    assert high - low <= width * abs(high)


def test_fact_the_gaussian_loss_is_unbounded() -> None:
    assert curves.gaussian(sigma=1).epsilon(delta=0.0) == math.inf
    assert curves.gaussian(sigma=1).renyi(order=math.inf) == math.inf


@pytest.mark.parametrize(("m", "printed"), [(1.0, 0.126936737506644), (0.1, 1.2308359836427e-25)])
def test_fact_gaussian_privacy_curve(m: float, printed: float) -> None:
    around(curves.gaussian(sigma=1 / m).delta_bounds(epsilon=1.0), printed, width=1e-10)


def test_fact_analytic_calibration() -> None:
    sigma = curves.calibrate(lambda s: curves.gaussian(sigma=s), epsilon=1.0, delta=1e-5)
    assert 3.73063163481594 * (1 - 1e-14) <= sigma <= 3.73063163481594 * (1 + 2e-7)
    exact = textbook.gaussian_sigma(sensitivity=1, epsilon=1, delta=1e-5)
    assert exact == pytest.approx(3.73063163481594, rel=1e-14)


def test_fact_classical_calibration_stays_within_its_theorem() -> None:
    half = textbook.classical_gaussian_sigma(sensitivity=1, epsilon=0.5, delta=1e-5)
    assert half / 2 == pytest.approx(4.84480526260539, rel=1e-14)
    with pytest.raises(OutsideTheorem):
        textbook.classical_gaussian_sigma(sensitivity=1, epsilon=1, delta=1e-5)


def test_fact_gaussian_composition() -> None:
    curve = curves.gaussian(sigma=4) ** 100
    assert curve.gdp() == pytest.approx(2.5, rel=1e-14)
    assert curve.gdp() >= 2.5 * (1 - 1e-15)
    around(curve.epsilon_bounds(delta=1e-5), 13.206712240452)


def test_fact_laplace_privacy_curve() -> None:
    around(curves.laplace(scale=1).delta_bounds(epsilon=0.5), 0.221199216928595)
    scale = curves.calibrate(lambda b: curves.laplace(scale=b), epsilon=1.0, delta=0.1)
    assert 0.82595410018882 * (1 - 1e-13) <= scale <= 0.82595410018882 * (1 + 2e-7)


@pytest.mark.parametrize("epsilon", [-3.0, -1.0, -0.999, 0.0, 0.5, 1.0, 3.0])
def test_fact_laplace_on_the_whole_line(epsilon: float) -> None:
    """δ = 1 - e^((ε-t)/2) for |ε| <= t, 0 beyond, 1 - e^ε below -t."""
    t = 1.0
    exact = -math.expm1((epsilon - t) / 2) if abs(epsilon) <= t else max(-math.expm1(epsilon), 0.0)
    low, high = curves.laplace(scale=1).delta_bounds(epsilon=epsilon)
    assert low <= exact <= high
    assert high - low <= 1e-13


def test_fact_mean_of_a_vector() -> None:
    """Root mean square error in dimension 1000: Laplace noise by L1, Gaussian noise by L2."""
    k, n = 1000, 1e4
    scale = curves.calibrate(lambda b: curves.laplace(scale=b, sensitivity=k / n), epsilon=0.5)
    assert math.sqrt(2 * k) * scale == pytest.approx(8.94427190999916, rel=2e-7)
    l2 = math.sqrt(k) / n
    sigma = textbook.classical_gaussian_sigma(sensitivity=l2, epsilon=0.5, delta=1e-5)
    assert math.sqrt(k) * sigma == pytest.approx(0.968961052521078, rel=1e-13)
    assert curves.gaussian(sigma=sigma, sensitivity=l2).epsilon(delta=1e-5) < 0.5


FORMS = {
    "86": (lambda: textbook.advanced_composition(epsilon=0.1, count=100, delta=1e-6), 5.75652176975693, 100, 1e-6),
    "87": (lambda: textbook.advanced_composition_drv(epsilon=0.1, count=100, delta=1e-6), 6.30823095051341, 100, 1e-6),
    "88": (
        lambda: textbook.advanced_composition_sharp(epsilon=0.1, count=100, delta=1e-6),
        5.75610551933573,
        100,
        1e-6,
    ),
    "89": (
        lambda: textbook.advanced_composition_doubled(epsilon=0.1, count=100, delta=1e-5),
        9.59705182437616,
        100,
        1e-5,
    ),
    "90": (
        lambda: textbook.advanced_composition_mironov(epsilon=0.1, count=1000, delta=1e-5),
        60.6970851754059,
        1000,
        1e-5,
    ),
}


@pytest.mark.parametrize("fact", FORMS)
def test_facts_advanced_composition_bounds_the_exact_curve(fact: str) -> None:
    bound, printed, count, delta = FORMS[fact]
    assert bound() == pytest.approx(printed, rel=1e-14)
    assert (curves.pure(epsilon=0.1) ** count).epsilon(delta=delta) < printed


def test_fact_advanced_composition_of_approximate_dp() -> None:
    bound = textbook.advanced_composition_approximate(epsilon=0.1, delta=1e-9, count=100, slack=1e-6)
    assert bound.delta == pytest.approx(1.1e-6, rel=1e-14)
    curve = curves.approximate(epsilon=0.1, delta=1e-9) ** 100
    assert curve.epsilon(delta=bound.delta) < bound.epsilon
    # And exactly: 1 - (1 - δ0)^k (1 - KOV).
    pure = (curves.pure(epsilon=0.1) ** 100).delta(epsilon=4.0)
    exact = -math.expm1(100 * math.log1p(-1e-9)) * (1 - pure) + pure
    around(curve.delta_bounds(epsilon=4.0), exact, digits=1e-11, width=1e-9)


def test_fact_exact_optimum() -> None:
    curve = curves.pure(epsilon=0.1) ** 100
    around(curve.delta_bounds(epsilon=4.0), 3.42231231919677e-5, width=1e-9)
    around(curve.epsilon_bounds(delta=1e-6), 4.77456758810799, width=1e-9)


def test_fact_azuma() -> None:
    t = math.sqrt(2 * math.log(1e6))
    assert t == pytest.approx(5.25652176975693, rel=1e-14)
    assert textbook.azuma_tail(deviation=t) == pytest.approx(1e-6, rel=1e-13)


def test_fact_kl_lemma() -> None:
    assert curves.pure(epsilon=1).kl() == pytest.approx(0.46211715726001, rel=1e-13)
    assert textbook.kl_bound_stated(epsilon=1) == pytest.approx(1.71828182845905, rel=1e-14)
    assert curves.pure(epsilon=1).zcdp() <= 0.5
    for curve in (
        curves.laplace(scale=1),
        curves.exponential(epsilon=1),
        curves.randomized_response(epsilon=1, categories=5),
    ):
        assert curve.kl() <= 0.46211715726001 * (1 + 1e-12)


def test_fact_reduction_to_pure_dp() -> None:
    assert textbook.pure_distance(epsilon=1, delta=1e-5) == pytest.approx(2.68941421369995e-6, rel=1e-14)


@pytest.mark.parametrize(("delta", "printed"), [(1e-4, 73.6827229758095), (1e-5, 92.1034037197618)])
def test_fact_crossover(delta: float, printed: float) -> None:
    assert textbook.crossover(delta=delta) == pytest.approx(printed, rel=1e-14)


def test_fact_subsampling_amplification() -> None:
    sampled = curves.pure(epsilon=1).sampled(rate=0.01)
    around(sampled.epsilon_bounds(delta=0.0), 0.0170368632361765)


@pytest.mark.parametrize("rate", [0.01, 0.5])
@pytest.mark.parametrize("base", [curves.gaussian(sigma=1), curves.laplace(scale=0.5), curves.pure(epsilon=2)])
def test_fact_the_sampled_curve(base: curves.Curve, rate: float) -> None:
    """δ'(log(1 + q(e^ε - 1))) = q δ(ε) in the direction with the person against without."""
    epsilon = np.array([0.01, 0.3, 1.0, 1.9])
    low, high = base.sampled(rate=rate).backward.delta_bounds(epsilon=np.log1p(rate * np.expm1(epsilon)))
    exact_low, exact_high = (rate * b for b in base.delta_bounds(epsilon=epsilon))
    assert np.all(low <= exact_high * (1 + 1e-12) + 1e-17)
    assert np.all(high >= exact_low * (1 - 1e-12))
    assert np.all(high - low <= 1e-12)
