"""Infinitely divisible promises: Merton and NIG against mpmath, Fourier inversion, and the algebra of triplets."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest
from scipy import special

from deniable import curves
from deniable.curves import Curve
from deniable.errors import InvalidParameter

MERTON = {"variance": 0.64, "rate": 1.5, "mean": 0.1, "spread": 0.6}
SMALL = {"variance": 0.01, "rate": 0.2, "mean": -0.3, "spread": 0.1}
STRONG = {"variance": 2.0, "rate": 8.0, "mean": 0.5, "spread": 0.0}


def inside(bounds: tuple[float, float], exact: float, *, width: float = 1e-9, slack: float = 1e-12) -> None:
    low, high = bounds
    assert low <= high
    assert low <= exact * (1 + slack) + 1e-300
    assert high >= exact * (1 - slack)
    assert high - low <= width * high


def merton_delta(epsilon: float, *, variance: float, rate: float, mean: float, spread: float) -> tuple[float, float]:
    """δ of Q against P and of P against Q: given n jumps X is normal under both; a call price for each n (Merton 1976)."""
    with mp.workdps(40):
        s2, lam, m, d, e = (mp.mpf(v) for v in (variance, rate, mean, spread, epsilon))
        growth = mp.exp(m + d * d / 2)
        drift = -s2 / 2 - lam * (growth - 1)
        ahead = back = mp.mpf(0)
        n, weight = 0, mp.exp(-lam)
        while n < 40 or weight > mp.mpf(10) ** -60:
            mu, sd = drift + n * m, mp.sqrt(s2 + n * d * d)
            # E(e^X - e^ε)_+ and E(1 - e^{ε+X})_+ for X ~ N(mu, sd²).
            ahead += weight * (
                mp.exp(mu + sd * sd / 2) * mp.ncdf((mu + sd * sd - e) / sd) - mp.exp(e) * mp.ncdf((mu - e) / sd)
            )
            back += weight * (
                mp.ncdf((-e - mu) / sd) - mp.exp(e + mu + sd * sd / 2) * mp.ncdf((-e - mu - sd * sd) / sd)
            )
            n += 1
            weight *= lam / n
        return float(ahead), float(back)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [-2.0, -0.2, 0.0, 0.5, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("parameters", [MERTON, SMALL, STRONG], ids=["merton", "small", "strong"])
def test_merton_by_its_series(parameters: dict[str, float], epsilon: float) -> None:
    curve = curves.merton(**parameters)
    ahead, back = merton_delta(epsilon, **parameters)
    inside(curve.backward.delta_bounds(epsilon=epsilon), ahead, width=1e-7, slack=1e-11)
    inside(curve.forward.delta_bounds(epsilon=epsilon), back, width=1e-7, slack=1e-11)


def test_merton_with_fewer_jumps_is_noticed() -> None:
    """Negative control: 2 % fewer jumps."""
    ahead, _ = merton_delta(1.0, **{**MERTON, "rate": 1.47})
    with pytest.raises(AssertionError):
        inside(curves.merton(**MERTON).backward.delta_bounds(epsilon=1.0), ahead)


def nig_delta(epsilon: float, alpha: float, beta: float, size: float) -> tuple[float, float]:
    """Both directions by Gauss-Legendre quadrature of the density, which is a Bessel function K_1 (good to 1e-12)."""
    drift = size * (math.sqrt(alpha**2 - (beta + 1) ** 2) - math.sqrt(alpha**2 - beta**2))
    gamma = math.sqrt(alpha**2 - beta**2)
    nodes, weights = np.polynomial.legendre.leggauss(40)

    def integral(function: Callable[[np.ndarray], np.ndarray], sign: int) -> float:
        edges = sign * epsilon + sign * np.concatenate(([0.0], np.geomspace(1e-4, 150.0, 200)))
        half, middle = 0.5 * np.diff(edges), 0.5 * (edges[1:] + edges[:-1])
        x = middle[:, None] + half[:, None] * nodes
        y = x - drift
        root = np.sqrt(size**2 + y * y)
        density = (
            alpha * size / math.pi * np.exp(size * gamma + beta * y - alpha * root) * special.k1e(alpha * root) / root
        )
        return abs(float(np.sum(half[:, None] * weights * density * function(x))))

    return integral(lambda x: np.exp(x) - math.exp(epsilon), 1), integral(lambda x: 1 - np.exp(epsilon + x), -1)


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.0, 3.0])
@pytest.mark.parametrize(
    ("alpha", "beta", "size"), [(3.0, -0.5, 1.0), (3.0, 0.5, 0.3), (8.0, -2.0, 4.0), (1.6, -0.5, 0.05)]
)
def test_nig_by_its_density(alpha: float, beta: float, size: float, epsilon: float) -> None:
    curve = curves.normal_inverse_gaussian(alpha=alpha, beta=beta, size=size)
    ahead, back = nig_delta(epsilon, alpha, beta, size)
    inside(curve.backward.delta_bounds(epsilon=epsilon), ahead, width=1e-8, slack=1e-10)
    inside(curve.forward.delta_bounds(epsilon=epsilon), back, width=1e-8, slack=1e-10)


def nig_cumulant(alpha: float, beta: float, size: float) -> Callable[[np.ndarray], np.ndarray]:
    inner, outer = math.sqrt(alpha**2 - beta**2), math.sqrt(alpha**2 - (beta + 1) ** 2)
    return lambda z: size * ((outer - inner) * z + inner - np.sqrt(alpha**2 - (beta + z) ** 2))


@pytest.mark.parametrize(("alpha", "beta", "size"), [(3.0, -0.5, 1.0), (3.0, 0.5, 1.5), (8.0, -2.0, 4.0)])
@pytest.mark.parametrize("epsilon", [-1.0, 0.0, 0.7])
def test_nig_by_fourier(alpha: float, beta: float, size: float, epsilon: float) -> None:
    curve = curves.normal_inverse_gaussian(alpha=alpha, beta=beta, size=size)
    estimate = curves.fourier_delta(nig_cumulant(alpha, beta, size), epsilon=epsilon)
    inside(curve.backward.delta_bounds(epsilon=epsilon), estimate, width=1e-8, slack=1e-8)


@pytest.mark.parametrize("order", [1.01, 1.5, 2.0, 2.9])
def test_nig_renyi_is_the_cumulant(order: float) -> None:
    """D_order(Q||P) = K(order)/(order - 1), D_order(P||Q) = K(1 - order)/(order - 1)."""
    alpha, beta, size = 4.0, -1.0, 0.7
    cumulant = nig_cumulant(alpha, beta, size)
    exact = max(float(cumulant(np.array(order))), float(cumulant(np.array(1 - order)))) / (order - 1)
    value = curves.normal_inverse_gaussian(alpha=alpha, beta=beta, size=size).renyi(order=order)
    assert exact * (1 - 1e-12) <= value <= exact * (1 + 1e-8)


def test_nig_moments_end_at_the_strip() -> None:
    curve = curves.normal_inverse_gaussian(alpha=3, beta=-0.5, size=1)
    assert math.isfinite(curve.renyi(order=3.4))
    assert curve.renyi(order=3.6) == math.inf
    assert curve.renyi(order=math.inf) == math.inf
    assert curve.gdp() == math.inf


@pytest.mark.parametrize("order", [1.1, 2.0, 5.0, 20.0])
@pytest.mark.parametrize("parameters", [MERTON, SMALL], ids=["merton", "small"])
def test_merton_renyi_is_the_cumulant(parameters: dict[str, float], order: float) -> None:
    with mp.workdps(30):
        s2, lam, m, d = (mp.mpf(parameters[k]) for k in ("variance", "rate", "mean", "spread"))
        drift = -s2 / 2 - lam * (mp.exp(m + d * d / 2) - 1)

        def cumulant(z: mp.mpf) -> mp.mpf:
            return drift * z + s2 * z * z / 2 + lam * (mp.exp(z * m + z * z * d * d / 2) - 1)

        a = mp.mpf(order)
        exact = float(max(cumulant(a), cumulant(1 - a)) / (a - 1))
    value = curves.merton(**parameters).renyi(order=order)
    assert exact * (1 - 1e-12) <= value <= exact * (1 + 1e-9)


SUMS: dict[str, tuple[Curve, Curve]] = {
    "gaussians": (
        curves.infinitely_divisible(variance=0.09, jumps={}) * curves.infinitely_divisible(variance=0.16, jumps={}),
        curves.gaussian(mu=0.5),
    ),
    "merton": (curves.merton(**MERTON) ** 2, curves.merton(**{**MERTON, "variance": 1.28, "rate": 3.0})),
    "nig": (
        curves.normal_inverse_gaussian(alpha=3, beta=0.25, size=0.5) ** 2,
        curves.normal_inverse_gaussian(alpha=3, beta=0.25, size=1.0),
    ),
    "fixed jumps": (
        curves.infinitely_divisible(variance=0.3, jumps={0.5: 1.0}) ** 2,
        curves.infinitely_divisible(variance=0.6, jumps={0.5: 2.0}),
    ),
    "merton without spread": (
        curves.merton(variance=0.3, rate=1.0, mean=0.5, spread=0.0),
        curves.infinitely_divisible(variance=0.3, jumps={0.5: 1.0}),
    ),
    "down": (
        curves.merton(variance=0.3, rate=1.0, mean=-0.5, spread=0.0),
        curves.infinitely_divisible(variance=0.3, jumps={-0.5: 1.0}),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("epsilon", [-0.5, 0.5, 2.0])
def test_triplets_add(name: str, epsilon: float) -> None:
    """Composition adds variances and jump rates; both ways of writing it bracket the same number."""
    one, other = SUMS[name]
    for way in ("forward", "backward"):
        low, high = getattr(one, way).delta_bounds(epsilon=epsilon)
        other_low, other_high = getattr(other, way).delta_bounds(epsilon=epsilon)
        assert low <= other_high
        assert other_low <= high
        assert high - low <= 3e-3 * high
        assert other_high - other_low <= 3e-3 * other_high


def test_many_jump_sizes_by_enumeration() -> None:
    """Gaussian plus jumps up at rate 1 and down at rate 2: numbers of jumps are independent Poisson under P and under Q."""
    variance, up, down = 0.4, (0.5, 1.0), (-0.3, 2.0)
    curve = curves.infinitely_divisible(variance=variance, jumps=dict([up, down]))
    n = np.arange(60)

    def weights(rate: float) -> np.ndarray:
        return np.exp(n * math.log(rate) - rate - special.gammaln(n + 1))

    drift = -variance / 2 - sum(rate * math.expm1(x) for x, rate in (up, down))
    jump = up[0] * n[:, None] + down[0] * n[None, :]
    under_p = weights(up[1])[:, None] * weights(down[1])[None, :]
    mean, sd = drift + jump, math.sqrt(variance)
    for epsilon in (-0.7, 0.0, 1.3):
        call = np.exp(mean + variance / 2) * special.ndtr((mean + variance - epsilon) / sd) - math.exp(
            epsilon
        ) * special.ndtr((mean - epsilon) / sd)
        exact = float(np.sum(under_p * call))
        inside(curve.backward.delta_bounds(epsilon=epsilon), exact, width=3e-3, slack=1e-9)


def test_the_symmetric_point_of_the_nig() -> None:
    curve = curves.normal_inverse_gaussian(alpha=3, beta=-0.5, size=1)
    assert curve.symmetrized() == curve
    for epsilon in (0.2, 1.5):
        assert curve.forward.delta_bounds(epsilon=epsilon) == curve.backward.delta_bounds(epsilon=epsilon)
    near = curves.normal_inverse_gaussian(alpha=3, beta=-0.5 + 1e-9, size=1)
    assert near.delta(epsilon=1.0) == pytest.approx(curve.delta(epsilon=1.0), rel=1e-7)


def test_the_central_moments_of_a_divisible_loss() -> None:
    """E L under the second law: for Merton backward, KL(Q||P) = K'(1), the larger of the two."""
    s2, lam, m, d = (MERTON[k] for k in ("variance", "rate", "mean", "spread"))
    growth = math.exp(m + d * d / 2)
    drift = -s2 / 2 - lam * (growth - 1)
    slope = drift + s2 + lam * (m + d * d) * growth
    assert curves.merton(**MERTON).backward.kl() == pytest.approx(slope, rel=1e-9)
    assert curves.merton(**MERTON).kl() == curves.merton(**MERTON).backward.kl()


@pytest.mark.parametrize(
    "jumps", [{0.5: 0.0}, {0.5: -1.0}, {0.0: 1.0}, {math.inf: 1.0}, {0.5: math.inf}, {500.0: 1.0}, {-900.0: 1.0}]
)
def test_jumps_that_cannot_be_held_are_refused(jumps: dict[float, float]) -> None:
    with pytest.raises(InvalidParameter):
        curves.infinitely_divisible(variance=0.1, jumps=jumps)


def test_a_jump_whose_rate_overflows_is_not_cut() -> None:
    """e^310 is more than a rate may be; e^300 instead of it would promise what is not so."""
    try:
        curve = curves.infinitely_divisible(variance=0, jumps={310.0: 1e-135})
    except InvalidParameter:
        return
    assert curve.backward.delta_bounds(epsilon=0.0)[1] >= -math.expm1(-1e-135 * math.exp(310.0)) * (1 - 1e-9)


def test_fourier_is_an_estimate_that_converges() -> None:
    def cumulant(z: np.ndarray) -> np.ndarray:
        return -z / 2 + z * z / 2

    exact = curves.gaussian(mu=1).delta(epsilon=1.0)
    errors = [abs(curves.fourier_delta(cumulant, epsilon=1.0, step=step) - exact) for step in (0.8, 0.4, 0.1)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-12


def test_the_gaussian_part_is_rounded_up() -> None:
    """√variance was rounded to the nearest float, and a filter took 42 of the first 100 variances for less."""
    from fractions import Fraction

    for variance in range(1, 101):
        (atom, _), *_ = curves.infinitely_divisible(variance=variance, jumps={}).factors
        assert Fraction(atom.mu) ** 2 >= variance
