"""Truncated Poisson batches: the curve beside every truncated sample of a few records, enumerated exactly."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from deniable import curves, learn
from deniable.errors import InvalidParameter
from deniable.learn.truncated_batches import overflow_probability
from tests.wording import worded


def kept_sums(values, rate, most):
    """The exact law of the sum over the kept records: all samples, and all subsets of `most` of those too large."""
    law: Counter[Fraction] = Counter()
    for drawn in itertools.product((False, True), repeat=len(values)):
        chance = math.prod((rate if each else 1 - rate for each in drawn), start=Fraction(1))
        taken = [value for value, each in zip(values, drawn, strict=True) if each]
        kept = list(itertools.combinations(taken, most)) if len(taken) > most else [tuple(taken)]
        for subset in kept:
            law[sum(subset, start=Fraction(0))] += chance / len(kept)
    return law


def exact_delta(without, having, sigma, epsilon):
    """δ(ε) between two mixtures of Gaussians, by a fine sum; the worse direction."""
    x = np.linspace(-12 * sigma - 6, 12 * sigma + 6, 120_001)

    def density(law):
        return sum(float(w) * np.exp(-(((x - float(m)) / sigma) ** 2) / 2) for m, w in law.items()) / (
            sigma * math.sqrt(2 * math.pi)
        )

    p, q, step = density(without), density(having), x[1] - x[0]
    assert abs(p.sum() * step - 1) < 1e-9
    return max(np.maximum(a - math.exp(epsilon) * b, 0).sum() * step for a, b in ((p, q), (q, p)))


@pytest.mark.parametrize("rate", [Fraction(1, 4), Fraction(3, 4)])
@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("others", [(-1,), (-1, -1, -1), (1, 1, 1, 1), (-1, Fraction(1, 2), 1), (0, -1, -1, 0)])
def test_no_few_records_tell_more_than_the_curve(others, most, rate):
    values, sigma = [Fraction(each) for each in others], 0.8
    plan = learn.DPSGD(clip=1.0, rate=float(rate), steps=1, noise=sigma, records=len(values) + 1, truncate_at=most)
    without = kept_sums(values, rate, most)
    for extra in (Fraction(1), Fraction(-1)):
        having = kept_sums([*values, extra], rate, most)
        for epsilon in (0.0, 0.5, 1.5, 3.0):
            assert exact_delta(without, having, sigma, epsilon) <= plan.curve.delta(epsilon=epsilon) + 1e-9


def test_the_curve_without_the_price_of_truncation_would_be_false():
    values, rate, sigma = [Fraction(-1)] * 3, Fraction(3, 4), 0.8
    told = exact_delta(kept_sums(values, rate, 1), kept_sums([*values, Fraction(1)], rate, 1), sigma, 1.5)
    plain = learn.DPSGD(clip=1.0, rate=0.75, steps=1, noise=sigma).curve.delta(epsilon=1.5)
    priced = learn.DPSGD(clip=1.0, rate=0.75, steps=1, noise=sigma, records=4, truncate_at=1).curve.delta(epsilon=1.5)
    assert plain < told <= priced


@pytest.mark.parametrize(
    ("others", "rate", "most"),
    [(3, 0.5, 2), (59_999, 256 / 60_000, 320), (59_999, 256 / 60_000, 500), (10**6, 0.01, 10_300), (10, 0.9, 10)],
)
def test_the_overflow_probability_is_a_binomial_tail_rounded_up(others, rate, most):
    """The sum of the masses at 60 digits, by mpmath."""
    with mpmath.workdps(60):
        q, place = mpmath.mpf(rate), most
        mass = (
            mpmath.exp(mpmath.loggamma(others + 1) - mpmath.loggamma(most + 1) - mpmath.loggamma(others - most + 1))
            * q**most
            * (1 - q) ** (others - most)
        )
        exact = mpmath.mpf(0)
        while mass > exact * mpmath.mpf("1e-20"):
            exact += mass
            mass *= (others - place) * q / ((place + 1) * (1 - q))
            place += 1
        found = overflow_probability(others=others, rate=rate, truncate_at=most)
        assert exact <= found <= exact * (1 + mpmath.mpf("3e-6"))


def test_the_overflow_probability_at_its_ends():
    assert overflow_probability(others=10, rate=0.5, truncate_at=11) == 0
    assert overflow_probability(others=10, rate=1.0, truncate_at=10) == 1
    assert 0 < overflow_probability(others=10**6, rate=1e-9, truncate_at=500_000) <= 1e-300


def test_truncation_of_what_never_happens_is_free_and_rare_truncation_nearly_so():
    def planned(most):
        shape = {"batch_size": 256, "records": 60_000, "steps": 1000, "noise": 1.0}
        return learn.DPSGD(clip=1.0, **shape, truncate_at=most)

    plain = planned(None).curve.epsilon_bounds(delta=1e-5)
    assert planned(60_000).curve == planned(None).curve
    assert plain[0] <= planned(352).curve.epsilon(delta=1e-5) < plain[1] * 1.0001
    # Six standard deviations above the mean: (1 + e^ε) × steps × P(overflow) alone would already be 1.5e-5.
    assert 3 * 1000 * overflow_probability(others=59_999, rate=256 / 60_000, truncate_at=352) > 1e-5
    assert planned(200).curve.epsilon(delta=1e-5) > 5 * plain[1]


def test_whole_batches_that_are_always_truncated_hide_a_replacement():
    plan = learn.DPSGD(clip=1.0, rate=1.0, steps=2, noise=4.0, records=10, truncate_at=3)
    assert plan.curve == curves.gaussian(sigma=2.0) ** 2
    assert not plan.is_gaussian


def test_a_plan_truncates_to_a_uniform_subset():
    plan = learn.DPSGD(clip=1.0, rate=1.0, steps=1, noise=1.0, records=5, truncate_at=2)
    places, trials = np.arange(5, dtype=np.int64), 4000
    seen = Counter(tuple(plan.drawn(places, 0, None).tolist()) for _ in range(trials))
    assert set(seen) == set(itertools.combinations(range(5), 2))
    spread = math.sqrt(trials * 0.1 * 0.9)
    assert all(abs(each - trials / 10) < 6.7 * spread for each in seen.values()), "false alarm 2e-10"
    few = learn.DPSGD(clip=1.0, rate=0.5, steps=1, noise=1.0, records=100, truncate_at=30)
    many = np.arange(100, dtype=np.int64)
    assert max(len(few.drawn(many, 0, None)) for _ in range(50)) == 30


def test_truncated_plans_say_so_and_need_a_bound_on_the_records():
    plan = learn.DPSGD(clip=1.0, batch_size=10, records=100, steps=5, noise=1.0, truncate_at=20)
    assert "of more than 20" in plan.explain()
    assert "truncate_at=20" in repr(plan)
    assert "100 records" in plan.in_full()
    assert any("at most 100 records" in each for each in plan.assumptions)
    assert plan.calibrate(epsilon=2, delta=1e-5).truncate_at == 20
    plan.check_records(100)
    with pytest.raises(InvalidParameter, match="at most 100"):
        plan.check_records(101)
    with worded(InvalidParameter, parameter="truncate_at"):
        learn.DPSGD(clip=1.0, rate=0.1, steps=5, truncate_at=20)
    with pytest.raises(InvalidParameter, match="at least 1"):
        learn.DPSGD(clip=1.0, rate=0.1, steps=5, records=10, truncate_at=0)


@pytest.mark.torch
def test_a_trainer_never_takes_more_than_the_plan_says():
    torch = pytest.importorskip("torch")
    from deniable.learn.torch import Trainer

    x, y = torch.randn(60, 3), torch.randn(60)
    model = torch.nn.Linear(3, 1)
    plan = learn.DPSGD(clip=1.0, rate=0.5, steps=12, noise=1.0, records=60, truncate_at=25)
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), plan, (x, y), progress=False)
    sizes: Counter[int] = Counter()
    for rows, target in trainer:
        sizes[trainer.steps_taken] += len(rows)
        trainer.backward((model(rows)[:, 0] - target) ** 2)
    # The first step also hands out copies of one record, to prove that examples stay apart. Without truncation, all 11
    # other steps have at most 25 records with probability 6e-11.
    assert max(size for step, size in sizes.items() if step > 1) <= 25
    assert any("at most 60 records" in each for each in trainer.guarantee.assumptions)
    more = torch.randn(61, 3), torch.randn(61)
    with pytest.raises(InvalidParameter, match="at most 60"):
        Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), plan, more, progress=False)
