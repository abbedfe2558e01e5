"""Linkage of sparse, fuzzy records: the scoreboard attack on published ratings (Narayanan & Shmatikov 2008).

A table of ratings without names is published. The attacker knows a few of a person's ratings from another source; some
are wrong, and none is exact. Every published record gets a score: rare items count more, and similar ratings count
partly. If the best score stands out, the attacker takes this record for the person's record and learns all its
contents.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np

from deniable.attacks.attack_game import Attack, Bits, BoundedNoise, Defence, Floats, Ints, coins, right
from deniable.curves import Curve, curve_arguments
from deniable.errors import InvalidParameter
from deniable.local import Protocol, RandomizedResponse
from deniable.local.binary_responses import FlippedAnswer
from deniable.mechanisms import Mechanism

NEAR = 1.5
"""Two ratings at this distance count as e^-1 of a hit."""
STARS = 5


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Scoreboard(Attack):
    """Find a person's record among sparse ratings from a few approximate ratings, and read the secret in it.

    `people` rate some of `items`, popular ones more often. The attacker knows `known` ratings of the person, each wrong
    by up to `off` stars; `wrong` of them are about items that the person never rated. A record matches if its score
    exceeds the second best by `margin` standard deviations. Without a match the attacker guesses blindly.

    The secret is one more column of the person's record. With randomized response the attacker finds the record as
    before, but its secret is right only as often as the cap allows.

    >>> attack = Scoreboard(people=300, items=400, known=8, seed=1)
    >>> attack.run(trials=300).rate > 0.9
    True
    """

    people: int
    items: int
    known: int = 8
    wrong: int = 2
    off: int = 1
    margin: float = 1.5
    seed: int = 0
    """Seed of the published table."""
    stars: Ints = field(init=False, repr=False, compare=False)
    """Rows are people, columns are items; 0 means that the person did not rate the item."""
    NAME: ClassVar[str] = "scoreboard"
    ROUNDS: ClassVar[int] = 2_000

    def __post_init__(self) -> None:
        n, m = curve_arguments.integer("people", self.people, 2), curve_arguments.integer("items", self.items, 2)
        if n * m > 10**8:
            raise InvalidParameter("items", m, "people × items must be at most 100 million")
        if (
            not 0
            <= curve_arguments.integer("wrong", self.wrong, 0)
            < curve_arguments.integer("known", self.known, 1)
            <= m
        ):
            raise InvalidParameter("known", self.known, "must be more than `wrong`, and at most the number of items")
        curve_arguments.integer("off", self.off, 0)
        curve_arguments.not_negative("margin", self.margin)
        chance = np.random.default_rng(curve_arguments.integer("seed", self.seed, 0))
        # The k-th item is rated by about 0.6/k^0.7 of all people: a few hits, a long tail.
        popular = np.minimum(0.6 * np.arange(1, m + 1) ** -0.7, 0.9)
        rated = chance.uniform(size=(n, m)) < popular
        rated[np.arange(n), chance.integers(0, m, size=n)] = True  # everybody has rated something
        object.__setattr__(self, "stars", np.where(rated, chance.integers(1, STARS + 1, size=(n, m)), 0))

    def seen(self, defence: Mechanism | Protocol) -> Curve:
        if isinstance(defence, FlippedAnswer):
            return defence.curve
        raise self._refuse(defence, "a symmetric yes-or-no protocol for the secret")

    def defences(self, *, epsilon: float, delta: float | None = None) -> dict[str, Defence]:
        return {"randomized response": RandomizedResponse(epsilon=epsilon)}

    def weights(self) -> Floats:
        """The weight of a hit on each item: 1/log(1 + number of people who rated it)."""
        return np.asarray(1 / np.log(np.maximum(np.count_nonzero(self.stars, axis=0), 2.0) + 1))

    def scores(self, items: Ints, stars: Ints) -> Floats:
        """The score of every record, given a person's approximate ratings of some items."""
        theirs = self.stars[:, items]
        near = np.where(theirs > 0, np.exp(-np.abs(theirs - stars) / NEAR), 0.0)
        return np.asarray(near @ self.weights()[items])

    def matched(self, scores: Floats) -> int | None:
        """The index of the record whose score stands out, or None."""
        first, second = np.sort(scores)[-2:][::-1]
        spread = float(np.std(scores))
        return int(np.argmax(scores)) if spread > 0 and first - second >= self.margin * spread else None

    def remembered(self, person: int, chance: np.random.Generator) -> tuple[Ints, Ints]:
        """The attacker's knowledge of a person: items and approximate ratings, some for items that they never rated."""
        own = np.flatnonzero(self.stars[person])
        others = np.flatnonzero(self.stars[person] == 0)
        true = chance.choice(own, size=min(len(own), self.known - self.wrong), replace=False)
        false = chance.choice(others, size=min(len(others), self.wrong), replace=False)
        items = np.concatenate((true, false))
        exact = np.where(self.stars[person, items] > 0, self.stars[person, items], chance.integers(1, STARS + 1))
        shift = chance.integers(-self.off, self.off + 1, size=len(items))
        return items, np.clip(exact + shift, 1, STARS)

    def found(self, *, trials: int, seed: int = 0) -> float:
        """The share of random persons whose record is found. The other persons have no match, or a wrong match."""
        chance = np.random.default_rng(seed)
        who = chance.integers(0, self.people, size=curve_arguments.integer("trials", trials, 1))
        return float(np.mean([self.matched(self.scores(*self.remembered(int(p), chance))) == p for p in who]))

    def _at_once(self) -> int:
        return max(1, 10**7 // self.people)

    def _play(self, defence: Defence, rounds: int, chance: np.random.Generator) -> int:
        if isinstance(defence, BoundedNoise):
            raise self._refuse(defence, "a symmetric yes-or-no protocol for the secret")
        secrets: Bits = coins(rounds, chance)
        reports = np.asarray(defence.randomize(secrets)) if isinstance(defence, FlippedAnswer) else secrets
        evidence = np.zeros(rounds)
        for i, person in enumerate(chance.integers(0, self.people, size=rounds)):
            match = self.matched(self.scores(*self.remembered(int(person), chance)))
            if match is None:
                continue
            # A wrong record contains another person's secret, which is a coin.
            guess = reports[i] if match == person else chance.integers(0, 2) == 1
            evidence[i] = 1.0 if guess else -1.0
        return right(secrets, evidence, chance)
