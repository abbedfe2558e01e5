"""Products of many different laws, multiplied in a tree: both bounds, and one more law on top.

Independent answers: a contour integral of the closed-form moments of Laplace laws, and exact sums over the values of
laws on whole multiples of one loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from deniable import curves
from deniable.curves.composition import convolution_tree, factor_merging, tilt_plan
from deniable.curves.composition.convolution_tree import ErrorSums, Rows, TreePlan
from deniable.curves.composition.delta_panel import DeltaPanel
from deniable.curves.composition.factor_merging import LongFactors
from deniable.curves.composition.rounded_panel import RoundedPanel
from deniable.curves.composition.tilt_plan import Factor
from deniable.curves.curve import Curve, product
from deniable.curves.laws.closed_form import GaussianLaw, LaplaceColumn, LaplaceLaw
from deniable.curves.laws.derived_laws import SampledAgainstWithout
from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.meaning import curve_readings

Floats = NDArray[np.float64]


def laplace_delta(shifts: Floats, epsilon: float, *, at: float, top: float, step: float) -> float:
    """δ(ε) of a product of Laplace laws: 1/(2πi) ∫ e^(K(s) - sε) / (s(s+1)) ds along Re s = `at`."""
    s = at + 1j * np.arange(0, top, step)
    logs = np.zeros_like(s)
    for t in shifts:
        logs += s * t + np.log(((s + 1) + s * np.exp(-(2 * s + 1) * t)) / (2 * s + 1))
    assert abs(np.exp(logs[-1])) < 1e-9 * abs(np.exp(logs[0]))
    values = np.exp(logs - s * epsilon) / (s * (s + 1))
    return float(values.real.sum() - values.real[0] / 2) * step / math.pi


def folded(factors: Sequence[Factor], tree: TreePlan) -> tuple[DeltaPanel, RoundedPanel]:
    """Both panels of a product by a tree."""
    panels = convolution_tree.panels(
        convolution_tree.kinds_of(factors, tree, {}), {}, [f for f in factors if f.law.infinity > 0], tree, {}
    )
    assert panels is not None
    return panels


def different_laplaces(count: int, scale: float = 20.0) -> Curve:
    return product(curves.laplace(scale=scale + i / 10) for i in range(count))


@pytest.mark.parametrize("delta", [1e-4, 1e-9])
def test_three_hundred_laplaces_have_a_narrow_bracket_that_holds_the_contour_integral(delta: float) -> None:
    low, high = different_laplaces(300).epsilon_bounds(delta=delta)
    assert low <= high <= low * (1 + 1e-4)
    shifts = np.array([1 / (20 + i / 10) for i in range(300)])
    truth = [laplace_delta(shifts, e, at=5.0, top=100.0, step=0.1) for e in (low * (1 - 1e-7), high * (1 + 1e-7))]
    assert truth[1] < delta < truth[0]


@pytest.mark.slow
def test_ten_thousand_laplaces_and_one_more_hold_the_value_of_40_digits() -> None:
    """The row "10⁴ different laplaces, one more" of benchmarks/works.py."""
    held = product(curves.laplace(scale=200 + i / 100) for i in range(10_000))
    before = held.epsilon_bounds(delta=1e-5)
    low, high = (held * curves.laplace(scale=199)).epsilon_bounds(delta=1e-5)
    assert low <= 1.589301245426272 <= high <= low * (1 + 1e-4)
    assert before[0] < high
    assert low > before[0]


def test_the_profile_of_many_laplaces_holds_the_contour_integral_at_every_epsilon() -> None:
    curve = different_laplaces(80, scale=10.0)
    shifts = np.array([1 / (10 + i / 10) for i in range(80)])
    epsilon = np.linspace(0.2, 4.0, 9)
    low, high = curve.delta_bounds(epsilon=epsilon)
    truth = np.array([laplace_delta(shifts, float(e), at=4.0, top=150.0, step=0.1) for e in epsilon])
    assert np.all(low <= truth * (1 + 1e-9))
    assert np.all(truth <= high * (1 + 1e-9))
    assert np.all(high - low <= 2e-3 * high)


def whole_laws(generator: np.random.Generator, count: int, unit: float) -> tuple[list[Factor], Floats, int]:
    """Random laws with losses on multiples of `unit`, and the exact masses of their product from its lowest value."""
    factors, masses, lowest = [], np.ones(1), 0
    for _ in range(count):
        index = np.unique(generator.integers(-12, 13, size=int(generator.integers(2, 5))))
        p = generator.dirichlet(np.ones(len(index)))
        while np.sum(p * np.exp(-index * unit)) > 1:  # Q is a probability distribution or less
            index = index + 1
        factors.append(Factor(FiniteLaw(index * unit, p, 0.0), 1))
        dense = np.zeros(int(index[-1] - index[0]) + 1)
        dense[index - index[0]] = p
        masses, lowest = np.convolve(masses, dense), lowest + int(index[0])
    return factors, masses, lowest


@pytest.mark.parametrize("seed", range(6))
def test_trees_of_finite_laws_bound_their_exact_product(seed: int) -> None:
    """The laws lie on multiples of 0.0137, the tree on another lattice: every split counts."""
    generator = np.random.default_rng([2211, seed])
    unit = 0.0137
    factors, masses, lowest = whole_laws(generator, 40, unit)
    losses = (lowest + np.arange(len(masses))) * unit
    mean = float(np.sum(masses * losses))
    spread = math.sqrt(float(np.sum(masses * (losses - mean) ** 2)))
    for theta, step in ((0.0, 0.004), (1.0, 0.002), (2.5, 0.001)):
        upper, lower = folded(factors, TreePlan(theta, step, 1e-20))
        epsilon = np.abs(mean) + spread * np.linspace(-1, 5, 25)
        exact = np.array([np.sum(masses * np.maximum(-np.expm1(e - losses), 0.0)) for e in epsilon])
        above, below = upper.delta(epsilon), lower.delta(epsilon)
        assert np.all(below <= exact * (1 + 1e-9))
        assert np.all(exact <= above * (1 + 1e-9))
    centre = np.argmin(np.abs(epsilon - upper.centre))
    assert above[centre] - below[centre] <= 2e-3 * above[centre]


def test_the_lower_bound_of_a_tree_can_fail() -> None:
    """Without what the lattice adds to δ, the lower bound would exceed the exact δ."""
    factors, masses, lowest = whole_laws(np.random.default_rng([2211, 0]), 40, 0.0137)
    losses = (lowest + np.arange(len(masses))) * 0.0137
    _, lower = folded(factors, TreePlan(1.0, 0.004, 1e-20))
    epsilon = lower.panel.centre + np.linspace(-0.3, 0.3, 40)
    exact = np.array([np.sum(masses * np.maximum(-np.expm1(e - losses), 0.0)) for e in epsilon])
    assert np.any(lower.panel.finite_delta(epsilon) > exact)
    assert np.all(lower.delta(epsilon) <= exact)


def test_a_coarser_row_keeps_the_masses_of_both_neighbours() -> None:
    generator = np.random.default_rng(3)
    theta, step = 1.7, 0.01
    weights = generator.random((3, 40))
    weights /= weights.sum(axis=1, keepdims=True)
    rows = Rows(generator.normal(size=3), weights, step, 4, ErrorSums())
    coarse = convolution_tree._twice_the_step(rows, TreePlan(theta, step / 4, 1e-20))

    def totals(each: Rows, order: float) -> float:
        losses = each.starts[:, None] + each.step * np.arange(each.weights.shape[1])
        # `log_moment` is of all rows together: compare their product.
        sums = np.sum(each.weights * np.exp(-(theta + order) * losses), axis=1)
        return float(np.sum(np.log(sums))) + each.sums.log_moment

    for order in (0.0, 1.0):  # P-mass and Q-mass
        assert totals(coarse, order) == pytest.approx(totals(rows, order), abs=1e-13)
    assert coarse.sums.variance == pytest.approx(3 * step**2)


def test_a_leaf_counts_the_mass_above_its_end_as_infinite_loss() -> None:
    """Without a tilt, the finite and the infinite losses add up to at least 1."""
    tree = TreePlan(0.0, 0.01, 1e-3)
    sums = convolution_tree._leaf(SampledAgainstWithout(GaussianLaw(1.0), 0.1), tree).sums
    infinite = -math.expm1(sums.alive)
    assert infinite >= 1e-4
    assert math.exp(sums.log_moment) + infinite >= 1 - 1e-12


def test_one_more_law_gives_the_same_bounds_as_a_product_from_scratch() -> None:
    held = different_laplaces(150)
    held.epsilon_bounds(delta=1e-6)
    for more in (
        curves.laplace(scale=7.5),
        curves.gaussian(sigma=9),
        curves.gaussian(sigma=2).sampled(rate=0.01),
        curves.randomized_response(epsilon=0.1),
        curves.laplace(scale=20),
    ):
        grown = held * more
        extended = grown.epsilon_bounds(delta=1e-6)
        curve_readings._READ.clear()
        afresh = Curve(dict(grown.factors)).epsilon_bounds(delta=1e-6)
        assert extended == pytest.approx(afresh, rel=1e-12)
        held.epsilon_bounds(delta=1e-6)


HELD = {
    "gaussians": [curves.gaussian(sigma=50 + i / 7) for i in range(60)],
    "laplaces": [curves.laplace(scale=20 + i / 10) for i in range(60)],
    "responses": [curves.randomized_response(epsilon=0.02 + i / 999) for i in range(70)],
    "mixed": [c for i in range(30) for c in (curves.laplace(scale=30 + i), curves.gaussian(sigma=20 + i))],
    "pairs that may flip": [curves.from_pmf([0.5 + i / 999, 0.3, 0.2 - i / 999], [0.5, 0.25, 0.25]) for i in range(30)],
}
MORE = {
    "gaussian": curves.gaussian(sigma=9),
    "laplace": curves.laplace(scale=7.5),
    "response": curves.randomized_response(epsilon=0.1),
    "sampled": curves.gaussian(sigma=2).sampled(rate=0.01),
    "two uses": curves.laplace(scale=9) ** 2,
    "fails": curves.approximate(epsilon=0.1, delta=1e-9),
    "may flip": curves.from_pmf([0.6, 0.3, 0.1], [0.55, 0.25, 0.2]),
}


def written_out(factors: Sequence[Factor]) -> list[object]:
    """The factors by their values: finite laws are compared by their arrays, to the last bit."""
    return [
        (f.law.losses.tolist(), f.law.masses.tolist(), f.law.infinity, f.uses) if isinstance(f.law, FiniteLaw) else f
        for f in factors
    ]


@pytest.mark.parametrize("more", [*MORE, "again"])
@pytest.mark.parametrize("name", HELD)
def test_one_more_on_many_is_not_built_again_and_is_the_same(
    name: str, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, one = product(HELD[name]), HELD[name][3] if more == "again" else MORE[more]
    # The product from scratch depends on the factors alone.
    grown = held * one * one
    curve_readings._READ.clear()
    afresh = curve_readings.product_of(Curve(dict(grown.factors)))
    curve_readings._READ.clear()
    curve_readings.product_of(held)

    def again(curve: Curve) -> object:
        raise AssertionError("built again")

    monkeypatch.setattr(curve_readings, "_built", again)
    between = held * one  # a curve does not keep the curve that it was multiplied from alive
    curve_readings.product_of(between)
    extended = curve_readings.product_of(between * one)
    for direct, stepwise in zip(afresh, extended, strict=True):
        assert written_out(stepwise.upper) == written_out(direct.upper)
        assert written_out(stepwise.lower) == written_out(direct.lower)


def test_gaussians_merge_to_the_same_number_in_every_order() -> None:
    """μ² is summed exactly: 0.1² + ... in floating point depends on the order."""
    sigmas = [3.1 * 1.37**i for i in range(40)]
    mus = [Fraction(float(1 / s)) for s in sigmas]
    found = set()
    for order in (sigmas, sigmas[::-1], sorted(sigmas, key=lambda s: s % 1)):
        forward, _ = curve_readings.product_of(product(curves.gaussian(sigma=s) for s in order))
        (factor,) = forward.upper
        assert isinstance(factor.law, GaussianLaw)
        found.add(factor.law.mu)
        exact = sum(mu * mu for mu in mus)
        assert exact < Fraction(factor.law.mu) ** 2 < exact * (1 + Fraction(1, 10**14))
    assert len(found) == 1


@pytest.mark.parametrize("scale", [7.5, 20.0])  # a new law, and one that the product has already
def test_partial_products_are_kept_for_the_next_question(scale: float) -> None:
    held = different_laplaces(200)
    held.epsilon_bounds(delta=1e-6)
    before, _ = curve_readings.product_of(held)
    grown, _ = curve_readings.product_of(held * curves.laplace(scale=scale))
    assert isinstance(before.upper, LongFactors)
    assert isinstance(grown.upper, LongFactors)
    kept = {id(row) for blocks in before.upper.head.blocks.values() for row in blocks.values()}
    assert kept
    assert kept <= {id(row) for blocks in grown.upper.head.blocks.values() for row in blocks.values()}


def test_long_factors_add_up_as_short_ones_do() -> None:
    factors = [Factor(LaplaceLaw(0.01 * (i + 1)), i % 3 + 1) for i in range(40)]
    long = factor_merging.simplify(factors, "upper")
    assert isinstance(long, LongFactors)
    assert factor_merging.uses_of(long) == sum(f.uses for f in factors)
    assert factor_merging.highest_of(long) == pytest.approx(sum(f.uses * f.law.highest for f in factors), rel=1e-14)
    more = factor_merging.simplify([Factor(LaplaceLaw(0.5), 2)], "upper", long)
    assert isinstance(more, LongFactors)
    assert more == (*long, Factor(LaplaceLaw(0.5), 2))
    again = factor_merging.simplify([Factor(LaplaceLaw(0.01), 1)], "upper", long)
    assert again[0] == Factor(LaplaceLaw(0.01), 2)


def test_the_table_of_laplaces_is_that_of_their_sketches() -> None:
    shifts = np.array([0.003, 0.1, 1.3])
    together = tilt_plan.laplace_table(shifts)
    apart = [tilt_plan.plan_table(LaplaceLaw(float(t))) for t in shifts]
    # A sketch dominates, so its cumulants are a little larger.
    assert np.all(together.values <= sum(one.values for one in apart) * (1 + 1e-12))
    assert together.values == pytest.approx(sum(one.values for one in apart), rel=2e-2)
    assert together.slopes == pytest.approx(sum(one.slopes for one in apart), rel=2e-2)
    assert together.mean == pytest.approx(sum(one.mean for one in apart), rel=1e-3)


def test_a_column_of_laplaces_has_the_tails_of_each() -> None:
    shifts = np.array([[0.01], [0.7], [3.0]])
    losses = shifts * np.linspace(-1.2, 1.2, 31)
    column = LaplaceColumn(shifts)
    for row, shift in enumerate(shifts[:, 0]):
        law = LaplaceLaw(float(shift))
        assert np.array_equal(column.tails(losses).first[row], law.tails(losses[row]).first)
        assert np.array_equal(column.gaps(losses)[0][row], law.gaps(losses[row])[0])
        first, second, _ = law.tails(losses[row])
        assert law.gaps(losses[row])[0] == pytest.approx(first - second, abs=1e-15)
