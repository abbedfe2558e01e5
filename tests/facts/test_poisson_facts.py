"""Poisson DP and infinitely divisible privacy by the public API."""

from __future__ import annotations

import cmath
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from deniable import curves

PAIR = curves.poisson(low=2, high=5)
"""P is Pois(2), Q is Pois(5): forward.beta is T(Pois 2, Pois 5)."""


def around(bounds: tuple[float, float], printed: float, *, width: float = 1e-10, digits: float = 1e-14) -> None:
    """The certified bracket is narrow and contains the printed number (known to `digits`, relative)."""
    low, high = bounds
    assert low <= high
    assert low <= printed * (1 + digits)
    assert high >= printed * (1 - digits)
    assert high - low <= width * abs(high)


def test_the_check_can_fail() -> None:
    """Negative control: a rate that is 2 % too close is rejected by the same check."""
    with pytest.raises(AssertionError):
        around(curves.poisson(low=2, high=4.9).forward.beta_bounds(alpha=0.05), 0.453392304193384, width=1e-6)


# -- C.1 -------------------------------------------------------------------------------------------------------------


def test_fact_c1_poissons_of_equal_ratio_add() -> None:
    """(a, b) + (ca, cb) is ((1+c)a, (1+c)b): two tied uses of (2, 5) are one of (4, 10)."""
    epsilon = np.array([-3.0, -0.5, 0.0, 1.0, 4.0])
    tied = curves.poisson(low=2, high=5, tied=True)
    one = curves.poisson(low=4, high=10)
    for two in (tied**2, tied * curves.poisson(low=2.0, high=5.0, tied=True)):
        for way in ("forward", "backward"):
            low, high = getattr(two, way).delta_bounds(epsilon=epsilon)
            exact_low, exact_high = getattr(one, way).delta_bounds(epsilon=epsilon)
            assert np.all(low <= exact_high)
            assert np.all(exact_low <= high)
            assert np.all(high - low <= 1e-9)


def test_fact_c1_jumps_are_poisson_pairs() -> None:
    """ν = λ1 δ_{log(λ2/λ1)}: one jump size is a Poisson pair; a negative jump is the pair turned round."""
    up = curves.infinitely_divisible(variance=0, jumps={math.log(2.5): 2.0})
    down = curves.infinitely_divisible(variance=0, jumps={-math.log(2.5): 5.0})
    for epsilon in (-1.0, 0.3, 1.0):
        low, high = up.forward.delta_bounds(epsilon=epsilon)
        around(PAIR.forward.delta_bounds(epsilon=epsilon), (low + high) / 2, digits=1e-10)
        low, high = down.forward.delta_bounds(epsilon=epsilon)
        around(PAIR.backward.delta_bounds(epsilon=epsilon), (low + high) / 2, digits=1e-10)


def test_fact_c1_variances_and_jumps_add() -> None:
    parts = curves.infinitely_divisible(variance=0.2, jumps={0.5: 1.0}) * curves.infinitely_divisible(
        variance=0.3, jumps={-0.4: 2.0}
    )
    whole = curves.infinitely_divisible(variance=0.5, jumps={0.5: 1.0, -0.4: 2.0})
    low, high = parts.delta_bounds(epsilon=1.0)
    other_low, other_high = whole.delta_bounds(epsilon=1.0)
    assert low <= other_high
    assert other_low <= high
    assert high - low <= 2e-3 * high


# -- C.2 -------------------------------------------------------------------------------------------------------------

TRADEOFFS = {
    "T(.05)": ("forward", 0.05, 0.453392304193384),
    "T(.3)": ("forward", 0.3, 0.142795970453041),
    "reverse T(.05)": ("backward", 0.05, 0.563231726811809),
    "reverse T(.3)": ("backward", 0.3, 0.124893223798425),
}


@pytest.mark.parametrize("name", TRADEOFFS)
def test_fact_c2_poisson_tradeoff(name: str) -> None:
    way, alpha, printed = TRADEOFFS[name]
    around(getattr(PAIR, way).beta_bounds(alpha=alpha), printed, width=1e-6)


def exact_tradeoff(a: float, b: float, alpha: float) -> float:
    """T(Pois a, Pois b) by the randomised likelihood-ratio test."""
    p, q, n = stats.poisson(a), stats.poisson(b), np.arange(400)
    if b > a:
        t = int(np.argmax(p.sf(n) <= alpha))
        share = (alpha - p.sf(t)) / p.pmf(t)
        return float(q.cdf(t) - share * q.pmf(t))
    t = int(np.argmax(p.cdf(n) > alpha))
    share = (alpha - p.cdf(t - 1)) / p.pmf(t)
    return float(q.sf(t - 1) - share * q.pmf(t))


@pytest.mark.parametrize("alpha", [1e-9, 1e-4, 0.02, 0.13533528, 0.5, 0.8, 0.97])
@pytest.mark.parametrize(("a", "b"), [(2.0, 5.0), (0.3, 0.9), (40.0, 45.0)])
def test_fact_c2_poisson_tradeoff_on_the_whole_interval(a: float, b: float, alpha: float) -> None:
    curve = curves.poisson(low=a, high=b)
    low, high = curve.forward.beta_bounds(alpha=alpha)
    around((low, high), exact_tradeoff(a, b, alpha), width=1e-4, digits=1e-11)
    low, high = curve.backward.beta_bounds(alpha=alpha)
    around((low, high), exact_tradeoff(b, a, alpha), width=1e-4, digits=1e-11)


def test_fact_c2_poisson_profiles() -> None:
    around(PAIR.forward.delta_bounds(epsilon=1.0), 0.337837096741481)
    around(PAIR.backward.delta_bounds(epsilon=1.0), 0.416380974675839)


@pytest.mark.parametrize("epsilon", [-2.5, -0.3, 0.0, 0.7, 3.0, 9.0, 30.0])
def test_fact_c2_poisson_profile_formulas(epsilon: float) -> None:
    a, b, x = 2.0, 5.0, math.exp(epsilon)
    p, q = stats.poisson(a), stats.poisson(b)
    n = math.floor((epsilon + b - a) / math.log(b / a)) + 1
    around(PAIR.backward.delta_bounds(epsilon=epsilon), float(q.sf(n - 1) - x * p.sf(n - 1)), digits=1e-11)
    n = math.ceil((b - a - epsilon) / math.log(b / a)) - 1
    exact = float(p.cdf(n) - x * q.cdf(n)) if n >= 0 else 0.0
    low, high = PAIR.forward.delta_bounds(epsilon=epsilon)
    assert low <= exact * (1 + 1e-11)
    assert exact * (1 - 1e-11) <= high
    assert high - low <= 1e-10 * high + 1e-80


def test_fact_c2_symmetrisation_is_the_hull() -> None:
    both = PAIR.symmetrized()
    around(both.beta_bounds(alpha=0.05), 0.453392304193384, width=1e-6)
    rate = both.equal_error_rate()
    assert 0.203951227399407 * (1 - 1e-7) <= rate <= 0.203951227399407 * (1 + 1e-13)
    around(both.delta_bounds(epsilon=1.0), 0.416380974675839, width=1e-9, digits=1e-13)


def test_fact_c2_equal_error_rate() -> None:
    rate = PAIR.equal_error_rate()
    assert 0.211579953369755 * (1 - 1e-7) <= rate <= 0.211579953369755 * (1 + 1e-13)


BERNOULLI_GAP = {10: 0.1600975104, 100: 0.01337336284, 1000: 0.001318093735, 10_000: 0.0001316213688}
"""Over all vertices of both polygons, by mpmath; the printed .160081, .0133663, .0013176, .000131569 are maxima over a grid."""


@pytest.mark.parametrize("n", BERNOULLI_GAP)
def test_fact_c2_bernoulli_products_approach_the_poisson_tradeoff(n: int) -> None:
    """sup |f_n - f| is attained at a vertex of one of the polygons; Le Cam bounds it by (a² + b²)/n."""
    a, b = 2.0, 5.0
    one = curves.from_pmf([1 - a / n, a / n], [1 - b / n, b / n], tied=True)
    vertices = np.concatenate((stats.poisson(a).sf(np.arange(12)), stats.binom(n, a / n).sf(np.arange(10))))
    vertices = np.unique(vertices[vertices > 1e-6])
    low, high = (one**n).forward.beta_bounds(alpha=vertices)
    limit_low, limit_high = PAIR.forward.beta_bounds(alpha=vertices)
    assert np.max(np.maximum(high - limit_low, limit_high - low)) >= BERNOULLI_GAP[n] * (1 - 1e-9)
    assert np.max(np.maximum(low - limit_high, limit_low - high)) <= BERNOULLI_GAP[n] * (1 + 1e-9)
    assert np.max(np.abs(high - limit_high)) == pytest.approx(BERNOULLI_GAP[n], rel=5e-3)
    assert BERNOULLI_GAP[n] <= (a * a + b * b) / n


LESS = [(2.0, 4.9), (1.9, 4.7), (3.0, 6.0), (10.0, 13.0), (0.5, 1.2), (2.0, 2.5)]
MORE = [(2.0, 5.1), (10.0, 13.2), (1.0, 4.2), (4.0, 10.0)]


@pytest.mark.parametrize(("low", "high"), LESS)
def test_fact_c2_blackwell_lemma_sufficient(low: float, high: float) -> None:
    """b'-a' <= b-a and b'/a' <= b/a: the pair (a', b') leaks no more than (a, b), direction by direction."""
    assert high - low <= 3
    assert high / low <= 2.5
    small, big = (curves.poisson(low=x, high=y, tied=True) for x, y in ((low, high), (2.0, 5.0)))
    assert small <= big
    alpha = np.array([1e-12, 1e-6, 1e-3, 0.05, 0.3, 0.7])
    for way in ("forward", "backward"):
        assert np.all(getattr(small, way).beta_bounds(alpha=alpha)[1] >= getattr(big, way).beta_bounds(alpha=alpha)[0])


@pytest.mark.parametrize(("low", "high"), MORE)
def test_fact_c2_blackwell_lemma_necessary(low: float, high: float) -> None:
    """A larger difference leaks more at α near 1 (and a larger ratio in the far tail)."""
    assert not curves.poisson(low=low, high=high, tied=True) <= curves.poisson(low=2, high=5, tied=True)


# -- C.3 -------------------------------------------------------------------------------------------------------------


def exponential_rates() -> list[float]:
    """M(y) ~ Pois(η2 e^{η1 y}), (μ1, μ2) = (2, 5), w = 2, y = 0..6."""
    eta1 = math.log(5 / 2) / 2
    eta2 = 3 / (math.exp(6 * eta1) - math.exp(4 * eta1))
    return [eta2 * math.exp(eta1 * y) for y in range(7)]


def test_fact_c3_rates() -> None:
    printed = [0.32, 0.50596443, 0.8, 1.26491106, 2.0, 3.16227766, 5.0]
    assert exponential_rates() == pytest.approx(printed, rel=1e-8)


RATES = {"exponential": exponential_rates(), "linear": [2 + 1.5 * y for y in range(7)]}


def neighbours(rates: list[float]) -> list[curves.Curve]:
    """All pairs of answers that one person can tell apart: values at most w = 2 steps from each other."""
    return [
        curves.poisson(low=min(x, y), high=max(x, y))
        for (i, x), (j, y) in itertools.combinations(enumerate(rates), 2)
        if abs(i - j) <= 2
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", RATES)
def test_fact_c3_every_pair_of_neighbours_is_dominated(name: str) -> None:
    promised = PAIR.symmetrized()
    alpha = np.array([1e-14, 1e-9, 1e-4, 0.02, 0.1, 0.21158, 0.4, 0.8])
    floor = promised.beta_bounds(alpha=alpha)[0]
    for curve in neighbours(RATES[name]):
        assert curve <= promised
        assert np.all(curve.beta_bounds(alpha=alpha)[1] >= floor - 1e-9)


def test_fact_c3_negative_control() -> None:
    """Linear rates with w halved: one person moves the rate by 6 instead of 3, and the same check says so."""
    promised = PAIR.symmetrized()
    rates = [2 + 3.0 * y for y in range(7)]
    assert not all(curve <= promised for curve in neighbours(rates))
    worst = curves.poisson(low=2, high=8)
    assert not worst <= promised
    alpha = np.logspace(-4, -1, 60)
    gap = np.min(worst.beta_bounds(alpha=alpha)[1] - promised.beta_bounds(alpha=alpha)[0])
    assert gap == pytest.approx(-0.448, abs=2e-3)


# -- C.4 -------------------------------------------------------------------------------------------------------------

MERTON = {"variance": 0.64, "rate": 1.5, "mean": 0.1, "spread": 0.6}
DRIFT = -0.804694718506155


def gauss_cumulant(z):
    return -z / 2 + z * z / 2


def merton_cumulant(z):
    jump = np.exp(z * MERTON["mean"] + 0.5 * (z * MERTON["spread"]) ** 2)
    return DRIFT * z + 0.5 * MERTON["variance"] * z * z + MERTON["rate"] * (jump - 1)


def nig_cumulant(z):
    """NIG(alpha=3, beta=-1/2, delta=1): drift 0."""
    return math.sqrt(9 - 0.25) - np.sqrt(9 - (z - 0.5) ** 2)


FOURIER = {
    "gauss": (gauss_cumulant, curves.gaussian(mu=1), 0.126936737506644),
    "merton": (merton_cumulant, curves.merton(**MERTON), 0.210902386618271),
    "nig": (nig_cumulant, curves.normal_inverse_gaussian(alpha=3, beta=-0.5, size=1), 0.0209799792638902),
}


@pytest.mark.parametrize("name", FOURIER)
def test_fact_c4_fourier_and_curve_agree(name: str) -> None:
    cumulant, curve, printed = FOURIER[name]
    assert curves.fourier_delta(cumulant, epsilon=1.0) == pytest.approx(printed, rel=1e-11)
    around(curve.backward.delta_bounds(epsilon=1.0), printed, width=1e-9, digits=1e-13)
    for epsilon in (-1.5, 0.25, 2.0):
        estimate = curves.fourier_delta(cumulant, epsilon=epsilon)
        around(curve.backward.delta_bounds(epsilon=epsilon), estimate, width=1e-9, digits=1e-10)


def test_fact_c4_the_printed_drift_is_the_martingale_drift() -> None:
    assert cmath.isclose(complex(merton_cumulant(np.complex128(1.0))), 0, abs_tol=1e-14)
    assert cmath.isclose(complex(nig_cumulant(np.complex128(1.0))), 0, abs_tol=1e-14)


def test_fact_c4_merton() -> None:
    curve = curves.merton(**MERTON)
    around(curve.backward.delta_bounds(epsilon=1.0), 0.210902386618271, width=1e-9)
    around(curve.forward.delta_bounds(epsilon=1.0), 0.168020976077135, width=1e-9)
    around(curve.forward.beta_bounds(alpha=0.05), 0.657042764342049, width=1e-9)


def test_fact_c4_merton_negative_control() -> None:
    with pytest.raises(AssertionError):
        around(curves.merton(**{**MERTON, "rate": 1.47}).backward.delta_bounds(epsilon=1.0), 0.210902386618271)


def test_fact_c4_normal_inverse_gaussian() -> None:
    curve = curves.normal_inverse_gaussian(alpha=3, beta=-0.5, size=1)
    around(curve.delta_bounds(epsilon=1.0), 0.0209799792638902, width=1e-9)
    around(curve.beta_bounds(alpha=0.05), 0.853433408804306, width=1e-9)
    assert curve.reversed() == curve  # the symmetric point
