"""Powers of laws with rare large losses: losses that decide alone are counted exactly.

The independent answer for two uses is an integral over the first output at 25 digits: the profile of the second use is a
closed form.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp

from deniable import curves
from deniable.curves.composition import far_losses
from deniable.curves.composition.far_losses import TILTS, FarLosses, cut_beyond, low_moments, lowest_sum
from deniable.curves.composition.law_product import Product
from deniable.curves.composition.likely_loss import likely_epsilon
from deniable.curves.composition.tilt_plan import Factor, log_best_gap
from deniable.curves.laws.closed_form import GaussianLaw
from deniable.curves.laws.derived_laws import MixedLaw, SampledAgainstWithout
from deniable.curves.laws.finite_law import FiniteLaw

Number = mp.mpf


def twice(rate: float, sigma: float, epsilon: float) -> Number:
    """δ(ε) of two uses of a Poisson-sampled Gaussian, the worse of both directions."""
    with mp.workdps(25):
        return max(_with_against_without(rate, sigma, epsilon), _without_against_with(rate, sigma, epsilon))


def _tail(z: Number) -> Number:
    return mp.erfc(z / mp.sqrt(2)) / 2


def _integral(function: object, breaks: list[Number]) -> Number:
    points = sorted({*[mp.mpf(p) for p in range(-14, 15, 4)], *[b for b in breaks if -14 < b < 14]})
    return mp.quad(function, points)


def _with_against_without(rate: float, sigma: float, epsilon: float) -> Number:
    q, mu, at = mp.mpf(rate), 1 / mp.mpf(sigma), mp.mpf(epsilon)

    def threshold(loss: Number) -> Number | None:
        inner = (mp.expm1(loss) + q) / q
        return None if inner <= 0 else (mp.log(inner) + mu * mu / 2) / mu

    def once(loss: Number) -> Number:
        z = threshold(loss)
        if z is None:
            return -mp.expm1(loss)
        return (1 - q) * _tail(z) + q * _tail(z - mu) - mp.exp(loss) * _tail(z)

    def part(z: Number, shift: Number) -> Number:
        loss = mp.log1p(q * mp.expm1(mu * (z + shift) - mu * mu / 2))
        return mp.npdf(z) * once(at - loss)

    everything = threshold(at - mp.log1p(-q))  # from here on, the first loss decides alone
    breaks = [] if everything is None else [everything]
    absent = _integral(lambda z: part(z, mp.mpf(0)), breaks)
    present = _integral(lambda z: part(z, mu), [b - mu for b in breaks])
    return (1 - q) * absent + q * present


def _without_against_with(rate: float, sigma: float, epsilon: float) -> Number:
    q, mu, at = mp.mpf(rate), 1 / mp.mpf(sigma), mp.mpf(epsilon)

    def once(loss: Number) -> Number:
        inner = (mp.expm1(-loss) + q) / q
        if inner <= 0:
            return mp.mpf(0)
        z = (mp.log(inner) + mu * mu / 2) / mu
        return (1 - mp.exp(loss) * (1 - q)) * _tail(-z) - mp.exp(loss) * q * _tail(mu - z)

    def part(z: Number) -> Number:
        return mp.npdf(z) * once(at + mp.log1p(q * mp.expm1(mu * z - mu * mu / 2)))

    return _integral(part, [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "sigma", "delta"),
    [
        (1.438e-5, 0.7708, 2.36e-6),  # losses up to 1, and ε is 9e-5
        (1.827e-9, 0.8304, 2.82e-10),  # all losses of interest below 1e-7
        (4.693e-7, 428.6, 8.8e-15),  # losses of 1e-9
    ],
)
def test_brackets_of_two_uses_are_narrow_and_hold_the_truth(rate: float, sigma: float, delta: float) -> None:
    low, high = (curves.gaussian(sigma=sigma).sampled(rate=rate) ** 2).epsilon_bounds(delta=delta)
    assert 0 < low <= high <= low * (1 + 1e-4)
    assert twice(rate, sigma, high * (1 + 1e-9)) <= delta <= twice(rate, sigma, low * (1 - 1e-9))


LAW = SampledAgainstWithout(GaussianLaw(1.5), 1e-3)


def split(epsilon: float, delta: float, count: int) -> FarLosses:
    cut = cut_beyond(LAW, count, epsilon, delta)
    assert cut is not None
    found = FarLosses(LAW, count, cut, delta, lambda factors: Product(factors, factors), None)
    found.refine(epsilon, delta, 0.2)
    return found


@pytest.mark.parametrize("epsilon", [0.01, 0.1])
def test_far_losses_and_the_rest_add_up_to_the_profile(epsilon: float) -> None:
    """Beside the integral for two uses."""
    truth = float(_with_against_without(1e-3, 1 / 1.5, epsilon))
    parts, at = split(epsilon, truth, 2), np.array([epsilon])
    low, high = float(parts.lower(at)[0]), float(parts.upper(at)[0])
    assert low <= truth <= high
    assert high - low <= 1e-3 * truth


def test_what_low_sums_may_take_away_is_added_to_the_upper_bound() -> None:
    at, delta = np.array([0.1]), 1e-3
    parts = split(0.1, delta, 2)
    above = float(parts.upper(at)[0])
    parts._lack = 0.0
    assert above - float(parts.upper(at)[0]) == pytest.approx(far_losses.NEGLIGIBLE * delta, rel=1e-3)


def test_far_losses_that_are_not_counted_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A negative control: the test above can fail."""
    truth = float(_with_against_without(1e-3, 1 / 1.5, 0.1))
    monkeypatch.setattr(FarLosses, "_counted", lambda self, epsilon: (np.zeros_like(epsilon), np.zeros_like(epsilon)))
    assert float(split(0.1, truth, 2).upper(np.array([0.1]))[0]) < truth


def test_moments_of_low_losses_are_bounded_from_above() -> None:
    """log E_Q e^(-tL), Q without the person, beside an integral."""
    q, mu = mp.mpf(1e-3), mp.mpf(1.5)
    bounds = dict(zip(TILTS.tolist(), low_moments(LAW).tolist(), strict=True))
    with mp.workdps(25):
        for tilt in (0.5, 8.0, 1024.0, 2.0**14):
            rest = _integral(
                lambda z, t=tilt: mp.npdf(z) * mp.expm1(-t * mp.log1p(q * mp.expm1(mu * z - mu**2 / 2))), []
            )
            exact = mp.log1p(rest)
            assert exact <= bounds[tilt] <= exact + abs(exact) / 100 + 1e-13


@pytest.mark.parametrize("log_chance", [-3.0, -40.0, -300.0])
def test_one_loss_is_below_the_bound_as_rarely_as_promised(log_chance: float) -> None:
    """Without the person, log(1 - q + q e^(μz - μ²/2)) with a normal z."""
    q, mu = mp.mpf(1e-3), mp.mpf(1.5)
    bound = lowest_sum(LAW, 1, log_chance)
    assert math.log1p(-1e-3) * (1 + 1e-6) <= bound < 0
    inner = (mp.expm1(mp.mpf(bound)) + q) / q
    exact = 0 if inner <= 0 else _tail(-(mp.log(inner) + mu**2 / 2) / mu)
    assert exact <= mp.exp(log_chance)
    assert lowest_sum(GaussianLaw(1.0), 1, log_chance) == -math.inf  # this law has no least loss


def test_the_cut_lies_beyond_epsilon_by_what_the_other_losses_may_take_away() -> None:
    """A sampled loss is at least log(1 - q)."""
    cut = cut_beyond(LAW, 3, 0.05, 1e-6)
    assert cut is not None
    assert 0.05 < cut <= 0.05 - 2 * math.log1p(-1e-3) * (1 + 1e-6)
    assert cut_beyond(GaussianLaw(1.0), 2, 1e6, 1e-6) is None  # no loss is that large


def test_a_bracket_that_is_narrow_already_is_returned() -> None:
    power = Factor(LAW, 2)
    ends = (0.1, 0.1 * (1 + 1e-9))
    narrowed = far_losses.narrowed(power, 1e-6, *ends, 1.0, lambda factors: Product(factors, factors))
    assert narrowed[1] <= ends[1]
    assert narrowed[0] >= ends[0]


def test_nearly_all_mass_at_the_least_loss_is_not_lost() -> None:
    """Large noise ratios: the bulk of the loss is a spike at log(1 - q). A lower bound dropped it, and low was 0.13."""
    low, high = (curves.gaussian(sigma=0.05301).sampled(rate=0.001717) ** 77).epsilon_bounds(delta=1.39e-16)
    assert 1712 < low <= high <= low * (1 + 1e-4)


@pytest.mark.parametrize(("mu", "uses"), [(0.5, 100), (3.0, 10_000), (40.0, 10**9)])
def test_likely_losses_bound_epsilon_from_below(mu: float, uses: int) -> None:
    """δ of a product of Gaussians is a closed form."""
    epsilon = likely_epsilon([Factor(GaussianLaw(mu), uses)])
    total = mu * math.sqrt(uses)
    with mp.workdps(30):
        delta = _tail(epsilon / total - mp.mpf(total) / 2)
        delta -= mp.exp(epsilon + mp.log(_tail(epsilon / total + mp.mpf(total) / 2)))
    assert delta >= 0.5
    assert epsilon >= total**2 / 2 - 4 * total


@pytest.mark.slow
def test_a_lower_bound_is_never_zero_for_want_of_a_lattice() -> None:
    """Rounding errors of so many uses exceed the masses of a lattice."""
    low, high = (curves.gaussian(sigma=0.01425).sampled(rate=0.0386) ** 2_855_000_000).epsilon_bounds(delta=7.6e-21)
    assert 0.9 * high < low < high


def test_outcomes_that_only_q_has_are_not_ignored() -> None:
    """Under Q half of the second part has the loss -inf, so no loss decides alone: δ was 8 % too small. Two uses are a
    mixture of two sampled Gaussians, of one with a loss of log 2, and of twice log 2.
    """
    hidden = FiniteLaw(np.array([math.log(2)]), np.array([1.0]))
    law, epsilon = MixedLaw((LAW, hidden), (0.5, 0.5)), 1.5
    with mp.workdps(25):
        q, mu, shifted = mp.mpf(1e-3), mp.mpf(1.5), mp.mpf(epsilon) - mp.log(2)
        z = (mp.log((mp.expm1(shifted) + q) / q) + mu * mu / 2) / mu
        once = (1 - q) * _tail(z) + q * _tail(z - mu) - mp.exp(shifted) * _tail(z)
        delta = float(_with_against_without(1e-3, 1 / 1.5, epsilon) / 4 + once / 2)
    factors = (Factor(law, 2),)
    low, high = Product(factors, factors).epsilon_bounds(delta)
    assert low <= epsilon <= high
    assert cut_beyond(law, 2, epsilon, delta) is None


def test_the_chernoff_constant_keeps_its_digits_at_a_strong_tilt() -> None:
    """It was too small by 2e-5, where its two terms cancel."""
    for tilt in (1e-12, 0.3, 1e4, 1e10):
        with mp.workdps(50):
            exact = mp.mpf(tilt) * mp.log(tilt) - (1 + mp.mpf(tilt)) * mp.log1p(tilt)
        assert abs(log_best_gap(tilt) - float(exact)) <= 1e-14 * (1 + abs(float(exact)))


def test_mass_that_a_lower_law_has_lost_is_no_likely_loss() -> None:
    """One outcome of loss 50 has 0.4 of the mass, and nothing is known of the rest: δ is at most 0.4."""
    law = FiniteLaw(np.array([50.0]), np.array([0.4]))
    assert likely_epsilon([Factor(law, 1)]) == 0.0
    assert likely_epsilon([Factor(FiniteLaw(np.array([50.0]), np.array([1.0])), 1)]) > 40


def test_q_masses_below_the_smallest_floats_keep_their_digits() -> None:
    """e^ε Q(A) with Q(A) near 1e-316, beside the same number from the closed form of one use."""
    law = SampledAgainstWithout(GaussianLaw(40.0), 1e-3)
    cut, epsilon = 726.0, 705.0
    parts = FarLosses(law, 2, cut, 1e-9, lambda factors: Product(factors, factors), None)
    gap, _ = parts._sure
    with mp.workdps(40):
        q, mu = mp.mpf(1e-3), mp.mpf(40)
        z = (mp.log((mp.expm1(cut) + q) / q) + mu * mu / 2) / mu
        lost = mp.exp(epsilon) * (2 - _tail(z)) * _tail(z)
        counted, error = parts._counted(np.array([epsilon]))
        assert abs(gap - float(counted[0]) - float(lost)) <= float(error[0]) + 1e-15 * gap
        far = -mp.expm1(-mp.mpf(epsilon)) * mp.exp(mp.mpf(epsilon) - cut) * parts._sure[1]
        assert abs(far / lost - 1) < 1e-11
