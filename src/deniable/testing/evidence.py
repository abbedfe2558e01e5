"""Events that distinguish two samples, as evidence against a curve.

For all events S a curve promises P(S) <= e^ε Q(S) + δ(ε). Half of the draws choose S, the other half give a lower bound
on P(S) and an upper bound on Q(S) (Clopper & Pearson). If these bounds violate the promise, so does the mechanism,
except with the stated probability. (`audit.measure` proves more from the same number of draws; the result here is one
event with its two probabilities.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from deniable.audit import distinguishing_columns, score_learning, scores
from deniable.audit.answer_columns import Answers, Floats
from deniable.audit.claim import Promise
from deniable.audit.scores import Score
from deniable.curves import Curve
from deniable.testing import statistics

THRESHOLDS: Final = 64
"""The most thresholds tried on one score."""
CHOOSING: Final = 1e-4
"""Error rate of the bounds that choose an event. The bounds that judge it have their own rate."""
LARGE: Final = 1e3
LEVELS: Final = 40
"""The number of ε at which a promise is evaluated."""


def promise_of(curve: Curve, draws: int) -> Promise:
    """The values of a curve at the ε that `draws` draws can measure."""
    return Promise.of(curve, most=math.log(draws), read=LEVELS)


def excess(promise: Promise, low: Any, high: Any) -> Floats:
    """The largest low - e^ε·high - δ(ε), for P(S) >= low and Q(S) <= high. The promise is broken if it is positive."""
    p, q = np.asarray(low)[..., None], np.asarray(high)[..., None]
    return np.asarray((p - np.exp(promise.epsilons) * q - promise.deltas).max(axis=-1))


@final
@dataclass(frozen=True, slots=True)
class Evidence:
    """A certified event: its probability is at least `low` for one neighbour and at most `high` for the other."""

    excess: float
    low: float
    high: float

    def epsilon(self, delta: float) -> float:
        """The measured ε at this δ: log((low − δ)/high), or 0."""
        return max(0.0, math.log((self.low - delta) / self.high)) if self.low > delta else 0.0

    @property
    def broken(self) -> bool:
        """Whether the event violates the promise."""
        return self.excess > 0

    @property
    def seen(self) -> bool:
        """Whether the event proves that the two distributions differ."""
        return self.low > self.high

    @property
    def words(self) -> str:
        """The event in words; the caller adds the other neighbour."""
        return f"an event has probability at least {self.low:.4g} for one neighbour and at most {self.high:.4g}"


Learner = Callable[[Answers, Answers], Sequence[Score]]


def strongest(learn: Learner, left: Sequence[Any], right: Sequence[Any], promise: Promise, miss: float) -> Evidence:
    """The strongest evidence against the promise, in either order of the two samples. Wrong with probability at most
    `miss`, which two orders with two bounds each share.
    """
    both, each = Answers.of([*left, *right]), miss / 4  # encoded together, so that equal answers get equal codes
    sides = both[: len(left)], both[len(left) :]
    found = [_one_order(learn, p, q, promise, each) for p, q in (sides, sides[::-1])]
    return max(found, key=lambda one: (one.broken, one.excess if one.broken else one.epsilon(0.0)))


def _one_order(learn: Learner, p: Answers, q: Answers, promise: Promise, miss: float) -> Evidence:
    # A quarter of the draws trains the scores, a quarter chooses one, and half judges it: a score would overfit to the
    # draws that it was trained on.
    (learn_p, choose_p, judge_p), (learn_q, choose_q, judge_q) = (_parts(sample) for sample in (p, q))
    best: tuple[float, Score | None, float] = (-math.inf, None, 0.0)
    for score in learn(learn_p, learn_q):
        on_p, on_q = np.sort(score(choose_p)), np.sort(score(choose_q))
        levels = np.unique(np.concatenate([on_p, on_q]))
        if len(levels) > THRESHOLDS:
            levels = levels[np.linspace(0, len(levels) - 1, THRESHOLDS).astype(int)]
        low = statistics.lower_bound(len(on_p) - np.searchsorted(on_p, levels), len(on_p), miss=CHOOSING)
        high = statistics.upper_bound(len(on_q) - np.searchsorted(on_q, levels), len(on_q), miss=CHOOSING)
        over = excess(promise, low, high)
        # If no event exceeds the promise, choose the one that measures the largest ε.
        worth = np.where(over > 0, LARGE + over, np.log(np.maximum(low, 1e-300) / high))
        place = int(np.argmax(worth))
        if worth[place] > best[0]:
            best = (float(worth[place]), score, float(levels[place]))
    _, chosen, level = best
    if chosen is None:
        return Evidence(-math.inf, 0.0, 1.0)
    hits_p, hits_q = int((chosen(judge_p) >= level).sum()), int((chosen(judge_q) >= level).sum())
    return certified(hits_p, len(judge_p), hits_q, len(judge_q), promise, miss)


def _parts(sample: Answers) -> tuple[Answers, Answers, Answers]:
    quarter = len(sample) // 4
    return sample[:quarter], sample[quarter : 2 * quarter], sample[2 * quarter :]


def certified(hits_p: int, draws_p: int, hits_q: int, draws_q: int, promise: Promise, miss: float) -> Evidence:
    """The evidence from counts of an event that was chosen without them."""
    low = statistics.lower_bound(hits_p, draws_p, miss=miss)
    high = statistics.upper_bound(hits_q, draws_q, miss=miss)
    return Evidence(float(excess(promise, low, high)), low, high)


def telling(learn_p: Answers, learn_q: Answers) -> list[Score]:
    """All scores of an audit except the scores of binary digits, which `one_sided` covers."""
    found = score_learning.learn(learn_p, learn_q)
    return [score for score in found if not isinstance(score, scores.Digits | scores.DigitsRatio)]


def one_sided(learn_p: Answers, learn_q: Answers) -> list[Score]:
    """Scores of outcomes, types, words and last binary digits that occurred more often on one side."""
    best = distinguishing_columns.telling(learn_p, learn_q)
    places = [
        ("keys", ()),
        ("kinds", ()),
        *(("words", path) for path in best.words),
        *(("types", path) for path in best.types),
    ]
    found = [scores.Outcomes.of(what, path, learn_p, learn_q) for what, path in places]
    return [*(score for score in found if score is not None), *score_learning.last_digits(learn_p, learn_q, best)]
