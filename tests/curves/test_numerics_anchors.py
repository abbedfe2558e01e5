"""A table of curves worked out at 50 digits, mixtures of its rows against a slow independent reference, huge counts, negative ε.

Truths are printed to seven digits; half a unit of the last digit is granted to them, nothing to the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import special

from deniable import curves
from tests.curves import exact


@pytest.fixture(autouse=True)
def _digits() -> object:
    with mp.workdps(exact.DIGITS):
        yield


def sampled(rate: float, sigma: float) -> curves.Curve:
    return curves.gaussian(sigma=sigma).sampled(rate=rate)


ROWS = [
    ("gaussian(1)^1", curves.gaussian(sigma=1), 1e-5, "4.377178"),
    ("gaussian(1)^100", curves.gaussian(sigma=1) ** 100, 1e-5, "91.81729"),
    ("gaussian(1)^10^4", curves.gaussian(sigma=1) ** 10**4, 1e-5, "5425.510"),
    ("S-G(.01,1)^10^3", sampled(0.01, 1) ** 10**3, 1e-5, "1.828237"),
    ("S-G(.01,1)^10^4", sampled(0.01, 1) ** 10**4, 1e-5, "6.187712"),
    ("S-G(.01,1)^10^5", sampled(0.01, 1) ** 10**5, 1e-5, "25.573107"),
    ("S-G(.01,4)^10^4", sampled(0.01, 4) ** 10**4, 1e-5, "0.946867"),
    ("laplace(10)^1000", curves.laplace(scale=10) ** 1000, 1e-6, "18.950287"),
    ("rr(1)^500", curves.randomized_response(epsilon=1) ** 500, 1e-5, "311.767605"),
    ("S-G(.01,1)^10^4, 1e-12", sampled(0.01, 1) ** 10**4, 1e-12, "10.346690"),
    ("S-G(.01,1)^10^4, 1e-20", sampled(0.01, 1) ** 10**4, 1e-20, "13.879773"),
]


@pytest.mark.parametrize(("name", "curve", "delta", "printed"), ROWS, ids=[row[0] for row in ROWS])
def test_anchor(name: str, curve: curves.Curve, delta: float, printed: str) -> None:
    truth, unit = float(printed), 0.5 * 10.0 ** -len(printed.split(".")[1])
    low, high = curve.epsilon_bounds(delta=delta)
    assert low <= truth + unit
    assert high >= truth - unit
    assert (high - low) / truth <= 1e-4
    assert curve.epsilon(delta=delta) >= truth - unit
    assert curve.epsilon(delta=delta) <= truth * (1 + 1e-4) + unit


def test_anchor_smallest_sigma() -> None:
    found = curves.calibrate(lambda sigma: sampled(0.01, sigma) ** 10**4, epsilon=1.0, delta=1e-6)
    value = float(getattr(found, "value", found))
    # 4.3027 is a coarser accountant's; the slow reference has δ(1) = 1.0005e-6 at 4.3020 and .9995e-6 at 4.3022.
    assert 4.3020 < value < 4.3027
    low, _ = (sampled(0.01, value) ** 10**4).epsilon_bounds(delta=1e-6)
    assert low <= 1.0
    assert (sampled(0.01, value) ** 10**4).epsilon(delta=1e-6) <= 1.0


def test_smallest_promised_delta() -> None:
    """δ down to 1e-30 on a row of the table: a bracket as narrow as everywhere."""
    low, high = (sampled(0.01, 1) ** 10**4).epsilon_bounds(delta=1e-30)
    assert 13.88 < low <= high
    assert (high - low) / high <= 1e-4


# -- mixtures against the slow reference -----------------------------------------------------------------------------


def sampled_gaussian_survival(mu: float, rate: float) -> Callable[[np.ndarray], np.ndarray]:
    def survival(loss: np.ndarray) -> np.ndarray:
        ratio = np.expm1(loss) / rate
        inside = ratio > -1
        inner = np.log1p(np.where(inside, ratio, 0.0))
        p, q = special.ndtr(mu / 2 - inner / mu), special.ndtr(-mu / 2 - inner / mu)
        return np.where(inside, (1 - rate) * q + rate * p, 1.0)

    return survival


def laplace_survival(t: float) -> Callable[[np.ndarray], np.ndarray]:
    def survival(loss: np.ndarray) -> np.ndarray:
        inside = 1 - 0.5 * np.exp((np.clip(loss, -t, t) - t) / 2)
        return np.where(loss < -t, 1.0, np.where(loss < t, inside, 0.0))

    return survival


def gaussian_survival(mu: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda loss: special.ndtr(mu / 2 - loss / mu)


def response_survival(e: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda loss: np.where(loss < -e, 1.0, np.where(loss < e, 1 / (1 + math.exp(-e)), 0.0))


def test_the_slow_reference_is_right_about_gaussians() -> None:
    """A control of the control: eight digits where the truth is known."""
    for e in (1.0, 4.0):
        found = exact.slow_delta([exact.Smooth(gaussian_survival(0.3), -3.0, 3.5, 10)], e, 0.01)
        assert found == pytest.approx(float(exact.gauss_delta(e, mpf("0.3") * mpmath.sqrt(10))), rel=2e-7)
    exact_laplace = exact.slow_delta([exact.Smooth(laplace_survival(1.0), -1.0, 1.0, 1)], 0.5, 0.001)
    assert exact_laplace == pytest.approx(1 - math.exp(-0.25), rel=1e-6)


MIXTURES = [
    (
        "gaussians and laplace",
        curves.gaussian(mu=0.3) ** 10 * curves.laplace(scale=2) ** 8,
        [exact.Smooth(gaussian_survival(0.3), -3.0, 3.5, 10), exact.Smooth(laplace_survival(0.5), -0.5, 0.5, 8)],
        0.5 / 64,
        (0.3, 1.5, 4.0),
    ),
    (
        "sampled gaussian, laplace, response",
        curves.gaussian(sigma=1).sampled(rate=0.2) ** 30
        * curves.laplace(scale=4) ** 12
        * curves.randomized_response(epsilon=0.5) ** 4,
        [
            exact.Smooth(sampled_gaussian_survival(1.0, 0.2), -0.24, 18.0, 30),
            exact.Smooth(laplace_survival(0.25), -0.25, 0.25, 12),
            exact.Smooth(response_survival(0.5), -0.5, 0.5, 4),
        ],
        0.25 / 64,
        (1.0, 4.0, 9.0),
    ),
    (
        "two sampled gaussians",
        curves.gaussian(sigma=0.8).sampled(rate=0.05) ** 100 * curves.gaussian(sigma=2).sampled(rate=0.3) ** 50,
        [
            exact.Smooth(sampled_gaussian_survival(1.25, 0.05), -0.06, 20.0, 100),
            exact.Smooth(sampled_gaussian_survival(0.5, 0.3), -0.37, 8.0, 50),
        ],
        0.002,
        (1.0, 3.0, 7.0),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "curve", "laws", "step", "epsilons"), MIXTURES, ids=[m[0] for m in MIXTURES])
def test_mixtures_against_a_slow_independent_reference(
    name: str, curve: curves.Curve, laws: list[exact.Smooth], step: float, epsilons: tuple[float, ...]
) -> None:
    for e in epsilons:
        truth = exact.slow_delta(laws, e, step)
        again = exact.slow_delta(laws, e, step / 2)
        doubt = 4 * abs(truth - again) + 1e-7 * truth
        assert doubt <= 1e-3 * truth
        low, high = curve.backward.delta_bounds(epsilon=e)
        assert low <= again + doubt, (e, low, again)
        assert high >= again - doubt, (e, high, again)
        assert high - low <= 2e-3 * truth


def test_laplace_products_that_are_sampled() -> None:
    """The atom at the largest loss of a sampled Laplace mechanism, composed (reference 3.5112, 11.5909, 37.144)."""
    for t, truth in ((2.0, 3.5112), (4.0, 11.5909), (8.0, 37.144)):
        low, high = (curves.laplace(scale=1 / t).sampled(rate=0.1) ** 10).epsilon_bounds(delta=1e-6)
        assert low <= truth * (1 + 2e-4)
        assert high >= truth * (1 - 2e-4)
        assert (high - low) / truth <= 1e-3


def test_discrete_mixtures_against_whole_numbers() -> None:
    """Rows of the table that are discrete, mixed and composed without any floating point."""
    p, q = [Fraction(3, 4), Fraction(1, 8), Fraction(1, 8)], [Fraction(1, 4), Fraction(1, 2), Fraction(1, 4)]
    r, s = [Fraction(5, 8), Fraction(3, 8)], [Fraction(3, 8), Fraction(5, 8)]
    pair = exact.Pair.of(p, q) ** 6 * exact.Pair.of(r, s) ** 9
    curve = curves.from_pmf([float(v) for v in p], [float(v) for v in q], tied=True) ** 6
    curve = curve * curves.from_pmf([float(v) for v in r], [float(v) for v in s], tied=True) ** 9
    for e in (-3.0, 0.0, 0.5, 2.0, 6.0):
        x = exact.enclosed(e)[0]
        low, high = curve.forward.delta_bounds(epsilon=e)
        assert low <= float(pair.delta(x)) * (1 + 1e-15)
        assert high >= float(pair.delta(x)) * (1 - 1e-15)
        assert high - low <= 1e-9


# -- very large counts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uses", [10**6, 10**9])
def test_huge_counts_of_randomized_response_against_the_normal_limit(uses: int) -> None:
    """ε₀ = 1/√k: the product is within Berry-Esseen of μ = 1; the binomial sum itself is checked at 10^6."""
    one = 1 / math.sqrt(uses)
    curve = curves.randomized_response(epsilon=one) ** uses
    low, high = curve.delta_bounds(epsilon=1.0)
    assert low <= high
    assert high - low <= 1e-3 * high
    assert low == pytest.approx(float(exact.gauss_delta(1.0, 1.0)), abs=2 / math.sqrt(uses))
    if uses <= 10**6:
        truth = binomial_tail(1.0, one, uses)
        assert low <= truth * (1 + 1e-12)
        assert high >= truth * (1 - 1e-12)


def binomial_tail(epsilon: float, one: float, uses: int) -> float:
    """δ of a k-fold response from incomplete beta functions: P(X >= n) - e^ε Q(X >= n)."""
    threshold = math.floor((epsilon / one + uses) / 2) + 1
    truth = mpf(1) / (1 + mpmath.exp(-mpf(one)))
    total = mpf(0)
    log_p = mpmath.loggamma(uses + 1) - mpmath.loggamma(threshold + 1) - mpmath.loggamma(uses - threshold + 1)
    p = mpmath.exp(log_p + threshold * mpmath.log(truth) + (uses - threshold) * mpmath.log(1 - truth))
    q = mpmath.exp(log_p + threshold * mpmath.log(1 - truth) + (uses - threshold) * mpmath.log(truth))
    odds, x, k = truth / (1 - truth), mpmath.exp(mpf(epsilon)), threshold
    with mp.workdps(30):
        while p > mpf("1e-25"):
            total += p - x * q
            step = mpf(uses - k) / (k + 1)
            p, q, k = p * step * odds, q * step / odds, k + 1
    return float(total)


@pytest.mark.parametrize("uses", [10**6, 10**9])
def test_huge_counts_of_sampled_gaussians(uses: int) -> None:
    """q = 1/√k: the limit is μ = √(e^(1/σ²) - 1), and the bracket lies around it."""
    rate = 1 / math.sqrt(uses)
    low, high = (curves.gaussian(sigma=1).sampled(rate=rate) ** uses).delta_bounds(epsilon=1.0)
    limit = float(exact.gauss_delta(1.0, math.sqrt(math.e - 1)))
    assert low <= limit + 2 / math.sqrt(uses)
    assert high >= limit - 2 / math.sqrt(uses)
    assert high - low <= (2e-3 if uses <= 10**6 else 0.2) * limit


def test_huge_counts_of_gaussians_are_a_closed_form() -> None:
    low, high = (curves.gaussian(mu=1e-6) ** 10**12).epsilon_bounds(delta=1e-5)
    assert exact.gauss_delta(low, 1.0) >= mpf(1e-5) * (1 - mpf("1e-12"))
    assert exact.gauss_delta(high, 1.0) <= mpf(1e-5) * (1 + mpf("1e-12"))


# -- negative ε, inversion -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "curve",
    [curves.gaussian(mu=1.0), curves.gaussian(mu=0.2) ** 25 * curves.laplace(scale=1e8), curves.laplace(scale=1.0)],
    ids=repr,
)
def test_negative_epsilons(curve: curves.Curve) -> None:
    law = {True: lambda e: exact.gauss_delta(e, 1.0), False: lambda e: 1 - mpmath.exp((mpf(e) - 1) / 2)}
    truth = law["gaussian" in repr(curve)]
    for e in (-30.0, -5.0, -1.0, -0.9, -0.1):
        if "gaussian" not in repr(curve) and e < -1:
            continue
        low, high = curve.delta_bounds(epsilon=e)
        assert low <= truth(e) * (1 + mpf("1e-7"))
        assert high >= truth(e)
        assert high - low <= 1e-3
        assert low >= -math.expm1(e) * (1 - 1e-14)


def test_epsilon_and_delta_are_inverse() -> None:
    """δ(ε(δ)) <= δ by the same certified functions, and just below the lower bound of ε it is larger."""
    for curve in (sampled(0.05, 1) ** 200, curves.laplace(scale=2) ** 10 * curves.gaussian(mu=0.5)):
        for delta in (1e-2, 1e-6, 1e-15, 1e-25):
            low, high = curve.epsilon_bounds(delta=delta)
            assert curve.delta_bounds(epsilon=high)[0] <= delta
            assert curve.delta_bounds(epsilon=low * (1 - 1e-12))[1] >= delta


def test_epsilon_at_the_ends() -> None:
    curve = curves.laplace(scale=2) ** 3 * curves.laplace(scale=5)
    assert curve.epsilon(delta=1.0) == 0.0
    low, high = curve.epsilon_bounds(delta=0.0)
    assert low <= 1.7 <= high
    assert high - low <= 1e-12
    assert (curve * curves.gaussian(mu=1)).epsilon(delta=0.0) == math.inf
    assert curves.gaussian(mu=1).delta(epsilon=math.inf) == 0.0
    assert curves.gaussian(mu=1).delta(epsilon=-math.inf) == 1.0
