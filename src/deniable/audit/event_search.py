"""The search for an event that distinguishes two neighbours, and its test on fresh answers.

Answers are split in three parts: the first trains scores, the second chooses a score and two thresholds on it, and the
rest judges the chosen event. The three statements of a finding (ε, the claim, the band) share its error rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from deniable.audit import binomial, score_learning
from deniable.audit.answer_columns import Answers, Floats
from deniable.audit.claim import Promise
from deniable.audit.scores import Combined, Score

FOR_EPSILON, FOR_CLAIM, FOR_BAND = 0.7, 0.2, 0.1
"""The shares of the error rate for the three statements of a finding: ε, the verdict on the claim, and the band. ε gets
the largest share, because its bound depends most on the error rate; broken claims are usually broken by far.
"""
LEVELS: Final = 32
"""The number of quantiles, and of ranks towards either end, that are tried as thresholds on one score."""
BAND: Final = 24
"""The number of points of the trade-off band."""
CAUTION: Final = 3.0
"""Standard errors by which counts of the choosing answers are corrected, because the best of many events looks too
good."""
LARGEST: Final = float(np.finfo(np.float64).max)
LEAST_SEARCH, MOST_SEARCH = 20_000, 300_000


Ruler = tuple[Score, Floats]
"""A score with thresholds at which the trade-off is measured."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Answers with the coins that chose their neighbours."""

    answers: Answers
    is_first: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.is_first)

    def __getitem__(self, chosen: slice) -> Sample:
        return Sample(self.answers[chosen], self.is_first[chosen])

    @property
    def sides(self) -> tuple[Answers, Answers]:
        """The answers about the first neighbour, and those about the second."""
        return self.answers[self.is_first], self.answers[~self.is_first]


def scored(score: Score, answers: Answers) -> Floats:
    """The scores of the answers, clipped to finite numbers, so that an infinite threshold stands for "never guess". NaN
    for an answer on which the score abstains.
    """
    found = np.clip(score(answers), -LARGEST, LARGEST)
    return np.where(score.passes(answers), np.nan, found)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """A rule that guesses the neighbour from an answer: the first if the score is high, the second if it is low, and a
    pass in between.
    """

    score: Score
    first_from: float
    second_to: float

    def guesses(self, answers: Answers) -> NDArray[np.int8]:
        """1 for the first neighbour, -1 for the second, 0 for a pass."""
        found = scored(self.score, answers)
        return (found >= self.first_from).astype(np.int8) - (found <= self.second_to).astype(np.int8)

    def guess(self, answer: Any) -> int:
        """The guess about one answer: 1 for the first neighbour, -1 for the second, 0 for a pass."""
        return int(self.guesses(Answers.of([answer]))[0])

    @property
    def ruler(self) -> Ruler:
        """(score, thresholds): the score, and its finite values at which the guess changes."""
        return self.score, np.array([at for at in (self.first_from, self.second_to) if math.isfinite(at)])

    @property
    def directions(self) -> int:
        """The number of neighbours that the rule can guess, at most 2."""
        return (self.first_from < math.inf) + (self.second_to > -math.inf)

    @property
    def hint(self) -> str:
        """Advice about a leak of this kind; may be empty."""
        return self.score.hint if self.directions else ""

    @property
    def words(self) -> str:
        """The rule in words."""
        guesses = []
        if self.first_from < math.inf:
            guesses.append(f"the first neighbour where {self.score.where(least=self.first_from)}")
        if self.second_to > -math.inf:
            named = "the second" if guesses else "the second neighbour"
            guesses.append(f"{named} where {self.score.where(most=self.second_to)}")
        return "guess " + (", ".join(guesses) if guesses else "nothing")

    def __repr__(self) -> str:
        return f"<Event: {self.words}>"

    def tally(self, sample: Sample) -> Tally:
        """Count right and wrong guesses on a sample."""
        guesses = self.guesses(sample.answers)
        right = np.where(sample.is_first, guesses == 1, guesses == -1)
        return Tally(int(right.sum()), int((guesses != 0).sum() - right.sum()), len(sample), self.directions)


@final
@dataclass(frozen=True, slots=True)
class Tally:
    """The counts of an event's guesses."""

    right: int
    wrong: int
    trials: int
    directions: int

    def epsilon(self, *, delta: float, miss: float) -> float:
        """The certified ε at this δ, wrong with probability at most `miss`."""
        free = delta * self.directions / 2
        return binomial.guessing_epsilon(self.right, self.wrong, self.trials, miss=miss, delta=free)

    def p_value(self, *, epsilon: float, delta: float, miss: float) -> float:
        """The p-value of the claim that the mechanism is (ε, δ)-DP."""
        free = delta * self.directions / 2
        return binomial.guessing_p_value(self.right, self.wrong, self.trials, epsilon=epsilon, delta=free, miss=miss)


@final
@dataclass(frozen=True, slots=True)
class ClaimLevel:
    """A point (ε, δ) of a claim."""

    epsilon: float
    delta: float


@final
@dataclass(frozen=True, slots=True)
class Band:
    """Simultaneously certified points of the trade-off: for each point there is a test with a false-alarm rate of at
    most `alpha` and a miss rate of at most `beta`. The true trade-off lies on or below the line through them.
    """

    alpha: tuple[float, ...]
    beta: tuple[float, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class ChosenEvents:
    """The result of the search, before it is judged."""

    event: Event
    """The event for ε at the given δ."""
    breaking: tuple[Event, ClaimLevel] | None
    """The event against the claim, and the point of the claim that it may violate."""
    rulers: tuple[Ruler, ...]
    """Scores and thresholds for the band."""
    worth: float
    """The ε that the search expects to certify; with a claim, the expected violation in standard errors."""


def parts(total: int) -> tuple[int, int]:
    """The number of answers that train scores, and the number that train or choose."""
    search = min(max(3 * total // 20, min(total // 2, LEAST_SEARCH)), MOST_SEARCH)
    return search // 3, search


# -- search ----------------------------------------------------------------------------------------------------------


def search(
    teach: Sample,
    choose: Sample,
    *,
    judges: int,
    claim: Promise | None,
    delta: float,
    miss: float,
    own: Sequence[Score],
) -> ChosenEvents:
    """The event with the largest expected ε, and the one with the strongest evidence against the claim."""
    found = list(own) or score_learning.learn(*teach.sides)
    levels = _levels(claim)
    every = Sample(teach.answers.joined(choose.answers), np.concatenate([teach.is_first, choose.is_first]))
    found = found or [Combined.column()]
    best = _Best(found[0])
    for score in found:
        best.consider(score, choose if score.learned else every, judges, delta, miss * FOR_EPSILON, levels)
    breaking = None if best.breaking is None else (best.breaking, levels[best.level])
    rulers = (best.ruler, *(one.ruler for one in (best.event, best.breaking) if one is not None))
    return ChosenEvents(best.event, breaking, rulers, best.excess if claim is not None else best.worth)


def _levels(claim: Promise | None) -> list[ClaimLevel]:
    if claim is None:
        return []
    found = [ClaimLevel(e, d) for e, d in zip(claim.epsilons.tolist(), claim.deltas.tolist(), strict=True)]
    # A δ of 1 cannot be violated.
    return [level for level in found if level.delta < 1] or found[:1]


class _Best:
    """The best events so far. If no event is useful, the event makes no guesses."""

    def __init__(self, score: Score) -> None:
        self.event = Event(score, math.inf, -math.inf)
        self.worth = -math.inf
        self.breaking: Event | None = None
        self.excess = -math.inf
        self.level = 0
        self.ruler: Ruler = (score, np.zeros(1))
        self.area = -math.inf

    def consider(
        self, score: Score, sample: Sample, judges: int, delta: float, miss: float, levels: list[ClaimLevel]
    ) -> None:
        on = scored(score, sample.answers)
        has_score = ~np.isnan(on)
        if not has_score.any():
            return
        first, second = np.sort(on[sample.is_first & has_score]), np.sort(on[~sample.is_first & has_score])
        borders = _borders(np.sort(on[has_score]))
        # A pass counts as right half of the time.
        rated = len(first) * len(second) / max(1, int(sample.is_first.sum()) * int((~sample.is_first).sum()))
        area = 0.5 + rated * (_area(first, second) - 0.5)
        if area > self.area:
            self.area, self.ruler = area, (score, _spread(borders))
        right, wrong, directions, place = _pairs(first, second, borders)
        worth = _worth(right, wrong, directions, len(sample), judges, delta, miss)
        at = int(np.argmax(worth))
        if worth[at] > self.worth:
            self.worth, self.event = float(worth[at]), _event(score, borders, place[at])
        for number, level in enumerate(levels):
            excess = _excess(right, wrong, directions, len(sample), level)
            at = int(np.argmax(excess))
            if excess[at] > self.excess:
                self.excess, self.level = float(excess[at]), number
                self.breaking = _event(score, borders, place[at])


def _borders(on: Floats) -> Floats:
    """Candidate thresholds: quantiles of the score, and ranks increasingly close to both ends."""
    n = len(on)
    ranks = np.concatenate([np.linspace(0, n - 1, LEVELS), np.geomspace(1, max(2, n // 2), LEVELS) - 1])
    places = np.unique(np.concatenate([ranks, n - 1 - ranks]).astype(int))
    return np.unique(on[places[(places >= 0) & (places < n)]])


def _spread(borders: Floats) -> Floats:
    return borders if len(borders) <= BAND else borders[np.linspace(0, len(borders) - 1, BAND).astype(int)]


def _area(first: Floats, second: Floats) -> float:
    """The probability that a score of the first sample is above one of the second (AUC)."""
    if not len(first) or not len(second):
        return 0.0
    below = np.searchsorted(second, first, "left") + np.searchsorted(second, first, "right")
    return float(below.mean() / (2 * len(second)))


def _pairs(first: Floats, second: Floats, borders: Floats) -> tuple[Floats, Floats, Floats, NDArray[np.int64]]:
    """Right and wrong guesses for every pair of thresholds, how many neighbours are guessed, and the pair itself."""
    k = len(borders)
    high = [np.append(len(side) - np.searchsorted(side, borders, "left"), 0) for side in (first, second)]
    low = [np.append(np.searchsorted(side, borders, "right"), 0) for side in (first, second)]
    a, b = (grid.ravel() for grid in np.meshgrid(np.arange(k + 1), np.arange(k + 1), indexing="ij"))
    kept = ((a == k) | (b == k) | (b < a)) & ~((a == k) & (b == k))
    a, b = a[kept], b[kept]
    right, wrong = high[0][a] + low[1][b], high[1][a] + low[0][b]
    directions = (a < k).astype(float) + (b < k)
    return right.astype(float), wrong.astype(float), directions, np.column_stack([a, b])


def _event(score: Score, borders: Floats, place: Any) -> Event:
    a, b = int(place[0]), int(place[1])
    return Event(
        score,
        float(borders[a]) if a < len(borders) else math.inf,
        float(borders[b]) if b < len(borders) else -math.inf,
    )


def _worth(
    right: Floats, wrong: Floats, directions: Floats, chosen: int, judges: int, delta: float, miss: float
) -> Floats:
    """The ε that each event is expected to certify with `judges` answers."""
    from scipy.special import ndtri

    z, grow = -float(ndtri(miss)), judges / chosen
    free = delta * directions / 2 * judges
    free = np.where(free < miss / 8, 0.0, free + z * np.sqrt(free) + 1)
    wins, losses = _fewer(right) * grow - free, _more(wrong) * grow
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(wins / losses) - z * np.sqrt(1 / wins + 1 / losses)
    return np.where((wins > 0) & np.isfinite(found), found, -math.inf)


def _fewer(count: Floats) -> Floats:
    """A lower confidence bound on the mean of a Poisson count (Wilson's interval)."""
    return count + CAUTION**2 / 2 - CAUTION * np.sqrt(count + CAUTION**2 / 4)


def _more(count: Floats) -> Floats:
    """An upper confidence bound on the mean of a Poisson count."""
    return count + CAUTION**2 / 2 + CAUTION * np.sqrt(count + CAUTION**2 / 4)


def _excess(right: Floats, wrong: Floats, directions: Floats, chosen: int, level: ClaimLevel) -> Floats:
    """The excess of right guesses over e^ε times the wrong ones plus δ, in standard errors."""
    odds, free = math.exp(level.epsilon), level.delta * directions / 2 * chosen
    lost = wrong + 0.5
    return np.asarray((right - odds * lost - free) / np.sqrt(right + odds * odds * lost + free + 1))


# -- judgement -------------------------------------------------------------------------------------------------------


def band(rulers: Sequence[Ruler], sample: Sample, miss: float) -> Band:
    """Clopper-Pearson bounds at every threshold, in both directions, with a union bound over all of them."""
    each = miss / (4 * sum(len(borders) for _, borders in rulers))
    points = [(0.0, 1.0), (1.0, 0.0)]
    for score, borders in rulers:
        on = scored(score, sample.answers)
        first, second = on[sample.is_first], on[~sample.is_first]
        if not len(first) or not len(second):
            continue
        for one, other, at in ((first, second, borders), (-second, -first, -borders)):
            # Test for `one`: false alarms come from `other`, misses from `one`.
            alarms = binomial.upper_bound(_from(other, at), len(other), miss=each)
            misses = 1 - binomial.lower_bound(_from(one, at), len(one), miss=each)
            points += list(zip(np.atleast_1d(alarms).tolist(), np.atleast_1d(misses).tolist(), strict=True))
    hull = _hull(points)
    return Band(tuple(a for a, _ in hull), tuple(b for _, b in hull))


def _from(on: Floats, borders: Floats) -> Any:
    """How many scores are at least each threshold. Passes do not count."""
    ranked = np.sort(on[~np.isnan(on)])
    return len(ranked) - np.searchsorted(ranked, borders, "left")


def _hull(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The lower convex hull, since tests can be mixed by a coin."""
    found: list[tuple[float, float]] = []
    for x, y in sorted(points):
        while len(found) >= 2 and (found[-1][0] - found[-2][0]) * (y - found[-2][1]) <= (
            found[-1][1] - found[-2][1]
        ) * (x - found[-2][0]):
            found.pop()
        if not found or x > found[-1][0]:
            found.append((x, y))
    return found
