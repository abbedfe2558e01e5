"""Contour integrals: the moments against mpmath, the bounds on decay, and brackets against values of 40 digits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp, mpc, mpf

from deniable import curves
from deniable.curves.composition import contour_moments, contour_panel
from deniable.curves.composition.contour_decay import Layers
from deniable.curves.composition.contour_moments import SampledMoment, moment_of
from deniable.curves.composition.law_product import Product
from deniable.curves.composition.tilt_plan import Factor
from deniable.curves.laws.closed_form import GaussianLaw, LaplaceLaw
from deniable.curves.laws.derived_laws import SampledAgainstWithout, WithoutAgainstSampled
from deniable.curves.laws.law import Law
from deniable.curves.outward_rounding import UNIT_ROUNDOFF

LAWS: list[tuple[Law, int, float]] = [
    # a law, its uses, and a tilt; the third and the fifth need a smooth cut
    (SampledAgainstWithout(GaussianLaw(1.0), 0.01), 10_000, 1.0),
    (WithoutAgainstSampled(GaussianLaw(1.0), 0.01), 10_000, 3.0),
    (SampledAgainstWithout(GaussianLaw(1.0), 1e-5), 10**7, 150.0),
    (SampledAgainstWithout(GaussianLaw(0.01), 0.3), 10**12, 1e-4),
    (SampledAgainstWithout(GaussianLaw(2.5), 1e-4), 1000, 6.0),
    (WithoutAgainstSampled(GaussianLaw(3.0), 0.9), 50, 2.0),
]

FEW_SAMPLES: tuple[Law, int, float] = (SampledAgainstWithout(GaussianLaw(30.0), 0.2), 10**6, 1e-4)
"""The loss is near 0, or several hundred: two clusters."""


def exact_moment(moment: SampledMoment, c: float, frequency: float) -> mpc:
    """∫ φ κ e^(pw) over the range of the moment, by mpmath's own quadrature at 40 digits."""
    mu, rate = mpf(moment.mu), mpf(moment.rate)
    power = mpc(c + 1, frequency) if moment.forward else mpc(-c, -frequency)

    def integrand(z: mpf) -> mpc:
        kept = mpf(1) if math.isinf(moment.cut) else mp.ncdf((mpf(moment.cut) - z) / mpf(moment.edge))
        return mp.npdf(z) * kept * (1 - rate + rate * mp.exp(mu * z - mu * mu / 2)) ** power

    ends = np.linspace(moment.low, moment.high, 41)
    return mp.quad(integrand, [mpf(float(end)) for end in ends], maxdegree=5)


@pytest.mark.slow
@pytest.mark.parametrize("case", LAWS, ids=str)
def test_moments_are_as_exact_as_they_say(case: tuple[Law, int, float]) -> None:
    law, uses, c = case
    moment = moment_of(law, uses, 1e-14, c)
    assert isinstance(moment, SampledMoment)
    spread = math.sqrt(abs(float(moment.line(c, np.zeros(1)).values[0].real)) / c**2) + 1e-300
    frequencies = np.array([0.0, 0.3 / spread / math.sqrt(uses), 5 / spread / math.sqrt(uses)])
    lines = [moment.line(c, np.array([0.0, frequency])) for frequency in frequencies]
    values, errors = (np.array([line[index][1] for line in lines]) for index in (0, 1))
    with mp.workdps(40):
        for frequency, value, error in zip(frequencies, values, errors, strict=True):
            exact = mp.log(exact_moment(moment, c, float(frequency)))
            assert abs(mpc(value) - exact) <= error
            assert error * uses < 1e-4  # the bound is of use


def test_errors_of_moments_count_for_every_use() -> None:
    law = SampledAgainstWithout(GaussianLaw(1.0), 0.01)
    product = contour_panel._Moments((Factor(law, 1000), Factor(LaplaceLaw(0.2), 50)), 1e-6, 1.0)
    frequencies = np.array([0.0, 0.5])
    each = [(moment.line(1.0, frequencies), uses) for moment, uses in product.moments]
    found = product.line(1.0, frequencies)
    assert found.values == pytest.approx(sum(uses * one.values for one, uses in each))
    assert np.all(found.errors >= sum(uses * one.errors for one, uses in each))
    assert product.lost >= sum(uses * moment.lost for moment, uses in product.moments) > 0


@pytest.mark.parametrize("is_forward", [True, False])
@pytest.mark.parametrize(("mu", "rate", "tilt"), [(1.0, 0.3, 0.5), (2.5, 0.01, 6.0), (3.0, 0.3, 3.0)])
def test_the_moment_at_zero_is_the_mass_that_is_kept(mu: float, rate: float, tilt: float, is_forward: bool) -> None:
    """M(0) is the P-mass of the kept outcomes, and what it lacks to 1 is added to δ. So much is left out here that it
    shows.
    """
    base = GaussianLaw(mu)
    law = SampledAgainstWithout(base, rate) if is_forward else WithoutAgainstSampled(base, rate)
    moment = moment_of(law, 10, 1e-3, tilt)
    assert moment is not None
    kept = math.exp(float(moment.line(0.0, np.zeros(1)).values[0].real))
    assert 1 - kept == pytest.approx(moment.lost, rel=0.02)
    assert moment.lost > 1e-6


@pytest.mark.parametrize("case", [*LAWS, FEW_SAMPLES], ids=str)
def test_moments_decay_at_least_as_fast_as_proved(case: tuple[Law, int, float]) -> None:
    law, uses, c = case
    moment = moment_of(law, uses, 1e-14, c)
    assert moment is not None
    decay = moment.decay(c)
    at_c = float(moment.line(c, np.zeros(1)).values[0].real)
    proved = 0.0
    # The bound of two clusters comes nearest to the truth at the last frequency where it holds.
    ends = [bump.until * (1 - 1e-9) for bump in decay.bumps if bump.until < 300]
    for frequency in sorted([*np.geomspace(1e-6, 300.0, 60).tolist(), *ends]):
        found = moment.line(c, np.array([0.0, frequency]))
        if not found.errors[1] < 1e-6:
            break
        assert float(found.values[1].real) - at_c <= -decay.exponent(frequency) + float(found.errors[1]) + 1e-9
        proved = max(proved, decay.exponent(frequency))
    assert proved > 0


BEYOND_CUTS: list[tuple[Law, int, float]] = [
    (SampledAgainstWithout(GaussianLaw(1 / 3.008), 1.708e-5), 24, 4e4),
    (SampledAgainstWithout(GaussianLaw(1.0), 1e-5), 10**7, 150.0),
    (SampledAgainstWithout(GaussianLaw(2.5), 1e-4), 1000, 6.0),
]


@pytest.mark.parametrize("case", BEYOND_CUTS, ids=str)
def test_moments_of_laws_that_are_cut_are_exact_and_decay(case: tuple[Law, int, float]) -> None:
    """The integrand vanishes beyond the cut although it grows faster and faster before, and V/ω bounds the moments."""
    law, uses, c = case
    moment = moment_of(law, uses, 1e-14, c)
    assert isinstance(moment, SampledMoment)
    assert math.isfinite(moment.cut)
    found = moment.line(c, np.zeros(1))
    assert found.errors[0] * uses < 1e-3
    with mp.workdps(30):
        exact = mp.log(exact_moment(moment, c, 0.0))
    assert abs(mpc(found.values[0]) - exact) <= float(found.errors[0])
    variation = moment.decay(c).variation
    assert math.isfinite(variation)
    at_c = float(found.values[0].real)
    for frequency in np.geomspace(0.01 * variation, 100 * variation, 30).tolist():
        with np.errstate(all="ignore"):
            line = moment.line(c, np.array([0.0, frequency]))
        if line.errors[1] < 1e-3:
            assert float(line.values[1].real) - at_c <= math.log(variation / frequency) + float(line.errors[1])


@pytest.mark.parametrize(
    ("rate", "sigma", "count", "delta", "exact"),
    [
        # δ is nearly δ(0), and ε far smaller than the standard deviation of the loss
        (1.708e-5, 3.008, 24, 1.137e-5, 4.69306465e-08),
        # losses so small that the mass left out decides the moments at small tilts: [0, 4.3e-9]
        (7.227e-9, 573.8, 63350, 2.774e-10, 3.0880170048e-09),
    ],
)
def test_brackets_of_tiny_epsilons_are_narrow(
    rate: float, sigma: float, count: int, delta: float, exact: float
) -> None:
    """The exact values come from the same integral in mpmath with 30 digits, without a cut."""
    low, high = (curves.gaussian(sigma=sigma).sampled(rate=rate) ** count).epsilon_bounds(delta=delta)
    assert low <= exact <= high <= low * (1 + 1e-5)


def test_layers_are_parts_of_the_law() -> None:
    """Their masses add up to at most 1, and to most of the mass of a law with one peak."""
    moment = moment_of(SampledAgainstWithout(GaussianLaw(0.1), 0.3), 1000, 1e-14, 1.0)
    assert moment is not None
    totals = [float(np.sum(layers.masses)) for layers in moment.decay(1.0).layers]
    assert 0.8 < max(totals) <= 1.0


@pytest.mark.parametrize("mu", [0.01, 1.0, 7.0])
def test_the_bound_on_a_gaussian_is_its_own_decay(mu: float) -> None:
    moment = moment_of(GaussianLaw(mu), 1, 1e-14, 1.0)
    assert moment is not None
    for turns in (0.1, 1.0, 20.0):
        exact = turns**2 / 2  # |e^(μ² s(s+1)/2)| at ω = turns / μ, beside ω = 0
        assert exact * (1 - 1e-9) <= moment.decay(1.0).exponent(turns / mu) <= exact


def test_one_uniform_law_is_bounded_by_its_own_characteristic_function() -> None:
    layers = Layers(np.array([1.0]), np.array([2.0]))
    for frequency in np.geomspace(1e-3, 50.0, 40).tolist():
        assert math.exp(-layers.exponent(frequency)) >= abs(math.sin(frequency) / frequency) - 1e-12


def test_a_rough_panel_covers_what_it_leaves_out() -> None:
    """A line that is cut too early, and far fewer points: the bounds become wide but hold the exact ε."""
    factors = (Factor(SampledAgainstWithout(GaussianLaw(1.0), 0.01), 10_000),)
    plan = contour_panel._plan(factors, 3.0, 1e-5, None, 1e-8)
    assert plan is not None
    for points in (5, 9, 13):
        panel = contour_panel._built(plan._replace(points=points))
        low, high = panel.bounds(6.187712389971539)
        assert low <= 1e-5 <= high


@pytest.mark.parametrize(
    ("parts", "delta", "exact"),
    [
        # benchmarks/works.py: 16 digits of values that benchmarks/truth.py computes to 27 or more
        (((0.01, 1.0, 1000),), 1e-5, 1.828236666516577),
        (((0.01, 1.0, 10_000),), 1e-5, 6.187712389971539),
        (((0.01, 1.0, 10_000),), 1e-12, 10.346689837674),
        (((0.01, 1.0, 10_000),), 1e-30, 17.63506105288602),
        (((0.01, 4.0, 10_000),), 1e-5, 0.9468668007643805),
        (((0.01, 1.0, 100_000),), 1e-5, 25.57310698652151),
        (((0.01, 1.0, 2000), (0.02, 1.5, 3000)), 1e-5, 4.542546147684434),
    ],
)
def test_brackets_hold_values_of_40_digits(
    parts: tuple[tuple[float, float, int], ...], delta: float, exact: float
) -> None:
    curve = math.prod((curves.gaussian(sigma=s).sampled(rate=q) ** n for q, s, n in parts), start=curves.identity())
    low, high = curve.epsilon_bounds(delta=delta)
    assert low <= exact * (1 + 1e-13)
    assert exact <= high * (1 + 1e-13)
    assert high - low <= 1e-7 * high
    assert curve.epsilon(delta=delta) == high
    # δ(ε) comes from the same integral. The exact ε has 16 digits, and δ changes some 10 times as fast.
    least, most = curve.delta_bounds(epsilon=exact)
    assert least <= delta * (1 + 1e-11)
    assert delta <= most * (1 + 1e-11)
    assert most - least <= 1e-6 * most
    assert delta * (1 - 1e-6) <= curve.delta(epsilon=high) <= delta * (1 + 1e-6)


@pytest.mark.parametrize("side", ["one direction", "the other"])
@pytest.mark.parametrize("parts", [2, 20])
def test_many_epsilons_hold_the_lattice_and_are_narrower(parts: int, side: str) -> None:
    """Panels of the lattice are independent of the integral."""
    base = GaussianLaw(0.9)
    law = SampledAgainstWithout(base, 0.01) if side == "one direction" else WithoutAgainstSampled(base, 0.01)
    factors = (Factor(law, 3000), Factor(LaplaceLaw(0.2), parts))
    product = Product(factors, factors)
    epsilon = np.linspace(0.5, 8.0, 7)
    low, high = product.delta(epsilon, "lower"), product.delta(epsilon, "upper")
    assert np.all(high - low <= 1e-6 * high + 1e-290)
    for at in epsilon:
        upper, lower = product.panels_for(product.plan.at_epsilon(float(at)), ("upper", "lower"))
        assert np.all(low <= upper.delta(epsilon))
        assert np.all(lower.delta(epsilon) <= high)


def test_infinite_losses_are_added_to_the_integral() -> None:
    """approximate(ε, δ') is pure(ε) that fails with probability δ': δ = δ' + (1 - δ') δ of the rest."""
    many = curves.gaussian(sigma=1).sampled(rate=0.01) ** 1000
    private, failing = many * curves.pure(epsilon=0.3), many * curves.approximate(epsilon=0.3, delta=1e-7)
    epsilon = np.array([0.5, 1.5, 2.5, 3.5])
    expected = [1e-7 + (1 - 1e-7) * each for each in private.delta_bounds(epsilon=epsilon)]
    low, high = failing.delta_bounds(epsilon=epsilon)
    assert np.all(low <= expected[1] * (1 + 1e-12))
    assert np.all(expected[0] <= high * (1 + 1e-12))
    assert np.all(high - low <= 1e-6 * high)
    for delta in (1e-4, 1e-6, 1.01e-7):
        low, high = failing.epsilon_bounds(delta=delta)
        bounds = private.epsilon_bounds(delta=(delta - 1e-7) / (1 - 1e-7))
        assert low <= bounds[1] * (1 + 1e-9)
        assert bounds[0] <= high * (1 + 1e-9)
        assert high - low <= 1e-6 * high
    assert failing.epsilon(delta=0.9e-7) == math.inf


@pytest.mark.parametrize("delta", [1.001e-6, 1.00000000001e-6])
def test_a_direction_was_left_out_though_losses_were_infinite(delta: float) -> None:
    """The quick bound of the second direction spent all of δ, also the part that infinite losses take: the worse
    direction was left out, and ε of the reversed product was 6 or 9 % too small.
    """
    product = curves.gaussian(sigma=6).sampled(rate=0.5) ** 60 * curves.approximate(epsilon=0.1, delta=1e-6)
    low, high = product.epsilon_bounds(delta=delta)
    turned = product.reversed().epsilon_bounds(delta=delta)
    assert turned[0] <= high
    assert low <= turned[1]


def test_a_reversed_product_is_as_narrow_as_the_product() -> None:
    many = curves.gaussian(sigma=1).sampled(rate=0.01) ** 1000
    turned = many.reversed()
    assert turned.epsilon_bounds(delta=1e-5) == many.epsilon_bounds(delta=1e-5)
    for one, other in ((turned.forward, many.backward), (turned.backward, many.forward)):
        assert one.delta_bounds(epsilon=1.0) == other.delta_bounds(epsilon=1.0)
    assert many.forward.delta_bounds(epsilon=1.0)[1] < many.backward.delta_bounds(epsilon=1.0)[0]
    assert turned.reversed() == many


@pytest.mark.parametrize(
    ("rate", "sigma", "count", "delta"),
    [
        (1e-9, 1.0, 10**12, 1e-6),
        (1.2e-5, 1.06, 9_800_000, 1.2e-10),
        (0.05, 200.0, 33 * 10**9, 2e-18),
        (2e-7, 65.0, 237_000_000, 2e-27),
        (8.8e-5, 0.0137, 1_100_000_000, 1e-16),
        (1.7e-4, 0.033, 203_700, 1.4e-20),
        (9e-4, 0.17, 1_700_000_000, 3e-25),
        (4.5e-7, 170.0, 31, 1.2e-11),
        # rounding errors of z² counted for every use: 7 % wide
        (0.0386, 0.01425, 2_855_000_000, 7.629e-21),
        (0.1576, 0.0179, 13_120_000_000, 8.418e-30),
    ],
)
def test_brackets_are_narrow_where_a_lattice_fails(rate: float, sigma: float, count: int, delta: float) -> None:
    low, high = (curves.gaussian(sigma=sigma).sampled(rate=rate) ** count).epsilon_bounds(delta=delta)
    assert 0 < low <= high <= low * (1 + 1e-6)


@pytest.mark.parametrize("is_forward", [True, False])
@pytest.mark.parametrize(
    ("rate", "sigma", "count", "delta"),
    [(0.02, 1.5, 3000, 1e-6), (0.2, 3.0, 300, 1e-9), (1e-3, 0.9, 20_000, 1e-5), (0.5, 6.0, 60, 1e-4)],
)
def test_brackets_overlap_those_of_the_lattice(
    rate: float, sigma: float, count: int, delta: float, is_forward: bool
) -> None:
    base = GaussianLaw(1 / sigma)
    law = SampledAgainstWithout(base, rate) if is_forward else WithoutAgainstSampled(base, rate)
    product = Product((Factor(law, count),), (Factor(law, count),))
    contour, lattice = product.contour_bracket(delta), product._epsilon_bracket(delta)
    assert contour is not None
    assert max(contour[0], lattice[0]) <= min(contour[1], lattice[1])
    assert contour[1] - contour[0] < 0.01 * (lattice[1] - lattice[0])


def test_both_bounds_hold_at_every_epsilon() -> None:
    """The panel of S-G(0.01, 1)^10000 at 1e-5, read far away: against the lattice's bounds on δ."""
    law = SampledAgainstWithout(GaussianLaw(1.0), 0.01)
    panel = contour_panel.panel_for((Factor(law, 10_000),), 1e-5)
    assert panel is not None
    product = Product((Factor(law, 10_000),), (Factor(law, 10_000),))
    for epsilon in (2.0, 5.0, 6.5, 9.0):
        low, high = panel.bounds(epsilon)
        at = np.array([epsilon])
        upper, lower = product.panels_for(product.plan.at_epsilon(epsilon), ("upper", "lower"))
        assert low <= float(upper.delta(at)[0])
        assert float(lower.delta(at)[0]) <= high
        assert low <= high


def test_products_that_do_not_suit_get_no_panel() -> None:
    law = SampledAgainstWithout(GaussianLaw(1.0), 0.01)
    assert contour_panel.panel_for((Factor(law, 2),), 1e-5) is None  # the line would be too long
    assert contour_panel.panel_for((Factor(LaplaceLaw(1.0), 100),), 1e-5) is None
    assert contour_panel.panel_for((Factor(law, 10**15),), 1e-5) is None
    assert contour_panel.panel_for((Factor(law, 1000),), 1e-290) is None


def test_a_line_with_unknown_moments_bounds_nothing() -> None:
    """The moments of the last points would need too many nodes: the sum of the errors was not a number, and the bounds
    seemed to contradict each other.
    """
    low, high = (curves.gaussian(sigma=0.6666).sampled(rate=5.927e-05) ** 430).epsilon_bounds(delta=1.47e-12)
    assert 0 < low <= high <= low * 1.01


def test_turned_sums_are_right_to_the_claimed_error() -> None:
    """Beside sums in extended precision: nodes of both scales, in both directions of the line."""
    generator = np.random.default_rng(7)
    losses = np.concatenate((1e-9 * generator.normal(size=500), generator.normal(size=300)))
    tilted = np.concatenate((np.full(500, 2e-3), np.full(300, 1e-7)))
    nodes = contour_moments._Nodes(losses, tilted, 0.0, 0.0, 0.0)
    for step in (3.7, -3.7):
        frequencies = step * (11 + np.arange(1000))
        found, doubt = nodes.turned(11, 1000, step)
        angle = np.multiply.outer(frequencies.astype(np.longdouble), losses.astype(np.longdouble))
        real = np.sum(tilted * (-2 * np.sin(angle / 2) ** 2), axis=1)
        imaginary = np.sum(tilted * np.sin(angle), axis=1)
        # Beside `doubt`, a few roundings of every angle and of every term, for each doubling of a block of 31 rows.
        allowed = doubt + 64 * UNIT_ROUNDOFF * np.sum(
            tilted * np.minimum(np.abs(angle), 4.0) * (1 + np.abs(angle)), axis=1
        )
        assert np.all(np.hypot(found.real - real, found.imag - imaginary) <= allowed)
        assert np.all(doubt <= 1e-12 * np.hypot(found.real, found.imag) + 1e-17)


@pytest.mark.parametrize("angle", [1e-9, 0.003, 0.7, 3.0])
def test_powers_of_a_turn_round_each_angle_a_few_times(angle: float) -> None:
    """Rows by doubling against mpmath: their errors are a multiple of the angle, even where e^(iω) is near 1 again."""
    losses = angle * np.array([1.0, 0.77, 0.313])
    found, _ = contour_moments._turns(contour_moments._less_one(losses), 1500)
    for row in [*range(40), 255, 256, 1023, 1024, 1499]:
        for value, loss in zip(found[row], losses, strict=True):
            with mp.workdps(40):
                exact = mp.expj(row * mpf(float(loss))) - 1
                assert abs(mpc(value) - exact) <= 64 * UNIT_ROUNDOFF * row * float(loss)


def test_the_slope_of_the_kept_part_is_bounded() -> None:
    """φ/Φ at 30 digits."""
    for x in np.linspace(-40.0, 12.0, 105):
        with mp.workdps(30):
            exact = mp.npdf(x) / mp.ncdf(x)
        assert exact <= float(contour_moments._kept_slope(np.array([x]))[0])


def test_no_factor_is_left_out_where_its_moments_are_just_too_small_to_know() -> None:
    """Below δ = 4e-270 the moments of the samples had no known range, and ε was the one of the Gaussian alone."""
    curve = curves.gaussian(sigma=2) * curves.gaussian(sigma=1).sampled(rate=0.1) ** 100
    found = [curve.epsilon(delta=delta) for delta in (4.5e-270, 3e-270, 1.01e-270, 9e-271)]
    assert found == sorted(found)
    assert 158 < found[0] < found[-1] < 159
