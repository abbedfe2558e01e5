"""Extraction of secrets from a model that was trained on them: exposure (Carlini, Liu, Erlingsson, Kos & Song 2019).

A secret is drawn uniformly from R candidates and planted into the training text, and a model is trained. The attacker
asks the model for the likelihood of each candidate. The *rank* of the secret is its position among them, and its
*exposure* is log₂ R - log₂ rank: the number of bits that the model saves in guessing. A model that reveals nothing has
an exposure of about 1.44 bits on average; a model that reveals the secret has log₂ R.

**The cap.** Let f be the trade-off function of the training for one added record with the secret (for a group, if there
are several). Then for every rank r, averaged over the secret,

    P(rank <= r) <= 1 - f(r/R),   that is   P(exposure >= b) <= 1 - f(2^-b).

*Proof.* Use "the rank of s is at most r" as a test between training with s and training without any secret. Without a
secret, let its probability be α_s. At most r of the R candidates have a rank of at most r for any model (ties count
against the attacker), so the α_s sum to at most r. With s, its probability is at most 1 - f(α_s). Since f is convex and
decreasing, the average of 1 - f(α_s) is at most 1 - f(average of α_s) <= 1 - f(r/R). ∎

For ε-DP this is at most e^ε r/R: a secret of many bits stays secret even at an ε at which a single bit would not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, final

import numpy as np

from deniable.attacks.attack_game import Floats
from deniable.curves import Curve, curve_arguments
from deniable.curves.curve_display import percent_up
from deniable.errors import NOTHING, InvalidParameter, type_of
from deniable.numbers import above
from deniable.testing.statistics import FALSE_ALARM, lower_bound

MOST_DIGITS: Final = 6

Scores = Callable[[Sequence[str]], Any]
"""Maps candidates to their log-perplexities under the model."""


def exposure(scores: Any, *, secret: int) -> float:
    """log₂ R - log₂ rank of the candidate with index `secret` among R scores. The smallest score is the best guess, and
    ties count against the attacker.

    >>> exposure([3.0, 1.0, 2.0, 4.0], secret=1), exposure([3.0, 1.0, 2.0, 4.0], secret=3)
    (2.0, 0.0)
    """
    listed = curve_arguments.numbers_array("scores", scores)
    return math.log2(len(listed)) - math.log2(rank(listed, curve_arguments.integer("secret", secret, 0)))


def rank(scores: Floats, secret: int) -> int:
    """The number of candidates that are at least as likely as this one, including itself."""
    if secret >= len(scores):
        raise InvalidParameter("secret", secret, "must be the index of a candidate")
    return int(np.count_nonzero(scores <= scores[secret]))


def exposure_cap(curve: Curve, *, bits: float) -> float:
    """The largest possible probability of an exposure of at least `bits`: 1 - f(2^-bits), rounded up.

    >>> from deniable import curves
    >>> round(exposure_cap(curves.pure(epsilon=2), bits=10), 6)  # e²/1024
    0.007216
    """
    if not isinstance(curve, Curve):
        raise InvalidParameter("curve", type_of(curve), "must be a curve", "write mechanism.curve")
    return min(1.0, above(1 - curve.beta(alpha=2.0 ** -curve_arguments.not_negative("bits", bits))))


@final
@dataclass(frozen=True, slots=True)
class Extraction:
    """The result of an extraction attack: the rank of the secret among the candidates in each round."""

    ranks: tuple[int, ...]
    candidates: int
    curve: Curve | None
    """The curve of the training with respect to the secret; None without privacy."""

    @property
    def exposures(self) -> tuple[float, ...]:
        """The exposure in each round, in bits."""
        return tuple(math.log2(self.candidates) - math.log2(each) for each in self.ranks)

    @property
    def rate(self) -> float:
        """The share of rounds in which the best guess was the secret."""
        return self.ranks.count(1) / len(self.ranks)

    def cap(self, *, bits: float) -> float:
        """The largest possible probability of an exposure of at least `bits`; 1 without privacy."""
        return 1.0 if self.curve is None else exposure_cap(self.curve, bits=bits)

    @property
    def beats_cap(self) -> bool:
        """Whether the rounds prove a rate above the cap. A false alarm has probability at most 10⁻⁹."""
        proved = lower_bound(self.ranks.count(1), len(self.ranks), miss=FALSE_ALARM)
        return bool(proved > self.cap(bits=math.log2(self.candidates)))

    def __str__(self) -> str:
        whole = math.log2(self.candidates)
        sentence = (
            f"secret extraction: {self.ranks.count(1)} of {len(self.ranks)} secrets came out as the first of "
            f"{self.candidates:,} guesses, with an exposure of {np.mean(self.exposures):.1f} of {whole:.1f} bits on "
            "average."
        )
        if self.curve is None:
            return sentence + " Nothing limits the attacker."
        return (
            sentence + f" Under this curve nobody extracts a secret more often than {percent_up(self.cap(bits=whole))}."
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SecretExtraction:
    """Extract a number of `digits` digits that was planted into a training text.

    `run(train)` draws a secret, calls `train(secret)`, which trains a model and returns a function that scores
    candidates, and ranks the secret among all of them. `learn.torch.Planted` is such a `train`, with and without
    privacy.

    >>> def remembers(secret):
    ...     return lambda candidates: [0.0 if each == secret else 1.0 for each in candidates]
    >>> SecretExtraction(digits=3).run(remembers, trials=2).exposures == (math.log2(1000),) * 2
    True
    """

    digits: int = 4
    NAME: ClassVar[str] = "secret extraction"

    def __post_init__(self) -> None:
        if not 1 <= curve_arguments.integer("digits", self.digits, 1) <= MOST_DIGITS:
            raise InvalidParameter("digits", self.digits, f"must be at most {MOST_DIGITS}: all candidates are tried")

    @property
    def candidates(self) -> tuple[str, ...]:
        """All possible secrets."""
        return tuple(f"{number:0{self.digits}d}" for number in range(10**self.digits))

    def run(self, train: Callable[[str], Scores], *, trials: int = 1) -> Extraction:
        """Train `trials` models, each with its own random secret, and rank the secrets.

        The cap follows from the attribute `train.curve`, if there is one. Raises `InvalidParameter` unless `train`
        returns one score for each candidate.
        """
        rounds, chance = curve_arguments.integer("trials", trials, 1), np.random.default_rng()
        if not callable(train):
            raise InvalidParameter("train", type_of(train), "must be a function that trains a model on a secret")
        listed, ranks = self.candidates, []
        for place in chance.integers(0, len(listed), size=rounds).tolist():
            scores = curve_arguments.numbers_array("scores", train(listed[place])(listed))
            if len(scores) != len(listed):
                raise InvalidParameter("scores", NOTHING, "must be one number for each candidate")
            ranks.append(rank(scores, place))
        return Extraction(tuple(ranks), len(listed), getattr(train, "curve", None))
