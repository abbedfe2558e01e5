"""Attribute inference, also called model inversion: a person's secret attribute from a model and public attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from deniable.attacks.attack_game import Attack, BoundedNoise, Defence, Floats, coins, right
from deniable.attacks.attacked_models import Bits, Neighbours, features_of
from deniable.curves import Curve, curve_arguments
from deniable.errors import InvalidParameter
from deniable.local import Protocol, RandomizedResponse
from deniable.local.binary_responses import FlippedAnswer
from deniable.mechanisms import Mechanism


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class AttributeInference(Attack):
    """Guess the secret value under which the model is most confident of the true label (Fredrikson et al. 2014).

    A nearest-neighbours model is trained on n people with public features, a secret yes-or-no feature and a label. Its
    users see its confidence in a label. The attacker knows a person's public features and label, tries both values of
    the secret, and takes the one with the higher confidence in the label. The secret is a coin, so it cannot be
    inferred from other people: a correct guess means that the model memorised it.

    With randomized response, each person's secret is randomized before training, so the model can memorise only the
    randomized value, which is true with probability kept = e^ε/(1 + e^ε). If the guess is right about the memorised
    value with probability q, it is right about the true one with probability kept·q + (1 - kept)(1 - q).
    """

    features: Floats
    labels: Bits
    people: int
    model: Neighbours
    NAME: ClassVar[str] = "attribute inference"
    ROUNDS: ClassVar[int] = 4_000

    def __init__(self, *, features: Any, labels: Any, people: int, width: float) -> None:
        x, y = features_of(features, labels)
        if not 1 <= curve_arguments.integer("people", people, 1) <= len(x):
            raise InvalidParameter("people", people, "must be at most the number of rows to draw from")
        for name, value in (
            ("features", x),
            ("labels", y),
            ("people", people),
            ("model", Neighbours(width=curve_arguments.positive("width", width))),
        ):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"AttributeInference({self.people} people, {self.features.shape[1]} public features)"

    def seen(self, defence: Mechanism | Protocol) -> Curve:
        if not isinstance(defence, FlippedAnswer):
            raise self._refuse(defence, "a symmetric yes-or-no protocol")
        return defence.curve

    def defences(self, *, epsilon: float, delta: float | None = None) -> dict[str, Defence]:
        return {"randomized response": RandomizedResponse(epsilon=epsilon)}

    def _at_once(self) -> int:
        return 500

    def _play(self, defence: Defence, rounds: int, chance: np.random.Generator) -> int:
        if isinstance(defence, BoundedNoise):
            raise self._refuse(defence, "a symmetric yes-or-no protocol")
        secrets, evidence = coins(rounds, chance), np.empty(rounds)
        for i in range(rounds):
            picked = chance.permutation(len(self.features))[: self.people]
            held = coins(self.people, chance)
            held[0] = secrets[i]
            if isinstance(defence, FlippedAnswer):
                held = np.asarray(defence.randomize(held))
            trained = np.column_stack([self.features[picked], held])
            tried = np.column_stack([np.repeat(self.features[picked[:1]], 2, axis=0), [0.0, 1.0]])
            no, yes = self.model.yes(trained, self.labels[picked], tried)
            evidence[i] = yes - no if self.labels[picked[0]] else no - yes
        return right(secrets, np.where(np.abs(evidence) < 1e-12, 0.0, evidence), chance)
