"""Skellam noise against mpmath: masses, profiles, and the μ of a shift by one."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from scipy import special

from deniable import curves
from deniable.curves.atoms.skellam import _log_masses, _log_rate, unit_mu
from deniable.errors import InvalidParameter
from tests.wording import worded


def mass(n: int, variance: float) -> mp.mpf:
    return mp.exp(-mp.mpf(variance)) * mp.besseli(abs(n), variance)


def debye(n: int, variance: float) -> mp.mpf:
    """log P(N = n) by the first terms of Debye's expansion: for large variances, where mpmath's series is slow."""
    w = mp.sqrt(mp.mpf(n) ** 2 + mp.mpf(variance) ** 2)
    t = n / w
    rest = 1 + (3 - 5 * t**2) / (24 * w) + (81 - 462 * t**2 + 385 * t**4) / (1152 * w**2)
    return w - variance - n * mp.asinh(n / mp.mpf(variance)) - mp.log(2 * mp.pi * w) / 2 + mp.log(rest)


@pytest.mark.parametrize("variance", [0.001, 0.5, 10.0, 300.0])
def test_masses_are_those_of_mpmath(variance: float) -> None:
    logs = _log_masses(variance, 200)
    with mp.workdps(40):
        for n in (0, 1, 2, 17, 60, 200):
            assert abs(mp.log(mass(n, variance)) - mp.mpf(float(logs[n]))) < 1e-12 + 1e-15 * abs(float(logs[n]))


@pytest.mark.parametrize("variance", [1e5, 2.0**20, 2.0**24])
def test_masses_of_large_variances(variance: float) -> None:
    spread = math.sqrt(variance)
    logs = _log_masses(variance, round(31 * spread))
    with mp.workdps(40):
        for share in (0.0, 0.1, 1.0, 5.0, 19.9, 29.9, 30.5, 31.0):
            n = round(share * spread)
            assert abs(debye(n, variance) - mp.mpf(float(logs[n]))) < 5e-11


@pytest.mark.parametrize(("variance", "shift"), [(0.1, 1), (2.0, 1), (2.0, 3), (25.0, 1), (25.0, 20)])
def test_the_profile_is_that_of_mpmath(variance: float, shift: int) -> None:
    curve = curves.skellam(variance=variance, sensitivity=shift)
    with mp.workdps(40):
        masses = {n: mass(n, variance) for n in range(-200, 201 + shift)}
        for epsilon in (0.0, 0.3, 1.0, 4.0):
            pairs = ((masses[n], masses[abs(n - shift)]) for n in range(-150, 150))
            exact = mp.fsum(max(p - mp.exp(epsilon) * q, 0) for p, q in pairs)
            low, high = curve.delta_bounds(epsilon=epsilon)
            assert low <= exact <= high
            assert high - low <= 1e-8 * high + 1e-80


@pytest.mark.parametrize("variance", [0.001, 0.02, 0.3, 1.0, 7.0, 60.0, 900.0])
def test_no_step_is_larger_than_the_unit_mu(variance: float) -> None:
    """Every z_{n+1} - z_n from mpmath's masses, far into the tail; the first one is the largest."""
    found, steps = unit_mu(variance), []
    with mp.workdps(60):
        last = 40 + round(12 * math.sqrt(variance))
        logs, tail = [], mp.fsum(mass(n, variance) for n in range(last, last + 200))
        for n in range(last - 1, -1, -1):
            tail += mass(n, variance)
            logs.append(float(mp.log(tail)))
    z = -special.ndtri_exp(np.array(logs[::-1]))
    steps = np.diff(z)
    assert found * (1 - 2e-8) <= float(steps[0]) <= found
    assert np.all(steps <= found)
    assert found == pytest.approx(2 * special.ndtri((1 + special.ive(0, variance)) / 2), rel=2e-8)


def test_the_bounds_beyond_the_computed_tail_are_bounds() -> None:
    """Amos' inequality, Chernoff's and the bound on ratios of tails, each at sizes where mpmath can tell."""
    for variance in (3.0, 50.0, 200.0):
        with mp.workdps(60):
            masses = [mass(n, variance) for n in range(450)]
            tails = list(np.cumsum(np.array(masses[::-1]))[::-1])
        for n in (1, 5, 40, 150, 300):
            ratio = float(masses[n] / masses[n - 1])
            assert ratio >= math.exp(-math.asinh((n + 0.5) / variance)) * (1 - 1e-14)
            assert 1 / ratio <= 1 + 2 * n / variance
            assert float(mp.log(tails[n])) <= -float(_log_rate(np.array([float(n)]), variance)[0])
            x = math.exp(-math.asinh(n / variance))
            q = (1 + x) / (2 * variance * (1 - x) ** 2)
            if q < 0.9:
                most = math.asinh(n / variance) + (1 + x) / (2 * variance * (1 - x) * (1 - q))
                assert float(mp.log(tails[n - 1] / tails[n])) <= most


@pytest.mark.parametrize("variance", [50.0, 1e4])
def test_a_shift_in_one_place_and_in_many_stay_below_the_gaussian(variance: float) -> None:
    """The theorem, at its two ends: all of the shift in one coordinate, or one step in each of many."""
    steps = 16
    bound = curves.gaussian(mu=steps * unit_mu(variance))
    for curve in (curves.skellam(variance=variance, sensitivity=steps), curves.skellam(variance=variance) ** steps**2):
        low, high = curve.epsilon_bounds(delta=1e-6)
        assert high <= bound.epsilon(delta=1e-6) * (1 + 1e-9)
        assert low >= (0.9 if variance < 100 else 0.99) * bound.epsilon(delta=1e-6)
    assert bound.epsilon(delta=1e-6) < (1 + 1 / variance) * curves.gaussian(mu=steps / math.sqrt(variance)).epsilon(
        delta=1e-6
    )


def test_shares_add_up_to_the_noise_of_the_sum() -> None:
    """Convolving the masses of two shares gives the masses of the whole."""
    half, whole = (np.exp(_log_masses(v, 60)) for v in (3.0, 6.0))
    both = np.convolve(np.concatenate((half[:0:-1], half)), np.concatenate((half[:0:-1], half)))
    assert both[120:150] == pytest.approx(whole[:30], rel=1e-12)


def test_variances_out_of_range_are_refused() -> None:
    for variance in (1e-4, 2.0**24 + 1):
        with worded(InvalidParameter):
            curves.skellam(variance=variance)
