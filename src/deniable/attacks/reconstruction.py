"""Reconstruction of all secrets from many answers about groups (Dinur & Nissim 2003).

There are n people with one bit each. Each question compares two groups: every person is put on one of two sides at
random, and the answer is the number of ones on the first side minus the number of ones on the second. A person changes
each answer by 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from deniable.attacks.attack_game import (
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
from deniable.curves import Curve, curve_arguments
from deniable.errors import NOTHING, InvalidParameter, NotCertifiable
from deniable.local import Protocol, RandomizedResponse
from deniable.local.binary_responses import FlippedAnswer
from deniable.mechanisms import Gaussian, Laplace, Mechanism


class GroupAttack(Attack):
    """The common part of attacks by questions about groups. Each round has new secrets, and checks one person's."""

    __slots__ = ()
    people: int
    questions: int
    asked: NDArray[np.int64]

    def seen(self, defence: Mechanism | Protocol) -> Curve:
        if isinstance(defence, Mechanism):
            return moves_by_one(defence, self.NAME).curve ** self.questions
        if isinstance(defence, FlippedAnswer):
            return defence.curve  # one report per person; questions about reports are post-processing
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
        """The secrets of all people, and the answers."""
        secrets = chance.integers(0, 2, size=(rounds, self.people)).astype(np.bool_)
        if isinstance(defence, Protocol):
            reports = np.asarray(defence.randomize(secrets.ravel())).reshape(secrets.shape)
            return secrets, (reports.astype(np.int64) @ self.asked.T).astype(np.float64)
        return secrets, noisy(defence, secrets.astype(np.int64) @ self.asked.T, chance)

    def _judged(self, secrets: Bits, found: Floats, chance: np.random.Generator) -> int:
        """The number of right guesses for one random person in each round. Guesses for two people of one round would
        not be independent."""
        rows = np.arange(len(secrets))
        who = chance.integers(0, self.people, size=len(secrets))
        evidence = found[rows, who] - BLIND
        return right(secrets[rows, who], np.where(np.abs(evidence) < 1e-9, 0.0, evidence), chance)


def _questions(people: Any, questions: Any, seed: Any) -> NDArray[np.int64]:
    n = curve_arguments.integer("people", people, 1)
    m = curve_arguments.integer("questions", questions, 1)
    if n * m > 10**8:
        raise InvalidParameter("questions", questions, "people × questions must be at most 100 million")
    return np.random.default_rng(curve_arguments.integer("seed", seed, 0)).choice(np.array([-1, 1]), size=(m, n))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reconstruction(GroupAttack):
    """Least squares: x̂ = A⁺a, each entry rounded.

    With at least n questions and no noise, all secrets are recovered. With noise of standard deviation s on each
    answer, x̂ has the standard deviation s√[(AᵀA)⁻¹]ᵢᵢ ≈ s/√questions, so noise far below √n does not protect. With
    Gaussian noise a bit is right with probability Φ(1/(2σ√[(AᵀA)⁻¹]ᵢᵢ)). For many questions this is the cap Φ(μ/2),
    μ = √questions/σ: then least squares is an optimal attack.

    >>> attack = Reconstruction(people=32, questions=64, seed=1)
    >>> attack.run(trials=500).rate
    1.0
    """

    people: int
    questions: int
    seed: int = 0
    """Seed of the questions, which are public."""
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
    """P(E < 1/2) for the sum E of independent Laplace variables of these scales, up to about 10⁻¹⁴.

    With the characteristic function φ(t) = Π 1/(1 + s²t²) it is 1/2 + (1/π) Im ∫ e^(it/2) φ(t)/t dt over t > 0
    (Gil-Pelaez 1951). Partial fractions would give a sum of exponentials, but nearly equal scales cancel all of its
    digits. If many scales are similar, φ decays like a Gaussian and the integral can be truncated. If few scales
    dominate, φ decays only like a power. Then, from some T on, the path leaves the real axis upwards, t = T + ir, where
    e^(it/2) decays like e^(-r/2). It crosses no pole, because the poles are at i/s.
    """
    spread = math.sqrt(2 * float(np.sum(scales**2)))
    if spread < 1 / 80:
        return 1.0  # 1/2 is more than forty standard deviations away
    total, at, turn = 0.0, 0.0, TURN
    widest = 1 / float(np.max(scales))
    while (left := math.log(_falls(scales, at) / NEGLIGIBLE)) > 0:
        steepness = float(np.sum(2 * scales**2 * at / (1 + (scales * at) ** 2)))
        if at >= turn and left > FAR * steepness * at:
            beyond = _upwards(scales, at)
            if beyond is not None:
                total += beyond
                break
            turn = 2 * at
        # A panel in which φ falls by at most e^-POWERS and the sine's argument grows by at most 2, no longer than the
        # distance to the poles.
        end = at + min(max(widest, at), POWERS / max(steepness, spread), TURN)
        t, weights = _panel(at, end)
        total += float(np.sum(weights * np.sin(t / 2) / t * _falls(scales, t)))
        at = end
    return min(1.0, max(BLIND, BLIND + total / math.pi))


TURN: Final = 4.0
"""The first t at which the path may leave the real axis, where the sine's argument is 2."""
NEGLIGIBLE: Final = 1e-18
POWERS: Final = 4.0
"""The largest decrease of log φ in one panel."""
END: Final = 80.0
"""The end of the upward path: e^(-40) is negligible."""
FAR: Final = 1.0
"""Leave the real axis if φ, decaying at its present rate in log t, becomes negligible only beyond e^FAR times t."""
NODES: Final = 20
"""Nodes of Gauss-Legendre quadrature on each panel."""


@lru_cache(maxsize=1)
def _nodes() -> tuple[Floats, Floats]:
    return np.polynomial.legendre.leggauss(NODES)


def _panel(low: float, high: float) -> tuple[Floats, Floats]:
    (nodes, weights), half = _nodes(), (high - low) / 2
    return low + half * (1 + nodes), half * weights


def _falls(scales: Floats, t: Any) -> Any:
    """The characteristic function at t of a sum of independent Laplace numbers with these scales: Π 1/(1 + s²t²)."""
    return np.exp(-np.sum(np.log1p((np.asarray(t)[..., None] * scales) ** 2), axis=-1))


def _upwards(scales: Floats, start: float) -> float | None:
    """Im ∫ e^(it/2) φ(t)/t dt along t = start + ir; None if φ grows faster than e^(-r/2) decays."""
    parts = [_panel(low, low + TURN) for low in np.arange(0.0, END, TURN)]
    r, weights = (np.concatenate(sides) for sides in zip(*parts, strict=True))
    # φ is largest next to its poles; the poles beyond the end of the path must be negligible.
    far = np.unique(1 / scales[(scales > 0) & (scales * END < 1)])
    if _log_falls(scales, start, far).max(initial=-math.inf) > math.log(NEGLIGIBLE) - math.log(END):
        return None
    if _log_falls(scales, start, r).max() > _log_falls(scales, start, np.zeros(1))[0] + 1:
        return None
    t = start + 1j * r
    values = np.exp(-r / 2 - np.sum(np.log1p((t[:, None] * scales) ** 2), axis=1))
    return float(np.imag(1j * np.exp(0.5j * start) * np.sum(weights * values / t)))


def _log_falls(scales: Floats, start: float, r: Floats) -> Floats:
    """log |e^(it/2) φ(t)| at t = start + ir."""
    square = np.square((start + 1j * r)[:, None] * scales)
    return np.asarray(-r / 2 - np.sum(np.log(np.abs(1 + square)), axis=1))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LinearReconstruction(GroupAttack):
    """Linear programming: the point of [0, 1]^n with the smallest maximal error on the answers, each entry rounded.

    If every answer has an error of at most E, the solution has at most this error too, and it differs from the truth by
    at most 2E on every question. For all 2^n subsets there are then at most 8E wrong entries (4E for a point of
    {0, 1}^n); for random questions o(n), if E is o(√n). So bounded noise does not protect, and the attacker need not
    know the bound (Dinur & Nissim 2003; Dwork, McSherry & Talwar 2007).

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
        return 10  # few, so that the progress bar moves

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
        raise NotCertifiable("the linear program could not be solved; use fewer people or questions")
    return np.asarray(found.x[:count])
