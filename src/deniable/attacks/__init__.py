"""Attacks that succeed without privacy, and that stay below a known cap against a private mechanism.

Every attack is the same game. A coin decides a person's secret, the curator publishes something, the attacker guesses.
Without privacy the guess is (nearly) always right. Against a mechanism with a curve, no attacker is right more often
than `curve.guess(prior=0.5)`, whatever else they know: (1 + δ(0))/2, and e^ε/(1 + e^ε) for any ε-DP mechanism.

    attack_game                               the game, its outcome, and the cap
    answer_attacks                            attacks on answers: differences, and averages of repeated answers
    reconstruction, exhaustive_reconstruction      all secrets from many answers about groups
    linkage, scoreboard                       attacks on published tables without names
    anonymiser, anonymity_measures            a k-anonymiser as their target, and how anonymous its tables are
    membership, attribute_inference, secret_extraction      attacks on counts and on models
    attacked_models, made_up_worlds           small models and made-up tables to attack
    attack_story, attack_figures              the command `deniable attack`, and its pictures

>>> from deniable import attacks, mechanisms
>>> attack = attacks.Differencing(people=100)
>>> attack.run().rate
1.0
>>> outcome = attack.run(mechanisms.Laplace(sensitivity=1.0, epsilon=1.0), trials=4000)
>>> outcome.beats_cap
False
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.doors import lazy_door

if TYPE_CHECKING:
    from deniable.attacks import anonymiser
    from deniable.attacks.anonymiser import Anonymised, anonymise
    from deniable.attacks.anonymity_measures import Anonymity, anonymity, expected_uniqueness
    from deniable.attacks.answer_attacks import Averaging, Differencing
    from deniable.attacks.attack_game import Attack, BoundedNoise, Outcome, Sweep, sweep
    from deniable.attacks.attack_story import STORIES
    from deniable.attacks.attribute_inference import AttributeInference
    from deniable.attacks.exhaustive_reconstruction import ExhaustiveReconstruction
    from deniable.attacks.linkage import Homogeneity, Intersection, Linkage, candidates
    from deniable.attacks.made_up_worlds import HOSPITAL_A, HOSPITAL_B, population
    from deniable.attacks.membership import ModelMembership, StatisticsMembership
    from deniable.attacks.reconstruction import LinearReconstruction, Reconstruction
    from deniable.attacks.scoreboard import Scoreboard
    from deniable.attacks.secret_extraction import Extraction, SecretExtraction, exposure, exposure_cap

_HOMES = {
    "Anonymised": "anonymiser",
    "Anonymity": "anonymity_measures",
    "Attack": "attack_game",
    "AttributeInference": "attribute_inference",
    "Averaging": "answer_attacks",
    "BoundedNoise": "attack_game",
    "Differencing": "answer_attacks",
    "ExhaustiveReconstruction": "exhaustive_reconstruction",
    "Extraction": "secret_extraction",
    "HOSPITAL_A": "made_up_worlds",
    "HOSPITAL_B": "made_up_worlds",
    "Homogeneity": "linkage",
    "Intersection": "linkage",
    "LinearReconstruction": "reconstruction",
    "Linkage": "linkage",
    "ModelMembership": "membership",
    "Outcome": "attack_game",
    "Reconstruction": "reconstruction",
    "STORIES": "attack_story",
    "Scoreboard": "scoreboard",
    "SecretExtraction": "secret_extraction",
    "StatisticsMembership": "membership",
    "Sweep": "attack_game",
    "anonymise": "anonymiser",
    "anonymiser": "anonymiser",
    "anonymity": "anonymity_measures",
    "candidates": "linkage",
    "expected_uniqueness": "anonymity_measures",
    "exposure": "secret_extraction",
    "exposure_cap": "secret_extraction",
    "population": "made_up_worlds",
    "sweep": "attack_game",
}

__all__ = [
    "HOSPITAL_A",
    "HOSPITAL_B",
    "STORIES",
    "Anonymised",
    "Anonymity",
    "Attack",
    "AttributeInference",
    "Averaging",
    "BoundedNoise",
    "Differencing",
    "ExhaustiveReconstruction",
    "Extraction",
    "Homogeneity",
    "Intersection",
    "LinearReconstruction",
    "Linkage",
    "ModelMembership",
    "Outcome",
    "Reconstruction",
    "Scoreboard",
    "SecretExtraction",
    "StatisticsMembership",
    "Sweep",
    "anonymise",
    "anonymiser",
    "anonymity",
    "candidates",
    "expected_uniqueness",
    "exposure",
    "exposure_cap",
    "population",
    "sweep",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_door(__name__, _HOMES)
