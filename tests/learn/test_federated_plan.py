"""Federated averaging: lengths of messages, the law of the sum by brute force, dropouts, the auditor, and a whole run."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import special

from deniable import audit, curves, learn, noise
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.ledger import Budget, Ledger
from deniable.units import Unit
from tests.wording import worded


def made(**changes: object) -> learn.Federated:
    given = {"clip": 1.0, "dimension": 3, "clients": 4, "missing": 1, "rate": 1.0, "rounds": 1, "noise": 1.0}
    return learn.Federated(**{**given, "deviation": 64, **changes})  # type: ignore[arg-type]


def masses(variance: float, reach: int) -> np.ndarray:
    """P(N = n) for |n| <= reach, by scipy's Bessel functions."""
    return special.ive(np.abs(np.arange(-reach, reach + 1)), variance)


@pytest.mark.parametrize("noise_level", [0.3, 1.0, 8.0, 400.0])
@pytest.mark.parametrize("dimension", [1, 7, 400])
def test_no_rounded_update_is_longer_than_the_bound(dimension: int, noise_level: float) -> None:
    plan = made(dimension=dimension, noise=noise_level)
    generator = np.random.default_rng(5)
    half = np.full(dimension, 0.5 / plan.scale)  # every coordinate between two integers
    for update in (
        1e9 * np.ones(dimension),
        half,
        -half,
        1e-200 * np.ones(dimension),
        1e300 * generator.normal(size=dimension),
        *generator.normal(size=(20, dimension)),
    ):
        found = plan.rounded(update)
        assert sum(int(x) ** 2 for x in found) <= plan.largest_square


def test_too_long_roundings_are_drawn_again_and_at_last_cut() -> None:
    """With a bound that hardly any rounding meets, the last resort still meets it."""
    plan = made(dimension=2000, noise=64.0)  # L = 1: nearly all coordinates round to 0 or ±1
    update = np.full(2000, 1 / math.sqrt(2000))
    lengths = [int(x @ x) for x in (plan.rounded(update) for _ in range(50))]
    assert max(lengths) <= plan.largest_square < (1 + math.sqrt(2000)) ** 2
    assert max(lengths) > 1  # the deterministic bound would not be L²


def test_every_rounding_is_within_the_bound_that_the_curve_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bound that nearly half of the roundings exceed; the plan's own is exceeded once in 10,000 times."""
    plan = learn.Federated(clip=1.0, dimension=50, clients=5, missing=0, rate=1.0, rounds=1, noise=8.0, deviation=16)
    update = np.full(50, plan.clip / math.sqrt(50)) * 0.999
    lengths = [int(each @ each) for each in (plan.rounded(update) for _ in range(50))]
    bound = int(np.median(lengths))
    assert bound > (np.trunc(update * plan.scale) ** 2).sum()
    monkeypatch.setattr("deniable.learn.federated_plan._largest_square", lambda *_: bound)
    assert max(int(each @ each) for each in (plan.rounded(update) for _ in range(50))) <= bound


def test_rounding_has_no_bias() -> None:
    """The mean of many roundings, against its standard error: 7 of them, a false alarm of 3e-12 for each number."""
    plan = made(dimension=3, noise=20.0)
    update = np.array([0.31, -0.22, 0.017])
    drawn = np.array([plan.rounded(update) for _ in range(4000)]) / plan.scale
    assert np.all(np.abs(drawn.mean(axis=0) - update) < 7 * 0.5 / plan.scale / math.sqrt(4000))


def test_clipping_scales_down_to_the_norm() -> None:
    plan = made(noise=0.01)
    for factor in (3.0, 1e150, 1e-3):
        given = factor * np.array([3.0, -4.0, 0.0]) / 5
        assert plan.rounded(given) / plan.scale == pytest.approx(given * min(1.0, 1 / factor), abs=1.5 / plan.scale)


def test_an_update_that_is_not_finite_counts_as_nothing() -> None:
    plan = made()
    for bad in (math.nan, math.inf):
        assert not plan.rounded([bad, 1.0, 0.0]).any()


@pytest.mark.parametrize("missing", [0, 1, 3])
def test_messages_add_up_to_the_sum_and_the_stated_noise(missing: int) -> None:
    """The variance of 20,000 coordinates of a sum: chi-square, 7 standard deviations. Half the shares would fail."""
    plan = made(dimension=20_000, clients=5, missing=missing, deviation=40, noise=40.0)
    total = sum(plan.no_update() for _ in range(5)) % plan.modulus
    steps = plan.decoded(total, received=5) * 5 * plan.scale
    assert steps == pytest.approx(np.round(steps), abs=1e-6)
    variance = 40**2 * 5 / (5 - missing)
    spread = math.sqrt(2 / 20_000 + 1 / (variance * 20_000))
    assert abs(np.mean(steps**2) / variance - 1) < 7 * spread


def test_sums_beyond_the_middle_are_negative() -> None:
    plan = made(clients=1, missing=0)
    values = np.array([-5, 7, -(plan.modulus // 2) + 1])
    assert plan.decoded(values % plan.modulus, received=1) * plan.scale == pytest.approx(values)


@pytest.mark.parametrize(("noise_level", "deviation"), [(2.0, 16), (0.5, 16), (3.0, 100)])
@pytest.mark.parametrize("dimension", [1, 2])
def test_the_curve_covers_the_exact_law_of_the_sum(dimension: int, noise_level: float, deviation: int) -> None:
    """By brute force: the sum of all shares modulo the modulus, with the longest message and without it."""
    plan = made(dimension=dimension, noise=noise_level, deviation=deviation, clients=3, missing=0)
    share = masses(deviation**2 / 3, 40 * deviation)
    law = np.convolve(np.convolve(share, share), share)
    wrapped = np.zeros(plan.modulus)
    np.add.at(wrapped, np.arange(-(len(law) // 2), len(law) // 2 + 1) % plan.modulus, law)
    longest = math.isqrt(plan.largest_square)
    shifts = [(longest,)] if dimension == 1 else [(longest, 0), (math.isqrt(plan.largest_square // 2),) * 2]
    for shift in shifts:
        moved = [np.roll(wrapped, by) for by in shift]
        for epsilon in (0.0, 0.2, 1.0):
            if dimension == 1:
                p, q = moved[0], wrapped
            else:
                near = 12 * deviation + longest  # the rest has a mass below 1e-20
                inside = np.arange(-near, near) % plan.modulus
                p, q = np.outer(moved[0][inside], moved[1][inside]), np.outer(wrapped[inside], wrapped[inside])
            exact = float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0)))
            claimed = plan.curve.delta(epsilon=epsilon)
            assert exact <= claimed * (1 + 1e-9) + 1e-14
            assert exact >= 0.9 * claimed or epsilon > 0 or dimension > 1  # and it is nearly reached


def test_the_price_is_hardly_that_of_gaussian_noise() -> None:
    """μ against clip/σ of Gaussian noise on numbers that are not rounded."""
    plan = learn.Federated(
        clip=1.0, dimension=10_000, clients=50, missing=5, rate=1.0, rounds=1, deviation=2048, noise=2.0
    )
    assert 0.5 < plan.round_mu < 0.5 * 1.004


def test_calibration_meets_its_target() -> None:
    plan = made(rate=0.1, rounds=30, clients=100, missing=20, noise=None).calibrate(epsilon=2.0, delta=1e-5)
    assert 1.98 < plan.curve.epsilon(delta=1e-5) <= 2.0
    everybody = made(rate=1.0, rounds=30, clients=100, missing=20, noise=plan.noise)
    assert everybody.curve.epsilon(delta=1e-5) > 3 * plan.curve.epsilon(delta=1e-5)


def test_what_remains_if_shares_are_missing() -> None:
    plan = made(clients=10, missing=2, rounds=5)
    found = [plan.curve_with(missing=count).epsilon(delta=1e-6) for count in range(10)]
    assert found == sorted(found)
    assert found[2] == pytest.approx(plan.curve.epsilon(delta=1e-6), rel=1e-9)
    # One client alone has an eighth of the variance: √8 times the μ.
    mu = curves.gaussian(mu=math.sqrt(5 * 8) * plan.round_mu).epsilon(delta=1e-6)
    assert found[9] == pytest.approx(mu, rel=1e-2)
    with worded(InvalidParameter):
        plan.curve_with(missing=10)


def test_a_round_with_too_few_clients_is_not_decoded() -> None:
    plan = made(clients=4, missing=1)
    with worded(InvalidOperation):
        plan.decoded(np.zeros(3, dtype=np.int64), received=2)


class Sums:
    """One round with one client that has the given update, and others without data. `share` scales the noise."""

    def __init__(self, plan: learn.Federated, share: Fraction = Fraction(1)) -> None:
        self._plan, self._share = plan, share

    def release(self, value: float) -> float:
        return float(self.many(value, 1)[0])

    def many(self, value: float, count: int) -> np.ndarray:
        plan, rate = self._plan, self._share * self._plan.deviation**2 / (2 * (self._plan.clients - self._plan.missing))
        total = np.full(count, round(value * math.isqrt(plan.largest_square)), dtype=np.int64)
        for _ in range(plan.clients - plan.missing):  # as many drop out as may
            total += noise.poisson(rate=rate, size=count) - noise.poisson(rate=rate, size=count)
        return total % plan.modulus


def test_the_auditor_does_not_refute_a_round_and_catches_shares_that_are_too_small() -> None:
    """A twin that divides by all clients though one may be missing has 3/4 of the variance, or less: refuted."""
    plan = made(dimension=1, clients=4, missing=1, noise=1.0)
    fair = audit.measure(
        Sums(plan), neighbours=(0.0, 1.0), claim=plan.curve, trials=60_000, confidence=1 - 1e-9, delta=1e-3
    )
    assert not fair.refuted
    assert fair.epsilon > 1
    twin = audit.measure(
        Sums(plan, Fraction(3, 4)), neighbours=(0.0, 1.0), claim=plan.curve, trials=60_000, confidence=1 - 1e-6
    )
    assert twin.refuted


def test_messages_of_the_plan_pass_the_auditor() -> None:
    """The same with `message` itself: fewer trials, because each message is made on its own."""
    plan = made(dimension=1, clients=2, missing=1, noise=0.5)
    found = audit.measure(
        lambda value: int(plan.message([value])[0]),
        neighbours=(0.0, 1.0),
        claim=plan.curve,
        trials=3000,
        confidence=1 - 1e-9,
    )
    assert not found.refuted
    assert found.epsilon > 0.5


def test_a_run_learns_the_mean() -> None:
    """With noise 1 over 200 clients and 10 rounds, each coordinate is within 8 standard deviations of the truth."""
    plan = learn.Federated(clip=2.0, dimension=4, clients=200, missing=20, rate=1.0, rounds=10, noise=1.0)
    goals = np.random.default_rng(3).normal(size=(200, 4)) * 0.1 + np.array([0.5, -0.25, 0.0, 1.0])
    run = learn.FederatedRun(plan, np.zeros(4), [lambda weights, goal=goal: goal - weights for goal in goals], step=0.5)
    while not run.finished:
        run.round(dropped=range(5))
    expected = goals[5:].mean(axis=0)
    # Noise of 2/195 a round, halved each time it is pulled back: √(1/3) of it stays.
    assert np.all(np.abs(run.weights - expected) < 8 * 2 / 195 + 2**-10 * 2)
    assert "a secure sum" in run.guarantee.describe()
    with worded(InvalidOperation):
        run.round()


def test_a_client_without_luck_sends_noise_only() -> None:
    plan = made(rate=0.25, clients=60, missing=0, rounds=40, noise=1.0)
    asked = []
    run = learn.FederatedRun(plan, np.zeros(3), [lambda weights: asked.append(0) or np.ones(3)] * 60)
    while not run.finished:
        run.round()
    # 2,400 coins of 1/4: 600 ± 7 · 21.
    assert abs(len(asked) - 600) < 150


def test_a_ledger_is_charged_for_the_whole_run() -> None:
    plan = made(rounds=2, noise=4.0)
    ledger = Ledger.open(budget=Budget(epsilon=8.0, delta=1e-6), unit=Unit.row(), dataset="phones")
    run = learn.FederatedRun(plan, np.zeros(3), [lambda weights: np.ones(3)] * 4, ledger=ledger)
    run.round()
    entry = list(ledger.entries())[-1]
    assert entry.cost == plan.price(ledger.budget, unit=Unit.row(), delta=None)
    run.round()
    assert ledger.closing(entry.number) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"missing": 4},
        {"rate": 0.0},
        {"deviation": 5000},
        {"noise": 1e-14, "deviation": 4096},
        {"unit": Unit.replaced_row()},
    ],
)
def test_plans_that_cannot_be(changes: dict[str, object]) -> None:
    with worded(InvalidParameter, parameter=next(iter(changes))):
        made(**changes)


def test_wrong_updates_and_sums_are_refused_without_their_values() -> None:
    plan = made()
    with worded(InvalidParameter):
        plan.message([1.0, 2.0])
    with worded(InvalidParameter) as caught:
        plan.message(["secret", 1, 2])
    assert "secret" not in str(caught.value)
    with worded(InvalidParameter):
        plan.decoded(np.zeros(3), received=4)
    with worded(InvalidParameter):
        learn.FederatedRun(plan, np.zeros(3), [lambda weights: weights])
