"""Plans: their curves beside exact answers, and what they refuse."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from deniable import curves, learn
from deniable.errors import InvalidParameter
from deniable.learn.matrix_factorisation import sensitivity_squared, square_root_coefficients
from deniable.ledger import Budget
from deniable.units import Unit
from tests.wording import worded


def test_the_anchor_needs_less_noise_than_by_the_renyi_route():
    plan = learn.DPSGD(clip=1.0, batch_size=8192, records=60_000, steps=293).calibrate(epsilon=3, delta=1e-5)
    assert 3.38 < plan.noise < 3.43
    assert plan.curve.epsilon(delta=1e-5) <= 3
    less = learn.DPSGD(clip=1.0, batch_size=8192, records=60_000, steps=293, noise=plan.noise * 0.999)
    assert less.curve.epsilon_bounds(delta=1e-5)[0] > 3  # certified from below: it cannot be had with less
    by_renyi = learn.DPSGD(clip=1.0, batch_size=8192, records=60_000, steps=293, noise=3.65)
    assert 2.95 < by_renyi.compare(delta=1e-5)["Rényi"] < 3.02


def test_the_curve_is_that_of_the_sampled_gaussian():
    curve = learn.DPSGD(clip=2.0, rate=0.01, steps=1000, noise=1.0).curve
    assert curve == curves.gaussian(sigma=1).sampled(rate=0.01) ** 1000
    # Two Richardson levels over a fine lattice, independent of the library: 9 digits, the last one rounded.
    low, high = curve.delta_bounds(epsilon=1.0)
    assert low <= 0.0026124205805
    assert 0.0026124205785 <= high < low * 1.001


def test_older_routes_are_never_below_the_certified_one():
    for rate, steps, noise in ((0.01, 1000, 1.0), (0.1, 50, 2.0), (1.0, 10, 5.0)):
        found = learn.DPSGD(clip=1.0, rate=rate, steps=steps, noise=noise).compare(delta=1e-6)
        assert found["certified"] <= found["Rényi"] <= found["moments accountant"]


def test_abadi_and_others_report_what_the_paper_does():
    # Abadi et al. 2016, section 3: q = 0.01, sigma = 4, 10,000 steps: epsilon about 1.26 at delta = 1e-5.
    found = learn.DPSGD(clip=1.0, rate=0.01, steps=10_000, noise=4.0).compare(delta=1e-5)
    assert found["moments accountant"] == pytest.approx(1.26, abs=0.01)
    assert found["certified"] == pytest.approx(0.946867, rel=2e-4)


def test_epochs_and_batches_say_the_same_as_rates_and_steps():
    plan = learn.DPSGD(clip=1.0, batch_size=250, records=1000, epochs=3)
    assert (plan.rate, plan.steps) == (0.25, 12)
    assert learn.DPSGD(clip=1.0, rate=0.3, epochs=1).steps == 4
    assert learn.DPSGD(clip=1.0, batch_size=100, records=600, epochs=6).steps == 36  # 1/6 is no float


def test_full_batches_are_gaussian_and_need_no_delta_in_a_ledger():
    plan = learn.DPSGD(clip=1.0, rate=1.0, steps=9, noise=6.0)
    assert plan.curve == curves.gaussian(sigma=6) ** 9
    budget = Budget.gaussian(mu=1)
    cost = plan.price(budget, unit=Unit.row(), delta=None)
    assert cost.delta_units == 0
    assert 1 <= Fraction(cost.units, budget.price(curves.gaussian(mu=0.5)).units) < 1 + Fraction(1, 10**14)


def test_what_a_sampled_run_costs_a_ledger_covers_it_everywhere():
    plan = learn.DPSGD(clip=1.0, rate=0.05, steps=200, noise=1.5)
    budget, allowed = Budget.gaussian(mu=3, delta=1e-4), 1e-5
    cost = plan.price(budget, unit=Unit.row(), delta=allowed)
    mu = math.sqrt(cost.units * 1e-30)
    epsilon = np.linspace(-6, 6, 21)

    def covered(level: float) -> bool:
        mixture = (1 - allowed) * curves.gaussian(mu=level).delta_bounds(epsilon=epsilon)[0] + allowed
        return bool(np.all(plan.curve.delta_bounds(epsilon=epsilon)[0] <= mixture * (1 + 1e-6)))

    assert covered(mu)
    assert not covered(0.97 * mu)  # the check can fail
    assert mu < math.sqrt(200) / 1.5 / 4  # sampling was not thrown away


def test_people_with_many_records_cost_more():
    plan, budget = learn.DPSGD(clip=1.0, rate=1.0, steps=4, noise=8.0), Budget.gaussian(mu=5, delta=1e-4)
    one = plan.price(budget, unit=Unit.row(), delta=1e-6)
    three = plan.price(budget, unit=Unit.person("id", rows=3), delta=1e-6)
    assert three.units == pytest.approx(9 * one.units, rel=1e-4)  # a little less, for a delta


def test_noise_is_needed_before_anything_is_promised():
    plan = learn.DPSGD(clip=1.0, rate=0.1, steps=10)
    with pytest.raises(InvalidParameter, match="calibrate"):
        _ = plan.curve
    assert "not chosen yet" in plan.explain()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rate": 0.1, "batch_size": 5, "steps": 1}, "both were given"),
        ({"steps": 1}, "none was given"),
        ({"rate": 0.1}, "none was given"),
        ({"batch_size": 5, "steps": 1}, "public number of records"),
        ({"batch_size": 5, "records": 4, "steps": 1}, "at most the 4 records"),
        ({"rate": 0.0, "steps": 1}, "above 0"),
        ({"rate": 1.5, "steps": 1}, "lie in"),
        ({"rate": 0.1, "steps": 0}, "at least 1"),
        ({"rate": 0.1, "steps": 10**10}, "at most"),
        ({"rate": 0.1, "steps": 1, "noise": 0}, "positive"),
        ({"rate": 0.1, "steps": 1, "noise": math.nan}, "NaN"),
        ({"rate": 0.1, "steps": 1, "clip": -1.0}, "positive"),
    ],
)
def test_plans_refuse_what_means_nothing(given, words):
    with pytest.raises(InvalidParameter, match=words):
        learn.DPSGD(**{"clip": 1.0, **given})


# -- matrix factorisation ----------------------------------------------------------------------------------------------


def patterns(steps, separation, participations):
    """All ways to take part: at most so often, and so far apart."""
    for often in range(1, participations + 1):
        for places in itertools.combinations(range(steps), often):
            if all(b - a >= separation for a, b in itertools.pairwise(places)):
                yield places


def matrix(coefficients, steps):
    rows = [
        [coefficients[i - j] if 0 <= i - j < len(coefficients) else Fraction(0) for j in range(steps)]
        for i in range(steps)
    ]
    return rows


@pytest.mark.parametrize(
    ("steps", "separation", "participations", "bands"),
    [(6, 2, 3, 2), (7, 3, 2, 3), (9, 3, 3, 2), (5, 5, 1, 4), (8, 2, 4, 1)],
)
def test_sensitivity_is_the_worst_of_all_ways_to_take_part(steps, separation, participations, bands):
    coefficients = square_root_coefficients(bands)
    c, worst = matrix(coefficients, steps), Fraction(0)
    for places in patterns(steps, separation, participations):
        for signs in itertools.product((1, -1), repeat=len(places)):
            change = [sum(sign * row[place] for sign, place in zip(signs, places, strict=True)) for row in c]
            worst = max(worst, sum(v * v for v in change))
    claimed = sensitivity_squared(coefficients, steps=steps, separation=separation, participations=participations)
    assert worst == claimed  # attained, and never exceeded


def test_more_bands_than_the_separation_are_refused():
    with pytest.raises(InvalidParameter, match="separation"):
        learn.DPFTRL(clip=1.0, batch_size=100, records=300, epochs=2, bands=4)
    # And rightly: columns would then overlap, and the sum of their norms would be too little.
    coefficients, total = square_root_coefficients(4), Fraction(0)
    for row in matrix(coefficients, 6):
        total += (row[0] + row[3]) ** 2
    assert total > 2 * sum(x * x for x in coefficients) - sum(x * x for x in coefficients[3:])


def test_amplitude_is_the_largest_row_of_prefix_sums_over_the_factor():
    plan = learn.DPFTRL(clip=1.0, batch_size=10, records=80, epochs=3, bands=5, noise=1.0)
    c = np.array(matrix(plan.coefficients, plan.steps), dtype=float)
    rows = np.linalg.norm(np.tril(np.ones((plan.steps, plan.steps))) @ np.linalg.inv(c), axis=1)
    assert plan.amplitude == pytest.approx(rows.max(), rel=1e-12)
    assert plan.amplitude * plan.sensitivity < math.sqrt(plan.steps * plan.epochs)  # better than independent noise


def test_factorised_plans_promise_what_their_matrix_does():
    plan = learn.DPFTRL(clip=3.0, batch_size=10, records=80, epochs=2, bands=4, noise=2.0)
    c = np.array(matrix(plan.coefficients, plan.steps), dtype=float)
    moved = np.linalg.norm(c[:, 0] + c[:, 8])
    assert plan.sensitivity == pytest.approx(moved, rel=1e-12)
    assert plan.curve.gdp() == pytest.approx(moved / 2.0, rel=1e-9)
    assert plan.calibrate(epsilon=2, delta=1e-6).curve.epsilon(delta=1e-6) <= 2


# -- convex losses -----------------------------------------------------------------------------------------------------


def logistic_slopes(theta, rows):
    return sum(x / (1 + np.exp(x * theta)) * -1 for x in rows)


def exact_delta(rows, extra, regularisation, sigma, epsilon):
    """δ of objective perturbation in one dimension, by integrating both densities of the minimiser."""
    theta = np.linspace(-40, 40, 400_001)

    def density(data):
        slope = logistic_slopes(theta, data) + regularisation * theta
        bend = (
            sum(x * x * np.exp(-np.abs(x * theta)) / (1 + np.exp(-np.abs(x * theta))) ** 2 for x in data)
            + regularisation
        )
        return np.exp(-((slope / sigma) ** 2) / 2) / (sigma * math.sqrt(2 * math.pi)) * bend

    step = theta[1] - theta[0]
    without, having = density(rows), density([*rows, extra])
    assert abs(without.sum() * step - 1) < 1e-6
    ahead = np.maximum(having - math.exp(epsilon) * without, 0).sum() * step
    back = np.maximum(without - math.exp(epsilon) * having, 0).sum() * step
    return max(ahead, back)


@pytest.mark.parametrize("rows", [[], [0.5, -1.0, 0.3]])
def test_objective_perturbation_leaks_no_more_than_it_says(rows):
    plan = learn.ObjectivePerturbation(lipschitz=1.0, smoothness=0.25, regularisation=2.0, delta=1e-3, noise=1.0)
    leaked = max(exact_delta(rows, extra, 2.0, 1.0, plan.epsilon) for extra in (1.0, -1.0, 0.5))
    assert leaked <= 1e-3
    # The check can fail: with half of the noise the same claim is false.
    assert max(exact_delta(rows, extra, 2.0, 0.5, plan.epsilon) for extra in (1.0, -1.0)) > 1e-3


@pytest.mark.parametrize(("level", "delta"), [(1.0, 1e-3), (4.0, 1e-6), (0.3, 1e-9)])
def test_objective_perturbation_pays_for_both_signs_of_the_noise(level, delta):
    """2 δ_μ(ε - log(1 + β/λ)) = δ, by mpmath at 50 digits."""
    plan = learn.ObjectivePerturbation(lipschitz=1.0, smoothness=0.25, regularisation=2.0, delta=delta, noise=level)
    with mpmath.workdps(50):
        mu, left = 1 / mpmath.mpf(level), mpmath.mpf(plan.epsilon) - mpmath.log1p(mpmath.mpf(1) / 8)
        paid = 2 * (mpmath.ncdf(mu / 2 - left / mu) - mpmath.e**left * mpmath.ncdf(-mu / 2 - left / mu))
    assert 0.999 * delta <= paid <= delta


@pytest.mark.slow
def test_objective_perturbation_calibrates_and_pays_for_an_inexact_solver():
    plan = learn.ObjectivePerturbation(lipschitz=1.0, smoothness=0.25, regularisation=5.0, delta=1e-6).calibrate(
        epsilon=1
    )
    assert (
        plan.epsilon
        <= 1
        < learn.ObjectivePerturbation(
            lipschitz=1.0, smoothness=0.25, regularisation=5.0, delta=1e-6, noise=plan.noise * 0.99
        ).epsilon
    )
    inexact = learn.ObjectivePerturbation(
        lipschitz=1.0,
        smoothness=0.25,
        regularisation=5.0,
        delta=1e-6,
        noise=plan.noise,
        tolerance=0.1,
        output_noise=1.0,
    )
    assert inexact.curve.epsilon(delta=1e-5) > plan.curve.epsilon(delta=1e-5)
    # Two solvers, each off by tolerance/λ = 0.02, are 0.04 apart.
    apart = curves.approximate(epsilon=plan.epsilon, delta=1e-6) * curves.gaussian(mu=0.04)
    assert inexact.curve.epsilon(delta=1e-5) == pytest.approx(apart.epsilon(delta=1e-5), rel=1e-6)
    with pytest.raises(InvalidParameter, match="given together"):
        learn.ObjectivePerturbation(lipschitz=1.0, smoothness=0.25, regularisation=5.0, delta=1e-6, tolerance=0.1)
    with worded(InvalidParameter, parameter="epsilon", asked=1):
        learn.ObjectivePerturbation(lipschitz=1.0, smoothness=9.0, regularisation=1.0, delta=1e-6).calibrate(epsilon=1)


def test_output_perturbation_moves_as_far_as_it_says_and_no_farther():
    plan = learn.OutputPerturbation(lipschitz=1.0, regularisation=2.0)
    # A linear loss <θ, x>, ‖x‖ = 1, attains it: the minimiser of <θ, x> + ‖θ‖² is -x/2, without the record 0.
    assert plan.sensitivity == pytest.approx(0.5, rel=1e-9)
    assert plan.sensitivity >= 0.5
    # Solvers that stop at a slope of 0.1 on either side: at 0.1/2 without the record and at -(1 + 0.1)/2 with it.
    inexact = learn.OutputPerturbation(lipschitz=1.0, regularisation=2.0, tolerance=0.1)
    assert 0.6 <= inexact.sensitivity == pytest.approx(0.6, rel=1e-9)
    rng = np.random.default_rng(1)
    for _ in range(20):
        rows = rng.uniform(-1, 1, 6)

        def minimiser(data):
            low, high = -50.0, 50.0
            for _ in range(100):
                middle = (low + high) / 2
                low, high = (low, middle) if logistic_slopes(middle, data) + 2.0 * middle > 0 else (middle, high)
            return low

        assert abs(minimiser(rows) - minimiser(rows[:-1])) <= plan.sensitivity
    assert plan.calibrate(epsilon=1, delta=1e-6).guarantee.assumptions


# -- rates so small that hardly anybody is ever drawn ------------------------------------------------------------------


def told_by_one_step(rate, noise, steps, epsilon):
    """At 50 digits, what the tests "some step shows more than t" tell at ε: never more than δ(ε), and the whole of it
    where there is one step."""
    most = mpmath.mpf(0)
    with mpmath.workdps(50):
        q, s, k = mpmath.mpf(rate), mpmath.mpf(noise), mpmath.mpf(steps)
        # The best test of one step: e^ε = 1 - q + q e^l, and a loss l is seen at t = s²l + 1/2.
        best = s * s * mpmath.log((mpmath.expm1(epsilon) + q) / q) + mpmath.mpf(1) / 2
        for t in (best, best + s, best - s, best + 3 * s, mpmath.mpf(1) / 2):
            absent = mpmath.ncdf(-t / s)
            present = (1 - q) * absent + q * mpmath.ncdf((1 - t) / s)
            alarms = [-mpmath.expm1(k * mpmath.log1p(-each)) for each in (present, absent)]
            most = max(most, alarms[0] - mpmath.exp(epsilon) * alarms[1])
        return most


@pytest.mark.slow
@pytest.mark.parametrize("rate", [1e-15, 1e-12, 1e-9, 1e-6])
@pytest.mark.parametrize("steps", [1, 7, 100])
def test_tiny_rates_are_calibrated_on_the_safe_side(rate, steps):
    chance = -math.expm1(steps * math.log1p(-rate))  # total variation: nobody can do better than the draw itself
    plan = learn.DPSGD(clip=1.0, rate=rate, steps=steps)
    for share in (0.5, 1e-3):
        found = plan.calibrate(epsilon=1, delta=share * chance).noise
        assert told_by_one_step(rate, found, steps, 1) <= share * chance
        if steps == 1:
            assert told_by_one_step(rate, found * (1 - 1e-3), 1, 1) > share * chance
    for delta in (chance * (1 + 1e-9), 2 * chance, 0.5):
        with pytest.raises(InvalidParameter, match=rf" {chance:.3g}, .* {steps} steps") as refused:
            plan.calibrate(epsilon=1, delta=delta)
        assert (refused.value.parameter, refused.value.asked) == ("delta", delta)


@pytest.mark.parametrize("rate", [1e-100, pytest.param(1e-15, marks=pytest.mark.slow), 1e-12, 1e-9])
@pytest.mark.parametrize("noise", [0.02, 0.035, 0.04])
def test_huge_losses_at_tiny_rates_are_numbers(rate, noise):
    curve = curves.gaussian(sigma=noise).sampled(rate=rate)
    assert told_by_one_step(rate, noise, 1, 1) <= curve.delta(epsilon=1) <= rate * 1.001 + 1e-12
    assert (curve**100).epsilon(delta=1e-6) < 1  # 100 × rate < δ: even without noise it would be 0
    assert told_by_one_step(rate, noise, 1, 650) <= curve.delta(epsilon=650)


@pytest.mark.parametrize(("noise", "clip"), [(1.1, 0.1), (0.7, 0.3), (3.3, 1.7), (1.0, 0.1)])
def test_noise_times_clip_is_not_rounded_down(noise: float, clip: float) -> None:
    """Some products of floats are rounded down: the noise that is drawn must hide the whole clip."""
    plan = learn.DPSGD(clip=clip, rate=0.5, steps=1, noise=noise)
    assert Fraction(plan.sigma) >= Fraction(noise) * Fraction(clip)
    assert plan.sigma == pytest.approx(noise * clip, rel=1e-15)


@pytest.mark.parametrize(("batch", "records"), [(1, 3), (1, 10), (256, 60_000), (7, 10)])
def test_the_rate_of_the_curve_is_the_rate_of_the_coins(batch: int, records: int) -> None:
    """A rate of 1/3 is rounded to a float once; what is drawn and what is promised are that float, not each its own."""
    plan = learn.DPSGD(clip=1.0, batch_size=batch, records=records, steps=2, noise=1.0)
    assert abs(Fraction(plan.rate) - Fraction(batch, records)) <= Fraction(batch, records) / 2**53
    assert plan.curve == curves.gaussian(sigma=1).sampled(rate=plan.rate) ** 2


# -- who takes part ----------------------------------------------------------------------------------------------------


def test_a_fixed_order_takes_every_record_once_in_each_epoch() -> None:
    plan = learn.DPFTRL(clip=1.0, batch_size=7, records=30, epochs=3, bands=2)
    mine = np.arange(1, 30, 2, dtype=np.int64)  # those of the second of two processes
    for epoch in range(plan.epochs):
        steps = range(epoch * plan.separation, (epoch + 1) * plan.separation)
        taken = [plan.drawn(mine, step, None).tolist() for step in steps]
        assert sorted(itertools.chain(*taken)) == mine.tolist()
        assert all(each // plan.batch_size == i for i, places in enumerate(taken) for each in places)
    assert plan.expected_batch(30) == 7.0
    assert plan.coefficients is not None
    with pytest.raises(InvalidParameter, match="30"):
        plan.check_records(31)
    plan.check_records(30)


def test_each_record_is_drawn_by_its_own_coin() -> None:
    plan = learn.DPSGD(clip=1.0, rate=0.25, steps=3)
    places = np.arange(10_000, dtype=np.int64)
    first, second = (plan.drawn(places, 0, None) for _ in range(2))
    for each in (first, second):
        assert set(each.tolist()) <= set(places.tolist())
        assert abs(len(each) - 2500) < 6.2 * math.sqrt(10_000 * 0.25 * 0.75), "false alarm 6e-10"
    assert first.tolist() != second.tolist(), "fresh coins"
    assert (plan.expected_batch(1000), plan.coefficients) == (250.0, None)
    plan.check_records(1)
    assert plan.training_assumptions != ()
    known = learn.DPSGD(clip=1.0, rate=0.25, steps=3, records=40)
    assert (known.expected_batch(1000), known.training_assumptions) == (10.0, ())


def test_two_plans_whose_rates_differ_in_the_last_digit_are_not_written_alike() -> None:
    one, other = (learn.DPSGD(clip=1.0, rate=rate, steps=3) for rate in (0.25, math.nextafter(0.25, 1)))
    assert repr(one) == repr(other)
    assert one.in_full() != other.in_full()
    assert one.in_full() == "DPSGD(clip=1.0, rate=0.25, steps=3), rate 0.25"


# -- people ------------------------------------------------------------------------------------------------------------


def test_plans_for_people_say_so_and_cost_one_person() -> None:
    person = Unit.person("user", rows=20)
    plan = learn.DPSGD(clip=1.0, rate=0.1, steps=5, noise=2.0, unit=person)
    assert plan.guarantee().unit == person
    assert plan.curve == curves.gaussian(sigma=2).sampled(rate=0.1) ** 5
    assert "each person" in plan.explain()
    assert "one person," in plan.explain()
    assert repr(person) in repr(plan)
    assert plan.calibrate(epsilon=2, delta=1e-5).unit == person
    assert any("every person" in each for each in plan.assumptions)
    order = learn.DPFTRL(clip=1.0, batch_size=5, records=20, epochs=2, bands=2, unit=person)
    assert order.calibrate(epsilon=2, delta=1e-5).unit == person
    assert "20 people" in order.explain()
    for wrong in (Unit.replaced_row(), Unit.replaced_person("user", rows=2), "person"):
        with worded(InvalidParameter):
            learn.DPSGD(clip=1.0, rate=0.1, steps=5, unit=wrong)


def test_a_plan_for_people_covers_rows_and_replaced_people_as_a_group() -> None:
    plan = learn.DPSGD(clip=1.0, rate=1.0, steps=4, noise=8.0, unit=Unit.person("user", rows=20))
    budget = Budget.gaussian(mu=5, delta=1e-4)
    one, two, row = (
        plan.price(budget, unit=each, delta=1e-6).units
        for each in (Unit.person("user", rows=3), Unit.replaced_person("user", rows=3), Unit.row())
    )
    assert two == pytest.approx(4 * one, rel=1e-3)
    assert row == two
    with pytest.raises(InvalidParameter, match="'patient'"):
        plan.price(budget, unit=Unit.person("patient", rows=3), delta=1e-6)
