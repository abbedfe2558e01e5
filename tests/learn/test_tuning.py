"""Tuning: the number of repeats has its law, and the winner its guarantee."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

import deniable as dn
from deniable import curves, learn, noise
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.learn.tuning import Repeats
from deniable.ledger import Budget, Ledger
from deniable.units import Guarantee, Unit

ONE = Guarantee(curves.laplace(scale=2), Unit.row())


@pytest.mark.parametrize("law", [Repeats.geometric(mean=3), Repeats.logarithmic(mean=2), Repeats(-0.5, 0.2)])
def test_the_number_of_repeats_has_its_law(law):
    """The masses by their definition, with P(1) from the mean of (K = k)/P(1)."""
    ratios = [1.0]
    for k in range(1, 400):
        ratios.append(ratios[-1] * (1 - law.gamma) * (k + law.shape) / (k + 1))
    masses = np.array(ratios) / sum(ratios)
    assert law.mean == pytest.approx(float(np.arange(1, 401) @ masses), rel=1e-9)
    trials = 6000
    seen = Counter(law.drawn() for _ in range(trials))
    for k in range(1, 6):
        spread = math.sqrt(trials * masses[k - 1] * (1 - masses[k - 1]))
        assert abs(seen[k] - trials * masses[k - 1]) < 6.7 * spread, "false alarm 1e-10 for all"


def test_means_and_refusals():
    assert Repeats.geometric(mean=8).mean == pytest.approx(8)
    assert Repeats.logarithmic(mean=8).mean == pytest.approx(8)
    assert Repeats.logarithmic(mean=1.01).mean == pytest.approx(1.01)
    for wrong in (lambda: Repeats.geometric(mean=1), lambda: Repeats(2.0, 0.1), lambda: Repeats(0.0, 0.0)):
        with pytest.raises(InvalidParameter):
            wrong()


def test_the_best_result_wins_and_has_the_curve_of_the_selection():
    law, runs = Repeats.geometric(mean=50), []

    def run(candidate):
        runs.append(candidate)
        return candidate

    found = learn.tune(
        [1.0, 5.0, math.nan, 3.0],
        run=run,
        score=lambda x: x,
        repeats=law,
        guarantee=ONE,
        entropy=noise.ReplayEntropy(6),
    )
    assert len(set(map(str, runs))) == 4
    assert (found.candidate, found.result, found.score) == (5.0, 5.0, 5.0)
    assert found.guarantee.curve == curves.best_of_repeats(ONE.curve, shape=1.0, gamma=0.02)
    assert found.guarantee.unit == Unit.row()
    assert any("stay secret" in each for each in found.guarantee.assumptions)
    assert found.guarantee.curve.epsilon(delta=0) <= 3 * 0.5


def test_released_winners_of_a_real_mechanism_keep_the_promise():
    """The chance of a large winner, by simulation, on two neighbouring counts."""
    mechanism = dn.Laplace(sensitivity=1, epsilon=1.0)
    law, one = Repeats.geometric(mean=20), Guarantee(mechanism.curve, Unit.row())

    def winner(value):
        return learn.tune(
            [None], run=lambda _: mechanism.release(value), score=lambda x: x, repeats=law, guarantee=one
        ).result

    trials = 1500
    above = [sum(winner(value) > 6 for _ in range(trials)) / trials for value in (0, 1)]
    claimed = law.curve(mechanism.curve)
    doubt = 6.5 * math.sqrt(0.25 / trials)
    assert above[1] <= math.exp(claimed.epsilon(delta=0)) * (above[0] + doubt) + doubt


def test_results_with_a_weaker_guarantee_are_refused():
    class Result:
        def __init__(self, guarantee):
            self.guarantee = guarantee

    def tuned(own):
        return learn.tune(
            [0],
            run=lambda _: Result(own),
            score=lambda _: 1.0,
            repeats=Repeats.geometric(mean=2),
            guarantee=Guarantee(curves.gaussian(sigma=2), Unit.row()),
        )

    with pytest.raises(InvalidOperation, match="weaker"):
        tuned(Guarantee(curves.gaussian(sigma=1), Unit.row()))
    with pytest.raises(InvalidParameter, match="Unit"):
        tuned(Guarantee(curves.gaussian(sigma=2), Unit.replaced_row()))
    kept = tuned(Guarantee(curves.gaussian(sigma=3), Unit.row(), assumptions=("it does not rain",)))
    assert "it does not rain" in kept.guarantee.assumptions
    for wrong in ({"candidates": []}, {"guarantee": curves.gaussian(sigma=2)}, {"repeats": 3}):
        given = {"candidates": [1], "guarantee": ONE, "repeats": Repeats.geometric(mean=2), **wrong}
        with pytest.raises(InvalidParameter):
            learn.tune(given.pop("candidates"), run=lambda x: x, score=float, **given)


def test_estimators_are_tuned():
    pytest.importorskip("sklearn")
    from deniable.learn.sklearn import GaussianNB

    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, (400, 2))
    y = x[:, 0] > 5
    public = rng.uniform(0, 10, (200, 2))

    def fitted(bound):
        return GaussianNB(classes=[False, True], bounds=(0, bound), mu=0.5).fit(x, y)

    found = learn.tune(
        [10.0, 1000.0],
        run=fitted,
        score=lambda model: float(np.mean(model.predict(public) == (public[:, 0] > 5))),
        repeats=Repeats.logarithmic(mean=4),
        guarantee=Guarantee(curves.gaussian(mu=0.5), Unit.row()),
    )
    assert found.result.predict(public).shape == (200,)
    assert found.guarantee.curve.epsilon(delta=1e-6) > curves.gaussian(mu=0.5).epsilon(delta=1e-6)


@pytest.mark.torch
def test_trainers_are_tuned():
    torch = pytest.importorskip("torch")
    from deniable.learn.torch import Trainer

    x = torch.randn(60, 3)
    y = x[:, 0]
    plan = learn.DPSGD(clip=1.0, rate=0.5, steps=2, noise=2.0, records=60)

    def trained(rate):
        model = torch.nn.Linear(3, 1)
        trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=rate), plan, (x, y), progress=False)
        for features, target in trainer:
            trainer.backward((model(features)[:, 0] - target) ** 2)
        return trainer

    found = learn.tune(
        [0.01, 0.3],
        run=trained,
        score=lambda trainer: -float(trainer.model.weight.detach().abs().sum()),
        repeats=Repeats.geometric(mean=2),
        guarantee=plan.guarantee(),
    )
    assert found.guarantee.curve == Repeats.geometric(mean=2).curve(plan.curve)
    assert any("real arithmetic" in each for each in found.guarantee.assumptions)  # those of the trainer


def test_a_poisson_number_of_repeats_has_its_law_and_may_be_zero():
    """Frequencies of 4,000 draws within 7 standard deviations; with K = 0 nothing runs, and nothing is returned."""
    law, drawn = learn.PoissonRepeats(mean=1.5), []
    for _ in range(4000):
        drawn.append(law.drawn())
    for k in range(5):
        wanted = math.exp(-1.5) * 1.5**k / math.factorial(k)
        assert abs(drawn.count(k) / 4000 - wanted) < 7 * math.sqrt(wanted / 4000)
    one = Guarantee(curves.gaussian(sigma=2.0), Unit.row())
    calls: list[int] = []
    found = [
        learn.tune(
            [1, 2],
            run=lambda candidate: calls.append(candidate) or candidate,
            score=float,
            repeats=learn.PoissonRepeats(mean=0.7),
            guarantee=one,
        )
        for _ in range(200)
    ]
    nothing = [each for each in found if each.result is None]
    assert 40 < len(nothing) < 160  # e^-0.7 of 200 is 99, with a standard deviation of 7
    assert all(each.candidate is None and each.score == -math.inf for each in nothing)
    assert found[0].guarantee.curve == curves.best_of_poisson_repeats(one.curve, mean=0.7)


def test_a_ledger_is_charged_before_the_first_run_and_sealed_after_the_last():
    ledger = Ledger.open(budget=Budget(epsilon=8.0, delta=1e-5), unit=Unit.row(), dataset="people")
    one = Guarantee(curves.gaussian(sigma=4.0), Unit.row())
    seen = []

    def run(candidate):
        seen.append([(entry.number, entry.cost) for entry in ledger.entries()])
        return candidate

    asked = {"run": run, "score": float, "repeats": learn.Repeats.geometric(mean=3), "guarantee": one}
    learn.tune([1], **asked, ledger=ledger, delta=1e-7)
    number, cost = seen[0][-1]
    assert ledger.closing(number) is not None
    # What was charged covers the curve of the whole search: μ-GDP but for delta.
    whole = asked["repeats"].curve(one.curve)
    level = ledger.budget.accounting.gaussian_mu(cost.units)
    for epsilon in (0.0, 0.5, 1.0, 2.0, 3.0):
        assert whole.delta(epsilon=epsilon) <= curves.gaussian(mu=level).delta(epsilon=epsilon) + 1e-7
    with pytest.raises(InvalidParameter, match="delta"):
        learn.tune([1], **asked, ledger=ledger)
    entries = len(list(ledger.entries()))
    with pytest.raises(ZeroDivisionError):
        learn.tune([1], **{**asked, "run": lambda candidate: 1 // 0}, ledger=ledger, delta=1e-7)
    assert len(list(ledger.entries())) > entries  # a search that fails stays charged
