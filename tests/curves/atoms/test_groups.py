"""Groups of sampled Gaussians: raw bounds against the trade-off function composed by mpmath at 50 digits."""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from deniable import curves
from deniable.curves.atoms.composite_atoms import GroupedAtom
from deniable.curves.laws import neighbour_chain
from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.meaning import blackwell_order, curve_readings

SEED = 20261116


def upper_tail(z: mp.mpf) -> mp.mpf:
    return mp.erfc(z / mp.sqrt(2)) / 2


def quantile(level: mp.mpf, start: mp.mpf) -> mp.mpf:
    """The z with P(N(0,1) > z) = level, by Newton's method on the logarithm."""
    z = start
    for _ in range(200):
        tail = upper_tail(z)
        step = (mp.log(tail) - mp.log(level)) * tail * mp.sqrt(2 * mp.pi) * mp.exp(z * z / 2)
        z += step
        if abs(step) < mp.mpf(10) ** -22:  # the next one would be its square
            return z
    raise AssertionError("Newton's method did not converge")


def chain_from(z: float, mu: float, rate: float, size: int) -> tuple[float, float]:
    """An exact point (ε, δ) of a group's profile: that of the chain of tests which starts with the threshold z.

    One step: g(α) = (1-q) α + q P(N(μ,1) > z) where α = P(N(0,1) > z), with slope 1 - q + q e^(μz - μ²/2), up to slope
    1; then α plus the total variation distance, with slope 1; beyond, the other direction, which is not needed here.
    """
    with mp.workdps(50):
        m, q, at = mp.mpf(mu), mp.mpf(rate), mp.mpf(z)
        first = level = upper_tail(at)
        distance = q * (upper_tail(-m / 2) - upper_tail(m / 2))
        slope = mp.mpf(0)
        for _ in range(size):
            if level < upper_tail(m / 2):
                at = quantile(level, at)
                slope += mp.log1p(q * mp.expm1(m * at - m * m / 2))
                level = (1 - q) * level + q * upper_tail(at - m)
            else:
                level += distance
            if level >= 1 - upper_tail(m / 2) - distance:
                return 0.0, 1.0
        return float(slope), float(level - mp.exp(slope) * first)


def test_the_lower_bound_of_a_large_group_is_below_the_truth() -> None:
    """Levels of e^-745 and less rounded to the smallest float, and a chain of 100 took them for real."""
    g = curves.gaussian(sigma=1).sampled(rate=0.001).group(size=100)
    low, high = curve_readings.epsilon_bounds(g, 1e-6)
    assert 126.3 < low <= high < 126.7
    assert not curves.gaussian(mu=30) <= g


@pytest.mark.slow
def test_raw_bounds_of_groups_hold_the_exact_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the chain, which every other mechanism has: groups of Gaussian samples have a smaller curve."""
    monkeypatch.setattr(GroupedAtom, "divisions", lambda _: ())
    print("seed", SEED)
    rng = np.random.default_rng(SEED)
    seen = 0
    while seen < 56:
        sigma, rate = float(np.exp(rng.uniform(-1, 1.2))), float(10 ** rng.uniform(-4, -0.7))
        size = int(np.exp(rng.uniform(math.log(2), math.log(150))))
        z = float(rng.uniform(2, 30))
        epsilon, delta = chain_from(z, 1 / sigma, rate, size)
        if not (0 < epsilon < 5000 and 1e-14 < delta < 0.9):
            continue
        seen += 1
        g = curves.gaussian(sigma=sigma).sampled(rate=rate).group(size=size)
        case = f"sigma={sigma!r} rate={rate!r} size={size} epsilon={epsilon!r} delta={delta!r}"
        low, high = curve_readings.delta_bounds(g, np.array([epsilon]))
        assert low[0] <= delta * (1 + 1e-12) <= high[0] * (1 + 2e-12), case
        low_, high_ = curve_readings.epsilon_bounds(g, delta)
        assert low_ <= epsilon * (1 + 1e-12) <= high_ * (1 + 2e-12), case
        assert math.isinf(high_) or high_ - low_ <= 0.02 * high_ + 1e-6, case


def test_a_chain_beyond_the_smallest_float_is_as_exact_as_a_short_one() -> None:
    """ε-DP with ε = 3 for a chain of 500: the power is e^1500 times the level, while that is below e^-3/(1+e^-3)."""
    law = FiniteLaw(np.array([-3.0, 3.0]), np.array([math.exp(-3), 1.0]) / (1 + math.exp(-3)))
    for side in ("upper", "lower"):
        chained = neighbour_chain.iterate(law, 500, side=side)
        assert chained.highest == pytest.approx(1500.0, rel=1e-10)
        assert np.sum(chained.masses) == pytest.approx(1.0, abs=1e-8)


def test_noise_in_a_polygon_does_not_become_a_revealing_outcome() -> None:
    """Points that almost coincide have a meaningless slope: below a law they must not raise the rest."""
    level = np.array([-np.inf, -5.0, -1.0, -1.0 + 1e-15, 0.0])
    power = np.array([-np.inf, -2.0, -0.5, -0.5 + 1e-13, 0.0])
    law = neighbour_chain.law_of(neighbour_chain.Polygon(level, power), 0.0, side="lower")
    assert law.highest == pytest.approx(3.0, rel=1e-9)
    for at in (0.5, 1.0, 2.0, 2.9):
        first, second, _ = law.tails(np.array([at]))
        exact = max(math.exp(p) - math.exp(at + s) for s, p in zip(level, power, strict=True))
        assert first[0] - second[0] <= exact * (1 + 1e-12)


@pytest.mark.parametrize(("side", "factor"), [("lower", 2.0), ("upper", 0.25)])
def test_an_order_was_certified_from_bounds_that_contradict_each_other(
    side: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lower bound of the larger curve that is too large, or an upper bound of the smaller one that is too small:
    each was used without its other half, and "<=" held in both directions.
    """
    honest = blackwell_order.SearchedProfile.delta

    def wrong(self: Any, epsilon: Any, asked: Any) -> Any:
        found = honest(self, epsilon, asked)
        return np.minimum(factor * found, 1.0) if asked == side else found

    first, second = curves.laplace(scale=1), curves.laplace(scale=0.9)
    assert first <= second
    monkeypatch.setattr(blackwell_order.SearchedProfile, "delta", wrong)
    assert not first <= second
    assert not second <= first
