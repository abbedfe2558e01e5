"""Attacks on published tables without names: linkage, homogeneous classes, and the intersection of two releases.

In each, the attacker knows a person's quasi-identifiers (sex, birth date, ZIP code) and wants one secret. Without
privacy, a table of the quasi-identifiers and the secret is published. With privacy, either each person randomizes their
secret before it enters the table, or noisy counts of the secrets in each class are published (a `Histogram` of the two
secrets under `Unit.replaced_row()`; a person is in one class, so the classes are disjoint).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from deniable.attacks import anonymity_measures
from deniable.attacks.anonymity_measures import Table
from deniable.attacks.attack_game import (
    AT_ONCE,
    BLIND,
    Attack,
    Bits,
    BoundedNoise,
    Defence,
    Floats,
    Ints,
    coins,
    right,
)
from deniable.curves import Curve, curve_arguments
from deniable.errors import NOTHING, InvalidParameter
from deniable.local import Protocol, RandomizedResponse
from deniable.local.binary_responses import FlippedAnswer
from deniable.mechanisms import DiscreteLaplace, Histogram, Mechanism
from deniable.mechanisms.additive_noise import gaussian_mu
from deniable.units import Relation, Unit


def counts_of_secrets(*, epsilon: float | None = None, mu: float | None = None) -> Histogram:
    """Noisy counts of the two secrets, for tables that differ by one secret: discrete Laplace noise for ε, Gaussian
    noise for μ."""
    return Histogram(categories=(0, 1), unit=Unit.replaced_row(), epsilon=epsilon, mu=mu)


ALLOWED = "a Histogram of two secrets or a symmetric yes-or-no protocol"


class TableAttack(Attack):
    """The common part of attacks on tables."""

    __slots__ = ()

    def seen(self, defence: Mechanism | Protocol) -> Curve:
        if isinstance(defence, Histogram):
            if len(defence) != 2 or defence.unit.relation is not Relation.REPLACE:
                raise InvalidParameter(
                    "defence",
                    defence,
                    "must be a Histogram of two secrets for Unit.replaced_row()",
                    "write attack.defences(epsilon=)",
                )
            return defence.curve**self._releases
        if isinstance(defence, FlippedAnswer):
            return defence.curve**self._releases
        raise self._refuse(defence, ALLOWED)

    @property
    def _releases(self) -> int:
        return 1

    def defences(self, *, epsilon: float, delta: float | None = None) -> dict[str, Defence]:
        each = curve_arguments.positive("epsilon", epsilon) / self._releases
        made: dict[str, Defence] = {
            "randomized response": RandomizedResponse(epsilon=each),
            "noisy counts": counts_of_secrets(epsilon=each),
        }
        if delta is None:
            return made
        mu = gaussian_mu(epsilon, curve_arguments.inner_probability("delta", delta)) / math.sqrt(self._releases)
        return made | {"Gaussian noisy counts": counts_of_secrets(mu=mu)}

    def _evidence(self, defence: Defence, with_it: Ints, without: Ints, secrets: Bits) -> Floats:
        """The published number of people in the person's class with the secret, minus the number without it.

        `with_it` and `without` count the other people of the class, as published.
        """
        if isinstance(defence, BoundedNoise):
            raise self._refuse(defence, ALLOWED)
        reports = np.asarray(defence.randomize(secrets)) if isinstance(defence, FlippedAnswer) else secrets
        counts = np.stack([without + ~reports, with_it + reports], axis=1)
        if isinstance(defence, Histogram):
            counts = counts + np.asarray(defence.noise.draw(counts.shape, None))  # one release for each round
        return np.asarray(counts[:, 1] - counts[:, 0], dtype=np.float64)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Linkage(TableAttack):
    """Find a person in a table without names from sex, birth date and ZIP code (Sweeney 2000).

    The attacker reads the secrets of all rows that match a person, and guesses the majority. All secrets are coins, so
    in a class of c people the guess is right with probability P_c = 1/2 + C(c-1, ⌊(c-1)/2⌋)/2^c: always if the person
    is unique, 3/4 in a class of two or three. The rate over the table is the mean of P_c over people.

    >>> people = {"sex": ["f", "f", "m", "f"], "zip": [13012, 13012, 13012, 13053]}
    >>> attack = Linkage(people, quasi=["sex", "zip"])
    >>> attack.expected(None)
    0.875
    >>> attack.unique
    0.5
    """

    sizes: Ints
    """For each person, the number of people in their class."""
    NAME: ClassVar[str] = "linkage"

    def __init__(self, table: Table, *, quasi: Sequence[str]) -> None:
        group = anonymity_measures.classes(table, quasi)
        object.__setattr__(self, "sizes", np.bincount(group)[group])

    def __repr__(self) -> str:
        return f"Linkage({len(self.sizes)} people)"

    @property
    def unique(self) -> float:
        """The share of people who are unique in their class."""
        return float(np.mean(self.sizes == 1))

    def expected(self, defence: Defence) -> float | None:
        chance = float(np.mean(majority(self.sizes)))
        if defence is None:
            return chance
        if isinstance(defence, FlippedAnswer):
            kept = float(defence.support.own)
            return kept * chance + (1 - kept) * (1 - chance)
        sizes, people = np.unique(self.sizes, return_counts=True)
        found = [noisy_majority(defence, *coin_margins(int(size) - 1)) for size in sizes]
        if any(one is None for one in found):
            return None
        return float(np.dot(np.array(found, dtype=np.float64), people) / people.sum())

    def _play(self, defence: Defence, rounds: int, chance: np.random.Generator) -> int:
        secrets = coins(rounds, chance)
        others = self.sizes[chance.integers(0, len(self.sizes), size=rounds)] - 1
        # A coin randomized by a symmetric rule is a coin again, so this is the same for every defence.
        with_it = chance.binomial(others, BLIND)
        return right(secrets, self._evidence(defence, with_it, others - with_it, secrets), chance)


def majority(sizes: Any) -> Floats:
    """The probability that the majority of c coins, including the person's, equals the person's; ties by a coin."""
    from scipy.special import gammaln

    c = np.asarray(sizes, dtype=np.float64)
    half = np.floor((c - 1) / 2)
    return np.asarray(
        BLIND + np.exp(gammaln(c) - gammaln(half + 1) - gammaln(c - half) - c * np.log(2)), dtype=np.float64
    )


def coin_margins(people: int) -> tuple[Ints, Floats]:
    """The possible differences between heads and tails among `people` coins, and their probabilities."""
    from scipy.special import gammaln

    yes = np.arange(people + 1)
    law = np.exp(gammaln(people + 1) - gammaln(yes + 1) - gammaln(people - yes + 1) - people * np.log(2))
    return 2 * yes - people, law


def noisy_majority(defence: Defence, margins: Ints, law: Floats) -> float | None:
    """The probability that the sign of margin + (±1) + W equals the person's ±1, where W is the difference of two
    discrete Laplace variables. N = margin + W is symmetric about 0, so it is (1 + P(N = 0) + P(N = 1))/2. None for
    other noise.

    P(W = w) = c² r^w (2/(1 - r²) + w - 1) for w >= 0, with r = e^(-1/scale) and c = (1 - r)/(1 + r).
    """
    if not isinstance(defence, Histogram) or not isinstance(defence.noise, DiscreteLaplace):
        return None
    r = float(np.exp(-1 / float(defence.noise.width)))

    def difference(w: Ints) -> Floats:
        far = np.abs(w)
        return np.asarray(((1 - r) / (1 + r)) ** 2 * r**far * (2 / (1 - r * r) + far - 1), dtype=np.float64)

    return float((1 + np.sum(law * (difference(-margins) + difference(1 - margins)))) / 2)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Homogeneity(TableAttack):
    """A class of k people protects nobody if all of them have the same secret.

    All other people in the person's class have it, as in the class "3*" of `HOSPITAL_A` (four times cancer). If the
    published class is uniform, the person has it too. No k prevents this; l-diversity was proposed for it
    (Machanavajjhala et al. 2007).

    >>> Homogeneity(size=4).run().rate
    1.0
    """

    size: int
    """The number of people in the class."""
    NAME: ClassVar[str] = "homogeneity"

    def __post_init__(self) -> None:
        curve_arguments.integer("size", self.size, 1)

    def expected(self, defence: Defence) -> float | None:
        if defence is None:
            return 1.0
        if isinstance(defence, FlippedAnswer):
            return self._flipped(float(defence.support.own))
        return noisy_majority(defence, np.zeros(1, dtype=np.int64), np.ones(1))

    def _flipped(self, kept: float) -> float:
        """The expected rate for randomized secrets: the guess compares the class's margin with `_middle`."""
        from scipy.special import gammaln, xlogy

        n = self.size - 1
        yes = np.arange(n + 1)
        log_ways = gammaln(n + 1) - gammaln(yes + 1) - gammaln(n - yes + 1)
        law = np.exp(log_ways + xlogy(yes, kept) + xlogy(n - yes, 1 - kept))
        chance = 0.0
        for secret in (1, 0):
            for report in (1, 0):
                margin = 2 * yes - n + 2 * report - 1 - self._middle(kept)
                guessed = np.where(margin == 0, BLIND, (margin > 0) == secret)
                chance += BLIND * (kept if report == secret else 1 - kept) * float(np.dot(law, guessed))
        return chance

    def _middle(self, kept: float) -> float:
        """The mean margin of the other people, halfway between the mean margins for the person's two secrets."""
        return (self.size - 1) * (2 * kept - 1)

    def _play(self, defence: Defence, rounds: int, chance: np.random.Generator) -> int:
        secrets, others = coins(rounds, chance), np.full(rounds, self.size - 1)
        kept = float(defence.support.own) if isinstance(defence, FlippedAnswer) else 1.0
        with_it = others
        if isinstance(defence, FlippedAnswer) and self.size > 1:
            reports = np.asarray(defence.randomize(np.ones(others.sum(), dtype=np.bool_)))
            with_it = reports.reshape(rounds, -1).sum(axis=1)
        evidence = self._evidence(defence, with_it, others - with_it, secrets)
        return right(secrets, evidence - self._middle(kept), chance)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Intersection(TableAttack):
    """Several k-anonymous tables about one person: the secret must be in all their classes.

    The person's secret is one of two values. In each of m = `releases` tables, the person is in a class of `size`
    people. Each other person has the first value with probability `chance`, the second with the same probability, or
    neither. A table excludes a value that its class does not have. Without privacy the guess is right with probability
    1 - r^m/2, r = 1 - (1 - chance)^(size - 1), which increases with the number of tables, though each is k-anonymous
    (Ganta, Kasiviswanathan & Smith 2008). Releases of noisy counts compose: curve ** m.

    >>> round(Intersection(size=4, chance=0.25).expected(None), 6)
    0.832886
    """

    size: int
    chance: float
    releases: int = 2
    NAME: ClassVar[str] = "intersection"

    def __post_init__(self) -> None:
        curve_arguments.integer("size", self.size, 1)
        if curve_arguments.probability("chance", self.chance) > BLIND:
            raise InvalidParameter(
                "chance", self.chance, "must be at most 1/2: each of two values has this probability"
            )
        curve_arguments.integer("releases", self.releases, 1)

    @property
    def _releases(self) -> int:
        return self.releases

    def seen(self, defence: Mechanism | Protocol) -> Curve:
        if not isinstance(defence, Histogram):
            raise self._refuse(defence, "a Histogram of two secrets")
        return TableAttack.seen(self, defence)  # (super() fails in a dataclass with slots)

    def defences(self, *, epsilon: float, delta: float | None = None) -> dict[str, Defence]:
        made = TableAttack.defences(self, epsilon=epsilon, delta=delta)
        return {name: defence for name, defence in made.items() if isinstance(defence, Histogram)}

    def expected(self, defence: Defence) -> float | None:
        if defence is None:
            return 1 - BLIND * (1 - (1 - self.chance) ** (self.size - 1)) ** self.releases
        return None

    def _play(self, defence: Defence, rounds: int, chance: np.random.Generator) -> int:
        if isinstance(defence, BoundedNoise):
            raise self._refuse(defence, "a Histogram of two secrets")
        secrets = coins(rounds, chance)
        evidence = np.zeros(rounds)
        for _ in range(self.releases):
            others = chance.multinomial(self.size - 1, [self.chance, self.chance, 1 - 2 * self.chance], size=rounds)
            counts = others[:, :2] + np.stack([~secrets, secrets], axis=1)
            if isinstance(defence, Histogram):
                counts = counts + np.asarray(defence.noise.draw(counts.shape, None))
                evidence += self._weight(defence, counts)
            else:
                evidence += (counts[:, 0] == 0).astype(float) - (counts[:, 1] == 0)
        return right(secrets, np.where(np.abs(evidence) < 1e-12, 0.0, evidence), chance)

    def _weight(self, defence: Histogram, counts: Ints) -> Floats:
        """The log-likelihood ratio of "the person is in the second count" against "in the first"."""
        no, yes, law = self._others()

        def likely(secret: int) -> Floats:
            each = law + log_noise(defence, counts[:, :1] - no - (1 - secret))
            each = each + log_noise(defence, counts[:, 1:] - yes - secret)
            top = each.max(axis=1)
            return np.asarray(top + np.log(np.exp(each - top[:, None]).sum(axis=1)))

        return likely(1) - likely(0)

    def _others(self) -> tuple[Ints, Ints, Floats]:
        """Possible numbers of other people with each value, and the logarithms of their probabilities."""
        from scipy.special import gammaln, xlogy

        n = self.size - 1
        no, yes = (grid.ravel() for grid in np.mgrid[: n + 1, : n + 1])
        no, yes = no[no + yes <= n], yes[no + yes <= n]
        ways = gammaln(n + 1) - gammaln(no + 1) - gammaln(yes + 1) - gammaln(n - no - yes + 1)
        return no, yes, ways + xlogy(no + yes, self.chance) + xlogy(n - no - yes, 1 - 2 * self.chance)

    def _at_once(self) -> int:
        return max(1, AT_ONCE // (self.size * (self.size + 1)))


def log_noise(defence: Histogram, z: Ints) -> Floats:
    """log P(noise = z), up to a constant. A rounded Gaussian is approximated by a Gaussian density."""
    width = float(defence.noise.width)
    if isinstance(defence.noise, DiscreteLaplace):
        return np.asarray(-np.abs(z) / width)
    return np.asarray(-((z / width) ** 2) / 2)


def candidates(*releases: tuple[Table, dict[str, Any]], secret: str) -> set[Any]:
    """The possible secrets of a person who is in each of these tables, in the class with the given values.

    `releases` are pairs (table, values known about the person).

    >>> from deniable.attacks import HOSPITAL_A, HOSPITAL_B
    >>> alice = {"zip": "130**", "age": "<30"}, {"zip": "130**", "age": "<35"}
    >>> sorted(candidates((HOSPITAL_A, alice[0]), secret="condition"))
    ['AIDS', 'Heart Disease', 'Viral Infection']
    >>> candidates((HOSPITAL_A, alice[0]), (HOSPITAL_B, alice[1]), secret="condition")
    {'AIDS'}
    """
    if not releases:
        raise InvalidParameter("releases", 0, "must be at least one table")
    if not all(isinstance(each, tuple) and len(each) == 2 for each in releases):
        raise InvalidParameter("releases", NOTHING, "must be pairs (table, dict of known values)")
    left: set[Any] | None = None
    for table, known in releases:
        *given, secrets = anonymity_measures.columns(table, [*known, secret])
        match = np.ones(len(secrets), dtype=np.bool_)
        for column, value in zip(given, known.values(), strict=True):
            match &= np.array([one == value for one in column.tolist()], dtype=np.bool_)
        found = set(secrets[match].tolist())
        left = found if left is None else left & found
    return left or set()
