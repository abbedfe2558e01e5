"""Reconstruction: from many answers about groups to the secret of everybody (Dinur & Nissim 2003; source 001, FACTS 6).

n people, one bit each. Each question compares two groups: every person is put on one of two sides at random, and the
answer is how many more have it on the first side. A person moves each answer by 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from deniable.attacks.base import (
    AT_ONCE,
    BLIND,
    Attack,
    Bits,
    Defence,
    Floats,
    gaussian_share,
    moves_by_one,
    noisy,
    normal_cdf,
    right,
    share_of,
)
from deniable.curves import Curve, check
from deniable.errors import NOTHING, InvalidParameter, NotCertifiable
from deniable.local import Protocol, RandomizedResponse
from deniable.local.binary import FlippedAnswer
from deniable.mechanisms import Gaussian, Laplace, Mechanism


class GroupAttack(Attack):
    """Questions about groups. In each round everybody's secret is a new coin, and one person is judged."""

    __slots__ = ()
    people: int
    questions: int
    asked: NDArray[np.int64]

    def seen(self, defence: Mechanism | Protocol) -> Curve:
        if isinstance(defence, Mechanism):
            return moves_by_one(defence, self.NAME).curve ** self.questions
        if isinstance(defence, FlippedAnswer):
            return defence.curve  # one report each, whatever is asked of the reports
        raise self._refuse(defence, "a mechanism for one number or a symmetric yes-or-no protocol")

    def defences(self, *, epsilon: float, delta: float | None = None) -> dict[str, Defence]:
        made: dict[str, Defence] = {
            "Laplace on each answer": share_of(epsilon, self.questions),
            "randomized response": RandomizedResponse(epsilon=epsilon),
        }
        if delta is None:
            return made
        return made | {"Gaussian on each answer": gaussian_share(epsilon, delta, self.questions)}

    def _at_once(self) -> int:
        return max(1, AT_ONCE // (self.people + self.questions))

    def _world(self, defence: Defence, rounds: int, chance: np.random.Generator) -> tuple[Bits, Floats]:
        """Everybody's secrets, and the answers."""
        secrets = chance.integers(0, 2, size=(rounds, self.people)).astype(np.bool_)
        if isinstance(defence, Protocol):
            reports = np.asarray(defence.randomize(secrets.ravel())).reshape(secrets.shape)
            return secrets, (reports.astype(np.int64) @ self.asked.T).astype(np.float64)
        return secrets, noisy(defence, secrets.astype(np.int64) @ self.asked.T, chance)

    def _judged(self, secrets: Bits, found: Floats, chance: np.random.Generator) -> int:
        """One person of each round, picked at random: what is right about them is independent between rounds, what is
        right about two people of one round is not.
        """
        rows = np.arange(len(secrets))
        who = chance.integers(0, self.people, size=len(secrets))
        evidence = found[rows, who] - BLIND
        return right(secrets[rows, who], np.where(np.abs(evidence) < 1e-9, 0.0, evidence), chance)


def _questions(people: Any, questions: Any, seed: Any) -> NDArray[np.int64]:
    n = check.integer("people", people, 1)
    m = check.integer("questions", questions, 1)
    if n * m > 10**8:
        raise InvalidParameter("questions", questions, "people × questions must be at most 100 million")
    return np.random.default_rng(check.integer("seed", seed, 0)).choice(np.array([-1, 1]), size=(m, n))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reconstruction(GroupAttack):
    """Least squares: x̂ = A⁺a, each entry rounded.

    With n questions or more and no noise, everybody's secret comes out. With noise of standard deviation s on each
    answer, x̂ has the standard deviation s√[(AᵀA)⁻¹]ᵢᵢ ≈ s/√questions: noise far below √n answers nothing. With Gaussian
    noise a bit is right with probability Φ(1/(2σ√[(AᵀA)⁻¹]ᵢᵢ)), which for many questions is the cap Φ(μ/2),
    μ = √questions/σ: least squares is then as good as any attack there is.

    >>> attack = Reconstruction(people=32, questions=64, seed=1)
    >>> attack.run(trials=500).rate
    1.0
    """

    people: int
    questions: int
    seed: int = 0
    """Of the questions, which are public."""
    asked: NDArray[np.int64] = field(init=False, repr=False, compare=False)
    inverse: Floats = field(init=False, repr=False, compare=False)
    NAME: ClassVar[str] = "reconstruction"

    def __post_init__(self) -> None:
        asked = _questions(self.people, self.questions, self.seed)
        object.__setattr__(self, "asked", asked)
        object.__setattr__(self, "inverse", np.linalg.pinv(asked.astype(np.float64)))

    def expected(self, defence: Defence) -> float | None:
        if np.linalg.matrix_rank(self.asked) < self.people:
            return None
        if defence is None:
            return 1.0
        if isinstance(defence, FlippedAnswer):
            return float(defence.support.own)
        if isinstance(defence, Gaussian) and defence.exponent is not None:
            spread = np.sqrt(np.sum(self.inverse**2, axis=1))  # √[(AᵀA)⁻¹]ᵢᵢ
            return float(np.mean(normal_cdf(BLIND / (defence.sigma * spread))))
        if isinstance(defence, Laplace) and defence.exponent is not None:
            return float(np.mean([_below_half(defence.scale * np.abs(row)) for row in self.inverse]))
        return None

    def _play(self, defence: Defence, rounds: int, chance: np.random.Generator) -> int:
        secrets, answers = self._world(defence, rounds, chance)
        return self._judged(secrets, answers @ self.inverse.T, chance)


def _below_half(scales: Floats) -> float:
    """P(E < 1/2) for the sum E of independent Laplace variables of these scales.

    By the characteristic function Π 1/(1 + s²t²): 1/2 + (1/π) ∫ sin(t/2)/t Π 1/(1 + s²t²) dt over t > 0, which for more
    than a few scales falls off like a Gaussian's. The midpoint rule with step h leaves out what lies beyond 2π/h - 1/2.
    """
    spread = math.sqrt(2 * float(np.sum(scales**2)))
    if spread < 1 / 80:
        return 1.0  # 1/2 is more than forty standard deviations away
    points = 300
    t = (np.arange(points) + 0.5) * (12 / spread / points)
    falls = np.exp(-np.sum(np.log1p(np.outer(t, scales) ** 2), axis=1))
    return float(BLIND + np.sum(np.sin(t / 2) / t * falls) * (t[1] - t[0]) / math.pi)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LinearReconstruction(GroupAttack):
    """Linear programming: the point of [0, 1]^n whose largest error on any answer is smallest, each entry rounded.

    If no answer is off by more than E, then neither is the point found, and it differs from the truth by at most 2E on
    every question. For all 2^n subsets that leaves at most 8E wrong entries (4E for a point of {0, 1}^n); for random
    questions, o(n) of them as long as E is o(√n). So noise that never exceeds a bound is no protection, and nobody
    needs to know the bound (Dinur & Nissim 2003; Dwork, McSherry & Talwar 2007).

    >>> from deniable.attacks import BoundedNoise
    >>> attack = LinearReconstruction(people=24, questions=96, seed=1)
    >>> attack.run(BoundedNoise(1), trials=20).rate > 0.7
    True
    """

    people: int
    questions: int
    seed: int = 0
    asked: NDArray[np.int64] = field(init=False, repr=False, compare=False)
    NAME: ClassVar[str] = "linear reconstruction"
    ROUNDS: ClassVar[int] = 400

    def __post_init__(self) -> None:
        object.__setattr__(self, "asked", _questions(self.people, self.questions, self.seed))

    def expected(self, defence: Defence) -> float | None:
        if np.linalg.matrix_rank(self.asked) < self.people:
            return None
        if defence is None:
            return 1.0
        return float(defence.support.own) if isinstance(defence, FlippedAnswer) else None

    def _at_once(self) -> int:
        return 10  # so that progress can be seen

    def _play(self, defence: Defence, rounds: int, chance: np.random.Generator) -> int:
        secrets, answers = self._world(defence, rounds, chance)
        return self._judged(secrets, np.stack([nearest(self.asked, one) for one in answers]), chance)


def nearest(asked: Any, answers: Any) -> Floats:
    """The x in [0, 1]^n that minimises the largest |a - (Ax)ᵢ|, by linear programming (HiGHS).

    >>> nearest([[1, 0], [1, 1]], [1.2, 0.9]).round(6).tolist()
    [1.0, 0.0]
    """
    from scipy.optimize import linprog

    matrix, seen = np.asarray(asked, dtype=np.float64), np.asarray(answers, dtype=np.float64)
    if matrix.ndim != 2 or seen.shape != matrix.shape[:1]:
        raise InvalidParameter("answers", NOTHING, "must be one number for each question")
    count = matrix.shape[1]
    slack = np.ones((len(seen), 1))
    limits = np.block([[matrix, -slack], [-matrix, -slack]])
    found = linprog(
        np.append(np.zeros(count), 1.0),
        A_ub=limits,
        b_ub=np.concatenate([seen, -seen]),
        bounds=[(0, 1)] * count + [(0, None)],
        method="highs",
    )
    if found.x is None:
        raise NotCertifiable("the linear program could not be solved")
    return np.asarray(found.x[:count])
