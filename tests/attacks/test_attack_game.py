"""The game: outcomes, intervals, caps, sweeps, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp

from deniable import Unit, attacks, curves, local, mechanisms, plots
from deniable.attacks import attack_game, made_up_worlds
from deniable.attacks.attack_game import laplace_sum_tail, noisy, right
from deniable.errors import DeniableError, InvalidOperation, InvalidParameter
from tests.attacks.games import above, agrees

X, Y = made_up_worlds.traits(people=200, features=40, seed=2)

EVERY = {
    "linkage": lambda: attacks.Linkage(attacks.population(areas=2, seed=1), quasi=["sex", "birth", "zip"]),
    "homogeneity": lambda: attacks.Homogeneity(size=4),
    "intersection": lambda: attacks.Intersection(size=4, chance=0.25),
    "differencing": lambda: attacks.Differencing(people=50),
    "averaging": lambda: attacks.Averaging(answers=20),
    "reconstruction": lambda: attacks.Reconstruction(people=16, questions=64),
    "linear reconstruction": lambda: attacks.LinearReconstruction(people=8, questions=24),
    "membership": lambda: attacks.StatisticsMembership(people=10, rates=np.full(60, 0.3)),
    "model membership": lambda: attacks.ModelMembership(features=X, labels=Y, people=12, penalty=0.003),
    "attribute inference": lambda: attacks.AttributeInference(features=X, labels=Y, people=30, width=0.2),
}
LAPLACE = mechanisms.Laplace(sensitivity=1.0, epsilon=1.0)
FEW = {"linear reconstruction": 60, "model membership": 60}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_no_attack_beats_its_cap(name: str) -> None:
    """False alarm: 1e-9 for each run; the curve is of everything that the attacker sees of the person."""
    attack = EVERY[name]()
    assert name == attack.NAME
    for epsilon in (0.5, 4.0):
        for defence in attack.defences(epsilon=epsilon, delta=1e-6).values():
            outcome = attack.run(defence, trials=FEW.get(name, 3000))
            assert outcome.curve is not None
            assert not outcome.beats_cap
            assert outcome.cap <= curves.approximate(epsilon=outcome.curve.epsilon(delta=1e-6), delta=1e-6).guess(
                prior=0.5
            )
            if outcome.expected is not None:
                assert agrees(outcome, outcome.expected)
                assert outcome.expected <= outcome.cap + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_without_privacy_every_attack_works(name: str) -> None:
    outcome = EVERY[name]().run(trials=60 if name == "linear reconstruction" else 1000)
    assert above(outcome, 0.5)
    assert outcome.cap == 1.0
    assert outcome.expected is None or agrees(outcome, outcome.expected)


@pytest.mark.parametrize("name", EVERY)
def test_the_whole_release_stays_within_epsilon(name: str) -> None:
    attack = EVERY[name]()
    for label, defence in attack.defences(epsilon=2.0).items():
        if label != "ε for each answer":  # the one that forgets to add up
            assert attack.promised(defence).epsilon(delta=0.0) <= 2.0 * (1 + 1e-6)


def test_a_mechanism_that_lies_about_its_noise_is_seen_to_beat_the_cap() -> None:
    """The power of `beats_cap`: half the noise that the curve speaks of."""

    class Liar(mechanisms.Mechanism):
        curve = curves.laplace(scale=4.0)
        sensitivity = 1

        def release(self, value, *, entropy=None):
            return mechanisms.Laplace(sensitivity=1.0, scale=0.5).release(float(value))

    outcome = attacks.Averaging(answers=4).run(Liar(), trials=2000)
    assert outcome.beats_cap


def test_an_outcome_says_all_in_one_sentence() -> None:
    outcome = attacks.Outcome("an attack", "noise", 50, 100, curves.pure(epsilon=1.0), confidence=0.99)
    assert outcome.rate == outcome.baseline == 0.5
    assert outcome.cap == pytest.approx(math.e / (1 + math.e), abs=1e-12)
    assert "right 50.0 % of the time (99 % sure: 36." in outcome.sentence
    assert "nobody is right more often than 73.11 %" in str(outcome)
    bare = attacks.Outcome("an attack", "no privacy", 100, 100, None)
    assert bare.cap == 1.0
    assert "nothing limits the attacker" in bare.sentence


def test_intervals_are_exact_clopper_pearson() -> None:
    from scipy.stats import beta

    outcome = attacks.Outcome("an attack", "noise", 37, 91, None)
    low, high = outcome.interval
    assert low == pytest.approx(beta.ppf(0.025, 37, 55), abs=1e-12)
    assert high == pytest.approx(beta.ppf(0.975, 38, 54), abs=1e-12)


def test_the_tail_of_a_sum_of_laplace_variables() -> None:
    """Independent answer: the density of the sum by its characteristic function, in mpmath."""
    for count, x in ((4, 2.0), (10, 1.0)):

        def integrand(t: mp.mpf, count: int = count, x: float = x) -> mp.mpf:
            return mp.sin(t * x) / t / (1 + t * t) ** count

        tail = mp.mpf(1) / 2 - mp.quad(integrand, [0, *(mp.pi * j / x for j in range(1, 20))]) / mp.pi
        assert laplace_sum_tail(count, x) == pytest.approx(float(tail), abs=1e-8)
    assert laplace_sum_tail(1, 1.0) == pytest.approx(math.exp(-1) / 2, rel=1e-14)
    assert laplace_sum_tail(500, 250.0) < 1e-6
    assert laplace_sum_tail(7, 0.0) == pytest.approx(0.5, rel=1e-14)


def test_no_evidence_is_no_better_than_a_coin() -> None:
    chance = np.random.default_rng(0)
    secrets = np.ones(4000, dtype=bool)
    hits = right(secrets, np.zeros(4000), chance)
    assert 1700 < hits < 2300  # a fair coin is outside with probability 1e-21


def test_a_mechanism_that_is_asked_one_by_one_has_the_same_law() -> None:
    """A subclass of Mechanism without vectors gets one call for each number. False alarm 1e-9."""
    wrapped = mechanisms.Laplace(sensitivity=1.0, epsilon=1.0).then(lambda y: y)
    attack = attacks.Differencing(people=3)
    outcome = attack.run(wrapped, trials=4000)
    assert agrees(outcome, attack.expected(mechanisms.Laplace(sensitivity=1.0, epsilon=1.0)))


def test_progress_counts_every_round() -> None:
    seen = []
    attacks.Averaging(answers=2**18).run(trials=5, progress=seen.append)
    assert sum(seen) == 5
    assert len(seen) > 1
    attack = attacks.Differencing(people=9)
    assert attack_game.rounds_of(attack, epsilon=[1.0, 2.0], trials=10) == 50


def test_a_sweep_has_a_picture_with_every_number_in_it() -> None:
    found = attacks.sweep(attacks.Differencing(people=9), epsilon=[2.0, 0.5], trials=2000)
    assert found.bare is not None
    assert found.bare.rate == 1.0
    assert [list(series) for series in found.series.values()] == [[0.5, 2.0]] * 2
    assert len(found.outcomes) == 4
    panel = found.figure.panels[0]
    assert panel.lines["randomized response: cap"].stroke == "dashed"
    for name, theory in found.theory.items():
        assert panel.lines[name].y == theory.expected
        assert all(e <= c + 1e-9 for e, c in zip(theory.expected, theory.cap, strict=True))
    plots.render(found.figure)


@pytest.mark.parametrize("levels", [[50.0], [1e-6], [40.0], [1e-6, 50.0]], ids=str)
def test_lines_end_where_the_defences_do(levels: list[float]) -> None:
    """Randomized response is there from 1e-6 to 50: lines that went beyond refused an ε that nobody had asked for."""
    found = attacks.sweep(attacks.Differencing(people=9), epsilon=levels, trials=10)
    places = found.theory["randomized response"].x
    assert min(places) >= 1e-6 * (1 - 1e-9)
    assert max(places) <= 50.0
    assert min(places) < max(places)
    assert min(places) <= levels[0] * (1 + 1e-9)
    assert max(places) >= levels[-1] * (1 - 1e-9)
    plots.render(found.figure)


def test_measurements_are_not_joined() -> None:
    """Without a closed form there are dots with their intervals, the first of which has the name; none at the frame."""
    found = attacks.sweep(attacks.Intersection(size=4, chance=0.25), epsilon=[0.5, 2.0, 90.0], trials=20)
    panel = found.figure.panels[0]
    for name, theory in found.theory.items():
        if theory.expected is None:
            assert panel.lines[name].x == (0.5, 0.5)
            assert panel.lines[name].y == found.series[name][0.5].interval
    assert any(theory.expected is None for theory in found.theory.values())
    assert panel.x.low < 0.5
    assert panel.x.high > 90.0


def test_lines_are_worked_out_for_a_picture_only(monkeypatch: pytest.MonkeyPatch) -> None:
    attack = attacks.Differencing(people=9)
    asked: list[object] = []
    monkeypatch.setattr(attack_game, "theory_of", lambda *a, truly=attack_game.theory_of: asked.append(a) or truly(*a))
    found = attacks.sweep(attack, epsilon=[1.0], trials=10)
    assert not asked
    assert found.figure.panels
    assert found.theory is found.theory
    assert len(asked) == len(found.series), "once for each name, however often they are looked at"


def test_one_outcome_has_a_picture() -> None:
    outcome = attacks.Differencing(people=9).run(local.RandomizedResponse(epsilon=1.0), trials=500)
    figure = outcome.figure
    line = figure.panels[0].lines["nobody beats 73.11 % at even odds"]
    assert max(line.y) <= 1
    assert line.y[50] == pytest.approx(outcome.cap)
    plots.render(figure)
    assert attacks.Differencing(people=9).run(trials=5).figure.panels


WRONG = {
    "no defence": (lambda a: a.run("noise"), InvalidParameter, "must be a mechanism"),
    "a curve": (lambda a: a.run(curves.pure(epsilon=1)), InvalidParameter, "must be a mechanism"),
    "no attack": (lambda a: attacks.sweep(5, epsilon=1.0), InvalidParameter, "must be an attack"),
    "no rounds": (lambda a: a.run(trials=0), InvalidParameter, "at least 1"),
    "half rounds": (lambda a: a.run(trials=1.5), InvalidParameter, "whole number"),
    "sure": (lambda a: a.run(confidence=1.0), InvalidParameter, "strictly between"),
    "other protocol": (
        lambda a: a.run(local.KaryRandomizedResponse(categories=4, epsilon=1.0)),
        InvalidOperation,
        "symmetric",
    ),
    "half sensitivity": (
        lambda a: a.run(mechanisms.Laplace(sensitivity=0.5, epsilon=1.0)),
        InvalidParameter,
        "at least 1",
    ),
    "many at once": (
        lambda a: a.run(mechanisms.Laplace(sensitivity=1.0, epsilon=1.0, dimension=3)),
        InvalidParameter,
        "left out",
    ),
    "no number": (
        lambda a: a.run(mechanisms.Laplace(sensitivity=1.0, epsilon=1.0).then(lambda y: "much"), trials=5),
        InvalidParameter,
        "release a number",
    ),
    "epsilon 0": (lambda a: attacks.sweep(a, epsilon=[0.0]), InvalidParameter, "positive"),
    "epsilon nan": (lambda a: attacks.sweep(a, epsilon=[math.nan]), InvalidParameter, "epsilon=nan: must not be NaN"),
    "epsilon text": (lambda a: attacks.sweep(a, epsilon="1"), InvalidParameter, "real number"),
    "epsilon twice": (lambda a: attacks.sweep(a, epsilon=[1.0, 1.0]), InvalidParameter, "twice"),
    "no epsilon": (lambda a: attacks.sweep(a, epsilon=[]), InvalidParameter, "empty"),
    "delta 1": (lambda a: attacks.sweep(a, epsilon=1.0, delta=1.0), InvalidParameter, "strictly between"),
    "bounded": (lambda a: attacks.BoundedNoise(-1), InvalidParameter, "at least 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_refused_in_words(name: str) -> None:
    act, error, words = WRONG[name]
    with pytest.raises(error, match=words):
        act(attacks.Differencing(people=5))


MISMATCHED = {
    "linkage": mechanisms.Laplace(sensitivity=1.0, epsilon=1.0),
    "homogeneity": mechanisms.Histogram(
        categories=(0, 1, 2),
        unit=Unit.replaced_row(),
        epsilon=1.0,
    ),
    "intersection": local.RandomizedResponse(epsilon=1.0),
    "differencing": local.OptimizedUnary(categories=3, epsilon=1.0),
    "averaging": local.RandomizedResponse(epsilon=1.0),
    "reconstruction": local.DuchiMean(low=0.0, high=1.0, epsilon=1.0),
    "linear reconstruction": local.OptimizedUnary(categories=3, epsilon=1.0),
    "membership": local.RandomizedResponse(epsilon=1.0),
    "model membership": mechanisms.Gaussian(sensitivity=1e-6, mu=1.0, dimension=41),
    "attribute inference": mechanisms.Laplace(sensitivity=1.0, epsilon=1.0),
}


@pytest.mark.parametrize("name", EVERY)
def test_a_defence_that_does_not_fit_is_refused(name: str) -> None:
    """Otherwise the cap would be of something else than what the attacker sees."""
    with pytest.raises(DeniableError):
        EVERY[name]().run(MISMATCHED[name], trials=5)


class Wrapped(mechanisms.Mechanism):
    """A user's own wrapper: nobody can see through it."""

    def __init__(self, inner: mechanisms.Mechanism) -> None:
        self.inner = inner

    @property
    def curve(self):
        return self.inner.curve

    def release(self, value, *, entropy=None):
        return self.inner.release(value, entropy=entropy)


SMALL = mechanisms.Laplace(sensitivity=2.0**-7, epsilon=1.0)
HIDDEN = {
    "then": (SMALL.then(lambda y: y), InvalidParameter, "at least 1"),
    "then twice": (SMALL.then(lambda y: y).then(float), InvalidParameter, "at least 1"),
    "a pair": ((LAPLACE * SMALL).then(lambda pair: pair[1]), InvalidParameter, "at least 1"),
    "stairs": (mechanisms.Staircase(sensitivity=2.0**-7, epsilon=1.0), InvalidParameter, "at least 1"),
    "a vector": (
        mechanisms.Laplace(sensitivity=1.0, epsilon=1.0, dimension=2).then(lambda y: y[0]),
        InvalidParameter,
        "left out",
    ),
    "on": (LAPLACE.on(lambda y: 128 * y), InvalidOperation, "without on"),
    "on, then": (LAPLACE.on(lambda y: 128 * y).then(float), InvalidOperation, "without on"),
    "chosen later": (
        LAPLACE.followed_by(lambda answers: SMALL, curve=SMALL.curve).then(lambda answers: answers[1]),
        InvalidOperation,
        "chosen adaptively",
    ),
    "a catastrophe": (
        mechanisms.cautionary.Catastrophe(SMALL, statistic=lambda y: y, delta=0),
        InvalidOperation,
        "attribute sensitivity",
    ),
    "one of their own": (Wrapped(SMALL), InvalidOperation, "attribute sensitivity"),
    "one of their own, then": (Wrapped(SMALL).then(float), InvalidOperation, "attribute sensitivity"),
}


@pytest.mark.parametrize("attack", ["differencing", "averaging", "reconstruction"])
@pytest.mark.parametrize("name", HIDDEN)
def test_noise_made_for_less_is_seen_under_its_wrapping(name: str, attack: str) -> None:
    """A wrapper must not hide it: noise for 2⁻⁷ under a number that moves by 1 would beat the cap of its curve."""
    defence, error, words = HIDDEN[name]
    with pytest.raises(error, match=words):
        EVERY[attack]().run(defence, trials=5)


def test_what_would_have_beaten_its_cap() -> None:
    """The power of the test above: played all the same, the wrapped noise is beyond its cap."""
    attack, defence = attacks.Differencing(people=3), SMALL.then(lambda y: y)
    hits = attack._play(defence, 500, np.random.default_rng())
    assert attacks.Outcome("differencing", "small noise", hits, 500, defence.curve).beats_cap


def test_noise_that_is_bounded_has_no_curve() -> None:
    outcome = attacks.Averaging(answers=50).run(attacks.BoundedNoise(2), trials=200)
    assert outcome.curve is None
    assert outcome.cap == 1.0
    assert above(outcome, 0.5)
    for name in ("linkage", "intersection", "model membership", "attribute inference"):
        with pytest.raises(InvalidOperation):
            EVERY[name]().run(attacks.BoundedNoise(1), trials=5)


def test_a_protocol_does_not_release_numbers() -> None:
    with pytest.raises(InvalidOperation):
        noisy(local.RandomizedResponse(epsilon=1.0), np.ones(3, dtype=np.int64), np.random.default_rng())
