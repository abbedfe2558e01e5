"""Random allocation against exact enumeration, quadrature, simulation, another library's interval, and the auditor."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from deniable import audit, curves
from deniable.audit import zoo_samplers
from deniable.curves import Curve
from deniable.curves.atoms import random_allocation
from deniable.curves.atoms.random_allocation import normal_masses
from deniable.curves.laws import likelihood_average
from deniable.curves.laws.finite_law import FiniteLaw, nothing
from deniable.curves.laws.likelihood_average import Ratio
from deniable.errors import InvalidParameter
from tests.wording import worded


def enumerated(without: list[Fraction], present: list[Fraction], steps: int, odds: Fraction) -> tuple[float, float]:
    """δ at e^ε = odds without against with, and with against without, from all outputs of all steps, exactly."""
    ahead = back = Fraction(0)
    for outputs in itertools.product(range(len(without)), repeat=steps):
        nobody = math.prod((without[o] for o in outputs), start=Fraction(1))
        someone = sum(
            (
                math.prod((present[o] if i == j else without[o] for j, o in enumerate(outputs)), start=Fraction(1))
                for i in range(steps)
            ),
            start=Fraction(0),
        ) / Fraction(steps)
        ahead += max(nobody - odds * someone, Fraction(0))
        back += max(someone - odds * nobody, Fraction(0))
    return float(ahead), float(back)


TABLES = {
    "all outputs possible": ([1, 2, 5], [3, 4, 1]),
    "an output only without": ([1, 3, 4], [0, 4, 4]),
    "an output only with": ([0, 3, 5], [1, 3, 4]),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("steps", [2, 3, 5])
def test_bounds_hold_the_enumerated_profile(name: str, steps: int) -> None:
    without, present = ([Fraction(k, 8) for k in weights] for weights in TABLES[name])
    curve = curves.from_pmf([float(p) for p in without], [float(p) for p in present], tied=True).allocated(steps=steps)
    for odds in (Fraction(1), Fraction(11, 10), Fraction(3, 2), Fraction(9, 4)):
        epsilon = math.log(odds)
        for direction, exact in zip(
            (curve.forward, curve.backward), enumerated(without, present, steps, odds), strict=True
        ):
            low, high = direction.delta_bounds(epsilon=epsilon)
            assert low <= exact * (1 + 1e-12) + 1e-15
            assert high >= exact * (1 - 1e-12) - 1e-15
            assert high - low <= 1e-5 + 1e-4 * exact


def two_steps(sigma: float, epsilon: float) -> tuple[float, float]:
    """δ of two steps of Gaussian noise in both directions: given one ratio, an integral over the other in closed form."""
    with mp.workdps(30):
        odds, mu = mp.exp(epsilon), mp.mpf(1) / sigma

        def given(z: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
            first = mp.exp(mu * z - mu**2 / 2)
            density = mp.npdf(z)
            strike = 2 * odds - first
            if strike <= 0:
                call = first + 1 - 2 * odds
            else:
                at = mp.log(strike) / mu + mu / 2
                call = mp.ncdf(mu - at) - strike * mp.ncdf(-at)
            strike = 2 / odds - first
            put = mp.mpf(0)
            if strike > 0:
                at = mp.log(strike) / mu + mu / 2
                put = strike * mp.ncdf(at) - mp.ncdf(at - mu)
            return density * call / 2, density * put * odds / 2

        kinks = sorted({-12, 12, *(float((mp.log(2 * o) + mu**2 / 2) / mu) for o in (odds, 1 / odds))})
        ends = [k for k in (-12, -4, 0, 4, *kinks) if -12 <= k <= 12]
        ends = sorted(set(ends))
        with_person = mp.quad(lambda z: given(z)[0], ends)
        without_person = mp.quad(lambda z: given(z)[1], ends)
        return float(without_person), float(with_person)


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "epsilon"), [(0.5, 1.0), (1.0, 2.0)])
def test_two_steps_of_gaussian_noise_are_the_integral(sigma: float, epsilon: float) -> None:
    curve = curves.gaussian(sigma=sigma).allocated(steps=2)
    for direction, exact in zip((curve.forward, curve.backward), two_steps(sigma, epsilon), strict=True):
        low, high = direction.delta_bounds(epsilon=epsilon)
        assert low <= exact <= high
        assert high - low <= 1e-3 * exact


def simulated(sigma: float, steps: int, epsilon: float, seed: int) -> tuple[float, float, float]:
    """Estimates of δ without against with, and with against without, and their error except with probability 1e-9."""
    random, count = np.random.default_rng(seed), 40_000
    noise = random.normal(size=(count, steps))
    nobody = np.mean(np.exp(noise / sigma - 0.5 / sigma**2), axis=1)
    noise[:, 0] += 1 / sigma
    someone = np.mean(np.exp(noise / sigma - 0.5 / sigma**2), axis=1)
    odds = math.exp(epsilon)
    error = math.sqrt(math.log(4e9) / (2 * count))  # Hoeffding, two numbers in [0, 1], two sides each
    return (
        float(np.mean(np.maximum(1 - odds * nobody, 0))),
        float(np.mean(np.maximum(1 - odds / someone, 0))),
        error,
    )


@pytest.mark.slow
def test_bounds_agree_with_a_simulation_that_rejects_other_numbers_of_steps() -> None:
    ahead, back, error = simulated(0.5, 40, 0.25, seed=2217)

    def fits(curve: Curve) -> bool:
        return all(
            direction.delta_bounds(epsilon=0.25)[0] - error <= found <= direction.delta_bounds(epsilon=0.25)[1] + error
            for direction, found in ((curve.forward, ahead), (curve.backward, back))
        )

    one = curves.gaussian(sigma=0.5)
    assert fits(one.allocated(steps=40))
    assert not fits(one.allocated(steps=32))
    assert not fits(curves.gaussian(sigma=0.53).allocated(steps=40))


PUBLISHED = [
    # ε at δ by PLD_accounting 2.0 (`gaussian_allocation_epsilon_range`, which follows arXiv 2602.17284): low, high.
    (1.0, 10, 1e-6, 2.631760464928218, 2.669776699381869),
    (1.0, 100, 1e-10, 2.060722569110049, 2.0931497227208524),
    (0.5, 100, 1e-6, 6.382617623720973, 6.406087547940433),
]


@pytest.mark.parametrize(("sigma", "steps", "delta", "low", "high"), PUBLISHED)
def test_bounds_lie_inside_those_of_another_library(
    sigma: float, steps: int, delta: float, low: float, high: float
) -> None:
    least, most = curves.gaussian(sigma=sigma).allocated(steps=steps).epsilon_bounds(delta=delta)
    assert low <= least <= most <= high
    assert most - least <= 1.5e-3 * most


def by_laplace_transform(sigma: float, steps: int, epsilon: float) -> float:
    """δ without against with, E (1 - e^ε T/t)₊ for the sum T of t lognormal ratios, by the inverse Laplace transform
    x/t · 1/(2πi) ∫ e^(s t/x) E[e^(-sX)]^t / s² ds. No grid of ratios, no convex order.
    """
    z = np.linspace(-13.0, 13.0, 20_001)
    ratio, weight = np.exp(z / sigma - 1 / (2 * sigma**2)), np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    x, variance = math.exp(epsilon), math.expm1(1 / sigma**2)
    at = epsilon / variance + 3 / math.sqrt(steps * variance)
    step = 0.02 / math.sqrt(steps * variance)
    s = at + 1j * step * np.arange(600)
    logs = np.array([steps * np.log1p(np.sum(np.expm1(-each * ratio) * weight)) for each in s])
    values = np.exp(logs + s * (steps / x)) / s**2
    assert abs(values[-1]) < 1e-12 * abs(values[0])
    return float((values.real.sum() - values.real[0] / 2) * step / math.pi) * x / steps


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "steps", "epsilons"),
    [(1.0, 10**5, (0.001, 0.005, 0.012)), (2.0, 10**7, (1e-4, 3.6e-4)), (0.8, 10**7, (5e-4, 1.5e-3))],
)
def test_many_steps_hold_the_laplace_transform(sigma: float, steps: int, epsilons: tuple[float, ...]) -> None:
    curve = curves.gaussian(sigma=sigma).allocated(steps=steps)
    for epsilon in epsilons:
        exact = by_laplace_transform(sigma, steps, epsilon)
        low, high = curve.forward.delta_bounds(epsilon=epsilon)
        assert low <= exact * (1 + 1e-7)
        assert exact * (1 - 1e-7) <= high
        assert high - low <= 0.05 * high
    low, high = curve.epsilon_bounds(delta=1e-6)
    assert 0 < low <= high <= 1.007 * low


@pytest.mark.parametrize("cells", [7, 500])
def test_masses_of_the_normal_distribution_are_as_exact_as_they_say(cells: int) -> None:
    z = np.linspace(-12.0, 12.5, cells * 13 + 1)
    masses, error = normal_masses(z)
    assert error < (1e-11 if cells == 500 else 1e-3)
    with mp.workdps(40):
        for index in (0, 5, len(z) // 2, len(z) - 2):
            low, high = mp.mpf(float(z[index])), mp.mpf(float(z[index + 1]))
            exact = mp.ncdf(high) - mp.ncdf(low) if low < 0 else mp.ncdf(-low) - mp.ncdf(-high)
            assert abs(mp.mpf(float(masses[index])) / exact - 1) <= error


def test_more_steps_leak_less_and_one_step_is_the_mechanism() -> None:
    one = curves.gaussian(sigma=1)
    assert one.allocated(steps=1) == one
    found = [one.allocated(steps=t).epsilon_bounds(delta=1e-6) for t in (2, 3, 5)]
    assert all(later[1] <= earlier[1] for earlier, later in itertools.pairwise(found))
    assert found[0][1] <= one.epsilon(delta=1e-6)


def test_a_run_in_epochs_is_a_product() -> None:
    epoch = curves.randomized_response(epsilon=1).allocated(steps=3)
    low, high = (epoch**4).epsilon_bounds(delta=1e-3)
    assert epoch.epsilon(delta=1e-3) < low <= high <= low + 1e-3
    assert (epoch**4).expression() == "randomized_response(epsilon=1).allocated(steps=3)**4"


def test_bounded_losses_stay_bounded() -> None:
    curve = curves.randomized_response(epsilon=1).allocated(steps=7)
    assert curve.epsilon(delta=0) <= 1 + 1e-9


def test_records_and_expressions_read_back() -> None:
    curve = (curves.gaussian(sigma=1) ** 3).allocated(steps=12)
    assert Curve.from_dict(curve.to_dict()) == curve
    assert curves.parse(curve.expression()) == curve


@pytest.mark.slow
def test_the_auditor_refutes_only_the_broken_twin() -> None:
    sampler = zoo_samplers.ZooSampler("batches", zoo_samplers.shuffled_batches(0.4, 4))
    right, twin = curves.gaussian(sigma=0.4).allocated(steps=4), curves.gaussian(sigma=0.4).allocated(steps=12)
    question = {"neighbours": (0.0, 1.0), "trials": 20_000, "confidence": 1 - 1e-9, "delta": 0.2}

    def ratio(answer: np.ndarray) -> float:
        return -float(np.log(np.mean(np.exp((answer - 0.5) / 0.16))))

    assert not audit.measure(sampler, claim=right, likelihood_ratio=ratio, **question).refuted
    assert audit.measure(sampler, claim=twin, likelihood_ratio=ratio, **question).refuted


@pytest.mark.parametrize(
    "curve", [curves.pure(epsilon=1), curves.gaussian(sigma=1) * curves.laplace(scale=1), curves.zcdp(rho=1)]
)
def test_a_bound_without_output_laws_cannot_be_allocated(curve: Curve) -> None:
    with worded(InvalidParameter):
        curve.allocated(steps=3)


@pytest.mark.parametrize("steps", [0, -1, 1.5, 10**8, "3"])
def test_steps_must_be_a_sensible_number(steps: object) -> None:
    with pytest.raises(InvalidParameter):
        curves.gaussian(sigma=1).allocated(steps=steps)  # type: ignore[arg-type]  # what a user may pass by mistake


@pytest.mark.parametrize("coins", [8, 30])
def test_laws_that_are_rounded_in_each_direction_are_bounded_in_both(coins: int) -> None:
    """Each of the two laws of binomial noise has its losses moved outwards. The masses without the person were taken
    from the law with them, so that some were missing: for 8 coins the upper end was below δ, and for 30 coins the
    bounds crossed.
    """
    without = [Fraction(math.comb(coins, k), 2**coins) for k in range(coins + 1)] + [Fraction(0)]
    present = [Fraction(0), *without[:-1]]
    curve = curves.binomial(coins=coins).allocated(steps=2)
    for odds in (Fraction(1), Fraction(11, 10), Fraction(3, 2), Fraction(9, 4)):
        for direction, exact in zip(
            (curve.forward, curve.backward), enumerated(without, present, 2, odds), strict=True
        ):
            low, high = direction.delta_bounds(epsilon=math.log(odds))
            assert low <= exact * (1 + 1e-14)
            assert high >= exact * (1 - 1e-14)
            assert high - low <= 1e-6 * exact


def test_a_law_that_lists_fewer_outcomes_bounds_the_others_too() -> None:
    """The law with the person was cut; what the law without them has beyond counts as impossible with them."""
    odds = np.array([0.5, 4.0])
    away = FiniteLaw(-np.log(odds[::-1]), np.array([0.25, 0.5]), 0.25)
    present = FiniteLaw(np.log(odds[1:]), np.array([1.0]))
    upper = random_allocation._of_finite(away, present, "upper")
    assert upper.values.tolist() == [0.0, pytest.approx(4.0)]
    assert upper.masses.tolist() == pytest.approx([0.75, 0.25])
    lower = random_allocation._of_finite(away, present, "lower")
    assert lower.values.tolist() == [0.0, pytest.approx(4.0)]
    assert lower.masses.tolist() == pytest.approx([0.25, 0.25])
    # An outcome that only one of the two lists is not counted from below.
    assert random_allocation._of_finite(nothing(), present, "lower").values.tolist() == [0.0]


def test_one_of_the_steps_of_one_of_the_runs_is_one_of_all_steps() -> None:
    """The law of an allocation is rounded outwards; allocated again, its upper end was below δ by 1e-14."""
    one = curves.from_pmf([0.001, 0.999], [0.002, 0.998], tied=True)
    assert one.allocated(steps=2).allocated(steps=3) == one.allocated(steps=6)
    assert (one.allocated(steps=2) ** 2).expression() != (one**2).allocated(steps=2).expression()
    with worded(InvalidParameter):
        one.allocated(steps=10**4).allocated(steps=10**4)


@pytest.mark.parametrize("steps", [2, 1000])
def test_laws_without_a_common_outcome_and_equal_laws(steps: int) -> None:
    """Both raised an error of NumPy: no sum of ratios is positive, or all sums are one number."""
    apart = curves.from_pmf([1.0, 0.0], [0.0, 1.0], tied=True).allocated(steps=steps)
    assert apart.delta_bounds(epsilon=1.0) == (pytest.approx(1.0), 1.0)
    same = curves.from_pmf([0.5, 0.5], [0.5, 0.5], tied=True).allocated(steps=steps)
    assert 0 <= same.delta(epsilon=0.0) <= 1e-10


@pytest.mark.parametrize("side", ["upper", "lower"])
def test_errors_of_masses_multiply(side: likelihood_average.Bound) -> None:
    """Masses of an average are products, so a mass may be 1.5 × 1.5 times what it should be, not only 2 times."""
    one = Ratio(np.array([0.5, 1.5]), np.array([0.5, 0.5]), 0.0, 0.5, 0.25)
    both = likelihood_average.average(one, 1, one, 1, side=side)
    assert both.mass_error >= 1.25
    assert 0.25 <= both.value_error < 0.26
    assert likelihood_average.allocated(one, 10**7, side="upper").mass_error < math.inf
    for law in likelihood_average.laws(both._replace(infinity=0.125), 1.0 if side == "upper" else -1.0):
        assert law.relative_error >= 2.25 * 1.25 - 1
        assert 0 <= law.infinity <= 1


def test_what_is_cut_counts_as_revealed_in_both_directions() -> None:
    """Ratios above the last kept value: their mass with the person has an infinite loss, that without has ratio 0."""
    fine = Ratio(np.array([0.5, 1.5, 1e3]), np.array([0.5, 0.5, 5e-37]), 0.0, 0.0, 0.0)
    upper = likelihood_average.thinned(fine, "upper")
    assert upper.values.tolist() == [0.0, 0.5, 1.5]
    assert upper.infinity == pytest.approx(5e-34)
    assert upper.infinity >= 5e-34
    assert upper.masses[0] == pytest.approx(5e-37)
    assert likelihood_average.thinned(fine, "lower").values.tolist() == [0.5, 1.5, 1e3]


def test_errors_of_values_move_losses_outwards() -> None:
    ratio = Ratio(np.array([0.5, 1.5]), np.array([0.5, 0.5]), 0.0, 0.0, 0.01)
    for outwards in (1.0, -1.0):
        without, present = likelihood_average.laws(ratio, outwards)
        assert np.all((present.losses - np.log(ratio.values)) * outwards >= 0.01)
        assert np.all((without.losses + np.log(ratio.values)[::-1]) * outwards >= 0.01)
