"""Rarely sampled Gaussians: lattices that resolve the spike, and products split by their jumps.

The independent answer is a contour integral (tests/curves/contour.py), which takes none of the routes under test.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp

from deniable import curves
from deniable.curves.composition import jump_split, lattice
from deniable.curves.composition.law_product import Product
from deniable.curves.laws import conditioned_laws
from deniable.curves.laws.closed_form import GaussianLaw
from deniable.curves.laws.conditioned_laws import AboveCut, BelowCut, masses_beyond, shift_above, shift_below
from deniable.curves.laws.derived_laws import SampledAgainstWithout, WithoutAgainstSampled
from tests.curves import contour

ROWS = [
    # rate, σ, count, δ, and the contour: Re s, its end and step
    (1.4e-4, 0.647, 11136, 2.4e-6, 3.0, 3000.0, 0.1),
    (1e-3, 0.8, 1000, 1e-6, 5.0, 2000.0, 0.1),
    (1.03e-4, 0.815, 5689, 1.3e-10, 6.0, 4000.0, 0.2),
    (2.26e-4, 1.0, 983, 5.6e-7, 10.0, 3000.0, 0.2),
    (1.77e-4, 1.26, 2569, 3.4e-10, 15.0, 3000.0, 0.2),
    (1e-4, 1.1, 10_000, 1e-9, 15.0, 1500.0, 0.3),
]


def test_the_contour_agrees_with_a_value_of_40_digits() -> None:
    """ε of S-G(0.01, 1)^1000 at 1e-5 is 1.828237 (benchmarks/works.py)."""
    assert contour.delta(0.01, 1.0, 1000, 1.828237, at=3.0, top=200.0, step=0.05) == pytest.approx(1e-5, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_brackets_of_rare_samples_are_narrow_and_hold_the_truth(row: tuple[float, ...]) -> None:
    rate, sigma, count, delta, at, top, step = row
    curve = curves.gaussian(sigma=sigma).sampled(rate=rate) ** int(count)
    low, high = curve.epsilon_bounds(delta=delta)
    assert 0 < low <= high <= low * (1 + 1e-4)
    assert curve.epsilon(delta=delta) == high
    there = [
        contour.delta(rate, sigma, int(count), epsilon, at=at, top=top, step=step)
        for epsilon in (low * (1 - 1e-6), high * (1 + 1e-6))
    ]
    assert there[1] < delta < there[0]


@pytest.mark.slow
def test_every_bracket_of_a_random_box_is_narrow() -> None:
    """Log-uniform; seed 20261118. The largest relative width must stay below 1e-3, and 1e-4 in nine of ten cases."""
    generator = np.random.default_rng(20261118)

    def between(low: float, high: float) -> float:
        return math.exp(generator.uniform(math.log(low), math.log(high)))

    widths = []
    for _ in range(60):
        rate, sigma, count, delta = between(1e-5, 1), between(0.4, 10), int(between(1, 1e6)), between(1e-12, 1e-4)
        low, high = (curves.gaussian(sigma=sigma).sampled(rate=rate) ** count).epsilon_bounds(delta=delta)
        widths.append((high - low) / high if high > 0 else 0.0)
    assert max(widths) < 1e-3
    assert np.mean(np.array(widths) <= 1e-4) >= 0.9


LAW = SampledAgainstWithout(GaussianLaw(1.5), 1e-3)
CUT = 0.05


def split(epsilon: float, count: int = 200) -> jump_split.JumpSplit:
    found = jump_split.JumpSplit(LAW, count, CUT, 1e-6, lambda factors: Product(factors, factors))
    found.refine(epsilon, 1e-6, 0.2)
    return found


def test_the_terms_of_a_split_add_up_to_the_profile() -> None:
    """Beside the lattice of the whole product, a route that knows nothing of jumps."""
    whole = curves.gaussian(sigma=1 / 1.5).sampled(rate=1e-3) ** 200
    for epsilon in (0.1, 0.5):
        at, parts = np.array([epsilon]), split(epsilon)
        low, high = whole.forward.delta_bounds(epsilon=epsilon)
        other_low, other_high = whole.backward.delta_bounds(epsilon=epsilon)
        ours = float(parts.lower(at)[0]), float(parts.upper(at)[0])
        assert ours[0] <= max(high, other_high)
        assert ours[1] >= max(low, other_low)
        assert ours[1] - ours[0] <= 1e-3 * ours[1]


def test_the_chance_of_more_jumps_than_have_a_term_is_added() -> None:
    """Far below 0 every term counts in full: all terms and the rest add up to 1, or a little more."""
    for delta in (1e-6, 1e3, 1e5):
        found = jump_split.JumpSplit(LAW, 200, CUT, delta, lambda factors: Product(factors, factors))
        assert 1 <= float(found.upper(np.array([-5.0]))[0]) * (1 + 1e-9) < 1.1
    assert jump_split._more_than(3, 1, 0.1) >= 3 * 0.1**2 * 0.9 + 0.1**3


def test_a_split_with_a_wrong_shift_contradicts_the_lattice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A negative control: the test above can fail."""
    whole = curves.gaussian(sigma=1 / 1.5).sampled(rate=1e-3) ** 200
    low = max(each.delta_bounds(epsilon=0.2)[0] for each in (whole.forward, whole.backward))
    monkeypatch.setattr(jump_split, "shift_above", lambda law, cut: shift_above(law, cut) + 0.05)
    assert float(split(0.2).upper(np.array([0.2]))[0]) < low


def test_both_conditional_laws_mix_to_the_law() -> None:
    """P(L > l) = F above + (1 - F) below, and the same for Q, at 1e-12 of the larger."""
    above, below, beyond = AboveCut(LAW, CUT), BelowCut(LAW, CUT), masses_beyond(LAW, CUT)
    losses = np.array([-9e-4, -5e-4, 0.0, 1e-3, 5e-3, 0.049, 0.051, 0.1, 0.3])
    whole = LAW.tails(losses)
    rare, usual = (law.tails(losses + shift(LAW, CUT)) for law, shift in ((above, shift_above), (below, shift_below)))
    mixed = beyond.above * rare.first + (1 - beyond.above) * usual.first
    assert mixed == pytest.approx(whole.first, rel=1e-12)
    # In the units of the whole law, e^l Q is F e^-t (rare) + (1-F) e^-s (usual) in those of the conditional ones.
    scaled = beyond.above * rare.second * math.exp(-shift_above(LAW, CUT) + shift_above(LAW, CUT))
    scaled = scaled + (1 - beyond.above) * usual.second
    inside = losses < CUT
    full = beyond.second * np.exp(losses - CUT)  # e^l Q(L > c): what the rare law adds below the cut
    assert np.where(inside, full + (1 - beyond.above) * usual.second, scaled) == pytest.approx(whole.second, rel=1e-11)


def precise(rate: float, mu: float, loss: float) -> tuple[mp.mpf, mp.mpf]:
    """P(L > l) and P(L > l) - e^l Q(L > l) of a sampled Gaussian at 50 digits."""
    q, m, at = mp.mpf(rate), mp.mpf(mu), mp.mpf(loss)
    inner = mp.log((mp.e**at - (1 - q)) / q)  # the base loss
    x = inner / m + m / 2  # the outcome, under N(0, 1) without and N(m, 1) with the person
    without, with_them = mp.erfc(x / mp.sqrt(2)) / 2, mp.erfc((x - m) / mp.sqrt(2)) / 2
    first = (1 - q) * without + q * with_them
    return first, first - mp.e**at * without


@pytest.mark.parametrize("rate", [1e-2, 1e-5, 1e-9])
@pytest.mark.parametrize("mu", [0.1, 1.0, 2.0])
def test_gaps_of_rare_samples_do_not_cancel(rate: float, mu: float) -> None:
    """Against mpmath at 50 digits: the error is within the stated one, which is small beside the rate."""
    law = SampledAgainstWithout(GaussianLaw(mu), rate)
    losses = rate * np.array([-0.9, -0.5, -0.1, 0.0, 0.3, 2.0, 10.0])
    gaps, errors = law.gaps(losses)
    with mp.workdps(50):
        for loss, gap, error in zip(losses.tolist(), gaps.tolist(), errors.tolist(), strict=True):
            assert abs(mp.mpf(gap) - precise(rate, mu, loss)[1]) <= error
            assert error <= 1e-12 * rate


@pytest.mark.parametrize("rate", [1e-2, 1e-6])
def test_gaps_of_the_other_direction_do_not_cancel(rate: float) -> None:
    """Q(S) - e^l ((1-q) Q(S) + q P(S)) with S = {L' < -l}, from the same numbers at 50 digits."""
    law = WithoutAgainstSampled(GaussianLaw(1.0), rate)
    losses = rate * np.array([-2.0, -0.5, 0.0, 0.3, 0.9])
    gaps, errors = law.gaps(losses)
    with mp.workdps(50):
        q = mp.mpf(rate)
        for loss, gap, error in zip(losses.tolist(), gaps.tolist(), errors.tolist(), strict=True):
            at = mp.mpf(loss)
            inner = mp.log((mp.e**-at - (1 - q)) / q)
            x = inner + mp.mpf(1) / 2
            without, with_them = mp.erfc(-x / mp.sqrt(2)) / 2, mp.erfc((1 - x) / mp.sqrt(2)) / 2
            truth = without - mp.e**at * ((1 - q) * without + q * with_them)
            assert abs(mp.mpf(gap) - truth) <= error + mp.mpf(10) ** -40
            assert error <= 1e-11 * rate


@pytest.mark.parametrize("step", [1e-2, 1e-3, 1e-4, 1e-6, 1e-7])
def test_a_lattice_below_a_spike_is_below_it_and_near(step: float) -> None:
    """The mean loss is short of the true one by less than step², also where the spike is far narrower than a step."""
    law = SampledAgainstWithout(GaussianLaw(1 / 0.73), 1.5e-5)
    low, high = lattice.reach(law, 1e-12)
    spike = lattice.spike(law, low, step)
    assert spike is not None
    points = spike.loss + step * np.arange(-1, min(int(high / step), 400_000) + 2)
    grid = lattice.below(law, points, spike)
    with mp.workdps(30):
        survival = np.append(grid.masses[::-1].cumsum()[::-1][1:], 0.0)
        values = np.cumsum((survival * -math.expm1(-step) * np.exp(-points))[::-1])[::-1] * np.exp(points)
        for place in (0, 1, 2, 5, 20):
            if place < len(points) and points[place] > math.log1p(-1.5e-5):
                assert values[place] <= float(precise(1.5e-5, 1 / 0.73, float(points[place]))[1]) * (1 + 1e-12) + 1e-18
    above = lattice.above(law, points)
    assert float(np.sum((above.masses - grid.masses) * points)) <= step**2
    assert grid.masses.min() >= 0


def test_masses_beyond_a_cut_are_those_of_the_tails() -> None:
    first, second, _ = (float(np.asarray(each).ravel()[0]) for each in LAW.tails(np.array([CUT])))
    assert conditioned_laws.masses_beyond(LAW, CUT)[:2] == (first, second)
    assert shift_above(LAW, CUT) == pytest.approx(math.log(second * math.exp(-CUT) / first))
    assert shift_below(LAW, CUT) == pytest.approx(math.log((1 - second * math.exp(-CUT)) / (1 - first)))
