"""Formulas that courses and papers print, and that the exact curve refutes (docs/course tells each of them)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from deniable import curves
from deniable.curves import textbook
from deniable.errors import InvalidParameter, OutsideTheorem


def around(bounds: tuple[float, float], printed: float, *, width: float = 1e-9, digits: float = 1e-13) -> None:
    """The certified bracket is narrow and contains the printed number (known to `digits`, relative)."""
    low, high = bounds
    assert low <= high
    assert low <= printed * (1 + digits)
    assert high >= printed * (1 - digits)
    assert high - low <= width * abs(high)


def test_erratum_a_record_that_moves_between_blocks_meets_both() -> None:
    """A histogram with Lap(1/ε) in every bin: ε under add/remove, 2ε when one record moves from bin to bin."""
    bin_ = curves.laplace(scale=1)
    around(curves.worst_of(bin_, bin_).epsilon_bounds(delta=0.0), 1.0)
    around((bin_ * bin_).epsilon_bounds(delta=0.0), 2.0)


CLASSICAL_FAILS = {1e-3: 7.463474, 1e-4: 7.990993, 1e-5: 8.419771, 1e-6: 8.782092, 1e-9: 9.623657}


def classical(epsilon: float, delta: float) -> curves.Curve:
    """The Gaussian with σ = sqrt(2 log(1.25/δ))/ε, used without its condition."""
    return curves.gaussian(sigma=math.sqrt(2 * math.log(1.25 / delta)) / epsilon)


@pytest.mark.parametrize("delta", CLASSICAL_FAILS)
def test_erratum_where_the_classical_gaussian_fails(delta: float) -> None:
    edge = CLASSICAL_FAILS[delta]
    assert classical(edge - 2e-6, delta).delta(epsilon=edge - 2e-6) <= delta
    assert classical(edge + 2e-6, delta).delta_bounds(epsilon=edge + 2e-6)[0] > delta
    with pytest.raises(OutsideTheorem):
        textbook.classical_gaussian_sigma(sensitivity=1, epsilon=edge, delta=delta)


@pytest.mark.parametrize(("epsilon", "printed"), [(10.0, 2.2653744e-5), (20.0, 1.5266947e-3)])
def test_erratum_numbers(epsilon: float, printed: float) -> None:
    around(classical(epsilon, 1e-5).delta_bounds(epsilon=epsilon), printed, digits=3e-8)


def test_erratum_at_its_edge_it_happens_to_hold() -> None:
    around(classical(1.0, 1e-5).delta_bounds(epsilon=1.0), 4.113692e-8, digits=2e-7)


def test_erratum_mironov_is_far_from_the_optimum() -> None:
    around((curves.pure(epsilon=0.1) ** 1000).epsilon_bounds(delta=1e-5), 17.7871284497009)


@pytest.mark.parametrize(
    ("count", "delta", "printed"), [(100, 1e-6, 1.49402649715712e-6), (1000, 1e-5, 1.37119332881856e-5)]
)
def test_erratum_the_lost_factor_two(count: int, delta: float, printed: float) -> None:
    step = 0.01
    wrong = count * step * math.expm1(step) + step * math.sqrt(count * math.log(1 / delta))
    curve = curves.pure(epsilon=step) ** count
    around(curve.delta_bounds(epsilon=wrong), printed)
    assert curve.delta_bounds(epsilon=wrong)[0] > delta
    right = textbook.advanced_composition_drv(epsilon=step, count=count, delta=delta)
    assert curve.delta(epsilon=right) <= delta
    if count == 100:
        assert wrong == pytest.approx(0.381742385969152, rel=1e-14)


def test_erratum_how_much_each_of_100_may_cost() -> None:
    best = curves.calibrate(lambda e: curves.pure(epsilon=e) ** 100, epsilon=1.0, delta=1e-6)
    assert 0.0240110803971598 * (1 - 2e-7) <= best <= 0.0240110803971598 * (1 + 1e-12)


def test_erratum_exact_gaussian_composition() -> None:
    sigma = curves.calibrate(lambda s: curves.gaussian(sigma=s) ** 100, epsilon=1.0, delta=1e-6)
    assert 1784.79117179238 * (1 - 1e-12) <= sigma**2 <= 1784.79117179238 * (1 + 4e-7)


@pytest.mark.parametrize(("at", "printed"), [(1.0, 1.61198075325529e-4), (1.17913447001194, 1e-5)])
def test_erratum_a_large_loss_is_likelier_than_delta(at: float, printed: float) -> None:
    """P(L > ε) from the curve of the bit [L > ε]: δ(0) = P - Q and δ(ε) = P - e^ε Q."""
    bit = curves.quantized(curves.gaussian(sigma=3.73063163481594), edges=[at]).forward
    (low, high), (low_at, high_at) = bit.delta_bounds(epsilon=0.0), bit.delta_bounds(epsilon=at)
    tail = (math.exp(at) * low - high_at) / math.expm1(at), (math.exp(at) * high - low_at) / math.expm1(at)
    around(tail, printed, width=1e-6)


def test_erratum_a_limit_outside_the_infinitely_divisible_class() -> None:
    """T(Bern(1/n), Bern(0))^n -> max(0, 1 - e α): the limit has an infinite loss with probability 1 - 1/e."""
    n, alpha = 1000, 0.2
    one = curves.from_pmf([1 - 1 / n, 1 / n], [1.0, 0.0], tied=True)
    around((one**n).forward.beta_bounds(alpha=alpha), 0.456071556711, digits=1e-11, width=1e-6)
    around((0.456343634308, 0.456343634308), max(0.0, 1 - math.e * alpha), digits=1e-11)
    around((one**n).forward.delta_bounds(epsilon=30.0), 1 - (1 - 1 / n) ** n)
    assert (one**n).epsilon(delta=0.5) == math.inf


def test_erratum_not_every_law_qualifies() -> None:
    """∫ e^x ν(dx) must be finite and E e^X = 1: the NIG tilt must stay inside its strip."""
    with pytest.raises(InvalidParameter):
        curves.normal_inverse_gaussian(alpha=3, beta=2.5, size=1)
    curve = curves.merton(variance=1e-2, rate=1.0, mean=0.5, spread=0.5)
    assert curve.forward.delta_bounds(epsilon=-40.0)[1] == pytest.approx(1.0, abs=1e-15)


def test_erratum_the_hull_is_lower_than_the_minimum() -> None:
    pair = curves.poisson(low=2, high=5)
    at = 0.211579953369755
    pointwise, hull = pair.beta_bounds(alpha=at), pair.symmetrized().beta_bounds(alpha=at)
    around(pointwise, at, width=1e-6)
    gap = (pointwise[0] - hull[1], pointwise[1] - hull[0])
    around(gap, 0.0152574, width=1e-4, digits=4e-6)
    assert pair.equal_error_rate() == pytest.approx(0.211579953370, rel=1e-7)
    assert pair.symmetrized().equal_error_rate() == pytest.approx(0.203951227399, rel=1e-7)


P36 = (0.169256255, 0.000143280928, 0.830600464)
Q36 = (0.322611959, 0.0000252596148, 0.677362781)


def test_erratum_directions_may_flip_between_uses() -> None:
    """δ(P×P || Q×Q) = 1.58e-8, δ(Q×Q || P×P) = 0, but δ(P×Q || Q×P) = 1.4633e-5."""
    tied, free = curves.from_pmf(P36, Q36, tied=True), curves.from_pmf(P36, Q36)
    around((tied**2).forward.delta_bounds(epsilon=2.0), 1.58e-8, digits=3e-3, width=1e-6)
    assert (tied**2).backward.delta_bounds(epsilon=2.0)[1] <= 1e-20
    around((tied * tied.reversed()).delta_bounds(epsilon=2.0), 1.4633e-5, digits=5e-5, width=1e-6)
    assert (free**2).delta_bounds(epsilon=2.0)[0] >= 1.4633e-5 * (1 - 1e-4)
    assert (free * free).delta(epsilon=2.0) >= 1.4633e-5 * (1 - 1e-4)


def test_erratum_poisson() -> None:
    tied, free = curves.poisson(low=2, high=5, tied=True), curves.poisson(low=2, high=5)
    around((tied**2).delta_bounds(epsilon=1.0), 0.6407837747651968)
    around((tied * tied.reversed()).delta_bounds(epsilon=1.0), 0.6079266850, digits=1e-9)
    around((free**2).delta_bounds(epsilon=1.0), 0.6554688604767, digits=1e-12)
    around((free.symmetrized() ** 2).delta_bounds(epsilon=1.0), 0.6554688604767, digits=1e-12)


def test_erratum_the_worked_example() -> None:
    """ε = 1, k = 500, δ = 1e-5 -> 214.59 is false."""
    claimed = 2 * math.sqrt(2 * 500 * math.log(1e5))
    assert claimed == pytest.approx(214.5966, abs=5e-5)
    exact = curves.pure(epsilon=1) ** 500
    around(exact.epsilon_bounds(delta=1e-5), 311.767604639711, width=1e-8)
    around(exact.delta_bounds(epsilon=claimed), 0.783193611537856, width=1e-8, digits=1e-12)
    with pytest.raises(OutsideTheorem):
        textbook.advanced_composition_doubled(epsilon=1, count=500, delta=1e-5)
    assert textbook.advanced_composition(epsilon=1, count=500, delta=1e-5) == pytest.approx(357.298301314467, rel=1e-14)


def test_erratum_for_the_very_mechanism_of_the_slide() -> None:
    """500 Laplace(1): printed between 0.03861 and 0.03954, and ε(1e-5) = 258.30; exact values by Mellin inversion in mpmath."""
    curve = curves.laplace(scale=1) ** 500
    claimed = 2 * math.sqrt(2 * 500 * math.log(1e5))
    around(curve.delta_bounds(epsilon=claimed), 0.0395367675141882, width=1e-3)
    around(curve.epsilon_bounds(delta=1e-5), 258.304571129532, width=1e-4)
    assert 0.03861 <= 0.0395367675141882 <= 0.03954
    assert curve.kl() == pytest.approx(183.94, abs=5e-3)
    assert math.sqrt(curve.kappa2() - curve.kl() ** 2) == pytest.approx(18.13, abs=5e-3)


FIRST_VIOLATION = {1.0: 176, 0.5: 525, 0.1: 11764}


@pytest.mark.parametrize("epsilon", FIRST_VIOLATION)
def test_erratum_first_violation(epsilon: float) -> None:
    count = FIRST_VIOLATION[epsilon]

    def claimed(k: int) -> float:
        return 2 * epsilon * math.sqrt(2 * k * math.log(1e5))

    curve = curves.pure(epsilon=epsilon)
    assert (curve**count).delta_bounds(epsilon=claimed(count))[0] > 1e-5
    assert (curve ** (count - 1)).delta(epsilon=claimed(count - 1)) <= 1e-5
    assert count * epsilon**2 > 8 * math.log(1e5)


def test_erratum_poisson_by_enumeration() -> None:
    """Independent answer for the symmetrise-first number: the larger profile as a polygon in x, then all pairs of its kinks."""
    n = np.arange(90)
    p, q = stats.poisson(5).pmf(n), stats.poisson(2).pmf(n)
    ratio = np.sort(np.concatenate((p / q, q / p)))

    def profiles(x: np.ndarray) -> np.ndarray:
        return np.stack([np.maximum(a[None] - x[:, None] * b[None], 0).sum(axis=1) for a, b in ((p, q), (q, p))])

    # Kinks of the maximum: kinks of both, and the places where the two cross inside a cell (both are linear there).
    gap = np.subtract(*profiles(ratio))
    turn = np.flatnonzero(gap[:-1] * gap[1:] < 0)
    crossing = ratio[turn] + (ratio[turn + 1] - ratio[turn]) * gap[turn] / (gap[turn] - gap[turn + 1])
    x = np.unique(np.concatenate(([0.0], ratio, crossing)))
    value = profiles(x).max(axis=0)
    mass = np.diff(np.concatenate((np.diff(value) / np.diff(x), [0.0])), prepend=-1.0)  # Q-mass at likelihood ratio x
    keep = (mass > 0) & (x < 1e25)
    x, mass = x[keep], mass[keep]
    exact = float(mass @ np.maximum(np.multiply.outer(x, x) - math.e, 0) @ mass)
    assert exact == pytest.approx(0.6554688604767, rel=1e-9)
    around((curves.poisson(low=2, high=5) ** 2).delta_bounds(epsilon=1.0), exact, digits=1e-9)
