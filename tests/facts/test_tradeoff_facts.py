"""Trade-off functions, Gaussian DP and limits by the public API.

Not here, and why:
    129  computational DP replaces "all events" by "all small tests": a definition without a number of its own
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from deniable import curves


def around(bounds: tuple[float, float], printed: float, *, width: float = 1e-11, digits: float = 1e-14) -> None:
    """The certified bracket is narrow and contains the printed number (known to `digits`, relative)."""
    low, high = bounds
    assert low <= high
    assert low <= printed * (1 + digits)
    assert high >= printed * (1 - digits)
    assert high - low <= width * abs(high)


def test_the_check_can_fail() -> None:
    """Negative control: 2 % less noise is rejected by the same check."""
    with pytest.raises(AssertionError):
        around(curves.gaussian(mu=1.02).beta_bounds(alpha=0.05), 0.740488977158556, width=1e-9)


def test_fact_gaussian_tradeoff() -> None:
    around(curves.gaussian(mu=1).beta_bounds(alpha=0.05), 0.740488977158556, width=1e-9)


def test_fact_every_beta_is_a_tradeoff_function() -> None:
    alpha = np.linspace(0.0, 1.0, 41)
    for curve in (
        curves.gaussian(mu=1),
        curves.laplace(scale=1),
        curves.poisson(low=2, high=5),
        curves.pure(epsilon=1),
    ):
        low, high = curve.beta_bounds(alpha=alpha)
        assert np.all(low <= high)
        assert np.all(high <= 1 - alpha + 1e-15)
        assert np.all(np.diff(low) <= 1e-12)
        assert low[0] == pytest.approx(1.0, abs=1e-12)
        assert high[-1] == 0.0


@pytest.mark.parametrize(("alpha", "printed"), [(0.05, 0.864075908577048), (0.5, 0.183936041791309)])
def test_facts_the_tradeoff_of_approximate_dp(alpha: float, printed: float) -> None:
    around(curves.approximate(epsilon=1, delta=1e-5).beta_bounds(alpha=alpha), printed, width=1e-6)


@pytest.mark.parametrize("alpha", [1e-6, 0.01, 0.2, 0.3, 0.7, 0.99])
def test_fact_on_the_whole_interval(alpha: float) -> None:
    epsilon, delta = 1.0, 1e-5
    exact = max(0.0, 1 - delta - math.exp(epsilon) * alpha, math.exp(-epsilon) * (1 - delta - alpha))
    around(curves.approximate(epsilon=epsilon, delta=delta).beta_bounds(alpha=alpha), exact, width=1e-6, digits=1e-13)


def gaussian_tradeoff(mu: float):
    return lambda alpha: special.ndtr(-special.ndtri(alpha) - mu)


def test_fact_duality_from_f_to_delta() -> None:
    """A trade-off function as data: its conjugate gives δ(1)."""
    curve = curves.tradeoff(gaussian_tradeoff(1.0))
    around(curve.delta_bounds(epsilon=1.0), 0.126936737506644, width=1e-5)
    around(curve.delta_bounds(epsilon=-1.0), 1 - math.exp(-1) * (1 - 0.126936737506644), width=1e-5)


@pytest.mark.parametrize("alpha", [1e-4, 0.05, 0.4, 0.9])
def test_fact_duality_from_delta_to_f(alpha: float) -> None:
    """f(α) = sup over ε of f_{ε,δ(ε)}(α)."""
    curve = curves.gaussian(mu=1)
    epsilon = np.linspace(-6, 10, 4001)
    best = np.max(1 - curve.delta(epsilon=epsilon) - np.exp(epsilon) * alpha)
    low, high = curve.beta_bounds(alpha=alpha)
    assert low - 1e-6 <= best <= high
    around((low, high), float(gaussian_tradeoff(1.0)(alpha)), width=1e-8, digits=1e-12)


def test_fact_the_best_test_is_randomised_at_its_threshold() -> None:
    """Pois(2) against Pois(5) at α = 0.05: threshold 5, randomisation 0.9264876."""
    low, high = curves.poisson(low=2, high=5).forward.beta_bounds(alpha=0.05)
    p = stats.poisson(5)
    shares = [(p.cdf(5) - beta) / p.pmf(5) for beta in (low, high)]
    assert shares[1] <= 0.926487647559559 * (1 + 1e-12)
    assert shares[0] >= 0.926487647559559 * (1 - 1e-12)
    assert shares[0] - shares[1] <= 1e-6


def test_fact_blackwell_order() -> None:
    around(curves.gaussian(mu=1).beta_bounds(alpha=0.3), 0.317179870364004, width=1e-9)
    around(curves.gaussian(mu=0.5).beta_bounds(alpha=0.3), 0.509733430316693, width=1e-9)
    assert curves.gaussian(mu=0.5) <= curves.gaussian(mu=1)
    assert not curves.gaussian(mu=1) <= curves.gaussian(mu=0.5)
    assert curves.identity() <= curves.gaussian(mu=0.5)
    assert curves.identity().beta(alpha=0.3) == pytest.approx(0.7, rel=1e-12)


def test_fact_true_positives_at_few_false_ones() -> None:
    value = curves.gaussian(sigma=1).tpr(fpr=1e-3)
    assert 0.0182984684056566 * (1 - 1e-14) <= value <= 0.0182984684056566 * (1 + 1e-9)


def test_fact_pure_dp_as_gaussian_dp() -> None:
    value = curves.pure(epsilon=1).gdp()
    assert 1.2320353853449 * (1 - 1e-13) <= value <= 1.2320353853449 * (1 + 1e-12)


def test_fact_tensor_product() -> None:
    product = curves.gaussian(mu=0.3) * curves.gaussian(mu=0.4)
    around(product.beta_bounds(alpha=0.05), 0.87386510180657, width=1e-9, digits=1e-13)
    assert product.gdp() == pytest.approx(0.5, rel=1e-14)
    assert product == curves.gaussian(mu=0.4) * curves.gaussian(mu=0.3)
    assert product * curves.identity() == product


def test_fact_tensor_product_of_tradeoff_functions() -> None:
    """The same from the functions alone; floating-point input resolves δ to 1e-15, hence the width."""
    product = curves.tradeoff(gaussian_tradeoff(0.3)) * curves.tradeoff(gaussian_tradeoff(0.4))
    exact = curves.gaussian(mu=0.5).delta(epsilon=0.5)
    around(product.delta_bounds(epsilon=0.5), exact, width=2e-3, digits=1e-9)


FUNCTIONALS = {
    "gaussian": (curves.gaussian(mu=1), (0.5, 1.25, 2.20654696957989)),
    "pure": (curves.pure(epsilon=1), (0.46211715726001, 1.0, 1.0)),
    "laplace": (curves.laplace(scale=1), (0.367879441171442, 0.792723352971346, 0.766173460520154)),
}


@pytest.mark.parametrize("name", FUNCTIONALS)
def test_fact_functionals(name: str) -> None:
    curve, printed = FUNCTIONALS[name]
    assert (curve.kl(), curve.kappa2(), curve.kappa3()) == pytest.approx(printed, rel=1e-12)


def test_fact_central_limit() -> None:
    curve = curves.pure(epsilon=0.1) ** 1000
    limit = curve.clt()
    assert limit.mu == pytest.approx(3.15964506135238, rel=1e-12)
    assert limit.approximate_delta(epsilon=4.0) == pytest.approx(0.502245714570015, rel=1e-11)
    around(curve.delta_bounds(epsilon=4.0), 0.502534940729782, width=1e-9, digits=1e-13)
    low, high = limit.beta_bracket(alpha=0.3)
    exact_low, exact_high = curve.beta_bounds(alpha=0.3)
    assert low <= exact_low <= exact_high <= high


def test_fact_the_variance_is_twice_the_mean() -> None:
    """k = 2, s = 2: a Gaussian loss has E e^{-L} = 1 only if s² = 2k."""
    curve = curves.infinitely_divisible(variance=4.0, jumps={})
    assert curve.kl() == pytest.approx(2.0, rel=1e-11)
    variance = curve.kappa2() - curve.kl() ** 2
    assert variance == pytest.approx(4.0, rel=1e-10)
    assert math.exp(-curve.kl() + variance / 2) == pytest.approx(1.0, rel=1e-9)


POISSON_LIMIT = {100: 0.440210677916, 10_000: 0.453266450927}


@pytest.mark.parametrize("n", POISSON_LIMIT)
def test_fact_poisson_limit(n: int) -> None:
    one = curves.from_pmf([1 - 2 / n, 2 / n], [1 - 5 / n, 5 / n], tied=True)
    bounds = (one**n).forward.beta_bounds(alpha=0.05)
    around(bounds, POISSON_LIMIT[n], width=1e-6, digits=1e-11)
    limit = curves.poisson(low=2, high=5).forward.beta_bounds(alpha=0.05)
    around(limit, 0.453392304193384, width=1e-6, digits=1e-13)
    assert abs(bounds[0] - limit[0]) <= 29 / n  # Le Cam


def test_fact_an_infinitely_divisible_law() -> None:
    curve = curves.merton(variance=0.64, rate=1.5, mean=0.1, spread=0.6)
    around(curve.forward.beta_bounds(alpha=0.05), 0.657042764342049, width=1e-9, digits=1e-13)


@pytest.mark.parametrize(
    "curve",
    [curves.poisson(low=2, high=5), curves.poisson(low=2, high=5).reversed(), curves.gaussian(mu=1)],
    ids=["poisson", "poisson reversed", "gaussian"],
)
def test_fact_the_likelihood_ratio_has_mean_one(curve: curves.Curve) -> None:
    for loss in (curve.forward.loss, curve.backward.loss):
        assert np.sum(loss.masses) + loss.infinity == pytest.approx(1.0, rel=1e-11)
        assert np.sum(loss.masses * np.exp(-loss.losses)) == pytest.approx(1.0, rel=1e-8)


def test_fact_gaussian_additive_mechanism() -> None:
    c = curves.calibrate(lambda s: curves.gaussian(sigma=s, sensitivity=2), mu=0.5)
    assert 4.0 * (1 - 1e-12) <= c <= 4.0 * (1 + 2e-7)


def test_fact_rates_of_the_poisson_mechanism() -> None:
    """M(y) ~ Pois(η2 (μ2/μ1)^{y/w}): what curves can say of it is tested with the Poisson facts (C.3)."""
    eta1 = math.log(5 / 2) / 2
    eta2 = 3 / (math.exp(6 * eta1) - math.exp(4 * eta1))
    assert eta1 == pytest.approx(0.458145365937078, rel=1e-14)
    assert eta2 == pytest.approx(0.32, rel=1e-13)
    assert eta2 * math.exp(3 * eta1) == pytest.approx(1.26491106406735, rel=1e-13)
    neighbours = curves.poisson(low=eta2 * math.exp(3 * eta1), high=eta2 * math.exp(5 * eta1))
    assert neighbours <= curves.poisson(low=2, high=5).symmetrized()


def test_fact_total_variation_from_the_tradeoff_function() -> None:
    alpha = np.array([0.25, 0.3, 0.308537538725987, 0.32, 0.4])
    low, high = curves.gaussian(mu=1).beta_bounds(alpha=alpha)
    assert 1 - np.min(high + alpha) <= 0.382924922548026 + 1e-12
    assert 1 - np.min(low + alpha) == pytest.approx(0.382924922548026, abs=1e-9)


def test_fact_a_random_number_of_compositions() -> None:
    """N ~ Pois(4) copies of G_0.5, N revealed."""
    counts = np.arange(60)
    weights = stats.poisson(4).pmf(counts)
    one = curves.gaussian(mu=0.5)
    curve = curves.mixture((weights / weights.sum()).tolist(), [one ** int(n) for n in counts])
    around(curve.delta_bounds(epsilon=1.0), 0.126436935744621)
    hidden = curves.hidden_mixture((weights / weights.sum()).tolist(), [one ** int(n) for n in counts])
    assert hidden.delta(epsilon=1.0) < curve.delta_bounds(epsilon=1.0)[0]


@pytest.mark.parametrize(
    ("mu", "printed"), [(0.5, 0.884724281108683), (1.0, 0.772902886373994), (2.0, 0.431558140305451)]
)
def test_fact_quantised_gaussian(mu: float, printed: float) -> None:
    """Bins [n, n+1): the answer under the first neighbour is N(0, 1)."""
    curve = curves.quantized(curves.gaussian(mu=mu), width=1.0)
    around(curve.forward.beta_bounds(alpha=0.05), printed, width=1e-6, digits=1e-13)
    assert curve <= curves.gaussian(mu=mu)
    assert not curves.gaussian(mu=mu) <= curve
