"""Membership in statistics and in models, and attributes that a model memorised."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from deniable import attacks, local, mechanisms
from deniable.attacks import made_up_worlds
from deniable.attacks.attacked_models import CLOSE, LogisticModel, Neighbours, features_of
from deniable.errors import InvalidParameter
from tests.attacks import real
from tests.attacks.games import above, agrees

X, Y = made_up_worlds.traits(people=300, features=30, seed=7)


# -- statistics ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [None, 3.0, 12.0])
def test_membership_in_statistics_is_near_its_large_sample_rate(sigma: float | None) -> None:
    """Φ(√(Σ pq/V)/2); the limit is off by less than 1.5 points here. False alarm 1e-9 beyond that."""
    attack = attacks.StatisticsMembership(people=60, rates=np.linspace(0.1, 0.9, 400))
    defence = None if sigma is None else mechanisms.Gaussian(sensitivity=1.0, sigma=sigma)
    outcome = attack.run(defence, trials=16_000)
    rate = attack.large_sample_rate(defence)
    assert not above(outcome, rate + 0.015)
    assert above(outcome, rate - 0.06)
    if sigma is None:
        p = attack.rates
        assert rate == pytest.approx(0.5 * math.erfc(-math.sqrt(400 / 59) / 2 / math.sqrt(2)), abs=1e-12)
        assert np.allclose(attack._variance(None), 59 * p * (1 - p))
    else:
        assert outcome.cap == pytest.approx(0.5 * math.erfc(-math.sqrt(400) / sigma / 2 / math.sqrt(2)), abs=1e-7)


@pytest.mark.slow
def test_who_knows_all_others_meets_the_cap() -> None:
    """One person: nobody else to hide behind. All attributes of somebody against the opposite ones: Φ(√d/2σ)."""
    attack = attacks.StatisticsMembership.of_table(
        {"a": [0, 1], "b": [1, 0], "c": [0, 1]}, attributes=["a", "b", "c"], people=1
    )
    defence = mechanisms.Gaussian(sensitivity=1.0, sigma=1.5)
    outcome = attack.run(defence, trials=20_000)
    assert outcome.cap == pytest.approx(0.5 * math.erfc(-math.sqrt(3) / 1.5 / 2 / math.sqrt(2)), abs=1e-7)
    assert agrees(outcome, outcome.cap)


def test_a_table_of_real_people() -> None:
    """Ten questions with yes and no of NHANES: enough to find members of a sample of eight, not behind noise."""
    columns = [
        "HaveSeriousDifficultyWalking",
        "EverBeenToldYouHaveAsthma",
        "DoctorEverSaidYouHadArthritis",
        "VigorousWorkActivity",
        "ModerateWorkActivity",
        "WalkOrBicycle",
        "ModerateRecreationalActivities",
        "OnSpecialDiet",
        "SmokedAtLeast100CigarettesInLife",
        "EverToldDoctorHadTroubleSleeping",
    ]
    attack = attacks.StatisticsMembership.of_table(real.people(columns), attributes=columns, people=8)
    assert above(attack.run(trials=4000), 0.6)
    ours = attack.run(attack.defences(epsilon=1.0)["Laplace on each count"], trials=4000)
    assert not ours.beats_cap
    assert not above(ours, 0.53)


BAD = {
    "rate 1": lambda: attacks.StatisticsMembership(people=5, rates=[0.5, 1.0]),
    "no rates": lambda: attacks.StatisticsMembership(people=5, rates=[]),
    "nobody": lambda: attacks.StatisticsMembership(people=0, rates=[0.5]),
    "not yes or no": lambda: attacks.StatisticsMembership.of_table({"a": [1, 2, 3]}, attributes=["a"], people=1),
    "text": lambda: attacks.StatisticsMembership.of_table({"a": ["x", "y"]}, attributes=["a"], people=1),
    "missing": lambda: attacks.StatisticsMembership.of_table({"a": [1, None, 0]}, attributes=["a"], people=1),
    "too many": lambda: attacks.StatisticsMembership.of_table({"a": [1, 0]}, attributes=["a"], people=2),
    "constant": lambda: attacks.StatisticsMembership.of_table({"a": [1, 1]}, attributes=["a"], people=1),
    "labels": lambda: attacks.ModelMembership(features=X, labels=Y[:-1], people=5, penalty=0.1),
    "labels of three": lambda: attacks.ModelMembership(features=X, labels=np.arange(300), people=5, penalty=0.1),
    "penalty": lambda: attacks.ModelMembership(features=X, labels=Y, people=5, penalty=0.0),
    "people": lambda: attacks.ModelMembership(features=X, labels=Y, people=300, penalty=0.1),
    "nan": lambda: attacks.ModelMembership(features=np.full((3, 2), np.nan), labels=[0, 1, 0], people=1, penalty=0.1),
    "words": lambda: attacks.ModelMembership(features={"a": ["x", "y"]}, labels=[0, 1], people=1, penalty=0.1),
    "width": lambda: attacks.AttributeInference(features=X, labels=Y, people=5, width=0.0),
    "crowd": lambda: attacks.AttributeInference(features=X, labels=Y, people=301, width=0.1),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name: str) -> None:
    with pytest.raises(InvalidParameter):
        BAD[name]()


# -- models ----------------------------------------------------------------------------------------------------------


def test_logistic_regression_finds_the_minimum() -> None:
    """Independent answer: scipy's minimiser on the same objective."""
    from scipy.optimize import minimize

    x, y = features_of(X, Y)
    sign = np.where(y, 1.0, -1.0)
    model = LogisticModel(penalty=0.01)
    found = model.fit(x, y)

    def objective(w: np.ndarray) -> float:
        return float(np.mean(np.logaddexp(0, -sign * (x @ w))) + 0.005 * w @ w)

    best = minimize(objective, np.zeros(x.shape[1]), method="BFGS", options={"gtol": 1e-7}).x
    assert np.allclose(found, best, atol=1e-3)
    assert objective(found) <= objective(best) + 1e-12
    assert model.odds(found, x[0], True) == -model.odds(found, x[0], False) == pytest.approx(x[0] @ found)


def test_one_replaced_person_moves_the_weights_no_further_than_the_bound() -> None:
    """2/(nλ) and what training leaves undone; and the bound is not far too large: some pair comes within a factor 4."""
    x, y = features_of(X, Y)
    assert np.linalg.norm(x, axis=1).max() <= 1
    model, n, farthest = LogisticModel(penalty=0.5), 10, 0.0
    chance = np.random.default_rng(1)
    for _ in range(200):
        rows = chance.integers(0, len(x), size=n)
        w = model.fit(x[rows], y[rows])
        rows[0] = chance.integers(0, len(x))
        farthest = max(farthest, float(np.linalg.norm(w - model.fit(x[rows], y[rows]))))
    assert farthest <= model.sensitivity(n)
    assert farthest > model.sensitivity(n) / 8
    # The worst case: two opposite people against none of the others.
    far = np.zeros((n, 2))
    far[0] = [1.0, 0.0]
    moved = np.linalg.norm(model.fit(far, np.ones(n, bool)) - model.fit(far * -1, np.ones(n, bool)))
    assert moved <= model.sensitivity(n) == pytest.approx(2 / (n * 0.5) + 2 * CLOSE / 0.5)


@pytest.mark.slow
def test_members_of_an_overfitted_model_are_found_and_noise_hides_them() -> None:
    attack = attacks.ModelMembership(features=X, labels=Y, people=10, penalty=0.003)
    assert above(attack.run(trials=600), 0.65)  # measured: 0.90, whoever the people are
    for epsilon, delta in ((1.0, None), (1.0, 1e-5)):
        for defence in attack.defences(epsilon=epsilon, delta=delta).values():
            outcome = attack.run(defence, trials=300)
            assert not outcome.beats_cap
            assert outcome.curve == defence.curve
    assert repr(attack) == "ModelMembership(10 people, 31 features)"


def test_weights_of_another_size_are_refused() -> None:
    attack = attacks.ModelMembership(features=X, labels=Y, people=20, penalty=0.01)
    with pytest.raises(InvalidParameter, match="dimension=31"):
        attack.run(mechanisms.Gaussian(sensitivity=attack.sensitivity, mu=1.0, dimension=30), trials=5)


def test_a_table_may_be_a_data_frame() -> None:
    frame = pd.DataFrame({"age": X[:, 0], "weight": X[:, 1]})
    x, y = features_of(frame, pd.Series(Y))
    assert x.shape == (300, 3)
    assert y.dtype == bool


# -- attributes ------------------------------------------------------------------------------------------------------


def test_neighbours_weigh_by_distance() -> None:
    x = np.array([[0.0], [1.0]])
    sure = Neighbours(width=0.5).yes(x, np.array([True, False]), np.array([[0.0], [0.5], [1.0]]))
    weight = math.exp(-2)
    assert sure == pytest.approx([1 / (1 + weight), 0.5, weight / (1 + weight)])
    assert Neighbours(width=1e-3).yes(x, np.array([True, False]), np.array([[0.1]])) == pytest.approx([1.0])


@pytest.mark.slow
def test_a_model_that_memorises_gives_secrets_away_and_randomized_response_does_not() -> None:
    """With q right about what is memorised, kept q + (1 - kept)(1 - q) are right about the truth."""
    attack = attacks.AttributeInference(features=X[:, :8], labels=Y, people=40, width=0.25)
    bare = attack.run(trials=4000)
    assert above(bare, 0.85)  # measured: 0.925
    kept = math.e / (1 + math.e)
    ours = attack.run(local.RandomizedResponse(epsilon=1.0), trials=4000)
    low, high = (
        kept * q + (1 - kept) * (1 - q)
        for q in attacks.Outcome("", "", bare.hits, 4000, None, confidence=1 - 1e-9).interval
    )
    assert not above(ours, high)
    assert ours.rate > low - 0.05
    assert not ours.beats_cap
    assert repr(attack) == "AttributeInference(40 people, 9 public features)"


@pytest.mark.slow
def test_a_model_of_real_people_memorises() -> None:
    """NHANES: from age, body and blood a model tells who ever smoked; a secret that is a coin is read back from it."""
    public = [
        "AgeInYearsAtScreening",
        "StandingHeightCm",
        "WeightKg",
        "WaistCircumferenceCm",
        "DirectHdlcholesterolMgdl",
        "TotalCholesterolMgdl",
        "BloodLeadUgdl",
        "BloodSeleniumUgl",
        "BloodManganeseUgl",
    ]
    table = real.people([*public, "SmokedAtLeast100CigarettesInLife"])
    labels = table["SmokedAtLeast100CigarettesInLife"]
    attack = attacks.AttributeInference(features=table[public], labels=labels, people=100, width=0.15)
    assert above(attack.run(trials=2000), 0.8)
    ours = attack.run(local.RandomizedResponse(epsilon=1.0), trials=2000)
    assert not ours.beats_cap
    member = attacks.ModelMembership(features=table[public], labels=labels, people=8, penalty=0.003)
    assert above(member.run(trials=600), 0.5)
    assert not member.run(member.defences(epsilon=1.0)["Laplace on the weights"], trials=200).beats_cap
