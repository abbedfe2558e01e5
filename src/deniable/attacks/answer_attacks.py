"""Attacks on answers: the difference of two answers, and the average of many answers to one question.

Both defeat noise without accounting. Neither exceeds its cap if the privacy loss of all answers is accounted for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from deniable.attacks.attack_game import (
    BLIND,
    Attack,
    BoundedNoise,
    Defence,
    coins,
    gaussian_share,
    laplace_sum_tail,
    moves_by_one,
    noisy,
    normal_cdf,
    right,
    share_of,
)
from deniable.curves import Curve, curve_arguments
from deniable.errors import InvalidOperation
from deniable.local import Protocol, RandomizedResponse
from deniable.local.binary_responses import FlippedAnswer
from deniable.mechanisms import DiscreteLaplace, Gaussian, Laplace, Mechanism


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Differencing(Attack):
    """Two harmless questions: "how many have it?" and "how many have it who are not named Z?".

    The second answer does not depend on Z, so the curve with respect to Z is the curve of one answer. Without privacy
    the difference is Z's secret. With Laplace noise of scale b on both, the difference has noise W with
    P(|W| > t) = (1 + t/2b) e^(-t/b), and a guess is right with probability (1 + P(|W| < 1/2))/2.
    With randomized response, the difference is Z's randomized secret, which is right with probability e^ε/(1 + e^ε),
    the cap.

    >>> round(Differencing(people=100).expected(Laplace(sensitivity=1.0, scale=1.0)), 7)
    0.6209183
    """

    people: int
    NAME: ClassVar[str] = "differencing"
    ROUNDS: ClassVar[int] = 40_000

    def __post_init__(self) -> None:
        curve_arguments.integer("people", self.people, 1)

    def seen(self, defence: Mechanism | Protocol) -> Curve:
        if isinstance(defence, Mechanism):
            return moves_by_one(defence, self.NAME).curve
        if isinstance(defence, FlippedAnswer):
            return defence.curve
        raise self._refuse(defence, "a mechanism for one number or a symmetric yes-or-no protocol")

    def defences(self, *, epsilon: float, delta: float | None = None) -> dict[str, Defence]:
        made: dict[str, Defence] = {
            "Laplace on each answer": share_of(epsilon, 1),
            "randomized response": RandomizedResponse(epsilon=epsilon),
        }
        return made if delta is None else made | {"Gaussian on each answer": gaussian_share(epsilon, delta, 1)}

    def expected(self, defence: Defence) -> float | None:
        if defence is None:
            return 1.0
        if isinstance(defence, FlippedAnswer):
            return float(defence.support.own)
        if isinstance(defence, Laplace | DiscreteLaplace):
            if defence.exponent is None:
                r = math.exp(-1 / float(defence.width))  # W = 0 has probability Σ p(z)²
                return (1 + (1 - r) * (1 + r * r) / (1 + r) ** 3) / 2
            return 1 - laplace_sum_tail(2, BLIND / defence.scale)
        if isinstance(defence, Gaussian) and defence.exponent is not None:
            return float(normal_cdf(BLIND / (math.sqrt(2) * defence.sigma)))
        return None

    def _play(self, defence: Defence, rounds: int, chance: np.random.Generator) -> int:
        secrets = coins(rounds, chance)
        others = chance.binomial(self.people - 1, BLIND, size=rounds)
        reported, mechanism = secrets, defence
        if isinstance(defence, Protocol):
            reported, mechanism = np.asarray(defence.randomize(secrets)), None  # the others' reports cancel
        everybody = noisy(mechanism, others + reported, chance)
        without = noisy(mechanism, others, chance)
        return right(secrets, everybody - without - BLIND, chance)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Averaging(Attack):
    """The mean of many answers to the same question.

    The mean of k Laplace answers is unbiased with standard deviation √(2/k) b: noise averages out. The k answers are a
    composition with curve ** k, whether or not it is accounted for. An attacker who knows all other people is right
    with probability P(S > -k/2b) for the sum S of k standard Laplace variables, and Φ(√k/2σ) with Gaussian noise, which
    is the cap.

    >>> round(Averaging(answers=500).expected(Laplace(sensitivity=1.0, epsilon=1.0)), 6)
    1.0
    >>> round(Averaging(answers=500).deviation(Laplace(sensitivity=1.0, epsilon=1.0)), 7)
    0.0632456
    """

    answers: int
    NAME: ClassVar[str] = "averaging"

    def __post_init__(self) -> None:
        curve_arguments.integer("answers", self.answers, 1)

    def seen(self, defence: Mechanism | Protocol) -> Curve:
        if not isinstance(defence, Mechanism):
            raise self._refuse(defence, "a mechanism for one number")
        return moves_by_one(defence, self.NAME).curve ** self.answers

    def defences(self, *, epsilon: float, delta: float | None = None) -> dict[str, Defence]:
        made: dict[str, Defence] = {
            "ε for each answer": share_of(epsilon, 1),
            "ε for all answers": share_of(epsilon, self.answers),
        }
        return made if delta is None else made | {"(ε, δ) for all": gaussian_share(epsilon, delta, self.answers)}

    def deviation(self, defence: Mechanism) -> float:
        """The standard deviation of the mean of the answers."""
        return noise_deviation(defence) / math.sqrt(self.answers)

    def expected(self, defence: Defence) -> float | None:
        if defence is None:
            return 1.0
        if isinstance(defence, Laplace) and defence.exponent is not None:
            return 1 - laplace_sum_tail(self.answers, BLIND * self.answers / defence.scale)
        if isinstance(defence, Gaussian) and defence.exponent is not None:
            return float(normal_cdf(BLIND * math.sqrt(self.answers) / defence.sigma))
        return None

    def _at_once(self) -> int:
        return max(1, 2**19 // self.answers)

    def _play(self, defence: Defence, rounds: int, chance: np.random.Generator) -> int:
        secrets = coins(rounds, chance)
        asked = np.repeat(secrets.astype(np.int64)[:, None], self.answers, axis=1)  # the known others are subtracted
        return right(secrets, noisy(defence, asked, chance).mean(axis=1) - BLIND, chance)


def noise_deviation(defence: Any) -> float:
    """The standard deviation of a mechanism's noise: √2 b for Laplace, σ for Gaussian, or of their integer versions."""
    if defence is None:
        return 0.0
    if isinstance(defence, BoundedNoise):
        return math.sqrt(defence.most * (defence.most + 1) / 3)
    if isinstance(defence, Laplace | DiscreteLaplace):
        if defence.exponent is not None:
            return math.sqrt(2) * defence.scale
        r = math.exp(-1 / float(defence.width))
        return math.sqrt(2 * r) / (1 - r)
    if isinstance(defence, Gaussian):
        return defence.sigma if defence.exponent is not None else math.sqrt(defence.sigma**2 + 1 / 12)
    raise InvalidOperation(
        f"the standard deviation of the noise of {type(defence).__name__} is not known; use Laplace or Gaussian noise"
    )
