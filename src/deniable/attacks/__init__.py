"""Why all this: attacks that work where there is no privacy, and meet their cap where there is.

Every attack is the same game. A coin decides a person's secret; the curator publishes something; the attacker guesses.
Without privacy the guess is (nearly) always right. Behind a mechanism with a curve nobody is right more often than
`curve.guess(prior=0.5)`, whatever else they know: (1 + δ(0))/2, and e^ε/(1 + e^ε) for any ε-DP mechanism.

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
    from deniable.attacks.answers import Averaging, Differencing
    from deniable.attacks.base import Attack, BoundedNoise, Outcome, Sweep, sweep
    from deniable.attacks.exhaustive import ExhaustiveReconstruction
    from deniable.attacks.inference import AttributeInference
    from deniable.attacks.linkage import Homogeneity, Intersection, Linkage, candidates
    from deniable.attacks.measures import Anonymity, anonymity, expected_uniqueness
    from deniable.attacks.membership import ModelMembership, StatisticsMembership
    from deniable.attacks.ratings import Scoreboard
    from deniable.attacks.reconstruction import LinearReconstruction, Reconstruction
    from deniable.attacks.secrets import Extraction, SecretExtraction, exposure, exposure_cap
    from deniable.attacks.story import STORIES
    from deniable.attacks.worlds import HOSPITAL_A, HOSPITAL_B, population

_HOMES = {
    "Anonymised": "anonymiser",
    "Anonymity": "measures",
    "Attack": "base",
    "AttributeInference": "inference",
    "Averaging": "answers",
    "BoundedNoise": "base",
    "Differencing": "answers",
    "ExhaustiveReconstruction": "exhaustive",
    "Extraction": "secrets",
    "HOSPITAL_A": "worlds",
    "HOSPITAL_B": "worlds",
    "Homogeneity": "linkage",
    "Intersection": "linkage",
    "LinearReconstruction": "reconstruction",
    "Linkage": "linkage",
    "ModelMembership": "membership",
    "Outcome": "base",
    "Reconstruction": "reconstruction",
    "STORIES": "story",
    "Scoreboard": "ratings",
    "SecretExtraction": "secrets",
    "StatisticsMembership": "membership",
    "Sweep": "base",
    "anonymise": "anonymiser",
    "anonymiser": "anonymiser",
    "anonymity": "measures",
    "candidates": "linkage",
    "expected_uniqueness": "measures",
    "exposure": "secrets",
    "exposure_cap": "secrets",
    "population": "worlds",
    "sweep": "base",
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
