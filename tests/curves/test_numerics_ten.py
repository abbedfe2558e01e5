"""Ten convincing tests of the accounting, by number: 1 to 4 and 7 to 9.

Number 5 is in test_numerics_order.py, number 6 in test_compose.py.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import special

from deniable import curves
from deniable.curves.atoms.divisible import MertonLaw, NigLaw
from deniable.curves.composition import law_product
from deniable.curves.composition.tilt_plan import Factor
from deniable.curves.laws.closed_form import GaussianLaw
from deniable.curves.meaning.curve_readings import product_of
from tests.curves import exact


@pytest.fixture(autouse=True)
def _digits() -> object:
    # The public doors read quietly; these tests look behind them.
    with mp.workdps(exact.DIGITS), np.errstate(all="ignore"):
        yield


# -- 1: Gaussians through the lattice --------------------------------------------------------------------------------


def unmerged(mu: float, uses: int) -> law_product.Product:
    """Gaussians as two factors, which are not merged into one: the lattice has to do the work."""
    factors = (Factor(GaussianLaw(mu), uses - uses // 2), Factor(GaussianLaw(mu), uses // 2))
    return law_product.Product(factors, factors)


@pytest.mark.slow
@pytest.mark.parametrize("total", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("uses", [2, 10, 1000, 10**6])
def test_fact_d1_gaussians_through_the_lattice(uses: int, total: float) -> None:
    """ε bracket contains the closed form for δ from 1e-1 to 1e-30 and is narrower than 1e-4."""
    mu = total / math.sqrt(uses)
    product = unmerged(mu, uses)
    for delta in (1e-1, 1e-3, 1e-6, 1e-12, 1e-20, 1e-30):
        if exact.gauss_delta(0.0, total) <= delta:
            continue
        low, high = product.epsilon_bounds(delta)
        root = mpf(mu) * mpmath.sqrt(uses)
        assert exact.gauss_delta(low, root) >= mpf(delta), (delta, low)
        assert exact.gauss_delta(high, root) <= mpf(delta), (delta, high)
        assert (high - low) / high <= 1e-4, (delta, low, high)


@pytest.mark.parametrize("uses", [2, 1000, 10**6])
def test_fact_d1_gaussian_deltas_through_the_lattice(uses: int) -> None:
    total = 1.5
    product = unmerged(total / math.sqrt(uses), uses)
    epsilon = np.array([0.0, 0.01, 1.0, 3.0, 6.0, 10.0, 16.0])
    low, high = product.delta(epsilon, "lower"), product.delta(epsilon, "upper")
    root = mpf(total / math.sqrt(uses)) * mpmath.sqrt(uses)
    for e, a, b in zip(epsilon.tolist(), low, high, strict=True):
        truth = exact.gauss_delta(e, root)
        assert a <= truth <= b, e
        assert b - a <= 3e-3 * truth, e  # a million uses fill the memory allowed before they reach 1e-3


def test_fact_d1_one_gaussian_on_a_lattice() -> None:
    """k = 1: a single use, next to a mechanism that reveals nearly nothing."""
    product = curves.gaussian(mu=1.0) * curves.laplace(scale=1e9)
    for delta in (1e-1, 1e-5, 1e-30):
        low, high = product.epsilon_bounds(delta=delta)
        assert exact.gauss_delta(low, 1.0) >= mpf(delta) * (1 - mpf("1e-6"))
        assert exact.gauss_delta(high, 1.0) <= mpf(delta)
        assert (high - low) / high <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-40, 1e-60, 1e-75, 1e-100, 1e-200])
def test_smaller_deltas_than_promised_are_still_safe(delta: float) -> None:
    """Running anything beside a Gaussian cannot lower ε: at any δ the bound stays above the Gaussian's own."""
    product = curves.gaussian(mu=1.0) * curves.laplace(scale=1e3)
    high = product.epsilon(delta=delta)
    assert exact.gauss_delta(min(high, 1e3), 1.0) <= mpf(delta)


# -- 2: randomized response and Kairouz, Oh, Viswanath ----------------------------------------------------------------


def test_fact_d2_randomized_response_against_its_binomial_sum() -> None:
    curve = curves.randomized_response(epsilon=0.1) ** 100
    low, high = curve.delta_bounds(epsilon=4.0)
    truth = exact.binomial_delta(4.0, 0.1, 100)
    assert low <= truth <= high
    assert high - low <= 1e-9 * truth
    five_hundred = curves.randomized_response(epsilon=1) ** 500
    low, high = five_hundred.epsilon_bounds(delta=1e-5)
    assert low <= 311.767604639711 + 1e-12
    assert high >= 311.767604639711 - 1e-12
    assert high - low <= 1e-6
    assert exact.binomial_delta(high, 1.0, 500) <= mpf(1e-5) <= exact.binomial_delta(low, 1.0, 500)


@pytest.mark.parametrize("uses", [2, 30, 5000])
def test_fact_d2_randomized_response_through_the_lattice(uses: int) -> None:
    """The losses lie on the lattice, so both lattice laws are exact: only the ledger is left between the bounds."""
    one = product_of(curves.randomized_response(epsilon=0.2))[0].upper[0].law
    factors = (Factor(one, uses - 1), Factor(one, 1))
    product = law_product.Product(factors, factors)
    spread = 0.2 * math.sqrt(uses)
    epsilon = np.array([0.0, 0.5 * spread, 1.3 * spread])
    low, high = product.delta(epsilon, "lower"), product.delta(epsilon, "upper")
    for e, a, b in zip(epsilon.tolist(), low, high, strict=True):
        truth = exact.binomial_delta(e, 0.2, uses)
        assert a <= truth <= b
        assert b - a <= 2e-3 * truth


def test_fact_d2_a_response_between_many_categories_and_black_boxes() -> None:
    """(ε, δ) black boxes: the optimal composition is a response with two letters of infinite loss."""
    curve = curves.approximate(epsilon=0.1, delta=1e-6) ** 50
    inside = exact.binomial_delta(2.0, 0.1, 50)
    alive = (1 - mpf(1e-6)) ** 50
    low, high = curve.delta_bounds(epsilon=2.0)
    assert low <= 1 - alive * (1 - inside) <= high
    assert high - low <= 1e-12


# -- 3: refutations --------------------------------------------------------------------------------------------------


def test_fact_d3_refutations() -> None:
    """500 Laplace mechanisms: 214.6 is not an ε for 1e-5; δ there is about .039."""
    curve = curves.laplace(scale=1) ** 500
    low, high = curve.epsilon_bounds(delta=1e-5)
    assert low > 214.6
    assert low <= 258.305 <= high + 0.005
    assert low == pytest.approx(258.30, abs=0.02)
    low, high = curve.delta_bounds(epsilon=214.5966)
    assert 0.0386 <= low <= high <= 0.0396


# -- 4: duality ------------------------------------------------------------------------------------------------------

SYMMETRIC = [
    curves.gaussian(mu=1.0),
    curves.laplace(scale=0.7),
    curves.laplace(scale=2) ** 5,
    curves.gaussian(mu=0.5) * curves.laplace(scale=2),
    curves.randomized_response(epsilon=1.0),
]


@pytest.mark.slow
@pytest.mark.parametrize("curve", SYMMETRIC, ids=repr)
def test_fact_d4_profile_to_tradeoff_and_back(curve: curves.Curve) -> None:
    """δ → f → δ: 1 + f*(-e^ε) from bounds on f lies in the bracket of δ; f is convex and its own inverse."""
    alpha = np.unique(np.concatenate((np.logspace(-5, -1, 6), np.linspace(0, 1, 14), [1 / (1 + math.e)])))
    low, high = curve.beta_bounds(alpha=alpha)
    assert np.all(low <= high)
    assert np.max(high - low) <= 1e-4
    assert np.all(low <= 1 - alpha)
    slopes = np.diff(low) / np.diff(alpha)
    assert np.all(np.diff(slopes) >= -2e-4 * np.abs(slopes[:-1]) - 1e-3)
    for e in (0.0, 0.3, 1.0):
        # δ = sup_α 1 - f(α) - e^ε α; any α gives a lower bound if f is bounded from above.
        found = float(np.max(1 - high - math.exp(e) * alpha))
        assert found <= curve.delta(epsilon=e) + 1e-12
        assert found >= curve.delta_bounds(epsilon=e)[0] - 0.05
    for a in (0.01, 0.3):
        inner = curve.beta_bounds(alpha=a)
        back = curve.beta_bounds(alpha=inner[0])[1], curve.beta_bounds(alpha=min(inner[1], 1.0))[0]
        assert back[1] - 1e-9 <= a <= back[0] + 1e-9


def test_fact_d4_from_a_curve_to_a_law_and_back() -> None:
    """δ → f (polygon) → law → δ: the curve rebuilt from its own trade-off function encloses the original."""
    curve = curves.gaussian(mu=1.0)

    def f(alpha: np.ndarray) -> np.ndarray:
        return special.ndtr(special.ndtri(1 - alpha) - 1.0)

    again = curves.tradeoff(f)
    for e in (0.0, 0.5, 1.0, 3.0):
        low, high = again.delta_bounds(epsilon=e)
        assert low <= exact.gauss_delta(e, 1.0) <= high
        assert low == pytest.approx(float(exact.gauss_delta(e, 1.0)), abs=1e-3)
        assert curve.delta(epsilon=e) >= low


# -- 7: subsampled Gaussian ------------------------------------------------------------------------------------------

SAMPLED = [
    # Contour integrals by mpmath with 30 digits, on two lines that agree to 18. The facts were extrapolated from grids
    # and had 9 digits: 0.000794590175 for the third.
    ("backward", 1.0, 0.00261242057862692, 1e-14),
    ("backward", 2.0, 2.66557192476179e-6, 1e-14),
    ("forward", 1.0, 0.000794590173571718, 1e-14),
    ("forward", 2.0, 1.06716202136868e-9, 1e-14),
]


@pytest.mark.parametrize(("direction", "epsilon", "truth", "digits"), SAMPLED)
def test_fact_d7_subsampled_gaussian(direction: str, epsilon: float, truth: float, digits: float) -> None:
    curve = curves.gaussian(sigma=1).sampled(rate=0.01) ** 1000
    low, high = getattr(curve, direction).delta_bounds(epsilon=epsilon)
    assert low <= truth * (1 + digits)
    assert high >= truth * (1 - digits)
    assert high - low <= 1e-6 * truth
    both = curve.delta_bounds(epsilon=epsilon)
    assert both[1] >= max(t for d, e, t, _ in SAMPLED if e == epsilon) * (1 - digits)


# -- 8: Rényi --------------------------------------------------------------------------------------------------------


def test_fact_d8_divergences_from_laws_are_the_closed_forms() -> None:
    assert curves.gaussian(sigma=4).renyi(order=2) == pytest.approx(0.0625, rel=1e-12)
    assert curves.laplace(scale=1).renyi(order=2) == pytest.approx(0.619123629998593, rel=1e-12)
    assert curves.randomized_response(epsilon=1).renyi(order=2) == pytest.approx(0.735325664055519, rel=1e-12)
    masses = [0.75, 0.25], [0.25, 0.75]
    assert curves.from_pmf(*masses).renyi(order=2) == pytest.approx(0.847297860387204, rel=1e-12)
    assert (curves.from_pmf(*masses) ** 2).renyi(order=2) == pytest.approx(1.69459572077441, rel=1e-12)


@pytest.mark.parametrize(
    "curve",
    [
        curves.gaussian(mu=2.5),
        curves.laplace(scale=0.5) ** 20,
        curves.randomized_response(epsilon=0.3) ** 50,
        curves.gaussian(sigma=1).sampled(rate=0.05) ** 100,
        curves.poisson(low=2, high=5, tied=True) ** 3,
        curves.laplace(scale=1).sampled(rate=0.2) ** 30,
    ],
    ids=repr,
)
def test_fact_d8_conversions_are_never_below_the_certified_curve(curve: curves.Curve) -> None:
    """For every order, ε_α + log(1/δ)/(α-1) and the sharper conversion stay above the lower bound of ε."""
    for delta in (1e-3, 1e-6, 1e-12):
        low, _ = curve.epsilon_bounds(delta=delta)
        for order in (1.5, 2.0, 4.0, 16.0, 64.0):
            divergence = curve.renyi(order=order)
            if not math.isfinite(divergence):
                continue
            plain = divergence + math.log(1 / delta) / (order - 1)
            sharp = divergence + math.log((order - 1) / order) - (math.log(delta) + math.log(order)) / (order - 1)
            assert plain >= low
            assert sharp >= low


# -- 9: Poisson and infinitely divisible -----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_fact_d9_bernoulli_products_approach_poisson(n: int) -> None:
    """T(Bern(2/n), Bern(5/n))^n against T(Pois 2, Pois 5): the gap is at most Le Cam's (4 + 25)/n."""
    one = curves.from_pmf([2 / n, 1 - 2 / n], [5 / n, 1 - 5 / n], tied=True) ** n
    limit = curves.poisson(low=2, high=5, tied=True)
    for e in (-1.0, 0.0, 1.0):
        a, b = one.forward.delta_bounds(epsilon=e), limit.forward.delta_bounds(epsilon=e)
        assert a[0] - b[1] <= 29 / n
        assert b[0] - a[1] <= 29 / n
    printed = {100: 0.440210677916}
    if n in printed:
        low, high = one.forward.beta_bounds(alpha=0.05)
        assert low - 1e-9 <= printed[n] <= high + 1e-9


def test_fact_d9_poisson_values() -> None:
    curve = curves.poisson(low=2, high=5, tied=True)
    values = [(curve.backward, 0.416380974675839), (curve.forward, 0.337837096741481)]
    for direction, truth in values:
        low, high = direction.delta_bounds(epsilon=1.0)
        assert low <= truth + 1e-15
        assert high >= truth - 1e-15
    two = curve**2
    assert max(two.backward.delta_bounds(epsilon=1.0)[1], 0) == pytest.approx(0.6407837747651968, rel=1e-9)
    free = curves.poisson(low=2, high=5) ** 2
    assert free.delta(epsilon=1.0) == pytest.approx(0.6554688604767, rel=1e-9)


def test_fact_d9_merton_and_nig() -> None:
    merton = curves.merton(variance=0.64, rate=1.5, mean=0.1, spread=0.6)
    low, high = merton.backward.delta_bounds(epsilon=1.0)
    assert low <= 0.210902386618271 <= high
    low, high = merton.forward.delta_bounds(epsilon=1.0)
    assert low <= 0.168020976077135 <= high
    assert curves.fourier_delta(MertonLaw(0.64, 1.5, 0.1, 0.6, 1).cumulant, epsilon=1.0) == pytest.approx(
        0.210902386618271, abs=1e-12
    )
    nig = curves.normal_inverse_gaussian(alpha=3, beta=-0.5, size=1)
    low, high = nig.delta_bounds(epsilon=1.0)
    assert low <= 0.0209799792638902 <= high
    assert curves.fourier_delta(NigLaw(3.0, -0.5, 1.0, 1).cumulant, epsilon=1.0) == pytest.approx(
        0.0209799792638902, abs=1e-12
    )


@pytest.mark.slow
def test_fact_d9_merton_and_nig_products_against_the_fourier_route() -> None:
    """Cumulants add under composition: the FFT route and the Fourier integral meet."""
    one, uses = MertonLaw(0.04, 0.3, 0.1, 0.3, 1), 20
    product = curves.merton(variance=0.04, rate=0.3, mean=0.1, spread=0.3) ** uses
    truth = curves.fourier_delta(lambda z: uses * one.cumulant(z), epsilon=1.0, end=60.0)
    low, high = product.backward.delta_bounds(epsilon=1.0)
    assert low - 1e-11 <= truth <= high + 1e-11
    law = NigLaw(3.0, -0.5, 0.2, 1)
    low, high = (curves.normal_inverse_gaussian(alpha=3, beta=-0.5, size=0.2) ** 10).forward.delta_bounds(epsilon=1.0)
    truth = curves.fourier_delta(lambda z: 10 * law.cumulant(z), epsilon=1.0, end=60.0)
    assert low - 1e-11 <= truth <= high + 1e-11
    assert high - low <= 2e-3 * truth


def test_fact_d9_directions_that_flip() -> None:
    """The mixed order of two uses has δ = 1.4633e-5; the curve must answer at least that."""
    p, q = [0.169256255, 0.000143280928, 0.830600464], [0.322611959, 0.0000252596148, 0.677362781]
    p, q = ([v / math.fsum(side) for v in side] for side in (p, q))
    assert (curves.from_pmf(p, q) ** 2).delta(epsilon=2.0) >= 1.4633e-5
    mixed = curves.from_pmf(p, q, tied=True) * curves.from_pmf(q, p, tied=True)
    assert mixed.forward.delta_bounds(epsilon=2.0)[0] == pytest.approx(1.4633e-5, rel=1e-4)
