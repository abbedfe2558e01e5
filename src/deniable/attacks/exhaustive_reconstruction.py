"""Reconstruction from answers to all subset-sum questions (Dinur & Nissim 2003, Theorem 5).

There are n people with one bit each. The sum over each of the 2^n subsets is answered with an error of at most E. Any
bits that agree with all answers up to E differ from the true ones in at most 4E places:

*Proof.* Let I be the people with x = 1 and x̂ = 0. The answer to I is within E of |I| and, because x̂ agrees, within E
of 0. So |I| <= 2E. The same holds for people with x = 0 and x̂ = 1. ∎

So any error that grows slower than n reveals nearly all bits: blatant non-privacy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from deniable.attacks.attack_game import Bits, Defence, Floats
from deniable.attacks.reconstruction import GroupAttack
from deniable.curves import curve_arguments
from deniable.errors import NOTHING, InvalidParameter

MOST_PEOPLE: Final = 16
FIRST: Final = 256
"""Number of questions that give the lower bounds by which candidates are sorted."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExhaustiveReconstruction(GroupAttack):
    """All 2^n subset sums, and the bits whose largest disagreement with the answers is smallest.

    >>> from deniable.attacks import BoundedNoise
    >>> attack = ExhaustiveReconstruction(people=8)
    >>> attack.run(trials=50).rate
    1.0
    >>> attack.wrong_bits(error=1)  # at most, by the theorem
    4.0
    """

    people: int
    questions: int = field(init=False)
    asked: NDArray[np.int64] = field(init=False, repr=False, compare=False)
    NAME: ClassVar[str] = "exhaustive reconstruction"
    ROUNDS: ClassVar[int] = 500

    def __post_init__(self) -> None:
        n = curve_arguments.integer("people", self.people, 1)
        if n > MOST_PEOPLE:
            raise InvalidParameter("people", n, f"must be at most {MOST_PEOPLE}: there are 2**people questions")
        object.__setattr__(self, "questions", 2**n)
        subsets = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        object.__setattr__(self, "asked", subsets.astype(np.int64))

    def wrong_bits(self, *, error: float) -> float:
        """The most bits that can be wrong if every answer is within `error` of the truth: 4 × error."""
        return min(4 * curve_arguments.not_negative("error", error), float(self.people))

    def reconstruct(self, answers: Any) -> Bits:
        """The bits with the smallest maximal disagreement with the answers, which are in the order of `asked`.

        A few questions give a lower bound on the disagreement of every candidate. Candidates are tried in the order of
        these bounds, until the next bound exceeds the best disagreement so far.
        """
        given = curve_arguments.numbers_array("answers", answers)
        if len(given) != self.questions:
            raise InvalidParameter("answers", NOTHING, f"must be {self.questions:,} numbers, one for each subset")
        few = np.linspace(0, self.questions - 1, min(FIRST, self.questions)).astype(int)
        bound = np.max(np.abs(self.asked @ self.asked[few].T - given[few]), axis=1)
        best, least = 0, np.inf
        for candidate in np.argsort(bound, kind="stable"):
            if bound[candidate] >= least:
                break
            worst = float(np.max(np.abs(self.asked @ self.asked[candidate] - given)))
            if worst < least:
                best, least = int(candidate), worst
        return np.asarray(self.asked[best] == 1)

    def _at_once(self) -> int:
        return max(1, min(100, 2**22 // (self.questions * self.people)))

    def _play(self, defence: Defence, rounds: int, chance: np.random.Generator) -> int:
        secrets, answers = self._world(defence, rounds, chance)
        found: Floats = np.array([self.reconstruct(one) for one in answers], dtype=np.float64)
        return self._judged(secrets, found, chance)
