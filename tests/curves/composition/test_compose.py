"""The ledger of a composition, line by line: noise, aliasing, what lies left and right of the window, and the tilt.

The reference composes the very lattice laws that the panel was made from: with whole numbers (no rounding at all), or
with an FFT in extended precision where the window is long. Number 6 of the ten convincing tests is here, with the controls in which one
line of the ledger is struck out.
"""

from __future__ import annotations

import dataclasses
import inspect
import math

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import fft

from deniable import curves
from deniable.curves.composition import compose, law_product, tilt_plan
from deniable.curves.composition.delta_panel import DeltaPanel
from deniable.curves.composition.tilt_plan import Factor
from deniable.curves.laws.closed_form import GaussianLaw, LaplaceLaw
from deniable.curves.laws.derived_laws import SampledAgainstWithout, WithoutAgainstSampled
from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.laws.law import Law
from deniable.curves.meaning.curve_readings import product_of
from tests.curves import exact

SIDES = ("upper", "lower")
TAIL = 1e-40


@pytest.fixture(autouse=True)
def _digits() -> object:
    # The public doors read quietly; these tests look behind them.
    with mp.workdps(40), np.errstate(all="ignore"):
        yield


def finite(losses: list[float], masses: list[float]) -> FiniteLaw:
    return FiniteLaw(np.array(losses), np.array(masses))


LEAKY = FiniteLaw(np.array([-1.0, 1.0]), np.array([0.3, 0.6]), 0.1)
SPIKES = finite([-3.0, 0.5, 2.0], [0.1, 0.5, 0.4]), finite([-2.25, 0.75, 1.5], [0.2, 0.5, 0.3])


def panels(
    factors: list[Factor], theta: float, step: float, tail: float = TAIL, **more: float
) -> dict[str, DeltaPanel]:
    found = {side: compose.compose(factors, side, theta, step, tail, **more) for side in SIDES}
    assert all(panel is not None for panel in found.values())
    return found  # type: ignore[return-value]


def at(panel: DeltaPanel, epsilon: float) -> float:
    return float(panel.delta(np.array([epsilon]))[0])


# -- whole numbers ---------------------------------------------------------------------------------------------------

BITS = 700


class ExactProduct:
    """The composition of lattice laws with whole numbers: masses in units of 2^-700."""

    def __init__(self, factors: list[Factor], side: str, step: float, tail: float = TAIL) -> None:
        masses, start = np.array([1 << BITS], dtype=object), mpf(0)
        alive = mpf(1)
        for law, uses in factors:
            grid = compose.lattice_law(law, side, step, tail)
            one = np.array([int(mpf(float(m)) * mpf(2) ** BITS) for m in grid.masses], dtype=object)
            for _ in range(uses):
                masses = np.convolve(masses, one) >> BITS
            start += uses * mpf(float(grid.losses[0]))
            alive *= (1 - mpf(float(grid.infinity))) ** uses
        self.start, self.step = start, mpf(step)
        self.infinity = 1 - alive
        heads, seconds = [mpf(0)], [mpf(0)]
        for index in range(len(masses) - 1, -1, -1):
            mass = mpf(int(masses[index])) / mpf(2) ** BITS
            heads.append(heads[-1] + mass)
            seconds.append(seconds[-1] + mass * mpmath.exp(-(start + index * self.step)))
        self.heads, self.seconds = heads[::-1], seconds[::-1]

    def delta(self, epsilon: float) -> mpf:
        index = int(mpmath.floor((mpf(epsilon) - self.start) / self.step)) + 1
        index = min(max(index, 0), len(self.heads) - 1)
        return self.heads[index] - mpmath.exp(mpf(epsilon)) * self.seconds[index] + self.infinity


SMALL: list[tuple[str, list[Factor], float]] = [
    ("gaussian", [Factor(GaussianLaw(1.0), 3)], 0.25),
    ("laplace", [Factor(LaplaceLaw(1.0), 4), Factor(LaplaceLaw(1.5), 2)], 0.1),
    ("sampled", [Factor(SampledAgainstWithout(GaussianLaw(1.0), 0.1), 6)], 0.15),
    ("backward", [Factor(WithoutAgainstSampled(GaussianLaw(1.0), 0.1), 5)], 0.05),
    ("spikes", [Factor(SPIKES[0], 2), Factor(SPIKES[1], 2)], 0.125),
    ("infinite", [Factor(LEAKY, 3), Factor(LaplaceLaw(1.0), 1)], 0.1),
]


def everywhere(panel: DeltaPanel) -> list[float]:
    """ε left of the window, in it (on lattice points and off them), and right of it."""
    end = panel.start + panel.stride * (len(panel.heads) - 1)
    inside = np.concatenate((np.linspace(panel.start, end, 23), panel.centre + panel.stride * np.arange(-3, 4)))
    inside = np.concatenate((inside, panel.start + panel.stride * np.array([0.0, 1.0, 5.0, 9.5])))
    left, right = [panel.start - 30.0, panel.start - 1.0, panel.start - 1e-9], [end + 1e-9, end + 1.0, end + 9.0]
    return [*left, *inside.tolist(), *right]


@pytest.mark.slow
@pytest.mark.parametrize("theta", [0.0, 0.5, 3.0])
@pytest.mark.parametrize(("name", "factors", "step"), SMALL, ids=[case[0] for case in SMALL])
def test_panels_enclose_the_exact_composition_of_their_lattice_laws(
    name: str, factors: list[Factor], step: float, theta: float
) -> None:
    for side, panel in panels(factors, theta, step).items():
        truth = ExactProduct(factors, side, step)
        for e in everywhere(panel):
            bound, value = at(panel, e), truth.delta(e)
            assert bound >= value - mpf("1e-290") if side == "upper" else bound <= value, (name, side, e, bound, value)


def test_panels_are_sharp_at_their_centre() -> None:
    for _, factors, step in SMALL[:3]:
        for side, panel in panels(factors, 0.5, step).items():
            value = ExactProduct(factors, side, step).delta(panel.centre)
            assert at(panel, panel.centre) == pytest.approx(float(value), rel=1e-4)


def test_negative_control_striking_out_the_noise_and_aliasing_is_noticed() -> None:
    missed = 0
    for _, factors, step in SMALL[:2]:
        truth = ExactProduct(factors, "lower", step)
        for theta in (0.0, 0.5, 3.0):
            panel = dataclasses.replace(panels(factors, theta, step)["lower"], noise=0.0, alias=0.0, relative=0.0)
            missed += sum(at(panel, e) > truth.delta(e) for e in everywhere(panel))
    assert missed > 0


# -- test 6: the tilt changes nothing, aliasing is detected ----------------------------------------------------------


@pytest.mark.parametrize("uses", [2, 30, 1000])
def test_fact_d6_tilts_steps_and_tails_agree(uses: int) -> None:
    """Every choice gives a bracket around the same truth, so the best lower bound stays below the best upper bound."""
    mu = 2.0 / math.sqrt(uses)
    factors = [Factor(GaussianLaw(mu), uses)]
    for e in (1.0, 4.0, 9.0):
        truth = exact.gauss_delta(e, mpf(mu) * mpmath.sqrt(uses))
        for theta in (0.0, 0.3, 1.0, 3.0):
            for step, tail in ((mu / 6, 1e-30), (mu / 17, 1e-50), (mu / 6.5, 1e-12)):
                read = {side: at(panel, e) for side, panel in panels(factors, theta, step, tail).items()}
                assert read["lower"] <= truth <= read["upper"], (theta, step, tail)


def test_fact_d6_tilts_agree_where_no_closed_form_is_known() -> None:
    factors = [Factor(SampledAgainstWithout(GaussianLaw(1.2), 0.05), 200), Factor(LaplaceLaw(0.3), 20)]
    for e in (0.5, 2.0, 5.0):
        lows, highs = [], []
        for theta in (0.0, 0.5, 2.0, 5.0):
            for step in (0.02, 0.031, 0.0087):
                for tail in (1e-20, 1e-40):
                    read = {side: at(panel, e) for side, panel in panels(factors, theta, step, tail).items()}
                    lows.append(read["lower"])
                    highs.append(read["upper"])
        assert max(lows) <= min(highs)


def small_window(factors: list[Factor], theta: float, step: float, outside: float) -> dict[str, DeltaPanel]:
    """Panels whose window leaves much mass outside on purpose."""
    assert "outside" in inspect.signature(compose.compose).parameters
    return panels(factors, theta, step, outside=outside)


ALIASED = [Factor(SampledAgainstWithout(GaussianLaw(1.0), 0.2), 40)]


def test_fact_d6_injected_aliasing_stays_inside_the_ledger() -> None:
    """A window that leaves a tenth of the mass outside: wide brackets, but true ones."""
    for theta in (0.0, 0.7, 2.0):
        tight = panels(ALIASED, theta, 0.01)
        for outside in (0.3, 0.1, 0.01):
            loose = small_window(ALIASED, theta, 0.01, outside)
            for e in everywhere(loose["upper"]):
                if e >= 0:
                    assert at(loose["upper"], e) >= at(tight["lower"], e), (theta, outside, e)
                    assert at(loose["lower"], e) <= at(tight["upper"], e), (theta, outside, e)


def test_negative_control_without_its_lines_of_the_ledger_aliasing_goes_unnoticed() -> None:
    """Striking out alias (lower), right_out and left_out (upper) breaks containment, each by itself."""
    broken = {"alias": 0, "right_out": 0, "left_out": 0}
    for theta in (0.0, 0.7, 2.0):
        tight = panels(ALIASED, theta, 0.01)
        loose = small_window(ALIASED, theta, 0.01, 0.3)
        for line in broken:
            side = "lower" if line == "alias" else "upper"
            panel = dataclasses.replace(loose[side], **{line: 0.0})
            for e in everywhere(panel):
                if side == "lower":
                    broken[line] += at(panel, e) > at(tight["upper"], e)
                else:
                    broken[line] += at(panel, e) < at(tight["lower"], e)
    assert all(broken.values()), broken


def test_tilted_mass_outside_the_window_is_at_most_what_the_ledger_says() -> None:
    """The Chernoff bound against the tilted composition itself, by whole numbers."""
    for _, factors, step in SMALL:
        grids = [(compose.lattice_law(f.law, "upper", step, TAIL), f.uses) for f in factors]
        for theta in (0.0, 1.0):
            panel = small_window(factors, theta, step, 0.05)["upper"]
            weights, start = np.ones(1), 0.0
            for grid, uses in grids:
                one = tilt_plan.tilted(grid, theta)[0]
                for _ in range(uses):
                    weights = np.convolve(weights, one)
                start += uses * float(grid.losses[0])
            loss = start + step * np.arange(len(weights))
            end = panel.start + panel.stride * (len(panel.heads) - 1)
            assert float(np.sum(weights[loss < panel.start - step / 2])) <= panel.left_out
            assert float(np.sum(weights[loss > end - step / 2])) <= panel.alias - panel.left_out


# -- round-off -------------------------------------------------------------------------------------------------------


def noise_used(factors: list[Factor], side: str, theta: float, step: float) -> float:
    """The error of a panel's suffix sums in units of what the ledger grants, by an FFT in extended precision."""
    panel = compose.compose(factors, side, theta, step, TAIL)
    assert panel is not None
    points = len(panel.heads) - 1
    length = round(points * panel.stride / step)
    spectrum, base = np.ones(length // 2 + 1, dtype=np.clongdouble), 0.0
    for law, uses in factors:
        grid = compose.lattice_law(law, side, step, TAIL)
        base += uses * float(grid.losses[0])
        weights = tilt_plan.tilted(grid, theta)[0].astype(np.longdouble)
        padded = np.zeros(-(-len(weights) // length) * length, dtype=np.longdouble)
        padded[: len(weights)] = weights / weights.sum()
        one, uses_left = fft.rfft(padded.reshape(-1, length).sum(axis=0)), uses
        while uses_left:
            spectrum = spectrum * one if uses_left & 1 else spectrum
            one, uses_left = one * one, uses_left >> 1
    first = round((panel.start - base) / step)
    y = np.roll(fft.irfft(spectrum, length), -(first % length))
    loss = np.longdouble(panel.start) - np.longdouble(panel.centre) + np.longdouble(step) * np.arange(length)
    used = 0.0
    for rate, found in ((theta, panel.heads), (theta + 1, panel.seconds)):
        truth = np.cumsum((y * np.exp(-rate * loss))[::-1])[::-1][:: length // points]
        granted = panel.noise * np.exp(-rate * loss[:: length // points])
        # Sums and exponentials have a line of their own: 4 (n + 64) roundings of the sum.
        rounding = 4 * (points + 64) * 2.0**-53 * np.abs(truth)
        used = max(used, float(np.max(np.abs(found[:-1] - truth) / (granted + rounding))))
    return used


NOISY: list[tuple[str, list[Factor], float, float]] = [
    ("spikes", [Factor(SPIKES[0], 1), Factor(SPIKES[1], 1)], 0.0, 2.0**-8),
    ("spikes fine", [Factor(SPIKES[0], 1), Factor(SPIKES[1], 1)], 0.0, 2.0**-13),
    ("spikes tilted", [Factor(SPIKES[0], 1), Factor(SPIKES[1], 1)], 2.0, 2.0**-13),
    ("laplace", [Factor(LaplaceLaw(1.0), 1), Factor(LaplaceLaw(1.5), 1)], 1.0, 2.0**-14),
    ("laplace many", [Factor(LaplaceLaw(1.0), 20), Factor(LaplaceLaw(1.5), 3)], 1.0, 2.0**-10),
    ("sampled", [Factor(SampledAgainstWithout(GaussianLaw(1.0), 0.01), 1000)], 3.0, 1e-3),
    ("sampled 1e6", [Factor(SampledAgainstWithout(GaussianLaw(1.0), 0.01), 10**6)], 2.0, 1e-3),
    ("gaussian", [Factor(GaussianLaw(0.01), 10**5)], 2.0, 1e-3),
    ("many", [Factor(LaplaceLaw(0.001 + i / 100070), 1) for i in range(200)], 2.0, 1e-5),
    ("many and a few", [Factor(LaplaceLaw(0.001 + i / 99700), 1 + i // 60) for i in range(90)], 3.0, 1e-5),
]


def test_many_short_laws_are_multiplied_in_batches() -> None:
    factors = next(case[1] for case in NOISY if case[0] == "many")
    grids = [(compose.lattice_law(f.law, "upper", 1e-5, TAIL), f.uses) for f in factors]
    assert len(compose._spectra(factors, grids, "upper", 1e-5, TAIL, 2.0, 2**16)) < len(factors) / 4


@pytest.mark.slow
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("name", "factors", "theta", "step"), NOISY, ids=[case[0] for case in NOISY])
def test_round_off_stays_below_the_noise_in_the_ledger(
    name: str, factors: list[Factor], theta: float, step: float, side: str
) -> None:
    assert noise_used(factors, side, theta, step) <= 1.0


@pytest.mark.parametrize("length", [32, 4096, 2**17])
@pytest.mark.parametrize("theta", [0.0, 3.0])
def test_every_frequency_is_as_exact_as_the_ledger_says(length: int, theta: float) -> None:
    """η = 8 u log₂N for each value of a spectrum of weights that sum to 1, wrapped or not, in extended precision."""
    law = LaplaceLaw(1.0)
    weights = tilt_plan.tilted(compose.lattice_law(law, "upper", 2.0**-10, TAIL), theta)[0].astype(np.longdouble)
    padded = np.zeros(-(-len(weights) // length) * length, dtype=np.longdouble)
    padded[: len(weights)] = weights
    truth = fft.rfft(padded.reshape(-1, length).sum(axis=0))
    found = compose._wrapped_spectrum(compose.lattice_law(law, "upper", 2.0**-10, TAIL), theta, length)
    granted = compose.FFT_CONSTANT * 2.0**-53 * math.log2(length)
    assert np.max(np.abs(found - truth)) <= granted


@pytest.mark.parametrize("count", [2, 3, 1000, 10**6])
def test_pointwise_powers(count: int) -> None:
    """Relative error of eight roundings for each use, against powers at 40 digits."""
    rng = np.random.default_rng(2)
    base = np.exp(-rng.uniform(0, 30 / count, size=60)) * np.exp(1j * rng.uniform(0, 6, size=60))
    found = compose.power(base, count)
    for value, start in zip(found, base, strict=False):
        truth = mpmath.mpc(start.real, start.imag) ** count
        assert abs(mpmath.mpc(value.real, value.imag) - truth) <= 8 * count * mpf(2) ** -53 * abs(truth)


def test_frequencies_are_dropped_only_where_the_power_is_negligible() -> None:
    base = np.array([1.0, 0.999, 0.9, 0.5, 0.0], dtype=complex)
    for count in (2, 100, 10**4):
        kept = compose.power(base, count)
        assert all(abs(b) ** count < 1e-39 for b in base[len(kept) :])


# -- far from the centre ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theta", [0.0, 0.02, 0.2])
def test_panels_wider_than_the_range_of_the_exponential(theta: float) -> None:
    """Losses spread over thousands: e^(ε - centre) overflows inside the window, and bounds must stay true there."""
    mu = 200.0
    factors = [Factor(GaussianLaw(0.8 * mu), 1), Factor(GaussianLaw(0.6 * mu), 1)]
    read = panels(factors, theta, 0.5)
    for z in np.linspace(-6, 9, 16):
        e = mu * mu / 2 + mu * float(z)
        truth = exact.gauss_delta(e, mu)
        assert at(read["upper"], e) >= truth, (z, "upper")
        assert at(read["lower"], e) <= truth, (z, "lower")


def test_very_wide_products_are_enclosed() -> None:
    mu = 200.0
    factors = (Factor(GaussianLaw(0.8 * mu), 1), Factor(GaussianLaw(0.6 * mu), 1))
    product = law_product.Product(factors, factors)
    epsilon = mu * mu / 2 + mu * np.array([-4.0, 4.0, 8.0])
    low, high = product.delta(epsilon, "lower"), product.delta(epsilon, "upper")
    for e, a, b in zip(epsilon.tolist(), low, high, strict=True):
        assert a <= exact.gauss_delta(e, mu) <= b, e


EXTREME: list[tuple[str, list[Factor], float]] = [
    ("sampled", [Factor(SampledAgainstWithout(GaussianLaw(1.0), 0.01), 11)], 60.0),
    ("laplace", [Factor(LaplaceLaw(1.0), 3), Factor(LaplaceLaw(2.0), 1)], 4.999),
    ("gaussian", [Factor(GaussianLaw(1.0), 4)], 80.0),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "factors", "aim"), EXTREME, ids=[case[0] for case in EXTREME])
def test_a_panel_aimed_at_a_far_epsilon_claims_nothing_false_near_zero(
    name: str, factors: list[Factor], aim: float
) -> None:
    """Weights e^(-θ(l - centre)) that leave the range of floats must give a useless bound, not a small one."""
    near = law_product.Product(tuple(factors), tuple(factors))
    epsilon = np.array([0.01, 0.1, 0.5, 1.0])
    truth = near.delta(epsilon, "lower")
    far = law_product.Product(tuple(factors), tuple(factors))
    target = far.plan.at_epsilon(aim)
    for panel in far.panels_for(target, ("upper",)):
        assert np.all(panel.delta(epsilon) >= truth), (panel.theta, panel.log_scale)


@pytest.mark.slow  # test_extremes reads near and far together, of curves that take less
def test_reading_many_epsilons_at_once_is_as_safe_as_one_by_one() -> None:
    curve = curves.gaussian(sigma=1).sampled(rate=0.01) ** 11
    alone = np.array([(curve**1).delta_bounds(epsilon=e)[0] for e in (0.1, 1.0)])
    other = curves.gaussian(sigma=1).sampled(rate=0.01 * (1 - 1e-13)) ** 11
    together = other.delta(epsilon=np.array([0.1, 1.0, 60.0]))
    assert np.all(together[:2] >= alone * (1 - 1e-9))
    # What a far question leaves behind must not spoil the near ones that follow.
    assert other.delta(epsilon=1.0) >= alone[1] * (1 - 1e-9)


@pytest.mark.slow  # so does test_extremes
def test_far_epsilons_raise_no_warnings() -> None:
    curve = curves.gaussian(sigma=1).sampled(rate=0.01) ** 10
    values = curve.delta(epsilon=np.array([0.1, 300.0]))
    assert np.all(np.isfinite(values))
    assert np.all(np.diff(values) <= 0)


# -- the plan --------------------------------------------------------------------------------------------------------


def laws_with_truth() -> list[tuple[Law, int]]:
    return [(GaussianLaw(1.0), 1), (GaussianLaw(0.1), 100), (GaussianLaw(1e-3), 10**6), (GaussianLaw(5.0), 2)]


@pytest.mark.parametrize(("law", "uses"), laws_with_truth(), ids=repr)
def test_the_chernoff_bound_of_a_plan_is_an_upper_bound(law: GaussianLaw, uses: int) -> None:
    plan = tilt_plan.LatticePlan([Factor(law, uses)])
    for delta in (0.1, 1e-5, 1e-30, 1e-60, 1e-75, 1e-100, 1e-200):
        target = plan.at_delta(delta)
        if math.isfinite(target.bound):
            assert exact.gauss_delta(target.bound, mpf(law.mu) * mpmath.sqrt(uses)) <= mpf(delta), delta
        assert math.isfinite(target.bound) or delta < 1e-60


def test_the_chernoff_bound_counts_what_the_sketch_calls_infinite() -> None:
    """If a sketch ends below some mass, that mass is infinite loss for it and must be part of δ."""
    law = SampledAgainstWithout(LaplaceLaw(4.0), 0.1)
    plan = tilt_plan.LatticePlan([Factor(law, 1)])
    for delta in (1e-3, 1e-6):
        epsilon = min(plan.at_delta(delta).bound, 50.0)
        assert exact.delta(law, epsilon) <= mpf(delta)


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.25, 0.125])
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
def test_sampled_laplace_products_keep_the_atom_at_the_largest_loss(scale: float, rate: float) -> None:
    """P(all ten losses are the largest) alone gives δ(ε) >= p^10 (1 - e^(ε - top)) - what epsilon() must respect."""
    curve = curves.laplace(scale=scale).sampled(rate=rate) ** 10
    t = 1 / scale
    top = math.log1p(rate * math.expm1(t))
    p = (1 - rate) * math.exp(-t) / 2 + rate / 2
    for share in (0.5, 0.9):
        e = top * 10 * share
        assert curve.delta(epsilon=e) >= p**10 * -math.expm1(e - 10 * top) * (1 - 1e-9)
    delta = p**10 * -math.expm1(-0.5) * 0.999
    low, high = curve.epsilon_bounds(delta=delta)
    assert high >= 10 * top - 0.5
    assert low <= high
    assert curve.delta_bounds(epsilon=0.05)[1] < 0.9999 or 10 * top > 30


def test_regression_underflowed_masses_do_not_shrink_the_plan() -> None:
    """poisson(10, 12)**50 is poisson(500, 600): the same rates, added."""
    many = curves.poisson(low=10, high=12, tied=True) ** 50
    one = curves.poisson(low=500, high=600, tied=True)
    for delta in (1e-3, 1e-6, 1e-12, 1e-20):
        low, high = many.epsilon_bounds(delta=delta)
        assert exact.poisson_delta(500, 600, high) <= mpf(delta)
        worst = max(exact.poisson_delta(500, 600, low), exact.poisson_delta(500, 600, low, forward=False))
        assert worst >= mpf(delta)
        assert (high - low) / high <= 2e-4
        again = one.epsilon_bounds(delta=delta)
        assert max(low, again[0]) <= min(high, again[1])


def test_products_that_share_a_mass_at_infinity_and_a_delta_just_above_it() -> None:
    """What is left of δ after infinite loss may be a millionth of a billionth of it: that is what counts."""
    promise = curves.approximate(epsilon=1.0, delta=1e-5) * curves.laplace(scale=3) * curves.gaussian(sigma=3)
    without = curves.pure(epsilon=1.0) * curves.laplace(scale=3) * curves.gaussian(sigma=3)
    infinity = product_of(promise)[0].infinity("upper")
    for share in (1e-6, 1e-9, 1e-11, 1e-13):
        delta = infinity * (1 + share)
        left = delta - infinity
        # The finite part is (1 - 1e-5) times that of the pure promise, so ε is at least that of a slightly larger δ.
        assert promise.epsilon(delta=delta) >= without.epsilon_bounds(delta=left * 1.01 + 4e-16 * delta)[0] * (1 - 1e-6)


def test_deltas_below_the_mass_at_infinity_have_no_epsilon() -> None:
    curve = curves.approximate(epsilon=1, delta=1e-6) * curves.laplace(scale=3)
    assert curve.epsilon(delta=1e-9) == math.inf
    assert curve.epsilon_bounds(delta=1e-9) == (math.inf, math.inf)


def test_a_lower_law_without_a_sure_digit_has_no_mass() -> None:
    """The masses of an allocation of 10^7 steps of a sampled Gaussian have an error of 700 %. Below, they were negative,
    and two such allocations raised a math domain error.
    """
    law = FiniteLaw(np.array([-1.0, 1.0]), np.array([0.3, 0.6]), 0.1, 7.0)
    grid = compose._floored(law, 0.5)
    assert not np.any(grid.masses)
    assert grid.infinity == 0.0
