"""Membership inference: was this person's data used? From published counts, and from a model.

In both games a coin decides whether the person is included; if not, another person takes their place. So neighbours
differ by one replaced person.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from deniable.attacks import anonymity_measures
from deniable.attacks.answer_attacks import noise_deviation
from deniable.attacks.attack_game import (
    AT_ONCE,
    Attack,
    BoundedNoise,
    Defence,
    Floats,
    Ints,
    coins,
    gaussian_share,
    moves_by_one,
    noisy,
    normal_cdf,
    right,
    share_of,
)
from deniable.attacks.attacked_models import LogisticModel, features_of
from deniable.curves import Curve, curve_arguments
from deniable.errors import NOTHING, InvalidParameter
from deniable.local import Protocol
from deniable.mechanisms import Gaussian, Laplace, Mechanism
from deniable.mechanisms.noise_steps import Additive
from deniable.units import Sensitivity


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class StatisticsMembership(Attack):
    """Membership in a sample from published counts of many attributes (Homer et al. 2008; Sankararaman et al. 2009).

    There are d yes-or-no attributes with public rates p. For each, the number of people who have it, among n, is
    published. The attacker computes the log-likelihood ratio of "in" against "out" for the person's own attributes x,
    with counts taken as normal of variance V = (n-1)p(1-p) + s², where s is the standard deviation of the noise:
    Σ (x-p)(count-np)/V - Σ (x-p)²/2V. With many attributes the guess is right with probability about
    Φ(√(Σ p(1-p)/V)/2). Without noise this is Φ(√(d/n)/2), so d > 10 n attributes reveal membership for any n.

    A replaced person changes each of the d counts by at most 1, and each is released separately: curve ** d.
    """

    people: int
    rates: Floats
    rows: NDArray[np.bool_] | None
    """Real people to draw from. None means that attributes are drawn independently at these rates."""
    NAME: ClassVar[str] = "membership"
    ROUNDS: ClassVar[int] = 4_000

    def __init__(self, *, people: int, rates: Any) -> None:
        listed = curve_arguments.numbers_array("rates", rates)
        if np.any((listed <= 0) | (listed >= 1)):
            raise InvalidParameter("rates", NOTHING, "must lie strictly between 0 and 1")
        self._fill(curve_arguments.integer("people", people, 1), listed, None)

    @classmethod
    def of_table(
        cls, table: anonymity_measures.Table, *, attributes: Sequence[str], people: int
    ) -> StatisticsMembership:
        """Samples of `people` rows from a table of yes-or-no columns. The whole table is the public reference.

        Raises `InvalidParameter` if a column is not 0 or 1 or is constant, or if the table has too few rows.
        """
        given = np.stack(anonymity_measures.columns(table, attributes), axis=1)
        try:
            rows = given.astype(np.float64)
        except (TypeError, ValueError):
            rows = np.full((1, 1), np.nan)
        if not np.all((rows == 0) | (rows == 1)):
            raise InvalidParameter("attributes", NOTHING, "must be columns of yes and no (1 and 0), none missing")
        if len(rows) < curve_arguments.integer("people", people, 1) + 1:
            raise InvalidParameter("people", people, "must be less than the number of rows of the table")
        rates = rows.mean(axis=0)
        if np.any((rates == 0) | (rates == 1)):
            raise InvalidParameter(
                "attributes", NOTHING, "must vary: leave out attributes that all people or none have"
            )
        made = object.__new__(cls)
        made._fill(people, rates, rows == 1)
        return made

    def _fill(self, people: int, rates: Floats, rows: NDArray[np.bool_] | None) -> None:
        for name, value in (("people", people), ("rates", rates), ("rows", rows)):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"StatisticsMembership({self.people} people, {len(self.rates)} attributes)"

    def seen(self, defence: Mechanism | Protocol) -> Curve:
        if not isinstance(defence, Additive):
            raise self._refuse(defence, "Laplace or Gaussian noise")
        return moves_by_one(defence, self.NAME).curve ** len(self.rates)

    def defences(self, *, epsilon: float, delta: float | None = None) -> dict[str, Defence]:
        made: dict[str, Defence] = {"Laplace on each count": share_of(epsilon, len(self.rates))}
        if delta is None:
            return made
        return made | {"Gaussian on each count": gaussian_share(epsilon, delta, len(self.rates))}

    def large_sample_rate(self, defence: Defence) -> float:
        """The approximate probability of a right guess for many independent attributes."""
        spread = self.rates * (1 - self.rates)
        return float(normal_cdf(math.sqrt(np.sum(spread / self._variance(defence))) / 2))

    def _variance(self, defence: Defence) -> Floats:
        found = (self.people - 1) * self.rates * (1 - self.rates) + noise_deviation(defence) ** 2
        return np.asarray(np.maximum(found, 1e-9))

    def _at_once(self) -> int:
        return max(1, AT_ONCE // len(self.rates) // (1 if self.rows is None else self.people))

    def _play(self, defence: Defence, rounds: int, chance: np.random.Generator) -> int:
        inside = coins(rounds, chance)
        person, somebody, others = self._drawn(rounds, chance)
        counts = others + np.where(inside[:, None], person, somebody)
        published = noisy(defence, counts, chance)
        variance = self._variance(defence)
        away = person - self.rates
        evidence = np.sum(away * (published - self.people * self.rates - away / 2) / variance, axis=1)
        return right(inside, evidence, chance)

    def _drawn(self, rounds: int, chance: np.random.Generator) -> tuple[Ints, Ints, Ints]:
        """Attributes of the person and of the replacement, and counts over the other people."""
        d = len(self.rates)
        if self.rows is None:
            one, two = ((chance.random((rounds, d)) < self.rates).astype(np.int64) for _ in range(2))
            return one, two, chance.binomial(self.people - 1, self.rates, size=(rounds, d))
        picked = np.stack([chance.permutation(len(self.rows))[: self.people + 1] for _ in range(rounds)])
        drawn = self.rows[picked].astype(np.int64)
        return drawn[:, 0], drawn[:, 1], drawn[:, 2:].sum(axis=1)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class ModelMembership(Attack):
    """Membership in a training set from a trained model, by a likelihood ratio (Carlini et al. 2022, "LiRA").

    A logistic regression is trained on n people, and its weights are published. For each of a few target people, the
    attacker has trained shadow models with and without that person. The log-odds of a person's true label are about
    normal in both cases; the guess is the likelier case.

    With a mechanism, the weights are published with noise (output perturbation, Chaudhuri, Monteleoni & Sarwate 2011).
    With features of norm at most 1 and penalty λ, replacing one person changes the weights by at most 2/(nλ) in L2.

    `features` and `labels` are the people to draw from: any table of numbers, and yes or no for each row.
    """

    model: LogisticModel
    features: Floats
    labels: NDArray[np.bool_]
    people: int
    NAME: ClassVar[str] = "model membership"
    ROUNDS: ClassVar[int] = 1_000
    TARGETS: ClassVar[int] = 12
    """Number of target people."""
    OWN: ClassVar[int] = 24
    """Number of shadow models with each target, and as many without."""

    def __init__(self, *, features: Any, labels: Any, people: int, penalty: float) -> None:
        x, y = features_of(features, labels)
        if not 1 <= curve_arguments.integer("people", people, 1) < len(x):
            raise InvalidParameter("people", people, "must be less than the number of rows to draw from")
        for name, value in (
            ("model", LogisticModel(penalty=curve_arguments.positive("penalty", penalty))),
            ("features", x),
            ("labels", y),
            ("people", people),
        ):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"ModelMembership({self.people} people, {self.features.shape[1]} features)"

    @property
    def sensitivity(self) -> Sensitivity:
        """The L1 and L2 sensitivity of the weights to one replaced person."""
        l2 = self.model.sensitivity(self.people)
        return Sensitivity(l2=l2, l1=l2 * math.sqrt(self.features.shape[1]) * (1 + 1e-15))

    def seen(self, defence: Mechanism | Protocol) -> Curve:
        if not isinstance(defence, Laplace | Gaussian) or defence.exponent is None:
            raise self._refuse(defence, "Laplace or Gaussian noise for real numbers")
        bound = self.sensitivity
        needed = bound.l1 if isinstance(defence, Laplace) else bound.l2
        if needed is None or defence.sensitivity < needed or defence.dimension != self.features.shape[1]:
            rule = f"must be made for sensitivity={needed} and dimension={self.features.shape[1]}"
            raise InvalidParameter("defence", defence, rule, "write attack.defences(epsilon=)")
        return defence.curve

    def defences(self, *, epsilon: float, delta: float | None = None) -> dict[str, Defence]:
        bound, d = self.sensitivity, self.features.shape[1]
        made: dict[str, Defence] = {
            "Laplace on the weights": Laplace(sensitivity=bound, epsilon=epsilon, dimension=d),
        }
        if delta is None:
            return made
        return made | {
            "Gaussian on the weights": Gaussian(sensitivity=bound, epsilon=epsilon, delta=delta, dimension=d)
        }

    def _at_once(self) -> int:
        return 50  # few, so that the progress bar moves

    def _player(self, defence: Defence, chance: np.random.Generator) -> Callable[[int], int]:
        if isinstance(defence, BoundedNoise):
            raise self._refuse(defence, "Laplace or Gaussian noise for real numbers")
        targets = chance.permutation(len(self.features))[: self.TARGETS]
        learnt = [self._learnt(defence, int(person), chance) for person in targets]
        return lambda rounds: self._judged(defence, rounds, list(zip(targets, learnt, strict=True)), chance)

    def _play(self, defence: Defence, rounds: int, chance: np.random.Generator) -> int:
        return self._player(defence, chance)(rounds)

    def _learnt(self, defence: Defence, person: int, chance: np.random.Generator) -> Floats:
        """Mean and standard deviation of the log-odds over shadow models, without the person and with them."""
        seen = [[self._odds(defence, person, inside, chance) for _ in range(self.OWN)] for inside in (False, True)]
        return np.stack([np.mean(seen, axis=1), np.std(seen, axis=1) + 1e-9], axis=1)

    def _judged(self, defence: Defence, rounds: int, targets: list[Any], chance: np.random.Generator) -> int:
        inside, evidence = coins(rounds, chance), np.empty(rounds)
        for i in range(rounds):
            person, learnt = targets[chance.integers(0, len(targets))]
            odds = self._odds(defence, int(person), bool(inside[i]), chance)
            likely = -(((odds - learnt[:, 0]) / learnt[:, 1]) ** 2) / 2 - np.log(learnt[:, 1])
            evidence[i] = likely[1] - likely[0]
        return right(inside, evidence, chance)

    def _odds(self, defence: Defence, person: int, inside: bool, chance: np.random.Generator) -> float:
        """The log-odds of the person's label under a model trained with them, or with another person instead."""
        others = chance.permutation(len(self.features) - 1)[: self.people]
        others += others >= person
        if inside:
            others[0] = person
        weights = self.model.fit(self.features[others], self.labels[others])
        if isinstance(defence, Mechanism):
            weights = np.asarray(defence.release(weights))
        return self.model.odds(weights, self.features[person], bool(self.labels[person]))
