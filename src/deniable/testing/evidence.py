"""Events that tell two samples apart, and what they prove about a curve.

For all events S a curve promises P(S) <= e^ε Q(S) + δ(ε). Half of the draws choose S, the other half bound P(S) from
below and Q(S) from above (Clopper & Pearson). If the bounds break the promise, then so does the mechanism, except with
the stated probability.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast, final

import numpy as np
from numpy.typing import NDArray

from deniable.curves import Curve
from deniable.testing import statistics

Floats = NDArray[np.float64]
Scores = Callable[[Sequence[Any]], Floats]
"""A number for each answer; events are {score >= threshold}."""

THRESHOLDS: Final = 64
COORDINATES: Final = 8
"""Thresholds tried on one score, and coordinates of a vector looked at by themselves."""
CHOOSING: Final = 1e-4
"""How often a bound may be wrong that only chooses an event; those that judge it have their own rate."""
LARGE: Final = 1e3


def plain(answer: Any) -> Hashable:
    """An answer as something that can be counted: arrays and lists as tuples, numpy's numbers as Python's own."""
    if isinstance(answer, np.ndarray | np.generic):
        answer = answer.tolist()
    if isinstance(answer, list | tuple):
        parts = tuple(plain(part) for part in answer)
        return parts if type(answer) in (list, tuple) else (type(answer).__name__, *parts)
    if isinstance(answer, dict):
        return tuple(sorted(((plain(key), plain(part)) for key, part in answer.items()), key=repr))
    # 1, 1.0 and True are equal, and so are 0.0 and -0.0, or one moment in two zones, but who reads the answer can tell
    # them apart by how they look.
    kind: Any = type(answer)
    if kind in (int, str, bytes) or (kind.__repr__ is object.__repr__ and isinstance(answer, Hashable)):
        return cast("Hashable", answer)
    return (kind.__name__, repr(answer))


def numbers_of(answer: Any) -> Floats | None:
    """The numbers in an answer, in one row; None if it is not made of numbers."""
    try:
        row = np.asarray(answer)
    except ValueError:  # ragged
        return None
    return row.astype(float).ravel() if row.dtype.kind in "biuf" else None


@final
@dataclass(frozen=True, slots=True)
class Promise:
    """δ at the ε that so many draws can measure."""

    epsilons: Floats
    deltas: Floats

    @classmethod
    def of(cls, curve: Curve, draws: int) -> Promise:
        chosen = np.linspace(0.0, math.log(draws), 40).tolist()
        pure = float(curve.epsilon(delta=0.0))
        if pure < math.log(draws):
            chosen.append(pure)
        epsilons = np.array(sorted(chosen))
        return cls(epsilons, np.asarray(curve.delta(epsilon=epsilons)))

    @classmethod
    def nothing(cls) -> Promise:
        """That both samples have the same law."""
        return cls(np.zeros(1), np.zeros(1))

    def excess(self, low: Any, high: Any) -> Floats:
        """By how much P(S) >= low and Q(S) <= high are apart beyond the promise; positive if it is broken."""
        p, q = np.asarray(low)[..., None], np.asarray(high)[..., None]
        return np.asarray((p - np.exp(self.epsilons) * q - self.deltas).max(axis=-1))


@final
@dataclass(frozen=True, slots=True)
class Evidence:
    """An event, certified: its probability is at least `low` on one side and at most `high` on the other."""

    excess: float
    low: float
    high: float

    def epsilon(self, delta: float) -> float:
        """The ε that is measured at this δ: log((low − δ)/high)."""
        return max(0.0, math.log((self.low - delta) / self.high)) if self.low > delta else 0.0

    @property
    def broken(self) -> bool:
        return self.excess > 0

    @property
    def words(self) -> str:
        return f"an event has probability at least {self.low:.4g} for one neighbour and at most {self.high:.4g}"


def strongest(
    scores: Callable[[Sequence[Any], Sequence[Any]], list[Scores]],
    left: Sequence[Any],
    right: Sequence[Any],
    promise: Promise,
    miss: float,
) -> Evidence:
    """The event that speaks most against the promise, in either order of the two samples. Wrong with probability at
    most `miss`: two orders, two bounds each.
    """
    each = miss / 4
    found = [_one_order(scores, p, q, promise, each) for p, q in ((left, right), (right, left))]
    return max(found, key=lambda one: (one.broken, one.excess if one.broken else one.epsilon(0.0)))


def _one_order(scores: Any, p: Sequence[Any], q: Sequence[Any], promise: Promise, miss: float) -> Evidence:
    # A quarter of the draws makes the scores, a quarter chooses one, and half judges: a score that was made from all
    # outcomes seen would always win on them.
    (learn_p, choose_p, judge_p), (learn_q, choose_q, judge_q) = (_parts(sample) for sample in (p, q))
    best: tuple[float, Scores | None, float] = (-math.inf, None, 0.0)
    for score in scores(learn_p, learn_q):
        on_p, on_q = np.sort(score(choose_p)), np.sort(score(choose_q))
        levels = np.unique(np.concatenate([on_p, on_q]))
        if len(levels) > THRESHOLDS:
            levels = levels[np.linspace(0, len(levels) - 1, THRESHOLDS).astype(int)]
        low = statistics.lower_bound(len(on_p) - np.searchsorted(on_p, levels), len(on_p), miss=CHOOSING)
        high = statistics.upper_bound(len(on_q) - np.searchsorted(on_q, levels), len(on_q), miss=CHOOSING)
        excess = promise.excess(low, high)
        # Where nothing is over the promise, the event that measures the largest ε tells most.
        worth = np.where(excess > 0, LARGE + excess, np.log(np.maximum(low, 1e-300) / high))
        place = int(np.argmax(worth))
        if worth[place] > best[0]:
            best = (float(worth[place]), score, float(levels[place]))
    _, chosen, level = best
    if chosen is None:
        return Evidence(-math.inf, 0.0, 1.0)
    hits_p, hits_q = int((chosen(judge_p) >= level).sum()), int((chosen(judge_q) >= level).sum())
    return certified(hits_p, len(judge_p), hits_q, len(judge_q), promise, miss)


def _parts(sample: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    quarter = len(sample) // 4
    return sample[:quarter], sample[quarter : 2 * quarter], sample[2 * quarter :]


def certified(hits_p: int, draws_p: int, hits_q: int, draws_q: int, promise: Promise, miss: float) -> Evidence:
    """What counts of an event prove, the event having been chosen without them."""
    low = statistics.lower_bound(hits_p, draws_p, miss=miss)
    high = statistics.upper_bound(hits_q, draws_q, miss=miss)
    return Evidence(float(promise.excess(low, high)), low, high)


# -- scores ----------------------------------------------------------------------------------------------------------


def telling(learn_p: Sequence[Any], learn_q: Sequence[Any]) -> list[Scores]:
    """How much likelier each outcome was on the first side, and the numbers of the answer, upwards and downwards."""
    on_p, on_q = Counter(map(plain, learn_p)), Counter(map(plain, learn_q))
    ratio = {y: math.log((on_p[y] + 0.5) / (on_q[y] + 0.5)) for y in on_p.keys() | on_q.keys()}
    found: list[Scores] = [lambda answers: np.array([ratio.get(plain(y), 0.0) for y in answers])]
    width = _width(learn_p, learn_q)
    for place in [*range(min(width, COORDINATES)), *([None] if width > 1 else [])]:
        found += [_coordinate(place, sign) for sign in (1.0, -1.0)]
    return found


def _width(*samples: Sequence[Any]) -> int:
    """How many numbers every answer has; 0 if they are no numbers, or not always as many."""
    widths = {-1 if (row := numbers_of(y)) is None else len(row) for sample in samples for y in sample}
    return max(0, widths.pop()) if len(widths) == 1 else 0


def _coordinate(place: int | None, sign: float) -> Scores:
    def score(answers: Sequence[Any]) -> Floats:
        rows = np.array([numbers_of(y) for y in answers])
        picked = rows.sum(axis=1) if place is None else rows[:, place]
        return np.asarray(np.nan_to_num(sign * picked, nan=math.inf))

    return score


def one_sided(learn_p: Sequence[Any], learn_q: Sequence[Any]) -> list[Scores]:
    """Outcomes, types and last binary digits that were seen on the first side only.

    The last: floats that were added have gaps that depend on the value, so that a float alone may tell which value it
    came from (Mironov 2012).
    """
    return [*(_only(trait, learn_p, learn_q) for trait in (plain, _type, last_digit)), _finest]


def _only(trait: Callable[[Any], Hashable], learn_p: Sequence[Any], learn_q: Sequence[Any]) -> Scores:
    alone = {trait(y) for y in learn_p} - {trait(y) for y in learn_q}
    return lambda answers: np.array([float(trait(y) in alone) for y in answers])


def _type(answer: Any) -> str:
    return type(answer).__name__


def _finest(answers: Sequence[Any]) -> Floats:
    return np.array([-last_digit(y) for y in answers])


def last_digit(answer: Any) -> float:
    """The place of the last binary digit of the finest number in an answer: -3 for 0.625. Infinite if there is none."""
    row = numbers_of(answer)
    if row is None:
        return math.inf
    # A float is n/2^k in lowest terms: its last digit is at -k, or where n ends if k = 0.
    ratios = [y.as_integer_ratio() for y in row.tolist() if math.isfinite(y) and y]
    return min((float((n & -n).bit_length() - d.bit_length()) for n, d in ratios), default=math.inf)
